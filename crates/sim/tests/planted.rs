//! Every planted bug is found: `RUSTFLAGS='--cfg planted' cargo test --release -p spindle-sim --test planted`.
#![cfg(planted)]
use spindle_core::planted::Bug;
use spindle_sim::planted::hunt;
use spindle_sim::{Options, campaign};

const MEDIAN_MAX: u64 = 200;
const WORST_MAX: u64 = 2_000;

#[test]
fn every_planted_bug_is_found() {
    let clean = campaign(0..200, 2, &Options::default(), |_| true);
    assert_eq!(clean.failures, [], "no bug is active");
    let mut seeds = vec![];
    let mut missed = vec![];
    // Those of the agreement on views take longer than CI has: `cargo test` with `--ignored`.
    for &bug in Bug::ALL.iter().filter(|bug| (**bug as u32) < Bug::NoFence as u32) {
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
    println!("{} of {} found, median {median} seeds, worst {:?}", seeds.len(), Bug::NoFence as u32, seeds.last());
    assert_eq!(missed, [], "not found in {WORST_MAX} seeds");
    assert!(median <= MEDIAN_MAX, "median {median}");
}

/// Prints how many seeds each bug of the agreement on views takes; some take more than there are.
#[test]
#[ignore = "takes many minutes"]
fn bugs_of_the_agreement_are_hunted() {
    for &bug in Bug::ALL.iter().filter(|bug| **bug as u32 >= Bug::NoFence as u32) {
        match hunt(bug, WORST_MAX) {
            Some(found) => println!("{bug:?}: seed {}, {}", found.seed, found.violation),
            None => println!("{bug:?}: not found in {WORST_MAX} seeds"),
        }
    }
}
