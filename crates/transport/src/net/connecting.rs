//! A connection attempt: it resolves a name, tries its addresses, and asks the process that answers
//! who it is.
use super::error::NetError;
use super::hello::{Declined, Hello, HelloAnswer, HelloError, HelloReader, HelloWriter, Magic};
use super::limits::{ADDRESSES_MAX, CONNECT_DEADLINE, HELLO_DEADLINE, NEXT_ADDRESS_AFTER, REPEAT_AFTER, REPEATS_MAX};
use super::listen::is_loopback;
use super::me::LocalEndpoint;
use super::poller::{IN, OUT, Poller, Token, Wire};
use super::resolve::{ConnectTarget, Resolved};
use super::security::{Security, is_tls_fault};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use spindle_core::MemberId;
use spindle_core::control::{Address, Card, Purpose};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) address: Address,
    pub(super) purpose: Purpose,
    /// The queue of control messages that wait for it.
    pub(super) post: Option<u64>,
    whom: Option<MemberId>,
    token: Token,
    stage: ConnectStage,
    deadline: Instant,
}

#[derive(Debug)]
enum ConnectStage {
    Resolving,
    Connecting(HappyEyeballs),
    Greeting { wire: Wire, hello: HelloWriter, answer: HelloReader },
    Over,
}

#[derive(Debug)]
struct HappyEyeballs {
    rest: VecDeque<ConnectTarget>,
    /// The addresses that have not answered, and are tried again.
    silent: VecDeque<ConnectTarget>,
    next_at: Instant,
    /// The time between two of those tries.
    pause: Duration,
    /// The sockets that are connecting, oldest first.
    pending: Vec<(OwnedFd, ConnectTarget)>,
    failed: io::Error,
}

/// The result: the connection, with the card and the process of the peer.
pub(super) type ConnectOutcome = Result<(Wire, Card, u128), NetError>;

impl Connecting {
    /// Creates an attempt that waits until its address is [`found`](Self::found).
    pub(super) fn new(
        token: Token,
        address: Address,
        whom: Option<MemberId>,
        purpose: Purpose,
        post: Option<u64>,
    ) -> Connecting {
        Connecting {
            address,
            purpose,
            post,
            whom,
            token,
            stage: ConnectStage::Resolving,
            deadline: Instant::now() + CONNECT_DEADLINE,
        }
    }

    /// Returns whether the attempt is to watch this process.
    pub(super) fn watches(&self, whom: MemberId) -> bool {
        matches!(self.purpose, Purpose::Life { .. }) && self.whom == Some(whom)
    }

    /// Returns when it next needs to run, if nothing happens before.
    pub(super) fn wake_at(&self) -> Instant {
        match &self.stage {
            ConnectStage::Connecting(connecting) if connecting.goes_on() => self.deadline.min(connecting.next_at),
            _ => self.deadline,
        }
    }

    /// Starts to connect to the addresses that were found.
    pub(super) fn found(&mut self, found: Resolved, me: &LocalEndpoint, poller: &Poller) -> Option<ConnectOutcome> {
        let mut targets = match found {
            Ok(targets) => targets,
            Err(source) => return self.fail(NetError::Resolve { address: self.address.clone(), source }),
        };
        targets.truncate(ADDRESSES_MAX);
        let off_host = |target: &ConnectTarget| matches!(target, ConnectTarget::Ip(ip) if !is_loopback(ip));
        if matches!(me.security, Security::Local) && targets.iter().any(off_host) {
            return self.fail(NetError::Insecure { address: self.address.clone() });
        }
        self.stage = ConnectStage::Connecting(HappyEyeballs::new(targets));
        self.deadline = Instant::now() + CONNECT_DEADLINE;
        self.progress(me, poller)
    }

