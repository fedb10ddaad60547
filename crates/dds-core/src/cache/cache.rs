//! The cache: its parts, and questions about them.
use super::departed::DepartedWriters;
use super::effects::{CacheCounters, Effects, RejectedReason};
use super::event::{CacheChange, KeyReader, SetId};
use super::indices::{Indices, Timer};
use super::loans::Loan;
use super::rules::Rules;
use super::settings::CacheSettings;
use crate::error::DdsError;
use crate::filter::ContentFilter;
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::{Instance, InstanceState, StateMask, ViewState};
use crate::policy::PolicyId;
use crate::qos::{DataReaderQos, SubscriberQos};
use crate::time::DdsTime;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

/// A coherent set whose end has not arrived.
#[derive(Clone, Debug)]
pub(super) struct PendingSet<P> {
    pub(super) changes: Vec<(Position, CacheChange<P>)>,
    /// The writers of its changes, also of those that are gone.
    pub(super) writers: Vec<Guid>,
    /// The changes that a limit left no room for. With any, the set is rejected as a whole.
    pub(super) refused: u32,
    /// Whether a writer went away within the set.
    pub(super) broken: bool,
}

impl<P> Default for PendingSet<P> {
    fn default() -> PendingSet<P> {
        PendingSet { changes: Vec::new(), writers: Vec::new(), refused: 0, broken: false }
    }
}

/// The cache of a reader. `P` is a serialised sample, or a reference to one.
///
/// Events must arrive in the order of their positions. A change may come after the departure of its writer,
/// if it was ordered before. Each operation that takes the time first does all
/// that is due. A time before an earlier one counts as the earlier one.
pub struct ReaderCache<P> {
    pub(super) rules: Rules,
    pub(super) key_of: KeyReader<P>,
    pub(super) instances: BTreeMap<InstanceHandle, Instance<P>>,
    pub(super) sets: BTreeMap<SetId, PendingSet<P>>,
    /// The changes in pending sets.
    pub(super) buffered: usize,
    /// The writes among them.
    pub(super) buffered_writes: usize,
    pub(super) loans: BTreeMap<u64, Loan>,
    pub(super) loan_next: u64,
    /// Whether time stands still, as in the state of an access at GROUP scope. Only LIFESPAN counts.
    pub(super) frozen: bool,
    /// The latest time that the cache was given.
    pub(super) clock: DdsTime,
    /// The effects of the passage of time that no call has returned.
    pub(super) owed: Effects,
}

/// The state of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceInfo {
    /// Whether it is alive.
    pub state: InstanceState,
    /// Whether the application has seen it in this life.
    pub view: ViewState,
    /// Its writers.
    pub writers: Vec<Guid>,
    /// Its owner, if OWNERSHIP is EXCLUSIVE.
    pub owner: Option<Guid>,
    /// Its samples, with those that announce a change of state.
    pub samples: usize,
}

