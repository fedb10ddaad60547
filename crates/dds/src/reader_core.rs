//! A reader without its Rust type: its cache, its statuses and its conditions.
use crate::payload::Payload;
use crate::sync::{Deadline, lock};
use spindle_dds_core::cache::{Effects, KeyReader, LoanId, ReaderCache, ReaderEvent, Select, Selection};
use spindle_dds_core::condition::{ReadConditions, StatusCondition};
use spindle_dds_core::instance::{SampleState, StateMask};
use spindle_dds_core::policy::PolicyId;
use spindle_dds_core::qos::{DataReaderQos, SubscriberQos};
use spindle_dds_core::status::ReaderStatuses;
use spindle_dds_core::{DdsDuration, DdsError, DdsTime, Guid, Position};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::Waker;

/// A reader. The polling thread delivers, other threads read and take.
pub(crate) struct ReaderCore {
    pub(crate) guid: Guid,
    pub(crate) cache: Arc<Mutex<ReaderCache<Payload>>>,
    /// Signalled, with the lock of the cache, when samples or writers come, and when the participant ends.
    changed: Condvar,
    state: Mutex<State>,
    pub(crate) status_condition: StatusCondition,
    pub(crate) conditions: ReadConditions,
}

#[derive(Default)]
struct State {
    statuses: ReaderStatuses,
    /// The writers that match.
    matched: BTreeSet<Guid>,
    /// The wakers of streams, by their numbers.
    wakers: BTreeMap<u64, Waker>,
    next_stream: u64,
    /// Why no sample comes any more.
    ended: Option<DdsError>,
}

impl fmt::Debug for ReaderCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderCore").field("guid", &self.guid).finish_non_exhaustive()
    }
}

impl ReaderCore {
    pub(crate) fn new(
        guid: Guid,
        qos: &DataReaderQos,
        subscriber: &SubscriberQos,
        key_of: KeyReader<Payload>,
    ) -> Result<ReaderCore, DdsError> {
        let cache = Arc::new(Mutex::new(ReaderCache::new(qos, subscriber, key_of)?));
        let conditions = ReadConditions::new(cache.clone());
        let (changed, state, status_condition) = Default::default();
        Ok(ReaderCore { guid, cache, changed, state, status_condition, conditions })
    }

    /// Delivers events, in their order, and empties the list. Returns when the cache has something to do next.
    pub(crate) fn deliver(&self, events: &mut Vec<(Position, ReaderEvent<Payload>)>, now: DdsTime) -> Option<DdsTime> {
        let mut cache = lock(&self.cache);
        let mut effects = Effects::default();
        events.drain(..).for_each(|(position, event)| effects.add(cache.deliver(position, event, now)));
        let wake_at = cache.wake_at();
        self.count(cache, &effects);
        wake_at
    }

    /// Does what is due by time. Returns when there is more to do.
    pub(crate) fn poll(&self, now: DdsTime) -> Option<DdsTime> {
        let mut cache = lock(&self.cache);
        let effects = cache.poll(now);
        let wake_at = cache.wake_at();
        self.count(cache, &effects);
        wake_at
    }

    /// Counts effects in the statuses, under the lock of the cache, and then wakes the threads that wait for them. So no
    /// look at the cache comes between the effects and the statuses.
    fn count(&self, cache: MutexGuard<'_, ReaderCache<Payload>>, effects: &Effects) {
        if *effects == Effects::default() {
            return;
        }
        let mut state = lock(&self.state);
        for own in &effects.liveness {
            match own.now {
                Some(_) => state.matched.insert(own.writer),
                None => state.matched.remove(&own.writer),
            };
        }
        state.statuses.apply(effects);
        self.status_condition.store_changes(state.statuses.changes());
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        drop(cache);
        // A task that is woken may take these locks.
        self.changed.notify_all();
        self.status_condition.signal();
        self.conditions.data_changed();
        wakers.into_values().for_each(Waker::wake);
    }

    /// Counts a writer that offers less than this reader requests.
    pub(crate) fn count_incompatible(&self, policies: &[PolicyId]) {
        self.with_statuses(|statuses| statuses.count_incompatible(policies));
    }

