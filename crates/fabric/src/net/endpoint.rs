//! A process's place among those of other hosts.
use super::error::NetError;
use super::exchange::{Command, Exchange};
use super::letters::Parcel;
use super::listen::listen;
use super::poller::Poller;
use super::resolve::Names;
use super::switch::Switch;
use super::tls::{Identity, TlsStream};
use crate::mail::GroupName;
use crate::mail::kernel::random;
use crate::tcp::{Connection, SocketOptions, SocketStream, Stream};
use spindle_core::control::{Address, Card, Letter, Purpose, RackName};
use spindle_core::{MemberId, ViewId};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What an endpoint is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whoever belongs to another group is refused.
    pub group: GroupName,
    /// This process's id, which may be a visitor's.
    pub me: MemberId,
    /// Processes with the same value share memory and the runtime directory with this one.
    pub host: u128,
    /// Where to listen, at least one address. Port 0 lets the system choose; names are resolved once. `[::]` is all of IPv6 and not of
    /// IPv4.
    pub listen: Vec<Address>,
    /// Where others are told to connect to; port 0 stands for that of the first address with a port to listen at. `None`: the first address
    /// to listen at, which must not be a wildcard then.
    pub advertise: Option<Address>,
    /// The rack that it stands in, which others are told.
    pub rack: Option<RackName>,
    /// Who may connect, and to whom this process does.
    pub security: Security,
    /// For every connection.
    pub socket: SocketOptions,
    /// Who knows names.
    pub names: Names,
}

/// What protects connections.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Security {
    /// Nothing, and so all of them stay on this host: over its loopback addresses or Unix sockets.
    #[default]
    Local,
    /// Nothing. Whoever can connect, or reach the network between, can read and forge everything.
    Insecure,
    /// TLS: with whoever has a certificate of the same authority.
    Tls(Identity),
}

/// What has happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Somebody wrote.
    Letter {
        /// Who, as it says of itself.
        from: Card,
        /// Its process: a random number, which another one that gives itself out for the same does not have.
        process: u128,
        /// The letter.
        letter: Letter,
        /// What came with it.
        enclosure: Vec<u8>,
    },
    /// A connection that a peer opened, or that was asked for with [`Endpoint::dial`].
    Stream {
        /// Who is at its other end.
        with: Card,
        /// Its process: a random number of its endpoint.
        process: u128,
        /// What it is for.
        purpose: Purpose,
        /// All bytes on it belong to its purpose.
        stream: Connection,
        /// Whether this process asked for it.
        dialled: bool,
    },
    /// There is a connection for letters to that address, again or for the first time.
    Reached {
        /// The address.
        address: Address,
        /// Who is there.
        with: Card,
    },
    /// Letters to that address wait longer: an attempt to connect came to nothing, and others follow until they are given up.
    Delayed {
        /// The address.
        address: Address,
        /// [Why](NetError::reason).
        why: String,
    },
    /// A dial, or letters ([`Purpose::Mail`]) to that address, came to nothing.
    Failed {
        /// The address.
        address: Address,
        /// What the connection was to be for.
        purpose: Purpose,
        /// Why.
        why: NetError,
    },
    /// What a name stands for that was to be [looked up](Endpoint::look_up).
    LookedUp {
        /// The name, with its port.
        address: Address,
        /// Its addresses, with the same port, in no order that means anything; never none.
        found: Result<Vec<Address>, NetError>,
    },
    /// The connection for letters to it has ended or is broken, and nobody asked for that: a reason to suspect it, never a proof. Letters
    /// that had left may be lost.
    Lost {
        /// Who was at its other end.
        with: Card,
    },
    /// From now on this process and that of somebody else watch over each other, at the [wish](Endpoint::watch) of either.
    Watched {
        /// Who it is.
        with: Card,
    },
    /// A process with which there is to be a [watch](Endpoint::watch) has said who it is: it lives.
    Answers {
        /// Who it is.
        with: Card,
        /// Which of the processes that had this card, one after the other.
        process: u128,
    },
    /// The process of somebody who was [watched](Endpoint::watch) has ended, or the way there is broken: a reason to [ask](Endpoint::check) for a sign of
    /// life, never a proof. What it has sent before, on other connections, may still arrive.
    Ended {
        /// Whose.
        with: Card,
        /// Of which group of this name a member.
        incarnation: u128,
        /// The view from which on it was watched. Who has its id may be another one since.
        view: ViewId,
        /// If it lives, it answers within so long, by what connections took so far.
        answer_within: Duration,
    },
}

