//! `spindle backup create`.
use super::cut::{Owner, Patience, now};
use super::{log_line, name_of, object, on_signals, stopped, summary};
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::lines;
use crate::logs::{Directory, chosen, clock, print};
use crate::progress::ProgressLine;
use crate::quantity::seconds;
use crate::settings::{GroupLocation, RuntimeDirArgs};
use crate::signals::Stop;
use serde_json::json;
use spindle::{GroupRecord, MemberId};
use spindle_log::{
    BackupError, BackupLog, BackupManifest, BackupWriter, CutSource, DataDirectory, Disk, FileDisk, journal_value,
    summary as size_of,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Arguments of `spindle backup create`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory of a member, which may run
    dir: PathBuf,

    /// The directory of the backup: empty, or to be created
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// The cut, such as 2026-11-22T20:47:06Z or the clock of a record, for backups of several members
    /// with the same records; by default the present
    ///
    /// It can't be in the future.
    #[arg(long, value_name = "TIME", value_parser = clock)]
    at: Option<u64>,

    /// The longest wait for the cut: until all of its messages are on the disks of all members
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = seconds)]
    timeout: Duration,

    #[command(flatten)]
    place: RuntimeDirArgs,

    /// Print one JSON object: "event" ("backup"), backup (the directory), group, member, incarnation,
    /// cut (its clock), cut_time, taken, settled (whether no further record can belong to the cut),
    /// software, records, bytes, and logs: number, name, records, first, last, pruned, snapshots
    #[arg(long)]
    pub(super) json: bool,
}

/// How often a backup begins again whose logs were pruned beyond the cut meanwhile.
const ATTEMPTS: u32 = 4;
const STOPPED: &str = "before the backup was finished; nothing of it is left";

pub(super) fn run(args: &Args) -> CliResult {
    let begun = Instant::now();
    if args.at.is_some_and(|at| at > now()) {
        return Err(CliError::new(USAGE, "the cut is in the future; wait until then, or name no time"));
    }
    let directory = Directory::open(&args.dir)?;
    let stop = on_signals()?;
    let output = Output::open(&args.output, &directory)?;
    let mut attempts = 0;
    let manifest = loop {
        attempts += 1;
        match copy(args, &directory, &output, &stop) {
            Err(CopyError::Overtaken(error)) if args.at.is_some() || attempts == ATTEMPTS => return Err(error.into()),
            Err(CopyError::Overtaken(error)) => {
                output.clear();
                if !args.json {
                    lines::tell(format_args!("begins again: {error}"));
                }
            }
            Err(CopyError::Failed(error)) => return Err(error),
            Ok(manifest) => break manifest,
        }
    };
    output.keep();
    warn_of_gaps(args.json, &manifest);
    let shown = args.output.display().to_string();
    print(
        args.json,
        || {
            let mut object = object("backup", &shown, &manifest);
            object["elapsed_s"] = begun.elapsed().as_secs_f64().into();
            object
        },
        || {
            let lines: Vec<String> = manifest.logs.iter().map(log_line).chain([summary(&shown, &manifest)]).collect();
            lines.join("\n")
        },
    )
}

/// The reason why no backup was made.
enum CopyError {
    /// A later cut may succeed.
    Overtaken(BackupError),
    Failed(CliError),
}

impl From<CliError> for CopyError {
    fn from(error: CliError) -> CopyError {
        CopyError::Failed(error)
    }
}

impl From<spindle_log::Error> for CopyError {
    fn from(error: spindle_log::Error) -> CopyError {
        CopyError::Failed(error.into())
    }
}

fn copy(args: &Args, directory: &Directory, output: &Output, stop: &Stop) -> Result<BackupManifest, CopyError> {
    let fail = |error| match error {
        error @ BackupError::Overtaken { .. } => CopyError::Overtaken(error),
        error => CopyError::Failed(stopped(error, stop, STOPPED)),
    };
    let disk = &directory.disk;
    let owner = owner(args, directory)?;
    let (cut, wanted) = match &owner {
        Some(owner) => {
            let patience =
                Patience { until: Instant::now() + args.timeout, timeout: args.timeout, stop, json: args.json };
            let cut = owner.cut(args.at, patience)?;
            (cut.clock, Some(cut.logs))
        }
        None => (args.at.map_or_else(|| newest(directory), Ok)?, None),
    };
    // The member may have made a log meanwhile.
    let entries = DataDirectory::logs(&**disk)?;
    let mut sources = Vec::new();
    for entry in &entries {
        let log = chosen(entry);
        let name = match &entry.name {
            Ok(name) => name.clone(),
            Err(error) => return Err(error.clone().into()),
        };
        let is_wanted = wanted.as_ref().is_none_or(|wanted| name.as_ref().is_some_and(|name| wanted.contains(name)));
        if !is_wanted {
            left_out(args.json, &log.to_string());
            continue;
        }
        sources.push((
            log.to_string(),
            entry.subgroup,
            CutSource::open(disk, entry.subgroup, name, cut).map_err(fail)?,
        ));
    }
    let mut writer = BackupWriter::begin(Arc::clone(&output.disk), directory.identity.clone(), cut).map_err(fail)?;
    for (shown, number, source) in sources {
        let bytes = size_of(disk, number).map_or(0, |size| size.bytes);
        let mut progress = ProgressLine::new(&format!("copying {shown}"), bytes, args.json);
        let mut go_on = |bytes| {
            progress.show(|| bytes);
            !stop.flag.load(Ordering::Acquire)
        };
        writer.add(source, &mut go_on).map_err(fail)?;
    }
    // Behind the logs: no record is of a later view.
    let record = journal_value(&**disk, GroupRecord::KIND)?.unwrap_or_default();
    let software = concat!("spindle ", env!("CARGO_PKG_VERSION"));
    writer.finish(record, (now(), owner.is_some()), software).map_err(fail)
}

