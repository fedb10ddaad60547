//! The upcalls of an engine to its application in one poll.
use super::Delivered;
use crate::apps::digest;
use crate::random::Random;
use crate::table::SimTable;
use spindle_core::{Batch, SubgroupId, Upcalls};
use std::cell::Cell;
use std::rc::Rc;

pub(super) struct Recorder {
    random: Random,
    /// Stores and posts so far in the current poll.
    pub(super) count: Rc<Cell<u64>>,
    partial: bool,
    pub(super) delivered: Vec<Delivered>,
    pub(super) rooms: Vec<SubgroupId>,
    pub(super) handed_off: Vec<SubgroupId>,
}

impl Recorder {
    /// If `partial` is true, handlers may take only a part of their batches.
    pub(super) fn new(random: Random, partial: bool) -> Recorder {
        Recorder { random, count: Rc::default(), partial, delivered: vec![], rooms: vec![], handed_off: vec![] }
    }

    /// Drops the upcalls of a process that crashed before it could pass them on.
    pub(super) fn forget(&mut self) {
        self.rooms.clear();
        self.handed_off.clear();
    }

    /// Returns how many messages a handler takes out of a batch.
    fn appetite(&mut self) -> usize {
        if !self.partial || self.random.one_in(8) {
            return usize::MAX;
        }
        let most = self.random.pick(&[4, 64, 1024]);
        self.random.below(most) as usize
    }

    /// Takes messages out of a batch, by one of the two ways.
    pub(super) fn take(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, SimTable>) {
        let most = self.appetite();
        let after = self.count.get();
        let delivered = &mut self.delivered;
        let take = |message: spindle_core::Message<'_>| {
            let spindle_core::Message { sender, round, payload, .. } = message;
            let (len, digest) = (payload.len() as u64, digest(payload));
            delivered.push(Delivered { subgroup, sender, round, len, digest, after });
        };
        match most {
            usize::MAX => batch.for_each(take),
            most => batch.take(most).for_each(take),
        }
    }
}

impl Upcalls<SimTable> for Recorder {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, SimTable>) {
        self.take(subgroup, batch);
    }

    fn room(&mut self, subgroup: SubgroupId) {
        self.rooms.push(subgroup);
    }

    fn handed_off(&mut self, subgroup: SubgroupId) {
        self.handed_off.push(subgroup);
    }
}
