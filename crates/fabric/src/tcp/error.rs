//! Why a fabric could not be made, and why a peer's connection ended.
use crate::region::RegionError;
use spindle_core::Rank;
use std::io;

/// Why a [`TcpFabric`](super::TcpFabric) could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    /// There is no memory for a row.
    #[error("no memory for the row of member {rank}: {source}")]
    Region {
        /// Whose row.
        rank: Rank,
        /// Why.
        source: RegionError,
    },
    /// The connections are not those to every other member of the view, once each.
    #[error(
        "connections to member {rank} were given {times} times, to member {me}: one for each rank but the own is needed"
    )]
    Connections {
        /// Connections to whom.
        rank: Rank,
        /// How many there were.
        times: u32,
        /// Who builds the fabric.
        me: Rank,
    },
    /// A row is longer than posts can say.
    #[error(
        "the row of member {rank} has {bytes} bytes and {max} can be posted over a network: lower window or message_bytes_max"
    )]
    TooLong {
        /// Whose row.
        rank: Rank,
        /// Bytes by the layout.
        bytes: u64,
        /// Bytes that are possible.
        max: u64,
    },
    /// A system call failed.
    #[error("{call} failed: {source}; raise the limit of open files if it was that (ulimit -n)")]
    Os {
        /// The call.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why nothing more arrives from a peer: a reason to suspect it, and no proof that it is dead. What has arrived stays readable; others
/// may have more of the same row, or less.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Down {
    /// It has closed the connection, as a process does that ends.
    #[error("it has closed the connection")]
    Closed,
    /// It has closed the connection inside a post.
    #[error(
        "it has closed the connection {missing} bytes before the end of a post: it has ended abruptly, or is of another version"
    )]
    Broken {
        /// Bytes that were to come, as far as is known.
        missing: u64,
    },
    /// It asked to write where it may not.
    #[error(
        "it asked to write {len} bytes at offset {at} of its row, which has {row_bytes} bytes, {control_bytes} of them control words: \
         it has another view or version"
    )]
    Garbage {
        /// Offset in its row.
        at: u64,
        /// Bytes.
        len: u64,
        /// Bytes of its control block; no write goes across its end.
        control_bytes: u64,
        /// Bytes of its row.
        row_bytes: u64,
    },
    /// The connection failed.
    #[error("{call} failed: {source}")]
    Os {
        /// "sending" or "receiving".
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
