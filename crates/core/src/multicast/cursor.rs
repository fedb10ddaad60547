//! Walks the frames of a subgroup in the order of delivery, in place.
//!
//! A [`Cursor`] knows the next frame of each sender. Given a frontier, it returns a [`Batch`]: an
//! iterator over the messages below it, which are stored in the senders' rings. The engine uses one
//! cursor for upcalls on its own thread. A consumer on another thread uses its own cursor and
//! reports its progress ([`Handoff`]). No queue exists between them, because the rings are the
//! queue.
//!
//! Data that a peer wrote is checked before it is used. A frame that no correct sender can have
//! written stops the cursor with a [`Defect`], never with a panic.
mod batch;
mod handoff;

use crate::ids::{MemberId, Rank, SubgroupId};
use crate::mutation::mutation;
use crate::table::{Frames, Rows};
use crate::view::{Again, Order, View};
use crate::wire::ring::{Header, Kind, Ring};
use alloc::vec::Vec;
pub use batch::Batch;
pub(crate) use batch::Timed;
pub use handoff::Handoff;

/// One message, in place.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The rank of its sender: in the view that an observer or a receiver names, and in the newest
    /// view if a node delivers the message.
    pub sender: Rank,
    /// The id of its sender, the same in all views.
    pub sender_id: MemberId,
    /// Its round. In a subgroup with a total order, messages are ordered by (round, sender).
    pub round: u64,
    /// The payload, in the sender's ring.
    pub payload: &'a [u8],
}

/// A frame, or a run of frames, that breaks the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Defect {
    /// The owner of the ring that contains it.
    pub sender: Rank,
    /// Its position in that ring.
    pub position: u64,
    /// The word that shows the defect: the frame's header or its round, or the announced position
    /// of the ring.
    pub header: u64,
}

/// Rounds in the life of a view are below this number. A frame with a higher round is garbage.
pub(crate) const ROUNDS_MAX: u64 = 1 << 48;

/// Every frontier is below this number.
const SEQUENCE_MAX: u64 = u64::MAX / 4;

/// The number of sequence numbers of a total order up to and including the last of the first
/// `rounds` rounds of the sender with sender rank `sender`.
pub(crate) fn sequence_end(rounds: u64, sender: usize, senders: usize) -> u64 {
    let (sender, senders) = (sender as u64, senders as u64);
    (rounds * senders + sender + 1).saturating_sub(senders)
}

/// The rounds of the sender with sender rank `sender` among the first `count` sequence numbers of a total
/// order.
pub(crate) fn rounds_before(count: u64, sender: usize, senders: usize) -> u64 {
    let (sender, senders) = (sender as u64, senders as u64);
    (count + senders - 1 - sender) / senders
}

/// The frames of one sender.
#[derive(Clone, Hash, Debug)]
struct Lane {
    /// The position at which the next frame starts, or will start.
    position: u64,
    published: u64,
    /// No frame from `position` on has a smaller round.
    next: u64,
    /// The round of the message at `position`, once it was read.
    ahead: Option<u64>,
    ring: Ring,
    sender: Rank,
    id: MemberId,
    /// The sender's rank in the view that the consumer of the messages knows.
    named: Rank,
    /// Offset in the sender's row of the word with the announced position of its ring.
    published_at: u64,
    /// Rounds below this were delivered in an earlier view, and are passed over. 0 in a subgroup
    /// with a total order.
    skipped: u64,
    /// Rounds after the end of this view that were delivered before the end was known. They arrive
    /// again in the next view.
    beyond: u64,
}

/// A position in the order of one subgroup.
#[derive(Hash, Debug)]
pub struct Cursor {
    lanes: Vec<Lane>,
    order: Order,
    /// The round of the next sequence number of the total order.
    round: u64,
    /// The lane of the next sequence number; in a Fifo subgroup, the lane that was read last.
    lane: usize,
    defect: Option<Defect>,
    /// The sequence number at which the view ends, once that is decided.
    end: Option<u64>,
    /// The value of `skipped` for senders that have no lane here because their subgroup is
    /// unavailable: see [`Again::Later`].
    waiting: Vec<(MemberId, u64)>,
}

