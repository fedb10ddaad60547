//! The time that engines are told: precise enough for them, and read seldom.
use spindle_core::Time;
use spindle_fabric::CoarseClock;
use std::time::{Duration, Instant};

/// Polls that find nothing for which the clock is not read.
const POLLS_PER_LOOK: u32 = 64;

#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    pub(super) now: Time,
    polls: u32,
    /// The last poll found work, of which an upcall may have been a part.
    pub(super) worked: bool,
    coarse: CoarseClock,
    /// Whether it was read since the last question.
    pub(super) looked: bool,
    /// The longest time between two looks, but for sleeps, since this was cleared.
    pub(super) pause: Duration,
}

impl Clock {
    /// One that counts from `start`.
    pub(super) fn new(start: Instant) -> Clock {
        let now = Time(0) + start.elapsed();
        Clock { start, now, polls: 0, worked: false, coarse: CoarseClock::new(), looked: true, pause: Duration::ZERO }
    }

    pub(super) fn look(&mut self) {
        self.look_after(Duration::ZERO);
    }

    /// As [`look`](Self::look), after a sleep that was to be so long, which is no pause.
    pub(super) fn look_after(&mut self, sleep: Duration) {
        (self.polls, self.looked) = (0, true);
        let now = Time(0) + self.start.elapsed();
        self.pause = self.pause.max(now.since(self.now).saturating_sub(sleep));
        self.now = now;
    }

    /// Before each poll. An upcall may take any time, and it costs little to ask the coarse clock, which moves on every few
    /// milliseconds.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.polls += 1;
        if self.polls == POLLS_PER_LOOK || (std::mem::take(&mut self.worked) && self.coarse.has_moved()) {
            self.look();
        }
    }
}
