//! The application's side of a ring: claim space, fill it in place, commit.
//!
//! [`Claims`] is shared by the senders and by the engine that announces their frames. It is private
//! to the process; only the frames themselves are stored in the row. A ring is used in one of two
//! ways:
//!
//! - By *one* claimer, with an [`Exclusive`]. Its commits are in order, so each moves one word,
//!   `tail`, with release order. It also stamps the frame with the round that it will have unless
//!   nulls come before it. The engine checks the first stamp of a batch, and announces the batch
//!   without checking the other stamps.
//! - By *many* claimers. A claim moves `claimed`. A commit sets the *mark* of the granule at which
//!   the frame starts, with release order. The engine collects the marks in order and stamps the
//!   frames.
//!
//! Tail and marks are stored outside the ring. So no payload byte of an earlier lap can look like a
//! commit, and no lap has to be cleared. Nothing here blocks: if the ring is full the caller gets
//! an error, and may retry later. `limit` keeps INV-FRAME: the engine raises it only after every
//! member has delivered the frames below it.
use crate::mutation::mutation;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, Padded};
use crate::wire::ring::{GRANULE_BYTES, HEADER_BYTES, Header, Kind, LookAhead, Ring, SECTORS, frame_bytes};
use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

/// Bit in a mark: the frame is a void.
const VOID: u32 = 1 << 31;
/// Bit in a mark: the frame names an object.
const OBJECT: u32 = 1 << 30;
/// Value of `claimed` while an [`Exclusive`] exists. It is above any limit, so the ring is full for
/// all other claimers.
const EXCLUSIVE: u64 = 1 << 62;
/// Added to `claimed`: no more space is claimed.
const SEALED: u64 = 1 << 63;
/// The value of `claimed` while one claimer has exclusive use of a ring that was revoked.
const REVOKED: u64 = EXCLUSIVE | SEALED;

/// Claims on one ring.
#[derive(Debug)]
pub struct Claims {
    ring: Ring,
    /// Bytes at the end of each frame, after its payload.
    trailer_bytes: u64,
    /// Messages that are shorter are claimed in the usual way. It is 0 if frames have a trailer.
    plain_end: u64,
    front: Padded<Front>,
    /// Position up to which space may be claimed. Written by the engine.
    limit: Padded<AtomicU64>,
    /// This member's rounds that contain no frame, so far. Written by the engine. It is only a hint
    /// for the number of the next round.
    nulls: AtomicU64,
    /// Offset in the row of the end of the last lap that the exclusive claimer has completed.
    lap_end: AtomicU64,
    /// For each sector, the tail after the last frame that the exclusive claimer has committed in
    /// it, in its newest lap.
    sector_ends: [AtomicU64; SECTORS],
    /// Voids that the exclusive claimer has committed.
    voids: AtomicU64,
    /// One mark per granule: from commit until the engine has announced the frame that starts
    /// there, the span of the frame in granules, with [`VOID`] or [`OBJECT`] added if it is one;
    /// otherwise 0.
    marks: Box<[AtomicU32]>,
    /// Position from which on nothing is announced. Written by threads that commit objects.
    gate: AtomicU64,
    /// Position from which on no space is freed. Written by threads that track the outcome of a
    /// frame.
    watch: AtomicU64,
}

/// The words that applications change and that the engine reads in each poll. They share one cache
/// line, as most rings are idle.
#[derive(Debug)]
struct Front {
    /// Position up to which space is claimed, with [`SEALED`] added once it is final; or
    /// [`EXCLUSIVE`]. Written by claimers.
    claimed: AtomicU64,
    /// The commits of the exclusive claimer, as a [`Tail`].
    tail: AtomicU64,
    /// Rounds that applications have skipped, and that the engine has not taken.
    skipped: AtomicU64,
    /// Whether no more space will be claimed.
    closed: AtomicBool,
}

impl Hash for Claims {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Front { claimed, tail, skipped, .. } = &*self.front;
        let words = [claimed, &*self.limit, &self.nulls, tail, &self.lap_end, &self.voids, skipped];
        for word in words.into_iter().chain([&self.gate, &self.watch]).chain(&self.sector_ends) {
            word.load(Ordering::Relaxed).hash(state);
        }
        self.marks.iter().for_each(|mark| mark.load(Ordering::Relaxed).hash(state));
        self.is_closed().hash(state);
    }
}

