//! The departure of a member from its group: it leaves once everything that it sent is delivered.
use super::Member;
use crate::ids::ViewId;
use crate::multicast::engine::Engine;
use alloc::vec::Vec;

/// The progress of a member that wants to leave, in whichever view the members agree on that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    No,
    /// The member first has to send messages of earlier views again.
    Wanted,
    /// The member waits until everything that it had sent by then is delivered everywhere. The
    /// numbers are counts of each view's engine.
    Waits(Vec<(ViewId, Vec<u64>)>),
    /// The member has asked the others to continue without it.
    Asked,
}

impl Member {
    /// Asks the others for a view without this member, as soon as they have delivered what it has
    /// sent by now. Returns false if it has asked before.
    pub fn leave(&mut self) -> bool {
        let is_new = self.leaving == Leaving::No;
        if is_new {
            self.leaving = Leaving::Wanted;
        }
        is_new
    }

    /// Whether this member wants to go.
    pub fn is_leaving(&self) -> bool {
        self.leaving != Leaving::No
    }

    /// A step towards leaving, while messages of earlier views wait to be sent again or not
    /// (`has_backlog`): first all that was sent has to be delivered everywhere. Returns whether
    /// anything happened.
    pub fn go(&mut self, has_backlog: bool) -> bool {
        match &self.leaving {
            Leaving::Wanted if !has_backlog => {
                let committed = |engine: &Engine| (engine.view().id, engine.committed());
                self.leaving = Leaving::Waits(self.engines().map(committed).collect());
            }
            Leaving::Waits(committed)
                if committed.iter().all(|(view, committed)| self.has_delivered(*view, committed)) =>
            {
                self.leaving = Leaving::Asked;
                self.engine.leave();
            }
            _ => return false,
        }
        true
    }

    /// Whether everything is delivered everywhere that stood in my rings of `view` when they had
    /// come so far, or is not waited for there any more.
    fn has_delivered(&self, view: ViewId, committed: &[u64]) -> bool {
        self.engine_of(view).is_none_or(|engine| engine.is_delivered(committed))
    }

    /// Whether this member has yet to give up what waits for subgroups that are not available: it
    /// is about to go.
    pub fn gives_up(&self) -> bool {
        self.leaving == Leaving::Wanted
    }
}
