//! The commands that change a directory.
use super::entry::{ParticipantEntry, ReaderEntry, TopicEntry, WriterEntry};
use crate::id::Guid;
use serde::{Deserialize, Serialize};
use spindle_xcdr::TypeHash;
use std::collections::BTreeMap;

/// A command. A participant that creates several entities at once puts them into one command, so that their
/// subgroups change once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectoryCommand {
    /// A participant comes, or changes its USER_DATA or its name.
    Announce(ParticipantEntry),
    /// A participant goes, with all that it has.
    Withdraw(Guid),
    /// A participant changes its entities. Each change succeeds or fails by itself.
    Change {
        /// The participant.
        participant: Guid,
        /// The changes, in order.
        changes: Vec<EntityChange>,
    },
    /// Participants whose processes are no members of the group any more. Every process may send it, since the
    /// group has agreed on the end of the others. Identities are never used again, so a late command harms
    /// no later participant.
    Expel(Vec<Guid>),
}

/// A change of an entity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntityChange {
    /// A type for entities that are created later in this command. A type that no entity refers to is
    /// removed at the end of the command.
    Type {
        /// The hash of its complete type object.
        hash: TypeHash,
        /// The complete type objects of the type and of those that it reaches.
        objects: BTreeMap<TypeHash, Vec<u8>>,
    },
    /// A topic is created, or has new policies.
    Topic(Box<TopicEntry>),
    /// A writer is created, or has new policies.
    Writer(Box<WriterEntry>),
    /// A reader is created, or has new policies.
    Reader(Box<ReaderEntry>),
    /// A writer is alive from now on, or is not (LIVELINESS, DDS 2.2.3.11).
    Alive {
        /// The writer.
        writer: Guid,
        /// Whether it is alive.
        alive: bool,
    },
    /// An entity is deleted.
    Delete(Guid),
}
