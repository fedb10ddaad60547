//! Chaos: real processes under load, exposed to everything that a machine does to processes. Their
//! histories are checked while they are made.
//!
//! [`plan`] draws events and their times from a seed. [`round`] carries them out, waits until all
//! members are in one view, and lets the group finish. [`cluster`] manages the processes,
//! [`mod@hosts`] provides their hosts and network, and [`judge`] compares their records with the
//! invariants. The member is the example `chaos_member` of the library. A round that fails is
//! reported with its seed. `--seed` plays it again, with the same events at the same times, on a
//! machine that will schedule it differently.
mod cluster;
mod disks;
mod hosts;
mod judge;
mod logs;
mod plan;
#[path = "../../../crates/spindle/examples/chaos_member/record.rs"]
#[allow(dead_code, reason = "writing is for the members, which include this file too")]
mod record;
mod round;

use crate::process::{Interrupted, Signals, Skipped, StepSession};
use anyhow::{Context, Result, bail};
use cluster::Folder;
use plan::EventKind;
use round::{Round, RoundFailure, RoundTally};
use serde_json::{Value, json};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const USAGE: &str = "\
       cargo xtask chaos [--seconds N] [--seed S] [--members A..B] [--suspect-after MS] [--bug NAME] [--only EVENT] [--logs] [--story] [--traces DIR] [--json]
       cargo xtask chaos --hosts A..B [--fabric tcp|ofi] [--seconds N] [--seed S] [--suspect-after MS] [--outage-max MS] [--only EVENT] [--story] [--traces DIR] [--json]
       cargo xtask chaos --disks [--hosts A..B] [--seconds N] [--seed S] [--members A..B] [--story] [--json]

  --seconds N         how long: rounds are begun until then, and if they are 30 or more, until enough has happened; 60 by default
  --seed S            the first round's seed; by default by the clock
  --members A..B      how many members; 3..5 by default
  --hosts A..B        on so many hosts, each a network namespace, with one or two members: cuts their links, too
  --fabric tcp|ofi    what carries the messages between hosts: streams, which is the default, or libfabric's provider for any network
  --suspect-after MS  the silence after which they evict each other; 300 by default, 800 between hosts
  --outage-max MS     the longest outage of all links; 4000 by default, 60000 in runs of 10 minutes or more
  --bug NAME          plant this bug of the core's in the members
  --only EVENT        this and nothing else, such as KillOthers or RemoveDirectory, or among hosts Outage, CutCrash, Recover or RestartSeeds
  --logs              one subgroup is logged, killed members are started again with their logs, and all logs are compared; on one host
  --disks             all processes of a logged group are killed and started again, at least 20 times; disks are lost, full or old;
                      with --hosts, on so many hosts, which are runtime directories here: hosts that stay away hold up no majority
  --story             print what was done in each round, and its views
  --traces DIR        members write what they trace at debug level (docs/guide/troubleshooting.md) to DIR/chaosROUND-PROCESS.trace
  --json              print the result as one object";

/// Smallest number of events in a run: kills and stops on one host, and disturbances among several.
const KILLS_MIN: u64 = 10;
const STOPS_MIN: u64 = 5;
const DISTURBANCES_MIN: u64 = 5;
/// Factor of a run's seconds after which a run without these events fails.
const PATIENCE: u32 = 5;
/// Shortest run that needs these events. A shorter run only plays a seed again.
const SMOKE_HOSTS_SECONDS: u64 = 30;
const SMOKE_SECONDS: u64 = 60;
const SUSPECT_AFTER: Duration = Duration::from_millis(300);
/// Between hosts, a lost packet is sent again after 200 ms at least.
const SUSPECT_AFTER_AFAR: Duration = Duration::from_millis(800);
/// The longest outage in a short run. The next constants are those of a long run.
const OUTAGE_MAX: Duration = Duration::from_secs(4);
const LONG_OUTAGE_MAX: Duration = Duration::from_secs(60);
const LONG_RUN_SECONDS: u64 = 600;
/// The longest outage that is useful. In a longer one, a process that waits for the group gives up.
const OUTAGE_MS_MAX: u64 = 60_000;
/// Time for the build, and for the rest of the run after its last round began.
const SPARE: Duration = Duration::from_secs(1200);

