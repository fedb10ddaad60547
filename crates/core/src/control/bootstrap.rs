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
mod message;
mod telling;

pub use message::{Ballot, Incarnation, InitialView, Message, Record};

use crate::ids::{MemberId, Process, Time};
use crate::limits::MEMBERS_MAX;
use crate::mutation::mutation;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use telling::Teller;

const MS: u64 = 1_000_000;
/// The interval at which a process that looks for the group says so.
const HELLO_EVERY: u64 = 250 * MS;
/// How long an answer, or a waiting process, counts.
const FRESH_FOR: u64 = 2_500 * MS;
/// The interval at which a member sends its incarnation to the seeds.
const EXISTS_EVERY: u64 = 1_000 * MS;
/// The interval at which unanswered messages of an attempt are sent again.
const RESEND_EVERY: u64 = 400 * MS;
/// The duration of the first attempt. After failures it grows up to `1 << DOUBLINGS` times that.
const ATTEMPT_FOR: u64 = 4_000 * MS;
/// The pause before an attempt, for each seed before this one. It doubles after each failure.
const STAGGER: u64 = 300 * MS;
const DOUBLINGS: u32 = 4;
/// How long waiting processes have to acknowledge the incarnation of an attempt. Then the attempt
/// continues without the others.
const PLEDGE_FOR: u64 = 1_200 * MS;
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
    /// The record that was found there, or an empty one. [`Record::belongs`] also shows whether the
    /// process was a member before.
    pub record: Record,
}

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

/// The state of a seed, as this process knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeedState {
    /// The seed is this process.
    Own,
    /// The seed has answered and belongs to no group.
    Answers,
    /// The seed has answered. It was a member of this group, or knows that the group was created.
    Belongs(Incarnation),
    /// The seed is a member of this group.
    Member(Incarnation),
    /// The seed has a different list of seeds.
    Unlike,
    /// The last attempt to reach the seed failed.
    Unreachable,
    /// The seed has not answered yet, or not for some time.
    Silent,
}

/// The reason why a process waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// The list of seeds is not known.
    SeedList,
    /// More seeds have to answer.
    Seeds,
    /// This many more processes have to wait with this one.
    Members(u32),
    /// The votes on the first view are under way.
    Votes,
    /// A seed will create the group.
    Founder,
    /// The process, or a seed that answered, belongs to this group. None of its members has
    /// answered.
    Group(Incarnation),
    /// A member of this group has answered. It has to admit the process.
    Admission(Incarnation),
}

/// The reason why a process waits, and the state of each seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The reason.
    pub need: Need,
    /// The seeds, by index.
    pub seeds: Vec<SeedState>,
    /// The number of processes that wait for the group, including this one, as far as it knows.
    pub here: u32,
}

/// The receiver of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The seed with this index.
    Seed(u32),
    /// A process that has sent a message.
    Process(Process),
}

/// An order to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send a message.
    Send {
        /// The receiver.
        to: To,
        /// The message.
        message: Message,
    },
    /// Write the record to the data directory, durably, and then call [`Bootstrap::persisted`].
    /// Only with [`Setup::durable`].
    Persist(Box<Record>),
    /// Begin the first view of this group. This process is in it.
    Begin(InitialView),
    /// Ask the members of this group for admission.
    Join(Incarnation),
    /// Report the reason why the process waits.
    Waits(Waiting),
    /// Report, as an error, that two groups of the name exist.
    Conflict {
        /// The group of this process.
        mine: Incarnation,
        /// The group of a process that has sent a message.
        theirs: Incarnation,
    },
}

/// The state machine by which a process finds or creates its group.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    setup: Setup,
    record: Record,
    seeds: SeedList,
    slots: BTreeMap<u32, Slot>,
    now: Time,
    started: Time,
    hello_at: Time,
    /// Processes that look for the group.
    waiters: BTreeMap<MemberId, Waiter>,
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
    told: Option<Waiting>,
    outputs: VecDeque<(u64, Output)>,
    /// The number of records to write, and of written ones.
    writes: u64,
    written: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    id: Option<MemberId>,
    answered: Option<(Time, Answer)>,
    failed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    seeds: u64,
    durable: bool,
    state: SeedState,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    process: Process,
    heard: Time,
    is_free: bool,
}

