//! Views that have ended, in which subgroups go on that no change since has touched.
use super::{Node, Relay};
use crate::Handler;
use crate::line::Line;
use spindle_core::control::Member;
use spindle_core::{Engine, View, ViewId};
use spindle_fabric::{Lingering, Mesh};
use std::io;
use std::sync::Arc;

/// One poll of so many looks at what has come over streams for older views. After a sleep, which ends when something comes, the first one does.
const POLLS_PER_LOOK: u32 = 8;

/// The rows of such a view.
#[derive(Debug)]
pub(super) struct Older {
    pub(super) view: Arc<View>,
    pub(super) fabric: Mesh,
    /// As long as this lives, what is posted there wakes this member.
    used: Arc<()>,
}

impl Older {
    pub(super) fn new(view: Arc<View>, fabric: Mesh) -> Older {
        Older { view, fabric, used: Arc::new(()) }
    }

    /// Whether there are objects here: of a member that is alone in its subgroup, and needs no group for them.
    pub(super) fn has_objects(&self) -> bool {
        self.fabric.has_objects()
    }

    /// The row, as the member listens to it.
    pub(super) fn linger(&self) -> Lingering {
        self.fabric.linger(&self.used)
    }
}

/// The rows of the newest view, and of older ones.
#[derive(Clone, Copy)]
pub(super) struct Homes<'a> {
    pub(super) newest: &'a Mesh,
    pub(super) older: &'a [Older],
}

impl<'a> Homes<'a> {
    /// The engine and the rows with which the epoch of a line's subgroup began. The newest, if this member is not in it.
    pub(super) fn of<'m>(self, line: &Line, member: &'m mut Member) -> (&'m mut Engine, &'a Mesh) {
        let view = line.home().map_or(member.view().id, |(epoch, _)| epoch);
        let older = self.older.iter().find(|older| older.view.id == view);
        let engine = member.engine_of_mut(view).expect("epochs end before their engines go");
        (engine, older.map_or(self.newest, |older| &older.fabric))
    }
}

impl Node {
    /// Polls the engines of views that have ended, if subgroups go on there. Returns whether there may be more to do at once.
    #[cold]
    pub(super) fn poll_older(&mut self, handler: &mut impl Handler) -> bool {
        let now = self.clock.now;
        self.older_polls = self.older_polls.wrapping_add(1);
        let looks = std::mem::take(&mut self.older_due) || self.older_polls.is_multiple_of(POLLS_PER_LOOK);
        let mut worked = looks && self.move_older();
        let ended = self.preparing.as_ref().map(|_| (self.member.view().id, &mut self.fabric));
        let older = self.older.iter_mut().map(|older| (older.view.id, &mut older.fabric));
        for (view, fabric) in older.chain(ended) {
            let mut upcalls = Relay { handler, lines: &self.lines, by_id: &self.by_id };
            let progress = self.member.poll_older(view, now, fabric, &mut upcalls);
            if let Some(engine) = self.member.engine_of_mut(view).filter(|engine| engine.has_filled_upcalls()) {
                engine.upcalls_took(self.clock.since_tick());
            }
            worked |= progress.worked || progress.wake_at.is_some_and(|at| at <= now);
            // Only the newest does so before it sleeps.
            worked |= fabric.flush();
        }
        if self.older.iter().any(Older::has_objects) {
            self.look_after_objects(false);
        }
        worked
    }

    /// The next view has begun: keeps the rows of `view`, the one before, if subgroups go on there, and of those that are older. Returns the row to listen to, if it is
    /// kept.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn keep_older(&mut self, view: Arc<View>, mut fabric: Mesh) -> io::Result<Option<Lingering>> {
        let ended = view.id;
        fabric.stand_apart()?;
        self.older.push(Older::new(view, fabric));
        let kept: Vec<ViewId> = self.member.older().collect();
        let over: Vec<Older> = self.older.extract_if(.., |older| !kept.contains(&older.view.id)).collect();
        over.into_iter().for_each(|Older { view, fabric, .. }| self.retire(view, fabric));
        self.forget_old_streams();
        let (layout, newest) = (self.member.engine().layout(), &mut self.fabric);
        self.older.iter().try_for_each(|older| newest.wake_by(layout, &older.fabric))?;
        self.older_due = true;
        Ok(self.older.last().filter(|older| older.view.id == ended).map(Older::linger))
    }
}
