//! `spindle sim`: the command line of the simulator in `spindle-sim`.
use crate::exit::{CliError, CliResult, FAILED};
use crate::signals::Stop;
use anyhow::Context;
use serde_json::{Map, Value, json};
use spindle_sim::{
    Counts, Options, Plan, Setting, Summary, Violation, bootstrap, bulk, campaign, explain, processes, replay_line,
    restart,
};
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::atomic::Ordering;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Number of failed seeds that end a campaign early. More of them are hardly of different kinds.
const FAILURES_MAX: usize = 20;
/// Time between two updates of the progress on a terminal.
const SHOW_EVERY: Duration = Duration::from_millis(250);

/// Arguments of `spindle sim`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,

    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,

    /// Let members join and leave in every seed, not in about half of them; a seed then has another
    /// history than without
    #[arg(long)]
    views: bool,

    /// Search groups of 60 members with 200 subgroups, through joins, leaves, crashes and changes
    /// of subgroups: 10 s and up to 7 GB for a seed
    #[arg(long, conflicts_with = "views")]
    large: bool,

    /// Search the block multicast, in a model of a network with slow links, slow hosts and crashes
    #[arg(long, conflicts_with_all = ["views", "large", "threads", "trace"])]
    bulk: bool,

    /// Search the bootstrap of groups between hosts: whole processes with disks, which crash and
    /// restart, on a network that delays, loses and partitions
    #[arg(long, conflicts_with_all = ["views", "large", "bulk", "threads", "trace"])]
    bootstrap: bool,

    /// Search total restarts: whole processes with disks and logs, which all crash and continue with
    /// the members of the last view, on one host or between hosts
    #[arg(long, conflicts_with_all = ["views", "large", "bulk", "bootstrap", "threads", "trace"])]
    restart: bool,

    /// Search whole processes with the control plane, from bootstrap and joins over views to their
    /// ends: kills, pauses, restarts, leaves, partitions, broken connections and directories that
    /// vanish
    #[arg(long, conflicts_with_all = ["views", "large", "bulk", "bootstrap", "restart", "trace"])]
    processes: bool,

    /// Run this seed only, and print its history
    #[arg(long, conflicts_with_all = ["seeds", "from", "threads"])]
    seed: Option<u64>,

    /// With --seed and --json: add the history to the object
    #[arg(long, requires = "seed")]
    trace: bool,

    /// Seeds to run at the same time [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,

    /// Print one JSON object at the end.
    ///
    /// Many seeds: seeds, deliveries, messages, nulls, polls, posts, faults, views, installs,
    /// crashes, hangs, suspicions, cuts, absences, joins, leaves, evictions, resent, barriers, blocked,
    /// events, virtual_ns, elapsed_s and failures, a list of {seed, invariant, name, at_ns, what}.
    /// One seed: seed, all of these counts, blocked as true or false, trace_hash, failures, and
    /// with --trace the trace.
    ///
    /// With --bulk: seeds, objects, blocks, completions, failures_told, deaths, faults, events,
    /// virtual_ns, elapsed_s and failures; of one seed: seed, the same counts, trace_hash and
    /// failures.
    ///
    /// With --bootstrap: seeds, bootstraps, joins, evictions, restarts, faults, united, lost,
    /// words, forgotten, messages, events, virtual_ns, elapsed_s and failures; of one seed: seed,
    /// bootstraps, joins, evictions, restarts, conflicts, united, lost, forgotten, messages,
    /// events, virtual_ns, trace_hash and failures.
    ///
    /// With --restart: seeds, views, restarts, restarted, ended_restarting, attempts, outbid,
    /// proposed_again, learned, refused, recoveries, lost_disks, joins, view_changes, blocked,
    /// ended_in_order, crashes, crashes_at_writes, sent, durable, caught_up, gaps, messages, events, faults, united,
    /// virtual_ns, elapsed_s and failures; of one seed: seed, the same counts but for faults and
    /// elapsed_s, trace_hash and failures.
    ///
    /// With --processes: seeds, bootstraps, joins, evictions, recoveries, mistakes, leaves,
    /// refusals, kills, restarts, partitions, heals, full, look_ups, moved, breaks, views,
    /// deliveries, fifo, large_sent, large, large_again, blocks, lent, groups_closed, fetched,
    /// objects_missed, unavailable, available_again, proposed changes, changes, learned, transfers,
    /// transfers_lost, continued, passed_over, lapped, observed, gaps, faults, united, lost,
    /// events, virtual_ns, elapsed_s and failures; of one seed: seed, the same counts but for
    /// faults and elapsed_s, trace_hash and failures.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn options(&self) -> Options {
        let setting = match (self.views, self.large) {
            (true, _) => Setting::Views,
            (_, true) => Setting::Large,
            _ => Setting::Mixed,
        };
        Options { setting, ..Options::default() }
    }
}

