//! Connections between processes of a group on different hosts. Hosts share no directory: each
//! process has an [`NetEndpoint`] that is reached at one [`Address`](spindle_core::control::Address),
//! and all data between hosts travels over connections to these addresses. Start reading there.
//!
//! A connection has one [`Purpose`](spindle_core::control::Purpose). The dialling side states it at
//! the start (`hello.rs`), and the dialled side answers before the connection is used
//! (`connecting.rs` dials, `incoming.rs` is an incoming connection). There are three kinds. One
//! carries control messages (`post.rs` and `messages.rs`). One carries only its end, which reports
//! the death of a process (`liveness.rs`). The third is a stream that is handed to the caller that
//! asked for it. A connection for control messages carries only those of the process that dialled
//! it. Two processes that dial each other at the same time therefore have two connections, and need
//! to decide nothing between them. `switch.rs` is the thread that moves all data.
//!
//! Invariants:
//! - *Nothing waits.* Callers hand commands to the thread, which waits only for the kernel's events
//!   and for deadlines. Names are resolved on other threads. Every queue has a maximum
//!   (`limits.rs`).
//! - *Control messages to one address arrive in order, once or not at all.* A loss is reported as
//!   [`NetEvent::Lost`] or [`NetEvent::Failed`]. A control message that was in transit when the
//!   connection broke is reported only as the former.
//! - *Bytes cost only their sender.* A connection that brings no hello, an invalid one, or none in
//!   time is closed and counted. Invalid control messages and those that name another sender are
//!   dropped and counted.
//! - *A silent connection delays no member.* Every connection is accepted, and peers have half-open
//!   slots of their own (`half_open.rs`).
//!
//! This is not membership, and it proves nothing: a connection that ends or can't be made is a
//! reason to suspect.
mod connecting;
mod endpoint;
mod error;
mod event;
mod exchange;
mod half_open;
mod hello;
mod incoming;
mod limits;
mod listen;
mod liveness;
mod me;
mod messages;
mod names;
mod poller;
mod post;
mod refusals;
mod resolve;
mod security;
mod switch;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

pub use endpoint::{EndpointOptions, NetEndpoint};
pub use error::NetError;
pub use event::{EndpointDrops, NetEvent};
pub use hello::Declined;
pub use resolve::Names;
pub use security::Security;
#[cfg(feature = "tls")]
pub use tls::{Identity, IdentityRule, TlsError, TlsStream, TlsWarning};

/// The target of events between hosts.
const TARGET: &str = "spindle::net";
