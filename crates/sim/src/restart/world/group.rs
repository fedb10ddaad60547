//! The model of the group: how its members decide the next view and learn of it.
use super::agreement::{ProposedView, Side};
use super::{GroupView, MemberPhase, RecordWrite, RestartBroken, RestartEvent, RestartWorld, TICK_NS};
use crate::checkers::{Checked, Invariant};
use crate::restart::plan::{MS, S};
use spindle_core::{MemberId, Process, View};
use std::collections::{BTreeMap, BTreeSet};

const COMPLETE: Invariant = Invariant(32, "complete logs go on");

/// The silence after which a member is left out.
const SUSPECT_NS: u64 = 1_500 * MS;
/// The time after which an operator ends a group without a quorum.
const BLOCKED_NS: u64 = 5 * S;
/// The time after which the kernel reports the end of a process.
const KERNEL_NS: u64 = 50 * MS;

impl RestartWorld<'_> {
    pub(super) fn tick(&mut self) -> Checked {
        self.push(self.now + TICK_NS, RestartEvent::Tick);
        self.give_lead();
        for view in 0..self.views.len() {
            if self.workers(view).is_empty() {
                continue;
            }
            self.teach(view);
            self.note_complete(view);
            if self.views[view].next.is_none() {
                self.change(view)?;
            }
        }
        self.show();
        self.look();
        self.work()?;
        self.operate()?;
        self.judge()
    }

    /// On one host, gives the lead to a process that restarts, if no such process has it.
    fn give_lead(&mut self) {
        if !self.is_one_host() {
            return;
        }
        let restarting: Vec<(usize, u32)> = (0..self.seats.len())
            .filter_map(|seat| Some((seat, self.seats[seat].running.as_ref()?)))
            .filter(|(_, running)| matches!(running.phase, MemberPhase::Restarting(_)))
            .map(|(seat, running)| (seat, running.process.nonce))
            .collect();
        if restarting.is_empty() || restarting.iter().any(|(_, nonce)| self.lead == Some(*nonce)) {
            return;
        }
        let (seat, nonce) = self.random.pick(&restarting);
        (self.lead, self.lead_since) = (Some(nonce), self.now);
        self.note(|| format!("s{seat}: process {nonce} leads"));
        if let Some(MemberPhase::Restarting(restart)) = self.running(seat, nonce).map(|running| &mut running.phase) {
            restart.set_leads(true);
        }
    }

    /// Returns the seats of the processes that work in a view.
    pub(super) fn workers(&self, view: usize) -> Vec<usize> {
        let works = |seat: &usize| {
            let running = self.seats[*seat].running.as_ref();
            running.and_then(|running| running.live()).is_some_and(|live| live.view == view)
        };
        (0..self.seats.len()).filter(works).collect()
    }

    fn nonce(&self, seat: usize) -> u32 {
        self.seats[seat].running.as_ref().map_or(0, |running| running.process.nonce)
    }

    /// Lets members that can hear others learn of the decision that ends their view.
    fn teach(&mut self, view: usize) {
        let Some(next) = self.views[view].next else { return };
        for seat in self.workers(view) {
            let nonce = self.nonce(seat);
            let learns = self.random.one_in(2);
            let is_known = |running: &super::RunningMember| running.live().is_some_and(|live| live.next.is_some());
            if learns && !self.seats[seat].running.as_ref().is_some_and(is_known) {
                let others = self.views[next].stayed.clone();
                let hears = |other: &u32| *other == nonce || self.passes(self.places[other].0, seat);
                if others.iter().any(hears) {
                    self.after(self.scene.learn_ns, RestartEvent::Learn { seat, nonce, view: next });
                }
            }
        }
    }

    /// Decides the next view, if its members want one and are a quorum.
    fn change(&mut self, view: usize) -> Checked {
        let now = self.now;
        let workers = self.workers(view);
        let sides = workers.iter().map(|first| workers.iter().copied().filter(|other| self.passes(*first, *other)));
        let connected: Vec<usize> = sides.map(Iterator::collect::<Vec<_>>).max_by_key(Vec::len).unwrap_or_default();
        let (nonces, hosts): (BTreeSet<u32>, BTreeSet<u32>) =
            connected.iter().map(|seat| (self.nonce(*seat), self.seats[*seat].host)).unzip();
        let is_proven = |process: &Process| {
            let (seat, end) = self.places[&process.nonce];
            let by_kernel = end.is_some_and(|end| end + KERNEL_NS <= now) && hosts.contains(&self.seats[seat].host);
            by_kernel || end.is_some() && self.stopped.contains(&process.nonce)
        };
        let group = &self.views[view];
        let is_voter =
            |process: &&Process| group.view.rank_of(process.id).is_some_and(|rank| group.view.is_voter(rank));
        let absent: Vec<Process> =
            group.processes.iter().copied().filter(|process| !nonces.contains(&process.nonce)).collect();
        let dead: Vec<u32> = absent.iter().filter(|process| is_proven(process)).map(|process| process.nonce).collect();
        let voters = group.processes.iter().filter(is_voter).count();
        let heard = group.processes.iter().filter(is_voter).filter(|process| nonces.contains(&process.nonce)).count();
        let dead_voters =
            group.processes.iter().filter(is_voter).filter(|process| dead.contains(&process.nonce)).count();
        let side = Side { heard: nonces.clone(), dead: dead.iter().copied().collect() };
        if let Some(decided) = self.decided(view, &side) {
            return self.decide(view, decided);
        }
        let joiners = self.joiners(view, &connected);
        let grows = self.views[view]
            .view
            .nonvoters
            .iter()
            .any(|rank| nonces.contains(&self.views[view].processes[rank.index()].nonce));
        let silent = &mut self.views[view].silent;
        silent.retain(|nonce, _| absent.iter().any(|process| process.nonce == *nonce));
        absent.iter().for_each(|process| {
            silent.entry(process.nonce).or_insert(now);
        });
        let suspects = silent.values().any(|since| since + SUSPECT_NS <= now);
        let is_begun = !self.views[view].votes.proposed.is_empty();
        if !suspects && dead.is_empty() && joiners.is_empty() && !grows && !is_begun {
            self.views[view].wanted = None;
            return Ok(());
        }
        let wanted = *self.views[view].wanted.get_or_insert(now);
        if 2 * heard + dead_voters <= voters {
            if now >= wanted + BLOCKED_NS {
                self.end_blocked(view);
            }
            return Ok(());
        }
        // Members that have not begun, and are not suspected, are waited for.
        let waits = absent.iter().any(|process| {
            !dead.contains(&process.nonce) && self.views[view].silent[&process.nonce] + SUSPECT_NS > now
        });
        if !waits && !self.is_voting(view, &side) && self.random.one_in(2) {
            let value = self.proposal(view, &nonces, &joiners);
            let lacking = match self.known(view, &side) {
                Some(_) => None,
                None => self.lacking_log(view, &nonces),
            };
            match lacking.filter(|_| !self.is_broken(RestartBroken::GoesOnIncomplete)) {
                None => self.propose(view, &side, value),
                Some(log) if absent.len() == dead.len() => self.end_incomplete(view, log, &nonces),
                // The others may have it, and come back.
                Some(_) if now >= wanted + BLOCKED_NS => self.end_blocked(view),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the processes that ask these members, with the ids of no members.
    fn joiners(&mut self, view: usize, connected: &[usize]) -> Vec<Process> {
        let mut joiners = vec![];
        for seat in 0..self.seats.len() {
            let Some(running) = &self.seats[seat].running else { continue };
            let asks = match running.phase {
                MemberPhase::Restarting(_) => true,
                MemberPhase::Empty => self.is_broken(RestartBroken::JoinsWithoutRecord),
                _ => false,
            };
            let reaches = connected.iter().all(|other| self.passes(*other, seat));
            let is_member = self.views[view].view.rank_of(running.process.id).is_some();
            if asks && running.knows == Some(view) && reaches && !is_member {
                joiners.push(running.process);
            }
        }
        joiners
    }

    /// Returns a view of the members that stay, and joiners.
    fn proposal(&self, view: usize, stays: &BTreeSet<u32>, joiners: &[Process]) -> ProposedView {
        let group = &self.views[view];
        let names: Vec<MemberId> = joiners.iter().map(|process| process.id).collect();
        let mut next: View = group.view.next(|rank| stays.contains(&group.processes[rank.index()].nonce), &names, &[]);
        let mut processes: Vec<Process> =
            group.processes.iter().copied().filter(|process| stays.contains(&process.nonce)).collect();
        let hosts: BTreeSet<u32> =
            processes.iter().map(|process| self.seats[self.places[&process.nonce].0].host).collect();
        processes.extend(joiners);
        let far: BTreeMap<MemberId, bool> = joiners
            .iter()
            .map(|process| (process.id, !hosts.contains(&self.seats[self.places[&process.nonce].0].host)))
            .collect();
        next.set_nonvoters(|id| far.get(&id).copied().unwrap_or(false));
        next.check().expect("a view that follows is sound");
        let ends = match self.scene.before_delivery {
            true => self.epoch_ends(view, stays, &next),
            false => vec![],
        };
        ProposedView { next, processes, stays: stays.clone(), ends }
    }

    fn decide(&mut self, view: usize, value: ProposedView) -> Checked {
        let ProposedView { next, processes, stays, ends } = value;
        self.note(|| format!("view {:x} is decided: {processes:?} without votes {:?}", next.id.0, next.nonvoters));
        let group = &self.views[view];
        let leaves = group.processes.iter().any(|process| !stays.contains(&process.nonce));
        let has_all = |log: &usize| stays.iter().any(|nonce| group.complete.contains(&(*nonce, *log)));
        if let Some(log) = (0..self.scene.logs as usize).filter(|_| leaves).find(|log| !has_all(log)) {
            return COMPLETE
                .broken(format!("view {:?} is decided with no member whose log {log} is complete", next.id));
        }
        self.trim(view, &stays, &ends)?;
        let start = self.histories.iter().map(|history| history.entries().len()).collect();
        self.outcome.counts.view_changes += 1;
        self.views.push(GroupView { stayed: stays, ..GroupView::new(next, processes, start) });
        self.views[view].next = Some(self.views.len() - 1);
        Ok(())
    }

    /// Lets a member take over the decision that ends its view.
    pub(super) fn learn(&mut self, seat: usize, nonce: u32, view: usize) -> Checked {
        let (names, next, start) =
            (self.views[view].names(nonce), self.views[view].view.clone(), self.views[view].start.clone());
        let hosts = self.hosts_of(&self.views[view].processes);
        let before = self.views.iter().position(|group| group.next == Some(view));
        let Some(running) = self.running(seat, nonce) else { return Ok(()) };
        let me = running.process.id;
        let MemberPhase::Live(live) = &mut running.phase else { return Ok(()) };
        if Some(live.view) != before || live.next.is_some() {
            return Ok(());
        }
        if !names {
            self.note(|| format!("s{seat}: process {nonce} was left out"));
            self.stop(seat);
            self.start_after(seat, 200 * MS);
            return Ok(());
        }
        // All messages of the view are delivered before the next one.
        (live.next, live.at) = (Some(view), start);
        let mut record = running.record.clone().expect("a member has a record");
        record.learn(next, hosts, me);
        running.record = Some(record.clone());
        self.write(seat, record, RecordWrite::Next(view));
        if self.begins_early() {
            return self.begin(seat, view);
        }
        Ok(())
    }

    /// Returns a log that no member which continues has complete, although others may have it.
    fn lacking_log(&self, view: usize, stays: &BTreeSet<u32>) -> Option<usize> {
        if self.views[view].processes.iter().all(|process| stays.contains(&process.nonce)) {
            return None;
        }
        let live = |nonce: &u32| self.seats[self.places[nonce].0].running.as_ref().and_then(|running| running.live());
        let has_all = |nonce: &u32, log: usize| live(nonce).is_some_and(|live| live.lacks[log].is_none());
        (0..self.scene.logs as usize).find(|log| !stays.iter().any(|nonce| has_all(nonce, *log)))
    }

    /// Notes which members of a view have complete logs.
    fn note_complete(&mut self, view: usize) {
        for seat in self.workers(view) {
            let running = self.seats[seat].running.as_ref();
            let Some((nonce, live)) = running.and_then(|running| Some((running.process.nonce, running.live()?))) else {
                continue;
            };
            let complete = (0..live.lacks.len()).filter(|log| live.lacks[*log].is_none()).map(|log| (nonce, log));
            self.views[view].complete.extend(complete);
        }
    }

    /// Ends a member that leads, and may not continue without members that have ended.
    fn end_incomplete(&mut self, view: usize, log: usize, stays: &BTreeSet<u32>) {
        let id = self.views[view].view.id.0;
        let Some(leader) = stays.first().copied() else { return };
        let seat = self.places[&leader].0;
        self.note(|| format!("s{seat}: process {leader} ends in view {id:x}: none has a complete log {log}"));
        self.outcome.counts.incomplete += 1;
        self.stop(seat);
        self.start_after(seat, 200 * MS);
    }

    /// Plays an operator that stops the members of a group without a quorum.
    fn end_blocked(&mut self, view: usize) {
        let id = self.views[view].view.id;
        self.note(|| format!("an operator stops the members of view {:x}, which has no quorum", id.0));
        self.outcome.counts.blocked += 1;
        for seat in self.workers(view) {
            self.stop(seat);
            self.start_after(seat, 100 * MS);
        }
    }
}
