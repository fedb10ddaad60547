//! The messages of one subgroup as an observer reads them, in their order.
use super::{Lane, Lapped, Seen};
use crate::ids::{MemberId, Rank, SubgroupId};
use crate::multicast::cursor::sequence_end;
use crate::table::Rows;
use crate::view::Order;
use crate::wire::layout::entry;
use alloc::vec::Vec;

/// The state of one subgroup.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: SubgroupId,
    pub(super) order: Order,
    pub(super) lanes: Vec<Lane>,
    /// Offsets of the members' `received`.
    pub(super) received: Vec<(Rank, u64)>,
    /// Whether members deliver only what is durable, and whether they are too few for that.
    pub(super) delivers_durable: bool,
    pub(super) lacks_copies: bool,
    pub(super) round: u64,
    pub(super) lane: usize,
    /// The limit up to which to read before it is computed again: a sequence number in a total
    /// order, otherwise a position in the ring of this lane.
    pub(super) frontier: u64,
    /// Whether the view has ended and has not touched the subgroup. Its end comes with a later
    /// view, and is not seen here.
    pub(super) goes_on: bool,
    /// The value of `known` for senders that have no lane here because their subgroup is
    /// unavailable.
    pub(super) waiting: Vec<(MemberId, u64)>,
}

impl Stream {
    pub(super) fn senders(&self) -> u64 {
        self.lanes.len() as u64
    }

    /// The number of sequence numbers of the total order behind the observer.
    pub(super) fn sequence(&self) -> u64 {
        self.round * self.senders() + self.lane as u64
    }

    fn go_to(&mut self, sequence: u64) {
        let senders = self.senders();
        (self.round, self.lane) = (sequence / senders, (sequence % senders) as usize);
    }

    /// The first round, by sender, that is not behind the observer.
    pub(super) fn rounds(&self) -> impl Iterator<Item = u64> {
        let (order, round, current) = (self.order, self.round, self.lane);
        self.lanes.iter().enumerate().map(move |(rank, lane)| match order {
            Order::Total => round + u64::from(rank < current),
            Order::Fifo => lane.next,
        })
    }

    /// Moves to the present: in a total order to the stable frontier, as far as these rows show it.
    pub(super) fn go_to_present<R: Rows>(&mut self, rows: &R) {
        if self.order == Order::Fifo || self.lanes.is_empty() {
            self.lanes.iter_mut().for_each(|lane| lane.go_to_present(rows));
            return;
        }
        loop {
            // A view that has ended may have been read beyond that.
            self.go_to(self.delivered(rows).max(self.stable(rows)).max(self.sequence()));
            let mut is_lost = false;
            for (rank, lane) in self.lanes.iter_mut().enumerate() {
                let first = self.round + u64::from(rank < self.lane);
                // Its row may be the older one. Then frames of earlier rounds arrive later, and are
                // passed over then.
                let announced = lane.announced(rows);
                is_lost |= lane.pass_until(rows, first);
                lane.next = lane.next.max(first.min(announced));
            }
            // A frame that is freed while it is passed over was delivered by its sender before,
            // perhaps after this sequence number.
            if !is_lost || self.delivered(rows) <= self.sequence() {
                return;
            }
        }
    }

    /// The highest `delivered` of any member. Rows of other members may be older here than the row
    /// of a sender that has freed what they delivered.
    pub(super) fn delivered<R: Rows>(&self, rows: &R) -> u64 {
        let delivered =
            |(rank, received): &(Rank, u64)| rows.load(*rank, received - entry::RECEIVED + entry::DELIVERED);
        self.received.iter().map(delivered).max().unwrap_or(0)
    }

    /// The sequence numbers that every member has received, and has on disk if that is required
    /// (INV-DELIVER-DURABLE).
    fn stable<R: Rows>(&self, rows: &R) -> u64 {
        let received = self.received.iter().map(|(rank, at)| rows.load(*rank, *at)).min().unwrap_or(0);
        if !self.delivers_durable {
            return received;
        }
        let persisted = |(rank, at): &(Rank, u64)| rows.load(*rank, at - entry::RECEIVED + entry::PERSISTED);
        let durable = self.received.iter().map(persisted).min().unwrap_or(0).saturating_sub(1);
        if self.lacks_copies { 0 } else { received.min(durable) }
    }

    /// Computes the limit up to which the stream may be read now.
    pub(super) fn enter<R: Rows>(&mut self, rows: &R, is_over: bool) {
        self.frontier = match self.order {
            Order::Total if is_over && !self.goes_on => self.arrived(rows),
            Order::Total => self.stable(rows),
            Order::Fifo => {
                self.lane = 0;
                self.lanes.first().map_or(0, |lane| lane.published(rows))
            }
        };
    }

