//! The subgroups that the next poll looks at. A member may be in a thousand, of which a few are
//! active.
use alloc::vec;
use alloc::vec::Vec;

/// The number of polls for which a subgroup stays in the set after it last did something.
const HOT_POLLS: u32 = 64;

/// A set of subgroups, by their positions in the engine's list.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// By subgroup: for how many more polls it is hot.
    hot: Vec<u32>,
    /// The number of subgroups that are not hot.
    cold: usize,
    /// The set: one bit for each subgroup.
    bits: Vec<u64>,
}

impl Ready {
    /// Returns the set of all of `count` subgroups.
    pub(crate) fn all(count: usize) -> Ready {
        let mut ready = Ready { hot: vec![0; count], cold: count, bits: vec![0; count.div_ceil(64)] };
        ready.add_all();
        ready
    }

    pub(crate) fn add_all(&mut self) {
        self.bits.fill(u64::MAX);
        if let (Some(last), count @ 1..) = (self.bits.last_mut(), self.hot.len() % 64) {
            *last = (1 << count) - 1;
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, subgroup: usize) {
        self.bits[subgroup / 64] |= 1 << (subgroup % 64);
    }

    /// Returns the first subgroup of the set from position `from` on.
    #[inline]
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = *self.bits.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.bits.get(word)?;
        }
        Some(64 * word + bits.trailing_zeros() as usize)
    }

    /// Returns whether the subgroup has done something in the last polls.
    #[inline]
    pub(crate) fn is_hot(&self, subgroup: usize) -> bool {
        self.hot[subgroup] > 0
    }

    /// Returns whether any subgroup is not hot.
    #[inline]
    pub(crate) fn has_cold(&self) -> bool {
        self.cold > 0
    }

    /// Takes note of a look at a subgroup: whether something was done there, and whether more is to
    /// be done. A subgroup that is neither hot nor has more to do leaves the set.
    #[inline]
    pub(crate) fn looked(&mut self, subgroup: usize, worked: bool, more: bool) {
        let hot = &mut self.hot[subgroup];
        let was_cold = *hot == 0;
        *hot = if worked { HOT_POLLS } else { hot.saturating_sub(1) };
        let is_cold = *hot == 0;
        self.cold = self.cold + usize::from(is_cold) - usize::from(was_cold);
        match is_cold && !more {
            true => self.bits[subgroup / 64] &= !(1 << (subgroup % 64)),
            false => self.add(subgroup),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ready: &Ready) -> Vec<usize> {
        core::iter::successors(ready.next(0), |last| ready.next(last + 1)).collect()
    }

    #[test]
    fn all_subgroups_are_in_the_first_set() {
        for count in [0, 1, 63, 64, 65, 1024] {
            assert_eq!(list(&Ready::all(count)), (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn hot_subgroups_and_those_with_more_to_do_stay_in_the_set() {
        let mut ready = Ready::all(130);
        for subgroup in 0..130 {
            ready.looked(subgroup, subgroup == 128, subgroup == 70);
        }
        assert_eq!(list(&ready), [70, 128]);
        for _ in 0..HOT_POLLS {
            assert!(ready.is_hot(128));
            ready.looked(128, false, false);
        }
        assert!(!ready.is_hot(128));
        assert_eq!(list(&ready), [70]);
        ready.add(3);
        assert_eq!(list(&ready), [3, 70]);
    }

    #[test]
    fn a_set_knows_whether_any_subgroup_is_cold() {
        let mut ready = Ready::all(2);
        assert!(ready.has_cold());
        ready.looked(0, true, false);
        assert!(ready.has_cold());
        ready.looked(1, true, false);
        assert!(!ready.has_cold());
        (0..HOT_POLLS).for_each(|_| ready.looked(0, false, false));
        assert!(ready.has_cold());
    }
}
