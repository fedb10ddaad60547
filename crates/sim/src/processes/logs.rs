//! The logs of a process in logged subgroups: what its engines hand over, a disk that writes it at
//! its own pace, and the duties of a driver at the begin and the end of epochs.
//!
//! The views that a process has begun are on its disk at once. [The simulator of total
//! restarts](../restart/index.html) plays slow writes of them.
mod checks;
mod records;

use super::disks::{DiskRecord, sync_takes};
use super::ledger::MessageId;
use super::logged_order::LoggedOrder;
use super::process::{ProcessPhase, SimProcess};
use super::subgroups::decode;
use super::views::NextView;
use super::world::{Broken, HostsWorld, ProcessEvent};
use crate::checkers::Checked;
pub(super) use records::{RecordArrival, RecordFetch, RecordSending, RecordStream};
use spindle_core::control::{CatchUp, LogCompleteness, RestartRecord};
use spindle_core::{DurableRise, Position, Records, Rows, SubgroupId, View, ViewId};
use std::collections::BTreeMap;

/// All lists of a run, by group and subgroup.
pub(super) type LoggedOrders = BTreeMap<(u128, String), LoggedOrder>;

/// The records that a log lacks.
#[derive(Debug, Default)]
pub(super) enum LogLack {
    #[default]
    Nothing,
    /// An earlier process has written the log, and this one is not in the subgroup yet.
    Unknown,
    /// Records of the epochs before a view.
    Older(OlderRecords),
}

#[derive(Debug)]
pub(super) struct OlderRecords {
    before: ViewId,
    /// True if messages of an epoch that has ended were not taken: a view begins soon, which says
    /// how many are missing.
    lacks_rest: bool,
    has_skipped: bool,
    catch_up: Option<Box<CatchUp>>,
    fetch: Option<RecordFetch>,
    /// True if the last request allows the source to leave out older records.
    may_skip: bool,
}

/// The log of one subgroup.
#[derive(Debug, Default)]
pub(super) struct ProcessLog {
    lack: LogLack,
    /// After it has caught up.
    completeness: LogCompleteness,
    /// The number of records that the sync in progress makes durable.
    writing: Option<usize>,
    /// The position that its engine was told last, if it was told since its epoch began.
    told: Option<Option<Position>>,
    /// True if it had no room for a record since the last look.
    is_blocked: bool,
    /// The position from which on records have to be removed, and whether the disk removes them.
    cut: Option<(Position, bool)>,
    /// The last record before those that have come from others.
    last_before: Option<Position>,
    /// The epoch that it takes.
    epoch: Option<ViewId>,
    /// The first epoch of its subgroup in which this process is.
    entered: Option<ViewId>,
    /// The durable frontier that its engine has reported.
    durable: Option<Position>,
}

/// The use that a log makes of the messages of a poll.
#[derive(Clone, Copy, Debug)]
enum LogRoom {
    /// They stay in the rings.
    None,
    /// It takes so many, and all of an epoch that has ended.
    Takes(usize),
    /// It takes none. Other members send the messages of an epoch that has ended.
    Skips,
}

/// The events of polls for logs. Subgroups have the numbers of the newest view.
#[derive(Debug, Default)]
pub(super) struct LogUpcalls {
    rooms: Vec<LogRoom>,
    records: Vec<(u32, DiskRecord)>,
    blocked: Vec<u32>,
    rests: Vec<(u32, bool)>,
    cuts: Vec<(u32, Position)>,
    rises: Vec<(u32, DurableRise)>,
}

impl LogUpcalls {
    pub(super) fn log<R: Rows>(&mut self, subgroup: SubgroupId, records: &mut Records<'_, R>) {
        let Some(room) = self.rooms.get_mut(subgroup.index()) else { return };
        let is_rest = records.is_rest();
        match room {
            LogRoom::None => {}
            LogRoom::Skips if is_rest => {
                let mut any = false;
                records.offer(|_| {
                    any = true;
                    true
                });
                self.rests.push((subgroup.0, any));
            }
            LogRoom::Skips => {}
            LogRoom::Takes(left) => records.offer(|record| {
                if *left == 0 && !is_rest {
                    self.blocked.push(subgroup.0);
                    return false;
                }
                *left = left.saturating_sub(1);
                let message: MessageId = decode(record.message.payload);
                self.records.push((subgroup.0, DiskRecord { position: record.position, clock: record.clock, message }));
                true
            }),
        }
    }

