//! Sets of pieces of one file.
use anyhow::ensure;

/// Most pieces of a file. The offer contains their digests.
pub(super) const PIECES_MAX: u64 = 1 << 20;

/// Some of `count` pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    words: Vec<u64>,
    count: u32,
}

impl Pieces {
    pub(super) fn none(count: u32) -> Pieces {
        Pieces { words: vec![0; count.div_ceil(u64::BITS) as usize], count }
    }

    pub(super) fn all(count: u32) -> Pieces {
        let mut all = Pieces::none(count);
        (0..count).for_each(|index| all.insert(index));
        all
    }

    /// Returns the number of pieces of the file.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn insert(&mut self, index: u32) {
        self.words[(index / u64::BITS) as usize] |= 1 << (index % u64::BITS);
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.words[(index / u64::BITS) as usize] &= !(1 << (index % u64::BITS));
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.words[(index / u64::BITS) as usize] >> (index % u64::BITS) & 1 != 0
    }

    pub(super) fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(super) fn is_all(&self) -> bool {
        self.len() == self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count).filter(|index| self.contains(*index))
    }

    /// Returns the first piece in the set from `from` on.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        (from..self.count).find(|index| self.contains(*index))
    }

    /// Returns the pieces that are neither in this set nor in `other`, which has the same count.
    pub(super) fn missing(&self, other: &Pieces) -> Pieces {
        let mut missing = Pieces::all(self.count);
        for (word, (one, two)) in missing.words.iter_mut().zip(self.words.iter().zip(&other.words)) {
            *word &= !(one | two);
        }
        missing
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let words = self.words.iter().flat_map(|word| word.to_le_bytes());
        self.count.to_le_bytes().into_iter().chain(words).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> anyhow::Result<Pieces> {
        let Some((count, rest)) = bytes.split_first_chunk() else { anyhow::bail!("it is cut short") };
        let count = u32::from_le_bytes(*count);
        ensure!(u64::from(count) <= PIECES_MAX, "it speaks of {count} pieces");
        let (words, []) = rest.as_chunks() else { anyhow::bail!("it is cut short") };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let pieces = Pieces { words, count };
        let whole = Pieces::all(count);
        ensure!(pieces.words.len() == whole.words.len(), "it has {} words for {count} pieces", pieces.words.len());
        let are_there = pieces.words.iter().zip(&whole.words).all(|(word, whole)| word & !whole == 0);
        ensure!(are_there, "it speaks of pieces that there are not");
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_any_size_hold_what_was_put_in_and_come_back_from_bytes() {
        for count in [0, 1, 63, 64, 65, 200] {
            let mut some = Pieces::none(count);
            assert_eq!((some.is_empty(), some.is_all(), some.next(0)), (true, count == 0, None));
            (0..count).step_by(3).for_each(|index| some.insert(index));
            assert_eq!(Pieces::from_bytes(&some.to_bytes()).unwrap(), some);
            assert_eq!(some.next(1), (count > 3).then_some(3));
            let missing = some.missing(&Pieces::none(count));
            assert_eq!(missing.len() + some.len(), count);
            assert!(missing.iter().all(|index| !some.contains(index)));
            missing.iter().for_each(|index| some.insert(index));
            assert!(some.is_all() && some == Pieces::all(count));
            (0..count).for_each(|index| some.remove(index));
            assert!(some.is_empty());
        }
    }

    #[test]
    fn bytes_that_are_no_set_are_refused() {
        let bytes = Pieces::all(65).to_bytes();
        for len in 0..bytes.len() {
            Pieces::from_bytes(&bytes[..len]).unwrap_err();
        }
        let mut beyond = bytes.clone();
        *beyond.last_mut().unwrap() = 1;
        assert!(Pieces::from_bytes(&beyond).unwrap_err().to_string().contains("there are not"));
        let huge = [&u32::MAX.to_le_bytes(), &bytes[4..]].concat();
        Pieces::from_bytes(&huge).unwrap_err();
    }
}
