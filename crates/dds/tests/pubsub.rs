//! Participants of one process that write and read.
use spindle_dds::policy::*;
use spindle_dds::qos::*;
use spindle_dds::{DdsDuration, DdsError, DdsType, DomainConfig, DomainParticipant};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(appendable)]
struct Reading {
    #[dds(key)]
    sensor: String,
    value: i64,
}

const WAIT: DdsDuration = DdsDuration::from_secs(10);

/// Returns the configuration of a domain that no other test has.
fn domain() -> DomainConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
    DomainConfig::new(number)
}

fn participant(config: &DomainConfig) -> DomainParticipant {
    DomainParticipant::with(config.clone(), DomainParticipantQos::default()).unwrap()
}

fn reliable() -> DataReaderQos {
    DataReaderQos {
        reliability: ReliabilityQosPolicy::WRITER,
        history: HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll },
        ..DataReaderQos::default()
    }
}

#[test]
fn a_sample_reaches_a_reader_of_another_participant() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    let topic = one.create_topic::<Reading>("readings", TopicQos::default()).unwrap();
    let writer = one.create_publisher(PublisherQos::default()).unwrap();
    let writer = writer.create_datawriter(&topic, DataWriterQos::default()).unwrap();
    let topic = two.create_topic::<Reading>("readings", TopicQos::default()).unwrap();
    let reader = two.create_subscriber(SubscriberQos::default()).unwrap();
    let reader = reader.create_datareader(&topic, reliable()).unwrap();
    writer.wait_for_subscriptions(1, WAIT).unwrap();
    for value in 0..100 {
        writer.write(&Reading { sensor: format!("s{}", value % 3), value }).unwrap();
    }
    writer.wait_for_acknowledgments(WAIT).unwrap();
    let mut values: Vec<i64> = Vec::new();
    while values.len() < 100 {
        values.push(reader.take_next_timeout(WAIT).unwrap().data().unwrap().unwrap().value);
    }
    values.sort_unstable();
    assert_eq!(values, (0..100).collect::<Vec<i64>>());
    let late = reader.take_next_timeout(DdsDuration::from_millis(1)).unwrap_err();
    assert_eq!(late, DdsError::Timeout { what: "a wait for samples", after: DdsDuration::from_millis(1) });
}

struct Endpoints {
    writer: spindle_dds::DataWriter<Reading>,
    reader: spindle_dds::DataReader<Reading>,
}

/// Makes a writer and a reader of a topic at a participant.
fn endpoints(at: &DomainParticipant, topic: &str) -> Endpoints {
    let topic = at.create_topic::<Reading>(topic, TopicQos::default()).unwrap();
    let publisher = at.create_publisher(PublisherQos::default()).unwrap();
    let subscriber = SubscriberQos {
        presentation: PresentationQosPolicy {
            access_scope: PresentationQosPolicyAccessScopeKind::Topic,
            coherent_access: false,
            ordered_access: true,
        },
        ..SubscriberQos::default()
    };
    let publisher_qos = PublisherQos { presentation: subscriber.presentation, ..PublisherQos::default() };
    let publisher = at.create_publisher(publisher_qos).unwrap_or(publisher);
    let subscriber = at.create_subscriber(subscriber).unwrap();
    // Other tests run beside this one.
    let reliability = ReliabilityQosPolicy { max_blocking_time: WAIT, ..ReliabilityQosPolicy::WRITER };
    let qos = DataWriterQos { reliability, ..DataWriterQos::default() };
    let writer = publisher.create_datawriter(&topic, qos).unwrap();
    Endpoints { writer, reader: subscriber.create_datareader(&topic, reliable()).unwrap() }
}

/// Takes so many samples, with their positions.
fn take(reader: &spindle_dds::DataReader<Reading>, count: usize) -> Vec<(spindle_dds::Position, Reading)> {
    let mut all = Vec::new();
    while all.len() < count {
        reader.wait_for_data(WAIT).unwrap();
        for sample in reader.take().unwrap() {
            all.extend(sample.data().unwrap().map(|data| (sample.info().position, data)));
        }
    }
    all
}

