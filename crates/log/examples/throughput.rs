//! Measures the log against the disk below it, in one run, and prints ratios.
//!
//! `cargo run --release -p spindle-log --example throughput -- [DIRECTORY] [MEGABYTES]`
//!
//! The bare disk is measured with the same payload bytes: vectored writes of 4 MiB into zero-filled
//! files that are used again, each followed by `fdatasync`. Runs of both alternate.
use rustix::fs::{Advice, fadvise};
use spindle_log::{Appender, Chunk, Config, Error, FileDisk, Identity, PayloadKind, Record, Store, Version, Writer};
use std::error::Error as StdError;
use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const BATCH: usize = 4 << 20;
const SEGMENT: u64 = 64 << 20;
const SEGMENTS_KEPT: u64 = 4;

type Outcome<T> = Result<T, Box<dyn StdError>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().map_or_else(|| std::env::temp_dir().join("spindle-log-throughput"), PathBuf::from);
    let bytes = arguments.next().map_or(Ok(512), |text| text.parse::<u64>())? << 20;
    std::fs::create_dir_all(&root)?;
    producer();
    for payload in [10 << 10, 128] {
        throughput(&root, payload, bytes)?;
    }
    latency(&root)?;
    recovery(&root, bytes * 4, 10 << 10)?;
    recovery(&root, bytes * 2, 128)?;
    std::fs::remove_dir_all(&root)?;
    Ok(())
}

/// The cost of a record for its producer, without a disk.
fn producer() {
    let (content, mut chunk, count) = ([1; 128], Chunk::with_capacity(1 << 18), 500_000);
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        chunk.clear();
        let started = Instant::now();
        for sequence in 0..count {
            if chunk.bytes() + 200 > 1 << 18 {
                chunk.clear();
            }
            let record = Record { version: Version::new(1, sequence), clock: 0, payload: &content };
            chunk.push(record).expect("in order");
        }
        best = best.min(started.elapsed().as_secs_f64() * 1e9 / count as f64);
    }
    println!("encoding 128 B: {best:.0} ns");
}

fn open(directory: &Path) -> Outcome<Store> {
    let identity = Identity { group: "throughput".into(), member: 1, incarnation: 99, payloads: PayloadKind::Opaque };
    let config = Config { segment_bytes: SEGMENT, ..Config::default() };
    let mut store = Store::open(Arc::new(FileDisk::new(directory)?), &identity, config)?;
    store.open_log(1, &mut |_| ())?;
    Ok(store)
}

