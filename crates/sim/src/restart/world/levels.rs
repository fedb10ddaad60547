//! Logs that get records from others before a restart is decided, so that all end alike.
use super::{MemberPhase, RestartBroken, RestartEvent, RestartSeat, RestartWorld, log_name};
use crate::checkers::{Checked, Invariant};
use spindle_core::control::{LongestLog, RestartView};
use spindle_core::{MemberId, Position, Time};

const LEVEL: Invariant = Invariant(27, "logs of a restart end alike");

impl RestartWorld<'_> {
    /// Lets the logs of a process that restarts get the records that they lack, from processes that
    /// have them and that it reaches.
    pub(super) fn level(&mut self, seat: usize, logs: &[LongestLog]) {
        for (log, longest) in (0..self.scene.logs as usize)
            .filter_map(|log| Some((log, logs.iter().find(|longest| longest.state.name == log_name(log))?)))
        {
            let Some(running) = &self.seats[seat].running else { return };
            let nonce = running.process.nonce;
            let state = &self.seats[seat].disk.logs[log];
            if running.levels.contains(&log) || state.last() == longest.state.last {
                continue;
            }
            let is_source = |other: &usize| {
                let running = self.seats[*other].running.as_ref();
                let runs = running.is_some_and(|running| longest.holders.contains(&running.process));
                *other != seat && runs && self.passes(*other, seat)
            };
            let Some(source) = (0..self.seats.len()).find(is_source) else { continue };
            let theirs = self.seats[source].disk.logs[log].clone();
            // Records that the other one does not have are not the group's, if its log reaches back far
            // enough.
            let record = self.seats[source].disk.record.as_ref();
            let is_whole = theirs.holes.is_empty()
                && record.is_some_and(|record| record.origins.iter().all(|origin| origin.name != log_name(log)));
            let begins = theirs.records.first().map(|(position, _)| *position).filter(|_| !is_whole);
            let own = &self.seats[seat].disk.logs[log];
            let is_theirs = |position| Some(position) < begins || own.last() < begins || theirs.has(position);
            let kept = own.records.iter().take_while(|(position, _)| is_theirs(*position)).count();
            if kept < own.records.len() && !self.cut_foreign(seat, log, kept) {
                continue;
            }
            let own = &mut self.seats[seat].disk.logs[log];
            let last = own.last();
            // The other log begins later.
            let skipped = self.histories[log].entries().iter().map(|entry| entry.position);
            let skipped = skipped.take_while(|position| begins.is_some_and(|begins| *position < begins)).last();
            let cut_off = skipped.is_some_and(|skipped| Some(skipped) > last);
            if !cut_off {
                own.holes.extend(theirs.holes.iter().filter(|(_, until)| Some(*until) > last));
                own.records.extend(theirs.records.iter().filter(|(position, _)| Some(*position) > last));
            }
            self.outcome.counts.levelled += 1;
            self.note(|| format!("s{seat}: log {log} gets the records after {last:?} from s{source}"));
            let running = self.seats[seat].running.as_mut().expect("it runs");
            running.levels.insert(log);
            self.after(self.scene.sync_ns, RestartEvent::Levelled { seat, nonce, log, cut_off });
            if self.is_broken(RestartBroken::ReportedEarly) {
                self.report(seat, &[]);
            }
        }
    }

    /// Removes the records of a log behind the first `kept` ones, if the restart allows it.
    fn cut_foreign(&mut self, seat: usize, log: usize, kept: usize) -> bool {
        let now = Time(self.now);
        let RestartSeat { disk, running, .. } = &mut self.seats[seat];
        let Some(MemberPhase::Restarting(restart)) = running.as_mut().map(|running| &mut running.phase) else {
            return false;
        };
        let state = &mut disk.logs[log];
        let last = state.records[..kept].last().map(|(position, _)| *position);
        let may = restart.begin_cut(&log_name(log), last, now);
        if may {
            state.records.truncate(kept);
            state.synced = state.synced.min(kept);
        }
        self.note(|| format!("s{seat}: log {log} loses the records after {last:?}: {may}"));
        may
    }

    /// Notes that the records are on disk.
    pub(super) fn levelled(&mut self, seat: usize, nonce: u32, log: usize, cut_off: bool) -> Checked {
        let Some(running) = self.running(seat, nonce) else { return Ok(()) };
        running.levels.remove(&log);
        let state = &mut self.seats[seat].disk.logs[log];
        let from = state.synced;
        state.synced = state.records.len();
        self.note_synced(seat, log, from);
        let cut_off = cut_off.then(|| log_name(log));
        self.report(seat, cut_off.as_slice());
        self.settle(seat)
    }

    /// Reports the logs on disk to the restart.
    fn report(&mut self, seat: usize, cut_off: &[String]) {
        let now = Time(self.now);
        let early = self.is_broken(RestartBroken::ReportedEarly);
        let mut states = self.seats[seat].disk.states();
        let Some(running) = &mut self.seats[seat].running else { return };
        let MemberPhase::Restarting(restart) = &mut running.phase else { return };
        for log in running.levels.iter().filter(|_| !early) {
            let before = restart.logs().iter().find(|state| state.name == log_name(*log));
            states.retain(|state| state.name != log_name(*log));
            states.extend(before.cloned());
        }
        states.sort_by(|a, b| a.name.cmp(&b.name));
        restart.set_logs(states, cut_off, now);
    }

    /// Notes the older records that a log lacks which was not complete before a restart. If another log
    /// were complete, the member would not be in the view.
    pub(super) fn note_holes(&mut self, seat: usize, log: usize) {
        let record = self.seats[seat].running.as_ref().and_then(|running| running.record.as_ref());
        if !record.is_some_and(|record| record.origins.iter().any(|origin| origin.name == log_name(log))) {
            return;
        }
        let state = &mut self.seats[seat].disk.logs[log];
        let mut before = None;
        for entry in self.histories[log].entries() {
            if !entry.gone && !state.has(entry.position) && !state.skips(entry.position) {
                state.holes.push((before, entry.position));
            }
            before = Some(entry.position);
        }
    }

    /// Removes records that came after a promise, from a process that is not in the view.
    pub(super) fn cut_to(&mut self, seat: usize, value: &RestartView) {
        for (log, state) in self.seats[seat].disk.logs.iter_mut().enumerate() {
            if let Some(decided) = value.logs.iter().find(|decided| decided.name == log_name(log)) {
                let kept = state.records.iter().take_while(|(position, _)| Some(*position) <= decided.last).count();
                state.records.truncate(kept);
                state.synced = state.synced.min(kept);
            }
        }
    }

    /// Checks that the logs of a process end as the restart that it begins says.
    pub(super) fn is_level(&self, seat: usize, value: &RestartView) -> Checked {
        let disk = &self.seats[seat].disk;
        for log in &value.logs {
            let number = (0..disk.logs.len()).find(|number| log_name(*number) == log.name);
            let state = number.map(|number| &disk.logs[number]);
            let last: Option<Position> =
                state.and_then(|state| state.records[..state.synced].last()).map(|(position, _)| *position);
            if last != log.last {
                let id = MemberId(disk.number.into());
                return LEVEL.broken(format!(
                    "member {} begins view {:?}, its {} ends with {last:?} on disk, and the view with {:?}",
                    id.0, value.view.id, log.name, log.last
                ));
            }
        }
        Ok(())
    }
}
