//! The reason why a fabric can't be made.
use crate::region::RegionError;
use spindle_core::Rank;
use std::convert::Infallible;
use std::error::Error;
use std::io;

/// The reason why a [`Mesh`](crate::Mesh) could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A segment of a peer could not be used, or there is no memory for one of ours.
    #[error("the {part} of member {rank} can't be used: {source}")]
    Region {
        /// Rank of the segment's owner.
        rank: Rank,
        /// "row" or "doorbell".
        part: &'static str,
        /// The cause.
        source: RegionError,
    },
    /// A peer's doorbell came with a descriptor that is not an eventfd, or with an eventfd that
    /// blocks.
    #[error("the doorbell of member {rank} can't be used: it came with a descriptor that is no non-blocking eventfd")]
    NoEvent {
        /// Rank of the doorbell's owner.
        rank: Rank,
    },
    /// The peers are not all the other members of the view, once each.
    #[error(
        "the way to member {rank} was given {times} times, to member {me}: one for each rank but the own is needed"
    )]
    Peers {
        /// Rank of the peer.
        rank: Rank,
        /// The number of times it was given.
        times: u32,
        /// Rank of the member that builds the mesh.
        me: Rank,
    },
    /// A row is longer than posts over streams can address.
    #[error(
        "the row of member {rank} has {bytes} bytes and {max} can be posted over a network: lower window or message_bytes_max"
    )]
    TooLong {
        /// Rank of the row's owner.
        rank: Rank,
        /// Bytes by the layout.
        bytes: u64,
        /// Bytes that are possible.
        max: u64,
    },
    /// The peer has a link that can't be replaced: memory, or a connection.
    #[error("member {rank} has a way of another kind already, which can't be replaced by {given}")]
    Attached {
        /// Rank of the peer.
        rank: Rank,
        /// "memory", "a stream" or "a connection".
        given: &'static str,
    },
    /// A system call failed.
    #[error("{call} failed: {source}; raise the limit of open files if it was that (ulimit -n)")]
    Os {
        /// The call.
        call: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// [`Connections`](crate::Connections) can't be used or made.
    #[error(transparent)]
    Connections(Box<dyn Error + Send + Sync>),
}

impl From<Infallible> for MeshError {
    fn from(error: Infallible) -> MeshError {
        match error {}
    }
}
