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
