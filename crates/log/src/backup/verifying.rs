//! Reads a backup: its manifest, and every byte of its files.
use super::manifest::{BACKUP_FORMAT, BackupFile, BackupLog, BackupManifest, MANIFEST_BYTES_MAX, NoManifest};
use super::writing::checksum_of;
use super::{BackupError, MANIFEST, RECORDS, io_error};
use crate::disk::{Disk, File, read_file};
use crate::error::{Context, Error};
use crate::format::Binding;
use crate::names::log_path;
use crate::snapshot::Snapshots;
use crate::stream::{StreamEnd, StreamError, StreamPart, StreamReader};
use crate::version::Version;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

/// The result of a verification.
#[derive(Clone, Debug)]
pub struct BackupVerification {
    /// The contents of the backup.
    pub manifest: BackupManifest,
    /// The damaged files, one error for each.
    pub findings: Vec<BackupError>,
}

/// Reads the manifest of a backup.
///
/// # Errors
/// [`BackupError::Unfinished`], [`BackupError::Damaged`], [`BackupError::Format`], [`Error::Io`].
pub fn read_manifest(disk: &dyn Disk) -> Result<BackupManifest, BackupError> {
    let (path, directory) = (disk.shown(MANIFEST), disk.shown(""));
    if !disk.list("").during("list", &directory)?.iter().any(|name| name == MANIFEST) {
        return Err(BackupError::Unfinished { path: directory });
    }
    let bytes = disk.open(MANIFEST).and_then(|file| file.bytes()).during("open", &path)?;
    if bytes > MANIFEST_BYTES_MAX {
        return Err(BackupError::Damaged { path, reason: "it is too long" });
    }
    BackupManifest::parse(&read_file(disk, MANIFEST, bytes)?).map_err(|found| match found {
        NoManifest::Format(found) => BackupError::Format { path, found, expected: BACKUP_FORMAT },
        NoManifest::Damaged(reason) => BackupError::Damaged { path, reason },
    })
}

/// Reads every byte of a backup and checks every checksum, and that the records follow each other and
/// are of the cut. Calls `go_on` with the bytes that have been read, and stops if it returns false.
///
/// # Errors
/// As [`read_manifest`], and [`BackupError::Stopped`]. Damage of other files is no error but a finding.
pub fn verify_backup(
    disk: &Arc<dyn Disk>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<BackupVerification, BackupError> {
    let manifest = read_manifest(&**disk)?;
    let (mut findings, mut done) = (Vec::new(), 0);
    for file in &manifest.files {
        let mut stopped = false;
        let found = verify_file(&**disk, file, &mut |bytes| {
            stopped |= !go_on(done + bytes);
            !stopped
        });
        if stopped {
            return Err(BackupError::Stopped);
        }
        match found {
            Err(error) if error.is_damage() => findings.push(error),
            found => found?,
        }
        done += file.bytes;
    }
    let is_whole = |path: &str, findings: &[BackupError]| {
        let shown = disk.shown(path);
        !findings.iter().any(|finding| matches!(finding, BackupError::Damaged { path, .. } if *path == shown))
    };
    for log in &manifest.logs {
        let directory = log_path(log.number);
        let records = format!("{directory}/{RECORDS}");
        if is_whole(&records, &findings) {
            match read_records(&**disk, &manifest, log, &mut |_| Ok(()), &mut |_| go_on(done)) {
                Err(error) if error.is_damage() => findings.push(error),
                found => found?,
            }
        }
        let binding = Binding { incarnation: manifest.incarnation, subgroup: log.number };
        let snapshots = Snapshots::new(disk.clone(), &directory, binding, 0);
        for version in &log.snapshots {
            let path = Snapshots::path_in(&directory, *version);
            if is_whole(&path, &findings) && !manifest.files.iter().any(|file| file.path == path) {
                let reason = "the manifest lists it as a snapshot, and not as a file";
                findings.push(BackupError::Damaged { path: disk.shown(&path), reason });
            }
            if is_whole(&path, &findings) {
                let read = snapshots.open(*version).and_then(|mut reader| {
                    while reader.next()?.is_some() {}
                    Ok(())
                });
                match read {
                    Err(Error::CorruptFile { path, reason }) => findings.push(BackupError::Damaged { path, reason }),
                    read => read?,
                }
            }
        }
    }
    Ok(BackupVerification { manifest, findings })
}

/// Compares a file with its entry.
fn verify_file(disk: &dyn Disk, entry: &BackupFile, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), BackupError> {
    let path = disk.shown(&entry.path);
    let damaged = |reason| Err(BackupError::Damaged { path: path.clone(), reason });
    let file = match disk.open(&entry.path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return damaged("the file is missing"),
        file => file.during("open", &path)?,
    };
    let length = file.bytes().during("read the length of", &path)?;
    if length < entry.bytes {
        return damaged("the file is cut off: it is shorter than the manifest says");
    }
    if length > entry.bytes {
        return damaged("the file is longer than the manifest says");
    }
    let (_, checksum) = checksum_of(&*file, go_on).map_err(|error| io_error("read", &path, error))?;
    if checksum != entry.checksum { damaged("its checksum differs") } else { Ok(()) }
}

/// Reads the records of a log, checks them against the manifest, and calls `take` with each chunk.
/// Stops if `go_on`, which gets the bytes of records so far, returns false.
pub(super) fn read_records(
    disk: &dyn Disk,
    manifest: &BackupManifest,
    log: &BackupLog,
    take: &mut dyn FnMut(crate::Chunk) -> Result<(), BackupError>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(), BackupError> {
    let name = format!("{}/{RECORDS}", log_path(log.number));
    let path = disk.shown(&name);
    let damaged = |reason| BackupError::Damaged { path: path.clone(), reason };
    let file = match disk.open(&name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(damaged("the file is missing")),
        file => file.during("open", &path)?,
    };
    let mut input = Input { file, offset: 0 };
    let mut reader = StreamReader::new(&mut input, log.floor);
    let (mut records, mut bytes) = (0, 0);
    let (mut first, mut last): (Option<Version>, Option<(Version, u64)>) = (None, None);
    loop {
        match reader.read_part() {
            Ok(StreamPart::Records(chunk)) => {
                first = first.or(chunk.first());
                last = chunk.last_with_clock();
                if last.is_some_and(|(_, clock)| clock > manifest.cut) {
                    return Err(damaged("it has a record that is later than the cut"));
                }
                records += u64::from(chunk.records());
                bytes += chunk.bytes();
                take(chunk)?;
                if !go_on(bytes) {
                    return Err(BackupError::Stopped);
                }
            }
            Ok(StreamPart::End(StreamEnd::Complete)) => break,
            Ok(StreamPart::End(_)) => return Err(damaged("its records have no end")),
            Err(StreamError::Damaged { reason, .. }) => return Err(damaged(reason)),
            Err(StreamError::Order(_)) => return Err(damaged("its records do not follow each other")),
            Err(StreamError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(damaged("the file is cut off"));
            }
            Err(StreamError::Io(error)) => return Err(io_error("read", &path, error)),
        }
    }
    match (records, first, last) == (log.records, log.first, log.last) {
        true => Ok(()),
        false => Err(damaged("its records are not those of the manifest")),
    }
}

/// A file that is read from its beginning.
struct Input {
    file: Arc<dyn File>,
    offset: u64,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
