//! Rows without payloads: each member has its own copy of the control words, and all members read
//! the same ring.
//!
//! A frame does not change while a member may look at it (INV-FRAME), so all members read it where
//! its owner wrote it. Payloads are never written: the model contains their cost, not their
//! content.
use spindle_core::{Layout, Lookup, Rank, Ring, Rows, Table};
use std::cell::Cell;
use std::ops::Range;

/// All rows.
#[derive(Debug)]
pub(super) struct SmallMemory {
    /// By owner: the row as its owner has it.
    rows: Vec<Vec<Cell<u64>>>,
    /// By reader and owner: the control block, as far as it has arrived.
    copies: Vec<Vec<Vec<Cell<u64>>>>,
    zeros: Vec<u8>,
}

/// One member's view of the memory, for one poll.
#[derive(Debug)]
pub(super) struct PollMemory<'a> {
    memory: &'a SmallMemory,
    me: Rank,
    /// The posts: a bit mask of the peers, and the range that was posted.
    pub(super) posts: Vec<(u64, Range<u64>)>,
}

impl SmallMemory {
    pub(super) fn new(layout: &Layout, message_bytes_max: u64) -> SmallMemory {
        let words = |bytes: u64| (0..bytes / 8).map(|_| Cell::new(0)).collect::<Vec<_>>();
        let copies = || layout.rows().iter().map(|row| words(row.control)).collect();
        SmallMemory {
            rows: layout.rows().iter().map(|row| words(row.size)).collect(),
            copies: layout.rows().iter().map(|_| copies()).collect(),
            zeros: vec![0; message_bytes_max as usize],
        }
    }

    pub(super) fn desk(&self, me: Rank) -> PollMemory<'_> {
        PollMemory { memory: self, me, posts: vec![] }
    }

    /// Returns a word of the owner's own row.
    pub(super) fn own(&self, owner: Rank, at: u64) -> &Cell<u64> {
        &self.rows[owner.index()][at as usize / 8]
    }

    /// Returns true if a range of `owner`'s row belongs to its control block.
    pub(super) fn is_control(&self, owner: Rank, range: &Range<u64>) -> bool {
        range.start < self.copies[owner.index()][owner.index()].len() as u64 * 8
    }

    /// Stores a word of `owner`'s control block that has arrived at `reader`.
    pub(super) fn land(&self, reader: Rank, owner: Rank, at: u64, value: u64) {
        self.copies[reader.index()][owner.index()][at as usize / 8].set(value);
    }
}

impl Rows for PollMemory<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        let copy = &self.memory.copies[self.me.index()][member.index()];
        match copy.get(at as usize / 8).filter(|_| member != self.me) {
            Some(word) => word.get(),
            None => self.memory.own(member, at).get(),
        }
    }

    fn bytes(&self, _: Rank, _: u64, len: u64) -> &[u8] {
        &self.memory.zeros[..len as usize]
    }

    type Frames<'a>
        = Lookup<'a, Self>
    where
        Self: 'a;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Self> {
        Lookup::new(self, member, ring)
    }
}

impl Table for PollMemory<'_> {
    fn store(&mut self, at: u64, value: u64) {
        self.memory.own(self.me, at).set(value);
    }

    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        let peers = peers.iter().filter(|peer| **peer != self.me).fold(0, |bits, peer| bits | 1 << peer.0);
        self.posts.push((peers, range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::{MemberId, Order, Rule, SubgroupSpec, View, ViewId};

    #[test]
    fn control_words_are_seen_when_they_land_and_frames_at_once() {
        let ranks = vec![Rank(0), Rank(1)];
        let spec = SubgroupSpec {
            members: ranks.clone(),
            senders: ranks,
            member_rule: Rule::Everyone,
            order: Order::Total,
            ..SubgroupSpec::of_everyone("all")
        };
        let view = View {
            id: ViewId(1),
            members: vec![MemberId(1), MemberId(2)],
            nonvoters: vec![],
            subgroups: vec![spec].into(),
        };
        let layout = Layout::new(&view).unwrap();
        let memory = SmallMemory::new(&layout, 10_000);
        let (mut one, two) = (memory.desk(Rank(0)), memory.desk(Rank(1)));
        let control = layout.row(Rank(0)).control;
        one.store(64, 7);
        one.store(control + 8, 9);
        one.post(&[Rank(0), Rank(1)], 64..128);
        assert_eq!((one.load(Rank(0), 64), two.load(Rank(0), 64), two.load(Rank(0), control + 8)), (7, 0, 9));
        assert_eq!(one.posts, [(2, 64..128)]);
        assert!(memory.is_control(Rank(0), &(64..128)) && !memory.is_control(Rank(0), &(control..control + 64)));
        memory.land(Rank(1), Rank(0), 64, 7);
        assert_eq!(two.load(Rank(0), 64), 7);
    }
}
