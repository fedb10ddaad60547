//! The group: the orders of the directory and of the domains, and processes that are further in one than in another.
use crate::spec::{Named, Spec};
use spindle_dds_core::cache::*;
use spindle_dds_core::directory::*;
use spindle_dds_core::matching::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::stream::*;
use spindle_dds_core::{DdsTime, Guid, InstanceHandle};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A source of numbers that depend on a seed only.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

pub(crate) const PROCESSES: usize = 4;
const TOPICS: [&str; 2] = ["a", "b"];
/// The set of all changes at GROUP scope.
const SET: u64 = 3;

pub(crate) fn guid(process: usize, entity: usize) -> Guid {
    let mut bytes = [0; 16];
    bytes[0] = process as u8;
    bytes[8..].copy_from_slice(&(entity as u64).to_be_bytes());
    Guid(bytes)
}

pub(crate) fn process_of(guid: Guid) -> usize {
    usize::from(guid.0[0])
}

fn topic(name: &str) -> TopicRef {
    TopicRef { name: name.to_owned(), type_name: "Shape".to_owned(), description: None }
}

/// How the views follow the plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leader {
    /// By the newest version.
    Newest,
    /// By the version that a process has.
    Process,
    /// By one of the last versions, so that a view may follow an older plan than the view before.
    Any,
}

/// A step of the order of a domain.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// An epoch with these members and senders begins.
    Epoch {
        members: Vec<u64>,
        senders: Vec<u64>,
    },
    Message {
        sender: u64,
        bytes: Vec<u8>,
    },
}

/// An event as an endpoint got it, without the parts that this test does not draw.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Seen {
    /// The writer, its strength, and whether it is alive.
    Matched(Guid, (i32, bool)),
    Unmatched(Guid, Gone),
    Change(Guid, Vec<u8>, Option<SetId>),
    SetEnd(SetId),
    SetAbandoned(SetId),
    Alive(Guid, bool),
    /// A reader, as a writer hears of it.
    Publication(Guid, bool),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Gone {
    Unmatched,
    Deleted,
    Lost,
}

/// A process: how far it is in each order, and what its endpoints got, with the place in the order of the domain.
pub(crate) struct Process {
    pub(crate) directory: Directory,
    commands: usize,
    pub(crate) streams: ProcessStreams,
    /// The next step of each domain that its driver takes.
    pub(crate) taken: BTreeMap<u32, usize>,
    /// The domains that have it as a member, in the epoch that its driver has taken.
    is_in: BTreeSet<u32>,
    pub(crate) spec: Spec,
    pub(crate) seen: BTreeMap<(Guid, u32), Vec<(usize, Seen)>>,
    entities: usize,
    pub(crate) writers: Vec<Guid>,
    /// Writers that are deleted once their samples have been delivered.
    ending: Vec<Guid>,
    pub(crate) readers: Vec<Guid>,
    pub(crate) blocked: usize,
    pub(crate) has_joined: bool,
    pub(crate) has_crashed: bool,
}

pub(crate) struct World {
    pub(crate) seed: u64,
    leader: Leader,
    /// Whether drivers go on with a domain that is blocked.
    is_greedy: bool,
    /// The commands in their order with their senders, and the directory after each, by version.
    commands: Vec<(u64, DirectoryCommand)>,
    pub(crate) versions: BTreeMap<u64, Directory>,
    pub(crate) reference: Directory,
    /// The order of each domain, and the messages that are sent and not ordered yet.
    pub(crate) steps: BTreeMap<u32, Vec<Step>>,
    outbox: BTreeMap<(u32, u64), VecDeque<Vec<u8>>>,
    sent: BTreeMap<Guid, usize>,
    pub(crate) processes: Vec<Process>,
}

impl World {
    pub(crate) fn new(seed: u64, leader: Leader, is_greedy: bool) -> World {
        let process = |index: usize| Process {
            directory: Directory::default(),
            commands: 0,
            streams: ProcessStreams::new(index as u64),
            taken: BTreeMap::new(),
            is_in: BTreeSet::new(),
            spec: Spec::new(index as u64),
            seen: BTreeMap::new(),
            entities: 0,
            writers: Vec::new(),
            ending: Vec::new(),
            readers: Vec::new(),
            blocked: 0,
            has_joined: false,
            has_crashed: false,
        };
        let mut world = World {
            seed,
            leader,
            is_greedy,
            commands: Vec::new(),
            versions: BTreeMap::from([(0, Directory::default())]),
            reference: Directory::default(),
            steps: BTreeMap::new(),
            outbox: BTreeMap::new(),
            sent: BTreeMap::new(),
            processes: (0..PROCESSES).map(process).collect(),
        };
        (0..PROCESSES - 1).for_each(|index| world.join(index));
        world
    }

