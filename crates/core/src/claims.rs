//! The application's side of a ring: claim space, fill it in place, commit.
//!
//! [`Claims`] is shared by those who send and the engine that announces. It is private to the process; only the frames
//! themselves stand in the row. There are two ways to use a ring:
//!
//! - by *one* claimer, with an [`Exclusive`]: its commits are in order, so each moves one word, `tail`, with release order.
//!   It also stamps the frame with the round that it will have unless nulls come before it; the engine checks the first
//!   stamp of a batch, and announces the batch without looking at the rest;
//! - by *many*: a claim moves `claimed`, a commit sets the *mark* of the granule at which the frame starts, with release
//!   order, and the engine collects the marks in order and stamps the frames.
//!
//! Tail and marks stand outside the ring, so no payload byte left from an earlier lap can look like a commit, and no lap has
//! to be wiped. Nothing here blocks: a full ring is an error that the caller may wait out. INV-FRAME is kept by `limit`: the
//! engine raises it only after every member has delivered what stood there.
use crate::planted::planted;
use crate::ring::{GRANULE_BYTES, HEADER_BYTES, Header, Kind, LookAhead, Ring, SECTORS, frame_bytes};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, Padded};
use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

/// In a mark: the frame is a void.
const VOID: u32 = 1 << 31;
/// In a mark: the frame names an object.
const OBJECT: u32 = 1 << 30;
/// In `claimed`: an [`Exclusive`] is out. Further than any limit, so that to everybody else the ring is full.
const EXCLUSIVE: u64 = 1 << 62;
/// Added to `claimed`: nobody claims any more.
const SEALED: u64 = 1 << 63;

/// Claims on one ring.
#[derive(Debug)]
pub struct Claims {
    ring: Ring,
    front: Padded<Front>,
    /// Position up to which space may be claimed. Written by the engine.
    limit: Padded<AtomicU64>,
    /// Rounds of mine that hold no frame, so far. Written by the engine. Only a hint of what the next round will be.
    nulls: AtomicU64,
    /// Offset in the row of the end of the last lap that the exclusive claimer has ended.
    lap_end: AtomicU64,
    /// The tail behind the last frame that the exclusive claimer has committed of each sector, in its newest lap.
    sector_ends: [AtomicU64; SECTORS],
    /// Voids that the exclusive claimer has committed.
    voids: AtomicU64,
    /// One per granule: from commit until the engine has announced the frame that starts there, its span in granules, with
    /// [`VOID`] or [`OBJECT`] added if it is one; 0 otherwise.
    marks: Box<[AtomicU32]>,
    /// Position from which on nothing is announced. Written by those who commit objects.
    gate: AtomicU64,
    /// Position from which on no space is given back. Written by those who want to know what becomes of a frame.
    watch: AtomicU64,
}

/// The words that applications move and the engine looks at in each poll: one line, as most rings stand still.
#[derive(Debug)]
struct Front {
    /// Position up to which space is claimed, with [`SEALED`] added once that is final; or [`EXCLUSIVE`]. Written by claimers.
    claimed: AtomicU64,
    /// The exclusive claimer's commits, as [`Tail`].
    tail: AtomicU64,
    /// Rounds that applications have skipped, and the engine has not taken.
    skipped: AtomicU64,
    /// Whether nothing more is claimed.
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

/// Where the only claimer of a ring stands, so that it need not ask.
#[derive(Debug)]
pub struct Exclusive {
    /// Behind the last frame committed. A claim does not move it: one that is leaked is given out again.
    position: u64,
    /// As it was when it was last asked for; it only grows.
    limit: u64,
    /// Frames committed.
    frames: u64,
    ahead: LookAhead,
}

impl Exclusive {
    /// Brings the cache lines of the claims to come here, as far as nobody else uses them, by calls of `prefetch` with the
    /// positions of blocks.
    #[inline(always)]
    pub fn look_ahead(&mut self, prefetch: impl Fn(u64)) {
        self.ahead.pass(self.position, self.limit, prefetch);
    }
}

/// How far an exclusive claimer has committed, in one word: frames in the high half, granules in the low, both wrapping. No
/// ring holds enough for a wrapped difference to be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Tail(u64);

impl Tail {
    fn new(frames: u64, position: u64) -> Tail {
        Tail(frames << 32 | ((position / GRANULE_BYTES) & 0xffff_ffff))
    }

    /// (frames, bytes) from `earlier` to here.
    pub(crate) fn since(self, earlier: Tail) -> (u64, u64) {
        let frames = ((self.0 >> 32) as u32).wrapping_sub((earlier.0 >> 32) as u32);
        let granules = (self.0 as u32).wrapping_sub(earlier.0 as u32);
        (frames.into(), u64::from(granules) * GRANULE_BYTES)
    }

