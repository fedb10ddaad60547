//! The logs of a member: its logged subgroups, their files, and the thread that writes them.
//!
//! The polling thread copies stable messages into chunks, in the upcall [`SubgroupLog::take`], and
//! never waits for the disk. The thread of [`Writer`] commits them and sends a notice. The polling
//! thread then reports to the engine what is on disk. A record is a [`LoggedMessage`].
use crate::config::{LogSettings, Terms};
use crate::control_plane::{ControlPlane, RestartDriver};
use crate::error::{Ended, JoinError};
use crate::shared::{Notices, lock};
use spindle_core::control::{Incarnation, RestartLog, RestartRecord};
use spindle_core::{MemberId, Position, Record, Records, Rows, SubgroupSpec, View, ViewId};
use spindle_log::{
    Appender, DataDirectory, Error, FileDisk, Identity, LoggedMessage, PayloadKind, Retention, Store, Version, Writer,
};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{debug, warn};

mod durable_frontier;
mod old;

pub(crate) use durable_frontier::{Copies, DurabilityState, DurableFrontier, Found};
pub(crate) use old::OldLogs;

/// The tracing target of logs.
const TARGET: &str = "spindle::log";
/// The pause between two looks for what can be pruned.
const PRUNE_EVERY: Duration = Duration::from_secs(1);
/// The directory of the logs in the data directory.
const DIRECTORY: &str = "log";

/// The thread that writes the logs of this member.
pub(crate) struct Logs {
    /// Dropped first: the thread commits what waits, and ends.
    writer: Writer,
    settings: LogSettings,
    /// When the logs were pruned last.
    pruned: Instant,
    /// The logs that no subgroup's handles have taken yet, by name.
    vacant: BTreeMap<String, Appender>,
    me: MemberId,
    /// The newest view that is to be on disk.
    record: RestartRecord,
    /// The view that the thread has to write, if it had no room for the order.
    unordered: bool,
    /// The newest view that is on disk, or why it is not.
    recorded: Arc<Mutex<Result<ViewId, Error>>>,
    notices: Arc<Notices>,
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}

impl Logs {
    /// Opens or creates the logs of all logged subgroups of `view`, also those that this member is
    /// not in: it may enter them with a view that must not wait for a disk. A new log gets its
    /// segments when this member enters the subgroup. `None` if no subgroup is logged. When this
    /// returns, the view is on disk, and may be shown to others.
    ///
    /// The logs of an earlier process of this member continue.
    ///
    /// # Errors
    /// [`JoinError::NoDataDir`], [`JoinError::LogDir`], [`JoinError::Log`], [`JoinError::OldLogs`],
    /// [`JoinError::OtherIncarnation`], [`JoinError::LogBehind`].
    pub(crate) fn open(
        terms: &Terms,
        view: &View,
        control_plane: &mut ControlPlane,
    ) -> Result<Option<Logs>, JoinError> {
        let (me, incarnation) = (control_plane.me, control_plane.incarnation());
        let old = control_plane.restart().and_then(RestartDriver::take_logs);
        let names: Vec<&String> =
            view.subgroups.iter().filter(|spec| spec.is_logged()).map(|spec| &spec.name).collect();
        let Some(first) = names.first() else { return Ok(None) };
        let Some(data_dir) = &terms.data_dir else { return Err(JoinError::NoDataDir { subgroup: (*first).clone() }) };
        let (mut store, record) = match old {
            Some((old, _)) if old.incarnation() != incarnation => {
                let (path, theirs) = (old.path().clone(), Incarnation(old.incarnation()));
                return Err(JoinError::OtherIncarnation { path, theirs, ours: Incarnation(incarnation) });
            }
            Some((old, longest)) => {
                let (store, mut record, states) = old.into_store();
                let lacks = |log: &&RestartLog| {
                    log.state.last.is_some() && states.get(&log.state.name).and_then(|own| own.last) != log.state.last
                };
                if let Some(log) = longest.iter().flatten().find(lacks) {
                    return Err(JoinError::LogBehind {
                        subgroup: log.state.name.clone(),
                        holders: log.holders.clone(),
                    });
                }
                if record.view.id != view.id {
                    record.learn(view.clone(), me);
                }
                (store, record)
            }
            None => {
                let path = data_dir.join(DIRECTORY);
                let failed = |source| JoinError::LogDir { path: path.clone(), source };
                fs::create_dir_all(&path).map_err(failed)?;
                // The new directory is on disk before anything in it is.
                sync(data_dir).map_err(failed)?;
                let disk = Arc::new(FileDisk::new(&path).map_err(failed)?);
                if DataDirectory::identity_of(&*disk)?.is_some() {
                    return Err(JoinError::OldLogs { path });
                }
                let payloads = PayloadKind::Messages;
                let identity = Identity { group: terms.group.clone(), member: me.0, incarnation, payloads };
                let store = Store::open(disk, &identity, terms.log.files())?;
                (store, RestartRecord::first(view.clone(), me, view.id == ViewId(1)))
            }
        };
        let mut numbers = vec![];
        for name in names {
            let (number, _) = store.open_named(name, &mut |_| {})?;
            numbers.push((name.clone(), number));
        }
        old::write(&mut store, &record)?;
        let notices = Arc::clone(control_plane.notices());
        let told = Arc::clone(&notices);
        let writer = Writer::start(store, move |_| told.ring())?;
        let appenders = numbers.into_iter().map(|(name, number)| Ok((name, writer.appender(number)?)));
        let vacant = appenders.collect::<Result<_, Error>>()?;
        debug!(target: TARGET, view = view.id.0, "logs opened");
        let recorded = Arc::new(Mutex::new(Ok(view.id)));
        let (settings, pruned) = (terms.log, Instant::now());
        Ok(Some(Logs { writer, settings, pruned, vacant, me, record, unordered: false, recorded, notices }))
    }

