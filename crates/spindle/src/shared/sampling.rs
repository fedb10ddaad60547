//! Samples of the time from the claim of a message until its delivery here.
//!
//! A publisher reads the clock for a message only if the polling thread has asked for a sample. The
//! polling thread asks once it has completed the previous sample and has looked at its own clock
//! since: at most once in a few milliseconds while it is busy. So the cost for other messages is
//! one load, and each message of a slow sender is a sample.
use spindle_core::Claims;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// No sample is wanted.
const IDLE: u8 = 0;
/// The next claim is to be sampled.
const WANTED: u8 = 1;
/// A claim was sampled.
const TAKEN: u8 = 2;

/// The point at which the publishers of a member meet its polling thread: one sample at a time.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    state: AtomicU8,
    sample: Mutex<Option<Sample>>,
}

/// A message of this member whose delivery is awaited.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The ring.
    pub(crate) claims: Arc<Claims>,
    /// The position of its frame in the ring, or one before it.
    pub(crate) position: u64,
    /// When the claim began.
    pub(crate) at: Instant,
}

impl Sampler {
    /// Returns whether the next claim is to be [taken](Self::take).
    fn is_wanted(&self) -> bool {
        // Relaxed: the mutex orders the sample.
        self.state.load(Ordering::Relaxed) == WANTED
    }

    /// Takes the next claim in a ring as the sample, if one is wanted.
    pub(crate) fn take(&self, (claims, position): (&Arc<Claims>, u64)) {
        let mut sample = self.lock();
        if self.is_wanted() {
            *sample = Some(Sample { claims: Arc::clone(claims), position, at: Instant::now() });
            self.state.store(TAKEN, Ordering::Relaxed);
        }
    }

    /// Asks for a sample, unless one is on its way. Returns whether it has asked.
    pub(crate) fn ask(&self) -> bool {
        // Only the polling thread leaves this state.
        let is_idle = self.state.load(Ordering::Relaxed) == IDLE;
        if is_idle {
            self.state.store(WANTED, Ordering::Relaxed);
        }
        is_idle
    }

    /// Returns whether there is a sample.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TAKEN
    }

    /// Returns the sample, which stays.
    pub(crate) fn sample(&self) -> Option<Sample> {
        self.lock().clone()
    }

    /// Drops the sample, and any request for one.
    pub(crate) fn clear(&self) {
        let mut sample = self.lock();
        *sample = None;
        self.state.store(IDLE, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sample>> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
