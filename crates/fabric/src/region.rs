//! Memory that members share: a memfd of fixed size, which its owner maps for writing and all other
//! processes map for reading.
//!
//! Read [`OwnRegion`] first, then [`PeerRegion`] (another process's, read-only) and
//! [`SharedRegion`] (writable by all, for doorbells, atomics only). Regions may be ranges of one
//! memfd, a chunk, which each process maps once. If no memory can be shared, each peer has a
//! [`CopyRegion`] of an [`OwnRegion`].
//!
//! Every opener checks the seals, which guarantee two things. The size never changes, so no access
//! inside the memory can fault. Only the creator ever gets a writable mapping of its row. A child
//! that is forked from the creator has none ([`fork`](spindle_transport::fork)).
//!
//! Plain references into this memory are sound for these reasons:
//! - *control words* are accessed as atomics only, in every process;
//! - *frames* are given out as `&mut [u8]` to one claimer, between claim and commit, and as `&[u8]`
//!   after their announcement, until every member has delivered them: they never change while
//!   borrowed (INV-FRAME). `spindle-core` ensures this with [`Claims`](spindle_core::Claims) and
//!   the counters that it reads before it asks for bytes;
//! - the *data of a pipe* are given out in the same way: as `&mut [u8]` before they are announced,
//!   as `&[u8]` until they are read;
//! - the bytes of a *bulk object* are lent to readers, here and in other processes. Only the sole
//!   holder of the object's segment writes them, and never while a reader reads them (INV-LENT,
//!   docs/protocol/bulk.md);
//! - a peer process that breaks the protocol can make the group deliver garbage, and is inside the
//!   group's trust boundary: same user, same program. It can't write my row, and no length or
//!   offset that it announces leads outside a mapping.
use crate::readings::Reading;
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use spindle_core::wire::ring::{GRANULE_BYTES, HEADER_BYTES, Header, LookAhead, OBJECT};
use spindle_core::{Found, Ring};
use spindle_transport::fork::{Unshared, create_file};
use std::alloc::Layout;
use std::any::Any;
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

mod copies;
#[cfg(all(test, not(miri)))]
mod forked;
pub use copies::{CopyChunk, CopyRegion};

/// Bytes reserved by one call: a signal interrupts and undoes only that much.
const RESERVE_STEP_BYTES: u64 = 64 << 20;
/// Regions of at least this size ask for huge pages; smaller ones would waste most of theirs.
const HUGE_BYTES_MIN: u64 = 8 << 20;
/// Alignment of memory on the heap: that of a page.
const HEAP_ALIGN: usize = 4096;

/// The reason why a region could not be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// There is not enough memory, which is detected before any of it is used.
    #[error(
        "{name} needs {bytes} bytes of memory and {available} are available: \
         lower window or message_bytes_max, or raise the memory limit"
    )]
    NoMemory {
        /// Purpose of the region.
        name: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that this process could still get when it asked; 0 if the kernel itself refused.
        available: u64,
    },
    /// The region exceeds this process's file size limit (`ulimit -f`), or the longest mapping.
    #[error("{name} needs {bytes} bytes and may have {limit}: raise the file size limit, or lower window")]
    TooLong {
        /// Purpose of the region.
        name: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The segment is not sealed as its kind must be, so its sender could change it while it is in
    /// use.
    #[error("the segment has seals {got:#x} and needs {needed:#x}: its sender is no Spindle member of this version")]
    Unsealed {
        /// Its seals, as `F_SEAL_*` bits; 0 for a descriptor that can't have any.
        got: u32,
        /// The seals that it must have.
        needed: u32,
    },
    /// The segment has another size than the view's layout says.
    #[error("the segment has {got} bytes, not {expected}: its sender has another view or version")]
    Size {
        /// Bytes by the layout.
        expected: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// The announced range is not inside the segment, or does not begin at a page.
    #[error(
        "the segment has {size} bytes, and no {bytes} from a page's start at {at} on: its sender breaks the protocol"
    )]
    Place {
        /// Offset at which the range begins.
        at: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Length of the segment in bytes.
        size: u64,
    },
    /// A system call failed.
    #[error("{call} for {name} failed: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Purpose of the region.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
}

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

/// Memory of this process whose ranges become regions. A range is reused once nothing uses it any
/// more.
#[derive(Debug)]
pub(crate) struct Chunk {
    memory: Arc<OwnMemory>,
    fd: OwnedFd,
    /// Bytes at its start that are reserved, and may not be zero.
    used: u64,
}

/// Memory that another process created and that only that process writes.
#[derive(Debug)]
pub struct PeerRegion {
    span: Span,
    /// Keeps `span` mapped.
    memory: Arc<Memory>,
    hold: Hold,
}