impl<P> fmt::Debug for ReaderCache<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderCache")
            .field("settings", &self.rules.settings)
            .field("instances", &self.instances.len())
            .field("samples", &self.rules.indices.samples)
            .field("writers", &self.rules.writers.len())
            .field("counters", &self.rules.counters)
            .finish_non_exhaustive()
    }
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Makes an empty cache.
    ///
    /// # Errors
    /// As [`QosSet::check_consistent`](crate::qos::QosSet::check_consistent), and `Unsupported` for
    /// TIME_BASED_FILTER with coherent access, and for coherent or ordered access at GROUP scope, which
    /// a [`GroupCaches`](super::GroupCaches) has.
    pub fn new(
        reader: &DataReaderQos,
        subscriber: &SubscriberQos,
        key_of: KeyReader<P>,
    ) -> Result<ReaderCache<P>, DdsError> {
        let settings = CacheSettings::new(reader, subscriber)?;
        if settings.needs_access() {
            let what = format!("{} {} in a cache by itself", PolicyId::Presentation, subscriber.presentation);
            return Err(DdsError::Unsupported { what, remedy: "add the reader to the caches of its subscriber" });
        }
        Ok(ReaderCache::with(settings, key_of))
    }

    /// Makes an empty cache, also for GROUP scope.
    pub(super) fn with(settings: CacheSettings, key_of: KeyReader<P>) -> ReaderCache<P> {
        let rules = Rules {
            settings,
            filter: None,
            writers: BTreeMap::new(),
            departed: DepartedWriters::default(),
            indices: Indices::default(),
            counters: CacheCounters::default(),
            known: 0,
            last: Position::default(),
            policies_since: DdsTime::EARLIEST,
        };
        ReaderCache {
            rules,
            key_of,
            instances: BTreeMap::new(),
            sets: BTreeMap::new(),
            buffered: 0,
            buffered_writes: 0,
            loans: BTreeMap::new(),
            loan_next: 0,
            frozen: false,
            clock: DdsTime::EARLIEST,
            owed: Effects::default(),
        }
    }

    /// Returns a copy of the instances and samples in which time stands still. Payloads are shared.
    pub(super) fn freeze(&self) -> ReaderCache<P> {
        ReaderCache {
            rules: self.rules.clone(),
            key_of: self.key_of.clone(),
            instances: self.instances.clone(),
            sets: BTreeMap::new(),
            buffered: 0,
            buffered_writes: 0,
            loans: BTreeMap::new(),
            loan_next: 0,
            frozen: true,
            clock: self.clock,
            owed: Effects::default(),
        }
    }

    /// Sets the filter of a content-filtered topic, or its new parameters. Samples in the cache stay.
    pub fn set_filter(&mut self, filter: Option<ContentFilter>) {
        self.rules.filter = filter;
    }

    /// Takes over the policies that may change: DEADLINE, TIME_BASED_FILTER and READER_DATA_LIFECYCLE.
    /// [`QosSet::check_change`](crate::qos::QosSet::check_change) refuses changes of others.
    ///
    /// A period, a separation or a delay that has begun has the new length. If it has ended by that, it ends
    /// now.
    ///
    /// # Errors
    /// As [`ReaderCache::new`]. The former policies stay.
    pub fn set_qos(
        &mut self,
        reader: &DataReaderQos,
        subscriber: &SubscriberQos,
        now: DdsTime,
    ) -> Result<Effects, DdsError> {
        let CacheSettings { separation, deadline, purge_no_writers, purge_disposed, .. } =
            CacheSettings::new(reader, subscriber)?;
        self.rules.policies_since = self.advance(now);
        let own = self.rules.settings;
        self.rules.settings = CacheSettings { separation, deadline, purge_no_writers, purge_disposed, ..own };
        for instance in self.instances.values_mut() {
            self.rules.arm_deadline(instance);
            self.rules.arm_purge(instance);
            self.rules.arm_release(instance);
        }
        Ok(self.poll(now))
    }

    /// Returns the counters.
    pub fn counters(&self) -> CacheCounters {
        self.rules.counters
    }

    /// Returns the number of instances that the application may know.
    pub fn instance_count(&self) -> usize {
        self.rules.known
    }

    /// Returns the number of samples with data.
    pub fn sample_count(&self) -> usize {
        self.rules.indices.samples
    }

    /// Returns the number of entries in all collections of the cache, except for writers that match or went
    /// away. It is 0 when nothing is held.
    pub fn footprint(&self) -> usize {
        let registered: usize = self.rules.writers.values().map(|writer| writer.instances.len()).sum();
        let sets = self.sets.len() + self.buffered;
        self.instances.len() + registered + self.rules.indices.len() + sets + self.loans.len()
    }

    /// Returns the handle of a key that the reader knows: `lookup_instance` (DDS 2.2.2.5.3.30).
    pub fn lookup_instance(&self, key: InstanceHandle) -> Option<InstanceHandle> {
        self.known(key).map(|own| own.handle)
    }

    /// Returns the serialised key of an instance: `get_key_value` (DDS 2.2.2.5.3.29).
    ///
    /// # Errors
    /// `BadParameter` if the reader does not know the instance.
    pub fn key_value(&self, instance: InstanceHandle) -> Result<Arc<[u8]>, DdsError> {
        self.known(instance).map(Instance::key).ok_or_else(|| unknown(instance))
    }

    /// Returns the state of an instance that the reader knows.
    pub fn instance(&self, instance: InstanceHandle) -> Option<InstanceInfo> {
        let own = self.known(instance)?;
        Some(InstanceInfo {
            state: own.state,
            view: own.view,
            writers: own.writers.iter().map(|registration| registration.writer).collect(),
            owner: own.owner,
            samples: own.samples.len(),
        })
    }

    /// Returns the number of samples whose states are in a set, without looking at them.
    pub fn count(&self, states: StateMask) -> usize {
        self.rules.indices.tally.count(states)
    }

    /// Returns the limit that a write to an instance would break now. A driver that can hold back its
    /// stream asks before it delivers. The filter and ownership are not looked at.
    ///
    /// # Errors
    /// The limit.
    pub fn admits(&self, instance: InstanceHandle) -> Result<(), RejectedReason> {
        self.rules.admits(self.instances.get(&instance))
    }

    /// Returns an instance that the application may know.
    pub(super) fn known(&self, instance: InstanceHandle) -> Option<&Instance<P>> {
        self.instances.get(&instance).filter(|own| own.is_known())
    }

    /// Removes an instance to which nothing refers any more.
    pub(super) fn collect(&mut self, handle: InstanceHandle) {
        let Entry::Occupied(mut entry) = self.instances.entry(handle) else { return };
        if entry.get().is_garbage() {
            for timer in [Timer::Release, Timer::Deadline, Timer::Purge] {
                self.rules.indices.set_timer(entry.get_mut(), timer, None);
            }
            if entry.remove().is_known() {
                self.rules.known -= 1;
                self.rules.counters.instances_collected += 1;
            }
        }
    }
}

pub(super) fn unknown(instance: InstanceHandle) -> DdsError {
    DdsError::BadParameter(format!("the reader knows no instance {instance}; look it up, or read any instance"))
}
