//! Faults, their end, and the operator.
use super::{MemberPhase, RestartDisk, RestartEvent, RestartFault, RestartWorld};
use crate::checkers::Checked;
use crate::restart::plan::{MS, S};
use spindle_core::control::RestartRecord;
use spindle_core::{MemberId, Rank, View};

/// The time in which everything must come to rest after the last fault.
const CALM_FOR_NS: u64 = 90 * S;

impl RestartWorld<'_> {
    pub(super) fn go_wrong(&mut self, fault: &RestartFault) {
        self.note(|| format!("{fault:?}"));
        match *fault {
            RestartFault::Crash { seat, down_ns, wipe } => {
                let seat = seat as usize;
                match wipe {
                    true => {
                        self.crash(seat, down_ns);
                        self.wipe(seat);
                    }
                    false => self.end(seat, down_ns),
                }
            }
            RestartFault::CrashMany { seats, within_ns, down_ns } => {
                for seat in (0..self.seats.len()).filter(|seat| seats >> seat & 1 == 1) {
                    if let Some(running) = &self.seats[seat].running {
                        let nonce = running.process.nonce;
                        let down_ns = self.random.range(MS, down_ns.max(MS));
                        self.after(within_ns, RestartEvent::Crash { seat, nonce, down_ns });
                    }
                }
            }
            RestartFault::Cut { side, ns } => {
                self.cut = (side, self.now + ns);
                self.cut_until = self.cut_until.max(self.now + ns);
            }
        }
    }

    /// Replaces the disk of a seat by an empty one, unless no disk of a member of the newest
    /// view, or of an accepted one, would be left, or none with complete logs.
    fn wipe(&mut self, seat: usize) {
        let others = || self.seats.iter().enumerate().filter(|(other, _)| *other != seat).map(|(_, seat)| &seat.disk);
        let records = |disk: &'_ RestartDisk| {
            disk.record.iter().chain(disk.writes.iter().map(|(record, _)| record)).cloned().collect::<Vec<_>>()
        };
        let known: Vec<RestartRecord> = others().flat_map(records).collect();
        // Others may have heard of what only this disk has.
        let own = records(&self.seats[seat].disk);
        let is_left = |view: &View| {
            let is_in = |disk: &RestartDisk| view.rank_of(MemberId(disk.number.into())).is_some();
            others().any(|disk| disk.record.is_some() && is_in(disk))
        };
        let newest = known.iter().map(|record| &record.view).max_by_key(|view| view.id);
        let own_newest = own.iter().map(|record| &record.view).max_by_key(|view| view.id);
        let mut accepted = known.iter().chain(&own).filter_map(|record| record.accepted.as_ref());
        // A leader may propose a view of the members with complete logs, and hear of the loss too late.
        let is_whole = |disk: &RestartDisk| {
            let is_in = |view: &View| view.rank_of(MemberId(disk.number.into())).is_some();
            let is_newest = |record: &&RestartRecord| newest.map(|view| view.id) == Some(record.view.id);
            let records = records(disk);
            records.iter().filter(is_newest).any(|record| is_in(&record.view) && record.origins.is_empty())
        };
        let has_whole = others().any(is_whole) || !is_whole(&self.seats[seat].disk);
        if !has_whole
            || !newest.is_some_and(is_left)
            || !own_newest.is_none_or(is_left)
            || !accepted.all(|(_, value)| is_left(&value.view))
        {
            return;
        }
        self.outcome.counts.lost_disks += 1;
        self.disks += 1;
        self.destroyed.insert(self.seats[seat].disk.number, self.now);
        self.seats[seat].disk = RestartDisk::new(self.disks, self.scene.logs);
    }

    /// Ends all faults.
    pub(super) fn calm(&mut self) {
        self.note(|| "calm".into());
        self.is_calm = true;
        self.ends_at = self.now + CALM_FOR_NS;
        self.cut.1 = self.now.min(self.cut.1);
        for seat in 0..self.seats.len() {
            if self.seats[seat].running.is_none() {
                self.push(self.now, RestartEvent::Start { seat });
            }
        }
    }

    /// Plays an operator, who reads which members a leader waits for. If their disks are lost, the
    /// operator gives them up. A hasty one gives up members that are down, too, unless they know a
    /// later view.
    pub(super) fn operate(&mut self) -> Checked {
        let waits = (0..self.seats.len()).filter_map(|seat| match &self.seats[seat].running.as_ref()?.phase {
            MemberPhase::Restarting(restart) => Some((restart.waiting(), restart.record().view.clone())),
            _ => None,
        });
        let waits: Vec<_> = waits.collect();
        let is_live =
            self.seats.iter().any(|seat| seat.running.as_ref().is_some_and(|running| running.live().is_some()));
        if waits.iter().any(|(wait, _)| !wait.not_lost.is_empty()) {
            self.note(|| "an operator finds that members that were given up are back".into());
            self.lost.clear();
            return self.restart_all();
        }
        let newest = waits.iter().filter(|(wait, _)| !wait.missing.is_empty()).max_by_key(|(wait, _)| wait.base);
        let Some((wait, base)) = newest.filter(|_| !is_live && self.cut.1 <= self.now) else {
            self.waits = (vec![], self.now);
            return Ok(());
        };
        if self.waits.0 != wait.missing {
            self.waits = (wait.missing.clone(), self.now);
        }
        if self.now < self.waits.1 + self.scene.patience_ns {
            return Ok(());
        }
        let may_give_up = |id: &MemberId| {
            let seat = self.seats.iter().find(|seat| u64::from(seat.disk.number) == id.0);
            let Some(seat) = seat else { return true };
            let knows_no_later = seat.disk.record.as_ref().is_some_and(|record| record.view.id <= wait.base);
            let has_later_write = seat.disk.writes.iter().any(|(record, _)| record.view.id > wait.base);
            self.scene.hasty && !self.is_calm && seat.running.is_none() && knows_no_later && !has_later_write
        };
        let missing = wait.missing.clone();
        // The operator looks at all disks.
        let is_later = |record: &RestartRecord| record.view.id > wait.base;
        let later = |disk: &RestartDisk| {
            disk.record.iter().any(is_later) || disk.writes.iter().any(|(record, _)| is_later(record))
        };
        let knows_later = self.seats.iter().any(|seat| later(&seat.disk));
        // A restart needs a member of the last view.
        if knows_later || missing.len() as u32 == wait.members || !missing.iter().all(may_give_up) {
            return Ok(());
        }
        // Members that could restart on their own may do so when the others do not reach them: an operator
        // removes their disks first.
        let is_intact = |id: &MemberId| self.seats.iter().any(|seat| u64::from(seat.disk.number) == id.0);
        let votes = |rank: &Rank| base.is_voter(*rank);
        let left =
            |rank: &Rank| missing.contains(&base.members[rank.index()]) && is_intact(&base.members[rank.index()]);
        if 2 * base.ranks().filter(votes).filter(left).count() > base.ranks().filter(votes).count() {
            return Ok(());
        }
        self.note(|| format!("an operator gives up {missing:?}"));
        self.given_up.extend(missing.iter().map(|id| id.0 as u32));
        self.lost.extend(missing);
        self.lost_era = wait.base.era();
        self.restart_all()
    }

    fn restart_all(&mut self) -> Checked {
        for seat in 0..self.seats.len() {
            let is_restarting = |running: &super::RunningMember| matches!(running.phase, MemberPhase::Restarting(_));
            if self.seats[seat].running.as_ref().is_some_and(is_restarting) {
                self.stop(seat);
                self.start_after(seat, 100 * MS);
            }
        }
        self.waits = (vec![], self.now);
        Ok(())
    }
}
