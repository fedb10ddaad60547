//! `spindle bench bulk --fabric tcp` and `shm`: objects from one process to others on this machine.
//!
//! A trial begins when the root hands its object to the library and ends when the last receiver has
//! it. Both times are on the machine's monotonic clock, which all processes share. GB/s are the
//! object's bytes, once, over that time.
//!
//! The time does not include the creation of the object, or the allocation of memory at the
//! receivers. They keep that memory from one trial to the next. Each trial also compares the
//! digests of sent and received bytes, which is not timed either. Each trial is followed by one of
//! the reference, and ratios are medians over such pairs.
//!
//! - tcp: receivers have the object in memory of their own. The reference is one plain TCP stream
//!   over the loopback device, from the root to one process, written in pieces of 256 KiB.
//! - shm: receivers map the root's memory. `read`: until each has read all bytes there, as 8-byte
//!   words that it sums; `copied`: until each has copied them into memory of its own, which is the
//!   result that other libraries give; `lent`: until it is mapped. The reference is a copy of as
//!   many bytes by the root alone.
//!
//! JSON: `fabric`, `cores`, `block_bytes`, `ahead`, `posts`, `direct_below`, `waiting`, and `runs`,
//! one for each of `--members` and `--bytes`:
//! - `algorithm` (tcp), `members`, `receivers`, `bytes`, `trials`;
//! - `bytes_per_second` (with `_min`, `_max`; shm: of `read`), `reference_bytes_per_second`, and
//!   the ratio of the first to the second: `stream_ratio` (tcp) or `memcpy_ratio` (shm);
//! - `rack_crossings`, with `--racks`: bytes sent from one rack to another, over those of the
//!   object;
//! - `cpu_seconds`, of all processes together, for one object;
//! - shm: `copied_bytes_per_second`, `lent_bytes_per_second`.
use super::super::args::cores;
use super::super::pairing::quantile;
use super::super::table::{TextTable, short};
use super::super::tell;
use super::cluster::BulkCluster;
use super::wire::{BulkJob, BulkPlan};
use super::{AlgorithmArg, Args, BulkFabric, WaitMode};
use crate::exit::{CliError, FAILED};
use serde::Serialize;
use spindle::bulk::BulkSettings;
use std::io::{self, Write};

/// Largest number of processes that are started at once.
pub(super) const MEMBERS_MAX: u32 = 64;

#[derive(Debug, Serialize)]
struct BulkReport {
    bench: &'static str,
    fabric: BulkFabric,
    cores: u32,
    block_bytes: u64,
    ahead: u32,
    posts: u32,
    direct_below: u64,
    waiting: WaitMode,
    runs: Vec<BulkRun>,
}

#[derive(Debug, Serialize)]
struct BulkRun {
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<AlgorithmArg>,
    members: u32,
    receivers: u32,
    bytes: u64,
    trials: u32,
    bytes_per_second: f64,
    bytes_per_second_min: f64,
    bytes_per_second_max: f64,
    reference_bytes_per_second: f64,
    cpu_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rack_crossings: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memcpy_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copied_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lent_bytes_per_second: Option<f64>,
}

pub(super) fn run(args: &Args) -> Result<(), CliError> {
    let report = measure(args).map_err(|error| CliError::new(FAILED, format_args!("{error:#}")))?;
    let told = tell(&report, args.json, |out| report.print(out));
    told.map_err(|error| CliError::new(FAILED, format_args!("the standard output takes no more: {error}")))
}

/// Returns an error if the members need more memory than is available, because each member has the
/// object in its own memory at some time. The kernel would not refuse the memory, but kill
/// processes for it.
pub(super) fn refuse(args: &Args, available: Option<u64>) -> Option<String> {
    let (members, bytes) = work(args);
    let (members, bytes, available) = (*members.iter().max()?, *bytes.iter().max()?, available?);
    let needed = u128::from(members) * u128::from(bytes);
    (needed > u128::from(available)).then(|| {
        format!(
            "{members} members with {bytes} bytes each take {needed} bytes of memory, and {available} are available; lower --bytes or \
             --members"
        )
    })
}

/// Returns the numbers of members, and the lengths of objects.
fn work(args: &Args) -> (&[u32], &[u64]) {
    let members = if args.members.is_empty() { &[5, 9, 17][..] } else { &args.members };
    let bytes = if args.bytes.is_empty() { &[1 << 20, 16 << 20, 64 << 20, 256 << 20][..] } else { &args.bytes };
    (members, bytes)
}