    /// Lets a process come: it gets the directory as it is now, and adds its participant.
    pub(crate) fn join(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if std::mem::replace(&mut process.has_joined, true) {
            return;
        }
        process.directory = self.reference.clone();
        process.commands = self.commands.len();
        process.streams.note(&process.directory, &Applied::default());
        process.spec.note(&self.versions, process.directory.version());
        let entry = ParticipantEntry {
            guid: guid(index, 0),
            member: index as u64,
            incarnation: 1,
            name: String::new(),
            user_data: UserDataQosPolicy::default(),
        };
        self.command(index, DirectoryCommand::Announce(entry));
    }

    fn is_running(&self, index: usize) -> bool {
        self.processes[index].has_joined && !self.processes[index].has_crashed
    }

    fn command(&mut self, sender: usize, command: DirectoryCommand) {
        let _ = self.reference.apply(sender as u64, &command);
        self.versions.insert(self.reference.version(), self.reference.clone());
        self.commands.push((sender as u64, command));
    }

    pub(crate) fn change(&mut self, process: usize, change: EntityChange) {
        self.command(process, DirectoryCommand::Change { participant: guid(process, 0), changes: vec![change] });
    }

    pub(crate) fn put_writer(&mut self, own: Guid, topic_name: &str, state: (i32, bool), partition: &str) {
        let (process, group) = (process_of(own), process_of(own) == 0);
        let mut qos = DataWriterQos::default();
        qos.ownership_strength.value = state.0;
        let access_scope = match group {
            true => PresentationQosPolicyAccessScopeKind::Group,
            false => PresentationQosPolicyAccessScopeKind::Instance,
        };
        let publisher = PublisherQos {
            presentation: PresentationQosPolicy { access_scope, coherent_access: group, ordered_access: false },
            partition: PartitionQosPolicy::of([partition]),
            ..PublisherQos::default()
        };
        let entry = WriterEntry {
            participant: guid(process, 0),
            publisher: guid(process, 1_000_000),
            type_hash: None,
            sample_bytes_max: 64,
            alive: state.1,
            description: WriterDescription { guid: own, topic: topic(topic_name), qos, publisher },
        };
        self.change(process, EntityChange::Writer(Box::new(entry)));
    }

    pub(crate) fn put_reader(&mut self, own: Guid, topic_name: &str, partition: &str, is_reliable: bool) {
        let process = process_of(own);
        let subscriber = SubscriberQos { partition: PartitionQosPolicy::of([partition]), ..SubscriberQos::default() };
        let mut qos = DataReaderQos::default();
        if is_reliable {
            qos.reliability = ReliabilityQosPolicy::WRITER;
        }
        let entry = ReaderEntry {
            participant: guid(process, 0),
            subscriber: guid(process, 1_000_001),
            type_hash: None,
            description: ReaderDescription { guid: own, topic: topic(topic_name), qos, subscriber },
        };
        self.change(process, EntityChange::Reader(Box::new(entry)));
    }

    /// Lets a process apply the next command.
    pub(crate) fn apply(&mut self, index: usize) -> bool {
        let is_running = self.is_running(index);
        let process = &mut self.processes[index];
        let Some((sender, command)) = self.commands.get(process.commands).filter(|_| is_running) else {
            return false;
        };
        process.commands += 1;
        let applied = process.directory.apply(*sender, command);
        process.streams.note(&process.directory, &applied);
        process.spec.note(&self.versions, process.directory.version());
        self.advance(index);
        true
    }

    /// Lets a process take the steps that have waited, in fact and by the specification.
    fn advance(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let seen = &mut process.seen;
        let faults = process.streams.advance(<[u8]>::to_vec, |event| note_event(seen, event));
        assert_eq!(faults, 0);
        let endpoints: Vec<Guid> = process.readers.iter().chain(&process.writers).copied().collect();
        for (domain, steps) in &self.steps {
            process.spec.advance(&self.versions, *domain, steps, &endpoints);
            let is_waiting = process.spec.is_waiting(*domain);
            let seed = self.seed;
            assert_eq!(
                process.streams.is_blocked(*domain),
                is_waiting,
                "seed {seed}: process {index}, domain {domain}"
            );
        }
    }

    /// Returns the members and the senders of the newest epoch of a domain.
    pub(crate) fn epoch(&self, domain: u32) -> (&[u64], &[u64]) {
        let epoch = self.steps.get(&domain).into_iter().flatten().rev().find_map(|step| match step {
            Step::Epoch { members, senders } => Some((&members[..], &senders[..])),
            Step::Message { .. } => None,
        });
        epoch.unwrap_or((&[], &[]))
    }

