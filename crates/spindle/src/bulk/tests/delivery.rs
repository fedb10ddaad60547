//! Tests of groups over streams in which no member fails: every schedule delivers.
use super::*;

#[test]
fn every_schedule_delivers_the_exact_bytes_of_every_length() {
    for members in 2..=9 {
        for algorithm in algorithms(members) {
            check_delivery(members, members / 2, &settings(algorithm), Kind::Unix, &SIZES);
        }
    }
}

#[test]
fn so_it_does_over_tcp_and_through_the_narrowest_buffers() {
    for kind in [Kind::Tcp, Kind::Tiny] {
        for members in [2, 5, 8] {
            check_delivery(members, 1, &settings(Algorithm::BinomialPipeline), kind, &SIZES);
        }
    }
    let large = BulkSettings { block_bytes: 100_000, ..settings(Algorithm::Chain) };
    check_delivery(4, 0, &large, Kind::Tiny, &[1_234_567, 99_999]);
}

/// Returns the number of bytes that go from one rack to another, for an object of `bytes` by
/// `algorithm`.
fn bytes_across(rack_of: &[u32], algorithm: Algorithm, bytes: u64) -> u64 {
    let (members, across) = (rack_of.len() as u32, Arc::new(AtomicU64::new(0)));
    let count = |from: u32, (to, stream): (Rank, Connection)| {
        let crosses = rack_of[from as usize] != rack_of[to.index()];
        let counts = if crosses { Arc::clone(&across) } else { Arc::default() };
        (to, Box::new(Counted(stream, counts)) as Connection)
    };
    let nodes = (0..).zip(mesh(members, Kind::Unix)).map(|(me, streams)| {
        let streams = streams.into_iter().map(|stream| count(me, stream));
        BulkNode::over_streams(members, Rank(me), Rank(0), &settings(algorithm.clone()), streams).unwrap()
    });
    check_objects(&mut Cluster::new(nodes.collect()), 0, &[bytes]);
    across.load(Ordering::Relaxed)
}

#[test]
fn between_racks_every_block_crosses_once() {
    // The racks alternate, as in a list of hosts that is not sorted.
    let rack_of: Vec<u32> = (0..12).map(|rank| rank % 3).collect();
    let bytes = 400 * BLOCK;
    let hybrid = bytes_across(&rack_of, Algorithm::Hybrid(Racks::grouped(&rack_of)), bytes);
    // Each block crosses twice, as there are three racks. The frames beside the blocks are small.
    assert!((2 * bytes..3 * bytes).contains(&hybrid), "{hybrid}");
    let pipeline = bytes_across(&rack_of, Algorithm::BinomialPipeline, bytes);
    assert!(pipeline > 2 * hybrid, "{pipeline}, {hybrid}");
}

#[test]
fn small_objects_go_directly() {
    let settings = BulkSettings { direct_below: BLOCK + 1, slots: 8, ..settings(Algorithm::Chain) };
    check_delivery(5, 2, &settings, Kind::Unix, &SIZES);
    let mut cluster = Cluster::new(nodes(5, 2, &settings, Kind::Unix));
    cluster.run_to_rest();
    cluster.root(2).send(vec![7; 10]).unwrap();
    // The last member of the chain gets the object, whatever the members between do.
    let (last, told) = &mut cluster.members[1];
    let start = Instant::now();
    while completed(told).is_empty() {
        assert!(start.elapsed() < PATIENCE, "{told:?}");
        last.as_mut().unwrap().poll(told);
        if let Some(BulkEvent::Allocate { object, .. }) = told.last() {
            let _ = last.as_mut().unwrap().post_receive_buffer(*object, vec![0; 10]);
        }
    }
}

#[test]
fn a_member_alone_sends_to_no_peer() {
    check_delivery(1, 0, &settings(Algorithm::BinomialPipeline), Kind::Unix, &SIZES);
}

#[test]
fn blocks_wait_for_buffers_and_the_first_is_passed_on_without() {
    let mut cluster = Cluster::new(nodes(3, 0, &settings(Algorithm::Chain), Kind::Unix));
    cluster.posts = false;
    cluster.root(0).send(content(0, 10 * BLOCK)).unwrap();
    cluster.run_to_rest();
    // The last member of the chain learns of the object although no member has made room.
    for member in [1, 2] {
        let told = &cluster.members[member].1;
        assert!(matches!(told[..], [BulkEvent::Allocate { object: ObjectId(0), bytes }] if bytes == 10 * BLOCK));
    }
    let post = |cluster: &mut Cluster, member: u32, bytes: u64| {
        cluster.root(member).post_receive_buffer(ObjectId(0), vec![0; bytes as usize])
    };
    assert!(matches!(post(&mut cluster, 2, 3), Err(PostError::Length { expected: 10_000, found: 3, .. })));
    post(&mut cluster, 2, 10 * BLOCK).unwrap();
    cluster.run_to_rest();
    assert!(completed(&cluster.members[2].1).is_empty(), "the first of the chain has no room, and one block");
    post(&mut cluster, 1, 10 * BLOCK).unwrap();
    assert!(matches!(post(&mut cluster, 1, 10 * BLOCK), Err(PostError::NotAwaited { .. })));
    cluster.run_until("delivery", |told| completed(told).len() == 1);
    assert!(cluster.members.iter().all(|(_, told)| *completed(told)[0].1 == *content(0, 10 * BLOCK)));
    assert!(matches!(post(&mut cluster, 1, 10 * BLOCK), Err(PostError::NotAwaited { .. })));
}

#[test]
fn invalid_groups_are_refused() {
    let settings = settings(Algorithm::Chain);
    let node = |members, me, root, peers: &[u32], settings: &BulkSettings| {
        let mut keep = vec![];
        let streams: Vec<_> = peers
            .iter()
            .map(|peer| {
                let [near, far] = ends(Kind::Unix);
                keep.push(far);
                (Rank(*peer), near)
            })
            .collect();
        BulkNode::over_streams(members, Rank(me), Rank(root), settings, streams).map(drop)
    };
    assert!(matches!(node(2, 2, 0, &[0], &settings), Err(BulkError::Rank { rank: Rank(2), members: 2 })));
    assert!(matches!(node(2, 1, 7, &[0], &settings), Err(BulkError::Rank { rank: Rank(7), members: 2 })));
    for (peers, rank, times) in [(&[0][..], 2, 0), (&[0, 2, 2], 2, 2), (&[0, 1, 2], 1, 1), (&[0, 2, 3], 3, 1)] {
        let error = node(3, 1, 0, peers, &settings).unwrap_err();
        let BulkError::Links(BulkLinksError::Connections { rank: r, times: t, .. }) = error else { panic!("{error}") };
        assert_eq!((r, t), (Rank(rank), times), "{error}");
    }
    let none = BulkSettings { block_bytes: 0, ..settings.clone() };
    assert!(matches!(node(2, 0, 0, &[1], &none), Err(BulkError::Settings(_))));
    let racks = Racks::new(vec![vec![Rank(0), Rank(1), Rank(2)]]).unwrap();
    let racks = BulkSettings { algorithm: Algorithm::Hybrid(racks), ..settings.clone() };
    assert!(matches!(node(2, 0, 0, &[1], &racks), Err(BulkError::Racks { found: 3, hosts: 2 })));
    let mut nodes = nodes(2, 0, &settings, Kind::Unix);
    assert!(matches!(nodes[1].send(vec![1]), Err(BulkSendError::Session(_))), "it is not the root");
}
