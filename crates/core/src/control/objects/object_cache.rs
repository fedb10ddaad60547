//! A member's cache of delivered objects for observers. A ring likewise keeps delivered messages in
//! its other half
//! ([ADR 0025](../../../../../docs/adr/0025-members-keep-large-messages-for-those-who-follow.md)).
//!
//! No process waits for the cache. It holds the object itself. Meanwhile the object's sender can't
//! use that memory again, and takes new memory instead (INV-LENT). Nothing is cached unless the
//! group has an observer. Objects that are given up are returned to the driver, which drops them.
use crate::control::Wanted;
use crate::ids::{Time, ViewId};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

/// The maximum number of objects in the cache.
const KEPT_MAX: usize = 128;
/// The maximum number of their bytes; the newest is kept however long it is.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// The longest time for which a member that has finished waits for observers that may want its
/// objects. It waits until they go.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The objects that one member keeps, of the current view and of earlier ones. `O` is the driver's
/// handle of an object.
#[derive(Debug)]
pub struct ObjectCache<O> {
    /// True if the group has an observer.
    is_on: bool,
    /// The objects, with their lengths in bytes.
    objects: BTreeMap<(ViewId, Wanted), (O, u64)>,
    /// The keys, oldest first.
    order: VecDeque<(ViewId, Wanted)>,
    bytes: u64,
}

impl<O> Default for ObjectCache<O> {
    fn default() -> ObjectCache<O> {
        let (objects, order) = Default::default();
        ObjectCache { is_on: false, objects, order, bytes: 0 }
    }
}

impl<O> ObjectCache<O> {
    /// Notes whether the group has an observer. If not, nothing is kept, and the cached objects are
    /// returned.
    pub fn set_on(&mut self, is_on: bool) -> Vec<O> {
        self.is_on = is_on;
        if is_on {
            return Vec::new();
        }
        self.order.clear();
        self.bytes = 0;
        core::mem::take(&mut self.objects).into_values().map(|(object, _)| object).collect()
    }

    /// True if the group has an observer.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Keeps an object of `view` that this member would otherwise forget. Returns the objects that
    /// are given up for that. If the group has no observer, that is the object itself.
    pub fn keep(&mut self, view: ViewId, wanted: Wanted, object: O, bytes: u64) -> Vec<O> {
        if !self.is_on {
            return Vec::from([object]);
        }
        let mut given_up = Vec::new();
        let key = (view, wanted);
        self.bytes += bytes;
        match self.objects.insert(key, (object, bytes)) {
            None => self.order.push_back(key),
            Some((same, bytes)) => {
                self.bytes -= bytes;
                given_up.push(same);
            }
        }
        while self.order.len() > 1 && (self.order.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX) {
            let oldest = self.order.pop_front().and_then(|oldest| self.objects.remove(&oldest));
            self.bytes -= oldest.as_ref().map_or(0, |(_, bytes)| *bytes);
            given_up.extend(oldest.map(|(oldest, _)| oldest));
        }
        given_up
    }

    /// Returns the object, if it is kept.
    pub fn find(&self, view: ViewId, wanted: &Wanted) -> Option<&O> {
        self.objects.get(&(view, *wanted)).map(|(object, _)| object)
    }

    /// True if a member that has finished at `since` stays, because an observer may want objects
    /// from this cache.
    pub fn delays_the_end(&self, since: Time, now: Time) -> bool {
        !self.order.is_empty() && now.since(since) < KEPT_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Rank, SubgroupId};
    use alloc::vec;

    fn wanted(number: u64) -> Wanted {
        Wanted { subgroup: SubgroupId(0), sender: Rank(1), number }
    }

    fn cache() -> ObjectCache<u64> {
        let mut cache = ObjectCache::default();
        cache.set_on(true);
        cache
    }

    fn put(cache: &mut ObjectCache<u64>, number: u64, bytes: u64) -> Vec<u64> {
        cache.keep(ViewId(1), wanted(number), number, bytes)
    }

    fn numbers(cache: &ObjectCache<u64>) -> Vec<u64> {
        assert!(cache.objects.keys().eq(cache.order.iter()), "one after the other, as their numbers are");
        assert_eq!(cache.bytes, cache.objects.values().map(|(_, bytes)| bytes).sum::<u64>());
        cache.order.iter().map(|(_, wanted)| wanted.number).collect()
    }

    #[test]
    fn the_oldest_are_given_up_first_for_their_number_and_for_their_bytes() {
        let mut cache = cache();
        let count = KEPT_MAX as u64;
        assert!((0..count).all(|number| put(&mut cache, number, 10).is_empty()));
        assert_eq!((put(&mut cache, count, 10), numbers(&cache)), (vec![0], (1..=count).collect()));
        assert_eq!((put(&mut cache, count, 10), cache.order.len()), (vec![count], KEPT_MAX), "the same again");
        assert_eq!(put(&mut cache, count + 1, KEPT_BYTES_MAX - 15).len(), KEPT_MAX - 1);
        assert_eq!(numbers(&cache), [count, count + 1]);
        assert_eq!(put(&mut cache, count + 2, KEPT_BYTES_MAX + 1), [count, count + 1]);
        assert_eq!(numbers(&cache), [count + 2], "the newest is kept however long it is");
    }

    #[test]
    fn objects_of_ended_views_are_kept_beside_those_of_the_same_names() {
        let mut cache = cache();
        assert!(put(&mut cache, 3, 1).is_empty());
        assert!(cache.keep(ViewId(2), wanted(3), 33, 1).is_empty());
        let find = |view| cache.find(ViewId(view), &wanted(3)).copied();
        assert_eq!([1, 2, 3].map(find), [Some(3), Some(33), None]);
        assert_eq!(cache.find(ViewId(1), &wanted(4)), None);
    }

    #[test]
    fn nothing_is_kept_unless_a_process_follows() {
        let mut cache = cache();
        put(&mut cache, 3, 1);
        put(&mut cache, 4, 1);
        assert!(cache.is_on() && cache.set_on(true).is_empty() && cache.find(ViewId(1), &wanted(3)).is_some());
        assert_eq!(cache.set_on(false), [3, 4]);
        assert!(!cache.is_on() && cache.find(ViewId(1), &wanted(3)).is_none() && cache.bytes == 0);
        assert_eq!((put(&mut cache, 5, 1), numbers(&cache)), (vec![5], vec![]));
    }

    #[test]
    fn a_member_that_has_finished_stays_a_while_for_what_it_keeps() {
        let (mut cache, since) = (cache(), Time(5));
        assert!(!cache.delays_the_end(since, since));
        put(&mut cache, 3, 1);
        assert!(cache.delays_the_end(since, since + (KEPT_FOR - Duration::from_nanos(1))));
        assert!(!cache.delays_the_end(since, since + KEPT_FOR));
        cache.set_on(false);
        assert!(!cache.delays_the_end(since, since), "the last process that followed has gone");
    }
}
