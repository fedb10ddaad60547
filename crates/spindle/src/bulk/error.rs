//! The errors of a bulk group, one type for each kind of call.
use super::event::{BulkFailure, ObjectId};
use spindle_core::Rank;
use spindle_core::rdmc::SessionError;
use spindle_fabric::RegionError;
use spindle_fabric::bulk::BulkLinksError;
use std::io;
use std::time::Duration;

/// Why a member of a bulk group could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// Its rank or that of the root is not in the group.
    #[error("rank {rank} is none of a group of {members} members")]
    Rank {
        /// The rank.
        rank: Rank,
        /// The number of members.
        members: u32,
    },
    /// The racks do not contain the leaders of all hosts.
    #[error("the racks hold {found} positions of {hosts}: list each host's once")]
    Racks {
        /// How many they contain.
        found: u32,
        /// The number of hosts.
        hosts: u32,
    },
    /// It has no [`LocalPart`](super::LocalPart) among the members of its host, or that of another
    /// member.
    #[error(
        "rank {me} shares its host with {others} others, of which {head} has the host's connections: it needs its part among these"
    )]
    Part {
        /// This member.
        me: Rank,
        /// How many others are on its host.
        others: u32,
        /// The host leader.
        head: Rank,
    },
    /// A setting is out of its range.
    #[error(transparent)]
    Settings(#[from] SessionError),
    /// The connections are not the required ones.
    #[error(transparent)]
    Links(#[from] BulkLinksError),
    /// The thread could not be started.
    #[error("no thread for bulk groups: {0}")]
    Thread(io::Error),
}

/// Why the root can't send an object now. The object is not returned: keep a clone to try again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkSendError {
    /// The root can't send now, or this member is not the root.
    #[error(transparent)]
    Session(#[from] spindle_core::rdmc::SessionSendError),
    /// The group was destroyed, or its thread has ended.
    #[error("the bulk group is destroyed")]
    Destroyed,
    /// On one machine: no memory is left for the object.
    #[error("there is no memory to share for the object: {0}")]
    Memory(#[from] RegionError),
    /// The caller is an upcall on the thread that would have to answer.
    #[error("an upcall can't wait for the thread that it runs on; have another thread send")]
    InUpcall,
}

/// Why a buffer was not taken. It is dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No buffer is awaited for the object: it has one, is complete, or was never announced.
    #[error("no buffer is awaited for object {}; post one for each Allocate, once", object.0)]
    NotAwaited {
        /// The object.
        object: ObjectId,
    },
    /// The object has another length.
    #[error("object {} has {expected} bytes, and the buffer {found}", object.0)]
    Length {
        /// The object.
        object: ObjectId,
        /// Bytes of the object.
        expected: u64,
        /// Bytes of the buffer.
        found: u64,
    },
    /// The group was destroyed, or its thread has ended.
    #[error("the bulk group is destroyed")]
    Destroyed,
    /// The caller is an upcall on the thread that would have to answer.
    #[error(
        "an upcall can't wait for the thread that it runs on; answer Allocate with the buffer, or have another thread post it"
    )]
    InUpcall,
}

/// Why a group was not left in order. It is left nevertheless.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// The others have not done their part in time.
    #[error(
        "after {waited:?} {open} members have not finished: all have to destroy the group, and the root to have sent everything"
    )]
    TimedOut {
        /// How long this member has waited.
        waited: Duration,
        /// How many have not done their part.
        open: u32,
    },
    /// The group was closed by a death.
    #[error("the group was closed before: {0}")]
    Failed(BulkFailure),
    /// The group was destroyed before, or its thread has ended.
    #[error("the bulk group is destroyed")]
    Destroyed,
    /// The caller is an upcall on the thread that would have to answer.
    #[error("an upcall can't wait for the thread that it runs on; have another thread destroy the group")]
    InUpcall,
}
