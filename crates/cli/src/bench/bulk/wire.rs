//! Messages between the benchmark and its processes: one JSON value a line, over a process's
//! standard input and output.
use super::{AlgorithmArg, BulkFabric, WaitMode};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first line that a process reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BulkSetup {
    /// The process that started this one. This process ends with it.
    pub(super) parent: u32,
    /// The directory in which the processes meet.
    pub(super) dir: PathBuf,
    pub(super) members: u32,
    /// Rank of the process; 0 is the root.
    pub(super) rank: u32,
    pub(super) plan: BulkPlan,
}

/// The settings that all processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct BulkPlan {
    pub(super) fabric: BulkFabric,
    pub(super) algorithm: AlgorithmArg,
    pub(super) racks: Option<u32>,
    pub(super) block: Option<u64>,
    pub(super) ahead: Option<u32>,
    pub(super) posts: Option<u32>,
    pub(super) direct: Option<u64>,
    pub(super) waiting: WaitMode,
}

/// The operation that is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum BulkJob {
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
pub(super) enum BulkOrder {
    /// Connect to the others, which listen at these ports, by rank.
    Connect(Vec<u16>),
    /// Prepare for this trial.
    Trial {
        /// Bytes of the object.
        bytes: u64,
        /// The operation to time.
        job: BulkJob,
    },
    /// Begin. Only the root receives this order.
    Go,
    /// Leave in order.
    Finish,
}

/// An answer of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum BulkReply {
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
