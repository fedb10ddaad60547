//! Two processes and the memory they share: [`ProbePair`] in the parent, [`SharedMapping`] in both.
//!
//! After the fork the child runs in a copy of a process that may have had other threads. So it
//! allocates nothing, takes no lock and does not panic: it uses the shared mapping, makes a few
//! direct system calls, and exits. It ends when the parent stops it, when its own deadline passes,
//! when the parent's thread is gone, or when the parent kills it.
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, set_parent_process_death_signal, waitpid,
};
use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};

use super::cores::{Cores, Pin};
use super::error::{ChildEnd, ProbeError, system};

/// The words that one process writes and the other reads: on lines of their own, two because x86
/// prefetches pairs.
#[repr(C, align(128))]
pub(super) struct ProbeLine {
    /// The probe's counter.
    pub(super) count: AtomicU64,
    /// The time at which the writer did the action that the other process reacts to, by [`now_ns`].
    pub(super) at_ns: AtomicU64,
    /// A time that the writer measured.
    pub(super) took_ns: AtomicU64,
    /// The futex that the *other* process sleeps on.
    pub(super) event_count: AtomicU32,
}

/// The start of the mapping. All zero is its initial state.
#[repr(C, align(128))]
pub(super) struct ProbeControl {
    /// Written by the parent.
    pub(super) parent: ProbeLine,
    /// Written by the child.
    pub(super) child: ProbeLine,
    ready: ReadyLine,
}

#[repr(C, align(128))]
struct ReadyLine(AtomicU32);

/// The value of [`ProbeLine::count`] by which the parent ends the measurement.
pub(super) const STOP: u64 = u64::MAX;

/// How a child ends; its exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(super) enum ChildExit {
    /// The parent stopped it.
    Done = 0,
    /// The system refused its core.
    NotPinned = 10,
    /// The parent was gone before the child had started.
    Orphan = 11,
    /// The deadline passed.
    Deadline = 12,
    /// A futex call failed.
    Futex = 13,
    /// A call for a stream failed.
    Stream = 14,
    /// The child unwound, which is a bug here.
    Panic = 101,
}

/// The mapping, as both processes use it. It has the same address in both, since the child is a
/// fork.
pub(super) struct SharedMapping {
    base: NonNull<u8>,
    data_bytes: usize,
    deadline_ns: u64,
}

/// Offset of the data in the mapping: a page of its own.
const DATA_AT: usize = 4096;
const _: () = assert!(size_of::<ProbeControl>() <= DATA_AT);

/// Tries before a waiting process checks whether it should still wait: some ten microseconds.
const SPINS: u32 = 1 << 14;

