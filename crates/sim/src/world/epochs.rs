//! Subgroups that changes of the view do not touch. They stay on the stage with which their epoch
//! began.
use super::World;
use crate::checkers::Checked;
use crate::seat::Seat;
use spindle_core::{Decision, SubgroupId};
use std::rc::Rc;

impl World<'_> {
    /// Returns the home of a subgroup of the view of `seat` for that member: its seat on the stage
    /// with which the epoch began, if it was there.
    pub(super) fn home(&self, seat: Seat, id: SubgroupId) -> Option<Seat> {
        let view = &self.stages[seat.stage].view;
        let stage = (view.epoch(id).0 - self.plan.view.id.0) as usize;
        let rank = self.stages[stage].view.rank_of(view.members[seat.rank.index()])?;
        Some(Seat { stage, rank })
    }

    /// Returns the seats of the member at `seat` on earlier stages, with which subgroups of its
    /// view began.
    pub(super) fn older_seats(&self, seat: Seat) -> Vec<Seat> {
        let id = self.stages[seat.stage].view.members[seat.rank.index()];
        let older =
            (0..seat.stage).filter_map(|stage| Some(Seat { stage, rank: self.stages[stage].view.rank_of(id)? }));
        let engine = &self.stages[seat.stage].member(seat.rank).engine;
        older.filter(|older| engine.needs(self.stages[older.stage].view.id)).collect()
    }

    /// Exchanges state between the engines of a process.
    pub(super) fn tend(&mut self, process: usize) -> Checked {
        let Some(newest) = self.processes[process].seat.filter(|_| self.is_member(process)) else { return Ok(()) };
        for older in self.older_seats(newest) {
            self.allow_logs(process);
            let [old, new] = self.stages.get_disjoint_mut([older.stage, newest.stage]).expect("two stages");
            let rows = &mut old.tables[older.rank.index()];
            let there = &mut old.members[older.rank.index()].as_mut().expect("it has installed the view").engine;
            let here = &mut new.members[newest.rank.index()].as_mut().expect("it has installed the view").engine;
            self.told.delivered.clear();
            self.told.count = Rc::clone(&new.count);
            rows.begin_poll();
            let worked = here.tend(there, rows, &mut self.told);
            rows.end_poll();
            let actions = std::mem::take(&mut self.stages[older.stage].tables[older.rank.index()].actions);
            let checked = self.compare(older, &actions);
            self.stages[older.stage].tables[older.rank.index()].actions = actions;
            checked?;
            if !self.is_member(process) {
                self.told.forget();
                return Ok(());
            }
            self.pass_on(older);
            for seat in [older, newest] {
                if worked || self.stages[seat.stage].tables[seat.rank.index()].missed.get() {
                    self.wake(seat);
                }
            }
        }
        Ok(())
    }

    /// Returns the decision that ended the epoch of a subgroup with the home `seat`, if that
    /// process knows it.
    pub(super) fn epoch_end(&self, seat: Seat, id: SubgroupId) -> Option<&Decision> {
        let member = self.stages[seat.stage].view.members[seat.rank.index()];
        for stage in &self.stages[seat.stage..] {
            let rank = stage.view.rank_of(member)?;
            let decision = stage.members[rank.index()].as_ref()?.engine.decision()?;
            if stage.view.touched_by(&decision.next)[id.index()] {
                return Some(decision);
            }
        }
        None
    }
}
