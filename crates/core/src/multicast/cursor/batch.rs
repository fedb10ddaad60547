//! A batch: the messages at a cursor that are stable.
//!
//! A batch lends each message from its ring, and moves the cursor when it ends.
use super::{Cursor, Defect, Handoff, Lane, Message, ROUNDS_MAX};
use crate::ids::{MemberId, Rank};
use crate::mutation::mutation;
use crate::table::{Found, Frames, Rows};
use crate::view::Order;
use crate::wire::ring::{HEADER_BYTES, Header, LookAhead, TIME_BYTES};
use core::ops::Range;

/// One lane while [`Batch::run`] reads it, up to the end of its ring's lap.
struct Run<F> {
    pub(super) frames: F,
    pub(super) sender: Rank,
    pub(super) id: MemberId,
    pub(super) start: u64,
    pub(super) place: u64,
    pub(super) stop: u64,
    pub(super) ahead: LookAhead,
    /// Whether more frames are announced after `stop`.
    pub(super) wraps: bool,
    /// Rounds below this contain no frame of the sender, apart from those behind `place`.
    pub(super) next: u64,
}

impl<F> Run<F> {
    #[inline]
    pub(super) fn new(frames: F, lane: &Lane) -> Run<F> {
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

/// The message at the cursor of a logged subgroup.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    /// The time at which it was sent.
    pub(crate) time: u64,
    pub(crate) sequence: u64,
    pub(crate) message: Message<'a>,
}

/// Messages in the order of delivery, borrowed from their senders' rings.
///
/// A message counts as delivered when the batch that yielded it is dropped. A message that was not
/// taken out of the batch is offered again. So a handler that stops early delays only itself, and
/// its senders when their rings are full.
#[derive(Debug)]
pub struct Batch<'a, R> {
    pub(super) rows: &'a R,
    pub(super) cursor: &'a mut Cursor,
    /// Sequence numbers from the cursor to the frontier.
    pub(super) left: u64,
    /// Bytes of frames that the batch may still yield. The last round may exceed it.
    pub(super) quota: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
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

    /// Lets the batch yield `bytes` bytes less.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.quota = self.quota.saturating_sub(bytes);
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
    pub(super) batch: &'b mut Batch<'a, R>,
    /// Rises by one with every message.
    pub(super) count: u64,
    /// The value of `count` when the batch had yielded nothing.
    pub(super) zero: u64,
}

impl<'b, 'a, R: Rows> Walk<'b, 'a, R> {
    #[inline]
    pub(super) fn new(batch: &'b mut Batch<'a, R>, count: u64) -> Self {
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
    pub(super) fn run<const N: usize>(&mut self, upcall: &mut impl FnMut(Message<'a>)) {
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
    pub(super) fn take(&mut self) -> Option<Message<'a>> {
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
            self.pass_over()?;
        }
        None
    }

    /// Passes over the frame at the cursor, which contains no message, once the view has ended.
    /// Before that the frame is a defect, and the result is `None`.
    #[cold]
    fn pass_over(&mut self) -> Option<()> {
        let cursor = &mut *self.cursor;
        let lane = cursor.lanes.get_mut(cursor.lane)?;
        let [word, round] = self.rows.frames(lane.sender, &lane.ring).header(lane.position);
        let span = Header::decode(word, &lane.ring).filter(|_| cursor.end.is_some()).map(|header| header.span);
        let Some(span) = span else {
            let defect = Defect { sender: lane.sender, position: lane.position, header: word };
            cursor.defect.get_or_insert(defect);
            return None;
        };
        (lane.position, lane.next, lane.ahead) = (lane.ring.after(lane.position, span), round + 1, None);
        Some(())
    }

    /// Returns the message of a logged subgroup that [`next`](Iterator::next) will return, and
    /// leaves it there.
    pub(crate) fn peek_timed(&mut self) -> Option<Timed<'a>> {
        while self.has_next() {
            let (rows, cursor) = (self.rows, &*self.cursor);
            let lane = cursor.lanes.get(cursor.lane)?;
            let frames = rows.frames(lane.sender, &lane.ring);
            let Some(found) = frames.message(lane.position).or_else(|| frames.object(lane.position)) else {
                self.pass_over()?;
                continue;
            };
            if found.round != cursor.round {
                self.forget();
                return None;
            }
            // A frame without space for its time is of no correct sender, and is the same at all
            // members.
            let [word, _] = frames.header(lane.position);
            let len = Header::decode(word, &lane.ring).map_or(u64::MAX, |header| header.len);
            let has_time = len.saturating_add(HEADER_BYTES + TIME_BYTES) <= found.span;
            let at = lane.ring.time_offset(lane.position, found.span);
            let time = if has_time { rows.load(lane.sender, at) } else { 0 };
            let Lane { named: sender, id: sender_id, .. } = *lane;
            let message = Message { sender, sender_id, round: found.round, payload: found.payload };
            return Some(Timed { time, sequence: cursor.count(), message });
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
