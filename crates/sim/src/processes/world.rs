//! A run: processes on hosts, data in flight between them, and faults, in the order of virtual
//! time.
mod ends;
mod event;
mod faults;

use super::counts::Counts;
use super::disks::PlaceDisk;
use super::host::SimHost;
use super::learning::States;
use super::ledger::HostsLedger;
use super::logs::LoggedOrders;
use super::network::{HostLinks, PacketFate, PacketLoad, SimConnections};
use super::plan::{HostsScene, MS};
use super::process::{DeathNotice, NetworkEvent, SimProcess};
use super::proposed_changes::PendingChange;
use super::rows::SimRows;
use super::story::Telling;
use crate::checkers::{Checked, Invariant, Violation};
use crate::random::{Random, mix};
pub(super) use event::ProcessEvent;
use event::QueuedEvent;
use spindle_core::control::{Address, BootstrapRecord, Incarnation, Purpose, SharedSettings};
use spindle_core::{MemberId, ViewId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Write;

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

/// A place, with the state that outlives its processes.
#[derive(Debug, Default)]
pub(super) struct PlaceState {
    pub(super) process: Option<usize>,
    /// The number of processes that it had.
    pub(super) count: u32,
    pub(super) disk: BootstrapRecord,
    /// The time until the next process starts, if the current one is killed while it waits for
    /// admission; `Some(None)`: none does.
    pub(super) dies_waiting: Option<Option<u64>>,
    /// As above, if its process is killed when it is to begin the first view of a group.
    pub(super) dies_founding: Option<Option<u64>>,
    /// The disk of its logs.
    pub(super) log_disk: PlaceDisk,
    /// True if no process starts here any more.
    pub(super) is_over: bool,
    pub(super) last_id: Option<MemberId>,
    /// How far the clock of its processes is off, in ns, once its operator has set it.
    pub(super) clock: Option<i64>,
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
    /// A log does not get a record now and then.
    RecordsSkipped,
    /// A record counts as persisted once it is written, before it is synced.
    PersistedUnsynced,
    /// The records of a failed sync count as persisted.
    SyncFailureIgnored,
    /// A log keeps records behind the end of an epoch.
    LogUncut,
    /// The log of a process that comes back gets no records from others.
    CatchUpForgotten,
    /// A log that catches up takes the messages of its epoch at once.
    LogsWhileLacking,
    /// A log counts as caught up as soon as a source is asked.
    CaughtUpEarly,
    /// A source says that it has sent all records while some of its own are not on disk.
    AnswersUnsettled,
    /// A source that catches up sends records behind a gap of its log as if it had none.
    GapsServed,
    /// The engine is not told that a log has room again.
    RoomUntold,
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
    /// The orders of logged subgroups.
    pub(super) orders: LoggedOrders,
    /// The logs that members have shown to be complete: the group, the view, the member and the subgroup.
    pub(super) complete_logs: BTreeSet<(u128, ViewId, MemberId, String)>,
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
            orders: LoggedOrders::new(),
            complete_logs: BTreeSet::new(),
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
        while let Some(Reverse(event)) = self.events.pop() {
            if let Err(violation) = self.play(event) {
                self.outcome.violations.push(violation);
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
            let Some(Reverse(event)) = self.events.pop() else { break };
            self.play(event)?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    fn play(&mut self, QueuedEvent { at, event, .. }: QueuedEvent) -> Checked {
        self.now = at;
        self.outcome.counts.events += 1;
        let happened = match self.outcome.counts.events > EVENTS_MAX {
            true => BOUNDED.broken("the run does not end".into()),
            false => self.happen(event),
        };
        happened.map_err(|violation| Violation { at, ..violation })
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
            ProcessEvent::LogSynced { process, name } => self.log_synced(process, &name),
            ProcessEvent::LogCut { process, name } => self.log_cut(process, &name),
            ProcessEvent::KillFounding { process, down_ns } => self.kill_founding(process, down_ns),
            ProcessEvent::KillWaiting { place, down_ns } => self.kill_if_waiting(place, down_ns),
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
