//! The end of a member: it has finished, leaves, is left out, can't continue, or is dropped. Its
//! handles learn of the end, and the others need not wait for it.
use super::older::Homes;
use super::{Node, Poll};
use crate::error::Ended;
use crate::logs::SubgroupLog;
use crate::queries;
use crate::shared::End;
use spindle_core::control::INSTALL_LOOK;
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

    /// Ends this member if all members have finished, and its disk has taken nothing more of its
    /// logs for [too long](crate::LogSettings::wait_max).
    #[cold]
    pub(super) fn look_after_waiting_logs(&mut self) -> Result<(), Ended> {
        let Node { logs: Some(logs), handles, member, fabric, older, .. } = self else { return Ok(()) };
        let homes = Homes { newest: fabric, older };
        let mut synced = 0;
        let mut longest: Option<(u64, &SubgroupLog, &String)> = None;
        for of_subgroup in handles.iter() {
            let Some(log) = &of_subgroup.log else { continue };
            synced += log.synced();
            let unsynced = of_subgroup.unsynced(homes.of(of_subgroup, member).0);
            if unsynced > longest.map_or(0, |(unsynced, ..)| unsynced) {
                longest = Some((unsynced, log, &of_subgroup.name));
            }
        }
        let longest = longest.filter(|_| member.engine().have_all_finished());
        let Some(waited) = logs.note_wait(longest.map(|_| synced)) else { return Ok(()) };
        let ended = longest.map(|(unsynced, log, name)| log.stalled(name, unsynced, waited));
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
        // First: this member takes no part in the next view, either. The others look at that row
        // when they see the end of this one.
        self.preparing = None;
        // A dropped member can't acknowledge: the others continue without it.
        self.member.engine_mut().abandon(1, &mut self.fabric);
        if !matches!(self.member.engine().state(), State::Finished) {
            // The others may be in the next view already.
            let view = self.member.view().id;
            self.control_plane.act(|roster, _| roster.say_stopped(view));
        }
        self.fabric.finish_heard(FAREWELL_MAX, UNHEARD_MAX);
        self.older.iter_mut().for_each(|older| _ = older.fabric.finish(FAREWELL_MAX));
        self.end(End::Broken(Ended::Dropped));
    }
}