/// The reason why the owner uses a region for nothing else.
#[derive(Debug)]
enum Hold {
    /// The owner never does, or the memory has the lease: that of a row that came late.
    Memory,
    /// The owner does not as long as this is open.
    Lease { _fd: OwnedFd },
    /// The owner does not as long as this member reports that it reads such rows.
    Reading { _reading: Reading },
}

/// Identity of a file among all files that exist at the same time: its device and inode. The kernel
/// counts the inodes of memfds in 64 bits (since Linux 5.9).
type FileId = (u64, u64);

/// The files of other processes that are mapped here for reading or for writing. While a file is
/// mapped, no other file has its id.
static MAPPED: Mutex<BTreeMap<(FileId, bool), Weak<Memory>>> = Mutex::new(BTreeMap::new());

/// The address range of a row that has not come. It reads as zeros until the row takes the range
/// over: as the owner's segment ([`map`](Self::map)) or as a copy ([`copy`](Self::copy)). Readers
/// keep their addresses.
///
/// Invariant: the range is mapped readable at every moment of this region's life. Its contents are
/// exchanged at most once.
#[derive(Debug)]
pub(crate) struct VacantRegion {
    memory: Arc<Memory>,
    is_taken: Mutex<bool>,
}

/// The first bytes of a file, mapped. No other process changes them.
#[derive(Debug)]
pub(crate) struct FileRegion {
    memory: Memory,
    is_writable: bool,
}

/// Memory that several processes write, as atomic words only.
#[derive(Debug)]
pub struct SharedRegion {
    memory: Arc<Memory>,
}

