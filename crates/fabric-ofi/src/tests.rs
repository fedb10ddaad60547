//! The conformance suite over libfabric's providers for ordinary networks, and network cases that
//! the suite does not cover.
//!
//! With `SPINDLE_OFI_PROVIDER`, `SPINDLE_OFI_DOMAIN` and `SPINDLE_OFI_ADDRESS` all of it runs over
//! another network, such as a real network card.
use crate::error::OfiError;
use crate::ffi::{FI_EOVERRUN, FI_MR_ALLOCATED, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR};
use crate::hello::{Head, Hello, Kind, Mismatch, Target};
use crate::objects::{Adapter, Completion, Endpoint, Event, Listener, Piece};
use crate::provider;
use crate::{OfiAddress, OfiMeeting, OfiOptions, OfiPort, Purpose, available};
use spindle_core::{Layout, Rank, Rows, Table, ViewId};
use spindle_fabric::conformance::links::{
    self as shared, COUNT, EVERYONE, OTHER, Random, down, layout, progress_until, put, ring,
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

pub(crate) type Mesh = spindle_fabric::Mesh<OfiMeeting>;

pub(crate) const PURPOSE: Purpose = Purpose { incarnation: 0x5eed, view: ViewId(1) };

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
        purpose: Purpose,
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
    listener: Listener,
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

    fn call(&self, to: &OfiAddress, data: &[u8]) -> Endpoint {
        let address = &to.to_bytes()[4..];
        let endpoint = self.adapter.endpoint_to(0, address).unwrap();
        endpoint.connect(address, data).unwrap();
        endpoint
    }

    /// Returns the next event, while `others` make progress.
    fn event(&self, mut others: impl FnMut()) -> Event {
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

    fn send(&self, endpoint: &Endpoint, bytes: &[u8]) {
        self.slab.fill(0, bytes);
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
fn hello(layout: &Layout) -> Hello {
    Hello::new(PURPOSE, Rank(0), layout.row(Rank(0)), layout.row(Rank(1)), Target { address: 0, key: 1 })
}

#[test]
fn the_status_is_reported() {
    if !is_here("tcp") {
        return;
    }
    let providers = available().unwrap();
    for provider in &providers {
        println!("{provider:?}");
    }
    let asked = options("tcp").provider;
    assert!(providers.iter().any(|provider| Some(&provider.name) == asked.as_ref() && provider.usable));
    let error = |name: &str| {
        let options = OfiOptions { provider: Some(name.to_string()), ..OfiOptions::default() };
        OfiPort::open(&options, 1).map(|_| ()).unwrap_err()
    };
    let none = error("nothing");
    assert!(matches!(&none, OfiError::NoProvider { there, .. } if there.contains(&asked.unwrap())), "{none}");
    assert!(providers.iter().all(|provider| !provider.usable || !provider.name.contains("sockets")));
    assert!(matches!(error("a\0b"), OfiError::NoProvider { .. }));
    for provider in providers.iter().filter(|provider| !provider.usable) {
        assert!(!["tcp", "verbs"].contains(&&*provider.name));
        let unsupported = error(&provider.name);
        assert!(matches!(&unsupported, OfiError::Unsupported { .. }), "{unsupported}");
    }
}

#[test]
fn addresses_survive_a_journey_and_garbage_is_none() {
    if !is_here("tcp") {
        return;
    }
    let port = port(1);
    let address = port.address();
    assert_eq!(OfiAddress::from_bytes(&address.to_bytes()).as_ref(), Some(address));
    for bytes in [&[][..], &[2, 0, 0, 0], &[0; 100]] {
        assert_eq!(OfiAddress::from_bytes(bytes), None);
    }
    let layout = layout(2);
    let other = OfiAddress::from_bytes(&[&address.to_bytes()[..], &[0]].concat()).unwrap();
    let error = Forming::new(port, &layout, 0, PURPOSE, [(1, other)]).unwrap_err();
    assert!(matches!(error, OfiError::Address { .. }), "{error}");
}

/// More connections than expected take another queue, in which they sleep as in the first.
#[test]
fn a_port_has_room_for_more_than_it_was_opened_for() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(6);
    let ranks: Vec<Rank> = (0..6).map(Rank).collect();
    let put = |fabric: &mut Mesh, at, value| {
        fabric.store(at, value);
        fabric.post(&ranks, at..at + 8);
    };
    let mut fabrics = connect_through(&layout, |_| port(1));
    for (value, from) in (7..).zip(0..fabrics.len()) {
        put(&mut fabrics[from], COUNT, value);
        settle(&mut fabrics);
        assert!(fabrics.iter().all(|fabric| fabric.load(Rank(from as u32), COUNT) == value));
    }
    let (mut near, rest) = (fabrics.remove(0), fabrics);
    std::thread::scope(|scope| {
        for (value, mut far) in (100..).zip(rest) {
            let put = &put;
            scope.spawn(move || {
                put(&mut far, OTHER, value);
                far.finish(PATIENCE);
            });
        }
        let start = Instant::now();
        while (1..6).any(|rank| near.load(Rank(rank), OTHER) != 99 + u64::from(rank)) {
            assert!(start.elapsed() < PATIENCE, "not all have arrived");
            near.begin_sleep();
            near.progress();
            near.sleep(PATIENCE);
        }
        near.finish(PATIENCE);
    });
}

#[test]
fn ip_of_version_6_carries_posts() {
    let address = Some(IpAddr::from(Ipv6Addr::LOCALHOST));
    let options = OfiOptions { provider: Some("tcp".to_string()), domain: None, address };
    if let Err(error) = OfiPort::open(&options, 1) {
        return println!("skipped: {error}");
    }
    let mut fabrics = connect_through(&layout(2), |peers| OfiPort::open(&options, peers).unwrap());
    put(&mut fabrics[0], COUNT, 7);
    settle(&mut fabrics);
    assert_eq!(fabrics[1].load(Rank(0), COUNT), 7);
}

#[test]
fn an_absent_member_has_a_row_of_zeros() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let forming = Forming::new(port(1), &layout, 0, PURPOSE, []).unwrap();
    let mut fabric = forming.finish(Duration::ZERO).unwrap();
    assert!((0..layout.row(Rank(1)).size).step_by(8).all(|at| fabric.load(Rank(1), at) == 0));
    put(&mut fabric, COUNT, 1);
    assert!(!fabric.is_connected(Rank(1)) && fabric.traffic(Rank(1)).is_none() && fabric.is_flushed());
    assert!(fabric.next_down().is_none() && !fabric.finish(Duration::ZERO));
}

/// Returns true if the reason is the expected one.
type IsTold = fn(&Mismatch) -> bool;

/// Calls with garbage are refused, and the expected peer is connected all the same.
#[test]
fn garbage_for_a_greeting_is_refused() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let (mut forming, address) = expecting(&layout);
    let other_view = Purpose { view: ViewId(2), ..PURPOSE };
    let good = hello(&layout);
    let mut foreign = good.encode();
    foreign[3] ^= 1;
    let from = |rank| Hello { from: Rank(rank), ..good }.encode().to_vec();
    let cases: [(Vec<u8>, IsTold); 7] = [
        (vec![0xff; 52], |why| matches!(why, Mismatch::NoHello { .. })),
        (vec![1, 2, 3, 4], |why| matches!(why, Mismatch::NoHello { .. })),
        (foreign.to_vec(), |why| matches!(why, Mismatch::NoHello { .. })),
        (Hello { purpose: other_view, ..good }.encode().to_vec(), |why| matches!(why, Mismatch::Purpose { .. })),
        (Hello { row: 8, ..good }.encode().to_vec(), |why| matches!(why, Mismatch::Lengths)),
        (from(1), |why| matches!(why, Mismatch::From { .. })),
        (from(9), |why| matches!(why, Mismatch::From { .. })),
    ];
    let stranger = Stranger::new();
    for (i, (data, is_told)) in cases.iter().enumerate() {
        let endpoint = stranger.call(&address, data);
        let event = stranger.event(|| assert!(!forming.progress().unwrap(), "nobody has come"));
        let refused = matches!(event, Event::Failed { .. } | Event::Shutdown { .. });
        assert!(refused, "case {i}: {event:?}");
        let why = forming.meeting.refused().last().expect("it was refused here");
        assert!(is_told(why), "case {i}: {why}");
        drop(endpoint);
    }
    let mut caller = Forming::new(port(1), &layout, 0, PURPOSE, [(1, address.clone())]).unwrap();
    let start = Instant::now();
    while !(caller.progress().unwrap() & forming.progress().unwrap()) {
        assert!(start.elapsed() < PATIENCE, "the member is not let in");
        std::thread::yield_now();
    }
    // A member that calls again has lost its connection.
    let endpoint = stranger.call(&address, &good.encode());
    let event = stranger.event(|| _ = forming.progress().unwrap());
    assert!(matches!(event, Event::Connected { .. }), "{event:?}");
    drop(endpoint);
}

