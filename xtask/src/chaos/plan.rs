//! The events of one round and their times. They are drawn from a seed before the round begins, so
//! that the same seed has the same events. The affected members are drawn too, among those that
//! live by then.
use super::record::mix;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EventKind {
    /// kill -9 of any member.
    Kill,
    /// kill -9 of the member with the lowest rank, which leads the change that follows.
    KillLeader,
    /// kill -9 of the newest process, which may still be joining.
    KillNewest,
    /// kill -9 of two members at once.
    KillTwo,
    /// SIGSTOP, and SIGCONT after this many ms.
    Stop(u64),
    StopLeader(u64),
    /// SIGSTOP of more than half of the members.
    StopMost(u64),
    StopAll(u64),
    Join,
    JoinThree,
    Leave,
    LeaveLeader,
    /// kill -9 of all members but one, within a moment.
    KillOthers,
    /// kill -9 of all members. As many new processes create the group again.
    KillAll,
    /// The runtime directory is removed with all its content.
    RemoveDirectory,
    /// The address of one process is removed.
    RemoveSocket,
    /// kill -9 of all members on one host.
    KillHost,
    /// The link of one host is down for this many ms.
    Cut(u64),
    /// The link of the host with the lowest rank is down.
    CutLeader(u64),
    /// Packets from one host reach no other host for this many ms, though it receives packets from
    /// all.
    Dumb(u64),
    /// No packets reach one host, though all hosts receive packets from it.
    Deaf(u64),
    /// Packets from one host do not reach one other host.
    OneWay(u64),
    /// Two hosts can't reach each other, and all other hosts reach both.
    Pair(u64),
    /// A minority of the hosts and the rest can't reach each other. Hosts within each part can.
    Part(u64),
    /// A link is down and up in turns of this many ms.
    Flap(u64),
    /// Packets from one host are late.
    Slow(u64),
    /// No host can reach any other for this many ms, and all members stay alive.
    Outage(u64),
    /// A host is cut off for this many ms, and a member elsewhere is killed meanwhile.
    CutCrash(u64),
    /// A host is cut off for this many ms, and a seed is killed and restarted meanwhile.
    CutRestart(u64),
    /// This many seeds are killed at once, and restarted with their ids and addresses.
    RestartSeeds(u64),
    /// All links have a constant delay of this many ms from now on, and a process joins.
    Delay(u64),
    /// All members on most hosts are killed for good, and an operator names them as lost.
    Recover,
}

/// An entry of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlannedEvent {
    pub(super) at: Duration,
    pub(super) what: EventKind,
    /// Random number that selects the affected members.
    pub(super) pick: u64,
}

/// A round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RoundPlan {
    pub(super) seed: u64,
    /// Number of processes that create the group.
    pub(super) founders: u32,
    /// Number of their hosts; 0: they are on this one.
    pub(super) hosts: u32,
    /// Number of hosts at which others look for the group.
    pub(super) seeds: u32,
    /// True if the seeds have data directories.
    pub(super) disks: bool,
    /// True if all messages are delivered on the polling threads, and joiners receive the
    /// application's state. Otherwise threads receive.
    pub(super) states: bool,
    pub(super) events: Vec<PlannedEvent>,
}

/// Pseudorandom numbers.
pub(super) struct Dice(u64);

/// Length of a storm, in ms.
const STORM_MS: RangeInclusive<u64> = 6_000..=12_000;
/// An event at most this many ms after another hits the change that the other has caused.
const SOON_MS: u64 = 25;
const PAUSE_MS: RangeInclusive<u64> = 150..=1_100;
/// Factor for the length of a storm that has only events that take seconds.
const LASTING_STORMS: u64 = 2;

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(mix(seed ^ 0x5eed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }
}

/// The events on one host, and their weights.
const ON_ONE_HOST: [(EventKind, u64); 16] = [
    (EventKind::Kill, 5),
    (EventKind::KillLeader, 3),
    (EventKind::KillNewest, 2),
    (EventKind::KillTwo, 1),
    (EventKind::Stop(0), 4),
    (EventKind::StopLeader(0), 2),
    (EventKind::StopMost(0), 2),
    (EventKind::StopAll(0), 1),
    (EventKind::Join, 5),
    (EventKind::JoinThree, 1),
    (EventKind::Leave, 3),
    (EventKind::LeaveLeader, 2),
    (EventKind::KillAll, 1),
    (EventKind::KillOthers, 1),
    (EventKind::RemoveDirectory, 3),
    (EventKind::RemoveSocket, 2),
];

