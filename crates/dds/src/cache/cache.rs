//! The cache: instances, samples and the indices over them.
use super::effects::{CacheCounters, Effects, RejectedReason};
use super::event::{CacheChange, SetId};
use super::settings::CacheSettings;
use crate::error::DdsError;
use crate::filter::ContentFilter;
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::{Instance, InstanceState, OrderKey, StateMask, StateTally, Stored, ViewState};
use crate::policy::HistoryQosPolicyKind;
use crate::qos::{DataReaderQos, SubscriberQos};
use crate::time::{DdsDuration, DdsTime};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Returns the serialised key of a serialised sample.
pub type KeyReader<P> = Arc<dyn Fn(&P) -> Arc<[u8]> + Send + Sync>;

/// A writer that matches.
#[derive(Clone, Debug)]
pub(super) struct WriterRecord {
    pub(super) strength: i32,
    pub(super) lifespan: DdsDuration,
    pub(super) alive: bool,
    /// The instances that it has registered.
    pub(super) instances: BTreeSet<InstanceHandle>,
}

/// A coherent set whose end has not arrived.
#[derive(Clone, Debug)]
pub(super) struct PendingSet<P> {
    pub(super) changes: Vec<(Position, CacheChange<P>)>,
    /// The changes that a limit left no room for. With any, the set is rejected as a whole.
    pub(super) refused: u32,
    /// Whether a writer went away within the set.
    pub(super) broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Release,
    Deadline,
    Purge,
}

/// The cache of a reader. `P` is a serialised sample, or a reference to one.
///
/// Events must arrive in the order of their positions, and time must not run backwards.
pub struct ReaderCache<P> {
    pub(super) settings: CacheSettings,
    pub(super) key_of: KeyReader<P>,
    pub(super) filter: Option<ContentFilter>,
    pub(super) instances: BTreeMap<InstanceHandle, Instance<P>>,
    pub(super) writers: BTreeMap<Guid, WriterRecord>,
    /// The instances with samples.
    pub(super) occupied: BTreeSet<InstanceHandle>,
    /// The samples in the order of ordered access, if that was asked for.
    pub(super) order: BTreeSet<(OrderKey, InstanceHandle)>,
    pub(super) expiries: BTreeSet<(DdsTime, InstanceHandle, u64)>,
    pub(super) timers: BTreeSet<(DdsTime, Timer, InstanceHandle)>,
    pub(super) sets: BTreeMap<SetId, PendingSet<P>>,
    /// The changes in pending sets.
    pub(super) buffered: usize,
    pub(super) loans: BTreeMap<u64, Vec<InstanceHandle>>,
    pub(super) loan_next: u64,
    pub(super) tally: StateTally,
    /// The samples with data.
    pub(super) samples: usize,
    pub(super) arrival_next: u64,
    pub(super) in_access: bool,
    pub(super) counters: CacheCounters,
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
            .field("settings", &self.settings)
            .field("instances", &self.instances.len())
            .field("samples", &self.samples)
            .field("writers", &self.writers.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Makes an empty cache.
    ///
    /// # Errors
    /// Those of [`QosSet::check`](crate::qos::QosSet::check); `Unsupported` for TIME_BASED_FILTER with
    /// coherent access.
    pub fn new(
        reader: &DataReaderQos,
        subscriber: &SubscriberQos,
        key_of: KeyReader<P>,
    ) -> Result<ReaderCache<P>, DdsError> {
        Ok(ReaderCache {
            settings: CacheSettings::new(reader, subscriber)?,
            key_of,
            filter: None,
            instances: BTreeMap::new(),
            writers: BTreeMap::new(),
            occupied: BTreeSet::new(),
            order: BTreeSet::new(),
            expiries: BTreeSet::new(),
            timers: BTreeSet::new(),
            sets: BTreeMap::new(),
            buffered: 0,
            loans: BTreeMap::new(),
            loan_next: 0,
            tally: StateTally::default(),
            samples: 0,
            arrival_next: 0,
            in_access: false,
            counters: CacheCounters::default(),
        })
    }

    /// Sets the filter of a content-filtered topic, or its new parameters. Samples in the cache stay.
    pub fn set_filter(&mut self, filter: Option<ContentFilter>) {
        self.filter = filter;
    }

    /// Takes over the policies that may change: `set_qos` of the reader.
    ///
    /// # Errors
    /// As [`ReaderCache::new`]. The former policies stay.
    pub fn set_qos(&mut self, reader: &DataReaderQos, subscriber: &SubscriberQos) -> Result<(), DdsError> {
        self.settings = CacheSettings::new(reader, subscriber)?;
        Ok(())
    }

    /// Returns the counters.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// Returns the number of instances.
    pub fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// Returns the number of samples with data.
    pub fn sample_count(&self) -> usize {
        self.samples
    }

    /// Returns the number of entries in all collections of the cache, writers excepted. It is 0 when
    /// nothing is held.
    pub fn footprint(&self) -> usize {
        let registered: usize = self.writers.values().map(|writer| writer.instances.len()).sum();
        let indices = self.occupied.len() + self.order.len() + self.expiries.len() + self.timers.len();
        let sets = self.sets.len() + self.buffered;
        self.instances.len() + self.samples + registered + indices + sets + self.loans.len()
    }

    /// Returns the handle of a key that the reader knows: `lookup_instance` (DDS 2.2.2.5.3.30).
    pub fn lookup_instance(&self, key: InstanceHandle) -> Option<InstanceHandle> {
        self.instances.contains_key(&key).then_some(key)
    }

    /// Returns the serialised key of an instance: `get_key_value` (DDS 2.2.2.5.3.29).
    ///
    /// # Errors
    /// `BadParameter` if the reader does not know the instance.
    pub fn key_value(&self, instance: InstanceHandle) -> Result<Arc<[u8]>, DdsError> {
        self.instances.get(&instance).map(|own| own.key.clone()).ok_or_else(|| unknown(instance))
    }

    /// Returns the state of an instance that the reader knows.
    pub fn instance(&self, instance: InstanceHandle) -> Option<InstanceInfo> {
        let own = self.instances.get(&instance)?;
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
        self.tally.count(states)
    }

    /// Returns the limit that a write to an instance would break now. A driver that can hold back its
    /// stream asks before it delivers. The filter and ownership are not looked at.
    ///
    /// # Errors
    /// The limit.
    pub fn admits(&self, instance: InstanceHandle) -> Result<(), RejectedReason> {
        let limits = &self.settings.limits;
        let found = self.instances.get(&instance);
        if found.is_none() && !limits.max_instances.admits(self.instances.len()) {
            return Err(RejectedReason::Instances);
        }
        let valid = found.map_or(0, |found| found.valid);
        if let HistoryQosPolicyKind::KeepLast(depth) = self.settings.history
            && valid >= depth as usize
        {
            return Ok(());
        }
        if !limits.max_samples_per_instance.admits(valid) {
            return Err(RejectedReason::SamplesPerInstance);
        }
        if !limits.max_samples.admits(self.samples) {
            return Err(RejectedReason::Samples);
        }
        Ok(())
    }

    /// Changes an instance, and keeps the indices that follow from its states and samples.
    pub(super) fn change<R>(
        &mut self,
        handle: InstanceHandle,
        change: impl FnOnce(&mut Instance<P>) -> R,
    ) -> Option<R> {
        let instance = self.instances.get_mut(&handle)?;
        self.tally.subtract(instance.view, instance.state, instance.counts());
        let was_empty = instance.samples.is_empty();
        let result = change(instance);
        self.tally.add(instance.view, instance.state, instance.counts());
        match (was_empty, instance.samples.is_empty()) {
            (true, false) => drop(self.occupied.insert(handle)),
            (false, true) => drop(self.occupied.remove(&handle)),
            _ => {}
        }
        Some(result)
    }

    pub(super) fn set_timer(&mut self, handle: InstanceHandle, timer: Timer, at: Option<DdsTime>) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        let place = match timer {
            Timer::Release => &mut instance.release_at,
            Timer::Deadline => &mut instance.deadline_at,
            Timer::Purge => &mut instance.purge_at,
        };
        let at = at.filter(|at| *at != DdsTime::NEVER);
        if let Some(before) = std::mem::replace(place, at) {
            self.timers.remove(&(before, timer, handle));
        }
        if let Some(at) = at {
            self.timers.insert((at, timer, handle));
        }
    }