#[test]
fn readers_of_three_participants_agree_on_the_order_of_three_writers() {
    const EACH: usize = 20_000;
    let config = domain();
    let participants: Vec<DomainParticipant> = (0..3).map(|_| participant(&config)).collect();
    let all: Vec<Endpoints> = participants.iter().map(|own| endpoints(own, "shared")).collect();
    all.iter().for_each(|own| own.writer.wait_for_subscriptions(3, WAIT).unwrap());
    let seen: Vec<Vec<(spindle_dds::Position, Reading)>> = std::thread::scope(|scope| {
        for (index, own) in all.iter().enumerate() {
            scope.spawn(move || {
                for value in 0..EACH {
                    let sensor = format!("{index}");
                    own.writer.write(&Reading { sensor, value: value as i64 }).unwrap();
                }
            });
        }
        let readers: Vec<_> = all.iter().map(|own| scope.spawn(|| take(&own.reader, 3 * EACH))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    assert!(seen[0].is_sorted_by(|a, b| a.0 < b.0), "positions rise");
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
    for index in 0..3 {
        let of_one = seen[0].iter().filter(|(_, data)| data.sensor == index.to_string()).map(|(_, data)| data.value);
        assert!(of_one.eq(0..EACH as i64), "each writer's samples are whole and in order");
    }
}

#[test]
fn a_domain_goes_on_without_its_first_participant() {
    let config = domain();
    let first = participant(&config);
    let of_first = endpoints(&first, "topic");
    let second = participant(&config);
    let of_second = endpoints(&second, "topic");
    of_second.writer.wait_for_subscriptions(2, WAIT).unwrap();
    of_first.writer.write(&Reading { sensor: "a".into(), value: 1 }).unwrap();
    first.close().unwrap();
    assert!(matches!(of_first.writer.write(&Reading::default()), Err(DdsError::AlreadyDeleted(_))));
    let third = participant(&config);
    let of_third = endpoints(&third, "topic");
    of_second.writer.wait_for_subscriptions(2, WAIT).unwrap();
    of_third.writer.wait_for_subscriptions(2, WAIT).unwrap();
    of_third.writer.write(&Reading { sensor: "b".into(), value: 2 }).unwrap();
    let values: Vec<i64> = take(&of_second.reader, 2).into_iter().map(|(_, data)| data.value).collect();
    assert_eq!(values, [1, 2]);
    assert_eq!(take(&of_third.reader, 1)[0].1.value, 2);
    let names = third.participants().unwrap();
    assert_eq!(names.len(), 2);
}

#[test]
fn the_end_of_a_writer_disposes_its_instances_and_a_mismatch_has_reasons() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    let (of_one, of_two) = (endpoints(&one, "topic"), endpoints(&two, "topic"));
    of_one.writer.wait_for_subscriptions(2, WAIT).unwrap();
    let reading = Reading { sensor: "a".into(), value: 1 };
    of_one.writer.write(&reading).unwrap();
    assert_eq!(take(&of_two.reader, 1)[0].1, reading);
    let (guid, reader) = (of_one.writer.guid(), of_two.reader.clone());
    drop(of_one.writer);
    reader.wait_for_data(WAIT).unwrap();
    let end = reader.take_next_sample().unwrap().unwrap();
    assert_eq!(end.info().instance_state, spindle_dds::instance::InstanceState::NotAliveDisposed);
    assert!(!end.info().valid_data);
    assert_eq!(end.info().publication_handle, guid.into());
    assert_eq!(end.key().unwrap().sensor, "a");

    let topic = one.create_topic::<Reading>("topic", TopicQos::default()).unwrap();
    let qos = DataWriterQos {
        reliability: ReliabilityQosPolicy {
            kind: ReliabilityQosPolicyKind::BestEffort,
            ..ReliabilityQosPolicy::WRITER
        },
        ..DataWriterQos::default()
    };
    let publisher = one.create_publisher(PublisherQos::default()).unwrap();
    let weak = publisher.create_datawriter(&topic, qos).unwrap();
    two.wait_for(|directory| directory.writer(weak.guid()).is_some(), WAIT).unwrap();
    let reasons = two.why(weak.guid(), reader.guid()).unwrap().unwrap_err();
    assert!(reasons.iter().any(|reason| reason.to_string().contains("RELIABILITY")), "{reasons:?}");
    let status = reader.requested_incompatible_qos_status();
    assert_eq!((status.total_count, status.last_policy), (1, Some(PolicyId::Reliability)));
}

#[test]
fn a_wait_set_wakes_for_samples_and_a_large_sample_is_whole() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    let (of_one, of_two) = (endpoints(&one, "topic"), endpoints(&two, "topic"));
    of_one.writer.wait_for_subscriptions(2, WAIT).unwrap();
    let set = spindle_dds::WaitSet::new();
    let condition = of_two.reader.create_readcondition(spindle_dds::instance::StateMask::ANY);
    set.attach(condition.condition()).unwrap();
    assert!(set.wait(DdsDuration::from_millis(20)).is_err());
    let large = Reading { sensor: "x".repeat(3_000_000), value: 7 };
    let writer = of_one.writer.clone();
    let sent = large.clone();
    let thread = std::thread::spawn(move || writer.write(&sent).unwrap());
    assert_eq!(set.wait(WAIT).unwrap(), [condition.condition().clone()]);
    assert_eq!(take(&of_two.reader, 1)[0].1, large);
    thread.join().unwrap();
}

/// Polls a stream until so many samples have come.
fn collect(reader: &spindle_dds::DataReader<Reading>, count: usize) -> Vec<i64> {
    use futures_core::Stream;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut stream, mut values) = (pin!(reader.stream()), Vec::new());
    while values.len() < count {
        match stream.as_mut().poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(sample)) => values.extend(sample.unwrap().data().unwrap().map(|data| data.value)),
            Poll::Ready(None) => panic!("the stream has ended"),
            Poll::Pending => std::thread::park_timeout(std::time::Duration::from_secs(10)),
        }
    }
    values
}

