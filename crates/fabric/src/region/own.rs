//! Memory that this process writes and others read.
use super::error::RegionError;
use super::memory::Memory;
use super::room::{check_limit, check_room, page_bytes, reserve};
use super::span::{RingSpan, Span, outside};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::Advice;
use spindle_core::Ring;
use spindle_core::wire::ring::{HEADER_BYTES, TIME_BYTES};
use spindle_transport::fork::Unshared;
use std::any::Any;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory that this process created: words and frames may be written.
#[derive(Debug)]
pub struct OwnRegion {
    span: Span,
    /// Keeps `span` mapped.
    memory: Arc<OwnMemory>,
    /// Bytes at the start that are words, and never lent as bytes to write.
    control: u64,
    leased: Mutex<Vec<Range<u64>>>,
}

/// A mapping of this process that no child inherits.
#[derive(Debug)]
struct OwnMemory {
    /// Declared before the memory: nothing is mapped into a child at a range that was not excluded
    /// from it.
    _unshared: Option<Unshared>,
    memory: Memory,
}

impl OwnRegion {
    /// Creates a region of `len` zero bytes, of which the first `control` are words. Also returns
    /// the descriptor for peers, through which they can map it read-only and in no other way.
    ///
    /// All memory is reserved here, so a limit is reported now, as an error, and not later, as a
    /// fatal signal.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::TooLong`], [`RegionError::Os`].
    pub fn create(name: &str, len: u64, control: u64) -> Result<(OwnRegion, OwnedFd), RegionError> {
        check_room(name, len)?;
        let mut chunk = ArenaChunk::create(name, len)?;
        // SAFETY: the chunk is new, and gone after this.
        let region = unsafe { chunk.region(name, 0, len, control) }?;
        Ok((region, chunk.fd))
    }

    /// Creates a region on this process's heap, for fabrics that move bytes by other means than
    /// mapping.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::TooLong`].
    pub fn on_heap(name: &str, len: u64, control: u64) -> Result<OwnRegion, RegionError> {
        // A child has a copy of the heap.
        let memory = OwnMemory { _unshared: None, memory: Memory::on_heap(name, len)? };
        Ok(OwnRegion { span: memory.memory.span, memory: Arc::new(memory), control, leased: Mutex::default() })
    }

    /// Returns the number of bytes at its start that are words.
    #[inline]
    pub fn control(&self) -> u64 {
        self.control
    }

