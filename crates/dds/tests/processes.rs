//! Processes that are killed: all readers see the same end.
use spindle_dds::policy::*;
use spindle_dds::qos::*;
use spindle_dds::{DataReader, DataWriter, DdsDuration, DdsType, DomainConfig, DomainParticipant, Position, Publisher};
use std::process::{self, Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(final)]
struct Command {
    #[dds(key)]
    valve: u32,
    by: u32,
    value: u64,
}

const WAIT: DdsDuration = DdsDuration::from_secs(20);
/// The variable with the part that a child plays: its domain, its role and its number.
const PART: &str = "SPINDLE_DDS_TEST_PART";
/// The samples of a coherent set.
const SET: u64 = 16;

fn domain() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::process::id() * 64 + 32 + NEXT.fetch_add(1, Ordering::Relaxed)
}

fn participant(domain: u32) -> DomainParticipant {
    DomainParticipant::with(DomainConfig::new(domain), DomainParticipantQos::default()).unwrap()
}

fn presentation() -> PresentationQosPolicy {
    let access_scope = PresentationQosPolicyAccessScopeKind::Topic;
    PresentationQosPolicy { access_scope, coherent_access: true, ordered_access: true }
}

fn ownership(exclusive: bool) -> OwnershipQosPolicy {
    let kind = if exclusive { OwnershipQosPolicyKind::Exclusive } else { OwnershipQosPolicyKind::Shared };
    OwnershipQosPolicy { kind }
}

fn writer(at: &DomainParticipant, strength: i32, exclusive: bool) -> (Publisher, DataWriter<Command>) {
    let topic = at.create_topic("commands", TopicQos::default()).unwrap();
    let publisher = PublisherQos { presentation: presentation(), ..PublisherQos::default() };
    let publisher = at.create_publisher(publisher).unwrap();
    let qos = DataWriterQos {
        ownership: ownership(exclusive),
        ownership_strength: OwnershipStrengthQosPolicy { value: strength },
        reliability: ReliabilityQosPolicy { max_blocking_time: WAIT, ..ReliabilityQosPolicy::WRITER },
        ..DataWriterQos::default()
    };
    let writer = publisher.create_datawriter(&topic, qos).unwrap();
    (publisher, writer)
}

fn reader(at: &DomainParticipant, exclusive: bool) -> DataReader<Command> {
    let topic = at.create_topic("commands", TopicQos::default()).unwrap();
    let subscriber = SubscriberQos { presentation: presentation(), ..SubscriberQos::default() };
    let qos = DataReaderQos {
        reliability: ReliabilityQosPolicy::WRITER,
        history: HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll },
        ownership: ownership(exclusive),
        ..DataReaderQos::default()
    };
    at.create_subscriber(subscriber).unwrap().create_datareader(&topic, qos).unwrap()
}