/// The process that answers for a member has to be that member.
#[test]
fn garbage_for_an_answer_is_told() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let stranger = Stranger::new();
    let rows = (layout.row(Rank(1)), layout.row(Rank(0)));
    let me = Hello::new(PURPOSE, Rank(1), rows.0, rows.1, Target { address: 0, key: 1 });
    for data in [vec![0xee; 52], vec![], Hello { from: Rank(0), ..me }.encode().to_vec()] {
        let port = port(1);
        let address = stranger.address(port.address());
        let mut caller = Forming::new(port, &layout, 0, PURPOSE, [(1, address)]).unwrap();
        let event = stranger.event(|| _ = caller.progress().unwrap());
        let Event::Request { info, data: said } = event else { panic!("{event:?}") };
        assert!(Hello::read(&said, PURPOSE, Rank(1), layout.rows()).is_ok());
        let endpoint = stranger.adapter.endpoint_for(0, &info).unwrap();
        endpoint.accept(&data).unwrap();
        let start = Instant::now();
        let error = loop {
            assert!(start.elapsed() < PATIENCE, "garbage is no answer");
            match caller.progress() {
                Ok(connected) => assert!(!connected),
                Err(error) => break error,
            }
            let _ = stranger.adapter.event().unwrap();
        };
        assert!(matches!(error, OfiError::Stranger { rank: Rank(1), .. }), "{error}");
    }
}

