//! The proposal of a leader: the value that binds it, or one of its own.
use super::acceptor::complete_bit;
use super::agreement::{AgreementPoll, Membership};
use super::ballot::Ballot;
use super::ranks::bit;
use super::slots::{read, read_value, slot_bytes};
use super::watch::CLOSING_ALL;
use crate::ids::{MemberId, Rank, SubgroupId, Time};
use crate::limits;
use crate::membership::proposal::{self, Join, ProposalValue, ProposedChanges, Trims};
use crate::multicast::cursor::ROUNDS_MAX;
use crate::mutation::mutation;
use crate::table::Table;
use crate::view::{SubgroupSpec, View};
use crate::wire::layout::membership;
use alloc::vec::Vec;

/// The time in which a heard member has to promise after it was asked, in suspicion times. Then a
/// leader chooses without it.
const PROMISE_WITHIN: u64 = 4;
/// When members are heard again after a silence, a leader waits for more of them: the suspicion
/// time divided by this.
const RETURN_WITHIN: u64 = 2;

/// How long members that leave a subgroup wait for a member that stays and has a complete log, in ns: longer than a log
/// tries to catch up with members that do not answer.
const CAUGHT_UP_WITHIN: u64 = 120_000_000_000;

/// Why a leader chooses nothing yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// For members that its choice would leave out now, until this moment at most.
    Until(Time),
    /// Too few have promised, or would go on.
    ForOthers,
    /// Its choice touches these subgroups, and its ballot does not touch them all.
    Touches(Vec<bool>),
    /// For a complete log of this subgroup at a member that would go on.
    ForLogs(SubgroupId),
    /// The log of this subgroup is incomplete at all members that would go on, and these have ended, which may have it.
    Incomplete(SubgroupId, Vec<Rank>),
    /// This member has accepted what no member proposes.
    Faulty(Rank),
}

/// A leader's choice under its ballot, and the rows that it counts.
struct Choice<'a, T> {
    member: &'a Membership,
    poll: &'a AgreementPoll<'a>,
    deadlines: Deadlines,
    table: &'a T,
    ballot: Ballot,
    /// The voters that promised the ballot (S).
    promisers: Vec<Rank>,
    /// The other voters that are proven dead, with final rows that promise nothing higher (D).
    dead: Vec<Rank>,
}

/// The times until which a leader waits for the members that its choice would leave out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// The deadline for silent members.
    pub(super) silent: Time,
    /// The deadline for members that do not hear all others, and for incomplete values.
    pub(super) strained: Time,
}

impl Membership {
    /// The words to propose under my ballot.
    pub(super) fn choose<T: Table>(
        &self,
        poll: &AgreementPoll<'_>,
        deadlines: Deadlines,
        table: &T,
    ) -> Result<Vec<u64>, Waits> {
        let ballot = self.promised.expect("a leader has promised its ballot");
        let choice = Choice { member: self, poll, deadlines, table, ballot, promisers: Vec::new(), dead: Vec::new() };
        choice.with_quorum()?.value()
    }

    /// Whether the epochs of all subgroups are to end.
    fn ends_all<T: Table>(&self, table: &T) -> bool {
        let says = |rank: Rank| table.load(rank, membership::CLOSING) == CLOSING_ALL;
        let renews = self.renewing || self.peers.iter().any(|peer| !self.says_nothing(*peer) && says(*peer));
        !self.epochs || renews || self.is_recovery()
    }

    /// The subgroups that a choice of mine would touch, by what is known before it. If all epochs
    /// are to end, all.
    pub(super) fn expected<T: Table>(&self, poll: &AgreementPoll<'_>, table: &T) -> Vec<bool> {
        let view = poll.view;
        if self.ends_all(table) {
            return alloc::vec![true; view.subgroups.len()];
        }
        let ballot = Ballot::above(self.promised, self.me);
        let deadlines = self.deadlines();
        let choice = Choice { member: self, poll, deadlines, table, ballot, promisers: Vec::new(), dead: Vec::new() };
        let heard: Vec<Rank> = self.everyone.iter().copied().filter(|rank| !self.opinions.suspects(*rank)).collect();
        let ProposedChanges { joins, changes } = choice.all_proposed(&heard);
        let joining: Vec<MemberId> =
            joins.iter().map(|join| join.process.id).filter(|id| !view.members.contains(id)).collect();
        let stays = |rank: Rank| heard.contains(&rank) && !choice.is_leaving(rank) && !self.opinions.is_evicting(rank);
        view.touched_by(&view.next(stays, &joining, &changes))
    }

