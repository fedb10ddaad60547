//! The agreement on the view with which the group continues: an attempt that this process leads, and
//! its part in the attempts of others.
use super::{
    CatchUpOrder, LogOrigin, LogState, LongestLog, MS, Restart, RestartBallot, RestartMessage, RestartOutput,
    RestartTo, RestartView,
};
use crate::ids::{MemberId, Position, Process, Rank, Time, ViewId, recovery_tag};
use crate::mutation::mutation;
use crate::view::{SubgroupSpec, View};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The interval at which unanswered messages of an attempt are sent again.
const RESEND_EVERY: u64 = 400 * MS;
/// How long the first attempt lasts without progress. After failures it grows up to `1 << DOUBLINGS` times
/// that.
const ATTEMPT_FOR: u64 = 4_000 * MS;
/// The pause after a failed attempt, for the member of the lowest rank. It doubles after each
/// failure.
const PAUSE: u64 = 100 * MS;
const DOUBLINGS: u32 = 5;

/// An attempt to restart, led by this process.
#[derive(Clone, Debug)]
pub(super) struct RestartAttempt {
    ballot: RestartBallot,
    /// The begin, or the last progress of a log that catches up.
    moved: Time,
    sent: Time,
    promised: BTreeMap<MemberId, RestartPromise>,
    /// The longest logs that members lack, by member. No view is proposed while there are any.
    behind: BTreeMap<MemberId, Vec<LongestLog>>,
    value: Option<RestartView>,
    accepted: BTreeSet<MemberId>,
}

/// The promise of a member.
#[derive(Clone, Debug)]
pub(super) struct RestartPromise {
    pub(super) process: Process,
    pub(super) accepted: Option<(RestartBallot, RestartView)>,
    pub(super) logs: Vec<LogState>,
    pub(super) origins: Vec<LogOrigin>,
    pub(super) said_last: bool,
    pub(super) host: u128,
}

/// A leader's next step, once it has the promises of all members.
#[derive(Debug)]
enum Choice {
    /// It proposes this view.
    Propose(RestartView),
    /// It asks these members to get the records that their logs lack.
    CatchUp(BTreeMap<MemberId, Vec<LongestLog>>),
}

impl RestartPromise {
    /// The last record of a log.
    fn last(&self, name: &str) -> Option<Position> {
        self.logs.iter().find(|log| log.name == name).and_then(|log| log.last)
    }
}

impl RestartAttempt {
    /// Returns the members whose logs are not complete yet, ascending.
    pub(super) fn behind(&self) -> Vec<MemberId> {
        self.behind.keys().copied().collect()
    }

    /// Returns when logs have last moved, if members are behind.
    pub(super) fn moved_at(&self) -> Option<Time> {
        (!self.behind.is_empty()).then_some(self.moved)
    }

    pub(super) fn resend_at(&self) -> Time {
        Time(self.sent.0 + RESEND_EVERY)
    }
}

impl Restart {
    /// Continues as a leader, if this process leads.
    pub(super) fn advance(&mut self) {
        if !self.leads || self.begun.is_some() {
            return;
        }
        match self.attempt.take() {
            Some(attempt) => self.go_on(attempt),
            None if self.may_begin() => self.begin_attempt(),
            None => {}
        }
    }

    /// Returns the members of the base whose promises are needed: all that are not given up.
    fn needed(&self) -> impl Iterator<Item = MemberId> {
        self.record.view.members.iter().copied().filter(|id| !self.setup.lost.contains(id))
    }

    /// A process that is not in the last view may lead, too: on one host it may be the one that has
    /// the lead. The promises of all members say that none of them has begun that view again.
    fn may_begin(&self) -> bool {
        let is_left = self.needed().next().is_some();
        let is_complete = self.needed().all(|id| self.is_here(id)) || mutation!(RestartsWithout);
        let goes_on = || self.now >= self.goes_on_at() && self.is_enough(|id| self.is_here(id), |_| false);
        is_left && (is_complete || goes_on()) && self.now >= self.not_before && self.not_lost().is_empty()
    }