fn megabytes(bytes: u64, elapsed: Duration) -> f64 {
    bytes as f64 / 1e6 / elapsed.as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn throughput(root: &Path, payload: usize, bytes: u64) -> Outcome<()> {
    let directory = root.join("log");
    let writer = Writer::start(open(&directory)?, |outcome| {
        outcome.result.expect("the disk has space");
    })?;
    let mut appender = writer.appender(1)?;
    let mut raw = Raw::new(&root.join("raw"))?;
    let mut sequence = 0;
    // The first rounds fill the segments and files that the later ones use again.
    log_round(&writer, &mut appender, &mut sequence, payload, (SEGMENTS_KEPT + 2) * SEGMENT)?;
    raw.round((SEGMENTS_KEPT + 2) * SEGMENT)?;
    let (mut logged, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(megabytes(bytes, raw.round(bytes)?));
        logged.push(megabytes(bytes, log_round(&writer, &mut appender, &mut sequence, payload, bytes)?));
        ratios.push(logged[logged.len() - 1] / bare[bare.len() - 1]);
    }
    writer.stop()?;
    std::fs::remove_dir_all(&directory)?;
    println!(
        "append {payload:>5} B: log {:>7.0} MB/s, bare {:>7.0} MB/s, ratio {:.2} (of the rounds: {:.2?})",
        median(logged),
        median(bare),
        median(ratios.clone()),
        ratios
    );
    Ok(())
}

fn log_round(
    writer: &Writer,
    appender: &mut Appender,
    sequence: &mut u64,
    payload: usize,
    bytes: u64,
) -> Outcome<Duration> {
    let content = vec![0x5A; payload];
    let records = bytes / payload as u64;
    let target = appender.durable_records() + records;
    let per_segment = SEGMENT / (payload as u64 + 40);
    let started = Instant::now();
    for _ in 0..records {
        let record = Record { version: Version::new(1, *sequence), clock: *sequence, payload: &content };
        loop {
            match appender.try_append(record) {
                Ok(()) => break,
                Err(Error::QueueFull { .. }) => std::thread::sleep(Duration::from_micros(200)),
                Err(error) => return Err(error.into()),
            }
        }
        *sequence += 1;
        if sequence.is_multiple_of(per_segment) {
            let from = Version::new(1, sequence.saturating_sub(SEGMENTS_KEPT * per_segment));
            writer.call(move |store| store.log(1).and_then(|log| log.prune(from)))??;
        }
    }
    while appender.durable_records() < target {
        appender.flush()?;
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(started.elapsed())
}

/// Files of the size of a segment, which are filled with zeros and written again and again.
struct Raw {
    files: Vec<File>,
    next: u64,
    content: Vec<u8>,
}

impl Raw {
    fn new(directory: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(directory)?;
        let mut files = Vec::new();
        for index in 0..SEGMENTS_KEPT {
            let path = directory.join(format!("{index}"));
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
            (0..SEGMENT / BATCH as u64).try_for_each(|at| file.write_all_at(&vec![0; BATCH], at * BATCH as u64))?;
            file.sync_data()?;
            files.push(file);
        }
        Ok(Self { files, next: 0, content: vec![0x5A; BATCH] })
    }

    fn round(&mut self, bytes: u64) -> Outcome<Duration> {
        let started = Instant::now();
        for _ in 0..bytes / BATCH as u64 {
            let per_file = SEGMENT / BATCH as u64;
            let file = &self.files[((self.next / per_file) % SEGMENTS_KEPT) as usize];
            let slices: Vec<IoSlice<'_>> = self.content.chunks(256 << 10).map(IoSlice::new).collect();
            let written = rustix::io::pwritev(file, &slices, (self.next % per_file) * BATCH as u64)?;
            assert_eq!(written, BATCH);
            file.sync_data()?;
            self.next += 1;
        }
        Ok(started.elapsed())
    }
}

/// One record at a time: from the append until it is durable.
fn latency(root: &Path) -> Outcome<()> {
    let directory = root.join("log");
    let writer = Writer::start(open(&directory)?, |outcome| {
        outcome.result.expect("the disk has space");
    })?;
    let mut appender = writer.appender(1)?;
    let raw = Raw::new(&root.join("raw"))?;
    let (mut logged, mut bare) = (Vec::new(), Vec::new());
    for sequence in 0..2000 {
        let started = Instant::now();
        let bytes = rustix::io::pwritev(&raw.files[0], &[IoSlice::new(&[1; 176])], sequence * 176)?;
        assert_eq!(bytes, 176);
        raw.files[0].sync_data()?;
        bare.push(started.elapsed().as_secs_f64() * 1e6);
        let started = Instant::now();
        appender.try_append(Record { version: Version::new(1, sequence), clock: 0, payload: &[1; 128] })?;
        appender.flush()?;
        while appender.durable_records() <= sequence {
            std::thread::yield_now();
        }
        logged.push(started.elapsed().as_secs_f64() * 1e6);
    }
    writer.stop()?;
    std::fs::remove_dir_all(&directory)?;
    for values in [&mut logged, &mut bare] {
        values.sort_by(f64::total_cmp);
    }
    let at = |values: &[f64], share: usize| values[values.len() * share / 100];
    println!(
        "durable 128 B: log p50 {:.0} us, p99 {:.0} us; bare p50 {:.0} us, p99 {:.0} us; ratio of p50 {:.2}",
        at(&logged, 50),
        at(&logged, 99),
        at(&bare, 50),
        at(&bare, 99),
        at(&logged, 50) / at(&bare, 50)
    );
    Ok(())
}

fn recovery(root: &Path, bytes: u64, payload: usize) -> Outcome<()> {
    let directory = root.join("log");
    let mut store = open(&directory)?;
    let content = vec![0x5A; payload];
    let (mut sequence, mut written) = (0, 0);
    while written < bytes {
        let count = (BATCH / payload) as u64;
        let version = |index| Version::new(1, sequence + index);
        let log = store.log(1)?;
        log.append((0..count).map(|index| Record {
            version: version(index),
            clock: (sequence + index) * 10,
            payload: &content,
        }))?;
        sequence += count;
        written += count * payload as u64;
    }
    drop(store);
    for (name, is_cold) in [("warm", false), ("cold", true)] {
        let mut rates = (Vec::new(), Vec::new());
        for _ in 0..3 {
            prepare(&directory, is_cold)?;
            rates.0.push(read_all(&directory)?);
            prepare(&directory, is_cold)?;
            let started = Instant::now();
            let mut store = open_without_log(&directory)?;
            let report = store.open_log(1, &mut |_| ())?;
            assert_eq!(report.records, sequence);
            rates.1.push(megabytes(report.bytes, started.elapsed()));
        }
        let (read, recovered) = (median(rates.0), median(rates.1));
        let ratio = recovered / read;
        println!(
            "recovery of {} MB of {payload} B, {name}: {recovered:.0} MB/s, bare read {read:.0} MB/s, ratio {ratio:.2}",
            bytes >> 20
        );
    }
    points(&directory, sequence)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

fn open_without_log(directory: &Path) -> Outcome<Store> {
    let identity = Identity { group: "throughput".into(), member: 1, incarnation: 99, payloads: PayloadKind::Opaque };
    let config = Config { segment_bytes: SEGMENT, ..Config::default() };
    Ok(Store::open(Arc::new(FileDisk::new(directory)?), &identity, config)?)
}

fn segments(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory.join("subgroup-00000001"))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Outcome<_>>()?;
    paths.retain(|path| path.to_string_lossy().contains("segment-"));
    paths.sort();
    Ok(paths)
}

fn prepare(directory: &Path, is_cold: bool) -> Outcome<()> {
    for path in segments(directory)? {
        let file = File::open(path)?;
        if is_cold {
            file.sync_all()?;
            fadvise(&file, 0, NonZeroU64::new(SEGMENT), Advice::DontNeed)?;
        }
    }
    Ok(())
}

fn read_all(directory: &Path) -> Outcome<f64> {
    let (started, mut bytes, mut buffer) = (Instant::now(), 0, vec![0; 1 << 20]);
    for path in segments(directory)? {
        let file = File::open(path)?;
        let mut offset = 0;
        loop {
            match file.read_at(&mut buffer, offset)? {
                0 => break,
                read => offset += read as u64,
            }
        }
        bytes += offset;
    }
    Ok(megabytes(bytes, started.elapsed()))
}

/// Reads at random versions and times.
fn points(directory: &Path, records: u64) -> Outcome<()> {
    let mut store = open(directory)?;
    let mut reader = store.log(1)?.readers().reader();
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % records
    };
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        let sequence = next();
        let started = Instant::now();
        let found = reader.get(Version::new(1, sequence))?.map(|record| record.clock);
        times.0.push(started.elapsed().as_secs_f64() * 1e6);
        assert_eq!(found, Some(sequence * 10));
        let sequence = next();
        let started = Instant::now();
        let found = reader.at_clock(sequence * 10 + 5)?.map(|record| record.version.sequence);
        times.1.push(started.elapsed().as_secs_f64() * 1e6);
        assert_eq!(found, Some(sequence));
    }
    println!("point read: by version {:.1} us, by time {:.1} us (medians)", median(times.0), median(times.1));
    Ok(())
}
