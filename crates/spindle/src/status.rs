//! A member's view of its group at one moment, for people and for monitoring.
use serde_json::{Value, json};
use spindle_core::control::{Member, RackName};
use spindle_core::layout::membership;
use spindle_core::stats::{EngineStats, Frontier, SubgroupStats};
use spindle_core::{MemberId, Rank, Rows};

/// A moment of a group, as one member knows it.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// This member's id.
    pub id: u64,
    /// The number of its view.
    pub view: u64,
    /// Who is in it, by rank.
    pub members: Vec<Standing>,
    /// Whether the view is coming to its end: in the subgroups that the change touches nothing is sent or received any more.
    pub is_changing: bool,
    /// Whether the change can't go on because too few members are with this one.
    pub is_blocked: bool,
    /// How many processes follow the view without being members, as far as this member was asked by them.
    pub observers: u64,
    /// Messages of this member that no view had a ring for any more.
    pub lost: u64,
    /// Counts of this member's engine.
    pub engine: EngineStats,
    /// The subgroups this member is in.
    pub subgroups: Vec<SubgroupStatus>,
}

/// One member of the view.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its id.
    pub id: MemberId,
    /// Its process.
    pub pid: u32,
    /// Whether it is on another host than this member.
    pub is_far: bool,
    /// The rack that it says it stands in.
    pub rack: Option<RackName>,
    /// Whether it leads changes of the view.
    pub leads: bool,
    /// Whether this member takes it for dead or hung.
    pub suspected: bool,
    /// Whether this member has given it up, by an operator's word.
    pub given_up: bool,
    /// Whether its polling thread sleeps.
    pub asleep: bool,
    /// Whether it has announced all that it will ever send.
    pub finished: bool,
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

impl Status {
    pub(crate) fn of(
        of: &Member,
        rows: &impl Rows,
        pid: impl Fn(MemberId) -> u32,
        is_far: impl Fn(MemberId) -> bool,
        rack: impl Fn(MemberId) -> Option<RackName>,
        lost: u64,
        observers: u64,
    ) -> Status {
        let engine = of.engine();
        let (view, me) = (engine.view(), engine.me());
        let flag = |rank, word| rows.load(rank, word) != 0;
        let member = |rank: Rank| view.members[rank.index()];
        let members = view.ranks().map(|rank| Standing {
            id: member(rank),
            pid: pid(member(rank)),
            is_far: is_far(member(rank)),
            rack: rack(member(rank)),
            leads: engine.leader() == rank,
            suspected: engine.suspects(rank),
            given_up: engine.is_given_up(rank),
            asleep: flag(rank, membership::ASLEEP),
            finished: flag(rank, membership::FINISHED),
        });
        let subgroups = view.subgroups_of(me).filter_map(|(id, spec)| {
            let (home, there) = of.home(id)?;
            let stable = home.stable(there).unwrap_or(0);
            let members = home.frontiers(there).filter_map(|(was, frontier)| {
                let id = home.view().members[was.index()];
                let rank = view.rank_of(id)?;
                Some(MemberStatus {
                    id,
                    rank,
                    pid: pid(id),
                    asleep: flag(rank, membership::ASLEEP),
                    finished: flag(rank, membership::FINISHED),
                    frontier,
                    lag: stable.saturating_sub(frontier.delivered),
                })
            });
            let stats = home.subgroup_stats(there).unwrap_or_default();
            Some(SubgroupStatus { name: spec.name.clone(), stats, stable, members: members.collect() })
        });
        Status {
            id: member(me).0,
            view: view.id.0,
            members: members.collect(),
            is_changing: engine.is_changing(),
            is_blocked: engine.is_blocked(),
            observers,
            lost,
            engine: engine.stats(),
            subgroups: subgroups.collect(),
        }
    }

    /// As JSON, with the names of the fields.
    pub fn to_json(&self) -> Value {
        let members = self.members.iter().map(|member| {
            json!({
                "id": member.id.0,
                "pid": member.pid,
                "far": member.is_far,
                "rack": member.rack.as_ref().map(RackName::as_str),
                "leads": member.leads,
                "suspected": member.suspected,
                "given_up": member.given_up,
                "asleep": member.asleep,
                "finished": member.finished,
            })
        });
        let subgroups = self.subgroups.iter().map(|subgroup| {
            let members = subgroup.members.iter().map(|member| {
                json!({
                    "id": member.id.0,
                    "rounds": member.frontier.rounds,
                    "received": member.frontier.received,
                    "delivered": member.frontier.delivered,
                    "lag": member.lag,
                })
            });
            json!({
                "name": subgroup.name,
                "stable": subgroup.stable,
                "sent": subgroup.stats.sent,
                "delivered": subgroup.stats.delivered,
                "members": members.collect::<Vec<_>>(),
            })
        });
        json!({
            "id": self.id,
            "view": self.view,
            "changing": self.is_changing,
            "blocked": self.is_blocked,
            "observers": self.observers,
            "lost": self.lost,
            "members": members.collect::<Vec<_>>(),
            "subgroups": subgroups.collect::<Vec<_>>(),
        })
    }
}
