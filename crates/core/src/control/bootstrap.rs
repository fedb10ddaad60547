//! Bootstrap of a group that spans hosts: one process's decisions to create the group, or to find
//! the existing one.
//!
//! Seeds vote on an [`InitialView`]: an incarnation with the processes of its first view. The
//! protocol is Paxos for one decision. A quorum is a majority of the seeds whose votes are on disk,
//! or all seeds. Any two quorums have a seed in common. That seed remembers its vote, unless its
//! votes are not on disk and it was restarted. So a group has one incarnation (INV-18 of the
//! simulator), with two exceptions: all seeds without disk are restarted while others are alive, or
//! an operator decides otherwise.
//!
//! - A process that was a member of a group, or knows that one was created, creates no other: it
//!   looks for that group. A seed that has voted helps to complete the bootstrap that it voted for.
//! - Silence and a refused connection are no answers.
//! - The first view consists of processes that have acknowledged its incarnation.
//! - Members answer each message of a waiting process with their incarnation, and send it to all
//!   seeds periodically.
//! - [`Bootstrap`] reports what the process waits for when it starts, and whenever that changes.
//!
//! A driver calls the methods for each event. Then it carries out what [`Bootstrap::next_output`]
//! returns, until that is `None`. Messages may be lost, delayed and reordered. Their stated sender
//! must be the true one.
mod attempt;
mod group;
mod message;
mod output;
mod seed_votes;
mod telling;

use crate::ids::{MemberId, Process, Time};
use crate::limits::MEMBERS_MAX;
use crate::mutation::mutation;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use attempt::{Attempt, STAGGER};
pub use message::{BootstrapBallot, BootstrapMessage, BootstrapRecord, Incarnation, InitialView};
pub use output::{BootstrapOutput, BootstrapWait, Need, SeedState, To};
pub use seed_votes::SeedList;
use seed_votes::{SeedAnswer, SeedSlot};
use telling::BootstrapTeller;

const MS: u64 = 1_000_000;
/// The interval at which a process that looks for the group says so.
const HELLO_EVERY: u64 = 250 * MS;

/// How long an answer, or a waiting process, counts.
const FRESH_FOR: u64 = 2_500 * MS;
/// The interval at which a member sends its incarnation to the seeds.
const EXISTS_EVERY: u64 = 1_000 * MS;

/// The interval at which unanswered messages of an attempt are sent again.
const RESEND_EVERY: u64 = 400 * MS;
/// How long an existing group has to answer before an operator's word creates another one.
const WORD_AFTER: u64 = 2_000 * MS;

/// The maximum number of waiting processes that are remembered.
const WAITERS_MAX: usize = 2 * MEMBERS_MAX;

/// The state of a process when it starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// This process.
    pub me: Process,
    /// The number of members that create the group.
    pub members: u32,
    /// Random bits, from which incarnations are derived.
    pub random: u128,
    /// True if records are written to a data directory that was initialised for the bootstrap.
    pub durable: bool,
    /// The record that was found there, or an empty one. [`BootstrapRecord::belongs`] also shows whether the
    /// process was a member before.
    pub record: BootstrapRecord,
}

/// The state machine by which a process finds or creates its group.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    setup: Setup,
    record: BootstrapRecord,
    seeds: SeedList,
    slots: BTreeMap<u32, SeedSlot>,
    now: Time,
    started: Time,
    hello_at: Time,
    /// Processes that look for the group.
    waiters: BTreeMap<MemberId, BootstrapWaiter>,
    /// The group of a member that has sent a message, and when.
    known: Option<(Incarnation, Time)>,
    /// The group of which this process is a member, and its first view if this process was in that
    /// view.
    member: Option<(Incarnation, Option<InitialView>)>,
    attempt: Option<Attempt>,
    /// The number of failed attempts, and the time before which no other begins.
    failures: u32,
    not_before: Time,
    /// The highest known round.
    round: u64,
    /// True if an operator wants a group to be created whatever existed before.
    word: bool,
    conflict: Option<Incarnation>,
    told: Option<BootstrapWait>,
    outputs: VecDeque<(u64, BootstrapOutput)>,
    /// The number of records to write, and of written ones.
    writes: u64,
    written: u64,
}

#[derive(Clone, Copy, Debug)]
struct BootstrapWaiter {
    process: Process,
    heard: Time,
    is_free: bool,
}

