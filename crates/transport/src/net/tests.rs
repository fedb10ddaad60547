//! Endpoints of one process that reach each other over loopback and Unix sockets, and incoming
//! connections that are raw sockets.
use super::endpoint::{Endpoint, Options};
use super::event::{Dropped, Event};
use super::hello::{Answer, Hello, HelloReader, Magic};
use super::limits::{EVENTS_MAX, HALF_OPEN_MAX, QUEUE_CONTROL_MESSAGES_MAX};
use super::security::Security;
use super::{Declined, Identity, Names, NetError, Rule};
use crate::rendezvous::GroupName;
use crate::stream::{Connection, SocketOptions, SocketStream, Space, Stream};
use crate::testing::Authority;
use crate::testing::PATIENCE;
use crate::testing::TempDir;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spindle_core::control::{Address, Birth, Card, ControlMessage, Purpose, Request, VERSION};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::{MemberId, ViewId};
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

const LOOPBACK: &str = "127.0.0.1:0";

/// An endpoint, and a way to wait for its events.
struct Host {
    endpoint: Endpoint,
    told: Arc<(Mutex<bool>, Condvar)>,
}

impl std::ops::Deref for Host {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

fn options(id: u64, listen: &str) -> Options {
    Options {
        group: GroupName::new("net-tests").unwrap(),
        me: MemberId(id),
        host: u128::from(id) << 100,
        listen: vec![listen.parse().unwrap()],
        advertise: None,
        rack: None,
        security: Security::Local,
        socket: SocketOptions::default(),
        names: Names::default(),
    }
}

fn open(options: Options) -> Host {
    let told = Arc::new((Mutex::new(false), Condvar::new()));
    let tell = Arc::clone(&told);
    let endpoint = Endpoint::open(options, move || {
        *tell.0.lock().unwrap() = true;
        tell.1.notify_one();
    });
    Host { endpoint: endpoint.unwrap(), told }
}

fn host(id: u64) -> Host {
    open(options(id, LOOPBACK))
}

fn refused(options: Options) -> NetError {
    Endpoint::open(options, || {}).unwrap_err()
}

impl Host {
    /// Returns the next event, except those of connections that control messages have established
    /// or still need.
    fn receive(&self) -> Option<Event> {
        std::iter::from_fn(|| self.endpoint.receive())
            .find(|event| !matches!(event, Event::Reached { .. } | Event::Delayed { .. }))
    }

    fn next(&self) -> Event {
        let start = Instant::now();
        loop {
            if let Some(event) = self.receive() {
                return event;
            }
            let told = self.told.0.lock().unwrap();
            let left = PATIENCE.checked_sub(start.elapsed()).expect("nothing happened");
            *self.told.1.wait_timeout_while(told, left, |told| !*told).unwrap().0 = false;
        }
    }

    fn address(&self) -> &Address {
        &self.card().address
    }

    fn message(&self) -> (Card, ControlMessage, Vec<u8>) {
        match self.next() {
            Event::ControlMessage { from, message, attachment, .. } => (from, message, attachment),
            other => panic!("{other:?}"),
        }
    }

    fn stream(&self) -> (Card, Purpose, Connection, bool) {
        match self.next() {
            Event::Stream { with, purpose, stream, dialled, .. } => (with, purpose, stream, dialled),
            other => panic!("{other:?}"),
        }
    }

    fn failed(&self) -> (Address, Purpose, NetError) {
        match self.next() {
            Event::Failed { address, purpose, why } => (address, purpose, why),
            other => panic!("{other:?}"),
        }
    }

    fn lost(&self) -> Card {
        match self.next() {
            Event::Lost { with } => with,
            other => panic!("{other:?}"),
        }
    }

    fn wait_for(&self, what: &str, ready: impl Fn(&Endpoint) -> bool) {
        let start = Instant::now();
        while !ready(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}, {:?}", self.dropped());
            std::thread::yield_now();
        }
    }
}

/// Other threads may hold it and take its events.
#[test]
fn endpoints_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Endpoint>();
}

/// Every control message has a number, and bytes that depend on it.
fn numbered(number: u64) -> (ControlMessage, Vec<u8>) {
    let attachment = vec![number as u8; (number % 7 * 100) as usize];
    (ControlMessage::Answer { reply: number, bytes: attachment.len() as u64 }, attachment)
}

fn send_numbered(from: &Endpoint, to: &Address, number: u64) {
    let (message, attachment) = numbered(number);
    from.send(to, None, &message, &attachment);
}

fn expect_numbered(host: &Host, from: &Card, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let (message, attachment) = numbered(number);
        assert_eq!(host.message(), (from.clone(), message, attachment));
    }
}

