//! Order domains at several processes, through changes of the view: every reader gets what the directory says,
//! whichever process is how far.
use spindle_dds_core::cache::*;
use spindle_dds_core::directory::*;
use spindle_dds_core::matching::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::stream::*;
use spindle_dds_core::{DdsTime, Guid, InstanceHandle, Position};
use std::collections::{BTreeMap, BTreeSet};

/// A source of numbers that depend on a seed only.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

const PROCESSES: usize = 3;
const TOPICS: [&str; 2] = ["a", "b"];
/// The set of all changes at GROUP scope.
const SET: u64 = 3;

fn guid(process: usize, entity: usize) -> Guid {
    let mut bytes = [0; 16];
    bytes[0] = process as u8;
    bytes[8..].copy_from_slice(&(entity as u64).to_be_bytes());
    Guid(bytes)
}

fn process_of(guid: Guid) -> usize {
    usize::from(guid.0[0])
}

fn topic(name: &str) -> TopicRef {
    TopicRef { name: name.to_owned(), type_name: "Shape".to_owned(), description: None }
}

/// A step of the order of a domain.
#[derive(Clone, Debug)]
enum Step {
    /// An epoch with these members and senders begins, by the plan of this version.
    Epoch {
        members: Vec<u64>,
        senders: Vec<u64>,
        version: u64,
    },
    Message(Vec<u8>),
}

/// An event as an endpoint got it, without the parts that this test does not draw.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Seen {
    /// The writer, its strength, and whether it is alive.
    Matched(Guid, (i32, bool)),
    /// The writer, and whether its process failed.
    Unmatched(Guid, bool),
    Change(Guid, Vec<u8>, Option<SetId>),
    SetEnd(SetId),
    SetAbandoned(SetId),
    Alive(Guid, bool),
    /// A reader, as a writer hears of it.
    Publication(Guid, bool),
}

/// A process: how far it is in each order, and what its endpoints got, with the place in the order of the domain.
#[derive(Default)]
struct Process {
    directory: Directory,
    commands: usize,
    streams: BTreeMap<u32, DomainStream>,
    /// The streams that follow those: a plan has left the process out, and another one names it again.
    following: BTreeMap<u32, DomainStream>,
    /// The domains whose plans name the process.
    planned: BTreeSet<u32>,
    /// The version of the plan with which the process entered the subgroup of a domain.
    since: BTreeMap<(u32, usize), u64>,
    delivered: BTreeMap<u32, usize>,
    senders: BTreeMap<u32, Vec<u64>>,
    seen: BTreeMap<(Guid, u32), Vec<(usize, Seen)>>,
    entities: usize,
    writers: Vec<Guid>,
    /// Writers that are deleted once their samples have been delivered.
    ending: Vec<Guid>,
    readers: Vec<Guid>,
    blocked: u64,
    has_crashed: bool,
}

#[derive(Default)]
struct World {
    /// The commands in their order with their senders, and the directory after each, by version.
    commands: Vec<(u64, DirectoryCommand)>,
    versions: BTreeMap<u64, Directory>,
    reference: Directory,
    /// The order of each domain, and the members of its last epoch.
    steps: BTreeMap<u32, Vec<Step>>,
    members: BTreeMap<u32, Vec<u64>>,
    sent: BTreeMap<Guid, usize>,
    processes: Vec<Process>,
}

impl World {
    fn new() -> World {
        let mut world = World { processes: (0..PROCESSES).map(|_| Process::default()).collect(), ..World::default() };
        world.versions.insert(0, Directory::default());
        for member in 0..PROCESSES {
            let entry = ParticipantEntry {
                guid: guid(member, 0),
                member: member as u64,
                incarnation: 1,
                name: String::new(),
                user_data: UserDataQosPolicy::default(),
            };
            world.command(member, DirectoryCommand::Announce(entry));
        }
        world
    }

    fn command(&mut self, sender: usize, command: DirectoryCommand) {
        let _ = self.reference.apply(sender as u64, &command);
        self.versions.insert(self.reference.version(), self.reference.clone());
        self.commands.push((sender as u64, command));
    }

    fn change(&mut self, process: usize, change: EntityChange) {
        self.command(process, DirectoryCommand::Change { participant: guid(process, 0), changes: vec![change] });
    }

