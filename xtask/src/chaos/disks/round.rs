//! One round: a group whose processes all end again and again, and continue from their logs.
mod faults;
mod judging;

use super::super::ChaosOptions;
use super::member::{Member, Pace, Start};
use super::plan::{DisksPlan, Life, LifeEvent, Starts};
use super::seat::Seat;
use crate::process::{Interrupted, Signals};
use anyhow::{Result, bail};
use judging::Evidence;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(3);
/// How long all processes may take to come into one view. This is far more than they need, on a busy
/// machine too, and less than the time after which they give up.
const VIEW_MAX: Duration = Duration::from_secs(45);
/// How long a process that waits may take to name the member for which it waits.
const NAMED_MAX: Duration = Duration::from_secs(20);
/// How long to wait until the others restart without the one that stays away, if they can.
const GOES_ON_MAX: Duration = Duration::from_secs(4);
/// How long a view between hosts lasts at most that has admitted a member of another host. The next one makes
/// that a voter, and until then the group may need each of the others.
const VOTERS_AFTER: Duration = Duration::from_millis(5500);
/// How long all processes may take to finish.
const FINISH_MAX: Duration = Duration::from_secs(100);
/// How long a restart waits for a member without a record before the operator gives it up.
const OPERATOR_AFTER: Duration = Duration::from_secs(5);
/// How long a full disk stays full while its process starts.
const FULL_START: Duration = Duration::from_secs(3);
/// How long the group works before it finishes.
const LAST_LOAD: Duration = Duration::from_millis(700);
/// The status of a process that was evicted.
const EVICTED: i32 = 3;
/// Bytes of the events of each process in a report.
const REPORT_BYTES: usize = 6000;

/// The counts of a round.
#[derive(Clone, Debug, Default)]
pub(super) struct DisksTally {
    /// Total kills, each followed by a restart.
    pub(super) restarts: u64,
    /// Total kills of processes that were starting.
    pub(super) in_starts: u64,
    pub(super) kills: u64,
    pub(super) wiped: u64,
    pub(super) old_copies: u64,
    /// Old copies that were refused.
    pub(super) refused_copies: u64,
    pub(super) full_disks: u64,
    /// Processes that did not start on a full disk.
    pub(super) refused_full: u64,
    pub(super) stops: u64,
    /// Waits that named the missing member.
    pub(super) named: u64,
    /// Restarts without a member that stayed away.
    pub(super) without: u64,
    pub(super) evictions: u64,
    /// Processes whose id a new process had.
    pub(super) id_conflicts: u64,
    /// Members that an operator gave up, because they were killed before they had a record.
    pub(super) given_up: u64,
    pub(super) durable: u64,
    pub(super) not_durable: u64,
    pub(super) logged: u64,
    pub(super) deliveries: u64,
    /// Times from the last start to one view, in ms.
    pub(super) view_ms: Vec<u64>,
}

/// A round while it is played.
pub(super) struct DisksRound<'a> {
    signals: &'a Signals,
    program: &'a Path,
    /// The directory of the round.
    folder: PathBuf,
    /// True if disks can get full here.
    mounts: bool,
    plan: DisksPlan,
    group: String,
    seats: Vec<Seat>,
    sockets: Vec<String>,
    next_instance: u32,
    paces: Vec<Pace>,
    /// Members that the next processes give up.
    lost: Vec<u64>,
    /// The seat that starts last, once the others have named it.
    absent: Option<usize>,
    /// Seats without a member, whose processes start when all others are in one view.
    deferred: BTreeSet<usize>,
    /// The view in which all are, while nothing has happened since.
    view: Option<u64>,
    /// Members for which a restart waits, and since when.
    missing: Option<(Vec<u64>, Instant)>,
    finishing: bool,
    evidence: Evidence,
    start: Instant,
    history: Vec<String>,
    tally: DisksTally,
}

