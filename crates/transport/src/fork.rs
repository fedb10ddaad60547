//! Keeps a child that was forked from a member out of the member's memory.
//!
//! A forked child inherits every mapping and every handle. Rows are excluded: the kernel leaves
//! them out of the child (`MADV_DONTFORK`). So no process but the member can write its row, and the
//! row of a dead member is final whichever children it leaves. If the C library forked the child,
//! the child gets private memory of zeros in their place. A handle that it has inherited writes
//! there, and no other process reads that.
//!
//! Sockets by which other processes find the member are replaced as well, so that they end with it.
//!
//! Handles that would release something shared when they are dropped, such as an address, compare
//! their [`Owner`] first.
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::cell::UnsafeCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The process that created an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(u32);

impl Owner {
    /// Returns this process as an owner.
    #[expect(clippy::new_without_default, reason = "it says which process made it")]
    pub fn new() -> Owner {
        Owner(std::process::id())
    }

    /// Returns true if this is a copy, in a child that was forked from the owner.
    pub fn is_copy(self) -> bool {
        self.0 != std::process::id()
    }
}

/// As [`Owner`], without a system call. A child that was forked otherwise than by the C library has its
/// parent's mark, and no memory in place of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForkMark(u32);

impl ForkMark {
    /// Returns the mark of this process, which has [something unshared](Unshared).
    #[expect(clippy::new_without_default, reason = "it says which process made it")]
    pub fn new() -> ForkMark {
        ForkMark(FORKS.load(Ordering::Relaxed))
    }

    /// Returns true if this is a copy, in a child that was forked from the process that made it.
    #[inline]
    pub fn is_copy(self) -> bool {
        // Relaxed: it changes only where a process begins, on its only thread.
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

/// A resource that no child shares, until this is dropped.
#[derive(Debug)]
pub struct Unshared(Thing);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thing {
    /// A mapping, by its address and length.
    Memory(usize, usize),
    Descriptor(RawFd),
}

/// A socket that no child shares.
#[derive(Debug)]
pub struct Socket {
    /// Declared before the descriptor, because its number has another meaning once the descriptor
    /// is closed.
    _unshared: Unshared,
    fd: OwnedFd,
}

/// The resources that no child of this process shares. It changes only while `BUSY` is held, and
/// does not change while the process is forked.
struct Registry(UnsafeCell<Vec<Thing>>);

// SAFETY: code that uses the contents holds `BUSY`.
unsafe impl Sync for Registry {}

static REGISTRY: Registry = Registry(UnsafeCell::new(Vec::new()));
/// A lock that the child of a fork can release, too.
static BUSY: AtomicBool = AtomicBool::new(false);
static HANDLERS: Once = Once::new();
/// The number of times that this process and those before it were forked.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The flags for opening the file that takes the place of sockets.
const NOTHING: i32 = libc::O_RDWR | libc::O_CLOEXEC;

impl Unshared {
    /// Excludes a mapping of this process from all children to come. The caller keeps the mapping
    /// for at least as long as the result lives. Returns `None` if the system refuses.
    pub fn memory(start: *mut u8, len: usize) -> Option<Unshared> {
        // SAFETY: the range is a mapping of this process, by the caller; its contents do not change
        // here.
        unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxDontFork) }.ok()?;
        Some(Unshared::put(Thing::Memory(start.expose_provenance(), len)))
    }

    fn put(thing: Thing) -> Unshared {
        HANDLERS.call_once(|| {
            // SAFETY: the three functions live as long as the process, and do only things that are
            // allowed around a fork. If the system has no memory for the handlers, the child has no
            // memory in place of the rows.
            unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(replace)) };
        });
        with_registry(|registry| registry.push(thing));
        Unshared(thing)
    }
}

impl Socket {
    /// Wraps a socket.
    pub fn new(fd: OwnedFd) -> Socket {
        Socket { _unshared: Unshared::put(Thing::Descriptor(fd.as_raw_fd())), fd }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Unshared {
    fn drop(&mut self) {
        with_registry(|registry| registry.retain(|other| *other != self.0));
    }
}

/// Creates memory without a name in any directory, which can be sealed and not executed.
///
/// # Errors
/// The system's refusal.
pub fn create_file(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        result => result,
    }
}

fn with_registry<T>(change: impl FnOnce(&mut Vec<Thing>) -> T) -> T {
    lock();
    // SAFETY: `BUSY` is held, so this is the only reference.
    let changed = change(unsafe { &mut *REGISTRY.0.get() });
    unlock();
    changed
}

extern "C" fn lock() {
    while BUSY.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
}

extern "C" fn unlock() {
    BUSY.store(false, Ordering::Release);
}

/// Replaces the resources in the child.
extern "C" fn replace() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the thread that forked holds `BUSY`, and is the only one of the child.
    let registry = unsafe { &*REGISTRY.0.get() };
    let mut nothing = None;
    for thing in registry {
        match thing {
            Thing::Memory(start, len) => {
                let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
                let start = ptr::with_exposed_provenance_mut(*start);
                // SAFETY: the child has nothing mapped in this range, which the kernel has left out
                // of it.
                let _ = unsafe { rustix::mm::mmap_anonymous(start, *len, ProtFlags::READ | ProtFlags::WRITE, flags) };
            }
            Thing::Descriptor(fd) => {
                // SAFETY: a string that ends with a zero.
                let file = *nothing.get_or_insert_with(|| unsafe { libc::open(c"/dev/null".as_ptr(), NOTHING) });
                if file >= 0 {
                    // SAFETY: the number stays that of an open descriptor, whose owner in the child
                    // uses and closes it as before.
                    unsafe { libc::dup3(file, *fd, libc::O_CLOEXEC) };
                }
            }
        }
    }
    if let Some(file) = nothing.filter(|file| *file >= 0) {
        // SAFETY: opened above, and used nowhere else.
        unsafe { libc::close(file) };
    }
    unlock();
}
