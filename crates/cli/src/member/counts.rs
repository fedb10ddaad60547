//! Counts of the messages that have passed through a member, and the halt of its input.
use crate::lines;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts that the threads of a member share.
#[derive(Debug)]
pub(super) struct MemberCounts {
    start: Instant,
    pub(super) sent: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) delivered_bytes: AtomicU64,
    /// The messages among `sent` that were delivered here, or that have been given up.
    pub(super) settled: AtomicU64,
    /// True if the input must send no more.
    halted: AtomicBool,
    /// How many groups have ended for this member. The ring of an ended group may still accept
    /// messages, which no member delivers.
    ended: AtomicU64,
    /// True while messages are being sent. While it is false, `sent` is exact.
    sending: Mutex<bool>,
    rested: Condvar,
    /// Begin of the current write to the output, in ns from `start`; 0: there is none.
    writing_since: AtomicU64,
}

/// A guard held while messages are sent.
pub(super) struct SendingGuard<'a>(&'a MemberCounts);

impl MemberCounts {
    pub(super) fn new() -> MemberCounts {
        let (sent, sent_bytes, delivered, delivered_bytes, settled) = Default::default();
        let (halted, ended, sending, rested, writing_since) = Default::default();
        MemberCounts {
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

    /// Records that a write to the output begins, or has ended.
    pub(super) fn set_writing(&self, writes: bool) {
        let since = if writes { self.start.elapsed().as_nanos().max(1) as u64 } else { 0 };
        self.writing_since.store(since, Ordering::Relaxed);
    }

    /// Returns how long the current write to the output has lasted; 0 if there is none.
    pub(super) fn writing_for(&self) -> Duration {
        match self.writing_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.start.elapsed().saturating_sub(Duration::from_nanos(since)),
        }
    }

    /// Begins to send; `None` if the input was halted.
    pub(super) fn begin_sending(&self) -> Option<SendingGuard<'_>> {
        let mut sending = self.lock();
        if self.is_halted() {
            return None;
        }
        *sending = true;
        Some(SendingGuard(self))
    }

    #[inline]
    pub(super) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// Returns how many groups have ended for this member.
    #[inline]
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Records that one more group has ended for this member. Every message sent by now counts as
    /// sent.
    pub(super) fn end_group(&self, at_most: Duration) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.wait_for_rest(at_most);
    }

    /// Stops the input between two messages.
    pub(super) fn halt(&self) {
        let _sending = self.lock();
        self.halted.store(true, Ordering::Relaxed);
    }

    /// Waits until no message is being sent. The wait is short if the member's group has ended, or
    /// its input was halted.
    pub(super) fn wait_for_rest(&self, at_most: Duration) {
        drop(self.rested.wait_timeout_while(self.lock(), at_most, |sending| *sending));
    }

    /// Returns the number of this member's messages that have not been delivered here.
    pub(super) fn open(&self) -> u64 {
        of(&self.sent).saturating_sub(of(&self.settled))
    }

    /// Gives up the open messages, and returns their number.
    pub(super) fn give_up(&self) -> u64 {
        let open = self.open();
        self.settled.fetch_add(open, Ordering::Relaxed);
        open
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints the counts as a JSON object on the standard error.
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

impl Drop for SendingGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.rested.notify_all();
    }
}

fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
