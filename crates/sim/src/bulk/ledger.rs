//! The record of what happened in one bulk group, and the checks of it. The ledger observes blocks,
//! counters and upcalls from outside. It never looks into a session, and shares no bookkeeping with
//! the core.
//!
//! The invariants are those of the project's list, for blocks in place of messages.
use crate::checkers::{Checked, Invariant};
use spindle_core::rdmc::Columns;

const NO_INVENTION: Invariant = Invariant(2, "no invention");
const SEQUENCE: Invariant = Invariant(3, "no duplicate, no gap, FIFO");
const VALIDITY: Invariant = Invariant(7, "validity");
const STABILITY: Invariant = Invariant(9, "stability truth");
const MONOTONE: Invariant = Invariant(11, "monotone rows, single writer");
const FRAME_SAFETY: Invariant = Invariant(12, "frame safety");
const LIVENESS: Invariant = Invariant(15, "liveness");

/// The state of an object at one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopyState {
    Open,
    Complete,
    Failed,
}

/// One object at one member.
#[derive(Clone, Debug)]
struct Copy {
    held: Vec<bool>,
    landed: u64,
    first: bool,
    sized: bool,
    room: bool,
    on_the_way: u64,
    fate: CopyState,
}

impl Copy {
    /// Returns how many blocks the member holds. The root holds all of them, and none lands there.
    fn holds(&self) -> u64 {
        if self.landed == 0 && self.held[0] { self.held.len() as u64 } else { self.landed }
    }
}

#[derive(Clone, Debug)]
struct SentObject {
    bytes: u64,
    copies: Vec<Copy>,
    everywhere: bool,
}

/// The record of one group.
#[derive(Clone, Debug)]
pub(super) struct BulkLedger {
    block_bytes: u64,
    slots: u64,
    objects: Vec<SentObject>,
    /// By rank and slot: the counters that the member posted last.
    posted: Vec<Vec<Columns>>,
    /// By rank: true if the member closed.
    closed: Vec<bool>,
    /// By rank: true if the member died.
    dead: Vec<bool>,
}

impl BulkLedger {
    pub(super) fn new(members: u32, slots: u32, block_bytes: u64) -> BulkLedger {
        let n = members as usize;
        let posted = vec![vec![Columns::default(); slots as usize]; n];
        BulkLedger {
            block_bytes,
            slots: slots.into(),
            objects: vec![],
            posted,
            closed: vec![false; n],
            dead: vec![false; n],
        }
    }

    fn blocks(&self, object: u64) -> u64 {
        self.objects[object as usize].bytes.div_ceil(self.block_bytes).max(1)
    }

    /// Records that the root sends an object.
    pub(super) fn begin(&mut self, object: u64, bytes: u64) -> Checked {
        if object != self.objects.len() as u64 {
            return SEQUENCE.broken(format!("object {object} begins after {}", self.objects.len()));
        }
        let blocks = bytes.div_ceil(self.block_bytes).max(1) as usize;
        let copy = |rank| Copy {
            held: vec![rank == 0; blocks],
            landed: 0,
            first: false,
            sized: rank == 0,
            room: rank == 0,
            on_the_way: 0,
            fate: CopyState::Open,
        };
        self.objects.push(SentObject { bytes, copies: (0..self.dead.len()).map(copy).collect(), everywhere: false });
        Ok(())
    }

    /// Records that `from` posts a block of an object.
    pub(super) fn posts(&mut self, from: u32, object: u64, at: u64, bytes: u64) -> Checked {
        if object >= self.objects.len() as u64 {
            return NO_INVENTION.broken(format!("r{from} posts a block of object {object}, which was not sent"));
        }
        let (length, block) = (self.objects[object as usize].bytes, (at / self.block_bytes) as usize);
        if !at.is_multiple_of(self.block_bytes) || bytes != (length - at.min(length)).min(self.block_bytes) {
            return NO_INVENTION.broken(format!(
                "r{from} posts bytes {at} to {} of object {object}, which has {length} in blocks of {}",
                at + bytes,
                self.block_bytes
            ));
        }
        let copy = &mut self.objects[object as usize].copies[from as usize];
        if !copy.held.get(block).is_some_and(|held| *held) {
            return NO_INVENTION
                .broken(format!("r{from} posts block {block} of object {object}, which it does not hold"));
        }
        copy.on_the_way += 1;
        Ok(())
    }

