//! The read barrier of a subgroup, which threads of the application ask.
use spindle_core::{ReadBarrier as Words, Rows};
use spindle_fabric::{OwnRows, Reader};
use spindle_transport::fork::ForkMark;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock};

/// Shows whether this member has delivered everything that any member has, in one subgroup. Clones
/// are for other threads.
///
/// It costs a few loads from memory and no message, but passes only where all members of the view
/// are on one host and messages go to the [`Handler`](crate::Handler). An application that needs a
/// linearizable read, and finds that the barrier does not pass, sends a message and reads when it is
/// delivered.
#[derive(Clone, Debug, Default)]
pub struct ReadBarrier(Arc<RwLock<Option<BarrierRows>>>);

/// The barrier of the newest view, and the rows that it reads. As long as they are held, their owners
/// use the memory for nothing else.
#[derive(Debug)]
pub(super) struct BarrierRows {
    pub(super) words: Words,
    /// The rows of the newest view.
    pub(super) rows: Reader,
    /// The row with the counters of the subgroup.
    pub(super) home: OwnRows,
    /// A forked child has zeros in place of this member's rows.
    pub(super) mark: ForkMark,
}

impl ReadBarrier {
    /// Returns true if this member has delivered every message of the subgroup that any member had
    /// delivered when the call began, in this view and in later ones. So a member that was evicted,
    /// and does not know it, gets false as soon as the others have agreed on that.
    ///
    /// False means that it is not known: messages are on their way, the view changes, a member is on
    /// another host, this member has ended, or this is a forked child. The call waits for nothing.
    ///
    /// # Examples
    /// `read_latest` of `spindle-object` reads the object of this member if the barrier passes, and
    /// sends a message otherwise.
    pub fn is_passed(&self) -> bool {
        // The loads of the rows come after all that this thread has learnt from other members.
        fence(Ordering::SeqCst);
        // A view begins at this moment.
        let Ok(now) = self.0.try_read() else { return false };
        let is_passed = |now: &BarrierRows| {
            let BarrierRows { words, rows, home, mark } = now;
            !mark.is_copy()
                && rows.is_shared()
                && words.is_passed(|rank, at| rows.load(rank, at), |rank, at| home.load(rank, at))
        };
        now.as_ref().is_some_and(is_passed)
    }

    /// Sets the rows of the view that has begun; `None`: the barrier does not pass.
    pub(super) fn set(&self, rows: Option<BarrierRows>) {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, rows);
        drop(now);
        // It may be the last that holds the memory.
        drop(before);
    }
}
