//! One member's part in the end of its view: its state, and the steps of the agreement.
//!
//! A step reads the rows of the acceptors once, and then takes the parts of an
//! [acceptor](super::acceptor) and of a [leader](super::leader).
use super::ballot::{Acceptor, Ballot};
use super::decision::Decision;
use super::opinions::Opinions;
use super::proposal::ProposedChanges;
use super::ranks::Ranks;
use super::telling::{MembershipCounts, Teller};
use super::touch::Touch;
use crate::ids::{Rank, SubgroupId, Time, ViewId};
use crate::mutation::mutation;
use crate::table::Table;
use crate::view::{SubgroupSpec, View};
use crate::wire::layout::{Layout, membership};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

/// A ballot that is this many rounds above what a member knows can't result from taking turns.
pub(super) const ROUNDS_AHEAD_MAX: u32 = 1 << 20;
/// The time after which an agreement counts as blocked although a quorum is heard, in suspicion
/// times.
const OVERDUE: u64 = 4;

/// The number of steps of the agreement in a suspicion time while nothing changes.
const QUIET_LOOKS: u64 = 32;

/// One member's part in the end of its view.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Membership {
    pub(super) me: Rank,
    pub(super) everyone: Vec<Rank>,
    /// The other members.
    pub(super) peers: Vec<Rank>,
    /// The members whose rows are acceptors.
    pub(super) voters: Ranks,
    pub(super) opinions: Opinions,
    /// Members that have written what no correct member writes. The agreement ignores their rows.
    pub(super) garbled: Ranks,
    /// Members that an operator has given up. The agreement ignores their rows, and needs all other
    /// voters.
    pub(super) given_up: Ranks,
    /// True if this member's row shows fewer of them.
    pub(super) untold: bool,
    pub(super) blamed: Vec<Rank>,
    /// True if the view has to end, because of a change of the membership.
    pub(super) closing: bool,
    /// True if words of the others' membership blocks may have changed since the last look.
    pub(super) moved: bool,
    /// True if the state on which a step of the agreement depends may have changed, other than by
    /// the time.
    pub(super) stirred: bool,
    /// The outcome of the last step of the agreement.
    rest: Rest,
    /// True if members have given the group up.
    pub(super) abandoned: bool,
    /// True if the agreement is under way.
    pub(super) changing: bool,
    pub(super) changes_since: Time,
    pub(super) leaving: bool,
    /// True if all epochs have to end with the view.
    pub(super) renewing: bool,
    /// True if changes end only the epochs of the subgroups that they touch.
    pub(super) epochs: bool,
    pub(super) touch: Touch,
    /// True if this member's ballot has to touch more subgroups.
    pub(super) touches_more: bool,
    /// The changes that this member proposes for the next view.
    pub(super) proposed: ProposedChanges,
    /// The ballots in this member's row.
    pub(super) promised: Option<Ballot>,
    pub(super) accepted: Option<Ballot>,
    /// True if an acceptance counts once it is on the disk of its member: a subgroup of the view is
    /// logged.
    pub(super) persists: bool,
    /// The logs of this member that lack no record of older epochs, as bits, and the same in this member's row.
    pub(super) complete: u64,
    pub(super) shown_complete: u64,
    /// A subgroup whose log no member that would continue has complete, and its members that have ended. This
    /// member may not continue.
    pub(super) incomplete: Option<(SubgroupId, Vec<Rank>)>,
    /// The newest acceptance that is on this member's disk, and the one in this member's row.
    pub(super) on_disk: Option<Ballot>,
    pub(super) persisted: Option<Ballot>,
    /// The acceptance that the driver has yet to write to the disk.
    pub(super) unwritten: Option<(Ballot, View)>,
    /// The slot of this member's row for the next value.
    pub(super) slot: u64,
    /// The slot of the value that this member has accepted.
    pub(super) accepted_slot: u64,
    pub(super) turns: Turns,
    /// A decision that another member has sent outside of the rows.
    pub(super) told: Option<Vec<u64>>,
    pub(super) decision: Option<Decision>,
    /// The words of the decision.
    pub(super) decided: Vec<u64>,
    /// Empty between polls; kept to reuse its memory.
    pub(super) acceptors: Vec<Acceptor>,
    /// The view in which the others continue without this member.
    pub(super) left_out_of: Option<ViewId>,
    pub(super) blocked: bool,
    pub(super) teller: Teller,
}

/// The time of the next step of the agreement if nothing changes.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    /// The time of the last step. If the clock went back, the time starts again.
    pub(super) since: Time,
    pub(super) until: Time,
    /// The time for the next step that the last step returned.
    pub(super) wake_at: Option<Time>,
}

