//! Sleeping without missing work, and waking sleepers only.
//!
//! A [`Bell`] stands on two words: `asleep`, how many sleep or are about to (written by sleepers), and `rings`, the futex
//! word (written by both). For a member, `asleep` is a word of its own row and `rings` a word that its peers may write; for
//! application threads both are on the heap. The steps are the same:
//!
//! ```text
//! sleeper: arm rings (make it odd) · asleep += 1 · heavy barrier · look for work once more · sleep while rings is as armed
//! ringer:  store work · light barrier · if asleep and rings is odd: make it even and greater, wake all
//! ```
//!
//! Of many ringers one finds `rings` odd and makes the system call. A sleeper whose `rings` has changed does not fall asleep,
//! even if another has armed it again since. That no ringer misses the sleeper is the argument of [`crate::barrier`], which
//! covers every load that follows the ringer's barrier, so that of `rings` as well.
//!
//! A member that also waits for sockets can't sleep on a futex. Its bell has an eventfd beside `rings`: who would wake the futex
//! writes there, and the sleeper waits for that among its descriptors. The eventfd stays ready until the sleeper clears it, which it
//! does when it is awake and will look for work again. So no ring is lost, and one whose writer was slow makes a later sleep end
//! early, at worst.
use crate::barrier::Barrier;
use crate::region::{OwnRegion, PeerRegion, SharedRegion};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::futex;
use spindle_core::layout::membership;
use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Bytes of a doorbell's region.
pub(crate) const BELL_BYTES: u64 = 128;
/// Offset of the futex word in it.
const RINGS: u64 = 0;
/// Offset of the word that is 1 if its sleeper can't make others execute a barrier. On a line of its own, as it never changes.
const FENCED: u64 = 64;

/// Where some thread sleeps. Clones are the same bell.
#[derive(Clone)]
pub struct Bell {
    asleep: NonNull<AtomicU64>,
    rings: NonNull<AtomicU32>,
    means: Means,
    barrier: Barrier,
    /// What the two words stand in.
    _memory: Arc<dyn Any + Send + Sync>,
}

/// How the sleeper is woken.
#[derive(Clone)]
enum Means {
    /// It sleeps on `rings`.
    Futex(futex::Flags),
    /// It waits for this eventfd, among other descriptors.
    Event(Arc<OwnedFd>),
}

/// What wakes one member that waits for descriptors, in every view that it is in.
#[derive(Clone, Debug)]
pub struct EventBell {
    rings: Arc<AtomicU32>,
    event: Arc<OwnedFd>,
}

/// The ringer's side of a [`Bell`]. Clones are the same bell.
#[derive(Clone, Debug)]
pub struct Doorbell {
    bell: Bell,
}

/// An announcement that one is about to sleep; ended by [`Bell::wait`] or [`Bell::withdraw`].
#[derive(Debug)]
#[must_use = "until it is ended everybody rings"]
pub struct Announced {
    rings: u32,
}

