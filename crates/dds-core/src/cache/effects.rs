//! The effects of events, from which statuses are made, and counters.
use super::event::DeadlineVerdict;
use crate::id::{Guid, InstanceHandle};

/// The limit by which a sample was rejected (DDS 2.2.4.1, SAMPLE_REJECTED).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectedReason {
    /// `max_instances`.
    Instances,
    /// `max_samples`.
    Samples,
    /// `max_samples_per_instance`.
    SamplesPerInstance,
}

/// A DEADLINE that an instance has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedDeadline {
    /// The instance.
    pub instance: InstanceHandle,
    /// The verdict on its owner, to be ordered by the group; `None` without OWNERSHIP EXCLUSIVE.
    pub verdict: Option<DeadlineVerdict>,
    /// The periods that have passed.
    pub periods: u32,
}

/// A change of the liveliness of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterLiveness {
    /// The writer.
    pub writer: Guid,
    /// Its liveliness before; `None` if it did not match.
    pub before: Option<bool>,
    /// Its liveliness now; `None` if it no longer matches.
    pub now: Option<bool>,
}

/// The effects of an event, or of the passage of time, on a cache. Statuses are made from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "statuses are made from it"]
pub struct Effects {
    /// Whether there are new samples.
    pub data_available: bool,
    /// The samples that were rejected.
    pub rejected: Vec<(RejectedReason, InstanceHandle)>,
    /// The samples that were lost: before they arrived, with a coherent set that was given up, or because they
    /// can't be decoded.
    pub lost: u32,
    /// The deadlines that were missed.
    pub deadlines: Vec<MissedDeadline>,
    /// The writers whose liveliness has changed.
    pub liveness: Vec<WriterLiveness>,
}

impl Effects {
    /// Adds the effects of a later event.
    pub fn add(&mut self, later: Effects) {
        let Effects { data_available, rejected, lost, deadlines, liveness } = later;
        self.data_available |= data_available;
        self.rejected.extend(rejected);
        self.lost = self.lost.saturating_add(lost);
        self.deadlines.extend(deadlines);
        self.liveness.extend(liveness);
    }
}

/// Counters of a cache, for metrics. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Samples that became visible.
    pub accepted: u64,
    /// Samples that newer ones replaced (HISTORY KEEP_LAST).
    pub overwritten: u64,
    /// Samples among them that the application had not read.
    pub overwritten_unread: u64,
    /// Samples that a limit rejected.
    pub rejected: u64,
    /// Changes that the content filter dropped.
    pub filtered: u64,
    /// Changes that are older than their instance (DESTINATION_ORDER BY_SOURCE_TIMESTAMP).
    pub late: u64,
    /// Changes by writers that did not own the instance.
    pub not_owned: u64,
    /// Samples that TIME_BASED_FILTER dropped.
    pub separated: u64,
    /// Samples whose LIFESPAN ended.
    pub expired: u64,
    /// Samples that READER_DATA_LIFECYCLE removed.
    pub purged: u64,
    /// Changes by writers that did not match.
    pub unmatched: u64,
    /// Samples of which the filter could not be evaluated, or the key not be read.
    pub undecodable: u64,
    /// Coherent sets that became visible.
    pub sets_committed: u64,
    /// Coherent sets that were given up, or of which a part was missing.
    pub sets_discarded: u64,
    /// Coherent sets that a limit rejected as a whole.
    pub sets_rejected: u64,
    /// Instances that were removed because nothing referred to them.
    pub instances_collected: u64,
}
