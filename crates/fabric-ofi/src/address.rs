//! The address of a member in its provider's network: bytes with their format, which travel in
//! control messages.
use crate::ffi::{FI_SOCKADDR_IN, FI_SOCKADDR_IN6};
use spindle_core::control::PortAddress;
use spindle_core::limits::PORT_ADDRESS_BYTES_MIN;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

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
