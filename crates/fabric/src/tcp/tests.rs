//! The conformance suite over streams, and cases that the suite can't test, because it knows no
//! network.
use super::Down;
use super::wire::{FrameHead, HEAD_BYTES, hello};
use crate::arena::Arena;
use crate::conformance::links::{
    self as shared, COUNT, EVERYONE, OTHER, TestRandom, down, layout, progress_until, ring,
};
use crate::conformance::{Harness, PATIENCE};
use crate::fabric::Fabric;
use crate::member_event_count::MemberEventCount;
use crate::mesh::{Mesh, Peer, Retired, Watched};
use crate::mirror::Mirror;
use crate::shm::OwnRow;
use spindle_core::{Layout, Rank, Rows, Table};
use spindle_transport::net::{Identity, TlsStream};
use spindle_transport::testing::Authority;
use spindle_transport::{Connection, SocketOptions, SocketStream, Space, Stream};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

mod ends;
mod incoming_bytes;

/// The smallest buffers that the system gives.
pub(super) const TINY: SocketOptions =
    SocketOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: Some(1), silence_ms: None };
pub(super) const USUAL: SocketOptions =
    SocketOptions { send_buffer_bytes: None, receive_buffer_bytes: None, silence_ms: None };

pub(super) type Ends = [Connection; 2];

pub(super) fn socket_ends(sockets: [impl Into<OwnedFd>; 2], options: &SocketOptions) -> Ends {
    sockets.map(|socket| Box::new(SocketStream::new(socket, options).unwrap()) as Connection)
}

pub(super) fn tcp_pair(ip: impl Into<std::net::IpAddr>) -> [TcpStream; 2] {
    let listener = TcpListener::bind((ip.into(), 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

pub(super) fn unix_pair() -> [UnixStream; 2] {
    UnixStream::pair().unwrap().into()
}

/// Creates both ends with certificates of one authority, after each has verified the other.
pub(super) fn tls_ends(sockets: [impl Into<OwnedFd>; 2], options: &SocketOptions) -> Ends {
    static IDENTITIES: LazyLock<[Identity; 2]> = LazyLock::new(|| {
        let authority = Authority::new();
        [authority.identity(), authority.identity()]
    });
    let [near, far] = sockets.map(|socket| SocketStream::new(socket, options).unwrap());
    let mut near = TlsStream::new(near, &IDENTITIES[0], true).unwrap();
    let mut far = TlsStream::new(far, &IDENTITIES[1], false).unwrap();
    let greets = |from: &mut TlsStream, to: &mut TlsStream| {
        let (mut sent, start) = (0, Instant::now());
        loop {
            // It makes progress whatever it returns.
            sent += from.send(&[IoSlice::new(&[0; 1][sent..])]).unwrap_or(0);
            match to.receive(&mut [Space::of(&mut [0; 1])]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                got => break assert_eq!(got.unwrap(), 1),
            }
            let nothing = from.receive(&mut [Space::of(&mut [0; 1])]).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock, "{nothing}");
            let _ = to.send(&[]);
            assert!(start.elapsed() < PATIENCE, "no end of the handshake");
        }
    };
    greets(&mut near, &mut far);
    greets(&mut far, &mut near);
    [Box::new(near), Box::new(far)]
}

/// Creates all members of a view, over connections that `pair` makes for each two.
fn connect(layout: &Layout, mut pair: impl FnMut() -> Ends) -> Vec<Mesh> {
    let members = layout.rows().len() as u32;
    let mut streams: Vec<Vec<_>> = (0..members).map(|_| vec![]).collect();
    for i in 0..members {
        for j in i + 1..members {
            let [near, far] = pair();
            streams[i as usize].push((Rank(j), near));
            streams[j as usize].push((Rank(i), far));
        }
    }
    let mut meshes: Vec<Mesh> = (0..).zip(streams).map(|(me, streams)| mesh(layout, Rank(me), streams)).collect();
    // Otherwise hellos would end a sleep.
    settle(&mut meshes);
    meshes
}

/// Creates the member `me`, which has no peer on its machine.
pub(super) fn mesh(layout: &Layout, me: Rank, streams: impl IntoIterator<Item = (Rank, Connection)>) -> Mesh {
    let (own, _) = OwnRow::create(layout, me, &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap();
    Mesh::new(layout, own, streams.into_iter().map(|(rank, stream)| (rank, Some(Peer::There(stream))))).unwrap()
}

/// Runs until everything that was posted to a live member has arrived there.
pub(crate) fn settle(fabrics: &mut [Mesh]) {
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
    ($module:ident, $pair:expr) => {
        mod $module {
            use super::*;

            struct Over;

            impl Harness for Over {
                type Fabric = Mesh;

                fn connect(layout: &Layout) -> Vec<Mesh> {
                    connect(layout, || $pair)
                }

                fn settle(fabrics: &mut [Mesh]) {
                    settle(fabrics);
                }
            }

            crate::conformance_suite!(Over);
        }
    };
}

suite!(over_tcp, socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL));
suite!(over_unix_sockets, socket_ends(unix_pair(), &USUAL));
suite!(over_tiny_buffers, socket_ends(unix_pair(), &TINY));
suite!(over_tls, tls_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL));
suite!(over_tls_and_tiny_buffers, tls_ends(unix_pair(), &TINY));
suite!(over_streams_that_copy, unix_pair().map(|socket| Box::new(Copying::new(socket)) as Connection));

/// A stream like one that encrypts: it holds the bytes that it accepts, and receives more than it
/// is asked for.
#[derive(Debug)]
struct Copying {
    socket: UnixStream,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Copying {
    const BYTES_MAX: usize = 3000;

    fn new(socket: UnixStream) -> Copying {
        socket.set_nonblocking(true).unwrap();
        Copying { socket, outgoing: vec![], incoming: vec![] }
    }

    fn push(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let sent = self.socket.write(&self.outgoing[..self.outgoing.len().min(700)])?;
            self.outgoing.drain(..sent);
        }
        Ok(())
    }
}

impl Stream for Copying {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut took = 0;
        for part in parts {
            let part = &part[..part.len().min(Self::BYTES_MAX - self.outgoing.len())];
            self.outgoing.extend_from_slice(part);
            took += part.len();
        }
        match self.push() {
            Err(error) if took == 0 || error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(took),
        }
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            let mut record = [0; 10_000];
            let got = self.socket.read(&mut record)?;
            self.incoming.extend_from_slice(&record[..got]);
        }
        let mut got = 0;
        for space in spaces {
            // Never as many bytes as would fit.
            let most = (space.len() / 2 + 1).min(self.incoming.len());
            let filled = space.fill(&self.incoming[..most]);
            self.incoming.drain(..filled);
            got += filled;
            if filled < space.len() {
                break;
            }
        }
        Ok(got)
    }

    fn finish(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    fn holds_back(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn has_arrived(&self) -> bool {
        !self.incoming.is_empty()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.socket)
    }
}