    /// Lets the group agree on the members that a plan of a domain names.
    fn change_view(&mut self, domain: u32, dice: &mut Dice) -> bool {
        let newest = self.reference.version();
        let process = &self.processes[dice.below(PROCESSES)];
        let version = match self.leader {
            Leader::Process if process.has_joined && !process.has_crashed => process.directory.version(),
            Leader::Any => newest - dice.below(12) as u64 % (newest + 1),
            Leader::Newest | Leader::Process => newest,
        };
        self.follow_plan(domain, version, dice)
    }

    /// Lets the group agree on the members of a plan.
    pub(crate) fn follow_plan(&mut self, domain: u32, version: u64, dice: &mut Dice) -> bool {
        let plan = self.versions[&version].plan(domain);
        let of = |list: &[u64]| list.iter().copied().filter(|id| self.is_running(*id as usize)).collect::<Vec<u64>>();
        let (mut members, senders) = plan
            .map_or((vec![], vec![]), |plan| (of(&[&plan.members[..], &plan.observers].concat()), of(&plan.senders)));
        members.sort_unstable();
        if self.epoch(domain) == (&members[..], &senders[..]) {
            return false;
        }
        self.begin_epoch(domain, members, senders, dice);
        true
    }

    /// Begins an epoch of a domain. The one before keeps all that a process has taken, and maybe more. The senders
    /// that stay send the rest again.
    pub(crate) fn begin_epoch(&mut self, domain: u32, members: Vec<u64>, senders: Vec<u64>, dice: &mut Dice) {
        let steps = self.steps.entry(domain).or_default();
        let begun = steps.iter().rposition(|step| matches!(step, Step::Epoch { .. })).map_or(0, |at| at + 1);
        let taken = self.processes.iter().filter_map(|process| process.taken.get(&domain)).max();
        let least = taken.copied().unwrap_or(0).max(begun);
        for step in steps.split_off(least + dice.below(steps.len() - least + 1)).into_iter().rev() {
            let Step::Message { sender, bytes } = step else { unreachable!("the epoch is the last one") };
            self.outbox.entry((domain, sender)).or_default().push_front(bytes);
        }
        self.outbox.retain(|(of, sender), _| *of != domain || senders.contains(sender));
        steps.push(Step::Epoch { members, senders });
    }

    /// Lets the group order the next message of a process.
    pub(crate) fn order(&mut self, domain: u32, sender: u64) -> bool {
        let bytes = self.outbox.get_mut(&(domain, sender)).and_then(VecDeque::pop_front);
        let Some(bytes) = bytes else { return false };
        self.steps.get_mut(&domain).expect("it has an epoch").push(Step::Message { sender, bytes });
        true
    }

    /// Lets a process take the next step of a domain.
    pub(crate) fn deliver(&mut self, index: usize, domain: u32, dice: &mut Dice) -> bool {
        let (is_running, me) = (self.is_running(index), index as u64);
        let process = &mut self.processes[index];
        let at = process.taken.get(&domain).copied().unwrap_or(0);
        let Some(step) = self.steps.get(&domain).and_then(|all| all.get(at)).filter(|_| is_running) else {
            return false;
        };
        let is_blocked = process.streams.is_blocked(domain);
        match step {
            Step::Epoch { members, senders } => {
                if members.contains(&me) {
                    process.streams.begin_epoch(domain, at as u64, members, senders);
                    process.is_in.insert(domain);
                    process.spec.take(domain, Named::Begin(at));
                } else if process.is_in.remove(&domain) {
                    process.streams.end(domain);
                    process.spec.take(domain, Named::End(at));
                }
            }
            Step::Message { .. } if !process.is_in.contains(&domain) => {}
            Step::Message { .. } if is_blocked && !self.is_greedy => {
                process.blocked += 1;
                return false;
            }
            Step::Message { bytes, .. } => {
                process.spec.take(domain, Named::Message(at));
                if dice.below(3) == 0 {
                    process.streams.push(domain, bytes.clone());
                } else {
                    let seen = &mut process.seen;
                    let take = |event| note_event(seen, event);
                    process.streams.deliver(domain, bytes, <[u8]>::to_vec, take).expect("it is a message");
                }
            }
        }
        process.taken.insert(domain, at + 1);
        self.advance(index);
        true
    }