impl<'a> DisksRound<'a> {
    pub(super) fn new(
        options: &ChaosOptions,
        program: &'a Path,
        folder: PathBuf,
        signals: &'a Signals,
        seed: u64,
        mounts: bool,
    ) -> Result<DisksRound<'a>> {
        let plan = DisksPlan::new(seed, &options.members, options.hosts.as_ref());
        fs::create_dir(&folder)?;
        let is_small = |seat: usize| mounts && seat == plan.small;
        let seats = (0..plan.seats).map(|i| Seat::new(folder.join(format!("seat{i}")), is_small(i)));
        let seats = seats.collect::<Result<_>>()?;
        let sockets = (0..plan.seats).map(|i| format!("unix:{}/socket{i}", folder.display())).collect();
        Ok(DisksRound {
            signals,
            program,
            folder,
            mounts,
            paces: plan.last.paces.clone(),
            plan,
            group: "disks".to_owned(),
            seats,
            sockets,
            next_instance: 1,
            lost: vec![],
            absent: None,
            deferred: BTreeSet::new(),
            view: None,
            missing: None,
            finishing: false,
            evidence: Evidence::default(),
            start: Instant::now(),
            history: vec![],
            tally: DisksTally::default(),
        })
    }

    /// Plays the round to its end.
    pub(super) fn play(&mut self) -> Result<()> {
        for life in self.plan.lives.clone() {
            self.live(&life)?;
            self.kill_all()?;
            self.judge_down()?;
            self.down(life.down)?;
        }
        let last = self.plan.last.clone();
        self.start_all(&last, None)?;
        self.one_view()?;
        self.run(LAST_LOAD)?;
        self.finish()
    }

    pub(super) fn tally(&self) -> &DisksTally {
        &self.tally
    }

    pub(super) fn history(&self) -> &[String] {
        &self.history
    }

    fn note(&mut self, what: impl AsRef<str>) {
        self.history.push(format!("{:>7} ms  {}", self.start.elapsed().as_millis(), what.as_ref()));
    }

    fn live(&mut self, life: &Life) -> Result<()> {
        self.note(format!("life: {:?}", life.event));
        if let LifeEvent::KillInStart(ms) = life.event {
            self.tally.in_starts += 1;
            return self.start_all(&life.starts, Some(Duration::from_millis(ms)));
        }
        self.start_all(&life.starts, None)?;
        self.one_view()?;
        self.run(Duration::from_millis(life.before_ms))?;
        let ms = Duration::from_millis;
        if matches!(
            life.event,
            LifeEvent::Restart { .. }
                | LifeEvent::RestartOld { .. }
                | LifeEvent::Stop { .. }
                | LifeEvent::StopAndKill { .. }
        ) {
            self.all_vote()?;
        }
        match life.event {
            LifeEvent::Run(length) => self.run(ms(length)),
            LifeEvent::KillInStart(_) => Ok(()),
            LifeEvent::KillInViewChange { seat, after_ms } => {
                self.kill_one(seat)?;
                self.run(ms(after_ms))
            }
            LifeEvent::KillInCatchUp { seat, pause_ms, after_ms } => {
                self.kill_one(seat)?;
                self.run(ms(pause_ms))?;
                self.start(seat)?;
                self.run(ms(after_ms))
            }
            LifeEvent::Restart { seat, pause_ms } => {
                self.kill_one(seat)?;
                self.run(ms(pause_ms))?;
                self.start(seat)?;
                self.one_view()
            }
            LifeEvent::RestartOld { seat } => {
                self.kill_one(seat)?;
                self.put_copy(seat)?;
                self.start(seat)?;
                self.one_view()
            }
            LifeEvent::Stop { seat, ms: length } => self.stop(seat, ms(length)),
            LifeEvent::StopAndKill { seat, ms: length } => self.stop_and_kill(seat, ms(length)),
            LifeEvent::Full { spare, ms: length, kill } => self.full(spare, ms(length), kill),
        }
    }

    /// Starts all processes but the one that is to be named. With `kill_after` the caller kills all
    /// that were started when that time is over.
    fn start_all(&mut self, starts: &Starts, kill_after: Option<Duration>) -> Result<()> {
        let begin = Instant::now();
        self.paces.clone_from(&starts.paces);
        self.forget_found()?;
        let absent = self.absent.take().filter(|_| kill_after.is_none());
        for (seat, pause_ms) in starts.order.iter().zip(&starts.pauses_ms) {
            let pause = Duration::from_millis(*pause_ms);
            let left = kill_after.map_or(pause, |after| pause.min(after.saturating_sub(begin.elapsed())));
            self.run(left)?;
            if kill_after.is_some_and(|after| begin.elapsed() >= after) {
                return Ok(());
            }
            if absent != Some(*seat) && !self.seats[*seat].is_running() {
                self.start(*seat)?;
            }
        }
        match (absent, kill_after) {
            (Some(seat), _) => {
                self.expect_named(seat)?;
                self.start(seat)
            }
            (None, Some(after)) => self.run(after.saturating_sub(begin.elapsed())),
            (None, None) => Ok(()),
        }
    }

    /// Gives up no member that is here: a process that joined after the recovery may have got the id of
    /// the one that was lost.
    fn forget_found(&mut self) -> Result<()> {
        let mut lost = vec![];
        for id in std::mem::take(&mut self.lost) {
            let mut is_here = false;
            for seat in &self.seats {
                is_here |= seat.is_of(id)?;
            }
            lost.extend((!is_here).then_some(id));
        }
        self.lost = lost;
        Ok(())
    }

    fn start(&mut self, seat: usize) -> Result<()> {
        let instance = self.next_instance;
        self.next_instance += 1;
        let data = self.seats[seat].data();
        if !self.seats[seat].has_member()? {
            // It joins the group of the others later, if that exists.
            let mut exists = false;
            for other in &self.seats {
                exists |= other.has_member()?;
            }
            self.seats[seat].is_complete &= !exists;
        }
        let member = Member::start(&self.starting(seat, instance, &data))?;
        let with = if self.lost.is_empty() { String::new() } else { format!(" with --lost {:?}", self.lost) };
        self.note(format!("start process {instance} at seat {seat}{with}"));
        self.seats[seat].member = Some(member);
        self.view = None;
        Ok(())
    }

    fn starting<'b>(&'b self, seat: usize, instance: u32, data: &'b Path) -> Start<'b> {
        Start {
            program: self.program,
            folder: &self.folder,
            group: &self.group,
            founders: self.plan.seats as u32,
            instance,
            data,
            lost: &self.lost,
            pace: self.paces[seat],
            host: self.plan.hosts.map(|hosts| seat % hosts),
            sockets: &self.sockets,
            seat,
        }
    }

    /// Reads what the processes report, and starts those again that have ended for a reason.
    fn tick(&mut self) -> Result<()> {
        if self.signals.arrived() {
            return Err(Interrupted.into());
        }
        for seat in 0..self.seats.len() {
            let Some(member) = &mut self.seats[seat].member else { continue };
            let has_ended = member.look()?;
            if let Some(id) = member.id {
                self.seats[seat].ids.insert(id);
            }
            if has_ended {
                self.ended(seat)?;
            }
        }
        if let Some(view) = self.view
            && self.common_view() != Some(view)
        {
            self.view = None;
        }
        Ok(())
    }

    /// Handles the end of a process that was not killed.
    fn ended(&mut self, seat: usize) -> Result<()> {
        let Some(member) = &self.seats[seat].member else { return Ok(()) };
        let (instance, code) = (member.instance, member.status.and_then(|status| status.code()));
        let why = member.error.clone().unwrap_or_default();
        if self.finishing {
            if code == Some(0) {
                return Ok(());
            }
            bail!("process {instance} at seat {seat} did not finish: status {code:?}: {why}");
        }
        self.view = None;
        if code == Some(EVICTED) {
            self.note(format!("process {instance} at seat {seat} was evicted: {why}"));
            self.tally.evictions += 1;
        } else if self.seats[seat].is_full && why.contains("space") {
            self.note(format!("process {instance} at seat {seat} does not start: {why}"));
            self.tally.refused_full += 1;
            self.seats[seat].free()?;
        } else if why.contains("is in use in group") && self.seats[seat].has_member()? {
            self.note(format!("process {instance} at seat {seat} does not start: {why}"));
            self.tally.id_conflicts += 1;
            self.defer_new()?;
        } else if self.seats[seat].is_old {
            self.note(format!("process {instance} at seat {seat} refuses the old copy: {why}"));
            self.tally.refused_copies += 1;
            self.seats[seat].put_back()?;
        } else {
            bail!("process {instance} at seat {seat} ended with status {code:?}: {why}");
        }
        self.gone(seat);
        self.start(seat)
    }

    /// Ends the processes without old logs. One of them may have the id of a member that comes back.
    fn defer_new(&mut self) -> Result<()> {
        for seat in 0..self.seats.len() {
            if self.seats[seat].member.is_some() && !self.seats[seat].has_member()? {
                self.kill_one(seat)?;
                self.deferred.insert(seat);
            }
        }
        Ok(())
    }

    /// Starts the processes that were deferred, once all others are in one view.
    fn start_deferred(&mut self) -> Result<()> {
        let mut views = self.seats.iter().filter_map(|seat| seat.member.as_ref()).map(|member| &member.view);
        let first = views.next().cloned().flatten();
        if first.is_some() && views.all(|view| *view == first) {
            for seat in std::mem::take(&mut self.deferred) {
                self.start(seat)?;
            }
        }
        Ok(())
    }

    fn gone(&mut self, seat: usize) {
        let member = self.seats[seat].member.take();
        self.evidence.ended.extend(member.map(|member| member.instance));
    }

    fn run(&mut self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.tick()?;
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            sleep(TICK.min(left));
        }
    }

    /// The view in which all processes of the round are, if there is one.
    fn common_view(&self) -> Option<u64> {
        let mut views = self.seats.iter().map(|seat| {
            let member = seat.member.as_ref().filter(|member| member.status.is_none() && !member.stopped)?;
            member.view.as_ref()
        });
        let first = views.next()??;
        let is_common = first.1.len() == self.seats.len() && views.all(|view| view == Some(first));
        is_common.then_some(first.0)
    }

    /// Waits until all processes are in one view.
    fn one_view(&mut self) -> Result<()> {
        let begin = Instant::now();
        self.missing = None;
        loop {
            self.tick()?;
            if let Some(view) = self.common_view() {
                self.view = Some(view);
                break;
            }
            if begin.elapsed() > VIEW_MAX {
                bail!("{VIEW_MAX:?} after all were started they are not in one view:\n{}", self.standing());
            }
            if begin.elapsed() > FULL_START {
                self.make_space()?;
            }
            self.operate()?;
            if !self.deferred.is_empty() {
                self.start_deferred()?;
            }
            sleep(TICK);
        }
        self.make_space()?;
        self.seats.iter_mut().for_each(Seat::forget_newer);
        self.lost.clear();
        self.tally.view_ms.push(begin.elapsed().as_millis() as u64);
        self.note(format!("all are in view {}", self.view.unwrap_or_default()));
        Ok(())
    }

    /// Waits until the group can do without any one of its members.
    fn all_vote(&mut self) -> Result<()> {
        let (mut view, mut since) = (self.view, Instant::now());
        while self.plan.hosts.is_some() && since.elapsed() < VOTERS_AFTER {
            self.tick()?;
            let common = self.common_view();
            if common.is_none() || common != view {
                (view, since) = (common, Instant::now());
            }
            sleep(TICK);
        }
        self.view = view;
        Ok(())
    }

    fn make_space(&mut self) -> Result<()> {
        self.seats.iter_mut().try_for_each(Seat::free)
    }

    /// Describes where each process is.
    fn standing(&self) -> String {
        let line = |(i, seat): (usize, &Seat)| {
            let member = seat.member.as_ref();
            let shown = member.map(|member| (member.instance, member.id, &member.view, &member.waiting));
            format!("seat {i}, ids {:?}: {shown:?}", seat.ids)
        };
        self.seats.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Gives up members for which a restart waits though their processes were killed before they had
    /// a record, as the documentation of restarts says.
    fn operate(&mut self) -> Result<()> {
        let missing: BTreeSet<u64> =
            self.seats.iter().filter_map(|seat| seat.member.as_ref()).flat_map(Member::missing).collect();
        let missing: Vec<u64> = missing.into_iter().collect();
        let is_here = |id: &u64| self.seats.iter().any(|seat| seat.ids.contains(id));
        let is_started = |(i, seat): (usize, &Seat)| seat.is_running() || self.deferred.contains(&i);
        if missing.is_empty() || missing.iter().any(is_here) || !self.seats.iter().enumerate().all(is_started) {
            self.missing = None;
            return Ok(());
        }
        match &self.missing {
            Some((known, since)) if *known == missing => {
                if since.elapsed() < OPERATOR_AFTER {
                    return Ok(());
                }
            }
            _ => {
                self.missing = Some((missing, Instant::now()));
                return Ok(());
            }
        }
        self.note(format!("the restart waits for {missing:?}, which no disk has: give them up"));
        self.tally.given_up += missing.len() as u64;
        self.lost.extend(missing);
        (0..self.seats.len()).try_for_each(|seat| self.kill_one(seat))?;
        let started: Vec<usize> = (0..self.seats.len()).filter(|seat| !self.deferred.contains(seat)).collect();
        started.into_iter().try_for_each(|seat| self.start(seat))
    }

    /// Waits until a process says that the restart waits for the member of `seat`, or all others
    /// are in a view without it.
    fn expect_named(&mut self, seat: usize) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.tick()?;
            let members = || self.seats.iter().filter_map(|seat| seat.member.as_ref());
            let is_named = |member: &Member| {
                let missing = member.missing();
                !missing.is_empty() && missing.iter().all(|id| self.seats[seat].ids.contains(id))
            };
            if members().all(|member| member.view.is_some()) {
                self.tally.without += 1;
                self.note(format!("the others restart without the member of seat {seat}"));
                return Ok(());
            }
            let may_go_on = self.plan.hosts.is_some() && begin.elapsed() < GOES_ON_MAX;
            if members().any(is_named) && !may_go_on {
                self.tally.named += 1;
                self.note(format!("the member of seat {seat} was named"));
                return Ok(());
            }
            if begin.elapsed() > NAMED_MAX {
                bail!("no process named the member of seat {seat} for {NAMED_MAX:?}:\n{}", self.standing());
            }
            sleep(TICK);
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.note("finish");
        self.finishing = true;
        self.seats.iter().filter_map(|seat| seat.member.as_ref()).for_each(Member::finish);
        let begin = Instant::now();
        while self.seats.iter().any(Seat::is_running) {
            self.tick()?;
            if begin.elapsed() > FINISH_MAX {
                bail!("{FINISH_MAX:?} after the end of their input not all have finished:\n{}", self.standing());
            }
            sleep(TICK);
        }
        self.judge_end()
    }

    /// Returns all that is known about the round, and keeps its files in `place`.
    pub(super) fn report(&mut self, what: &str, place: &Path) -> String {
        let mut text =
            format!("{what}\n\nseed {}, {} seats\n{}\n", self.plan.seed, self.seats.len(), self.history.join("\n"));
        for (i, seat) in self.seats.iter().enumerate() {
            if let Some(member) = &seat.member {
                text += &format!("\nprocess {} at seat {i}:\n{}", member.instance, member.last_words(REPORT_BYTES));
            }
        }
        let kept = self.keep(place);
        text += &match kept {
            Ok(()) => format!("\nfiles: {}", place.display()),
            Err(error) => format!("\nthe files could not be kept: {error:#}"),
        };
        text
    }

    fn keep(&mut self, place: &Path) -> Result<()> {
        fs::create_dir_all(place)?;
        for seat in &mut self.seats {
            if let Some(mut member) = seat.member.take() {
                member.kill();
                member.wait()?;
            }
        }
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), place.join(entry.file_name()))?;
            }
        }
        (0..self.seats.len()).try_for_each(|i| self.seats[i].keep(&place.join(format!("seat{i}"))))
    }
}

impl Drop for DisksRound<'_> {
    fn drop(&mut self) {
        self.seats.clear();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
