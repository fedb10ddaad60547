//! Sets of ranks, as they are stored in a row: one bit for each member.
use crate::ids::Rank;
use crate::limits::MEMBERS_MAX;
use crate::table::Rows;
use core::fmt;
use core::hash::{Hash, Hasher};

const WORDS_MAX: usize = MEMBERS_MAX.div_ceil(64);

/// A set of ranks of one view.
#[derive(Clone)]
pub(crate) struct Ranks {
    /// The first `len` count.
    words: [u64; WORDS_MAX],
    len: usize,
}

impl PartialEq for Ranks {
    fn eq(&self, other: &Ranks) -> bool {
        self.words() == other.words()
    }
}

impl Eq for Ranks {}

impl Hash for Ranks {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|rank| rank.0)).finish()
    }
}

impl Ranks {
    /// The empty set, in a view of so many members.
    pub(crate) fn none(members: usize) -> Ranks {
        debug_assert!(members <= MEMBERS_MAX);
        Ranks { words: [0; WORDS_MAX], len: members.div_ceil(64) }
    }

    pub(crate) fn has(&self, rank: Rank) -> bool {
        debug_assert!(rank.index() / 64 < self.len);
        self.words[rank.index() / 64] >> (rank.0 % 64) & 1 == 1
    }

    /// Adds `rank`; whether it is new.
    pub(crate) fn add(&mut self, rank: Rank) -> bool {
        let new = !self.has(rank);
        self.words[rank.index() / 64] |= 1 << (rank.0 % 64);
        new
    }

    /// Changes each word by the one of `other`.
    fn merge(&mut self, other: &Ranks, merged: impl Fn(u64, u64) -> u64) {
        self.words[..self.len].iter_mut().zip(other.words()).for_each(|(word, other)| *word = merged(*word, *other));
    }

    /// Adds all of `other`.
    pub(crate) fn unite(&mut self, other: &Ranks) {
        self.merge(other, |word, other| word | other);
    }

    /// The set without those of `other`.
    pub(crate) fn without(mut self, other: &Ranks) -> Ranks {
        self.merge(other, |word, other| word & !other);
        self
    }

    /// The set without those that are not in `other`.
    pub(crate) fn within(mut self, other: &Ranks) -> Ranks {
        self.merge(other, |word, other| word & other);
        self
    }

    /// The ranks in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.words().iter().zip((0u32..).step_by(64)).flat_map(|(word, first)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(Rank(first + bit))
            })
        })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.words().iter().map(|word| word.count_ones() as usize).sum()
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
        for (word, at) in ranks.words[..ranks.len].iter_mut().zip((at..).step_by(8)) {
            *word = rows.load(rank, at);
        }
        if let Some(last) = ranks.words[..ranks.len].last_mut()
            && !members.is_multiple_of(64)
        {
            *last &= (1 << (members % 64)) - 1;
        }
        ranks
    }

    /// Keeps those that are in `other`, too. Whether any was not.
    pub(crate) fn retain(&mut self, other: &Ranks) -> bool {
        let is_less = !other.contains(self);
        self.merge(other, |word, other| word & other);
        is_less
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Whether all of `other` are in the set.
    pub(crate) fn contains(&self, other: &Ranks) -> bool {
        self.words().iter().zip(other.words()).all(|(mine, other)| other & !mine == 0)
    }

    /// The words of the set.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }

    /// The words of the union with `other`.
    pub(crate) fn union<'a>(&'a self, other: &'a Ranks) -> impl Iterator<Item = u64> + 'a {
        self.words().iter().zip(other.words()).map(|(one, other)| one | other)
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
    use alloc::vec::Vec;

    #[test]
    fn sets_of_ranks_hold_what_was_added() {
        let mut ranks = Ranks::none(130);
        for rank in [0, 63, 64, 129] {
            assert!(ranks.add(Rank(rank)));
            assert!(!ranks.add(Rank(rank)));
        }
        assert!(ranks.has(Rank(129)) && !ranks.has(Rank(128)));
        assert_eq!((ranks.len(), ranks.iter().map(|rank| rank.0).collect::<Vec<_>>()), (4, [0, 63, 64, 129].to_vec()));
        let mut few = Ranks::none(130);
        [63, 129, 1].into_iter().for_each(|rank| _ = few.add(Rank(rank)));
        assert!(ranks.clone().without(&few).iter().eq([0, 64].map(Rank)));
        assert!(ranks.clone().within(&few).iter().eq([63, 129].map(Rank)));
        assert!(ranks.remove(Rank(129)) && !ranks.remove(Rank(129)) && !ranks.has(Rank(129)));
    }
}