/// Returns a member, rank 0 of two, and the raw other end of its connection, which has sent its
/// hello.
fn with_stranger() -> (Layout, Mesh, UnixStream) {
    let layout = layout(2);
    let [near, mut far] = unix_pair();
    far.write_all(&hello(&[0])).unwrap();
    let stream: Connection = Box::new(SocketStream::new(near, &USUAL).unwrap());
    let mut fabric = mesh(&layout, Rank(0), [(Rank(1), stream)]);
    fabric.progress();
    let mut said = [0; 16];
    far.read_exact(&mut said).unwrap();
    assert_eq!(said[..], hello(&[0]));
    (layout, fabric, far)
}

fn head(at: u64, len: u64) -> [u8; HEAD_BYTES] {
    FrameHead { at, len }.encode()
}

#[test]
fn posts_are_of_whole_words_of_my_row() {
    let layout = layout(2);
    let mut fabric = connect(&layout, || socket_ends(unix_pair(), &USUAL)).remove(0);
    let size = layout.row(Rank(0)).size;
    for range in [4..8, 0..4, size - 8..size + 8, size..size + 8, 0..u64::MAX - 7] {
        let post = std::panic::AssertUnwindSafe(|| fabric.post(&[Rank(1)], range));
        assert!(std::panic::catch_unwind(post).is_err());
    }
}

#[test]
fn ip_of_both_kinds_carries_posts() {
    let layout = layout(2);
    for ip in [std::net::IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        if TcpListener::bind((ip, 0)).is_err() {
            // The machine has no IPv6.
            assert!(ip.is_ipv6());
            continue;
        }
        let mut fabrics = connect(&layout, || socket_ends(tcp_pair(ip), &USUAL));
        fabrics[0].store(COUNT, 7);
        fabrics[0].post(&EVERYONE[..2], COUNT..COUNT + 8);
        settle(&mut fabrics);
        assert_eq!(fabrics[1].load(Rank(0), COUNT), 7);
    }
}

