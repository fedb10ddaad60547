//! Tests of groups that are drawn from seeds.
use super::*;

/// Numbers from a seed.
struct Chance(u64);

impl Chance {
    /// One below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 32) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Plays a group drawn from a seed. Members are polled in any order, applications are slow, and in
/// half of the groups a member dies.
fn play(seed: u64) {
    let mut chance = Chance(seed);
    let members = 2 + chance.below(8) as u32;
    let root = chance.below(members.into()) as u32;
    let mut hosts: Vec<u32> = (0..members).collect();
    let is_local = chance.one_in(4);
    match is_local {
        true => hosts.fill(0),
        false if chance.one_in(2) => hosts.iter_mut().for_each(|host| *host = chance.below(4) as u32),
        false => {}
    }
    let mut algorithms = algorithms(Hosts::new(Rank(root), &hosts).count());
    let algorithm = algorithms.swap_remove(chance.below(algorithms.len() as u64) as usize);
    let settings = BulkSettings {
        slots: 1 + chance.below(4) as u32,
        ahead: 2 + chance.below(5) as u32,
        posts_max: 1 + chance.below(4) as u32,
        direct_below: chance.below(2) * (BLOCK + 1),
        ..settings(algorithm)
    };
    let kind = [Kind::Unix, Kind::Tiny][chance.below(2) as usize];
    let nodes = if is_local { local(members, root, &settings) } else { across(&hosts, root, &settings, kind) };
    let mut sizes: Vec<u64> = (0..1 + chance.below(6))
        .map(|_| [0, 1, BLOCK, BLOCK + 1, 9 * BLOCK, 40 * BLOCK][chance.below(6) as usize])
        .collect();
    sizes.iter_mut().for_each(|bytes| *bytes += chance.below(3));
    let dead = chance.one_in(2).then(|| (chance.below(members.into()) as u32, chance.below(400)));
    let mut cluster = Cluster::new(nodes);
    cluster.posts = false;
    let mut awaited: Vec<(u32, ObjectId, u64)> = vec![];
    let (mut sent, start) = (0, Instant::now());
    for turn in 0.. {
        if let Some((dead, _)) = dead.filter(|(_, at)| *at == turn) {
            cluster.kill(dead);
        }
        if let Some(bytes) = sizes.get(sent).filter(|_| chance.one_in(3))
            && let Some(node) = &mut cluster.members[root as usize].0
            && node.send(content(sent as u64, *bytes)).is_ok()
        {
            sent += 1;
        }
        let member = chance.below(members.into()) as u32;
        let (node, told) = &mut cluster.members[member as usize];
        let Some(node) = node else { continue };
        let before = told.len();
        node.poll(told);
        awaited.extend(told[before..].iter().filter_map(|event| match event {
            BulkEvent::Allocate { object, bytes } => Some((member, *object, *bytes)),
            _ => None,
        }));
        if !awaited.is_empty() && chance.one_in(2) {
            let (member, object, bytes) = awaited.swap_remove(chance.below(awaited.len() as u64) as usize);
            if let Some(node) = &mut cluster.members[member as usize].0 {
                let posted = node.post_receive_buffer(object, vec![0xee; bytes as usize]);
                assert!(posted.is_ok() || node.failure().is_some(), "{posted:?}");
            }
        }
        let is_over = |(node, told): &(Option<BulkNode>, Vec<BulkEvent>)| {
            let is_complete = dead.is_none() && completed(told).len() == sizes.len();
            node.is_none() || is_complete || !failures(told).is_empty()
        };
        if turn % 16 == 0 && cluster.members.iter().all(is_over) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "it hangs: {settings:?}, {:?}", cluster.members);
    }
    cluster.run_to_rest();
    for (member, (node, told)) in (0..).zip(&cluster.members) {
        let complete = completed(told);
        for (i, (object, data)) in (0..).zip(&complete) {
            assert_eq!(*object, i, "they complete in order, once");
            assert!(**data == *content(i, sizes[i as usize]), "object {i} at {member}");
        }
        match (dead, &failures(told)[..]) {
            (None, []) => assert_eq!(complete.len(), sizes.len()),
            (Some((dead, _)), [failure]) => assert_eq!(failure.dead, Rank(dead), "{member}: {failure}"),
            (Some(_), []) => assert!(node.is_none(), "{member} was told nothing"),
            (_, failures) => panic!("{member}: {failures:?}"),
        }
    }
    if dead.is_none() {
        let everywhere = |event: &&BulkEvent| matches!(event, BulkEvent::Everywhere { .. });
        assert_eq!(cluster.members[root as usize].1.iter().filter(everywhere).count(), sizes.len());
    }
}

/// `BULK_SEEDS` is how many, `BULK_SEED` the only one to play.
#[test]
fn groups_drawn_from_seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match (number("BULK_SEED"), number("BULK_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(150),
    };
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| play(seed)) {
            eprintln!(
                "seed {seed} failed: BULK_SEED={seed} cargo test -p spindle-multicast --lib groups_drawn_from_seeds"
            );
            std::panic::resume_unwind(panic);
        }
    }
}
