//! The passage of time: DEADLINE, TIME_BASED_FILTER, LIFESPAN and purge delays.
use super::cache::ReaderCache;
use super::effects::{Effects, MissedDeadline};
use super::event::DeadlineVerdict;
use super::indices::Timer;
use crate::id::InstanceHandle;
use crate::instance::Instance;
use crate::time::{DdsDuration, DdsTime};

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Does all that is due.
    pub fn poll(&mut self, now: DdsTime) -> Effects {
        self.advance(now);
        std::mem::take(&mut self.owed)
    }

    /// Returns when [`ReaderCache::poll`] has something to do next. A time that has passed means that effects
    /// wait to be returned.
    pub fn wake_at(&self) -> Option<DdsTime> {
        if self.owed != Effects::default() {
            return Some(self.clock);
        }
        let timer = self.rules.indices.timers.first().map(|(at, ..)| *at);
        let expiry = self.rules.indices.expiries.first().map(|(at, ..)| *at);
        timer.into_iter().chain(expiry).min()
    }

    /// Does all that is due, and returns the time.
    ///
    /// Every operation that takes the time begins here. Each timer takes effect at its own time, in the
    /// order of these times. So the contents do not depend on how often the cache is polled.
    pub(super) fn advance(&mut self, now: DdsTime) -> DdsTime {
        self.clock = self.clock.max(now);
        while let Some(due) = self.next_due().filter(|due| due.at() <= self.clock) {
            match due {
                Due::Expiry(entry) => self.expire(entry),
                Due::Timer((at, timer, handle)) => self.fire(timer, handle, at),
            }
        }
        self.clock
    }

    /// Returns what is due first. At one time samples expire first, so no timer makes them visible.
    fn next_due(&self) -> Option<Due> {
        let timer = self.rules.indices.timers.first().copied().map(Due::Timer).filter(|_| !self.frozen);
        let expiry = self.rules.indices.expiries.first().copied().map(Due::Expiry);
        expiry.into_iter().chain(timer).min_by_key(Due::at)
    }

    fn fire(&mut self, timer: Timer, handle: InstanceHandle, at: DdsTime) {
        let mut effects = std::mem::take(&mut self.owed);
        match timer {
            Timer::Release => {
                if let Some(instance) = self.instances.get_mut(&handle) {
                    self.rules.release(instance, at, &mut effects);
                }
                self.collect(handle);
            }
            Timer::Deadline => self.miss(handle, at, self.clock, &mut effects),
            Timer::Purge => self.purge(handle),
        }
        self.owed = effects;
    }

    /// Counts the periods in which an instance got no sample (DDS 2.2.3.7).
    fn miss(&mut self, handle: InstanceHandle, at: DdsTime, now: DdsTime, effects: &mut Effects) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        let period = self.rules.settings.deadline.as_nanos().max(1);
        let periods = now.as_nanos().abs_diff(at.as_nanos()).saturating_add(period) / period;
        instance.period_from = Some(at.after(DdsDuration::from_nanos((periods - 1).saturating_mul(period))));
        self.rules.arm_deadline(instance);
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        effects.deadlines.push(MissedDeadline { instance: handle, verdict: verdict(instance), periods });
    }

    /// Removes the samples of an instance that is not alive, also those that were not taken (DDS 2.2.3.22).
    ///
    /// An instance without writers is forgotten thereby, once no loan refers to it. A disposed one has
    /// writers, which may write it again: they stay, as do its owner, its newest source timestamp and its
    /// generations.
    fn purge(&mut self, handle: InstanceHandle) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        self.rules.counters.purged += self.rules.remove_all(instance);
        instance.ended = None;
        self.rules.arm_purge(instance);
        self.collect(handle);
    }

    /// Removes a sample whose LIFESPAN has ended (DDS 2.2.3.16).
    fn expire(&mut self, entry: Expiry) {
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

/// Returns the verdict by which the group may take the instance from its owner.
fn verdict<P>(instance: &Instance<P>) -> Option<DeadlineVerdict> {
    let owner = instance.writers.iter().find(|own| Some(own.writer) == instance.owner)?;
    Some(DeadlineVerdict { instance: instance.handle, writer: owner.writer, last: owner.last? })
}

/// The end of a sample's LIFESPAN.
type Expiry = (DdsTime, InstanceHandle, u64);

/// An effect of the passage of time.
#[derive(Clone, Copy, Debug)]
enum Due {
    Expiry(Expiry),
    Timer((DdsTime, Timer, InstanceHandle)),
}

impl Due {
    fn at(&self) -> DdsTime {
        match self {
            Due::Expiry((at, ..)) | Due::Timer((at, ..)) => *at,
        }
    }
}
