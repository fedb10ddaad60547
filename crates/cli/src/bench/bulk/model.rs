//! `spindle bench bulk --fabric sim`: the block multicast in a model of a network. Nothing is sent:
//! the core's own sessions run on simulated hosts, with the costs of `spindle_sim::bulk::Network`.
//!
//! JSON:
//! - `fabric`; the costs `link_bytes_per_second`, `latency_ns`, `post_ns`, `input_ns`; `bytes`,
//!   `block_bytes`, `ahead`, `posts`, `blocks`;
//! - `runs`, one for each of `--members` (the root included): `members`, `ns`, `optimum_ns`
//!   (`blocks - 1 + ceil(log2 members)` times a block's), `over_optimum`, `bytes_per_second`,
//!   `of_one_receiver` (of the bandwidth that one receiver gets), `blocks`, `counters` (posts of
//!   each), `slow_link` and `slow_twin_link`;
//! - `slow_link` and `slow_twin_link`: the cost of one link at half speed, as a fraction of the
//!   bandwidth, the worst of those tried; absent with `--quick` or where there are no twins;
//! - `algorithms`, by name: `ns`;
//! - `roots`, of groups of the same members that send at the same time: `roots`, `bytes_per_second`
//!   of all together;
//! - `racks`: `racks`, `uplink_bytes_per_second`, `pipeline_ns`, `hybrid_ns`;
//! - `small`: `bytes`, `members`, `direct_ns`, `relayed_ns`.
use super::super::table::{TextTable, short};
use super::super::tell;
use super::BulkFabric;
use crate::exit::{CliError, FAILED};
use serde::Serialize;
use spindle_core::rdmc::{Algorithm, Racks, blocks};
use spindle_sim::Violation;
use spindle_sim::bulk::{BulkBench, NetworkModel, Uplinks};
use std::io::{self, Write};

/// The question put to the model.
#[derive(Debug)]
pub(super) struct ModelArgs {
    pub(super) fabric: BulkFabric,
    pub(super) members: Vec<u32>,
    pub(super) size: u64,
    pub(super) block: u64,
    pub(super) ahead: u32,
    pub(super) posts: u32,
    pub(super) quick: bool,
    pub(super) json: bool,
}

/// Largest number of blocks of an object. More take too long to simulate.
const BLOCKS_MAX: u32 = 1 << 16;
/// Number of links of each kind that are tried as the slow one, and largest group in which they are
/// tried.
const TRIES: usize = 64;
const SLOW_MEMBERS_MAX: u32 = 64;

#[derive(Debug, Serialize)]
struct ModelReport {
    bench: &'static str,
    fabric: BulkFabric,
    link_bytes_per_second: f64,
    latency_ns: u64,
    post_ns: u64,
    input_ns: u64,
    bytes: u64,
    block_bytes: u64,
    ahead: u32,
    posts: u32,
    blocks: u32,
    runs: Vec<ModelRun>,
    algorithms: Vec<NamedRun>,
    roots: Vec<Concurrent>,
    racks: Vec<InRacks>,
    small: Vec<Small>,
}

#[derive(Debug, Serialize)]
struct ModelRun {
    members: u32,
    ns: u64,
    optimum_ns: u64,
    over_optimum: f64,
    bytes_per_second: f64,
    of_one_receiver: f64,
    blocks: u64,
    counters: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_link: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_twin_link: Option<f64>,
}

#[derive(Debug, Serialize)]
struct NamedRun {
    algorithm: &'static str,
    members: u32,
    ns: u64,
}

#[derive(Debug, Serialize)]
struct Concurrent {
    members: u32,
    roots: u32,
    bytes_per_second: f64,
}

#[derive(Debug, Serialize)]
struct InRacks {
    members: u32,
    racks: u32,
    uplink_bytes_per_second: f64,
    pipeline_ns: u64,
    hybrid_ns: u64,
}

