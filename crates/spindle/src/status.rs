//! A member's view of its group at one moment, for people and for monitoring.
use crate::handles::SubgroupHandles;
use crate::histogram::Histogram;
use crate::logs::{LogStatus, SubgroupLog};
use crate::shared::HandlerStatus;
#[cfg(feature = "json")]
use serde_json::{Value, json};
use spindle_core::control::{Declined, Member, RackName};
use spindle_core::multicast::stats::{EngineStats, Frontier, SubgroupStats};
use spindle_core::wire::layout::membership;
use spindle_core::{MemberId, Rank, Rows, ViewId};
use std::time::Duration;

/// The state of a group at one moment, as one member knows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// This member's id.
    pub id: MemberId,
    /// Its view.
    pub view: ViewId,
    /// The members of the view, by rank.
    pub members: Vec<Standing>,
    /// Whether the view is ending: in the subgroups that the change touches, nothing is sent or
    /// received any more.
    pub is_changing: bool,
    /// Whether the change can't continue because too few members support this one.
    pub is_blocked: bool,
    /// How many processes have asked this member to follow the view as observers.
    pub observers: u64,
    /// Messages of this member that were lost because no later view had a ring for them.
    pub lost: u64,
    /// Counters of this member's engines in all views so far.
    pub engine: EngineStats,
    /// How the handler has kept the polling thread waiting. It is observed only in a
    /// [`Group`](crate::Group), not in a [`Node`](crate::Node) that the caller polls.
    pub handler: HandlerStatus,
    /// How long the changes of the view took here, from the moment at which this member learnt of
    /// the end of a view until the next one began.
    pub view_changes: Histogram,
    /// How this member's clock agrees with those of others, if it may have logs.
    pub clock: Option<ClockStatus>,
    /// The subgroups that this member is in.
    pub subgroups: Vec<SubgroupStatus>,
    /// The subgroups that this member was in and is no longer.
    pub former: Vec<SubgroupTotals>,
}

/// The clock of a member that may have logs, compared with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClockStatus {
    /// How far clocks [may differ](crate::Config::clock_skew_max). `None`: by any time.
    pub skew_max: Option<Duration>,
    /// The farthest that the time of a logged message was ahead of this member's clock when the message
    /// came: the sender's clock is ahead by that, or by more.
    pub ahead: Duration,
    /// How far this member's wall clock has stepped since it joined, in ns, if that is beyond
    /// `skew_max`: ahead, or back if it is negative. The member then sends with the time that has passed
    /// since it joined, until the wall clock agrees with that again.
    pub stepped_ns: Option<i64>,
    /// How many requests for admission this member has refused for a clock that was too far off.
    pub refusals: u64,
}

/// The counters of a subgroup that this member is no longer in.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SubgroupTotals {
    /// The name.
    pub name: String,
    /// This member's counters in the subgroup, over all views.
    pub stats: SubgroupStats,
    /// The time from claim to delivery; see [`SubgroupStatus::latency`].
    pub latency: Histogram,
}

/// One member of the view.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// The id.
    pub id: MemberId,
    /// The process id.
    pub pid: u32,
    /// Whether the member is on another host than this one.
    pub is_far: bool,
    /// The rack that the member reports.
    pub rack: Option<RackName>,
    /// Whether the member leads changes of the view.
    pub leads: bool,
    /// Whether this member considers it dead or hung.
    pub suspected: bool,
    /// Whether this member has given it up, on an operator's command.
    pub given_up: bool,
    /// Whether its polling thread sleeps.
    pub asleep: bool,
    /// Whether it has announced all that it will ever send.
    pub finished: bool,
}

/// The state of one subgroup at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubgroupStatus {
    /// The name.
    pub name: String,
    /// This member's counters in the subgroup, over all views since the member joined.
    pub stats: SubgroupStats,
    /// The time from the claim of a message of this member until its delivery here, of a sample of
    /// them: at most one in a few milliseconds. The time in which a claim waits for room
    /// counts.
    pub latency: Histogram,
    /// How many sequence numbers of the order every member has received. They count from the view
    /// that changed the subgroup last, as the frontiers of the members do.
    pub stable: u64,
    /// The log of this member, if the subgroup is logged.
    pub log: Option<LogStatus>,
    /// The members, by rank.
    pub members: Vec<MemberStatus>,
}

/// The progress of one member in a subgroup.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The id.
    pub id: MemberId,
    /// The rank.
    pub rank: Rank,
    /// The process id.
    pub pid: u32,
    /// Whether its polling thread sleeps.
    pub asleep: bool,
    /// Whether it has announced all that it will ever send.
    pub finished: bool,
    /// The counts of what it has announced, received and delivered.
    pub frontier: Frontier,
    /// How many sequence numbers are stable and not yet delivered by this member. A slow consumer
    /// shows here.
    pub lag: u64,
    /// For how long the member has lagged, if it has not delivered what every member had received a
    /// second ago.
    pub lagging_for: Option<Duration>,
}

