//! The votes on the first view: an attempt of this process to create the group, and its part in the
//! attempts of others.
use super::{Bootstrap, BootstrapBallot, BootstrapMessage, Incarnation, InitialView, MS, RESEND_EVERY, To, WORD_AFTER};
use crate::ids::{MemberId, Process, Time};
use crate::limits::MEMBERS_MAX;
use crate::mutation::mutation;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The duration of the first attempt. After failures it grows up to `1 << DOUBLINGS` times that.
const ATTEMPT_FOR: u64 = 4_000 * MS;

/// The pause before an attempt, for each seed before this one. It doubles after each failure.
pub(super) const STAGGER: u64 = 300 * MS;

const DOUBLINGS: u32 = 4;

/// To how many founders each passes a decision on.
const PASSED_ON_TO: usize = 15;

/// How long waiting processes have to acknowledge the incarnation of an attempt. Then the attempt
/// continues without the others.
const PLEDGE_FOR: u64 = 1_200 * MS;

/// An attempt to create the group, led by this process.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) ballot: BootstrapBallot,
    pub(super) incarnation: Incarnation,
    pub(super) forced: bool,
    pub(super) began: Time,
    pub(super) sent: Time,
    /// The seeds that have promised, and whether each promise is durable.
    pub(super) promised: BTreeMap<MemberId, bool>,
    pub(super) newest: Option<(BootstrapBallot, InitialView)>,
    pub(super) pledged: BTreeMap<MemberId, Process>,
    pub(super) initial_view: Option<InitialView>,
    pub(super) accepted: BTreeMap<MemberId, bool>,
}

impl Bootstrap {
    pub(super) fn may_begin(&self) -> bool {
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

    pub(super) fn begin_attempt(&mut self) {
        let seed = self.seeds.own.first().copied().unwrap_or(u32::MAX);
        self.round = self.round.max(self.record.promised.round) + 1;
        let ballot = BootstrapBallot { round: self.round, seed };
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
            return self
                .send_to_seeds(&BootstrapMessage::Accept { ballot, seeds, initial_view: initial_view.clone() }, true);
        }
        if !attempt.forced {
            self.send_to_seeds(&BootstrapMessage::Prepare { ballot, seeds }, true);
        }
        let invited: Vec<Process> = self.fresh_waiters().map(|waiter| waiter.process).chain([self.setup.me]).collect();
        for process in invited.into_iter().filter(|process| !attempt.pledged.contains_key(&process.id)) {
            let message = BootstrapMessage::Invite { incarnation: attempt.incarnation, forced: attempt.forced };
            self.send(To::Process(process), message);
        }
    }

