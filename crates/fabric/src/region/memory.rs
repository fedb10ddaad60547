//! Mappings: files with seals, private memory and the heap.
use super::error::RegionError;
use super::room::{HEAP_ALIGN, check_room, page_bytes};
use super::span::Span;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use spindle_transport::fork::create_file;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Regions of at least this size ask for huge pages; smaller ones would waste most of theirs.
const HUGE_BYTES_MIN: u64 = 8 << 20;
/// Identity of a file among all files that exist at the same time: its device and inode. The kernel
/// counts the inodes of memfds in 64 bits (since Linux 5.9).
pub(super) type FileId = (u64, u64);

/// The files of other processes that are mapped here for reading or for writing. While a file is
/// mapped, no other file has its id.
static MAPPED: Mutex<BTreeMap<(FileId, bool), Weak<Memory>>> = Mutex::new(BTreeMap::new());

/// A span, and the way to release it.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) span: Span,
    pub(super) on_heap: bool,
    /// The ranges that are in this process's page table already.
    pub(super) prefaulted: Mutex<Vec<Range<u64>>>,
    /// As long as this is open, the owner of the mapped memory uses it for nothing else.
    pub(super) lease: OnceLock<OwnedFd>,
}

impl Memory {
    fn new(span: Span, on_heap: bool) -> Memory {
        Memory { span, on_heap, prefaulted: Mutex::default(), lease: OnceLock::new() }
    }

    /// Creates a sealed file of `len` bytes, mapped for writing, without memory.
    pub(super) fn create(name: &str, len: u64, seals: SealFlags) -> Result<(Memory, OwnedFd), RegionError> {
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

    pub(super) fn open(
        name: &str,
        fd: impl AsFd,
        len: u64,
        seals: SealFlags,
        prot: ProtFlags,
    ) -> Result<Memory, RegionError> {
        Memory::check(name, &fd, len, seals)?;
        let memory = Memory::map(name, fd, 0..len, prot)?;
        memory.prefault(0..len, Advice::LinuxPopulateRead);
        Ok(memory)
    }

    pub(super) fn check(name: &str, fd: impl AsFd, len: u64, seals: SealFlags) -> Result<FileId, RegionError> {
        let (size, file) = Memory::check_seals(name, fd, seals)?;
        if size != len || len == 0 {
            return Err(RegionError::Size { expected: len, got: size });
        }
        Ok(file)
    }

    /// Checks that `range` is inside the sealed file and begins at a page. Returns the file's size,
    /// too.
    pub(super) fn check_range(name: &str, fd: impl AsFd, range: &Range<u64>) -> Result<(u64, FileId), RegionError> {
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
    pub(super) fn map_once(
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
    pub(super) fn map(name: &str, fd: impl AsFd, range: Range<u64>, prot: ProtFlags) -> Result<Memory, RegionError> {
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
    pub(super) fn anonymous(name: &str, len: u64, prot: ProtFlags) -> Result<Memory, RegionError> {
        let os = |source| RegionError::Os { call: "mmap", name: name.to_string(), source };
        let any = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let mapped = unsafe { rustix::mm::mmap_anonymous(any, len as usize, prot, MapFlags::PRIVATE) };
        let base = NonNull::new(mapped.map_err(|errno| os(errno.into()))?.cast());
        let base = base.ok_or_else(|| os(io::Error::other("mapped at address 0")))?;
        Ok(Memory::new(Span { base, len }, false))
    }

    pub(super) fn on_heap(name: &str, len: u64) -> Result<Memory, RegionError> {
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
    pub(super) fn prefault(&self, range: Range<u64>, advice: Advice) {
        let mut done = self.prefaulted.lock().unwrap_or_else(PoisonError::into_inner);
        if !covers(&done, &range) {
            let _ = self.advise(range.clone(), advice);
            done.retain(|done| done.end <= range.start || range.end <= done.start);
            done.push(range);
        }
    }
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

/// Returns true if one of `ranges` contains all of `range`.
pub(super) fn covers(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    ranges.iter().any(|other| other.start <= range.start && range.end <= other.end)
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
