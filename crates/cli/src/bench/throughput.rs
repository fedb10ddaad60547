//! `spindle bench throughput`: a stream in total order, and its ratios to references that ran in
//! turns with it.
//!
//! Keys of `--json`: `bench`, `cores`, and `runs`, one for each of `--members` and `--size`:
//! - the settings of the run: `members`, `fabric`, `senders`, `size_bytes`, `drive`, `delivery`,
//!   `logged`, `subgroups`, `active_subgroups`, `window`, `ring_bytes` (of each ring), `burst` (messages
//!   claimed between two polls);
//! - `messages_per_second`, `bytes_per_second`: the rate of the order, that is deliveries per
//!   member and second, payload only; median over the slices;
//! - `deliveries_per_second`: summed over the members;
//! - `cpu_ns_per_message`: CPU time of all member processes per message of the order;
//! - `messages_per_send_batch`, `messages_per_delivery_batch`: means; `nulls_per_message`;
//! - `context_switches_per_second`: of all members' threads,
//!   `involuntary_context_switches_per_second` among them;
//! - `stalls`: waits for room that lasted 100 ms (thread drive);
//! - `hop_ns`: median one-way hop time beside the slices; `slices`: how many;
//! - `ring_ratio`: to the raw ring's blocks per second with this block size and these ring bytes
//!   (two members, one active subgroup, shared memory); `stream_ratio`: to the writes per second of
//!   a plain TCP stream that carries as many bytes a write, without filling or reading them (the
//!   same, over tcp and ofi); `poll_ratio`: thread drive to poll drive; `one_sender_ratio`;
//!   `one_subgroup_ratio`; `first_members_ratio`: deliveries summed over members, to the first
//!   number in `--members`; `in_memory_ratio`, with `--logged`: to members that do not log;
//!   `disk_ratio`, with `--logged`: to as many threads as there are members, each of which writes
//!   and syncs the same bytes of a log in batches of 4 MiB; each `null` if it does not apply or no
//!   pair counts;
//! - `ratios`: by the same names, with `median`, `p10`, `p90`, `reference` (its median rate),
//!   `pairs`, `discarded`, and `modes` (`hop_ns`, `pairs`, `median`);
//! - `instructions_per_message`: `null`; a process can't count its own instructions without
//!   privileges, so `cargo xtask instructions` counts them.
//!
//! With `--listen` this process is one member of a group of several such commands, on hosts or in
//! network namespaces of their own. It prints its own measurements: `bench` (`throughput_member`),
//! `rank`, `members`, `senders`, `size_bytes`, `messages_per_second` and `bytes_per_second` of the
//! order, `delivered` in all, and `cpu_ns_per_message` of this member.
use super::args::{ANY_NETWORK, DeliveryArg, Drive, FabricArg, RING_BYTES, SendersArg, WaitArg, cores};
use super::clock::Usage;
use super::cluster::{Cluster, ScratchDir, Slice, fits};
use super::limits::{default_burst, hop_ns, ring_bytes};
use super::member;
use super::pairing::{Ratio, SlicePair, quantile};
use super::raw_disk::RawDisk;
use super::table::{TextTable, short};
use super::wire::{BenchPlan, BenchSetup, EngineCounts, MemberNetwork, SliceJob};
use super::{BenchReport, tell};
use crate::quantity::{bytes, seconds};
use clap::ValueEnum;
use serde::Serialize;
use spindle_core::wire::ring::frame_bytes;
use spindle_fabric::probe;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of `spindle bench throughput`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Members, a list
    #[arg(long, value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    members: Vec<u32>,
    /// Bytes of a message, a list
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = bytes, default_value = "16,128,1k,10k")]
    size: Vec<u64>,
    /// The transport between members
    #[arg(long, value_enum, default_value = "shm")]
    fabric: FabricArg,
    /// The members that send
    #[arg(long, value_enum, default_value = "one")]
    senders: SendersArg,
    /// The thread that polls [default: poll if every member can have a core, else thread]
    #[arg(long, value_enum)]
    drive: Option<Drive>,
    /// Where messages are read
    #[arg(long, value_enum, default_value = "upcall")]
    delivery: DeliveryArg,
    /// Subgroups, each of all members
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    subgroups: u32,
    /// Subgroups in which members send
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    active: u32,
    /// Messages that each sender may have on the way [default: 1 MiB of ring]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    window: Option<u64>,
    /// Messages claimed between two polls [default: 128 KiB, at most 256 messages]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    burst: Option<u64>,
    /// Log the messages, in data directories in DIR
    #[arg(long, value_name = "DIR", conflicts_with = "listen")]
    logged: Option<PathBuf>,
    /// How long to measure each run
    #[arg(long, value_parser = seconds, default_value = "3")]
    seconds: Duration,
    /// How often to repeat the run with newly started members
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The references to run in turns with it [default: all that apply]
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Option<Vec<Against>>,
    /// Be one member of a group, and listen here for the others, each of which is such a command
    #[arg(long, value_name = "ADDRESS", requires_all = ["seeds", "rank"])]
    listen: Option<String>,
    /// Where the first member listens, with --listen
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', requires = "listen")]
    seeds: Vec<String>,
    /// Which member this is, from 0, with --listen
    #[arg(long, requires = "listen")]
    rank: Option<u32>,
    /// Trust the network between the members, with --listen
    #[arg(long, requires = "listen")]
    insecure: bool,
    /// The provider of libfabric, with --listen and --fabric ofi [default: tcp]
    #[arg(long, value_name = "NAME", requires = "listen")]
    provider: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A reference that runs in turns with the product.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Against {
    /// The raw ring
    Ring,
    /// A plain TCP stream
    Stream,
    /// Poll drive
    Poll,
    /// One sender
    OneSender,
    /// One subgroup
    OneSubgroup,
    /// The first number of members of the list
    FirstMembers,
    /// No logs
    InMemory,
    /// The same bytes in files, as fast as they can be synced
    Disk,
}

