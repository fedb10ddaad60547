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
    0x127f_4f9c_f8f6_c2af,
    0x8b8a_f588_ef02_cc5b,
    0x4d6d_f05b_c9a2_a8eb,
    0x3a08_0c73_5b57_abc8,
    0xc13e_9c8f_8c5b_b83e,
    0xb63d_8de7_672f_754f,
];
