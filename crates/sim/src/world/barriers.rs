//! Read barriers: after each poll, every live member asks whether it has delivered everything.
use super::World;
use super::stage::Stage;
use crate::checkers::{Checked, read_barrier};
use spindle_core::{Lookup, Rank, Ring, Rows};

/// The rows of a view as their owners have written them, which is how members that share memory read
/// them.
struct InPlace<'a>(&'a Stage);

impl Rows for InPlace<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.0.tables[member.index()].rows[member.index()].word(at)
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.0.tables[member.index()].rows[member.index()].slice(at, len)
    }

    type Frames<'a>
        = Lookup<'a, Self>
    where
        Self: 'a;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Self> {
        Lookup::new(self, member, ring)
    }
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
                if !barrier.is_some_and(|barrier| barrier.is_passed(&InPlace(on), &InPlace(there))) {
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
