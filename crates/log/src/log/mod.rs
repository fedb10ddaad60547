//! The log of one subgroup.
//!
//! A log is a chain of segments with ascending versions, and a state file with two slots. The first
//! type to read is [`Log`]; `scan.rs` shows how the end of a log is found after a crash.
//!
//! Invariants:
//! - **LOG-PREFIX**: after any crash a log holds a prefix of what was appended since its last cut,
//!   and all that was acknowledged.
//! - **LOG-ONCE**: within a generation each offset is written once, and nothing is tried again after
//!   a failure. So bytes that carry the generation and a valid checksum are those that were meant.
//! - **LOG-FRONTIER**: a batch, a segment header or a slot names a version as durable only after the
//!   sync that made it so has returned.
mod append;
mod cut;
mod reader;
mod recover;
mod report;
pub(crate) mod scan;
pub(crate) mod shared;
pub(crate) mod window;

pub use cut::{Prunable, Retention};
pub use reader::{Place, Reader, Readers};
pub use report::{Progress, Report};
pub use shared::Hold;

use crate::config::Config;
use crate::disk::{Disk, File, replace_file, write_all};
use crate::error::{Context, Error, Result};
use crate::format::{Binding, Position, Slot};
use crate::mutation::mutation;
use crate::version::Version;
use shared::{Entry, Shared};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

pub(crate) const STATE: &str = "state";
pub(crate) const NAME: &str = "name";

/// The log of one subgroup, owned by the thread that writes it.
///
/// [`write`](Self::write) and [`sync`](Self::sync) together append; [`readers`](Self::readers) makes
/// handles for other threads.
pub struct Log {
    disk: Arc<dyn Disk>,
    path: String,
    binding: Binding,
    config: Config,
    slot: Slot,
    state: Arc<dyn File>,
    /// Where the next batch is written. Its segment may not exist yet.
    end: Position,
    /// The file of `end`, if there is one, and its length.
    active: Option<(Arc<dyn File>, u64)>,
    /// The last version that was written, and its clock.
    last: Option<(Version, u64)>,
    /// The last version that was synced.
    durable: Option<Version>,
    dirty: Vec<Arc<dyn File>>,
    names_are_dirty: bool,
    written: Vec<Written>,
    indexed_at: u64,
    /// Whether records are expected, though there may be none yet.
    is_used: bool,
    spares: Vec<String>,
    next_spare: u64,
    /// Files for records that are larger than a segment, from `make_room` to `begin`.
    large: VecDeque<String>,
    shared: Arc<Shared>,
    /// The first failure of any log of the store.
    poison: Arc<OnceLock<String>>,
}

/// The bytes that were written to a segment since the last sync.
struct Written {
    /// The segment, if this began it.
    begun: Option<Begun>,
    number: u64,
    end: u64,
    last: (Version, u64),
    index: Vec<Entry>,
}

struct Begun {
    file: Arc<dyn File>,
    path: String,
    length: u64,
    first: Entry,
}

impl Log {
    /// The subgroup.
    pub fn subgroup(&self) -> u32 {
        self.binding.subgroup
    }

    /// The last version that was written, durable or not.
    pub fn last(&self) -> Option<Version> {
        self.last.map(|(version, _)| version)
    }

    /// The clock of the last record, or 0.
    pub fn last_clock(&self) -> u64 {
        self.last.map_or(0, |(_, clock)| clock)
    }

    /// The durable frontier.
    pub fn durable(&self) -> Option<Version> {
        self.durable
    }

    /// The last version that was pruned.
    pub fn floor(&self) -> Option<Version> {
        self.slot.floor
    }

    /// A handle from which any thread makes readers.
    pub fn readers(&self) -> Readers {
        Readers { shared: self.shared.clone(), binding: self.binding }
    }

    /// The bytes of the segments, spares included.
    pub fn disk_bytes(&self) -> u64 {
        let segments: u64 = self.shared.view().segments.iter().map(|segment| segment.length).sum();
        segments + self.spares.len() as u64 * self.config.segment_bytes
    }

    /// The number of segments, spares excluded.
    pub fn segments(&self) -> usize {
        self.shared.view().segments.len()
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn binding(&self) -> Binding {
        self.binding
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        match self.poison.get() {
            Some(cause) if !mutation!(FailedSyncRetried) => Err(Error::Poisoned { cause: cause.clone() }),
            _ => Ok(()),
        }
    }

    /// Nothing more is written after this: the state of the disk is unknown.
    fn poisoned<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let _ = self.poison.set(error.to_string());
        }
        result
    }

    /// Records the durable frontier in a slot, if it has moved since the last time. An idle log calls
    /// this so that damage to its last batch is recognised.
    ///
    /// # Errors
    /// [`Error::Poisoned`], or [`Error::Io`], which poisons the log.
    pub fn record_frontier(&mut self) -> Result<()> {
        if self.slot.durable == self.durable || !self.written.is_empty() {
            return Ok(());
        }
        self.check_alive()?;
        let slot = Slot { durable: self.durable, clock: self.last_clock(), ..self.slot };
        self.write_slot(slot)
    }

    /// Writes one slot.
    fn write_slot(&mut self, slot: Slot) -> Result<()> {
        let slot = Slot { number: self.slot.number + 1, ..slot };
        let path = self.disk.shown(&format!("{}/{STATE}", self.path));
        let mut result = write_all(&*self.state, &[&slot.encode(self.binding)], slot.offset()).during("write", &path);
        if result.is_ok() && !mutation!(CutNotSynced) {
            result = self.state.sync_data().during("sync", &path);
        }
        self.poisoned(result)?;
        self.slot = slot;
        Ok(())
    }

    /// Writes both slots, one after the other, so that damage to one loses no decision.
    fn decide(&mut self, slot: Slot) -> Result<()> {
        self.write_slot(slot)?;
        self.write_slot(slot)
    }

    fn segment_path(&self, number: u64) -> String {
        segment_path(&self.path, number)
    }
}

pub(crate) fn segment_path(path: &str, number: u64) -> String {
    format!("{path}/{}", segment_name(number))
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("segment-{number:016x}")
}

/// The number in the name of a segment or spare.
pub(crate) fn number_in(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Makes a spare segment under a temporary name: zeros, allocated and synced. Any thread may call
/// it; [`Log::add_spare`] then takes the file.
///
/// # Errors
/// [`Error::Full`] if it would use reserved space, [`Error::Io`].
pub(crate) fn make_file(disk: &dyn Disk, path: &str, bytes: u64, reserve: u64) -> Result<Arc<dyn File>> {
    let shown = disk.shown(path);
    let free = disk.free_bytes().during("read the free space of", &shown)?;
    if free.saturating_sub(bytes) < reserve || free < bytes {
        return Err(Error::Full { needed: bytes, free, reserve });
    }
    let result = disk.create(path, bytes).and_then(|file| file.sync_data().map(|()| file));
    match result {
        Ok(file) => Ok(file),
        Err(error) => {
            // The file has a temporary name and no record: it may be left or removed.
            let _ = disk.remove(path);
            match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    Err(Error::Full { needed: bytes, free, reserve })
                }
                _ => Err(error).during("create", &shown),
            }
        }
    }
}

/// Creates the state file of a new log.
fn create_state(disk: &dyn Disk, path: &str, binding: Binding, is_named: bool) -> Result<()> {
    let slots = [2, 3].map(|number| Slot { number, generation: 1, is_named, ..Slot::default() });
    replace_file(disk, path, STATE, &slots.map(|slot| slot.encode(binding)).concat(), 0)
}