impl Bootstrap {
    /// Returns a process that starts now.
    pub fn new(setup: Setup, now: Time) -> Bootstrap {
        let record = setup.record.clone();
        let (seeds, slots, waiters, known, member, attempt) = Default::default();
        let (failures, round, word, conflict, told, outputs, writes, written) = Default::default();
        Bootstrap {
            setup,
            record,
            seeds,
            slots,
            now,
            started: now,
            hello_at: now,
            waiters,
            known,
            member,
            attempt,
            failures,
            not_before: now,
            round,
            word,
            conflict,
            told,
            outputs,
            writes,
            written,
        }
    }

    /// Notes that an operator wants the waiting processes to create a group, whatever existed
    /// before.
    pub fn force_create(&mut self) {
        self.word = true;
    }

    /// Notes that the oldest pending record is written.
    pub fn persisted(&mut self, now: Time) {
        self.at(now);
        self.written += 1;
        self.teller().persisted(&self.record);
        assert!(self.written <= self.writes, "a record was written without a request");
    }

    /// True if everything that this process has promised is written.
    pub fn is_settled(&self) -> bool {
        self.written == self.writes
    }

    /// Returns the promises and votes of this process.
    pub fn record(&self) -> &BootstrapRecord {
        &self.record
    }

    /// Continues at the time [`wake_at`](Self::wake_at).
    pub fn poll(&mut self, now: Time) {
        self.at(now);
        if self.hello_at <= now {
            self.say_hello();
        }
        if self.member.is_none() {
            self.advance();
            self.report();
        }
    }

    /// Returns the time of the next poll.
    pub fn wake_at(&self) -> Time {
        let resend = self.attempt.as_ref().map_or(Time(u64::MAX), |attempt| Time(attempt.sent.0 + RESEND_EVERY));
        let begins = if self.not_before > self.now { self.not_before } else { Time(u64::MAX) };
        self.hello_at.min(resend).min(begins)
    }

    /// Returns the next output. After a record it returns only other records until that record is
    /// [written](Self::persisted).
    pub fn next_output(&mut self) -> Option<BootstrapOutput> {
        loop {
            if self.outputs.front()?.0 > self.written {
                return None;
            }
            match self.outputs.pop_front()?.1 {
                // A message of this process to itself arrives when it would be sent: not before the
                // record is on disk.
                BootstrapOutput::Send { to: To::Process(to), message } if to == self.setup.me => {
                    self.hear(to, message, self.now)
                }
                output => return Some(output),
            }
        }
    }