/// The events among hosts, and their weights. [`EventKind::Recover`] replaces another event in some
/// rounds.
const AMONG_HOSTS: [(EventKind, u64); 24] = [
    (EventKind::Kill, 3),
    (EventKind::KillLeader, 1),
    (EventKind::KillNewest, 1),
    (EventKind::KillHost, 1),
    (EventKind::Stop(0), 2),
    (EventKind::StopLeader(0), 1),
    (EventKind::Join, 3),
    (EventKind::Leave, 1),
    (EventKind::LeaveLeader, 1),
    (EventKind::Cut(0), 3),
    (EventKind::CutLeader(0), 2),
    (EventKind::Dumb(0), 2),
    (EventKind::Deaf(0), 2),
    (EventKind::OneWay(0), 1),
    (EventKind::Pair(0), 1),
    (EventKind::Part(0), 2),
    (EventKind::Flap(0), 2),
    (EventKind::Slow(0), 2),
    (EventKind::Outage(0), 2),
    (EventKind::CutCrash(0), 2),
    (EventKind::CutRestart(0), 1),
    (EventKind::RestartSeeds(0), 2),
    (EventKind::Delay(0), 1),
    (EventKind::Recover, 0),
];

/// One in this many rounds has a recovery.
const RECOVERIES: u64 = 4;

/// The shortest outage. The next constants are the turns of a link that flaps for long, the cuts
/// that last, and the delays, all in ms.
const OUTAGE_MS_MIN: u64 = 500;
const TURN_MS: RangeInclusive<u64> = 300..=500;
const CUT_CRASH_MS: RangeInclusive<u64> = 900..=3_000;
const LASTING_MS: RangeInclusive<u64> = 3_000..=8_000;
const DELAY_MS: RangeInclusive<u64> = 10..=200;

/// The options on which a plan depends in addition to its seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) suspect_after: Duration,
    pub(super) outage_max: Duration,
    /// The only event that happens, if it is given.
    pub(super) only: Option<EventKind>,
}

impl EventKind {
    /// Returns the event with this name on one host, or among several.
    pub(super) fn named(name: &str, among_hosts: bool) -> Option<EventKind> {
        let table: &[(EventKind, u64)] = if among_hosts { &AMONG_HOSTS } else { &ON_ONE_HOST };
        table.iter().map(|(what, _)| *what).find(|what| what.name() == name)
    }

    /// Returns the name without its numbers.
    pub(super) fn name(self) -> String {
        let shown = self.to_string();
        shown.split('(').next().unwrap_or_default().to_owned()
    }

    fn draw(dice: &mut Dice, table: &[(EventKind, u64)], bounds: &Bounds) -> EventKind {
        let sum: u64 = table.iter().map(|(_, weight)| weight).sum();
        let mut at = dice.next() % sum;
        let drawn = table.iter().find(|(_, weight)| {
            let is_here = at < *weight;
            at = at.saturating_sub(*weight);
            is_here
        });
        let what = drawn.map_or(EventKind::Join, |(what, _)| *what);
        bounds.only.unwrap_or(what).measured(dice, bounds)
    }

    /// Returns the same event with numbers of its own.
    fn measured(self, dice: &mut Dice, bounds: &Bounds) -> EventKind {
        let silence = EventKind::silence(dice, bounds.suspect_after);
        let lasting = if dice.next().is_multiple_of(4) { dice.within(LASTING_MS) } else { silence };
        match self {
            EventKind::Stop(_) => EventKind::Stop(silence),
            EventKind::StopLeader(_) => EventKind::StopLeader(silence),
            EventKind::StopMost(_) => EventKind::StopMost(silence),
            EventKind::StopAll(_) => EventKind::StopAll(silence),
            EventKind::Cut(_) => EventKind::Cut(silence),
            EventKind::CutLeader(_) => EventKind::CutLeader(silence),
            EventKind::Dumb(_) => EventKind::Dumb(lasting),
            EventKind::Deaf(_) => EventKind::Deaf(lasting),
            EventKind::OneWay(_) => EventKind::OneWay(lasting),
            EventKind::Pair(_) => EventKind::Pair(lasting),
            EventKind::Part(_) => EventKind::Part(lasting),
            EventKind::Flap(_) if dice.next().is_multiple_of(2) => EventKind::Flap(dice.within(TURN_MS)),
            EventKind::Flap(_) => EventKind::Flap(dice.within(10..=silence.max(11))),
            EventKind::Slow(_) => EventKind::Slow(silence),
            EventKind::Outage(_) => EventKind::Outage(EventKind::outage(dice, bounds.outage_max)),
            EventKind::CutCrash(_) => EventKind::CutCrash(dice.within(CUT_CRASH_MS)),
            EventKind::CutRestart(_) => EventKind::CutRestart(dice.within(CUT_CRASH_MS)),
            EventKind::RestartSeeds(_) => EventKind::RestartSeeds(dice.within(1..=2)),
            EventKind::Delay(_) => EventKind::Delay(dice.within(DELAY_MS)),
            what => what,
        }
    }

