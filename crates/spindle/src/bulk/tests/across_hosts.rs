//! Tests of groups that span hosts: one member of each host receives the blocks.
use super::*;

#[test]
fn across_hosts_heads_pass_blocks_on_and_lend_to_the_others() {
    for hosts in [&[1, 1, 2, 2, 2][..], &[1, 2, 1, 2, 3], &[1, 2, 2, 2], &[2, 1, 1, 3, 3, 4, 4], &[1, 1, 1]] {
        for root in 0..hosts.len() as u32 {
            let count = Hosts::new(Rank(root), hosts).count();
            for algorithm in algorithms(count) {
                let settings = BulkSettings { slots: 1 + root % 3, direct_below: BLOCK, ..settings(algorithm) };
                let mut cluster = Cluster::new(across(hosts, root, &settings, Kind::Unix));
                check_objects(&mut cluster, root, &SIZES);
            }
        }
    }
    // An object that a head receives is stored in memory that the head lends.
    let mut cluster = Cluster::new(across(&[1, 2, 2], 0, &settings(Algorithm::Chain), Kind::Unix));
    cluster.posts = false;
    cluster.root(0).send(content(0, 20 * BLOCK)).unwrap();
    cluster.run_until("delivery", |told| completed(told).len() == 1);
    assert!(completed(&cluster.members[1].1)[0].1.segment().is_some());
}

#[test]
fn between_hosts_every_object_crosses_once_however_many_members_they_have() {
    let (bytes, crossed) = (400 * BLOCK, Arc::new(AtomicU64::new(0)));
    let count = |(to, stream)| (to, Box::new(Counted(stream, Arc::clone(&crossed))) as Connection);
    let streams = mesh(9, Kind::Unix).into_iter().map(|streams| streams.into_iter().map(count).collect()).collect();
    let nodes = across_over(&[1, 2, 3, 1, 2, 3, 1, 2, 3], 4, &settings(Algorithm::BinomialPipeline), streams);
    check_objects(&mut Cluster::new(nodes), 4, &[bytes]);
    let crossed = crossed.load(Ordering::Relaxed);
    assert!((2 * bytes..2 * bytes + bytes / 2).contains(&crossed), "{crossed}");
}

#[test]
fn a_head_has_an_object_when_all_of_its_host_have() {
    let mut cluster = Cluster::new(across(&[1, 2, 2, 3], 0, &settings(Algorithm::BinomialPipeline), Kind::Unix));
    let idle = cluster.members[2].0.take();
    for object in 0..2 {
        cluster.root(0).send(content(object, 20 * BLOCK)).unwrap();
    }
    cluster.run_until("delivery elsewhere", |told| completed(told).len() == 2 || told.is_empty());
    cluster.run_to_rest();
    let has = |cluster: &Cluster, member: usize| completed(&cluster.members[member].1).len();
    assert_eq!([0, 1, 3].map(|member| has(&cluster, member)), [2, 0, 2]);
    let everywhere = |cluster: &Cluster| {
        cluster.members[0].1.iter().filter(|event| matches!(event, BulkEvent::Everywhere { .. })).count()
    };
    assert_eq!(everywhere(&cluster), 0, "one of the second host has nothing");
    assert!(cluster.root(0).send(vec![1]).is_err(), "so its slots are in use");
    cluster.members[2].0 = idle;
    cluster.run_until("delivery", |told| completed(told).len() == 2);
    cluster.run_to_rest();
    assert_eq!(everywhere(&cluster), 2);
}

#[test]
fn across_hosts_a_death_fails_the_group_once_at_each_member() {
    let hosts = [1, 1, 2, 2, 2, 3];
    for (root, dead) in (0..6).flat_map(|root| (0..6).map(move |dead| (root, dead))) {
        let mut cluster = Cluster::new(across(&hosts, root, &settings(Algorithm::BinomialPipeline), Kind::Unix));
        cluster.root(root).send(content(0, 3)).unwrap();
        cluster.run_until("delivery", |told| completed(told).len() == 1);
        for object in 1..3 {
            let sent = cluster.root(root).send(content(object, 400 * BLOCK));
            assert!(sent.is_ok() || object == 2);
        }
        (0..3 + dead).for_each(|_| _ = cluster.turn());
        cluster.kill(dead);
        cluster.run_until("the end", |told| !failures(told).is_empty());
        cluster.run_to_rest();
        for (member, (node, told)) in (0..).zip(&mut cluster.members).filter(|(member, _)| *member != dead) {
            let [failure] = failures(told)[..] else { panic!("{member} of root {root}: {told:?}") };
            assert_eq!(failure.dead, Rank(dead), "{member} of root {root}: {failure}");
            let complete = completed(told);
            for (i, (object, data)) in (0..).zip(&complete) {
                assert_eq!(*object, i, "a prefix");
                assert!(**data == *content(i, data.len() as u64));
            }
            assert!(matches!(told.last(), Some(BulkEvent::Failed(_))), "it is the last");
            assert!(node.as_mut().unwrap().send(vec![1]).is_err());
        }
    }
}

