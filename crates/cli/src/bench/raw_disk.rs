//! The disk without a log: threads that write and sync files.
use super::cluster::ScratchDir;
use anyhow::Context;
use spindle_log::{Chunk, LoggedMessage};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The bytes that are written between two syncs, as many as a log writes at most.
const BATCH_BYTES: usize = 4 << 20;
/// The length of a file, that of a segment of a log. It is written again and again.
const FILE_BYTES: usize = 64 << 20;

/// Files of which each is written by a thread of its own.
pub(super) struct RawDisk {
    files: Vec<File>,
    /// The bytes of a message in a log.
    record_bytes: u64,
    _dir: ScratchDir,
}

impl RawDisk {
    /// Creates `files` files in `dir`, filled with zeros, for messages of `size` bytes.
    pub(super) fn create(dir: &Path, files: u32, size: u64) -> anyhow::Result<RawDisk> {
        let dir = ScratchDir::inside(dir)?;
        let create = |number: u32| -> anyhow::Result<File> {
            let path = dir.0.join(number.to_string());
            let failed = || format!("can't fill {}", path.display());
            let file = File::create_new(&path).with_context(failed)?;
            let zeros = vec![0; BATCH_BYTES];
            for at in (0..FILE_BYTES).step_by(BATCH_BYTES) {
                file.write_all_at(&zeros, at as u64).with_context(failed)?;
            }
            file.sync_all().with_context(failed)?;
            Ok(file)
        };
        let files = (0..files).map(create).collect::<anyhow::Result<_>>()?;
        let record_bytes = Chunk::encoded_bytes(size + LoggedMessage::prefix(0, 0).len() as u64);
        Ok(RawDisk { files, record_bytes, _dir: dir })
    }

    /// Writes and syncs for `length`. Returns the messages per second that a file takes, the mean of
    /// the files.
    pub(super) fn slice(&self, length: Duration) -> anyhow::Result<f64> {
        let start = Instant::now();
        let write = |file: &File| -> std::io::Result<f64> {
            let content: Vec<u8> = (0..BATCH_BYTES).map(|at| (at * 31) as u8).collect();
            let (mut at, mut written) = (0, 0);
            while start.elapsed() < length {
                file.write_all_at(&content, at as u64)?;
                file.sync_data()?;
                at = (at + BATCH_BYTES) % FILE_BYTES;
                written += BATCH_BYTES;
            }
            Ok(written as f64 / start.elapsed().as_secs_f64())
        };
        let rates = thread::scope(|scope| {
            let threads: Vec<_> = self.files.iter().map(|file| scope.spawn(move || write(file))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().expect("it panics nowhere"));
            joined.collect::<std::io::Result<Vec<f64>>>()
        });
        let rates = rates.context("can't write the files that a log is compared with")?;
        Ok(rates.iter().sum::<f64>() / rates.len().max(1) as f64 / self.record_bytes as f64)
    }
}
