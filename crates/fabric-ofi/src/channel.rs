//! One connection, whichever view it serves: its endpoint, the slots for incoming and outgoing
//! messages, and the credit of both sides.
//!
//! A peer has slots for [`POSTS_MAX`] messages that it has not taken in. Each message reports to
//! the peer how many of its own were taken in, so its slots never run out. Slots and credit belong
//! to the connection, and continue with it in the next view ([`Link`](crate::link::Link)). Messages
//! of the next view are [held](Channel::hold) until it begins here.
use crate::error::{CallFailure, OfiError};
use crate::ffi::{FI_COMPLETION, FI_EAGAIN, FI_INJECT, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_RECV, FI_SEND};
use crate::hello::{HEAD_BYTES, HELLO_MESSAGE_BYTES, MessageHead, MessageKind};
use crate::limits::{CREDIT_STEP, POSTS_MAX, RECEIVES, SENDS};
use crate::network::{EndpointAddress, ViewDesk};
use crate::objects::{ActiveEndpoint, Piece, Registered};
use spindle_core::{Rank, RowLayout};
use spindle_fabric::CopyRegion;
use spindle_fabric::tcp::announcements;
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// A slot is this many times as long as the first view needs: later views may have more members.
const SPARE: u64 = 2;

/// Limits of the provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Operations of one connection in flight.
    pub(crate) queue: u64,
    /// Bytes of one write.
    pub(crate) write_bytes: u64,
    /// Bytes of a message that the provider copies when it is sent.
    pub(crate) inject_bytes: u64,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Channel {
    // Closed from the top.
    endpoint: ActiveEndpoint,
    slab_memory: Option<Registered>,
    /// Slots for messages: incoming, then outgoing.
    slab: Arc<CopyRegion>,
    slot_bytes: u64,
    /// The peer's rank in the view that the connection serves.
    rank: Rank,
    /// Free slots for outgoing messages.
    free: Vec<u8>,
    /// Slots for incoming messages that are not posted to the provider.
    unposted: Vec<u8>,
    in_flight: u64,
    /// Posts that I have sent, and the number of them that the peer has reported as taken in.
    posts: u64,
    acknowledged: u64,
    /// Posts that I have taken in, and the number of them that I have reported to the peer.
    taken: u64,
    told: u64,
    /// Messages of the next view that have arrived, and their bytes.
    held: VecDeque<(u8, u64)>,
    place: EndpointAddress,
}

/// The kind of an operation, packed into its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Write,
    Send(u8),
    Receive(u8),
}

/// The origin of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationContext {
    /// The number of the connection, which no other connection of this network has.
    pub(crate) number: u32,
    /// The peer's rank when the operation was begun. Its connection may have continued in another
    /// view since.
    pub(crate) rank: Rank,
    pub(crate) operation: Operation,
}

impl OperationContext {
    fn pack(self) -> usize {
        let (kind, slot) = match self.operation {
            Operation::Write => (0, 0),
            Operation::Send(slot) => (1, slot),
            Operation::Receive(slot) => (2, slot),
        };
        ((self.number as usize) << 32) | (((self.rank.index() << 2) | kind) << 8) | usize::from(slot)
    }

    pub(crate) fn unpack(context: usize) -> OperationContext {
        let slot = context as u8;
        let operation = match (context >> 8) & 3 {
            0 => Operation::Write,
            1 => Operation::Send(slot),
            _ => Operation::Receive(slot),
        };
        OperationContext { number: (context >> 32) as u32, rank: Rank((context as u32) >> 10), operation }
    }
}

/// Returns the bytes of the longest message between the owners of these rows. Both sides compute
/// the same number.
fn message_bytes(mine: &RowLayout, theirs: &RowLayout) -> u64 {
    let statement_bytes = 8 * announcements(mine).len().max(announcements(theirs).len()) as u64;
    let body_bytes = mine.control.max(theirs.control).max(statement_bytes).max(HELLO_MESSAGE_BYTES);
    (HEAD_BYTES + body_bytes).next_multiple_of(64)
}