    fn begin_attempt(&mut self) {
        self.round = self.round.max(self.record.promised.round) + 1;
        let Process { id: leader, nonce } = self.setup.me;
        let ballot = RestartBallot { round: self.round, leader, nonce };
        let (promised, behind, value, accepted) = Default::default();
        let attempt = RestartAttempt { ballot, moved: self.now, sent: self.now, promised, behind, value, accepted };
        self.teller().attempts(ballot, self.record.view.id);
        self.send_attempt(&attempt);
        self.attempt = Some(attempt);
    }

    /// Returns the process of a member that is here.
    fn process(&self, id: MemberId) -> Option<Process> {
        match id == self.setup.me.id {
            true => Some(self.setup.me),
            false => self.here.get(&id).map(|here| here.process),
        }
    }

    /// Sends the messages of this attempt that have not been answered.
    fn send_attempt(&mut self, attempt: &RestartAttempt) {
        let ballot = attempt.ballot;
        let has_answered = |id: &MemberId| match attempt.value {
            Some(_) => attempt.accepted.contains(id),
            None => attempt.promised.contains_key(id) && !attempt.behind.contains_key(id),
        };
        let open: Vec<Process> =
            self.needed().filter(|id| !has_answered(id)).filter_map(|id| self.process(id)).collect();
        for to in open {
            let base = self.record.view.id;
            let message = match (&attempt.value, attempt.behind.get(&to.id)) {
                (Some(value), _) => RestartMessage::Accept { to, ballot, value: Box::new((base, value.clone())) },
                (None, Some(logs)) => {
                    let (logs, cards) = (logs.clone(), Vec::new());
                    RestartMessage::CatchUp { to, ballot, base, logs, cards }
                }
                (None, None) => {
                    self.send_decided(to);
                    let (base, hosts) = (self.record.view.clone(), self.record.hosts.clone());
                    RestartMessage::Prepare { to, ballot, base, hosts }
                }
            };
            self.send(RestartTo::Process(to), message);
        }
    }

    fn go_on(&mut self, mut attempt: RestartAttempt) {
        if self.now.0 >= attempt.moved.0 + (ATTEMPT_FOR << self.failures.min(DOUBLINGS)) {
            return self.fail();
        }
        if let Some(value) = &attempt.value {
            if self.is_quorum(&attempt.accepted) {
                let (base, value) = (self.record.view.id, value.clone());
                return self.announce(base, value);
            }
        } else if self.is_promised(&attempt) || mutation!(RestartsWithout) {
            let was_behind = core::mem::take(&mut attempt.behind);
            match self.choose(&attempt) {
                None => return self.fail(),
                Some(Choice::CatchUp(behind)) => {
                    let is_new = behind.keys().any(|id| !was_behind.contains_key(id));
                    attempt.behind = behind;
                    if is_new {
                        attempt.sent = self.now;
                        self.send_attempt(&attempt);
                    }
                }
                Some(Choice::Propose(value)) => {
                    self.teller().proposes(attempt.ballot, &value);
                    (attempt.value, attempt.sent) = (Some(value), self.now);
                    self.send_attempt(&attempt);
                }
            }
        } else {
            // Another member has come, whose log may be longer.
            attempt.behind.clear();
        }
        if self.now >= attempt.resend_at() {
            attempt.sent = self.now;
            self.send_attempt(&attempt);
        }
        self.attempt = Some(attempt);
    }

