//! The result of a poll, and the state of an engine.
use crate::ids::Time;
use core::hash::Hash;

/// The result of a poll, and the time at which the engine needs the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Whether it found anything to do. Then there may be more to do at once, whatever `wake_at`
    /// says.
    pub worked: bool,
    /// When to poll again even if nothing happens; `None` if only an event can bring more work.
    pub wake_at: Option<Time>,
    /// Whether the poll found nothing and `wake_at` is now only because it has passed over
    /// subgroups. A caller that sleeps after such polls first calls
    /// [`Engine::before_sleep`](crate::Engine::before_sleep) and polls again, until a poll is not
    /// partial.
    pub partial: bool,
}

impl Progress {
    /// Whether the caller should poll again at once.
    pub fn has_more(&self, now: Time) -> bool {
        self.worked || self.wake_at.is_some_and(|at| at <= now)
    }
}

/// How the engine stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// It works.
    Running,
    /// Every member has finished sending and everything is delivered here.
    Finished,
    /// The view has ended, in agreement: see [`Engine::successor`](crate::Engine::successor).
    /// Further [polls](crate::Engine::poll) deliver the [rest](crate::Engine::has_rest) of it.
    Ended,
    /// I may not go on. My log of a [subgroup](crate::Engine::incomplete) lacks records, and so do those of all
    /// members that would go on. The members that may have them have ended: the group has to restart with them.
    Incomplete,
    /// The others go on without me, because they heard nothing from me for too long or were told
    /// to. Nothing more may be delivered here: it might not be what they deliver.
    Evicted,
}
