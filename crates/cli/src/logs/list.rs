//! `spindle log ls`.
use super::values::{or_dash, or_null};
use super::{Chosen, Directory, chosen, print, values};
use crate::exit::{CliError, CliResult, FAILED};
use crate::quantity::short;
use serde_json::{Value, json};
use spindle_log::{DataDirectory, LogEntry, Summary, summary};
use std::path::PathBuf;

/// Arguments of `spindle log ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory of a member
    dir: PathBuf,

    /// Print JSON objects, one a line.
    ///
    /// First "event" "directory": group, member, incarnation, owner (the process id, 0 if it is not
    /// known, or null). Then for each log "event" "log": number, name (or null), first, last,
    /// last_clock, pruned (the last version that was), segments, bytes, spare_bytes, snapshots: a
    /// list of {version, clock, bytes}; or damage instead of what is not known.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> CliResult {
    let directory = Directory::open(&args.dir)?;
    let identity = &directory.identity;
    let owner = DataDirectory::owner(&*directory.disk)?;
    print(
        args.json,
        || {
            let incarnation = format!("{:032x}", identity.incarnation);
            json!({"event": "directory", "group": identity.group, "member": identity.member,
                   "incarnation": incarnation, "owner": owner})
        },
        || {
            let owner = match owner {
                None => "not in use".to_string(),
                Some(0) => "in use".to_string(),
                Some(pid) => format!("in use by process {pid}"),
            };
            let group = values::escaped(&identity.group);
            format!("{}: group {group}, member {}, {owner}", directory.shown, identity.member)
        },
    )?;
    let entries = DataDirectory::logs(&*directory.disk)?;
    let rows: Vec<(Chosen, Result<Summary, spindle_log::Error>)> = entries
        .iter()
        .map(|entry: &LogEntry| {
            let found = summary(&directory.disk, entry.subgroup);
            (chosen(entry), entry.name.clone().and(found))
        })
        .collect();
    if args.json {
        rows.iter().try_for_each(|(log, found)| print(true, || object(log, found), String::new))?;
    } else if !rows.is_empty() {
        table(&rows).iter().try_for_each(|line| print(false, || Value::Null, || line.clone()))?;
    }
    match rows.iter().filter(|(_, found)| found.is_err()).count() {
        0 => Ok(()),
        count => {
            let message =
                format!("{count} of {} logs can't be read; see `spindle log verify {}`", rows.len(), directory.shown);
            Err(CliError::new(FAILED, message))
        }
    }
}

fn object(log: &Chosen, found: &Result<Summary, spindle_log::Error>) -> Value {
    let mut object = json!({"event": "log", "number": log.number, "name": log.name});
    match found {
        Err(error) => object["damage"] = error.to_string().into(),
        Ok(summary) => {
            let snapshots = summary
                .snapshots
                .iter()
                .map(|info| json!({"version": info.version.to_string(), "clock": info.clock, "bytes": info.bytes}));
            object["first"] = or_null(summary.first);
            object["last"] = or_null(summary.last.map(|(version, _)| version));
            object["last_clock"] = summary.last.map(|(_, clock)| clock).into();
            object["pruned"] = or_null(summary.floor);
            object["segments"] = summary.segments.into();
            object["bytes"] = summary.bytes.into();
            object["spare_bytes"] = summary.spare_bytes.into();
            object["snapshots"] = snapshots.collect();
        }
    }
    object
}

/// Returns the lines of a table, in columns of equal widths.
fn table(rows: &[(Chosen, Result<Summary, spindle_log::Error>)]) -> Vec<String> {
    let head = ["number", "name", "first", "last", "last at", "pruned", "segments", "bytes", "snapshots"];
    let row = |(log, found): &(Chosen, Result<Summary, spindle_log::Error>)| {
        let name = log.name.as_deref().map_or("-".to_string(), values::escaped);
        let mut cells = vec![log.number.to_string(), name];
        match found {
            Err(error) => cells.push(error.to_string()),
            Ok(summary) => cells.extend([
                or_dash(summary.first),
                or_dash(summary.last.map(|(version, _)| version)),
                summary.last.map_or("-".to_string(), |(_, clock)| values::time(clock)),
                or_dash(summary.floor),
                summary.segments.to_string(),
                format!("{}B", short(summary.bytes as f64)),
                summary.snapshots.len().to_string(),
            ]),
        }
        cells
    };
    let rows: Vec<Vec<String>> = [head.map(str::to_string).to_vec()].into_iter().chain(rows.iter().map(row)).collect();
    // The message of a damaged log ends its line, and widens no column.
    let is_whole = |row: &&Vec<String>| row.len() == head.len();
    let width = |column: usize| rows.iter().filter(is_whole).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
}
