//! The retained state of a cache as bytes, for a cache that joins.
//!
//! A snapshot has the writers, those that went away, the instances with their samples, and the coherent
//! sets whose ends have not arrived. It has no loans, counters or filter, which belong to one reader. Two
//! caches that got the same events have equal snapshots, if their clocks agree.
//!
//! The format is `SPDC`, a version (`u16`), the policies that can't change, and the parts above in this
//! order. Numbers are little-endian, counts and lengths are `u64`. A reader of the format trusts nothing:
//! every byte is checked, and it allocates no more than the input justifies.
mod read;
mod write;

use super::cache::{PendingSet, ReaderCache};
use super::deliver::liveness;
use super::departed::DepartedWriters;
use super::effects::Effects;
use super::event::{ChangeKind, SetId};
use super::rules::WriterRecord;
use crate::error::DdsError;
use crate::id::{Guid, Position};
use crate::instance::Instance;
use crate::time::DdsTime;
use std::collections::BTreeMap;

/// The first bytes of a snapshot.
const MAGIC: &[u8; 4] = b"SPDC";
/// The version of the format.
const VERSION: u16 = 1;

/// Why a snapshot can't be restored. The cache is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The cache is in use.
    #[error("the cache has instances, writers, sets or loans; restore into a new cache")]
    InUse,
    /// The bytes are no snapshot.
    #[error("the bytes are no snapshot of a cache: they begin with {found:?}, not with SPDC")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// Another version has written the snapshot.
    #[error("the snapshot has version {found}, and this is version {VERSION}; run the same version on both sides")]
    Version {
        /// The version of the snapshot.
        found: u16,
    },
    /// The snapshot is of a cache with other policies.
    #[error("the snapshot is of a cache with another {policy}; make this cache with the same policies")]
    Policies {
        /// The policy that differs.
        policy: &'static str,
    },
    /// The snapshot ends too early.
    #[error("the snapshot ends at byte {at} within {what}; transfer it again")]
    Truncated {
        /// The length of the snapshot.
        at: usize,
        /// The part that is incomplete.
        what: &'static str,
    },
    /// A value can't be.
    #[error("byte {at} of the snapshot: {what}; transfer it again")]
    Value {
        /// The offset behind the value.
        at: usize,
        /// The value, and the rule that it breaks.
        what: &'static str,
    },
}

impl From<SnapshotError> for DdsError {
    fn from(error: SnapshotError) -> DdsError {
        DdsError::BadParameter(error.to_string())
    }
}

/// The parts of a snapshot, before they are a cache.
struct Parts<P> {
    arrival: u64,
    last: Position,
    writers: BTreeMap<Guid, WriterRecord>,
    departed: DepartedWriters,
    instances: Vec<Instance<P>>,
    sets: Vec<(SetId, PendingSet<P>)>,
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Returns the retained state as bytes. It does nothing that is due.
    pub fn snapshot(&self) -> Vec<u8> {
        write::snapshot(self)
    }

    /// Takes over a snapshot. The cache is new, and its policies are those of the other cache. `payload` makes
    /// a payload of its bytes.
    ///
    /// DEADLINE, TIME_BASED_FILTER and READER_DATA_LIFECYCLE may differ, and time passes from the snapshot to
    /// `now`. The effects have the writers, and whether there are samples.
    ///
    /// # Errors
    /// [`SnapshotError`]. The cache is as it was.
    pub fn restore(
        &mut self,
        snapshot: &[u8],
        payload: impl FnMut(&[u8]) -> P,
        now: DdsTime,
    ) -> Result<Effects, SnapshotError> {
        let used = !self.instances.is_empty() || !self.sets.is_empty() || !self.loans.is_empty();
        if used || !self.rules.writers.is_empty() || !self.rules.departed.0.is_empty() {
            return Err(SnapshotError::InUse);
        }
        let parts = read::parts(snapshot, &self.rules.settings, payload)?;
        self.clock = self.clock.max(now);
        self.rules.policies_since = self.clock;
        let mut effects = std::mem::take(&mut self.owed);
        for (guid, writer) in &parts.writers {
            effects.liveness.push(liveness(*guid, None, Some(writer.alive)));
        }
        (self.rules.writers, self.rules.departed) = (parts.writers, parts.departed);
        self.rules.last = parts.last;
        for instance in parts.instances {
            self.adopt(instance, &mut effects);
        }
        self.rules.indices.set_arrival(parts.arrival);
        for (id, set) in parts.sets {
            self.buffered += set.changes.len();
            self.buffered_writes += set.changes.iter().filter(|(_, own)| own.kind == ChangeKind::Write).count();
            self.sets.insert(id, set);
        }
        self.owed = effects;
        Ok(self.poll(now))
    }

    /// Adds an instance of a snapshot, with its samples, indices and timers.
    fn adopt(&mut self, mut instance: Instance<P>, effects: &mut Effects) {
        let samples = std::mem::take(&mut instance.samples);
        (instance.valid, instance.unread) = (0, 0);
        self.rules.known += usize::from(instance.is_known());
        for own in &instance.writers {
            if let Some(writer) = self.rules.writers.get_mut(&own.writer) {
                writer.instances.insert(instance.handle);
            }
        }
        self.rules.choose_owner(&mut instance);
        for sample in samples {
            self.rules.indices.insert(&self.rules.settings, &mut instance, sample, effects);
        }
        self.rules.arm_deadline(&mut instance);
        self.rules.arm_purge(&mut instance);
        self.rules.arm_release(&mut instance);
        self.instances.insert(instance.handle, instance);
    }
}
