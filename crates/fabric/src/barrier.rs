//! The barrier between "I go to sleep" and "there is work": free for those who ring, paid by the one who sleeps.
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
//! No execution may miss both, that is, R without S and L without A. Release and acquire do not forbid it: a store may wait
//! in the ringer's store buffer while its later load is done. With full fences on both sides one of them sees the other.
//! A fence a message is what we don't want to pay, so the sleeper makes the ringers' processors execute theirs:
//! `membarrier(GLOBAL_EXPEDITED)` returns only after every running thread of every registered process has executed a full
//! barrier at some point during the call (threads that don't run passed one when they were switched out), and is itself a
//! full barrier for its caller. Call that point in the ringer's program P; the compiler fence in `light` keeps L behind S.
//! - S before P: the barrier makes S visible before `heavy` returns, so R sees it.
//! - P before S, hence before L: A was visible before `heavy` began and so before P, so L sees it.
//!
//! The rule needs the *ringer's process* registered before the sleeper's `heavy`, and the *sleeper* able to call it:
//! - [`Barrier::register`] runs when a fabric or bell is made, before anything can ring through it. A process that can't
//!   register uses a full fence as its `light`; against a sleeper that uses `heavy` that is sufficient too.
//! - A sleeper that can't (a seccomp filter, say) says so beside its doorbell, and who opens that doorbell takes
//!   [`Barrier::Fence`] for it ([`Barrier::joined`]). So members may differ, whatever the reason.
//!
//! Every sleep is bounded all the same; a barrier that failed would cost time, not progress.
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// How store-then-load is kept in order between ringers and sleepers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// The sleeper pays, by `membarrier`.
    Expedited,
    /// Both pay a full fence.
    Fence,
}

impl Barrier {
    /// Registers this process, the first time, and says what it can do. May take some milliseconds then.
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

    /// What a ringer of `self` must use for a sleeper of `other`.
    pub fn joined(self, other: Barrier) -> Barrier {
        if self == other { self } else { Barrier::Fence }
    }

    /// The ringer's side: between storing work and looking at the flag.
    #[inline]
    pub fn light(self) {
        match self {
            Barrier::Expedited => compiler_fence(Ordering::SeqCst),
            Barrier::Fence => fence(Ordering::SeqCst),
        }
    }

    /// The sleeper's side: between raising the flag and looking for work.
    pub fn heavy(self) {
        fence(Ordering::SeqCst);
        if self == Barrier::Expedited {
            // It worked at registration. Were it forbidden since, the bound of the sleep would still hold.
            let _ = membarrier(MembarrierCommand::GlobalExpedited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier as Meeting;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    fn nobody_misses_both(barrier: Barrier) {
        let rounds = 3_000;
        let (flag, work) = (AtomicU64::new(0), AtomicU64::new(0));
        let meeting = Meeting::new(2);
        std::thread::scope(|scope| {
            let ringer = scope.spawn(|| {
                let mut saw = Vec::new();
                for round in 1..=rounds {
                    meeting.wait();
                    work.store(round, Relaxed);
                    barrier.light();
                    saw.push(flag.load(Relaxed) == round);
                }
                saw
            });
            let mut saw = Vec::new();
            for round in 1..=rounds {
                meeting.wait();
                flag.store(round, Relaxed);
                barrier.heavy();
                saw.push(work.load(Relaxed) == round);
            }
            let ringer = ringer.join().unwrap();
            assert!(saw.iter().zip(&ringer).all(|(sleeper, ringer)| *sleeper || *ringer));
        });
    }

    #[test]
    fn nobody_misses_both_with_fences() {
        nobody_misses_both(Barrier::Fence);
    }

    #[test]
    fn nobody_misses_both_with_what_this_kernel_has() {
        nobody_misses_both(Barrier::register());
    }

    #[test]
    fn one_who_fences_makes_both_fence() {
        assert_eq!(Barrier::Expedited.joined(Barrier::Expedited), Barrier::Expedited);
        assert_eq!(Barrier::Expedited.joined(Barrier::Fence), Barrier::Fence);
        assert_eq!(Barrier::Fence.joined(Barrier::Expedited), Barrier::Fence);
    }
}
