//! The part of my row that a peer lacks, by its own statement of what it has applied.
//!
//! All words of a control block except the slots of proposals and hints are monotone. So the peer
//! gets the whole block in one frame, and need not state what it has of it. In a ring it lacks the
//! bytes behind the `PUBLISHED` that it has applied, because the bytes below came before that word.
//! These bytes extend to what was posted, which may be more than what is announced. Bytes that the
//! peer may lend to readers are below what it states, and are never sent again (INV-FRAME).
use super::backlog::Image;
use super::error::Down;
use crate::region::OwnRegion;
use spindle_core::wire::layout::{RowLayout, entry};
use spindle_core::wire::ring::{GRANULE_BYTES, Ring};
use std::ops::Range;

/// One ring of my row, and how far it was posted.
#[derive(Debug)]
pub struct Posted {
    ring: Ring,
    /// Offsets of the words that announce it and free it.
    published: u64,
    freed: u64,
    /// The position behind the last frame that was posted. Frames up to here that are not announced
    /// were posted in order.
    position: u64,
}

impl Posted {
    /// Returns the rings of `row`, announced up to what `image` shows.
    pub fn all(row: &RowLayout, image: &Image) -> Box<[Posted]> {
        let rings = row.subgroups().filter_map(|place| Some((place.ring?, place.entry)));
        let posted = rings.map(|(ring, at)| {
            let (published, freed) = (at + entry::PUBLISHED, at + entry::FREED);
            Posted { ring, published, freed, position: image.word(published) }
        });
        posted.collect()
    }

    /// Records that `frames` of the row were posted. In this ring they follow the frames that were
    /// posted before.
    #[inline]
    pub fn note(&mut self, frames: &Range<u64>, image: &Image) {
        let Ring { at, capacity, .. } = self.ring;
        let (start, end) = (frames.start.max(at), frames.end.min(at + self.ring.size()));
        if start >= end || start >= at + capacity {
            return;
        }
        // Offsets mean positions of the lap after what is announced.
        let published = image.word(self.published);
        let from = published + (start - at).wrapping_sub(published) % capacity;
        let to = if end >= at + capacity { (from | (capacity - 1)) + 1 } else { from + (end - start) };
        if from <= self.position.max(published) {
            self.position = self.position.max(to);
        }
    }

    /// Returns the ranges of the row that a peer lacks if it has applied the announcement
    /// `applied`.
    ///
    /// # Errors
    /// [`Down::ReorderBuffer`]: it can't have applied that.
    pub fn lacking(&self, applied: u64, row: &OwnRegion, image: &Image) -> Result<[Range<u64>; 2], Down> {
        let Ring { at, capacity, .. } = self.ring;
        let published = image.word(self.published);
        if applied > published || !applied.is_multiple_of(GRANULE_BYTES) {
            return Err(Down::ReorderBuffer { at, applied, published });
        }
        let end = self.position.max(published);
        // Free bytes were delivered by all members of the subgroup, so a peer that has not got them
        // is not in it.
        if applied == end || applied < row.load(self.freed) {
            return Ok([0..0, 0..0]);
        }
        let (from, to) = (self.ring.offset(applied), self.ring.offset(end));
        Ok(match applied / capacity == end / capacity {
            true => [from..to, 0..0],
            // The last frame of the lap may extend beyond it.
            false => [from..at + self.ring.size(), at..to],
        })
    }
}

/// Returns the offsets of the words of `row` that announce its rings.
pub fn announcements(row: &RowLayout) -> Box<[u64]> {
    row.subgroups().filter(|place| place.ring.is_some()).map(|place| place.entry + entry::PUBLISHED).collect()
}
