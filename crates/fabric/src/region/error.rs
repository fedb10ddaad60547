//! The reason why memory can't be shared.
use std::io;

/// The reason why a region could not be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// There is not enough memory, which is detected before any of it is used.
    #[error(
        "{name} needs {bytes} bytes of memory and {available} are available: \
         lower window or message_bytes_max, or raise the memory limit"
    )]
    NoMemory {
        /// Purpose of the region.
        name: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that this process could still get when it asked; 0 if the kernel itself refused.
        available: u64,
    },
    /// The region exceeds this process's file size limit (`ulimit -f`), or the longest mapping.
    #[error("{name} needs {bytes} bytes and may have {limit}: raise the file size limit, or lower window")]
    TooLong {
        /// Purpose of the region.
        name: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The segment is not sealed as its kind must be, so its sender could change it while it is in
    /// use.
    #[error("the segment has seals {got:#x} and needs {needed:#x}: its sender is no Spindle member of this version")]
    Unsealed {
        /// Its seals, as `F_SEAL_*` bits; 0 for a descriptor that can't have any.
        got: u32,
        /// The seals that it must have.
        needed: u32,
    },
    /// The segment has another size than the view's layout says.
    #[error("the segment has {got} bytes, not {expected}: its sender has another view or version")]
    Size {
        /// Bytes by the layout.
        expected: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// The announced range is not inside the segment, or does not begin at a page.
    #[error(
        "the segment has {size} bytes, and no {bytes} from a page's start at {at} on: its sender breaks the protocol"
    )]
    Place {
        /// Offset at which the range begins.
        at: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Length of the segment in bytes.
        size: u64,
    },
    /// A system call failed.
    #[error("{call} for {name} failed: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Purpose of the region.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
}
