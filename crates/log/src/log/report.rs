//! The progress and the result of a recovery.
use crate::version::Version;
use std::time::Duration;

/// How far a recovery has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The subgroup.
    pub subgroup: u32,
    /// The segments that have been read.
    pub segments: u64,
    /// The segments there are.
    pub segments_total: u64,
    /// The bytes that have been read.
    pub bytes: u64,
}

/// The result of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The segments with records.
    pub segments: u64,
    /// The records.
    pub records: u64,
    /// The bytes that were read and checked.
    pub bytes: u64,
    /// The bytes of the torn tail that was cut: written and never acknowledged.
    pub torn_bytes: u64,
    /// The segments that were begun and never acknowledged.
    pub torn_segments: u64,
    /// The first version.
    pub first: Option<Version>,
    /// The last version.
    pub last: Option<Version>,
    /// The duration.
    pub elapsed: Duration,
}
