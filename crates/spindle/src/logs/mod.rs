//! The logs of a member: its logged subgroups, their files, and the thread that writes them.
//!
//! The polling thread copies stable messages into chunks, in the upcall [`SubgroupLog::take`], and
//! never waits for the disk. The thread of [`Writer`] commits them and sends a notice. The polling
//! thread then reports to the engine what is on disk. A record is a
//! [`LoggedMessage`](spindle_log::LoggedMessage).
use crate::config::Terms;
use crate::control_plane::ControlPlane;
use crate::error::{Ended, JoinError, LogEnds};
use crate::old_logs::{DIRECTORY, OldLog, position, version, write, write_soon};
use crate::shared::{Notices, lock};
use retention::{PRUNE_EVERY, Pruning};
use spindle_core::control::{Incarnation, LogState, RestartRecord};
use spindle_core::{Ballot, MemberId, Position, View, ViewId};
use spindle_log::{DataDirectory, Error, FileDisk, Identity, Outcome, PayloadKind, Store, Writer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

mod access;
#[cfg(test)]
mod catch_up_tests;
mod catching_up;
mod directory;
mod durable_frontier;
mod epoch_cut;
mod fetching;
mod lacking;
mod meter;
mod records;
mod replay;
mod retention;
mod serving;
mod subgroup_log;
#[cfg(test)]
mod tests;

use access::CompleteSince;
pub use access::LogAccess;
pub use catching_up::CatchUpStatus;
pub(crate) use catching_up::LogCatchUp;
use lacking::Lack;
use meter::LogMeters;
pub(crate) use replay::Replay;
pub(crate) use serving::{RecordServer, RecordSource};

pub(crate) use directory::check;
pub(crate) use durable_frontier::{Copies, DurabilityState, DurableFrontier, Found};
pub use subgroup_log::LogStatus;
pub(crate) use subgroup_log::SubgroupLog;

/// The tracing target of logs.
const TARGET: &str = "spindle::log";

/// The thread that writes the logs of this member.
pub(crate) struct Logs {
    /// `None` once it is dropped.
    writer: Option<Writer>,
    /// The logs that no subgroup's handles have taken yet, by name.
    vacant: BTreeMap<String, SubgroupLog>,
    me: MemberId,
    /// As it is to be on disk.
    record: RestartRecord,
    /// How many orders to write it there have been, and those of them that someone waits for.
    orders: u64,
    awaited: AwaitedOrders,
    /// By the name of a log, for other threads.
    since: BTreeMap<String, CompleteSince>,
    /// Whether the thread had no room for the newest order.
    unordered: bool,
    /// The newest order that was carried out, or why it was not.
    written: Arc<Mutex<Result<u64, Error>>>,
    /// The newest order that was carried out while newer ones wait, and since when.
    waiting: Option<(u64, Instant)>,
    notices: Arc<Notices>,
    /// How many messages were on disk, and since when no more are, while the group finishes.
    stalled: Option<(u64, Instant)>,
    /// How long that may last.
    wait_max: Duration,
}

/// The orders to write the record that have to be carried out before something else happens.
#[derive(Clone, Copy, Default)]
struct AwaitedOrders {
    /// The newest view.
    view: u64,
    /// The newest vote, and its ballot.
    vote: Option<(u64, Ballot)>,
    /// That this member writes nothing more.
    end_notice: Option<u64>,
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
    /// The logs of an earlier process of this member continue. If the group lives, they get the records that
    /// they lack from the other members.
    ///
    /// # Errors
    /// [`JoinError::OldCopy`], [`JoinError::NoDataDir`], [`JoinError::LogDir`], [`JoinError::Log`], [`JoinError::OldLogs`],
    /// [`JoinError::OtherIncarnation`].
    pub(crate) fn open(
        terms: &Terms,
        view: &View,
        control_plane: &mut ControlPlane,
    ) -> Result<Option<Logs>, JoinError> {
        let (me, incarnation) = (control_plane.me, control_plane.incarnation());
        let (old, restart) = control_plane.take_old_logs().unzip();
        // `None`: the group lives, or is new.
        let restart: Option<Vec<LogState>> = restart.flatten();
        let names: Vec<&String> =
            view.subgroups.iter().filter(|spec| spec.is_logged()).map(|spec| &spec.name).collect();
        let Some(first) = names.first() else { return Ok(None) };
        let Some(data_dir) = &terms.data_dir else { return Err(JoinError::NoDataDir { subgroup: (*first).clone() }) };
        let mut old_logs: BTreeMap<String, (u32, bool, Option<Position>)> = BTreeMap::new();
        let replays = old.is_some();
        let hosts = control_plane.roster().hosts_of(view);
        let (mut store, record) = match old {
            Some(old) if old.incarnation() != incarnation => {
                let (path, theirs) = (old.path().clone(), Incarnation(old.incarnation()));
                return Err(JoinError::OtherIncarnation { path, theirs, ours: Incarnation(incarnation) });
            }
            Some(old) => {
                control_plane.hold_end_notice();
                let path = old.path().clone();
                let (mut store, mut record, states) = old.into_store()?;
                for (name, OldLog { number, state: own, begin }) in states {
                    if let Some(log) = restart.iter().flatten().find(|log| log.name == name)
                        && is_in(view, me, &name)
                    {
                        if own.last < log.last {
                            let ends = Box::new(LogEnds { found: own.last, needed: log.last });
                            return Err(JoinError::OldCopy { path, subgroup: name, ends });
                        }
                        // Records have come from a process that is not in the view.
                        store.log(number)?.cut_after(log.last.map(version))?;
                    }
                    // The other members of a living group have logged more.
                    old_logs.insert(name, (number, restart.is_none() && own.last.is_some(), begin));
                }
                // The members that restart the group have the view on disk.
                if restart.is_none() {
                    record.enter(view.clone(), hosts, me);
                }
                // This process has said nothing yet.
                record.said_last = false;
                (store, record)
            }
            None => {
                let path = data_dir.join(DIRECTORY);
                let failed = |source| JoinError::LogDir { path: path.clone(), source };
                let disk = Arc::new(FileDisk::new(&path).map_err(failed)?);
                if DataDirectory::identity_of(&*disk)?.is_some() {
                    return Err(JoinError::OldLogs { path });
                }
                let payloads = PayloadKind::Messages;
                let identity = Identity { group: terms.group.clone(), member: me.0, incarnation, payloads };
                let store = Store::open(disk, &identity, terms.log.files())?;
                (store, RestartRecord::first(view.clone(), hosts, me, view.id == ViewId(1)))
            }
        };
        let mut numbers = vec![];
        for name in names {
            // Old logs are open already.
            let (number, lacks, begin) = match old_logs.get(name) {
                Some(old) => *old,
                None => (store.open_named(name, &mut |_| {})?.0, false, None),
            };
            numbers.push((name.clone(), number, (lacks, begin)));
        }
        // From now on a restart counts on this process.
        control_plane.hold_end_notice();
        write(&mut store, &record)?;
        let snapshots = numbers.iter().map(|(_, number, _)| store.snapshots(*number));
        let snapshots = snapshots.collect::<Result<Vec<_>, Error>>()?;
        let notices = Arc::clone(control_plane.notices());
        let (told, meters) = (Arc::clone(&notices), LogMeters::default());
        for (_, number, _) in &numbers {
            meters.note_size(*number, store.log(*number)?.disk_bytes());
        }
        let metered = meters.clone();
        let report = move |outcome: Outcome| {
            metered.note(&outcome);
            told.ring();
        };
        let writer = Writer::start(store, report)?;
        let (mut logs, mut vacant, mut since) = (vec![], BTreeMap::new(), BTreeMap::new());
        for ((name, number, (lacks, begin)), snapshots) in numbers.into_iter().zip(snapshots) {
            let (appender, complete_since) = (writer.appender(number)?, CompleteSince::default());
            let shared = (snapshots, complete_since.clone(), meters.clone(), Arc::clone(&notices));
            let clock = terms.clock.clone();
            let log = SubgroupLog::new(&name, appender, (lacks, replays, begin), shared, clock);
            logs.push((number, Arc::clone(&log.frontier)));
            since.insert(name.clone(), complete_since);
            vacant.insert(name, log);
        }
        if terms.log.bytes_max.is_some() || terms.log.age_max.is_some() {
            let (pruning, clock) = (Pruning { settings: terms.log, logs }, terms.clock.clone());
            // A clock that steps ahead must not make all records old.
            writer.keep_up(PRUNE_EVERY, move |store| pruning.prune(store, Duration::from_nanos(clock.now())))?;
        }
        debug!(target: TARGET, view = view.id.0, "logs opened");
        let (orders, awaited, written) = (0, AwaitedOrders::default(), Arc::new(Mutex::new(Ok(0))));
        let (writer, unordered, stalled, wait_max) = (Some(writer), false, None, terms.log.wait_max);
        let mut logs = Logs {
            writer,
            vacant,
            me,
            record,
            orders,
            awaited,
            since,
            unordered,
            written,
            waiting: None,
            notices,
            stalled,
            wait_max,
        };
        logs.share_origins();
        Ok(Some(logs))
    }

    /// Orders to write `view` on these hosts, which was decided, to the disk.
    pub(crate) fn record(&mut self, view: &View, hosts: Vec<u128>) {
        self.record.learn(view.clone(), hosts, self.me);
        self.share_origins();
        // A vote in the view before means nothing in this one, whose ballots begin anew.
        self.awaited = AwaitedOrders { view: self.order_next(), ..AwaitedOrders::default() };
    }

    /// Orders to write to the disk that this member has accepted `view` on these hosts, if that
    /// [matters](RestartRecord::has_smaller_quorums).
    pub(crate) fn accept(&mut self, ballot: Ballot, view: View, hosts: Vec<u128>) {
        let matters = self.record.has_smaller_quorums();
        self.record.accept(ballot, view, hosts);
        self.awaited.vote = Some((self.order_if(matters), ballot));
    }

    /// Orders to write to the disk that this process writes nothing more to the others, once, if that
    /// [matters](RestartRecord::has_smaller_quorums). Returns whether it may say so.
    ///
    /// # Errors
    /// [`Ended::Log`]: it will not be on disk.
    pub(crate) fn say_last(&mut self) -> Result<bool, Ended> {
        let order = match self.awaited.end_notice {
            Some(order) => order,
            None => {
                self.record.said_last = self.record.has_smaller_quorums();
                self.order_if(self.record.said_last)
            }
        };
        self.awaited.end_notice = Some(order);
        Ok(order <= self.written()?)
    }

    /// Writes to the disk that this process, which ends, writes nothing more to the others, in a group that may
    /// span hosts. Then it may say so.
    pub(crate) fn end(&mut self, control_plane: &ControlPlane) {
        let matters = control_plane.net().is_some() || self.record.has_smaller_quorums();
        if !matters || self.write_end_notice() {
            control_plane.allow_end_notice();
        }
    }

    /// Returns whether it is on disk.
    fn write_end_notice(&mut self) -> bool {
        self.record.said_last = true;
        self.writer.as_ref().is_some_and(|writer| write_soon(writer, self.record.clone()))
    }

    /// Returns the ballot that was [accepted](Self::accept) last, once, when that is on disk.
    ///
    /// # Errors
    /// [`Ended::Log`]: it will not be.
    pub(crate) fn take_accepted(&mut self) -> Result<Option<Ballot>, Ended> {
        let written = self.written()?;
        Ok(self.awaited.vote.take_if(|(order, _)| *order <= written).map(|(_, ballot)| ballot))
    }

    /// Orders to write the record if that matters. Returns the number of the order, which is 0 if it does not: it
    /// counts as carried out.
    fn order_if(&mut self, matters: bool) -> u64 {
        if matters { self.order_next() } else { 0 }
    }

    /// Orders to write the record, and returns the number of the order.
    fn order_next(&mut self) -> u64 {
        self.orders += 1;
        self.order();
        self.orders
    }

    fn order(&mut self) {
        let (record, written, notices) = (self.record.clone(), Arc::clone(&self.written), Arc::clone(&self.notices));
        let number = self.orders;
        let order = move |store: &mut Store| {
            let result = write(store, &record).map(|()| number);
            *lock(&written) = result;
            notices.ring();
        };
        self.unordered = !self.writer.as_ref().is_some_and(|writer| writer.post(order));
    }

    /// Whether the view that was [recorded](Self::record) last is on disk.
    ///
    /// # Errors
    /// [`Ended::Log`]: it will not be.
    pub(crate) fn is_recorded(&mut self) -> Result<bool, Ended> {
        Ok(self.awaited.view <= self.written()?)
    }

    /// Returns the number of the newest order that was carried out.
    ///
    /// # Errors
    /// [`Ended::Log`]: the next one can't be, or has waited for [too long](crate::LogSettings::wait_max).
    fn written(&mut self) -> Result<u64, Ended> {
        self.write_record();
        let failed = |reason: String| Ended::Log { subgroup: "the view".to_string(), reason };
        let number = lock(&self.written).as_ref().copied().map_err(|error| failed(error.to_string()))?;
        if number >= self.orders {
            self.waiting = None;
            return Ok(number);
        }
        let now = Instant::now();
        let since = match self.waiting {
            Some((before, since)) if before == number => since,
            _ => now,
        };
        self.waiting = Some((number, since));
        match now.duration_since(since) >= self.wait_max {
            true => Err(failed(format!("the disk has taken nothing for {} s", self.wait_max.as_secs()))),
            false => Ok(number),
        }
    }

    /// Notes that the log of a subgroup has got all records after `last` from a complete log.
    pub(crate) fn caught_up(&mut self, name: &str, last: Option<Position>) {
        self.record.caught_up(name, last);
        self.share_origins();
        self.order_next();
    }

    /// Shows other threads since when the logs are complete.
    fn share_origins(&mut self) {
        self.since.iter().for_each(|(name, since)| since.set(self.complete_since(name)));
    }

    /// The view since which the log of a subgroup has all messages; `None` if it has all.
    pub(crate) fn complete_since(&self, name: &str) -> Option<ViewId> {
        self.record.complete_since(name)
    }

    /// The view before which `log` lacks messages as a source for others; `None`: it lacks none. While it
    /// catches up, only a gap before the records that have come counts.
    pub(crate) fn gap_before(&self, name: &str, log: &SubgroupLog) -> Option<ViewId> {
        match log.is_catching_up() {
            true => self.record.gap_before(name, log.last_before()),
            false => self.complete_since(name),
        }
    }

    /// Notes what is written, if more was ordered.
    ///
    /// # Errors
    /// [`Ended::Log`]: it will not be.
    pub(crate) fn look_after_record(&mut self) -> Result<(), Ended> {
        if self.unordered || self.waiting.is_some() {
            self.written()?;
        }
        Ok(())
    }

    /// Orders to write the record again, if the thread had no room for the order.
    fn write_record(&mut self) {
        if self.unordered {
            self.order();
        }
    }

    /// Takes the log of a subgroup, once.
    pub(crate) fn take(&mut self, name: &str) -> Option<SubgroupLog> {
        self.vacant.remove(name)
    }

    /// Notes how many messages are on disk, while the group waits for the rest of them: `None` if it
    /// does not. Returns how long there have been no more, if that is too long.
    pub(crate) fn note_wait(&mut self, synced: Option<u64>) -> Option<Duration> {
        let now = Instant::now();
        self.stalled = synced.map(|synced| match self.stalled {
            Some((before, since)) if before == synced => (synced, since),
            _ => (synced, now),
        });
        let (_, since) = self.stalled?;
        Some(now.duration_since(since)).filter(|waited| *waited >= self.wait_max)
    }

    /// How long the group waits further for these logs, if it does.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let stalled = self.stalled.map(|(_, since)| since).into_iter();
        let since = stalled.chain(self.waiting.map(|(_, since)| since)).min()?;
        Some(self.wait_max.saturating_sub(since.elapsed()))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        // The thread commits what waits, and ends.
        if let Some(Err(error)) = self.writer.take().map(Writer::stop) {
            warn!(target: TARGET, %error, "logs are not closed");
        }
    }
}

/// Whether a member is in a subgroup.
fn is_in(view: &View, me: MemberId, subgroup: &str) -> bool {
    let spec = view.subgroups.iter().find(|spec| spec.name == subgroup);
    spec.zip(view.rank_of(me)).is_some_and(|(spec, me)| spec.members.contains(&me))
}