pub(crate) fn run(args: Args) -> CliResult {
    match args.seed {
        Some(seed) if args.bulk => replay_bulk(seed, &args),
        None if args.bulk => search_bulk(&args),
        Some(seed) if args.bootstrap => replay_bootstrap(seed, &args),
        None if args.bootstrap => search_bootstrap(&args),
        Some(seed) if args.restart => replay_restart(seed, &args),
        None if args.restart => search_restart(&args),
        Some(seed) if args.processes => replay_processes(seed, &args),
        None if args.processes => search_processes(&args),
        Some(seed) => replay(seed, &args),
        None => search(&args),
    }
    .map_err(|failure| failure.told_as_json(args.json))
}

/// Runs one seed, and prints its history.
fn replay(seed: u64, args: &Args) -> CliResult {
    let (outcome, story) = explain(&Plan::from_seed(seed, &args.options()));
    if args.json {
        let mut object = numbers(&outcome.counts);
        object["seed"] = seed.into();
        object["blocked"] = outcome.blocked.into();
        object["trace_hash"] = format!("{:016x}", outcome.trace_hash).into();
        object["failures"] = failures(outcome.violations.iter().map(|violation| (seed, violation)));
        if args.trace {
            object["trace"] = story.into();
        }
        print(&object.to_string())?;
    } else {
        print(story.trim_end())?;
    }
    verdict(seed, &outcome.violations, args, || {
        format!(
            "\nseed {seed}: {} deliveries checked, {} views, {} faults, no violation{} (trace {:016x})",
            outcome.counts.deliveries,
            outcome.counts.views + 1,
            outcome.counts.faults,
            if outcome.blocked { "; at the end no group was at work" } else { "" },
            outcome.trace_hash
        )
    })
}

/// Returns the first violation of a seed as an error, or prints the text of `well`.
fn verdict(seed: u64, violations: &[Violation], args: &Args, well: impl FnOnce() -> String) -> CliResult {
    match violations.first() {
        Some(violation) => Err(CliError::new(FAILED, format_args!("seed {seed}: {violation}"))),
        None if args.json => Ok(()),
        None => print(&well()),
    }
}