impl SharedMapping {
    fn map(data_bytes: usize, deadline_ns: u64) -> Result<SharedMapping, ProbeError> {
        let fd = memfd_create("spindle-probe", MemfdFlags::CLOEXEC).map_err(system("memfd_create"))?;
        let bytes = DATA_AT + data_bytes;
        ftruncate(&fd, bytes as u64).map_err(system("ftruncate"))?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, &fd, 0) };
        let base = NonNull::new(base.map_err(system("mmap"))?.cast()).expect("mmap never answers null");
        Ok(SharedMapping { base, data_bytes, deadline_ns })
    }

    pub(super) fn control(&self) -> &ProbeControl {
        // SAFETY: `base` is page-aligned and maps at least `DATA_AT` bytes, zero at first, until
        // self is dropped; `ProbeControl` fits (asserted), is valid when zero, and holds atomics only,
        // which the other process may change.
        unsafe { self.base.cast::<ProbeControl>().as_ref() }
    }

    /// Returns the bytes behind the control page.
    pub(super) fn data(&self) -> NonNull<u8> {
        // SAFETY: the mapping is `DATA_AT + data_bytes` long.
        unsafe { self.base.add(DATA_AT) }
    }

    /// Spins in the child until `ready` answers; returns `Err` once the deadline has passed.
    #[inline(always)]
    pub(super) fn child_wait<T>(&self, ready: impl FnMut() -> Option<T>) -> Result<T, ChildExit> {
        spin(ready, || self.child_deadline())
    }

    /// Returns `Err` once the deadline has passed.
    pub(super) fn child_deadline(&self) -> Result<(), ChildExit> {
        if now_ns() > self.deadline_ns { Err(ChildExit::Deadline) } else { Ok(()) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map` with this length, and no reference into it
        // outlives self. A failure leaves it mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), DATA_AT + self.data_bytes) };
    }
}

/// The parent's hold on the child: killed and reaped when this is dropped.
pub(super) struct ProbePair {
    shared: SharedMapping,
    child: Pid,
    end: Option<ChildEnd>,
    limit: Duration,
    pin: Pin,
}

impl ProbePair {
    /// Maps `data_bytes`, pins this thread, forks, and waits until the child is about to run
    /// `body`.
    ///
    /// `limit` bounds the whole life of the pair. `body` must keep to the rules at the head of this
    /// file.
    pub(super) fn start(
        data_bytes: u64,
        limit: Duration,
        body: impl FnOnce(&SharedMapping) -> Result<(), ChildExit>,
    ) -> Result<ProbePair, ProbeError> {
        let deadline_ns = now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let shared = SharedMapping::map(data_bytes as usize, deadline_ns)?;
        let pin = Pin::parent()?;
        let parent = getpid();
        // SAFETY: in the child only `run_child` runs, which never returns and does nothing that
        // needs the threads or locks that the fork has not copied.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            run_child(&shared, parent, pin.cores, body);
        }
        let Some(child) = Pid::from_raw(forked).filter(|_| forked > 0) else {
            return Err(ProbeError::System { call: "fork", source: std::io::Error::last_os_error() });
        };
        let mut pair = ProbePair { shared, child, end: None, limit, pin };
        pair.wait("the child to start", |shared| {
            (shared.control().ready.0.load(Ordering::Acquire) == 1).then_some(())
        })?;
        Ok(pair)
    }

    pub(super) fn shared(&self) -> &SharedMapping {
        &self.shared
    }

    pub(super) fn cores(&self) -> Cores {
        self.pin.cores
    }

    #[cfg(test)]
    pub(super) fn child(&self) -> Pid {
        self.child
    }

    /// Spins in the parent until `ready` answers, as long as the child lives and the limit has not
    /// passed.
    #[inline(always)]
    pub(super) fn wait<T>(
        &mut self,
        what: &'static str,
        mut ready: impl FnMut(&SharedMapping) -> Option<T>,
    ) -> Result<T, ProbeError> {
        let (shared, still_going) = self.split(what);
        spin(|| ready(shared), still_going)
    }

    /// Returns the memory, and apart from it the check whether the measurement can continue.
    pub(super) fn split(&mut self, what: &'static str) -> (&SharedMapping, impl FnMut() -> Result<(), ProbeError>) {
        let ProbePair { shared, child, end, limit, .. } = self;
        let shared = &*shared;
        (shared, move || still_going(what, shared, *child, end, *limit))
    }

    /// Checks that the measurement can continue: the child lives and the limit has not passed.
    fn still_going(&mut self, what: &'static str) -> Result<(), ProbeError> {
        still_going(what, &self.shared, self.child, &mut self.end, self.limit)
    }

    /// Waits until the child, which the parent has stopped, has ended with success.
    pub(super) fn finish(mut self) -> Result<(), ProbeError> {
        loop {
            match self.still_going("the child to stop") {
                Ok(()) => sched_yield(),
                Err(ProbeError::ChildDied { how: ChildEnd::Exit(0), .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for ProbePair {
    fn drop(&mut self) {
        if self.end.is_some() {
            return;
        }
        // The child has not been reaped, so its pid is still its own.
        let _ = kill_process(self.child, Signal::KILL);
        let patience = Instant::now();
        while reap(self.child).is_none() && patience.elapsed() < REAP_LIMIT {
            sched_yield();
        }
    }
}

/// A killed process is gone within microseconds unless the kernel itself hangs: then it is left to
/// init.
const REAP_LIMIT: Duration = Duration::from_secs(5);

fn still_going(
    what: &'static str,
    shared: &SharedMapping,
    child: Pid,
    end: &mut Option<ChildEnd>,
    limit: Duration,
) -> Result<(), ProbeError> {
    *end = end.or_else(|| reap(child));
    match *end {
        Some(how) => Err(ProbeError::ChildDied { pid: child.as_raw_nonzero().get().unsigned_abs(), how }),
        None if now_ns() > shared.deadline_ns => Err(ProbeError::Stalled { what, limit }),
        None => Ok(()),
    }
}

/// Returns how `child` ended, if it has. It is a child of this process that has not been reaped
/// yet.
fn reap(child: Pid) -> Option<ChildEnd> {
    match waitpid(Some(child), WaitOptions::NOHANG) {
        Ok(None) | Err(Errno::INTR) => None,
        Ok(Some((_, status))) => Some(child_end(status)),
        Err(_) => Some(ChildEnd::Unknown),
    }
}

fn child_end(status: WaitStatus) -> ChildEnd {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ChildEnd::Exit(code),
        (None, Some(signal)) => ChildEnd::Signal(signal),
        (None, None) => ChildEnd::Unknown,
    }
}

fn run_child(
    shared: &SharedMapping,
    parent: Pid,
    cores: Cores,
    body: impl FnOnce(&SharedMapping) -> Result<(), ChildExit>,
) -> ! {
    /// Unwinding must not reach the parent's frames, of which the child has a copy.
    struct NoUnwind;
    impl Drop for NoUnwind {
        fn drop(&mut self) {
            exit(ChildExit::Panic);
        }
    }
    let _no_unwind = NoUnwind;
    // Best effort: without it, an orphan still ends at its deadline.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(parent) {
        exit(ChildExit::Orphan);
    }
    if cores.pin_child().is_err() {
        exit(ChildExit::NotPinned);
    }
    shared.control().ready.0.store(1, Ordering::Release);
    exit(body(shared).err().unwrap_or(ChildExit::Done))
}

fn exit(how: ChildExit) -> ! {
    // SAFETY: ends this process at once, without running any code of the parent.
    unsafe { libc::_exit(how as i32) }
}

/// Tries `ready` until it answers. Every [`SPINS`] tries it calls `check`, which decides whether to
/// continue, and yields.
#[inline(always)]
fn spin<T, E>(mut ready: impl FnMut() -> Option<T>, mut check: impl FnMut() -> Result<(), E>) -> Result<T, E> {
    loop {
        for _ in 0..SPINS {
            if let Some(value) = ready() {
                return Ok(value);
            }
        }
        check()?;
        sched_yield();
    }
}

/// Returns CLOCK_MONOTONIC in nanoseconds: one clock for both processes.
#[inline]
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Fails unless `child` is neither running nor a zombie of this process.
    pub(in super::super) fn assert_gone(child: Pid) {
        assert_eq!(waitpid(Some(child), WaitOptions::NOHANG).err(), Some(Errno::CHILD));
    }

    fn idle(shared: &SharedMapping) -> Result<(), ChildExit> {
        shared.child_wait(|| (shared.control().parent.count.load(Ordering::Acquire) == STOP).then_some(()))
    }

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_child_that_is_told_to_stop_is_reaped() {
        let pair = ProbePair::start(0, LIMIT, idle).expect("started");
        let child = pair.child();
        pair.shared().control().parent.count.store(STOP, Ordering::Release);
        pair.finish().expect("stopped");
        assert_gone(child);
    }

    #[test]
    fn dropping_the_pair_kills_and_reaps_the_child() {
        let pair = ProbePair::start(0, LIMIT, idle).expect("started");
        let child = pair.child();
        drop(pair);
        assert_gone(child);
    }

    #[test]
    fn a_killed_child_is_a_typed_error() {
        let mut pair = ProbePair::start(0, LIMIT, idle).expect("started");
        let child = pair.child();
        kill_process(child, Signal::KILL).expect("killed");
        let error = pair.wait::<()>("what never comes", |_| None).expect_err("no child");
        let pid = child.as_raw_nonzero().get() as u32;
        assert!(matches!(error, ProbeError::ChildDied { pid: p, how: ChildEnd::Signal(9) } if p == pid), "{error}");
        drop(pair);
        assert_gone(child);
    }

    #[test]
    fn a_child_that_gives_up_says_why() {
        let mut pair = ProbePair::start(0, LIMIT, |_| Err(ChildExit::Futex)).expect("started");
        let error = pair.wait::<()>("what never comes", |_| None).expect_err("no child");
        assert!(matches!(error, ProbeError::ChildDied { how: ChildEnd::Exit(13), .. }), "{error}");
    }

    #[test]
    fn a_stopped_child_is_a_stall_and_is_killed() {
        let mut pair = ProbePair::start(0, Duration::from_millis(200), idle).expect("started");
        let child = pair.child();
        kill_process(child, Signal::STOP).expect("stopped");
        let error = pair.wait::<()>("what never comes", |_| None).expect_err("stalled");
        assert!(matches!(error, ProbeError::Stalled { what: "what never comes", .. }), "{error}");
        drop(pair);
        assert_gone(child);
    }

    #[test]
    fn the_two_processes_see_one_memory_from_two_cores() {
        let mut pair = ProbePair::start(4096, LIMIT, |shared| {
            // SAFETY: the data is 4096 bytes, and the parent reads it only after `count` is
            // released.
            unsafe { shared.data().write_bytes(0x5a, 4096) };
            let core = rustix::thread::sched_getcpu() as u64;
            shared.control().child.count.store(core + 1, Ordering::Release);
            Ok(())
        })
        .expect("started");
        let core = pair.wait("the child's core", |shared| {
            let count = shared.control().child.count.load(Ordering::Acquire);
            (count != 0).then(|| (count - 1) as u32)
        });
        // SAFETY: written by the child before it released `count`, and by no process since.
        let data = unsafe { pair.shared().data().cast::<[u8; 4096]>().read() };
        assert_eq!(data, [0x5a; 4096]);
        match pair.cores() {
            Cores::Two { child, parent } => assert_eq!((core.expect("a core"), child != parent), (child, true)),
            Cores::One { core: only } => assert_eq!(core.expect("a core"), only),
        }
        pair.finish().expect("ended");
    }
}