    /// Does what can be done. Must not be called after it has returned a result.
    pub(super) fn progress(&mut self, me: &LocalEndpoint, poller: &Poller) -> Option<ConnectOutcome> {
        if let ConnectStage::Connecting(connecting) = &mut self.stage {
            match connecting.progress(self.token, poller) {
                Ok(None) => {}
                Ok(Some(socket)) => {
                    if let Err(error) = self.greet(socket, me, poller) {
                        return self.fail(error);
                    }
                }
                Err(source) => return self.fail(NetError::Connect { address: self.address.clone(), source }),
            }
        }
        if let ConnectStage::Greeting { wire, hello, answer } = &mut self.stage {
            match exchange(wire, hello, answer, poller) {
                Ok(None) => {}
                Ok(Some(answer)) => return self.conclude(answer, me),
                Err(error) => return self.fail(explain(error, &self.address)),
            }
        }
        if Instant::now() >= self.deadline {
            let (what, after) = match self.stage {
                ConnectStage::Resolving => ("resolve", CONNECT_DEADLINE),
                ConnectStage::Connecting(_) => ("accept a connection", CONNECT_DEADLINE),
                ConnectStage::Greeting { .. } | ConnectStage::Over => ("say who it is", HELLO_DEADLINE),
            };
            return self.fail(NetError::TimedOut { address: self.address.clone(), what, after });
        }
        None
    }

    fn fail(&mut self, why: NetError) -> Option<ConnectOutcome> {
        self.stage = ConnectStage::Over;
        Some(Err(why))
    }

    fn greet(&mut self, socket: OwnedFd, me: &LocalEndpoint, poller: &Poller) -> Result<(), NetError> {
        let broken = |source| NetError::Broken { address: self.address.clone(), source };
        poller.remove(&socket);
        let stream = me.wrap(socket, true).map_err(broken)?;
        let wire = Wire::new(poller, stream, self.token).map_err(broken)?;
        let hello = Hello {
            group: me.group.clone(),
            purpose: self.purpose,
            card: me.card.clone(),
            process: me.process,
            wanted: self.whom,
        };
        let (hello, answer) = (HelloWriter::new(hello.encode()), HelloReader::new(Magic::Answer));
        self.stage = ConnectStage::Greeting { wire, hello, answer };
        self.deadline = Instant::now() + HELLO_DEADLINE;
        Ok(())
    }

    fn conclude(&mut self, answer: HelloAnswer, me: &LocalEndpoint) -> Option<ConnectOutcome> {
        let address = self.address.clone();
        if let (HelloAnswer::Welcome(card, _), ConnectStage::Greeting { wire, .. }) = (&answer, &self.stage)
            && !me.admits(card.id, &*wire.stream)
        {
            return self.fail(NetError::Identity { address, id: card.id });
        }
        let elsewhere = |wanted, found| NetError::Elsewhere { address: address.clone(), wanted, found };
        match (answer, self.whom) {
            (HelloAnswer::Welcome(Card { id, .. }, _), Some(wanted)) if wanted != id => {
                self.fail(elsewhere(wanted, id))
            }
            (HelloAnswer::Welcome(card, process), _) => match std::mem::replace(&mut self.stage, ConnectStage::Over) {
                ConnectStage::Greeting { wire, .. } => Some(Ok((wire, card, process))),
                _ => None,
            },
            (HelloAnswer::Declined(Declined::Member(found)), Some(wanted)) => self.fail(elsewhere(wanted, found)),
            (HelloAnswer::Declined(Declined::Myself), _) => self.fail(NetError::Myself { address }),
            (HelloAnswer::Declined(why), _) => self.fail(NetError::Declined { address, why }),
        }
    }
}

/// Sends the hello and receives the answer.
fn exchange(
    wire: &mut Wire,
    hello: &mut HelloWriter,
    answer: &mut HelloReader,
    poller: &Poller,
) -> Result<Option<HelloAnswer>, HelloError> {
    let sent = hello.send(&mut *wire.stream);
    // A peer that refuses at once may have closed already; its answer can still be read.
    let answer = match answer.receive(&mut *wire.stream) {
        Ok(Some(body)) => Some(HelloAnswer::decode(body)?),
        Ok(None) => None,
        Err(error) => return Err(error),
    };
    // Receiving may have left something to send.
    let wants_out = !sent? || wire.stream.holds_back();
    wire.want_out(poller, wants_out);
    Ok(answer)
}

fn explain(error: HelloError, address: &Address) -> NetError {
    let address = address.clone();
    let what = "it closed the connection before it answered, as one does that expects TLS, or does not";
    let closed = || NetError::Incoming { address: address.clone(), what };
    match error {
        HelloError::Version(version) => NetError::Declined { address, why: Declined::Version(version) },
        HelloError::Wire(_) => NetError::Incoming { address, what: "it answered something else" },
        HelloError::Ended => closed(),
        HelloError::Io(source) if is_end(&source) => closed(),
        HelloError::Io(source) if is_tls_fault(&source) => NetError::Tls { address, why: source.to_string() },
        HelloError::Io(source) => NetError::Broken { address, source },
    }
}

