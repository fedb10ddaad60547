//! `spindle bench limits`: the speed that two bare processes reach on this machine, without the
//! product.
//!
//! Keys of `--json`:
//! - `cores`; `ring_bytes`; `clock_read_ns`; `clock_step_ns`;
//! - `raw_ring`, by block size: `block_bytes`, `blocks_per_second` and `bytes_per_second` (median
//!   over short slices), `blocks_per_second_min` and `_max`, `hop_ns` (median of the hop times read
//!   beside the slices), `slices`;
//! - `hop_ns`, `futex_wake_ns` (the sleeper was woken as soon as it slept), `futex_wake_rested_ns`
//!   (after 1 ms), `stream_round_trip_ns` (a byte back and forth over a TCP stream on loopback,
//!   both ends spinning) and `stream_round_trip_blocking_ns` (both ends asleep while they wait),
//!   each with `samples`, `min`, `p50`, `p90`, `p99`, `p999`, `max`;
//! - `stream`, a plain TCP stream between two processes, by bytes of a write: `block_bytes`,
//!   `blocks_per_second`, `bytes_per_second`;
//! - `memcpy`, by size of the buffer: `bytes`, `bytes_per_second` (each byte copied counts once).
use super::args::{RING_BYTES, cores};
use super::pairing::quantile;
use super::table::{TextTable, short};
use super::tell;
use super::wire::{BenchPlan, SliceJob};
use crate::quantity::{bytes, seconds};
use serde::Serialize;
use spindle_fabric::probe::{self, Percentiles, ProbeError, StreamRate};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Options of `spindle bench limits`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Bytes of a block, a list
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = bytes, default_value = "16,128,1k,10k")]
    size: Vec<u64>,
    /// Bytes of the raw ring
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value_t = RING_BYTES)]
    ring: u64,
    /// How long to measure each limit
    #[arg(long, value_parser = seconds, default_value = "1")]
    seconds: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Length of one slice of the raw ring.
const SLICE: Duration = Duration::from_millis(100);
/// Length of one reading of the hop time beside a slice.
const HOP: Duration = Duration::from_millis(2);
/// How long a process sleeps before it is woken, so that its core is idle too.
pub(super) const REST: Duration = Duration::from_millis(1);
const MEMCPY_BYTES: [u64; 3] = [10 << 10, 4 << 20, 256 << 20];

#[derive(Debug, Serialize)]
struct LimitsReport {
    bench: &'static str,
    cores: u32,
    ring_bytes: u64,
    raw_ring: Vec<RawRingReport>,
    hop_ns: SampleSpread,
    futex_wake_ns: SampleSpread,
    futex_wake_rested_ns: SampleSpread,
    stream_round_trip_ns: SampleSpread,
    stream_round_trip_blocking_ns: SampleSpread,
    stream: Vec<StreamThroughput>,
    memcpy: Vec<MemcpyThroughput>,
    clock_read_ns: f64,
    clock_step_ns: u64,
}

#[derive(Debug, Serialize)]
struct RawRingReport {
    block_bytes: u64,
    blocks_per_second: f64,
    bytes_per_second: f64,
    blocks_per_second_min: f64,
    blocks_per_second_max: f64,
    hop_ns: f64,
    slices: u64,
}

#[derive(Debug, Serialize)]
struct StreamThroughput {
    block_bytes: u64,
    blocks_per_second: f64,
    bytes_per_second: f64,
}

#[derive(Debug, Serialize)]
struct MemcpyThroughput {
    bytes: u64,
    bytes_per_second: f64,
}

