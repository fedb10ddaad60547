//! How connections come about: an [`OfiPort`] listens, and an [`OfiMeeting`] connects it with those of all peers.
//!
//! Of two members the one of the lower rank calls. Each tells the other, along with the call and with the answer, who it is, which view it
//! means, and where its copy of the other's row is (`hello.rs`). A call that is none of this view's is refused and counts for nothing; a call
//! of one's own that fails is told, and may be tried again. Addresses travel by other means.
use super::error::{Failure, OfiError};
use super::ffi::{FI_SOCKADDR_IN, FI_SOCKADDR_IN6};
use super::hello::{Hello, Mismatch, Purpose};
use super::info::Info;
use super::link::{Link, RECEIVES};
use super::links::{EVENTS_MAX, OfiLinks};
use super::objects::{Adapter, Endpoint, EndpointId, Event, Listener};
use super::provider::{self, OfiOptions, of as failed_at};
use crate::region::CopyRegion;
use crate::shm::OwnRow;
use spindle_core::control::PortAddress;
use spindle_core::limits::PORT_ADDRESS_BYTES_MIN;
use spindle_core::{Layout, Rank};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a member listens, in its provider's form. It means something to members with the same provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfiAddress(PortAddress);

/// Bytes in front of the provider's own: the format of an address.
const FORMAT_BYTES: usize = 4;
const _: () = assert!(PORT_ADDRESS_BYTES_MIN == FORMAT_BYTES + 1);

impl OfiAddress {
    /// As bytes, to be sent to peers.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }

    /// From what a peer sent; `None` if that can be no address.
    pub fn from_bytes(bytes: &[u8]) -> Option<OfiAddress> {
        PortAddress::new(bytes).map(OfiAddress)
    }

    fn parts(&self) -> (u32, &[u8]) {
        let (format, bytes) = self.0.as_bytes().split_first_chunk::<FORMAT_BYTES>().expect("no port has less");
        (u32::from_le_bytes(*format), bytes)
    }

    /// As an IP address and a port, if it is of that form.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        let (format, bytes) = self.parts();
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        match format {
            FI_SOCKADDR_IN => Some((Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?), port).into()),
            FI_SOCKADDR_IN6 => Some((Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?), port).into()),
            _ => None,
        }
    }

    /// Whether a provider with addresses of this form can make something of it.
    fn is_of(&self, format: u32) -> bool {
        let (own, bytes) = self.parts();
        let expected = match format {
            FI_SOCKADDR_IN => 16,
            FI_SOCKADDR_IN6 => 28,
            _ => bytes.len(),
        };
        own == format && bytes.len() == expected
    }
}

impl fmt::Display for OfiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket_address() {
            Some(address) => write!(f, "{address}"),
            None => {
                let (format, bytes) = self.parts();
                write!(f, "{bytes:02x?} (format {format})")
            }
        }
    }
}

impl From<PortAddress> for OfiAddress {
    fn from(address: PortAddress) -> OfiAddress {
        OfiAddress(address)
    }
}

impl From<OfiAddress> for PortAddress {
    fn from(address: OfiAddress) -> PortAddress {
        address.0
    }
}

/// A member's own place in the network, for one view.
#[derive(Debug)]
pub struct OfiPort {
    listener: Listener,
    adapter: Arc<Adapter>,
    address: OfiAddress,
    /// Connections for which there is room.
    room: u32,
}

impl OfiPort {
    /// Opens the network that `options` ask for, with room for connections to `peers` members, and listens.
    ///
    /// # Errors
    /// There is no libfabric, it has no such provider, or that can't do what is needed, or fails.
    pub fn open(options: &OfiOptions, peers: u32) -> Result<OfiPort, OfiError> {
        OfiPort::of(provider::choose(options)?, peers)
    }

    /// As [`open`](Self::open), for what was chosen.
    pub(super) fn of(info: Info, peers: u32) -> Result<OfiPort, OfiError> {
        let (name, format) = (info.provider(), info.address_format());
        let completions = u64::from(peers.max(1)) * (provider::queue(&info) + RECEIVES);
        let adapter = Adapter::open(info, completions).map_err(failed_at(&name))?;
        let listener = adapter.listen().map_err(failed_at(&name))?;
        provider::check_data(&name, listener.data_bytes_max())?;
        let bytes = listener.address().map_err(failed_at(&name))?;
        let Some(address) = OfiAddress::from_bytes(&[&format.to_le_bytes(), &bytes[..]].concat()) else {
            return Err(OfiError::Address { address: format!("{bytes:02x?} (format {format})"), provider: name });
        };
        if address.socket_address().is_some_and(|address| address.ip().is_unspecified()) || !address.is_of(format) {
            return Err(OfiError::Address { address: address.to_string(), provider: name });
        }
        Ok(OfiPort { listener, adapter, address, room: peers })
    }

    /// Where it listens, for its peers.
    pub fn address(&self) -> &OfiAddress {
        &self.address
    }