/// A skipped step changes nothing, except that quietly posted words are found a little later. So
/// states that differ only in this have the same hash.
impl Hash for Rest {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The state that decides when this member leads.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Turns {
    /// The newest ballot of this member.
    pub(super) mine: Option<Ballot>,
    /// The highest ballot in any row, and since when.
    pub(super) top: Option<Ballot>,
    pub(super) since: Time,
    /// The number of this member's ballots that failed.
    pub(super) outbid: u32,
    /// By rank, for members whose promise is below the highest ballot: that promise, and since
    /// when.
    pub(super) behind: Vec<Option<(Option<Ballot>, Time)>>,
}

/// The inputs of one poll of the agreement.
pub(super) struct AgreementPoll<'a> {
    pub(super) now: Time,
    pub(super) view: &'a View,
    pub(super) layout: &'a Layout,
    /// The members that have given up all that this member has; all members, unless this is a
    /// recovery.
    pub(super) agreeing: Ranks,
    /// The others' rows as acceptors, by rank, each read once. This member's own row changes during
    /// the poll: [`Membership::acceptor`].
    pub(super) acceptors: Vec<Acceptor>,
}

impl Membership {
    /// Returns the state for a new view. `epochs` says that changes of the view end only the epochs
    /// of the subgroups that they touch.
    pub(crate) fn new(view: &View, me: Rank, epochs: bool) -> Membership {
        let teller = Teller::new(view, me);
        let mut voters = Ranks::none(view.members.len());
        view.ranks().filter(|rank| view.is_voter(*rank)).for_each(|rank| _ = voters.add(rank));
        Membership {
            me,
            everyone: view.ranks().collect(),
            peers: view.ranks().filter(|rank| *rank != me).collect(),
            voters,
            opinions: Opinions::new(view, me, teller.clone()),
            garbled: Ranks::none(view.members.len()),
            given_up: Ranks::none(view.members.len()),
            untold: false,
            blamed: Vec::new(),
            closing: false,
            moved: true,
            stirred: true,
            rest: Rest::default(),
            abandoned: false,
            changing: false,
            changes_since: Time(0),
            leaving: false,
            renewing: false,
            epochs,
            touch: Touch::new(view, me),
            touches_more: false,
            proposed: ProposedChanges::default(),
            promised: None,
            accepted: None,
            persists: view.subgroups.iter().any(SubgroupSpec::is_logged),
            complete: u64::MAX,
            shown_complete: 0,
            incomplete: None,
            on_disk: None,
            persisted: None,
            unwritten: None,
            slot: 0,
            accepted_slot: 0,
            turns: Turns::default(),
            told: None,
            decision: None,
            decided: Vec::new(),
            acceptors: Vec::new(),
            left_out_of: None,
            blocked: false,
            teller,
        }
    }

    /// Takes over the state that lasts from view to view: the suspicion time, and how often
    /// suspicions proved false.
    pub(crate) fn inherit(&mut self, old: &Membership, was: impl Fn(Rank) -> Option<Rank>) {
        self.opinions.set_suspect_after(old.opinions.suspect_after());
        self.opinions.set_liveness(old.opinions.liveness());
        for rank in &self.everyone {
            if let Some(was) = was(*rank) {
                self.opinions.inherit(*rank, &old.opinions, was);
            }
        }
    }

    pub(crate) fn is_changing(&self) -> bool {
        self.changing
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.left_out_of.is_some()
    }

    /// Returns the view in which the others continue without this member.
    pub(crate) fn left_out_of(&self) -> Option<ViewId> {
        self.left_out_of
    }

    pub(crate) fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// Returns the words of the decision, if one exists.
    pub(crate) fn decided(&self) -> Option<&[u64]> {
        self.decision.as_ref().map(|_| &self.decided[..])
    }

    pub(crate) fn ballot(&self) -> Option<Ballot> {
        self.promised
    }

    /// Returns the lowest voter that this member does not suspect.
    pub(crate) fn leader(&self) -> Rank {
        self.candidates().iter().next().unwrap_or(self.me)
    }

    /// Returns the voters that may lead. A member that is to be evicted is skipped, because it may
    /// hang.
    pub(super) fn candidates(&self) -> Ranks {
        self.trusted_voters().without(self.opinions.evicting())
    }

    fn trusted_voters(&self) -> Ranks {
        self.voters.clone().without(&self.opinions.suspected())
    }

    /// True if the voters that this member hears are a quorum, including the ones that are to be
    /// evicted.
    pub(super) fn hears_quorum(&self) -> bool {
        let is_needed = |rank: Rank| !self.given_up.has(rank) && !self.is_passed_over(rank);
        let is_heard = |rank: Rank| self.voters.has(rank) || !self.suspects(rank);
        self.is_quorum(self.trusted_voters().len(), self.dead_voters().len())
            && (!self.is_recovery() || self.peers.iter().all(|rank| !is_needed(*rank) || is_heard(*rank)))
    }

