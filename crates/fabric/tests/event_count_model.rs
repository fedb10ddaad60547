//! The steps of `event_count.rs` and `barrier.rs` under loom: a sleeper never misses a ringer that
//! stores work and then rings. `RUSTFLAGS='--cfg loom' cargo test --release -p spindle-fabric
//! --test event_count_model`.
//!
//! It is a model, step by step, and not the code itself. The words of an event count are in memory
//! of other processes and its sleep is the kernel's, and loom has neither. The model replaces these
//! parts:
//! - both barriers of a first sleep are SeqCst fences, as with `Barrier::Fence`; `barrier.rs`
//!   argues that `membarrier` guarantees as much;
//! - the futex is a lock and a condition variable: the kernel, too, compares the word and queues
//!   the sleeper under one lock;
//! - the eventfd is a flag under that lock, which stays set until the sleeper clears it;
//! - a sleep has no bound here, so that a lost wake-up is a deadlock, which loom reports.
//!
//! A change of the steps there must be made here as well.
#![cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const ARMED: u32 = 1;
const BY_EVENT: u32 = 2;

/// The means by which a sleeper sleeps, in turn.
type Means = &'static [u32];
const FUTEX: Means = &[ARMED];
const EVENT: Means = &[ARMED | BY_EVENT];
const BOTH: Means = &[ARMED | BY_EVENT, ARMED];

struct EventCount {
    asleep: AtomicU64,
    rings: AtomicU32,
    /// True if the eventfd is ready.
    queue: Mutex<bool>,
    woken: Condvar,
    /// If false, there are no fences, and the model must fail.
    fenced: bool,
}

impl EventCount {
    fn new(fenced: bool) -> EventCount {
        EventCount {
            asleep: AtomicU64::new(0),
            rings: AtomicU32::new(0),
            queue: Mutex::new(false),
            woken: Condvar::new(),
            fenced,
        }
    }

    fn barrier(&self) {
        if self.fenced {
            fence(Ordering::SeqCst);
        }
    }

    fn announce(&self, arms: u32) -> u32 {
        let armed = |rings: u32| rings & !(ARMED | BY_EVENT) | arms;
        let before = self.rings.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |rings| Some(armed(rings)));
        self.asleep.fetch_add(1, Ordering::SeqCst);
        self.barrier();
        armed(before.unwrap())
    }

    fn wait(&self, announced: u32) {
        self.wait_on(announced);
        self.withdraw();
    }

    fn wait_on(&self, announced: u32) {
        if announced & BY_EVENT != 0 {
            // As a fabric that waits for descriptors does.
            let rung = self.rings.load(Ordering::Acquire) != announced;
            let mut ready = self.queue.lock().unwrap();
            while !rung && !*ready {
                ready = self.woken.wait(ready).unwrap();
            }
            *ready = false;
            return;
        }
        let queue = self.queue.lock().unwrap();
        // The kernel's load is ordered by its own lock and barriers.
        if self.rings.load(Ordering::SeqCst) == announced {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn withdraw(&self) {
        self.asleep.fetch_sub(1, Ordering::Release);
    }

    /// Starts another sleep under an announcement that is in force.
    fn rearm(&self, arms: u32) -> u32 {
        let armed = |rings: u32| rings & !(ARMED | BY_EVENT) | arms;
        let before = self.rings.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |rings| Some(armed(rings)));
        self.barrier();
        armed(before.unwrap())
    }

    /// Disarms the event count while the sleeper is awake and its announcement is in force.
    fn disarm(&self) {
        self.rings.fetch_and(!(ARMED | BY_EVENT), Ordering::Relaxed);
    }

    fn ring(&self) {
        self.barrier();
        if self.asleep.load(Ordering::Relaxed) == 0 {
            return;
        }
        fence(Ordering::Acquire);
        self.wake();
    }

    /// Rings without a barrier: the ringer has seen the announcement, which has been in force for
    /// long.
    fn ring_standing(&self) {
        assert_ne!(self.asleep.load(Ordering::Relaxed), 0);
        match self.fenced {
            true => fence(Ordering::SeqCst),
            false => fence(Ordering::Acquire),
        }
        self.wake();
    }

    fn wake(&self) {
        let rung = |rings: u32| (rings & ARMED != 0).then_some((rings | ARMED | BY_EVENT).wrapping_add(1));
        if let Ok(armed) = self.rings.fetch_update(Ordering::AcqRel, Ordering::Relaxed, rung) {
            let mut ready = self.queue.lock().unwrap();
            *ready |= armed & BY_EVENT != 0;
            self.woken.notify_all();
        }
    }
}

