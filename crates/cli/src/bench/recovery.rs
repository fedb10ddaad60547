//! `spindle bench recovery`: how fast a log is recovered and read, beside plain reads of its files.
//!
//! It writes a log of one member, as long as `--bytes`, in a directory of its own. A recovery opens it
//! as a member does that starts: it reads all segments, checks every record, and builds the index. A
//! replay then reads all records in order, which an application applies to its state. The reference
//! reads the same files from begin to end, 1 MiB at a time.
//!
//! Before each of the three, the files' pages are dropped from the page cache. That takes no
//! privileges, and a kernel may keep some: `cached_percent` says how much was still in memory, and
//! where it is more than a little, the disk was not measured. With `--warm` nothing is dropped.
//!
//! Point reads are of random records, by version and by time, when all of the log has just been read.
//!
//! Keys of `--json`: `bench`, `cores`, and `runs`, one for each of `--size`:
//! - `size_bytes` (of a record's payload), `records`, `bytes` (that a recovery reads), `segments`,
//!   `trials`;
//! - `written_bytes_per_second`: appends of 4 MiB, each synced;
//! - `read_bytes_per_second`, `recovery_bytes_per_second`, `replay_bytes_per_second`: medians;
//! - `recovery_ratio`, `replay_ratio`: to the plain read of the same trial, medians; `null` without
//!   trials that count;
//! - `recovery_replay_ratio`: the same for both together, one after the other;
//! - `progress_reports`: how often a recovery reported how far it had come;
//! - `cached_percent`: the largest part of the files that was in memory before a cold reading; `null` if the file
//!   system does not tell, or with `--warm`;
//! - `by_version_ns`, `by_time_ns`: of point reads, each with `p50`, `p90`, `p99` and `max`.
use super::args::cores;
use super::cluster::ScratchDir;
use super::pairing::quantile;
use super::table::{TextTable, short};
use super::{BenchReport, tell};
use crate::exit::{CliError, CliResult};
use crate::progress::ProgressLine;
use crate::quantity::bytes;
use crate::signals::Stop;
use anyhow::{Context, bail, ensure};
use rustix::fs::{Advice, fadvise, statvfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use serde::Serialize;
use spindle_log::{Chunk, Config, FileDisk, Identity, PayloadKind, Reader, Record, Report, Store, Version};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Options of `spindle bench recovery`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Bytes of the log, at least 1M
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "1G")]
    bytes: u64,
    /// Bytes of a record's payload, a list
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = bytes, default_value = "128,10k")]
    size: Vec<u64>,
    /// The directory for the log, on the disk to measure [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How often the log is read
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    trials: u32,
    /// Point reads of each kind
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    points: u32,
    /// Leave the files in the page cache
    #[arg(long)]
    warm: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const BYTES_MIN: u64 = 1 << 20;
const SIZE_MAX: u64 = 1 << 20;
/// The bytes of one commit.
const BATCH_BYTES: u64 = 4 << 20;
/// The bytes of one plain read.
const READ_BYTES: usize = 1 << 20;
/// The distance of the pages that are looked for in the page cache.
const LOOK_EVERY: u64 = 1 << 20;
/// The percentage of the files in memory above which a reading does not count as cold.
const CACHED_MAX: f64 = 5.0;
/// The microseconds of the log's clock between two records.
const CLOCK_STEP: u64 = 10;
/// The records of a replay between two looks for a signal.
const LOOK_FOR_SIGNALS: u64 = 1 << 16;
/// Space on the disk beside the records: headers, spare segments, and what a log leaves free.
const MORE_BYTES: u64 = 512 << 20;

#[derive(Debug, Serialize)]
struct RecoveryRun {
    size_bytes: u64,
    records: u64,
    bytes: u64,
    segments: u64,
    trials: u32,
    written_bytes_per_second: f64,
    read_bytes_per_second: f64,
    recovery_bytes_per_second: f64,
    replay_bytes_per_second: f64,
    recovery_ratio: f64,
    replay_ratio: f64,
    recovery_replay_ratio: f64,
    progress_reports: u64,
    cached_percent: Option<f64>,
    by_version_ns: PointTimes,
    by_time_ns: PointTimes,
}