    /// True if the promises of an attempt are enough: those of all members, or those of all that are here,
    /// if they are a restart quorum and have all that is durable.
    fn is_promised(&self, attempt: &RestartAttempt) -> bool {
        if self.needed().all(|id| attempt.promised.contains_key(&id)) {
            return true;
        }
        let of = |id: MemberId| attempt.promised.get(&id);
        let has_all = |spec: &SubgroupSpec| {
            let mut members = spec.members.iter().filter_map(|rank| of(self.record.view.members[rank.index()]));
            spec.members.is_empty() || members.any(|promise| promise.origins.is_empty())
        };
        let said_last = |id| of(id).is_none_or(|promise| promise.said_last);
        self.now >= self.goes_on_at()
            && self.needed().all(|id| of(id).is_some() || !self.is_here(id))
            && self.is_enough(|id| of(id).is_some(), said_last)
            && self.record.view.subgroups.iter().filter(|spec| spec.is_logged()).all(has_all)
    }

    /// True if these members are enough to decide: a majority of the voters, or all that are left.
    fn is_quorum(&self, accepted: &BTreeSet<MemberId>) -> bool {
        let has_accepted = |rank: &Rank| accepted.contains(&self.record.view.members[rank.index()]);
        match self.setup.lost.is_empty() {
            true => {
                2 * self.voters().filter(has_accepted).count() > self.voters().count() || mutation!(RestartDecidesAlone)
            }
            false => self.needed().all(|id| accepted.contains(&id)),
        }
    }

    /// Returns the newest accepted view, or a view of all members whose logs are complete, once they end
    /// with the same records. `None` if no view can continue.
    fn choose(&self, attempt: &RestartAttempt) -> Option<Choice> {
        let accepted = attempt.promised.values().filter_map(|promise| promise.accepted.as_ref());
        // A view of which all members are given up can't continue. The recovery replaces it, even if it
        // has begun.
        let continues = |value: &RestartView| value.view.members.iter().any(|id| !self.setup.lost.contains(id));
        let newest = accepted.max_by_key(|(ballot, _)| *ballot).filter(|(_, value)| continues(value));
        if let Some((_, value)) = newest.filter(|_| !mutation!(RestartForgets)) {
            return Some(Choice::Propose(value.clone()));
        }
        let base = &self.record.view;
        let is_complete = |id: &MemberId| attempt.promised.get(id).is_some_and(|promise| promise.origins.is_empty());
        let has_complete = base.members.iter().any(is_complete);
        let is_reached = |id: &MemberId| {
            attempt.promised.get(id).is_some_and(|promise| !promise.origins.iter().any(LogOrigin::is_cut_off))
        };
        let has_reached = base.members.iter().any(is_reached);
        let stays = |id: &MemberId| match (has_complete, has_reached) {
            // The others lack the begin of a log. They join with the state of a member.
            (true, _) => is_complete(id),
            (false, true) => is_reached(id),
            (false, false) => attempt.promised.contains_key(id),
        };
        let mut view = base.next(|rank| stays(&base.members[rank.index()]), &[], &[]);
        if !self.setup.lost.is_empty() {
            view.id = base.id.recovered(recovery_tag(view.members.iter().copied()));
        }
        view.begin_epochs();
        // The others may not come back with what only their logs have.
        let longest = longest_logs(&view, attempt);
        let behind = lacking(&view, &longest, attempt);
        if !behind.is_empty() && !mutation!(RestartProposesUnequal) {
            return Some(Choice::CatchUp(behind));
        }
        let logs: Vec<LogState> = longest.into_iter().map(|log| log.state).collect();
        for spec in view.subgroups.iter_mut().filter(|spec| spec.is_logged()) {
            let clock = logs.iter().find(|log| log.name == spec.name).map_or(0, |log| log.clock);
            spec.clock = spec.clock.max(clock);
        }
        let members = view.members.iter().map(|id| attempt.promised.get(id).map(|promise| promise.process));
        let members = members.collect::<Option<Vec<Process>>>()?;
        view.check().ok()?;
        let hosts = view.members.iter().map(|id| attempt.promised.get(id).map_or(0, |promise| promise.host)).collect();
        Some(Choice::Propose(RestartView { view, hosts, members, logs }))
    }

