//! Ratios from interleaved slices.
use serde::Serialize;

/// Largest factor between the hop readings around a pair that counts.
const SETTLED: f64 = 1.25;
/// Hop readings that differ by more than this belong to different modes of the machine.
const SAME_MODE: f64 = 1.5;

/// A slice of the reference beside one of the product.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SlicePair {
    pub(super) reference: f64,
    pub(super) product: f64,
    /// One-way hop times before, between and after, ns.
    pub(super) hops_ns: Vec<f64>,
}

/// The summary of several pairs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    /// Median over the pairs of product / reference.
    pub(super) median: f64,
    pub(super) p10: f64,
    pub(super) p90: f64,
    /// Median of the reference in these pairs.
    pub(super) reference: f64,
    /// Pairs that counted.
    pub(super) pairs: u64,
    /// Pairs that did not count, because the machine changed its mode meanwhile.
    pub(super) discarded: u64,
    /// The same by mode of the machine, in ascending order of hop time.
    pub(super) modes: Vec<Mode>,
}

/// The pairs measured while a hop took about the same time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Mode {
    pub(super) hop_ns: f64,
    pub(super) pairs: u64,
    pub(super) median: f64,
}

impl SlicePair {
    fn is_settled(&self) -> bool {
        let max = self.hops_ns.iter().copied().fold(0.0, f64::max);
        let min = self.hops_ns.iter().copied().fold(f64::INFINITY, f64::min);
        max <= min * SETTLED
    }

    fn ratio(&self) -> f64 {
        self.product / self.reference
    }

    fn hop_ns(&self) -> f64 {
        quantile(&self.hops_ns, 0.5)
    }
}

impl Ratio {
    /// Returns the ratio over `pairs`; `None` if none of them counts.
    pub(super) fn of(pairs: &[SlicePair]) -> Option<Ratio> {
        let mut settled: Vec<&SlicePair> = pairs.iter().filter(|pair| pair.is_settled()).collect();
        if settled.is_empty() {
            return None;
        }
        settled.sort_by(|a, b| a.hop_ns().total_cmp(&b.hop_ns()));
        let ratios: Vec<f64> = settled.iter().map(|pair| pair.ratio()).collect();
        let references: Vec<f64> = settled.iter().map(|pair| pair.reference).collect();
        let same_mode = |a: &&SlicePair, b: &&SlicePair| b.hop_ns() <= a.hop_ns() * SAME_MODE;
        let modes = settled.chunk_by(same_mode).map(|pairs| Mode {
            hop_ns: quantile(&pairs.iter().map(|pair| pair.hop_ns()).collect::<Vec<_>>(), 0.5),
            pairs: pairs.len() as u64,
            median: quantile(&pairs.iter().map(|pair| pair.ratio()).collect::<Vec<_>>(), 0.5),
        });
        Some(Ratio {
            median: quantile(&ratios, 0.5),
            p10: quantile(&ratios, 0.1),
            p90: quantile(&ratios, 0.9),
            reference: quantile(&references, 0.5),
            pairs: settled.len() as u64,
            discarded: (pairs.len() - settled.len()) as u64,
            modes: modes.collect(),
        })
    }
}

/// Returns the value below which a `share` of `values` lies, interpolated between two values; 0 if
/// there are no values.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(reference: f64, product: f64, hops_ns: &[f64]) -> SlicePair {
        SlicePair { reference, product, hops_ns: hops_ns.to_vec() }
    }

    #[test]
    fn a_machine_that_changes_speed_does_not_change_the_ratio() {
        // The speed halves while hops take 250 ns. In the third pair the hop time changes between
        // the slices.
        let pairs = [
            pair(100.0, 80.0, &[50.0, 51.0, 52.0]),
            pair(50.0, 40.0, &[250.0, 260.0, 240.0]),
            pair(100.0, 40.0, &[50.0, 50.0, 250.0]),
            pair(100.0, 80.0, &[50.0, 60.0, 50.0]),
        ];
        let ratio = Ratio::of(&pairs).unwrap();
        assert_eq!((ratio.median, ratio.p10, ratio.p90), (0.8, 0.8, 0.8));
        assert_eq!((ratio.pairs, ratio.discarded, ratio.reference), (3, 1, 100.0));
        let modes: Vec<_> = ratio.modes.iter().map(|mode| (mode.hop_ns, mode.pairs)).collect();
        assert_eq!(modes, [(50.5, 2), (250.0, 1)]);
    }

    #[test]
    fn ratios_differ_by_mode() {
        let near = pair(100.0, 90.0, &[50.0]);
        let far = pair(100.0, 30.0, &[250.0]);
        let ratio = Ratio::of(&[far.clone(), near.clone(), far.clone(), near, far]).unwrap();
        assert_eq!(ratio.median, 0.3);
        let modes: Vec<_> = ratio.modes.iter().map(|mode| (mode.median, mode.pairs)).collect();
        assert_eq!(modes, [(0.9, 2), (0.3, 3)]);
    }

    #[test]
    fn only_unsettled_pairs_make_no_ratio() {
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(Ratio::of(&[pair(1.0, 1.0, &[50.0, 63.0, 50.0])]), None);
        assert!(Ratio::of(&[pair(1.0, 1.0, &[50.0, 62.0, 50.0])]).is_some());
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.5);
        assert_eq!(quantile(&[0.0, 10.0, 20.0, 30.0, 40.0], 0.1), 4.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