// SAFETY: the words are atomics, and `_memory`, which is Send and Sync, keeps them in place.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Bell {
    /// A bell for threads of this process only. Its ringers pay a fence, so that its sleepers need not interrupt the other
    /// cores: right where it is rung for batches, and wrong where for each message.
    pub fn new() -> Bell {
        let words = Arc::new((AtomicU64::new(0), AtomicU32::new(0)));
        let (asleep, rings) = (NonNull::from(&words.0), NonNull::from(&words.1));
        let means = Means::Futex(futex::Flags::PRIVATE);
        Bell { asleep, rings, means, barrier: Barrier::Fence, _memory: words }
    }

    /// The bell of the member that owns `row`; peers ring it through `bell`.
    pub(crate) fn of_member(row: Arc<OwnRegion>, bell: Arc<SharedRegion>) -> Bell {
        let barrier = Barrier::register();
        let asleep = NonNull::from(row.word(membership::ASLEEP));
        let rings = NonNull::from(bell.half_word(RINGS));
        let means = Means::Futex(futex::Flags::empty());
        Bell { asleep, rings, means, barrier, _memory: Arc::new((row, bell)) }
    }

    /// The bell of the member that owns `row` and waits for descriptors. Only threads of this process ring it.
    pub(crate) fn of_waiter(row: Arc<OwnRegion>, bell: &EventBell) -> Bell {
        let barrier = Barrier::register();
        let asleep = NonNull::from(row.word(membership::ASLEEP));
        let rings = NonNull::from(&*bell.rings);
        let means = Means::Event(bell.event.clone());
        Bell { asleep, rings, means, barrier, _memory: Arc::new((row, bell.rings.clone())) }
    }

    /// Announces that the caller is about to sleep. It must look for work once more after this, and then call
    /// [`wait`](Self::wait) if there is none and [`withdraw`](Self::withdraw) if there is.
    pub fn announce(&self) -> Announced {
        let rings = self.rings().fetch_or(1, Ordering::SeqCst) | 1;
        // Release: who sees it sees `rings` armed.
        self.asleep().fetch_add(1, Ordering::SeqCst);
        self.barrier.heavy();
        Announced { rings }
    }

    /// Sleeps until the bell rings, or `at_most` that long, and ends the announcement. Says whether it rang. A return that
    /// was not rung and came early is possible: the caller looks for work anyway.
    pub fn wait(&self, announced: Announced, at_most: Duration) -> bool {
        let timeout = futex::Timespec {
            tv_sec: at_most.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // Rung before, timed out, interrupted: all the same to the caller.
        match &self.means {
            Means::Futex(scope) => _ = futex::wait(self.rings(), *scope, announced.rings, Some(&timeout)),
            Means::Event(event) => _ = poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&timeout)),
        }
        let rung = self.is_rung(&announced);
        self.clear();
        self.withdraw(announced);
        rung
    }

    /// Whether it has rung since the announcement.
    pub(crate) fn is_rung(&self, announced: &Announced) -> bool {
        self.rings().load(Ordering::Acquire) != announced.rings
    }

    /// Makes the eventfd, if there is one, wait for the next ring. Its sleeper looks for work after this.
    pub(crate) fn clear(&self) {
        if let Means::Event(event) = &self.means {
            // There may have been nothing to clear.
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }

    /// Announces at this bell that the sleeper of another is about to sleep, whose `rings` are the same: to be called before
    /// that one's [`announce`](Self::announce), which has the barrier for both, and ended by [`withdraw`](Self::withdraw).
    pub(crate) fn announce_too(&self) -> Announced {
        self.asleep().fetch_add(1, Ordering::SeqCst);
        Announced { rings: 0 }
    }

    /// Ends the announcement without sleeping.
    pub fn withdraw(&self, _: Announced) {
        self.asleep().fetch_sub(1, Ordering::Release);
    }

    /// The handle for those who ring it.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell { bell: self.clone() }
    }

    /// Wakes whoever sleeps or is about to: to be called after storing what it should find. Says whether somebody was woken.
    #[inline]
    pub fn ring(&self) -> bool {
        self.barrier.light();
        self.ring_unfenced()
    }

    #[inline]
    pub(crate) fn ring_unfenced(&self) -> bool {
        // Relaxed, as that is what memory mapped read-only allows; `wake` has the acquire.
        self.asleep().load(Ordering::Relaxed) != 0 && self.wake()
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) -> bool {
        fence(Ordering::Acquire);
        let rings = self.rings().load(Ordering::Relaxed);
        let first =
            |armed| self.rings().compare_exchange(armed, armed.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
        if rings & 1 == 0 || first(rings).is_err() {
            // Somebody else has rung since it was armed.
            return false;
        }
        match &self.means {
            Means::Futex(scope) => _ = futex::wake(self.rings(), *scope, i32::MAX as u32),
            // It is ready then, even if it can count no further.
            Means::Event(event) => _ = rustix::io::write(event, &1u64.to_ne_bytes()),
        }
        true
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

impl EventBell {
    /// A new one.
    ///
    /// # Errors
    /// When the process has too many descriptors.
    pub fn create() -> io::Result<EventBell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventBell { rings: Arc::default(), event: Arc::new(event) })
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Default for Bell {
    fn default() -> Bell {
        Bell::new()
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rings = self.rings().load(Ordering::Relaxed);
        let asleep = self.asleep().load(Ordering::Relaxed);
        f.debug_struct("Bell").field("asleep", &asleep).field("rings", &rings).field("barrier", &self.barrier).finish()
    }
}

impl Doorbell {
    /// The doorbell of the peer that owns `row`. Only the ringer's side, because `row` can't be written.
    pub(crate) fn of_peer(row: Arc<PeerRegion>, bell: Arc<SharedRegion>) -> Doorbell {
        let theirs = if bell.word(FENCED).load(Ordering::Acquire) == 0 { Barrier::Expedited } else { Barrier::Fence };
        let barrier = Barrier::register().joined(theirs);
        let asleep = NonNull::from(row.word_to_load(membership::ASLEEP));
        let rings = NonNull::from(bell.half_word(RINGS));
        let means = Means::Futex(futex::Flags::empty());
        Doorbell { bell: Bell { asleep, rings, means, barrier, _memory: Arc::new((row, bell)) } }
    }

    /// As [`Bell::ring`].
    #[inline]
    pub fn ring(&self) -> bool {
        self.bell.ring()
    }

    /// As [`ring`](Self::ring), for a caller who has executed the barrier of [`barrier`](Self::barrier) already.
    #[inline]
    pub(crate) fn ring_unfenced(&self) -> bool {
        self.bell.ring_unfenced()
    }

    pub(crate) fn barrier(&self) -> Barrier {
        self.bell.barrier
    }
}

/// Writes into a new doorbell's region what its ringers must know before they open it.
pub(crate) fn describe(bell: &SharedRegion) {
    bell.word(FENCED).store(u64::from(Barrier::register() == Barrier::Fence), Ordering::Release);
}

/// Makes a doorbell that of a member that can't make others execute a barrier.
#[cfg(test)]
pub(crate) fn pretend_fenced(bell: &std::os::fd::OwnedFd) {
    let region = SharedRegion::open("test", bell, BELL_BYTES).unwrap();
    region.word(FENCED).store(1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn nobody_is_woken_who_does_not_sleep() {
        let bell = Bell::new();
        assert!(!bell.ring());
        let announced = bell.announce();
        bell.withdraw(announced);
        assert!(!bell.doorbell().ring());
    }

    #[test]
    fn a_ring_between_announcement_and_sleep_is_not_lost_and_wakes_once() {
        let bell = Bell::new();
        let announced = bell.announce();
        assert!(bell.ring());
        assert!(!bell.ring());
        assert!(bell.wait(announced, LONG));
    }

    #[test]
    fn a_ring_is_not_lost_to_who_arms_after_it() {
        let bell = Bell::new();
        let first = bell.announce();
        assert!(bell.ring());
        let second = bell.announce();
        assert!(bell.wait(first, LONG));
        assert!(bell.ring());
        assert!(bell.wait(second, LONG));
        assert!(!bell.ring());
    }

    #[test]
    fn a_sleep_ends_at_its_bound() {
        let bell = Bell::new();
        let start = Instant::now();
        let mut rung = false;
        while start.elapsed() < Duration::from_millis(20) {
            rung |= bell.wait(bell.announce(), Duration::from_millis(20));
        }
        assert!(!rung);
    }

    #[test]
    fn an_eventfd_wakes_as_a_futex_does() {
        let event = EventBell::create().unwrap();
        let row = Arc::new(OwnRegion::on_heap("test", 4096, 4096).unwrap());
        let bell = Bell::of_waiter(row.clone(), &event);
        let ready = || poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&futex::Timespec::default())).unwrap() == 1;
        assert!(!bell.ring());
        for _ in 0..3 {
            let announced = bell.announce();
            assert_eq!(row.load(membership::ASLEEP), 1);
            assert!(!bell.is_rung(&announced) && !ready());
            assert!(bell.doorbell().ring() && !bell.ring());
            assert!(bell.is_rung(&announced) && ready());
            assert!(bell.wait(announced, LONG));
            assert!(!ready() && !bell.ring());
        }
        assert!(!bell.wait(bell.announce(), Duration::from_millis(1)));
        // Who rings while the sleeper is on its way is heard.
        std::thread::scope(|scope| {
            let announced = bell.announce();
            scope.spawn(|| bell.ring());
            assert!(bell.wait(announced, LONG));
        });
        assert_eq!(row.load(membership::ASLEEP), 0);
    }

    #[test]
    fn one_ring_wakes_all() {
        let bell = Bell::new();
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let announced = bell.announce();
                        if done.load(Ordering::Acquire) == 1 {
                            return bell.withdraw(announced);
                        }
                        bell.wait(announced, LONG);
                    }
                });
            }
            while bell.asleep().load(Ordering::Relaxed) < 4 {
                std::thread::yield_now();
            }
            done.store(1, Ordering::Release);
            assert!(bell.ring());
        });
        assert_eq!(bell.asleep().load(Ordering::Relaxed), 0);
    }
}
