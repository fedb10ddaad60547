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
    0x5769_1963_ebae_6aaf,
    0xd4df_2d1e_b2aa_5ec4,
    0xfbd4_58fa_ce77_8e8a,
    0x5c45_6551_26ab_f4d3,
    0x2680_a129_84c8_0093,
    0xbce4_3670_06b2_44bd,
];
