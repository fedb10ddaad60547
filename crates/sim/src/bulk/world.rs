//! Hosts, messages and time: one heap of events.
use super::ledger::BulkLedger;
use super::network::{NetworkModel, Wires};
use super::plan::{BulkScene, GroupPlan, HostDeath};
use crate::checkers::{Checked, Invariant, Violation};
use crate::random::{Random, mix};
use spindle_core::Rank;
use spindle_core::rdmc::{
    Columns, Input, ObjectNumber, Output, Schedule, Session, SessionSendError, SessionSettings, Slot,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt::Write;

const LIVENESS: Invariant = Invariant(15, "liveness");
const FAULTLESS: Invariant = Invariant(11, "monotone rows, single writer");

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BulkOutcome {
    /// The first violation.
    pub violations: Vec<Violation>,
    /// Objects that roots began to send.
    pub objects: u64,
    /// Blocks that landed.
    pub blocks: u64,
    /// Posts that carried counters only.
    pub counters: u64,
    /// Objects that members other than the root completed, counted once per member.
    pub completions: u64,
    /// Objects that failed, counted once per member.
    pub failures_told: u64,
    /// Hosts that died.
    pub deaths: u64,
    /// Messages that were late.
    pub late: u64,
    /// Events that were processed.
    pub events: u64,
    /// The virtual time that passed, in ns.
    pub virtual_ns: u64,
    /// By group and object: the times at which the root began it, and at which the last receiver
    /// had it, in ns.
    pub times: Vec<Vec<(u64, u64)>>,
    /// A hash of all events, in their order.
    pub trace_hash: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TransferEvent {
    /// A host processes its inputs.
    Wake { host: u32 },
    /// The last byte of a block has reached its receiver's rack.
    Tail { message: usize },
    /// The block is in its receiver's memory.
    Landed { message: usize },
    /// The sender learns that its block has been sent.
    Gone { message: usize },
    /// An application has provided memory.
    Room { group: usize, rank: u32, object: u64 },
    /// A root may have something to send.
    Start { group: usize },
    /// A host learns that another host is dead.
    Noticed { host: u32 },
}

#[derive(Clone, Copy, Debug)]
enum BulkContent {
    Block { object: ObjectNumber, at: u64, bytes: u64, is_first: bool },
    Columns,
    Closed { dead: Rank },
}

#[derive(Clone, Copy, Debug)]
struct BulkMessage {
    group: usize,
    from: Rank,
    to: Rank,
    slot: Slot,
    columns: Columns,
    content: BulkContent,
    landed: bool,
}

/// A host's processor.
#[derive(Clone, Debug, Default)]
struct HostProcessor {
    inbox: VecDeque<(usize, Rank, Input)>,
    is_awake: bool,
    free_at: u64,
    is_dead: bool,
}

#[derive(Debug)]
struct SimBulkGroup {
    hosts: Vec<u32>,
    sessions: Vec<Session>,
    ledger: BulkLedger,
    sent: usize,
}

pub(super) struct BulkWorld<'a> {
    scene: &'a BulkScene,
    random: Random,
    wires: Wires,
    hosts: Vec<HostProcessor>,
    groups: Vec<SimBulkGroup>,
    messages: Vec<BulkMessage>,
    /// By sending and receiving host: messages that have not landed, or that wait for an earlier
    /// one.
    pairs: BTreeMap<(u32, u32), VecDeque<usize>>,
    heap: BinaryHeap<Reverse<(u64, u64, TransferEvent)>>,
    pushed: u64,
    now: u64,
    outcome: BulkOutcome,
    story: Option<&'a mut String>,
}

impl<'a> BulkWorld<'a> {
    pub(super) fn new(scene: &'a BulkScene, story: Option<&'a mut String>) -> BulkWorld<'a> {
        BulkWorld {
            scene,
            random: Random::new(scene.seed, 8),
            wires: Wires::new(&scene.network),
            hosts: vec![HostProcessor::default(); scene.network.hosts as usize],
            groups: vec![],
            messages: vec![],
            pairs: BTreeMap::new(),
            heap: BinaryHeap::new(),
            pushed: 0,
            now: 0,
            outcome: BulkOutcome::default(),
            story,
        }
    }

    pub(super) fn run(mut self) -> BulkOutcome {
        if let Err(violation) = self.play() {
            self.outcome.violations.push(Violation { at: self.now, ..violation });
        }
        self.outcome.virtual_ns = self.now;
        self.outcome
    }

    fn play(&mut self) -> Checked {
        for plan in &self.scene.groups {
            self.create(plan)?;
        }
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            self.now = at;
            self.outcome.events += 1;
            if self.outcome.events > self.scene.events_max {
                return LIVENESS.broken(format!("no rest after {} events", self.scene.events_max));
            }
            if let Some(death) = self.scene.death.as_ref().filter(|death| death.event + 1 == self.outcome.events) {
                self.die(death);
            }
            self.happen(event)?;
        }
        self.groups.iter().zip(&self.scene.groups).try_for_each(|(group, plan)| group.ledger.rest(plan.objects.len()))
    }

    fn create(&mut self, plan: &GroupPlan) -> Checked {
        let members = plan.hosts.len() as u32;
        let schedule = Schedule::new(plan.algorithm.clone(), members);
        let group = self.groups.len();
        let (mut sessions, mut outs) = (vec![], vec![]);
        for me in (0..members).map(Rank) {
            let mut out = vec![];
            let settings = SessionSettings {
                schedule: schedule.clone(),
                me,
                block_bytes: plan.block_bytes,
                slots: plan.slots,
                ahead: plan.ahead,
                posts_max: plan.posts_max,
                direct_below: plan.direct_below,
            };
            sessions.push(Session::new(settings, &mut out).expect("the plan is in range"));
            outs.push(out);
        }
        let ledger = BulkLedger::new(members, plan.slots, plan.block_bytes);
        self.groups.push(SimBulkGroup { hosts: plan.hosts.clone(), sessions, ledger, sent: 0 });
        self.outcome.times.push(vec![]);
        for (rank, out) in (0..).map(Rank).zip(outs) {
            let mut at = 0;
            self.act(group, rank, &out, &mut at)?;
        }
        for (_, at) in &plan.objects {
            self.push(*at, TransferEvent::Start { group });
        }
        Ok(())
    }

    fn happen(&mut self, event: TransferEvent) -> Checked {
        match event {
            TransferEvent::Wake { host } => self.wake(host),
            TransferEvent::Tail { message } => {
                let BulkMessage { group, from, to, content, .. } = self.messages[message];
                let [from, to] = [from, to].map(|rank| self.host(group, rank));
                if let BulkContent::Block { bytes, .. } = content {
                    let at = self.wires.arrive(&self.scene.network, from, to, bytes, self.now);
                    self.push(at, TransferEvent::Landed { message });
                }
                Ok(())
            }
            TransferEvent::Landed { message } => self.land(message),
            TransferEvent::Gone { message } => {
                let BulkMessage { group, from, slot, content, .. } = self.messages[message];
                if let BulkContent::Block { object, .. } = content {
                    self.groups[group].ledger.gone(from.0, object.0);
                    self.tell(group, from, Input::Gone { slot });
                }
                Ok(())
            }
            TransferEvent::Room { group, rank, object } => {
                self.groups[group].ledger.room(rank, object);
                self.tell(group, Rank(rank), Input::Room { object: ObjectNumber(object) });
                Ok(())
            }
            TransferEvent::Start { group } => self.start(group),
            TransferEvent::Noticed { host } => {
                let dead = self.scene.death.as_ref().map(|death| death.host);
                for group in 0..self.groups.len() {
                    let rank = |host| self.groups[group].hosts.iter().position(|other| Some(*other) == host);
                    if let (Some(me), Some(dead)) = (rank(Some(host)), rank(dead)) {
                        self.tell(group, Rank(me as u32), Input::Died { rank: Rank(dead as u32) });
                    }
                }
                Ok(())
            }
        }
    }

    /// Lets a root send the objects that it has.
    fn start(&mut self, group: usize) -> Checked {
        let root = self.host(group, Rank(0));
        let plan = &self.scene.groups[group];
        while let Some((bytes, at)) = plan.objects.get(self.groups[group].sent).copied()
            && at <= self.now
            && !self.hosts[root as usize].is_dead
        {
            let mut out = vec![];
            match self.groups[group].sessions[0].send(bytes, &mut out) {
                Ok(object) => {
                    self.note(|| format!("g{group} sends object {} of {bytes} bytes", object.0));
                    self.groups[group].sent += 1;
                    self.groups[group].ledger.begin(object.0, bytes)?;
                    self.outcome.objects += 1;
                    self.outcome.times[group].push((self.now, self.now));
                }
                Err(SessionSendError::Full { .. } | SessionSendError::Closed { .. }) => break,
                Err(other) => return LIVENESS.broken(format!("g{group} can't send {bytes} bytes: {other}")),
            }
            let mut at = self.now.max(self.hosts[root as usize].free_at);
            self.act(group, Rank(0), &out, &mut at)?;
            self.hosts[root as usize].free_at = at;
        }
        Ok(())
    }

    /// Lets a host process all its inputs, and carries out the resulting actions.
    fn wake(&mut self, host: u32) -> Checked {
        let mut at = self.now;
        self.hosts[host as usize].is_awake = false;
        while let Some((group, rank, input)) = self.hosts[host as usize].inbox.pop_front() {
            if self.hosts[host as usize].is_dead {
                return Ok(());
            }
            at += self.scene.network.on(host, self.scene.network.input_ns);
            self.outcome.trace_hash = mix(self.outcome.trace_hash ^ at ^ u64::from(rank.0) << 48);
            let mut out = vec![];
            let session = &mut self.groups[group].sessions[rank.index()];
            if let Err(fault) = session.handle(input, &mut out) {
                return FAULTLESS.broken(format!("g{group} r{rank} at {input:?}: {fault}"));
            }
            self.act(group, rank, &out, &mut at)?;
        }
        self.hosts[host as usize].free_at = at;
        Ok(())
    }

    /// Carries out the output of a session from the time `at` on, and advances `at`.
    fn act(&mut self, group: usize, rank: Rank, out: &[Output], at: &mut u64) -> Checked {
        let host = self.host(group, rank);
        let post_ns = self.scene.network.on(host, self.scene.network.post_ns);
        let closing = out.iter().any(|output| matches!(output, Output::Closed { .. }));
        if !out.is_empty() && self.groups[group].ledger.is_closed(rank.0) {
            return LIVENESS.broken(format!("g{group} r{rank} is closed and goes on: {out:?}"));
        }
        for output in out {
            self.note(|| format!("g{group} r{rank}: {output:?}"));
            let ledger = &mut self.groups[group].ledger;
            match *output {
                Output::Block { to, slot, object, at: offset, bytes, is_first, columns } => {
                    *at += post_ns;
                    ledger.posts(rank.0, object.0, offset, bytes)?;
                    ledger.counts(rank.0, slot.0, columns)?;
                    let content = BulkContent::Block { object, at: offset, bytes, is_first };
                    self.transmit(BulkMessage { group, from: rank, to, slot, columns, content, landed: false }, *at);
                }
                Output::Columns { to, slot, columns } => {
                    *at += post_ns;
                    ledger.counts(rank.0, slot.0, columns)?;
                    self.outcome.counters += 1;
                    let content = BulkContent::Columns;
                    self.transmit(BulkMessage { group, from: rank, to, slot, columns, content, landed: false }, *at);
                }
                Output::Size { object, bytes } => {
                    ledger.size(rank.0, object.0, bytes)?;
                    let delay = self.random.below(self.scene.groups[group].room_ns + 1);
                    self.push(*at + delay, TransferEvent::Room { group, rank: rank.0, object: object.0 });
                }
                Output::Complete { object } => {
                    ledger.complete(rank.0, object.0, closing)?;
                    if rank.0 != 0 {
                        self.outcome.completions += 1;
                        let last = &mut self.outcome.times[group][object.0 as usize].1;
                        *last = (*last).max(*at);
                    }
                }
                Output::Everywhere { object } => {
                    ledger.everywhere(object.0)?;
                    self.push(*at, TransferEvent::Start { group });
                }
                Output::Failed { object } => {
                    ledger.failed(rank.0, object.0)?;
                    self.outcome.failures_told += 1;
                }
                Output::Closed { dead } => {
                    ledger.close(rank.0, dead.0)?;
                    for to in (0..self.groups[group].hosts.len() as u32).map(Rank).filter(|to| *to != rank) {
                        *at += post_ns;
                        let (slot, columns, content) = (Slot(0), Columns::default(), BulkContent::Closed { dead });
                        self.transmit(
                            BulkMessage { group, from: rank, to, slot, columns, content, landed: false },
                            *at,
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Posts a message at the time `at`.
    fn transmit(&mut self, message: BulkMessage, at: u64) {
        let network: &NetworkModel = &self.scene.network;
        let [from, to] = [message.from, message.to].map(|rank| self.host(message.group, rank));
        let mut latency = network.latency_ns + self.random.below(network.jitter_ns + 1);
        if self.scene.late_one_in > 0 && self.random.one_in(self.scene.late_one_in) {
            self.outcome.late += 1;
            latency += self.random.below(1_000_000);
        }
        let pair = self.pairs.entry((from, to)).or_default();
        if let (BulkContent::Columns, true, Some(last)) = (message.content, network.merges, pair.back()) {
            let last = &mut self.messages[*last];
            if (last.group, last.slot) == (message.group, message.slot) && matches!(last.content, BulkContent::Columns)
            {
                last.columns = message.columns;
                return;
            }
        }
        let id = self.messages.len();
        self.messages.push(message);
        pair.push_back(id);
        match message.content {
            BulkContent::Block { bytes, .. } => {
                let left = self.wires.leave(network, from, to, bytes, at);
                self.push(left + latency, TransferEvent::Tail { message: id });
                // The acknowledgement returns to the sender.
                self.push(left + 2 * latency, TransferEvent::Gone { message: id });
            }
            BulkContent::Columns | BulkContent::Closed { .. } => {
                self.push(at + latency, TransferEvent::Landed { message: id })
            }
        }
    }

    /// Handles the arrival of a message. It becomes visible after all earlier ones from the same
    /// host.
    fn land(&mut self, message: usize) -> Checked {
        let BulkMessage { group, from, to, .. } = self.messages[message];
        let pair = [from, to].map(|rank| self.host(group, rank));
        self.messages[message].landed = true;
        // No message arrives from a dead host or at one.
        let is_lost = pair.iter().any(|host| self.hosts[*host as usize].is_dead);
        let pair = (pair[0], pair[1]);
        while let Some(first) = self.pairs.get(&pair).and_then(VecDeque::front).copied()
            && self.messages[first].landed
        {
            self.pairs.entry(pair).or_default().pop_front();
            if !is_lost {
                self.show(self.messages[first])?;
            }
        }
        Ok(())
    }

    fn show(&mut self, message: BulkMessage) -> Checked {
        let BulkMessage { group, from, to, slot, columns, content, .. } = message;
        let input = match content {
            BulkContent::Closed { dead } => Input::Closed { dead },
            BulkContent::Columns => Input::Columns { from, slot, columns },
            BulkContent::Block { object, at, is_first, .. } => {
                let ledger = &mut self.groups[group].ledger;
                // The region of a member that has closed is no longer in use, so blocks that land
                // there are ignored.
                if !ledger.is_closed(to.0) {
                    ledger.lands(to.0, object.0, at, is_first)?;
                    self.outcome.blocks += 1;
                }
                Input::Columns { from, slot, columns }
            }
        };
        self.tell(group, to, input);
        Ok(())
    }

    fn tell(&mut self, group: usize, rank: Rank, input: Input) {
        let number = self.host(group, rank);
        let host = &mut self.hosts[number as usize];
        host.inbox.push_back((group, rank, input));
        if !std::mem::replace(&mut host.is_awake, true) {
            let at = self.now.max(host.free_at);
            self.push(at, TransferEvent::Wake { host: number });
        }
    }

    fn die(&mut self, death: &HostDeath) {
        self.note(|| format!("h{} dies", death.host));
        self.outcome.deaths += 1;
        self.hosts[death.host as usize].is_dead = true;
        for group in &mut self.groups {
            if let Some(rank) = group.hosts.iter().position(|host| *host == death.host) {
                group.ledger.died(rank as u32);
            }
        }
        for (host, after) in &death.noticed {
            self.push(self.now + after, TransferEvent::Noticed { host: *host });
        }
    }

    fn host(&self, group: usize, rank: Rank) -> u32 {
        self.groups[group].hosts[rank.index()]
    }

    fn push(&mut self, at: u64, event: TransferEvent) {
        self.pushed += 1;
        self.heap.push(Reverse((at.max(self.now), self.pushed, event)));
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(story) = &mut self.story {
            let _ = writeln!(story, "{now:>12} {}", what());
        }
    }
}
