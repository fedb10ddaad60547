//! The entries: what a participant tells the others of itself and its entities.
use crate::id::Guid;
use crate::matching::{ReaderDescription, TopicRef, WriterDescription};
use crate::policy::{PresentationQosPolicyAccessScopeKind, ReliabilityQosPolicyKind, UserDataQosPolicy};
use crate::qos::TopicQos;
use serde::{Deserialize, Serialize};
use spindle_xcdr::TypeHash;

/// A participant (DDS 2.2.2.2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipantEntry {
    /// Its identity. A process that starts again has participants with other identities.
    pub guid: Guid,
    /// The id of its process in the group.
    pub member: u64,
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
pub(super) trait Entity {
    /// The kind, as errors name it.
    const KIND: &'static str;

    fn guid(&self) -> Guid;
    fn participant(&self) -> Guid;
    fn topic(&self) -> &TopicRef;
    fn topic_mut(&mut self) -> &mut TopicRef;
    fn type_hash(&self) -> Option<TypeHash>;
    /// The parent, which never changes: a publisher or a subscriber.
    fn parent(&self) -> Guid;
}

macro_rules! entity {
    ($of:ident, $kind:literal, $parent:ident, $($path:ident).*) => {
        impl Entity for $of {
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
        }
    };
}

entity!(TopicEntry, "topic", participant,);
entity!(WriterEntry, "writer", publisher, description);
entity!(ReaderEntry, "reader", subscriber, description);
