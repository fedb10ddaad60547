//! A run: processes, disks, logs, messages in flight and faults, in the order of virtual time.
mod agreement;
mod checks;
mod epoch_ends;
mod faults;
mod group;
mod joining;
mod levels;
mod logs;
mod outcome;
mod processes;

use super::plan::{MS, RestartBroken, RestartFault, RestartScene};
use crate::checkers::restart_chain::RestartChain;
use crate::checkers::restart_history::RestartHistory;
use crate::checkers::{Checked, Invariant, Violation};
use crate::random::{Random, mix};
use agreement::Votes;
pub use outcome::{RestartCounts, RestartOutcome};
use spindle_core::control::{LogState, Restart, RestartMessage, RestartRecord, RestartView};
use spindle_core::{Durability, MemberId, Position, Process, Rank, SubgroupSpec, Time, View, ViewId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt::Write;

const BOUNDED: Invariant = Invariant(14, "bounded");

/// The interval at which the group acts.
const TICK_NS: u64 = 50 * MS;
/// The maximum number of events. A run with more is reported as endless.
const EVENTS_MAX: u64 = 3_000_000;

/// An event. Events of a process contain its nonce.
#[derive(Clone, Debug)]
enum RestartEvent {
    Start {
        seat: usize,
    },
    Wake {
        seat: usize,
        nonce: u32,
    },
    Deliver {
        from: Process,
        to: Process,
        message: RestartMessage,
    },
    Written {
        seat: usize,
        nonce: u32,
    },
    /// The kernel reports the end of a process.
    Gone {
        seat: usize,
        id: MemberId,
    },
    /// A member answers a process that looks for the group.
    Answer {
        seat: usize,
        nonce: u32,
        member: Process,
    },
    /// A member hears of the decision that ends its view.
    Learn {
        seat: usize,
        nonce: u32,
        view: usize,
    },
    /// A member shows a view to a process that joins with it.
    Show {
        seat: usize,
        nonce: u32,
        view: usize,
    },
    /// The records of a log up to `length` are on disk. `caught_up` contains the last record before
    /// a catch-up that ends with this.
    Synced {
        seat: usize,
        nonce: u32,
        log: usize,
        length: usize,
        caught_up: Option<Option<Position>>,
    },
    CatchUp {
        seat: usize,
        nonce: u32,
        log: usize,
    },
    /// The records behind the end of an epoch are gone from the disk.
    LogCut {
        seat: usize,
        nonce: u32,
        log: usize,
    },
    /// Records that a log has got for a restart are on disk.
    Levelled {
        seat: usize,
        nonce: u32,
        log: usize,
        /// True if no source had the next records.
        cut_off: bool,
    },
    Crash {
        seat: usize,
        nonce: u32,
        down_ns: u64,
    },
    Fault(usize),
    Tick,
    Calm,
}

#[derive(Debug)]
struct RestartSeat {
    host: u32,
    disk: RestartDisk,
    running: Option<RunningMember>,
    /// Since when a process restarts here, or none does.
    restarts: (bool, u64),
    /// The time for which the next start is planned.
    starts_at: Option<u64>,
}

/// A disk, and the identity of the member whose disk it is.
#[derive(Debug)]
struct RestartDisk {
    /// Its number, which is the id of the member.
    number: u32,
    record: Option<RestartRecord>,
    /// Writes in progress, oldest first.
    writes: VecDeque<(RestartRecord, RecordWrite)>,
    logs: Vec<DiskLog>,
}

#[derive(Clone, Debug, Default)]
struct DiskLog {
    records: Vec<(Position, u64)>,
    /// The number of records that are on disk.
    synced: usize,
    /// Records that the log begins without: those after the first position, up to the second one.
    holes: Vec<(Option<Position>, Position)>,
}

/// The reason of a write of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecordWrite {
    /// The restart requested it.
    Restart,
    /// A process without a record is about to join.
    Ask,
    /// A process enters its first view.
    Enter(usize),
    /// A member continues in the next view.
    Next(usize),
    /// A member votes for the next view.
    Vote { view: usize, ballot: usize },
    /// A log has caught up.
    CaughtUp,
    /// A member is about to end in order, for so many ns.
    EndNotice { down_ns: u64 },
}

