//! The four bytes before each serialised sample (DDS-XTypes 1.3, 7.6.3.1.2; RTPS 2.5, 10.5).
use crate::error::{CdrReadError, ReadFault};
use crate::format::{ByteOrder, Extensibility, XcdrVersion};

/// The bytes of an encapsulation header.
pub const HEADER_BYTES: usize = 4;

/// The representation of a sample, which its header names.
///
/// XCDR1 represents final and appendable types alike; its header is decoded as `Final`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encapsulation {
    /// The version.
    pub version: XcdrVersion,
    /// The extensibility of the outermost type.
    pub extensibility: Extensibility,
    /// The order of the bytes of numbers.
    pub order: ByteOrder,
}

impl Encapsulation {
    /// Returns the identifier: the first two bytes of the header.
    pub const fn id(self) -> u16 {
        let big = match (self.version, self.extensibility) {
            (XcdrVersion::Xcdr1, Extensibility::Final | Extensibility::Appendable) => 0x0000,
            (XcdrVersion::Xcdr1, Extensibility::Mutable) => 0x0002,
            (XcdrVersion::Xcdr2, Extensibility::Final) => 0x0006,
            (XcdrVersion::Xcdr2, Extensibility::Appendable) => 0x0008,
            (XcdrVersion::Xcdr2, Extensibility::Mutable) => 0x000a,
        };
        big | matches!(self.order, ByteOrder::Little) as u16
    }

    /// Returns the header of a sample whose body is followed by `padding` bytes.
    ///
    /// Only the two lowest bits of `padding` are encoded: 0 to 3.
    pub const fn header(self, padding: u8) -> [u8; HEADER_BYTES] {
        let [high, low] = self.id().to_be_bytes();
        [high, low, 0, padding & 3]
    }

    /// Reads the header of a sample. Returns the representation, and the sample's body without padding.
    ///
    /// # Errors
    /// `Truncated` if the sample is shorter than its header and padding; `Representation` if the
    /// identifier is none of XCDR.
    pub fn read(sample: &[u8]) -> Result<(Encapsulation, &[u8]), CdrReadError> {
        let Some((&[high, low, _, options], body)) = sample.split_first_chunk() else {
            let fault = ReadFault::Truncated { needed: HEADER_BYTES as u64, left: sample.len() as u64 };
            return Err(CdrReadError::new(fault, 0));
        };
        let id = u16::from_be_bytes([high, low]);
        let order = if id & 1 == 1 { ByteOrder::Little } else { ByteOrder::Big };
        let (version, extensibility) = match id & !1 {
            0x0000 => (XcdrVersion::Xcdr1, Extensibility::Final),
            0x0002 => (XcdrVersion::Xcdr1, Extensibility::Mutable),
            0x0006 => (XcdrVersion::Xcdr2, Extensibility::Final),
            0x0008 => (XcdrVersion::Xcdr2, Extensibility::Appendable),
            0x000a => (XcdrVersion::Xcdr2, Extensibility::Mutable),
            _ => return Err(CdrReadError::new(ReadFault::Representation { id }, 0)),
        };
        let padding = usize::from(options & 3);
        let Some(end) = body.len().checked_sub(padding) else {
            let fault = ReadFault::Truncated { needed: padding as u64, left: body.len() as u64 };
            return Err(CdrReadError::new(fault, HEADER_BYTES));
        };
        Ok((Encapsulation { version, extensibility, order }, &body[..end]))
    }

    /// Returns whether a type of this extensibility is represented so.
    pub const fn fits(self, extensibility: Extensibility) -> bool {
        Encapsulation { extensibility, ..self }.id() == self.id()
    }
}