/// The state of the only claimer of a ring, which saves it loads of shared words.
#[derive(Debug)]
pub struct Exclusive {
    /// Position after the last committed frame. A claim does not move it: if the claim is leaked,
    /// its space is claimed again.
    position: u64,
    /// The limit when it was last loaded; it only grows.
    limit: u64,
    /// Frames committed.
    frames: u64,
    ahead: LookAhead,
}

impl Exclusive {
    /// Returns the position of the next claim.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Prefetches the cache lines of the next claims, as far as no other thread uses them. Calls
    /// `prefetch` with the positions of blocks.
    #[inline(always)]
    pub fn look_ahead(&mut self, prefetch: impl Fn(u64)) {
        self.ahead.pass(self.position, self.limit, prefetch);
    }
}

/// The number of frames and granules that an exclusive claimer has committed, in one word: frames
/// in the high half, granules in the low half, both wrapping. No ring holds enough for a wrapped
/// difference to be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Tail(u64);

impl Tail {
    fn new(frames: u64, position: u64) -> Tail {
        Tail(frames << 32 | ((position / GRANULE_BYTES) & 0xffff_ffff))
    }

    /// Returns (frames, bytes) from `earlier` to this tail.
    pub(crate) fn since(self, earlier: Tail) -> (u64, u64) {
        let frames = ((self.0 >> 32) as u32).wrapping_sub((earlier.0 >> 32) as u32);
        let granules = (self.0 as u32).wrapping_sub(earlier.0 as u32);
        (frames.into(), u64::from(granules) * GRANULE_BYTES)
    }

    /// Returns the tail after one more frame of `bytes`.
    pub(crate) fn step(self, bytes: u64) -> Tail {
        let frames = (self.0 >> 32).wrapping_add(1);
        let granules = (self.0 as u32).wrapping_add((bytes / GRANULE_BYTES) as u32);
        Tail(frames << 32 | u64::from(granules))
    }
}

/// Claimed space that no other thread writes until it is committed. It is not `Clone`, as it
/// represents the space.
#[derive(Debug)]
#[must_use = "a claim that is never committed stops its ring for ever"]
pub struct Claim {
    position: u64,
    span: u64,
    len: u64,
}

/// The reason why space could not be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClaimError {
    /// The message is longer than the subgroup allows.
    #[error("a message of {len} bytes is over the subgroup's limit of {max} bytes: split it, or raise the limit")]
    TooLong {
        /// Bytes requested.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The ring is full until the slowest member has delivered more.
    #[error("the ring is full until the slowest member has delivered more")]
    Full,
}