/// A peer that does not read delays neither the poster nor the others. The data that waits for it
/// is bounded by the row.
#[test]
fn a_peer_that_does_not_read_stops_no_other() {
    let layout = layout(3);
    let mut fabrics = connect(&layout, || socket_ends(unix_pair(), &TINY));
    let (ring, control) = (ring(&layout), layout.row(Rank(0)).control);
    let words = (ring.end - ring.start) / 8;
    for value in 1..=20_000 {
        let fabric = &mut fabrics[0];
        let at = ring.start + value % words * 8;
        fabric.store(at, value);
        fabric.post(&EVERYONE, at..at + 8);
        fabric.store(COUNT, value);
        fabric.post(&EVERYONE, COUNT..COUNT + 8);
        fabric.progress();
        fabrics[1].progress();
        if value % 100 == 0 {
            progress_until_both(&mut fabrics[..2], |fabrics| fabrics[1].load(Rank(0), COUNT) == value);
        }
    }
    let stuck = fabrics[0].traffic(Rank(2)).unwrap();
    assert!(stuck.waiting_bytes > 0 && stuck.sent_bytes < 1 << 16, "{stuck:?}");
    // Twice the row: the data that leaves now, and the data that leaves next.
    assert!(stuck.waiting_bytes <= 2 * (ring.end + control), "{stuck:?}");
    assert_eq!(fabrics[2].load(Rank(0), COUNT), 0);
    settle(&mut fabrics);
    for fabric in &fabrics {
        assert_eq!(fabric.load(Rank(0), COUNT), 20_000);
        let all = fabric.bytes(Rank(0), ring.start, ring.end - ring.start);
        assert_eq!(all, fabrics[0].bytes(Rank(0), ring.start, ring.end - ring.start));
    }
}

fn progress_until_both(fabrics: &mut [Mesh], ready: impl Fn(&[Mesh]) -> bool) {
    let start = Instant::now();
    while !ready(fabrics) {
        assert!(start.elapsed() < PATIENCE, "nothing after {PATIENCE:?}");
        fabrics.iter_mut().for_each(|fabric| _ = fabric.progress());
        std::thread::yield_now();
    }
}

/// Waiting posts merge, and a word among them has its newest value.
#[test]
fn posts_that_wait_melt_together() {
    let layout = layout(2);
    let mut fabrics = connect(&layout, || socket_ends(unix_pair(), &TINY));
    let mut post = |value| {
        let fabric = &mut fabrics[0];
        for at in [COUNT, OTHER] {
            fabric.store(at, value);
            fabric.post(&EVERYONE[..2], at..at + 8);
        }
        fabric.traffic(Rank(1)).unwrap()
    };
    let mut value = 1;
    while post(value).waiting_bytes == 0 {
        value += 1;
        assert!(value < 1 << 20, "a socket of the smallest size takes everything");
    }
    let before = post(value + 1).sent_bytes;
    (0..100_000).for_each(|i| _ = post(value + 2 + i));
    let waiting = fabrics[0].traffic(Rank(1)).unwrap();
    assert_eq!(waiting.sent_bytes, before);
    assert!(waiting.waiting_bytes < 100, "{waiting:?}");
    settle(&mut fabrics);
    assert_eq!(fabrics[1].load(Rank(0), COUNT), value + 100_001);
    assert_eq!(fabrics[1].load(Rank(0), OTHER), value + 100_001);
}

/// A word that was stored and not posted stays here, whatever its neighbours do, also if they have
/// to wait and merge.
#[test]
fn words_that_are_not_posted_do_not_leave() {
    let layout = layout(2);
    for options in [&USUAL, &TINY] {
        let mut fabrics = connect(&layout, || socket_ends(unix_pair(), options));
        let fabric = &mut fabrics[0];
        let waits = |fabric: &Mesh| fabric.traffic(Rank(1)).unwrap().waiting_bytes > 0;
        for _ in 0..1000 {
            if options.send_buffer_bytes.is_some() && !waits(fabric) {
                fabric.post(&EVERYONE[..2], ring(&layout));
                fabric.progress();
            }
        }
        assert_eq!(waits(fabric), options.send_buffer_bytes.is_some());
        fabric.store(COUNT, 1);
        fabric.post(&EVERYONE[..2], COUNT..COUNT + 8);
        for (at, value) in [(COUNT, 2), (COUNT + 8, 3), (OTHER, 4)] {
            fabric.store(at, value);
        }
        fabric.post(&EVERYONE[..2], OTHER..OTHER + 8);
        settle(&mut fabrics);
        let seen = [COUNT, COUNT + 8, OTHER].map(|at| fabrics[1].load(Rank(0), at));
        assert_eq!(seen, [1, 0, 4]);
    }
}

