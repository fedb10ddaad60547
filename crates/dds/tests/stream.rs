//! Order domains at several processes: every reader gets what the directory says, whichever process is how far.
use spindle_dds::cache::*;
use spindle_dds::directory::*;
use spindle_dds::matching::*;
use spindle_dds::policy::*;
use spindle_dds::qos::*;
use spindle_dds::stream::*;
use spindle_dds::{DdsTime, Guid, InstanceHandle, Position};
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

fn guid(process: usize, entity: usize) -> Guid {
    let mut bytes = [0; 16];
    bytes[0] = process as u8;
    bytes[8..].copy_from_slice(&(entity as u64).to_be_bytes());
    Guid(bytes)
}

fn topic(name: &str) -> TopicRef {
    TopicRef { name: name.to_owned(), type_name: "Shape".to_owned(), description: None }
}

fn presentation(group: bool) -> PresentationQosPolicy {
    let access_scope = match group {
        true => PresentationQosPolicyAccessScopeKind::Group,
        false => PresentationQosPolicyAccessScopeKind::Instance,
    };
    PresentationQosPolicy { access_scope, coherent_access: group, ordered_access: false }
}

/// An event as a reader got it, without the parts that this test does not draw.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    /// The writer, its strength, and whether it is alive.
    Matched(Guid, (i32, bool)),
    Unmatched(Guid),
    Change(Guid, Vec<u8>, Option<SetId>),
    SetEnd(SetId),
    Alive(Guid, bool),
}

/// A process: how far it is in each order, and what its readers got.
#[derive(Default)]
struct Process {
    directory: Directory,
    commands: usize,
    streams: BTreeMap<u32, DomainStream>,
    /// The messages of each domain that it has delivered.
    delivered: BTreeMap<u32, usize>,
    seen: BTreeMap<Guid, Vec<(u32, usize, Seen)>>,
    entities: usize,
    writers: Vec<Guid>,
    /// Writers that are deleted once their samples have been delivered, and their last ones.
    ending: Vec<Guid>,
    readers: Vec<Guid>,
    blocked: u64,
}

#[derive(Default)]
struct World {
    /// The commands in their order, and the directory after each: by version.
    commands: Vec<DirectoryCommand>,
    versions: BTreeMap<u64, Directory>,
    reference: Directory,
    /// The messages of each domain in their order.
    messages: BTreeMap<u32, Vec<Vec<u8>>>,
    sent: BTreeMap<Guid, usize>,
    processes: Vec<Process>,
}

impl World {
    fn new() -> World {
        let mut world = World { processes: (0..PROCESSES).map(|_| Process::default()).collect(), ..World::default() };
        world.versions.insert(0, Directory::default());
        for member in 0..PROCESSES {
            world.command(DirectoryCommand::Announce(ParticipantEntry {
                guid: guid(member, 0),
                member: member as u64,
                name: String::new(),
                user_data: UserDataQosPolicy::default(),
            }));
        }
        world
    }

    fn command(&mut self, command: DirectoryCommand) {
        let _ = self.reference.apply(&command);
        self.versions.insert(self.reference.version(), self.reference.clone());
        self.commands.push(command);
    }

    fn change(&mut self, process: usize, change: EntityChange) {
        self.command(DirectoryCommand::Change { participant: guid(process, 0), changes: vec![change] });
    }

    fn put_writer(&mut self, own: Guid, topic_name: &str, group: bool, state: (i32, bool), partition: &str) {
        let process = usize::from(own.0[0]);
        let mut qos = DataWriterQos::default();
        qos.ownership_strength.value = state.0;
        let publisher = PublisherQos {
            presentation: presentation(group),
            partition: PartitionQosPolicy::of([partition]),
            ..PublisherQos::default()
        };
        self.change(
            process,
            EntityChange::Writer(Box::new(WriterEntry {
                participant: guid(process, 0),
                publisher: guid(process, 1_000_000),
                type_hash: None,
                sample_bytes_max: 64,
                alive: state.1,
                description: WriterDescription { guid: own, topic: topic(topic_name), qos, publisher },
            })),
        );
    }

    fn put_reader(&mut self, own: Guid, topic_name: &str, partition: &str) {
        let process = usize::from(own.0[0]);
        let subscriber = SubscriberQos { partition: PartitionQosPolicy::of([partition]), ..SubscriberQos::default() };
        let qos = DataReaderQos { reliability: ReliabilityQosPolicy::WRITER, ..DataReaderQos::default() };
        self.change(
            process,
            EntityChange::Reader(Box::new(ReaderEntry {
                participant: guid(process, 0),
                subscriber: guid(process, 1_000_001),
                type_hash: None,
                description: ReaderDescription { guid: own, topic: topic(topic_name), qos, subscriber },
            })),
        );
    }

