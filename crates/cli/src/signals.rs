//! SIGINT, SIGTERM and SIGHUP: the first asks the command to stop in order, the second ends the process.
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

/// The signals received so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// A flag for waits that check one.
    pub(crate) flag: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl Stop {
    /// Handles the signals from now on, except for a SIGHUP that the command was started to ignore,
    /// as by `nohup`. The first signal calls `tell` on a thread of its own.
    pub(crate) fn on_signals(tell: impl Fn(i32) + Send + 'static) -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let handled = [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP));
        let mut signals = Signals::new(handled).context("can't take over SIGINT, SIGTERM and SIGHUP")?;
        let noted = stop.clone();
        let watch = move || {
            for signal in signals.forever() {
                if noted.flag.swap(true, Ordering::AcqRel) {
                    process::exit(128 + signal);
                }
                noted.signal.store(signal, Ordering::Release);
                tell(signal);
            }
        };
        thread::Builder::new().name("signals".into()).spawn(watch).context("no thread could be started")?;
        Ok(stop)
    }

    /// Returns the first signal, or SIGINT if there was none.
    pub(crate) fn signal(&self) -> i32 {
        match self.signal.load(Ordering::Acquire) {
            0 => SIGINT,
            signal => signal,
        }
    }
}

/// Checks whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
