//! The object table of a process: objects that messages of a view name, until these messages are
//! delivered.
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Deref;

/// The payload of a frame that is sent in place of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectName {
    /// The object's number among those that its sender has sent in this view and subgroup.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The sender's own name for the object, which outlives views. It has no meaning to other
    /// processes.
    pub own: u64,
}

impl ObjectName {
    /// The number of bytes that it takes in a frame's payload.
    pub const BYTES: u64 = 24;

    /// Returns the bytes in a frame.
    pub fn encode(self) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.number, self.bytes, self.own]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the name in a frame's payload; `None` if the payload is no name.
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

/// The objects of a view, by the ring that names them and their number there. `R` distinguishes
/// rings, and `O` is an object.
#[derive(Debug)]
pub struct ObjectTable<R, O> {
    objects: BTreeMap<(R, u64), Placed<O>>,
}

#[derive(Debug)]
struct Placed<O> {
    object: O,
    /// The last round in which a message named the object, if one was read.
    round: Cell<Option<u64>>,
}

impl<R, O> Default for ObjectTable<R, O> {
    fn default() -> ObjectTable<R, O> {
        ObjectTable { objects: BTreeMap::new() }
    }
}

impl<R: Copy + Ord, O: Deref<Target = [u8]>> ObjectTable<R, O> {
    /// Returns the number of objects of all rings.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if the table has no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Adds an object, unless the table has one with this number.
    pub fn put(&mut self, ring: R, number: u64, object: O) {
        self.objects.entry((ring, number)).or_insert(Placed { object, round: Cell::new(None) });
    }

    /// Returns the objects of a ring, with their numbers.
    pub fn of(&self, ring: R) -> impl Iterator<Item = (u64, &O)> {
        let of_ring = self.objects.range((ring, 0)..=(ring, u64::MAX));
        of_ring.map(|((_, number), placed)| (*number, &placed.object))
    }

    /// Returns one object of a ring.
    pub fn get(&self, ring: R, number: u64) -> Option<&O> {
        self.objects.get(&(ring, number)).map(|placed| &placed.object)
    }

    /// Returns the object of this name, which the frame of `round` holds.
    pub fn find(&self, ring: R, name: ObjectName, round: u64) -> Option<&O> {
        let placed =
            self.objects.get(&(ring, name.number)).filter(|placed| placed.object.len() as u64 == name.bytes)?;
        // The latest round counts, whatever a faulty sender writes. An object is lent for a round
        // that is not delivered, so it stays at least until then.
        placed.round.set(placed.round.get().max(Some(round)));
        Some(&placed.object)
    }

    /// Takes the objects of a ring whose messages had rounds below `rounds`, with their numbers;
    /// all of them if `rounds` is `None`.
    pub fn take(&mut self, ring: R, rounds: Option<u64>) -> Vec<(u64, O)> {
        let is_done =
            |placed: &Placed<O>| rounds.is_none_or(|rounds| placed.round.get().is_some_and(|round| round < rounds));
        let done = self.objects.extract_if((ring, 0)..=(ring, u64::MAX), |_, placed| is_done(placed));
        done.map(|((_, number), placed)| (number, placed.object)).collect()
    }

    /// Takes one object.
    pub fn remove(&mut self, ring: R, number: u64) -> Option<O> {
        self.objects.remove(&(ring, number)).map(|placed| placed.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    #[test]
    fn names_survive_encoding_and_other_lengths_are_none() {
        let name = ObjectName { number: 3, bytes: 1 << 40, own: u64::MAX };
        assert_eq!(ObjectName::decode(&name.encode()), Some(name));
        assert_eq!(ObjectName::decode(&name.encode()[1..]), None);
        assert_eq!(ObjectName::decode(&[0; 32]), None);
    }

    #[test]
    fn an_object_stays_until_its_message_is_delivered() {
        let object: Box<[u8]> = [7; 30].into();
        let mut object_table = ObjectTable::default();
        object_table.put((1, 64), 0, object.clone());
        object_table.put((1, 64), 1, [8; 30].into());
        object_table.put((2, 64), 0, [9; 30].into());
        assert!(object_table.take((1, 64), Some(10)).is_empty(), "no message has named one");
        let name = ObjectName { number: 0, bytes: 30, own: 0 };
        assert_eq!(object_table.find((1, 64), name, 5), Some(&object));
        assert!(object_table.take((1, 64), Some(5)).is_empty());
        assert_eq!(object_table.take((1, 64), Some(6)), [(0, object)]);
        assert_eq!((object_table.of((1, 64)).count(), object_table.of((2, 64)).count(), object_table.len()), (1, 1, 2));
    }
}