/// Runs many seeds, and prints the counts.
fn search(args: &Args) -> CliResult {
    let stop = Stop::on_signals(|_| {})?;
    let threads = args.threads.unwrap_or_else(|| available_parallelism().map_or(1, |cores| cores.get() as u32));
    let (start, mut shown) = (Instant::now(), Instant::now());
    let live = stderr().is_terminal() && !args.json;
    let seeds = args.from..args.from.saturating_add(args.seeds);
    let summary = campaign(seeds, threads, &args.options(), |summary| {
        if live && shown.elapsed() >= SHOW_EVERY {
            shown = Instant::now();
            // A terminal that is gone is no error.
            let _ = write!(stderr(), "\r{} of {} seeds\x1b[K", summary.seeds, args.seeds);
        }
        !stop.flag.load(Ordering::Relaxed) && summary.failures.len() < FAILURES_MAX
    });
    if live {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    print(&describe(&summary, start.elapsed(), args))?;
    end(summary.failures.len(), summary.seeds, args, &stop)
}

/// Returns the result of a search in which `failed` of `ran` seeds failed.
fn end(failed: usize, ran: u64, args: &Args, stop: &Stop) -> CliResult {
    if failed > 0 {
        return Err(CliError::new(FAILED, format_args!("{failed} of {ran} seeds break an invariant")));
    }
    if stop.flag.load(Ordering::Relaxed) {
        let when = format!("after {ran} of {} seeds; none broke an invariant", args.seeds);
        return Err(CliError::stopped(stop.signal(), when));
    }
    Ok(())
}

fn describe(summary: &Summary, elapsed: Duration, args: &Args) -> String {
    let Summary { seeds, counts, blocked, failures, .. } = summary;
    let elapsed = elapsed.as_secs_f64();
    if args.json {
        let mut object = numbers(counts);
        object["seeds"] = (*seeds).into();
        object["blocked"] = (*blocked).into();
        object["elapsed_s"] = elapsed.into();
        object["failures"] = self::failures(failures.iter().map(|(seed, violation)| (*seed, violation)));
        return object.to_string();
    }
    let Counts { messages, deliveries, faults, virtual_ns, views, crashes, hangs, suspicions, .. } = counts;
    let Counts { cuts, absences, joins, leaves, .. } = counts;
    let mut text = String::new();
    for (seed, violation) in failures {
        text += &format!("seed {seed}: {violation}\n  replay: {}\n", replay_line(*seed, args.options().setting));
    }
    let rate = *seeds as f64 / elapsed.max(1e-9);
    text + &format!(
        "{seeds} seeds in {elapsed:.1} s ({rate:.0}/s): {messages} messages, {deliveries} deliveries checked, {faults} faults, \
         {:.1} s of virtual time; {views} view changes after {crashes} crashes, {hangs} hangs, {suspicions} false suspicions, \
         {cuts} cuts, {absences} rows that did not come, {joins} joins and {leaves} leaves; {} seeds failed",
        *virtual_ns as f64 / 1e9,
        failures.len()
    )
}

fn numbers(counts: &Counts) -> Value {
    json!({
        "deliveries": counts.deliveries, "messages": counts.messages, "nulls": counts.nulls, "polls": counts.polls,
        "posts": counts.posts, "faults": counts.faults, "views": counts.views, "installs": counts.installs,
        "crashes": counts.crashes, "hangs": counts.hangs, "suspicions": counts.suspicions, "cuts": counts.cuts,
        "absences": counts.absences, "joins": counts.joins, "leaves": counts.leaves, "evictions": counts.evictions,
        "resent": counts.resent, "barriers": counts.barriers, "events": counts.events, "virtual_ns": counts.virtual_ns,
    })
}

/// Runs one seed of the block multicast, and prints its history.
fn replay_bulk(seed: u64, args: &Args) -> CliResult {
    let (outcome, story) = bulk::explain(&bulk::BulkScene::from_seed(seed));
    if args.json {
        let object = json!({
            "seed": seed, "objects": outcome.objects, "blocks": outcome.blocks, "completions": outcome.completions,
            "failures_told": outcome.failures_told, "deaths": outcome.deaths, "faults": outcome.late,
            "events": outcome.events, "virtual_ns": outcome.virtual_ns,
            "trace_hash": format!("{:016x}", outcome.trace_hash),
            "failures": failures(outcome.violations.iter().map(|violation| (seed, violation))),
        });
        print(&object.to_string())?;
    } else {
        print(story.trim_end())?;
    }
    verdict(seed, &outcome.violations, args, || {
        format!(
            "\nseed {seed}: {} blocks checked, {} objects complete at receivers, no violation (trace {:016x})",
            outcome.blocks, outcome.completions, outcome.trace_hash
        )
    })
}

/// Runs many seeds of the block multicast, and prints the counts.
fn search_bulk(args: &Args) -> CliResult {
    let stop = Stop::on_signals(|_| {})?;
    let start = Instant::now();
    let summary = bulk::campaign(args.from..args.from.saturating_add(args.seeds), |summary| {
        !stop.flag.load(Ordering::Relaxed) && summary.failures.len() < FAILURES_MAX
    });
    let elapsed = start.elapsed().as_secs_f64();
    let bulk::BulkSummary { seeds, objects, blocks, completions, failures_told, deaths, .. } = summary;
    let bulk::BulkSummary { faults, events, virtual_ns, failures, .. } = &summary;
    if args.json {
        let object = json!({
            "seeds": seeds, "objects": objects, "blocks": blocks, "completions": completions, "failures_told": failures_told,
            "deaths": deaths, "faults": faults, "events": events, "virtual_ns": virtual_ns, "elapsed_s": elapsed,
            "failures": self::failures(failures.iter().map(|(seed, violation)| (*seed, violation))),
        });
        print(&object.to_string())?;
    } else {
        for (seed, violation) in failures {
            print(&format!("seed {seed}: {violation}\n  replay: {}", bulk::replay_line(*seed)))?;
        }
        print(&format!(
            "{seeds} seeds in {elapsed:.1} s ({:.0}/s): {objects} objects, {blocks} blocks checked, {completions} completions, \
             {failures_told} failures told after {deaths} deaths, {faults} other faults; {} seeds failed",
            seeds as f64 / elapsed.max(1e-9),
            failures.len()
        ))?;
    }
    end(failures.len(), seeds, args, &stop)
}

/// Runs one seed of the bootstrap between hosts, and prints its history.
fn replay_bootstrap(seed: u64, args: &Args) -> CliResult {
    let (outcome, story) = bootstrap::explain(&bootstrap::BootstrapScene::from_seed(seed));
    if args.json {
        let object = json!({
            "seed": seed, "bootstraps": outcome.bootstraps, "joins": outcome.joins, "evictions": outcome.evictions,
            "restarts": outcome.restarts, "conflicts": outcome.conflicts, "united": outcome.united, "lost": outcome.lost,
            "forgotten": outcome.forgotten, "messages": outcome.messages, "events": outcome.events, "virtual_ns": outcome.virtual_ns,
            "trace_hash": format!("{:016x}", outcome.trace_hash),
            "failures": failures(outcome.violations.iter().map(|violation| (seed, violation))),
        });
        print(&object.to_string())?;
    } else {
        print(story.trim_end())?;
    }
    verdict(seed, &outcome.violations, args, || {
        format!(
            "\nseed {seed}: {} bootstraps, {} joins, {} evictions, {} restarts, no violation{} (trace {:016x})",
            outcome.bootstraps,
            outcome.joins,
            outcome.evictions,
            outcome.restarts,
            if outcome.lost { "; a group was lost, and created anew by an operator's word" } else { "" },
            outcome.trace_hash
        )
    })
}

/// Runs many seeds of the bootstrap between hosts, and prints the counts.
fn search_bootstrap(args: &Args) -> CliResult {
    let stop = Stop::on_signals(|_| {})?;
    let start = Instant::now();
    let summary = bootstrap::campaign(args.from..args.from.saturating_add(args.seeds), |summary| {
        !stop.flag.load(Ordering::Relaxed) && summary.failures.len() < FAILURES_MAX
    });
    let elapsed = start.elapsed().as_secs_f64();
    let bootstrap::BootstrapSummary { seeds, bootstraps, joins, evictions, restarts, faults, united, lost, .. } =
        summary;
    let bootstrap::BootstrapSummary { words, forgotten, messages, events, virtual_ns, failures, .. } = &summary;
    if args.json {
        let object = json!({
            "seeds": seeds, "bootstraps": bootstraps, "joins": joins, "evictions": evictions, "restarts": restarts,
            "faults": faults, "united": united, "lost": lost, "words": words, "forgotten": forgotten, "messages": messages, "events": events,
            "virtual_ns": virtual_ns, "elapsed_s": elapsed,
            "failures": self::failures(failures.iter().map(|(seed, violation)| (*seed, violation))),
        });
        print(&object.to_string())?;
    } else {
        for (seed, violation) in failures {
            print(&format!("seed {seed}: {violation}\n  replay: {}", bootstrap::replay_line(*seed)))?;
        }
        print(&format!(
            "{seeds} seeds in {elapsed:.1} s ({:.0}/s): {bootstraps} bootstraps, {joins} joins, {evictions} evictions, {restarts} restarts, \
             {faults} faults, {messages} messages; {united} ended in one group, {lost} of them after a group was lost and an operator's \
             word; {} seeds failed",
            seeds as f64 / elapsed.max(1e-9),
            failures.len()
        ))?;
    }
    end(failures.len(), seeds, args, &stop)
}

/// Runs one seed of total restarts, and prints its history.
fn replay_restart(seed: u64, args: &Args) -> CliResult {
    let (outcome, story) = restart::explain(&restart::RestartScene::from_seed(seed));
    if args.json {
        let mut object = rows(&outcome.counts);
        object.extend([
            ("seed".into(), json!(seed)),
            ("united".into(), json!(outcome.united)),
            ("virtual_ns".into(), json!(outcome.virtual_ns)),
            ("trace_hash".into(), json!(format!("{:016x}", outcome.trace_hash))),
            ("failures".into(), failures(outcome.violations.iter().map(|violation| (seed, violation)))),
        ]);
        print(&Value::Object(object).to_string())?;
    } else {
        print(story.trim_end())?;
    }
    verdict(seed, &outcome.violations, args, || {
        let restart::RestartCounts { views, restarts, joins, durable, .. } = outcome.counts;
        format!(
            "\nseed {seed}: {views} views, {restarts} restarts, {joins} joins, {durable} durable messages, no violation (trace {:016x})",
            outcome.trace_hash
        )
    })
}

/// Runs many seeds of total restarts, and prints the counts.
fn search_restart(args: &Args) -> CliResult {
    let stop = Stop::on_signals(|_| {})?;
    let start = Instant::now();
    let summary = restart::campaign(args.from..args.from.saturating_add(args.seeds), |summary| {
        !stop.flag.load(Ordering::Relaxed) && summary.failures.len() < FAILURES_MAX
    });
    let elapsed = start.elapsed().as_secs_f64();
    let restart::RestartSummary { seeds, counts, faults, united, virtual_ns, failures } = &summary;
    if args.json {
        let mut object = rows(counts);
        object.extend([
            ("seeds".into(), json!(seeds)),
            ("faults".into(), json!(faults)),
            ("united".into(), json!(united)),
            ("virtual_ns".into(), json!(virtual_ns)),
            ("elapsed_s".into(), json!(elapsed)),
            ("failures".into(), self::failures(failures.iter().map(|(seed, violation)| (*seed, violation)))),
        ]);
        print(&Value::Object(object).to_string())?;
    } else {
        for (seed, violation) in failures {
            print(&format!("seed {seed}: {violation}\n  replay: {}", restart::replay_line(*seed)))?;
        }
        let told: Vec<String> = counts.rows().iter().map(|(name, count)| format!("{count} {name}")).collect();
        print(&format!(
            "{seeds} seeds in {elapsed:.1} s ({:.0}/s): {}, {faults} faults; {united} ended in one group; {} seeds failed",
            *seeds as f64 / elapsed.max(1e-9),
            told.join(", ").replace('_', " "),
            failures.len()
        ))?;
    }
    end(failures.len(), *seeds, args, &stop)
}

/// Returns the counts of restarts as an object.
fn rows(counts: &restart::RestartCounts) -> Map<String, Value> {
    counts.rows().into_iter().map(|(name, count)| (name.into(), json!(count))).collect()
}

/// Runs one seed of whole processes, and prints its history.
fn replay_processes(seed: u64, args: &Args) -> CliResult {
    let (outcome, story) = processes::explain(&processes::HostsScene::from_seed(seed));
    if args.json {
        let mut object = counts(&outcome.counts);
        object.extend([
            ("seed".into(), json!(seed)),
            ("united".into(), json!(outcome.united)),
            ("lost".into(), json!(outcome.lost)),
            ("trace_hash".into(), json!(format!("{:016x}", outcome.trace_hash))),
            ("failures".into(), failures(outcome.violations.iter().map(|violation| (seed, violation)))),
        ]);
        print(&Value::Object(object).to_string())?;
    } else {
        print(story.trim_end())?;
    }
    verdict(seed, &outcome.violations, args, || {
        format!(
            "\nseed {seed}: {} bootstraps, {} joins, {} views, {} deliveries checked, no violation{} (trace {:016x})",
            outcome.counts.bootstraps,
            outcome.counts.joins,
            outcome.counts.views,
            outcome.counts.deliveries,
            if outcome.lost { "; the group has lost its quorum" } else { "" },
            outcome.trace_hash
        )
    })
}

/// Runs many seeds of whole processes, and prints the counts.
fn search_processes(args: &Args) -> CliResult {
    let stop = Stop::on_signals(|_| {})?;
    let threads = args.threads.unwrap_or_else(|| available_parallelism().map_or(1, |cores| cores.get() as u32));
    let start = Instant::now();
    let summary = processes::campaign(args.from..args.from.saturating_add(args.seeds), threads, |summary| {
        !stop.flag.load(Ordering::Relaxed) && summary.failures.len() < FAILURES_MAX
    });
    let elapsed = start.elapsed().as_secs_f64();
    let processes::ProcessesSummary { seeds, counts, faults, united, lost, failures } = &summary;
    if args.json {
        let mut object = self::counts(counts);
        object.extend([
            ("seeds".into(), json!(seeds)),
            ("faults".into(), json!(faults)),
            ("united".into(), json!(united)),
            ("lost".into(), json!(lost)),
            ("elapsed_s".into(), json!(elapsed)),
            ("failures".into(), self::failures(failures.iter().map(|(seed, violation)| (*seed, violation)))),
        ]);
        print(&Value::Object(object).to_string())?;
    } else {
        for (seed, violation) in failures {
            print(&format!("seed {seed}: {violation}\n  replay: {}", processes::replay_line(*seed)))?;
        }
        let processes::Counts {
            bootstraps, joins, evictions, leaves, kills, restarts, partitions, breaks, views, ..
        } = counts;
        let processes::Counts { deliveries, large, fetched, changes, learned, observed, .. } = counts;
        print(&format!(
            "{seeds} seeds in {elapsed:.1} s ({:.0}/s): {bootstraps} bootstraps, {joins} joins, {evictions} evictions, {leaves} leaves, {kills} kills, \
             {restarts} restarts, {partitions} partitions, {breaks} broken connections, {views} view changes, {changes} changes of \
             subgroups, {learned} states taken over, {observed} messages observed, {deliveries} deliveries checked, {large} of large messages, {fetched} fetched by followers; {united} ended in one view, {lost} after a quorum was lost; {} seeds failed",
            *seeds as f64 / elapsed.max(1e-9),
            failures.len()
        ))?;
    }
    end(failures.len(), *seeds, args, &stop)
}

fn counts(counts: &processes::Counts) -> Map<String, Value> {
    counts.all().map(|(name, count)| (name.into(), json!(count))).collect()
}

fn failures<'v>(violations: impl Iterator<Item = (u64, &'v Violation)>) -> Value {
    let failure = |(seed, violation): (u64, &Violation)| {
        let Violation { number, name, at, what } = violation;
        json!({"seed": seed, "invariant": number, "name": name, "at_ns": at, "what": what})
    };
    violations.map(failure).collect()
}

fn print(text: &str) -> CliResult {
    Ok(writeln!(stdout().lock(), "{text}").context("can't write to the standard output")?)
}