    pub(super) fn is_voter(&self) -> bool {
        self.voters.has(self.me)
    }

    /// Takes one step of the agreement, unless nothing has changed since the last one. Returns
    /// whether anything changed, and the time of the next call if nothing happens before.
    pub(crate) fn agree<T: Table>(
        &mut self,
        now: Time,
        view: &View,
        layout: &Layout,
        table: &mut T,
    ) -> (bool, Option<Time>) {
        if self.decision.is_some() || self.is_evicted() || self.incomplete.is_some() {
            return (false, None);
        }
        if !core::mem::take(&mut self.stirred) && (self.rest.since..self.rest.until).contains(&now) {
            return (false, self.rest.wake_at);
        }
        let (changed, wake_at) = self.step(now, view, layout, table);
        self.stirred |= changed;
        // Also look for words that were posted quietly.
        let quiet = Time(now.0.saturating_add(self.opinions.patience_ns() / QUIET_LOOKS));
        self.rest = Rest { since: now, until: wake_at.map_or(quiet, |at| at.min(quiet)), wake_at };
        (changed, wake_at)
    }

    pub(super) fn step<T: Table>(
        &mut self,
        now: Time,
        view: &View,
        layout: &Layout,
        table: &mut T,
    ) -> (bool, Option<Time>) {
        self.heed_clock(now);
        let mut changed = self.opinions.see_final_words(table);
        changed |= self.opinions.see_estranged(table);
        changed |= self.see_given_up(view, table);
        if self.opinions.publish(table) {
            self.wake(Some(self.leader()), table);
            changed = true;
        }
        if changed {
            // The cause of failed ballots may be gone.
            self.turns.outbid = 0;
        }
        if !self.hears_quorum() {
            self.touch.want_all();
        }
        if self.touch.lacks() {
            return (true, Some(now));
        }
        // Read this before the rows: a value that a member accepted by then, it accepted after it
        // had given up the same members.
        let agreeing = self.agreeing(table);
        if self.learn(view, layout, &agreeing, table) {
            return (true, None);
        }
        let mut acceptors = core::mem::take(&mut self.acceptors);
        self.read_acceptors(table, &mut acceptors);
        let poll = AgreementPoll { now, view, layout, agreeing, acceptors };
        changed |= self.show_complete(table);
        changed |= self.accept(&poll, table);
        changed |= self.promise(&poll, table);
        changed |= self.vote(table);
        let (led, wake_at) = self.lead(&poll, table);
        changed |= led;
        changed |= self.count(&poll, table);
        self.acceptors = poll.acceptors;
        self.acceptors.clear();
        let overdue = now.0.saturating_sub(self.changes_since.0) > OVERDUE * self.opinions.patience_ns();
        let knows = !mutation!(BlockedUnknown) || self.leader() == self.me;
        self.blocked = self.decision.is_none() && (!self.hears_quorum() || overdue) && knows;
        self.tell_whether_blocked(now);
        (changed, wake_at)
    }

    /// Reports that the view can't end, and which members are missing, or that it can end again.
    fn tell_whether_blocked(&mut self, now: Time) {
        match (self.blocked, self.teller.is_blocked()) {
            (true, false) => {
                let is_missed = |rank: &Rank| self.opinions.suspects(*rank) && !self.opinions.is_dead(*rank);
                let missed: Vec<Rank> = self.voters.iter().filter(is_missed).collect();
                let (heard, dead) = (self.trusted_voters().len(), self.dead_voters().len());
                let counts = MembershipCounts { voters: self.counted().len(), heard, dead };
                self.teller.blocked(now, &missed, counts, self.changes_since);
            }
            (false, true) => self.teller.unblocked(now),
            _ => {}
        }
    }

    /// Restarts all waits after a clock went back or this member stood still, so that none gets
    /// longer or shorter by it.
    fn heed_clock(&mut self, now: Time) {
        let behind = self.turns.behind.iter_mut().flatten().map(|(_, since)| since);
        let jumped = self.opinions.heed_clock(now);
        for time in behind.chain([&mut self.changes_since, &mut self.turns.since]) {
            *time = if jumped { now } else { now.min(*time) };
        }
    }

    /// Notes that the view has ended for this member.
    pub(crate) fn end<T: Table>(&self, table: &mut T) {
        self.write(membership::ENDED, &[1], table);
    }

    /// Reports that this member has delivered everything below the trims.
    #[cold]
    pub(crate) fn tell_end(&self, now: Time) {
        self.teller.ended(now, self.changes_since);
    }
}
