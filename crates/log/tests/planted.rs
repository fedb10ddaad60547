//! Each planted bug is found by a seed.
mod model;
use spindle_log::planted::{Bug, activate};

/// The seeds that are tried for each bug.
const SEEDS: u64 = 3000;

#[test]
fn every_planted_bug_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let mut found = Vec::new();
    for bug in Bug::ALL {
        activate(Some(*bug));
        let seed = (0..SEEDS).find(|seed| {
            let run: fn(u64) = if *bug == Bug::EveryTailCut { rot } else { model::run };
            std::panic::catch_unwind(|| run(*seed)).is_err()
        });
        activate(None);
        found.push((bug, seed));
    }
    std::panic::set_hook(hook);
    println!("{found:?}");
    let missed: Vec<_> = found.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}

/// A run in which synced data is damaged.
fn rot(seed: u64) {
    let mut model = model::Model::new(seed);
    model.open().expect("no faults");
    (0..20).for_each(|_| model.step().expect("no faults"));
    model.store = None;
    model.disk.crash();
    model.is_rotten = true;
    model.disk.rot("segment-");
    model.open().unwrap_or_else(|error| panic!("{error}"));
}
