//! The conformance suite over libfabric's providers for ordinary networks, and network cases that
//! the suite does not cover.
//!
//! With `SPINDLE_OFI_PROVIDER`, `SPINDLE_OFI_DOMAIN` and `SPINDLE_OFI_ADDRESS` all of it runs over
//! another network, such as a real network card.
use crate::error::OfiError;
use crate::ffi::{FI_EOVERRUN, FI_MR_ALLOCATED, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR};
use crate::hello::{HelloMismatch, MessageHead, MessageKind, OfiHello, RingTarget};
use crate::objects::{ActiveEndpoint, Adapter, Completion, ConnectionEvent, PassiveEndpoint, Piece};
use crate::provider;
use crate::{LinkPurpose, OfiAddress, OfiMeeting, OfiOptions, OfiPort, available};
use spindle_core::{Layout, Rank, Rows, Table, ViewId};
use spindle_fabric::conformance::links::{
    self as shared, COUNT, EVERYONE, OTHER, TestRandom, down, layout, progress_until, put, ring,
};
use spindle_fabric::conformance::resuming::Pair;
use spindle_fabric::conformance::{Harness, PATIENCE};
use spindle_fabric::tcp::Down;
use spindle_fabric::{
    Arena, Connections, CopyRegion, Fabric, MemberEventCount, Mirror, OwnRow, Peer, RowDescriptors, Watched,
};
use spindle_transport::{SocketOptions, SocketStream};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

mod breaking;
mod connecting;
mod ending;

pub(crate) type Mesh = spindle_fabric::Mesh<OfiMeeting>;

pub(crate) const PURPOSE: LinkPurpose = LinkPurpose { incarnation: 0x5eed, view: ViewId(1) };

/// Returns options for `provider`, unless the environment requests others.
fn options(provider: &str) -> OfiOptions {
    let told = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let address = match told("SPINDLE_OFI_ADDRESS") {
        Some(address) => Some(address.parse().expect("SPINDLE_OFI_ADDRESS is an IP address")),
        None if told("SPINDLE_OFI_PROVIDER").is_none() => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
        None => None,
    };
    let provider = told("SPINDLE_OFI_PROVIDER").unwrap_or(provider.to_string());
    OfiOptions { provider: Some(provider), domain: told("SPINDLE_OFI_DOMAIN"), address }
}

