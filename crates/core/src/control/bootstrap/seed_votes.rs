//! The answers of the seeds, and the quorum that they form.
//!
//! A seed votes only with a process that has the same list of seeds, and each process has one vote,
//! however many seeds it is.
use super::{
    Bootstrap, BootstrapMessage, BootstrapWaiter, FRESH_FOR, Incarnation, STAGGER, SeedState, To, WAITERS_MAX,
};
use crate::ids::{MemberId, Process, Time};
use crate::mutation::mutation;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The seeds, as this process knows them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeedList {
    /// The number of seeds; 0 if it is not known.
    pub count: u32,
    /// The indices of the seeds that are this process.
    pub own: BTreeSet<u32>,
    /// The digest of the list; 0 if it is not certain, so that no vote takes place.
    pub digest: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SeedSlot {
    pub(super) id: Option<MemberId>,
    pub(super) answered: Option<(Time, SeedAnswer)>,
    pub(super) failed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SeedAnswer {
    pub(super) seeds: u64,
    pub(super) durable: bool,
    pub(super) state: SeedState,
}

impl Bootstrap {
    /// Takes in the list of seeds.
    pub fn set_seeds(&mut self, seeds: SeedList, now: Time) {
        self.at(now);
        if self.seeds != seeds {
            self.give_up_attempt();
            if (self.seeds.count, self.seeds.digest) != (seeds.count, seeds.digest) {
                self.slots.clear();
            }
            let stagger = u64::from(seeds.own.first().copied().unwrap_or(0)) * STAGGER;
            self.not_before = self.not_before.max(Time(now.0 + stagger));
            self.seeds = seeds;
            self.hello_at = now;
        }
    }

    /// Notes that the process with this id is at a seed's address: a connection was opened.
    pub fn reached(&mut self, seed: u32, id: MemberId, now: Time) {
        self.at(now);
        self.teller().reached(seed, id);
        let slot = self.slots.entry(seed).or_default();
        if slot.id.replace(id) != Some(id) {
            slot.answered = None;
            self.hello_at = now;
        }
        slot.failed = false;
    }

    /// Notes that a seed can't be reached at present, which is no answer.
    pub fn not_reached(&mut self, seed: u32, now: Time) {
        self.at(now);
        self.teller().not_reached(seed);
        self.slots.entry(seed).or_default().failed = true;
    }

    /// Takes in the message of a process that looks for the group.
    pub(super) fn hear_hello(&mut self, from: Process, belongs: Option<Incarnation>) {
        if self.waiters.len() < WAITERS_MAX || self.waiters.contains_key(&from.id) {
            let is_free = belongs.is_none();
            self.waiters.insert(from.id, BootstrapWaiter { process: from, heard: self.now, is_free });
        }
        if self.waiters.len() == WAITERS_MAX {
            let now = self.now;
            self.waiters.retain(|_, waiter| now.0 < waiter.heard.0 + FRESH_FOR);
        }
        // All members that have begun may have died before one of them reached the sender.
        let decided = self.record.accepted.as_ref().filter(|(_, it)| Some(it.incarnation) == self.record.belongs);
        if let Some((_, initial_view)) = decided.filter(|(_, initial_view)| initial_view.members.contains(&from)) {
            let initial_view = initial_view.clone();
            return self.send(To::Process(from), BootstrapMessage::Decided { initial_view, cards: Vec::new() });
        }
        // A process that can't reach the members learns of them from processes that can.
        let belongs = self.known_group().or(self.record.belongs);
        let (seeds, durable) = (self.seeds.digest, self.setup.durable);
        self.send(To::Process(from), BootstrapMessage::Here { seeds, durable, belongs });
    }

    pub(super) fn note_answer(&mut self, from: Process, answer: SeedAnswer) {
        let now = self.now;
        for slot in self.slots.values_mut().filter(|slot| slot.id == Some(from.id)) {
            (slot.answered, slot.failed) = (Some((now, answer)), false);
        }
    }

    pub(super) fn is_fresh(&self, at: Time) -> bool {
        self.now.0 < at.0 + FRESH_FOR
    }

    pub(super) fn state_of(&self, seed: u32) -> SeedState {
        if self.seeds.own.contains(&seed) {
            return SeedState::Own;
        }
        let Some(slot) = self.slots.get(&seed) else { return SeedState::Silent };
        match slot.answered {
            Some((at, answer)) if self.is_fresh(at) || mutation!(OldAnswersCount) => match answer.state {
                SeedState::Answers if answer.seeds != self.seeds.digest => SeedState::Unlike,
                state => state,
            },
            _ if slot.failed => SeedState::Unreachable,
            _ => SeedState::Silent,
        }
    }

    /// Returns `None` if the seed takes no part, and otherwise whether its votes are durable.
    pub(super) fn vote_of(&self, seed: u32) -> Option<bool> {
        match self.state_of(seed) {
            SeedState::Own => Some(self.setup.durable),
            SeedState::Answers => {
                Some(self.slots.get(&seed).and_then(|slot| slot.answered).is_some_and(|(_, answer)| answer.durable))
            }
            _ => mutation!(SilenceIsAnAnswer).then_some(false),
        }
    }

    /// True if all seeds take part, or more than half of them durably.
    pub(super) fn has_quorum(&self, vote: impl Fn(u32) -> Option<bool>) -> bool {
        let count = self.seeds.count as usize;
        let votes: Vec<bool> = (0..self.seeds.count).filter_map(vote).collect();
        let durable = votes.iter().filter(|durable| **durable).count();
        let durable = if mutation!(AnyMajority) { votes.len() } else { durable };
        count > 0 && (votes.len() == count || 2 * durable > count)
    }

    /// True if the seeds that have voted in an attempt are a quorum.
    pub(super) fn is_quorum(&self, voted: &BTreeMap<MemberId, bool>) -> bool {
        self.has_quorum(|seed| {
            let own = self.seeds.own.contains(&seed).then_some(self.setup.me.id);
            let id = own.or_else(|| self.slots.get(&seed)?.id);
            let vote = id.and_then(|id| voted.get(&id).copied());
            vote.or_else(|| mutation!(SilenceIsAnAnswer).then_some(false))
        })
    }
}
