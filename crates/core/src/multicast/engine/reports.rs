//! The reports to the membership: what the owner of an engine knows of other members, and the
//! changes that it wants. All take effect in the next polls.
use super::Engine;
use crate::ids::{MemberId, Process, Rank, SubgroupId, Time, ViewId};
use crate::membership::{Ballot, Decision, Liveness, Unrecoverable};
use crate::mutation::mutation;
use crate::table::Rows;
use crate::view::{Change, View};
use crate::wire::layout::membership;
use alloc::vec::Vec;
use core::hash::Hash;

/// How sure it is that a member is lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Certainty {
    /// Dead, with a final row.
    Dead,
    /// Dead, with a row that is not here as a whole.
    Gone,
    /// To be left out of the next view.
    Evicted,
    Suspected,
    /// Heard of again.
    Trusted,
    /// It has said itself that it lives.
    Heard,
}

impl Engine {
    /// Watches the others' silence: a member that shows no sign of life for so many ns is
    /// suspected, and the group continues without it if enough others do. By default silence means
    /// nothing. Pauses of up to nine tenths of it are safe.
    pub fn set_suspect_after(&mut self, ns: Option<u64>) {
        self.membership.set_suspect_after(ns);
    }

    /// Says when members show that they live. By default they do so at all times.
    pub fn set_liveness(&mut self, liveness: Liveness) {
        self.membership.set_liveness(liveness);
    }

    /// Says whether this member waits for the [leader](Self::leader) to end the view, for a process
    /// that wants to join.
    pub fn await_leader(&mut self, awaits: bool) {
        self.awaits_leader = awaits;
    }

    /// Says that this member waits for all others until `until`, for a process that needs the
    /// memory of each.
    pub fn await_all(&mut self, until: Time) {
        self.awaits_all = until;
    }

    /// Tells the engine that `member` is proven dead and that its row is final here: nothing in it
    /// moves any more. Means nothing if it had left.
    pub fn member_died(&mut self, member: Rank) {
        self.report(member, Certainty::Dead);
    }

    /// Tells the engine that `member` is proven dead, and that its row is not here as a whole: it
    /// may have written more.
    pub fn member_gone(&mut self, member: Rank) {
        self.report(member, if mutation!(UnfinalRowsCount) { Certainty::Dead } else { Certainty::Gone });
    }

    /// Tells the engine that `member` seems to be lost: its connection broke, or it is dying. The
    /// suspicion is taken back when the member is heard again.
    pub fn suspect(&mut self, member: Rank) {
        self.report(member, Certainty::Suspected);
    }

    /// Tells the engine that `member` is there after all, as far as is known beside its heartbeats.
    pub fn trust(&mut self, member: Rank) {
        self.report(member, Certainty::Trusted);
    }

    /// Tells the engine that `member` has said that it lives, otherwise than in its row.
    pub fn heard(&mut self, member: Rank) {
        self.report(member, Certainty::Heard);
    }

    /// Asks for a next view without `member`, which may be alive. It is left out before any other
    /// member, unless no other would stay.
    pub fn evict(&mut self, member: Rank) {
        self.report(member, Certainty::Evicted);
    }

    /// Gives up the members `lost`, by the word of an operator that they are lost for good: the
    /// others, which are too few to end the view without them, do so if all of them are there and
    /// none of them hears any of `lost`. `rows` are those of the view.
    ///
    /// # Errors
    /// The reason, if they are not given up.
    pub fn recover<R: Rows>(&mut self, lost: &[Rank], rows: &R) -> Result<(), Unrecoverable> {
        self.last_worked = false;
        self.membership.give_up(lost, &self.view, rows)
    }

    /// Whether `member` is given up.
    pub fn is_given_up(&self, member: Rank) -> bool {
        self.membership.is_given_up(member)
    }

    fn report(&mut self, member: Rank, certainty: Certainty) {
        self.reported.push((member, certainty));
        // The next poll looks everywhere.
        self.last_worked = false;
    }

    /// Asks for a next view in which `joiner` is a member, and a voter. False if it is one, or was
    /// asked for before, or too many were, or the view is full.
    pub fn admit(&mut self, joiner: Process) -> bool {
        self.last_worked = false;
        self.membership.admit(&self.view, joiner, true)
    }

