//! Words that several processes write: doorbells.
use super::error::RegionError;
use super::memory::Memory;
use super::room::{check_room, reserve};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::Advice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Memory that several processes write, as atomic words only.
#[derive(Debug)]
pub struct SharedRegion {
    memory: Arc<Memory>,
}

impl SharedRegion {
    /// Creates a region of `len` zero bytes that every process with the descriptor may write.
    ///
    /// # Errors
    /// As [`OwnRegion::create`](crate::OwnRegion::create).
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
    /// As [`PeerRegion::open`](crate::PeerRegion::open).
    pub fn open(name: &str, fd: impl AsFd, len: u64) -> Result<SharedRegion, RegionError> {
        let file = Memory::check(name, &fd, len, SealFlags::empty())?;
        let memory = Memory::map_once(name, fd, len, file, true)?;
        memory.prefault(0..len, Advice::LinuxPopulateRead);
        Ok(SharedRegion { memory })
    }

    /// As [`PeerRegion::check`](crate::PeerRegion::check).
    ///
    /// # Errors
    /// As [`PeerRegion::check`](crate::PeerRegion::check).
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
