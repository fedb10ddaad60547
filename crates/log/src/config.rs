//! Settings of logs.
use crate::error::{Result, in_range};
use crate::limits::{
    JOURNAL_BYTES, JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, PAGE_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SPARES_MAX,
};
use std::time::Duration;

/// The settings of the logs of one process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The length of a segment in bytes, a multiple of 4096. Default: 64 MiB. Small ones cost a sync
    /// of the directory more often; large ones make pruning coarse.
    pub segment_bytes: u64,
    /// The segments that are kept ready beside those in use. Default: 1. With 0 an append waits
    /// while a segment is filled with zeros.
    pub spares: usize,
    /// The bytes that must stay free on the file system. Default: 64 MiB. An append that needs a new
    /// segment is refused with `Full` before it takes them.
    pub reserve_bytes: u64,
    /// The length of each of the two files of the journal in bytes. Default: 4 MiB. It counts when the
    /// directory is created, and bounds all values of the journal together to a half.
    pub journal_bytes: u64,
    /// The bytes of a segment between two entries of the index. Default: 32 KiB. Each entry takes 40
    /// bytes of memory; a point read parses half of it on average.
    pub index_bytes: u64,
    /// The bytes of one subgroup in one commit. Default: 4 MiB. Large ones delay the syncs of other
    /// subgroups; small ones cost throughput.
    pub batch_bytes: u64,
    /// The bytes of one subgroup that wait for the disk. Default: 16 MiB.
    pub queue_bytes: u64,
    /// The bytes that a producer collects before it hands them over. Default: 256 KiB.
    pub chunk_bytes: usize,
    /// The time without appends after which the durable frontier is recorded. Default: 5 ms. Until
    /// then, damage to the last batch is taken for a torn tail.
    pub idle_after: Duration,
    /// The time for which the end of a writer waits for the disk. Default: 10 s. After it the thread
    /// of the writer continues, and the directory stays locked until the disk answers.
    pub stop_wait: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            spares: 1,
            reserve_bytes: 64 << 20,
            journal_bytes: JOURNAL_BYTES,
            index_bytes: 32 << 10,
            batch_bytes: 4 << 20,
            queue_bytes: 16 << 20,
            chunk_bytes: 256 << 10,
            idle_after: Duration::from_millis(5),
            stop_wait: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Range`](crate::Error::Range).
    pub fn check(&self) -> Result<()> {
        in_range("segment_bytes", self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
        in_range("the remainder of segment_bytes by 4096", self.segment_bytes % PAGE_BYTES, 0, 0)?;
        in_range("journal_bytes", self.journal_bytes, JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX)?;
        in_range("spares", self.spares as u64, 0, SPARES_MAX as u64)?;
        in_range("index_bytes", self.index_bytes, 1, SEGMENT_BYTES_MAX)?;
        in_range("batch_bytes", self.batch_bytes, 1, 1 << 30)?;
        in_range("chunk_bytes", self.chunk_bytes as u64, 1, 1 << 30)?;
        in_range("queue_bytes", self.queue_bytes, self.chunk_bytes as u64, 1 << 34)
    }
}
