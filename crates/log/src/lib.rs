//! The durable log of a member.
//!
//! A [`Store`] is an open data directory: a [`Log`] for each subgroup, and the [`Journal`] of the
//! agreement. A [`Writer`] owns a store on a thread of its own and commits what [`Appender`]s hand
//! over, in groups. [`Readers`] read what is durable while the writer appends. Start with [`Store`];
//! `log::scan` shows what happens after a crash.
//!
//! The crate decides nothing about groups: versions and clocks come from the caller, and a damaged
//! log is an error that names the lost range. It contains no `unsafe` code, and every operation of
//! the disk goes through the trait [`Disk`], so that the simulator runs the same code over a disk
//! that loses, tears and reorders writes.
//!
//! Invariants, cited where they are kept: LOG-PREFIX, LOG-ONCE and LOG-FRONTIER (module `log`),
//! LOG-FAIR (module `queue`). The page `docs/protocol/log.md` has the formats.
#![forbid(unsafe_code)]
#[cfg(not(target_os = "linux"))]
compile_error!("Spindle runs on Linux only: the log relies on its rules for fdatasync and directories");

mod backup;
mod chunk;
mod config;
pub mod disk;
mod error;
mod format;
mod journal;
pub mod limits;
mod log;
mod message;
pub mod mutation;
mod names;
mod offline;
mod queue;
mod repair;
mod snapshot;
mod store;
mod stream;
mod version;
mod writer;

pub use backup::{
    BackupError, BackupFile, BackupLog, BackupManifest, BackupVerification, BackupWriter, CutSource, Restored,
    read_manifest, restore, verify_backup,
};
pub use chunk::Chunk;
pub use config::Config;
pub use disk::{Disk, FileDisk};
pub use error::{Damage, Error, Result};
pub use format::{Identity, PayloadKind};
pub use journal::Journal;
pub use log::{Hold, Log, Place, Progress, Prunable, Reader, Readers, Report, Retention};
pub use message::LoggedMessage;
pub use names::LogEntry;
pub use offline::{
    Summary, Verification, as_owner_changed, export, journal_value, open_read_only, snapshots, summary, verify,
    verify_directory,
};
pub use queue::Queue;
pub use repair::repair;
pub use snapshot::{PreparedSnapshot, SnapshotInfo, SnapshotReader, SnapshotWriter, Snapshots};
pub use store::{Batch, DataDirectory, Store};
pub use stream::{StreamEnd, StreamError, StreamPart, StreamReader, StreamWriter};
pub use version::{Record, Version};
pub use writer::{Appender, Outcome, Writer, WriterHandle};