impl Cursor {
    /// Returns a cursor at the start. `senders` yields, by sender rank, each sender's rank, its id,
    /// its ring, and the offset of its `published` word.
    pub(crate) fn new(order: Order, senders: impl Iterator<Item = (Rank, MemberId, Ring, u64)>) -> Cursor {
        let lanes = senders.map(|(sender, id, ring, published_at)| {
            let (position, published, next, ahead, skipped, beyond) = Default::default();
            Lane { position, published, next, ahead, ring, sender, id, named: sender, published_at, skipped, beyond }
        });
        Cursor { lanes: lanes.collect(), order, round: 0, lane: 0, defect: None, end: None, waiting: Vec::new() }
    }

    /// Returns the messages from here up to `frontier` sequence numbers of the total order; in a
    /// Fifo subgroup, all announced messages.
    ///
    /// Once the cursor was [closed](Self::close), returns those up to the end of the view, for any
    /// frontier.
    pub fn advance<'a, R: Rows>(&'a mut self, rows: &'a R, frontier: u64) -> Batch<'a, R> {
        if self.end.is_none() {
            self.load_published(rows);
        }
        let frontier = self.end.unwrap_or(frontier);
        let left = match self.order {
            Order::Total => frontier.min(SEQUENCE_MAX).saturating_sub(self.count()),
            Order::Fifo => {
                // Start with another sender's turn: a sender that is always busy must not keep the
                // others waiting.
                self.lane = (self.lane + 1) % self.lanes.len().max(1);
                u64::MAX
            }
        };
        Batch { rows, cursor: self, left, quota: u64::MAX, messages: 0, bytes: 0 }
    }

    fn load_published<R: Rows>(&mut self, rows: &R) {
        for lane in &mut self.lanes {
            // Loaded after the frontier, so everything below the frontier is announced by it.
            lane.published = rows.load(lane.sender, lane.published_at);
            // INV-MONOTONE and INV-FRAME: the position never goes back, and never beyond a lap over
            // unread frames.
            if lane.published.wrapping_sub(lane.position) > lane.ring.capacity {
                let defect = Defect { sender: lane.sender, position: lane.position, header: lane.published };
                self.defect.get_or_insert(defect);
                lane.published = lane.position;
            }
        }
    }

    /// Closes the cursor, as the view has ended: from now on it yields the messages below `trims`,
    /// by sender rank in rounds, and no others. Frames of a sender that can't be read do not count,
    /// at any member.
    ///
    /// # Panics
    /// If `trims` does not contain one trim for each sender.
    pub fn close<R: Rows>(&mut self, rows: &R, trims: &[u64]) {
        assert_eq!(trims.len(), self.lanes.len(), "one trim a sender");
        self.load_published(rows);
        self.defect = None;
        let senders = self.lanes.len();
        let mut end = 0;
        for ((rank, lane), trim) in self.lanes.iter_mut().enumerate().zip(trims.iter().copied()) {
            let frames = rows.frames(lane.sender, &lane.ring);
            // In a total order the rounds behind the cursor have passed, with frames or as nulls.
            let passed = if self.order == Order::Total { self.round + u64::from(rank < self.lane) } else { 0 };
            let (mut position, mut next) = (lane.position, lane.next.max(passed));
            while position < lane.published && !mutation!(DeliversBeyondTrim) {
                let [word, round] = frames.header(position);
                let header = Header::decode(word, &lane.ring).filter(|_| (next..trim).contains(&round));
                let Some(header) = header else { break };
                (position, next) = (lane.ring.after(position, header.span), round + 1);
            }
            if !mutation!(DeliversBeyondTrim) {
                lane.published = position;
            }
            lane.ahead = None;
            // Consumed before the view ended, but beyond its end: the message arrives again in the
            // next view.
            lane.beyond = lane.next.max(lane.skipped).saturating_sub(trim);
            end = end.max(sequence_end(trim, rank, senders));
        }
        self.end = Some(end);
    }

    /// Whether the cursor was [closed](Self::close).
    pub fn is_closed(&self) -> bool {
        self.end.is_some()
    }

    /// The sequence number of the total order at which the view ends, once the cursor was
    /// [closed](Self::close).
    pub(crate) fn end(&self) -> Option<u64> {
        self.end
    }