    /// Puts a message of a process on its way, if the process stays a sender up to the newest epoch.
    fn post(&mut self, index: usize, domain: u32, message: &StreamMessage<'_>) {
        let at = self.processes[index].taken.get(&domain).copied().unwrap_or(0);
        let mut later = self.steps.get(&domain).into_iter().flatten().skip(at.saturating_sub(1));
        let is_out = |step: &Step| matches!(step, Step::Epoch { senders, .. } if !senders.contains(&(index as u64)));
        if !later.any(is_out) && self.epoch(domain).1.contains(&(index as u64)) {
            self.outbox.entry((domain, index as u64)).or_default().push_back(message.encode());
        }
    }

    /// Lets a process send the fences that are due.
    pub(crate) fn fence(&mut self, index: usize) -> bool {
        let is_running = self.is_running(index);
        let due: Vec<(u32, u64)> = self.processes[index].streams.fences_due().filter(|_| is_running).collect();
        for (domain, version) in &due {
            self.processes[index].streams.fence_sent(*domain, *version);
            self.post(index, *domain, &StreamMessage::Fence(*version));
        }
        !due.is_empty()
    }

    /// Lets a writer of a process send, if it may.
    pub(crate) fn send(&mut self, index: usize, dice: &mut Dice) {
        let is_running = self.is_running(index);
        let process = &self.processes[index];
        if process.writers.is_empty() || !is_running {
            return;
        }
        let own = process.writers[dice.below(process.writers.len())];
        let Some(domain) = process.streams.active_domain(own) else { return };
        // A process that knows of its end in the domain has no publisher of it.
        assert!(process.is_in.contains(&domain), "seed {}: {own} may send in {domain}", self.seed);
        let Some(entry) = process.directory.writer(own).cloned() else { return };
        let writer = process.directory.writer_number(own).unwrap();
        let group = entry.description.publisher.presentation.coherent_access;
        let count = self.sent.entry(own).or_default();
        *count += 1;
        let payload = count.to_le_bytes();
        let message = match dice.below(6) {
            0 if group => StreamMessage::SetEnd {
                set: SetId { source: entry.publisher, number: SET },
                changes: vec![(writer, 1)],
            },
            _ => StreamMessage::Change(ChangeMessage {
                writer,
                kind: ChangeKind::Write,
                instance: InstanceHandle::KEYLESS,
                source_timestamp: DdsTime::from_nanos(0),
                set: group.then_some(SET),
                payload: &payload,
            }),
        };
        self.post(index, domain, &message);
    }

    /// Draws a change of the entities of a process.
    fn draw(&mut self, index: usize, dice: &mut Dice) {
        let partition = ["", "x", "*"][dice.below(3)];
        if !self.is_running(index) {
            return;
        }
        let process = &mut self.processes[index];
        match dice.below(6) {
            0 | 1 if process.writers.len() < 3 => {
                process.entities += 1;
                let own = guid(index, process.entities);
                process.writers.push(own);
                self.put_writer(own, TOPICS[dice.below(2)], (0, true), partition);
            }
            2 if process.readers.len() < 3 => {
                process.entities += 1;
                let own = guid(index, process.entities);
                process.readers.push(own);
                self.put_reader(own, TOPICS[dice.below(2)], partition, dice.below(3) > 0);
            }
            3 if !process.writers.is_empty() => {
                let own = process.writers[dice.below(process.writers.len())];
                let state = (dice.below(2) as i32, dice.below(2) == 0);
                if let Some(entry) = self.reference.writer(own).cloned() {
                    self.put_writer(own, &entry.description.topic.name, state, partition);
                }
            }
            4 if !process.writers.is_empty() => {
                let own = process.writers.swap_remove(dice.below(process.writers.len()));
                process.ending.push(own);
            }
            5 if !process.readers.is_empty() => {
                let own = process.readers.swap_remove(dice.below(process.readers.len()));
                self.change(index, EntityChange::Delete(own));
            }
            _ => {}
        }
        self.end_writers(index);
    }

    /// Deletes the writers that have ended, once this process has delivered all that there is.
    fn end_writers(&mut self, index: usize) {
        let is_running = self.is_running(index);
        let process = &mut self.processes[index];
        let is_done = self.steps.iter().all(|(domain, steps)| {
            let is_sent = self.outbox.get(&(*domain, index as u64)).is_none_or(VecDeque::is_empty);
            let is_taken = process.taken.get(domain).copied().unwrap_or(0) == steps.len();
            is_sent && is_taken && !process.streams.is_blocked(*domain)
        });
        if is_done && is_running {
            for own in std::mem::take(&mut process.ending) {
                self.change(index, EntityChange::Delete(own));
            }
        }
    }

