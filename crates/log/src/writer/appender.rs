//! The producer's side.
use super::Command;
use super::flow::Flow;
use crate::chunk::{Chunk, bytes_of, follows};
use crate::error::{Error, Result};
use crate::log::Readers;
use crate::version::{Record, Version};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, PoisonError};

/// Appends records of one subgroup. It never waits for the disk.
pub struct Appender {
    pub(super) subgroup: u32,
    pub(super) last: Option<(Version, u64)>,
    pub(super) filling: Chunk,
    pub(super) chunk_bytes: usize,
    pub(super) queue_max: u64,
    pub(super) commands: SyncSender<Command>,
    pub(super) empty: Receiver<Chunk>,
    pub(super) flow: Arc<Flow>,
    pub(super) readers: Readers,
}

impl Appender {
    /// Appends a record, which is handed over by [`flush`](Self::flush) or when the chunk is full.
    ///
    /// # Errors
    /// Nothing was taken if it fails: [`Error::QueueFull`], [`Error::Full`] while the disk has no
    /// space, [`Error::Order`], [`Error::Range`], and for good [`Error::Poisoned`], [`Error::Io`],
    /// [`Error::Stopped`].
    pub fn try_append(&mut self, record: Record<'_>) -> Result<()> {
        self.try_append_parts(record.version, record.clock, &[record.payload])
    }

    /// As [`try_append`](Self::try_append), for a payload that consists of several parts.
    ///
    /// # Errors
    /// As [`try_append`](Self::try_append).
    pub fn try_append_parts(&mut self, version: Version, clock: u64, parts: &[&[u8]]) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        if self.flow.is_full.load(Ordering::Acquire)
            && let Some(error) = self.flow.full.lock().unwrap_or_else(PoisonError::into_inner).clone()
        {
            return Err(error);
        }
        let queued = self.queued_bytes();
        // A record larger than the queue passes when it is empty.
        if queued > 0 && queued + Chunk::encoded_bytes(bytes_of(parts)) > self.queue_max {
            self.flush()?;
            return Err(Error::QueueFull { queued, max: self.queue_max });
        }
        self.append_parts(version, clock, parts)
    }

    /// As [`try_append_parts`](Self::try_append_parts), also beyond the limit of the queue and
    /// while the disk has no space: for a caller that can't wait, and that has a bound of its own.
    ///
    /// # Errors
    /// [`Error::Order`], [`Error::Range`], and for good [`Error::Poisoned`], [`Error::Io`],
    /// [`Error::Stopped`].
    pub fn append_parts(&mut self, version: Version, clock: u64, parts: &[&[u8]]) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        follows(self.last, (version, clock))?;
        let bytes = Chunk::encoded_bytes(bytes_of(parts));
        if !self.filling.is_empty() && self.filling.bytes() + bytes > self.chunk_bytes as u64 {
            self.flush()?;
        }
        self.filling.push_parts(version, clock, parts)?;
        self.last = Some((version, clock));
        Ok(())
    }

    /// The error for which nothing more becomes durable.
    pub fn failure(&self) -> Option<&Error> {
        self.flow.failure.get()
    }

    /// Whether the disk has had no space for what waits.
    pub fn is_full(&self) -> bool {
        self.flow.is_full.load(Ordering::Acquire)
    }

    /// Hands over what was appended. Returns `false` if the writer has too much to do, or if chunks
    /// with the memory of a [queue](crate::Config::queue_bytes) wait for the disk, however little
    /// they contain; then a later call does.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn flush(&mut self) -> Result<bool> {
        if self.filling.is_empty() {
            return Ok(true);
        }
        let (reserved, bytes) = (self.flow.reserved.load(Ordering::Acquire), self.filling.reserved_bytes());
        if reserved > 0 && reserved + bytes > self.queue_max {
            return Ok(false);
        }
        let empty = self.empty.try_recv().unwrap_or_else(|_| Chunk::with_capacity(self.chunk_bytes));
        let full = std::mem::replace(&mut self.filling, empty);
        let queued = full.bytes();
        self.flow.reserved.fetch_add(bytes, Ordering::Relaxed);
        self.flow.queued.fetch_add(queued, Ordering::Relaxed);
        let sent = self.commands.try_send(Command::Append(self.subgroup, full));
        if sent.is_err() {
            self.flow.reserved.fetch_sub(bytes, Ordering::Relaxed);
            self.flow.queued.fetch_sub(queued, Ordering::Relaxed);
        }
        match sent {
            Ok(()) => Ok(true),
            Err(TrySendError::Full(Command::Append(_, full))) => {
                self.filling = full;
                Ok(false)
            }
            Err(_) => Err(Error::Stopped),
        }
    }

    /// Lets the writer make the first segment before a record comes. Without it, the commit of the
    /// first record makes the segment, and the records of other subgroups wait for that.
    pub fn expect_records(&self) {
        // If the thread has too much to do, the commit makes the segment.
        let _ = self.commands.try_send(Command::Expect(self.subgroup));
    }

    /// The memory of the chunks that wait for the disk and of the one that is being filled, in
    /// bytes.
    pub fn reserved_bytes(&self) -> u64 {
        self.flow.reserved.load(Ordering::Acquire) + self.filling.reserved_bytes()
    }

    /// The bytes that were appended and are not durable.
    pub fn queued_bytes(&self) -> u64 {
        self.flow.queued.load(Ordering::Acquire) + self.filling.bytes()
    }

    /// The records of this appender that are durable.
    pub fn durable_records(&self) -> u64 {
        self.flow.records.load(Ordering::Acquire)
    }

    /// The durable frontier.
    pub fn durable(&self) -> Option<Version> {
        *self.flow.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle from which any thread makes readers.
    pub fn readers(&self) -> Readers {
        self.readers.clone()
    }
}
