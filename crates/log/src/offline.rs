//! Reading a data directory without owning it: for commands that verify, list and export.
//!
//! Nothing is changed, and a process may own the directory meanwhile; then the end of a log is
//! where it was when it was read. A scan beside an owner can meet records that are half written, or
//! segments that are used again. So damage is reported only if another scan confirms it: all that
//! the first scan knew to be durable was on the disk before the second one began.
use crate::disk::Disk;
use crate::error::{Context, Error, Result};
use crate::format::{Binding, Position, Slot};
use crate::limits::FINDINGS_MAX;
use crate::log::scan::{Scan, read_slot};
use crate::log::shared::{Shared, View};
use crate::log::{Progress, Readers, Report, number_in};
use crate::names::log_path;
use crate::snapshot::{SnapshotInfo, Snapshots};
use crate::store::DataDirectory;
use crate::version::{Record, Version};
use crate::{journal, names};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// How often a log is read that its owner changes meanwhile.
const ATTEMPTS: u32 = 8;

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// The part of the log that was read.
    pub report: Report,
    /// The damage: of the log, of its name, and of each snapshot.
    pub findings: Vec<Error>,
}

/// The size and the end of a log, found without reading all of it.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The segments, spares excluded.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes of segments that are not in use.
    pub spare_bytes: u64,
    /// The first version, `None` if there is no record.
    pub first: Option<Version>,
    /// The last version that was pruned.
    pub floor: Option<Version>,
    /// The last version that was written and its clock; `None` if there has been no record.
    pub last: Option<(Version, u64)>,
    /// The snapshots, newest first.
    pub snapshots: Vec<SnapshotInfo>,
}

/// Opens a log for reading only.
///
/// Records that the owner prunes or cuts later can't be read to their end; [`as_owner_changed`]
/// recognises that.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::CorruptFile`], [`Error::Unknown`] if there is no such log,
/// [`Error::Busy`], [`Error::Io`].
pub fn open_read_only(
    disk: &Arc<dyn Disk>,
    subgroup: u32,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Readers, Report)> {
    let started = Instant::now();
    let binding = binding(disk, subgroup)?;
    let path = log_path(subgroup);
    let mut scan = settled(&**disk, &path, binding, false, progress)?;
    let floor = scan.slot().floor;
    let mut report = scan.report.clone();
    let segments = std::mem::take(&mut scan.segments).into_iter().map(Arc::new).collect();
    let shared = Arc::new(Shared::default());
    *shared.view_mut() = View { segments, durable: report.last, floor };
    report.elapsed = started.elapsed();
    Ok((Readers { shared, binding }, report))
}

/// The snapshots of a log, for reading only.
///
/// # Errors
/// [`Error::CorruptFile`] of the identity, [`Error::Unknown`] if there is no such log, [`Error::Io`].
pub fn snapshots(disk: &Arc<dyn Disk>, subgroup: u32) -> Result<Snapshots> {
    Ok(Snapshots::new(disk.clone(), &log_path(subgroup), binding(disk, subgroup)?, 0))
}

/// Reads a log to its end, or to damage that no owner explains. With `is_end_only` it begins near
/// the end.
fn settled<'a>(
    disk: &'a dyn Disk,
    path: &'a str,
    binding: Binding,
    is_end_only: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Scan<'a>> {
    // The evidence of the scan before, with the decisions that it was read under.
    let mut proven: Option<(Slot, Option<Version>)> = None;
    for _ in 0..ATTEMPTS {
        let mut scan = Scan::new(disk, path, binding, crate::Config::default().index_bytes)?;
        let before = scan.slot();
        let begun = if is_end_only { scan.begin_near_the_end() } else { Ok(()) };
        let error = match begun.and_then(|()| scan.run(progress)) {
            Ok(_) => return Ok(scan),
            Err(error) => error,
        };
        let has_changed = !is_same_log(&before, &read_slot(disk, path, binding)?);
        let known = proven.filter(|(slot, _)| is_same_log(slot, &before)).map(|(_, evidence)| evidence);
        match (&error, known) {
            _ if has_changed => proven = None,
            (Error::Corrupt(damage), None) => proven = Some((before, damage.through)),
            // Every record that the scan before knew of was read. The rest was written meanwhile.
            (Error::Corrupt(_), Some(evidence)) if scan.end_here() >= evidence => return Ok(scan),
            _ => return Err(error),
        }
    }
    Err(Error::Busy { path: disk.shown(path) })
}

/// Whether two states have the same segments and the same generation.
fn is_same_log(one: &Slot, other: &Slot) -> bool {
    (one.generation, one.first_segment) == (other.generation, other.first_segment)
}

/// Returns [`Error::Pruned`] or [`Error::Busy`] in place of an error of a reader that the owner has
/// caused by pruning or cutting the log since it was opened for reading only.
pub fn as_owner_changed(disk: &Arc<dyn Disk>, subgroup: u32, error: Error) -> Error {
    let Error::Corrupt(damage) = &error else { return error };
    let path = log_path(subgroup);
    let slot = binding(disk, subgroup).and_then(|binding| read_slot(&**disk, &path, binding));
    let at = Position { segment: damage.segment, offset: damage.offset };
    match slot {
        Ok(Slot { first_segment, floor: Some(floor), .. }) if damage.segment < first_segment => {
            Error::Pruned { oldest: floor.next() }
        }
        Ok(slot) if at >= slot.start => Error::Busy { path: disk.shown(&path) },
        _ => error,
    }
}