/// The length of a slice when every member can have a core.
const SLICE: Duration = Duration::from_millis(100);
/// Length of a slice when members share cores, so that each member is scheduled many times.
const SLICE_CROWDED: Duration = Duration::from_millis(500);
/// Length of a slice of logged members: what their queues take beyond the disk is little beside it.
const SLICE_LOGGED: Duration = Duration::from_secs(2);
/// Number of pairs that are enough. With fewer pairs a run continues for up to three times its
/// time.
const PAIRS_MIN: usize = 3;

#[derive(Debug, Serialize)]
struct ThroughputRun {
    members: u32,
    fabric: FabricArg,
    senders: u32,
    size_bytes: u64,
    drive: Drive,
    delivery: DeliveryArg,
    subgroups: u32,
    active_subgroups: u32,
    window: u64,
    ring_bytes: u64,
    burst: u64,
    messages_per_second: f64,
    bytes_per_second: f64,
    deliveries_per_second: f64,
    cpu_ns_per_message: f64,
    messages_per_send_batch: f64,
    messages_per_delivery_batch: f64,
    nulls_per_message: f64,
    context_switches_per_second: f64,
    involuntary_context_switches_per_second: f64,
    stalls: u64,
    hop_ns: f64,
    slices: u64,
    logged: bool,
    ring_ratio: Option<f64>,
    stream_ratio: Option<f64>,
    poll_ratio: Option<f64>,
    one_sender_ratio: Option<f64>,
    one_subgroup_ratio: Option<f64>,
    first_members_ratio: Option<f64>,
    in_memory_ratio: Option<f64>,
    disk_ratio: Option<f64>,
    ratios: BTreeMap<Against, Option<Ratio>>,
    instructions_per_message: Option<f64>,
}

/// The measurements of one member, in a group whose members are commands of their own.
#[derive(Debug, Serialize)]
struct Alone {
    bench: &'static str,
    rank: u32,
    members: u32,
    senders: u32,
    size_bytes: u64,
    messages_per_second: f64,
    bytes_per_second: f64,
    delivered: u64,
    cpu_ns_per_message: f64,
}