/// The only right to give out writable bytes of one ring of an [`OwnRegion`]. No ring is leased
/// twice.
#[derive(Debug)]
pub struct Lease {
    ring: RingSpan,
    _region: Arc<OwnRegion>,
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
        let mut chunk = Chunk::create(name, len)?;
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
    pub fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: the memory is mapped, writable, for as long as `self` is.
        unsafe { self.span.word(at) }
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
    pub fn load(&self, at: u64) -> u64 {
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

impl Chunk {
    /// Creates a chunk of `len` bytes. The bytes take no memory before they belong to a region.
    ///
    /// # Errors
    /// [`RegionError::TooLong`], [`RegionError::Os`].
    pub(crate) fn create(name: &str, len: u64) -> Result<Chunk, RegionError> {
        check_limit(name, len)?;
        let (memory, fd) = Memory::create(name, len, SealFlags::FUTURE_WRITE)?;
        // If the kernel refuses, a child can write into the row, as every child could before.
        let _unshared = Unshared::memory(memory.span.base.as_ptr(), len as usize);
        Ok(Chunk { memory: Arc::new(OwnMemory { _unshared, memory }), fd, used: 0 })
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

impl PeerRegion {
    /// Maps a peer's region read-only, after checking that it is sealed and has `len` bytes.
    ///
    /// # Errors
    /// [`RegionError::Unsealed`], [`RegionError::Size`], [`RegionError::Os`].
    pub fn open(name: &str, fd: impl AsFd, len: u64) -> Result<PeerRegion, RegionError> {
        let memory = Memory::open(name, fd, len, SealFlags::FUTURE_WRITE, ProtFlags::READ)?;
        Ok(PeerRegion { span: memory.span, memory: Arc::new(memory), hold: Hold::Memory })
    }

    /// Maps the `range` of a peer's memory read-only, after the [check](Self::check_range). The
    /// file is mapped once, whatever ranges of it are opened. The region keeps the `lease` as long
    /// as it lives.
    ///
    /// # Errors
    /// As [`check_range`](Self::check_range), and [`RegionError::Os`].
    pub(crate) fn open_range(
        name: &str,
        fd: impl AsFd,
        range: Range<u64>,
        lease: OwnedFd,
    ) -> Result<PeerRegion, RegionError> {
        let (size, file) = Memory::check_range(name, &fd, &range)?;
        let memory = Memory::map_once(name, fd, size, file, false)?;
        let span =
            Span { base: memory.span.pointer(range.start, range.end - range.start), len: range.end - range.start };
        memory.prefault(range, Advice::LinuxPopulateRead);
        Ok(PeerRegion { span, memory, hold: Hold::Lease { _fd: lease } })
    }

    /// Returns true if other ranges of the owner's memory can be found [beside](Self::beside) this
    /// one.
    pub(crate) fn is_of_chunk(&self) -> bool {
        !matches!(self.hold, Hold::Memory)
    }

    /// Returns the `len` bytes at `at` of the memory of which this is a range. The owner uses them
    /// for nothing else as long as `reading` lives.
    ///
    /// # Errors
    /// [`RegionError::Place`] if they are not all inside, or don't begin at a page.
    ///
    /// # Panics
    /// If this is [no range](Self::is_of_chunk) of the owner's memory.
    pub(crate) fn beside(&self, at: u64, len: u64, reading: Reading) -> Result<PeerRegion, RegionError> {
        assert!(self.is_of_chunk(), "a row that came late");
        let (size, end) = (self.memory.span.len, at.saturating_add(len));
        if !at.is_multiple_of(page_bytes()) || len == 0 || end > size {
            return Err(RegionError::Place { at, bytes: len, size });
        }
        let span = Span { base: self.memory.span.pointer(at, len), len };
        self.memory.prefault(at..end, Advice::LinuxPopulateRead);
        Ok(PeerRegion { span, memory: Arc::clone(&self.memory), hold: Hold::Reading { _reading: reading } })
    }

    /// Checks that `range` can be a region of a peer, which begins at a page.
    ///
    /// # Errors
    /// [`RegionError::Unsealed`], [`RegionError::Place`], [`RegionError::Os`].
    pub(crate) fn check_range(name: &str, fd: impl AsFd, range: &Range<u64>) -> Result<(), RegionError> {
        Memory::check_range(name, fd, range).map(drop)
    }

    /// Returns its length in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.span.len
    }

    /// Checks that [`open`](Self::open) would accept it, as far as that depends on its owner.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check(name: &str, fd: impl AsFd, len: u64) -> Result<(), RegionError> {
        Memory::check(name, fd, len, SealFlags::FUTURE_WRITE).map(drop)
    }

    /// Loads the word at `at`, with acquire order.
    ///
    /// # Panics
    /// If `at` is unaligned or outside.
    #[inline]
    pub fn load(&self, at: u64) -> u64 {
        // SAFETY: the memory is mapped for as long as `self` is.
        unsafe { self.span.load(at) }
    }

    /// Returns the `len` bytes at `at`, which the owner does not write as long as they are borrowed
    /// (INV-FRAME; see the module).
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn bytes(&self, at: u64, len: u64) -> &[u8] {
        // SAFETY: mapped for as long as `self` is, and stable by INV-FRAME.
        unsafe { self.span.bytes(at, len) }
    }

    /// Returns the word at `at` for relaxed loads only: nothing can be stored there. Panics as
    /// [`load`](Self::load).
    pub(crate) fn word_to_load(&self, at: u64) -> &AtomicU64 {
        // SAFETY: the memory is mapped for as long as `self` is, and the crate stores nothing
        // through this.
        unsafe { self.span.word(at) }
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }
}

impl VacantRegion {
    /// Creates a range of `len` bytes, all zero.
    ///
    /// # Errors
    /// [`RegionError::Os`].
    pub(crate) fn new(name: &str, len: u64) -> Result<VacantRegion, RegionError> {
        let memory = Arc::new(Memory::anonymous(name, len, ProtFlags::READ)?);
        Ok(VacantRegion { memory, is_taken: Mutex::new(false) })
    }

    /// Maps the owner's memory at `at` over the range, after the checks of
    /// [`PeerRegion::open_range`]. Returns `None` if the range is taken.
    ///
    /// # Errors
    /// As [`PeerRegion::open_range`]. After an error the range still reads as zeros.
    pub(crate) fn map(
        &self,
        name: &str,
        fd: impl AsFd,
        at: u64,
        lease: OwnedFd,
    ) -> Result<Option<PeerRegion>, RegionError> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let span = self.memory.span;
        let theirs = at..at.saturating_add(span.len);
        Memory::check_range(name, &fd, &theirs)?;
        // A mapping elsewhere first: if the kernel refuses this segment, it refuses here.
        let _trial = Memory::map(name, &fd, theirs, ProtFlags::READ)?;
        if std::mem::replace(&mut *is_taken, true) {
            return Ok(None);
        }
        let (start, len) = (span.base.as_ptr().cast(), span.len as usize);
        // SAFETY: the range is this region's own mapping, from page boundary to page boundary, and
        // of the same length. The kernel exchanges it in one step: an access by another thread
        // meets the zeros or the segment. Readers of the range load atomic words, which may change
        // at any time. No slice of it is lent: bytes are lent when a word announces them
        // (INV-FRAME), and the zeros announce nothing. The segment's size is sealed, by the check,
        // so no access inside it faults.
        let mapped = unsafe {
            rustix::mm::mmap(start, len, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, fd.as_fd(), at)
        };
        if let Err(errno) = mapped {
            *is_taken = false;
            self.restore_zeros();
            return Err(RegionError::Os { call: "mmap", name: name.to_string(), source: errno.into() });
        }
        self.memory.prefault(0..span.len, Advice::LinuxPopulateRead);
        // Readers of the range don't hold the region that it is now.
        let is_first = self.memory.lease.set(lease).is_ok();
        debug_assert!(is_first, "a range is taken once");
        Ok(Some(PeerRegion { span, memory: Arc::clone(&self.memory), hold: Hold::Memory }))
    }

    /// Maps zeros over the range again: a failed exchange may leave a hole, and an access to a hole
    /// is fatal.
    #[cold]
    fn restore_zeros(&self) {
        let (start, len) = (self.memory.span.base.as_ptr().cast(), self.memory.span.len as usize);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: as in `map`. It reads as zeros, as before.
        let mapped = unsafe { rustix::mm::mmap_anonymous(start, len, ProtFlags::READ, flags) };
        if mapped.is_err() {
            // The kernel has no memory for its own bookkeeping, and other threads read here.
            std::process::abort();
        }
    }

    /// Turns the range into a copy, to be filled by this process. Returns `None` if the range is
    /// taken.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::TooLong`], [`RegionError::Os`].
    pub(crate) fn copy(&self, name: &str) -> Result<Option<CopyRegion>, RegionError> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_taken {
            return Ok(None);
        }
        let span = self.memory.span;
        check_room(name, span.len)?;
        let os = |errno: Errno| RegionError::Os { call: "mprotect", name: name.to_string(), source: errno.into() };
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range is this region's own mapping, which is private and anonymous. It stays
        // readable, and reads as the same zeros.
        unsafe { rustix::mm::mprotect(span.base.as_ptr().cast(), span.len as usize, protection) }.map_err(os)?;
        *is_taken = true;
        Ok(Some(CopyRegion::of(Arc::clone(&self.memory))))
    }

