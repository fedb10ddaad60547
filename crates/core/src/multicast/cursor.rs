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
use crate::ids::{MemberId, Rank, SubgroupId};
use crate::mutation::mutation;
use crate::sync::{AtomicBool, AtomicU64, Ordering, Padded};
use crate::table::{Found, Frames, Rows};
use crate::view::{Again, Order, View};
use crate::wire::ring::{Header, Kind, LookAhead, Ring};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

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

/// One lane while [`Batch::run`] reads it, up to the end of its ring's lap.
struct Run<F> {
    frames: F,
    sender: Rank,
    id: MemberId,
    start: u64,
    place: u64,
    stop: u64,
    ahead: LookAhead,
    /// Whether more frames are announced after `stop`.
    wraps: bool,
    /// Rounds below this contain no frame of the sender, apart from those behind `place`.
    next: u64,
}

impl<F> Run<F> {
    #[inline]
    fn new(frames: F, lane: &Lane) -> Run<F> {
        let start = lane.position & (lane.ring.capacity - 1);
        // The last frame of a faulty sender may extend beyond the announced position.
        let announced = start + lane.published.saturating_sub(lane.position);
        let stop = lane.ring.capacity.min(announced);
        Run {
            frames,
            sender: lane.named,
            id: lane.id,
            start,
            place: start,
            stop,
            ahead: LookAhead::from(start),
            wraps: announced > stop,
            next: 0,
        }
    }
}

/// Messages in the order of delivery, borrowed from their senders' rings.
///
/// A message counts as delivered when the batch that yielded it is dropped. A message that was not
/// taken out of the batch is offered again. So a handler that stops early delays only itself, and
/// its senders when their rings are full.
#[derive(Debug)]
pub struct Batch<'a, R> {
    rows: &'a R,
    cursor: &'a mut Cursor,
    /// Sequence numbers from the cursor to the frontier.
    left: u64,
    /// Bytes of frames that the batch may still yield. The last round may exceed it.
    quota: u64,
    messages: u64,
    bytes: u64,
}

impl<R> Batch<'_, R> {
    /// Messages taken so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Payload bytes taken so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of frames that the batch may still yield.
    pub(crate) fn quota(&self) -> u64 {
        self.quota
    }

    /// Limits the batch: it yields nothing after the round in which `bytes` bytes of frames are
    /// reached.
    pub(crate) fn at_most(self, bytes: u64) -> Self {
        Batch { quota: bytes, ..self }
    }
}

impl<R: Rows> Batch<'_, R> {
    /// Reports to the engine that the consumer on this thread has finished the messages that it
    /// took, and the nulls after them.
    pub fn report(mut self, handoff: &Handoff) {
        self.has_next();
        handoff.report(self.cursor, self.messages, self.bytes);
    }
}

/// A run of a batch's messages in progress. Its progress is stored at its end. If the application
/// panics before that, the messages that it received are passed over, so that none is offered
/// twice.
struct Walk<'b, 'a, R: Rows> {
    batch: &'b mut Batch<'a, R>,
    /// Rises by one with every message.
    count: u64,
    /// The value of `count` when the batch had yielded nothing.
    zero: u64,
}

impl<'b, 'a, R: Rows> Walk<'b, 'a, R> {
    #[inline]
    fn new(batch: &'b mut Batch<'a, R>, count: u64) -> Self {
        let zero = count.wrapping_sub(batch.messages);
        Walk { batch, count, zero }
    }
}

impl<R: Rows> Drop for Walk<'_, '_, R> {
    // Always inlined: a count whose address is passed on can't stay in a register.
    #[expect(clippy::inline_always)]
    #[inline(always)]
    fn drop(&mut self) {
        let messages = self.count.wrapping_sub(self.zero);
        if self.batch.messages < messages {
            self.batch.catch_up(messages);
        }
    }
}

impl<'a, R: Rows> Iterator for Batch<'a, R> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        match self.take() {
            None if self.has_next() => self.take().or_else(|| self.take_object()),
            taken => taken,
        }
    }

    /// As [`Batch::for_each`], which would not be found for an owned batch.
    #[inline]
    fn for_each<F: FnMut(Message<'a>)>(mut self, upcall: F) {
        Batch::for_each(&mut self, upcall);
    }
}

