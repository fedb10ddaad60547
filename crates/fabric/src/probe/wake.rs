//! A futex wake: the time from the wake call in one process until the other, which slept, runs.
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

use super::cores::Cores;
use super::error::ProbeError;
use super::pair::{ChildExit, ProbeLine, ProbePair, STOP, SharedMapping, now_ns};
use super::percentiles::Percentiles;

/// The cost of a futex wake.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FutexWake {
    /// From before the wake call to running again, in ns, both directions. Only waits that did
    /// sleep count.
    pub wake: Percentiles,
    /// Wakes that came before the other process had gone to sleep; not in the distribution.
    pub awake_already: u64,
    /// The cores of the two processes.
    pub cores: Cores,
}

/// Lets two processes wake each other in turns for about `duration`.
///
/// Each spins for `rest` before it wakes the other. With zero, the other has barely gone to sleep.
/// With some hundred microseconds, its core has gone idle too, which costs more.
///
/// # Errors
/// [`ProbeError::Argument`] if `rest` exceeds a second; otherwise the error that kept the two
/// processes from finishing.
pub fn futex_wake(duration: Duration, rest: Duration) -> Result<FutexWake, ProbeError> {
    if rest > REST_MAX {
        return Err(ProbeError::Argument {
            what: "rest in ms",
            got: u64::try_from(rest.as_millis()).unwrap_or(u64::MAX),
            need: "at most 1000",
        });
    }
    measure(start(duration, rest)?, duration, rest)
}

const REST_MAX: Duration = Duration::from_secs(1);
/// Round trips before the measurement.
const WARM_UP: u64 = 20;
/// Round trips after which the probe concludes that no side ever sleeps before it is woken.
const FRUITLESS_MAX: u64 = 100_000;
/// Bounds the memory that the samples take.
const SAMPLES_MAX: usize = 1 << 20;
const GRACE: Duration = Duration::from_secs(20);
/// A sleeper checks this often whether it should still wait; a wake ends the sleep at once.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The value of [`ProbeLine::took_ns`] for a wait that did not sleep.
const DID_NOT_SLEEP: u64 = 0;

fn start(duration: Duration, rest: Duration) -> Result<ProbePair, ProbeError> {
    ProbePair::start(0, duration.saturating_add(GRACE), move |shared| child(shared, rest))
}