fn measure(args: &Args) -> anyhow::Result<BulkReport> {
    let Args { fabric, racks, block, ahead, posts, direct, waiting, .. } = *args;
    let (members, bytes) = work(args);
    let mut runs = vec![];
    for members in members {
        let usual = if racks.is_some() { AlgorithmArg::Hybrid } else { AlgorithmArg::Pipeline };
        let algorithm = args.algorithm.unwrap_or(usual);
        let mut cluster =
            BulkCluster::start(*members, BulkPlan { fabric, algorithm, racks, block, ahead, posts, direct, waiting })?;
        for bytes in bytes {
            let algorithm = (fabric == BulkFabric::Tcp).then_some(algorithm);
            runs.push(BulkRun { algorithm, ..trials(&mut cluster, *members, *bytes, args)? });
        }
        cluster.finish()?;
    }
    let usual = BulkSettings::default();
    Ok(BulkReport {
        bench: "bulk",
        fabric,
        cores: cores(),
        block_bytes: block.unwrap_or(usual.block_bytes),
        ahead: ahead.unwrap_or(usual.ahead),
        posts: posts.unwrap_or(usual.posts_max),
        direct_below: direct.unwrap_or(usual.direct_below),
        waiting,
        runs,
    })
}

fn trials(cluster: &mut BulkCluster, members: u32, bytes: u64, args: &Args) -> anyhow::Result<BulkRun> {
    let is_shm = args.fabric == BulkFabric::Shm;
    let (job, reference) =
        if is_shm { (BulkJob::Read, BulkJob::Memcpy) } else { (BulkJob::Multicast, BulkJob::Stream) };
    let (mut cpu, mut crossings) = (vec![], vec![]);
    let mut rate = |what| {
        let took = cluster.run(bytes, what)?;
        if what == job {
            cpu.push(took.cpu_seconds);
            crossings.push(took.across as f64 / bytes as f64);
        }
        Ok::<_, anyhow::Error>(bytes as f64 / took.seconds)
    };
    // The first trial of each kind touches fresh memory, so it does not count.
    rate(job)?;
    rate(reference)?;
    let (mut rates, mut references, mut ratios) = (vec![], vec![], vec![]);
    let (mut copied, mut lent) = (vec![], vec![]);
    for _ in 0..args.trials {
        let (ours, theirs) = (rate(job)?, rate(reference)?);
        rates.push(ours);
        references.push(theirs);
        ratios.push(ours / theirs);
        if is_shm {
            copied.push(rate(BulkJob::Copy)?);
            lent.push(rate(BulkJob::Multicast)?);
        }
    }
    let ratio = quantile(&ratios, 0.5);
    Ok(BulkRun {
        algorithm: None,
        members,
        receivers: members - 1,
        bytes,
        trials: args.trials,
        bytes_per_second: quantile(&rates, 0.5),
        bytes_per_second_min: quantile(&rates, 0.0),
        bytes_per_second_max: quantile(&rates, 1.0),
        reference_bytes_per_second: quantile(&references, 0.5),
        cpu_seconds: quantile(&cpu, 0.5),
        stream_ratio: (!is_shm).then_some(ratio),
        rack_crossings: args.racks.map(|_| quantile(&crossings, 0.5)),
        memcpy_ratio: is_shm.then_some(ratio),
        copied_bytes_per_second: is_shm.then(|| quantile(&copied, 0.5)),
        lent_bytes_per_second: is_shm.then(|| quantile(&lent, 0.5)),
    })
}

impl BulkReport {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let BulkReport { cores, block_bytes, ahead, posts, .. } = self;
        let is_shm = self.fabric == BulkFabric::Shm;
        if is_shm {
            writeln!(out, "{cores} cores; receivers read the root's memory in place, and copy out of it\n")?;
        } else {
            writeln!(out, "{cores} cores; blocks of {block_bytes} bytes, ready for {ahead}, {posts} posted\n",)?;
        }
        let heads: &[&str] = if is_shm {
            &[
                "receivers",
                "bytes",
                "read B/s",
                "slowest",
                "fastest",
                "memcpy B/s",
                "ratio",
                "CPU ms",
                "copied B/s",
                "lent B/s",
            ]
        } else {
            &[
                "schedule, receivers",
                "bytes",
                "B/s",
                "slowest",
                "fastest",
                "one stream B/s",
                "ratio",
                "CPU ms",
                "between racks",
            ]
        };
        let has_racks = self.runs.iter().any(|run| run.rack_crossings.is_some());
        let mut table = TextTable::new(if is_shm || has_racks { heads } else { &heads[..heads.len() - 1] });
        for run in &self.runs {
            let receivers = match run.algorithm {
                Some(algorithm) => format!("{algorithm:?}, {}", run.receivers).to_lowercase(),
                None => run.receivers.to_string(),
            };
            let mut cells = vec![receivers, run.bytes.to_string()];
            let rates = [run.bytes_per_second, run.bytes_per_second_min, run.bytes_per_second_max];
            cells.extend(rates.into_iter().chain([run.reference_bytes_per_second]).map(short));
            cells.extend(run.stream_ratio.or(run.memcpy_ratio).map(|ratio| format!("{ratio:.2}")));
            cells.push(format!("{:.1}", run.cpu_seconds * 1e3));
            cells.extend(run.rack_crossings.map(|times| format!("{times:.2} times")));
            cells.extend([run.copied_bytes_per_second, run.lent_bytes_per_second].into_iter().flatten().map(short));
            table.row(cells);
        }
        table.print(out)
    }
}