/// Returns true if there is a libfabric with this provider, and prints a message if there is none.
/// A provider that the environment requests has to be there.
pub(crate) fn is_here(provider: &str) -> bool {
    match OfiPort::open(&options(provider), 1) {
        Ok(_) => true,
        Err(error @ (OfiError::NoLibrary { .. } | OfiError::NoProvider { .. }))
            if std::env::var_os("SPINDLE_OFI_PROVIDER").is_none() =>
        {
            println!("skipped: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Connects all members of a view, in this thread.
fn connect(layout: &Layout, provider: &str) -> Vec<Mesh> {
    connect_through(layout, |peers| OfiPort::open(&options(provider), peers).unwrap())
}

/// As if memory had to be treated as hardware requires.
fn connect_as_hardware(layout: &Layout, provider: &str) -> Vec<Mesh> {
    connect_through(layout, |_| hardware_port(provider))
}

pub(crate) fn hardware_port(provider: &str) -> OfiPort {
    let mut info = provider::choose(&options(provider)).unwrap();
    info.need(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
    OfiPort::of(info, 1).unwrap()
}

/// Ends the connection of `mesh` to `rank` as a network would.
pub(crate) fn shut(mesh: &mut Mesh, rank: Rank) {
    mesh.connections_mut().expect("it is connected through libfabric").links_mut().shut_rank(rank);
}

/// Returns the number of connections of `mesh` that were begun.
pub(crate) fn begun(mesh: &Mesh) -> u32 {
    mesh.connections().expect("it is connected through libfabric").links().begun()
}

/// A member whose connections are being made.
#[derive(Debug)]
struct Forming {
    layout: Layout,
    own: OwnRow,
    parts: RowDescriptors,
    meeting: OfiMeeting,
}

impl Forming {
    /// Creates member `me`, which is to be connected with all `peers` that have an address.
    fn new(
        port: OfiPort,
        layout: &Layout,
        me: u32,
        purpose: LinkPurpose,
        peers: impl IntoIterator<Item = (u32, OfiAddress)>,
    ) -> Result<Forming, OfiError> {
        let (own, parts) =
            OwnRow::create(layout, Rank(me), &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap();
        let mut meeting = port.meet(layout, &own, purpose)?;
        for (peer, address) in peers {
            if peer < me {
                meeting.expect(Rank(peer));
            } else {
                meeting.call(Rank(peer), &address)?;
            }
        }
        Ok(Forming { layout: layout.clone(), own, parts, meeting })
    }

    fn progress(&mut self) -> Result<bool, OfiError> {
        self.meeting.progress()
    }

    fn finish(self, at_most: Duration) -> Result<Mesh, OfiError> {
        self.finish_with(vec![], at_most)
    }

    /// Finishes with these peers on the same machine.
    fn finish_with(mut self, mut here: Vec<(Rank, RowDescriptors)>, at_most: Duration) -> Result<Mesh, OfiError> {
        self.meeting.wait(at_most)?;
        let me = self.own.me();
        let others = (0..self.layout.rows().len() as u32).map(Rank).filter(|rank| *rank != me);
        let peers = others.map(|rank| {
            let parts = here.extract_if(.., |(of, _)| *of == rank).next();
            (rank, parts.map(|(_, parts)| Peer::Here(parts)))
        });
        Ok(Mesh::over(&self.layout, self.own, peers, Some(self.meeting)).unwrap())
    }
}

/// Connects two members on each machine.
fn connect_mixed(layout: &Layout, provider: &str) -> Vec<Mesh> {
    connect_among(layout, |rank| rank / 2, |peers| OfiPort::open(&options(provider), peers).unwrap())
}

fn connect_through(layout: &Layout, port: impl Fn(u32) -> OfiPort) -> Vec<Mesh> {
    connect_among(layout, |rank| rank, port)
}

fn connect_among(layout: &Layout, machine: impl Fn(u32) -> u32, port: impl Fn(u32) -> OfiPort) -> Vec<Mesh> {
    let members = layout.rows().len() as u32;
    let ports: Vec<OfiPort> = (0..members).map(|_| port(members - 1)).collect();
    let addresses: Vec<OfiAddress> = ports.iter().map(|port| port.address().clone()).collect();
    let mut forming: Vec<Forming> = (0..members)
        .zip(ports)
        .map(|(me, port)| {
            let others = (0..members).zip(addresses.iter().cloned());
            let others = others.filter(|(rank, _)| machine(*rank) != machine(me));
            Forming::new(port, layout, me, PURPOSE, others).unwrap()
        })
        .collect();
    let start = Instant::now();
    while !forming.iter_mut().fold(true, |all, forming| forming.progress().unwrap() & all) {
        assert!(start.elapsed() < PATIENCE, "members are not connected");
        std::thread::yield_now();
    }
    let machine = &machine;
    let here = |me: u32| (0..members).filter(move |rank| *rank != me && machine(*rank) == machine(me));
    let parts: Vec<Vec<_>> = (0..members)
        .map(|me| here(me).map(|rank| (Rank(rank), forming[rank as usize].parts.try_clone().unwrap())).collect())
        .collect();
    forming.into_iter().zip(parts).map(|(forming, parts)| forming.finish_with(parts, PATIENCE).unwrap()).collect()
}

/// Makes progress until everything that was posted to a living member has arrived there.
fn settle(fabrics: &mut [Mesh]) {
    let start = Instant::now();
    loop {
        for fabric in fabrics.iter_mut() {
            fabric.progress();
        }
        let arrived = |from: &Mesh, to: &Mesh| match (from.traffic(to.me()), to.traffic(from.me())) {
            (Some(from), Some(to)) => from.waiting_bytes == 0 && from.sent_bytes == to.received_bytes,
            _ => true,
        };
        let pairs = || fabrics.iter().flat_map(|from| fabrics.iter().map(move |to| (from, to)));
        if pairs().filter(|(from, to)| from.me() != to.me()).all(|(from, to)| arrived(from, to)) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "posts did not arrive");
        std::thread::yield_now();
    }
}

macro_rules! suite {
    ($module:ident, $connect:ident, $provider:literal) => {
        mod $module {
            use super::*;

            struct Over;

            impl Harness for Over {
                type Fabric = Mesh;

                fn connect(layout: &Layout) -> Vec<Mesh> {
                    $connect(layout, $provider)
                }

                fn settle(fabrics: &mut [Mesh]) {
                    settle(fabrics);
                }

                fn is_here() -> bool {
                    is_here($provider)
                }
            }

            spindle_fabric::conformance_suite!(Over);
        }
    };
}

suite!(over_tcp, connect, "tcp");
suite!(over_tcp_as_hardware, connect_as_hardware, "tcp");
suite!(over_tcp_beside_memory, connect_mixed, "tcp");

pub(crate) fn port(peers: u32) -> OfiPort {
    OfiPort::open(&options("tcp"), peers).unwrap()
}

/// A process that is not a member, on this machine.
struct Stranger {
    listener: PassiveEndpoint,
    adapter: Arc<Adapter>,
    slab: Arc<CopyRegion>,
}

impl Stranger {
    fn new() -> Stranger {
        let adapter = Adapter::open(provider::choose(&options("tcp")).unwrap()).unwrap();
        adapter.open_queue(64).unwrap();
        let slab = Arc::new(CopyRegion::on_heap("a stranger's messages", 4096).unwrap());
        Stranger { listener: adapter.listen().unwrap(), adapter, slab }
    }

    fn address(&self, like: &OfiAddress) -> OfiAddress {
        let format = &like.to_bytes()[..4];
        OfiAddress::from_bytes(&[format, &self.listener.address().unwrap()].concat()).unwrap()
    }

    fn call(&self, to: &OfiAddress, data: &[u8]) -> ActiveEndpoint {
        let address = &to.to_bytes()[4..];
        let endpoint = self.adapter.endpoint_to(0, address).unwrap();
        endpoint.connect(address, data).unwrap();
        endpoint
    }

    /// Returns the next event, while `others` make progress.
    fn event(&self, mut others: impl FnMut()) -> ConnectionEvent {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "nothing happens");
            others();
            if let Some(event) = self.adapter.event().unwrap() {
                return event;
            }
            self.adapter.completions(0, &mut [Completion::Done { context: 0, bytes: 0 }; 4]).unwrap();
            std::thread::yield_now();
        }
    }

    fn send(&self, endpoint: &ActiveEndpoint, bytes: &[u8]) {
        // SAFETY: the test reads the slab only after this.
        unsafe { self.slab.write(0, bytes) };
        let start = self.slab.pointer(&(0..4096));
        let piece = Piece { start, bytes: bytes.len() as u64, description: std::ptr::null_mut() };
        // SAFETY: nothing else is sent from there.
        unsafe { endpoint.send(piece, 0, 0) }.unwrap();
    }
}

/// Creates member 1 of a view of two, at the beginning of a meeting. Returns its address, too.
fn expecting(layout: &Layout) -> (Forming, OfiAddress) {
    let port = port(1);
    let address = port.address().clone();
    let forming = Forming::new(port, layout, 1, PURPOSE, [(0, address.clone())]).unwrap();
    (forming, address)
}

/// Returns the hello of member 0 to member 1.
fn hello(layout: &Layout) -> OfiHello {
    OfiHello::new(PURPOSE, Rank(0), layout.row(Rank(0)), layout.row(Rank(1)), RingTarget { address: 0, key: 1 })
}

/// Returns true if the reason is the expected one.
type IsTold = fn(&HelloMismatch) -> bool;

/// A peer that does not read stops no other member, neither the poster nor a third. The data that
/// waits for it is bounded by the row.
#[test]
fn a_peer_that_does_not_read_stops_no_other() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(3);
    let mut fabrics = connect(&layout, "tcp");
    let ring = ring(&layout);
    let words = (ring.end - ring.start) / 8;
    let before = fabrics[0].traffic(Rank(2)).unwrap().sent_bytes;
    for value in 1..=20_000 {
        let at = ring.start + value % words * 8;
        put(&mut fabrics[0], at, value);
        put(&mut fabrics[0], COUNT, value);
        fabrics[0].progress();
        fabrics[1].progress();
        if value % 100 == 0 {
            let start = Instant::now();
            while fabrics[1].load(Rank(0), COUNT) != value {
                assert!(start.elapsed() < PATIENCE, "{value} does not arrive");
                fabrics[..2].iter_mut().for_each(|fabric| _ = fabric.progress());
            }
        }
    }
    let stuck = fabrics[0].traffic(Rank(2)).unwrap();
    assert!(stuck.waiting_bytes > 0 && stuck.sent_bytes - before < 1 << 12, "{stuck:?}");
    assert!(stuck.waiting_bytes <= ring.end, "{stuck:?}");
    assert_eq!(fabrics[2].load(Rank(0), COUNT), 0);
    settle(&mut fabrics);
    for fabric in &fabrics {
        assert_eq!(fabric.load(Rank(0), COUNT), 20_000);
        let all = fabric.bytes(Rank(0), ring.start, ring.end - ring.start);
        assert_eq!(all, fabrics[0].bytes(Rank(0), ring.start, ring.end - ring.start));
    }
}

/// A word that was stored and not posted stays here, whatever happens to its neighbours, also if
/// they have to wait and merge.
#[test]
fn words_that_are_not_posted_do_not_leave() {
    if !is_here("tcp") {
        return;
    }
    for full in [false, true] {
        let mut fabrics = connect(&layout(2), "tcp");
        let fabric = &mut fabrics[0];
        let waits = |fabric: &Mesh| fabric.traffic(Rank(1)).unwrap().waiting_bytes > 0;
        for value in 1..1000 {
            if full && !waits(fabric) {
                put(fabric, OTHER + 8, value);
            }
        }
        assert_eq!(waits(fabric), full);
        put(fabric, COUNT, 1);
        for (at, value) in [(COUNT, 2), (COUNT + 8, 3)] {
            fabric.store(at, value);
        }
        put(fabric, OTHER, 4);
        settle(&mut fabrics);
        let seen = [COUNT, COUNT + 8, OTHER].map(|at| fabrics[1].load(Rank(0), at));
        assert_eq!(seen, [1, 0, 4]);
    }
}

/// An observer with a stream gets the same data as peers with libfabric, and a member that sleeps
/// among connections serves it.
#[test]
fn a_observer_has_a_stream_beside_connections() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let mut fabrics = connect(&layout, "tcp");
    put(&mut fabrics[0], COUNT, 7);
    let [near, far] = <[_; 2]>::from(UnixStream::pair().unwrap())
        .map(|socket| Box::new(SocketStream::new(socket, &SocketOptions::default()).unwrap()));
    fabrics[0].begin_sleep();
    fabrics[0].add_observer(&layout, near).unwrap();
    let doorbell = fabrics[0].doorbell();
    assert!(doorbell.ring());
    assert!(fabrics[0].sleep(PATIENCE), "an observer that comes in between makes no difference to who rings");
    let mut watched = Watched::new(&layout, vec![Some(Peer::There(far)), None], &Mirror::new()).unwrap();
    put(&mut fabrics[0], OTHER, 8);
    let start = Instant::now();
    while watched.rows().load(Rank(0), OTHER) != 8 {
        assert!(start.elapsed() < PATIENCE, "the observer sees nothing");
        fabrics[0].progress();
        watched.progress();
    }
    assert_eq!(watched.rows().load(Rank(0), COUNT), 7);
    settle(&mut fabrics);
    assert_eq!([COUNT, OTHER].map(|at| fabrics[1].load(Rank(0), at)), [7, 8]);
    // The end of the observer ends a sleep.
    drop(watched);
    while fabrics[0].observers() > 0 {
        assert!(start.elapsed() < PATIENCE, "it is not noticed");
        fabrics[0].begin_sleep();
        fabrics[0].sleep(PATIENCE);
        fabrics[0].progress();
    }
}

/// Garbage costs its sender the connection, and nothing else.
#[test]
fn garbage_ends_the_connection_of_its_sender() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let row = layout.row(Rank(0));
    let head = |at, len, bytes: usize| {
        let mut message =
            MessageHead { at, len, taken: 0, kind: MessageKind::Post, written: 0 }.encode().as_flattened().to_vec();
        message.resize(bytes, 5);
        message
    };
    let cases = [
        head(row.control, 8, 32),
        head(0, 16, 32),
        head(COUNT, 0, 32),
        head(u64::MAX >> 29, 8, 32),
        vec![0xff; 24],
        vec![0; 8],
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let (mut forming, address) = expecting(&layout);
        let stranger = Stranger::new();
        let endpoint = stranger.call(&address, &hello(&layout).encode());
        let event = stranger.event(|| _ = forming.progress().unwrap());
        assert!(matches!(event, ConnectionEvent::Connected { .. }), "case {i}: {event:?}");
        let mut fabric = forming.finish(PATIENCE).unwrap();
        stranger.send(&endpoint, &head(COUNT, 8, 32));
        progress_until(&mut fabric, "what is right", |fabric| fabric.load(Rank(0), COUNT) != 0);
        stranger.send(&endpoint, &case);
        let (rank, why) = down(&mut fabric);
        assert!(matches!((rank, &why), (Rank(0), Down::Garbage { .. })), "case {i}: {why}");
        assert!(!fabric.is_connected(Rank(0)) && fabric.next_down().is_none());
        let seen = (0..row.size).step_by(8).filter(|at| fabric.load(Rank(0), *at) != 0);
        assert_eq!(seen.collect::<Vec<_>>(), [COUNT], "case {i}");
    }
}

