//! A connection in one view: the data that waits for its peer, the data in flight to it, and the
//! data that comes from it.
//!
//! Frames leave by writes, and behind them the words that announce them, by a message; a [`WriteBatch`]
//! is both. A peer has few slots for messages ([`Channel`]). So at most that many outdated states
//! are sent to it, and posts meanwhile merge in the [`Backlog`].
//!
//! Frames stay in the row until the network card reads them, words are sent as they were posted
//! last, and posts merge. `backlog.rs` of [`spindle_fabric::tcp`] argues that this is correct:
//! writes and the message behind them arrive in this order (`FI_ORDER_SAW`), and a message is
//! applied as a whole.
//!
//! At the end of a view a link is *turned*. Behind all posts goes a message that names the next
//! view. When the peer has sent the same, and all writes are complete, the channel is [taken
//! out](Link::into_channel). The registration of the peer's copy ends with that, because a side
//! that has turned writes there no more. In the next view each side begins with a hello, which
//! gives the other side the location to write to.
use crate::TARGET;
use crate::channel::{Channel, Limits, Operation};
use crate::error::{CallFailure, OfiError};
use crate::ffi::{FI_MR_ENDPOINT, FI_REMOTE_WRITE};
use crate::hello::{HELLO_MESSAGE_BYTES, MessageHead, MessageKind, OfiHello, RingTarget};
use crate::network::ViewDesk;
use crate::objects::{ActiveEndpoint, Piece, Registered};
use spindle_core::{Rank, RowLayout, ViewId};
use spindle_fabric::tcp::{Backlog, Down, Image, Posted, Traffic, announcements};
use spindle_fabric::{CopyRegion, OwnRegion};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use tracing::info;

/// The source of the data that is sent.
#[derive(Clone, Copy)]
pub(crate) struct SentRow<'a> {
    pub(crate) row: &'a OwnRegion,
    pub(crate) image: &'a Image,
    pub(crate) limits: &'a Limits,
}

/// The rows that a link moves: the peer's into `copy`, and mine.
#[derive(Debug)]
pub(crate) struct LinkRows<'a> {
    pub(crate) theirs: &'a RowLayout,
    pub(crate) copy: Arc<CopyRegion>,
    /// The registration of my rings, if they need one.
    pub(crate) row_memory: Option<Arc<Registered>>,
}

/// A connection in a view.
#[derive(Debug)]
pub(crate) struct OfiLink {
    // Closed from the top.
    channel: Channel,
    copy_memory: Option<Registered>,
    row_memory: Option<Arc<Registered>>,
    copy: Arc<CopyRegion>,
    rank: Rank,
    theirs: RowLayout,
    /// The location of my rings at the peer.
    target: Option<RingTarget>,
    connected: bool,
    backlog: Backlog,
    batch: WriteBatch,
    written_bytes: u64,
    sent_bytes: u64,
    received_bytes: u64,
    their_written_bytes: u64,
    /// True while posts bypass it, because it is not known yet what the peer has applied of my row.
    is_mute: bool,
    /// The amounts that this member had applied of the peer's row before, until they are stated.
    applied: Option<Box<[u64]>>,
    /// The peer's statement, until it is [used](Self::catch_up).
    heard: Option<Box<[u64]>>,
    /// For a connection that has continued: the hello to send first, and the hello that the peer is
    /// to send first.
    greeting: Option<OfiHello>,
    expected: Option<OfiHello>,
    turn: LinkTurn,
    /// The view to which the peer has turned. It needs and writes nothing more of this one.
    their_turn: Option<ViewId>,
    last: LastMessage,
    /// True once the peer has sent its last message: a later end of the connection loses nothing.
    has_heard_all: bool,
    ended: Option<Down>,
    /// True if no operation in flight will complete.
    broken: bool,
}

