//! The end of a view: the members finish, or the membership closes the view, wedges its subgroups,
//! and ends them at the trims of the decision.
use super::{Certainty, EndNotice, Engine, State};
use crate::fault::Fault;
use crate::ids::{Rank, SubgroupId, Time};
use crate::multicast::subgroup::{Cuts, Subgroup};
use crate::multicast::upcalls::Upcalls;
use crate::mutation::mutation;
use crate::table::Table;
use crate::wire::layout::membership;

impl Engine {
    /// Whether the application has yet to get messages of epochs that have ended. While it does,
    /// the engine has to be [polled](Self::poll), the next view can't begin here, and others of its
    /// host that have begun it see by its [row there](Self::show_life) that this member lives.
    pub fn has_rest(&self) -> bool {
        self.subgroups.iter().any(|subgroup| subgroup.is_closed() && !subgroup.is_through())
    }

    /// Hands over what is left of epochs that have ended, as much as one poll may. Whether there
    /// was something.
    #[cold]
    pub(super) fn deliver_rest<T: Table>(&mut self, table: &T, upcalls: &mut impl Upcalls<T>) -> bool {
        let mut worked = false;
        let start = self.first_to_deliver();
        let (before, behind) = self.subgroups.split_at_mut(start);
        let in_turn = behind.iter_mut().chain(before);
        for subgroup in in_turn.filter(|subgroup| subgroup.is_closed() && !subgroup.is_through()) {
            subgroup.deliver_rest(&mut self.pace, table, upcalls);
            worked = true;
        }
        worked
    }

    /// Says that this member waits for the others to finish. One that has sent anything does so
    /// from when it has finished itself.
    pub fn await_end(&mut self) {
        self.awaits_end = true;
    }

    /// Whether all members have finished sending, as far as this member has seen. Then the group
    /// waits only until what was sent is delivered, and on disk in logged subgroups.
    pub fn have_all_finished(&self) -> bool {
        self.all_finished
    }

    /// Says whether this member has something to send in a view to come, though the subgroup has no
    /// ring for it in this one. The group does not finish before.
    pub fn keep_open(&mut self, open: bool) {
        self.last_worked &= self.open == open;
        self.open = open;
    }

    /// Returns my engine in the view that follows. It continues where this engine stopped.
    ///
    /// Returns `None` if I am not in that view, or if this view has not [ended](State::Ended).
    pub fn successor(&mut self) -> Option<Engine> {
        let decision = self.decision().filter(|_| self.state == State::Ended)?.clone();
        let me = decision.next.rank_of(self.view.members[self.me.index()])?;
        let mut next = Engine::new(decision.next, me, self.ablation).expect("a decided view is well formed");
        let was = |rank: Rank| self.view.rank_of(next.view.members[rank.index()]);
        next.membership.inherit(&self.membership, was);
        next.awaits_end = self.awaits_end || self.subgroups.iter().any(Subgroup::has_sent);
        next.keep_pace(self);
        // The agreement had no room for these proposals.
        let proposed = self.membership.take_proposed();
        for join in proposed.joins {
            next.membership.admit(&next.view, join.process, join.votes);
        }
        for change in proposed.changes {
            if !self.view.has_settled(&change, &next.view) {
                next.membership.propose_change(&next.view, change);
            }
        }
        for id in (0..next.view.subgroups.len() as u32).map(SubgroupId) {
            next.follow(self, id);
        }
        Some(next)
    }

    /// Whether a vote or an end notice of mine may have to be written to the disk, or be on it by now.
    #[inline]
    pub fn waits_for_record(&self) -> bool {
        self.membership.is_changing() || self.wants_end_notice()
    }

    /// Whether I have done everything, and say so once it is on my disk that I write nothing more. Then the
    /// driver has to call [`allow_end_notice`](Self::allow_end_notice). Only in a view with a logged subgroup: the
    /// others count me as dead afterwards, and a restart has to know that.
    pub fn wants_end_notice(&self) -> bool {
        self.end_notice == EndNotice::Wanted
    }

    /// Notes that it is on my disk that I write nothing more. The next poll says so.
    pub fn allow_end_notice(&mut self) {
        self.end_notice = EndNotice::Free;
        self.last_worked = false;
    }

