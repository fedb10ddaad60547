//! The counts of a run, or of many runs.

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The events of a run, or of many runs, in numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Returns all counts with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds the counts of another run.
            pub(super) fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Groups that were created.
    bootstraps,
    /// Processes that began their first view in a group that existed.
    joins,
    /// Members that were evicted from a view although they lived and had not asked to leave.
    evictions,
    /// Groups that continued after an operator had given up the lost members.
    recoveries,
    /// Operator commands that gave up live members.
    mistakes,
    /// Members that left.
    leaves,
    /// Views that processes began with settings that they had adopted.
    adopted,
    /// Processes that were refused.
    refusals,
    /// Processes that were refused for their clocks.
    skewed,
    /// Processes that were killed.
    kills,
    /// Processes that were killed while they waited for admission, as a view began.
    killed_waiting,
    /// Processes that were killed between the decision and the announcement of a first view.
    killed_founding,
    /// Processes that were restarted.
    restarts,
    /// Times at which links were cut.
    partitions,
    /// Times at which links were restored.
    heals,
    /// Times at which a process had no room for descriptors.
    full,
    /// Look-ups of the seeds' name.
    look_ups,
    /// Seeds that were restarted with another address.
    moved,
    /// Connections that broke.
    breaks,
    /// Streams that continued in the next view.
    continued,
    /// Views, without the first ones.
    views,
    /// Messages that were delivered and checked, at all members together.
    deliveries,
    /// Deliveries in Fifo subgroups.
    fifo,
    /// Deliveries in epochs that had begun before the member's newest view.
    older,
    /// Large messages that were put into rings for the first time.
    large_sent,
    /// Large messages that were delivered and checked, at all members together.
    large,
    /// Large messages that were sent again in the next view.
    large_again,
    /// Blocks that were posted.
    blocks,
    /// Times that an object was lent on a host.
    lent,
    /// Bulk groups that lost a member, counted once per member.
    groups_closed,
    /// Large messages that observers and learners fetched from members.
    fetched,
    /// Large messages that observers and learners missed.
    objects_missed,
    /// Subgroups that had too few members.
    unavailable,
    /// Subgroups that had enough members again.
    available_again,
    /// Changes of subgroups that members asked for.
    proposed,
    /// Changes of subgroups that took effect.
    changes,
    /// Processes that joined with the state.
    learned,
    /// State transfers that were completed.
    transfers,
    /// State transfers that failed with their source or connection.
    transfers_lost,
    /// State transfers after which the learner had missed a view of the group.
    passed_over,
    /// State transfers whose messages were overwritten before the learner read them.
    lapped,
    /// Messages that observers received, and that were checked.
    observed,
    /// Reports to observers that they missed messages.
    gaps,
    /// Records that logs took from engines.
    logged,
    /// Rises of durable frontiers.
    durable,
    /// Logs that lost records behind the end of an epoch.
    log_cuts,
    /// Logs of earlier processes that were opened.
    log_returns,
    /// Processes that ended because no member that would have continued had a complete log.
    incomplete,
    /// Logs that got all records that they lacked.
    caught_up,
    /// Streams of records that ended.
    record_streams,
    /// Records that came from other members.
    fetched_records,
    /// Logs with records that the group had given up.
    foreign,
    /// Syncs that failed.
    sync_failures,
    /// Times at which a disk became full.
    disks_full,
    /// Events that were processed.
    events,
    /// Virtual time, in ns.
    virtual_ns,
}
