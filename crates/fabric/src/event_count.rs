//! Event counts: sleeping without missing work, and system calls only if a thread sleeps.
//!
//! A [`EventCount`] consists of two words: `asleep`, the number of threads that sleep or are about
//! to (written by sleepers), and `rings`, the futex word (written by sleepers and ringers). For a
//! member, `asleep` is a word of its own row, and `rings` is a word that its peers may write. For
//! application threads both words are on the heap. The steps are the same:
//!
//! ```text
//! sleeper: arm rings (its low bits) · asleep += 1 · heavy barrier · look for work once more · sleep while rings is as armed
//! ringer:  store work · light barrier · if asleep and rings is armed: make it greater and unarmed, wake all
//! ```
//!
//! A sleeper that is awake for a moment leaves its announcement in force. To sleep again it arms
//! `rings` and executes a fence. Ringers that find `asleep` set execute a fence, too, so no barrier
//! that interrupts all cores is needed. The sleeper withdraws the announcement when it has had work
//! for a while; then ringers pay nothing.
//!
//! If several ringers ring at once, exactly one finds `rings` armed and makes the system call. A
//! sleeper whose `rings` has changed does not fall asleep, even if another sleeper has armed it
//! again since. [`crate::barrier`] argues that no ringer misses the sleeper. The argument covers
//! every load after the ringer's barrier, so it covers the load of `rings` as well.
//!
//! A member that also waits for sockets can't sleep on a futex. Its event count has an eventfd
//! beside `rings`, and the sleeper writes into `rings` which of the two will wake it this time. If
//! it chose the eventfd, the ringer writes to the eventfd instead of waking the futex, and the
//! sleeper waits for the eventfd among its descriptors. The eventfd stays ready until the sleeper
//! clears it. The sleeper does so when it is awake and will look for work again. So no ring is
//! lost. At worst, a slow ringer's late write makes a later sleep end early.
use crate::barrier::Barrier;
use crate::region::{OwnRegion, PeerRegion, SharedRegion};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::thread::futex;
use spindle_core::wire::layout::membership;
use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Bytes of a doorbell's region.
pub(crate) const EVENT_COUNT_BYTES: u64 = 256;
/// Offset in a doorbell's region of the futex that its member's [thread](crate::LivenessThread)
/// holds.
pub(crate) const LIFE: u64 = 72;
/// Offset of the futex word in it.
const RINGS: u64 = 0;
/// Offset of the word that peers set after they have posted words of their membership blocks.
const MOVED: u64 = 8;
/// Offset of the word that is 1 if its sleeper can't make other processes execute a barrier. It is
/// on a cache line of its own, as it never changes.
const FENCED: u64 = 64;

/// In `rings`: a thread sleeps, or is about to, and no ringer has rung since.
const ARMED: u32 = 1;
/// In `rings`, with [`ARMED`]: the sleeper waits for the eventfd.
const BY_EVENT: u32 = 2;

/// An event count on which threads sleep. Clones are the same event count.
#[derive(Clone)]
pub struct EventCount {
    asleep: NonNull<AtomicU64>,
    rings: NonNull<AtomicU32>,
    moved: NonNull<AtomicU64>,
    /// Futex flags that say which processes may sleep on `rings`.
    scope: futex::Flags,
    event: Option<Arc<OwnedFd>>,
    barrier: Barrier,
    /// The memory that contains the words.
    _memory: Arc<dyn Any + Send + Sync>,
}

/// The ringer's side of a [`EventCount`]. Clones are the same event count.
#[derive(Clone, Debug)]
pub struct Doorbell {
    event_count: EventCount,
}

/// An announcement that a thread is about to sleep; ended by [`EventCount::wait`] or
/// [`EventCount::withdraw`].
#[derive(Debug)]
#[must_use = "until it is ended everybody rings"]
pub struct Announced {
    rings: u32,
}

// SAFETY: the words are atomics, and `_memory`, which is Send and Sync, keeps them in place.
unsafe impl Send for EventCount {}
// SAFETY: as above.
unsafe impl Sync for EventCount {}

impl EventCount {
    /// Creates an event count for threads of this process only.
    ///
    /// Its ringers pay a fence, so that its sleepers need not interrupt the other cores. That is
    /// right for an event count that is rung for each batch, and wrong for one that is rung for
    /// each message.
    pub fn new() -> EventCount {
        let words = Arc::new((AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(0)));
        let (asleep, rings, moved) = (NonNull::from(&words.0), NonNull::from(&words.1), NonNull::from(&words.2));
        let scope = futex::Flags::PRIVATE;
        EventCount { asleep, rings, moved, scope, event: None, barrier: Barrier::Fence, _memory: words }
    }

