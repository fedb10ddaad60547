//! The part of a log that readers share with the writer. It changes once a commit, after the sync.
use crate::disk::File;
use crate::error::{Error, Result, in_range};
use crate::limits::HOLDS_MAX;
use crate::version::Version;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A segment with at least one record.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: String,
    /// The length of the file.
    pub(crate) length: u64,
    pub(crate) first: Version,
    pub(crate) first_clock: u64,
    body: RwLock<Body>,
}

/// The durable content of a segment.
#[derive(Clone, Default)]
pub(crate) struct Body {
    /// The offset behind the last durable record.
    pub(crate) end: u64,
    pub(crate) last: Version,
    pub(crate) last_clock: u64,
    /// Some of the records, in order. The first record of the segment is one of them.
    pub(crate) index: Vec<Entry>,
}

/// A record that the index knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) version: Version,
    pub(crate) clock: u64,
    pub(crate) offset: u64,
    pub(crate) generation: u64,
}

impl Segment {
    pub(crate) fn new(number: u64, file: Arc<dyn File>, path: String, length: u64, first: Entry, body: Body) -> Self {
        let body = RwLock::new(body);
        Self { number, file, path, length, first: first.version, first_clock: first.clock, body }
    }

    pub(crate) fn body(&self) -> RwLockReadGuard<'_, Body> {
        self.body.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn body_mut(&self) -> RwLockWriteGuard<'_, Body> {
        self.body.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The durable content of a log.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) segments: VecDeque<Arc<Segment>>,
    pub(crate) durable: Option<Version>,
    pub(crate) floor: Option<Version>,
}

impl View {
    pub(crate) fn oldest(&self) -> Option<Version> {
        self.segments.front().map(|segment| segment.first)
    }
}

/// The state that readers and the writer share.
#[derive(Default)]
pub(crate) struct Shared {
    view: RwLock<View>,
    /// Grows with each cut of a suffix.
    cuts: AtomicU64,
    holds: Mutex<Holds>,
}

#[derive(Default)]
pub(crate) struct Holds {
    next: u64,
    pub(crate) versions: BTreeMap<u64, Version>,
    /// The last version that was pruned or is being pruned.
    pub(crate) pruned: Option<Version>,
}

impl Shared {
    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }

    pub(crate) fn note_cut(&self) {
        self.cuts.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps records from a version on from being pruned, for a cursor or a learner.
pub struct Hold {
    shared: Arc<Shared>,
    key: u64,
}

impl Hold {
    pub(crate) fn new(shared: &Arc<Shared>, from: Version) -> Result<Self> {
        let mut holds = shared.holds();
        in_range("the number of holds", holds.versions.len() as u64, 0, HOLDS_MAX as u64 - 1)?;
        if let Some(pruned) = holds.pruned.filter(|pruned| from <= *pruned) {
            return Err(Error::Pruned { oldest: pruned.next() });
        }
        let key = holds.next;
        holds.next += 1;
        holds.versions.insert(key, from);
        drop(holds);
        Ok(Self { shared: shared.clone(), key })
    }

    /// Lets everything below `from` be pruned. The version only grows.
    pub fn advance(&self, from: Version) {
        if let Some(version) = self.shared.holds().versions.get_mut(&self.key) {
            *version = from.max(*version);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.holds().versions.remove(&self.key);
    }
}
