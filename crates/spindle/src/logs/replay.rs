//! How far a log is replayed to the handler of a member that was started again.
use spindle_log::{Hold, Reader};
use std::fmt;

/// The replay of one log.
pub(crate) enum Replay {
    /// The handler was not asked yet.
    Due,
    /// The messages of this reader are replayed.
    Runs {
        reader: Box<Reader>,
        /// Keeps what is not replayed yet from being pruned.
        hold: Hold,
        messages: u64,
    },
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Replay::Due => "Due",
            Replay::Runs { .. } => "Runs",
        })
    }
}
