//! Matches of writers and readers, and the reasons of those that don't match.
use spindle_dds_core::matching::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::{DdsDuration, Guid};
use spindle_xcdr::DdsType;
use std::sync::Arc;

#[derive(Debug, DdsType)]
#[dds(appendable, name = "Shape")]
struct Shape {
    #[dds(key)]
    color: String,
    x: i32,
}

#[derive(Debug, DdsType)]
#[dds(appendable, name = "Shape")]
struct ShapeWithSize {
    #[dds(key)]
    color: String,
    x: i32,
    size: u16,
}

#[derive(Debug, DdsType)]
#[dds(appendable, name = "Shape")]
struct OtherShape {
    #[dds(key)]
    color: String,
    x: f64,
}

#[derive(Debug, DdsType)]
#[dds(appendable, name = "Shape")]
struct Keyless {
    color: String,
    x: i32,
}

fn topic<T: DdsType>(name: &str) -> TopicRef {
    TopicRef { name: name.to_owned(), type_name: T::NAME.to_owned(), description: Some(Arc::new(T::description())) }
}

fn pair() -> (WriterDescription, ReaderDescription) {
    let writer = WriterDescription {
        guid: Guid([1; 16]),
        topic: topic::<Shape>("Square"),
        qos: DataWriterQos::default(),
        publisher: PublisherQos::default(),
    };
    let reader = ReaderDescription {
        guid: Guid([2; 16]),
        topic: topic::<Shape>("Square"),
        qos: DataReaderQos::default(),
        subscriber: SubscriberQos::default(),
    };
    (writer, reader)
}

fn reasons((writer, reader): &(WriterDescription, ReaderDescription)) -> Vec<String> {
    match match_endpoints(writer, reader) {
        Ok(_) => Vec::new(),
        Err(reasons) => reasons.iter().map(Mismatch::to_string).collect(),
    }
}

#[test]
fn defaults_match() {
    let (writer, reader) = pair();
    let found = match_endpoints(&writer, &reader).unwrap();
    assert_eq!(found.representation, RepresentationId::Xcdr1);
    assert_eq!(found.consistency, ConsistencyKind::AtomicMulticast);
    assert_eq!(found.partition, PartitionMatch { writer: String::new(), reader: String::new() });
}

#[test]
fn another_topic_is_the_only_reason() {
    let mut both = pair();
    both.1.topic.name = "square".to_owned();
    both.1.qos.reliability = ReliabilityQosPolicy::WRITER;
    let expected = "topic: the writer has 'Square', the reader 'square'; one is probably mistyped";
    assert_eq!(reasons(&both), [expected]);
    both.1.topic.name = "Circle".to_owned();
    assert_eq!(reasons(&both), ["topic: the writer has 'Square', the reader 'Circle'"]);
}

#[test]
fn assignable_types_match_and_others_name_the_member() {
    let mut both = pair();
    both.1.topic = topic::<ShapeWithSize>("Square");
    assert_eq!(reasons(&both), [""; 0]);
    both.1.qos.type_consistency.rules.prevent_type_widening = true;
    assert!(reasons(&both)[0].contains("member size: only the reader has the member"));
    both.1 = pair().1;
    both.1.topic = topic::<OtherShape>("Square");
    let expected = "type: the writer has 'Shape', the reader 'Shape': the types don't match at member x: \
                    the reader has double, the writer int32; use one type";
    assert_eq!(reasons(&both), [expected]);
    both.1.topic = topic::<Keyless>("Square");
    let found = match_endpoints(&both.0, &both.1).unwrap_err();
    assert_eq!(found[0].to_string(), "type: only the writer's type has a key; both types must have the same key");
    assert!(found[0].is_inconsistent_topic() && found[0].policy().is_none());
}

#[test]
fn types_without_descriptions_match_by_name() {
    let mut both = pair();
    both.0.topic.description = None;
    assert_eq!(reasons(&both), [""; 0]);
    both.0.topic.type_name = "shape".to_owned();
    assert!(reasons(&both)[0].contains("the writer has 'shape', the reader 'Shape'"));
    assert!(reasons(&both)[0].ends_with("one is probably mistyped"));
    both.1.qos.type_consistency.force_type_validation = true;
    assert!(reasons(&both)[0].starts_with("type: the writer has no description of its type 'shape'"));
}

#[test]
fn partitions_must_meet_and_mistakes_get_hints() {
    let set = |writer: &[&str], reader: &[&str]| {
        let mut both = pair();
        both.0.publisher.partition = PartitionQosPolicy::of(writer.to_vec());
        both.1.subscriber.partition = PartitionQosPolicy::of(reader.to_vec());
        reasons(&both)
    };
    assert_eq!(set(&["a", "b"], &["b?", "[b]"]), [""; 0]);
    let expected = "PARTITION: the writer is in 'Floor', the reader in 'x', 'floor'; \
                    'Floor' and 'floor' differ by little, one is probably mistyped";
    assert_eq!(set(&["Floor"], &["x", "floor"]), [expected]);
    assert!(set(&["a*"], &["a*"])[0].ends_with("name a partition at one side"));
    assert!(set(&[], &["main"])[0].contains("the writer is in the default partition"));
    assert!(set(&["one"], &["other"])[0].ends_with("give both a common name"));
}

#[test]
fn all_reasons_are_listed() {
    let mut both = pair();
    both.1.topic = topic::<OtherShape>("Square");
    both.1.subscriber.partition = PartitionQosPolicy::of(["main"]);
    both.1.qos.deadline.period = DdsDuration::from_millis(10);
    both.1.qos.durability.kind = DurabilityQosPolicyKind::Transient;
    let found = match_endpoints(&both.0, &both.1).unwrap_err();
    let policies: Vec<_> = found.iter().filter_map(Mismatch::policy).collect();
    assert_eq!(found.len(), 4);
    assert_eq!(policies, [PolicyId::Durability, PolicyId::Deadline]);
    let expected = "DEADLINE: the writer offers infinite, the reader requests 10 ms; \
                    the offered period must be at most the requested one";
    assert_eq!(found[3].to_string(), expected);
}
