//! A log that lacks records, and gets them from other processes. It drives the core's [`CatchUp`].
use super::fetching::{Cut, Fetch, FetchCounts, Fetched};
use super::{TARGET, position, version};
use crate::control_plane::{ControlPlane, ControlPlaneEvent};
use crate::transfer::TransferWay;
use spindle_core::control::{
    CatchUp, CatchUpAim, CatchUpEnd, ControlEvent, ControlMessage, NoRecords, RecordBound, RecordGap,
};
use spindle_core::{MemberId, Position, Time};
use spindle_log::{Appender, Error, Version, WriterHandle};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The pause between two looks at records that come, for the status only.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The numbers of requests that are reserved for one catch-up.
const REPLIES: u64 = 1 << 32;
/// The first number of the next catch-up of this process.
static NEXT_REPLY: AtomicU64 = AtomicU64::new(0);

/// Differs between processes, so that no answer to an earlier process of this member is taken.
fn first_reply() -> u64 {
    u64::from(std::process::id()) << 44
}

/// How far a log is that gets records from other members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CatchUpStatus {
    /// The member that sends the records now, or was asked for them.
    pub source: Option<MemberId>,
    /// The records that have come and are on disk.
    pub records: u64,
    /// Their bytes in the log.
    pub bytes: u64,
    /// Whether the disk has no space for them.
    pub is_full: bool,
}

/// The catch-up of one log.
pub(crate) struct LogCatchUp {
    core: CatchUp,
    name: String,
    writer: WriterHandle,
    number: u32,
    last: Option<(Version, u64)>,
    /// Whether the last request allows the source to leave out older records.
    may_skip: bool,
    fetch: Option<Fetch>,
    cut: Option<Cut>,
    cut_to: Option<Option<Version>>,
    counts: Arc<FetchCounts>,
    /// The appender with which the log continues, if records have been appended.
    appender: Option<Appender>,
    since: Instant,
}

impl fmt::Debug for LogCatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogCatchUp").field("core", &self.core).finish_non_exhaustive()
    }
}

impl LogCatchUp {
    /// Begins to catch up with the log of `appender`, which must not append meanwhile.
    pub(crate) fn new(
        name: &str,
        appender: &Appender,
        (bound, aim): (RecordBound, CatchUpAim),
        me: MemberId,
        now: Time,
    ) -> LogCatchUp {
        let last = appender.last();
        let at = last.map(|(version, _)| position(version));
        let reply = first_reply().wrapping_add(NEXT_REPLY.fetch_add(REPLIES, Ordering::Relaxed));
        info!(target: TARGET, subgroup = name, after = at.map(|at| at.to_string()), "log catches up");
        LogCatchUp {
            core: CatchUp::new(name.to_string(), at, bound, aim, (me.0, reply), now),
            name: name.to_string(),
            writer: appender.handle(),
            number: appender.subgroup(),
            last,
            may_skip: false,
            fetch: None,
            cut: None,
            cut_to: None,
            counts: Arc::default(),
            appender: None,
            since: Instant::now(),
        }
    }

    pub(crate) fn set_bound(&mut self, bound: RecordBound, now: Time) {
        self.core.set_bound(bound, now);
    }

    pub(crate) fn set_sources(&mut self, sources: Vec<MemberId>, now: Time) {
        self.core.set_sources(sources, now);
    }

