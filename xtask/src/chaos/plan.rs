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
    fn draw(dice: &mut Dice, suspect_after: Duration) -> What {
        let limit = suspect_after.as_millis() as u64;
        // Around the silence that is suspected, and far from it on both sides.
        let stop = match dice.next() % 3 {
            0 => dice.within(1..=limit / 2),
            1 => dice.within(limit / 2..=limit * 3 / 2),
            _ => dice.within(limit * 3 / 2..=limit * 4),
        };
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
    pub(super) fn new(seed: u64, members: &RangeInclusive<u32>, suspect_after: Duration) -> Plan {
        let mut dice = Dice::new(seed);
        let founders = dice.within(u64::from(*members.start())..=u64::from(*members.end())) as u32;
        let end_ms = dice.within(STORM_MS);
        let mut at_ms = dice.within(PAUSE_MS);
        let mut events = Vec::new();
        while at_ms < end_ms {
            let (what, pick) = (What::draw(&mut dice, suspect_after), dice.next());
            events.push(Event { at: Duration::from_millis(at_ms), what, pick });
            at_ms += if dice.next().is_multiple_of(3) { dice.within(0..=SOON_MS) } else { dice.within(PAUSE_MS) };
        }
        let states = dice.next().is_multiple_of(2);
        Plan { seed, founders, states, events }
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
