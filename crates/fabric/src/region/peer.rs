//! Memory that another process writes and this one reads.
use super::error::RegionError;
use super::memory::Memory;
use super::room::page_bytes;
use super::span::Span;
use crate::readings::RowReading;
use rustix::fs::SealFlags;
use rustix::mm::{Advice, ProtFlags};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Memory that another process created and that only that process writes.
#[derive(Debug)]
pub struct PeerRegion {
    pub(super) span: Span,
    /// Keeps `span` mapped.
    pub(super) memory: Arc<Memory>,
    pub(super) hold: RegionHold,
}

/// The reason why the owner uses a region for nothing else.
#[derive(Debug)]
pub(super) enum RegionHold {
    /// The owner never does, or the memory has the lease: that of a row that came late.
    Memory,
    /// The owner does not as long as this is open.
    Lease { _fd: OwnedFd },
    /// The owner does not as long as this member reports that it reads such rows.
    Reading { _reading: RowReading },
}

impl PeerRegion {
    /// Maps a peer's region read-only, after checking that it is sealed and has `len` bytes.
    ///
    /// # Errors
    /// [`RegionError::Unsealed`], [`RegionError::Size`], [`RegionError::Os`].
    pub fn open(name: &str, fd: impl AsFd, len: u64) -> Result<PeerRegion, RegionError> {
        let memory = Memory::open(name, fd, len, SealFlags::FUTURE_WRITE, ProtFlags::READ)?;
        Ok(PeerRegion { span: memory.span, memory: Arc::new(memory), hold: RegionHold::Memory })
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
        Ok(PeerRegion { span, memory, hold: RegionHold::Lease { _fd: lease } })
    }

    /// Returns true if other ranges of the owner's memory can be found [beside](Self::beside) this
    /// one.
    pub(crate) fn is_of_chunk(&self) -> bool {
        !matches!(self.hold, RegionHold::Memory)
    }

    /// Returns the `len` bytes at `at` of the memory of which this is a range. The owner uses them
    /// for nothing else as long as `reading` lives.
    ///
    /// # Errors
    /// [`RegionError::Place`] if they are not all inside, or don't begin at a page.
    ///
    /// # Panics
    /// If this is [no range](Self::is_of_chunk) of the owner's memory.
    pub(crate) fn beside(&self, at: u64, len: u64, reading: RowReading) -> Result<PeerRegion, RegionError> {
        assert!(self.is_of_chunk(), "a row that came late");
        let (size, end) = (self.memory.span.len, at.saturating_add(len));
        if !at.is_multiple_of(page_bytes()) || len == 0 || end > size {
            return Err(RegionError::Place { at, bytes: len, size });
        }
        let span = Span { base: self.memory.span.pointer(at, len), len };
        self.memory.prefault(at..end, Advice::LinuxPopulateRead);
        Ok(PeerRegion { span, memory: Arc::clone(&self.memory), hold: RegionHold::Reading { _reading: reading } })
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
