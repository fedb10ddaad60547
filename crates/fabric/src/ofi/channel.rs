//! One connection, whichever view it serves: its endpoint, the places for messages that come and go, and the credit of both sides.
//!
//! A peer has places for [`POSTS_MAX`] messages that it has not taken in, and is told with each message how many of its own were. So its places never run out.
//! Places and credit are the connection's, and continue with it in the next view ([`Link`](super::link::Link)). Messages that belong to that view are
//! [held](Channel::hold) until it begins here.
use super::error::{Failure, OfiError};
use super::ffi::{FI_COMPLETION, FI_EAGAIN, FI_INJECT, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_RECV, FI_SEND};
use super::hello::{HEAD_BYTES, HELLO_MESSAGE_BYTES, Head, Kind};
use super::network::{Desk, Place};
use super::objects::{Endpoint, Piece, Registered};
use crate::region::CopyRegion;
use crate::tcp::resume::announcements;
use spindle_core::{Rank, RowLayout};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// Messages with a place of their own that a peer may have got and not taken in.
const POSTS_MAX: u64 = 16;
/// After so many that were taken in, their sender is told, if nothing else does.
const CREDIT_STEP: u64 = POSTS_MAX / 2;
/// Places for messages: those for posts; for what only tells of credit, of which there are two at most that were not taken in, as each
/// tells of a step; for the last; and one to spare.
pub(super) const RECEIVES: u64 = POSTS_MAX + POSTS_MAX / CREDIT_STEP + 2;
/// Messages being sent.
const SENDS: u64 = RECEIVES;
/// A place is so many times as long as the first view needs: later views may have more members.
const SPARE: u64 = 2;

const _: () = assert!(RECEIVES + SENDS <= 1 << 8, "slots fit into contexts");

/// Limits of the provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Operations of one connection under way.
    pub(super) queue: u64,
    /// Bytes of one write.
    pub(super) write_bytes: u64,
    /// Bytes of a message that are copied when it is sent.
    pub(super) inject_bytes: u64,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Channel {
    // Closed from the top.
    endpoint: Endpoint,
    slab_memory: Option<Registered>,
    /// Places for messages: those that come, then those that go.
    slab: Arc<CopyRegion>,
    slot_bytes: u64,
    /// In the view that it serves.
    rank: Rank,
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
    /// Messages of the next view that have come, and their bytes.
    held: VecDeque<(u8, u64)>,
    place: Place,
}

/// The kind of an operation, packed into its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Write,
    Send(u8),
    Receive(u8),
}

/// The origin of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Context {
    /// That of the connection, which no other of this network has.
    pub(super) number: u32,
    /// The peer's when the operation was begun. Its connection may have continued in another view since.
    pub(super) rank: Rank,
    pub(super) operation: Operation,
}

impl Context {
    fn pack(self) -> usize {
        let (kind, slot) = match self.operation {
            Operation::Write => (0, 0),
            Operation::Send(slot) => (1, slot),
            Operation::Receive(slot) => (2, slot),
        };
        ((self.number as usize) << 32) | (((self.rank.index() << 2) | kind) << 8) | usize::from(slot)
    }

    pub(super) fn unpack(context: usize) -> Context {
        let slot = context as u8;
        let operation = match (context >> 8) & 3 {
            0 => Operation::Write,
            1 => Operation::Send(slot),
            _ => Operation::Receive(slot),
        };
        Context { number: (context >> 32) as u32, rank: Rank((context as u32) >> 10), operation }
    }
}

/// Bytes of the longest message between the owners of these rows. It is the same for both.
fn message_bytes(mine: &RowLayout, theirs: &RowLayout) -> u64 {
    let statement_bytes = 8 * announcements(mine).len().max(announcements(theirs).len()) as u64;
    let body_bytes = mine.control.max(theirs.control).max(statement_bytes).max(HELLO_MESSAGE_BYTES);
    (HEAD_BYTES + body_bytes).next_multiple_of(64)
}

