//! `spindle log verify`.
use super::values::{or_dash, or_null};
use super::{Chosen, Directory, chosen, print};
use crate::exit::{CliError, CliResult, FAILED};
use crate::quantity::short;
use serde_json::{Value, json};
use spindle_log::{DataDirectory, Error, Report, verify, verify_directory};
use std::path::PathBuf;

/// Arguments of `spindle log verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory of a member
    dir: PathBuf,

    /// The name or number of one log; without it all logs are checked, and the journal
    log: Option<String>,

    /// Print JSON objects, one a line.
    ///
    /// For each damage "event" "damage": number and name of the log (or null), file, reason, and for
    /// records offset, segment, after (the last version that is intact before the damage, or null),
    /// before (the first one behind it, or null), through (the last version that is known to be
    /// lost, if nothing behind it is intact). For each intact log "event" "log": number, name,
    /// records, first, last, segments, bytes, torn_bytes, elapsed_s. At the end "event" "verified":
    /// logs, damages.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> CliResult {
    let directory = Directory::open(&args.dir)?;
    let mut damages = 0;
    let logs: Vec<Chosen> = match &args.log {
        Some(word) => vec![directory.log(word)?],
        None => DataDirectory::logs(&*directory.disk)?.iter().map(chosen).collect(),
    };
    if args.log.is_none() {
        for damage in verify_directory(&*directory.disk)? {
            damages += 1;
            print(args.json, || object(None, &damage), || format!("damage: {}", text(&damage)))?;
        }
    }
    for log in &logs {
        let verification = {
            let mut progress = directory.progress("verifying", log, args.json);
            verify(&directory.disk, log.number, &mut |report| progress.show(|| report.bytes))?
        };
        for damage in &verification.findings {
            damages += 1;
            print(args.json, || object(Some(log), damage), || format!("log {log}: {}", text(damage)))?;
        }
        if verification.findings.is_empty() {
            whole(log, &verification.report, args.json)?;
        }
    }
    if args.json {
        print(true, || json!({"event": "verified", "logs": logs.len(), "damages": damages}), String::new)?;
    }
    match damages {
        0 => Ok(()),
        1 => Err(CliError::new(FAILED, format_args!("{} is damaged in 1 place", directory.shown))),
        damages => Err(CliError::new(FAILED, format_args!("{} is damaged in {damages} places", directory.shown))),
    }
}

fn whole(log: &Chosen, report: &Report, json: bool) -> CliResult {
    print(
        json,
        || {
            json!({"event": "log", "number": log.number, "name": log.name, "records": report.records,
                   "first": or_null(report.first), "last": or_null(report.last), "segments": report.segments,
                   "bytes": report.bytes, "torn_bytes": report.torn_bytes,
                   "elapsed_s": report.elapsed.as_secs_f64()})
        },
        || {
            let records = match report.records {
                0 => "no records".to_string(),
                1 => format!("1 record, {}", or_dash(report.last)),
                count => format!("{count} records, {} to {}", or_dash(report.first), or_dash(report.last)),
            };
            let torn = match report.torn_bytes {
                0 => String::new(),
                bytes => format!(", and {bytes} bytes that were never acknowledged"),
            };
            format!("log {log}: intact: {records}, {}B read{torn}", short(report.bytes as f64))
        },
    )
}

fn object(log: Option<&Chosen>, damage: &Error) -> Value {
    let mut object = json!({
        "event": "damage",
        "number": log.map(|log| log.number),
        "name": log.and_then(|log| log.name.as_deref()),
    });
    match damage {
        Error::Corrupt(damage) => {
            object["file"] = damage.path.as_str().into();
            object["offset"] = damage.offset.into();
            object["segment"] = damage.segment.into();
            object["after"] = or_null(damage.after);
            object["before"] = or_null(damage.before);
            object["through"] = or_null(damage.through);
            object["reason"] = damage.reason.into();
        }
        Error::CorruptFile { path, reason } => {
            object["file"] = path.as_str().into();
            object["reason"] = (*reason).into();
        }
        Error::Format { path, found, expected } => {
            object["file"] = path.as_str().into();
            object["reason"] = format!("it has format {found}, and this version reads {expected}").into();
        }
        other => object["reason"] = other.to_string().into(),
    }
    object
}

/// Returns the damage as text: file, offset, and the range of versions.
fn text(damage: &Error) -> String {
    let Error::Corrupt(damage) = damage else { return damage.to_string() };
    let after = damage.after.map_or("from the beginning".to_string(), |after| format!("after {after}"));
    let end = match (damage.before, damage.through) {
        (Some(before), _) => format!(" and before {before}"),
        (None, Some(through)) => format!(" up to {through} at least"),
        (None, None) => String::new(),
    };
    let (path, offset, reason) = (&damage.path, damage.offset, damage.reason);
    format!("{path} is damaged at offset {offset}: {reason}; versions {after}{end} are lost")
}
