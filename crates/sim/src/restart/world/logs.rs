//! The logs: messages, their delivery, logging and durability, and how a log catches up.
use super::{LackedRecords, MemberPhase, RecordWrite, RestartBroken, RestartEvent, RestartWorld, log_name};
use crate::checkers::restart_history::RestartMessageEntry;
use crate::checkers::{Checked, Invariant};
use crate::random::mix;
use crate::restart::plan::MS;
use spindle_core::control::RestartView;
use spindle_core::{MemberId, Position, SubgroupId, View};
use std::collections::BTreeSet;

const DURABLE: Invariant = Invariant(10, "durable prefix");

/// The time after which a log may begin without older records, where scenes have that.
const GAP_NS: u64 = 300 * MS;
/// As above, where scenes do not have it.
const GAPS_NS: u64 = 20_000 * MS;

impl RestartWorld<'_> {
    /// Lets members send, deliver, log and sync.
    pub(super) fn work(&mut self) -> Checked {
        for view in 0..self.views.len() {
            let workers = self.workers(view);
            let group = &self.views[view];
            // A member that has accepted another view has wedged.
            let is_open = group.next.is_none() && group.votes.proposed.is_empty();
            let is_whole = workers.len() == group.processes.len() && is_open;
            for log in 0..self.scene.logs as usize {
                if is_whole && self.random.one_in(self.scene.send_one_in) {
                    self.send(view, log)?;
                }
                for seat in workers.iter().copied() {
                    self.log(seat, log);
                }
                if is_whole {
                    self.acknowledge(&workers, log);
                }
            }
        }
        Ok(())
    }

    /// Gives a message its position. All members have received it, and deliver it in time.
    fn send(&mut self, view: usize, log: usize) -> Checked {
        let epoch = self.views[view].view.epoch(SubgroupId(log as u32));
        let last = self.histories[log].entries().last().map(|entry| entry.position);
        let sequence = last.filter(|last| last.epoch == epoch).map_or(0, |last| last.sequence + 1);
        let position = Position { epoch, sequence: sequence + self.random.below(2) };
        self.outcome.counts.sent += 1;
        let digest = mix(self.outcome.counts.sent ^ self.scene.seed << 32);
        self.histories[log].append(position, digest)
    }

    fn log(&mut self, seat: usize, log: usize) {
        let (deliveries, records) = (self.random.below(4) as usize, self.random.below(4) as usize);
        let (syncs, took) = (self.random.one_in(3), self.random.below(self.scene.sync_ns + 1));
        let logs_at_once = self.is_broken(RestartBroken::LogsAtOnce);
        let before_delivery = self.scene.before_delivery;
        let now = self.now;
        let RestartWorld { seats, histories, views, .. } = self;
        let seat_state = &mut seats[seat];
        let Some(running) = &mut seat_state.running else { return };
        let nonce = running.process.nonce;
        let MemberPhase::Live(live) = &mut running.phase else { return };
        let history = &histories[log];
        // The group may have gone on without this member.
        let epoch = views[live.view].view.epoch(SubgroupId(log as u32));
        let received = history.entries().partition_point(|entry| entry.position.epoch <= epoch);
        let end = views[live.view].next.map_or(received, |next| views[next].start[log]);
        live.at[log] = match before_delivery {
            // Messages are logged before they are delivered.
            true => end,
            false => (live.at[log] + deliveries).min(end).max(live.at[log]),
        };
        if live.lacks[log].is_some() && !logs_at_once || live.cuts[log] {
            return;
        }
        let state = &mut seat_state.disk.logs[log];
        let from = live.floor[log].max(history.after(state.last()));
        let until = live.at[log].min(from + records).min(received);
        state
            .records
            .extend(history.entries()[from.min(until)..until].iter().map(|entry| (entry.position, entry.digest)));
        let length = state.records.len();
        if syncs && state.synced < length {
            self.push(now + took, RestartEvent::Synced { seat, nonce, log, length, caught_up: None });
        }
    }

    /// Acknowledges the messages that all members of a view have on disk.
    fn acknowledge(&mut self, workers: &[usize], log: usize) {
        if workers.len() < self.scene.copies as usize {
            return;
        }
        let entries = self.histories[log].entries();
        // The newest ones are enough: the others were looked at before.
        let open = (0..entries.len()).rev().take(200).filter(|index| entries[*index].durable.is_none());
        let is_on_all =
            |index: &usize| workers.iter().all(|seat| self.seats[*seat].disk.logs[log].has(entries[*index].position));
        let durable: Vec<usize> = open.filter(is_on_all).collect();
        let disks: BTreeSet<u32> = workers.iter().map(|seat| self.seats[*seat].disk.number).collect();
        for index in durable {
            self.outcome.counts.durable += 1;
            self.histories[log].acknowledged(index, disks.clone());
        }
    }

    pub(super) fn synced(
        &mut self,
        seat: usize,
        nonce: u32,
        log: usize,
        length: usize,
        caught_up: Option<Option<Position>>,
    ) -> Checked {
        if self.running(seat, nonce).is_none() {
            return Ok(());
        }
        let state = &mut self.seats[seat].disk.logs[log];
        let from = state.synced;
        state.synced = state.synced.max(length.min(state.records.len()));
        self.note_synced(seat, log, from);
        if let Some(last) = caught_up {
            self.complete(seat, log, last);
            if self.is_left_behind(seat) {
                return Ok(());
            }
            let all: Vec<(Position, u64)> = self.seats[seat].disk.logs[log].records.clone();
            let end = self.histories[log].after(all.last().map(|(position, _)| *position));
            let state = &self.seats[seat].disk.logs[log];
            self.histories[log].compare(&all, end, |entry| state.skips(entry.position))?;
        }
        Ok(())
    }

    /// True if a restart quorum has restarted the group without this member, which works in an earlier view. The
    /// group may not have what its log has got.
    fn is_left_behind(&self, seat: usize) -> bool {
        let live = self.seats[seat].running.as_ref().and_then(|running| running.live());
        live.is_some_and(|live| self.restarted.is_some_and(|restarted| self.views[live.view].view.id < restarted))
    }

    /// Notes which messages a disk has, from this record on.
    pub(super) fn note_synced(&mut self, seat: usize, log: usize, from: usize) {
        let RestartWorld { seats, histories, .. } = self;
        let disk = &seats[seat].disk;
        for (position, _) in &disk.logs[log].records[from.min(disk.logs[log].synced)..disk.logs[log].synced] {
            if let Some(index) = histories[log].index(*position) {
                histories[log].synced(index, disk.number);
            }
        }
    }

    /// Removes records that the group does not have from the end of a log.
    pub(super) fn cut_log(&mut self, seat: usize, log: usize) {
        let RestartWorld { seats, histories, .. } = self;
        let state = &mut seats[seat].disk.logs[log];
        let is_known = |(position, digest): &(Position, u64)| {
            histories[log].index(*position).is_some_and(|index| histories[log].entries()[index].digest == *digest)
        };
        let kept = state.records.iter().take_while(|record| is_known(record)).count();
        state.records.truncate(kept);
        state.synced = state.synced.min(kept);
    }

    /// Lets a log take the records that it lacks from another process.
    pub(super) fn catch_up(&mut self, seat: usize, nonce: u32, log: usize) -> Checked {
        let now = self.now;
        let Some(running) = self.running(seat, nonce) else { return Ok(()) };
        let Some(lacks) = running.live().and_then(|live| live.lacks[log]).filter(|lacks| !lacks.is_copying) else {
            return Ok(());
        };
        let last = self.seats[seat].disk.logs[log].last();
        let history = &self.histories[log];
        // The group may have gone on without this member.
        let live = self.seats[seat].running.as_ref().and_then(|running| running.live());
        let epoch = live.map(|live| self.views[live.view].view.epoch(SubgroupId(log as u32)));
        let received = history.entries().partition_point(|entry| Some(entry.position.epoch) <= epoch);
        let lacked: Vec<usize> =
            (history.after(last)..lacks.end.min(received)).filter(|index| !history.entries()[*index].gone).collect();
        if lacked.is_empty() {
            self.complete(seat, log, last);
            return Ok(());
        }
        let positions: Vec<Position> = lacked.iter().map(|index| history.entries()[*index].position).collect();
        let is_source = |other: &usize| {
            let runs = *other != seat && self.seats[*other].running.is_some() && self.passes(*other, seat);
            runs && positions.iter().all(|position| self.seats[*other].disk.logs[log].has(*position))
        };
        let source = (0..self.seats.len()).find(is_source);
        if source.is_some() && !self.random.one_in(4) {
            let records: Vec<(Position, u64)> = lacked
                .iter()
                .map(|index| (history.entries()[*index].position, history.entries()[*index].digest))
                .collect();
            let state = &mut self.seats[seat].disk.logs[log];
            state.records.extend(records);
            let length = state.records.len();
            self.set_lacks(seat, log, Some(LackedRecords { is_copying: true, ..lacks }));
            self.outcome.counts.caught_up += 1;
            self.after(self.scene.sync_ns, RestartEvent::Synced { seat, nonce, log, length, caught_up: Some(last) });
            return Ok(());
        }
        if source.is_none() {
            let lost: Vec<usize> =
                lacked.iter().copied().filter(|index| !self.is_anywhere(seat, log, *index)).collect();
            for index in lost {
                let (destroyed, given_up) = (self.destroyed.clone(), self.given_up.clone());
                let is_excused = |entry: &RestartMessageEntry| {
                    // A message that was not durable may end with the members that had it.
                    let was_lost =
                        entry.synced.iter().any(|disk| destroyed.contains_key(disk) || given_up.contains(disk));
                    was_lost || entry.durable.is_none()
                };
                self.histories[log].lose(index, is_excused)?;
            }
            let is_late = now >= lacks.since + GAP_NS && self.random.one_in(4);
            // The records may be on several disks, and no process have them all.
            let has_gaps = self.scene.gaps || now >= lacks.since + GAPS_NS;
            if has_gaps && is_late && !self.has_complete(seat, log) {
                self.outcome.counts.gaps += 1;
                let until = *positions.last().expect("it lacks records");
                self.note(|| format!("s{seat}: log {log} begins without the records from {last:?} to {until:?}"));
                self.seats[seat].disk.logs[log].holes.push((last, until));
                self.set_lacks(seat, log, None);
                return Ok(());
            }
        }
        self.after(200 * MS, RestartEvent::CatchUp { seat, nonce, log });
        Ok(())
    }

    /// True if another process that works has a complete log, or will have it.
    fn has_complete(&self, except: usize, log: usize) -> bool {
        let is_complete = |running: &super::RunningMember| {
            let record = running.record.as_ref();
            let begins_late = |record: &spindle_core::control::RestartRecord| {
                record.origins.iter().any(|origin| origin.name == log_name(log))
            };
            running.live().is_some() && !record.is_some_and(begins_late)
        };
        let others = (0..self.seats.len()).filter(|seat| *seat != except && self.passes(*seat, except));
        others.filter_map(|seat| self.seats[seat].running.as_ref()).any(is_complete)
    }

    fn set_lacks(&mut self, seat: usize, log: usize, lacks: Option<LackedRecords>) {
        if let Some(MemberPhase::Live(live)) = self.seats[seat].running.as_mut().map(|running| &mut running.phase) {
            live.lacks[log] = lacks;
        }
    }

    /// Notes that a log lacks nothing any more.
    fn complete(&mut self, seat: usize, log: usize, last: Option<Position>) {
        self.set_lacks(seat, log, None);
        let Some(running) = &mut self.seats[seat].running else { return };
        let mut record = running.record.clone().expect("a member has a record");
        record.caught_up(&log_name(log), last);
        if running.record.as_ref() != Some(&record) {
            running.record = Some(record.clone());
            self.write(seat, record, RecordWrite::CaughtUp);
        }
    }

    /// True if a message is on a disk, or will be.
    fn is_anywhere(&self, except: usize, log: usize, index: usize) -> bool {
        let position = self.histories[log].entries()[index].position;
        let has = |seat: &usize| {
            let state = &self.seats[*seat].disk.logs[log];
            let is_logged = state.records.binary_search_by_key(&position, |(position, _)| *position).is_ok();
            let live = self.seats[*seat].running.as_ref().and_then(|running| running.live());
            let will_be =
                live.is_some_and(|live| live.at[log] > index && live.floor[log] <= index && !state.skips(position));
            is_logged || will_be
        };
        (0..self.seats.len()).filter(|seat| *seat != except).any(|seat| has(&seat))
    }

    /// Lets the histories end where the first member of a restart says. All that is durable stays,
    /// except what is lost for one of these reasons:
    /// - all disks that ever had it are given up or destroyed,
    /// - the operator has given up members of the base, or their disks are destroyed: one of them had
    ///   the message, and no other member of the base has it,
    /// - the logs of all members of the base begin without it.
    pub(super) fn restart_histories(&mut self, base: &View, value: &RestartView) -> Checked {
        for log in 0..self.scene.logs as usize {
            let Some(chosen) = value.logs.iter().find(|chosen| chosen.name == log_name(log)) else {
                return DURABLE.broken(format!("the view of a restart names no log {}", log_name(log)));
            };
            let last = chosen.last;
            self.restarted = Some(value.view.id);
            self.note(|| format!("restart of view {:x}: log {log} continues after {last:?}", base.id.0));
            if let Some(last) = last.filter(|last| self.histories[log].index(*last).is_none()) {
                let excused = |entry: &&RestartMessageEntry| self.is_excused(base, log, entry);
                let excused = self.histories[log].entries().iter().filter(excused).map(|entry| entry.position);
                self.revive(log, last, &excused.collect())?;
            }
            let here = |id: &MemberId| self.seats.iter().find(|seat| u64::from(seat.disk.number) == id.0);
            let (gone, left): (Vec<MemberId>, Vec<MemberId>) =
                base.members.iter().copied().partition(|id| self.lost.contains(id) || here(id).is_none());
            let had = |entry: &RestartMessageEntry| gone.iter().any(|id| entry.synced.contains(&(id.0 as u32)));
            let is_excused = |entry: &RestartMessageEntry| self.is_excused(base, log, entry);
            // Logs that have not caught up yet lack older messages, which others may have.
            let origin = |id: &MemberId| {
                let record = here(id)?.disk.record.as_ref()?;
                record
                    .origins
                    .iter()
                    .filter(|origin| origin.name == log_name(log))
                    .map(|origin| origin.since)
                    .next_back()
            };
            let pending = left.iter().map(origin).collect::<Option<Vec<_>>>().and_then(|since| since.into_iter().min());
            let history = &self.histories[log];
            let none_is_complete = pending.is_some();
            let pending =
                pending.map_or(0, |since| history.entries().partition_point(|entry| entry.position.epoch < since));
            let end = history.after(last).max(pending);
            let holes: Vec<usize> = (pending..end)
                .filter(|index| {
                    let entry = &history.entries()[*index];
                    let is_here = self.seats.iter().any(|seat| seat.disk.logs[log].has(entry.position));
                    !entry.gone && !is_here
                })
                .collect();
            let mut history = history.clone();
            // A message that is not durable may have been lost with a member, if the logs of all others
            // begin after it.
            let is_lost = |entry: &RestartMessageEntry| {
                had(entry) || is_excused(entry) || none_is_complete && entry.durable.is_none()
            };
            holes.into_iter().try_for_each(|index| history.lose(index, is_lost))?;
            history.cut(end, is_excused)?;
            let clock =
                value.view.subgroups.iter().find(|spec| spec.name == log_name(log)).map_or(0, |spec| spec.clock);
            if clock < chosen.clock {
                return DURABLE.broken(format!("a restart begins with clock {clock} after {}", chosen.clock));
            }
            self.histories[log] = history;
        }
        Ok(())
    }

    /// True if a message may be lost with this base, for one of the reasons of
    /// [`restart_histories`](Self::restart_histories).
    fn is_excused(&self, base: &View, log: usize, entry: &RestartMessageEntry) -> bool {
        let here = |id: &MemberId| self.seats.iter().find(|seat| u64::from(seat.disk.number) == id.0);
        let is_gone = |id: &&MemberId| self.lost.contains(id) || here(id).is_none();
        let left = base.members.iter().filter(|id| !is_gone(id)).filter_map(here);
        let mut gone = base.members.iter().filter(is_gone);
        let is_lost = |disk: &u32| self.destroyed.contains_key(disk) || self.given_up.contains(disk);
        let logs: Vec<_> = left.map(|seat| &seat.disk.logs[log]).collect();
        entry.durable.is_some() && entry.synced.iter().all(is_lost)
            || gone.any(|id| entry.synced.contains(&(id.0 as u32))) && !logs.iter().any(|log| log.has(entry.position))
            || logs.iter().all(|log| log.skips(entry.position))
    }

    /// Takes messages back into the history that it had lost, from a log that has them. The history may
    /// lose messages at these positions.
    fn revive(&mut self, log: usize, last: Position, excused: &BTreeSet<Position>) -> Checked {
        let holder = self.seats.iter().find(|seat| seat.disk.logs[log].has(last));
        let Some(state) = holder.map(|seat| seat.disk.logs[log].clone()) else {
            return DURABLE.broken(format!("a restart continues after {last:?}, which no log has"));
        };
        let records = &state.records;
        let known = records.iter().take_while(|(position, _)| self.histories[log].index(*position).is_some()).count();
        let mut end = self.histories[log].after(known.checked_sub(1).map(|index| records[index].0));
        // The log has begun without these.
        let is_skipped = |entry: &RestartMessageEntry| state.skips(entry.position);
        while self.histories[log].entries().get(end).is_some_and(is_skipped) {
            end += 1;
        }
        self.histories[log].cut(end, |entry| excused.contains(&entry.position))?;
        for (position, digest) in records.iter().skip(known).take_while(|(position, _)| *position <= last) {
            self.histories[log].append(*position, *digest)?;
        }
        (0..self.seats.len()).for_each(|seat| self.note_synced(seat, log, 0));
        Ok(())
    }
}
