//! Messages between the benchmark and its processes: one JSON value a line, over a process's
//! standard input and output.
use super::{Algorithm, Fabric, Waiting};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first line that a process reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    /// The process that started this one. This process ends with it.
    pub(super) parent: u32,
    /// The directory in which the processes meet.
    pub(super) dir: PathBuf,
    pub(super) members: u32,
    /// Rank of the process; 0 is the root.
    pub(super) rank: u32,
    pub(super) plan: Plan,
}

/// The settings that all processes share.
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

/// The operation that is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// The multicast, until every receiver has the object: in a buffer of its own (tcp), or mapped
    /// (shm).
    Multicast,
    /// The multicast, until every receiver has read all bytes of it.
    Read,
    /// The multicast, until every receiver has copied it into a buffer of its own.
    Copy,
    /// The same bytes over one plain TCP stream, from the root to rank 1.
    Stream,
    /// A copy of the same bytes within memory, by the root alone.
    Memcpy,
}

/// An order that follows the setup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect to the others, which listen at these ports, by rank.
    Connect(Vec<u16>),
    /// Prepare for this trial.
    Trial {
        /// Bytes of the object.
        bytes: u64,
        /// The operation to time.
        job: Job,
    },
    /// Begin. Only the root receives this order.
    Go,
    /// Leave in order.
    Finish,
}

/// An answer of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The process listens at this port.
    Listening(u16),
    /// The process has carried out its order, or is ready to.
    Ready,
    /// A trial is over.
    Done {
        /// Start of the trial, on the machine's monotonic clock. The root's value counts.
        begin_ns: u64,
        /// Time at which the process had finished the job.
        end_ns: u64,
        /// CPU time that the trial took.
        cpu_ns: u64,
        /// Bytes that the process has sent to other racks.
        across: u64,
        /// Digest of the object as it was sent or received.
        digest: u64,
    },
    /// The process gives up, with the error.
    Failed(String),
}
