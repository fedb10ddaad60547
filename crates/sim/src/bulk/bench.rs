//! The time that objects take in the model.
use super::network::{NetworkModel, SlowLink};
use super::plan::{BulkScene, GroupPlan};
use crate::Violation;
use spindle_core::Rank;
use spindle_core::rdmc::{Algorithm, BLOCK_BYTES, Schedule, blocks};
use std::collections::BTreeSet;

/// One or more groups among the same hosts. Each sends one object, all at the same moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkBench {
    /// The hosts and the costs. Every host is a member of every group.
    pub network: NetworkModel,
    /// The algorithm by which blocks spread.
    pub algorithm: Algorithm,
    /// The size of each object in bytes.
    pub bytes: u64,
    /// The size of a block in bytes.
    pub block_bytes: u64,
    /// The number of blocks for which receivers are ready.
    pub ahead: u32,
    /// The maximum number of blocks that a member has in flight.
    pub posts_max: u32,
    /// The size in bytes below which an object goes directly.
    pub direct_below: u64,
    /// The number of groups. The root of group `g` is host `g`, and the ranks follow in the order
    /// of hosts.
    pub roots: u32,
}

/// The result of a bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkTiming {
    /// The time from the start of the roots to the completion of the last receiver, in ns.
    pub ns: u64,
    /// The time of the fewest possible steps in ns, if a step takes the time of one block, with no
    /// latency and no processor time.
    pub optimum_ns: u64,
    /// Blocks that were sent.
    pub blocks: u64,
    /// Posts that carried counters only.
    pub counters: u64,
}

impl BulkBench {
    /// One group on all hosts of `network` and one object, with the core's default settings, except
    /// that no object goes directly.
    pub fn new(network: NetworkModel, bytes: u64) -> BulkBench {
        BulkBench {
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

    /// Runs the bench: every root sends its object.
    ///
    /// # Errors
    /// If an invariant breaks, which would be a bug.
    ///
    /// # Panics
    /// If the object has more blocks than fit, or there are no hosts.
    pub fn run(&self) -> Result<BulkTiming, Violation> {
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
            // The first posts of the members have ended by then.
            objects: vec![(self.bytes, BEGIN_NS)],
            room_ns: 0,
        };
        let scene = BulkScene {
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
        Ok(BulkTiming { ns: done - begun, optimum_ns, blocks: outcome.blocks, counters: outcome.counters })
    }
}

/// The cost of one slow link, as a fraction of the bandwidth: the worst of the links that were
/// tried.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SlowLinkCost {
    /// The cost of a link between vertices of the hypercube.
    pub outside: f64,
    /// The cost of a link between twins, in groups whose size is no power of two.
    pub twins: Option<f64>,
}

impl BulkBench {
    /// Returns the cost to a binomial pipeline of one link with `permille` thousandths of its
    /// speed. It tries up to `tries` links of each kind, spread evenly over the links in use.
    ///
    /// # Errors
    /// If an invariant breaks, which would be a bug.
    ///
    /// # Panics
    /// As [`BulkBench::run`].
    pub fn slow_link(&self, permille: u64, tries: usize) -> Result<SlowLinkCost, Violation> {
        let hosts = self.network.hosts;
        let schedule = Schedule::new(Algorithm::BinomialPipeline, hosts);
        // Every pair that ever exchanges blocks does so within a few periods of log2(hosts) steps.
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

impl BulkTiming {
    /// Returns the time beyond the optimum, as a fraction of the optimum.
    pub fn over_optimum(&self) -> f64 {
        self.ns as f64 / self.optimum_ns as f64 - 1.0
    }
}

const BEGIN_NS: u64 = 10_000_000;
