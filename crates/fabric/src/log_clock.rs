//! The clock with which a member stamps the messages of logged subgroups.
//!
//! It is the wall clock of the system, as long as that agrees with the time that has passed since the
//! process began to join (INV-CLOCK-BOUND, [`spindle_core::clock`]). The passed time is that of
//! `CLOCK_BOOTTIME`, which no one can set and which counts the sleep of the machine.
//!
//! A message costs one look at a clock, that of the passed time. Once a millisecond the wall clock is
//! compared with it.
use spindle_core::clock::{ShownTime, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// The target of events about clocks.
const TARGET: &str = "spindle::clock";

/// The wall clock of a process: that of the system, or one that is shifted, for tests.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    shift_ns: Option<Arc<AtomicI64>>,
}

impl WallClock {
    /// Returns a clock that is ahead of that of the system by `shift_ns` nanoseconds, which may change
    /// at any time.
    pub fn shifted(shift_ns: Arc<AtomicI64>) -> WallClock {
        WallClock { shift_ns: Some(shift_ns) }
    }

    /// Returns the time in ns since 1970. A clock before 1970 counts as 1970, and one after 2554 as that.
    pub fn now(&self) -> u64 {
        if cfg!(miri) {
            // Miri isolates programs from the clocks of the machine.
            return 0;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match &self.shift_ns {
            None => time,
            // Relaxed: the shift orders nothing.
            Some(shift) => time.saturating_add_signed(shift.load(Ordering::Relaxed)),
        }
    }
}

/// The time between two looks at the wall clock, in ns. A step is followed that much later.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// The longest time that a comparison of the two clocks may take, in ns. It is repeated if it takes longer.
const COMPARED_WITHIN_NS: u64 = 10_000;
/// How often it is repeated.
const COMPARISONS: u32 = 8;

/// The clock of a member, shared by the threads that send and the polling thread.
#[derive(Clone, Debug)]
pub struct LogClock(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    wall: WallClock,
    /// The wall clock, and the time since the machine started, when the process began to
    /// join.
    start: u64,
    booted: u64,
    /// The bound in ns; `u64::MAX`: none.
    max_ns: AtomicU64,
    /// The difference from the time since the machine started to the time of messages, modulo 2^64, and
    /// when it was measured.
    offset: AtomicU64,
    measured: AtomicU64,
    /// The farthest that the time of a message was ahead of this clock when the message came, in ns.
    ahead: AtomicU64,
    /// Whether the wall clock was beyond the bound when it was read last.
    is_out: AtomicBool,
}

impl Default for LogClock {
    fn default() -> LogClock {
        LogClock::new(WallClock::default())
    }
}

impl LogClock {
    /// Creates a clock that starts with what `wall` shows, and has no bound.
    pub fn new(wall: WallClock) -> LogClock {
        let (start, booted) = (wall.now(), since_boot());
        LogClock(Arc::new(Parts {
            wall,
            start,
            booted,
            max_ns: AtomicU64::new(u64::MAX),
            offset: AtomicU64::new(start.wrapping_sub(booted)),
            measured: AtomicU64::new(booted),
            ahead: AtomicU64::new(0),
            is_out: AtomicBool::new(false),
        }))
    }

    /// Sets how far the wall clock may differ from the time that has passed. `None`: any time.
    pub fn bound(&self, max: Option<Duration>) {
        let max_ns = max.and_then(|max| u64::try_from(max.as_nanos()).ok()).unwrap_or(u64::MAX);
        self.0.max_ns.store(max_ns, Ordering::SeqCst);
        self.measure();
    }

    /// Returns the time in ns since 1970, without a step of the wall clock beyond the bound. A smaller step
    /// counts a millisecond later.
    #[inline]
    pub fn now(&self) -> u64 {
        let passed = since_boot();
        // Relaxed: with a new `measured`, an old `offset` counts a millisecond longer.
        let measured = self.0.measured.load(Ordering::Relaxed);
        if passed.saturating_sub(measured) >= LOOK_EVERY_NS {
            self.measure();
        }
        passed.wrapping_add(self.0.offset.load(Ordering::Relaxed))
    }