#[test]
fn a_member_of_another_view_refuses() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let (mut forming, address) = expecting(&layout);
    let other = Purpose { incarnation: 1, ..PURPOSE };
    let mut caller = Forming::new(port(1), &layout, 0, other, [(1, address)]).unwrap();
    let start = Instant::now();
    let error = loop {
        assert!(start.elapsed() < PATIENCE && !forming.progress().unwrap());
        match caller.progress() {
            Ok(connected) => assert!(!connected),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, OfiError::Refused { rank: Rank(1), .. }), "{error}");
}

/// No member waits for ever: neither for a peer that does not come, nor at an address without a
/// listener.
#[test]
fn meetings_are_bounded() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(3);
    let gone = port(1).address().clone();
    let forming = Forming::new(port(1), &layout, 1, PURPOSE, [(0, gone.clone())]).unwrap();
    let error = forming.finish(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(&error, OfiError::TimedOut { missing, .. } if *missing == [0]), "{error}");
    let error = match Forming::new(port(1), &layout, 0, PURPOSE, [(2, gone)]) {
        Ok(forming) => forming.finish(Duration::from_secs(5)).unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, OfiError::Refused { rank: Rank(2), .. } | OfiError::TimedOut { .. }), "{error}");
}

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

/// A failed call costs only time: it is made again, and data in flight for the first does not
/// affect the second.
#[test]
fn a_call_that_failed_can_be_made_again() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let gone = port(1).address().clone();
    let (mut forming, address) = expecting(&layout);
    let mut caller = Forming::new(port(1), &layout, 0, PURPOSE, []).unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        let error = match caller.meeting.call(Rank(1), &gone) {
            Ok(()) => loop {
                assert!(start.elapsed() < PATIENCE, "nobody is there");
                match caller.progress() {
                    Ok(connected) => assert!(!connected),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        assert!(matches!(error, OfiError::Refused { rank: Rank(1), .. }), "{error}");
        assert!(!caller.meeting.is_connected(Rank(1)));
    }
    caller.meeting.call(Rank(1), &address).unwrap();
    // A second call has no effect.
    caller.meeting.call(Rank(1), &address).unwrap();
    let start = Instant::now();
    while !(caller.progress().unwrap() & forming.progress().unwrap()) {
        assert!(start.elapsed() < PATIENCE, "the member is not let in");
        std::thread::yield_now();
    }
    let mut fabrics = [caller, forming].map(|forming| forming.finish(PATIENCE).unwrap());
    put(&mut fabrics[0], COUNT, 7);
    settle(&mut fabrics);
    assert_eq!(fabrics[1].load(Rank(0), COUNT), 7);
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
        let mut message = Head { at, len, taken: 0, kind: Kind::Post, written: 0 }.encode().as_flattened().to_vec();
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
        assert!(matches!(event, Event::Connected { .. }), "case {i}: {event:?}");
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

/// A peer that has closed is reported, whatever was in flight, and the data that it had sent before
/// is valid.
#[test]
fn a_peer_that_ends_is_told() {
    if !is_here("tcp") {
        return;
    }
    for busy in [false, true] {
        let layout = layout(3);
        let mut fabrics = connect(&layout, "tcp");
        put(&mut fabrics[2], COUNT, 7);
        settle(&mut fabrics);
        if busy {
            for fabric in &mut fabrics {
                for value in 8..50 {
                    fabric.post(&EVERYONE, ring(&layout));
                    put(fabric, OTHER, value);
                }
            }
        }
        drop(fabrics.pop());
        for fabric in &mut fabrics {
            let (rank, why) = down(fabric);
            assert_eq!((rank, fabric.load(Rank(2), COUNT)), (Rank(2), 7), "{why}");
            assert!(!fabric.is_connected(Rank(2)) && fabric.next_down().is_none());
        }
        // The others continue.
        put(&mut fabrics[0], COUNT, 3);
        settle(&mut fabrics);
        assert_eq!(fabrics[1].load(Rank(0), COUNT), 3);
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

/// A peer that sends its last message has ended in order, even if the network reports its end
/// first. Any other end is a break.
#[test]
fn an_end_in_order_is_told_from_a_break() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    for (in_order, is_told_first) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut members = bare(&layout);
        let (mut far, mut near) = (members.pop().unwrap(), members.pop().unwrap());
        if in_order {
            far.links_mut().finish();
            let start = Instant::now();
            while !far.links().is_flushed() {
                assert!(start.elapsed() < PATIENCE, "the last message does not leave");
                far.advance();
            }
        } else {
            far.links_mut().give_up();
        }
        if is_told_first {
            // As by an event that overtakes the completion.
            near.links_mut().shut_rank(Rank(1));
        } else {
            drop(far);
        }
        let (rank, why) = first_end(&mut near);
        assert_eq!((rank, matches!(why, Down::Closed)), (Rank(1), in_order), "told first: {is_told_first}: {why}");
        assert!(near.links().connected() == 0 && near.next_down().is_none());
        assert_eq!(near.cut(), u32::from(!in_order));
    }
}

/// A queue that is overrun may have lost completions of any connection. So all connections have
/// ended, and not in order.
#[test]
fn an_overrun_breaks_all_connections() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(3));
    let near = &mut members[0];
    assert_eq!(near.links().connected(), 2);
    // A provider has no operation to name, so it names none.
    assert!(!near.links_mut().take(Completion::Failed { context: 0, code: FI_EOVERRUN }));
    let mut ended = [first_end(near), first_end(near)];
    ended.sort_by_key(|(rank, _)| *rank);
    for ((rank, why), expected) in ended.iter().zip([Rank(1), Rank(2)]) {
        assert!(*rank == expected && matches!(why, Down::Os { .. }), "{rank}: {why}");
    }
    assert!(near.next_down().is_none());
}

