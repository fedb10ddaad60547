//! Coherent sets (DDS 2.2.3.6): their changes are buffered, and become visible at the end of the set, or
//! never.
use super::cache::ReaderCache;
use super::deliver::Sender;
use super::effects::{Effects, RejectedReason};
use super::event::{CacheChange, ChangeKind, SetEnd, SetId, WriterEnd};
use super::rules::Moment;
use crate::id::{Guid, InstanceHandle, Position};
use crate::policy::{HistoryQosPolicyKind, PresentationQosPolicyAccessScopeKind};
use std::collections::BTreeMap;

/// The outcome of a set at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetVerdict {
    /// It becomes visible.
    Commit,
    /// A limit leaves no room for the whole set.
    Reject(RejectedReason),
    /// A part of it is missing.
    Discard,
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Adds a change to its set. A set that exceeds the buffer keeps no change.
    pub(super) fn buffer(&mut self, position: Position, change: CacheChange<P>, effects: &mut Effects) {
        let Some(id) = change.set else { return };
        if self.note_sender(change.writer, position, effects) == Sender::Unmatched {
            return;
        }
        if !self.sets.contains_key(&id) {
            self.discard_before(id, effects);
        }
        let is_write = change.kind == ChangeKind::Write;
        let used = if is_write { self.buffered_writes } else { self.buffered - self.buffered_writes };
        let room = (used as u64) < self.buffer_bound();
        let set = self.sets.entry(id).or_default();
        if !set.writers.contains(&change.writer) {
            set.writers.push(change.writer);
        }
        if set.broken {
            lose(1, effects);
        } else if room && set.refused == 0 {
            set.changes.push((position, change));
            self.buffered += 1;
            self.buffered_writes += usize::from(is_write);
        } else {
            let changes = std::mem::take(&mut set.changes);
            set.refused = set.refused.saturating_add(1 + changes.len() as u32);
            self.release_buffer(&changes);
            for handle in changes.iter().map(|(_, change)| change.instance).chain([change.instance]) {
                self.rules.reject(handle, RejectedReason::Samples, effects);
            }
        }
    }

    /// Returns the writes that all sets may have, and the number of their other changes: the samples that
    /// RESOURCE_LIMITS admit to the cache. It bounds the buffer beside the cache.
    fn buffer_bound(&self) -> u64 {
        let limits = &self.rules.settings.limits;
        let of_instances = match self.rules.settings.history {
            // Writes beyond the depth replace each other when the set becomes visible.
            HistoryQosPolicyKind::KeepLast(_) => u64::MAX,
            HistoryQosPolicyKind::KeepAll => {
                limits.max_instances.bound().saturating_mul(limits.max_samples_per_instance.bound())
            }
        };
        limits.max_samples.bound().min(of_instances)
    }

    fn release_buffer(&mut self, changes: &[(Position, CacheChange<P>)]) {
        self.buffered -= changes.len();
        self.buffered_writes -= changes.iter().filter(|(_, change)| change.kind == ChangeKind::Write).count();
    }

    /// Returns the changes of sets whose ends have not arrived, in the order of their positions.
    pub fn pending_changes(&self) -> Vec<(Position, &CacheChange<P>)> {
        let each = self.sets.values().flat_map(|set| &set.changes);
        let mut all: Vec<_> = each.map(|(position, change)| (*position, change)).collect();
        all.sort_by_key(|(position, _)| position.place());
        all
    }

    /// Gives up a set. Its changes are lost.
    pub(super) fn discard_set(&mut self, id: SetId, effects: &mut Effects) {
        if let Some(set) = self.sets.remove(&id) {
            self.release_buffer(&set.changes);
            self.rules.counters.sets_discarded += 1;
            lose(set.changes.len(), effects);
        }
    }

    /// Gives up the earlier sets of a source: it has begun another one without ending them.
    fn discard_before(&mut self, id: SetId, effects: &mut Effects) {
        let earlier: Vec<SetId> = self.sets.range(SetId { number: 0, ..id }..id).map(|(id, _)| *id).collect();
        earlier.into_iter().for_each(|id| self.discard_set(id, effects));
    }

    /// Gives up the sets of a writer that went away. A publisher that lives may still end its set, which
    /// must then be seen by none of its readers.
    pub(super) fn lose_sets_of(&mut self, writer: Guid, end: WriterEnd, effects: &mut Effects) {
        let found = self.sets.iter().filter(|(_, set)| set.writers.contains(&writer));
        let found: Vec<SetId> = found.map(|(id, _)| *id).collect();
        let group = self.rules.settings.scope == PresentationQosPolicyAccessScopeKind::Group;
        for id in found {
            match self.sets.get_mut(&id) {
                Some(set) if group && end != WriterEnd::Lost => {
                    set.broken = true;
                    let changes = std::mem::take(&mut set.changes);
                    self.release_buffer(&changes);
                    lose(changes.len(), effects);
                }
                _ => self.discard_set(id, effects),
            }
        }
    }

    /// Ends a set of TOPIC scope.
    pub(super) fn end_set(&mut self, end: &SetEnd, at: Moment, effects: &mut Effects) {
        if !self.rules.settings.coherent || self.rules.settings.scope == PresentationQosPolicyAccessScopeKind::Group {
            return;
        }
        let verdict = self.judge_set(end, at.position);
        self.finish_set(end.set, verdict, at, effects);
    }

    /// Returns what must happen to a set whose end has arrived.
    ///
    /// Ownership and the order by source may drop changes of the set when it becomes visible. They are
    /// not foreseen here, so a set that would fit thanks to them is rejected.
    pub(super) fn judge_set(&self, end: &SetEnd, position: Position) -> SetVerdict {
        let set = self.sets.get(&end.set);
        if set.is_some_and(|set| set.broken) {
            return SetVerdict::Discard;
        }
        if set.is_some_and(|set| set.refused > 0) {
            return SetVerdict::Reject(RejectedReason::Samples);
        }
        let changes = set.map_or(&[][..], |set| set.changes.as_slice());
        let missing = |(writer, count): &(Guid, u32)| {
            let found = changes.iter().filter(|(_, change)| change.writer == *writer).count();
            self.matches_at(*writer, position) && found != *count as usize
        };
        if end.changes.iter().any(missing) {
            return SetVerdict::Discard;
        }
        match self.room_for(changes) {
            Ok(()) => SetVerdict::Commit,
            Err(reason) => SetVerdict::Reject(reason),
        }
    }

    /// Checks that RESOURCE_LIMITS leave room for all changes.
    fn room_for(&self, changes: &[(Position, CacheChange<P>)]) -> Result<(), RejectedReason> {
        let mut writes: BTreeMap<InstanceHandle, usize> = BTreeMap::new();
        for (_, change) in changes {
            let passes = match (&self.rules.filter, change.kind) {
                (Some(filter), ChangeKind::Write) => filter.passes(change.payload.as_ref(), false).unwrap_or(false),
                (_, ChangeKind::Write | ChangeKind::Dispose | ChangeKind::DisposeUnregister) => true,
                (_, ChangeKind::Register | ChangeKind::Unregister) => false,
            };
            if passes {
                *writes.entry(change.instance).or_default() += usize::from(change.kind == ChangeKind::Write);
            }
        }
        let limits = &self.rules.settings.limits;
        let new = writes.keys().filter(|handle| self.known(**handle).is_none()).count();
        if (self.rules.known + new) as u64 > limits.max_instances.bound() && new > 0 {
            return Err(RejectedReason::Instances);
        }
        let mut growth = 0;
        for (handle, count) in writes {
            let instance = self.instances.get(&handle);
            let valid = instance.map_or(0, |instance| instance.valid);
            let after = match self.rules.settings.history {
                HistoryQosPolicyKind::KeepLast(depth) => (valid + count).min(depth as usize),
                HistoryQosPolicyKind::KeepAll => valid + count,
            };
            // A sample that is replaced while it is lent keeps its place.
            let replaced = (valid + count - after).min(valid);
            let kept = instance.map_or(0, |instance| instance.lent_of_oldest(replaced));
            let held = after + kept + instance.map_or(0, |instance| self.rules.indices.lent_of(instance));
            if held as u64 > limits.max_samples_per_instance.bound() && after + kept > valid {
                return Err(RejectedReason::SamplesPerInstance);
            }
            growth += (after + kept).saturating_sub(valid);
        }
        if (self.rules.indices.occupied_samples() + growth) as u64 > limits.max_samples.bound() && growth > 0 {
            return Err(RejectedReason::Samples);
        }
        Ok(())
    }

    /// Makes a set visible, or drops it.
    pub(super) fn finish_set(&mut self, id: SetId, verdict: SetVerdict, at: Moment, effects: &mut Effects) {
        let Some(set) = self.sets.remove(&id) else { return };
        self.release_buffer(&set.changes);
        match verdict {
            SetVerdict::Commit => {
                self.rules.counters.sets_committed += 1;
                for (position, change) in set.changes {
                    self.apply(change, Moment { position, ..at }, effects);
                }
            }
            SetVerdict::Discard => {
                self.rules.counters.sets_discarded += 1;
                lose(set.changes.len(), effects);
            }
            SetVerdict::Reject(reason) => {
                self.rules.counters.sets_rejected += 1;
                for (_, change) in set.changes {
                    self.rules.reject(change.instance, reason, effects);
                }
            }
        }
    }
}

/// Counts changes that the application never sees (DDS 2.2.4.1, SAMPLE_LOST).
fn lose(count: usize, effects: &mut Effects) {
    effects.lost = effects.lost.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
}
