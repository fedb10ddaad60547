//! The world: processes, applications and time. One heap of events and one seed decide everything
//! that happens.
//!
//! The state of one view is in its [`Stage`]; a [`Seat`] is a member on a stage. A run without
//! joins and leaves has one stage. A subgroup that no change of the view touches stays on its stage
//! (`epochs`). The parts of this module follow a message: `senders` commit it, `polls` find it,
//! `traffic` carries it, `deliveries` check it where it arrives, and `consumers` take it on threads
//! of their own. `happen` contains the faults of processes, `views` their way from stage to stage,
//! and `rest` the checks at the end, when no event is left.
//!
//! An engine is polled when an event has reached it (a post landed, an application committed, a
//! consumer reported) and as long as it reports more work. It is never polled otherwise, so that a
//! forgotten wake-up shows.
/// Adds a line to the trace, if the run has one.
macro_rules! note {
    ($world:expr, $($text:tt)*) => {
        if let Some(trace) = &mut $world.trace {
            trace.line($world.now, format_args!($($text)*));
        }
    };
}

mod actions;
mod barriers;
mod consumers;
mod deliveries;
mod epochs;
mod logs;
mod polls;
mod recorder;
mod rest;
mod senders;
mod stage;
mod traffic;
mod views;
mod waiting;

use crate::actions::When;
use crate::apps::{App, OpenRing};
use crate::checkers::determinism::TraceHash;
use crate::checkers::view_sequence::ViewSequence;
use crate::checkers::{Checked, Violation, liveness, null_rule};
use crate::counts::Counts;
use crate::history::History;
use crate::plan::Plan;
use crate::random::Random;
use crate::seat::Seat;
use crate::trace::RunTrace;
use recorder::Recorder;
use spindle_core::{Ballot, Engine, Rank, SubgroupId};
use stage::Stage;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use views::{Luggage, Moving};

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The violations; a run ends at the first one.
    pub violations: Vec<Violation>,
    /// The counts of events.
    pub counts: Counts,
    /// True if no working group was left at the end, because too few members were in contact.
    pub blocked: bool,
    /// A hash of all events, in order.
    pub trace_hash: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Poll(Seat),
    Land {
        stage: usize,
        owner: Rank,
        peer: Rank,
    },
    App(usize),
    Consume {
        stage: usize,
        consumer: usize,
    },
    Report {
        stage: usize,
        consumer: usize,
    },
    Clock(usize, usize),
    Close(Seat, SubgroupId),
    Release(usize),
    Alarm(Seat),
    Happen(usize),
    Ask(usize),
    Died {
        stage: usize,
        member: Rank,
        peer: Rank,
    },
    Heal(usize, usize),
    Synced(usize, SubgroupId),
    /// The acceptance of a ballot is on a disk.
    Accepted(Seat, Ballot),
    /// The end notice of a member is on its disk.
    EndNotice(Seat),
}

impl Event {
    /// Returns true for events that recur for ever, and for events that only other events cause.
    /// They do not keep a group from being at rest.
    fn is_background(self) -> bool {
        matches!(self, Event::Poll(_) | Event::Land { .. } | Event::Alarm(_) | Event::Ask(_))
    }
}

/// The idle time after which a run is at rest, in suspicion times, or in ns if members are not
/// suspected for silence.
const PATIENCE: u64 = 8;
const PATIENCE_NS: u64 = 20_000_000_000;

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProcessLife {
    /// It has not asked to join yet.
    Outside,
    Asking,
    Member,
    Crashed,
    Evicted,
    Left,
}

impl ProcessLife {
    fn is_alive(self) -> bool {
        matches!(self, ProcessLife::Outside | ProcessLife::Asking | ProcessLife::Member)
    }
}

/// The moment at which a process crashes.
#[derive(Clone, Copy, Debug)]
struct Doom {
    /// Stores and posts until then.
    actions: u64,
    /// True if it crashes at the end of the next poll at the latest.
    last_poll: bool,
}

