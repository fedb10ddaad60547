//! Sets of ranks, as they are stored in a row: one bit for each member.
use crate::ids::Rank;
use crate::table::Rows;
use alloc::boxed::Box;

/// A set of ranks of one view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ranks {
    words: Box<[u64]>,
}

impl Ranks {
    /// The empty set, in a view of so many members.
    pub(crate) fn none(members: usize) -> Ranks {
        Ranks { words: alloc::vec![0; members.div_ceil(64)].into() }
    }

    pub(crate) fn has(&self, rank: Rank) -> bool {
        self.words[rank.index() / 64] >> (rank.0 % 64) & 1 == 1
    }

    /// Adds `rank`; whether it is new.
    pub(crate) fn add(&mut self, rank: Rank) -> bool {
        let new = !self.has(rank);
        self.words[rank.index() / 64] |= 1 << (rank.0 % 64);
        new
    }

    /// Adds all of `other`.
    pub(crate) fn unite(&mut self, other: &Ranks) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Removes `rank`; whether it was in the set.
    pub(crate) fn remove(&mut self, rank: Rank) -> bool {
        let was = self.has(rank);
        self.words[rank.index() / 64] &= !(1 << (rank.0 % 64));
        was
    }

    /// The set that begins at `at` in the row of `rank`, in a view of so many members. Bits of no member are passed over.
    pub(crate) fn read<R: Rows>(members: usize, rank: Rank, at: u64, rows: &R) -> Ranks {
        let mut ranks = Ranks::none(members);
        for (word, at) in ranks.words.iter_mut().zip((at..).step_by(8)) {
            *word = rows.load(rank, at);
        }
        if let Some(last) = ranks.words.last_mut()
            && !members.is_multiple_of(64)
        {
            *last &= (1 << (members % 64)) - 1;
        }
        ranks
    }

    /// Keeps those that are in `other`, too. Whether any was not.
    pub(crate) fn retain(&mut self, other: &Ranks) -> bool {
        let mut removed = 0;
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            removed |= *word & !other;
            *word &= other;
        }
        removed != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Whether all of `other` are in the set.
    pub(crate) fn contains(&self, other: &Ranks) -> bool {
        self.words.iter().zip(&other.words).all(|(mine, other)| other & !mine == 0)
    }

    /// The words of the set.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().copied()
    }

    /// The words of the union with `other`.
    pub(crate) fn union<'a>(&'a self, other: &'a Ranks) -> impl Iterator<Item = u64> + 'a {
        self.words.iter().zip(&other.words).map(|(one, other)| one | other)
    }
}

/// Whether `other` is in the set that begins at `at` in the row of `rank`.
pub(crate) fn bit<R: Rows>(rows: &R, rank: Rank, at: u64, other: Rank) -> bool {
    let word = rows.load(rank, at + 8 * (u64::from(other.0) / 64));
    word >> (other.0 % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_ranks_hold_what_was_added() {
        let mut ranks = Ranks::none(130);
        for rank in [0, 63, 64, 129] {
            assert!(ranks.add(Rank(rank)));
            assert!(!ranks.add(Rank(rank)));
        }
        assert!(ranks.has(Rank(129)) && !ranks.has(Rank(128)));
        assert!(ranks.remove(Rank(129)) && !ranks.remove(Rank(129)) && !ranks.has(Rank(129)));
    }
}
