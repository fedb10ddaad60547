//! A run: processes on hosts, data in flight between them, and faults, in the order of virtual
//! time.
use super::counts::Counts;
use super::host::SimHost;
use super::learning::States;
use super::ledger::HostsLedger;
use super::network::{HostLinks, PacketFate, PacketLoad, SimConnections};
use super::plan::{HostsFault, HostsScene, MS, S};
use super::process::{DeathNotice, Near, NetworkEvent, SimProcess};
use super::proposed_changes::PendingChange;
use super::rows::SimRows;
use super::story::Telling;
use crate::checkers::{Checked, Invariant, Violation};
use crate::random::{Random, mix};
use spindle_core::control::{
    Address, BootstrapRecord, Card, ControlMessage, Incarnation, Purpose, Request, SharedSettings,
};
use spindle_core::{MemberId, ViewId};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Write;
use std::time::Duration;

pub(super) const BOUNDED: Invariant = Invariant(14, "bounded");

/// The interval at which the checkers look.
const TICK_NS: u64 = 250 * MS;
/// The maximum number of events. A run with more is reported as endless.
const EVENTS_MAX: u64 = 3_000_000;
/// The time within which the end of a watched process is reported.
const DEATH_NS: u64 = 500_000;
/// The time within which a process finds that its address has vanished.
const DISPLACED_NS: u64 = 500 * MS;
/// A process whose connection has ended answers on a new one within this time and so many round
/// trips.
const ANSWER_MIN_NS: u64 = 5 * MS;
const ANSWER_ROUND_TRIPS: u64 = 8;
/// The id of an operator's admin client.
pub(super) const OPERATOR: MemberId = MemberId((1 << 63) + 7);

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessesOutcome {
    /// The first violation.
    pub violations: Vec<Violation>,
    /// The counts of events.
    pub counts: Counts,
    /// True if all processes were in one view at the end, and delivered.
    pub united: bool,
    /// True if the group had lost its quorum for good at the end.
    pub lost: bool,
    /// A hash of the run: equal runs have equal hashes.
    pub trace_hash: u64,
}

/// An event.
#[derive(Clone, Debug)]
pub(super) enum ProcessEvent {
    Start {
        place: usize,
        id: Option<MemberId>,
    },
    Step {
        process: usize,
    },
    Messages {
        process: usize,
        near: Near,
    },
    Death {
        process: usize,
        id: MemberId,
        of: usize,
    },
    Displaced {
        process: usize,
    },
    Attempt {
        number: usize,
    },
    Accepted {
        number: usize,
    },
    Concluded {
        number: usize,
        connection: usize,
    },
    Failed {
        number: usize,
        refused: bool,
    },
    Silence {
        connection: usize,
        end: usize,
        since: u64,
    },
    LifeEnds {
        process: usize,
        of: usize,
        tries: u32,
    },
    /// A process learns that the connection has ended that reports the end of another process.
    LifeBreaks {
        process: usize,
        life: LivenessWatch,
    },
    /// A process learns that another one has answered.
    Answers {
        process: usize,
        with: (Card, u128),
    },
    Exit {
        process: usize,
    },
    /// The seeds' name resolves to one more address, or to one less.
    Renamed {
        address: Address,
        is_there: bool,
    },
    /// A process gets the answer to a look-up of the seeds' name.
    LookedUp {
        process: usize,
        name: Address,
    },
    Fault(usize),
    Mend(usize),
    Tick,
}

#[derive(Debug)]
struct QueuedEvent {
    at: u64,
    sequence: u64,
    event: ProcessEvent,
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &QueuedEvent) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &QueuedEvent) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &QueuedEvent) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A place, with the state that outlives its processes.
#[derive(Debug, Default)]
pub(super) struct PlaceState {
    pub(super) process: Option<usize>,
    /// The number of processes that it had.
    pub(super) count: u32,
    pub(super) disk: BootstrapRecord,
    /// True if no process starts here any more.
    pub(super) is_over: bool,
    pub(super) last_id: Option<MemberId>,
    /// The member whose state transfer failed last.
    pub(super) failed_source: Option<MemberId>,
    /// True if a process of this place was too slow for a state transfer.
    pub(super) is_lapped: bool,
    /// The group that its next process gets as its former group at its start.
    pub(super) belongs: Option<Incarnation>,
    /// The group of which its process was a member, as far as the place can know that.
    pub(super) knows: Option<Incarnation>,
}

