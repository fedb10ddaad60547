//! A member's view of its group at one moment, for people and for monitoring.
use spindle_core::stats::{EngineStats, Frontier, SubgroupStats};
use spindle_core::{MemberId, Rank};

/// A moment of a group, as one member knows it.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Counts of this member's engine.
    pub engine: EngineStats,
    /// The subgroups this member is in.
    pub subgroups: Vec<SubgroupStatus>,
}

/// A moment of one subgroup.
#[derive(Clone, Debug)]
pub struct SubgroupStatus {
    /// Its name.
    pub name: String,
    /// What this member did in it.
    pub stats: SubgroupStats,
    /// Places of its order that every member has received.
    pub stable: u64,
    /// Its members, by rank.
    pub members: Vec<MemberStatus>,
}

/// How far one member is in a subgroup.
#[derive(Clone, Copy, Debug)]
pub struct MemberStatus {
    /// Its id.
    pub id: MemberId,
    /// Its rank.
    pub rank: Rank,
    /// Its process.
    pub pid: u32,
    /// Whether its polling thread sleeps.
    pub asleep: bool,
    /// Whether it has announced all that it will ever send.
    pub finished: bool,
    /// What it has announced, received and delivered.
    pub frontier: Frontier,
    /// Places of the order that are stable and that it has not delivered: a consumer that is slow shows here.
    pub lag: u64,
}