    /// Returns the event count of the member that owns `row`. Peers ring it through `event_count`,
    /// and through `event` when the member waits for that.
    pub(crate) fn of_member(
        row: Arc<OwnRegion>,
        event_count: Arc<SharedRegion>,
        event: Option<Arc<OwnedFd>>,
    ) -> EventCount {
        let barrier = Barrier::register();
        let asleep = NonNull::from(row.word(membership::ASLEEP));
        let (rings, moved) = (NonNull::from(event_count.half_word(RINGS)), NonNull::from(event_count.word(MOVED)));
        EventCount {
            asleep,
            rings,
            moved,
            scope: futex::Flags::empty(),
            event,
            barrier,
            _memory: Arc::new((row, event_count)),
        }
    }

    /// Announces that the caller is about to sleep. It must look for work once more after this, and
    /// then call [`wait`](Self::wait) if there is none and [`withdraw`](Self::withdraw) if there
    /// is.
    pub fn announce(&self) -> Announced {
        self.announce_by(ARMED)
    }

    /// As [`announce`](Self::announce), for a sleeper that will wait until the
    /// [eventfd](Self::event) is ready, among other descriptors. After the wait the sleeper
    /// [clears](Self::clear) the eventfd.
    ///
    /// # Panics
    /// If the event count has none.
    pub(crate) fn announce_for_event(&self) -> Announced {
        assert!(self.event.is_some(), "an event count without an eventfd");
        self.announce_by(ARMED | BY_EVENT)
    }

    /// Turns an announcement that is in force, though its sleeper was awake, into the announcement
    /// of another sleep by the same means. As with a new announcement, the caller must look for
    /// work once more.
    ///
    /// If the announcement has been in force for long enough, every ringer has seen it, so each
    /// ringer executes a full fence before it looks at `rings`. With the fence here neither side
    /// misses the other, and no barrier is needed.
    pub(crate) fn rearm(&self, announced: &mut Announced, by_event: bool) {
        announced.rings = self.arm(if by_event { ARMED | BY_EVENT } else { ARMED });
        fence(Ordering::SeqCst);
    }

    /// Disarms the event count while its sleeper is awake and its announcement is in force: ringers
    /// make no system call until the sleeper [sleeps again](Self::rearm).
    pub(crate) fn disarm(&self) {
        self.rings().fetch_and(!(ARMED | BY_EVENT), Ordering::Relaxed);
    }

    fn arm(&self, arms: u32) -> u32 {
        let armed = |rings: u32| rings & !(ARMED | BY_EVENT) | arms;
        let before = self.rings().fetch_update(Ordering::SeqCst, Ordering::Relaxed, |rings| Some(armed(rings)));
        let (Ok(before) | Err(before)) = before;
        armed(before)
    }

    fn announce_by(&self, arms: u32) -> Announced {
        let rings = self.arm(arms);
        // Release: a ringer that sees it sees `rings` armed.
        self.asleep().fetch_add(1, Ordering::SeqCst);
        self.barrier.heavy();
        Announced { rings }
    }

    /// Sleeps until the event count rings, or for at most `at_most`, and ends the announcement.
    /// Returns true if the event count rang.
    ///
    /// It may also return early without a ring; the caller looks for work in any case.
    pub fn wait(&self, announced: Announced, at_most: Duration) -> bool {
        let rung = self.wait_on(&announced, at_most);
        self.withdraw(announced);
        rung
    }

    /// As [`wait`](Self::wait), but leaves the announcement in force.
    pub(crate) fn wait_on(&self, announced: &Announced, at_most: Duration) -> bool {
        let timeout = futex::Timespec {
            tv_sec: at_most.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // Rung before, timed out, interrupted: the caller treats all three alike.
        let _ = futex::wait(self.rings(), self.scope, announced.rings, Some(&timeout));
        self.is_rung(announced)
    }

    /// Returns the descriptor that becomes ready when the event count rings, for a sleeper that has
    /// announced that it waits for the eventfd.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.as_fd())
    }

    /// Returns true if it has rung since the announcement.
    pub(crate) fn is_rung(&self, announced: &Announced) -> bool {
        self.rings().load(Ordering::Acquire) != announced.rings
    }

    /// Clears the eventfd, if there is one, so that it waits for the next ring. Its sleeper looks
    /// for work after this.
    pub(crate) fn clear(&self) {
        if let Some(event) = &self.event {
            // There may be nothing to clear.
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }

    /// Announces at this event count that the sleeper of another event count with the same `rings`
    /// is about to sleep.
    ///
    /// The caller calls it before that event count's [`announce`](Self::announce), which has the
    /// barrier for both, and ends it by [`withdraw`](Self::withdraw).
    pub(crate) fn announce_too(&self) -> Announced {
        self.asleep().fetch_add(1, Ordering::SeqCst);
        Announced { rings: 0 }
    }

    /// Ends the announcement without sleeping.
    pub fn withdraw(&self, _: Announced) {
        self.asleep().fetch_sub(1, Ordering::Release);
    }

    /// Returns the handle with which other threads ring it.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell { event_count: self.clone() }
    }