impl Channel {
    /// Creates a channel over `endpoint`, not connected yet, with slots for the messages between
    /// the owners of these rows.
    pub(crate) fn new(
        desk: &ViewDesk,
        place: EndpointAddress,
        rank: Rank,
        endpoint: ActiveEndpoint,
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
            let (memory, start) = (slab.clone(), slab.pointer(&(0..bytes)));
            let bound = (mode & FI_MR_ENDPOINT != 0).then_some(&endpoint);
            // SAFETY: the range is inside the slab, which is kept.
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

    pub(crate) fn endpoint(&self) -> &ActiveEndpoint {
        &self.endpoint
    }

    pub(crate) fn number(&self) -> u32 {
        self.place.number()
    }

    /// Returns true if the owners of these rows can use it in another view. Both sides compute the
    /// same answer.
    pub(crate) fn fits(&self, mine: &RowLayout, theirs: &RowLayout) -> bool {
        message_bytes(mine, theirs) <= self.slot_bytes
    }

    /// Makes it serve the view of `desk` from now on, in which the peer is `rank`. Returns the
    /// messages that have arrived for that view.
    pub(crate) fn serve(&mut self, desk: &ViewDesk, rank: Rank) -> VecDeque<(u8, u64)> {
        self.place.give_to(desk);
        self.rank = rank;
        std::mem::take(&mut self.held)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns true if the peer has a slot for another post.
    pub(crate) fn has_credit(&self) -> bool {
        self.posts - self.acknowledged < POSTS_MAX
    }

    /// Returns true if a message of credit is due to the peer.
    pub(crate) fn owes_credit(&self) -> bool {
        self.taken - self.told >= CREDIT_STEP
    }

    /// Returns true if slots for incoming messages are not posted to the provider.
    pub(crate) fn lacks_receives(&self) -> bool {
        !self.unposted.is_empty()
    }

    /// Takes a free slot for an outgoing message.
    pub(crate) fn take_slot(&mut self) -> Option<u8> {
        self.free.pop()
    }

    pub(crate) fn give_back(&mut self, slot: u8) {
        self.free.push(slot);
    }

    /// Writes the body of the message in `slot`.
    pub(crate) fn fill(&mut self, slot: u8, body: &[u8]) {
        // SAFETY: the slot was taken from the free ones, so it is read neither here nor by hardware.
        unsafe { self.slab.write(self.slot(slot).start + HEAD_BYTES, body) };
    }

    /// Releases the resources of an operation that has ended, with success or not.
    pub(crate) fn complete(&mut self, operation: Operation) {
        match operation {
            Operation::Receive(_) => return,
            Operation::Send(slot) => self.free.push(slot),
            Operation::Write => {}
        }
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Sends the message whose body is in `slot`. Returns its bytes if it is in flight.
    pub(crate) fn send(
        &mut self,
        slot: u8,
        words: &Range<u64>,
        (kind, written): (MessageKind, u64),
        limits: &Limits,
    ) -> Result<Option<u64>, CallFailure> {
        if self.in_flight >= limits.queue {
            return Ok(None);
        }
        let (place, len) = (self.slot(slot), words.end - words.start);
        let head = MessageHead { at: words.start, len, taken: self.taken, kind, written };
        // SAFETY: the slot was taken from the free ones, so it is read neither here nor by hardware.
        unsafe { self.slab.write(place.start, head.encode().as_flattened()) };
        let bytes = HEAD_BYTES + len;
        let piece = self.piece(place.start..place.start + bytes);
        let flags = FI_COMPLETION | if bytes <= limits.inject_bytes { FI_INJECT } else { 0 };
        let context = self.context(Operation::Send(slot));
        // SAFETY: the slot was taken from the free slots, and is returned with the completion.
        match unsafe { self.endpoint.send(piece, context, flags) } {
            Ok(()) => {}
            Err(CallFailure { code: FI_EAGAIN, .. }) => return Ok(None),
            Err(failure) => return Err(failure),
        }
        self.told = self.taken;
        self.in_flight += 1;
        self.posts += u64::from(kind.takes_a_place());
        Ok(Some(bytes))
    }

    /// As [`send`](Self::send), for a body that is given here; finds a free slot itself.
    pub(crate) fn send_body(
        &mut self,
        body: &[u8],
        of: (MessageKind, u64),
        limits: &Limits,
    ) -> Result<Option<u64>, CallFailure> {
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

    /// Writes into the other side's memory, at `address` under `key`. Returns true if the write is
    /// in flight.
    ///
    /// # Safety
    /// The piece does not change until the operation has ended or the endpoint is closed.
    pub(crate) unsafe fn write(&mut self, piece: Piece, address: u64, key: u64) -> Result<bool, CallFailure> {
        let context = self.context(Operation::Write);
        // SAFETY: by this function's contract.
        match unsafe { self.endpoint.write(piece, address, key, context) } {
            Ok(()) => {}
            Err(CallFailure { code: FI_EAGAIN, .. }) => return Ok(false),
            Err(failure) => return Err(failure),
        }
        self.in_flight += 1;
        Ok(true)
    }

    /// Posts the free slots for incoming messages to the provider.
    pub(crate) fn post_receives(&mut self) -> Result<(), CallFailure> {
        while let Some(&slot) = self.unposted.last() {
            let piece = self.piece(self.slot(slot));
            // SAFETY: no code reads the slot until it is complete.
            match unsafe { self.endpoint.receive(piece, self.context(Operation::Receive(slot))) } {
                Ok(()) => _ = self.unposted.pop(),
                Err(CallFailure { code: FI_EAGAIN, .. }) => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Returns the words of the head of the message in `slot`.
    pub(crate) fn head(&self, slot: u8) -> [u64; 3] {
        let start = self.slot(slot).start;
        [0, 8, 16].map(|at| self.slab.load(start + at))
    }

    /// Returns the body of the message in `slot`, which has arrived and was not [taken
    /// in](Self::taken_in) yet.
    pub(crate) fn body(&self, slot: u8, len: u64) -> &[u8] {
        // SAFETY: inside the slab, which lives; the slot is complete and not posted again before
        // `self` is borrowed again.
        unsafe { self.slab.bytes(self.slot(slot).start + HEAD_BYTES, len) }
    }

    /// Records how many of my posts the peer reports as taken in.
    pub(crate) fn acknowledge(&mut self, taken: u64) {
        // A peer that reports more than is true receives more than it has slots for.
        self.acknowledged = self.acknowledged.max(taken.min(self.posts));
    }

    /// Frees the slot of a message that was taken in for another one.
    pub(crate) fn taken_in(&mut self, slot: u8, kind: MessageKind) -> Result<(), CallFailure> {
        self.taken += u64::from(kind.takes_a_place());
        self.unposted.push(slot);
        self.post_receives()
    }

    /// Keeps the message in `slot` for the next view. Its credit belongs to the connection, and
    /// counts at once.
    pub(crate) fn hold(&mut self, slot: u8, bytes: u64) -> Result<(), CallFailure> {
        if bytes < HEAD_BYTES {
            // The next view refuses it.
            self.held.push_back((slot, bytes));
            return Ok(());
        }
        let [_, taken, last] = self.head(slot);
        self.acknowledge(taken);
        if bytes == HEAD_BYTES && last & 0xff == MessageKind::Credit as u64 {
            return self.taken_in(slot, MessageKind::Credit);
        }
        self.held.push_back((slot, bytes));
        Ok(())
    }

    fn context(&self, operation: Operation) -> usize {
        OperationContext { number: self.number(), rank: self.rank, operation }.pack()
    }

    fn slot(&self, slot: u8) -> Range<u64> {
        let start = u64::from(slot) * self.slot_bytes;
        start..start + self.slot_bytes
    }

    fn piece(&self, range: Range<u64>) -> Piece {
        let description = self.slab_memory.as_ref().map_or(ptr::null_mut(), Registered::description);
        Piece { start: self.slab.pointer(&range), bytes: range.end - range.start, description }
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
                    let context = OperationContext { number, rank, operation };
                    assert_eq!(OperationContext::unpack(context.pack()), context);
                }
            }
        }
    }
}
