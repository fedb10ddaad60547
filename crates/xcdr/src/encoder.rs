//! The encoder: numbers, alignment, and the headers of structures and members.
//!
//! [`CdrEncoder`] knows the rules of the encodings (DDS-XTypes 1.3, 7.4.3) and no type. The trait
//! [`Cdr`](crate::Cdr) and dynamic data call it, so both have the same bytes.
use crate::encapsulation::{Encapsulation, HEADER_BYTES};
use crate::error::{CdrWriteError, WriteFault};
use crate::format::{ByteOrder, Extensibility, XcdrVersion};

/// How deeply values may contain each other.
pub const DEPTH_MAX: u16 = 64;

/// The header of a parameter in XCDR1: its flag for members that must be understood.
pub(crate) const SHORT_MUST_UNDERSTAND: u16 = 0x4000;
/// The same flag in the extended header.
pub(crate) const LONG_MUST_UNDERSTAND: u32 = 0x4000_0000;
/// The identifier that announces an extended header.
pub(crate) const PID_EXTENDED: u16 = 0x3f01;
/// The identifier that ends a parameter list.
pub(crate) const PID_LIST_END: u16 = 0x3f02;
/// The first identifier that no short header can have.
pub(crate) const PID_RESERVED: u32 = 0x3f00;
/// The bits of a member's identifier.
pub(crate) const MEMBER_ID_MASK: u32 = 0x0fff_ffff;

/// The headers of parameters that XCDR1 writes: for members of mutable types, and optional members.
///
/// Every decoder reads both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ParameterForm {
    /// Extended headers of 12 bytes, and sizes in mutable types rounded up to 4, as Cyclone DDS does.
    #[default]
    Extended,
    /// Short headers of 4 bytes where they fit, and exact sizes, as Fast CDR does.
    Short,
}

/// What is encoded of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EncodeKind {
    /// All members.
    #[default]
    Sample,
    /// The members of the key, in the order of the definition.
    Key,
    /// The members of the key in the order of their identifiers, as if each type were final, for
    /// the key hash (DDS-XTypes 1.3, 7.6.8).
    KeyHash,
}

/// The number and the flag of a member, as they are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberHead {
    /// Its identifier: 28 bits.
    pub id: u32,
    /// Whether a reader that does not know the member must refuse the sample.
    pub must_understand: bool,
}

/// The length code of a member of a mutable type in XCDR2 (DDS-XTypes 1.3, 7.4.3.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LengthCode {
    /// One byte.
    One = 0,
    /// Two bytes.
    Two = 1,
    /// Four bytes.
    Four = 2,
    /// Eight bytes.
    Eight = 3,
    /// A length in bytes follows the header.
    Next = 4,
    /// The value starts with its length in bytes.
    SharedBytes = 5,
    /// The value starts with its length in units of four bytes.
    SharedFours = 6,
    /// The value starts with its length in units of eight bytes.
    SharedEights = 7,
}

impl LengthCode {
    /// Returns the size of a value that always has the same size, in bytes.
    pub const fn size(self) -> Option<usize> {
        match self {
            LengthCode::One => Some(1),
            LengthCode::Two => Some(2),
            LengthCode::Four => Some(4),
            LengthCode::Eight => Some(8),
            _ => None,
        }
    }

    /// Returns the code of a sequence or an array of such elements.
    ///
    /// `delimited` says whether the collection starts with its size in bytes.
    pub(crate) const fn of_sequence(self, delimited: bool) -> LengthCode {
        match self {
            _ if delimited => LengthCode::SharedBytes,
            LengthCode::One => LengthCode::SharedBytes,
            LengthCode::Four => LengthCode::SharedFours,
            LengthCode::Eight => LengthCode::SharedEights,
            _ => LengthCode::Next,
        }
    }
}

/// Writes one value.
#[derive(Debug)]
pub struct CdrEncoder {
    bytes: Vec<u8>,
    /// The index from which alignment counts.
    origin: usize,
    version: XcdrVersion,
    order: ByteOrder,
    form: ParameterForm,
    kind: EncodeKind,
    depth: u16,
}