/// A caller that asks for ended peers only after progress learns of those that went while it slept.
#[test]
fn a_peer_that_ends_in_a_sleep_is_progress() {
    if !is_here("tcp") {
        return;
    }
    let mut fabrics = connect(&layout(2), "tcp");
    settle(&mut fabrics);
    drop(fabrics.pop());
    let near = &mut fabrics[0];
    let start = Instant::now();
    while near.is_connected(Rank(1)) {
        assert!(start.elapsed() < PATIENCE, "nobody has noticed");
        near.begin_sleep();
        near.sleep(PATIENCE);
    }
    assert!(near.progress());
    assert!(matches!(near.next_down(), Some((Rank(1), _))));
    assert!(!near.progress());
}

/// The address at which the child that is killed finds its peer.
const CHILD: &str = "SPINDLE_OFI_TEST_CHILD";

/// A process that is killed sends nothing more, and its peers notice, awake or asleep.
#[test]
fn a_process_that_is_killed_is_noticed() {
    let layout = layout(2);
    if let Ok(address) = std::env::var(CHILD) {
        return play_the_child(&layout, &address);
    }
    if !is_here("tcp") {
        return;
    }
    for asleep in [false, true] {
        let (forming, address) = expecting(&layout);
        let bytes: Vec<String> = address.to_bytes().iter().map(|byte| byte.to_string()).collect();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::a_process_that_is_killed_is_noticed"])
            .env(CHILD, bytes.join(" "))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut fabric = forming.finish(PATIENCE).unwrap();
        progress_until(&mut fabric, "the child's word", |fabric| fabric.load(Rank(0), COUNT) == 7);
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        let (rank, why) = loop {
            if let Some(down) = fabric.next_down() {
                break down;
            }
            assert!(start.elapsed() < PATIENCE, "nobody has noticed");
            if asleep {
                fabric.begin_sleep();
                fabric.progress();
                fabric.sleep(PATIENCE);
            } else {
                fabric.progress();
            }
        };
        assert!(rank == Rank(0) && !matches!(why, Down::Closed), "{why}");
        assert_eq!(fabric.load(Rank(0), COUNT), 7);
    }
}

