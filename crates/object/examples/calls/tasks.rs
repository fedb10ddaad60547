//! Runs many futures on one thread, which can wait for a socket at the same time.
use crate::store::{Reply, Replying};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread yields before it sleeps, as long as the library's own threads look for work.
const YIELD_FOR: Duration = Duration::from_micros(50);

/// Futures in slots, each with a tag of its caller.
pub(crate) struct Tasks<'a, Tag> {
    ready: Arc<Ready>,
    wakers: Vec<Waker>,
    running: Vec<Option<(Tag, Replying<'a>)>>,
    free: Vec<u32>,
}

impl<'a, Tag> Tasks<'a, Tag> {
    pub(crate) fn new(slots: u32) -> io::Result<Tasks<'a, Tag>> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let ready = Arc::new(Ready { slots: Mutex::default(), bell, is_asleep: AtomicBool::new(false) });
        let wakers = (0..slots).map(|slot| Arc::new(WakeSlot { slot, ready: Arc::clone(&ready) }).into()).collect();
        Ok(Tasks { ready, wakers, running: (0..slots).map(|_| None).collect(), free: (0..slots).collect() })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.running.len()
    }

    /// Starts a future with the next [`finished`](Self::finished). There has to be a free slot.
    pub(crate) fn start(&mut self, tag: Tag, future: Replying<'a>) {
        let slot = self.free.pop().expect("the caller has checked is_full");
        self.running[slot as usize] = Some((tag, future));
        self.ready.slots().push(slot);
    }

    /// Polls the futures that may be ready, and hands over the results of those that are. Returns
    /// whether there were any.
    pub(crate) fn finished(&mut self, mut done: impl FnMut(Tag, Reply)) -> bool {
        let mut slots = std::mem::take(&mut *self.ready.slots());
        slots.sort_unstable();
        slots.dedup();
        let mut any = false;
        for slot in slots {
            let waker = &self.wakers[slot as usize];
            let entry = &mut self.running[slot as usize];
            if let Some((_, future)) = entry
                && let Poll::Ready(reply) = future.as_mut().poll(&mut Context::from_waker(waker))
            {
                self.free.push(slot);
                let (tag, _) = entry.take().expect("it was polled");
                done(tag, reply);
                any = true;
            }
        }
        any
    }

    /// Yields the core instead of a sleep, if `since`, the last time at which there was work, is recent.
    /// A sleep after each result would cost more than the calls, and wake-ups would part those that
    /// come together. Returns whether it did.
    pub(crate) fn yields(&self, since: Instant) -> bool {
        let is_recent = since.elapsed() < YIELD_FOR;
        if is_recent {
            thread::yield_now();
        }
        is_recent
    }

    /// Sleeps until a future may be ready or one of `wanted` has happened to the socket, at most `time`.
    /// Returns false if the time is over.
    pub(crate) fn wait(&self, socket: Option<(BorrowedFd<'_>, PollFlags)>, time: Duration) -> io::Result<bool> {
        // Pairs with the swap in `wake`: either the waker sees that this thread sleeps, or this thread
        // sees the slot.
        self.ready.is_asleep.store(true, Ordering::SeqCst);
        if !self.ready.slots().is_empty() {
            self.ready.is_asleep.store(false, Ordering::SeqCst);
            return Ok(true);
        }
        let bell = PollFd::new(&self.ready.bell, PollFlags::IN);
        let mut fds = vec![bell];
        fds.extend(socket.map(|(fd, wanted)| PollFd::from_borrowed_fd(fd, wanted)));
        let timeout = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
        let polled = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout)))?;
        self.ready.is_asleep.store(false, Ordering::SeqCst);
        if fds[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(self.ready.bell.as_fd(), &mut [0; 8]);
        }
        Ok(polled > 0)
    }
}

/// The slots that may have a result.
struct Ready {
    slots: Mutex<Vec<u32>>,
    bell: OwnedFd,
    is_asleep: AtomicBool,
}

impl Ready {
    fn slots(&self) -> MutexGuard<'_, Vec<u32>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WakeSlot {
    slot: u32,
    ready: Arc<Ready>,
}

impl Wake for WakeSlot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.slots().push(self.slot);
        if self.ready.is_asleep.swap(false, Ordering::SeqCst) {
            // The counter can't be full: it is read after each sleep.
            let _ = rustix::io::write(&self.ready.bell, &1_u64.to_ne_bytes());
        }
    }
}
