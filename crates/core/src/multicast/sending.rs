//! The sender's half of a subgroup: the frames that applications have committed, and the space that
//! may be overwritten.
use crate::ids::Rank;
use crate::multicast::ablation::Ablation;
use crate::multicast::claims::{Claims, Tail};
use crate::mutation::mutation;
use crate::table::Table;
use crate::wire::ring::{HEADER_BYTES, Header, Kind, Ring};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::hash::{Hash, Hasher};

/// This member's ring, if it is a sender.
#[derive(Hash, Debug)]
pub(crate) struct Sending {
    /// Its sender rank.
    pub(crate) rank: usize,
    pub(crate) ring: Ring,
    pub(crate) claims: Arc<Claims>,
    pub(crate) checkpoints: Checkpoints,
    /// The announced part of the exclusive claimer's frames.
    tail: Tail,
    /// Frames announced. The other rounds are nulls.
    pub(crate) frames: u64,
    /// Voids of the exclusive claimer that were counted.
    voids: u64,
    /// The position up to which the ring was freed when the claimers that wait for room were last
    /// notified.
    pub(crate) told: u64,
}

/// The announced part of this member's ring and rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) published: u64,
    pub(crate) rounds: u64,
}

/// Committed frames of one sector, stamped and ready to be announced.
#[derive(Debug, Default)]
pub(crate) struct SendBatch {
    /// Frames, each of which takes a round.
    pub(crate) frames: u64,
    /// The number of voids among them.
    pub(crate) voids: u64,
    /// The ring position after them.
    pub(crate) position: u64,
    /// Offset of their end in the row.
    pub(crate) end: u64,
    /// Whether some committed frames were left for the next batch.
    pub(crate) more: bool,
}

impl Sending {
    pub(crate) fn new(rank: usize, ring: Ring, trailer_bytes: u64) -> Sending {
        let claims = Arc::new(Claims::new(ring, trailer_bytes));
        Sending {
            rank,
            ring,
            claims,
            checkpoints: Checkpoints::new(ring.capacity),
            tail: Tail::default(),
            frames: 0,
            voids: 0,
            told: 0,
        }
    }

    /// As [`Engine::fork`](crate::Engine::fork).
    pub(crate) fn fork(&self) -> Sending {
        Sending { claims: Arc::new(self.claims.fork()), checkpoints: self.checkpoints.clone(), ..*self }
    }

    /// The announced part of the exclusive claimer's frames.
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// Returns the position below which the ring may be overwritten while observers, which
    /// acknowledge nothing, read it. `popped` checkpoints of the ring were delivered since the last
    /// call, and it is free up to `freed`. Half a lap below `published` stays readable, except for
    /// the space that the next message needs.
    #[cold]
    pub(crate) fn release(&mut self, popped: usize, freed: u64, published: u64) -> u64 {
        let Ring { capacity, frame_bytes_max, .. } = self.ring;
        self.checkpoints.release(popped, freed, |freed, position| {
            position + capacity / 2 <= published || freed + capacity < published + frame_bytes_max
        })
    }

    /// Whether any frame at or after `position` was claimed and is not announced yet. A frame of an
    /// exclusive claimer counts once it is committed.
    pub(crate) fn has_more(&self, position: u64) -> bool {
        self.claims.tail() != self.tail || self.claims.is_claimed(position)
    }

    /// The position up to which the ring is claimed or committed now, if it is announced up to
    /// `published`.
    pub(crate) fn committed(&self, published: u64) -> u64 {
        (published + self.claims.tail().since(self.tail).1).max(self.claims.claimed())
    }

    /// Takes the frames that applications have committed since `announced.published`, and makes
    /// sure that they are stamped with their rounds.
    #[inline]
    pub(crate) fn collect<T: Table>(
        &mut self,
        table: &mut T,
        me: Rank,
        announced: Announced,
        ablation: &Ablation,
    ) -> SendBatch {
        let tail = self.claims.tail();
        if tail != self.tail {
            self.collect_exclusive(tail, table, me, announced, ablation)
        } else if self.claims.is_shared() {
            self.collect_marked(table, announced, ablation)
        } else {
            SendBatch::default()
        }
    }

    /// Collects the frames of the exclusive claimer. The rounds that it guesses rise only with the
    /// nulls that it knows of. Therefore all guesses are right if the first one is right.
    fn collect_exclusive<T: Table>(
        &mut self,
        tail: Tail,
        table: &mut T,
        me: Rank,
        announced: Announced,
        ablation: &Ablation,
    ) -> SendBatch {
        let (ring, start) = (self.ring, announced.published);
        let header = |table: &T, position| {
            let word = table.load(me, ring.offset(position));
            Header::decode(word, &ring).expect("my own frames are well formed")
        };
        let committed = tail.since(self.tail).1;
        let tail = if !ablation.send_batch {
            self.tail.step(ring.after(start, header(table, start).span) - start)
        } else if ring.ends_sector(start, committed) {
            self.claims.sector_end(start)
        } else {
            tail
        };
        // Load the gate after the tail: if the tail covers an object, the gate is before the object
        // or was opened for it.
        let gate = self.claims.gate();
        let is_held = start + tail.since(self.tail).1 > gate && !mutation!(GateIgnored);
        let tail = if is_held { self.tail_before(gate, table, me, start) } else { tail };
        let (frames, bytes) = tail.since(self.tail);
        if frames == 0 {
            return SendBatch::default();
        }
        let position = start + bytes;
        if table.load(me, ring.offset(start) + 8) != announced.rounds && !mutation!(GuessesBelieved) {
            let mut at = start;
            for round in announced.rounds..announced.rounds + frames {
                table.stamp(&ring, at, round);
                at = ring.after(at, header(table, at).span);
            }
        }
        let voids = (self.claims.voids() - self.voids).min(frames);
        self.voids += voids;
        self.tail = tail;
        let ends_lap = ring.offset(position) <= ring.offset(start);
        let end = if ends_lap { self.claims.lap_end() } else { ring.offset(position) };
        SendBatch { frames, voids, position, end, more: bytes < committed && !is_held }
    }