/// A sleep ends for bytes, for the end, and for room for waiting data.
#[test]
fn whatever_a_stream_has_to_tell_ends_a_sleep() {
    let (_, mut fabric, mut stranger) = with_stranger();
    fabric.begin_sleep();
    stranger.write_all(&[head(COUNT, 8), 1u64.to_le_bytes()].concat()).unwrap();
    assert!(fabric.sleep(PATIENCE));
    fabric.progress();
    assert_eq!(fabric.load(Rank(1), COUNT), 1);
    // More waits than the socket takes, and the peer starts to read.
    let ring = ring(&layout(2));
    let blocked = |fabric: &mut Mesh| fabric.traffic(Rank(1)).unwrap().waiting_bytes > 0;
    while !blocked(&mut fabric) {
        fabric.post(&[Rank(1)], ring.clone());
        fabric.post(&[Rank(1)], COUNT..COUNT + 8);
    }
    let mut buffer = vec![0; 1 << 20];
    let start = Instant::now();
    while blocked(&mut fabric) {
        fabric.begin_sleep();
        assert!(stranger.read(&mut buffer).unwrap() > 0);
        fabric.sleep(Duration::from_secs(1));
        fabric.progress();
        assert!(start.elapsed() < PATIENCE);
    }
    fabric.begin_sleep();
    drop(stranger);
    assert!(fabric.sleep(PATIENCE));
    assert!(matches!(down(&mut fabric), (Rank(1), Down::Closed | Down::Os { .. })));
    // Then no event is left that could end one.
    fabric.begin_sleep();
    assert!(!fabric.sleep(Duration::from_millis(1)));
}

/// A ring ends only one sleep. If it also ended later ones, an idle member would never rest.
#[test]
fn a_ring_ends_one_sleep() {
    let (_, mut fabric, _stranger) = with_stranger();
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

/// A stream that can't send any more belongs to a peer that is gone, even if receiving from it has
/// not ended. Bytes that had come count.
#[test]
fn an_unreachable_receiver_is_gone() {
    let layout = layout(2);
    let [near, mut far] = unix_pair();
    let stream: Connection = Box::new(Failing(SocketStream::new(near, &USUAL).unwrap()));
    let mut fabric = mesh(&layout, Rank(0), [(Rank(1), stream)]);
    far.write_all(&hello(&[0])).unwrap();
    far.write_all(&[head(COUNT, 8), 3u64.to_le_bytes()].concat()).unwrap();
    fabric.post(&[Rank(1)], COUNT..COUNT + 8);
    let (rank, why) = down(&mut fabric);
    assert!(matches!((rank, &why), (Rank(1), Down::Os { call: "sending", .. })), "{why}");
    assert_eq!(fabric.load(Rank(1), COUNT), 3);
}

/// A stream that sends nothing.
#[derive(Debug)]
struct Failing(SocketStream);

impl Stream for Failing {
    fn send(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::InvalidData.into())
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        self.0.receive(spaces)
    }

    fn finish(&mut self) {
        self.0.finish();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// Also through the smallest buffers.
#[test]
fn nothing_is_announced_before_it_is_there() {
    shared::nothing_is_announced_before_it_is_there(0..30, |seed, layout| {
        let options = if seed % 2 == 0 { &TINY } else { &USUAL };
        let tcp = || socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL);
        connect(layout, || if seed % 4 < 2 { socket_ends(unix_pair(), options) } else { tcp() })
    });
}

/// Some messages need many writes, through full sockets.
#[test]
fn engines_agree_over_streams() {
    shared::engines_agree(1..5, |seed, layout| {
        let options = if seed % 2 == 0 { &USUAL } else { &TINY };
        let tcp = || socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL);
        connect(layout, || if seed == 4 { tcp() } else { socket_ends(unix_pair(), options) })
    });
}