fn play_the_child(layout: &Layout, address: &str) {
    let bytes: Vec<u8> = address.split(' ').map(|byte| byte.parse().unwrap()).collect();
    let address = OfiAddress::from_bytes(&bytes).unwrap();
    let forming = Forming::new(port(1), layout, 0, PURPOSE, [(1, address)]).unwrap();
    let mut fabric = forming.finish(PATIENCE).unwrap();
    put(&mut fabric, COUNT, 7);
    let start = Instant::now();
    while start.elapsed() < PATIENCE && fabric.next_down().is_none() {
        fabric.begin_sleep();
        fabric.progress();
        fabric.sleep(Duration::from_secs(1));
    }
}

/// With an orderly end everything arrives, however slow the peer is.
#[test]
fn a_sender_that_finishes_loses_nothing() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let ring = ring(&layout);
    let mut fabrics = connect(&layout, "tcp");
    let (mut second, mut first) = (fabrics.pop().unwrap(), fabrics.pop().unwrap());
    for at in ring.clone().step_by(8) {
        first.store(at, at);
        second.store(at, at);
    }
    first.post(&EVERYONE[..2], ring.clone());
    second.post(&EVERYONE[..2], ring.clone());
    (1..=1000).for_each(|value| put(&mut first, COUNT, value));
    std::thread::scope(|scope| {
        scope.spawn(move || assert!(first.finish(PATIENCE)));
        let (rank, why) = down(&mut second);
        assert!(matches!((rank, &why), (Rank(0), Down::Closed)), "{why}");
    });
    assert_eq!(second.load(Rank(0), COUNT), 1000);
    assert!(ring.clone().step_by(8).all(|at| second.load(Rank(0), at) == at));
    assert!(!second.finish(Duration::ZERO), "it could tell nobody");
}

/// The same if both finish at once.
#[test]
fn all_can_finish_at_once() {
    if !is_here("tcp") {
        return;
    }
    let mut fabrics = connect(&layout(3), "tcp");
    let readers: Vec<_> = fabrics.iter().map(Fabric::reader).collect();
    fabrics.iter_mut().for_each(|fabric| (1..=100).for_each(|value| put(fabric, COUNT, value)));
    let ended: Vec<bool> = std::thread::scope(|scope| {
        let ending: Vec<_> =
            fabrics.into_iter().map(|mut fabric| scope.spawn(move || fabric.finish(PATIENCE))).collect();
        ending.into_iter().map(|ending| ending.join().unwrap()).collect()
    });
    // The others may have learned that a peer has finished before they could report it.
    assert!(ended.contains(&true), "{ended:?}");
    for reader in readers {
        assert!(EVERYONE.iter().all(|rank| reader.load(*rank, COUNT) > 0));
    }
}

/// A finish is bounded.
#[test]
fn a_peer_that_hangs_does_not_hold_a_finish() {
    if !is_here("tcp") {
        return;
    }
    let mut fabrics = connect(&layout(2), "tcp");
    assert!(!fabrics.remove(0).finish(Duration::from_millis(5)));
}

/// Connections are closed before memory is released, whichever goes first and whatever is in
/// flight, and readers keep their memory.
#[test]
fn memory_outlives_what_moves_in_it() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(3);
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut fabrics = connect(&layout, "tcp");
        let readers: Vec<_> = fabrics.iter().map(Fabric::reader).collect();
        while !fabrics.is_empty() {
            for fabric in &mut fabrics {
                for _ in 0..random.below(10) {
                    fabric.post(&EVERYONE, ring(&layout));
                    put(fabric, COUNT, seed);
                }
            }
            drop(fabrics.remove(random.below(fabrics.len() as u64) as usize));
            fabrics.iter_mut().for_each(|fabric| _ = fabric.progress());
        }
        for reader in readers {
            for rank in EVERYONE {
                assert!((0..layout.row(rank).size).step_by(8).map(|at| reader.load(rank, at)).max().is_some());
            }
        }
    }
}

