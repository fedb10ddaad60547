//! The end of a member: it has finished, leaves, is left out, can't continue, or is dropped. Its
//! handles learn of the end, and the others need not wait for it.
use super::older::Homes;
use super::{Node, Poll};
use crate::error::Ended;
use crate::logs::SubgroupLog;
use crate::queries;
use crate::shared::End;
use spindle_core::control::INSTALL_LOOK;
use spindle_core::multicast::stats::Undurable;
use spindle_core::{State, Time, ViewId};
use std::time::Duration;

/// The tracing target of views.
const TARGET: &str = "spindle::view";
/// How long an ending member waits, at most, until its peers on other hosts have received its end.
const FAREWELL_MAX: Duration = Duration::from_millis(200);
/// How long it waits for peers that have not yet received the end of its row: their links may be
/// down. Without that end they count this member among those that may live and continue elsewhere.
const UNHEARD_MAX: Duration = Duration::from_secs(3);

impl Node {
    /// Asks the others for a view without this member, as soon as they have delivered what it has
    /// sent so far. When that view is agreed on, [`poll`](Self::poll) returns [`Ended::Left`].
    /// Messages that are sent meanwhile may be delivered by all members, or by none.
    pub fn leave(&mut self) {
        if self.member.leave() {
            self.has_chores = true;
            self.notices().ring();
        }
    }

    /// Handles the finish of the group. Observers may still have to request the last large
    /// messages.
    #[cold]
    pub(super) fn finish(&mut self) -> Poll {
        let now = self.control_plane.now();
        let since = *self.finished.get_or_insert(now);
        if self.object_cache.delays_the_end(since, now) {
            self.wake_at = Some(Time(self.clock.now.0 + INSTALL_LOOK.as_nanos() as u64));
            return Poll::Idle;
        }
        self.member.finish();
        self.end(End::Finished);
        Poll::Finished
    }

    /// Makes the next poll look at the logs while the group waits for nothing but logs, or deliveries wait for
    /// disks. A disk that hangs reports nothing.
    pub(super) fn note_waiting_logs(&mut self) {
        let Node { logs: Some(logs), handles, member, fabric, older, .. } = self else { return };
        let homes = Homes { newest: fabric, older };
        let waits_for_logs = member.engine().have_all_finished() || logs.patience().is_some();
        self.has_chores |= waits_for_logs
            || handles.iter().any(|of_subgroup| {
                let engine = &*homes.of(of_subgroup, member).0;
                of_subgroup.home().is_some_and(|(_, id)| engine.undurable(id).is_some())
            });
    }

    /// Ends this member if the others have waited for its disk for [too
    /// long](crate::LogSettings::wait_max): all members have finished, or a subgroup delivers only what is on
    /// all disks. Ends it, too, if all have finished and messages have waited so long for more members.
    #[cold]
    pub(super) fn look_after_waiting_logs(&mut self) -> Result<(), Ended> {
        let Node { logs: Some(logs), handles, member, fabric, older, .. } = self else { return Ok(()) };
        let homes = Homes { newest: fabric, older };
        let has_finished = member.engine().have_all_finished();
        let mut synced = 0;
        let mut longest: Option<(u64, &SubgroupLog, &String)> = None;
        let mut lacking = None;
        for of_subgroup in handles.iter() {
            let Some(log) = &of_subgroup.log else { continue };
            synced += log.synced();
            let engine = &*homes.of(of_subgroup, member).0;
            let spec = of_subgroup.home().map(|(_, id)| &engine.view().subgroups[id.index()]);
            let undurable = of_subgroup.home().and_then(|(_, id)| engine.undurable(id));
            if let Some((Undurable { lacks_members: true, .. }, spec)) = undurable.zip(spec).filter(|_| has_finished) {
                lacking = Some((of_subgroup.name.clone(), spec.members.len() as u32, spec.durability.copies()));
            }
            let unsynced = of_subgroup.unsynced(engine);
            if unsynced > longest.map_or(0, |(unsynced, ..)| unsynced) && (has_finished || undurable.is_some()) {
                longest = Some((unsynced, log, &of_subgroup.name));
            }
        }
        let waits = longest.is_some() || lacking.is_some();
        let Some(waited) = logs.note_wait(waits.then_some(synced)) else { return Ok(()) };
        let too_few = lacking.map(|(subgroup, members, copies)| {
            let waited_s = u32::try_from(waited.as_secs()).unwrap_or(u32::MAX);
            Ended::TooFewCopies { subgroup, members, copies: copies.unwrap_or(0), waited_s }
        });
        let ended = longest.map(|(unsynced, log, name)| log.stalled(name, unsynced, waited)).or(too_few);
        ended.map_or(Ok(()), |ended| Err(self.broken(ended)))
    }

    /// Handles that the others continue without this member, in the view `next`.
    pub(super) fn left_out(&mut self, next: ViewId) -> Ended {
        let mut pause = Duration::ZERO;
        if self.terms.suspect_after.is_some() {
            self.clock.look();
            pause = self.clock.pause;
        }
        self.broken(Ended::left_out(self.control_plane.me, self.member.view().id, next, pause))
    }

    pub(super) fn broken(&mut self, ended: Ended) -> Ended {
        let (me, view) = (self.control_plane.me.0, self.member.view().id.0);
        match &ended {
            Ended::Left => tracing::info!(target: TARGET, me, view, "this member has left"),
            why => tracing::error!(target: TARGET, me, view, reason = %why, "the group has ended for this member"),
        }
        self.end(End::Broken(ended.clone()));
        self.shared.broken().cloned().unwrap_or(ended)
    }

    fn end(&mut self, end: End) {
        self.shared.set_end(end);
        let Node { handles, member, fabric, older, .. } = self;
        let homes = Homes { newest: fabric, older };
        for of_subgroup in handles {
            let (engine, rows) = homes.of(of_subgroup, member);
            of_subgroup.end(engine, rows);
        }
        queries::end_all(&self.open_queries);
        self.object_cache.end();
        if let Some(control_socket) = self.control_plane.control_socket() {
            control_socket.leave();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.owner.is_copy() {
            // In a forked child: the member continues in the parent, and so does the thread of the
            // logs, which is not here and can't be joined.
            std::mem::forget(self.logs.take());
            return;
        }
        let is_finished = matches!(self.member.engine().state(), State::Finished);
        if let Some(logs) = self.logs.as_mut().filter(|_| !is_finished) {
            logs.end(&self.control_plane);
        }
        // First: this member takes no part in the next view, either. The others look at that row
        // when they see the end of this one.
        self.preparing = None;
        if !is_finished && !self.control_plane.end_notice().is_held() {
            // A dropped member can't acknowledge: the others continue without it.
            self.member.engine_mut().abandon(1, &mut self.fabric);
            // The others may be in the next view already.
            let view = self.member.view().id;
            self.control_plane.act(|roster, _| roster.say_stopped(view));
        }
        self.fabric.finish_heard(FAREWELL_MAX, UNHEARD_MAX);
        self.older.iter_mut().for_each(|older| _ = older.fabric.finish(FAREWELL_MAX));
        self.end(End::Broken(Ended::Dropped));
    }
}
