//! The slots of a bulk group: the numbers of the objects that they carry, and the counters that
//! each member has in its row for each slot.

/// The number of an object. The root numbers objects from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectNumber(pub u64);

/// The slot of an object in transfer: object `o` has slot `o` modulo the number of slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// A member's counters for one slot. They are columns of its row: all begin at 0, none ever falls,
/// and they continue from one object in the slot to the next. So a post of them may be left out for
/// a later one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Columns {
    /// The sum of the lengths of the objects whose length this member knows, plus one for each.
    pub bytes: u64,
    /// Steps of the schedule that this member has taken: the blocks that it sends in them are
    /// posted before this counter.
    pub steps: u64,
    /// "Ready for block": the number of blocks that may arrive, in the order in which this member
    /// receives them.
    pub ready: u64,
    /// "Have k blocks", raised when an object is complete here. It is raised after
    /// [`Complete`](super::Output::Complete), so that a peer that sees it may rely on the
    /// application's reaction to that.
    pub have: u64,
}
