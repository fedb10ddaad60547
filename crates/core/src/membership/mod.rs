//! The agreement that ends a view: one single-decree Paxos. Its acceptors are the rows of the
//! view's voters, and its value is the next view with the trims (docs/protocol/views.md).
//!
//! [`Membership`] is one member's side of it. [`Membership::watch`] runs while the view works and
//! says when the view has to end. [`Membership::agree`] runs from there to the decision. [`touch`]
//! holds the subgroups that have to wedge for it, [`opinions`] the suspected members. [`ballot`]
//! defines how the rows count proposals, and [`choice`] what a leader proposes. [`recovery`] is how
//! the remaining members of a view continue without a quorum, on an operator's order.
//!
//! Invariants kept here:
//! - INV-PROMISE: a voter accepts no ballot below its effective promise;
//! - INV-QUORUM: a decision and each later choice meet in a row that the later leader reads;
//! - INV-BIND: a leader takes the newest value that may be decided;
//! - INV-CUT: a member promises a ballot after it has wedged the subgroups that the ballot touches,
//!   and written its cuts of them;
//! - INV-TRIM: a trim is a count that every continuing member has reached.
mod ballot;
mod choice;
mod opinions;
pub(crate) mod proposal;
mod ranks;
mod recovery;
mod telling;
mod touch;

pub use ballot::Ballot;
pub use opinions::Liveness;
pub use proposal::Trims;
pub use recovery::Unrecoverable;

use crate::fault::Fault;
use crate::ids::{MemberId, Process, Rank, SubgroupId, Time, ViewId};
use crate::limits;
use crate::multicast::cursor::sequence_end;
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::{Change, Order, View};
use crate::wire::layout::{Layout, membership};
use alloc::vec::Vec;
use ballot::Acceptor;
use core::hash::{Hash, Hasher};
use core::ops::Range;
use opinions::Opinions;
use proposal::{Join, ProposedChanges, Value};
pub(crate) use ranks::Ranks;
use recovery::Consequence;
use telling::{Counts, Reason, Teller};
use touch::Touch;

/// A ballot that is this many rounds above what a member knows can't result from taking turns.
const ROUNDS_AHEAD_MAX: u32 = 1 << 20;

/// The outcome of a view change.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// The ballot of the decision.
    pub ballot: Ballot,
    /// The next view.
    pub next: View,
    /// The processes that join with the next view, in its order. Another process with the id of one
    /// of them is not in the view.
    pub joined: Vec<Process>,
    /// The trims, which bound what is still delivered in the old view.
    pub trims: Trims,
}

/// The value of `CLOSING` of a member that wants all epochs to end.
const CLOSING_ALL: u64 = 2;
/// The time in which a heard member has to promise after it was asked, in suspicion times. Then a
/// leader chooses without it.
const PROMISE_WITHIN: u64 = 4;
/// The time after which an agreement counts as blocked although a quorum is heard, in suspicion
/// times.
const OVERDUE: u64 = 4;
/// When members are heard again after a silence, a leader waits for more of them: the suspicion
/// time divided by this.
const RETURN_WITHIN: u64 = 2;
/// The first pause of a leader whose ballot was superseded: the suspicion time divided by this. The
/// pause doubles with each failed ballot.
const BACK_OFF: u64 = 16;
/// The maximum number of doublings. So a view in which no ballot can succeed has few ballots.
const BACK_OFF_MAX: u32 = 20;
/// The number of steps of the agreement in a suspicion time while nothing changes.
const QUIET_LOOKS: u64 = 32;

/// One member's part in the end of its view.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Membership {
    me: Rank,
    everyone: Vec<Rank>,
    /// The other members.
    peers: Vec<Rank>,
    /// The members whose rows are acceptors.
    voters: Ranks,
    opinions: Opinions,
    /// Members that have written what no correct member writes. The agreement ignores their rows.
    garbled: Ranks,
    /// Members that an operator has given up. The agreement ignores their rows, and needs all other
    /// voters.
    given_up: Ranks,
    /// True if this member's row shows fewer of them.
    untold: bool,
    blamed: Vec<Rank>,
    /// True if the view has to end, because of a change of the membership.
    closing: bool,
    /// True if words of the others' membership blocks may have changed since the last look.
    moved: bool,
    /// True if the state on which a step of the agreement depends may have changed, other than by
    /// the time.
    stirred: bool,
    /// The outcome of the last step of the agreement.
    rest: Rest,
    /// True if members have given the group up.
    abandoned: bool,
    /// True if the agreement is under way.
    changing: bool,
    changes_since: Time,
    leaving: bool,
    /// True if all epochs have to end with the view.
    renewing: bool,
    /// True if changes end only the epochs of the subgroups that they touch.
    epochs: bool,
    touch: Touch,
    /// True if this member's ballot has to touch more subgroups.
    touches_more: bool,
    /// The changes that this member proposes for the next view.
    proposed: ProposedChanges,
    /// The ballots in this member's row.
    promised: Option<Ballot>,
    accepted: Option<Ballot>,
    /// The slot of this member's row for the next value.
    slot: u64,
    /// The slot of the value that this member has accepted.
    accepted_slot: u64,
    turns: Turns,
    /// A decision that another member has sent outside of the rows.
    told: Option<Vec<u64>>,
    decision: Option<Decision>,
    /// The words of the decision.
    decided: Vec<u64>,
    /// Empty between polls; kept to reuse its memory.
    acceptors: Vec<Acceptor>,
    /// The view in which the others continue without this member.
    left_out_of: Option<ViewId>,
    blocked: bool,
    teller: Teller,
}

