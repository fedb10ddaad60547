//! `spindle bench views --subgroups`: the cost of a change of the group for members that it does
//! not touch.
//!
//! The two oldest members have a stream, one message every 0.5 ms, in a subgroup of their own. All
//! other subgroups are idle. A trial changes another part of the group: a subgroup with one member
//! is created, altered and dropped, or a process joins, is killed, or leaves. Each change is made
//! twice. The first time the benchmark reads the stream's longest gap and the CPU time of all
//! members. The second time the oldest member sends one probe after the other in the subgroup of
//! everyone, and the benchmark reads the longest gap between probes.
//!
//! JSON: `members`, `fabric`, `subgroups` (idle ones), `subgroup_members` (of each), `trials`, and:
//! - `quiet`: `untouched_gap` and `touched_gap` in equally long times without a change,
//!   `cpu_percent` of a core of all members but the two of the stream;
//! - an object for each of `create`, `alter`, `drop`, `join`, `kill`, `leave`, with the following
//!   keys;
//! - `untouched_gap`, of the stream;
//! - `touched_gap`, of the probes; absent where the change does not touch the subgroup of everyone;
//! - `cpu_ms`, of all members that stay, without their use in an equally long quiet time. The two
//!   members of the stream are not included, because they poll for its messages all the time;
//! - `installed`, from the event until the last member has installed the view.
//!
//! Times are in ms, each with `min`, `p50`, `p90`, `max`.
use super::cluster::{Installed, ViewCluster};
use super::member::DeliveryGap;
use super::{Args, FabricArg, TimeSpread, name, spread};
use crate::bench::table::TextTable;
use crate::clock::now_ns;
use rustix::process::Signal;
use serde::Serialize;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

pub(super) mod member;