    /// Returns the memory of which it is a range. A caller that keeps the result keeps the
    /// addresses, but not the region.
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        self.memory.clone()
    }

    /// Returns the offset at which it begins in the memory of which it is a range.
    pub(crate) fn begins_at(&self) -> u64 {
        let start = |span: Span| span.base.addr().get() as u64;
        start(self.span) - start(self.memory.memory.span)
    }

    /// Returns the same offset, if `other` is a range of that memory, too.
    pub(crate) fn place_beside(&self, other: &OwnRegion) -> Option<u64> {
        Arc::ptr_eq(&self.memory, &other.memory).then(|| self.begins_at())
    }

    /// Returns its length in bytes.
    pub fn size(&self) -> u64 {
        self.span.len
    }

    /// Returns the aligned word at `at`, which must not belong to a frame while the frame's bytes
    /// are lent.
    ///
    /// # Panics
    /// If `at` is unaligned or outside.
    #[inline]
    pub(crate) fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: the memory is mapped, writable, for as long as `self` is.
        unsafe { self.span.word(at) }
    }

    /// Writes to each page from `range.start` on, and changes nothing: hardware may require that
    /// memory is there before it is registered.
    ///
    /// # Safety
    /// No frame in the range is claimed or lent.
    ///
    /// # Panics
    /// If the start is unaligned, or the range is not inside.
    pub unsafe fn touch(&self, range: &Range<u64>) {
        for at in range.clone().step_by(page_bytes() as usize) {
            self.word(at).fetch_or(0, Ordering::Relaxed);
        }
    }

    /// Stores the word at `at`, with release order.
    ///
    /// # Panics
    /// As [`word`](Self::word).
    #[inline]
    pub(crate) fn store(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Stores the round of the frame at `position` of `ring`, with release order.
    ///
    /// # Panics
    /// If the ring is not inside.
    #[inline]
    pub(crate) fn stamp(&self, ring: &Ring, position: u64, round: u64) {
        // SAFETY: the memory is mapped, writable, for as long as `self` is.
        unsafe { self.span.ring(ring).stamp(position, round) }
    }

    /// Returns the `len` bytes at `at`, behind the words, for writing. Nothing else in this process
    /// accesses the region meanwhile; the caller ensures that no peer reads them.
    ///
    /// # Panics
    /// If the range is not inside, or has words in it.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, at: u64, len: u64) -> &mut [u8] {
        if at < self.control {
            outside(at, len, self.size());
        }
        let start = self.span.pointer(at, len);
        // SAFETY: inside the mapping, by the check, which is writable for as long as `self` is. The
        // borrow is exclusive: references into it borrow `self`, and a holder of a `Lease` or a
        // `Span` holds an `Arc` of it, of which none exists beside `&mut self`. Peers can't write.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len as usize) }
    }

    /// Loads the word at `at`, with acquire order.
    ///
    /// # Panics
    /// As [`word`](Self::word).
    #[inline]
    pub(crate) fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Returns the bytes of `range`, which contain frames that are announced and don't change any
    /// more (INV-FRAME; see the module).
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub(crate) fn announced(&self, range: &Range<u64>) -> &[u8] {
        // SAFETY: mapped for as long as `self` is, and stable by INV-FRAME.
        unsafe { self.span.bytes(range.start, range.end.saturating_sub(range.start)) }
    }

    /// Returns the address of the bytes of `range`, for hardware that reads announced frames there
    /// (INV-FRAME).
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn pointer(&self, range: &Range<u64>) -> NonNull<u8> {
        self.span.pointer(range.start, range.end.saturating_sub(range.start))
    }

    /// Takes the right to write frames into `ring`, for ever. Returns `None` if the ring is not
    /// behind the control block and inside the region, or if part of it was leased before.
    pub fn lease(self: &Arc<Self>, ring: &Ring) -> Option<Lease> {
        let range = ring.at..ring.at.checked_add(ring.size())?;
        if range.start < self.control || range.end > self.size() {
            return None;
        }
        let mut leased = self.leased.lock().unwrap_or_else(PoisonError::into_inner);
        if leased.iter().any(|other| other.start < range.end && range.start < other.end) {
            return None;
        }
        leased.push(range);
        Some(Lease { ring: self.span.ring(ring), _region: self.clone() })
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }
}

/// Memory of this process whose ranges become regions. A range is reused once nothing uses it any
/// more.
#[derive(Debug)]
pub(crate) struct ArenaChunk {
    memory: Arc<OwnMemory>,
    fd: OwnedFd,
    /// Bytes at its start that are reserved, and may not be zero.
    used: u64,
}

impl ArenaChunk {
    /// Creates a chunk of `len` bytes. The bytes take no memory before they belong to a region.
    ///
    /// # Errors
    /// [`RegionError::TooLong`], [`RegionError::Os`].
    pub(crate) fn create(name: &str, len: u64) -> Result<ArenaChunk, RegionError> {
        check_limit(name, len)?;
        let (memory, fd) = Memory::create(name, len, SealFlags::FUTURE_WRITE)?;
        // If the kernel refuses, a child can write into the row, as every child could before.
        let _unshared = Unshared::memory(memory.span.base.as_ptr(), len as usize);
        Ok(ArenaChunk { memory: Arc::new(OwnMemory { _unshared, memory }), fd, used: 0 })
    }