    /// Returns a time around the silence that is suspected, or far from it on either side.
    fn silence(dice: &mut Dice, suspect_after: Duration) -> u64 {
        let limit = suspect_after.as_millis() as u64;
        match dice.next() % 3 {
            0 => dice.within(1..=limit / 2),
            1 => dice.within(limit / 2..=limit * 3 / 2),
            _ => dice.within(limit * 3 / 2..=limit * 4),
        }
    }

    /// Draws the length of an outage. Each doubling is equally likely, so short outages are as
    /// frequent as long ones.
    fn outage(dice: &mut Dice, max: Duration) -> u64 {
        let max = (max.as_millis() as u64).max(OUTAGE_MS_MIN);
        let doublings = u64::from((max / OUTAGE_MS_MIN).ilog2());
        let low = OUTAGE_MS_MIN << dice.within(0..=doublings);
        dice.within(low..=(2 * low).min(max))
    }

    /// Returns true if no other event happens meanwhile, when only this event is played.
    fn lasts(self) -> bool {
        matches!(self, EventKind::Outage(_) | EventKind::CutCrash(_) | EventKind::CutRestart(_) | EventKind::Recover)
    }

    /// Returns how long no other event happens. An outage may get all its time, and the group its
    /// time to recover.
    fn pause_ms(self, dice: &mut Dice, bounds: &Bounds) -> u64 {
        let alone = bounds.only.is_some();
        let whole = dice.next().is_multiple_of(2) || alone;
        match self {
            EventKind::Outage(ms) if whole => ms + 3 * bounds.suspect_after.as_millis() as u64,
            EventKind::CutCrash(ms) | EventKind::CutRestart(ms) if alone => {
                ms + 3 * bounds.suspect_after.as_millis() as u64
            }
            EventKind::Recover => 6 * bounds.suspect_after.as_millis() as u64,
            _ => 0,
        }
    }
}

impl RoundPlan {
    /// Returns a plan for a group on this host.
    pub(super) fn new(seed: u64, members: &RangeInclusive<u32>, bounds: &Bounds) -> RoundPlan {
        let mut dice = Dice::new(seed);
        let founders = dice.within(u64::from(*members.start())..=u64::from(*members.end())) as u32;
        let events = RoundPlan::events(&mut dice, &ON_ONE_HOST, bounds);
        let states = dice.next().is_multiple_of(2);
        RoundPlan { seed, founders, hosts: 0, seeds: 0, disks: false, states, events }
    }

    /// Returns a plan for a group with one or two members on each of several hosts. Three of the
    /// hosts, or all, have seeds.
    pub(super) fn among_hosts(seed: u64, hosts: &RangeInclusive<u32>, bounds: &Bounds) -> RoundPlan {
        let mut dice = Dice::new(seed);
        let hosts = dice.within(u64::from(*hosts.start())..=u64::from(*hosts.end())) as u32;
        let founders = hosts + dice.within(0..=u64::from(hosts / 2)) as u32;
        let seeds = if dice.next().is_multiple_of(2) { hosts } else { hosts.min(3) };
        let disks = dice.next().is_multiple_of(2);
        let mut events = RoundPlan::events(&mut dice, &AMONG_HOSTS, bounds);
        // The recovery has dice of its own, so that the other events of a seed stay the same.
        let mut more = Dice::new(seed ^ 2);
        if more.next().is_multiple_of(RECOVERIES) && bounds.only.is_none() {
            let at = more.next() as usize % events.len().max(1);
            events.iter_mut().skip(at).take(1).for_each(|event| event.what = EventKind::Recover);
        }
        RoundPlan { seed, founders, hosts, seeds, disks, states: false, events }
    }

    fn events(dice: &mut Dice, table: &[(EventKind, u64)], bounds: &Bounds) -> Vec<PlannedEvent> {
        let mut end_ms = dice.within(STORM_MS);
        if bounds.only.is_some_and(EventKind::lasts) {
            end_ms *= LASTING_STORMS;
        }
        let mut at_ms = dice.within(PAUSE_MS);
        let mut events = Vec::new();
        while at_ms < end_ms {
            let (what, pick) = (EventKind::draw(dice, table, bounds), dice.next());
            events.push(PlannedEvent { at: Duration::from_millis(at_ms), what, pick });
            at_ms += what.pause_ms(dice, bounds);
            at_ms += if dice.next().is_multiple_of(3) { dice.within(0..=SOON_MS) } else { dice.within(PAUSE_MS) };
        }
        events
    }

