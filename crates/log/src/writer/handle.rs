//! A handle to the thread that writes logs, for other threads.
use super::{Appender, Command, Flow, RETURNED_MAX};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::version::Version;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Runs functions on the thread that owns a store, from any thread that may wait for it.
#[derive(Clone)]
pub struct WriterHandle {
    pub(super) commands: SyncSender<Command>,
}

impl WriterHandle {
    /// As [`Writer::call`](super::Writer::call).
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn call<R: Send + 'static>(&self, function: impl FnOnce(&mut Store) -> R + Send + 'static) -> Result<R> {
        let (reply, result) = sync_channel(1);
        self.send(Command::Do(Box::new(move |store| {
            // The caller may have gone, and then the result is not wanted.
            let _ = reply.send(function(store));
        })))?;
        result.recv().map_err(|_| Error::Stopped)
    }

    /// Appends records to the log of a subgroup and waits until they are durable. Returns the
    /// durable frontier, and the records if nothing was written and they may be tried again. An
    /// [`Appender`] of the subgroup can't be used after that: a new one continues.
    ///
    /// # Errors
    /// As [`Log::write`](crate::Log::write) and [`Log::sync`](crate::Log::sync); [`Error::Stopped`].
    pub fn append(&self, subgroup: u32, chunk: Chunk) -> (Result<Option<Version>>, Option<Chunk>) {
        let appended = self.call(move |store| {
            let mut chunks = [chunk];
            let result = store.log(subgroup).and_then(|log| {
                log.write(&mut chunks)?;
                log.sync()
            });
            let [chunk] = chunks;
            let may_try_again = result.as_ref().is_err_and(Error::is_transient);
            (result, may_try_again.then_some(chunk))
        });
        appended.unwrap_or_else(|error| (Err(error), None))
    }

    /// Removes the records of a log after `after`, or all if it is `None`. Returns the last record that is
    /// left, and its clock. An [`Appender`] of the subgroup can't be used after that: a new one continues.
    ///
    /// # Errors
    /// As [`Log::cut_after`](crate::Log::cut_after); [`Error::Stopped`].
    pub fn cut_after(&self, subgroup: u32, after: Option<Version>) -> Result<Option<(Version, u64)>> {
        self.call(move |store| {
            let log = store.log(subgroup)?;
            log.cut_after(after)?;
            Ok(log.last().map(|last| (last, log.last_clock())))
        })?
    }

    /// Empties a log, and lets it continue behind `version`, as if everything up to it were pruned. An
    /// [`Appender`] of the subgroup can't be used after that: a new one continues.
    ///
    /// # Errors
    /// As [`Log::reset`](crate::Log::reset); [`Error::Stopped`].
    pub fn reset(&self, subgroup: u32, version: Version, clock: u64) -> Result<()> {
        self.call(move |store| store.log(subgroup)?.reset(version, clock))?
    }

    /// As [`Writer::appender`](super::Writer::appender).
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Stopped`].
    pub fn appender(&self, subgroup: u32) -> Result<Appender> {
        let (last, readers, chunk_bytes, queue_max) = self.call(move |store| {
            let config = store.config().clone();
            let log = store.log(subgroup)?;
            let last = log.last().map(|version| (version, log.last_clock()));
            Ok::<_, Error>((last, log.readers(), config.chunk_bytes, config.queue_bytes))
        })??;
        let flow = Arc::new(Flow::new(readers.durable()));
        let (returned, empty) = sync_channel(RETURNED_MAX);
        self.send(Command::Open(subgroup, flow.clone(), returned))?;
        let commands = self.commands.clone();
        let filling = Chunk::with_capacity(chunk_bytes);
        Ok(Appender { subgroup, last, filling, chunk_bytes, queue_max, commands, empty, flow, readers })
    }

    fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| Error::Stopped)
    }
}

impl Appender {
    /// A handle to the thread that writes.
    pub fn handle(&self) -> WriterHandle {
        WriterHandle { commands: self.commands.clone() }
    }

    /// The subgroup.
    pub fn subgroup(&self) -> u32 {
        self.subgroup
    }

    /// The last record that was appended, and its clock.
    pub fn last(&self) -> Option<(Version, u64)> {
        self.last
    }
}