    /// Passes an event about records to all of these catch-ups. Returns an event that others may need, too.
    pub(crate) fn hear<'a>(
        event: ControlPlaneEvent,
        mut all: impl Iterator<Item = &'a mut LogCatchUp>,
        control_plane: &ControlPlane,
    ) -> Option<ControlPlaneEvent> {
        let now = control_plane.now();
        match event {
            ControlPlaneEvent::Records { from, reply, way } => {
                all.try_fold(way, |way, catch_up| catch_up.take(from, reply, way, control_plane));
                return None;
            }
            ControlPlaneEvent::Control(ControlEvent::NoRecords { from, reply, why }) => {
                all.for_each(|catch_up| catch_up.refused(from, reply, why, now));
                return None;
            }
            ControlPlaneEvent::Control(ControlEvent::Died(id) | ControlEvent::Lost(id)) => {
                all.for_each(|catch_up| catch_up.lost(id, now));
            }
            _ => {}
        }
        Some(event)
    }

    /// Takes a stream that comes for a request with this number. Returns it if it is not wanted here.
    pub(crate) fn take(
        &mut self,
        from: MemberId,
        reply: u64,
        way: TransferWay,
        control_plane: &ControlPlane,
    ) -> Option<TransferWay> {
        if !self.core.comes(from, reply) {
            return Some(way);
        }
        let log = (self.writer.clone(), self.number);
        match Fetch::begin(way, log, (self.last, self.may_skip), &self.counts, control_plane.notices()) {
            Ok(fetch) => self.fetch = Some(fetch),
            Err(error) => {
                warn!(target: TARGET, subgroup = self.name, reason = %error, "no thread for records");
                let (broken, at) = (spindle_core::control::RecordStreamEnd::Broken, self.last);
                self.core.ended(broken, at.map(|(at, _)| position(at)), None, 0, control_plane.now());
            }
        }
        None
    }

    pub(crate) fn refused(&mut self, from: MemberId, reply: u64, why: NoRecords, now: Time) {
        self.core.refused(from, reply, why, now);
    }

    pub(crate) fn lost(&mut self, id: MemberId, now: Time) {
        self.core.lost(id, now);
    }

    /// Takes the next step. Returns the result, once there is one.
    ///
    /// # Errors
    /// Those of the log: nothing more reaches the disk.
    pub(crate) fn step(
        &mut self,
        incarnation: u128,
        control_plane: &mut ControlPlane,
    ) -> Result<Option<CatchUpEnd>, Error> {
        let now = control_plane.now();
        // Before the result of a stream is looked at: its owner may forbid the cut between two steps.
        if let Some(last) = self.core.cut() {
            self.cut(last, control_plane)?;
        }
        if let Some(fetched) = self.fetch.as_ref().and_then(Fetch::result) {
            self.fetch = None;
            let Fetched { end, last, first, bytes, appender } = fetched?;
            self.appender = Some(appender?);
            self.last = last;
            self.core.ended(end, last.map(|(last, _)| position(last)), first.map(position), bytes, now);
        }
        if let Some((source, reply, wanted)) = self.core.ask(now) {
            let from = control_plane.me;
            self.may_skip = wanted.may_skip;
            control_plane.post(source, ControlMessage::WantRecords { incarnation, from, reply, wanted });
        }
        Ok(self.core.end())
    }

    /// Returns the last record that stays, if the next step begins to remove those behind it.
    pub(crate) fn next_cut(&self) -> Option<Option<Position>> {
        self.core.cut().filter(|_| self.cut.is_none())
    }

    /// Whether records are being removed.
    pub(crate) fn is_cutting(&self) -> bool {
        self.cut.is_some()
    }

    /// Removes the records after this one, which the group does not have.
    fn cut(&mut self, last: Option<Position>, control_plane: &ControlPlane) -> Result<(), Error> {
        let Some(cut) = &self.cut else {
            let [from, to] = [self.last.map(|(last, _)| position(last)), last].map(|at| at.map(|at| at.to_string()));
            let subgroup = &*self.name;
            warn!(target: TARGET, subgroup, from, to, "the log is cut: the group continued without its last records");
            let after = last.map(version);
            self.cut = Some(Cut::begin(self.writer.clone(), self.number, after, control_plane.notices())?);
            return Ok(());
        };
        if let Some(cut) = cut.result() {
            self.cut = None;
            let (last, appender) = cut?;
            (self.last, self.appender) = (last, Some(appender));
            self.cut_to = Some(last.map(|(last, _)| last));
            self.core.has_cut(last.map(|(last, _)| position(last)), control_plane.now());
        }
        Ok(())
    }

    /// Returns how long the driver may wait until the next step, if no event comes.
    pub(crate) fn patience(&self, now: Time) -> Duration {
        if self.fetch.is_some() || self.cut.is_some() { LOOK_EVERY } else { self.core.patience(now) }
    }

    /// Whether no record is missing between the last one that the log had and those that have come.
    pub(crate) fn is_whole(&self) -> bool {
        self.core.is_whole()
    }

    /// Returns whether records come, and the disk takes them.
    pub(crate) fn has_come(&self) -> bool {
        self.fetch.is_some() && !self.counts.is_full.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> CatchUpStatus {
        CatchUpStatus {
            source: self.core.source(),
            records: self.counts.records.load(Ordering::Relaxed),
            bytes: self.counts.bytes.load(Ordering::Relaxed),
            is_full: self.counts.is_full.load(Ordering::Relaxed),
        }
    }

    /// Whether the end of the log was removed, and the last record that stayed.
    pub(crate) fn was_cut(&self) -> Option<Option<Version>> {
        self.cut_to
    }

    /// Returns the last record of the log, as far as it is on disk.
    pub(crate) fn at(&self) -> Option<Version> {
        self.last.map(|(last, _)| last)
    }

    /// Ends without a result, once no thread appends any more. Returns the appender with which the log
    /// continues, if it is another one than before.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) fn abandon(mut self) -> Result<Option<Appender>, Error> {
        if let Some(fetch) = self.fetch.take() {
            self.appender = Some(fetch.abandon()?.appender?);
        }
        if let Some(cut) = self.cut.take() {
            self.appender = Some(cut.wait()?.1);
        }
        Ok(self.appender)
    }

    /// Ends with this result, and reports it. Returns the appender with which the log continues, if it
    /// is another one than before.
    pub(crate) fn finish(self, end: CatchUpEnd) -> Option<Appender> {
        let CatchUpStatus { records, bytes, .. } = self.status();
        let (subgroup, took) = (&*self.name, self.since.elapsed().as_secs_f64());
        let (gap, why) = match end {
            CatchUpEnd::Complete { gap } => (gap, None),
            CatchUpEnd::Little => (None, None),
            CatchUpEnd::Stopped { why, gap } => (gap, Some(why)),
        };
        if let Some(RecordGap { after, before }) = gap {
            let [after, before] = [after, before].map(|at| at.map(|at| at.to_string()));
            warn!(target: TARGET, subgroup, after, before, "the log lacks records that no member has");
        }
        if let Some(why) = why {
            let after = self.last.map(|(last, _)| last.to_string());
            warn!(target: TARGET, subgroup, after, reason = %why, "the log may lack records: no member sends them");
        }
        info!(target: TARGET, subgroup, records, bytes, took, "log has caught up");
        self.appender
    }
}