#[test]
fn a_head_without_memory_is_dead_to_the_others() {
    let (stream, mut far) = raw_end();
    let settings = BulkSettings { object_bytes_max: u64::MAX, ..BulkSettings::default() };
    let hosts = Hosts::new(Rank(0), &[1, 2, 2]);
    let mut parts = LocalPart::parts_among(&[Rank(1), Rank(2)], 3, Rank(1)).unwrap();
    let mate = BulkNode::across_hosts(Rank(2), hosts.clone(), &settings, [], parts.pop()).unwrap();
    let head = BulkNode::across_hosts(Rank(1), hosts, &settings, [(Rank(0), stream)], parts.pop()).unwrap();
    let mut cluster = Cluster::new(vec![head, mate]);
    cluster.turn();
    greet(&mut far);
    // The head of the first block of an object of 2^48 bytes, for which no machine has memory.
    far.write_all(&frame(3, 0, [0, BulkSettings::BLOCK_BYTES], [(1 << 48) + 1, 1, 0, 0])).unwrap();
    cluster.run_until("the end", |told| !failures(told).is_empty());
    let failure = failures(&cluster.members[0].1)[0].clone();
    assert!(matches!(failure, BulkFailure { dead: Rank(1), cause: FailureCause::Memory(_), .. }), "{failure}");
    assert_eq!(failures(&cluster.members[1].1)[0].dead, Rank(1));
    assert_eq!(failure.objects, [ObjectId(0)]);
    drop(cluster);
    let mut said = vec![];
    far.read_to_end(&mut said).unwrap();
    assert!(said.ends_with(&frame(4, 1, [0; 2], [0; 4])), "it says whose death it is");
}

/// A root that sends a third object in two slots, before it can know that any is everywhere.
#[test]
fn only_the_root_that_uses_a_slot_too_early_is_lost() {
    let (stream, mut far) = raw_end();
    let settings = BulkSettings::default();
    let hosts = Hosts::new(Rank(0), &[1, 2, 2]);
    let mut parts = LocalPart::parts_among(&[Rank(1), Rank(2)], 3, Rank(1)).unwrap();
    // It does nothing.
    let _mate = BulkNode::across_hosts(Rank(2), hosts.clone(), &settings, [], parts.pop()).unwrap();
    let head = BulkNode::across_hosts(Rank(1), hosts, &settings, [(Rank(0), stream)], parts.pop()).unwrap();
    let mut cluster = Cluster::new(vec![head]);
    cluster.turn();
    greet(&mut far);
    for (slot, counters) in [(0, [6, 1, 0, 0]), (1, [6, 1, 0, 0]), (0, [12, 2, 0, 0])] {
        far.write_all(&[frame(3, slot, [0, 5], counters), vec![1; 5], b"is whole".to_vec()].concat()).unwrap();
        cluster.run_to_rest();
    }
    let told = &cluster.members[0].1;
    let [failure] = failures(told)[..] else { panic!("{told:?}") };
    assert!(matches!(failure, BulkFailure { dead: Rank(0), cause: FailureCause::Down(_), .. }), "{failure}");
}

#[test]
fn across_hosts_all_members_leave_in_order() {
    let nodes = across(&[1, 1, 2, 2], 2, &BulkSettings::default(), Kind::Unix);
    let (upcalls, told) = channel();
    let thread = BulkThread::start(BulkWaiting::Interrupt).unwrap();
    let groups: Vec<BulkGroup> = (0..)
        .zip(nodes)
        .map(|(member, node)| thread.run(node, Reported { group: member, upcalls: upcalls.clone() }).unwrap())
        .collect();
    for object in 0..4 {
        while groups[2].send(content(object, 300_000)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let leave = |group: BulkGroup| std::thread::spawn(move || group.destroy(PATIENCE));
    let left: Vec<_> = groups.into_iter().map(leave).collect();
    left.into_iter().for_each(|left| left.join().unwrap().unwrap());
    let complete = told.try_iter().filter(|(_, upcall)| matches!(upcall, Upcall::Complete(..))).count();
    assert_eq!(complete, 16);
}
