//! Why a peer's connection ended.
use std::io;

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