    /// Whether the cursor was closed, and all messages below the trims have been taken.
    pub fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| match self.order {
            Order::Total => self.count() >= end || self.lanes.iter().all(|lane| lane.position >= lane.published),
            Order::Fifo => self.lanes.iter().all(|lane| lane.position >= lane.published),
        })
    }

    /// Continues after the end of `old`, which is closed. In a Fifo subgroup its senders send again
    /// the messages that were announced and not received by all members. `old` may have yielded a
    /// part of them. `from` and `to` are the views of the two cursors, and the subgroup there.
    ///
    /// # Panics
    /// If one of the views has no such subgroup.
    pub fn follow(&mut self, old: &Cursor, from: (&View, SubgroupId), to: (&View, SubgroupId)) {
        if old.order == Order::Total || mutation!(FifoTwice) {
            return;
        }
        let id = |lane: &Lane| from.0.members.get(lane.sender.index()).copied();
        let beyond = old.lanes.iter().filter_map(|lane| Some((id(lane)?, lane.beyond)));
        for (sender, rounds) in beyond.chain(old.waiting.iter().copied()) {
            self.pass_over(sender, rounds, to);
        }
    }

    /// Passes over the first `rounds` rounds that `sender` sends in its next ring, because they
    /// were delivered before. In a total order that never happens. `here` is the view of the
    /// cursor, and the subgroup there.
    pub(crate) fn pass_over(&mut self, sender: MemberId, rounds: u64, here: (&View, SubgroupId)) {
        if self.order == Order::Total || rounds == 0 {
            return;
        }
        match here.0.sends_again(here.1, sender) {
            Some(Again::Here(sender)) => self.lanes[sender].skipped = rounds,
            Some(Again::Later) if !mutation!(WaitingForgotten) => self.waiting.push((sender, rounds)),
            _ => {}
        }
    }

    /// Returns another cursor at the same position.
    pub(crate) fn fork(&self) -> Cursor {
        Cursor { lanes: self.lanes.clone(), waiting: self.waiting.clone(), ..*self }
    }

    /// The number of sequence numbers of the total order behind the cursor.
    pub fn count(&self) -> u64 {
        self.round * self.lanes.len() as u64 + self.lane as u64
    }

    /// Changes the ranks by which messages name their senders: `rank` maps the old rank to the new
    /// one.
    pub(crate) fn rename(&mut self, rank: impl Fn(Rank) -> Option<Rank>) {
        for lane in &mut self.lanes {
            lane.named = rank(lane.sender).unwrap_or(lane.sender);
        }
    }

    /// The number of rounds of the sender with this sender rank that are behind the cursor, in a
    /// Fifo subgroup.
    pub fn taken(&self, sender: usize) -> u64 {
        self.lanes[sender].next
    }

    /// Whether `frontier`, as the engine handed it off, is ahead of the cursor.
    pub fn is_behind(&self, frontier: u64) -> bool {
        match self.order {
            Order::Total => self.count() < frontier,
            Order::Fifo => self.lanes.iter().map(|lane| lane.next).sum::<u64>() < frontier,
        }
    }

    /// Senders of the subgroup.
    pub fn senders(&self) -> usize {
        self.lanes.len()
    }

    /// The defect that stopped the cursor for good, if one did.
    pub fn defect(&self) -> Option<Defect> {
        self.defect
    }
}

impl Lane {
    /// Passes over voids. Returns the round of the frame at `position` then, if one is announced.
    fn look<R: Rows>(&mut self, rows: &R) -> Result<Option<u64>, Defect> {
        if self.ahead.is_some() {
            return Ok(self.ahead);
        }
        let frames = rows.frames(self.sender, &self.ring);
        while self.position < self.published {
            let [word, round] = frames.header(self.position);
            let header = Header::decode(word, &self.ring);
            // Rounds ascend.
            let Some(header) = header.filter(|_| round >= self.next && round < ROUNDS_MAX) else {
                return Err(Defect { sender: self.sender, position: self.position, header: word });
            };
            if header.kind != Kind::Void && round >= self.skipped {
                self.ahead = Some(round);
                return Ok(self.ahead);
            }
            self.position = self.ring.after(self.position, header.span);
            self.next = round + 1;
        }
        Ok(None)
    }
}
