//! The admission of processes to the group of a member: joiners, observers, and processes that want
//! the state of the application.
use super::{Member, Words};
use crate::control::{ASK_EVERY, Asks, ControlMessage, Refusal, Roster, admits};
use crate::ids::{MemberId, Process, Rank, Time, ViewId};
use crate::limits;
use crate::mutation::mutation;
use crate::table::Rows;
use crate::view::View;
use crate::wire::layout::membership;
use alloc::vec::Vec;
use core::time::Duration;

/// The number of the oldest members that report a view to the processes that join with it.
const TELLERS: u32 = 3;
/// The time for which this member waits for all others after a process has asked to follow. The
/// process asks five times in that time.
const FOLLOW_WAIT: Duration = Duration::from_millis(5 * ASK_EVERY.as_millis() as u64);

impl Member {
    /// Returns the processes that will join with the next view, once in each view, when all of them
    /// are known. The driver may make this member's memory for that view by now, while the view
    /// still runs.
    pub fn take_newcomers(&mut self) -> Option<Vec<MemberId>> {
        let is_time = !self.told_newcomers && self.next.is_none() && !self.engine.is_changing();
        if !is_time || !self.joins.is_complete() {
            return None;
        }
        self.told_newcomers = true;
        Some(self.joins.asking().collect())
    }

    /// Notes whether the group is followed, by `observers` over streams or by processes that this
    /// member knows of. Then what was delivered is readable for a while yet.
    pub fn note_followers<W>(&mut self, observers: usize, roster: &Roster<W>) -> bool {
        let is_followed = observers > 0 || !roster.observers().is_empty();
        self.is_followed = is_followed;
        self.engines_mut().for_each(|engine| engine.set_observed(is_followed));
        self.weigh_epochs(roster);
        is_followed
    }

    /// Whether a process that has a stream for this view may begin to follow it. While the view changes it may not: the
    /// members may have agreed by then that epochs go on, and a process that follows reads the rows of one view.
    pub fn may_be_followed(&self) -> bool {
        self.next.is_none() && (!self.engine.is_changing() || mutation!(FollowersLetInLate))
    }

    /// A process wants to join, or to follow.
    pub(super) fn asked<W>(&mut self, asks: Asks, rows: &impl Rows, roster: &mut Roster<W>, now: Time) {
        let id = asks.id;
        if !admits(self.terms.settings.digest(), asks.config, asks.observer) {
            let (settings, incarnation) = (self.terms.settings.clone(), roster.incarnation());
            let why = Refusal::Config { settings, incarnation };
            return roster.post_at(asks.id_conflict, id, ControlMessage::Refused { why });
        }
        if let Some(address) = asks.id_conflict.clone() {
            // If that is a member it has to go first; while it is heard of it does not go.
            let rank = self.rank_of(id).filter(|rank| !self.engine.suspects(*rank));
            let heartbeat = rank.map(|rank| rows.load(rank, membership::HEARTBEAT));
            let wait = self.told_to_wait(roster);
            let answer = roster.turn_away(&asks, heartbeat, wait, now);
            return roster.post_at(Some(address), id, answer);
        }
        let is_in = self.rank_of(id).is_some();
        if (is_in || self.is_in_next(id)) && !roster.is_instance(id, asks.instance) {
            // Its predecessor has to go first, and it asks again.
            return self.wait(id, roster);
        }
        if is_in && roster.is_far(id) {
            // A process that missed its beginning is too late for it; and one that has come after a
            // member of the same id must have no part in it.
            return self.wait(id, roster);
        }
        if let Some(next) = self.next.as_ref().filter(|next| next.has(id)) {
            return next.hand_over_to(id, roster);
        }
        if is_in {
            roster.tell_view(&self.view, [id]);
            return roster.hand_over(self.view.id, [id]);
        }
        if asks.observer {
            return self.let_follow(id, roster, now);
        }
        if self.view.members.len() >= limits::MEMBERS_MAX {
            return roster.post(id, ControlMessage::Refused { why: Refusal::Full(limits::MEMBERS_MAX as u32) });
        }
        let address = roster.book().and_then(|book| book.address_of(id));
        if address.is_some_and(|address| !self.readmissions.admits(address, now)) {
            // No process waits for it meanwhile.
            self.joins.forget(id);
            return self.wait(id, roster);
        }
        if asks.follows != ViewId(0) && asks.follows < self.view.id {
            // It asks again when it follows this view.
            self.joins.expect(id, now);
            return self.wait(id, roster);
        }
        let process = roster.asker(id);
        if self.joins.ask(process, asks.follows, now) {
            self.admit(process, roster);
        }
        if mutation!(AdmissionsLost) && self.next.is_some() {
            for process in self.joins.all() {
                self.admit(process, roster);
            }
        }
        self.wait(id, roster);
    }

    /// A process does not wait to be let in any more. Views that would be asked to admit it later
    /// would wait for it, and this member would have forgotten by then that it is dead.
    pub(super) fn forget_joiner(&mut self, id: MemberId) {
        self.states.retain(|waiting| *waiting != id);
        self.joins.forget(id);
        self.engine.withdraw(id);
        if let Some(next) = &mut self.next {
            next.engine_mut().withdraw(id);
        }
    }