/// An attempt to create the group, led by this process.
#[derive(Clone, Debug)]
struct Attempt {
    ballot: Ballot,
    incarnation: Incarnation,
    forced: bool,
    began: Time,
    sent: Time,
    /// The seeds that have promised, and whether each promise is durable.
    promised: BTreeMap<MemberId, bool>,
    newest: Option<(Ballot, InitialView)>,
    pledged: BTreeMap<MemberId, Process>,
    initial_view: Option<InitialView>,
    accepted: BTreeMap<MemberId, bool>,
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

    /// Notes that an operator wants the waiting processes to create a group, whatever existed
    /// before.
    pub fn force_create(&mut self) {
        self.word = true;
    }

    /// Notes that a member of this group was found by other means than a message to this state
    /// machine.
    pub fn group_found(&mut self, incarnation: Incarnation, now: Time) {
        self.at(now);
        self.exists(incarnation);
    }

    /// Notes that this process has become a member of this group, which existed before. It may act
    /// as one when [`is_settled`](Self::is_settled).
    pub fn joined(&mut self, incarnation: Incarnation, now: Time) {
        self.at(now);
        let first = self.member.take().and_then(|(of, first)| first.filter(|_| of == incarnation));
        self.become_member(incarnation, first);
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

    /// Returns the group of which this process is a member.
    pub fn member_of(&self) -> Option<Incarnation> {
        self.member.as_ref().map(|(incarnation, _)| *incarnation)
    }

    /// Returns the promises and votes of this process.
    pub fn record(&self) -> &Record {
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
    pub fn next_output(&mut self) -> Option<Output> {
        loop {
            if self.outputs.front()?.0 > self.written {
                return None;
            }
            match self.outputs.pop_front()?.1 {
                // A message of this process to itself arrives when it would be sent: not before the
                // record is on disk.
                Output::Send { to: To::Process(to), message } if to == self.setup.me => {
                    self.hear(to, message, self.now)
                }
                output => return Some(output),
            }
        }
    }

    /// Takes in a message of another process.
    pub fn hear(&mut self, from: Process, message: Message, now: Time) {
        self.at(now);
        self.teller().heard(from, &message);
        if let Some((incarnation, first)) = self.member.clone() {
            return self.hear_as_member(from, message, incarnation, first);
        }
        match message {
            Message::Hello { belongs, .. } => self.hear_hello(from, belongs),
            Message::Here { seeds, durable, belongs } => {
                let state = belongs.map_or(SeedState::Answers, SeedState::Belongs);
                self.note_answer(from, Answer { seeds, durable, state });
            }
            Message::Prepare { ballot, seeds } => self.prepare(from, ballot, seeds),
            Message::Promise { ballot, durable, accepted } => self.hear_promise(from, ballot, durable, accepted),
            Message::Behind { promised } => {
                self.round = self.round.max(promised.round);
                if self.attempt.as_ref().is_some_and(|attempt| attempt.ballot < promised) {
                    self.teller().outbid(from, promised);
                    self.fail();
                }
            }
            Message::Invite { incarnation, forced } => self.hear_invite(from, incarnation, forced),
            Message::Pledge { incarnation } => {
                let teller = self.teller();
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.incarnation == incarnation) {
                    teller.pledged(from);
                    attempt.pledged.insert(from.id, from);
                }
            }
            Message::Accept { ballot, seeds, initial_view } => self.accept(from, ballot, seeds, initial_view),
            Message::Accepted { ballot, durable } => {
                let teller = self.teller();
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) {
                    teller.vote_received(from, ballot, durable);
                    attempt.accepted.insert(from.id, durable);
                }
            }
            Message::Decided { initial_view } => self.decided(initial_view),
            Message::Exists { incarnation } => {
                self.note_answer(from, Answer { seeds: 0, durable: false, state: SeedState::Member(incarnation) });
                self.exists(incarnation);
            }
        }
        if self.member.is_none() {
            self.advance();
        }
    }

    /// Returns why the process waits.
    pub fn waiting(&self) -> Waiting {
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
        Waiting { need, seeds, here }
    }

    fn teller(&self) -> Teller {
        Teller { me: self.setup.me.id }
    }

