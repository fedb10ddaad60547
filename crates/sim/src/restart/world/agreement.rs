//! The model of the agreement that ends a view: members accept a proposed view in memory at once, and their
//! votes count once they are on their disks.
use super::{RecordWrite, RestartBroken, RestartWorld};
use spindle_core::{Ballot, Process, Rank, View};
use std::collections::{BTreeMap, BTreeSet};

/// A proposed view.
#[derive(Clone, Debug)]
pub(super) struct ProposedView {
    pub(super) next: View,
    pub(super) processes: Vec<Process>,
    /// Members that come from the view before, by nonce.
    pub(super) stays: BTreeSet<u32>,
    /// By log, the number of messages of the group at the end of the epoch, if it ends where messages are
    /// delivered once they are durable.
    pub(super) ends: Vec<Option<usize>>,
}

/// The votes of the members of a view, by nonce.
#[derive(Clone, Debug, Default)]
pub(super) struct Votes {
    /// Each ballot has the value of the one at its index.
    pub(super) proposed: Vec<ProposedView>,
    /// The newest accepted ballot of each member.
    accepted: BTreeMap<u32, usize>,
    /// The newest ballot on the disk of each member, as the others read it.
    on_disk: BTreeMap<u32, usize>,
}

/// The members that hear each other, and others that they know to be dead, by nonce.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) heard: BTreeSet<u32>,
    pub(super) dead: BTreeSet<u32>,
}

impl Side {
    fn sees(&self, nonce: u32) -> bool {
        self.heard.contains(&nonce) || self.dead.contains(&nonce)
    }
}

impl RestartWorld<'_> {
    /// True if all voters of a side have accepted the newest ballot, which may be decided soon.
    pub(super) fn is_voting(&self, view: usize, side: &Side) -> bool {
        let votes = &self.views[view].votes;
        let newest = votes.proposed.len().checked_sub(1);
        newest.is_some()
            && self.voters(view).all(|it| !side.heard.contains(&it) || votes.accepted.get(&it) == newest.as_ref())
    }

    fn voters(&self, view: usize) -> impl Iterator<Item = u32> {
        let group = &self.views[view];
        let votes = |process: &&Process| group.view.rank_of(process.id).is_some_and(|rank| group.view.is_voter(rank));
        group.processes.iter().filter(votes).map(|process| process.nonce)
    }

    /// The view that this side finds to be decided.
    pub(super) fn decided(&self, view: usize, side: &Side) -> Option<ProposedView> {
        let votes = &self.views[view].votes;
        let early = self.is_broken(RestartBroken::VotesUnwritten);
        let on_disk = if early { &votes.accepted } else { &votes.on_disk };
        let is_decided = |ballot: &usize| {
            let has_voted = |it: &u32| side.sees(*it) && on_disk.get(it) == Some(ballot);
            let is_silent =
                |it: &u32| side.dead.contains(it) && !has_voted(it) && votes.accepted.get(it) <= Some(ballot);
            let (with, dead) =
                (self.voters(view).filter(has_voted).count(), self.voters(view).filter(is_silent).count());
            2 * with + dead > self.voters(view).count()
        };
        (0..votes.proposed.len()).rev().find(is_decided).map(|ballot| votes.proposed[ballot].clone())
    }

    /// The ballot of the newest value that a member of this side has accepted.
    pub(super) fn known(&self, view: usize, side: &Side) -> Option<usize> {
        let accepted = self.views[view].votes.accepted.iter();
        accepted.filter(|(nonce, _)| side.sees(**nonce)).map(|(_, ballot)| *ballot).max()
    }

    /// Proposes a view under a new ballot: the newest value that a member of this side has accepted, or
    /// `value`.
    pub(super) fn propose(&mut self, view: usize, side: &Side, value: ProposedView) {
        let votes = &mut self.views[view].votes;
        let known = votes.accepted.iter().filter(|(nonce, _)| side.sees(**nonce)).map(|(_, ballot)| *ballot).max();
        let value = known.map_or(value, |ballot| votes.proposed[ballot].clone());
        votes.proposed.push(value.clone());
        let ballot = votes.proposed.len() - 1;
        self.note(|| format!("ballot {ballot}: view {:x} is proposed: {:?}", value.next.id.0, value.processes));
        let hosts = self.hosts_of(&value.processes);
        for nonce in self.voters(view).filter(|it| side.heard.contains(it)).collect::<Vec<_>>() {
            self.views[view].votes.accepted.insert(nonce, ballot);
            if !self.scene.votes_on_disk {
                self.views[view].votes.on_disk.insert(nonce, ballot);
                continue;
            }
            let seat = self.places[&nonce].0;
            let Some(running) = self.running(seat, nonce) else { continue };
            let Some(mut record) = running.record.clone() else { continue };
            record.accept(Ballot { round: ballot as u32 + 1, leader: Rank(0) }, value.next.clone(), hosts.clone());
            running.record = Some(record.clone());
            self.write(seat, record, RecordWrite::Vote { view, ballot });
        }
    }

    /// The vote of a member is on its disk.
    pub(super) fn voted(&mut self, view: usize, ballot: usize, nonce: u32) {
        self.outcome.counts.votes += 1;
        let newest = self.views[view].votes.on_disk.entry(nonce).or_default();
        *newest = ballot.max(*newest);
    }

    /// The hosts of processes, as records contain them.
    pub(super) fn hosts_of(&self, processes: &[Process]) -> Vec<u128> {
        processes.iter().map(|process| self.host_of(self.places[&process.nonce].0)).collect()
    }

    /// The host of a seat, as records contain it.
    pub(super) fn host_of(&self, seat: usize) -> u128 {
        // 0: unknown.
        if self.scene.votes_on_disk { u128::from(self.seats[seat].host) + 1 } else { 0 }
    }
}
