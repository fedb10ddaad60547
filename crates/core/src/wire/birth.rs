//! The start of a process, which distinguishes it from other processes that have had its number.

/// The start of a process and its namespace, which distinguish it from earlier processes with the
/// same number. All zeros if they are not known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Birth {
    /// The inode of its PID namespace.
    pub namespace: u64,
    /// The start time, in ticks since the system started.
    pub started: u64,
}