    pub(super) fn next<R: Rows>(&mut self, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Seen>, Lapped> {
        match self.order {
            Order::Total => self.next_in_order(rows, copy),
            Order::Fifo => self.next_of_anybody(rows, copy),
        }
    }

    fn next_of_anybody<R: Rows>(&mut self, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Seen>, Lapped> {
        let subgroup = self.id;
        while let Some(lane) = self.lanes.get_mut(self.lane) {
            while lane.position < self.frontier
                && let Some(found) = lane.take(subgroup, rows, copy)?
            {
                if found.is_object && found.round >= lane.known {
                    return Err(Lapped { subgroup, sender: lane.sender, round: found.round, is_object: true });
                }
                if found.len.is_some() && found.round >= lane.known {
                    return Ok(Some(Seen { subgroup, sender: lane.sender, round: found.round }));
                }
            }
            self.lane += 1;
            self.frontier = self.lanes.get(self.lane).map_or(0, |lane| lane.published(rows));
        }
        Ok(None)
    }

    fn next_in_order<R: Rows>(&mut self, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Seen>, Lapped> {
        // Consecutive lanes that had nothing in their round.
        let mut silent = 0;
        while self.sequence() < self.frontier {
            let (subgroup, round, announced) = (self.id, self.round, self.announced(self.lane));
            let lane = &mut self.lanes[self.lane];
            let found = match lane.next <= round && round < lane.trim {
                true => lane.take_round(subgroup, rows, round, announced, copy)?,
                false => None,
            };
            let sender = lane.sender;
            self.lane += 1;
            if self.lane == self.lanes.len() {
                (self.lane, self.round) = (0, round + 1);
            }
            if found.as_ref().is_some_and(|found| found.is_object) {
                return Err(Lapped { subgroup, sender, round, is_object: true });
            }
            silent = if found.is_some() { 0 } else { silent + 1 };
            if found.is_some_and(|found| found.len.is_some()) {
                return Ok(Some(Seen { subgroup, sender, round }));
            }
            if silent == self.lanes.len() {
                self.pass_silence();
                silent = 0;
            }
        }
        Ok(None)
    }

    /// Rounds of a lane before the frontier.
    pub(super) fn announced(&self, lane: usize) -> u64 {
        self.frontier.saturating_sub(lane as u64).div_ceil(self.senders())
    }

    /// Moves to the first sequence number at which a sender may have a message, after a whole round
    /// of nulls. Millions of rounds may be skipped.
    fn pass_silence(&mut self) {
        let senders = self.senders();
        let next = self.lanes.iter().zip(0..).filter(|(lane, _)| lane.next < lane.trim);
        let next = next.map(|(lane, rank)| lane.next * senders + rank).min().unwrap_or(u64::MAX);
        self.go_to(next.min(self.frontier).max(self.sequence()));
    }

    /// Sequence numbers of a total order that are part of the view, once its end is known.
    pub(super) fn end(&self) -> u64 {
        let ends = self.lanes.iter().enumerate().map(|(rank, lane)| sequence_end(lane.trim, rank, self.lanes.len()));
        ends.max().unwrap_or(0)
    }

    /// The frontier up to which all messages of the view have arrived, once its end is known. A
    /// process that shares memory with all members finds all of them at once. Over a network, one
    /// member may report the end before the last messages of another have arrived.
    pub(super) fn arrived<R: Rows>(&self, rows: &R) -> u64 {
        let missing = self.lanes.iter().zip(0..).filter(|(lane, _)| !lane.has_all(rows));
        let missing = missing.map(|(lane, rank)| lane.announced(rows) * self.senders() + rank);
        missing.min().unwrap_or(u64::MAX).min(self.end())
    }

    pub(super) fn is_at_end<R: Rows>(&self, rows: &R) -> bool {
        match self.order {
            _ if self.goes_on => true,
            Order::Fifo => self.lanes.iter().all(|lane| lane.has_all(rows) && lane.look(rows).is_none()),
            Order::Total => self.end() <= self.sequence(),
        }
    }

    pub(super) fn is_finished<R: Rows>(&self, rows: &R) -> bool {
        self.lanes.iter().zip(self.rounds()).all(|(lane, next)| match self.order {
            Order::Fifo => lane.position >= lane.published(rows),
            Order::Total => next >= rows.load(lane.sender, lane.entry + entry::SPOKEN),
        })
    }
}
