//! The log of one subgroup, at the polling thread.
use super::access::{CompleteSince, LogAccess};
use super::epoch_cut::EpochCut;
use super::meter::{LogMeter, LogMeters};
use super::{CatchUpStatus, DurableFrontier, Lack, Replay, TARGET, position};
use crate::error::Ended;
use crate::histogram::Histogram;
use crate::shared::Notices;
use spindle_core::control::LogCompleteness;
use spindle_core::multicast::stats::Undurable;
use spindle_core::{LogExtent, Position, Record, Records, Rows, SubgroupSpec, ViewId};
use spindle_fabric::LogClock;
use spindle_log::{Appender, Error, LoggedMessage, Readers, Snapshots, Version};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// The log of one subgroup, at the polling thread.
pub(crate) struct SubgroupLog {
    pub(super) appender: Appender,
    /// For other threads.
    pub(crate) access: LogAccess,
    /// Whether the subgroup is logged: it may be the successor of a logged one.
    is_active: bool,
    /// The messages that the log has got.
    taken: u64,
    /// The newest epoch of them, and how many are of it.
    of_epoch: (ViewId, u64),
    /// For applications that wait for messages to become durable.
    pub(crate) frontier: Arc<DurableFrontier>,
    /// The newest message that was known to be on disk at the last look.
    pub(super) on_disk: Option<Version>,
    /// Whether it had no room at the last look.
    was_blocked: bool,
    /// Whether the log had no room for a message since the last look.
    is_blocked: bool,
    failure: Option<Error>,
    /// The end of it that has to be removed.
    cut: Option<EpochCut>,
    notices: Arc<Notices>,
    /// Whether it lacks records of older epochs.
    pub(super) lack: Lack,
    /// The last record that an earlier process has written, and whether all later ones of older epochs
    /// have come from others.
    pub(super) last_before: Option<Position>,
    pub(super) has_all: bool,
    /// After it has caught up.
    pub(super) completeness: LogCompleteness,
    /// Whether nothing is missing any more of what is replayed.
    pub(super) may_replay: bool,
    /// The first epoch in which this process is in the subgroup.
    entered: Option<ViewId>,
    /// Whether its messages have to be given to the handler, and how far that is.
    pub(crate) replay: Option<Replay>,
    meters: LogMeters,
    /// The clock of this member.
    clock: LogClock,
}

impl fmt::Debug for SubgroupLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubgroupLog").field("on_disk", &self.on_disk).finish_non_exhaustive()
    }
}

/// The state of one member's log of a subgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LogStatus {
    /// How many sequence numbers of the epoch are on this member's disk. `None` while messages of
    /// older epochs may not be.
    pub persisted: Option<u64>,
    /// How many are on the disks of all members. `None` while messages of older epochs may not be.
    /// It does not rise while the subgroup has fewer members than
    /// [`durable_copies`](crate::Durability::Logged).
    pub durable: Option<u64>,
    /// The log has all messages before this position, on their way to the disk. Nulls take sequence
    /// numbers, too.
    pub taken: Position,
    /// All messages from `taken` on have later clocks than this one, in ns since 1970, and none before
    /// it has one.
    pub clock: u64,
    /// How many sequence numbers all members have received that are not delivered, because they are not
    /// durable. 0 unless [that is required](crate::Durability::LoggedBeforeDelivery).
    pub undelivered: u64,
    /// Whether these wait for more members, rather than for disks.
    pub lacks_members: bool,
    /// The bytes that wait for the disk.
    pub queued_bytes: u64,
    /// Whether the disk has no space for them.
    pub is_full: bool,
    /// How far the log is if it lacks records, and gets them from other members. Meanwhile nothing
    /// counts as persisted, and messages wait in the rings.
    pub catching_up: Option<CatchUpStatus>,
    /// How long the commits of this log took: the write and the sync of one or more messages.
    pub commits: Histogram,
    /// The bytes of its files, with space for messages to come.
    pub disk_bytes: u64,
}

