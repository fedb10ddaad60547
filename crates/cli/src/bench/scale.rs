//! `spindle bench scale`: the speed of small messages in groups of up to 64 members, in a model of
//! a network.
//!
//! Nothing is sent: the core's own engines run on simulated hosts, with the costs of
//! `spindle_sim::small::Costs`. The caller has to name the fabric, so that these figures are not
//! mistaken for measured ones.
//!
//! JSON: `fabric`, `network`, `costs` (bytes per µs and ns, as in `Costs`), and `runs`, one for
//! each of `--members`, `--size` and `--senders`:
//! - `members`, `senders` (how many), `size_bytes`, `window`, `burst`;
//! - `messages_per_second` (of the order: deliveries per member), `bytes_per_second`;
//! - `link_use` and `processor_use` (of the busiest, as fractions);
//! - `batches_per_message` (of all members, handed to NICs), `messages_per_delivery`;
//! - `latency_ns` (median, from commit to delivery elsewhere, under that load);
//! - `lone_latency_ns` (median) and `lone_latency_max_ns`, with one message at a time.
use super::args::SendersArg;
use super::table::{TextTable, short};
use super::tell;
use crate::exit::{CliError, FAILED};
use crate::quantity::bytes;
use clap::ValueEnum;
use serde::Serialize;
use spindle_core::limits::MESSAGE_BYTES_MAX;
use spindle_sim::Violation;
use spindle_sim::small::{Costs, SmallBench};
use std::io::{self, Write};

/// Options of `spindle bench scale`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The transport; only the simulator is possible here: the figures are those of a model,
    /// nothing is sent
    #[arg(long, value_enum)]
    fabric: ScaleFabric,
    /// The network whose costs the model uses
    #[arg(long, value_enum, default_value_t = NetworkCosts::Rdma)]
    network: NetworkCosts,
    /// Members, a list
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "2,4,8,16,32,64",
        value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Bytes of a message, a list
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = bytes, default_value = "128,10k")]
    size: Vec<u64>,
    /// The members that send, a list
    #[arg(long, value_enum, value_delimiter = ',', default_value = "one,all")]
    senders: Vec<SendersArg>,
    /// Messages that each sender may have on the way [default: as many as fit 1M, at most 1000]
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    window: Option<u64>,
    /// Messages that a sender builds between two polls, at most [default: 128k of messages, at most
    /// 256]
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    burst: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The transport between members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum ScaleFabric {
    /// The simulator's model of NICs and processors
    Sim,
}

/// A set of costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum NetworkCosts {
    /// One-sided writes at 12.5 GB/s
    Rdma,
    /// Streams through a kernel on the same links
    Tcp,
}

/// Largest window in bytes, over all its members. A larger one takes too long to simulate.
const WINDOW_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Serialize)]
struct ScaleReport {
    bench: &'static str,
    fabric: ScaleFabric,
    network: NetworkCosts,
    costs: CostsTold,
    runs: Vec<ScaleRun>,
}

#[derive(Debug, Serialize)]
struct CostsTold {
    link_bytes_per_second: f64,
    latency_ns: u64,
    range_bytes: u64,
    write_ns: u64,
    range_ns: u64,
    read_ns: u64,
    /// `null`: nothing is copied.
    copy_bytes_per_second: Option<f64>,
    buffer_bytes: u64,
    poll_ns: u64,
    look_ns: u64,
    build_ns: u64,
    deliver_ns: u64,
}

#[derive(Debug, Serialize)]
struct ScaleRun {
    members: u32,
    senders: u32,
    size_bytes: u64,
    window: u64,
    burst: u64,
    messages_per_second: f64,
    bytes_per_second: f64,
    link_use: f64,
    processor_use: f64,
    batches_per_message: f64,
    messages_per_delivery: f64,
    latency_ns: u64,
    lone_latency_ns: u64,
    lone_latency_max_ns: u64,
}

/// Returns the reason why `args` make no sense, if there is one.
pub(super) fn refuse(args: &Args) -> Option<String> {
    let largest = *args.size.iter().max()?;
    if largest > MESSAGE_BYTES_MAX {
        return Some(format!("--size {largest}: a message has at most {}M", MESSAGE_BYTES_MAX >> 20));
    }
    let window = args.window.unwrap_or_else(|| SmallBench::new(Costs::rdma(), 2, largest).window);
    let is_large = window.saturating_mul(largest) > WINDOW_BYTES_MAX;
    is_large.then(|| format!("a window of {window} messages of {largest} bytes takes too long to simulate; give less"))
}