    /// One frame of `bytes` further.
    pub(crate) fn step(self, bytes: u64) -> Tail {
        let frames = (self.0 >> 32).wrapping_add(1);
        let granules = (self.0 as u32).wrapping_add((bytes / GRANULE_BYTES) as u32);
        Tail(frames << 32 | u64::from(granules))
    }
}

/// Claimed space that nobody else writes, until it is committed. Not `Clone`: it stands for the space.
#[derive(Debug)]
#[must_use = "a claim that is never committed stops its ring for ever"]
pub struct Claim {
    position: u64,
    span: u64,
    len: u64,
}

/// Why space could not be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClaimError {
    /// The message is longer than the subgroup allows.
    #[error("a message of {len} bytes is over the subgroup's limit of {max} bytes: split it, or raise the limit")]
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The ring is full until the slowest member has delivered more.
    #[error("the ring is full until the slowest member has delivered more")]
    Full,
}

impl Claims {
    pub(crate) fn new(ring: Ring) -> Claims {
        Claims {
            ring,
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

    /// A copy, as of now, of claims that nobody is using.
    pub(crate) fn fork(&self) -> Claims {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Claims {
            ring: self.ring,
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

    /// The ring that the claims are on.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Claims space for `len` bytes of payload; any number of threads may do so at once.
    ///
    /// # Errors
    /// [`ClaimError::TooLong`], or [`ClaimError::Full`].
    #[inline]
    pub fn claim(&self, len: u64) -> Result<Claim, ClaimError> {
        self.claim_of(len, self.ring.message_bytes_max)
    }

    #[inline]
    fn claim_of(&self, len: u64, max: u64) -> Result<Claim, ClaimError> {
        let mut position = self.front.claimed.load(Ordering::Relaxed);
        loop {
            let (claim, next) = self.claim_at(position, len, self.limit(), max)?;
            // Relaxed: claims are disjoint and pass nothing to each other.
            match self.front.claimed.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(claim),
                Err(now) => position = now,
            }
        }
    }

    /// Begins claiming without an atomic read-modify-write. Until [`end_exclusive`](Self::end_exclusive) the holder of the
    /// result is the only one who claims on this ring: to everybody else it is full.
    ///
    /// # Panics
    /// If anything was claimed before, or if there was an exclusive claimer before.
    pub fn begin_exclusive(&self) -> Exclusive {
        // Relaxed: the claimer comes into being here, and nothing was written before.
        let begun = self.front.claimed.compare_exchange(0, EXCLUSIVE, Ordering::Relaxed, Ordering::Relaxed);
        assert_eq!(begun, Ok(0), "a ring is used exclusively from the start, or never");
        Exclusive { position: 0, limit: self.limit(), frames: 0, ahead: LookAhead::default() }
    }

    /// Lets everybody claim from now on.
    pub fn end_exclusive(&self, holder: Exclusive) {
        // Release: who claims next comes behind it, and who collects marks finds the tail final.
        self.front.claimed.store(holder.position, Ordering::Release);
    }

    /// As [`claim`](Self::claim), for the only claimer, who commits each claim before the next.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn claim_exclusive(&self, holder: &mut Exclusive, len: u64) -> Result<Claim, ClaimError> {
        let (ring, position) = (&self.ring, holder.position);
        if len > ring.message_bytes_max {
            return Err(ClaimError::TooLong { len, max: ring.message_bytes_max });
        }
        let span = frame_bytes(len);
        if position + span > holder.limit {
            holder.limit = self.limit();
            if position + span > holder.limit {
                return Err(ClaimError::Full);
            }
        }
        Ok(Claim { position, span, len })
    }

    /// As [`claim`](Self::claim), or [`claim_exclusive`](Self::claim_exclusive) for the only claimer, for a message that is sent again:
    /// it may be as long as any that was accepted in the views before.
    ///
    /// # Errors
    /// As there. No message of a [`Resend`](crate::Resend) is too long.
    pub fn claim_again(&self, holder: Option<&mut Exclusive>, len: u64) -> Result<Claim, ClaimError> {
        let max = match planted!(LeftoversTooLong) {
            true => self.ring.message_bytes_max,
            false => self.ring.frame_bytes_max - HEADER_BYTES,
        };
        let Some(holder) = holder else { return self.claim_of(len, max) };
        holder.limit = self.limit();
        Ok(self.claim_at(holder.position, len, holder.limit, max)?.0)
    }

    /// The frame of `span` bytes at `position`, which is being committed, is the last of its sector.
    #[cold]
    fn end_sector(&self, holder: &mut Exclusive, position: u64, span: u64) {
        // Relaxed, all of it: the tail that covers the frame has the release.
        if self.ring.ends_lap(position, span) {
            holder.position = self.ring.after(position, span);
            self.lap_end.store(self.ring.offset(position) + span, Ordering::Relaxed);
        }
        let tail = Tail::new(holder.frames, holder.position);
        self.sector_ends[self.ring.sector(position)].store(tail.0, Ordering::Relaxed);
    }

    /// The round that the next frame of the only claimer will have, unless nulls come before it: what to put into the second
    /// word of its header before [`commit_exclusive`](Self::commit_exclusive).
    #[inline]
    pub fn guess_round(&self, holder: &Exclusive) -> u64 {
        holder.frames + self.nulls.load(Ordering::Relaxed)
    }

    /// As [`commit`](Self::commit), for the only claimer, who has stored a [guess](Self::guess_round) in the second word of
    /// the frame's header.
    ///
    /// # Panics
    /// As there.
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
        // Release: the engine that sees it sees the frame.
        self.front.tail.store(Tail::new(holder.frames, holder.position).0, Ordering::Release);
    }

    /// Ends a claim: hands `store` the position of the frame and its header word, then makes the frame visible to the
    /// engine. `len` may be less than was claimed. [`Kind::Void`] gives the space up.
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
        // Release: the engine that takes the mark sees the payload and the header.
        self.mark(claim.position).store((claim.span / GRANULE_BYTES) as u32 | kind, Ordering::Release);
    }

