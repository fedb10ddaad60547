//! The read barrier: by it a member finds, without a message, that it has delivered every message
//! that any member has delivered. INV-LATEST is kept here.
//!
//! A message is delivered by any member once every member has stored that it has received it
//! (INV-STABLE), so this member's own row says how much that can be. Only members that continue in
//! another view deliver more, and that view is a decision, which voters have accepted before. So no
//! view follows as long as no row shows an acceptance. An end of the view that is decided while the
//! rows are read is no matter: its members deliver more after the barrier was asked for.
//!
//! This holds for rows that are read in place, in memory that all members share. A copy of a row may
//! lack an acceptance that other members have read.
use crate::ids::Rank;
use crate::mutation::mutation;
use crate::wire::layout::{entry, membership};

/// The words that show whether a member has delivered everything that any member has, in one
/// subgroup with a total order and one view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReadBarrier {
    /// The number of members of the view.
    members: u32,
    /// This member's rank in the view with which the epoch of the subgroup began.
    me: Rank,
    /// The offset of the subgroup's entry in this member's row there.
    entry: u64,
}

impl ReadBarrier {
    /// Returns the barrier of a view of so many members. `me` and `entry` are this member's rank and
    /// the offset of the subgroup's entry in the view with which the epoch of the subgroup began.
    pub(crate) fn new(members: usize, me: Rank, entry: u64) -> ReadBarrier {
        ReadBarrier { members: members as u32, me, entry }
    }

    /// Returns whether this member has delivered every message that any member had delivered when the
    /// call began. False: it is not known, for instance because messages are on their way, or because
    /// the view changes.
    ///
    /// `load` reads words of the rows of the view, and `load_home` those of the view with which the epoch
    /// of the subgroup began. Both read in place, with acquire order.
    #[inline]
    pub fn is_passed(&self, load: impl Fn(Rank, u64) -> u64, load_home: impl Fn(Rank, u64) -> u64) -> bool {
        let word = |at| load_home(self.me, self.entry + at);
        // INV-LATEST
        let received = word(entry::RECEIVED);
        let is_up_to_date = word(entry::DELIVERED) >= received || mutation!(ReadBeforeDelivery);
        let has_accepted = |rank| load(Rank(rank), membership::ACCEPTED) != 0;
        is_up_to_date && (mutation!(ReadAfterEviction) || !(0..self.members).any(has_accepted))
    }
}
