//! What a campaign may draw from.

/// How what one member stores reaches the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// As over RDMA: each member has its own copy of every row, and posts fill it, in posting order per pair of members.
    Posted,
    /// As in shared memory: every single store is seen by each peer at a moment of its own, in the order of the stores.
    Shared,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident: $one_in:literal,)*) => {
        /// What may go wrong, or merely be unusual. In [`Options`]: what may be drawn; in a plan: what was.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Faults {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl Faults {
            /// Everything.
            pub const ALL: Faults = Faults { $($name: true,)* };
            /// Nothing.
            pub const NONE: Faults = Faults { $($name: false,)* };

            pub(crate) fn draw(self, random: &mut crate::random::Random) -> Faults {
                Faults { $($name: $one_in > 0 && random.one_in($one_in) && self.$name,)* }
            }

            /// The names of those that are set.
            pub fn names(&self) -> Vec<&'static str> {
                [$((self.$name, stringify!($name)),)*].iter().filter(|f| f.0).map(|f| f.1).collect()
            }
        }
    };
}

// The number says that a seed draws it once in so many times; with 0 the plan draws it.
faults! {
    /// Members stop for a while (their engine, applications and consumers), then go on.
    pauses: 2,
    /// Some members poll much slower than the others.
    slow_members: 2,
    /// Consumers on other threads take their time.
    slow_consumers: 2,
    /// Some links are much slower than the others.
    slow_links: 2,
    /// Now and then a post is held up, and all posts behind it.
    delayed_posts: 2,
    /// Control posts that a later, unsent one covers are left out.
    merged_posts: 2,
    /// A post lands line by line, in any order, at different times.
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
    /// Claims that are given up.
    voids: 2,
    /// Senders that declare rounds of silence.
    skips: 2,
    /// Handlers that take only a part of a batch, or nothing.
    partial_batches: 2,
    /// Deliveries handed to consumers on other threads.
    hand_offs: 2,
    /// A consumer keeps frames for a while before it reports them.
    loans: 2,
    /// `now` jumps, forwards and back.
    clock_jumps: 2,
    /// Optimisations are switched off.
    ablations: 2,
    /// Applications close their claims at once after their last message, not when the group has come to rest.
    early_close: 2,
    /// Engines poll a number of times more before they sleep.
    spinning: 2,
    /// Views of one member.
    lone_members: 24,
    /// Many subgroups, of which few are active.
    many_subgroups: 8,
    /// A member so far behind that thousands of small messages are on the way to it.
    long_lag: 16,
    /// Members come and go. Without it none of the following happens.
    membership: 2,
    /// Members crash.
    crashes: 2,
    /// Members stand still, from shorter than the others wait for them to much longer.
    hangs: 2,
    /// Members are said to be lost although they live.
    false_suspicions: 2,
    /// Members join.
    joins: 2,
    /// Members leave.
    leaves: 2,
    /// Links are cut in one direction, for a while or for ever.
    cuts: 2,
    /// Members begin a view without others' memory, which is late or does not come.
    absent_rows: 0,
    /// Messages that are objects: they may be announced some time after they were committed.
    objects: 0,
    /// All links between some members and the others are cut at once, in one direction or both, and come back.
    splits: 0,
    /// Shards that become unavailable when members go, and available again when others join.
    shards: 0,
    /// Windows and message sizes that change while messages are on the way.
    alterations: 0,
}

/// The groups of a campaign. A seed is another run in each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Setting {
    /// Small groups, and in about half of the seeds members come and go.
    #[default]
    Mixed,
    /// The same, and members come and go in every seed.
    Views,
    /// 60 members and 200 subgroups. The visibility and the number of events are the only options that count.
    Large,
}

/// The knobs of a campaign. The defaults are what CI runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The smallest group, in members. At least 1.
    pub members_min: u32,
    /// The largest group, in members: at most 64. The cost of a seed grows with its square.
    pub members_max: u32,
    /// About how many deliveries a seed is to check, at least. Seeds vary around it by some factors.
    pub deliveries: u64,
    /// How many times members come, go or fail in a seed in which they do, at most. Each time is a view more, at most.
    pub happenings: u64,
    /// The groups.
    pub setting: Setting,
    /// Which faults may be drawn. One that is not set never happens.
    pub faults: Faults,
    /// Only this visibility; `None` draws one per seed.
    pub visibility: Option<Visibility>,
    /// Events after which a group that still does something is said never to come to rest.
    pub events_max: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            members_min: 2,
            members_max: 8,
            deliveries: 600,
            happenings: 16,
            setting: Setting::Mixed,
            faults: Faults::ALL,
            visibility: None,
            events_max: 10_000_000,
        }
    }
}