#[derive(Debug)]
struct RunningMember {
    process: Process,
    wakes: u64,
    /// The record as it will be on disk, without a restart.
    record: Option<RestartRecord>,
    phase: MemberPhase,
    /// A view of the group that the process wants to join.
    knows: Option<usize>,
    /// The members that it was told are lost.
    lost: BTreeSet<MemberId>,
    /// The logs that get records for a restart.
    levels: BTreeSet<usize>,
    sent: (u64, u64),
}

#[derive(Debug)]
enum MemberPhase {
    Restarting(Box<Restart>),
    /// It has no record.
    Empty,
    /// Its record of its first view is being written.
    Entering,
    Live(LiveMember),
}

#[derive(Debug)]
struct LiveMember {
    /// The index of its view.
    view: usize,
    /// The next view, whose record is being written.
    next: Option<usize>,
    /// By log, the index of the next message to deliver.
    at: Vec<usize>,
    /// By log, the index of the first message that it may log.
    floor: Vec<usize>,
    /// By log, what it lacks.
    lacks: Vec<Option<LackedRecords>>,
    /// By log, whether records behind the end of an epoch are being removed.
    cuts: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct LackedRecords {
    /// The index of the first message that it does not lack.
    end: usize,
    since: u64,
    /// True if they are being copied.
    is_copying: bool,
}

/// A decided view.
#[derive(Debug)]
struct GroupView {
    view: View,
    processes: Vec<Process>,
    /// The value and the base, if it is the view of a restart.
    restart: Option<(ViewId, RestartView)>,
    /// Members that come from the view before, by nonce.
    stayed: BTreeSet<u32>,
    begun: BTreeSet<u32>,
    /// The logs that its members had complete, by nonce.
    complete: BTreeSet<(u32, usize)>,
    /// The agreement on the view after it.
    votes: Votes,
    next: Option<usize>,
    /// By log, the number of messages before the view.
    start: Vec<usize>,
    /// Since when others do not hear a process.
    silent: BTreeMap<u32, u64>,
    /// Since when its members want another view.
    wanted: Option<u64>,
}

/// A run.
pub(super) struct RestartWorld<'s> {
    scene: &'s RestartScene,
    story: Option<&'s mut String>,
    random: Random,
    now: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    bodies: Vec<Option<RestartEvent>>,
    seats: Vec<RestartSeat>,
    nonces: u32,
    disks: u32,
    /// The seat and the end of each process.
    places: BTreeMap<u32, (usize, Option<u64>)>,
    /// Processes that ended because they could never begin a view, and said so.
    stopped: BTreeSet<u32>,
    /// The view of the last restart.
    restarted: Option<ViewId>,
    views: Vec<GroupView>,
    /// The base of each proposed view.
    bases: BTreeMap<(ViewId, Vec<Process>), View>,
    histories: Vec<RestartHistory>,
    chain: RestartChain,
    /// The process that leads on one host.
    lead: Option<u32>,
    lead_since: u64,
    /// A cut between these hosts and the others, and its end.
    cut: (u64, u64),
    /// The last end of a cut.
    cut_until: u64,
    /// Members that the operator has given up for the restart in progress.
    lost: BTreeSet<MemberId>,
    /// The era in which they were given up.
    lost_era: u32,
    /// Disks that were given up at any time, and those that are destroyed, with the time.
    given_up: BTreeSet<u32>,
    destroyed: BTreeMap<u32, u64>,
    /// Since when the leader waits for the same members.
    waits: (Vec<MemberId>, u64),
    is_calm: bool,
    ends_at: u64,
    outcome: RestartOutcome,
}

