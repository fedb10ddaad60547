//! Writers that went away, and their samples that come later.
//!
//! A sample that was ordered before its writer went away may come after it: from the history that a late
//! joiner gets, or over another path than the news of the departure. It has the effects of its place in the
//! order: the writer writes it, and then goes away.
use super::cache::ReaderCache;
use super::effects::Effects;
use super::event::{CacheChange, WriterEnd, WriterInfo};
use super::rules::{Moment, WriterRecord};
use crate::id::{Guid, Position};
use crate::instance::InstanceState;
use crate::time::DdsDuration;
use std::collections::{BTreeMap, BTreeSet};

/// The most departed writers that a cache remembers. The one that went away first is forgotten for the next.
pub(super) const DEPARTED_MAX: usize = 1024;

/// A writer that went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departed {
    pub(super) strength: i32,
    pub(super) lifespan: DdsDuration,
    pub(super) end: WriterEnd,
    pub(super) position: Position,
}

/// The writers that went away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DepartedWriters(pub(super) BTreeMap<Guid, Departed>);

impl DepartedWriters {
    pub(super) fn add(&mut self, guid: Guid, departed: Departed) {
        self.0.insert(guid, departed);
        if self.0.len() > DEPARTED_MAX {
            let first = self.0.iter().min_by_key(|(guid, own)| (own.position.place(), **guid));
            if let Some(guid) = first.map(|(guid, _)| *guid) {
                self.0.remove(&guid);
            }
        }
    }

    /// Returns a writer, if an event at a position was ordered before it went away.
    pub(super) fn after(&self, guid: Guid, position: Position) -> Option<Departed> {
        self.0.get(&guid).copied().filter(|own| position < own.position)
    }
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Forgets the writers that went away at a position or before. The driver calls it when no event before
    /// the position can come any more.
    pub fn forget_departed(&mut self, position: Position) {
        self.rules
            .departed
            .0
            .retain(|_, own| !matches!(own.position.partial_cmp(&position), Some(order) if order.is_le()));
    }

    /// Notes that a writer went away that did not match here.
    pub(super) fn note_departed(&mut self, writer: WriterInfo, end: WriterEnd, position: Position) {
        let WriterInfo { guid, strength, lifespan, .. } = writer;
        if !self.rules.writers.contains_key(&guid) {
            self.rules.departed.add(guid, Departed { strength, lifespan, end, position });
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
