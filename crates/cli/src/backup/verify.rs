//! `spindle backup verify`.
use super::{log_line, object, on_signals, stopped, summary};
use crate::exit::{CliError, CliResult, FAILED};
use crate::logs::print;
use crate::progress::ProgressLine;
use crate::signals::Stop;
use serde_json::json;
use spindle_log::{BackupError, BackupManifest, Disk, FileDisk, read_manifest, verify_backup};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Arguments of `spindle backup verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the backup
    dir: PathBuf,

    /// Print JSON objects, one a line: for each damaged file "event" "damage": file, reason. For an
    /// intact backup "event" "verified", with the keys of `spindle backup create --json`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> CliResult {
    let stop = on_signals()?;
    let disk = open(&args.dir)?;
    let manifest = whole(&args.dir, &disk, &stop, args.json)?;
    let shown = args.dir.display().to_string();
    print(
        args.json,
        || object("verified", &shown, &manifest),
        || {
            let lines = manifest.logs.iter().map(log_line).chain([format!("{}; intact", summary(&shown, &manifest))]);
            lines.collect::<Vec<_>>().join("\n")
        },
    )
}

/// Opens the directory of a backup.
pub(super) fn open(dir: &Path) -> CliResult<Arc<dyn Disk>> {
    let disk = FileDisk::read_only(dir).map_err(|error| {
        CliError::new(FAILED, format_args!("can't read {}: {error}; name the directory of a backup", dir.display()))
    })?;
    Ok(Arc::new(disk))
}

/// Verifies a backup, and prints all damage.
///
/// # Errors
/// The backup is damaged.
pub(super) fn whole(dir: &Path, disk: &Arc<dyn Disk>, stop: &Stop, json: bool) -> CliResult<BackupManifest> {
    let bytes = read_manifest(&**disk)?.bytes();
    let verification = {
        let mut progress = ProgressLine::new("verifying", bytes, json);
        let mut go_on = |bytes| {
            progress.show(|| bytes);
            !stop.flag.load(Ordering::Acquire)
        };
        verify_backup(disk, &mut go_on).map_err(|error| stopped(error, stop, "before the backup was verified"))?
    };
    for finding in &verification.findings {
        let (file, reason) = match finding {
            BackupError::Damaged { path, reason } => (path.clone(), (*reason).to_string()),
            other => (dir.display().to_string(), other.to_string()),
        };
        print(
            json,
            || json!({"event": "damage", "file": file, "reason": reason}),
            || format!("damage: {file}: {reason}"),
        )?;
    }
    match verification.findings.len() {
        0 => Ok(verification.manifest),
        count => {
            let places = if count == 1 { "1 file" } else { &format!("{count} files") };
            let message = format!("{} is damaged in {places}; use another backup", dir.display());
            Err(CliError::new(FAILED, message))
        }
    }
}
