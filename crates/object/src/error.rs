//! The errors of a call, of a read and of the start of a member.
use crate::answer::Refusal;
use crate::id::CallId;
use crate::machine::Stopped;
use spindle::{Ended, HandleError, JoinError, MemberId, NotDelivered, NotDurable, Position, SendError};
use std::time::{Duration, SystemTime};

/// Why no reply was returned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The command was not executed, and this call never will be.
    #[error("the call was not executed: {0}")]
    NotDone(#[from] NotDone),
    /// The command may have been executed, or may still be.
    #[error("it is not known whether call {id} was executed: {why}; ask with `outcome`, on any member")]
    Unknown {
        /// The call, to ask for.
        id: CallId,
        /// Why it is not known.
        why: UnknownCause,
    },
    /// The command was executed, and its reply was not kept.
    #[error("call {id} was executed, and its reply was not kept; call a command that reads the result")]
    ReplyNotKept {
        /// The call.
        id: CallId,
    },
    /// The command was executed, and its reply is not of this type.
    #[error("call {id} was executed, and its reply is of another type: {error}")]
    Reply {
        /// The call.
        id: CallId,
        /// Why it can't be decoded.
        error: postcard::Error,
    },
}

/// Why a call did not become durable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError<R> {
    /// As [`Replicated::call`](crate::Replicated::call) would have returned. With
    /// [`CallError::ReplyNotKept`] and [`CallError::Reply`] the command was executed and is durable.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The command was executed, and is not known to be durable. If all members end now, it may be
    /// lost, at all of them alike.
    #[error("call {id} was executed, and is not known to be durable: {why}")]
    NotDurable {
        /// The call, to ask for.
        id: CallId,
        /// Its reply, as [`Replicated::call`](crate::Replicated::call) would have returned it.
        reply: Result<R, Box<CallError>>,
        /// Why it is not durable.
        why: NotDurable,
    },
}

/// Why a call was not executed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotDone {
    /// The caller is a command or an upcall of the object, which would wait for itself.
    #[error(
        "a command may not call the object: it runs on the thread that would execute the call; call on another thread"
    )]
    InHandler,
    /// The arguments can't be encoded.
    #[error("the arguments can't be encoded: {0}")]
    Encode(postcard::Error),
    /// The group has refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The message was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The message was accepted, and no member delivers it.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
    /// The call could not be sent in time: the ring was full, the view changed, or too many calls of
    /// this process were on the way.
    #[error("it could not be sent within {waited:?}: calls of this process, or slow members, were in the way")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// This member is no longer in the group.
    #[error(transparent)]
    End(#[from] End),
}

/// Why it is not known whether a call was executed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownCause {
    /// No outcome came in time.
    #[error("no outcome came within {waited:?}")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// This member's part in the group ended first.
    #[error(transparent)]
    End(#[from] End),
    /// The group does not know either.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The question could not be sent.
    #[error("the question was not sent: {0}")]
    NotAsked(NotDone),
}

/// How this member's part in the group ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// The machine has stopped.
    #[error("this member has stopped: {0}")]
    Stopped(#[from] Stopped),
    /// The group has ended for this member.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
    /// The group has finished, or the program has dropped it.
    #[error("this member has left the group")]
    Left,
}