    pub(super) fn deadlines(&self) -> Deadlines {
        let patience_ns = self.opinions.patience_ns();
        let returned_at = self.opinions.returned_at();
        let silent = returned_at.map_or(Time(0), |at| Time(at.0 + patience_ns / RETURN_WITHIN));
        let strained = Time(Some(self.turns.since).max(returned_at).map_or(0, |at| at.0) + patience_ns);
        Deadlines { silent, strained }
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
}

impl<T: Table> Choice<'_, T> {
    fn promised(&self, rank: Rank) -> Option<Ballot> {
        self.member.acceptor(rank, self.poll).promised
    }

    fn has_promised(&self, rank: Rank) -> bool {
        self.promised(rank) == Some(self.ballot) && self.poll.agreeing.has(rank)
    }

    /// INV-QUORUM: this choice, once enough rows count for it.
    fn with_quorum(mut self) -> Result<Self, Waits> {
        let (promisers, others): (Vec<Rank>, Vec<Rank>) =
            self.member.counted().iter().partition(|rank| self.has_promised(*rank));
        let counts = |rank: &Rank| {
            let final_row = self.member.opinions.is_dead(*rank) && !mutation!(DeadRowsUnread);
            final_row && (self.promised(*rank) <= Some(self.ballot) || mutation!(DeadWithHigherPromiseCounts))
        };
        let dead = match mutation!(DeadCountedTwice) {
            true => self.member.dead_voters().iter().collect(),
            false => others.into_iter().filter(counts).collect(),
        };
        (self.promisers, self.dead) = (promisers, dead);
        let is_unanimous = self.member.is_unanimous(&self.poll.agreeing);
        match self.member.is_quorum(self.promisers.len(), self.dead.len()) && is_unanimous {
            true => Ok(self),
            false => Err(Waits::ForOthers),
        }
    }

    fn value(&self) -> Result<Vec<u64>, Waits> {
        self.wait_for_promises()?;
        match self.bound()? {
            Some(words) => self.again(words),
            None => self.make(),
        }
    }

    /// A value that binds, under this ballot. In a recovery one of the era before can only be a
    /// decision that members know which are given up. Its trims stay, for what they may have
    /// delivered, and of its members those that are left.
    fn again(&self, words: Vec<u64>) -> Result<Vec<u64>, Waits> {
        let (member, view, ballot) = (self.member, self.poll.view, self.ballot.encode(0));
        let value = proposal::decode(&words, view).filter(|value| value.next.id.era() == view.id.era());
        let Some(ProposalValue { next: old, mut trims, .. }) = value.filter(|_| member.is_recovery()) else {
            return Ok(proposal::with_ballot(words, ballot));
        };
        // A nonvoter that has not promised may have wedged nowhere.
        let is_ready = |rank: Rank| member.voters.has(rank) || self.has_promised(rank);
        let is_next = |rank: Rank| old.rank_of(view.members[rank.index()]).is_some();
        let stays = |rank: Rank| !member.is_given_up(rank) && is_next(rank) && is_ready(rank);
        if !member.counted().iter().any(stays) {
            return self.make();
        }
        let mut next = View { id: view.id.recovered(member.tag(view)), ..view.next(stays, &[], &[]) };
        next.begin_epochs();
        next.keep_clocks(&old);
        // It has none of the subgroups that it did not touch.
        let there: Vec<Rank> =
            member.everyone.iter().copied().filter(|rank| self.has_promised(*rank) && stays(*rank)).collect();
        for ((trims, cuts), was_touched) in trims.iter_mut().zip(self.trims(&there)).zip(view.touched_by(&old)) {
            if !was_touched {
                *trims = cuts;
            }
        }
        let was_touched = view.touched_by(&old);
        self.set_clocks(&mut next, &there, |id| !was_touched[id.index()]);
        Ok(proposal::encode(ballot, &ProposalValue { next, joined: Vec::new(), trims }))
    }

