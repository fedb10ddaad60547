//! What can go wrong, by the call that reports it.
use spindle_core::{Fault, MemberId, Rank, ViewError};
use spindle_fabric::ShmError;
use spindle_fabric::meet::MeetError;
use std::io;
use std::time::Duration;

/// Why a group could not be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The configuration makes no valid view.
    #[error("the configuration is wrong: {0}")]
    View(#[from] ViewError),
    /// There has to be something to send in.
    #[error("the group has no subgroup: add at least one")]
    NoSubgroup,
    /// Meeting the other members failed.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// The shared memory could not be set up.
    #[error(transparent)]
    Memory(ShmError),
    /// The process has too many file descriptors.
    #[error("no file descriptor left for the members' memory: {0}; raise the limit with `ulimit -n`")]
    Descriptors(io::Error),
    /// A thread could not be started.
    #[error("no thread could be started: {0}")]
    Thread(io::Error),
}

/// Why a group ended before everything was delivered. Every later call on it reports the same.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// A member died.
    #[error("member {id} (rank {rank}, process {pid}) died")]
    Died {
        /// Its id.
        id: MemberId,
        /// Its rank.
        rank: Rank,
        /// Its process.
        pid: u32,
    },
    /// A member left before everything was delivered.
    #[error("member {id} (rank {rank}, process {pid}) gave the group up")]
    Abandoned {
        /// Its id.
        id: MemberId,
        /// Its rank.
        rank: Rank,
        /// Its process.
        pid: u32,
    },
    /// A member broke the protocol.
    #[error("member {id} (rank {rank}, process {pid}) broke the protocol: {fault}")]
    Garbage {
        /// Its id.
        id: MemberId,
        /// Its rank.
        rank: Rank,
        /// Its process.
        pid: u32,
        /// What it did.
        fault: Fault,
    },
    /// This process gave the group up: it dropped its handle, or its handler panicked.
    #[error("this member gave the group up")]
    Dropped,
}

/// Why a message was not accepted. One that was accepted is delivered everywhere unless the group ends.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It is longer than the subgroup allows.
    #[error("a message of {len} bytes is over the subgroup's limit of {max} bytes: split it, or raise the limit")]
    TooLong {
        /// Its bytes.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The ring was full, and stayed so.
    #[error("the ring is full: the slowest member has delivered nothing for {waited:?}")]
    Full {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Waiting in an upcall would wait for itself.
    #[error("a handler may not wait for room: it runs on the thread that makes room; use try_claim")]
    InUpcall,
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}

/// Why nothing was received.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Nothing came in time.
    #[error("nothing was delivered for {waited:?}")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Every member has finished and everything has been received.
    #[error("every member has finished and everything has been received")]
    Finished,
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}

/// Why a subgroup's handle could not be given out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The view has no subgroup of this name, or this member is not in it.
    #[error("this member is in no subgroup {name:?}; it is in: {known}")]
    NoSuchSubgroup {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// This member does not send there.
    #[error("this member is no sender of subgroup {name:?}")]
    NoSender {
        /// The subgroup.
        name: String,
    },
    /// It was given out before.
    #[error("the {what} of subgroup {name:?} was taken before")]
    Taken {
        /// "publisher" or "receiver".
        what: &'static str,
        /// The subgroup.
        name: String,
    },
    /// Handles are taken before the first poll.
    #[error("the handles of subgroup {name:?} have to be taken before the group runs")]
    Running {
        /// The subgroup.
        name: String,
    },
}

/// Why a group did not finish.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// Somebody still holds a publisher, has not received everything, or is slow.
    #[error("the group did not finish within {waited:?}: {unfinished}")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
        /// Who has not finished, in words.
        unfinished: String,
    },
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}
