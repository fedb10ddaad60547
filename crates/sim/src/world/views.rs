//! The change from one view to the next: the end of a stage for a member, its seat on the next
//! stage, and the messages that it sends again there.
use super::stage::{Stage, Still};
use super::{Event, ProcessLife, World};
use crate::actions::{ActionKind, InstallStep, When};
use crate::apps::{App, OpenRing};
use crate::checkers::{Checked, Violation, atomicity, no_invention};
use crate::options::Visibility;
use crate::seat::Seat;
use spindle_core::wire::layout::membership;
use spindle_core::wire::ring::HEADER_BYTES;
use spindle_core::{ClaimError, Engine, Order, Rank, Resend, Resent, SubgroupId, View};
use std::collections::VecDeque;

/// A ring in which no application may claim before its member has sent again the undelivered
/// messages of earlier views.
pub(super) struct Moving {
    ring: OpenRing,
    /// The newest view first. The messages in its ring were sent before the rest of older views.
    sources: VecDeque<UndeliveredSource>,
    /// True if the applications have closed the old ring.
    closed: bool,
}

/// The location of undelivered messages.
pub(super) struct UndeliveredSource {
    seat: Seat,
    resend: Resend,
    /// A message that was taken out of the ring and is not sent yet.
    waiting: Option<Resent>,
}

/// The data that a member takes along from the ring of one subgroup.
pub(super) struct Luggage {
    pub(super) subgroup: SubgroupId,
    /// The newest view first.
    pub(super) sources: VecDeque<UndeliveredSource>,
    pub(super) closed: bool,
}

