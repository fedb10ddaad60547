//! Every maximum of the protocol, with the relations between them.

/// Members of one view.
pub const MEMBERS_MAX: usize = 1024;
/// Subgroups of one view.
pub const SUBGROUPS_MAX: usize = 1024;
/// Bytes in one message that travels through a ring.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Messages of the largest size that a ring may be configured to hold.
pub const WINDOW_MAX: u64 = 1 << 20;
/// Bytes in one ring.
pub const RING_BYTES_MAX: u64 = 4 << 30;
/// Bytes in the name of a subgroup.
pub const NAME_BYTES_MAX: usize = 128;
/// Words by which a proposal may exceed the length of a proposal for a view twice as large as the
/// old one.
pub const PROPOSAL_WORDS_SPARE: usize = 160;
/// Joiners that wait to be admitted.
pub const JOINS_MAX: usize = MEMBERS_MAX;
/// Changes that one member proposes for the next view.
pub const CHANGES_MAX: usize = 1024;
/// Bytes in one block of the block multicast.
pub const BULK_BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Objects of one bulk group that may be in transfer at the same time.
pub const BULK_SLOTS_MAX: u32 = 64;
/// Blocks that a receiver may be ready for beyond those that it has. They are the bits of one word.
pub const BULK_AHEAD_MAX: u32 = 64;
/// Bytes in one control message between processes.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Bytes of the shared settings as text, if the text travels in a control message.
pub const SETTINGS_BYTES_MAX: usize = 4 << 10;
/// Objects that one control message asks for.
pub const WANTED_MAX: usize = 16;
/// Bytes in a query of one member by another, and in its answer, which travel beside a control message.
pub const QUERY_BYTES_MAX: usize = 1 << 20;
/// Words of a control message for the bootstrap of a group: an id and half a word for each member,
/// and some more.
pub const BOOTSTRAP_WORDS_MAX: usize = 3 * MEMBERS_MAX / 2 + 16;
/// Bytes in an address as text: a DNS name of at most 253 bytes with a port, or `unix:` with a
/// path.
pub const ADDRESS_BYTES_MAX: usize = 260;
/// Bytes in the path of a Unix socket, without the final zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Bytes in the name of a rack.
pub const RACK_BYTES_MAX: usize = 64;
/// Minimum bytes in the address of a port: its format, and one more.
pub const PORT_ADDRESS_BYTES_MIN: usize = 5;
/// Maximum bytes in the address of a port.
pub const PORT_ADDRESS_BYTES_MAX: usize = 68;

// The longest control messages are the list of processes, with 12 bytes each, and the one for
// bootstrap.
const _: () = assert!(MEMBERS_MAX * 12 + 128 <= CONTROL_MESSAGE_BYTES_MAX);
const _: () = assert!(8 * BOOTSTRAP_WORDS_MAX + 80 <= CONTROL_MESSAGE_BYTES_MAX);
const _: () = assert!(SETTINGS_BYTES_MAX + 64 <= CONTROL_MESSAGE_BYTES_MAX);
const _: () = assert!(SOCKET_PATH_BYTES_MAX + "unix:".len() <= ADDRESS_BYTES_MAX);
// The span of a frame is stored in 31 bits, in granules of 16 bytes.
const _: () =
    assert!(MESSAGE_BYTES_MAX + crate::wire::ring::HEADER_BYTES < (1 << 31) * crate::wire::ring::GRANULE_BYTES);
const _: () = assert!(MESSAGE_BYTES_MAX < u32::MAX as u64);
