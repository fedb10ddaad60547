//! The beginning of a file, mapped.
use super::error::RegionError;
use super::memory::Memory;
use super::span::Span;
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::os::fd::AsFd;

/// The first bytes of a file, mapped. No other process changes them.
#[derive(Debug)]
pub(crate) struct FileRegion {
    memory: Memory,
    is_writable: bool,
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