    /// A process fails. One view removes it from all subgroups.
    pub(crate) fn crash(&mut self, index: usize, dice: &mut Dice) {
        if !self.is_running(index) {
            return;
        }
        self.processes[index].has_crashed = true;
        let me = index as u64;
        for domain in self.steps.keys().copied().collect::<Vec<u32>>() {
            let (members, senders) = self.epoch(domain);
            if members.contains(&me) {
                let rest = |list: &[u64]| list.iter().copied().filter(|id| *id != me).collect::<Vec<u64>>();
                let (members, senders) = (rest(members), rest(senders));
                self.begin_epoch(domain, members, senders, dice);
            }
        }
    }

    /// The first process expels the participants of those that have failed.
    fn expel(&mut self) -> bool {
        let Some(leader) = (0..PROCESSES).find(|index| self.is_running(*index)) else { return false };
        let alive: Vec<(u64, u64)> =
            (0..PROCESSES).filter(|it| self.is_running(*it)).map(|it| (it as u64, 1)).collect();
        let absent = self.reference.absent(&alive);
        if !absent.is_empty() {
            self.command(leader, DirectoryCommand::Expel(absent.clone()));
        }
        !absent.is_empty()
    }

    /// Returns the domains that have had a subgroup, or have a plan.
    fn domains(&self) -> Vec<u32> {
        let plans = self.reference.plans().map(|plan| plan.domain);
        plans.chain(self.steps.keys().copied()).collect::<BTreeSet<u32>>().into_iter().collect()
    }

    pub(crate) fn step(&mut self, dice: &mut Dice) {
        let index = dice.below(PROCESSES);
        let domains = self.domains();
        // The newest domains are those with a plan.
        let domain = match domains.len() {
            0 => 0,
            count => domains[count - 1 - dice.below(count.min(3))],
        };
        match dice.below(32) {
            0 => self.draw(index, dice),
            1..4 => drop(self.apply(index)),
            4..6 => drop(self.fence(index)),
            6..12 => self.send(index, dice),
            12..14 => drop(self.change_view(domain, dice)),
            14..20 => drop(self.order(domain, index as u64)),
            20 => drop(dice.below(8) == 0 && self.expel()),
            _ => drop(self.deliver(index, domain, dice)),
        }
    }

    /// Lets all processes apply, send and deliver all that there is. The views follow the newest plans in the end.
    pub(crate) fn settle(&mut self, dice: &mut Dice) {
        let mut any = true;
        while any {
            any = self.expel();
            let domains = self.domains();
            for index in 0..PROCESSES {
                any |= self.apply(index) | self.fence(index);
                for domain in &domains {
                    any |= self.order(*domain, index as u64) | self.deliver(index, *domain, dice);
                }
            }
            if !any {
                let newest = self.reference.version();
                domains.into_iter().for_each(|domain| any |= self.follow_plan(domain, newest, dice));
            }
        }
    }
}

fn note_event(
    seen: &mut BTreeMap<(Guid, u32), Vec<(usize, Seen)>>,
    PlacedEvent { position, event }: PlacedEvent<Vec<u8>>,
) {
    let (endpoint, event) = match event {
        StreamEvent::Matched { writer, reader } => (writer, Seen::Publication(reader, true)),
        StreamEvent::Unmatched { writer, reader } => (writer, Seen::Publication(reader, false)),
        StreamEvent::Reader { reader, event } => {
            let event = match event {
                ReaderEvent::WriterMatched(info) => Seen::Matched(info.guid, (info.strength, info.alive)),
                ReaderEvent::WriterUnmatched(guid, WriterEnd::Unmatched) => Seen::Unmatched(guid, Gone::Unmatched),
                ReaderEvent::WriterUnmatched(guid, WriterEnd::Deleted { .. }) => Seen::Unmatched(guid, Gone::Deleted),
                ReaderEvent::WriterUnmatched(guid, WriterEnd::Lost) => Seen::Unmatched(guid, Gone::Lost),
                ReaderEvent::Change(change) => Seen::Change(change.writer, change.payload, change.set),
                ReaderEvent::SetEnd(end) => Seen::SetEnd(end.set),
                ReaderEvent::SetAbandoned(set) => Seen::SetAbandoned(set),
                ReaderEvent::WriterAlive(guid, alive) => Seen::Alive(guid, alive),
                other => panic!("{other:?}"),
            };
            (reader, event)
        }
    };
    // An epoch is named by the place at which it begins, and its first message follows.
    let place = (position.view + 1 + position.seq) as usize;
    seen.entry((endpoint, position.domain)).or_default().push((place, event));
}