/// What an endpoint threw away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Connections of who did not say hello, not in time, or not as Spindle does.
    pub strangers: u64,
    /// Connections that were refused, with an answer that says why.
    pub declined: u64,
    /// Letters that were none.
    pub garbage: u64,
    /// Letters that say to be from another than who sent them.
    pub forged: u64,
}

/// What every connection of an endpoint says of it.
#[derive(Debug)]
pub(super) struct Me {
    pub(super) group: GroupName,
    pub(super) card: Card,
    pub(super) process: u128,
    pub(super) security: Security,
    pub(super) socket: SocketOptions,
}

impl Me {
    /// Whether the peer may have this id.
    pub(super) fn admits(&self, id: MemberId, stream: &dyn Stream) -> bool {
        match &self.security {
            Security::Local | Security::Insecure => true,
            Security::Tls(identity) => identity.admits(id, stream.peer()),
        }
    }

    /// A connected socket as what this process speaks over.
    pub(super) fn wrap(&self, socket: OwnedFd, dialled: bool) -> io::Result<Connection> {
        let stream = SocketStream::new(socket, &self.socket)?;
        Ok(match &self.security {
            Security::Local | Security::Insecure => Box::new(stream),
            Security::Tls(identity) => Box::new(TlsStream::new(stream, identity, dialled)?),
        })
    }
}

/// The one place of a process where others reach it from other hosts, and from which it reaches them.
///
/// It has a thread. Nothing that is called here waits for the network; what comes of it is [received](Self::receive).
#[derive(Debug)]
pub struct Endpoint {
    card: Card,
    exchange: Arc<Exchange>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens. `tell` is called on the endpoint's thread when there are events to [receive](Self::receive). It must neither panic nor
    /// drop the endpoint, nor wait for who does.
    ///
    /// Waits for the resolver if a name is to be listened at.
    ///
    /// # Errors
    /// [`NetError::OwnIdentity`], [`NetError::Nowhere`], [`NetError::Advertise`], [`NetError::Insecure`], [`NetError::Resolve`], [`NetError::Listen`], or what else the
    /// system refuses.
    pub fn open(options: Options, tell: impl Fn() + Send + Sync + 'static) -> Result<Endpoint, NetError> {
        let Options { group, me, host, listen: addresses, advertise, rack, security, socket, names } = options;
        let os = |doing| move |source| NetError::Os { doing, source };
        if matches!(&security, Security::Tls(identity) if !identity.is_of(me)) {
            return Err(NetError::OwnIdentity { id: me });
        }
        let only_here = matches!(security, Security::Local);
        let (listeners, bound) = listen(&addresses, &names, only_here)?;
        let address = advertised(advertise, &bound)?;
        let card = Card { id: me, host, address, rack };
        let process = random().map_err(os("get random bits"))?;
        let (poller, waker) = Poller::new().map_err(os("set up the network's thread"))?;
        let exchange = Arc::new(Exchange::new(waker.clone()));
        let me = Me { group, card: card.clone(), process, security, socket };
        let switch = Switch::new(me, Arc::clone(&exchange), listeners, names, poller, waker, Box::new(tell));
        let thread = std::thread::Builder::new()
            .name("spindle-net".into())
            .spawn(move || switch.run())
            .map_err(os("start the network's thread"))?;
        Ok(Endpoint { card, exchange, thread: Some(thread) })
    }

    /// What others are told of it: with the port that the system chose.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Writes to who is at `to`, if that is `whom`; `None`: whoever it is.
    ///
    /// Connects if there is no connection, and tries again if it fails ([`Event::Delayed`]). Letters to one address arrive in the order in which they were sent,
    /// each once or not at all. They are given up, with [`Event::Failed`], when there was no connection for 5 s, or never can be. If
    /// 1024 letters wait, or 128 MiB, what was sent last is dropped, and the first time that is told.
    ///
    /// # Panics
    /// For letters that go with descriptors (parts, state), an enclosure of more than 64 MiB, or one that is not as long as the letter
    /// says.
    pub fn send(&self, to: &Address, whom: Option<MemberId>, letter: &Letter, enclosure: &[u8]) {
        let parcel = Parcel::new(whom, letter, enclosure);
        self.exchange.ask(Command::Send { to: to.clone(), parcel });
    }

