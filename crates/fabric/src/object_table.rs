//! The object table: objects that have come to this process and are named by messages of a view,
//! until the messages are delivered.
//!
//! A frame of [`Kind::Object`](spindle_core::wire::ring::Kind) holds an [`ObjectName`]. A thread that
//! reads the frame finds the object in the table of the view's [`Reader`](crate::Reader). Apart
//! from that, it reads the object like a message in its frame. Objects are lent as frames are
//! (INV-FRAME): one is forgotten only when this member has delivered its message.
use crate::bulk::Object;
use crate::publisher::Frame;
use spindle_core::Claims;
use spindle_core::control::{self, ObjectName};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Returns the location of a frame that is to hold a name: the claims on its ring, and its position
/// there.
pub fn name_place<'f>(frame: &'f Frame<'_>) -> (&'f Arc<Claims>, u64) {
    (frame.claims(), frame.position())
}

/// Publishes a frame of exactly [`BYTES`](ObjectName::BYTES) bytes as this name.
///
/// The frame is announced when the [gate](Claims::set_gate) is behind it, so the caller has to set
/// the gate before the frame's place first. Applications have no use for this, so it is not a
/// method of `Frame`.
///
/// # Panics
/// If the frame has another length.
pub fn commit_name(name: ObjectName, mut frame: Frame<'_>) {
    frame.copy_from_slice(&name.encode());
    frame.commit_object();
}

/// The objects of a view, for all threads. The key of a ring is its address.
#[derive(Debug, Default)]
pub(crate) struct FrameObjects {
    objects: Mutex<ObjectsByRing>,
    /// The number of objects.
    count: AtomicUsize,
}

type ObjectsByRing = control::ObjectTable<usize, Object>;

impl FrameObjects {
    fn lock(&self) -> MutexGuard<'_, ObjectsByRing> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contents, and updates the count.
    fn change<T>(&self, change: impl FnOnce(&mut ObjectsByRing) -> T) -> T {
        let mut objects = self.lock();
        let changed = change(&mut objects);
        self.count.store(objects.len(), Ordering::Relaxed);
        changed
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint. A thread that puts an object there rings the thread that looks.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// As [`control::ObjectTable::put`].
    pub(crate) fn put(&self, ring: usize, number: u64, object: Object) {
        self.change(|objects| objects.put(ring, number, object));
    }

    /// Returns the number of objects of a ring.
    pub(crate) fn count_of(&self, ring: usize) -> usize {
        self.lock().of(ring).count()
    }

    /// Returns one object of a ring.
    pub(crate) fn clone_of(&self, ring: usize, number: u64) -> Option<Object> {
        self.lock().get(ring, number).cloned()
    }

    /// Returns all objects of a ring, with their numbers.
    pub(crate) fn clones_of(&self, ring: usize) -> Vec<(u64, Object)> {
        self.lock().of(ring).map(|(number, object)| (number, object.clone())).collect()
    }

    /// As [`control::ObjectTable::take`]. The objects are no longer lent. The caller drops them, outside
    /// the lock, because that may take system calls.
    pub(crate) fn forget(&self, ring: usize, rounds: Option<u64>) -> Vec<(u64, Object)> {
        self.change(|objects| objects.take(ring, rounds))
    }

    /// Forgets one object. It is no longer lent.
    pub(crate) fn remove(&self, ring: usize, number: u64) -> Option<Object> {
        self.change(|objects| objects.remove(ring, number))
    }

    /// Returns the address of the object of this name, which the frame of `round` names.
    pub(crate) fn find(&self, ring: usize, name: ObjectName, round: u64) -> Option<*const [u8]> {
        self.lock().find(ring, name, round).map(|object| std::ptr::from_ref(&**object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64, bytes: u64) -> ObjectName {
        ObjectName { number, bytes, own: 7 }
    }

    #[test]
    fn an_object_stays_until_the_last_message_that_names_it_is_delivered() {
        let object_table = FrameObjects::default();
        object_table.put(64, 0, vec![1, 2, 3].into());
        object_table.put(64, 1, vec![4].into());
        object_table.put(128, 0, vec![5].into());
        assert_eq!(object_table.find(64, name(2, 3), 0), None, "no such number");
        assert_eq!(object_table.find(64, name(0, 4), 0), None, "another length");
        assert!(
            object_table.forget(64, Some(u64::MAX)).is_empty() && !object_table.is_empty(),
            "nobody has read of it"
        );
        object_table.find(64, name(0, 3), 9).unwrap();
        object_table.find(64, name(0, 3), 2).unwrap();
        object_table.forget(64, Some(9));
        assert!(object_table.find(64, name(0, 3), 9).is_some());
        assert_eq!(object_table.clone_of(64, 0).as_deref(), Some(&[1, 2, 3][..]));
        let numbers = |objects: Vec<(u64, Object)>| objects.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(
            (numbers(object_table.clones_of(64)), numbers(object_table.forget(64, Some(10)))),
            (vec![0, 1], vec![0])
        );
        assert_eq!((object_table.find(64, name(0, 3), 9), object_table.clone_of(64, 0).is_none()), (None, true));
        assert!(object_table.find(64, name(1, 1), 10).is_some() && object_table.find(128, name(0, 1), 0).is_some());
        assert_eq!((object_table.count_of(64), object_table.count_of(128)), (1, 1));
        object_table.put(64, 2, vec![6].into());
        object_table.forget(64, None);
        assert_eq!((object_table.count_of(64), object_table.count_of(128)), (0, 1));
    }
}