#[derive(Debug, Serialize)]
struct PointTimes {
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

/// Returns the reason why the arguments make no sense, if there is one.
pub(super) fn refuse(args: &Args) -> Option<String> {
    if args.bytes < BYTES_MIN {
        return Some(format!("--bytes {} is less than 1M", args.bytes));
    }
    let size = args.size.iter().find(|size| !(1..=SIZE_MAX).contains(*size));
    size.map(|size| format!("--size {size} is not from 1 to 1M"))
}

pub(super) fn run(args: &Args) -> CliResult {
    // A signal ends the measurement in order, so that no log stays on the disk.
    let stop = Stop::on_signals(|_| {})?;
    let runs = args.size.iter().map(|&size| measure(args, &stop, size)).collect::<anyhow::Result<_>>();
    let runs = runs.map_err(|error| match stop.flag.load(Ordering::Acquire) {
        true => CliError::interrupted(stop.signal(), "before the log was measured; it is removed"),
        false => error.into(),
    })?;
    let report = BenchReport { bench: "recovery", cores: cores(), runs };
    let told = tell(&report, args.json, |out| print(&report.runs, out));
    told.map_err(|error| anyhow::Error::from(error).into())
}

fn measure(args: &Args, stop: &Stop, size: u64) -> anyhow::Result<RecoveryRun> {
    let parent = args.data.clone().unwrap_or_else(std::env::temp_dir);
    ensure_space(&parent, args.bytes)?;
    let dir = ScratchDir::inside(&parent)?;
    let log = BenchLog { dir: dir.0.join("member"), json: args.json, stop };
    let records = (args.bytes / Chunk::encoded_bytes(size)).max(1);
    let start = Instant::now();
    log.write(size, records)?;
    let written = start.elapsed().as_secs_f64();
    let files = log.files()?;

    let (mut reads, mut recoveries, mut replays) = (Vec::new(), Vec::new(), Vec::new());
    let mut ratios = [Vec::new(), Vec::new(), Vec::new()];
    let mut cached: Option<f64> = None;
    let (mut report, mut progress_reports) = (Report::default(), 0);
    let mut prepare = || -> anyhow::Result<()> {
        if !args.warm {
            let found = drop_cached(&files)?;
            cached = cached.into_iter().chain(found).reduce(f64::max);
        }
        Ok(())
    };
    if args.warm {
        log.read_plainly(&files)?;
    }
    for _ in 0..args.trials {
        prepare()?;
        let (read_bytes, read) = timed(|| log.read_plainly(&files))?;
        prepare()?;
        let mut store = log.store()?;
        let mut line = ProgressLine::new("recovery", read_bytes, args.json);
        let mut reports = 0;
        let (found, recovery) = timed(|| {
            Ok(store.open_log(1, &mut |progress| {
                reports += 1;
                line.show(|| progress.bytes);
            })?)
        })?;
        drop(line);
        ensure!(found.records == records, "the recovery found {} records of {records}", found.records);
        prepare()?;
        let ((), replay) = timed(|| log.replay(store.log(1)?.readers().reader(), records, size))?;
        let rate = |seconds: f64| found.bytes as f64 / seconds;
        let plain = read_bytes as f64 / read;
        reads.push(plain);
        recoveries.push(rate(recovery));
        replays.push(rate(replay));
        for (ratios, seconds) in ratios.iter_mut().zip([recovery, replay, recovery + replay]) {
            ratios.push(rate(seconds) / plain);
        }
        (report, progress_reports) = (found, reports);
    }
    let (by_version_ns, by_time_ns) = log.points(records, args.points)?;
    let median = |values: &[f64]| quantile(values, 0.5);
    Ok(RecoveryRun {
        size_bytes: size,
        records,
        bytes: report.bytes,
        segments: report.segments,
        trials: args.trials,
        written_bytes_per_second: report.bytes as f64 / written,
        read_bytes_per_second: median(&reads),
        recovery_bytes_per_second: median(&recoveries),
        replay_bytes_per_second: median(&replays),
        recovery_ratio: median(&ratios[0]),
        replay_ratio: median(&ratios[1]),
        recovery_replay_ratio: median(&ratios[2]),
        progress_reports,
        cached_percent: cached,
        by_version_ns,
        by_time_ns,
    })
}

/// Calls `work`, and returns its result with the seconds that it took.
fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_secs_f64()))
}

