//! State transfer: processes that join with the state of the group's application, and the members
//! that send it.
//!
//! The state of an application consists of its deliveries since the group was created: per
//! subgroup, the number of messages, and a digest of them in their order.
use super::ledger::HostsLedger;
use super::network::PacketLoad;
use super::plan::{MS, S};
use super::process::{Near, ProcessPhase, SimProcess};
use super::subgroups::is_common;
use super::views::NextView;
use super::watching::{Following, PAUSE_NS};
use super::world::{Broken, HostsWorld};
use crate::Violation;
use crate::checkers::Checked;
use crate::checkers::Invariant;
use crate::random::mix;
use spindle_core::control::{
    Bootstrapping, ControlEvent, ControlMessage, Learn, LearnError, Purpose, Restored, ViewStart,
};
use spindle_core::{MemberId, Rank, SubgroupId, SubgroupSpec, Time, View, ViewId};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

const STATE: Invariant = Invariant(22, "state at the first view");

/// The longest time that a state takes at its source.
const SEND_NS: u64 = 300 * MS;
/// The time without data after which a state transfer has failed.
const PATIENCE_NS: u64 = 5 * S;

/// By the subgroup's name: the number of delivered messages, and their digest.
type DeliveredCounts = BTreeMap<String, (u64, u64)>;

/// The deliveries of an application.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AppState {
    delivered: DeliveredCounts,
}

impl AppState {
    pub(super) fn apply(&mut self, view: &View, subgroup: u32, message: (u32, u32)) {
        let name = &view.subgroups[subgroup as usize].name;
        if !self.delivered.contains_key(name) {
            self.delivered.insert(name.clone(), (0, 0));
        }
        let (count, digest) = self.delivered.get_mut(name).expect("it is there");
        *count += 1;
        *digest = mix(*digest ^ (u64::from(message.0) << 32 | u64::from(message.1)));
    }

    /// Returns the states of the `touched` subgroups that contain all members and have a total
    /// order, if `id` is in the view. A subgroup is touched if the end of the view ends its epoch.
    fn of(&self, view: &View, touched: &[bool], id: MemberId, initial: &[SubgroupSpec]) -> DeliveredCounts {
        let specs = view.rank_of(id).into_iter().flat_map(|rank| view.subgroups_of(rank));
        let common = specs.filter(|(id, spec)| touched[id.index()] && is_common(initial, &spec.name));
        let names = common.map(|(_, spec)| &spec.name);
        names.map(|name| (name.clone(), self.delivered.get(name).copied().unwrap_or_default())).collect()
    }
}

/// The states of all members at the ends of views, each as the first member had it that ended the
/// view.
#[derive(Debug, Default)]
pub(super) struct States {
    ends: BTreeMap<(u128, u64), (usize, DeliveredCounts)>,
}

impl States {
    /// Records the state of a process that has delivered all of a view. All processes that did so
    /// have the same state, except those that were given up.
    fn ends(&mut self, key: (u128, u64), process: usize, state: DeliveredCounts, ledger: &HostsLedger) -> Checked {
        if ledger.is_given_up(process) {
            return Ok(());
        }
        self.ends.retain(|of, (process, _)| *of != key || !ledger.is_given_up(*process));
        let (other, known) = self.ends.entry(key).or_insert_with(|| (process, state.clone()));
        let differs = |(name, had): (&String, &(u64, u64))| known.get(name).is_some_and(|known| known != had);
        match state.iter().any(differs) {
            true => STATE.broken(format!(
                "process {process} has the state {state:?} at the end of view {}, process {other} had {known:?}",
                key.1
            )),
            false => Ok(()),
        }
    }
}

/// A state between two deliveries.
#[derive(Debug)]
pub(super) struct AppSnapshot {
    places: Vec<Option<u64>>,
    app: AppState,
}

/// A state that a member sends.
#[derive(Debug)]
pub(super) struct StateSending {
    connection: usize,
    due: u64,
}

