//! The memory of one process for copies of rows, for all views.
//!
//! A member has a copy of the row of each peer on another host, and so has an observer. A copy is a
//! range of a [`CopyChunk`]. The last reader of a copy in this process may be an application that
//! reads messages of an old view. When the last reader has dropped the copy, its place is free, and
//! is cleared for another row.
use crate::places::{Places, is_gone};
use crate::region::{CopyChunk, CopyRegion, RegionError, page_bytes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memory for copies. Clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct Mirror(Arc<Mutex<Copies>>);

type Copies = Places<Arc<CopyChunk>, Weak<CopyRegion>>;

impl Mirror {
    /// Creates a mirror without memory.
    pub fn new() -> Mirror {
        Mirror::default()
    }

    /// Returns the bytes of all chunks. Only a part of that is resident memory.
    pub fn size(&self) -> u64 {
        self.lock().bytes()
    }

    /// Returns a copy of `len` bytes, all zero.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::TooLong`], [`RegionError::Os`].
    pub fn copy(&self, name: &str, len: u64) -> Result<Arc<CopyRegion>, RegionError> {
        let mut copies = self.lock();
        copies.retain(|copy| !is_gone(copy));
        let pages = |bytes: u64| bytes.max(1).checked_next_multiple_of(page_bytes()).unwrap_or(u64::MAX);
        let bytes = pages(len);
        if copies.find(bytes).is_none() {
            // All empty chunks are too small for this row, and may fit others.
            copies.drop_empty(1);
            let pending = pages(Copies::chunk_bytes(bytes));
            let chunk = CopyChunk::create(name, pending).or_else(|_| CopyChunk::create(name, bytes))?;
            let size = chunk.size();
            copies.add(Arc::new(chunk), size);
        }
        let gap = copies.find(bytes).expect("a chunk has room");
        // SAFETY: no place contains the range, and a place is forgotten when its copy is gone.
        // Readers and writers of a copy hold it.
        let copy = unsafe { copies.chunk_mut(gap).region(name, gap.at, len) };
        let copy = Arc::new(copy?);
        copies.take(gap, bytes, Arc::downgrade(&copy));
        Ok(copy)
    }

    /// Releases the memory that the next view does not need. The caller calls it when all copies of
    /// a view are made.
    pub(crate) fn trim(&self) {
        let mut copies = self.lock();
        copies.retain(|copy| !is_gone(copy));
        copies.drop_empty(1);
    }

    fn lock(&self) -> MutexGuard<'_, Copies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
