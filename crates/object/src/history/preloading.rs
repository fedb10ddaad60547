//! The newest snapshot of an earlier process, which is read while this process joins: the polling thread
//! would read it for as long as the others wait.
use super::read_all;
use crate::machine::Machine;
use crate::settings::Settings;
use crate::state_machine::StateMachine;
use spindle_log::{Snapshots, Version};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A snapshot that is being read.
#[derive(Debug)]
pub(crate) struct Preloading<T>(Mutex<Option<JoinHandle<Option<Loaded<T>>>>>);

type Loaded<T> = (Version, Machine<T>);

impl<T: StateMachine> Preloading<T> {
    pub(crate) fn none() -> Preloading<T> {
        Preloading(Mutex::new(None))
    }

    /// Begins to read. Without a thread, or if the snapshot is not valid, the snapshot is read later.
    pub(crate) fn start(snapshots: Snapshots, settings: Settings) -> Preloading<T> {
        let load = move || {
            let version = *snapshots.versions().ok()?.first()?;
            let machine = Machine::restore(&read_all(&snapshots, version).ok()?, settings).ok()?;
            Some((version, machine))
        };
        Preloading(Mutex::new(thread::Builder::new().name("spindle-preload".to_owned()).spawn(load).ok()))
    }

    /// Returns the state once, if it is that of this version.
    pub(crate) fn take(&self, version: Version) -> Option<Machine<T>> {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (loaded, machine) = thread.join().ok()??;
        (loaded == version).then_some(machine)
    }

    /// Forgets what is being read.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
