//! The part of a leader: when a member leads, its ballots, and the decision.
use super::agreement::{AgreementPoll, Membership};
use super::ballot::Ballot;
use super::choice::Waits;
use super::decision::Decision;
use super::proposal;
use super::proposal::ProposalValue;
use super::slots::{read_value, slot_range};
use super::telling::Reason;
use crate::ids::{Rank, SubgroupId, Time};
use crate::multicast::cursor::sequence_end;
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::{Order, View};
use crate::wire::layout::{Layout, membership};
use alloc::vec::Vec;

/// The first pause of a leader whose ballot was superseded: the suspicion time divided by this. The
/// pause doubles with each failed ballot.
const BACK_OFF: u64 = 16;

/// The maximum number of doublings. So a view in which no ballot can succeed has few ballots.
const BACK_OFF_MAX: u32 = 20;

impl Membership {
    /// Leads, if it is this member's turn: takes a ballot, and chooses a value once enough voters
    /// have promised it.
    pub(super) fn lead<T: Table>(&mut self, poll: &AgreementPoll<'_>, table: &mut T) -> (bool, Option<Time>) {
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
                self.adopt(ballot, &words, poll, table);
                (true, None)
            }
            Err(Waits::Until(Time(u64::MAX)) | Waits::ForOthers) => (took, None),
            Err(Waits::Until(at)) => (took, Some(at)),
            Err(Waits::Touches(more)) => {
                self.touch.propose(&more);
                self.touches_more = true;
                (true, Some(now))
            }
            Err(Waits::ForLogs(id)) => {
                self.teller.awaits_logs(&poll.view.subgroups[id.index()].name);
                (took, None)
            }
            Err(Waits::Incomplete(id, ended)) => {
                self.incomplete = Some((id, ended));
                (true, None)
            }
            Err(Waits::Faulty(rank)) => (self.blame(rank) | took, Some(now)),
        }
    }

    /// Notes since when each member has not promised the requested ballot, whichever leader
    /// requests it.
    fn note_who_is_behind(&mut self, poll: &AgreementPoll<'_>) {
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
    pub(super) fn count<T: Table>(&mut self, poll: &AgreementPoll<'_>, table: &mut T) -> bool {
        let of = |rank: &Rank| self.acceptor(*rank, poll);
        let vote = |rank: &Rank| match self.persists && !mutation!(AcceptedUnwritten) {
            true => of(rank).persisted,
            false => of(rank).accepted,
        };
        let mut ballots: Vec<Ballot> = self.counted().iter().filter_map(|rank| vote(&rank)).collect();
        ballots.sort_unstable();
        ballots.dedup();
        for ballot in ballots.into_iter().rev() {
            let shows = |rank: &Rank| vote(rank) == Some(ballot) && poll.agreeing.has(*rank);
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
    /// implied promise. In a view with logged subgroups it counts once it is on the disk.
    pub(super) fn adopt<T: Table>(&mut self, ballot: Ballot, words: &[u64], poll: &AgreementPoll<'_>, table: &mut T) {
        let layout = poll.layout;
        if self.persists {
            self.unwritten = proposal::decode(words, poll.view).map(|value| (ballot, value.next));
        }
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
    pub(super) fn decide<T: Table>(
        &mut self,
        ballot: Ballot,
        (words, ProposalValue { next, joined, trims }): (Vec<u64>, ProposalValue),
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
}
