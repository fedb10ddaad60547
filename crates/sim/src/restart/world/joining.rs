//! Processes that find the group: they hear of it from a member, ask to join, and enter a view that
//! a member shows.
use super::{LackedRecords, LiveMember, MemberPhase, RecordWrite, RestartBroken, RestartEvent, RestartWorld};
use crate::checkers::Checked;
use crate::restart::plan::MS;
use spindle_core::control::{RestartBallot, RestartMessage, RestartRecord};
use spindle_core::{Process, Time, View};

/// How long a process that ends itself is down.
const AGAIN_NS: u64 = 100 * MS;

impl RestartWorld<'_> {
    /// Lets the processes that are in no view look for members.
    pub(super) fn look(&mut self) {
        for seat in 0..self.seats.len() {
            let Some(running) = &self.seats[seat].running else { continue };
            let nonce = running.process.nonce;
            let looks = matches!(running.phase, MemberPhase::Restarting(_) | MemberPhase::Empty);
            if !looks || !self.random.one_in(6) {
                continue;
            }
            let members: Vec<Process> = (0..self.seats.len())
                .filter(|other| self.passes(*other, seat))
                .filter_map(|other| self.seats[other].running.as_ref().filter(|running| running.live().is_some()))
                .map(|running| running.process)
                .collect();
            if !members.is_empty() {
                let member = self.random.pick(&members);
                self.after(2 * self.scene.delay_ns, RestartEvent::Answer { seat, nonce, member });
            }
        }
    }

    /// Handles the answer of a member: a restart that has begun with this process, or a group to join.
    pub(super) fn answered(&mut self, seat: usize, nonce: u32, member: Process) -> Checked {
        let (now, other) = (self.now, self.places[&member.nonce].0);
        let Some(view) = self.running(other, member.nonce).and_then(|running| Some(running.live()?.view)) else {
            return Ok(());
        };
        let group = &self.views[view];
        let (id, names, restart, shown) =
            (group.view.id, group.names(nonce), group.restart.clone(), group.view.clone());
        let hosts = self.hosts_of(&group.processes);
        let Some(running) = self.running(seat, nonce) else { return Ok(()) };
        match (&mut running.phase, restart) {
            (MemberPhase::Restarting(restart), Some((base, value))) if names => {
                restart.hear(member, RestartMessage::Decided { base, value: Box::new(value) }, Time(now));
                self.outcome.counts.learned += 1;
                self.settle(seat)?;
                let Some(running) = self.running(seat, nonce) else { return Ok(()) };
                if let MemberPhase::Restarting(restart) = &running.phase
                    && restart.record().view.id == id
                    && restart.record().promised != RestartBallot::default()
                {
                    self.refuse(seat, nonce);
                }
            }
            (MemberPhase::Restarting(_), _) if !names => running.knows = Some(view),
            (MemberPhase::Empty, _) => {
                running.knows = Some(view);
                self.take_base(seat, nonce, shown, hosts);
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets a process without a record write a view of the group. It is not in that view, since its
    /// disk is new. After that it restarts like the others, so that a later view which has it does
    /// not wait for it.
    pub(super) fn take_base(&mut self, seat: usize, nonce: u32, view: View, hosts: Vec<u128>) {
        let skips = self.is_broken(RestartBroken::JoinsWithoutRecord);
        let Some(running) = self.running(seat, nonce).filter(|_| !skips) else { return };
        let me = running.process.id;
        if matches!(running.phase, MemberPhase::Empty)
            && view.rank_of(me).is_none()
            && self.seats[seat].disk.writes.is_empty()
        {
            self.write(seat, RestartRecord::first(view, hosts, me, false), RecordWrite::Ask);
        }
    }

    /// Ends a process that is in a view which it will never begin. It says so, unless it has voted in a
    /// restart as a process that has not.
    fn refuse(&mut self, seat: usize, nonce: u32) {
        let votes_on_disk = self.scene.votes_on_disk;
        let says_so = match self.running(seat, nonce).map(|running| &running.phase) {
            // Its promise counts only if all members have made one.
            _ if !votes_on_disk => true,
            Some(MemberPhase::Restarting(restart)) => {
                restart.record().promised == RestartBallot::default() || restart.record().said_last
            }
            _ => true,
        };
        self.outcome.counts.refused += 1;
        self.note(|| format!("s{seat}: process {nonce} has voted on the next view, and ends"));
        if says_so {
            self.stopped.insert(nonce);
        }
        self.stop(seat);
        // On its disk before it says so.
        if let Some(record) = self.seats[seat].disk.record.as_mut().filter(|_| says_so) {
            record.said_last = true;
        }
        self.start_after(seat, AGAIN_NS);
    }

    /// Lets members that have a view on disk show it to those that join with it.
    pub(super) fn show(&mut self) {
        for shower in 0..self.seats.len() {
            let Some(live) = self.seats[shower].running.as_ref().and_then(|running| running.live()) else { continue };
            let view = match live.next {
                Some(next) if self.is_broken(RestartBroken::ShownEarly) => next,
                _ => live.view,
            };
            let nonce = self.seats[shower].running.as_ref().map_or(0, |running| running.process.nonce);
            let group = &self.views[view];
            if !group.stayed.contains(&nonce) {
                continue;
            }
            let open: Vec<Process> =
                group.processes.iter().copied().filter(|process| !group.begun.contains(&process.nonce)).collect();
            for process in open {
                let seat = self.places[&process.nonce].0;
                if self.passes(shower, seat) && self.random.one_in(3) {
                    self.after(self.scene.delay_ns, RestartEvent::Show { seat, nonce: process.nonce, view });
                }
            }
        }
    }

    /// Lets a process enter a view that a member has shown.
    pub(super) fn shown(&mut self, seat: usize, nonce: u32, view: usize) -> Checked {
        let (id, shown) = (self.views[view].view.id, self.views[view].view.clone());
        let hosts = self.hosts_of(&self.views[view].processes);
        if self.views[view].stayed.contains(&nonce) {
            return Ok(());
        }
        let Some(running) = self.running(seat, nonce) else { return Ok(()) };
        let me = running.process.id;
        let mut record = match &running.phase {
            MemberPhase::Restarting(restart) => {
                let record = restart.record();
                let has_voted = record.view.id == id && record.promised != RestartBallot::default();
                if record.view.id > id || has_voted {
                    self.refuse(seat, nonce);
                    return Ok(());
                }
                record.clone()
            }
            MemberPhase::Empty => RestartRecord::first(shown.clone(), hosts.clone(), me, false),
            _ => return Ok(()),
        };
        if record.view.id < id {
            record.enter(shown, hosts, me);
        }
        record.said_last = false;
        running.record = Some(record.clone());
        running.phase = MemberPhase::Entering;
        self.seats[seat].restarts = (false, self.now);
        self.outcome.counts.joins += 1;
        self.write(seat, record, RecordWrite::Enter(view));
        if self.begins_early() {
            return self.begin(seat, view);
        }
        Ok(())
    }

    /// Puts a process that begins a view to work there. Its logs lose what the group does not have,
    /// and catch up.
    pub(super) fn enter_logs(&mut self, seat: usize, view: usize) -> Checked {
        let (now, logs) = (self.now, self.scene.logs as usize);
        let start = self.views[view].start.clone();
        self.seats[seat].restarts = (false, now);
        let running = self.seats[seat].running.as_mut().expect("it begins a view");
        if let MemberPhase::Live(live) = &mut running.phase {
            (live.view, live.next) = (view, None);
            self.begin_cuts(seat);
            return Ok(());
        }
        let (lacks, cuts) = (vec![None; logs], vec![false; logs]);
        let live = LiveMember { view, next: None, at: start.clone(), floor: start.clone(), lacks, cuts };
        running.phase = MemberPhase::Live(live);
        let nonce = running.process.nonce;
        let joins = !self.views[view].stayed.contains(&nonce);
        if !joins {
            // INV-LEVEL: all logs of a restart end alike before it.
            (0..logs).for_each(|log| self.note_holes(seat, log));
            return Ok(());
        }
        for (log, end) in start.into_iter().enumerate() {
            if !self.is_broken(RestartBroken::TailKept) {
                self.cut_log(seat, log);
            }
            let lacks = LackedRecords { end, since: now, is_copying: false };
            if let Some(MemberPhase::Live(live)) = self.running(seat, nonce).map(|running| &mut running.phase) {
                live.lacks[log] = Some(lacks);
            }
            self.catch_up(seat, nonce, log)?;
        }
        Ok(())
    }
}
