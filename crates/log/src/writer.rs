//! A thread that commits for all subgroups of a process.
//!
//! A producer fills a chunk that it alone owns, and hands it over through a bounded channel: no
//! lock, no wait for the disk, and no allocation once chunks circulate. The thread collects what has
//! been handed over while the last sync ran, commits it as one group, and reports the outcome.
use crate::chunk::{Chunk, bytes_of, follows};
use crate::error::{Error, Result};
use crate::log::{Readers, make_file};
use crate::queue::Queue;
use crate::store::{Batch, Store};
use crate::version::{Record, Version};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

mod handle;

pub use handle::WriterHandle;

/// The commands that wait for the thread.
const COMMANDS_MAX: usize = 1024;
/// The commands that are taken before a commit.
const COMMANDS_PER_COMMIT: usize = 4 * COMMANDS_MAX;
/// The empty chunks that wait for their producer.
const RETURNED_MAX: usize = 64;
/// The time after which a batch that found no space is tried again.
const FULL_RETRY: Duration = Duration::from_millis(20);

/// The outcome of the records of one subgroup in a commit.
#[derive(Debug)]
pub struct Outcome {
    /// The subgroup.
    pub subgroup: u32,
    /// The durable frontier, or why nothing more becomes durable. A batch without space
    /// ([`Error::Full`]) is not lost: it waits in the queue and is tried again.
    pub result: Result<Option<Version>>,
}

/// The subgroup that wants a spare segment, and the path for it.
type SpareRequest = (u32, String);

enum Command {
    Open(u32, Arc<Flow>, SyncSender<Chunk>),
    Append(u32, Chunk),
    Do(Box<dyn FnOnce(&mut Store) + Send>),
    Spare(u32, String, Result<()>),
    Stop,
}

/// The state that a producer and the thread share about one subgroup.
#[derive(Default)]
struct Flow {
    /// The bytes that were appended and are not durable.
    queued: AtomicU64,
    /// The records that became durable.
    records: AtomicU64,
    is_full: AtomicBool,
    full: Mutex<Option<Error>>,
    failure: OnceLock<Error>,
    durable: Mutex<Option<Version>>,
}

/// The thread that owns a store.
pub struct Writer {
    commands: SyncSender<Command>,
    thread: Option<JoinHandle<Store>>,
}

impl Writer {
    /// Starts the thread. `report` is called on it once a commit for each subgroup in the commit; it
    /// must not block.
    ///
    /// # Errors
    /// [`Error::Io`] if the thread cannot be started.
    pub fn start(store: Store, report: impl FnMut(Outcome) + Send + 'static) -> Result<Self> {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let (spares, spares_thread) = start_spares(&store, commands.clone())?;
        let queue = Queue::new(store.config().batch_bytes);
        let state =
            Thread { store, queue, flows: BTreeMap::new(), spares, asked: Vec::new(), report: Box::new(report) };
        let thread = spawn("spindle-log", move || {
            let store = state.run(&received);
            // The thread must not write to a file of the store once the store belongs to another.
            drop(received);
            let _ = spares_thread.join();
            store
        })?;
        Ok(Self { commands, thread: Some(thread) })
    }

    /// An appender for a subgroup whose log is open. There must be one at a time.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Stopped`].
    pub fn appender(&self, subgroup: u32) -> Result<Appender> {
        self.handle().appender(subgroup)
    }

    /// Runs a function on the thread, before what is queued is committed, and waits for its result:
    /// to open, prune or cut logs, and for the journal.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn call<R: Send + 'static>(&self, function: impl FnOnce(&mut Store) -> R + Send + 'static) -> Result<R> {
        self.handle().call(function)
    }

    /// As [`call`](Self::call), for a caller that must not wait. Returns whether the function will
    /// run: it will not if too many commands wait.
    pub fn post(&self, function: impl FnOnce(&mut Store) + Send + 'static) -> bool {
        self.commands.try_send(Command::Do(Box::new(function))).is_ok()
    }

    /// A handle for other threads. After the end of this writer its calls fail.
    pub fn handle(&self) -> WriterHandle {
        WriterHandle { commands: self.commands.clone() }
    }

    /// Commits what is queued, records the frontiers, and returns the store.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the thread has ended by a panic.
    pub fn stop(mut self) -> Result<Store> {
        let _ = self.commands.send(Command::Stop);
        self.thread.take().and_then(|thread| thread.join().ok()).ok_or(Error::Stopped)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.commands.send(Command::Stop);
            let _ = thread.join();
        }
    }
}