    pub(crate) fn span(&self) -> Span {
        self.memory.span
    }
}

impl FileRegion {
    /// Maps the first `len` bytes, at least one, which the file has.
    ///
    /// # Safety
    /// No other process or code writes those bytes or makes the file shorter than `len`, as long as
    /// this lives.
    pub(crate) unsafe fn open(
        name: &str,
        fd: impl AsFd,
        len: u64,
        is_writable: bool,
    ) -> Result<FileRegion, RegionError> {
        let prot = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let os = |errno: Errno| RegionError::Os { call: "fstat", name: name.to_string(), source: errno.into() };
        let size = rustix::fs::fstat(&fd).map_err(os)?.st_size as u64;
        if len == 0 || size < len {
            return Err(RegionError::Size { expected: len, got: size });
        }
        Ok(FileRegion { memory: Memory::map(name, fd, 0..len, prot)?, is_writable })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` is, and not changed by others, by the contract of
        // `open`; a writer borrows it exclusively.
        unsafe { self.memory.span.bytes(0, self.memory.span.len) }
    }

    /// Returns the bytes for writing.
    ///
    /// # Panics
    /// If it was not mapped for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_writable, "a file that is mapped to be read");
        let Span { base, len } = self.memory.span;
        // SAFETY: mapped, writable, for as long as `self` is, which is borrowed exclusively;
        // nothing else writes it, by the contract of `open`.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len as usize) }
    }
}

impl SharedRegion {
    /// Creates a region of `len` zero bytes that every process with the descriptor may write.
    ///
    /// # Errors
    /// As [`OwnRegion::create`].
    pub fn create(name: &str, len: u64) -> Result<(SharedRegion, OwnedFd), RegionError> {
        check_room(name, len)?;
        let (memory, fd) = Memory::create(name, len, SealFlags::empty())?;
        let os = |errno: Errno| RegionError::Os { call: "fallocate", name: name.to_string(), source: errno.into() };
        reserve(&fd, 0..len).map_err(os)?;
        memory.prefault(0..len, Advice::LinuxPopulateWrite);
        Ok((SharedRegion { memory: Arc::new(memory) }, fd))
    }

    /// Maps such a region, unless it is mapped here already, after checking that its size is sealed
    /// and is `len`.
    ///
    /// # Errors
    /// As [`PeerRegion::open`].
    pub fn open(name: &str, fd: impl AsFd, len: u64) -> Result<SharedRegion, RegionError> {
        let file = Memory::check(name, &fd, len, SealFlags::empty())?;
        let memory = Memory::map_once(name, fd, len, file, true)?;
        memory.prefault(0..len, Advice::LinuxPopulateRead);
        Ok(SharedRegion { memory })
    }

    /// As [`PeerRegion::check`].
    ///
    /// # Errors
    /// As [`PeerRegion::check`].
    pub fn check(name: &str, fd: impl AsFd, len: u64) -> Result<(), RegionError> {
        Memory::check(name, fd, len, SealFlags::empty()).map(drop)
    }

    /// Returns the aligned word at `at`.
    ///
    /// # Panics
    /// If `at` is unaligned or outside.
    pub fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: the memory is mapped, writable, for as long as `self` is.
        unsafe { self.memory.span.word(at) }
    }

    /// Returns the low half of the aligned word at `at`, in the size that the kernel's futex takes.
    /// A word is used in one size only.
    ///
    /// # Panics
    /// As [`word`](Self::word).
    pub fn half_word(&self, at: u64) -> &AtomicU32 {
        let start = self.word(at).as_ptr().cast::<u32>();
        // SAFETY: inside the word, aligned, writable, mapped for as long as `self` is.
        unsafe { AtomicU32::from_ptr(start) }
    }
}

impl Lease {
    /// Prefetches the block at `place`, for writing.
    #[inline]
    pub fn prefetch(&self, place: u64) {
        self.ring.prefetch_to_write(place);
    }

    /// Returns the address of the payload of the frame at `place`. A caller that writes through it
    /// must own the frame.
    ///
    /// # Safety
    /// A frame starts at `place`, and the pointer is not used beyond that frame.
    #[inline]
    pub unsafe fn payload(&self, place: u64) -> NonNull<u8> {
        let frame = self.ring.frame(place);
        // SAFETY: a frame is longer than its header.
        unsafe { frame.add(HEADER_BYTES as usize) }
    }

    /// Returns the second header word of the frame at `place`.
    #[inline]
    pub fn round(&self, place: u64) -> &AtomicU64 {
        // SAFETY: a frame is inside the mapping, and longer than a header.
        let round = unsafe { self.ring.frame(place).cast::<u64>().add(1) };
        // SAFETY: as for `header`.
        unsafe { AtomicU64::from_ptr(round.as_ptr()) }
    }

    /// Returns the first header word of the frame at `place`.
    #[inline]
    pub fn header(&self, place: u64) -> &AtomicU64 {
        let header = self.ring.frame(place).cast::<u64>();
        // SAFETY: aligned, and mapped, writable, for as long as `self` is; all code that may reach
        // it accesses it as an atomic.
        unsafe { AtomicU64::from_ptr(header.as_ptr()) }
    }
}

/// The address range of a region's memory, for code that also holds the region. The start is
/// aligned to a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    base: NonNull<u8>,
    len: u64,
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
    fn pointer(self, at: u64, len: u64) -> NonNull<u8> {
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
    fn frame(self, place: u64) -> NonNull<u8> {
        // SAFETY: masked, it is below the capacity, and `Span::ring` has checked that the whole
        // ring is inside the mapping.
        unsafe { self.start.add((place & self.mask) as usize) }
    }
}

#[cold]
#[inline(never)]
fn outside(at: u64, len: u64, size: u64) -> ! {
    panic!("{len} bytes at offset {at}: unaligned, or outside the {size} bytes there are");
}

/// A span, and the way to release it.
#[derive(Debug)]
struct Memory {
    span: Span,
    on_heap: bool,
    /// The ranges that are in this process's page table already.
    prefaulted: Mutex<Vec<Range<u64>>>,
    /// As long as this is open, the owner of the mapped memory uses it for nothing else.
    lease: OnceLock<OwnedFd>,
}

impl Memory {
    fn new(span: Span, on_heap: bool) -> Memory {
        Memory { span, on_heap, prefaulted: Mutex::default(), lease: OnceLock::new() }
    }

    /// Creates a sealed file of `len` bytes, mapped for writing, without memory.
    fn create(name: &str, len: u64, seals: SealFlags) -> Result<(Memory, OwnedFd), RegionError> {
        let os = |call| move |errno: Errno| RegionError::Os { call, name: name.to_string(), source: errno.into() };
        let fd = create_file(name).map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, len).map_err(os("ftruncate"))?;
        let memory = Memory::map(name, &fd, 0..len, ProtFlags::READ | ProtFlags::WRITE)?;
        if len >= HUGE_BYTES_MIN {
            // A hint: kernels without huge pages for shared memory, or configured not to use them,
            // refuse.
            let _ = memory.advise(0..len, Advice::LinuxHugepage);
        }
        // Sealed after my own mapping, which keeps its right to write. SEAL prevents further seals.
        let seals = seals | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(os("sealing"))?;
        Ok((memory, fd))
    }

    fn open(name: &str, fd: impl AsFd, len: u64, seals: SealFlags, prot: ProtFlags) -> Result<Memory, RegionError> {
        Memory::check(name, &fd, len, seals)?;
        let memory = Memory::map(name, fd, 0..len, prot)?;
        memory.prefault(0..len, Advice::LinuxPopulateRead);
        Ok(memory)
    }

    fn check(name: &str, fd: impl AsFd, len: u64, seals: SealFlags) -> Result<FileId, RegionError> {
        let (size, file) = Memory::check_seals(name, fd, seals)?;
        if size != len || len == 0 {
            return Err(RegionError::Size { expected: len, got: size });
        }
        Ok(file)
    }

    /// Checks that `range` is inside the sealed file and begins at a page. Returns the file's size,
    /// too.
    fn check_range(name: &str, fd: impl AsFd, range: &Range<u64>) -> Result<(u64, FileId), RegionError> {
        let (size, file) = Memory::check_seals(name, fd, SealFlags::FUTURE_WRITE)?;
        let is_page = range.start.is_multiple_of(page_bytes());
        if !is_page || range.is_empty() || range.end > size {
            let bytes = range.end.saturating_sub(range.start);
            return Err(RegionError::Place { at: range.start, bytes, size });
        }
        Ok((size, file))
    }

    fn check_seals(name: &str, fd: impl AsFd, seals: SealFlags) -> Result<(u64, FileId), RegionError> {
        let needed = seals | SealFlags::SHRINK | SealFlags::GROW;
        let got = rustix::fs::fcntl_get_seals(&fd).unwrap_or(SealFlags::empty());
        if !got.contains(needed) {
            return Err(RegionError::Unsealed { got: got.bits(), needed: needed.bits() });
        }
        let os = |errno: Errno| RegionError::Os { call: "fstat", name: name.to_string(), source: errno.into() };
        let found = rustix::fs::fstat(&fd).map_err(os)?;
        Ok((found.st_size as u64, (found.st_dev, found.st_ino)))
    }

    /// Returns the mapping of the whole file, which is created unless it exists already.
    fn map_once(
        name: &str,
        fd: impl AsFd,
        size: u64,
        file: FileId,
        is_writable: bool,
    ) -> Result<Arc<Memory>, RegionError> {
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = mapped.get(&(file, is_writable)).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let prot = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let memory = Arc::new(Memory::map(name, fd, 0..size, prot)?);
        mapped.retain(|_, memory| memory.strong_count() > 0);
        mapped.insert((file, is_writable), Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Maps a range of the file that begins at a page.
    fn map(name: &str, fd: impl AsFd, range: Range<u64>, prot: ProtFlags) -> Result<Memory, RegionError> {
        let len = range.end - range.start;
        let (any, bytes) = (std::ptr::null_mut(), len as usize);
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let mapped = unsafe { rustix::mm::mmap(any, bytes, prot, MapFlags::SHARED, fd, range.start) };
        let os = |source| RegionError::Os { call: "mmap", name: name.to_string(), source };
        let base = mapped.map_err(|errno| os(errno.into()))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| os(io::Error::other("mapped at address 0")))?;
        Ok(Memory::new(Span { base, len }, false))
    }

    /// Maps private memory of zeros.
    fn anonymous(name: &str, len: u64, prot: ProtFlags) -> Result<Memory, RegionError> {
        let os = |source| RegionError::Os { call: "mmap", name: name.to_string(), source };
        let any = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let mapped = unsafe { rustix::mm::mmap_anonymous(any, len as usize, prot, MapFlags::PRIVATE) };
        let base = NonNull::new(mapped.map_err(|errno| os(errno.into()))?.cast());
        let base = base.ok_or_else(|| os(io::Error::other("mapped at address 0")))?;
        Ok(Memory::new(Span { base, len }, false))
    }

    fn on_heap(name: &str, len: u64) -> Result<Memory, RegionError> {
        check_room(name, len)?;
        let none = || RegionError::NoMemory { name: name.to_string(), bytes: len, available: 0 };
        let layout = Layout::from_size_align(len as usize, HEAP_ALIGN).map_err(|_| none())?;
        // SAFETY: the layout's size is not 0, by `check_room`.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(none)?;
        Ok(Memory::new(Span { base, len }, true))
    }

    /// # Panics
    /// If the range is not inside.
    fn advise(&self, range: Range<u64>, advice: Advice) -> rustix::io::Result<()> {
        let len = range.end - range.start;
        let start = self.span.pointer(range.start, len).as_ptr().cast();
        // SAFETY: the range is in this mapping, and none of the advices used here changes its
        // contents.
        unsafe { rustix::mm::madvise(start, len as usize, advice) }
    }

    /// Enters the pages into this process's page table now, so that the first lap of a ring takes
    /// no faults. Failure is ignored: the memory is reserved either way.
    fn prefault(&self, range: Range<u64>, advice: Advice) {
        let mut done = self.prefaulted.lock().unwrap_or_else(PoisonError::into_inner);
        if !covers(&done, &range) {
            let _ = self.advise(range.clone(), advice);
            done.retain(|done| done.end <= range.start || range.end <= done.start);
            done.push(range);
        }
    }
}

/// Returns true if one of `ranges` contains all of `range`.
fn covers(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    ranges.iter().any(|other| other.start <= range.start && range.end <= other.end)
}

impl Drop for Memory {
    fn drop(&mut self) {
        let len = self.span.len as usize;
        if self.on_heap {
            if let Ok(layout) = Layout::from_size_align(len, HEAP_ALIGN) {
                // SAFETY: allocated in `on_heap` with this very layout.
                unsafe { std::alloc::dealloc(self.span.base.as_ptr(), layout) };
            }
            return;
        }
        // SAFETY: mapped in `map` with this length. A holder of a `Span` holds the region too, and
        // a reference borrows it.
        let unmapped = unsafe { rustix::mm::munmap(self.span.base.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Asks for huge pages behind `memory`, which need fewer faults when it is written first. For less
/// than some megabytes it does nothing. It is a hint: some kernels have no huge pages, and some
/// have none left.
pub fn advise_huge_pages<T>(memory: &mut [T]) {
    let (start, bytes) = (memory.as_mut_ptr().cast::<u8>(), size_of_val(memory));
    let skipped = start.align_offset(HEAP_ALIGN);
    let len = bytes.saturating_sub(skipped) & !(HEAP_ALIGN - 1);
    if (len as u64) < HUGE_BYTES_MIN {
        return;
    }
    let start = start.wrapping_add(skipped);
    // SAFETY: whole pages of memory that is borrowed exclusively, and this advice does not change
    // their contents.
    let _ = unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxHugepage) };
}

/// Allocates every page of the file. A memfd without its pages takes them at first touch, and the
/// kernel kills the process that touches them if none are left.
fn reserve(fd: &OwnedFd, range: Range<u64>) -> rustix::io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let step = RESERVE_STEP_BYTES.min(range.end - at);
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), at, step))?;
        at += step;
    }
    Ok(())
}

/// Refuses memory that is not available, before trying.
///
/// Beyond a file size limit the kernel answers with a fatal signal, and beyond the available memory
/// with the out-of-memory killer (a memfd is not bounded by the size of /dev/shm).
///
/// # Errors
/// [`RegionError::TooLong`] and [`RegionError::NoMemory`], for `name`.
pub fn check_room(name: &str, len: u64) -> Result<(), RegionError> {
    check_limit(name, len)?;
    match available_bytes() {
        Some(available) if len > available => {
            Err(RegionError::NoMemory { name: name.to_string(), bytes: len, available })
        }
        _ => Ok(()),
    }
}

/// Refuses files that exceed this process's file size limit.
fn check_limit(name: &str, len: u64) -> Result<(), RegionError> {
    let limit = match cfg!(miri) {
        // Miri has neither limits nor a kernel to ask.
        true => isize::MAX as u64,
        false => rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX),
    };
    let limit = limit.min(isize::MAX as u64);
    if len == 0 || len > limit {
        return Err(RegionError::TooLong { name: name.to_string(), bytes: len, limit });
    }
    Ok(())
}

/// Returns the bytes of a page, at which mappings begin.
pub(crate) fn page_bytes() -> u64 {
    if cfg!(miri) { HEAP_ALIGN as u64 } else { rustix::param::page_size() as u64 }
}

/// Returns the bytes of memory that this process could still get; `None` if the kernel does not
/// report it.
pub fn available_bytes() -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    let machine = field(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")? * 1024;
    Some(machine.min(cgroup_bytes().unwrap_or(u64::MAX)))
}

/// Returns the bytes that the memory limits of this process's control groups (version 2) leave:
/// page cache of files counts as free.
fn cgroup_bytes() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let left = |group: &Path| {
        let dir = Path::new("/sys/fs/cgroup").join(group);
        let number = |file: &str| read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
        let (max, current) = (number("memory.max")?, number("memory.current")?);
        let stat = read_to_string(dir.join("memory.stat")).ok()?;
        let cache = field(&stat, "active_file")? + field(&stat, "inactive_file")?;
        Some(max.saturating_sub(current.saturating_sub(cache)))
    };
    Path::new(path).ancestors().filter_map(left).min()
}

/// Returns the number behind `key` in lines of `key number …`.
fn field(text: &str, key: &str) -> Option<u64> {
    let mut words =
        text.lines().map(str::split_whitespace).find_map(|mut words| (words.next()? == key).then_some(words))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    const LEN: u64 = 3 * 4096;

    fn file(len: u64, seals: SealFlags) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, len).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps files")]
    fn a_peer_loads_the_words_that_the_owner_stores() {
        let (own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
        let peer = PeerRegion::open("test", &fd, LEN).unwrap();
        assert_eq!(peer.load(LEN - 8), 0);
        own.store(LEN - 8, 0x0102_0304_0506_0708);
        assert_eq!(peer.load(LEN - 8), 0x0102_0304_0506_0708);
        own.store(64, u64::from_le_bytes(*b"hello, B"));
        assert_eq!(peer.bytes(64, 5), b"hello");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps files")]
    fn a_peer_gets_no_way_to_write_or_resize() {
        let (_own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        let error = Memory::map("test", &fd, 0..LEN, writable).unwrap_err();
        assert!(matches!(error, RegionError::Os { call: "mmap", ref source, .. } if source.raw_os_error() == Some(1)));
        assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, LEN - 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, LEN + 4096), Err(Errno::PERM));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&fd, punch, 0, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps files")]
    fn every_page_is_there_from_the_start() {
        let len = 100 * 4096;
        let (_own, fd) = OwnRegion::create("test", len, 64).unwrap();
        assert!(rustix::fs::fstat(&fd).unwrap().st_blocks as u64 * 512 >= len);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps files")]
    fn a_segment_without_its_seals_is_refused() {
        let size_only = SealFlags::SHRINK | SealFlags::GROW;
        for seals in [SealFlags::empty(), size_only, SealFlags::FUTURE_WRITE | SealFlags::SHRINK] {
            let error = PeerRegion::open("test", file(LEN, seals), LEN).unwrap_err();
            assert!(matches!(error, RegionError::Unsealed { got, .. } if got == seals.bits()), "{error}");
        }
        assert!(SharedRegion::open("test", file(LEN, size_only), LEN).is_ok());
        assert!(SharedRegion::open("test", file(LEN, SealFlags::GROW), LEN).is_err());
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(matches!(PeerRegion::open("test", socket, LEN), Err(RegionError::Unsealed { got: 0, .. })));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps files")]
    fn a_segment_of_the_wrong_size_is_refused() {
        let (_own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
        for expected in [LEN - 64, LEN + 64, 0] {
            let error = PeerRegion::open("test", &fd, expected).unwrap_err();
            assert!(matches!(error, RegionError::Size { got: LEN, .. }), "{error}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps files")]
    fn more_memory_than_there_is_is_an_error_at_once() {
        let available = available_bytes().unwrap();
        let error = OwnRegion::create("test", available * 2, 64).unwrap_err();
        assert!(matches!(error, RegionError::NoMemory { available, .. } if available > 0), "{error}");
        for len in [0, u64::MAX] {
            assert!(matches!(OwnRegion::create("test", len, 64), Err(RegionError::TooLong { .. })));
            assert!(matches!(OwnRegion::on_heap("test", len, 64), Err(RegionError::TooLong { .. })));
        }
    }

    #[test]
    fn a_lease_covers_frames_only_and_is_given_once() {
        let region = Arc::new(OwnRegion::on_heap("test", LEN, 128).unwrap());
        // 128 bytes, and 64 for the end of the last frame.
        let ring = |at| Ring::new(at, 1, 32);
        assert_eq!(ring(0).size(), 192);
        assert!(region.lease(&ring(64)).is_none());
        assert!(region.lease(&ring(LEN - 64)).is_none());
        assert!(region.lease(&ring(u64::MAX - 63)).is_none());
        let lease = region.lease(&ring(384)).unwrap();
        assert!(region.lease(&ring(320)).is_none());
        assert!(region.lease(&ring(448)).is_none());
        assert!(region.lease(&ring(128)).is_some());
        drop(lease);
        assert!(region.lease(&ring(384)).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps files")]
    fn accesses_outside_or_unaligned_panic() {
        let (own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
        let own = Arc::new(own);
        let peer = PeerRegion::open("test", &fd, LEN).unwrap();
        let panics = |access: &dyn Fn()| {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err());
        };
        for at in [LEN, LEN - 4, 1, u64::MAX - 7, u64::MAX] {
            panics(&|| own.store(at, 1));
            panics(&|| _ = own.word(at));
            panics(&|| _ = peer.load(at));
        }
        for (at, len) in [(LEN, 1), (0, LEN + 1), (u64::MAX, 2), (8, u64::MAX - 4)] {
            panics(&|| _ = peer.bytes(at, len).len());
        }
        let ring = Ring::new(64, 1, 32);
        for capacity in [0, 1, 8, 1 << 63] {
            panics(&|| _ = own.span().ring(&Ring { capacity, ..ring }));
            panics(&|| _ = own.span().ring(&Ring { capacity, frame_bytes_max: u64::MAX - 63, ..ring }));
        }
        panics(&|| _ = own.span().ring(&Ring { capacity: 1 << 63, frame_bytes_max: 1 << 63, ..ring }));
        panics(&|| _ = own.span().ring(&Ring::new(LEN - 64, 1, 32)));
        assert_eq!(peer.bytes(LEN, 0), b"");
    }

    #[test]
    fn numbers_are_found_in_the_kernels_tables() {
        assert_eq!(field("a 1\nbb: 22 kB\n", "bb:"), Some(22));
        assert_eq!(field("a 1\n", "bb:"), None);
        assert_eq!(field("bb: x\n", "bb:"), None);
    }
}
