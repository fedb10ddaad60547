//! A distribution in six figures.

/// A distribution of times, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Percentiles {
    /// The number of samples.
    pub samples: u64,
    /// The smallest, ns.
    pub min_ns: f64,
    /// Half of the samples are at or below, ns.
    pub p50_ns: f64,
    /// 90 % of the samples are at or below, ns.
    pub p90_ns: f64,
    /// 99 % of the samples are at or below, ns.
    pub p99_ns: f64,
    /// 99.9 % of the samples are at or below, ns.
    pub p999_ns: f64,
    /// The largest, ns.
    pub max_ns: f64,
}

impl Percentiles {
    /// Computes the distribution of `samples` in nanoseconds, which it sorts; `None` if there are
    /// none.
    pub(super) fn of(samples: &mut [f64]) -> Option<Percentiles> {
        samples.sort_unstable_by(f64::total_cmp);
        let (&min_ns, &max_ns) = (samples.first()?, samples.last()?);
        let at = |share: f64| samples[((samples.len() as f64 * share).ceil() as usize).clamp(1, samples.len()) - 1];
        Some(Percentiles {
            samples: samples.len() as u64,
            min_ns,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let mut samples: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let got = Percentiles::of(&mut samples).expect("samples");
        assert_eq!((got.samples, got.min_ns, got.max_ns), (1000, 1.0, 1000.0));
        assert_eq!((got.p50_ns, got.p90_ns, got.p99_ns, got.p999_ns), (500.0, 900.0, 990.0, 999.0));
    }

    #[test]
    fn one_and_none() {
        let got = Percentiles::of(&mut [3.0]).expect("a sample");
        assert_eq!((got.min_ns, got.p50_ns, got.p999_ns, got.max_ns), (3.0, 3.0, 3.0, 3.0));
        assert_eq!(Percentiles::of(&mut []), None);
    }
}
