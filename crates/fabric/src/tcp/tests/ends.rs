//! Tests of the ends of connections and of views.
use super::*;

/// Data that a member posted before it died has arrived when its death is reported, though both
/// ends were busy.
#[test]
fn messages_sent_before_a_death_count() {
    let layout = layout(2);
    for pair in [|| socket_ends(unix_pair(), &USUAL), || socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL)] {
        let mut fabrics = connect(&layout, pair);
        for fabric in &mut fabrics {
            for value in 1..=50 {
                fabric.store(COUNT, value);
                fabric.post(&EVERYONE[..2], COUNT..COUNT + 8);
            }
        }
        // It has read nothing of what the other has sent.
        drop(fabrics.pop());
        let (rank, why) = down(&mut fabrics[0]);
        assert_eq!((rank, fabrics[0].load(Rank(1), COUNT)), (Rank(1), 50), "{why}");
    }
}

/// Everything arrives in order, however slow the peer is.
#[test]
fn a_sender_that_finishes_loses_nothing() {
    let layout = layout(2);
    let ring = ring(&layout);
    for pair in [|| socket_ends(unix_pair(), &TINY), || socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL)] {
        let mut fabrics = connect(&layout, pair);
        let (mut second, mut first) = (fabrics.pop().unwrap(), fabrics.pop().unwrap());
        for at in ring.clone().step_by(8) {
            first.store(at, at);
            second.store(at, at);
        }
        first.post(&EVERYONE[..2], ring.clone());
        second.post(&EVERYONE[..2], ring.clone());
        first.store(COUNT, 1);
        first.post(&EVERYONE[..2], COUNT..COUNT + 8);
        std::thread::scope(|scope| {
            scope.spawn(move || assert!(first.finish(PATIENCE)));
            let (rank, why) = down(&mut second);
            assert!(matches!((rank, &why), (Rank(0), Down::Closed)), "{why}");
        });
        assert_eq!(second.load(Rank(0), COUNT), 1);
        assert!(ring.clone().step_by(8).all(|at| second.load(Rank(0), at) == at));
        assert!(!second.finish(Duration::ZERO), "it could tell nobody");
    }
}

/// A member whose peer reads nothing for a while still delivers everything, and waits no longer
/// than that takes.
#[test]
fn a_process_that_ends_waits_until_it_is_heard() {
    let layout = layout(2);
    let ring = ring(&layout);
    for pair in [|| socket_ends(unix_pair(), &TINY), || socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &TINY)] {
        let mut fabrics = connect(&layout, pair);
        let (mut second, mut first) = (fabrics.pop().unwrap(), fabrics.pop().unwrap());
        ring.clone().step_by(8).for_each(|at| first.store(at, at));
        first.post(&EVERYONE[..2], ring.clone());
        first.store(COUNT, 1);
        first.post(&EVERYONE[..2], COUNT..COUNT + 8);
        assert!(
            second.traffic(Rank(0)).unwrap().received_bytes < ring.end - ring.start,
            "there is no room for so much"
        );
        let start = Instant::now();
        std::thread::scope(|scope| {
            // The other continues, and so it never closes its side.
            let finish = scope.spawn(move || first.finish_heard(Duration::ZERO, 2 * PATIENCE));
            while second.load(Rank(0), COUNT) == 0 {
                second.progress();
                assert!(start.elapsed() < PATIENCE, "the last word never came");
            }
            assert!(!finish.join().unwrap(), "the other has not closed its side");
        });
        assert!(start.elapsed() < PATIENCE);
    }
}

/// An observer learns from the row how the view has ended. The whole row leaves before the streams
/// are closed, both with peers that already have it and without peers.
#[test]
fn a_observer_gets_the_end_of_a_view() {
    for members in [1, 2] {
        let layout = layout(members);
        let [near, far] = unix_pair().map(|socket| Box::new(SocketStream::new(socket, &TINY).unwrap()));
        let mut meshes = connect(&layout, || socket_ends(unix_pair(), &USUAL));
        meshes[0].add_observer(&layout, near).unwrap();
        let ring = ring(&layout);
        for at in ring.clone().step_by(8) {
            meshes[0].store(at, at);
        }
        let peers: Vec<Rank> = (1..members).map(Rank).collect();
        meshes[0].post(&peers, ring.clone());
        meshes[0].store(0, 77);
        meshes[0].post(&peers, 0..8);
        settle(&mut meshes);
        let mut retired: Vec<_> = meshes.iter_mut().filter_map(Mesh::retire).collect();
        let progress = |retired: &mut Vec<Retired>| retired.retain_mut(|retired| !retired.progress());
        // The system has no room for so much.
        for _ in 0..100 {
            progress(&mut retired);
        }
        assert!(!retired.is_empty(), "{members} members");
        let rows = (0..members).map(|_| None);
        let mut watched = Watched::new(
            &layout,
            [Some(Peer::There(far as Connection))].into_iter().chain(rows.skip(1)).collect(),
            &Mirror::new(),
        )
        .unwrap();
        let start = Instant::now();
        let (rank, down) = loop {
            progress(&mut retired);
            watched.progress();
            if let Some(down) = watched.next_down() {
                break down;
            }
            assert!(start.elapsed() < PATIENCE, "no end, and {} that go on", retired.len());
        };
        assert!(rank == Rank(0) && matches!(down, Down::Closed), "{down}");
        assert_eq!(watched.rows().load(Rank(0), 0), 77);
        assert!(ring.step_by(8).all(|at| watched.rows().load(Rank(0), at) == at));
        while !retired.is_empty() {
            progress(&mut retired);
            assert!(start.elapsed() < PATIENCE, "{} go on", retired.len());
        }
    }
}

/// Finishing has a time limit.
#[test]
fn a_peer_that_hangs_does_not_hold_a_finish() {
    let (_, mut fabric, _stranger) = with_stranger();
    assert!(!fabric.finish(Duration::from_millis(5)));
    let (_, mut fabric, _stranger) = with_stranger();
    assert!(!fabric.finish_heard(Duration::ZERO, Duration::from_millis(5)));
}
