//! Total restarts of real groups with logs: all processes are killed again and again, at moments that
//! are drawn from a seed, and the group has to continue from its disks.
//!
//! [`plan`] draws the lives of a group. [`round`] plays them with processes of `spindle member`
//! ([`member`]) on data directories ([`seat`]), some of which are lost, full or old. [`judge`]
//! compares what the members leave, which [`files`] reads. Nothing that a member called durable may
//! be lost, and all logs have to be the same in the end.
//!
//! The small disk of a round is a `tmpfs` in a mount namespace of this process, which only root can
//! make. For other users no disk gets full.
mod files;
mod judge;
mod member;
mod plan;
mod round;
mod seat;

use super::cluster::Folder;
use super::{ChaosOptions, record, spread};
use crate::process::{Interrupted, Signals, StepSession};
use anyhow::{Context, Result, bail};
use round::{DisksRound, DisksTally};
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Total restarts that a run has at least.
pub(super) const RESTARTS_MIN: u64 = 20;
/// Factor of a run's seconds after which a run without these restarts fails.
const PATIENCE: u32 = 10;
/// Shortest run that needs these restarts. A shorter run only plays a seed again.
const SHORT_SECONDS: u64 = 30;
/// Set in the process that has a mount namespace of its own.
const MOUNTS: &str = "CHAOS_DISKS_MOUNTS";
/// Time for the build, and for the rest of the run after its last round began.
const SPARE: Duration = Duration::from_secs(1200);

