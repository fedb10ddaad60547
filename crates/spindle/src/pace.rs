//! When the polling thread looks again, gives way, or sleeps.
//!
//! Looking again at once is fastest while every member that is awake has a core of its own. With more of them than cores,
//! each turn spent looking is taken from somebody who has work, so the thread gives way at once and soon sleeps.
use std::thread;
use std::time::{Duration, Instant};

/// What to do after a poll that found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    /// Poll again.
    Look,
    /// Announce sleep, poll once more, and sleep.
    Sleep,
}

/// The pace of one polling thread.
#[derive(Debug)]
pub(crate) struct Pace {
    spin_for: Duration,
    cores: usize,
    looks: u32,
    since: Option<Instant>,
}

/// Polls between two looks at the clock.
const LOOKS: u32 = 32;
/// Polls before giving way when there are more awake members than cores.
const CROWDED_LOOKS: u32 = 4;

impl Pace {
    pub(crate) fn new(spin_for: Duration) -> Pace {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        Pace { spin_for, cores, looks: 0, since: None }
    }

    /// The last poll found something.
    pub(crate) fn worked(&mut self) {
        self.looks = 0;
        self.since = None;
    }

    /// The last poll found nothing; `awake` counts the members of this machine that don't sleep, this one included.
    pub(crate) fn idle(&mut self, awake: impl FnOnce() -> usize) -> Idle {
        self.looks += 1;
        std::hint::spin_loop();
        if !self.looks.is_multiple_of(CROWDED_LOOKS) {
            return Idle::Look;
        }
        let crowded = awake() > self.cores;
        if crowded {
            return Idle::Sleep;
        }
        if self.looks.is_multiple_of(LOOKS) {
            thread::yield_now();
            if self.since.get_or_insert_with(Instant::now).elapsed() >= self.spin_for {
                return Idle::Sleep;
            }
        }
        Idle::Look
    }
}
