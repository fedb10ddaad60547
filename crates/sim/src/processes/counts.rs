//! What happened in a run, or in many, in numbers.

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The numbers of what happened.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// All of them, by name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds those of another run.
            pub(super) fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Groups that were founded.
    foundings,
    /// Processes that began their first view in a group that existed.
    joins,
    /// Members that were left out of a view though they lived and had not asked for it.
    evictions,
    /// Groups that went on after an operator had given up the members that were lost.
    recoveries,
    /// Orders to give up members that lived, which were carried out.
    mistakes,
    /// Members that left.
    leaves,
    /// Processes that were refused.
    refusals,
    /// Processes that were killed.
    kills,
    /// Processes that were started again.
    restarts,
    /// Times at which links were cut.
    partitions,
    /// Times at which links were mended.
    heals,
    /// Times at which a process had no room for descriptors.
    full,
    /// Look-ups of the seeds' name.
    look_ups,
    /// Seeds that were started again with another address.
    moved,
    /// Connections that broke.
    breaks,
    /// Streams that continued in the next view.
    continued,
    /// Views beside the first ones.
    views,
    /// Messages that were delivered and checked, at all members together.
    deliveries,
    /// The part of them in Fifo subgroups.
    fifo,
    /// The part of them in epochs that had begun before the view that was the newest there.
    older,
    /// Large messages that were put into rings, the first time.
    large_sent,
    /// Large messages that were delivered and checked, at all members together.
    large,
    /// Large messages that were sent again in the next view.
    large_again,
    /// Blocks that were posted.
    blocks,
    /// Times that an object was lent on a host.
    lent,
    /// Bulk groups that a member was lost to, at all members together.
    groups_closed,
    /// Large messages that processes that follow got of members.
    fetched,
    /// Large messages that they missed.
    objects_missed,
    /// Subgroups that got too few members.
    unavailable,
    /// Subgroups that got enough again.
    available_again,
    /// Changes of subgroups that members asked for.
    wishes,
    /// Changes of subgroups that came about.
    changes,
    /// Processes that joined with the state.
    learned,
    /// States that came to their ends.
    transfers,
    /// States that broke off, with their sources or connections.
    transfers_lost,
    /// Attempts to learn behind whose state the group had passed over a view.
    passed_over,
    /// Attempts to learn whose messages were overwritten before they were read.
    lapped,
    /// Messages that observers were told, and checked.
    observed,
    /// Times that observers were told to have missed something.
    gaps,
    /// Events.
    events,
    /// Virtual time, in ns.
    virtual_ns,
}
