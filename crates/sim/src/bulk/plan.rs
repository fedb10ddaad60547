//! The content of a scene, and how one is drawn from a seed.
use super::network::{NetworkModel, SlowLink, Uplinks};
use crate::random::Random;
use spindle_core::rdmc::{Algorithm, Racks, blocks};
use std::fmt;

/// A bulk group, the objects that its root sends, and the behaviour of its applications.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupPlan {
    /// The hosts of its members, by rank. The root's host is the first.
    pub hosts: Vec<u32>,
    /// The algorithm by which blocks spread.
    pub algorithm: Algorithm,
    /// The size of a block in bytes.
    pub block_bytes: u64,
    /// The number of objects at the same time.
    pub slots: u32,
    /// The number of blocks for which a receiver is ready.
    pub ahead: u32,
    /// The number of blocks in flight from one member.
    pub posts_max: u32,
    /// The size in bytes below which an object goes directly.
    pub direct_below: u64,
    /// The objects: the length of each, and the time at which the root has it, in ns.
    pub objects: Vec<(u64, u64)>,
    /// The longest time that an application takes to provide memory, in ns.
    pub room_ns: u64,
}

/// The death of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostDeath {
    /// The host.
    pub host: u32,
    /// The number of events of the scene after which it dies.
    pub event: u64,
    /// The hosts that learn of the death from their network, each with the delay in ns. The other
    /// hosts must learn of it from these.
    pub noticed: Vec<(u32, u64)>,
}

/// Everything that determines a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkScene {
    /// The seed of the random choices during the run.
    pub seed: u64,
    /// The costs.
    pub network: NetworkModel,
    /// The groups.
    pub groups: Vec<GroupPlan>,
    /// The host that dies, if one does.
    pub death: Option<HostDeath>,
    /// One message in so many is up to one ms late; 0: none is.
    pub late_one_in: u64,
    /// The maximum number of events. A run with more is reported as endless.
    pub events_max: u64,
}

impl BulkScene {
    /// Draws the scene of a seed: one or two groups of up to 33 members, up to six objects each,
    /// with any schedule. With some probability it also has a death, slow hosts, slow links, late
    /// messages, and slow applications.
    pub fn from_seed(seed: u64) -> BulkScene {
        let mut random = Random::new(seed, 7);
        let random = &mut random;
        let hosts = if random.one_in(3) { random.range(1, 33) } else { random.range(2, 9) } as u32;
        let some = |random: &mut Random, most: u64| if random.one_in(2) { random.range(1, most) } else { 0 };
        let slow_links = (0..some(random, 4))
            .map(|_| SlowLink {
                from: random.below(hosts.into()) as u32,
                to: random.below(hosts.into()) as u32,
                permille: random.range(5, 900),
            })
            .collect();
        let slow_hosts =
            (0..some(random, 3)).map(|_| (random.below(hosts.into()) as u32, random.range(1_000, 50_000))).collect();
        let rack_of: Vec<u32> = (0..hosts).map(|_| random.below(4) as u32).collect();
        let uplinks = random.one_in(3).then(|| Uplinks { rack_of: rack_of.clone(), bytes_per_us: 2_000 });
        let network = NetworkModel {
            jitter_ns: some(random, 20_000),
            latency_ns: random.range(1, 5_000),
            slow_links,
            slow_hosts,
            uplinks,
            merges: random.one_in(2),
            ..NetworkModel::rdma(hosts)
        };
        let late_one_in = some(random, 200);
        let groups: Vec<GroupPlan> = (0..random.range(1, 2)).map(|_| group(random, hosts, &rack_of)).collect();
        let sent = |group: &GroupPlan| -> u64 {
            let count = |(bytes, _): &(u64, u64)| blocks(*bytes, group.block_bytes).map_or(0, u64::from);
            group.objects.iter().map(count).sum::<u64>() * group.hosts.len() as u64
        };
        let events = groups.iter().map(sent).sum::<u64>() * 5 + 50;
        let death = (hosts > 1 && random.one_in(2)).then(|| death(random, hosts, events));
        BulkScene { seed, network, groups, death, late_one_in, events_max: 400 * events }
    }