    /// The provider's name, and the domain's.
    pub fn provider(&self) -> (String, String) {
        (self.adapter.info().provider(), self.adapter.info().domain())
    }

    /// Begins to connect the member that owns `own`. Peers do the same for a view of the same `purpose`.
    ///
    /// # Errors
    /// Memory that can't be registered, or no descriptors.
    ///
    /// # Panics
    /// If `own` was made for another layout.
    pub fn meet(self, layout: &Layout, own: &OwnRow, purpose: Purpose) -> Result<OfiMeeting, OfiError> {
        let OfiPort { listener, adapter, room, address } = self;
        let (me, row) = (own.me, own.row.clone());
        assert!(
            row.size() == layout.row(me).size && row.control() == layout.row(me).control,
            "the row is of this view"
        );
        let links = OfiLinks::begin(adapter.clone(), layout, me, row)?;
        let seats = layout.rows().iter().map(|_| Seat::Empty).collect();
        let (layout, refused) = (layout.clone(), vec![]);
        Ok(OfiMeeting { seats, links, listener, adapter, address, room, layout, me, purpose, refused })
    }
}

/// A member on its way to be connected with its peers.
#[derive(Debug)]
pub struct OfiMeeting {
    // Closed from the top.
    seats: Box<[Seat]>,
    links: OfiLinks,
    listener: Listener,
    adapter: Arc<Adapter>,
    address: OfiAddress,
    room: u32,
    layout: Layout,
    me: Rank,
    purpose: Purpose,
    refused: Vec<Mismatch>,
}

/// How far it is with one peer.
#[derive(Debug)]
enum Seat {
    /// Nobody is expected.
    Empty,
    /// It will call.
    Expected,
    /// It was called and has not answered.
    Called(OfiAddress),
    /// It has called, and was answered.
    Answered,
    /// It is connected, or was.
    Taken,
}

impl OfiMeeting {
    /// Where this member listens, for its peers.
    pub fn address(&self) -> &OfiAddress {
        &self.address
    }

    /// From now on `peer`, which has a lower rank, may call. Others are refused.
    ///
    /// # Panics
    /// If it has a higher rank, which has to be [called](Self::call).
    pub fn expect(&mut self, peer: Rank) {
        assert!(peer < self.me, "of two members the lower rank calls");
        let seat = &mut self.seats[peer.index()];
        if matches!(seat, Seat::Empty) {
            *seat = Seat::Expected;
        }
    }

    /// Calls `peer`, which has a higher rank, unless that is done already; again if an earlier call has failed.
    ///
    /// # Errors
    /// There is no room, no memory, or none that can be registered, or the address leads nowhere.
    ///
    /// # Panics
    /// If it is not of the view, or has a lower rank, and so is to be [expected](Self::expect).
    pub fn call(&mut self, peer: Rank, address: &OfiAddress) -> Result<(), OfiError> {
        assert!(peer > self.me, "of two members the lower rank calls");
        if !matches!(self.seats[peer.index()], Seat::Empty) {
            return Ok(());
        }
        let name = self.adapter.info().provider();
        if !address.is_of(self.adapter.info().address_format()) {
            return Err(OfiError::Address { address: address.to_string(), provider: name });
        }
        if self.links.open() >= self.room {
            let (what, allowed, needed) = ("a port", self.room.into(), u64::from(self.room) + 1);
            return Err(OfiError::Limit { provider: name, what, allowed, needed });
        }
        let endpoint = self.adapter.endpoint_to(address.parts().1).map_err(failed_at(&name))?;
        let (link, hello) = self.link(peer, endpoint)?;
        if let Err(source) = link.endpoint().connect(address.parts().1, &hello.encode()) {
            self.links.forget(peer);
            return Err(OfiError::Refused { rank: peer, address: address.to_string(), source });
        }
        self.seats[peer.index()] = Seat::Called(address.clone());
        Ok(())
    }

    fn link(&mut self, rank: Rank, endpoint: Endpoint) -> Result<(&mut Link, Hello), OfiError> {
        let copy = CopyRegion::on_heap(&format!("the copy of the row of member {rank}"), self.layout.row(rank).size);
        let copy = Arc::new(copy.map_err(|source| OfiError::Region { rank, source })?);
        let link = self.links.link(rank, endpoint, copy, self.layout.row(rank))?;
        let (mine, theirs) = (self.layout.row(self.me), self.layout.row(rank));
        let hello = Hello::new(self.purpose, self.me, mine, theirs, link.mine());
        Ok((link, hello))
    }

    /// Whether `peer` is connected, or has been.
    ///
    /// # Panics
    /// If it is not of the view.
    pub fn is_connected(&self, peer: Rank) -> bool {
        matches!(self.seats[peer.index()], Seat::Taken)
    }

