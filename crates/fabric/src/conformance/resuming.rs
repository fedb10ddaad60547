//! A member that appends and one that reads, over a link that breaks at any time and is made again:
//! the reader misses nothing, and nothing that it has read is written again.
use super::harness::{PATIENCE, view};
use super::links::{COUNT, OTHER};
use crate::connections::{Connections, NoConnections};
use crate::fabric::Fabric;
use crate::mesh::Mesh;
use crate::region::CopyRegion;
use spindle_core::wire::layout::entry;
use spindle_core::{Layout, Rank, Ring, Rows, Table};
use std::sync::Arc;
use std::time::Instant;

const BOTH: [Rank; 2] = [Rank(0), Rank(1)];
/// Replaces a word that was read, so that a word that is written again is detected.
const READ: u64 = u64::MAX;

/// A member that appends to its ring, a member that reads it, and what each knows.
#[derive(Debug)]
pub struct Pair<C: Connections = NoConnections> {
    /// The layout of their view.
    pub layout: Layout,
    /// The member that appends.
    pub writer: Mesh<C>,
    /// The member that reads.
    pub reader: Mesh<C>,
    pub(crate) copy: Arc<CopyRegion>,
    ring: Ring,
    entry: u64,
    acknowledged: u64,
    /// In words.
    pub(crate) written: u64,
    announced: u64,
    seen: u64,
    /// The reader may have no frame up to here any more.
    done: u64,
    count: u64,
}

impl<C: Connections> Pair<C> {
    /// Creates two members that `connect` connects.
    pub fn of(connect: impl FnOnce(&Layout) -> [Mesh<C>; 2]) -> Pair<C> {
        let layout = Layout::new(&view(2, 4)).unwrap();
        let [writer, reader] = connect(&layout);
        let place = *layout.row(Rank(0)).subgroups().next().unwrap();
        let acknowledged = layout.row(Rank(1)).subgroups().next().unwrap().entry + entry::DELIVERED;
        let copy = reader.copy(Rank(0));
        let (ring, entry) = (place.ring.unwrap(), place.entry);
        let (written, announced, seen, done, count) = (0, 0, 0, 0, 0);
        Pair { layout, writer, reader, copy, ring, entry, acknowledged, written, announced, seen, done, count }
    }

    pub(crate) fn words(&self) -> u64 {
        self.ring.capacity / 8
    }

    fn at(&self, index: u64) -> u64 {
        self.ring.offset(index * 8)
    }

    /// Appends `words` frames of two words each, or as many as there is room for.
    pub fn append(&mut self, words: u64) {
        let free = self.writer.load(Rank(1), self.acknowledged);
        self.writer.store(self.entry + entry::FREED, free);
        let room = free / 8 + self.words() - self.written;
        let mut from = self.written;
        for index in self.written..self.written + (2 * words).min(room) {
            self.writer.store(self.at(index), index + 1);
            self.written = index + 1;
            if self.written.is_multiple_of(self.words()) {
                self.writer.post(&BOTH, self.at(from)..self.at(index) + 8);
                from = self.written;
            }
        }
        if from < self.written {
            self.writer.post(&BOTH, self.at(from)..self.at(self.written - 1) + 8);
        }
    }

    /// Announces what was appended, and then two words of which the second depends on the first.
    pub fn announce(&mut self) {
        self.announced = self.written;
        self.writer.store(self.entry + entry::PUBLISHED, self.announced * 8);
        self.writer.post(&BOTH, self.entry..self.entry + 64);
        for at in [OTHER, COUNT] {
            self.writer.store(at, self.announced);
            self.writer.post(&BOTH, at..at + 8);
        }
    }

    /// Checks everything that the reader may read, and acknowledges it.
    pub fn read(&mut self, acknowledges: bool, case: &str) {
        self.reader.progress();
        let reader = &self.reader;
        let published = reader.load(Rank(0), self.entry + entry::PUBLISHED) / 8;
        let (count, other) = (reader.load(Rank(0), COUNT), reader.load(Rank(0), OTHER));
        assert!(published >= self.seen && published <= self.announced, "{case}: from {} to {published}", self.seen);
        assert!(count >= self.count && count <= other && other <= published, "{case}: {count}, {other}, {published}");
        self.count = count;
        for index in self.done..self.seen {
            assert_eq!(reader.load(Rank(0), self.at(index)), READ, "{case}: word {index} was written again");
        }
        for index in self.seen..published {
            assert_eq!(reader.load(Rank(0), self.at(index)), index + 1, "{case}: word {index}");
            self.copy.fill(self.at(index), &READ.to_le_bytes());
        }
        self.seen = published;
        if acknowledges {
            self.done = self.seen;
            self.reader.store(self.acknowledged, self.seen * 8);
            let at = self.acknowledged;
            self.reader.post(&BOTH, at..at + 8);
        }
    }

    /// Announces everything that was appended, and waits until it is read and acknowledged.
    pub fn finish(&mut self, case: &str) {
        let start = Instant::now();
        self.announce();
        while self.count < self.written || self.writer.load(Rank(1), self.acknowledged) < 8 * self.written {
            self.writer.progress();
            self.read(true, case);
            assert!(start.elapsed() < PATIENCE, "{case}: {} of {} read", self.seen, self.written);
        }
        assert!(self.writer.next_down().is_none() && self.reader.next_down().is_none(), "{case}");
    }
}
