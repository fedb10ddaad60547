//! What the benchmark and its processes tell each other: one JSON value a line, over a process's standard input and output.
use super::{Algorithm, Fabric, Waiting};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first line that a process reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    /// The process that started it; it ends with that process.
    pub(super) parent: u32,
    /// A directory to meet in.
    pub(super) dir: PathBuf,
    pub(super) members: u32,
    /// 0 is the root.
    pub(super) rank: u32,
    pub(super) plan: Plan,
}

/// What all processes have to agree on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) fabric: Fabric,
    pub(super) algorithm: Algorithm,
    pub(super) racks: Option<u32>,
    pub(super) block: Option<u64>,
    pub(super) ahead: Option<u32>,
    pub(super) posts: Option<u32>,
    pub(super) direct: Option<u64>,
    pub(super) waiting: Waiting,
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// The multicast, until every receiver has the object: in a buffer of its own (tcp), or mapped (shm).
    Multicast,
    /// The multicast, until every receiver has read all bytes of it.
    Read,
    /// The multicast, until every receiver has copied it into a buffer of its own.
    Copy,
    /// The same bytes over one plain TCP stream, from the root to rank 1.
    Stream,
    /// The same bytes from one place to another, by the root alone.
    Memcpy,
}

/// What a process is told after that.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect to the others, who listen at these ports, by rank.
    Connect(Vec<u16>),
    /// Make ready for this.
    Trial {
        /// Of the object.
        bytes: u64,
        /// What to do.
        job: Job,
    },
    /// Begin; to the root.
    Go,
    /// Leave in order.
    Finish,
}

/// What a process answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It listens there.
    Listening(u16),
    /// It has done what it was told, or is ready to.
    Ready,
    /// A trial is over.
    Done {
        /// When it began, by the machine's monotonic clock: what counts is the root's.
        begin_ns: u64,
        /// When it had what the job asks for.
        end_ns: u64,
        /// CPU time that it took.
        cpu_ns: u64,
        /// Bytes that it has sent to other racks.
        across: u64,
        /// Of the object as it was sent, or has come.
        digest: u64,
    },
    /// It gives up.
    Failed(String),
}
