//! Walking the frames of a subgroup in the order of delivery, in place.
//!
//! A [`Cursor`] knows, for each sender, which frame comes next. Asked for everything up to a frontier, it hands out a
//! [`Batch`]: an iterator over messages that stand in the senders' rings. The engine walks one for upcalls on its own
//! thread; a consumer on another thread walks its own and reports how far it came ([`Handoff`]). There is no queue between
//! them: the rings are the queue.
//!
//! What a peer wrote is checked before it is used: a frame that no correct sender can have written stops the cursor with a
//! [`Defect`], never with a panic.
use crate::ids::Rank;
use crate::planted::planted;
use crate::ring::{HEADER_BYTES, Header, Kind, Ring};
use crate::sync::{AtomicU64, Ordering, Padded};
use crate::table::Rows;
use crate::view::Order;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One message, in place.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub sender: Rank,
    /// Its round: in a subgroup with a total order, messages are ordered by (round, sender).
    pub round: u64,
    /// The payload, in the sender's ring.
    pub payload: &'a [u8],
}

/// A frame, or a run of frames, that breaks the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defect {
    /// Whose ring it stands in.
    pub sender: Rank,
    /// Its position in that ring.
    pub position: u64,
    /// The header word found there.
    pub header: u64,
}

/// The round of a lane that knows of no further frame.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
struct Lane {
    sender: Rank,
    ring: Ring,
    /// Offset in the sender's row of the word that says how far its ring is announced.
    published_at: u64,
    published: u64,
    /// Where the next frame starts, or will start.
    position: u64,
    /// The round of the frame at `position`, or [`NONE`].
    round: u64,
    header: Header,
    /// Rounds of this sender up to and with the newest of its frames behind the cursor.
    taken: u64,
}

/// A place in the order of one subgroup.
#[derive(Debug)]
pub struct Cursor {
    lanes: Vec<Lane>,
    order: Order,
    round: u64,
    /// The lane to look at next in `round`.
    lane: usize,
    /// Whether `round` had a message so far.
    found: bool,
    defect: Option<Defect>,
}

impl Cursor {
    /// A cursor at the start; `senders` gives, by sender rank, who it is, its ring, and the offset of its `published` word.
    pub(crate) fn new(order: Order, senders: impl Iterator<Item = (Rank, Ring, u64)>) -> Cursor {
        let header = Header { kind: Kind::Void, span: 0, len: 0 };
        let lanes = senders.map(|(sender, ring, published_at)| {
            let (published, position, round, taken) = (0, 0, NONE, 0);
            Lane { sender, ring, published_at, published, position, round, header, taken }
        });
        Cursor { lanes: lanes.collect(), order, round: 0, lane: 0, found: false, defect: None }
    }

    /// The messages from here up to `frontier` places of the total order; in a Fifo subgroup, all that were announced.
    pub fn advance<'a, R: Rows>(&'a mut self, rows: &'a R, frontier: u64) -> Batch<'a, R> {
        for lane in &mut self.lanes {
            // Loaded after the frontier, so everything below the frontier is announced by it.
            lane.published = rows.load(lane.sender, lane.published_at);
            if lane.round == NONE {
                lane.peek(rows, &mut self.defect);
            }
        }
        let senders = (self.lanes.len() as u64).max(1);
        let (end_round, end_lane) = (frontier / senders, (frontier % senders) as usize);
        Batch { rows, cursor: self, end_round, end_lane, messages: 0, bytes: 0 }
    }

    /// How many places of the total order lie behind the cursor.
    pub fn count(&self) -> u64 {
        self.round * self.lanes.len() as u64 + self.lane as u64
    }

    /// How many rounds of the sender with this sender rank lie behind the cursor, up to its newest frame.
    pub fn taken(&self, sender: usize) -> u64 {
        self.lanes[sender].taken
    }

    /// Whether `frontier`, as the engine handed it off, lies ahead of the cursor.
    pub fn is_behind(&self, frontier: u64) -> bool {
        match self.order {
            Order::Total => self.count() < frontier,
            Order::Fifo => self.lanes.iter().map(|lane| lane.taken).sum::<u64>() < frontier,
        }
    }

    /// Senders of the subgroup.
    pub fn senders(&self) -> usize {
        self.lanes.len()
    }

    /// What stopped the cursor for good, if anything did.
    pub fn defect(&self) -> Option<Defect> {
        self.defect
    }

    fn next_round(&mut self) {
        self.lane = 0;
        self.round += 1;
        if !core::mem::replace(&mut self.found, false) {
            // A round of nulls: go to the next one that holds a frame.
            let next = self.lanes.iter().map(|lane| lane.round).min().unwrap_or(NONE);
            let next = if planted!(SkipsARound) && next != NONE { next + 1 } else { next };
            self.round = self.round.max(next);
        }
    }
}

impl Lane {
    /// Looks at the frame at `position`, if one is announced, and passes over voids.
    #[inline]
    fn peek<R: Rows>(&mut self, rows: &R, defect: &mut Option<Defect>) {
        while self.position < self.published {
            let at = self.ring.offset(self.position);
            let word = rows.load(self.sender, at);
            let header = Header::decode(word, &self.ring);
            let round = rows.load(self.sender, at + 8);
            match header {
                Some(Header { kind: Kind::Void, span, .. }) if round >= self.taken && round < NONE => {
                    self.position = self.ring.after(self.position, span);
                    self.taken = round + 1;
                }
                Some(header) if round >= self.taken && round < NONE => {
                    self.header = header;
                    self.round = round;
                    return;
                }
                _ => {
                    *defect = Some(Defect { sender: self.sender, position: self.position, header: word });
                    break;
                }
            }
        }
        self.round = NONE;
    }