    /// Lets a process apply the next command, and make the streams of which it is a part.
    fn apply(&mut self, index: usize) -> bool {
        let process = &mut self.processes[index];
        let Some(command) = self.commands.get(process.commands) else { return false };
        process.commands += 1;
        let applied = process.directory.apply(command);
        let directory = &process.directory;
        process.streams.values_mut().for_each(|stream| stream.note(directory, &applied));
        for plan in directory.plans() {
            let topics = &plan.topics;
            let own = |participant: Guid, topic: &String| participant == guid(index, 0) && topics.contains(topic);
            let is_mine = directory.writers().any(|it| own(it.participant, &it.description.topic.name))
                || directory.readers().any(|it| own(it.participant, &it.description.topic.name));
            if is_mine {
                process
                    .streams
                    .entry(plan.domain)
                    .or_insert_with(|| DomainStream::new(plan.domain, index as u64, directory));
            }
        }
        true
    }

    /// Lets a process deliver the next message of a domain.
    fn deliver(&mut self, index: usize, domain: u32) -> bool {
        let process = &mut self.processes[index];
        let at = process.delivered.entry(domain).or_insert(0);
        let Some(bytes) = self.messages.get(&domain).and_then(|all| all.get(*at)) else { return false };
        let Some(stream) = process.streams.get_mut(&domain) else {
            // It is no member yet, or its directory is not so far that it could know.
            let is_behind = matches!(StreamMessage::decode(bytes), Ok(StreamMessage::Fence(version)) if version > process.directory.version());
            *at += usize::from(!is_behind);
            return !is_behind;
        };
        let message = StreamMessage::decode(bytes).unwrap();
        let position = Position { domain, view: 1, seq: *at as u64, index: 0 };
        let (place, seen) = (*at, &mut process.seen);
        let outcome = stream.deliver(position, &message, <[u8]>::to_vec, |Delivery { reader, event }| {
            let event = match event {
                ReaderEvent::WriterMatched(info) => Seen::Matched(info.guid, (info.strength, info.alive)),
                ReaderEvent::WriterUnmatched(guid, _) => Seen::Unmatched(guid),
                ReaderEvent::Change(change) => Seen::Change(change.writer, change.payload, change.set),
                ReaderEvent::SetEnd(end) => Seen::SetEnd(end.set),
                ReaderEvent::WriterAlive(guid, alive) => Seen::Alive(guid, alive),
                other => panic!("{other:?}"),
            };
            seen.entry(reader).or_default().push((domain, place, event));
        });
        match outcome {
            Ok(()) => *process.delivered.get_mut(&domain).unwrap() += 1,
            Err(Behind { version }) => {
                assert!(version > process.directory.version());
                process.blocked += 1;
                return false;
            }
        }
        true
    }

    /// Lets a process send the fences that are due.
    fn fence(&mut self, index: usize) -> bool {
        let process = &mut self.processes[index];
        let mut any = false;
        for (domain, stream) in &mut process.streams {
            // The subgroup's senders may be those of any earlier directory. The newest one serves here.
            let senders = self.reference.plan(*domain).map_or(vec![], |plan| plan.senders.clone());
            if let Some(version) = stream.fence_due(&senders) {
                self.messages.entry(*domain).or_default().push(StreamMessage::Fence(version).encode());
                any = true;
            }
        }
        any
    }

    /// Lets a writer of a process send, if it may.
    fn send(&mut self, index: usize, dice: &mut Dice) {
        let process = &mut self.processes[index];
        if process.writers.is_empty() {
            return;
        }
        let own = process.writers[dice.below(process.writers.len())];
        let Some(entry) = process.directory.writer(own) else { return };
        let Some(domain) = process.directory.domain_of(&entry.description.topic.name) else { return };
        if !process.streams.get(&domain).is_some_and(|stream| stream.is_active(own)) {
            return;
        }
        let writer = process.directory.writer_number(own).unwrap();
        let group = entry.description.publisher.presentation.coherent_access;
        let count = self.sent.entry(own).or_default();
        *count += 1;
        let message = match dice.below(8) {
            0 if group => StreamMessage::SetEnd { writer, number: 3, changes: vec![(writer, 1)] },
            _ => StreamMessage::Change(ChangeMessage {
                writer,
                kind: ChangeKind::Write,
                instance: InstanceHandle::KEYLESS,
                source_timestamp: DdsTime::from_nanos(0),
                set: group.then_some(3),
                payload: &count.to_le_bytes(),
            }),
        };
        self.messages.entry(domain).or_default().push(message.encode());
    }