impl<'s> RestartWorld<'s> {
    pub(super) fn new(scene: &'s RestartScene, story: Option<&'s mut String>) -> RestartWorld<'s> {
        let seats = scene.hosts.len();
        let seat = |seat: usize| RestartSeat {
            host: scene.hosts[seat],
            disk: RestartDisk::new(seat as u32 + 1, scene.logs),
            running: None,
            restarts: (false, 0),
            starts_at: None,
        };
        let (events, bodies, places, stopped, bases, chain, lost, given_up, destroyed, outcome) = Default::default();
        let mut world = RestartWorld {
            scene,
            story,
            random: Random::new(scene.seed, 32),
            now: 0,
            sequence: 0,
            events,
            bodies,
            seats: (0..seats).map(seat).collect(),
            nonces: 0,
            disks: seats as u32,
            places,
            stopped,
            restarted: None,
            views: vec![],
            bases,
            histories: (0..scene.logs).map(|_| RestartHistory::default()).collect(),
            chain,
            lead: None,
            lead_since: 0,
            cut: (0, 0),
            cut_until: 0,
            lost,
            lost_era: 0,
            given_up,
            destroyed,
            waits: (vec![], 0),
            is_calm: false,
            ends_at: u64::MAX,
            outcome,
        };
        world.create_group();
        for seat in 0..seats {
            world.push(world.now + seat as u64 * MS, RestartEvent::Start { seat });
        }
        for (number, (at, _)) in scene.faults.iter().enumerate() {
            world.push(*at, RestartEvent::Fault(number));
        }
        world.push(TICK_NS, RestartEvent::Tick);
        world.push(scene.calm_ns, RestartEvent::Calm);
        world
    }

    /// Lets the first members begin the first view, which is on their disks.
    fn create_group(&mut self) {
        let members: Vec<MemberId> = (1..=u64::from(self.scene.members)).map(MemberId).collect();
        let ranks: Vec<Rank> = (0..self.scene.members).map(Rank).collect();
        let copies = self.scene.copies;
        let durability = match self.scene.before_delivery {
            true => Durability::LoggedBeforeDelivery { copies },
            false => Durability::Logged { copies },
        };
        let spec = |log: u32| SubgroupSpec {
            members: ranks.clone(),
            senders: ranks.clone(),
            durability,
            ..SubgroupSpec::of_everyone(log_name(log as usize))
        };
        let subgroups: Vec<SubgroupSpec> = (0..self.scene.logs).map(spec).collect();
        let view = View { id: ViewId(1), members, nonvoters: vec![], subgroups: subgroups.into() };
        let mut processes = vec![];
        for seat in 0..self.scene.members as usize {
            let process = self.new_process(seat);
            let hosts = (0..view.members.len()).map(|seat| self.host_of(seat)).collect();
            let record = RestartRecord::first(view.clone(), hosts, process.id, true);
            self.seats[seat].disk.record = Some(record.clone());
            let logs = self.scene.logs as usize;
            let (at, floor, lacks) = (vec![0; logs], vec![0; logs], vec![None; logs]);
            let phase = MemberPhase::Live(LiveMember {
                view: 0,
                next: None,
                at,
                floor,
                lacks,
                cuts: vec![false; self.scene.logs as usize],
            });
            self.seats[seat].running = Some(RunningMember::new(process, 0, Some(record), phase));
            processes.push(process);
        }
        let begun: BTreeSet<u32> = processes.iter().map(|process| process.nonce).collect();
        let first = self.chain.begins(view.id, &processes, &[]);
        first.expect("the first view is alone");
        self.views.push(GroupView { begun, ..GroupView::new(view, processes, vec![0; self.scene.logs as usize]) });
    }

    pub(super) fn run(mut self) -> RestartOutcome {
        while let Some(Reverse((at, _, body))) = self.events.pop() {
            let event = self.bodies[body].take().expect("an event happens once");
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
            if self.outcome.united {
                break;
            }
        }
        self.outcome.virtual_ns = self.now;
        self.outcome.counts.views = self.chain.count();
        self.outcome
    }

    fn push(&mut self, at: u64, event: RestartEvent) {
        self.sequence += 1;
        self.bodies.push(Some(event));
        self.events.push(Reverse((at.max(self.now), self.sequence, self.bodies.len() - 1)));
    }

    fn after(&mut self, longest: u64, event: RestartEvent) {
        let at = self.now + self.random.below(longest + 1);
        self.push(at, event);
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(story) = &mut self.story {
            let _ = writeln!(story, "{:>9}.{:03} ms  {}", now / MS, now / 1000 % 1000, text());
        }
    }

    fn running(&mut self, seat: usize, nonce: u32) -> Option<&mut RunningMember> {
        self.seats[seat].running.as_mut().filter(|running| running.process.nonce == nonce)
    }

    fn happen(&mut self, event: RestartEvent) -> Checked {
        self.outcome.trace_hash = mix(self.outcome.trace_hash ^ self.now);
        let now = Time(self.now);
        match event {
            RestartEvent::Start { seat } => {
                self.seats[seat].starts_at = None;
                if self.seats[seat].running.is_none() {
                    self.start(seat)?;
                }
            }
            RestartEvent::Wake { seat, nonce } => {
                if let Some(running) = self.running(seat, nonce) {
                    running.wakes = u64::MAX;
                    if let MemberPhase::Restarting(restart) = &mut running.phase {
                        restart.poll(now);
                        self.settle(seat)?;
                    }
                }
            }
            RestartEvent::Deliver { from, to, message } => self.deliver(from, to, message)?,
            RestartEvent::Written { seat, nonce } => self.written(seat, nonce)?,
            RestartEvent::Gone { seat, id } => {
                if let Some(MemberPhase::Restarting(restart)) =
                    self.seats[seat].running.as_mut().map(|running| &mut running.phase)
                {
                    restart.gone(id);
                }
            }
            RestartEvent::Answer { seat, nonce, member } => self.answered(seat, nonce, member)?,
            RestartEvent::Learn { seat, nonce, view } => self.learn(seat, nonce, view)?,
            RestartEvent::Show { seat, nonce, view } => self.shown(seat, nonce, view)?,
            RestartEvent::Synced { seat, nonce, log, length, caught_up } => {
                self.synced(seat, nonce, log, length, caught_up)?;
            }
            RestartEvent::CatchUp { seat, nonce, log } => self.catch_up(seat, nonce, log)?,
            RestartEvent::LogCut { seat, nonce, log } => self.log_is_cut(seat, nonce, log),
            RestartEvent::Levelled { seat, nonce, log, cut_off } => self.levelled(seat, nonce, log, cut_off)?,
            RestartEvent::Crash { seat, nonce, down_ns } => {
                if self.running(seat, nonce).is_some() && !self.is_calm {
                    self.end(seat, down_ns);
                }
            }
            RestartEvent::Fault(number) => self.go_wrong(&self.scene.faults[number].1.clone()),
            RestartEvent::Tick => self.tick()?,
            RestartEvent::Calm => self.calm(),
        }
        Ok(())
    }

    /// True if messages pass between two hosts.
    fn passes(&self, a: usize, b: usize) -> bool {
        let side = |seat: usize| self.cut.0 >> self.seats[seat].host & 1;
        self.cut.1 <= self.now || side(a) == side(b)
    }

    fn is_one_host(&self) -> bool {
        self.scene.hosts.iter().all(|host| *host == 0)
    }

    fn is_broken(&self, broken: RestartBroken) -> bool {
        self.scene.broken == broken
    }
}