impl<'a, R: Rows> Batch<'a, R> {
    /// Calls `upcall` with every message that is left. This is faster than a loop over the
    /// iterator, as the state of the walk stays in registers. If `upcall` panics, the message with
    /// which it was called counts as taken.
    #[inline]
    pub fn for_each(&mut self, mut upcall: impl FnMut(Message<'a>)) {
        loop {
            match (self.cursor.order, self.cursor.lanes.len()) {
                (Order::Fifo, _) | (_, 1) => {}
                (_, 2) => self.run::<2>(&mut upcall),
                (_, 3) => self.run::<3>(&mut upcall),
                (_, 4) => self.run::<4>(&mut upcall),
                // With more senders the state does not fit into registers anyway.
                _ => {
                    while let Some(message) = self.take() {
                        upcall(message);
                    }
                }
            }
            if !self.has_next() {
                return;
            }
            if !self.run_alone(&mut upcall) {
                let Some(message) = self.take_object() else { return };
                upcall(message);
            }
        }
    }

    /// Takes messages until `messages` are taken.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self, messages: u64) {
        while self.messages < messages && self.next().is_some() {}
    }

    /// The round of the message at the cursor, and the end of the rounds in which only its sender
    /// has messages. A sender that is busy for a while sends many messages in a row.
    #[inline]
    fn rounds_alone(&mut self) -> Option<Range<u64>> {
        let cursor = &mut *self.cursor;
        let lane = cursor.lanes.get(cursor.lane)?;
        if cursor.order == Order::Fifo {
            return Some(lane.ahead.unwrap_or(lane.next)..ROUNDS_MAX);
        }
        let (senders, me) = (cursor.lanes.len() as u64, cursor.lane as u64);
        let here = cursor.round * senders + me;
        let mut limit = here + self.left;
        for (rank, lane) in (0..).zip(&mut cursor.lanes).filter(|(rank, _)| *rank != me) {
            match lane.look(self.rows) {
                Ok(_) if mutation!(PassesAnother) => {}
                Ok(round) => limit = round.map_or(limit, |round| limit.min(round * senders + rank)),
                // Garbage, which `seek` finds when its turn comes. The same holds for a sequence
                // number behind the cursor.
                Err(_) => limit = here,
            }
        }
        // The message at the cursor is delivered in any case, as by `next`.
        Some(cursor.round..(limit.max(here + 1) + senders - 1 - me) / senders)
    }

