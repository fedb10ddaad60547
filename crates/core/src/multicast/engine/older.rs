//! The subgroups whose epochs began with an older view, whose engine has them.
//!
//! The engine of the newest view tends those of older views: it hears there which senders have
//! closed, and ends the epochs there when its own view ends.
use super::{Engine, Progress, State};
use crate::ids::{Rank, SubgroupId, Time, ViewId};
use crate::membership::Ranks;
use crate::multicast::resend::Resend;
use crate::multicast::subgroup::Subgroup;
use crate::multicast::upcalls::Upcalls;
use crate::mutation::mutation;
use crate::table::Table;
use crate::view::View;
use core::hash::Hash;

/// A subgroup of the view whose epoch began with an earlier one. The engine of that has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Elsewhere {
    pub(super) id: SubgroupId,
    pub(super) epoch: ViewId,
    /// Its place among the subgroups of that engine, once it was looked for.
    pub(super) place: Option<usize>,
    /// All senders say that they send no more.
    pub(super) closed: bool,
    /// My applications will send no more, and all they sent is announced.
    pub(super) has_finished_sending: bool,
    /// All messages that the senders announced before they closed are stable here, or delivered.
    pub(super) has_received_all: bool,
    /// It is delivered here, all members have finished, and each that has not left has heard all
    /// that I say there.
    pub(super) is_done: bool,
    /// The view ends, and what that is for the subgroup is carried out.
    pub(super) has_ended: bool,
}

impl Engine {
    /// The rest of a poll when the view has ended: of the subgroups that go on.
    #[cold]
    pub(super) fn go_on<T: Table>(
        &mut self,
        now: Time,
        mut worked: bool,
        mut again: bool,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
    ) -> Progress {
        for subgroup in self.subgroups.iter_mut().filter(|subgroup| !subgroup.is_closed()) {
            subgroup.tell_closed(table, &mut self.moves);
        }
        if self.deliver_rest(table, upcalls) {
            worked = true;
            match self.has_rest() {
                true => again = true,
                false => self.membership.tell_end(now),
            }
        }
        self.last_worked = worked;
        self.stats.productive_polls += u64::from(worked);
        Progress { worked, wake_at: again.then_some(now), partial: false }
    }

    /// Whether subgroups go on here though the view has ended, or are not
    /// [through](Self::has_rest): then the engine has to be [polled](Self::poll) further, with its
    /// table, beside that of the newest view, which [tends](Self::tend) it.
    pub fn goes_on(&self) -> bool {
        self.state == State::Ended && self.subgroups.iter().any(|subgroup| !subgroup.is_through())
    }

    /// The view `next` has begun, and subgroups [go on](Self::goes_on) here: the upcalls name them
    /// and their senders by the numbers and ranks of that view.
    pub fn rename(&mut self, next: &View) {
        self.subgroups.iter_mut().for_each(|subgroup| subgroup.rename(&self.view, next));
    }

    /// The group has finished in a later view, and so have all subgroups of this one.
    pub(crate) fn finish_older(&mut self) {
        self.state = State::Finished;
    }

    /// Whether subgroups of mine have been in the engine of the older `view` when this view began:
    /// that is to be kept, and [tended](Self::tend), until this view has ended.
    pub fn needs(&self, view: ViewId) -> bool {
        self.elsewhere.iter().any(|it| it.epoch == view)
    }

