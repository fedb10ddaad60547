//! The memory that members share, as the protocol sees it: the shared state table (SST) of the Derecho papers.
//!
//! Every member owns one row and alone writes it; it reads its own copy of everybody else's. A fabric supplies the
//! memory and keeps this contract, which is that of RDMA reliable connections:
//!
//! - ranges that one member posts to one peer become visible there in the order in which they were posted; inside one
//!   range no order is promised;
//! - an aligned 8-byte word, and an aligned 64-byte line, is never seen torn;
//! - a post carries what its range held when `post` was called: never less, and nothing that was stored after (a word that
//!   announces data must not overtake the post of that data). Announced frames don't change, so only the control block
//!   needs copying;
//! - posts to different peers are independent. A post of control words may be left out when a later one to that peer, not
//!   yet sent, covers it and every post of control words between the two: the peer sees only the newer values, which is
//!   harmless because every word of a row is monotonic (INV-MONOTONE). It must not be left out across a post of control
//!   words that stays, which may be one that speaks about it (`FINISHED` says that no more is announced).
//!
//! On shared memory a store is a post, seen at once. Engines therefore store in posting order, and nothing relies on a
//! value being unseen until it is posted.
use crate::ids::Rank;
use crate::ring::{HEADER_BYTES, Header, Kind, Ring};
use core::ops::Range;

/// Reading the table: my own row and my copies of the others'. Offsets are bytes from the start of a row.
pub trait Rows {
    /// The aligned 8-byte word at `at` in my copy of `member`'s row, with acquire order: whatever its owner stored before
    /// it is visible after it.
    ///
    /// # Panics
    /// If `member` is not of this view, or `at` is unaligned or outside the row.
    fn load(&self, member: Rank, at: u64) -> u64;

    /// `len` bytes at `at` in my copy of `member`'s row. The caller knows from counters it has loaded that the owner does
    /// not write them as long as the slice lives (INV-FRAME).
    ///
    /// # Panics
    /// If `member` is not of this view or the range is outside the row.
    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8];

    /// One ring, for reading many frames in it.
    type Frames<'a>: Frames<'a>
    where
        Self: 'a;

    /// My copy of `member`'s ring.
    ///
    /// # Panics
    /// If `member` is not of this view, or the ring not inside its row.
    fn frames(&self, member: Rank, ring: &Ring) -> Self::Frames<'_>;
}

/// One ring of a table, looked up once. A *place* is a position in the ring, or its low bits.
pub trait Frames<'a>: Copy {
    /// The two header words of the frame at `place`, each as by [`Rows::load`].
    fn header(self, place: u64) -> [u64; 2];

    /// Starts to bring the [block](crate::ring::LookAhead::BLOCK_BYTES) at `place` here, if the memory is such that this may
    /// help.
    #[inline]
    fn prefetch(self, _place: u64) {}

    /// The message in the frame at `place`; `None` if no correct sender can have written it, or it is a void or an object's name. The caller
    /// knows from counters it has loaded that the owner does not write the frame as long as the payload lives (INV-FRAME).
    fn message(self, place: u64) -> Option<Found<'a>>;

    /// The object that the frame at `place` names, as its payload; `None` if it names none, or one that is not here. The caller knows what
    /// it has to know for [`message`](Self::message).
    #[inline]
    fn object(self, _place: u64) -> Option<Found<'a>> {
        None
    }
}

/// A message as it stands in its frame.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its round.
    pub round: u64,
    /// Bytes of the ring that its frame takes.
    pub span: u64,
    /// Its payload.
    pub payload: &'a [u8],
}

/// The [`Frames`] of a table that has nothing better: it looks the member up each time.
#[derive(Debug)]
pub struct Lookup<'a, R: ?Sized> {
    rows: &'a R,
    member: Rank,
    ring: Ring,
}

impl<'a, R: Rows + ?Sized> Lookup<'a, R> {
    /// `member`'s ring in `rows`.
    pub fn new(rows: &'a R, member: Rank, ring: &Ring) -> Self {
        Lookup { rows, member, ring: *ring }
    }

