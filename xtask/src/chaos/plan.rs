//! What is done to a group in one round, and when: drawn from a seed before the round begins, so that the same seed does the
//! same. Whom it hits is drawn too, among those who live by then.
use super::record::mix;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// One thing that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// kill -9 of anybody.
    Kill,
    /// Of the lowest rank: who leads the change that follows.
    KillLeader,
    /// Of the newest process, which may still be joining.
    KillNewest,
    /// Of two at once.
    KillTwo,
    /// SIGSTOP, and SIGCONT after so many ms.
    Stop(u64),
    StopLeader(u64),
    /// More than half of them.
    StopMost(u64),
    StopAll(u64),
    Join,
    JoinThree,
    Leave,
    LeaveLeader,
    /// All are killed, and as many found the group anew.
    KillAll,
    /// Everybody on one host.
    KillHost,
    /// The link of one host is down for so many ms.
    Cut(u64),
    /// The link of the host where the lowest rank is.
    CutLeader(u64),
    /// Nothing that one host sends reaches any other for so many ms, though it hears all.
    Dumb(u64),
    /// Nothing reaches one host, though all hear it.
    Deaf(u64),
    /// One host does not hear another one.
    OneWay(u64),
    /// Two hosts don't hear each other, and everybody else hears both.
    Pair(u64),
    /// A minority of the hosts, which hear each other, and the rest don't hear each other.
    Part(u64),
    /// A link is up and down by turns of so many ms.
    Flap(u64),
    /// What one host sends comes late.
    Slow(u64),
    /// No host hears any other, for longer than they may be silent; then all are killed and found the group anew.
    Shatter,
}

/// An entry of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) what: What,
    /// Chance for whom it hits.
    pub(super) pick: u64,
}

/// A round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// How many found the group.
    pub(super) founders: u32,
    /// On how many hosts they are; 0: on this one.
    pub(super) hosts: u32,
    /// Whether all is delivered on the polling threads, and who joins learns the application's state; otherwise threads receive.
    pub(super) states: bool,
    pub(super) events: Vec<Event>,
}

/// Numbers that look like chance.
pub(super) struct Dice(u64);

/// How long a storm is, in ms.
const STORM_MS: RangeInclusive<u64> = 6_000..=12_000;
/// An event that comes so soon after another, in ms, hits the change that the other has caused.
const SOON_MS: u64 = 25;
const PAUSE_MS: RangeInclusive<u64> = 150..=1_100;

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(mix(seed ^ 0x5eed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }
}

impl What {
    /// A time around the silence that is suspected, or far from it on either side.
    fn silence(dice: &mut Dice, suspect_after: Duration) -> u64 {
        let limit = suspect_after.as_millis() as u64;
        match dice.next() % 3 {
            0 => dice.within(1..=limit / 2),
            1 => dice.within(limit / 2..=limit * 3 / 2),
            _ => dice.within(limit * 3 / 2..=limit * 4),
        }
    }

    fn draw_among_hosts(dice: &mut Dice, suspect_after: Duration) -> What {
        let silence = What::silence(dice, suspect_after);
        match dice.next() % 32 {
            0..3 => What::Kill,
            3 => What::KillLeader,
            4 => What::KillNewest,
            5 => What::KillHost,
            6..8 => What::Stop(silence),
            8 => What::StopLeader(silence),
            9..12 => What::Join,
            12 => What::Leave,
            13 => What::LeaveLeader,
            14..17 => What::Cut(silence),
            17..19 => What::CutLeader(silence),
            19..21 => What::Dumb(silence),
            21..23 => What::Deaf(silence),
            23 => What::OneWay(silence),
            24 => What::Pair(silence),
            25..27 => What::Part(silence),
            27..29 => What::Flap(dice.within(10..=silence.max(11))),
            29..31 => What::Slow(silence),
            _ => What::Shatter,
        }
    }

    fn draw(dice: &mut Dice, suspect_after: Duration) -> What {
        let stop = What::silence(dice, suspect_after);
        match dice.next() % 32 {
            0..5 => What::Kill,
            5..8 => What::KillLeader,
            8..10 => What::KillNewest,
            10 => What::KillTwo,
            11..15 => What::Stop(stop),
            15..17 => What::StopLeader(stop),
            17..19 => What::StopMost(stop),
            19 => What::StopAll(stop),
            20..25 => What::Join,
            25 => What::JoinThree,
            26..29 => What::Leave,
            29..31 => What::LeaveLeader,
            _ => What::KillAll,
        }
    }
}

