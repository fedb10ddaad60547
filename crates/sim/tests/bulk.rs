//! The block multicast in the model of a network: random scenes with faults, and the figures of large groups.
use spindle_sim::bulk::{Scene, campaign, explain, play, replay_line};

/// 6,000 seeds in release builds; fewer where they are slow.
const SEEDS: u64 = if cfg!(debug_assertions) { 300 } else { 6_000 };

#[test]
fn no_seed_breaks_an_invariant() {
    let summary = campaign(0..SEEDS, |_| true);
    for (seed, violation) in &summary.failures {
        println!("{violation}\nreplay: {}", replay_line(*seed));
    }
    assert_eq!(summary.failures, []);
    println!("{summary:?}");
    assert!(summary.objects >= 2 * SEEDS && summary.blocks >= 100 * SEEDS, "{summary:?}");
    assert!(summary.completions >= 5 * SEEDS && summary.deaths >= SEEDS / 4, "{summary:?}");
    assert!(summary.failures_told >= SEEDS && summary.faults >= SEEDS, "{summary:?}");
}

#[test]
fn a_seed_plays_the_same_way_told_or_not() {
    for seed in 0..40 {
        let scene = Scene::from_seed(seed);
        assert_eq!(scene, Scene::from_seed(seed));
        let (outcome, story) = explain(&scene);
        assert_eq!(outcome, play(&scene));
        assert!(story.starts_with(&format!("seed {seed}: ")), "{story}");
    }
}
