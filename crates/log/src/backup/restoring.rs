//! Makes the data directory of a member of a new group from a backup.
use super::BackupError;
use super::manifest::BackupManifest;
use super::verifying::read_records;
use crate::config::Config;
use crate::disk::Disk;
use crate::error::{Context, Error};
use crate::format::{Binding, Identity};
use crate::names::log_path;
use crate::snapshot::Snapshots;
use crate::store::Store;
use std::sync::Arc;

/// The bytes of records that are written between two syncs.
const SYNC_BYTES: u64 = 32 << 20;

/// The amounts that a restore has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// The records.
    pub records: u64,
    /// The snapshots.
    pub snapshots: u64,
}

/// Makes a data directory in `target`, which is empty, from a backup that was
/// [verified](super::verify_backup). The directory belongs to `identity`, a member of a new group: its
/// incarnation must not be that of the backup. `record` is a value for the journal, with its kind.
/// Calls `go_on` with the bytes of records that have been written, and stops if it returns false.
///
/// A directory in which this has failed is of no use: the caller removes it. The caller gives a
/// finished one the name by which a member finds it.
///
/// # Errors
/// [`BackupError::NotEmpty`]; [`Error::Foreign`] if the incarnation is that of the backup;
/// [`BackupError::Damaged`], [`Error::Full`], [`BackupError::Stopped`], [`Error::Io`].
pub fn restore(
    backup: &Arc<dyn Disk>,
    manifest: &BackupManifest,
    target: &Arc<dyn Disk>,
    identity: &Identity,
    record: Option<(u32, &[u8])>,
    config: Config,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Restored, BackupError> {
    let shown = target.shown("");
    if !target.list("").during("list", &shown)?.is_empty() {
        return Err(BackupError::NotEmpty { path: shown });
    }
    if identity.incarnation == manifest.incarnation {
        let found = format!("{:032x}, that of the group in the backup", identity.incarnation);
        let expected = "a new one".to_owned();
        return Err(Error::Foreign { path: shown, field: "incarnation", found, expected }.into());
    }
    let mut store = Store::open(target.clone(), identity, config)?;
    let (mut restored, mut before) = (Restored::default(), 0);
    for log in &manifest.logs {
        let number = match &log.name {
            Some(name) => store.open_named(name, &mut |_| ())?.0,
            None => store.open_log(log.number, &mut |_| ()).map(|_| log.number)?,
        };
        if let Some((floor, clock)) = log.floor {
            store.log(number)?.reset(floor, clock)?;
        }
        let (mut bytes, mut unsynced) = (0, 0);
        let mut write = |chunk: crate::Chunk| {
            let log = store.log(number)?;
            (bytes, unsynced) = (bytes + chunk.bytes(), unsynced + chunk.bytes());
            log.write(&mut [chunk])?;
            if unsynced >= SYNC_BYTES {
                unsynced = 0;
                log.sync()?;
            }
            Ok(())
        };
        read_records(&**backup, manifest, log, &mut write, &mut |bytes| go_on(before + bytes))?;
        store.log(number)?.sync()?;
        before += bytes;
        restored.records += log.records;
        restored.snapshots += copy_snapshots(backup, manifest, log, &store.snapshots(number)?)?;
    }
    // The last batch of each log counts as acknowledged from here on.
    store.record_frontiers()?;
    if let Some((kind, value)) = record {
        store.journal().put(kind, value)?;
    }
    Ok(restored)
}

fn copy_snapshots(
    backup: &Arc<dyn Disk>,
    manifest: &BackupManifest,
    log: &super::BackupLog,
    target: &Snapshots,
) -> Result<u64, BackupError> {
    let binding = Binding { incarnation: manifest.incarnation, subgroup: log.number };
    let source = Snapshots::new(backup.clone(), &log_path(log.number), binding, 0);
    let mut before = None;
    for version in &log.snapshots {
        let mut reader = source.open(*version).map_err(as_damage)?;
        let mut writer = target.begin(*version, reader.info().clock)?;
        while let Some(content) = reader.next().map_err(as_damage)? {
            writer.write(content)?;
        }
        writer.finish_beside(before)?;
        before = Some(*version);
    }
    Ok(log.snapshots.len() as u64)
}

/// Returns the error of a file of the backup, with the remedy for backups.
fn as_damage(error: Error) -> BackupError {
    match error {
        Error::CorruptFile { path, reason } => BackupError::Damaged { path, reason },
        error => error.into(),
    }
}
