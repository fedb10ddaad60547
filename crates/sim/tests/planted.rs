//! Every planted bug is found: `RUSTFLAGS='--cfg planted' cargo test --release -p spindle-sim --test planted`.
#![cfg(planted)]
use spindle_core::planted::Bug;
use spindle_sim::planted::{Broken, CONTROL, SHOWN, hunt, hunt_in_processes};
use spindle_sim::{Options, campaign};
use std::sync::{Mutex, MutexGuard, PoisonError};

const MEDIAN_MAX: u64 = 200;
const WORST_MAX: u64 = 2_000;
/// The same for bugs of the control plane.
const CONTROL_MEDIAN_MAX: u64 = 300;
const CONTROL_WORST_MAX: u64 = 4_000;

/// They need several things to happen in one order within a few microseconds, which chance hardly ever brings about. The search
/// through all orders finds them: `crates/core/tests/scope/planted.rs`.
const SEARCHED: [Bug; 12] = [
    Bug::DeadValuesUnread,
    Bug::DeadWithHigherPromiseCounts,
    Bug::UnreadDontBind,
    Bug::AcceptedReadFirst,
    Bug::OneSlot,
    Bug::EvictsWithoutQuorum,
    Bug::NeverAdopts,
    Bug::BallotBeforeProposal,
    Bug::GivenUpQuorum,
    Bug::OneGivesUp,
    Bug::GivenUpHeard,
    Bug::RecoveryNotAdopted,
];

/// There is one active bug in a process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_planted_bug_is_found() {
    let _alone = alone();
    let clean = campaign(0..200, 2, &Options::default(), |_| true);
    assert_eq!(clean.failures, [], "no bug is active");
    let is_hunted = |bug: &Bug| !SEARCHED.contains(bug) && !CONTROL.contains(bug);
    let hunted: Vec<Bug> = Bug::ALL.iter().copied().filter(is_hunted).collect();
    let mut seeds = vec![];
    let mut missed = vec![];
    for &bug in &hunted {
        match hunt(bug, WORST_MAX) {
            Some(found) => {
                println!("{bug:?}: seed {}, {}", found.seed, found.violation);
                seeds.push(found.seed + 1);
            }
            None => missed.push(bug),
        }
    }
    seeds.sort_unstable();
    let median = seeds[seeds.len() / 2];
    println!("{} of {} found, median {median} seeds, worst {:?}", seeds.len(), hunted.len(), seeds.last());
    assert_eq!(missed, [], "not found in {WORST_MAX} seeds");
    assert!(median <= MEDIAN_MAX, "median {median}");
}

/// Whole processes show what is wrong with the control plane, or with the driver that carries its orders out.
#[test]
fn bugs_of_the_control_plane_are_found() {
    let _alone = alone();
    let clean = spindle_sim::processes::campaign(0..200, 2, |_| true);
    assert_eq!(clean.failures, [], "no bug is active");
    let drivers = Broken::ALL.iter().map(|broken| (format!("{broken:?}"), None, *broken));
    let bugs = CONTROL.iter().chain(&SHOWN).map(|bug| (format!("{bug:?}"), Some(*bug), Broken::Not));
    let (mut seeds, mut missed) = (vec![], vec![]);
    for (name, bug, broken) in drivers.chain(bugs) {
        match hunt_in_processes(bug, broken, CONTROL_WORST_MAX) {
            Some(found) => {
                println!("{name}: seed {}, {}", found.seed, found.violation);
                seeds.push(found.seed + 1);
            }
            None => missed.push(name),
        }
    }
    seeds.sort_unstable();
    let median = seeds[seeds.len() / 2];
    let all = seeds.len() + missed.len();
    println!("{} of {all} found, median {median} seeds, all: {seeds:?}", seeds.len());
    assert!(missed.is_empty(), "not found in {CONTROL_WORST_MAX} seeds: {missed:?}");
    assert!(median <= CONTROL_MEDIAN_MAX, "median {median}");
}
