//! What happens to the membership of a run: who crashes, hangs, comes and goes, and when. Drawn by the plan, or written down
//! by a scenario that wants one situation.
use std::fmt;

/// Something that a member does on the way from one view to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It says whom it suspects.
    Suspects,
    /// It has stopped announcing and receiving.
    Wedges,
    /// It adopts a proposal, its own or another's.
    Adopts,
    /// It knows that a proposal is decided.
    Decides,
    /// It has delivered everything that belongs to the view.
    Ends,
    /// It installs the view.
    Installs,
}

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// This virtual time, in ns.
    At(u64),
    /// As soon as a process has taken a step in the view with this number, for the first time.
    Step {
        /// The process.
        process: usize,
        /// The number of the view; the first has number 1.
        view: u64,
        /// The step.
        step: Step,
    },
}

/// What happens. Processes are indices into [`Plan::members`](crate::Plan::members).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A process dies, after so many more stores and posts, or at the end of the poll with which it would make them.
    Crash {
        /// Who.
        process: usize,
        /// Stores and posts that still become visible.
        actions: u64,
    },
    /// A process stands still, with all its threads.
    Hang {
        /// Who.
        process: usize,
        /// For how long.
        ns: u64,
    },
    /// A process is told that another has to go, which may be alive.
    Suspect {
        /// Who is told.
        by: usize,
        /// Who has to go.
        whom: usize,
    },
    /// A process asks to be admitted, until it is.
    Join {
        /// Who.
        process: usize,
    },
    /// A process asks to leave.
    Leave {
        /// Who.
        process: usize,
    },
    /// Nothing that one process posts arrives at another for a while. Then all of it does.
    Cut {
        /// Whose posts.
        from: usize,
        /// Where.
        to: usize,
        /// For how long; `u64::MAX` for ever.
        ns: u64,
    },
    /// A process asks for one of the plan's changes of subgroups.
    Change {
        /// Who asks.
        process: usize,
        /// The change, as an index into [`Plan::changes`](crate::Plan::changes).
        change: usize,
    },
    /// A process installs a view in which another's memory never comes to it, because the other is late or dead: only with
    /// [`Step::Installs`], and where memory is shared.
    Miss {
        /// Who installs.
        process: usize,
        /// Whose memory does not come.
        whom: usize,
    },
}

/// What happens, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happening {
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

impl Happening {
    /// Something at a time, in ns.
    pub fn at(ns: u64, what: What) -> Happening {
        Happening { when: When::At(ns), what }
    }

    /// Something when `process` takes `step` in the view with this number.
    pub fn on(process: usize, view: u64, step: Step, what: What) -> Happening {
        Happening { when: When::Step { process, view, step }, what }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::At(ns) => write!(f, "at {ns} ns ")?,
            When::Step { process, view, step } => {
                let step = format!("{step:?}").to_lowercase();
                write!(f, "when p{process} {step} in view {view} ")?;
            }
        }
        match self.what {
            What::Crash { process, actions } => write!(f, "p{process} crashes, {actions} actions later"),
            What::Hang { process, ns } => write!(f, "p{process} hangs for {ns} ns"),
            What::Suspect { by, whom } => write!(f, "p{by} is told that p{whom} has to go"),
            What::Join { process } => write!(f, "p{process} asks to join"),
            What::Leave { process } => write!(f, "p{process} asks to leave"),
            What::Cut { from, to, ns: u64::MAX } => write!(f, "p{to} hears nothing more from p{from}"),
            What::Change { process, change } => write!(f, "p{process} asks for change {change}"),
            What::Miss { whom, .. } => write!(f, "p{whom}'s memory does not come to it"),
            What::Cut { from, to, ns } => write!(f, "p{to} hears nothing from p{from} for {ns} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happenings_read_as_sentences() {
        let crash = What::Crash { process: 0, actions: 3 };
        assert_eq!(Happening::at(70, crash).to_string(), "at 70 ns p0 crashes, 3 actions later");
        let on = Happening::on(1, 2, Step::Wedges, What::Cut { from: 1, to: 0, ns: u64::MAX });
        assert_eq!(on.to_string(), "when p1 wedges in view 2 p0 hears nothing more from p1");
    }
}
