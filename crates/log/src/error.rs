//! The errors, with the values and the remedy.
use crate::version::{Shown, Version};
use std::{io, sync::Arc, time::Duration};

/// The result of an operation of the log.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A damaged place below what was acknowledged as durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub path: String,
    /// The offset of the first damaged byte that was noticed, in bytes.
    pub offset: u64,
    /// The subgroup of the log.
    pub subgroup: u32,
    /// The number of the segment.
    pub segment: u64,
    /// The last intact version before the damage.
    pub after: Option<Version>,
    /// The first intact version after the damage, if there is one.
    pub before: Option<Version>,
    /// The highest version that is known to have been durable and is lost, if no intact one follows.
    pub through: Option<Version>,
    /// The reason: which check failed.
    pub reason: &'static str,
}

/// An error of the log.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the disk failed.
    #[error("{operation} {path}: {cause}; look at the disk and the kernel's log")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: String,
        /// The cause.
        cause: Arc<io::Error>,
    },
    /// An earlier write or sync failed, so the state of the disk is unknown.
    #[error("the log takes nothing more after a failure: {cause}; leave the group and open the directory again")]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The disk has too little space. Nothing was written.
    #[error(
        "no space for {needed} bytes: {free} bytes are free and {reserve} are reserved; free space or prune the log"
    )]
    Full {
        /// The bytes that the operation needs.
        needed: u64,
        /// The free bytes of the file system.
        free: u64,
        /// The bytes kept for the agreement and for pruning.
        reserve: u64,
    },
    /// Acknowledged data is damaged.
    #[error(
        "{} is damaged at offset {}: {}; versions after {} up to {} are lost; rejoin as a learner and repair the range from a peer",
        .0.path, .0.offset, .0.reason, Shown(.0.after), Shown(.0.before.or(.0.through))
    )]
    Corrupt(Box<Damage>),
    /// A file other than a segment is damaged.
    #[error("{path} is damaged: {reason}; restore the directory from a backup or rejoin with an empty one")]
    CorruptFile {
        /// The file.
        path: String,
        /// The check that failed.
        reason: &'static str,
    },
    /// The requested record was pruned.
    #[error("the record was pruned: the oldest is {oldest}; start from a snapshot")]
    Pruned {
        /// The oldest version that is left.
        oldest: Version,
    },
    /// A cut removed the records that the reader was to read next.
    #[error("the log was cut before {version}; seek again")]
    WasCut {
        /// The last version that the reader has read.
        version: Version,
    },
    /// Another process owns the directory.
    #[error("{path} is in use by process {pid}; stop that process or use another directory")]
    Locked {
        /// The directory.
        path: String,
        /// The owner's process id, or 0 if the file does not say.
        pid: u32,
    },
    /// The owner of the directory changed the log again and again while it was read.
    #[error("{path} changed while it was read; try again, or stop the process that owns the directory")]
    Busy {
        /// The directory of the log.
        path: String,
    },
    /// The directory belongs to another group or member, or another incarnation of the group.
    #[error("{path} belongs to another {field}: found {found}, expected {expected}; use the directory of this member")]
    Foreign {
        /// The directory.
        path: String,
        /// The field that differs.
        field: &'static str,
        /// The value on disk.
        found: String,
        /// The value asked for.
        expected: String,
    },
    /// A file has a format that this version does not read.
    #[error("{path} has format {found}, this version reads {expected}; use the version that wrote it")]
    Format {
        /// The file.
        path: String,
        /// The format on disk.
        found: u32,
        /// The format of this version.
        expected: u32,
    },
    /// A record does not follow the last one.
    #[error("record {given} with clock {clock} does not follow {} with clock {last_clock}; append in order", Shown(*.last))]
    Order {
        /// The last version.
        last: Option<Version>,
        /// The last clock.
        last_clock: u64,
        /// The version of the record.
        given: Version,
        /// The clock of the record.
        clock: u64,
    },
    /// A value exceeds its maximum.
    #[error("{name} is {value}: the range is {min} to {max}; choose a value in it")]
    Range {
        /// The name of the value.
        name: &'static str,
        /// The value.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// The queue of a subgroup is full.
    #[error("the queue holds {queued} of {max} bytes; append again once the disk has caught up")]
    QueueFull {
        /// The bytes in the queue.
        queued: u64,
        /// Its maximum.
        max: u64,
    },
    /// The subgroup has no log here.
    #[error("subgroup {subgroup} has no open log; open it first")]
    Unknown {
        /// The subgroup.
        subgroup: u32,
    },
    /// Records for a repair do not fit the damaged range.
    #[error("repair record {given} is outside the range after {} and before {}; ask the peer for that range", Shown(*.after), Shown(*.before))]
    Misfit {
        /// The version that does not fit.
        given: Version,
        /// The range begins after this.
        after: Option<Version>,
        /// The range ends before this.
        before: Option<Version>,
    },
    /// The disk has not taken in time what is queued.
    #[error(
        "the disk has not answered for {waited:?}; the log's thread waits for it further, and keeps the directory locked meanwhile"
    )]
    Hung {
        /// How long the caller has waited.
        waited: Duration,
    },
    /// The writer's thread has ended.
    #[error("the log's writer has stopped; open the log again")]
    Stopped,
}

impl Error {
    /// Whether the error leaves the log usable.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::QueueFull { .. })
    }
}

/// Adds the operation and the path to an error of the disk.
pub(crate) trait Context<T> {
    fn during(self, operation: &'static str, path: &str) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn during(self, operation: &'static str, path: &str) -> Result<T> {
        self.map_err(|cause| Error::Io { operation, path: path.to_owned(), cause: Arc::new(cause) })
    }
}

pub(crate) fn in_range(name: &'static str, value: u64, min: u64, max: u64) -> Result<()> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(Error::Range { name, value, min, max }) }
}
