//! The world: processes, applications and time. One heap of events, one seed, nothing else decides what happens next.
//!
//! What belongs to one view stands in its [`Stage`]; a [`Seat`] is a member on a stage. A run in which nobody comes or goes
//! has one stage. The parts of this module follow a message: `senders` commit it, `polls` find it, `traffic` carries it,
//! `deliveries` check it where it arrives, `consumers` take it on threads of their own.
//!
//! An engine is polled when something has happened to it (a post landed, an application committed, a consumer reported)
//! and as long as it says that there is more to do; never otherwise, so that a forgotten wake-up shows.
/// Adds a line to the trace, if there is one.
macro_rules! note {
    ($world:expr, $($text:tt)*) => {
        if let Some(trace) = &mut $world.trace {
            trace.line($world.now, format_args!($($text)*));
        }
    };
}

mod consumers;
mod deliveries;
mod polls;
mod senders;
mod stage;
mod told;
mod traffic;

use crate::apps::App;
use crate::checkers::determinism::TraceHash;
use crate::checkers::view_sequence::ViewSequence;
use crate::checkers::{Violation, liveness, null_rule};
use crate::history::History;
use crate::plan::Plan;
use crate::random::Random;
use crate::trace::Trace;
use spindle_core::layout::membership;
use spindle_core::{Engine, Rank, SubgroupId};
pub(crate) use stage::Seat;
use stage::Stage;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use told::Told;

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was broken; a run ends at the first.
    pub violations: Vec<Violation>,
    /// Messages delivered, and checked, at all members together.
    pub deliveries: u64,
    /// Messages committed.
    pub messages: u64,
    /// Nulls announced.
    pub nulls: u64,
    /// Polls of engines.
    pub polls: u64,
    /// Posts, each counted once whatever the number of peers.
    pub posts: u64,
    /// Stores of engines into their rows.
    pub stores: u64,
    /// Faults that happened: delays, merges, tears, pauses met, clock jumps.
    pub faults: u64,
    /// Events.
    pub events: u64,
    /// Virtual time at the end, in ns.
    pub virtual_ns: u64,
    /// A hash of all that happened, in order.
    pub trace_hash: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Poll(Seat),
    Land { stage: usize, owner: Rank, peer: Rank },
    App(usize),
    Consume { stage: usize, consumer: usize },
    Report { stage: usize, consumer: usize },
    Clock(usize, usize),
    Close(Seat, SubgroupId),
}

/// One process: a member for as long as it lives, on one stage after the other.
struct Process {
    /// Where it is.
    seat: Seat,
    /// The first stage that it was on.
    first_stage: usize,
    /// Its clock's offset, in ns.
    clock: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) subgroup: SubgroupId,
    pub(crate) sender: Rank,
    pub(crate) round: u64,
    pub(crate) len: u64,
    pub(crate) digest: u64,
}

type Checked = Result<(), Violation>;