#[derive(Debug, Serialize)]
struct Small {
    bytes: u64,
    members: u32,
    direct_ns: u64,
    relayed_ns: u64,
}

/// Returns the reason why `args` make no sense, if there is one.
pub(super) fn refuse(args: &ModelArgs) -> Option<String> {
    let few = blocks(args.size, args.block).is_some_and(|blocks| blocks <= BLOCKS_MAX);
    (!few).then(|| {
        format!("--bytes is more than {BLOCKS_MAX} blocks, which take too long to simulate; give a larger --block")
    })
}

pub(super) fn run(args: &ModelArgs) -> Result<(), CliError> {
    let report = measure(args)
        .map_err(|violation| CliError::new(FAILED, format_args!("the model met a bug of the protocol: {violation}")))?;
    let told = tell(&report, args.json, |out| report.print(out));
    told.map_err(|error| CliError::new(FAILED, format_args!("the standard output takes no more: {error}")))
}

fn measure(args: &ModelArgs) -> Result<ModelReport, Violation> {
    let usual = |members| BulkBench {
        block_bytes: args.block,
        ahead: args.ahead,
        posts_max: args.posts,
        ..BulkBench::new(NetworkModel::rdma(members), args.size)
    };
    let rate = |ns: u64| args.size as f64 * 1e9 / ns as f64;
    let one = usual(2).run()?.ns;
    let mut runs = vec![];
    for members in args.members.iter().copied() {
        let bench = usual(members);
        let timing = bench.run()?;
        let slow = (!args.quick && members <= SLOW_MEMBERS_MAX).then(|| bench.slow_link(500, TRIES)).transpose()?;
        runs.push(ModelRun {
            members,
            ns: timing.ns,
            optimum_ns: timing.optimum_ns,
            over_optimum: timing.over_optimum(),
            bytes_per_second: rate(timing.ns),
            of_one_receiver: one as f64 / timing.ns as f64,
            blocks: timing.blocks,
            counters: timing.counters,
            slow_link: slow.map(|slow| slow.outside),
            slow_twin_link: slow.and_then(|slow| slow.twins),
        });
    }
    let mut algorithms = vec![];
    for members in [4, 16, 64] {
        for (algorithm, plan) in [
            ("binomial_pipeline", Algorithm::BinomialPipeline),
            ("chain", Algorithm::Chain),
            ("binomial_tree", Algorithm::BinomialTree),
            ("sequential", Algorithm::Sequential),
        ] {
            let ns = BulkBench { algorithm: plan, ..usual(members) }.run()?.ns;
            algorithms.push(NamedRun { algorithm, members, ns });
        }
    }
    let mut roots = vec![];
    for count in [1, 2, 4, 8] {
        let ns = BulkBench { roots: count, ..usual(8) }.run()?.ns;
        roots.push(Concurrent { members: 8, roots: count, bytes_per_second: f64::from(count) * rate(ns) });
    }
    let racks = [200_000, 100_000, 50_000, 25_000, 12_500].map(|uplink| in_racks(&usual(64), uplink));
    let mut small = vec![];
    for members in [4, 8, 16, 64] {
        for bytes in [1, 4 << 10, 16 << 10, 64 << 10] {
            let run = |direct_below| {
                let bench = BulkBench { direct_below, ..BulkBench::new(NetworkModel::rdma(members), bytes) };
                bench.run().map(|timing| timing.ns)
            };
            small.push(Small { bytes, members, direct_ns: run(u64::MAX)?, relayed_ns: run(0)? });
        }
    }
    let network = NetworkModel::rdma(2);
    Ok(ModelReport {
        bench: "bulk",
        fabric: args.fabric,
        link_bytes_per_second: network.bytes_per_us as f64 * 1e6,
        latency_ns: network.latency_ns,
        post_ns: network.post_ns,
        input_ns: network.input_ns,
        bytes: args.size,
        block_bytes: args.block,
        ahead: args.ahead,
        posts: args.posts,
        blocks: blocks(args.size, args.block).unwrap_or(u32::MAX),
        runs,
        algorithms,
        roots,
        racks: racks.into_iter().collect::<Result<_, _>>()?,
        small,
    })
}

