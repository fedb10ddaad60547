//! Entities in the directory of a domain, as the commands name and match them.
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use serde_json::{Map, Value, json};
use spindle_dds::directory::Directory;
use spindle_dds::policy::{
    HistoryQosPolicy, HistoryQosPolicyKind, Length, PartitionQosPolicy, PolicyId, ReliabilityQosPolicy,
    ReliabilityQosPolicyKind, RepresentationId, ResourceLimitsQosPolicy, WriterDataLifecycleQosPolicy,
};
use spindle_dds::qos::{DataReaderQos, DataWriterQos, PublisherQos, QosSet, SubscriberQos};
use spindle_dds::{DdsDuration, Guid};
use std::collections::BTreeSet;

/// The samples that a reader of a command keeps until they are printed.
const SAMPLES_MAX: u32 = 65_536;

/// The side of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Writer,
    Reader,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Writer => "writer",
            Side::Reader => "reader",
        }
    }
}

/// A writer or a reader.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) side: Side,
    pub(super) guid: Guid,
    pub(super) participant: Guid,
    /// The name of its participant.
    pub(super) name: String,
    /// The process of its participant.
    pub(super) process: u64,
    pub(super) topic: String,
    pub(super) type_name: String,
    pub(super) type_hash: Option<String>,
    /// The policies that differ from the default, with their values: its own and those of its parent.
    pub(super) qos: Vec<(PolicyId, String)>,
}

/// Returns the short form of an identity: the begin of the participant's, and the number of the entity in it.
pub(super) fn short(guid: Guid) -> String {
    let text = guid.to_string();
    let (prefix, entity) = text.split_at(24);
    match u32::from_str_radix(entity, 16) {
        Ok(0) | Err(_) => prefix[..8].to_string(),
        Ok(number) => format!("{}.{number}", &prefix[..8]),
    }
}

impl Endpoint {
    /// Returns it as texts name it.
    pub(super) fn shown(&self) -> String {
        format!("{} {} ({}, process {})", self.side.name(), short(self.guid), self.name, self.process)
    }

    /// Returns its policies as a text.
    pub(super) fn shown_qos(&self) -> String {
        if self.qos.is_empty() {
            return "default policies".to_string();
        }
        self.qos.iter().map(|(policy, value)| format!("{policy} {value}")).collect::<Vec<_>>().join("; ")
    }

    pub(super) fn to_json(&self, with_qos: bool) -> Value {
        let mut object = json!({
            "guid": self.guid.to_string(),
            "participant": self.participant.to_string(),
            "name": self.name,
            "process": self.process,
            "topic": self.topic,
            "type": self.type_name,
        });
        if with_qos {
            let qos = self.qos.iter().map(|(policy, value)| (policy.to_string(), Value::from(value.as_str())));
            object["qos"] = Value::Object(qos.collect::<Map<_, _>>());
        }
        object
    }
}

/// Returns all writers and readers, without those of one participant.
pub(super) fn endpoints(directory: &Directory, without: Guid) -> Vec<Endpoint> {
    fn differing<Q: QosSet + Default>(own: &Q) -> impl Iterator<Item = (PolicyId, String)> {
        own.differences(&Q::default()).into_iter().map(|(policy, value, _)| (policy, value))
    }
    let participant = |guid: Guid| {
        let found = directory.participant(guid);
        found.map_or((String::new(), 0), |own| (own.name.clone(), own.member))
    };
    let writers = directory.writers().map(|own| {
        let (of, (name, process)) = (&own.description, participant(own.participant));
        Endpoint {
            side: Side::Writer,
            guid: of.guid,
            participant: own.participant,
            name,
            process,
            topic: of.topic.name.clone(),
            type_name: of.topic.type_name.clone(),
            type_hash: own.type_hash.map(|hash| hash.to_string()),
            qos: differing(&of.qos).chain(differing(&of.publisher)).collect(),
        }
    });
    let readers = directory.readers().map(|own| {
        let (of, (name, process)) = (&own.description, participant(own.participant));
        Endpoint {
            side: Side::Reader,
            guid: of.guid,
            participant: own.participant,
            name,
            process,
            topic: of.topic.name.clone(),
            type_name: of.topic.type_name.clone(),
            type_hash: own.type_hash.map(|hash| hash.to_string()),
            qos: differing(&of.qos).chain(differing(&of.subscriber)).collect(),
        }
    });
    let mut all: Vec<Endpoint> = writers.chain(readers).filter(|own| own.participant != without).collect();
    all.sort_by_key(|own| (own.process, own.guid));
    all
}

/// Returns the names of all topics, without those that only one participant has.
pub(super) fn topic_names(directory: &Directory, without: Guid) -> BTreeSet<String> {
    let topics = directory.topics().filter(|own| own.participant != without).map(|own| own.topic.name.clone());
    topics.chain(endpoints(directory, without).into_iter().map(|own| own.topic)).collect()
}