pub(crate) struct World<'a> {
    plan: &'a Plan,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    random: Random,
    processes: Vec<Process>,
    stages: Vec<Stage>,
    apps: Vec<App>,
    told: Told,
    history: History,
    view_sequence: ViewSequence,
    hash: TraceHash,
    outcome: Outcome,
    trace: Option<&'a mut Trace>,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, trace: Option<&'a mut Trace>) -> World<'a> {
        let view = &plan.view;
        let mut stage = Stage::new(plan, view, (0..view.members.len()).collect());
        for rank in view.ranks() {
            let engine = Engine::new(view.clone(), rank, plan.ablation).expect("a plan's view is well formed");
            stage.install(engine, &plan.members[rank.index()].hand_offs);
        }
        let apps = plan.apps.iter().map(|app| {
            let seat = Seat { stage: 0, rank: Rank(app.member as u32) };
            let claims = stage.member(seat.rank).engine.claims(app.subgroup).expect("a sender has claims");
            let sender = view.subgroups[app.subgroup.index()].sender_rank(seat.rank).expect("a sender");
            let twins = |other: &&crate::plan::AppPlan| (other.member, other.subgroup) == (app.member, app.subgroup);
            App::new(*app, seat, claims, sender, plan.apps.iter().filter(twins).count() == 1)
        });
        World {
            now: 0,
            heap: BinaryHeap::with_capacity(1024),
            pushed: 0,
            random: Random::new(plan.seed, 1),
            processes: view
                .ranks()
                .map(|rank| Process { seat: Seat { stage: 0, rank }, first_stage: 0, clock: 0 })
                .collect(),
            apps: apps.collect(),
            stages: vec![stage],
            told: Told::new(Random::new(plan.seed, 2), plan.faults.partial_batches),
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
                self.outcome.deliveries += group.deliveries;
                self.outcome.messages += group.lanes.iter().map(|lane| lane.messages).sum::<u64>();
            }
            self.outcome.nulls += stage.null_rule.nulls();
        }
        self.outcome.virtual_ns = self.now;
        self.outcome.trace_hash = self.hash.value();
        self.outcome
    }

    fn play(&mut self) -> Checked {
        self.start();
        self.drain()?;
        liveness::at_rest(&self.stages[0].ledger)?;
        self.compare_copies(0)?;
        if !self.plan.faults.early_close {
            note!(self, "-- at rest: everybody is polled, nobody may find anything to do");
            self.poke(0)?;
            note!(self, "-- claims are closed");
            for (id, sender) in self.stages[0].lanes() {
                let at = self.now + self.random.below(20_000);
                let rank = self.stages[0].ledger.lane(id, sender).sender;
                self.push(at, Event::Close(Seat { stage: 0, rank }, id));
            }
        }
        self.drain()?;
        for member in self.stages[0].members.iter().flatten() {
            liveness::ended(member.engine.me(), member.engine.state())?;
        }
        self.compare_copies(0)
    }

    fn start(&mut self) {
        for i in 0..self.apps.len() {
            let at = self.random.below(self.apps[i].plan.think_ns);
            self.push(at, Event::App(i));
        }
        for process in 0..self.processes.len() {
            for (i, (at, _)) in self.plan.members[process].clock_jumps.iter().enumerate() {
                self.push(*at, Event::Clock(process, i));
            }
            self.wake(self.processes[process].seat);
        }
        if self.plan.faults.early_close {
            for (id, sender) in self.stages[0].lanes() {
                let seat = Seat { stage: 0, rank: self.stages[0].ledger.lane(id, sender).sender };
                if !self.apps.iter().any(|app| app.seat == seat && app.plan.subgroup == id) {
                    let at = self.random.below(50_000);
                    self.push(at, Event::Close(seat, id));
                }
            }
        }
    }

    /// Lets things happen until nothing is left to happen.
    fn drain(&mut self) -> Checked {
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            self.now = at;
            self.outcome.events += 1;
            self.hash.add(at);
            if self.outcome.events > self.plan.events_max {
                return match self.stages.iter().all(|stage| stage.ledger.everything_is_delivered()) {
                    true => null_rule::restless(self.outcome.events),
                    false => liveness::endless(self.outcome.events),
                };
            }
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Checked {
        let stopped = match event {
            Event::Poll(seat) => Some(self.process_of(seat)),
            Event::App(i) => Some(self.apps[i].plan.member),
            Event::Consume { stage, consumer } | Event::Report { stage, consumer } => {
                Some(self.process_of(Seat { stage, rank: self.stages[stage].consumers[consumer].member }))
            }
            _ => None,
        };
        if let Some(until) = stopped.and_then(|process| self.paused(process)) {
            self.outcome.faults += 1;
            self.push(until, event);
            return Ok(());
        }
        match event {
            Event::Poll(seat) => {
                self.stages[seat.stage].member_mut(seat.rank).scheduled = false;
                self.poll(seat).map(|_| ())
            }
            Event::Land { stage, owner, peer } => self.land(stage, owner, peer),
            Event::App(i) => self.step(i),
            Event::Consume { stage, consumer } => self.consume(stage, consumer),
            Event::Report { stage, consumer } => self.report(stage, consumer),
            Event::Clock(process, i) => {
                let by = self.plan.members[process].clock_jumps[i].1;
                self.processes[process].clock += by;
                self.outcome.faults += 1;
                note!(self, "m{process} clock jumps by {by} ns");
                Ok(())
            }
            Event::Close(seat, id) => {
                self.close(seat, id);
                Ok(())
            }
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse((at, self.pushed, event)));
    }

    fn process_of(&self, seat: Seat) -> usize {
        self.stages[seat.stage].cast[seat.rank.index()]
    }

    fn paused(&self, process: usize) -> Option<u64> {
        let pauses = &self.plan.members[process].pauses;
        pauses.iter().find(|(from, to)| (*from..*to).contains(&self.now)).map(|(_, to)| *to)
    }

    /// Something has happened at `seat`: its engine is polled soon.
    fn wake(&mut self, seat: Seat) {
        let process = self.process_of(seat);
        let member = self.stages[seat.stage].member_mut(seat.rank);
        if member.scheduled || member.finished {
            return;
        }
        member.scheduled = true;
        let at = self.now + self.random.range(50, self.plan.members[process].poll_ns);
        self.push(at, Event::Poll(seat));
    }

    /// Polls everybody at rest.
    fn poke(&mut self, stage: usize) -> Checked {
        for _ in 0..3 {
            for rank in self.stages[stage].view.ranks() {
                let (worked, posts) = self.poll(Seat { stage, rank })?;
                null_rule::at_rest(rank, worked, posts)?;
            }
        }
        self.drain()
    }

    /// At rest, every peer's copy of every word that concerns it is what its owner stored last.
    fn compare_copies(&self, stage: usize) -> Checked {
        let Stage { view, layout, tables, monotone, .. } = &self.stages[stage];
        for owner in view.ranks() {
            let common = (membership::ASLEEP..membership::LEFT + 8).step_by(8);
            for peer in view.ranks() {
                let shared = view.subgroups_of(owner).filter(|(_, spec)| spec.members.contains(&peer));
                let entries = shared.filter_map(|(id, _)| layout.row(owner).place(id));
                let words = entries.flat_map(|place| (place.entry..place.end).step_by(8));
                for at in common.clone().chain(words) {
                    let copy = tables[peer.index()].rows[owner.index()].word(at);
                    liveness::copied(peer, owner, at, copy, monotone.newest(owner, at))?;
                }
            }
        }
        Ok(())
    }
}
