//! `spindle bench`: the speed of the product, beside the limits of this machine.
//!
//! - [`limits`]: the raw ring, a cache-line hop, a futex wake, memcpy, the clock: two bare
//!   processes, no product.
//! - [`throughput`]: a stream among member processes. The sender of a message writes it in place in
//!   the ring. Every other member reads and checks every byte in place, at the upcall of its
//!   stable, ordered delivery.
//! - [`latency`]: one message in flight, from before its commit to that upcall at another member.
//!
//! - [`idle`]: the cost of a group in which nothing is sent.
//! - [`views`]: how long a group stops delivering when its view changes.
//! - [`bulk`]: how long the block multicast takes, among processes or in a model of a network.
//! - [`scale`]: the speed of small messages in larger groups, in such a model.
//! - [`recovery`]: how fast a log is recovered and read, without members.
//!
//! Members are processes of their own (a hidden subcommand, [`member`]). Their [`cluster`] sends them
//! orders in [`wire`] lines over pipes. They run in *slices* of about 100 ms and block on the pipe
//! between slices.
//!
//! A ratio comes from interleaved slices: one of the reference (for example the raw ring), one of
//! the product, and a hop probe before, between and after them. Some machines, above all virtual
//! ones, change speed within seconds: a hop may take 50 ns now and 250 ns a moment later. So a pair
//! of slices counts only if its hop readings agree within 25 %, and each pair gives one ratio. The
//! report contains the median of these ratios with the 10th and 90th percentile, over all pairs and
//! for each hop time that occurred ([`pairing`]).
mod args;
mod bulk;
mod clock;
mod cluster;
mod idle;
mod latency;
mod limits;
mod member;
mod pairing;
mod raw_disk;
mod recovery;
mod scale;
mod table;
mod throughput;
mod views;
mod wire;

use crate::exit::{CliError, CliResult, USAGE};
use crate::log::Verbosity;
use clap::Subcommand;
use serde::Serialize;
use std::io::{self, StdoutLock, Write};

/// `spindle bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: BenchCommand,

    #[command(flatten)]
    verbosity: Verbosity,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// The limits of this machine: raw ring, cache-line hop, futex wake, memcpy
    Limits(limits::Args),
    /// Messages and bytes per second of a stream in total order
    Throughput(throughput::Args),
    /// Time from commit to stable, ordered delivery, one message in flight
    Latency(latency::Args),
    /// CPU time, wake-ups and memory of a group in which nothing is sent
    Idle(idle::Args),
    /// How long a group stops delivering when members die, hang, leave and join
    Views(views::Args),
    /// How long large objects take by block multicast, among processes or in a model of a network
    Bulk(bulk::Args),
    /// The speed of small messages in groups of up to 64 members, in a model of a network: nothing
    /// is sent
    Scale(scale::Args),
    /// How fast a log is recovered, replayed and read at points, beside plain reads of its files
    Recovery(recovery::Args),
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
struct BenchReport<R> {
    bench: &'static str,
    cores: u32,
    runs: Vec<R>,
}

/// Prints a report as JSON, or in the form that `table` writes.
fn tell(
    report: &impl Serialize,
    json: bool,
    table: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json { writeln!(out, "{}", serde_json::to_string_pretty(report)?) } else { table(&mut out) }
}

/// Runs the benchmark and prints its report.
pub(crate) fn run(args: Args) -> CliResult {
    let nonsense = match &args.what {
        BenchCommand::Limits(args) => limits::refuse(args),
        BenchCommand::Throughput(args) => throughput::refuse(args),
        BenchCommand::Latency(args) => latency::refuse(args),
        BenchCommand::Bulk(args) => bulk::refuse(args),
        BenchCommand::Scale(args) => scale::refuse(args),
        BenchCommand::Recovery(args) => recovery::refuse(args),
        BenchCommand::Idle(_)
        | BenchCommand::Views(_)
        | BenchCommand::ViewsMember(_)
        | BenchCommand::BulkMember
        | BenchCommand::Member => None,
    };
    if let Some(nonsense) = nonsense {
        return Err(CliError::new(USAGE, nonsense));
    }
    args.verbosity.begin(false)?;
    match args.what {
        BenchCommand::Limits(args) => limits::run(&args)?,
        BenchCommand::Throughput(args) => throughput::run(&args)?,
        BenchCommand::Latency(args) => latency::run(&args)?,
        BenchCommand::Idle(args) => idle::run(&args)?,
        BenchCommand::Views(args) => views::run(&args)?,
        BenchCommand::Bulk(args) => bulk::run(&args)?,
        BenchCommand::Scale(args) => scale::run(&args)?,
        BenchCommand::Recovery(args) => recovery::run(&args)?,
        BenchCommand::ViewsMember(args) => views::run_member(&args)?,
        BenchCommand::BulkMember => bulk::member::run()?,
        BenchCommand::Member => member::run()?,
    }
    Ok(())
}