fn spawn<R: Send + 'static>(name: &str, run: impl FnOnce() -> R + Send + 'static) -> Result<JoinHandle<R>> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|cause| Error::Io {
        operation: "start a thread for",
        path: name.to_owned(),
        cause: Arc::new(cause),
    })
}

/// Starts the thread that fills spare segments with zeros, so that no commit waits for that.
fn start_spares(store: &Store, commands: SyncSender<Command>) -> Result<(SyncSender<SpareRequest>, JoinHandle<()>)> {
    let (ask, asked) = sync_channel::<SpareRequest>(crate::limits::SUBGROUPS_MAX);
    let disk = store.disk().clone();
    let (bytes, reserve) = (store.config().segment_bytes, store.config().reserve_bytes);
    let thread = spawn("spindle-spares", move || {
        for (subgroup, path) in asked {
            let made = make_file(&*disk, &path, bytes, reserve).map(drop);
            if commands.send(Command::Spare(subgroup, path, made)).is_err() {
                break;
            }
        }
    })?;
    Ok((ask, thread))
}

struct Thread {
    store: Store,
    queue: Queue,
    flows: BTreeMap<u32, (Arc<Flow>, SyncSender<Chunk>)>,
    spares: SyncSender<SpareRequest>,
    /// The subgroups for which a spare segment is being made.
    asked: Vec<u32>,
    report: Box<dyn FnMut(Outcome) + Send>,
}

impl Thread {
    fn run(mut self, commands: &Receiver<Command>) -> Store {
        let idle = self.store.config().idle_after;
        let (mut is_stopping, mut is_recorded) = (false, true);
        loop {
            self.ask_for_spares();
            let first = if is_stopping {
                commands.try_recv().map_err(|_| RecvTimeoutError::Timeout)
            } else if !self.queue.is_empty() {
                commands.recv_timeout(FULL_RETRY)
            } else if is_recorded {
                commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                commands.recv_timeout(idle)
            };
            match first {
                Ok(command) => is_stopping |= self.take(command),
                Err(RecvTimeoutError::Disconnected) => is_stopping = true,
                Err(RecvTimeoutError::Timeout) if self.queue.is_empty() => {
                    // A failure is in the poison, which the next append reports.
                    let _ = self.store.record_frontiers();
                    is_recorded = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let mut was_full = false;
            is_stopping |= self.take_waiting(commands);
            // Commands that came meanwhile are taken between commits.
            while !self.queue.is_empty() && !was_full {
                is_recorded = false;
                was_full = self.commit();
                is_stopping |= self.take_waiting(commands);
                self.ask_for_spares();
            }
            if is_stopping {
                let _ = self.store.record_frontiers();
                return self.store;
            }
        }
    }

    /// Takes the commands that wait. Returns whether the thread is to stop.
    fn take_waiting(&mut self, commands: &Receiver<Command>) -> bool {
        let waiting = commands.try_iter().take(COMMANDS_PER_COMMIT);
        waiting.fold(false, |is_stopping, command| self.take(command) | is_stopping)
    }

    /// Returns whether the thread is to stop.
    fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Open(subgroup, flow, returned) => drop(self.flows.insert(subgroup, (flow, returned))),
            Command::Append(subgroup, chunk) => {
                // Behind a batch that failed nothing is written, or the log would have a gap.
                let is_open = self.flows.get(&subgroup).is_some_and(|(flow, _)| flow.failure.get().is_none());
                if is_open {
                    drop(self.queue.push(subgroup, chunk));
                }
            }
            Command::Do(function) => function(&mut self.store),
            Command::Spare(subgroup, path, made) => {
                self.asked.retain(|asked| *asked != subgroup);
                if made.is_ok()
                    && let Ok(log) = self.store.log(subgroup)
                {
                    // Without the spare, the next commit makes one itself.
                    let _ = log.add_spare(&path);
                } else if made.is_err() {
                    // The disk is full or failing. The commit that needs the space reports it.
                    self.asked.push(subgroup);
                }
            }
            Command::Stop => return true,
        }
        false
    }

