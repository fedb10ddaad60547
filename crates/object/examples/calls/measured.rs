//! The times of calls, and the figures that they give.
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The figures of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallsRun {
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
    pub(crate) calls_per_second: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

/// A run that is going on. It begins with its first call, and ends with the reply to its last.
pub(crate) struct Measuring {
    histogram: Histogram<u64>,
    begin: Instant,
    last: Instant,
    time: Duration,
}

impl Measuring {
    pub(crate) fn new(time: Duration) -> Measuring {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order");
        let begin = Instant::now();
        Measuring { histogram, begin, last: begin, time }
    }

    /// Notes that a call has its reply. Returns the time now if another call is to be made.
    pub(crate) fn note(&mut self, called: Instant) -> Option<Instant> {
        self.last = Instant::now();
        self.histogram.saturating_record((self.last - called).as_nanos() as u64);
        (self.last - self.begin < self.time).then_some(self.last)
    }

    pub(crate) fn finish(&self) -> CallsRun {
        let (calls, seconds) = (self.histogram.len(), (self.last - self.begin).as_secs_f64());
        let quantile = |part| self.histogram.value_at_quantile(part);
        CallsRun {
            calls,
            seconds,
            calls_per_second: calls as f64 / seconds,
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: self.histogram.max(),
        }
    }
}