    /// Gives up the attempt, which has failed.
    fn fail(&mut self) {
        self.attempt = None;
        self.failures += 1;
        let rank = self.record.view.rank_of(self.setup.me.id).map_or(0, |rank| u64::from(rank.0));
        let pause = (PAUSE << self.failures.min(DOUBLINGS)) * (1 + rank);
        self.teller().failed(self.failures, pause);
        self.not_before = self.not_before.max(Time(self.now.0 + pause));
    }

    /// Forgets the answers of a member whose process is another one now.
    pub(super) fn forget_answers(&mut self, id: MemberId) {
        if let Some(attempt) = &mut self.attempt {
            attempt.promised.remove(&id);
            attempt.behind.remove(&id);
            attempt.accepted.remove(&id);
            // A view with that member's earlier process may have been accepted. It is proposed again
            // by the next attempt, if so.
            if attempt.value.as_ref().is_some_and(|value| value.view.rank_of(id).is_some()) {
                self.fail();
            }
        }
    }

    pub(super) fn prepare(&mut self, from: Process, ballot: RestartBallot, base: View, hosts: Vec<u128>) {
        self.learn_base(base.clone(), hosts);
        if !self.votes_on(from, base.id) {
            return;
        }
        if ballot < self.record.promised {
            return self.send_behind(from);
        }
        if ballot > self.record.promised && !mutation!(RestartPromiseForgotten) {
            self.record.promised = ballot;
            self.teller().promised(ballot, base.id);
            self.persist();
        }
        self.defer(ballot);
        self.promise(from, ballot);
    }

    /// Sends a promise, which is in the record.
    pub(super) fn promise(&mut self, to: Process, ballot: RestartBallot) {
        let promise = RestartMessage::Promise {
            base: self.record.view.id,
            ballot,
            accepted: self.record.accepted.clone().map(Box::new),
            logs: self.setup.logs.clone(),
            origins: self.record.origins.clone(),
            said_last: self.record.said_last,
            host: self.setup.host,
        };
        self.send(RestartTo::Process(to), promise);
    }

    /// Gets the records that the logs of this process lack. Answers with another promise.
    pub(super) fn catch_up(&mut self, from: Process, ballot: RestartBallot, base: ViewId, logs: Vec<LongestLog>) {
        if !self.votes_on(from, base) {
            return;
        }
        if ballot != self.record.promised {
            return self.send_behind(from);
        }
        self.defer(ballot);
        self.promise(from, ballot);
        // A leader that has heard no later promise may ask for less than this process has reported since.
        let last = |name: &str| self.setup.logs.iter().find(|log| log.name == name).and_then(|log| log.last);
        let is_behind = |log: &LongestLog| last(&log.state.name) < log.state.last || mutation!(RestartCutsBack);
        let behind: Vec<LongestLog> = logs.into_iter().filter(is_behind).collect();
        let names = behind.iter().map(|log| log.state.name.clone()).collect();
        self.catching_up = Some(CatchUpOrder { leader: from, ballot, logs: names });
        if !behind.is_empty() {
            self.outputs.push_back((self.writes, RestartOutput::CatchUp(behind)));
        }
    }

    /// Returns the order of the leader with the highest promised ballot, if it waits for logs of this process.
    fn order(&self) -> Option<&CatchUpOrder> {
        self.catching_up.as_ref().filter(|order| order.ballot == self.record.promised)
    }

    /// Promises again, because the logs have changed.
    pub(super) fn tell_logs(&mut self) {
        if let Some(CatchUpOrder { leader, ballot, .. }) = self.order() {
            let (leader, ballot) = (*leader, *ballot);
            self.promise(leader, ballot);
        }
    }

