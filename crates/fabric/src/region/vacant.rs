//! The place of a row that has not come.
use super::copies::CopyRegion;
use super::error::RegionError;
use super::memory::Memory;
use super::peer::{PeerRegion, RegionHold};
use super::room::check_room;
use super::span::Span;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

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
        Ok(Some(PeerRegion { span, memory: Arc::clone(&self.memory), hold: RegionHold::Memory }))
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

    /// Returns true if the owner's memory is [mapped](Self::map) over the range.
    pub(crate) fn is_mapped(&self) -> bool {
        self.memory.lease.get().is_some()
    }

    pub(crate) fn span(&self) -> Span {
        self.memory.span
    }
}
