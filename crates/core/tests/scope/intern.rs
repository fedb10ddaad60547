//! Numbers for values: equal values have the same number, so that states are lists of small
//! numbers.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

/// The number of a value.
pub(crate) type Id = u32;

/// All values of one kind that have occurred.
pub(crate) struct Interner<T> {
    ids: HashMap<Rc<T>, Id>,
    all: Vec<Rc<T>>,
}

impl<T: Hash + Eq> Interner<T> {
    pub(crate) fn new() -> Self {
        Interner { ids: HashMap::new(), all: Vec::new() }
    }

    pub(crate) fn id(&mut self, value: T) -> Id {
        if let Some(id) = self.ids.get(&value) {
            return *id;
        }
        let (id, value) = (self.all.len() as Id, Rc::new(value));
        self.ids.insert(Rc::clone(&value), id);
        self.all.push(value);
        id
    }

    pub(crate) fn get(&self, id: Id) -> &Rc<T> {
        &self.all[id as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// A hasher for keys that are a few numbers.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Results that were computed before.
pub(crate) type Memo<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;