    /// Adds a sample to an instance, which must exist, and to the indices.
    pub(super) fn insert(&mut self, handle: InstanceHandle, sample: Stored<P>, effects: &mut Effects) {
        if sample.data.is_some() {
            self.samples += 1;
            self.counters.accepted += 1;
        }
        if self.settings.ordered {
            self.order.insert((sample.order(self.settings.by_source), handle));
        }
        if sample.expires != DdsTime::NEVER {
            self.expiries.insert((sample.expires, handle, sample.arrival));
        }
        self.change(handle, |instance| instance.push(sample));
        effects.data_available = true;
    }

    /// Removes a sample from its instance and from the indices.
    pub(super) fn remove(&mut self, handle: InstanceHandle, arrival: u64) -> Option<Stored<P>> {
        let sample = self.change(handle, |instance| instance.find(arrival).and_then(|at| instance.remove(at)))??;
        self.samples -= usize::from(sample.data.is_some());
        if self.settings.ordered {
            self.order.remove(&(sample.order(self.settings.by_source), handle));
        }
        self.expiries.remove(&(sample.expires, handle, sample.arrival));
        Some(sample)
    }

    /// Removes all samples of an instance, and returns how many there were.
    pub(super) fn remove_all(&mut self, handle: InstanceHandle) -> u64 {
        let arrivals: Vec<u64> = match self.instances.get(&handle) {
            Some(instance) => instance.samples.iter().map(|sample| sample.arrival).collect(),
            None => Vec::new(),
        };
        arrivals.iter().filter(|arrival| self.remove(handle, **arrival).is_some()).count() as u64
    }

    pub(super) fn next_arrival(&mut self) -> u64 {
        self.arrival_next += 1;
        self.arrival_next
    }

    /// Removes an instance to which nothing refers any more.
    pub(super) fn collect(&mut self, handle: InstanceHandle) {
        if self.instances.get(&handle).is_some_and(Instance::is_garbage) {
            for timer in [Timer::Release, Timer::Deadline, Timer::Purge] {
                self.set_timer(handle, timer, None);
            }
            self.instances.remove(&handle);
            self.counters.instances_collected += 1;
        }
    }

    pub(super) fn set_in_access(&mut self, in_access: bool) {
        self.in_access = in_access;
    }
}

pub(super) fn unknown(instance: InstanceHandle) -> DdsError {
    DdsError::BadParameter(format!("the reader knows no instance {instance}; look it up, or read any instance"))
}
