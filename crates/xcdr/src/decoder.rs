//! The decoder: numbers, alignment, and the headers of structures and members.
//!
//! It takes arbitrary bytes. Every read is checked against the end of the enclosing value, each
//! length against the bytes that are left before memory is reserved for it, and the depth of values
//! against [`DEPTH_MAX`]. Errors carry the index of the byte.
use crate::encapsulation::{Encapsulation, HEADER_BYTES};
use crate::encoder::{
    DEPTH_MAX, LONG_MUST_UNDERSTAND, MEMBER_ID_MASK, MemberHead, PID_EXTENDED, PID_LIST_END, PID_RESERVED,
    SHORT_MUST_UNDERSTAND,
};
use crate::error::{CdrReadError, ReadFault};
use crate::format::{ByteOrder, Extensibility, XcdrVersion};

/// The identifier of a parameter that every reader skips.
const PID_IGNORE: u16 = 0x3f03;
/// The mask of the identifier in a short parameter header.
const SHORT_ID_MASK: u16 = 0x3fff;

/// Reads one value.
#[derive(Debug)]
pub struct CdrDecoder<'de> {
    bytes: &'de [u8],
    at: usize,
    /// The end of the enclosing value.
    end: usize,
    /// The index from which alignment counts.
    origin: usize,
    /// The bytes before `bytes`, which offsets of errors count, too.
    before: usize,
    version: XcdrVersion,
    order: ByteOrder,
    depth: u16,
}

