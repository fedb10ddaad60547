//! Restart of a group whose processes have all ended: one process's decisions to continue with the
//! members of the last view, from what is on their disks.
//!
//! Each process that may have members with logs has a [`RestartRecord`] on disk: the newest view
//! that it knows to be decided, and its part in the agreement on the view after it. The agreement
//! is single-decree Paxos. Its acceptors are the members of the last view (the *base*), each in the
//! hands of the process that has its disk. Its value is a [`RestartView`].
//!
//! - INV-RECORD: no process begins a view with a logged subgroup before that view is on its own
//!   disk, and on the disk of a member that was in the view before. A member shows a view to
//!   others (announces it, or hands over its row) after it is on disk. So if all members of a view
//!   are back, and none of their disks has a later view, no later view has begun anywhere.
//! - INV-ACCEPTED: a view that ends another one is decided when a quorum of its voters has it on disk
//!   as accepted, or is dead. So a [restart quorum](quorum) has a member that knows of it. The agreement
//!   of the restart continues that one: its ballots are higher, and its first value is the newest
//!   accepted view. No process begins that view any more; it is the next base.
//! - A restart waits for all members of the base, and for a restart quorum only if the others do not come
//!   for a while. An operator may give up members that are lost for good. The view then begins an
//!   [era](ViewId::era).
//! - INV-LEVEL: when a view is proposed, the logs of all members of a subgroup end with the same
//!   record, on disk. Members whose logs are shorter get the records that they lack first. A log that has others
//!   loses them only if the newest leader has ordered to catch up, and hears of it.
//! - A decided view is on the disk of a majority of the base before it begins. A process that is
//!   not in it begins no view: it waits until the others have begun, and joins them.
//! - A process that learns of a later base takes it over, and forgets its promises for the earlier
//!   one, whose successor is decided.
//!
//! A driver calls the methods for each event. Then it carries out what [`Restart::next_output`]
//! returns, until that is `None`. Messages may be lost, delayed, repeated and reordered. Their stated
//! sender must be the true one.
mod attempt;
mod ballot;
mod message;
mod quorum;
mod record;
mod telling;

use crate::ids::{MemberId, Process, Time, ViewId};
use crate::limits::MEMBERS_MAX;
use crate::mutation::mutation;
use crate::view::View;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use attempt::{RestartAttempt, RestartPromise};
pub use ballot::RestartBallot;
use core::time::Duration;
pub use message::RestartMessage;
pub use record::{LogOrigin, LogState, LongestLog, RestartRecord, RestartView};
use telling::RestartTeller;

const MS: u64 = 1_000_000;
/// The interval at which a process that restarts says so.
const HELLO_EVERY: u64 = 200 * MS;
/// How long a waiting process counts after its last message.
const FRESH_FOR: u64 = 2_000 * MS;

/// The state of a process when it restarts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartSetup {
    /// This process.
    pub me: Process,
    /// The record on its disk.
    pub record: RestartRecord,
    /// Its logs.
    pub logs: Vec<LogState>,
    /// The members that an operator has given up.
    pub lost: BTreeSet<MemberId>,
    /// The host of this process; not 0.
    pub host: u128,
    /// How long a restart quorum waits for the other members of the last view, after the newest of its
    /// processes has come.
    pub patience: Duration,
}

/// The receiver of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartTo {
    /// All processes that may lead the restart.
    Leaders,
    /// A process that has sent a message.
    Process(Process),
}

/// An order to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestartOutput {
    /// Send a message.
    Send {
        /// The receiver.
        to: RestartTo,
        /// The message.
        message: RestartMessage,
    },
    /// Write the record to the disk, durably, and then call [`Restart::persisted`].
    Persist(Box<RestartRecord>),
    /// Get the records that the logs lack from these processes, and report progress with
    /// [`Restart::set_logs`]. The order is repeated while the leader waits.
    CatchUp(Vec<LongestLog>),
    /// Begin this view, with the members that it names. This process is one of them.
    Begin(Box<RestartView>),
}

