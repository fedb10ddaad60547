//! The only source of randomness. PCG64-MCG is portable and pinned by reference vectors in
//! `rand_pcg`. The conversion from its words to ranges is done here, so that a seed gives the same
//! run with every version of every dependency.
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// A seeded generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    /// Returns the generator of `seed`. `stream` separates the generators that one seed needs.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        Random(Pcg64Mcg::new(u128::from(mix(seed)) << 64 | u128::from(mix(seed ^ mix(stream.wrapping_add(1))))))
    }

    /// Returns a random word.
    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 and below `end`; 0 if `end` is 0.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `first` to `last`, both included.
    #[inline]
    pub(crate) fn range(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true once in `n` times.
    #[inline]
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a random element of `list`.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Maps words to words, one to one, and spreads every bit (the finalizer of splitmix64).
#[inline]
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_words_for_ever() {
        let mut random = Random::new(7, 1);
        let words = [random.word(), random.below(1000), random.range(5, 9), u64::from(random.one_in(2))];
        assert_eq!(words, PINNED);
    }

    const PINNED: [u64; 4] = [1771623666462562116, 337, 5, 0];

    #[test]
    fn ranges_keep_their_ends() {
        let mut random = Random::new(1, 2);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[(random.range(3, 7) - 3) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
    }
}
