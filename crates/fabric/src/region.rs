//! Memory that members share: a memfd of fixed size, which its owner maps for writing and all other
//! processes map for reading.
//!
//! Read [`OwnRegion`] first, then [`PeerRegion`] (another process's, read-only) and
//! [`SharedRegion`] (writable by all, for doorbells, atomics only). Regions may be ranges of one
//! memfd, a chunk, which each process maps once. If no memory can be shared, each peer has a
//! [`CopyRegion`] of an [`OwnRegion`].
//!
//! Every opener checks the seals, which guarantee two things. The size never changes, so no access
//! inside the memory can fault. Only the creator ever gets a writable mapping of its row. A child
//! that is forked from the creator has none ([`fork`](spindle_transport::fork)).
//!
//! Plain references into this memory are sound for these reasons:
//! - *control words* are accessed as atomics only, in every process;
//! - *frames* are given out as `&mut [u8]` to one claimer, between claim and commit, and as `&[u8]`
//!   after their announcement, until every member has delivered them: they never change while
//!   borrowed (INV-FRAME). `spindle-core` ensures this with [`Claims`](spindle_core::Claims) and
//!   the counters that it reads before it asks for bytes;
//! - the *data of a pipe* are given out in the same way: as `&mut [u8]` before they are announced,
//!   as `&[u8]` until they are read;
//! - the bytes of a *bulk object* are lent to readers, here and in other processes. Only the sole
//!   holder of the object's segment writes them, and never while a reader reads them (INV-LENT,
//!   docs/protocol/bulk.md);
//! - a peer process that breaks the protocol can make the group deliver garbage, and is inside the
//!   group's trust boundary: same user, same program. It can't write my row, and no length or
//!   offset that it announces leads outside a mapping.
mod copies;
mod error;
mod file;
#[cfg(all(test, not(miri)))]
mod forked;
mod memory;
mod own;
mod peer;
mod room;
mod shared;
mod span;
#[cfg(test)]
mod tests;
mod vacant;

pub use copies::{CopyChunk, CopyRegion};
pub use error::RegionError;
pub(crate) use file::FileRegion;
pub use memory::advise_huge_pages;
pub(crate) use own::ArenaChunk;
pub use own::{FrameMemory, Lease, OwnRegion};
pub use peer::PeerRegion;
pub(crate) use room::page_bytes;
pub use room::{available_bytes, check_room};
pub use shared::SharedRegion;
pub(crate) use span::{RingSpan, Span};
pub(crate) use vacant::VacantRegion;
