//! The loop of the thread.
use super::flow::Flow;
use super::{COMMANDS_PER_COMMIT, Command, FULL_RETRY, Outcome, SPARE_RETRY, SpareRequest};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::queue::Queue;
use crate::store::Store;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// The owner of a store.
pub(super) struct Thread {
    store: Store,
    queue: Queue,
    flows: BTreeMap<u32, (Arc<Flow>, SyncSender<Chunk>)>,
    spares: SyncSender<SpareRequest>,
    /// The subgroups for which a spare segment is being made.
    asked: Vec<u32>,
    /// The subgroups for which none could be made, and when that was.
    refused: BTreeMap<u32, Instant>,
    report: Box<dyn FnMut(Outcome) + Send>,
    upkeep: Option<Upkeep>,
}

impl Thread {
    pub(super) fn new(store: Store, spares: SyncSender<SpareRequest>, report: Box<dyn FnMut(Outcome) + Send>) -> Self {
        let queue = Queue::new(store.config().batch_bytes);
        Self {
            store,
            queue,
            flows: BTreeMap::new(),
            spares,
            asked: Vec::new(),
            refused: BTreeMap::new(),
            report,
            upkeep: None,
        }
    }

    /// Serves until it is to stop.
    ///
    /// # Errors
    /// [`Error::Stopped`] if something has panicked. Then every producer has that as its failure.
    pub(super) fn run(&mut self, commands: &Receiver<Command>, stop: &AtomicBool) -> Result<()> {
        let served = panic::catch_unwind(AssertUnwindSafe(|| self.serve(commands, stop)));
        served.map_err(|panic| {
            let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
            self.store.set_poison(format!("the thread of the log has panicked: {}", text.unwrap_or("no text")));
            // The panic may be one of the report.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| self.spread_poison()));
            Error::Stopped
        })
    }

    /// The store, once nothing is written to it any more.
    pub(super) fn into_store(self) -> Store {
        self.store
    }

    fn serve(&mut self, commands: &Receiver<Command>, stop: &AtomicBool) {
        let (mut is_stopping, mut is_recorded) = (false, true);
        loop {
            self.ask_for_spares();
            self.spread_poison();
            let first = if is_stopping {
                commands.try_recv().map_err(|_| RecvTimeoutError::Timeout)
            } else {
                match self.patience(is_recorded) {
                    Some(patience) => commands.recv_timeout(patience),
                    None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
                }
            };
            match first {
                Ok(command) => is_stopping |= self.take(command),
                Err(RecvTimeoutError::Disconnected) => is_stopping = true,
                Err(RecvTimeoutError::Timeout) if self.queue.is_empty() => {
                    // A failure is in the poison.
                    let _ = self.store.record_frontiers();
                    is_recorded = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let mut was_full = false;
            is_stopping |= self.take_waiting(commands) | stop.load(Ordering::Acquire);
            self.keep_up();
            // Commands that came meanwhile are taken between commits.
            while !self.queue.is_empty() && !was_full {
                is_recorded = false;
                was_full = self.commit();
                is_stopping |= self.take_waiting(commands);
                self.ask_for_spares();
                self.keep_up();
            }
            if is_stopping {
                let _ = self.store.record_frontiers();
                return;
            }
        }
    }

    /// How long the thread may wait for a command. `None` if nothing else will be due.
    fn patience(&self, is_recorded: bool) -> Option<Duration> {
        let config = self.store.config();
        let own = if !self.queue.is_empty() { Some(FULL_RETRY) } else { (!is_recorded).then_some(config.idle_after) };
        let upkeep = self.upkeep.as_ref().and_then(|upkeep| upkeep.due);
        let upkeep = upkeep.map(|due| due.saturating_duration_since(Instant::now()));
        own.into_iter().chain(upkeep).min()
    }

    /// Runs the upkeep if it is due.
    fn keep_up(&mut self) {
        let Some(upkeep) = &mut self.upkeep else { return };
        if upkeep.due.is_some_and(|due| due <= Instant::now()) {
            let wait = (upkeep.run)(&mut self.store);
            upkeep.ran = Some(Instant::now());
            upkeep.due = wait.and_then(|wait| Instant::now().checked_add(wait.max(upkeep.pause)));
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
            Command::Expect(subgroup) => {
                // Without it, the first commit makes the segment itself.
                let _ = self.store.log(subgroup).map(Log::expect_records);
            }
            Command::Upkeep(upkeep) => self.upkeep = Some(upkeep),
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
                    self.refused.insert(subgroup, Instant::now());
                }
            }
            Command::Stop => return true,
        }
        false
    }

    fn ask_for_spares(&mut self) {
        for subgroup in self.store.subgroups_open() {
            let waits = self.refused.get(&subgroup).is_some_and(|refused| refused.elapsed() < SPARE_RETRY);
            if !waits
                && !self.asked.contains(&subgroup)
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
        let began = Instant::now();
        let results = self.store.commit(&mut batches);
        let took = began.elapsed();
        let chunk_bytes = self.store.config().chunk_bytes;
        let mut was_full = false;
        for (batch, result) in batches.into_iter().zip(results) {
            let subgroup = batch.subgroup;
            let flow = self.flows.get(&subgroup);
            match &result {
                Ok(durable) => {
                    if let Some((flow, returned)) = flow {
                        flow.complete(*durable, batch, returned, chunk_bytes);
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
            let disk_bytes = self.store.log(subgroup).map_or(0, |log| log.disk_bytes());
            (self.report)(Outcome { subgroup, result, took, disk_bytes });
        }
        self.spread_poison();
        if let Some(upkeep) = &mut self.upkeep {
            upkeep.note_commit();
        }
        was_full
    }

    /// Reports to every producer that nothing more will be written, if that is so.
    fn spread_poison(&mut self) {
        let Some(cause) = self.store.poison() else { return };
        let failure = Error::Poisoned { cause: cause.to_owned() };
        for (subgroup, (flow, _)) in &self.flows {
            if flow.failure.set(failure.clone()).is_ok() {
                let (subgroup, result) = (*subgroup, Err(failure.clone()));
                (self.report)(Outcome { subgroup, result, took: Duration::ZERO, disk_bytes: 0 });
            }
        }
        self.queue.clear();
    }
}

/// Returns the time after which it wants to run again, if it does.
pub(super) type UpkeepRun = Box<dyn FnMut(&mut Store) -> Option<Duration> + Send>;

/// A function that runs now and then.
pub(super) struct Upkeep {
    run: UpkeepRun,
    /// The least time between two runs.
    pause: Duration,
    ran: Option<Instant>,
    due: Option<Instant>,
}

impl Upkeep {
    pub(super) fn new(pause: Duration, run: UpkeepRun) -> Self {
        Self { run, pause, ran: None, due: Some(Instant::now()) }
    }

    /// Lets it run once the pause is over, because records have been written.
    fn note_commit(&mut self) {
        let due = self.ran.map_or_else(Instant::now, |ran| ran + self.pause);
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
    }
}