impl RestartDisk {
    fn new(number: u32, logs: u32) -> RestartDisk {
        let logs = vec![DiskLog::default(); logs as usize];
        RestartDisk { number, record: None, writes: VecDeque::new(), logs }
    }
}

impl RestartDisk {
    /// The contents of the logs, as a process reports them.
    fn states(&self) -> Vec<LogState> {
        let state = |(log, state): (usize, &DiskLog)| LogState {
            name: log_name(log),
            last: state.last(),
            clock: state.last().map_or(0, |last| last.epoch.count() << 32 | last.sequence),
        };
        self.logs.iter().enumerate().map(state).collect()
    }
}

impl DiskLog {
    fn last(&self) -> Option<Position> {
        self.records.last().map(|(position, _)| *position)
    }

    /// True if the message is on disk.
    fn has(&self, position: Position) -> bool {
        self.records[..self.synced].binary_search_by_key(&position, |(position, _)| *position).is_ok()
    }

    /// True if the log begins without the message.
    fn skips(&self, position: Position) -> bool {
        self.holes.iter().any(|(after, last)| *after < Some(position) && position <= *last)
    }
}

impl RunningMember {
    fn new(process: Process, since: u64, record: Option<RestartRecord>, phase: MemberPhase) -> RunningMember {
        let (knows, lost, levels) = Default::default();
        RunningMember { process, wakes: u64::MAX, record, phase, knows, lost, levels, sent: (since, 0) }
    }

    fn live(&self) -> Option<&LiveMember> {
        match &self.phase {
            MemberPhase::Live(live) => Some(live),
            _ => None,
        }
    }
}

impl GroupView {
    fn new(view: View, processes: Vec<Process>, start: Vec<usize>) -> GroupView {
        let (restart, stayed, begun, complete, votes, next, silent, wanted) = Default::default();
        GroupView { view, processes, restart, stayed, begun, complete, votes, next, start, silent, wanted }
    }

    fn names(&self, nonce: u32) -> bool {
        self.processes.iter().any(|process| process.nonce == nonce)
    }
}

/// Returns the name of a logged subgroup.
fn log_name(log: usize) -> String {
    format!("log{log}")
}
