//! Endpoints of one process that reach each other over loopback and Unix sockets, and incoming
//! connections that are raw sockets.
use super::endpoint::{EndpointOptions, NetEndpoint};
use super::event::{EndpointDrops, NetEvent};
use super::hello::{Hello, HelloAnswer, HelloReader, Magic};
use super::limits::{EVENTS_MAX, HALF_OPEN_MAX, QUEUE_CONTROL_MESSAGES_MAX};
use super::security::Security;
use super::{Declined, Identity, IdentityRule, Names, NetError, TlsStream};
use crate::rendezvous::GroupName;
use crate::stream::{Connection, SocketOptions, SocketStream, Space, Stream};
use crate::testing::{Authority, PATIENCE, TempDir};
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

mod connecting;
mod delivery;
mod incoming;
mod liveness;
mod tls;

const LOOPBACK: &str = "127.0.0.1:0";
const LIFE: Purpose = Purpose::Life { incarnation: 7, view: ViewId(3) };

/// An endpoint, and a way to wait for its events.
struct Host {
    endpoint: NetEndpoint,
    told: Arc<(Mutex<bool>, Condvar)>,
}

impl std::ops::Deref for Host {
    type Target = NetEndpoint;

    fn deref(&self) -> &NetEndpoint {
        &self.endpoint
    }
}

fn options(id: u64, listen: &str) -> EndpointOptions {
    EndpointOptions {
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

fn open(options: EndpointOptions) -> Host {
    let told = Arc::new((Mutex::new(false), Condvar::new()));
    let tell = Arc::clone(&told);
    let endpoint = NetEndpoint::open(options, move || {
        *tell.0.lock().unwrap() = true;
        tell.1.notify_one();
    });
    Host { endpoint: endpoint.unwrap(), told }
}

fn host(id: u64) -> Host {
    open(options(id, LOOPBACK))
}

fn refused(options: EndpointOptions) -> NetError {
    NetEndpoint::open(options, || {}).unwrap_err()
}

impl Host {
    /// Returns the next event, except those of connections that control messages have established
    /// or still need.
    fn receive(&self) -> Option<NetEvent> {
        std::iter::from_fn(|| self.endpoint.receive())
            .find(|event| !matches!(event, NetEvent::Reached { .. } | NetEvent::Delayed { .. }))
    }

    fn next(&self) -> NetEvent {
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
            NetEvent::ControlMessage { from, message, attachment, .. } => (from, message, attachment),
            other => panic!("{other:?}"),
        }
    }

    fn stream(&self) -> (Card, Purpose, Connection, bool) {
        match self.next() {
            NetEvent::Stream { with, purpose, stream, dialled, .. } => (with, purpose, stream, dialled),
            other => panic!("{other:?}"),
        }
    }

    fn failed(&self) -> (Address, Purpose, NetError) {
        match self.next() {
            NetEvent::Failed { address, purpose, why } => (address, purpose, why),
            other => panic!("{other:?}"),
        }
    }

    fn lost(&self) -> Card {
        match self.next() {
            NetEvent::Lost { with } => with,
            other => panic!("{other:?}"),
        }
    }

    fn wait_for(&self, what: &str, ready: impl Fn(&NetEndpoint) -> bool) {
        let start = Instant::now();
        while !ready(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}, {:?}", self.dropped());
            std::thread::yield_now();
        }
    }
}

/// Every control message has a number, and bytes that depend on it.
fn numbered(number: u64) -> (ControlMessage, Vec<u8>) {
    let attachment = vec![number as u8; (number % 7 * 100) as usize];
    (ControlMessage::Answer { reply: number, bytes: attachment.len() as u64 }, attachment)
}

fn send_numbered(from: &NetEndpoint, to: &Address, number: u64) {
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
fn answer(socket: &TcpStream) -> HelloAnswer {
    let stream = socket.try_clone().unwrap();
    let mut stream = SocketStream::new(stream, &SocketOptions::default()).unwrap();
    let (mut incoming, start) = (HelloReader::new(Magic::Answer), Instant::now());
    let answer = loop {
        if let Some(body) = incoming.receive(&mut stream).unwrap() {
            break HelloAnswer::decode(body).unwrap();
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
    assert!(matches!(answer(&socket), HelloAnswer::Welcome(..)));
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

const PURPOSES: [Purpose; 6] = [
    Purpose::Part { incarnation: u128::MAX - 3, view: ViewId(7) },
    Purpose::Observer { incarnation: 1, view: ViewId(u64::MAX) },
    Purpose::State { view: ViewId(0) },
    Purpose::Bulk { incarnation: 3, view: ViewId(1), number: 1 << 40 },
    Purpose::Objects { view: ViewId(1), reply: 1 << 40 },
    Purpose::Records { reply: 1 << 40 },
];

/// Dials and control messages fail in the same way, at once.
fn fails_for(near: &Host, to: &Address, whom: Option<MemberId>, expected: impl Fn(&NetError) -> bool) {
    near.dial(to, whom, PURPOSES[0]);
    near.send(to, whom, &ControlMessage::Answer { reply: 0, bytes: 0 }, &[]);
    for _ in 0..2 {
        let (address, _, why) = near.failed();
        assert!(address == *to && expected(&why), "{why:?}");
    }
}

fn secured(id: u64, listen: &str, identity: Identity) -> Host {
    open(EndpointOptions { security: Security::Tls(identity), ..options(id, listen) })
}

/// Opens two members of a group with its own authority.
fn secured_pair(listen: &str) -> (Host, Host) {
    let authority = Authority::new();
    (secured(1, listen, authority.identity()), secured(2, listen, authority.identity()))
}

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
                NetEvent::Answers { with, .. } => answered.push(with),
                NetEvent::Failed { address, purpose: LIFE, .. } if gone.contains(&address) => {}
                NetEvent::Watched { with } => {
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
                NetEvent::Ended { with, incarnation: 7, view: ViewId(3), .. } => return with,
                // The reply to a question of the other side.
                NetEvent::Answers { .. } => {}
                NetEvent::Failed { address, purpose: LIFE, .. } if gone.contains(&address) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