    /// Takes the frame that `peek` found and looks at the next one.
    #[inline]
    fn take<'a, R: Rows>(&mut self, rows: &'a R, defect: &mut Option<Defect>) -> Message<'a> {
        let payload = rows.bytes(self.sender, self.ring.offset(self.position) + HEADER_BYTES, self.header.len);
        let message = Message { sender: self.sender, round: self.round, payload };
        self.position = self.ring.after(self.position, self.header.span);
        self.taken = self.round + 1;
        self.peek(rows, defect);
        message
    }
}

/// Messages in the order of delivery, lent by their senders' rings.
///
/// A message counts as delivered when the batch that yielded it is dropped; one that was not taken out of the batch is
/// offered again. So a handler that stops early holds back only itself, and its senders when their rings are full.
#[derive(Debug)]
pub struct Batch<'a, R> {
    rows: &'a R,
    cursor: &'a mut Cursor,
    end_round: u64,
    end_lane: usize,
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
}

impl<R: Rows> Batch<'_, R> {
    /// Tells the engine that the consumer on this thread is done with what it took, and with the nulls behind it.
    pub fn report(mut self, handoff: &Handoff) {
        self.has_next();
        handoff.report(self.cursor, self.messages, self.bytes);
    }
}

impl<'a, R: Rows> Iterator for Batch<'a, R> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        if !self.has_next() {
            return None;
        }
        let cursor = &mut *self.cursor;
        let message = cursor.lanes[cursor.lane].take(self.rows, &mut cursor.defect);
        if cursor.order == Order::Total {
            cursor.lane += 1;
            cursor.found = true;
        }
        self.messages += 1;
        self.bytes += message.payload.len() as u64;
        Some(message)
    }
}

impl<R: Rows> Batch<'_, R> {
    /// Whether another message is there; passes over the nulls before it.
    #[inline]
    pub fn has_next(&mut self) -> bool {
        match self.cursor.order {
            _ if self.cursor.defect.is_some() => false,
            Order::Total => self.seek_in_total_order(),
            Order::Fifo => self.seek_announced(),
        }
    }

    #[inline]
    fn seek_in_total_order(&mut self) -> bool {
        let cursor = &mut *self.cursor;
        loop {
            if cursor.lane == cursor.lanes.len() {
                cursor.next_round();
            }
            if cursor.round > self.end_round || (cursor.round == self.end_round && cursor.lane >= self.end_lane) {
                // Passing over empty rounds may have gone beyond the frontier, where frames may be announced by now.
                (cursor.round, cursor.lane) = (self.end_round, self.end_lane);
                return false;
            }
            if cursor.lanes[cursor.lane].round == cursor.round {
                return true;
            }
            cursor.lane += 1;
        }
    }

    fn seek_announced(&mut self) -> bool {
        let cursor = &mut *self.cursor;
        let lanes = cursor.lanes.len();
        let ahead = (0..lanes).map(|i| (cursor.lane + i) % lanes).find(|&i| cursor.lanes[i].round != NONE);
        cursor.lane = ahead.unwrap_or(cursor.lane);
        ahead.is_some()
    }
}

/// What the engine and a consumer on another thread tell each other about one subgroup.
#[derive(Debug)]
pub struct Handoff {
    frontier: Padded<AtomicU64>,
    /// One count in a subgroup with a total order, one per sender in a Fifo one.
    delivered: Padded<Box<[AtomicU64]>>,
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
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    /// How far the consumer may go; to be given to [`Cursor::advance`]. In a Fifo subgroup it only tells that something
    /// was announced.
    pub fn frontier(&self) -> u64 {
        // Acquire: pairs with the release in `raise`; what the engine saw announced, the consumer sees.
        self.frontier.load(Ordering::Acquire)
    }

    /// Tells the engine that the consumer is done with everything behind `cursor`.
    pub fn report(&self, cursor: &Cursor, messages: u64, bytes: u64) {
        // Release: pairs with the acquire in `delivered`, so that no frame is freed before its reader is done.
        match cursor.order {
            Order::Total => self.delivered[0].store(cursor.count(), Ordering::Release),
            Order::Fifo => {
                for (count, lane) in self.delivered.iter().zip(&cursor.lanes) {
                    count.store(lane.taken, Ordering::Release);
                }
            }
        }
        if messages > 0 {
            // One consumer: plain additions, no read-modify-write.
            let add = |count: &AtomicU64, by| count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
            add(&self.messages, messages);
            add(&self.bytes, bytes);
            add(&self.batches, 1);
        }
    }

    pub(crate) fn raise(&self, frontier: u64) {
        self.frontier.store(frontier, Ordering::Release);
    }

    pub(crate) fn delivered(&self, index: usize) -> u64 {
        self.delivered[index].load(Ordering::Acquire)
    }

    /// Messages, bytes and batches so far.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.messages), load(&self.bytes), load(&self.batches))
    }
}
