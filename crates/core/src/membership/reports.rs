//! The reports to the membership: what is known of other members, and the changes that this member
//! wants. All take effect in later steps.
use super::agreement::Membership;
use super::opinions::Liveness;
use super::proposal::{Join, ProposedChanges};
use crate::fault::Fault;
use crate::ids::{MemberId, Process, Rank};
use crate::limits;
use crate::view::{Change, View};
use alloc::vec::Vec;

impl Membership {
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
    pub(super) fn blame(&mut self, member: Rank) -> bool {
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

    pub(crate) fn suspects(&self, member: Rank) -> bool {
        self.opinions.suspects(member)
    }
}
