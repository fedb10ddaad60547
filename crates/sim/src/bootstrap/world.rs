//! A run: processes, disks, messages in flight and faults, in the order of virtual time.
mod checks;

use super::ledger::BootstrapGroup;
use super::network::{BootstrapLinks, SendFate};
use super::plan::{BootstrapFault, BootstrapScene, MS, S};
use crate::checkers::one_incarnation::{self, OneIncarnation};
use crate::checkers::{Checked, Invariant, Violation};
use crate::random::{Random, mix};
use spindle_core::control::{
    Bootstrap, BootstrapMessage, BootstrapOutput, BootstrapRecord, BootstrapWait, Incarnation, InitialView, Need,
    SeedList, Setup, To,
};
use spindle_core::{MemberId, Process, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt::Write;

const LIVENESS: Invariant = Invariant(15, "liveness");
const BOUNDED: Invariant = Invariant(14, "bounded");

/// The interval at which the group acts and the checkers look.
const TICK_NS: u64 = 200 * MS;
/// The time in which everything must come to rest after the last fault, or after an operator's
/// command.
const CALM_FOR_NS: u64 = 120 * S;
/// The delay after which a process that has ended is restarted automatically.
const RESTART_NS: u64 = 500 * MS;
/// The window in which messages are counted.
const WINDOW_NS: u64 = 10 * S;
/// The maximum number of events. A run with more is reported as endless.
const EVENTS_MAX: u64 = 5_000_000;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BootstrapOutcome {
    /// The first violation.
    pub violations: Vec<Violation>,
    /// Groups that were created.
    pub bootstraps: u64,
    /// Processes that a group admitted.
    pub joins: u64,
    /// Members that a group evicted.
    pub evictions: u64,
    /// Processes that were restarted.
    pub restarts: u64,
    /// Reports of two groups.
    pub conflicts: u64,
    /// True if all processes were in one group at the end.
    pub united: bool,
    /// True if a group was lost for good.
    pub lost: bool,
    /// True if two groups existed, because all seeds were restarted without a disk while other
    /// members lived.
    pub forgotten: bool,
    /// Messages that arrived.
    pub messages: u64,
    /// Events that were processed.
    pub events: u64,
    /// The virtual time at the end, in ns.
    pub virtual_ns: u64,
    /// A hash of the run: equal runs have equal hashes.
    pub trace_hash: u64,
}

/// An event. Events of a process contain its nonce.
#[derive(Clone, Debug)]
enum BootstrapEvent {
    Start { host: u32 },
    Wake { host: u32, process: u32 },
    Deliver { from: u32, sender: Process, to: u32, whom: MessageTarget, connection: u64, message: BootstrapMessage },
    Reached { host: u32, process: u32, seed: u32, id: MemberId, nonce: u32, connection: u64 },
    NotReached { host: u32, process: u32, seed: u32 },
    LookUp { host: u32, process: u32 },
    Written { host: u32, process: u32 },
    Fault(usize),
    Resume { host: u32 },
    Tick,
    Calm,
}

#[derive(Clone, Copy, Debug)]
enum MessageTarget {
    Seed(u32),
    Process(u32),
}

#[derive(Debug)]
struct BootstrapHost {
    running: Option<RunningProcess>,
    disk: BootstrapRecord,
    /// Writes in progress, oldest first.
    writes: VecDeque<BootstrapRecord>,
    is_durable: bool,
    paused_until: u64,
    resumed: Option<u64>,
    deferred: VecDeque<BootstrapEvent>,
    /// The address of its processes.
    address: u64,
}

#[derive(Debug)]
struct RunningProcess {
    process: Process,
    boot: Bootstrap,
    since: u64,
    wakes: u64,
    /// The addresses of the seeds, as far as known.
    book: Vec<u64>,
    /// The processes to which it is connected, by seed.
    connected: Vec<Option<u32>>,
    told: Option<BootstrapWait>,
    /// By seed: since when its connection state is unchanged, and the times of its last answers.
    heard: Vec<(u64, VecDeque<u64>)>,
    sent: (u64, u64),
}

/// A run.
pub(super) struct BootstrapWorld<'s> {
    scene: &'s BootstrapScene,
    story: Option<&'s mut String>,
    random: Random,
    now: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    bodies: Vec<Option<BootstrapEvent>>,
    links: BootstrapLinks,
    hosts: Vec<BootstrapHost>,
    /// The host on which a process runs or ran.
    places: BTreeMap<u32, u32>,
    groups: BTreeMap<u128, BootstrapGroup>,
    incarnations: OneIncarnation,
    is_calm: bool,
    has_word: bool,
    /// True if a second group was created because no seed had a disk and none remembered the first
    /// group.
    has_forgotten: bool,
    ends_at: u64,
    outcome: BootstrapOutcome,
}