    /// As [`admit`](Self::admit), for a joiner whose death no member could prove: it becomes a
    /// voter by a later view, once it has begun one. So a joiner that never begins blocks no group.
    pub fn admit_nonvoter(&mut self, joiner: Process) -> bool {
        self.last_worked = false;
        self.membership.admit(&self.view, joiner, false)
    }

    /// Takes an admission back that was asked for: the joiner has ended, or does not wait any more.
    /// The next view may have it nevertheless, and later ones are not asked for it.
    pub fn withdraw(&mut self, joiner: MemberId) {
        self.membership.withdraw(joiner);
    }

    /// Asks for a next view with a `change` of its subgroups.
    ///
    /// Returns false if the change makes no sense in this view, or is the case already, or if too
    /// many changes are asked for. If changes of two members contradict each other, the change of
    /// the lower rank counts.
    pub fn propose_change(&mut self, change: Change) -> bool {
        self.last_worked = false;
        self.membership.propose_change(&self.view, change)
    }

    /// Asks for a next view without this member. Messages that it has sent by then are delivered
    /// or, if other members have not received them, lost.
    pub fn leave(&mut self) {
        self.membership.leave();
        self.last_worked = false;
    }

    /// Shows the others that I live, while I can't be polled because their rows are not here yet.
    /// `store` writes a word of my row.
    pub fn show_life(&mut self, store: impl FnOnce(u64, u64)) {
        store(membership::HEARTBEAT, self.membership.next_heartbeat());
    }

    /// Returns the member that would lead a change of the view now: the lowest rank that I don't
    /// suspect.
    pub fn leader(&self) -> Rank {
        self.membership.leader()
    }

    /// Whether I suspect `member`.
    pub fn suspects(&self, member: Rank) -> bool {
        self.membership.suspects(member)
    }

    /// Whether this view is coming to its end: the agreement is under way, and subgroups that it
    /// may touch are wedged.
    pub fn is_changing(&self) -> bool {
        self.membership.is_changing()
    }

    /// Whether this view can't end, because the members that I don't suspect are no quorum of it,
    /// or for longer than an agreement takes: I may be on the smaller side of a partition. It
    /// continues when enough of the others are heard again, or are proven dead.
    pub fn is_blocked(&self) -> bool {
        self.membership.is_blocked()
    }

    /// Tells the engine the decision that ends this view, in the words that
    /// [`decided`](Self::decided) yields at another member. Words that make no sense in this view
    /// mean nothing.
    pub fn learn(&mut self, words: Vec<u64>) {
        self.last_worked = false;
        self.membership.tell(words);
    }

    /// The words of the decision that ends this view, for members to which it has not come.
    pub fn decided(&self) -> Option<&[u64]> {
        self.membership.decided()
    }

    /// Takes the view after this one that I have accepted, if my vote for it counts once it is on my
    /// disk: a subgroup of this view is logged. Then the driver has to call
    /// [`note_persisted_acceptance`](Self::note_persisted_acceptance) with the ballot.
    pub fn take_acceptance(&mut self) -> Option<(Ballot, View)> {
        self.membership.take_acceptance()
    }

    /// Notes that my [acceptance](Self::take_acceptance) of a ballot is on my disk. The next poll shows
    /// that to the others.
    pub fn note_persisted_acceptance(&mut self, ballot: Ballot) {
        self.last_worked = false;
        self.membership.note_persisted(ballot);
    }

    /// Sets the logged subgroups in which my log lacks records of older epochs that may come. To be called
    /// before the first poll of a view, and when that changes.
    pub fn set_lacking(&mut self, lacking: impl Iterator<Item = SubgroupId>) {
        self.last_worked &= !self.membership.set_lacking(lacking);
    }

    /// The subgroup whose log no member that would go on has complete, and its members that have ended: see
    /// [`Incomplete`](crate::State::Incomplete).
    pub fn incomplete(&self) -> Option<(SubgroupId, &[Rank])> {
        self.membership.incomplete().map(|(id, ended)| (*id, &ended[..]))
    }

    /// The highest ballot that I have promised.
    pub fn ballot(&self) -> Option<Ballot> {
        self.membership.ballot()
    }

    /// The view that the others go on to without me: see [`Evicted`](crate::State::Evicted). It
    /// begins an [era](ViewId::era) if I was given up.
    pub fn left_out_of(&self) -> Option<ViewId> {
        self.membership.left_out_of()
    }

    /// How the view ends, once that is decided. See [`Ended`](crate::State::Ended).
    pub fn decision(&self) -> Option<&Decision> {
        self.membership.decision()
    }
}