/// The subgroup of all members.
const EVERYONE: &str = "everyone";
/// The subgroup of the two oldest members.
const STREAM: &str = "stream";
/// The subgroup that is created and dropped.
const EXTRA: &str = "extra";
/// How long the members may take to become idle before a trial and after its view.
const REST: Duration = Duration::from_millis(40);
/// Length of a quiet time.
const QUIET: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Quiet {
    untouched_gap: TimeSpread,
    touched_gap: TimeSpread,
    cpu_percent: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Cost {
    untouched_gap: TimeSpread,
    #[serde(skip_serializing_if = "Option::is_none")]
    touched_gap: Option<TimeSpread>,
    cpu_ms: TimeSpread,
    installed: TimeSpread,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ElsewhereReport {
    members: u32,
    fabric: FabricArg,
    subgroups: u32,
    subgroup_members: u32,
    trials: u32,
    quiet: Quiet,
    create: Cost,
    alter: Cost,
    drop: Cost,
    join: Cost,
    kill: Cost,
    leave: Cost,
}

/// A change of the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupChange {
    Create,
    Alter,
    Drop,
    Join,
    Kill,
    Leave,
}

/// The times of one kind of event, in ns.
#[derive(Debug, Default)]
struct ChangeTimes {
    untouched: Vec<u64>,
    touched: Vec<u64>,
    cpu: Vec<u64>,
    installed: Vec<u64>,
}

impl ChangeTimes {
    fn cost(&self) -> Cost {
        let touched = (!self.touched.is_empty()).then(|| spread(&self.touched));
        Cost {
            untouched_gap: spread(&self.untouched),
            touched_gap: touched,
            cpu_ms: spread(&self.cpu),
            installed: spread(&self.installed),
        }
    }
}

/// Returns the longest of the gaps that ended after `at_ns`.
fn longest(gaps: &[DeliveryGap], at_ns: u64) -> u64 {
    gaps.iter().filter(|gap| gap.to_ns > at_ns).map(|gap| gap.to_ns - gap.from_ns).max().unwrap_or(0)
}

/// The group, and its CPU use while nothing changes.
struct ChangeBench {
    cluster: ViewCluster,
    cpu_per_ns: f64,
    view: u64,
}

pub(super) fn measure(args: &Args, subgroups: u32) -> anyhow::Result<ElsewhereReport> {
    let cluster = ViewCluster::start(args, 0)?;
    let mut bench = ChangeBench { cluster, cpu_per_ns: 0.0, view: 0 };
    let quiet = bench.quiet(args.trials.min(50))?;
    let mut times: [ChangeTimes; 6] = Default::default();
    for trial in 0..args.trials {
        if !args.json {
            eprint!("\rtrial {} of {}", trial + 1, args.trials);
        }
        for probes in [false, true] {
            let id = bench.change(GroupChange::Join, None, probes, &mut times)?;
            for event in [GroupChange::Create, GroupChange::Alter, GroupChange::Drop] {
                // These changes touch no other subgroup, so probes would show nothing.
                if !probes {
                    bench.change(event, id, probes, &mut times)?;
                }
            }
            bench.change(GroupChange::Kill, id, probes, &mut times)?;
            let id = bench.change(GroupChange::Join, None, probes, &mut times)?;
            bench.change(GroupChange::Leave, id, probes, &mut times)?;
        }
    }
    if !args.json {
        eprintln!();
    }
    bench.cluster.finish()?;
    let [create, alter, drop, join, kill, leave] = times.map(|times| times.cost());
    Ok(ElsewhereReport {
        members: args.members,
        fabric: args.fabric,
        subgroups,
        subgroup_members: args.subgroup_members.min(args.members),
        trials: args.trials,
        quiet,
        create,
        alter,
        drop,
        join,
        kill,
        leave,
    })
}

impl ChangeBench {
    /// Measures gaps and CPU time while nothing changes.
    fn quiet(&mut self, times: u32) -> anyhow::Result<Quiet> {
        thread::sleep(10 * REST);
        let pair = self.cluster.two_oldest();
        let (before, since_ns) = (self.cluster.usage(&pair)?, now_ns());
        let mut untouched = vec![];
        for _ in 0..times {
            let at_ns = now_ns();
            thread::sleep(QUIET);
            untouched.push(self.stream_gap(at_ns)?);
        }
        let used = self.cluster.usage(&pair)?.since(before);
        self.cpu_per_ns = used.cpu_ns as f64 / (now_ns() - since_ns) as f64;
        let mut touched = vec![];
        self.say_oldest("probe")?;
        for _ in 0..times {
            let at_ns = now_ns();
            thread::sleep(QUIET);
            touched.push(self.probe_gap(at_ns)?);
        }
        self.say_oldest("rest")?;
        let (untouched_gap, touched_gap) = (spread(&untouched), spread(&touched));
        Ok(Quiet { untouched_gap, touched_gap, cpu_percent: 100.0 * self.cpu_per_ns })
    }

    /// Makes one change and records its cost. `id` is the process that changes, if there is one.
    /// Returns the process that joined.
    fn change(
        &mut self,
        event: GroupChange,
        id: Option<u64>,
        probes: bool,
        times: &mut [ChangeTimes; 6],
    ) -> anyhow::Result<Option<u64>> {
        if probes {
            self.say_oldest("probe")?;
        }
        thread::sleep(REST);
        // A leaving member does not count. A joining process does not count either, because its
        // start is no cost of the group.
        let gone = if matches!(event, GroupChange::Kill | GroupChange::Leave) { id } else { None };
        let pair = self.cluster.two_oldest();
        let idle = |others: &[u64]| others.iter().copied().chain(pair).collect::<Vec<u64>>();
        let before = self.cluster.usage(&idle(gone.as_slice()))?;
        let at_ns = now_ns();
        let mut joined = None;
        match (event, id) {
            (GroupChange::Join, _) => joined = Some(self.cluster.add()?),
            (GroupChange::Kill, Some(id)) => self.cluster.signal(id, Signal::KILL)?,
            (GroupChange::Leave, Some(id)) => self.cluster.say(id, "leave")?,
            (GroupChange::Create, Some(id)) => self.cluster.say(id, "create")?,
            (GroupChange::Alter, Some(id)) => self.cluster.say(id, "alter")?,
            (GroupChange::Drop, Some(id)) => self.cluster.say(id, "drop")?,
            (_, None) => anyhow::bail!("{event:?} happens to a process"),
        }
        let last_view = self.view;
        let is_it = |installed: &Installed| {
            installed.view > last_view
                && match event {
                    GroupChange::Join => joined.is_some_and(|id| installed.joined.contains(&id)),
                    GroupChange::Kill | GroupChange::Leave => id.is_some_and(|id| installed.left.contains(&id)),
                    GroupChange::Create => installed.extra == Some(4),
                    GroupChange::Alter => installed.extra == Some(8),
                    GroupChange::Drop => installed.extra.is_none(),
                }
        };
        let except: Vec<u64> = gone.into_iter().chain(joined).collect();
        let view = self.cluster.installed(&except, is_it)?;
        let installed_ns = now_ns() - at_ns;
        if let Some(id) = joined {
            self.cluster.joined(id)?;
        }
        thread::sleep(REST);
        let passed_ns = now_ns() - at_ns;
        let used = self.cluster.usage(&idle(&except))?.since(before);
        let times = &mut times[event as usize];
        if probes {
            times.touched.push(self.probe_gap(at_ns)?);
            self.say_oldest("rest")?;
        } else {
            times.untouched.push(self.stream_gap(at_ns)?);
            let quiet_ns = (self.cpu_per_ns * passed_ns as f64) as u64;
            times.cpu.push(used.cpu_ns.saturating_sub(quiet_ns));
            times.installed.push(installed_ns);
        }
        self.view = view;
        match (event, id) {
            (GroupChange::Kill, Some(id)) => self.cluster.forget(id),
            (GroupChange::Leave, Some(id)) => self.cluster.ended(id)?,
            _ => {}
        }
        Ok(joined.or(id))
    }

    fn say_oldest(&mut self, order: &str) -> anyhow::Result<()> {
        self.cluster.say(self.cluster.oldest(), order)
    }

    /// Returns the longest gap of the stream since `at_ns`, at either of its members.
    fn stream_gap(&mut self, at_ns: u64) -> anyhow::Result<u64> {
        let pair = self.cluster.two_oldest();
        let gaps = pair.map(|id| self.cluster.ask_gaps(id, "gaps"));
        gaps.into_iter().try_fold(0, |most, gaps| Ok(most.max(longest(&gaps?, at_ns))))
    }

    /// Returns the longest gap between two probes since `at_ns`, at their sender.
    fn probe_gap(&mut self, at_ns: u64) -> anyhow::Result<u64> {
        let gaps = self.cluster.ask_gaps(self.cluster.oldest(), "probe-gaps")?;
        Ok(longest(&gaps, at_ns))
    }
}

impl ElsewhereReport {
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let ElsewhereReport { members, subgroups, subgroup_members, .. } = self;
        let fabric = name(self.fabric);
        let Quiet { untouched_gap, touched_gap, cpu_percent } = self.quiet;
        writeln!(
            out,
            "{members} members over {fabric}, {subgroups} idle subgroups of {subgroup_members}, a stream of two members; \
             times in ms"
        )?;
        let mut table = TextTable::new(&[
            "",
            "untouched gap p50",
            "p90",
            "max",
            "touched gap p50",
            "p90",
            "max",
            "CPU p50",
            "installed p50",
        ]);
        let three = |TimeSpread { p50, p90, max, .. }: TimeSpread| [p50, p90, max].map(|ms| format!("{ms:.2}"));
        let none = || std::array::from_fn(|_| String::new());
        let mut row = |name: &str, untouched, touched: Option<TimeSpread>, rest: [String; 2]| {
            let touched: [String; 3] = touched.map_or_else(none, three);
            let cells = three(untouched).into_iter().chain(touched).chain(rest);
            table.row([name.to_string()].into_iter().chain(cells).collect());
        };
        row("nothing", untouched_gap, Some(touched_gap), [format!("{cpu_percent:.1} %"), String::new()]);
        for (name, cost) in [
            ("a subgroup is created", self.create),
            ("it is altered", self.alter),
            ("it is dropped", self.drop),
            ("a process joins", self.join),
            ("kill -9", self.kill),
            ("leave", self.leave),
        ] {
            let rest = [cost.cpu_ms, cost.installed].map(|spread| format!("{:.2}", spread.p50));
            row(name, cost.untouched_gap, cost.touched_gap, rest);
        }
        table.print(out)
    }
}
