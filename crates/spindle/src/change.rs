//! What an application is told of a change of the view.
use spindle_core::{MemberId, View};
use std::sync::Arc;

/// One view has ended and the next has begun.
#[derive(Clone, Debug)]
pub struct ViewChange {
    /// The view that has ended.
    pub old: Arc<View>,
    /// The one that follows.
    pub new: Arc<View>,
    /// Who is in the new one and was not in the old one.
    pub joined: Vec<MemberId>,
    /// Who was in the old one and is not in the new one: dead, evicted, or gone of its own will.
    pub left: Vec<MemberId>,
}

impl ViewChange {
    pub(crate) fn new(old: Arc<View>, new: Arc<View>) -> ViewChange {
        let only_in = |this: &View, other: &View| {
            this.members.iter().copied().filter(|id| !other.members.contains(id)).collect::<Vec<_>>()
        };
        ViewChange { joined: only_in(&new, &old), left: only_in(&old, &new), old, new }
    }
}
