//! One round: a group is created, a plan is carried out on it under load, and then all members have
//! to come into one view and finish.
mod afar;
mod members;
mod operator;

use super::ChaosOptions;
use super::cluster::{ChaosProcess, Folder};
use super::hosts::ChaosHosts;
use super::judge::{Breach, Judge, Sums};
use super::logs;
use super::plan::{Bounds, Dice, EventKind, PlannedEvent, RoundPlan};
use super::record::End;
use crate::process::{Interrupted, Signals};
use afar::DueKill;
use anyhow::Result;
use operator::Lost;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(3);
/// Time from the last loss to the start of a replacement, in ms.
const REPLACE_MS: RangeInclusive<u64> = 20..=900;
/// How long live members may take to come into one view after the storm. This is far more than they
/// need, on a busy machine too.
const CALM_MAX: Duration = Duration::from_secs(20);
/// How long they may take to finish then. This is more than they take themselves before they give
/// up.
const FINISH_MAX: Duration = Duration::from_secs(25);
/// How long the load continues after all members are in one view.
const REST: Duration = Duration::from_millis(200);
/// How long members may take to report their status for a report.
const STATUS_WAIT: Duration = Duration::from_millis(1500);
/// Largest number of evictions in one round of members that were not silent. More count as a storm.
/// A busy machine may delay a process as SIGSTOP does.
const UNPROVOKED_MAX: u64 = 4;
/// The same number among hosts. There a disturbance of another member's network can delay a member.
/// It may come too late to a view, or to a decision.
const UNPROVOKED_MAX_AFAR: u64 = 8;
/// A kill is alone if no other event happens for this long before and after it.
const ALONE: Duration = Duration::from_millis(400);

/// If the driver itself stands still for this multiple of the suspected silence, the machine has
/// disturbed the members outside the plan. A group that is lost then is judged only for safety.
const STANDSTILL: u32 = 2;
/// Multiple of the suspected silence after a disturbance of a network, in which the group recovers.
const DOUBTS: u32 = 2;
/// Multiple of the suspected silence after the last disturbance of a network, in which all members
/// must deliver a message. They need twice that silence; the rest is for a busy machine.
const RECOVERY_MAX: u32 = 10;
/// Divisor of the suspected silence. For this part of it after a cut of a link, no member is
/// suspected because of the cut.
const UNNOTICED: u32 = 4;
/// How long a process that was killed while it joined may still be admitted.
const LATE_MAX: Duration = Duration::from_secs(3);

/// The events of a round, and their results.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTally {
    pub(super) kills: u64,
    pub(super) stops: u64,
    pub(super) long_stops: u64,
    pub(super) joins: u64,
    pub(super) leaves: u64,
    pub(super) restarts: u64,
    /// Removals of the runtime directory, or of an address in it.
    pub(super) removals: u64,
    pub(super) evictions: u64,
    /// Hosts whose link was taken down. The next fields are directions that were cut, links that
    /// flapped, links that were slow, outages of all links, and links with a delay.
    pub(super) cuts: u64,
    pub(super) one_ways: u64,
    pub(super) flaps: u64,
    pub(super) slows: u64,
    pub(super) outages: u64,
    pub(super) delays: u64,
    /// Members that were killed while a host was cut off. The next field is seeds that were
    /// restarted.
    pub(super) crashes: u64,
    pub(super) seed_restarts: u64,
    /// Groups that continued by an operator's order.
    pub(super) recoveries: u64,
    /// Evictions of members that had been stopped for less than the silence that is suspected.
    pub(super) unprovoked: u64,
    /// Evictions of members that were disturbed by nothing but an outage of all links.
    pub(super) after_outages: u64,
    /// Rounds on a machine that had stood still, in which the live members were not in one view in
    /// the end.
    pub(super) unjudged: u64,
    pub(super) sums: Sums,
    /// Different messages in the logs.
    pub(super) logged: u64,
    /// Processes that continued the logs of killed ones.
    pub(super) rejoined: u64,
    /// Times from kills to the next delivery at each survivor, in ns, and whether no other event
    /// happened meanwhile.
    pub(super) gaps: Vec<(u64, bool)>,
    /// Times from ends of disturbances until more than half of the members have delivered a
    /// message, and until the last one has, in ns.
    pub(super) recovered: Vec<[u64; 2]>,
    /// The longest of these times, and its seed.
    pub(super) slowest: Option<(u64, [u64; 2])>,
    /// Time from the end of the storm to one view. The next field is the time to the end of all
    /// members. Both are in ms.
    pub(super) calm_ms: Vec<u64>,
    pub(super) finish_ms: Vec<u64>,
}

