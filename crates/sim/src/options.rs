//! The options of a campaign.

/// How the stores of one member become visible to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// As over RDMA: each member has its own copy of every row. Posts update it, in posting order
    /// per pair of members.
    Posted,
    /// As in shared memory: each peer sees every single store at a time of its own, in the order of
    /// the stores.
    Shared,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident: $one_in:literal,)*) => {
        /// Faults and unusual situations. In [`Options`] they may be drawn; in a plan they were
        /// drawn.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Faults {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl Faults {
            /// All faults.
            pub const ALL: Faults = Faults { $($name: true,)* };
            /// No fault.
            pub const NONE: Faults = Faults { $($name: false,)* };

            pub(crate) fn draw(self, random: &mut crate::random::Random) -> Faults {
                Faults { $($name: $one_in > 0 && random.one_in($one_in) && self.$name,)* }
            }

            /// Returns the names of the faults that are set.
            pub fn names(&self) -> Vec<&'static str> {
                [$((self.$name, stringify!($name)),)*].iter().filter(|f| f.0).map(|f| f.1).collect()
            }
        }
    };
}

// A seed draws a fault once in this many times; with 0 the plan draws it.
faults! {
    /// Members stop for a while (their engine, applications and consumers), then continue.
    pauses: 2,
    /// Some members poll much more slowly than the others.
    slow_members: 2,
    /// Consumers on other threads are slow.
    slow_consumers: 2,
    /// Some links are much slower than the others.
    slow_links: 2,
    /// Now and then a post is delayed, and all posts after it.
    delayed_posts: 2,
    /// Control posts are left out if a later, unsent one covers them.
    merged_posts: 2,
    /// A post lands cache line by cache line, in any order, at different times.
    tearing: 2,
    /// The fabric copies announced frames when it sends them, not when they are posted.
    late_copies: 2,
    /// Words arrive, and applications commit, while an engine is in the middle of a poll.
    mid_poll_arrivals: 2,
    /// Applications send in bursts with silences between them.
    bursts: 2,
    /// Rings of one or two messages, which wrap all the time.
    tiny_windows: 2,
    /// Messages of 0 bytes.
    empty_messages: 2,
    /// Messages of the largest size.
    full_messages: 2,
    /// Claims that the application abandons.
    voids: 2,
    /// Senders that declare rounds of silence.
    skips: 2,
    /// Handlers that take only a part of a batch, or nothing.
    partial_batches: 2,
    /// Deliveries handed to consumers on other threads.
    hand_offs: 2,
    /// A consumer keeps frames for a while before it reports them.
    loans: 2,
    /// `now` jumps forwards and back.
    clock_jumps: 2,
    /// Optimisations that are switched off.
    ablations: 2,
    /// Applications close their claims immediately after their last message, not when the group has
    /// come to rest.
    early_close: 2,
    /// Engines poll several more times before they sleep.
    spinning: 2,
    /// Views of one member.
    lone_members: 24,
    /// Many subgroups, of which few are active.
    many_subgroups: 8,
    /// A member so far behind that thousands of small messages are in flight to it.
    long_lag: 16,
    /// Members join and leave the group. Without this fault none of the following occurs.
    membership: 2,
    /// Members crash.
    crashes: 2,
    /// Members hang, from less than the suspicion time to much longer.
    hangs: 2,
    /// Members are reported as lost although they live.
    false_suspicions: 2,
    /// Members join.
    joins: 2,
    /// Members leave.
    leaves: 2,
    /// Links are cut in one direction, for a while or for ever.
    cuts: 2,
    /// Members begin a view without the memory of others, which is late or does not arrive.
    absent_rows: 0,
    /// Messages that are objects: they may be announced some time after their commit.
    objects: 0,
    /// All links between some members and the others are cut at once, in one direction or both, and
    /// restored later.
    splits: 0,
    /// Shards that become unavailable when members leave, and available again when others join.
    shards: 0,
    /// Windows and message sizes that change while messages are in flight.
    alterations: 0,
    /// Subgroups that are logged, by disks of different speed.
    logs: 0,
}

/// The groups of a campaign. The same seed gives a different run in each setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Setting {
    /// Small groups. In about half of the seeds members join and leave.
    #[default]
    Mixed,
    /// Small groups. Members join and leave in every seed.
    Views,
    /// 60 members and 200 subgroups. Only the visibility and the number of events apply here.
    Large,
}

/// The options of a campaign. CI uses the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The smallest number of members in a group, at least 1.
    pub members_min: u32,
    /// The largest number of members in a group, at most 64. The cost of a seed grows with its
    /// square.
    pub members_max: u32,
    /// The approximate minimum of deliveries that a seed checks. Seeds vary around it by some
    /// factors.
    pub deliveries: u64,
    /// The maximum number of joins, leaves and failures in a seed that has membership faults. Each
    /// causes at most one more view.
    pub actions: u64,
    /// The groups.
    pub setting: Setting,
    /// The faults that may be drawn. A fault that is not set never occurs.
    pub faults: Faults,
    /// The visibility of every seed; `None` draws one per seed.
    pub visibility: Option<Visibility>,
    /// The number of events after which a group that is still active is reported as never coming to
    /// rest.
    pub events_max: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            members_min: 2,
            members_max: 8,
            deliveries: 600,
            actions: 16,
            setting: Setting::Mixed,
            faults: Faults::ALL,
            visibility: None,
            events_max: 10_000_000,
        }
    }
}