    /// Keeps this engine and that of an older view, in which subgroups [go on](Self::goes_on), in
    /// step: the changes of this view end the epochs of subgroups there. `rows` is the older view's
    /// table. To be called beside each poll of this engine, for each older one. Whether there may
    /// be more to do at once, by polling both.
    pub fn tend<T: Table>(&mut self, older: &mut Engine, rows: &mut T, upcalls: &mut impl Upcalls<T>) -> bool {
        // While others are busy, idle subgroups are looked at now and then.
        if self.state != State::Running || !(older.scanned_all || self.membership.is_changing()) {
            return false;
        }
        let unheard = self.all_finished.then(|| self.unheard(older, rows));
        let mut worked = self.heed(older, unheard.as_ref());
        let is_heard = unheard.is_some_and(|unheard| unheard.is_empty());
        let to_wedge = self.membership.to_wedge();
        let mut next = 0;
        for i in 0..self.elsewhere.len() {
            let Elsewhere { id, epoch, place, .. } = self.elsewhere[i];
            if epoch != older.view.id {
                continue;
            }
            let Some(at) = place.or_else(|| older.place_of(&self.view.subgroups[id.index()].name, next)) else {
                continue;
            };
            self.elsewhere[i].place = Some(at);
            next = at + 1;
            if to_wedge.contains(&id) && !self.unwritten.iter().any(|(known, _)| *known == id) {
                let mut cuts = older.wedge(at, rows);
                if mutation!(OlderCutUnwritten) {
                    cuts.rounds.clear();
                }
                self.unwritten.push((id, cuts));
                worked = true;
            }
            worked |= self.follow_end(i, is_heard, &mut older.subgroups[at], rows, upcalls);
            older.last_worked &= !worked;
        }
        worked
    }

    /// The place of the subgroup of this name among mine. Most are in the order of those of other
    /// views, so it is looked for from `near` on.
    fn place_of(&self, name: &str, near: usize) -> Option<usize> {
        let count = self.subgroups.len();
        let is_it = |at: &usize| self.view.subgroups[self.subgroups[*at].id().index()].name == name;
        (near..count).chain(0..near.min(count)).find(is_it)
    }

    /// Takes in what an older engine says about members.
    fn heed(&mut self, older: &mut Engine, unheard: Option<&Ranks>) -> bool {
        let rank = |was: Rank| self.view.rank_of(older.view.members[was.index()]);
        let mut awaited = Ranks::none(self.view.members.len());
        if self.membership.suspect_after().is_some() && !mutation!(OlderUnawaited) {
            let mut there = Ranks::none(older.view.members.len());
            older.subgroups.iter_mut().filter(|subgroup| subgroup.is_live()).for_each(|it| it.await_peers(&mut there));
            there.iter().filter_map(rank).for_each(|rank| _ = awaited.add(rank));
            unheard.into_iter().for_each(|unheard| awaited.unite(unheard));
        }
        let mut accused = false;
        for fault in older.accused.drain(..) {
            accused |= rank(fault.member()).is_some_and(|rank| self.membership.bar(rank));
        }
        match self.awaited_elsewhere.iter_mut().find(|(view, _)| *view == older.view.id) {
            Some((_, known)) => *known = awaited,
            None => self.awaited_elsewhere.push((older.view.id, awaited)),
        }
        self.last_worked &= !accused;
        accused
    }

    /// The members of this view that have yet to hear what I posted in the older one: once they see
    /// that I have left, they count on nothing more of me.
    fn unheard<T: Table>(&self, older: &Engine, rows: &T) -> Ranks {
        let mut unheard = Ranks::none(self.view.members.len());
        for (there, id) in older.view.ranks().zip(&older.view.members).filter(|(rank, _)| *rank != older.me) {
            let goes_on = |rank: &Rank| !self.left.has(*rank) && !self.membership.suspects(*rank);
            if let Some(rank) = self.view.rank_of(*id).filter(goes_on)
                && !(rows.is_heard(there) || mutation!(LeavesUnheard))
            {
                unheard.add(rank);
            }
        }
        unheard
    }

