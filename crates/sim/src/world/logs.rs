//! The logs of processes, in logged subgroups: what engines hand over, and disks that write it at
//! their own pace. A disk loses what it has not written when its process crashes.
use super::{Event, World};
use crate::checkers::durable_prefix::{DurablePrefix, LoggedRecord};
use crate::checkers::{Checked, accepted_on_disk, clock_bound, deliver_durable};
use crate::random::mix;
use crate::seat::Seat;
use spindle_core::view::Durability;
use spindle_core::{Ballot, Position, Rank, SubgroupId, View};
use std::collections::{BTreeMap, BTreeSet};

/// The longest time of a write and a sync of a slow disk, in ns.
const SLOW_NS: u64 = 3_000_000;
/// As above, of a fast one.
const FAST_NS: u64 = 60_000;

/// A record on its way from an engine to a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) subgroup: SubgroupId,
    pub(super) position: Position,
    pub(super) entry: LoggedRecord,
    /// Stores and posts of the poll before it.
    pub(super) after: u64,
}

/// The log of one process in one subgroup.
#[derive(Default)]
struct MemberLogState {
    /// The position up to which the disk writes.
    writing: Option<Position>,
    /// The position before which everything counted as durable here last.
    durable: Option<Position>,
    /// The last message that the process has delivered where only durable ones are.
    delivered: Option<Position>,
}

/// All logs of a run.
#[derive(Default)]
pub(super) struct Logs {
    lists: BTreeMap<SubgroupId, DurablePrefix>,
    logs: BTreeMap<(usize, SubgroupId), MemberLogState>,
    /// The acceptances on the disks of members.
    accepted: BTreeSet<(Seat, Ballot)>,
    /// The members that write their end notices, and whether those are on disk.
    end_notices: BTreeMap<Seat, bool>,
}