impl CdrEncoder {
    /// Makes an encoder of a body without an encapsulation header.
    pub fn new(version: XcdrVersion, order: ByteOrder) -> CdrEncoder {
        let (bytes, form, kind) = (Vec::new(), ParameterForm::default(), EncodeKind::default());
        CdrEncoder { bytes, origin: 0, version, order, form, kind, depth: 0 }
    }

    /// Makes an encoder that starts with an encapsulation header. Alignment counts from its end.
    pub fn with_header(encapsulation: Encapsulation) -> CdrEncoder {
        let mut encoder = CdrEncoder::new(encapsulation.version, encapsulation.order);
        encoder.bytes.extend_from_slice(&encapsulation.header(0));
        encoder.origin = HEADER_BYTES;
        encoder
    }

    /// Sets the headers of parameters.
    #[must_use]
    pub fn parameters(self, form: ParameterForm) -> CdrEncoder {
        CdrEncoder { form, ..self }
    }

    /// Sets what is encoded.
    #[must_use]
    pub fn kind(self, kind: EncodeKind) -> CdrEncoder {
        CdrEncoder { kind, ..self }
    }

    /// Returns whether the members of a key are ordered by their identifiers.
    pub fn orders_by_id(&self) -> bool {
        self.kind == EncodeKind::KeyHash
    }

    /// Returns the version of the encoding.
    pub fn version(&self) -> XcdrVersion {
        self.version
    }

    /// Returns the order of the bytes of numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the bytes.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the bytes of an encoder that was made with a header, padded to a multiple of four,
    /// with the padding's size in the header.
    pub fn finish_sample(mut self) -> Vec<u8> {
        let padding = self.bytes.len().wrapping_neg() & 3;
        self.bytes.resize(self.bytes.len() + padding, 0);
        if let Some(options) = self.bytes.get_mut(HEADER_BYTES - 1) {
            *options |= padding as u8;
        }
        self.bytes
    }

    /// Writes zeros up to a multiple of `size`, or of the largest alignment of the version.
    pub fn align(&mut self, size: usize) {
        let size = size.min(self.version.align_max());
        let at = self.bytes.len() - self.origin;
        let padded = at.next_multiple_of(size);
        self.bytes.resize(self.origin + padded, 0);
    }

    /// Writes bytes without alignment.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes a number, given in the order of the native machine, with its alignment.
    pub fn number<const N: usize>(&mut self, native: [u8; N]) {
        self.align(N);
        self.bytes.extend_from_slice(&self.ordered(native));
    }

    /// Writes numbers, given in the order of the native machine, with the alignment of one.
    pub fn numbers<const N: usize>(&mut self, native: impl ExactSizeIterator<Item = [u8; N]>) {
        if native.len() == 0 {
            return;
        }
        self.align(N);
        self.bytes.reserve(native.len() * N);
        for number in native {
            self.bytes.extend_from_slice(&self.ordered(number));
        }
    }

    fn ordered<const N: usize>(&self, mut native: [u8; N]) -> [u8; N] {
        if self.order != ByteOrder::NATIVE {
            native.reverse();
        }
        native
    }