    /// Delivers the message at the cursor, and the messages that follow it from the same sender
    /// with none of another sender between them. Returns whether it delivered any.
    #[inline]
    fn run_alone(&mut self, upcall: &mut impl FnMut(Message<'a>)) -> bool {
        let Some(Range { start: first, end }) = self.rounds_alone() else { return false };
        let mut walk = Walk::new(self, first);
        let batch = &mut *walk.batch;
        let cursor = &mut *batch.cursor;
        let Some(lane) = cursor.lanes.get_mut(cursor.lane) else { return false };
        let frames = batch.rows.frames(lane.sender, &lane.ring);
        let Run { sender, id, start, mut place, stop, .. } = Run::new(frames, lane);
        let stop = stop.min(place.saturating_add(batch.quota));
        let (mut bytes, mut ahead) = (0, LookAhead::from(start));
        while place < stop && walk.count < end {
            let round = walk.count;
            let Some(found) = frames.message(place).filter(|found| found.round == round) else { break };
            ahead.pass(place, stop, |block| frames.prefetch(block));
            walk.count += 1;
            upcall(Message { sender, sender_id: id, round, payload: found.payload });
            bytes += found.payload.len() as u64;
            place += found.span;
        }
        let round = walk.count;
        lane.ahead = None;
        if round == first {
            return false;
        }
        lane.position = lane.ring.after(lane.position, place - start);
        lane.next = round;
        if cursor.order == Order::Total {
            batch.left -= (round - 1 - first) * cursor.lanes.len() as u64 + 1;
            (cursor.round, cursor.lane) = (round - 1, cursor.lane + 1);
            if cursor.lane == cursor.lanes.len() {
                (cursor.round, cursor.lane) = (round, 0);
            }
        }
        batch.quota = batch.quota.saturating_sub(place - start);
        batch.messages += round - first;
        batch.bytes += bytes;
        true
    }

    /// Delivers whole rounds of `N` senders, as far as they contain only plain messages: up to a
    /// void, garbage, the end of a ring's lap, or the last round before the frontier.
    #[inline]
    fn run<const N: usize>(&mut self, upcall: &mut impl FnMut(Message<'a>)) {
        let mut walk = Walk::new(self, 0);
        let batch = &mut *walk.batch;
        let cursor = &mut *batch.cursor;
        let Ok(lanes) = <&mut [Lane; N]>::try_from(&mut cursor.lanes[..]) else { return };
        let mut runs = lanes.each_mut().map(|lane| Run::new(batch.rows.frames(lane.sender, &lane.ring), lane));
        let before = cursor.round * N as u64 + cursor.lane as u64;
        let end = (before + batch.left) / N as u64;
        let (mut round, mut lane, mut bytes) = (cursor.round, cursor.lane, 0);
        let mut quota = batch.quota;
        'rounds: while round < end && quota > 0 {
            let first = walk.count;
            while lane < N {
                let run = &mut runs[lane];
                if run.next <= round {
                    if run.place >= run.stop {
                        if run.wraps {
                            break 'rounds;
                        }
                        run.next = u64::MAX;
                    } else {
                        let Some(found) = run.frames.message(run.place) else { break 'rounds };
                        if found.round == round {
                            let frames = run.frames;
                            run.ahead.pass(run.place, run.stop, |block| frames.prefetch(block));
                            walk.count += 1;
                            upcall(Message { sender: run.sender, sender_id: run.id, round, payload: found.payload });
                            bytes += found.payload.len() as u64;
                            quota = quota.saturating_sub(found.span);
                            run.place += found.span;
                        } else if found.round > round && found.round < ROUNDS_MAX {
                            run.next = found.round;
                        } else {
                            break 'rounds;
                        }
                    }
                }
                lane += 1;
            }
            (lane, round) = (0, round + 1);
            if walk.count == first {
                // A round of nulls: continue with the next round that contains a message.
                let next = runs.iter().map(|run| run.next).fold(u64::MAX, u64::min);
                round = next.clamp(round, end.max(round));
            }
        }
        for (lane, run) in lanes.iter_mut().zip(&runs) {
            if run.place > run.start {
                lane.position = lane.ring.after(lane.position, run.place - run.start);
                lane.ahead = None;
            }
        }
        (cursor.round, cursor.lane) = (round, lane);
        batch.left -= round * N as u64 + lane as u64 - before;
        batch.messages += walk.count;
        batch.quota = quota;
        batch.bytes += bytes;
    }

    /// Whether another message exists; passes over the nulls before it.
    #[inline]
    pub fn has_next(&mut self) -> bool {
        self.left > 0 && self.quota > 0 && (self.is_here() || self.seek_checked())
    }

    /// Whether the next sequence number of the total order is a message, and neither a null nor
    /// behind a void.
    #[inline]
    fn is_here(&self) -> bool {
        let cursor = &*self.cursor;
        let Some(lane) = cursor.lanes.get(cursor.lane) else { return false };
        lane.position < lane.published && cursor.order == Order::Total && {
            let found = self.rows.frames(lane.sender, &lane.ring).message(lane.position);
            found.is_some_and(|found| found.round == cursor.round)
        }
    }

    #[cold]
    fn seek_checked(&mut self) -> bool {
        if self.cursor.defect.is_some() {
            return false;
        }
        let found = match self.cursor.order {
            Order::Total => self.seek(),
            Order::Fifo => self.seek_lane(),
        };
        found.unwrap_or_else(|defect| {
            self.cursor.defect = Some(defect);
            false
        })
    }

    /// Takes the message at the cursor, unless nulls or voids come before it.
    #[inline]
    fn take(&mut self) -> Option<Message<'a>> {
        let cursor = &mut *self.cursor;
        let lane = cursor.lanes.get_mut(cursor.lane)?;
        if lane.position >= lane.published || self.left == 0 || self.quota == 0 {
            return None;
        }
        let found = self.rows.frames(lane.sender, &lane.ring).message(lane.position)?;
        self.pass(found)
    }

    /// Takes the object at the cursor: a message that is stored in no frame. No correct sender has
    /// announced an object that is not here. Its frame is a defect, or is passed over once the
    /// view has ended, like everything that a faulty sender has left.
    #[cold]
    #[inline(never)]
    fn take_object(&mut self) -> Option<Message<'a>> {
        while self.has_next() {
            let cursor = &mut *self.cursor;
            let lane = cursor.lanes.get_mut(cursor.lane)?;
            let frames = self.rows.frames(lane.sender, &lane.ring);
            if let Some(found) = frames.message(lane.position).or_else(|| frames.object(lane.position)) {
                let taken = self.pass(found);
                if taken.is_none() {
                    // The frame has changed since it was read: it must be read again.
                    self.forget();
                }
                return taken;
            }
            let [word, round] = frames.header(lane.position);
            let span = Header::decode(word, &lane.ring).filter(|_| cursor.end.is_some()).map(|header| header.span);
            let Some(span) = span else {
                let defect = Defect { sender: lane.sender, position: lane.position, header: word };
                cursor.defect.get_or_insert(defect);
                return None;
            };
            (lane.position, lane.next, lane.ahead) = (lane.ring.after(lane.position, span), round + 1, None);
        }
        None
    }

