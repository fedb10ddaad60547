//! The thread that writes snapshots of the object.
//!
//! It makes the state from the disk: from the last snapshot, or the first state, and the records since.
//! So the polling thread encodes nothing, and a snapshot is always one of messages that are on the disks
//! of all members. Each command is executed once more for it, on this thread.
use super::{Base, Bound, History, HistoryError, position, version};
use crate::settings::Settings;
use crate::state_machine::StateMachine;
use spindle::LogAccess;
use spindle_log::{Error, SnapshotInfo, Version};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The pause after an attempt that has failed.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The pause between two looks while no further message is on the disks of all members.
const DURABLE_LOOK: Duration = Duration::from_millis(100);
/// How long the end of a member waits for the thread, if the disk hangs.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// The bytes of a record in the log, its payload apart.
const RECORD_BYTES: u64 = 48;

/// The polling thread's part, which ends the thread when it is dropped.
pub(crate) struct Snapshotting {
    gate: Arc<Gate>,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
    commands_every: u64,
    /// The messages since the last order.
    bytes: u64,
    commands: u64,
}

/// The orders to the thread.
#[derive(Default)]
struct Gate {
    orders: Mutex<Orders>,
    changed: Condvar,
    /// The bytes of the log after which the next snapshot is due; 0: never.
    bytes_every: AtomicU64,
    /// Whether the state with which the member has joined is on disk.
    has_base: AtomicBool,
    /// Whether messages may be pruned that stay on too few disks.
    may_prune_lost: AtomicBool,
}

#[derive(Default)]
struct Orders {
    is_due: bool,
    stops: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.lock().stops
    }

    /// Waits until a snapshot is due. Returns false if the thread is to stop.
    fn wait_until_due(&self) -> bool {
        let waits = |orders: &mut Orders| !orders.is_due && !orders.stops;
        let mut orders = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        orders.is_due = false;
        !orders.stops
    }

    /// Waits for so long. Returns false if the thread is to stop.
    fn pause(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |orders| !orders.stops);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stops
    }
}

impl Snapshotting {
    /// Starts the thread, unless the settings want no snapshots.
    pub(crate) fn start<T: StateMachine>(
        history: &Arc<History<T>>,
        log: impl GroupLog,
        base: Option<Base>,
        settings: &Settings,
    ) -> std::io::Result<Option<Snapshotting>> {
        let (bytes_every, commands_every) = (settings.snapshot_every_bytes, settings.snapshot_every_commands);
        if bytes_every == 0 && commands_every == 0 {
            return Ok(None);
        }
        let gate = Arc::new(Gate::default());
        gate.bytes_every.store(bytes_every, Ordering::Relaxed);
        let task = Task { history: Arc::clone(history), log, prunes: settings.prunes_log, gate: Arc::clone(&gate) };
        let (ending, ended) = channel::<()>();
        let run = move || {
            let _ending = ending;
            task.run(base, bytes_every);
        };
        let thread = Some(thread::Builder::new().name("spindle-snapshot".to_owned()).spawn(run)?);
        Ok(Some(Snapshotting { gate, thread, ended, commands_every, bytes: 0, commands: 0 }))
    }

    /// Notes a message that was applied.
    pub(crate) fn note(&mut self, payload_bytes: usize, is_call: bool) {
        self.bytes += payload_bytes as u64 + RECORD_BYTES;
        self.commands += u64::from(is_call);
    }

    /// Whether the state with which the member has joined is on its disk.
    pub(crate) fn has_base(&self) -> bool {
        self.gate.has_base.load(Ordering::Acquire)
    }

    /// Says whether messages may be pruned that stay on too few disks: every member has a state with
    /// them on its disk.
    pub(crate) fn let_prune_lost(&self, may: bool) {
        self.gate.may_prune_lost.store(may, Ordering::Release);
    }

    /// Orders a snapshot if one is due, after some messages.
    pub(crate) fn look(&mut self) {
        let bytes_every = self.gate.bytes_every.load(Ordering::Relaxed);
        let is_large = bytes_every > 0 && self.bytes >= bytes_every;
        if is_large || self.commands_every > 0 && self.commands >= self.commands_every {
            self.gate.lock().is_due = true;
            (self.bytes, self.commands) = (0, 0);
            self.gate.changed.notify_one();
        }
    }
}

impl Drop for Snapshotting {
    fn drop(&mut self) {
        self.gate.lock().stops = true;
        self.gate.changed.notify_one();
        // The next owner of the files may write a snapshot of its own.
        if self.ended.recv_timeout(STOP_WAIT) == Err(RecvTimeoutError::Timeout) {
            let waited_s = STOP_WAIT.as_secs();
            tracing::warn!(target: "spindle::object", waited_s, "the disk does not answer, and a snapshot is left unfinished");
            return;
        }
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!(target: "spindle::object", "the thread that writes snapshots has panicked");
        }
    }
}

/// The log, as far as other members have it too.
pub(crate) trait GroupLog: Send + 'static {
    /// Returns the version below which all messages are on the disks of all members.
    fn durable(&self) -> Option<Version>;
    /// Prunes messages up to a version, and returns the number of segments. Messages that stay on too
    /// few disks are pruned only if `also_lost`.
    fn prune(&self, through: Version, also_lost: bool) -> Result<u64, Error>;
    /// The pause after an attempt that has failed.
    fn retry_after(&self) -> Duration;
}