impl Channel {
    /// One over `endpoint`, not connected yet, with places for what the owners of these rows tell each other.
    pub(super) fn new(
        desk: &Desk,
        place: Place,
        rank: Rank,
        endpoint: Endpoint,
        mine: &RowLayout,
        theirs: &RowLayout,
    ) -> Result<Channel, OfiError> {
        place.take(endpoint.id());
        let adapter = desk.adapter();
        let mode = adapter.info().memory_mode();
        let slot_bytes = SPARE * message_bytes(mine, theirs);
        let bytes = slot_bytes * (RECEIVES + SENDS);
        let slab = CopyRegion::on_heap(&format!("the messages of member {rank}"), bytes);
        let slab = Arc::new(slab.map_err(|source| OfiError::Region { rank, source })?);
        let slab_memory = if mode & FI_MR_LOCAL == 0 {
            None
        } else {
            let (memory, start) = (slab.clone(), slab.place(&(0..bytes)));
            let bound = (mode & FI_MR_ENDPOINT != 0).then_some(&endpoint);
            // SAFETY: the place is inside the slab, which is kept.
            let registered = unsafe { adapter.register(memory, start, bytes, FI_SEND | FI_RECV, desk.key(), bound) };
            let what = format!("messages to and from member {rank}");
            Some(registered.map_err(|source| OfiError::Registration { what, bytes, source })?)
        };
        let mut channel = Channel {
            endpoint,
            slab_memory,
            slab,
            slot_bytes,
            rank,
            free: (RECEIVES..RECEIVES + SENDS).map(|slot| slot as u8).collect(),
            unposted: (0..RECEIVES).map(|slot| slot as u8).collect(),
            in_flight: 0,
            posts: 0,
            acknowledged: 0,
            taken: 0,
            told: 0,
            held: VecDeque::new(),
            place,
        };
        let posted = channel.post_receives();
        posted.map_err(|source| OfiError::Call { provider: adapter.info().provider(), source })?;
        Ok(channel)
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn number(&self) -> u32 {
        self.place.number()
    }

    /// Whether the owners of these rows can use it in another view. Both come to the same answer.
    pub(super) fn fits(&self, mine: &RowLayout, theirs: &RowLayout) -> bool {
        message_bytes(mine, theirs) <= self.slot_bytes
    }

    /// From now on it serves the view of `desk`, in which the peer is `rank`. Returns what has come for that.
    pub(super) fn serve(&mut self, desk: &Desk, rank: Rank) -> VecDeque<(u8, u64)> {
        self.place.give_to(desk);
        self.rank = rank;
        std::mem::take(&mut self.held)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether the peer has a place for another post.
    pub(super) fn has_credit(&self) -> bool {
        self.posts - self.acknowledged < POSTS_MAX
    }

    /// Whether the peer has to be told what was taken in.
    pub(super) fn owes_credit(&self) -> bool {
        self.taken - self.told >= CREDIT_STEP
    }

    /// Whether the provider has not taken all places for messages that come.
    pub(super) fn lacks_receives(&self) -> bool {
        !self.unposted.is_empty()
    }

    /// A free place for a message, from its head on.
    pub(super) fn take_slot(&mut self) -> Option<u8> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, slot: u8) {
        self.free.push(slot);
    }

    /// Writes the body of the message in `slot`.
    pub(super) fn fill(&self, slot: u8, body: &[u8]) {
        self.slab.fill(self.slot(slot).start + HEAD_BYTES, body);
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

    /// Sends the message whose body stands in `slot`; its bytes, if it is on its way.
    pub(super) fn send(
        &mut self,
        slot: u8,
        words: &Range<u64>,
        (kind, written): (Kind, u64),
        limits: &Limits,
    ) -> Result<Option<u64>, Failure> {
        if self.in_flight >= limits.queue {
            return Ok(None);
        }
        let (place, len) = (self.slot(slot), words.end - words.start);
        let head = Head { at: words.start, len, taken: self.taken, kind, written };
        self.slab.fill(place.start, head.encode().as_flattened());
        let bytes = HEAD_BYTES + len;
        let piece = self.piece(place.start..place.start + bytes);
        let flags = FI_COMPLETION | if bytes <= limits.inject_bytes { FI_INJECT } else { 0 };
        let context = self.context(Operation::Send(slot));
        // SAFETY: the slot was taken from the free ones, and comes back with the completion.
        match unsafe { self.endpoint.send(piece, context, flags) } {
            Ok(()) => {}
            Err(Failure { code: FI_EAGAIN, .. }) => return Ok(None),
            Err(failure) => return Err(failure),
        }
        self.told = self.taken;
        self.in_flight += 1;
        self.posts += u64::from(kind.takes_a_place());
        Ok(Some(bytes))
    }

    /// As [`send`](Self::send), for a body that is given here and a slot that is looked for.
    pub(super) fn send_body(&mut self, body: &[u8], of: (Kind, u64), limits: &Limits) -> Result<Option<u64>, Failure> {
        if self.in_flight >= limits.queue {
            return Ok(None);
        }
        let Some(slot) = self.take_slot() else { return Ok(None) };
        self.fill(slot, body);
        let sent = self.send(slot, &(0..body.len() as u64), of, limits)?;
        if sent.is_none() {
            self.give_back(slot);
        }
        Ok(sent)
    }

    /// Writes into the other side's memory, at `address` under `key`; whether that is on its way.
    ///
    /// # Safety
    /// The piece does not change until the operation has ended or the endpoint is closed.
    pub(super) unsafe fn write(&mut self, piece: Piece, address: u64, key: u64) -> Result<bool, Failure> {
        let context = self.context(Operation::Write);
        // SAFETY: by this function's contract.
        match unsafe { self.endpoint.write(piece, address, key, context) } {
            Ok(()) => {}
            Err(Failure { code: FI_EAGAIN, .. }) => return Ok(false),
            Err(failure) => return Err(failure),
        }
        self.in_flight += 1;
        Ok(true)
    }

    /// Gives free places for messages to the provider.
    pub(super) fn post_receives(&mut self) -> Result<(), Failure> {
        while let Some(&slot) = self.unposted.last() {
            let piece = self.piece(self.slot(slot));
            // SAFETY: nobody looks at the slot until it is complete.
            match unsafe { self.endpoint.receive(piece, self.context(Operation::Receive(slot))) } {
                Ok(()) => _ = self.unposted.pop(),
                Err(Failure { code: FI_EAGAIN, .. }) => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// The words of the head of the message in `slot`.
    pub(super) fn head(&self, slot: u8) -> [u64; 3] {
        let start = self.slot(slot).start;
        [0, 8, 16].map(|at| self.slab.load(start + at))
    }

    /// The body of the message in `slot`, which has come and was not [taken in](Self::taken_in) yet.
    pub(super) fn body(&self, slot: u8, len: u64) -> &[u8] {
        // SAFETY: inside the slab, which lives; the slot is complete and not given back before `self` is borrowed again.
        unsafe { self.slab.span().bytes(self.slot(slot).start + HEAD_BYTES, len) }
    }

    /// The peer says how many of my posts it has taken in.
    pub(super) fn acknowledge(&mut self, taken: u64) {
        // One that says more than is true gets more than it has places for.
        self.acknowledged = self.acknowledged.max(taken.min(self.posts));
    }

    /// The message in `slot` was taken in, and its place is free for another.
    pub(super) fn taken_in(&mut self, slot: u8, kind: Kind) -> Result<(), Failure> {
        self.taken += u64::from(kind.takes_a_place());
        self.unposted.push(slot);
        self.post_receives()
    }

    /// Keeps the message in `slot` for the next view. Credit is the connection's, and counts at once.
    pub(super) fn hold(&mut self, slot: u8, bytes: u64) -> Result<(), Failure> {
        if bytes < HEAD_BYTES {
            // The next view refuses it.
            self.held.push_back((slot, bytes));
            return Ok(());
        }
        let [_, taken, last] = self.head(slot);
        self.acknowledge(taken);
        if bytes == HEAD_BYTES && last & 0xff == Kind::Credit as u64 {
            return self.taken_in(slot, Kind::Credit);
        }
        self.held.push_back((slot, bytes));
        Ok(())
    }

    fn context(&self, operation: Operation) -> usize {
        Context { number: self.number(), rank: self.rank, operation }.pack()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_survive_packing() {
        for number in [0, 1, u32::MAX] {
            for rank in [Rank(0), Rank(1023)] {
                for operation in [Operation::Write, Operation::Send(39), Operation::Receive(255)] {
                    let context = Context { number, rank, operation };
                    assert_eq!(Context::unpack(context.pack()), context);
                }
            }
        }
    }
}