#[derive(Debug, Serialize)]
struct SampleSpread {
    samples: u64,
    min: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl From<Percentiles> for SampleSpread {
    fn from(of: Percentiles) -> SampleSpread {
        let Percentiles { samples, min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = of;
        SampleSpread { samples, min: min_ns, p50: p50_ns, p90: p90_ns, p99: p99_ns, p999: p999_ns, max: max_ns }
    }
}

/// Returns the current one-way hop time, in ns.
pub(super) fn hop_ns() -> Result<f64, ProbeError> {
    Ok(probe::hop(HOP)?.one_way.p50_ns)
}

/// Returns the size of each sender's ring under `plan`, in bytes.
pub(super) fn ring_bytes(plan: &BenchPlan) -> u64 {
    spindle_core::Ring::new(0, plan.window, plan.size).capacity
}

/// Returns the default number of messages claimed between two polls. They are few enough that the
/// other member does not wait for them, and so many that a poll costs little beside them.
pub(super) fn default_burst(size: u64, job: SliceJob) -> u64 {
    match job {
        SliceJob::Stream => (BURST_BYTES / size.max(1)).clamp(1, BURST_MAX),
        _ => 1,
    }
}

/// Bytes of messages claimed between two polls, measured with rings of 1 MiB. More gains little at
/// any size. 64 KiB costs a twentieth at 1 KiB and 10 KiB between near cores, and 16 KiB a quarter.
const BURST_BYTES: u64 = 128 << 10;
const BURST_MAX: u64 = 256;

/// Returns the reason why the arguments make no sense together, if there is one.
pub(super) fn refuse(args: &Args) -> Option<String> {
    let size = args.size.iter().find(|size| **size > args.ring / 2)?;
    Some(format!("--size {size} is more than half of --ring {}", args.ring))
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut memcpy = Vec::new();
    for bytes in MEMCPY_BYTES {
        let bytes_per_second = probe::memcpy(bytes, args.seconds / 3)?.bytes_per_second;
        memcpy.push(MemcpyThroughput { bytes, bytes_per_second });
    }
    let clock = probe::clock();
    let report = LimitsReport {
        bench: "limits",
        cores: cores(),
        ring_bytes: args.ring,
        raw_ring: raw_rings(args)?,
        hop_ns: probe::hop(args.seconds)?.one_way.into(),
        futex_wake_ns: probe::futex_wake(args.seconds, Duration::ZERO)?.wake.into(),
        futex_wake_rested_ns: probe::futex_wake(args.seconds, REST)?.wake.into(),
        stream_round_trip_ns: probe::stream_round_trip(false, args.seconds)?.round_trip.into(),
        stream_round_trip_blocking_ns: probe::stream_round_trip(true, args.seconds)?.round_trip.into(),
        stream: args.size.iter().filter(|size| **size > 0).map(|&size| stream(args, size)).collect::<Result<_, _>>()?,
        memcpy,
        clock_read_ns: clock.read_ns,
        clock_step_ns: clock.step_ns,
    };
    Ok(tell(&report, args.json, |out| report.print(out))?)
}

fn stream(args: &Args, block_bytes: u64) -> Result<StreamThroughput, ProbeError> {
    let StreamRate { blocks_per_second, bytes_per_second, .. } = probe::stream(block_bytes, args.seconds)?;
    Ok(StreamThroughput { block_bytes, blocks_per_second, bytes_per_second })
}

/// Measures all sizes in turns, so that each size runs in the same modes of the machine.
fn raw_rings(args: &Args) -> anyhow::Result<Vec<RawRingReport>> {
    let mut rates = vec![Vec::new(); args.size.len()];
    let mut hops = rates.clone();
    let slice = SLICE.min(args.seconds);
    let until = Instant::now() + args.seconds * args.size.len() as u32;
    while rates.iter().any(Vec::is_empty) || Instant::now() < until {
        for (i, &size) in args.size.iter().enumerate() {
            rates[i].push(probe::raw_ring(size, args.ring, slice)?.blocks_per_second);
            hops[i].push(hop_ns()?);
        }
    }
    let rings = args.size.iter().zip(rates.iter().zip(&hops)).map(|(&block_bytes, (rates, hops))| {
        let blocks_per_second = quantile(rates, 0.5);
        RawRingReport {
            block_bytes,
            blocks_per_second,
            bytes_per_second: blocks_per_second * block_bytes as f64,
            blocks_per_second_min: quantile(rates, 0.0),
            blocks_per_second_max: quantile(rates, 1.0),
            hop_ns: quantile(hops, 0.5),
            slices: rates.len() as u64,
        }
    });
    Ok(rings.collect())
}

impl LimitsReport {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{} cores; raw ring of {} bytes\n", self.cores, self.ring_bytes)?;
        let mut table = TextTable::new(&["raw ring", "blocks/s", "slowest", "fastest", "bytes/s", "hop ns"]);
        for ring in &self.raw_ring {
            let rates = [ring.blocks_per_second, ring.blocks_per_second_min, ring.blocks_per_second_max];
            let mut cells = vec![format!("{} B", ring.block_bytes)];
            cells.extend(rates.map(short));
            cells.extend([short(ring.bytes_per_second), format!("{:.0}", ring.hop_ns)]);
            table.row(cells);
        }
        table.print(out)?;
        writeln!(out)?;
        let mut table = TextTable::new(&["ns", "min", "p50", "p90", "p99", "p99.9", "max"]);
        let waits = [
            ("cache-line hop, one way", &self.hop_ns),
            ("futex wake, just asleep", &self.futex_wake_ns),
            ("futex wake, asleep for 1 ms", &self.futex_wake_rested_ns),
            ("TCP round trip, spinning", &self.stream_round_trip_ns),
            ("TCP round trip, blocking", &self.stream_round_trip_blocking_ns),
        ];
        for (name, spread) in waits {
            let values = [spread.min, spread.p50, spread.p90, spread.p99, spread.p999, spread.max];
            table.row([name.to_string()].into_iter().chain(values.map(|ns| format!("{ns:.0}"))).collect());
        }
        table.print(out)?;
        writeln!(out)?;
        let mut table = TextTable::new(&["TCP stream", "writes/s", "bytes/s"]);
        for stream in &self.stream {
            let rates = [stream.blocks_per_second, stream.bytes_per_second].map(short);
            table.row([format!("{} B", stream.block_bytes)].into_iter().chain(rates).collect());
        }
        table.print(out)?;
        writeln!(out)?;
        let mut table = TextTable::new(&["memcpy", "bytes/s"]);
        for copied in &self.memcpy {
            table.row(vec![format!("{} B", copied.bytes), short(copied.bytes_per_second)]);
        }
        table.print(out)?;
        writeln!(
            out,
            "\nreading the clock takes {:.1} ns; it moves in steps of {} ns",
            self.clock_read_ns, self.clock_step_ns
        )
    }
}