fn write_all(stream: &mut dyn Stream, mut bytes: &[u8]) {
    let start = Instant::now();
    while !bytes.is_empty() || stream.holds_back() {
        assert!(start.elapsed() < PATIENCE, "it takes no bytes");
        match stream.send(&[IoSlice::new(bytes)]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn read_exactly(stream: &mut dyn Stream, len: usize) -> Vec<u8> {
    let (mut bytes, start) = (vec![0; len], Instant::now());
    let mut have = 0;
    while have < len {
        assert!(start.elapsed() < PATIENCE, "{have} of {len} bytes came");
        match stream.receive(&mut [Space::of(&mut bytes[have..])]) {
            Ok(0) => panic!("the end came after {have} of {len} bytes"),
            Ok(got) => have += got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    bytes
}

/// Returns an address at which no process listens, and no other process can.
fn deserted() -> (OwnedFd, Address) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    (socket, bound.into())
}

fn raw(to: &Address) -> TcpStream {
    TcpStream::connect(to.to_string()).unwrap()
}

fn hello(purpose: Purpose, id: u64, process: u128) -> Hello {
    let card = Card { id: MemberId(id), host: 1, address: "127.0.0.1:1".parse().unwrap(), rack: None };
    Hello { group: GroupName::new("net-tests").unwrap(), purpose, card, process, wanted: None }
}

/// Returns the answer on a raw connection.
fn answer(socket: &TcpStream) -> Answer {
    let stream = socket.try_clone().unwrap();
    let mut stream = SocketStream::new(stream, &SocketOptions::default()).unwrap();
    let (mut incoming, start) = (HelloReader::new(Magic::Answer), Instant::now());
    let answer = loop {
        if let Some(body) = incoming.receive(&mut stream).unwrap() {
            break Answer::decode(body).unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "no answer");
        std::thread::yield_now();
    };
    socket.set_nonblocking(false).unwrap();
    answer
}

/// Returns a raw connection on which a hello was accepted.
fn greeted(to: &Address, hello: &Hello) -> TcpStream {
    let mut socket = raw(to);
    socket.write_all(&hello.encode()).unwrap();
    assert!(matches!(answer(&socket), Answer::Welcome(..)));
    socket
}

fn bytes_of(message: &ControlMessage) -> Vec<u8> {
    let body = message.encode();
    [&(body.len() as u32).to_le_bytes()[..], &0_u32.to_le_bytes(), &body].concat()
}

fn request(from: u64, reply: u64) -> ControlMessage {
    ControlMessage::Request { from: MemberId(from), reply, what: Request::Status }
}

fn ends_by(mut socket: impl Read) {
    // Reset or closed: both are the end.
    let _ = socket.read_to_end(&mut vec![]);
}

/// Both sides connect at the same time, and each has its own connection for its control messages.
fn messages_arrive_in_order(one: &str, other: &str) {
    let hosts = [open(options(1, one)), open(options(2, other))];
    let cards = [hosts[0].card().clone(), hosts[1].card().clone()];
    for number in 0..500 {
        send_numbered(&hosts[0], &cards[1].address, number);
        send_numbered(&hosts[1], &cards[0].address, number);
    }
    expect_numbered(&hosts[1], &cards[0], 0..500);
    expect_numbered(&hosts[0], &cards[1], 0..500);
    for host in &hosts {
        assert_eq!(host.dropped(), Dropped::default());
        assert!(host.receive().is_none());
    }
}

#[test]
fn messages_arrive_in_order_over_ipv4() {
    messages_arrive_in_order(LOOPBACK, LOOPBACK);
}

#[test]
fn messages_arrive_in_order_over_ipv6() {
    messages_arrive_in_order("[::1]:0", "[::1]:0");
}

#[test]
fn messages_arrive_in_order_by_name() {
    messages_arrive_in_order("localhost:0", "LOCALHOST:0");
}

#[test]
fn messages_arrive_in_order_over_unix_sockets_and_between_kinds() {
    let temp = TempDir::new();
    let path = |name| format!("unix:{}", temp.path().join(name).display());
    messages_arrive_in_order(&path("a"), &path("b"));
    messages_arrive_in_order(&path("c"), LOOPBACK);
}

#[test]
fn large_attachments_arrive() {
    let (near, far) = (host(1), host(2));
    for bytes in [64 << 20, 1, 5_000_000] {
        let attachment: Vec<u8> = (0..bytes as u32).map(|i| (i ^ i >> 8) as u8).collect();
        let message = ControlMessage::View { incarnation: 5, view: ViewId(9), from: MemberId(1), bytes };
        near.send(far.address(), Some(MemberId(2)), &message, &attachment);
        let (from, got, came) = far.message();
        assert_eq!((&from, got), (near.card(), message));
        assert!(came == attachment);
    }
}

const PURPOSES: [Purpose; 5] = [
    Purpose::Part { incarnation: u128::MAX - 3, view: ViewId(7) },
    Purpose::Observer { incarnation: 1, view: ViewId(u64::MAX) },
    Purpose::State { view: ViewId(0) },
    Purpose::Bulk { incarnation: 3, view: ViewId(1), number: 1 << 40 },
    Purpose::Objects { view: ViewId(1), reply: 1 << 40 },
];

#[test]
fn each_purpose_has_its_stream() {
    let (near, far) = (host(1), host(2));
    for purpose in PURPOSES {
        near.dial(far.address(), Some(MemberId(2)), purpose);
        let (with, what, mut there, dialled) = far.stream();
        assert_eq!((&with, what, dialled), (near.card(), purpose, false));
        // Before the dialling side has looked.
        write_all(&mut *there, b"first");
        let (with, what, mut here, dialled) = near.stream();
        assert_eq!((&with, what, dialled), (far.card(), purpose, true));
        write_all(&mut *here, &[7; 300_000][..100_000]);
        assert_eq!(read_exactly(&mut *here, 5), b"first");
        assert_eq!(read_exactly(&mut *there, 100_000), vec![7; 100_000]);
    }
}

#[test]
fn streams_outlive_their_endpoints() {
    let (near, far) = (host(1), host(2));
    near.dial(far.address(), None, PURPOSES[0]);
    let (_, _, mut there, _) = far.stream();
    let (_, _, mut here, _) = near.stream();
    drop((near, far));
    write_all(&mut *here, b"still here");
    assert_eq!(read_exactly(&mut *there, 10), b"still here");
}

/// Bytes that follow a hello, or its answer, in the same segment are not lost.
#[test]
fn bytes_after_the_hello_belong_to_the_stream() {
    let far = host(2);
    let mut socket = raw(far.address());
    let first = hello(PURPOSES[2], 1, 1);
    socket.write_all(&[&first.encode()[..], b"and more"].concat()).unwrap();
    assert!(matches!(answer(&socket), Answer::Welcome(card, _) if card == *far.card()));
    let (with, _, mut stream, _) = far.stream();
    assert_eq!(with, first.card);
    assert_eq!(read_exactly(&mut *stream, 8), b"and more");

    let listener = TcpListener::bind(LOOPBACK).unwrap();
    far.dial(&listener.local_addr().unwrap().into(), None, PURPOSES[2]);
    let mut socket = listener.accept().unwrap().0;
    let reply = Answer::Welcome(first.card.clone(), 77).encode();
    socket.write_all(&[&reply[..], b"and more"].concat()).unwrap();
    let (with, _, mut stream, dialled) = far.stream();
    assert!(dialled && with == first.card);
    assert_eq!(read_exactly(&mut *stream, 8), b"and more");
}

#[test]
fn a_gone_receiver_is_lost_and_one_that_is_back_gets_messages() {
    let near = host(1);
    let far = host(2);
    let card = far.card().clone();
    send_numbered(&near, &card.address, 0);
    expect_numbered(&far, near.card(), 0..1);
    drop(far);
    assert_eq!(near.lost(), card);
    // No process listens there yet.
    (1..20).for_each(|number| send_numbered(&near, &card.address, number));
    let far = open(options(3, &card.address.to_string()));
    expect_numbered(&far, near.card(), 1..20);
    assert!(near.receive().is_none());
}

#[test]
fn an_absent_peer_fails_its_messages_and_dials() {
    let near = host(1);
    let (_kept, nobody) = deserted();
    near.dial(&nobody, None, PURPOSES[1]);
    let (address, purpose, why) = near.failed();
    assert_eq!((&address, purpose), (&nobody, PURPOSES[1]));
    assert!(matches!(why, NetError::Connect { .. }), "{why}");
    send_numbered(&near, &nobody, 1);
    let (address, purpose, why) = near.failed();
    assert_eq!((&address, purpose), (&nobody, Purpose::Control));
    assert!(matches!(why, NetError::Connect { .. }), "{why}");
    let no_path: Address = "unix:/nonexistent/spindle".parse().unwrap();
    near.dial(&no_path, None, PURPOSES[1]);
    assert!(matches!(near.failed().2, NetError::Connect { .. }));
    let nowhere = Names::known_by(|_| Err(io::ErrorKind::NotFound.into()));
    let near = open(Options { names: nowhere, ..options(2, LOOPBACK) });
    near.dial(&"name:1".parse().unwrap(), None, PURPOSES[1]);
    let why = near.failed().2;
    assert!(matches!(why, NetError::Resolve { .. }), "{why}");
}

#[test]
fn why_messages_wait_is_told_before_they_are_given_up() {
    let near = host(1);
    let (_kept, nobody) = deserted();
    send_numbered(&near, &nobody, 1);
    let start = Instant::now();
    let mut delays = 0;
    loop {
        assert!(start.elapsed() < PATIENCE, "told {delays} times");
        match near.endpoint.receive() {
            Some(Event::Delayed { address, why }) => {
                assert_eq!((address, why.starts_with("Connection refused")), (nobody.clone(), true), "{why}");
                delays += 1;
            }
            Some(Event::Failed { why, .. }) => break assert!(matches!(why, NetError::Connect { .. }), "{why}"),
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
    assert!(delays > 1);
}

#[test]
fn a_name_is_looked_up_with_all_its_addresses_and_by_one_at_a_time() {
    let (asked, was_asked) = channel();
    let (answer, answers) = channel::<io::Result<Vec<IpAddr>>>();
    let answers = Mutex::new(answers);
    let names = Names::known_by(move |host| {
        asked.send(host.to_string()).unwrap();
        answers.lock().unwrap().recv().unwrap()
    });
    let near = open(Options { names, ..options(1, LOOPBACK) });
    let looked_up = |address: &str| match near.next() {
        Event::LookedUp { address: of, found } if of.to_string() == address => found,
        other => panic!("{other:?}"),
    };
    let many: Vec<IpAddr> = (1..=100).map(|last| Ipv4Addr::new(127, 0, 0, last).into()).collect();
    for name in ["many:7", "many:7", "127.0.0.1:9"] {
        near.look_up(&name.parse().unwrap());
    }
    // It is asked last and answered first, because it waits for no resolver.
    assert_eq!(looked_up("127.0.0.1:9").unwrap(), ["127.0.0.1:9".parse().unwrap()]);
    answer.send(Ok(many.clone())).unwrap();
    let expected: Vec<Address> = many.into_iter().map(|ip| SocketAddr::new(ip, 7).into()).collect();
    assert_eq!(looked_up("many:7").unwrap(), expected);
    assert_eq!(was_asked.try_iter().collect::<Vec<_>>(), ["many"]);
    answer.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
    near.look_up(&"many:7".parse().unwrap());
    assert!(matches!(looked_up("many:7"), Err(NetError::Resolve { .. })));
}

#[test]
fn a_connected_silent_peer_is_given_up() {
    let near = host(1);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    near.dial(&address, None, PURPOSES[1]);
    let socket = listener.accept().unwrap().0;
    let why = near.failed().2;
    assert!(matches!(why, NetError::TimedOut { what: "say who it is", .. }), "{why}");
    ends_by(socket);
}

#[test]
fn a_peer_with_an_unknown_answer_is_foreign() {
    let near = host(1);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    let echo = hello(PURPOSES[1], 1, 1).encode();
    for reply in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", &echo] {
        near.dial(&address, None, PURPOSES[1]);
        let mut socket = listener.accept().unwrap().0;
        // Read, so that the end is an end and not a reset.
        let mut head = [0; 16];
        socket.read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_le_bytes(*head.last_chunk().unwrap()) as usize];
        socket.read_exact(&mut body).unwrap();
        socket.write_all(reply).unwrap();
        drop(socket);
        let why = near.failed().2;
        assert!(matches!(why, NetError::Incoming { .. }), "{why}");
    }
}

#[test]
fn half_open_strangers_are_closed_and_counted() {
    let far = host(2);
    let silent = raw(far.address());
    let mut slow = raw(far.address());
    slow.write_all(&hello(Purpose::Control, 1, 1).encode()[..40]).unwrap();
    let mut rude = raw(far.address());
    rude.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    [silent, slow, rude].into_iter().for_each(ends_by);
    far.wait_for("three strangers", |far| far.dropped() == Dropped { incoming: 3, ..Dropped::default() });
    let mut gone = raw(far.address());
    gone.write_all(b"spnd").unwrap();
    drop(gone);
    far.wait_for("a fourth", |far| far.dropped().incoming == 4);
}

/// Sending control messages is retried until there is room.
#[test]
fn more_connections_than_slots_delay_no_peer_for_ever() {
    let (near, far) = (host(1), host(2));
    let half_open: Vec<_> = (0..HALF_OPEN_MAX + 20).map(|_| raw(far.address())).collect();
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    drop(half_open);
}

/// Connects from an address of this host.
fn raw_from(from: Ipv4Addr, to: &Address) -> TcpStream {
    let to: SocketAddr = to.to_string().parse().unwrap();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    socket.into()
}

/// More silent connections than there are slots, from the members' address and from others, are
/// open while members connect.
#[test]
fn silent_connections_delay_no_member() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let authority = Authority::new();
    for is_secure in [false, true] {
        let member = |id| match is_secure {
            true => secured(id, LOOPBACK, authority.identity()),
            false => host(id),
        };
        let (near, far) = (member(1), member(2));
        let silent = |last| (0..2 * HALF_OPEN_MAX / 3).map(move |_| Ipv4Addr::new(127, 0, 0, last));
        let half_open = || (1..=5).flat_map(silent).map(|from| raw_from(from, far.address())).collect::<Vec<_>>();
        // Some before the first control message, when the endpoint has no peer, and some after it.
        let mut open = half_open();
        send_numbered(&near, far.address(), 0);
        expect_numbered(&far, near.card(), 0..1);
        open.extend(half_open());
        let third = member(3);
        for from in [&near, &third] {
            for purpose in PURPOSES {
                from.dial(far.address(), Some(MemberId(2)), purpose);
                assert_eq!((from.stream().1, far.stream().1), (purpose, purpose));
            }
        }
        assert!(far.dropped().incoming > 0, "some had to make room");
        drop(open);
    }
}

#[test]
fn foreign_versions_are_told_ours() {
    let far = host(2);
    let mut socket = raw(far.address());
    let bytes = hello(Purpose::Control, 1, 1).encode_as(VERSION + 1);
    // Its body is not looked at, and may be longer than this version's.
    socket.write_all(&[&bytes[..], &[1; 5000]].concat()).unwrap();
    assert_eq!(answer(&socket), Answer::Declined(Declined::Version(VERSION)));
    drop(socket);
    far.wait_for("a refusal", |far| far.dropped() == Dropped { declined: 1, ..Dropped::default() });

    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    let mut reply = Answer::Declined(Declined::Version(VERSION)).encode();
    reply[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    for dials in [true, false] {
        match dials {
            true => far.dial(&address, None, PURPOSES[0]),
            false => send_numbered(&far, &address, 0),
        }
        let mut socket = listener.accept().unwrap().0;
        socket.write_all(&reply).unwrap();
        let (_, _, why) = far.failed();
        assert!(matches!(why, NetError::Declined { why: Declined::Version(v), .. } if v == VERSION + 1), "{why}");
    }
}

/// Dials and control messages fail in the same way, at once.
fn fails_for(near: &Host, to: &Address, whom: Option<MemberId>, expected: impl Fn(&NetError) -> bool) {
    near.dial(to, whom, PURPOSES[0]);
    near.send(to, whom, &ControlMessage::Answer { reply: 0, bytes: 0 }, &[]);
    for _ in 0..2 {
        let (address, _, why) = near.failed();
        assert!(address == *to && expected(&why), "{why:?}");
    }
}

#[test]
fn a_foreign_process_is_refused() {
    let far = host(2);
    let other = GroupName::new("other").unwrap();
    let incoming = open(Options { group: other, ..options(1, LOOPBACK) });
    let group = |why: &Declined| matches!(why, Declined::Group(group) if group.as_str() == "net-tests");
    fails_for(&incoming, far.address(), None, |why| matches!(why, NetError::Declined { why, .. } if group(why)));
    let twin = host(2);
    let named = |why: &Declined| *why == Declined::IdConflict(MemberId(2));
    fails_for(&twin, far.address(), None, |why| matches!(why, NetError::Declined { why, .. } if named(why)));
    far.wait_for("four refusals", |far| far.dropped() == Dropped { declined: 4, ..Dropped::default() });
}

#[test]
fn the_wanted_process_is_another() {
    let (near, far) = (host(1), host(2));
    let wanted = Some(MemberId(7));
    let elsewhere = |why: &NetError| matches!(why, NetError::Elsewhere { wanted: MemberId(7), found: MemberId(2), .. });
    fails_for(&near, far.address(), wanted, elsewhere);
    // This has no effect on control messages to others, before or after.
    near.send(far.address(), Some(MemberId(2)), &numbered(0).0, &[]);
    expect_numbered(&far, near.card(), 0..1);
    fails_for(&near, far.address(), wanted, elsewhere);
    send_numbered(&near, far.address(), 1);
    expect_numbered(&far, near.card(), 1..2);
}

#[test]
fn a_process_that_dials_itself_learns_it() {
    let near =
        open(Options { listen: vec![LOOPBACK.parse().unwrap(), "[::1]:0".parse().unwrap()], ..options(1, LOOPBACK) });
    let myself = |why: &NetError| matches!(why, NetError::Myself { .. });
    fails_for(&near, near.address(), None, myself);
    fails_for(&near, near.address(), Some(MemberId(1)), myself);
    let by_name: Address = format!("localhost:{}", near.address().port().unwrap()).parse().unwrap();
    fails_for(&near, &by_name, None, myself);
}

#[test]
fn messages_leave_before_their_endpoint_ends() {
    let (near, far) = (host(1), host(2));
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    let card = near.card().clone();
    (1..1000).for_each(|number| send_numbered(&near, far.address(), number));
    drop(near);
    expect_numbered(&far, &card, 1..1000);
}

#[test]
fn a_peer_that_reads_nothing_does_not_delay_an_end() {
    let near = host(1);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    let attachment = vec![0; 32 << 20];
    near.send(&address, None, &ControlMessage::Answer { reply: 1, bytes: 32 << 20 }, &attachment);
    let mut socket = listener.accept().unwrap().0;
    socket.write_all(&Answer::Welcome(hello(Purpose::Control, 2, 2).card, 77).encode()).unwrap();
    socket.read_exact(&mut [0; 1000]).unwrap();
    drop(near);
    ends_by(socket);
}

#[test]
fn messages_of_others_are_forged() {
    let far = host(2);
    let hello = hello(Purpose::Control, 5, 5);
    let mut socket = greeted(far.address(), &hello);
    let parts = ControlMessage::RowDescriptors {
        incarnation: 1,
        view: ViewId(1),
        from: MemberId(5),
        pid: 1,
        birth: Birth::default(),
        at: 0,
        bytes: 64,
        event: false,
        address: None,
        rack: None,
    };
    socket.write_all(&[bytes_of(&request(6, 1)), bytes_of(&parts), bytes_of(&request(5, 2))].concat()).unwrap();
    assert_eq!(far.message(), (hello.card, request(5, 2), vec![]));
    assert_eq!(far.dropped(), Dropped { garbage: 1, forged: 1, ..Dropped::default() });
    socket.write_all(&[0xff; 100]).unwrap();
    ends_by(socket);
    assert_eq!(far.dropped().garbage, 2);
}

/// A process that lost its connection dials again. Its earlier control messages are read first, and
/// half a control message does not count.
#[test]
fn a_second_connection_follows_the_first() {
    let far = host(2);
    let hello = hello(Purpose::Control, 5, 5);
    for round in 0..20 {
        let mut first = greeted(far.address(), &hello);
        let messages: Vec<u8> = (0..200).flat_map(|i| bytes_of(&request(5, i))).collect();
        first.write_all(&messages).unwrap();
        first.write_all(&bytes_of(&request(5, 200))[..10]).unwrap();
        let mut second = greeted(far.address(), &hello);
        second.write_all(&bytes_of(&request(5, 200))).unwrap();
        for i in 0..=200 {
            assert_eq!(far.message().1, request(5, i), "in round {round}");
        }
        ends_by(first);
    }
    assert_eq!(far.dropped(), Dropped::default());
}

#[test]
fn messages_that_find_no_room_are_told_once() {
    let near = host(1);
    let (_kept, nobody) = deserted();
    (0..QUEUE_CONTROL_MESSAGES_MAX as u64 + 10).for_each(|number| send_numbered(&near, &nobody, number));
    let (_, _, why) = near.failed();
    assert!(
        matches!(why, NetError::QueueFull { messages, .. } if messages == QUEUE_CONTROL_MESSAGES_MAX as u64),
        "{why}"
    );
    let (_kept, nobody) = deserted();
    let large = vec![0; 60 << 20];
    (0..3).for_each(|_| near.send(&nobody, None, &ControlMessage::Answer { reply: 0, bytes: 60 << 20 }, &large));
    assert!(matches!(near.failed().2, NetError::QueueFull { messages: 2, .. }));
    // The oldest were kept, until no process accepted them.
    (0..2).for_each(|_| assert!(matches!(near.failed().2, NetError::Connect { .. })));
}

#[test]
fn forgotten_messages_are_not_sent() {
    let temp = TempDir::new();
    let address: Address = format!("unix:{}", temp.path().join("far").display()).parse().unwrap();
    let near = host(1);
    near.dial(&address, None, PURPOSES[0]);
    near.failed();
    (0..10).for_each(|number| send_numbered(&near, &address, number));
    near.forget(&address);
    let far = open(options(2, &address.to_string()));
    send_numbered(&near, &address, 10);
    expect_numbered(&far, near.card(), 10..11);
    // A connection that is up is closed without an event.
    near.forget(&address);
    send_numbered(&near, &address, 11);
    expect_numbered(&far, near.card(), 11..12);
    assert!(near.receive().is_none());
}

#[test]
fn a_subscriber_that_takes_no_events_gets_no_more() {
    let far = host(2);
    let mut socket = greeted(far.address(), &hello(Purpose::Control, 5, 5));
    let count = 40 * EVENTS_MAX as u64;
    let writer = std::thread::spawn(move || {
        for first in (0..count).step_by(1000) {
            let messages: Vec<u8> = (first..count.min(first + 1000)).flat_map(|i| bytes_of(&request(5, i))).collect();
            socket.write_all(&messages).unwrap();
        }
        socket
    });
    far.wait_for("enough", |far| far.waiting() >= EVENTS_MAX);
    // No other process is accepted either.
    let near = host(1);
    send_numbered(&near, far.address(), 0);
    // At most one more turn of reading.
    let turn = super::limits::READS_MAX * super::limits::READ_BYTES / bytes_of(&request(5, 0)).len();
    assert!(far.waiting() <= EVENTS_MAX + turn, "{}", far.waiting());
    let (mut next, mut other) = (0, false);
    while next < count || !other {
        match far.message() {
            (from, message, _) if from.id == MemberId(5) => {
                assert_eq!(message, request(5, next));
                next += 1;
            }
            (from, ..) => other = from == *near.card(),
        }
        assert!(far.waiting() <= EVENTS_MAX + turn, "{}", far.waiting());
    }
    drop(writer.join().unwrap());
}

#[test]
fn without_tls_nothing_leaves_the_host_unless_said() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let why = refused(options(1, address));
        assert!(matches!(why, NetError::Insecure { .. }), "{why}");
    }
    let near = host(1);
    let away: Address = "192.0.2.1:9".parse().unwrap();
    fails_for(&near, &away, None, |why| matches!(why, NetError::Insecure { .. }));
    let insecure = Options { security: Security::Insecure, ..options(2, "0.0.0.0:0") };
    let why = refused(insecure.clone());
    assert!(matches!(why, NetError::Advertise { .. }), "{why}");
    let far = open(Options { advertise: Some("127.0.0.1:0".parse().unwrap()), ..insecure });
    assert!(far.address().port().is_some_and(|port| port != 0));
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
}

#[test]
fn an_address_that_cannot_be_bound_is_reported() {
    let nowhere = Options { listen: vec![], ..options(1, LOOPBACK) };
    assert!(matches!(refused(nowhere), NetError::Nowhere));
    let far = host(2);
    let why = refused(options(1, &far.address().to_string()));
    assert!(matches!(why, NetError::Listen { .. }), "{why}");
    let temp = TempDir::new();
    let unix = format!("unix:{}", temp.path().join("a").display());
    let advertise = Some("127.0.0.1:0".parse().unwrap());
    let why = refused(Options { advertise, ..options(1, &unix) });
    assert!(matches!(why, NetError::Advertise { .. }), "{why}");
}

#[test]
fn paths_of_the_dead_are_taken_over_and_others_are_not() {
    let temp = TempDir::new();
    let path = temp.path().join("socket");
    let unix = format!("unix:{}", path.display());
    drop(UnixListener::bind(&path).unwrap());
    let far = open(options(2, &unix));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(refused(options(1, &unix)), NetError::Listen { .. }));
    assert!(UnixStream::connect(&path).is_ok());
    drop(far);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(refused(options(1, &unix)), NetError::Listen { .. }));
    assert!(path.exists());
}

