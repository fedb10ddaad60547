//! `spindle bench latency`: the latency of one message in flight. It is the time from before the
//! commit of a message to the upcall of its stable, ordered delivery at another member.
//!
//! The sender writes the time into the message just before it commits it. The upcall reads the time
//! first of all. Both read the same clock (CLOCK_MONOTONIC of one host). The interval between the
//! two readings contains about one whole reading, which is measured and subtracted. The sender
//! sends the next message once it knows that every member has delivered the previous one.
//!
//! When members spin, every member is one thread that sends and polls. With `--sleeping`, the
//! library's thread polls, and an application thread sends every few ms, when all polling threads
//! are asleep. Each message then wakes two of them: the sender's and the receiver's. `--wait`
//! measures the same with another way to wait: the threads poll all the time, sleep after a while,
//! or sleep at once.
//!
//! With `--fabric tcp` or `ofi` each member believes that it is on a host of its own. The reference
//! is a byte that travels back and forth over a plain TCP stream. The processes of the reference
//! spin, or, with `--sleeping` and `--wait`, block.
//!
//! With `--subgroups` the group has idle subgroups beside the one in which messages are sent. With
//! `--subgroup-members` the active subgroup has that many members, from the first of the group on.
//! Each idle subgroup has as many, spread over the group. Members outside the active subgroup
//! sleep. The reference is the same members in a group of their own, with one subgroup.
//!
//! With `--logged` the members log the messages. The reference is as many members that do not.
//!
//! Keys of `--json`: `bench`, `cores`, `clock_read_ns` (which was subtracted), and `runs`, one for
//! each of `--members`:
//! - `members`, `fabric`, `subgroups`, `subgroup_members`, `senders` (they take turns),
//!   `size_bytes`, `sleeping`, `wait`, `samples`;
//! - `p50_ns`, `p90_ns`, `p99_ns`, `p999_ns`, `max_ns`: of all samples;
//! - `own_p50_ns`: median time until a sender delivers its own message. It then knows that every
//!   member has that message;
//! - `cpu_percent`: CPU time of all members in percent of a core; `hop_ns`;
//! - `hops`: median over slices of the slice's median divided by the hop time just before and after
//!   it;
//! - `wake_ratio`, with `--sleeping`: the same, divided by the median of a futex wake of a process
//!   that has slept for 1 ms;
//! - `stream_ratio`, over tcp and ofi: `own_p50_ns` of a slice divided by the stream's round trip;
//! - `alone_ratio`, with `--subgroups`: relative to the same members alone;
//! - `alone_cpu_ratio`: the same for the CPU time of all members per message, where they don't
//!   spin;
//! - `in_memory_ratio`, with `--logged`: relative to members that do not log;
//! - `ratio`: the applicable one of these five, as in the throughput benchmark. With `--wait
//!   polling` there is none, because the members occupy the cores that the reference would run on.
use super::args::{DeliveryArg, Drive, FabricArg, SendersArg, WaitArg, cores, span};
use super::cluster::{Cluster, Slice};
use super::limits::{REST, hop_ns};
use super::pairing::{Ratio, SlicePair, quantile};
use super::table::{TextTable, short};
use super::tell;
use super::wire::{BenchPlan, Ran, SliceJob};
use crate::quantity::{bytes, seconds};
use anyhow::ensure;
use hdrhistogram::Histogram;
use serde::Serialize;
use spindle_fabric::probe;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of `spindle bench latency`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Members, a list
    #[arg(long, value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u32).range(2..=1024))]
    members: Vec<u32>,
    /// Subgroups, of which all but the first are idle
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    subgroups: u32,
    /// Members of each subgroup [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    subgroup_members: Option<u32>,
    /// The members that send; they take turns
    #[arg(long, value_enum, default_value = "one")]
    senders: SendersArg,
    /// The transport between members
    #[arg(long, value_enum, default_value = "shm")]
    fabric: FabricArg,
    /// Let the members sleep between messages: as --wait hybrid
    #[arg(long)]
    sleeping: bool,
    /// How the library's thread waits, with time between messages
    #[arg(long, value_enum, conflicts_with = "sleeping")]
    wait: Option<WaitArg>,
    /// From one message to the next, with --sleeping or --wait
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=1000))]
    every_ms: u64,
    /// Bytes of a message, at least 8
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16")]
    size: u64,
    /// Log the messages, in data directories in DIR, and measure in turns with members that do not
    #[arg(long, value_name = "DIR", conflicts_with_all = ["sleeping", "wait"])]
    logged: Option<PathBuf>,
    /// How long to measure
    #[arg(long, value_parser = seconds, default_value = "5")]
    seconds: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const SLICE: Duration = Duration::from_millis(100);
