//! The events of an endpoint, which its thread reports to the caller, and counts of what it
//! discarded.
use super::error::NetError;
use crate::stream::Connection;
use spindle_core::ViewId;
use spindle_core::control::{Address, Card, ControlMessage, Purpose};
use std::time::Duration;

/// An event of an endpoint.
#[derive(Debug)]
#[non_exhaustive]
pub enum NetEvent {
    /// A control message arrived.
    ControlMessage {
        /// The card that the sender says is its own.
        from: Card,
        /// The sender's process: a random number, which another process that claims the same id
        /// does not have.
        process: u128,
        /// The control message.
        message: ControlMessage,
        /// Its attachment.
        attachment: Vec<u8>,
    },
    /// A connection that a peer opened, or that was asked for with
    /// [`NetEndpoint::dial`](super::NetEndpoint::dial).
    Stream {
        /// The process at its other end.
        with: Card,
        /// That process: a random number of its endpoint.
        process: u128,
        /// Its purpose.
        purpose: Purpose,
        /// The stream. All bytes on it belong to its purpose.
        stream: Connection,
        /// Whether this process asked for it.
        dialled: bool,
    },
    /// A connection for control messages to that address exists, again or for the first time.
    Reached {
        /// The address.
        address: Address,
        /// The process at that address.
        with: Card,
    },
    /// Control messages to that address wait longer: a connection attempt failed. Further attempts
    /// follow until the control messages are given up.
    Delayed {
        /// The address.
        address: Address,
        /// [Why](NetError::reason).
        why: String,
    },
    /// A dial to that address, or sending control messages ([`Purpose::Control`]) to it, failed.
    Failed {
        /// The address.
        address: Address,
        /// The purpose of the connection.
        purpose: Purpose,
        /// The reason.
        why: NetError,
    },
    /// The result of a name that was to be [looked up](super::NetEndpoint::look_up).
    LookedUp {
        /// The name, with its port.
        address: Address,
        /// The name's addresses, with the same port, in an order without meaning; never none.
        found: Result<Vec<Address>, NetError>,
    },
    /// The connection for control messages to that process has ended or is broken, without a
    /// request: a reason to suspect the process, never a proof. Control messages that had left may
    /// be lost.
    Lost {
        /// The process at its other end.
        with: Card,
    },
    /// This process and another one now watch each other, because either of them
    /// [asked](super::NetEndpoint::watch) for it.
    Watched {
        /// The other process.
        with: Card,
    },
    /// A process that is to be [watched](super::NetEndpoint::watch) has said who it is: it lives.
    Answers {
        /// That process.
        with: Card,
        /// Which of the processes that had this card, one after the other.
        process: u128,
    },
    /// A process that was [watched](super::NetEndpoint::watch) has ended, or the way to it is broken:
    /// a reason to [ask](super::NetEndpoint::check) for a sign of life, never a proof. Data that it
    /// sent before, on other connections, may still arrive.
    Ended {
        /// That process.
        with: Card,
        /// The incarnation of the group that it was a member of.
        incarnation: u128,
        /// The view from which on it was watched. Another process may have its id since.
        view: ViewId,
        /// The time within which it answers if it lives, estimated from how long connections took
        /// so far.
        answer_within: Duration,
    },
}

/// Counts of what an endpoint discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndpointDrops {
    /// Connections that sent no hello, sent it too late, or sent an invalid one.
    pub incoming: u64,
    /// Connections that were refused with an answer that gives the reason.
    pub declined: u64,
    /// Control messages that were invalid.
    pub garbage: u64,
    /// Control messages that name another sender than the process that sent them.
    pub forged: u64,
}

impl NetEvent {
    /// Returns how much of the room for events it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            NetEvent::ControlMessage { attachment, .. } => attachment.len(),
            _ => 0,
        }
    }
}
