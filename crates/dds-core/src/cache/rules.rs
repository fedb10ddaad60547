//! The rules by which instances change.
//!
//! [`Rules`] has all of a cache besides its instances, so a change looks an instance up once.
use super::departed::DepartedWriters;
use super::effects::{CacheCounters, Effects, RejectedReason};
use super::event::{CacheChange, ChangeKind, KeyReader};
use super::indices::{Indices, Timer};
use super::settings::CacheSettings;
use crate::filter::ContentFilter;
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::{Instance, InstanceState, Stored};
use crate::policy::HistoryQosPolicyKind;
use crate::time::{DdsDuration, DdsTime};
use std::collections::{BTreeMap, BTreeSet};
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

/// A writer that matches.
#[derive(Clone, Debug)]
pub(super) struct WriterRecord {
    pub(super) strength: i32,
    pub(super) lifespan: DdsDuration,
    pub(super) alive: bool,
    /// The instances that it has registered.
    pub(super) instances: BTreeSet<InstanceHandle>,
}

/// The policies, the writers and the indices of a cache.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) settings: CacheSettings,
    pub(super) filter: Option<ContentFilter>,
    pub(super) writers: BTreeMap<Guid, WriterRecord>,
    /// The writers that went away, whose samples may still come.
    pub(super) departed: DepartedWriters,
    pub(super) indices: Indices,
    pub(super) counters: CacheCounters,
    /// The instances that the application may know.
    pub(super) known: usize,
    /// The position of the last event.
    pub(super) last: Position,
    /// When policies changed last.
    pub(super) policies_since: DdsTime,
}

impl Rules {
    /// Returns the limit that a write to an instance would break.
    pub(super) fn admits<P>(&self, instance: Option<&Instance<P>>) -> Result<(), RejectedReason> {
        let limits = &self.settings.limits;
        if !instance.is_some_and(Instance::is_known) && !limits.max_instances.admits(self.known) {
            return Err(RejectedReason::Instances);
        }
        let valid = instance.map_or(0, |instance| instance.valid);
        if let HistoryQosPolicyKind::KeepLast(depth) = self.settings.history
            && valid >= depth as usize
            && !instance.is_some_and(Instance::is_oldest_lent)
        {
            return Ok(());
        }
        let lent = instance.map_or(0, |instance| self.indices.lent_of(instance));
        if !limits.max_samples_per_instance.admits(valid + lent) {
            return Err(RejectedReason::SamplesPerInstance);
        }
        if !limits.max_samples.admits(self.indices.occupied_samples()) {
            return Err(RejectedReason::Samples);
        }
        Ok(())
    }

    pub(super) fn reject(&mut self, handle: InstanceHandle, reason: RejectedReason, effects: &mut Effects) {
        self.counters.rejected += 1;
        effects.rejected.push((reason, handle));
    }

    /// Adds a writer to an instance.
    pub(super) fn register<P>(&mut self, instance: &mut Instance<P>, guid: Guid, wrote: Option<Position>) {
        if instance.register(guid, wrote) {
            if let Some(writer) = self.writers.get_mut(&guid) {
                writer.instances.insert(instance.handle);
            }
            self.choose_owner(instance);
        }
    }

    pub(super) fn choose_owner<P>(&self, instance: &mut Instance<P>) {
        if self.settings.exclusive {
            instance.choose_owner(|guid| self.writers.get(&guid).map_or(i32::MIN, |writer| writer.strength));
        }
    }

    /// Returns whether a writer may change an instance (DDS 2.2.3.9).
    pub(super) fn owns<P>(&mut self, instance: &Instance<P>, writer: Guid) -> bool {
        let owns = !self.settings.exclusive || instance.owner == Some(writer);
        self.counters.not_owned += u64::from(!owns);
        owns
    }

    pub(super) fn passes<P: AsRef<[u8]>>(&mut self, payload: &P, key: bool, effects: &mut Effects) -> bool {
        let Some(filter) = &self.filter else { return true };
        match filter.passes(payload.as_ref(), key) {
            Ok(true) => true,
            Ok(false) => {
                self.counters.filtered += 1;
                false
            }
            Err(_) => {
                self.lose_undecodable(effects);
                false
            }
        }
    }

    /// Counts a sample that can't be decoded. The application does not get it.
    fn lose_undecodable(&mut self, effects: &mut Effects) {
        self.counters.undecodable += 1;
        effects.lost = effects.lost.saturating_add(1);
    }

    pub(super) fn make_known<P>(&mut self, instance: &mut Instance<P>, key: Arc<[u8]>) {
        self.known += 1;
        instance.set_key(key);
        instance.life = self.indices.next_arrival();
    }

    /// Returns whether a change is older than its instance. If it is not, it counts as the newest.
    fn is_late<P>(&mut self, instance: &mut Instance<P>, change: &CacheChange<P>) -> bool {
        let own = (change.source_timestamp, change.writer);
        if self.settings.by_source && instance.newest.is_some_and(|newest| own < newest) {
            self.counters.late += 1;
            return true;
        }
        instance.newest = Some(own);
        false
    }