/// Simulates four racks of 16 hosts. Each uplink carries `bytes_per_us`.
fn in_racks(usual: &BulkBench, bytes_per_us: u64) -> Result<InRacks, Violation> {
    let (racks, size) = (4, 16);
    let members = racks * size;
    let rack_of: Vec<u32> = (0..members).map(|host| host / size).collect();
    let hybrid = Algorithm::Hybrid(Racks::grouped(&rack_of));
    let network = NetworkModel { uplinks: Some(Uplinks { rack_of, bytes_per_us }), ..NetworkModel::rdma(members) };
    let run = |algorithm| {
        let bench = BulkBench { algorithm, network: network.clone(), ..usual.clone() };
        bench.run().map(|timing| timing.ns)
    };
    let uplink_bytes_per_second = bytes_per_us as f64 * 1e6;
    let (pipeline_ns, hybrid_ns) = (run(Algorithm::BinomialPipeline)?, run(hybrid)?);
    Ok(InRacks { members, racks, uplink_bytes_per_second, pipeline_ns, hybrid_ns })
}

impl ModelReport {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let ModelReport { link_bytes_per_second, latency_ns, post_ns, bytes, block_bytes, blocks, .. } = self;
        writeln!(
            out,
            "simulated, nothing is sent: links of {}B/s, {latency_ns} ns of latency, {post_ns} ns a post; one object of {bytes} bytes in \
             {blocks} blocks of {block_bytes}\n",
            short(*link_bytes_per_second)
        )?;
        let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let mut table = TextTable::new(&[
            "members",
            "ms",
            "over the optimum",
            "B/s",
            "of one receiver",
            "a slow link costs",
            "between twins",
        ]);
        for run in &self.runs {
            let cost = |cost: Option<f64>| cost.map_or("-".to_string(), percent);
            table.row(vec![
                run.members.to_string(),
                ms(run.ns),
                percent(run.over_optimum),
                short(run.bytes_per_second),
                format!("{:.2}", run.of_one_receiver),
                cost(run.slow_link),
                cost(run.slow_twin_link),
            ]);
        }
        table.print(out)?;
        writeln!(out, "\nother schedules, ms")?;
        let mut table = TextTable::new(&["members", "binomial pipeline", "chain", "binomial tree", "sequential"]);
        for row in self.algorithms.chunks(4) {
            let mut cells = vec![row[0].members.to_string()];
            cells.extend(row.iter().map(|run| ms(run.ns)));
            table.row(cells);
        }
        table.print(out)?;
        writeln!(out, "\nracks, ms")?;
        let mut table = TextTable::new(&["members, racks", "uplink B/s", "binomial pipeline", "hybrid"]);
        for InRacks { members, racks, uplink_bytes_per_second, pipeline_ns, hybrid_ns } in &self.racks {
            let uplink = short(*uplink_bytes_per_second);
            table.row(vec![format!("{members}, {racks}"), uplink, ms(*pipeline_ns), ms(*hybrid_ns)]);
        }
        table.print(out)?;
        writeln!(out, "\ngroups of the same members with different roots, at once")?;
        let mut table = TextTable::new(&["members", "roots", "B/s of all"]);
        for Concurrent { members, roots, bytes_per_second } in &self.roots {
            table.row(vec![members.to_string(), roots.to_string(), short(*bytes_per_second)]);
        }
        table.print(out)?;
        writeln!(out, "\nsmall objects, µs")?;
        let mut table = TextTable::new(&["members", "bytes", "direct", "relayed"]);
        for Small { bytes, members, direct_ns, relayed_ns } in &self.small {
            let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
            table.row(vec![members.to_string(), bytes.to_string(), us(*direct_ns), us(*relayed_ns)]);
        }
        table.print(out)
    }
}