/// Messages in a slice when members sleep.
const PULSES: u32 = 60;
const WAKE_SLICE: Duration = Duration::from_millis(100);
const WINDOW: u64 = 16;

#[derive(Debug, Serialize)]
struct LatencyReport {
    bench: &'static str,
    cores: u32,
    clock_read_ns: f64,
    runs: Vec<LatencyRun>,
}

#[derive(Debug, Serialize)]
struct LatencyRun {
    members: u32,
    subgroups: u32,
    subgroup_members: u32,
    senders: u32,
    fabric: FabricArg,
    size_bytes: u64,
    sleeping: bool,
    wait: WaitArg,
    samples: u64,
    p50_ns: f64,
    p90_ns: f64,
    p99_ns: f64,
    p999_ns: f64,
    max_ns: f64,
    own_p50_ns: f64,
    cpu_percent: f64,
    hop_ns: f64,
    hops: Option<f64>,
    wake_ratio: Option<f64>,
    stream_ratio: Option<f64>,
    alone_ratio: Option<f64>,
    in_memory_ratio: Option<f64>,
    alone_cpu_ratio: Option<f64>,
    ratio: Option<Ratio>,
}

/// Returns the reason why the arguments make no sense, if there is one.
pub(super) fn refuse(args: &Args) -> Option<String> {
    (args.size < 8).then(|| format!("--size {} has no room for the time, which takes 8 bytes", args.size))
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let clock_read_ns = probe::clock().read_ns;
    let runs = args.members.iter().map(|&members| measure(args, members, clock_read_ns));
    let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
    let report = LatencyReport { bench: "latency", cores: cores(), clock_read_ns, runs };
    Ok(tell(&report, args.json, |out| report.print(out))?)
}

impl Args {
    fn plan(&self, members: u32) -> BenchPlan {
        let every_us = self.every_ms * 1000;
        let pulses = self.pulses();
        let span = span(self.subgroup_members, members);
        BenchPlan {
            job: if pulses { SliceJob::Pulse { every_us } } else { SliceJob::OneInFlight },
            senders: self.senders.of(span),
            subgroups: self.subgroups,
            active: 1,
            span,
            size: self.size,
            window: WINDOW,
            burst: 1,
            drive: if pulses { Drive::Thread } else { Drive::Poll },
            wait: self.wait.unwrap_or(WaitArg::Hybrid),
            fabric: self.fabric,
            delivery: DeliveryArg::Upcall,
            logged: self.logged.is_some(),
        }
    }

    /// Returns true if time passes between messages.
    fn pulses(&self) -> bool {
        self.sleeping || self.wait.is_some()
    }

    /// Returns the reference that runs in turns with the members; `None` where they leave no core
    /// for it.
    fn reference(&self) -> Option<LatencyReference> {
        match (self.fabric, self.pulses()) {
            _ if self.wait == Some(WaitArg::Polling) => None,
            _ if self.logged.is_some() => Some(LatencyReference::InMemory),
            _ if self.subgroups > 1 => Some(LatencyReference::Alone),
            (FabricArg::Tcp | FabricArg::Ofi, blocking) => Some(LatencyReference::Stream { blocking }),
            (FabricArg::Shm, true) => Some(LatencyReference::Wake),
            (FabricArg::Shm, false) => Some(LatencyReference::Hop),
        }
    }