    /// Applies a write to an instance.
    ///
    /// The owner and the newest source timestamp follow from the stream, so they are the same at all
    /// readers. A content filter or a limit drops the sample after it has counted for them.
    pub(super) fn write<P: AsRef<[u8]>>(
        &mut self,
        instance: &mut Instance<P>,
        change: CacheChange<P>,
        key_of: &KeyReader<P>,
        at: Moment,
        effects: &mut Effects,
    ) {
        let guid = change.writer;
        self.register(instance, guid, Some(at.position));
        if !self.owns(instance, guid)
            || self.is_late(instance, &change)
            || !self.passes(&change.payload, false, effects)
        {
            return;
        }
        let lifespan = self.writers.get(&guid).map_or(DdsDuration::INFINITE, |writer| writer.lifespan);
        let expires = change.source_timestamp.after(lifespan);
        if expires <= at.now {
            self.counters.expired += 1;
            return;
        }
        if !instance.is_known() {
            if let Err(reason) = self.admits(Some(&*instance)) {
                return self.reject(instance.handle, reason, effects);
            }
            let Ok(key) = key_of(&change.payload) else { return self.lose_undecodable(effects) };
            self.make_known(instance, key);
        }
        let terms = (guid, change.source_timestamp, expires);
        self.arrive(instance, terms, change.payload, at, effects);
    }

    /// Adds a sample, at once or after the minimum separation. `terms` are its writer, its source timestamp
    /// and the end of its LIFESPAN.
    pub(super) fn arrive<P>(
        &mut self,
        instance: &mut Instance<P>,
        terms: (Guid, DdsTime, DdsTime),
        payload: P,
        at: Moment,
        effects: &mut Effects,
    ) {
        let (writer, source_timestamp, expires) = terms;
        instance.period_from = Some(at.now);
        self.arm_deadline(instance);
        let sample = Stored { expires, data: Some(payload), ..self.sample(writer, source_timestamp, at) };
        match instance.accepted.map(|accepted| accepted.after(self.settings.separation)) {
            Some(release) if at.now < release => self.separate(instance, sample),
            _ => self.store(instance, sample, effects),
        }
    }

    /// Sets the timer of the DEADLINE, which counts while the instance is alive.
    pub(super) fn arm_deadline<P>(&mut self, instance: &mut Instance<P>) {
        let at = instance.period_from.map(|from| from.after(self.settings.deadline));
        self.arm(instance, Timer::Deadline, at);
    }

    /// Sets the timer of READER_DATA_LIFECYCLE, which counts while the instance is not alive.
    pub(super) fn arm_purge<P>(&mut self, instance: &mut Instance<P>) {
        let disposed = instance.state == InstanceState::NotAliveDisposed;
        let delay = if disposed { self.settings.purge_disposed } else { self.settings.purge_no_writers };
        self.arm(instance, Timer::Purge, instance.ended.map(|ended| ended.after(delay)));
    }

    /// Sets the timer of TIME_BASED_FILTER, which counts while a sample waits.
    pub(super) fn arm_release<P>(&mut self, instance: &mut Instance<P>) {
        let accepted = instance.pending.as_ref().and(instance.accepted);
        self.arm(instance, Timer::Release, accepted.map(|accepted| accepted.after(self.settings.separation)));
    }

    /// Sets a timer. A change of policies may put it before the change, and then it is due at the change.
    fn arm<P>(&mut self, instance: &mut Instance<P>, timer: Timer, at: Option<DdsTime>) {
        self.indices.set_timer(instance, timer, at.map(|at| at.max(self.policies_since)));
    }

    /// Keeps a sample that comes too soon after the one before, if the reader is reliable: it must get
    /// the last one (DDS 2.2.3.12).
    fn separate<P>(&mut self, instance: &mut Instance<P>, sample: Stored<P>) {
        if !self.settings.reliable {
            self.counters.separated += 1;
            return;
        }
        if instance.pending.replace(sample).is_some() {
            self.counters.separated += 1;
        }
        self.arm_release(instance);
    }

    /// Makes the sample visible that waits for the minimum separation.
    pub(super) fn release<P>(&mut self, instance: &mut Instance<P>, now: DdsTime, effects: &mut Effects) {
        let Some(mut sample) = instance.pending.take() else { return };
        self.arm_release(instance);
        if sample.expires <= now {
            self.counters.expired += 1;
        } else {
            sample.arrival = self.indices.next_arrival();
            sample.reception = now;
            self.store(instance, sample, effects);
        }
        if instance.state != InstanceState::Alive {
            // The sample would have revived the instance.
            instance.period_from = None;
            self.arm_deadline(instance);
        }
    }

    fn sample<P>(&mut self, writer: Guid, source_timestamp: DdsTime, at: Moment) -> Stored<P> {
        Stored {
            arrival: self.indices.next_arrival(),
            writer,
            source_timestamp,
            reception: at.now,
            position: at.position,
            visible: at.visible,
            disposed_generation: 0,
            no_writers_generation: 0,
            read: false,
            expires: DdsTime::NEVER,
            loans: 0,
            data: None,
        }
    }