/// A process that has closed all of its fabrics has no more descriptors than before.
#[test]
fn everything_is_closed_in_the_end() {
    const ALONE: &str = "SPINDLE_OFI_TEST_ALONE";
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    if std::env::var_os(ALONE).is_some() {
        // The library may keep something after the first time.
        drop(connect(&layout(3), "tcp"));
        let before = descriptors();
        for _ in 0..3 {
            let mut fabrics = connect(&layout(3), "tcp");
            put(&mut fabrics[0], COUNT, 1);
            settle(&mut fabrics);
            assert!(descriptors() > before);
        }
        return assert_eq!(descriptors(), before);
    }
    if is_here("tcp") {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::everything_is_closed_in_the_end", "--test-threads", "1"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
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

/// Connections break at any time, at either end, while a ring is written and read. Nothing is lost,
/// and nothing is written twice.
#[test]
fn connections_may_break_at_any_time_and_any_number_of_times() {
    if !is_here("tcp") {
        return;
    }
    let kinds = [connect, connect_as_hardware];
    for seed in 0..40 {
        let case = format!("seed {seed}");
        let mut random = Random(seed);
        let connect = |layout: &Layout| kinds[seed as usize % 2](layout, "tcp").try_into().unwrap();
        let mut pair = Pair::of(connect);
        let (mut breaks, mut resumed) = (0, 0);
        for _ in 0..1500 {
            match random.below(9) {
                0..3 => pair.append(1 + random.below(5)),
                3 => pair.announce(),
                4 => _ = pair.writer.progress(),
                5..8 => pair.read(random.below(2) == 0, &case),
                _ if random.below(16) == 0 => {
                    // So that it breaks again after it was resumed.
                    let start = Instant::now();
                    while !pair.writer.is_connected(Rank(1)) || !pair.reader.is_connected(Rank(0)) {
                        assert!(start.elapsed() < PATIENCE, "{case}: not connected again");
                        pair.writer.progress();
                        pair.reader.progress();
                        std::thread::yield_now();
                    }
                }
                _ if random.below(8) == 0 => {
                    let (mesh, other) =
                        if random.below(2) == 0 { (&mut pair.writer, 1) } else { (&mut pair.reader, 0) };
                    if mesh.is_connected(Rank(other)) {
                        shut(mesh, Rank(other));
                        breaks += 1;
                    }
                }
                _ => {}
            }
            for mesh in [&mut pair.writer, &mut pair.reader] {
                while let Some((_, why)) = mesh.next_down() {
                    assert!(matches!(why, Down::Os { .. }), "{case}: {why}");
                }
                while mesh.next_up().is_some() {
                    resumed += 1;
                }
            }
        }
        // Until both ends have noticed the last break.
        let (start, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < Duration::from_millis(10) {
            assert!(start.elapsed() < PATIENCE, "{case}: not connected again");
            pair.writer.progress();
            pair.read(true, &case);
            let is_down = pair.writer.next_down().or_else(|| pair.reader.next_down()).is_some();
            if is_down || !pair.writer.is_connected(Rank(1)) || !pair.reader.is_connected(Rank(0)) {
                last = Instant::now();
            }
        }
        pair.finish(&case);
        assert!(breaks > 0 && resumed > 0, "{case}: {breaks} breaks, {resumed} times resumed");
    }
}

/// A call to a peer that has ended fails, and its host refuses it.
#[test]
fn calls_to_a_process_that_has_ended_are_refused() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let mut far = members.pop().unwrap();
    let near = &mut members[0];
    far.links_mut().give_up();
    drop(far);
    assert!(matches!(first_end(near), (Rank(1), Down::Os { .. })));
    let (rank, why) = first_end(near);
    assert!(rank == Rank(1) && matches!(why, Down::Refused), "{why}");
    assert!(near.cut() == 1 && near.next_up().is_none());
}

/// A sleeping member learns as well that no process listens at its peer's address, and calls no
/// more often than the pauses allow.
#[test]
fn a_sleeping_member_learns_that_calls_are_refused() {
    if !is_here("tcp") {
        return;
    }
    for _ in 0..5 {
        let mut meshes = connect(&layout(2), "tcp");
        settle(&mut meshes);
        let (far, mut near) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        drop_abruptly(far);
        let (start, before, mut ends) = (Instant::now(), begun(&near), vec![]);
        while !ends.iter().any(|down| matches!(down, Down::Refused)) {
            assert!(start.elapsed() < PATIENCE, "nobody has said so: {ends:?}");
            near.begin_sleep();
            near.progress();
            ends.extend(std::iter::from_fn(|| near.next_down()).map(|(_, down)| down));
            near.sleep(PATIENCE);
        }
        assert!(ends.len() == 2 && matches!(ends[0], Down::Os { .. }), "{ends:?}");
        // The first call may have met the port while it closed.
        let calls = begun(&near) - before;
        assert!((2..=4).contains(&calls), "{calls} calls");
    }
}

/// Ends the connections of `mesh` without a last message.
fn drop_abruptly(mut mesh: Mesh) {
    drop(mesh.retire());
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

/// A connection that breaks after the last message was handed over has not ended in order: the
/// message may be lost. Both ends continue until they have received the last message of the other.
#[test]
fn a_break_after_the_last_message_is_a_cut() {
    if !is_here("tcp") {
        return;
    }
    // Which side finishes, and whether the other has learned that and answered when the connection
    // breaks.
    for (finishes, answers) in [(0, false), (0, true), (1, false)] {
        let mut members = bare(&layout(2));
        let (me, peer) = (Rank(finishes as u32), Rank(1 - finishes as u32));
        members[finishes].links_mut().finish();
        let start = Instant::now();
        while !members[finishes].links().is_flushed() {
            assert!(start.elapsed() < PATIENCE, "the last message does not leave");
            // No message is taken in.
            members[finishes].links_mut().flush();
            members[finishes].links_mut().look();
        }
        if answers {
            let end = first_end(&mut members[1 - finishes]);
            assert!(matches!(end, (_, Down::Closed)), "{end:?}");
        } else {
            members[1 - finishes].links_mut().lose(me);
        }
        members[finishes].links_mut().lose(peer);
        let (_, why) = first_end(&mut members[finishes]);
        assert!(matches!(why, Down::Os { .. }), "{why}");
        assert_eq!(members[finishes].cut(), 1);
        advance_until(&mut members, "the end in order", |members| members[finishes].cut() == 0);
        advance_until(&mut members, "the end of the connection", |members| {
            members.iter().all(|member| member.links().connected() == 0 && member.cut() == 0)
        });
        let ends: Vec<Down> = std::iter::from_fn(|| members[finishes].next_down()).map(|(_, why)| why).collect();
        assert!(matches!(ends.last(), Some(Down::Closed)), "{ends:?}");
    }
}

/// A peer that has closed its port no longer needs the end of the view.
#[test]
fn a_finished_member_gives_up_a_peer_that_refuses() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let mut far = members.pop().unwrap();
    far.links_mut().give_up();
    members[0].links_mut().finish();
    drop(far);
    assert!(matches!(first_end(&mut members[0]), (_, Down::Os { .. })));
    assert!(matches!(first_end(&mut members[0]), (_, Down::Refused)));
    assert_eq!(members[0].cut(), 0);
}

/// A connection may have broken before the member learned that it was made. The same member calls
/// again.
#[test]
fn a_connection_that_breaks_as_soon_as_it_is_made_is_called_again() {
    if !is_here("tcp") {
        return;
    }
    for me in [0, 1] {
        let mut members = bare(&layout(2));
        let endpoint = members[me].links().endpoint(Rank(1 - me as u32));
        // As by an event that was queued while it was not connected.
        members[me].lost(endpoint, libc::ECONNRESET).unwrap();
        assert!(matches!(first_end(&mut members[me]), (_, Down::Os { .. })));
        assert_eq!(members[me].cut(), 1);
        let mut ups = 0;
        advance_until(&mut members, "the next connection", |members| {
            ups += u32::from(members[me].next_up().is_some());
            ups > 0 && members.iter().all(|member| member.cut() == 0)
        });
    }
}

/// A caller that does not ask which peer is back learns once that there is something.
#[test]
fn a_connection_that_is_made_again_is_progress_once() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    members[0].links_mut().shut_rank(Rank(1));
    assert!(matches!(first_end(&mut members[0]), (_, Down::Os { .. })));
    let (start, mut last) = (Instant::now(), None);
    while last.is_none_or(|last: Instant| last.elapsed() < Duration::from_millis(20)) {
        assert!(start.elapsed() < PATIENCE, "it is progress for ever, or never");
        members[1].advance();
        if members[0].advance().1 {
            last = Some(Instant::now());
        }
    }
    assert_eq!([members[0].next_up(), members[0].next_up()], [Some(Rank(1)), None]);
}

/// A connection that breaks again and again is called after longer and longer pauses.
#[test]
fn a_flapping_connection_keeps_its_pauses() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let start = Instant::now();
    for _ in 0..6 {
        members[0].links_mut().shut_rank(Rank(1));
        assert!(matches!(first_end(&mut members[0]), (_, Down::Os { .. })));
        advance_until(&mut members, "the next connection", |members| {
            members.iter_mut().for_each(|member| while member.next_down().is_some() {});
            members[0].next_up().is_some()
        });
    }
    // The first may have lasted for long.
    let pauses = [0, 4, 8, 16, 32, 64].iter().sum();
    assert!(start.elapsed() >= Duration::from_millis(pauses), "{:?}", start.elapsed());
}

