//! The caches of a subscriber at GROUP scope (DDS 2.2.2.5.2.8 to 2.2.2.5.2.10): sets over several readers,
//! and the order over all of them.
use super::cache::ReaderCache;
use super::effects::{Effects, RejectedReason};
use super::event::{ReaderEvent, SetEnd};
use super::rules::Moment;
use super::sets::SetVerdict;
use crate::error::DdsError;
use crate::id::{Guid, Position};
use crate::instance::{OrderKey, StateMask};
use crate::time::DdsTime;
use std::collections::{BTreeMap, VecDeque};

/// The caches of a subscriber whose access scope is GROUP.
///
/// The writers of a publisher must be in one order domain, and so all readers get one stream. While the
/// application is between `begin_access` and `end_access`, events wait, so it sees one state of all
/// readers.
#[derive(Debug)]
pub struct GroupCaches<P> {
    readers: BTreeMap<Guid, ReaderCache<P>>,
    accesses: u32,
    held: VecDeque<(Position, Held<P>, DdsTime)>,
    /// The changes of each reader that wait.
    held_changes: BTreeMap<Guid, usize>,
}

#[derive(Debug)]
enum Held<P> {
    Event(Guid, ReaderEvent<P>),
    SetEnd(SetEnd),
}

/// The effects on some readers.
type GroupEffects = Vec<(Guid, Effects)>;

impl<P> Default for GroupCaches<P> {
    fn default() -> GroupCaches<P> {
        GroupCaches { readers: BTreeMap::new(), accesses: 0, held: VecDeque::new(), held_changes: BTreeMap::new() }
    }
}

impl<P: Clone + AsRef<[u8]>> GroupCaches<P> {
    /// Adds the cache of a reader. It replaces one with the same identity.
    pub fn insert(&mut self, reader: Guid, mut cache: ReaderCache<P>) {
        cache.set_in_access(self.accesses > 0);
        self.readers.insert(reader, cache);
    }

    /// Removes the cache of a reader.
    pub fn remove(&mut self, reader: Guid) -> Option<ReaderCache<P>> {
        self.held_changes.remove(&reader);
        self.readers.remove(&reader)
    }

    /// Returns the cache of a reader.
    pub fn reader(&self, reader: Guid) -> Option<&ReaderCache<P>> {
        self.readers.get(&reader)
    }

    /// Returns the cache of a reader, to read and take samples.
    pub fn reader_mut(&mut self, reader: Guid) -> Option<&mut ReaderCache<P>> {
        self.readers.get_mut(&reader)
    }

    /// Applies an event to a reader. During an access it waits; a change beyond `max_samples` of its reader
    /// is rejected then.
    pub fn deliver(&mut self, reader: Guid, position: Position, event: ReaderEvent<P>, now: DdsTime) -> Effects {
        let Some(cache) = self.readers.get_mut(&reader) else { return Effects::default() };
        if self.accesses == 0 {
            return cache.deliver(position, event, now);
        }
        if let ReaderEvent::Change(change) = &event {
            let waiting = self.held_changes.entry(reader).or_default();
            if !cache.rules.settings.limits.max_samples.admits(*waiting) {
                let mut effects = Effects::default();
                cache.rules.reject(change.instance, RejectedReason::Samples, &mut effects);
                return effects;
            }
            *waiting += 1;
        }
        self.held.push_back((position, Held::Event(reader, event), now));
        Effects::default()
    }

