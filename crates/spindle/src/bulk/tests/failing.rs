//! Tests of groups over streams that a death, a leaver or a peer's bytes end.
use super::*;

#[test]
fn a_death_fails_incomplete_transfers_once_at_each_survivor() {
    for members in 2..=9 {
        for algorithm in algorithms(members) {
            for dead in 0..members {
                let mut cluster = Cluster::new(nodes(members, 0, &settings(algorithm.clone()), Kind::Unix));
                cluster.root(0).send(content(0, 3)).unwrap();
                cluster.run_until("delivery", |told| completed(told).len() == 1);
                cluster.root(0).send(content(1, 400 * BLOCK)).unwrap();
                cluster.root(0).send(content(2, 10)).unwrap_or(ObjectId(2));
                // The death comes in the middle of the transfer, as seen by the member that dies.
                for _ in 0..3 + dead {
                    cluster.turn();
                }
                cluster.kill(dead);
                cluster.run_until("the end", |told| !failures(told).is_empty() || completed(told).len() == 3);
                cluster.run_to_rest();
                for (member, (node, told)) in (0..).zip(&mut cluster.members) {
                    let Some(node) = node else { continue };
                    let [failure] = failures(told)[..] else { panic!("{member} of {members}: {told:?}") };
                    assert_eq!(failure.dead, Rank(dead), "{member} of {members}, {algorithm:?}: {failure}");
                    let complete: Vec<_> = completed(told)
                        .into_iter()
                        .map(|(object, data)| {
                            assert!(*data == *content(object, data.len() as u64));
                            object
                        })
                        .collect();
                    assert_eq!(complete, (0..complete.len() as u64).collect::<Vec<_>>(), "a prefix");
                    assert!(matches!(told.last(), Some(BulkEvent::Failed(_))), "it is the last");
                    let after = node.send(vec![1]);
                    assert!(matches!(after, Err(BulkSendError::Session(_))), "{after:?}");
                }
            }
        }
    }
}

#[test]
fn the_first_leaver_gets_the_messages_in_flight() {
    let mut cluster = Cluster::new(nodes(3, 0, &settings(Algorithm::Chain), Kind::Unix));
    cluster.run_to_rest();
    cluster.root(0).send(content(0, 3)).unwrap();
    (0..3).for_each(|member| cluster.root(member).finish());
    let start = Instant::now();
    // The last member of the chain hears from the root before it hears of the object.
    while !(0..3).all(|member| cluster.root(member).is_finished()) {
        for member in [0, 2, 1] {
            let (node, told) = &mut cluster.members[member];
            let node = node.as_mut().unwrap();
            let before = told.len();
            node.poll(told);
            if let Some(BulkEvent::Allocate { object, bytes }) = told[before..].first() {
                node.post_receive_buffer(*object, vec![0; *bytes as usize]).unwrap();
            }
        }
        assert!(start.elapsed() < PATIENCE, "{:?}", cluster.members);
    }
    for (_, told) in &cluster.members {
        assert_eq!((completed(told).len(), failures(told).len()), (1, 0), "{told:?}");
    }
}

/// Returns the failure of a member of two whose peer, the root, is simulated by the test.
fn against_raw(sends: impl FnOnce(&mut UnixStream)) -> BulkFailure {
    let told = told_by_raw(|far, _| sends(far));
    failures(&told)[0].clone()
}

fn told_by_raw(sends: impl FnOnce(&mut UnixStream, &mut Cluster)) -> Vec<BulkEvent> {
    let (stream, mut far) = raw_end();
    let settings = settings(Algorithm::Chain);
    let node = BulkNode::over_streams(2, Rank(1), Rank(0), &settings, [(Rank(0), stream)]).unwrap();
    let mut cluster = Cluster::new(vec![node]);
    cluster.turn();
    greet(&mut far);
    sends(&mut far, &mut cluster);
    far.shutdown(std::net::Shutdown::Write).unwrap();
    cluster.run_until("the end", |told| !failures(told).is_empty());
    cluster.members.remove(0).1
}

#[test]
fn a_block_that_was_given_up_is_not_believed() {
    let block = |end: &[u8]| [frame(3, 0, [0, 5], [6, 1, 0, 0]), vec![1; 5], end.to_vec()].concat();
    let closed = frame(4, 1, [0; 2], [0; 4]);
    for (end, count) in [(b"is whole", 1), (b"is void!", 0)] {
        let told = told_by_raw(|far, cluster| {
            far.write_all(&block(end)).unwrap();
            cluster.run_to_rest();
            far.write_all(&closed).unwrap();
        });
        assert_eq!(completed(&told).len(), count, "{told:?}");
        assert!(matches!(
            failures(&told)[0],
            BulkFailure { dead: Rank(1), cause: FailureCause::Reported { by: Rank(0) }, .. }
        ));
    }
}

