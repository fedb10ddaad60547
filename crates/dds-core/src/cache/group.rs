//! The caches of a subscriber at GROUP scope (DDS 2.2.2.5.2.8 to 2.2.2.5.2.10): sets over several readers,
//! and the order over all of them.
use super::cache::ReaderCache;
use super::effects::{Effects, RejectedReason};
use super::event::{KeyReader, ReaderEvent, SetEnd};
use super::loans::{LoanId, Selection};
use super::rules::Moment;
use super::select::Select;
use super::sets::SetVerdict;
use super::settings::CacheSettings;
use crate::error::DdsError;
use crate::filter::ContentFilter;
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::{OrderKey, StateMask};
use crate::policy::{PolicyId, PresentationQosPolicyAccessScopeKind};
use crate::qos::{DataReaderQos, QosSet, SubscriberQos};
use crate::time::DdsTime;
use std::collections::BTreeMap;

/// The caches of a subscriber whose access scope is GROUP.
///
/// The writers of a publisher must be in one order domain, and so all readers get one stream.
///
/// Between `begin_access` and `end_access` the application sees one state of all readers, that of the
/// begin, without samples whose LIFESPAN ends. Events take effect all the while, under the same rules as
/// without an access. The first event or timer of a reader within an access copies its instances and
/// samples; payloads are shared.
#[derive(Debug)]
pub struct GroupCaches<P> {
    subscriber: SubscriberQos,
    readers: BTreeMap<Guid, GroupReader<P>>,
    accesses: u32,
}

/// The effects on some readers.
type GroupEffects = Vec<(Guid, Effects)>;

/// A reader of the group.
#[derive(Debug)]
struct GroupReader<P> {
    /// The cache, as the stream has made it.
    live: ReaderCache<P>,
    /// The state at the begin of the access, if the cache has changed since.
    view: Option<ReaderCache<P>>,
    /// Whether samples have come since the begin of the access, which the application sees after its end.
    hidden: bool,
}

impl<P: Clone + AsRef<[u8]>> GroupReader<P> {
    fn seen(&self) -> &ReaderCache<P> {
        self.view.as_ref().unwrap_or(&self.live)
    }

    /// Returns the cache, to change it. Within an access, the application continues to see the state of now.
    fn change(&mut self, in_access: bool) -> &mut ReaderCache<P> {
        if in_access && self.view.is_none() {
            self.view = Some(self.live.freeze());
        }
        &mut self.live
    }

    /// Does what is due in the cache.
    fn advance(&mut self, in_access: bool, now: DdsTime) {
        if self.live.wake_at().is_some_and(|at| at <= now) {
            self.change(in_access).advance(now);
        }
    }

    /// Puts off the news of samples that the application sees after its access only.
    fn hide(&mut self, in_access: bool, mut effects: Effects) -> Effects {
        self.hidden |= in_access && effects.data_available;
        effects.data_available &= !in_access;
        effects
    }

    fn access(
        &mut self,
        select: &Select<'_>,
        takes: bool,
        in_access: bool,
        now: DdsTime,
    ) -> Result<Selection<P>, DdsError> {
        self.advance(in_access, now);
        if let Some(view) = &mut self.view {
            view.advance(now);
        }
        let picked = self.seen().pick(select)?;
        let samples = self.seen().fetch(&picked);
        if let Some(view) = &mut self.view {
            view.settle(&picked, takes);
        }
        Ok(Selection { samples, loan: self.live.settle(&picked, takes) })
    }
}

impl<P: Clone + AsRef<[u8]>> GroupCaches<P> {
    /// Makes the caches of a subscriber without readers.
    ///
    /// # Errors
    /// As [`QosSet::check_consistent`], and `BadParameter` if the access scope is not GROUP.
    pub fn new(subscriber: &SubscriberQos) -> Result<GroupCaches<P>, DdsError> {
        subscriber.check_consistent()?;
        if subscriber.presentation.access_scope != PresentationQosPolicyAccessScopeKind::Group {
            let (policy, value) = (PolicyId::Presentation, subscriber.presentation);
            let text = format!("{policy} is {value}, which needs no group; use a cache for each reader");
            return Err(DdsError::BadParameter(text));
        }
        Ok(GroupCaches { subscriber: subscriber.clone(), readers: BTreeMap::new(), accesses: 0 })
    }

    /// Adds the empty cache of a reader. It replaces one with the same identity.
    ///
    /// # Errors
    /// As [`ReaderCache::new`], GROUP scope excepted.
    pub fn insert(&mut self, reader: Guid, qos: &DataReaderQos, key_of: KeyReader<P>) -> Result<(), DdsError> {
        let live = ReaderCache::with(CacheSettings::new(qos, &self.subscriber)?, key_of);
        self.readers.insert(reader, GroupReader { live, view: None, hidden: false });
        Ok(())
    }

