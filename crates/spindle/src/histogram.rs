//! Histograms of durations, for monitoring.
use std::time::Duration;

/// The number of buckets with an upper bound.
const BOUNDS: usize = 22;

/// Counts of durations, in buckets from a microsecond to ten seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: [u64; BOUNDS + 1],
    sum: Duration,
}

impl Histogram {
    /// The upper bounds of the buckets, in nanoseconds. Longer durations are in one further bucket.
    pub const BOUNDS_NS: [u64; BOUNDS] = bounds();

    /// Adds a duration.
    pub(crate) fn record(&mut self, duration: Duration) {
        let ns = duration.as_nanos();
        let bucket = Histogram::BOUNDS_NS.partition_point(|bound| u128::from(*bound) < ns);
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the buckets, the shortest durations first: the upper bound, which belongs to the
    /// bucket, and the number of durations in it. The last bucket has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = Histogram::BOUNDS_NS.into_iter().map(|ns| Some(Duration::from_nanos(ns)));
        bounds.chain([None]).zip(self.counts)
    }
}

/// Returns the bounds: 1, 2 and 5 of each power of ten, from a microsecond to ten seconds.
const fn bounds() -> [u64; BOUNDS] {
    let mut bounds = [0; BOUNDS];
    let (mut i, mut power) = (0, 1_000);
    while i < BOUNDS {
        bounds[i] = match i % 3 {
            0 => power,
            1 => 2 * power,
            _ => 5 * power,
        };
        if i % 3 == 2 {
            power *= 10;
        }
        i += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_bucket_with_the_next_bound() {
        let mut histogram = Histogram::default();
        let durations = [0, 1_000, 1_001, 1_999_000_000, 10_000_000_000, 10_000_000_001, u64::MAX];
        durations.iter().for_each(|ns| histogram.record(Duration::from_nanos(*ns)));
        let filled = histogram.buckets().filter(|(_, count)| *count > 0);
        let filled: Vec<_> = filled.map(|(bound, count)| (bound.map(|bound| bound.as_micros()), count)).collect();
        let expected = [(Some(1), 2), (Some(2), 1), (Some(2_000_000), 1), (Some(10_000_000), 1), (None, 2)];
        assert_eq!(filled, expected);
        assert_eq!(histogram.count(), durations.len() as u64);
        assert_eq!(histogram.sum(), durations.iter().map(|ns| Duration::from_nanos(*ns)).sum::<Duration>());
    }
}