/// Returns the reason why the arguments make no sense together, if there is one.
pub(super) fn refuse(args: &Args) -> Option<String> {
    let Args { active, subgroups, members, size, .. } = args;
    if active > subgroups {
        return Some(format!("--active {active} is more than --subgroups {subgroups}"));
    }
    let rank = args.rank?;
    match (&members[..], &size[..]) {
        ([members], [_]) if rank < *members => None,
        ([members], [_]) => Some(format!("--rank {rank}: of --members {members} it is one from 0 to {}", members - 1)),
        ([_], sizes) => Some(format!("with --listen there is one --size, not {}; say which", sizes.len())),
        (numbers, _) => {
            Some(format!("with --listen there is one number of --members, not {}; say which", numbers.len()))
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let (Some(listen), Some(rank)) = (&args.listen, args.rank) {
        let provider = || args.provider.clone().unwrap_or(ANY_NETWORK.to_string());
        let provider = (args.fabric == FabricArg::Ofi).then(provider);
        let place = MemberNetwork {
            listen: listen.clone(),
            advertise: None,
            seeds: args.seeds.clone(),
            insecure: args.insecure,
            provider,
        };
        let report = alone(args, place, rank)?;
        return Ok(tell(&report, args.json, |out| report.print(out))?);
    }
    let mut runs = Vec::new();
    for &members in &args.members {
        for &size in &args.size {
            runs.push(Measurement::take(args, members, size)?);
        }
    }
    let report = BenchReport { bench: "throughput", cores: cores(), runs };
    Ok(tell(&report, args.json, |out| print_runs(&report.runs, out))?)
}

impl Args {
    fn plan(&self, members: u32, size: u64) -> BenchPlan {
        let job = SliceJob::Stream;
        BenchPlan {
            job,
            senders: self.senders.of(members),
            subgroups: self.subgroups,
            active: self.active,
            span: members,
            size,
            window: self.window.unwrap_or((RING_BYTES / frame_bytes(size)).max(2)),
            burst: self.burst.unwrap_or(default_burst(size, job)),
            drive: self.drive.unwrap_or(if fits(members) { Drive::Poll } else { Drive::Thread }),
            wait: WaitArg::Hybrid,
            fabric: self.fabric,
            delivery: self.delivery,
            logged: self.logged.is_some(),
        }
    }

    /// Returns the references to run beside `members` with `plan`, each with its own members and
    /// plan.
    fn references(&self, members: u32, plan: BenchPlan) -> Vec<(Against, u32, BenchPlan)> {
        let mut all = Vec::new();
        let fits_ring = 2 * plan.size.next_multiple_of(8) <= ring_bytes(&plan);
        if members == 2 && plan.active == 1 && plan.size > 0 {
            match plan.fabric {
                FabricArg::Shm if fits_ring => all.push((Against::Ring, members, plan)),
                FabricArg::Shm => {}
                FabricArg::Tcp | FabricArg::Ofi => all.push((Against::Stream, members, plan)),
            }
        }
        if plan.drive == Drive::Thread && fits(members) {
            all.push((Against::Poll, members, BenchPlan { drive: Drive::Poll, ..plan }));
        }
        if plan.senders > 1 {
            all.push((Against::OneSender, members, BenchPlan { senders: 1, ..plan }));
        }
        if plan.subgroups > 1 {
            all.push((Against::OneSubgroup, members, BenchPlan { subgroups: 1, active: 1, ..plan }));
        }
        if plan.logged {
            all.push((Against::InMemory, members, BenchPlan { logged: false, ..plan }));
            all.push((Against::Disk, members, plan));
        }
        if let Some(&first) = self.members.first()
            && first != members
        {
            all.push((Against::FirstMembers, first, BenchPlan { drive: plan.drive, ..self.plan(first, plan.size) }));
        }
        all.retain(|(against, ..)| self.against.as_ref().is_none_or(|wanted| wanted.contains(against)));
        all
    }
}

/// A reference that runs in turns with the product.
enum ThroughputReference {
    Ring(BenchPlan),
    Stream(BenchPlan),
    Disk(RawDisk),
    Cluster(Cluster),
}

/// The results that a run has collected.
#[derive(Debug)]
struct Measurement {
    members: u32,
    plan: BenchPlan,
    slices: Vec<Slice>,
    hops_ns: Vec<f64>,
    pairs: BTreeMap<Against, Vec<SlicePair>>,
}

impl Measurement {
    fn take(args: &Args, members: u32, size: u64) -> anyhow::Result<ThroughputRun> {
        let plan = args.plan(members, size);
        let mut measurement =
            Measurement { members, plan, slices: Vec::new(), hops_ns: Vec::new(), pairs: BTreeMap::new() };
        for _ in 0..args.repeat {
            measurement.round(args, args.seconds / args.repeat)?;
        }
        Ok(measurement.run())
    }

    /// Starts the members and references anew and runs them in turns for about `time`.
    fn round(&mut self, args: &Args, time: Duration) -> anyhow::Result<()> {
        let length = match self.plan.logged {
            true => SLICE_LOGGED,
            false if fits(self.members) => SLICE,
            false => SLICE_CROWDED,
        };
        let length = length.min(time);
        let logs = args.logged.as_deref();
        let cores = probe::hop(Duration::ZERO)?.cores;
        let mut product = Cluster::start(self.members, self.plan, cores, logs)?;
        let mut references = Vec::new();
        for (against, members, plan) in args.references(self.members, self.plan) {
            let reference = match against {
                Against::Ring => ThroughputReference::Ring(plan),
                Against::Stream => ThroughputReference::Stream(plan),
                Against::Disk => {
                    let dir = logs.expect("only logged members are compared with the disk");
                    ThroughputReference::Disk(RawDisk::create(dir, members, plan.size)?)
                }
                _ => ThroughputReference::Cluster(Cluster::start(members, plan, cores, logs)?),
            };
            references.push((against, reference));
        }
        let start = Instant::now();
        let mut hop = hop_ns()?;
        while start.elapsed() < time || (start.elapsed() < 3 * time && !self.has_enough(&references)) {
            for (against, reference) in &mut references {
                let rate = reference.slice(*against, length)?;
                let between = hop_ns()?;
                let slice = product.slice(length)?;
                let after = hop_ns()?;
                let pair =
                    SlicePair { reference: rate, product: against.rate(&slice), hops_ns: vec![hop, between, after] };
                self.pairs.entry(*against).or_default().push(pair);
                self.slices.push(slice);
                self.hops_ns.push(after);
                hop = after;
            }
            if references.is_empty() {
                self.slices.push(product.slice(length)?);
                self.hops_ns.push(hop_ns()?);
            }
        }
        product.finish()?;
        for (_, reference) in references {
            if let ThroughputReference::Cluster(cluster) = reference {
                cluster.finish()?;
            }
        }
        Ok(())
    }

    fn has_enough(&self, references: &[(Against, ThroughputReference)]) -> bool {
        let pairs = |against: &Against| self.pairs.get(against).and_then(|pairs| Ratio::of(pairs));
        references.iter().all(|(against, _)| pairs(against).is_some_and(|ratio| ratio.pairs as usize >= PAIRS_MIN))
    }

    fn run(self) -> ThroughputRun {
        let Measurement { members, plan, slices, hops_ns, pairs } = self;
        let rates: Vec<f64> = slices.iter().map(Slice::messages_per_second).collect();
        let deliveries: Vec<f64> = slices.iter().map(Slice::deliveries_per_second).collect();
        let ran = || slices.iter().flat_map(|slice| &slice.ran);
        let counts = ran().fold(EngineCounts::default(), |sum, ran| sum.plus(ran.counts));
        let used = ran().map(|ran| ran.usage).chain(slices.iter().map(|slice| slice.idle)).sum::<Usage>();
        // The members of active subgroups.
        let active = f64::from(plan.span.min(members));
        let messages = counts.delivered as f64 / active;
        let per = |value: f64, of: f64| if of > 0.0 { value / of } else { 0.0 };
        // Each slice counts nine tenths of its length.
        let seconds = ran().map(|ran| ran.elapsed_ns as f64 / 0.9e9).sum::<f64>() / active;
        let ratios: BTreeMap<_, _> = pairs.iter().map(|(against, pairs)| (*against, Ratio::of(pairs))).collect();
        let median = |against| ratios.get(&against)?.as_ref().map(|ratio: &Ratio| ratio.median);
        let messages_per_second = quantile(&rates, 0.5);
        ThroughputRun {
            members,
            fabric: plan.fabric,
            senders: plan.senders,
            size_bytes: plan.size,
            drive: plan.drive,
            delivery: plan.delivery,
            subgroups: plan.subgroups,
            active_subgroups: plan.active,
            window: plan.window,
            ring_bytes: ring_bytes(&plan),
            burst: plan.burst,
            messages_per_second,
            bytes_per_second: messages_per_second * plan.size as f64,
            deliveries_per_second: quantile(&deliveries, 0.5),
            cpu_ns_per_message: per(used.cpu_ns as f64, messages),
            messages_per_send_batch: per(counts.sent as f64, counts.send_batches as f64),
            messages_per_delivery_batch: per(counts.delivered as f64, counts.delivery_batches as f64),
            nulls_per_message: per(counts.nulls as f64, messages),
            context_switches_per_second: per((used.voluntary + used.involuntary) as f64, seconds),
            involuntary_context_switches_per_second: per(used.involuntary as f64, seconds),
            stalls: ran().map(|ran| ran.stalls).sum(),
            hop_ns: quantile(&hops_ns, 0.5),
            slices: slices.len() as u64,
            logged: plan.logged,
            ring_ratio: median(Against::Ring),
            stream_ratio: median(Against::Stream),
            poll_ratio: median(Against::Poll),
            one_sender_ratio: median(Against::OneSender),
            one_subgroup_ratio: median(Against::OneSubgroup),
            first_members_ratio: median(Against::FirstMembers),
            in_memory_ratio: median(Against::InMemory),
            disk_ratio: median(Against::Disk),
            ratios,
            instructions_per_message: None,
        }
    }
}

impl ThroughputReference {
    fn slice(&mut self, against: Against, length: Duration) -> anyhow::Result<f64> {
        match self {
            ThroughputReference::Ring(plan) => {
                Ok(probe::raw_ring(plan.size, ring_bytes(plan), length)?.blocks_per_second)
            }
            ThroughputReference::Stream(plan) => Ok(probe::stream(plan.size, length)?.blocks_per_second),
            ThroughputReference::Disk(disk) => disk.slice(length),
            ThroughputReference::Cluster(cluster) => Ok(against.rate(&cluster.slice(length)?)),
        }
    }
}

impl Against {
    /// Returns the rate that this reference is compared by.
    fn rate(self, slice: &Slice) -> f64 {
        match self {
            Against::FirstMembers => slice.deliveries_per_second(),
            _ => slice.messages_per_second(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Against::Ring => "raw ring",
            Against::Stream => "TCP stream",
            Against::Poll => "poll drive",
            Against::OneSender => "one sender",
            Against::OneSubgroup => "one subgroup",
            Against::FirstMembers => "first members",
            Against::InMemory => "in memory",
            Against::Disk => "raw disk",
        }
    }
}

fn alone(args: &Args, place: MemberNetwork, rank: u32) -> anyhow::Result<Alone> {
    let (members, size) = (args.members[0], args.size[0]);
    let fabric = if place.provider.is_some() { FabricArg::Ofi } else { FabricArg::Tcp };
    let plan = BenchPlan { fabric, ..args.plan(members, size) };
    let dir = ScratchDir::new()?;
    let runtime_dir = dir.of(plan.fabric, rank);
    let (group, network) = ("bench".to_string(), Some(place));
    let setup = BenchSetup { parent: 0, group, runtime_dir, network, members, rank, plan, data_dir: None, core: None };
    let (ran, counts) = member::alone(&setup, args.seconds)?;
    let messages_per_second = ran.delivered as f64 * 1e9 / ran.elapsed_ns.max(1) as f64;
    Ok(Alone {
        bench: "throughput_member",
        rank,
        members,
        senders: plan.senders,
        size_bytes: size,
        messages_per_second,
        bytes_per_second: messages_per_second * size as f64,
        delivered: counts.delivered,
        cpu_ns_per_message: Usage::mine()?.cpu_ns as f64 / counts.delivered.max(1) as f64,
    })
}

impl Alone {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Alone { rank, members, senders, size_bytes, messages_per_second, bytes_per_second, .. } = self;
        let (messages, bytes) = (short(*messages_per_second), short(*bytes_per_second));
        writeln!(
            out,
            "member {rank} of {members}, {senders} of which send {size_bytes} B: {messages} messages/s, {bytes} bytes/s"
        )
    }
}

fn print_runs(runs: &[ThroughputRun], out: &mut impl Write) -> io::Result<()> {
    let mut table = TextTable::new(&[
        "members",
        "senders",
        "size",
        "messages/s",
        "bytes/s",
        "deliveries/s",
        "CPU ns",
        "sent/batch",
        "got/batch",
        "nulls",
        "switches/s",
        "stalls",
        "hop ns",
    ]);
    for run in runs {
        let mut cells = vec![run.members.to_string(), run.senders.to_string(), format!("{} B", run.size_bytes)];
        cells.extend([run.messages_per_second, run.bytes_per_second, run.deliveries_per_second].map(short));
        cells.extend([run.cpu_ns_per_message, run.messages_per_send_batch].map(short));
        cells.extend([run.messages_per_delivery_batch, run.nulls_per_message].map(short));
        cells.extend([short(run.context_switches_per_second), run.stalls.to_string(), format!("{:.0}", run.hop_ns)]);
        table.row(cells);
    }
    table.print(out)?;
    if runs.iter().all(|run| run.ratios.is_empty()) {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = TextTable::new(&[
        "members",
        "size",
        "ratio to",
        "median",
        "p10",
        "p90",
        "pairs",
        "of",
        "reference/s",
        "by hop ns",
    ]);
    for run in runs {
        for (against, ratio) in &run.ratios {
            let mut cells = vec![run.members.to_string(), format!("{} B", run.size_bytes), against.name().to_string()];
            match ratio {
                Some(ratio) => cells.extend(ratio_cells(ratio)),
                None => cells.push("the machine did not keep still; run it again".to_string()),
            }
            table.row(cells);
        }
    }
    table.print(out)
}

/// Formats median, spread, pairs, reference and modes as cells.
pub(super) fn ratio_cells(ratio: &Ratio) -> Vec<String> {
    let modes = ratio.modes.iter().map(|mode| format!("{:.0}: {:.2} ({})", mode.hop_ns, mode.median, mode.pairs));
    let mut cells: Vec<_> = [ratio.median, ratio.p10, ratio.p90].map(|value| format!("{value:.2}")).into();
    cells.extend([ratio.pairs.to_string(), (ratio.pairs + ratio.discarded).to_string()]);
    cells.push(short(ratio.reference));
    cells.push(modes.collect::<Vec<_>>().join(", "));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &str) -> Args {
        Command::try_parse_from(["x"].into_iter().chain(words.split_whitespace())).expect(words).args
    }

    fn against(words: &str, members: u32) -> Vec<Against> {
        let args = parse(words);
        let plan = args.plan(members, args.size[0]);
        args.references(members, plan).into_iter().map(|(against, ..)| against).collect()
    }

    #[test]
    fn defaults() {
        let args = parse("");
        assert_eq!((args.members.clone(), args.size.clone()), (vec![2], vec![16, 128, 1024, 10_240]));
        let plans = args.size.iter().map(|&size| args.plan(2, size));
        for plan in plans {
            assert_eq!(ring_bytes(&plan), RING_BYTES, "{plan:?}");
            assert_eq!((plan.senders, plan.subgroups, plan.active), (1, 1, 1));
        }
        assert_eq!(args.plan(1024, 16).drive, Drive::Thread);
    }

    #[test]
    fn a_member_alone_has_one_thing_to_do() {
        let told = |words: &str| refuse(&parse(&format!("--listen a:1 --seeds a:1 {words}"))).is_some();
        assert!(!told("--rank 1 --size 10"));
        for words in ["--rank 2 --size 10", "--rank 0", "--rank 0 --size 10 --members 2,3"] {
            assert!(told(words), "{words}");
        }
        assert!(Command::try_parse_from(["x", "--listen", "a:1"]).is_err());
    }

    #[test]
    fn references_follow_from_what_differs() {
        use Against::*;
        assert_eq!(against("--drive poll", 2), [Ring]);
        assert_eq!(against("--drive poll --senders all", 2), [Ring, OneSender]);
        assert_eq!(against("--drive poll --subgroups 50", 2), [Ring, OneSubgroup]);
        assert_eq!(against("--drive poll --subgroups 50 --active 2", 2), [OneSubgroup]);
        assert_eq!(against("--members 2,1000", 1000), [FirstMembers]);
        assert_eq!(against("--drive poll --subgroups 50 --against one-subgroup", 2), [OneSubgroup]);
        assert_eq!(against("--drive poll --window 1 --size 1000k", 2), []);
        assert_eq!(against("--drive poll --fabric tcp --senders all", 2), [Stream, OneSender]);
        assert_eq!(against("--drive thread --fabric tcp --members 1000", 1000), []);
    }
}