    fn ask_for_spares(&mut self) {
        for subgroup in self.store.subgroups_open() {
            if !self.asked.contains(&subgroup)
                && let Ok(log) = self.store.log(subgroup)
                && let Some(path) = log.wanted_spare()
                && self.spares.try_send((subgroup, path)).is_ok()
            {
                self.asked.push(subgroup);
            }
        }
    }

    /// Commits one round. Returns whether a batch found no space.
    fn commit(&mut self) -> bool {
        let mut batches = self.queue.next_round();
        let results = self.store.commit(&mut batches);
        let mut was_full = false;
        for (batch, result) in batches.into_iter().zip(results) {
            let subgroup = batch.subgroup;
            let flow = self.flows.get(&subgroup);
            match &result {
                Ok(durable) => {
                    if let Some((flow, returned)) = flow {
                        flow.complete(*durable, batch, returned);
                    }
                }
                Err(error) if error.is_transient() => {
                    was_full = true;
                    if let Some((flow, _)) = flow {
                        flow.set_full(Some(error.clone()));
                    }
                    self.queue.put_back(batch);
                }
                Err(error) => {
                    if let Some((flow, _)) = flow {
                        let _ = flow.failure.set(error.clone());
                    }
                    self.queue.remove(subgroup);
                }
            }
            (self.report)(Outcome { subgroup, result });
        }
        if let Some(cause) = self.store.poison() {
            // Nothing more will be written: every producer learns it now.
            for (flow, _) in self.flows.values() {
                let _ = flow.failure.set(Error::Poisoned { cause: cause.to_owned() });
            }
            self.queue.clear();
        }
        was_full
    }
}

impl Flow {
    fn complete(&self, durable: Option<Version>, batch: Batch, returned: &SyncSender<Chunk>) {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) = durable;
        self.set_full(None);
        for mut chunk in batch.chunks {
            self.records.fetch_add(u64::from(chunk.records()), Ordering::Release);
            self.queued.fetch_sub(chunk.bytes(), Ordering::Release);
            chunk.clear();
            // If the producer has enough of them, the chunk is freed.
            let _ = returned.try_send(chunk);
        }
    }

    fn set_full(&self, error: Option<Error>) {
        let is_full = error.is_some();
        if self.is_full.load(Ordering::Relaxed) != is_full {
            *self.full.lock().unwrap_or_else(PoisonError::into_inner) = error;
            self.is_full.store(is_full, Ordering::Release);
        }
    }
}

/// Appends records of one subgroup. It never waits for the disk.
pub struct Appender {
    subgroup: u32,
    last: Option<(Version, u64)>,
    filling: Chunk,
    chunk_bytes: usize,
    queue_max: u64,
    commands: SyncSender<Command>,
    empty: Receiver<Chunk>,
    flow: Arc<Flow>,
    readers: Readers,
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
        let queued = self.flow.queued.load(Ordering::Acquire);
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
        self.flow.queued.fetch_add(bytes, Ordering::Relaxed);
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

    /// Hands over what was appended. Returns `false` if the writer has too much to do; then a later
    /// call does.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn flush(&mut self) -> Result<bool> {
        if self.filling.is_empty() {
            return Ok(true);
        }
        let empty = self.empty.try_recv().unwrap_or_else(|_| Chunk::with_capacity(self.chunk_bytes));
        let full = std::mem::replace(&mut self.filling, empty);
        match self.commands.try_send(Command::Append(self.subgroup, full)) {
            Ok(()) => Ok(true),
            Err(TrySendError::Full(Command::Append(_, full))) => {
                self.filling = full;
                Ok(false)
            }
            Err(_) => Err(Error::Stopped),
        }
    }

    /// The bytes that were appended and are not durable.
    pub fn queued_bytes(&self) -> u64 {
        self.flow.queued.load(Ordering::Acquire)
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
