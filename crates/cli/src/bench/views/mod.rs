//! `spindle bench views`: how long a group stops delivering when its view changes.
//!
//! Members are processes that send at a steady rate. For every change of the view they record when
//! they had nothing to deliver before it, and when they delivered first after it, on the clock that
//! all processes share. A trial applies one event to the group and reads the reports of the members
//! that stayed. Then the benchmark restores the group's number of members.
//!
//! With `--object` the oldest member also sends large messages, one after the other, in a subgroup
//! of their own; they do not count as deliveries. With three members or more each receiver passes
//! blocks on. A kill is then the kill of a relay, most of the time while it passes on an object.
//!
//! With `--subgroups` it measures the cost of changes for members that they do not touch:
//! [`elsewhere`].
//!
//! JSON:
//! - `members`, `fabric`, `rate_per_second` (each), `size`, `suspect_after_ms`, `trials` asked for;
//! - an object for each of `kill_member`, `kill_leader`, `stop`, `leave`, `join`, and with
//!   `--state` for `join_with_state_mapped`, `join_with_state` and `kill_with_state`. It has
//!   `trials`, `stall` and `after`;
//! - `stall`: the longest time without a delivery from the event to the first delivery after the
//!   change, at each member that stayed;
//! - `after`: from the event to that delivery, of the last of these members;
//! - `process_end`, of the kills: from the signal until the kernel reports the end of the process;
//! - `phases`, of the kills and with `--phases`: each has its `name` and the time from the signal
//!   to its end;
//! - `reset`, over tcp: all connections break and the view stays; `after` is the longest stall. If
//!   the view changes nevertheless, the trial is repeated with another group, and counted in
//!   `view_changes`. With `--object` a view is renewed `suspect_after_ms` after links for large
//!   messages broke, and a busy machine may keep a member silent for as long;
//! - `join_burst`, with `--join-burst`: `joins`, `views`, `seconds`;
//! - `objects`, with `--object`: `bytes`, of each, `delivered`, by the member that had delivered
//!   most, and `bytes_per_second`, there.
//!
//! The times of these events are in ms, each with `min`, `p50`, `p90`, `max`.
//!
//! `join_with_state_mapped` is a join whose process had written the memory for its state before it
//! asked to join. Its times begin when the process asks. `join_with_state` is a join into fresh
//! memory. Both also have `bytes`, and the rate of the restored bytes (`restore_bytes_per_second`).
//! For comparison, one thread copies memory to memory in the same run while the members are at
//! work: `memcpy_bytes_per_second` from one buffer of 64 MiB to another, and
//! `memcpy_fresh_bytes_per_second`, as many bytes into fresh memory, the better of two. Fresh
//! memory costs page faults, cleared pages, and on a virtual machine memory that the host has taken
//! back. No transport avoids this cost, which can be most of the time and of the stall.
mod cluster;
mod elsewhere;
mod gate;
pub(super) mod member;
mod phases;

use super::args::FabricArg;
use super::table::{TextTable, short};
use super::tell;
use crate::clock::now_ns;
use crate::exit::{CliError, FAILED};
use crate::parent;
use anyhow::{Context, ensure};
use cluster::{ChangeReport, JoinReport, ViewCluster};
use rustix::process::Signal;
use serde::Serialize;
use spindle_fabric::probe;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

/// How long large messages flow between two events, if there are any.
const FLOW: Duration = Duration::from_millis(150);

/// Number of trials with broken connections in which the view may change nevertheless, in addition
/// to the number of trials.
const VIEW_CHANGES_MAX: u32 = 10;

