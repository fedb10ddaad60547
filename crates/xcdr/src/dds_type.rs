//! The trait of types that have a name, and the functions for whole samples.
use crate::cdr::Cdr;
use crate::decoder::CdrDecoder;
use crate::description::{TypeCollector, TypeDescription};
use crate::encapsulation::Encapsulation;
use crate::encoder::{CdrEncoder, EncodeKind, ParameterForm};
use crate::error::{CdrReadError, CdrWriteError, ReadFault, WriteFault};
use crate::format::{ByteOrder, Extensibility, XcdrVersion};

/// A structure, union, enumeration or bit mask of DDS. Derive it.
#[diagnostic::on_unimplemented(message = "`{Self}` is no named DDS type", note = "derive `DdsType` for it")]
pub trait DdsType: Cdr {
    /// Its name with its modules, such as `sensor::Reading`.
    const NAME: &'static str;
    /// How it may change.
    const EXTENSIBILITY: Extensibility;
    /// Whether it has a key.
    const KEYED: bool;

    /// Describes the type and all named types that it reaches.
    fn description() -> TypeDescription {
        let mut types = TypeCollector::default();
        let root = Self::describe(&mut types);
        types.finish(root)
    }
}

/// A type that discriminates a union: integers, booleans, characters and enumerations.
pub trait Discriminator: Cdr + Copy + PartialEq {
    /// Returns the value as type objects write it.
    fn label(self) -> i64;
}

macro_rules! discriminators {
    ($($type:ty),*) => {$(
        impl Discriminator for $type {
            fn label(self) -> i64 {
                self as i64
            }
        }
    )*};
}

discriminators!(bool, u8, i8, u16, i16, u32, i32, u64, i64);

impl Discriminator for crate::characters::Char8 {
    fn label(self) -> i64 {
        self.0.into()
    }
}

impl Discriminator for crate::characters::Octet {
    fn label(self) -> i64 {
        self.0.into()
    }
}

/// A set of flags. Derived with `#[dds(bitmask)]`.
pub trait Bitmask: DdsType + Copy {
    /// Returns the bits. Bits without a flag are kept.
    fn bits(self) -> u64;

    /// Returns the set with these bits. Bits beyond the type's size are lost.
    fn from_bits(bits: u64) -> Self;

    /// Returns whether all flags of `other` are set.
    fn contains(self, other: Self) -> bool {
        self.bits() & other.bits() == other.bits()
    }

    /// Returns the flags of both.
    #[must_use]
    fn with(self, other: Self) -> Self {
        Self::from_bits(self.bits() | other.bits())
    }
}

/// How a sample is represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleFormat {
    /// The version of the encoding.
    pub version: XcdrVersion,
    /// The order of the bytes of numbers.
    pub order: ByteOrder,
    /// The headers of parameters in XCDR1.
    pub parameters: ParameterForm,
}

impl Default for SampleFormat {
    /// XCDR2 in the native byte order.
    fn default() -> SampleFormat {
        SampleFormat { version: XcdrVersion::Xcdr2, order: ByteOrder::NATIVE, parameters: ParameterForm::default() }
    }
}

impl SampleFormat {
    /// Makes an encoder of samples of a type with this extensibility.
    pub fn encoder(self, extensibility: Extensibility) -> CdrEncoder {
        CdrEncoder::with_header(Encapsulation { version: self.version, extensibility, order: self.order })
            .parameters(self.parameters)
    }
}

/// Encodes a sample with its header, padded to a multiple of four bytes.
///
/// # Errors
/// [`CdrWriteError`] if the value has no encoding, such as a string beyond its bound.
pub fn encode_sample<T: DdsType>(value: &T, format: SampleFormat) -> Result<Vec<u8>, CdrWriteError> {
    let mut to = format.encoder(T::EXTENSIBILITY);
    value.encode(&mut to)?;
    Ok(to.finish_sample())
}

/// Encodes the key of a sample with a header: the members of the key in the order of the definition.
/// The key of a type without one is empty.
///
/// # Errors
/// As [`encode_sample`].
pub fn encode_key_sample<T: DdsType>(value: &T, format: SampleFormat) -> Result<Vec<u8>, CdrWriteError> {
    let mut to = format.encoder(T::EXTENSIBILITY).kind(EncodeKind::Key);
    if T::KEYED {
        value.encode_key(&mut to)?;
    } else {
        to.structure(T::EXTENSIBILITY, |_| Ok(()))?;
    }
    Ok(to.finish_sample())
}

/// Checks that a sample has a representation of types with this extensibility.
pub(crate) fn check_extensibility(
    from: &CdrDecoder<'_>,
    encapsulation: Encapsulation,
    extensibility: Extensibility,
) -> Result<(), CdrReadError> {
    if encapsulation.fits(extensibility) {
        return Ok(());
    }
    Err(from.error(ReadFault::Extensibility { id: encapsulation.id(), extensibility }))
}

/// Decodes a sample with its header, in either version and byte order.
///
/// # Errors
/// [`CdrReadError`] if the bytes are no sample of the type. It never panics, and reserves no more
/// memory than the bytes justify.
pub fn decode_sample<T: DdsType>(sample: &[u8]) -> Result<T, CdrReadError> {
    let (mut from, encapsulation) = CdrDecoder::with_header(sample)?;
    check_extensibility(&from, encapsulation, T::EXTENSIBILITY)?;
    let value = T::decode(&mut from)?;
    from.finish()?;
    Ok(value)
}

/// Decodes a key with its header. Other members have the values of [`Cdr::missing`].
///
/// # Errors
/// As [`decode_sample`].
pub fn decode_key_sample<T: DdsType>(sample: &[u8]) -> Result<T, CdrReadError> {
    let (mut from, encapsulation) = CdrDecoder::with_header(sample)?;
    check_extensibility(&from, encapsulation, T::EXTENSIBILITY)?;
    if !T::KEYED {
        return Ok(T::missing());
    }
    let value = T::decode_key(&mut from)?;
    from.finish()?;
    Ok(value)
}

/// Makes the error of a value that an enumeration lacks.
#[doc(hidden)]
pub fn no_literal(from: &CdrDecoder<'_>, of: &'static str, value: i64) -> CdrReadError {
    from.error(ReadFault::Literal { of: of.into(), value })
}

/// Makes the error of a discriminator that selects no member.
#[doc(hidden)]
pub fn no_case(from: &CdrDecoder<'_>, of: &'static str, value: i64) -> CdrReadError {
    from.error(ReadFault::Discriminator { of: of.into(), value })
}

/// Makes the error of a discriminator that does not select the member that a union holds.
#[doc(hidden)]
pub fn wrong_case(union: &str, value: i64) -> CdrWriteError {
    CdrWriteError::new(WriteFault::Discriminator { union: union.to_owned(), value })
}
