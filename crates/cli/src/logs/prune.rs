//! `spindle log prune`.
use super::values::{age, or_null, version};
use super::{Chosen, Directory, Whose, directory_of, print};
use crate::exit::{CliError, CliResult, FAILED};
use crate::quantity::{bytes, short};
use serde_json::json;
use spindle_log::limits::SEGMENT_BYTES_MIN;
use spindle_log::{Config, Disk, FileDisk, Prunable, Retention, SnapshotInfo, Store, Version, summary};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Arguments of `spindle log prune`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whose: Whose,

    #[command(flatten)]
    rule: PruneRule,

    /// Prune records that no snapshot contains, too
    #[arg(long)]
    beyond_snapshot: bool,

    /// Change nothing, and print what would be pruned; also works while a member owns the directory
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object: "event" ("pruned", or with --dry-run "prunable"), number, name,
    /// segments, bytes, through (the last version that is pruned, or null)
    #[arg(long)]
    pub(super) json: bool,
}

/// Which records are pruned.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct PruneRule {
    /// Prune the oldest segments while the log has more bytes than this
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_bytes: Option<u64>,

    /// Prune segments whose records are all older than this, such as 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<Duration>,

    /// Prune segments whose records are all before this version
    #[arg(long, value_name = "VERSION", value_parser = version)]
    before: Option<Version>,
}

pub(super) fn run(args: &Args) -> CliResult {
    let directory = Directory::open(&args.whose.dir)?;
    let log = directory.log(&args.whose.log)?;
    if args.dry_run {
        let snapshots = summary(&directory.disk, log.number)?.snapshots;
        let readers = directory.read(&log, args.json)?;
        let prunable = retention(args, &snapshots)?.map_or(Prunable::default(), |rule| readers.prunable(&rule));
        return tell(args, &log, prunable);
    }
    let mut store = own(args, &directory)?;
    {
        let mut progress = directory.progress("reading", &log, args.json);
        store.open_log(log.number, &mut |report| progress.show(|| report.bytes))?;
    }
    let snapshots = store.snapshots(log.number)?.list()?;
    let mut prunable = Prunable::default();
    if let Some(rule) = retention(args, &snapshots)? {
        let log = store.log(log.number)?;
        prunable = log.readers().prunable(&rule);
        log.retain(&rule)?;
    }
    tell(args, &log, prunable)
}

/// Takes the directory over, as its member would.
fn own(args: &Args, directory: &Directory) -> CliResult<Store> {
    let disk: Arc<dyn Disk> = Arc::new(
        FileDisk::new(directory_of(&args.whose.dir))
            .map_err(|error| CliError::new(FAILED, format_args!("can't open {}: {error}", directory.shown)))?,
    );
    // Segments of any other length are removed, not kept for use again, so their space is freed.
    let config = Config { segment_bytes: SEGMENT_BYTES_MIN, spares: 0, reserve_bytes: 0, ..Config::default() };
    Ok(Store::open(disk, &directory.identity, config)?)
}

/// Returns the rule with the bound of the newest snapshot. `None`: nothing is before the version.
fn retention(args: &Args, snapshots: &[SnapshotInfo]) -> CliResult<Option<Retention>> {
    let newest = snapshots.first().map(|info| info.version).filter(|_| !args.beyond_snapshot);
    let mut rule = Retention { bytes_max: args.rule.max_bytes, snapshot: newest, ..Retention::default() };
    if let Some(age) = args.rule.older_than {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        rule.clock_min = Some(u64::try_from(now.saturating_sub(age).as_nanos()).unwrap_or(u64::MAX));
    }
    if let Some(before) = args.rule.before {
        let Some(last) = version_before(before) else { return Ok(None) };
        rule.snapshot = Some(newest.map_or(last, |newest| newest.min(last)));
    }
    Ok(Some(rule))
}

/// Returns the highest version below `version`.
fn version_before(version: Version) -> Option<Version> {
    match (version.epoch, version.sequence.checked_sub(1)) {
        (epoch, Some(sequence)) => Some(Version::new(epoch, sequence)),
        (epoch, None) => Some(Version::new(epoch.checked_sub(1)?, u64::MAX)),
    }
}

fn tell(args: &Args, log: &Chosen, pruned: Prunable) -> CliResult {
    let Prunable { segments, bytes, through } = pruned;
    print(
        args.json,
        || {
            let event = if args.dry_run { "prunable" } else { "pruned" };
            json!({"event": event, "number": log.number, "name": log.name, "segments": segments, "bytes": bytes,
                   "through": or_null(through)})
        },
        || {
            let verb = if args.dry_run { "would prune" } else { "pruned" };
            match through {
                None => format!("log {log}: {verb} nothing; only whole segments are pruned, and never the last one"),
                Some(through) => format!(
                    "log {log}: {verb} the records up to {through}: {segments} segment{}, {}B",
                    if segments == 1 { "" } else { "s" },
                    short(bytes as f64)
                ),
            }
        },
    )
}
