//! The end of a member: it has finished, leaves, is left out, can't go on, or is dropped. Its handles learn of that, and the others need not wait for it.
use super::older::Homes;
use super::{Node, Poll};
use crate::error::Ended;
use crate::shared::End;
use spindle_core::control::INSTALL_LOOK;
use spindle_core::{State, Time, ViewId};
use std::time::Duration;

/// The target of events of views.
const TARGET: &str = "spindle::view";
/// How long a member that ends waits until its peers on other hosts have heard so, at most.
const FAREWELL_MAX: Duration = Duration::from_millis(200);
/// How long it waits for peers to which the end of its row is still on the way: their links may be down. Without it they count this member among those
/// that may live and continue elsewhere.
const UNHEARD_MAX: Duration = Duration::from_secs(3);

impl Node {
    /// Asks the others for a view without this member, as soon as they have delivered what it has sent by now. When that view is
    /// agreed on, [`poll`](Self::poll) answers [`Ended::Left`]. Messages that are sent meanwhile may be delivered by all members, or by none.
    pub fn leave(&mut self) {
        if self.member.leave() {
            self.has_chores = true;
            self.notices().ring();
        }
    }

    /// Everything is done here. Processes that follow may have yet to ask for the last large messages.
    #[cold]
    pub(super) fn finish(&mut self) -> Poll {
        let now = self.crew.now();
        let since = *self.finished.get_or_insert(now);
        if self.kept.delays_the_end(since, now) {
            self.wake_at = Some(Time(self.clock.now.0 + INSTALL_LOOK.as_nanos() as u64));
            return Poll::Idle;
        }
        self.member.finish();
        self.end(End::Finished);
        Poll::Finished
    }

    /// The others go on without this member, in the view `next`.
    pub(super) fn left_out(&mut self, next: ViewId) -> Ended {
        let mut pause = Duration::ZERO;
        if self.terms.suspect_after.is_some() {
            self.clock.look();
            pause = self.clock.pause;
        }
        self.broken(Ended::left_out(self.crew.me, self.member.view().id, next, pause))
    }

    pub(super) fn broken(&mut self, ended: Ended) -> Ended {
        let (me, view) = (self.crew.me.0, self.member.view().id.0);
        match &ended {
            Ended::Left => tracing::info!(target: TARGET, me, view, "this member has left"),
            why => tracing::error!(target: TARGET, me, view, reason = %why, "the group has ended for this member"),
        }
        self.end(End::Broken(ended.clone()));
        self.shared.broken().cloned().unwrap_or(ended)
    }

    fn end(&mut self, end: End) {
        self.shared.set_end(end);
        let Node { lines, member, fabric, older, .. } = self;
        let homes = Homes { newest: fabric, older };
        for line in lines {
            let (engine, rows) = homes.of(line, member);
            line.end(engine, rows);
        }
        self.kept.end();
        if let Some(mailbox) = self.crew.mailbox() {
            mailbox.leave();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.owner.is_copy() {
            // In a child that was forked: the member continues in the parent.
            return;
        }
        // First: in the next view, too, it takes part no more. Others look at that row when they are told of this one.
        self.preparing = None;
        // A member that is gone can't acknowledge: the others go on without it.
        self.member.engine_mut().abandon(1, &mut self.fabric);
        if !matches!(self.member.engine().state(), State::Finished) {
            // They may be in the next view already.
            let view = self.member.view().id;
            self.crew.act(|roster, _| roster.say_stopped(view));
        }
        self.fabric.finish_heard(FAREWELL_MAX, UNHEARD_MAX);
        self.older.iter_mut().for_each(|older| _ = older.fabric.finish(FAREWELL_MAX));
        self.end(End::Broken(Ended::Dropped));
    }
}
