//! The result of a run.
use crate::Violation;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestartOutcome {
    /// The first violation.
    pub violations: Vec<Violation>,
    /// The counted events.
    pub counts: RestartCounts,
    /// True if all processes were in one group at the end.
    pub united: bool,
    /// The virtual time at the end, in ns.
    pub virtual_ns: u64,
    /// A hash of the run: equal runs have equal hashes.
    pub trace_hash: u64,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident,)*) => {
        /// The counted events of a run, or of many.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct RestartCounts { $($(#[$doc])* pub $count: u64,)* }

        impl RestartCounts {
            /// Adds the counts of a run.
            pub(crate) fn add(&mut self, other: &RestartCounts) { $(self.$count += other.$count;)* }

            /// Returns all counts with their names.
            pub fn rows(&self) -> Vec<(&'static str, u64)> { vec![$((stringify!($count), self.$count),)*] }
        }
    };
}

counts! {
    /// Views that began.
    views,
    /// Views of restarts that began.
    restarts,
    /// Processes that began the view of a restart.
    restarted,
    /// Processes that ended while they restarted.
    ended_restarting,
    /// Attempts to restart.
    attempts,
    /// Attempts that were told of a higher ballot.
    outbid,
    /// Views of restarts that another ballot had proposed before.
    proposed_again,
    /// Restarts of which a process learned from a member.
    learned,
    /// Processes that ended because they had voted on the next view.
    refused,
    /// Members that ended because no member which continued had a complete log.
    incomplete,
    /// Restarts without members that an operator gave up.
    recoveries,
    /// Restarts without members that did not come.
    without_others,
    /// Votes for views that were written to disks.
    votes,
    /// Disks that were lost.
    lost_disks,
    /// Members that joined a group that had begun.
    joins,
    /// Views that members decided.
    view_changes,
    /// Messages that were not part of the epoch in which they were sent.
    trimmed,
    /// Logs that were cut at the end of an epoch.
    log_cuts,
    /// Groups without a quorum that an operator ended.
    blocked,
    /// Processes that ended in order: they said so.
    ended_in_order,
    /// Processes that crashed.
    crashes,
    /// Crashes close to the end of a write of a record.
    crashes_at_writes,
    /// Messages that were sent in views.
    sent,
    /// Messages that were acknowledged as durable.
    durable,
    /// Logs that caught up.
    caught_up,
    /// Logs that got records from others before a restart was decided.
    levelled,
    /// Logs that began without older records.
    gaps,
    /// Messages of restarts that arrived.
    messages,
    /// Events that were processed.
    events,
}
