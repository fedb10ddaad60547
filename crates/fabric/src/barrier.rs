//! The barrier between "I go to sleep" and "there is work": free for ringers, paid by the sleeper.
//!
//! Sleeper and ringer each store and then load what the other stored (Dekker's pattern):
//!
//! ```text
//! sleeper                     ringer
//! A: asleep := 1              S: work := something
//!    heavy()                     light()
//! R: look for work            L: look at asleep
//! ```
//!
//! No execution may miss both, that is, R without S and L without A. Release and acquire do not
//! forbid it: a store may wait in the ringer's store buffer while the ringer's later load is done.
//! With full fences on both sides, one side sees the other. A fence for each message is too
//! expensive, so the sleeper makes the ringers' processors execute theirs.
//! `membarrier(GLOBAL_EXPEDITED)` returns only after every running thread of every registered
//! process has executed a full barrier at some point during the call. (Threads that don't run
//! passed a barrier when they were switched out.) It is itself a full barrier for its caller. Call
//! that point in the ringer's program P; the compiler fence in `light` keeps L behind S.
//! - S before P: the barrier makes S visible before `heavy` returns, so R sees it.
//! - P before S, hence before L: A was visible before `heavy` began and so before P, so L sees it.
//!
//! The rule requires that the *ringer's process* is registered before the sleeper's `heavy`, and
//! that the *sleeper* is able to call it:
//! - [`Barrier::register`] runs when a fabric is made, before anything can ring through it. A
//!   process that can't register uses a full fence as its `light`; against a sleeper that uses
//!   `heavy` that is sufficient too.
//! - A sleeper that can't call it (because of a seccomp filter, for example) says so beside its
//!   doorbell. A process that opens that doorbell takes [`Barrier::Fence`] for it
//!   ([`Barrier::joined`]). So members may differ, whatever the reason.
//!
//! Linux does not always keep its guarantee (seen on 6.18, track record 82). A thread that ends
//! clears the mark of its registered process on its processor (`exit_mm`). When another thread of
//! the same process runs there next, the mark is not set again, because `membarrier_switch_mm`
//! finds the same memory as before. Until some other process has run on that processor,
//! `membarrier` skips the processor, and no point P exists in the program of its ringers. On a
//! dedicated processor that may be for ever. Then one in some hundreds to thousands of the rings in
//! the moment of an announcement is missed.
//!
//! So a sleeper [looks again](crate::mesh) a millisecond after an announcement, which is still in
//! force when the sleep until then has run out. By then both A and S are visible, whichever
//! barriers were not executed, because no store stays in its buffer for so long. Either the sleeper
//! that looks then sees S, or L sees A. No later sleep under the same announcement can miss
//! anything for want of a barrier.
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// The means that keeps store-then-load in order between ringers and sleepers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// The sleeper pays, by `membarrier`.
    Expedited,
    /// Both pay a full fence.
    Fence,
}

impl Barrier {
    /// Registers this process, at the first call, and returns the barrier that it can use. The
    /// first call may take some milliseconds.
    pub fn register() -> Barrier {
        static OUTCOME: OnceLock<Barrier> = OnceLock::new();
        *OUTCOME.get_or_init(|| {
            let needed = MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED;
            let works = membarrier_query().contains(needed)
                && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
                && membarrier(MembarrierCommand::GlobalExpedited).is_ok();
            if works { Barrier::Expedited } else { Barrier::Fence }
        })
    }

    /// Returns the barrier that a ringer of `self` must use for a sleeper of `other`.
    pub fn joined(self, other: Barrier) -> Barrier {
        if self == other { self } else { Barrier::Fence }
    }

    /// The ringer's side: called between storing work and looking at the flag.
    #[inline]
    pub fn light(self) {
        match self {
            Barrier::Expedited => compiler_fence(Ordering::SeqCst),
            Barrier::Fence => fence(Ordering::SeqCst),
        }
    }

