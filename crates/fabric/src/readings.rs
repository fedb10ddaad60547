//! Which views' rows this process reads, as it tells the members of its machine.
//!
//! A peer that [finds](crate::Mesh::shown) a member's next row in memory that it has mapped before gets no lease of it. Instead each member says, in its doorbell's region, of
//! which view it reads the oldest row. A row of an older view is read by it no more, and the owner may use its place for another.
use crate::fork::Owner;
use crate::region::SharedRegion;
use spindle_core::ViewId;
use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Offset in a doorbell's region of the word that says it: the oldest view, or more than any when none is read. Zero before the first view.
const READS: u64 = 80;
/// Offset in a doorbell's region of the newest view for which its member looks for shown rows no more.
const BEGUN: u64 = 88;

/// The views whose rows one member reads.
#[derive(Debug)]
pub(crate) struct Readings {
    bell: Arc<SharedRegion>,
    owner: Owner,
    /// How many hold each.
    views: Mutex<BTreeMap<ViewId, usize>>,
}

/// That this member reads rows of a view, or may yet.
#[derive(Debug)]
pub(crate) struct Reading {
    view: ViewId,
    of: Arc<Readings>,
}

impl Readings {
    /// The member that is woken by `bell` reads none yet.
    pub(crate) fn new(bell: Arc<SharedRegion>) -> Arc<Readings> {
        Arc::new(Readings { bell, owner: Owner::new(), views: Mutex::default() })
    }

    /// Begins to read rows of `view`. A member begins with the next view before it ends with this one, so that it never says that it is through with a view of which it will read rows.
    pub(crate) fn begin(self: &Arc<Self>, view: ViewId) -> Reading {
        let mut views = self.views();
        *views.entry(view).or_default() += 1;
        self.tell(&views);
        drop(views);
        Reading { view, of: Arc::clone(self) }
    }

    /// Says that this member looks for rows of `view` once more, after this, and never again.
    pub(crate) fn look_last(&self, view: ViewId) {
        self.bell.word(BEGUN).store(view.0, Ordering::Release);
        // Between this store and the loads of the last look, as in `has_looked`: one of the two sides sees what the other has stored.
        fence(Ordering::SeqCst);
    }

    fn views(&self) -> MutexGuard<'_, BTreeMap<ViewId, usize>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, views: &BTreeMap<ViewId, usize>) {
        let oldest = views.keys().next().map_or(u64::MAX, |view| view.0);
        // Release: all loads from rows of older views come before it, those of other threads by the lock.
        self.bell.word(READS).store(oldest, Ordering::Release);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // A child that was forked reads nothing, and its parent does.
        if self.of.owner.is_copy() {
            return;
        }
        let mut views = self.of.views();
        if let Some(count) = views.get_mut(&self.view) {
            *count -= 1;
            if *count == 0 {
                views.remove(&self.view);
                self.of.tell(&views);
            }
        }
    }
}

/// Whether the member whose doorbell this is reads no row of `view`, nor of an older one, and will not.
pub(crate) fn is_through(bell: &SharedRegion, view: ViewId) -> bool {
    // Acquire: pairs with the release in `tell`, so that what is written in the row's place comes after all loads from it.
    bell.word(READS).load(Ordering::Acquire) > view.0
}

/// Whether the member whose doorbell this is may not find a row of `view` that was shown just now, because it looks for it no more.
pub(crate) fn has_looked(bell: &SharedRegion, view: ViewId) -> bool {
    // Between the store that shows the row and this load.
    fence(Ordering::SeqCst);
    bell.word(BEGUN).load(Ordering::Acquire) >= view.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::BELL_BYTES;

    #[test]
    fn a_member_is_through_with_a_view_when_it_reads_newer_ones_only() {
        let bell = Arc::new(SharedRegion::create("test", BELL_BYTES).unwrap().0);
        let readings = Readings::new(Arc::clone(&bell));
        let through = || [1, 2, 3].map(|view| is_through(&bell, ViewId(view)));
        assert_eq!(through(), [false; 3], "it has read nothing yet, and may");
        let first = readings.begin(ViewId(1));
        assert_eq!(through(), [false; 3]);
        let (second, again) = (readings.begin(ViewId(2)), readings.begin(ViewId(1)));
        drop(first);
        assert_eq!(through(), [false; 3], "another thread reads there");
        drop(again);
        assert_eq!(through(), [true, false, false]);
        drop(second);
        assert_eq!(through(), [true; 3]);
    }
}
