//! The directory of a domain: matches, order domains and errors, and a model that random commands check.
use spindle_dds_core::directory::*;
use spindle_dds_core::matching::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::{DdsDuration, Guid};
use spindle_xcdr::{DdsType, TypeHash, TypeObjectKind, TypeObjects};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, DdsType)]
#[dds(appendable, name = "Shape")]
struct Shape {
    #[dds(key)]
    color: String,
    x: i32,
}

#[derive(Debug, DdsType)]
#[dds(appendable, name = "Shape")]
struct OtherShape {
    #[dds(key)]
    color: String,
    x: f64,
}

fn guid(participant: u8, entity: u8) -> Guid {
    let mut bytes = [0; 16];
    (bytes[0], bytes[15]) = (participant, entity);
    Guid(bytes)
}

fn member_of(participant: u8) -> u64 {
    u64::from(participant % 4)
}

/// Applies a command that the process of its participant has sent.
fn apply(directory: &mut Directory, command: &DirectoryCommand) -> Applied {
    let participant = match command {
        DirectoryCommand::Announce(entry) => entry.guid,
        DirectoryCommand::Withdraw(guid) => *guid,
        DirectoryCommand::Change { participant, .. } => *participant,
        DirectoryCommand::Expel(_) => Guid([0; 16]),
    };
    directory.apply(member_of(participant.0[0]), command)
}

fn announce(participant: u8) -> DirectoryCommand {
    DirectoryCommand::Announce(ParticipantEntry {
        guid: guid(participant, 0),
        member: member_of(participant),
        incarnation: 1,
        name: format!("program {participant}"),
        user_data: UserDataQosPolicy::default(),
    })
}

fn change(participant: u8, changes: Vec<EntityChange>) -> DirectoryCommand {
    DirectoryCommand::Change { participant: guid(participant, 0), changes }
}

fn topic_ref(name: &str) -> TopicRef {
    TopicRef { name: name.to_owned(), type_name: "Shape".to_owned(), description: None }
}

fn writer(participant: u8, entity: u8, topic: &str) -> WriterEntry {
    WriterEntry {
        participant: guid(participant, 0),
        publisher: guid(participant, 200),
        type_hash: None,
        sample_bytes_max: 100,
        alive: true,
        description: WriterDescription {
            guid: guid(participant, entity),
            topic: topic_ref(topic),
            qos: DataWriterQos::default(),
            publisher: PublisherQos::default(),
        },
    }
}

fn reader(participant: u8, entity: u8, topic: &str) -> ReaderEntry {
    ReaderEntry {
        participant: guid(participant, 0),
        subscriber: guid(participant, 201),
        type_hash: None,
        description: ReaderDescription {
            guid: guid(participant, entity),
            topic: topic_ref(topic),
            qos: DataReaderQos::default(),
            subscriber: SubscriberQos::default(),
        },
    }
}

fn reliable(mut entry: ReaderEntry) -> ReaderEntry {
    entry.description.qos.reliability = ReliabilityQosPolicy::WRITER;
    entry
}

fn at_group(mut entry: WriterEntry, publisher: u8) -> WriterEntry {
    entry.publisher.0[15] = publisher;
    entry.description.publisher.presentation = PresentationQosPolicy {
        access_scope: PresentationQosPolicyAccessScopeKind::Group,
        coherent_access: true,
        ordered_access: false,
    };
    entry
}

fn put_writer(entry: WriterEntry) -> EntityChange {
    EntityChange::Writer(Box::new(entry))
}

fn put_reader(entry: ReaderEntry) -> EntityChange {
    EntityChange::Reader(Box::new(entry))
}

fn types<T: DdsType>() -> (TypeHash, EntityChange) {
    let objects = TypeObjects::of(&T::description()).unwrap();
    let hash = objects.hash(TypeObjectKind::Complete);
    (hash, EntityChange::Type { hash, objects: objects.all(TypeObjectKind::Complete).iter().cloned().collect() })
}