impl Claims {
    pub(crate) fn new(ring: Ring, trailer_bytes: u64) -> Claims {
        Claims {
            ring,
            trailer_bytes,
            plain_end: if trailer_bytes == 0 { ring.message_bytes_max + 1 } else { 0 },
            front: Padded(Front {
                claimed: AtomicU64::new(0),
                tail: AtomicU64::new(0),
                skipped: AtomicU64::new(0),
                closed: AtomicBool::new(false),
            }),
            limit: Padded(AtomicU64::new(ring.capacity)),
            nulls: AtomicU64::new(0),
            lap_end: AtomicU64::new(0),
            sector_ends: core::array::from_fn(|_| AtomicU64::new(0)),
            voids: AtomicU64::new(0),
            marks: (0..ring.capacity / GRANULE_BYTES).map(|_| AtomicU32::new(0)).collect(),
            gate: AtomicU64::new(u64::MAX),
            watch: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns a copy, as of now, of claims that no thread uses.
    pub(crate) fn fork(&self) -> Claims {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Claims {
            ring: self.ring,
            trailer_bytes: self.trailer_bytes,
            plain_end: self.plain_end,
            front: Padded(Front {
                claimed: copy(&self.front.claimed),
                tail: copy(&self.front.tail),
                skipped: copy(&self.front.skipped),
                closed: AtomicBool::new(self.is_closed()),
            }),
            limit: Padded(copy(&self.limit)),
            nulls: copy(&self.nulls),
            lap_end: copy(&self.lap_end),
            sector_ends: core::array::from_fn(|i| copy(&self.sector_ends[i])),
            voids: copy(&self.voids),
            marks: self.marks.iter().map(|mark| AtomicU32::new(mark.load(Ordering::Relaxed))).collect(),
            gate: copy(&self.gate),
            watch: copy(&self.watch),
        }
    }

    /// The ring to which the claims belong.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Bytes at the end of each frame, after its payload: [`TIME_BYTES`](crate::wire::ring::TIME_BYTES)
    /// in a logged subgroup, 0 in all others.
    #[inline]
    pub fn trailer_bytes(&self) -> u64 {
        self.trailer_bytes
    }

    /// Bytes of ring space for a frame with `payload` bytes of payload.
    #[inline]
    pub fn frame_bytes(&self, payload: u64) -> u64 {
        frame_bytes(payload + self.trailer_bytes)
    }

    /// Claims space for `len` bytes of payload. Any number of threads may claim at once. If the
    /// frame has a [trailer](Self::trailer_bytes), `stamp` is called with the claim, to fill it.
    ///
    /// # Errors
    /// [`ClaimError::TooLong`], or [`ClaimError::Full`].
    #[inline]
    pub fn claim(&self, len: u64, stamp: impl FnOnce(&Claim)) -> Result<Claim, ClaimError> {
        let claim = self.claim_of(len, self.ring.message_bytes_max)?;
        self.stamp(&claim, stamp);
        Ok(claim)
    }

    #[inline]
    fn stamp(&self, claim: &Claim, stamp: impl FnOnce(&Claim)) {
        if self.trailer_bytes > 0 {
            stamp(claim);
        }
    }

    #[inline]
    fn claim_of(&self, len: u64, max: u64) -> Result<Claim, ClaimError> {
        let mut position = self.front.claimed.load(Ordering::Relaxed);
        loop {
            let (claim, next) = self.claim_at(position, len, self.limit(), max)?;
            // Relaxed: claims are disjoint and pass no data to each other.
            match self.front.claimed.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(claim),
                Err(now) => position = now,
            }
        }
    }

    /// Begins claiming without an atomic read-modify-write. Until
    /// [`end_exclusive`](Self::end_exclusive) only the holder of the result claims space on this
    /// ring. For all other claimers the ring is full.
    ///
    /// # Panics
    /// If space was claimed before, or if an exclusive claimer existed before.
    pub fn begin_exclusive(&self) -> Exclusive {
        // Relaxed: the claimer begins to exist here, and nothing was written before.
        let begun = self.front.claimed.compare_exchange(0, EXCLUSIVE, Ordering::Relaxed, Ordering::Relaxed);
        assert_eq!(begun, Ok(0), "a ring is used exclusively from the start, or never");
        Exclusive { position: 0, limit: self.limit(), frames: 0, ahead: LookAhead::default() }
    }

    /// Lets all threads claim from now on.
    pub fn end_exclusive(&self, holder: Exclusive) {
        // The ring may have been revoked before: then this is the end of it.
        let end = |claimed| Some(holder.position | claimed & SEALED);
        // Release: the next claimer comes after it, and a thread that collects marks finds the tail
        // final.
        let _ = self.front.claimed.fetch_update(Ordering::Release, Ordering::Relaxed, end);
    }

    /// As [`claim`](Self::claim), for the only claimer, which commits each claim before the next.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    #[inline(always)]
    pub fn claim_exclusive(
        &self,
        holder: &mut Exclusive,
        len: u64,
        stamp: impl FnOnce(&Claim),
    ) -> Result<Claim, ClaimError> {
        let position = holder.position;
        // The usual case: the frame has no trailer, the message is not too long, and there was room
        // when the limit was last loaded.
        if len < self.plain_end {
            let span = frame_bytes(len);
            if position + span <= holder.limit {
                return Ok(Claim { position, span, len });
            }
        }
        // Only the span comes from there, so that it can stay in a register.
        let span = self.claim_unusual(holder, len, stamp)?;
        Ok(Claim { position, span, len })
    }

    /// Returns the span of the only claimer's next claim, in all but the usual case.
    #[cold]
    #[inline(never)]
    fn claim_unusual(&self, holder: &mut Exclusive, len: u64, stamp: impl FnOnce(&Claim)) -> Result<u64, ClaimError> {
        holder.limit = self.limit();
        let (claim, _) = self.claim_at(holder.position, len, holder.limit, self.ring.message_bytes_max)?;
        self.stamp(&claim, stamp);
        Ok(claim.span)
    }

    /// As [`claim`](Self::claim), or [`claim_exclusive`](Self::claim_exclusive) for the only
    /// claimer, for a message that is sent again. It may be as long as any message that was
    /// accepted in the views before.
    ///
    /// # Errors
    /// As those functions. No message of a [`Resend`](crate::Resend) is too long.
    pub fn claim_again(
        &self,
        holder: Option<&mut Exclusive>,
        len: u64,
        stamp: impl FnOnce(&Claim),
    ) -> Result<Claim, ClaimError> {
        let max = match mutation!(LeftoversTooLong) {
            true => self.ring.message_bytes_max,
            false => self.ring.frame_bytes_max - HEADER_BYTES - self.trailer_bytes,
        };
        let claim = match holder {
            None => self.claim_of(len, max)?,
            Some(holder) => {
                holder.limit = self.limit();
                self.claim_at(holder.position, len, holder.limit, max)?.0
            }
        };
        self.stamp(&claim, stamp);
        Ok(claim)
    }

    /// Ends a sector: the frame of `span` bytes at `position`, which is being committed, is its
    /// last frame.
    #[cold]
    fn end_sector(&self, holder: &mut Exclusive, position: u64, span: u64) {
        // All stores are relaxed: the tail that covers the frame has the release.
        if self.ring.ends_lap(position, span) {
            holder.position = self.ring.after(position, span);
            self.lap_end.store(self.ring.offset(position) + span, Ordering::Relaxed);
        }
        let tail = Tail::new(holder.frames, holder.position);
        self.sector_ends[self.ring.sector(position)].store(tail.0, Ordering::Relaxed);
    }

    /// Returns the round that the next frame of the only claimer will have, unless nulls come
    /// before it. The claimer stores it in the second word of the frame's header before
    /// [`commit_exclusive`](Self::commit_exclusive).
    #[inline]
    pub fn guess_round(&self, holder: &Exclusive) -> u64 {
        holder.frames + self.nulls.load(Ordering::Relaxed)
    }

    /// As [`commit`](Self::commit), for the only claimer, which has stored a
    /// [guess](Self::guess_round) in the second word of the frame's header.
    ///
    /// # Panics
    /// As [`commit`](Self::commit).
    #[inline(always)]
    pub fn commit_exclusive(
        &self,
        holder: &mut Exclusive,
        claim: Claim,
        kind: Kind,
        len: u64,
        store: impl FnOnce(u64, u64),
    ) {
        assert!(len <= claim.len, "committed {len} bytes of a claim of {}", claim.len);
        debug_assert_eq!(holder.position, claim.position, "the only claim");
        store(claim.position, Header { kind, span: claim.span, len }.encode());
        if kind == Kind::Void {
            self.voids.fetch_add(1, Ordering::Relaxed);
        }
        holder.frames += 1;
        holder.position = claim.position + claim.span;
        if self.ring.ends_sector(claim.position, claim.span) {
            self.end_sector(holder, claim.position, claim.span);
        }
        // Release: an engine that loads this tail sees the frame.
        self.front.tail.store(Tail::new(holder.frames, holder.position).0, Ordering::Release);
    }

    /// Ends a claim: calls `store` with the position of the frame and its header word, then makes
    /// the frame visible to the engine. `len` may be less than was claimed. [`Kind::Void`] gives up
    /// the space.
    ///
    /// # Panics
    /// If `len` is more than was claimed.
    #[inline]
    pub fn commit(&self, claim: Claim, kind: Kind, len: u64, store: impl FnOnce(u64, u64)) {
        assert!(len <= claim.len, "committed {len} bytes of a claim of {}", claim.len);
        store(claim.position, Header { kind, span: claim.span, len }.encode());
        let kind = match kind {
            Kind::Message => 0,
            Kind::Void => VOID,
            Kind::Object => OBJECT,
        };
        // Release: an engine that takes the mark sees the payload and the header.
        self.mark(claim.position).store((claim.span / GRANULE_BYTES) as u32 | kind, Ordering::Release);
    }

    /// Sets the gate: frames from `position` on are not announced until the gate is moved forward.
    ///
    /// The caller moves the gate to a frame of [`Kind::Object`] before it commits that frame,
    /// unless the gate is already before an older one. When every member has the object, it moves
    /// the gate behind it, or to the next object that some members lack. `u64::MAX` opens the gate.
    /// The gate holds back only this ring's messages, not those of other senders.
    pub fn set_gate(&self, position: u64) {
        // Release: a thread that finds it open sees everything done before. It sees an object that
        // was committed behind it by that commit.
        self.gate.store(position, Ordering::Release);
    }

    /// Sets the watch: the space of frames from `position` on is not claimed again, even if they
    /// are delivered, so that their rounds can be read.
    ///
    /// The caller moves the watch to a frame before it commits that frame, unless the watch is
    /// already before an older one. `u64::MAX` removes the watch.
    pub fn set_watch(&self, position: u64) {
        // Relaxed: the engine sees the frame by a later commit, which has the release.
        self.watch.store(position, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn watch(&self) -> u64 {
        self.watch.load(Ordering::Relaxed)
    }

    /// The position of the gate, for a thread that has loaded the [tail](Self::tail) or the mark of
    /// frames that may be behind it.
    #[inline]
    pub(crate) fn gate(&self) -> u64 {
        // Acquire: pairs with the release in `set_gate`.
        self.gate.load(Ordering::Acquire)
    }

    /// Whether a gate is set: some members lack an object of this ring.
    pub(crate) fn is_gated(&self) -> bool {
        self.gate() != u64::MAX
    }

    /// Declares `rounds` rounds in which this member will send nothing, so that no member has to
    /// wait for its nulls. It is a hint: rounds beyond 2^46 in the life of a view are not skipped.
    pub fn skip_rounds(&self, rounds: u64) {
        self.front.skipped.fetch_add(rounds, Ordering::Relaxed);
    }

    /// Declares that nothing more will be claimed. Every claim must have been committed.
    pub fn close(&self) {
        // Release: a thread that finds it closed sees all marks.
        self.front.closed.store(true, Ordering::Release);
    }

    /// The position up to which many claimers have claimed; 0 while one claimer has exclusive use.
    pub fn claimed(&self) -> u64 {
        // Relaxed: a caller that asks whether the space was committed has to wait anyway.
        let claimed = self.front.claimed.load(Ordering::Relaxed) & !SEALED;
        if claimed >= EXCLUSIVE { 0 } else { claimed }
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.front.closed.load(Ordering::Acquire)
    }

    /// The committed frames of the exclusive claimer.
    #[inline]
    pub(crate) fn tail(&self) -> Tail {
        // Acquire: pairs with the release in `commit_exclusive`.
        Tail(self.front.tail.load(Ordering::Acquire))
    }

    /// The tail after the last frame of the sector of `position`. The caller must have loaded a
    /// [`tail`](Self::tail) that is there or further, and `position` must not be free yet: until
    /// then no frame of the next lap can take its space.
    #[inline]
    pub(crate) fn sector_end(&self, position: u64) -> Tail {
        Tail(self.sector_ends[self.ring.sector(position)].load(Ordering::Relaxed))
    }

    /// Offset in the row of the end of the last lap that ends below the newest
    /// [`tail`](Self::tail).
    #[inline]
    pub(crate) fn lap_end(&self) -> u64 {
        self.lap_end.load(Ordering::Relaxed)
    }

    /// Voids that the exclusive claimer has committed.
    pub(crate) fn voids(&self) -> u64 {
        self.voids.load(Ordering::Relaxed)
    }

    /// Whether many claimers may claim, so that marks may exist.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        // Acquire: pairs with the release in `end_exclusive`. If many claimers claim from the
        // start, the first claim makes this true, and its mark has the release.
        !matches!(self.front.claimed.load(Ordering::Acquire), 0 | EXCLUSIVE | REVOKED)
    }

    /// Whether space from `position` on is claimed by one of many claimers.
    pub(crate) fn is_claimed(&self, position: u64) -> bool {
        self.is_shared() && self.front.claimed.load(Ordering::Relaxed) != position
    }

    /// Sets the number of this member's rounds that contain no frame, for an exclusive claimer.
    pub(crate) fn set_nulls(&self, nulls: u64) {
        self.nulls.store(nulls, Ordering::Relaxed);
    }

    /// The committed frames of many claimers.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks { slots: &self.marks, mask: self.ring.capacity - 1 }
    }

    /// Refuses claims from now on, as if the ring were full for ever. An exclusive claimer may
    /// still use the room that it knows of, until it [retires](Self::retire).
    pub fn revoke(&self) {
        self.limit.store(0, Ordering::Release);
        // Relaxed: a claim that came first is found in the position, and its mark has the release.
        self.front.claimed.fetch_or(SEALED, Ordering::Relaxed);
    }

    /// Ends the only claimer, after the ring was revoked. It will commit nothing more here, and the
    /// ring is full for it for ever.
    pub fn retire(&self, holder: &mut Exclusive) {
        holder.limit = 0;
        // Release: a thread that loads it finds the tail final.
        self.front.claimed.store(holder.position | SEALED, Ordering::Release);
    }

    /// Whether everything that will ever be committed here lies below `position`, if the exclusive
    /// claimer's tail is `tail`.
    pub(crate) fn ends_at(&self, position: u64, tail: Tail) -> bool {
        // Load this first: space that is claimed or committed before it is visible after it.
        let is_closed = self.is_closed();
        match self.front.claimed.load(Ordering::Acquire) {
            EXCLUSIVE | REVOKED => is_closed && self.tail() == tail,
            claimed if claimed & SEALED != 0 => claimed & !SEALED == position,
            claimed => is_closed && claimed == position,
        }
    }

    /// Allows claims up to `position`.
    pub(crate) fn raise_limit(&self, position: u64) {
        // Release: pairs with the acquire in `claim_at`, so that new data in freed space comes
        // after every member's delivery of the old data.
        self.limit.store(position, Ordering::Release);
    }

    pub(crate) fn take_skipped(&self) -> u64 {
        // Checked first, because a swap on an idle ring would take the cache line for nothing.
        if self.front.skipped.load(Ordering::Relaxed) == 0 { 0 } else { self.front.skipped.swap(0, Ordering::Relaxed) }
    }

    /// Returns the claim of the frame at `position`, and the position after it. `limit` is the
    /// position up to which claims may extend, as the caller knows it.
    #[inline]
    fn claim_at(&self, position: u64, len: u64, limit: u64, max: u64) -> Result<(Claim, u64), ClaimError> {
        if len > max {
            return Err(ClaimError::TooLong { len, max });
        }
        let span = self.frame_bytes(len);
        if position + span > limit {
            return Err(ClaimError::Full);
        }
        Ok((Claim { position, span, len }, self.ring.after(position, span)))
    }

    fn limit(&self) -> u64 {
        // Acquire: pairs with the release in `raise_limit`.
        self.limit.load(Ordering::Acquire)
    }

    /// The mark of the frame at `position`.
    #[inline]
    fn mark(&self, position: u64) -> &AtomicU32 {
        &self.marks[((position & (self.ring.capacity - 1)) / GRANULE_BYTES) as usize]
    }
}

/// The committed frames of a ring, for the engine.
#[derive(Clone, Copy)]
pub(crate) struct Marks<'a> {
    slots: &'a [AtomicU32],
    mask: u64,
}