    /// Compares the two clocks.
    #[cold]
    fn measure(&self) {
        let compare = || {
            let before = since_boot();
            let wall = self.0.wall.now();
            let took = since_boot().saturating_sub(before);
            (took, before + took / 2, wall)
        };
        // The thread may be stopped between two clocks, so the quickest of several comparisons counts.
        let mut best = compare();
        for _ in 1..COMPARISONS {
            if best.0 <= COMPARED_WITHIN_NS {
                break;
            }
            best = best.min(compare());
        }
        let (_, passed, wall) = best;
        let now = loop {
            let max_ns = self.0.max_ns.load(Ordering::SeqCst);
            let now = bounded(wall, self.steady_at(passed), max_ns);
            self.0.offset.store(now.wrapping_sub(passed), Ordering::SeqCst);
            // A bound that was set meanwhile counts.
            if self.0.max_ns.load(Ordering::SeqCst) == max_ns {
                break now;
            }
        };
        self.0.measured.store(passed, Ordering::Relaxed);
        // Relaxed: it only decides which thread reports.
        if (now != wall) != self.0.is_out.load(Ordering::Relaxed) {
            self.tell(now != wall, wall, now);
        }
    }

    /// Reports that the wall clock has stepped beyond the bound, or has come back.
    #[cold]
    fn tell(&self, is_out: bool, wall: u64, now: u64) {
        if self.0.is_out.swap(is_out, Ordering::Relaxed) == is_out {
            return;
        }
        let (wall, now) = (ShownTime(wall), ShownTime(now));
        match is_out {
            true => warn!(
                target: TARGET, %wall, sends = %now,
                "the clock has stepped by more than clock_skew_max; messages are sent with the time that has passed"
            ),
            false => info!(target: TARGET, %wall, "the clock is right again"),
        }
    }

    /// Returns how far the wall clock has stepped since the process began to join, if that is beyond
    /// the bound: ahead, or back if it is negative.
    pub fn stepped_ns(&self) -> Option<i64> {
        let (wall, steady) = (self.0.wall.now(), self.steady_at(since_boot()));
        let is_beyond = wall.abs_diff(steady) > self.0.max_ns.load(Ordering::Relaxed);
        is_beyond.then(|| i64::try_from(i128::from(wall) - i128::from(steady)).unwrap_or(i64::MAX))
    }

    /// Notes that a message came with this time, in ns since 1970.
    #[inline]
    pub fn note(&self, time: u64) {
        let ahead = time.saturating_sub(self.now());
        if ahead > 0 {
            // Relaxed: it is a measurement.
            self.0.ahead.fetch_max(ahead, Ordering::Relaxed);
        }
    }

    /// Returns the farthest that the time of a message was ahead of this clock when the message came.
    pub fn ahead(&self) -> Duration {
        Duration::from_nanos(self.0.ahead.load(Ordering::Relaxed))
    }

    /// Returns the wall clock when the process began to join, plus the time that has passed since.
    fn steady_at(&self, since_boot: u64) -> u64 {
        self.0.start.saturating_add(since_boot.saturating_sub(self.0.booted))
    }
}

/// Returns the time since the machine started, in ns.
fn since_boot() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    if !cfg!(miri) {
        // SAFETY: the pointer is to a local variable of the type that the call writes. If it fails, it writes
        // nothing.
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    }
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_NS: i64 = 31_536_000_000_000_000;

    #[test]
    fn a_step_beyond_the_bound_changes_no_time() {
        let shift = Arc::new(AtomicI64::new(0));
        let clock = LogClock::new(WallClock::shifted(Arc::clone(&shift)));
        clock.bound(Some(Duration::from_secs(60)));
        let begin = clock.now();
        assert_eq!(clock.stepped_ns(), None);
        let step_by = |step| {
            shift.store(step, Ordering::Relaxed);
            // The step is seen at the next look at the wall clock.
            std::thread::sleep(Duration::from_nanos(2 * LOOK_EVERY_NS));
        };
        for step in [YEAR_NS, -YEAR_NS] {
            step_by(step);
            // Two clocks of the machine differ by a little.
            let passed = Duration::from_nanos(clock.now().abs_diff(begin));
            assert!(passed < Duration::from_secs(60), "{passed:?}");
            let stepped = clock.stepped_ns().unwrap();
            assert!(stepped.signum() == step.signum() && stepped.abs() > YEAR_NS / 2, "{stepped}");
        }
        // A smaller step is followed.
        step_by(30_000_000_000);
        assert!(clock.now().saturating_sub(begin) >= 29_000_000_000);
        assert_eq!(clock.stepped_ns(), None);
        clock.bound(None);
        step_by(YEAR_NS);
        assert!(clock.now().saturating_sub(begin) >= YEAR_NS as u64 / 2);
    }

    #[test]
    fn the_farthest_time_ahead_is_kept() {
        let clock = LogClock::default();
        clock.note(0);
        assert_eq!(clock.ahead(), Duration::ZERO);
        clock.note(clock.now() + 20_000_000_000);
        clock.note(clock.now() + 10_000_000_000);
        let ahead = clock.ahead();
        assert!(ahead > Duration::from_secs(10) && ahead <= Duration::from_secs(20), "{ahead:?}");
    }
}
