//! The changes that follow from a command.
use super::entry::{ReaderEntry, WriterEntry};
use super::plan::DomainPlan;
use crate::id::Guid;
use crate::matching::{EndpointMatch, Mismatch};
use crate::policy::PolicyId;

/// A change of a directory, in the order that all participants see.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryEvent {
    /// A participant came, or has other data.
    Participant(Guid),
    /// A participant went. Its entities went before.
    ParticipantGone(Guid),
    /// A topic came, or has other policies.
    Topic(Guid),
    /// A topic went.
    TopicGone(Guid),
    /// Two topics of one name have types that exclude each other: INCONSISTENT_TOPIC at both
    /// (DDS 2.2.4.1).
    InconsistentTopic {
        /// The topic that came.
        topic: Guid,
        /// The other topic.
        other: Guid,
        /// The reason.
        reason: Box<Mismatch>,
    },
    /// A writer came, has other policies, or its liveliness has changed. Its matches follow.
    Writer(Guid),
    /// A writer went. It matches no reader any more.
    WriterGone {
        /// The writer, as it was.
        entry: Box<WriterEntry>,
        /// Whether it was deleted, by itself or with its participant. If not, its process failed.
        deleted: bool,
    },
    /// A reader came, or has other policies. Its matches follow.
    Reader(Guid),
    /// A reader went. It matches no writer any more.
    ReaderGone(Box<ReaderEntry>),
    /// A writer and a reader match, or match on other terms.
    Matched {
        /// The writer.
        writer: Guid,
        /// The reader.
        reader: Guid,
        /// The terms.
        terms: Box<EndpointMatch>,
    },
    /// A writer and a reader that both exist match no more.
    Unmatched {
        /// The writer.
        writer: Guid,
        /// The reader.
        reader: Guid,
    },
    /// A writer and a reader of one topic do not match. [`Directory::why`](super::Directory::why) has the
    /// reasons. The event comes with each change of one of them.
    Mismatched {
        /// The writer.
        writer: Guid,
        /// The reader.
        reader: Guid,
        /// The policies that are incompatible (OFFERED_INCOMPATIBLE_QOS, REQUESTED_INCOMPATIBLE_QOS).
        policies: Vec<PolicyId>,
        /// Whether the types exclude each other (INCONSISTENT_TOPIC).
        inconsistent_topic: bool,
    },
    /// An order domain came, or has another plan.
    Domain(DomainPlan),
    /// An order domain went: its topics have no endpoints.
    DomainGone(u32),
}
