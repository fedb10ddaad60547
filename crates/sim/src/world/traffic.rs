//! The effects of engines and applications on memory, on their way to the other members.
use super::stage::WordMeaning;
use super::{Event, World};
use crate::actions::InstallStep;
use crate::checkers::{Checked, Violation, monotone};
use crate::options::Visibility;
use crate::seat::Seat;
use crate::table::{TableAction, Travel};
use spindle_core::{Rank, SubgroupId};
use std::ops::Range;

impl World<'_> {
    /// Carries the stores and posts of an engine, as long as its process lives. Returns how many
    /// stores and posts it carried, and how many of them were posts.
    pub(super) fn carry(&mut self, seat: Seat, actions: &[TableAction]) -> Result<(usize, u64), Violation> {
        let process = self.process_of(seat);
        let mut posts = 0;
        for (carried, action) in actions.iter().enumerate() {
            if let Some(doom) = &mut self.processes[process].doom {
                if doom.actions == 0 {
                    self.crash(process);
                    return Ok((carried, posts));
                }
                doom.actions -= 1;
            }
            match action {
                TableAction::Store { at, value } => self.stored(seat, *at, *value)?,
                TableAction::Post { quiet: true, .. } if self.plan.visibility == Visibility::Shared => {}
                TableAction::Post { peers, range, copied, .. } => {
                    posts += 1;
                    self.posted(seat, *peers, range, *copied);
                }
                TableAction::Wake { peers } if self.plan.visibility == Visibility::Shared => {
                    self.rung(seat, *peers, true);
                }
                // Each post wakes the peer when it arrives.
                TableAction::Wake { .. } => {}
            }
        }
        if self.processes[process].doom.is_some_and(|doom| doom.actions == 0 || doom.last_poll) {
            self.crash(process);
        }
        Ok((actions.len(), posts))
    }

    fn stored(&mut self, seat: Seat, at: u64, value: u64) -> Checked {
        let rank = seat.rank;
        self.outcome.counts.stores += 1;
        self.hash.add(at ^ u64::from(rank.0) << 48);
        self.hash.add(value);
        let stage = &mut self.stages[seat.stage];
        if at >= stage.layout.row(rank).control {
            let groups = (0..).map(SubgroupId).zip(&mut stage.ledger.groups);
            let mut mine = groups.filter_map(|(id, group)| Some((id, group.sender_rank(rank)?, group)));
            let within =
                |lane: &crate::ledger::SenderFrames| (lane.ring.at..lane.ring.at + lane.ring.size()).contains(&at);
            if let Some((_, sender, group)) = mine.find(|(_, sender, group)| within(&group.lanes[*sender])) {
                monotone::stamped(&group.lanes[sender], at)?;
            }
        } else {
            let word = stage.member(rank).words[at as usize / 8];
            if word == WordMeaning::Proposal {
                stage.monotone.replaced(rank, at, value);
                self.spread(seat, at, value);
                return Ok(());
            }
            if word == WordMeaning::Suspected {
                let before = stage.monotone.newest(rank, at);
                stage.monotone.replaced(rank, at, value);
                self.last_change = self.last_change.max(self.now);
                let whom: Vec<String> =
                    (0..64).filter(|bit| value >> bit & 1 == 1).map(|bit| format!("m{bit}")).collect();
                note!(self, "{seat} suspects [{}]", whom.join(" "));
                if value & !before != 0 {
                    self.took(seat, InstallStep::Suspects);
                }
                self.spread(seat, at, value);
                return Ok(());
            }
            let before = stage.monotone.stored(rank, rank, at, value)?;
            if word != WordMeaning::Heartbeat {
                self.last_change = self.last_change.max(self.now);
            }
            match word {
                WordMeaning::Membership(name, step) => {
                    note!(self, "{seat} is {name}");
                    if let Some(step) = step.filter(|_| value != before) {
                        self.took(seat, step);
                    }
                }
                WordMeaning::Promised => {
                    stage.primary.promised(rank, value & !1);
                    note!(self, "{seat} promises {}", ballot(value));
                }
                WordMeaning::Accepted => {
                    stage.primary.accepted(rank, value & !1)?;
                    note!(self, "{seat} accepts {}", ballot(value));
                    self.took(seat, InstallStep::Adopts);
                }
                WordMeaning::Decided => {
                    note!(self, "{seat} knows that {} is decided", ballot(value));
                    let dead = self.final_rows(seat);
                    self.stages[seat.stage].primary.decided(rank, value & !1, |rank| dead.contains(&rank))?;
                    self.took(seat, InstallStep::Decides);
                }
                WordMeaning::Heartbeat | WordMeaning::Proposal | WordMeaning::Suspected => {}
                WordMeaning::Entry(id, name) => {
                    if name != "delivered" {
                        note!(self, "{seat} s{id} {name} {before} -> {value}");
                    }
                    let group = &mut stage.ledger.groups[id.index()];
                    match (name, group.sender_rank(rank)) {
                        ("published", Some(sender)) => {
                            let row = &stage.tables[rank.index()].rows[rank.index()];
                            let lane = &mut group.lanes[sender];
                            let count = monotone::announced(lane, value, |at| row.word(at))?;
                            for frame in &lane.frames[lane.announced - count..lane.announced] {
                                stage.null_rule.stamped(id, sender, frame.round.expect("announced"))?;
                            }
                        }
                        ("rounds", Some(sender)) => stage.null_rule.announced(group, id, sender, value)?,
                        _ => {}
                    }
                }
                // `believe` checks them after the deliveries.
                WordMeaning::BySender(..) | WordMeaning::Unused => {}
            }
        }
        self.spread(seat, at, value);
        Ok(())
    }

    /// Sends a store to every peer separately, in shared memory.
    pub(super) fn spread(&mut self, seat: Seat, at: u64, value: u64) {
        if self.plan.visibility == Visibility::Posted {
            return;
        }
        let Seat { stage, rank } = seat;
        for peer in self.stages[stage].view.ranks().filter(|peer| *peer != rank) {
            let due = self.next_moment(seat, peer);
            self.stages[stage].tables[peer.index()].expect_word(rank, at, value, due);
            self.schedule(seat, peer);
        }
    }

    /// Returns the longest time of a post from `seat` to `peer`.
    fn link_ns(&self, seat: Seat, peer: Rank) -> u64 {
        let cast = &self.stages[seat.stage].cast;
        self.plan.link_ns[cast[seat.rank.index()]][cast[peer.index()]]
    }

    /// Returns when `peer` sees the next store of `seat`: mostly together with the store before it,
    /// now and then later.
    fn next_moment(&mut self, seat: Seat, peer: Rank) -> u64 {
        let table = &self.stages[seat.stage].tables[peer.index()];
        let due = table.inbound[seat.rank.index()].borrow().due.max(self.now);
        if !self.random.one_in(4) {
            return due;
        }
        let slow = self.link_ns(seat, peer);
        let most = if self.plan.faults.delayed_posts && self.random.one_in(64) {
            self.outcome.counts.faults += 1;
            20_000
        } else {
            slow / 10
        };
        due + self.random.range(1, most)
    }

    fn posted(&mut self, seat: Seat, peers: u64, range: &Range<u64>, copied: usize) {
        let Seat { stage, rank } = seat;
        if self.plan.visibility == Visibility::Shared {
            let is_of_membership = self.stages[stage].tables[rank.index()].is_of_membership(range);
            return self.rung(seat, peers, is_of_membership);
        }
        for peer in self.stages[stage].view.ranks().filter(|peer| *peer != rank && peers >> peer.0 & 1 == 1) {
            let faults = self.plan.faults;
            let longest = self.link_ns(seat, peer);
            let mut due = self.now + self.random.range(longest / 4, longest);
            if faults.delayed_posts && self.random.one_in(16) {
                due += self.random.range(5_000, 100_000);
                self.outcome.counts.faults += 1;
            }
            let torn = faults.tearing && self.random.one_in(2);
            let steps = if torn { self.random.range(2, 4) } else { 1 };
            let merge = faults.merged_posts && self.random.one_in(2);
            let travel = Travel { due, steps, salt: self.random.word(), merge, since: u64::MAX };
            let [from, to] = self.stages[stage].pair(rank, peer);
            let merged = to.expect_post(from, range, copied, travel);
            self.outcome.counts.faults += u64::from(merged) + u64::from(torn);
            self.schedule(seat, peer);
        }
    }

    /// Rings the doorbells of `peers` in shared memory, and marks before that words of the
    /// membership block have changed.
    fn rung(&mut self, seat: Seat, peers: u64, moved: bool) {
        let Seat { stage, rank } = seat;
        for peer in self.stages[stage].view.ranks().filter(|peer| *peer != rank && peers >> peer.0 & 1 == 1) {
            if moved {
                let due = self.next_moment(seat, peer);
                self.stages[stage].tables[peer.index()].expect_moved(rank, due);
            }
            let due = self.next_moment(seat, peer);
            self.stages[stage].tables[peer.index()].expect_event_count(rank, due);
            self.schedule(seat, peer);
        }
    }

    /// Schedules an event for the data in flight from `owner` to `peer`.
    pub(super) fn schedule(&mut self, owner: Seat, peer: Rank) {
        let Seat { stage, rank: owner } = owner;
        let is_there = self.stages[stage].members[peer.index()].is_some();
        let table = &self.stages[stage].tables[peer.index()];
        let mut link = table.inbound[owner.index()].borrow_mut();
        if link.cut || !is_there || link.is_empty() {
            return;
        }
        if !std::mem::replace(&mut link.scheduled, true) {
            drop(link);
            let due = table.next_due(owner).expect("something is on the way");
            self.push(due.max(self.now), Event::Land { stage, owner, peer });
        }
    }

    pub(super) fn land(&mut self, stage: usize, owner: Rank, peer: Rank) -> Checked {
        let gap = self.random.range(20, 3_000);
        let link = &self.stages[stage].tables[peer.index()].inbound[owner.index()];
        if link.borrow().cut {
            link.borrow_mut().scheduled = false;
            return Ok(());
        }
        let now = self.now;
        let [from, to] = self.stages[stage].pair(owner, peer);
        let landed = to.land(from, now, gap);
        to.inbound[owner.index()].borrow_mut().scheduled = landed.next.is_some();
        self.went_back(stage, peer)?;
        if let Some(next) = landed.next {
            self.push(next, Event::Land { stage, owner, peer });
        }
        if landed.woken {
            let seat = Seat { stage, rank: peer };
            note!(self, "{seat} <- m{owner} arrives");
            self.wake(seat);
        }
        Ok(())
    }

    pub(super) fn went_back(&mut self, stage: usize, holder: Rank) -> Checked {
        match self.stages[stage].tables[holder.index()].went_back.take() {
            Some((owner, at, before, now)) => monotone::went_back(holder, owner, at, before, now),
            None => Ok(()),
        }
    }
}

/// Returns a ballot as text for the trace: its round and its leader.
fn ballot(word: u64) -> String {
    format!("ballot {}.m{}", word >> 32, ((word as u32) >> 1).wrapping_sub(1))
}
