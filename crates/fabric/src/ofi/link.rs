//! One connection: what waits for its peer, what is under way to it, and what comes from it.
//!
//! Frames leave by writes, and behind them the words that announce them, by a message; a [`Batch`] is both. A peer has places for
//! [`POSTS_MAX`] messages that it has not taken in, and says with each of its own how many it has. So it is told at most so many states that
//! are old, what is posted meanwhile melts together in the [`Backlog`], and its places never run out.
//!
//! What makes it right to leave frames in the row until the network card reads them, to send words as they were posted last, and to let posts
//! melt together, is the argument of [`crate::tcp::backlog`]: writes and the message behind them arrive in this order (`FI_ORDER_SAW`),
//! and a message is applied as a whole.
use super::error::{Failure, OfiError};
use super::ffi::{FI_COMPLETION, FI_EAGAIN, FI_INJECT, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_RECV, FI_REMOTE_WRITE, FI_SEND};
use super::hello::{HEAD_BYTES, Head, Kind, Target};
use super::objects::{Adapter, Endpoint, Piece, Registered};
use crate::far::TARGET;
use crate::region::{CopyRegion, OwnRegion};
use crate::tcp::backlog::{Backlog, Image};
use crate::tcp::resume::{Posted, announcements};
use crate::tcp::{Down, Traffic};
use spindle_core::{Rank, RowLayout};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use tracing::info;

/// Messages with posts that a peer may have got and not taken in.
const POSTS_MAX: u64 = 16;
/// After so many that were taken in, their sender is told, if nothing else does.
const CREDIT_STEP: u64 = POSTS_MAX / 2;
/// Places for messages: those for posts; for what only tells of credit, of which there are two at most that were not taken in, as each
/// tells of a step; for the last; and one to spare.
pub(super) const RECEIVES: u64 = POSTS_MAX + POSTS_MAX / CREDIT_STEP + 2;
/// Messages being sent.
const SENDS: u64 = RECEIVES;
/// Bytes between two places that are touched so that memory is there.
pub(super) const PAGE_BYTES: usize = 4096;

const _: () = assert!(RECEIVES + SENDS <= 1 << 8, "slots fit into contexts");

/// What the provider allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Operations of one connection under way.
    pub(super) queue: u64,
    /// Bytes of one write.
    pub(super) write_bytes: u64,
    /// Bytes of a message that are copied when it is sent.
    pub(super) inject_bytes: u64,
}

/// Where what is sent comes from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) row: &'a OwnRegion,
    pub(super) image: &'a Image,
    pub(super) limits: &'a Limits,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    // Closed from the top.
    endpoint: Endpoint,
    copy_memory: Option<Registered>,
    row_memory: Option<Arc<Registered>>,
    slab_memory: Option<Registered>,
    /// Places for messages: those that come, then those that go.
    slab: Arc<CopyRegion>,
    slot_bytes: u64,
    copy: Arc<CopyRegion>,
    rank: Rank,
    /// Apart from other links to the same peer.
    turn: u16,
    theirs: RowLayout,
    /// Where my rings are at the peer.
    target: Option<Target>,
    connected: bool,
    backlog: Backlog,
    batch: Batch,
    /// Places for messages that go which are free.
    free: Vec<u8>,
    /// Places for messages that come which the provider has not taken back.
    unposted: Vec<u8>,
    in_flight: u64,
    /// Posts that I have sent, and of these those that the peer has taken in, as it says.
    posts: u64,
    acknowledged: u64,
    /// Posts that I have taken in, and of these those that the peer was told of.
    taken: u64,
    told: u64,
    written_bytes: u64,
    sent_bytes: u64,
    received_bytes: u64,
    their_written_bytes: u64,
    /// Whether posts pass it by: what the peer has applied of my row is not known yet.
    is_mute: bool,
    /// What this member had applied of the peer's row before, until that is stated.
    applied: Option<Box<[u64]>>,
    /// What the peer states, until it is [used](Self::catch_up).
    heard: Option<Box<[u64]>>,
    last: Last,
    /// The peer has said its last message: what ends the connection after it takes nothing away.
    has_heard_all: bool,
    ended: Option<Down>,
    /// Nothing of what is in flight will end.
    broken: bool,
}

/// What is on its way to one peer: writes, then a message that stands in a slot already.
#[derive(Debug, Default)]
struct Batch {
    ranges: VecDeque<Range<u64>>,
    message: Option<(u8, Range<u64>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    NotYet,
    Wanted,
    Sent,
}

/// What an operation was, packed into its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Write,
    Send(u8),
    Receive(u8),
}

