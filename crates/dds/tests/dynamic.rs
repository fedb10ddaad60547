//! Endpoints whose types are known at run time.
use spindle_dds::instance::InstanceState;
use spindle_dds::policy::*;
use spindle_dds::qos::*;
use spindle_dds::xcdr::DynamicValue;
use spindle_dds::{DdsDuration, DdsError, DdsType, DomainConfig, DomainParticipant};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(appendable)]
struct Reading {
    #[dds(key)]
    sensor: String,
    value: i64,
}

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(appendable)]
struct Tree {
    children: Vec<Tree>,
}

const WAIT: DdsDuration = DdsDuration::from_secs(10);

/// Returns two participants of a domain that no other test has.
fn two() -> [DomainParticipant; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Numbers from 2^31 are those of this file.
    let number = 1 << 31 | (std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed));
    [(); 2].map(|()| DomainParticipant::with(DomainConfig::new(number), DomainParticipantQos::default()).unwrap())
}

fn reliable() -> DataReaderQos {
    DataReaderQos {
        reliability: ReliabilityQosPolicy::WRITER,
        history: HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll },
        ..DataReaderQos::default()
    }
}

#[test]
fn a_dynamic_reader_and_a_dynamic_writer_meet_typed_ones() {
    let [typed, tool] = two();
    let topic = typed.create_topic::<Reading>("readings", TopicQos::default()).unwrap();
    let publisher = typed.create_publisher(PublisherQos::default()).unwrap();
    let writer = publisher.create_datawriter(&topic, DataWriterQos::default()).unwrap();
    let subscriber = typed.create_subscriber(SubscriberQos::default()).unwrap();
    let reader = subscriber.create_datareader(&topic, reliable()).unwrap();

    let found = tool.find_dynamic_topic("readings", WAIT).unwrap();
    assert_eq!((found.name(), found.type_name()), ("readings", "Reading"));
    let subscriber = tool.create_subscriber(SubscriberQos::default()).unwrap();
    let dynamic_reader = subscriber.create_dynamic_datareader(&found, reliable()).unwrap();
    let publisher = tool.create_publisher(PublisherQos::default()).unwrap();
    let dynamic_writer = publisher.create_dynamic_datawriter(&found, DataWriterQos::default()).unwrap();
    dynamic_reader.wait_for_publications(2, WAIT).unwrap();
    dynamic_writer.wait_for_subscriptions(2, WAIT).unwrap();
    writer.wait_for_subscriptions(2, WAIT).unwrap();
    let types = tool.topic_types("readings").unwrap();
    assert_eq!(types.len(), 1, "the found type is the same: {types:?}");

    writer.write(&Reading { sensor: "a".into(), value: 1 }).unwrap();
    let taken = take(&dynamic_reader);
    assert_eq!(taken[0].data().unwrap().unwrap().to_string(), "{sensor: \"a\", value: 1}");

    let json = serde_json::json!({"sensor": "b", "value": 2});
    let value = found.data_type().from_json(&json).unwrap();
    dynamic_writer.write(&value).unwrap();
    let sample = loop {
        let sample = reader.take_next_timeout(WAIT).unwrap();
        if sample.data().unwrap().unwrap().value == 2 {
            break sample;
        }
    };
    assert_eq!(sample.key().unwrap().sensor, "b");
    assert_eq!(take(&dynamic_reader)[0].data().unwrap().unwrap().to_json(), json);

    dynamic_writer.dispose(&value).unwrap();
    let gone = take(&dynamic_reader);
    assert_eq!((gone[0].info().instance_state, gone[0].data().unwrap()), (InstanceState::NotAliveDisposed, None));
    assert_eq!(gone[0].key().unwrap(), DynamicValue::Struct(vec![("sensor".into(), DynamicValue::String("b".into()))]));
    assert_eq!(reader.take_next_timeout(WAIT).unwrap().key().unwrap().sensor, "b");

    let wrong = dynamic_writer.write(&DynamicValue::Struct(Vec::new())).unwrap_err();
    assert!(matches!(&wrong, DdsError::BadParameter(text) if text.contains("sensor")), "{wrong}");
}

#[test]
fn a_wait_for_writers_ends_when_one_matches() {
    let [typed, tool] = two();
    let topic = typed.create_topic::<Reading>("readings", TopicQos::default()).unwrap();
    let found = tool.find_dynamic_topic("readings", WAIT).unwrap();
    let subscriber = tool.create_subscriber(SubscriberQos::default()).unwrap();
    let reader = subscriber.create_dynamic_datareader(&found, reliable()).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(reader.wait_for_publications(1, DdsDuration::INFINITE)));
    let publisher = typed.create_publisher(PublisherQos::default()).unwrap();
    let _writer = publisher.create_datawriter(&topic, DataWriterQos::default()).unwrap();
    is_done.recv_timeout(std::time::Duration::from_secs(60)).unwrap().unwrap();
}

fn take(reader: &spindle_dds::DynamicReader) -> Vec<spindle_dds::DynamicSample> {
    reader.wait_for_data(WAIT).unwrap();
    reader.take().unwrap()
}

#[test]
fn a_topic_that_is_unknown_or_not_described_has_an_error() {
    let [typed, tool] = two();
    let _square = typed.create_topic::<Reading>("Square", TopicQos::default()).unwrap();
    let _tree = typed.create_topic::<Tree>("tree", TopicQos::default()).unwrap();
    let error = |name: &str| tool.find_dynamic_topic(name, DdsDuration::from_millis(300)).unwrap_err().to_string();
    tool.wait_for(|directory| directory.topics().count() == 2, WAIT).unwrap();
    let domain = tool.domain_id();
    assert_eq!(
        error("square"),
        format!(
            "precondition not met: no participant of domain {domain} has a topic 'square', but 'Square'; check the name \
             and the domain, or start a participant with the topic"
        )
    );
    assert_eq!(
        error("tree"),
        "precondition not met: topic 'tree' has the type 'Tree', which no participant describes; types that contain \
         themselves have no type object"
    );
    assert_eq!(tool.topic_types("tree").unwrap()[0].hash, None);
    assert_eq!(tool.topic_types("nothing").unwrap(), []);
}

#[test]
fn a_topic_can_be_created_from_a_description() {
    let [one, two] = two();
    let topic = one
        .create_dynamic_topic("readings", "Reading", <Reading as DdsType>::description(), TopicQos::default())
        .unwrap();
    let found = two.find_dynamic_topic("readings", WAIT).unwrap();
    assert_eq!(found.data_type().description(), topic.data_type().description());
}
