//! Why a bulk group's connections could not be made, and why one of them ended.
use crate::region::RegionError;
use spindle_core::Rank;
use spindle_core::bulk::Slot;
use std::io;

/// Why the connections of a bulk group could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkLinksError {
    /// They are not those to every other member, once each.
    #[error("connections to rank {rank} were given {times} times, to rank {me}: {expected} is needed")]
    Connections {
        /// Connections to whom.
        rank: Rank,
        /// How many there were.
        times: u32,
        /// How many there have to be.
        expected: u32,
        /// Who was given them.
        me: Rank,
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

/// Why nothing more comes from a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkDown {
    /// It has closed the connection, as a process does that ends.
    #[error("it has closed the connection")]
    Closed,
    /// It has closed the connection inside a frame.
    #[error("it has closed the connection inside a frame: it has ended abruptly, or is of another version")]
    Broken,
    /// It sent what is no frame.
    #[error("it sent what is no frame, or not now: {word:#x}; it is of another version, or no member")]
    Garbage {
        /// The first word.
        word: u64,
    },
    /// It means another group.
    #[error(
        "it means another group: it is rank {found_from} to {found_to} with settings {found:#x}, not {from} to {to} with {expected:#x}; \
         give all members the same settings, and each the connection to the right one"
    )]
    Greeting {
        /// Who it should be.
        from: Rank,
        /// To whom it should speak.
        to: Rank,
        /// The digest of my settings.
        expected: u64,
        /// Who it says it is.
        found_from: Rank,
        /// To whom it means to speak.
        found_to: Rank,
        /// The digest of its settings.
        found: u64,
    },
    /// It sent a block that it was not asked for.
    #[error(
        "it sent {bytes} bytes at offset {at} of the object in slot {}, which nobody asked it for: it has other settings or is of another version",
        slot.0
    )]
    Unasked {
        /// The slot.
        slot: Slot,
        /// Offset in the object.
        at: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Its counters announce a block that it has not sent.
    #[error("its counters announce a block of slot {} that it has not sent", slot.0)]
    Unsent {
        /// The slot.
        slot: Slot,
    },
    /// Its object is longer than this member takes.
    #[error("its object has {bytes} bytes, and this member takes {max} at the most: raise object_bytes_max")]
    TooLong {
        /// What it says.
        bytes: u64,
        /// The most.
        max: u64,
    },
    /// Its counters are none that a member can have.
    #[error("{0}")]
    Nonsense(spindle_core::Fault),
    /// It handed over memory that can't be mapped.
    #[error("its object can't be mapped: {0}")]
    Segment(RegionError),
    /// The connection failed.
    #[error("{call} failed: {source}")]
    Os {
        /// "sending" or "receiving".
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
