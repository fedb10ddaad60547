//! The views whose rows this process reads, as it announces them to the members of its machine.
//!
//! A peer that [finds](crate::Mesh::shown) a member's next row in memory that it has mapped before
//! gets no lease for it. Instead each member publishes, in its doorbell's region, the views whose
//! rows it reads. If a view is not newer than the newest of these and is not among them, the member
//! no longer reads its rows, and the owner may reuse the place of its row.
use crate::region::SharedRegion;
use spindle_core::ViewId;
use spindle_transport::fork::Owner;
use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Offset in a doorbell's region of the newest view that its member has begun to read, or of a
/// number larger than any view once it reads none. Zero before the first.
const NEWEST: u64 = 80;
/// Offset in a doorbell's region of the newest view for which its member no longer looks for shown
/// rows.
const BEGUN: u64 = 88;
/// Offset in a doorbell's region of the words that name the views that are read: one view each, or
/// zero.
const READS: u64 = 128;
/// The number of these words.
pub(crate) const READS_MAX: u64 = 8;
/// Offset in a doorbell's region of the oldest view that is read and has no word. Zero if there is
/// none.
const OTHERS: u64 = READS + 8 * READS_MAX;

/// The views whose rows one member reads.
#[derive(Debug)]
pub(crate) struct Readings {
    event_count: Arc<SharedRegion>,
    owner: Owner,
    views: Mutex<BTreeMap<ViewId, Read>>,
}

/// A view that is read.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// The number of its holders.
    count: usize,
    /// Offset of the word that names it, if a word was free.
    at: Option<u64>,
}

/// Evidence that this member reads rows of a view, or may yet do so.
#[derive(Debug)]
pub(crate) struct RowReading {
    view: ViewId,
    of: Arc<Readings>,
}

impl Readings {
    /// Creates the readings of the member that is woken by `event_count`, which reads no view yet.
    pub(crate) fn new(event_count: Arc<SharedRegion>) -> Arc<Readings> {
        Arc::new(Readings { event_count, owner: Owner::new(), views: Mutex::default() })
    }

    /// Begins to read rows of `view`, which is not older than others that were begun. A member
    /// begins with the next view before it ends with this one. So it never reports that it has
    /// finished with a view whose rows it will read.
    pub(crate) fn begin(self: &Arc<Self>, view: ViewId) -> RowReading {
        let mut views = self.views();
        let free = || {
            let is_free = |at: &u64| views.values().all(|read| read.at != Some(*at));
            (0..READS_MAX).map(|word| READS + 8 * word).find(is_free)
        };
        let at = if views.contains_key(&view) { None } else { free() };
        let read = views.entry(view).or_insert(Read { count: 0, at });
        read.count += 1;
        self.tell(&mut views);
        drop(views);
        RowReading { view, of: Arc::clone(self) }
    }

    /// Announces that this member looks for rows of `view` once more, after this, and never again.
    pub(crate) fn look_last(&self, view: ViewId) {
        self.event_count.word(BEGUN).store(view.0, Ordering::Release);
        // Between this store and the loads of the last look, as in `has_looked`: one of the two
        // sides sees the other's store.
        fence(Ordering::SeqCst);
    }

    fn views(&self) -> MutexGuard<'_, BTreeMap<ViewId, Read>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, views: &mut BTreeMap<ViewId, Read>) {
        let is_read = views.values().any(|read| read.count > 0);
        let newest = views.keys().next_back().copied().filter(|_| is_read);
        // The newest may be begun again: its row was found, and its table is made later.
        views.retain(|view, read| read.count > 0 || Some(*view) == newest);
        for at in (0..READS_MAX).map(|word| READS + 8 * word) {
            let named = views.iter().find(|(_, read)| read.at == Some(at)).map_or(0, |(view, _)| view.0);
            // Release: all loads from rows of a view come before its word is reused; the lock
            // orders those of other threads.
            self.event_count.word(at).store(named, Ordering::Release);
        }
        let other = views.iter().find(|(_, read)| read.at.is_none()).map_or(0, |(view, _)| view.0);
        self.event_count.word(OTHERS).store(other, Ordering::Release);
        // Release: a peer that finds the view here finds its word.
        self.event_count.word(NEWEST).store(newest.map_or(u64::MAX, |view| view.0), Ordering::Release);
    }
}