/// The reason why a process has not restarted yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartWait {
    /// The last view that is known.
    pub base: ViewId,
    /// The number of its members.
    pub members: u32,
    /// The members of that view that have not come, ascending. Empty for a process that has not
    /// heard of the others: only a leader does.
    pub missing: Vec<MemberId>,
    /// The members that an operator has given up, and that are here nevertheless.
    pub not_lost: Vec<MemberId>,
    /// The members whose logs get records from others, ascending. Empty for a process that does not
    /// lead.
    pub behind: Vec<MemberId>,
    /// True if the restart stops to wait for the missing members after [a while](RestartSetup::patience),
    /// unless the processes that are here turn out to lack something.
    pub goes_on: bool,
}

/// The state machine by which a process restarts its group.
#[derive(Clone, Debug)]
pub struct Restart {
    setup: RestartSetup,
    record: RestartRecord,
    now: Time,
    leads: bool,
    hello_at: Time,
    /// Processes that restart, by id.
    here: BTreeMap<MemberId, Here>,
    attempt: Option<RestartAttempt>,
    /// The newest order to get records.
    catching_up: Option<CatchUpOrder>,
    /// The number of failed attempts, and the time before which no other begins.
    failures: u32,
    not_before: Time,
    /// When the newest process of a member of the base has come.
    arrived: Time,
    /// The highest known round.
    round: u64,
    /// The decided view that this process has begun, and the view before.
    begun: Option<(ViewId, RestartView)>,
    /// The last decision of a restart of which this process has heard.
    decided: Option<(ViewId, RestartView)>,
    /// True if an earlier process of this member is in a decided view, which the others may have begun.
    is_replaced: bool,
    told: Option<RestartWait>,
    outputs: VecDeque<(u64, RestartOutput)>,
    /// The number of records to write, and of written ones.
    writes: u64,
    written: u64,
}

/// An order of a leader to get records.
#[derive(Clone, Debug)]
struct CatchUpOrder {
    leader: Process,
    ballot: RestartBallot,
    /// The logs that lack some.
    logs: Vec<String>,
}

/// A process that restarts.
#[derive(Clone, Copy, Debug)]
struct Here {
    process: Process,
    heard: Time,
}

impl Restart {
    /// Returns a process that restarts now.
    pub fn new(setup: RestartSetup, now: Time) -> Restart {
        let record = setup.record.clone();
        let (leads, here, attempt, catching_up, failures, round) = Default::default();
        let (begun, decided, is_replaced, told, outputs, writes, written) = Default::default();
        Restart {
            setup,
            record,
            now,
            leads,
            hello_at: now,
            here,
            attempt,
            catching_up,
            failures,
            not_before: now,
            arrived: now,
            round,
            begun,
            decided,
            is_replaced,
            told,
            outputs,
            writes,
            written,
        }
    }

    /// Notes whether this process may lead the restart. Several processes may: then each attempt may
    /// outbid the others.
    pub fn set_leads(&mut self, leads: bool) {
        self.leads = leads;
        if !leads {
            self.attempt = None;
        }
    }

    /// Returns the view that this process votes on, if it does.
    pub fn votes_for(&self) -> Option<ViewId> {
        let has_voted = self.record.promised != RestartBallot::default() && self.begun.is_none();
        has_voted.then(|| self.record.accepted.as_ref().map_or(self.record.view.id.next(), |(_, value)| value.view.id))
    }

    /// True if processes of the last view wait for this one, which is not in it. A member of that view
    /// is the better leader.
    pub fn has_to_yield(&self) -> bool {
        let base = &self.record.view;
        let is_out = base.rank_of(self.setup.me.id).is_none() && base.members.iter().any(|id| self.is_here(*id));
        is_out || self.is_replaced
    }

    /// Returns the record as it will be on disk.
    pub fn record(&self) -> &RestartRecord {
        &self.record
    }

    /// True if everything that this process has promised is written.
    pub fn is_settled(&self) -> bool {
        self.written == self.writes
    }

    /// Returns when logs of others have last got records, as this process has heard; `None` if it waits for
    /// none.
    pub fn moved_at(&self) -> Option<Time> {
        self.attempt.as_ref().and_then(RestartAttempt::moved_at)
    }

    /// Returns the logs of this process, as far as it has reported them.
    pub fn logs(&self) -> &[LogState] {
        &self.setup.logs
    }