#[test]
fn participants_that_come_at_once_find_each_other_and_a_stream_has_all_samples() {
    const COUNT: usize = 12;
    let config = domain();
    let participants: Vec<DomainParticipant> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..COUNT).map(|_| scope.spawn(|| participant(&config))).collect();
        all.into_iter().map(|own| own.join().unwrap()).collect()
    });
    let topic =
        |own: &DomainParticipant| own.topic::<Reading>("crowd").reliable().max_blocking_time(WAIT).writer().unwrap();
    let writers: Vec<_> = participants.iter().map(topic).collect();
    let readers: Vec<_> =
        participants[..3].iter().map(|own| own.topic::<Reading>("crowd").reliable().keep_all().reader()).collect();
    writers.iter().for_each(|own| own.wait_for_subscriptions(readers.len(), WAIT).unwrap());
    for (index, own) in writers.iter().enumerate() {
        own.write(&Reading { sensor: "one".into(), value: index as i64 }).unwrap();
    }
    let values: Vec<Vec<i64>> = readers.iter().map(|own| collect(own.as_ref().unwrap(), COUNT)).collect();
    assert!(values.iter().all(|own| *own == values[0]), "{values:?}");
    assert_eq!(participants[0].participants().unwrap().len(), COUNT);
}

#[test]
fn wrong_use_has_reasons() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    let error = |own: DdsError| own.to_string();
    let transient = |qos: &mut DataWriterQos| qos.durability.kind = DurabilityQosPolicyKind::Transient;
    let refused = one.topic::<Reading>("topic").writer_qos(transient).writer().unwrap_err();
    assert_eq!(error(refused), "unsupported: DURABILITY TRANSIENT of a writer; use its default");
    assert_eq!(
        error(one.create_topic::<Reading>("", TopicQos::default()).unwrap_err()),
        "bad parameter: the name of a topic is empty"
    );
    let topic = two.create_topic::<Reading>("topic", TopicQos::default()).unwrap();
    let publisher = one.create_publisher(PublisherQos::default()).unwrap();
    let foreign = publisher.create_datawriter(&topic, DataWriterQos::default()).unwrap_err();
    assert_eq!(
        error(foreign),
        "precondition not met: topic \"topic\" belongs to another participant; create the topic at the participant of \
         the publisher"
    );
    assert_eq!(
        error(publisher.begin_coherent_changes().unwrap_err()),
        "precondition not met: PRESENTATION of the publisher is INSTANCE, coherent_access false, ordered_access false; \
         create the publisher with coherent_access and the access scope TOPIC"
    );
    let depth = one.topic::<Reading>("topic").keep_last(0).reader().unwrap_err();
    assert!(matches!(depth, DdsError::InconsistentPolicy(_)), "{depth}");
    one.close().unwrap();
    assert_eq!(
        error(one.create_topic::<Reading>("late", TopicQos::default()).unwrap_err()),
        "the participant is deleted; create another"
    );
}

