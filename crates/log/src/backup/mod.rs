//! Backups: copies of the logs of a data directory up to one cut, from which the directories of a new
//! group are made.
//!
//! The *cut* is a clock: for each log a backup has all records with at most that clock, and none with a
//! later one. Clocks are the same at all members, so backups of several members at one cut have the same
//! records. [`BackupWriter`] copies logs while their owner appends and prunes; the caller knows that
//! all records of the cut are on the disk. The manifest is written last, so a backup that was not
//! finished has none. [`verify_backup`] reads every byte, and [`restore`] makes a data directory.
mod manifest;
mod restoring;
mod verifying;
mod writing;

pub use manifest::{BackupFile, BackupLog, BackupManifest};
pub use restoring::{Restored, restore};
pub use verifying::{BackupVerification, read_manifest, verify_backup};
pub use writing::{BackupWriter, CutSource};

use crate::error::Error;
use std::io;
use std::sync::Arc;

/// The file that says that a backup is whole, and what belongs to it.
const MANIFEST: &str = "manifest";
/// The file with the records of a log, in the directory of the log.
const RECORDS: &str = "records";

/// An error of a backup, of its verification, or of a restore.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// An operation on the logs failed.
    #[error(transparent)]
    Log(#[from] Error),
    /// The directory has no manifest.
    #[error("{path} is no backup, or one that was not finished: it has no file \"manifest\"; use another backup")]
    Unfinished {
        /// The directory.
        path: String,
    },
    /// A file of the backup is damaged.
    #[error("{path} is damaged: {reason}; use another backup")]
    Damaged {
        /// The file.
        path: String,
        /// The check that failed.
        reason: &'static str,
    },
    /// The backup has a format that this version does not read.
    #[error("{path} has format {found}, this version reads {expected}; use the version that wrote it")]
    Format {
        /// The manifest.
        path: String,
        /// The format of the backup.
        found: u32,
        /// The format of this version.
        expected: u32,
    },
    /// The directory for a backup, or for what is restored, has files already.
    #[error("{path} is not empty; name a directory that is empty or does not exist")]
    NotEmpty {
        /// The directory.
        path: String,
    },
    /// The disk is full.
    #[error(
        "{path} has no space: about {needed} more bytes are needed and {free} are free; free space or use another disk"
    )]
    Full {
        /// The file that was written.
        path: String,
        /// The bytes that are missing at most.
        needed: u64,
        /// The free bytes of the file system.
        free: u64,
    },
    /// The owner has pruned records of the cut that no snapshot of the cut contains.
    #[error(
        "the owner has pruned log {subgroup} up to {floor} meanwhile, behind snapshots that are later than the cut; choose a later cut"
    )]
    Overtaken {
        /// The number of the log.
        subgroup: u32,
        /// The last version that was pruned.
        floor: crate::Version,
    },
    /// The caller has stopped the work.
    #[error("the work was stopped before its end")]
    Stopped,
}

impl BackupError {
    /// Whether it is damage of the backup, or of the logs that are copied.
    pub fn is_damage(&self) -> bool {
        let is_log = |error: &Error| matches!(error, Error::Corrupt(_) | Error::CorruptFile { .. });
        match self {
            Self::Damaged { .. } | Self::Unfinished { .. } | Self::Format { .. } => true,
            Self::Log(error) => is_log(error),
            _ => false,
        }
    }
}

/// Returns the error of an operation on a file.
fn io_error(operation: &'static str, path: &str, cause: io::Error) -> BackupError {
    BackupError::Log(Error::Io { operation, path: path.to_owned(), cause: Arc::new(cause) })
}
