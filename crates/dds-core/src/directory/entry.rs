//! The entries: what a participant tells the others of itself and its entities.
use super::error::DirectoryError;
use crate::error::DdsError;
use crate::id::Guid;
use crate::matching::{ReaderDescription, TopicRef, WriterDescription};
use crate::policy::{
    PartitionQosPolicy, PresentationQosPolicyAccessScopeKind, ReliabilityQosPolicyKind, UserDataQosPolicy,
};
use crate::qos::{QosSet, Supported, TopicQos};
use serde::{Deserialize, Serialize};
use spindle_xcdr::TypeHash;

/// The longest name of a topic, a type, a partition or a participant, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The most names of PARTITION.
const PARTITIONS_MAX: usize = 64;
/// The longest USER_DATA, TOPIC_DATA or GROUP_DATA, in bytes.
const DATA_BYTES_MAX: usize = 64 << 10;
/// The largest sample, in bytes: a message of a subgroup has 64 MiB at most, with the header of the sample.
const SAMPLE_BYTES_MAX: usize = (64 << 20) - 1024;

/// A participant (DDS 2.2.2.2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipantEntry {
    /// Its identity. A process that starts again has participants with other identities.
    pub guid: Guid,
    /// The id of its process in the group.
    pub member: u64,
    /// The number of its process among those of this id, such as the view in which it joined. It rises.
    pub incarnation: u64,
    /// A name for people, such as that of the program.
    pub name: String,
    /// Its USER_DATA.
    pub user_data: UserDataQosPolicy,
}

/// A topic of a participant (DDS 2.2.2.3.2). Several participants may have a topic of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicEntry {
    /// Its identity.
    pub guid: Guid,
    /// Its participant.
    pub participant: Guid,
    /// Its name and type.
    pub topic: TopicRef,
    /// The hash of the complete type object; `None` if the type has no description.
    pub type_hash: Option<TypeHash>,
    /// Its policies.
    pub qos: TopicQos,
}

/// A writer (DDS 2.2.2.4.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterEntry {
    /// Its participant.
    pub participant: Guid,
    /// Its publisher.
    pub publisher: Guid,
    /// The hash of the complete type object; `None` if the type has no description.
    pub type_hash: Option<TypeHash>,
    /// The largest sample that it sends, in bytes.
    pub sample_bytes_max: u32,
    /// Whether it is alive (LIVELINESS, DDS 2.2.3.11). Its process says so; if that fails, the writer goes.
    pub alive: bool,
    /// Its identity, topic and policies.
    pub description: WriterDescription,
}

/// A reader (DDS 2.2.2.5.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderEntry {
    /// Its participant.
    pub participant: Guid,
    /// Its subscriber.
    pub subscriber: Guid,
    /// The hash of the complete type object; `None` if the type has no description.
    pub type_hash: Option<TypeHash>,
    /// Its identity, topic and policies.
    pub description: ReaderDescription,
}

impl WriterEntry {
    /// Returns whether all topics of its publisher must have one order (DDS 2.2.3.6).
    pub(super) fn has_group_order(&self) -> bool {
        let presentation = &self.description.publisher.presentation;
        presentation.access_scope == PresentationQosPolicyAccessScopeKind::Group
            && (presentation.coherent_access || presentation.ordered_access)
    }
}

impl ReaderEntry {
    /// Returns whether its process has to acknowledge samples.
    pub(super) fn is_reliable(&self) -> bool {
        self.description.qos.reliability.kind == ReliabilityQosPolicyKind::Reliable
    }
}

/// The part that all entities have.
pub(super) trait Entity: Clone + PartialEq {
    /// The kind, as errors name it.
    const KIND: &'static str;

    fn guid(&self) -> Guid;
    fn participant(&self) -> Guid;
    fn topic(&self) -> &TopicRef;
    fn topic_mut(&mut self) -> &mut TopicRef;
    fn type_hash(&self) -> Option<TypeHash>;
    /// The parent, which never changes: a publisher or a subscriber.
    fn parent(&self) -> Guid;
    /// Checks the entry by itself.
    fn check(&self) -> Result<(), DirectoryError>;
    /// Checks that the policies may change to those of another entry.
    fn check_change(&self, to: &Self) -> Result<(), DdsError>;
}

