//! The libfabric address of a member, as bytes that only its provider can read.
use crate::limits::{PORT_ADDRESS_BYTES_MAX, PORT_ADDRESS_BYTES_MIN};
use alloc::boxed::Box;

/// A libfabric address, [5](PORT_ADDRESS_BYTES_MIN) to [68](PORT_ADDRESS_BYTES_MAX) bytes. The
/// fabric makes and reads such addresses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortAddress(Box<[u8]>);

impl PortAddress {
    /// Returns the address with these bytes; `None` if they are too few or too many.
    pub fn new(bytes: &[u8]) -> Option<PortAddress> {
        let fits = (PORT_ADDRESS_BYTES_MIN..=PORT_ADDRESS_BYTES_MAX).contains(&bytes.len());
        fits.then(|| PortAddress(bytes.into()))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded() {
        for (bytes, fits) in [(0, false), (4, false), (5, true), (68, true), (69, false)] {
            assert_eq!(PortAddress::new(&[1; 80][..bytes]).is_some(), fits, "{bytes}");
        }
    }
}
