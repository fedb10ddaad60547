//! The passage of time: DEADLINE, TIME_BASED_FILTER, LIFESPAN and purge delays.
use super::cache::{ReaderCache, Timer};
use super::effects::{Effects, MissedDeadline};
use crate::id::InstanceHandle;
use crate::time::DdsTime;

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Does all that is due.
    pub fn poll(&mut self, now: DdsTime) -> Effects {
        let mut effects = Effects::default();
        while let Some((at, timer, handle)) = self.timers.first().copied().filter(|(at, ..)| *at <= now) {
            match timer {
                Timer::Release => {
                    self.release(handle, now, &mut effects);
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
        let timer = self.timers.first().map(|(at, ..)| *at);
        let expiry = self.expiries.first().map(|(at, ..)| *at);
        timer.into_iter().chain(expiry).min()
    }

    /// Counts the periods in which an instance got no sample (DDS 2.2.3.7).
    fn miss(&mut self, handle: InstanceHandle, at: DdsTime, now: DdsTime, effects: &mut Effects) {
        let period = self.settings.deadline.as_nanos().max(1);
        let late = now.as_nanos().abs_diff(at.as_nanos());
        let periods = late / period + 1;
        // After a change of the policy the next period has the new length.
        let next = at.after(crate::time::DdsDuration::from_nanos(periods.saturating_mul(period)));
        let owner = self.instances.get(&handle).and_then(|instance| instance.owner);
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        effects.deadlines.push(MissedDeadline { instance: handle, owner, periods });
        self.set_timer(handle, Timer::Deadline, Some(next));
    }

    /// Forgets an instance that is not alive, with samples that were not taken (DDS 2.2.3.22). A sample
    /// that waits for the minimum separation will revive it, so its writers stay.
    fn purge(&mut self, handle: InstanceHandle) {
        self.counters.purged += self.remove_all(handle);
        self.set_timer(handle, Timer::Purge, None);
        let Some(instance) = self.instances.get_mut(&handle).filter(|own| own.pending.is_none()) else { return };
        instance.owner = None;
        for own in std::mem::take(&mut instance.writers) {
            if let Some(writer) = self.writers.get_mut(&own.writer) {
                writer.instances.remove(&handle);
            }
        }
        self.collect(handle);
    }

    /// Removes samples whose LIFESPAN has ended (DDS 2.2.3.16).
    pub(super) fn expire(&mut self, now: DdsTime) {
        while let Some((_, handle, arrival)) = self.expiries.first().copied().filter(|(at, ..)| *at <= now) {
            self.remove(handle, arrival);
            self.counters.expired += 1;
            self.collect(handle);
        }
    }
}