    /// Frames from `position` on are not announced until the gate is moved on. It is put before a frame of [`Kind::Object`] before that
    /// is committed, unless it is before an older one, and moved on when every member has the object: behind it, or to the next that some have not.
    /// `u64::MAX` opens it. Messages that others send do not wait for it, only this ring's.
    pub fn set_gate(&self, position: u64) {
        // Release: who sees it open sees what was done before. Who sees an object that was committed behind it sees it by that commit.
        self.gate.store(position, Ordering::Release);
    }

    /// The space of frames from `position` on is not claimed again, even if they are delivered, so that their rounds can be read. The watch
    /// is put before a frame before that is committed, unless it is before an older one. `u64::MAX` lifts it.
    pub fn set_watch(&self, position: u64) {
        // Relaxed: the engine sees the frame by a commit that comes later and has the release.
        self.watch.store(position, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn watch(&self) -> u64 {
        self.watch.load(Ordering::Relaxed)
    }

    /// Where the gate is, for somebody who has seen the [tail](Self::tail) or the mark of what may stand behind it.
    #[inline]
    pub(crate) fn gate(&self) -> u64 {
        // Acquire: pairs with the release in `set_gate`.
        self.gate.load(Ordering::Acquire)
    }

    /// Whether there is a gate: some members lack an object of this ring.
    pub(crate) fn is_gated(&self) -> bool {
        self.gate() != u64::MAX
    }

    /// Declares `rounds` rounds in which this member will send nothing, so that nobody has to wait for its nulls. A hint:
    /// those beyond 2^46 in the life of a view are not skipped.
    pub fn skip_rounds(&self, rounds: u64) {
        self.front.skipped.fetch_add(rounds, Ordering::Relaxed);
    }

    /// Declares that nothing more will be claimed. Every claim must have been committed.
    pub fn close(&self) {
        // Release: who sees it closed sees all marks.
        self.front.closed.store(true, Ordering::Release);
    }

    /// How far many claimers have claimed; 0 while one alone does.
    pub(crate) fn claimed(&self) -> u64 {
        // Relaxed: who asks whether it was committed has to wait anyhow.
        let claimed = self.front.claimed.load(Ordering::Relaxed) & !SEALED;
        if claimed >= EXCLUSIVE { 0 } else { claimed }
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.front.closed.load(Ordering::Acquire)
    }

    /// What the exclusive claimer has committed.
    #[inline]
    pub(crate) fn tail(&self) -> Tail {
        // Acquire: pairs with the release in `commit_exclusive`.
        Tail(self.front.tail.load(Ordering::Acquire))
    }

    /// The tail behind the last frame of the sector of `position`. Only if a [`tail`](Self::tail) has been seen that lies there
    /// or further, and `position` is not free yet: until then no frame of the next lap can take its place.
    #[inline]
    pub(crate) fn sector_end(&self, position: u64) -> Tail {
        Tail(self.sector_ends[self.ring.sector(position)].load(Ordering::Relaxed))
    }

    /// Offset in the row of the end of the last lap that ends below the newest [`tail`](Self::tail).
    #[inline]
    pub(crate) fn lap_end(&self) -> u64 {
        self.lap_end.load(Ordering::Relaxed)
    }

    /// Voids that the exclusive claimer has committed.
    pub(crate) fn voids(&self) -> u64 {
        self.voids.load(Ordering::Relaxed)
    }

    /// Whether many may claim, so that there may be marks.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        // Acquire: pairs with the release in `end_exclusive`. Where many claim from the start, it is the first claim that
        // tells; its mark has the release.
        !matches!(self.front.claimed.load(Ordering::Acquire), 0 | EXCLUSIVE)
    }

    /// Whether space from `position` on is claimed, by one of many claimers.
    pub(crate) fn is_claimed(&self, position: u64) -> bool {
        self.is_shared() && self.front.claimed.load(Ordering::Relaxed) != position
    }

    /// Tells an exclusive claimer how many of my rounds hold no frame.
    pub(crate) fn set_nulls(&self, nulls: u64) {
        self.nulls.store(nulls, Ordering::Relaxed);
    }

    /// The committed frames of many claimers.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks { slots: &self.marks, mask: self.ring.capacity - 1 }
    }