    /// Returns its length in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.memory.memory.span.len
    }

    /// Returns the descriptor for peers.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns the `len` bytes at `at`, the start of a page, as a region of zeros, with `control`
    /// bytes of words. All of it is reserved here.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::Os`].
    ///
    /// # Panics
    /// If the bytes are not all inside, or if bytes before them never belonged to a region.
    ///
    /// # Safety
    /// No region here contains any of these bytes, and no peer reads them.
    pub(crate) unsafe fn region(
        &mut self,
        name: &str,
        at: u64,
        len: u64,
        control: u64,
    ) -> Result<OwnRegion, RegionError> {
        let memory = &self.memory.memory;
        let base = memory.span.pointer(at, len);
        // The rest of its last page belongs to nothing else.
        let end = (at + len).next_multiple_of(page_bytes()).min(memory.span.len);
        assert!(at <= self.used, "a region behind bytes that were never one's");
        if end > self.used {
            check_room(name, end - self.used)?;
            reserve(&self.fd, self.used..end).map_err(|errno| match errno {
                Errno::NOSPC | Errno::NOMEM => RegionError::NoMemory { name: name.into(), bytes: len, available: 0 },
                errno => RegionError::Os { call: "fallocate", name: name.to_string(), source: errno.into() },
            })?;
        }
        let stale = self.used.min(end) - at;
        // SAFETY: inside the mapping, which is writable, and used by nothing else, by this
        // function's contract.
        unsafe { base.as_ptr().write_bytes(0, stale as usize) };
        self.used = self.used.max(end);
        memory.prefault(at..end, Advice::LinuxPopulateWrite);
        let span = Span { base, len };
        Ok(OwnRegion { span, memory: Arc::clone(&self.memory), control, leased: Mutex::default() })
    }
}

/// The only right to give out writable bytes of one ring of an [`OwnRegion`]. No ring is leased
/// twice.
#[derive(Debug)]
pub struct Lease {
    ring: RingSpan,
    _region: Arc<OwnRegion>,
}

impl Lease {
    /// Prefetches the block at `place`, for writing.
    #[inline]
    pub fn prefetch(&self, place: u64) {
        self.ring.prefetch_to_write(place);
    }

    /// Returns the memory of the frame at `place`.
    #[inline]
    pub fn frame(&self, place: u64) -> FrameMemory<'_> {
        FrameMemory { start: self.ring.frame(place), lease: PhantomData }
    }
}

/// The memory of one frame of a [`Lease`].
#[derive(Clone, Copy, Debug)]
pub struct FrameMemory<'a> {
    start: NonNull<u8>,
    lease: PhantomData<&'a Lease>,
}

impl FrameMemory<'_> {
    /// Returns the address of the payload. A caller that writes through it must own the frame.
    #[inline]
    pub fn payload(self) -> NonNull<u8> {
        // SAFETY: a frame is longer than its header.
        unsafe { self.start.add(HEADER_BYTES as usize) }
    }

    /// Returns the two words of the header: the first describes the frame, the second is its round.
    #[inline]
    pub fn header(&self) -> [&AtomicU64; 2] {
        let first = self.start.cast::<u64>();
        // SAFETY: a frame is inside the mapping, and longer than a header.
        let second = unsafe { first.add(1) };
        // SAFETY: aligned, and mapped, writable, for as long as the lease is; all code that may
        // reach it accesses it as an atomic.
        let first = unsafe { AtomicU64::from_ptr(first.as_ptr()) };
        // SAFETY: as above.
        let second = unsafe { AtomicU64::from_ptr(second.as_ptr()) };
        [first, second]
    }

    /// Returns the word with the time of a message, the last of a frame of `span` bytes.
    ///
    /// # Safety
    /// The frame has `span` bytes, and a trailer for the time.
    #[inline]
    pub unsafe fn time(&self, span: u64) -> &AtomicU64 {
        // SAFETY: the frame has `span` bytes, all inside the mapping.
        let time = unsafe { self.start.add((span - TIME_BYTES) as usize) };
        // SAFETY: as for the header, and aligned, as spans are multiples of a granule.
        unsafe { AtomicU64::from_ptr(time.cast().as_ptr()) }
    }
}