/// Returns whether the error is one of the forms in which a closed connection shows.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

impl HappyEyeballs {
    fn new(targets: Vec<ConnectTarget>) -> HappyEyeballs {
        HappyEyeballs {
            rest: targets.into(),
            silent: VecDeque::new(),
            next_at: Instant::now(),
            pause: REPEAT_AFTER,
            pending: vec![],
            failed: io::ErrorKind::NotFound.into(),
        }
    }

    /// Returns whether an address is left to try, now or later.
    fn goes_on(&self) -> bool {
        !self.rest.is_empty() || !self.silent.is_empty()
    }

    /// Returns the first socket that is connected.
    ///
    /// # Errors
    /// The reason why the last one was not, if there is no other to wait for.
    fn progress(&mut self, token: Token, poller: &Poller) -> io::Result<Option<OwnedFd>> {
        let mut i = 0;
        while i < self.pending.len() {
            match is_connected(&self.pending[i].0) {
                Ok(true) => return Ok(Some(self.pending.remove(i).0)),
                Ok(false) => i += 1,
                Err(error) => {
                    self.failed = error;
                    let (_, target) = self.pending.remove(i);
                    self.silent.retain(|silent| *silent != target);
                }
            }
        }
        let now = Instant::now();
        // The first packet to it may have been lost. The system sends it again after one second,
        // then after two: a link that is back could stay without a connection for longer than a
        // member may be silent.
        if self.rest.is_empty() && now >= self.next_at {
            self.rest.extend(self.silent.pop_front());
        }
        // Each address at most once.
        for _ in 0..self.rest.len() {
            if !self.pending.is_empty() && now < self.next_at {
                break;
            }
            let Some(target) = self.rest.pop_front() else { break };
            self.next_at = now + self.next_pause();
            match begin(&target) {
                Ok((socket, true)) => return Ok(Some(socket)),
                Ok((socket, false)) => match poller.add(&socket, token, IN | OUT) {
                    Ok(()) => {
                        self.make_room(&target);
                        self.silent.push_back(target.clone());
                        self.pending.push((socket, target));
                    }
                    Err(error) => self.failed = error,
                },
                // A Unix socket's queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.rest.push_back(target);
                    self.failed = error;
                    return Ok(None);
                }
                Err(error) => self.failed = error,
            }
        }
        match self.pending.is_empty() && self.rest.is_empty() {
            true => Err(std::mem::replace(&mut self.failed, io::ErrorKind::NotFound.into())),
            false => Ok(None),
        }
    }

    /// Returns the time until the next try.
    fn next_pause(&mut self) -> Duration {
        if !self.rest.is_empty() {
            return NEXT_ADDRESS_AFTER;
        }
        let next = NEXT_ADDRESS_AFTER.min(2 * self.pause);
        std::mem::replace(&mut self.pause, next)
    }

    /// Closes a socket to `target` if there are too many for one more. The oldest stays: where
    /// packets take long, it connects first.
    fn make_room(&mut self, target: &ConnectTarget) {
        let mut repeats = self.pending.iter().enumerate().filter(|(_, (_, other))| other == target).skip(1);
        let second = repeats.next().map(|(i, _)| i);
        let count = second.map_or(0, |_| 1 + repeats.count());
        if let Some(second) = second.filter(|_| count >= REPEATS_MAX) {
            self.pending.remove(second);
        }
    }
}

