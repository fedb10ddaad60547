//! The application's side of a ring: claim space, fill it in place, commit.
//!
//! [`Claims`] is shared by the threads that send and the engine that announces. It is private to the process; only the
//! frames themselves stand in the row. A claim moves `claimed`; a commit sets the *mark* of the granule at which the
//! frame starts, with release order; the engine takes the mark with acquire order and announces the frame. The marks
//! stand outside the ring, so no payload byte left from an earlier lap can look like a commit, and no lap has to be wiped.
//!
//! Nothing here blocks: a full ring is an error that the caller may wait out. INV-FRAME is kept by `limit`: the engine
//! raises it only after every member has delivered what stood there.
use crate::ring::{GRANULE_BYTES, Header, Kind, Ring, frame_bytes};
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering, Padded};
use alloc::boxed::Box;

/// Claims on one ring.
#[derive(Debug)]
pub struct Claims {
    ring: Ring,
    /// Position up to which space is claimed. Written by claimers.
    claimed: Padded<AtomicU64>,
    /// Position up to which space may be claimed. Written by the engine.
    limit: Padded<AtomicU64>,
    /// One per granule: 1 from commit until the engine has announced the frame that starts there.
    marks: Box<[AtomicU8]>,
    skipped: AtomicU64,
    closed: AtomicBool,
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
            marks: (0..ring.capacity / GRANULE_BYTES).map(|_| AtomicU8::new(0)).collect(),
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
            let (claim, next) = self.claim_at(position, len)?;
            // Relaxed: claims are disjoint and pass nothing to each other.
            match self.claimed.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(claim),
                Err(now) => position = now,
            }
        }
    }

    /// As [`claim`](Self::claim), without an atomic read-modify-write. The caller is the only one who claims on this ring
    /// (two at once could be given the same space).
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    #[inline]
    pub fn claim_exclusive(&self, len: u64) -> Result<Claim, ClaimError> {
        let (claim, next) = self.claim_at(self.claimed.load(Ordering::Relaxed), len)?;
        self.claimed.store(next, Ordering::Relaxed);
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
        let header = Header { kind, span: claim.span, len };
        store(self.ring.offset(claim.position), header.encode());
        // Release: the engine that takes the mark sees the payload and the header.
        self.mark(claim.position).store(1, Ordering::Release);
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

    /// Bytes that may be claimed at this moment.
    pub fn free_bytes(&self) -> u64 {
        self.limit.load(Ordering::Acquire).saturating_sub(self.claimed.load(Ordering::Relaxed))
    }

    /// Whether a message of `len` bytes could be claimed at this moment.
    pub fn has_room(&self, len: u64) -> bool {
        self.free_bytes() >= frame_bytes(len)
    }

    /// Whether the frame at `position` is committed.
    #[inline]
    pub(crate) fn is_ready(&self, position: u64) -> bool {
        // Acquire: pairs with the release in `commit`.
        self.mark(position).load(Ordering::Acquire) != 0
    }

    /// Takes back the mark of the frame at `position`, which was ready.
    #[inline]
    pub(crate) fn unmark(&self, position: u64) {
        // Relaxed: the next claimer of this granule is ordered behind it by `limit`.
        self.mark(position).store(0, Ordering::Relaxed);
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

    #[inline]
    fn claim_at(&self, position: u64, len: u64) -> Result<(Claim, u64), ClaimError> {
        if len > self.ring.message_bytes_max {
            return Err(ClaimError::TooLong { len, max: self.ring.message_bytes_max });
        }
        let span = frame_bytes(len);
        // Acquire: pairs with the release in `raise_limit`.
        if position + span > self.limit.load(Ordering::Acquire) {
            return Err(ClaimError::Full);
        }
        Ok((Claim { position, span, len }, self.ring.after(position, span)))
    }

    #[inline]
    fn mark(&self, position: u64) -> &AtomicU8 {
        &self.marks[((position & (self.ring.capacity - 1)) / GRANULE_BYTES) as usize]
    }
}

impl Claim {
    /// Bytes of payload that were claimed.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no payload was claimed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset of the payload in the row of the ring's owner.
    #[inline]
    pub fn payload_offset(&self, ring: &Ring) -> u64 {
        ring.offset(self.position) + crate::ring::HEADER_BYTES
    }
}