/// Refuses a file system without room for a log of `bytes`.
fn ensure_space(dir: &Path, bytes: u64) -> anyhow::Result<()> {
    let status = statvfs(dir).with_context(|| format!("can't use {}", dir.display()))?;
    let free = status.f_bavail * status.f_frsize;
    // Headers take less than a sixteenth.
    let needed = bytes + bytes / 16 + MORE_BYTES;
    if free < needed {
        let shown = dir.display();
        bail!("{shown} has {free} bytes free of {needed} needed; take fewer --bytes or another --data directory");
    }
    Ok(())
}

/// The log that is written and read.
struct BenchLog<'a> {
    dir: PathBuf,
    json: bool,
    stop: &'a Stop,
}

impl BenchLog<'_> {
    /// Returns an error after a signal.
    fn go_on(&self) -> anyhow::Result<()> {
        ensure!(!self.stop.flag.load(Ordering::Relaxed), "stopped");
        Ok(())
    }

    fn store(&self) -> anyhow::Result<Store> {
        let identity = Identity { group: "bench".into(), member: 1, incarnation: 1, payloads: PayloadKind::Opaque };
        let disk = FileDisk::new(&self.dir).with_context(|| format!("can't use {}", self.dir.display()))?;
        Ok(Store::open(Arc::new(disk), &identity, Config::default())?)
    }

    fn write(&self, size: u64, records: u64) -> anyhow::Result<()> {
        let mut store = self.store()?;
        store.open_log(1, &mut |_| ())?;
        let log = store.log(1)?;
        let content: Vec<u8> = (0..size).map(|at| (at * 31) as u8).collect();
        let in_batch = (BATCH_BYTES / Chunk::encoded_bytes(size)).max(1);
        let mut line = ProgressLine::new("writing", records * Chunk::encoded_bytes(size), self.json);
        for first in (0..records).step_by(usize::try_from(in_batch)?) {
            self.go_on()?;
            let batch = first..records.min(first + in_batch);
            let record = |sequence| Record {
                version: Version::new(1, sequence),
                clock: sequence * CLOCK_STEP,
                payload: &content,
            };
            log.append(batch.map(record))?;
            line.show(|| first * Chunk::encoded_bytes(size));
        }
        Ok(())
    }

    /// Returns the segments, in order.
    fn files(&self) -> anyhow::Result<Vec<File>> {
        let dir = self.dir.join("subgroup-00000001");
        let failed = || format!("can't read {}", dir.display());
        let entries = fs::read_dir(&dir).with_context(failed)?.collect::<io::Result<Vec<_>>>().with_context(failed)?;
        let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment-")));
        paths.sort();
        ensure!(!paths.is_empty(), "{} has no segments", dir.display());
        paths.iter().map(File::open).collect::<io::Result<_>>().with_context(failed)
    }

    /// Reads the files from begin to end, and returns their bytes.
    fn read_plainly(&self, files: &[File]) -> anyhow::Result<u64> {
        let (mut buffer, mut total) = (vec![0; READ_BYTES], 0);
        for file in files {
            self.go_on()?;
            let mut at = 0;
            loop {
                match file.read_at(&mut buffer, at).context("can't read a segment")? {
                    0 => break,
                    read => at += read as u64,
                }
            }
            total += at;
        }
        Ok(total)
    }

    /// Reads all records in order.
    fn replay(&self, mut reader: Reader, records: u64, size: u64) -> anyhow::Result<()> {
        let mut count = 0;
        while let Some(record) = reader.next()? {
            let is_right = record.version.sequence == count && record.payload.len() as u64 == size;
            ensure!(is_right, "record {count} is {:?} with {} bytes", record.version, record.payload.len());
            count += 1;
            if count.is_multiple_of(LOOK_FOR_SIGNALS) {
                self.go_on()?;
            }
        }
        ensure!(count == records, "{count} records of {records} were read");
        Ok(())
    }

    /// Reads at random versions and times.
    fn points(&self, records: u64, points: u32) -> anyhow::Result<(PointTimes, PointTimes)> {
        let mut store = self.store()?;
        // It reads the whole log, so its pages are in memory, as far as they fit.
        store.open_log(1, &mut |_| ())?;
        let mut reader = store.log(1)?.readers().reader();
        let mut random = 1_u64;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % records
        };
        let (mut by_version, mut by_time) = (Vec::new(), Vec::new());
        for _ in 0..points {
            self.go_on()?;
            let sequence = next();
            let start = Instant::now();
            let found = reader.get(Version::new(1, sequence))?.map(|record| record.clock);
            by_version.push(start.elapsed().as_nanos() as f64);
            ensure!(found == Some(sequence * CLOCK_STEP), "version {sequence} has the time {found:?}");
            let sequence = next();
            let start = Instant::now();
            // Between two records, so that the earlier one is the answer.
            let found = reader.at_clock(sequence * CLOCK_STEP + CLOCK_STEP / 2)?.map(|record| record.version.sequence);
            by_time.push(start.elapsed().as_nanos() as f64);
            ensure!(found == Some(sequence), "the time of version {sequence} found {found:?}");
        }
        Ok((PointTimes::of(&by_version), PointTimes::of(&by_time)))
    }
}

