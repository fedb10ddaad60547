//! How long objects take by the model.
use super::network::Network;
use super::plan::{GroupPlan, Scene};
use crate::Violation;
use spindle_core::bulk::{Algorithm, blocks};

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
    /// One group on all hosts of `network` and one object, with blocks of 1 MiB.
    pub fn new(network: Network, bytes: u64) -> Bench {
        Bench {
            network,
            algorithm: Algorithm::BinomialPipeline,
            bytes,
            block_bytes: 1 << 20,
            ahead: 4,
            posts_max: 2,
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

impl Timing {
    /// How much longer than the optimum it took, as a fraction of that.
    pub fn over_optimum(&self) -> f64 {
        self.ns as f64 / self.optimum_ns as f64 - 1.0
    }
}

const BEGIN_NS: u64 = 10_000_000;