/// Returns whether a topic has the name, or fits the pattern with `*`, `?` and `[a-z]`.
pub(super) fn fits(topic: &str, pattern: &str) -> bool {
    let one = |name: &str| PartitionQosPolicy::of([name]);
    topic == pattern || one(topic).find_match(&one(pattern)).is_some()
}

/// Finds the endpoint that a word names: its identity, the begin of it, or the short form.
pub(super) fn find(all: &[Endpoint], word: &str) -> CliResult<Endpoint> {
    let lower = word.to_ascii_lowercase();
    let is_it = |own: &&Endpoint| short(own.guid) == lower || own.guid.to_string().starts_with(&lower);
    let found: Vec<&Endpoint> = all.iter().filter(is_it).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => Err(CliError::new(FAILED, format_args!("no endpoint is {word:?}; see `spindle dds ls --qos`"))),
        _ => {
            let names = found.iter().map(|own| short(own.guid)).collect::<Vec<_>>().join(", ");
            Err(CliError::new(USAGE, format_args!("{word:?} is the begin of several endpoints: {names}; name one")))
        }
    }
}

/// Returns the policies of a reader that requests no more than each writer of the topic offers.
pub(super) fn reader_qos(directory: &Directory, topic: &str) -> (SubscriberQos, DataReaderQos) {
    let writers = || directory.writers().map(|own| &own.description).filter(|own| own.topic.name == topic);
    let is_reliable = writers().all(|own| own.qos.reliability.kind == ReliabilityQosPolicyKind::Reliable);
    let mut qos = DataReaderQos {
        reliability: if is_reliable { ReliabilityQosPolicy::WRITER } else { ReliabilityQosPolicy::default() },
        history: HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll },
        resource_limits: ResourceLimitsQosPolicy {
            max_samples: Length::Limited(SAMPLES_MAX),
            ..ResourceLimitsQosPolicy::default()
        },
        ..DataReaderQos::default()
    };
    qos.representation.value = vec![RepresentationId::Xcdr1, RepresentationId::Xcdr2];
    if let Some(writer) = writers().next() {
        qos.ownership = writer.qos.ownership;
    }
    // A pattern matches all names, and the default partition.
    (SubscriberQos { partition: PartitionQosPolicy::of(["*"]), ..SubscriberQos::default() }, qos)
}

/// Returns the policies of a writer that offers what each reader of the topic requests.
pub(super) fn writer_qos(directory: &Directory, topic: &str) -> (PublisherQos, DataWriterQos) {
    let mut qos = DataWriterQos {
        // Other writers may write the same instances.
        writer_data_lifecycle: WriterDataLifecycleQosPolicy { autodispose_unregistered_instances: false },
        ..DataWriterQos::default()
    };
    // A burst is not lost while a view changes.
    qos.reliability.max_blocking_time = DdsDuration::from_secs(5);
    let mut publisher = PublisherQos::default();
    let mut partitions = BTreeSet::new();
    let readers = directory.readers().map(|own| &own.description).filter(|own| own.topic.name == topic);
    for (index, reader) in readers.enumerate() {
        let (asked, presentation) = (&reader.qos, &reader.subscriber.presentation);
        qos.deadline.period = qos.deadline.period.min(asked.deadline.period);
        qos.latency_budget.duration = qos.latency_budget.duration.min(asked.latency_budget.duration);
        qos.destination_order.kind = qos.destination_order.kind.max(asked.destination_order.kind);
        qos.liveliness.lease_duration = qos.liveliness.lease_duration.min(asked.liveliness.lease_duration);
        publisher.presentation.access_scope = publisher.presentation.access_scope.max(presentation.access_scope);
        publisher.presentation.ordered_access |= presentation.ordered_access;
        if index == 0 {
            qos.ownership = asked.ownership;
            qos.representation.value = asked.representation.list()[..1].to_vec();
        }
        let is_name = |name: &&str| !name.contains(['*', '?', '[', '\\']);
        partitions.extend(reader.subscriber.partition.names().filter(is_name).map(str::to_owned));
    }
    if !partitions.iter().all(String::is_empty) {
        publisher.partition = PartitionQosPolicy::of(partitions);
    }
    (publisher, qos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_have_the_begin_and_the_number_of_the_entity() {
        let mut guid = Guid([0xab; 16]);
        guid.0[12..].copy_from_slice(&[0, 0, 1, 2]);
        assert_eq!(short(guid), "abababab.258");
        guid.0[12..].fill(0);
        assert_eq!(short(guid), "abababab");
    }

    #[test]
    fn topics_fit_their_names_and_patterns() {
        for (topic, pattern, expected) in
            [("a", "a", true), ("a*", "a*", true), ("abc", "a?c", true), ("abc", "*b*", true), ("abc", "b*", false)]
        {
            assert_eq!(fits(topic, pattern), expected, "{topic} {pattern}");
        }
    }
}
