//! Peers on different machines: each keeps a copy of the other's row, and rows travel over one
//! stream between the two.
//!
//! `links.rs` has the streams of one member. A post becomes *frames* on those to its peers, "write
//! these bytes at this offset" (`wire.rs`). The data that waits to be sent to one peer is a set of
//! ranges and no queue of messages (`backlog.rs`). Later posts are merged into it, so it is bounded
//! by the row, whatever the peer does, and no member waits for a socket. Arriving bytes are put
//! into the copy of the sender's row (`inbox.rs`), by the thread that runs the engine, in
//! [`progress`](crate::Fabric::progress). The beginning of `backlog.rs` says why the order of posts
//! is preserved, and docs/adr/0014 says what was rejected.
//!
//! How connections are made, and the check that the peer is the same process and has the same view,
//! are not here: a [`Stream`](spindle_transport::Stream) is given ready for use. A connection that
//! has failed is [reported](crate::Mesh::next_down), and a new one may
//! [replace](crate::Mesh::attach) it within the view. Each stream begins with a hello in both
//! directions, which states what its sender has applied of the receiver's rings (`wire.rs`). The
//! old stream is closed before that, so the statement holds. Then the data that the other side
//! lacks is sent (`resume.rs`).
mod backlog;
mod error;
mod inbox;
mod links;
mod observer;
mod resume;
#[cfg(test)]
mod resuming;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::settle;
#[cfg(test)]
mod turning;
mod wire;

pub use backlog::{Backlog, Image};
pub use error::Down;
pub(crate) use links::TcpLinks;
pub use links::Traffic;
pub use resume::{Posted, announcements};
pub(crate) use wire::ROW_BYTES_MAX;
