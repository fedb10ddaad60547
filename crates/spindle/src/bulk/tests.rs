//! Groups over real streams: all schedules, deaths, nonsense, many at once.
use super::*;
use spindle_core::Rank;
use spindle_transport::Space;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Everything here takes well under a second. A wait ends after this with a panic.
const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 1000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Unix,
    Tcp,
    /// With the smallest buffers that the system gives.
    Tiny,
}

fn ends(kind: Kind) -> [Connection; 2] {
    let tiny = SocketOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: Some(1), silence_ms: None };
    let (sockets, options): ([OwnedFd; 2], _) = match kind {
        Kind::Unix => (<[UnixStream; 2]>::from(UnixStream::pair().unwrap()).map(Into::into), SocketOptions::default()),
        Kind::Tiny => (<[UnixStream; 2]>::from(UnixStream::pair().unwrap()).map(Into::into), tiny),
        Kind::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            ([near, listener.accept().unwrap().0].map(Into::into), SocketOptions::default())
        }
    };
    sockets.map(|socket| Box::new(SocketStream::new(socket, &options).unwrap()) as Connection)
}

/// By rank, the streams to all others.
fn mesh(members: u32, kind: Kind) -> Vec<Vec<(Rank, Connection)>> {
    let mut streams: Vec<Vec<_>> = (0..members).map(|_| vec![]).collect();
    for i in 0..members {
        for j in i + 1..members {
            let [near, far] = ends(kind);
            streams[i as usize].push((Rank(j), near));
            streams[j as usize].push((Rank(i), far));
        }
    }
    streams
}

fn settings(algorithm: Algorithm) -> BulkSettings {
    BulkSettings { algorithm, block_bytes: BLOCK, direct_below: 0, ..BulkSettings::default() }
}

fn nodes(members: u32, root: u32, settings: &BulkSettings, kind: Kind) -> Vec<BulkNode> {
    let node = |(me, streams)| BulkNode::over_streams(members, Rank(me), Rank(root), settings, streams).unwrap();
    (0..).zip(mesh(members, kind)).map(node).collect()
}

/// Bytes that are different for each object and place.
fn content(object: u64, bytes: u64) -> Vec<u8> {
    let mut state = object.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(step).collect()
}

/// Members that are polled in turn, and the events of each.
struct Cluster {
    members: Vec<(Option<BulkNode>, Vec<Event>)>,
    /// Whether buffers are posted at once.
    posts: bool,
}

impl Cluster {
    fn new(nodes: Vec<BulkNode>) -> Cluster {
        Cluster { members: nodes.into_iter().map(|node| (Some(node), vec![])).collect(), posts: true }
    }

    fn root(&mut self, root: u32) -> &mut BulkNode {
        self.members[root as usize].0.as_mut().unwrap()
    }

    /// Polls every member once. Returns whether any of them did anything.
    fn turn(&mut self) -> bool {
        let mut worked = false;
        for (node, told) in &mut self.members {
            let Some(node) = node else { continue };
            let before = told.len();
            worked |= node.poll(told);
            for event in told[before..].iter().filter(|_| self.posts) {
                if let Event::Allocate { object, bytes } = event {
                    match node.post_receive_buffer(*object, vec![0; *bytes as usize]) {
                        Ok(()) => worked = true,
                        Err(error) => assert!(node.failure().is_some(), "{error}"),
                    }
                }
            }
        }
        worked
    }

    fn run_until(&mut self, what: &str, is_done: impl Fn(&[Event]) -> bool) {
        let start = Instant::now();
        loop {
            let mut all = self.members.iter().filter(|(node, _)| node.is_some());
            if all.all(|(_, told)| is_done(told)) {
                return;
            }
            self.turn();
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.members.iter().map(|m| &m.1).collect::<Vec<_>>());
        }
    }

    /// Runs until no member does anything for many turns. (Data on its way through the system
    /// arrives within few turns.)
    fn run_to_rest(&mut self) {
        let mut idle = 0;
        while idle < 1000 {
            idle = if self.turn() { 0 } else { idle + 1 };
        }
    }

    fn kill(&mut self, member: u32) {
        self.members[member as usize].0 = None;
    }
}

