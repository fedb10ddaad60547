//! A recovery: the remaining members of a view continue after an operator has said that the others
//! are lost for good, although they are no quorum.
//!
//! A member that gives members up writes so in its row, and takes no notice of their rows from then
//! on, as long as the view lasts. The agreement needs *all* other voters then, each of which must
//! have given up the same members before it promised, or accepted: so of what any of them has
//! accepted before, nothing is passed over, and whatever the lost decide among themselves, if they
//! live, no other member learns in this view. The value's next view begins an era
//! ([`ViewId::era`](crate::ViewId::era)), so it is newer than all views of the lost.
use super::agreement::Membership;
use super::ranks::{Ranks, bit};
use crate::ids::{MemberId, Rank, recovery_tag};
use crate::membership::proposal::ProposalValue;
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::View;
use crate::wire::layout::membership;

/// Why members are not given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unrecoverable {
    /// The order names no member.
    #[error("no member is named; name those that are lost")]
    NoMember,
    /// The view is about to end, or has.
    #[error("the view is changing; try again")]
    Changing,
    /// A process that is named is no member of the view.
    #[error("process {0} is no member of the view; name members only")]
    Stranger(MemberId),
    /// The member that is asked is named itself.
    #[error("member {0} was asked, and is named itself; ask a member that is to go on")]
    Myself(MemberId),
    /// A process that is named runs on the host of the asked member, by the word of its kernel.
    #[error("member {0} is named, and its process runs on this host; end it first, with SIGKILL if it hangs")]
    Here(MemberId),
    /// A member that is named lives: the asked one hears it.
    #[error("member {0} is named, and is heard; only members that are lost for good can be given up")]
    Heard(MemberId),
    /// A member that is named lives: another one hears it.
    #[error(
        "member {lost} is named, and member {by} hears it, or has not noticed its silence yet; try again, or end its process"
    )]
    HeardBy {
        /// The member that is named.
        lost: MemberId,
        /// The one that hears it.
        by: MemberId,
    },
    /// A member that is not named is not heard either.
    #[error("member {0} is not named, and not heard; wait until it is back, or name it, too, if it is lost for good")]
    Missing(MemberId),
    /// Enough members are left without giving any up.
    #[error("the members that are left are enough to go on; nothing has to be given up")]
    Quorum,
    /// All that are left joined last, and vote in no agreement yet.
    #[error("none of the members that are left votes yet; create the group again")]
    NoVoter,
}

impl Unrecoverable {
    /// Whether the reason passes by itself, so that the order may be given again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Unrecoverable::Changing | Unrecoverable::HeardBy { .. })
    }
}

impl Membership {
    /// Gives up `lost`, beside those that are given up already: from now on the agreement is one of
    /// all other voters. It is written down by the next poll.
    pub(crate) fn give_up<R: Rows>(&mut self, lost: &[Rank], view: &View, rows: &R) -> Result<(), Unrecoverable> {
        self.stirred = true;
        let mut all = self.given_up.clone();
        lost.iter().for_each(|rank| _ = all.add(*rank));
        match lost.is_empty() {
            true => Err(Unrecoverable::NoMember),
            // The order was given before.
            false if all == self.given_up => Ok(()),
            false => self.begin_recovery(all, view, rows),
        }
    }

    /// Whether members are given up.
    pub(crate) fn is_recovery(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Whether `rank` is given up.
    pub(crate) fn is_given_up(&self, rank: Rank) -> bool {
        self.given_up.has(rank)
    }

    /// Whether the agreement takes no notice of the row of `rank`.
    pub(super) fn says_nothing(&self, rank: Rank) -> bool {
        self.garbled.has(rank) || (self.given_up.has(rank) && !mutation!(GivenUpHeard))
    }

    /// The members that the row of `rank` gives up.
    fn given_up_by<R: Rows>(&self, rank: Rank, rows: &R) -> Ranks {
        let members = self.everyone.len();
        Ranks::read(members, rank, membership::given_up(members), rows)
    }

    /// The members whose rows give up all that this member does. Read before what they have
    /// promised and accepted.
    pub(super) fn agreeing<R: Rows>(&self, rows: &R) -> Ranks {
        let mut agreeing = Ranks::none(self.everyone.len());
        for rank in self.everyone.iter().copied() {
            let is_one = rank == self.me
                || !self.is_recovery()
                || mutation!(OneGivesUp)
                || self.given_up_by(rank, rows).contains(&self.given_up);
            if is_one {
                agreeing.add(rank);
            }
        }
        agreeing
    }

    /// Follows others that have given members up, and writes down whom this member has. Whether
    /// anything is new.
    pub(super) fn see_given_up<T: Table>(&mut self, view: &View, table: &mut T) -> bool {
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            if self.opinions.suspects(peer) || self.says_nothing(peer) {
                continue;
            }
            let lost = self.given_up_by(peer, table);
            let is_news = !self.given_up.contains(&lost) && lost.contains(&self.given_up);
            if is_news && !lost.has(peer) {
                // It says the same at each poll, until the reason is gone.
                let _ = self.begin_recovery(lost, view, table);
            }
        }
        if !core::mem::take(&mut self.untold) {
            return false;
        }
        let given_up = self.given_up.clone();
        self.write(membership::given_up(self.everyone.len()), given_up.words(), table);
        self.wake(None, table);
        true
    }

