//! The passage of time: DEADLINE, TIME_BASED_FILTER, LIFESPAN and purge delays.
use super::cache::ReaderCache;
use super::effects::{Effects, MissedDeadline};
use super::indices::Timer;
use crate::id::InstanceHandle;
use crate::time::{DdsDuration, DdsTime};

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Does all that is due.
    pub fn poll(&mut self, now: DdsTime) -> Effects {
        let mut effects = Effects::default();
        let due = |cache: &Self| cache.rules.indices.timers.first().copied().filter(|(at, ..)| *at <= now);
        while let Some((at, timer, handle)) = due(self) {
            match timer {
                Timer::Release => {
                    if let Some(instance) = self.instances.get_mut(&handle) {
                        self.rules.release(instance, now, &mut effects);
                    }
                    self.collect(handle);
                }
                Timer::Deadline => self.miss(handle, at, now, &mut effects),
                Timer::Purge => self.purge(handle),
            }
        }
        self.expire(now);
        effects
    }

    /// Returns when [`ReaderCache::poll`] has something to do next.
    pub fn wake_at(&self) -> Option<DdsTime> {
        let timer = self.rules.indices.timers.first().map(|(at, ..)| *at);
        let expiry = self.rules.indices.expiries.first().map(|(at, ..)| *at);
        timer.into_iter().chain(expiry).min()
    }

    /// Counts the periods in which an instance got no sample (DDS 2.2.3.7).
    fn miss(&mut self, handle: InstanceHandle, at: DdsTime, now: DdsTime, effects: &mut Effects) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        let period = self.rules.settings.deadline.as_nanos().max(1);
        let periods = now.as_nanos().abs_diff(at.as_nanos()) / period + 1;
        // After a change of the policy the next period has the new length.
        let next = at.after(DdsDuration::from_nanos(periods.saturating_mul(period)));
        self.rules.indices.set_timer(instance, Timer::Deadline, Some(next));
        let (owner, periods) = (instance.owner, u32::try_from(periods).unwrap_or(u32::MAX));
        effects.deadlines.push(MissedDeadline { instance: handle, owner, periods });
    }

    /// Forgets an instance that is not alive, with samples that were not taken (DDS 2.2.3.22). A sample
    /// that waits for the minimum separation will revive it, so its writers stay.
    fn purge(&mut self, handle: InstanceHandle) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        self.rules.counters.purged += self.rules.remove_all(instance);
        self.rules.indices.set_timer(instance, Timer::Purge, None);
        if instance.pending.is_some() {
            return;
        }
        instance.owner = None;
        for own in std::mem::take(&mut instance.writers) {
            if let Some(writer) = self.rules.writers.get_mut(&own.writer) {
                writer.instances.remove(&handle);
            }
        }
        self.collect(handle);
    }

    /// Removes samples whose LIFESPAN has ended (DDS 2.2.3.16).
    pub(super) fn expire(&mut self, now: DdsTime) {
        let due = |cache: &Self| cache.rules.indices.expiries.first().copied().filter(|(at, ..)| *at <= now);
        while let Some(entry) = due(self) {
            let (_, handle, arrival) = entry;
            self.rules.indices.expiries.remove(&entry);
            if let Some(instance) = self.instances.get_mut(&handle)
                && let Some(index) = instance.find(arrival)
            {
                self.rules.indices.remove(&self.rules.settings, instance, index);
                self.rules.counters.expired += 1;
            }
            self.collect(handle);
        }
    }
}