    /// Wakes all threads that sleep or are about to. Returns true if a thread was woken.
    ///
    /// The caller stores the work before it calls this.
    #[inline]
    pub fn ring(&self) -> bool {
        self.barrier.light();
        self.ring_unfenced()
    }

    #[inline]
    pub(crate) fn ring_unfenced(&self) -> bool {
        // Relaxed, because the memory is mapped read-only, which allows no stronger load; `wake`
        // has the acquire.
        self.asleep().load(Ordering::Relaxed) != 0 && self.wake()
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) -> bool {
        // Acquire, and between the store of the work and the load of `rings`, as in `rearm`.
        fence(Ordering::SeqCst);
        let rung = |rings: u32| (rings & ARMED != 0).then_some((rings | ARMED | BY_EVENT).wrapping_add(1));
        // Tried again only if a sleeper arms it anew meanwhile.
        let Ok(armed) = self.rings().fetch_update(Ordering::AcqRel, Ordering::Relaxed, rung) else {
            // Another ringer has rung since it was armed.
            return false;
        };
        match &self.event {
            // The eventfd is ready then, even if its count can't grow any further.
            Some(event) if armed & BY_EVENT != 0 => _ = rustix::io::write(event, &1u64.to_ne_bytes()),
            _ => _ = futex::wake(self.rings(), self.scope, i32::MAX as u32),
        }
        true
    }

    /// Returns true if a peer has posted words of its membership block since the last call. Loads
    /// after the call see these words.
    #[inline]
    pub(crate) fn take_moved(&self) -> bool {
        // The swap acquires what the peers have released.
        self.moved().load(Ordering::Relaxed) != 0 && self.moved().swap(0, Ordering::AcqRel) != 0
    }

    #[inline]
    fn moved(&self) -> &AtomicU64 {
        // SAFETY: `_memory` keeps it in place, and it is accessed as an atomic only.
        unsafe { self.moved.as_ref() }
    }

    #[inline]
    fn asleep(&self) -> &AtomicU64 {
        // SAFETY: `_memory` keeps it in place, and it is accessed as an atomic only.
        unsafe { self.asleep.as_ref() }
    }

    fn rings(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.rings.as_ref() }
    }
}

impl Default for EventCount {
    fn default() -> EventCount {
        EventCount::new()
    }
}

impl fmt::Debug for EventCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rings = self.rings().load(Ordering::Relaxed);
        let asleep = self.asleep().load(Ordering::Relaxed);
        f.debug_struct("EventCount")
            .field("asleep", &asleep)
            .field("rings", &rings)
            .field("barrier", &self.barrier)
            .finish()
    }
}

impl Doorbell {
    /// Returns the doorbell of the peer that owns `row`. It is only the ringer's side, because
    /// `row` can't be written.
    pub(crate) fn of_peer(
        row: Arc<PeerRegion>,
        event_count: Arc<SharedRegion>,
        event: Option<Arc<OwnedFd>>,
    ) -> Doorbell {
        let theirs =
            if event_count.word(FENCED).load(Ordering::Acquire) == 0 { Barrier::Expedited } else { Barrier::Fence };
        let barrier = Barrier::register().joined(theirs);
        let asleep = NonNull::from(row.word_to_load(membership::ASLEEP));
        let (rings, moved) = (NonNull::from(event_count.half_word(RINGS)), NonNull::from(event_count.word(MOVED)));
        let scope = futex::Flags::empty();
        Doorbell {
            event_count: EventCount {
                asleep,
                rings,
                moved,
                scope,
                event,
                barrier,
                _memory: Arc::new((row, event_count)),
            },
        }
    }

    /// As [`EventCount::ring`].
    #[inline]
    pub fn ring(&self) -> bool {
        self.event_count.ring()
    }

    /// As [`ring`](Self::ring), for a caller who has executed the barrier of
    /// [`barrier`](Self::barrier) already.
    #[inline]
    pub(crate) fn ring_unfenced(&self) -> bool {
        self.event_count.ring_unfenced()
    }

    /// Records that words of this member's membership block were posted. The caller calls it before
    /// [`ring`](Self::ring).
    pub(crate) fn mark_moved(&self) {
        // A read-modify-write, so that the swap that reads the mark of one peer acquires the stores
        // of all peers that marked before.
        self.event_count.moved().fetch_or(1, Ordering::Release);
    }

    pub(crate) fn barrier(&self) -> Barrier {
        self.event_count.barrier
    }

    /// Returns the eventfd that rings it, if it has one.
    pub(crate) fn event(&self) -> Option<&Arc<OwnedFd>> {
        self.event_count.event.as_ref()
    }
}

