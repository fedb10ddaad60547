//! The checks at the end, when no event is left: one group works, or no set of members could form
//! one.
use super::stage::Stage;
use super::{Event, ProcessLife, ViewProcess, World};
use crate::checkers::Checked;
use crate::checkers::{liveness, no_storms, null_rule, validity};
use crate::seat::Seat;
use spindle_core::wire::layout::membership;
use spindle_core::{Rank, State, SubgroupId};

impl World<'_> {
    /// Checks the state when no event is left. Returns the stage with the working group, if there
    /// is one.
    pub(super) fn check_rest(&mut self) -> Result<Option<usize>, crate::checkers::Violation> {
        no_storms::views(self.outcome.counts.views, self.outcome.counts.reasons)?;
        let last = self.stages.iter().rposition(|stage| stage.members.iter().any(Option::is_some)).unwrap_or(0);
        let (mut live, mut blocked) = (None, false);
        for process in 0..self.processes.len() {
            let Some(seat) = self.processes[process].seat.filter(|_| self.is_member(process)) else { continue };
            let member = self.stages[seat.stage].member(seat.rank);
            if member.finished {
                continue;
            }
            match self.rest_of(seat) {
                MemberRest::Works if seat.stage == last => live = Some(last),
                MemberRest::Works => return liveness::stuck(seat, "works in a view that others have ended".into()),
                MemberRest::Blocked => blocked = true,
                MemberRest::Stuck(why) => return liveness::stuck(seat, why),
            }
        }
        self.outcome.blocked = blocked && live.is_none();
        self.check_survival(last, live)?;
        let Some(stage) = live else { return Ok(None) };
        for process in 0..self.processes.len() {
            let ViewProcess { life, leaving, seat, .. } = self.processes[process];
            // A member that is blocked in an older view can't know that the others have evicted it.
            let is_there = seat.is_some_and(|seat| seat.stage == stage);
            if life == ProcessLife::Asking {
                return liveness::never_admitted(self.plan.members[process].id);
            }
            if life == ProcessLife::Member && leaving && is_there {
                return liveness::never_let_go(self.plan.members[process].id);
            }
        }
        for (id, home) in self.homes(stage) {
            liveness::at_rest(id, &self.stages[home].ledger.groups[id.index()])?;
            self.check_logs_at_rest(home, id)?;
        }
        self.check_validity(stage)?;
        self.compare_copies(stage)?;
        Ok(live)
    }

    /// Checks that members that were separated from a majority do not end it.
    fn check_survival(&self, last: usize, live: Option<usize>) -> Checked {
        for (process, member) in self.plan.members.iter().enumerate() {
            let ViewProcess { life, seat, .. } = self.processes[process];
            let Some(_) = seat.filter(|_| life == ProcessLife::Evicted && self.plan.leaves_alone(process)) else {
                continue;
            };
            let was_cut = self.plan.cuts().any(|(_, from, to)| from == process || to == process);
            if !was_cut {
                return liveness::evicted_for_nothing(member.id);
            }
        }
        // A member that stays behind can't know a later view, so its own view counts for it.
        let stages = self.processes.iter().filter_map(|process| Some(process.seat?.stage)).chain([last]);
        let has_finished =
            self.stages[last].members.iter().flatten().any(|member| *member.engine.state() == State::Finished);
        match live.is_none() && !has_finished && stages.into_iter().all(|stage| self.has_sound_majority(stage)) {
            true => liveness::lost(self.stages[last].cast.len()),
            false => Ok(()),
        }
    }

    /// Returns true if more than half of the members of a view live, were never disturbed, and
    /// always heard each other. If links are lost at different times, the first loss may evict a
    /// member that a majority needs after the second loss.
    fn has_sound_majority(&self, stage: usize) -> bool {
        let cast = &self.stages[stage].cast;
        let sound: Vec<usize> = cast.iter().copied().filter(|process| self.plan.leaves_alone(*process)).collect();
        let mut cuts = self.plan.cuts();
        let at_once = cuts.next().is_none_or(|(first, ..)| cuts.all(|(when, ..)| when == first));
        let cuts = self.plan.cuts().map(|(_, from, to)| (from, to));
        let between = cuts.filter(|(from, to)| sound.contains(from) && sound.contains(to));
        at_once && survive_without(&between.collect::<Vec<_>>(), sound.len(), cast.len() / 2 + 1)
    }

    /// Returns the state of a member that has not finished.
    fn rest_of(&self, seat: Seat) -> MemberRest {
        let stage = &self.stages[seat.stage];
        let engine = &stage.member(seat.rank).engine;
        let at = |whom: Rank| membership::SUSPECTED + u64::from(whom.0) / 64 * 8;
        let has = |word: u64, whom: Rank| word >> (whom.0 % 64) & 1 == 1;
        let suspects = |rank: &Rank| {
            let mine = has(stage.monotone.newest(seat.rank, at(*rank)), *rank);
            let row = &stage.tables[seat.rank.index()].rows[rank.index()];
            // A member that suspects this one does not hear it.
            mine || (*rank != seat.rank && has(row.word(at(seat.rank)), seat.rank))
        };
        let here = |rank: &Rank| self.is_at(Seat { rank: *rank, ..seat });
        let with_me: Vec<Rank> = stage.view.ranks().filter(|rank| !suspects(rank)).collect();
        let missing = with_me.iter().copied().find(|rank| !here(rank));
        if !engine.is_changing() {
            return match missing {
                Some(rank) => MemberRest::Stuck(format!("goes on with m{rank}, which is not there any more")),
                None => MemberRest::Works,
            };
        }
        let is_enough = |with: &[Rank]| {
            let voters = with.iter().filter(|rank| stage.view.is_voter(**rank)).count();
            let dead =
                self.final_rows(seat).into_iter().filter(|rank| stage.view.is_voter(*rank) && !with.contains(rank));
            2 * voters + dead.count() > stage.view.members.len() - stage.view.nonvoters.len()
        };
        // No view contains two members if one does not hear the other.
        let strained = |one: Rank, other: Rank| has(stage.monotone.newest(one, at(other)), other);
        let with_me = largest_without(&with_me, &|one, other| strained(one, other) || strained(other, one));
        match missing {
            _ if !is_enough(&with_me) && self.is_majority_connected(seat, is_enough) => {
                MemberRest::Stuck("does not go on, although a majority lives and is connected".into())
            }
            _ if !is_enough(&with_me) && !engine.is_blocked() => {
                MemberRest::Stuck("is blocked, and does not say so".into())
            }
            _ if !is_enough(&with_me) => MemberRest::Blocked,
            Some(rank) => {
                MemberRest::Stuck(format!("waits for m{rank}, which is not there any more, and does not suspect it"))
            }
            None => MemberRest::Stuck("is wedged although a quorum is there".into()),
        }
    }

    /// Returns true if the process of `seat` is a member, and in that view.
    fn is_at(&self, seat: Seat) -> bool {
        let process = self.stages[seat.stage].cast[seat.rank.index()];
        self.is_member(process) && self.processes[process].seat == Some(seat)
    }

    /// Returns true if the members that are in the view of `seat` can all hear each other, and are
    /// enough. Only a heartbeat ends a suspicion.
    fn is_majority_connected(&self, seat: Seat, is_enough: impl Fn(&[Rank]) -> bool) -> bool {
        let stage = &self.stages[seat.stage];
        let here: Vec<Rank> = stage.view.ranks().filter(|rank| self.is_at(Seat { rank: *rank, ..seat })).collect();
        let process = |rank: Rank| stage.cast[rank.index()];
        let hears = |one: Rank, other: Rank| {
            let to = Seat { rank: other, ..seat };
            one == other || (!self.cuts.contains_key(&(process(one), process(other))) && !self.is_absent(to, one))
        };
        let all_hear = here.iter().all(|one| here.iter().all(|other| hears(*one, *other)));
        self.plan.suspect_after_ns.is_some() && all_hear && is_enough(&here)
    }

    /// Returns the subgroups of the view of `stage`, each with the stage with which its epoch
    /// began.
    fn homes(&self, stage: usize) -> Vec<(SubgroupId, usize)> {
        let view = &self.stages[stage].view;
        let home = |id| (view.epoch(id).0 - self.plan.view.id.0) as usize;
        (0..view.subgroups.len() as u32).map(SubgroupId).map(|id| (id, home(id))).collect()
    }

    /// Checks that the messages of survivors have been delivered.
    fn check_validity(&self, stage: usize) -> Checked {
        for (id, home) in self.homes(stage) {
            let on = &self.stages[home];
            let group = &on.ledger.groups[id.index()];
            for lane in &group.lanes {
                let sender = on.cast[lane.sender.index()];
                let sent = self.history.sent(sender, id);
                let name = on.view.members[lane.sender.index()];
                validity::delivered(name, id, sent)?;
                for receiver in &group.members {
                    let process = on.cast[receiver.index()];
                    if let Some(next) = self.history.next(process, id, sender) {
                        validity::reached(on.view.members[receiver.index()], name, id, next, sent)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Closes all claims, so that the working group finishes.
    pub(super) fn close_all(&mut self, stage: usize) {
        note!(self, "-- claims are closed");
        self.last_change = self.last_change.max(self.now);
        for (id, stage) in self.homes(stage) {
            for sender in 0..self.stages[stage].ledger.groups[id.index()].lanes.len() {
                let at = self.now + self.random.below(20_000);
                let rank = self.stages[stage].ledger.lane(id, sender).sender;
                self.push(at, Event::Close(Seat { stage, rank }, id));
            }
        }
    }

    /// Polls all members at rest.
    pub(super) fn poke(&mut self, stage: usize) -> Checked {
        note!(self, "-- at rest: each member is polled, and none may find work");
        for _ in 0..3 {
            for rank in self.stages[stage].view.clone().ranks() {
                let newest = Seat { stage, rank };
                for seat in self.older_seats(newest).into_iter().chain([newest]) {
                    let (worked, posts) = self.poll(seat)?;
                    null_rule::at_rest(rank, worked, posts)?;
                }
            }
        }
        self.drain()
    }

    /// Checks that all running members have finished. Events in progress when the group came to
    /// rest may have changed the view once more.
    pub(super) fn check_end(&self) -> Checked {
        let seats =
            || self.processes.iter().filter(|process| process.life == ProcessLife::Member).filter_map(|it| it.seat);
        let last = seats().map(|seat| seat.stage).max().unwrap_or(0);
        for seat in seats().filter(|seat| seat.stage == last) {
            liveness::ended(seat.rank, self.stages[last].member(seat.rank).engine.state())?;
        }
        self.compare_copies(last)
    }

    /// Checks, at rest, that every peer's copy of every word that concerns it is the value that its
    /// owner stored last.
    pub(super) fn compare_copies(&self, stage: usize) -> Checked {
        for owner in self.stages[stage].view.ranks() {
            for peer in self.stages[stage].view.ranks() {
                let common = (membership::ASLEEP..membership::LEFT + 8).step_by(8);
                self.compare_words(stage, owner, peer, common)?;
            }
        }
        for (id, home) in self.homes(stage) {
            let Stage { view, layout, .. } = &self.stages[home];
            let members = &view.subgroups[id.index()].members;
            for (owner, peer) in members.iter().flat_map(|owner| members.iter().map(move |peer| (*owner, *peer))) {
                let place = layout.row(owner).subgroup(id).expect("a member of the subgroup has a place for it");
                self.compare_words(home, owner, peer, (place.entry..place.end).step_by(8))?;
            }
        }
        Ok(())
    }

    fn compare_words(&self, stage: usize, owner: Rank, peer: Rank, words: impl Iterator<Item = u64>) -> Checked {
        let Stage { tables, monotone, .. } = &self.stages[stage];
        for at in words {
            let copy = tables[peer.index()].rows[owner.index()].word(at);
            liveness::copied(peer, owner, at, copy, monotone.newest(owner, at))?;
        }
        Ok(())
    }
}

/// Returns the largest set of `members` in which no two are `strained`.
fn largest_without(members: &[Rank], strained: &impl Fn(Rank, Rank) -> bool) -> Vec<Rank> {
    let pairs = members.iter().flat_map(|one| members.iter().map(move |other| (*one, *other)));
    let Some((one, other)) = pairs.into_iter().find(|(one, other)| one < other && strained(*one, *other)) else {
        return members.to_vec();
    };
    let without = |out: Rank| members.iter().copied().filter(|rank| *rank != out).collect::<Vec<_>>();
    let rests = [one, other].map(|out| largest_without(&without(out), strained));
    let [first, second] = rests;
    if first.len() >= second.len() { first } else { second }
}

/// Returns true if `wanted` of `count` members can be left when one of each pair in `cuts` is
/// removed.
fn survive_without(cuts: &[(usize, usize)], count: usize, wanted: usize) -> bool {
    if count < wanted {
        return false;
    }
    let Some(&(one, other)) = cuts.first() else { return true };
    [one, other].iter().any(|out| {
        let rest: Vec<(usize, usize)> = cuts.iter().copied().filter(|(from, to)| from != out && to != out).collect();
        survive_without(&rest, count - 1, wanted)
    })
}

/// The state of a member when no event is left.
enum MemberRest {
    /// It could work, with all members of its view.
    Works,
    /// Too few members are in contact with it.
    Blocked,
    Stuck(String),
}