impl<'s> BootstrapWorld<'s> {
    pub(super) fn new(scene: &'s BootstrapScene, story: Option<&'s mut String>) -> BootstrapWorld<'s> {
        let host = |host: u32| BootstrapHost {
            running: None,
            disk: BootstrapRecord::default(),
            writes: VecDeque::new(),
            is_durable: scene.durable >> host & 1 == 1,
            paused_until: 0,
            resumed: None,
            deferred: VecDeque::new(),
            address: host.into(),
        };
        let (events, bodies, places, groups, incarnations, outcome) = Default::default();
        let mut world = BootstrapWorld {
            scene,
            story,
            random: Random::new(scene.seed, 14),
            now: 0,
            sequence: 0,
            events,
            bodies,
            links: BootstrapLinks::new(scene),
            hosts: (0..scene.hosts).map(host).collect(),
            places,
            groups,
            incarnations,
            is_calm: false,
            has_word: false,
            has_forgotten: false,
            ends_at: u64::MAX,
            outcome,
        };
        for (host, at) in (0..).zip(&scene.starts) {
            world.push(*at, BootstrapEvent::Start { host });
        }
        for (number, (at, _)) in scene.faults.iter().enumerate() {
            world.push(*at, BootstrapEvent::Fault(number));
        }
        world.push(TICK_NS, BootstrapEvent::Tick);
        world.push(scene.calm_ns.max(scene.starts.iter().copied().max().unwrap_or(0)), BootstrapEvent::Calm);
        world
    }

    pub(super) fn run(mut self) -> BootstrapOutcome {
        while let Some(Reverse((at, _, body))) = self.events.pop() {
            let event = self.bodies[body].take().expect("an event happens once");
            self.now = at;
            self.outcome.events += 1;
            let happened = match self.outcome.events > EVENTS_MAX {
                true => BOUNDED.broken("the run does not end".into()),
                false => self.happen(event),
            };
            if let Err(violation) = happened {
                self.outcome.violations.push(Violation { at, ..violation });
                break;
            }
            if self.outcome.united && self.is_calm {
                break;
            }
        }
        self.outcome.virtual_ns = self.now;
        self.outcome.bootstraps = self.incarnations.count();
        self.outcome
    }

    fn push(&mut self, at: u64, event: BootstrapEvent) {
        self.sequence += 1;
        self.bodies.push(Some(event));
        self.events.push(Reverse((at.max(self.now), self.sequence, self.bodies.len() - 1)));
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(story) = &mut self.story {
            let _ = writeln!(story, "{:>9}.{:03} ms  {}", now / MS, now / 1000 % 1000, text());
        }
    }

    fn running(&mut self, host: u32, process: u32) -> Option<&mut RunningProcess> {
        self.hosts[host as usize].running.as_mut().filter(|running| running.process.nonce == process)
    }

    /// Returns the host of an event that a paused host defers; None if a pause does not defer it.
    fn host_of(event: &BootstrapEvent) -> Option<u32> {
        match event {
            BootstrapEvent::Wake { host, .. }
            | BootstrapEvent::Reached { host, .. }
            | BootstrapEvent::NotReached { host, .. }
            | BootstrapEvent::LookUp { host, .. }
            | BootstrapEvent::Written { host, .. } => Some(*host),
            BootstrapEvent::Deliver { to, .. } => Some(*to),
            BootstrapEvent::Start { .. }
            | BootstrapEvent::Fault(_)
            | BootstrapEvent::Resume { .. }
            | BootstrapEvent::Tick
            | BootstrapEvent::Calm => None,
        }
    }

    fn happen(&mut self, event: BootstrapEvent) -> Checked {
        if let Some(host) = BootstrapWorld::host_of(&event)
            && self.hosts[host as usize].paused_until > self.now
        {
            self.hosts[host as usize].deferred.push_back(event);
            return Ok(());
        }
        self.outcome.trace_hash = mix(self.outcome.trace_hash ^ self.now);
        let now = Time(self.now);
        match event {
            BootstrapEvent::Start { host } => {
                if self.hosts[host as usize].running.is_none() {
                    self.start(host, None)?;
                }
            }
            BootstrapEvent::Wake { host, process } => {
                if let Some(running) = self.running(host, process) {
                    running.boot.poll(now);
                    running.wakes = u64::MAX;
                    self.settle(host)?;
                }
            }
            BootstrapEvent::Deliver { from, sender, to, whom, connection, message } => {
                self.deliver(from, sender, to, whom, connection, message)?;
            }
            BootstrapEvent::Reached { host, process, seed, id, nonce, connection } => {
                let is_open = self.links.connection(seed, host) == connection;
                let at = self.now;
                if let Some(running) = self.running(host, process).filter(|_| is_open) {
                    running.boot.reached(seed, id, now);
                    running.connected[seed as usize] = Some(nonce);
                    running.heard[seed as usize] = (at, VecDeque::new());
                    self.settle(host)?;
                }
            }
            BootstrapEvent::NotReached { host, process, seed } => {
                if let Some(running) = self.running(host, process) {
                    running.connected[seed as usize] = None;
                    running.boot.not_reached(seed, now);
                    self.settle(host)?;
                }
            }
            BootstrapEvent::LookUp { host, process } => {
                let addresses = self.addresses();
                if let Some(running) = self.running(host, process) {
                    running.book = addresses;
                    self.push(self.now + self.scene.look_up_ns, BootstrapEvent::LookUp { host, process });
                }
            }
            BootstrapEvent::Written { host, process } => {
                let record = self.hosts[host as usize].writes.pop_front();
                if let Some(record) = record.filter(|_| self.running(host, process).is_some()) {
                    self.hosts[host as usize].disk = record;
                    self.running(host, process).expect("it is there").boot.persisted(now);
                    self.settle(host)?;
                }
            }
            BootstrapEvent::Fault(number) => self.go_wrong(&self.scene.faults[number].1.clone()),
            BootstrapEvent::Resume { host } => self.resume(host),
            BootstrapEvent::Tick => self.tick()?,
            BootstrapEvent::Calm => self.calm(),
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<u64> {
        self.hosts[..self.scene.seeds as usize].iter().map(|host| host.address).collect()
    }

    /// Starts a process. If `belongs` is given, the process remembers that it was in that group.
    fn start(&mut self, host: u32, belongs: Option<Incarnation>) -> Checked {
        let nonce = self.places.len() as u32 + 1;
        let id = if self.scene.keeps_ids { 100 + host } else { 1000 * (host + 1) + nonce };
        let process = Process { id: MemberId(id.into()), nonce };
        self.places.insert(nonce, host);
        let random = u128::from(self.random.word()) << 64 | u128::from(self.random.word());
        let (addresses, seeds) = (self.addresses(), self.scene.seeds);
        let state = &mut self.hosts[host as usize];
        let mut record = if state.is_durable { state.disk.clone() } else { BootstrapRecord::default() };
        record.belongs = belongs.or(record.belongs);
        let setup = Setup { me: process, members: self.scene.members, random, durable: state.is_durable, record };
        let mut boot = Bootstrap::new(setup, Time(self.now));
        let own = (0..seeds).filter(|seed| *seed == host).collect();
        boot.set_seeds(SeedList { count: seeds, own, digest: 1 }, Time(self.now));
        state.running = Some(RunningProcess {
            process,
            boot,
            since: self.now,
            wakes: u64::MAX,
            book: addresses,
            connected: vec![None; seeds as usize],
            told: None,
            heard: vec![(self.now, VecDeque::new()); seeds as usize],
            sent: (self.now, 0),
        });
        self.note(|| format!("h{host}: process {nonce} starts, as member {id}; it belongs to {belongs:?}"));
        self.push(self.now + self.scene.look_up_ns, BootstrapEvent::LookUp { host, process: nonce });
        self.settle(host)
    }

    fn stop(&mut self, host: u32) {
        let state = &mut self.hosts[host as usize];
        state.running = None;
        state.deferred.clear();
        state.paused_until = 0;
        // A random number of the oldest writes in progress has reached the disk.
        let landed = self.random.below(state.writes.len() as u64 + 1) as usize;
        if let Some(record) = state.writes.drain(..).take(landed).next_back() {
            state.disk = record;
        }
    }

    /// Carries out the requests of a host's process, and schedules its next step.
    fn settle(&mut self, host: u32) -> Checked {
        loop {
            let Some(running) = &mut self.hosts[host as usize].running else { return Ok(()) };
            let Some(output) = running.boot.next_output() else { break };
            let process = running.process;
            match output {
                BootstrapOutput::Send { to, message } => self.transmit(host, process, to, message)?,
                BootstrapOutput::Persist(record) => {
                    let at = self.now + self.random.below(self.scene.write_ns + 1);
                    // Writes end in order, so the last one in progress is the newest.
                    self.hosts[host as usize].writes.push_back(*record);
                    self.push(at, BootstrapEvent::Written { host, process: process.nonce });
                }
                BootstrapOutput::Begin(initial_view) => self.begin(host, process, &initial_view)?,
                BootstrapOutput::Join(incarnation) => {
                    self.note(|| format!("h{host}: asks to be let in to {incarnation}"))
                }
                BootstrapOutput::Waits(waiting) => {
                    self.note(|| format!("h{host}: waits, {waiting:?}"));
                    let running = self.running(host, process.nonce).expect("it has just said so");
                    running.told = Some(waiting);
                }
                BootstrapOutput::Conflict { mine, theirs } => {
                    self.outcome.conflicts += 1;
                    self.note(|| format!("h{host}: two groups, {mine} and {theirs}"));
                }
            }
        }
        let now = self.now;
        let Some(running) = &mut self.hosts[host as usize].running else { return Ok(()) };
        let (wake, process) = (running.boot.wake_at().0.max(now), running.process.nonce);
        if wake < running.wakes {
            running.wakes = wake;
            self.push(wake, BootstrapEvent::Wake { host, process });
        }
        Ok(())
    }

    fn transmit(&mut self, host: u32, sender: Process, to: To, message: BootstrapMessage) -> Checked {
        if let BootstrapMessage::Pledge { incarnation } = message {
            self.incarnations.pledges(sender.nonce.into(), incarnation.0);
        }
        let state = &self.hosts[host as usize];
        if state.is_durable {
            let voted = state.disk.accepted.as_ref().map(|(ballot, _)| *ballot);
            one_incarnation::told(&message, state.disk.promised, voted)?;
        }
        let (hosts, now) = (u64::from(self.scene.hosts), self.now);
        let running = self.running(host, sender.nonce).expect("who sends is there");
        if running.sent.0 + WINDOW_NS <= now {
            running.sent = (now, 0);
        }
        running.sent.1 += 1;
        if running.sent.1 > WINDOW_NS / S * (30 * hosts + 60) {
            return BOUNDED.broken(format!("h{host} has sent {} messages within 10 s", running.sent.1));
        }
        let (to_host, whom) = match to {
            To::Seed(seed) if running.book[seed as usize] != self.hosts[seed as usize].address => {
                self.push(now + 10 * MS, BootstrapEvent::NotReached { host, process: sender.nonce, seed });
                return Ok(());
            }
            To::Seed(seed) => (seed, MessageTarget::Seed(seed)),
            To::Process(process) => (self.places[&process.nonce], MessageTarget::Process(process.nonce)),
        };
        if let SendFate::Arrives(at) = self.links.send(&mut self.random, host, to_host, now) {
            let connection = self.links.connection(host, to_host);
            self.push(at, BootstrapEvent::Deliver { from: host, sender, to: to_host, whom, connection, message });
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        from: u32,
        sender: Process,
        to: u32,
        whom: MessageTarget,
        connection: u64,
        message: BootstrapMessage,
    ) -> Checked {
        if self.links.connection(from, to) != connection {
            return Ok(());
        }
        let process = self.hosts[to as usize].running.as_ref().map(|running| running.process);
        if let MessageTarget::Seed(seed) = whom {
            let known = self.running(from, sender.nonce).map(|running| running.connected[seed as usize]);
            let nonce = process.map(|process| process.nonce);
            if (nonce.is_none() || known.is_some_and(|known| known != nonce))
                && let SendFate::Arrives(at) = self.links.send(&mut self.random, to, from, self.now)
            {
                let (host, sender, connection) = (from, sender.nonce, self.links.connection(to, from));
                self.push(
                    at,
                    match process {
                        // The connection is refused.
                        None => BootstrapEvent::NotReached { host, process: sender, seed },
                        Some(Process { id, nonce }) => {
                            BootstrapEvent::Reached { host, process: sender, seed, id, nonce, connection }
                        }
                    },
                );
            }
        }
        let is_wanted = |process: &Process| !matches!(whom, MessageTarget::Process(wanted) if wanted != process.nonce);
        let Some(process) = process.filter(is_wanted) else { return Ok(()) };
        self.outcome.messages += 1;
        self.note(|| format!("h{from} -> h{to}: {message:?}"));
        let now = self.now;
        let is_answer = matches!(message, BootstrapMessage::Here { .. } | BootstrapMessage::Exists { .. });
        let running = self.running(to, process.nonce).expect("it is there");
        if let Some((_, times)) = running.heard.get_mut(from as usize) {
            // If many answers arrive together, only one is recorded.
            if is_answer && times.back().is_none_or(|last| *last + 200 * MS <= now) {
                times.push_back(now);
                times.drain(..times.len().saturating_sub(4));
            }
        }
        running.boot.hear(sender, message, Time(now));
        self.settle(to)
    }

    fn begin(&mut self, host: u32, process: Process, initial_view: &InitialView) -> Checked {
        self.note(|| format!("h{host}: process {} begins {initial_view:?}", process.nonce));
        let members: BTreeSet<u32> = initial_view.members.iter().map(|process| process.nonce).collect();
        let nonces: Vec<u64> = members.iter().map(|nonce| u64::from(*nonce)).collect();
        self.incarnations.begins(initial_view.incarnation.0, &nonces, &self.remembered(), self.has_word)?;
        if !self.groups.contains_key(&initial_view.incarnation.0) {
            let lives = |group: &BootstrapGroup| group.view.iter().any(|process| self.runs(*process));
            self.has_forgotten |= !self.has_word && self.groups.values().any(lives);
            self.groups.insert(initial_view.incarnation.0, BootstrapGroup::new(members));
        }
        Ok(())
    }

    fn go_wrong(&mut self, fault: &BootstrapFault) {
        self.note(|| format!("{fault:?}"));
        let now = self.now;
        match *fault {
            BootstrapFault::Crash { host, down_ns, wipe, moves } => {
                if self.hosts[host as usize].running.is_none() {
                    return;
                }
                self.stop(host);
                let state = &mut self.hosts[host as usize];
                if wipe {
                    (state.disk, state.is_durable) = (BootstrapRecord::default(), false);
                }
                state.address += if moves { 1000 } else { 0 };
                self.outcome.restarts += 1;
                self.push(now + down_ns, BootstrapEvent::Start { host });
            }
            BootstrapFault::Pause { host, ns } => {
                self.hosts[host as usize].paused_until = now + ns;
                self.push(now + ns, BootstrapEvent::Resume { host });
            }
            BootstrapFault::Cut { from, to, ns } => self.links.cut(from, to, now + ns),
            BootstrapFault::Reset { a, b } => self.links.reset(a, b),
        }
    }

    fn resume(&mut self, host: u32) {
        let state = &mut self.hosts[host as usize];
        if state.paused_until <= self.now {
            state.resumed = Some(self.now);
            for event in std::mem::take(&mut state.deferred) {
                self.push(self.now, event);
            }
        }
    }

    /// Ends all faults.
    fn calm(&mut self) {
        self.note(|| "calm".into());
        self.is_calm = true;
        self.ends_at = self.now + CALM_FOR_NS;
        self.links.heal();
        for host in 0..self.scene.hosts {
            if std::mem::take(&mut self.hosts[host as usize].paused_until) > self.now {
                self.resume(host);
            }
            self.push(self.now, BootstrapEvent::Start { host });
        }
    }

    /// Lets a group admit the processes that ask, evict the members that it misses, and inform the
    /// processes that it reaches.
    fn act(&mut self, incarnation: u128) -> Checked {
        let operative = self.operative(incarnation);
        let now = self.now;
        let group = self.groups.get_mut(&incarnation).expect("it exists");
        let evicted = group.evict(operative.as_ref(), now);
        self.outcome.evictions += evicted.len() as u64;
        for process in evicted {
            self.note(|| format!("{incarnation:032x} evicts process {process}"));
        }
        let Some(operative) = operative else { return Ok(()) };
        for host in 0..self.scene.hosts {
            let state = &self.hosts[host as usize];
            let Some(running) = state.running.as_ref().filter(|_| state.paused_until <= now) else { continue };
            let process = running.process.nonce;
            let reaches = operative.iter().filter(|member| self.joins(process, **member)).count();
            let is_in = self.groups[&incarnation].view.contains(&process);
            match running.boot.member_of() {
                Some(of) if of.0 == incarnation && !is_in && reaches > 0 => self.leave(host, of)?,
                None if running.boot.waiting().need == Need::Admission(Incarnation(incarnation))
                    && reaches == operative.len()
                    && !is_in =>
                {
                    self.note(|| format!("{incarnation:032x} admits process {process}"));
                    self.outcome.joins += 1;
                    self.groups.get_mut(&incarnation).expect("it exists").view.insert(process);
                    let running = self.running(host, process).expect("it is there");
                    running.boot.joined(Incarnation(incarnation), Time(now));
                    self.settle(host)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles the eviction of a process: it stops, and joins again or is restarted.
    fn leave(&mut self, host: u32, of: Incarnation) -> Checked {
        self.note(|| format!("h{host}: was evicted"));
        self.stop(host);
        self.outcome.restarts += 1;
        match self.scene.rejoins {
            true => self.start(host, Some(of)),
            false => {
                self.push(self.now + RESTART_NS, BootstrapEvent::Start { host });
                Ok(())
            }
        }
    }
}
