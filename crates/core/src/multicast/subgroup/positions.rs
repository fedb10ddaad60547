//! The positions of a subgroup: what is announced, received, stable and delivered, by this member
//! and by all.
use super::{Delivery, Peer, Subgroup};
use crate::ids::Rank;
use crate::multicast::cursor::rounds_before;
use crate::multicast::read_barrier::ReadBarrier;
use crate::multicast::stats::{Frontier, SubgroupStats, Undurable};
use crate::mutation::mutation;
use crate::table::Rows;
use crate::view::Order;

impl Subgroup {
    /// As [`Engine::read_barrier`](crate::Engine::read_barrier).
    pub(crate) fn read_barrier(&self, members: usize) -> Option<ReadBarrier> {
        let is_open = self.order == Order::Total && !self.is_closed();
        is_open.then(|| ReadBarrier::new(members, self.members[self.me], self.layout.entry))
    }

    /// The number of sequence numbers that this member has delivered on the engine's thread.
    pub(crate) fn delivered_inline(&self) -> Option<u64> {
        match (&self.delivery, self.order) {
            (Delivery::Inline(cursor), Order::Total) => Some(cursor.count()),
            _ => None,
        }
    }

    pub(crate) fn stats(&self) -> SubgroupStats {
        let (messages, bytes, batches) = match &self.delivery {
            Delivery::Inline(_) | Delivery::Nobody => return self.stats,
            Delivery::Handoff(handoff) => handoff.counts(),
        };
        SubgroupStats { delivered: messages, delivered_bytes: bytes, delivery_batches: batches, ..self.stats }
    }

    /// The progress of each member, in the order of the subgroup's members.
    pub(crate) fn frontiers(&self) -> impl Iterator<Item = (Rank, Frontier)> {
        let own = Frontier {
            rounds: self.own.rounds,
            received: self.own.received,
            delivered: self.own.delivered.iter().sum(),
        };
        self.members.iter().map(move |&rank| {
            let peer = self.peers.iter().find(|peer| peer.rank == rank);
            let seen =
                |peer: &Peer| Frontier { rounds: peer.rounds, received: peer.received, delivered: peer.delivered };
            (rank, peer.map_or(own, seen))
        })
    }

    /// The sequence numbers that may be delivered here: the stable ones, as far as they are durable if that
    /// is required (INV-DELIVER-DURABLE).
    #[inline]
    pub(crate) fn deliverable(&self) -> u64 {
        match &self.log {
            None => self.stable,
            Some(log) => self.stable.min(log.deliverable()),
        }
    }

    /// As [`Engine::undurable`](crate::Engine::undurable).
    pub(crate) fn undurable(&self) -> Option<Undurable> {
        let log = self.log.as_ref().filter(|_| !self.is_closed())?;
        let sequence_numbers = self.stable.checked_sub(log.deliverable()).filter(|count| *count > 0)?;
        Some(Undurable { sequence_numbers, lacks_members: log.lacks_members() })
    }

    /// Whether this member's application will send nothing more and everything that it sent is
    /// announced.
    pub(crate) fn has_finished_sending(&self) -> bool {
        self.sending.as_ref().is_none_or(|sending| {
            let closed = sending.claims.is_closed();
            closed && (mutation!(FinishedTooEarly) || !sending.has_more(self.own.published))
        })
    }

    /// Whether this member has sent a message in this epoch.
    pub(crate) fn has_sent(&self) -> bool {
        self.own.spoken > 0
    }

    /// Whether every message that the senders announced has been delivered here, and is on my disk
    /// if the subgroup is logged.
    pub(crate) fn has_delivered_all(&self) -> bool {
        match self.order {
            Order::Total => {
                let is_on_disk = self.log.as_ref().is_none_or(|log| log.is_settled());
                self.own.delivered[0] >= self.end() && (is_on_disk || mutation!(LeavesUnwritten))
            }
            Order::Fifo => self.announced().all(|(sender, spoken)| self.own.delivered[sender] >= spoken),
        }
    }

    /// Whether a peer that is not `gone` has not persisted everything that my log has.
    pub(crate) fn awaits_log(&self, gone: impl Fn(Rank) -> bool) -> bool {
        let Some(log) = &self.log else { return false };
        self.peers.iter().enumerate().any(|(index, peer)| log.awaits(index) && !gone(peer.rank))
    }

    /// Whether every message that the senders announced can be delivered here, so that no peer is needed
    /// for that.
    pub(crate) fn has_received_all(&self) -> bool {
        match self.order {
            Order::Total => self.deliverable() >= self.end(),
            Order::Fifo => true,
        }
    }

    /// The position up to which this member's ring is claimed or committed now.
    pub(crate) fn committed(&self) -> u64 {
        self.sending.as_ref().map_or(0, |sending| sending.committed(self.own.published))
    }

    /// Whether every member has delivered all frames of this member's ring before `position`, or none can
    /// do so for want of members.
    pub(crate) fn is_delivered(&self, position: u64) -> bool {
        let lacks_members = self.log.as_ref().is_some_and(|log| log.lacks_members());
        lacks_members || self.sending.as_ref().is_none_or(|sending| sending.checkpoints.popped() >= position)
    }

    /// The number of rounds that this member has announced.
    pub(crate) fn announced_rounds(&self) -> u64 {
        self.own.rounds
    }

    /// The number of rounds of the sender with this sender rank that are delivered here.
    pub(crate) fn delivered_rounds(&self, sender: usize) -> u64 {
        match self.order {
            // The rounds whose sequence numbers are delivered.
            Order::Total => rounds_before(self.own.delivered[0], sender, self.senders),
            Order::Fifo => self.own.delivered[sender],
        }
    }

    /// The round of this member's frame that starts at `position`, which is not free; `None` if the
    /// frame is not announced.
    fn round_at<R: Rows>(&self, position: u64, rows: &R) -> Option<u64> {
        let sending = self.sending.as_ref().filter(|_| position < self.own.published)?;
        Some(rows.load(self.members[self.me], sending.ring.offset(position) + 8))
    }

    /// As [`Engine::outcome`](crate::Engine::outcome).
    pub(crate) fn outcome<R: Rows>(&self, position: u64, rows: &R) -> Option<u64> {
        let sending = self.sending.as_ref()?;
        let sequence = self.sequence(self.round_at(position, rows)?);
        let behind = match self.order {
            Order::Total => self.own.delivered[0],
            Order::Fifo => {
                let others = self.peers.iter().map(|peer| peer.delivered_of_mine);
                others.fold(self.own.delivered[sending.rank], u64::min)
            }
        };
        (sequence < behind).then_some(sequence)
    }

    /// As [`Engine::final_outcome`](crate::Engine::final_outcome).
    pub(crate) fn final_outcome<R: Rows>(&self, position: u64, rows: &R, trim: u64) -> Option<u64> {
        let round = self.round_at(position, rows)?;
        (round < trim).then(|| self.sequence(round))
    }

    /// The number of this member's rounds that belong to the view, once the end of the view is
    /// decided.
    pub(crate) fn trim(&self) -> u64 {
        self.trim
    }

    /// Whether this member's frame at `position` is announced.
    pub(crate) fn is_announced(&self, position: u64) -> bool {
        position < self.own.published
    }

    /// The position up to which every member has delivered this member's ring.
    pub(crate) fn delivered_everywhere(&self) -> Option<u64> {
        self.sending.as_ref().map(|sending| sending.checkpoints.popped())
    }
}
