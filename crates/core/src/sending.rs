//! The sender's half of a subgroup: what applications have committed, and which of it may be overwritten.
use crate::ablation::Ablation;
use crate::claims::{Claims, Tail};
use crate::ids::Rank;
use crate::planted::planted;
use crate::ring::{HEADER_BYTES, Header, Kind, Ring};
use crate::table::Table;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::hash::{Hash, Hasher};

/// My ring, if I send.
#[derive(Hash, Debug)]
pub(crate) struct Sending {
    /// My sender rank.
    pub(crate) rank: usize,
    pub(crate) ring: Ring,
    pub(crate) claims: Arc<Claims>,
    pub(crate) checkpoints: Checkpoints,
    /// What of the exclusive claimer's frames is announced.
    tail: Tail,
    /// Frames announced: the other rounds are nulls.
    pub(crate) frames: u64,
    /// Voids of the exclusive claimer that were counted.
    voids: u64,
    /// How far the ring was freed when those who wait for room were told of it last.
    pub(crate) told: u64,
}

/// How far my ring and my rounds are announced.
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
    /// How many of them are voids.
    pub(crate) voids: u64,
    /// Where the ring stands behind them.
    pub(crate) position: u64,
    /// Offset in the row of their end.
    pub(crate) end: u64,
    /// Whether some were left for the next time.
    pub(crate) more: bool,
}

impl Sending {
    pub(crate) fn new(rank: usize, ring: Ring) -> Sending {
        let claims = Arc::new(Claims::new(ring));
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

    /// How far the exclusive claimer's frames are announced.
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// What of my ring may be written over while observers follow, who acknowledge nothing; `popped` checkpoints of it were delivered
    /// since I looked last, and it is free up to `freed`. Half a lap stays readable behind what is announced, but for as much as the
    /// next message takes.
    #[cold]
    pub(crate) fn release(&mut self, popped: usize, freed: u64, published: u64) -> u64 {
        let Ring { capacity, frame_bytes_max, .. } = self.ring;
        self.checkpoints.release(popped, freed, |freed, position| {
            position + capacity / 2 <= published || freed + capacity < published + frame_bytes_max
        })
    }

    /// Whether anything was claimed that has yet to be announced from `position` on; an exclusive claim once it is committed.
    pub(crate) fn has_more(&self, position: u64) -> bool {
        self.claims.tail() != self.tail || self.claims.is_claimed(position)
    }

    /// How far the ring was claimed or committed by now, if it is announced up to `published`.
    pub(crate) fn committed(&self, published: u64) -> u64 {
        (published + self.claims.tail().since(self.tail).1).max(self.claims.claimed())
    }

    /// Takes what applications have committed since `announced.published`, and makes sure that it is stamped with its rounds.
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

    /// The frames of the exclusive claimer. Its guesses of the rounds only grow with what it knows of nulls, so they are all
    /// right if the first one is.
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
        // After the tail: if that covers an object, the gate is before it, or it was opened.
        let gate = self.claims.gate();
        let is_held = start + tail.since(self.tail).1 > gate && !planted!(GateIgnored);
        let tail = if is_held { self.tail_before(gate, table, me, start) } else { tail };
        let (frames, bytes) = tail.since(self.tail);
        if frames == 0 {
            return SendBatch::default();
        }
        let position = start + bytes;
        if table.load(me, ring.offset(start) + 8) != announced.rounds && !planted!(GuessesBelieved) {
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

    /// What of the exclusive claimer's frames from `start` on, where the ring is announced, lies before `gate`.
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

    /// The frames of many claimers, as far as they are committed without a gap.
    fn collect_marked<T: Table>(&mut self, table: &mut T, announced: Announced, ablation: &Ablation) -> SendBatch {
        let (ring, marks) = (self.ring, self.claims.marks());
        let mut batch = SendBatch { position: announced.published, ..SendBatch::default() };
        // The gate is looked at after the mark.
        let is_open = |position| self.claims.gate() > position || planted!(GateIgnored);
        while let Some((kind, span)) = marks.take(batch.position, || is_open(batch.position)) {
            table.stamp(&ring, batch.position, announced.rounds + batch.frames);
            batch.frames += 1;
            // A void takes a round too, so that its space is freed like a message's.
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

/// From rounds to ring positions: where my ring stood when so many rounds were announced.
///
/// A fixed number of pairs, a power of two; when they are all in use the newest is moved forward, which only frees space later.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    pairs: Box<[(u64, u64)]>,
    first: usize,
    count: usize,
    popped: u64,
    /// While observers follow: how many of those that were popped are [held](Self::hold).
    held: Option<usize>,
}

/// Send batches that may be on the way before two share a checkpoint, at most.
const CHECKPOINTS_MAX: u64 = 1024;

impl Hash for Checkpoints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Those that were popped and are not held are nothing any more.
        let held = self.held.unwrap_or(0);
        let first = self.pairs.len() + self.first;
        (first - held..first + self.count).for_each(|i| self.pairs[self.at(i)].hash(state));
        (self.popped, self.held).hash(state);
    }
}

impl Checkpoints {
    /// For a ring of so many bytes.
    fn new(capacity: u64) -> Checkpoints {
        // No ring holds more frames.
        let count = (capacity / HEADER_BYTES).next_power_of_two().min(CHECKPOINTS_MAX) as usize;
        Checkpoints { pairs: alloc::vec![(0, 0); count].into(), first: 0, count: 0, popped: 0, held: None }
    }

    fn at(&self, i: usize) -> usize {
        i & (self.pairs.len() - 1)
    }

    /// The position that [`pop`](Self::pop) answered last.
    pub(crate) fn popped(&self) -> u64 {
        self.popped
    }

    /// Checkpoints that were not popped.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// From now on those that are popped are held until they are [released](Self::release), or no more.
    pub(crate) fn hold(&mut self, hold: bool) {
        self.held = hold.then(|| self.held.unwrap_or(0));
    }

    /// Whether those that are popped are held.
    pub(crate) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Holds the `popped` newest of those that were popped as well, and goes on from `freed` over those held as long as `is_due`
    /// says so, by the position so far and the next one. Where it came to; a frame starts there.
    pub(crate) fn release(&mut self, popped: usize, mut freed: u64, is_due: impl Fn(u64, u64) -> bool) -> u64 {
        // Of the oldest the pairs may be in use again, which only frees their space later.
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
            *newest = if planted!(CheckpointsMergeForward) { (newest.0, position) } else { (rounds, position) };
        } else {
            let next = self.at(self.first + self.count);
            self.pairs[next] = (rounds, position);
            self.count += 1;
        }
    }

    /// The position below which no member needs anything, if `done` tells whether so many of my rounds are delivered everywhere. A
    /// frame starts there.
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
