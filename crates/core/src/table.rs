//! The memory that members share, as the protocol sees it: the shared state table (SST) of the
//! Derecho papers.
//!
//! Every member owns one row and alone writes it. It reads its own copies of all other rows. A
//! fabric supplies the memory and keeps this contract, which is that of RDMA reliable connections:
//!
//! - Ranges that one member posts to one peer become visible there in the order in which they were
//!   posted. Inside one range no order is promised.
//! - An aligned 8-byte word, and an aligned 64-byte line, is never seen torn.
//! - A post carries the contents of its range at the time when `post` was called: never less, and
//!   nothing that was stored later (a word that announces data must not overtake the post of that
//!   data). Announced frames don't change, so only the control block needs copying.
//! - Posts to different peers are independent. A post of control words may be left out if a later
//!   post to that peer, not yet sent, covers it and every post of control words between the two.
//!   The peer then sees only the newer values, which is harmless because every word of a row is
//!   monotonic (INV-MONOTONE). A post must not be left out across a post of control words that
//!   remains, because that one may depend on it (`FINISHED` says that nothing more is announced).
//!
//! On shared memory a store is a post and is visible at once. Therefore engines store in posting
//! order, and nothing relies on a value being invisible until it is posted.
use crate::ids::Rank;
use crate::wire::ring::{HEADER_BYTES, Header, Kind, Ring};
use core::ops::Range;

/// Read access to the table: this member's own row and its copies of the other rows. Offsets are
/// bytes from the start of a row.
pub trait Rows {
    /// Loads the aligned 8-byte word at `at` of this member's copy of `member`'s row, with acquire
    /// order: all stores of the owner before it are visible after the load.
    ///
    /// # Panics
    /// If `member` is not in this view, or `at` is unaligned or outside the row.
    fn load(&self, member: Rank, at: u64) -> u64;

    /// Returns `len` bytes at `at` of this member's copy of `member`'s row. The caller knows from
    /// counters that it has loaded that the owner does not write them while the slice lives
    /// (INV-FRAME).
    ///
    /// # Panics
    /// If `member` is not in this view or the range is outside the row.
    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8];

    /// Access to one ring, for reading many of its frames.
    type Frames<'a>: Frames<'a>
    where
        Self: 'a;

    /// Returns this member's copy of `member`'s ring.
    ///
    /// # Panics
    /// If `member` is not in this view, or the ring is not inside its row.
    fn frames(&self, member: Rank, ring: &Ring) -> Self::Frames<'_>;
}

/// One ring of a table, looked up once. A *place* is a position in the ring, or its low bits.
pub trait Frames<'a>: Copy {
    /// Loads the two header words of the frame at `place`, each as by [`Rows::load`].
    fn header(self, place: u64) -> [u64; 2];

    /// Starts to prefetch the [block](crate::wire::ring::LookAhead::BLOCK_BYTES) at `place`, on memory
    /// where this may help.
    #[inline]
    fn prefetch(self, _place: u64) {}

    /// Returns the message in the frame at `place`. Returns `None` if no correct sender can have
    /// written it, or it is a void or the name of an object. The caller knows from counters that it
    /// has loaded that the owner does not write the frame while the payload lives (INV-FRAME).
    fn message(self, place: u64) -> Option<Found<'a>>;

    /// Returns the object that the frame at `place` names, as its payload. Returns `None` if the
    /// frame names none, or the object is not here. The caller must know the same as for
    /// [`message`](Self::message).
    #[inline]
    fn object(self, _place: u64) -> Option<Found<'a>> {
        None
    }
}

/// A message in its frame.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its round.
    pub round: u64,
    /// Bytes of the ring that its frame occupies.
    pub span: u64,
    /// Its payload.
    pub payload: &'a [u8],
}

/// The generic implementation of [`Frames`], for tables without a faster one. It looks up the
/// member for each call.
#[derive(Debug)]
pub struct Lookup<'a, R: ?Sized> {
    rows: &'a R,
    member: Rank,
    ring: Ring,
}

impl<'a, R: Rows + ?Sized> Lookup<'a, R> {
    /// Returns access to `member`'s ring in `rows`.
    pub fn new(rows: &'a R, member: Rank, ring: &Ring) -> Self {
        Lookup { rows, member, ring: *ring }
    }

    /// Returns the payload of the frame at `place`, if the frame names an object. The caller must
    /// know the same as for [`Frames::object`].
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

/// The way in which a member can detect that words of a row have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// A change can't be detected.
    Unknown,
    /// The row is read in place: each word is visible as soon as it is stored, in the order of the
    /// stores.
    Stored,
    /// Words arrive by posts, and this is a count of arrivals. It is raised after the words are
    /// visible.
    Arrived(u64),
}

/// Write access to this member's own row, and posts of its ranges to peers.
pub trait Table: Rows {
    /// Stores an aligned word of this member's own row with release order.
    ///
    /// # Panics
    /// If `at` is unaligned or outside the row.
    fn store(&mut self, at: u64, value: u64);

    /// Stores the round of the frame at `position` in `ring`, a ring of this member, with release
    /// order. The round is the second word of the frame's header.
    ///
    /// # Panics
    /// If the ring is outside the row.
    #[inline]
    fn stamp(&mut self, ring: &Ring, position: u64, round: u64) {
        self.store(ring.offset(position) + 8, round);
    }

    /// Makes `range` of this member's row appear in the copies of `peers`, after everything posted
    /// to them before. This member's own rank may be in `peers` and has no effect. A fabric in
    /// which a store is a post only has to wake the peers that sleep.
    fn post(&mut self, peers: &[Rank], range: Range<u64>);

    /// As [`post`](Self::post), for words that peers read at times of their own, or for which they
    /// are [woken](Self::wake). A fabric in which a store is a post has nothing to do.
    #[inline]
    fn post_quietly(&mut self, peers: &[Rank], range: Range<u64>) {
        self.post(peers, range);
    }

    /// Wakes those of `peers` that sleep, for words of this member's membership block that were
    /// [posted quietly](Self::post_quietly) to them. A fabric in which arriving words wake the peer
    /// has nothing to do.
    #[inline]
    fn wake(&mut self, _peers: &[Rank]) {}

    /// Whether words of peers' membership blocks may have appeared here since the last call, except
    /// those that were [posted quietly](Self::post_quietly). If the result is true, later loads see
    /// everything that had appeared before the call. A fabric that does not know returns true.
    #[inline]
    fn membership_moved(&mut self) -> bool {
        true
    }

    /// The way in which a change of words of `member`'s row can be detected here. It is
    /// [`Stored`](Trace::Stored) for this member's own row if peers may read it in place.
    #[inline]
    fn trace(&self, _member: Rank) -> Trace {
        Trace::Unknown
    }

    /// Whether `peer` will receive everything posted to it so far, even if a connection breaks or
    /// this member ends. True on a fabric in which a store is a post.
    fn is_heard(&self, _peer: Rank) -> bool {
        true
    }

    /// Whether a post is so expensive that words for which no peer waits should be sent with the
    /// next post. False on a fabric in which a store is a post.
    #[inline]
    fn posts_cost(&self) -> bool {
        true
    }
}
