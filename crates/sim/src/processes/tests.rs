//! The scenes of some seeds, and drivers that break their duties.
use super::*;

/// The first seed below `most` at which a broken driver is noticed by the check of this name.
fn noticed(broken: Broken, name: &str, most: u64) -> Option<u64> {
    let is_noticed = |seed: &u64| {
        let outcome = tell(&Scene::from_seed(*seed), broken, None);
        outcome.violations.first().is_some_and(|violation| violation.name == name)
    };
    (0..most).find(is_noticed)
}

#[test]
fn some_seeds_break_nothing() {
    let summary = campaign(0..60, 2, |_| true);
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert!(summary.joins > 60 && summary.views > 60 && summary.kills > 20 && summary.united > 45, "{summary:?}");
}

#[test]
fn a_seed_means_the_same_run_for_ever() {
    let hashes: Vec<u64> = (0..3).map(|seed| play(&Scene::from_seed(seed)).trace_hash).collect();
    let again: Vec<u64> = (0..3).map(|seed| play(&Scene::from_seed(seed)).trace_hash).collect();
    assert_eq!(hashes, again);
    assert_eq!(hashes, PINNED);
}

const PINNED: [u64; 3] = [5684975569542497985, 16787896248602769129, 7561749008687891252];

#[test]
fn broken_drivers_are_noticed() {
    let cases = [
        (Broken::LockIgnored, "one incarnation"),
        (Broken::OrderSwapped, "total order"),
        (Broken::ViewForged, "view sequence"),
        (Broken::SentTwice, "no invention"),
        (Broken::RedialForgotten, "bounded"),
        (Broken::AsksAlways, "bounded"),
    ];
    for (broken, name) in cases {
        let found = noticed(broken, name, 60);
        println!("{broken:?}: {name}, by seed {found:?}");
        assert!(found.is_some(), "{broken:?} is not noticed");
    }
}