    /// The sleeper's side: called between raising the flag and looking for work.
    pub fn heavy(self) {
        fence(Ordering::SeqCst);
        if self == Barrier::Expedited {
            // It worked at registration. If it has been forbidden since, the bound of the sleep
            // still holds.
            let _ = membarrier(MembarrierCommand::GlobalExpedited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// Each word has cache lines of its own, so that a store has to fetch its line and waits for it
    /// in the store buffer.
    #[repr(align(128))]
    struct Line(AtomicU64);

    /// Runs two sides that store their own word and load the other's, again and again, started
    /// together with a changing offset. Returns the number of rounds in which each missed the
    /// other's store, with a barrier or without.
    fn missed_by_both(barrier: Option<Barrier>, rounds: u64) -> usize {
        let [flag, work, ready_sleeper, ready_ringer] = std::array::from_fn(|_| Line(AtomicU64::new(0)));
        let meet = |mine: &Line, other: &Line, round: u64| {
            mine.0.store(round, Ordering::Release);
            let start = Instant::now();
            for spins in 1u64.. {
                if other.0.load(Ordering::Acquire) >= round {
                    return;
                }
                spin_loop();
                if spins.is_multiple_of(1 << 10) {
                    assert!(start.elapsed() < Duration::from_secs(60), "the other side is gone");
                    std::thread::yield_now();
                }
            }
        };
        let side = |mine: &Line, other: &Line, meet: &dyn Fn(u64), barrier: &dyn Fn(), delay: &dyn Fn(u64) -> u64| {
            let round = |round| {
                meet(round);
                (0..delay(round)).for_each(|_| spin_loop());
                mine.0.store(round, Relaxed);
                barrier();
                other.0.load(Relaxed) < round
            };
            (1..=rounds).map(round).collect::<Vec<bool>>()
        };
        std::thread::scope(|scope| {
            let ringer = scope.spawn(|| {
                let light = || barrier.map_or_else(|| compiler_fence(Ordering::SeqCst), Barrier::light);
                side(&work, &flag, &|n| meet(&ready_ringer, &ready_sleeper, n), &light, &|n| n / 8 % 8)
            });
            let heavy = || barrier.map_or_else(|| compiler_fence(Ordering::SeqCst), Barrier::heavy);
            let sleeper = side(&flag, &work, &|n| meet(&ready_sleeper, &ready_ringer, n), &heavy, &|n| n % 8);
            let ringer = ringer.join().unwrap();
            sleeper.iter().zip(&ringer).filter(|(sleeper, ringer)| **sleeper && **ringer).count()
        })
    }

    #[test]
    fn with_fences_one_side_sees_the_other() {
        assert_eq!(missed_by_both(Some(Barrier::Fence), 20_000), 0);
    }

    /// Threads of other tests end meanwhile, so Linux lets a few rounds pass. The number without a
    /// barrier depends on how much else the cores have to do, so the two take turns.
    #[test]
    fn hardly_anybody_misses_both_with_what_this_kernel_has() {
        let barrier = Barrier::register();
        let (mut with, mut without) = (0, 0);
        for _ in 0..20 {
            with += missed_by_both(Some(barrier), 20_000);
            without += missed_by_both(None, 20_000);
            if without >= 500 {
                break;
            }
        }
        let missed = format!("missed by both: {with} with {barrier:?}, {without} without a barrier");
        println!("{missed}");
        // Otherwise the result says nothing: on a busy machine, for example, or with one core.
        assert!(without < 100 || 5 * with <= without, "{missed}");
    }

    #[test]
    fn one_who_fences_makes_both_fence() {
        assert_eq!(Barrier::Expedited.joined(Barrier::Expedited), Barrier::Expedited);
        assert_eq!(Barrier::Expedited.joined(Barrier::Fence), Barrier::Fence);
        assert_eq!(Barrier::Fence.joined(Barrier::Expedited), Barrier::Fence);
    }
}
