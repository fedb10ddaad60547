//! State shared by the threads of one member: its handles, its polling thread, and the threads that
//! wait for either.
//!
//! [`Shared`] contains how the group ended and who is in it. [`Notices`] wake the polling thread.
use crate::error::Ended;
use spindle_core::Claims;
use spindle_core::View;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

mod awaited;
mod handler_watch;
mod lock;
mod notices;
mod sampling;
mod upcall;

pub(crate) use awaited::{Awaited, Ticket};
pub use handler_watch::HandlerStatus;
pub(crate) use handler_watch::HandlerWatch;
pub(crate) use lock::lock;
pub(crate) use notices::Notices;
pub(crate) use sampling::Sample;
use sampling::Sampler;
pub(crate) use upcall::Upcall;

/// The end is set.
const ENDED: u8 = 1;
/// A sample is wanted.
const SAMPLE: u8 = 2;

/// The state that all handles of one member see: the newest view, and the end.
#[derive(Debug)]
pub(crate) struct Shared {
    view: Mutex<Arc<View>>,
    end: OnceLock<End>,
    /// [`ENDED`] and [`SAMPLE`]: a claim looks at both with one load.
    attention: AtomicU8,
    sampler: Sampler,
    pub(crate) handler: HandlerWatch,
}

/// How a group came to its end.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Finished,
    Broken(Ended),
}

impl Shared {
    pub(crate) fn new(view: Arc<View>) -> Shared {
        let (end, attention, sampler) = Default::default();
        Shared { view: Mutex::new(view), end, attention, sampler, handler: HandlerWatch::new() }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_view(&self, view: Arc<View>) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.end.get()
    }

    /// Returns the reason, if the group has ended here before everything was delivered.
    #[inline]
    pub(crate) fn broken(&self) -> Option<&Ended> {
        match self.end.get() {
            Some(End::Broken(ended)) => Some(ended),
            _ => None,
        }
    }

    /// Sets the end, unless one was set before.
    pub(crate) fn set_end(&self, end: End) {
        let _ = self.end.set(end);
        // Relaxed: the end itself is read with acquire.
        self.attention.fetch_or(ENDED, Ordering::Relaxed);
    }

    /// Returns whether a claim has to take a [sample](Self::take_sample) or look at the end first.
    #[inline(always)]
    pub(crate) fn needs_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// Takes the next claim in a ring as the sample, if one is wanted.
    pub(crate) fn take_sample(&self, claim: (&Arc<Claims>, u64)) {
        if self.attention.load(Ordering::Relaxed) & SAMPLE != 0 {
            // The thread that clears the bit looks at the sampler afterwards, and acquires what the
            // request has stored there. So no request is lost.
            self.attention.fetch_and(!SAMPLE, Ordering::Acquire);
            self.sampler.take(claim);
        }
    }

    /// Asks for a sample, unless one is on its way. Only the polling thread does.
    pub(crate) fn ask_for_sample(&self) {
        if self.sampler.ask() {
            // Release: see `take_sample`.
            self.attention.fetch_or(SAMPLE, Ordering::Release);
        }
    }

    /// Returns whether there is a sample.
    #[inline]
    pub(crate) fn is_sample_taken(&self) -> bool {
        self.sampler.is_taken()
    }

    /// Returns the sample, which stays.
    pub(crate) fn sample(&self) -> Option<Sample> {
        self.sampler.sample()
    }

    /// Drops the sample, and any request for one. Only the polling thread does.
    pub(crate) fn clear_sample(&self) {
        self.sampler.clear();
        self.attention.fetch_and(!SAMPLE, Ordering::Relaxed);
    }
}

/// Adds a waker to a list of wakers, unless it is there.
pub(crate) fn note_waker(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|noted| noted.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}
