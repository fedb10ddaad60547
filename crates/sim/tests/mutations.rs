//! Every mutation is found:
//! `RUSTFLAGS='--cfg mutation' cargo test --release -p spindle-sim --test mutations`.
//!
//! `mutations.seeds` contains the first seed that shows each mutation. The test plays that seed
//! first. If the seed shows the mutation, no earlier seed has to be played: the first one that
//! shows it is no later. If not, the test plays the seeds from 0. `cargo xtask mutations --bless`
//! plays them all, and writes the file.
#![cfg(mutation)]
use spindle_core::mutation::Mutation;
use spindle_sim::mutation::{
    Broken, CONTROL, FoundMutation, RESTART, RestartBroken, SHOWN, hunt, hunt_in_processes, hunt_in_restarts,
};
use spindle_sim::{Options, campaign};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Mutations that show only if several events occur in one order within a few microseconds. Random
/// seeds hardly ever produce that order. The search through all orders finds these mutations:
/// `crates/core/tests/scope/mutation.rs`.
const SEARCHED: [Mutation; 12] = [
    Mutation::DeadValuesUnread,
    Mutation::DeadWithHigherPromiseCounts,
    Mutation::UnreadDontBind,
    Mutation::AcceptedReadFirst,
    Mutation::OneSlot,
    Mutation::EvictsWithoutQuorum,
    Mutation::NeverAdopts,
    Mutation::BallotBeforeProposal,
    Mutation::GivenUpQuorum,
    Mutation::OneGivesUp,
    Mutation::GivenUpHeard,
    Mutation::RecoveryNotAdopted,
];

/// Mutations that no seed shows: either too few seeds of whole processes do, or none does because
/// processes of the simulator do not hang for ever. Tests in `crates/core/src/control/install.rs`,
/// `crates/core/src/control/clock_refusals.rs`,
/// `crates/core/src/control/founder.rs`, `crates/core/src/control/book.rs`,
/// `crates/core/src/control/seek.rs`, `crates/core/src/control/member/tests.rs`,
/// `crates/core/src/control/roster/places.rs`, `crates/core/tests/engine.rs`,
/// `crates/core/tests/moves.rs`, `crates/core/src/control/catch_up/tests.rs`,
/// `crates/core/src/control/restart/tests.rs` and
/// `crates/sim/src/processes/tests.rs` find them.
const TESTED: [Mutation; 27] = [
    Mutation::OneClockCounts,
    Mutation::GoneFound,
    Mutation::ConflictsBelieved,
    Mutation::RestartCutsBack,
    Mutation::RestartCutUnreported,
    Mutation::GivenKeyAdopted,
    Mutation::WaitersAdopted,
    Mutation::FarJoinersVote,
    Mutation::BeginsHastily,
    Mutation::FirstViewNeverOver,
    Mutation::GivenUpUntold,
    Mutation::ReceiptUnawaited,
    Mutation::DeliveryUnawaited,
    Mutation::GateUnawaited,
    Mutation::FollowerUnawaited,
    Mutation::PaceKept,
    Mutation::LeaderUnwoken,
    Mutation::OlderUnclosed,
    Mutation::LeavesUnheard,
    Mutation::OlderUnawaited,
    Mutation::FollowersLetInLate,
    Mutation::PlacesGuessed,
    Mutation::CutCounted,
    Mutation::SleepScanForgotten,
    Mutation::LogUnawaited,
    Mutation::RestartForgets,
    Mutation::RestartDecidesAlone,
];

/// Fewer than one seed of 10,000 of whole processes shows these. For the first, the group has to continue without a
/// process between the process's admission and its first view. For the second, a log has to begin behind a gap, which it
/// hardly does since a group continues only with a complete log. The test
/// `a_gap_counts_up_to_the_end_of_the_log` of the core shows that one.
const RARE: [Broken; 2] = [Broken::InstallsUnread, Broken::GapsServed];

/// The number of seeds that may be needed for a mutation of a layer.
struct Limits {
    median_max: u64,
    worst_max: u64,
}

const CORE: Limits = Limits { median_max: 200, worst_max: 2_000 };
const PROCESSES: Limits = Limits { median_max: 300, worst_max: 10_000 };

/// A mutation, or a broken duty of a driver.
struct Hunt {
    name: String,
    bug: Option<Mutation>,
    broken: Broken,
    place: HuntPlace,
}

/// The simulator that searches.
#[derive(Clone, Copy)]
enum HuntPlace {
    Layer,
    Processes,
    Restarts(RestartBroken),
}

impl Hunt {
    fn over(&self, seeds: Range<u64>) -> Option<FoundMutation> {
        match (self.place, self.bug) {
            (HuntPlace::Restarts(broken), bug) => hunt_in_restarts(bug, broken, seeds),
            (HuntPlace::Layer, Some(bug)) => hunt(bug, seeds),
            (_, bug) => hunt_in_processes(bug, self.broken, seeds),
        }
    }
}

