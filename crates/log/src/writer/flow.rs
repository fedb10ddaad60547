//! The state that a producer and the thread share about one subgroup.
use crate::chunk::Chunk;
use crate::error::Error;
use crate::store::Batch;
use crate::version::Version;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The state that a producer and the thread share about one subgroup.
#[derive(Default)]
pub(super) struct Flow {
    /// The bytes of records that were handed over and are not durable.
    pub(super) queued: AtomicU64,
    /// The memory of the chunks that were handed over and have not come back, in bytes.
    pub(super) reserved: AtomicU64,
    /// The records that became durable.
    pub(super) records: AtomicU64,
    pub(super) is_full: AtomicBool,
    pub(super) full: Mutex<Option<Error>>,
    pub(super) failure: OnceLock<Error>,
    pub(super) durable: Mutex<Option<Version>>,
}

impl Flow {
    pub(super) fn new(durable: Option<Version>) -> Self {
        Self { durable: Mutex::new(durable), ..Self::default() }
    }

    pub(super) fn complete(
        &self,
        durable: Option<Version>,
        batch: Batch,
        returned: &SyncSender<Chunk>,
        chunk_bytes: usize,
    ) {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) = durable;
        self.set_full(None);
        for mut chunk in batch.chunks {
            self.records.fetch_add(u64::from(chunk.records()), Ordering::Release);
            self.queued.fetch_sub(chunk.bytes(), Ordering::Release);
            self.reserved.fetch_sub(chunk.reserved_bytes(), Ordering::Release);
            chunk.clear();
            // If the producer has enough of them, or a record has made it large, the chunk is freed.
            if chunk.reserved_bytes() <= 2 * chunk_bytes as u64 {
                let _ = returned.try_send(chunk);
            }
        }
    }

    pub(super) fn set_full(&self, error: Option<Error>) {
        let is_full = error.is_some();
        if self.is_full.load(Ordering::Relaxed) != is_full {
            *self.full.lock().unwrap_or_else(PoisonError::into_inner) = error;
            self.is_full.store(is_full, Ordering::Release);
        }
    }
}