fn completed(told: &[Event]) -> Vec<(u64, Object)> {
    let complete = |event: &Event| match event {
        Event::Complete { object, data } => Some((object.0, data.clone())),
        _ => None,
    };
    told.iter().filter_map(complete).collect()
}

fn failures(told: &[Event]) -> Vec<&Failure> {
    told.iter().filter_map(|event| if let Event::Failed(failure) = event { Some(failure) } else { None }).collect()
}

/// Sends objects of these lengths, and checks that every member gets them.
fn check_delivery(members: u32, root: u32, settings: &BulkSettings, kind: Kind, sizes: &[u64]) {
    let mut cluster = Cluster::new(nodes(members, root, settings, kind));
    check_objects(&mut cluster, root, sizes);
}

fn check_objects(cluster: &mut Cluster, root: u32, sizes: &[u64]) {
    let start = Instant::now();
    for (i, bytes) in (0..).zip(sizes) {
        loop {
            match cluster.root(root).send(content(i, *bytes)) {
                Ok(object) => break assert_eq!(object, ObjectId(i)),
                Err(BulkSendError::Session(spindle_core::rdmc::SendError::Full { .. })) => _ = cluster.turn(),
                Err(error) => panic!("{error}"),
            }
            assert!(start.elapsed() < PATIENCE, "no slot is free");
        }
    }
    cluster.run_until("delivery", |told| completed(told).len() == sizes.len());
    for (_, told) in &cluster.members {
        for ((object, data), (i, bytes)) in completed(told).into_iter().zip((0..).zip(sizes)) {
            assert_eq!(object, i);
            assert!(*data == *content(i, *bytes), "object {i} of {bytes} bytes");
        }
        assert_eq!(failures(told).len(), 0);
    }
    cluster.run_to_rest();
    let everywhere = |event: &&Event| matches!(event, Event::Everywhere { .. });
    assert_eq!(cluster.members[root as usize].1.iter().filter(everywhere).count(), sizes.len());
}

fn algorithms(members: u32) -> Vec<Algorithm> {
    let mut all = vec![Algorithm::BinomialPipeline, Algorithm::Chain, Algorithm::BinomialTree, Algorithm::Sequential];
    if members >= 4 {
        let racks = [(0..members / 2).map(Rank).collect(), (members / 2..members).map(Rank).collect()];
        all.push(Algorithm::Hybrid(Racks::new(racks.into()).unwrap()));
    }
    all
}

const SIZES: [u64; 9] = [1, BLOCK - 1, BLOCK, BLOCK + 1, 0, 2 * BLOCK, 17 * BLOCK + 3, 64 * BLOCK, 5];

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

/// A stream that counts what is sent over it.
#[derive(Debug)]
struct Counted(Connection, Arc<AtomicU64>);

