//! Events: what each does to instances.
use super::cache::{ReaderCache, Timer, WriterRecord};
use super::effects::{Effects, RejectedReason, WriterLiveness};
use super::event::{CacheChange, ChangeKind, ReaderEvent, WriterEnd, WriterInfo};
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::{Instance, InstanceState, Stored};
use crate::policy::HistoryQosPolicyKind;
use crate::time::{DdsDuration, DdsTime};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where and when an event takes effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The position of the change.
    pub(super) position: Position,
    /// The position at which it becomes visible.
    pub(super) visible: Position,
    pub(super) now: DdsTime,
}

impl Moment {
    pub(super) fn at(position: Position, now: DdsTime) -> Moment {
        Moment { position, visible: position, now }
    }
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Applies an event.
    pub fn deliver(&mut self, position: Position, event: ReaderEvent<P>, now: DdsTime) -> Effects {
        let mut effects = Effects::default();
        let at = Moment::at(position, now);
        match event {
            ReaderEvent::Change(change) if self.settings.coherent && change.set.is_some() => {
                self.buffer(position, change, &mut effects);
            }
            ReaderEvent::Change(change) => self.apply(change, at, &mut effects),
            ReaderEvent::SetEnd(end) => self.end_set(&end, at, &mut effects),
            ReaderEvent::SetAbandoned(set) => self.discard_set(set),
            ReaderEvent::WriterMatched(writer) => self.match_writer(writer, &mut effects),
            ReaderEvent::WriterUnmatched(writer, end) => self.unmatch_writer(writer, end, at, &mut effects),
            ReaderEvent::WriterAlive(writer, alive) => self.set_alive(writer, alive, at, &mut effects),
            ReaderEvent::DeadlineVerdict(instance, writer) => self.disown(instance, writer),
            ReaderEvent::SamplesLost(count) => effects.lost += count,
        }
        effects
    }

    /// Applies a change that takes effect now.
    pub(super) fn apply(&mut self, change: CacheChange<P>, at: Moment, effects: &mut Effects) {
        let Some(writer) = self.writers.get_mut(&change.writer) else {
            self.counters.unmatched += 1;
            return;
        };
        if !writer.alive {
            // A change is a sign of life (DDS 2.2.3.11).
            writer.alive = true;
            effects.liveness.push(liveness(change.writer, Some(false), Some(true)));
        }
        match change.kind {
            ChangeKind::Write => self.write(change, at, effects),
            ChangeKind::Register => self.register(change.instance, change.writer, false),
            ChangeKind::Dispose => self.dispose(&change, at, effects),
            ChangeKind::Unregister => self.unregister(change.instance, change.writer, at, effects),
            ChangeKind::DisposeUnregister => {
                self.dispose(&change, at, effects);
                self.unregister(change.instance, change.writer, at, effects);
            }
        }
    }

