//! Versions and records, as callers see them.
use std::fmt;

/// The place of a record in its subgroup's order: the epoch, then the sequence number in it.
///
/// Versions grow along a log and need not be contiguous: nulls take sequence numbers too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version {
    /// The epoch of the subgroup.
    pub epoch: u64,
    /// The sequence number in that epoch.
    pub sequence: u64,
}

impl Version {
    /// The lowest version.
    pub const MIN: Self = Self::new(0, 0);

    /// A version from its parts.
    pub const fn new(epoch: u64, sequence: u64) -> Self {
        Self { epoch, sequence }
    }

    /// The lowest version above this one.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.sequence.checked_add(1) {
            Some(sequence) => Self { epoch: self.epoch, sequence },
            None => Self { epoch: self.epoch.saturating_add(1), sequence: 0 },
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.sequence)
    }
}

/// One record, borrowed from where it was read or built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its version.
    pub version: Version,
    /// The hybrid logical clock, which never falls along a log.
    pub clock: u64,
    /// The application's bytes.
    pub payload: &'a [u8],
}

/// An optional version, for messages.
pub(crate) struct Shown(pub(crate) Option<Version>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(version) => version.fmt(f),
            None => f.write_str("the beginning"),
        }
    }
}
