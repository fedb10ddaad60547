//! The statements of processes that begin no more views.
//!
//! A statement is about one attempt of a process: the process may begin anew with another nonce,
//! and lives. At most [`FORMER_MAX`] statements of an id are kept, for [`VIEWS_BEHIND_MAX`] views.
use super::{FORMER_MAX, VIEWS_BEHIND_MAX};
use crate::ids::{MemberId, ViewId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The statement of a process that it begins no more views.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoppedProcesses {
    pub(super) incarnation: u128,
    /// The last view that it has begun.
    pub(super) last: ViewId,
    pub(super) nonce: u32,
    /// The newest view that had begun here when the statement arrived, or the first that began
    /// after it.
    pub(super) heard_in: Option<ViewId>,
}

/// The statements by id.
#[derive(Default, Debug)]
pub(super) struct Statements {
    stopped: BTreeMap<MemberId, Vec<StoppedProcesses>>,
}

impl Statements {
    /// Notes the statement that a process has sent at its end.
    pub(super) fn note(&mut self, id: MemberId, word: StoppedProcesses) {
        let words = self.stopped.entry(id).or_default();
        words.push(word);
        words.drain(..words.len().saturating_sub(FORMER_MAX));
    }

    /// True if a statement of a process with this id fulfils `is_its`.
    pub(super) fn any(&self, id: MemberId, is_its: impl Fn(&StoppedProcesses) -> bool) -> bool {
        self.stopped.get(&id).is_some_and(|words| words.iter().any(is_its))
    }

    /// True if there are no statements.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.stopped.is_empty()
    }

    /// Notes that a view has begun. Forgets old statements.
    pub(super) fn begin(&mut self, view: ViewId) {
        self.stopped.retain(|_, words| {
            words.retain_mut(|word| {
                let heard_in = word.heard_in.get_or_insert(view);
                view.ahead_of(*heard_in) <= VIEWS_BEHIND_MAX
            });
            !words.is_empty()
        });
    }
}
