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
    0x3147_8260_d0a5_98d5,
    0x0f25_4a22_8629_91b3,
    0xe626_32ca_44b7_fd35,
    0x4252_276a_a4d4_8551,
    0x48da_e1e6_2ec4_bbb2,
    0x0b32_71b7_7609_9473,
];