/// A connection attempt.
#[derive(Clone, Debug)]
pub(super) struct DialAttempt {
    pub(super) process: usize,
    pub(super) address: Address,
    pub(super) whom: Option<MemberId>,
    pub(super) purpose: Purpose,
    pub(super) began: u64,
}

/// Two processes that learn of each other's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct LivenessWatch {
    pub(super) processes: [usize; 2],
    pub(super) incarnation: u128,
    pub(super) view: ViewId,
}

macro_rules! broken {
    ($($(#[$doc:meta])* $broken:ident,)*) => {
        /// The ways in which a driver breaks its duties. They show that the checkers notice.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[cfg_attr(not(mutation), allow(unreachable_pub, reason = "builds with mutations export it"))]
        pub enum Broken {
            /// The driver keeps its duties.
            #[default]
            Not,
            $($(#[$doc])* $broken,)*
        }

        #[cfg(mutation)]
        impl Broken {
            /// All broken duties.
            pub const ALL: &[Broken] = &[$(Broken::$broken,)*];
        }
    };
}

broken! {
    /// A host's lock lets any process create a group.
    LockIgnored,
    /// Deliveries are swapped in pairs at one process.
    OrderSwapped,
    /// A process begins its view with invented members.
    ViewForged,
    /// Undelivered messages are sent again, and delivered ones too.
    SentTwice,
    /// Broken streams are not dialled again, and the process does not search for the group.
    RedialForgotten,
    /// Voids are not sent again.
    VoidsForgotten,
    /// Messages that wait for a subgroup with too few members are forgotten.
    KeptForgotten,
    /// A member's proposed change of subgroups is not passed on.
    ProposedChangesLost,
    /// Now and then, a message is not delivered.
    MessageSkipped,
    /// The last messages of a view are not delivered in Fifo subgroups.
    LastForgotten,
    /// A process lets other members be evicted without a reason.
    EvictsFreely,
    /// A process asks only once.
    AsksOnce,
    /// A process asks at every step.
    AsksAlways,
    /// The kernel's reports of deaths are not passed on.
    DeathsUntold,
    /// The kernel's report of a death is passed on before the control messages of the dead process.
    DeathsBeforeMessages,
    /// A process without an address counts as dead.
    MissingIsDead,
    /// A member whose stream has ended counts as dead.
    BreakIsDeath,
    /// A process does not know that it was a member of a group, despite its records.
    BelongsForgotten,
    /// A member ends when another member suspects it.
    EndsWhenSuspected,
    /// A member ends when no other member is left.
    SoleSurvivorEnds,
    /// A process reads no control messages before its first view begins.
    InstallsUnread,
    /// A restarted process asks no process of another host.
    LooksHereOnly,
    /// A member's request to leave is not passed on.
    LeaverKept,
    /// The id of a process that has ended is given out again.
    IdsGivenAgain,
    /// Members don't answer processes that ask for the view.
    ViewsUntold,
    /// A process does not create its vanished address again.
    RestoreForgotten,
    /// A stream that is dialled again begins without the whole row.
    ResumesWithoutRow,
    /// Packets after a turn are treated as packets of the view before.
    TurnIgnored,
    /// A stream continues in the next view before its peer has all data of the view before.
    ContinuesEarly,
    /// Large messages are announced before all members have them.
    GateIgnored,
    /// A host leader reports an object before the other members of its host have it.
    MatesIgnored,
    /// Large messages that a view has not delivered are not sent again.
    ObjectsForgotten,
    /// Messages that an epoch from before the last view left undelivered are not sent again.
    OlderForgotten,
    /// The object table of a view is used in the next one.
    ShelfNotCleared,
    /// Members keep no large messages for observers and learners.
    KeepsTooShort,
    /// A learner begins its first view without the last messages that it has read.
    TailForgotten,
    /// A member reports that its state contains more messages than it does.
    StateMisplaced,
    /// An observer gets no report of messages that it has missed.
    GapUntold,
    /// An observer receives a message twice.
    ToldTwice,
}

/// A run.
pub(super) struct HostsWorld<'s> {
    pub(super) scene: &'s HostsScene,
    pub(super) broken: Broken,
    story: Option<&'s mut String>,
    pub(super) random: Random,
    pub(super) now: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<QueuedEvent>>,
    pub(super) links: HostLinks,
    pub(super) connections: SimConnections,
    pub(super) store: SimRows,
    pub(super) hosts: Vec<SimHost>,
    pub(super) places: Vec<PlaceState>,
    /// By number; `None` during the process's step.
    pub(super) processes: Vec<Option<Box<SimProcess>>>,
    /// The time of the next planned step of each process.
    wakes: Vec<u64>,
    /// The host of each address, and the process that listens there.
    pub(super) listeners: BTreeMap<Address, (usize, Option<usize>)>,
    pub(super) attempts: BTreeMap<usize, DialAttempt>,
    pub(super) attempts_made: usize,
    pub(super) lives: Vec<LivenessWatch>,
    /// By sender and receiver on one host: the arrival time of the last control message.
    pub(super) messages_due: BTreeMap<(usize, usize), u64>,
    /// The places of processes, by number.
    pub(super) process_places: Vec<usize>,
    /// The addresses to which the seeds' name resolves.
    pub(super) named: BTreeSet<Address>,
    /// Addresses to which no other host can connect.
    pub(super) unreachable: BTreeSet<Address>,
    pub(super) ledger: HostsLedger,
    pub(super) states: States,
    pub(super) pending: Vec<PendingChange>,
    /// The time of the last fault on each host, or of the whole host.
    pub(super) troubled: Vec<u64>,
    /// The end of the last pause of a member that sends objects to an observer or learner.
    pub(super) serves_late_until: u64,
    /// The end of the last pause of a process that is long enough for others to suspect it.
    pub(super) suspended: u64,
    /// The time at which a process last ended.
    pub(super) ended: u64,
    /// Ids of members that an operator wanted to evict, that wanted to leave, or that have ended,
    /// with the times.
    pub(super) excused: BTreeMap<MemberId, u64>,
    pub(super) is_calm: bool,
    /// Since when a group has had no quorum; `asks_at` is the time of the operator's next request.
    pub(super) lost_since: Option<u64>,
    /// True if live members were given up.
    pub(super) is_mistaken: bool,
    pub(super) asks_at: u64,
    /// The time at which a lost group last continued.
    pub(super) recovered_at: u64,
    /// The last answer to the operator.
    pub(super) refusal: String,
    pub(super) is_done: bool,
    /// The times of the views of the last seconds.
    pub(super) recent_views: Vec<u64>,
    /// The shared settings of each group.
    pub(super) group_settings: BTreeMap<u128, SharedSettings>,
    pub(super) outcome: ProcessesOutcome,
    /// The time at which all faults are over.
    pub(super) calm_ns: u64,
    /// The trace of a story. In a story applications send at random only after all faults are over.
    pub(super) telling: Option<Box<Telling>>,
}

impl<'s> HostsWorld<'s> {
    pub(super) fn new(scene: &'s HostsScene, broken: Broken, story: Option<&'s mut String>) -> HostsWorld<'s> {
        let (connections, store, processes, wakes, listeners, attempts, lives, ledger) = Default::default();
        let mut world = HostsWorld {
            scene,
            broken,
            story,
            random: Random::new(scene.seed, 22),
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            links: HostLinks::new(scene),
            connections,
            store,
            hosts: (0..scene.hosts).map(|_| SimHost::default()).collect(),
            places: scene.places.iter().map(|_| PlaceState::default()).collect(),
            processes,
            wakes,
            listeners,
            attempts,
            attempts_made: 0,
            lives,
            process_places: vec![],
            messages_due: BTreeMap::new(),
            named: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            ledger,
            states: States::default(),
            pending: vec![],
            troubled: vec![0; scene.hosts as usize],
            serves_late_until: 0,
            suspended: 0,
            ended: 0,
            excused: BTreeMap::new(),
            is_calm: false,
            lost_since: None,
            is_mistaken: false,
            asks_at: 0,
            recovered_at: 0,
            refusal: "no member was asked".into(),
            is_done: false,
            recent_views: vec![],
            group_settings: BTreeMap::new(),
            outcome: ProcessesOutcome::default(),
            calm_ns: scene.calm_ns,
            telling: None,
        };
        for (place, plan) in scene.places.iter().enumerate() {
            world.push(plan.start_ns, ProcessEvent::Start { place, id: None });
        }
        for (number, (at, _)) in scene.faults.iter().enumerate() {
            world.push(*at, ProcessEvent::Fault(number));
        }
        world.push(TICK_NS, ProcessEvent::Tick);
        world
    }

    pub(super) fn run(mut self) -> ProcessesOutcome {
        while let Some(Reverse(QueuedEvent { at, event, .. })) = self.events.pop() {
            self.now = at;
            self.outcome.counts.events += 1;
            let happened = match self.outcome.counts.events > EVENTS_MAX {
                true => BOUNDED.broken("the run does not end".into()),
                false => self.happen(event),
            };
            if let Err(violation) = happened {
                self.outcome.violations.push(Violation { at, ..violation });
                break;
            }
            if self.is_done {
                break;
            }
        }
        self.outcome.counts.virtual_ns = self.now;
        self.outcome.counts.bootstraps = self.ledger.bootstraps();
        self.outcome.counts.views = self.ledger.views_changed();
        self.outcome.counts.deliveries = self.ledger.deliveries;
        self.outcome.counts.fifo = self.ledger.fifo;
        self.outcome.counts.changes = self.ledger.changes;
        self.outcome.counts.unavailable = self.ledger.unavailable;
        self.outcome.counts.available_again = self.ledger.available_again;
        self.outcome
    }

    /// Runs until this time.
    pub(super) fn run_until(&mut self, until: u64) -> Checked {
        while let Some(Reverse(entry)) = self.events.peek()
            && entry.at <= until
        {
            let Some(Reverse(QueuedEvent { at, event, .. })) = self.events.pop() else { break };
            self.now = at;
            self.outcome.counts.events += 1;
            self.happen(event).map_err(|violation| Violation { at, ..violation })?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Ends all faults of a story now. From now on applications send at random.
    pub(super) fn begin_calm(&mut self, now: u64) {
        (self.calm_ns, self.telling) = (now, None);
        for number in 0..self.processes.len() {
            if let Some(process) = self.living(number) {
                process.sends_at = now;
                let at = process.paused_until;
                self.wake(number, now.max(at));
            }
        }
    }

    /// Ends the record of faults of these hosts' links.
    pub(super) fn forgive(&mut self, hosts: u64) {
        let now = self.now;
        let listed = self.troubled.iter_mut().enumerate().filter(|(host, _)| hosts >> host & 1 == 1);
        listed.for_each(|(_, until)| *until = now);
    }

    pub(super) fn push(&mut self, at: u64, event: ProcessEvent) {
        self.sequence += 1;
        self.events.push(Reverse(QueuedEvent { at: at.max(self.now), sequence: self.sequence, event }));
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(story) = &mut self.story {
            let _ = writeln!(story, "{:>9}.{:03} ms  {}", now / MS, now / 1000 % 1000, text());
        }
    }

    /// Schedules a step of a process.
    pub(super) fn wake(&mut self, process: usize, at: u64) {
        let at = at.max(self.now);
        if at < self.wakes[process] {
            self.wakes[process] = at;
            self.push(at, ProcessEvent::Step { process });
        }
    }

    pub(super) fn add_process(&mut self, process: SimProcess) {
        self.processes.push(Some(Box::new(process)));
        self.wakes.push(u64::MAX);
    }

    /// Returns a process that lives and is not in its step.
    pub(super) fn living(&mut self, process: usize) -> Option<&mut SimProcess> {
        self.processes[process].as_deref_mut().filter(|process| process.is_alive)
    }

    fn happen(&mut self, event: ProcessEvent) -> Checked {
        self.outcome.trace_hash = mix(self.outcome.trace_hash ^ self.now);
        match event {
            ProcessEvent::Start { place, id } => self.start(place, id)?,
            ProcessEvent::Step { process } => {
                if self.wakes[process] == self.now {
                    self.wakes[process] = u64::MAX;
                    let done = self.step(process);
                    self.look(process);
                    return done;
                }
            }
            ProcessEvent::Messages { process, near } => {
                let now = self.now;
                if let Some(process) = self.living(process) {
                    process.control_socket.push_back(near);
                    let number = process.number;
                    self.wake(number, now);
                }
            }
            ProcessEvent::Death { process, id, of } => {
                let (now, untold) = (self.now, self.broken == Broken::DeathsUntold);
                if let Some(watcher) = self.living(process)
                    && watcher.watched.get(&id) == Some(&of)
                    && !untold
                {
                    watcher.deaths.push_back((id, DeathNotice::Reported(of)));
                    self.wake(process, now);
                }
            }
            ProcessEvent::Displaced { process } => {
                let now = self.now;
                if let Some(displaced) = self.living(process) {
                    displaced.is_displaced = true;
                    self.wake(process, now);
                }
            }
            ProcessEvent::Attempt { number } => self.attempt(number),
            ProcessEvent::Accepted { number } => self.accept(number),
            ProcessEvent::Concluded { number, connection } => self.conclude(number, connection),
            ProcessEvent::Failed { number, refused } => self.fail(number, refused),
            ProcessEvent::Silence { connection, end, since } => self.silence(connection, end, since),
            ProcessEvent::LifeEnds { process, of, tries } => self.life_ends(process, of, tries),
            ProcessEvent::LifeBreaks { process, life } => self.tell_end(process, life),
            ProcessEvent::Answers { process, with } => {
                let now = self.now;
                if let Some(told) = self.living(process) {
                    told.heard.push_back(NetworkEvent::Answers(with.0, with.1));
                    self.wake(process, now);
                }
            }
            ProcessEvent::Exit { process } => self.exit(process),
            ProcessEvent::Renamed { address, is_there: true } => drop(self.named.insert(address)),
            // A process may have started at the address again.
            ProcessEvent::Renamed { address, is_there: false } => {
                if self.listeners.get(&address).is_some_and(|(_, listener)| listener.is_none()) {
                    self.named.remove(&address);
                }
            }
            ProcessEvent::LookedUp { process, name } => self.answer_look_up(process, name),
            ProcessEvent::Fault(number) => self.inflict(number, self.scene.faults[number].1.clone()),
            ProcessEvent::Mend(number) => self.mend_links(number),
            ProcessEvent::Tick => {
                self.tick()?;
                self.push(self.now + TICK_NS, ProcessEvent::Tick);
            }
        }
        Ok(())
    }

    /// Records a fault of a process.
    fn trouble(&mut self, process: usize, until: u64) {
        if let Some(process) = self.processes[process].as_deref_mut() {
            process.troubled = process.troubled.max(until);
        }
    }

    /// Records a fault of the links of a host.
    pub(super) fn trouble_host(&mut self, host: usize, until: u64) {
        self.troubled[host] = self.troubled[host].max(until);
    }

    /// Lets a fault begin, which has this number in the scene.
    pub(super) fn inflict(&mut self, number: usize, fault: HostsFault) {
        self.note(|| format!("fault: {fault:?}"));
        match fault {
            HostsFault::Cut { from, to, ns } => {
                self.cut_links(from, to, ns);
                self.push(self.now + ns, ProcessEvent::Mend(number));
            }
            HostsFault::Break { a, b, half } => {
                for connection in self.connections.between(a as usize, b as usize) {
                    self.break_connection(connection, half);
                }
                self.break_lives(a as usize, b as usize, half);
            }
            HostsFault::Pause { place, ns } => {
                let until = self.now + ns;
                if let Some(number) = self.places[place as usize].process {
                    self.trouble(number, until);
                    // The last heartbeat may be some time before the pause. One pause may begin in
                    // another, or shortly after it.
                    let (now, part) = (self.now, self.scene.suspect_after_ns / 8);
                    if let Some(process) = self.living(number) {
                        if process.paused_until + part < now {
                            process.paused_since = now;
                        }
                        process.paused_until = process.paused_until.max(until);
                        let (since, until) = (process.paused_since, process.paused_until);
                        if until - since >= 7 * part {
                            self.suspended = self.suspended.max(until);
                        }
                    }
                }
            }
            HostsFault::Kill { place, down_ns, renamed } => {
                let at = place as usize;
                self.places[at].is_over |= down_ns.is_none();
                if let Some(process) = self.places[at].process {
                    self.outcome.counts.kills += 1;
                    self.die(process, true);
                }
                if let Some(down_ns) = down_ns {
                    let id = if renamed { Some(self.new_id(at)) } else { None };
                    self.push(self.now + down_ns, ProcessEvent::Start { place: at, id });
                }
            }
            HostsFault::Leave { place, down_ns } => {
                let at = place as usize;
                self.places[at].is_over |= down_ns.is_none();
                if let Some(number) = self.places[at].process
                    && let Some(process) = self.living(number)
                {
                    process.is_leaving = true;
                    let id = process.me.id;
                    self.excused.insert(id, self.now);
                    self.wake(number, self.now);
                }
            }
            HostsFault::Evict { by, whom } => {
                let whom =
                    self.places[whom as usize].process.and_then(|whom| self.living(whom)).map(|process| process.me.id);
                if let (Some(number), Some(id)) = (self.places[by as usize].process, whom) {
                    self.excused.insert(id, self.now);
                    let message = ControlMessage::Request { from: OPERATOR, reply: 1, what: Request::Evict(id) };
                    let near = Near { message: message.encode().into(), attachment: [].into(), row: None };
                    self.push(self.now, ProcessEvent::Messages { process: number, near });
                }
            }
            HostsFault::Propose { place, change } => self.propose_change(place, &change),
            HostsFault::Full { place, ns } => {
                let until = self.now + ns;
                self.trouble_host(self.scene.places[place as usize].host as usize, until);
                // Other processes may have no connection to it, or it none to them.
                self.suspended = self.suspended.max(until);
                if let Some(number) = self.places[place as usize].process
                    && let Some(process) = self.living(number)
                {
                    process.full_until = process.full_until.max(until);
                    self.outcome.counts.full += 1;
                    self.trouble(number, until);
                    self.wake(number, until);
                }
            }
            HostsFault::Vanish { host } => {
                self.hosts[host as usize].vanish();
                let living: Vec<usize> = self.hosts[host as usize].living.iter().copied().collect();
                for process in living {
                    let at = self.now + self.random.below(DISPLACED_NS);
                    self.push(at, ProcessEvent::Displaced { process });
                }
            }
        }
    }

    /// Cuts the links from the hosts in `from` to those in `to`, for a time.
    pub(super) fn cut_links(&mut self, from: u64, to: u64, ns: u64) {
        let changed = self.links.set(from, to, true, self.now);
        self.outcome.counts.partitions += u64::from(!changed.is_empty());
        for (a, b) in changed {
            self.trouble_host(a, self.now + ns);
            self.trouble_host(b, self.now + ns);
            self.cut(a, b);
        }
    }

    fn mend_links(&mut self, number: usize) {
        let HostsFault::Cut { from, to, .. } = self.scene.faults[number].1 else { return };
        self.note(|| format!("fault {number} is over"));
        self.mend(from, to);
    }

    /// Restores the links from the hosts in `from` to those in `to`.
    pub(super) fn mend(&mut self, from: u64, to: u64) {
        let changed = self.links.set(from, to, false, self.now);
        self.outcome.counts.heals += u64::from(!changed.is_empty());
        self.note(|| format!("{changed:?} pass"));
        for (a, b) in changed {
            self.trouble_host(a, self.now);
            self.trouble_host(b, self.now);
            for (process, due) in self.connections.release((a, b), &self.links, &mut self.random, self.now) {
                self.wake(process, due);
            }
        }
    }

    /// Handles the cut of a link: packets over it are not acknowledged.
    fn cut(&mut self, a: usize, b: usize) {
        let now = self.now;
        let mut silences = vec![];
        for number in self.connections.between(a, b) {
            let connection = self.connections.get_mut(number).expect("it is there");
            let silence_ns = connection.silence_ns;
            for (end, side) in connection.ends.iter_mut().enumerate() {
                if side.is_open && side.stuck.is_none() && !side.out.is_empty() {
                    side.stuck = Some(now);
                    silences.push((number, end, silence_ns));
                }
            }
        }
        for (connection, end, silence_ns) in silences {
            self.push(now + silence_ns, ProcessEvent::Silence { connection, end, since: now });
        }
    }

    fn silence(&mut self, number: usize, end: usize, since: u64) {
        let Some(connection) = self.connections.get(number) else { return };
        let side = &connection.ends[end];
        if side.is_open && side.stuck == Some(since) {
            let (process, hosts) = (side.process, connection.hosts());
            self.outcome.counts.breaks += 1;
            self.note(|| format!("connection {number} breaks at process {process}, after a silence"));
            self.trouble_host(hosts.0, self.now);
            self.trouble_host(hosts.1, self.now);
            self.close(number, end);
            self.wake(process, self.now);
        }
    }

    /// Breaks a connection, with the packets in flight. If `half`, one side does not learn of it.
    pub(super) fn break_connection(&mut self, number: usize, half: bool) {
        let untold = half.then(|| self.random.below(2) as usize);
        let Some(connection) = self.connections.get_mut(number) else { return };
        let (a, b) = connection.hosts();
        connection.is_black = true;
        let silence_ns = connection.silence_ns;
        connection.ends.iter_mut().for_each(|end| end.out.clear());
        let sides: Vec<(usize, bool)> = connection.ends.iter().map(|end| (end.process, end.is_open)).collect();
        self.outcome.counts.breaks += 1;
        if half {
            self.trouble_host(a, self.now);
            self.trouble_host(b, self.now);
        }
        self.note(|| format!("connection {number} of processes {sides:?} breaks; untold: {untold:?}"));
        for (end, (process, is_open)) in sides.into_iter().enumerate() {
            if !is_open {
                continue;
            }
            let now = self.now;
            let at = match untold == Some(end) {
                true => now + silence_ns,
                false => now + self.links.delay(&mut self.random, a, b),
            };
            if let Some(connection) = self.connections.get_mut(number) {
                connection.ends[end].stuck = Some(now);
            }
            let _ = process;
            self.push(at, ProcessEvent::Silence { connection: number, end, since: now });
        }
    }

    /// Closes one side of a connection. The other side learns of it after the packets that were
    /// sent.
    pub(super) fn close(&mut self, number: usize, end: usize) {
        self.send_over(number, end, PacketLoad::Reset, false);
        if let Some(connection) = self.connections.get_mut(number) {
            connection.ends[end].is_open = false;
            connection.ends[1 - end].out.clear();
        }
    }

    /// Sends over one side of a connection. The receiver is woken unless the packet is `quiet`.
    pub(super) fn send_over(&mut self, number: usize, end: usize, load: PacketLoad, quiet: bool) {
        let is_reset = matches!(load, PacketLoad::Reset);
        // A socket or pipe between processes of a host breaks only with one of the processes.
        let is_near_parcel = matches!(load, PacketLoad::Bulk(_))
            && self.connections.get(number).is_some_and(|found| found.hosts().0 == found.hosts().1);
        let sent = self.connections.send((number, end), load, &self.links, &mut self.random, self.now);
        match sent {
            PacketFate::Due(due) if !quiet => {
                let process = self.connections.get(number).expect("it was sent").ends[1 - end].process;
                self.wake(process, due);
            }
            PacketFate::Stuck(at) if !is_reset => {
                self.push(at, ProcessEvent::Silence { connection: number, end, since: self.now });
            }
            _ => {}
        }
        if let PacketFate::Due(due) = sent
            && due > self.now + self.scene.worst_delay_ns() + 3 * self.scene.suspect_after_ns / 4
        {
            // A packet was lost several times in a row.
            let hosts = self.connections.get(number).expect("it was sent").hosts();
            self.trouble_host(hosts.0, due);
            self.trouble_host(hosts.1, due);
        }
        let loss = if is_near_parcel { 0 } else { self.scene.loss_one_in };
        if loss > 0 && !self.is_calm && sent != PacketFate::Closed && self.random.one_in(loss) {
            let half = self.random.one_in(3);
            self.break_connection(number, half);
        }
    }

    /// Ends a process. If it is `killed`, its data in flight may be lost.
    pub(super) fn die(&mut self, number: usize, killed: bool) {
        let Some(process) = self.living(number) else { return };
        process.is_alive = false;
        let (id, host, place, address) = (process.me.id, process.host, process.place, process.address.clone());
        self.note(|| format!("process {number}, member {id}, ends"));
        self.tell(number, || if killed { "is killed".into() } else { "exits".into() });
        self.excused.insert(id, self.now);
        self.ended = self.now;
        self.hosts[host].end(number);
        self.places[place].process = None;
        if killed {
            let is_durable = self.scene.places[place].is_durable;
            self.places[place].knows = self.places[place].disk.belongs.filter(|_| is_durable);
        }
        if let Some((_, listener)) = self.listeners.get_mut(&address).filter(|(_, listener)| *listener == Some(number))
        {
            *listener = None;
            if let Some(name) = self.scene.name.filter(|_| self.scene.places[place].is_seed) {
                let at = self.now + self.random.range(1, name.late_ns);
                self.push(at, ProcessEvent::Renamed { address, is_there: false });
            }
        }
        for (connection, end) in self.connections.open_of(number) {
            let side = &mut self.connections.get_mut(connection).expect("it is open").ends[end];
            if killed && self.random.one_in(3) {
                side.out.truncate(self.random.below(side.out.len() as u64 + 1) as usize);
            }
            self.close(connection, end);
        }
        self.connections.forget_closed();
        let neighbours: Vec<usize> = self.hosts[host].living.iter().copied().collect();
        for process in neighbours {
            let at = self.now + self.random.below(DEATH_NS);
            self.push(at, ProcessEvent::Death { process, id, of: number });
        }
        let told: Vec<usize> = self.lives.iter().filter_map(|life| life.other(number)).collect();
        for process in told {
            let to = self.processes[process].as_deref().map_or(host, |process| process.host);
            let at = self.now + self.links.delay(&mut self.random, host, to);
            self.push(at, ProcessEvent::LifeEnds { process, of: number, tries: 0 });
        }
    }

    fn life_ends(&mut self, process: usize, of: usize, tries: u32) {
        let hosts = [process, of].map(|number| self.processes[number].as_deref().map_or(0, |process| process.host));
        if !self.links.passes(hosts[1], hosts[0]) {
            if tries < 20 {
                self.push(self.now + 700 * MS, ProcessEvent::LifeEnds { process, of, tries: tries + 1 });
            }
            return;
        }
        let Some(at) = self.lives.iter().position(|life| life.other(of) == Some(process)) else { return };
        let life = self.lives.swap_remove(at);
        self.tell_end(process, life);
    }

    fn tell_end(&mut self, process: usize, life: LivenessWatch) {
        let LivenessWatch { incarnation, view, .. } = life;
        let Some(other) = life.other(process).and_then(|other| self.processes[other].as_deref()) else { return };
        let (id, host, now) = (other.me.id, other.host, self.now);
        let Some(from) = self.processes[process].as_deref().map(|process| process.host) else { return };
        let trip = self.links.round_trip(&mut self.random, from, host);
        let answer_within = Duration::from_nanos(ANSWER_MIN_NS + ANSWER_ROUND_TRIPS * trip);
        if let Some(told) = self.living(process) {
            told.heard.push_back(NetworkEvent::Ended { id, incarnation, view, answer_within });
            self.wake(process, now);
        }
    }

    /// Breaks the connections between two hosts that report the ends of processes there.
    fn break_lives(&mut self, a: usize, b: usize, half: bool) {
        let host = |process: usize| self.scene.places[self.process_places[process]].host as usize;
        let is_between = |life: &mut LivenessWatch| {
            let hosts = life.processes.map(host);
            hosts == [a, b] || hosts == [b, a]
        };
        let broken: Vec<LivenessWatch> = self.lives.extract_if(.., is_between).collect();
        for life in broken {
            let untold = half.then(|| self.random.below(2) as usize);
            for (side, process) in life.processes.into_iter().enumerate() {
                if untold != Some(side) {
                    let at = self.now + self.links.delay(&mut self.random, a, b);
                    self.push(at, ProcessEvent::LifeBreaks { process, life });
                }
            }
        }
    }

    fn exit(&mut self, number: usize) {
        let Some(process) = self.living(number) else { return };
        let (place, is_leaving) = (process.place, process.is_leaving);
        let incarnation = process.roster.incarnation();
        let belongs = (incarnation != 0 && !is_leaving).then_some(Incarnation(incarnation));
        self.places[place].belongs = belongs;
        self.places[place].knows = belongs.or(self.places[place].knows).filter(|_| !is_leaving);
        self.die(number, false);
        let down_ns = if is_leaving { self.leave_pause(place) } else { self.scene.restart_ns };
        self.push(self.now + down_ns, ProcessEvent::Start { place, id: None });
    }

    fn leave_pause(&self, place: usize) -> u64 {
        let pause = self.scene.faults.iter().find_map(|(_, fault)| match fault {
            HostsFault::Leave { place: of, down_ns } if *of as usize == place => *down_ns,
            _ => None,
        });
        pause.unwrap_or(S)
    }

    pub(super) fn new_id(&mut self, place: usize) -> MemberId {
        self.places[place].count += 1;
        MemberId(100 * (place as u64 + 1) + u64::from(self.places[place].count))
    }
}

impl LivenessWatch {
    pub(super) fn other(&self, process: usize) -> Option<usize> {
        match self.processes {
            [one, other] if one == process => Some(other),
            [other, one] if one == process => Some(other),
            _ => None,
        }
    }
}
