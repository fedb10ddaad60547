//! What has passed through a member so far, and the halt of its input.
use crate::lines;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts that the threads of a member share.
#[derive(Debug)]
pub(super) struct Counts {
    start: Instant,
    pub(super) sent: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) delivered_bytes: AtomicU64,
    /// Of `sent`: those that were delivered here, or that have been given up.
    pub(super) settled: AtomicU64,
    /// Whether the input shall send no more.
    halted: AtomicBool,
    /// How many groups have ended for this member. A ring of one that has ended may still take messages, for nobody.
    ended: AtomicU64,
    /// Whether messages are being sent at this moment. If not, `sent` is right.
    sending: Mutex<bool>,
    rested: Condvar,
    /// When the write to the output began that is under way, in ns from `start`; 0: there is none.
    writing_since: AtomicU64,
}

/// Held while messages are sent.
pub(super) struct Sending<'a>(&'a Counts);

impl Counts {
    pub(super) fn new() -> Counts {
        let (sent, sent_bytes, delivered, delivered_bytes, settled) = Default::default();
        let (halted, ended, sending, rested, writing_since) = Default::default();
        Counts {
            start: Instant::now(),
            sent,
            sent_bytes,
            delivered,
            delivered_bytes,
            settled,
            halted,
            ended,
            sending,
            rested,
            writing_since,
        }
    }

    /// A write to the output begins, or has ended.
    pub(super) fn set_writing(&self, writes: bool) {
        let since = if writes { self.start.elapsed().as_nanos().max(1) as u64 } else { 0 };
        self.writing_since.store(since, Ordering::Relaxed);
    }

    /// For how long the write to the output has been under way, if there is one.
    pub(super) fn writing_for(&self) -> Duration {
        match self.writing_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.start.elapsed().saturating_sub(Duration::from_nanos(since)),
        }
    }

    /// `None`: there is nothing to be sent any more.
    pub(super) fn begin_sending(&self) -> Option<Sending<'_>> {
        let mut sending = self.lock();
        if self.is_halted() {
            return None;
        }
        *sending = true;
        Some(Sending(self))
    }

    #[inline]
    pub(super) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// How many groups have ended for this member.
    #[inline]
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// One more group has ended for it: what was sent by now counts as sent.
    pub(super) fn end_group(&self, at_most: Duration) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.wait_for_rest(at_most);
    }

    /// Stops the input between two messages.
    pub(super) fn halt(&self) {
        let _sending = self.lock();
        self.halted.store(true, Ordering::Relaxed);
    }

    /// Waits until no message is being sent. A member whose group has ended, or whose input was halted, does not take long.
    pub(super) fn wait_for_rest(&self, at_most: Duration) {
        drop(self.rested.wait_timeout_while(self.lock(), at_most, |sending| *sending));
    }

    /// Messages of this member of which it has not seen that they were delivered.
    pub(super) fn open(&self) -> u64 {
        of(&self.sent).saturating_sub(of(&self.settled))
    }

    /// Gives up those that are open, and says how many.
    pub(super) fn give_up(&self) -> u64 {
        let open = self.open();
        self.settled.fetch_add(open, Ordering::Relaxed);
        open
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As a JSON object on the standard error.
    pub(super) fn print(&self, event: &str) {
        let object = json!({
            "event": event,
            "seconds": self.start.elapsed().as_secs_f64(),
            "sent": of(&self.sent),
            "sent_bytes": of(&self.sent_bytes),
            "delivered": of(&self.delivered),
            "delivered_bytes": of(&self.delivered_bytes),
        });
        lines::tell(object);
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.rested.notify_all();
    }
}

fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