    fn put_writer(&mut self, own: Guid, topic_name: &str, state: (i32, bool), partition: &str) {
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

    fn put_reader(&mut self, own: Guid, topic_name: &str, partition: &str) {
        let process = process_of(own);
        let subscriber = SubscriberQos { partition: PartitionQosPolicy::of([partition]), ..SubscriberQos::default() };
        let qos = DataReaderQos { reliability: ReliabilityQosPolicy::WRITER, ..DataReaderQos::default() };
        let entry = ReaderEntry {
            participant: guid(process, 0),
            subscriber: guid(process, 1_000_001),
            type_hash: None,
            description: ReaderDescription { guid: own, topic: topic(topic_name), qos, subscriber },
        };
        self.change(process, EntityChange::Reader(Box::new(entry)));
    }

    /// Lets a process apply the next command, and make the streams of whose plans it becomes a part.
    fn apply(&mut self, index: usize) -> bool {
        let process = &mut self.processes[index];
        let Some((sender, command)) = self.commands.get(process.commands).filter(|_| !process.has_crashed) else {
            return false;
        };
        process.commands += 1;
        let applied = process.directory.apply(*sender, command);
        let directory = &process.directory;
        let streams = process.streams.values_mut().chain(process.following.values_mut());
        streams.for_each(|stream| stream.note(directory, &applied));
        let is_planned = |plan: &&DomainPlan| plan.members.contains(&(index as u64));
        let planned: BTreeSet<u32> = directory.plans().filter(is_planned).map(|plan| plan.domain).collect();
        for domain in planned.difference(&process.planned) {
            let stream = DomainStream::new(*domain, index as u64, directory);
            if process.streams.contains_key(domain) {
                process.following.insert(*domain, stream);
            } else {
                process.streams.insert(*domain, stream);
            }
        }
        process.planned = planned;
        true
    }

    /// Lets the group agree on the members that the newest plan of a domain names.
    fn change_view(&mut self, domain: u32) -> bool {
        let plan = self.reference.plan(domain);
        let version = plan.map_or(self.reference.version(), |plan| plan.version);
        let lives = |member: &&u64| !self.processes[**member as usize].has_crashed;
        let of = |list: &Vec<u64>| list.iter().filter(lives).copied().collect::<Vec<u64>>();
        let (members, senders) = plan.map_or((vec![], vec![]), |plan| (of(&plan.members), of(&plan.senders)));
        let before = self.members.get(&domain);
        if before == Some(&members) || before.is_none() && members.is_empty() {
            return false;
        }
        self.members.insert(domain, members.clone());
        self.steps.entry(domain).or_default().push(Step::Epoch { members, senders, version });
        true
    }

    /// Lets a process go one step in the order of a domain.
    fn deliver(&mut self, index: usize, domain: u32) -> bool {
        let process = &mut self.processes[index];
        let at = process.delivered.get(&domain).copied().unwrap_or(0);
        let Some(step) = self.steps.get(&domain).and_then(|all| all.get(at)).filter(|_| !process.has_crashed) else {
            return false;
        };
        let seen = &mut process.seen;
        let mut note = |event: StreamEvent<Vec<u8>>| {
            let (endpoint, event) = match event {
                StreamEvent::Matched { writer, reader } => (writer, Seen::Publication(reader, true)),
                StreamEvent::Unmatched { writer, reader } => (writer, Seen::Publication(reader, false)),
                StreamEvent::Reader { reader, event } => {
                    let event = match event {
                        ReaderEvent::WriterMatched(info) => Seen::Matched(info.guid, (info.strength, info.alive)),
                        ReaderEvent::WriterUnmatched(guid, end) => Seen::Unmatched(guid, end == WriterEnd::Lost),
                        ReaderEvent::Change(change) => Seen::Change(change.writer, change.payload, change.set),
                        ReaderEvent::SetEnd(end) => Seen::SetEnd(end.set),
                        ReaderEvent::SetAbandoned(set) => Seen::SetAbandoned(set),
                        ReaderEvent::WriterAlive(guid, alive) => Seen::Alive(guid, alive),
                        other => panic!("{other:?}"),
                    };
                    (reader, event)
                }
            };
            seen.entry((endpoint, domain)).or_default().push((at, event));
        };
        let me = index as u64;
        let outcome = match step {
            Step::Epoch { members, senders, version } => {
                let was_in = process.senders.contains_key(&domain);
                let is_in = members.contains(&me);
                process.senders.remove(&domain);
                if is_in {
                    if *version > process.directory.version() {
                        process.senders.extend(was_in.then(|| (domain, vec![])));
                        process.blocked += 1;
                        return false;
                    }
                    let make = || DomainStream::new(domain, me, &process.directory);
                    let stream = process.streams.entry(domain).or_insert_with(make);
                    stream.begin_epoch(members);
                    process.senders.insert(domain, senders.clone());
                    if !was_in {
                        process.since.insert((domain, at), *version);
                    }
                    Ok(())
                } else if was_in {
                    let stream = process.streams.get_mut(&domain).expect("it was a member");
                    let ended = stream.end(*version, &mut note);
                    match ended {
                        Ok(()) => {
                            assert_eq!(stream.strays(), 0);
                            process.streams.remove(&domain);
                            process.streams.extend(process.following.remove_entry(&domain));
                        }
                        Err(_) => drop(process.senders.insert(domain, vec![])),
                    }
                    ended
                } else {
                    Ok(())
                }
            }
            Step::Message(bytes) if process.senders.contains_key(&domain) => {
                let message = StreamMessage::decode(bytes).unwrap();
                let position = Position { domain, view: 1, seq: at as u64, index: 0 };
                let stream = process.streams.get_mut(&domain).expect("it is a member");
                stream.deliver(position, &message, <[u8]>::to_vec, &mut note)
            }
            Step::Message(_) => Ok(()),
        };
        if let Err(Behind { version }) = outcome {
            assert!(version > process.directory.version());
            process.blocked += 1;
            return false;
        }
        process.delivered.insert(domain, at + 1);
        true
    }

    /// Lets a process send the fences that are due. A member sends in the newest epoch only.
    fn fence(&mut self, index: usize) -> bool {
        let process = &mut self.processes[index];
        let mut any = false;
        for (domain, stream) in process.streams.iter_mut().filter(|_| !process.has_crashed) {
            let (Some(senders), Some(steps)) = (process.senders.get(domain), self.steps.get_mut(domain)) else {
                continue;
            };
            let newest = steps.iter().rposition(|step| matches!(step, Step::Epoch { .. }));
            if newest.is_some_and(|at| process.delivered[domain] <= at) {
                continue;
            }
            if let Some(version) = stream.fence_due(senders) {
                stream.fence_sent(version);
                steps.push(Step::Message(StreamMessage::Fence(version).encode()));
                any = true;
            }
        }
        any
    }

    /// Lets a writer of a process send, if it may.
    fn send(&mut self, index: usize, dice: &mut Dice) {
        let process = &mut self.processes[index];
        if process.writers.is_empty() || process.has_crashed {
            return;
        }
        let own = process.writers[dice.below(process.writers.len())];
        let Some(entry) = process.directory.writer(own) else { return };
        let Some(domain) = process.directory.domain_of(&entry.description.topic.name) else { return };
        let is_active = process.streams.get(&domain).is_some_and(|stream| stream.is_active(own));
        let Some(steps) = self.steps.get_mut(&domain).filter(|_| is_active) else { return };
        let newest = steps.iter().rposition(|step| matches!(step, Step::Epoch { .. }));
        if newest.is_some_and(|at| process.delivered[&domain] <= at) {
            return;
        }
        let writer = process.directory.writer_number(own).unwrap();
        let group = entry.description.publisher.presentation.coherent_access;
        let count = self.sent.entry(own).or_default();
        *count += 1;
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
                payload: &count.to_le_bytes(),
            }),
        };
        steps.push(Step::Message(message.encode()));
    }

    /// Draws a change of the entities of a process.
    fn draw(&mut self, index: usize, dice: &mut Dice) {
        let partition = ["", "x", "*"][dice.below(3)];
        let process = &mut self.processes[index];
        if process.has_crashed {
            return;
        }
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
                self.put_reader(own, TOPICS[dice.below(2)], partition);
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
        let process = &mut self.processes[index];
        let is_done = process.streams.keys().all(|domain| {
            let all = self.steps.get(domain).map_or(0, Vec::len);
            process.delivered.get(domain).copied().unwrap_or(0) == all
        });
        if is_done && !process.has_crashed {
            for own in std::mem::take(&mut process.ending) {
                self.change(index, EntityChange::Delete(own));
            }
        }
    }

    /// A process fails. The others expel it.
    fn crash(&mut self, index: usize) {
        if !self.processes[index].has_crashed {
            self.processes[index].has_crashed = true;
            let sender = (index + 1) % PROCESSES;
            let alive: Vec<(u64, u64)> =
                (0..PROCESSES as u64).filter(|it| *it != index as u64).map(|it| (it, 1)).collect();
            let absent = self.reference.absent(&alive);
            self.command(sender, DirectoryCommand::Expel(absent));
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let index = dice.below(PROCESSES);
        let domains: Vec<u32> = (0..6).collect();
        match dice.below(16) {
            0 => self.draw(index, dice),
            1..3 => drop(self.apply(index)),
            3 => drop(self.fence(index)),
            4..7 => self.send(index, dice),
            7 => drop(self.change_view(domains[dice.below(domains.len())])),
            _ => drop(self.deliver(index, domains[dice.below(domains.len())])),
        }
    }

    /// Lets all processes apply and deliver all that there is.
    fn settle(&mut self) {
        let mut any = true;
        while any {
            any = false;
            for index in 0..PROCESSES {
                any |= self.apply(index) | self.fence(index);
                for domain in 0..100 {
                    any |= self.deliver(index, domain);
                }
            }
            if !any {
                let domains: Vec<u32> =
                    self.steps.keys().copied().chain(self.reference.plans().map(|it| it.domain)).collect();
                domains.into_iter().for_each(|domain| any |= self.change_view(domain));
            }
        }
    }

    /// Returns the matches of a domain at a version of the directory, as far as both processes are members.
    fn matches(&self, version: u64, domain: u32, members: &[u64]) -> BTreeSet<(Guid, Guid)> {
        let directory = &self.versions[&version];
        let is_member = |own: Guid| members.contains(&(process_of(own) as u64));
        let here = |own: Guid| {
            let topic = directory.writer(own).map(|it| it.description.topic.name.as_str());
            topic.and_then(|topic| directory.domain_of(topic)) == Some(domain)
        };
        let pairs = directory.matches().map(|(own, other, _)| (own, other));
        pairs.filter(|(own, other)| here(*own) && is_member(*own) && is_member(*other)).collect()
    }

    /// Returns what an endpoint has to get of a domain.
    fn expected(&self, endpoint: Guid, domain: u32) -> Vec<(usize, Seen)> {
        let index = process_of(endpoint);
        let process = &self.processes[index];
        let me = index as u64;
        let mut seen = Vec::new();
        let (mut members, mut fenced, mut since, mut seen_version) = (Vec::new(), 0, 0, 0);
        let mut now: BTreeMap<Guid, (i32, bool)> = BTreeMap::new();
        let mut readers: BTreeSet<Guid> = BTreeSet::new();
        let mut open: BTreeMap<SetId, bool> = BTreeMap::new();
        let steps =
            self.steps.get(&domain).into_iter().flatten().take(process.delivered.get(&domain).copied().unwrap_or(0));
        for (place, step) in steps.enumerate() {
            let mut look = |seen: &mut Vec<(usize, Seen)>,
                            version: u64,
                            next: BTreeMap<Guid, (i32, bool)>,
                            heard: BTreeSet<Guid>| {
                // The first version without the match tells.
                let lost = |own: Guid| {
                    let mut since = self.versions.range(seen_version + 1..=version).map(|(_, directory)| directory);
                    let end = since.find(|it| !it.matches().any(|(writer, to, _)| (writer, to) == (own, endpoint)));
                    end.is_some_and(|directory| directory.participant(guid(process_of(own), 0)).is_none())
                };
                let new = next.iter().filter(|(writer, state)| now.get(writer) != Some(state));
                seen.extend(new.map(|(writer, state)| (place, Seen::Matched(*writer, *state))));
                let gone = now.keys().filter(|own| !next.contains_key(own));
                seen.extend(gone.map(|own| (place, Seen::Unmatched(*own, lost(*own)))));
                seen.extend(heard.difference(&readers).map(|own| (place, Seen::Publication(*own, true))));
                seen.extend(readers.difference(&heard).map(|own| (place, Seen::Publication(*own, false))));
                (now, readers, seen_version) = (next, heard, version);
            };
            match step {
                Step::Epoch { members: next, version, .. } => {
                    let was_in = members.contains(&me);
                    members.clone_from(next);
                    if was_in && !members.contains(&me) {
                        look(&mut seen, *version, BTreeMap::new(), BTreeSet::new());
                        for (set, _) in std::mem::take(&mut open).into_iter().filter(|(_, mine)| *mine) {
                            seen.push((place, Seen::SetAbandoned(set)));
                        }
                        fenced = 0;
                    } else if !was_in {
                        (fenced, since) = (0, *version);
                    }
                }
                Step::Message(_) if !members.contains(&me) => {}
                Step::Message(bytes) => match StreamMessage::decode(bytes).unwrap() {
                    StreamMessage::Fence(version) => {
                        fenced = version.max(fenced);
                        if fenced < since {
                            continue;
                        }
                        let directory = &self.versions[&fenced];
                        let state = |own: Guid| {
                            let entry = directory.writer(own).expect("it matches");
                            (entry.description.qos.ownership_strength.value, entry.alive)
                        };
                        let pairs = self.matches(fenced, domain, &members);
                        let next = pairs.iter().filter(|(_, other)| *other == endpoint);
                        let next = next.map(|(own, _)| (*own, state(*own))).collect();
                        let heard = pairs.iter().filter(|(own, _)| *own == endpoint).map(|(_, other)| *other).collect();
                        look(&mut seen, fenced, next, heard);
                        // A set without a writer is given up.
                        let sources: BTreeSet<Guid> = directory
                            .writers()
                            .filter(|own| directory.domain_of(&own.description.topic.name) == Some(domain))
                            .map(|own| own.publisher)
                            .collect();
                        for (set, mine) in open.extract_if(.., |set, _| !sources.contains(&set.source)) {
                            seen.extend(mine.then_some((place, Seen::SetAbandoned(set))));
                        }
                    }
                    StreamMessage::Change(change) => {
                        let directory = &self.versions[&fenced];
                        let number = Some(change.writer);
                        let own = directory.writers().find(|it| directory.writer_number(it.description.guid) == number);
                        // It is for others before the first fence.
                        let Some(own) = own.filter(|_| fenced >= since) else { continue };
                        let set = change.set.map(|number| SetId { source: own.publisher, number });
                        let writer = own.description.guid;
                        if now.contains_key(&writer) {
                            seen.push((place, Seen::Change(writer, change.payload.to_vec(), set)));
                            set.into_iter().for_each(|set| _ = open.insert(set, true));
                        }
                    }
                    StreamMessage::SetEnd { set, .. } => {
                        let directory = &self.versions[&fenced];
                        let is_of = |own: &Guid| directory.writer(*own).is_some_and(|it| it.publisher == set.source);
                        if open.remove(&set).is_some() || now.keys().any(is_of) {
                            seen.push((place, Seen::SetEnd(set)));
                        }
                    }
                    other => panic!("{other:?}"),
                },
            }
        }
        seen
    }
}

