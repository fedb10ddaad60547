//! Samples that come after the departure of their writers.
//!
//! A sample that was ordered before its writer went away may come after it: from the history that a late
//! joiner gets, or over another path than the news of the departure. It has the effects of its place in the
//! order: the writer writes it, and then goes away.
use super::cache::ReaderCache;
use super::departed::Departed;
use super::effects::Effects;
use super::event::{CacheChange, WriterEnd, WriterInfo};
use super::rules::{Moment, WriterRecord};
use crate::id::{Guid, Position};
use crate::instance::InstanceState;
use std::collections::BTreeSet;

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Forgets the writers that went away at a position or before. The driver calls it when no event before
    /// the position can come any more. Their open coherent sets are lost.
    pub fn forget_departed(&mut self, position: Position) -> Effects {
        let mut effects = std::mem::take(&mut self.owed);
        for guid in self.rules.departed.remove_until(position) {
            self.lose_sets_of(guid, WriterEnd::Lost, &mut effects);
        }
        effects
    }

    /// Remembers a writer that went away. The one that is forgotten for it loses its open sets.
    pub(super) fn remember(&mut self, guid: Guid, departed: Departed, effects: &mut Effects) {
        if let Some(forgotten) = self.rules.departed.add(guid, departed) {
            self.lose_sets_of(forgotten, WriterEnd::Lost, effects);
        }
    }

    /// Notes that a writer went away that did not match here.
    pub(super) fn note_departed(&mut self, writer: WriterInfo, end: WriterEnd, at: Moment, effects: &mut Effects) {
        let WriterInfo { guid, strength, lifespan, .. } = writer;
        if !self.rules.writers.contains_key(&guid) {
            self.remember(guid, Departed { strength, lifespan, end, position: at.position }, effects);
        }
    }

    /// Returns whether a writer matches at a position.
    pub(super) fn matches_at(&self, guid: Guid, position: Position) -> bool {
        self.rules.writers.contains_key(&guid) || self.rules.departed.after(guid, position).is_some()
    }

    /// Applies a change whose writer went away after it.
    pub(super) fn apply_late(&mut self, change: CacheChange<P>, departed: Departed, at: Moment, effects: &mut Effects) {
        let Departed { strength, lifespan, end, position } = departed;
        let guid = change.writer;
        let record = WriterRecord { strength, lifespan, alive: true, instances: BTreeSet::new() };
        self.rules.writers.insert(guid, record);
        self.change_instance(change, at, effects);
        self.leave_instances(guid, end, Moment::at(position, at.now), effects);
        self.rules.writers.remove(&guid);
    }

    /// Takes a writer from all its instances, because it goes away.
    pub(super) fn leave_instances(&mut self, guid: Guid, end: WriterEnd, at: Moment, effects: &mut Effects) {
        let instances = self.rules.writers.get(&guid).map(|writer| writer.instances.clone()).unwrap_or_default();
        for handle in instances {
            if end == (WriterEnd::Deleted { autodispose: true })
                && let Some(instance) = self.instances.get_mut(&handle)
                && instance.is_known()
                && self.rules.owns(instance, guid)
            {
                let state = InstanceState::NotAliveDisposed;
                self.rules.end_life(instance, guid, state, None, at, effects);
            }
            self.withdraw(handle, guid, at, effects);
        }
    }
}
