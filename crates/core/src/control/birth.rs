//! The start of a process, which tells it from others that have had its number.

/// The start of a process, and its namespace: they tell it from processes that had its number before. All zeros if the process does not know it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Birth {
    /// The inode of its namespace of processes.
    pub namespace: u64,
    /// When it began, in ticks since the system did.
    pub started: u64,
}
