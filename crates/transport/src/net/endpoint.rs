//! The endpoint of a process, at which processes of other hosts reach it.
use super::error::NetError;
use super::event::{EndpointDrops, NetEvent};
use super::exchange::{EndpointCommand, Exchange};
use super::listen::listen;
use super::me::LocalEndpoint;
use super::messages::QueuedMessage;
use super::poller::Poller;
use super::resolve::Names;
use super::security::Security;
use super::switch::Switch;
use crate::rendezvous::GroupName;
use crate::rendezvous::kernel::random;
use crate::stream::SocketOptions;
use spindle_core::control::{Address, Card, ControlMessage, Purpose, RackName};
use spindle_core::{MemberId, ViewId};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The options of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The group. Processes of other groups are refused.
    pub group: GroupName,
    /// This process's id, which may be an observer's.
    pub me: MemberId,
    /// Processes with the same value share memory and the runtime directory with this one.
    pub host: u128,
    /// The addresses to listen at, at least one. Port 0 lets the system choose; names are resolved
    /// once. `[::]` covers all of IPv6, and not IPv4.
    pub listen: Vec<Address>,
    /// The address that others are asked to connect to. Port 0 here means the port of the first
    /// listening address that has one. `None`: the first listening address, which must not be a
    /// wildcard then.
    pub advertise: Option<Address>,
    /// The rack of this process, which is sent to others.
    pub rack: Option<RackName>,
    /// Which processes may connect, and which ones this process connects to.
    pub security: Security,
    /// The socket options of every connection.
    pub socket: SocketOptions,
    /// The resolver of names.
    pub names: Names,
}

/// The endpoint of a process: others reach it here from other hosts, and it reaches them from here.
///
/// It has a thread. No method waits for the network; the results are [received](Self::receive).
#[derive(Debug)]
pub struct NetEndpoint {
    card: Card,
    exchange: Arc<Exchange>,
    thread: Option<JoinHandle<()>>,
}

impl NetEndpoint {
    /// Listens. `tell` is called on the endpoint's thread when there are events to
    /// [receive](Self::receive). `tell` must not panic, must not drop the endpoint, and must not
    /// wait for a thread that drops it.
    ///
    /// Waits for the resolver if a name is among the listening addresses.
    ///
    /// # Errors
    /// [`NetError::OwnIdentity`], [`NetError::Nowhere`], [`NetError::Advertise`],
    /// [`NetError::Insecure`], [`NetError::Resolve`], [`NetError::Listen`], or [`NetError::Os`] for
    /// anything else that the system refuses.
    pub fn open(options: EndpointOptions, tell: impl Fn() + Send + Sync + 'static) -> Result<NetEndpoint, NetError> {
        let EndpointOptions { group, me, host, listen: addresses, advertise, rack, security, socket, names } = options;
        let os = |doing| move |source| NetError::Os { doing, source };
        #[cfg(feature = "tls")]
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
        let me = LocalEndpoint { group, card: card.clone(), process, security, socket };
        let switch = Switch::new(me, Arc::clone(&exchange), listeners, names, poller, waker, Box::new(tell));
        let thread = std::thread::Builder::new()
            .name("spindle-net".into())
            .spawn(move || switch.run())
            .map_err(os("start the network's thread"))?;
        Ok(NetEndpoint { card, exchange, thread: Some(thread) })
    }

    /// Returns the card that others receive, with the port that the system chose.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Sends a control message to the process at `to`, if that is `whom`; `None`: whichever process
    /// is there.
    ///
    /// Connects if there is no connection, and tries again if that fails ([`NetEvent::Delayed`]).
    /// Control messages to one address arrive in the order in which they were sent, each once or
    /// not at all. They are given up, with [`NetEvent::Failed`], when there was no connection for 5 s,
    /// or when none can ever be made. If 1024 control messages or 128 MiB wait, the newest is
    /// dropped, and the first such drop is reported.
    ///
    /// # Panics
    /// If the control message carries descriptors (parts, state), if the attachment has more than
    /// 64 MiB, or if its length is not what the control message says.
    pub fn send(&self, to: &Address, whom: Option<MemberId>, message: &ControlMessage, attachment: &[u8]) {
        let parcel = QueuedMessage::new(whom, message, attachment);
        self.exchange.ask(EndpointCommand::Send { to: to.clone(), parcel });
    }

