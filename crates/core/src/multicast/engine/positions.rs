//! The positions of subgroups: what is committed, stable and delivered, and where.
use super::{Engine, State};
use crate::ids::Position;
use crate::ids::{Rank, SubgroupId};
use crate::multicast::claims::Claims;
use crate::multicast::cursor::{Cursor, Handoff};
use crate::multicast::read_barrier::ReadBarrier;
use crate::multicast::stats::{EngineStats, Frontier, SubgroupStats, Undurable};
use crate::multicast::subgroup::Subgroup;
use crate::table::Rows;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How far the log of a subgroup has come, on its way to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogExtent {
    /// The log has all messages before this position.
    pub taken: Position,
    /// All messages from that position on have clocks later than this one, in ns since 1970, and
    /// none before it has one.
    pub clock: u64,
}

impl Engine {
    /// Whether the epoch of `subgroup` has ended. False if this engine does not have it.
    pub fn is_closed(&self, subgroup: SubgroupId) -> bool {
        self.subgroup(subgroup).is_some_and(Subgroup::is_closed)
    }

    /// Returns the read barrier of `subgroup` in a newest view of so many members. `None` if its order is
    /// not total, if its epoch has ended, or if this engine does not have it.
    pub fn read_barrier(&self, subgroup: SubgroupId, members: usize) -> Option<ReadBarrier> {
        self.subgroup(subgroup)?.read_barrier(members)
    }

    /// How far my applications have come in each of my rings: for
    /// [`is_delivered`](Self::is_delivered).
    pub fn committed(&self) -> Vec<u64> {
        self.subgroups.iter().map(Subgroup::committed).collect()
    }

    /// Whether everything that stood in my rings when they had come so far is delivered by every
    /// member of this view.
    pub fn is_delivered(&self, committed: &[u64]) -> bool {
        // Messages that an epoch left undelivered when it ended are sent again.
        let is_delivered = |subgroup: &Subgroup, position| subgroup.is_closed() || subgroup.is_delivered(position);
        self.subgroups.iter().zip(committed).all(|(subgroup, position)| is_delivered(subgroup, *position))
    }

    /// My ring's claims in `subgroup`; `None` if I don't send there.
    pub fn claims(&self, subgroup: SubgroupId) -> Option<Arc<Claims>> {
        self.subgroup(subgroup)?.claims().cloned()
    }

    /// Hands the deliveries of `subgroup` to a consumer on another thread; `None` if I am not in
    /// it.
    ///
    /// # Panics
    /// If the engine has been polled.
    pub fn hand_off(&mut self, subgroup: SubgroupId) -> Option<(Cursor, Arc<Handoff>)> {
        assert_eq!(self.stats.polls, 0, "deliveries are handed off before the first poll");
        let found = self.subgroups.iter_mut().find(|s| s.id() == subgroup)?;
        Some(found.hand_off(&self.view, &self.layout))
    }

    /// Counts of the whole engine.
    pub fn stats(&self) -> EngineStats {
        self.stats
    }

    /// Counts of `subgroup`; `None` if I am not in it.
    pub fn subgroup_stats(&self, subgroup: SubgroupId) -> Option<SubgroupStats> {
        Some(self.subgroup(subgroup)?.stats())
    }

    /// The state shared with the consumer of `subgroup` on another thread; `None` if there is none,
    /// or it has given up.
    pub fn handoff(&self, subgroup: SubgroupId) -> Option<&Arc<Handoff>> {
        self.subgroup(subgroup)?.handoff()
    }

    /// The number of sequence numbers of `subgroup` that every member has received, as I know it.
    pub fn stable(&self, subgroup: SubgroupId) -> Option<u64> {
        Some(self.subgroup(subgroup)?.stable())
    }

    /// The number of sequence numbers of `subgroup` that may be delivered, as I know it: the
    /// [stable](Self::stable) ones, as far as they are durable if that is required. `None` if I am not in it.
    pub fn deliverable(&self, subgroup: SubgroupId) -> Option<u64> {
        Some(self.subgroup(subgroup)?.deliverable())
    }

    /// The number of sequence numbers of `subgroup` that I have delivered; `None` if I am not in
    /// it, it is Fifo, or a consumer on another thread delivers there.
    pub fn delivered(&self, subgroup: SubgroupId) -> Option<u64> {
        self.subgroup(subgroup)?.delivered_inline()
    }

    /// How many rounds of the sender of this sender rank I have delivered in `subgroup`; 0 if I am
    /// not in it.
    ///
    /// # Panics
    /// If the subgroup has no such sender.
    pub fn delivered_rounds(&self, subgroup: SubgroupId, sender: usize) -> u64 {
        self.subgroup(subgroup).map_or(0, |subgroup| subgroup.delivered_rounds(sender))
    }

    /// The number of rounds that I have announced in `subgroup`; `None` if I am not in it.
    pub fn announced_rounds(&self, subgroup: SubgroupId) -> Option<u64> {
        Some(self.subgroup(subgroup)?.announced_rounds())
    }

