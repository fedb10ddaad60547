//! The checks of a run at each tick and at its end.
use super::{DiskLog, MemberPhase, RestartWorld, log_name};
use crate::checkers::{Checked, Invariant};
use crate::restart::plan::S;
use spindle_core::Position;

const LIVENESS: Invariant = Invariant(15, "liveness");
const TOLD: Invariant = Invariant(21, "a waiting process is informed");

/// The time after which a leader knows which members are here.
const KNOWN_NS: u64 = 4 * S;

impl RestartWorld<'_> {
    pub(super) fn judge(&mut self) -> Checked {
        self.judge_waits()?;
        match self.is_calm {
            true => self.rest(),
            false => Ok(()),
        }
    }

    /// A leader that waits names the members that have not come, and no others.
    fn judge_waits(&self) -> Checked {
        let is_old = |since: u64| since + KNOWN_NS <= self.now;
        if self.cut_until > 0 && !is_old(self.cut_until) {
            return Ok(());
        }
        for seat in &self.seats {
            let Some(running) = &seat.running else { continue };
            let MemberPhase::Restarting(restart) = &running.phase else { continue };
            let seat_leads = self.scene.leads >> self.places[&running.process.nonce].0 & 1 == 1;
            let leads = seat_leads || self.lead == Some(running.process.nonce) && is_old(self.lead_since);
            if !leads || !seat.restarts.0 || !is_old(seat.restarts.1) {
                continue;
            }
            let wait = restart.waiting();
            for id in restart.record().view.members.iter().filter(|id| !running.lost.contains(id)) {
                let other = self.seats.iter().find(|other| u64::from(other.disk.number) == id.0);
                let lost_at = self.destroyed.get(&(id.0 as u32)).copied().unwrap_or(0);
                let (restarts, since) = other.map_or((false, lost_at), |other| other.restarts);
                if is_old(since) && wait.missing.contains(id) == restarts {
                    let what = if restarts { "names" } else { "does not name" };
                    return TOLD.broken(format!("process {} {what} member {}: {wait:?}", running.process.nonce, id.0));
                }
            }
        }
        Ok(())
    }

    /// Checks, once the faults are over, that all processes come to work in one view, with equal
    /// logs.
    fn rest(&mut self) -> Checked {
        let lives: Vec<Option<usize>> = self
            .seats
            .iter()
            .map(|seat| {
                let live = seat.running.as_ref()?.live()?;
                (live.lacks.iter().all(Option::is_none) && !live.cuts.contains(&true)).then_some(live.view)
            })
            .collect();
        let view = lives[0].filter(|view| lives.iter().all(|other| other == &Some(*view)));
        let is_last = |view: &usize| {
            let group = &self.views[*view];
            group.next.is_none() && group.processes.len() == self.seats.len() && group.view.nonvoters.is_empty()
        };
        if view.filter(is_last).is_some() {
            self.outcome.united = true;
            return self.compare_logs();
        }
        if self.now < self.ends_at {
            return Ok(());
        }
        let told: Vec<String> = self
            .seats
            .iter()
            .map(|seat| {
                let Some(running) = &seat.running else { return "down".into() };
                match &running.phase {
                    MemberPhase::Restarting(restart) => format!("{:?}", restart.waiting()),
                    MemberPhase::Live(live) => {
                        let last: Vec<_> = seat.disk.logs.iter().map(DiskLog::last).collect();
                        format!("in view {:?}, lacks {:?} after {last:?}", self.views[live.view].view.id, live.lacks)
                    }
                    other => format!("{other:?}"),
                }
            })
            .collect();
        LIVENESS.broken(format!("faults are over for long, and not all are in one view: {told:?}"))
    }

    /// Checks that all logs have the same messages. A log that is not complete may have older ones that no other
    /// log has: they were not durable, and the group has continued without them.
    fn compare_logs(&self) -> Checked {
        for seat in &self.seats {
            for (log, state) in seat.disk.logs.iter().enumerate() {
                let end = self.histories[log].after(state.last());
                let origins = seat.disk.record.iter().flat_map(|record| &record.origins);
                let since = origins.filter(|origin| origin.name == log_name(log)).map(|origin| origin.since).max();
                let is_told = |(position, _): &&(Position, u64)| {
                    since <= Some(position.epoch) || self.histories[log].index(*position).is_some()
                };
                let records: Vec<(Position, u64)> = state.records.iter().filter(is_told).copied().collect();
                self.histories[log].compare(&records, end, |entry| state.skips(entry.position))?;
            }
        }
        Ok(())
    }
}