/// The reason why a round failed.
pub(super) enum RoundFailure {
    /// The round broke an invariant, was stuck, or a member failed. The text is the whole report.
    Broken(String, Box<RoundTally>),
    /// The round could not be played.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for RoundFailure {
    fn from(error: anyhow::Error) -> RoundFailure {
        RoundFailure::Other(error)
    }
}

/// A round while it is played.
pub(super) struct Round<'a> {
    options: &'a ChaosOptions,
    program: &'a Path,
    folder: &'a Folder,
    signals: &'a Signals,
    plan: RoundPlan,
    group: String,
    start: Instant,
    dice: Dice,
    processes: Vec<ChaosProcess>,
    /// Dropped after the processes in them.
    hosts: Option<ChaosHosts>,
    /// Time until which a host may be out of the group because its network was disturbed.
    doubts: Vec<Instant>,
    /// End of the disturbances of each host's network: of all but outages of all links, and of
    /// those outages.
    disturbed_until: Vec<[Instant; 2]>,
    /// Processes to kill while a cut lasts.
    due: Vec<DueKill>,
    /// Set while most members are lost, and the others have not continued yet.
    lost: Option<Lost>,
    /// True if no network is disturbed, and no process stopped.
    is_quiet: bool,
    next_instance: u32,
    /// The directories of logs of killed processes, by the first process that had them.
    left_logs: Vec<u32>,
    /// Time of the driver's last tick. The next field is the longest time between ticks since the
    /// group was created.
    ticked: Instant,
    held_up: Duration,
    judge: Judge,
    tally: RoundTally,
    /// Time at which a replacement for lost members is started.
    replace_at: Option<Instant>,
    /// True until the first view is reported. Until then a process that starts has to create the
    /// group with the others.
    creating: bool,
    finishing: bool,
    history: Vec<String>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        options: &'a ChaosOptions,
        program: &'a Path,
        folder: &'a Folder,
        signals: &'a Signals,
        seed: u64,
        number: u32,
    ) -> Round<'a> {
        let bounds =
            Bounds { suspect_after: options.suspect_after, outage_max: options.outage_max, only: options.only };
        let plan = match &options.hosts {
            Some(hosts) => RoundPlan::among_hosts(seed, hosts, &bounds),
            None => RoundPlan::new(seed, &options.members, &bounds),
        };
        let plan_hosts = plan.hosts as usize;
        Round {
            options,
            program,
            folder,
            signals,
            dice: Dice::new(plan.seed ^ 1),
            group: format!("chaos{number}"),
            plan,
            start: Instant::now(),
            processes: vec![],
            hosts: None,
            doubts: vec![Instant::now(); plan_hosts],
            disturbed_until: vec![[Instant::now(); 2]; plan_hosts],
            due: vec![],
            lost: None,
            is_quiet: true,
            next_instance: 1,
            left_logs: vec![],
            ticked: Instant::now(),
            held_up: Duration::ZERO,
            judge: Judge::new(options.hosts.is_some()),
            tally: RoundTally::default(),
            replace_at: None,
            creating: true,
            finishing: false,
            history: vec![],
        }
    }

    /// Plays the round to its end.
    pub(super) fn play(mut self) -> Result<RoundTally, RoundFailure> {
        let result = self.storm().and_then(|()| self.calm()).and_then(|()| self.finish());
        match result {
            Err(RoundTrouble::Apart | RoundTrouble::Unfinished) if self.stood_still() => {
                self.tally.unjudged += 1;
                Ok(self.tally)
            }
            Ok(()) => {
                if self.options.story {
                    println!("{}", self.history.join("\n"));
                }
                self.tally.gaps = std::mem::take(&mut self.judge.measured);
                self.tally.recovered = std::mem::take(&mut self.judge.recovered);
                self.tally.slowest = self.tally.recovered.iter().max().map(|times| (self.plan.seed, *times));
                Ok(self.tally)
            }
            Err(RoundTrouble::Breach(breach)) => Err(self.broken(&breach.to_string())),
            Err(RoundTrouble::Stuck(what)) => Err(self.broken(&what)),
            Err(RoundTrouble::Apart) => {
                Err(self.broken(&format!("{CALM_MAX:?} after the storm the living are not in one view")))
            }
            Err(RoundTrouble::Unfinished) => {
                Err(self.broken(&format!("{FINISH_MAX:?} after they were told, not all have finished")))
            }
            Err(RoundTrouble::Other(error)) => Err(RoundFailure::Other(error)),
        }
    }

    fn storm(&mut self) -> Result<(), RoundTrouble> {
        if self.plan.hosts > 0 {
            self.hosts = Some(ChaosHosts::new(self.plan.hosts)?);
            self.start = Instant::now();
        }
        self.found()?;
        for i in 0..self.plan.events.len() {
            let event = self.plan.events[i];
            while self.start.elapsed() < event.at {
                self.tick()?;
                let left = event.at.saturating_sub(self.start.elapsed());
                sleep(TICK.min(left));
            }
            let alone = self.plan.is_alone(i, ALONE);
            if !alone {
                self.judge.disturbed();
            }
            self.carry_out(event, alone)?;
        }
        Ok(())
    }

    fn found(&mut self) -> Result<(), RoundTrouble> {
        self.creating = true;
        (self.ticked, self.held_up) = (Instant::now(), Duration::ZERO);
        (0..self.plan.founders).try_for_each(|_| self.spawn())
    }

    /// Returns the number of members below which lost ones are replaced. A group is created only by
    /// the full number of founders, even if some of them were lost meanwhile.
    fn least(&self) -> usize {
        if self.creating {
            self.plan.founders as usize
        } else if self.hosts.is_some() {
            self.plan.hosts as usize
        } else {
            *self.options.members.start() as usize
        }
    }

    fn most(&self) -> usize {
        if self.hosts.is_some() { self.plan.hosts as usize * 3 / 2 } else { *self.options.members.end() as usize }
    }

    fn note(&mut self, what: String) {
        self.history.push(format!("{:>7} ms  {what}", self.start.elapsed().as_millis()));
    }

    /// Returns the live members that were not asked to leave, by age.
    fn living(&self) -> Vec<usize> {
        let lives = |process: &ChaosProcess| process.is_alive() && !process.told_to_leave;
        (0..self.processes.len()).filter(|i| lives(&self.processes[*i])).collect()
    }

    /// Returns the live member with the lowest rank, as far as records were read.
    fn leader(&self) -> Option<usize> {
        let rank = |i: &usize| {
            let instance = self.processes[*i].instance;
            let (view, members) = self.judge.view_of(instance)?;
            let id = self.judge.witnesses.get(&instance)?.id?;
            Some((std::cmp::Reverse(view), members.iter().position(|member| *member == id)?))
        };
        self.living().into_iter().filter(|i| rank(i).is_some()).min_by_key(rank)
    }

    fn carry_out(&mut self, event: PlannedEvent, alone: bool) -> Result<(), RoundTrouble> {
        let living = self.living();
        if living.is_empty() {
            return Ok(());
        }
        let any = living[(event.pick % living.len() as u64) as usize];
        let second = living[((event.pick >> 20) % living.len() as u64) as usize];
        let leader = self.leader().unwrap_or(any);
        let newest = *living.last().unwrap_or(&any);
        // A member that knows the group has to stay. The death of all members is an event of its
        // own.
        let one_is_left = living.len() == 1;
        if self.hosts.is_some() {
            return self.carry_out_among_hosts(event, alone, [any, second, leader, newest]);
        }
        match event.what {
            EventKind::Kill if !one_is_left => self.kill(&[any], alone),
            EventKind::KillLeader if !one_is_left => self.kill(&[leader], alone),
            EventKind::KillNewest if !one_is_left => self.kill(&[newest], alone),
            EventKind::KillTwo if living.len() > 2 && any != second => self.kill(&[any, second], false),
            EventKind::Stop(ms) => self.stop(&[any], ms),
            EventKind::StopLeader(ms) => self.stop(&[leader], ms),
            EventKind::StopMost(ms) => {
                let most: Vec<usize> = living.iter().copied().skip(usize::from(event.pick.is_multiple_of(2))).collect();
                self.stop(&most[..most.len().min(living.len() / 2 + 1)], ms)
            }
            EventKind::StopAll(ms) => self.stop(&living, ms),
            EventKind::Join => self.join(1),
            EventKind::JoinThree => self.join(3),
            EventKind::Leave if !one_is_left => self.leave(any, event.pick & 1 << 40 == 0),
            EventKind::LeaveLeader if !one_is_left => self.leave(leader, event.pick & 1 << 40 == 0),
            EventKind::KillOthers if !one_is_left => {
                let others: Vec<usize> = living.into_iter().filter(|i| *i != any).collect();
                self.kill(&others, false)
            }
            EventKind::KillAll => self.restart(),
            EventKind::RemoveDirectory => self.remove(None),
            EventKind::RemoveSocket => self.remove(Some(event.pick)),
            _ => self.join(1),
        }
    }

    /// Removes the runtime directory, or one address in it. No member may be evicted because of it.
    fn remove(&mut self, one: Option<u64>) -> Result<(), RoundTrouble> {
        let dir = self.runtime_dir();
        self.tally.removals += 1;
        let Some(pick) = one else {
            self.note("remove the runtime directory".to_owned());
            // Members may create the directory again at this moment.
            let _ = std::fs::remove_dir_all(&dir);
            return Ok(());
        };
        let Ok(files) = std::fs::read_dir(&dir) else { return Ok(()) };
        let is_socket = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "sock");
        let mut files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).filter(is_socket).collect();
        files.sort();
        if files.is_empty() {
            return Ok(());
        }
        let removed = &files[(pick % files.len() as u64) as usize];
        self.note(format!("remove {}", removed.display()));
        let _ = std::fs::remove_file(removed);
        if pick & 1 << 40 == 0 {
            let _ = std::fs::remove_file(removed.with_extension("live"));
        }
        Ok(())
    }

    /// Returns the directory in which the processes of this host meet.
    fn runtime_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn instances(&self, of: &[usize]) -> String {
        let instances: BTreeSet<String> = of.iter().map(|i| self.processes[*i].instance.to_string()).collect();
        instances.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Reads the records of all processes, and does what is due.
    fn tick(&mut self) -> Result<(), RoundTrouble> {
        if self.signals.arrived() {
            return Err(RoundTrouble::Other(Interrupted.into()));
        }
        let now = Instant::now();
        self.look_at_the_clock(now);
        // The dead processes come first, because a group that is created again begins after them.
        for i in 0..self.processes.len() {
            let process = &mut self.processes[i];
            if process.status.is_none() && process.reap()? {
                self.ended(i)?;
            }
        }
        for i in 0..self.processes.len() {
            let process = &mut self.processes[i];
            if process.status.is_none() {
                if process.stopped.is_some_and(|(_, until)| until <= now) {
                    process.go_on();
                }
                self.read(i)?;
            }
        }
        self.judge.trim();
        for news in self.judge.take_news() {
            self.note(news);
        }
        if let Some(hosts) = &mut self.hosts {
            hosts.tick()?;
        }
        if self.hosts.is_some() {
            self.crash(now)?;
            self.recover(now)?;
            self.look_for_recovery()?;
        }
        self.replace(now)
    }

    fn stood_still(&self) -> bool {
        self.held_up >= STANDSTILL * self.options.suspect_after
    }

    fn read(&mut self, i: usize) -> Result<(), RoundTrouble> {
        let records = self.processes[i].news()?;
        let instance = self.processes[i].instance;
        records.iter().try_for_each(|record| self.judge.record(instance, record)).map_err(RoundTrouble::from)
    }

    /// Ends all disturbances. All members live and have to come into one view soon.
    fn calm(&mut self) -> Result<(), RoundTrouble> {
        self.note("the storm is over".to_owned());
        self.processes.iter_mut().for_each(ChaosProcess::go_on);
        self.due.clear();
        self.wait_for_operator()?;
        if let Some(hosts) = &mut self.hosts {
            hosts.heal();
            // A member may be suspected by now, and would be the only one when all others have
            // finished. The system itself takes up to a second until a link works again.
            let settled = Instant::now() + DOUBTS * self.options.suspect_after;
            while Instant::now() < settled {
                self.tick()?;
                sleep(TICK);
            }
        }
        let begin = Instant::now();
        while !self.is_calm() {
            self.tick()?;
            if begin.elapsed() > CALM_MAX {
                return Err(RoundTrouble::Apart);
            }
            sleep(TICK);
        }
        self.tally.calm_ms.push(begin.elapsed().as_millis() as u64);
        self.note("all are in one view".to_owned());
        let rested = Instant::now();
        while rested.elapsed() < REST {
            self.tick()?;
            sleep(TICK);
        }
        Ok(())
    }

    fn is_calm(&self) -> bool {
        let living: Vec<&ChaosProcess> = self.processes.iter().filter(|process| process.is_alive()).collect();
        let enough = living.len() >= self.least();
        let views: BTreeSet<_> = living.iter().map(|process| self.judge.view_of(process.instance)).collect();
        let [Some((_, members))] = views.iter().copied().collect::<Vec<_>>()[..] else { return false };
        enough
            && !self.judge.is_recovering()
            && members.len() == living.len()
            && living.iter().all(|process| !process.told_to_leave)
    }

    fn finish(&mut self) -> Result<(), RoundTrouble> {
        self.finishing = true;
        self.judge.upset();
        self.note("finish".to_owned());
        let begin = Instant::now();
        self.processes.iter_mut().filter(|process| process.is_alive()).for_each(|process| process.say("finish"));
        while self.processes.iter().any(ChaosProcess::is_alive) {
            // The tick also checks the clock, before the time is compared.
            self.tick()?;
            if begin.elapsed() > FINISH_MAX {
                return Err(RoundTrouble::Unfinished);
            }
            sleep(TICK);
        }
        self.tally.finish_ms.push(begin.elapsed().as_millis() as u64);
        self.tally.sums = self.judge.finish()?;
        if self.options.logs {
            self.tally.logged = self.compare_logs()?;
        }
        Ok(())
    }

    /// Compares the logs of all processes. Returns the number of different messages in them.
    fn compare_logs(&mut self) -> Result<u64, RoundTrouble> {
        let has_finished =
            |instance: u32| self.judge.witnesses.get(&instance).and_then(|witness| witness.end) == Some(End::Finished);
        let folder = self.folder.path();
        let mut users: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for process in &self.processes {
            let given = process.logs.unwrap_or(process.instance);
            // Its own, if the group of the logs that it was given had ended.
            let owner = if logs::exists(folder, process.instance) { process.instance } else { given };
            users.entry(owner).or_default().push(process.instance);
        }
        let mut logs = vec![];
        for (owner, instances) in users {
            self.tally.rejoined += instances.len() as u64 - 1;
            let finished = instances.last().is_some_and(|last| has_finished(*last));
            logs.extend(logs::take(folder, owner, instances, finished)?);
        }
        Ok(logs::check(&logs, &self.judge.acknowledged)?)
    }

    fn broken(&mut self, what: &str) -> RoundFailure {
        RoundFailure::Broken(self.report(what), Box::new(std::mem::take(&mut self.tally)))
    }

    /// Returns all that is known about the round, for an analysis of the failure.
    fn report(&mut self, what: &str) -> String {
        for process in self.processes.iter_mut().filter(|process| process.is_alive()) {
            process.go_on();
            process.say("status");
        }
        sleep(STATUS_WAIT);
        let mut text = format!("{what}\n\nseed {}, {} founders", self.plan.seed, self.plan.founders);
        if self.plan.hosts > 0 {
            let disks = if self.plan.disks { "with" } else { "without" };
            let _ = write!(text, " on {} hosts, {} seeds {disks} data directories", self.plan.hosts, self.plan.seeds);
        }
        text += if self.plan.states { ", joining with states\n" } else { ", receiving on threads\n" };
        for line in &self.history {
            let _ = writeln!(text, "{line}");
        }
        for process in &mut self.processes {
            // An error is ignored, because processes that ended long ago are no help.
            let _ = process.news();
            let witness = self.judge.witnesses.get(&process.instance);
            let (id, view, end) = witness.map_or((None, 0, None), |w| (w.id, w.view, w.end));
            let fate = match (process.killed, process.status) {
                (Some(_), _) => "killed".to_owned(),
                (_, Some(status)) => format!("{status} {end:?}"),
                (_, None) => "running".to_owned(),
            };
            let _ = writeln!(text, "\nprocess {}: id {id:?}, view {view}, {fate}", process.instance);
            text += &process.errors();
            if process.is_alive() {
                text += &process.answer();
            }
            for record in &process.tail {
                let _ = writeln!(text, "    {record:x?}");
            }
        }
        text
    }
}

enum RoundTrouble {
    Breach(Breach),
    Stuck(String),
    /// The live members are not in one view, long after the storm.
    Apart,
    /// Some members have not finished, long after they were asked to.
    Unfinished,
    Other(anyhow::Error),
}

impl From<Breach> for RoundTrouble {
    fn from(breach: Breach) -> RoundTrouble {
        RoundTrouble::Breach(breach)
    }
}

impl From<anyhow::Error> for RoundTrouble {
    fn from(error: anyhow::Error) -> RoundTrouble {
        RoundTrouble::Other(error)
    }
}

/// Returns the time in nanoseconds on the clock that the members also use.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
