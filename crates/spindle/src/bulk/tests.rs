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

mod across_hosts;
mod delivery;
mod failing;
mod on_one_machine;
mod random_groups;
mod threads;

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
    members: Vec<(Option<BulkNode>, Vec<BulkEvent>)>,
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
                if let BulkEvent::Allocate { object, bytes } = event {
                    match node.post_receive_buffer(*object, vec![0; *bytes as usize]) {
                        Ok(()) => worked = true,
                        Err(error) => assert!(node.failure().is_some(), "{error}"),
                    }
                }
            }
        }
        worked
    }

    fn run_until(&mut self, what: &str, is_done: impl Fn(&[BulkEvent]) -> bool) {
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

fn completed(told: &[BulkEvent]) -> Vec<(u64, Object)> {
    let complete = |event: &BulkEvent| match event {
        BulkEvent::Complete { object, data } => Some((object.0, data.clone())),
        _ => None,
    };
    told.iter().filter_map(complete).collect()
}

fn failures(told: &[BulkEvent]) -> Vec<&BulkFailure> {
    told.iter().filter_map(|event| if let BulkEvent::Failed(failure) = event { Some(failure) } else { None }).collect()
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
                Err(BulkSendError::Session(spindle_core::rdmc::SessionSendError::Full { .. })) => _ = cluster.turn(),
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
    let everywhere = |event: &&BulkEvent| matches!(event, BulkEvent::Everywhere { .. });
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

/// A frame: kind, slot, two words, counters.
fn frame(kind: u64, slot: u64, words: [u64; 2], columns: [u64; 4]) -> Vec<u8> {
    [kind | slot << 32].into_iter().chain(words).chain(columns).flat_map(u64::to_le_bytes).collect()
}

/// The upcalls that a test receives.
#[derive(Debug)]
enum Upcall {
    Complete(u64, Object),
    Everywhere,
    Failed(BulkFailure),
}

struct Reported {
    upcalls: Sender<(usize, Upcall)>,
    group: usize,
}

impl BulkUpcalls for Reported {
    fn allocate(&mut self, _: ObjectId, bytes: u64) -> Option<Buffer> {
        Some(vec![0; bytes as usize].into())
    }

    fn complete(&mut self, object: ObjectId, data: Object) {
        let _ = self.upcalls.send((self.group, Upcall::Complete(object.0, data)));
    }

    fn everywhere(&mut self, _: ObjectId) {
        let _ = self.upcalls.send((self.group, Upcall::Everywhere));
    }

    fn failed(&mut self, failure: BulkFailure) {
        let _ = self.upcalls.send((self.group, Upcall::Failed(failure)));
    }
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

fn local(members: u32, root: u32, settings: &BulkSettings) -> Vec<BulkNode> {
    let part = |part| BulkNode::on_one_machine(settings, part).unwrap();
    LocalPart::parts(members, Rank(root)).unwrap().into_iter().map(part).collect()
}