/// Writes into a new doorbell's region the facts that its ringers must know before they open it.
pub(crate) fn describe(event_count: &SharedRegion) {
    event_count.word(FENCED).store(u64::from(Barrier::register() == Barrier::Fence), Ordering::Release);
}

/// Creates an eventfd for an event count.
pub(crate) fn new_event() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Returns true if `fd` is an eventfd to which a write never blocks.
pub(crate) fn is_event(fd: &OwnedFd) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
    let is_event = info.is_ok_and(|info| info.lines().any(|line| line.starts_with("eventfd-count:")));
    is_event && rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Turns a doorbell into that of a member that can't make other processes execute a barrier.
#[cfg(test)]
pub(crate) fn pretend_fenced(event_count: &std::os::fd::OwnedFd) {
    let region = SharedRegion::open("test", event_count, EVENT_COUNT_BYTES).unwrap();
    region.word(FENCED).store(1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_that_does_not_sleep_is_not_woken() {
        let event_count = EventCount::new();
        assert!(!event_count.ring());
        let announced = event_count.announce();
        event_count.withdraw(announced);
        assert!(!event_count.doorbell().ring());
    }

    #[test]
    fn a_ring_between_announcement_and_sleep_is_not_lost_and_wakes_once() {
        let event_count = EventCount::new();
        let announced = event_count.announce();
        assert!(event_count.ring());
        assert!(!event_count.ring());
        assert!(event_count.wait(announced, LONG));
    }

    #[test]
    fn a_ring_is_not_lost_to_who_arms_after_it() {
        let event_count = EventCount::new();
        let first = event_count.announce();
        assert!(event_count.ring());
        let second = event_count.announce();
        assert!(event_count.wait(first, LONG));
        assert!(event_count.ring());
        assert!(event_count.wait(second, LONG));
        assert!(!event_count.ring());
    }

    #[test]
    fn a_sleep_ends_at_its_bound() {
        let event_count = EventCount::new();
        let start = Instant::now();
        let mut rung = false;
        while start.elapsed() < Duration::from_millis(20) {
            rung |= event_count.wait(event_count.announce(), Duration::from_millis(20));
        }
        assert!(!rung);
    }

    #[test]
    fn each_sleep_ends_by_the_means_that_it_announced() {
        let row = Arc::new(OwnRegion::on_heap("test", 4096, 4096).unwrap());
        let shared = Arc::new(SharedRegion::create("test", EVENT_COUNT_BYTES).unwrap().0);
        let event_count = EventCount::of_member(row.clone(), shared, Some(Arc::new(new_event().unwrap())));
        let wait = |event_count: &EventCount, at_most: Duration| {
            let timeout = futex::Timespec::try_from(at_most).unwrap();
            poll(&mut [PollFd::new(&event_count.event().unwrap(), PollFlags::IN)], Some(&timeout)).unwrap() == 1
        };
        assert!(!event_count.ring());
        for _ in 0..3 {
            let announced = event_count.announce_for_event();
            assert_eq!(row.load(membership::ASLEEP), 1);
            assert!(!event_count.is_rung(&announced) && !wait(&event_count, Duration::ZERO));
            assert!(event_count.doorbell().ring() && !event_count.ring());
            assert!(event_count.is_rung(&announced) && wait(&event_count, LONG));
            event_count.clear();
            assert!(!wait(&event_count, Duration::ZERO));
            event_count.withdraw(announced);
            assert!(!event_count.ring());
            // Armed for the eventfd, and not rung, and then for the futex.
            event_count.withdraw(event_count.announce_for_event());
            std::thread::scope(|scope| {
                let announced = event_count.announce();
                scope.spawn(|| event_count.ring());
                assert!(event_count.wait(announced, LONG));
            });
            assert!(!wait(&event_count, Duration::ZERO));
            event_count.withdraw(event_count.announce());
        }
        // A ring while the sleeper is on its way is not missed.
        std::thread::scope(|scope| {
            let announced = event_count.announce_for_event();
            scope.spawn(|| event_count.ring());
            assert!(wait(&event_count, LONG));
            event_count.withdraw(announced);
        });
        assert_eq!(row.load(membership::ASLEEP), 0);
    }

    #[test]
    fn one_ring_wakes_all() {
        let event_count = EventCount::new();
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let announced = event_count.announce();
                        if done.load(Ordering::Acquire) == 1 {
                            return event_count.withdraw(announced);
                        }
                        event_count.wait(announced, LONG);
                    }
                });
            }
            while event_count.asleep().load(Ordering::Relaxed) < 4 {
                std::thread::yield_now();
            }
            done.store(1, Ordering::Release);
            assert!(event_count.ring());
        });
        assert_eq!(event_count.asleep().load(Ordering::Relaxed), 0);
    }
}
