//! A thread that commits for all subgroups of a process.
//!
//! A producer fills a chunk that it alone owns, and hands it over through a bounded channel: no
//! lock, no wait for the disk, and no allocation once chunks circulate. The thread collects what has
//! been handed over while the last sync ran, commits it as one group, and reports the outcome.
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::log::make_file;
use crate::store::Store;
use crate::version::Version;
use commits::{Thread, Upkeep};
use flow::Flow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

mod appender;
mod commits;
mod flow;
mod handle;

pub use appender::Appender;
pub use handle::WriterHandle;

/// The commands that wait for the thread.
const COMMANDS_MAX: usize = 1024;
/// The commands that are taken before a commit.
const COMMANDS_PER_COMMIT: usize = 4 * COMMANDS_MAX;
/// The empty chunks that wait for their producer.
const RETURNED_MAX: usize = 64;
/// The time after which a batch that found no space is tried again.
const FULL_RETRY: Duration = Duration::from_millis(20);
/// The pause before a spare segment is made again that could not be made.
const SPARE_RETRY: Duration = Duration::from_secs(5);

/// The outcome of the records of one subgroup in a commit.
#[derive(Debug)]
pub struct Outcome {
    /// The subgroup.
    pub subgroup: u32,
    /// The durable frontier, or why nothing more becomes durable. A batch without space
    /// ([`Error::Full`]) is not lost: it waits in the queue and is tried again.
    pub result: Result<Option<Version>>,
    /// How long the commit took: the writes and the syncs of all subgroups in it.
    pub took: Duration,
    /// The bytes of the subgroup's segments on disk, spares included.
    pub disk_bytes: u64,
}

/// The subgroup that wants a spare segment, and the path for it.
type SpareRequest = (u32, String);

enum Command {
    Open(u32, Arc<Flow>, SyncSender<Chunk>),
    Append(u32, Chunk),
    Expect(u32),
    Upkeep(Upkeep),
    Do(Box<dyn FnOnce(&mut Store) + Send>),
    Spare(u32, String, Result<()>),
    Stop,
}

/// The thread that owns a store.
///
/// A writer that is dropped commits what is queued. It waits for that up to
/// [`Config::stop_wait`](crate::Config::stop_wait). After that the thread continues on its own, and
/// the directory stays locked until the thread ends.
pub struct Writer {
    commands: SyncSender<Command>,
    /// Whether the thread is to stop, also if there is no room for that command.
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Store>>>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
    stop_wait: Duration,
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
        let stop_wait = store.config().stop_wait;
        let mut state = Thread::new(store, spares, Box::new(report));
        let stop = Arc::new(AtomicBool::new(false));
        let (ending, ended) = sync_channel(0);
        let asked_to_stop = stop.clone();
        let thread = spawn("spindle-log", move || {
            let _ending: SyncSender<()> = ending;
            let result = state.run(&received, &asked_to_stop);
            // The other thread must not write to a file of the store once the store belongs to another.
            drop(received);
            let store = state.into_store();
            let _ = spares_thread.join();
            result.map(|()| store)
        })?;
        Ok(Self { commands, stop, thread: Some(thread), ended, stop_wait })
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

    /// Runs a function on the thread from time to time: soon, at least `pause` after the run before,
    /// if records have been committed since, and after the time that the function returned last.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn keep_up(
        &self,
        pause: Duration,
        function: impl FnMut(&mut Store) -> Option<Duration> + Send + 'static,
    ) -> Result<()> {
        self.send(Command::Upkeep(Upkeep::new(pause, Box::new(function))))
    }

    fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| Error::Stopped)
    }

    /// Commits what is queued, records the frontiers, and returns the store.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the thread has ended by a panic. [`Error::Hung`] if the disk has taken
    /// longer than [`Config::stop_wait`](crate::Config::stop_wait): then the thread continues, and
    /// holds the lock of the directory until it ends.
    pub fn stop(mut self) -> Result<Store> {
        self.end()
    }

    fn end(&mut self) -> Result<Store> {
        let Some(thread) = self.thread.take() else { return Err(Error::Stopped) };
        // Release: a thread that sees the flag finds the commands before it.
        self.stop.store(true, Ordering::Release);
        // If there is no room for the command, the thread has others to take, and looks at the flag.
        let _ = self.commands.try_send(Command::Stop);
        match self.ended.recv_timeout(self.stop_wait) {
            Err(RecvTimeoutError::Timeout) => Err(Error::Hung { waited: self.stop_wait }),
            _ => thread.join().unwrap_or(Err(Error::Stopped)),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.end();
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