impl Stream for Counted {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send(parts).inspect(|bytes| _ = self.1.fetch_add(*bytes as u64, Ordering::Relaxed))
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        self.0.receive(spaces)
    }

    fn finish(&mut self) {
        self.0.finish();
    }

    fn holds_back(&self) -> bool {
        self.0.holds_back()
    }

    fn has_arrived(&self) -> bool {
        self.0.has_arrived()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
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
        if let Some(Event::Allocate { object, .. }) = told.last() {
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
        assert!(matches!(told[..], [Event::Allocate { object: ObjectId(0), bytes }] if bytes == 10 * BLOCK));
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
                    assert!(matches!(told.last(), Some(Event::Failed(_))), "it is the last");
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
            if let Some(Event::Allocate { object, bytes }) = told[before..].first() {
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
fn against_raw(sends: impl FnOnce(&mut UnixStream)) -> Failure {
    let told = told_by_raw(|far, _| sends(far));
    failures(&told)[0].clone()
}

/// Returns a stream, and its other end, at which a test sends.
fn raw_end() -> (Connection, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Box::new(SocketStream::new(near, &SocketOptions::default()).unwrap()), far)
}

/// Answers a greeting: the answer is the same with the ranks exchanged.
fn greet(far: &mut UnixStream) {
    let mut greeting = [0; 56];
    far.read_exact(&mut greeting).unwrap();
    let (from, to) = (greeting[4], greeting[24]);
    (greeting[4], greeting[24]) = (to, from);
    far.write_all(&greeting).unwrap();
}

fn told_by_raw(sends: impl FnOnce(&mut UnixStream, &mut Cluster)) -> Vec<Event> {
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
        assert!(matches!(failures(&told)[0], Failure { dead: Rank(1), cause: Cause::Reported { by: Rank(0) }, .. }));
    }
}

/// A frame: kind, slot, two words, counters.
fn frame(kind: u64, slot: u64, words: [u64; 2], columns: [u64; 4]) -> Vec<u8> {
    [kind | slot << 32].into_iter().chain(words).chain(columns).flat_map(u64::to_le_bytes).collect()
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
        let Cause::Down(down) = &failure.cause else { panic!("{what}: {failure}") };
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
        let is_told = matches!(failure.cause, Cause::Reported { by: Rank(1) });
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
    let is_greeting =
        |failure: &&Failure| matches!(&failure.cause, Cause::Down(down) if matches!(**down, BulkDown::Greeting { .. }));
    assert!(cluster.members.iter().flat_map(|(_, told)| failures(told)).any(|failure| is_greeting(&failure)));
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

/// The upcalls that a test receives.
#[derive(Debug)]
enum Upcall {
    Complete(u64, Object),
    Everywhere,
    Failed(Failure),
}

struct Reported {
    upcalls: Sender<(usize, Upcall)>,
    group: usize,
}

impl Upcalls for Reported {
    fn allocate(&mut self, _: ObjectId, bytes: u64) -> Option<Buffer> {
        Some(vec![0; bytes as usize].into())
    }

    fn complete(&mut self, object: ObjectId, data: Object) {
        let _ = self.upcalls.send((self.group, Upcall::Complete(object.0, data)));
    }

    fn everywhere(&mut self, _: ObjectId) {
        let _ = self.upcalls.send((self.group, Upcall::Everywhere));
    }

    fn failed(&mut self, failure: Failure) {
        let _ = self.upcalls.send((self.group, Upcall::Failed(failure)));
    }
}

/// Groups of the same members, one for each root, and each member's thread with its part of all of
/// them.
struct Threads {
    threads: Vec<BulkThread>,
    /// By member and root.
    groups: Vec<Vec<BulkGroup>>,
    told: Vec<Receiver<(usize, Upcall)>>,
}

fn threads(members: u32, waiting: Waiting, kind: Kind) -> Threads {
    let settings = settings(Algorithm::BinomialPipeline);
    let mut threads: Vec<BulkThread> = vec![];
    let mut groups: Vec<Vec<BulkGroup>> = vec![];
    let (senders, told): (Vec<_>, Vec<_>) = (0..members).map(|_| channel()).unzip();
    for _ in 0..members {
        threads.push(BulkThread::start(waiting).unwrap());
        groups.push(vec![]);
    }
    for root in 0..members {
        for (me, node) in nodes(members, root, &settings, kind).into_iter().enumerate() {
            let upcalls = Reported { upcalls: senders[me].clone(), group: root as usize };
            groups[me].push(threads[me].run(node, upcalls).unwrap());
        }
    }
    Threads { threads, groups, told }
}

#[test]
fn all_send_at_once_on_threads_however_these_wait() {
    let spin = Waiting::Hybrid { spin_for: Duration::from_micros(200) };
    for (waiting, kind) in [(Waiting::Interrupt, Kind::Unix), (spin, Kind::Tcp), (Waiting::Polling, Kind::Unix)] {
        let members = 4;
        let Threads { threads, groups, told } = threads(members, waiting, kind);
        let bytes = |root: usize, object: u64| 37 * BLOCK * object + 11 * root as u64;
        for object in 0..2 {
            for (root, groups) in groups.iter().enumerate() {
                let data = content(object, bytes(root, object));
                assert_eq!(groups[root].send(data).unwrap(), ObjectId(object));
            }
        }
        for (me, told) in told.iter().enumerate() {
            let mut complete: BTreeMap<usize, u64> = BTreeMap::new();
            let mut everywhere = 0;
            while complete.values().sum::<u64>() < 2 * u64::from(members) || everywhere < 2 {
                match told.recv_timeout(PATIENCE).unwrap() {
                    (root, Upcall::Complete(object, data)) => {
                        let next = complete.entry(root).or_default();
                        assert_eq!(object, *next);
                        assert!(*data == *content(object, bytes(root, object)));
                        *next += 1;
                    }
                    (root, Upcall::Everywhere) => {
                        assert_eq!(root, me);
                        everywhere += 1;
                    }
                    (root, Upcall::Failed(failure)) => panic!("group {root}: {failure}"),
                }
            }
        }
        let leave = |groups: Vec<BulkGroup>| {
            std::thread::spawn(move || groups.into_iter().try_for_each(|group| group.destroy(PATIENCE)))
        };
        let leaving: Vec<_> = groups.into_iter().map(leave).collect();
        leaving.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        drop(threads);
        assert!(told.iter().flat_map(|told| told.try_iter()).next().is_none(), "who leaves in order fails nobody");
    }
}

#[test]
fn a_thread_that_dies_fails_its_groups_at_all_others() {
    let members = 4;
    let Threads { mut threads, groups, told } = threads(members, Waiting::Interrupt, Kind::Tcp);
    groups[0][0].send(content(0, 500 * BLOCK)).unwrap();
    drop(threads.remove(2));
    for me in [0, 1, 3] {
        let mut failed = vec![];
        while failed.len() < members as usize {
            match told[me].recv_timeout(PATIENCE).unwrap() {
                (group, Upcall::Failed(failure)) => {
                    assert_eq!(failure.dead, Rank(2));
                    assert!(!failed.contains(&group), "once");
                    failed.push(group);
                }
                (group, other) => assert_eq!(group, 0, "{other:?}"),
            }
        }
    }
    assert!(matches!(groups[2][2].send(vec![1]), Err(BulkSendError::Destroyed)), "its thread has ended");
    let destroyed = groups.into_iter().next().unwrap().into_iter().next().unwrap().destroy(PATIENCE);
    assert!(matches!(destroyed, Err(DestroyError::Failed(_))), "{destroyed:?}");
}

#[test]
fn an_early_leaver_is_told_which_members_remain() {
    let Threads { threads: _threads, mut groups, told: _told } = threads(2, Waiting::Interrupt, Kind::Unix);
    let destroyed = groups[0].remove(0).destroy(Duration::from_millis(1));
    assert!(matches!(destroyed, Err(DestroyError::TimedOut { open: 1, .. })), "{destroyed:?}");
}

/// Creates a group in which members of the same number in `hosts` share a host.
fn across(hosts: &[u32], root: u32, settings: &BulkSettings, kind: Kind) -> Vec<BulkNode> {
    across_over(hosts, root, settings, mesh(hosts.len() as u32, kind))
}

fn across_over(hosts: &[u32], root: u32, settings: &BulkSettings, mesh: Vec<Vec<(Rank, Connection)>>) -> Vec<BulkNode> {
    let members = hosts.len() as u32;
    let hosts = Hosts::new(Rank(root), hosts);
    let mut parts: Vec<Option<LocalPart>> = (0..members).map(|_| None).collect();
    for head in hosts.heads() {
        let here: Vec<Rank> = hosts.on_the_host_of(*head).collect();
        if here.len() > 1 {
            for part in LocalPart::parts_among(&here, members, *head).unwrap() {
                let me = part.me().index();
                parts[me] = Some(part);
            }
        }
    }
    let node = |(me, (streams, part)): (u32, (Vec<(Rank, Connection)>, _))| {
        let is_head = |rank: &Rank| hosts.heads().contains(rank);
        let streams = streams.into_iter().filter(|(peer, _)| is_head(&Rank(me)) && is_head(peer));
        BulkNode::across_hosts(Rank(me), hosts.clone(), settings, streams, part).unwrap()
    };
    (0..).zip(mesh.into_iter().zip(parts)).map(node).collect()
}

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
        cluster.members[0].1.iter().filter(|event| matches!(event, Event::Everywhere { .. })).count()
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
            assert!(matches!(told.last(), Some(Event::Failed(_))), "it is the last");
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
    assert!(matches!(failure, Failure { dead: Rank(1), cause: Cause::Memory(_), .. }), "{failure}");
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
    assert!(matches!(failure, Failure { dead: Rank(0), cause: Cause::Down(_), .. }), "{failure}");
}

#[test]
fn across_hosts_all_members_leave_in_order() {
    let nodes = across(&[1, 1, 2, 2], 2, &BulkSettings::default(), Kind::Unix);
    let (upcalls, told) = channel();
    let thread = BulkThread::start(Waiting::Interrupt).unwrap();
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

fn local(members: u32, root: u32, settings: &BulkSettings) -> Vec<BulkNode> {
    let part = |part| BulkNode::on_one_machine(settings, part).unwrap();
    LocalPart::parts(members, Rank(root)).unwrap().into_iter().map(part).collect()
}

#[test]
fn on_one_machine_objects_are_lent() {
    let settings = BulkSettings { direct_below: BLOCK, ..BulkSettings::default() };
    for members in 1..=9 {
        let root = members / 2;
        let mut cluster = Cluster::new(local(members, root, &settings));
        check_objects(&mut cluster, root, &SIZES);
    }
    let mut cluster = Cluster::new(local(3, 0, &settings));
    let mut segment = Segment::create(5000).unwrap();
    segment.copy_from_slice(&content(0, 5000));
    cluster.root(0).send(segment).unwrap();
    cluster.run_until("delivery", |told| completed(told).len() == 1);
    let at_root = completed(&cluster.members[0].1)[0].1.clone();
    assert!(at_root.segment().is_some(), "what stands in a segment is not copied");
    // The memory of an object lives as long as any member reads it.
    drop(at_root);
    cluster.members[0].1.clear();
    cluster.kill(0);
    assert!(*completed(&cluster.members[2].1)[0].1 == *content(0, 5000));
}

#[test]
fn on_one_machine_a_death_fails_the_group_once_at_each_member() {
    for dead in 0..4 {
        let mut cluster = Cluster::new(local(4, 1, &BulkSettings::default()));
        cluster.root(1).send(content(0, 3)).unwrap();
        cluster.run_until("delivery", |told| completed(told).len() == 1);
        // No member is polled before one of them dies, so the objects that are sent now are not
        // everywhere.
        cluster.root(1).send(content(1, 100_000)).unwrap();
        cluster.root(1).send(content(2, 3)).unwrap();
        let full = cluster.root(1).send(vec![1]);
        assert!(matches!(full, Err(BulkSendError::Session(spindle_core::rdmc::SendError::Full { slots: 2 }))));
        cluster.kill(dead);
        cluster.run_until("the end", |told| !failures(told).is_empty());
        cluster.run_to_rest();
        for (member, (_, told)) in (0..).zip(&cluster.members).filter(|(member, _)| *member != dead) {
            let [failure] = failures(told)[..] else { panic!("{told:?}") };
            assert_eq!(failure.dead, Rank(dead), "{member}: {failure}");
            assert_eq!(failure.objects.is_empty(), member != 1, "the root says what is not everywhere");
            let complete: Vec<_> = completed(told).into_iter().map(|(object, _)| object).collect();
            assert_eq!(complete, (0..complete.len() as u64).collect::<Vec<_>>(), "a prefix");
        }
    }
}

#[test]
fn on_one_machine_threads_leave_in_order_and_parts_pass_as_descriptors() {
    let (upcalls, told) = channel();
    let thread = BulkThread::start(Waiting::Interrupt).unwrap();
    let mut groups = vec![];
    for (me, part) in LocalPart::parts(3, Rank(0)).unwrap().into_iter().enumerate() {
        let fds = part.into_fds();
        assert_eq!(fds.len(), if me == 0 { 2 } else { 1 });
        let part = LocalPart::from_fds(3, Rank(me as u32), Rank(0), fds).unwrap();
        let node = BulkNode::on_one_machine(&BulkSettings::default(), part).unwrap();
        groups.push(thread.run(node, Reported { upcalls: upcalls.clone(), group: me }).unwrap());
    }
    let mut segment = groups[0].segment(200_000).unwrap();
    segment.copy_from_slice(&content(0, 200_000));
    groups[0].send(segment).unwrap();
    let mut complete = 0;
    while complete < 3 {
        if let (_, Upcall::Complete(0, data)) = told.recv_timeout(PATIENCE).unwrap() {
            assert!(*data == *content(0, 200_000));
            complete += 1;
        }
    }
    let leaving: Vec<_> = groups.into_iter().map(|group| std::thread::spawn(|| group.destroy(PATIENCE))).collect();
    leaving.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    let part = |fds| LocalPart::from_fds(3, Rank(0), Rank(0), fds).map(drop);
    assert!(matches!(part(vec![]), Err(BulkLinksError::Connections { times: 0, expected: 2, .. })));
}

#[test]
fn on_one_machine_nonsense_closes_the_group_with_its_reason() {
    const OBJECT: u64 = 6;
    let greeting = |near: &OwnedFd| {
        let mut bytes = [0; 56];
        assert_eq!(rustix::net::recv(near, &mut bytes, rustix::net::RecvFlags::empty()).unwrap().1, 56);
        bytes
    };
    type Is = fn(&BulkDown) -> bool;
    let cases: Vec<(&str, Vec<u8>, Is)> = vec![
        ("too short", vec![1; 20], |down| matches!(down, BulkDown::Garbage { .. })),
        ("no frame", vec![1; 56], |down| matches!(down, BulkDown::Garbage { .. })),
        ("an object without memory", frame(OBJECT, 0, [0, 9], [0; 4]), |down| matches!(down, BulkDown::Garbage { .. })),
        ("an object of another length", [frame(OBJECT, 1, [0, 9], [0; 4]), vec![1; 8]].concat(), |down| {
            matches!(down, BulkDown::Garbage { .. })
        }),
        ("an object in memory that was never handed over", frame(OBJECT, 0, [0, 9], [5, 0, 0, 0]), |down| {
            matches!(down, BulkDown::Garbage { .. })
        }),
        ("an object without its memory", frame(OBJECT, 2, [0, 9], [5, 4096, 0, 0]), |down| {
            matches!(down, BulkDown::Garbage { .. })
        }),
        ("another object", [frame(OBJECT, 1, [1, 9], [0; 4]), vec![1; 9]].concat(), |down| {
            matches!(down, BulkDown::Garbage { word: 1 })
        }),
        ("a count to who is no root", frame(7, 0, [0, 0], [0; 4]), |down| matches!(down, BulkDown::Garbage { .. })),
        ("nothing", vec![], |down| matches!(down, BulkDown::Closed)),
    ];
    for (what, bytes, is) in cases {
        let mut parts = LocalPart::parts(2, Rank(0)).unwrap();
        let node = BulkNode::on_one_machine(&BulkSettings::default(), parts.pop().unwrap()).unwrap();
        let root = parts.pop().unwrap().into_fds().pop().unwrap();
        let mut answer = greeting(&root);
        (answer[4], answer[24]) = (answer[24], answer[4]);
        let send = |bytes: &[u8]| rustix::net::send(&root, bytes, rustix::net::SendFlags::empty()).unwrap();
        send(&answer);
        if !bytes.is_empty() {
            send(&bytes);
        }
        let mut cluster = Cluster::new(vec![node]);
        if bytes.is_empty() {
            drop(root);
        }
        cluster.run_until("the end", |told| !failures(told).is_empty());
        let failure = failures(&cluster.members[0].1)[0];
        let Cause::Down(down) = &failure.cause else { panic!("{what}: {failure}") };
        assert!(is(down), "{what}: {down:?}");
    }
}

#[test]
fn memory_is_reused_when_no_process_reads_it() {
    let mut cluster = Cluster::new(local(3, 0, &BulkSettings::default()));
    let sends = |cluster: &mut Cluster, count: u64| {
        let mut segment = cluster.root(0).segment(100_000).unwrap();
        let start = segment.as_ptr() as usize;
        segment.copy_from_slice(&content(count, 100_000));
        cluster.root(0).send(segment).unwrap();
        cluster.run_until("delivery", |told| completed(told).len() as u64 == 1);
        let data: Vec<Object> =
            cluster.members.iter_mut().map(|(_, told)| completed(&std::mem::take(told)).remove(0).1).collect();
        assert!(data.iter().all(|data| **data == *content(count, 100_000)));
        cluster.run_to_rest();
        cluster.members.iter_mut().for_each(|(_, told)| told.clear());
        (start, data)
    };
    let (first, read) = sends(&mut cluster, 0);
    let (second, also_read) = sends(&mut cluster, 1);
    assert_ne!(first, second, "it is read");
    // One of the receivers, the root, and both but the root still have it.
    let [at_root, at_one, at_two]: [Object; 3] = read.try_into().unwrap();
    drop([at_one]);
    let (third, third_read) = sends(&mut cluster, 2);
    assert!(third != first && third != second);
    drop(at_two);
    let (fourth, fourth_read) = sends(&mut cluster, 3);
    assert_ne!(fourth, first, "the root's application has it");
    drop(at_root);
    let where_mapped = third_read[1].as_ptr();
    drop(third_read);
    let (fifth, fifth_read) = sends(&mut cluster, 4);
    assert!(fifth == first || fifth == third);
    assert!(fifth != third || fifth_read[1].as_ptr() == where_mapped, "and the others have it mapped");
    // Objects that are still read have not changed.
    assert!(also_read.iter().all(|data| **data == *content(1, 100_000)));
    assert!(fourth_read.iter().all(|data| **data == *content(3, 100_000)));
    // The same object in two groups, one of which ends while it is read: the other does not use its
    // memory.
    let mut other = Cluster::new(local(2, 0, &BulkSettings::default()));
    let mut segment = cluster.root(0).segment(300_000).unwrap();
    let shared_at = segment.as_ptr() as usize;
    segment.copy_from_slice(&content(50, 300_000));
    let shared = Object::from(segment);
    cluster.root(0).send(shared.clone()).unwrap();
    other.root(0).send(shared).unwrap();
    for cluster in [&mut cluster, &mut other] {
        cluster.run_until("delivery", |told| completed(told).len() == 1);
    }
    let still_read = completed(&other.members[1].1).remove(0).1;
    drop(other);
    cluster.members.iter_mut().for_each(|(_, told)| told.clear());
    cluster.run_to_rest();
    assert_ne!(cluster.root(0).segment(300_000).unwrap().as_ptr() as usize, shared_at);
    assert!(*still_read == *content(50, 300_000));
    // More than are kept.
    let many: Vec<_> = (5..20).map(|count| sends(&mut cluster, count)).collect();
    for (count, (_, data)) in (5..).zip(&many) {
        assert!(data.iter().all(|data| **data == *content(count, 100_000)));
    }
}

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
            Event::Allocate { object, bytes } => Some((member, *object, *bytes)),
            _ => None,
        }));
        if !awaited.is_empty() && chance.one_in(2) {
            let (member, object, bytes) = awaited.swap_remove(chance.below(awaited.len() as u64) as usize);
            if let Some(node) = &mut cluster.members[member as usize].0 {
                let posted = node.post_receive_buffer(object, vec![0xee; bytes as usize]);
                assert!(posted.is_ok() || node.failure().is_some(), "{posted:?}");
            }
        }
        let is_over = |(node, told): &(Option<BulkNode>, Vec<Event>)| {
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
        let everywhere = |event: &&Event| matches!(event, Event::Everywhere { .. });
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
