//! How long objects take by the model.
use super::network::{Network, SlowLink};
use super::plan::{GroupPlan, Scene};
use crate::Violation;
use spindle_core::Rank;
use spindle_core::bulk::{Algorithm, BLOCK_BYTES, Schedule, blocks};
use std::collections::BTreeSet;

/// One or more groups that each send one object at the same moment, among the same hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bench {
    /// Hosts and costs. Every host is a member of every group.
    pub network: Network,
    /// How blocks spread.
    pub algorithm: Algorithm,
    /// Bytes of each object.
    pub bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// How many blocks receivers are ready for.
    pub ahead: u32,
    /// How many blocks a member has on the way.
    pub posts_max: u32,
    /// Shorter objects go directly.
    pub direct_below: u64,
    /// How many groups, each with another root: that of group `g` is host `g`, and the ranks follow in the order of hosts.
    pub roots: u32,
}

/// What a bench came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// From when the roots began until the last receiver was complete, in ns.
    pub ns: u64,
    /// What the fewest steps would take, at the time of a block each, with no latency and no work of processors, in ns.
    pub optimum_ns: u64,
    /// Blocks sent.
    pub blocks: u64,
    /// Posts of counters alone.
    pub counters: u64,
}

impl Bench {
    /// One group on all hosts of `network` and one object, with the core's usual settings, but nothing goes directly.
    pub fn new(network: Network, bytes: u64) -> Bench {
        Bench {
            network,
            algorithm: Algorithm::BinomialPipeline,
            bytes,
            block_bytes: BLOCK_BYTES,
            ahead: 2,
            posts_max: 1,
            direct_below: 0,
            roots: 1,
        }
    }

    /// Lets the roots send.
    ///
    /// # Errors
    /// If an invariant breaks, which would be a bug.
    ///
    /// # Panics
    /// If the object has more blocks than fit, or there are no hosts.
    pub fn run(&self) -> Result<Timing, Violation> {
        let hosts = self.network.hosts;
        let count = blocks(self.bytes, self.block_bytes).expect("the blocks of the object fit");
        let group = |root: u32| GroupPlan {
            hosts: (0..hosts).map(|rank| (root + rank) % hosts).collect(),
            algorithm: self.algorithm.clone(),
            block_bytes: self.block_bytes,
            slots: 1,
            ahead: self.ahead,
            posts_max: self.posts_max,
            direct_below: self.direct_below,
            // What members say when they begin is past by then.
            objects: vec![(self.bytes, BEGIN_NS)],
            room_ns: 0,
        };
        let scene = Scene {
            seed: 0,
            network: self.network.clone(),
            groups: (0..self.roots).map(group).collect(),
            death: None,
            late_one_in: 0,
            events_max: u64::MAX,
        };
        let outcome = super::play(&scene);
        if let Some(violation) = outcome.violations.into_iter().next() {
            return Err(violation);
        }
        let times = outcome.times.iter().flatten();
        let (begun, done) = times.fold((u64::MAX, 0), |(begun, done), (b, d)| (begun.min(*b), done.max(*d)));
        let steps = u64::from(count) - 1 + u64::from(hosts.next_power_of_two().ilog2());
        let block_ns = self.network.bytes_ns(self.bytes.min(self.block_bytes));
        let optimum_ns = steps * block_ns * u64::from(hosts > 1);
        Ok(Timing { ns: done - begun, optimum_ns, blocks: outcome.blocks, counters: outcome.counters })
    }
}

/// What a slow link costs, as a fraction of the bandwidth: the worst of the links that were tried.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SlowLinkCost {
    /// Of links between vertices of the hypercube.
    pub outside: f64,
    /// Of links between twins, in groups whose size is no power of two.
    pub twins: Option<f64>,
}

impl Bench {
    /// What one link at so many thousandths of its speed costs a binomial pipeline. Up to `tries` links of each kind are tried, spread
    /// evenly over those in use.
    ///
    /// # Errors
    /// If an invariant breaks, which would be a bug.
    ///
    /// # Panics
    /// As [`Bench::run`].
    pub fn slow_link(&self, permille: u64, tries: usize) -> Result<SlowLinkCost, Violation> {
        let hosts = self.network.hosts;
        let schedule = Schedule::new(Algorithm::BinomialPipeline, hosts);
        // Every pair that ever talks does so within a few periods of log2(hosts) steps.
        let hops = (0..100).flat_map(|step| (0..hosts).map(move |x| (x, step)));
        let used: BTreeSet<(u32, u32)> =
            hops.filter_map(|(x, step)| schedule.send(100, Rank(x), step).map(|hop| (hop.from.0, hop.to.0))).collect();
        let apart = (1 << hosts.ilog2()) - 1;
        let is_twin =
            |(from, to): &(u32, u32)| !hosts.is_power_of_two() && from.abs_diff(*to) == apart && from.min(to) > &0;
        let (twins, outside): (Vec<_>, Vec<_>) = used.into_iter().partition(is_twin);
        let normal_ns = self.run()?.ns as f64;
        let worst = |links: Vec<(u32, u32)>| {
            let every = links.len().div_ceil(tries).max(1);
            links.into_iter().step_by(every).try_fold(0_f64, |worst, (from, to)| {
                let mut bench = self.clone();
                bench.network.slow_links.push(SlowLink { from, to, permille });
                Ok(worst.max(1.0 - normal_ns / bench.run()?.ns as f64))
            })
        };
        let has_twins = !twins.is_empty();
        Ok(SlowLinkCost { outside: worst(outside)?, twins: has_twins.then(|| worst(twins)).transpose()? })
    }
}

impl Timing {
    /// How much longer than the optimum it took, as a fraction of that.
    pub fn over_optimum(&self) -> f64 {
        self.ns as f64 / self.optimum_ns as f64 - 1.0
    }
}

const BEGIN_NS: u64 = 10_000_000;