/// Arguments of `spindle bench views`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many members
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=200))]
    members: u32,
    /// The transport; with tcp each member believes that it is on a host of its own
    #[arg(long, value_enum, default_value = "shm")]
    fabric: FabricArg,
    /// Let the oldest member also send large messages of this many bytes
    #[arg(long, value_name = "BYTES", value_parser = crate::quantity::bytes, conflicts_with_all = ["state", "join_burst"])]
    object: Option<u64>,
    /// Measure the cost of changes for two members with a stream that these do not touch, beside
    /// this many idle subgroups
    #[arg(long, value_name = "SUBGROUPS", value_parser = clap::value_parser!(u32).range(0..=1000),
          conflicts_with_all = ["state", "join_burst", "object", "rate", "size"])]
    subgroups: Option<u32>,
    /// Members of an idle subgroup, with --subgroups
    #[arg(long, value_name = "N", default_value_t = 3, requires = "subgroups", value_parser = clap::value_parser!(u32).range(1..=200))]
    subgroup_members: u32,
    /// Messages a second of each member
    #[arg(long, value_name = "MESSAGES", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    rate: u64,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value = "128", value_parser = crate::quantity::bytes)]
    size: u64,
    /// How often each event is repeated
    #[arg(long, value_name = "TRIALS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,
    /// The silence after which a hung member is evicted
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    suspect_after: u64,
    /// Also join with a state of this many bytes (10 trials)
    #[arg(long, value_name = "BYTES", value_parser = crate::quantity::bytes)]
    state: Option<u64>,
    /// Also let this many processes join at once
    #[arg(long, value_name = "PROCESSES", value_parser = clap::value_parser!(u32).range(1..=500))]
    join_burst: Option<u32>,
    /// Let members poll without a pause, even if nothing happens
    #[arg(long)]
    polls: bool,
    /// Report when members reach each phase of the change after a kill
    #[arg(long)]
    phases: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Times in ms.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct TimeSpread {
    min: f64,
    p50: f64,
    p90: f64,
    max: f64,
}

/// The measurements of one kind of event.
#[derive(Clone, Debug, Default, Serialize)]
struct EventMeasurements {
    trials: u32,
    stall: TimeSpread,
    after: TimeSpread,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_end: Option<TimeSpread>,
    /// Time from the kill to the end of each phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phases: Vec<PhaseSpread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restore_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    view_changes: Option<u32>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PhaseSpread {
    name: &'static str,
    #[serde(flatten)]
    until: TimeSpread,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct JoinBurst {
    joins: u32,
    views: u64,
    seconds: f64,
}

/// Large messages that were delivered during the events.
#[derive(Clone, Copy, Debug, Serialize)]
struct ObjectRate {
    bytes: u64,
    delivered: u64,
    bytes_per_second: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ViewsReport {
    members: u32,
    fabric: FabricArg,
    rate_per_second: u64,
    size: u64,
    suspect_after_ms: u64,
    kill_member: EventMeasurements,
    kill_leader: EventMeasurements,
    stop: EventMeasurements,
    leave: EventMeasurements,
    join: EventMeasurements,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<EventMeasurements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    join_with_state_mapped: Option<EventMeasurements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    join_with_state: Option<EventMeasurements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kill_with_state: Option<EventMeasurements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memcpy_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memcpy_fresh_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    join_burst: Option<JoinBurst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<ObjectRate>,
}

/// The times of one kind of event, in ns.
#[derive(Debug, Default)]
struct EventTimes {
    trials: u32,
    stalls: Vec<u64>,
    after: Vec<u64>,
    ends: Vec<u64>,
    /// Time from the event to the end of each phase at each member, by phase.
    phases: Vec<Vec<u64>>,
}

impl EventTimes {
    /// Adds one trial. `at_ns` is the time of the event; `told` has the reports of the members that
    /// stayed.
    fn add(&mut self, at_ns: u64, told: &[ChangeReport]) {
        self.trials += 1;
        self.stalls.extend(told.iter().map(|told| told.stall_ns(at_ns)));
        let last = told.iter().map(|told| told.first_after_ns).max().unwrap_or(at_ns);
        self.after.push(last.saturating_sub(at_ns));
        for told in told {
            self.phases.resize(self.phases.len().max(told.phases.len()), vec![]);
            for (times, moment) in self.phases.iter_mut().zip(&told.phases) {
                times.extend(moment.checked_sub(at_ns));
            }
        }
    }

