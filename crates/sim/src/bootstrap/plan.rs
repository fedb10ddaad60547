//! The content of a scene, and how one is drawn from a seed.
use crate::random::Random;
use std::fmt;

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000 * MS;

/// A fault. Times are in ns. Hosts are numbered from 0; the first ones are the seeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootstrapFault {
    /// The process of a host crashes, and another one is started there.
    Crash {
        /// The host.
        host: u32,
        /// How long the host has no process.
        down_ns: u64,
        /// True if its disk is lost.
        wipe: bool,
        /// True if the new process has another address.
        moves: bool,
    },
    /// The process of a host is paused.
    Pause {
        /// The host.
        host: u32,
        /// The length of the pause.
        ns: u64,
    },
    /// No message passes from the hosts in `from` to the hosts in `to`.
    Cut {
        /// A bit mask of the sending hosts.
        from: u64,
        /// A bit mask of the receiving hosts.
        to: u64,
        /// The length of the cut.
        ns: u64,
    },
    /// The connection between two hosts breaks, and messages in flight are lost.
    Reset {
        /// One host.
        a: u32,
        /// The other host.
        b: u32,
    },
}

/// Everything that determines a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootstrapScene {
    /// The seed of the random choices during the run.
    pub seed: u64,
    /// The number of hosts, with a process each.
    pub hosts: u32,
    /// How many of the hosts are seeds.
    pub seeds: u32,
    /// A bit mask of the seeds with a data directory that was initialised for the bootstrap.
    pub durable: u64,
    /// The number of members that create the group.
    pub members: u32,
    /// The start time of each host's process, in ns.
    pub starts: Vec<u64>,
    /// The delay from each host to each other host, in ns.
    pub delays: Vec<Vec<u64>>,
    /// The largest random addition to a delay.
    pub jitter_ns: u64,
    /// One message in so many breaks its connection; 0: none does.
    pub loss_one_in: u64,
    /// The longest time that a write to a disk takes.
    pub write_ns: u64,
    /// True if evicted members join again, in the same process.
    pub rejoins: bool,
    /// True if a restarted process has the same id.
    pub keeps_ids: bool,
    /// The faults, by ascending time.
    pub faults: Vec<(u64, BootstrapFault)>,
    /// The time at which all faults are over.
    pub calm_ns: u64,
    /// The interval at which names are looked up again.
    pub look_up_ns: u64,
}

impl BootstrapScene {
    /// Draws the scene of a seed.
    pub fn from_seed(seed: u64) -> BootstrapScene {
        let mut random = Random::new(seed, 13);
        let random = &mut random;
        let seeds = if random.one_in(4) { random.range(1, 5) } else { 3 } as u32;
        let hosts = seeds + random.below(5) as u32;
        let durable = match random.below(5) {
            0 | 1 => (1 << seeds) - 1,
            2 | 3 => 0,
            _ => random.below(1 << seeds),
        };
        let most = if random.one_in(2) { seeds } else { hosts };
        let members = random.range(1, most.into()) as u32;
        let late = [0, 50 * MS, 3 * S, 15 * S][random.below(4) as usize];
        let starts = (0..hosts).map(|_| random.below(late + 1)).collect();
        let slowest = [MS, 20 * MS, 200 * MS, 500 * MS][random.below(4) as usize];
        let uniform = random.one_in(2);
        let delay = random.range(50_000, slowest);
        let mut delays = || -> Vec<u64> {
            (0..hosts).map(|_| if uniform { delay } else { random.range(50_000, slowest) }).collect()
        };
        let delays = (0..hosts).map(|_| delays()).collect();
        let jitter_ns = if random.one_in(2) { random.below(slowest) } else { 0 };
        let loss_one_in = if random.one_in(2) { random.range(10, 500) } else { 0 };
        let write_ns = random.below(2) * random.below(50 * MS);
        let (rejoins, keeps_ids) = (random.one_in(2), random.one_in(2));
        let calm_ns = random.range(3, 40) * S;
        let count = if random.one_in(6) { 0 } else { random.range(1, 24) };
        let kinds: Vec<u64> = (0..7).filter(|_| random.one_in(2)).collect();
        let mut wipes = (seeds - 1) / 2;
        let mut faults = vec![];
        for _ in 0..count {
            let Some(kind) = (!kinds.is_empty()).then(|| random.pick(&kinds)) else { break };
            let at = random.below(calm_ns);
            fault(random, kind, (hosts, seeds), &mut wipes, &mut |delay, fault| faults.push((at + delay, fault)));
        }
        faults.sort_by_key(|(at, _)| *at);
        let look_up_ns = random.range(100, 3_000) * MS;
        BootstrapScene {
            seed,
            hosts,
            seeds,
            durable,
            members,
            starts,
            delays,
            jitter_ns,
            loss_one_in,
            write_ns,
            rejoins,
            keeps_ids,
            faults,
            calm_ns,
            look_up_ns,
        }
    }
}