#[test]
fn a_process_that_has_left_an_order_domain_writes_there_again() {
    let config = domain();
    let (one, two, three) = (participant(&config), participant(&config), participant(&config));
    let reader = two.topic::<Reading>("topic").reliable().keep_all().reader().unwrap();
    let other = three.topic::<Reading>("topic").reliable().writer().unwrap();
    for value in 0..3 {
        let writer = one.topic::<Reading>("topic").reliable().max_blocking_time(WAIT).writer().unwrap();
        writer.wait_for_subscriptions(1, WAIT).unwrap();
        writer.write(&Reading { sensor: "a".into(), value }).unwrap();
        writer.wait_for_acknowledgments(WAIT).unwrap();
        let guid = writer.guid();
        drop(writer);
        two.wait_for(|directory| directory.writer(guid).is_none(), WAIT).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while reader.matched_publications() != [other.instance_handle()] {
            assert!(std::time::Instant::now() < end);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // A change of the view has taken the process out.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let values: Vec<i64> = take(&reader, 3).into_iter().map(|(_, data)| data.value).collect();
    assert_eq!(values, [0, 1, 2]);
}

#[test]
fn a_process_that_was_a_reader_first_sends_large_samples() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    let far = two.topic::<Reading>("topic").reliable().writer().unwrap();
    let reader = two.topic::<Reading>("topic").reliable().keep_all().reader().unwrap();
    let near = one.topic::<Reading>("topic").reliable().keep_all().reader().unwrap();
    far.wait_for_subscriptions(2, WAIT).unwrap();
    near.wait_for_publications(1, WAIT).unwrap();
    let writer = one.topic::<Reading>("topic").reliable().max_blocking_time(WAIT).writer().unwrap();
    writer.wait_for_subscriptions(2, WAIT).unwrap();
    let large = Reading { sensor: "x".repeat(500_000), value: 1 };
    writer.write(&large).unwrap();
    assert_eq!(take(&reader, 1)[0].1, large);
}

#[test]
fn the_end_of_a_participant_waits_for_no_write() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    let forever = DdsDuration::INFINITE;
    // A sample that is too large for the group is refused; a writer whose topic is refused waits for its place.
    let writer = one.topic::<Reading>("topic").reliable().max_blocking_time(forever).writer().unwrap();
    writer.write(&Reading::default()).unwrap();
    drop(writer);
    let writer = one.topic::<Reading>("other").reliable().max_blocking_time(forever).writer().unwrap();
    let thread = {
        let writer = writer.clone();
        std::thread::spawn(move || {
            // Until the participant ends.
            (0..).find_map(|value| writer.write(&Reading { sensor: "a".into(), value }).err()).unwrap()
        })
    };
    std::thread::sleep(std::time::Duration::from_millis(50));
    let start = std::time::Instant::now();
    one.close().unwrap();
    assert!(start.elapsed() < std::time::Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(matches!(thread.join().unwrap(), DdsError::AlreadyDeleted(_)));
    assert_eq!(two.participants().unwrap().len(), 1);
}

#[test]
fn a_set_with_a_dropped_change_is_given_up() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    let presentation = PresentationQosPolicy {
        access_scope: PresentationQosPolicyAccessScopeKind::Topic,
        coherent_access: true,
        ordered_access: false,
    };
    let publisher = one.create_publisher(PublisherQos { presentation, ..PublisherQos::default() }).unwrap();
    let topic = one.create_topic::<Reading>("topic", TopicQos::default()).unwrap();
    let weak = ReliabilityQosPolicy { kind: ReliabilityQosPolicyKind::BestEffort, ..ReliabilityQosPolicy::WRITER };
    let qos = DataWriterQos { reliability: weak, ..DataWriterQos::default() };
    let writer = publisher.create_datawriter(&topic, qos).unwrap();
    let topic = two.create_topic::<Reading>("topic", TopicQos::default()).unwrap();
    let subscriber = two.create_subscriber(SubscriberQos { presentation, ..SubscriberQos::default() }).unwrap();
    let history = HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll };
    let qos = DataReaderQos { history, ..DataReaderQos::default() };
    let reader = subscriber.create_datareader(&topic, qos).unwrap();
    writer.wait_for_subscriptions(1, WAIT).unwrap();
    let (mut broken, mut whole) = (0, Vec::new());
    for round in 0..40_i64 {
        let before = writer.dropped();
        publisher.begin_coherent_changes().unwrap();
        for value in 0..if round % 2 == 0 { 20_000 } else { 4 } {
            writer.write(&Reading { sensor: format!("{round}"), value }).unwrap();
        }
        let ended = publisher.end_coherent_changes();
        assert_eq!(ended.is_err(), writer.dropped() > before, "round {round}: {ended:?}");
        broken += usize::from(ended.is_err());
        if ended.is_ok() {
            whole.push(round);
        }
        let _ = writer.wait_for_acknowledgments(WAIT);
    }
    writer.wait_for_acknowledgments(WAIT).unwrap();
    assert!(broken > 0 && !whole.is_empty(), "{broken} sets had a dropped change, {whole:?} had none");
    let mut seen = std::collections::BTreeMap::<i64, u32>::new();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while seen.len() < whole.len() {
        assert!(std::time::Instant::now() < end, "{seen:?} of {whole:?}");
        for sample in reader.take().unwrap() {
            let round = sample.data().unwrap().map(|data| data.sensor.parse::<i64>().unwrap());
            round.into_iter().for_each(|round| *seen.entry(round).or_default() += 1);
        }
    }
    let expected = |round: &i64| if round % 2 == 0 { 20_000 } else { 4 };
    assert!(seen.keys().eq(&whole), "{seen:?} of {whole:?}");
    assert!(seen.iter().all(|(round, count)| *count == expected(round)), "{seen:?}");
}

#[test]
fn a_best_effort_writer_sends_its_first_sample() {
    let config = domain();
    let (one, two) = (participant(&config), participant(&config));
    for round in 0..5 {
        let name = format!("topic-{round}");
        let writer = one.topic::<Reading>(&name).best_effort().writer().unwrap();
        let reader = two.topic::<Reading>(&name).best_effort().keep_all().reader().unwrap();
        writer.wait_for_subscriptions(1, WAIT).unwrap();
        writer.write(&Reading { sensor: "a".into(), value: round }).unwrap();
        assert_eq!(writer.dropped(), 0, "round {round}");
        assert_eq!(take(&reader, 1)[0].1.value, round);
    }
}