    /// Goes on, and says whether everybody is connected who was called or is expected. It waits for nothing.
    ///
    /// # Errors
    /// A peer that was called refuses, or is not the one that was meant: it is called no more, unless [told to](Self::call). Or the network
    /// fails. The meeting goes on.
    pub fn progress(&mut self) -> Result<bool, OfiError> {
        let failed = failed_at(&self.adapter.info().provider());
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.adapter.event().map_err(&failed)? else { break };
            match event {
                Event::Request { info, data } => self.answer(&info, &data)?,
                Event::Connected { endpoint, data } => self.connected(endpoint, &data)?,
                Event::Failed { endpoint, code } => self.lost(endpoint, code)?,
                Event::Shutdown { endpoint } => self.lost(endpoint, libc::ECONNRESET)?,
                Event::Other => {}
            }
        }
        // Providers connect while they are asked for completions, and some peers have begun to post already.
        self.links.look();
        Ok(self.seats.iter().all(|seat| matches!(seat, Seat::Empty | Seat::Taken)))
    }

    /// Goes on until everybody is connected who was called or is expected, `at_most` that long.
    ///
    /// # Errors
    /// As [`progress`](Self::progress), and [`OfiError::TimedOut`].
    pub fn wait(&mut self, at_most: Duration) -> Result<(), OfiError> {
        let start = Instant::now();
        while !self.progress()? {
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                let waiting = |(rank, seat): (u32, &Seat)| (!matches!(seat, Seat::Empty | Seat::Taken)).then_some(rank);
                let missing = (0..).zip(&self.seats).filter_map(waiting).collect();
                return Err(OfiError::TimedOut { missing, waited: at_most });
            }
            // Providers do not all tell of connections by the descriptor, so this looks again soon.
            self.links.nap(left.min(LOOK_AGAIN));
        }
        Ok(())
    }

    /// Calls that were refused, and why.
    pub fn refused(&self) -> &[Mismatch] {
        &self.refused
    }

    /// The connections. What makes `bell` readable ends their waits as well. Peers that are not connected yet are left out, and calls are not taken any more.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub(crate) fn links(self, bell: BorrowedFd<'_>) -> Result<OfiLinks, OfiError> {
        let OfiMeeting { mut links, .. } = self;
        links.forget_unconnected();
        links.wake_by(bell).map_err(|source| OfiError::Os { call: "epoll_ctl", source })?;
        Ok(links)
    }

    fn answer(&mut self, request: &Info, data: &[u8]) -> Result<(), OfiError> {
        let failed = failed_at(&self.adapter.info().provider());
        let read = Hello::read(data, self.purpose, self.me, self.layout.rows());
        let (rank, target) = match read {
            Ok((rank, target))
                if matches!(self.seats[rank.index()], Seat::Expected) && self.links.open() < self.room =>
            {
                (rank, target)
            }
            read => {
                let why = read.map_or_else(|why| why, |(got, _)| Mismatch::From { expected: None, got });
                // Nobody may fill the memory with calls.
                if self.refused.len() < EVENTS_MAX as usize {
                    self.refused.push(why);
                }
                // It may have hung up already.
                let _ = self.listener.reject(request);
                return Ok(());
            }
        };
        let endpoint = self.adapter.endpoint_for(request).map_err(&failed)?;
        let (link, hello) = self.link(rank, endpoint)?;
        link.aim(target);
        if let Err(source) = link.endpoint().accept(&hello.encode()) {
            self.links.forget(rank);
            return Err(failed(source));
        }
        self.seats[rank.index()] = Seat::Answered;
        Ok(())
    }

    fn connected(&mut self, endpoint: EndpointId, data: &[u8]) -> Result<(), OfiError> {
        let Some((rank, link)) = self.links.find(endpoint) else { return Ok(()) };
        if let Seat::Called(_) = self.seats[rank.index()] {
            let why = match Hello::read(data, self.purpose, self.me, self.layout.rows()) {
                Ok((from, target)) if from == rank => {
                    link.aim(target);
                    None
                }
                Ok((got, _)) => Some(Mismatch::From { expected: Some(rank), got }),
                Err(source) => Some(source),
            };
            if let Some(source) = why {
                self.links.forget(rank);
                self.seats[rank.index()] = Seat::Empty;
                return Err(OfiError::Stranger { rank, source });
            }
        }
        link.set_connected();
        self.seats[rank.index()] = Seat::Taken;
        Ok(())
    }

    /// A connection has failed before, or just after, it was made.
    fn lost(&mut self, endpoint: EndpointId, code: i32) -> Result<(), OfiError> {
        let Some((rank, _)) = self.links.find(endpoint) else { return Ok(()) };
        let seat = &mut self.seats[rank.index()];
        let address = match seat {
            Seat::Called(address) => address.to_string(),
            Seat::Answered => "the place that it called from".to_string(),
            Seat::Empty | Seat::Expected | Seat::Taken => {
                self.links.shut(endpoint);
                return Ok(());
            }
        };
        *seat = if rank < self.me { Seat::Expected } else { Seat::Empty };
        self.links.forget(rank);
        Err(OfiError::Refused { rank, address, source: Failure { call: "connecting", code } })
    }
}

/// How long a meeting sleeps at once.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
