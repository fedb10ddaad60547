//! A process with old logs gets most of the records that they lack before it asks for admission, so
//! that the group waits for the last ones only.
use super::{Candidate, Sought};
use crate::control_plane::{ControlPlane, ControlPlaneEvent, after};
use crate::error::JoinError;
use crate::logs::LogCatchUp;
use crate::old_logs::OldLogs;
use spindle_core::control::{CatchUpAim, ControlEvent, ControlMessage, Incarnation, RecordBound, Request, Seek};
use spindle_core::{MemberId, View, ViewId};
use spindle_transport::rendezvous::ControlSocket;
use std::time::{Duration, Instant};

/// The pause between two questions for the newest view.
const VIEW_EVERY: Duration = Duration::from_millis(500);
/// How many members are asked for it at once.
const ASKED_AT_ONCE: usize = 3;

impl Candidate<'_> {
    /// Catches up if this process has old logs and has found its group alive. Then it asks `again`, for
    /// admission, if it need not learn the state first.
    pub(super) fn catch_up_if_old(
        &mut self,
        control_plane: &mut ControlPlane,
        found: Sought,
        again: Option<Seek>,
    ) -> Result<Sought, JoinError> {
        if !matches!(found, Sought::Group) || !self.catch_up(control_plane)? {
            return Ok(found);
        }
        again.map_or(Ok(found), |again| self.seek(control_plane, again))
    }

    /// Gets most of the records that old logs lack from members of the group. Returns whether this
    /// process has old logs.
    ///
    /// # Errors
    /// The group is another one than that of the logs, or nothing more reaches the disk.
    fn catch_up(&mut self, control_plane: &mut ControlPlane) -> Result<bool, JoinError> {
        // Its group lives: it takes part in no restart.
        self.levels.end()?;
        let Some(mut old) = control_plane.end_restart() else { return Ok(false) };
        let (path, theirs) = (old.path().clone(), old.incarnation());
        let caught_up = self.catch_up_all(control_plane, theirs, &mut old);
        control_plane.keep_old_logs(old);
        caught_up?;
        match &self.known {
            Some((ours, _)) if *ours != theirs => {
                let (theirs, ours) = (Incarnation(theirs), Incarnation(*ours));
                Err(JoinError::OtherIncarnation { path, theirs, ours })
            }
            _ => Ok(true),
        }
    }

    fn catch_up_all(
        &mut self,
        control_plane: &mut ControlPlane,
        incarnation: u128,
        old: &mut OldLogs,
    ) -> Result<(), JoinError> {
        let (now, me) = (control_plane.now(), control_plane.me);
        let mut running: Vec<(String, LogCatchUp)> = vec![];
        let names: Vec<String> = old.names().cloned().collect();
        for name in &names {
            let appender = old.appender(name)?;
            if appender.last().is_some() {
                // All epochs: those that begin meanwhile, too.
                let terms = (RecordBound::Before(ViewId(u64::MAX)), CatchUpAim::Most);
                running.push((name.clone(), LogCatchUp::new(name, &appender, terms, me, now)));
            }
        }
        let mut with_gaps = vec![];
        let run = self.run(control_plane, incarnation, &mut running, &mut with_gaps);
        for (name, catch_up) in running {
            if !catch_up.is_whole() {
                with_gaps.push(name);
            }
            catch_up.abandon()?;
        }
        names.iter().try_for_each(|name| old.look(name))?;
        with_gaps.iter().for_each(|name| old.note_gap(name));
        run
    }

    /// Catches up until none of the logs is left that lacks much, or no member is left. Adds the logs that
    /// have got a gap to `with_gaps`.
    fn run(
        &mut self,
        control_plane: &mut ControlPlane,
        incarnation: u128,
        running: &mut Vec<(String, LogCatchUp)>,
        with_gaps: &mut Vec<String>,
    ) -> Result<(), JoinError> {
        let mut asked: Option<Instant> = None;
        while !running.is_empty() {
            if asked.is_none_or(|asked| asked.elapsed() >= VIEW_EVERY) {
                asked = Some(Instant::now());
                if !self.ask_for_view(control_plane)? {
                    return Ok(());
                }
            }
            for news in self.news(control_plane)? {
                LogCatchUp::hear(news, running.iter_mut().map(|(_, catch_up)| catch_up), control_plane);
            }
            let Some((found, view)) = &self.known else { continue };
            if *found != incarnation {
                return Ok(());
            }
            let me = control_plane.me;
            for (name, catch_up) in running.iter_mut() {
                catch_up.set_sources(sources(view, name, me), control_plane.now());
            }
            let mut at = 0;
            while let Some((_, catch_up)) = running.get_mut(at) {
                match catch_up.step(incarnation, control_plane)? {
                    None => at += 1,
                    Some(end) => {
                        let (name, catch_up) = running.remove(at);
                        if !catch_up.is_whole() {
                            with_gaps.push(name);
                        }
                        catch_up.finish(end);
                    }
                }
            }
            if running.iter().any(|(_, catch_up)| catch_up.has_come()) {
                // The timeout limits a wait, not a transfer.
                self.deadline = after(Instant::now(), self.config.gather_timeout);
            }
        }
        Ok(())
    }

    /// Asks members for the newest view. Returns whether there are any.
    fn ask_for_view(&self, control_plane: &mut ControlPlane) -> Result<bool, JoinError> {
        let known = self.known.as_ref().map(|(_, view)| view.members.clone()).unwrap_or_default();
        let here = ControlSocket::members(&self.dir, &self.group)?;
        if here.is_empty() && (control_plane.book().is_none() || known.is_empty()) {
            return Ok(false);
        }
        let me = control_plane.me;
        let all: Vec<MemberId> = here.into_iter().chain(known).filter(|id| *id != me).collect();
        // Any of them may hang.
        let turn = Instant::now().saturating_duration_since(control_plane.origin()).as_millis() as usize;
        for ahead in 0..all.len().min(ASKED_AT_ONCE) {
            let to = all[(turn / VIEW_EVERY.as_millis() as usize + ahead) % all.len()];
            control_plane.post(to, ControlMessage::Request { from: me, reply: 0, what: Request::View });
        }
        Ok(true)
    }

    /// Notes the newest view of a group that members report.
    pub(super) fn note_view(&mut self, news: &ControlPlaneEvent) {
        if let ControlPlaneEvent::Control(ControlEvent::View { incarnation, view, .. }) = news
            && self.known.as_ref().is_none_or(|(known, newest)| known != incarnation || newest.id <= view.id)
        {
            self.known = Some((*incarnation, view.clone()));
        }
    }
}

/// Returns the members of a subgroup in a view, without this process.
fn sources(view: &View, name: &str, me: MemberId) -> Vec<MemberId> {
    let spec = view.subgroups.iter().find(|spec| spec.name == name);
    let ranks = spec.into_iter().flat_map(|spec| &spec.members);
    ranks.map(|rank| view.members[rank.index()]).filter(|id| *id != me).collect()
}