/// A state that waits for its connection.
#[derive(Debug)]
pub(super) struct Pledged {
    to: MemberId,
    view: ViewId,
    snapshot: Rc<AppSnapshot>,
}

/// An incoming state.
#[derive(Debug)]
struct StateArrival {
    connection: usize,
    view: ViewId,
    source: MemberId,
    since: u64,
    head: Option<Rc<AppSnapshot>>,
    has_body: bool,
}

/// An item that the application applies in order.
#[derive(Debug)]
enum AppItem {
    Message(SubgroupId, Rank, u64, (u32, u32)),
    Changed(Arc<View>),
}

/// A learner.
#[derive(Debug)]
pub(super) struct Learning {
    learn: Learn,
    following: Following,
    /// The bootstrap state, for use once this process is in a group.
    boot: Option<Bootstrapping>,
    coming: Option<StateArrival>,
    /// The view in which the state that is being restored was taken.
    taken: Option<Arc<View>>,
    restored: Option<Restored>,
    queue: VecDeque<AppItem>,
}

/// The result of a step.
enum LearningStep {
    Waits(u64),
    Failed(LearnError),
    Enters(View, Vec<(SubgroupId, Rank, u64)>),
}

impl HostsWorld<'_> {
    /// Begins a state transfer, because a group exists.
    pub(super) fn begin_learning(&mut self, process: &mut SimProcess) {
        let now = Time(self.now);
        let failed = self.places[process.place].failed_source.take();
        self.note(|| format!("process {} learns", process.number));
        self.tell(process.number, || "asks for the state".into());
        process.phase = ProcessPhase::Learns(Box::new(Learning {
            learn: Learn::new(failed, now),
            following: Following::new(process.settings.digest(), self.scene.members, now),
            boot: process.boot.take(),
            coming: None,
            taken: None,
            restored: None,
            queue: VecDeque::new(),
        }));
    }

    /// Runs a step of a learner.
    pub(super) fn learn(&mut self, process: &mut SimProcess, news: Vec<ControlEvent>) -> NextView {
        let ProcessPhase::Learns(mut learning) = std::mem::replace(&mut process.phase, ProcessPhase::Out) else {
            return Ok(u64::MAX);
        };
        let step = if process.is_leaving { None } else { Some(self.learn_more(process, &mut learning, news)?) };
        if let Some(LearningStep::Waits(wake_at)) = step {
            process.phase = ProcessPhase::Learns(learning);
            return Ok(wake_at);
        }
        self.stop_following(process.number, &mut learning.following);
        if let Some(coming) = learning.coming.take() {
            self.close_side(coming.connection, process.number);
        }
        match step {
            Some(LearningStep::Enters(view, known)) => {
                let incarnation = learning.following.follow.incarnation();
                if self.enter(process, incarnation) {
                    self.note(|| format!("process {} is let in to view {} with the state", process.number, view.id));
                    self.tell(process.number, || format!("is admitted to view {} with the state", view.id.count()));
                    self.outcome.counts.joins += 1;
                    self.outcome.counts.learned += u64::from(learning.learn.has_state());
                    process.boot = learning.boot.take();
                    return self.begin_first(process, view, &known);
                }
            }
            Some(LearningStep::Failed(why)) => {
                self.note(|| format!("process {} learns no more: {why:?}", process.number));
                self.tell(process.number, || format!("stops learning: {why:?}"));
                // The group may have admitted it.
                self.excused.insert(process.me.id, self.now);
                match why {
                    LearnError::Refused(why) => return self.refused(process, why),
                    LearnError::Source => self.outcome.counts.transfers_lost += 1,
                    LearnError::PassedOver => self.outcome.counts.passed_over += 1,
                    LearnError::Lapped => {
                        self.outcome.counts.lapped += 1;
                        self.places[process.place].is_lapped = true;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        // The process was no member.
        process.roster.set_incarnation(0);
        self.go_away(process)
    }

    fn learn_more(
        &mut self,
        process: &mut SimProcess,
        learning: &mut Learning,
        news: Vec<ControlEvent>,
    ) -> Result<LearningStep, Violation> {
        let now = Time(self.now);
        self.apply_learned(process, learning);
        let Learning { learn, following, restored, queue, .. } = learning;
        if learn.is_catching_up() && restored.is_some() {
            learn.note_waiting(queue.len());
        }
        if learn.is_due(&mut following.follow, now) {
            let here = self.hosts[process.host].members();
            if let Err(why) = learn.ask(&here, &mut following.follow, &mut process.roster, now) {
                return Ok(LearningStep::Failed(why));
            }
        }
        self.carry_out(process)?;
        for one in news {
            if let ControlEvent::Died(id) | ControlEvent::Lost(id) = &one {
                following.ahead.lost(*id);
            }
            match learn.hear(one, &mut following.follow, &mut process.roster, now) {
                Ok(Some(ControlEvent::Waits { blocked, .. })) => {
                    (process.is_told, process.knows_blocked) = (true, blocked)
                }
                Ok(_) => {}
                Err(why) => return Ok(LearningStep::Failed(why)),
            }
        }
        self.progress_following(process.number, following);
        if let Some(why) = self.look_for_the_state(process, learning) {
            return Ok(LearningStep::Failed(why));
        }
        let Learning { learn, following, .. } = learning;
        if let Some(view) = learn.created(&following.follow, &process.roster) {
            return Ok(LearningStep::Enters(view, vec![]));
        }
        if following.is_cut_off(now) {
            return Ok(LearningStep::Failed(LearnError::CutOff));
        }
        if let Err(why) = learn.check(&following.follow, &process.roster, now) {
            return Ok(LearningStep::Failed(why));
        }
        if let Some(start) = self.begin_following(process, following)? {
            let places = following.places();
            if start == ViewStart::Newest {
                self.ledger.forgets(process.number);
            }
            match learn.begin(start, places, &mut following.follow, now) {
                Ok(true) => learning.queue.clear(),
                Ok(false) => {}
                Err(why) => return Ok(LearningStep::Failed(why)),
            }
        }
        loop {
            match self.next_seen(process, &mut learning.following) {
                Ok(Some((seen, message))) => {
                    let follow = &learning.following.follow;
                    let key = (follow.incarnation(), follow.view().expect("it is followed").id.0);
                    self.ledger.learns(key, process.number, seen.subgroup.0, message);
                    learning.queue.push_back(AppItem::Message(seen.subgroup, seen.sender, seen.round, message));
                }
                Ok(None) => break,
                Err(lapped) => {
                    if let Some(view) = learning.following.follow.view().cloned().filter(|_| lapped.is_object) {
                        self.check_missed(process, &view, lapped.subgroup)?;
                    }
                    return Ok(LearningStep::Failed(LearnError::Lapped));
                }
            }
        }
        if let Some((old, next)) = self.end_following(process, &mut learning.following) {
            if self.broken == Broken::TailForgotten && learning.restored.is_some() {
                learning.queue.pop_back();
            }
            let is_in = match learning.learn.end(&next, &process.roster) {
                Ok(is_in) => is_in,
                Err(why) => return Ok(LearningStep::Failed(why)),
            };
            self.apply_learned(process, learning);
            if learning.restored.is_some() {
                let key = (learning.following.follow.incarnation(), old.id.0);
                // The end of a view that a learner follows touches all subgroups.
                let touched = vec![true; next.subgroups.len()];
                let state = process.app.of(&next, &touched, process.me.id, &self.scene.subgroups);
                if !self.scene.errs {
                    self.states.ends(key, process.number, state, &self.ledger)?;
                }
            }
            if is_in {
                return Ok(LearningStep::Enters((*next).clone(), learning.following.known_in(&next)));
            }
            if learning.learn.has_state() {
                learning.queue.push_back(AppItem::Changed(next));
            }
        }
        self.carry_out(process)?;
        // Seldom, the process gets no time for a while.
        let longest = if self.random.one_in(500) { 400 * MS } else { PAUSE_NS.1 };
        Ok(LearningStep::Waits(self.now + self.random.range(PAUSE_NS.0, longest)))
    }

    /// Applies the messages that have arrived after the state.
    fn apply_learned(&mut self, process: &mut SimProcess, learning: &mut Learning) {
        let Some(restored) = &mut learning.restored else { return };
        for item in learning.queue.drain(..) {
            match item {
                AppItem::Message(subgroup, sender, round, message) if restored.lacks(subgroup, sender, round) => {
                    process.app.apply(restored.view(), subgroup.0, message);
                }
                AppItem::Message(..) => {}
                AppItem::Changed(view) => restored.begin(view),
            }
        }
    }

    /// Restores the incoming state. Returns an error if the transfer failed.
    fn look_for_the_state(&mut self, process: &mut SimProcess, learning: &mut Learning) -> Option<LearnError> {
        let (now, number) = (Time(self.now), process.number);
        for (view, source, connection) in std::mem::take(&mut process.incoming) {
            if learning.taken.is_some() || !learning.learn.state_comes(view, source, &learning.following.follow) {
                self.close_side(connection, number);
                continue;
            }
            let coming = StateArrival { connection, view, source, since: self.now, head: None, has_body: false };
            if let Some(before) = learning.coming.replace(coming) {
                self.close_side(before.connection, number);
            }
        }
        let coming = learning.coming.as_mut()?;
        let is_open = self.receive_state(number, coming);
        if let (Some(head), None) = (&coming.head, &learning.taken) {
            let follow = &mut learning.following.follow;
            learning.taken = learning.learn.state_opened(coming.view, &head.places, follow, now);
            if learning.taken.is_none() {
                let connection = coming.connection;
                learning.coming = None;
                self.close_side(connection, number);
                return None;
            }
        }
        let coming = learning.coming.as_mut()?;
        match (&learning.taken, coming.has_body) {
            (Some(view), true) => {
                let head = coming.head.as_ref().expect("it came before");
                process.app = head.app.clone();
                learning.restored = Some(Restored::new(Arc::clone(view), head.places.clone()));
                self.outcome.counts.transfers += 1;
                let (connection, source, view) = (coming.connection, coming.source, coming.view);
                self.note(|| format!("process {number} has the state of member {source} in view {view}"));
                learning.coming = None;
                self.tell_state(number, (learning.following.follow.incarnation(), view), source, &process.app);
                self.close_side(connection, number);
                self.apply_learned(process, learning);
            }
            _ if is_open && self.now < coming.since + PATIENCE_NS => {}
            (Some(_), false) => {
                self.places[process.place].failed_source = Some(coming.source);
                return Some(LearnError::Source);
            }
            (None, _) => {
                let connection = coming.connection;
                learning.coming = None;
                learning.learn.state_failed(&mut learning.following.follow, now);
                self.close_side(connection, number);
            }
        }
        None
    }

    /// Records that a learner has a state.
    fn tell_state(&mut self, process: usize, (of, view): (u128, ViewId), source: MemberId, app: &AppState) {
        let source = self.name_of(of, view, source);
        let count: u64 = app.delivered.values().map(|(count, _)| count).sum();
        self.tell(process, || format!("has the state of {source}, which contains {count} messages"));
    }

    /// Receives the data of a state. Returns true if its connection is open.
    fn receive_state(&mut self, number: usize, coming: &mut StateArrival) -> bool {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(coming.connection) else { return false };
        let end = connection.end_of(number);
        let is_open = connection.ends[end].is_open;
        while is_open && connection.ends[1 - end].out.front().is_some_and(|packet| packet.due <= now) {
            match connection.ends[1 - end].out.pop_front().expect("it is there").load {
                PacketLoad::StateHead(head) => (coming.head, coming.since) = (Some(head), now),
                PacketLoad::StateBody => coming.has_body = true,
                PacketLoad::Reset => return false,
                _ => {}
            }
        }
        is_open
    }

    /// Sends the state of a member's application to a learner that has asked for it.
    pub(super) fn give_state(&mut self, process: &mut SimProcess) -> Checked {
        let (ProcessPhase::Member(member), Some(table)) = (&mut process.phase, &process.table) else { return Ok(()) };
        if !member.has_state_requests() {
            return Ok(());
        }
        // Some applications can't report which messages they have taken.
        let is_known = self.scene.members < 2 || !self.random.one_in(8);
        let to = member.next_state(is_known, &mut process.roster);
        let (view, from) = (table.view.id, process.me.id);
        if let Some(to) = to {
            let ids = (0..table.view.subgroups.len() as u32).map(SubgroupId);
            let mut places: Vec<Option<u64>> = ids.map(|id| member.engine().delivered(id)).collect();
            if self.broken == Broken::StateMisplaced {
                places.iter_mut().flatten().for_each(|place| *place += 1);
            }
            let snapshot = Rc::new(AppSnapshot { places, app: process.app.clone() });
            self.note(|| format!("process {} gives its state in view {view} to {to}", process.number));
            let learner = self.name_of(process.roster.incarnation(), view, to);
            self.tell(process.number, || format!("gives its state to {learner}"));
            let far = process.roster.book().and_then(|book| book.far(to)).cloned();
            if let Some(address) = far {
                process.pledged.push(Pledged { to, view, snapshot });
                self.begin_attempt(process.number, address, Some(to), Purpose::State { view });
            } else if let Some(learner) = self.control_socket_of(process, to) {
                let connection = self.connect_here(process, learner);
                let message = ControlMessage::State { view, from };
                let near =
                    Near { message: message.encode().into(), attachment: [].into(), row: Some((connection, learner)) };
                process.outbox.push_back((to, near));
                self.send_state(process, connection, snapshot);
            }
        }
        self.carry_out(process)
    }

    /// Uses an established connection over which this process sends a state to `to`.
    pub(super) fn send_pledged(&mut self, process: &mut SimProcess, to: MemberId, view: ViewId, connection: usize) {
        let found = process.pledged.iter().position(|pledged| pledged.to == to && pledged.view == view);
        match found.map(|at| process.pledged.swap_remove(at)) {
            Some(pledged) => self.send_state(process, connection, pledged.snapshot),
            None => self.close_side(connection, process.number),
        }
    }

    fn send_state(&mut self, process: &mut SimProcess, connection: usize, snapshot: Rc<AppSnapshot>) {
        self.send_over(connection, 0, PacketLoad::StateHead(snapshot), false);
        let due = self.now + self.random.range(MS / 10, SEND_NS);
        process.sending.push(StateSending { connection, due });
    }

    /// Sends the rest of the states in transfer. Returns the time of the next step.
    pub(super) fn send_states(&mut self, process: &mut SimProcess) -> u64 {
        let now = self.now;
        let due = process.sending.extract_if(.., |sending| sending.due <= now).collect::<Vec<_>>();
        for StateSending { connection, .. } in due {
            self.send_over(connection, 0, PacketLoad::StateBody, false);
        }
        process.sending.iter().map(|sending| sending.due).min().unwrap_or(u64::MAX)
    }

    /// Checks the state of a member that has ended a view against the other members that have ended
    /// it.
    pub(super) fn check_state(
        &mut self,
        process: &SimProcess,
        key: (u128, u64),
        view: &View,
        touched: &[bool],
    ) -> Checked {
        match self.scene.learns {
            true => {
                let state = process.app.of(view, touched, process.me.id, &self.scene.subgroups);
                self.states.ends(key, process.number, state, &self.ledger)
            }
            false => Ok(()),
        }
    }
}
