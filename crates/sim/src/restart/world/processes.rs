//! Processes: their start and end, the orders of a restart, and the writes of records.
use super::{GroupView, MemberPhase, RecordWrite, RestartBroken, RestartEvent, RestartWorld, RunningMember};
use crate::checkers::{Checked, restart_chain};
use crate::restart::plan::{MS, S};
use spindle_core::control::{
    Restart, RestartMessage, RestartOutput, RestartRecord, RestartSetup, RestartTo, RestartView,
};
use spindle_core::{MemberId, Process, Time, View, ViewId};
use std::collections::BTreeSet;
use std::time::Duration;

/// The number of messages of a restart that a process sends in a window of [`WINDOW_NS`] at most.
const SENT_MAX: u64 = 3_000;
const WINDOW_NS: u64 = 10 * S;

impl RestartWorld<'_> {
    pub(super) fn new_process(&mut self, seat: usize) -> Process {
        self.nonces += 1;
        self.places.insert(self.nonces, (seat, None));
        Process { id: MemberId(self.seats[seat].disk.number.into()), nonce: self.nonces }
    }

    pub(super) fn start(&mut self, seat: usize) -> Checked {
        let me = self.new_process(seat);
        let process = RunningMember::new(me, self.now, None, MemberPhase::Empty);
        self.seats[seat].running = Some(process);
        self.seats[seat].restarts = (false, self.now);
        let restarts = self.seats[seat].disk.record.is_some();
        let how = if restarts { "restarts" } else { "has no record" };
        self.note(|| format!("s{seat}: process {} starts as member {}, {how}", me.nonce, me.id.0));
        if restarts {
            self.restart(seat, me);
        }
        self.settle(seat)
    }

    /// Lets a process restart with the record on its disk.
    fn restart(&mut self, seat: usize, me: Process) {
        let disk = &self.seats[seat].disk;
        let Some(record) = &disk.record else { return };
        let record = RestartRecord::decode(&record.encode()).expect("a record is read as it was written");
        let (host, patience) = (self.host_of(seat), Duration::from_nanos(self.scene.go_on_ns));
        let setup = RestartSetup { me, record, logs: disk.states(), lost: self.lost.clone(), host, patience };
        let mut restart = Restart::new(setup, Time(self.now));
        restart.set_leads(self.scene.leads >> seat & 1 == 1);
        self.seats[seat].restarts = (true, self.now);
        if let Some(running) = &mut self.seats[seat].running {
            running.phase = MemberPhase::Restarting(Box::new(restart));
            running.lost = self.lost.clone();
        }
    }

    /// Ends a process. Parts of what it wrote last are on disk.
    pub(super) fn stop(&mut self, seat: usize) {
        let Some(running) = self.seats[seat].running.take() else { return };
        self.outcome.counts.ended_restarting += u64::from(matches!(running.phase, MemberPhase::Restarting(_)));
        self.seats[seat].restarts = (false, self.now);
        self.places.insert(running.process.nonce, (seat, Some(self.now)));
        let disk = &mut self.seats[seat].disk;
        let landed = self.random.below(disk.writes.len() as u64 + 1) as usize;
        if let Some((record, _)) = disk.writes.drain(..).take(landed).next_back() {
            disk.record = Some(record);
        }
        for log in 0..disk.logs.len() {
            let state = &mut self.seats[seat].disk.logs[log];
            let kept = state.synced + self.random.below((state.records.len() - state.synced) as u64 + 1) as usize;
            state.records.truncate(kept);
            let from = state.synced;
            state.synced = kept;
            self.note_synced(seat, log, from);
        }
        self.note(|| format!("s{seat}: process {} ends", running.process.nonce));
        if self.lead == Some(running.process.nonce) {
            self.lead = None;
        }
        for other in 0..self.seats.len() {
            if self.seats[other].host == self.seats[seat].host {
                self.after(20 * MS, RestartEvent::Gone { seat: other, id: running.process.id });
            }
        }
    }

    /// Plans the next start of a seat's process.
    pub(super) fn start_after(&mut self, seat: usize, ns: u64) {
        self.seats[seat].starts_at = Some(self.now + ns);
        self.push(self.now + ns, RestartEvent::Start { seat });
    }

    /// Ends a process: a member sometimes in order, once its disk says so, and otherwise by a crash.
    pub(super) fn end(&mut self, seat: usize, down_ns: u64) {
        let Some(running) = &mut self.seats[seat].running else { return };
        let Some(record) = running.record.as_mut().filter(|_| matches!(running.phase, MemberPhase::Live(_))) else {
            return self.crash(seat, down_ns);
        };
        if !self.random.one_in(3) {
            return self.crash(seat, down_ns);
        }
        record.said_last = true;
        let (record, nonce) = (record.clone(), running.process.nonce);
        match self.is_broken(RestartBroken::EndNoticeUnwritten) {
            true => self.end_in_order(seat, nonce, down_ns),
            false => self.write(seat, record, RecordWrite::EndNotice { down_ns }),
        }
    }

    /// Ends a process that says so.
    fn end_in_order(&mut self, seat: usize, nonce: u32, down_ns: u64) {
        self.outcome.counts.ended_in_order += 1;
        self.stopped.insert(nonce);
        self.stop(seat);
        self.start_after(seat, down_ns);
    }

    pub(super) fn crash(&mut self, seat: usize, down_ns: u64) {
        if self.seats[seat].running.is_none() {
            return;
        }
        self.outcome.counts.crashes += 1;
        self.stop(seat);
        self.start_after(seat, down_ns);
    }

    /// Carries out the orders of a process that restarts, and schedules its next step.
    pub(super) fn settle(&mut self, seat: usize) -> Checked {
        loop {
            let Some(running) = &mut self.seats[seat].running else { return Ok(()) };
            let MemberPhase::Restarting(restart) = &mut running.phase else { return Ok(()) };
            let Some(output) = restart.next_output() else { break };
            let process = running.process;
            match output {
                RestartOutput::Send { to, message } => self.transmit(seat, process, to, message)?,
                RestartOutput::Persist(record) => {
                    if let Some((_, value)) = &record.accepted {
                        self.bases.insert((value.view.id, value.members.clone()), record.view.clone());
                    }
                    self.write(seat, *record, RecordWrite::Restart);
                }
                RestartOutput::CatchUp(logs) => self.level(seat, &logs),
                RestartOutput::Begin(value) => self.begin_restart(seat, *value)?,
            }
        }
        let now = self.now;
        let Some(running) = &mut self.seats[seat].running else { return Ok(()) };
        let MemberPhase::Restarting(restart) = &mut running.phase else { return Ok(()) };
        restart.take_wait();
        let (wake, nonce) = (restart.wake_at().0.max(now + 1), running.process.nonce);
        if wake < running.wakes {
            running.wakes = wake;
            self.push(wake, RestartEvent::Wake { seat, nonce });
        }
        Ok(())
    }

    /// Writes a record. Some writes end with a crash.
    pub(super) fn write(&mut self, seat: usize, record: RestartRecord, why: RecordWrite) {
        let Some(running) = &self.seats[seat].running else { return };
        let nonce = running.process.nonce;
        self.seats[seat].disk.writes.push_back((record, why));
        let took = self.random.below(self.scene.write_ns + 1);
        self.push(self.now + took, RestartEvent::Written { seat, nonce });
        if self.scene.crash_one_in > 0 && !self.is_calm && self.random.one_in(self.scene.crash_one_in) {
            self.outcome.counts.crashes_at_writes += 1;
            let at = (self.now + took + self.random.below(4 * MS)).saturating_sub(2 * MS);
            let all = self.random.one_in(3);
            for other in 0..self.seats.len() {
                let Some(running) = self.seats[other].running.as_ref().filter(|_| all || other == seat) else {
                    continue;
                };
                let nonce = running.process.nonce;
                let down_ns = self.random.range(MS, 3 * S);
                self.push(at, RestartEvent::Crash { seat: other, nonce, down_ns });
            }
        }
    }

    pub(super) fn written(&mut self, seat: usize, nonce: u32) -> Checked {
        if self.running(seat, nonce).is_none() {
            return Ok(());
        }
        let Some((record, why)) = self.seats[seat].disk.writes.pop_front() else { return Ok(()) };
        self.note(|| format!("s{seat}: record of view {:x} is on disk ({why:?})", record.view.id.0));
        self.seats[seat].disk.record = Some(record);
        let now = self.now;
        let running = self.running(seat, nonce).expect("it runs");
        match (why, &mut running.phase) {
            (RecordWrite::Restart, MemberPhase::Restarting(restart)) => {
                restart.persisted(Time(now));
                self.settle(seat)
            }
            (RecordWrite::Ask, MemberPhase::Empty) => {
                let me = running.process;
                self.restart(seat, me);
                self.settle(seat)
            }
            (RecordWrite::Vote { view, ballot }, MemberPhase::Live(live)) if live.view == view => {
                self.voted(view, ballot, nonce);
                Ok(())
            }
            (RecordWrite::EndNotice { down_ns }, MemberPhase::Live(_)) => {
                self.end_in_order(seat, nonce, down_ns);
                Ok(())
            }
            (RecordWrite::Enter(view), MemberPhase::Entering) => self.begin(seat, view),
            (RecordWrite::Next(view), MemberPhase::Live(live)) if live.next == Some(view) => self.begin(seat, view),
            _ => Ok(()),
        }
    }

    fn transmit(&mut self, seat: usize, from: Process, to: RestartTo, message: RestartMessage) -> Checked {
        let now = self.now;
        let running = self.running(seat, from.nonce).expect("it sends");
        if now >= running.sent.0 + WINDOW_NS {
            running.sent = (now, 0);
        }
        running.sent.1 += 1;
        if running.sent.1 > SENT_MAX {
            return super::BOUNDED.broken(format!("process {} sends {SENT_MAX} messages in 10 s", from.nonce));
        }
        restart_chain::is_true(&message, self.seats[seat].disk.record.as_ref())?;
        match &message {
            RestartMessage::Accept { value, ballot, .. } => {
                let is_known = self.bases.contains_key(&(value.1.view.id, value.1.members.clone()));
                self.outcome.counts.proposed_again += u64::from(is_known && !self.has_proposed(*ballot, &value.1));
            }
            RestartMessage::Prepare { .. } => self.outcome.counts.attempts += 1,
            RestartMessage::Behind { .. } => self.outcome.counts.outbid += 1,
            _ => {}
        }
        let message = RestartMessage::decode(&message.encode()).expect("a message is decoded as it was encoded");
        let targets: Vec<Process> = (0..self.seats.len())
            .filter(|other| *other != seat)
            .filter_map(|other| {
                let running = self.seats[other].running.as_ref()?;
                let leads = self.scene.leads >> other & 1 == 1 || self.lead == Some(running.process.nonce);
                let is_to = match to {
                    RestartTo::Leaders => leads,
                    RestartTo::Process(to) => to == running.process,
                };
                is_to.then_some(running.process)
            })
            .collect();
        for to in targets {
            let is_lost = self.scene.loss_one_in > 0 && !self.is_calm && self.random.one_in(self.scene.loss_one_in);
            if !is_lost {
                self.after(self.scene.delay_ns, RestartEvent::Deliver { from, to, message: message.clone() });
            }
        }
        Ok(())
    }

    /// True if members of the base have not come, and are not given up.
    fn is_without_others(&self, base: &View, value: &RestartView) -> bool {
        let restarts = |id: &MemberId| {
            let mut running = self.seats.iter().filter_map(|seat| seat.running.as_ref());
            running.any(|running| running.process.id == *id && matches!(running.phase, MemberPhase::Restarting(_)))
        };
        base.members.iter().any(|id| value.view.rank_of(*id).is_none() && !restarts(id) && !self.lost.contains(id))
    }

    /// True if a value may come from the leader of this ballot: its process is in it.
    fn has_proposed(&self, ballot: spindle_core::control::RestartBallot, value: &RestartView) -> bool {
        let is_it = |process: &Process| process.id == ballot.leader && process.nonce == ballot.nonce;
        value.members.iter().any(is_it)
    }

    pub(super) fn deliver(&mut self, from: Process, to: Process, message: RestartMessage) -> Checked {
        let (sender, seat) = (self.places[&from.nonce].0, self.places[&to.nonce].0);
        let (now, passes) = (self.now, self.passes(sender, seat));
        let Some(running) = self.running(seat, to.nonce).filter(|_| passes) else { return Ok(()) };
        let restart = match &mut running.phase {
            MemberPhase::Restarting(restart) => restart,
            // A process without a record may be the only one that the others can reach.
            MemberPhase::Empty => {
                match message {
                    RestartMessage::Hello { .. } => {
                        let message = RestartMessage::Hello { base: ViewId(0) };
                        self.after(self.scene.delay_ns, RestartEvent::Deliver { from: to, to: from, message });
                    }
                    RestartMessage::Base { view, hosts } => self.take_base(seat, to.nonce, view, hosts),
                    _ => {}
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        restart.hear(from, message.clone(), Time(now));
        self.outcome.counts.messages += 1;
        self.note(|| format!("s{sender} -> s{seat}: {message:?}"));
        self.settle(seat)
    }

    /// Begins the view of a restart.
    fn begin_restart(&mut self, seat: usize, value: RestartView) -> Checked {
        let processes = value.members.clone();
        self.cut_to(seat, &value);
        self.is_level(seat, &value)?;
        let found = self.views.iter().position(|view| view.view == value.view && view.processes == processes);
        let running = self.seats[seat].running.as_mut().expect("it runs");
        let MemberPhase::Restarting(restart) = &running.phase else { return Ok(()) };
        running.record = Some(RestartRecord { said_last: false, ..restart.record().clone() });
        let view = match found {
            Some(view) => view,
            None => {
                let key = (value.view.id, processes.clone());
                let base = self.bases.get(&key).cloned().unwrap_or_else(|| value.view.clone());
                self.outcome.counts.without_others += u64::from(self.is_without_others(&base, &value));
                self.restart_histories(&base, &value)?;
                self.outcome.counts.restarts += 1;
                self.outcome.counts.recoveries += u64::from(value.view.id.era() != base.id.era());
                let start = self.histories.iter().map(|history| history.entries().len()).collect();
                let stayed: BTreeSet<u32> = processes.iter().map(|process| process.nonce).collect();
                let view = value.view.clone();
                let restart = Some((base.id, value));
                self.views.push(GroupView { restart, stayed, ..GroupView::new(view, processes, start) });
                self.views.len() - 1
            }
        };
        self.outcome.counts.restarted += 1;
        self.begin(seat, view)
    }

    /// Begins a view.
    pub(super) fn begin(&mut self, seat: usize, view: usize) -> Checked {
        let group = &self.views[view];
        let running = self.seats[seat].running.as_ref().expect("it runs");
        let (nonce, id) = (running.process.nonce, group.view.id);
        restart_chain::is_recorded(self.seats[seat].disk.record.as_ref(), &group.view)?;
        let working = (0..self.seats.len()).filter(|other| *other != seat && self.passes(*other, seat));
        let working: Vec<_> = working
            .filter_map(|other| Some(self.views[self.seats[other].running.as_ref()?.live()?.view].view.id))
            .collect();
        self.chain.begins(id, &group.processes.clone(), &working)?;
        self.note(|| format!("s{seat}: process {nonce} begins view {:x}", id.0));
        if id.era() >> 16 > self.lost_era >> 16 {
            // The members that the operator has given up count for one recovery.
            self.lost.clear();
        }
        self.views[view].begun.insert(nonce);
        self.enter_logs(seat, view)
    }

    /// True if a driver that does not write first would begin the view at once.
    pub(super) fn begins_early(&self) -> bool {
        self.is_broken(RestartBroken::BegunEarly)
    }
}