    /// Records that `rank` posts its counters of a slot.
    pub(super) fn counts(&mut self, rank: u32, slot: u32, now: Columns) -> Checked {
        let before = std::mem::replace(&mut self.posted[rank as usize][slot as usize], now);
        let fell =
            before.bytes > now.bytes || before.steps > now.steps || before.ready > now.ready || before.have > now.have;
        if fell {
            return MONOTONE.broken(format!("r{rank}'s counters of slot {slot} went from {before:?} to {now:?}"));
        }
        let objects = self.objects.iter().skip(slot as usize).step_by(self.slots as usize);
        let held: u64 = objects.map(|object| object.copies[rank as usize].holds()).sum();
        if now.have > held {
            return STABILITY
                .broken(format!("r{rank} says that it has {} blocks of slot {slot}, and has {held}", now.have));
        }
        Ok(())
    }

    /// Records that a block of `from` lands in the memory of `to`.
    pub(super) fn lands(&mut self, to: u32, object: u64, at: u64, is_first: bool) -> Checked {
        let block = (at / self.block_bytes) as usize;
        let slot = object % self.slots;
        let earlier: u64 = (slot..object).step_by(self.slots as usize).map(|object| self.blocks(object)).sum();
        let before = object.checked_sub(self.slots).map(|object| &self.objects[object as usize].copies[to as usize]);
        if before.is_some_and(|copy| copy.fate != CopyState::Complete) {
            return FRAME_SAFETY.broken(format!(
                "block {block} of object {object} lands at r{to}, whose slot holds object {}",
                object - self.slots
            ));
        }
        let ready = self.posted[to as usize][slot as usize].ready.saturating_sub(earlier);
        let copy = &mut self.objects[object as usize].copies[to as usize];
        copy.landed += 1;
        if copy.landed > ready || (!is_first && !copy.room) {
            return FRAME_SAFETY.broken(format!(
                "block {block} of object {object} lands at r{to} as its number {}, which is ready for {ready}{}",
                copy.landed,
                if copy.room { "" } else { " and has no room" }
            ));
        }
        if std::mem::replace(&mut copy.held[block], true) || (is_first && std::mem::replace(&mut copy.first, true)) {
            return SEQUENCE.broken(format!("block {block} of object {object} lands at r{to}, which has it"));
        }
        Ok(())
    }

    /// Records that a block that `rank` posted has been sent.
    pub(super) fn gone(&mut self, rank: u32, object: u64) {
        self.objects[object as usize].copies[rank as usize].on_the_way -= 1;
    }

    /// Records that the application of `rank` learns the length of an object.
    pub(super) fn size(&mut self, rank: u32, object: u64, bytes: u64) -> Checked {
        let length = self.objects.get(object as usize).map(|object| object.bytes);
        if length != Some(bytes) {
            return NO_INVENTION
                .broken(format!("r{rank} is told {bytes} bytes for object {object}, which has {length:?}"));
        }
        let copy = &mut self.objects[object as usize].copies[rank as usize];
        if std::mem::replace(&mut copy.sized, true) {
            return SEQUENCE.broken(format!("r{rank} is told the length of object {object} again"));
        }
        Ok(())
    }

    /// Records that the application of `rank` has provided memory for an object.
    pub(super) fn room(&mut self, rank: u32, object: u64) {
        self.objects[object as usize].copies[rank as usize].room = true;
    }