impl World<'_> {
    /// Sets how many records the logs of a process have room for.
    pub(super) fn allow_logs(&mut self, process: usize) {
        self.told.log_room.clear();
        self.told.logged.clear();
        self.told.cuts.clear();
        if !self.plan.faults.logs {
            return;
        }
        let queue = 1 + mix(self.plan.seed ^ mix(process as u64)) % 24;
        let id = self.plan.members[process].id;
        for subgroup in (0..self.plan.view.subgroups.len() as u32).map(SubgroupId) {
            let waiting = self.logs.lists.get(&subgroup).map_or(0, |list| list.waiting(id));
            self.told.log_room.push(queue.saturating_sub(waiting as u64));
        }
    }

    /// Appends to the logs of a process what its engine at `seat` handed over in the first
    /// `carried` actions of a poll, and checks what it counts as durable.
    pub(super) fn append(&mut self, seat: Seat, carried: u64) -> Checked {
        if !self.plan.faults.logs {
            return Ok(());
        }
        let process = self.process_of(seat);
        let me = self.plan.members[process].id;
        let logged = std::mem::take(&mut self.told.logged);
        for &Logged { subgroup, position, entry, .. } in logged.iter().filter(|logged| logged.after <= carried) {
            note!(self, "{seat} s{subgroup} logs {}.{}", position.epoch, position.sequence);
            // The newest view of the process may have raised the clock.
            let newest = self.processes[process].seat.unwrap_or(seat);
            let view = &self.stages[newest.stage].view;
            let floor = view.subgroups[subgroup.index()].clock;
            DurablePrefix::is_later(entry, (view.epoch(subgroup) == position.epoch).then_some(floor))?;
            clock_bound::recorded(entry.clock, self.now + (1 << 60), floor, self.outcome.counts.records)?;
            self.logs.lists.entry(subgroup).or_default().appended(me, position, entry)?;
            self.outcome.counts.records += 1;
            self.hash.add(entry.clock ^ entry.digest);
            self.write_log(process, subgroup);
        }
        for (subgroup, from) in std::mem::take(&mut self.told.cuts) {
            note!(self, "{seat} s{subgroup} cuts its log at {}.{}", from.epoch, from.sequence);
            let delivered = self.logs.logs.iter().filter(|((_, of), _)| *of == subgroup);
            let delivered = delivered.filter_map(|(_, log)| log.delivered.filter(|at| at.epoch == from.epoch)).max();
            deliver_durable::cut(me, from, delivered)?;
            self.logs.lists.entry(subgroup).or_default().cut(me, from);
            self.outcome.counts.log_cuts += 1;
        }
        self.check_durable(seat)
    }

    /// Notes where the decision that `seat` knows ends the epochs of subgroups in which only durable messages
    /// are delivered.
    pub(super) fn note_epoch_ends(&mut self, seat: Seat) {
        let stage = &self.stages[seat.stage];
        let Some(decision) = stage.member(seat.rank).engine.decision() else { return };
        let touched = stage.view.touched_by(&decision.next);
        for (id, spec) in (0..).map(SubgroupId).zip(&stage.view.subgroups) {
            if !touched[id.index()] || !spec.durability.delivers_durable() {
                continue;
            }
            let last = |(sender, trim): (&Rank, &u64)| spec.sequence(*sender, trim.checked_sub(1)?);
            let ends = spec.senders.iter().zip(&decision.trims[id.index()]).filter_map(last);
            let sequence = ends.max().map_or(0, |last| last + 1);
            let end = Position { epoch: stage.view.epoch(id), sequence };
            self.logs.lists.entry(id).or_default().ends_before(end);
        }
    }

    /// Checks a delivery where only durable messages are delivered: the disks of all members of the epoch
    /// have it, or, after the end of the epoch, those of the members that go on.
    pub(super) fn check_delivered_durable(&mut self, seat: Seat, id: SubgroupId, sender: Rank, round: u64) -> Checked {
        let process = self.process_of(seat);
        let view = &self.stages[seat.stage].view;
        let spec = &view.subgroups[id.index()];
        let Durability::LoggedBeforeDelivery { copies } = spec.durability else { return Ok(()) };
        let sequence = spec.sequence(sender, round).expect("a sender of the subgroup");
        let (by, position) = (view.members[seat.rank.index()], Position { epoch: view.id, sequence });
        let goes_on = self.epoch_end(seat, id).map(|decision| &decision.next.members);
        if goes_on.is_none() {
            deliver_durable::enough(by, position, spec.members.len(), copies)?;
        }
        let holders = spec.members.iter().map(|rank| view.members[rank.index()]);
        for holder in holders.filter(|holder| goes_on.is_none_or(|members| members.contains(holder))) {
            let on_disk = self.logs.lists.get(&id).and_then(|list| list.on_disk(holder));
            deliver_durable::delivered(by, position, holder, on_disk)?;
        }
        let log = self.logs.logs.entry((process, id)).or_default();
        log.delivered = log.delivered.max(Some(position));
        Ok(())
    }

    /// Begins to write what the engine at `seat` has accepted, if its vote counts on disk only.
    pub(super) fn write_acceptance(&mut self, seat: Seat) {
        let process = self.process_of(seat);
        let accepted = self.stages[seat.stage].member_mut(seat.rank).engine.take_acceptance();
        let Some((ballot, next)) = accepted.filter(|_| self.processes[process].life.is_alive()) else { return };
        note!(self, "{seat} accepts view {} by ballot {}.{}", next.id, ballot.leader, ballot.round);
        let at = self.now + 1 + self.write_ns(process, u64::from(ballot.round));
        self.push(at, Event::Accepted(seat, ballot));
    }

    /// How long a disk takes for the next write, in ns.
    fn write_ns(&self, process: usize, what: u64) -> u64 {
        let is_slow = mix(self.plan.seed ^ 0xd15c ^ process as u64).is_multiple_of(3);
        let longest = if is_slow { SLOW_NS } else { FAST_NS };
        mix(self.plan.seed ^ mix(self.now ^ process as u64 ^ what)) % longest
    }

    /// The acceptance of a ballot is on the disk of the process at `seat`.
    pub(super) fn accepted(&mut self, seat: Seat, ballot: Ballot) {
        self.logs.accepted.insert((seat, ballot));
        self.outcome.counts.acceptances += 1;
        if let Some(member) = self.stages[seat.stage].members[seat.rank.index()].as_mut() {
            member.engine.note_persisted_acceptance(ballot);
            self.wake(seat);
        }
    }

    /// Begins to write that the engine at `seat` writes nothing more, if it waits for that.
    pub(super) fn write_end_notice(&mut self, seat: Seat) {
        let process = self.process_of(seat);
        let is_wanted = self.stages[seat.stage].member_mut(seat.rank).engine.wants_end_notice();
        if !is_wanted || self.logs.end_notices.contains_key(&seat) || !self.processes[process].life.is_alive() {
            return;
        }
        self.logs.end_notices.insert(seat, false);
        let at = self.now + 1 + self.write_ns(process, u64::MAX);
        self.push(at, Event::EndNotice(seat));
    }

    /// The end notice of the process at `seat` is on its disk.
    pub(super) fn said_last(&mut self, seat: Seat) {
        self.logs.end_notices.insert(seat, true);
        if let Some(member) = self.stages[seat.stage].members[seat.rank.index()].as_mut() {
            member.engine.allow_end_notice();
            self.wake(seat);
        }
    }

    /// Checks that a member that has left has its end notice on disk.
    pub(super) fn check_end_notice_is_on_disk(&self, seat: Seat) -> Checked {
        let stage = &self.stages[seat.stage];
        if !stage.view.subgroups.iter().any(|spec| spec.is_logged()) {
            return Ok(());
        }
        accepted_on_disk::has_said_last(
            stage.view.members[seat.rank.index()],
            self.logs.end_notices.get(&seat) == Some(&true),
        )
    }

    /// Checks that the decision which the engine at `seat` knows is on enough disks.
    pub(super) fn check_decision_on_disk(&self, seat: Seat) -> Checked {
        let stage = &self.stages[seat.stage];
        let Some(decision) = stage.member(seat.rank).engine.decision() else { return Ok(()) };
        if !stage.view.subgroups.iter().any(|spec| spec.is_logged()) {
            return Ok(());
        }
        let voters: Vec<Seat> =
            stage.view.ranks().filter(|rank| stage.view.is_voter(*rank)).map(|rank| Seat { rank, ..seat }).collect();
        let has_it = |voter: &&Seat| self.logs.accepted.contains(&(**voter, decision.ballot));
        let has_ended = |voter: &&Seat| !self.processes[self.process_of(**voter)].life.is_alive();
        let with = voters.iter().filter(has_it).count();
        let dead = voters.iter().filter(|voter| !has_it(voter) && has_ended(voter)).count();
        accepted_on_disk::is_quorum(decision.ballot, with, dead, voters.len())
    }

    /// Begins to write what waits, if the disk is idle.
    fn write_log(&mut self, process: usize, subgroup: SubgroupId) {
        let me = self.plan.members[process].id;
        let Some(list) = self.logs.lists.get(&subgroup).filter(|list| list.waiting(me) > 0) else { return };
        let log = self.logs.logs.entry((process, subgroup)).or_default();
        if log.writing.is_some() {
            return;
        }
        log.writing = list.last(me);
        let at = self.now + 1 + self.write_ns(process, 0);
        self.push(at, Event::Synced(process, subgroup));
    }

    /// A disk has written what it had begun to write.
    pub(super) fn synced(&mut self, process: usize, subgroup: SubgroupId) -> Checked {
        let Some(position) = self.logs.logs.get_mut(&(process, subgroup)).and_then(|log| log.writing.take()) else {
            return Ok(());
        };
        let id = self.plan.members[process].id;
        let list = self.logs.lists.entry(subgroup).or_default();
        // The end of the log may have been cut off meanwhile.
        let position = list.last(id).map_or(position, |last| position.min(last));
        list.synced(id, position);
        note!(self, "p{process} s{subgroup} has {}.{} on disk", position.epoch, position.sequence);
        self.write_log(process, subgroup);
        let Some(newest) = self.processes[process].seat.filter(|_| self.is_member(process)) else { return Ok(()) };
        for stage in 0..=newest.stage {
            let Some(rank) = self.stages[stage].view.rank_of(id) else { continue };
            let Some(member) = self.stages[stage].members[rank.index()].as_mut() else { continue };
            member.engine.note_persisted(subgroup, Some(position));
            self.wake(Seat { stage, rank });
        }
        Ok(())
    }

    /// The log of a process begins anew in a subgroup in which it was not in the view before.
    pub(super) fn begin_logs(&mut self, seat: Seat, from: Option<Seat>) {
        let view = self.stages[seat.stage].view.clone();
        self.begin_lists(&view);
        for (id, spec) in view.subgroups_of(seat.rank).filter(|(_, spec)| spec.is_logged()) {
            let was_in = |from: Seat| {
                let before = &self.stages[from.stage].view.subgroups[id.index()];
                before.is_logged() && before.members.contains(&from.rank)
            };
            if spec.epoch.is_none() && !from.is_some_and(was_in) {
                self.logs.lists.entry(id).or_default().began(view.members[seat.rank.index()]);
            }
        }
    }

    /// A list begins anew if none of its subgroup's members is in the next view, and none could say
    /// how late its clock is.
    fn begin_lists(&mut self, view: &View) {
        let older = self.stages.iter().map(|stage| &stage.view).filter(|older| older.id < view.id);
        let Some(before) = older.max_by_key(|older| older.id) else { return };
        for (id, (old, spec)) in (0..).map(SubgroupId).zip(before.subgroups.iter().zip(&view.subgroups)) {
            let mut holders = old.members.iter().map(|rank| before.members[rank.index()]);
            if spec.is_logged() && old.clock == spec.clock && !holders.any(|holder| view.members.contains(&holder)) {
                self.logs.lists.entry(id).or_default().began_anew(view.id);
            }
        }
    }

    /// Checks what an engine counts as durable.
    fn check_durable(&mut self, seat: Seat) -> Checked {
        let process = self.process_of(seat);
        let stage = &self.stages[seat.stage];
        let Some(member) = &stage.members[seat.rank.index()] else { return Ok(()) };
        let by = stage.view.members[seat.rank.index()];
        for (id, spec) in stage.view.subgroups_of(seat.rank) {
            let Some(copies) = spec.durability.copies() else { continue };
            let Some(sequence) = member.engine.durable(id) else { continue };
            let position = Position { epoch: stage.view.id, sequence };
            let log = self.logs.logs.entry((process, id)).or_default();
            if log.durable >= Some(position) {
                continue;
            }
            log.durable = Some(position);
            DurablePrefix::copies(by, spec.members.len(), copies)?;
            let Some(list) = self.logs.lists.get(&id) else { continue };
            for rank in &spec.members {
                list.durable(by, position, stage.view.members[rank.index()])?;
            }
        }
        Ok(())
    }

    /// Checks the log of a member for which the epoch of a subgroup has ended.
    pub(super) fn check_log(&mut self, seat: Seat, id: SubgroupId) -> Checked {
        let view = &self.stages[seat.stage].view;
        if !view.subgroups[id.index()].is_logged() {
            return Ok(());
        }
        let (member, epoch) = (view.members[seat.rank.index()], view.id);
        self.logs.lists.entry(id).or_default().ended(member, epoch)
    }

    /// Checks the number of messages that a member has delivered in such an epoch.
    pub(super) fn check_log_of(&mut self, seat: Seat, id: SubgroupId, delivered: usize) -> Checked {
        let view = &self.stages[seat.stage].view;
        if !view.subgroups[id.index()].is_logged() {
            return Ok(());
        }
        let (member, epoch) = (view.members[seat.rank.index()], view.id);
        self.logs.lists.entry(id).or_default().delivered(member, epoch, delivered)
    }

    /// Checks that the logs of a process that has finished are on disk.
    pub(super) fn check_logs_are_written(&self, process: usize) -> Checked {
        let id = self.plan.members[process].id;
        self.logs.lists.values().try_for_each(|list| list.left(id))
    }

    /// Checks that the logs of all members of a subgroup are on disk, when the group is at rest.
    pub(super) fn check_logs_at_rest(&self, home: usize, id: SubgroupId) -> Checked {
        let stage = &self.stages[home];
        let spec = &stage.view.subgroups[id.index()];
        let Some(copies) = spec.durability.copies() else { return Ok(()) };
        let Some(list) = self.logs.lists.get(&id) else { return Ok(()) };
        for rank in &spec.members {
            let Some(member) = &stage.members[rank.index()] else { continue };
            let at = |sequence| Position { epoch: stage.view.id, sequence };
            // A frontier that does not exist lies before every record.
            let durable = member.engine.durable(id).map_or(at(0), at);
            let has_copies = spec.members.len() >= copies as usize;
            list.at_rest(stage.view.members[rank.index()], has_copies.then_some(durable))?;
        }
        Ok(())
    }
}
