//! Reading of delivered messages.
use super::first_number;
use spindle::{Batch, Handler, Message, SubgroupId};
use spindle_fabric::probe::{check, expected, seed};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads every byte of every message of the others in place, and checks that it is the next message
/// of its sender. The raw ring's reader does the same work. A member does not read its own messages
/// again.
#[derive(Debug)]
pub(super) struct PayloadReader {
    rank: u32,
    members: u32,
    size: u64,
    /// Number of the next message, by subgroup and sender; none for a subgroup that has sent nothing.
    next: Vec<Vec<u64>>,
    wrong: Arc<AtomicU64>,
}

impl PayloadReader {
    pub(super) fn new(rank: u32, members: u32, subgroups: u32, size: u64) -> PayloadReader {
        PayloadReader { rank, members, size, next: vec![Vec::new(); subgroups as usize], wrong: Arc::default() }
    }

    /// Returns a counter that is not zero once a message differed from the expected one.
    pub(super) fn wrong(&self) -> &Arc<AtomicU64> {
        &self.wrong
    }

    /// Returns the reader of the messages of `subgroup`, one by one.
    #[inline]
    pub(super) fn of(&mut self, subgroup: SubgroupId) -> SubgroupReading<'_> {
        let next = &mut self.next[subgroup.index()];
        if next.is_empty() {
            *next = (0..self.members).map(|rank| first_number(subgroup.index(), rank)).collect();
        }
        SubgroupReading { rank: self.rank, size: self.size, next, found: 0, wrong: &self.wrong }
    }
}

/// A [`PayloadReader`] in use in one subgroup.
pub(super) struct SubgroupReading<'a> {
    rank: u32,
    size: u64,
    next: &'a mut [u64],
    found: u64,
    wrong: &'a AtomicU64,
}

impl SubgroupReading<'_> {
    #[inline]
    pub(super) fn take(&mut self, message: Message<'_>) {
        if message.sender.0 != self.rank {
            let number = &mut self.next[message.sender.index()];
            self.found |= check(message.payload) ^ expected(self.size, seed(*number));
            *number += 1;
        }
    }
}

impl Drop for SubgroupReading<'_> {
    fn drop(&mut self) {
        if self.found != 0 {
            self.wrong.fetch_or(self.found, Ordering::Relaxed);
        }
    }
}

impl Handler for PayloadReader {
    #[inline]
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let mut reading = self.of(subgroup);
        batch.for_each(|message| reading.take(message));
    }
}
