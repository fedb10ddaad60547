//! Ended views in which subgroups continue that no later change has touched.
use super::{Node, Upcaller};
use crate::handler::Handler;
use crate::handles::SubgroupHandles;
use crate::mesh::Mesh;
use spindle_core::control::Member;
use spindle_core::{Engine, View, ViewId};
use spindle_fabric::Lingering;
use std::io;
use std::sync::Arc;

/// How many polls share one look at the streams of older views. After a sleep, which ends when data
/// comes, the first poll looks.
const POLLS_PER_LOOK: u32 = 8;

/// The rows of an older view.
#[derive(Debug)]
pub(super) struct Older {
    pub(super) view: Arc<View>,
    pub(super) fabric: Mesh,
    /// As long as this lives, posts in that view wake this member.
    used: Arc<()>,
}

impl Older {
    pub(super) fn new(view: Arc<View>, fabric: Mesh) -> Older {
        Older { view, fabric, used: Arc::new(()) }
    }

    /// Returns whether there are objects here: those of a member that is the only one of its
    /// subgroup and needs no bulk group for them.
    pub(super) fn has_objects(&self) -> bool {
        self.fabric.has_objects()
    }

    /// Returns the row on which the member listens.
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
    /// Returns the engine and the rows of the view in which the subgroup's epoch began. They are
    /// the newest ones if this member is not in the subgroup.
    pub(super) fn of<'m>(self, of_subgroup: &SubgroupHandles, member: &'m mut Member) -> (&'m mut Engine, &'a Mesh) {
        let view = of_subgroup.home().map_or(member.view().id, |(epoch, _)| epoch);
        let older = self.older.iter().find(|older| older.view.id == view);
        let engine = member.engine_of_mut(view).expect("epochs end before their engines go");
        (engine, older.map_or(self.newest, |older| &older.fabric))
    }
}

impl Node {
    /// Polls the engines of ended views in which subgroups continue. Returns whether there may be
    /// more work at once.
    #[cold]
    pub(super) fn poll_older(&mut self, handler: &mut impl Handler) -> bool {
        let now = self.clock.now;
        self.older_polls = self.older_polls.wrapping_add(1);
        let looks = std::mem::take(&mut self.older_due) || self.older_polls.is_multiple_of(POLLS_PER_LOOK);
        let mut worked = looks && self.move_older();
        let ended = self.preparing.as_ref().map(|_| (self.member.view().id, &mut self.fabric));
        let older = self.older.iter_mut().map(|older| (older.view.id, &mut older.fabric));
        for (view, fabric) in older.chain(ended) {
            let (watch, handles) = (&self.shared.handler, &mut self.handles);
            let mut upcalls = Upcaller { handler, watch, handles, by_id: &self.by_id, replays: self.replays };
            let progress = self.member.poll_older(view, now, fabric, &mut upcalls);
            if let Some(engine) = self.member.engine_of_mut(view).filter(|engine| engine.has_filled_upcalls()) {
                engine.upcalls_took(self.clock.since_tick());
            }
            worked |= progress.has_more(now);
            // Only the newest view does so before it sleeps.
            worked |= fabric.flush();
        }
        if self.older.iter().any(Older::has_objects) {
            self.look_after_objects(false);
        }
        worked
    }

    /// Keeps the rows of `view`, the one before the view that has begun, and of older ones, if
    /// subgroups continue there. Returns the row to listen to, if it is kept.
    ///
    /// # Errors
    /// The system's error.
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
