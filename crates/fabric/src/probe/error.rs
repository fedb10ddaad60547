//! The reasons why a probe gave no figure.
use std::time::Duration;

/// The reason why a probe gave no figure. Its child process is gone all the same.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// An argument is outside the range that the probe can measure.
    #[error("{what} is {got}, but must be {need}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// Its value.
        got: u64,
        /// The valid range.
        need: &'static str,
    },
    /// The system refused something that the probe needs.
    #[error("{call} failed: {source}; the probe needs a memfd mapping, one child process and its own affinity mask")]
    System {
        /// The call.
        call: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The child ended before the measurement did.
    #[error("the probe's child process {pid} ended early ({how}); run the probe again")]
    ChildDied {
        /// Its process id.
        pid: u32,
        /// How it ended.
        how: ChildEnd,
    },
    /// The other process made no progress in time.
    #[error("no progress while waiting for {what} within {limit:?}; is the machine overloaded, or the child stopped?")]
    Stalled {
        /// The event that was waited for.
        what: &'static str,
        /// The bound of the whole probe.
        limit: Duration,
    },
    /// A block does not contain the written bytes: the memory or the ring is broken, and no figure
    /// from it counts.
    #[error("block {block} or one of the {batch} before it reads back wrong: this machine's memory cannot be trusted")]
    Torn {
        /// The last block of the batch that was wrong.
        block: u64,
        /// Blocks in that batch.
        batch: u64,
    },
}

/// How a child process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildEnd {
    /// By itself, with this exit status: 0 is success, the others are listed in the probe's source.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// Other code took its status (the process ignores SIGCHLD).
    Unknown,
}

impl std::fmt::Display for ChildEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChildEnd::Exit(code) => write!(f, "exit status {code}"),
            ChildEnd::Signal(signal) => write!(f, "signal {signal}"),
            ChildEnd::Unknown => write!(f, "status unknown"),
        }
    }
}

/// Wraps a failed call.
pub(super) fn system(call: &'static str) -> impl FnOnce(rustix::io::Errno) -> ProbeError {
    move |errno| ProbeError::System { call, source: errno.into() }
}