/// Connects all members of a view, without the fabric above them.
fn bare(layout: &Layout) -> Vec<OfiMeeting> {
    let members = layout.rows().len() as u32;
    let ports: Vec<OfiPort> = (0..members).map(|_| port(members - 1)).collect();
    let addresses: Vec<OfiAddress> = ports.iter().map(|port| port.address().clone()).collect();
    let forming = (0..members).zip(ports).map(|(me, port)| {
        let others = (0..members).zip(addresses.iter().cloned()).filter(|(rank, _)| *rank != me);
        Forming::new(port, layout, me, PURPOSE, others).unwrap()
    });
    let mut forming: Vec<Forming> = forming.collect();
    let start = Instant::now();
    while !forming.iter_mut().fold(true, |all, forming| forming.progress().unwrap() & all) {
        assert!(start.elapsed() < PATIENCE, "members are not connected");
        std::thread::yield_now();
    }
    // No byte is ever written to it.
    let (event_count, _other) = UnixStream::pair().unwrap();
    let begin = |mut forming: Forming| {
        forming.meeting.begin(event_count.as_fd()).unwrap();
        forming.meeting
    };
    forming.into_iter().map(begin).collect()
}

/// Returns the first end that `member` reports.
fn first_end(member: &mut OfiMeeting) -> (Rank, Down) {
    let start = Instant::now();
    loop {
        member.advance();
        if let Some(down) = member.next_down() {
            return down;
        }
        assert!(start.elapsed() < PATIENCE, "nobody has noticed");
        std::thread::yield_now();
    }
}