#[test]
fn nonsense_on_a_stream_closes_the_group_with_its_reason() {
    const COLUMNS: u64 = 2;
    const BLOCK: u64 = 3;
    type Is = fn(&BulkDown) -> bool;
    let cases: Vec<(&str, Vec<u8>, Is)> = vec![
        ("no frame", vec![0xff; 56], |down| matches!(down, BulkDown::Garbage { .. })),
        ("a greeting again", frame(1, 0, [0; 2], [0; 4]), |down| matches!(down, BulkDown::Garbage { .. })),
        ("half a frame", vec![2, 0, 0], |down| matches!(down, BulkDown::Broken)),
        ("nothing", vec![], |down| matches!(down, BulkDown::Closed)),
        ("no such slot", frame(COLUMNS, 9, [0; 2], [0; 4]), |down| matches!(down, BulkDown::Garbage { word: 9 })),
        ("a block of no such slot", frame(BLOCK, 9, [0, 5], [6, 1, 0, 0]), |down| {
            matches!(down, BulkDown::Unasked { .. })
        }),
        ("a block that was not announced", frame(BLOCK, 0, [0, 5], [0, 0, 0, 0]), |down| {
            matches!(down, BulkDown::Unasked { .. })
        }),
        ("a block at another place", frame(BLOCK, 0, [1, 5], [6, 1, 0, 0]), |down| {
            matches!(down, BulkDown::Unasked { at: 1, bytes: 5, .. })
        }),
        ("a block of another length", frame(BLOCK, 0, [0, 6], [6, 1, 0, 0]), |down| {
            matches!(down, BulkDown::Unasked { .. })
        }),
        ("the second block first", frame(BLOCK, 0, [1000, 1000], [2001, 2, 0, 0]), |down| {
            matches!(down, BulkDown::Unasked { .. })
        }),
        ("counters of a block that was not sent", frame(COLUMNS, 0, [0; 2], [6, 1, 0, 0]), |down| {
            matches!(down, BulkDown::Unsent { .. })
        }),
        ("an object without end", frame(BLOCK, 0, [0, 1000], [(1 << 41) + 1, 1, 0, 0]), |down| {
            matches!(down, BulkDown::TooLong { .. })
        }),
        ("counters beyond any", frame(COLUMNS, 0, [0; 2], [6, u64::MAX, 0, 0]), |down| {
            matches!(down, BulkDown::Nonsense(_) | BulkDown::Unsent { .. })
        }),
        (
            "more credit than there are blocks",
            [frame(BLOCK, 0, [0, 5], [6, 1, 9, 0]), vec![1; 5], b"is whole".to_vec()].concat(),
            |down| matches!(down, BulkDown::Nonsense(_)),
        ),
        ("a block without its end", [frame(BLOCK, 0, [0, 5], [6, 1, 0, 0]), vec![1; 13]].concat(), |down| {
            matches!(down, BulkDown::Garbage { .. })
        }),
        (
            "an object that only counters tell of, without end",
            frame(COLUMNS, 0, [0; 2], [(1 << 41) + 1, 0, 0, 0]),
            |down| matches!(down, BulkDown::TooLong { .. }),
        ),
        ("the death of nobody", frame(4, 2, [0; 2], [0; 4]), |down| matches!(down, BulkDown::Garbage { .. })),
    ];
    for (what, bytes, is) in cases {
        let failure = against_raw(|far| far.write_all(&bytes).unwrap());
        assert_eq!(failure.dead, Rank(0));
        let FailureCause::Down(down) = &failure.cause else { panic!("{what}: {failure}") };
        assert!(is(down), "{what}: {down:?}");
    }
}

#[test]
fn nonsense_from_one_is_no_trouble_between_others_but_the_end_of_the_group() {
    let settings = settings(Algorithm::BinomialPipeline);
    let mut streams = mesh(4, Kind::Unix);
    // Member 3 sends garbage to member 1, and nothing to the others.
    let (near, mut far) = UnixStream::pair().unwrap();
    streams[1].retain(|(rank, _)| *rank != Rank(3));
    streams[1].push((Rank(3), Box::new(SocketStream::new(near, &SocketOptions::default()).unwrap())));
    let _silent = streams.pop();
    let node = |(me, streams)| BulkNode::over_streams(4, Rank(me), Rank(0), &settings, streams).unwrap();
    let mut cluster = Cluster::new((0..).zip(streams).map(node).collect());
    far.write_all(&[0x55; 100]).unwrap();
    cluster.run_until("the end", |told| !failures(told).is_empty());
    for (member, (_, told)) in (0..).zip(&cluster.members) {
        let [failure] = failures(told)[..] else { panic!("{told:?}") };
        assert_eq!(failure.dead, Rank(3));
        let is_told = matches!(failure.cause, FailureCause::Reported { by: Rank(1) });
        assert_eq!(is_told, member != 1, "{member}: {failure}");
    }
}

#[test]
fn a_process_with_other_settings_is_told_so() {
    let ours = settings(Algorithm::Chain);
    are_told(&ours, &BulkSettings { block_bytes: BLOCK + 1, ..ours.clone() });
    // Files that differ, say.
    let in_racks = |racks: &[u32]| settings(Algorithm::Hybrid(Racks::grouped(racks)));
    are_told(&in_racks(&[1, 1]), &in_racks(&[1, 2]));
    are_told(&in_racks(&[1, 2]), &settings(Algorithm::BinomialPipeline));
}

/// Checks that two members with these settings learn that the settings differ.
fn are_told(ours: &BulkSettings, theirs: &BulkSettings) {
    let [near, far] = ends(Kind::Unix);
    let mut cluster = Cluster::new(vec![
        BulkNode::over_streams(2, Rank(0), Rank(0), ours, [(Rank(1), near)]).unwrap(),
        BulkNode::over_streams(2, Rank(1), Rank(0), theirs, [(Rank(0), far)]).unwrap(),
    ]);
    cluster.run_until("the end", |told| !failures(told).is_empty());
    let is_greeting = |failure: &&BulkFailure| matches!(&failure.cause, FailureCause::Down(down) if matches!(**down, BulkDown::Greeting { .. }));
    assert!(cluster.members.iter().flat_map(|(_, told)| failures(told)).any(|failure| is_greeting(&failure)));
}