/// A member that waits for a call sleeps.
#[test]
fn a_member_that_waits_for_a_call_sleeps() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let (mut far, mut near) = (members.pop().unwrap(), members.pop().unwrap());
    near.links_mut().give_up();
    drop(near);
    assert!(matches!(first_end(&mut far), (Rank(0), Down::Os { .. })));
    let (start, mut sleeps) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(100) {
        far.advance();
        far.rest(PATIENCE);
        sleeps += 1;
    }
    assert!(far.cut() == 1 && sleeps < 30, "{sleeps} sleeps in 100 ms");
}

/// A retired view needs progress while peers are cut off: they lack the end of the view.
#[test]
fn a_retired_view_is_looked_after_until_its_peers_are_back() {
    if !is_here("tcp") {
        return;
    }
    let mut meshes = connect(&layout(2), "tcp");
    settle(&mut meshes);
    let (mut far, mut near) = (meshes.pop().unwrap(), meshes.pop().unwrap());
    put(&mut near, COUNT, 7);
    shut(&mut near, Rank(1));
    let mut retired = near.retire().unwrap();
    let start = Instant::now();
    while retired.next_down().is_none() {
        assert!(!retired.progress() && start.elapsed() < PATIENCE);
    }
    assert!(!retired.is_open() && retired.is_calling() && retired.is_cut() && !retired.progress());
    while !retired.progress() {
        assert!(start.elapsed() < PATIENCE, "the end of the view is not told");
        far.progress();
    }
    assert!(!retired.is_open() && !retired.is_calling() && far.load(Rank(0), COUNT) == 7);
}

