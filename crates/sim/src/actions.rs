//! The membership faults of a run: crashes, hangs, cuts, joins and leaves, and their times. A plan
//! draws them at random; a scenario writes them down for one situation.
use std::fmt;

/// A step of a member on the way from one view to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallStep {
    /// It announces the members that it suspects.
    Suspects,
    /// It has stopped announcing and receiving.
    Wedges,
    /// It adopts a proposal, its own or another's.
    Adopts,
    /// It knows that a proposal is decided.
    Decides,
    /// It has delivered all messages of the view.
    Ends,
    /// It installs the view.
    Installs,
}

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// This virtual time, in ns.
    At(u64),
    /// The first time that a process has taken a step in the view with this number.
    Step {
        /// The process.
        process: usize,
        /// The number of the view; the first has number 1.
        view: u64,
        /// The step.
        step: InstallStep,
    },
}

/// A fault or a request. Processes are indices into [`Plan::members`](crate::Plan::members).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionKind {
    /// A process crashes after so many more stores and posts, or at the end of the poll in which it
    /// would make them.
    Crash {
        /// The process.
        process: usize,
        /// Stores and posts that still become visible.
        actions: u64,
    },
    /// A process hangs, with all its threads.
    Hang {
        /// The process.
        process: usize,
        /// The length of the hang.
        ns: u64,
    },
    /// A process is made to suspect another one, which may be alive.
    Suspect {
        /// The process that suspects.
        by: usize,
        /// The process that is suspected.
        whom: usize,
    },
    /// A process asks to be admitted, until it is.
    Join {
        /// The process.
        process: usize,
    },
    /// A process asks to leave.
    Leave {
        /// The process.
        process: usize,
    },
    /// For a while nothing that one process posts arrives at another. Then all of it arrives.
    Cut {
        /// The posting process.
        from: usize,
        /// The process at which the posts do not arrive.
        to: usize,
        /// The length of the cut; `u64::MAX` for ever.
        ns: u64,
    },
    /// A process asks for one of the plan's changes of subgroups.
    Change {
        /// The process that asks.
        process: usize,
        /// The change, as an index into [`Plan::changes`](crate::Plan::changes).
        change: usize,
    },
    /// A process installs a view in which it never gets another's memory, because the other is late
    /// or dead. Only with [`InstallStep::Installs`], and only where memory is shared.
    Miss {
        /// The process that installs.
        process: usize,
        /// The process whose memory does not arrive.
        whom: usize,
    },
}

/// A fault or a request, and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    /// The time.
    pub when: When,
    /// The fault or request.
    pub what: ActionKind,
}

impl Action {
    /// Returns an action at a time, in ns.
    pub fn at(ns: u64, what: ActionKind) -> Action {
        Action { when: When::At(ns), what }
    }

    /// Returns an action at the moment when `process` takes `step` in the view with this number.
    pub fn on(process: usize, view: u64, step: InstallStep, what: ActionKind) -> Action {
        Action { when: When::Step { process, view, step }, what }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::At(ns) => write!(f, "at {ns} ns ")?,
            When::Step { process, view, step } => {
                let step = format!("{step:?}").to_lowercase();
                write!(f, "when p{process} {step} in view {view} ")?;
            }
        }
        match self.what {
            ActionKind::Crash { process, actions } => write!(f, "p{process} crashes, {actions} actions later"),
            ActionKind::Hang { process, ns } => write!(f, "p{process} hangs for {ns} ns"),
            ActionKind::Suspect { by, whom } => write!(f, "p{by} is told that p{whom} has to go"),
            ActionKind::Join { process } => write!(f, "p{process} asks to join"),
            ActionKind::Leave { process } => write!(f, "p{process} asks to leave"),
            ActionKind::Cut { from, to, ns: u64::MAX } => write!(f, "p{to} hears nothing more from p{from}"),
            ActionKind::Change { process, change } => write!(f, "p{process} asks for change {change}"),
            ActionKind::Miss { whom, .. } => write!(f, "p{whom}'s memory does not come to it"),
            ActionKind::Cut { from, to, ns } => write!(f, "p{to} hears nothing from p{from} for {ns} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_read_as_sentences() {
        let crash = ActionKind::Crash { process: 0, actions: 3 };
        assert_eq!(Action::at(70, crash).to_string(), "at 70 ns p0 crashes, 3 actions later");
        let on = Action::on(1, 2, InstallStep::Wedges, ActionKind::Cut { from: 1, to: 0, ns: u64::MAX });
        assert_eq!(on.to_string(), "when p1 wedges in view 2 p0 hears nothing more from p1");
    }
}
