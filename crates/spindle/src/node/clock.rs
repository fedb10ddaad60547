//! The engines' clock: precise enough for them, and read seldom.
use spindle_core::Time;
use spindle_fabric::CoarseClock;
use std::time::{Duration, Instant};

/// The number of idle polls for which the clock is not read.
const POLLS_PER_LOOK: u32 = 64;

#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    pub(super) now: Time,
    polls: u32,
    /// The last poll found work, which an upcall may have been part of.
    pub(super) worked: bool,
    coarse: CoarseClock,
    /// Whether the coarse clock was read before this poll.
    is_fresh: bool,
    /// Whether it was read since the last query.
    pub(super) looked: bool,
    /// The longest time between two looks, without sleeps, since this was cleared.
    pub(super) pause: Duration,
}

impl Clock {
    /// Creates a clock that counts from `start`.
    pub(super) fn new(start: Instant) -> Clock {
        let now = Time(0) + start.elapsed();
        let (coarse, pause) = (CoarseClock::new(), Duration::ZERO);
        Clock { start, now, polls: 0, worked: false, coarse, is_fresh: false, looked: true, pause }
    }

    pub(super) fn look(&mut self) {
        self.look_after(Duration::ZERO);
    }

    /// As [`look`](Self::look), after a sleep of the given length, which is no pause.
    pub(super) fn look_after(&mut self, sleep: Duration) {
        (self.polls, self.looked) = (0, true);
        let now = Time(0) + self.start.elapsed();
        self.pause = self.pause.max(now.since(self.now).saturating_sub(sleep));
        self.now = now;
    }

    /// Reads the coarse clock before each poll. An upcall may take any time, and reading the coarse
    /// clock costs little. It advances every few milliseconds.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.polls += 1;
        self.is_fresh = std::mem::take(&mut self.worked);
        let has_moved = self.is_fresh && self.coarse.has_moved();
        if has_moved || self.polls == POLLS_PER_LOOK {
            self.look();
        }
    }

    /// Returns how many ns this poll has taken so far, to a few milliseconds. The time is unknown
    /// if the poll before found nothing: the clock was not read since.
    pub(super) fn since_tick(&self) -> Option<u64> {
        self.is_fresh.then(|| self.coarse.elapsed().as_nanos() as u64)
    }
}
