//! The counts of a run.
use std::ops::AddAssign;

/// The events of a run, or of many runs together, in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages delivered and checked, at all members together.
    pub deliveries: u64,
    /// Messages committed.
    pub messages: u64,
    /// Nulls announced.
    pub nulls: u64,
    /// Polls of engines.
    pub polls: u64,
    /// Posts, each counted once for any number of peers.
    pub posts: u64,
    /// Stores of engines into their rows.
    pub stores: u64,
    /// Faults that happened: delays, merges, torn posts, pauses with an effect, clock jumps,
    /// crashes, hangs, cuts, false suspicions.
    pub faults: u64,
    /// Views installed by at least one member, without the first view.
    pub views: u64,
    /// Views installed by members, counted once per member.
    pub installs: u64,
    /// Processes that crashed.
    pub crashes: u64,
    /// Hangs begun.
    pub hangs: u64,
    /// Members that were made to suspect a live member.
    pub suspicions: u64,
    /// Links cut.
    pub cuts: u64,
    /// Members that began a view without the memory of another, counted once per missing memory.
    pub absences: u64,
    /// Processes that asked to be admitted.
    pub joins: u64,
    /// Members that asked to leave.
    pub leaves: u64,
    /// Members that learnt that the others continue without them.
    pub evictions: u64,
    /// Messages sent again in a later view.
    pub resent: u64,
    /// Members that asked for a change of a subgroup.
    pub alterations: u64,
    /// Rings of ended views whose messages waited for their subgroup to become available again,
    /// counted once per view.
    pub waits: u64,
    /// Records that members have handed to their logs.
    pub records: u64,
    /// Logs that were cut because an epoch ended before their end.
    pub log_cuts: u64,
    /// Acceptances of views that were written to disks.
    pub acceptances: u64,
    /// Read barriers that members have passed.
    pub barriers: u64,
    /// Occurrences that may each have ended a view.
    pub(crate) reasons: u64,
    /// Events that were processed.
    pub events: u64,
    /// Virtual time that passed, in ns.
    pub virtual_ns: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.deliveries += other.deliveries;
        self.messages += other.messages;
        self.nulls += other.nulls;
        self.polls += other.polls;
        self.posts += other.posts;
        self.stores += other.stores;
        self.faults += other.faults;
        self.views += other.views;
        self.installs += other.installs;
        self.crashes += other.crashes;
        self.hangs += other.hangs;
        self.suspicions += other.suspicions;
        self.cuts += other.cuts;
        self.absences += other.absences;
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.evictions += other.evictions;
        self.resent += other.resent;
        self.alterations += other.alterations;
        self.waits += other.waits;
        self.records += other.records;
        self.log_cuts += other.log_cuts;
        self.acceptances += other.acceptances;
        self.barriers += other.barriers;
        self.reasons += other.reasons;
        self.events += other.events;
        self.virtual_ns += other.virtual_ns;
    }
}
