//! Messages that members have to send again without a ring for them: they wait for their subgroup,
//! or are dropped. Also the changes of subgroups.
use super::World;
use super::views::Luggage;
use crate::seat::Seat;

impl World<'_> {
    /// Lets a process ask for one of the plan's changes.
    pub(super) fn ask_for_change(&mut self, process: usize, change: usize) {
        let Some(seat) = self.processes[process].seat.filter(|_| self.is_member(process)) else { return };
        let change = self.plan.changes[change].clone();
        if self.stages[seat.stage].member_mut(seat.rank).engine.propose_change(change) {
            self.outcome.counts.alterations += 1;
            self.outcome.counts.reasons += 1;
            note!(self, "{seat} asks for another subgroup");
            self.wake(seat);
        }
    }

    /// Adds the waiting messages to those that a member takes along from its newest view.
    pub(super) fn join_waiting(&mut self, process: usize, mut luggage: Vec<Luggage>) -> Vec<Luggage> {
        for older in std::mem::take(&mut self.processes[process].waiting) {
            match luggage.iter_mut().find(|newer| newer.subgroup == older.subgroup) {
                Some(newer) => {
                    newer.sources.extend(older.sources);
                    newer.closed |= older.closed;
                }
                None => luggage.push(older),
            }
        }
        luggage
    }

    /// Stores messages for which the member at `seat` has no ring in its new view. Messages for
    /// subgroups with too few members wait; the others are dropped.
    pub(super) fn put_by(&mut self, seat: Seat, luggage: Vec<Luggage>) {
        let process = self.process_of(seat);
        let specs = &self.stages[seat.stage].view.subgroups;
        let is_waiting = |luggage: &Luggage| specs[luggage.subgroup.index()].keeps(seat.rank);
        let (waiting, given_up): (Vec<Luggage>, Vec<Luggage>) = luggage.into_iter().partition(is_waiting);
        self.outcome.counts.waits += waiting.len() as u64;
        for Luggage { subgroup, .. } in &given_up {
            note!(self, "{seat} s{subgroup} gives up what it has not sent again");
        }
        self.processes[process].waiting = waiting;
    }
}
