//! The disks of places: the logs of their processes, which outlive them.
//!
//! A disk holds the records that were synced, and those that were written and are not synced yet. A
//! crash keeps the former and a prefix of the latter: recovery cuts a torn tail, which the tests of
//! the log show (`crates/log/tests`).
use super::ledger::MessageId;
use super::plan::{HostsFault, MS, S};
use crate::random::{Random, mix};
use spindle_core::control::RestartRecord;
use spindle_core::{Durability, MemberId, Order, Position, SubgroupSpec};
use std::collections::BTreeMap;

/// The disks of a scene with logged subgroups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDisks {
    /// The longest time of a write and its sync on a fast disk, in ns.
    pub sync_ns: u64,
    /// As above, on a slow disk.
    pub slow_sync_ns: u64,
    /// A bit mask of the places with slow disks.
    pub slow: u64,
    /// The number of records that wait for a disk at most.
    pub queue: usize,
}

/// A record of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DiskRecord {
    pub(super) position: Position,
    pub(super) clock: u64,
    pub(super) message: MessageId,
}

/// A log on a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskLog {
    pub(super) records: Vec<DiskRecord>,
    /// The number of records that are synced.
    pub(super) synced: usize,
    /// The position behind which the log begins; `None`: it lacks nothing.
    pub(super) floor: Option<Position>,
}

/// A disk. It belongs to one member of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceDisk {
    pub(super) identity: Option<(u128, MemberId)>,
    pub(super) logs: BTreeMap<String, DiskLog>,
    pub(super) record: Option<RestartRecord>,
    /// The time until which it has no space.
    pub(super) full_until: u64,
    /// True if the next sync fails.
    pub(super) fails: bool,
    /// An older copy, which takes its place when the process ends.
    pub(super) copy: Option<Box<PlaceDisk>>,
    /// True if it is lost when the process ends.
    pub(super) is_lost: bool,
}

impl LogDisks {
    /// Draws the disks of a seed, and which of its subgroups are logged.
    pub(super) fn drawn(seed: u64, places: u32, subgroups: &mut [SubgroupSpec]) -> Option<LogDisks> {
        let mut random = Random::new(seed, 33);
        if !has_logs(&mut random) {
            return None;
        }
        for spec in subgroups.iter_mut() {
            // Logs have a total order.
            if spec.order == Order::Fifo && random.one_in(3) {
                continue;
            }
            let copies = random.pick(&[1, 1, 2, 2, 3]);
            spec.order = Order::Total;
            spec.durability = match random.below(5) {
                0..=2 => Durability::Logged { copies },
                3 => Durability::LoggedBeforeDelivery { copies },
                _ => Durability::InMemory,
            };
        }
        if !subgroups.iter().any(SubgroupSpec::is_logged) {
            subgroups[0].order = Order::Total;
            subgroups[0].durability = Durability::Logged { copies: 1 };
        }
        Some(LogDisks {
            sync_ns: random.pick(&[100_000, 3 * MS, 30 * MS]),
            slow_sync_ns: random.pick(&[30 * MS, 300 * MS, S]),
            slow: if random.one_in(2) { random.below(1 << places) } else { 0 },
            queue: random.range(1, 24) as usize,
        })
    }
}

/// Returns true if the groups of a seed have logs.
fn has_logs(random: &mut Random) -> bool {
    random.one_in(5)
}

/// Draws the faults of disks of a seed.
pub(super) fn faults(seed: u64, places: u32, calm_ns: u64) -> Vec<(u64, HostsFault)> {
    if !has_logs(&mut Random::new(seed, 33)) {
        return vec![];
    }
    let mut random = Random::new(seed, 34);
    let random = &mut random;
    let mut faults = vec![];
    for _ in 0..random.below(6) {
        let (at, place) = (random.below(calm_ns), random.below(places.into()) as u32);
        match random.below(6) {
            0 | 1 => faults.push((at, HostsFault::DiskFull { place, ns: random.range(10 * MS, 4 * S) })),
            2 => faults.push((at, HostsFault::DiskFails { place })),
            kind => {
                let end = at + random.below(2 * S);
                faults.push((
                    at,
                    match kind {
                        3 => HostsFault::DiskLost { place },
                        _ => HostsFault::DiskCopied { place },
                    },
                ));
                let down_ns = Some(random.range(MS, 3 * S));
                faults.push((end, HostsFault::Kill { place, down_ns, renamed: false }));
            }
        }
    }
    faults.retain(|(at, _)| *at < calm_ns);
    faults
}

impl DiskLog {
    /// Returns the position of the last record, or that behind which the log begins.
    pub(super) fn last(&self) -> Option<Position> {
        self.records.last().map(|record| record.position).or(self.floor)
    }

    /// Returns the position of the last synced record, or that behind which the log begins.
    pub(super) fn on_disk(&self) -> Option<Position> {
        self.synced.checked_sub(1).map(|last| self.records[last].position).or(self.floor)
    }

    pub(super) fn waiting(&self) -> usize {
        self.records.len() - self.synced
    }

    pub(super) fn has_on_disk(&self, position: Position) -> bool {
        self.records[..self.synced].binary_search_by_key(&position, |record| record.position).is_ok()
    }

    /// Removes the records from a position on.
    pub(super) fn cut_from(&mut self, from: Position) {
        self.records.truncate(self.records.partition_point(|record| record.position < from));
        self.synced = self.synced.min(self.records.len());
    }

    /// Removes all records. The log begins behind this position.
    pub(super) fn reset(&mut self, floor: Position) {
        *self = DiskLog { floor: Some(floor), ..DiskLog::default() };
    }
}

impl PlaceDisk {
    /// Handles the end of the process that writes: a crash loses a part of what is not synced.
    pub(super) fn writer_ends(&mut self, killed: bool, random: &mut Random) {
        for log in self.logs.values_mut() {
            if killed || self.fails || self.full_until > 0 {
                let kept = random.below(log.waiting() as u64 + 1) as usize;
                log.records.truncate(log.synced + kept);
            }
            // Recovery syncs what it keeps.
            log.synced = log.records.len();
        }
        (self.fails, self.full_until) = (false, 0);
        if std::mem::take(&mut self.is_lost) {
            *self = PlaceDisk::default();
        }
        if let Some(copy) = self.copy.take().filter(|copy| copy.identity == self.identity) {
            *self = *copy;
        }
    }

    /// Keeps a copy of what is synced, which takes the place of the disk later.
    pub(super) fn keep_copy(&mut self) {
        let mut copy = PlaceDisk { copy: None, ..self.clone() };
        for log in copy.logs.values_mut() {
            log.records.truncate(log.synced);
        }
        self.copy = Some(Box::new(copy));
    }
}

/// Returns how long a disk of a place takes for a write and its sync. Slow disks are fast once all
/// faults are over: rings and queues may hold more than a slow disk writes until a run ends.
pub(super) fn sync_takes(disks: &LogDisks, (place, is_calm): (usize, bool), random: &mut Random) -> u64 {
    let is_slow = !is_calm && disks.slow >> place & 1 == 1;
    1 + mix(random.word()) % if is_slow { disks.slow_sync_ns } else { disks.sync_ns }
}