    /// Ends a set of a publisher. All readers see it, or none: it is rejected if a limit of one reader
    /// leaves no room, and discarded if a part of it is missing at one.
    pub fn end_set(&mut self, position: Position, end: SetEnd, now: DdsTime) -> GroupEffects {
        if self.accesses > 0 {
            self.held.push_back((position, Held::SetEnd(end), now));
            return Vec::new();
        }
        let verdicts: Vec<SetVerdict> = self.coherent().map(|cache| cache.judge_set(&end)).collect();
        let verdict = if verdicts.contains(&SetVerdict::Discard) {
            SetVerdict::Discard
        } else {
            verdicts.into_iter().find(|verdict| *verdict != SetVerdict::Commit).unwrap_or(SetVerdict::Commit)
        };
        let mut all = Vec::new();
        for (reader, cache) in self.readers.iter_mut().filter(|(_, cache)| cache.rules.settings.coherent) {
            let mut effects = Effects::default();
            cache.finish_set(end.set, verdict, Moment::at(position, now), &mut effects);
            if effects != Effects::default() {
                all.push((*reader, effects));
            }
        }
        all
    }

    fn coherent(&self) -> impl Iterator<Item = &ReaderCache<P>> {
        self.readers.values().filter(|cache| cache.rules.settings.coherent)
    }

    /// Begins an access (DDS 2.2.2.5.2.8). Accesses may contain each other.
    pub fn begin_access(&mut self) {
        self.accesses += 1;
        self.readers.values_mut().for_each(|cache| cache.set_in_access(true));
    }

    /// Ends an access (DDS 2.2.2.5.2.9). The last one applies the events that waited.
    ///
    /// # Errors
    /// `PreconditionNotMet` without a begin_access.
    pub fn end_access(&mut self) -> Result<GroupEffects, DdsError> {
        if self.accesses == 0 {
            let what = "no access has begun".to_owned();
            return Err(DdsError::PreconditionNotMet { what, remedy: "call begin_access before end_access" });
        }
        self.accesses -= 1;
        if self.accesses > 0 {
            return Ok(Vec::new());
        }
        self.readers.values_mut().for_each(|cache| cache.set_in_access(false));
        self.held_changes.clear();
        let mut all = Vec::new();
        for (position, held, now) in std::mem::take(&mut self.held) {
            match held {
                Held::Event(reader, event) => {
                    let effects = self.deliver(reader, position, event, now);
                    if effects != Effects::default() {
                        all.push((reader, effects));
                    }
                }
                Held::SetEnd(end) => all.append(&mut self.end_set(position, end, now)),
            }
        }
        Ok(all)
    }

    /// Returns the readers with samples whose states are in a set: `get_datareaders`
    /// (DDS 2.2.2.5.2.10).
    ///
    /// With ordered access, a reader occurs once for each sample, in the order of the samples. Without it,
    /// each occurs once.
    ///
    /// # Errors
    /// `PreconditionNotMet` outside of an access, if a reader needs one.
    pub fn readers_with(&self, states: StateMask) -> Result<Vec<Guid>, DdsError> {
        if self.accesses == 0 && self.readers.values().any(|cache| cache.rules.settings.needs_access()) {
            let what = "readers are listed within an access".to_owned();
            return Err(DdsError::PreconditionNotMet { what, remedy: "call begin_access first" });
        }
        let found = self.readers.iter().filter(|(_, cache)| cache.count(states) > 0);
        if !self.readers.values().any(|cache| cache.rules.settings.ordered) {
            return Ok(found.map(|(reader, _)| *reader).collect());
        }
        let mut samples: Vec<(OrderKey, Guid)> = Vec::new();
        for (reader, cache) in found {
            samples.extend(cache.order_of(states).map(|key| (key, *reader)));
        }
        samples.sort();
        Ok(samples.into_iter().map(|(_, reader)| reader).collect())
    }

    /// Does all that is due in each reader.
    pub fn poll(&mut self, now: DdsTime) -> GroupEffects {
        let polled = self.readers.iter_mut().map(|(reader, cache)| (*reader, cache.poll(now)));
        polled.filter(|(_, effects)| *effects != Effects::default()).collect()
    }

    /// Returns when [`GroupCaches::poll`] has something to do next.
    pub fn wake_at(&self) -> Option<DdsTime> {
        self.readers.values().filter_map(ReaderCache::wake_at).min()
    }
}