/// The work of which each ringer stores a piece.
type Work = Arc<Vec<AtomicU64>>;

fn pieces(ringers: usize) -> Work {
    Arc::new((0..ringers).map(|_| AtomicU64::new(0)).collect())
}

fn is_there(work: &Work) -> bool {
    work.iter().all(|piece| piece.load(Ordering::Acquire) == 1)
}

/// Starts one thread for each piece, which stores it and then rings.
fn ringers_of(event_count: &Arc<EventCount>, work: &Work, ring: fn(&EventCount)) -> Vec<thread::JoinHandle<()>> {
    let ringer = |i: usize| {
        let (event_count, work) = (Arc::clone(event_count), Arc::clone(work));
        thread::spawn(move || {
            work[i].store(1, Ordering::Release);
            ring(&event_count);
        })
    };
    (0..work.len()).map(ringer).collect()
}

/// Plays every interleaving with this many preemptions.
fn explore(preemptions: usize, play: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(play);
}

/// Sleepers wait until all work is there, of which each ringer stores one piece. No other thread
/// wakes them.
fn no_thread_sleeps_on(means: Means, sleepers: usize, ringers: usize, preemptions: usize, fenced: bool) {
    explore(preemptions, move || {
        let event_count = Arc::new(EventCount::new(fenced));
        let work = pieces(ringers);
        let sleep = |event_count: Arc<EventCount>, work: Work| {
            move || {
                for arms in means.iter().cycle() {
                    let announced = event_count.announce(*arms);
                    if is_there(&work) {
                        return event_count.withdraw();
                    }
                    event_count.wait(announced);
                }
            }
        };
        let others: Vec<_> =
            (1..sleepers).map(|_| thread::spawn(sleep(Arc::clone(&event_count), Arc::clone(&work)))).collect();
        let ringers = ringers_of(&event_count, &work, EventCount::ring);
        sleep(Arc::clone(&event_count), Arc::clone(&work))();
        others.into_iter().chain(ringers).for_each(|thread| thread.join().unwrap());
        assert_eq!(event_count.asleep.load(Ordering::Relaxed), 0);
    });
}

/// As above, for one sleeper whose announcement is in force all the time, and was seen by all
/// ringers.
fn no_sleeper_is_missed_while_an_announcement_stands(means: Means, ringers: usize, preemptions: usize, fenced: bool) {
    explore(preemptions, move || {
        let event_count = Arc::new(EventCount::new(fenced));
        let work = pieces(ringers);
        event_count.asleep.store(1, Ordering::SeqCst);
        let ringers = ringers_of(&event_count, &work, EventCount::ring_standing);
        for arms in means.iter().cycle() {
            let announced = event_count.rearm(*arms);
            if is_there(&work) {
                break;
            }
            event_count.wait_on(announced);
            event_count.disarm();
        }
        ringers.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_ringer_is_never_missed_while_an_announcement_stands() {
    no_sleeper_is_missed_while_an_announcement_stands(FUTEX, 1, 5, true);
    no_sleeper_is_missed_while_an_announcement_stands(FUTEX, 2, 3, true);
    no_sleeper_is_missed_while_an_announcement_stands(EVENT, 2, 3, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_wake_up_is_lost_while_an_announcement_stands() {
    no_sleeper_is_missed_while_an_announcement_stands(FUTEX, 1, 5, false);
}

#[test]
fn one_ringer_is_never_missed() {
    no_thread_sleeps_on(FUTEX, 1, 1, 5, true);
}

#[test]
fn two_ringers_are_never_missed() {
    no_thread_sleeps_on(FUTEX, 1, 2, 3, true);
}

#[test]
fn two_sleepers_are_both_woken() {
    no_thread_sleeps_on(FUTEX, 2, 1, 3, true);
}

#[test]
fn a_ringer_of_an_eventfd_is_never_missed() {
    no_thread_sleeps_on(EVENT, 1, 1, 5, true);
    no_thread_sleeps_on(EVENT, 1, 2, 3, true);
}

#[test]
fn a_ringer_of_a_sleeper_that_changes_its_means_is_never_missed() {
    no_thread_sleeps_on(BOTH, 1, 1, 5, true);
    no_thread_sleeps_on(BOTH, 1, 2, 3, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_barriers_a_wake_up_is_lost() {
    no_thread_sleeps_on(FUTEX, 1, 1, 5, false);
}
