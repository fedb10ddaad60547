//! The epochs of subgroups: the engines of ended views in which subgroups of a member continue.
use super::Member;
use crate::control::{LogCompleteness, Roster};
use crate::ids::{MemberId, SubgroupId, Time, ViewId};
use crate::multicast::Upcalls;
use crate::multicast::engine::{Engine, Progress, State};
use crate::table::Table;
use crate::view::Change;
use crate::wire::layout::Layout;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::slice;

impl Member {
    /// The engine of the newest view that has begun here, or of an older one in which subgroups go
    /// on.
    pub fn engine_of(&self, view: ViewId) -> Option<&Engine> {
        self.engines().find(|engine| engine.view().id == view)
    }

    /// The same, to be changed.
    pub fn engine_of_mut(&mut self, view: ViewId) -> Option<&mut Engine> {
        self.engines_mut().find(|engine| engine.view().id == view)
    }

    /// The views that have ended and in which subgroups of this member go on, the oldest first. The
    /// driver keeps their tables.
    pub fn older(&self) -> impl Iterator<Item = ViewId> {
        let ended = self.next.iter().map(|_| &self.engine).filter(|engine| engine.goes_on());
        self.older.iter().chain(ended).map(|engine| engine.view().id)
    }

    /// Where a subgroup of the newest view stands for this member: the engine with which its epoch
    /// began, and its number there.
    pub fn home(&self, subgroup: SubgroupId) -> Option<(&Engine, SubgroupId)> {
        let spec = self.view.subgroups.get(subgroup.index())?;
        let engine = self.engine_of(self.view.epoch(subgroup))?;
        Some((engine, engine.view().subgroup(&spec.name)?))
    }

    /// Sets whether the logs of this member are complete, by the names of their subgroups. To be called before the
    /// first poll of a view, and when that changes.
    ///
    /// A log that stays incomplete counts as complete once an operator has given up the members that may have its
    /// records: in a later era.
    pub fn set_completeness(&mut self, of: impl Fn(&str) -> LogCompleteness) {
        let era = self.view.id.era();
        let mut lacking = Vec::new();
        for (id, spec) in self.view.subgroups_of(self.engine.me()).filter(|(_, spec)| spec.is_logged()) {
            let completeness = of(&spec.name);
            if completeness == LogCompleteness::Complete {
                self.lacking_since.remove(&spec.name);
                continue;
            }
            let since = *self.lacking_since.entry(spec.name.clone()).or_insert(era);
            if completeness == LogCompleteness::CatchingUp || since == era {
                lacking.push(id);
            }
        }
        self.engine.set_lacking(lacking.into_iter());
    }

    /// The group has finished, in all views in which something went on.
    pub fn finish(&mut self) {
        if *self.engine.state() == State::Finished {
            self.older.iter_mut().for_each(Engine::finish_older);
        }
    }

    /// Polls the engine of an [older](Self::older) view, with the table of that. To be done before
    /// each poll of the newest [engine](Self::engine_mut), and while the next view is prepared.
    /// `upcalls` get the numbers that subgroups have in the newest one.
    pub fn poll_older<T: Table>(
        &mut self,
        view: ViewId,
        now: Time,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
    ) -> Progress {
        if view == self.view.id {
            return self.engine.poll(now, table, upcalls);
        }
        let Some(older) = self.older.iter_mut().find(|older| older.view().id == view) else {
            return Progress { worked: false, wake_at: None, partial: false };
        };
        let mut progress = older.poll(now, table, upcalls);
        progress.worked |= self.engine.tend(older, table, upcalls);
        progress
    }

    /// Says whether subgroups may go on that changes of this view do not touch: as long as the rows
    /// of all members come through shared memory or over streams, no process follows, which reads
    /// the rows of one view, and no object is on its way. While the view changes that stays as it
    /// is: a leader finds it in the row of each member that has promised.
    pub(super) fn weigh_epochs<W>(&mut self, roster: &Roster<W>) {
        if self.engine.is_changing() {
            return;
        }
        let has_way = |id: &MemberId| !self.absent.contains(id) && (roster.streams_rows() || !roster.is_far(*id));
        let is_alone = !self.is_followed && roster.observers().is_empty() && !self.has_object_groups;
        self.engine.keep_epochs(is_alone && self.view.members.iter().all(has_way));
    }

    /// Says whether there are groups for large messages in this view, by the driver's
    /// [groups](crate::control::ObjectGroups). `outdated` says whether there should be one for a
    /// subgroup whose epoch began with an older view: those belong to the newest view, so all epochs
    /// end.
    pub fn note_object_groups<W>(&mut self, are_there: bool, outdated: bool, roster: &Roster<W>) {
        if self.has_object_groups != are_there {
            self.has_object_groups = are_there;
            self.weigh_epochs(roster);
        }
        if outdated {
            self.engine.renew();
        }
    }

    /// Asks all members for a view with a change of its subgroups: those of the view that is about
    /// to begin, or of the newest that has. `has_room` says whether there is memory for rows of so
    /// many bytes in all. Returns false if the change makes no sense in this view, or is the case
    /// already.
    ///
    /// # Errors
    /// That of `has_room`: a view that was agreed on and fits into the memory of no member would
    /// end all members.
    pub fn propose_change<E>(
        &mut self,
        change: Change,
        has_room: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<bool, E> {
        let engine = match &mut self.next {
            Some(next) => next.engine_mut(),
            None => &mut self.engine,
        };
        let view = engine.view();
        if !view.wants(&change) {
            return Ok(false);
        }
        let mut next = view.next(|_| true, &[], slice::from_ref(&change));
        // A later change may touch all subgroups.
        next.begin_epochs();
        let Ok(layout) = Layout::new(&next) else { return Ok(false) };
        has_room(layout.rows().iter().map(|row| row.size).sum())?;
        Ok(engine.propose_change(change))
    }

    /// Asks for a view in which the messages of my logged subgroups have clocks later than `clock`,
    /// for those in which none has come yet. The others know of none if a view is about to begin.
    pub(super) fn raise_clocks(&mut self, clock: u64) {
        if self.next.is_some() {
            return;
        }
        let view = Arc::clone(&self.view);
        for (id, spec) in view.subgroups_of(self.engine.me()) {
            let extent = self.home(id).and_then(|(engine, there)| engine.log_extent(there));
            if spec.is_logged() && extent.is_some_and(|extent| extent.clock < clock) {
                self.engine.propose_change(Change::Clock { name: spec.name.clone(), clock });
            }
        }
    }
}
