//! Reading a data directory without owning it: for commands that verify, list and export.
//!
//! Nothing is changed, and a process may own the directory meanwhile; then the end of a log is
//! where it was when it was read.
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::Binding;
use crate::log::scan::Scan;
use crate::log::shared::{Shared, View};
use crate::log::{Progress, Readers, Report};
use crate::names;
use crate::snapshot::Snapshots;
use crate::store::{DataDirectory, log_path};
use crate::version::{Record, Version};
use std::sync::Arc;
use std::time::Instant;

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// The part of the log that was read.
    pub report: Report,
    /// The damage: of the log, of its name, and of each snapshot.
    pub findings: Vec<Error>,
}

/// Opens a log for reading only.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::CorruptFile`], [`Error::Unknown`] if there is no such log,
/// [`Error::Io`].
pub fn open_read_only(
    disk: &Arc<dyn Disk>,
    subgroup: u32,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Readers, Report)> {
    let started = Instant::now();
    let binding = binding(disk, subgroup)?;
    let path = log_path(subgroup);
    let mut scan = Scan::new(&**disk, &path, binding, crate::Config::default().index_bytes)?;
    scan.run(progress)?;
    let floor = scan.slot().floor;
    let mut report = scan.report.clone();
    let segments = std::mem::take(&mut scan.segments).into_iter().map(Arc::new).collect();
    let shared = Arc::new(Shared::default());
    *shared.view_mut() = View { segments, durable: report.last, floor };
    report.elapsed = started.elapsed();
    Ok((Readers { shared, binding }, report))
}

/// Reads every byte of a log, its name and its snapshots and checks every checksum.
///
/// # Errors
/// [`Error::Unknown`], [`Error::Io`]. Damage is no error but a finding.
pub fn verify(disk: &Arc<dyn Disk>, subgroup: u32, progress: &mut dyn FnMut(Progress)) -> Result<Verification> {
    let mut verification = Verification::default();
    let binding = binding(disk, subgroup)?;
    match open_read_only(disk, subgroup, progress) {
        Ok((_, report)) => verification.report = report,
        Err(error @ (Error::Corrupt(_) | Error::CorruptFile { .. })) => verification.findings.push(error),
        Err(error) => return Err(error),
    }
    match names::read(&**disk, binding) {
        Err(error @ (Error::CorruptFile { .. } | Error::Format { .. })) => verification.findings.push(error),
        other => drop(other?),
    }
    let snapshots = Snapshots::new(disk.clone(), &log_path(subgroup), binding, 0);
    let found = snapshots.list().and_then(|found| {
        found.iter().try_for_each(|info| {
            let mut reader = snapshots.open(info.version)?;
            while reader.next()?.is_some() {}
            Ok(())
        })
    });
    match found {
        Err(error @ Error::CorruptFile { .. }) => verification.findings.push(error),
        other => other?,
    }
    Ok(verification)
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
    while let Some(record) = reader.next()? {
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
