//! `spindle bench idle`: the cost of a group in which nothing is sent.
//!
//! Members are processes with the library's polling thread. Each member first sends a few messages,
//! so that the costs of a first message are not measured. Then all members stop sending. The
//! benchmark reads the system's counts of their CPU time and context switches at the start and the
//! end of the measured time.
//!
//! Keys of `--json`: `bench`, `cores`, and `runs`, one for each of `--members`:
//! - `members`, `fabric`, `subgroups`, `subgroup_members` (of each), `seconds` (how long);
//! - `join_seconds`: from the start of the first process until the last has joined;
//! - `cpu_percent`: CPU time of all members in percent of a core;
//! - `wakes_per_second`: how often the threads of a member wake up, on average;
//! - `sleepers_cpu_percent`: the CPU time of as many threads that wake up as often as all members
//!   do and do nothing;
//! - `private_bytes`: memory of a member that it shares with no other process, median. A member's
//!   own rings are shared, so they are not included.
use super::args::{DeliveryArg, Drive, FabricArg, WaitArg, cores, span};
use super::clock::sleepers;
use super::cluster::Cluster;
use super::table::TextTable;
use super::wire::{BenchPlan, SliceJob};
use super::{BenchReport, tell};
use crate::quantity::seconds;
use serde::Serialize;
use spindle_fabric::probe;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Options of `spindle bench idle`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Members, a list
    #[arg(long, value_delimiter = ',', default_value = "16", value_parser = clap::value_parser!(u32).range(1..=1024))]
    members: Vec<u32>,
    /// The transport between members
    #[arg(long, value_enum, default_value = "shm")]
    fabric: FabricArg,
    /// Subgroups, in which all of their members may send
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    subgroups: u32,
    /// Members of each subgroup [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    subgroup_members: Option<u32>,
    /// How long to measure
    #[arg(long, value_parser = seconds, default_value = "5")]
    seconds: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long members send first.
const BUSY: Duration = Duration::from_millis(100);
/// How long members may then take to become idle.
const SETTLE: Duration = Duration::from_millis(1500);
const SIZE: u64 = 16;
const WINDOW: u64 = 16;

#[derive(Debug, Serialize)]
struct IdleRun {
    members: u32,
    fabric: FabricArg,
    subgroups: u32,
    subgroup_members: u32,
    seconds: f64,
    join_seconds: f64,
    cpu_percent: f64,
    wakes_per_second: f64,
    sleepers_cpu_percent: f64,
    private_bytes: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let runs = args.members.iter().map(|&members| measure(args, members)).collect::<anyhow::Result<_>>()?;
    let report = BenchReport { bench: "idle", cores: cores(), runs };
    Ok(tell(&report, args.json, |out| print(&report.runs, out))?)
}

fn measure(args: &Args, members: u32) -> anyhow::Result<IdleRun> {
    let span = span(args.subgroup_members, members);
    let plan = BenchPlan {
        job: SliceJob::Stream,
        senders: span,
        subgroups: args.subgroups,
        active: 1,
        span,
        size: SIZE,
        window: WINDOW,
        burst: 1,
        drive: Drive::Thread,
        wait: WaitArg::Hybrid,
        fabric: args.fabric,
        delivery: DeliveryArg::Upcall,
        logged: false,
    };
    let start = Instant::now();
    let mut cluster = Cluster::start(members, plan, probe::hop(Duration::ZERO)?.cores, None)?;
    let join_seconds = start.elapsed().as_secs_f64();
    cluster.slice(BUSY)?;
    thread::sleep(SETTLE);
    let (before, start) = (cluster.usage()?, Instant::now());
    thread::sleep(args.seconds);
    let (used, seconds) = (cluster.usage()?.since(before), start.elapsed().as_secs_f64());
    let private_bytes = cluster.private_bytes()?;
    cluster.finish()?;
    let wakes_per_second = used.voluntary as f64 / seconds;
    Ok(IdleRun {
        members,
        fabric: args.fabric,
        subgroups: args.subgroups,
        subgroup_members: span,
        seconds,
        join_seconds,
        cpu_percent: used.cpu_ns as f64 / 1e7 / seconds,
        wakes_per_second: wakes_per_second / f64::from(members),
        sleepers_cpu_percent: sleepers(members, wakes_per_second, args.seconds)?,
        private_bytes,
    })
}

fn print(runs: &[IdleRun], out: &mut impl Write) -> io::Result<()> {
    let mut table = TextTable::new(&[
        "idle members",
        "subgroups",
        "of",
        "joined s",
        "CPU, % of a core",
        "wake-ups/s each",
        "only to wake, %",
        "private MiB each",
    ]);
    for run in runs {
        table.row(vec![
            run.members.to_string(),
            run.subgroups.to_string(),
            run.subgroup_members.to_string(),
            format!("{:.2}", run.join_seconds),
            format!("{:.2}", run.cpu_percent),
            format!("{:.1}", run.wakes_per_second),
            format!("{:.2}", run.sleepers_cpu_percent),
            format!("{:.1}", run.private_bytes as f64 / f64::from(1 << 20)),
        ]);
    }
    table.print(out)
}
