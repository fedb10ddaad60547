//! Copies logs into a backup, while their owner may append and prune.
use super::manifest::{BackupFile, BackupLog, BackupManifest};
use super::{BackupError, MANIFEST, RECORDS, io_error};
use crate::disk::{Disk, File, read_full, replace_file, write_all};
use crate::error::{Context, Error};
use crate::format::{Binding, Identity};
use crate::limits::PAGE_BYTES;
use crate::log::Readers;
use crate::log::scan::read_slot;
use crate::names::log_path;
use crate::offline::{as_owner_changed, open_read_only};
use crate::snapshot::{SnapshotReader, Snapshots};
use crate::stream::{StreamEnd, StreamWriter};
use crate::version::Version;
use crc32c::crc32c_append;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

/// How often a log is read again whose owner has pruned records that were to be read next.
const ATTEMPTS: u32 = 16;
/// The most snapshots of a log that a backup has: the newest ones of the cut, as their owner keeps them.
const SNAPSHOTS_MAX: usize = 2;
/// The bytes that are read at once to compute a checksum.
const READ_BYTES: usize = 1 << 20;

/// A log that is copied up to the cut. Its snapshots are open, so they can be read although the owner
/// removes them.
pub struct CutSource {
    disk: Arc<dyn Disk>,
    number: u32,
    name: Option<String>,
    cut: u64,
    /// In ascending order.
    snapshots: Vec<SnapshotReader>,
}

impl CutSource {
    /// Opens a log for a backup of all records with at most the clock `cut`.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such log, [`Error::CorruptFile`], [`Error::Io`].
    pub fn open(disk: &Arc<dyn Disk>, number: u32, name: Option<String>, cut: u64) -> Result<CutSource, BackupError> {
        let snapshots = open_snapshots(&crate::offline::snapshots(disk, number)?, cut)?;
        Ok(CutSource { disk: disk.clone(), number, name, cut, snapshots })
    }

    /// The floor of the log and its clock, if a restore has what is needed above it.
    fn floor(&mut self, readers: &Readers, binding: Binding) -> Result<Option<(Version, u64)>, BackupError> {
        let Some(floor) = readers.floor() else { return Ok(None) };
        let slot = read_slot(&*self.disk, &log_path(self.number), binding)?;
        let clock = if slot.floor == Some(floor) { slot.floor_clock } else { 0 };
        let has_one = |readers: &[SnapshotReader]| readers.iter().any(|reader| reader.info().version >= floor);
        let all = crate::offline::snapshots(&self.disk, self.number)?;
        if !has_one(&self.snapshots) && !all.versions()?.is_empty() {
            // The owner has made others since this log was opened.
            self.snapshots = open_snapshots(&all, self.cut)?;
            if !has_one(&self.snapshots) {
                return Err(BackupError::Overtaken { subgroup: self.number, floor });
            }
        }
        Ok(Some((floor, clock)))
    }
}

/// Opens the newest snapshots that have no later clock than the cut, in ascending order.
fn open_snapshots(all: &Snapshots, cut: u64) -> Result<Vec<SnapshotReader>, BackupError> {
    let mut opened: Vec<SnapshotReader> = Vec::new();
    for version in all.versions()? {
        match all.open(version) {
            Ok(reader) if reader.info().clock <= cut => opened.push(reader),
            Ok(_) => {}
            Err(error) if is_removed(&error) => {}
            Err(error) => return Err(error.into()),
        }
        if opened.len() == SNAPSHOTS_MAX {
            break;
        }
    }
    opened.reverse();
    Ok(opened)
}

fn is_removed(error: &Error) -> bool {
    matches!(error, Error::Io { cause, .. } if cause.kind() == ErrorKind::NotFound)
}

/// Writes a backup. Without [`finish`](Self::finish) no file of it is left, only empty directories.
pub struct BackupWriter {
    disk: Arc<dyn Disk>,
    source: Identity,
    cut: u64,
    logs: Vec<BackupLog>,
    files: Vec<BackupFile>,
    /// The files that have been begun.
    begun: Vec<String>,
    is_done: bool,
}

impl BackupWriter {
    /// Begins a backup of the directory of `source` in the empty directory `disk`.
    ///
    /// # Errors
    /// [`BackupError::NotEmpty`], [`Error::Io`].
    pub fn begin(disk: Arc<dyn Disk>, source: Identity, cut: u64) -> Result<BackupWriter, BackupError> {
        let shown = disk.shown("");
        if !disk.list("").during("list", &shown)?.is_empty() {
            return Err(BackupError::NotEmpty { path: shown });
        }
        let (logs, files, begun) = Default::default();
        Ok(BackupWriter { disk, source, cut, logs, files, begun, is_done: false })
    }