/// Sleeps on `event_count` while it holds `seen`, for at most a nap. Returns true if it slept until
/// it was woken.
fn doze(event_count: &AtomicU32, seen: u32) -> Result<bool, Errno> {
    // Not PRIVATE: the two processes share the page, not the address space.
    match futex::wait(event_count, Flags::empty(), seen, Some(&NAP)) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Rings `line`'s event count, after `rest`, and stores the time of the call in the line.
fn ring(line: &ProbeLine, rest: Duration) -> Result<(), Errno> {
    let from = now_ns();
    while now_ns() - from < rest.as_nanos() as u64 {
        std::hint::spin_loop();
    }
    line.at_ns.store(now_ns(), Ordering::Relaxed);
    line.event_count.fetch_add(1, Ordering::Release);
    futex::wake(&line.event_count, Flags::empty(), 1).map(drop)
}

/// Waits until `line`'s event count is no longer `seen`. Returns the time since it was rung, or
/// [`DID_NOT_SLEEP`].
#[inline]
fn answer<E>(
    line: &ProbeLine,
    seen: u32,
    mut check: impl FnMut() -> Result<(), E>,
    failed: impl FnOnce(Errno) -> E,
) -> Result<u64, E> {
    let mut slept = false;
    while line.event_count.load(Ordering::Acquire) == seen {
        match doze(&line.event_count, seen) {
            Ok(woken) => slept = woken,
            Err(errno) => return Err(failed(errno)),
        }
        if !slept {
            check()?;
        }
    }
    let now = now_ns();
    let took = now.saturating_sub(line.at_ns.load(Ordering::Relaxed)).max(1);
    Ok(if slept { took } else { DID_NOT_SLEEP })
}

/// The child: when woken, it records how long that took and wakes the parent.
fn child(shared: &SharedMapping, rest: Duration) -> Result<(), ChildExit> {
    let control = shared.control();
    let mut seen = 0;
    loop {
        let took = answer(&control.parent, seen, || shared.child_deadline(), |_| ChildExit::Futex)?;
        seen = seen.wrapping_add(1);
        if control.parent.count.load(Ordering::Relaxed) == STOP {
            return Ok(());
        }
        control.child.took_ns.store(took, Ordering::Relaxed);
        ring(&control.child, rest).map_err(|_| ChildExit::Futex)?;
    }
}

fn measure(mut pair: ProbePair, duration: Duration, rest: Duration) -> Result<FutexWake, ProbeError> {
    let mut seen = 0;
    let mut samples = Vec::with_capacity(1024);
    let mut awake_already = 0;
    for _ in 0..WARM_UP {
        round_trip(&mut pair, &mut seen, rest)?;
    }
    let begin = Instant::now();
    while (samples.is_empty() && awake_already < FRUITLESS_MAX)
        || (begin.elapsed() < duration && samples.len() < SAMPLES_MAX)
    {
        for took in round_trip(&mut pair, &mut seen, rest)? {
            match took {
                DID_NOT_SLEEP => awake_already += 1,
                took => samples.push(took as f64),
            }
        }
    }
    let parent = &pair.shared().control().parent;
    parent.count.store(STOP, Ordering::Relaxed);
    ring(parent, Duration::ZERO).map_err(failed)?;
    let cores = pair.cores();
    pair.finish()?;
    let wake = Percentiles::of(&mut samples)
        .ok_or(ProbeError::Stalled { what: "a process to sleep before it is woken (rest longer)", limit: duration })?;
    Ok(FutexWake { wake, awake_already, cores })
}

/// Wakes the child and is woken by it. Returns the times of both.
fn round_trip(pair: &mut ProbePair, seen: &mut u32, rest: Duration) -> Result<[u64; 2], ProbeError> {
    ring(&pair.shared().control().parent, rest).map_err(failed)?;
    let (shared, mut still_going) = pair.split("the child to wake me");
    let line = &shared.control().child;
    let took = answer(line, *seen, &mut still_going, failed)?;
    *seen = seen.wrapping_add(1);
    Ok([line.took_ns.load(Ordering::Relaxed), took])
}

fn failed(errno: Errno) -> ProbeError {
    ProbeError::System { call: "futex", source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::super::error::ChildEnd;
    use super::super::pair::tests::assert_gone;
    use super::*;
    use rustix::process::{Signal, kill_process};

    const BRIEF: Duration = Duration::from_millis(20);

    #[test]
    fn takes_some_time_and_leaves_no_child() {
        for rest in [Duration::ZERO, Duration::from_micros(100)] {
            let pair = start(BRIEF, rest).expect("started");
            let child = pair.child();
            let got = measure(pair, BRIEF, rest).expect("measured");
            assert!(got.wake.samples > 0 && got.wake.min_ns > 1.0, "{got:?}");
            assert_gone(child);
        }
    }

    #[test]
    fn a_killed_sleeper_is_a_typed_error() {
        let pair = start(BRIEF, Duration::ZERO).expect("started");
        let child = pair.child();
        kill_process(child, Signal::KILL).expect("killed");
        let error = measure(pair, Duration::from_secs(60), Duration::ZERO).expect_err("no sleeper");
        assert!(matches!(error, ProbeError::ChildDied { how: ChildEnd::Signal(9), .. }), "{error}");
        assert_gone(child);
    }

    #[test]
    fn refuses_a_rest_longer_than_its_bounds() {
        let error = futex_wake(BRIEF, Duration::from_secs(2)).expect_err("too long");
        assert!(matches!(error, ProbeError::Argument { got: 2000, .. }), "{error}");
    }
}
