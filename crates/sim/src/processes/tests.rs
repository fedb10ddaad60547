//! The scenes of some seeds, and drivers that break their duties.
use super::plan::{MS, S};
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

/// A process of a fourth host asks members of three, which can't reach it. It is started again whenever it has been left out.
fn changes_of_views(seconds: u64, unreachable: bool) -> u64 {
    let place = |host: u32| Place {
        host,
        start_ns: u64::from(host / 3) * 5 * S,
        is_seed: host < 3,
        is_durable: false,
        is_unreachable: unreachable && host == 3,
    };
    let scene = Scene {
        seed: 1,
        hosts: 4,
        is_afar: true,
        places: (0..4).map(place).collect(),
        members: 3,
        delays: vec![vec![MS; 4]; 4],
        jitter_ns: 0,
        loss_one_in: 0,
        suspect_after_ns: S,
        send_every_ns: 100 * MS,
        restart_ns: 100 * MS,
        faults: vec![],
        calm_ns: seconds * S,
    };
    let outcome = play(&scene);
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    outcome.views
}

#[test]
fn a_process_that_no_member_reaches_changes_views_ever_more_rarely() {
    let changes = [20, 40, 80, 160].map(|seconds| changes_of_views(seconds, true));
    let pairs = changes.iter().zip(&changes[1..]);
    assert!(pairs.clone().all(|(fewer, more)| fewer <= more && *more <= fewer + 4), "{changes:?}");
    // It is let in, and votes.
    assert_eq!(changes_of_views(20, false), 2);
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