    fn begin_recovery<R: Rows>(&mut self, lost: Ranks, view: &View, rows: &R) -> Result<(), Unrecoverable> {
        self.check_recovery(&lost, view, rows)?;
        let new: alloc::vec::Vec<Rank> = self.peers.iter().copied().filter(|rank| lost.has(*rank)).collect();
        for rank in new {
            self.opinions.bar(rank);
        }
        self.teller.gives_up(self.peers.iter().copied().filter(|rank| lost.has(*rank)));
        (self.given_up, self.untold) = (lost, true);
        // My proposals so far begin no era.
        self.turns.mine = None;
        Ok(())
    }

    /// Whether `lost` may be given up: none of them is heard by any member that is left, and these
    /// are all there, or proven dead.
    fn check_recovery<R: Rows>(&self, lost: &Ranks, view: &View, rows: &R) -> Result<(), Unrecoverable> {
        let id = |rank: Rank| view.members[rank.index()];
        if lost.has(self.me) {
            return Err(Unrecoverable::Myself(id(self.me)));
        }
        if self.decision.is_some() || self.is_evicted() {
            return Err(Unrecoverable::Changing);
        }
        let is_heard = |rank: &Rank| !self.opinions.is_silent(*rank) && !self.opinions.is_barred(*rank);
        if let Some(rank) = self.everyone.iter().copied().filter(|rank| lost.has(*rank)).find(is_heard) {
            return Err(Unrecoverable::Heard(id(rank)));
        }
        let mut is_led = false;
        for rank in self.everyone.iter().copied().filter(|rank| !lost.has(*rank)) {
            let votes = self.voters.has(rank);
            is_led |= votes && !self.opinions.is_dead(rank);
            if rank == self.me || self.opinions.is_dead(rank) || (self.opinions.is_barred(rank) && !votes) {
                continue;
            }
            if self.opinions.suspects(rank) {
                return Err(Unrecoverable::Missing(id(rank)));
            }
            let hears = |lost: &Rank| !bit(rows, rank, membership::SUSPECTED, *lost);
            if let Some(heard) = self.everyone.iter().copied().filter(|rank| lost.has(*rank)).find(hears) {
                return Err(Unrecoverable::HeardBy { lost: id(heard), by: id(rank) });
            }
        }
        // Without a vote it can't end the view itself, though it may know of deaths that the voters
        // can't know of.
        match (self.hears_quorum() && self.is_voter(), is_led, self.changing) {
            (true, ..) => Err(Unrecoverable::Quorum),
            (_, false, _) => Err(Unrecoverable::NoVoter),
            (.., false) => Err(Unrecoverable::Changing),
            _ => Ok(()),
        }
    }

    /// Tells those that go on from the members of other recoveries of this view.
    pub(super) fn tag(&self, view: &View) -> u16 {
        let left =
            self.everyone.iter().filter(|rank| !self.given_up.has(**rank)).map(|rank| view.members[rank.index()]);
        recovery_tag(left)
    }

    /// Returns whether a value that all the others have accepted is a decision.
    ///
    /// A value that they accepted before they gave members up has to be proposed again, with a view
    /// that begins an era.
    pub(super) fn may_be_counted(&self, value: &ProposalValue, view: &View) -> bool {
        !self.is_recovery() || value.next.id.era() > view.id.era()
    }

    /// Whether the row of `peer` may say what is decided, by this `value`. In a recovery a value of
    /// the era before is a decision if a member that is left has taken it before it gave others up:
    /// without that member, which will not, the recovery comes to nothing. All other rows may have
    /// it from those that are given up.
    pub(super) fn may_say(&self, peer: Rank, value: &ProposalValue, view: &View, agreeing: &Ranks) -> bool {
        let has_ended = !agreeing.has(peer) && !self.is_passed_over(peer);
        !self.is_recovery() || value.next.id.era() > view.id.era() || has_ended || mutation!(GivenUpHeard)
    }

    /// Whether a recovery needs nothing of the row of `rank`: it is no voter, and has ended.
    pub(super) fn is_passed_over(&self, rank: Rank) -> bool {
        self.opinions.is_barred(rank) && !self.voters.has(rank)
    }

    /// Returns whether all members that are left, and have not ended, have given up the same
    /// members. Nonvoters count for nothing else.
    pub(super) fn is_unanimous(&self, agreeing: &Ranks) -> bool {
        let is_one = |rank: &Rank| {
            let needs_nothing = self.given_up.has(*rank) || self.voters.has(*rank) || self.is_passed_over(*rank);
            needs_nothing || agreeing.has(*rank)
        };
        !self.is_recovery() || self.everyone.iter().all(is_one)
    }

    /// Returns the weight of a decision that this member receives outside of the rows.
    ///
    /// If this member has given others up, these members may still live. They, or members of their
    /// views, may send a decision that they have made without this member.
    pub(super) fn weigh_told(&self, value: &ProposalValue, view: &View) -> Consequence {
        let is_mine = value.next.rank_of(view.members[self.me.index()]).is_some();
        match self.is_recovery() && !mutation!(GivenUpHeard) {
            false => Consequence::Decided,
            true if value.next.id == view.id.recovered(self.tag(view)) => Consequence::Decided,
            true if is_mine => Consequence::Nothing,
            true => Consequence::LeftOut,
        }
    }
}

/// The weight of a decision that was told outside of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Consequence {
    /// It ends the view.
    Decided,
    /// It ends this member, which tells no other of it.
    LeftOut,
    /// Nothing follows.
    Nothing,
}
