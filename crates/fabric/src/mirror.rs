//! The memory of one process for copies of rows, view after view.
//!
//! A member has a copy of the row of each peer on another host, and so has an observer. A copy is a range of a [`CopyChunk`]. When the last reader in this process has
//! dropped it, which may be an application that reads messages of an old view, its place is free, and is cleared for another row.
use crate::places::{Places, is_gone};
use crate::region::{CopyChunk, CopyRegion, RegionError, page_bytes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memory for copies. Clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct Mirror(Arc<Mutex<Copies>>);

type Copies = Places<Arc<CopyChunk>, Weak<CopyRegion>>;

impl Mirror {
    /// One without memory.
    pub fn new() -> Mirror {
        Mirror::default()
    }

    /// Bytes of all chunks. Less of that is memory.
    pub fn size(&self) -> u64 {
        self.lock().bytes()
    }

    /// A copy of `len` bytes, all zero.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::TooLong`], [`RegionError::Os`].
    pub(crate) fn copy(&self, name: &str, len: u64) -> Result<Arc<CopyRegion>, RegionError> {
        let mut copies = self.lock();
        copies.retain(|copy| !is_gone(copy));
        let pages = |bytes: u64| bytes.max(1).checked_next_multiple_of(page_bytes()).unwrap_or(u64::MAX);
        let bytes = pages(len);
        if copies.find(bytes).is_none() {
            // All that is empty is too small for this row, and may be for others.
            copies.drop_empty(1);
            let wished = pages(Copies::chunk_bytes(bytes));
            let chunk = CopyChunk::create(name, wished).or_else(|_| CopyChunk::create(name, bytes))?;
            let size = chunk.size();
            copies.add(Arc::new(chunk), size);
        }
        let gap = copies.find(bytes).expect("a chunk has room");
        // SAFETY: the range is that of no place, and a place is forgotten when its copy is gone. Readers and writers of a copy hold it.
        let copy = unsafe { copies.chunk_mut(gap).region(name, gap.at, len) };
        let copy = Arc::new(copy?);
        copies.take(gap, bytes, Arc::downgrade(&copy));
        Ok(copy)
    }

    /// Gives memory back that is more than the next view needs. To be called when all copies of a view are made.
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