/// At whatever stage incoming connections misbehave or leave, others are served, and no trace is
/// left of them.
#[test]
fn noise_costs_only_its_sender() {
    let (near, far) = (host(1), host(2));
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    println!("replay: SEED={seed} cargo test -p spindle-fabric noise_costs_only_its_sender");
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let purpose = if random() % 2 == 0 { Purpose::Control } else { PURPOSES[0] };
        let mut bytes = hello(purpose, 5, u128::from(random() % 3)).encode();
        if purpose == Purpose::Control {
            bytes.extend(bytes_of(&request(5, 1)));
        }
        for _ in 0..random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] ^= 1 << (random() % 8);
        }
        bytes.truncate(random() as usize % (2 * bytes.len()));
        let mut socket = raw(far.address());
        // It may have been closed.
        let _ = socket.write_all(&bytes);
        if random() % 2 == 0 {
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
        drop(socket);
        if round % 10 == 0 {
            send_numbered(&near, far.address(), round / 10);
            let wanted = loop {
                match far.next() {
                    Event::ControlMessage { from, message, .. } if from == *near.card() => break message,
                    Event::ControlMessage { from, .. } => assert_eq!(from.address.to_string().len(), 11, "{from:?}"),
                    Event::Stream { .. } => {}
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(wanted, numbered(round / 10).0);
        }
    }
}

fn secured(id: u64, listen: &str, identity: super::Identity) -> Host {
    open(Options { security: Security::Tls(identity), ..options(id, listen) })
}

/// Opens two members of a group with its own authority.
fn secured_pair(listen: &str) -> (Host, Host) {
    let authority = Authority::new();
    (secured(1, listen, authority.identity()), secured(2, listen, authority.identity()))
}

#[test]
fn messages_arrive_over_tls() {
    for listen in [LOOPBACK, "[::1]:0"] {
        let (near, far) = secured_pair(listen);
        for number in 0..500 {
            send_numbered(&near, far.address(), number);
            send_numbered(&far, near.address(), number);
        }
        expect_numbered(&far, near.card(), 0..500);
        expect_numbered(&near, far.card(), 0..500);
        let attachment: Vec<u8> = (0..20_000_000_u32).map(|i| (i ^ i >> 8) as u8).collect();
        let message = ControlMessage::Answer { reply: 1, bytes: 20_000_000 };
        near.send(far.address(), None, &message, &attachment);
        let (_, _, came) = far.message();
        assert!(came == attachment);
        near.forget(far.address());
        far.forget(near.address());
        let card = near.card().clone();
        (0..900).for_each(|number| send_numbered(&near, far.address(), number));
        drop(near);
        expect_numbered(&far, &card, 0..900);
        assert_eq!(far.dropped(), Dropped::default());
    }
}

#[test]
fn streams_over_tls_lose_nothing() {
    let (near, far) = secured_pair(LOOPBACK);
    for purpose in PURPOSES {
        near.dial(far.address(), Some(MemberId(2)), purpose);
        let (with, what, mut there, _) = far.stream();
        assert_eq!((&with, what), (near.card(), purpose));
        write_all(&mut *there, b"first");
        let (_, _, mut here, _) = near.stream();
        write_all(&mut *here, &[7; 100_000]);
        assert_eq!(read_exactly(&mut *here, 5), b"first");
        assert_eq!(read_exactly(&mut *there, 100_000), vec![7; 100_000]);
    }
}

/// TLS refuses dials from `near` and to it, whichever of the two rejects the other, and the other
/// continues to work.
fn tls_fails_between(near: &Host, far: &Host) {
    for (from, to) in [(near, far), (far, near)] {
        fails_for(from, to.address(), None, |why| matches!(why, NetError::Tls { .. }));
        to.wait_for("two strangers", |to| to.dropped().incoming >= 2);
        assert!(to.receive().is_none());
    }
}

#[test]
fn certificates_of_another_authority_do_not_count() {
    tls_fails_between(
        &secured(1, LOOPBACK, Authority::new().identity()),
        &secured(2, LOOPBACK, Authority::new().identity()),
    );
}

#[test]
fn certificates_have_their_time() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let expired = authority.sign("expired", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let old = secured(1, LOOPBACK, authority.load_in(2000, &expired));
    tls_fails_between(&old, &far);
    far.dial(old.address(), None, PURPOSES[0]);
    let why = far.failed().2.reason();
    assert_eq!(why, "no TLS: invalid peer certificate: it expired at 2001-01-01 00:00:00 UTC");
    let early = authority.sign("early", |params| params.not_before = rcgen::date_time_ymd(4000, 1, 1));
    tls_fails_between(&secured(3, LOOPBACK, authority.load_in(4001, &early)), &far);
    // A valid certificate works.
    let near = secured(4, LOOPBACK, authority.identity());
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
}

/// Creates a certificate with this DNS name.
fn named(authority: &Authority, name: &str) -> Identity {
    let san = rcgen::SanType::DnsName(name.try_into().unwrap());
    authority.load(&authority.sign(name, |params| params.subject_alt_names = vec![san]))
}

#[test]
fn a_certificate_is_good_for_the_ids_that_it_names() {
    let authority = Authority::new();
    let strict = |name| named(&authority, name).with_rule(Rule::Names);
    let near = secured(1, LOOPBACK, strict("spindle-member-1"));
    let far = secured(2, LOOPBACK, strict("spindle-member-2"));
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    let own = |id, name| refused(Options { security: Security::Tls(strict(name)), ..options(id, LOOPBACK) });
    for (id, name) in [(3, "spindle-member-1"), (1, "spindle-member-11"), (CLIENT_IDS_FROM, "spindle-member-1")] {
        let why = own(id, name);
        assert!(matches!(why, NetError::OwnIdentity { id: MemberId(found) } if found == id), "{why}");
    }
    // A process that does not check its own certificate.
    for id in [3, CLIENT_IDS_FROM] {
        let impostor = secured(id, LOOPBACK, named(&authority, "spindle-member-1"));
        let is_declined =
            |why: &NetError| matches!(why, NetError::Declined { why: Declined::Identity(of), .. } if of.0 == id);
        fails_for(&impostor, far.address(), None, is_declined);
        fails_for(&far, impostor.address(), None, |why| matches!(why, NetError::Identity { id: of, .. } if of.0 == id));
    }
    let judge = secured(CLIENT_IDS_FROM + 1, LOOPBACK, strict("spindle-admin"));
    send_numbered(&judge, far.address(), 0);
    expect_numbered(&far, judge.card(), 0..1);
}

#[test]
fn an_open_endpoint_shows_a_certificate_that_was_renewed() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let files = authority.sign("renewed", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let near = secured(1, LOOPBACK, authority.load_in(2000, &files));
    tls_fails_between(&near, &far);
    authority.sign("renewed", |_| {});
    let start = Instant::now();
    loop {
        near.dial(far.address(), None, PURPOSES[0]);
        match near.next() {
            Event::Stream { .. } => break,
            Event::Failed { why, .. } => assert!(start.elapsed() < PATIENCE, "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_peer_without_certificate_is_refused() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let nameless = authority.identity().without_certificate();
    let near = secured(1, LOOPBACK, nameless);
    fails_for(&near, far.address(), None, |why| matches!(why, NetError::Tls { .. }));
    assert!(far.receive().is_none());
}

#[test]
fn with_tls_and_without_do_not_mix() {
    let (plain, far) = (host(1), secured(2, LOOPBACK, Authority::new().identity()));
    for (from, to) in [(&plain, &far), (&far, &plain)] {
        from.dial(to.address(), None, PURPOSES[0]);
        let why = from.failed().2;
        assert!(matches!(why, NetError::Incoming { .. }), "{why}");
        to.wait_for("a stranger", |to| to.dropped().incoming == 1);
    }
}

#[test]
fn refusals_are_told_over_tls() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let twin = secured(2, LOOPBACK, authority.identity());
    let named = |why: &NetError| matches!(why, NetError::Declined { why: Declined::IdConflict(MemberId(2)), .. });
    fails_for(&twin, far.address(), None, named);
    fails_for(&far, far.address(), None, |why| matches!(why, NetError::Myself { .. }));
}

#[test]
fn with_tls_one_may_listen_off_the_host() {
    let advertise = Some("127.0.0.1:0".parse().unwrap());
    let authority = Authority::new();
    let security = Security::Tls(authority.identity());
    let far = open(Options { security, advertise, ..options(2, "0.0.0.0:0") });
    let near = secured(1, LOOPBACK, authority.identity());
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
}

/// Incoming connections that begin as TLS does, or not, and leave or stay.
#[test]
fn noise_before_tls_costs_only_its_sender() {
    let (near, far) = secured_pair(LOOPBACK);
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    println!("replay: SEED={seed} cargo test -p spindle-fabric noise_before_tls");
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // A connection that has said who it is keeps its slot.
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    let mut stay = vec![];
    for round in 0..200_u64 {
        let mut bytes: Vec<u8> = (0..random() % 600).map(|_| random() as u8).collect();
        if random() % 3 > 0 {
            // The head of a record of a handshake, or of an alert.
            let record = [21 + (random() % 3) as u8, 3, 1, 0, (random() % 256) as u8, 1];
            bytes.splice(0..0, record);
        }
        let mut socket = raw(far.address());
        let _ = socket.write_all(&bytes);
        if random() % 4 == 0 {
            stay.push(socket);
        }
        if round % 10 == 0 {
            send_numbered(&near, far.address(), 1 + round / 10);
        }
    }
    expect_numbered(&far, near.card(), 1..21);
    stay.into_iter().for_each(ends_by);
    far.wait_for("all of them", |far| far.dropped() == Dropped { incoming: 200, ..Dropped::default() });
}

/// Control messages that the connection held back when it broke are lost, and no caller waits for
/// them.
#[test]
fn a_loss_over_tls_is_told_once() {
    let authority = Authority::new();
    let socket = SocketOptions { send_buffer_bytes: Some(1), ..SocketOptions::default() };
    let security = Security::Tls(authority.identity());
    let near = open(Options { security, socket, ..options(1, LOOPBACK) });
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 16 << 10).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    near.send(&address, None, &ControlMessage::Answer { reply: 1, bytes: 200_000 }, &[7; 200_000]);
    let far = SocketStream::new(listener.accept().unwrap().0, &SocketOptions::default()).unwrap();
    let mut far = super::TlsStream::new(far, &authority.identity(), false).unwrap();
    let head = read_exactly(&mut far, 16);
    read_exactly(&mut far, u32::from_le_bytes(*head.last_chunk().unwrap()) as usize);
    let card = hello(Purpose::Control, 2, 2).card;
    write_all(&mut far, &Answer::Welcome(card.clone(), 77).encode());
    // It has begun to leave, and is accepted whole once the sender does something else.
    read_exactly(&mut far, 1);
    let other = secured(3, LOOPBACK, authority.identity());
    send_numbered(&other, near.address(), 0);
    expect_numbered(&near, other.card(), 0..1);
    drop((far, listener));
    assert_eq!(near.lost(), card);
    let (_kept, nobody) = deserted();
    send_numbered(&near, &nobody, 0);
    assert_eq!(near.failed().0, nobody);
}

const LIFE: Purpose = Purpose::Life { incarnation: 7, view: ViewId(3) };

impl Host {
    /// Returns the process that is watched from now on, which has said before who it is.
    fn watched(&self) -> Card {
        self.watched_despite(&[])
    }

    /// The same while requests to watch processes at the addresses `gone` may fail.
    fn watched_despite(&self, gone: &[Address]) -> Card {
        let mut answered = vec![];
        loop {
            match self.next() {
                // Each side asks.
                Event::Answers { with, .. } => answered.push(with),
                Event::Failed { address, purpose: LIFE, .. } if gone.contains(&address) => {}
                Event::Watched { with } => {
                    assert!(answered.contains(&with));
                    return with;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn ended(&self) -> Card {
        self.ended_despite(&[])
    }

    fn ended_despite(&self, gone: &[Address]) -> Card {
        loop {
            match self.next() {
                Event::Ended { with, incarnation: 7, view: ViewId(3), .. } => return with,
                // The reply to a question of the other side.
                Event::Answers { .. } => {}
                Event::Failed { address, purpose: LIFE, .. } if gone.contains(&address) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A process with an endpoint, of member 2. It uses TLS if files for that are given.
struct Other(Child, Address, #[expect(dead_code, reason = "it would end by writing to nobody")] BufReader<ChildStdout>);

impl Other {
    fn start(files: Option<(&Path, &(PathBuf, PathBuf))>) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "net::tests::child", "--ignored", "--nocapture", "--test-threads=1"]);
        process.env("NET_CHILD", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some((authority, (certificate, key))) = files {
            process.env("NET_CA", authority).env("NET_CERTIFICATE", certificate).env("NET_KEY", key);
        }
        let mut process = process.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let lines = output.by_ref().lines().map_while(Result::ok);
        let address = lines.filter_map(|line| line.strip_prefix("listens at ")?.parse().ok()).next();
        Other(process, address.expect("it has an endpoint"), output)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the program that [`Other`] runs.
#[test]
#[ignore = "other tests start it"]
fn child() {
    if std::env::var_os("NET_CHILD").is_none() {
        return;
    }
    let file = |name| std::env::var_os(name).map(PathBuf::from);
    let host = match (file("NET_CA"), file("NET_CERTIFICATE"), file("NET_KEY")) {
        (Some(authority), Some(certificate), Some(key)) => {
            secured(2, LOOPBACK, Identity::load(&authority, &certificate, &key).unwrap())
        }
        _ => host(2),
    };
    println!("\nlistens at {}", host.address());
    // Runs until it is killed, or until its input ends or has a byte, as a request to leave.
    let _ = io::stdin().read(&mut [0]);
}

#[test]
fn the_end_of_a_watched_process_is_known_and_a_leaver_has_not_ended() {
    let near = host(1);
    // Requests may come to these processes after their ends.
    let mut gone = vec![];
    for _ in 0..2 {
        let mut leaves = Other::start(None);
        near.watch(&leaves.1, MemberId(2), 7, ViewId(3));
        assert_eq!(near.watched_despite(&gone).id, MemberId(2));
        gone.push(leaves.1.clone());
        // A second request is no second watch.
        near.watch(&leaves.1, MemberId(2), 7, ViewId(3));
        leaves.0.stdin.take().unwrap().write_all(b"x").unwrap();
        assert!(leaves.0.wait().unwrap().success());
        let dies = Other::start(None);
        // Until this process notices that the one that has left is watched no more.
        let start = Instant::now();
        let with = loop {
            near.watch(&dies.1, MemberId(2), 7, ViewId(3));
            match near.receive() {
                Some(Event::Watched { with }) => break with,
                // The second request may come when the first process has left already.
                Some(Event::Answers { .. } | Event::Failed { purpose: LIFE, .. }) => {}
                Some(other) => panic!("{other:?}"),
                None => assert!(start.elapsed() < PATIENCE),
            }
        };
        assert_eq!(with.address, dies.1);
        gone.push(dies.1.clone());
        drop(dies);
        assert_eq!(near.ended_despite(&gone), with);
        // No process answers there any more.
        near.check(&with.address, MemberId(2), 7, ViewId(3));
        assert!(matches!(near.next(), Event::Failed { purpose: LIFE, .. }));
    }
    let is_late = |event| matches!(event, Event::Failed { address, purpose: LIFE, .. } if gone.contains(&address));
    assert!(std::iter::from_fn(|| near.receive()).all(is_late));
}

#[test]
fn a_process_that_lives_answers_when_its_watch_has_ended() {
    let far = host(2);
    let mut socket = greeted(far.address(), &hello(LIFE, 1, 1));
    socket.write_all(&[1, 3]).unwrap();
    assert_eq!(far.watched().id, MemberId(1));
    drop(socket);
    assert_eq!(far.ended().id, MemberId(1));
    let near = host(1);
    far.check(near.address(), MemberId(1), 7, ViewId(3));
    assert_eq!((far.watched(), near.watched()), (near.card().clone(), far.card().clone()));
}

#[test]
fn over_tls_the_end_of_a_watched_process_is_known() {
    let authority = Authority::new();
    let near = secured(1, LOOPBACK, authority.identity());
    let dies = Other::start(Some((&authority.path("ca.pem"), &authority.sign("other", |_| {}))));
    near.watch(&dies.1, MemberId(2), 7, ViewId(3));
    let with = near.watched();
    drop(dies);
    assert_eq!(near.ended(), with);
}

#[test]
fn each_watches_over_the_other_until_one_does_not_want_to() {
    let (near, far) = (host(1), host(2));
    near.watch(far.address(), MemberId(2), 7, ViewId(3));
    assert_eq!((near.watched(), far.watched()), (far.card().clone(), near.card().clone()));
    // The process is known from its hello.
    far.watch(near.address(), MemberId(1), 7, ViewId(3));
    near.unwatch(MemberId(2));
    // A new watch can begin as soon as the other side knows the end of the first one, which is not
    // taken for a death.
    let start = Instant::now();
    while far.receive().is_none_or(|event| !matches!(event, Event::Watched { .. })) {
        near.watch(far.address(), MemberId(2), 7, ViewId(3));
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(near.watched(), *far.card());
}

/// Peers that are watched, or are to be watched, and do not follow the protocol.
#[test]
fn a_stranger_on_a_watch_does_no_harm() {
    let far = host(2);
    for said in [&[][..], &[1], &[1, 3, 2], &[9; 100]] {
        let mut socket = greeted(far.address(), &hello(LIFE, 1, 1));
        socket.write_all(said).unwrap();
        if said.len() == 3 {
            assert_eq!(far.watched().id, MemberId(1));
        } else {
            assert!(matches!(far.next(), Event::Answers { .. }));
        }
        // The peer may have closed it already.
        let _ = socket.shutdown(Shutdown::Write);
        ends_by(socket);
    }
    let mut socket = greeted(far.address(), &hello(LIFE, 3, 1));
    socket.write_all(&[1, 3]).unwrap();
    assert_eq!(far.watched().id, MemberId(3));
    // Before the bytes were read, the end might be one with unread bytes, as that of a process is,
    // too.
    drop(socket);
    assert_eq!(far.ended().id, MemberId(3));
    assert!(far.receive().is_none());
}