/// A ring ends one sleep only. Later sleeps last their full time; otherwise an idle member would
/// never rest.
#[test]
fn a_ring_ends_one_sleep() {
    if !is_here("tcp") {
        return;
    }
    let mut fabrics = connect(&layout(2), "tcp");
    settle(&mut fabrics);
    let fabric = &mut fabrics[0];
    let doorbell = fabric.doorbell();
    for rings in [1, 0, 1] {
        fabric.begin_sleep();
        assert_eq!((0..rings).filter(|_| doorbell.ring()).count(), rings);
        assert_eq!(fabric.sleep(Duration::from_millis(1)), rings > 0);
        let (mut sleeps, start) = (0, Instant::now());
        while start.elapsed() < Duration::from_millis(20) {
            fabric.begin_sleep();
            assert!(!fabric.sleep(Duration::from_millis(20)));
            sleeps += 1;
        }
        assert!(sleeps < 100, "{sleeps} sleeps in 20 ms");
    }
}

#[test]
fn nothing_is_announced_before_it_is_there() {
    if is_here("tcp") {
        shared::nothing_is_announced_before_it_is_there(0..20, |_, layout| connect(layout, "tcp"));
    }
}

#[test]
fn engines_agree_over_libfabric() {
    if is_here("tcp") {
        shared::engines_agree(1..4, |_, layout| connect(layout, "tcp"));
    }
}

/// Lets both make progress until `is_done`.
fn advance_until(members: &mut [OfiMeeting], what: &str, mut is_done: impl FnMut(&mut [OfiMeeting]) -> bool) {
    let start = Instant::now();
    while !is_done(members) {
        assert!(start.elapsed() < PATIENCE, "{what}: nothing after {PATIENCE:?}");
        members.iter_mut().for_each(|member| _ = member.advance());
        std::thread::yield_now();
    }
}
