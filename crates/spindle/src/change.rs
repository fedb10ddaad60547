//! The event by which an application learns of a view change.
use spindle_core::{MemberId, View};
use std::sync::Arc;

/// One view has ended and the next has begun.
#[derive(Clone, Debug)]
pub struct ViewChange {
    /// The view that has ended.
    pub old: Arc<View>,
    /// The view that follows.
    pub new: Arc<View>,
    /// The members of the new view that were not in the old one.
    pub joined: Vec<MemberId>,
    /// The members of the old view that are not in the new one: dead, evicted, or departed by
    /// choice.
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
