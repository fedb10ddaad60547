//! The places of rows in chunks of memory: the used ranges, and the room for another row.
//!
//! [`Places`] serves the rows of a member ([`arena`](crate::arena)) and its copies of the rows of
//! others ([`mirror`](crate::mirror)). It counts bytes and does not access the memory.
use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};

/// Places in a chunk for small rows: for the view that ends, the one that runs, the next one, and
/// one more.
const PLACES: u64 = 4;
/// Larger rows have chunks of their own, which take no more addresses than needed.
pub(crate) const SMALL_BYTES_MAX: u64 = 16 << 20;
/// A chunk for one row is longer than the row by one such part, as the next view's row may be
/// longer.
const SPARE_PART: u64 = 8;
/// How many times larger the chunk of a row may be than one that is made for it. So the chunks in
/// use have at most eight times the bytes of their rows.
const LARGER_MAX: u64 = 2;

/// Chunks `C`, with the users `U` of places in them.
#[derive(Debug)]
pub(crate) struct Places<C, U> {
    chunks: Vec<ChunkUse<C, U>>,
}

#[derive(Debug)]
struct ChunkUse<C, U> {
    chunk: C,
    bytes: u64,
    /// In the order of their ranges, which are disjoint.
    places: Vec<(Range<u64>, U)>,
}

/// Room for a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreePlace {
    chunk: usize,
    pub(crate) at: u64,
}

impl<C, U> Default for Places<C, U> {
    fn default() -> Places<C, U> {
        Places { chunks: vec![] }
    }
}

impl<C, U> Places<C, U> {
    /// Returns the bytes that a chunk for a row of `bytes` should have.
    pub(crate) fn chunk_bytes(bytes: u64) -> u64 {
        if bytes > SMALL_BYTES_MAX { bytes.saturating_add(bytes / SPARE_PART) } else { bytes * PLACES }
    }

    /// Adds a chunk of `bytes` without places.
    pub(crate) fn add(&mut self, chunk: C, bytes: u64) {
        self.chunks.push(ChunkUse { chunk, bytes, places: vec![] });
    }

    /// Frees the places whose users are no longer in use.
    pub(crate) fn retain(&mut self, is_used: impl Fn(&U) -> bool) {
        for room in &mut self.chunks {
            room.places.retain(|(_, user)| is_used(user));
        }
    }

    /// Returns the users of all places.
    pub(crate) fn users_mut(&mut self) -> impl Iterator<Item = &mut U> {
        self.chunks.iter_mut().flat_map(|room| room.places.iter_mut().map(|(_, user)| user))
    }

    /// Drops the chunks that have places, if all their users are to be given up.
    pub(crate) fn give_up(&mut self, is_given_up: impl Fn(&U) -> bool) {
        self.chunks.retain(|room| room.places.is_empty() || !room.places.iter().all(|(_, user)| is_given_up(user)));
    }

    /// Returns a gap that has `bytes`. A gap of exactly that length is preferred, because the same
    /// row had it in an earlier view. Otherwise it is the first gap, because the memory at the end
    /// of a chunk may never have been used.
    ///
    /// A gap begins at the start of its chunk or at the end of a place. A row gets no place in a
    /// chunk that was made for much longer rows, because it would keep that chunk alive.
    pub(crate) fn find(&self, bytes: u64) -> Option<FreePlace> {
        let chunk_bytes_max = Self::chunk_bytes(bytes).saturating_mul(LARGER_MAX);
        let rooms = self.chunks.iter().enumerate().filter(|(_, room)| room.bytes <= chunk_bytes_max);
        let gaps = rooms.flat_map(|(chunk, room)| {
            room.gaps().map(move |gap| (gap.end - gap.start, FreePlace { chunk, at: gap.start }))
        });
        gaps.filter(|(room, _)| *room >= bytes).min_by_key(|(room, _)| *room > bytes).map(|(_, gap)| gap)
    }

    /// Returns the chunk of a gap.
    pub(crate) fn chunk_mut(&mut self, gap: FreePlace) -> &mut C {
        &mut self.chunks[gap.chunk].chunk
    }

