//! The events of a run.
use super::LivenessWatch;
use crate::processes::process::Near;
use spindle_core::MemberId;
use spindle_core::control::{Address, Card};
use std::cmp::Ordering;

/// An event.
#[derive(Clone, Debug)]
pub(in crate::processes) enum ProcessEvent {
    Start {
        place: usize,
        id: Option<MemberId>,
    },
    Step {
        process: usize,
    },
    /// A disk has synced what it had begun to write for a log.
    LogSynced {
        process: usize,
        name: String,
    },
    /// The end of a log is removed.
    LogCut {
        process: usize,
        name: String,
    },
    /// A process is killed if it still waits for admission.
    KillWaiting {
        place: usize,
        down_ns: Option<u64>,
    },
    /// A process is killed that was to begin the first view of a group.
    KillFounding {
        process: usize,
        down_ns: Option<u64>,
    },
    Messages {
        process: usize,
        near: Near,
    },
    Death {
        process: usize,
        id: MemberId,
        of: usize,
    },
    Displaced {
        process: usize,
    },
    Attempt {
        number: usize,
    },
    Accepted {
        number: usize,
    },
    Concluded {
        number: usize,
        connection: usize,
    },
    Failed {
        number: usize,
        refused: bool,
    },
    Silence {
        connection: usize,
        end: usize,
        since: u64,
    },
    LifeEnds {
        process: usize,
        of: usize,
        tries: u32,
    },
    /// A process learns that the connection has ended that reports the end of another process.
    LifeBreaks {
        process: usize,
        life: LivenessWatch,
    },
    /// A process learns that another one has answered.
    Answers {
        process: usize,
        with: (Card, u128),
    },
    Exit {
        process: usize,
    },
    /// The seeds' name resolves to one more address, or to one less.
    Renamed {
        address: Address,
        is_there: bool,
    },
    /// A process gets the answer to a look-up of the seeds' name.
    LookedUp {
        process: usize,
        name: Address,
    },
    Fault(usize),
    Mend(usize),
    Tick,
}

#[derive(Debug)]
pub(super) struct QueuedEvent {
    pub(super) at: u64,
    pub(super) sequence: u64,
    pub(super) event: ProcessEvent,
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &QueuedEvent) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &QueuedEvent) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &QueuedEvent) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
