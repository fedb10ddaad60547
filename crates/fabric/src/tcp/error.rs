//! The reasons why a peer's connection ended.
use spindle_core::ViewId;
use std::io;

/// The reason why nothing more arrives over a peer's connection: no proof that the peer is dead.
/// Bytes that have arrived stay readable. Other members may have more of the same row, or less. A
/// stream may be [replaced](crate::Mesh::attach).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Down {
    /// It has closed the connection, as an ending process does.
    #[error("it has closed the connection")]
    Closed,
    /// It has closed the connection inside a post.
    #[error(
        "it has closed the connection {missing} bytes before the end of a post: it has ended abruptly, or is of another version"
    )]
    Broken {
        /// Bytes that were missing, as far as is known.
        missing: u64,
    },
    /// It asked to write outside its row, or across the end of its control block.
    #[error(
        "it asked to write {len} bytes at offset {at} of its row, which has {row_bytes} bytes, {control_bytes} of them control words: \
         it has another view or version"
    )]
    Garbage {
        /// Offset in its row.
        at: u64,
        /// Length in bytes.
        len: u64,
        /// Bytes of its control block; no write crosses its end.
        control_bytes: u64,
        /// Bytes of its row.
        row_bytes: u64,
    },
    /// Its first bytes were not a hello for this view.
    #[error(
        "its stream began with the word {word:#x}, not with a hello for {rings} rings: it has another view or version"
    )]
    NoHello {
        /// The first word.
        word: u64,
        /// Rings in the receiver's row.
        rings: u64,
    },
    /// It claims to have applied data that was never sent.
    #[error(
        "it states {applied} applied bytes of the ring at offset {at}, of which {published} are announced: it has another view or version"
    )]
    ReorderBuffer {
        /// Offset of the ring in the receiver's row.
        at: u64,
        /// The position that the peer stated.
        applied: u64,
        /// The position that this member has posted.
        published: u64,
    },
    /// It continues in another view than this member.
    #[error("it continues in view {turned}, and the next is {next}: it breaks the protocol")]
    Astray {
        /// The view that it turned to.
        turned: ViewId,
        /// The view that was decided.
        next: ViewId,
    },
    /// The host of the peer refuses connections of this view: the peer's process has ended, or the
    /// peer no longer takes part in the view.
    #[error("its host refuses connections: its process has ended, or takes no more part in this view")]
    Refused,
    /// The connection failed.
    #[error("{call} failed: {source}")]
    Os {
        /// "sending" or "receiving".
        call: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}