/// Returns the outcome of each step: two commands may take effect at one fence, and then an endpoint hears of
/// both.
fn net(seen: &[(usize, Seen)]) -> Vec<(usize, Seen)> {
    let mut net: Vec<(usize, Seen)> = Vec::new();
    let mut matched: BTreeMap<Guid, (i32, bool)> = BTreeMap::new();
    let mut readers: BTreeSet<Guid> = BTreeSet::new();
    for chunk in seen.chunk_by(|a, b| a.0 == b.0) {
        let (place, before, heard) = (chunk[0].0, matched.clone(), readers.clone());
        let mut ends: BTreeMap<Guid, bool> = BTreeMap::new();
        for (_, event) in chunk {
            match event {
                Seen::Matched(guid, state) => drop(matched.insert(*guid, *state)),
                Seen::Alive(guid, alive) => matched.get_mut(guid).expect("it matches").1 = *alive,
                Seen::Unmatched(guid, lost) => {
                    assert!(matched.remove(guid).is_some(), "{guid} did not match");
                    ends.insert(*guid, *lost);
                }
                Seen::Publication(guid, true) => assert!(readers.insert(*guid), "{guid} matches already"),
                Seen::Publication(guid, false) => assert!(readers.remove(guid), "{guid} did not match"),
                other => net.push((place, other.clone())),
            }
        }
        let new = matched.iter().filter(|(guid, state)| before.get(guid) != Some(state));
        net.extend(new.map(|(guid, state)| (place, Seen::Matched(*guid, *state))));
        let gone = before.keys().filter(|own| !matched.contains_key(own));
        net.extend(gone.map(|own| (place, Seen::Unmatched(*own, ends[own]))));
        net.extend(readers.difference(&heard).map(|own| (place, Seen::Publication(*own, true))));
        net.extend(heard.difference(&readers).map(|own| (place, Seen::Publication(*own, false))));
    }
    net.sort();
    net
}

