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
    0xbcf7_55ac_0082_4b01,
    0xb64d_88ea_9f51_582b,
    0x789a_4c8b_4100_b735,
    0x1db0_6818_b470_b1b3,
    0xafa0_bc3e_6fca_4650,
    0xc790_9f04_2e8e_298e,
];