    /// Looks how far a subgroup of an older engine is, and carries out there what the end of this
    /// view is for it.
    fn follow_end<T: Table>(
        &mut self,
        i: usize,
        is_heard: bool,
        subgroup: &mut Subgroup,
        rows: &T,
        upcalls: &mut impl Upcalls<T>,
    ) -> bool {
        let elsewhere = &mut self.elsewhere[i];
        // Others may have closed, or I.
        let has_finished_sending = subgroup.has_finished_sending();
        let has_news = subgroup.take_news() || elsewhere.has_finished_sending != has_finished_sending;
        if !(has_news || is_heard || self.ending || mutation!(OlderUnclosed)) {
            return false;
        }
        let before = (elsewhere.clone(), subgroup.is_live(), subgroup.is_closed());
        if let Some(decision) = self.membership.decision().filter(|_| self.ending) {
            match self.touched[elsewhere.id.index()] {
                false => subgroup.unwedge(),
                true if subgroup.is_closed() || mutation!(OlderEndForgotten) => {}
                true => subgroup.close(&decision.trims[elsewhere.id.index()], rows, upcalls),
            }
            elsewhere.has_ended = true;
        }
        elsewhere.has_finished_sending = has_finished_sending;
        self.awaits_end |= subgroup.has_sent();
        // Senders announce their last messages before they declare that they send no more. So the
        // subgroup reads the announcements again after it has seen all declarations.
        if !elsewhere.closed {
            elsewhere.closed = subgroup.senders_have_closed(rows) || mutation!(OlderUnclosed);
            if elsewhere.closed {
                subgroup.look_again();
            }
        } else if has_news || is_heard {
            elsewhere.has_received_all = subgroup.has_received_all();
            elsewhere.is_done = is_heard && subgroup.has_delivered_all();
        }
        (elsewhere.clone(), subgroup.is_live(), subgroup.is_closed()) != before
    }

    /// Asks for a next view with the same members: ways that belong to this view are broken, and
    /// the next one makes them anew.
    pub fn renew(&mut self) {
        if !self.membership.is_changing() {
            self.membership.renew();
            self.last_worked = false;
        }
    }

    /// Says whether subgroups may go on that the end of this view does not touch. If one member
    /// says no, the epochs of all subgroups end. By default they may, unless that is [switched
    /// off](crate::Ablation::epochs).
    pub fn keep_epochs(&mut self, keeps: bool) {
        self.membership.keep_epochs(keeps && self.ablation.epochs);
    }

    /// Says that the epoch of `subgroup` before the one that begins with this view
    /// [ended](Self::is_closed) in `older`: it continues where that stopped. Before the first poll,
    /// and before its deliveries are [handed off](Self::hand_off). Means nothing if its epoch began
    /// before this view, or it was not there.
    pub fn follow(&mut self, older: &Engine, subgroup: SubgroupId) {
        self.follow_with(older, subgroup, Subgroup::follow);
    }

    /// As [`follow`](Self::follow), for what the log of the epoch before has taken since: when the
    /// view begins, and all of that epoch is in the log. Before the first poll.
    pub fn follow_log(&mut self, older: &Engine, subgroup: SubgroupId) {
        self.follow_with(older, subgroup, Subgroup::follow_log);
    }

    fn follow_with(
        &mut self,
        older: &Engine,
        subgroup: SubgroupId,
        follow: fn(&mut Subgroup, &Subgroup, &View, &View),
    ) {
        let Some(subgroup) = self.subgroups.iter_mut().find(|known| known.id() == subgroup) else { return };
        let old = older.view.subgroup(&self.view.subgroups[subgroup.id().index()].name);
        if let Some(old) = older.subgroups.iter().find(|known| known.is_closed() && Some(known.id()) == old) {
            follow(subgroup, old, &older.view, &self.view);
        }
    }

    /// Says that the first `rounds` rounds of `sender` in `subgroup` were delivered here in the
    /// view before, in which I was no member yet and only [observed](crate::Observer::known): they
    /// come again, and are passed over. Before the first poll, and before deliveries are [handed
    /// off](Self::hand_off). Means nothing in a total order.
    pub fn pass_over(&mut self, subgroup: SubgroupId, sender: Rank, rounds: u64) {
        let subgroup = self.subgroups.iter_mut().find(|found| found.id() == subgroup);
        if let (Some(subgroup), Some(sender)) = (subgroup, self.view.members.get(sender.index())) {
            subgroup.pass_over(*sender, rounds, &self.view);
        }
    }

    /// After the [end](State::Ended): my messages of `subgroup` that were not delivered, to be sent
    /// again in the next view. `None` if I did not send there, or its epoch has not ended.
    pub fn resend(&self, subgroup: SubgroupId) -> Option<Resend> {
        self.subgroup(subgroup).filter(|subgroup| self.state == State::Ended && subgroup.is_closed())?.resend(self.me)
    }

    /// Whether this member can leave as far as subgroups of older views are concerned.
    pub(super) fn is_done_elsewhere(&self) -> bool {
        self.elsewhere.iter().all(|elsewhere| elsewhere.is_done)
    }
}
