//! The faults and requests of processes: crashes, hangs, cuts, suspicions, joins and leaves.
use super::{Doom, Event, ProcessLife, ViewProcess, World};
use crate::actions::{Action, ActionKind, InstallStep, When};
use crate::checkers::Checked;
use crate::options::Visibility;
use crate::seat::Seat;
use spindle_core::{Engine, Rank, State};

/// How long a joiner waits before it asks again, in ns.
const ASK_AGAIN_NS: u64 = 300_000;
/// The longest time until a host reports that one of its processes is dead, in ns.
const DEATH_TOLD_NS: u64 = 30_000;

impl World<'_> {
    /// Carries out an action of the plan.
    pub(super) fn perform(&mut self, i: usize) -> Checked {
        let Action { when, what } = self.plan.actions[i];
        match what {
            ActionKind::Crash { process, actions } => {
                let last_poll = matches!(when, When::At(_));
                match self.processes[process].seat {
                    // A paused process makes no further poll in which it could crash.
                    Some(seat) if self.is_member(process) && self.paused(process).is_none() => {
                        self.processes[process].doom = Some(Doom { actions, last_poll });
                        self.wake(seat);
                    }
                    _ => self.crash(process),
                }
            }
            ActionKind::Hang { process, ns } if self.processes[process].life.is_alive() => {
                let now = self.now;
                let ViewProcess { hung_since, hung_until, .. } = &mut self.processes[process];
                if *hung_until < now {
                    *hung_since = now;
                }
                *hung_until = (*hung_until).max(now + ns);
                // If the hang is next to a pause, the process may be silent for longer than the
                // hang.
                let silence = *hung_until - *hung_since;
                let is_alone = self.plan.members[process].pauses.is_empty();
                // A member whose clock jumps may count that as up to two heartbeats of silence.
                let safe = |most: u64| if self.plan.faults.clock_jumps { most / 2 } else { most / 10 * 9 };
                let matters = self.plan.suspect_after_ns.is_some_and(|most| !is_alone || silence >= safe(most));
                self.outcome.counts.reasons += u64::from(matters);
                self.outcome.counts.hangs += 1;
                self.outcome.counts.faults += 1;
                note!(self, "p{process} hangs for {ns} ns");
            }
            ActionKind::Suspect { by, whom } => self.suspect(by, whom),
            ActionKind::Join { process } if self.processes[process].life == ProcessLife::Outside => {
                self.processes[process].life = ProcessLife::Asking;
                self.outcome.counts.joins += 1;
                self.outcome.counts.reasons += 1;
                note!(self, "p{process} asks to join, as #{}", self.plan.members[process].id);
                self.push(self.now, Event::Ask(process));
            }
            ActionKind::Leave { process } if self.is_member(process) => {
                self.processes[process].leaving = true;
                self.outcome.counts.leaves += 1;
                self.outcome.counts.reasons += 1;
                let seat = self.processes[process].seat.expect("a member has one");
                note!(self, "{seat} asks to leave");
                self.stages[seat.stage].member_mut(seat.rank).engine.leave();
                self.wake(seat);
            }
            ActionKind::Cut { from, to, ns } => {
                let until = self.now.saturating_add(ns);
                self.outcome.counts.cuts += 1;
                self.outcome.counts.reasons += 1;
                self.outcome.counts.faults += 1;
                note!(self, "{}", what_is(self.plan.actions[i]));
                self.cuts.insert((from, to), until);
                self.set_cut(from, to, true);
                if ns < u64::MAX {
                    self.push(until, Event::Heal(from, to));
                }
            }
            ActionKind::Change { process, change } => self.ask_for_change(process, change),
            ActionKind::Hang { .. } | ActionKind::Join { .. } | ActionKind::Leave { .. } | ActionKind::Miss { .. } => {}
        }
        Ok(())
    }

    /// Triggers the actions that wait for this step of the member.
    pub(super) fn took(&mut self, seat: Seat, step: InstallStep) {
        let process = self.process_of(seat);
        let view = self.stages[seat.stage].view.id.0;
        let now = When::Step { process, view, step };
        for i in 0..self.plan.actions.len() {
            if self.plan.actions[i].when == now && !std::mem::replace(&mut self.happened[i], true) {
                match self.plan.actions[i].what {
                    // The actions count from the step itself, not from the next event.
                    ActionKind::Crash { process: same, actions } if same == process => {
                        self.processes[process].doom = Some(Doom { actions, last_poll: false });
                    }
                    _ => self.push(self.now, Event::Happen(i)),
                }
            }
        }
    }

    fn suspect(&mut self, by: usize, whom: usize) {
        let Some(seat) = self.processes[by].seat.filter(|_| self.is_member(by)) else { return };
        let id = self.plan.members[whom].id;
        let stage = &mut self.stages[seat.stage];
        let Some(rank) = stage.view.rank_of(id).filter(|rank| *rank != seat.rank) else { return };
        let engine = &mut stage.member_mut(seat.rank).engine;
        if *engine.state() == State::Running {
            engine.suspect(rank);
            self.outcome.counts.suspicions += 1;
            self.outcome.counts.reasons += 1;
            self.outcome.counts.faults += 1;
            note!(self, "{seat} is told that m{rank} has to go");
            self.wake(seat);
        }
    }

    /// Crashes a process.
    pub(super) fn crash(&mut self, process: usize) {
        if !self.processes[process].life.is_alive() {
            return;
        }
        // A joiner that asks may be admitted after its death.
        let counts = self.processes[process].life != ProcessLife::Outside;
        self.processes[process].life = ProcessLife::Crashed;
        self.processes[process].doom = None;
        self.outcome.counts.crashes += 1;
        self.outcome.counts.faults += 1;
        self.outcome.counts.reasons += u64::from(counts);
        note!(self, "p{process} is dead");
        self.bury(process);
    }

    /// Decides which posts of a dead process arrive: a part of them, or all of them, followed by
    /// the report of its death.
    pub(super) fn bury(&mut self, process: usize) {
        for stage in 0..self.stages.len() {
            let Some(owner) = self.stages[stage].cast.iter().position(|one| *one == process) else { continue };
            let owner = Rank(owner as u32);
            for peer in self.stages[stage].view.ranks().filter(|peer| *peer != owner) {
                if self.plan.visibility == Visibility::Shared {
                    self.announce_death(stage, owner, peer);
                    continue;
                }
                let table = &self.stages[stage].tables[peer.index()];
                let on_the_way = table.on_the_way(owner);
                let kept = self.random.below(on_the_way as u64 + 1) as usize;
                table.lose(owner, kept);
            }
        }
    }

    /// Schedules the host's report to `peer` that `member` is dead, once all its stores are visible
    /// there.
    pub(super) fn announce_death(&mut self, stage: usize, member: Rank, peer: Rank) {
        if self.stages[stage].members[peer.index()].is_none() {
            return;
        }
        let visible = self.stages[stage].tables[peer.index()].inbound[member.index()].borrow().due.max(self.now);
        let told = visible + self.random.range(1, DEATH_TOLD_NS);
        self.push(told, Event::Died { stage, member, peer });
    }

    pub(super) fn died(&mut self, stage: usize, member: Rank, peer: Rank) -> Checked {
        let seat = Seat { stage, rank: peer };
        if self.is_absent(seat, member) {
            return self.is_gone(seat, member);
        }
        let [from, to] = self.stages[stage].pair(member, peer);
        to.land(from, self.now, 1);
        self.went_back(stage, peer)?;
        let engine = &mut self.stages[stage].member_mut(peer).engine;
        if *engine.state() == State::Running {
            engine.member_died(member);
            note!(self, "{seat} is told that m{member} is dead");
            self.wake(seat);
        }
        Ok(())
    }

    /// Reports to `seat` that `member` is dead, whose memory never arrived there.
    fn is_gone(&mut self, seat: Seat, member: Rank) -> Checked {
        let engine = &mut self.stages[seat.stage].member_mut(seat.rank).engine;
        if *engine.state() == State::Running {
            engine.member_gone(member);
            note!(self, "{seat} is told that m{member} is gone, whose memory never came");
            self.wake(seat);
        }
        Ok(())
    }

    /// Cuts or restores a link, on all stages.
    pub(super) fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        for stage in 0..self.stages.len() {
            let rank = |process| self.stages[stage].cast.iter().position(|one| *one == process).map(|i| Rank(i as u32));
            let (Some(owner), Some(peer)) = (rank(from), rank(to)) else { continue };
            let mut link = self.stages[stage].tables[peer.index()].inbound[owner.index()].borrow_mut();
            link.cut = cut || link.absent;
            drop(link);
            self.schedule(Seat { stage, rank: owner }, peer);
        }
    }

    pub(super) fn heal(&mut self, from: usize, to: usize) {
        if self.cuts.get(&(from, to)).is_some_and(|until| *until <= self.now) {
            self.cuts.remove(&(from, to));
            note!(self, "p{to} hears p{from} again");
            self.set_cut(from, to, false);
        }
    }

    /// Lets a joiner check whether a member has admitted it, and ask all members for admission if
    /// not.
    pub(super) fn ask(&mut self, process: usize) -> Checked {
        if self.processes[process].life != ProcessLife::Asking {
            return Ok(());
        }
        let id = self.plan.members[process].id;
        let answers = |world: &Self, other: usize| world.processes[other].seat.filter(|_| world.answers(other));
        for other in 0..self.processes.len() {
            let Some(seat) = answers(self, other) else { continue };
            let decision = self.stages[seat.stage].member(seat.rank).engine.decision();
            let next = decision.map(|decision| decision.next.clone());
            let known = self.stages[..=seat.stage].iter().map(|stage| &stage.view).chain(&next);
            let Some(view) = known.into_iter().find(|view| view.rank_of(id).is_some()).cloned() else { continue };
            let rank = view.rank_of(id).expect("looked up above");
            let mut engine = Engine::new(view, rank, self.plan.ablation).expect("a decided view is well formed");
            engine.set_suspect_after(self.plan.suspect_after_ns);
            engine.set_liveness(self.plan.liveness());
            return self.install(process, engine, None, vec![]);
        }
        for other in 0..self.processes.len() {
            let Some(seat) = answers(self, other) else { continue };
            if self.stages[seat.stage].member_mut(seat.rank).engine.admit(spindle_core::Process { id, nonce: 1 }) {
                self.wake(seat);
            }
        }
        // A paused member answers when it resumes.
        let members = (0..self.processes.len()).filter(|other| self.is_member(*other));
        let resumes = members.filter_map(|other| self.paused(other)).max();
        self.last_change = self.last_change.max(resumes.unwrap_or(0));
        let again = self.now + self.random.range(ASK_AGAIN_NS / 4, ASK_AGAIN_NS);
        self.push(again, Event::Ask(process));
        Ok(())
    }

    /// Returns true if a process runs, so that it answers a joiner.
    fn answers(&self, process: usize) -> bool {
        let Some(seat) = self.processes[process].seat else { return false };
        let state = self.stages[seat.stage].member(seat.rank).engine.state();
        self.is_member(process) && self.paused(process).is_none() && *state == State::Running
    }
}

fn what_is(action: Action) -> String {
    Action { when: When::At(0), ..action }.to_string().replacen("at 0 ns ", "", 1)
}
