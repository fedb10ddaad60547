//! Events: what each does to instances.
use super::cache::ReaderCache;
use super::departed::Departed;
use super::effects::{Effects, WriterLiveness};
use super::event::{CacheChange, ChangeKind, DeadlineVerdict, ReaderEvent, WriterEnd, WriterInfo};
use super::rules::{Moment, WriterRecord};
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::Instance;
use crate::time::DdsTime;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The writer of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// It matches.
    Matches,
    /// It went away after the change.
    Departed(Departed),
    /// The reader does not know it, or it went away before the change.
    Unmatched,
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Applies an event, after all that is due.
    pub fn deliver(&mut self, position: Position, event: ReaderEvent<P>, now: DdsTime) -> Effects {
        let at = Moment::at(position, self.advance(now));
        if !matches!(position.partial_cmp(&self.rules.last), Some(Ordering::Less)) {
            self.rules.last = position;
        }
        let mut effects = std::mem::take(&mut self.owed);
        match event {
            ReaderEvent::Change(change) if self.rules.settings.coherent && change.set.is_some() => {
                self.buffer(position, change, &mut effects);
            }
            ReaderEvent::Change(change) => self.apply(change, at, &mut effects),
            ReaderEvent::SetEnd(end) => self.end_set(&end, at, &mut effects),
            ReaderEvent::SetAbandoned(set) => self.discard_set(set, &mut effects),
            ReaderEvent::WriterMatched(writer) => self.match_writer(writer, at, &mut effects),
            ReaderEvent::WriterDeparted(writer, end) => self.note_departed(writer, end, at, &mut effects),
            ReaderEvent::WriterUnmatched(writer, end) => self.unmatch_writer(writer, end, at, &mut effects),
            ReaderEvent::WriterAlive(writer, alive) => self.set_alive(writer, alive, at, &mut effects),
            ReaderEvent::History(history) => self.take_history(*history, at, &mut effects),
            ReaderEvent::DeadlineVerdict(verdict) => self.disown(verdict),
            ReaderEvent::SamplesLost(count) => effects.lost = effects.lost.saturating_add(count),
        }
        effects
    }

    /// Notes that a writer has sent a change, which is a sign of life (DDS 2.2.3.11).
    pub(super) fn note_sender(&mut self, guid: Guid, position: Position, effects: &mut Effects) -> Sender {
        if let Some(writer) = self.rules.writers.get_mut(&guid) {
            if !std::mem::replace(&mut writer.alive, true) {
                effects.liveness.push(liveness(guid, Some(false), Some(true)));
            }
            return Sender::Matches;
        }
        match self.rules.departed.after(guid, position) {
            Some(departed) => Sender::Departed(departed),
            None => {
                self.rules.counters.unmatched += 1;
                Sender::Unmatched
            }
        }
    }

    /// Applies a change that takes effect now.
    pub(super) fn apply(&mut self, change: CacheChange<P>, at: Moment, effects: &mut Effects) {
        match self.note_sender(change.writer, at.position, effects) {
            Sender::Matches => self.change_instance(change, at, effects),
            Sender::Departed(departed) => self.apply_late(change, departed, at, effects),
            Sender::Unmatched => {}
        }
    }

    /// Applies a change of a writer that matches.
    pub(super) fn change_instance(&mut self, change: CacheChange<P>, at: Moment, effects: &mut Effects) {
        let (handle, time) = (change.instance, Some(change.source_timestamp));
        let instance = self.instances.entry(handle).or_insert_with(|| Instance::new(handle));
        match change.kind {
            ChangeKind::Write => self.rules.write(instance, change, &self.key_of, at, effects),
            ChangeKind::Register => self.rules.register(instance, change.writer, None),
            ChangeKind::Dispose => self.rules.dispose(instance, &change, at, effects),
            ChangeKind::Unregister => self.rules.unregister(instance, change.writer, time, at, effects),
            ChangeKind::DisposeUnregister => {
                self.rules.dispose(instance, &change, at, effects);
                self.rules.unregister(instance, change.writer, time, at, effects);
            }
        }
        if instance.is_garbage() {
            self.collect(handle);
        }
    }

    /// Takes a writer from an instance, for another reason than a change.
    pub(super) fn withdraw(&mut self, handle: InstanceHandle, guid: Guid, at: Moment, effects: &mut Effects) {
        if let Some(instance) = self.instances.get_mut(&handle) {
            self.rules.unregister(instance, guid, None, at, effects);
            self.collect(handle);
        }
    }

    fn match_writer(&mut self, writer: WriterInfo, at: Moment, effects: &mut Effects) {
        let WriterInfo { guid, strength, lifespan, alive } = writer;
        match self.rules.writers.get_mut(&guid) {
            Some(own) => {
                (own.strength, own.lifespan) = (strength, lifespan);
                for handle in own.instances.clone() {
                    if let Some(instance) = self.instances.get_mut(&handle) {
                        self.rules.choose_owner(instance);
                    }
                }
                self.set_alive(guid, alive, at, effects);
            }
            None => {
                let record = WriterRecord { strength, lifespan, alive, instances: BTreeSet::new() };
                self.rules.writers.insert(guid, record);
                self.rules.departed.0.remove(&guid);
                effects.liveness.push(liveness(guid, None, Some(alive)));
            }
        }
    }

    fn unmatch_writer(&mut self, guid: Guid, end: WriterEnd, at: Moment, effects: &mut Effects) {
        self.lose_sets_of(guid, end, effects);
        let Some(WriterRecord { strength, lifespan, alive, .. }) = self.rules.writers.get(&guid).cloned() else {
            return;
        };
        self.leave_instances(guid, end, at, effects);
        self.rules.writers.remove(&guid);
        self.remember(guid, Departed { strength, lifespan, end, position: at.position }, effects);
        effects.liveness.push(liveness(guid, Some(alive), None));
    }

    fn set_alive(&mut self, guid: Guid, alive: bool, at: Moment, effects: &mut Effects) {
        let found = self.rules.writers.get_mut(&guid).filter(|writer| writer.alive != alive);
        let Some(writer) = found else { return };
        writer.alive = alive;
        let instances = writer.instances.clone();
        effects.liveness.push(liveness(guid, Some(!alive), Some(alive)));
        if !alive {
            for handle in instances {
                self.withdraw(handle, guid, at, effects);
            }
        }
    }

    /// Takes the ownership of an instance from a writer until it writes again.
    fn disown(&mut self, verdict: DeadlineVerdict) {
        let Some(instance) = self.instances.get_mut(&verdict.instance) else { return };
        for own in &mut instance.writers {
            if own.writer == verdict.writer && own.last == Some(verdict.last) {
                own.candidate = false;
            }
        }
        self.rules.choose_owner(instance);
    }
}

pub(super) fn liveness(writer: Guid, before: Option<bool>, now: Option<bool>) -> WriterLiveness {
    WriterLiveness { writer, before, now }
}