    /// Notes that a log is to lose the records after `last`, which the group does not have. Returns whether it may:
    /// a leader other than the one that has ordered to catch up may count on them.
    pub fn begin_cut(&mut self, name: &str, last: Option<Position>, now: Time) -> bool {
        self.at(now);
        if mutation!(RestartCutUnreported) {
            return true;
        }
        let has_accepted = self.record.accepted.as_ref().is_some_and(|(ballot, _)| *ballot == self.record.promised);
        if has_accepted || self.order().is_none_or(|order| !order.logs.iter().any(|log| log == name)) {
            return false;
        }
        if let Some(log) = self.setup.logs.iter_mut().find(|log| log.name == name && log.last > last) {
            log.last = last;
            self.tell_logs();
        }
        true
    }

    /// True if the logs of this process end where a view begins, or later. Logs of subgroups in which it is not there
    /// may be shorter.
    fn has_records_of(&self, value: &RestartView) -> bool {
        let last = |logs: &[LogState], name: &str| logs.iter().find(|log| log.name == name).and_then(|log| log.last);
        let has_all = |spec: &SubgroupSpec| last(&self.setup.logs, &spec.name) >= last(&value.logs, &spec.name);
        let me = value.view.rank_of(self.setup.me.id).filter(|_| value.members.contains(&self.setup.me));
        me.is_none_or(|me| value.view.subgroups_of(me).all(|(_, spec)| has_all(spec)))
    }

    pub(super) fn accept(&mut self, from: Process, ballot: RestartBallot, (base, value): (ViewId, RestartView)) {
        if !self.votes_on(from, base) || !value.view.id.follows(base) {
            return;
        }
        if ballot < self.record.promised {
            return self.send_behind(from);
        }
        // The leader has not heard that a log was cut.
        if !self.has_records_of(&value) {
            return;
        }
        if self.record.accepted.as_ref().is_none_or(|(accepted, _)| *accepted < ballot) {
            self.record.promised = ballot;
            self.record.accepted = Some((ballot, value));
            self.persist();
        }
        self.defer(ballot);
        self.send(RestartTo::Process(from), RestartMessage::Accepted { base, ballot });
    }

    /// True if this process votes on the view after `base`. If not, it sends the reason.
    fn votes_on(&mut self, from: Process, base: ViewId) -> bool {
        let newest = &self.record.view;
        if base < newest.id {
            self.send_base(from);
            return false;
        }
        base == newest.id && newest.rank_of(self.setup.me.id).is_some()
    }

    fn send_behind(&mut self, to: Process) {
        let (base, promised) = (self.record.view.id, self.record.promised);
        self.send(RestartTo::Process(to), RestartMessage::Behind { base, promised });
    }

    /// Gives another leader time for its attempt.
    fn defer(&mut self, ballot: RestartBallot) {
        self.round = self.round.max(ballot.round);
        if ballot.leader != self.setup.me.id {
            self.not_before = self.not_before.max(Time(self.now.0 + ATTEMPT_FOR / 2));
        }
    }

    pub(super) fn hear_promise(&mut self, (base, ballot): (ViewId, RestartBallot), promise: RestartPromise) {
        let is_mine = |attempt: &&mut RestartAttempt| attempt.ballot == ballot && attempt.value.is_none();
        let is_current = base == self.record.view.id;
        if let Some(attempt) = self.attempt.as_mut().filter(is_mine).filter(|_| is_current) {
            let id = promise.process.id;
            let has_moved = attempt.promised.get(&id).is_some_and(|before| before.logs != promise.logs);
            attempt.promised.insert(id, promise);
            if has_moved {
                attempt.moved = self.now;
            }
        }
    }

    pub(super) fn hear_behind(&mut self, base: ViewId, promised: RestartBallot) {
        if base != self.record.view.id {
            return;
        }
        self.round = self.round.max(promised.round);
        if self.attempt.as_ref().is_some_and(|attempt| attempt.ballot < promised) {
            self.fail();
        }
    }

    pub(super) fn hear_accepted(&mut self, from: Process, base: ViewId, ballot: RestartBallot) {
        let is_mine = |attempt: &&mut RestartAttempt| attempt.ballot == ballot && attempt.value.is_some();
        let is_current = base == self.record.view.id;
        if let Some(attempt) = self.attempt.as_mut().filter(is_mine).filter(|_| is_current) {
            attempt.accepted.insert(from.id);
        }
    }

