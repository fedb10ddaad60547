//! `spindle bench latency`: one message in flight, from before its commit to the upcall of its delivery, stable and in order,
//! at another member.
//!
//! The sender writes the time into the message just before it commits it; the upcall reads the time first of all. Both read
//! the same clock (CLOCK_MONOTONIC of one host). What lies between the two readings contains about one whole reading, which
//! is measured and subtracted. The next message is sent once the sender knows that every member has delivered the one before.
//!
//! Spinning, every member is one thread that sends and polls. With `--sleeping`, the library's thread polls and an
//! application thread sends every few ms, when all polling threads are asleep: two of them are woken on the way, the sender's
//! and the receiver's.
//!
//! Keys of `--json`: `bench`, `cores`, `clock_read_ns` (what was subtracted), and `runs`, one for each of `--members`:
//! `members`, `senders` (they take turns), `size_bytes`, `sleeping`, `samples`, `p50_ns`, `p90_ns`, `p99_ns`, `p999_ns`, `max_ns`
//! (of all samples), `hop_ns`; `hops`: median over slices of a slice's median by the hop time just before and after it;
//! `wake_ratio`, with `--sleeping`: the same by the median of a futex wake of a process that has slept for 1 ms; `ratio`: whichever
//! of the two it is, as in the throughput benchmark.
use super::args::{Delivery, Drive, Senders, cores};
use super::limits::{REST, hop_ns};
use super::pairing::{Pair, Ratio, quantile};
use super::table::{Table, short};
use super::team::{Slice, Team};
use super::tell;
use super::wire::{Job, Plan};
use crate::quantity::{bytes, seconds};
use anyhow::ensure;
use hdrhistogram::Histogram;
use serde::Serialize;
use spindle_fabric::probe;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Options of `spindle bench latency`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Members, a list
    #[arg(long, value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u32).range(2..=1024))]
    members: Vec<u32>,
    /// Who sends; senders take turns
    #[arg(long, value_enum, default_value = "one")]
    senders: Senders,
    /// Let the members sleep between messages
    #[arg(long)]
    sleeping: bool,
    /// From one message to the next, with --sleeping
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=1000))]
    every_ms: u64,
    /// Bytes of a message, at least 8
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16")]
    size: u64,
    /// How long to measure
    #[arg(long, value_parser = seconds, default_value = "5")]
    seconds: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const SLICE: Duration = Duration::from_millis(100);
/// Messages in a slice of sleeping members.
const PULSES: u32 = 60;
const WAKE_SLICE: Duration = Duration::from_millis(100);
const WINDOW: u64 = 16;

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    cores: u32,
    clock_read_ns: f64,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Run {
    members: u32,
    senders: u32,
    size_bytes: u64,
    sleeping: bool,
    samples: u64,
    p50_ns: f64,
    p90_ns: f64,
    p99_ns: f64,
    p999_ns: f64,
    max_ns: f64,
    hop_ns: f64,
    hops: Option<f64>,
    wake_ratio: Option<f64>,
    ratio: Option<Ratio>,
}

/// Why the arguments make no sense.
pub(super) fn refuse(args: &Args) -> Option<String> {
    (args.size < 8).then(|| format!("--size {} has no room for the time, which takes 8 bytes", args.size))
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let clock_read_ns = probe::clock().read_ns;
    let runs = args.members.iter().map(|&members| measure(args, members, clock_read_ns));
    let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
    let report = Report { bench: "latency", cores: cores(), clock_read_ns, runs };
    Ok(tell(&report, args.json, |out| report.print(out))?)
}

impl Args {
    fn plan(&self, members: u32) -> Plan {
        let every_us = self.every_ms * 1000;
        Plan {
            job: if self.sleeping { Job::Pulse { every_us } } else { Job::OneInFlight },
            senders: self.senders.of(members),
            subgroups: 1,
            active: 1,
            size: self.size,
            window: WINDOW,
            burst: 1,
            drive: if self.sleeping { Drive::Thread } else { Drive::Poll },
            delivery: Delivery::Upcall,
        }
    }

    fn slice(&self) -> Duration {
        let slice = if self.sleeping { Duration::from_millis(self.every_ms) * PULSES } else { SLICE };
        slice.min(self.seconds)
    }
}

fn measure(args: &Args, members: u32, clock_ns: f64) -> anyhow::Result<Run> {
    let plan = args.plan(members);
    let mut team = Team::start(members, plan, probe::hop(Duration::ZERO)?.cores)?;
    let mut all = histogram();
    let (mut pairs, mut hops) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let mut hop = hop_ns()?;
    while start.elapsed() < args.seconds || all.is_empty() && start.elapsed() < 3 * args.seconds {
        let wake = match args.sleeping {
            true => Some((probe::futex_wake(WAKE_SLICE, REST)?.wake.p50_ns, hop_ns()?)),
            false => None,
        };
        let slice = latencies(&team.slice(args.slice())?);
        let after = hop_ns()?;
        if !slice.is_empty() {
            let product = slice.value_at_quantile(0.5) as f64 - clock_ns;
            pairs.push(match wake {
                Some((wake, between)) => Pair { reference: wake, product, hops_ns: vec![hop, between, after] },
                None => Pair { reference: (hop + after) / 2.0, product, hops_ns: vec![hop, after] },
            });
        }
        all.add(&slice)?;
        hops.push(after);
        hop = after;
    }
    team.finish()?;
    ensure!(!all.is_empty(), "no message was delivered in {:?}; measure longer", args.seconds);
    let ratio = Ratio::of(&pairs);
    let median = ratio.as_ref().map(|ratio| ratio.median);
    let at = |share| all.value_at_quantile(share) as f64 - clock_ns;
    Ok(Run {
        members,
        senders: plan.senders,
        size_bytes: args.size,
        sleeping: args.sleeping,
        samples: all.len(),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: at(1.0),
        hop_ns: quantile(&hops, 0.5),
        hops: median.filter(|_| !args.sleeping),
        wake_ratio: median.filter(|_| args.sleeping),
        ratio,
    })
}

/// As a member keeps them.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

fn latencies(slice: &Slice) -> Histogram<u64> {
    let mut all = histogram();
    for &(value, count) in slice.ran.iter().flat_map(|ran| &ran.latencies) {
        all.saturating_record_n(value, count);
    }
    all
}

impl Report {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = Table::new(&[
            "members",
            "senders",
            "size",
            "samples",
            "p50 ns",
            "p90",
            "p99",
            "p99.9",
            "max",
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
            let times = [run.p50_ns, run.p90_ns, run.p99_ns, run.p999_ns, run.max_ns, run.hop_ns];
            cells.extend(times.map(|ns| format!("{ns:.0}")));
            match &run.ratio {
                Some(ratio) => cells.extend(super::throughput::ratio_cells(ratio)),
                None => cells.push("the machine did not keep still; run it again".to_string()),
            }
            table.row(cells);
        }
        table.print(out)?;
        let what = if self.runs.iter().any(|run| run.sleeping) { "a futex wake" } else { "a cache-line hop" };
        writeln!(
            out,
            "\nratio: median in units of {what}; {:.0} ns for reading the clock subtracted",
            self.clock_read_ns
        )
    }
}
