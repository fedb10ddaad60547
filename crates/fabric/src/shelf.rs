//! Objects that have come to this process and are named by messages of a view, until those are delivered.
//!
//! A frame of [`Kind::Object`](spindle_core::ring::Kind) holds an [`ObjectName`]. Who reads it finds the object on the shelf of the view's
//! [`Reader`](crate::Reader), so nothing but that tells it from a message that stands in its frame. Objects are lent as frames are (INV-FRAME):
//! one is forgotten only when this member has delivered its message.
use crate::bulk::Object;
use crate::publisher::Frame;
use spindle_core::Claims;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What stands in a frame in place of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectName {
    /// Its number among those that its sender has sent in this view and subgroup.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The sender's own name for it, which outlives views. Means nothing to others.
    pub own: u64,
}

impl ObjectName {
    /// Bytes of a frame's payload that it takes.
    pub const BYTES: u64 = 24;

    /// As it stands in a frame.
    pub fn encode(self) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.number, self.bytes, self.own]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Where a frame stands that is to hold a name: the claims on its ring, and its position there.
    pub fn place<'f>(frame: &'f Frame<'_>) -> (&'f Arc<Claims>, u64) {
        (frame.claims(), frame.position())
    }

    /// Publishes a frame of exactly [so many](Self::BYTES) bytes as this name. It is announced when the [gate](Claims::set_gate) is behind it, so
    /// that has to be put before its place first. Not a matter for applications, so not a method of theirs.
    ///
    /// # Panics
    /// If the frame has another length.
    pub fn commit(self, mut frame: Frame<'_>) {
        frame.copy_from_slice(&self.encode());
        frame.commit_object();
    }

    /// What a frame says; `None` if it says nothing of the kind.
    pub fn decode(payload: &[u8]) -> Option<ObjectName> {
        let (words, rest) = payload.as_chunks::<8>();
        match (words, rest) {
            ([number, bytes, own], []) => {
                let [number, bytes, own] = [number, bytes, own].map(|word| u64::from_le_bytes(*word));
                Some(ObjectName { number, bytes, own })
            }
            _ => None,
        }
    }
}

/// The objects of a view, by the ring that names them and their number there. A ring is told by where it stands.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    objects: Mutex<BTreeMap<(usize, u64), Placed>>,
    /// How many there are.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Placed {
    object: Object,
    /// The last round in which a message has named it, if one was read.
    round: Option<u64>,
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(usize, u64), Placed>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint. Who has put something there rings whoever looks.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Puts an object there, unless there is one of this name.
    pub(crate) fn put(&self, ring: usize, number: u64, object: Object) {
        let mut objects = self.lock();
        objects.entry((ring, number)).or_insert(Placed { object, round: None });
        self.count.store(objects.len(), Ordering::Relaxed);
    }

    /// How many there are of a ring.
    pub(crate) fn count_of(&self, ring: usize) -> usize {
        self.lock().range((ring, 0)..=(ring, u64::MAX)).count()
    }

    /// One of them.
    pub(crate) fn clone_of(&self, ring: usize, number: u64) -> Option<Object> {
        self.lock().get(&(ring, number)).map(|placed| placed.object.clone())
    }

    /// All of a ring, with their numbers.
    pub(crate) fn clones_of(&self, ring: usize) -> Vec<(u64, Object)> {
        let objects = self.lock();
        let of_ring = objects.range((ring, 0)..=(ring, u64::MAX));
        of_ring.map(|((_, number), placed)| (*number, placed.object.clone())).collect()
    }

    /// Forgets those of a ring whose messages had rounds below `rounds`, or all if that is `None`. They are not lent any more. Answers with
    /// their numbers.
    pub(crate) fn forget(&self, ring: usize, rounds: Option<u64>) -> Vec<(u64, Object)> {
        let mut objects = self.lock();
        let of_ring = (ring, 0)..=(ring, u64::MAX);
        let is_done =
            |placed: &mut Placed| rounds.is_none_or(|rounds| placed.round.is_some_and(|round| round < rounds));
        // Dropped behind the lock: that may take system calls.
        let done = objects.extract_if(of_ring, |_, placed| is_done(placed));
        let done = done.map(|((_, number), placed)| (number, placed.object)).collect();
        self.count.store(objects.len(), Ordering::Relaxed);
        done
    }

    /// Forgets one. It is not lent any more.
    pub(crate) fn remove(&self, ring: usize, number: u64) -> Option<Object> {
        let mut objects = self.lock();
        let done = objects.remove(&(ring, number));
        self.count.store(objects.len(), Ordering::Relaxed);
        done.map(|placed| placed.object)
    }

    /// Where the object of this name stands, which the frame of `round` names.
    pub(crate) fn find(&self, ring: usize, name: ObjectName, round: u64) -> Option<*const [u8]> {
        let mut objects = self.lock();
        let placed = objects.get_mut(&(ring, name.number)).filter(|placed| placed.object.len() as u64 == name.bytes)?;
        // The latest of them, whatever a liar writes: an object is lent for a round that is not delivered, so it stays at least as long.
        placed.round = placed.round.max(Some(round));
        Some(std::ptr::from_ref(&*placed.object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64, bytes: u64) -> ObjectName {
        ObjectName { number, bytes, own: 7 }
    }

    #[test]
    fn names_survive_encoding_and_other_lengths_are_none() {
        let name = ObjectName { number: 3, bytes: 1 << 40, own: u64::MAX };
        assert_eq!(ObjectName::decode(&name.encode()), Some(name));
        assert_eq!(ObjectName::decode(&name.encode()[1..]), None);
        assert_eq!(ObjectName::decode(&[0; 32]), None);
    }

    #[test]
    fn an_object_stays_until_the_last_message_that_names_it_is_delivered() {
        let shelf = Shelf::default();
        shelf.put(64, 0, vec![1, 2, 3].into());
        shelf.put(64, 1, vec![4].into());
        shelf.put(128, 0, vec![5].into());
        assert_eq!(shelf.find(64, name(2, 3), 0), None, "no such number");
        assert_eq!(shelf.find(64, name(0, 4), 0), None, "another length");
        assert!(shelf.forget(64, Some(u64::MAX)).is_empty() && !shelf.is_empty(), "nobody has read of it");
        shelf.find(64, name(0, 3), 9).unwrap();
        shelf.find(64, name(0, 3), 2).unwrap();
        shelf.forget(64, Some(9));
        assert!(shelf.find(64, name(0, 3), 9).is_some());
        assert_eq!(shelf.clone_of(64, 0).as_deref(), Some(&[1, 2, 3][..]));
        let numbers = |objects: Vec<(u64, Object)>| objects.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!((numbers(shelf.clones_of(64)), numbers(shelf.forget(64, Some(10)))), (vec![0, 1], vec![0]));
        assert_eq!((shelf.find(64, name(0, 3), 9), shelf.clone_of(64, 0).is_none()), (None, true));
        assert!(shelf.find(64, name(1, 1), 10).is_some() && shelf.find(128, name(0, 1), 0).is_some());
        assert_eq!((shelf.count_of(64), shelf.count_of(128)), (1, 1));
        shelf.put(64, 2, vec![6].into());
        shelf.forget(64, None);
        assert_eq!((shelf.count_of(64), shelf.count_of(128)), (0, 1));
    }
}