impl PointTimes {
    fn of(values: &[f64]) -> PointTimes {
        let at = |part| quantile(values, part);
        PointTimes { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// Drops the pages of files from the page cache. Returns the percentage that is still in memory, if
/// the file system tells.
fn drop_cached(files: &[File]) -> anyhow::Result<Option<f64>> {
    let (mut looked, mut found) = (0_u64, 0_u64);
    for file in files {
        file.sync_all().context("can't sync a segment")?;
        fadvise(file, 0, None, Advice::DontNeed).context("can't drop a segment from the page cache")?;
        let len = file.metadata().context("can't read a segment's length")?.len();
        for at in (0..len).step_by(LOOK_EVERY as usize) {
            looked += 1;
            match preadv2(file, &mut [IoSliceMut::new(&mut [0])], at, ReadWriteFlags::NOWAIT) {
                Ok(_) => found += 1,
                Err(Errno::AGAIN) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(None),
                Err(error) => return Err(error).context("can't look for a segment in the page cache"),
            }
        }
    }
    Ok(Some(100.0 * found as f64 / looked.max(1) as f64))
}

fn print(runs: &[RecoveryRun], out: &mut impl Write) -> io::Result<()> {
    let heads = ["record", "records", "log", "read B/s", "recovery B/s", "ratio", "replay B/s", "ratio", "both"];
    let points = ["by version, us", "p99", "by time, us", "p99"];
    let mut table = TextTable::new(&[&heads[..], &points].concat());
    for run in runs {
        let us = |ns: f64| format!("{:.1}", ns / 1e3);
        table.row(vec![
            format!("{} B", run.size_bytes),
            short(run.records as f64),
            format!("{}B", short(run.bytes as f64)),
            short(run.read_bytes_per_second),
            short(run.recovery_bytes_per_second),
            format!("{:.2}", run.recovery_ratio),
            short(run.replay_bytes_per_second),
            format!("{:.2}", run.replay_ratio),
            format!("{:.2}", run.recovery_replay_ratio),
            us(run.by_version_ns.p50),
            us(run.by_version_ns.p99),
            us(run.by_time_ns.p50),
            us(run.by_time_ns.p99),
        ]);
    }
    table.print(out)?;
    writeln!(out, "\nratio: of plain reads of the same files; both: recovery, then replay")?;
    let cached = runs.iter().filter_map(|run| run.cached_percent).reduce(f64::max);
    match cached {
        Some(cached) if cached > CACHED_MAX => {
            writeln!(
                out,
                "{cached:.0} % of the files could not be dropped from the page cache: these are not the disk's figures"
            )
        }
        Some(cached) => writeln!(out, "cold: {cached:.0} % of the files were in the page cache"),
        None => writeln!(out, "warm, or it is not known whether the files were dropped from the page cache"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_directory_are_named() {
        let dir = std::env::temp_dir();
        let error = ensure_space(&dir, u64::MAX / 4).unwrap_err().to_string();
        assert!(error.contains("bytes free of") && error.contains(&*dir.to_string_lossy()), "{error}");
        let error = format!("{:#}", ensure_space(Path::new("/nonexistent"), 1).unwrap_err());
        assert!(error.contains("can't use /nonexistent"), "{error}");
    }
}