    /// Draws a change of the entities of a process.
    fn draw(&mut self, index: usize, dice: &mut Dice) {
        let partition = ["", "x", "*"][dice.below(3)];
        let process = &mut self.processes[index];
        match dice.below(6) {
            0 | 1 if process.writers.len() < 3 => {
                process.entities += 1;
                let own = guid(index, process.entities);
                process.writers.push(own);
                let topic = TOPICS[dice.below(2)];
                self.put_writer(own, topic, index == 0, (0, true), partition);
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
                    self.put_writer(own, &entry.description.topic.name, index == 0, state, partition);
                }
            }
            4 if !process.writers.is_empty() => {
                // It sends no more, and is deleted once all that it sent has been delivered.
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

    fn end_writers(&mut self, index: usize) {
        let process = &mut self.processes[index];
        // Each of its samples is among the messages that were sent before now.
        let is_done = process.streams.keys().all(|domain| {
            let all = self.messages.get(domain).map_or(0, Vec::len);
            process.delivered.get(domain).copied().unwrap_or(0) == all
        });
        if is_done {
            for own in std::mem::take(&mut process.ending) {
                self.change(index, EntityChange::Delete(own));
            }
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let index = dice.below(PROCESSES);
        match dice.below(14) {
            0 => self.draw(index, dice),
            1..3 => drop(self.apply(index)),
            3 => drop(self.fence(index)),
            4..7 => self.send(index, dice),
            _ => {
                let domains: Vec<u32> = self.messages.keys().copied().collect();
                if !domains.is_empty() {
                    self.deliver(index, domains[dice.below(domains.len())]);
                }
            }
        }
    }

    /// Lets all processes apply and deliver all that there is.
    fn settle(&mut self) {
        loop {
            let mut any = false;
            for index in 0..PROCESSES {
                any |= self.apply(index) | self.fence(index);
                let domains: Vec<u32> = self.messages.keys().copied().collect();
                for domain in domains {
                    any |= self.deliver(index, domain);
                }
            }
            if !any {
                return;
            }
        }
    }

    /// Returns the writers of a domain that a reader matches at a version of the directory, with their strengths
    /// and whether they are alive.
    fn matches(&self, version: u64, reader: Guid, domain: u32) -> BTreeMap<Guid, (i32, bool)> {
        let directory = &self.versions[&version];
        let here = |own: Guid| {
            let topic = directory.writer(own).map(|it| it.description.topic.name.as_str());
            topic.and_then(|topic| directory.domain_of(topic)) == Some(domain)
        };
        let pairs = directory.pairs().filter(|(own, other, state)| *other == reader && state.is_ok() && here(*own));
        let state = |own: Guid| {
            let entry = directory.writer(own)?;
            Some((entry.description.qos.ownership_strength.value, entry.alive))
        };
        pairs.filter_map(|(own, ..)| Some((own, state(own)?))).collect()
    }

    /// Returns what a reader has to get of a domain: at each position the matches are those of the directory at
    /// the version of the last fence.
    fn expected(&self, reader: Guid, domain: u32) -> Vec<(usize, Seen)> {
        let mut seen = Vec::new();
        let mut now: BTreeMap<Guid, (i32, bool)> = BTreeMap::new();
        let mut fenced = 0;
        for (place, bytes) in self.messages.get(&domain).into_iter().flatten().enumerate() {
            match StreamMessage::decode(bytes).unwrap() {
                StreamMessage::Fence(version) if version > fenced => {
                    fenced = version;
                    let next = self.matches(version, reader, domain);
                    for (writer, state) in &next {
                        if now.get(writer) != Some(state) {
                            seen.push((place, Seen::Matched(*writer, *state)));
                        }
                    }
                    let gone = now.keys().filter(|own| !next.contains_key(own));
                    seen.extend(gone.map(|own| (place, Seen::Unmatched(*own))));
                    now = next;
                }
                StreamMessage::Fence(_) => {}
                message => {
                    let (StreamMessage::Change(ChangeMessage { writer, .. }) | StreamMessage::SetEnd { writer, .. }) =
                        message
                    else {
                        unreachable!()
                    };
                    let directory = &self.versions[&fenced];
                    let own =
                        directory.writers().find(|it| directory.writer_number(it.description.guid) == Some(writer));
                    let own = own.expect("a writer sends within its life");
                    let guid = own.description.guid;
                    let group = own.description.publisher.presentation.coherent_access;
                    let source = if group { own.publisher } else { guid };
                    let set = SetId { source, number: 3 };
                    let is_matched = now.contains_key(&guid);
                    match message {
                        StreamMessage::Change(change) if is_matched => {
                            seen.push((place, Seen::Change(guid, change.payload.to_vec(), change.set.map(|_| set))));
                        }
                        StreamMessage::SetEnd { .. }
                            if now.keys().any(|it| directory.writer(*it).is_some_and(|it| it.publisher == source)) =>
                        {
                            seen.push((place, Seen::SetEnd(set)));
                        }
                        _ => {}
                    }
                }
            }
        }
        seen
    }
}

/// Returns the outcome of each fence: two commands may take effect at one, and then a reader hears of both.
fn net(seen: &[(usize, Seen)]) -> Vec<(usize, Seen)> {
    let mut net: Vec<(usize, Seen)> = Vec::new();
    let mut matched: BTreeMap<Guid, (i32, bool)> = BTreeMap::new();
    let mut at = 0;
    while at < seen.len() {
        let place = seen[at].0;
        let end = at + seen[at..].iter().take_while(|(of, _)| *of == place).count();
        let before = matched.clone();
        for (_, event) in &seen[at..end] {
            match event {
                Seen::Matched(guid, state) => drop(matched.insert(*guid, *state)),
                Seen::Alive(guid, alive) => matched.get_mut(guid).expect("it matches").1 = *alive,
                Seen::Unmatched(guid) => assert!(matched.remove(guid).is_some(), "{guid} did not match"),
                other => net.push((place, other.clone())),
            }
        }
        for (guid, state) in &matched {
            if before.get(guid) != Some(state) {
                net.push((place, Seen::Matched(*guid, *state)));
            }
        }
        net.extend(before.keys().filter(|own| !matched.contains_key(own)).map(|own| (place, Seen::Unmatched(*own))));
        at = end;
    }
    net
}

#[test]
fn readers_get_what_the_directory_says_at_the_last_fence() {
    let (mut changes, mut unmatched, mut blocked, mut compared) = (0, 0, 0, 0);
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut world = World::new();
        for _ in 0..600 {
            world.step(&mut dice);
        }
        world.settle();
        let domains: BTreeSet<u32> = world.messages.keys().copied().collect();
        for (index, process) in world.processes.iter().enumerate() {
            blocked += process.blocked;
            assert!(process.streams.values().all(|stream| stream.strays() == 0), "seed {seed}");
            for stream in process.streams.values().filter(|it| world.reference.plan(it.domain()).is_some()) {
                // No change waits for a fence for ever.
                for reader in &process.readers {
                    let (then, now) = (stream.fenced(), world.reference.version());
                    let of = |version| world.matches(version, *reader, stream.domain());
                    assert_eq!(of(then), of(now), "seed {seed}, process {index}: no fence for {now} after {then}");
                }
                for writer in &process.writers {
                    // The directory may have refused it.
                    let Some(entry) = world.reference.writer(*writer) else { continue };
                    let topic = &entry.description.topic.name;
                    if world.reference.domain_of(topic) == Some(stream.domain()) {
                        assert!(stream.is_active(*writer), "seed {seed}: {writer} may never send");
                    }
                }
            }
            for reader in &process.readers {
                for domain in &domains {
                    let all = process.seen.get(reader).into_iter().flatten();
                    let seen: Vec<_> =
                        all.filter(|it| it.0 == *domain).map(|(_, place, event)| (*place, event.clone())).collect();
                    let expected = world.expected(*reader, *domain);
                    assert_eq!(net(&seen), expected, "seed {seed}, process {index}, reader {reader}, domain {domain}");
                    compared += 1;
                    changes += seen.iter().filter(|(_, it)| matches!(it, Seen::Change(..))).count();
                    unmatched += seen.iter().filter(|(_, it)| matches!(it, Seen::Unmatched(..))).count();
                }
            }
        }
    }
    assert!(
        changes > 1000 && unmatched > 50 && blocked > 100 && compared > 500,
        "{changes} {unmatched} {blocked} {compared}"
    );
}
