//! Liveness: peers detect a killed process before the kernel has reclaimed its memory.
//!
//! A pidfd reports that a process is gone, with everything that it had. To reclaim many gigabytes
//! takes seconds, and so does a lock that the kernel waits for meanwhile. The first thing that an
//! ending thread does in the kernel is to mark the robust futexes that it holds
//! (`set_robust_list(2)`). So a thread of each member holds one, in the memory that its peers ring
//! it through, for as long as the member lives. The mark is not proof: other threads of the same
//! process may run for a moment yet.
//!
//! Peers look at the word when they look at the clock. No thread sleeps on it.
use crate::member_event_count::MemberEventCount;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The bit that the kernel sets in a futex whose holder has ended.
const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;

/// A thread whose end is visible in a doorbell's region, to every process that has the region. Once
/// this is dropped, no end is visible.
#[derive(Debug)]
pub struct LivenessThread {
    event_count: MemberEventCount,
    /// The list whose address the kernel has.
    list: Box<RobustList>,
    /// The list that the C library had registered for this thread.
    before: (*mut RobustList, usize),
    /// Bound to this thread.
    _thread: PhantomData<*mut ()>,
}

/// `struct robust_list_head`, and the one entry that is on it. An entry is the address of the next
/// entry, or of the head.
#[repr(C)]
#[derive(Debug)]
struct RobustList {
    first: *const *const RobustList,
    /// Distance from an entry to its futex.
    futex_offset: isize,
    pending: *const (),
    /// Behind the part that the kernel takes for the head.
    entry: *const RobustList,
}

/// Bytes of the head.
const HEAD_BYTES: usize = std::mem::offset_of!(RobustList, entry);

impl LivenessThread {
    /// Marks the calling thread as the one that `event_count`'s peers watch. While this lives,
    /// robust mutexes of the C library that this thread holds are not released by its end. Returns
    /// `None` on a kernel that has no robust futexes.
    pub fn hold(event_count: &MemberEventCount) -> Option<LivenessThread> {
        let mut list =
            Box::new(RobustList { first: ptr::null(), futex_offset: 0, pending: ptr::null(), entry: ptr::null() });
        let (head, entry) = (ptr::from_ref(&*list), ptr::from_ref(&list.entry));
        let futex = event_count.life();
        (list.first, list.entry) = (entry, head);
        list.futex_offset = futex.as_ptr().addr().wrapping_sub(entry.addr()) as isize;
        let mut before = (ptr::null_mut(), 0);
        // SAFETY: writes its answer to two variables of this stack.
        let got = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut before.0, &raw mut before.1) };
        if got != 0 {
            return None;
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        futex.store(thread, Ordering::Release);
        let event_count = event_count.clone();
        let line = LivenessThread { event_count, list, before, _thread: PhantomData };
        // SAFETY: the list is well-formed, and neither the list nor the futex moves until the drop
        // of `line` unregisters it. A thread that ends without that leaks both, or ends with its
        // process.
        let set = unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const *line.list, HEAD_BYTES) };
        (set == 0).then_some(line)
    }
}

impl Drop for LivenessThread {
    fn drop(&mut self) {
        // SAFETY: restores the list that the C library had registered for this very thread, as this
        // can't be sent to another.
        unsafe { libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1) };
        self.event_count.life().store(0, Ordering::Release);
    }
}

/// Returns true if the thread that held this futex has ended without releasing it.
pub(crate) fn has_ended(life: &AtomicU32) -> bool {
    // Relaxed: a hint, from which nothing about other writes is concluded.
    life.load(Ordering::Relaxed) & OWNER_DIED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_no_end_and_an_end_is_noticed() {
        let event_count = MemberEventCount::create().unwrap();
        assert!(!has_ended(event_count.life()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let line = LivenessThread::hold(&event_count).expect("robust futexes");
                assert!(!has_ended(event_count.life()));
                assert_ne!(event_count.life().load(Ordering::Relaxed), 0);
                drop(line);
            });
        });
        assert_eq!(event_count.life().load(Ordering::Relaxed), 0);
        let (holds, ends) = (MemberEventCount::create().unwrap(), MemberEventCount::create().unwrap());
        let (ready, wait) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let line = LivenessThread::hold(&holds).expect("robust futexes");
                ready.wait();
                wait.wait();
                drop(line);
            });
            let ending = scope.spawn(|| std::mem::forget(LivenessThread::hold(&ends).expect("robust futexes")));
            ready.wait();
            ending.join().unwrap();
            // The scope counts a thread as joined before its end in the kernel.
            while !has_ended(ends.life()) {
                std::thread::yield_now();
            }
            assert!(!has_ended(holds.life()), "each thread is known by its own");
            wait.wait();
        });
    }

    #[test]
    fn robust_mutexes_of_the_c_library_work_again_afterwards() {
        let event_count = MemberEventCount::create().unwrap();
        std::thread::spawn(move || {
            let list = || {
                let (mut head, mut len) = (ptr::null_mut::<RobustList>(), 0_usize);
                // SAFETY: writes its answer to two variables of this stack.
                let got = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
                assert_eq!(got, 0);
                head
            };
            let before = list();
            let line = LivenessThread::hold(&event_count).expect("robust futexes");
            assert_ne!(list(), before);
            drop(line);
            assert_eq!(list(), before);
        })
        .join()
        .unwrap();
    }
}