impl Operation {
    fn context(self, rank: Rank, turn: u16) -> usize {
        let (kind, slot) = match self {
            Operation::Write => (0, 0),
            Operation::Send(slot) => (1, slot),
            Operation::Receive(slot) => (2, slot),
        };
        (usize::from(turn) << 48) | (((rank.index() << 2) | kind) << 8) | usize::from(slot)
    }

    pub(super) fn of(context: usize) -> (Rank, u16, Operation) {
        let slot = context as u8;
        let operation = match (context >> 8) & 3 {
            0 => Operation::Write,
            1 => Operation::Send(slot),
            _ => Operation::Receive(slot),
        };
        (Rank((context >> 10) as u32), (context >> 48) as u16, operation)
    }
}

impl Link {
    /// A link to `rank`, the `turn`th of the member's links, to a peer whose row is `theirs` and comes into `copy`, over `endpoint`, for the row `mine`. It is not
    /// connected yet. `row_memory` is the registration of my rings, if they need one.
    pub(super) fn new(
        adapter: &Arc<Adapter>,
        (rank, turn): (Rank, u16),
        endpoint: Endpoint,
        copy: Arc<CopyRegion>,
        theirs: &RowLayout,
        mine: &RowLayout,
        row_memory: Option<Arc<Registered>>,
    ) -> Result<Link, OfiError> {
        let mode = adapter.info().memory_mode();
        let bound = (mode & FI_MR_ENDPOINT != 0).then_some(&endpoint);
        let failed = |what: &str, bytes| {
            let what = format!("{what} member {rank}");
            move |source| OfiError::Registration { what, bytes, source }
        };
        let rings = theirs.control..theirs.size;
        let copy_memory = if rings.is_empty() {
            None
        } else {
            let (memory, start, bytes) = (copy.clone(), copy.place(&rings), rings.end - rings.start);
            // SAFETY: the place is inside the copy, which is kept.
            let registered = unsafe { adapter.register(memory, start, bytes, FI_REMOTE_WRITE, key(rank, 1), bound) };
            Some(registered.map_err(failed("the copy of the row of", bytes))?)
        };
        let applied: Box<[u64]> = announcements(theirs).iter().map(|at| copy.load(*at)).collect();
        let statement_bytes = 8 * applied.len().max(announcements(mine).len()) as u64;
        let body_bytes = mine.control.max(theirs.control).max(statement_bytes);
        let slot_bytes = (HEAD_BYTES + body_bytes).next_multiple_of(64);
        let bytes = slot_bytes * (RECEIVES + SENDS);
        let slab = CopyRegion::on_heap(&format!("the messages of member {rank}"), bytes);
        let slab = Arc::new(slab.map_err(|source| OfiError::Region { rank, source })?);
        let slab_memory = if mode & FI_MR_LOCAL == 0 {
            None
        } else {
            let (memory, start) = (slab.clone(), slab.place(&(0..bytes)));
            // SAFETY: the place is inside the slab, which is kept.
            let registered = unsafe { adapter.register(memory, start, bytes, FI_SEND | FI_RECV, key(rank, 2), bound) };
            Some(registered.map_err(failed("messages to and from", bytes))?)
        };
        let mut link = Link {
            endpoint,
            copy_memory,
            row_memory,
            slab_memory,
            slab,
            slot_bytes,
            copy,
            rank,
            turn,
            theirs: theirs.clone(),
            target: None,
            connected: false,
            backlog: Backlog::default(),
            batch: Batch::default(),
            free: (RECEIVES..RECEIVES + SENDS).map(|slot| slot as u8).collect(),
            unposted: (0..RECEIVES).map(|slot| slot as u8).collect(),
            in_flight: 0,
            posts: 0,
            acknowledged: 0,
            taken: 0,
            told: 0,
            written_bytes: 0,
            sent_bytes: 0,
            received_bytes: 0,
            their_written_bytes: 0,
            is_mute: false,
            applied: Some(applied),
            heard: None,
            last: Last::NotYet,
            has_heard_all: false,
            ended: None,
            broken: false,
        };
        let posted = link.post_receives();
        posted.map_err(|source| OfiError::Call { provider: adapter.info().provider(), source })?;
        Ok(link)
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn turn(&self) -> u16 {
        self.turn
    }

    /// Another connection had carried posts to the peer before: nothing is sent until the peer has stated what it has of them.
    pub(super) fn mute(&mut self) {
        self.is_mute = true;
    }

    /// Prepares what the peer lacks, by its own statement.
    ///
    /// # Errors
    /// It can't have applied that.
    pub(super) fn catch_up(&mut self, posted: &[Posted], row: &OwnRegion, image: &Image) -> Result<(), Down> {
        let Some(applied) = self.heard.take() else { return Ok(()) };
        if applied.len() != posted.len() {
            let (at, len) = (0, 8 * applied.len() as u64);
            let (control_bytes, row_bytes) = (self.theirs.control, self.theirs.size);
            return Err(Down::Garbage { at, len, control_bytes, row_bytes });
        }
        let mut lacking_bytes = 0;
        for (ring, applied) in posted.iter().zip(&applied) {
            let lacking = ring.lacking(*applied, row, image)?;
            // Over a first connection all is on its way that the peer lacks.
            for range in lacking.into_iter().filter(|_| self.is_mute) {
                lacking_bytes += range.end - range.start;
                self.backlog.add_range(range);
            }
        }
        if std::mem::take(&mut self.is_mute) {
            let control_bytes = image.bytes().len() as u64;
            self.backlog.add_control(&(0..control_bytes));
            info!(target: TARGET, rank = self.rank.0, lacking_bytes, control_bytes, "connection is resumed");
        }
        Ok(())
    }

    /// Where the peer may write.
    pub(super) fn mine(&self) -> Target {
        let none = Target { address: 0, key: 0 };
        self.copy_memory.as_ref().map_or(none, |memory| Target { address: memory.remote_start(), key: memory.key() })
    }

    /// The peer has said where I may.
    pub(super) fn aim(&mut self, target: Target) {
        self.target = Some(target);
    }

    /// Both sides know of each other.
    pub(super) fn set_connected(&mut self) {
        self.connected = true;
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(super) fn traffic(&self) -> Traffic {
        let len = |range: &Range<u64>| range.end - range.start;
        let batch = self.batch.ranges.iter().map(len).sum::<u64>();
        let message = self.batch.message.iter().map(|(_, words)| len(words)).sum::<u64>();
        Traffic {
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes + self.their_written_bytes,
            waiting_bytes: self.backlog.bytes() + batch + message,
        }
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_empty() && self.in_flight == 0 && !self.is_mute
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.in_flight > 0 && !self.broken
    }

    pub(super) fn has_something_to_send(&self) -> bool {
        let is_due = self.owes_credit() || self.applied.is_some();
        self.connected && (!self.is_empty() || self.wants_to_end() || !self.unposted.is_empty() || is_due)
    }

    /// Whether it could not send, and nothing is under way whose end would say when it can.
    pub(super) fn is_held(&self) -> bool {
        let wants = !self.batch.is_empty() || !self.unposted.is_empty() || self.owes_credit() || self.applied.is_some();
        let can_send = self.connected && (self.ended.is_none() || self.owes_last());
        can_send && (wants || self.wants_to_end() && self.is_empty()) && self.in_flight == 0
    }

    /// Whether nothing more is to come, and nothing is under way or owed either.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() && (self.broken || self.in_flight == 0 && !self.owes_last())
    }

    /// Ends the connection, and says why nothing more was to come. That is an end in order if the peer's last message is here, although the
    /// network may have told first that the peer has gone.
    pub(super) fn close(mut self) -> Option<Down> {
        self.endpoint.shut_down();
        match self.ended.take() {
            Some(Down::Os { .. }) if self.has_heard_all => Some(Down::Closed),
            ended => ended,
        }
    }

    /// Closes the connection as if nothing had come of what was not taken in.
    #[cfg(test)]
    pub(super) fn lose(mut self) -> Option<Down> {
        self.end(super::links::gone(), true);
        self.close()
    }

    /// Notes why nothing more is to come, of which the first reason counts: whether this is it. If it is `broken`, nothing of what is under
    /// way will end.
    ///
    /// A link that is not connected does not break: an event tells how its call has ended, or the call takes too long.
    pub(super) fn end(&mut self, down: Down, broken: bool) -> bool {
        if !self.connected && matches!(down, Down::Os { .. }) {
            return false;
        }
        self.broken |= broken;
        self.backlog.clear();
        let first = self.ended.is_none();
        self.ended.get_or_insert(down);
        first
    }

    /// Lets what was posted wait; whether anybody wants it still.
    pub(super) fn add(&mut self, words: &Range<u64>, frames: Range<u64>) -> bool {
        let wanted = self.ended.is_none() && self.last == Last::NotYet && !self.is_mute;
        if wanted {
            self.backlog.add_range(frames);
            self.backlog.add_control(words);
        }
        wanted
    }

    /// The peer has said its last message and needs nothing more. Its connection ends when it has my last message, from which it knows that its own has
    /// arrived. Whether this is the first reason for an end.
    pub(super) fn end_in_order(&mut self) -> bool {
        if let Some((slot, _)) = self.batch.message.take() {
            self.free.push(slot);
        }
        self.batch.ranges.clear();
        self.finish();
        self.end(Down::Closed, false)
    }

    /// From now on there is only what waits, and then the last message.
    pub(super) fn finish(&mut self) {
        if self.last == Last::NotYet {
            self.last = Last::Wanted;
        }
    }

    /// Sends as much as the provider takes; whether that was anything.
    ///
    /// # Errors
    /// Nothing can be sent any more.
    pub(super) fn send(&mut self, from: Source<'_>) -> Result<bool, Failure> {
        if !self.connected || self.ended.is_some() && !self.owes_last() {
            return Ok(false);
        }
        let before = self.sent_bytes;
        self.post_receives()?;
        if !self.state_applied(from.limits)? {
            return Ok(self.sent_bytes > before);
        }
        while !self.batch.is_empty() || self.begin_batch(from.image) {
            if !self.send_batch(from)? {
                return Ok(self.sent_bytes > before);
            }
        }
        if self.owes_credit() {
            self.send_alone(Kind::Credit, from.limits)?;
        }
        if self.wants_to_end() && self.is_empty() && self.send_alone(Kind::Last, from.limits)? {
            self.last = Last::Sent;
        }
        Ok(self.sent_bytes > before)
    }

    /// An operation has ended, one way or the other, and its resources are free.
    pub(super) fn complete(&mut self, operation: Operation) {
        match operation {
            Operation::Receive(_) => return,
            Operation::Send(slot) => self.free.push(slot),
            Operation::Write => {}
        }
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// States what this member had applied of the peer's row before this connection. Whether that is on its way. It takes one of the peer's places
    /// for posts.
    fn state_applied(&mut self, limits: &Limits) -> Result<bool, Failure> {
        let Some(applied) = &self.applied else { return Ok(true) };
        if self.in_flight >= limits.queue {
            return Ok(false);
        }
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let bytes: Vec<u8> = applied.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.slab.fill(self.slot(slot).start + HEAD_BYTES, &bytes);
        let is_sent = self.send_message(slot, &(0..bytes.len() as u64), Kind::Applied, limits)?;
        if is_sent {
            (self.applied, self.posts) = (None, self.posts + 1);
        } else {
            self.free.push(slot);
        }
        Ok(is_sent)
    }

    fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.batch.is_empty()
    }

    fn wants_to_end(&self) -> bool {
        self.last == Last::Wanted && (!self.is_mute || self.has_heard_all)
    }

    /// Whether the peer has said its last message and waits for mine.
    fn owes_last(&self) -> bool {
        self.has_heard_all && self.last == Last::Wanted && !self.broken
    }

    /// Nothing follows the last message: the system cuts a connection off that is closed before everything was read.
    fn owes_credit(&self) -> bool {
        self.last != Last::Sent && self.taken - self.told >= CREDIT_STEP
    }

    /// Takes over what waits, if the peer has a place for a message and I have; whether there is something now.
    fn begin_batch(&mut self, image: &Image) -> bool {
        if self.backlog.is_empty() || self.posts - self.acknowledged >= POSTS_MAX {
            return false;
        }
        let Some(slot) = self.free.pop() else { return false };
        let (ranges, words) = self.backlog.take();
        self.slab.fill(self.slot(slot).start + HEAD_BYTES, image.span(&words));
        self.batch.ranges.extend(ranges);
        self.batch.message = Some((slot, words));
        true
    }

    /// Sends on with the batch; whether all of it is on its way.
    fn send_batch(&mut self, Source { row, limits, .. }: Source<'_>) -> Result<bool, Failure> {
        while let Some(range) = self.batch.ranges.front_mut() {
            if self.in_flight >= limits.queue {
                return Ok(false);
            }
            let piece = range.start..range.end.min(range.start + limits.write_bytes);
            let Some(target) = self.target else { return Ok(false) };
            let bytes = piece.end - piece.start;
            let description = self.row_memory.as_ref().map_or(ptr::null_mut(), |memory| memory.description());
            let from = Piece { start: row.place(&piece), bytes, description };
            let to = target.address + (piece.start - row.control());
            let context = Operation::Write.context(self.rank, self.turn);
            // SAFETY: it is of the row, which the links keep; announced frames don't change (INV-FRAME), until this peer, too, has
            // delivered them, which it can't before the message behind this has arrived.
            match unsafe { self.endpoint.write(from, to, target.key, context) } {
                Ok(()) => {}
                Err(Failure { code: FI_EAGAIN, .. }) => return Ok(false),
                Err(failure) => return Err(failure),
            }
            self.in_flight += 1;
            self.written_bytes += bytes;
            self.sent_bytes += bytes;
            range.start = piece.end;
            if range.is_empty() {
                self.batch.ranges.pop_front();
            }
        }
        if self.in_flight >= limits.queue {
            return Ok(false);
        }
        let Some((slot, words)) = self.batch.message.clone() else { return Ok(true) };
        if !self.send_message(slot, &words, Kind::Post, limits)? {
            return Ok(false);
        }
        self.posts += 1;
        self.batch.message = None;
        Ok(true)
    }

    /// A message without words; whether it is on its way.
    fn send_alone(&mut self, kind: Kind, limits: &Limits) -> Result<bool, Failure> {
        if self.in_flight >= limits.queue {
            return Ok(false);
        }
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let sent = self.send_message(slot, &(0..0), kind, limits)?;
        if !sent {
            self.free.push(slot);
        }
        Ok(sent)
    }

    /// Sends the words that stand in `slot`; whether they are on their way.
    fn send_message(&mut self, slot: u8, words: &Range<u64>, kind: Kind, limits: &Limits) -> Result<bool, Failure> {
        let (place, len) = (self.slot(slot), words.end - words.start);
        let head = Head { at: words.start, len, taken: self.taken, kind, written: self.written_bytes };
        self.slab.fill(place.start, head.encode().as_flattened());
        let bytes = HEAD_BYTES + len;
        let piece = self.piece(place.start..place.start + bytes);
        let flags = FI_COMPLETION | if bytes <= limits.inject_bytes { FI_INJECT } else { 0 };
        let context = Operation::Send(slot).context(self.rank, self.turn);
        // SAFETY: the slot was taken from the free ones, and comes back with the completion.
        match unsafe { self.endpoint.send(piece, context, flags) } {
            Ok(()) => {}
            Err(Failure { code: FI_EAGAIN, .. }) => return Ok(false),
            Err(failure) => return Err(failure),
        }
        self.told = self.taken;
        self.in_flight += 1;
        self.sent_bytes += bytes;
        Ok(true)
    }

    /// Gives free places for messages to the provider.
    fn post_receives(&mut self) -> Result<(), Failure> {
        while let Some(&slot) = self.unposted.last() {
            let piece = self.piece(self.slot(slot));
            // SAFETY: nobody looks at the slot until it is complete.
            match unsafe { self.endpoint.receive(piece, Operation::Receive(slot).context(self.rank, self.turn)) } {
                Ok(()) => _ = self.unposted.pop(),
                Err(Failure { code: FI_EAGAIN, .. }) => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Takes in the message in `slot`.
    pub(super) fn take_in(&mut self, slot: u8, bytes: u64) -> Result<Kind, Down> {
        let place = self.slot(slot);
        let words = [0, 8, 16].map(|at| self.slab.load(place.start + at));
        let head = Head::decode(words, bytes, self.theirs.control, self.theirs.size)?;
        // SAFETY: inside the slab, which lives; the slot is complete and not given back yet.
        let body = unsafe { self.slab.span().bytes(place.start + HEAD_BYTES, head.len) };
        match head.kind {
            Kind::Applied => {
                let words = body.chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().expect("it has 8")));
                self.heard = Some(words.collect());
            }
            Kind::Post | Kind::Credit | Kind::Last => self.copy.store_words(head.at, body),
        }
        self.received_bytes += bytes;
        self.their_written_bytes = self.their_written_bytes.max(head.written);
        // One that says more than is true gets more than it has places for.
        self.acknowledged = self.acknowledged.max(head.taken.min(self.posts));
        self.taken += u64::from(matches!(head.kind, Kind::Post | Kind::Applied));
        self.has_heard_all |= head.kind == Kind::Last;
        self.unposted.push(slot);
        match self.post_receives() {
            Ok(()) => Ok(head.kind),
            Err(failure) => Err(Down::Os { call: "receiving", source: failure.to_io() }),
        }
    }

    fn slot(&self, slot: u8) -> Range<u64> {
        let start = u64::from(slot) * self.slot_bytes;
        start..start + self.slot_bytes
    }

    fn piece(&self, range: Range<u64>) -> Piece {
        let description = self.slab_memory.as_ref().map_or(ptr::null_mut(), Registered::description);
        Piece { start: self.slab.place(&range), bytes: range.end - range.start, description }
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.message.is_none()
    }
}

/// A key for memory of the link to `rank`, where the provider wants to be given one.
pub(super) fn key(rank: Rank, what: u64) -> u64 {
    u64::from(rank.0) * 4 + what
}