    /// Returns the latencies of a slice that are compared with the reference. They are those of
    /// messages from others, or those of a member's own messages.
    fn compared<'a>(&self, others: &'a Histogram<u64>, own: &'a Histogram<u64>) -> &'a Histogram<u64> {
        match self.fabric {
            FabricArg::Shm => others,
            FabricArg::Tcp | FabricArg::Ofi => own,
        }
    }

    fn slice(&self) -> Duration {
        let slice = if self.pulses() { Duration::from_millis(self.every_ms) * PULSES } else { SLICE };
        slice.min(self.seconds)
    }
}

fn measure(args: &Args, members: u32, clock_ns: f64) -> anyhow::Result<LatencyRun> {
    let plan = args.plan(members);
    let cores = probe::hop(Duration::ZERO)?.cores;
    let mut cluster = Cluster::start(members, plan, cores, args.logged.as_deref())?;
    let (mut all, mut own) = (histogram(), histogram());
    let (mut pairs, mut hops) = (Vec::new(), Vec::new());
    let (mut busy_ns, mut took_ns) = (0, 0);
    let reference = args.reference();
    let mut alone = match reference {
        Some(LatencyReference::Alone | LatencyReference::InMemory) => {
            let members = if plan.subgroups > 1 { plan.span } else { members };
            Some(Cluster::start(members, BenchPlan { subgroups: 1, logged: false, ..plan }, cores, None)?)
        }
        _ => None,
    };
    let mut cpu_ratios = Vec::new();
    let p50 = |times: &Histogram<u64>| times.value_at_quantile(0.5) as f64 - clock_ns;
    let hop_now = || if reference.is_some() { hop_ns() } else { Ok(0.0) };
    let start = Instant::now();
    let mut hop = hop_now()?;
    while start.elapsed() < args.seconds || all.is_empty() && start.elapsed() < 3 * args.seconds {
        let beside = alone.as_mut().map(|alone| alone.slice(args.slice())).transpose()?;
        let aside_ns = match (reference, &beside) {
            (Some(LatencyReference::Alone | LatencyReference::InMemory), Some(beside)) => {
                let (others, own) = both(beside);
                Some(p50(args.compared(&others, &own)))
            }
            (Some(LatencyReference::Wake), _) => Some(probe::futex_wake(WAKE_SLICE, REST)?.wake.p50_ns),
            (Some(LatencyReference::Stream { blocking }), _) => {
                Some(probe::stream_round_trip(blocking, WAKE_SLICE)?.round_trip.p50_ns)
            }
            _ => None,
        };
        let between = aside_ns.map(|_| hop_ns()).transpose()?;
        let slice = cluster.slice(args.slice())?;
        cpu_ratios.extend(beside.map(|beside| cpu_ns_per_message(&slice) / cpu_ns_per_message(&beside)));
        let (others, mine) = both(&slice);
        let after = hop_now()?;
        let product = args.compared(&others, &mine);
        if !product.is_empty() && reference.is_some() {
            let product = p50(product);
            pairs.push(match aside_ns.zip(between) {
                Some((reference, between)) => SlicePair { reference, product, hops_ns: vec![hop, between, after] },
                None => SlicePair { reference: (hop + after) / 2.0, product, hops_ns: vec![hop, after] },
            });
        }
        all.add(&others)?;
        own.add(&mine)?;
        busy_ns += slice.busy_ns();
        took_ns += slice.took_ns();
        hops.push(after);
        hop = after;
    }
    cluster.finish()?;
    alone.map_or(Ok(()), Cluster::finish)?;
    ensure!(!all.is_empty(), "no message was delivered in {:?}; measure longer", args.seconds);
    let ratio = Ratio::of(&pairs);
    let median =
        |of: fn(LatencyReference) -> bool| ratio.as_ref().filter(|_| reference.is_some_and(of)).map(|r| r.median);
    let at = |share| all.value_at_quantile(share) as f64 - clock_ns;
    Ok(LatencyRun {
        members,
        subgroups: plan.subgroups,
        subgroup_members: plan.span,
        senders: plan.senders,
        fabric: plan.fabric,
        size_bytes: args.size,
        sleeping: args.sleeping,
        wait: if args.pulses() { plan.wait } else { WaitArg::Polling },
        samples: all.len(),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: at(1.0),
        own_p50_ns: own.value_at_quantile(0.5) as f64 - clock_ns,
        cpu_percent: 100.0 * busy_ns as f64 / (took_ns as f64).max(1.0),
        hop_ns: quantile(&hops, 0.5),
        hops: median(|reference| reference == LatencyReference::Hop),
        wake_ratio: median(|reference| reference == LatencyReference::Wake),
        stream_ratio: median(|reference| matches!(reference, LatencyReference::Stream { .. })),
        alone_ratio: median(|reference| reference == LatencyReference::Alone),
        in_memory_ratio: median(|reference| reference == LatencyReference::InMemory),
        alone_cpu_ratio: (args.pulses() && !cpu_ratios.is_empty()).then(|| quantile(&cpu_ratios, 0.5)),
        ratio,
    })
}