    /// Adds a writer to an instance that exists.
    fn register(&mut self, handle: InstanceHandle, guid: Guid, writes: bool) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        instance.register(guid, writes);
        if let Some(writer) = self.writers.get_mut(&guid) {
            writer.instances.insert(handle);
        }
        self.choose_owner(handle);
    }

    fn choose_owner(&mut self, handle: InstanceHandle) {
        if !self.settings.exclusive {
            return;
        }
        let writers = &self.writers;
        if let Some(instance) = self.instances.get_mut(&handle) {
            instance.choose_owner(|guid| writers.get(&guid).map_or(i32::MIN, |writer| writer.strength));
        }
    }

    /// Returns whether a writer may change an instance (DDS 2.2.3.9).
    fn owns(&mut self, handle: InstanceHandle, writer: Guid) -> bool {
        let owner = self.instances.get(&handle).and_then(|instance| instance.owner);
        let owns = !self.settings.exclusive || owner == Some(writer);
        self.counters.not_owned += u64::from(!owns);
        owns
    }

    fn passes(&mut self, payload: &P, key: bool) -> bool {
        let Some(filter) = &self.filter else { return true };
        match filter.passes(payload.as_ref(), key) {
            Ok(true) => true,
            Ok(false) => {
                self.counters.filtered += 1;
                false
            }
            Err(_) => {
                self.counters.undecodable += 1;
                false
            }
        }
    }

    /// Returns whether a change is older than its instance. If it is not, it counts as the newest.
    fn is_late(&mut self, change: &CacheChange<P>) -> bool {
        let Some(instance) = self.instances.get_mut(&change.instance) else { return false };
        let own = (change.source_timestamp, change.writer);
        if self.settings.by_source && instance.newest.is_some_and(|newest| own < newest) {
            self.counters.late += 1;
            return true;
        }
        instance.newest = Some(own);
        false
    }

    fn write(&mut self, change: CacheChange<P>, at: Moment, effects: &mut Effects) {
        let (handle, guid) = (change.instance, change.writer);
        let is_new = !self.instances.contains_key(&handle);
        if is_new {
            if !self.passes(&change.payload, false) {
                return;
            }
            if let Err(reason) = self.admits(handle) {
                return self.reject(handle, reason, effects);
            }
            let key = (self.key_of)(&change.payload);
            self.instances.insert(handle, Instance::new(key));
        }
        self.register(handle, guid, true);
        if !self.owns(handle, guid) || (!is_new && !self.passes(&change.payload, false)) || self.is_late(&change) {
            return;
        }
        let lifespan = self.writers.get(&guid).map_or(DdsDuration::INFINITE, |writer| writer.lifespan);
        let expires = change.source_timestamp.after(lifespan);
        if expires <= at.now {
            self.counters.expired += 1;
            return;
        }
        self.set_timer(handle, Timer::Deadline, Some(at.now.after(self.settings.deadline)));
        let sample = self.sample(guid, change.source_timestamp, at);
        let sample = Stored { expires, data: Some(change.payload), ..sample };
        let accepted = self.instances.get(&handle).and_then(|instance| instance.accepted);
        if let Some(release) = accepted.map(|accepted| accepted.after(self.settings.separation))
            && at.now < release
        {
            return self.separate(handle, sample, release);
        }
        self.store(handle, sample, effects);
    }

    /// Keeps a sample that comes too soon after the one before, if the reader is reliable: it must get
    /// the last one (DDS 2.2.3.12).
    fn separate(&mut self, handle: InstanceHandle, sample: Stored<P>, release: DdsTime) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        if !self.settings.reliable {
            self.counters.separated += 1;
            return;
        }
        if instance.pending.replace(sample).is_some() {
            self.counters.separated += 1;
        }
        self.set_timer(handle, Timer::Release, Some(release));
    }

    /// Makes the sample visible that waits for the minimum separation.
    pub(super) fn release(&mut self, handle: InstanceHandle, now: DdsTime, effects: &mut Effects) {
        self.set_timer(handle, Timer::Release, None);
        let Some(mut sample) = self.instances.get_mut(&handle).and_then(|instance| instance.pending.take()) else {
            return;
        };
        if sample.expires <= now {
            self.counters.expired += 1;
            return;
        }
        sample.arrival = self.next_arrival();
        sample.reception = now;
        self.store(handle, sample, effects);
    }

    fn sample(&mut self, writer: Guid, source_timestamp: DdsTime, at: Moment) -> Stored<P> {
        Stored {
            arrival: self.next_arrival(),
            writer,
            source_timestamp,
            reception: at.now,
            position: at.position,
            visible: at.visible,
            disposed_generation: 0,
            no_writers_generation: 0,
            read: false,
            expires: DdsTime::NEVER,
            data: None,
        }
    }

    /// Adds a sample within HISTORY and RESOURCE_LIMITS (DDS 2.2.3.18, 2.2.3.19).
    fn store(&mut self, handle: InstanceHandle, mut sample: Stored<P>, effects: &mut Effects) {
        if let Err(reason) = self.admits(handle) {
            return self.reject(handle, reason, effects);
        }
        self.make_room(handle);
        let now = sample.reception;
        self.set_timer(handle, Timer::Purge, None);
        self.change(handle, |instance| {
            instance.revive();
            instance.accepted = Some(now);
            sample.disposed_generation = instance.disposed_generation;
            sample.no_writers_generation = instance.no_writers_generation;
        });
        self.insert(handle, sample, effects);
    }

    /// Removes the oldest sample if a new one replaces it.
    fn make_room(&mut self, handle: InstanceHandle) {
        let HistoryQosPolicyKind::KeepLast(depth) = self.settings.history else { return };
        let Some(instance) = self.instances.get(&handle).filter(|instance| instance.valid >= depth as usize) else {
            return;
        };
        let oldest = instance.samples.iter().find(|sample| sample.data.is_some()).map(|sample| sample.arrival);
        if let Some(removed) = oldest.and_then(|arrival| self.remove(handle, arrival)) {
            self.counters.overwritten += 1;
            self.counters.overwritten_unread += u64::from(!removed.read);
        }
    }

    pub(super) fn reject(&mut self, handle: InstanceHandle, reason: RejectedReason, effects: &mut Effects) {
        self.counters.rejected += 1;
        effects.rejected.push((reason, handle));
    }

    fn dispose(&mut self, change: &CacheChange<P>, at: Moment, effects: &mut Effects) {
        let (handle, guid) = (change.instance, change.writer);
        if !self.instances.contains_key(&handle) {
            if self.filter.as_ref().is_some_and(|filter| !filter.is_key_only()) {
                // The reader has not seen the instance, so its end is no news.
                self.counters.filtered += 1;
                return;
            }
            if !self.passes(&change.payload, true) {
                return;
            }
            if !self.settings.limits.max_instances.admits(self.instances.len()) {
                return self.reject(handle, RejectedReason::Instances, effects);
            }
            self.instances.insert(handle, Instance::new(Arc::from(change.payload.as_ref())));
        }
        self.register(handle, guid, true);
        if !self.owns(handle, guid) || self.is_late(change) {
            return;
        }
        self.end_life(handle, guid, InstanceState::NotAliveDisposed, Some(change.source_timestamp), at, effects);
    }

    /// Takes a writer from an instance. The last one leaves an instance that is not alive.
    pub(super) fn unregister(&mut self, handle: InstanceHandle, guid: Guid, at: Moment, effects: &mut Effects) {
        let Some(instance) = self.instances.get_mut(&handle) else { return };
        instance.writers.retain(|own| own.writer != guid);
        if let Some(writer) = self.writers.get_mut(&guid) {
            writer.instances.remove(&handle);
        }
        self.choose_owner(handle);
        if self.instances.get(&handle).is_some_and(|instance| instance.writers.is_empty()) {
            self.end_life(handle, guid, InstanceState::NotAliveNoWriters, None, at, effects);
        }
        self.collect(handle);
    }

    /// Changes the state of an instance that is alive no more, and adds the sample that announces it. A
    /// disposed instance stays disposed without writers (DDS 2.2.2.5.1.3, figure 2.11).
    fn end_life(
        &mut self,
        handle: InstanceHandle,
        writer: Guid,
        state: InstanceState,
        time: Option<DdsTime>,
        at: Moment,
        effects: &mut Effects,
    ) {
        self.release(handle, at.now, effects);
        let disposed = state == InstanceState::NotAliveDisposed;
        let news = self.change(handle, |instance| match instance.state {
            InstanceState::NotAliveDisposed => None,
            InstanceState::NotAliveNoWriters if !disposed => None,
            _ => {
                instance.revive();
                instance.state = state;
                Some(instance.newest.map(|(newest, _)| newest))
            }
        });
        if let Some(Some(newest)) = news {
            let sample = self.sample(writer, time.or(newest).unwrap_or(at.now), at);
            let purge = if disposed { self.settings.purge_disposed } else { self.settings.purge_no_writers };
            self.announce(handle, sample, purge, effects);
        }
    }

    /// Adds the sample that announces that an instance is not alive. It replaces an earlier one.
    fn announce(&mut self, handle: InstanceHandle, mut sample: Stored<P>, purge: DdsDuration, effects: &mut Effects) {
        let earlier = self.instances.get(&handle).and_then(|instance| {
            sample.disposed_generation = instance.disposed_generation;
            sample.no_writers_generation = instance.no_writers_generation;
            instance.samples.iter().find(|own| own.data.is_none()).map(|own| own.arrival)
        });
        if let Some(arrival) = earlier {
            self.remove(handle, arrival);
        }
        self.set_timer(handle, Timer::Deadline, None);
        self.set_timer(handle, Timer::Purge, Some(sample.reception.after(purge)));
        self.insert(handle, sample, effects);
    }

    fn match_writer(&mut self, writer: WriterInfo, effects: &mut Effects) {
        let WriterInfo { guid, strength, lifespan } = writer;
        match self.writers.get_mut(&guid) {
            Some(own) => {
                (own.strength, own.lifespan) = (strength, lifespan);
                for handle in own.instances.clone() {
                    self.choose_owner(handle);
                }
            }
            None => {
                let record = WriterRecord { strength, lifespan, alive: true, instances: BTreeSet::new() };
                self.writers.insert(guid, record);
                effects.liveness.push(liveness(guid, None, Some(true)));
            }
        }
    }

    fn unmatch_writer(&mut self, guid: Guid, end: WriterEnd, at: Moment, effects: &mut Effects) {
        self.lose_sets_of(guid, end);
        let Some(writer) = self.writers.get(&guid) else { return };
        let alive = writer.alive;
        for handle in writer.instances.clone() {
            if end == (WriterEnd::Deleted { autodispose: true }) && self.owns(handle, guid) {
                self.end_life(handle, guid, InstanceState::NotAliveDisposed, None, at, effects);
            }
            self.unregister(handle, guid, at, effects);
        }
        self.writers.remove(&guid);
        effects.liveness.push(liveness(guid, Some(alive), None));
    }

    fn set_alive(&mut self, guid: Guid, alive: bool, at: Moment, effects: &mut Effects) {
        let Some(writer) = self.writers.get_mut(&guid).filter(|writer| writer.alive != alive) else { return };
        writer.alive = alive;
        let instances = writer.instances.clone();
        effects.liveness.push(liveness(guid, Some(!alive), Some(alive)));
        if !alive {
            for handle in instances {
                self.unregister(handle, guid, at, effects);
            }
        }
    }

    /// Takes the ownership of an instance from a writer until it writes again.
    fn disown(&mut self, handle: InstanceHandle, guid: Guid) {
        if let Some(instance) = self.instances.get_mut(&handle) {
            instance.writers.iter_mut().filter(|own| own.writer == guid).for_each(|own| own.candidate = false);
            self.choose_owner(handle);
        }
    }
}

fn liveness(writer: Guid, before: Option<bool>, now: Option<bool>) -> WriterLiveness {
    WriterLiveness { writer, before, now }
}