    /// Refuses claims from now on, as if the ring were full for ever. An exclusive claimer may still use up the room that it
    /// knows of, until it [retires](Self::retire).
    pub fn revoke(&self) {
        self.limit.store(0, Ordering::Release);
        // Relaxed: a claim that came first is found in the position, and its mark has the release.
        let seal = |claimed| (claimed & SEALED == 0 && claimed != EXCLUSIVE).then_some(claimed | SEALED);
        let _ = self.front.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, seal);
    }

    /// The only claimer ends, after the ring was revoked: it will commit nothing more here, and finds the ring full for ever.
    pub fn retire(&self, holder: &mut Exclusive) {
        holder.limit = 0;
        // Release: who sees it finds the tail final.
        self.front.claimed.store(holder.position | SEALED, Ordering::Release);
    }

    /// Whether everything that will ever be committed here lies below `position`, where the exclusive claimer's tail is `tail`.
    pub(crate) fn ends_at(&self, position: u64, tail: Tail) -> bool {
        // First: what is claimed, or committed, before it is seen after it.
        let is_closed = self.is_closed();
        match self.front.claimed.load(Ordering::Acquire) {
            EXCLUSIVE => is_closed && self.tail() == tail,
            claimed if claimed & SEALED != 0 => claimed & !SEALED == position,
            claimed => is_closed && claimed == position,
        }
    }

    /// Allows claims up to `position`.
    pub(crate) fn raise_limit(&self, position: u64) {
        // Release: pairs with the acquire in `claim_at`, so that what is written into freed space comes after every
        // member's delivery of what stood there.
        self.limit.store(position, Ordering::Release);
    }

    pub(crate) fn take_skipped(&self) -> u64 {
        // Checked first, because a swap on an idle ring would take the line for nothing.
        if self.front.skipped.load(Ordering::Relaxed) == 0 { 0 } else { self.front.skipped.swap(0, Ordering::Relaxed) }
    }

    /// Whether the frame at `position` may be claimed: `limit` is how far claims may go, as the caller knows it.
    #[inline]
    fn claim_at(&self, position: u64, len: u64, limit: u64, max: u64) -> Result<(Claim, u64), ClaimError> {
        if len > max {
            return Err(ClaimError::TooLong { len, max });
        }
        let span = frame_bytes(len);
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
    /// Takes the mark of the frame at `position`, if it is committed: its kind and span. Of an object only if `is_open`.
    #[inline]
    pub(crate) fn take(self, position: u64, is_open: impl FnOnce() -> bool) -> Option<(Kind, u64)> {
        let slot = &self.slots[((position & self.mask) / GRANULE_BYTES) as usize];
        // Acquire: pairs with the release in `commit`.
        let mark = slot.load(Ordering::Acquire);
        if mark == 0 || (mark & OBJECT != 0 && !is_open()) {
            return None;
        }
        if !planted!(MarkStays) {
            // Relaxed: the next claimer of this granule is ordered behind it by `limit`.
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

    /// Where the frame stands in its ring.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Offset of the payload in the row of the ring's owner.
    #[inline]
    pub fn payload_offset(&self, ring: &Ring) -> u64 {
        ring.offset(self.position) + crate::ring::HEADER_BYTES
    }
}
