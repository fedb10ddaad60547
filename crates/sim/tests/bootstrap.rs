//! Bootstrap between hosts: many seeds pass without a violation, and enough events occur in them.
use spindle_sim::bootstrap::{BootstrapScene, BootstrapSummary, campaign, play};

fn seeds() -> u64 {
    std::env::var("SPINDLE_BOOTSTRAP_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

#[test]
fn seeds_found_one_group_and_find_it() {
    let BootstrapSummary {
        seeds,
        bootstraps,
        joins,
        evictions,
        restarts,
        faults,
        united,
        lost,
        words,
        forgotten,
        failures,
        ..
    } = campaign(0..seeds(), |summary| summary.failures.len() < 5);
    println!(
        "{seeds} seeds: {bootstraps} bootstraps, {joins} joins, {evictions} evictions, {restarts} restarts, {faults} faults, {united} united, \
         {lost} lost, {words} created anew, {forgotten} forgotten"
    );
    for (seed, violation) in &failures {
        println!("{violation}\nreplay: {}", spindle_sim::bootstrap::replay_line(*seed));
    }
    assert_eq!(failures, []);
    assert_eq!(united, seeds, "without a violation all are in one group at the end");
    assert!(lost < seeds / 4 && words == lost, "{lost} groups were lost, {words} were created anew");
    assert!(forgotten < seeds / 10, "{forgotten} times there were two groups, which is not promised otherwise");
    assert!(bootstraps > seeds / 2 && joins > seeds / 2 && evictions > seeds / 4 && restarts > seeds);
}

#[test]
fn a_seed_means_the_same_run_every_time() {
    for seed in 0..20 {
        assert_eq!(play(&BootstrapScene::from_seed(seed)), play(&BootstrapScene::from_seed(seed)));
    }
}