/// Reads every byte of a log, its name and its snapshots, and checks every checksum.
///
/// # Errors
/// [`Error::Unknown`], [`Error::Busy`], [`Error::Io`]. Damage is no error but a finding.
pub fn verify(disk: &Arc<dyn Disk>, subgroup: u32, progress: &mut dyn FnMut(Progress)) -> Result<Verification> {
    let mut verification = Verification::default();
    let binding = binding(disk, subgroup)?;
    let mut findings = Vec::new();
    match open_read_only(disk, subgroup, progress) {
        Ok((_, report)) => verification.report = report,
        Err(error) => findings.push(damage(error)?),
    }
    match names::read(&**disk, binding) {
        // The state of a log is read for its name, too.
        Err(Error::CorruptFile { path, .. }) if findings.iter().any(|finding| file_of(finding) == Some(&path)) => {}
        Err(error) => findings.push(damage(error)?),
        Ok(_) => {}
    }
    findings.extend(Snapshots::new(disk.clone(), &log_path(subgroup), binding, 0).verify()?);
    findings.truncate(FINDINGS_MAX);
    verification.findings = findings;
    Ok(verification)
}

/// Checks the files of a directory that belong to no log: the identity and the journal.
///
/// # Errors
/// [`Error::Io`]. Damage is no error but a finding.
pub fn verify_directory(disk: &dyn Disk) -> Result<Vec<Error>> {
    match DataDirectory::identity_of(disk) {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(identity)) => Ok(journal::verify(disk, identity.incarnation)?.into_iter().collect()),
        Err(error) => Ok(vec![damage(error)?]),
    }
}

/// Reads the last value of a kind from the journal; `None` if there is none. The owner may write meanwhile.
///
/// # Errors
/// [`Error::CorruptFile`], [`Error::Format`], [`Error::Io`].
pub fn journal_value(disk: &dyn Disk, kind: u32) -> Result<Option<Vec<u8>>> {
    match DataDirectory::identity_of(disk)? {
        None => Ok(None),
        Some(identity) => Ok(journal::values(disk, identity.incarnation)?.remove(&kind)),
    }
}

/// Returns an error that is a finding, or fails with any other.
fn damage(error: Error) -> Result<Error> {
    match error {
        Error::Corrupt(_) | Error::CorruptFile { .. } | Error::Format { .. } => Ok(error),
        error => Err(error),
    }
}

fn file_of(finding: &Error) -> Option<&String> {
    match finding {
        Error::CorruptFile { path, .. } => Some(path),
        _ => None,
    }
}

/// Finds how large a log is and where it ends. Reads its last segments only.
///
/// # Errors
/// As [`open_read_only`]; damage in other segments is not noticed.
pub fn summary(disk: &Arc<dyn Disk>, subgroup: u32) -> Result<Summary> {
    let binding = binding(disk, subgroup)?;
    let path = log_path(subgroup);
    let shown = disk.shown(&path);
    let last = settled(&**disk, &path, binding, true, &mut |_| ())?.last();
    let scan = Scan::new(&**disk, &path, binding, u64::MAX)?;
    let (slot, first) = (scan.slot(), scan.first()?);
    let snapshots = snapshots(disk, subgroup)?.list()?;
    let mut summary = Summary { floor: slot.floor, last, snapshots, ..Summary::default() };
    for name in disk.list(&path).during("list", &shown)? {
        let bytes = || disk.open(&format!("{path}/{name}")).and_then(|file| file.bytes());
        let is_segment = number_in(&name, "segment-").is_some_and(|number| number >= slot.first_segment);
        let is_spare = number_in(&name, "spare-").is_some();
        match (is_segment || is_spare).then(bytes) {
            None => {}
            // The owner has given the file another name.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Some(bytes) => match bytes.during("read the length of", &shown)? {
                bytes if is_segment => {
                    (summary.segments, summary.bytes) = (summary.segments + 1, summary.bytes + bytes);
                }
                bytes => summary.spare_bytes += bytes,
            },
        }
    }
    // A segment may have been begun and hold no record yet.
    summary.first = first.filter(|first| last.is_some_and(|(last, _)| *first <= last));
    Ok(summary)
}

/// Calls `take` for each record from a version on, until it returns `false`. Returns the count.
///
/// # Errors
/// As [`open_read_only`] and [`Reader::next`](crate::Reader::next).
pub fn export(
    disk: &Arc<dyn Disk>,
    subgroup: u32,
    from: Option<Version>,
    take: &mut dyn FnMut(Record<'_>) -> bool,
) -> Result<u64> {
    let (readers, _) = open_read_only(disk, subgroup, &mut |_| ())?;
    let mut reader = readers.reader();
    if let Some(from) = from {
        reader.seek(from);
    }
    let mut count = 0;
    while let Some(record) = reader.next().map_err(|error| as_owner_changed(disk, subgroup, error))? {
        if !take(record) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

fn binding(disk: &Arc<dyn Disk>, subgroup: u32) -> Result<Binding> {
    let identity = DataDirectory::identity_of(&**disk)?;
    match identity {
        Some(identity) if DataDirectory::subgroups(&**disk)?.contains(&subgroup) => {
            Ok(Binding { incarnation: identity.incarnation, subgroup })
        }
        _ => Err(Error::Unknown { subgroup }),
    }
}
