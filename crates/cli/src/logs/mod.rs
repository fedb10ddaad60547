//! `spindle log`: the logs in the data directory of a member.
//!
//! [`Directory`] is a directory that is read, beside its owner if it has one. Only `prune` owns the
//! directory while it runs. The crate `spindle-log` does the work; this module chooses records and
//! prints them.
mod list;
mod prune;
mod records;
mod values;
mod verify;

pub(crate) use values::{clock, escaped as escaped_name, time as shown_time};

use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::progress::ProgressLine;
use anyhow::Context;
use serde_json::Value;
use spindle_log::{DataDirectory, Disk, FileDisk, Identity, LogEntry, Readers, open_read_only, summary};
use std::fmt;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The subcommands of `spindle log`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LogCommand {
    /// Lists the logs of a directory: their numbers, names, versions and sizes
    ///
    /// It reads little: the last two segments of each log at the most. The status is 1 if a log is
    /// damaged there.
    Ls(list::Args),
    /// Prints the records of a log, a line each: version, time, sender and message
    ///
    /// Control characters, backslashes and bytes that are no UTF-8 are escaped. `spindle log export`
    /// keeps every byte.
    Cat(records::Cat),
    /// Finds a record by version or time, and prints its place on the disk
    ///
    /// By version it is the first record of at least that version. By time it is the last record of
    /// at most that time: the state as of that time contains it and nothing later.
    Seek(records::SeekArgs),
    /// Reads every byte of the logs, the snapshots, the names and the journal, and names all damage
    ///
    /// Each damaged log is named with the file, the offset and the range of versions that is lost.
    /// The status is 1 if there is damage.
    Verify(verify::Args),
    /// Writes the records of a log to a file, byte by byte
    ///
    /// The file grows as `.NAME.part`, and gets its name when it is whole and synced.
    Export(records::Export),
    /// Removes the oldest records of a log, by whole segments
    ///
    /// It owns the directory while it runs, and is refused while a member does. The last segment
    /// always stays. If the log has a snapshot, records that the newest one does not contain stay.
    Prune(prune::Args),
}

pub(crate) fn run(command: LogCommand) -> CliResult {
    let (outcome, json) = match command {
        LogCommand::Ls(args) => (list::run(&args), args.json),
        LogCommand::Cat(args) => (records::cat(&args), args.json),
        LogCommand::Seek(args) => (records::seek(&args), args.json),
        LogCommand::Verify(args) => (verify::run(&args), args.json),
        LogCommand::Export(args) => (records::export(&args), args.json),
        LogCommand::Prune(args) => (prune::run(&args), args.json),
    };
    outcome.map_err(|failure| failure.told_as_json(json))
}

/// A log, as the command line names it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Whose {
    /// The data directory of a member
    dir: PathBuf,

    /// The name of the log, or its number if no log has that name
    log: String,
}

/// A data directory that is read.
pub(crate) struct Directory {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) shown: String,
    pub(crate) identity: Identity,
}

/// A log of the directory.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    number: u32,
    name: Option<String>,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(&values::escaped(name)),
            None => self.number.fmt(f),
        }
    }
}

/// The file that names the owner of a directory of logs.
const IDENTITY: &str = "identity";

/// The directory in which a member keeps its logs: `dir`, or `log` in its data directory `dir`.
pub(super) fn directory_of(dir: &Path) -> PathBuf {
    let in_data_dir = dir.join("log");
    if !dir.join(IDENTITY).exists() && in_data_dir.join(IDENTITY).exists() { in_data_dir } else { dir.to_path_buf() }
}

impl Directory {
    /// Opens a directory for reading.
    pub(crate) fn open(dir: &Path) -> CliResult<Directory> {
        let dir = &directory_of(dir);
        let shown = dir.display().to_string();
        let disk = FileDisk::read_only(dir).map_err(|error| {
            CliError::new(FAILED, format_args!("can't read {shown}: {error}; name the data directory of a member"))
        })?;
        let Some(identity) = DataDirectory::identity_of(&disk)? else {
            let message = format!(
                "{shown} is no data directory: it has no file \"identity\"; name the directory in which a member \
                 keeps its logs"
            );
            return Err(CliError::new(FAILED, message));
        };
        Ok(Directory { disk: Arc::new(disk), shown, identity })
    }

    /// Returns the log that `word` names.
    pub(super) fn log(&self, word: &str) -> CliResult<Chosen> {
        let entries = DataDirectory::logs(&*self.disk)?;
        let has_name = |entry: &&LogEntry| matches!(&entry.name, Ok(Some(name)) if name == word);
        let has_number = |entry: &&LogEntry| word.parse() == Ok(entry.subgroup);
        let found = entries.iter().find(has_name).or(entries.iter().find(has_number));
        found.map(chosen).ok_or_else(|| {
            let logs: Vec<String> = entries.iter().map(|entry| chosen(entry).to_string()).collect();
            let logs = if logs.is_empty() { "no logs".to_string() } else { format!("the logs {}", logs.join(", ")) };
            let damaged = match entries.iter().any(|entry| entry.name.is_err()) {
                true => "; a name is damaged, see `spindle log verify`",
                false => "",
            };
            let message = format!("{} has no log \"{}\"; it has {logs}{damaged}", self.shown, values::escaped(word));
            CliError::new(FAILED, message)
        })
    }

    /// Reads a log, with progress on the standard error.
    pub(super) fn read(&self, log: &Chosen, json: bool) -> CliResult<Readers> {
        let mut progress = self.progress("reading", log, json);
        let (readers, _) = open_read_only(&self.disk, log.number, &mut |report| progress.show(|| report.bytes))?;
        Ok(readers)
    }

    /// Returns the progress of work on all bytes of a log.
    pub(super) fn progress(&self, work: &str, log: &Chosen, json: bool) -> ProgressLine {
        let bytes = summary(&self.disk, log.number).map_or(0, |summary| summary.bytes);
        ProgressLine::new(&format!("{work} {log}"), bytes, json)
    }
}

/// Returns the log of an entry. A damaged name is taken for none: the number is right all the same.
pub(crate) fn chosen(entry: &LogEntry) -> Chosen {
    Chosen { number: entry.subgroup, name: entry.name.clone().ok().flatten() }
}

impl From<spindle_log::Error> for CliError {
    fn from(error: spindle_log::Error) -> CliError {
        let status = match &error {
            spindle_log::Error::Range { .. } => USAGE,
            _ => FAILED,
        };
        CliError::new(status, error)
    }
}

/// Prints an object or a line.
pub(crate) fn print(json: bool, object: impl FnOnce() -> Value, line: impl FnOnce() -> String) -> CliResult {
    let line = if json { object().to_string() } else { line() };
    Ok(writeln!(stdout().lock(), "{line}").context("can't write to the standard output")?)
}
