//! Decides when the polling thread looks again, yields, or sleeps.
//!
//! Looking again at once is fastest while the thread has a core to itself. If another thread wants
//! the core, each turn spent looking takes time from it, and that thread may be the one that sends
//! the next message. The number of free cores can't be counted: they may be lent to other programs,
//! or to other members only. So the thread measures it: it yields now and then, and a late return
//! shows that another thread had work.
use std::thread;
use std::time::{Duration, Instant};

/// The longest single sleep of a thread of the library. An event that concerns the thread wakes it
/// at once; the bound is for unforeseen cases.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(4);

/// The action after a poll that found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    /// Poll again.
    Look,
    /// Announce sleep, poll once more, and sleep.
    Sleep,
}

/// The pace of one polling thread.
#[derive(Debug)]
pub(crate) struct PollPace {
    spin_for: Duration,
    /// How long it looks now before it sleeps. It is less than `spin_for` if nothing came within
    /// that time for a while.
    looks_for: Duration,
    core: Core,
    /// The polls since one found something, or since the first idle one.
    looks: u32,
    since: Option<Instant>,
    /// Whether it slept after a long idle time and has found nothing since.
    slept: bool,
}

/// The demand for the core, by the time that the last yield took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Core {
    /// No other thread wants it.
    Own,
    /// Other threads want it and give it back soon: they wait, as this thread does, or run until
    /// they have to.
    Shared,
    /// Another thread keeps it for as long as it may. A thread that sleeps and is woken gets the
    /// core sooner than a thread that yields.
    Contended,
}

/// The shortest time to look is this part of the longest.
const LOOKS_FOR_MIN: u32 = 64;
/// The longest time in which a thread wakes up on an idle machine. A message within this time is
/// not late, even if the longest look is shorter.
const WAKE: Duration = Duration::from_micros(200);
/// The thread looks for this many times the last short wait. So a reply comes in time although
/// nothing came in time after the message before it.
const WAITS: u32 = 4;
/// The longest yield when no other thread wants the core: ten times the bare system call.
const AWAY_ALONE: Duration = Duration::from_micros(4);
/// The longest yield to threads that do a turn of work and then wait: less than the time slice that
/// the scheduler grants.
const AWAY_SHARED: Duration = Duration::from_micros(500);

impl Core {
    fn after(away: Duration) -> Core {
        match away {
            away if away <= AWAY_ALONE => Core::Own,
            away if away <= AWAY_SHARED => Core::Shared,
            _ => Core::Contended,
        }
    }

    /// Returns the number of polls before a yield.
    fn looks(self) -> u32 {
        match self {
            Core::Own => 32,
            Core::Shared | Core::Contended => 4,
        }
    }
}

impl PollPace {
    pub(crate) fn new(spin_for: Duration) -> PollPace {
        PollPace { spin_for, looks_for: spin_for, core: Core::Own, looks: 0, since: None, slept: false }
    }

    /// Notes that the last poll found something.
    pub(crate) fn worked(&mut self) {
        self.looks = 0;
        self.slept = false;
        if let Some(since) = self.since.take() {
            let waited = since.elapsed();
            let is_soon = waited <= self.spin_for.max(WAKE);
            // Asleep or not: work that comes so soon is worth looking for.
            self.looks_for = match is_soon {
                true => self.looks_for.max(self.spin_for.min(WAITS * waited)),
                false => (self.looks_for / 2).max(self.spin_for / LOOKS_FOR_MIN),
            };
        }
    }

    /// Notes that the last poll found nothing. Returns what to do next.
    pub(crate) fn idle(&mut self) -> Idle {
        // A thread that woke up to show that it lives has no more reason to look than before.
        if self.slept || self.spin_for.is_zero() {
            return Idle::Sleep;
        }
        self.looks = self.looks.wrapping_add(1);
        std::hint::spin_loop();
        if !self.looks.is_multiple_of(self.core.looks()) {
            return Idle::Look;
        }
        if self.core == Core::Contended {
            // After the sleep another thread may have the core, or none.
            self.core = Core::Own;
            return Idle::Sleep;
        }
        let before = Instant::now();
        thread::yield_now();
        let now = Instant::now();
        self.core = Core::after(now - before);
        let idle_for = now - *self.since.get_or_insert(before);
        self.slept = idle_for >= self.looks_for;
        if self.slept { Idle::Sleep } else { Idle::Look }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks_until_sleep(pace: &mut PollPace) -> u32 {
        (1..).find(|_| pace.idle() == Idle::Sleep).unwrap()
    }

    #[test]
    fn it_sleeps_after_its_time_and_starts_anew_after_work() {
        let mut pace = PollPace::new(Duration::from_millis(2));
        for _ in 0..2 {
            let start = Instant::now();
            pace.worked();
            pace.core = Core::Own;
            looks_until_sleep(&mut pace);
            // Two milliseconds, or a yield that took longer than other threads may take.
            assert!(start.elapsed() > AWAY_SHARED);
        }
    }

    #[test]
    fn a_woken_sleeper_looks_once_and_sleeps_until_there_is_work() {
        let mut pace = PollPace::new(Duration::from_nanos(1));
        while !pace.slept {
            pace.idle();
        }
        assert_eq!(looks_until_sleep(&mut pace), 1);
        pace.worked();
        pace.core = Core::Own;
        assert_eq!(looks_until_sleep(&mut pace), Core::Own.looks());
    }

    /// Messages that come rarely are not worth a core; once they come more often they are.
    #[test]
    fn it_looks_for_less_time_while_nothing_comes_in_it() {
        let (mut pace, longest) = (PollPace::new(Duration::from_millis(64)), Duration::from_millis(64));
        let pass = |pace: &mut PollPace, idle: Duration| {
            pace.since = Instant::now().checked_sub(idle);
            pace.worked();
            pace.looks_for
        };
        let long: Vec<u128> = (0..8).map(|_| pass(&mut pace, 2 * longest).as_millis()).collect();
        assert_eq!(long, [32, 16, 8, 4, 2, 1, 1, 1]);
        let short: Vec<u128> = [1, 3, 2, 8, 16].map(|ms| pass(&mut pace, Duration::from_millis(ms)).as_millis()).into();
        assert_eq!(short, [4, 12, 12, 32, 64]);
        pace.worked();
        assert_eq!(pace.looks_for, longest, "it was not idle");
    }

    #[test]
    fn a_thread_without_spinning_sleeps_at_once() {
        assert_eq!(looks_until_sleep(&mut PollPace::new(Duration::ZERO)), 1);
    }

    #[test]
    fn it_sleeps_at_once_where_another_keeps_the_core() {
        let mut pace = PollPace::new(Duration::MAX);
        pace.core = Core::Contended;
        assert_eq!(looks_until_sleep(&mut pace), Core::Contended.looks());
    }

    #[test]
    fn a_long_absence_is_reported_with_the_others() {
        assert_eq!(Core::after(Duration::from_nanos(400)), Core::Own);
        assert_eq!(Core::after(Duration::from_micros(30)), Core::Shared);
        assert_eq!(Core::after(Duration::from_millis(3)), Core::Contended);
    }
}