pub(super) fn run(args: &Args) -> Result<(), CliError> {
    let report = measure(args)
        .map_err(|violation| CliError::new(FAILED, format_args!("the model met a bug of the protocol: {violation}")))?;
    let told = tell(&report, args.json, |out| report.print(out));
    told.map_err(|error| CliError::new(FAILED, format_args!("the standard output takes no more: {error}")))
}

fn measure(args: &Args) -> Result<ScaleReport, Violation> {
    let costs = match args.network {
        NetworkCosts::Rdma => Costs::rdma(),
        NetworkCosts::Tcp => Costs::tcp(),
    };
    let mut runs = vec![];
    for &size in &args.size {
        for &senders in &args.senders {
            for &members in &args.members {
                let usual = SmallBench::new(costs, members, size);
                let window = args.window.unwrap_or(usual.window);
                let burst = args.burst.unwrap_or(usual.burst);
                runs.push(one(&SmallBench { senders: senders.of(members), window, burst, ..usual })?);
            }
        }
    }
    Ok(ScaleReport { bench: "scale", fabric: args.fabric, network: args.network, costs: told(&costs), runs })
}

fn one(bench: &SmallBench) -> Result<ScaleRun, Violation> {
    let (flood, lone) = (bench.flood()?, bench.one_in_flight()?);
    Ok(ScaleRun {
        members: bench.members,
        senders: bench.senders,
        size_bytes: bench.size,
        window: bench.window,
        burst: bench.burst,
        messages_per_second: flood.messages_per_second,
        bytes_per_second: flood.messages_per_second * bench.size as f64,
        link_use: flood.link_use,
        processor_use: flood.processor_use,
        batches_per_message: flood.batches_per_message,
        messages_per_delivery: flood.messages_per_delivery,
        latency_ns: flood.latency_ns,
        lone_latency_ns: lone.latency_ns,
        lone_latency_max_ns: lone.latency_max_ns,
    })
}

fn told(costs: &Costs) -> CostsTold {
    let per_second = |bytes_per_us: u64| bytes_per_us as f64 * 1e6;
    CostsTold {
        link_bytes_per_second: per_second(costs.bytes_per_us),
        latency_ns: costs.latency_ns,
        range_bytes: costs.range_bytes,
        write_ns: costs.write_ns,
        range_ns: costs.range_ns,
        read_ns: costs.read_ns,
        copy_bytes_per_second: (costs.copy_bytes_per_us > 0).then(|| per_second(costs.copy_bytes_per_us)),
        buffer_bytes: costs.buffer_bytes,
        poll_ns: costs.poll_ns,
        look_ns: costs.look_ns,
        build_ns: costs.build_ns,
        deliver_ns: costs.deliver_ns,
    }
}

impl ScaleReport {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let CostsTold { link_bytes_per_second, latency_ns, write_ns, range_ns, .. } = &self.costs;
        let kind = match self.network {
            NetworkCosts::Rdma => "one-sided writes",
            NetworkCosts::Tcp => "streams through a kernel",
        };
        writeln!(
            out,
            "simulated, nothing is sent: {kind}, links of {}B/s, {latency_ns} ns of latency, {} ns a post; one processor a member\n",
            short(*link_bytes_per_second),
            write_ns + range_ns
        )?;
        let heads =
            ["bytes, senders, members", "messages/s", "B/s", "link", "processor", "batch", "µs", "µs, one at a time"];
        let mut table = TextTable::new(&heads);
        for run in &self.runs {
            let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
            let percent = |part: f64| format!("{:.0} %", part * 100.0);
            table.row(vec![
                format!("{}, {}, {}", run.size_bytes, run.senders, run.members),
                short(run.messages_per_second),
                short(run.bytes_per_second),
                percent(run.link_use),
                percent(run.processor_use),
                format!("{:.0}", run.messages_per_delivery),
                us(run.latency_ns),
                us(run.lone_latency_ns),
            ]);
        }
        table.print(out)
    }
}