    /// Waits for members that this choice would leave out, and that may promise yet. A member that
    /// is to be evicted may hang, and one that another member does not hear is given up when bad
    /// links are looked at.
    fn wait_for_promises(&self) -> Result<(), Waits> {
        let Choice { member: Membership { opinions, everyone, .. }, deadlines, .. } = *self;
        let named = self.named();
        let is_waited_for =
            |rank: &Rank| !self.has_promised(*rank) && !opinions.is_barred(*rank) && !named.contains(rank);
        let waited_for = everyone.iter().copied().filter(is_waited_for);
        let until = waited_for.map(|rank| match rank {
            _ if opinions.is_silent(rank) => deadlines.silent,
            _ if opinions.suspects(rank) || self.is_unheard_by_another(rank) => deadlines.strained,
            _ => self.member.promise_until(rank, self.poll.now),
        });
        until.max().map_or(Ok(()), |until| self.wait_until(until))
    }

    /// Whether a member that has promised does not hear `rank`.
    fn is_unheard_by_another(&self, rank: Rank) -> bool {
        self.member.peers.iter().any(|peer| self.has_promised(*peer) && self.is_unheard_by(*peer, rank))
    }

    /// Whether `one` says that it does not hear `rank`. Members that I do not hear myself are known
    /// otherwise.
    fn is_unheard_by(&self, one: Rank, rank: Rank) -> bool {
        one != self.member.me && bit(self.table, one, membership::SUSPECTED, rank)
    }

    fn wait_until(&self, until: Time) -> Result<(), Waits> {
        if until > self.poll.now { Err(Waits::Until(until)) } else { Ok(()) }
    }

    /// INV-BIND: the accepted value of the highest ballot among the rows that I count, if it may be
    /// decided. If the rows that I have not read could not make it a decision, it is none, and I am
    /// free.
    fn bound(&self) -> Result<Option<Vec<u64>>, Waits> {
        let found = self.accepted_values()?;
        let Some((highest, _, value)) = found.iter().max_by_key(|(ballot, rank, _)| (*ballot, *rank)) else {
            return Ok(None);
        };
        let shows = |rank: &Rank| {
            let same = |(_, of, words): &&(Ballot, Rank, Vec<u64>)| of == rank && proposal::is_same(words, value);
            found.iter().any(|entry| same(&entry))
        };
        let read = || self.promisers.iter().chain(&self.dead);
        let with = read().filter(|rank| shows(rank)).count();
        let is_unread = |rank: &Rank| !read().any(|read| read == rank) && !mutation!(UnreadDontBind);
        let unread = self.member.voters.iter().filter(is_unread).count();
        let silent = |rank: &&Rank| !shows(rank) && self.promised(**rank) <= Some(*highest);
        let silent = self.dead.iter().filter(silent).count();
        // In a recovery the members that are given up may have decided it, too.
        let is_open = self.member.is_recovery() && !mutation!(RecoveryNotAdopted);
        let binds = (self.member.is_quorum(with + unread, silent) || is_open) && !mutation!(NeverAdopts);
        Ok(binds.then(|| value.clone()))
    }

    /// The values that the members that I count have accepted.
    fn accepted_values(&self) -> Result<Vec<(Ballot, Rank, Vec<u64>)>, Waits> {
        let mut found = Vec::new();
        for rank in self.promisers.iter().chain(&self.dead).copied() {
            let Some(ballot) = self.member.acceptor(rank, self.poll).accepted else { continue };
            let is_dead = self.member.opinions.is_dead(rank);
            if is_dead && mutation!(DeadValuesUnread) {
                continue;
            }
            let value = read_value(rank, membership::ACCEPTED, self.poll.layout, self.table);
            match value.filter(|(read, _)| *read == ballot) {
                Some((_, words)) if proposal::decode(&words, self.poll.view).is_some() => {
                    found.push((ballot, rank, words))
                }
                // No correct member leaves that behind.
                _ if is_dead => {}
                // It has accepted something else since its row was read: the next poll reads on.
                _ if self.accepted_now(rank) != Some(ballot) => return Err(Waits::Until(self.poll.now)),
                Some(_) => return Err(Waits::Faulty(rank)),
                None => {
                    self.wait_until(self.deadlines.strained)?;
                    return Err(Waits::Faulty(rank));
                }
            }
        }
        Ok(found)
    }