    /// Reads or changes the statuses.
    pub(crate) fn with_statuses<R>(&self, with: impl FnOnce(&mut ReaderStatuses) -> R) -> R {
        let mut state = lock(&self.state);
        let found = with(&mut state.statuses);
        self.status_condition.store_changes(state.statuses.changes());
        drop(state);
        self.status_condition.signal();
        found
    }

    /// Returns the writers that match: `get_matched_publications`.
    pub(crate) fn matched(&self) -> Vec<Guid> {
        lock(&self.state).matched.iter().copied().collect()
    }

    /// Reads or takes samples.
    pub(crate) fn select(
        &self,
        select: &Select<'_>,
        takes: bool,
        now: DdsTime,
    ) -> Result<Selection<Payload>, DdsError> {
        let mut cache = lock(&self.cache);
        let selection = if takes { cache.take(select, now) } else { cache.read(select, now) };
        // Under the lock of the cache: a sample that comes later sets the status again.
        let mut state = lock(&self.state);
        state.statuses.reset_data_available();
        self.status_condition.store_changes(state.statuses.changes());
        drop(state);
        drop(cache);
        if selection.is_ok() {
            self.conditions.data_changed();
        }
        selection
    }

    pub(crate) fn return_loan(&self, loan: LoanId) {
        // The loan is of this cache, and is returned once.
        let _ = lock(&self.cache).return_loan(loan);
    }

    /// Waits until `found` finds something in the cache.
    fn wait_until<R>(
        &self,
        what: &'static str,
        (deadline, timeout): (Deadline, DdsDuration),
        mut found: impl FnMut(&mut ReaderCache<Payload>) -> Option<R>,
    ) -> Result<R, DdsError> {
        let mut cache = lock(&self.cache);
        loop {
            if let Some(found) = found(&mut cache) {
                return Ok(found);
            }
            if let Some(ended) = lock(&self.state).ended.clone() {
                return Err(ended);
            }
            cache = deadline.wait(&self.changed, cache).ok_or(DdsError::Timeout { what, after: timeout })?;
        }
    }

    /// Waits until there is a sample that was not read.
    pub(crate) fn wait_for_data(&self, until: (Deadline, DdsDuration)) -> Result<(), DdsError> {
        let unread = StateMask::ANY.sample(&[SampleState::NotRead]);
        self.wait_until("a wait for samples", until, |cache| (cache.count(unread) > 0).then_some(()))
    }

    /// Waits until at least `count` writers match.
    pub(crate) fn wait_matched(&self, count: usize, timeout: DdsDuration) -> Result<(), DdsError> {
        let until = (Deadline::after(timeout), timeout);
        self.wait_until("a wait for writers", until, |_| (self.matched().len() >= count).then_some(()))
    }

    /// Returns the number of a new stream.
    pub(crate) fn new_stream(&self) -> u64 {
        let mut state = lock(&self.state);
        state.next_stream += 1;
        state.next_stream
    }

    /// Asks to wake the task of a stream at the next change.
    pub(crate) fn wake_later(&self, stream: u64, waker: &Waker) {
        lock(&self.state).wakers.insert(stream, waker.clone());
    }

    /// Takes back [`ReaderCore::wake_later`].
    pub(crate) fn forget_waker(&self, stream: u64) {
        lock(&self.state).wakers.remove(&stream);
    }

    /// Returns why no sample comes any more.
    pub(crate) fn ended(&self) -> Option<DdsError> {
        lock(&self.state).ended.clone()
    }

    /// Tells all that wait that no sample comes any more.
    pub(crate) fn end(&self, why: DdsError) {
        // The lock of the cache: a thread that waits has looked before, or will look later.
        let cache = lock(&self.cache);
        let mut state = lock(&self.state);
        state.ended.get_or_insert(why);
        let wakers = std::mem::take(&mut state.wakers);
        drop((state, cache));
        self.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }

    /// Deletes the conditions with the reader.
    pub(crate) fn delete(&self) {
        self.conditions.delete_all();
        self.status_condition.delete();
        self.end(DdsError::AlreadyDeleted("reader"));
    }
}