/// Why nothing was read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The caller is a command or an upcall of the object, which would wait for itself.
    #[error("a command may not read through the handle: it runs on the thread that would answer; use `self`")]
    InHandler,
    /// This member is no longer in the group.
    #[error(transparent)]
    End(#[from] End),
    /// The group did not confirm in time that this member is up to date.
    #[error("the group has not confirmed within {waited:?} that this member is up to date; see which member lags")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The message that asks for it was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Why a query has no reply.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The caller is a command or an upcall of the object.
    #[error("a command may not ask through the handle: it runs on the thread that would take the answer; use `self`")]
    InHandler,
    /// The arguments can't be encoded.
    #[error("the arguments can't be encoded: {0}")]
    Encode(postcard::Error),
    /// The member did not answer: it is gone, it did not answer in time, or the answer is too long.
    #[error(transparent)]
    NotAnswered(#[from] spindle::QueryError),
    /// The member did not come in time to the state that this member has.
    #[error("member {member} has applied {has} messages, fewer than this member: see why it lags, or ask another one")]
    Behind {
        /// The member that was asked.
        member: MemberId,
        /// The messages that it has applied.
        has: u64,
    },
    /// This member was asked, and has not come to the state of an earlier answer.
    #[error("this member is not up to date: {0}")]
    NotUpToDate(ReadError),
    /// The program of the member has no such query.
    #[error("the program of member {member} has no query {query}: run the same version, or ask another member")]
    Unknown {
        /// The member that was asked.
        member: MemberId,
        /// The name of the query.
        query: &'static str,
    },
    /// The query has other types in the program of the member.
    #[error("the query {query} of member {member} has other types: run the same version, or ask another member")]
    OtherTypes {
        /// The member that was asked.
        member: MemberId,
        /// The name of the query.
        query: &'static str,
    },
    /// The arguments or the reply can't be encoded or decoded.
    #[error(
        "the arguments or the reply of the query {query} to member {member} can't be encoded or decoded: a type differs between both \
         programs, or its serde implementation fails"
    )]
    NotEncoded {
        /// The member that was asked.
        member: MemberId,
        /// The name of the query.
        query: &'static str,
    },
    /// The query has panicked. The member continues: its object has not changed.
    #[error("the query {query} panicked at member {member}: correct it; the member's log has the message")]
    Panicked {
        /// The member that was asked.
        member: MemberId,
        /// The name of the query.
        query: &'static str,
    },
    /// The object of the member has stopped.
    #[error("the object of member {member} has stopped: ask another member")]
    Stopped {
        /// The member that was asked.
        member: MemberId,
    },
    /// The answer is not that of an object.
    #[error("member {member} answers in another format: run the same version of the library at all members")]
    Foreign {
        /// The member that was asked.
        member: MemberId,
    },
    /// This member is no longer in the group.
    #[error(transparent)]
    End(#[from] End),
}

/// Why no earlier state was read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadAtError {
    /// The caller is a command or an upcall of the object.
    #[error("a command may not read through the handle: it runs on the thread that would answer; use `self`")]
    InHandler,
    /// The subgroup keeps no log.
    #[error(
        "the subgroup keeps its messages in memory, so earlier states are not known: set its durability to \"logged\""
    )]
    NoLog,
    /// The state is older than the oldest that can be made from this member's disk.
    #[error(
        "the messages of that state were pruned at this member, or it had not joined; the oldest state is {}: read that one or a later one, \
         ask another member, or keep the log longer",
        oldest.map_or_else(|| "not known".to_owned(), |oldest| oldest.to_string())
    )]
    Pruned {
        /// The version of the oldest state, if there is one.
        oldest: Option<Position>,
        /// The clock of that version.
        time: Option<SystemTime>,
    },
    /// The state was not complete in time, or not made in time.
    #[error(
        "the state could not be read within {waited:?}: the newest message on this member's disk is {}; see `spindle status`",
        logged.map_or_else(|| "none".to_owned(), |logged| logged.to_string())
    )]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
        /// The newest message on disk.
        logged: Option<Position>,
    },
    /// The message that confirms the time was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The log can't be read.
    #[error("the state can't be made from the disk: {reason}")]
    Unreadable {
        /// The error, with the file.
        reason: String,
    },
    /// This member is no longer in the group.
    #[error(transparent)]
    End(#[from] End),
}

/// Why a member did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It could not join the group, or take the state over.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// It is no sender of the subgroup.
    #[error(transparent)]
    Handle(#[from] HandleError),
    /// The subgroup has no common order.
    #[error("the subgroup {subgroup:?} has the order Fifo, and an object needs Order::Total")]
    NoTotalOrder {
        /// The name of the subgroup.
        subgroup: String,
    },
    /// It could not announce itself.
    #[error("this member could not announce itself: {0}")]
    Announce(#[from] NotDone),
    /// It stopped before it had joined.
    #[error("this member has stopped: {0}")]
    Stopped(#[from] Stopped),
}
