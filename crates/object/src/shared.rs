//! The state that the threads of a member share: the machine, and the threads that wait for it.
use crate::error::End;
use crate::history::History;
use crate::machine::Machine;
use crate::state_machine::StateMachine;
use crate::waiting::Waiting;
use crate::watch::Watches;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The state that the member and its handles share.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    machine: RwLock<Machine<T>>,
    pub(crate) waiting: Waiting,
    /// `Settings::calls_kept`, which calls read without the lock: a read may hold it for long.
    pub(crate) calls_kept: u64,
    /// The log, if the subgroup has one.
    pub(crate) history: OnceLock<Arc<History<T>>>,
    pub(crate) watches: Watches<T>,
}

impl<T: StateMachine> Shared<T> {
    pub(crate) fn new(machine: Machine<T>) -> Shared<T> {
        let calls_kept = u64::from(machine.settings().calls_kept.max(1));
        let (waiting, history, watches) = Default::default();
        Shared { machine: RwLock::new(machine), waiting, calls_kept, history, watches }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Machine<T>> {
        self.machine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all waits and watches, now and later.
    pub(crate) fn end(&self, end: End) {
        self.waiting.end(end);
        if let Some(end) = self.waiting.ended() {
            self.watches.end(&end);
        }
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Machine<T>> {
        self.machine.write().unwrap_or_else(PoisonError::into_inner)
    }
}
