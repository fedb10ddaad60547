//! The names of logs.
//!
//! A log is a directory with a number. A log with a name has the file `name` as well, which is
//! durable before the log has a state, and whose existence the state notes. So a name that was
//! given is found again, or its loss is an error: no second log begins under the same name.
use crate::disk::{Disk, TEMPORARY, read_file, replace_file};
use crate::error::{Context, Error, Result, in_range};
use crate::format::{Binding, encode_name, parse_name};
use crate::limits::{FORMAT, LOG_NAME_BYTES_MAX, PAGE_BYTES};
use crate::log::scan::read_slot;
use crate::log::{NAME, STATE};

/// The beginning of the name of a log's directory.
pub(crate) const SUBGROUP: &str = "subgroup-";

/// A log of a data directory.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The number of the log.
    pub subgroup: u32,
    /// The name, `None` if the log has a number only, or the damage of the file that has the name.
    pub name: Result<Option<String>>,
}

/// A log that was found by its name.
pub(crate) struct Named {
    pub(crate) subgroup: u32,
    /// Whether both copies of the name are intact.
    pub(crate) is_whole: bool,
}

/// The subgroups that have a log, in ascending order.
pub(crate) fn subgroups(disk: &dyn Disk) -> Result<Vec<u32>> {
    let names = disk.list("").during("list", &disk.shown(""))?;
    let mut found: Vec<u32> = names.iter().filter_map(|name| subgroup_in(name)).collect();
    found.sort_unstable();
    Ok(found)
}

/// The number in the name of a log's directory.
fn subgroup_in(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(SUBGROUP)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    // Other spellings of a number are directories of something else.
    (log_path(number) == name).then_some(number)
}

pub(crate) fn log_path(subgroup: u32) -> String {
    format!("{SUBGROUP}{subgroup:08x}")
}

/// The logs in ascending order of their numbers.
pub(crate) fn list(disk: &dyn Disk, incarnation: u128) -> Result<Vec<LogEntry>> {
    let entry = |subgroup| match read(disk, Binding { incarnation, subgroup }) {
        Err(error @ Error::Io { .. }) => Err(error),
        found => Ok(LogEntry { subgroup, name: found.map(|found| found.map(|(name, _)| name)) }),
    };
    subgroups(disk)?.into_iter().map(entry).collect()
}

/// Returns the log with this name.
pub(crate) fn find(disk: &dyn Disk, incarnation: u128, name: &str) -> Result<Option<Named>> {
    let (mut found, mut damage) = (None, None);
    for subgroup in subgroups(disk)? {
        match read(disk, Binding { incarnation, subgroup }) {
            Ok(Some((other, _))) if other == name && found.is_some() => {
                let path = disk.shown(&name_path(subgroup));
                return Err(Error::CorruptFile { path, reason: "another log has the same name" });
            }
            Ok(Some((other, is_whole))) if other == name => found = Some(Named { subgroup, is_whole }),
            Ok(_) => {}
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => damage = damage.or(Some(error)),
        }
    }
    match (found, damage) {
        (None, Some(damage)) => Err(damage),
        (found, _) => Ok(found),
    }
}

/// Gives the lowest number that no log uses to a new log with this name, and returns the number.
pub(crate) fn create(disk: &dyn Disk, incarnation: u128, name: &str) -> Result<u32> {
    let mut used = Vec::new();
    for subgroup in subgroups(disk)? {
        let path = log_path(subgroup);
        let names = disk.list(&path).during("list", &disk.shown(&path))?;
        // A crash may have left a directory in which no log was begun.
        if names.iter().any(|name| !name.ends_with(TEMPORARY)) {
            used.push(subgroup);
        }
    }
    let subgroup =
        (0..).zip(used.iter().chain([&u32::MAX])).find(|(free, used)| free != *used).map_or(0, |(free, _)| free);
    let path = log_path(subgroup);
    disk.create_directory(&path).during("create", &disk.shown(&path))?;
    disk.sync_directory("").during("sync", &disk.shown(""))?;
    write(disk, Binding { incarnation, subgroup }, name)?;
    Ok(subgroup)
}

/// Writes the name of a log. A crash leaves the name as it was, or the new one.
pub(crate) fn write(disk: &dyn Disk, binding: Binding, name: &str) -> Result<()> {
    replace_file(disk, &log_path(binding.subgroup), NAME, &encode_name(name, binding), 0)
}

/// Checks that a log may have this name.
pub(crate) fn check(name: &str) -> Result<()> {
    in_range("the name of the log in bytes", name.len() as u64, 1, LOG_NAME_BYTES_MAX as u64)
}

/// Returns the name of a log, and whether both copies of it are intact. `None` if the log has none.
pub(crate) fn read(disk: &dyn Disk, binding: Binding) -> Result<Option<(String, bool)>> {
    let path = log_path(binding.subgroup);
    let names = disk.list(&path).during("list", &disk.shown(&path))?;
    let has = |wanted| names.iter().any(|name| name == wanted);
    let shown = disk.shown(&name_path(binding.subgroup));
    if !has(NAME) {
        if has(STATE) && read_slot(disk, &path, binding)?.is_named {
            return Err(missing(shown));
        }
        return Ok(None);
    }
    let content = read_file(disk, &name_path(binding.subgroup), 2 * PAGE_BYTES)?;
    match parse_name(&content, binding) {
        Ok(found) => Ok(Some((found.name, found.is_whole))),
        Err(Some(found)) => Err(Error::Format { path: shown, found, expected: FORMAT }),
        Err(None) => Err(Error::CorruptFile { path: shown, reason: "no copy of the name is valid" }),
    }
}

/// The error of a log whose state says that it has a name.
pub(crate) fn missing(path: String) -> Error {
    Error::CorruptFile { path, reason: "the log has a name and the file is missing" }
}

fn name_path(subgroup: u32) -> String {
    format!("{}/{NAME}", log_path(subgroup))
}
