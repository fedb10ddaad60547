//! Each mutation is found by a seed.
mod model;
use spindle_log::mutation::{Mutation, activate};

/// The seeds that are tried for each mutation.
const SEEDS: u64 = 3000;

#[test]
fn every_mutation_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let mut found = Vec::new();
    for mutation in Mutation::ALL {
        activate(Some(*mutation));
        let seed = (0..SEEDS).find(|seed| {
            let run: fn(u64) = if *mutation == Mutation::EveryTailCut { rot } else { model::run };
            std::panic::catch_unwind(|| run(*seed)).is_err()
        });
        activate(None);
        found.push((mutation, seed));
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