/// Applies commands that all have to succeed, and returns the events of the last one.
fn play(directory: &mut Directory, commands: Vec<DirectoryCommand>) -> Vec<DirectoryEvent> {
    let mut events = vec![];
    for command in commands {
        let applied = apply(directory, &command);
        assert!(applied.results.iter().all(Result::is_ok), "{command:?}: {:?}", applied.results);
        events = applied.events;
    }
    events
}

fn error(directory: &mut Directory, command: DirectoryCommand) -> DirectoryError {
    let before = directory.clone();
    let applied = apply(directory, &command);
    assert!(applied.events.is_empty(), "{:?}", applied.events);
    assert_eq!(*directory, before);
    applied.results.into_iter().find_map(Result::err).expect("an error")
}

#[test]
fn a_writer_and_a_reader_match_and_their_processes_get_a_stream() {
    let mut directory = Directory::default();
    let events = play(
        &mut directory,
        vec![
            announce(1),
            announce(2),
            change(2, vec![put_reader(reliable(reader(2, 1, "Square")))]),
            change(1, vec![put_writer(writer(1, 1, "Square"))]),
        ],
    );
    let [
        DirectoryEvent::Writer(_),
        DirectoryEvent::Matched { writer: own, reader: other, .. },
        DirectoryEvent::Domain(plan),
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((*own, *other), (guid(1, 1), guid(2, 1)));
    assert_eq!((&plan.members[..], &plan.senders[..], &plan.observers[..]), (&[1, 2][..], &[1][..], &[][..]));
    assert_eq!((plan.level, plan.kind()), (ConsistencyKind::AtomicMulticast, StreamKind::Ordered));
    assert_eq!(
        plan.to_string(),
        "order domain 0 (ATOMIC_MULTICAST, ordered): topics Square; members [1, 2], senders [1], observers []; \
         messages of up to 164 bytes"
    );
    assert_eq!(plan.ring_bytes(16), 16 * 164);
    assert!(directory.why(guid(1, 1), guid(2, 1)).unwrap().is_ok());
    // The topic keeps its order domain as long as it has an endpoint.
    let events = play(&mut directory, vec![change(1, vec![EntityChange::Delete(guid(1, 1))])]);
    let gone = DirectoryEvent::WriterGone { entry: Box::new(writer(1, 1, "Square")), deleted: true };
    assert_eq!(events[0], gone);
    assert!(matches!(&events[1], DirectoryEvent::Domain(plan) if plan.members.is_empty()), "{events:?}");
    assert_eq!(directory.domain_of("Square"), Some(0));
    let events = play(&mut directory, vec![change(2, vec![EntityChange::Delete(guid(2, 1))])]);
    assert_eq!(events[1..], [DirectoryEvent::DomainGone(0)]);
    assert_eq!(directory.domain_of("Square"), None);
}

#[test]
fn a_best_effort_reader_observes_and_one_that_matches_no_writer_takes_no_part() {
    let mut directory = Directory::default();
    let mut strict = reliable(reader(3, 1, "Square"));
    strict.description.qos.deadline.period = DdsDuration::from_millis(1);
    play(
        &mut directory,
        vec![
            announce(1),
            announce(2),
            announce(3),
            change(1, vec![put_writer(writer(1, 1, "Square"))]),
            change(2, vec![put_reader(reader(2, 1, "Square"))]),
            change(3, vec![put_reader(strict.clone())]),
        ],
    );
    let plan = directory.plan(0).unwrap();
    assert_eq!((&plan.members[..], &plan.observers[..]), (&[1][..], &[2][..]));
    let why = directory.why(guid(1, 1), guid(3, 1)).unwrap().unwrap_err();
    assert_eq!(why[0].policy(), Some(PolicyId::Deadline));
    // The period may change, and then the reader's process becomes a member.
    strict.description.qos.deadline.period = DdsDuration::INFINITE;
    let events = play(&mut directory, vec![change(3, vec![put_reader(strict)])]);
    assert!(matches!(&events[1], DirectoryEvent::Matched { .. }), "{events:?}");
    assert_eq!(directory.plan(0).unwrap().members, [1, 3]);
}

#[test]
fn topics_of_a_publisher_with_group_access_have_one_order() {
    let mut directory = Directory::default();
    play(
        &mut directory,
        vec![
            announce(1),
            change(
                1,
                vec![
                    put_writer(at_group(writer(1, 1, "a"), 200)),
                    put_writer(at_group(writer(1, 2, "b"), 200)),
                    put_writer(writer(1, 3, "c")),
                ],
            ),
        ],
    );
    assert_eq!(directory.domain_of("a"), directory.domain_of("b"));
    assert_ne!(directory.domain_of("a"), directory.domain_of("c"));
    let refused = error(&mut directory, change(1, vec![put_writer(at_group(writer(1, 4, "c"), 200))]));
    assert_eq!(
        refused.to_string(),
        format!(
            "PRESENTATION: topic 'c' has order domain 1, the other topics of publisher {} have 0, and GROUP access \
             needs one for all: create the writers of this publisher before others, or use TOPIC access",
            guid(1, 200)
        )
    );
}

#[test]
fn a_stronger_writer_raises_the_level_and_the_number_of_an_order_domain_is_not_used_again() {
    let mut directory = Directory::default();
    let level = |directory: &Directory| {
        let plan = directory.plan(0).unwrap();
        (plan.level, plan.kind(), plan.generation)
    };
    let mut weak = writer(1, 1, "a");
    weak.description.qos.reliability.kind = ReliabilityQosPolicyKind::BestEffort;
    play(&mut directory, vec![announce(1), change(1, vec![put_writer(weak)])]);
    assert_eq!(level(&directory), (ConsistencyKind::Unordered, StreamKind::Ordered, 0));
    let mut kept = writer(1, 2, "a");
    kept.description.qos.durability.kind = DurabilityQosPolicyKind::TransientLocal;
    play(&mut directory, vec![change(1, vec![put_writer(kept)])]);
    assert_eq!(level(&directory), (ConsistencyKind::VolatileStorage, StreamKind::Ordered, 0));
    let mut logged = writer(1, 3, "a");
    logged.description.qos.durability.kind = DurabilityQosPolicyKind::Persistent;
    play(&mut directory, vec![change(1, vec![put_writer(logged)])]);
    assert_eq!(level(&directory), (ConsistencyKind::LoggedStorage, StreamKind::Logged, 1));
    let all = [1, 2, 3].map(|entity| EntityChange::Delete(guid(1, entity))).to_vec();
    play(&mut directory, vec![change(1, all), change(1, vec![put_writer(writer(1, 4, "a"))])]);
    assert_eq!(directory.domain_of("a"), Some(1));
}

#[test]
fn types_are_compared_and_stay_while_they_are_used() {
    let mut directory = Directory::default();
    let ((shape, add_shape), (other, add_other)) = (types::<Shape>(), types::<OtherShape>());
    let typed = |participant, entity, hash| {
        EntityChange::Topic(Box::new(TopicEntry {
            guid: guid(participant, entity),
            participant: guid(participant, 0),
            topic: topic_ref("Square"),
            type_hash: Some(hash),
            qos: TopicQos::default(),
        }))
    };
    play(&mut directory, vec![announce(1), announce(2), change(1, vec![add_shape, typed(1, 1, shape)])]);
    let missing = error(&mut directory, change(2, vec![typed(2, 1, other)]));
    assert_eq!(missing, DirectoryError::NoType(other));
    let events = play(&mut directory, vec![change(2, vec![add_other.clone(), typed(2, 1, other)])]);
    let DirectoryEvent::InconsistentTopic { topic, other: first, reason } = &events[1] else { panic!("{events:?}") };
    assert_eq!((*topic, *first), (guid(2, 1), guid(1, 1)));
    assert!(reason.to_string().contains("'Shape'"), "{reason}");
    play(&mut directory, vec![change(1, vec![EntityChange::Delete(guid(1, 1))])]);
    assert!(directory.description(shape).is_none() && directory.description(other).is_some());
    let EntityChange::Type { hash, mut objects } = add_other else { unreachable!() };
    objects.values_mut().for_each(|object| object[7] ^= 1);
    play(&mut directory, vec![change(2, vec![EntityChange::Delete(guid(2, 1))])]);
    let damaged = error(&mut directory, change(2, vec![EntityChange::Type { hash, objects }]));
    assert!(damaged.to_string().contains("damaged"), "{damaged}");
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    let mut directory = Directory::default();
    let absent = error(&mut directory, change(1, vec![put_writer(writer(1, 1, "a"))]));
    assert_eq!(absent, DirectoryError::NoParticipant(guid(1, 0)));
    assert_eq!(error(&mut directory, DirectoryCommand::Withdraw(guid(1, 0))), absent);
    play(&mut directory, vec![announce(1), announce(2), change(1, vec![put_writer(writer(1, 1, "a"))])]);

    // No other process changes a participant.
    let other = DirectoryError::OtherProcess { guid: guid(1, 0), owner: 1, member: 9 };
    for command in [announce(1), DirectoryCommand::Withdraw(guid(1, 0)), change(1, vec![put_writer(writer(1, 1, "a"))])]
    {
        let applied = directory.apply(9, &command);
        assert_eq!((&applied.results[..], applied.events.len()), (&[Err(other.clone())][..], 0));
    }

    // An entity of another participant can neither be created, nor changed, nor deleted.
    let foreign = error(&mut directory, change(2, vec![put_writer(writer(1, 2, "a"))]));
    assert_eq!(foreign, DirectoryError::NoParticipant(guid(1, 0)));
    let foreign = error(&mut directory, change(2, vec![EntityChange::Delete(guid(1, 1))]));
    assert_eq!(foreign, DirectoryError::NoEntity(guid(1, 1)));

    let in_use = error(&mut directory, change(1, vec![put_reader(reader(1, 1, "a"))]));
    assert_eq!(in_use, DirectoryError::InUse { guid: guid(1, 1), kind: "reader".to_owned() });
    let fixed = error(&mut directory, change(1, vec![put_writer(writer(1, 1, "b"))]));
    assert!(matches!(&fixed, DirectoryError::Fixed { part, .. } if part == "topic"), "{fixed}");
    let mut immutable = writer(1, 1, "a");
    immutable.description.qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    let immutable = error(&mut directory, change(1, vec![put_writer(immutable)]));
    assert!(immutable.to_string().starts_with("OWNERSHIP of a writer can't change"), "{immutable}");
    let mut inconsistent = writer(1, 2, "a");
    inconsistent.description.qos.history.kind = HistoryQosPolicyKind::KeepLast(0);
    let inconsistent = error(&mut directory, change(1, vec![put_writer(inconsistent)]));
    assert!(inconsistent.to_string().contains("the depth must be 1 or more"), "{inconsistent}");

    let long = error(&mut directory, change(1, vec![put_writer(writer(1, 2, &"a".repeat(257)))]));
    assert_eq!(long.to_string(), "the name of a topic has 257 bytes, and the limit is 256");
    let mut large = writer(1, 2, "a");
    large.sample_bytes_max = u32::MAX;
    let large = error(&mut directory, change(1, vec![put_writer(large)]));
    assert!(large.to_string().starts_with("the largest sample of a writer has 4294967295 bytes"), "{large}");
    let mut many = reader(1, 2, "a");
    many.description.subscriber.partition = PartitionQosPolicy::of(vec!["x"; 65]);
    let many = error(&mut directory, change(1, vec![put_reader(many)]));
    assert_eq!(many.to_string(), "PARTITION has 65 names, and the limit is 64");
}

#[test]
fn a_participant_that_withdraws_deletes_its_writers_and_one_that_is_expelled_loses_them() {
    let mut directory = Directory::default();
    for (end, expected) in
        [(DirectoryCommand::Withdraw(guid(1, 0)), true), (DirectoryCommand::Expel(vec![guid(1, 0)]), false)]
    {
        play(&mut directory, vec![announce(1), change(1, vec![put_writer(writer(1, 1, "a"))])]);
        assert_eq!(directory.absent(&[(1, 1), (2, 1)]), []);
        assert_eq!(directory.absent(&[(1, 2)]), [guid(1, 0)], "a later process has its id");
        let events = play(&mut directory, vec![end]);
        assert!(matches!(&events[0], DirectoryEvent::WriterGone { deleted, .. } if *deleted == expected), "{events:?}");
    }
}

#[test]
fn liveliness_changes_the_writer() {
    let mut directory = Directory::default();
    play(&mut directory, vec![announce(1), announce(2), change(1, vec![put_writer(writer(1, 1, "a"))])]);
    let dead = EntityChange::Alive { writer: guid(1, 1), alive: false };
    let events = play(&mut directory, vec![change(1, vec![dead.clone()])]);
    assert_eq!(events, [DirectoryEvent::Writer(guid(1, 1))]);
    assert!(!directory.writer(guid(1, 1)).unwrap().alive);
    assert_eq!(error(&mut directory, change(2, vec![dead])), DirectoryError::NoEntity(guid(1, 1)));
}

#[test]
fn a_close_name_of_another_topic_is_found() {
    let mut directory = Directory::default();
    play(
        &mut directory,
        vec![announce(1), change(1, vec![put_writer(writer(1, 1, "Square")), put_reader(reader(1, 2, "square"))])],
    );
    assert_eq!(
        directory.near_misses(guid(1, 2))[0].to_string(),
        "topic: the writer has 'Square', the reader 'square'; one is probably mistyped"
    );
    assert_eq!(directory.near_misses(guid(1, 1)).len(), 1);
}

/// A source of numbers that depend on a seed only.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

const TOPICS: [&str; 3] = ["a", "b", "c"];

fn draw_command(dice: &mut Dice) -> DirectoryCommand {
    let participant = dice.below(6) as u8;
    match dice.below(12) {
        0 | 1 => announce(participant),
        2 if dice.below(3) == 0 => DirectoryCommand::Withdraw(guid(participant, 0)),
        2 => DirectoryCommand::Expel(vec![guid(participant, 0), guid(dice.below(6) as u8, 0)]),
        _ => {
            let count = dice.below(4);
            change(participant, (0..count).map(|_| draw_change(dice, participant)).collect())
        }
    }
}

fn draw_change(dice: &mut Dice, participant: u8) -> EntityChange {
    let (entity, topic) = (1 + dice.below(5) as u8, dice.pick(&TOPICS));
    let types = [types::<Shape>(), types::<OtherShape>()];
    let hash = dice.pick(&[None, Some(types[0].0), Some(types[1].0)]);
    let partition = dice.pick(&["", "x", "x*"]);
    match dice.below(11) {
        10 => EntityChange::Alive { writer: guid(participant, entity), alive: dice.below(2) == 0 },
        0 | 1 => types[dice.below(2) as usize].1.clone(),
        2 | 3 => EntityChange::Delete(guid(participant, entity)),
        4..=6 => {
            let mut entry = writer(participant, entity, topic);
            if dice.below(3) == 0 {
                entry = at_group(entry, 210);
            }
            entry.type_hash = hash;
            entry.description.publisher.partition = PartitionQosPolicy::of([partition]);
            entry.description.qos.reliability.kind =
                dice.pick(&[ReliabilityQosPolicyKind::BestEffort, ReliabilityQosPolicyKind::Reliable]);
            if entry.description.qos.reliability.kind == ReliabilityQosPolicyKind::Reliable {
                entry.description.qos.durability.kind =
                    dice.pick(&[DurabilityQosPolicyKind::Volatile, DurabilityQosPolicyKind::Persistent]);
            }
            entry.sample_bytes_max = dice.pick(&[10, 100]);
            put_writer(entry)
        }
        _ => {
            let mut entry = reader(participant, entity, topic);
            if dice.below(2) == 0 {
                entry = reliable(entry);
            }
            entry.type_hash = hash;
            entry.description.subscriber.partition = PartitionQosPolicy::of([partition]);
            entry.description.qos.deadline.period = dice.pick(&[DdsDuration::INFINITE, DdsDuration::from_millis(1)]);
            put_reader(entry)
        }
    }
}

/// The knowledge of a participant that hears the events only.
#[derive(Default, Debug, PartialEq)]
struct Heard {
    matched: BTreeMap<(Guid, Guid), EndpointMatch>,
    plans: BTreeMap<u32, DomainPlan>,
}

impl Heard {
    fn hear(&mut self, event: &DirectoryEvent, ended: &mut BTreeSet<u32>) {
        match event {
            DirectoryEvent::Matched { writer, reader, terms } => {
                self.matched.insert((*writer, *reader), (**terms).clone());
            }
            DirectoryEvent::Unmatched { writer, reader } => {
                assert!(self.matched.remove(&(*writer, *reader)).is_some());
            }
            DirectoryEvent::Mismatched { writer, reader, .. } => {
                assert!(!self.matched.contains_key(&(*writer, *reader)));
            }
            DirectoryEvent::WriterGone { entry, .. } => {
                self.matched.retain(|(writer, _), _| *writer != entry.description.guid);
            }
            DirectoryEvent::ReaderGone(entry) => {
                self.matched.retain(|(_, reader), _| *reader != entry.description.guid);
            }
            DirectoryEvent::Domain(plan) => {
                assert!(!ended.contains(&plan.domain), "a number is used again: {plan}");
                let before = self.plans.insert(plan.domain, plan.clone());
                if let Some(before) = before {
                    assert!(before.level <= plan.level && before.generation <= plan.generation);
                    assert!(before.version < plan.version && before.message_bytes_max <= plan.message_bytes_max);
                    assert_eq!(before.kind() == plan.kind(), before.generation == plan.generation);
                }
            }
            DirectoryEvent::DomainGone(domain) => {
                assert!(self.plans.remove(domain).is_some() && ended.insert(*domain));
            }
            _ => {}
        }
    }
}

/// Checks all that follows from the entries against the definition.
fn check(directory: &Directory, heard: &Heard) {
    let mut expected = BTreeMap::new();
    for writer in directory.writers() {
        for reader in directory.readers() {
            let same = writer.description.topic.name == reader.description.topic.name;
            let found = match_endpoints(&writer.description, &reader.description);
            assert_eq!(
                directory.why(writer.description.guid, reader.description.guid).unwrap(),
                found,
                "a pair has another state"
            );
            if let (true, Ok(terms)) = (same, found) {
                expected.insert((writer.description.guid, reader.description.guid), terms);
            }
        }
    }
    assert_eq!(heard.matched, expected);
    let found: BTreeMap<_, _> = directory.matches().map(|(own, other, terms)| ((own, other), terms.clone())).collect();
    assert_eq!(found, expected);
    // A plan has the version of the last change of its domain, also of one that leaves the plan as it is.
    let unversioned = |plan: &DomainPlan| DomainPlan { version: 0, ..plan.clone() };
    let (known, plans) = (heard.plans.values().map(unversioned), directory.plans().map(unversioned));
    assert_eq!(known.collect::<Vec<_>>(), plans.collect::<Vec<_>>());
    let topics: BTreeSet<&str> = directory.writers().map(|own| own.description.topic.name.as_str()).collect();
    assert!(topics.iter().all(|topic| directory.domain_of(topic).is_some()));
    let readers = directory.readers().map(|own| own.description.topic.name.as_str());
    let used: BTreeSet<&str> = topics.iter().copied().chain(readers).collect();
    assert!(TOPICS.iter().all(|topic| directory.domain_of(topic).is_none() || used.contains(topic)));
    assert!(directory.plans().all(|plan| directory.domain_version(plan.domain) == Some(plan.version)));
    for plan in directory.plans() {
        let of_domain = |topic: &str| directory.domain_of(topic) == Some(plan.domain);
        let member = |participant| directory.participant(participant).unwrap().member;
        let mut senders: BTreeSet<u64> = BTreeSet::new();
        let mut reliable: BTreeSet<u64> = BTreeSet::new();
        let mut others: BTreeSet<u64> = BTreeSet::new();
        for own in directory.writers().filter(|own| of_domain(&own.description.topic.name)) {
            senders.insert(member(own.participant));
            assert!(plan.level >= own.description.qos.consistency_level());
            assert!(plan.message_bytes_max > own.sample_bytes_max);
        }
        for own in directory.readers().filter(|own| of_domain(&own.description.topic.name)) {
            if expected.keys().any(|(_, reader)| *reader == own.description.guid) {
                let kind = own.description.qos.reliability.kind;
                let of = if kind == ReliabilityQosPolicyKind::Reliable { &mut reliable } else { &mut others };
                of.insert(member(own.participant));
            }
        }
        let members: BTreeSet<u64> = senders.union(&reliable).copied().collect();
        assert!(plan.senders.iter().eq(&senders) && plan.members.iter().eq(&members), "{plan}");
        assert!(plan.observers.iter().eq(others.difference(&members)), "{plan}");
    }
    let mut of_publisher: BTreeMap<Guid, BTreeSet<u32>> = BTreeMap::new();
    for own in directory.writers() {
        let scope = own.description.publisher.presentation.access_scope;
        if scope == PresentationQosPolicyAccessScopeKind::Group {
            let domain = directory.domain_of(&own.description.topic.name).unwrap();
            of_publisher.entry(own.publisher).or_default().insert(domain);
        }
    }
    assert!(of_publisher.values().all(|domains| domains.len() == 1), "{of_publisher:?}");
}

#[test]
fn random_commands_lead_to_what_the_entries_define() {
    let (mut refused, mut matched, mut domains) = (0, 0, 0);
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let (mut directory, mut heard, mut ended) = (Directory::default(), Heard::default(), BTreeSet::new());
        for _ in 0..60 {
            let command = draw_command(&mut dice);
            let version = directory.version();
            let applied = apply(&mut directory, &command);
            assert_eq!(directory.version() > version, !applied.events.is_empty());
            applied.events.iter().for_each(|event| heard.hear(event, &mut ended));
            refused += applied.results.iter().filter(|result| result.is_err()).count();
            check(&directory, &heard);
            if dice.below(4) == 0 {
                // A participant that joins here has the same directory, and continues alike.
                let bytes = postcard::to_stdvec(&directory).unwrap();
                let joined: Directory = postcard::from_bytes(&bytes).unwrap();
                assert_eq!(joined, directory, "seed {seed}");
                directory = joined;
            }
        }
        matched += heard.matched.len();
        domains += ended.len();
    }
    assert!(refused > 10 && matched > 10 && domains > 10, "{refused} {matched} {domains}");
}

#[test]
fn a_cut_or_damaged_directory_is_refused_or_read_and_never_panics() {
    let mut directory = Directory::default();
    let (hash, add) = types::<Shape>();
    let mut own = writer(1, 1, "a");
    own.type_hash = Some(hash);
    play(&mut directory, vec![announce(1), change(1, vec![add, put_writer(own), put_reader(reader(1, 2, "a"))])]);
    let bytes = postcard::to_stdvec(&directory).unwrap();
    for length in 0..bytes.len() {
        assert!(postcard::from_bytes::<Directory>(&bytes[..length]).is_err());
    }
    let mut read = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        // Damage that contradicts nothing is not noticed; all later commands find a directory in order.
        if let Ok(mut directory) = postcard::from_bytes::<Directory>(&damaged) {
            let mut dice = Dice(at as u64);
            for _ in 0..50 {
                apply(&mut directory, &draw_command(&mut dice));
            }
            read += 1;
        }
    }
    assert!(read > 0);
}