    pub(super) fn cut(&mut self, subgroup: SubgroupId, from: Position) {
        self.cuts.push((subgroup.0, from));
        if let Some(room) = self.rooms.get_mut(subgroup.index()) {
            *room = LogRoom::None;
        }
    }

    pub(super) fn durable(&mut self, subgroup: SubgroupId, rise: DurableRise) {
        self.rises.push((subgroup.0, rise));
    }
}

impl ProcessLog {
    fn is_lacking(&self) -> bool {
        matches!(self.lack, LogLack::Older(_))
    }

    fn completeness(&self) -> LogCompleteness {
        if self.is_lacking() { LogCompleteness::CatchingUp } else { self.completeness }
    }
}

impl HostsWorld<'_> {
    /// Returns how many records the logs of a process have room for, by subgroup of its newest view.
    pub(super) fn log_rooms(&self, process: &SimProcess) -> LogUpcalls {
        let (Some(disks), Some(table)) = (&self.scene.logs, &process.table) else { return LogUpcalls::default() };
        let logs = &self.places[process.place].log_disk.logs;
        let room = |name: &String| match process.logs.get(name) {
            None => LogRoom::None,
            Some(log) if log.is_lacking() && self.broken != Broken::LogsWhileLacking => LogRoom::Skips,
            Some(log) if log.cut.is_some() => LogRoom::None,
            Some(_) => {
                let waiting = logs.get(name).map_or(0, |log| log.waiting());
                LogRoom::Takes(disks.queue.saturating_sub(waiting))
            }
        };
        let rooms = table.view.subgroups.iter().map(|spec| room(&spec.name)).collect();
        LogUpcalls { rooms, ..LogUpcalls::default() }
    }

    /// Carries out what polls have handed to logs.
    pub(super) fn carry_out_logs(&mut self, process: &mut SimProcess, upcalls: LogUpcalls) -> Checked {
        if self.scene.logs.is_none() {
            return Ok(());
        }
        let view = process.table.as_ref().expect("a member").view.clone();
        let name = |subgroup: u32| view.subgroups[subgroup as usize].name.clone();
        let LogUpcalls { records, blocked, rests, cuts, rises, .. } = upcalls;
        for (subgroup, record) in records {
            if self.broken == Broken::RecordsSkipped && self.random.one_in(30) {
                continue;
            }
            self.append(process, &name(subgroup), record)?;
        }
        for subgroup in blocked {
            if let Some(log) = process.logs.get_mut(&name(subgroup)) {
                log.is_blocked = true;
            }
        }
        for (subgroup, any) in rests {
            if let Some(ProcessLog { lack: LogLack::Older(older), .. }) = process.logs.get_mut(&name(subgroup)) {
                (older.lacks_rest, older.has_skipped) = (true, older.has_skipped || any);
            }
        }
        for (subgroup, from) in cuts {
            let name = name(subgroup);
            self.note(|| format!("process {} cuts its log {name} from {from} on", process.number));
            self.outcome.counts.log_cuts += 1;
            if self.broken == Broken::LogUncut {
                continue;
            }
            if let Some(log) = process.logs.get_mut(&name) {
                log.cut = Some((from, false));
            }
        }
        for (subgroup, rise) in rises {
            self.check_durable(process, &name(subgroup), rise)?;
        }
        let names: Vec<String> = process.logs.keys().cloned().collect();
        names.iter().for_each(|name| self.write_log(process, name));
        Ok(())
    }

    /// Appends a record to the log of a process.
    fn append(&mut self, process: &mut SimProcess, name: &str, record: DiskRecord) -> Checked {
        let of = process.roster.incarnation();
        if process.logs.contains_key(name) {
            self.outcome.counts.logged += 1;
            self.put(process, of, name, record)?;
        }
        Ok(())
    }

    /// Puts a record at the end of a log, and checks it.
    fn put(&mut self, process: &SimProcess, of: u128, name: &str, record: DiskRecord) -> Checked {
        let since = self.complete_since(process.place, name);
        let on_disk = self.places[process.place].log_disk.logs.entry(name.into()).or_default();
        let last = on_disk.last();
        on_disk.records.push(record);
        // A log lacks what lies before the view since which it says that it is complete.
        let hole =
            since.is_some_and(|since| last.is_none_or(|last| last.epoch < since) && record.position.epoch >= since);
        if self.ledger.is_given_up(process.number) {
            return Ok(());
        }
        self.orders.entry((of, name.into())).or_default().appended(process.number, last, hole, record)
    }

    /// Begins to write what waits, if the disk is idle.
    fn write_log(&mut self, process: &mut SimProcess, name: &str) {
        let (Some(disks), Some(log)) = (self.scene.logs, process.logs.get_mut(name)) else { return };
        let Some(on_disk) = self.places[process.place].log_disk.logs.get(name) else { return };
        if log.writing.is_some() || on_disk.waiting() == 0 || log.is_lacking() {
            return;
        }
        log.writing = Some(on_disk.records.len());
        let at = self.now + sync_takes(&disks, (process.place, self.is_calm), &mut self.random);
        self.push(at, ProcessEvent::LogSynced { process: process.number, name: name.into() });
    }

    /// Handles the end of a write: everything up to what it covers is on disk.
    pub(super) fn log_synced(&mut self, number: usize, name: &str) {
        let Some(place) = self.living(number).map(|process| process.place) else { return };
        let disk = &mut self.places[place].log_disk;
        if disk.full_until > self.now {
            let at = disk.full_until;
            return self.push(at, ProcessEvent::LogSynced { process: number, name: name.into() });
        }
        let fails = std::mem::take(&mut disk.fails);
        let now = self.now;
        let ignored = self.broken == Broken::SyncFailureIgnored;
        let Some(process) = self.living(number) else { return };
        let Some(log) = process.logs.get_mut(name) else { return };
        let Some(until) = log.writing.take() else { return };
        if fails && !ignored {
            process.disk_failed = true;
            return self.wake(number, now);
        }
        let on_disk = self.places[place].log_disk.logs.entry(name.into()).or_default();
        if fails {
            // The records are lost, and count as written.
            let from = on_disk.synced;
            let until = until.min(on_disk.records.len());
            let lost = on_disk.records.drain(from..until).next_back();
            if let Some(process) = self.living(number)
                && let Some(log) = process.logs.get_mut(name)
            {
                log.told = lost.map(|lost| Some(lost.position));
            }
        } else {
            // The end of the log may have been cut off meanwhile.
            on_disk.synced = on_disk.synced.max(until.min(on_disk.records.len()));
        }
        self.wake(number, now);
    }

    /// Handles the end of a cut.
    pub(super) fn log_cut(&mut self, number: usize, name: &str) {
        let now = self.now;
        let Some(process) = self.living(number) else { return };
        let place = process.place;
        let Some(log) = process.logs.get_mut(name) else { return };
        let Some((from, _)) = log.cut.take() else { return };
        (log.told, log.writing) = (None, None);
        if let Some(on_disk) = self.places[place].log_disk.logs.get_mut(name) {
            on_disk.cut_from(from);
        }
        self.wake(number, now);
    }

    /// Takes the logs of a process a step further, and tells its engines what is on disk. Returns the
    /// time of the next step.
    pub(super) fn look_after_logs(&mut self, process: &mut SimProcess) -> NextView {
        let Some(disks) = self.scene.logs else { return Ok(u64::MAX) };
        let mut wake_at = u64::MAX;
        let view = process.table.as_ref().expect("a member").view.clone();
        for (id, spec) in (0..).map(SubgroupId).zip(&view.subgroups) {
            let name = &spec.name;
            if !process.logs.contains_key(name) {
                continue;
            }
            wake_at = wake_at.min(self.catch_up(process, &view, id)?);
            let Some(log) = process.logs.get_mut(name) else { continue };
            let on_disk = self.places[process.place].log_disk.logs.entry(name.clone()).or_default();
            if let Some((from, false)) = log.cut
                && on_disk.waiting() == 0
            {
                log.cut = Some((from, true));
                let at = self.now + sync_takes(&disks, (process.place, self.is_calm), &mut self.random);
                self.push(at, ProcessEvent::LogCut { process: process.number, name: name.clone() });
                continue;
            }
            let cutting = log.cut.is_some();
            let has_room = on_disk.waiting() < disks.queue && !cutting;
            if log.is_blocked && self.broken == Broken::RoomUntold {
                continue;
            }
            let told = match self.broken == Broken::PersistedUnsynced {
                true => on_disk.last(),
                false => on_disk.on_disk(),
            };
            if log.told == Some(told) && !(log.is_blocked && has_room) {
                continue;
            }
            (log.told, log.is_blocked) = (Some(told), false);
            let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
            let Some((epoch, there)) = member.home(id).map(|(engine, there)| (engine.view().id, there)) else {
                continue;
            };
            if let Some(engine) = member.engine_of_mut(epoch) {
                engine.set_catching_up(there, log.is_lacking() || cutting);
                engine.note_persisted(there, told);
            }
            wake_at = self.now + 300;
        }
        self.show_completeness(process);
        Ok(wake_at)
    }

    /// Tells a member which of its logs are complete.
    fn show_completeness(&mut self, process: &mut SimProcess) {
        let of = process.roster.incarnation();
        let SimProcess { phase: ProcessPhase::Member(member), logs, me, .. } = process else { return };
        let completeness = |name: &str| logs.get(name).map(ProcessLog::completeness).unwrap_or_default();
        member.set_completeness(completeness);
        let view = member.view();
        let is_complete = |name: &str| completeness(name) == LogCompleteness::Complete;
        for spec in view.subgroups.iter().filter(|spec| spec.is_logged() && is_complete(&spec.name)) {
            self.complete_logs.insert((of, view.id, me.id, spec.name.clone()));
        }
    }

    /// Begins the logs of a view.
    pub(super) fn begin_logs(&mut self, process: &mut SimProcess, view: &View) -> Checked {
        if self.scene.logs.is_none() {
            return Ok(());
        }
        let (of, me) = (process.roster.incarnation(), process.me.id);
        let disk = &mut self.places[process.place].log_disk;
        let is_first = !std::mem::replace(&mut process.has_logs, true);
        let continues = disk.identity == Some((of, me));
        if is_first && !continues {
            *disk = super::disks::PlaceDisk { identity: Some((of, me)), ..Default::default() };
            disk.record =
                Some(RestartRecord::first(view.clone(), RestartRecord::unknown_hosts(view), me, view.id == ViewId(1)));
        } else if let Some(record) = &mut disk.record {
            match is_first {
                true => record.enter(view.clone(), RestartRecord::unknown_hosts(view), me),
                false => record.learn(view.clone(), RestartRecord::unknown_hosts(view), me),
            }
        }
        let is_lacking = |log: &super::disks::DiskLog| is_first && continues && log.last().is_some();
        for (id, spec) in (0..).map(SubgroupId).zip(&view.subgroups).filter(|(_, spec)| spec.is_logged()) {
            let disk = &self.places[process.place].log_disk;
            if !process.logs.contains_key(&spec.name) {
                let lacks = disk.logs.get(&spec.name).is_some_and(is_lacking);
                let last_before = disk.logs.get(&spec.name).and_then(|log| log.last());
                let lack = if lacks { LogLack::Unknown } else { LogLack::Nothing };
                self.outcome.counts.log_returns += u64::from(lacks);
                process.logs.insert(spec.name.clone(), ProcessLog { lack, last_before, ..ProcessLog::default() });
            }
            if view.epoch(id) == view.id {
                self.begin_log(process, view, id);
            }
        }
        self.show_completeness(process);
        Ok(())
    }

    /// Begins the epoch of a subgroup that begins with this view.
    fn begin_log(&mut self, process: &mut SimProcess, view: &View, id: SubgroupId) {
        let spec = &view.subgroups[id.index()];
        let is_in = view.rank_of(process.me.id).is_some_and(|rank| spec.members.contains(&rank));
        let Some(log) = process.logs.get_mut(&spec.name) else { return };
        match &mut log.lack {
            LogLack::Unknown if is_in && self.broken == Broken::CatchUpForgotten => {
                log.lack = LogLack::Nothing;
                if let Some(record) = &mut self.places[process.place].log_disk.record {
                    record.caught_up(&spec.name, log.last_before);
                }
            }
            LogLack::Unknown if is_in => log.lack = LogLack::Older(OlderRecords::before(view.id)),
            LogLack::Older(older) => (older.before, older.lacks_rest) = (view.id, false),
            LogLack::Nothing | LogLack::Unknown => {}
        }
        log.told = None;
        match is_in {
            true => log.entered = log.entered.or(Some(view.id)),
            false => log.entered = None,
        }
        log.epoch = Some(view.id);
        let holds_back = log.is_lacking() || log.cut.is_some();
        let ProcessPhase::Member(member) = &mut process.phase else { return };
        if is_in && holds_back {
            member.engine_mut().set_catching_up(id, true);
        }
    }
}
