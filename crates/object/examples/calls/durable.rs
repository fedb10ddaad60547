//! A durable call at a time, in turns with bare syncs of as many files at once.
use crate::caller::{CALL_MAX, Job};
use crate::store::{DurabilityArg, Store, StoreCalls, key};
use serde::{Deserialize, Serialize};
use spindle_log::{Chunk, LoggedMessage};
use spindle_object::Replicated;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The length of a file, that of a segment of a log. It is written again and again.
const FILE_BYTES: u64 = 64 << 20;
const ZEROS_BYTES: usize = 4 << 20;
/// The bytes of a call's message beside its key and value, about.
const CALL_BYTES: u64 = 40;
/// Samples of one kind until it is the other's turn. A ratio is that of the medians of two turns.
const TURN: usize = 16;
/// Room for the slowest sync.
const SYNC_MAX: Duration = Duration::from_secs(20);

/// Times of durable calls beside those of bare syncs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DurableCalls {
    pub(crate) durability: DurabilityArg,
    pub(crate) calls: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// Files that are written and synced at the same time: one for each member.
    pub(crate) fdatasyncs: u32,
    pub(crate) fdatasyncs_p50_ns: u64,
    pub(crate) fdatasyncs_p99_ns: u64,
    /// Calls by syncs: the median of the pairs of turns.
    pub(crate) ratio: f64,
    pub(crate) ratio_p10: f64,
    pub(crate) ratio_p90: f64,
    pub(crate) pairs: u64,
}

/// Measures for the time of `job`. The files for the bare syncs are created in `dir`.
pub(crate) fn measure(
    store: &Replicated<Store>,
    durability: DurabilityArg,
    job: &Job,
    (dir, files): (&Path, u32),
) -> io::Result<DurableCalls> {
    let bytes = Chunk::encoded_bytes(u64::from(job.size) + CALL_BYTES + LoggedMessage::prefix(0, 0).len() as u64);
    let mut bare = Bare::create(dir, files, bytes)?;
    let value = vec![1; job.size as usize];
    let (mut calls, mut syncs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = 0;
    let begin = Instant::now();
    while ratios.is_empty() || begin.elapsed() < job.time {
        let mut turn = (0..TURN).map(|_| bare.sync()).collect::<io::Result<Vec<u64>>>()?;
        let reference = median(&mut turn);
        syncs.append(&mut turn);
        for _ in 0..TURN {
            let called = Instant::now();
            let call = StoreCalls::put(&key(number % job.keys), &value);
            match durability {
                DurabilityArg::Logged => drop(store.call_durable(&call, CALL_MAX).map_err(io::Error::other)?),
                _ => drop(store.call(&call, CALL_MAX).map_err(io::Error::other)?),
            }
            turn.push(called.elapsed().as_nanos() as u64);
            number += 1;
        }
        ratios.push(median(&mut turn) as f64 / reference.max(1) as f64);
        calls.append(&mut turn);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = |part: usize| ratios[(ratios.len() - 1) * part / 100];
    Ok(DurableCalls {
        durability,
        calls: calls.len() as u64,
        p50_ns: quantile(&mut calls, 50),
        p99_ns: quantile(&mut calls, 99),
        fdatasyncs: files,
        fdatasyncs_p50_ns: quantile(&mut syncs, 50),
        fdatasyncs_p99_ns: quantile(&mut syncs, 99),
        ratio: ratio(50),
        ratio_p10: ratio(10),
        ratio_p90: ratio(90),
        pairs: ratios.len() as u64,
    })
}

fn quantile(values: &mut [u64], percent: usize) -> u64 {
    values.sort_unstable();
    values[(values.len() - 1) * percent / 100]
}

fn median(values: &mut [u64]) -> u64 {
    quantile(values, 50)
}

/// When a write and its sync began, and when they ended.
type Synced = io::Result<(Instant, Instant)>;

/// Files, each with a thread that writes and syncs it.
struct Bare {
    threads: Vec<(SyncSender<()>, Receiver<Synced>)>,
    dir: PathBuf,
}

impl Bare {
    fn create(parent: &Path, files: u32, bytes: u64) -> io::Result<Bare> {
        let dir = parent.join("bare");
        fs::create_dir(&dir)?;
        let mut bare = Bare { threads: vec![], dir };
        for number in 0..files {
            let file = File::create_new(bare.dir.join(number.to_string()))?;
            let zeros = vec![0; ZEROS_BYTES];
            (0..FILE_BYTES).step_by(ZEROS_BYTES).try_for_each(|at| file.write_all_at(&zeros, at))?;
            file.sync_all()?;
            let (ask, asked) = sync_channel::<()>(1);
            let (tell, told) = sync_channel(1);
            // It ends with `ask`.
            thread::spawn(move || {
                let (content, mut at) = (vec![0x5A; bytes as usize], 0);
                while asked.recv().is_ok() {
                    let begin = Instant::now();
                    let written = file.write_all_at(&content, at).and_then(|()| file.sync_data());
                    at = (at + bytes) % (FILE_BYTES - bytes);
                    if tell.send(written.map(|()| (begin, Instant::now()))).is_err() {
                        break;
                    }
                }
            });
            bare.threads.push((ask, told));
        }
        Ok(bare)
    }

    /// Writes and syncs all files at once. Returns the nanoseconds from the first thread's begin to the
    /// last one's end, so without the time until the threads run.
    fn sync(&mut self) -> io::Result<u64> {
        let gone = |_| io::Error::other("a thread that syncs a file does not answer");
        for (ask, _) in &self.threads {
            ask.send(()).map_err(|_| io::Error::other("a thread that syncs a file has ended"))?;
        }
        let mut span: Option<(Instant, Instant)> = None;
        for (_, told) in &self.threads {
            let (begin, end) = told.recv_timeout(SYNC_MAX).map_err(gone)??;
            span = Some(span.map_or((begin, end), |(first, last)| (first.min(begin), last.max(end))));
        }
        Ok(span.map_or(0, |(first, last)| (last - first).as_nanos() as u64))
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