/// The reference for latencies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LatencyReference {
    /// The same members with one subgroup.
    Alone,
    /// The same members without logs.
    InMemory,
    Hop,
    Wake,
    Stream {
        blocking: bool,
    },
}

/// Returns the latencies of messages from others, and of a member's own messages.
fn both(slice: &Slice) -> (Histogram<u64>, Histogram<u64>) {
    (latencies(slice, |ran| &ran.latencies), latencies(slice, |ran| &ran.own_latencies))
}

/// Returns the CPU time of all members per message.
fn cpu_ns_per_message(slice: &Slice) -> f64 {
    let sent: u64 = slice.ran.iter().map(|ran| ran.counts.sent).sum();
    slice.busy_ns() as f64 / sent.max(1) as f64
}

/// Returns a histogram with the settings that members use.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

fn latencies(slice: &Slice, of: fn(&Ran) -> &Vec<(u64, u64)>) -> Histogram<u64> {
    let mut all = histogram();
    for &(value, count) in slice.ran.iter().flat_map(of) {
        all.saturating_record_n(value, count);
    }
    all
}

impl LatencyReport {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = TextTable::new(&[
            "members",
            "senders",
            "size",
            "samples",
            "p50 ns",
            "p90",
            "p99",
            "p99.9",
            "max",
            "own p50",
            "CPU %",
            "hop ns",
            "ratio",
            "p10",
            "p90",
            "pairs",
            "of",
            "reference",
            "by hop ns",
        ]);
        for run in &self.runs {
            let mut cells = vec![run.members.to_string(), run.senders.to_string(), format!("{} B", run.size_bytes)];
            cells.push(short(run.samples as f64));
            let times = [run.p50_ns, run.p90_ns, run.p99_ns, run.p999_ns, run.max_ns, run.own_p50_ns];
            cells.extend([&times[..], &[run.cpu_percent, run.hop_ns]].concat().iter().map(|ns| format!("{ns:.0}")));
            match &run.ratio {
                Some(ratio) => cells.extend(super::throughput::ratio_cells(ratio)),
                None if run.hop_ns == 0.0 => cells.push("-".to_string()),
                None => cells.push("the machine did not keep still; run it again".to_string()),
            }
            table.row(cells);
        }
        table.print(out)?;
        let is = |of: fn(&LatencyRun) -> bool| self.runs.iter().any(of);
        let what = match () {
            () if is(|run| run.subgroups > 1) => "the same members with one subgroup",
            () if is(|run| run.fabric != FabricArg::Shm) => "a TCP round trip, of own p50",
            () if is(|run| run.wake_ratio.is_some()) => "a futex wake",
            () => "a cache-line hop",
        };
        writeln!(
            out,
            "\nratio: median in units of {what}; {:.0} ns for reading the clock subtracted",
            self.clock_read_ns
        )
    }
}
