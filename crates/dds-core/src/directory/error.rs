//! Why a change was refused.
use crate::error::DdsError;
use crate::id::Guid;
use serde::{Deserialize, Serialize};
use spindle_xcdr::TypeHash;

/// Why a change was refused. The directory is as if the change had not been asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The participant is not in the directory: it was never announced, has withdrawn, or its process is no
    /// member any more.
    #[error("participant {0} is not in the directory; create another participant")]
    NoParticipant(Guid),
    /// The participant belongs to another process.
    #[error("participant {guid} belongs to process {owner}, and process {member} can't change it; create another one")]
    OtherProcess {
        /// The participant.
        guid: Guid,
        /// The process that it belongs to.
        owner: u64,
        /// The process that sent the command.
        member: u64,
    },
    /// No entity, or none of the participant, has this identity.
    #[error("there is no entity {0}; it may have been deleted")]
    NoEntity(Guid),
    /// The identity belongs to another entity.
    #[error("identity {guid} of a {kind} is in use; give each entity an identity of its own")]
    InUse {
        /// The identity.
        guid: Guid,
        /// The kind of the new entity.
        kind: String,
    },
    /// A part that can't change would change.
    #[error("the {part} of {kind} {guid} can't change; delete it, and create another")]
    Fixed {
        /// The identity.
        guid: Guid,
        /// The kind of the entity.
        kind: String,
        /// The part.
        part: String,
    },
    /// The policies contradict each other, or can't change.
    #[error("{0}")]
    Policy(String),
    /// The type is not in the directory.
    #[error("type {0} is not in the directory; send its type objects in the same command")]
    NoType(TypeHash),
    /// The type objects can't be read.
    #[error("type {hash}: {why}")]
    Type {
        /// The hash of the type.
        hash: TypeHash,
        /// The reason.
        why: String,
    },
    /// A topic is bound to another order domain than the other topics of a publisher with GROUP access.
    #[error(
        "PRESENTATION: topic '{topic}' has order domain {bound}, the other topics of publisher {publisher} have \
         {publisher_domain}, and GROUP access needs one for all: create the writers of this publisher before \
         others, or use TOPIC access"
    )]
    OrderDomains {
        /// The topic.
        topic: String,
        /// Its order domain.
        bound: u32,
        /// The publisher.
        publisher: Guid,
        /// The order domain of its other topics.
        publisher_domain: u32,
    },
    /// There are too many of a kind.
    #[error("the domain has {count} {what}, and the limit is {limit}")]
    TooMany {
        /// The kind.
        what: String,
        /// The number that there are.
        count: u64,
        /// The most that there may be.
        limit: u64,
    },
    /// A serialised directory contradicts itself.
    #[error("the directory is damaged: {0}; transfer it again")]
    Damaged(String),
    /// A name or a value is too long.
    #[error("{what} has {length} {unit}, and the limit is {limit}")]
    TooLong {
        /// The value.
        what: String,
        /// Its length.
        length: u64,
        /// `bytes` or `names`.
        unit: String,
        /// The longest one.
        limit: u64,
    },
}

impl From<DdsError> for DirectoryError {
    fn from(error: DdsError) -> DirectoryError {
        DirectoryError::Policy(error.to_string())
    }
}