impl Drop for RowReading {
    fn drop(&mut self) {
        // A child that was forked reads nothing; its parent does.
        if self.of.owner.is_copy() {
            return;
        }
        let mut views = self.of.views();
        if let Some(read) = views.get_mut(&self.view) {
            read.count -= 1;
            if read.count == 0 {
                self.of.tell(&mut views);
            }
        }
    }
}

/// Returns true if the member of this doorbell reads no row of `view`, and will not: it has begun
/// to read that view, or a newer one, and no longer names it.
pub(crate) fn is_through(event_count: &SharedRegion, view: ViewId) -> bool {
    // Acquire, here and below: pairs with the releases in `tell`. The newest view is loaded first;
    // with it the words of all views that were begun by then are visible. Later writes to the row's
    // place come after all loads from it.
    if event_count.word(NEWEST).load(Ordering::Acquire) < view.0 {
        return false;
    }
    let is_named = (0..READS_MAX).any(|word| event_count.word(READS + 8 * word).load(Ordering::Acquire) == view.0);
    let other = event_count.word(OTHERS).load(Ordering::Acquire);
    !is_named && (other == 0 || other > view.0)
}

/// Returns true if the member of this doorbell may not find a row of `view` that was shown just
/// now, because it no longer looks for it.
pub(crate) fn has_looked(event_count: &SharedRegion, view: ViewId) -> bool {
    // Between the store that shows the row and this load.
    fence(Ordering::SeqCst);
    event_count.word(BEGUN).load(Ordering::Acquire) >= view.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_count::EVENT_COUNT_BYTES;

    fn readings() -> (Arc<SharedRegion>, Arc<Readings>) {
        let event_count = Arc::new(SharedRegion::create("test", EVENT_COUNT_BYTES).unwrap().0);
        let readings = Readings::new(Arc::clone(&event_count));
        (event_count, readings)
    }

    #[test]
    fn a_member_is_through_with_a_view_when_it_reads_others_only() {
        let (event_count, readings) = readings();
        let through = || [1, 2, 3, 4].map(|view| is_through(&event_count, ViewId(view)));
        assert_eq!(through(), [false; 4], "it has read nothing yet, and may");
        let first = readings.begin(ViewId(1));
        assert_eq!(through(), [false; 4]);
        let (second, again) = (readings.begin(ViewId(2)), readings.begin(ViewId(1)));
        drop(first);
        assert_eq!(through(), [false; 4], "another thread reads there");
        let third = readings.begin(ViewId(3));
        drop(second);
        assert_eq!(through(), [false, true, false, false], "something goes on in an older one");
        drop(again);
        assert_eq!(through(), [true, true, false, false]);
        drop(third);
        assert_eq!(through(), [true; 4]);
    }

    /// A row that was found is dropped, and the table of its view is made later.
    #[test]
    fn the_newest_view_may_be_begun_again() {
        let (event_count, readings) = readings();
        let _first = readings.begin(ViewId(1));
        drop(readings.begin(ViewId(2)));
        assert!(!is_through(&event_count, ViewId(2)));
        let _third = readings.begin(ViewId(3));
        assert!(is_through(&event_count, ViewId(2)));
    }

    #[test]
    fn more_views_than_there_are_words_for_count_as_read_with_all_that_follow() {
        let (event_count, readings) = readings();
        let mut all: Vec<RowReading> = (1..=READS_MAX + 3).map(|view| readings.begin(ViewId(view))).collect();
        let through = |view| is_through(&event_count, ViewId(view));
        assert!((1..=READS_MAX + 3).all(|view| !through(view)));
        // A view without a word.
        drop(all.remove(READS_MAX as usize));
        assert!(through(READS_MAX + 1) && !through(READS_MAX + 2));
        drop(all.remove(READS_MAX as usize));
        assert!(through(READS_MAX + 2) && !through(READS_MAX + 3));
        drop(all.remove(0));
        assert!(through(1) && !through(2));
        // Its word is free.
        all.push(readings.begin(ViewId(20)));
        assert!(!through(20) && !through(READS_MAX + 3), "the newest, and the other");
    }
}