impl<'de> CdrDecoder<'de> {
    /// Makes a decoder of a body without an encapsulation header.
    pub fn new(bytes: &'de [u8], version: XcdrVersion, order: ByteOrder) -> CdrDecoder<'de> {
        CdrDecoder { bytes, at: 0, end: bytes.len(), origin: 0, before: 0, version, order, depth: 0 }
    }

    /// Makes a decoder of a sample, and returns its representation.
    ///
    /// # Errors
    /// Those of [`Encapsulation::read`].
    pub fn with_header(sample: &'de [u8]) -> Result<(CdrDecoder<'de>, Encapsulation), CdrReadError> {
        let (encapsulation, body) = Encapsulation::read(sample)?;
        let decoder = CdrDecoder::new(body, encapsulation.version, encapsulation.order);
        Ok((CdrDecoder { before: HEADER_BYTES, ..decoder }, encapsulation))
    }

    /// Returns the version of the encoding.
    pub fn version(&self) -> XcdrVersion {
        self.version
    }

    /// Returns the order of the bytes of numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the bytes up to the end of the enclosing value.
    pub fn left(&self) -> usize {
        self.end - self.at
    }

    /// Makes an error at the current byte.
    pub fn error(&self, fault: ReadFault) -> CdrReadError {
        CdrReadError::new(fault, self.before + self.at)
    }

    /// Checks that the value ends where the input does.
    ///
    /// # Errors
    /// `Trailing` if bytes are left.
    pub fn finish(self) -> Result<(), CdrReadError> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.error(ReadFault::Trailing { left: left as u64 })),
        }
    }

    /// Skips padding up to a multiple of `size`, or of the largest alignment of the version.
    ///
    /// # Errors
    /// `Truncated` if the value ends before.
    pub fn align(&mut self, size: usize) -> Result<(), CdrReadError> {
        let size = size.min(self.version.align_max());
        let at = self.at - self.origin;
        self.raw(at.next_multiple_of(size) - at)?;
        Ok(())
    }

    /// Reads bytes without alignment.
    ///
    /// # Errors
    /// `Truncated` if fewer are left.
    pub fn raw(&mut self, length: usize) -> Result<&'de [u8], CdrReadError> {
        if length > self.left() {
            return Err(self.error(ReadFault::Truncated { needed: length as u64, left: self.left() as u64 }));
        }
        let bytes = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(bytes)
    }

    /// Reads a number with its alignment, and returns it in the order of the native machine.
    ///
    /// # Errors
    /// `Truncated` if the value ends before.
    pub fn number<const N: usize>(&mut self) -> Result<[u8; N], CdrReadError> {
        self.align(N)?;
        let mut number = [0; N];
        number.copy_from_slice(self.raw(N)?);
        if self.order != ByteOrder::NATIVE {
            number.reverse();
        }
        Ok(number)
    }

    /// Reads numbers with the alignment of one. Returns their bytes in the order of the input.
    ///
    /// # Errors
    /// `Truncated` if the value ends before.
    pub fn numbers<const N: usize>(&mut self, count: usize) -> Result<&'de [[u8; N]], CdrReadError> {
        if count == 0 {
            return Ok(&[]);
        }
        self.align(N)?;
        let size = count.saturating_mul(N);
        Ok(self.raw(size)?.as_chunks().0)
    }

    /// Reads a number of 32 bits.
    ///
    /// # Errors
    /// `Truncated` if the value ends before.
    pub fn u32(&mut self) -> Result<u32, CdrReadError> {
        Ok(u32::from_ne_bytes(self.number()?))
    }

    /// Reads a number of 16 bits.
    ///
    /// # Errors
    /// `Truncated` if the value ends before.
    pub fn u16(&mut self) -> Result<u16, CdrReadError> {
        Ok(u16::from_ne_bytes(self.number()?))
    }

    /// Reads the length of a collection whose elements have at least `element_min` bytes each.
    ///
    /// # Errors
    /// `Count` if the input can't contain that many.
    pub fn count(&mut self, element_min: usize) -> Result<usize, CdrReadError> {
        let count = self.u32()?;
        if (count as usize).saturating_mul(element_min.max(1)) > self.left() {
            return Err(self.error(ReadFault::Count { count, left: self.left() as u64 }));
        }
        Ok(count as usize)
    }

    /// Reads a string of 8-bit characters, lent from the input.
    ///
    /// # Errors
    /// `Count`, `Unterminated` or `Utf8`. An empty string may have the length 0.
    pub fn string(&mut self) -> Result<&'de str, CdrReadError> {
        let length = self.count(1)?;
        if length == 0 {
            return Ok("");
        }
        let Some((&0, text)) = self.raw(length)?.split_last() else {
            return Err(self.error(ReadFault::Unterminated { length: length as u32 }));
        };
        core::str::from_utf8(text).map_err(|_| self.error(ReadFault::Utf8))
    }

    /// Reads a wide string.
    ///
    /// # Errors
    /// `Count` or `Utf16`.
    pub fn wide_string(&mut self) -> Result<String, CdrReadError> {
        let units = self.count(2)?;
        let order = self.order;
        let units = self.numbers::<2>(units)?.iter().map(|unit| match order {
            ByteOrder::Big => u16::from_be_bytes(*unit),
            ByteOrder::Little => u16::from_le_bytes(*unit),
        });
        char::decode_utf16(units).collect::<Result<String, _>>().map_err(|_| self.error(ReadFault::Utf16))
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// `Boolean` if the byte is neither 0 nor 1.
    pub fn boolean(&mut self) -> Result<bool, CdrReadError> {
        match self.raw(1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.error(ReadFault::Boolean { value })),
        }
    }

    /// Reads a value within the next `length` bytes, and continues after them.
    fn within<R>(
        &mut self,
        length: usize,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<R, CdrReadError> {
        if length > self.left() {
            return Err(self.error(ReadFault::Truncated { needed: length as u64, left: self.left() as u64 }));
        }
        let (end, outer) = (self.at + length, self.end);
        self.end = end;
        let value = read(self)?;
        self.at = end;
        self.end = outer;
        Ok(value)
    }

    /// Reads a value that is preceded by its size in bytes if `delimited` and the version is XCDR2.
    /// Bytes that `read` leaves are skipped.
    ///
    /// # Errors
    /// Those of `read`; `Truncated` if the size exceeds the input.
    pub fn delimited<R>(
        &mut self,
        delimited: bool,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<R, CdrReadError> {
        if !delimited || self.version == XcdrVersion::Xcdr1 {
            return read(self);
        }
        let length = self.u32()? as usize;
        self.within(length, read)
    }

    /// Reads a collection that is preceded by its size in bytes if `delimited` and the version is
    /// XCDR2.
    ///
    /// # Errors
    /// Those of `read`; `Size` if the size differs from that of the elements.
    pub fn collection<R>(
        &mut self,
        delimited: bool,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<R, CdrReadError> {
        let checked = delimited && self.version == XcdrVersion::Xcdr2;
        self.delimited(delimited, |from| {
            let announced = from.left() as u64;
            let value = read(from)?;
            match from.left() as u64 {
                left if checked && left > 0 => Err(from.error(ReadFault::Size { announced, read: announced - left })),
                _ => Ok(value),
            }
        })
    }

    /// Reads a value that contains others, one level deeper.
    ///
    /// # Errors
    /// Those of `read`; `TooDeep` beyond [`DEPTH_MAX`].
    pub fn nested<R>(
        &mut self,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<R, CdrReadError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(ReadFault::TooDeep { limit: DEPTH_MAX }));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Reads a structure or a union with the headers that its extensibility demands.
    ///
    /// # Errors
    /// Those of `members`; `TooDeep` and `Truncated` as above.
    pub fn structure<R>(
        &mut self,
        extensibility: Extensibility,
        members: impl FnOnce(&mut StructDecoder<'_, 'de>) -> Result<R, CdrReadError>,
    ) -> Result<R, CdrReadError> {
        let outermost = self.depth == 0;
        self.nested(|decoder| {
            decoder.delimited(extensibility != Extensibility::Final, |decoder| {
                // Without a size, the end of an appendable type is known only if it ends the sample.
                let delimited = decoder.version == XcdrVersion::Xcdr2 || outermost;
                let ends = extensibility == Extensibility::Appendable && delimited;
                members(&mut StructDecoder { decoder, extensibility, ends, ended: false })
            })
        })
    }
}

/// The header of a member of a mutable type, which was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberStart {
    /// Its identifier and flag.
    pub head: MemberHead,
    /// Its size in bytes.
    length: usize,
}

/// Reads the members of one structure.
#[derive(Debug)]
pub struct StructDecoder<'d, 'de> {
    decoder: &'d mut CdrDecoder<'de>,
    extensibility: Extensibility,
    /// Whether the end of the value means that members are missing.
    ends: bool,
    /// Whether the parameter list has ended.
    ended: bool,
}

impl<'de> StructDecoder<'_, 'de> {
    /// Returns the decoder, for values without a member header: discriminators, and base types.
    pub fn decoder(&mut self) -> &mut CdrDecoder<'de> {
        self.decoder
    }

    /// Returns whether an older writer has ended the structure before this member.
    pub fn is_at_end(&self) -> bool {
        self.ends && self.decoder.left() == 0
    }

    /// Reads a member of a final or appendable type. Returns `None` if the writer's type lacks it.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn member<R>(
        &mut self,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<Option<R>, CdrReadError> {
        if self.is_at_end() {
            return Ok(None);
        }
        read(self.decoder).map(Some)
    }

    /// Reads an optional member of a final or appendable type.
    ///
    /// # Errors
    /// Those of `read`; `Boolean` and `Parameter` if its header is invalid.
    pub fn optional<R>(
        &mut self,
        id: u32,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<Option<R>, CdrReadError> {
        if self.is_at_end() {
            return Ok(None);
        }
        if self.decoder.version == XcdrVersion::Xcdr2 {
            return match self.decoder.boolean()? {
                true => read(self.decoder).map(Some),
                false => Ok(None),
            };
        }
        let start = match self.parameter()? {
            Some(start) if start.head.id == id => start,
            other => {
                let got = other.map_or(PID_LIST_END.into(), |start| start.head.id);
                return Err(self.decoder.error(ReadFault::Parameter { expected: id, got }));
            }
        };
        if start.length == 0 {
            return Ok(None);
        }
        self.value(start, read).map(Some)
    }

    /// Reads the header of the next member of a mutable type. Returns `None` after the last one.
    ///
    /// # Errors
    /// `Truncated` and `ParameterHeader` if it is invalid.
    pub fn next_member(&mut self) -> Result<Option<MemberStart>, CdrReadError> {
        debug_assert_eq!(self.extensibility, Extensibility::Mutable);
        if self.ended {
            return Ok(None);
        }
        let start = match self.decoder.version {
            XcdrVersion::Xcdr1 => self.parameter()?,
            XcdrVersion::Xcdr2 => self.emheader()?,
        };
        self.ended = start.is_none();
        Ok(start)
    }

    /// Reads a parameter header of XCDR1. Returns `None` for the one that ends the list.
    fn parameter(&mut self) -> Result<Option<MemberStart>, CdrReadError> {
        let decoder = &mut *self.decoder;
        loop {
            decoder.align(4)?;
            let (header, length) = (decoder.u16()?, decoder.u16()?);
            let must_understand = header & SHORT_MUST_UNDERSTAND != 0;
            match header & SHORT_ID_MASK {
                PID_LIST_END => return Ok(None),
                PID_IGNORE => drop(decoder.raw(length.into())?),
                PID_EXTENDED if length == 8 => {
                    let (id, length) = (decoder.u32()?, decoder.u32()? as usize);
                    let must_understand = id & LONG_MUST_UNDERSTAND != 0;
                    let head = MemberHead { id: id & MEMBER_ID_MASK, must_understand };
                    return Ok(Some(MemberStart { head, length }));
                }
                id if u32::from(id) < PID_RESERVED => {
                    let head = MemberHead { id: id.into(), must_understand };
                    return Ok(Some(MemberStart { head, length: length.into() }));
                }
                _ => return Err(decoder.error(ReadFault::ParameterHeader { header, length })),
            }
        }
    }

    /// Reads a member header of XCDR2.
    fn emheader(&mut self) -> Result<Option<MemberStart>, CdrReadError> {
        let decoder = &mut *self.decoder;
        if decoder.left() < 4 {
            // Up to three bytes of padding may follow the last member.
            return Ok(None);
        }
        let header = decoder.u32()?;
        let head = MemberHead { id: header & MEMBER_ID_MASK, must_understand: header >> 31 == 1 };
        let length = match header >> 28 & 7 {
            code @ 0..=3 => 1 << code,
            4 => decoder.u32()? as usize,
            code => {
                // The length is the first number of the value, too.
                let units = decoder.u32()? as usize;
                decoder.at -= 4;
                let size: usize = [1, 4, 8][code as usize - 5];
                units.saturating_mul(size).saturating_add(4)
            }
        };
        Ok(Some(MemberStart { head, length }))
    }

    /// Reads the value of the member whose header was read last.
    ///
    /// # Errors
    /// Those of `read`; `Truncated` if the member exceeds the structure.
    pub fn value<R>(
        &mut self,
        start: MemberStart,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<R, CdrReadError> {
        let decoder = &mut *self.decoder;
        let outer = decoder.origin;
        if decoder.version == XcdrVersion::Xcdr1 {
            decoder.origin = decoder.at;
        }
        let value = decoder.within(start.length, read)?;
        decoder.origin = outer;
        Ok(value)
    }

    /// Makes the error of a member of the key that the writer's type lacks.
    pub fn key_missing(&self, id: u32) -> CdrReadError {
        self.decoder.error(ReadFault::KeyMissing { id })
    }

    /// Skips a member that the type lacks.
    ///
    /// # Errors
    /// `MustUnderstand` if the writer forbids it; `Truncated` if the member exceeds the structure.
    pub fn skip(&mut self, start: MemberStart) -> Result<(), CdrReadError> {
        if start.head.must_understand {
            return Err(self.decoder.error(ReadFault::MustUnderstand { id: start.head.id }));
        }
        self.value(start, |_| Ok(()))
    }

    /// Reads a member of a mutable type into its place.
    ///
    /// # Errors
    /// Those of `read`; `Twice` if the place has a value already.
    pub fn place<R>(
        &mut self,
        start: MemberStart,
        place: &mut Option<R>,
        read: impl FnOnce(&mut CdrDecoder<'de>) -> Result<R, CdrReadError>,
    ) -> Result<(), CdrReadError> {
        if place.is_some() {
            return Err(self.decoder.error(ReadFault::Twice { id: start.head.id }));
        }
        *place = Some(self.value(start, read)?);
        Ok(())
    }
}