    /// Opens a connection to the process at `to`, if that is `whom`; `None`: whichever process is
    /// there. Makes one connection attempt of at most 6 s, which produces one event:
    /// [`NetEvent::Stream`] or [`NetEvent::Failed`].
    ///
    /// # Panics
    /// For [`Purpose::Control`] and [`Purpose::Life`]: control messages are [sent](Self::send), and
    /// processes are [watched](Self::watch).
    pub fn dial(&self, to: &Address, whom: Option<MemberId>, purpose: Purpose) {
        assert!(
            !matches!(purpose, Purpose::Control | Purpose::Life { .. }),
            "control messages are sent and lives watched, not dialled"
        );
        self.exchange.ask(EndpointCommand::Dial { to: to.clone(), whom, purpose });
    }

    /// Watches the process of `whom`, which is expected at `to` and is a member in `view`, and
    /// which watches this process in turn. When either process ends, the other receives
    /// [`NetEvent::Ended`] at once. The kernel may need long to take back the memory of a dead
    /// process, and closes its other connections only after that.
    ///
    /// Does nothing if there is such a watch, or one is being started. [`NetEvent::Watched`] reports
    /// that the watch has begun. There is one connection attempt, and both systems must support it
    /// (Linux 5.9). A network that falls silent is not reported as an end.
    pub fn watch(&self, to: &Address, whom: MemberId, incarnation: u128, view: ViewId) {
        self.exchange.ask(EndpointCommand::Watch { to: to.clone(), whom, incarnation, view });
    }

    /// Asks the process of `whom` for a sign of life after its watch has [ended](NetEvent::Ended), by
    /// a connection that is another watch. The result is [`NetEvent::Answers`] or [`NetEvent::Failed`].
    /// Does nothing if a watch is being started, which gives the same result.
    pub fn check(&self, to: &Address, whom: MemberId, incarnation: u128, view: ViewId) {
        self.exchange.ask(EndpointCommand::Check { to: to.clone(), whom, incarnation, view });
    }

    /// Ends all watches of `whom`, and reports to it that this is no death.
    pub fn unwatch(&self, whom: MemberId) {
        self.exchange.ask(EndpointCommand::Unwatch { whom });
    }

    /// Looks up the addresses of `address`; the result is [`NetEvent::LookedUp`]. A look-up that is in
    /// progress is not started again, so a resolver that does not answer is asked once. An address
    /// without a name is its own result.
    pub fn look_up(&self, address: &Address) {
        self.exchange.ask(EndpointCommand::LookUp { address: address.clone() });
    }

    /// Returns the next event; `None`: there is none. If 4096 events wait, or 256 MiB, nothing more
    /// is read or accepted until they are received.
    pub fn receive(&self) -> Option<NetEvent> {
        self.exchange.receive()
    }

    /// Drops the control messages that wait for this address and the connection on which they
    /// leave, and stops dialling it. No event reports that.
    pub fn forget(&self, to: &Address) {
        self.exchange.ask(EndpointCommand::Forget { to: to.clone() });
    }

    /// Returns what was discarded since the endpoint was opened.
    pub fn dropped(&self) -> EndpointDrops {
        self.exchange.dropped()
    }

    /// Returns the number of events that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.exchange.waiting()
    }
}

impl Drop for NetEndpoint {
    /// Ends all connections that were not given away. Waiting control messages have 200 ms to
    /// leave.
    fn drop(&mut self) {
        self.exchange.stop();
        let Some(thread) = self.thread.take() else { return };
        // `tell` dropped the endpoint although it must not: the thread stops after that.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// Returns the address that others are asked to connect to.
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
