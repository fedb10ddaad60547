//! The polling thread's part of a catch-up: the records that a log lacks, and those that it can send.
use super::lacking::{Lack, OlderRecords};
use super::{LogCatchUp, RecordSource, SubgroupLog, position};
use crate::control_plane::ControlPlane;
use crate::error::Ended;
use crate::transfer::TransferWay;
use spindle_core::control::{CatchUpAim, CatchUpEnd, LogCompleteness, NoRecords, RecordBound, WantedRecords};
use spindle_core::{Engine, MemberId, SubgroupId, ViewId};
use spindle_log::Version;
use std::time::Duration;

impl SubgroupLog {
    /// Whether it lacks records that others may send.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.lack.is_some()
    }

    /// Whether it has all records of older epochs.
    pub(crate) fn completeness(&self) -> LogCompleteness {
        if self.is_catching_up() { LogCompleteness::CatchingUp } else { self.completeness }
    }

    /// Takes a step towards the records that it lacks, which `sources` may have. Returns whether it
    /// has caught up, or has given up, with this step.
    ///
    /// # Errors
    /// [`Ended::Log`].
    pub(crate) fn catch_up(
        &mut self,
        name: &str,
        sources: Vec<MemberId>,
        control_plane: &mut ControlPlane,
    ) -> Result<bool, Ended> {
        let Lack::Older(OlderRecords { before, lacks_rest, has_skipped, catch_up }) = &mut self.lack else {
            return Ok(false);
        };
        let (bound, now) = (RecordBound::Before(*before), control_plane.now());
        let running = catch_up.get_or_insert_with(|| {
            Box::new(LogCatchUp::new(name, &self.appender, (bound, CatchUpAim::All), control_plane.me, now))
        });
        running.set_bound(bound, now);
        running.set_sources(sources, now);
        let step = running.step(control_plane.incarnation(), control_plane);
        let end = step.map_err(|error| Ended::Log { subgroup: name.to_string(), reason: error.to_string() })?;
        let Some(end) = end else { return Ok(false) };
        self.has_all = matches!(end, CatchUpEnd::Complete { gap: None });
        self.completeness = end.completeness();
        // The messages before the first epoch of this process have come.
        self.may_replay = true;
        if *lacks_rest {
            return Ok(false);
        }
        if *has_skipped && !self.has_all {
            // Messages may count as durable with this member that its log will never have.
            let reason = "no member sends the messages that it has not taken while it caught up".to_string();
            return Err(Ended::Log { subgroup: name.to_string(), reason });
        }
        if let Some(to) = catch_up.as_ref().and_then(|running| running.was_cut()) {
            self.last_before = to.map(position);
        }
        if let Some(appender) = catch_up.take().and_then(|running| running.finish(end)) {
            self.appender = appender;
        }
        self.lack = Lack::Nothing;
        self.on_disk = None;
        Ok(true)
    }

    /// Returns how long the polling thread may wait until the next step.
    pub(crate) fn catch_up_patience(&self, control_plane: &ControlPlane) -> Option<Duration> {
        match &self.lack {
            Lack::Older(OlderRecords { catch_up: Some(running), lacks_rest: false, .. }) => {
                Some(running.patience(control_plane.now()))
            }
            Lack::Older(OlderRecords { catch_up: None, .. }) => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Takes a stream of records. Returns it if it is not for this log.
    pub(crate) fn take_stream(
        &mut self,
        from: MemberId,
        reply: u64,
        way: TransferWay,
        control_plane: &ControlPlane,
    ) -> Option<TransferWay> {
        match self.lack.catch_up() {
            Some(running) => running.take(from, reply, way, control_plane),
            None => Some(way),
        }
    }

    /// Takes a refusal, if it is for this log.
    pub(crate) fn refused(&mut self, from: MemberId, reply: u64, why: NoRecords, control_plane: &ControlPlane) {
        if let Some(running) = self.lack.catch_up() {
            running.refused(from, reply, why, control_plane.now());
        }
    }

    /// Returns the log as a source for a process that wants these records. The subgroup is `id` in the
    /// view of `engine`, and the log may lack messages of the epochs before `gap`.
    pub(crate) fn source(
        &self,
        wanted: &WantedRecords,
        engine: &Engine,
        id: SubgroupId,
        gap: Option<ViewId>,
    ) -> Result<RecordSource, NoRecords> {
        let (epoch, readers) = (engine.view().id, self.appender.readers());
        if self.is_cutting() {
            // Its last records are not the group's.
            return Err(NoRecords::CatchingUp);
        }
        if let Some(why) = wanted.refusal(gap) {
            return Err(why);
        }
        if self.is_catching_up() {
            // Its records may be all that there are, if the members with more are gone.
            let has_more = readers.durable() > wanted.after.map(super::version);
            let begins = Version::new(epoch.0, 0);
            return has_more
                .then_some(RecordSource { readers, is_complete: false, is_settled: false, begins })
                .ok_or(NoRecords::CatchingUp);
        }
        // All of older epochs are on disk.
        let is_settled = engine.persisted(id).is_some();
        let is_complete = match wanted.bound {
            RecordBound::Before(view) => is_settled && view <= epoch,
            RecordBound::Through(last) => {
                let is_here = readers.durable().is_some_and(|durable| durable >= super::version(last));
                is_here || is_settled && last.epoch < epoch
            }
        };
        Ok(RecordSource { readers, is_complete, is_settled: true, begins: Version::new(epoch.0, 0) })
    }
}
