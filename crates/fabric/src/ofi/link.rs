//! A connection in one view: what waits for its peer, what is under way to it, and what comes from it.
//!
//! Frames leave by writes, and behind them the words that announce them, by a message; a [`Batch`] is both. A peer has few places for messages
//! ([`Channel`]), so it is told at most so many states that are old, and what is posted meanwhile melts together in the [`Backlog`].
//!
//! What makes it right to leave frames in the row until the network card reads them, to send words as they were posted last, and to let posts
//! melt together, is the argument of [`crate::tcp::backlog`]: writes and the message behind them arrive in this order (`FI_ORDER_SAW`),
//! and a message is applied as a whole.
//!
//! At the end of a view a link is *turned*: behind all that was posted goes a message that names the next view, and when the peer has said the same, and all
//! writes are complete, the channel is [taken out](Link::into_channel). The registration of the peer's copy ends with that: whoever has turned writes there no
//! more. In the next view each side begins with a hello, from which the other learns where to write.
use super::channel::{Channel, Limits, Operation};
use super::error::{Failure, OfiError};
use super::ffi::{FI_MR_ENDPOINT, FI_REMOTE_WRITE};
use super::hello::{HELLO_MESSAGE_BYTES, Head, Hello, Kind, Target};
use super::network::Desk;
use super::objects::{Endpoint, Piece, Registered};
use crate::far::TARGET;
use crate::region::{CopyRegion, OwnRegion};
use crate::tcp::backlog::{Backlog, Image};
use crate::tcp::resume::{Posted, announcements};
use crate::tcp::{Down, Traffic};
use spindle_core::{Rank, RowLayout, ViewId};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use tracing::info;

/// Bytes between two places that are touched so that memory is there.
pub(super) const PAGE_BYTES: usize = 4096;

/// Where what is sent comes from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) row: &'a OwnRegion,
    pub(super) image: &'a Image,
    pub(super) limits: &'a Limits,
}

/// The rows that a link moves: the peer's into `copy`, and mine.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    pub(super) theirs: &'a RowLayout,
    pub(super) copy: Arc<CopyRegion>,
    /// The registration of my rings, if they need one.
    pub(super) row_memory: Option<Arc<Registered>>,
}

/// A connection in a view.
#[derive(Debug)]
pub(super) struct Link {
    // Closed from the top.
    channel: Channel,
    copy_memory: Option<Registered>,
    row_memory: Option<Arc<Registered>>,
    copy: Arc<CopyRegion>,
    rank: Rank,
    theirs: RowLayout,
    /// Where my rings are at the peer.
    target: Option<Target>,
    connected: bool,
    backlog: Backlog,
    batch: Batch,
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
    /// Of a connection that has continued: what goes first, and what the peer is to say first.
    greeting: Option<Hello>,
    expected: Option<Hello>,
    turn: Turn,
    /// The view to which the peer has turned. It needs and writes nothing more of this one.
    their_turn: Option<ViewId>,
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    NotYet,
    Wanted(ViewId),
    Sent(ViewId),
}

/// A message that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    Message(Kind),
    /// It is of the next view.
    Held,
}

impl Link {
    /// A link to `rank` between `ends`, over `channel`. It is not connected yet.
    pub(super) fn new(desk: &Desk, rank: Rank, channel: Channel, ends: Ends<'_>) -> Result<Link, OfiError> {
        let Ends { theirs, copy, row_memory } = ends;
        let adapter = desk.adapter();
        let bound = (adapter.info().memory_mode() & FI_MR_ENDPOINT != 0).then_some(channel.endpoint());
        let rings = theirs.control..theirs.size;
        let copy_memory = if rings.is_empty() {
            None
        } else {
            let (memory, start, bytes) = (copy.clone(), copy.place(&rings), rings.end - rings.start);
            // SAFETY: the place is inside the copy, which is kept.
            let registered = unsafe { adapter.register(memory, start, bytes, FI_REMOTE_WRITE, desk.key(), bound) };
            let what = format!("the copy of the row of member {rank}");
            Some(registered.map_err(|source| OfiError::Registration { what, bytes, source })?)
        };
        let applied: Box<[u64]> = announcements(theirs).iter().map(|at| copy.load(*at)).collect();
        Ok(Link {
            channel,
            copy_memory,
            row_memory,
            copy,
            rank,
            theirs: theirs.clone(),
            target: None,
            connected: false,
            backlog: Backlog::default(),
            batch: Batch::default(),
            written_bytes: 0,
            sent_bytes: 0,
            received_bytes: 0,
            their_written_bytes: 0,
            is_mute: false,
            applied: Some(applied),
            heard: None,
            greeting: None,
            expected: None,
            turn: Turn::NotYet,
            their_turn: None,
            last: Last::NotYet,
            has_heard_all: false,
            ended: None,
            broken: false,
        })
    }

