//! Logs that get records from other processes which restart the group, so that all logs end alike before the
//! restart is decided.
use crate::control_plane::{ControlPlane, ControlPlaneEvent, RestartDriver};
use crate::logs::{LogCatchUp, RecordServer, RecordSource};
use crate::old_logs::{OldLogs, position, version};
use spindle_core::Position;
use spindle_core::control::{
    CatchUpAim, CatchUpEnd, CatchUpFailure, ControlEvent, LogState, LongestLog, NoRecords, RecordBound, RecordOrder,
    WantedRecords,
};
use spindle_log::{Error, Readers, Version};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The pause between two reports of records that come.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// A log that gets records.
struct RestartCatchUp {
    catch_up: LogCatchUp,
    readers: Readers,
    /// The last record that it needs, and its clock.
    needed: (Position, u64),
}

/// The logs that get records, by name, and those that are sent.
#[derive(Default)]
pub(super) struct RestartCatchUps {
    running: BTreeMap<String, RestartCatchUp>,
    reported: Option<Instant>,
    server: RecordServer,
}

/// Whether all sources have pruned the next record of a log.
fn is_cut_off(end: &CatchUpEnd) -> bool {
    matches!(end, CatchUpEnd::Stopped { why: CatchUpFailure::Refused(NoRecords::Pruned { .. }), .. })
}

impl RestartCatchUps {
    /// Takes an event that is about records.
    pub(super) fn take(
        &mut self,
        event: ControlPlaneEvent,
        control_plane: &mut ControlPlane,
    ) -> Option<ControlPlaneEvent> {
        if let ControlPlaneEvent::Control(ControlEvent::WantsRecords(order)) = event {
            self.serve(order, control_plane);
            return None;
        }
        LogCatchUp::hear(event, self.running.values_mut().map(|running| &mut running.catch_up), control_plane)
    }

    /// Takes the next steps. A log that has ended, and lacks more, begins again with the leader's next
    /// message.
    ///
    /// # Errors
    /// Those of the log: nothing more reaches the disk.
    pub(super) fn step(&mut self, control_plane: &mut ControlPlane) -> Result<(), Error> {
        for log in control_plane.restart().map(RestartDriver::take_behind).unwrap_or_default() {
            self.begin(log, control_plane)?;
        }
        let Some(incarnation) = control_plane.restart().map(|restart| restart.incarnation()) else { return Ok(()) };
        self.end_refused(control_plane)?;
        let mut moved = vec![];
        for (name, RestartCatchUp { catch_up, .. }) in &mut self.running {
            let before = catch_up.at();
            let end = catch_up.step(incarnation, control_plane)?;
            if end.is_some() || catch_up.at() != before {
                moved.push((name.clone(), end));
            }
        }
        for (name, end) in &moved {
            if let Some((running, end)) = end.and_then(|end| Some((self.running.remove(name)?, end))) {
                running.catch_up.finish(end);
            }
        }
        let now = control_plane.now();
        let is_due = self.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY);
        if let Some(restart) =
            control_plane.restart().filter(|_| !moved.is_empty() || is_due && !self.running.is_empty())
        {
            self.reported = Some(Instant::now());
            if let Some(old) = restart.old_logs() {
                let growing = self.running.iter().filter(|(_, running)| !running.catch_up.is_cutting());
                for (name, RestartCatchUp { readers, needed: (needed, clock), .. }) in growing {
                    let last = readers.durable().map(position).filter(|last| last < needed);
                    last.into_iter().for_each(|last| old.note_progress(name, (last, *clock)));
                }
                moved.iter().try_for_each(|(name, _)| old.look(name))?;
            }
            let cut_off = moved.iter().filter(|(_, end)| end.as_ref().is_some_and(is_cut_off));
            let cut_off: Vec<String> = cut_off.map(|(name, _)| name.clone()).collect();
            restart.report_logs(&cut_off, now);
        }
        Ok(())
    }

    /// Ends the logs that were to lose records which another leader may count on.
    fn end_refused(&mut self, control_plane: &mut ControlPlane) -> Result<(), Error> {
        let now = control_plane.now();
        let mut is_refused = |name: &String, running: &mut RestartCatchUp| {
            let last = running.catch_up.next_cut();
            last.zip(control_plane.restart()).is_some_and(|(last, restart)| !restart.begin_cut(name, last, now))
        };
        let refused: Vec<RestartCatchUp> = self
            .running
            .extract_if(.., |name, running| is_refused(name, running))
            .map(|(_, running)| running)
            .collect();
        refused.into_iter().try_for_each(|running| running.catch_up.abandon().map(drop))
    }

    /// Whether records come or go.
    pub(super) fn is_moving(&self) -> bool {
        self.server.is_busy() || self.running.values().any(|running| running.catch_up.has_come())
    }

    /// Ends what appends to logs.
    ///
    /// # Errors
    /// Those of the log.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        let running = std::mem::take(&mut self.running).into_values();
        running.map(|running| running.catch_up.abandon()).try_for_each(|abandoned| abandoned.map(drop))
    }

    /// Lets a log get the records that it lacks from processes that have them.
    fn begin(&mut self, longest: LongestLog, control_plane: &mut ControlPlane) -> Result<(), Error> {
        let (me, now) = (control_plane.me, control_plane.now());
        let LongestLog { state: LogState { name, last, clock }, holders } = longest;
        let Some((old, last)) = control_plane.restart().and_then(RestartDriver::old_logs).zip(last) else {
            return Ok(());
        };
        let bound = RecordBound::Through(last);
        if !self.running.contains_key(&name) {
            let appender = old.appender(&name)?;
            if appender.last().map(|(last, _)| position(last)) == Some(last) {
                return Ok(());
            }
            let catch_up = LogCatchUp::new(&name, &appender, (bound, CatchUpAim::Whole), me, now);
            let running = RestartCatchUp { catch_up, readers: appender.readers(), needed: (last, clock) };
            self.running.insert(name.clone(), running);
        }
        if let Some(RestartCatchUp { catch_up, .. }) = self.running.get_mut(&name) {
            catch_up.set_bound(bound, now);
            catch_up.set_sources(holders.iter().map(|holder| holder.id).filter(|id| *id != me).collect(), now);
        }
        Ok(())
    }

    /// Sends records to a process that restarts the same group.
    fn serve(&self, order: RecordOrder, control_plane: &mut ControlPlane) {
        let Some(restart) = control_plane.restart().filter(|restart| restart.incarnation() == order.incarnation) else {
            return;
        };
        let source = restart.old_logs().ok_or(NoRecords::NotMember).and_then(|old| self.source(old, &order.wanted));
        self.server.serve(order, source, control_plane);
    }

    /// Returns a log as a source for a process that lacks these records.
    fn source(&self, old: &OldLogs, wanted: &WantedRecords) -> Result<RecordSource, NoRecords> {
        if self.running.contains_key(&wanted.subgroup) {
            return Err(NoRecords::CatchingUp);
        }
        let readers = old.readers(&wanted.subgroup).ok().flatten().ok_or(NoRecords::NotMember)?;
        if let Some(why) = wanted.refusal(old.gap_before(&wanted.subgroup)) {
            return Err(why);
        }
        let is_complete = match wanted.bound {
            RecordBound::Through(last) => readers.durable().is_some_and(|durable| durable >= version(last)),
            RecordBound::Before(_) => false,
        };
        Ok(RecordSource { readers, is_complete, is_settled: true, begins: Version::MIN })
    }
}
