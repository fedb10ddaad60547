//! `spindle bench`: what the product does, beside what this machine can do at all.
//!
//! - [`limits`]: the raw ring, a cache-line hop, a futex wake, memcpy, the clock: two bare processes, no product.
//! - [`throughput`]: a stream among member processes. Every message is written in place in the ring by its sender, and
//!   every byte of it read in place, and checked, by every other member, at the upcall of its stable, ordered delivery.
//! - [`latency`]: one message in flight, from before its commit to that upcall at another member.
//!
//! - [`idle`]: what a group costs in which nothing is sent.
//! - [`views`]: how long a group stands still when its view changes.
//! - [`bulk`]: how long the block multicast takes, among processes or in a model of a network.
//! - [`scale`]: how small messages do in larger groups, in such a model.
//!
//! Members are processes of their own (a hidden subcommand, [`member`]), told what to do in [`wire`] lines over pipes by
//! their [`team`]. They run in *slices* of about 100 ms and block on the pipe between them.
//!
//! A ratio comes from interleaved slices: one of the reference (say the raw ring), one of the product, and a hop probe
//! before, between and after them. Some machines, virtual ones above all, change speed within seconds: a hop may
//! take 50 ns now and 250 ns in a moment. So a pair of slices counts only if its hop readings agree within 25 %, each pair
//! gives one ratio, and the report is their median with 10th and 90th percentile, in all and for each hop time that
//! was met ([`pairing`]).
mod args;
mod bulk;
mod clock;
mod idle;
mod latency;
mod limits;
mod member;
mod pairing;
mod scale;
mod table;
mod team;
mod throughput;
mod views;
mod wire;

use crate::exit::{Failure, Outcome, USAGE};
use crate::log::Verbosity;
use clap::Subcommand;
use serde::Serialize;
use std::io::{self, StdoutLock, Write};

/// `spindle bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    verbosity: Verbosity,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What this machine can do: raw ring, cache-line hop, futex wake, memcpy
    Limits(limits::Args),
    /// Messages and bytes per second of a stream in total order
    Throughput(throughput::Args),
    /// Time from commit to stable, ordered delivery, one message in flight
    Latency(latency::Args),
    /// CPU time, wake-ups and memory of a group in which nothing is sent
    Idle(idle::Args),
    /// How long a group stands still when members die, hang, leave and join
    Views(views::Args),
    /// How long large objects take by block multicast, among processes or in a model of a network
    Bulk(bulk::Args),
    /// How small messages do in groups of up to 64 members, in a model of a network: nothing is sent
    Scale(scale::Args),
    /// A member of `bench views`, started by it
    #[command(hide = true)]
    ViewsMember(views::member::Args),
    /// A member of `bench bulk`, started by it
    #[command(hide = true)]
    BulkMember,
    /// A member of a benchmark, started by it
    #[command(hide = true)]
    Member,
}

/// The runs of a benchmark.
#[derive(Debug, Serialize)]
struct Report<R> {
    bench: &'static str,
    cores: u32,
    runs: Vec<R>,
}

/// Prints a report: as JSON, or as `table` has it.
fn tell(
    report: &impl Serialize,
    json: bool,
    table: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json { writeln!(out, "{}", serde_json::to_string_pretty(report)?) } else { table(&mut out) }
}

/// Runs the benchmark and prints its report.
pub(crate) fn run(args: Args) -> Outcome {
    let nonsense = match &args.what {
        What::Limits(args) => limits::refuse(args),
        What::Throughput(args) => throughput::refuse(args),
        What::Latency(args) => latency::refuse(args),
        What::Bulk(args) => bulk::refuse(args),
        What::Scale(args) => scale::refuse(args),
        What::Idle(_) | What::Views(_) | What::ViewsMember(_) | What::BulkMember | What::Member => None,
    };
    if let Some(nonsense) = nonsense {
        return Err(Failure::new(USAGE, nonsense));
    }
    args.verbosity.begin(false)?;
    match args.what {
        What::Limits(args) => limits::run(&args)?,
        What::Throughput(args) => throughput::run(&args)?,
        What::Latency(args) => latency::run(&args)?,
        What::Idle(args) => idle::run(&args)?,
        What::Views(args) => views::run(&args)?,
        What::Bulk(args) => bulk::run(&args)?,
        What::Scale(args) => scale::run(&args)?,
        What::ViewsMember(args) => views::member::run(&args)?,
        What::BulkMember => bulk::member::run()?,
        What::Member => member::run()?,
    }
    Ok(())
}
