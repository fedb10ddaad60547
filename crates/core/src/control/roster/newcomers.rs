//! The processes that were not in the previous view, for each known view.
//!
//! A newcomer is identified by its nonce. The nonce is 0 until it is known here.
use crate::ids::{MemberId, Process, ViewId};
use alloc::collections::BTreeMap;

/// The newcomers of the view that has begun and of later ones.
#[derive(Default, Debug)]
pub(super) struct Newcomers {
    /// The nonces by view and id.
    views: BTreeMap<ViewId, BTreeMap<MemberId, u32>>,
}

impl Newcomers {
    /// Notes that the newcomers of a view are known.
    pub(super) fn note_view(&mut self, view: ViewId) {
        self.views.entry(view).or_default();
    }

    /// Notes a newcomer. Returns whether its nonce is known, and was not known before.
    pub(super) fn note(&mut self, view: ViewId, Process { id, nonce }: Process) -> bool {
        let known = self.views.entry(view).or_default().entry(id).or_default();
        let is_new = nonce != 0 && *known != nonce;
        if is_new {
            *known = nonce;
        }
        is_new
    }

    /// True if the newcomers of a view are known.
    pub(super) fn knows(&self, view: ViewId) -> bool {
        self.views.contains_key(&view)
    }

    /// True if `id` was not in the view before `view`.
    pub(super) fn has(&self, view: ViewId, id: MemberId) -> bool {
        self.nonce(view, id).is_some()
    }

    /// Returns the nonce of a newcomer of a view.
    pub(super) fn nonce(&self, view: ViewId, id: MemberId) -> Option<u32> {
        self.views.get(&view).and_then(|joined| joined.get(&id)).copied()
    }

    /// Returns the newcomers of a view.
    pub(super) fn of(&self, view: ViewId) -> impl Iterator<Item = Process> {
        self.views.get(&view).into_iter().flatten().map(|(id, nonce)| Process { id: *id, nonce: *nonce })
    }

    /// True if a process of this id joins with a known view later than `view`.
    pub(super) fn has_behind(&self, view: ViewId, id: MemberId) -> bool {
        self.views.iter().any(|(later, joined)| *later > view && joined.contains_key(&id))
    }

    /// Returns the newest view whose newcomers are known.
    pub(super) fn newest(&self) -> Option<ViewId> {
        self.views.keys().next_back().copied()
    }

    /// Forgets all newcomers.
    pub(super) fn clear(&mut self) {
        self.views.clear();
    }

    /// Notes that a view has begun. Forgets the newcomers of earlier ones.
    pub(super) fn begin(&mut self, view: ViewId) {
        self.views.retain(|id, _| *id >= view);
    }
}
