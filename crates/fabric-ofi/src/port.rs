//! A process's own address in the network: an [`OfiPort`] listens, and an [`OfiMeeting`] connects a
//! member with its peers in one view.
use crate::channel::RECEIVES;
use crate::error::OfiError;
use crate::ffi::{FI_SOCKADDR_IN, FI_SOCKADDR_IN6};
use crate::hello::Purpose;
use crate::info::Info;
use crate::links::OfiLinks;
use crate::meeting::OfiMeeting;
use crate::network::Network;
use crate::objects::Adapter;
use crate::provider::{self, OfiOptions, of as failed_at};
use spindle_core::Layout;
use spindle_core::control::PortAddress;
use spindle_core::limits::PORT_ADDRESS_BYTES_MIN;
use spindle_fabric::OwnRow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The address at which a member listens, in its provider's form. It is valid for members with the
/// same provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfiAddress(PortAddress);

/// Bytes before the provider's own: the format of an address.
const FORMAT_BYTES: usize = 4;
const _: () = assert!(PORT_ADDRESS_BYTES_MIN == FORMAT_BYTES + 1);

impl OfiAddress {
    /// Encodes it as bytes, to be sent to peers.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }

    /// Decodes the bytes from a peer; returns `None` if they can't be an address.
    pub fn from_bytes(bytes: &[u8]) -> Option<OfiAddress> {
        PortAddress::new(bytes).map(OfiAddress)
    }

    pub(crate) fn parts(&self) -> (u32, &[u8]) {
        let (format, bytes) = self.0.as_bytes().split_first_chunk::<FORMAT_BYTES>().expect("no port has less");
        (u32::from_le_bytes(*format), bytes)
    }

    /// Returns it as an IP address and a port, if it has that form.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        let (format, bytes) = self.parts();
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        match format {
            FI_SOCKADDR_IN => Some((Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?), port).into()),
            FI_SOCKADDR_IN6 => Some((Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?), port).into()),
            _ => None,
        }
    }

    /// Returns true if a provider with addresses of this form can use it.
    pub(crate) fn is_of(&self, format: u32) -> bool {
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

/// A process's own address in the network, for all views that it takes part in. It lives as long as
/// the process or a meeting of it does. Peers find the process by this address.
#[derive(Debug)]
pub struct OfiPort(Arc<Network>);

impl OfiPort {
    /// Opens the network that `options` ask for, with room for `links` connections at first, and
    /// listens.
    ///
    /// # Errors
    /// There is no libfabric, it has no such provider, or the provider lacks a capability or fails.
    pub fn open(options: &OfiOptions, links: u32) -> Result<OfiPort, OfiError> {
        OfiPort::of(provider::choose(options)?, links)
    }

    /// As [`open`](Self::open), for the chosen provider.
    pub(crate) fn of(info: Info, links: u32) -> Result<OfiPort, OfiError> {
        let (name, format) = (info.provider(), info.address_format());
        let each = provider::queue(&info) + RECEIVES;
        let adapter = Adapter::open(info).map_err(failed_at(&name))?;
        let listener = adapter.listen().map_err(failed_at(&name))?;
        provider::check_data(&name, listener.data_bytes_max())?;
        let bytes = listener.address().map_err(failed_at(&name))?;
        let Some(address) = OfiAddress::from_bytes(&[&format.to_le_bytes(), &bytes[..]].concat()) else {
            return Err(OfiError::Address { address: format!("{bytes:02x?} (format {format})"), provider: name });
        };
        if address.socket_address().is_some_and(|address| address.ip().is_unspecified()) || !address.is_of(format) {
            return Err(OfiError::Address { address: address.to_string(), provider: name });
        }
        Ok(OfiPort(Network::new(adapter, listener, address, (links, each))?))
    }

    /// Returns the address at which it listens, for its peers.
    pub fn address(&self) -> &OfiAddress {
        self.0.address()
    }

    /// Returns the provider's name, and the domain's.
    pub fn provider(&self) -> (String, String) {
        (self.0.adapter().info().provider(), self.0.adapter().info().domain())
    }

    /// Begins to connect the member that owns `own` in one view. Peers do the same for a view of
    /// the same `purpose`.
    ///
    /// # Errors
    /// Memory can't be registered, or there are no descriptors left.
    ///
    /// # Panics
    /// If `own` was made for another layout.
    pub fn meet(&self, layout: &Layout, own: &OwnRow, purpose: Purpose) -> Result<OfiMeeting, OfiError> {
        let (me, row) = (own.me(), Arc::clone(own.region()));
        assert!(
            row.size() == layout.row(me).size && row.control() == layout.row(me).control,
            "the row is of this view"
        );
        let links = OfiLinks::begin(self.0.desk(purpose), layout, me, row)?;
        Ok(OfiMeeting::new(links, layout.clone(), me, purpose, own.mirror().clone()))
    }
}