    /// The payload of the frame at `place`, if that names an object. The caller knows what it has to know for [`Frames::object`].
    pub fn name(self, place: u64) -> Option<Found<'a>> {
        let [word, round] = self.header(place);
        let Header { span, len, .. } = Header::decode(word, &self.ring).filter(|header| header.kind == Kind::Object)?;
        let payload = self.rows.bytes(self.member, self.ring.offset(place) + HEADER_BYTES, len);
        Some(Found { round, span, payload })
    }
}

impl<R: ?Sized> Clone for Lookup<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ?Sized> Copy for Lookup<'_, R> {}

impl<'a, R: Rows + ?Sized> Frames<'a> for Lookup<'a, R> {
    fn header(self, place: u64) -> [u64; 2] {
        let at = self.ring.offset(place);
        [self.rows.load(self.member, at), self.rows.load(self.member, at + 8)]
    }

    fn message(self, place: u64) -> Option<Found<'a>> {
        let [word, round] = self.header(place);
        let Header { span, len, .. } = Header::of_message(word, self.ring.frame_bytes_max)?;
        let payload = self.rows.bytes(self.member, self.ring.offset(place) + HEADER_BYTES, len);
        Some(Found { round, span, payload })
    }
}

/// How it shows here that words of a row have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// It does not show.
    Unknown,
    /// The row is read in place: each word is here as soon as it is stored, in the order of the stores.
    Stored,
    /// Words appear by posts, and so often some have appeared. A count is raised after the words are here.
    Arrived(u64),
}

/// Writing the table: my own row, and posting ranges of it to peers.
pub trait Table: Rows {
    /// Stores an aligned word of my own row with release order.
    ///
    /// # Panics
    /// If `at` is unaligned or outside my row.
    fn store(&mut self, at: u64, value: u64);

    /// Stores the round of the frame at `position` in my `ring`, the second word of its header, with release order.
    ///
    /// # Panics
    /// If the ring is outside my row.
    #[inline]
    fn stamp(&mut self, ring: &Ring, position: u64, round: u64) {
        self.store(ring.offset(position) + 8, round);
    }

    /// Makes `range` of my row appear in the copies of `peers`, after everything posted to them before. My own rank may be
    /// among them and means nothing. A fabric in which a store is a post only has to wake the peers that sleep.
    fn post(&mut self, peers: &[Rank], range: Range<u64>);

    /// As [`post`](Self::post), for what peers look at by their clocks, or are [woken](Self::wake) for. A fabric in which a store is a post
    /// has nothing to do.
    #[inline]
    fn post_quietly(&mut self, peers: &[Rank], range: Range<u64>) {
        self.post(peers, range);
    }

    /// Wakes those of `peers` that sleep, for words of my membership block that were [posted quietly](Self::post_quietly) to them. A fabric in which what arrives
    /// wakes has nothing to do.
    #[inline]
    fn wake(&mut self, _peers: &[Rank]) {}

    /// Whether words of peers' membership blocks may have appeared here since the last call, but for those that were
    /// [posted quietly](Self::post_quietly). Loads after a call that answers true see all that had appeared before it. A fabric that does not know answers true.
    #[inline]
    fn membership_moved(&mut self) -> bool {
        true
    }

    /// How it shows here that words of the row of `member` have moved. My own row is [`Stored`](Trace::Stored) if peers may read it in place.
    #[inline]
    fn trace(&self, _member: Rank) -> Trace {
        Trace::Unknown
    }

    /// Whether no break of a connection, nor my end, keeps from `peer` what was posted to it by now. Where a store is a post that is so.
    fn is_heard(&self, _peer: Rank) -> bool {
        true
    }

    /// Whether a post costs enough that what nobody waits for had better go with the next one. Where a store is a post it does not.
    #[inline]
    fn posts_cost(&self) -> bool {
        true
    }
}
