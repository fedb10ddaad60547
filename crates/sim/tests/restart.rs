//! Total restarts: many seeds pass without a violation, and enough events occur in them.
use spindle_sim::restart::{RestartScene, RestartSummary, campaign, explain, play};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn groups_restart_with_what_is_durable() {
    let from = number("SPINDLE_RESTART_FROM", 0);
    let RestartSummary { seeds, counts, united, failures, .. } =
        campaign(from..from + number("SPINDLE_RESTART_SEEDS", 1_500), |summary| summary.failures.len() < 5);
    println!("{seeds} seeds, {united} united: {:?}", counts.rows());
    for (seed, violation) in &failures {
        println!("{seed}: {violation}\nreplay: {}", spindle_sim::restart::replay_line(*seed));
    }
    assert_eq!(failures, []);
    assert_eq!(united, seeds, "without a violation all are in one view at the end");
    assert!(
        counts.restarts > seeds && counts.view_changes > seeds && counts.joins > seeds && counts.durable > 20 * seeds
    );
}

#[test]
fn a_seed_means_the_same_run_every_time() {
    for seed in 0..20 {
        assert_eq!(play(&RestartScene::from_seed(seed)), play(&RestartScene::from_seed(seed)));
    }
}

#[test]
#[ignore = "prints the history of the seed SPINDLE_RESTART_FROM"]
fn history() {
    println!("{}", explain(&RestartScene::from_seed(number("SPINDLE_RESTART_FROM", 0))).1);
}