impl SubgroupLog {
    /// Returns the log that continues with `appender`. It may lack records of older epochs. `replays`
    /// says that the member was started again. `last_before` was its last record before it got any from
    /// others.
    pub(super) fn new(
        name: &str,
        appender: Appender,
        (lacks, replays, last_before): (bool, bool, Option<Position>),
        (snapshots, since, meters, notices): (Snapshots, CompleteSince, LogMeters, Arc<Notices>),
        clock: LogClock,
    ) -> SubgroupLog {
        let (frontier, writer) = (Arc::default(), (appender.handle(), appender.subgroup()));
        let access = LogAccess::new(name, (appender.readers(), snapshots), writer, Arc::clone(&frontier), since);
        SubgroupLog {
            access,
            meters,
            clock,
            last_before,
            has_all: false,
            completeness: LogCompleteness::default(),
            may_replay: !lacks,
            entered: None,
            replay: replays.then_some(Replay::Due),
            lack: if lacks { Lack::Unknown } else { Lack::Nothing },
            appender,
            is_active: false,
            taken: 0,
            of_epoch: (ViewId(0), 0),
            frontier,
            on_disk: None,
            was_blocked: false,
            is_blocked: false,
            failure: None,
            cut: None,
            notices,
        }
    }

    #[cfg(test)]
    pub(crate) fn appender_mut(&mut self) -> &mut Appender {
        &mut self.appender
    }

    /// Returns what the replay of all records before the first epoch of this process reads, once these
    /// are here. `None`: not yet.
    pub(crate) fn replayed_before(&self) -> Option<ViewId> {
        self.entered.filter(|_| self.may_replay)
    }

    /// The last record before those that have come from others.
    pub(crate) fn last_before(&self) -> Option<Position> {
        self.last_before
    }

    pub(crate) fn readers(&self) -> Readers {
        self.appender.readers()
    }

    /// How many records have come from other members.
    fn fetched(&self) -> Option<u64> {
        self.lack.status().map(|status| status.records)
    }

    /// Returns the last record before those that have come from others, once all of them have.
    pub(crate) fn caught_up_from(&self) -> Option<Option<Position>> {
        self.has_all.then_some(self.last_before)
    }

    /// Begins the epoch of the subgroup that begins with the view `epoch`: `spec`, if this member is
    /// in it. Returns whether the log catches up, or is being cut.
    pub(crate) fn begin(&mut self, epoch: ViewId, spec: Option<&SubgroupSpec>) -> bool {
        self.lack.begin(epoch, spec.is_some());
        if spec.is_some() {
            self.entered.get_or_insert(epoch);
        }
        self.is_active = spec.is_some_and(SubgroupSpec::is_logged);
        self.frontier.begin(epoch, spec);
        if self.is_active {
            self.appender.expect_records();
        }
        // The engine of the epoch was made before the last look at what is on disk.
        self.on_disk = None;
        self.lack.is_some() || self.is_cutting()
    }

    /// Copies messages on their way to the disk, as many as there is room for.
    #[cold]
    #[inline(never)]
    pub(crate) fn take<R: Rows>(&mut self, records: &mut Records<'_, R>) {
        if self.lack.is_some() {
            // Other members send them with the records before them.
            return self.lack.take(records);
        }
        if self.is_cutting() {
            // They stay in the rings.
            return;
        }
        let (is_rest, mut latest) = (records.is_rest(), 0);
        records.offer(|record| match self.append(record, is_rest) {
            Ok(()) => {
                latest = latest.max(record.time);
                let epoch = record.position.epoch;
                let before = if self.of_epoch.0 == epoch { self.of_epoch.1 } else { 0 };
                (self.taken, self.of_epoch) = (self.taken + 1, (epoch, before + 1));
                true
            }
            Err(error) if error.is_transient() => {
                self.is_blocked = true;
                false
            }
            Err(error) => {
                self.failure = Some(error);
                false
            }
        });
        self.clock.note(latest);
        self.flush();
    }

    fn append(&mut self, record: &Record<'_>, is_rest: bool) -> Result<(), Error> {
        let prefix = LoggedMessage::prefix(record.message.sender_id.0, record.time);
        let parts = [&prefix[..], record.message.payload];
        let version = Version::new(record.position.epoch.0, record.position.sequence);
        match is_rest {
            true => self.appender.append_parts(version, record.clock, &parts),
            false => self.appender.try_append_parts(version, record.clock, &parts),
        }
    }

    /// Hands over what was copied. If the thread has too much to do, the next look does so.
    fn flush(&mut self) {
        if let Err(error) = self.appender.flush() {
            self.failure.get_or_insert(error);
        }
    }

    /// Removes the records from `from` on, which are not part of their epoch, once all that the log has
    /// taken is on disk.
    pub(crate) fn cut_from(&mut self, from: Position) {
        debug!(target: TARGET, subgroup = self.appender.subgroup(), from = %from, "the log is cut: its epoch has ended");
        self.cut = Some(EpochCut::at(from));
    }