/// The time of the next step of the agreement if nothing changes.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    /// The time of the last step. If the clock went back, the time starts again.
    since: Time,
    until: Time,
    /// The time for the next step that the last step returned.
    wake_at: Option<Time>,
}

/// A skipped step changes nothing, except that quietly posted words are found a little later. So
/// states that differ only in this have the same hash.
impl Hash for Rest {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The state that decides when this member leads.
#[derive(Clone, Hash, Debug, Default)]
struct Turns {
    /// The newest ballot of this member.
    mine: Option<Ballot>,
    /// The highest ballot in any row, and since when.
    top: Option<Ballot>,
    since: Time,
    /// The number of this member's ballots that failed.
    outbid: u32,
    /// By rank, for members whose promise is below the highest ballot: that promise, and since
    /// when.
    behind: Vec<Option<(Option<Ballot>, Time)>>,
}

/// The inputs of one poll of the agreement.
struct Poll<'a> {
    now: Time,
    view: &'a View,
    layout: &'a Layout,
    /// The members that have given up all that this member has; all members, unless this is a
    /// recovery.
    agreeing: Ranks,
    /// The others' rows as acceptors, by rank, each read once. This member's own row changes during
    /// the poll: [`Membership::acceptor`].
    acceptors: Vec<Acceptor>,
}

