//! The settings of a bulk group, and the blocks into which they divide an object.
use super::schedule::Schedule;
use crate::ids::Rank;

/// The settings on which all members of a bulk group have to agree, and this member's rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSettings {
    /// The way in which blocks spread, and the number of members.
    pub schedule: Schedule,
    /// This member's rank in the bulk group; the root has rank 0.
    pub me: Rank,
    /// Bytes of a block. Large blocks have less overhead per byte; with small blocks members begin
    /// to forward earlier.
    pub block_bytes: u64,
    /// Objects that may be in transfer at the same time.
    pub slots: u32,
    /// The number of blocks for which a receiver is ready beyond those that it has, 2 to 64. With
    /// too few, senders wait for credit. More than the latency covers have no effect.
    pub ahead: u32,
    /// Blocks that may be posted and not yet sent, at least 1; objects of one block do not count.
    /// With 1 the network is idle between two blocks, until the member learns that one is sent.
    /// With more, members drift apart, and blocks that arrive early delay other blocks.
    pub posts_max: u32,
    /// Objects of one block that are shorter than this go from the root to every member directly.
    /// With 0, none do.
    pub direct_below: u64,
}

/// Default bytes of a block. For objects of a few hundred MB on 12.5 GB/s, smaller blocks lose more
/// time to latency. Larger blocks lose more in the first and last steps, in which some members have
/// nothing to send.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// By default, objects of up to this many bytes go from the root to every member directly, ...
pub const DIRECT_BYTES: u64 = 16 << 10;
/// ... in groups of up to this many members. The root posts once for each member, which takes about
/// 1 µs. On a path through relays every object waits for ceil(log2 members) latencies, and for the
/// same number of members to poll, which may sleep.
pub const DIRECT_MEMBERS: u32 = 16;

impl SessionSettings {
    /// Default settings: blocks of [`BLOCK_BYTES`], two objects at a time, and otherwise the values
    /// that were best in the model.
    pub fn new(schedule: Schedule, me: Rank) -> SessionSettings {
        let direct_below = if schedule.members() <= DIRECT_MEMBERS { DIRECT_BYTES + 1 } else { 0 };
        SessionSettings { schedule, me, block_bytes: BLOCK_BYTES, slots: 2, ahead: 2, posts_max: 1, direct_below }
    }
}

/// The number of blocks of an object: at least one. `None` if the block numbers don't fit.
pub fn blocks(bytes: u64, block_bytes: u64) -> Option<u32> {
    u32::try_from(bytes.div_ceil(block_bytes).max(1)).ok()
}
