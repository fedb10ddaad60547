//! Coherent sets (DDS 2.2.3.6): their changes are buffered, and become visible at the end of the set, or
//! never.
use super::cache::{PendingSet, ReaderCache};
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
    /// Adds a change to its set. A set that exceeds `max_samples` keeps no change.
    pub(super) fn buffer(&mut self, position: Position, change: CacheChange<P>, effects: &mut Effects) {
        let Some(id) = change.set else { return };
        if !self.rules.writers.contains_key(&change.writer) {
            self.rules.counters.unmatched += 1;
            return;
        }
        let is_new = !self.sets.contains_key(&id);
        if is_new {
            self.discard_before(id);
        }
        let room = self.rules.settings.limits.max_samples.admits(self.buffered);
        let set = self.sets.entry(id).or_insert(PendingSet { changes: Vec::new(), refused: 0, broken: false });
        if room && set.refused == 0 {
            set.changes.push((position, change));
            self.buffered += 1;
            return;
        }
        self.buffered -= set.changes.len();
        let instances: Vec<InstanceHandle> = set.changes.drain(..).map(|(_, change)| change.instance).collect();
        set.refused = set.refused.saturating_add(1 + instances.len() as u32);
        for handle in instances.into_iter().chain([change.instance]) {
            self.rules.reject(handle, RejectedReason::Samples, effects);
        }
    }

    /// Returns the changes of sets whose ends have not arrived, with their positions. A joiner that gets
    /// them as events has the same sets.
    pub fn pending_changes(&self) -> impl Iterator<Item = (Position, &CacheChange<P>)> {
        self.sets.values().flat_map(|set| set.changes.iter().map(|(position, change)| (*position, change)))
    }

    /// Gives up a set.
    pub(super) fn discard_set(&mut self, id: SetId) {
        if let Some(set) = self.sets.remove(&id) {
            self.buffered -= set.changes.len();
            self.rules.counters.sets_discarded += 1;
        }
    }

    /// Gives up the earlier sets of a source: it has begun another one without ending them.
    fn discard_before(&mut self, id: SetId) {
        let earlier: Vec<SetId> = self.sets.range(SetId { number: 0, ..id }..id).map(|(id, _)| *id).collect();
        earlier.into_iter().for_each(|id| self.discard_set(id));
    }

    /// Gives up the sets of a writer that went away. A publisher that lives may still end its set, which
    /// must then be seen by none of its readers.
    pub(super) fn lose_sets_of(&mut self, writer: Guid, end: WriterEnd) {
        let of_writer = |set: &PendingSet<P>| set.changes.iter().any(|(_, change)| change.writer == writer);
        let found: Vec<SetId> = self.sets.iter().filter(|(_, set)| of_writer(set)).map(|(id, _)| *id).collect();
        for id in found {
            let group = self.rules.settings.scope == PresentationQosPolicyAccessScopeKind::Group;
            match self.sets.get_mut(&id) {
                Some(set) if group && end != WriterEnd::Lost => {
                    self.buffered -= set.changes.len();
                    set.changes.clear();
                    set.broken = true;
                }
                _ => self.discard_set(id),
            }
        }
    }

    /// Ends a set of TOPIC scope.
    pub(super) fn end_set(&mut self, end: &SetEnd, at: Moment, effects: &mut Effects) {
        if !self.rules.settings.coherent || self.rules.settings.scope == PresentationQosPolicyAccessScopeKind::Group {
            return;
        }
        let verdict = self.judge_set(end);
        self.finish_set(end.set, verdict, at, effects);
    }

    /// Returns what must happen to a set whose end has arrived.
    ///
    /// Ownership and the order by source may drop changes of the set when it becomes visible. They are
    /// not foreseen here, so a set that would fit thanks to them is rejected.
    pub(super) fn judge_set(&self, end: &SetEnd) -> SetVerdict {
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
            self.rules.writers.contains_key(writer) && found != *count as usize
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
            let valid = self.instances.get(&handle).map_or(0, |instance| instance.valid);
            let after = match self.rules.settings.history {
                HistoryQosPolicyKind::KeepLast(depth) => (valid + count).min(depth as usize),
                HistoryQosPolicyKind::KeepAll => valid + count,
            };
            if after as u64 > limits.max_samples_per_instance.bound() && after > valid {
                return Err(RejectedReason::SamplesPerInstance);
            }
            growth += after.saturating_sub(valid);
        }
        if (self.rules.indices.occupied_samples() + growth) as u64 > limits.max_samples.bound() && growth > 0 {
            return Err(RejectedReason::Samples);
        }
        Ok(())
    }

    /// Makes a set visible, or drops it.
    pub(super) fn finish_set(&mut self, id: SetId, verdict: SetVerdict, at: Moment, effects: &mut Effects) {
        let Some(set) = self.sets.remove(&id) else { return };
        self.buffered -= set.changes.len();
        match verdict {
            SetVerdict::Commit => {
                self.rules.counters.sets_committed += 1;
                for (position, change) in set.changes {
                    self.apply(change, Moment { position, ..at }, effects);
                }
            }
            SetVerdict::Discard => self.rules.counters.sets_discarded += 1,
            SetVerdict::Reject(reason) => {
                self.rules.counters.sets_rejected += 1;
                for (_, change) in set.changes {
                    self.rules.reject(change.instance, reason, effects);
                }
            }
        }
    }
}