    /// Whether a process wants the state of this member's application.
    pub fn has_state_requests(&self) -> bool {
        !self.states.is_empty()
    }

    /// Returns the process to which the state of this member's application goes now, as it is
    /// between two deliveries: to one at a time, as many may want it and the group must not wait.
    /// None gets it while the view changes. If this member can't tell how much its application has
    /// taken, the process is refused, and asks another member.
    pub fn next_state<W>(&mut self, is_known: bool, roster: &mut Roster<W>) -> Option<MemberId> {
        if self.next.is_some() || self.engine.is_changing() {
            return None;
        }
        let to = self.states.pop_front()?;
        if !is_known {
            self.refuse_state(to, roster);
            return None;
        }
        Some(to)
    }

    /// The application can't give its state to `to`.
    pub fn refuse_state<W>(&self, to: MemberId, roster: &mut Roster<W>) {
        roster.post(to, ControlMessage::Refused { why: Refusal::NoState(roster.me()) });
    }

    fn let_follow<W>(&mut self, id: MemberId, roster: &mut Roster<W>, now: Time) {
        // It asks until it has the memory of all members, and each of them gives only its own.
        self.engine.await_all(now + FOLLOW_WAIT);
        if roster.add_observer(id) {
            self.joins.expect(id, now);
        }
        self.weigh_epochs(roster);
        match &self.next {
            Some(next) => next.hand_over_to(id, roster),
            // A message that comes in rows of this view after its end would be missed. The process
            // asks again.
            None if !self.may_be_followed() => self.wait(id, roster),
            None if self.view.subgroups.iter().any(|spec| spec.epoch.is_some()) => self.engine.renew(),
            None => {
                self.engine.set_observed(true);
                roster.tell_view(&self.view, [id]);
                roster.hand_over(self.view.id, [id]);
            }
        }
    }

    fn told_to_wait<W>(&self, roster: &Roster<W>) -> ControlMessage {
        let blocked = self.engine.is_blocked() && !mutation!(BlockedUntold);
        let is_here = |rank: &Rank| !(blocked && self.engine.suspects(*rank));
        let ids = self.view.ranks().filter(is_here).map(|rank| self.view.members[rank.index()]);
        let present = ids.map(|id| (id, roster.pid(id))).collect();
        let leader = self.view.members[self.engine.leader().index()];
        ControlMessage::Wait { members: self.view.members.len() as u32, leader, blocked, present }
    }

    /// Tells a process that wants to join who is there.
    fn wait<W>(&self, id: MemberId, roster: &mut Roster<W>) {
        let wait = self.told_to_wait(roster);
        roster.post(id, wait);
        if roster.book().is_some() && self.rank_of(id).is_none() && !mutation!(JoinersUntold) {
            // It finds no member in a directory, or not those on other hosts, and has to ask the
            // leader, too.
            roster.tell_view(&self.view, [id]);
        }
    }

    /// Asks for a view with `process`. The death of one on another host can't be proven here, so it
    /// has to begin a view before it votes.
    pub(super) fn admit<W>(&mut self, process: Process, roster: &Roster<W>) {
        match roster.is_far(process.id) && !mutation!(FarJoinersVote) {
            true => self.engine.admit_nonvoter(process),
            false => self.engine.admit(process),
        };
    }

    /// Notes which processes that joined with this view stay in the next, and which were left out
    /// though they neither wanted to leave nor ended. `words` are those of the rows of this view.
    pub(super) fn note_readmissions<W>(&mut self, next: &View, words: &Words, roster: &Roster<W>, now: Time) {
        let ended = roster.ended();
        for (rank, id) in self.view.ranks().zip(self.view.members.iter().copied()) {
            let address = roster.book().and_then(|book| book.address_of(id));
            let Some(address) = address.filter(|_| roster.is_new(self.view.id, id)) else { continue };
            let has_left = words(rank, membership::LEAVING) != 0 || self.evicting.contains(&id);
            if next.rank_of(id).is_some() {
                self.readmissions.stays(address);
            } else if !has_left && !roster.is_dead(id) && !ended.contains(&id) {
                self.readmissions.failed(address, now);
            }
        }
    }

    /// Whether it is this member's to say when the processes that wait are let in. All know who
    /// waits, in case that the leader dies; and if all decided on the moment, the first would,
    /// which need not know of all those that are on their way.
    pub fn lets_in(&self) -> bool {
        self.next.is_none() && !self.engine.is_changing() && self.engine.leader() == self.engine.me()
    }

    /// Tells processes that join of the view that begins, after the driver has prepared it. They
    /// learn of it from the oldest members.
    pub fn tell_joiners<W>(&self, roster: &mut Roster<W>) {
        if let Some(next) = &self.next
            && self.engine.me().0 < TELLERS
        {
            let joiners = next.view().members.iter().copied().filter(|id| self.rank_of(*id).is_none());
            let to: Vec<MemberId> = joiners.chain(roster.observers().iter().copied()).collect();
            roster.tell_view(next.view(), to);
        }
    }
}
