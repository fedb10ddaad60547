//! Address ranges of regions and rings: every access to shared memory goes through one of these.
use spindle_core::wire::ring::{GRANULE_BYTES, HEADER_BYTES, Header, LookAhead, OBJECT};
use spindle_core::{Found, Ring};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The address range of a region's memory, for code that also holds the region. The start is
/// aligned to a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(super) base: NonNull<u8>,
    pub(super) len: u64,
}

// SAFETY: a plain address; its unsafe methods say what may be done through it.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// Returns the word at `at`; panics if that is unaligned or outside.
    ///
    /// # Safety
    /// The memory is mapped for all of `'a`; a caller that stores into the word knows it to be
    /// mapped writable.
    #[inline]
    pub(crate) unsafe fn word<'a>(self, at: u64) -> &'a AtomicU64 {
        // One comparison for both: the rotation turns a misaligned offset into a huge one.
        if at.rotate_right(3) >= self.len >> 3 {
            outside(at, 8, self.len);
        }
        // SAFETY: inside the mapping, by the check.
        let word = unsafe { self.base.add(at as usize) };
        // SAFETY: aligned, as base and offset are; mapped by this function's contract; accessed as
        // an atomic by all code as long as it is a word (control words always, header words except
        // between claim and commit).
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// Loads the word at `at`, with acquire order.
    ///
    /// # Safety
    /// The memory is mapped.
    #[inline]
    pub(crate) unsafe fn load(self, at: u64) -> u64 {
        // SAFETY: mapped by this function's contract, and nothing is stored through it.
        let word = unsafe { self.word(at) };
        // Relaxed and a fence: on memory mapped read-only, relaxed is the only order that
        // `std::sync::atomic` allows.
        let value = word.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }

    /// Returns one ring in it; panics if the ring is not inside.
    #[inline]
    pub(crate) fn ring(self, ring: &Ring) -> RingSpan {
        // One test for all three: they are multiples of a granule, and small enough for their sum.
        // This runs for every message.
        let all = ring.at | ring.capacity | ring.frame_bytes_max;
        let whole = all & (3 << 62 | (GRANULE_BYTES - 1)) == 0 && ring.capacity.is_power_of_two();
        if !whole || ring.at + ring.capacity + ring.frame_bytes_max > self.len {
            outside(ring.at, ring.capacity, self.len);
        }
        // SAFETY: inside the mapping, by the check.
        let start = unsafe { self.base.add(ring.at as usize) };
        RingSpan { start, mask: ring.capacity - GRANULE_BYTES, frame_bytes_max: ring.frame_bytes_max }
    }

    /// Returns the `len` bytes at `at`; panics if they are not all inside.
    ///
    /// # Safety
    /// The memory is mapped for all of `'a`, and no process writes the range (INV-FRAME).
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self, at: u64, len: u64) -> &'a [u8] {
        let start = self.pointer(at, len);
        // SAFETY: inside the mapping by the check, alive and stable by this function's contract.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len as usize) }
    }

    #[inline]
    pub(super) fn pointer(self, at: u64, len: u64) -> NonNull<u8> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            outside(at, len, self.len);
        }
        // SAFETY: inside the mapping, by the check.
        unsafe { self.base.add(at as usize) }
    }
}

/// The address range of a ring. Every place, masked, is that of a frame: aligned, with room behind
/// it for a frame of the largest size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingSpan {
    start: NonNull<u8>,
    /// Keeps a place below the capacity, and aligned to a granule.
    mask: u64,
    frame_bytes_max: u64,
}

// SAFETY: a plain address, as `Span`.
unsafe impl Send for RingSpan {}
// SAFETY: as above.
unsafe impl Sync for RingSpan {}

