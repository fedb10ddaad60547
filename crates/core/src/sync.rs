//! The atomics of this crate: those of `core`, or loom's when the lock-free files are
//! model-checked.
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Keeps data that one thread writes off the cache lines that another thread writes. The alignment
/// is two lines, because the prefetcher of x86 fetches pairs of lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> core::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
