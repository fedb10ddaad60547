//! The campaign of CI: seeds pass without a violation, and enough events occur in them.
use spindle_sim::{Faults, Options, Plan, Setting, Visibility, campaign, explain, replay_line, run};

/// 2,000 seeds in release builds; fewer where they are slow.
const SEEDS: u64 = if cfg!(debug_assertions) { 200 } else { 2_000 };

fn clean(seeds: std::ops::Range<u64>, options: &Options) -> spindle_sim::Summary {
    let summary = campaign(seeds, 2, options, |_| true);
    for (seed, violation) in &summary.failures {
        println!("{violation}\nreplay: {}", replay_line(*seed, options.setting));
    }
    assert!(summary.failures.is_empty());
    println!("{} seeds, {} deliveries, {} faults", summary.seeds, summary.counts.deliveries, summary.counts.faults);
    summary
}

#[test]
fn no_seed_breaks_an_invariant() {
    let summary = clean(0..SEEDS, &Options::default());
    assert_eq!(summary.seeds, SEEDS);
    assert!(summary.counts.deliveries >= 500 * SEEDS, "{summary:?}");
    assert!(summary.counts.faults >= 250 * SEEDS, "{summary:?}");
    assert!(summary.counts.nulls >= 100 * SEEDS, "{summary:?}");
}

#[test]
fn no_seed_breaks_an_invariant_while_members_come_and_go() {
    let options = Options { setting: Setting::Views, ..Options::default() };
    let seeds = SEEDS / 2;
    let summary = clean(100_100..100_100 + seeds, &options);
    println!(
        "{} views, {} evictions, {} messages sent again, {} logs cut",
        summary.counts.views, summary.counts.evictions, summary.counts.resent, summary.counts.log_cuts
    );
    assert!(summary.counts.views >= 2 * seeds && summary.counts.installs >= 5 * seeds, "{summary:?}");
    let each = [
        summary.counts.crashes,
        summary.counts.hangs,
        summary.counts.suspicions,
        summary.counts.cuts,
        summary.counts.joins,
        summary.counts.leaves,
    ];
    assert!(each.iter().all(|count| *count >= seeds / 4), "{summary:?}");
    // This is rare in few seeds: it occurs only if memory is shared and views follow each other.
    assert!(summary.counts.absences > 0, "{summary:?}");
    assert!(summary.counts.resent >= 10 * seeds && summary.counts.evictions >= seeds / 4, "{summary:?}");
}

#[test]
fn both_kinds_of_memory_hold_without_faults() {
    for visibility in [Visibility::Posted, Visibility::Shared] {
        let options = Options { visibility: Some(visibility), faults: Faults::NONE, ..Options::default() };
        clean(0..30, &options);
    }
}

#[test]
fn large_groups_hold() {
    let options = Options { members_min: 24, members_max: 64, deliveries: 500, ..Options::default() };
    clean(0..4, &options);
}

#[test]
fn every_fault_is_drawn_and_absent_often() {
    let mut drawn = std::collections::BTreeMap::new();
    for seed in 0..400 {
        for fault in Plan::from_seed(seed, &Options::default()).faults.names() {
            *drawn.entry(fault).or_insert(0) += 1;
        }
    }
    assert_eq!(drawn.len(), Faults::ALL.names().len());
    assert!(drawn.values().all(|count| (5..260).contains(count)), "{drawn:?}");
}

#[test]
fn a_trace_tells_the_plan_and_what_happened() {
    let plan = Plan::from_seed(1, &Options::default());
    let (outcome, text) = explain(&plan);
    assert!(outcome.violations.is_empty());
    for part in ["seed 1: ", "faults: ", "subgroup s0: ", "member m0: ", " claims ", " commits ", " delivers round "] {
        assert!(text.contains(part), "{part:?} is missing");
    }
    assert!(text.contains(" has finished"));
}

#[test]
fn a_restless_run_is_reported_and_a_campaign_can_be_stopped() {
    let options = Options { events_max: 100, ..Options::default() };
    let outcome = run(&Plan::from_seed(0, &options));
    assert_eq!(outcome.violations[0].number, 15);
    let (_, text) = explain(&Plan::from_seed(0, &options));
    assert!(text.ends_with("replay: spindle sim --seed 0\n"));
    // With `--views` a seed gives another run.
    let options = Options { setting: Setting::Views, ..options };
    let (_, text) = explain(&Plan::from_seed(0, &options));
    assert!(text.ends_with("replay: spindle sim --views --seed 0\n"));
    let summary = campaign(0..1_000, 2, &options, |summary| summary.failures.is_empty());
    assert!((1..10).contains(&summary.seeds) && !summary.failures.is_empty());
}