fn left_out(json: bool, log: &str) {
    let why = "the member is not in its subgroup, or the subgroup keeps no log any more";
    match json {
        true => lines::tell(json!({"event": "left_out", "log": log, "why": why})),
        false => lines::tell(format_args!("log {log} is left out: {why}")),
    }
}

/// Reports the logs without snapshots that lack the first messages of their subgroups.
fn warn_of_gaps(json: bool, manifest: &BackupManifest) {
    let Ok(record) = GroupRecord::parse(&manifest.record) else { return };
    let has_gap = |log: &&BackupLog| {
        let lacks_first = log.name.as_ref().is_some_and(|name| record.lacks_first(name));
        log.snapshots.is_empty() && (lacks_first || log.floor.is_some())
    };
    for log in manifest.logs.iter().filter(has_gap) {
        let (log, why) = (name_of(log), "it lacks the first messages of its subgroup, and has no snapshot of them");
        match json {
            true => lines::tell(json!({"event": "incomplete", "log": log, "why": why})),
            false => lines::tell(format_args!("log {log} does not begin with the first message: {why}")),
        }
    }
}

/// Returns the process that owns the directory, if one does.
fn owner(args: &Args, directory: &Directory) -> CliResult<Option<Owner>> {
    let Some(pid) = DataDirectory::owner(&*directory.disk)? else { return Ok(None) };
    let dir = args.place.dir().ok_or_else(|| CliError::new(USAGE, "the runtime directory makes no sense"))?;
    let found = GroupLocation { group: directory.identity.group.clone(), dir };
    Ok(Some(Owner { found, member: MemberId(directory.identity.member), pid }))
}

/// Returns the latest clock of a directory that no process owns.
fn newest(directory: &Directory) -> CliResult<u64> {
    let mut newest = 0;
    for number in DataDirectory::subgroups(&*directory.disk)? {
        let summary = size_of(&directory.disk, number)?;
        let snapshot = summary.snapshots.first().map_or(0, |snapshot| snapshot.clock);
        newest = newest.max(summary.last.map_or(0, |(_, clock)| clock)).max(snapshot);
    }
    Ok(newest)
}

/// The directory of the backup. Unless it is kept, what was made of it is removed.
struct Output {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Whether this command has created it.
    is_new: bool,
    is_kept: std::cell::Cell<bool>,
}

impl Output {
    fn open(path: &Path, source: &Directory) -> CliResult<Output> {
        let failed = |error| {
            CliError::new(FAILED, format_args!("can't use {}: {error}; name another directory", path.display()))
        };
        let is_new = !path.exists();
        let disk = Arc::new(FileDisk::new(path).map_err(failed)?);
        let output = Output { disk, path: path.to_path_buf(), is_new, is_kept: false.into() };
        let inside = |outer: &str| {
            let (outer, inner) = (fs::canonicalize(outer).ok()?, fs::canonicalize(path).ok()?);
            Some(inner.starts_with(outer))
        };
        if inside(&source.shown) == Some(true) {
            let message = format!("{} is in the directory that is copied; name another directory", path.display());
            return Err(CliError::new(USAGE, message));
        }
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            output.keep();
            return Err(BackupError::NotEmpty { path: path.display().to_string() }.into());
        }
        Ok(output)
    }

    fn keep(&self) {
        self.is_kept.set(true);
    }

    /// Removes the empty directories of logs.
    fn clear(&self) {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.for_each(|entry| drop(fs::remove_dir(entry.path())));
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            self.clear();
            if self.is_new {
                let _ = fs::remove_dir(&self.path);
            }
        }
    }
}
