//! Events of a view, for a subscriber of `tracing`: suspicions with their evidence, ballots, decisions, and the time that each phase took.
//!
//! No decision depends on this module. All functions are cold: none is called for a message.
use super::ballot::Ballot;
use super::decision::Decision;
use crate::fault::Fault;
use crate::ids::{MemberId, Rank, Time, ViewId};
use crate::view::View;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use tracing::{debug, info, warn};

/// The target of these events.
pub(crate) const TARGET: &str = "spindle::view";

/// The fields that all events of one member in one view have in common, and the moments between
/// which they measure.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    view: ViewId,
    me: MemberId,
    members: Arc<[MemberId]>,
    blocked_since: Option<Time>,
    decided_at: Option<Time>,
}

/// Two members that differ only in what they have told do the same.
impl Hash for Teller {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// How long a member was silent when it was suspected for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// The last heartbeat that was seen; 0: none in this view.
    pub(super) heartbeat: u64,
    pub(super) silent_ns: u64,
    pub(super) limit_ns: u64,
    /// How many suspicions of this member proved false lately.
    pub(super) doubts: u32,
}

/// The voters of the view.
#[derive(Clone, Copy, Debug)]
pub(super) struct MembershipCounts {
    pub(super) voters: usize,
    /// The voters that this member does not suspect.
    pub(super) heard: usize,
    /// The voters that are proven dead, with final rows.
    pub(super) dead: usize,
}

/// Why a member is not in the next view.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    Left,
    Dead,
    Evicted,
    Barred,
    Silent,
    SuspectsMe,
    /// This member trusts it. The leader did not, or got no promise from it.
    ByLeader,
}

impl Teller {
    pub(super) fn new(view: &View, me: Rank) -> Teller {
        let (members, me) = (view.members.as_slice().into(), view.members[me.index()]);
        Teller { view: view.id, me, members, blocked_since: None, decided_at: None }
    }

    fn id(&self, rank: Rank) -> MemberId {
        self.members[rank.index()]
    }

    #[cold]
    pub(super) fn silent(&self, rank: Rank, silence: Silence) {
        let Silence { heartbeat, silent_ns, limit_ns, doubts } = silence;
        warn!(
            target: TARGET, me = self.me.0, view = self.view.0, member = self.id(rank).0, cause = "silence",
            last_heartbeat = heartbeat, silent_ms = ms(silent_ns), limit_ms = ms(limit_ns), doubts, "suspected"
        );
    }

    /// The driver of the engine has seen something: a connection that does not come back, or a process that is about to end.
    #[cold]
    pub(super) fn reported(&self, rank: Rank) {
        let (me, view, member) = (self.me.0, self.view.0, self.id(rank).0);
        warn!(target: TARGET, me, view, member, cause = "its process or the way to it", "suspected");
    }

    #[cold]
    pub(super) fn suspects_me(&self, rank: Rank) {
        let (me, view, member) = (self.me.0, self.view.0, self.id(rank).0);
        warn!(target: TARGET, me, view, member, cause = "it does not hear this member", "suspected");
    }

    #[cold]
    pub(super) fn hears_me_again(&self, rank: Rank) {
        let (me, view, member) = (self.me.0, self.view.0, self.id(rank).0);
        info!(target: TARGET, me, view, member, cause = "it hears this member again", "suspicion withdrawn");
    }

    #[cold]
    pub(super) fn trusted(&self, rank: Rank, silent_ns: u64, doubts: u32) {
        info!(
            target: TARGET, me = self.me.0, view = self.view.0, member = self.id(rank).0, cause = "it was heard",
            silent_ms = ms(silent_ns), doubts, "suspicion withdrawn"
        );
    }

    /// `rank` is proven dead; `evidence` says by what.
    #[cold]
    pub(super) fn dead(&self, rank: Rank, evidence: &'static str) {
        warn!(target: TARGET, me = self.me.0, view = self.view.0, member = self.id(rank).0, evidence, "member is dead");
    }

    /// `rank` has left in order, and its row is final.
    #[cold]
    pub(super) fn left(&self, rank: Rank) {
        info!(target: TARGET, me = self.me.0, view = self.view.0, member = self.id(rank).0, "member has left");
    }

    #[cold]
    pub(super) fn evicting(&self, rank: Rank) {
        let (me, view, member) = (self.me.0, self.view.0, self.id(rank).0);
        info!(target: TARGET, me, view, member, cause = "an order", "member is to be evicted");
    }

    #[cold]
    pub(super) fn gives_up(&self, lost: impl Iterator<Item = Rank>) {
        let lost: Vec<Rank> = lost.collect();
        warn!(target: TARGET, me = self.me.0, view = self.view.0, lost = %Ids(self, &lost), cause = "an order", "members are given up");
    }

    /// `rank` breaks the protocol.
    #[cold]
    pub(crate) fn faulty(&self, fault: &Fault) {
        let member = self.id(fault.member()).0;
        warn!(target: TARGET, me = self.me.0, view = self.view.0, member, cause = "garbage", evidence = %fault, "suspected");
    }

    #[cold]
    pub(super) fn admitting(&self, joiner: MemberId, votes: bool) {
        debug!(target: TARGET, me = self.me.0, view = self.view.0, joiner = joiner.0, votes, "joiner admitted");
    }

    #[cold]
    pub(super) fn renewing(&self) {
        info!(target: TARGET, me = self.me.0, view = self.view.0, cause = "broken ways of large messages", "view is renewed");
    }