impl World<'_> {
    /// Returns the stage of `view`, which may be new.
    pub(super) fn stage_of(&mut self, view: &View) -> usize {
        let index = (view.id.0 - self.plan.view.id.0) as usize;
        if index == self.stages.len() {
            let process =
                |id| self.plan.members.iter().position(|member| member.id == id).expect("a process of the plan");
            let cast = view.members.iter().map(|id| process(*id)).collect();
            self.stages.push(Stage::new(self.plan, view, cast));
            let cuts: Vec<_> = self.cuts.keys().copied().collect();
            for (from, to) in cuts {
                self.set_cut(from, to, true);
            }
        }
        index
    }

    /// Records that the engine at `seat` knows how its view ends.
    pub(super) fn note_decision(&mut self, seat: Seat) -> Checked {
        let member = self.stages[seat.stage].member_mut(seat.rank);
        if member.engine.decision().is_none() {
            return Ok(());
        }
        if std::mem::replace(&mut member.knows_end, true) {
            return Ok(());
        }
        self.note_epoch_ends(seat);
        self.check_decision_on_disk(seat)?;
        let Some(decision) = self.stages[seat.stage].member(seat.rank).engine.decision() else { return Ok(()) };
        let spindle_core::Decision { ballot, next, trims, .. } = decision;
        let ids: Vec<String> = next.members.iter().map(|id| format!("#{id}")).collect();
        note!(
            self,
            "{seat} knows the decision: by ballot {}.{} view {} follows, of {}, and this one ends at {trims:?}",
            ballot.leader,
            ballot.round,
            next.id,
            ids.join(" ")
        );
        let stage = &self.stages[seat.stage];
        let (id, old) = (stage.view.members[seat.rank.index()], stage.view.id);
        let decision = self.stages[seat.stage].member(seat.rank).engine.decision().expect("it is there");
        self.view_sequence.decided(id, old, &decision.next, &decision.trims)
    }

    /// Ends the view for the member at `seat`: it goes to the next view, or is evicted.
    pub(super) fn end(&mut self, seat: Seat) -> Checked {
        let process = self.process_of(seat);
        note!(self, "{seat} has ended the view");
        let member = self.stages[seat.stage].member_mut(seat.rank);
        (member.has_ended, member.finished) = (true, !member.engine.goes_on());
        let ended = self.ended_epochs(seat);
        for &(Seat { stage, rank }, id) in &ended {
            self.check_log(Seat { stage, rank }, id)?;
            let is_mine = |consumer: &crate::apps::Consumer| consumer.member == rank && consumer.subgroup == id;
            match self.stages[stage].consumers.iter().position(is_mine) {
                Some(consumer) => self.expect_consumer(stage, consumer),
                None => self.ended(Seat { stage, rank }, id)?,
            }
        }
        let luggage = self.pack(process, &ended);
        let mut next = self.stages[seat.stage].member_mut(seat.rank).engine.successor();
        for (home, id) in ended.iter().filter(|(home, _)| *home != seat) {
            let older = self.stages[home.stage].member_mut(home.rank);
            next.iter_mut().for_each(|next| next.follow(&older.engine, *id));
            older.finished = !older.engine.goes_on();
        }
        let Some(engine) = next else {
            note!(self, "{seat} is out");
            self.processes[process].life = ProcessLife::Left;
            self.processes[process].seat = None;
            return Ok(());
        };
        self.install(process, engine, Some(seat), luggage)?;
        for i in 0..self.apps.len() {
            let app = &mut self.apps[i];
            let stays = |ring: &OpenRing| !ended.contains(&(ring.seat, ring.subgroup));
            if app.plan.member != process || app.ring.as_ref().is_none_or(stays) {
                continue;
            }
            if app.parked {
                app.parked = false;
                let at = self.now + self.random.range(10, 2_000);
                self.push(at, Event::App(i));
            } else if app.left == 0 {
                self.leave_ended_ring(i);
            }
        }
        Ok(())
    }

    /// Returns true if the applications of the member at `seat` have yet to get messages of epochs
    /// that have ended with its view.
    pub(super) fn has_rest(&self, seat: Seat) -> bool {
        let homes = self.ended_epochs(seat).into_iter().map(|(home, _)| home);
        homes.chain([seat]).any(|Seat { stage, rank }| self.stages[stage].member(rank).engine.has_rest())
    }

    /// Returns the subgroups of the member at `seat` whose epochs have ended with its view, each
    /// with its home.
    fn ended_epochs(&self, seat: Seat) -> Vec<(Seat, SubgroupId)> {
        let stage = &self.stages[seat.stage];
        let decision = stage.member(seat.rank).engine.decision().expect("the view has ended");
        let touched = stage.view.touched_by(&decision.next);
        let mine = stage.view.subgroups_of(seat.rank).map(|(id, _)| id).filter(|id| touched[id.index()]);
        mine.map(|id| (self.home(seat, id).expect("it was there when the epoch began"), id)).collect()
    }

    /// Records that the deliveries of the member at `seat` in this subgroup are complete.
    pub(super) fn ended(&mut self, seat: Seat, id: SubgroupId) -> Checked {
        let Seat { stage, rank } = seat;
        let decision = self.epoch_end(seat, id).expect("the epoch has ended");
        let trims = decision.trims[id.index()].clone();
        let stage = &mut self.stages[stage];
        let group = &stage.ledger.groups[id.index()];
        atomicity::ended(group, id, rank, &trims)?;
        if group.order == Order::Total {
            let (count, list) = stage.total_order.counts(id, rank);
            stage.uniformity.ended(id, rank, count, list)?;
            self.check_log_of(seat, id, count)?;
        }
        Ok(())
    }

    /// Closes the rings of epochs that have ended, and takes along the undelivered messages in
    /// them.
    fn pack(&mut self, process: usize, ended: &[(Seat, SubgroupId)]) -> Vec<Luggage> {
        let is_over = |ring: &OpenRing| ended.contains(&(ring.seat, ring.subgroup));
        let me = &mut self.processes[process];
        let mut moving: Vec<Moving> = me.moving.extract_if(.., |moving| is_over(&moving.ring)).collect();
        me.open.retain(|_, ring| !is_over(ring));
        let mut luggage = vec![];
        for &(seat, subgroup) in ended {
            let engine = &self.stages[seat.stage].member(seat.rank).engine;
            let Some(claims) = engine.claims(subgroup) else { continue };
            claims.revoke();
            let resend = engine.resend(subgroup).expect("it has sent there");
            let mut closed = claims.is_closed();
            let mut sources = VecDeque::from([UndeliveredSource { seat, resend, waiting: None }]);
            if let Some(i) = moving.iter().position(|moving| moving.ring.subgroup == subgroup) {
                let older = moving.swap_remove(i);
                older.ring.leave();
                closed |= older.closed;
                sources.extend(older.sources);
            }
            luggage.push(Luggage { subgroup, sources, closed });
        }
        self.join_waiting(process, luggage)
    }

    /// Installs the view of `engine` at a process. It comes from `from`, unless it joins.
    pub(super) fn install(
        &mut self,
        process: usize,
        mut engine: Engine,
        from: Option<Seat>,
        mut luggage: Vec<Luggage>,
    ) -> Checked {
        let stage = self.stage_of(engine.view());
        let seat = Seat { stage, rank: engine.me() };
        let id = self.plan.members[process].id;
        let before = from.map(|from| self.stages[from.stage].view.id);
        self.view_sequence.installed(id, engine.view(), before)?;
        note!(self, "{seat} is #{id}, p{process}, and has installed the view");
        self.last_change = self.last_change.max(self.now);
        self.outcome.counts.installs += 1;
        self.outcome.counts.views += u64::from(self.stages[stage].members.iter().all(Option::is_none));
        if self.processes[process].leaving {
            engine.leave();
        }
        self.miss(seat, &mut engine);
        self.stages[stage].install(engine, &self.plan.members[process].hand_offs);
        self.begin_logs(seat, from);
        let me = &mut self.processes[process];
        (me.seat, me.life) = (Some(seat), ProcessLife::Member);
        self.line_up_consumers(seat, from);
        let begins = |(_, spec): &(SubgroupId, &spindle_core::SubgroupSpec)| spec.epoch.is_none();
        for (id, _) in self.stages[stage].view.clone().subgroups_of(seat.rank).filter(begins) {
            let handed_off = |consumer: &crate::apps::Consumer| consumer.member == seat.rank && consumer.subgroup == id;
            if !self.stages[stage].consumers.iter().any(handed_off) {
                self.note_since(seat, id);
            }
        }
        for peer in self.stages[stage].view.clone().ranks().filter(|peer| *peer != seat.rank) {
            self.schedule(Seat { stage, rank: peer }, seat.rank);
            let other = &self.processes[self.stages[stage].cast[peer.index()]];
            let dead = matches!(other.life, ProcessLife::Crashed | ProcessLife::Evicted);
            if dead && self.plan.visibility == Visibility::Shared && !self.is_absent(seat, peer) {
                self.announce_death(stage, peer, seat.rank);
            }
        }
        for (subgroup, spec) in self.stages[stage].view.clone().subgroups_of(seat.rank).filter(begins) {
            let Some(sender) = spec.sender_rank(seat.rank) else { continue };
            let claims = self.stages[stage].member(seat.rank).engine.claims(subgroup).expect("a sender has claims");
            let mine = |app: &&App| app.plan.member == process && app.plan.subgroup == subgroup;
            let alone = self.apps.iter().find(mine).is_some_and(|app| app.alone);
            let ring = OpenRing::new(seat, subgroup, claims, sender, alone);
            match luggage.iter().position(|luggage| luggage.subgroup == subgroup) {
                Some(i) => {
                    let Luggage { sources, closed, .. } = luggage.swap_remove(i);
                    self.processes[process].moving.push(Moving { ring, sources, closed });
                }
                None => self.open(process, ring),
            }
        }
        self.put_by(seat, luggage);
        self.took(seat, InstallStep::Installs);
        self.wake(seat);
        self.send_again(seat)
    }

    /// Withholds the memory of other members from `seat`, if the plan says so. The member suspects
    /// a live owner for it.
    fn miss(&mut self, seat: Seat, engine: &mut Engine) {
        let process = self.process_of(seat);
        let view = self.stages[seat.stage].view.clone();
        let now = When::Step { process, view: view.id.0, step: InstallStep::Installs };
        for action in self.plan.actions.iter().filter(|action| action.when == now) {
            let ActionKind::Miss { whom, .. } = action.what else { continue };
            let Some(rank) = view.rank_of(self.plan.members[whom].id).filter(|rank| *rank != seat.rank) else {
                continue;
            };
            let is_dead = matches!(self.processes[whom].life, ProcessLife::Crashed | ProcessLife::Evicted);
            // Without suspicion for silence, a member waits for all live members.
            if self.plan.visibility != Visibility::Shared || !(is_dead || self.plan.suspect_after_ns.is_some()) {
                continue;
            }
            let mut link = self.stages[seat.stage].tables[seat.rank.index()].inbound[rank.index()].borrow_mut();
            (link.absent, link.cut) = (true, true);
            drop(link);
            match is_dead {
                true => engine.member_gone(rank),
                false => engine.suspect(rank),
            }
            self.outcome.counts.absences += 1;
            self.outcome.counts.faults += 1;
            self.outcome.counts.reasons += 1;
            note!(
                self,
                "{seat} begins without the memory of m{rank}, p{whom}{}",
                if is_dead { ", which is dead" } else { "" }
            );
        }
    }

    /// Returns true if `owner`'s memory never arrived at `seat`.
    pub(super) fn is_absent(&self, seat: Seat, owner: Rank) -> bool {
        self.stages[seat.stage].tables[seat.rank.index()].inbound[owner.index()].borrow().absent
    }

    /// Records that from now on `seat` has to deliver the messages that it did not deliver in
    /// earlier views.
    pub(super) fn note_since(&mut self, seat: Seat, id: SubgroupId) {
        let receiver = self.process_of(seat);
        let stage = &mut self.stages[seat.stage];
        for lane in &mut stage.ledger.groups[id.index()].lanes {
            let sender = stage.cast[lane.sender.index()];
            lane.since[seat.rank.index()] = self.history.next(receiver, id, sender).unwrap_or(0);
        }
    }

    /// Opens this ring for the claims of applications.
    fn open(&mut self, process: usize, ring: OpenRing) {
        let subgroup = ring.subgroup;
        let alone = ring.exclusive.is_some();
        self.processes[process].open.insert(subgroup, ring);
        for i in 0..self.apps.len() {
            let app = &self.apps[i];
            if app.plan.member == process && app.plan.subgroup == subgroup && app.ring.is_none() {
                self.let_in(i);
                assert!(!alone || !self.processes[process].open.contains_key(&subgroup), "it is alone in its ring");
            }
        }
    }

    /// Lets an application continue in its member's open ring.
    fn let_in(&mut self, i: usize) {
        let app = &mut self.apps[i];
        let open = &mut self.processes[app.plan.member].open;
        app.ring = match app.alone {
            true => open.remove(&app.plan.subgroup),
            false => open.get(&app.plan.subgroup).cloned(),
        };
        if app.ring.is_none() {
            return;
        }
        app.parked = false;
        let wait = if std::mem::replace(&mut app.started, true) { 500 } else { app.plan.think_ns };
        if app.left > 0 {
            let at = self.now + self.random.below(wait);
            self.push(at, Event::App(i));
        }
    }

    /// Lets an application leave the ring of an ended view in which it can claim no more; it waits
    /// for the next ring.
    pub(super) fn leave_ended_ring(&mut self, i: usize) {
        let seat = self.processes[self.apps[i].plan.member].seat;
        let home = |id| seat.and_then(|seat| self.home(seat, id));
        let has_ended = self.apps[i].ring.as_ref().is_some_and(|ring| Some(ring.seat) != home(ring.subgroup));
        let app = &mut self.apps[i];
        if !has_ended || app.holding.is_some() {
            return;
        }
        let ring = app.ring.take().expect("it has one");
        note!(self, "{} s{} an application leaves the old ring", ring.seat, ring.subgroup);
        ring.leave();
        if let Some(seat) = seat {
            self.let_in(i);
            self.wake(seat);
        }
    }

    /// Lets the member at `seat` send again the undelivered messages of earlier views, as far as
    /// its rings have room. Opens the rings for which that is done.
    pub(super) fn send_again(&mut self, seat: Seat) -> Checked {
        let process = self.process_of(seat);
        let mut i = 0;
        while i < self.processes[process].moving.len() {
            let mut moving = self.processes[process].moving.swap_remove(i);
            let done = self.move_on(&mut moving);
            if done? {
                note!(self, "{seat} s{} has sent everything again", moving.ring.subgroup);
                if moving.closed {
                    moving.ring.claims.close();
                }
                let at = moving.ring.seat;
                self.open(process, moving.ring);
                self.wake(at);
            } else {
                self.processes[process].moving.push(moving);
                let last = self.processes[process].moving.len() - 1;
                self.processes[process].moving.swap(i, last);
                i += 1;
            }
        }
        Ok(())
    }

    /// Returns true if everything is sent again.
    fn move_on(&mut self, moving: &mut Moving) -> Result<bool, Violation> {
        let seat = moving.ring.seat;
        while let Some(source) = moving.sources.front_mut() {
            let old = source.seat;
            let waiting = source.waiting.take();
            let table = &self.stages[old.stage].tables[old.rank.index()];
            let Some(resent) = waiting.or_else(|| source.resend.next(&Still(table))) else {
                if !source.resend.is_done() {
                    return Ok(false);
                }
                moving.closed |= source.resend.is_closed();
                moving.sources.pop_front();
                continue;
            };
            let claim = match moving.ring.claim_again(resent.len) {
                Ok(claim) => claim,
                Err(ClaimError::Full) => {
                    source.waiting = Some(resent);
                    return Ok(false);
                }
                // The message is lost, which `validity` finds.
                Err(ClaimError::TooLong { .. }) => continue,
            };
            let subgroup = moving.ring.subgroup;
            let lanes = &self.stages[old.stage].ledger.groups[subgroup.index()];
            let lane = &lanes.lanes[lanes.sender_rank(old.rank).expect("it has sent there")];
            let at = resent.at - HEADER_BYTES;
            let frame = *lane.frames.iter().rev().find(|frame| frame.at == at).expect("a thread has claimed there");
            note!(self, "{seat} s{subgroup} sends message {} of view {} again", frame.number, old.stage + 1);
            self.outcome.counts.resent += 1;
            let bytes =
                self.stages[old.stage].tables[old.rank.index()].rows[old.rank.index()].slice(resent.at, resent.len);
            let bytes = bytes.to_vec();
            let (index, at) = self.enter(&moving.ring, &claim, frame.number)?;
            self.write(seat, at + HEADER_BYTES, resent.len, |to| to.copy_from_slice(&bytes));
            let (fate, commit) = self.seal(&moving.ring, claim, index, resent.kind, resent.len);
            commit();
            no_invention::sent_again(seat.rank, subgroup, frame.number, frame.fate, fate)?;
            self.wake(seat);
        }
        Ok(true)
    }

    /// Makes the consumers at `seat` begin where those of the view before end.
    fn line_up_consumers(&mut self, seat: Seat, from: Option<Seat>) {
        let Some(from) = from else { return };
        for i in 0..self.stages[seat.stage].consumers.len() {
            let consumer = &self.stages[seat.stage].consumers[i];
            if consumer.member != seat.rank {
                continue;
            }
            let id = consumer.subgroup;
            let Some(from) = self.home(from, id) else { continue };
            let is_before = |old: &crate::apps::Consumer| old.member == from.rank && old.subgroup == id;
            let Some(old) = self.stages[from.stage].consumers.iter().position(is_before) else { continue };
            self.stages[seat.stage].consumers[i].behind = Some((from.stage, old));
            if self.stages[from.stage].consumers[old].at_end {
                self.follow(seat.stage, i);
            }
        }
    }

    /// Starts a consumer after the one before it has delivered all messages of its view.
    pub(super) fn follow(&mut self, stage: usize, i: usize) {
        let (before, old) = self.stages[stage].consumers[i].behind.take().expect("there is one before it");
        let [old_stage, new_stage] = self.stages.get_disjoint_mut([before, stage]).expect("two stages");
        let consumer = &mut new_stage.consumers[i];
        let (rank, id) = (consumer.member, consumer.subgroup);
        let old = &old_stage.consumers[old].cursor;
        consumer.cursor.follow(old, (&old_stage.view, id), (&new_stage.view, id));
        self.note_since(Seat { stage, rank }, id);
        self.expect_consumer(stage, i);
    }

    /// Returns the members whose rows are final for certain and readable for the member at `seat`.
    /// A row is final if its process is dead or reports so.
    pub(super) fn final_rows(&self, seat: Seat) -> Vec<Rank> {
        let on = &self.stages[seat.stage];
        let rows = &on.tables[seat.rank.index()].rows;
        let is_final = |rank: &Rank| {
            let row = &rows[rank.index()];
            let said = [membership::LEFT, membership::ABANDONED].iter().any(|word| row.word(*word) != 0);
            (said || self.is_proven_dead(seat.stage, *rank)) && !self.is_absent(seat, *rank)
        };
        on.view.ranks().filter(is_final).collect()
    }

    /// Returns true if the host reports to all members that this process is dead.
    pub(super) fn is_proven_dead(&self, stage: usize, rank: Rank) -> bool {
        let life = self.processes[self.stages[stage].cast[rank.index()]].life;
        matches!(life, ProcessLife::Crashed | ProcessLife::Evicted) && self.plan.visibility == Visibility::Shared
    }
}