impl Status {
    /// Returns the status without what only the node knows.
    pub(crate) fn of(
        of: &Member,
        rows: &impl Rows,
        pid: impl Fn(MemberId) -> u32,
        is_far: impl Fn(MemberId) -> bool,
        rack: impl Fn(MemberId) -> Option<RackName>,
        handles: &[SubgroupHandles],
        lags: impl Fn(usize, MemberId) -> Option<Duration>,
    ) -> Status {
        let totals = |name: &str, epoch| {
            let of_subgroup = handles.iter().find(|of_subgroup| of_subgroup.name == name);
            let totals = of_subgroup.map(|of_subgroup| (of_subgroup.totals(epoch), of_subgroup.latency));
            totals.unwrap_or((epoch, Histogram::default()))
        };
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
            let deliverable = home.deliverable(there).unwrap_or(0);
            let number = handles.iter().position(|of_subgroup| of_subgroup.name == spec.name);
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
                    lag: deliverable.saturating_sub(frontier.delivered),
                    lagging_for: number.and_then(|number| lags(number, id)),
                })
            });
            let (stats, latency) = totals(&spec.name, home.subgroup_stats(there).unwrap_or_default());
            let log = number.and_then(|number| handles[number].log.as_ref());
            let log = log.zip(home.log_extent(there));
            let of = |log: &SubgroupLog, extent| {
                log.status(extent, home.persisted(there), home.durable(there), home.undurable(there))
            };
            let log = log.and_then(|(log, extent)| of(log, extent));
            Some(SubgroupStatus { name: spec.name.clone(), stats, latency, stable, log, members: members.collect() })
        });
        let subgroups: Vec<SubgroupStatus> = subgroups.collect();
        let is_former = |name: &str| subgroups.iter().all(|subgroup| subgroup.name != name);
        let former = handles.iter().filter(|of_subgroup| is_former(&of_subgroup.name));
        let former = former.map(|of_subgroup| SubgroupTotals {
            name: of_subgroup.name.clone(),
            stats: of_subgroup.totals(SubgroupStats::default()),
            latency: of_subgroup.latency,
        });
        Status {
            id: member(me),
            view: view.id,
            members: members.collect(),
            is_changing: engine.is_changing(),
            is_blocked: engine.is_blocked(),
            observers: 0,
            lost: handles.iter().map(|of_subgroup| of_subgroup.lost).sum(),
            engine: of.engine_stats(),
            handler: HandlerStatus::default(),
            view_changes: Histogram::default(),
            clock: None,
            former: former.collect(),
            subgroups,
        }
    }

    /// Returns the answer to a process that asked for the status, or for a change that was `refused`.
    #[cfg(feature = "json")]
    pub(crate) fn answer(&self, refused: Option<Declined>) -> String {
        let mut answer = self.to_json();
        if let Some(why) = refused {
            answer["refused"] = why.to_string().into();
            answer["passing"] = why.is_passing().into();
        }
        answer.to_string()
    }

    /// Returns the answer of a program that can't write JSON.
    #[cfg(not(feature = "json"))]
    pub(crate) fn answer(&self, _refused: Option<Declined>) -> String {
        let why = "this member was built without the feature json of the library, so it reports nothing";
        format!("{{\"id\":{},\"view\":{},\"refused\":\"{why}\",\"passing\":false}}", self.id, self.view)
    }

    /// Returns the status as JSON, with the names of the fields.
    #[cfg(feature = "json")]
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
                    "lagging_ms": member.lagging_for.map(|lagging| lagging.as_millis() as u64),
                })
            });
            json!({
                "name": subgroup.name,
                "stable": subgroup.stable,
                "sent": subgroup.stats.sent,
                "delivered": subgroup.stats.delivered,
                "delivered_bytes": subgroup.stats.delivered_bytes,
                "nulls": subgroup.stats.nulls,
                "log": subgroup.log.map(|log| json!({
                    "persisted": log.persisted,
                    "durable": log.durable,
                    "epoch": log.taken.epoch.0,
                    "taken": log.taken.sequence,
                    "clock": log.clock,
                    "undelivered": log.undelivered,
                    "lacks_members": log.lacks_members,
                    "queued_bytes": log.queued_bytes,
                    "disk_bytes": log.disk_bytes,
                    "is_full": log.is_full,
                    "commits": log.commits.count(),
                    "commits_us": u64::try_from(log.commits.sum().as_micros()).unwrap_or(u64::MAX),
                    "catching_up": log.catching_up.map(|status| json!({
                        "source": status.source.map(|id| id.0),
                        "records": status.records,
                        "bytes": status.bytes,
                    })),
                })),
                "members": members.collect::<Vec<_>>(),
            })
        });
        json!({
            "id": self.id.0,
            "view": self.view.0,
            "changing": self.is_changing,
            "blocked": self.is_blocked,
            "observers": self.observers,
            "lost": self.lost,
            "slow_handler_calls": self.handler.slow_calls,
            "clock": self.clock.map(|clock| json!({
                "skew_max_ms": clock.skew_max.map(|max| u64::try_from(max.as_millis()).unwrap_or(u64::MAX)),
                "ahead_ms": u64::try_from(clock.ahead.as_millis()).unwrap_or(u64::MAX),
                "stepped_ms": clock.stepped_ns.map(|ns| ns / 1_000_000),
                "refusals": clock.refusals,
            })),
            "members": members.collect::<Vec<_>>(),
            "subgroups": subgroups.collect::<Vec<_>>(),
        })
    }
}