    /// Takes in a message of another process.
    pub fn hear(&mut self, from: Process, message: BootstrapMessage, now: Time) {
        self.at(now);
        self.teller().heard(from, &message);
        if let Some((incarnation, first)) = self.member.clone() {
            return self.hear_as_member(from, message, incarnation, first);
        }
        match message {
            BootstrapMessage::Hello { belongs, .. } => self.hear_hello(from, belongs),
            BootstrapMessage::Here { seeds, durable, belongs } => {
                let state = belongs.map_or(SeedState::Answers, SeedState::Belongs);
                self.note_answer(from, SeedAnswer { seeds, durable, state });
            }
            BootstrapMessage::Prepare { ballot, seeds } => self.prepare(from, ballot, seeds),
            BootstrapMessage::Promise { ballot, durable, accepted } => {
                self.hear_promise(from, ballot, durable, accepted)
            }
            BootstrapMessage::Behind { promised } => {
                self.round = self.round.max(promised.round);
                if self.attempt.as_ref().is_some_and(|attempt| attempt.ballot < promised) {
                    self.teller().outbid(from, promised);
                    self.fail();
                }
            }
            BootstrapMessage::Invite { incarnation, forced } => self.hear_invite(from, incarnation, forced),
            BootstrapMessage::Pledge { incarnation } => {
                let teller = self.teller();
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.incarnation == incarnation) {
                    teller.pledged(from);
                    attempt.pledged.insert(from.id, from);
                }
            }
            BootstrapMessage::Accept { ballot, seeds, initial_view } => self.accept(from, ballot, seeds, initial_view),
            BootstrapMessage::Accepted { ballot, durable } => {
                let teller = self.teller();
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) {
                    teller.vote_received(from, ballot, durable);
                    attempt.accepted.insert(from.id, durable);
                }
            }
            BootstrapMessage::Decided { initial_view, .. } => {
                self.pass_on(&initial_view);
                self.decided(initial_view);
            }
            // The driver keeps places.
            BootstrapMessage::Places { .. } => {}
            BootstrapMessage::Exists { incarnation } => {
                self.note_answer(from, SeedAnswer { seeds: 0, durable: false, state: SeedState::Member(incarnation) });
                self.exists(incarnation);
            }
        }
        if self.member.is_none() {
            self.advance();
        }
    }

    /// Returns why the process waits.
    pub fn waiting(&self) -> BootstrapWait {
        let seeds: Vec<SeedState> = (0..self.seeds.count).map(|seed| self.state_of(seed)).collect();
        let here = 1 + self.fresh_waiters().count() as u32;
        let missing = self.setup.members.saturating_sub(here);
        let need = match (self.known_group(), self.remembered()) {
            (Some(incarnation), _) => Need::Admission(incarnation),
            (None, Some(incarnation)) if !self.word => Need::Group(incarnation),
            _ if self.seeds.count == 0 || self.seeds.digest == 0 => Need::SeedList,
            _ if self.attempt.is_some() => Need::Votes,
            _ if !self.word && !self.has_quorum(|seed| self.vote_of(seed)) => Need::Seeds,
            _ if missing > 0 => Need::Members(missing),
            _ if self.seeds.own.is_empty() && !self.word => Need::Founder,
            _ => Need::Votes,
        };
        BootstrapWait { need, seeds, here }
    }

    fn teller(&self) -> BootstrapTeller {
        BootstrapTeller { me: self.setup.me.id }
    }

    fn at(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn send(&mut self, to: To, message: BootstrapMessage) {
        let to = match to {
            To::Seed(seed) if self.seeds.own.contains(&seed) => To::Process(self.setup.me),
            to => to,
        };
        let after = if mutation!(AnswersBeforeDisk) { 0 } else { self.writes };
        self.outputs.push_back((after, BootstrapOutput::Send { to, message }));
    }

    fn put(&mut self, output: BootstrapOutput) {
        self.outputs.push_back((self.writes, output));
    }

    /// Writes the record. The outputs that follow wait until the record is on disk.
    fn persist(&mut self) {
        if self.setup.durable {
            self.outputs.push_back((0, BootstrapOutput::Persist(Box::new(self.record.clone()))));
            self.writes += 1;
        }
    }

    /// Sends a message to all seeds. The seeds that are this process count as one.
    fn send_to_seeds(&mut self, message: &BootstrapMessage, to_me: bool) {
        for seed in (0..self.seeds.count).filter(|seed| !self.seeds.own.contains(seed)).collect::<Vec<_>>() {
            self.send(To::Seed(seed), message.clone());
        }
        if to_me && !self.seeds.own.is_empty() {
            self.send(To::Process(self.setup.me), message.clone());
        }
    }

    fn say_hello(&mut self) {
        match self.member_of() {
            Some(incarnation) => {
                self.hello_at = Time(self.now.0 + EXISTS_EVERY);
                if !mutation!(MembersKeepSilent) {
                    self.send_to_seeds(&BootstrapMessage::Exists { incarnation }, false);
                }
            }
            None => {
                self.hello_at = Time(self.now.0 + HELLO_EVERY);
                let (seeds, belongs) = (self.seeds.digest, self.record.belongs);
                self.send_to_seeds(&BootstrapMessage::Hello { seeds, belongs }, false);
            }
        }
    }

    fn report(&mut self) {
        let waiting = self.waiting();
        if self.told.as_ref() != Some(&waiting) && !(mutation!(SilentWhileItWaits) && self.told.is_some()) {
            self.teller().waits(&waiting, self.told.as_ref());
            self.told = Some(waiting.clone());
            // A report answers no message, so it does not wait for the disk.
            self.outputs.push_front((0, BootstrapOutput::Waits(waiting)));
        }
    }

    /// Returns the other processes that look for the group.
    fn fresh_waiters(&self) -> impl Iterator<Item = &BootstrapWaiter> {
        self.waiters.values().filter(|waiter| {
            self.is_fresh(waiter.heard) && waiter.process.id != self.setup.me.id && (waiter.is_free || self.word)
        })
    }

    /// Continues the attempt of this process, or begins one.
    fn advance(&mut self) {
        if self.known_group().is_some() {
            return self.give_up_attempt();
        }
        match self.attempt.take() {
            Some(attempt) => self.go_on(attempt),
            None if self.may_begin() => self.begin_attempt(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