    /// The part of the exclusive claimer's frames that lies before `gate`. It begins at `start`,
    /// where the announced part ends.
    #[cold]
    fn tail_before<T: Table>(&self, gate: u64, table: &T, me: Rank, start: u64) -> Tail {
        let (mut tail, mut at) = (self.tail, start);
        while at < gate {
            let header = Header::decode(table.load(me, self.ring.offset(at)), &self.ring);
            let next = self.ring.after(at, header.expect("my own frames are well formed").span);
            (tail, at) = (tail.step(next - at), next);
        }
        tail
    }

    /// Collects the frames of many claimers, as far as they are committed without a gap.
    fn collect_marked<T: Table>(&mut self, table: &mut T, announced: Announced, ablation: &Ablation) -> SendBatch {
        let (ring, marks) = (self.ring, self.claims.marks());
        let mut batch = SendBatch { position: announced.published, ..SendBatch::default() };
        // Load the gate after the mark.
        let is_open = |position| self.claims.gate() > position || mutation!(GateIgnored);
        while let Some((kind, span)) = marks.take(batch.position, || is_open(batch.position)) {
            table.stamp(&ring, batch.position, announced.rounds + batch.frames);
            batch.frames += 1;
            // A void takes a round too, so that its space is freed like that of a message.
            batch.voids += u64::from(kind == Kind::Void);
            batch.end = ring.offset(batch.position) + span;
            batch.more = !ablation.send_batch || ring.ends_sector(batch.position, span);
            batch.position = ring.after(batch.position, span);
            if batch.more {
                break;
            }
        }
        batch
    }
}

/// Maps rounds to ring positions: the end of this member's ring when a number of rounds was
/// announced.
///
/// It holds a fixed number of pairs, a power of two. If all are in use the newest is moved forward,
/// which only frees space later.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    pairs: Box<[(u64, u64)]>,
    first: usize,
    count: usize,
    popped: u64,
    /// While observers read the ring: the number of popped checkpoints that are [held](Self::hold).
    held: Option<usize>,
}

/// Maximum number of send batches in transit before two of them share a checkpoint.
const CHECKPOINTS_MAX: u64 = 1024;

impl Hash for Checkpoints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Checkpoints that were popped and are not held have no effect any more.
        let held = self.held.unwrap_or(0);
        let first = self.pairs.len() + self.first;
        (first - held..first + self.count).for_each(|i| self.pairs[self.at(i)].hash(state));
        (self.popped, self.held).hash(state);
    }
}

impl Checkpoints {
    /// Checkpoints for a ring of `capacity` bytes.
    fn new(capacity: u64) -> Checkpoints {
        // No ring holds more frames than this.
        let count = (capacity / HEADER_BYTES).next_power_of_two().min(CHECKPOINTS_MAX) as usize;
        Checkpoints { pairs: alloc::vec![(0, 0); count].into(), first: 0, count: 0, popped: 0, held: None }
    }

    fn at(&self, i: usize) -> usize {
        i & (self.pairs.len() - 1)
    }

    /// The last position that [`pop`](Self::pop) returned.
    pub(crate) fn popped(&self) -> u64 {
        self.popped
    }

    /// The number of checkpoints that were not popped.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// With `hold`, popped checkpoints are held until they are [released](Self::release). Without
    /// it, they are held no more.
    pub(crate) fn hold(&mut self, hold: bool) {
        self.held = hold.then(|| self.held.unwrap_or(0));
    }

    /// Whether popped checkpoints are held.
    pub(crate) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Holds the `popped` newest of the popped checkpoints as well. Then releases held checkpoints,
    /// from `freed` on, while `is_due` returns true for the current position and the next one.
    /// Returns the position that it has reached, at which a frame starts.
    pub(crate) fn release(&mut self, popped: usize, mut freed: u64, is_due: impl Fn(u64, u64) -> bool) -> u64 {
        // The pairs of the oldest checkpoints may be in use again, which only frees their space
        // later.
        let mut held = (self.held.unwrap_or(0) + popped).min(self.pairs.len() - self.count);
        while held > 0 {
            let (_, position) = self.pairs[self.at(self.pairs.len() + self.first - held)];
            if !is_due(freed, position) {
                break;
            }
            (freed, held) = (position, held - 1);
        }
        self.held = Some(held);
        freed
    }

    pub(crate) fn push(&mut self, rounds: u64, position: u64) {
        if self.count == self.pairs.len() {
            let newest = self.at(self.first + self.count - 1);
            let newest = &mut self.pairs[newest];
            *newest = if mutation!(CheckpointsMergeForward) { (newest.0, position) } else { (rounds, position) };
        } else {
            let next = self.at(self.first + self.count);
            self.pairs[next] = (rounds, position);
            self.count += 1;
        }
    }

    /// Pops checkpoints whose rounds are `done`, and returns the position below which no member
    /// needs anything. A frame starts there. `done` returns whether that number of this member's
    /// rounds is delivered everywhere.
    #[inline]
    pub(crate) fn pop(&mut self, done: impl Fn(u64) -> bool) -> u64 {
        while self.count > 0 && done(self.pairs[self.first].0) {
            self.popped = self.pairs[self.first].1;
            self.first = self.at(self.first + 1);
            self.count -= 1;
        }
        self.popped
    }
}