    /// Orders to write `view`, which was decided, to the disk.
    pub(crate) fn record(&mut self, view: &View) {
        self.record.learn(view.clone(), self.me);
        self.unordered = true;
        self.order();
    }

    fn order(&mut self) {
        let (record, recorded, notices) = (self.record.clone(), Arc::clone(&self.recorded), Arc::clone(&self.notices));
        self.unordered = !self.writer.post(move |store| {
            let written = old::write(store, &record).map(|()| record.view.id);
            *lock(&recorded) = written;
            notices.ring();
        });
    }

    /// Whether the view that was [recorded](Self::record) last is on disk.
    ///
    /// # Errors
    /// [`Ended::Log`]: it will not be.
    pub(crate) fn is_recorded(&mut self) -> Result<bool, Ended> {
        if self.unordered {
            self.order();
        }
        match &*lock(&self.recorded) {
            Ok(view) => Ok(*view == self.record.view.id),
            Err(error) => Err(Ended::Log { subgroup: "the view".to_string(), reason: error.to_string() }),
        }
    }

    /// Lets the thread prune the logs, at intervals.
    pub(crate) fn prune(&mut self) {
        let LogSettings { bytes_max, age_max, .. } = self.settings;
        if (bytes_max.is_none() && age_max.is_none()) || self.pruned.elapsed() < PRUNE_EVERY {
            return;
        }
        self.pruned = Instant::now();
        // The clocks of records are times, or later.
        let oldest =
            age_max.map(|age| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(age));
        let clock_min = oldest.map(|oldest| u64::try_from(oldest.as_nanos()).unwrap_or(u64::MAX));
        let rule = Retention { bytes_max, clock_min, snapshot: None };
        // If the thread has too much to do, it prunes the next time. A failure stops the logs, and the
        // next append reports it.
        self.writer.post(move |store| {
            if let Err(error) = store.retain(&rule) {
                warn!(target: TARGET, %error, "logs are not pruned");
            }
        });
    }

    /// Takes the log of a subgroup, once.
    pub(crate) fn take(&mut self, name: &str) -> Option<SubgroupLog> {
        self.vacant.remove(name).map(SubgroupLog::new)
    }
}

fn sync(path: &Path) -> std::io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// The log of one subgroup, at the polling thread.
pub(crate) struct SubgroupLog {
    appender: Appender,
    /// Whether the subgroup is logged: it may be the successor of a logged one.
    is_active: bool,
    /// For applications that wait for messages to become durable.
    pub(crate) frontier: Arc<DurableFrontier>,
    /// The newest message that was known to be on disk at the last look.
    on_disk: Option<Version>,
    /// Whether it had no room at the last look.
    was_blocked: bool,
    /// Whether the log had no room for a message since the last look.
    is_blocked: bool,
    failure: Option<Error>,
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
    /// The bytes that wait for the disk.
    pub queued_bytes: u64,
    /// Whether the disk has no space for them.
    pub is_full: bool,
}

impl SubgroupLog {
    fn new(appender: Appender) -> SubgroupLog {
        SubgroupLog {
            appender,
            is_active: false,
            frontier: Arc::default(),
            on_disk: None,
            was_blocked: false,
            is_blocked: false,
            failure: None,
        }
    }

    /// Begins the epoch of the subgroup that begins with the view `epoch`: `spec`, if this member is
    /// in it.
    pub(crate) fn begin(&mut self, epoch: ViewId, spec: Option<&SubgroupSpec>) {
        self.is_active = spec.is_some_and(SubgroupSpec::is_logged);
        self.frontier.begin(epoch, spec);
        if self.is_active {
            self.appender.expect_records();
        }
        // The engine of the epoch was made before the last look at what is on disk.
        self.on_disk = None;
    }

    /// Copies messages on their way to the disk, as many as there is room for.
    #[cold]
    #[inline(never)]
    pub(crate) fn take<R: Rows>(&mut self, records: &mut Records<'_, R>) {
        let is_rest = records.is_rest();
        records.offer(|record| match self.append(record, is_rest) {
            Ok(()) => true,
            Err(error) if error.is_transient() => {
                self.is_blocked = true;
                false
            }
            Err(error) => {
                self.failure = Some(error);
                false
            }
        });
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
        Ok(Some(on_disk.map(|version| Position { epoch: ViewId(version.epoch), sequence: version.sequence })))
    }

    /// Returns the status, if the subgroup is logged; the frontiers are those of the engine.
    pub(crate) fn status(&self, persisted: Option<u64>, durable: Option<u64>) -> Option<LogStatus> {
        let (queued_bytes, is_full) = (self.appender.queued_bytes(), self.appender.is_full());
        self.is_active.then_some(LogStatus { persisted, durable, queued_bytes, is_full })
    }
}