/// The request on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChaosOptions {
    seconds: u64,
    seed: Option<u64>,
    members: RangeInclusive<u32>,
    /// Number of hosts; `None`: all members are on this one.
    hosts: Option<RangeInclusive<u32>>,
    /// The transport between the hosts.
    fabric: String,
    suspect_after: Duration,
    outage_max: Duration,
    bug: Option<String>,
    only: Option<EventKind>,
    /// True if a subgroup is logged.
    logs: bool,
    /// True if the run is one of total restarts.
    disks: bool,
    /// True if the history of each round is printed.
    story: bool,
    /// The directory for the members' traces.
    traces: Option<PathBuf>,
    json: bool,
}

impl ChaosOptions {
    pub(crate) fn parse(args: &[String]) -> Result<ChaosOptions> {
        let mut options = ChaosOptions {
            seconds: SMOKE_SECONDS,
            seed: None,
            members: 3..=5,
            hosts: None,
            fabric: "tcp".to_owned(),
            suspect_after: Duration::ZERO,
            outage_max: Duration::ZERO,
            bug: None,
            only: None,
            logs: false,
            disks: false,
            story: false,
            traces: None,
            json: false,
        };
        let (mut args, mut only) = (args.iter(), None);
        while let Some(arg) = args.next() {
            let flag = match arg.as_str() {
                "--json" => Some(&mut options.json),
                "--logs" => Some(&mut options.logs),
                "--disks" => Some(&mut options.disks),
                "--story" => Some(&mut options.story),
                _ => None,
            };
            if let Some(flag) = flag {
                *flag = true;
                continue;
            }
            let value = args.next().with_context(|| format!("{arg} is unknown, or wants a value\n{USAGE}"))?;
            let number = || value.parse::<u64>().with_context(|| format!("{arg} wants a number, not {value:?}"));
            match arg.as_str() {
                "--seconds" => options.seconds = number()?,
                "--seed" => options.seed = Some(number()?),
                "--members" => options.members = members(value)?,
                "--hosts" => options.hosts = Some(hosts(value)?),
                "--fabric" if ["tcp", "ofi"].contains(&value.as_str()) => options.fabric = value.clone(),
                "--fabric" => bail!("--fabric wants tcp or ofi, not {value:?}"),
                "--suspect-after" => options.suspect_after = Duration::from_millis(number()?.max(20)),
                "--outage-max" => options.outage_max = Duration::from_millis(number()?.clamp(1, OUTAGE_MS_MAX)),
                "--traces" => options.traces = Some(PathBuf::from(value)),
                "--only" => only = Some(value),
                "--bug" => options.bug = Some(value.clone()),
                _ => bail!("unknown argument {arg:?}\n{USAGE}"),
            }
        }
        if options.hosts.is_none() && options.fabric != "tcp" {
            bail!("--fabric says what goes between hosts: with --hosts only");
        }
        if options.hosts.is_some() && options.logs {
            bail!("--logs is for members on one host: without --hosts");
        }
        if options.disks && (options.logs || options.bug.is_some() || only.is_some() || options.fabric != "tcp") {
            bail!("--disks has events of its own: without --fabric, --logs, --bug and --only");
        }
        if options.disks && *options.members.start() < 3 {
            bail!("--disks loses disks: with --members from 3");
        }
        if let Some(name) = only {
            let (among_hosts, place) =
                (options.hosts.is_some(), if options.hosts.is_some() { "among hosts" } else { "on one host" });
            let what = EventKind::named(name, among_hosts);
            options.only = Some(what.with_context(|| format!("--only {name}: no such event {place}"))?);
        }
        if options.outage_max.is_zero() {
            options.outage_max = if options.seconds < LONG_RUN_SECONDS { OUTAGE_MAX } else { LONG_OUTAGE_MAX };
        }
        if options.suspect_after.is_zero() {
            options.suspect_after = if options.hosts.is_some() { SUSPECT_AFTER_AFAR } else { SUSPECT_AFTER };
        }
        Ok(options)
    }
}

