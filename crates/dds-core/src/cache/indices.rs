//! Data derived from the instances and their samples: sets in an order, timers and counts.
use super::effects::Effects;
use super::settings::CacheSettings;
use crate::id::InstanceHandle;
use crate::instance::{Instance, OrderKey, StateTally, Stored};
use crate::time::DdsTime;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Release,
    Deadline,
    Purge,
}

/// The indices. Every change of an instance's states or samples goes through them.
#[derive(Clone, Debug, Default)]
pub(super) struct Indices {
    /// The instances with samples.
    pub(super) occupied: BTreeSet<InstanceHandle>,
    /// The samples in the order of ordered access, if that was asked for.
    pub(super) order: BTreeSet<(OrderKey, InstanceHandle)>,
    pub(super) expiries: BTreeSet<(DdsTime, InstanceHandle, u64)>,
    pub(super) timers: BTreeSet<(DdsTime, Timer, InstanceHandle)>,
    pub(super) tally: StateTally,
    /// The samples with data.
    pub(super) samples: usize,
    /// The samples that one loan alone has taken out of the cache. Their instances have the numbers.
    pub(super) taken: usize,
    /// The open loans of other samples that have left the cache.
    pub(super) lent: BTreeMap<(InstanceHandle, u64), u32>,
    arrival: u64,
}

impl Indices {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.occupied.len()
            + self.order.len()
            + self.expiries.len()
            + self.timers.len()
            + self.samples
            + self.lent.len()
            + self.taken
    }

    /// Changes the states or samples of an instance.
    pub(super) fn change<P, R>(&mut self, instance: &mut Instance<P>, change: impl FnOnce(&mut Instance<P>) -> R) -> R {
        self.tally.subtract(instance.view, instance.state, instance.counts());
        let was_empty = instance.samples.is_empty();
        let result = change(instance);
        self.tally.add(instance.view, instance.state, instance.counts());
        match (was_empty, instance.samples.is_empty()) {
            (true, false) => drop(self.occupied.insert(instance.handle)),
            (false, true) => drop(self.occupied.remove(&instance.handle)),
            _ => {}
        }
        result
    }

    pub(super) fn set_timer<P>(&mut self, instance: &mut Instance<P>, timer: Timer, at: Option<DdsTime>) {
        let place = match timer {
            Timer::Release => &mut instance.release_at,
            Timer::Deadline => &mut instance.deadline_at,
            Timer::Purge => &mut instance.purge_at,
        };
        let at = at.filter(|at| *at != DdsTime::NEVER);
        if let Some(before) = std::mem::replace(place, at) {
            self.timers.remove(&(before, timer, instance.handle));
        }
        if let Some(at) = at {
            self.timers.insert((at, timer, instance.handle));
        }
    }

    /// Adds a sample.
    pub(super) fn insert<P>(
        &mut self,
        settings: &CacheSettings,
        instance: &mut Instance<P>,
        sample: Stored<P>,
        effects: &mut Effects,
    ) {
        self.samples += usize::from(sample.data.is_some());
        if settings.ordered {
            self.order.insert((sample.order(settings.by_source), instance.handle));
        }
        if sample.expires != DdsTime::NEVER {
            self.expiries.insert((sample.expires, instance.handle, sample.arrival));
        }
        self.change(instance, |instance| instance.push(sample));
        effects.data_available = true;
    }

    /// Removes the sample at an index of its instance.
    pub(super) fn remove<P>(
        &mut self,
        settings: &CacheSettings,
        instance: &mut Instance<P>,
        index: usize,
    ) -> Option<Stored<P>> {
        let sample = self.change(instance, |instance| instance.remove(index))?;
        self.samples -= usize::from(sample.data.is_some());
        if settings.ordered {
            self.order.remove(&(sample.order(settings.by_source), instance.handle));
        }
        if sample.expires != DdsTime::NEVER {
            self.expiries.remove(&(sample.expires, instance.handle, sample.arrival));
        }
        if sample.loans > 0 && sample.data.is_some() {
            self.lent.insert((instance.handle, sample.arrival), sample.loans);
        }
        Some(sample)
    }

    /// Counts a loan of a sample with data that has left the cache.
    pub(super) fn lend_gone(&mut self, handle: InstanceHandle, arrival: u64) {
        *self.lent.entry((handle, arrival)).or_default() += 1;
    }

    /// Ends a loan of a sample, and returns whether it had left the cache.
    pub(super) fn return_gone(&mut self, handle: InstanceHandle, arrival: u64) -> bool {
        let Some(loans) = self.lent.get_mut(&(handle, arrival)) else { return false };
        *loans -= 1;
        if *loans == 0 {
            self.lent.remove(&(handle, arrival));
        }
        true
    }

    /// Returns the samples of an instance that have left the cache and have open loans.
    pub(super) fn lent_of<P>(&self, instance: &Instance<P>) -> usize {
        let handle = instance.handle;
        let lent = if self.lent.is_empty() { 0 } else { self.lent.range((handle, 0)..=(handle, u64::MAX)).count() };
        lent + instance.taken as usize
    }

    /// Returns the samples with data that RESOURCE_LIMITS count: those in the cache, and those that the
    /// application holds.
    pub(super) fn occupied_samples(&self) -> usize {
        self.samples + self.lent.len() + self.taken
    }

    pub(super) fn arrival(&self) -> u64 {
        self.arrival
    }

    /// Continues the numbers of samples after one.
    pub(super) fn set_arrival(&mut self, arrival: u64) {
        self.arrival = self.arrival.max(arrival);
    }

    pub(super) fn next_arrival(&mut self) -> u64 {
        self.arrival += 1;
        self.arrival
    }
}
