//! The descriptions of endpoints, and the match of a pair.
use super::hint;
use super::reason::Mismatch;
use crate::id::Guid;
use crate::policy::{
    ConsistencyKind, PartitionMatch, RepresentationId, TypeConsistencyEnforcementQosPolicy, check_offered,
};
use crate::qos::{DataReaderQos, DataWriterQos, PublisherQos, SubscriberQos};
use serde::{Deserialize, Serialize};
use spindle_xcdr::{TypeDescription, check_assignable};
use std::sync::Arc;

/// The topic of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRef {
    /// Its name.
    pub name: String,
    /// The registered name of its type.
    pub type_name: String,
    /// The type; `None` if the participant gave no description. It is not serialised.
    #[serde(skip)]
    pub description: Option<Arc<TypeDescription>>,
}

/// A writer, as all participants know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterDescription {
    /// Its identity.
    pub guid: Guid,
    /// Its topic.
    pub topic: TopicRef,
    /// Its policies.
    pub qos: DataWriterQos,
    /// The policies of its publisher.
    pub publisher: PublisherQos,
}

/// A reader, as all participants know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderDescription {
    /// Its identity.
    pub guid: Guid,
    /// Its topic. A content-filtered topic counts as the topic that it filters.
    pub topic: TopicRef,
    /// Its policies.
    pub qos: DataReaderQos,
    /// The policies of its subscriber.
    pub subscriber: SubscriberQos,
}

/// The terms on which a writer and a reader match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointMatch {
    /// The partitions by which they match.
    pub partition: PartitionMatch,
    /// The representation of samples.
    pub representation: RepresentationId,
    /// The level that the reader gets: that of the writer.
    pub consistency: ConsistencyKind,
}

/// Matches a writer and a reader (DDS 2.2.3; XTypes 7.6.3).
///
/// # Errors
/// All reasons why they don't match; only the topic if the topics differ.
pub fn match_endpoints(writer: &WriterDescription, reader: &ReaderDescription) -> Result<EndpointMatch, Vec<Mismatch>> {
    if writer.topic.name != reader.topic.name {
        let close = hint::is_close(&writer.topic.name, &reader.topic.name);
        let (writer, reader) = (writer.topic.name.clone(), reader.topic.name.clone());
        return Err(vec![Mismatch::Topic { writer, reader, close }]);
    }
    let mut reasons = Vec::from_iter(check_types(&writer.topic, &reader.topic, &reader.qos.type_consistency).err());
    let partition = writer.publisher.partition.find_match(&reader.subscriber.partition);
    if partition.is_none() {
        let (own, other) = (&writer.publisher.partition, &reader.subscriber.partition);
        let hint = hint::partition(own, other);
        reasons.push(Mismatch::Partition { writer: own.to_string(), reader: other.to_string(), hint });
    }
    let offered = writer.qos.offered(&writer.publisher);
    let found = check_offered(&offered, &reader.qos.requested(&reader.subscriber));
    reasons.extend(found.into_iter().map(Mismatch::Policy));
    match partition {
        Some(partition) if reasons.is_empty() => Ok(EndpointMatch {
            partition,
            representation: offered.representation.list()[0],
            consistency: writer.qos.consistency_level(),
        }),
        _ => Err(reasons),
    }
}

/// Checks that two topics of one name can have samples in common: samples of one can be read as those of the
/// other, by the default rules.
///
/// # Errors
/// Why samples of `own` can't be read as those of `other`.
pub(crate) fn check_topics(own: &TopicRef, other: &TopicRef) -> Result<(), Mismatch> {
    let policy = TypeConsistencyEnforcementQosPolicy::default();
    check_types(own, other, &policy).or_else(|why| check_types(other, own, &policy).map_err(|_| why))
}

/// Checks that the reader can read the writer's type. Types without descriptions match by name
/// (XTypes 7.6.3.7.3).
fn check_types(own: &TopicRef, other: &TopicRef, policy: &TypeConsistencyEnforcementQosPolicy) -> Result<(), Mismatch> {
    let names = || (own.type_name.clone(), other.type_name.clone());
    if let (Some(left), Some(right)) = (&own.description, &other.description) {
        if left.is_keyed() != right.is_keyed() {
            return Err(Mismatch::Key { keyed: if left.is_keyed() { "writer" } else { "reader" } });
        }
        if Arc::ptr_eq(left, right) {
            return Ok(());
        }
        return check_assignable(right, left, policy.rules).map_err(|rule| {
            let (writer, reader) = names();
            Mismatch::Type { writer, reader, rule: Box::new(rule) }
        });
    }
    if policy.force_type_validation {
        let (side, name) =
            if own.description.is_none() { ("writer", &own.type_name) } else { ("reader", &other.type_name) };
        return Err(Mismatch::TypeUnknown { side, name: name.clone() });
    }
    if own.type_name == other.type_name {
        return Ok(());
    }
    let close = hint::is_close(&own.type_name, &other.type_name);
    let (writer, reader) = names();
    Err(Mismatch::TypeName { writer, reader, close })
}