    /// Records that the application of `rank` learns that an object is complete. If the group is
    /// `closing`, it learns only that the object can no longer fail.
    pub(super) fn complete(&mut self, rank: u32, object: u64, closing: bool) -> Checked {
        self.is_open(rank, object)?;
        if (0..object).any(|object| self.objects[object as usize].copies[rank as usize].fate != CopyState::Complete) {
            return SEQUENCE.broken(format!("r{rank} completes object {object} before an earlier one"));
        }
        let copy = &mut self.objects[object as usize].copies[rank as usize];
        let missing = copy.held.len() as u64 - copy.holds();
        if missing > 0 || !copy.room {
            return STABILITY.broken(format!(
                "r{rank} completes object {object}, of which it lacks {missing} blocks{}",
                if copy.room { "" } else { ", without room" }
            ));
        }
        if copy.on_the_way > 0 && !closing {
            return FRAME_SAFETY.broken(format!(
                "r{rank} completes object {object}, of which {} blocks are being sent",
                copy.on_the_way
            ));
        }
        copy.fate = CopyState::Complete;
        Ok(())
    }

    /// Records that the root's application learns that every member has the object.
    pub(super) fn everywhere(&mut self, object: u64) -> Checked {
        let lacking =
            self.objects[object as usize].copies.iter().position(|copy| copy.holds() < copy.held.len() as u64);
        if let Some(rank) = lacking {
            return STABILITY.broken(format!("object {object} is said to be everywhere, but r{rank} lacks blocks"));
        }
        self.objects[object as usize].everywhere = true;
        Ok(())
    }

    /// Records that the application of `rank` learns that an object failed.
    pub(super) fn failed(&mut self, rank: u32, object: u64) -> Checked {
        self.is_open(rank, object)?;
        if !self.dead.contains(&true) {
            return VALIDITY.broken(format!("object {object} failed at r{rank}, but no member died"));
        }
        self.objects[object as usize].copies[rank as usize].fate = CopyState::Failed;
        Ok(())
    }

    /// Records that `rank` closed the group and names `dead`.
    pub(super) fn close(&mut self, rank: u32, dead: u32) -> Checked {
        if !self.dead[dead as usize] {
            return VALIDITY.broken(format!("r{rank} closes the group for the death of r{dead}, which lives"));
        }
        if std::mem::replace(&mut self.closed[rank as usize], true) {
            return VALIDITY.broken(format!("r{rank} closes the group again"));
        }
        Ok(())
    }

    /// Returns true if `rank` closed.
    pub(super) fn is_closed(&self, rank: u32) -> bool {
        self.closed[rank as usize]
    }

    /// Records that `rank` died.
    pub(super) fn died(&mut self, rank: u32) {
        self.dead[rank as usize] = true;
    }

    /// Checks the end state, when no event is left; the root had `sent` objects to send.
    pub(super) fn rest(&self, sent: usize) -> Checked {
        let survivors = || (0..self.dead.len() as u32).filter(|rank| !self.dead[*rank as usize]);
        if !self.dead.contains(&true) {
            if self.objects.len() < sent {
                return LIVENESS.broken(format!("{} of {sent} objects were begun", self.objects.len()));
            }
            for (o, object) in self.objects.iter().enumerate() {
                if let Some(rank) = object.copies.iter().position(|copy| copy.fate != CopyState::Complete) {
                    return LIVENESS.broken(format!("object {o} rests and is not complete at r{rank}"));
                }
                if !object.everywhere {
                    return LIVENESS.broken(format!("the root never hears that object {o} is everywhere"));
                }
            }
            return Ok(());
        }
        for rank in survivors() {
            if !self.closed[rank as usize] {
                return VALIDITY.broken(format!("r{rank} never hears of the death"));
            }
            for (o, object) in self.objects.iter().enumerate() {
                let copy = &object.copies[rank as usize];
                if copy.sized && copy.fate == CopyState::Open {
                    return VALIDITY.broken(format!("object {o} neither completes nor fails at r{rank}"));
                }
            }
        }
        Ok(())
    }