    fn accepted_now(&self, rank: Rank) -> Option<Ballot> {
        Ballot::decode(self.table.load(rank, membership::ACCEPTED), self.member.everyone.len())
            .map(|(ballot, _)| ballot)
    }

    /// A value of my own. If too few would go on, no member is evicted, and I wait.
    fn make(&self) -> Result<Vec<u64>, Waits> {
        let opinions = &self.member.opinions;
        let promisers = || self.member.everyone.iter().copied().filter(|rank| self.has_promised(*rank));
        let there = promisers().filter(|rank| !opinions.suspects(*rank));
        let (leaving, mut staying): (Vec<Rank>, Vec<Rank>) = there.partition(|rank| self.is_leaving(*rank));
        // Before bad links are looked at: those of the members that an operator has named cost no
        // other member its place.
        let evicted = self.leave_out_named(&mut staying);
        self.leave_out_strained(&mut staying);
        // Members that have promised can hear me. If they don't hear all others, they may be about
        // to.
        let is_left_out = |rank: Rank| ![&staying, &leaving, &evicted].iter().any(|ranks| ranks.contains(&rank));
        if promisers().any(|rank| is_left_out(rank) && !opinions.is_barred(rank)) {
            self.wait_until(self.deadlines.strained)?;
        }
        // Members that are to be evicted have promised nevertheless.
        if !self.may_evict(&[&staying, &leaving, &evicted]) {
            return Err(Waits::ForOthers);
        }
        let holders: Vec<Rank> = staying.iter().chain(&leaving).copied().collect();
        let trims = self.trims(&holders);
        let proposed = self.all_proposed(&holders);
        self.fit(&staying, &holders, proposed, &trims)
    }

    fn is_leaving(&self, rank: Rank) -> bool {
        match rank == self.member.me {
            true => self.member.leaving,
            false => self.table.load(rank, membership::LEAVING) != 0,
        }
    }

    /// Whether these members are enough to leave out the others. The dead go nowhere, those that
    /// promised first included.
    fn may_evict(&self, consent: &[&[Rank]]) -> bool {
        let voters = consent.iter().flat_map(|ranks| ranks.iter()).filter(|rank| self.promisers.contains(rank)).count();
        let dead = if mutation!(DeadRowsUnread) { 0 } else { self.member.dead_voters().len() };
        self.member.is_quorum(voters, dead) || mutation!(EvictsWithoutQuorum)
    }

    /// The members that operators have named, by way of members that have promised and that I
    /// trust. A member that is named itself names no other: of two that are to evict each other,
    /// the one that the lower rank names is evicted, and at least one member is not named.
    fn named(&self) -> Vec<Rank> {
        let Membership { everyone, opinions, .. } = self.member;
        let at = membership::evicting(everyone.len());
        let mut named = Vec::new();
        for by in everyone.iter().copied() {
            if named.contains(&by) || !self.has_promised(by) || opinions.suspects(by) {
                continue;
            }
            let names = |rank: &Rank| match by == self.member.me {
                true => opinions.is_evicting(*rank),
                false => *rank != by && bit(self.table, by, at, *rank),
            };
            named.extend(everyone.iter().copied().filter(names));
        }
        named
    }

    /// Leaves out the members that operators have named, unless none would stay. Returns those that
    /// were left out.
    fn leave_out_named(&self, staying: &mut Vec<Rank>) -> Vec<Rank> {
        let named = self.named();
        let (evicted, rest): (Vec<Rank>, Vec<Rank>) = staying.iter().partition(|rank| named.contains(rank));
        if rest.is_empty() {
            return Vec::new();
        }
        *staying = rest;
        evicted
    }