fn fault(
    random: &mut Random,
    kind: u64,
    (hosts, seeds): (u32, u32),
    wipes: &mut u32,
    add: &mut dyn FnMut(u64, BootstrapFault),
) {
    let host = random.below(hosts.into()) as u32;
    let other = (host + 1 + random.below(u64::from(hosts - 1).max(1)) as u32) % hosts;
    let all = (1u64 << hosts) - 1;
    let ns = [300 * MS, 3 * S, 10 * S][random.below(3) as usize];
    let ns = random.range(10 * MS, ns);
    let down_ns = random.range(MS, ns);
    let (mut wipe, moves) = (random.one_in(4) && host < seeds, random.one_in(4));
    // If more disks were lost, a vote might be lost.
    if wipe && *wipes == 0 {
        wipe = false;
    }
    *wipes -= u32::from(wipe);
    match kind {
        0 => add(0, BootstrapFault::Crash { host, down_ns, wipe, moves }),
        // Crashes several seeds at once.
        1 => (0..seeds).filter(|_| random.one_in(2)).collect::<Vec<_>>().into_iter().for_each(|host| {
            add(random.below(20 * MS), BootstrapFault::Crash { host, down_ns, wipe: false, moves });
        }),
        2 => add(0, BootstrapFault::Pause { host, ns }),
        3 => add(0, BootstrapFault::Cut { from: 1 << host, to: 1 << other, ns }),
        // Cuts the link between two hosts in both directions; both still hear the others.
        4 => {
            add(0, BootstrapFault::Cut { from: 1 << host, to: 1 << other, ns });
            add(0, BootstrapFault::Cut { from: 1 << other, to: 1 << host, ns });
        }
        5 => {
            let side = if random.one_in(2) { (1 << seeds) - 1 } else { random.below(all + 1) };
            add(0, BootstrapFault::Cut { from: side, to: all & !side, ns });
            add(0, BootstrapFault::Cut { from: all & !side, to: side, ns });
        }
        _ => add(0, BootstrapFault::Reset { a: host, b: other }),
    }
}

impl fmt::Display for BootstrapScene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BootstrapScene { seed, hosts, seeds, durable, members, jitter_ns, loss_one_in, .. } = self;
        writeln!(
            f,
            "seed {seed}: {hosts} hosts, of which {seeds} are seeds (durable: {durable:b}); {members} members create the group; delays of {} to \
             {} us and up to {} more; a connection in {loss_one_in} messages breaks; calm after {} ms",
            self.delays.iter().flatten().min().unwrap_or(&0) / 1000,
            self.delays.iter().flatten().max().unwrap_or(&0) / 1000,
            jitter_ns / 1000,
            self.calm_ns / MS
        )?;
        self.faults.iter().try_for_each(|(at, fault)| writeln!(f, "{} ms: {fault:?}", at / MS))
    }
}
