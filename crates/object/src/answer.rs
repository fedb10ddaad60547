//! The outcome of a call, as the machines of all members compute it and sessions keep it.
use serde::{Deserialize, Serialize};

/// The outcome of a call.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// The command was executed: its encoded reply.
    Done(Vec<u8>),
    /// The command was executed, and its reply was not kept.
    ReplyNotKept {
        /// The length of the reply in bytes.
        len: u64,
    },
    /// The command was not executed.
    Refused(Refusal),
}

/// Why a command was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The type has no command of this number.
    #[error("the group has no command {command}; run the same version of the program at all members")]
    UnknownCommand {
        /// The number.
        command: u32,
    },
    /// The group still has members that may not know the command.
    #[error(
        "the command needs version {needs}, and the group is at version {enabled} until every member has a later one"
    )]
    NotEnabled {
        /// The version of the command.
        needs: u32,
        /// The version of the group.
        enabled: u32,
    },
    /// The arguments can't be decoded.
    #[error("the arguments can't be decoded: the caller's types differ from the group's")]
    Arguments,
    /// The session does not exist: it has expired, or was replaced by a newer one.
    #[error("the session of the call has expired")]
    NoSession,
    /// Newer calls of the session have replaced the outcome.
    #[error("the outcome of the call is not kept any more: its session has had too many calls since")]
    Forgotten,
    /// The outcome was asked for before the call arrived, so it is not executed any more.
    #[error("the call was cancelled, because its outcome was asked for before it arrived")]
    Cancelled,
    /// The number is higher than any of the session can be.
    #[error("the session has not come to this call")]
    Ahead,
}
