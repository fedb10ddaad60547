//! Read barriers: after each poll, every live member asks whether it has delivered everything.
use super::World;
use super::stage::Stage;
use crate::checkers::{Checked, read_barrier};
use spindle_core::Rank;

/// Loads a word as its owner has written it, which is how members that share memory read it.
fn load(stage: &Stage, member: Rank, at: u64) -> u64 {
    stage.tables[member.index()].rows[member.index()].word(at)
}

impl World<'_> {
    /// Checks the read barriers of all members in all their subgroups.
    pub(super) fn check_read_barriers(&mut self) -> Checked {
        let mut passed = 0;
        for process in (0..self.processes.len()).filter(|process| self.is_member(*process)) {
            let Some(seat) = self.processes[process].seat else { continue };
            let on = &self.stages[seat.stage];
            for (id, _) in on.view.subgroups_of(seat.rank) {
                let Some(home) = self.home(seat, id) else { continue };
                let there = &self.stages[home.stage];
                let barrier = there.member(home.rank).engine.read_barrier(id, on.view.members.len());
                let in_place = |stage| move |member, at| load(stage, member, at);
                if !barrier.is_some_and(|barrier| barrier.is_passed(in_place(on), in_place(there))) {
                    continue;
                }
                passed += 1;
                let (delivered, all) = there.total_order.counts(id, home.rank);
                let later = self.stages[seat.stage + 1..].iter().map(|stage| stage.total_order.counts(id, Rank(0)).1);
                read_barrier::passed(on.view.members[seat.rank.index()], id, delivered, all, later.sum())?;
            }
        }
        self.outcome.counts.barriers += passed;
        Ok(())
    }
}
