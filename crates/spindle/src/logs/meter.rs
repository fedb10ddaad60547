//! Commits and sizes of logs, as the thread that writes them reports them.
use crate::histogram::Histogram;
use crate::shared::lock;
use spindle_log::Outcome;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The commits and the size of a log.
#[derive(Clone, Copy, Default)]
pub(super) struct LogMeter {
    /// How long commits took.
    pub(super) commits: Histogram,
    /// The bytes on disk.
    pub(super) disk_bytes: u64,
}

/// The meters of all logs of a member, by the number of the log. The thread of the logs takes the lock once
/// for each commit.
#[derive(Clone, Default)]
pub(super) struct LogMeters(Arc<Mutex<BTreeMap<u32, LogMeter>>>);

impl LogMeters {
    pub(super) fn note(&self, outcome: &Outcome) {
        if outcome.result.is_ok() {
            let mut meters = lock(&self.0);
            let meter = meters.entry(outcome.subgroup).or_default();
            meter.commits.record(outcome.took);
            meter.disk_bytes = outcome.disk_bytes;
        }
    }

    pub(super) fn note_size(&self, number: u32, disk_bytes: u64) {
        lock(&self.0).entry(number).or_default().disk_bytes = disk_bytes;
    }

    pub(super) fn read(&self, number: u32) -> LogMeter {
        lock(&self.0).get(&number).copied().unwrap_or_default()
    }
}