    /// Gives the group up: tells the others that I acknowledge nothing more, and in `reason`, which
    /// is not 0 and means nothing here, why. Means nothing once everything is finished.
    pub fn abandon<T: Table>(&mut self, reason: u64, table: &mut T) {
        if self.state != State::Finished {
            self.announce(membership::ABANDONED, reason.max(1), table);
        }
    }

    /// Ends the group: once all members have finished sending and I have delivered everything, I
    /// leave.
    pub(super) fn finish<T: Table>(&mut self, table: &mut T, worked: bool) -> bool {
        if worked || !(self.finished || self.has_finished_sending()) {
            return false;
        }
        self.go_towards_end(table)
    }

    pub(super) fn has_finished_sending(&self) -> bool {
        !self.open
            && self.subgroups.iter().all(Subgroup::has_finished_sending)
            && self.elsewhere.iter().all(|elsewhere| elsewhere.has_finished_sending)
    }

    /// Takes the next step towards the end: finishes, sees that all have, or leaves.
    #[cold]
    fn go_towards_end<T: Table>(&mut self, table: &mut T) -> bool {
        if !self.finished {
            self.finished = true;
            self.awaits_end |= self.subgroups.iter().any(Subgroup::has_sent);
            self.announce(membership::FINISHED, 1, table);
            return true;
        }
        if !self.all_finished {
            let finished = |rank: &Rank| table.load(*rank, membership::FINISHED) != 0;
            self.all_finished = self.everyone.iter().all(finished);
            // The next poll looks at every subgroup once more, because no member announces anything
            // new now.
            return self.all_finished;
        }
        let is_done_elsewhere = self.is_done_elsewhere();
        if !is_done_elsewhere {
            let has_left = |rank: &&Rank| table.load(**rank, membership::LEFT) != 0;
            self.everyone.iter().filter(has_left).for_each(|rank| _ = self.left.add(*rank));
        }
        if !is_done_elsewhere || !self.subgroups.iter().all(Subgroup::has_delivered_all) {
            return false;
        }
        // A message that is not on the disks of all members by now is not known to be durable. A
        // peer that is not there any more syncs nothing.
        let is_gone = |rank| self.membership.suspects(rank);
        if self.subgroups.iter().any(|subgroup| subgroup.awaits_log(is_gone)) {
            return false;
        }
        if self.end_notice != EndNotice::Free && !mutation!(LeavesUnsaid) {
            self.end_notice = EndNotice::Wanted;
            return false;
        }
        self.announce(membership::LEFT, 1, table);
        self.membership.tell_finished();
        self.state = State::Finished;
        true
    }

    /// Returns whether the view has to end. It does not for a member that needs no peer any more.
    pub(super) fn has_to_end<T: Table>(&mut self, table: &T) -> bool {
        if !self.reported.is_empty() {
            self.take_reports(table);
        }
        if !self.membership.watch(table) {
            return false;
        }
        let is_finished = |rank: &Rank| table.load(*rank, membership::FINISHED) != 0;
        // Looked at before the flags are, the counters may be behind them: then the next poll
        // tells.
        let done = self.subgroups.iter().all(Subgroup::has_received_all)
            && self.elsewhere.iter().all(|it| it.has_received_all);
        !(done && self.everyone.iter().all(is_finished))
    }

    #[cold]
    fn take_reports<T: Table>(&mut self, table: &T) {
        for (member, certainty) in self.reported.drain(..) {
            match certainty {
                _ if table.load(member, membership::LEFT) != 0 => {}
                Certainty::Dead => self.membership.died(member),
                Certainty::Gone => self.membership.gone(member),
                Certainty::Evicted => self.membership.evict(member),
                Certainty::Suspected => _ = self.membership.suspect(member),
                Certainty::Trusted => self.membership.trust(member),
                Certainty::Heard => self.membership.heard(member),
            }
        }
    }

    /// Begins to end the view.
    #[cold]
    pub(super) fn close<T: Table>(&mut self, now: Time, table: &mut T) {
        if !self.membership.keeps_epochs() {
            // First: others that see this view close had better have all of it.
            self.membership.want_all();
            self.wedge_wanted(table);
        }
        self.membership.close(now, &self.layout, table);
        self.stats.control_posts += 3;
    }

