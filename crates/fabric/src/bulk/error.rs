//! The reasons why a bulk group's connections could not be made, and why one of them ended.
use crate::region::RegionError;
use spindle_core::Rank;
use spindle_core::rdmc::Slot;
use std::io;

/// The reason why the connections of a bulk group were not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkLinksError {
    /// There is not exactly one connection to every other member.
    #[error("connections to rank {rank} were given {times} times, to rank {me}: {expected} is needed")]
    Connections {
        /// The rank at the other end.
        rank: Rank,
        /// How many there were.
        times: u32,
        /// How many there must be.
        expected: u32,
        /// The rank that was given them.
        me: Rank,
    },
    /// A system call failed.
    #[error("{call} failed: {source}; raise the limit of open files if it was that (ulimit -n)")]
    Os {
        /// The call.
        call: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// The reason why nothing more comes from a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkDown {
    /// It has closed the connection, as an ending process does.
    #[error("it has closed the connection")]
    Closed,
    /// It has closed the connection inside a frame.
    #[error("it has closed the connection inside a frame: it has ended abruptly, or is of another version")]
    Broken,
    /// It sent bytes that are no frame.
    #[error("it sent no valid frame ({word:#x}); it has another version, or is no member")]
    Garbage {
        /// The first word.
        word: u64,
    },
    /// It belongs to another group.
    #[error(
        "it belongs to another group: it is rank {found_from} to {found_to} with settings {found:#x}, not {from} to {to} with {expected:#x}; \
         give all members the same settings, and each the connection to the right one"
    )]
    Greeting {
        /// The rank that it should have.
        from: Rank,
        /// The rank that it should connect to.
        to: Rank,
        /// The digest of my settings.
        expected: u64,
        /// The rank that it states for itself.
        found_from: Rank,
        /// The rank that it states for its peer.
        found_to: Rank,
        /// The digest of its settings.
        found: u64,
    },
    /// It sent a block that it was not asked for.
    #[error(
        "it sent {bytes} bytes at offset {at} of the object in slot {}, which was not requested: it has other settings or another version",
        slot.0
    )]
    Unasked {
        /// The slot.
        slot: Slot,
        /// Offset in the object.
        at: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Its counters announce a block that it has not sent.
    #[error("its counters announce a block of slot {} that it has not sent", slot.0)]
    Unsent {
        /// The slot.
        slot: Slot,
    },
    /// Its object is longer than this member accepts.
    #[error("its object has {bytes} bytes, and this member takes {max} at the most: raise object_bytes_max")]
    TooLong {
        /// The length that it states.
        bytes: u64,
        /// The longest that is accepted.
        max: u64,
    },
    /// Its counters are impossible for a member.
    #[error("{0}")]
    Nonsense(spindle_core::Fault),
    /// It sent the descriptor of memory that can't be mapped.
    #[error("its object can't be mapped: {0}")]
    Segment(RegionError),
    /// The connection failed.
    #[error("{call} failed: {source}")]
    Os {
        /// "sending" or "receiving".
        call: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}