impl Marks<'_> {
    /// Takes the mark of the frame at `position`, if it is committed: its kind and span. The mark
    /// of an object is taken only if `is_open`.
    #[inline]
    pub(crate) fn take(self, position: u64, is_open: impl FnOnce() -> bool) -> Option<(Kind, u64)> {
        let slot = &self.slots[((position & self.mask) / GRANULE_BYTES) as usize];
        // Acquire: pairs with the release in `commit`.
        let mark = slot.load(Ordering::Acquire);
        if mark == 0 || (mark & OBJECT != 0 && !is_open()) {
            return None;
        }
        if !mutation!(MarkStays) {
            // Relaxed: `limit` orders the next claimer of this granule after it.
            slot.store(0, Ordering::Relaxed);
        }
        let kind = match mark & (VOID | OBJECT) {
            VOID => Kind::Void,
            OBJECT => Kind::Object,
            _ => Kind::Message,
        };
        Some((kind, u64::from(mark & !(VOID | OBJECT)) * GRANULE_BYTES))
    }
}

impl Claim {
    /// Bytes of payload that were claimed.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no payload was claimed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Position of the frame in its ring.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of ring space, with the header and the trailer.
    #[inline]
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Offset of the payload in the row of the ring's owner.
    #[inline]
    pub fn payload_offset(&self, ring: &Ring) -> u64 {
        ring.offset(self.position) + crate::wire::ring::HEADER_BYTES
    }
}
