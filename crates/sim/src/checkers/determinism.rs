//! Invariant 17, determinism: one seed has one trace hash, in a second run and in another build.
use super::{Checked, Invariant};

const INVARIANT: Invariant = Invariant(17, "determinism");

/// A hash of all events of a run, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> TraceHash {
        TraceHash(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// Adds an event to the hash.
    #[inline]
    pub fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Returns the hash of the events so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Compares the hashes of two runs of one seed.
///
/// # Errors
/// If they differ.
pub fn same(seed: u64, first: u64, second: u64) -> Checked {
    if first == second {
        return Ok(());
    }
    INVARIANT.broken(format!("seed {seed} ran twice with the trace hashes {first:016x} and {second:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_of_events_is_another_hash() {
        let hash = |words: &[u64]| {
            let mut hash = TraceHash::default();
            words.iter().for_each(|word| hash.add(*word));
            hash.value()
        };
        assert!(same(1, hash(&[1, 2, 3]), hash(&[1, 2, 3])).is_ok());
        assert_eq!(same(1, hash(&[1, 2, 3]), hash(&[1, 3, 2])).unwrap_err().number, 17);
        assert!(same(1, hash(&[0]), hash(&[0, 0])).is_err());
    }
}