    /// Tells all processes that are here what is decided.
    fn announce(&mut self, base: ViewId, value: RestartView) {
        let others: Vec<Process> = self.here.values().map(|here| here.process).collect();
        for to in others {
            let message = RestartMessage::Decided { base, value: Box::new(value.clone()) };
            self.send(RestartTo::Process(to), message);
        }
        self.decided(base, value);
    }

    /// Takes over a decision. Begins the view if this process is in it.
    pub(super) fn decided(&mut self, base: ViewId, value: RestartView) {
        let newest = self.record.view.id;
        if !value.view.id.follows(base) || value.view.id < newest {
            return;
        }
        // A process that votes on the view after this one does not begin this one any more.
        let has_voted = newest == value.view.id && self.record.promised != RestartBallot::default();
        let is_in = value.members.contains(&self.setup.me) && (!has_voted || mutation!(RestartBeginsLate));
        self.teller().decided(&value, is_in);
        if !value.members.is_empty() {
            self.decided = Some((base, value.clone()));
        }
        // A view that was accepted while the group ran has no process that could have begun it and is here.
        self.is_replaced = !is_in && !value.members.is_empty() && value.view.rank_of(self.setup.me.id).is_some();
        if newest != value.view.id {
            self.attempt = None;
            self.record.learn(value.view.clone(), value.hosts.clone(), self.setup.me.id);
            self.persist();
        }
        if is_in {
            self.begun = Some((base, value.clone()));
            self.outputs.push_back((self.writes, RestartOutput::Begin(Box::new(value))));
        }
    }
}

/// For each logged subgroup of `view`: the last record of the longest log of those that have promised, and those
/// that have it.
fn longest_logs(view: &View, attempt: &RestartAttempt) -> Vec<LongestLog> {
    let longest = |spec: &SubgroupSpec| {
        // A log counts if it is whole, whatever becomes of its member: another log may be the reason why that one joins.
        let is_whole = |promise: &RestartPromise| !promise.origins.iter().any(|origin| origin.name == spec.name);
        let counts = |id: &MemberId, promise| view.rank_of(*id).is_some() || is_whole(promise);
        let promised = || attempt.promised.iter().filter(move |(id, promise)| counts(id, promise));
        let logs = promised().filter_map(|(_, promise)| promise.logs.iter().find(|log| log.name == spec.name));
        let state = match mutation!(RestartTakesShortest) {
            true => logs.min_by_key(|log| log.last),
            false => logs.max_by_key(|log| log.last),
        };
        let state = state.cloned().unwrap_or_else(|| LogState { name: spec.name.clone(), last: None, clock: 0 });
        let has_it = |promise: &&RestartPromise| promise.last(&spec.name) == state.last;
        let holders = promised().map(|(_, promise)| promise).filter(has_it).map(|promise| promise.process).collect();
        LongestLog { state, holders }
    };
    view.subgroups.iter().filter(|spec| spec.is_logged()).map(longest).collect()
}

/// By member of `view`, the logs of its subgroups that do not end with the last record of the longest
/// one.
fn lacking(view: &View, longest: &[LongestLog], attempt: &RestartAttempt) -> BTreeMap<MemberId, Vec<LongestLog>> {
    let mut behind: BTreeMap<MemberId, Vec<LongestLog>> = BTreeMap::new();
    for log in longest {
        let spec = view.subgroups.iter().find(|spec| spec.name == log.state.name);
        let members = spec.into_iter().flat_map(|spec| &spec.members).map(|rank| view.members[rank.index()]);
        let last = |id: &MemberId| attempt.promised.get(id).and_then(|promise| promise.last(&log.state.name));
        for id in members.filter(|id| last(id) != log.state.last) {
            behind.entry(id).or_default().push(log.clone());
        }
    }
    behind
}