    /// Gives the first `bytes` of a gap that was [found](Self::find) to `user`.
    ///
    /// # Panics
    /// If part of them is used, or outside the chunk.
    pub(crate) fn take(&mut self, gap: FreePlace, bytes: u64, user: U) {
        let (room, range) = (&mut self.chunks[gap.chunk], gap.at..gap.at + bytes);
        let next = room.places.partition_point(|(place, _)| place.start < range.start);
        let end = room.places.get(next).map_or(room.bytes, |(place, _)| place.start);
        let start = next.checked_sub(1).map_or(0, |last| room.places[last].0.end);
        assert!(start <= range.start && range.end <= end, "{range:?} is not free: {start}..{end} is");
        room.places.insert(next, (range, user));
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|room| room.bytes).sum()
    }

    /// Drops the oldest chunks without places, until the bytes of the other empty chunks are at
    /// most `part` times the bytes of the chunks with places.
    pub(crate) fn drop_empty(&mut self, part: u64) {
        let is_empty = |room: &ChunkUse<C, U>| room.places.is_empty();
        let empty: u64 = self.chunks.iter().filter(|room| is_empty(room)).map(|room| room.bytes).sum();
        let mut too_many = empty.saturating_sub(part * (self.bytes() - empty));
        self.chunks.retain(|room| {
            let is_kept = !is_empty(room) || too_many == 0;
            if !is_kept {
                too_many = too_many.saturating_sub(room.bytes);
            }
            is_kept
        });
    }
}

impl<C, U> ChunkUse<C, U> {
    /// Returns the free ranges, in order.
    fn gaps(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = self.places.iter().map(|(place, _)| place.start).chain([self.bytes]);
        let ends = [0].into_iter().chain(self.places.iter().map(|(place, _)| place.end));
        ends.zip(starts).map(|(end, start)| end..start)
    }
}

/// Returns true if nothing holds `user` any more. Then everything that other threads did with it
/// has happened before.
pub(crate) fn is_gone<T>(user: &Weak<T>) -> bool {
    if user.strong_count() > 0 {
        return false;
    }
    // The count is read relaxed, and was last written, with release, by the threads that dropped
    // their references.
    fence(Ordering::Acquire);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places<char, u32> {
        let mut places = Places::default();
        places.add('a', 110);
        places.add('b', 60);
        places
    }

    fn put(places: &mut Places<char, u32>, bytes: u64, user: u32) -> Option<(char, u64)> {
        let gap = places.find(bytes)?;
        places.take(gap, bytes, user);
        Some((*places.chunk_mut(gap), gap.at))
    }

    #[test]
    fn a_gap_of_the_length_is_taken_or_the_first_and_gaps_side_by_side_are_one() {
        let mut places = places();
        let at = [40, 30, 20, 50].map(|bytes| put(&mut places, bytes, bytes as u32));
        assert_eq!(at, [Some(('a', 0)), Some(('a', 40)), Some(('a', 70)), Some(('b', 0))]);
        assert_eq!(put(&mut places, 21, 0), None);
        places.retain(|user| *user != 30);
        assert_eq!(put(&mut places, 20, 1), Some(('a', 90)), "of its length");
        assert_eq!(put(&mut places, 30, 2), Some(('a', 40)));
        places.retain(|user| ![20, 1].contains(user));
        assert_eq!(put(&mut places, 25, 3), Some(('a', 70)), "of two places");
        assert_eq!(put(&mut places, 14, 4), Some(('a', 95)));
        assert_eq!(put(&mut places, 14, 5), None);
    }

    #[test]
    fn a_short_row_does_not_keep_a_long_chunk() {
        let mut places = places();
        places.retain(|_| false);
        assert_eq!(put(&mut places, 13, 1), Some(('b', 0)));
        assert_eq!(put(&mut places, 14, 1), Some(('a', 0)));
        assert_eq!(put(&mut places, 7, 1), None);
    }

    #[test]
    fn empty_chunks_are_kept_as_far_as_others_are_used() {
        let mut places = places();
        put(&mut places, 10, 1);
        places.add('c', 50);
        places.add('d', 10);
        // 'b' is used. 'a' is the oldest of the empty chunks, and those after it have no more bytes
        // than 'b'.
        places.drop_empty(1);
        assert_eq!(places.bytes(), 120);
        places.drop_empty(0);
        assert_eq!(places.bytes(), 60);
        places.retain(|_| false);
        places.drop_empty(1);
        assert_eq!(places.bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "is not free")]
    fn memory_in_use_is_not_given_away() {
        let mut places = places();
        let gap = places.find(10).unwrap();
        places.take(gap, 10, 1);
        places.take(gap, 10, 2);
    }
}
