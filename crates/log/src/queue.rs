//! The order in which queued records are committed: pure, without threads or I/O.
//!
//! **LOG-FAIR**: a commit takes at most `batch_bytes` of each subgroup, or one chunk if that is
//! larger. So a subgroup that floods the queue delays the sync of another by one batch at most.
use crate::chunk::Chunk;
use crate::store::Batch;
use std::collections::{BTreeMap, VecDeque};

/// Chunks that wait for the disk, by subgroup.
#[derive(Default)]
pub struct Queue {
    subgroups: BTreeMap<u32, VecDeque<Chunk>>,
    batch_bytes: u64,
    /// The first of those of the last round, so that each goes first in turn.
    first: u32,
}

impl Queue {
    /// An empty queue whose commits take at most `batch_bytes` of each subgroup.
    pub fn new(batch_bytes: u64) -> Self {
        Self { subgroups: BTreeMap::new(), batch_bytes, first: 0 }
    }

    /// Adds a chunk. Empty ones are returned.
    pub fn push(&mut self, subgroup: u32, chunk: Chunk) -> Option<Chunk> {
        if chunk.is_empty() {
            return Some(chunk);
        }
        self.subgroups.entry(subgroup).or_default().push_back(chunk);
        None
    }

    /// Takes the batches of the next commit: one of each subgroup that has records.
    pub fn next_round(&mut self) -> Vec<Batch> {
        let batch_bytes = self.batch_bytes;
        let mut batches = Vec::new();
        for (subgroup, waiting) in self.subgroups.iter_mut().filter(|(_, waiting)| !waiting.is_empty()) {
            let (mut chunks, mut bytes) = (Vec::new(), 0);
            while let Some(chunk) = waiting.front() {
                if !chunks.is_empty() && bytes + chunk.bytes() > batch_bytes {
                    break;
                }
                bytes += chunk.bytes();
                chunks.extend(waiting.pop_front());
            }
            batches.push(Batch { subgroup: *subgroup, chunks });
        }
        let start = batches.iter().position(|batch| batch.subgroup > self.first).unwrap_or(0);
        batches.rotate_left(start);
        self.first = batches.first().map_or(0, |batch| batch.subgroup);
        batches
    }

    /// Returns a batch that was refused, to the front.
    pub fn put_back(&mut self, batch: Batch) {
        let waiting = self.subgroups.entry(batch.subgroup).or_default();
        batch.chunks.into_iter().rev().for_each(|chunk| waiting.push_front(chunk));
    }

    /// Removes what waits for a subgroup.
    pub fn remove(&mut self, subgroup: u32) {
        self.subgroups.remove(&subgroup);
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.subgroups.clear();
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.subgroups.values().all(VecDeque::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{Record, Version};

    fn chunk(sequence: u64, bytes: usize) -> Chunk {
        let mut chunk = Chunk::default();
        let record = Record { version: Version::new(1, sequence), clock: 0, payload: &vec![0; bytes] };
        chunk.push(record).expect("it is the first record");
        chunk
    }

    #[test]
    fn a_flood_takes_one_batch_of_each_commit() {
        let mut queue = Queue::new(1000);
        (0..100).for_each(|sequence| drop(queue.push(1, chunk(sequence, 300))));
        queue.push(2, chunk(0, 10));
        let round = queue.next_round();
        assert_eq!(
            round.iter().map(|batch| (batch.subgroup, batch.chunks.len())).collect::<Vec<_>>(),
            [(1, 2), (2, 1)]
        );
        assert!(!queue.is_empty());
        queue.push(2, chunk(1, 10));
        let round = queue.next_round();
        assert_eq!(round.iter().map(|batch| batch.subgroup).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_refused_batch_comes_first_again() {
        let mut queue = Queue::new(1);
        (0..3).for_each(|sequence| drop(queue.push(1, chunk(sequence, 8))));
        let mut round = queue.next_round();
        queue.put_back(round.pop().expect("one batch"));
        assert_eq!(queue.next_round()[0].chunks[0].first(), Some(Version::new(1, 0)));
    }

    #[test]
    fn a_large_chunk_is_taken_alone() {
        let mut queue = Queue::new(100);
        queue.push(1, chunk(0, 5000));
        queue.push(1, chunk(1, 8));
        assert_eq!(queue.next_round()[0].chunks.len(), 1);
    }
}
