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
/// Bytes in one letter between processes.
pub const LETTER_BYTES_MAX: usize = 16 << 10;
/// Objects that one letter asks for.
pub const WANTED_MAX: usize = 16;
/// Words of a letter for the founding of a group: room for an id and half a word for each member.
pub const FOUNDING_WORDS_MAX: usize = 3 * MEMBERS_MAX / 2 + 16;
/// Bytes in an address as text: a DNS name of 253 with a port, or `unix:` with a path.
pub const ADDRESS_BYTES_MAX: usize = 260;
/// Bytes in the path of a Unix socket, without the final zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Bytes in the name of a rack.
pub const RACK_BYTES_MAX: usize = 64;
/// Bytes in the address of a port, at least: its format, and one more.
pub const PORT_ADDRESS_BYTES_MIN: usize = 5;
/// Bytes in the address of a port, at most.
pub const PORT_ADDRESS_BYTES_MAX: usize = 68;

// The longest letters are the one that lists processes, 12 bytes each, and the one that founds a group.
const _: () = assert!(MEMBERS_MAX * 12 + 128 <= LETTER_BYTES_MAX);
const _: () = assert!(8 * FOUNDING_WORDS_MAX + 64 <= LETTER_BYTES_MAX);
const _: () = assert!(SOCKET_PATH_BYTES_MAX + "unix:".len() <= ADDRESS_BYTES_MAX);
// A frame's span is kept in 31 bits of 16-byte granules.
const _: () = assert!(MESSAGE_BYTES_MAX + crate::ring::HEADER_BYTES < (1 << 31) * crate::ring::GRANULE_BYTES);
const _: () = assert!(MESSAGE_BYTES_MAX < u32::MAX as u64);