    /// Adds a sample within HISTORY and RESOURCE_LIMITS (DDS 2.2.3.18, 2.2.3.19).
    fn store<P>(&mut self, instance: &mut Instance<P>, mut sample: Stored<P>, effects: &mut Effects) {
        if let Err(reason) = self.admits(Some(&*instance)) {
            return self.reject(instance.handle, reason, effects);
        }
        self.make_room(instance);
        instance.ended = None;
        self.arm_purge(instance);
        instance.accepted = Some(sample.reception);
        if instance.state != InstanceState::Alive {
            let life = self.indices.next_arrival();
            self.indices.change(instance, |instance| instance.revive(life));
        }
        sample.disposed_generation = instance.disposed_generation;
        sample.no_writers_generation = instance.no_writers_generation;
        self.counters.accepted += 1;
        self.indices.insert(&self.settings, instance, sample, effects);
    }

    /// Removes the oldest sample if a new one replaces it.
    fn make_room<P>(&mut self, instance: &mut Instance<P>) {
        let HistoryQosPolicyKind::KeepLast(depth) = self.settings.history else { return };
        if instance.valid < depth as usize {
            return;
        }
        let oldest = instance.samples.iter().position(|sample| sample.data.is_some());
        if let Some(removed) = oldest.and_then(|index| self.indices.remove(&self.settings, instance, index)) {
            self.counters.overwritten += 1;
            self.counters.overwritten_unread += u64::from(!removed.read);
        }
    }

    /// Applies a dispose to an instance.
    pub(super) fn dispose<P: AsRef<[u8]>>(
        &mut self,
        instance: &mut Instance<P>,
        change: &CacheChange<P>,
        at: Moment,
        effects: &mut Effects,
    ) {
        debug_assert!(matches!(change.kind, ChangeKind::Dispose | ChangeKind::DisposeUnregister));
        self.register(instance, change.writer, Some(at.position));
        if !self.owns(instance, change.writer) || self.is_late(instance, change) {
            return;
        }
        if !instance.is_known() && !self.hears_of_end(instance, &Arc::from(change.payload.as_ref()), effects) {
            return;
        }
        let (state, time) = (InstanceState::NotAliveDisposed, Some(change.source_timestamp));
        self.end_life(instance, change.writer, state, time, at, effects);
    }

    /// Takes a writer from an instance. The last one leaves an instance that is not alive. `time` is the
    /// source timestamp, if the writer itself has unregistered the instance.
    pub(super) fn unregister<P>(
        &mut self,
        instance: &mut Instance<P>,
        guid: Guid,
        time: Option<DdsTime>,
        at: Moment,
        effects: &mut Effects,
    ) {
        instance.writers.retain(|own| own.writer != guid);
        if let Some(writer) = self.writers.get_mut(&guid) {
            writer.instances.remove(&instance.handle);
        }
        self.choose_owner(instance);
        if instance.writers.is_empty() && instance.is_known() {
            self.end_life(instance, guid, InstanceState::NotAliveNoWriters, time, at, effects);
        }
    }

    /// Changes the state of an instance that is alive no more, and adds the sample that announces it. A
    /// disposed instance stays disposed without writers (DDS 2.2.2.5.1.3, figure 2.11).
    pub(super) fn end_life<P>(
        &mut self,
        instance: &mut Instance<P>,
        writer: Guid,
        state: InstanceState,
        time: Option<DdsTime>,
        at: Moment,
        effects: &mut Effects,
    ) {
        self.release(instance, at.now, effects);
        let disposed = state == InstanceState::NotAliveDisposed;
        match instance.state {
            InstanceState::NotAliveDisposed => return,
            InstanceState::NotAliveNoWriters if !disposed => return,
            _ => {}
        }
        let life = self.indices.next_arrival();
        self.indices.change(instance, |instance| {
            instance.revive(life);
            instance.state = state;
        });
        let time = time.or(instance.newest.map(|(newest, _)| newest)).unwrap_or(at.now);
        let sample = self.sample(writer, time, at);
        self.announce(instance, sample, effects);
    }

    /// Adds the sample that announces that an instance is not alive. It replaces an earlier one.
    fn announce<P>(&mut self, instance: &mut Instance<P>, mut sample: Stored<P>, effects: &mut Effects) {
        sample.disposed_generation = instance.disposed_generation;
        sample.no_writers_generation = instance.no_writers_generation;
        if let Some(earlier) = instance.samples.iter().position(|own| own.data.is_none()) {
            self.indices.remove(&self.settings, instance, earlier);
        }
        (instance.period_from, instance.ended) = (None, Some(sample.reception));
        self.arm_deadline(instance);
        self.arm_purge(instance);
        self.indices.insert(&self.settings, instance, sample, effects);
    }

    /// Removes all samples of an instance, and returns how many there were.
    pub(super) fn remove_all<P>(&mut self, instance: &mut Instance<P>) -> u64 {
        let mut count = 0;
        while self.indices.remove(&self.settings, instance, 0).is_some() {
            count += 1;
        }
        count
    }
}
