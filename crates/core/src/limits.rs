//! Every maximum of the protocol, in one place, with the relations that they must keep.

/// Members of one view.
pub const MEMBERS_MAX: usize = 1024;
/// Subgroups of one view.
pub const SUBGROUPS_MAX: usize = 1024;
/// Bytes in one message that travels through a ring.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Messages of the largest size that a ring may be asked to hold.
pub const WINDOW_MAX: u64 = 1 << 20;
/// Bytes in one ring.
pub const RING_BYTES_MAX: u64 = 4 << 30;
/// Bytes in the name of a subgroup.
pub const NAME_BYTES_MAX: usize = 128;
/// Words by which a proposal may be longer than one of a view twice as large as the old one.
pub const PROPOSAL_WORDS_SPARE: usize = 160;
/// Members that wait to be admitted.
pub const JOINS_MAX: usize = MEMBERS_MAX;
/// Changes that one member wishes of the next view.
pub const CHANGES_MAX: usize = 1024;
/// Bytes in one block of the block multicast.
pub const BULK_BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Objects of one bulk group that may be on the way at the same time.
pub const BULK_SLOTS_MAX: u32 = 64;
/// Blocks that a receiver may be ready for beyond those that it has: they are told apart by the bits of a word.
pub const BULK_AHEAD_MAX: u32 = 64;

// A frame's span is kept in 31 bits of 16-byte granules.
const _: () = assert!(MESSAGE_BYTES_MAX + crate::ring::HEADER_BYTES < (1 << 31) * crate::ring::GRANULE_BYTES);
const _: () = assert!(MESSAGE_BYTES_MAX < u32::MAX as u64);