    /// Notes the logs of this process: records have come, and are on disk. `cut_off` names logs for which
    /// all others have pruned the next records. This member is then not in the view.
    pub fn set_logs(&mut self, logs: Vec<LogState>, cut_off: &[String], now: Time) {
        self.at(now);
        let before = self.record.origins.clone();
        cut_off.iter().for_each(|name| self.record.note_origin(&LogOrigin::cut_off(name.clone())));
        if before != self.record.origins {
            self.persist();
        } else if logs == self.setup.logs {
            return;
        }
        self.setup.logs = logs;
        self.tell_logs();
    }

    /// Notes that the oldest pending record is written.
    pub fn persisted(&mut self, now: Time) {
        self.at(now);
        self.written += 1;
        assert!(self.written <= self.writes, "a record was written without a request");
    }

    /// Notes that the kernel has reported the end of a process.
    pub fn gone(&mut self, id: MemberId) {
        self.here.remove(&id);
    }

    /// Returns the time of the next [poll](Self::poll).
    pub fn wake_at(&self) -> Time {
        if self.begun.is_some() {
            return Time(u64::MAX);
        }
        let resend = self.attempt.as_ref().map_or(Time(u64::MAX), RestartAttempt::resend_at);
        let later = |at: Time| if self.leads && at > self.now { at } else { Time(u64::MAX) };
        self.hello_at.min(resend).min(later(self.not_before)).min(later(self.goes_on_at()))
    }

    /// Continues at the time [`wake_at`](Self::wake_at).
    pub fn poll(&mut self, now: Time) {
        self.at(now);
        if self.begun.is_some() {
            self.hello_at = Time(u64::MAX);
            return;
        }
        if self.hello_at <= now {
            self.hello_at = Time(now.0 + HELLO_EVERY);
            self.send(RestartTo::Leaders, RestartMessage::Hello { base: self.record.view.id });
        }
        self.advance();
    }

    /// Notes that a process restarts.
    fn see(&mut self, from: Process) {
        let is_new = self.here.get(&from.id).is_none_or(|here| here.process != from);
        if self.here.len() < 2 * MEMBERS_MAX || self.here.contains_key(&from.id) {
            self.here.insert(from.id, Here { process: from, heard: self.now });
        }
        if is_new {
            if from != self.setup.me && self.record.view.rank_of(from.id).is_some() {
                self.arrived = self.now;
            }
            // The disk of this member has the promises of its earlier process.
            self.forget_answers(from.id);
        }
    }

    /// Takes in a message of another process.
    pub fn hear(&mut self, from: Process, message: RestartMessage, now: Time) {
        self.at(now);
        self.teller().heard(from, &message);
        if let Some((base, value)) = &self.begun {
            // It has missed the decision, or was started again.
            if matches!(message, RestartMessage::Hello { .. }) {
                let decided = RestartMessage::Decided { base: *base, value: Box::new(value.clone()) };
                self.send(RestartTo::Process(from), decided);
            }
            return;
        }
        // A process that has begun a view lives, and restarts nothing. It only answers with the decision, and may wait
        // for others in vain.
        if !matches!(message, RestartMessage::Decided { .. }) {
            self.see(from);
        }
        match message {
            RestartMessage::Hello { base } => {
                // A process with an earlier view may wait for members that are not needed.
                let mine = self.record.view.id;
                if base < mine {
                    self.send_base(from);
                } else if base > mine {
                    self.send(RestartTo::Process(from), RestartMessage::Hello { base: mine });
                }
            }
            RestartMessage::Base { view, hosts } => self.learn_base(view, hosts),
            RestartMessage::Prepare { ballot, base, hosts, to } if to == self.setup.me => {
                self.prepare(from, ballot, base, hosts)
            }
            RestartMessage::Accept { ballot, value, to } if to == self.setup.me => self.accept(from, ballot, *value),
            RestartMessage::Promise { base, ballot, accepted, logs, origins, said_last, host } => {
                let accepted = accepted.map(|accepted| *accepted);
                let promise = RestartPromise { process: from, accepted, logs, origins, said_last, host };
                self.hear_promise((base, ballot), promise)
            }
            RestartMessage::CatchUp { to, ballot, base, logs, .. } if to == self.setup.me => {
                self.catch_up(from, ballot, base, logs)
            }
            // It is for an earlier process of this member.
            RestartMessage::Prepare { .. } | RestartMessage::Accept { .. } | RestartMessage::CatchUp { .. } => {}
            RestartMessage::Behind { base, promised } => self.hear_behind(base, promised),
            RestartMessage::Accepted { base, ballot } => self.hear_accepted(from, base, ballot),
            RestartMessage::Decided { base, value } => self.decided(base, *value),
        }
        self.advance();
    }

