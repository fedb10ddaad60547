//! Counts of posts by subgroup, so that a poll reads only the subgroups in which a peer may have
//! posted.
//!
//! A member counts its posts of entries, in total and by subgroup, in words of its row. It raises
//! the counts after it has stored the entry that it posts, and before it checks which peers sleep.
//! A peer that reads the row in place reads the line with the total. It reads the other counts only
//! if the total has changed.
use crate::ids::{Rank, SubgroupId};
use crate::mutation::mutation;
use crate::table::{Table, Trace};
use crate::view::View;
use crate::wire::layout::moves::COUNTS;
use crate::wire::layout::{LINE_BYTES, Layout};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The counts of peers are read if there are at least this many times as many entries as peers.
const PAYS_FROM: usize = 2;

/// One member's counts.
#[derive(Clone, Debug)]
struct Counts {
    all: u64,
    by_subgroup: [u64; COUNTS],
}

impl Counts {
    const NONE: Counts = Counts { all: 0, by_subgroup: [0; COUNTS] };
}

/// A peer with which this member shares subgroups.
#[derive(Clone, Debug)]
struct Peer {
    rank: Rank,
    /// Offset of its counts in its row.
    at: u64,
    seen: Counts,
    /// The last count of arrivals, if its row is a copy.
    arrived: u64,
}

/// The posts of this member, and those of its peers as far as this member has seen them.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    /// Whether members count their posts. They don't in a view with one subgroup, as each poll
    /// reads it.
    counts: bool,
    me: Rank,
    /// Offset of this member's counts in its row.
    at: u64,
    own: Box<Counts>,
    /// Empty if reading all entries costs no more than reading the counts.
    peers: Vec<Peer>,
    /// By count: the subgroups that share it, by their positions among those of this member that
    /// begin with the view. Empty as `peers` is.
    sharing: Vec<Vec<u32>>,
}

impl Moves {
    pub(crate) fn new(view: &View, layout: &Layout, me: Rank) -> Moves {
        let mine = || view.subgroups_of(me).map(|(_, spec)| spec).filter(|spec| spec.epoch.is_none());
        let entries: usize = mine().map(|spec| spec.members.len() - 1).sum();
        let ranks: BTreeSet<Rank> =
            mine().flat_map(|spec| spec.members.iter().copied()).filter(|rank| *rank != me).collect();
        let pays = entries >= PAYS_FROM * ranks.len().max(1);
        let peer = |rank: Rank| Peer { rank, at: layout.row(rank).moves, seen: Counts::NONE, arrived: 0 };
        let (mut peers, mut sharing) = (Vec::new(), Vec::new());
        if pays {
            peers.extend(ranks.into_iter().map(peer));
            sharing.resize(COUNTS, Vec::new());
            let mine = view.subgroups_of(me).filter(|(_, spec)| spec.epoch.is_none());
            (0..).zip(mine).for_each(|(i, (id, _))| sharing[id.index() % COUNTS].push(i));
        }
        let (counts, at) = (view.subgroups.len() > 1, layout.row(me).moves);
        Moves { counts, me, at, own: Box::new(Counts::NONE), peers, sharing }
    }

    /// Whether members count their posts.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// Whether reading the counts costs less than reading all entries.
    #[inline]
    pub(crate) fn pays(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Counts a post of this member's entry of `subgroup`. The caller has stored the entry and
    /// posts it next.
    #[inline]
    pub(crate) fn show<T: Table>(&mut self, subgroup: SubgroupId, table: &mut T) {
        if self.counts && matches!(table.trace(self.me), Trace::Stored) && !mutation!(MoveUnshown) {
            let i = subgroup.index() % COUNTS;
            let Counts { all, by_subgroup } = &mut *self.own;
            by_subgroup[i] += 1;
            *all += 1;
            table.store(self.at + LINE_BYTES + 8 * i as u64, by_subgroup[i]);
            table.store(self.at, *all);
        }
    }

    /// Reports the subgroups in which entries of peers may have changed since the last call, by
    /// their positions among those of this member. The caller reads these entries next.
    #[cold]
    pub(crate) fn look<T: Table>(&mut self, table: &T, mut report: impl FnMut(usize)) {
        let mut moved = 0;
        for Peer { rank, at, seen, arrived } in &mut self.peers {
            match table.trace(*rank) {
                Trace::Stored => {
                    let all = table.load(*rank, *at);
                    if all == seen.all {
                        continue;
                    }
                    seen.all = all;
                    for (i, seen) in seen.by_subgroup.iter_mut().enumerate() {
                        let count = table.load(*rank, *at + LINE_BYTES + 8 * i as u64);
                        moved |= u64::from(count != *seen) << i;
                        *seen = count;
                    }
                }
                Trace::Arrived(count) if count == *arrived => {}
                Trace::Arrived(count) => (*arrived, moved) = (count, u64::MAX),
                Trace::Unknown => moved = u64::MAX,
            }
        }
        while moved != 0 {
            self.sharing[moved.trailing_zeros() as usize].iter().for_each(|i| report(*i as usize));
            moved &= moved - 1;
        }
    }
}
