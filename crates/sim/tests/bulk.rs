//! The block multicast in the model of a network: random scenes with faults, and the figures of
//! large groups.
use spindle_core::Rank;
use spindle_core::rdmc::{Algorithm, Racks};
use spindle_sim::bulk::{
    BulkBench, BulkScene, GroupPlan, HostDeath, NetworkModel, Uplinks, campaign, explain, play, replay_line,
};
use std::collections::BTreeSet;

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
        let scene = BulkScene::from_seed(seed);
        assert_eq!(scene, BulkScene::from_seed(seed));
        let (outcome, story) = explain(&scene);
        assert_eq!(outcome, play(&scene));
        assert!(story.starts_with(&format!("seed {seed}: ")), "{story}");
    }
}

/// The hashes are the same in debug and release builds, and on every machine. A change of the
/// model's or the core's behaviour has to pin new ones.
#[test]
fn pinned_seeds_keep_their_hashes() {
    let hashes = [0, 1, 2, 3].map(|seed| play(&BulkScene::from_seed(seed)).trace_hash);
    assert_eq!(
        hashes,
        [0xa474_38e7_fe6e_1e87, 0xa0fc_be81_45f1_095c, 0x425a_31dd_5775_b43d, 0x61c4_9a9b_e1bb_8430],
        "{hashes:#018x?}"
    );
}

/// Eight members, one object of 12 blocks, and `death`.
fn eight(death: Option<HostDeath>) -> BulkScene {
    let group = GroupPlan {
        hosts: (0..8).collect(),
        algorithm: Algorithm::BinomialPipeline,
        block_bytes: 10_000,
        slots: 1,
        ahead: 2,
        posts_max: 1,
        direct_below: 0,
        objects: vec![(115_000, 0)],
        room_ns: 3_000,
    };
    BulkScene {
        seed: 1,
        network: NetworkModel::rdma(8),
        groups: vec![group],
        death,
        late_one_in: 0,
        events_max: 100_000,
    }
}

/// The root, a relay, or the last receiver dies after each event of the transfer. The network
/// informs one survivor, which informs the others.
#[test]
fn any_death_at_any_time_completes_or_fails_once_at_each_survivor() {
    let events = play(&eight(None)).events;
    let hosts: &[u32] = if cfg!(debug_assertions) { &[5] } else { &[0, 1, 5, 7] };
    let mut ends = BTreeSet::new();
    for host in hosts.iter().copied() {
        for event in 0..events {
            let noticed = vec![((host + 3) % 8, 2_000)];
            let outcome = play(&eight(Some(HostDeath { host, event, noticed })));
            assert_eq!(outcome.violations, [], "h{host} dies at event {event}");
            assert_eq!(outcome.deaths, 1);
            ends.insert((outcome.completions.min(7), outcome.failures_told));
        }
    }
    println!("{events} events; (completed, failed) {ends:?}");
    // In some runs no member knows the object yet; in some, members complete it while others fail;
    // in some, all live members complete it.
    let mixed = ends.iter().filter(|(complete, failed)| *complete > 0 && *failed > 0).count();
    assert!(mixed > 0 && ends.contains(&(0, 7)) && ends.iter().any(|(_, failed)| *failed == 0), "{ends:?}");
}

const OBJECT: u64 = 256 << 20;
/// In slow builds, few groups are tested.
const GROUPS: &[u32] = &[2, 3, 4, 7, 8, 13, 16, 33, 64];

fn groups() -> Vec<u32> {
    if cfg!(debug_assertions) { GROUPS.to_vec() } else { (2..=64).collect() }
}

fn bench(members: u32) -> BulkBench {
    BulkBench::new(NetworkModel::rdma(members), OBJECT)
}

#[test]
fn the_binomial_pipeline_is_within_5_percent_of_the_optimum() {
    for members in groups() {
        let timing = bench(members).run().unwrap();
        assert!((0.0..0.05).contains(&timing.over_optimum()), "{members} members: {timing:?}");
        let blocks = u64::from(members - 1) * OBJECT.div_ceil(bench(members).block_bytes);
        assert_eq!(timing.blocks, blocks, "each member gets each block once");
    }
}

#[test]
fn a_stream_to_512_receivers_has_more_than_half_the_rate_of_one() {
    let one = bench(2).run().unwrap().ns as f64;
    let many = bench(513).run().unwrap().ns as f64;
    assert!(one / many >= 0.5, "{}", one / many);
}

/// A link of the hypercube costs as much as the paper says. A link between twins carries a block in
/// every other step, not in one of log2 n. In groups of 12 and more it costs more than that goal:
/// `docs/protocol/bulk.md` has the figures.
#[test]
fn a_link_at_half_speed_costs_a_fraction() {
    for members in [2_u32, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64] {
        let cost = bench(members).slow_link(500, if cfg!(debug_assertions) { 4 } else { 16 }).unwrap();
        let goal = 1.0 / f64::from(members).log2() + 0.1;
        assert!((0.0..goal).contains(&cost.outside), "{members} members: {cost:?}, {goal}");
        assert_eq!(cost.twins.is_some(), !members.is_power_of_two());
        assert!(cost.twins.is_none_or(|cost| cost < 0.45), "{members} members: {cost:?}");
    }
}

#[test]
fn racks_with_little_between_them_want_the_hybrid() {
    let mut network = NetworkModel::rdma(64);
    network.uplinks = Some(Uplinks { rack_of: (0..64).map(|host| host / 16).collect(), bytes_per_us: 12_500 });
    let racks = (0..4).map(|rack| (16 * rack..16 * rack + 16).map(Rank).collect());
    let hybrid = Algorithm::Hybrid(Racks::new(racks.collect()).unwrap());
    let [pipeline, hybrid] = [Algorithm::BinomialPipeline, hybrid].map(|algorithm| {
        let bench = BulkBench { algorithm, ..BulkBench::new(network.clone(), OBJECT) };
        bench.run().unwrap().ns
    });
    assert!(hybrid * 4 < pipeline, "{hybrid} {pipeline}");
}

#[test]
fn small_objects_in_small_groups_go_faster_directly() {
    let run = |members, direct_below| {
        BulkBench { direct_below, ..BulkBench::new(NetworkModel::rdma(members), 4 << 10) }.run().unwrap().ns
    };
    assert!(run(8, u64::MAX) < run(8, 0));
    assert!(run(64, u64::MAX) > run(64, 0));
}

/// Roots that send at the same time share the network, in which every host then has data to send.
#[test]
fn groups_with_different_roots_run_concurrently() {
    let run = |roots| BulkBench { roots, ..bench(8) }.run().unwrap().ns;
    assert!(run(8) < 8 * run(1), "{} {}", run(8), run(1));
}