impl RingSpan {
    /// Loads the header words of the frame at `place`, with acquire order.
    ///
    /// # Safety
    /// The memory is mapped.
    #[inline]
    pub(crate) unsafe fn header(self, place: u64) -> [u64; 2] {
        let first = self.frame(place).cast::<u64>();
        // SAFETY: a frame is inside the mapping, and longer than a header.
        let second = unsafe { first.add(1) };
        // SAFETY: aligned and mapped; all code that may reach header words now accesses them as
        // atomics.
        let first = unsafe { AtomicU64::from_ptr(first.as_ptr()) };
        // SAFETY: as above.
        let second = unsafe { AtomicU64::from_ptr(second.as_ptr()) };
        let header = [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)];
        fence(Ordering::Acquire);
        header
    }

    /// Prefetches the block at `place`, for writing.
    #[inline]
    pub(crate) fn prefetch_to_write(self, place: u64) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for line in self.lines(place) {
            // SAFETY: a hint, which is valid for any address. Processors without it treat it as a
            // no-op. (The intrinsic compiles to a prefetch for reading if the compiler may not
            // assume the instruction.)
            unsafe {
                std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = place;
    }

    /// Prefetches the block at `place`.
    #[inline]
    pub(crate) fn prefetch(self, place: u64) {
        #[cfg(target_arch = "x86_64")]
        for line in self.lines(place) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which is valid for any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = place;
    }

    /// Returns the addresses of a block's cache lines. Some may be outside the ring.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn lines(self, place: u64) -> impl Iterator<Item = *const i8> {
        let start: *const i8 = self.frame(place).as_ptr().cast();
        (0..LookAhead::BLOCK_BYTES as usize).step_by(64).map(move |at| start.wrapping_add(at))
    }

    /// Stores the round of the frame at `place`, with release order.
    ///
    /// # Safety
    /// The memory is mapped, writable.
    #[inline]
    pub(crate) unsafe fn stamp(self, place: u64, round: u64) {
        // SAFETY: a frame is inside the mapping, and longer than a header.
        let second = unsafe { self.frame(place).cast::<u64>().add(1) };
        // SAFETY: aligned and mapped; all code that may reach header words now accesses them as
        // atomics.
        unsafe { AtomicU64::from_ptr(second.as_ptr()) }.store(round, Ordering::Release);
    }

    /// Returns the message in the frame at `place`, if the frame contains a message that fits a
    /// frame of this ring.
    ///
    /// # Safety
    /// The memory is mapped for all of `'a`, and no process writes the frame (INV-FRAME).
    #[inline]
    pub(crate) unsafe fn message<'a>(self, place: u64) -> Option<Found<'a>> {
        // SAFETY: mapped, by this function's contract.
        let [word, round] = unsafe { self.header(place) };
        // SAFETY: by this function's contract.
        unsafe { self.found(place, word, round) }
    }

    /// As [`message`](Self::message), for the frame of an object: the payload is its name.
    ///
    /// # Safety
    /// As [`message`](Self::message).
    pub(crate) unsafe fn object<'a>(self, place: u64) -> Option<Found<'a>> {
        // SAFETY: mapped, by this function's contract.
        let [word, round] = unsafe { self.header(place) };
        // A header that is not that of an object becomes one that is not that of a message.
        // SAFETY: by this function's contract.
        unsafe { self.found(place, word ^ OBJECT, round) }
    }

    /// Returns the address at which the ring begins. No two rings begin at the same address.
    pub(crate) fn address(self) -> usize {
        self.start.as_ptr() as usize
    }

    /// # Safety
    /// As [`message`](Self::message).
    #[inline(always)]
    unsafe fn found<'a>(self, place: u64, word: u64, round: u64) -> Option<Found<'a>> {
        let header = Header::of_message(word, self.frame_bytes_max)?;
        // SAFETY: a frame has room for a header and the largest payload.
        let start = unsafe { self.frame(place).add(HEADER_BYTES as usize) };
        // SAFETY: `of_message` has checked that header and payload fit the largest frame, for which
        // there is room behind every place; alive and stable by this function's contract.
        let payload = unsafe { std::slice::from_raw_parts(start.as_ptr(), header.len as usize) };
        Some(Found { round, span: header.span, payload })
    }

    #[inline]
    pub(super) fn frame(self, place: u64) -> NonNull<u8> {
        // SAFETY: masked, it is below the capacity, and `Span::ring` has checked that the whole
        // ring is inside the mapping.
        unsafe { self.start.add((place & self.mask) as usize) }
    }
}

#[cold]
#[inline(never)]
pub(super) fn outside(at: u64, len: u64, size: u64) -> ! {
    panic!("{len} bytes at offset {at}: unaligned, or outside the {size} bytes there are");
}