/// Returns a socket that connects, and whether it has connected.
fn begin(target: &ConnectTarget) -> io::Result<(OwnedFd, bool)> {
    let family = match target {
        ConnectTarget::Unix(_) => AddressFamily::UNIX,
        ConnectTarget::Ip(ip) if ip.is_ipv4() => AddressFamily::INET,
        ConnectTarget::Ip(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    let connected = match target {
        ConnectTarget::Ip(ip) => net::connect(&socket, ip),
        ConnectTarget::Unix(path) => net::connect(&socket, &SocketAddrUnix::new(path.as_str())?),
    };
    match connected {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok((socket, false)),
        Err(errno) => Err(errno.into()),
    }
}

fn is_connected(socket: &OwnedFd) -> io::Result<bool> {
    sockopt::socket_error(socket)??;
    match net::getpeername(socket) {
        Ok(peer) => Ok(peer.is_some()),
        Err(Errno::NOTCONN) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::PATIENCE;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::os::unix::net::UnixListener;

    fn until_connected(connecting: &mut HappyEyeballs) -> io::Result<OwnedFd> {
        let (poller, _waker) = Poller::new().unwrap();
        let start = Instant::now();
        loop {
            if let Some(socket) = connecting.progress(Token::Connecting(1), &poller)? {
                return Ok(socket);
            }
            assert!(start.elapsed() < PATIENCE, "no connection");
            poller.wait(Some(NEXT_ADDRESS_AFTER)).unwrap();
        }
    }

    fn bound(backlog: Option<i32>) -> (OwnedFd, SocketAddr) {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        if let Some(backlog) = backlog {
            net::listen(&socket, backlog).unwrap();
        }
        let address = net::getsockname(&socket).unwrap().try_into().unwrap();
        (socket, address)
    }

    /// One address refuses, one is silent, and one answers.
    #[test]
    fn every_address_of_a_name_has_its_chance() {
        let (_refuses, refusing) = bound(None);
        // Its queue is full, so the system answers no further process there.
        let (_silent, silent) = bound(Some(0));
        let half_open: Vec<_> = (0..4).map(|_| begin(&ConnectTarget::Ip(silent)).unwrap()).collect();
        let answers = TcpListener::bind("127.0.0.1:0").unwrap();
        let answering = answers.local_addr().unwrap();
        let targets = [refusing, silent, answering].map(ConnectTarget::Ip);
        let socket = until_connected(&mut HappyEyeballs::new(targets.into())).unwrap();
        let peer = net::getpeername(&socket).unwrap().unwrap();
        assert_eq!(SocketAddr::try_from(peer).unwrap(), answering);
        let refused = until_connected(&mut HappyEyeballs::new(vec![ConnectTarget::Ip(refusing)])).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        drop(half_open);
    }

    /// The system does not answer, as if each packet were lost. The address is tried for as long as
    /// the attempt lasts, with a bounded number of sockets, and a connection is made soon after the
    /// system answers again.
    #[test]
    fn an_address_that_does_not_answer_is_tried_until_it_does() {
        let (listener, silent) = bound(Some(0));
        let mut half_open: Vec<_> = (0..4).map(|_| begin(&ConnectTarget::Ip(silent)).unwrap()).collect();
        let (poller, _waker) = Poller::new().unwrap();
        let mut connecting = HappyEyeballs::new(vec![ConnectTarget::Ip(silent)]);
        let start = Instant::now();
        let mut tries = 0;
        while tries < 3 * REPEATS_MAX {
            let before = connecting.next_at;
            assert!(connecting.progress(Token::Connecting(1), &poller).unwrap().is_none());
            tries += usize::from(connecting.next_at != before);
            assert!(connecting.goes_on() && connecting.pending.len() <= REPEATS_MAX + 1);
            assert!(start.elapsed() < PATIENCE, "tried {tries} times");
            poller.wait(Some(REPEAT_AFTER)).unwrap();
        }
        assert_eq!((connecting.pending.len(), connecting.pause), (REPEATS_MAX + 1, NEXT_ADDRESS_AFTER));
        half_open.clear();
        rustix::io::ioctl_fionbio(&listener, true).unwrap();
        let mut accepted = vec![];
        while !matches!(connecting.progress(Token::Connecting(1), &poller), Ok(Some(_))) {
            accepted.extend(net::accept(&listener).ok());
            assert!(start.elapsed() < PATIENCE, "no connection");
            poller.wait(Some(REPEAT_AFTER)).unwrap();
        }
    }

    #[test]
    fn a_full_queue_of_a_unix_socket_is_tried_again() {
        let temp = crate::testing::TempDir::new();
        let path = temp.path().join("socket");
        let target = ConnectTarget::Unix(path.to_str().unwrap().into());
        let listener = UnixListener::bind(&path).unwrap();
        // Fewer than the default.
        net::listen(&listener, 3).unwrap();
        let mut half_open = vec![];
        let full = loop {
            match begin(&target) {
                Ok(one) => half_open.push(one),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let (poller, _waker) = Poller::new().unwrap();
        let mut connecting = HappyEyeballs::new(vec![target]);
        assert!(connecting.progress(Token::Connecting(1), &poller).unwrap().is_none());
        listener.accept().unwrap();
        until_connected(&mut connecting).unwrap();
    }
}
