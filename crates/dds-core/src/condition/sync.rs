//! The locks and atomics of this folder: those of `std`, or loom's when it is model-checked.
#[cfg(loom)]
pub(super) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
use std::sync::PoisonError;
#[cfg(not(loom))]
pub(super) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Locks a mutex. A thread that panicked within the lock leaves data that is consistent: each critical
/// section of this folder changes a collection by one call.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
