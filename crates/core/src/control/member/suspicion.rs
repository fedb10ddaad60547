//! The reasons to suspect members, to evict them, or to believe that they live.
//!
//! A member is suspected if its process has ended, if its connections have and it gives no sign of
//! life, or if it was given up or its eviction was requested.
use super::{Heard, Member};
use crate::control::{ASK_EVERY, INSTALL_LOOK, Remedy, Roster};
use crate::ids::{MemberId, Process, Rank, Time};
use crate::membership::Unrecoverable;
use crate::mutation::mutation;
use crate::table::Rows;
use crate::view::View;
use crate::wire::layout::membership;
use alloc::vec::Vec;
use core::time::Duration;
use tracing::debug;

/// The time within which a member whose connections have all ended must give a sign of life, if
/// silence is not suspected.
const CUT_MAX: Duration = Duration::from_secs(2);

/// The interval at which a recovered group looks for members that it gave up.
const MEET_EVERY: Duration = Duration::from_secs(5);

impl Member {
    /// The group has to go on without `id`: from this view on, or from the next if it ends already
    /// or this one has.
    pub(super) fn evict(&mut self, id: MemberId, me: MemberId) {
        let rank = self.rank_of(id);
        if id == me || (rank.is_none() && !self.is_in_next(id)) {
            return;
        }
        self.evicting.insert(id);
        if let Some(rank) = rank {
            self.engine.evict(rank);
        }
    }

    /// Gives up the members `lost`, by the word of an operator that they are lost for good, so that
    /// the others go on though they are no quorum.
    ///
    /// # Errors
    /// The reason, if they are not given up.
    pub fn recover<W>(&mut self, lost: &[MemberId], roster: &Roster<W>, rows: &impl Rows) -> Result<(), Unrecoverable> {
        if self.next.is_some() {
            return Err(Unrecoverable::Changing);
        }
        if let Some(id) = lost.iter().find(|id| **id != roster.me() && roster.runs_here(**id)) {
            return Err(Unrecoverable::Here(*id));
        }
        let rank = |id: &MemberId| self.rank_of(*id).ok_or(Unrecoverable::Stranger(*id));
        let ranks = lost.iter().map(rank).collect::<Result<Vec<_>, _>>()?;
        self.engine.recover(&ranks, rows)
    }

    /// Takes in a newer view of this group that another member tells of. A decided view without
    /// this member ends it; a view that follows this member's comes with the decision that ends
    /// that.
    pub(super) fn hear_of<W>(
        &mut self,
        incarnation: u128,
        view: &View,
        decision: Vec<u64>,
        roster: &mut Roster<W>,
    ) -> Option<Heard> {
        if incarnation != roster.incarnation() || view.id <= self.newest().id || self.has_left(roster.me()) {
            return None;
        }
        let is_open = self.next.is_none() && self.engine.decision().is_none();
        if is_open && view.id.follows(self.view.id) && !decision.is_empty() {
            self.engine.learn(decision);
        } else if view.rank_of(roster.me()).is_none() {
            if view.id.era() > self.newest().id.era() && !mutation!(GivenUpUntold) {
                // The others of this view were given up with this member, and may be where no
                // member of that one tells them so.
                let others = self.newest().members.iter().copied().filter(|id| *id != roster.me());
                roster.tell_view(view, others.collect::<Vec<_>>());
            }
            return Some(Heard::Evicted { next: view.id });
        }
        None
    }

    /// Whether the others go on without this member, as it asked, and only the
    /// [rest](Self::has_rest) keeps it.
    pub(super) fn has_left(&self, me: MemberId) -> bool {
        let next = self.engine.decision().filter(|_| self.engine.left_out_of().is_none());
        next.is_some_and(|decision| decision.next.rank_of(me).is_none())
    }

    /// A process begins no view any more. It has written nothing in this one if it has not begun
    /// it: its row is zeros, whether there is a stream to it or not.
    pub(super) fn has_stopped<W>(&mut self, process: Process, roster: &Roster<W>) {
        let Process { id, .. } = process;
        if self.joins.has_asked(process) {
            self.forget_joiner(id);
        }
        if let Some(rank) = self.rank_of(id).filter(|_| roster.never_begins(self.view.id, id)) {
            self.engine.member_died(rank);
        }
    }

    /// `id` writes nothing any more.
    pub(super) fn died<W>(&mut self, id: MemberId, roster: &Roster<W>) {
        let Some(rank) = self.rank_of(id) else { return };
        if self.next.is_none() {
            // The view ends anyway.
            for process in self.joins.all() {
                self.admit(process, roster);
            }
        }
        if self.absent.contains(&id) && !self.never_began(id, roster) {
            self.engine.member_gone(rank);
        } else {
            self.engine.member_died(rank);
        }
    }

    /// Whether `id`, a member of this host that is dead and whose row has not come, has written
    /// nothing in this view. A member begins a view when its row is on its way to all of its host,
    /// or says in its row of the view before that it does not wait for that; a newcomer always
    /// waits.
    fn never_began<W>(&self, id: MemberId, roster: &Roster<W>) -> bool {
        let before = self.before.as_ref().and_then(|(view, words)| Some((view.rank_of(id)?, words)));
        match before {
            _ if roster.never_begins(self.view.id, id) => true,
            Some((rank, words)) => words(rank, membership::UNSENT) == 0,
            None => roster.is_new(self.view.id, id),
        }
    }