    fn at(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn send(&mut self, to: To, message: Message) {
        let to = match to {
            To::Seed(seed) if self.seeds.own.contains(&seed) => To::Process(self.setup.me),
            to => to,
        };
        let after = if mutation!(AnswersBeforeDisk) { 0 } else { self.writes };
        self.outputs.push_back((after, Output::Send { to, message }));
    }

    fn put(&mut self, output: Output) {
        self.outputs.push_back((self.writes, output));
    }

    /// Writes the record. The outputs that follow wait until the record is on disk.
    fn persist(&mut self) {
        if self.setup.durable {
            self.outputs.push_back((0, Output::Persist(Box::new(self.record.clone()))));
            self.writes += 1;
        }
    }

    /// Sends a message to all seeds. The seeds that are this process count as one.
    fn send_to_seeds(&mut self, message: &Message, to_me: bool) {
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
                    self.send_to_seeds(&Message::Exists { incarnation }, false);
                }
            }
            None => {
                self.hello_at = Time(self.now.0 + HELLO_EVERY);
                let (seeds, belongs) = (self.seeds.digest, self.record.belongs);
                self.send_to_seeds(&Message::Hello { seeds, belongs }, false);
            }
        }
    }

    fn report(&mut self) {
        let waiting = self.waiting();
        if self.told.as_ref() != Some(&waiting) && !(mutation!(SilentWhileItWaits) && self.told.is_some()) {
            self.teller().waits(&waiting, self.told.as_ref());
            self.told = Some(waiting.clone());
            // A report answers no message, so it does not wait for the disk.
            self.outputs.push_front((0, Output::Waits(waiting)));
        }
    }

    /// Takes in the message of a process that looks for the group.
    fn hear_hello(&mut self, from: Process, belongs: Option<Incarnation>) {
        if self.waiters.len() < WAITERS_MAX || self.waiters.contains_key(&from.id) {
            let is_free = belongs.is_none();
            self.waiters.insert(from.id, Waiter { process: from, heard: self.now, is_free });
        }
        if self.waiters.len() == WAITERS_MAX {
            let now = self.now;
            self.waiters.retain(|_, waiter| now.0 < waiter.heard.0 + FRESH_FOR);
        }
        // All members that have begun may have died before one of them reached the sender.
        let decided = self.record.accepted.as_ref().filter(|(_, it)| Some(it.incarnation) == self.record.belongs);
        if let Some((_, initial_view)) = decided.filter(|(_, initial_view)| initial_view.members.contains(&from)) {
            let initial_view = initial_view.clone();
            return self.send(To::Process(from), Message::Decided { initial_view });
        }
        // A process that can't reach the members learns of them from processes that can.
        let belongs = self.known_group().or(self.record.belongs);
        let (seeds, durable) = (self.seeds.digest, self.setup.durable);
        self.send(To::Process(from), Message::Here { seeds, durable, belongs });
    }

    fn note_answer(&mut self, from: Process, answer: Answer) {
        let now = self.now;
        for slot in self.slots.values_mut().filter(|slot| slot.id == Some(from.id)) {
            (slot.answered, slot.failed) = (Some((now, answer)), false);
        }
    }

    fn is_fresh(&self, at: Time) -> bool {
        self.now.0 < at.0 + FRESH_FOR
    }

    fn state_of(&self, seed: u32) -> SeedState {
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
    fn vote_of(&self, seed: u32) -> Option<bool> {
        match self.state_of(seed) {
            SeedState::Own => Some(self.setup.durable),
            SeedState::Answers => {
                Some(self.slots.get(&seed).and_then(|slot| slot.answered).is_some_and(|(_, answer)| answer.durable))
            }
            _ => mutation!(SilenceIsAnAnswer).then_some(false),
        }
    }

    /// True if all seeds take part, or more than half of them durably.
    fn has_quorum(&self, vote: impl Fn(u32) -> Option<bool>) -> bool {
        let count = self.seeds.count as usize;
        let votes: Vec<bool> = (0..self.seeds.count).filter_map(vote).collect();
        let durable = votes.iter().filter(|durable| **durable).count();
        let durable = if mutation!(AnyMajority) { votes.len() } else { durable };
        count > 0 && (votes.len() == count || 2 * durable > count)
    }

    /// True if the seeds that have voted in an attempt are a quorum.
    fn is_quorum(&self, voted: &BTreeMap<MemberId, bool>) -> bool {
        self.has_quorum(|seed| {
            let own = self.seeds.own.contains(&seed).then_some(self.setup.me.id);
            let id = own.or_else(|| self.slots.get(&seed)?.id);
            let vote = id.and_then(|id| voted.get(&id).copied());
            vote.or_else(|| mutation!(SilenceIsAnAnswer).then_some(false))
        })
    }

    /// Returns the other processes that look for the group.
    fn fresh_waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values().filter(|waiter| {
            self.is_fresh(waiter.heard) && waiter.process.id != self.setup.me.id && (waiter.is_free || self.word)
        })
    }

    /// Returns the group of a member that has answered recently.
    fn known_group(&self) -> Option<Incarnation> {
        self.known.filter(|(_, at)| self.is_fresh(*at)).map(|(incarnation, _)| incarnation)
    }

    /// Returns a group that may be alive, as this process or a seed remembers.
    fn remembered(&self) -> Option<Incarnation> {
        let of_seed = |seed| match self.state_of(seed) {
            SeedState::Belongs(incarnation) | SeedState::Member(incarnation) => Some(incarnation),
            _ => None,
        };
        let own = self.record.belongs.filter(|_| !mutation!(EvictedFound));
        own.or_else(|| (0..self.seeds.count).find_map(of_seed).filter(|_| !mutation!(EvictedFound)))
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

    fn may_begin(&self) -> bool {
        if self.now < self.not_before {
            return false;
        }
        let enough = 1 + self.fresh_waiters().count() as u32 >= self.setup.members;
        if self.word {
            return enough && self.now.0 >= self.started.0 + WORD_AFTER;
        }
        let is_seed = !self.seeds.own.is_empty() && self.seeds.digest != 0;
        // A seed that has voted completes that bootstrap, with any number of processes.
        let enough = enough || self.record.accepted.is_some();
        is_seed && enough && self.remembered().is_none() && self.has_quorum(|seed| self.vote_of(seed))
    }

    fn begin_attempt(&mut self) {
        let seed = self.seeds.own.first().copied().unwrap_or(u32::MAX);
        self.round = self.round.max(self.record.promised.round) + 1;
        let ballot = Ballot { round: self.round, seed };
        // The rounds of one process differ, and so do the random bits of two processes.
        let incarnation = Incarnation(self.setup.random.wrapping_add(u128::from(self.round)).max(1));
        let (promised, newest, pledged, initial_view, accepted) = Default::default();
        let (began, sent, forced) = (self.now, self.now, self.word);
        let attempt =
            Attempt { ballot, incarnation, forced, began, sent, promised, newest, pledged, initial_view, accepted };
        self.teller().attempts(ballot, incarnation, forced);
        self.send_attempt(&attempt);
        self.attempt = Some(attempt);
    }

    /// Sends the messages of this attempt that have not been answered.
    fn send_attempt(&mut self, attempt: &Attempt) {
        let (ballot, seeds) = (attempt.ballot, self.seeds.digest);
        if let Some(initial_view) = &attempt.initial_view {
            return self.send_to_seeds(&Message::Accept { ballot, seeds, initial_view: initial_view.clone() }, true);
        }
        if !attempt.forced {
            self.send_to_seeds(&Message::Prepare { ballot, seeds }, true);
        }
        let invited: Vec<Process> = self.fresh_waiters().map(|waiter| waiter.process).chain([self.setup.me]).collect();
        for process in invited.into_iter().filter(|process| !attempt.pledged.contains_key(&process.id)) {
            let message = Message::Invite { incarnation: attempt.incarnation, forced: attempt.forced };
            self.send(To::Process(process), message);
        }
    }

    fn go_on(&mut self, mut attempt: Attempt) {
        if self.now.0 >= attempt.began.0 + (ATTEMPT_FOR << self.failures.min(DOUBLINGS - 1)) {
            return self.fail();
        }
        if attempt.initial_view.is_some() {
            if self.is_quorum(&attempt.accepted) {
                let initial_view = attempt.initial_view.take().expect("it was voted on");
                return self.announce(initial_view);
            }
        } else if attempt.forced || self.is_quorum(&attempt.promised) {
            let newest = attempt.newest.take().filter(|_| !mutation!(VotesForgotten));
            attempt.initial_view = newest.map(|(_, initial_view)| initial_view).or_else(|| self.first_view(&attempt));
            if let Some(initial_view) = attempt.initial_view.take_if(|_| attempt.forced) {
                return self.announce(initial_view);
            }
            if let Some(initial_view) = &attempt.initial_view {
                self.teller().proposes(attempt.ballot, initial_view);
                attempt.sent = self.now;
                self.send_attempt(&attempt);
            }
        }
        if self.now.0 >= attempt.sent.0 + RESEND_EVERY {
            attempt.sent = self.now;
            self.send_attempt(&attempt);
        }
        self.attempt = Some(attempt);
    }

    /// Returns the first view if enough processes have acknowledged the incarnation. It consists of
    /// these processes.
    fn first_view(&self, attempt: &Attempt) -> Option<InitialView> {
        let waiters = || self.fresh_waiters().map(|waiter| waiter.process);
        let mut members = attempt.pledged.clone();
        if mutation!(WaitersAreMembers) {
            members.extend(waiters().map(|process| (process.id, process)));
        }
        let all = waiters().all(|process| members.contains_key(&process.id));
        let is_enough = members.len() as u32 >= self.setup.members && members.contains_key(&self.setup.me.id);
        let is_complete = all || self.now.0 >= attempt.began.0 + PLEDGE_FOR;
        let initial_view = || InitialView {
            incarnation: attempt.incarnation,
            members: members.values().copied().take(MEMBERS_MAX).collect(),
        };
        (is_enough && is_complete).then(initial_view)
    }

    fn give_up_attempt(&mut self) {
        self.attempt = None;
    }

    /// Gives up the attempt, which has failed.
    fn fail(&mut self) {
        self.attempt = None;
        self.failures += 1;
        let seed = u64::from(self.seeds.own.first().copied().unwrap_or(0));
        let pause = (STAGGER << self.failures.min(DOUBLINGS)) * (1 + seed);
        self.teller().failed(self.failures, pause);
        self.not_before = self.not_before.max(Time(self.now.0 + pause));
    }

    /// Gives another seed time for the attempt that it leads.
    fn defer(&mut self, ballot: Ballot) {
        self.round = self.round.max(ballot.round);
        if self.seeds.own.contains(&ballot.seed) {
            return;
        }
        let time = (ATTEMPT_FOR / 2) << self.failures.min(DOUBLINGS - 1);
        self.not_before = self.not_before.max(Time(self.now.0 + time));
    }

    fn prepare(&mut self, from: Process, ballot: Ballot, seeds: u64) {
        if !self.votes_with(from, seeds) {
            return;
        }
        if ballot < self.record.promised {
            self.teller().is_behind(from, ballot, self.record.promised);
            return self.send(To::Process(from), Message::Behind { promised: self.record.promised });
        }
        self.defer(ballot);
        if ballot > self.record.promised && !mutation!(PromisesForgotten) {
            (self.record.promised, self.record.seeds) = (ballot, seeds);
            self.teller().promised(from, ballot);
            self.persist();
        }
        let (durable, accepted) = (self.setup.durable, self.record.accepted.clone());
        self.send(To::Process(from), Message::Promise { ballot, durable, accepted });
    }

    fn accept(&mut self, from: Process, ballot: Ballot, seeds: u64, initial_view: InitialView) {
        if !self.votes_with(from, seeds) {
            return;
        }
        if ballot < self.record.promised {
            self.teller().is_behind(from, ballot, self.record.promised);
            return self.send(To::Process(from), Message::Behind { promised: self.record.promised });
        }
        self.defer(ballot);
        if self.record.accepted.as_ref().is_none_or(|(accepted, _)| *accepted < ballot) {
            (self.record.promised, self.record.seeds) = (ballot, seeds);
            self.teller().voted(from, ballot, &initial_view);
            self.record.accepted = Some((ballot, initial_view));
            self.persist();
        }
        let durable = self.setup.durable;
        self.send(To::Process(from), Message::Accepted { ballot, durable });
    }

    /// True if this process votes on a proposal of `from`. If not, it sends the reason.
    fn votes_with(&mut self, from: Process, seeds: u64) -> bool {
        let belongs = self.record.belongs.filter(|_| !mutation!(EvictedFound));
        if belongs.is_none() && seeds == self.seeds.digest && !self.seeds.own.is_empty() {
            return true;
        }
        self.teller().votes_not(from, seeds == self.seeds.digest, belongs);
        let (seeds, durable) = (self.seeds.digest, self.setup.durable);
        self.send(To::Process(from), Message::Here { seeds, durable, belongs });
        false
    }

    fn hear_promise(&mut self, from: Process, ballot: Ballot, durable: bool, accepted: Option<(Ballot, InitialView)>) {
        let teller = self.teller();
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else { return };
        if attempt.initial_view.is_none() {
            teller.promise_received(from, ballot, durable);
            attempt.promised.insert(from.id, durable);
            let newest = attempt.newest.take();
            attempt.newest = newest.into_iter().chain(accepted).max_by_key(|(ballot, _)| *ballot);
        }
    }

    fn hear_invite(&mut self, from: Process, incarnation: Incarnation, forced: bool) {
        let is_free = self.known_group().is_none() && (forced || self.record.belongs.is_none());
        // If two processes have an operator's word, the one with the higher id yields.
        let yields = !self.word || from.id <= self.setup.me.id;
        if is_free && yields {
            self.send(To::Process(from), Message::Pledge { incarnation });
        }
    }

    /// Announces the new group. This process is the first to know that it is created.
    fn announce(&mut self, initial_view: InitialView) {
        let me = self.setup.me;
        for process in initial_view.members.iter().filter(|process| **process != me) {
            self.send(To::Process(*process), Message::Decided { initial_view: initial_view.clone() });
        }
        self.send_to_seeds(&Message::Decided { initial_view: initial_view.clone() }, false);
        self.decided(initial_view);
    }

    /// Notes that the group is created.
    fn decided(&mut self, initial_view: InitialView) {
        let incarnation = initial_view.incarnation;
        self.teller().created(&initial_view, self.now.0.saturating_sub(self.started.0));
        if initial_view.members.contains(&self.setup.me) {
            return self.become_member(incarnation, Some(initial_view));
        }
        if self.record.belongs.is_none() {
            self.record.belongs = Some(incarnation);
            // No other value is ever decided, so this vote is safe under any ballot.
            self.record.accepted = Some((self.record.promised, initial_view));
            self.persist();
        }
        self.exists(incarnation);
    }

    /// Makes this process a member of this group, permanently.
    fn become_member(&mut self, incarnation: Incarnation, first: Option<InitialView>) {
        (self.attempt, self.told) = (None, None);
        let is_new = self.member.as_ref().is_none_or(|(of, _)| *of != incarnation);
        self.member = Some((incarnation, first.clone()));
        self.hello_at = self.now;
        if is_new {
            self.teller().is_member(incarnation);
        }
        if self.record.belongs != Some(incarnation) {
            self.record.belongs = Some(incarnation);
            self.persist();
        }
        if let Some(initial_view) = first.filter(|_| is_new) {
            self.put(Output::Begin(initial_view));
        }
    }

    /// Notes a message from a member of this group.
    fn exists(&mut self, incarnation: Incarnation) {
        if mutation!(MembersUnheard) {
            return;
        }
        if let Some(mine) = self.record.belongs.filter(|mine| *mine != incarnation) {
            self.report_conflict(mine, incarnation);
        }
        let is_new = self.known_group() != Some(incarnation);
        self.known = Some((incarnation, self.now));
        self.give_up_attempt();
        if is_new {
            self.teller().exists(incarnation);
            self.put(Output::Join(incarnation));
        }
    }

    fn report_conflict(&mut self, mine: Incarnation, theirs: Incarnation) {
        if self.conflict.replace(theirs) != Some(theirs) {
            self.teller().conflict(mine, theirs);
            self.put(Output::Conflict { mine, theirs });
        }
    }

    fn hear_as_member(&mut self, from: Process, message: Message, mine: Incarnation, first: Option<InitialView>) {
        match message {
            Message::Hello { .. } | Message::Prepare { .. } | Message::Invite { .. } | Message::Accept { .. } => {
                if let Some(initial_view) = first.filter(|initial_view| initial_view.members.contains(&from)) {
                    // The sender does not know the outcome yet.
                    self.send(To::Process(from), Message::Decided { initial_view });
                }
                self.send(To::Process(from), Message::Exists { incarnation: mine });
            }
            Message::Exists { incarnation: theirs }
            | Message::Decided { initial_view: InitialView { incarnation: theirs, .. } }
                if theirs != mine =>
            {
                self.report_conflict(mine, theirs);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