    /// Takes the message that was found at the cursor, if it belongs there.
    #[inline(always)]
    fn pass(&mut self, Found { round, span, payload }: Found<'a>) -> Option<Message<'a>> {
        let cursor = &mut *self.cursor;
        let senders = cursor.lanes.len();
        let lane = cursor.lanes.get_mut(cursor.lane)?;
        let place = lane.position;
        match cursor.order {
            Order::Total if round == cursor.round => {
                cursor.lane += 1;
                if cursor.lane == senders {
                    (cursor.lane, cursor.round) = (0, round + 1);
                }
                self.left -= 1;
            }
            Order::Fifo if round >= lane.next.max(lane.skipped) && round < ROUNDS_MAX => {}
            _ => return None,
        }
        lane.position = lane.ring.after(place, span);
        lane.next = round + 1;
        lane.ahead = None;
        self.messages += 1;
        self.quota = self.quota.saturating_sub(span);
        self.bytes += payload.len() as u64;
        Some(Message { sender: lane.named, sender_id: lane.id, round, payload })
    }

    /// Forgets the frame at the cursor, which has changed since it was read: it must be read again.
    #[cold]
    fn forget(&mut self) {
        if let Some(lane) = self.cursor.lanes.get_mut(self.cursor.lane) {
            lane.ahead = None;
        }
    }

    /// Moves to the next message, over nulls and voids, or to the frontier if no message comes
    /// before it.
    fn seek(&mut self) -> Result<bool, Defect> {
        let cursor = &mut *self.cursor;
        let senders = cursor.lanes.len() as u64;
        if self.left == 0 || senders == 0 {
            return Ok(false);
        }
        let mut found = u64::MAX;
        for (rank, lane) in (0..).zip(&mut cursor.lanes) {
            if let Some(round) = lane.look(self.rows)? {
                found = found.min(round * senders + rank + u64::from(mutation!(SkipsARound)));
            }
        }
        let here = cursor.round * senders + cursor.lane as u64;
        if found < here {
            // Sequence numbers behind the cursor contain nothing: the sender stamped a frame with a
            // round that it had announced as null.
            let lane = &cursor.lanes[(found % senders) as usize];
            return Err(Defect { sender: lane.sender, position: lane.position, header: found / senders });
        }
        let there = found.min(here + self.left);
        self.left -= there - here;
        (cursor.round, cursor.lane) = (there / senders, (there % senders) as usize);
        Ok(self.left > 0)
    }

    /// As [`seek`](Self::seek), in a Fifo subgroup.
    fn seek_lane(&mut self) -> Result<bool, Defect> {
        let cursor = &mut *self.cursor;
        let lanes = cursor.lanes.len();
        for i in (0..lanes).map(|i| (cursor.lane + i) % lanes) {
            if cursor.lanes[i].look(self.rows)?.is_some() {
                cursor.lane = i;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Stored in place of a count: the consumer has found a [`Defect`].
const STOPPED: u64 = u64::MAX;

/// The words that the engine and a consumer on another thread exchange about one subgroup.
#[derive(Debug)]
pub struct Handoff {
    frontier: Padded<AtomicU64>,
    /// One count in a subgroup with a total order, one for each sender in a Fifo subgroup. The
    /// first is [`STOPPED`] after a defect.
    delivered: Padded<Box<[AtomicU64]>>,
    /// Whether the consumer has ended.
    given_up: AtomicBool,
    /// The trims by sender rank, once the view has ended.
    trims: Box<[AtomicU64]>,
    ended: AtomicBool,
    /// Sender, position and header of the defect that stopped the consumer.
    defect: [AtomicU64; 3],
    messages: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
}

impl Handoff {
    pub(crate) fn new(order: Order, senders: usize) -> Handoff {
        let counts = match order {
            Order::Total => 1,
            Order::Fifo => senders,
        };
        Handoff {
            frontier: Padded(AtomicU64::new(0)),
            delivered: Padded((0..counts).map(|_| AtomicU64::new(0)).collect()),
            given_up: AtomicBool::new(false),
            trims: (0..senders).map(|_| AtomicU64::new(0)).collect(),
            ended: AtomicBool::new(false),
            defect: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    /// The frontier up to which the consumer may deliver, for [`Cursor::advance`]. In a Fifo
    /// subgroup it only shows that something was announced.
    pub fn frontier(&self) -> u64 {
        // Acquire: pairs with the release in `raise`. The consumer sees everything that the engine
        // saw announced.
        self.frontier.load(Ordering::Acquire)
    }

    /// Reports to the engine that the consumer has finished everything behind `cursor`, and the
    /// defect that stopped it, if any.
    pub fn report(&self, cursor: &Cursor, messages: u64, bytes: u64) {
        // Release: pairs with the acquire in `delivered`, so that no frame is freed before its
        // reader has finished.
        match cursor.order {
            Order::Total => self.delivered[0].store(cursor.count(), Ordering::Release),
            Order::Fifo => {
                for (count, lane) in self.delivered.iter().zip(&cursor.lanes) {
                    count.store(lane.next, Ordering::Release);
                }
            }
        }
        if let Some(Defect { sender, position, header }) = cursor.defect {
            for (word, value) in self.defect.iter().zip([sender.0.into(), position, header]) {
                word.store(value, Ordering::Relaxed);
            }
            self.delivered[0].store(STOPPED, Ordering::Release);
        }
        if messages > 0 {
            // Only one consumer exists: plain additions, no read-modify-write.
            let add = |count: &AtomicU64, by| count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
            add(&self.messages, messages);
            add(&self.bytes, bytes);
            add(&self.batches, 1);
        }
    }

    /// The trims with which the view ends, by sender rank, once that is decided, for
    /// [`Cursor::close`].
    pub fn trims(&self) -> Option<Vec<u64>> {
        // Acquire: pairs with the release in `end`.
        let ended = self.ended.load(Ordering::Acquire);
        ended.then(|| self.trims.iter().map(|trim| trim.load(Ordering::Relaxed)).collect())
    }

    /// Reports to the consumer that the view has ended.
    pub(crate) fn end(&self, trims: &[u64]) {
        for (word, trim) in self.trims.iter().zip(trims) {
            word.store(*trim, Ordering::Relaxed);
        }
        // Release: a consumer that loads it sees the trims, and everything that the engine has seen
        // of the rows.
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn raise(&self, frontier: u64) {
        self.frontier.store(frontier, Ordering::Release);
    }

    /// Reports to the engine that no consumer will take the deliveries any more: they count as
    /// delivered from now on.
    pub fn give_up(&self) {
        // Release: the consumer's reads come before any reuse of the space.
        self.given_up.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// The progress of the consumer, or the defect that it found.
    pub(crate) fn delivered(&self, index: usize) -> Result<u64, Defect> {
        match self.delivered[index].load(Ordering::Acquire) {
            STOPPED => Err(self.defect()),
            count => Ok(count),
        }
    }

    #[cold]
    fn defect(&self) -> Defect {
        let [sender, position, header] = self.defect.each_ref().map(|word| word.load(Ordering::Relaxed));
        Defect { sender: Rank(sender as u32), position, header }
    }

    /// Returns the numbers of messages, bytes and batches that the consumer has taken so far.
    pub fn counts(&self) -> (u64, u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.messages), load(&self.bytes), load(&self.batches))
    }
}