fn members(text: &str) -> Result<RangeInclusive<u32>> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    match (low.parse::<u32>(), high.parse::<u32>()) {
        (Ok(low), Ok(high)) if 1 <= low && low <= high && high <= 16 => Ok(low..=high),
        _ => bail!("--members wants a number from 1 to 16, or two as in 3..5, not {text:?}"),
    }
}

fn hosts(text: &str) -> Result<RangeInclusive<u32>> {
    // Two hosts are too few, because neither has a majority.
    members(text)
        .ok()
        .filter(|hosts| *hosts.start() >= 3)
        .with_context(|| format!("--hosts wants a number from 3 to 16, or two as in 3..5, not {text:?}"))
}

/// Seed of the CI step. The step plays the same rounds each time, so that a failure comes from a
/// change. Campaigns look for unknown bugs.
const SMOKE_HOSTS_SEED: &str = "1753228362718872";

/// Runs the CI step with several hosts, on machines that can have hosts.
pub(crate) fn smoke_among_hosts(session: &StepSession<'_>) -> Result<String> {
    if let Some(obstacle) = hosts::obstacle() {
        return Err(Skipped(obstacle).into());
    }
    let program = std::env::current_exe().context("this program has no path")?;
    let seconds = SMOKE_HOSTS_SECONDS.to_string();
    let words = ["chaos", "--hosts", "3..5", "--seconds", &seconds, "--seed", SMOKE_HOSTS_SEED];
    session.run(session.command(&program.to_string_lossy()).args(words))?;
    Ok(String::new())
}

/// Runs the CI step on one host: a run of a minute, in a process of its own, which cleans up when
/// it is stopped.
pub(crate) fn smoke(session: &StepSession<'_>) -> Result<String> {
    let program = std::env::current_exe().context("this program has no path")?;
    session.run(session.command(&program.to_string_lossy()).args([
        "chaos",
        "--seconds",
        &SMOKE_SECONDS.to_string(),
    ]))?;
    Ok(String::new())
}