    fn event(&self) -> EventMeasurements {
        let process_end = (!self.ends.is_empty()).then(|| spread(&self.ends));
        let (stall, after) = (spread(&self.stalls), spread(&self.after));
        let phases =
            phases::names().zip(&self.phases).map(|(name, times)| PhaseSpread { name, until: spread(times) }).collect();
        EventMeasurements { trials: self.trials, stall, after, process_end, phases, ..EventMeasurements::default() }
    }
}

fn spread(times: &[u64]) -> TimeSpread {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |part: f64| {
        sorted.get(((sorted.len() as f64 - 1.0) * part).round() as usize).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    TimeSpread { min: at(0.0), p50: at(0.5), p90: at(0.9), max: at(1.0) }
}

/// Runs a member, which reports a failure to the process that measures, too.
pub(super) fn run_member(args: &member::Args) -> anyhow::Result<()> {
    let serve = || {
        parent::stay_with(args.parent)?;
        if args.phases {
            phases::listen()?;
        }
        match args.subgroups {
            Some(idle) => elsewhere::member::serve(args, idle),
            None => member::serve(args),
        }
    };
    serve().inspect_err(|error| member::say(&member::MemberLine::Failed(format!("{error:#}"))))
}

pub(super) fn run(args: &Args) -> Result<(), CliError> {
    let failed = |error| CliError::new(FAILED, format_args!("{error:#}"));
    let told = match args.subgroups {
        Some(subgroups) => {
            let report = elsewhere::measure(args, subgroups).map_err(failed)?;
            tell(&report, args.json, |out| report.print(out))
        }
        None => {
            let report = measure(args).map_err(failed)?;
            tell(&report, args.json, |out| report.print(out))
        }
    };
    told.map_err(|error| CliError::new(FAILED, format_args!("the standard output takes no more: {error}")))
}

fn measure(args: &Args) -> anyhow::Result<ViewsReport> {
    let mut cluster = ViewCluster::start(args, 0)?;
    let (mut killed, mut leader, mut stopped, mut left, mut joined) =
        <(EventTimes, EventTimes, EventTimes, EventTimes, EventTimes)>::default();
    for trial in 0..args.trials {
        if !args.json {
            eprint!("\rtrial {} of {}", trial + 1, args.trials);
        }
        for (times, kill_leader) in [(&mut killed, false), (&mut leader, true)] {
            let victim = if kill_leader { cluster.oldest() } else { cluster.newest() };
            kill(&mut cluster, victim, times)?;
            join(&mut cluster, &mut joined)?;
        }
        let victim = cluster.newest();
        let at_ns = now_ns();
        cluster.signal(victim, Signal::STOP)?;
        stopped.add(at_ns, &cluster.told(&[victim], &[])?);
        cluster.signal(victim, Signal::CONT)?;
        cluster.evicted(victim)?;
        join(&mut cluster, &mut joined)?;
        let victim = cluster.newest();
        let at_ns = now_ns();
        cluster.say(victim, "leave")?;
        left.add(at_ns, &cluster.told(&[victim], &[])?);
        cluster.ended(victim)?;
        join(&mut cluster, &mut joined)?;
    }
    if !args.json {
        eprintln!();
    }
    let mut report = ViewsReport {
        members: args.members,
        fabric: args.fabric,
        rate_per_second: args.rate,
        size: args.size,
        suspect_after_ms: args.suspect_after,
        kill_member: killed.event(),
        kill_leader: leader.event(),
        stop: stopped.event(),
        leave: left.event(),
        join: joined.event(),
        objects: args.object.map(|bytes| cluster.objects(bytes)),
        ..ViewsReport::default()
    };
    cluster.finish()?;
    if args.fabric == FabricArg::Tcp {
        report.reset = Some(break_connections(args)?);
    }
    if let Some(bytes) = args.state {
        join_with_state(args, bytes, &mut report)?;
    }
    if let Some(joins) = args.join_burst {
        report.join_burst = Some(join_burst(args, joins)?);
    }
    Ok(report)
}

fn kill(cluster: &mut ViewCluster, victim: u64, times: &mut EventTimes) -> anyhow::Result<()> {
    let end = cluster.end_of(victim)?;
    let at_ns = now_ns();
    cluster.signal(victim, Signal::KILL)?;
    times.add(at_ns, &cluster.told(&[victim], &[])?);
    times.ends.push(end.recv()?.saturating_sub(at_ns));
    cluster.forget(victim);
    Ok(())
}

fn join(cluster: &mut ViewCluster, times: &mut EventTimes) -> anyhow::Result<()> {
    let at_ns = now_ns();
    let id = cluster.add()?;
    times.add(at_ns, &cluster.told(&[], &[id])?);
    cluster.joined(id)?;
    if cluster.sends_objects() {
        // Some large messages are delivered, and the next event occurs during another.
        thread::sleep(FLOW);
    }
    Ok(())
}

/// Measures the stall when all connections between members break, as if a network had reset them.
/// The view does not change, unless links for large messages to a member are lost for too long, or
/// the machine is too busy. In these cases the benchmark starts another group.
fn break_connections(args: &Args) -> anyhow::Result<EventMeasurements> {
    let mut cluster = ViewCluster::behind_gates(args)?;
    let (mut times, mut view_changes) = (EventTimes::default(), 0);
    thread::sleep(FLOW);
    while times.trials < args.trials {
        if !args.json {
            eprint!("\rreset {} of {}", times.trials + 1, args.trials);
        }
        let at_ns = now_ns();
        cluster.break_connections();
        thread::sleep(FLOW);
        if let Some(told) = cluster.gaps(at_ns)? {
            times.add(at_ns, &told);
            continue;
        }
        view_changes += 1;
        ensure!(
            view_changes <= VIEW_CHANGES_MAX + args.trials,
            "the view changed in {view_changes} trials in which connections broke, of {}: the machine has too much else to do, or --suspect-after \
             is too short",
            times.trials + view_changes
        );
        drop(cluster);
        cluster = ViewCluster::behind_gates(args)?;
        thread::sleep(FLOW);
    }
    if !args.json {
        eprintln!();
    }
    cluster.finish()?;
    Ok(EventMeasurements { view_changes: Some(view_changes), ..times.event() })
}

/// Measures the stall of a join with a large state, and the rate of the restored bytes, beside
/// copies of memory in the same run. Also measures the stall of the death of a member that has the
/// state.
fn join_with_state(args: &Args, bytes: u64, report: &mut ViewsReport) -> anyhow::Result<()> {
    let mut cluster = ViewCluster::start(args, bytes)?;
    let (mut times, mut mapped_times, mut killed) = <(EventTimes, EventTimes, EventTimes)>::default();
    let (mut mapped, mut fresh) = <(StateRates, StateRates)>::default();
    for _ in 0..args.trials.min(10) {
        mapped.copies.push(probe::memcpy(64 << 20, Duration::from_millis(200))?.bytes_per_second);
        let id = cluster.add_mapped()?;
        let told = cluster.told(&[], &[id])?;
        let joined = cluster.joined(id)?;
        // The memory that the process writes before it asks does not affect the group.
        mapped_times.add(joined.asked_ns, &told);
        mapped.add(joined, bytes)?;
        leave(&mut cluster, id)?;

        // The better of two copies. The second copy gets the memory that the first returned, before
        // a host can take it back.
        let copies = [probe::memcpy_fresh(bytes)?, probe::memcpy_fresh(bytes)?];
        fresh.copies.push(copies.map(|copy| copy.bytes_per_second).into_iter().fold(0.0, f64::max));
        let at_ns = now_ns();
        let id = cluster.add()?;
        times.add(at_ns, &cluster.told(&[], &[id])?);
        fresh.add(cluster.joined(id)?, bytes)?;
        kill(&mut cluster, id, &mut killed)?;
    }
    cluster.finish()?;
    let event = |times: EventTimes, rates| {
        Some(EventMeasurements { bytes: Some(bytes), restore_bytes_per_second: Some(median(rates)), ..times.event() })
    };
    report.join_with_state_mapped = event(mapped_times, mapped.restores);
    report.join_with_state = event(times, fresh.restores);
    report.kill_with_state = Some(killed.event());
    report.memcpy_bytes_per_second = Some(median(mapped.copies));
    report.memcpy_fresh_bytes_per_second = Some(median(fresh.copies));
    Ok(())
}

fn leave(cluster: &mut ViewCluster, id: u64) -> anyhow::Result<()> {
    cluster.say(id, "leave")?;
    cluster.told(&[id], &[])?;
    cluster.ended(id)
}

/// Rates of restored states into one kind of memory, and of copies into the same kind, in bytes a
/// second.
#[derive(Debug, Default)]
struct StateRates {
    restores: Vec<f64>,
    copies: Vec<f64>,
}

impl StateRates {
    fn add(&mut self, joined: JoinReport, bytes: u64) -> anyhow::Result<()> {
        ensure!(joined.restored_bytes == bytes, "a state of {} bytes, not {bytes}", joined.restored_bytes);
        self.restores.push(bytes as f64 * 1e9 / joined.restore_ns.max(1) as f64);
        Ok(())
    }
}

/// Returns the display name of a fabric.
fn name(fabric: FabricArg) -> &'static str {
    match fabric {
        FabricArg::Shm => "shared memory",
        FabricArg::Tcp => "TCP",
        FabricArg::Ofi => "libfabric",
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures many processes that join at once. None sends: on a few cores, the deliveries of
/// hundreds of members would take more time than the joins.
fn join_burst(args: &Args, joins: u32) -> anyhow::Result<JoinBurst> {
    let mut cluster = ViewCluster::start(&Args { members: 3, rate: 0, ..args.clone() }, 0)?;
    let at_ns = now_ns();
    let ids: Vec<u64> = (0..joins).map(|_| cluster.add()).collect::<anyhow::Result<_>>()?;
    let mut last = (0, at_ns);
    for id in ids {
        let joined = cluster.joined(id).context("a process did not get in")?;
        last = (last.0.max(joined.view), last.1.max(joined.at_ns));
    }
    // The founders' view is the first.
    Ok(JoinBurst { joins, views: last.0 - 1, seconds: (last.1 - at_ns) as f64 / 1e9 })
}

impl ViewsReport {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let ViewsReport { members, fabric, rate_per_second, size, suspect_after_ms, .. } = self;
        let fabric = name(*fabric);
        writeln!(
            out,
            "{members} members over {fabric}, each sends {rate_per_second} messages of {size} bytes a second; times in ms"
        )?;
        let mut table =
            TextTable::new(&["", "trials", "stall p50", "p90", "max", "until the next delivery p50", "p90", "max"]);
        let stop = format!("SIGSTOP (suspected after {suspect_after_ms} ms)");
        let mut rows = vec![
            ("kill -9 of a member", &self.kill_member),
            ("kill -9 of the leader", &self.kill_leader),
            (stop.as_str(), &self.stop),
            ("leave", &self.leave),
            ("join", &self.join),
        ];
        let state =
            |event: &EventMeasurements| format!("join with {}B of state", short(event.bytes.unwrap_or(0) as f64));
        rows.extend(self.reset.as_ref().map(|event| ("all connections reset", event)));
        let mapped = self.join_with_state_mapped.as_ref().map(|event| (state(event), event));
        let fresh = self.join_with_state.as_ref().map(|event| (state(event) + ", into fresh memory", event));
        for (name, event) in mapped.iter().chain(&fresh) {
            rows.push((name, event));
        }
        if let Some(event) = &self.kill_with_state {
            rows.push(("kill -9 of a member with it", event));
        }
        for (name, EventMeasurements { trials, stall, after, .. }) in rows {
            let ms = [stall.p50, stall.p90, stall.max, after.p50, after.p90, after.max].map(|ms| format!("{ms:.2}"));
            table.row([name.to_string(), trials.to_string()].into_iter().chain(ms).collect());
        }
        table.print(out)?;
        let kills = [
            ("member", Some(&self.kill_member)),
            ("leader", Some(&self.kill_leader)),
            ("member with a state", self.kill_with_state.as_ref()),
        ];
        for (whom, event) in kills {
            let phases = event.map_or(&[][..], |event| &event.phases);
            if !phases.is_empty() {
                let mut table = TextTable::new(&[&format!("since the kill of a {whom}, until"), "p50", "p90", "max"]);
                for PhaseSpread { name, until: TimeSpread { p50, p90, max, .. } } in phases {
                    table.row(
                        [name.to_string()].into_iter().chain([p50, p90, max].map(|ms| format!("{ms:.2}"))).collect(),
                    );
                }
                table.print(out)?;
            }
            if let Some(TimeSpread { p50, p90, max, .. }) = event.and_then(|event| event.process_end) {
                writeln!(
                    out,
                    "the kernel reports the end of a killed {whom} after {p50:.2} (p90 {p90:.2}, max {max:.2})"
                )?;
            }
        }
        for (memory, event, copy) in [
            ("memory that is mapped", &self.join_with_state_mapped, self.memcpy_bytes_per_second),
            ("fresh memory", &self.join_with_state, self.memcpy_fresh_bytes_per_second),
        ] {
            if let Some((rate, copy)) = event.as_ref().and_then(|event| event.restore_bytes_per_second).zip(copy) {
                let (ratio, rate, copy) = (rate / copy, short(rate), short(copy));
                writeln!(out, "into {memory} the state arrives at {rate}B/s, {ratio:.2} of a copy ({copy}B/s)")?;
            }
        }
        if let Some(ObjectRate { bytes, delivered, bytes_per_second }) = self.objects {
            let (bytes, rate) = (short(bytes as f64), short(bytes_per_second));
            writeln!(out, "meanwhile a member delivered {delivered} large messages of {bytes}B ({rate}B/s)")?;
        }
        if let Some(JoinBurst { joins, views, seconds }) = self.join_burst {
            writeln!(out, "{joins} processes that join at once: {views} views, {seconds:.2} s")?;
        }
        Ok(())
    }
}