    /// Returns the next output. After a record it returns nothing until that record is
    /// [written](Self::persisted).
    pub fn next_output(&mut self) -> Option<RestartOutput> {
        loop {
            if self.outputs.front()?.0 > self.written && !mutation!(RestartAnswersEarly) {
                return None;
            }
            match self.outputs.pop_front()?.1 {
                // A message of this process to itself arrives when it would be sent: not before the
                // record is on disk.
                RestartOutput::Send { to: RestartTo::Process(to), message } if to == self.setup.me => {
                    self.hear(to, message, self.now)
                }
                output => return Some(output),
            }
        }
    }

    /// Returns the reason why the process waits, if it has changed since the last call.
    pub fn take_wait(&mut self) -> Option<RestartWait> {
        let wait = self.waiting();
        (self.told.as_ref() != Some(&wait)).then(|| {
            self.teller().waits(&wait);
            self.told = Some(wait.clone());
            wait
        })
    }

    /// Returns the reason why the process waits.
    pub fn waiting(&self) -> RestartWait {
        let is_needed = |id: &&MemberId| !self.setup.lost.contains(*id) && !self.is_here(**id);
        let mut missing: Vec<MemberId> = match self.leads {
            true => self.record.view.members.iter().filter(is_needed).copied().collect(),
            false => Vec::new(),
        };
        missing.sort_unstable();
        let goes_on = !missing.is_empty() && self.is_enough(|id| self.is_here(id), |_| false);
        RestartWait {
            base: self.record.view.id,
            members: self.record.view.members.len() as u32,
            missing,
            not_lost: self.not_lost(),
            behind: self.attempt.as_ref().map(RestartAttempt::behind).unwrap_or_default(),
            goes_on,
        }
    }

    /// Returns the members that are given up although they are here.
    fn not_lost(&self) -> Vec<MemberId> {
        self.setup.lost.iter().copied().filter(|id| self.is_here(*id)).collect()
    }

    fn is_here(&self, id: MemberId) -> bool {
        let is_fresh = |here: &Here| self.now.0 < here.heard.0 + FRESH_FOR;
        id == self.setup.me.id || self.here.get(&id).is_some_and(is_fresh)
    }

    /// Takes over a later base, whose decision another process knows.
    fn learn_base(&mut self, view: View, hosts: Vec<u128>) {
        if view.id <= self.record.view.id || view.check().is_err() {
            return;
        }
        self.teller().learns_base(view.id);
        self.record.learn(view, hosts, self.setup.me.id);
        self.attempt = None;
        self.persist();
    }

    /// Orders to write the record. All later outputs wait for it.
    fn persist(&mut self) {
        self.outputs.push_back((self.writes, RestartOutput::Persist(Box::new(self.record.clone()))));
        self.writes += 1;
    }

    /// Sends the decision on the newest view, if this process has heard of it: a process that is in the view can
    /// begin it as long as it has not voted on the next one.
    fn send_decided(&mut self, to: Process) {
        if let Some((base, value)) = self.decided.clone().filter(|(_, value)| value.view.id == self.record.view.id) {
            self.send(RestartTo::Process(to), RestartMessage::Decided { base, value: Box::new(value) });
        }
    }

    /// Sends the newest view that this process knows to be decided.
    fn send_base(&mut self, to: Process) {
        self.send_decided(to);
        let (view, hosts) = (self.record.view.clone(), self.record.hosts.clone());
        self.send(RestartTo::Process(to), RestartMessage::Base { view, hosts });
    }

    fn send(&mut self, to: RestartTo, message: RestartMessage) {
        self.outputs.push_back((self.writes, RestartOutput::Send { to, message }));
    }

    fn at(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn teller(&self) -> RestartTeller {
        RestartTeller { me: self.setup.me.id }
    }
}

#[cfg(test)]
mod tests;