    /// Stops announcing and receiving in the subgroups that have to wedge and are here, and says
    /// what I have of them, and of those that have wedged elsewhere. Whether there was one.
    #[cold]
    fn wedge_wanted<T: Table>(&mut self, table: &mut T) -> bool {
        let mut has_cut = false;
        for id in self.membership.to_wedge() {
            if let Some(at) = self.subgroups.iter().position(|subgroup| subgroup.id() == id) {
                let cuts = self.wedge(at, table);
                self.write_cuts(id, &cuts, table);
                has_cut = true;
            }
        }
        for (id, cuts) in core::mem::take(&mut self.unwritten) {
            self.write_cuts(id, &cuts, table);
            has_cut = true;
        }
        if has_cut {
            self.post_cuts(table);
        }
        has_cut
    }

    /// Stops announcing and receiving in a subgroup.
    pub(super) fn wedge<T: Table>(&mut self, at: usize, table: &mut T) -> Cuts {
        if !self.put_off.is_empty() || !self.due.is_empty() {
            self.due.append(&mut self.put_off);
            self.post_control(table);
        }
        let subgroup = &mut self.subgroups[at];
        subgroup.wedge(table, &self.ablation, &mut self.moves);
        subgroup.cuts(table)
    }

    /// Writes down how much this member has of each sender of a subgroup, which may be in an older
    /// engine, and that it has wedged there.
    fn write_cuts<T: Table>(&mut self, id: SubgroupId, cuts: &Cuts, table: &mut T) {
        let at = self.layout.row(self.me).cut(id).expect("I am a member of it");
        for (sender, rounds) in cuts.rounds.iter().filter(|_| !mutation!(CutUnwritten)) {
            table.store(at + 8 * *sender as u64, *rounds);
        }
        if let Some(clock) = cuts.clock {
            table.store(at + 8 * self.view.subgroups[id.index()].senders.len() as u64, clock);
        }
        self.membership.note_wedged(id, cuts.delivered);
    }

    fn post_cuts<T: Table>(&self, table: &mut T) {
        let cuts = self.layout.row(self.me).cuts.clone();
        if !cuts.is_empty() {
            table.post_quietly(&self.everyone, cuts);
        }
    }

    /// From the wedge to the end: whether anything happened, and when to come again.
    #[cold]
    pub(super) fn change_view<T: Table>(
        &mut self,
        now: Time,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
    ) -> (bool, Option<Time>) {
        self.take_reports(table);
        let (mut worked, wake_at) = self.membership.agree(now, &self.view, &self.layout, table);
        worked |= self.wedge_wanted(table);
        let blamed = self.membership.take_blamed();
        self.faults.extend(blamed.into_iter().map(|member| Fault::Proposal { member }));
        if self.membership.is_evicted() {
            self.state = State::Evicted;
            // My row is final: no member has to wait for me.
            self.announce(membership::ABANDONED, 1, table);
            return (true, None);
        }
        if self.membership.incomplete().is_some() {
            self.state = State::Incomplete;
            return (true, None);
        }
        let Some(decision) = self.membership.decision() else { return (worked, wake_at) };
        if !self.ending {
            self.ending = true;
            self.touched = self.view.touched_by(&decision.next);
            for subgroup in &mut self.subgroups {
                match self.touched[subgroup.id().index()] {
                    true => subgroup.close(&decision.trims[subgroup.id().index()], table, upcalls),
                    false => subgroup.unwedge(),
                }
            }
            worked = true;
        }
        worked |= self.deliver_rest(table, upcalls);
        if self.elsewhere.iter().all(|it| it.has_ended) {
            self.membership.end(table);
            self.state = State::Ended;
            worked = true;
            if !self.has_rest() {
                self.membership.tell_end(now);
            }
        }
        (worked, wake_at)
    }

    /// Suspects the member that breaks the protocol. The fault may be found again at each poll
    /// until the view ends.
    #[cold]
    pub(super) fn accuse(&mut self, fault: Fault) {
        let is_over = self.state == State::Ended;
        if is_over && !self.accused.contains(&fault) && !self.faults.contains(&fault) {
            self.accused.push(fault);
            self.faults.push(fault);
        } else if !is_over && self.membership.accuse(&fault) {
            self.faults.push(fault);
        }
    }

    pub(super) fn announce<T: Table>(&mut self, word: u64, value: u64, table: &mut T) {
        table.store(word, value);
        table.post(&self.everyone, word..word + 8);
        self.stats.control_posts += 1;
    }
}
