//! The checks of logs.
use super::{LogLack, ProcessLog};
use crate::checkers::{Checked, Invariant};
use crate::processes::disks::DiskLog;
use crate::processes::logged_order::LoggedOrder;
use crate::processes::process::{ProcessPhase, SimProcess};
use crate::processes::world::HostsWorld;
use spindle_core::{DurableRise, MemberId, Order, Rank, SubgroupId, SubgroupSpec, View, ViewId};

const PREFIX: Invariant = Invariant(10, "durable prefix");
const COMPLETE: Invariant = Invariant(32, "complete logs go on");
const MONOTONE: Invariant = Invariant(11, "monotone rows");

impl HostsWorld<'_> {
    /// Checks a view that follows: of the members of each logged subgroup that are in it, one has shown that its log
    /// is complete, if some are not in it.
    pub(in crate::processes) fn check_goes_on(&self, process: &SimProcess, old: &View, next: &View) -> Checked {
        if next.id.era() != old.id.era() || self.ledger.is_given_up(process.number) {
            return Ok(());
        }
        let of = process.roster.incarnation();
        for spec in old.subgroups.iter().filter(|spec| spec.is_logged()) {
            let members = spec.members.iter().map(|rank| old.members[rank.index()]);
            let (on, off): (Vec<MemberId>, Vec<MemberId>) = members.partition(|id| next.rank_of(*id).is_some());
            let has_all = |id: &MemberId| self.complete_logs.contains(&(of, old.id, *id, spec.name.clone()));
            if !on.is_empty() && !off.is_empty() && !on.iter().any(has_all) {
                let (number, id, name) = (process.number, next.id, &spec.name);
                let what =
                    format!("process {number} begins view {id} without {off:?}; of {on:?} none has all of {name}");
                return COMPLETE.broken(what);
            }
        }
        Ok(())
    }

    /// Checks that a process ends for want of complete logs only if the members that may have them have ended.
    pub(in crate::processes) fn check_incomplete(&self, process: &SimProcess, view: &View, id: SubgroupId) -> Checked {
        let (of, spec) = (process.roster.incarnation(), &view.subgroups[id.index()]);
        // One whose disk has failed takes no part any more, and says so before it ends.
        let takes_part = |other: &SimProcess| other.is_alive && !matches!(other.phase, ProcessPhase::Out);
        let lives = |number: &usize| self.processes[*number].as_deref().is_some_and(takes_part);
        let others = spec.members.iter().map(|rank| view.members[rank.index()]).filter(|id| *id != process.me.id);
        let has_ended = |id: MemberId| !self.ledger.process_of((of, view.id.0), id).is_some_and(|it| lives(&it));
        let lacks = |id: MemberId| !self.complete_logs.contains(&(of, view.id, id, spec.name.clone()));
        let (number, name) = (process.number, &spec.name);
        match others.clone().any(has_ended) && others.clone().all(|id| has_ended(id) || lacks(id)) {
            true => Ok(()),
            false => {
                COMPLETE.broken(format!("process {number} ends for want of {name}, and a member lives that has it"))
            }
        }
    }

    /// Checks a rise of the durable frontier that an engine has reported.
    pub(super) fn check_durable(&mut self, process: &mut SimProcess, name: &str, rise: DurableRise) -> Checked {
        let of = process.roster.incarnation();
        let DurableRise { frontier, covers_older } = rise;
        let number = process.number;
        let Some(log) = process.logs.get_mut(name) else { return Ok(()) };
        if log.durable > Some(frontier) {
            return MONOTONE
                .broken(format!("process {number} counts {frontier:?} as durable behind {:?}", log.durable));
        }
        // Messages that a frontier of a later epoch has passed on too few disks never count as durable
        // (docs/protocol/log.md, "Messages on too few disks"), and those before its first epoch are not those
        // of this process.
        let since = log.durable.map(|durable| durable.epoch).max(log.entered);
        log.durable = Some(frontier);
        self.outcome.counts.durable += 1;
        if self.ledger.is_given_up(number) {
            return Ok(());
        }
        let key = (of, frontier.epoch.0);
        let Some(view) = process.table_of(frontier.epoch).map(|table| table.view.clone()) else { return Ok(()) };
        let spec = view.subgroup(name).map(|id| view.subgroups[id.index()].clone()).expect("its epoch began there");
        let mut disks: Vec<Option<&DiskLog>> = vec![];
        let none = DiskLog::default();
        for id in spec.members.iter().map(|rank| view.members[rank.index()]) {
            // The disk of a process that has ended may be lost since.
            let owner = self.ledger.process_of(key, id);
            let lives = |owner: &usize| {
                *owner == number || self.processes[*owner].as_deref().is_some_and(|owner| owner.is_alive)
            };
            let place = owner.filter(lives).map(|owner| self.process_places[owner]);
            disks.push(place.map(|place| self.places[place].log_disk.logs.get(name).unwrap_or(&none)));
        }
        let copies = spec.durability.copies().unwrap_or(1) as usize;
        let order = self.orders.entry((of, name.into())).or_default();
        order.durable(number, (frontier, since.filter(|_| covers_older)), (copies, &disks))
    }

    /// Checks the log of a process at the end of a subgroup's epoch, which began with the view of `key`.
    pub(in crate::processes) fn check_epoch_log(
        &mut self,
        process: &SimProcess,
        key: (u128, u64),
        (spec, there): (&SubgroupSpec, SubgroupId),
        trims: &[u64],
    ) -> Checked {
        if self.scene.logs.is_none() || !spec.is_logged() || self.ledger.is_given_up(process.number) {
            return Ok(());
        }
        let epoch = ViewId(key.1);
        let last = |(sender, trim): (&Rank, &u64)| spec.sequence(*sender, trim.checked_sub(1)?);
        let end = spec.senders.iter().zip(trims).filter_map(last).max().map_or(0, |last| last + 1);
        let order = self.orders.entry((key.0, spec.name.clone())).or_default();
        order.ended(process.number, epoch, end)?;
        if !order.has(epoch) {
            // No member of the epoch continues.
            return Ok(());
        }
        let Some(log) = process.logs.get(&spec.name) else { return Ok(()) };
        let disk = &self.places[process.place].log_disk;
        if log.is_lacking() || log.cut.is_some() || spec.order != Order::Total {
            return Ok(());
        }
        let Some(own) = disk.logs.get(&spec.name) else { return Ok(()) };
        let here = |position: spindle_core::Position| position.epoch == epoch && position.sequence < end;
        let logged: Vec<_> =
            own.records.iter().filter(|record| here(record.position)).map(|record| record.message).collect();
        if !order.of_epoch(epoch).eq(logged.iter().copied()) {
            return PREFIX.broken(format!(
                "process {} ends epoch {epoch} of {} with {} records, and others have {}",
                process.number,
                spec.name,
                logged.len(),
                order.of_epoch(epoch).count()
            ));
        }
        self.ledger.is_logged(key, process.number, there.0, &logged)
    }

    /// Returns what the logs of a process lack at rest.
    pub(in crate::processes) fn lacks_in_logs(&self, process: &SimProcess) -> Option<String> {
        self.scene.logs?;
        let view = process.table.as_ref()?.view.clone();
        let me = view.rank_of(process.me.id)?;
        let disk = &self.places[process.place].log_disk;
        for (id, spec) in view.subgroups_of(me).filter(|(_, spec)| spec.is_logged()) {
            let name = &spec.name;
            let Some(log) = process.logs.get(name) else { return Some(format!("has no log of {name}")) };
            if !matches!(log.lack, LogLack::Nothing) || log.cut.is_some() {
                return Some(format!("lacks records of {name}: {:?}", log.lack));
            }
            let order = self.orders.get(&(process.roster.incarnation(), name.clone()));
            let Some(last) = order.and_then(|order| order.mark()) else { continue };
            let (engine, _, there) = process.home(id)?;
            let on_disk = disk.logs.get(name).and_then(|log| log.on_disk());
            if on_disk < Some(last) {
                return Some(format!("has {on_disk:?} of {name} on disk, and the last record is {last:?}"));
            }
            let copies = spec.durability.copies().unwrap_or(1) as usize;
            let durable = engine.durable(there);
            let is_late = |durable| last.epoch == view.epoch(id) && durable <= last.sequence;
            if spec.members.len() >= copies && durable.is_none_or(is_late) {
                return Some(format!("counts {durable:?} of {name} as durable, and the last record is {last:?}"));
            }
        }
        None
    }

    /// Marks a record of the newest epoch of each list, which all logs have to get.
    pub(in crate::processes) fn mark_logs(&mut self) {
        self.orders.values_mut().for_each(LoggedOrder::set_mark);
    }

    /// Checks all logs of a process that rests.
    pub(in crate::processes) fn check_logs(&self, process: &SimProcess) -> Checked {
        let disk = &self.places[process.place].log_disk;
        let of = process.roster.incarnation();
        for (name, log) in process.logs.iter().filter(|(_, log)| matches!(log.lack, LogLack::Nothing)) {
            let ProcessLog { epoch, .. } = log;
            let (Some(own), Some(order)) = (disk.logs.get(name), self.orders.get(&(of, name.clone()))) else {
                continue;
            };
            let is_member = process.table.as_ref().is_some_and(|table| {
                let spec = table.view.subgroup(name).map(|id| &table.view.subgroups[id.index()]);
                spec.is_some_and(|spec| spec.members.contains(&table.places.me))
            });
            if is_member && log.cut.is_none() && !self.ledger.is_given_up(process.number) {
                order.check(
                    process.number,
                    own,
                    self.complete_since(process.place, name),
                    epoch.unwrap_or(ViewId(0)),
                )?;
            }
        }
        Ok(())
    }

    /// Returns the view since which a log on the disk of a place has all records; `None`: it has all.
    pub(in crate::processes) fn complete_since(&self, place: usize, name: &str) -> Option<ViewId> {
        self.places[place].log_disk.record.as_ref()?.complete_since(name)
    }

    /// Handles a view that is new to the run: lists may begin anew, or lose what members that were
    /// given up have alone.
    pub(in crate::processes) fn note_logged_view(&mut self, of: u128, before: Option<&View>, view: &View) -> Checked {
        let Some(before) = before.filter(|_| self.scene.logs.is_some()) else { return Ok(()) };
        for (id, spec) in (0..).map(SubgroupId).zip(&view.subgroups).filter(|(_, spec)| spec.is_logged()) {
            let Some(order) = self.orders.get_mut(&(of, spec.name.clone())) else { continue };
            let Some(old) = before.subgroup(&spec.name).map(|id| &before.subgroups[id.index()]) else { continue };
            let stays = |rank: &Rank| view.members.contains(&before.members[rank.index()]);
            if !old.members.iter().any(stays) {
                order.begins_anew(view.epoch(id));
                continue;
            }
            if view.id.era() > before.id.era() {
                let key = (of, before.id.0);
                let left = old.members.iter().filter(|rank| stays(rank)).map(|rank| before.members[rank.index()]);
                let logs = left.filter_map(|id| {
                    let owner = self.ledger.process_of(key, id)?;
                    Some((owner, self.places[self.process_places[owner]].log_disk.logs.get(&spec.name)?))
                });
                let id = before.subgroup(&spec.name).expect("it was there");
                order.divided(before.epoch(id), &logs.collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }
}