macro_rules! entity {
    ($kind:literal, $parent:ident, $($path:ident).*) => {
        const KIND: &'static str = $kind;

        fn guid(&self) -> Guid {
            self$(.$path)*.guid
        }

        fn participant(&self) -> Guid {
            self.participant
        }

        fn topic(&self) -> &TopicRef {
            &self$(.$path)*.topic
        }

        fn topic_mut(&mut self) -> &mut TopicRef {
            &mut self$(.$path)*.topic
        }

        fn type_hash(&self) -> Option<TypeHash> {
            self.type_hash
        }

        fn parent(&self) -> Guid {
            self.$parent
        }
    };
}

impl ParticipantEntry {
    pub(super) fn check(&self) -> Result<(), DirectoryError> {
        check_length("the name of a participant", self.name.len(), NAME_BYTES_MAX)?;
        check_length("USER_DATA", self.user_data.value.len(), DATA_BYTES_MAX)
    }
}

impl Entity for TopicEntry {
    entity!("topic", participant,);

    fn check(&self) -> Result<(), DirectoryError> {
        check_topic(&self.topic)?;
        check_length("TOPIC_DATA", self.qos.topic_data.value.len(), DATA_BYTES_MAX)?;
        Ok(self.qos.check_consistent()?)
    }

    fn check_change(&self, to: &TopicEntry) -> Result<(), DdsError> {
        self.qos.check_change(&to.qos, true, &Supported::all())
    }
}

impl Entity for WriterEntry {
    entity!("writer", publisher, description);

    fn check(&self) -> Result<(), DirectoryError> {
        let own = &self.description;
        check_topic(&own.topic)?;
        check_length("USER_DATA", own.qos.user_data.value.len(), DATA_BYTES_MAX)?;
        check_length("GROUP_DATA", own.publisher.group_data.value.len(), DATA_BYTES_MAX)?;
        check_length("the largest sample of a writer", self.sample_bytes_max as usize, SAMPLE_BYTES_MAX)?;
        check_partition(&own.publisher.partition)?;
        own.qos.check_consistent()?;
        Ok(own.publisher.check_consistent()?)
    }

    fn check_change(&self, to: &WriterEntry) -> Result<(), DdsError> {
        let (own, to) = (&self.description, &to.description);
        own.qos.check_change(&to.qos, true, &Supported::all())?;
        own.publisher.check_change(&to.publisher, true, &Supported::all())
    }
}

impl Entity for ReaderEntry {
    entity!("reader", subscriber, description);

    fn check(&self) -> Result<(), DirectoryError> {
        let own = &self.description;
        check_topic(&own.topic)?;
        check_length("USER_DATA", own.qos.user_data.value.len(), DATA_BYTES_MAX)?;
        check_length("GROUP_DATA", own.subscriber.group_data.value.len(), DATA_BYTES_MAX)?;
        check_partition(&own.subscriber.partition)?;
        own.qos.check_consistent()?;
        Ok(own.subscriber.check_consistent()?)
    }

    fn check_change(&self, to: &ReaderEntry) -> Result<(), DdsError> {
        let (own, to) = (&self.description, &to.description);
        own.qos.check_change(&to.qos, true, &Supported::all())?;
        own.subscriber.check_change(&to.subscriber, true, &Supported::all())
    }
}

fn check_topic(topic: &TopicRef) -> Result<(), DirectoryError> {
    check_length("the name of a topic", topic.name.len(), NAME_BYTES_MAX)?;
    check_length("the name of a type", topic.type_name.len(), NAME_BYTES_MAX)
}

fn check_partition(partition: &PartitionQosPolicy) -> Result<(), DirectoryError> {
    if partition.name.len() > PARTITIONS_MAX {
        return Err(DirectoryError::TooLong {
            what: "PARTITION".to_owned(),
            length: partition.name.len() as u64,
            unit: "names".to_owned(),
            limit: PARTITIONS_MAX as u64,
        });
    }
    partition.name.iter().try_for_each(|name| check_length("a name of PARTITION", name.len(), NAME_BYTES_MAX))
}

fn check_length(what: &str, length: usize, limit: usize) -> Result<(), DirectoryError> {
    if length <= limit {
        return Ok(());
    }
    Err(DirectoryError::TooLong {
        what: what.to_owned(),
        length: length as u64,
        unit: "bytes".to_owned(),
        limit: limit as u64,
    })
}