/// A call that fails at once is made again, after pauses, and proves nothing.
#[test]
fn a_call_that_fails_at_once_is_made_again() {
    if !is_here("tcp") || std::env::var_os("SPINDLE_OFI_PROVIDER").is_some() {
        return;
    }
    let mut members = bare(&layout(2));
    let near = &mut members[0];
    // No route leads there from the loopback interface.
    let mut bytes = near.address().to_bytes();
    bytes[8..12].copy_from_slice(&[255; 4]);
    let right = near.misdirect(Rank(1), OfiAddress::from_bytes(&bytes).unwrap()).unwrap();
    let begun = near.links().begun();
    near.links_mut().shut_rank(Rank(1));
    assert!(matches!(first_end(near), (Rank(1), Down::Os { .. })));
    advance_until(&mut members, "calls that fail", |members| members[0].links().begun() >= begun + 4);
    assert!(members[0].next_down().is_none() && members[0].cut() == 1);
    members[0].misdirect(Rank(1), right);
    advance_until(&mut members, "the next connection", |members| members[0].next_up().is_some());
    assert!(members[0].next_down().is_none());
}

/// The peer has called again, so its connection is closed before the answer is made, and there is
/// no room for the answer. The end of the connection is reported once, and the next call is
/// answered.
#[test]
fn an_answer_that_fails_after_a_replacement_is_made_again() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    members[1].links().desk().network().is_full.store(true, Ordering::Relaxed);
    let begun = members[0].links().begun();
    members[0].links_mut().lose(Rank(1));
    let start = Instant::now();
    // The call is there when the end is noticed.
    while members[0].links().begun() == begun {
        assert!(start.elapsed() < PATIENCE, "it does not call");
        members[0].advance();
    }
    assert!(matches!(first_end(&mut members[1]), (Rank(0), Down::Os { .. })));
    let mut refused = 0;
    advance_until(&mut members, "a refused call", |members| {
        refused += u32::from(matches!(members[0].next_down(), Some((_, Down::Refused))));
        refused > 0
    });
    assert!(members[1].next_down().is_none() && members[1].cut() == 1, "its end was told before");
    members[1].links().desk().network().is_full.store(false, Ordering::Relaxed);
    advance_until(&mut members, "the next connection", |members| members[1].next_up().is_some());
    assert!(members[1].next_down().is_none() && members[1].cut() == 0);
}

/// More calls than are handled in one look are all refused.
#[test]
fn many_calls_at_once_are_all_refused() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let (mut forming, address) = expecting(&layout);
    let stranger = Stranger::new();
    let endpoints: Vec<Endpoint> = (0..100).map(|_| stranger.call(&address, &[1, 2, 3, 4])).collect();
    for _ in &endpoints {
        let event = stranger.event(|| assert!(!forming.progress().unwrap(), "nobody has come"));
        assert!(matches!(event, Event::Failed { .. } | Event::Shutdown { .. }), "{event:?}");
    }
}