#[test]
fn endpoints_get_what_the_directory_says_at_the_last_fence() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..1500 {
        let mut dice = Dice(seed);
        let mut world = World::new();
        for step in 0..900 {
            world.step(&mut dice);
            if step == 600 && seed % 3 == 0 {
                // The first process is the one with coherent sets.
                world.crash([0, 0, 1, 2][dice.below(4)]);
            }
        }
        world.settle();
        let domains: Vec<u32> = world.steps.keys().copied().collect();
        for (index, process) in world.processes.iter().enumerate() {
            *counts.entry("blocked").or_default() += process.blocked as usize;
            for (own, domain) in process.seen.keys() {
                let (_, all) = (own, &process.seen[&(*own, *domain)]);
                for (_, event) in all {
                    let name = format!("{event:?}");
                    let name = ["Matched", "Unmatched", "Change", "SetEnd", "SetAb", "Alive", "Publication"]
                        .into_iter()
                        .find(|it| name.starts_with(it));
                    *counts.entry(name.unwrap()).or_default() += 1;
                    *counts.entry("lost").or_default() += usize::from(matches!(event, Seen::Unmatched(_, true)));
                }
            }
            for domain in &domains {
                for endpoint in process.readers.iter().chain(&process.writers) {
                    let seen = process.seen.get(&(*endpoint, *domain)).map_or(&[][..], Vec::as_slice);
                    let mut expected = world.expected(*endpoint, *domain);
                    expected.sort();
                    assert_eq!(net(seen), expected, "seed {seed}, process {index}, {endpoint}, domain {domain}");
                }
            }
            if process.has_crashed {
                continue;
            }
            // Nothing waits for a fence for ever: in the end the matches are those of the directory.
            for (domain, stream) in process.streams.iter().filter(|(domain, _)| process.senders.contains_key(domain)) {
                assert_eq!(stream.strays(), 0, "seed {seed}");
                let members = &world.members[domain];
                let of = |version| world.matches(version, *domain, members);
                let (then, now) = (stream.fenced(), world.reference.version());
                assert_eq!(of(then), of(now), "seed {seed}, process {index}: no fence for {now} after {then}");
            }
            for writer in &process.writers {
                // The directory may have refused it.
                let Some(entry) = world.reference.writer(*writer) else { continue };
                let domain = world.reference.domain_of(&entry.description.topic.name).unwrap();
                let stream = process.streams.get(&domain);
                assert!(
                    stream.is_some_and(|stream| stream.is_active(*writer)),
                    "seed {seed}: {writer} may never send in {domain}: {stream:?}, {:?}, {:?}, version {}",
                    world.reference.plan(domain),
                    world.members.get(&domain),
                    process.directory.version()
                );
            }
        }
    }
    for (name, least) in [("blocked", 100), ("Matched", 500), ("Unmatched", 100), ("Change", 1000), ("SetEnd", 20)] {
        assert!(counts.get(name).is_some_and(|count| *count >= least), "{name}: {counts:?}");
    }
    for (name, least) in [("SetAb", 5), ("Alive", 20), ("Publication", 500), ("lost", 20)] {
        assert!(counts.get(name).is_some_and(|count| *count >= least), "{name}: {counts:?}");
    }
}
