//! In which subgroups something of the others may have moved, so that a poll looks at no others.
//!
//! A member counts its posts of entries, in all and by subgroup, in words of its row. It counts after it has stored what it posts, and before it looks who sleeps. A peer that
//! reads the row in place looks at one line of it, and at more only if that has moved.
use crate::ids::{Rank, SubgroupId};
use crate::layout::{LINE_BYTES, Layout};
use crate::planted::planted;
use crate::table::{Table, Trace};
use crate::view::View;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// So many counts are told apart: subgroups whose numbers are equal modulo this share one.
const COUNTS: usize = 64;
/// Bytes of the words: a line for the number of all posts, and behind it one word for each count.
pub(crate) const BYTES: u64 = LINE_BYTES + 8 * COUNTS as u64;

/// The bit of `subgroup` in what [`Moves::look`] finds.
pub(crate) fn bit(subgroup: SubgroupId) -> u64 {
    1 << (subgroup.index() % COUNTS)
}

/// One member's counts.
#[derive(Clone, Debug)]
struct Counts {
    all: u64,
    by_subgroup: [u64; COUNTS],
}

/// What a member shows of its own posts, and has seen of the others'.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    /// Whether members count at all: where there is one subgroup, each poll looks at it.
    counts: bool,
    me: Rank,
    /// Where the counts stand, by rank.
    at: Vec<u64>,
    own: Box<Counts>,
    /// By rank.
    seen: Vec<Counts>,
}

impl Moves {
    pub(crate) fn new(view: &View, layout: &Layout, me: Rank) -> Moves {
        let counts = view.subgroups.len() > 1;
        let none = Counts { all: 0, by_subgroup: [0; COUNTS] };
        let members = if counts { view.members.len() } else { 0 };
        let at = layout.rows().iter().map(|row| row.moves).collect();
        Moves { counts, me, at, own: Box::new(none.clone()), seen: alloc::vec![none; members] }
    }

    /// My entry of `subgroup` is about to be posted: what is posted is stored.
    #[inline]
    pub(crate) fn show<T: Table>(&mut self, subgroup: SubgroupId, table: &mut T) {
        if self.counts && matches!(table.trace(self.me), Trace::Stored) && !planted!(MoveUnshown) {
            let (at, i) = (self.at[self.me.index()], subgroup.index() % COUNTS);
            let Counts { all, by_subgroup } = &mut *self.own;
            by_subgroup[i] += 1;
            *all += 1;
            table.store(at + LINE_BYTES + 8 * i as u64, by_subgroup[i]);
            table.store(at, *all);
        }
    }

    /// The [bits](bit) of the subgroups in which entries of others may have moved since the last look. The caller looks at these entries next.
    #[cold]
    pub(crate) fn look<T: Table>(&mut self, table: &T) -> u64 {
        if !self.counts {
            return u64::MAX;
        }
        let mut moved = 0;
        for (i, seen) in self.seen.iter_mut().enumerate().filter(|(i, _)| *i != self.me.index()) {
            let (peer, at) = (Rank(i as u32), self.at[i]);
            match table.trace(peer) {
                Trace::Stored => {
                    let all = table.load(peer, at);
                    if all == seen.all {
                        continue;
                    }
                    seen.all = all;
                    for (at, (i, seen)) in (at + LINE_BYTES..).step_by(8).zip(seen.by_subgroup.iter_mut().enumerate()) {
                        let count = table.load(peer, at);
                        moved |= u64::from(count != *seen) << i;
                        *seen = count;
                    }
                }
                Trace::Arrived(count) if count == seen.all => {}
                Trace::Arrived(count) => (seen.all, moved) = (count, u64::MAX),
                Trace::Unknown => moved = u64::MAX,
            }
        }
        moved
    }
}
