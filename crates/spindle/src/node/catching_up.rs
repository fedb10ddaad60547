//! Records of logs on their way between members: those that this member sends, and those that its logs
//! lack.
use super::Node;
use super::older::Homes;
use crate::error::Ended;
use crate::handles::SubgroupHandles;
use crate::transfer::TransferWay;
use spindle_core::MemberId;
use spindle_core::control::{LogCompleteness, Member, NoRecords, RecordOrder};
use std::collections::BTreeMap;
use std::time::Duration;

impl Node {
    /// Sends records to a process that lacks them, or the reason why it gets none.
    pub(super) fn send_records(&mut self, order: RecordOrder) {
        let Node { handles, logs, member, fabric, older, .. } = self;
        let homes = Homes { newest: fabric, older };
        let of_subgroup = handles.iter().find(|of_subgroup| *of_subgroup.name == order.wanted.subgroup);
        let source = of_subgroup.and_then(|of_subgroup| {
            let ((_, id), log) = of_subgroup.home().zip(of_subgroup.log.as_ref())?;
            let (engine, _) = homes.of(of_subgroup, member);
            let gap = logs.as_ref().and_then(|logs| logs.gap_before(&order.wanted.subgroup, log));
            Some(log.source(&order.wanted, engine, id, gap))
        });
        let source = source.unwrap_or(Err(NoRecords::NotMember));
        self.record_server.serve(order, source, &mut self.control_plane);
    }

    /// Takes a stream of records that a log of this member has asked for.
    pub(super) fn take_records(&mut self, from: MemberId, reply: u64, way: TransferWay) {
        let logs = self.handles.iter_mut().filter_map(|of_subgroup| of_subgroup.log.as_mut());
        // A stream that no log wants any more is closed.
        let mut way = Some(way);
        for log in logs {
            way = way.and_then(|way| log.take_stream(from, reply, way, &self.control_plane));
        }
    }

    /// Notes that a process sends no records.
    pub(super) fn no_records(&mut self, from: MemberId, reply: u64, why: NoRecords) {
        for log in self.handles.iter_mut().filter_map(|of_subgroup| of_subgroup.log.as_mut()) {
            log.refused(from, reply, why, &self.control_plane);
        }
    }

    /// Takes a step towards the records that logs lack. Returns whether some lack any.
    pub(super) fn catch_up(&mut self) -> Result<bool, Ended> {
        let mut catches_up = false;
        let mut failed = Ok(());
        let Node { handles, logs, member, fabric, older, control_plane, .. } = self;
        let homes = Homes { newest: fabric, older };
        for of_subgroup in handles.iter_mut() {
            let Some(log) = of_subgroup.log.as_mut().filter(|log| log.is_catching_up()) else { continue };
            catches_up = true;
            let view = member.view();
            let spec = view.subgroups.iter().find(|spec| spec.name == of_subgroup.name);
            let ranks = spec.into_iter().flat_map(|spec| &spec.members);
            let ids = ranks.map(|rank| view.members[rank.index()]).filter(|id| *id != control_plane.me);
            match log.catch_up(&of_subgroup.name, ids.collect(), control_plane) {
                Ok(false) => {}
                Ok(true) => {
                    if let (Some(logs), Some(last)) = (&mut *logs, log.caught_up_from()) {
                        logs.caught_up(&of_subgroup.name, last);
                    }
                    let home = of_subgroup.home();
                    let (engine, _) = homes.of(of_subgroup, member);
                    home.iter().for_each(|(_, id)| engine.set_catching_up(*id, false));
                }
                Err(ended) => failed = Err(ended),
            }
        }
        failed.map_err(|ended| self.broken(ended))?;
        if catches_up {
            show_completeness(&self.handles, &mut self.member);
        }
        Ok(catches_up)
    }

    /// This member may not go on: no member that would has a complete log.
    #[cold]
    pub(super) fn incomplete(&mut self) -> Ended {
        let view = self.member.view();
        let (subgroup, mut ended) = match self.member.engine().incomplete() {
            Some((id, ranks)) => {
                (view.subgroups[id.index()].name.clone(), ranks.iter().map(|rank| view.members[rank.index()]).collect())
            }
            None => (String::new(), vec![]),
        };
        ended.sort_unstable();
        self.broken(Ended::LogIncomplete { subgroup, ended })
    }

    /// Returns how long this member may sleep until its logs take the next step.
    pub(super) fn catch_up_patience(&self) -> Option<Duration> {
        let logs = self.handles.iter().filter_map(|of_subgroup| of_subgroup.log.as_ref());
        logs.filter_map(|log| log.catch_up_patience(&self.control_plane)).min()
    }
}

/// Tells the member which logs are complete.
pub(super) fn show_completeness(handles: &[SubgroupHandles], member: &mut Member) {
    let of: BTreeMap<&str, LogCompleteness> =
        handles.iter().filter_map(|it| Some((&*it.name, it.log.as_ref()?.completeness()))).collect();
    member.set_completeness(|name| of.get(name).copied().unwrap_or_default());
}