    /// Copies a log: its records of the cut and its snapshots. All these records must be on the disk of
    /// their owner. Calls `go_on` with the bytes of this log that have been read or written, and stops
    /// if it returns false.
    ///
    /// Records that the owner prunes meanwhile are left out if a snapshot of the cut contains them, or
    /// if the log has none: then the backup begins where the log begins now.
    ///
    /// # Errors
    /// [`BackupError::Overtaken`], [`BackupError::Full`], [`BackupError::Stopped`], [`Error::Corrupt`]
    /// if the log is damaged, [`Error::Busy`] if its owner changes it faster than it is read,
    /// [`Error::Io`].
    pub fn add(
        &mut self,
        mut source: CutSource,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<&BackupLog, BackupError> {
        let binding = Binding { incarnation: self.source.incarnation, subgroup: source.number };
        let directory = log_path(source.number);
        self.disk.create_directory(&directory).during("create", &self.disk.shown(&directory))?;
        let mut attempts = 0;
        let mut log = loop {
            let error = match self.copy_records(&mut source, binding, go_on) {
                Ok(log) => break log,
                Err(BackupError::Log(error)) => as_owner_changed(&source.disk, source.number, error),
                Err(error) => return Err(error),
            };
            attempts += 1;
            let has_changed = matches!(error, Error::Pruned { .. } | Error::Busy { .. });
            if !has_changed || attempts == ATTEMPTS {
                return Err(error.into());
            }
        };
        let snapshots = std::mem::take(&mut source.snapshots);
        for reader in snapshots.into_iter().filter(|reader| Some(reader.info().version) >= log.floor.map(|at| at.0)) {
            log.snapshots.push(self.copy_snapshot(reader, binding, log.snapshots.last().copied(), go_on)?);
        }
        self.disk.sync_directory(&directory).during("sync", &self.disk.shown(&directory))?;
        let at = self.logs.len();
        self.logs.push(log);
        Ok(&self.logs[at])
    }

    fn copy_records(
        &mut self,
        source: &mut CutSource,
        binding: Binding,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<BackupLog, BackupError> {
        let (readers, _) = open_read_only(&source.disk, source.number, &mut |_| ())?;
        let floor = source.floor(&readers, binding)?;
        let path = format!("{}/{RECORDS}", log_path(source.number));
        let mut log = BackupLog { number: source.number, name: source.name.clone(), floor, ..BackupLog::default() };
        let out = self.create(&path)?;
        let shown = self.disk.shown(&path);
        let mut estimate = record_bytes(&readers);
        let mut writer = StreamWriter::new(out);
        let mut reader = readers.reader();
        let mut bytes = 0;
        while let Some(record) = reader.next()? {
            if record.clock > source.cut {
                break;
            }
            log.first.get_or_insert(record.version);
            log.last = Some((record.version, record.clock));
            log.records += 1;
            bytes += record.payload.len() as u64;
            estimate = estimate.max(bytes);
            writer.put(&record).map_err(|error| self.write_error(&shown, estimate - bytes, error))?;
            if !go_on(bytes) {
                return Err(BackupError::Stopped);
            }
        }
        let out =
            writer.finish(StreamEnd::Complete).map_err(|error| self.write_error(&shown, estimate - bytes, error))?;
        out.file.sync_data().map_err(|error| self.write_error(&shown, 0, error))?;
        self.files.push(BackupFile { path, bytes: out.offset, checksum: out.checksum });
        Ok(log)
    }

    /// Copies a snapshot, which is verified while it is read.
    fn copy_snapshot(
        &mut self,
        mut reader: SnapshotReader,
        binding: Binding,
        before: Option<Version>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Version, BackupError> {
        let info = reader.info();
        let directory = log_path(binding.subgroup);
        let target = Snapshots::new(self.disk.clone(), &directory, binding, 0);
        let path = Snapshots::path_in(&directory, info.version);
        let shown = self.disk.shown(&path);
        self.begun.push(path.clone());
        let full = |error, left| match error {
            Error::Full { free, .. } => BackupError::Full { path: shown.clone(), needed: left, free },
            Error::Io { cause, .. } if cause.kind() == ErrorKind::StorageFull => self.full(&shown, left),
            error => error.into(),
        };
        let mut writer = target.begin(info.version, info.clock).map_err(|error| full(error, info.bytes))?;
        let mut bytes = 0;
        while let Some(content) = reader.next()? {
            writer.write(content).map_err(|error| full(error, info.bytes - bytes))?;
            bytes += content.len() as u64;
            if !go_on(bytes) {
                return Err(BackupError::Stopped);
            }
        }
        writer.finish_beside(before).map_err(|error| full(error, PAGE_BYTES))?;
        let file = self.disk.open(&path).during("open", &shown)?;
        let (bytes, checksum) = checksum_of(&*file, &mut |_| true).map_err(|error| io_error("read", &shown, error))?;
        self.files.push(BackupFile { path, bytes, checksum });
        Ok(info.version)
    }

    /// Finishes the backup. `record` is the record of the last view as the journal has it, read after
    /// the logs; `taken_at` is the time in ns since 1970; `is_settled` says that the group gives no
    /// further record a clock of at most the cut.
    ///
    /// # Errors
    /// [`BackupError::Full`], [`Error::Io`]. Nothing that looks like a backup is left.
    pub fn finish(
        mut self,
        record: Vec<u8>,
        (taken_at, is_settled): (u64, bool),
        software: &str,
    ) -> Result<BackupManifest, BackupError> {
        let Identity { group, member, incarnation, payloads } = self.source.clone();
        let (mut logs, files) = (std::mem::take(&mut self.logs), std::mem::take(&mut self.files));
        logs.sort_by_key(|log| log.number);
        let (cut, software) = (self.cut, software.to_owned());
        let manifest = BackupManifest {
            group,
            incarnation,
            member,
            payloads,
            cut,
            taken_at,
            is_settled,
            software,
            record,
            logs,
            files,
        };
        self.begun.push(format!("{MANIFEST}{}", crate::disk::TEMPORARY));
        let bytes = manifest.encode();
        self.disk.sync_directory("").during("sync", &self.disk.shown(""))?;
        replace_file(&*self.disk, "", MANIFEST, &bytes, 0).map_err(|error| match error {
            Error::Io { ref cause, .. } if cause.kind() == ErrorKind::StorageFull => {
                self.full(&self.disk.shown(MANIFEST), bytes.len() as u64)
            }
            error => error.into(),
        })?;
        self.is_done = true;
        Ok(manifest)
    }

    fn create(&mut self, path: &str) -> Result<Output, BackupError> {
        // An attempt before may have begun the file.
        self.begun.retain(|begun| begun != path);
        self.begun.push(path.to_owned());
        let shown = self.disk.shown(path);
        let file = self.disk.create(path, 0).map_err(|error| self.write_error(&shown, PAGE_BYTES, error))?;
        Ok(Output { file, offset: 0, checksum: 0 })
    }

    fn write_error(&self, shown: &str, left: u64, error: io::Error) -> BackupError {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::WriteZero => self.full(shown, left),
            _ => io_error("write", shown, error),
        }
    }

    fn full(&self, shown: &str, needed: u64) -> BackupError {
        BackupError::Full { path: shown.to_owned(), needed, free: self.disk.free_bytes().unwrap_or(0) }
    }
}

impl Drop for BackupWriter {
    fn drop(&mut self) {
        if !self.is_done {
            // No manifest exists, so what can't be removed is no backup either.
            self.begun.iter().for_each(|path| drop(self.disk.remove(path)));
        }
    }
}

/// The bytes that the records of a log take in its segments.
fn record_bytes(readers: &Readers) -> u64 {
    readers.shared.view().segments.iter().map(|segment| segment.body().end.saturating_sub(PAGE_BYTES)).sum()
}

/// A file that is written from its beginning to its end.
struct Output {
    file: Arc<dyn File>,
    offset: u64,
    checksum: u32,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_all(&*self.file, &[bytes], self.offset)?;
        self.offset += bytes.len() as u64;
        self.checksum = crc32c_append(self.checksum, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the length of a file and the checksum of all its bytes. Calls `go_on` with the bytes that
/// have been read, and ends if it returns false.
pub(super) fn checksum_of(file: &dyn File, go_on: &mut dyn FnMut(u64) -> bool) -> io::Result<(u64, u32)> {
    let (mut buffer, mut offset, mut checksum) = (vec![0; READ_BYTES], 0, 0);
    loop {
        let read = read_full(file, &mut buffer, offset)?;
        checksum = crc32c_append(checksum, &buffer[..read]);
        offset += read as u64;
        if read < buffer.len() || !go_on(offset) {
            return Ok((offset, checksum));
        }
    }
}
