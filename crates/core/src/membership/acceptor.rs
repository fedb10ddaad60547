//! The part of an acceptor: promises, accepted values, and the decision that follows from them.
//! INV-PROMISE and INV-CUT are kept here.
use super::agreement::{AgreementPoll, Membership, ROUNDS_AHEAD_MAX};
use super::ballot::{Acceptor, Ballot};
use super::proposal;
use super::proposal::ProposalValue;
use super::ranks::Ranks;
use super::recovery::Consequence;
use super::slots::{read, read_value};
use crate::ids::{Rank, SubgroupId};
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::View;
use crate::wire::layout::{Layout, membership};
use alloc::vec::Vec;

/// The bit of a subgroup in [`COMPLETE`](membership::COMPLETE).
pub(super) fn complete_bit(id: SubgroupId) -> u64 {
    1 << id.0.min(63)
}

impl Membership {
    /// INV-QUORUM: True if `with` voters are more than the ones that may know of another value.
    /// Dead voters whose rows are final know only what these rows contain. In a recovery, all
    /// voters that are not given up are needed.
    pub(super) fn is_quorum(&self, with: usize, dead: usize) -> bool {
        let voters = self.counted().len();
        let is_enough = match self.is_recovery() && !mutation!(GivenUpQuorum) {
            true => with + dead >= voters,
            false => 2 * with + dead > voters,
        };
        is_enough || mutation!(NoQuorum)
    }

    /// Returns the voters that are not given up.
    pub(super) fn counted(&self) -> Ranks {
        self.voters.clone().without(&self.given_up)
    }

    /// Returns the voters that are proven dead, with final rows.
    pub(super) fn dead_voters(&self) -> Ranks {
        self.counted().within(self.opinions.dead())
    }

    /// Reads the others' rows as acceptors, by rank.
    pub(super) fn read_acceptors<R: Rows>(&self, rows: &R, acceptors: &mut Vec<Acceptor>) {
        let is_credible =
            |ballot: &Ballot| ballot.round <= self.promised.map_or(0, |mine| mine.round) + ROUNDS_AHEAD_MAX;
        let read = |rank: &Rank| {
            if *rank == self.me {
                return Acceptor::default();
            }
            let Acceptor { promised, accepted, persisted } = Acceptor::read(*rank, self.everyone.len(), rows);
            let [promised, accepted, persisted] = [promised, accepted, persisted].map(|it| it.filter(is_credible));
            Acceptor { promised, accepted, persisted }
        };
        acceptors.extend(self.everyone.iter().map(read));
    }

    /// Returns the row of `rank` as an acceptor. The row of a member that has written what no
    /// correct member writes is ignored.
    pub(super) fn acceptor(&self, rank: Rank, poll: &AgreementPoll<'_>) -> Acceptor {
        match rank {
            _ if rank == self.me => {
                let Membership { promised, accepted, persisted, .. } = *self;
                Acceptor { promised, accepted, persisted }
            }
            _ if self.says_nothing(rank) => Acceptor::default(),
            _ => poll.acceptors[rank.index()],
        }
    }

    /// Looks for the decision in the rows and in messages. A decision is valid whichever member
    /// reports it.
    pub(super) fn learn<T: Table>(&mut self, view: &View, layout: &Layout, agreeing: &Ranks, table: &mut T) -> bool {
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
    pub(super) fn accept<T: Table>(&mut self, poll: &AgreementPoll<'_>, table: &mut T) -> bool {
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
        self.adopt(ballot, &words, poll, table);
        true
    }

    /// True if votes, and the end notices of members, count once they are on disk: a subgroup is logged.
    pub(crate) fn persists(&self) -> bool {
        self.persists
    }

    /// Takes the view that this member has accepted and has yet to write to its disk, once. Afterwards
    /// the driver calls [`note_persisted`](Self::note_persisted).
    pub(crate) fn take_acceptance(&mut self) -> Option<(Ballot, View)> {
        self.unwritten.take()
    }

    /// Notes that the acceptance of a ballot is on this member's disk.
    pub(crate) fn note_persisted(&mut self, ballot: Ballot) {
        self.stirred = true;
        // A ballot that this member has not accepted is of another view.
        self.on_disk = self.on_disk.max(Some(ballot).filter(|_| Some(ballot) <= self.accepted));
    }

    /// Acts as an acceptor whose votes count once they are on its disk: shows the newest one.
    pub(super) fn vote<T: Table>(&mut self, table: &mut T) -> bool {
        let Some(ballot) = self.on_disk.filter(|_| self.on_disk > self.persisted) else { return false };
        self.persisted = self.on_disk;
        self.write(membership::PERSISTED, &[ballot.encode(0)], table);
        self.wake(Some(ballot.leader), table);
        true
    }

    /// Sets the subgroups of the view in whose logs this member lacks records of older epochs.
    /// Returns whether these are others than before.
    pub(crate) fn set_lacking(&mut self, lacking: impl Iterator<Item = SubgroupId>) -> bool {
        let complete = lacking.fold(u64::MAX, |bits, id| bits & !complete_bit(id));
        let is_new = complete != self.complete;
        self.stirred |= is_new;
        self.complete = complete;
        is_new
    }

    /// Shows in which logs this member lacks nothing, before it promises a ballot.
    pub(super) fn show_complete<T: Table>(&mut self, table: &mut T) -> bool {
        if !self.persists || self.complete == self.shown_complete {
            return false;
        }
        self.shown_complete = self.complete;
        self.write(membership::COMPLETE, &[self.complete], table);
        self.wake(self.promised.map(|ballot| ballot.leader), table);
        true
    }

    /// The subgroup whose log no member that would continue has complete, and its members that have ended, if this
    /// member has found one.
    pub(crate) fn incomplete(&self) -> Option<&(SubgroupId, Vec<Rank>)> {
        self.incomplete.as_ref()
    }

    /// Acts as an acceptor: promises the highest ballot in any row.
    pub(super) fn promise<T: Table>(&mut self, poll: &AgreementPoll<'_>, table: &mut T) -> bool {
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
    fn read_touched<R: Rows>(&self, ballot: Ballot, poll: &AgreementPoll<'_>, rows: &R) -> Option<Vec<bool>> {
        let words = read(ballot.leader, &poll.layout.row(ballot.leader).touched, rows);
        proposal::decode_touched(&words, ballot.encode(0), poll.view.subgroups.len())
    }

    /// Requests to wedge the subgroups that `value` touches. True if this member has yet to wedge
    /// some of them.
    pub(super) fn has_to_wedge(&mut self, value: &ProposalValue, view: &View) -> bool {
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
}