impl GroupLog for LogAccess {
    fn durable(&self) -> Option<Version> {
        LogAccess::durable(self).map(version)
    }

    fn prune(&self, through: Version, also_lost: bool) -> Result<u64, Error> {
        match also_lost {
            true => self.prune_lost(position(through)),
            false => LogAccess::prune(self, position(through)),
        }
    }

    fn retry_after(&self) -> Duration {
        RETRY_AFTER
    }
}

/// The thread.
struct Task<T, L> {
    history: Arc<History<T>>,
    log: L,
    prunes: bool,
    gate: Arc<Gate>,
}

impl<T: StateMachine, L: GroupLog> Task<T, L> {
    fn run(self, base: Option<Base>, bytes_every: u64) {
        let is_cancelled = || self.gate.stops();
        if let Some(base) = base {
            if !self.write_base(base) {
                return;
            }
            self.gate.has_base.store(true, Ordering::Release);
        }
        while self.gate.wait_until_due() {
            let mut kept = None;
            let taken = self.persist(|| {
                let Some(durable) = self.log.durable() else { return Ok(None) };
                let taken = take(&self.history, durable, &is_cancelled)?;
                Ok(taken.map(|(info, older)| {
                    kept = older;
                    // A large object is not written more often than its log has grown by its size.
                    if bytes_every > 0 {
                        self.gate.bytes_every.store(bytes_every.max(info.bytes), Ordering::Relaxed);
                    }
                    info
                }))
            });
            if !taken {
                return;
            }
            if let Some(kept) = kept.filter(|_| self.prunes) {
                self.prune(kept);
            }
        }
    }

    /// Writes the state with which the member has joined. Returns false if the thread is to end.
    fn write_base(&self, base: Base) -> bool {
        let is_cancelled = || self.gate.stops();
        let version = base.at.0;
        let (mut base, mut prepared) = (Some(base), None);
        self.persist(|| {
            if let Some(waiting) = &base {
                prepared = Some(waiting.prepare(&self.history, &is_cancelled)?);
                // From here on it is on disk only.
                base = None;
            }
            // Messages in the state that are on no disk yet may be lost with all members.
            let is_durable = self.log.durable().is_some_and(|durable| durable >= version.next());
            let put = prepared.as_mut().filter(|_| is_durable).map(|prepared| prepared.put_beside(None));
            Ok(put.transpose()?)
        })
    }

    /// Tries until a snapshot is written. Returns false if the thread is to end.
    fn persist(&self, mut attempt: impl FnMut() -> Result<Option<SnapshotInfo>, HistoryError>) -> bool {
        let mut has_warned = false;
        loop {
            let pause = match attempt() {
                Ok(Some(SnapshotInfo { version, bytes, .. })) => {
                    tracing::info!(target: "spindle::object", %version, bytes, "a snapshot was written");
                    return true;
                }
                Ok(None) => DURABLE_LOOK,
                Err(HistoryError::Cancelled) => return false,
                // The member stops as well, or the object can't be sent to joiners either.
                Err(error @ (HistoryError::Stopped(_) | HistoryError::Encode)) => {
                    tracing::error!(target: "spindle::object", %error, "no more snapshots are written");
                    return false;
                }
                Err(error) => {
                    if !has_warned {
                        let retry_s = self.log.retry_after().as_secs();
                        tracing::warn!(target: "spindle::object", %error, retry_s, "a snapshot was not written, and is tried again");
                    }
                    has_warned = true;
                    self.log.retry_after()
                }
            };
            if !self.gate.pause(pause) {
                return false;
            }
        }
    }

    fn prune(&self, through: Version) {
        match self.log.prune(through, self.gate.may_prune_lost.load(Ordering::Acquire)) {
            Ok(0) => {}
            Ok(segments) => {
                tracing::info!(target: "spindle::object", %through, segments, "the log was pruned behind a snapshot")
            }
            Err(error) => tracing::warn!(target: "spindle::object", %error, "the log is not pruned"),
        }
    }
}

/// Writes a snapshot of all messages below `durable`. Returns it, and the version of the one that it was
/// made from, which is valid; `None` if there is no message since that one.
///
/// # Errors
/// [`HistoryError`]. The snapshots are then as before.
pub(super) fn take<T: StateMachine>(
    history: &History<T>,
    durable: Version,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<(SnapshotInfo, Option<Version>)>, HistoryError> {
    if !history.has_more(durable)? {
        return Ok(None);
    }
    let then = history.state_at(Bound::Before(durable), is_cancelled)?;
    let kept = then.snapshot.map(|info| info.version);
    let Some(last) = then.last.filter(|(last, _)| Some(*last) != kept) else { return Ok(None) };
    let bytes = then.machine.try_snapshot().map_err(|_| HistoryError::Encode)?;
    drop(then.machine);
    Ok(Some((history.write(last, &bytes, kept, is_cancelled)?, kept)))
}