/// Runs chaos, and reports the result.
pub(crate) fn run(options: &ChaosOptions, root: &Path) -> Result<ExitCode> {
    if options.disks {
        return disks::run(options, root);
    }
    if options.hosts.is_some()
        && let Some(obstacle) = hosts::obstacle()
    {
        println!("skipped: {obstacle}");
        return Ok(ExitCode::SUCCESS);
    }
    let signals = Signals::watch()?;
    let session = StepSession::new(root, None, Instant::now() + Duration::from_secs(options.seconds) + SPARE, &signals);
    let program = build(options, &session)?;
    if options.fabric == "ofi" {
        let usable = Command::new(&program).arg("ofi").output().context("can't start a member")?;
        if !usable.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&usable.stdout).trim());
            return Ok(ExitCode::SUCCESS);
        }
    }
    let folder = Folder::new()?;
    if let Some(traces) = &options.traces {
        fs::create_dir_all(traces).with_context(|| format!("can't make {}", traces.display()))?;
    }
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64 >> 10);
    let mut seed = options.seed.unwrap_or_else(clock);
    let (begin, mut total, mut rounds) = (Instant::now(), RoundTally::default(), 0);
    let wanted = Duration::from_secs(options.seconds);
    let failure = loop {
        if begin.elapsed() >= wanted && (!total.lacks(options) || begin.elapsed() >= PATIENCE * wanted) {
            break None;
        }
        rounds += 1;
        let round = Round::new(options, &program, &folder, &signals, seed, rounds);
        match round.play() {
            Ok(tally) => {
                if !options.json {
                    println!("round {rounds}, seed {seed}: {}", line(&tally));
                }
                total.add(tally);
            }
            Err(RoundFailure::Broken(report, tally)) => {
                total.add(*tally);
                break Some(report);
            }
            Err(RoundFailure::Other(error)) if error.is::<Interrupted>() => {
                eprintln!("stopped after {} rounds", rounds - 1);
                if rounds > 1 {
                    tell(options, &total, rounds - 1, begin.elapsed(), None);
                }
                return Ok(ExitCode::from(130));
            }
            Err(RoundFailure::Other(error)) => return Err(error),
        }
        // The next seed is mixed, because only random starts give sequences of seeds that don't
        // meet.
        seed = record::mix(seed) >> 16;
    };
    drop(folder);
    tell(options, &total, rounds, begin.elapsed(), failure.as_ref().map(|report| (seed, report.as_str())));
    if failure.is_some() {
        return Ok(ExitCode::FAILURE);
    }
    if 2 * total.unjudged > u64::from(rounds) {
        bail!("{} of {rounds} rounds were not judged: this machine has too much else to do", total.unjudged);
    }
    if total.lacks(options) {
        bail!(
            "too little happened: {} kills and {} stops ({KILLS_MIN} and {STOPS_MIN} on one host), {} disturbances of a network ({DISTURBANCES_MIN} among hosts)",
            total.kills,
            total.stops,
            total.disturbances(),
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn build(options: &ChaosOptions, session: &StepSession<'_>) -> Result<PathBuf> {
    let metadata = session.metadata()?;
    let mut target = metadata.target_directory;
    let mut command = session.command("cargo");
    command.args([
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package=spindle-multicast",
        "--example=chaos_member",
    ]);
    // This is the operator's command. A run on one host does not use it, but without it the library
    // would be built again, with other features.
    command.args(["--package=spindle-cli", "--bin=spindle"]);
    if options.bug.is_some() {
        // The build directory is separate, as for the other builds with mutations, so that the
        // others stay warm.
        target = target.join("mutations");
        command.env("RUSTFLAGS", "--cfg mutation").env("CARGO_TARGET_DIR", &target);
    }
    session.run(&mut command)?;
    Ok(target.join("release/examples/chaos_member").into())
}

impl RoundTally {
    /// Returns the number of disturbances of a network, apart from delays that stay.
    fn disturbances(&self) -> u64 {
        self.cuts + self.one_ways + self.flaps + self.slows + self.outages
    }

    /// Returns true if too few events happened for a run to be meaningful.
    fn lacks(&self, options: &ChaosOptions) -> bool {
        if options.only.is_some() || options.seconds < SMOKE_HOSTS_SECONDS {
            return false;
        }
        match options.hosts {
            Some(_) => self.disturbances() < DISTURBANCES_MIN,
            None => self.kills < KILLS_MIN || self.stops < STOPS_MIN,
        }
    }

    fn add(&mut self, other: RoundTally) {
        for (mine, theirs) in [
            (&mut self.kills, other.kills),
            (&mut self.stops, other.stops),
            (&mut self.long_stops, other.long_stops),
            (&mut self.joins, other.joins),
            (&mut self.leaves, other.leaves),
            (&mut self.restarts, other.restarts),
            (&mut self.removals, other.removals),
            (&mut self.evictions, other.evictions),
            (&mut self.unprovoked, other.unprovoked),
            (&mut self.unjudged, other.unjudged),
            (&mut self.cuts, other.cuts),
            (&mut self.one_ways, other.one_ways),
            (&mut self.flaps, other.flaps),
            (&mut self.slows, other.slows),
            (&mut self.outages, other.outages),
            (&mut self.delays, other.delays),
            (&mut self.crashes, other.crashes),
            (&mut self.seed_restarts, other.seed_restarts),
            (&mut self.recoveries, other.recoveries),
            (&mut self.after_outages, other.after_outages),
            (&mut self.sums.views, other.sums.views),
            (&mut self.sums.eras, other.sums.eras),
            (&mut self.sums.accepted, other.sums.accepted),
            (&mut self.sums.deliveries, other.sums.deliveries),
            (&mut self.sums.lost_by_leavers, other.sums.lost_by_leavers),
            (&mut self.sums.durable, other.sums.durable),
            (&mut self.logged, other.logged),
            (&mut self.rejoined, other.rejoined),
        ] {
            *mine += theirs;
        }
        self.gaps.extend(other.gaps);
        self.recovered.extend(other.recovered);
        self.slowest = [self.slowest, other.slowest].into_iter().flatten().max_by_key(|(_, times)| *times);
        self.calm_ms.extend(other.calm_ms);
        self.finish_ms.extend(other.finish_ms);
    }
}

fn line(tally: &RoundTally) -> String {
    let network = if tally.disturbances() + tally.delays == 0 {
        String::new()
    } else {
        format!(
            "{} cuts ({} crashes meanwhile), {} one-way cuts, {} flaps, {} slow links, {} delays, {} outages ({} evictions after them), ",
            tally.cuts,
            tally.crashes,
            tally.one_ways,
            tally.flaps,
            tally.slows,
            tally.delays,
            tally.outages,
            tally.after_outages
        )
    };
    let unjudged = match tally.unjudged {
        0 => String::new(),
        rounds => format!("{rounds} rounds not judged, in which the machine stood still, "),
    };
    let logged = match tally.logged {
        0 => String::new(),
        logged => format!(
            ", {logged} messages in logs, {} acknowledged as durable, {} processes that continued a log",
            tally.sums.durable, tally.rejoined
        ),
    };
    format!(
        "{unjudged}{network}{} recoveries by an operator, {} seeds started again, {} kills, {} stops ({} long), {} joins, {} leaves, {} restarts, {} removals, {} evictions ({} unprovoked), {} groups, {} views, \
         {} messages, {} deliveries, {} lost that leavers sent after they had asked{logged}",
        tally.recoveries,
        tally.seed_restarts,
        tally.kills,
        tally.stops,
        tally.long_stops,
        tally.joins,
        tally.leaves,
        tally.restarts,
        tally.removals,
        tally.evictions,
        tally.unprovoked,
        tally.sums.eras,
        tally.sums.views,
        tally.sums.accepted,
        tally.sums.deliveries,
        tally.sums.lost_by_leavers
    )
}

/// Returns the median, the 90th percentile and the worst of `values`.
fn spread(mut values: Vec<u64>) -> Option<[u64; 3]> {
    values.sort_unstable();
    let at = |part: usize| values.get((values.len().checked_sub(1)?) * part / 100).copied();
    Some([at(50)?, at(90)?, at(100)?])
}

fn tell(options: &ChaosOptions, total: &RoundTally, rounds: u32, took: Duration, failure: Option<(u64, &str)>) {
    let all = spread(total.gaps.iter().map(|(gap, _)| *gap / 1000).collect());
    let alone = spread(total.gaps.iter().filter(|(_, alone)| *alone).map(|(gap, _)| *gap / 1000).collect());
    let recovered = |which: usize| spread(total.recovered.iter().map(|times| times[which] / 1_000_000).collect());
    let [by_majority, by_all] = [0, 1].map(recovered);
    let (calm, finish) = (spread(total.calm_ms.clone()), spread(total.finish_ms.clone()));
    let seconds = took.as_secs_f64();
    let per_second = (total.sums.accepted as f64 / seconds).round();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    if options.json {
        let named = |spread: Option<[u64; 3]>| {
            spread.map_or(Value::Null, |[m, p, w]| json!({"median": m, "p90": p, "worst": w}))
        };
        let mut value = json!({
            "rounds": rounds, "seconds": seconds, "kills": total.kills, "stops": total.stops, "long_stops": total.long_stops,
            "joins": total.joins, "leaves": total.leaves, "restarts": total.restarts, "removals": total.removals, "evictions": total.evictions,
            "unprovoked_evictions": total.unprovoked, "unjudged_rounds": total.unjudged, "groups": total.sums.eras, "views": total.sums.views,
            "messages": total.sums.accepted, "messages_per_second": per_second, "deliveries": total.sums.deliveries,
            "cuts": total.cuts, "one_way_cuts": total.one_ways, "flaps": total.flaps, "slow_links": total.slows,
            "outages": total.outages, "evictions_after_outages": total.after_outages, "delays": total.delays,
            "crashes_in_cuts": total.crashes, "seed_restarts": total.seed_restarts, "operator_recoveries": total.recoveries, "recoveries": total.recovered.len(), "recovery_ms": named(by_all), "recovery_of_majority_ms": named(by_majority),
             "lost_by_leavers": total.sums.lost_by_leavers, "logged": total.logged, "durable": total.sums.durable, "gaps": total.gaps.len(), "gap_us": named(all),
            "gap_alone_us": named(alone), "calm_ms": named(calm), "finish_ms": named(finish), "load": load,
            "failed_seed": failure.map(|(seed, _)| seed), "failure": failure.map(|(_, report)| report),
        });
        value["rejoined"] = total.rejoined.into();
        println!("{value}");
        return;
    }
    println!("{rounds} rounds in {seconds:.0} s: {}", line(total));
    println!("{per_second} messages/s; load {load}");
    let show = |what: &str, unit: &str, spread: Option<[u64; 3]>| {
        if let Some([median, p90, worst]) = spread {
            println!("{what}: median {median} {unit}, 90 % within {p90} {unit}, worst {worst} {unit}");
        }
    };
    show("from a kill to a survivor's next delivery", "us", all);
    show("  the same where nothing else happened", "us", alone);
    show(
        "from the end of the last disturbance of a network until more than half of the members deliver",
        "ms",
        by_majority,
    );
    show("  until the last member does", "ms", by_all);
    if let Some((seed, [majority, last])) = total.slowest {
        println!("  the slowest, in seed {seed}: {} ms, and {} ms", majority / 1_000_000, last / 1_000_000);
    }
    show("from the end of the storm to one view", "ms", calm);
    show("from there to the end of the last", "ms", finish);
    if let Some((seed, report)) = failure {
        let (what, range) = options.hosts.as_ref().map_or(("members", &options.members), |hosts| ("hosts", hosts));
        let fabric = if options.fabric == "tcp" { "" } else { " --fabric ofi" };
        let range = format!("{}..{}{fabric}", range.start(), range.end());
        let only = options.only.map_or_else(String::new, |what| format!(" --only {}", what.name()));
        let outage = options.outage_max.as_millis();
        let outage = if options.hosts.is_some() { format!(" --outage-max {outage}") } else { String::new() };
        let logs = if options.logs { " --logs" } else { "" };
        println!(
            "\nFAILED: {report}\n\nagain: cargo xtask chaos --seconds 1 --seed {seed} --{what} {range}{only}{outage}{logs}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ChaosOptions> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        ChaosOptions::parse(&args)
    }

    #[test]
    fn arguments_are_read_and_nonsense_is_refused() {
        let options = parsed("--seconds 5 --seed 7 --members 2..4 --json").unwrap();
        assert_eq!((options.seconds, options.seed, options.members, options.json), (5, Some(7), 2..=4, true));
        assert_eq!(parsed("--members 3").unwrap().members, 3..=3);
        assert!(parsed("--disks --seed 4 --members 3").unwrap().disks);
        assert_eq!(parsed("--disks --hosts 3..4").unwrap().hosts, Some(3..=4));
        let options = parsed("--hosts 3..5").unwrap();
        assert_eq!((options.hosts, options.suspect_after), (Some(3..=5), SUSPECT_AFTER_AFAR));
        assert_eq!(parsed("--hosts 3 --fabric ofi").unwrap().fabric, "ofi");
        let options = parsed("--only Outage --hosts 3..4").unwrap();
        assert_eq!(options.only.map(EventKind::name).as_deref(), Some("Outage"));
        assert_eq!(options.outage_max, OUTAGE_MAX);
        assert_eq!(parsed("--hosts 3 --seconds 3600").unwrap().outage_max, LONG_OUTAGE_MAX);
        assert_eq!(parsed("--hosts 3 --outage-max 9000").unwrap().outage_max, Duration::from_secs(9));
        for wrong in [
            "--only Outage",
            "--only Shatter --hosts 3",
            "--fabric ofi",
            "--hosts 3 --fabric shm",
            "--hosts 2",
            "--seconds",
            "--seconds x",
            "--members 5..3",
            "--members 0",
            "--nothing 1",
            "--disks --hosts 3 --fabric ofi",
            "--disks --members 2",
            "--disks --only Kill",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![5]), Some([5, 5, 5]));
        assert_eq!(spread((0..=100).rev().collect()), Some([50, 90, 100]));
    }
}