    /// Returns true if no other event is within `pause` of the `i`-th.
    pub(super) fn is_alone(&self, i: usize, pause: Duration) -> bool {
        let at = self.events[i].at;
        let near = |event: &PlannedEvent| event.at.abs_diff(at) < pause;
        self.events.iter().enumerate().all(|(j, event)| i == j || !near(event))
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_ONE: Bounds =
        Bounds { suspect_after: Duration::from_millis(300), outage_max: Duration::from_secs(4), only: None };
    const AFAR: Bounds = Bounds { suspect_after: Duration::from_millis(800), ..ON_ONE };

    #[test]
    fn one_seed_makes_one_plan_and_another_another() {
        let plan = |seed| RoundPlan::new(seed, &(3..=5), &ON_ONE);
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
        let only = |name, among_hosts| Bounds { only: EventKind::named(name, among_hosts), ..ON_ONE };
        let others = RoundPlan::new(1, &(4..=5), &only("KillOthers", false));
        assert!(!others.events.is_empty() && others.events.iter().all(|event| event.what == EventKind::KillOthers));
        let outages = RoundPlan::among_hosts(1, &(3..=5), &only("Outage", true));
        let is_outage = |event: &PlannedEvent| matches!(event.what, EventKind::Outage(500..=4000));
        assert!(!outages.events.is_empty() && outages.events.iter().all(is_outage));
        assert_eq!((EventKind::named("Outage", false), EventKind::named("KillTwo", true)), (None, None));
    }

    #[test]
    fn plans_among_hosts_hold_everything_that_happens_to_networks() {
        let plan = |seed| RoundPlan::among_hosts(seed, &(3..=5), &AFAR);
        assert_eq!(plan(1), plan(1));
        let plans: Vec<RoundPlan> = (0..100).map(plan).collect();
        let all: Vec<EventKind> = plans.iter().flat_map(|plan| plan.events.iter().map(|event| event.what)).collect();
        for (what, _) in AMONG_HOSTS {
            assert!(all.iter().any(|other| other.name() == what.name()), "{what}");
        }
        let has = |is: fn(&EventKind) -> bool| assert!(all.iter().any(is));
        has(|what| matches!(what, EventKind::Cut(ms) if *ms < 400));
        has(|what| matches!(what, EventKind::Cut(ms) if *ms > 1600));
        has(|what| matches!(what, EventKind::Pair(ms) if *ms > 5000));
        has(|what| matches!(what, EventKind::Outage(..1000)));
        has(|what| matches!(what, EventKind::Outage(3000..=4000)));
        has(|what| matches!(what, EventKind::RestartSeeds(2)));
        let recovers = |plan: &&RoundPlan| plan.events.iter().any(|event| event.what == EventKind::Recover);
        assert!((10..40).contains(&plans.iter().filter(recovers).count()));
        let only = Bounds { only: EventKind::named("Recover", true), ..AFAR };
        assert!(RoundPlan::among_hosts(1, &(3..=5), &only).events.iter().all(|event| event.what == EventKind::Recover));
        assert!(plans.iter().all(|plan| (3..=5).contains(&plan.hosts) && plan.founders >= plan.hosts));
        assert!(plans.iter().any(|plan| plan.seeds < plan.hosts) && plans.iter().any(|plan| plan.disks));
    }

    #[test]
    fn nothing_happens_in_an_outage_that_is_played_alone() {
        let bounds = Bounds { only: EventKind::named("Outage", true), outage_max: Duration::from_secs(60), ..AFAR };
        for plan in (0..20).map(|seed| RoundPlan::among_hosts(seed, &(3..=5), &bounds)) {
            for pair in plan.events.windows(2) {
                let EventKind::Outage(ms) = pair[0].what else { panic!("{}", pair[0].what) };
                assert!(ms <= 60_000 && pair[1].at - pair[0].at >= Duration::from_millis(ms));
            }
        }
    }

    #[test]
    fn plans_hold_everything_sooner_or_later() {
        let plans: Vec<RoundPlan> = (0..50).map(|seed| RoundPlan::new(seed, &(2..=5), &ON_ONE)).collect();
        let all: Vec<EventKind> = plans.iter().flat_map(|plan| plan.events.iter().map(|event| event.what)).collect();
        for (what, _) in ON_ONE_HOST {
            assert!(all.iter().any(|other| other.name() == what.name()), "{what}");
        }
        let stops = all.iter().filter_map(|what| if let EventKind::Stop(ms) = what { Some(*ms) } else { None });
        let (short, long): (Vec<u64>, Vec<u64>) = stops.partition(|ms| *ms < 300);
        assert!(short.len() > 10 && long.len() > 10);
        assert!(plans.iter().all(|plan| (2..=5).contains(&plan.founders)));
        assert!(plans.iter().all(|plan| plan.events.is_sorted_by_key(|event| event.at)));
    }
}