    /// Removes the cache of a reader, and returns whether there was one.
    pub fn remove(&mut self, reader: Guid) -> bool {
        self.readers.remove(&reader).is_some()
    }

    /// Returns the cache of a reader, as the application sees it: within an access, that of its begin.
    pub fn reader(&self, reader: Guid) -> Option<&ReaderCache<P>> {
        self.readers.get(&reader).map(GroupReader::seen)
    }

    /// Returns the cache of a reader, as the stream has made it.
    pub fn current(&self, reader: Guid) -> Option<&ReaderCache<P>> {
        self.readers.get(&reader).map(|own| &own.live)
    }

    fn own(&mut self, reader: Guid) -> Result<&mut GroupReader<P>, DdsError> {
        let unknown = || DdsError::BadParameter(format!("the subscriber has no reader {reader}; add it first"));
        self.readers.get_mut(&reader).ok_or_else(unknown)
    }

    /// Sets the filter of a reader: [`ReaderCache::set_filter`].
    ///
    /// # Errors
    /// `BadParameter` if the reader is unknown.
    pub fn set_filter(&mut self, reader: Guid, filter: Option<ContentFilter>) -> Result<(), DdsError> {
        self.own(reader).map(|own| own.live.set_filter(filter))
    }

    /// Changes the policies of a reader: [`ReaderCache::set_qos`].
    ///
    /// # Errors
    /// As [`ReaderCache::set_qos`], and `BadParameter` if the reader is unknown.
    pub fn set_qos(&mut self, reader: Guid, qos: &DataReaderQos, now: DdsTime) -> Result<Effects, DdsError> {
        let (in_access, subscriber) = (self.accesses > 0, self.subscriber.clone());
        let own = self.own(reader)?;
        let effects = own.change(in_access).set_qos(qos, &subscriber, now)?;
        Ok(own.hide(in_access, effects))
    }

    /// Takes over the snapshot of a reader's cache: [`ReaderCache::restore`]. [`GroupCaches::current`] has the
    /// cache of which a snapshot is made.
    ///
    /// # Errors
    /// `BadParameter` with the reason if the reader is unknown, or if the snapshot does not fit.
    pub fn restore(
        &mut self,
        reader: Guid,
        snapshot: &[u8],
        payload: impl FnMut(&[u8]) -> P,
        now: DdsTime,
    ) -> Result<Effects, DdsError> {
        let in_access = self.accesses > 0;
        let own = self.own(reader)?;
        let effects = own.change(in_access).restore(snapshot, payload, now)?;
        Ok(own.hide(in_access, effects))
    }

    /// Applies an event to a reader, after all that is due. An unknown reader has no effects.
    pub fn deliver(&mut self, reader: Guid, position: Position, event: ReaderEvent<P>, now: DdsTime) -> Effects {
        let in_access = self.accesses > 0;
        let Some(own) = self.readers.get_mut(&reader) else { return Effects::default() };
        let effects = own.change(in_access).deliver(position, event, now);
        own.hide(in_access, effects)
    }

    /// Returns the limit that a write would break: [`ReaderCache::admits`].
    ///
    /// # Errors
    /// The limit.
    pub fn admits(&self, reader: Guid, instance: InstanceHandle) -> Result<(), RejectedReason> {
        self.current(reader).map_or(Ok(()), |cache| cache.admits(instance))
    }

    /// Ends a set of a publisher. All readers see it, or none: it is rejected if a limit of one reader
    /// leaves no room, and discarded if a part of it is missing at one.
    pub fn end_set(&mut self, position: Position, end: &SetEnd, now: DdsTime) -> GroupEffects {
        let in_access = self.accesses > 0;
        self.readers.values_mut().for_each(|own| own.advance(in_access, now));
        let coherent = |own: &GroupReader<P>| own.live.rules.settings.coherent;
        let judged = self.readers.values().filter(|own| coherent(own)).map(|own| own.live.judge_set(end, position));
        let verdicts: Vec<SetVerdict> = judged.collect();
        let verdict = if verdicts.contains(&SetVerdict::Discard) {
            SetVerdict::Discard
        } else {
            verdicts.into_iter().find(|verdict| *verdict != SetVerdict::Commit).unwrap_or(SetVerdict::Commit)
        };
        let mut all = Vec::new();
        for (reader, own) in self.readers.iter_mut().filter(|(_, own)| coherent(own)) {
            let live = own.change(in_access);
            let at = Moment::at(position, live.advance(now));
            let mut effects = std::mem::take(&mut live.owed);
            live.finish_set(end.set, verdict, at, &mut effects);
            all.push((*reader, own.hide(in_access, effects)));
        }
        news(all)
    }

