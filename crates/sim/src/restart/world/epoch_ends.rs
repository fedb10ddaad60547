//! The ends of epochs where messages are delivered once they are durable: messages that the disk of a
//! member which continues lacks are not part of the epoch, and logs are cut.
use super::{MemberPhase, RestartBroken, RestartEvent, RestartWorld};
use crate::checkers::Checked;
use spindle_core::{SubgroupId, View};
use std::collections::BTreeSet;

impl RestartWorld<'_> {
    /// Returns where the epochs end that the view `next` touches, which follows `view`, by log. Messages that
    /// all members which continue have on disk are delivered.
    pub(super) fn epoch_ends(&self, view: usize, stays: &BTreeSet<u32>, next: &View) -> Vec<Option<usize>> {
        let end = |log: usize| {
            let id = SubgroupId(log as u32);
            if next.epoch(id) != next.id {
                return None;
            }
            let (epoch, history) = (self.views[view].view.epoch(id), &self.histories[log]);
            let begin = history.entries().partition_point(|entry| entry.position.epoch < epoch);
            let has_copies = self.views[view].processes.len() >= self.scene.copies as usize;
            let holders: Vec<usize> = (0..self.seats.len())
                .filter(|seat| {
                    self.seats[*seat].running.as_ref().is_some_and(|running| stays.contains(&running.process.nonce))
                })
                .collect();
            let persisted = |seat: &usize| {
                let live = self.seats[*seat].running.as_ref().and_then(|running| running.live());
                let state = &self.seats[*seat].disk.logs[log];
                let is_whole = live.is_some_and(|live| live.lacks[log].is_none() && !live.cuts[log]);
                let last = state.records[..state.synced].last().map(|(position, _)| *position);
                if is_whole { history.after(last).max(begin) } else { begin }
            };
            Some(holders.iter().map(persisted).min().filter(|_| has_copies).unwrap_or(begin))
        };
        (0..self.scene.logs as usize).map(end).collect()
    }

    /// Ends epochs. Messages behind these ends are not part of the group's history.
    pub(super) fn trim(&mut self, view: usize, stays: &BTreeSet<u32>, ends: &[Option<usize>]) -> Checked {
        for (log, end) in ends.iter().enumerate() {
            let Some(end) = *end else { continue };
            let epoch = self.views[view].view.epoch(SubgroupId(log as u32));
            let begin = self.histories[log].entries().partition_point(|entry| entry.position.epoch < epoch);
            let disks: BTreeSet<u32> = stays.iter().map(|nonce| self.seats[self.places[nonce].0].disk.number).collect();
            for index in begin..end {
                self.histories[log].acknowledged(index, disks.clone());
            }
            let kept = end.checked_sub(1).map(|last| self.histories[log].entries()[last].position);
            self.note(|| format!("log {log} of view {:x} ends with {kept:?}", epoch.0));
            self.outcome.counts.trimmed += (self.histories[log].entries().len() - end) as u64;
            self.histories[log].cut(end, |_| false)?;
        }
        Ok(())
    }

    /// Begins to remove records behind the end of an epoch, at a member that begins the next view.
    pub(super) fn begin_cuts(&mut self, seat: usize) {
        if !self.scene.before_delivery || self.is_broken(RestartBroken::LogUncut) {
            return;
        }
        for log in 0..self.scene.logs as usize {
            let history = &self.histories[log];
            let is_of_group = |position| history.index(position).is_some();
            let is_stale = self.seats[seat].disk.logs[log].records.last().is_some_and(|(last, _)| !is_of_group(*last));
            let Some(running) = self.seats[seat].running.as_mut().filter(|_| is_stale) else { continue };
            let nonce = running.process.nonce;
            let MemberPhase::Live(live) = &mut running.phase else { continue };
            if std::mem::replace(&mut live.cuts[log], true) {
                continue;
            }
            // Behind all writes that were begun.
            let at = self.now + self.scene.sync_ns + 1 + self.random.below(self.scene.sync_ns + 1);
            self.push(at, RestartEvent::LogCut { seat, nonce, log });
        }
    }

    /// The records are gone.
    pub(super) fn log_is_cut(&mut self, seat: usize, nonce: u32, log: usize) {
        let Some(MemberPhase::Live(live)) = self.running(seat, nonce).map(|running| &mut running.phase) else { return };
        live.cuts[log] = false;
        let before = self.seats[seat].disk.logs[log].last();
        self.cut_log(seat, log);
        let after = self.seats[seat].disk.logs[log].last();
        self.note(|| format!("s{seat}: log {log} ended with {before:?} and is cut after {after:?}"));
        self.outcome.counts.log_cuts += 1;
    }
}