/// Returns the mutations of the core that seeds of one layer show.
fn of_the_core() -> Vec<Hunt> {
    let is_hunted =
        |bug: &&Mutation| ![&SEARCHED[..], &TESTED, &CONTROL, &RESTART].iter().any(|others| others.contains(bug));
    let hunted = Mutation::ALL.iter().filter(is_hunted);
    let hunt = |bug: &Mutation| Hunt {
        name: format!("{bug:?}"),
        bug: Some(*bug),
        broken: Broken::Not,
        place: HuntPlace::Layer,
    };
    hunted.map(hunt).collect()
}

/// Returns the mutations of the control plane and of drivers, which whole processes show.
fn of_processes() -> Vec<Hunt> {
    let drivers = Broken::ALL.iter().filter(|broken| !RARE.contains(broken));
    let drivers = drivers.map(|broken| (format!("driver.{broken:?}"), None, *broken));
    let hunted = CONTROL.iter().chain(&SHOWN).filter(|bug| !TESTED.contains(bug));
    let bugs = hunted.map(|bug| (format!("processes.{bug:?}"), Some(*bug), Broken::Not));
    let place = HuntPlace::Processes;
    drivers.chain(bugs).map(|(name, bug, broken)| Hunt { name, bug, broken, place }).collect()
}

/// Returns the mutations of restarts, and of their drivers.
fn of_restarts() -> Vec<Hunt> {
    let hunt = |name, bug, broken| Hunt { name, bug, broken: Broken::Not, place: HuntPlace::Restarts(broken) };
    let hunted = RESTART.iter().filter(|bug| !TESTED.contains(bug));
    let bugs = hunted.map(|bug| hunt(format!("restart.{bug:?}"), Some(*bug), RestartBroken::Not));
    let drivers = RestartBroken::ALL.iter().map(|broken| hunt(format!("restart.{broken:?}"), None, *broken));
    bugs.chain(drivers).collect()
}

/// Serialises the tests, because a process has one active mutation.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the recorded first seed of each mutation.
fn first_seeds() -> BTreeMap<&'static str, u64> {
    let lines = include_str!("mutations.seeds").lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &'static str| {
        let (name, seed) = line.split_once(' ').expect("a name and a seed");
        (name, seed.parse().expect("a seed"))
    };
    lines.map(entry).collect()
}

fn find_all(hunts: &[Hunt], limits: &Limits) {
    let first = first_seeds();
    let (mut seeds, mut missed) = (vec![], vec![]);
    for hunt in hunts {
        let known = first.get(&*hunt.name).filter(|seed| **seed < limits.worst_max);
        let shown = known.and_then(|seed| hunt.over(*seed..seed + 1));
        if shown.is_none() {
            println!("{}: mutations.seeds has no seed that shows it (`cargo xtask mutations --bless`)", hunt.name);
        }
        match shown.or_else(|| hunt.over(0..limits.worst_max)) {
            Some(FoundMutation { seed, violation }) => {
                println!("{}: seed {seed}, {violation}", hunt.name);
                seeds.push(seed + 1);
            }
            None => missed.push(&hunt.name),
        }
    }
    seeds.sort_unstable();
    let median = seeds[seeds.len() / 2];
    println!("{} of {} found, median {median} seeds, worst {:?}", seeds.len(), hunts.len(), seeds.last());
    assert!(missed.is_empty(), "not found in {} seeds: {missed:?}", limits.worst_max);
    assert!(median <= limits.median_max, "median {median}");
}

#[test]
fn every_mutation_bug_is_found() {
    let _alone = alone();
    let clean = campaign(0..200, 2, &Options::default(), |_| true);
    assert_eq!(clean.failures, [], "no bug is active");
    find_all(&of_the_core(), &CORE);
}

/// Whole processes show mutations of the control plane, and of the driver that carries its orders
/// out.
#[test]
fn bugs_of_the_control_plane_are_found() {
    let _alone = alone();
    let clean = spindle_sim::processes::campaign(0..200, 2, |_| true);
    assert_eq!(clean.failures, [], "no bug is active");
    find_all(&of_processes(), &PROCESSES);
}

/// Total restarts show mutations of their state machine, and of its driver.
#[test]
fn bugs_of_restarts_are_found() {
    let _alone = alone();
    let clean = spindle_sim::restart::campaign(0..200, |_| true);
    assert_eq!(clean.failures, [], "no bug is active");
    find_all(&of_restarts(), &PROCESSES);
}

#[test]
#[ignore = "plays all seeds from 0 and writes mutations.seeds: cargo xtask mutations --bless"]
fn bless() {
    let _alone = alone();
    let mut text =
        String::from("# The first seed that shows each mutation. Written by `cargo xtask mutations --bless`.\n");
    for (hunts, limits) in [(of_the_core(), CORE), (of_processes(), PROCESSES), (of_restarts(), PROCESSES)] {
        for hunt in hunts {
            let began = std::time::Instant::now();
            let found = hunt.over(0..limits.worst_max);
            println!(
                "{}: {:?} in {:.1} s",
                hunt.name,
                found.as_ref().map(|found| found.seed),
                began.elapsed().as_secs_f64()
            );
            if let Some(found) = found {
                writeln!(text, "{} {}", hunt.name, found.seed).expect("a string takes it");
            }
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mutations.seeds");
    std::fs::write(path, text).expect("the file can be written");
}