    /// Begins an access, after all that is due (DDS 2.2.2.5.2.8). Accesses may contain each other.
    pub fn begin_access(&mut self, now: DdsTime) -> GroupEffects {
        let effects = self.poll(now);
        self.accesses += 1;
        effects
    }

    /// Ends an access (DDS 2.2.2.5.2.9). After the last one the application sees the events since its begin,
    /// and the effects say that there are new samples.
    ///
    /// # Errors
    /// `PreconditionNotMet` without a begin_access.
    pub fn end_access(&mut self, now: DdsTime) -> Result<GroupEffects, DdsError> {
        if self.accesses == 0 {
            let what = "no access has begun".to_owned();
            return Err(DdsError::PreconditionNotMet { what, remedy: "call begin_access before end_access" });
        }
        self.accesses -= 1;
        if self.accesses > 0 {
            return Ok(Vec::new());
        }
        let shown = self.readers.iter_mut().map(|(reader, own)| {
            own.view = None;
            let mut effects = own.live.poll(now);
            effects.data_available |= std::mem::take(&mut own.hidden);
            (*reader, effects)
        });
        Ok(news(shown.collect()))
    }

    /// Reads samples of a reader: [`ReaderCache::read`]. With ordered access, there is one at a time.
    ///
    /// # Errors
    /// As [`ReaderCache::read`], and `BadParameter` if the reader is unknown, `PreconditionNotMet` outside
    /// of an access.
    pub fn read(&mut self, reader: Guid, select: &Select<'_>, now: DdsTime) -> Result<Selection<P>, DdsError> {
        self.check_access("samples at GROUP scope are read within an access")?;
        let in_access = self.accesses > 0;
        self.own(reader)?.access(select, false, in_access, now)
    }

    /// Takes samples of a reader: [`ReaderCache::take`]. With ordered access, there is one at a time.
    ///
    /// # Errors
    /// As [`GroupCaches::read`].
    pub fn take(&mut self, reader: Guid, select: &Select<'_>, now: DdsTime) -> Result<Selection<P>, DdsError> {
        self.check_access("samples at GROUP scope are taken within an access")?;
        let in_access = self.accesses > 0;
        self.own(reader)?.access(select, true, in_access, now)
    }

    /// Ends a loan of a reader: [`ReaderCache::return_loan`].
    ///
    /// # Errors
    /// As [`ReaderCache::return_loan`], and `BadParameter` if the reader is unknown.
    pub fn return_loan(&mut self, reader: Guid, loan: LoanId) -> Result<(), DdsError> {
        self.own(reader)?.live.return_loan(loan)
    }

    /// Returns the readers with samples whose states are in a set: `get_datareaders`
    /// (DDS 2.2.2.5.2.10).
    ///
    /// With ordered access, a reader occurs once for each sample, in the order of the samples. Without it,
    /// each occurs once. A sample whose LIFESPAN ends before it is read leaves its reader in the list.
    ///
    /// # Errors
    /// `PreconditionNotMet` outside of an access, if there is coherent or ordered access.
    pub fn readers_with(&self, states: StateMask) -> Result<Vec<Guid>, DdsError> {
        self.check_access("readers are listed within an access")?;
        let seen = self.readers.iter().map(|(reader, own)| (*reader, own.seen()));
        let found = seen.filter(|(_, cache)| cache.count(states) > 0);
        if !self.subscriber.presentation.ordered_access {
            return Ok(found.map(|(reader, _)| reader).collect());
        }
        let mut samples: Vec<(OrderKey, Guid)> = Vec::new();
        for (reader, cache) in found {
            samples.extend(cache.order_of(states).map(|key| (key, reader)));
        }
        samples.sort();
        Ok(samples.into_iter().map(|(_, reader)| reader).collect())
    }

    fn check_access(&self, what: &str) -> Result<(), DdsError> {
        let presentation = &self.subscriber.presentation;
        if self.accesses > 0 || !(presentation.coherent_access || presentation.ordered_access) {
            return Ok(());
        }
        Err(DdsError::PreconditionNotMet { what: what.to_owned(), remedy: "call begin_access first" })
    }

    /// Does all that is due in each reader.
    pub fn poll(&mut self, now: DdsTime) -> GroupEffects {
        let in_access = self.accesses > 0;
        let polled = self.readers.iter_mut().map(|(reader, own)| {
            own.advance(in_access, now);
            let effects = own.live.poll(now);
            (*reader, own.hide(in_access, effects))
        });
        news(polled.collect())
    }

    /// Returns when [`GroupCaches::poll`] has something to do next.
    pub fn wake_at(&self) -> Option<DdsTime> {
        self.readers.values().filter_map(|own| own.live.wake_at()).min()
    }
}

/// Drops effects that say nothing.
fn news(mut effects: GroupEffects) -> GroupEffects {
    effects.retain(|(_, effects)| *effects != Effects::default());
    effects
}