/// Data in flight to one peer: writes, then a message that is in a slot already.
#[derive(Debug, Default)]
struct WriteBatch {
    ranges: VecDeque<Range<u64>>,
    message: Option<(u8, Range<u64>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LastMessage {
    NotYet,
    Wanted,
    Sent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkTurn {
    NotYet,
    Wanted(ViewId),
    Sent(ViewId),
}

/// A message that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    Message(MessageKind),
    /// It belongs to the next view.
    Held,
}

impl OfiLink {
    /// Creates a link to `rank` between `ends`, over `channel`. It is not connected yet.
    pub(crate) fn new(desk: &ViewDesk, rank: Rank, channel: Channel, ends: LinkRows<'_>) -> Result<OfiLink, OfiError> {
        let LinkRows { theirs, copy, row_memory } = ends;
        let adapter = desk.adapter();
        let bound = (adapter.info().memory_mode() & FI_MR_ENDPOINT != 0).then_some(channel.endpoint());
        let rings = theirs.control..theirs.size;
        let copy_memory = if rings.is_empty() {
            None
        } else {
            let (memory, start, bytes) = (copy.clone(), copy.pointer(&rings), rings.end - rings.start);
            // SAFETY: the range is inside the copy, which is kept.
            let registered = unsafe { adapter.register(memory, start, bytes, FI_REMOTE_WRITE, desk.key(), bound) };
            let what = format!("the copy of the row of member {rank}");
            Some(registered.map_err(|source| OfiError::Registration { what, bytes, source })?)
        };
        let applied: Box<[u64]> = announcements(theirs).iter().map(|at| copy.load(*at)).collect();
        Ok(OfiLink {
            channel,
            copy_memory,
            row_memory,
            copy,
            rank,
            theirs: theirs.clone(),
            target: None,
            connected: false,
            backlog: Backlog::default(),
            batch: WriteBatch::default(),
            written_bytes: 0,
            sent_bytes: 0,
            received_bytes: 0,
            their_written_bytes: 0,
            is_mute: false,
            applied: Some(applied),
            heard: None,
            greeting: None,
            expected: None,
            turn: LinkTurn::NotYet,
            their_turn: None,
            last: LastMessage::NotYet,
            has_heard_all: false,
            ended: None,
            broken: false,
        })
    }

    /// Continues the connection from the view before: each side sends a hello first.
    pub(crate) fn greet(&mut self, greeting: OfiHello, expected: OfiHello) {
        (self.greeting, self.expected, self.applied) = (Some(greeting), Some(expected), None);
        self.connected = true;
    }

    /// Returns the connection, without the parts that belong to this view.
    pub(crate) fn into_channel(self) -> Channel {
        self.channel
    }

    pub(crate) fn endpoint(&self) -> &ActiveEndpoint {
        self.channel.endpoint()
    }

    pub(crate) fn number(&self) -> u32 {
        self.channel.number()
    }

    /// Holds back all data until the peer has stated which posts it has: either another connection
    /// had carried posts to it before, or posts were made before this connection came.
    pub(crate) fn mute(&mut self) {
        self.is_mute = true;
    }

    /// Prepares the data that the peer lacks, according to its own statement.
    ///
    /// # Errors
    /// The peer states an amount that it can't have applied.
    pub(crate) fn catch_up(&mut self, posted: &[Posted], row: &OwnRegion, image: &Image) -> Result<(), Down> {
        let Some(applied) = self.heard.take() else { return Ok(()) };
        if applied.len() != posted.len() {
            return Err(self.garbage(0, 8 * applied.len() as u64));
        }
        let mut lacking_bytes = 0;
        for (ring, applied) in posted.iter().zip(&applied) {
            let lacking = ring.lacking(*applied, row, image)?;
            // Over a first connection all data that the peer lacks is in flight already.
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

    /// Returns the location that the peer may write.
    pub(crate) fn mine(&self) -> RingTarget {
        let none = RingTarget { address: 0, key: 0 };
        self.copy_memory
            .as_ref()
            .map_or(none, |memory| RingTarget { address: memory.remote_start(), key: memory.key() })
    }

    /// Sets the location that the peer lets me write.
    pub(crate) fn aim(&mut self, target: RingTarget) {
        self.target = Some(target);
    }

    /// Marks that both sides know of each other.
    pub(crate) fn set_connected(&mut self) {
        self.connected = true;
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let len = |range: &Range<u64>| range.end - range.start;
        let batch = self.batch.ranges.iter().map(len).sum::<u64>();
        let message = self.batch.message.iter().map(|(_, words)| len(words)).sum::<u64>();
        Traffic {
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes + self.their_written_bytes,
            waiting_bytes: self.backlog.bytes() + batch + message,
        }
    }

    /// Returns true if no data waits and none is in flight.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_empty() && self.channel.in_flight() == 0 && !self.is_mute && !self.wants_to_turn()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.channel.in_flight() > 0 && !self.broken
    }

    pub(crate) fn has_something_to_send(&self) -> bool {
        let is_due = self.owes_credit() || self.owes_beginning() || self.wants_to_turn();
        self.connected && (!self.is_empty() || self.wants_to_end() || self.channel.lacks_receives() || is_due)
    }

    /// Returns true if it could not send, and no operation in flight will report when it can.
    pub(crate) fn is_held(&self) -> bool {
        // Without a target or credit a message of the peer must come first.
        let wants_post = self.target.is_some() && !self.batch.is_empty()
            || self.channel.has_credit() && (self.owes_beginning() || self.wants_to_turn() && self.is_empty());
        let wants = wants_post || self.channel.lacks_receives() || self.owes_credit();
        let can_send = self.connected && (self.ended.is_none() || self.owes_last());
        can_send && (wants || self.wants_to_end() && self.is_empty()) && self.channel.in_flight() == 0
    }

    /// Returns true if nothing more is to come, and nothing is in flight or due either.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some() && (self.broken || self.channel.in_flight() == 0 && !self.owes_last())
    }

    /// Ends the connection, and returns the reason why nothing more was to come. If the peer's last
    /// message is here, that is an orderly end, although the network may have reported the end of
    /// the peer first.
    pub(crate) fn close(mut self) -> Option<Down> {
        self.endpoint().shut_down();
        match self.ended.take() {
            Some(Down::Os { .. }) if self.has_heard_all => Some(Down::Closed),
            ended => ended,
        }
    }

    /// Closes the connection as if all data that was not taken in had never arrived.
    #[cfg(test)]
    pub(crate) fn lose(mut self) -> Option<Down> {
        self.end(gone(), true);
        self.close()
    }

    /// Records the reason why nothing more is to come. The first reason counts; returns true if
    /// this is it. If it is `broken`, no operation in flight will complete.
    ///
    /// A link that is not connected does not break: an event reports how its call has ended, or the
    /// call takes too long.
    pub(crate) fn end(&mut self, down: Down, broken: bool) -> bool {
        if !self.connected && matches!(down, Down::Os { .. }) {
            return false;
        }
        self.broken |= broken;
        self.backlog.clear();
        let first = self.ended.is_none();
        self.ended.get_or_insert(down);
        first
    }

    /// Adds posted data to the backlog. Returns true if the peer still wants it.
    pub(crate) fn add(&mut self, words: &Range<u64>, frames: Range<u64>) -> bool {
        let goes_on = self.last == LastMessage::NotYet && self.turn == LinkTurn::NotYet;
        let wanted = self.ended.is_none() && goes_on && !self.is_mute;
        if wanted {
            self.backlog.add_range(frames);
            self.backlog.add_control(words);
        }
        wanted
    }

    /// Ends the posts of this view; later data belongs to `next`. Has no effect if it was called
    /// before, or the link ends.
    pub(crate) fn turn(&mut self, next: ViewId) {
        if self.turn == LinkTurn::NotYet && self.last == LastMessage::NotYet && self.ended.is_none() {
            self.turn = LinkTurn::Wanted(next);
        }
    }

    /// Returns the view to which the peer has turned.
    pub(crate) fn their_turn(&self) -> Option<ViewId> {
        self.their_turn
    }

    /// Returns true if both sides have turned, as far as this side knows. Then the peer may already
    /// use the connection in the next view.
    pub(crate) fn is_through(&self) -> bool {
        self.turn != LinkTurn::NotYet && self.their_turn.is_some()
    }

    /// Returns true if both sides have turned to `next`, and no data of this view is in flight.
    pub(crate) fn has_turned(&self, next: ViewId) -> bool {
        let both = self.turn == LinkTurn::Sent(next) && self.their_turn == Some(next);
        both && self.ended.is_none() && self.channel.in_flight() == 0
    }

    /// Ends the link after the peer's last message, because the peer needs nothing more. The peer
    /// closes its connection when it has my last message, from which it knows that its own has
    /// arrived. Returns true if this is the first reason for an end.
    pub(crate) fn end_in_order(&mut self) -> bool {
        if let Some((slot, _)) = self.batch.message.take() {
            self.channel.give_back(slot);
        }
        self.batch.ranges.clear();
        self.finish();
        self.end(Down::Closed, false)
    }

    /// Requests the last message after the waiting data, unless the link was turned, which has the
    /// same effect.
    pub(crate) fn finish(&mut self) {
        if self.last == LastMessage::NotYet && self.turn == LinkTurn::NotYet {
            self.last = LastMessage::Wanted;
        }
    }

    /// Sends as much as the provider takes. Returns true if that was anything.
    ///
    /// # Errors
    /// No more data can be sent.
    pub(crate) fn send(&mut self, from: SentRow<'_>) -> Result<bool, CallFailure> {
        if !self.connected || self.ended.is_some() && !self.owes_last() {
            return Ok(false);
        }
        let before = self.sent_bytes;
        self.channel.post_receives()?;
        let has_sent_all = self.begin(from.limits)? && self.send_batches(from)? && self.is_empty();
        // The peer may wait for the credit, whatever this side waits for.
        if self.owes_credit() {
            self.send_body(&[], MessageKind::Credit, from.limits)?;
        }
        if let LinkTurn::Wanted(next) = self.turn
            && has_sent_all
            && self.wants_to_turn()
            && self.channel.has_credit()
            && self.send_body(&next.0.to_le_bytes(), MessageKind::Turn, from.limits)?
        {
            self.turn = LinkTurn::Sent(next);
        }
        if has_sent_all && self.wants_to_end() && self.send_body(&[], MessageKind::Last, from.limits)? {
            self.last = LastMessage::Sent;
        }
        Ok(self.sent_bytes > before)
    }

    /// Releases the resources of an operation that has ended, with success or not.
    pub(crate) fn complete(&mut self, operation: Operation) {
        self.channel.complete(operation);
    }

    /// Sends the beginning: a hello over a connection that has continued, or else a statement of
    /// what this member had applied of the peer's row before this connection. Returns true if it is
    /// in flight.
    fn begin(&mut self, limits: &Limits) -> Result<bool, CallFailure> {
        if !self.owes_beginning() {
            return Ok(true);
        }
        if !self.channel.has_credit() {
            return Ok(false);
        }
        let is_sent = match (&self.greeting, &self.applied) {
            (Some(hello), _) => {
                let hello = hello.message();
                self.send_body(&hello, MessageKind::Hello, limits)?
            }
            (None, applied) => {
                let words = applied.iter().flatten();
                let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
                self.send_body(&bytes, MessageKind::Applied, limits)?
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
        self.last == LastMessage::Wanted && (!self.is_mute || self.has_heard_all)
    }

    /// Returns true if the turn has not left, and can leave once all other data has.
    fn wants_to_turn(&self) -> bool {
        matches!(self.turn, LinkTurn::Wanted(_)) && !self.is_mute && self.expected.is_none()
    }

    /// Returns true if the peer has sent its last message and waits for mine.
    fn owes_last(&self) -> bool {
        self.has_heard_all && self.last == LastMessage::Wanted && !self.broken
    }

    /// Returns true if credit is due. Nothing follows the last message, because the system resets a
    /// connection that is closed before all its data was read.
    fn owes_credit(&self) -> bool {
        self.last != LastMessage::Sent && self.channel.owes_credit()
    }

    /// Takes over the backlog, if the peer and this side have a slot for a message. Returns true if
    /// there is a batch now.
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

    /// Sends waiting data. Returns true if all data that there is room for is in flight.
    fn send_batches(&mut self, from: SentRow<'_>) -> Result<bool, CallFailure> {
        while !self.batch.is_empty() || self.begin_batch(from.image) {
            if !self.send_batch(from)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends more of the batch. Returns true if all of it is in flight.
    fn send_batch(&mut self, SentRow { row, limits, .. }: SentRow<'_>) -> Result<bool, CallFailure> {
        // A connection that has continued has no target before the peer has sent it.
        let Some(target) = self.target else { return Ok(false) };
        while let Some(range) = self.batch.ranges.front_mut() {
            if self.channel.in_flight() >= limits.queue {
                return Ok(false);
            }
            let piece = range.start..range.end.min(range.start + limits.write_bytes);
            let bytes = piece.end - piece.start;
            let description = self.row_memory.as_ref().map_or(ptr::null_mut(), |memory| memory.description());
            let from = Piece { start: row.pointer(&piece), bytes, description };
            let to = target.address + (piece.start - row.control());
            // SAFETY: it is of the row, which the links keep; announced frames don't change
            // (INV-FRAME), until this peer, too, has delivered them, which it can't before the
            // message behind this has arrived.
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
        let Some(bytes) = self.channel.send(slot, &words, (MessageKind::Post, self.written_bytes), limits)? else {
            return Ok(false);
        };
        self.sent_bytes += bytes;
        self.batch.message = None;
        Ok(true)
    }

    /// Sends a message that is not a post. Returns true if it is in flight.
    fn send_body(&mut self, body: &[u8], kind: MessageKind, limits: &Limits) -> Result<bool, CallFailure> {
        let sent = self.channel.send_body(body, (kind, self.written_bytes), limits)?;
        self.sent_bytes += sent.unwrap_or(0);
        Ok(sent.is_some())
    }

    /// Takes in the message in `slot`.
    pub(crate) fn take_in(&mut self, slot: u8, bytes: u64) -> Result<Arrived, Down> {
        let receiving = |failure: CallFailure| Down::Os { call: "receiving", source: failure.to_io() };
        if self.their_turn.is_some() {
            return self.channel.hold(slot, bytes).map(|()| Arrived::Held).map_err(receiving);
        }
        let words = self.channel.head(slot);
        let head = MessageHead::decode(words, bytes, self.theirs.control, self.theirs.size)?;
        let is_first = head.kind == MessageKind::Hello;
        if is_first != self.expected.is_some() && head.kind != MessageKind::Credit {
            return Err(self.garbage(head.at, head.len));
        }
        let body = self.channel.body(slot, head.len);
        match head.kind {
            MessageKind::Applied => self.heard = Some(words_of(body).collect()),
            MessageKind::Turn => self.their_turn = words_of(body).next().map(ViewId),
            MessageKind::Hello => {
                let target = self.expected.and_then(|expected| expected.target_of(body));
                let rings = announcements(&self.theirs).len() as u64;
                let strange = Down::NoHello { word: words_of(body).next().unwrap_or_default(), rings };
                self.target = Some(target.ok_or(strange)?);
                self.expected = None;
            }
            // SAFETY: these are control words, which are lent to no reader: `head` was checked.
            MessageKind::Post | MessageKind::Credit | MessageKind::Last => unsafe {
                self.copy.write_words(head.at, body)
            },
        }
        self.received_bytes += bytes;
        self.their_written_bytes = self.their_written_bytes.max(head.written);
        self.has_heard_all |= head.kind == MessageKind::Last;
        self.channel.acknowledge(head.taken);
        self.channel.taken_in(slot, head.kind).map_err(receiving)?;
        Ok(Arrived::Message(head.kind))
    }

    fn garbage(&self, at: u64, len: u64) -> Down {
        Down::Garbage { at, len, control_bytes: self.theirs.control, row_bytes: self.theirs.size }
    }
}

/// Returns the words of a body, which has whole words.
fn words_of(body: &[u8]) -> impl Iterator<Item = u64> + '_ {
    body.chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().expect("it has 8")))
}

impl WriteBatch {
    fn is_empty(&self) -> bool {
        self.message.is_none()
    }
}

const _: () = assert!(HELLO_MESSAGE_BYTES.is_multiple_of(8));

/// The reason of an end for a peer that has gone. Without its last message that is not an orderly
/// end.
pub(crate) fn gone() -> Down {
    Down::Os { call: "receiving", source: io::ErrorKind::ConnectionReset.into() }
}
