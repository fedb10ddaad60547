//! The lives of a group between two total restarts, drawn from a seed.
use super::super::plan::Dice;
use super::member::Pace;
use std::ops::RangeInclusive;
use std::time::Duration;

/// How the processes of a life are started: in which order, and the pause before each, in ms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Starts {
    pub(super) order: Vec<usize>,
    pub(super) pauses_ms: Vec<u64>,
    pub(super) paces: Vec<Pace>,
}

/// The event of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LifeEvent {
    /// Load, and nothing else, for so many ms.
    Run(u64),
    /// All are killed so many ms after the first start: between their starts, or in the restart.
    KillInStart(u64),
    /// One is killed, and all others so many ms later: in the view change.
    KillInViewChange { seat: usize, after_ms: u64 },
    /// One is killed, started again after `pause_ms`, and all are killed `after_ms` later: in the
    /// catch-up.
    KillInCatchUp { seat: usize, pause_ms: u64, after_ms: u64 },
    /// One is killed and started again, and has to come back.
    Restart { seat: usize, pause_ms: u64 },
    /// One is killed, and started again with an old copy of its directory.
    RestartOld { seat: usize },
    /// One is stopped. Another process with its directory has to be refused.
    Stop { seat: usize, ms: u64 },
    /// One is stopped, and all others are killed and started again.
    StopAndKill { seat: usize, ms: u64 },
    /// The small disk is full but for so many bytes. It gets space after a while, or all are killed
    /// before.
    Full { spare: u64, ms: u64, kill: bool },
}

/// An event while all processes are down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DownEvent {
    Nothing,
    /// The directory of a seat is lost.
    Wipe(usize),
    /// A copy of the directory of a seat is kept.
    Copy(usize),
    /// An old copy is put in place of the directory of a seat.
    Old(usize),
    /// This seat starts only when the others have named it.
    Missing(usize),
}

/// A life of the group, and what happens after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Life {
    pub(super) starts: Starts,
    pub(super) event: LifeEvent,
    /// How long the group works before the event, in ms.
    pub(super) before_ms: u64,
    pub(super) down: DownEvent,
}

/// A round: all lives end with a total kill, but the last one, which finishes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DisksPlan {
    pub(super) seed: u64,
    pub(super) seats: usize,
    /// The number of hosts, if there are several. The seats take turns on them.
    pub(super) hosts: Option<usize>,
    /// The seat with a small disk.
    pub(super) small: usize,
    pub(super) lives: Vec<Life>,
    pub(super) last: Starts,
}

/// Total restarts of a round.
const LIVES: RangeInclusive<u64> = 7..=10;
const BURSTS: [u32; 4] = [0, 300, 2000, 8000];
const PAUSES_US: [u64; 4] = [1_000, 3_000, 10_000, 50_000];

impl DisksPlan {
    pub(super) fn new(seed: u64, members: &RangeInclusive<u32>, hosts: Option<&RangeInclusive<u32>>) -> DisksPlan {
        let mut dice = Dice::new(seed);
        let seats = dice.within(u64::from(*members.start())..=u64::from(*members.end())) as usize;
        let small = dice.below(seats as u64) as usize;
        let count = dice.within(LIVES);
        let lives = (0..count).map(|_| Life::draw(&mut dice, seats)).collect();
        let last = Starts::draw(&mut dice, seats);
        // Drawn last: on one host a seed means the same as on several.
        let hosts = hosts.map(|hosts| dice.within(u64::from(*hosts.start())..=u64::from(*hosts.end())) as usize);
        DisksPlan { seed, seats, hosts, small, lives, last }
    }
}

impl Starts {
    fn draw(dice: &mut Dice, seats: usize) -> Starts {
        let mut order: Vec<usize> = (0..seats).collect();
        for i in (1..seats).rev() {
            order.swap(i, dice.below(i as u64 + 1) as usize);
        }
        // A third of the groups starts at once.
        let most = [0, 80, 600][dice.below(3) as usize];
        let pauses_ms = (0..seats).map(|_| dice.within(0..=most)).collect();
        let pace = |dice: &mut Dice| Pace {
            burst: BURSTS[dice.below(4) as usize],
            pause: Duration::from_micros(PAUSES_US[dice.below(4) as usize]),
        };
        let paces = (0..seats).map(|_| pace(dice)).collect();
        Starts { order, pauses_ms, paces }
    }
}

impl Life {
    fn draw(dice: &mut Dice, seats: usize) -> Life {
        let starts = Starts::draw(dice, seats);
        let seat = dice.below(seats as u64) as usize;
        let span: u64 = starts.pauses_ms.iter().sum();
        let event = match dice.below(20) {
            0..4 => LifeEvent::Run(dice.within(50..=1_500)),
            4..8 => LifeEvent::KillInStart(dice.within(0..=span + 900)),
            8..10 => LifeEvent::KillInViewChange { seat, after_ms: dice.within(0..=40) },
            10..13 => LifeEvent::KillInCatchUp { seat, pause_ms: dice.within(0..=500), after_ms: dice.within(0..=500) },
            13 => LifeEvent::Restart { seat, pause_ms: dice.within(0..=800) },
            14 => LifeEvent::RestartOld { seat },
            15 => LifeEvent::Stop { seat, ms: [300, 3_500][dice.below(2) as usize] },
            16 => LifeEvent::StopAndKill { seat, ms: dice.within(200..=3_000) },
            _ => LifeEvent::Full {
                spare: dice.within(0..=60) << 20,
                ms: dice.within(200..=2_500),
                kill: dice.below(2) == 0,
            },
        };
        let down = match (dice.below(10), dice.below(seats as u64) as usize) {
            (0, seat) => DownEvent::Wipe(seat),
            (1..3, seat) => DownEvent::Copy(seat),
            (3..5, seat) => DownEvent::Old(seat),
            (5..7, seat) => DownEvent::Missing(seat),
            _ => DownEvent::Nothing,
        };
        Life { starts, event, before_ms: dice.within(0..=800), down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_has_one_plan_and_all_events_come_up() {
        assert_eq!(DisksPlan::new(7, &(3..=5), None), DisksPlan::new(7, &(3..=5), None));
        let (mut events, mut downs) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..100 {
            let plan = DisksPlan::new(seed, &(3..=5), Some(&(3..=4)));
            assert!((3..=5).contains(&plan.seats) && plan.small < plan.seats && plan.lives.len() >= 7);
            assert!(plan.hosts.is_some_and(|hosts| (3..=4).contains(&hosts)));
            for life in plan.lives {
                let mut order = life.starts.order.clone();
                order.sort_unstable();
                assert_eq!(order, (0..plan.seats).collect::<Vec<_>>());
                let name = |shown: String| shown.split([' ', '(']).next().unwrap().to_owned();
                events.insert(name(format!("{:?}", life.event)));
                downs.insert(name(format!("{:?}", life.down)));
            }
        }
        assert_eq!((events.len(), downs.len()), (9, 5), "{events:?}, {downs:?}");
    }
}