    /// Writes a number of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.number(value.to_ne_bytes());
    }

    /// Writes a length.
    ///
    /// # Errors
    /// `Length` if it does not fit into 32 bits.
    pub fn length(&mut self, length: usize) -> Result<(), CdrWriteError> {
        self.u32(length_of(length)?);
        Ok(())
    }

    /// Writes a string of 8-bit characters: its length with the NUL, its bytes, and the NUL.
    ///
    /// # Errors
    /// `Nul` if it contains one; `Length` if it is too long.
    pub fn string(&mut self, text: &str) -> Result<(), CdrWriteError> {
        if let Some(at) = text.bytes().position(|byte| byte == 0) {
            return Err(CdrWriteError::new(WriteFault::Nul { at }));
        }
        self.length(text.len() + 1)?;
        self.raw(text.as_bytes());
        self.raw(&[0]);
        Ok(())
    }

    /// Writes a wide string as UTF-16 without a NUL. Its length counts characters of 16 bits, as
    /// Fast CDR does.
    ///
    /// # Errors
    /// `Length` if it is too long.
    pub fn wide_string(&mut self, text: &str) -> Result<(), CdrWriteError> {
        self.length(text.encode_utf16().count())?;
        for unit in text.encode_utf16() {
            self.number(unit.to_ne_bytes());
        }
        Ok(())
    }

    /// Writes a value that is preceded by its size in bytes if `delimited` and the version is XCDR2.
    ///
    /// # Errors
    /// Those of `write`; `Length` if the size does not fit into 32 bits.
    pub fn delimited(
        &mut self,
        delimited: bool,
        write: impl FnOnce(&mut CdrEncoder) -> Result<(), CdrWriteError>,
    ) -> Result<(), CdrWriteError> {
        if !delimited || self.version == XcdrVersion::Xcdr1 {
            return write(self);
        }
        self.u32(0);
        let start = self.bytes.len();
        write(self)?;
        self.patch(start, self.bytes.len() - start)
    }

    /// Stores a length in the four bytes before `start`.
    fn patch(&mut self, start: usize, length: usize) -> Result<(), CdrWriteError> {
        let length = self.ordered(length_of(length)?.to_ne_bytes());
        self.bytes[start - 4..start].copy_from_slice(&length);
        Ok(())
    }

    /// Writes a value that contains others, one level deeper.
    ///
    /// # Errors
    /// Those of `write`; `TooDeep` beyond [`DEPTH_MAX`].
    pub fn nested(
        &mut self,
        write: impl FnOnce(&mut CdrEncoder) -> Result<(), CdrWriteError>,
    ) -> Result<(), CdrWriteError> {
        if self.depth == DEPTH_MAX {
            return Err(CdrWriteError::new(WriteFault::TooDeep { limit: DEPTH_MAX }));
        }
        self.depth += 1;
        let result = write(self);
        self.depth -= 1;
        result
    }

    /// Writes a structure or a union with the headers that its extensibility demands.
    ///
    /// # Errors
    /// Those of `members`; `TooDeep` and `Length` as above.
    pub fn structure(
        &mut self,
        extensibility: Extensibility,
        members: impl FnOnce(&mut StructEncoder<'_>) -> Result<(), CdrWriteError>,
    ) -> Result<(), CdrWriteError> {
        let extensibility = match self.kind {
            EncodeKind::KeyHash => Extensibility::Final,
            EncodeKind::Sample | EncodeKind::Key => extensibility,
        };
        let mutable = extensibility == Extensibility::Mutable;
        self.nested(|encoder| {
            encoder.delimited(extensibility != Extensibility::Final, |encoder| {
                members(&mut StructEncoder { encoder, mutable })
            })?;
            if mutable && encoder.version == XcdrVersion::Xcdr1 {
                encoder.align(4);
                encoder.number((PID_LIST_END | encoder.flag()).to_ne_bytes());
                encoder.number(0_u16.to_ne_bytes());
            }
            Ok(())
        })
    }

    /// Returns the flag of the parameters that are no members.
    fn flag(&self) -> u16 {
        match self.form {
            ParameterForm::Extended => SHORT_MUST_UNDERSTAND,
            ParameterForm::Short => 0,
        }
    }

    /// Writes a parameter of XCDR1. Alignment within it counts from its start.
    fn parameter(
        &mut self,
        head: MemberHead,
        round_up: bool,
        write: impl FnOnce(&mut CdrEncoder) -> Result<(), CdrWriteError>,
    ) -> Result<(), CdrWriteError> {
        self.align(4);
        let short = self.form == ParameterForm::Short && head.id < PID_RESERVED;
        let header = self.bytes.len();
        if short {
            let flag = if head.must_understand { SHORT_MUST_UNDERSTAND } else { 0 };
            self.number((head.id as u16 | flag).to_ne_bytes());
            self.number(0_u16.to_ne_bytes());
        } else {
            self.extended_header(head);
        }
        let (start, outer) = (self.bytes.len(), self.origin);
        self.origin = start;
        write(self)?;
        if round_up && self.form == ParameterForm::Extended {
            self.align(4);
        }
        self.origin = outer;
        let length = self.bytes.len() - start;
        if !short {
            return self.patch(start, length);
        }
        if let Ok(length) = u16::try_from(length) {
            let length = self.ordered(length.to_ne_bytes());
            self.bytes[start - 2..start].copy_from_slice(&length);
            return Ok(());
        }
        // The value is too long for a short header, so it moves behind an extended one.
        let value = self.bytes.split_off(start);
        self.bytes.truncate(header);
        self.extended_header(head);
        let start = self.bytes.len();
        self.raw(&value);
        self.patch(start, value.len())
    }

    /// Writes an extended header whose length is set later.
    fn extended_header(&mut self, head: MemberHead) {
        self.number((PID_EXTENDED | self.flag()).to_ne_bytes());
        self.number(8_u16.to_ne_bytes());
        self.u32(head.id & MEMBER_ID_MASK | if head.must_understand { LONG_MUST_UNDERSTAND } else { 0 });
        self.u32(0);
    }

    /// Writes a member of a mutable type in XCDR2.
    fn mutable_member(
        &mut self,
        head: MemberHead,
        code: LengthCode,
        write: impl FnOnce(&mut CdrEncoder) -> Result<(), CdrWriteError>,
    ) -> Result<(), CdrWriteError> {
        let flag = if head.must_understand { 1 << 31 } else { 0 };
        self.u32(flag | (code as u32) << 28 | head.id & MEMBER_ID_MASK);
        if code != LengthCode::Next {
            return write(self);
        }
        self.u32(0);
        let start = self.bytes.len();
        write(self)?;
        self.patch(start, self.bytes.len() - start)
    }
}