    /// The connection has continued from the view before: each side says a hello first.
    pub(super) fn greet(&mut self, greeting: Hello, expected: Hello) {
        (self.greeting, self.expected, self.applied) = (Some(greeting), Some(expected), None);
        self.connected = true;
    }

    /// The connection, without what belongs to this view.
    pub(super) fn into_channel(self) -> Channel {
        self.channel
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        self.channel.endpoint()
    }

    pub(super) fn number(&self) -> u32 {
        self.channel.number()
    }

    /// Another connection had carried posts to the peer before, or this one has come when some had been posted: nothing is sent until the peer has stated what it
    /// has of them.
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
            return Err(self.garbage(0, 8 * applied.len() as u64));
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
        self.is_empty() && self.channel.in_flight() == 0 && !self.is_mute && !self.wants_to_turn()
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.channel.in_flight() > 0 && !self.broken
    }

    pub(super) fn has_something_to_send(&self) -> bool {
        let is_due = self.owes_credit() || self.owes_beginning() || self.wants_to_turn();
        self.connected && (!self.is_empty() || self.wants_to_end() || self.channel.lacks_receives() || is_due)
    }

    /// Whether it could not send, and nothing is under way whose end would say when it can.
    pub(super) fn is_held(&self) -> bool {
        // Without a target or credit a message of the peer comes first.
        let wants_post = self.target.is_some() && !self.batch.is_empty()
            || self.channel.has_credit() && (self.owes_beginning() || self.wants_to_turn() && self.is_empty());
        let wants = wants_post || self.channel.lacks_receives() || self.owes_credit();
        let can_send = self.connected && (self.ended.is_none() || self.owes_last());
        can_send && (wants || self.wants_to_end() && self.is_empty()) && self.channel.in_flight() == 0
    }

    /// Whether nothing more is to come, and nothing is under way or owed either.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() && (self.broken || self.channel.in_flight() == 0 && !self.owes_last())
    }

    /// Ends the connection, and says why nothing more was to come. That is an end in order if the peer's last message is here, although the
    /// network may have told first that the peer has gone.
    pub(super) fn close(mut self) -> Option<Down> {
        self.endpoint().shut_down();
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
        let goes_on = self.last == Last::NotYet && self.turn == Turn::NotYet;
        let wanted = self.ended.is_none() && goes_on && !self.is_mute;
        if wanted {
            self.backlog.add_range(frames);
            self.backlog.add_control(words);
        }
        wanted
    }

    /// Nothing more is posted in this view, and what follows is of `next`. Means nothing if that was said before, or the link ends.
    pub(super) fn turn(&mut self, next: ViewId) {
        if self.turn == Turn::NotYet && self.last == Last::NotYet && self.ended.is_none() {
            self.turn = Turn::Wanted(next);
        }
    }

    /// The view to which the peer has turned.
    pub(super) fn their_turn(&self) -> Option<ViewId> {
        self.their_turn
    }

    /// Whether both sides have turned, as far as is known here. The peer may have the connection in the next view then.
    pub(super) fn is_through(&self) -> bool {
        self.turn != Turn::NotYet && self.their_turn.is_some()
    }

    /// Whether both sides have turned to `next`, and nothing of this view is under way.
    pub(super) fn has_turned(&self, next: ViewId) -> bool {
        let both = self.turn == Turn::Sent(next) && self.their_turn == Some(next);
        both && self.ended.is_none() && self.channel.in_flight() == 0
    }

    /// The peer has said its last message and needs nothing more. Its connection ends when it has my last message, from which it knows that its own has
    /// arrived. Whether this is the first reason for an end.
    pub(super) fn end_in_order(&mut self) -> bool {
        if let Some((slot, _)) = self.batch.message.take() {
            self.channel.give_back(slot);
        }
        self.batch.ranges.clear();
        self.finish();
        self.end(Down::Closed, false)
    }

    /// From now on there is only what waits, and then the last message; if it was not turned, which is as good.
    pub(super) fn finish(&mut self) {
        if self.last == Last::NotYet && self.turn == Turn::NotYet {
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
        self.channel.post_receives()?;
        let has_sent_all = self.begin(from.limits)? && self.send_batches(from)? && self.is_empty();
        // The peer may wait for it, whatever this one waits for.
        if self.owes_credit() {
            self.send_body(&[], Kind::Credit, from.limits)?;
        }
        if let Turn::Wanted(next) = self.turn
            && has_sent_all
            && self.wants_to_turn()
            && self.channel.has_credit()
            && self.send_body(&next.0.to_le_bytes(), Kind::Turn, from.limits)?
        {
            self.turn = Turn::Sent(next);
        }
        if has_sent_all && self.wants_to_end() && self.send_body(&[], Kind::Last, from.limits)? {
            self.last = Last::Sent;
        }
        Ok(self.sent_bytes > before)
    }

    /// An operation has ended, one way or the other, and its resources are free.
    pub(super) fn complete(&mut self, operation: Operation) {
        self.channel.complete(operation);
    }

    /// Sends what goes first: a hello over a connection that has continued, or else a statement of what this member had applied of the peer's row before this
    /// connection. Whether that is on its way.
    fn begin(&mut self, limits: &Limits) -> Result<bool, Failure> {
        if !self.owes_beginning() {
            return Ok(true);
        }
        if !self.channel.has_credit() {
            return Ok(false);
        }
        let is_sent = match (&self.greeting, &self.applied) {
            (Some(hello), _) => {
                let hello = hello.message();
                self.send_body(&hello, Kind::Hello, limits)?
            }
            (None, applied) => {
                let words = applied.iter().flatten();
                let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
                self.send_body(&bytes, Kind::Applied, limits)?
            }
        };
        if is_sent {
            (self.greeting, self.applied) = (None, None);
        }
        Ok(is_sent)
    }

    fn owes_beginning(&self) -> bool {
        self.greeting.is_some() || self.applied.is_some()
    }

    fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.batch.is_empty()
    }

    fn wants_to_end(&self) -> bool {
        self.last == Last::Wanted && (!self.is_mute || self.has_heard_all)
    }

    /// Whether the turn has not left, and can when all else has.
    fn wants_to_turn(&self) -> bool {
        matches!(self.turn, Turn::Wanted(_)) && !self.is_mute && self.expected.is_none()
    }

    /// Whether the peer has said its last message and waits for mine.
    fn owes_last(&self) -> bool {
        self.has_heard_all && self.last == Last::Wanted && !self.broken
    }

    /// Nothing follows the last message: the system cuts a connection off that is closed before everything was read.
    fn owes_credit(&self) -> bool {
        self.last != Last::Sent && self.channel.owes_credit()
    }

    /// Takes over what waits, if the peer has a place for a message and I have; whether there is something now.
    fn begin_batch(&mut self, image: &Image) -> bool {
        if self.backlog.is_empty() || !self.channel.has_credit() {
            return false;
        }
        let Some(slot) = self.channel.take_slot() else { return false };
        let (ranges, words) = self.backlog.take();
        self.channel.fill(slot, image.span(&words));
        self.batch.ranges.extend(ranges);
        self.batch.message = Some((slot, words));
        true
    }

    /// Sends what waits; whether all is on its way for which there is room.
    fn send_batches(&mut self, from: Source<'_>) -> Result<bool, Failure> {
        while !self.batch.is_empty() || self.begin_batch(from.image) {
            if !self.send_batch(from)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends on with the batch; whether all of it is on its way.
    fn send_batch(&mut self, Source { row, limits, .. }: Source<'_>) -> Result<bool, Failure> {
        // A connection that has continued leads nowhere before the peer has said so.
        let Some(target) = self.target else { return Ok(false) };
        while let Some(range) = self.batch.ranges.front_mut() {
            if self.channel.in_flight() >= limits.queue {
                return Ok(false);
            }
            let piece = range.start..range.end.min(range.start + limits.write_bytes);
            let bytes = piece.end - piece.start;
            let description = self.row_memory.as_ref().map_or(ptr::null_mut(), |memory| memory.description());
            let from = Piece { start: row.place(&piece), bytes, description };
            let to = target.address + (piece.start - row.control());
            // SAFETY: it is of the row, which the links keep; announced frames don't change (INV-FRAME), until this peer, too, has
            // delivered them, which it can't before the message behind this has arrived.
            if !unsafe { self.channel.write(from, to, target.key) }? {
                return Ok(false);
            }
            self.written_bytes += bytes;
            self.sent_bytes += bytes;
            range.start = piece.end;
            if range.is_empty() {
                self.batch.ranges.pop_front();
            }
        }
        let Some((slot, words)) = self.batch.message.clone() else { return Ok(true) };
        let Some(bytes) = self.channel.send(slot, &words, (Kind::Post, self.written_bytes), limits)? else {
            return Ok(false);
        };
        self.sent_bytes += bytes;
        self.batch.message = None;
        Ok(true)
    }

    /// A message that is no post; whether it is on its way.
    fn send_body(&mut self, body: &[u8], kind: Kind, limits: &Limits) -> Result<bool, Failure> {
        let sent = self.channel.send_body(body, (kind, self.written_bytes), limits)?;
        self.sent_bytes += sent.unwrap_or(0);
        Ok(sent.is_some())
    }

    /// Takes in the message in `slot`.
    pub(super) fn take_in(&mut self, slot: u8, bytes: u64) -> Result<Came, Down> {
        let receiving = |failure: Failure| Down::Os { call: "receiving", source: failure.to_io() };
        if self.their_turn.is_some() {
            return self.channel.hold(slot, bytes).map(|()| Came::Held).map_err(receiving);
        }
        let words = self.channel.head(slot);
        let head = Head::decode(words, bytes, self.theirs.control, self.theirs.size)?;
        let is_first = head.kind == Kind::Hello;
        if is_first != self.expected.is_some() && head.kind != Kind::Credit {
            return Err(self.garbage(head.at, head.len));
        }
        let body = self.channel.body(slot, head.len);
        match head.kind {
            Kind::Applied => self.heard = Some(words_of(body).collect()),
            Kind::Turn => self.their_turn = words_of(body).next().map(ViewId),
            Kind::Hello => {
                let target = self.expected.and_then(|expected| expected.target_of(body));
                let rings = announcements(&self.theirs).len() as u64;
                let strange = Down::NoHello { word: words_of(body).next().unwrap_or_default(), rings };
                self.target = Some(target.ok_or(strange)?);
                self.expected = None;
            }
            Kind::Post | Kind::Credit | Kind::Last => self.copy.store_words(head.at, body),
        }
        self.received_bytes += bytes;
        self.their_written_bytes = self.their_written_bytes.max(head.written);
        self.has_heard_all |= head.kind == Kind::Last;
        self.channel.acknowledge(head.taken);
        self.channel.taken_in(slot, head.kind).map_err(receiving)?;
        Ok(Came::Message(head.kind))
    }

    fn garbage(&self, at: u64, len: u64) -> Down {
        Down::Garbage { at, len, control_bytes: self.theirs.control, row_bytes: self.theirs.size }
    }
}

/// The words of a body, which has whole ones.
fn words_of(body: &[u8]) -> impl Iterator<Item = u64> + '_ {
    body.chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().expect("it has 8")))
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.message.is_none()
    }
}

const _: () = assert!(HELLO_MESSAGE_BYTES.is_multiple_of(8));
