//! Locks that outlive a panic, and the clock.
use spindle_dds_core::{DdsDuration, DdsTime};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Locks a mutex. Each critical section leaves consistent data also when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time of this host's clock.
pub(crate) fn now() -> DdsTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    DdsTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Instant>,
}

impl Deadline {
    /// Makes the end of a wait that begins now. An infinite wait has none.
    pub(crate) fn after(timeout: DdsDuration) -> Deadline {
        Deadline { at: timeout.to_std().and_then(|timeout| Instant::now().checked_add(timeout)) }
    }

    /// Returns the rest of the wait; `None` if it is infinite.
    pub(crate) fn left(self) -> Option<std::time::Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Waits for a change of what `guard` protects. Returns `None` if the wait is over.
    pub(crate) fn wait<'a, T>(self, changed: &Condvar, guard: MutexGuard<'a, T>) -> Option<MutexGuard<'a, T>> {
        match self.left() {
            None => Some(changed.wait(guard).unwrap_or_else(PoisonError::into_inner)),
            Some(left) if left.is_zero() => None,
            Some(left) => Some(changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0),
        }
    }

    /// Waits for a change, `at_most` that long. Returns false if the wait is over.
    pub(crate) fn pause<T>(self, changed: &Condvar, guard: MutexGuard<'_, T>, at_most: std::time::Duration) -> bool {
        let left = self.left().unwrap_or(at_most).min(at_most);
        if left.is_zero() {
            return false;
        }
        drop(changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner));
        true
    }
}