fn length_of(length: usize) -> Result<u32, CdrWriteError> {
    u32::try_from(length).map_err(|_| CdrWriteError::new(WriteFault::Length { length: length as u64 }))
}

/// Writes the members of one structure.
#[derive(Debug)]
pub struct StructEncoder<'e> {
    encoder: &'e mut CdrEncoder,
    mutable: bool,
}

impl StructEncoder<'_> {
    /// Returns the encoder, for values without a member header: discriminators, and base types.
    pub fn encoder(&mut self) -> &mut CdrEncoder {
        self.encoder
    }

    /// Writes a member that is always present.
    ///
    /// # Errors
    /// Those of `write`; `Length` if the member is too long.
    pub fn member(
        &mut self,
        head: MemberHead,
        code: LengthCode,
        write: impl FnOnce(&mut CdrEncoder) -> Result<(), CdrWriteError>,
    ) -> Result<(), CdrWriteError> {
        match (self.mutable, self.encoder.version) {
            (false, _) => write(self.encoder),
            (true, XcdrVersion::Xcdr1) => self.encoder.parameter(head, true, write),
            (true, XcdrVersion::Xcdr2) => self.encoder.mutable_member(head, code, write),
        }
    }

    /// Writes an optional member; `None` if it is absent.
    ///
    /// # Errors
    /// Those of `write`; `Length` if the member is too long.
    pub fn optional(
        &mut self,
        head: MemberHead,
        code: LengthCode,
        write: Option<impl FnOnce(&mut CdrEncoder) -> Result<(), CdrWriteError>>,
    ) -> Result<(), CdrWriteError> {
        match (self.mutable, self.encoder.version, write) {
            (true, _, None) => Ok(()),
            (true, _, Some(write)) => self.member(head, code, write),
            (false, XcdrVersion::Xcdr2, None) => {
                self.encoder.raw(&[0]);
                Ok(())
            }
            (false, XcdrVersion::Xcdr2, Some(write)) => {
                self.encoder.raw(&[1]);
                write(self.encoder)
            }
            (false, XcdrVersion::Xcdr1, None) => self.encoder.parameter(head, false, |_| Ok(())),
            (false, XcdrVersion::Xcdr1, Some(write)) => self.encoder.parameter(head, false, write),
        }
    }
}
