//! The objects that a member keeps for processes that follow. The polling thread and the threads
//! that send the objects share them. They are in the core's [`LargeObjectCache`](control::ObjectCache)
//! and in the object table of the current view.
use spindle_core::control::{self, Wanted};
use spindle_core::{Layout, Rank, Ring, SubgroupId, Time, View, ViewId};
use spindle_fabric::Reader;
use spindle_fabric::bulk::Object;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The objects that one member keeps, from the current view and from earlier ones.
#[derive(Debug, Default)]
pub(crate) struct LargeObjectCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    object_cache: control::ObjectCache<Object>,
    current: Option<Current>,
}

/// The current view. Its object table contains the objects that are not delivered yet.
#[derive(Debug)]
struct Current {
    view: Arc<View>,
    layout: Arc<Layout>,
    me: Rank,
    rows: Reader,
}

impl Current {
    /// The ring of `sender` in a subgroup, if it has one in this view.
    fn ring(&self, subgroup: SubgroupId, sender: Rank) -> Option<Ring> {
        self.layout.rows().get(sender.index())?.subgroup(subgroup)?.ring
    }
}

impl LargeObjectCache {
    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a view, in which this member has rank `me`.
    pub(crate) fn begin(&self, view: &Arc<View>, layout: &Arc<Layout>, me: Rank, rows: Reader) {
        let current = Current { view: Arc::clone(view), layout: Arc::clone(layout), me, rows };
        let last = self.lock().current.replace(current);
        drop(last);
    }

    /// Handles the end of the view. The objects in its object table are kept, because a process
    /// that follows may be behind.
    pub(crate) fn end_view(&self) {
        let mut state = self.lock();
        let Some(current) = state.current.take() else { return };
        let mut given_up = vec![];
        if state.object_cache.is_on() {
            for (subgroup, spec) in current.view.subgroups_of(current.me) {
                for (sender, ring) in
                    spec.senders.iter().filter_map(|&sender| Some((sender, current.ring(subgroup, sender)?)))
                {
                    given_up.extend(state.keep(current.view.id, subgroup, sender, current.rows.objects(sender, &ring)));
                }
            }
        }
        drop(state);
    }

    /// Sets whether a process follows. If none does, nothing is kept.
    pub(crate) fn set_on(&self, is_on: bool) {
        let given_up = self.lock().object_cache.set_on(is_on);
        drop(given_up);
    }

    /// True if a member that has finished at `since` stays because of the objects that it keeps.
    pub(crate) fn delays_the_end(&self, since: Time, now: Time) -> bool {
        self.lock().object_cache.delays_the_end(since, now)
    }

    /// Keeps the objects of `sender` that `forget` takes from the object table. At every moment
    /// each object is in at least one of the two places.
    pub(crate) fn keep(&self, subgroup: SubgroupId, sender: Rank, forget: impl FnOnce() -> Vec<(u64, Object)>) {
        let mut state = self.lock();
        let objects = forget();
        let given_up = match state.current.as_ref().map(|current| current.view.id) {
            Some(view) => state.keep(view, subgroup, sender, objects),
            None => objects.into_iter().map(|(_, object)| object).collect(),
        };
        // Objects are dropped after the lock is released, because that may take system calls.
        drop(state);
        drop(given_up);
    }

    /// Returns the object, if it is still kept.
    pub(crate) fn find(&self, view: ViewId, wanted: &Wanted) -> Option<Object> {
        let state = self.lock();
        let on_shelf = || {
            let current = state.current.as_ref().filter(|current| current.view.id == view)?;
            current.rows.object(wanted.sender, &current.ring(wanted.subgroup, wanted.sender)?, wanted.number)
        };
        state.object_cache.find(view, wanted).cloned().or_else(on_shelf)
    }

    /// Returns a cache that keeps these objects of view 1, by number, of rank 1 in the first
    /// subgroup.
    #[cfg(test)]
    pub(super) fn of(objects: &[(u64, &[u8])]) -> LargeObjectCache {
        let object_cache = LargeObjectCache::default();
        object_cache.set_on(true);
        let objects = objects.iter().map(|(number, bytes)| (*number, bytes.to_vec().into())).collect();
        object_cache.lock().keep(ViewId(1), SubgroupId(0), Rank(1), objects);
        object_cache
    }

    /// Handles the end of the member: keeps nothing alive any more.
    pub(crate) fn end(&self) {
        let last = self.lock().current.take();
        drop(last);
        self.set_on(false);
    }
}

impl CacheState {
    /// Keeps objects of `view`. Returns the objects that are given up for that. The caller drops
    /// them after it has released the lock.
    fn keep(&mut self, view: ViewId, subgroup: SubgroupId, sender: Rank, objects: Vec<(u64, Object)>) -> Vec<Object> {
        let keep = |(number, object): (u64, Object)| {
            let bytes = object.len() as u64;
            self.object_cache.keep(view, Wanted { subgroup, sender, number }, object, bytes)
        };
        objects.into_iter().flat_map(keep).collect()
    }
}
