//! The time that engines are told: precise enough for them, and read seldom.
use spindle_core::Time;
use spindle_fabric::CoarseClock;
use std::time::Instant;

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
}

impl Clock {
    /// One that counts from `start`.
    pub(super) fn new(start: Instant) -> Clock {
        let mut clock =
            Clock { start, now: Time(0), polls: 0, worked: false, coarse: CoarseClock::new(), looked: false };
        clock.look();
        clock
    }

    pub(super) fn look(&mut self) {
        (self.polls, self.looked) = (0, true);
        self.now = Time(0) + self.start.elapsed();
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