    /// INV-COMPLETE: of the members of a logged subgroup that are in it in the next view, one has its log complete, if
    /// others are not. If none has, records that are durable may be on the disks of the others alone. Living ones may
    /// show that they have them, or send them. If all have ended, the group has to restart with them. A recovery gives
    /// them up.
    fn check_logs(&self, next: &View) -> Result<(), Waits> {
        let view = self.poll.view;
        if self.member.is_recovery() || mutation!(GoesOnIncomplete) {
            return Ok(());
        }
        let shown = |rank: Rank| match rank == self.member.me {
            true => self.member.complete,
            false => self.table.load(rank, membership::COMPLETE),
        };
        for (id, spec) in (0..).map(SubgroupId).zip(&view.subgroups).filter(|(_, spec)| spec.is_logged()) {
            // It is removed, with its log.
            let Some(then) = next.subgroup(&spec.name).map(|then| &next.subgroups[then.index()]) else { continue };
            let is_in = |rank: &&Rank| {
                let then_rank = next.rank_of(view.members[rank.index()]);
                then_rank.is_some_and(|rank| then.members.contains(&rank))
            };
            let (on, off): (Vec<Rank>, Vec<Rank>) = spec.members.iter().partition(is_in);
            let has_all = |rank: &Rank| shown(*rank) & complete_bit(id) != 0;
            // If none stays, and none of them is known to lack records, the next members begin anew.
            let lacks = |rank: &Rank| shown(*rank) != 0 && !has_all(rank);
            let is_over = on.is_empty() && !off.iter().any(lacks);
            if off.is_empty() || is_over || on.iter().any(has_all) {
                continue;
            }
            let is_dead = |rank: &Rank| self.member.opinions.is_dead(*rank);
            if off.iter().all(|rank| self.has_promised(*rank) && !is_dead(rank)) {
                // They leave, and send records meanwhile. Logs that have none by then get none any more.
                self.wait_until(Time(self.member.changes_since.0.saturating_add(CAUGHT_UP_WITHIN)))?;
                continue;
            }
            if !off.iter().all(is_dead) {
                return Err(Waits::ForLogs(id));
            }
            // The words of others may be on their way.
            self.wait_until(self.deadlines.strained)?;
            return Err(Waits::Incomplete(id, off));
        }
        Ok(())
    }

    /// Leaves out members until no two of the rest suspect each other: those with most such links
    /// first; of two, the one that is not heard; of two that don't hear each other, the younger.
    fn leave_out_strained(&self, staying: &mut Vec<Rank>) {
        // Members that I suspect are left out already.
        let says = |one, other| self.is_unheard_by(one, other);
        loop {
            let strain = |rank: Rank| {
                let unheard = staying.iter().filter(|other| says(**other, rank)).count();
                let strained = staying.iter().filter(|other| says(rank, **other) || says(**other, rank)).count();
                (strained, unheard, rank)
            };
            match staying.iter().copied().map(strain).max() {
                Some((strained, _, rank)) if strained > 0 => staying.retain(|other| *other != rank),
                _ => return,
            }
        }
    }

    /// INV-TRIM: per subgroup and sender, the smallest cut of those of its members that go on or
    /// leave.
    fn trims(&self, holders: &[Rank]) -> Trims {
        let mut holds = alloc::vec![false; self.poll.view.members.len()];
        holders.iter().for_each(|rank| holds[rank.index()] = true);
        let of_subgroup = |(id, spec): (SubgroupId, &SubgroupSpec)| {
            let place = |rank: &Rank| Some((*rank, self.poll.layout.row(*rank).cut(id)?));
            let cuts: Vec<(Rank, u64)> =
                spec.members.iter().filter(|rank| holds[rank.index()]).filter_map(place).collect();
            let cut = |sender: usize| {
                let heard = cuts.iter().map(|(rank, cut)| self.table.load(*rank, cut + 8 * sender as u64));
                // If all members of a subgroup are gone, no message of it is left to deliver.
                let trim = if mutation!(TrimIsLongest) { heard.max() } else { heard.min() };
                trim.map_or(0, |trim| trim.min(ROUNDS_MAX))
            };
            (0..spec.senders.len()).map(cut).collect()
        };
        (0..).map(SubgroupId).zip(&self.poll.view.subgroups).map(of_subgroup).collect()
    }

