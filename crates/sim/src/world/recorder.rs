//! The upcalls of an engine to its application in one poll.
use super::SimDelivery;
use super::logs::Logged;
use crate::apps::digest;
use crate::checkers::durable_prefix::LoggedRecord;
use crate::random::Random;
use crate::table::SimTable;
use spindle_core::{Batch, Position, Records, SubgroupId, Upcalls};
use std::cell::Cell;
use std::rc::Rc;

pub(super) struct Recorder {
    random: Random,
    /// Stores and posts so far in the current poll.
    pub(super) count: Rc<Cell<u64>>,
    partial: bool,
    pub(super) delivered: Vec<SimDelivery>,
    pub(super) rooms: Vec<SubgroupId>,
    pub(super) handed_off: Vec<SubgroupId>,
    /// Records for the logs of the process that is polled.
    pub(super) logged: Vec<Logged>,
    /// The positions from which on logs of that process are to be cut.
    pub(super) cuts: Vec<(SubgroupId, Position)>,
    /// By subgroup: the number of records that its log has room for.
    pub(super) log_room: Vec<u64>,
}

impl Recorder {
    /// If `partial` is true, handlers may take only a part of their batches.
    pub(super) fn new(random: Random, partial: bool) -> Recorder {
        let (delivered, rooms, handed_off, logged, cuts, log_room) = Default::default();
        Recorder { random, count: Rc::default(), partial, delivered, rooms, handed_off, logged, cuts, log_room }
    }

    /// Drops the upcalls of a process that crashed before it could pass them on.
    pub(super) fn forget(&mut self) {
        self.rooms.clear();
        self.handed_off.clear();
        self.logged.clear();
        self.cuts.clear();
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
            delivered.push(SimDelivery { subgroup, sender, round, len, digest, after });
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

    fn log(&mut self, subgroup: SubgroupId, records: &mut Records<'_, SimTable>) {
        let after = self.count.get();
        let Self { logged, log_room, .. } = self;
        let Some(room) = log_room.get_mut(subgroup.index()) else { return };
        let is_rest = records.is_rest();
        records.offer(|record| {
            let goes = *room > 0 || is_rest;
            if goes {
                *room = room.saturating_sub(1);
                let spindle_core::Record { position, clock, time, message } = *record;
                let entry = LoggedRecord { clock, time, sender: message.sender_id, digest: digest(message.payload) };
                logged.push(Logged { subgroup, position, entry, after });
            }
            goes
        });
    }

    fn cut_log(&mut self, subgroup: SubgroupId, from: Position) {
        self.cuts.push((subgroup, from));
    }

    fn room(&mut self, subgroup: SubgroupId) {
        self.rooms.push(subgroup);
    }

    fn handed_off(&mut self, subgroup: SubgroupId) {
        self.handed_off.push(subgroup);
    }
}