/// Plays rounds, and reports the result.
pub(super) fn run(options: &ChaosOptions, root: &Path) -> Result<ExitCode> {
    let mounts = enter_namespace();
    if let Some(obstacle) = mounts.as_ref().err() {
        eprintln!("no disk gets full: {obstacle}");
    }
    let signals = Signals::watch()?;
    let session = StepSession::new(root, None, Instant::now() + Duration::from_secs(options.seconds) + SPARE, &signals);
    let program = build(&session)?;
    let folder = Folder::new()?;
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64 >> 10);
    let mut seed = options.seed.unwrap_or_else(clock);
    let (begin, wanted) = (Instant::now(), Duration::from_secs(options.seconds));
    let (mut total, mut rounds) = (DisksTally::default(), 0);
    let lacks = |total: &DisksTally| options.seconds >= SHORT_SECONDS && total.restarts < RESTARTS_MIN;
    let failure = loop {
        if begin.elapsed() >= wanted && (!lacks(&total) || begin.elapsed() >= PATIENCE * wanted) {
            break None;
        }
        rounds += 1;
        let place = folder.path().join(format!("round{rounds}"));
        let mut round = DisksRound::new(options, &program, place, &signals, seed, mounts.is_ok())?;
        let result = round.play();
        total.add(round.tally());
        match result {
            Ok(()) => {
                if options.story {
                    println!("{}", round.history().join("\n"));
                }
                if !options.json {
                    println!("round {rounds}, seed {seed}: {}", line(round.tally()));
                }
            }
            Err(error) if error.is::<Interrupted>() => {
                eprintln!("stopped after {} rounds", rounds - 1);
                return Ok(ExitCode::from(130));
            }
            Err(error) => {
                let kept = std::env::temp_dir().join(format!("spindle-chaos-failed-{}-{seed}", std::process::id()));
                break Some(round.report(&format!("{error:#}"), &kept));
            }
        }
        seed = record::mix(seed) >> 16;
    };
    drop(folder);
    tell(options, &total, rounds, begin.elapsed(), failure.as_deref().map(|report| (seed, report)));
    if failure.is_some() {
        return Ok(ExitCode::FAILURE);
    }
    if lacks(&total) {
        bail!("too little happened: {} total restarts of {RESTARTS_MIN}", total.restarts);
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts this program again in a mount namespace of its own, unless it has one. Returns why it has
/// none.
fn enter_namespace() -> Result<(), String> {
    if std::env::var_os(MOUNTS).is_some() {
        return Ok(());
    }
    let unshare = ["--mount", "--propagation", "private"];
    let probe = Command::new("unshare").args(unshare).arg("true").output().map_err(|error| error.to_string())?;
    if !probe.status.success() {
        return Err(String::from_utf8_lossy(&probe.stderr).trim().to_owned());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut again = Command::new("unshare");
    again.args(unshare).arg(program).args(std::env::args_os().skip(1)).env(MOUNTS, "1");
    Err(again.exec().to_string())
}

fn build(session: &StepSession<'_>) -> Result<PathBuf> {
    session.run(
        session
            .command("cargo")
            .args(["build", "--quiet", "--locked", "--release"])
            .args(["--package=spindle-cli", "--bin=spindle"]),
    )?;
    let target = session.metadata()?.target_directory;
    let program = PathBuf::from(target.join("release/spindle"));
    program.canonicalize().with_context(|| format!("{} was not built", program.display()))
}

impl DisksTally {
    fn add(&mut self, other: &DisksTally) {
        for (mine, theirs) in [
            (&mut self.restarts, other.restarts),
            (&mut self.in_starts, other.in_starts),
            (&mut self.kills, other.kills),
            (&mut self.wiped, other.wiped),
            (&mut self.old_copies, other.old_copies),
            (&mut self.refused_copies, other.refused_copies),
            (&mut self.full_disks, other.full_disks),
            (&mut self.refused_full, other.refused_full),
            (&mut self.stops, other.stops),
            (&mut self.named, other.named),
            (&mut self.without, other.without),
            (&mut self.evictions, other.evictions),
            (&mut self.id_conflicts, other.id_conflicts),
            (&mut self.given_up, other.given_up),
            (&mut self.durable, other.durable),
            (&mut self.not_durable, other.not_durable),
            (&mut self.logged, other.logged),
            (&mut self.deliveries, other.deliveries),
        ] {
            *mine += theirs;
        }
        self.view_ms.extend(&other.view_ms);
    }
}

fn line(tally: &DisksTally) -> String {
    format!(
        "{} total restarts ({} of starting processes), {} kills, {} disks lost, {} full ({} not started on), {} old copies ({} refused), \
         {} stops, {} waits that named the missing member, {} restarts without it, {} evictions, {} ids that new processes had, {} members without a record given up, {} messages in logs, \
         {} acknowledged as durable, {} as not durable, {} deliveries",
        tally.restarts,
        tally.in_starts,
        tally.kills,
        tally.wiped,
        tally.full_disks,
        tally.refused_full,
        tally.old_copies,
        tally.refused_copies,
        tally.stops,
        tally.named,
        tally.without,
        tally.evictions,
        tally.id_conflicts,
        tally.given_up,
        tally.logged,
        tally.durable,
        tally.not_durable,
        tally.deliveries
    )
}

fn tell(options: &ChaosOptions, total: &DisksTally, rounds: u32, took: Duration, failure: Option<(u64, &str)>) {
    let seconds = took.as_secs_f64();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let view = spread(total.view_ms.clone());
    if options.json {
        let value = json!({
            "rounds": rounds, "seconds": seconds, "restarts": total.restarts, "restarts_of_starting": total.in_starts,
            "kills": total.kills, "lost_disks": total.wiped, "full_disks": total.full_disks, "refused_full": total.refused_full,
            "old_copies": total.old_copies, "refused_copies": total.refused_copies, "stops": total.stops, "named": total.named, "without": total.without,
            "evictions": total.evictions, "id_conflicts": total.id_conflicts, "given_up": total.given_up, "logged": total.logged, "durable": total.durable,
            "not_durable": total.not_durable, "deliveries": total.deliveries, "load": load,
            "view_ms": view.map(|[median, p90, worst]| json!({"median": median, "p90": p90, "worst": worst})),
            "failed_seed": failure.map(|(seed, _)| seed), "failure": failure.map(|(_, report)| report),
        });
        println!("{value}");
        return;
    }
    println!("{rounds} rounds in {seconds:.0} s: {}", line(total));
    if let Some([median, p90, worst]) = view {
        println!(
            "from the last start to one view: median {median} ms, 90 % within {p90} ms, worst {worst} ms; load {load}"
        );
    }
    if let Some((seed, report)) = failure {
        let (low, high) = (options.members.start(), options.members.end());
        let hosts = options.hosts.as_ref().map(|hosts| format!(" --hosts {}..{}", hosts.start(), hosts.end()));
        let hosts = hosts.unwrap_or_default();
        println!(
            "\nFAILED: {report}\n\nagain: cargo xtask chaos --disks{hosts} --seconds 1 --seed {seed} --members {low}..{high}"
        );
    }
}
