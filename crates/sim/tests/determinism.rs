//! INV-17, determinism: a seed is the same run every time, and in every build.
use spindle_sim::checkers::determinism::same;
use spindle_sim::{Options, Plan, explain, run};

#[test]
fn a_seed_runs_twice_the_same_way_traced_or_not() {
    for seed in 0..60 {
        let plan = Plan::from_seed(seed, &Options::default());
        assert_eq!(plan, Plan::from_seed(seed, &Options::default()));
        let outcome = run(&plan);
        same(seed, outcome.trace_hash, run(&plan).trace_hash).unwrap();
        assert_eq!(outcome, explain(&plan).0);
    }
}

/// Debug and release builds, and every machine, must come to these. Whoever changes the core's or the simulator's
/// behaviour changes them too, and pins the new ones.
#[test]
fn pinned_seeds_keep_their_hashes() {
    let hashes: Vec<u64> = (0..6).map(|seed| run(&Plan::from_seed(seed, &Options::default())).trace_hash).collect();
    assert_eq!(hashes, PINNED, "{hashes:#018x?}");
}

const PINNED: [u64; 6] = [
    0xe7fe_96c8_60e5_d6f6,
    0xd9e0_f2e8_b03b_dd1c,
    0x20ab_fd75_c4a3_e06c,
    0xe4a7_41be_e583_7988,
    0x5990_8019_a96a_2f75,
    0x8b5f_0348_a912_a40e,
];