    fn is_open(&self, rank: u32, object: u64) -> Checked {
        let Some(of) = self.objects.get(object as usize) else {
            return NO_INVENTION.broken(format!("r{rank} is told of object {object}, which was not sent"));
        };
        let copy = &of.copies[rank as usize];
        if copy.fate != CopyState::Open || !copy.sized {
            return VALIDITY
                .broken(format!("r{rank} is told the end of object {object} again: it was {:?}", copy.fate));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three members, two slots, blocks of 10 bytes. One object of 25 bytes is sent, and r1 is
    /// ready for all of it.
    fn example() -> BulkLedger {
        let mut ledger = BulkLedger::new(3, 2, 10);
        ledger.begin(0, 25).unwrap();
        ledger.counts(1, 0, Columns { ready: 3, ..Columns::default() }).unwrap();
        ledger.size(1, 0, 25).unwrap();
        ledger.room(1, 0);
        ledger
    }

    fn number<T: std::fmt::Debug>(result: Result<T, crate::checkers::Violation>) -> u8 {
        result.unwrap_err().number
    }

    #[test]
    fn blocks_that_are_not_held_or_of_a_wrong_length_are_found() {
        let mut ledger = example();
        assert_eq!(ledger.posts(0, 0, 20, 5), Ok(()));
        assert_eq!(number(ledger.posts(0, 0, 20, 10)), 2);
        assert_eq!(number(ledger.posts(0, 0, 5, 10)), 2);
        assert_eq!(number(ledger.posts(1, 0, 0, 10)), 2);
        assert_eq!(number(ledger.posts(0, 1, 0, 10)), 2);
        assert_eq!(number(ledger.size(2, 0, 30)), 2);
    }

    #[test]
    fn blocks_that_land_where_no_room_is_are_found() {
        let mut ledger = example();
        assert_eq!(ledger.lands(1, 0, 0, true), Ok(()));
        assert_eq!(number(ledger.lands(1, 0, 0, false)), 3, "twice");
        assert_eq!(number(ledger.lands(2, 0, 0, true)), 12, "not ready");
        ledger.counts(2, 0, Columns { ready: 2, ..Columns::default() }).unwrap();
        assert_eq!(number(ledger.lands(2, 0, 10, false)), 12, "no room");
        ledger.begin(1, 1).unwrap();
        ledger.begin(2, 1).unwrap();
        assert_eq!(number(ledger.lands(1, 2, 0, true)), 12, "object 0 stands there");
    }

    #[test]
    fn upcalls_that_are_untrue_or_come_twice_are_found() {
        let mut ledger = example();
        assert_eq!(number(ledger.complete(1, 0, false)), 9);
        assert_eq!(number(ledger.everywhere(0)), 9);
        for at in [0, 10, 20] {
            ledger.lands(1, 0, at, at == 0).unwrap();
        }
        ledger.posts(1, 0, 0, 10).unwrap();
        assert_eq!(number(ledger.complete(1, 0, false)), 12, "it is being read");
        ledger.gone(1, 0);
        assert_eq!(ledger.complete(1, 0, false), Ok(()));
        assert_eq!(number(ledger.complete(1, 0, false)), 7);
        assert_eq!(number(ledger.complete(2, 0, false)), 7, "it does not know it");
        assert_eq!(number(ledger.failed(0, 0)), 7, "nobody died");
        assert_eq!(number(ledger.close(1, 2)), 7, "r2 lives");
        ledger.died(2);
        assert_eq!(ledger.close(1, 2), Ok(()));
        assert_eq!(number(ledger.close(1, 2)), 7);
        ledger.begin(1, 5).unwrap();
        ledger.begin(2, 5).unwrap();
        ledger.size(1, 2, 5).unwrap();
        assert_eq!(number(ledger.complete(1, 2, false)), 3, "out of order");
    }

    #[test]
    fn counters_that_fall_or_lie_are_found() {
        let mut ledger = example();
        assert_eq!(number(ledger.counts(1, 0, Columns { ready: 2, ..Columns::default() })), 11);
        assert_eq!(number(ledger.counts(1, 0, Columns { ready: 2, have: 1, ..Columns::default() })), 9);
    }

    #[test]
    fn a_rest_with_something_left_is_found() {
        let mut ledger = example();
        assert_eq!(number(ledger.rest(1)), 15);
        ledger.died(2);
        assert_eq!(number(ledger.rest(1)), 7, "not closed");
        ledger.close(0, 2).unwrap();
        ledger.close(1, 2).unwrap();
        assert_eq!(number(ledger.rest(1)), 7, "silence");
        ledger.failed(0, 0).unwrap();
        ledger.failed(1, 0).unwrap();
        assert_eq!(ledger.rest(1), Ok(()));
    }
}
