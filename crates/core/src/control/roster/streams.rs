//! The streams of members on other hosts, in the view that has begun, in earlier ones and in the
//! next.
//!
//! A stream belongs to one process: another process with the member's id gets no stream in its
//! place. The newest way of a member in a view counts.
use super::VIEWS_BEHIND_MAX;
use crate::control::Failure;
use crate::ids::{MemberId, ViewId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A way that a member has handed over for a view that has begun here. The way is late, or replaces
/// a broken stream.
#[derive(Debug)]
pub struct Arrival<W> {
    /// The view.
    pub view: ViewId,
    /// The member.
    pub from: MemberId,
    /// Its row.
    pub way: W,
}

/// The streams by view: those that arrive late or again, those that fail, and those that continue.
#[derive(Debug)]
pub(super) struct Streams<W> {
    /// Ways of views that have begun here or are over.
    arrivals: Vec<Arrival<W>>,
    /// Failed dials for such ways.
    failures: Vec<(ViewId, MemberId, Failure)>,
    /// The processes at the other ends of members' streams, by view.
    processes: BTreeMap<(ViewId, MemberId), u128>,
    /// Members whose streams of this view are open while the next view is installed. These streams
    /// continue in the next view.
    continuing: BTreeSet<MemberId>,
    /// Members whose streams have continued in the next view.
    continued: BTreeSet<MemberId>,
    /// The earlier views in which subgroups of this member continue.
    older: BTreeSet<ViewId>,
}

impl<W> Streams<W> {
    /// Returns the streams of a process that has none.
    pub(super) fn new() -> Streams<W> {
        let (processes, continuing, continued, older) = Default::default();
        Streams { arrivals: Vec::new(), failures: Vec::new(), processes, continuing, continued, older }
    }

    /// Returns the process at the other end of a member's stream in a view.
    pub(super) fn process(&self, view: ViewId, id: MemberId) -> Option<u128> {
        self.processes.get(&(view, id)).copied()
    }

    /// Notes the process at the other end of a member's stream in a view.
    pub(super) fn note_process(&mut self, view: ViewId, id: MemberId, process: u128) {
        self.processes.insert((view, id), process);
    }

    /// Keeps the newest way of each member in each view.
    pub(super) fn arrive(&mut self, arrival: Arrival<W>) {
        self.drop_of(arrival.view, arrival.from);
        self.arrivals.push(arrival);
    }

    /// Drops the way of a member that has arrived.
    pub(super) fn drop_of(&mut self, view: ViewId, from: MemberId) {
        self.arrivals.retain(|arrival| (arrival.view, arrival.from) != (view, from));
    }

    /// Notes a stream of a begun view that could not be made.
    pub(super) fn fail(&mut self, view: ViewId, id: MemberId, failure: Failure) {
        self.failures.push((view, id, failure));
    }

    /// Returns the ways that have arrived since the last call.
    pub(super) fn take_arrivals(&mut self) -> Vec<Arrival<W>> {
        core::mem::take(&mut self.arrivals)
    }

    /// Returns the streams that could not be made since the last call.
    pub(super) fn take_failures(&mut self) -> Vec<(ViewId, MemberId, Failure)> {
        core::mem::take(&mut self.failures)
    }

    /// Notes the members whose streams continue in the next view.
    pub(super) fn continue_with(&mut self, with: impl IntoIterator<Item = MemberId>) {
        self.continuing.clear();
        self.continuing.extend(with);
    }

    /// True if the stream of `id` continues in the next view.
    pub(super) fn continues(&self, id: MemberId) -> bool {
        self.continuing.contains(&id)
    }

    /// Notes that the stream of `id` has continued.
    pub(super) fn note_continued(&mut self, id: MemberId) {
        self.continued.insert(id);
    }

    /// True if the stream of `id` has continued.
    pub(super) fn has_continued(&self, id: MemberId) -> bool {
        self.continued.contains(&id)
    }

    /// Notes the earlier views in which subgroups continue.
    pub(super) fn set_older(&mut self, views: impl Iterator<Item = ViewId>) {
        self.older = views.collect();
    }

    /// Notes that a view has begun. Forgets the streams of views that are over.
    pub(super) fn begin(&mut self, view: ViewId) {
        self.continuing.clear();
        self.continued.clear();
        // Members that lose ways by this dial again.
        let is_of = |of: ViewId| of >= view || self.older.contains(&of);
        self.arrivals.retain(|arrival| is_of(arrival.view));
        self.failures.retain(|(of, ..)| is_of(*of));
        self.processes.retain(|(of, _), _| is_of(*of) || view.ahead_of(*of) <= VIEWS_BEHIND_MAX);
    }
}
