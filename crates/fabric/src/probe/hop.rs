//! A hop: the time until one core sees a store of another.
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::cores::Cores;
use super::error::ProbeError;
use super::pair::{ChildExit, ProbePair, STOP, SharedMapping};
use super::percentiles::Percentiles;

/// The cost of a hop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HopCost {
    /// One way, in ns. A sample is the mean of [`HopCost::hops_per_sample`] hops in a row, since
    /// reading a clock takes about as long as a hop.
    pub one_way: Percentiles,
    /// Hops in a sample.
    pub hops_per_sample: u64,
    /// The cores of the two processes.
    pub cores: Cores,
}

/// Bounces a counter between two processes for about `duration`, each spinning on a cache line that
/// the other writes.
///
/// # Errors
/// The error that kept the two processes from finishing.
pub fn hop(duration: Duration) -> Result<HopCost, ProbeError> {
    measure(start(duration)?, duration)
}

const ROUND_TRIPS: u64 = 50;
/// Round trips before the measurement: page tables, caches and clock speed settle.
const WARM_UP: u64 = 10_000;
/// Bounds the memory that the samples take.
const SAMPLES_MAX: usize = 1 << 20;
const GRACE: Duration = Duration::from_secs(20);

fn start(duration: Duration) -> Result<ProbePair, ProbeError> {
    ProbePair::start(0, duration.saturating_add(GRACE), echo)
}

/// The child: answers every count with the same count.
fn echo(shared: &SharedMapping) -> Result<(), ChildExit> {
    let (ping, pong) = (&shared.control().parent.count, &shared.control().child.count);
    let mut seen = 0;
    loop {
        seen = shared.child_wait(|| {
            let count = ping.load(Ordering::Acquire);
            (count != seen).then_some(count)
        })?;
        if seen == STOP {
            return Ok(());
        }
        pong.store(seen, Ordering::Release);
    }
}

fn measure(mut pair: ProbePair, duration: Duration) -> Result<HopCost, ProbeError> {
    let mut count = 0;
    round_trips(&mut pair, &mut count, WARM_UP)?;
    let mut samples = Vec::with_capacity(1024);
    let begin = Instant::now();
    while samples.is_empty() || (begin.elapsed() < duration && samples.len() < SAMPLES_MAX) {
        let from = Instant::now();
        round_trips(&mut pair, &mut count, ROUND_TRIPS)?;
        samples.push(from.elapsed().as_nanos() as f64 / (2 * ROUND_TRIPS) as f64);
    }
    pair.shared().control().parent.count.store(STOP, Ordering::Release);
    let cores = pair.cores();
    pair.finish()?;
    let one_way = Percentiles::of(&mut samples).expect("the loop took a sample");
    Ok(HopCost { one_way, hops_per_sample: 2 * ROUND_TRIPS, cores })
}

#[inline(always)]
fn round_trips(pair: &mut ProbePair, count: &mut u64, times: u64) -> Result<(), ProbeError> {
    for _ in 0..times {
        *count += 1;
        pair.shared().control().parent.count.store(*count, Ordering::Release);
        pair.wait("the echo", |shared| (shared.control().child.count.load(Ordering::Acquire) == *count).then_some(()))?;
    }
    Ok(())
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
        let pair = start(BRIEF).expect("started");
        let child = pair.child();
        let got = measure(pair, BRIEF).expect("measured");
        assert!(got.one_way.samples > 0 && got.one_way.min_ns > 0.0, "{got:?}");
        assert!(got.one_way.min_ns <= got.one_way.p50_ns && got.one_way.p50_ns <= got.one_way.max_ns, "{got:?}");
        assert_gone(child);
    }

    #[test]
    fn a_killed_echo_is_a_typed_error() {
        let pair = start(BRIEF).expect("started");
        let child = pair.child();
        kill_process(child, Signal::KILL).expect("killed");
        let error = measure(pair, Duration::from_secs(60)).expect_err("no echo");
        assert!(matches!(error, ProbeError::ChildDied { how: ChildEnd::Signal(9), .. }), "{error}");
        assert_gone(child);
    }
}