/// The times until which a leader waits for the members that its choice would leave out.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    /// The deadline for silent members.
    silent: Time,
    /// The deadline for members that do not hear all others, and for incomplete values.
    strained: Time,
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

    pub(crate) fn suspect_after(&self) -> Option<u64> {
        self.opinions.suspect_after()
    }

    pub(crate) fn set_suspect_after(&mut self, ns: Option<u64>) {
        self.stirred = true;
        self.opinions.set_suspect_after(ns);
    }

    pub(crate) fn set_liveness(&mut self, liveness: Liveness) {
        self.opinions.set_liveness(liveness);
    }

    pub(crate) fn before_sleep(&mut self) {
        // A member that fails before it begins a view, or that has not found this view yet,
        // notifies no peer.
        self.moved |= !mutation!(MovesUnnoticed);
        // With a suspicion time, the checks for silent members trigger the next step.
        self.stirred |= self.opinions.suspect_after().is_none();
        self.opinions.before_sleep();
    }

    /// Suspects `member` until it is heard again. True if that is new.
    pub(crate) fn suspect(&mut self, member: Rank) -> bool {
        self.stirred = true;
        let new = self.opinions.suspect(member);
        if new {
            self.teller.reported(member);
        }
        self.closing |= new;
        new
    }

    /// Takes back a suspicion.
    pub(crate) fn trust(&mut self, member: Rank) {
        self.stirred = true;
        self.opinions.trust(member);
    }

    /// Notes that `member` has shown that it is alive, other than in its row.
    pub(crate) fn heard(&mut self, member: Rank) {
        self.stirred = true;
        self.opinions.heard(member);
    }

    /// Leaves `member` out of the next view, whatever it shows. True if that is new.
    pub(crate) fn bar(&mut self, member: Rank) -> bool {
        self.stirred = true;
        let new = self.opinions.bar(member);
        self.closing |= new;
        new
    }

    /// Takes in a request to leave `member` out of the next view, although it may be alive and
    /// well. The request is no suspicion: `member` promises and consents like all others. The
    /// leader leaves it out before it leaves out any member for bad links.
    pub(crate) fn evict(&mut self, member: Rank) {
        self.stirred = true;
        let new = self.opinions.evict(member);
        if new {
            self.teller.evicting(member);
        }
        self.closing |= new;
    }

    /// Notes that `member` is proven dead, and that its row is incomplete here.
    pub(crate) fn gone(&mut self, member: Rank) {
        if self.bar(member) {
            self.teller.dead(member, "its process has ended; its row is not here as a whole");
        }
    }

    /// Notes that `member` breaks the protocol. True if that is new.
    pub(crate) fn accuse(&mut self, fault: &Fault) -> bool {
        let new = self.bar(fault.member());
        if new {
            self.teller.faulty(fault);
        }
        new
    }

    /// Reports that all members have finished, and that this one has delivered everything.
    pub(crate) fn tell_finished(&self) {
        self.teller.finished();
    }

    /// Notes that `member` has written what no correct member writes. True if that is new.
    fn blame(&mut self, member: Rank) -> bool {
        self.bar(member);
        let new = self.garbled.add(member);
        if new {
            self.teller.faulty(&Fault::Proposal { member });
            self.blamed.push(member);
        }
        new
    }

    /// Returns the members that were found to have written what no correct member writes, once
    /// each.
    pub(crate) fn take_blamed(&mut self) -> Vec<Rank> {
        core::mem::take(&mut self.blamed)
    }

    /// Notes that `member` is proven dead, and that its row is final.
    pub(crate) fn died(&mut self, member: Rank) {
        self.stirred = true;
        if !self.opinions.is_dead(member) {
            self.teller.dead(member, "its process has ended; its row is final");
        }
        self.closing |= self.opinions.died(member);
    }

    /// Proposes to admit `joiner`, instead of any other process with its id.
    pub(crate) fn admit(&mut self, view: &View, joiner: Process, votes: bool) -> bool {
        let join = Join { process: joiner, votes };
        let is_full = self.proposed.joins.len() == limits::JOINS_MAX;
        let known = self.proposed.joins.iter_mut().find(|known| known.process.id == joiner.id);
        match known {
            // In a full view the proposal would be carried from view to view, and each view would
            // end for it.
            _ if view.members.len() == limits::MEMBERS_MAX || view.members.contains(&joiner.id) => return false,
            Some(known) if known.process == joiner => return false,
            Some(known) => *known = join,
            None if is_full => return false,
            None => self.proposed.joins.push(join),
        }
        self.teller.admitting(joiner.id, votes);
        self.closing = true;
        true
    }

    /// Takes back a proposed admission. If it is in this member's row already, it may be granted
    /// nevertheless.
    pub(crate) fn withdraw(&mut self, joiner: MemberId) {
        self.proposed.joins.retain(|join| join.process.id != joiner);
    }

    pub(crate) fn propose_change(&mut self, view: &View, change: Change) -> bool {
        let change = change.bare();
        // A change that fits no proposal would be proposed for ever.
        let alone = ProposedChanges { changes: alloc::vec![change.clone()], ..ProposedChanges::default() };
        let has_room = self.proposed.changes.len() < limits::CHANGES_MAX;
        let fits = has_room && alone.encode().len() <= limits::PROPOSAL_WORDS_SPARE;
        let wanted = fits && view.wants(&change) && !self.proposed.changes.contains(&change);
        if wanted {
            self.proposed.changes.push(change);
            self.closing = true;
        }
        wanted
    }

    pub(crate) fn take_proposed(&mut self) -> ProposedChanges {
        core::mem::take(&mut self.proposed)
    }

    pub(crate) fn renew(&mut self) {
        self.stirred = true;
        self.teller.renewing();
        (self.renewing, self.closing) = (true, true);
    }

    /// True if changes end only the epochs of the subgroups that they touch, as far as this member
    /// knows.
    pub(crate) fn keeps_epochs(&self) -> bool {
        self.epochs
    }

    pub(crate) fn keep_epochs(&mut self, keeps: bool) {
        self.stirred = true;
        self.epochs = keeps;
    }

    pub(crate) fn leave(&mut self) {
        self.stirred = true;
        (self.leaving, self.closing) = (true, true);
    }

    /// Takes in a decision as words that another member has sent. [`agree`](Self::agree) checks
    /// them.
    pub(crate) fn tell(&mut self, words: Vec<u64>) {
        self.stirred = true;
        (self.told, self.closing) = (Some(words), true);
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

    pub(crate) fn suspects(&self, member: Rank) -> bool {
        self.opinions.suspects(member)
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
    fn candidates(&self) -> Ranks {
        self.trusted_voters().without(self.opinions.evicting())
    }

    fn trusted_voters(&self) -> Ranks {
        self.voters.clone().without(&self.opinions.suspected())
    }

    /// True if the voters that this member hears are a quorum, including the ones that are to be
    /// evicted.
    fn hears_quorum(&self) -> bool {
        let is_needed = |rank: Rank| !self.given_up.has(rank) && !self.is_passed_over(rank);
        let is_heard = |rank: Rank| self.voters.has(rank) || !self.suspects(rank);
        self.is_quorum(self.trusted_voters().len(), self.dead_voters().len())
            && (!self.is_recovery() || self.peers.iter().all(|rank| !is_needed(*rank) || is_heard(*rank)))
    }

    fn is_voter(&self) -> bool {
        self.voters.has(self.me)
    }

    /// Shows that this member is alive, and checks the others. Returns the time of the next check.
    ///
    /// `await_peers` gets the leader's rank, and adds the members for which this member waits while
    /// the view works.
    #[inline]
    pub(crate) fn beat<T: Table>(
        &mut self,
        now: Time,
        table: &mut T,
        await_peers: impl FnOnce(&T, Rank, &mut Ranks),
    ) -> Option<Time> {
        if let Err(wake_at) = self.opinions.is_time(now) {
            return wake_at;
        }
        let mut awaited = Ranks::none(self.everyone.len());
        // Ending the view needs all members, and so does making members voters.
        let all =
            self.opinions.liveness() == Liveness::Constant || self.closing || self.voters.len() < self.everyone.len();
        match all {
            true => self.peers.iter().for_each(|peer| _ = awaited.add(*peer)),
            false => {
                self.opinions.await_beginnings(&mut awaited);
                await_peers(table, self.leader(), &mut awaited);
            }
        }
        let looked = self.opinions.looked();
        let (is_new, wake_at) = self.opinions.look(now, &awaited, table);
        self.closing |= is_new;
        // A member that fails before it begins a view notifies no peer.
        let has_looked = self.opinions.looked() != looked;
        self.stirred |= has_looked;
        self.moved |= has_looked && !mutation!(MovesUnnoticed);
        wake_at
    }

    pub(crate) fn next_heartbeat(&mut self) -> u64 {
        self.opinions.next_heartbeat()
    }

    /// Notes that words of the others' membership blocks may have changed.
    pub(crate) fn note_moved(&mut self) {
        self.moved = !mutation!(MovesUnnoticed);
        self.stirred = true;
        self.opinions.note_moved();
    }

    /// True if this view has to end, for a reason of this member or of any other.
    #[inline]
    pub(crate) fn watch<T: Table>(&mut self, table: &T) -> bool {
        if core::mem::take(&mut self.moved) {
            for peer in &self.peers {
                // One cache line of the peer's row.
                self.abandoned |= table.load(*peer, membership::ABANDONED) != 0;
                self.closing |= table.load(*peer, membership::CLOSING) != 0;
            }
        }
        if self.abandoned {
            self.closing |= self.opinions.see_final_words(table);
        }
        if self.voters.len() < self.everyone.len() {
            self.closing |= self.may_promote(table);
        }
        self.closing
    }

    /// True if the next view has to make nonvoters voters. Each of them has begun this view or is
    /// suspected, and the view is not so new that observers are still finding it.
    #[cold]
    fn may_promote<R: Rows>(&self, rows: &R) -> bool {
        let nonvoters = || self.peers.iter().filter(|rank| !self.voters.has(**rank) && !self.suspects(**rank));
        let has_begun = |rank: &Rank| rows.load(*rank, membership::HEARTBEAT) != 0;
        self.opinions.has_settled()
            && self.leader() == self.me
            && self.is_voter()
            && nonvoters().next().is_some()
            && nonvoters().all(has_begun)
    }

    /// Begins the agreement, for a reason of this member or of any other.
    pub(crate) fn close<T: Table>(&mut self, now: Time, layout: &Layout, table: &mut T) {
        self.stirred = true;
        let suspected: Vec<Rank> = self.peers.iter().copied().filter(|rank| self.suspects(*rank)).collect();
        self.teller.closing(&suspected, self.proposed.joins.len(), self.leaving);
        (self.changing, self.closing) = (true, true);
        (self.changes_since, self.turns.since) = (now, now);
        self.store_proposed(layout, table);
        if self.leaving {
            table.store(membership::LEAVING, 1);
        }
        self.opinions.publish(table);
        // The first member that closes the view wakes all members. Only the leader waits for the
        // others, and its ballot wakes all.
        let is_first = !self.peers.iter().any(|peer| table.load(*peer, membership::CLOSING) != 0);
        let ends_all = self.renewing || !self.epochs;
        table.store(membership::CLOSING, if ends_all { CLOSING_ALL } else { 1 });
        table.post_quietly(&self.peers, membership::CLOSING..membership::LEAVING + 8);
        self.wake(if is_first { None } else { Some(self.leader()) }, table);
    }

    /// Wakes `member`. Wakes all if `member` is `None`, this member, or suspected: a suspected
    /// member may hang, so another one has to be awake.
    fn wake<T: Table>(&self, member: Option<Rank>, table: &mut T) {
        match member.filter(|member| *member != self.me && !self.suspects(*member)) {
            Some(_) if mutation!(LeaderUnwoken) => {}
            Some(member) => table.wake(&[member]),
            None => table.wake(&self.peers),
        }
    }

    /// Writes as many proposed changes as fit. The rest is for the view after the next.
    fn store_proposed<T: Table>(&self, layout: &Layout, table: &mut T) {
        let range = &layout.row(self.me).proposed;
        let mut proposed = self.proposed.clone();
        while proposed != ProposedChanges::default() {
            let words = proposed.encode();
            if words.len() as u64 * 8 <= range.end - range.start {
                return self.write(range.start, &words, table);
            }
            if proposed.joins.len() > 1 {
                proposed.joins.truncate(proposed.joins.len() / 2);
            } else if proposed.changes.pop().is_none() {
                return;
            }
        }
    }

    /// Stores `words` from `at` on in this member's row, and posts them. Peers that wait for the
    /// words have to be [woken](Self::wake).
    fn write<T: Table>(&self, at: u64, words: &[u64], table: &mut T) {
        for (at, word) in (at..).step_by(8).zip(words) {
            table.store(at, *word);
        }
        table.post_quietly(&self.peers, at..at + 8 * words.len() as u64);
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
        if self.decision.is_some() || self.is_evicted() {
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

    fn step<T: Table>(&mut self, now: Time, view: &View, layout: &Layout, table: &mut T) -> (bool, Option<Time>) {
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
        let poll = Poll { now, view, layout, agreeing, acceptors };
        changed |= self.accept(&poll, table);
        changed |= self.promise(&poll, table);
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
                let counts = Counts { voters: self.counted().len(), heard, dead };
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

    /// INV-QUORUM: True if `with` voters are more than the ones that may know of another value.
    /// Dead voters whose rows are final know only what these rows contain. In a recovery, all
    /// voters that are not given up are needed.
    fn is_quorum(&self, with: usize, dead: usize) -> bool {
        let voters = self.counted().len();
        let is_enough = match self.is_recovery() && !mutation!(GivenUpQuorum) {
            true => with + dead >= voters,
            false => 2 * with + dead > voters,
        };
        is_enough || mutation!(NoQuorum)
    }

    /// Returns the voters that are not given up.
    fn counted(&self) -> Ranks {
        self.voters.clone().without(&self.given_up)
    }

    /// Returns the voters that are proven dead, with final rows.
    fn dead_voters(&self) -> Ranks {
        self.counted().within(self.opinions.dead())
    }

    /// Reads the others' rows as acceptors, by rank.
    fn read_acceptors<R: Rows>(&self, rows: &R, acceptors: &mut Vec<Acceptor>) {
        let is_credible =
            |ballot: &Ballot| ballot.round <= self.promised.map_or(0, |mine| mine.round) + ROUNDS_AHEAD_MAX;
        let read = |rank: &Rank| {
            if *rank == self.me {
                return Acceptor::default();
            }
            let Acceptor { promised, accepted } = Acceptor::read(*rank, self.everyone.len(), rows);
            Acceptor { promised: promised.filter(is_credible), accepted: accepted.filter(is_credible) }
        };
        acceptors.extend(self.everyone.iter().map(read));
    }

    /// Returns the row of `rank` as an acceptor. The row of a member that has written what no
    /// correct member writes is ignored.
    fn acceptor(&self, rank: Rank, poll: &Poll<'_>) -> Acceptor {
        match rank {
            _ if rank == self.me => Acceptor { promised: self.promised, accepted: self.accepted },
            _ if self.says_nothing(rank) => Acceptor::default(),
            _ => poll.acceptors[rank.index()],
        }
    }

    /// Looks for the decision in the rows and in messages. A decision is valid whichever member
    /// reports it.
    fn learn<T: Table>(&mut self, view: &View, layout: &Layout, agreeing: &Ranks, table: &mut T) -> bool {
        if let Some(words) = self.told.take()
            && let Some(ballot) = proposal::ballot_of(&words).and_then(|word| Ballot::decode(word, self.everyone.len()))
            && let Some(value) = proposal::decode(&words, view)
        {
            if self.has_to_wedge(&value, view) {
                self.told = Some(words);
                return true;
            }
            match self.weigh_told(&value, view) {
                Consequence::Decided => {
                    self.decide(ballot.0, (words, value), view, layout, table);
                    return true;
                }
                Consequence::LeftOut => {
                    self.left_out_of = Some(value.next.id);
                    self.teller.evicted(value.next.id);
                    return true;
                }
                Consequence::Nothing => {}
            }
        }
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            if self.says_nothing(peer) || table.load(peer, membership::DECIDED) == 0 {
                continue;
            }
            // If the value is incomplete, the rest has yet to arrive.
            let Some((ballot, words)) = read_value(peer, membership::DECIDED, layout, table) else { continue };
            let Some(value) = proposal::decode(&words, view) else {
                self.blame(peer);
                continue;
            };
            if !self.may_say(peer, &value, view, agreeing) {
                continue;
            }
            if !self.has_to_wedge(&value, view) {
                self.decide(ballot, (words, value), view, layout, table);
            }
            return true;
        }
        false
    }

    /// Acts as an acceptor: copies the newest value into this member's row, unless it has promised
    /// a higher ballot.
    fn accept<T: Table>(&mut self, poll: &Poll<'_>, table: &mut T) -> bool {
        if !self.is_voter() {
            return false;
        }
        let newest = self.everyone.iter().filter_map(|rank| Some((self.acceptor(*rank, poll).accepted?, *rank))).max();
        let Some((ballot, rank)) = newest else { return false };
        // INV-PROMISE
        let may = Some(ballot) >= self.promised || mutation!(PromiseForgotten);
        if Some(ballot) <= self.accepted || !may {
            return false;
        }
        let Some((found, words)) = read_value(rank, membership::ACCEPTED, poll.layout, table) else { return false };
        if found != ballot {
            return false;
        }
        if proposal::decode(&words, poll.view).is_none() {
            return self.blame(rank);
        }
        // This is no promise with cuts, and need not be: the leader of the ballot has chosen, and
        // reads no more cuts.
        self.adopt(ballot, &words, poll.layout, table);
        true
    }

    /// Acts as an acceptor: promises the highest ballot in any row.
    fn promise<T: Table>(&mut self, poll: &Poll<'_>, table: &mut T) -> bool {
        let highest = self.everyone.iter().filter_map(|rank| self.acceptor(*rank, poll).promised).max();
        let Some(ballot) = highest.filter(|_| highest > self.promised) else { return false };
        // INV-CUT
        let Some(touched) = self.read_touched(ballot, poll, table) else { return false };
        if self.touch.want(&touched) && !mutation!(PromisedUnwedged) {
            return true;
        }
        self.promised = highest;
        self.teller.promised(ballot);
        self.write(membership::PROMISED, &[self.promised.map_or(0, |ballot| ballot.encode(0))], table);
        self.wake(Some(ballot.leader), table);
        true
    }

    /// Returns the subgroups that `ballot` touches, as its leader has written them; `None` if they
    /// have not arrived yet.
    fn read_touched<R: Rows>(&self, ballot: Ballot, poll: &Poll<'_>, rows: &R) -> Option<Vec<bool>> {
        let words = read(ballot.leader, &poll.layout.row(ballot.leader).touched, rows);
        proposal::decode_touched(&words, ballot.encode(0), poll.view.subgroups.len())
    }

    /// Requests to wedge the subgroups that `value` touches. True if this member has yet to wedge
    /// some of them.
    fn has_to_wedge(&mut self, value: &Value, view: &View) -> bool {
        self.touch.want(&view.touched_by(&value.next))
    }

    /// Requests to wedge all subgroups.
    pub(crate) fn want_all(&mut self) {
        self.stirred = true;
        self.touch.want_all();
    }

    /// Returns the subgroups that this member has yet to wedge.
    pub(crate) fn to_wedge(&self) -> Vec<SubgroupId> {
        self.touch.to_wedge().collect()
    }

    /// Notes that `subgroup` announces and receives nothing more. `delivered` is how much of its
    /// order is delivered. Its cuts are stored in this member's row and posted.
    pub(crate) fn note_wedged(&mut self, subgroup: SubgroupId, delivered: u64) {
        self.stirred = true;
        self.touch.note_wedged(subgroup, delivered);
    }

    /// Leads, if it is this member's turn: takes a ballot, and chooses a value once enough voters
    /// have promised it.
    fn lead<T: Table>(&mut self, poll: &Poll<'_>, table: &mut T) -> (bool, Option<Time>) {
        let now = poll.now;
        // This member may not have promised the highest ballot yet. It may have to wedge first, or
        // not know what the ballot touches. If the ballot's leader has died, it never will.
        let highest = self.everyone.iter().filter_map(|rank| self.acceptor(*rank, poll).promised).max();
        if highest != self.turns.top {
            let was_mine = self.turns.top.is_some() && self.turns.top == self.turns.mine;
            self.turns.outbid += u32::from(was_mine);
            if let (true, Some(mine), Some(by)) = (was_mine, self.turns.mine, highest) {
                self.teller.outbid(mine, by);
            }
            (self.turns.top, self.turns.since) = (highest, now);
        }
        let is_mine = self.turns.mine.is_some() && self.turns.mine == highest;
        let mut took = false;
        if !is_mine || self.touches_more {
            match self.turn() {
                Some(at) if at <= now => {}
                _ if is_mine => {}
                at => return (false, at),
            }
            let expected = self.expected(poll, table);
            if self.touch.want_proposed(&expected) && !mutation!(LeaderUnwedged) {
                return (true, Some(now));
            }
            self.touches_more = false;
            let ballot = Ballot::above(highest, self.me);
            (self.promised, self.turns.mine) = (Some(ballot), Some(ballot));
            (self.turns.top, self.turns.since) = (self.promised, now);
            let words = proposal::encode_touched(ballot.encode(0), self.touch.proposed());
            self.write(poll.layout.row(self.me).touched.start, &words, table);
            self.write(membership::PROMISED, &[ballot.encode(0)], table);
            self.wake(None, table);
            self.teller.took_ballot(ballot, self.turns.outbid);
            took = true;
        }
        if self.accepted == self.promised {
            return (took, None);
        }
        self.note_who_is_behind(poll);
        match self.choose(poll, self.deadlines(), table) {
            Ok(words) => {
                let ballot = self.promised.expect("a leader has promised its ballot");
                self.adopt(ballot, &words, poll.layout, table);
                (true, None)
            }
            Err(choice::Waits::Until(Time(u64::MAX)) | choice::Waits::ForOthers) => (took, None),
            Err(choice::Waits::Until(at)) => (took, Some(at)),
            Err(choice::Waits::Touches(more)) => {
                self.touch.propose(&more);
                self.touches_more = true;
                (true, Some(now))
            }
            Err(choice::Waits::Faulty(rank)) => (self.blame(rank) | took, Some(now)),
        }
    }

    fn deadlines(&self) -> Deadlines {
        let patience_ns = self.opinions.patience_ns();
        let returned_at = self.opinions.returned_at();
        let silent = returned_at.map_or(Time(0), |at| Time(at.0 + patience_ns / RETURN_WITHIN));
        let strained = Time(Some(self.turns.since).max(returned_at).map_or(0, |at| at.0) + patience_ns);
        Deadlines { silent, strained }
    }

    /// Notes since when each member has not promised the requested ballot, whichever leader
    /// requests it.
    fn note_who_is_behind(&mut self, poll: &Poll<'_>) {
        let top = self.promised;
        self.turns.behind.resize(self.everyone.len(), None);
        for i in 0..self.everyone.len() {
            let promised = self.acceptor(self.everyone[i], poll).promised;
            let behind = &mut self.turns.behind[i];
            *behind = match *behind {
                _ if promised >= top => None,
                Some((before, since)) if before == promised => Some((promised, since)),
                _ => Some((promised, poll.now)),
            };
        }
    }

    /// Returns the time until which a leader waits for the promise of `rank`, which it hears.
    /// Without a limit of silence it waits for ever.
    fn promise_until(&self, rank: Rank, now: Time) -> Time {
        if self.opinions.suspect_after().is_none() {
            return Time(u64::MAX);
        }
        let since = self.turns.behind.get(rank.index()).copied().flatten().map_or(now, |(_, since)| since);
        Time(since.0 + PROMISE_WITHIN * self.opinions.patience_ns())
    }

    /// Returns the time at which this member may take a ballot, if nothing happens before; `None`
    /// if only an event can allow it.
    fn turn(&self) -> Option<Time> {
        if !self.is_voter() || !self.changing {
            return None;
        }
        let patience_ns = self.opinions.patience_ns();
        let position = self.candidates().iter().position(|rank| rank == self.me)? as u64;
        let back_off_ns = match self.turns.outbid {
            0 => 0,
            outbid => ((patience_ns / BACK_OFF) << outbid.min(BACK_OFF_MAX)) * (1 + position),
        };
        let owner = self.turns.top.map(|top| top.leader);
        let is_led = owner.is_some_and(|owner| owner != self.me && !self.opinions.suspects(owner));
        let wait_ns = match position {
            0 if !is_led => back_off_ns,
            0 => patience_ns + back_off_ns,
            // The member of the lowest rank may know of fewer deaths, or not see the others.
            _ => patience_ns * (1 + position) + back_off_ns,
        };
        // Without a quorum no ballot can succeed. Two members that can't reach each other would
        // supersede each other's ballots for ever.
        self.hears_quorum().then(|| Time(self.turns.since.0.saturating_add(wait_ns)))
    }

    /// Decides a ballot if a quorum has accepted it. Any member may count.
    fn count<T: Table>(&mut self, poll: &Poll<'_>, table: &mut T) -> bool {
        let of = |rank: &Rank| self.acceptor(*rank, poll);
        let mut ballots: Vec<Ballot> = self.counted().iter().filter_map(|rank| of(&rank).accepted).collect();
        ballots.sort_unstable();
        ballots.dedup();
        for ballot in ballots.into_iter().rev() {
            let shows = |rank: &Rank| of(rank).accepted == Some(ballot) && poll.agreeing.has(*rank);
            let with = self.counted().iter().filter(shows).count();
            let is_silent = |rank: &Rank| {
                !shows(rank) && (of(rank).promised <= Some(ballot) || mutation!(DeadWithHigherPromiseCounts))
            };
            let dead = self.dead_voters().iter().filter(|rank| is_silent(rank) || mutation!(DeadCountedTwice)).count();
            let is_decided = (self.is_quorum(with, dead) && self.is_unanimous(&poll.agreeing))
                || (mutation!(DecidesAlone) && shows(&self.me));
            if !is_decided {
                continue;
            }
            let holders: Vec<Rank> = self.counted().iter().filter(shows).collect();
            for rank in holders {
                match read_value(rank, membership::ACCEPTED, poll.layout, table) {
                    Some((found, words)) if found == ballot => {
                        let Some(value) = proposal::decode(&words, poll.view) else { return false };
                        if !self.may_be_counted(&value, poll.view) {
                            break;
                        }
                        if !self.has_to_wedge(&value, poll.view) {
                            self.decide(ballot, (words, value), poll.view, poll.layout, table);
                        }
                        return true;
                    }
                    _ => {}
                }
            }
        }
        false
    }

    /// Accepts a value: copies it into this member's row, and then sets `ACCEPTED`, with the
    /// implied promise.
    fn adopt<T: Table>(&mut self, ballot: Ballot, words: &[u64], layout: &Layout, table: &mut T) {
        let word = ballot.encode(self.slot);
        self.promised = self.promised.max(Some(ballot));
        (self.accepted, self.accepted_slot) = (Some(ballot), self.slot);
        self.teller.accepted(ballot);
        let promised = self.promised.map_or(0, |ballot| ballot.encode(0));
        if mutation!(BallotBeforeProposal) {
            self.write(membership::ACCEPTED, &[word, promised], table);
        }
        self.write_slot(words, layout, table);
        // Both words are in one cache line, which is never torn. In shared memory the acceptance is
        // stored before the promise.
        self.write(membership::ACCEPTED, &[word, promised], table);
        self.wake(Some(ballot.leader), table);
    }

    /// Writes a value into the next slot, so that the value that this member's row names is never
    /// half written.
    fn write_slot<T: Table>(&mut self, words: &[u64], layout: &Layout, table: &mut T) {
        self.write(slot_range(layout, self.me, self.slot).start, words, table);
        self.slot = if mutation!(OneSlot) { self.slot } else { 1 - self.slot };
    }

    /// Stores the decision.
    fn decide<T: Table>(
        &mut self,
        ballot: Ballot,
        (words, Value { next, joined, trims }): (Vec<u64>, Value),
        view: &View,
        layout: &Layout,
        table: &mut T,
    ) {
        // A ballot has one value. If this member has accepted it, its row contains it.
        let slot = if self.accepted == Some(ballot) { self.accepted_slot } else { self.slot };
        if self.accepted != Some(ballot) {
            self.write_slot(&words, layout, table);
        }
        self.write(membership::DECIDED, &[ballot.encode(slot)], table);
        // The leader wakes the others.
        self.wake(Some(ballot.leader), table);
        self.blocked = false;
        self.decided = words;
        let decision = Decision { ballot, next, joined, trims };
        if self.is_left_out(&decision, view, layout, table) && !mutation!(EvictedGoesOn) {
            self.left_out_of = Some(decision.next.id);
        }
        self.tell_decision(&decision, view, table);
        self.decision = Some(decision);
    }

    /// Reports the next view, and why members are not in it, as far as this member knows.
    #[cold]
    fn tell_decision<R: Rows>(&mut self, decision: &Decision, view: &View, rows: &R) {
        let reason = |rank: Rank| match rank {
            _ if rank == self.me && self.leaving || rows.load(rank, membership::LEAVING) != 0 => Reason::Left,
            _ if self.opinions.is_dead(rank) => Reason::Dead,
            _ if self.opinions.is_evicting(rank) => Reason::Evicted,
            _ if self.opinions.is_barred(rank) => Reason::Barred,
            _ if self.opinions.is_silent(rank) => Reason::Silent,
            _ if self.opinions.suspects(rank) => Reason::SuspectsMe,
            _ => Reason::ByLeader,
        };
        let is_out = |rank: &Rank| decision.next.rank_of(view.members[rank.index()]).is_none();
        let out: Vec<(Rank, Reason)> =
            self.everyone.iter().copied().filter(is_out).map(|rank| (rank, reason(rank))).collect();
        let now = self.opinions.now();
        self.teller.decided(decision, &out, now, now.0.saturating_sub(self.changes_since.0));
        if self.is_evicted() {
            self.teller.evicted(decision.next.id);
        }
    }

    /// True if the decision excludes this member: it leaves the member out against its will, or its
    /// trims do not match what the member has. A member that wanted to leave may have been left out
    /// as a suspect. Then the trims may be above its cuts, or below what it has delivered.
    fn is_left_out<T: Table>(&self, decision: &Decision, view: &View, layout: &Layout, table: &T) -> bool {
        let Decision { next, trims, .. } = decision;
        let is_other = |id: u32, trims: &[u64]| {
            let Some(cut) = layout.row(self.me).cut(SubgroupId(id)) else { return false };
            let lacks = (cut..).step_by(8).zip(trims).any(|(at, trim)| table.load(self.me, at) < *trim);
            let spec = &view.subgroups[id as usize];
            let ends = (0..).zip(trims).map(|(sender, trim)| sequence_end(*trim, sender, spec.senders.len())).max();
            let delivered = self.touch.delivered(SubgroupId(id)).unwrap_or(0);
            lacks || (spec.order == Order::Total && delivered > ends.unwrap_or(0))
        };
        let is_out = next.rank_of(view.members[self.me.index()]).is_none() && !self.leaving;
        let touched = view.touched_by(next);
        is_out || (0..).zip(trims).any(|(id, trims)| touched[id as usize] && is_other(id, trims))
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

/// Reads the decision from any row that contains one, for processes that are no members.
pub(crate) fn read_decision<R: Rows>(view: &View, layout: &Layout, rows: &R) -> Option<Decision> {
    // A row that claims a decision without containing it hides no other row's.
    view.ranks().find_map(|rank| {
        let (ballot, words) = read_value(rank, membership::DECIDED, layout, rows)?;
        let Value { next, joined, trims } = proposal::decode(&words, view)?;
        Some(Decision { ballot, next, joined, trims })
    })
}

fn slot_bytes(layout: &Layout, member: Rank) -> u64 {
    let slots = &layout.row(member).proposals;
    (slots.end - slots.start) / 2
}

/// Returns the range of the row of `member` in which the value with this slot is stored.
fn slot_range(layout: &Layout, member: Rank, slot: u64) -> Range<u64> {
    let bytes = slot_bytes(layout, member);
    let start = layout.row(member).proposals.start + slot * bytes;
    start..start + bytes
}

/// Reads the words in `range` of the row of `member`. The second word is the number of words after
/// it.
fn read<R: Rows>(member: Rank, range: &Range<u64>, rows: &R) -> Vec<u64> {
    let count = rows.load(member, range.start + 8).saturating_add(2).min((range.end - range.start) / 8);
    (0..count).map(|i| rows.load(member, range.start + 8 * i)).collect()
}

/// Reads the value that the word at `at` of the row of `member` names; `None` if it names none, or
/// if the value is incomplete.
fn read_value<R: Rows>(member: Rank, at: u64, layout: &Layout, rows: &R) -> Option<(Ballot, Vec<u64>)> {
    let word = rows.load(member, at);
    let (ballot, slot) = Ballot::decode(word, layout.rows().len())?;
    let words = read(member, &slot_range(layout, member, slot), rows);
    // Two values later the slot is written again, after the word has changed.
    let is_current = rows.load(member, at) == word;
    let is_whole = proposal::ballot_of(&words) == Some(ballot.encode(0));
    (is_current && is_whole).then_some((ballot, words))
}
