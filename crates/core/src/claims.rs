//! The application's side of a ring: claim space, fill it in place, commit.
//!
//! [`Claims`] is shared by the threads that send and the engine that announces. It is private to the process; only the
//! frames themselves stand in the row. A claim moves `claimed`; a commit sets the *mark* of the granule at which the
//! frame starts, with release order; the engine takes the mark with acquire order and announces the frame. The marks
//! stand outside the ring, so no payload byte left from an earlier lap can look like a commit, and no lap has to be wiped.
//!
//! Nothing here blocks: a full ring is an error that the caller may wait out. INV-FRAME is kept by `limit`: the engine
//! raises it only after every member has delivered what stood there.
use crate::planted::planted;
use crate::ring::{GRANULE_BYTES, Header, Kind, Ring, frame_bytes};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, Padded};
use alloc::boxed::Box;

/// In a mark: the frame is a void.
const VOID: u32 = 1 << 31;

/// Claims on one ring.
#[derive(Debug)]
pub struct Claims {
    ring: Ring,
    /// Position up to which space is claimed. Written by claimers.
    claimed: Padded<AtomicU64>,
    /// Position up to which space may be claimed. Written by the engine.
    limit: Padded<AtomicU64>,
    /// One per granule: from commit until the engine has announced the frame that starts there, its span in granules, with
    /// [`VOID`] added if it is one; 0 otherwise.
    marks: Box<[AtomicU32]>,
    skipped: AtomicU64,
    closed: AtomicBool,
}

/// Where the only claimer of a ring stands, so that it need not ask.
#[derive(Debug)]
pub struct Exclusive {
    position: u64,
    /// As it was when it was last asked for; it only grows.
    limit: u64,
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
            claimed: Padded(AtomicU64::new(0)),
            limit: Padded(AtomicU64::new(ring.capacity)),
            marks: (0..ring.capacity / GRANULE_BYTES).map(|_| AtomicU32::new(0)).collect(),
            skipped: AtomicU64::new(0),
            closed: AtomicBool::new(false),
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
        let mut position = self.claimed.load(Ordering::Relaxed);
        loop {
            let (claim, next) = self.claim_at(position, len, self.limit())?;
            // Relaxed: claims are disjoint and pass nothing to each other.
            match self.claimed.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(claim),
                Err(now) => position = now,
            }
        }
    }

    /// Begins claiming without an atomic read-modify-write. Until [`end_exclusive`](Self::end_exclusive) the holder of the
    /// result is the only one who claims on this ring: two at once could be given the same space.
    pub fn begin_exclusive(&self) -> Exclusive {
        Exclusive { position: self.claimed.load(Ordering::Relaxed), limit: self.limit() }
    }

    /// Lets everybody claim again.
    pub fn end_exclusive(&self, holder: Exclusive) {
        // Relaxed: claims pass nothing to each other, and who claims next is ordered behind this by other means.
        self.claimed.store(holder.position, Ordering::Relaxed);
    }

    /// As [`claim`](Self::claim), for the only claimer.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn claim_exclusive(&self, holder: &mut Exclusive, len: u64) -> Result<Claim, ClaimError> {
        let mut outcome = self.claim_at(holder.position, len, holder.limit);
        if matches!(outcome, Err(ClaimError::Full)) {
            holder.limit = self.limit();
            outcome = self.claim_at(holder.position, len, holder.limit);
        }
        let (claim, next) = outcome?;
        holder.position = next;
        Ok(claim)
    }

    /// Ends a claim: hands `store` the offset and value of the frame's header word, then makes the frame visible to the
    /// engine. `len` may be less than was claimed. [`Kind::Void`] gives the space up.
    ///
    /// # Panics
    /// If `len` is more than was claimed.
    #[inline]
    pub fn commit(&self, claim: Claim, kind: Kind, len: u64, store: impl FnOnce(u64, u64)) {
        assert!(len <= claim.len, "committed {len} bytes of a claim of {}", claim.len);
        store(self.ring.offset(claim.position), Header { kind, span: claim.span, len }.encode());
        let void = if kind == Kind::Void { VOID } else { 0 };
        // Release: the engine that takes the mark sees the payload and the header.
        self.mark(claim.position).store((claim.span / GRANULE_BYTES) as u32 | void, Ordering::Release);
    }

    /// Declares `rounds` rounds in which this member will send nothing, so that nobody has to wait for its nulls.
    pub fn skip_rounds(&self, rounds: u64) {
        self.skipped.fetch_add(rounds, Ordering::Relaxed);
    }

    /// Declares that nothing more will be claimed. Every claim must have been committed.
    pub fn close(&self) {
        // Release: who sees it closed sees all marks.
        self.closed.store(true, Ordering::Release);
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the frame at `position` is committed.
    pub(crate) fn is_committed(&self, position: u64) -> bool {
        self.mark(position).load(Ordering::Acquire) != 0
    }

    /// The committed frames.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks { slots: &self.marks, mask: self.ring.capacity - 1 }
    }

    /// Refuses every claim from now on, as if the ring were full for ever.
    pub fn revoke(&self) {
        self.limit.store(0, Ordering::Release);
    }

    /// Allows claims up to `position`.
    pub(crate) fn raise_limit(&self, position: u64) {
        // Release: pairs with the acquire in `claim_at`, so that what is written into freed space comes after every
        // member's delivery of what stood there.
        self.limit.store(position, Ordering::Release);
    }

    pub(crate) fn take_skipped(&self) -> u64 {
        // Checked first, because a swap on an idle ring would take the line for nothing.
        if self.skipped.load(Ordering::Relaxed) == 0 { 0 } else { self.skipped.swap(0, Ordering::Relaxed) }
    }

    /// Whether the frame at `position` may be claimed: `limit` is how far claims may go, as the caller knows it.
    #[inline]
    fn claim_at(&self, position: u64, len: u64, limit: u64) -> Result<(Claim, u64), ClaimError> {
        if len > self.ring.message_bytes_max {
            return Err(ClaimError::TooLong { len, max: self.ring.message_bytes_max });
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
    /// Takes the mark of the frame at `position`, if it is committed: its kind and span.
    #[inline]
    pub(crate) fn take(self, position: u64) -> Option<(Kind, u64)> {
        let slot = &self.slots[((position & self.mask) / GRANULE_BYTES) as usize];
        // Acquire: pairs with the release in `commit`.
        let mark = slot.load(Ordering::Acquire);
        if mark == 0 {
            return None;
        }
        if !planted!(MarkStays) {
            // Relaxed: the next claimer of this granule is ordered behind it by `limit`.
            slot.store(0, Ordering::Relaxed);
        }
        let kind = if mark & VOID != 0 { Kind::Void } else { Kind::Message };
        Some((kind, u64::from(mark & !VOID) * GRANULE_BYTES))
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