/// One process. It is a member for as long as it lives, on one stage after the other.
struct ViewProcess {
    /// Its seat, if it is a member.
    seat: Option<Seat>,
    life: ProcessLife,
    /// Its clock's offset, in ns.
    clock: i64,
    hung_since: u64,
    hung_until: u64,
    doom: Option<Doom>,
    leaving: bool,
    /// Rings of its seat in which its applications may claim, unless the only claimer holds the
    /// ring.
    open: BTreeMap<SubgroupId, OpenRing>,
    /// Rings of its seat in which its applications may not claim yet.
    moving: Vec<Moving>,
    /// Messages that wait for their subgroups to become available again.
    waiting: Vec<Luggage>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimDelivery {
    pub(crate) subgroup: SubgroupId,
    pub(crate) sender: Rank,
    pub(crate) round: u64,
    pub(crate) len: u64,
    pub(crate) digest: u64,
    /// Stores and posts of the poll before this delivery.
    pub(crate) after: u64,
}

pub(crate) struct World<'a> {
    plan: &'a Plan,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    random: Random,
    processes: Vec<ViewProcess>,
    stages: Vec<Stage>,
    /// By action of the plan: true if a step triggered it.
    happened: Vec<bool>,
    /// Cut links, by processes, each with the end of the cut.
    cuts: BTreeMap<(usize, usize), u64>,
    /// Events in the heap that are not background.
    foreground: u64,
    /// The time of the last event other than a heartbeat.
    last_change: u64,
    apps: Vec<App>,
    /// Objects that were committed: the ring, the position in it, and the index in the ledger.
    objects: Vec<(OpenRing, u64, usize)>,
    told: Recorder,
    logs: logs::Logs,
    history: History,
    view_sequence: ViewSequence,
    hash: TraceHash,
    outcome: Outcome,
    trace: Option<&'a mut RunTrace>,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, trace: Option<&'a mut RunTrace>) -> World<'a> {
        let view = &plan.view;
        let process = || ViewProcess {
            seat: None,
            life: ProcessLife::Outside,
            clock: 0,
            hung_since: 0,
            hung_until: 0,
            doom: None,
            leaving: false,
            open: BTreeMap::new(),
            moving: vec![],
            waiting: vec![],
        };
        let apps = plan.apps.iter().map(|app| {
            let twins = |other: &&crate::plan::AppPlan| (other.member, other.subgroup) == (app.member, app.subgroup);
            App::new(*app, plan.apps.iter().filter(twins).count() == 1)
        });
        World {
            now: 0,
            heap: BinaryHeap::with_capacity(1024),
            pushed: 0,
            random: Random::new(plan.seed, 1),
            processes: plan.members.iter().map(|_| process()).collect(),
            apps: apps.collect(),
            objects: vec![],
            stages: vec![Stage::new(plan, view, (0..view.members.len()).collect())],
            happened: vec![false; plan.actions.len()],
            cuts: BTreeMap::new(),
            foreground: 0,
            last_change: 0,
            logs: logs::Logs::default(),
            told: Recorder::new(Random::new(plan.seed, 2), plan.faults.partial_batches),
            history: History::default(),
            view_sequence: ViewSequence::new(view),
            hash: TraceHash::default(),
            outcome: Outcome { seed: plan.seed, ..Outcome::default() },
            plan,
            trace,
        }
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(mut self) -> Outcome {
        if let Err(violation) = self.play() {
            self.outcome.violations.push(Violation { at: self.now, ..violation });
        }
        for stage in &self.stages {
            for group in &stage.ledger.groups {
                self.outcome.counts.deliveries += group.deliveries;
                self.outcome.counts.messages += group.lanes.iter().map(|lane| lane.messages).sum::<u64>();
            }
            self.outcome.counts.nulls += stage.null_rule.nulls();
        }
        self.outcome.counts.virtual_ns = self.now;
        self.outcome.trace_hash = self.hash.value();
        self.outcome
    }

    fn play(&mut self) -> Checked {
        self.start()?;
        self.drain()?;
        let live = self.check_rest()?;
        let Some(stage) = live else { return Ok(()) };
        // Ends all faults, also those that wait for another event.
        self.processes.iter_mut().for_each(|process| process.doom = None);
        if !self.plan.faults.early_close {
            if self.plan.suspect_after_ns.is_none() {
                self.poke(stage)?;
            }
            self.close_all(stage);
        }
        self.drain()?;
        self.check_end()
    }

    fn start(&mut self) -> Checked {
        for rank in self.plan.view.ranks() {
            let mut engine =
                Engine::new(self.plan.view.clone(), rank, self.plan.ablation).expect("a plan's view is well formed");
            engine.set_suspect_after(self.plan.suspect_after_ns);
            engine.set_liveness(self.plan.liveness());
            self.install(rank.index(), engine, None, vec![])?;
        }
        // The first view is the start of the run, so it is not counted.
        (self.outcome.counts.views, self.outcome.counts.installs) = (0, 0);
        for process in 0..self.processes.len() {
            for (i, (at, _)) in self.plan.members[process].clock_jumps.iter().enumerate() {
                self.push(*at, Event::Clock(process, i));
            }
            let longest = self.plan.suspect_after_ns.unwrap_or(u64::MAX) / 10 * 9;
            let pauses = self.plan.members[process].pauses.iter();
            self.outcome.counts.reasons += pauses.filter(|(from, to)| to - from >= longest).count() as u64;
        }
        for (i, action) in self.plan.actions.iter().enumerate() {
            if let When::At(at) = action.when {
                self.push(at, Event::Happen(i));
            }
        }
        if self.plan.faults.early_close {
            for (id, sender) in self.stages[0].lanes() {
                let seat = Seat { stage: 0, rank: self.stages[0].ledger.lane(id, sender).sender };
                if !self.apps.iter().any(|app| app.is_at(seat, id)) {
                    let at = self.random.below(50_000);
                    self.push(at, Event::Close(seat, id));
                }
            }
        }
        Ok(())
    }

    /// Returns a time that is longer than members need to suspect a member, to take turns as
    /// leaders, or to ask again for admission.
    fn patience_ns(&self) -> u64 {
        400_000 + self.plan.suspect_after_ns.map_or(PATIENCE_NS, |suspect_after| PATIENCE * suspect_after)
    }

    /// Processes events until only those are left that recur for ever.
    fn drain(&mut self) -> Checked {
        let calm_ns = self.patience_ns();
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            self.now = at;
            let is_calm = self.plan.faults.membership && self.foreground == 0 && at > self.last_change + calm_ns;
            if is_calm && (0..self.processes.len()).all(|process| self.paused(process).is_none()) {
                self.push(at, event);
                return Ok(());
            }
            if !event.is_background() {
                self.foreground -= 1;
                self.last_change = self.last_change.max(at);
            }
            self.outcome.counts.events += 1;
            self.hash.add(at);
            if self.outcome.counts.events > self.plan.events_max {
                return match self.stages.iter().all(|stage| stage.ledger.everything_is_delivered()) {
                    true => null_rule::restless(self.outcome.counts.events),
                    false => liveness::endless(self.outcome.counts.events),
                };
            }
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Checked {
        let of = match event {
            Event::Poll(seat) | Event::Alarm(seat) | Event::Accepted(seat, _) | Event::EndNotice(seat) => {
                Some(self.process_of(seat))
            }
            Event::App(i) => Some(self.apps[i].plan.member),
            Event::Consume { stage, consumer } | Event::Report { stage, consumer } => {
                Some(self.process_of(Seat { stage, rank: self.stages[stage].consumers[consumer].member }))
            }
            Event::Ask(process) | Event::Synced(process, _) => Some(process),
            _ => None,
        };
        if of.is_some_and(|process| matches!(self.processes[process].life, ProcessLife::Crashed | ProcessLife::Evicted))
        {
            return Ok(());
        }
        if let Some(until) = of.and_then(|process| self.paused(process)) {
            self.outcome.counts.faults += 1;
            self.last_change = self.last_change.max(until);
            self.push(until, event);
            return Ok(());
        }
        match event {
            Event::Poll(seat) => {
                self.stages[seat.stage].member_mut(seat.rank).scheduled = false;
                self.poll(seat).map(|_| ())
            }
            Event::Alarm(seat) => {
                self.wake(seat);
                Ok(())
            }
            Event::Land { stage, owner, peer } => self.land(stage, owner, peer),
            Event::App(i) if self.processes[self.apps[i].plan.member].life == ProcessLife::Left => Ok(()),
            Event::App(i) => self.step(i),
            Event::Consume { stage, consumer } => self.consume(stage, consumer),
            Event::Report { stage, consumer } => self.report(stage, consumer),
            Event::Clock(process, i) => {
                let by = self.plan.members[process].clock_jumps[i].1;
                self.processes[process].clock += by;
                self.outcome.counts.faults += 1;
                note!(self, "p{process} clock jumps by {by} ns");
                Ok(())
            }
            Event::Close(seat, id) => {
                self.close(seat, id);
                Ok(())
            }
            Event::Release(object) => self.release(object),
            Event::Happen(i) => self.perform(i),
            Event::Ask(process) => self.ask(process),
            Event::Died { stage, member, peer } => self.died(stage, member, peer),
            Event::Synced(process, subgroup) => self.synced(process, subgroup),
            Event::Accepted(seat, ballot) => {
                self.accepted(seat, ballot);
                Ok(())
            }
            Event::EndNotice(seat) => {
                self.said_last(seat);
                Ok(())
            }
            Event::Heal(from, to) => {
                self.heal(from, to);
                Ok(())
            }
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        self.foreground += u64::from(!event.is_background());
        self.heap.push(Reverse((at, self.pushed, event)));
    }

    fn process_of(&self, seat: Seat) -> usize {
        self.stages[seat.stage].cast[seat.rank.index()]
    }

    fn is_member(&self, process: usize) -> bool {
        self.processes[process].life == ProcessLife::Member
    }

    /// Returns the time until which a process is paused, if it is.
    fn paused(&self, process: usize) -> Option<u64> {
        let ViewProcess { life, hung_until, .. } = self.processes[process];
        if !life.is_alive() {
            return None;
        }
        let pauses = &self.plan.members[process].pauses;
        let planned = pauses.iter().find(|(from, to)| (*from..*to).contains(&self.now)).map(|(_, to)| *to);
        planned.max((hung_until > self.now).then_some(hung_until))
    }

    /// Schedules a poll of the engine at `seat`, because an event has reached it.
    fn wake(&mut self, seat: Seat) {
        let process = self.process_of(seat);
        let Some(member) = &mut self.stages[seat.stage].members[seat.rank.index()] else { return };
        if member.scheduled || member.finished || self.processes[process].life != ProcessLife::Member {
            return;
        }
        member.scheduled = true;
        let at = self.now + self.random.range(50, self.plan.members[process].poll_ns);
        self.push(at, Event::Poll(seat));
    }
}