/// Starts a process that plays a part.
fn spawn(domain: u32, role: &str, number: u32) -> Child {
    process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_plays_its_part", "--nocapture"])
        .env(PART, format!("{domain} {role} {number}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The part of a process that a test has started: it writes until it is killed.
#[test]
fn a_process_plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let [domain, role, number] = part.split(' ').collect::<Vec<_>>()[..] else { panic!("{part:?}") };
    let (domain, number): (u32, u32) = (domain.parse().unwrap(), number.parse().unwrap());
    let at = participant(domain);
    if role == "guest" {
        return visit(&at, number);
    }
    let exclusive = role == "owner";
    let (publisher, writer) = writer(&at, number as i32, exclusive);
    writer.wait_for_subscriptions(2, WAIT).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let mut value = 0;
    while Instant::now() < end {
        if !exclusive {
            publisher.begin_coherent_changes().unwrap();
        }
        for _ in 0..if exclusive { 1 } else { SET } {
            writer.write(&Command { valve: 1, by: number, value }).unwrap();
            value += 1;
        }
        if exclusive {
            std::thread::sleep(Duration::from_micros(200));
        } else {
            publisher.end_coherent_changes().unwrap();
        }
    }
}

/// Creates endpoints, writes a little, and drops them again, until the process is killed.
fn visit(at: &DomainParticipant, number: u32) {
    for round in 0.. {
        let topic = ["commands", "other"][round as usize % 2];
        let keep_all = at.topic::<Command>(topic).reliable().keep_all();
        let reader = keep_all.clone().reader();
        let Ok(writer) = keep_all.max_blocking_time(WAIT).writer() else { return };
        for value in 0..50 {
            let _ = writer.write(&Command { valve: number, by: number, value });
        }
        let _ = reader.map(|reader| reader.take());
    }
}

type Seen = Vec<(Position, Option<Command>)>;

/// Takes samples until `is_done` says so.
fn take_until(reader: &DataReader<Command>, seen: &mut Seen, mut is_done: impl FnMut(&Seen) -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_done(seen) {
        assert!(Instant::now() < end, "after {} samples: {:?}", seen.len(), seen.last());
        let _ = reader.wait_for_data(DdsDuration::from_millis(100));
        seen.extend(reader.take().unwrap().iter().map(|own| (own.info().position, own.data().unwrap())));
    }
}

fn value_by(seen: &Seen, by: u32) -> bool {
    seen.iter().rev().find_map(|(_, own)| own.as_ref()).is_some_and(|own| own.by == by)
}

#[test]
fn readers_agree_where_the_next_owner_takes_over() {
    let domain = domain();
    let (one, two) = (participant(domain), participant(domain));
    let readers = [reader(&one, true), reader(&two, true)];
    let (mut strong, mut weak) = (spawn(domain, "owner", 9), spawn(domain, "owner", 3));
    readers.iter().for_each(|reader| reader.wait_for_publications(2, WAIT).unwrap());
    let mut seen = [Seen::new(), Seen::new()];
    take_until(&readers[0], &mut seen[0], |seen| value_by(seen, 9) && seen.len() > 100);
    strong.kill().unwrap();
    strong.wait().unwrap();
    for (reader, seen) in readers.iter().zip(&mut seen) {
        take_until(reader, seen, |seen| value_by(seen, 3));
    }
    weak.kill().unwrap();
    weak.wait().unwrap();
    readers.iter().zip(&mut seen).for_each(|(reader, seen)| {
        let end = Instant::now() + Duration::from_secs(20);
        while !reader.matched_publications().is_empty() {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(5));
        }
        take_until(reader, seen, {
            let mut looks = 0;
            move |_| {
                looks += 1;
                looks > 2
            }
        });
    });
    assert_eq!(seen[0], seen[1]);
    let first_weak = seen[0].iter().rposition(|(_, own)| own.as_ref().is_some_and(|own| own.by == 9)).unwrap();
    let after = seen[0][first_weak + 1..].iter().filter_map(|(_, own)| own.as_ref());
    assert!(after.into_iter().all(|own| own.by == 3));
}

#[test]
fn a_set_of_a_killed_writer_is_whole_or_absent_at_all_readers() {
    let domain = domain();
    let (one, two) = (participant(domain), participant(domain));
    let readers = [reader(&one, false), reader(&two, false)];
    let mut seen = [Seen::new(), Seen::new()];
    for round in 1..=4 {
        let mut child = spawn(domain, "sets", round);
        let before = seen[0].len();
        take_until(&readers[0], &mut seen[0], |seen| seen.len() > before + 500);
        child.kill().unwrap();
        child.wait().unwrap();
        for (reader, seen) in readers.iter().zip(&mut seen) {
            let end = Instant::now() + Duration::from_secs(20);
            while !reader.matched_publications().is_empty() {
                assert!(Instant::now() < end);
                std::thread::sleep(Duration::from_millis(5));
            }
            seen.extend(reader.take().unwrap().iter().map(|own| (own.info().position, own.data().unwrap())));
        }
        assert_eq!(seen[0], seen[1], "round {round}");
        let of_round = seen[0].iter().filter_map(|(_, own)| own.as_ref()).filter(|own| own.by == round);
        let count = of_round.clone().count() as u64;
        assert!(count >= 500 && count.is_multiple_of(SET), "{count} samples in sets of {SET}");
        assert!(of_round.map(|own| own.value).eq(0..count));
    }
}

#[test]
fn readers_agree_while_participants_come_and_are_killed() {
    let domain = domain();
    // The first participant of the domain is among those that are killed.
    let mut guests = vec![spawn(domain, "guest", 1)];
    std::thread::sleep(Duration::from_millis(100));
    let (one, two) = (participant(domain), participant(domain));
    let reader = |at: &DomainParticipant| at.topic::<Command>("commands").reliable().keep_all().reader().unwrap();
    let readers = [reader(&one), reader(&two)];
    let marker = |at: &DomainParticipant| {
        let writer = at.topic::<Command>("commands").reliable().max_blocking_time(WAIT).writer().unwrap();
        writer.wait_for_subscriptions(2, WAIT).unwrap();
        writer
    };
    let mut seen = [Seen::new(), Seen::new()];
    for round in 2..14 {
        guests.push(spawn(domain, "guest", round));
        std::thread::sleep(Duration::from_millis(u64::from(round * 37 % 200)));
        if round % 3 != 0 {
            let mut guest = guests.remove(round as usize * 5 % guests.len());
            guest.kill().unwrap();
            guest.wait().unwrap();
        }
        for (reader, seen) in readers.iter().zip(&mut seen) {
            seen.extend(reader.take().unwrap().iter().map(|own| (own.info().position, own.data().unwrap())));
        }
    }
    for mut guest in guests {
        guest.kill().unwrap();
        guest.wait().unwrap();
    }
    // The last sample of all.
    let last = Command { valve: 0, by: 0, value: 77 };
    let writer = marker(&one);
    writer.write(&last).unwrap();
    for (reader, seen) in readers.iter().zip(&mut seen) {
        let end = Instant::now() + Duration::from_secs(30);
        while !seen.iter().any(|(_, own)| own.as_ref() == Some(&last)) {
            assert!(Instant::now() < end, "after {} samples", seen.len());
            let _ = reader.wait_for_data(DdsDuration::from_millis(100));
            seen.extend(reader.take().unwrap().iter().map(|own| (own.info().position, own.data().unwrap())));
        }
        seen.sort_by(|a, b| a.0.partial_cmp(&b.0).expect("one order domain"));
    }
    let of_both = |seen: &Seen| seen.iter().filter(|(_, own)| own.is_some()).cloned().collect::<Vec<_>>();
    let (first, second) = (of_both(&seen[0]), of_both(&seen[1]));
    assert!(first.len() > 100, "{}", first.len());
    // One of the two may have matched first.
    let since = if first[0].0 < second[0].0 { second[0].0 } else { first[0].0 };
    let after = |seen: &Seen| seen.iter().filter(|own| own.0 >= since).cloned().collect::<Vec<_>>();
    assert!(after(&first).len() > 50);
    assert_eq!(after(&first), after(&second));
}