    /// INV-LOG-CLOCK: sets the clocks with which logged subgroups continue in `next`, of those for
    /// which `is_touched` holds. None of the messages below the [trims](Self::trims) has a later
    /// one: each holder has them all, and has written down a clock that is no earlier. So the
    /// smallest is enough. A larger one may be that of a message that no member delivers.
    fn set_clocks(&self, next: &mut View, holders: &[Rank], is_touched: impl Fn(SubgroupId) -> bool) {
        let view = self.poll.view;
        for spec in next.subgroups.iter_mut().filter(|spec| spec.is_logged()) {
            let Some(id) = view.subgroup(&spec.name) else { continue };
            let old = &view.subgroups[id.index()];
            if !is_touched(id) || !old.is_logged() {
                continue;
            }
            let cuts = holders.iter().filter_map(|rank| Some((*rank, self.poll.layout.row(*rank).cut(id)?)));
            let clock = cuts.map(|(rank, cut)| self.table.load(rank, cut + 8 * old.senders.len() as u64)).min();
            let clock = clock.filter(|_| !mutation!(ClockForgotten));
            spec.clock = spec.clock.max(clock.unwrap_or(0));
        }
    }

    /// The words of a proposal with as many joins and changes as fit. The rest is for the view
    /// after it.
    fn fit(
        &self,
        staying: &[Rank],
        holders: &[Rank],
        proposed: ProposedChanges,
        trims: &Trims,
    ) -> Result<Vec<u64>, Waits> {
        let view = self.poll.view;
        let ProposedChanges { joins, changes } = proposed;
        let room = limits::MEMBERS_MAX - staying.len();
        let is_new = |join: &Join| !view.members.contains(&join.process.id);
        let joins: Vec<Join> = joins.into_iter().filter(is_new).take(room).collect();
        let ids: Vec<MemberId> = joins.iter().map(|join| join.process.id).collect();
        let (mut joining, mut changing) = (joins.len(), changes.len());
        loop {
            let mut next = view.next(|rank| staying.contains(&rank), &ids[..joining], &changes[..changing]);
            if self.member.is_recovery() {
                next.id = view.id.recovered(self.member.tag(view));
            }
            if self.member.ends_all(self.table) {
                next.begin_epochs();
            }
            self.check_logs(&next)?;
            let touched = view.touched_by(&next);
            self.set_clocks(&mut next, holders, |id| touched[id.index()]);
            // All who stay have begun this view, so they vote. If none stays, the joiners have to.
            if !staying.is_empty() {
                next.set_nonvoters(|id| joins[..joining].iter().any(|join| join.process.id == id && !join.votes));
            }
            let value = ProposalValue {
                next,
                joined: joins[..joining].iter().map(|join| join.process).collect(),
                trims: trims
                    .iter()
                    .zip(&touched)
                    .map(|(trims, is)| if *is { trims.clone() } else { [].into() })
                    .collect(),
            };
            let words = proposal::encode(self.ballot.encode(0), &value);
            if words.len() as u64 * 8 <= slot_bytes(self.poll.layout, self.member.me) {
                return match self.member.touch.may_touch(&touched) || mutation!(TouchedUnnamed) {
                    true => Ok(words),
                    false => Err(Waits::Touches(touched)),
                };
            }
            if joining > 0 {
                joining /= 2;
            } else {
                changing /= 2;
            }
        }
    }

    /// The changes proposed by these members, each once. If processes have one id, or changes
    /// contradict each other, the change proposed by the lowest rank counts.
    fn all_proposed(&self, of: &[Rank]) -> ProposedChanges {
        let mut all = ProposedChanges::default();
        for rank in of {
            // Garbage is no proposed change.
            let Some(proposed) =
                ProposedChanges::decode(&read(*rank, &self.poll.layout.row(*rank).proposed, self.table))
            else {
                continue;
            };
            for join in proposed.joins {
                match all.joins.iter_mut().find(|known| known.process.id == join.process.id) {
                    Some(known) => known.votes &= join.votes,
                    None => all.joins.push(join),
                }
            }
            let of_lower_ranks = all.changes.len();
            for change in proposed.changes {
                let is_contradicted = all.changes[..of_lower_ranks].iter().any(|other| other.contradicts(&change));
                if !is_contradicted && !all.changes.contains(&change) {
                    all.changes.push(change);
                }
            }
        }
        all
    }
}