impl Plan {
    /// A plan for a group on this host.
    pub(super) fn new(seed: u64, members: &RangeInclusive<u32>, suspect_after: Duration) -> Plan {
        let mut dice = Dice::new(seed);
        let founders = dice.within(u64::from(*members.start())..=u64::from(*members.end())) as u32;
        let events = Plan::events(&mut dice, |dice| What::draw(dice, suspect_after));
        let states = dice.next().is_multiple_of(2);
        Plan { seed, founders, hosts: 0, states, events }
    }

    /// A plan for a group with one or two members on each of some hosts.
    pub(super) fn among_hosts(seed: u64, hosts: &RangeInclusive<u32>, suspect_after: Duration) -> Plan {
        let mut dice = Dice::new(seed);
        let hosts = dice.within(u64::from(*hosts.start())..=u64::from(*hosts.end()));
        let founders = hosts + dice.within(0..=hosts / 2);
        let events = Plan::events(&mut dice, |dice| What::draw_among_hosts(dice, suspect_after));
        Plan { seed, founders: founders as u32, hosts: hosts as u32, states: false, events }
    }

    fn events(dice: &mut Dice, draw: impl Fn(&mut Dice) -> What) -> Vec<Event> {
        let end_ms = dice.within(STORM_MS);
        let mut at_ms = dice.within(PAUSE_MS);
        let mut events = Vec::new();
        while at_ms < end_ms {
            let (what, pick) = (draw(dice), dice.next());
            events.push(Event { at: Duration::from_millis(at_ms), what, pick });
            at_ms += if dice.next().is_multiple_of(3) { dice.within(0..=SOON_MS) } else { dice.within(PAUSE_MS) };
        }
        events
    }

    /// Whether another event stands within `pause` of the `i`-th.
    pub(super) fn is_alone(&self, i: usize, pause: Duration) -> bool {
        let at = self.events[i].at;
        let near = |event: &Event| event.at.abs_diff(at) < pause;
        self.events.iter().enumerate().all(|(j, event)| i == j || !near(event))
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_one_plan_and_another_another() {
        let plan = |seed| Plan::new(seed, &(3..=5), Duration::from_millis(300));
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn plans_among_hosts_hold_everything_that_happens_to_networks() {
        let plan = |seed| Plan::among_hosts(seed, &(3..=5), Duration::from_millis(800));
        assert_eq!(plan(1), plan(1));
        let plans: Vec<Plan> = (0..100).map(plan).collect();
        let all: Vec<What> = plans.iter().flat_map(|plan| plan.events.iter().map(|event| event.what)).collect();
        let has = |is: fn(&What) -> bool| assert!(all.iter().any(is));
        has(|what| matches!(what, What::Cut(ms) if *ms < 400));
        has(|what| matches!(what, What::Cut(ms) if *ms > 1600));
        has(|what| matches!(what, What::Deaf(_)));
        has(|what| matches!(what, What::Part(_)));
        has(|what| matches!(what, What::Flap(_)));
        has(|what| matches!(what, What::Shatter));
        assert!(plans.iter().all(|plan| (3..=5).contains(&plan.hosts) && plan.founders >= plan.hosts));
    }

    #[test]
    fn plans_hold_everything_sooner_or_later() {
        let plans: Vec<Plan> = (0..50).map(|seed| Plan::new(seed, &(2..=5), Duration::from_millis(300))).collect();
        let all: Vec<What> = plans.iter().flat_map(|plan| plan.events.iter().map(|event| event.what)).collect();
        for what in [What::Kill, What::KillLeader, What::KillNewest, What::KillTwo, What::Join, What::KillAll] {
            assert!(all.contains(&what), "{what}");
        }
        let stops = all.iter().filter_map(|what| if let What::Stop(ms) = what { Some(*ms) } else { None });
        let (short, long): (Vec<u64>, Vec<u64>) = stops.partition(|ms| *ms < 300);
        assert!(short.len() > 10 && long.len() > 10);
        assert!(plans.iter().all(|plan| (2..=5).contains(&plan.founders)));
        assert!(plans.iter().all(|plan| plan.events.is_sorted_by_key(|event| event.at)));
    }
}
