//! Notices that a handler runs for too long, while it still runs.
//!
//! The polling thread counts the begin and the end of each upcall, with a plain store each. A
//! second thread of the [`Group`](crate::Group) compares the count at intervals: the upcall that
//! runs at two looks has run for the time between them. No thread reads a clock for an upcall.
//!
//! The second thread sleeps without a limit while the handler has nothing to do. The next upcall
//! wakes it. It first announces its sleep and looks once more after an interval, because it may
//! miss an upcall that begins at the same moment.
use super::upcall::Upcall;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Upcalls that take longer than this part of `suspect_after` are reported.
const LIMIT_PART: u32 = 8;
/// The shortest time that is reported.
const LIMIT_MIN: Duration = Duration::from_millis(10);
/// The limit if silence is not suspected.
const LIMIT_ELSE: Duration = Duration::from_secs(1);
/// The number of looks within the limit.
const LOOKS: u32 = 2;
/// The time without upcalls after which the watching thread sleeps.
const QUIET: Duration = Duration::from_secs(1);
/// The shortest time between two warnings. Slow upcalls in between are counted.
const WARN_EVERY: Duration = Duration::from_secs(10);
const TARGET: &str = "spindle::handler";

/// How the handler of a member has kept the polling thread waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HandlerStatus {
    /// Upcalls that took longer than an eighth of `suspect_after`, as far as they were noticed: one
    /// that takes a quarter is.
    pub slow_calls: u64,
    /// How long such an upcall has been running by now, at least.
    pub running_for: Option<Duration>,
}

/// The words that the polling thread and the watching thread exchange.
#[derive(Debug)]
pub(crate) struct HandlerWatch {
    origin: Instant,
    /// Begins and ends of upcalls: odd while one runs. Only the polling thread writes it.
    count: AtomicU64,
    /// The watching thread sleeps until it is woken, or is about to.
    asleep: AtomicBool,
    stop: AtomicBool,
    watcher: OnceLock<Thread>,
    slow_calls: AtomicU64,
    /// The count during the newest slow upcall, and its begin in ns from `origin`.
    slow: AtomicU64,
    slow_since: AtomicU64,
}

/// Marks that an upcall runs, as long as this lives.
pub(crate) struct Running<'a> {
    watch: &'a HandlerWatch,
    _upcall: Upcall,
}

impl HandlerWatch {
    pub(crate) fn new() -> HandlerWatch {
        let (count, asleep, stop, watcher, slow_calls, slow, slow_since) = Default::default();
        HandlerWatch { origin: Instant::now(), count, asleep, stop, watcher, slow_calls, slow, slow_since }
    }

    /// Begins an upcall.
    #[inline]
    pub(crate) fn enter(&self) -> Running<'_> {
        self.advance();
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
        Running { watch: self, _upcall: Upcall::enter() }
    }

    #[inline]
    fn advance(&self) {
        // One thread writes: plain additions. Relaxed: nothing else is read by this word.
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::Relaxed)
            && let Some(watcher) = self.watcher.get()
        {
            watcher.unpark();
        }
    }

    pub(crate) fn status(&self) -> HandlerStatus {
        let count = self.count.load(Ordering::Relaxed);
        let is_slow = count % 2 == 1 && self.slow.load(Ordering::Acquire) == count;
        let since = Duration::from_nanos(self.slow_since.load(Ordering::Relaxed));
        let running_for = is_slow.then(|| self.origin.elapsed().saturating_sub(since));
        HandlerStatus { slow_calls: self.slow_calls.load(Ordering::Relaxed), running_for }
    }

    /// Ends the watching thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }

    /// Watches the upcalls of member `me` on this thread, until it is [stopped](Self::stop).
    pub(crate) fn run(&self, me: u64, suspect_after: Option<Duration>) {
        let _ = self.watcher.set(thread::current());
        let limit = suspect_after.map_or(LIMIT_ELSE, |after| (after / LIMIT_PART).max(LIMIT_MIN));
        let mut seen = (self.count.load(Ordering::Relaxed), Instant::now());
        let mut warned: Option<Instant> = None;
        // The slow upcall that runs: when it was seen first, and whether that was reported.
        let mut slow: Option<(Instant, bool)> = None;
        while !self.stop.load(Ordering::Acquire) {
            let (count, now) = (self.count.load(Ordering::Relaxed), Instant::now());
            let ran = now.saturating_duration_since(seen.1);
            if count != seen.0 {
                if let Some((since, true)) = slow.take() {
                    let took_ms = now.saturating_duration_since(since).as_millis() as u64;
                    info!(target: TARGET, me, took_ms, "the slow handler has returned");
                }
                seen = (count, now);
            } else if count % 2 == 1 && ran >= limit && slow.is_none() {
                let since = seen.1.saturating_duration_since(self.origin).as_nanos() as u64;
                self.slow_since.store(since, Ordering::Relaxed);
                // Release: a thread that sees this call sees its begin.
                self.slow.store(count, Ordering::Release);
                let slow_calls = self.slow_calls.fetch_add(1, Ordering::Relaxed) + 1;
                let tells = warned.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY);
                slow = Some((seen.1, tells));
                if tells {
                    warned = Some(now);
                    warn!(
                        target: TARGET, me, running_ms = ran.as_millis() as u64, slow_calls,
                        suspect_after_ms = suspect_after.map(|after| after.as_millis() as u64),
                        "the handler runs long: meanwhile this member acknowledges nothing, and after suspect_after \
                         the others evict it; hand long work to another thread"
                    );
                }
            } else if count % 2 == 0 && ran >= QUIET {
                if !self.asleep.swap(true, Ordering::Relaxed) {
                    // Any upcall that has missed this is seen after an interval.
                    thread::park_timeout(limit / LOOKS);
                } else {
                    thread::park();
                }
                continue;
            }
            thread::park_timeout(limit / LOOKS);
        }
    }
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.watch.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(20);

    fn until(what: &str, done: impl Fn() -> bool) {
        let patience = Instant::now() + LONG;
        while !done() {
            assert!(Instant::now() < patience, "{what}");
            thread::yield_now();
        }
    }

    #[test]
    fn an_upcall_is_noticed_while_it_runs_and_once() {
        let watch = Arc::new(HandlerWatch::new());
        let watching = Arc::clone(&watch);
        let thread = thread::spawn(move || watching.run(1, Some(Duration::from_millis(80))));
        for slow_calls in 1..3 {
            // After the first sleep, too.
            until("sleep", || watch.asleep.load(Ordering::Relaxed));
            let running = watch.enter();
            until("notice", || watch.status().running_for >= Some(LIMIT_MIN));
            drop(running);
            assert_eq!(watch.status(), HandlerStatus { slow_calls, running_for: None });
        }
        watch.stop();
        thread.join().unwrap();
    }

    #[test]
    fn many_short_upcalls_are_not_a_long_one() {
        let watch = Arc::new(HandlerWatch::new());
        let watching = Arc::clone(&watch);
        let thread = thread::spawn(move || watching.run(1, None));
        let start = Instant::now();
        while start.elapsed() < 2 * LIMIT_ELSE {
            drop(watch.enter());
        }
        assert_eq!(watch.status(), HandlerStatus::default());
        watch.stop();
        thread.join().unwrap();
    }
}