    #[cold]
    pub(super) fn closing(&self, suspected: &[Rank], joiners: usize, leaving: bool) {
        debug!(
            target: TARGET, me = self.me.0, view = self.view.0, suspected = %Ids(self, suspected), joiners, leaving,
            "view is closing"
        );
    }

    /// No member that would go on has the log of this subgroup complete, and others may.
    #[cold]
    pub(super) fn awaits_logs(&self, subgroup: &str) {
        debug!(target: TARGET, me = self.me.0, view = self.view.0, subgroup, "members catch up before the view ends");
    }

    #[cold]
    pub(super) fn took_ballot(&self, ballot: Ballot, outbid: u32) {
        debug!(target: TARGET, me = self.me.0, view = self.view.0, ballot = %ShownBallot(self, ballot), outbid, "ballot taken");
    }

    #[cold]
    pub(super) fn outbid(&self, mine: Ballot, by: Ballot) {
        let (ballot, by) = (ShownBallot(self, mine), ShownBallot(self, by));
        debug!(target: TARGET, me = self.me.0, view = self.view.0, %ballot, %by, "ballot outbid");
    }

    #[cold]
    pub(super) fn promised(&self, ballot: Ballot) {
        debug!(target: TARGET, me = self.me.0, view = self.view.0, ballot = %ShownBallot(self, ballot), "ballot promised");
    }

    #[cold]
    pub(super) fn accepted(&self, ballot: Ballot) {
        debug!(target: TARGET, me = self.me.0, view = self.view.0, ballot = %ShownBallot(self, ballot), "value accepted");
    }

    /// A view was decided, `agree_ns` after this member had wedged.
    #[cold]
    pub(super) fn decided(&mut self, decision: &Decision, out: &[(Rank, Reason)], now: Time, agree_ns: u64) {
        self.unblocked(now);
        self.decided_at = Some(now);
        let Decision { ballot, next, .. } = decision;
        let joined: Vec<MemberId> = next.members.iter().copied().filter(|id| !self.members.contains(id)).collect();
        info!(
            target: TARGET, me = self.me.0, view = self.view.0, next_view = next.id.0, members = %ListedIds(&next.members),
            left_out = %LeftOut(self, out), joined = %ListedIds(&joined), ballot = %ShownBallot(self, *ballot),
            agree_ms = ms(agree_ns), "next view decided"
        );
    }

    #[cold]
    pub(super) fn evicted(&self, next: ViewId) {
        let (me, view, next_view) = (self.me.0, self.view.0, next.0);
        match next.era() > self.view.era() {
            true => warn!(target: TARGET, me, view, next_view, "this member was given up by an operator's recovery"),
            false => warn!(target: TARGET, me, view, next_view, "this member is evicted"),
        }
    }

    /// Everything is delivered that belongs to the view.
    #[cold]
    pub(super) fn ended(&self, now: Time, changes_since: Time) {
        let decided_at = self.decided_at.unwrap_or(now);
        info!(
            target: TARGET, me = self.me.0, view = self.view.0, agree_ms = ms(between(changes_since, decided_at)),
            deliver_ms = ms(between(decided_at, now)), "view ended"
        );
    }

    /// Whether it was told last that the view can't end.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// The view can't end for want of `missed`, or for longer than an agreement takes.
    #[cold]
    pub(super) fn blocked(&mut self, now: Time, missed: &[Rank], counts: MembershipCounts, changes_since: Time) {
        self.blocked_since = Some(now);
        let MembershipCounts { voters, heard, dead } = counts;
        warn!(
            target: TARGET, me = self.me.0, view = self.view.0, missed = %Ids(self, missed), voters, heard, dead,
            wedged_ms = ms(between(changes_since, now)), "blocked"
        );
    }

    #[cold]
    pub(super) fn unblocked(&mut self, now: Time) {
        let Some(since) = self.blocked_since.take() else { return };
        info!(target: TARGET, me = self.me.0, view = self.view.0, blocked_ms = ms(between(since, now)), "unblocked");
    }

    #[cold]
    pub(crate) fn finished(&self) {
        info!(target: TARGET, me = self.me.0, view = self.view.0, "all members have finished");
    }
}

fn between(since: Time, now: Time) -> u64 {
    now.0.saturating_sub(since.0)
}

/// Nanoseconds in ms, to the microsecond.
fn ms(ns: u64) -> f64 {
    (ns / 1000) as f64 / 1000.0
}

/// Ids with commas between.
struct ListedIds<'a>(&'a [MemberId]);

/// The ids of ranks with commas between.
struct Ids<'a>(&'a Teller, &'a [Rank]);

/// A ballot with its leader's id, as `round.id`.
struct ShownBallot<'a>(&'a Teller, Ballot);

/// Ids with the reasons in parentheses.
struct LeftOut<'a>(&'a Teller, &'a [(Rank, Reason)]);

impl fmt::Display for ListedIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|id| id.0)).finish()
    }
}

impl fmt::Display for Ids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.1.iter().map(|rank| self.0.id(*rank).0)).finish()
    }
}

impl fmt::Display for ShownBallot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.1.round, self.0.id(self.1.leader))
    }
}

impl fmt::Display for LeftOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut(teller, out) = self;
        f.debug_list().entries(out.iter().map(|(rank, reason)| Out(teller.id(*rank), *reason))).finish()
    }
}

struct Out(MemberId, Reason);

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.1 {
            Reason::Left => "left",
            Reason::Dead => "dead",
            Reason::Evicted => "evicted by order",
            Reason::Barred => "process ended or faulty",
            Reason::Silent => "suspected",
            Reason::SuspectsMe => "does not hear this member",
            Reason::ByLeader => "by the leader",
        };
        write!(f, "{} ({reason})", self.0)
    }
}