    pub(super) fn go_on(&mut self, mut attempt: Attempt) {
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

    pub(super) fn give_up_attempt(&mut self) {
        self.attempt = None;
    }

    /// Gives up the attempt, which has failed.
    pub(super) fn fail(&mut self) {
        self.attempt = None;
        self.failures += 1;
        let seed = u64::from(self.seeds.own.first().copied().unwrap_or(0));
        let pause = (STAGGER << self.failures.min(DOUBLINGS)) * (1 + seed);
        self.teller().failed(self.failures, pause);
        self.not_before = self.not_before.max(Time(self.now.0 + pause));
    }

    /// Gives another seed time for the attempt that it leads.
    fn defer(&mut self, ballot: BootstrapBallot) {
        self.round = self.round.max(ballot.round);
        if self.seeds.own.contains(&ballot.seed) {
            return;
        }
        let time = (ATTEMPT_FOR / 2) << self.failures.min(DOUBLINGS - 1);
        self.not_before = self.not_before.max(Time(self.now.0 + time));
    }

    pub(super) fn prepare(&mut self, from: Process, ballot: BootstrapBallot, seeds: u64) {
        if !self.votes_with(from, seeds) {
            return;
        }
        if ballot < self.record.promised {
            self.teller().is_behind(from, ballot, self.record.promised);
            return self.send(To::Process(from), BootstrapMessage::Behind { promised: self.record.promised });
        }
        self.defer(ballot);
        if ballot > self.record.promised && !mutation!(PromisesForgotten) {
            (self.record.promised, self.record.seeds) = (ballot, seeds);
            self.teller().promised(from, ballot);
            self.persist();
        }
        let (durable, accepted) = (self.setup.durable, self.record.accepted.clone());
        self.send(To::Process(from), BootstrapMessage::Promise { ballot, durable, accepted });
    }

    pub(super) fn accept(&mut self, from: Process, ballot: BootstrapBallot, seeds: u64, initial_view: InitialView) {
        if !self.votes_with(from, seeds) {
            return;
        }
        if ballot < self.record.promised {
            self.teller().is_behind(from, ballot, self.record.promised);
            return self.send(To::Process(from), BootstrapMessage::Behind { promised: self.record.promised });
        }
        self.defer(ballot);
        if self.record.accepted.as_ref().is_none_or(|(accepted, _)| *accepted < ballot) {
            (self.record.promised, self.record.seeds) = (ballot, seeds);
            self.teller().voted(from, ballot, &initial_view);
            self.record.accepted = Some((ballot, initial_view));
            self.persist();
        }
        let durable = self.setup.durable;
        self.send(To::Process(from), BootstrapMessage::Accepted { ballot, durable });
    }

    /// True if this process votes on a proposal of `from`. If not, it sends the reason.
    fn votes_with(&mut self, from: Process, seeds: u64) -> bool {
        let belongs = self.record.belongs.filter(|_| !mutation!(EvictedFound));
        if belongs.is_none() && seeds == self.seeds.digest && !self.seeds.own.is_empty() {
            return true;
        }
        self.teller().votes_not(from, seeds == self.seeds.digest, belongs);
        let (seeds, durable) = (self.seeds.digest, self.setup.durable);
        self.send(To::Process(from), BootstrapMessage::Here { seeds, durable, belongs });
        false
    }

    pub(super) fn hear_promise(
        &mut self,
        from: Process,
        ballot: BootstrapBallot,
        durable: bool,
        accepted: Option<(BootstrapBallot, InitialView)>,
    ) {
        let teller = self.teller();
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else { return };
        if attempt.initial_view.is_none() {
            teller.promise_received(from, ballot, durable);
            attempt.promised.insert(from.id, durable);
            let newest = attempt.newest.take();
            attempt.newest = newest.into_iter().chain(accepted).max_by_key(|(ballot, _)| *ballot);
        }
    }

    /// Announces the new group. This process is the first to know that it is created.
    fn announce(&mut self, initial_view: InitialView) {
        let me = self.setup.me;
        let decided = BootstrapMessage::Decided { initial_view: initial_view.clone(), cards: Vec::new() };
        for process in initial_view.members.iter().filter(|process| **process != me) {
            self.send(To::Process(*process), decided.clone());
        }
        self.send_to_seeds(&decided, false);
        self.decided(initial_view);
    }

    /// Sends a decision that has come to the next founders: its sender may end before it reaches all of them, and
    /// each that it has reached passes it on.
    pub(super) fn pass_on(&mut self, initial_view: &InitialView) {
        let members = &initial_view.members;
        let Some(mine) = members.iter().position(|process| *process == self.setup.me) else { return };
        let next = (1..members.len()).take(PASSED_ON_TO).map(|ahead| members[(mine + ahead) % members.len()]);
        for process in next.filter(|_| !mutation!(DecisionKept)).collect::<Vec<_>>() {
            let decided = BootstrapMessage::Decided { initial_view: initial_view.clone(), cards: Vec::new() };
            self.send(To::Process(process), decided);
        }
    }

    /// Notes that the group is created.
    pub(super) fn decided(&mut self, initial_view: InitialView) {
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
}