    /// The position in my ring in `subgroup` below which every member has delivered everything;
    /// `None` if I don't send there.
    pub fn delivered_everywhere(&self, subgroup: SubgroupId) -> Option<u64> {
        self.subgroup(subgroup)?.delivered_everywhere()
    }

    /// The place that my frame at `position` of my ring in `subgroup` has in the order
    /// ([`SubgroupSpec::sequence`]), once it is delivered here, and so is stable; in a Fifo
    /// subgroup once every member has delivered it. `rows` is the table. Only for a frame behind
    /// the [watch](Claims::set_watch).
    ///
    /// [`SubgroupSpec::sequence`]: crate::SubgroupSpec::sequence
    pub fn outcome<R: Rows>(&self, subgroup: SubgroupId, position: u64, rows: &R) -> Option<u64> {
        self.subgroup(subgroup)?.outcome(position, rows)
    }

    /// As [`outcome`](Self::outcome), after the view has [ended](State::Ended): the place, if the
    /// frame belongs to the view. If not it is [sent again](Self::resend). After the group has
    /// [finished](State::Finished) all frames belong to it.
    pub fn final_outcome<R: Rows>(&self, subgroup: SubgroupId, position: u64, rows: &R) -> Option<u64> {
        let subgroup = self.subgroup(subgroup)?;
        match self.state {
            State::Ended if !subgroup.is_closed() => None,
            State::Ended => subgroup.final_outcome(position, rows, subgroup.trim()),
            State::Finished => subgroup.final_outcome(position, rows, u64::MAX),
            _ => None,
        }
    }

    /// Whether my frame at `position` of my ring in `subgroup` is announced, so that others may
    /// deliver it.
    pub fn is_announced(&self, subgroup: SubgroupId, position: u64) -> bool {
        self.subgroup(subgroup).is_some_and(|subgroup| subgroup.is_announced(position))
    }

    /// The [watch](Claims::set_watch) of my ring in `subgroup` was moved: space may be free behind
    /// it.
    pub fn watch_moved(&mut self, subgroup: SubgroupId) {
        if let Some(i) = self.index_of(subgroup) {
            self.subgroups[i].look_again();
            self.ready.add(i);
            self.last_worked = false;
        }
    }

    /// Notes that the log of `subgroup` has everything up to `position` on disk, if anything, and
    /// may have room again. The driver calls it for the engine of the view with which the
    /// subgroup's epoch began, which may be an [older](crate::control::Member::older) one. Messages
    /// of earlier epochs count as well: the engine knows which of them were not on disk.
    pub fn note_persisted(&mut self, subgroup: SubgroupId, position: Option<Position>) {
        if let Some(i) = self.index_of(subgroup) {
            self.subgroups[i].note_persisted(position);
            self.ready.add(i);
            self.last_worked = false;
        }
    }

    /// Sets whether the log of `subgroup` lacks records of older epochs that may come. Meanwhile it
    /// takes no message, and nothing counts as persisted. The driver calls it before the first poll
    /// of an epoch, and once the log has caught up or has stopped to try: by then all that it has of
    /// older epochs is on disk.
    pub fn set_catching_up(&mut self, subgroup: SubgroupId, is_catching_up: bool) {
        if let Some(i) = self.index_of(subgroup) {
            self.subgroups[i].set_catching_up(is_catching_up);
            self.ready.add(i);
            self.last_worked = false;
        }
    }

    /// The number of sequence numbers of `subgroup` that my log has on disk. `None` if it has no
    /// log, or if some messages of older epochs may not be on disk.
    pub fn persisted(&self, subgroup: SubgroupId) -> Option<u64> {
        self.subgroup(subgroup)?.log()?.persisted()
    }

    /// The number of sequence numbers of `subgroup` that the logs of all members have on disk.
    /// `None` if it has no log, or if some messages of older epochs may not be on all disks. It
    /// does not rise while there are [too few](crate::view::Durability::Logged) members.
    pub fn durable(&self, subgroup: SubgroupId) -> Option<u64> {
        self.subgroup(subgroup)?.log()?.durable()
    }

    /// How far my log of `subgroup` has come; `None` if it has no log.
    pub fn log_extent(&self, subgroup: SubgroupId) -> Option<LogExtent> {
        let log = self.subgroup(subgroup)?.log()?;
        let epoch = self.view.epoch(subgroup);
        Some(LogExtent { taken: Position { epoch, sequence: log.count() }, clock: log.clock() })
    }

    /// Why `subgroup` delivers less than is stable, if it delivers only what is durable: how many sequence
    /// numbers wait, and whether that is for more members rather than for disks. `None` if none waits.
    pub fn undurable(&self, subgroup: SubgroupId) -> Option<Undurable> {
        self.subgroup(subgroup)?.undurable()
    }

    /// Returns how far each member of `subgroup` is, as I know it. The member that has delivered
    /// least holds back the senders.
    pub fn frontiers(&self, subgroup: SubgroupId) -> impl Iterator<Item = (Rank, Frontier)> {
        self.subgroup(subgroup).into_iter().flat_map(Subgroup::frontiers)
    }
}
