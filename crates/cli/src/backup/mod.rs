//! `spindle backup`: backups of a member's logs at one cut, and data directories of a new group from a
//! backup.
//!
//! The command reads the data directory beside its member, and asks the member for the cut (`cut.rs`).
//! The crate `spindle-log` copies, verifies and restores.
mod create;
mod cut;
mod restore;
mod verify;

use crate::exit::{CliError, CliResult, FAILED};
use crate::quantity::short;
use crate::signals::Stop;
use serde_json::{Value, json};
use spindle_log::{BackupError, BackupLog, BackupManifest, Version};

/// The subcommands of `spindle backup`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BackupCommand {
    /// Copies all logs of a member at one moment of their clocks, while the group runs
    ///
    /// For each log the backup has all records with a clock of at most the cut, and none with a later
    /// one; all of them are durable. Clocks are the same at all members, so backups of two members at
    /// the same cut have the same records. A subgroup in which nothing is sent meanwhile begins a new
    /// epoch, so that the cut is certain; no message is sent for that.
    ///
    /// The snapshots of replicated objects that are not later than the cut are copied as well. The
    /// member may prune its logs meanwhile.
    ///
    /// A directory that no process owns is copied as far as its logs go. Other members may have more.
    Create(create::Args),
    /// Reads every byte of a backup, and names all damage
    ///
    /// The status is 1 if there is damage, or if the backup was not finished.
    Verify(verify::Args),
    /// Makes the data directories of a new group from a backup
    ///
    /// Each directory is for one member of the new group. The group has an incarnation of its own, so
    /// its members never mix with those of the old group, whatever its name is. Start each member with
    /// its directory: the group continues with versions after those of the backup.
    ///
    /// Nothing is written before the whole backup is verified, and a directory that is not empty is
    /// refused.
    Restore(restore::Args),
}

pub(crate) fn run(command: BackupCommand) -> CliResult {
    let (outcome, json) = match &command {
        BackupCommand::Create(args) => (create::run(args), args.json),
        BackupCommand::Verify(args) => (verify::run(args), args.json),
        BackupCommand::Restore(args) => (restore::run(args), args.json),
    };
    outcome.map_err(|failure| failure.told_as_json(json))
}

impl From<BackupError> for CliError {
    fn from(error: BackupError) -> CliError {
        match error {
            BackupError::Log(error) => error.into(),
            error => CliError::new(FAILED, error),
        }
    }
}

/// Stops the command in order at a signal.
fn on_signals() -> CliResult<Stop> {
    Ok(Stop::on_signals(|_| {})?)
}

/// Returns the failure of a command that a signal has stopped, or the error.
fn stopped(error: BackupError, stop: &Stop, when: &str) -> CliError {
    match error {
        BackupError::Stopped => CliError::interrupted(stop.signal(), when),
        error => error.into(),
    }
}

/// Returns the backup as an object.
fn object(event: &str, path: &str, manifest: &BackupManifest) -> Value {
    let BackupManifest { group, member, cut, taken_at, is_settled, software, logs, .. } = manifest;
    json!({
        "event": event,
        "backup": path,
        "group": group,
        "member": member,
        "incarnation": format!("{:032x}", manifest.incarnation),
        "cut": cut,
        "cut_time": crate::logs::shown_time(*cut),
        "taken": crate::logs::shown_time(*taken_at),
        "settled": is_settled,
        "software": software,
        "records": manifest.records(),
        "bytes": manifest.bytes(),
        "logs": logs.iter().map(log_object).collect::<Vec<_>>(),
    })
}

fn log_object(log: &BackupLog) -> Value {
    let text = |version: Option<Version>| version.map_or(Value::Null, |version| version.to_string().into());
    json!({
        "number": log.number,
        "name": log.name,
        "records": log.records,
        "first": text(log.first),
        "last": text(log.last.map(|(last, _)| last)),
        "pruned": text(log.floor.map(|(floor, _)| floor)),
        "snapshots": log.snapshots.iter().map(Version::to_string).collect::<Vec<_>>(),
    })
}

/// Returns a line about a log of a backup.
fn log_line(log: &BackupLog) -> String {
    let records = match (log.first, log.last) {
        (Some(first), Some((last, _))) if log.records > 1 => format!("{} records, {first} to {last}", log.records),
        (Some(first), _) => format!("1 record, {first}"),
        _ => "no records".to_string(),
    };
    let pruned = log.floor.map_or(String::new(), |(floor, _)| format!(", pruned up to {floor}"));
    let snapshots = match &log.snapshots[..] {
        [] => String::new(),
        [one] => format!(", snapshot {one}"),
        [.., newest] => format!(", {} snapshots up to {newest}", log.snapshots.len()),
    };
    format!("log {}: {records}{pruned}{snapshots}", name_of(log))
}

fn name_of(log: &BackupLog) -> String {
    log.name.as_deref().map_or(log.number.to_string(), crate::logs::escaped_name)
}

/// Returns the line about a whole backup.
fn summary(path: &str, manifest: &BackupManifest) -> String {
    let count = manifest.logs.len();
    format!(
        "{path}: {count} log{} of member {} of group {} up to {} (clock {}), {}B",
        if count == 1 { "" } else { "s" },
        manifest.member,
        manifest.group,
        crate::logs::shown_time(manifest.cut),
        manifest.cut,
        short(manifest.bytes() as f64)
    )
}