    /// Opens a connection to who is at `to`, if that is `whom`; `None`: whoever it is. There is one attempt, of 6 s at most, and one
    /// event of it: [`Event::Stream`] or [`Event::Failed`].
    ///
    /// # Panics
    /// For [`Purpose::Mail`] and [`Purpose::Life`]: letters are [sent](Self::send), lives [watched](Self::watch).
    pub fn dial(&self, to: &Address, whom: Option<MemberId>, purpose: Purpose) {
        assert!(
            !matches!(purpose, Purpose::Mail | Purpose::Life { .. }),
            "letters are sent and lives watched, not dialled"
        );
        self.exchange.ask(Command::Dial { to: to.clone(), whom, purpose });
    }

    /// Watches over the process of `whom`, who is to be at `to` and a member in `view`, and is watched by it: of the end of either the other is told at once
    /// ([`Event::Ended`]), while the kernel may need long to take back the memory of the dead, and closes other connections after that. Does nothing if there is
    /// such a watch, or one is being begun. [`Event::Watched`] tells that it has begun: there is one attempt, and both systems have to be able to
    /// (Linux 5.9). A network that falls silent is no end.
    pub fn watch(&self, to: &Address, whom: MemberId, incarnation: u128, view: ViewId) {
        self.exchange.ask(Command::Watch { to: to.clone(), whom, incarnation, view });
    }

    /// Asks the process of `whom` for a sign of life after its watch has [ended](Event::Ended), by a connection that is another watch: [`Event::Answers`] or
    /// [`Event::Failed`] tells. Does nothing if a watch is being begun, which tells the same.
    pub fn check(&self, to: &Address, whom: MemberId, incarnation: u128, view: ViewId) {
        self.exchange.ask(Command::Check { to: to.clone(), whom, incarnation, view });
    }

    /// Ends all watches over `whom`, who is told that it is no death.
    pub fn unwatch(&self, whom: MemberId) {
        self.exchange.ask(Command::Unwatch { whom });
    }

    /// Looks up what `address` stands for: [`Event::LookedUp`] tells. If that is being done already it is not begun again, so somebody who does not
    /// answer is asked once. An address without a name stands for itself.
    pub fn look_up(&self, address: &Address) {
        self.exchange.ask(Command::LookUp { address: address.clone() });
    }

    /// What has happened; `None`: nothing since. If 4096 events wait, or 256 MiB, nothing more is read or accepted until they are
    /// received.
    pub fn receive(&self) -> Option<Event> {
        self.exchange.receive()
    }

    /// Drops the letters that wait for it and the connection on which they leave, and gives up dialling it. Nothing is told of that.
    pub fn forget(&self, to: &Address) {
        self.exchange.ask(Command::Forget { to: to.clone() });
    }

    /// What was thrown away since it was opened.
    pub fn dropped(&self) -> Dropped {
        self.exchange.dropped()
    }

    /// How many events wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.exchange.waiting()
    }
}

impl Drop for Endpoint {
    /// Ends all connections that were not given away. Letters that wait have 200 ms to leave.
    fn drop(&mut self) {
        self.exchange.stop();
        let Some(thread) = self.thread.take() else { return };
        // Dropped by `tell`, against what is asked of it: the thread stops after that.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// What others are told to connect to.
fn advertised(advertise: Option<Address>, bound: &[Address]) -> Result<Address, NetError> {
    let first = bound.first().ok_or(NetError::Nowhere)?;
    let address = match advertise {
        None => first.clone(),
        Some(address) if address.port() == Some(0) => match bound.iter().find_map(Address::port) {
            Some(port) => address.with_port(port),
            None => return Err(NetError::Advertise { address }),
        },
        Some(address) => address,
    };
    match address.is_wildcard() {
        true => Err(NetError::Advertise { address }),
        false => Ok(address),
    }
}