    /// Returns the number of faults that exist from the start.
    pub(super) fn faults(&self) -> u64 {
        let network = &self.network;
        (network.slow_links.len() + network.slow_hosts.len()) as u64 + u64::from(network.uplinks.is_some())
    }
}

fn group(random: &mut Random, hosts: u32, rack_of: &[u32]) -> GroupPlan {
    let mut order: Vec<u32> = (0..hosts).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let algorithm = match random.below(8) {
        0 => Algorithm::Sequential,
        1 => Algorithm::Chain,
        2 => Algorithm::BinomialTree,
        3 => Algorithm::Hybrid(Racks::grouped(order.iter().map(|host| rack_of[*host as usize]))),
        _ => Algorithm::BinomialPipeline,
    };
    let block_bytes = random.range(1, 100_000);
    let lengths: [fn(&mut Random, u64) -> u64; 4] =
        [|_, _| 0, |r, b| r.below(b + 1), |r, b| r.range(1, 12) * b, |r, b| r.below(60 * b)];
    let objects = (0..random.range(1, 6)).map(|_| {
        let length = random.pick(&lengths)(random, block_bytes);
        (length, random.below(2) * random.below(1_000_000))
    });
    let mut objects: Vec<(u64, u64)> = objects.collect();
    objects.sort_by_key(|(_, at)| *at);
    GroupPlan {
        hosts: order,
        algorithm,
        block_bytes,
        slots: random.range(1, 4) as u32,
        ahead: random.range(2, 6) as u32,
        posts_max: random.range(1, 3) as u32,
        direct_below: random.below(2) * random.below(block_bytes + 2),
        objects,
        room_ns: random.below(2) * random.below(300_000),
    }
}

/// Draws a death within `events` events. The network informs at least one other host of it.
fn death(random: &mut Random, hosts: u32, events: u64) -> HostDeath {
    let host = random.below(hosts.into()) as u32;
    let others: Vec<u32> = (0..hosts).filter(|other| *other != host).collect();
    let sure = random.pick(&others);
    let told = others.iter().filter(|other| **other == sure || !random.one_in(3)).copied().collect::<Vec<_>>();
    let noticed = told.into_iter().map(|other| (other, random.range(1_000, 1_000_000))).collect();
    HostDeath { host, event: random.below(events), noticed }
}

impl fmt::Display for BulkScene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetworkModel { hosts, latency_ns, jitter_ns, slow_links, slow_hosts, .. } = &self.network;
        writeln!(f, "seed {}: {hosts} hosts, latency {latency_ns} ns and up to {jitter_ns} more", self.seed)?;
        for SlowLink { from, to, permille } in slow_links {
            writeln!(f, "the link from h{from} to h{to} has {permille} thousandths of its speed")?;
        }
        for (host, permille) in slow_hosts {
            writeln!(f, "h{host} takes {permille} thousandths of the usual time")?;
        }
        for (g, group) in self.groups.iter().enumerate() {
            let name = match &group.algorithm {
                Algorithm::Hybrid(_) => "hybrid".to_string(),
                other => format!("{other:?}"),
            };
            let GroupPlan { hosts, block_bytes, slots, ahead, posts_max, direct_below, objects, room_ns, .. } = group;
            writeln!(
                f,
                "group g{g}: {name} from h{} among {hosts:?}, blocks of {block_bytes}, {slots} slots, ready for {ahead}, \
                 {posts_max} posts, direct below {direct_below}, room within {room_ns} ns, (bytes, at) {objects:?}",
                hosts[0]
            )?;
        }
        match &self.death {
            Some(HostDeath { host, event, noticed }) => {
                writeln!(f, "h{host} dies at event {event}; (host, ns) {noticed:?} notice it")
            }
            None => Ok(()),
        }
    }
}