    /// Whether records wait to be removed.
    pub(crate) fn is_cutting(&self) -> bool {
        self.cut.is_some()
    }

    /// Continues a cut of the end of the log. Returns whether it is done with this call.
    ///
    /// # Errors
    /// [`Ended::Log`]: nothing more reaches the disk.
    pub(crate) fn look_after_cut(&mut self, name: &str) -> Result<bool, Ended> {
        let Some(cut) = &mut self.cut else { return Ok(false) };
        let failed = |error: Error| Ended::Log { subgroup: name.to_string(), reason: error.to_string() };
        let Some(appender) = cut.go_on(&self.appender, &self.notices).map_err(failed)? else { return Ok(false) };
        (self.appender, self.on_disk, self.cut) = (appender, None, None);
        (self.taken, self.of_epoch) = (0, (ViewId(0), 0));
        Ok(true)
    }

    /// Looks at what the thread has done. Returns the newest message that is on disk, if the engine
    /// has to know it, or that there is room again.
    ///
    /// # Errors
    /// [`Ended::Log`]: nothing more reaches the disk.
    pub(crate) fn look(&mut self, name: &str) -> Result<Option<Option<Position>>, Ended> {
        self.flush();
        if let Some(error) = self.failure.as_ref().or(self.appender.failure()) {
            return Err(Ended::Log { subgroup: name.to_string(), reason: error.to_string() });
        }
        let is_full = self.appender.is_full();
        if is_full && self.is_blocked && !self.was_blocked {
            warn!(target: TARGET, subgroup = name, queued = self.appender.queued_bytes(), "the disk has no space for the log");
        }
        self.was_blocked = is_full && self.is_blocked;
        let on_disk = self.appender.durable();
        let has_room = std::mem::take(&mut self.is_blocked);
        if on_disk == self.on_disk && !has_room {
            return Ok(None);
        }
        self.on_disk = on_disk;
        Ok(Some(on_disk.map(position)))
    }

    /// The messages on disk.
    pub(crate) fn synced(&self) -> u64 {
        self.appender.durable_records() + self.fetched().unwrap_or(0)
    }

    /// The messages that are not on disk, of the `delivered` ones of `epoch` and of those before.
    pub(crate) fn unsynced(&self, epoch: ViewId, delivered: u64) -> u64 {
        let taken = if self.of_epoch.0 == epoch { self.of_epoch.1 } else { 0 };
        let untaken = if self.is_active { delivered.saturating_sub(taken) } else { 0 };
        let waiting = self.taken.saturating_sub(self.appender.durable_records()) + untaken;
        // A log that catches up lacks messages, whose number is not known. One that is cut takes none.
        waiting.max(u64::from(self.fetched().is_some() || self.is_cutting()))
    }

    /// The error of a member that has waited so long for this log to be on disk.
    pub(crate) fn stalled(&self, subgroup: &str, unsynced: u64, waited: Duration) -> Ended {
        let subgroup = subgroup.to_string();
        let waited_s = u32::try_from(waited.as_secs()).unwrap_or(u32::MAX);
        match self.appender.is_full() || self.lack.status().is_some_and(|status| status.is_full) {
            true => Ended::LogFull { subgroup, unsynced, waited_s },
            false => {
                let reason =
                    format!("the disk has taken nothing for {waited_s} s, and {unsynced} messages are not on it");
                Ended::Log { subgroup, reason }
            }
        }
    }

    /// Returns the status, if the subgroup is logged; the frontiers are those of the engine.
    pub(crate) fn status(
        &self,
        extent: LogExtent,
        persisted: Option<u64>,
        durable: Option<u64>,
        undurable: Option<Undurable>,
    ) -> Option<LogStatus> {
        let LogExtent { taken, clock } = extent;
        let catching_up = self.lack.status();
        let is_full = self.appender.is_full() || catching_up.is_some_and(|status| status.is_full);
        let queued_bytes = self.appender.queued_bytes();
        let LogMeter { commits, disk_bytes } = self.meters.read(self.appender.subgroup());
        let undelivered = undurable.map_or(0, |undurable| undurable.sequence_numbers);
        let lacks_members = undurable.is_some_and(|undurable| undurable.lacks_members);
        let status = LogStatus {
            persisted,
            durable,
            taken,
            clock,
            undelivered,
            lacks_members,
            queued_bytes,
            is_full,
            catching_up,
            commits,
            disk_bytes,
        };
        self.is_active.then_some(status)
    }
}