    /// Lets in the processes for which it is time, dials streams again for which it is, and
    /// suspects members whose connections tell of their end. To be called whenever something has
    /// happened, and after [`patience`](Self::patience).
    pub fn step<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        for (view, id, failure) in roster.take_failures() {
            if self.redials.failed(view, id, failure, now)
                && view == self.view.id
                && let Some(rank) = self.rank_of(id)
            {
                self.engine.suspect(rank);
            }
        }
        if self.seeks && now.since(self.sought) >= ASK_EVERY {
            self.seek_absent(roster, now);
        }
        if self.is_recovered() && now.since(self.asked) >= MEET_EVERY {
            self.asked = now;
            roster.ask_view_afar(now);
        }
        for (view, id) in self.redials.due(now) {
            debug!(target: "spindle::net", me = roster.me().0, view = view.0, member = id.0, "stream is dialled again");
            roster.redial(view, id);
        }
        let lets_in = self.lets_in();
        self.engine.await_leader(self.joins.is_pending() && !lets_in);
        if lets_in {
            let expected = self.joins.expected(now);
            // None waits for the dead.
            roster.probe(expected);
            for process in self.joins.due(now) {
                self.admit(process, roster);
            }
        }
    }

    /// Looks for members whose rows are not here, and that may be on other hosts for all that is
    /// known. Streams to those that are found are dialled.
    fn seek_absent<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        let is_sought = |id: &MemberId| roster.may_be_elsewhere(*id) && !roster.is_dead(*id);
        let sought: Vec<MemberId> = self.absent.iter().copied().filter(is_sought).collect();
        (self.seeks, self.sought) = (!sought.is_empty(), now);
        if self.seeks {
            roster.seek(&sought, now);
        }
        self.begin_redials(roster, now);
    }

    /// How long until [`step`](Self::step) or [`newly_ended`](Self::newly_ended) has something to
    /// do, if nothing happens.
    pub fn patience<W>(&self, roster: &Roster<W>, now: Time) -> Option<Duration> {
        let joins = self.joins.patience(now).filter(|_| self.lets_in());
        let seeks = self.seeks.then(|| (self.sought + ASK_EVERY).since(now));
        let meets = self.is_recovered().then(|| (self.asked + MEET_EVERY).since(now));
        self.redials.patience(now).into_iter().chain(joins).chain(seeks).chain(meets).chain(roster.patience(now)).min()
    }

    /// Whether members were given up that may live, and have nothing of this group's views. The
    /// member that leads looks for them where the seeds are.
    fn is_recovered(&self) -> bool {
        self.view.id.era() > 0 && self.engine.leader() == self.engine.me()
    }

    /// Whether something waits for its time.
    pub fn is_pending<W>(&self, roster: &Roster<W>) -> bool {
        self.redials.is_pausing() || roster.doubts() || (self.joins.is_pending() && self.lets_in())
    }

    /// The members whose connections tell that their processes have ended, once in each view. The
    /// driver takes in what they have posted last, if it is here, and says that they are to be
    /// [suspected](Self::suspect).
    pub fn newly_ended<W>(&mut self, roster: &mut Roster<W>, now: Time) -> Vec<Rank> {
        // This view has ended, and suspects no member any more. The next one has yet to begin.
        if self.next.is_some() {
            return Vec::new();
        }
        // A process that ends closes the connection that tells so before all others, and refuses
        // new ones when it has closed these. If the others break at the same time the network may
        // have reset them all.
        let patience = self.terms.suspect_after.map_or(CUT_MAX, |after| after / 2);
        roster.settle_doubts(|id| self.down.contains(&id), patience, now);
        let ended = roster.ended();
        // One that was taken back may be true the next time.
        self.told_ended.retain(|id| ended.contains(id));
        let ended = ended.into_iter().filter_map(|id| Some((id, self.view.rank_of(id)?)));
        ended.filter(|(id, _)| self.told_ended.insert(*id)).map(|(_, rank)| rank).collect()
    }

    /// There is a reason to believe that a member is gone.
    pub fn suspect(&mut self, rank: Rank) {
        if !self.engine.suspects(rank) {
            self.engine.suspect(rank);
        }
    }

    /// Does what a loss to a group of large messages takes: see
    /// [`ObjectGroups::overdue`](crate::control::ObjectGroups::overdue).
    pub fn remedy(&mut self, remedy: Remedy) {
        match remedy {
            Remedy::Renew(rank) if self.is_connected(rank) => self.engine.renew(),
            // Views that are renewed again and again would leave no time to suspect it by its
            // silence.
            Remedy::Renew(rank) | Remedy::Suspect(rank) => self.suspect(rank),
        }
    }

    /// After each poll of the engine: if the group can't go on, finds out whether the missing
    /// members are dead, and whether others go on without this one.
    pub fn after_poll<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        if !self.engine.is_blocked() {
            return;
        }
        if now.since(self.looked) >= INSTALL_LOOK {
            self.looked = now;
            // Its memory may never have come here; then its process may not be known yet, and the
            // kernel tells of its end only if it is.
            let suspected = self.view.ranks().filter(|rank| self.engine.suspects(*rank));
            let ids: Vec<MemberId> = suspected.map(|rank| self.view.members[rank.index()]).collect();
            roster.seek(&ids, now);
        }
        if now.since(self.asked) >= ASK_EVERY && !mutation!(CutOffAsksNobody) {
            self.asked = now;
            // A member that was cut off has lost the streams over which it would have heard that
            // the others decided to go on without it.
            roster.ask_view_afar(now);
        }
    }
}
