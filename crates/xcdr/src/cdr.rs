//! The trait of everything that can be encoded, and primitive types.
use crate::characters::{Char8, Char16, Octet};
use crate::decoder::CdrDecoder;
use crate::description::{DataType, PrimitiveKind, TypeCollector};
use crate::encoder::{CdrEncoder, LengthCode};
use crate::error::{CdrReadError, CdrWriteError};
use crate::format::ByteOrder;
use crate::plain::Plain;

/// A type with an encoding in XCDR.
///
/// It is implemented for primitive types, strings, `Vec`, arrays, `BTreeMap` and `Box`, and derived
/// for others with [`DdsType`](crate::DdsType).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no encoding in XCDR",
    label = "not a DDS type",
    note = "derive `DdsType` for it; an optional member is written `Option<T>`, and an optional element has no encoding"
)]
pub trait Cdr: Sized + 'static {
    /// The length code of a member of this type.
    const LENGTH_CODE: LengthCode;
    /// The bytes that a value has at least: 1 or more.
    const SIZE_MIN: usize = 1;
    /// Whether a sequence of these starts with its size in XCDR2: all but primitive types.
    const DELIMITED_IN_SEQUENCE: bool = true;
    /// Whether an array of these starts with its size in XCDR2: all but primitive types and their
    /// arrays.
    const DELIMITED_IN_ARRAY: bool = true;

    /// Describes the type.
    fn describe(types: &mut TypeCollector) -> DataType;

    /// Encodes the value.
    ///
    /// # Errors
    /// [`WriteFault`](crate::WriteFault), with the path to the member.
    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError>;

    /// Decodes a value.
    ///
    /// # Errors
    /// [`ReadFault`](crate::ReadFault), with the byte and the path to the member.
    fn decode(from: &mut CdrDecoder<'_>) -> Result<Self, CdrReadError>;

    /// Returns the value of a member that the writer's type lacks (DDS-XTypes 1.3, 7.2.2.4.4.4.7).
    fn missing() -> Self;

    /// Encodes the key of the value: all of it for types without key members.
    ///
    /// # Errors
    /// As for `encode`.
    fn encode_key(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        self.encode(to)
    }

    /// Decodes a key. Other members have the values of [`Cdr::missing`].
    ///
    /// # Errors
    /// As for `decode`.
    fn decode_key(from: &mut CdrDecoder<'_>) -> Result<Self, CdrReadError> {
        Self::decode(from)
    }

    /// Encodes an element of an array: the inner dimensions of an array have no size of their own.
    #[doc(hidden)]
    fn encode_inner(&self, to: &mut CdrEncoder, key: bool) -> Result<(), CdrWriteError> {
        if key { self.encode_key(to) } else { self.encode(to) }
    }

    /// Decodes an element of an array.
    #[doc(hidden)]
    fn decode_inner(from: &mut CdrDecoder<'_>, key: bool) -> Result<Self, CdrReadError> {
        if key { Self::decode_key(from) } else { Self::decode(from) }
    }

    /// Encodes the elements of a sequence.
    #[doc(hidden)]
    fn encode_elements(values: &[Self], to: &mut CdrEncoder, key: bool) -> Result<(), CdrWriteError> {
        for (index, value) in values.iter().enumerate() {
            let result = if key { value.encode_key(to) } else { value.encode(to) };
            result.map_err(|error| error.at_index(index))?;
        }
        Ok(())
    }

    /// Encodes the elements of an array.
    #[doc(hidden)]
    fn encode_array(values: &[Self], to: &mut CdrEncoder, key: bool) -> Result<(), CdrWriteError> {
        for (index, value) in values.iter().enumerate() {
            value.encode_inner(to, key).map_err(|error| error.at_index(index))?;
        }
        Ok(())
    }

    /// Decodes the elements of a sequence whose count was checked against the input.
    #[doc(hidden)]
    fn decode_elements(from: &mut CdrDecoder<'_>, count: usize, key: bool) -> Result<Vec<Self>, CdrReadError> {
        let reserved = count.min(from.left() / size_of::<Self>().max(1));
        let mut values = Vec::with_capacity(reserved);
        for index in 0..count {
            let value = if key { Self::decode_key(from) } else { Self::decode(from) };
            values.push(value.map_err(|error| error.at_index(index))?);
        }
        Ok(values)
    }

    /// Decodes the elements of an array.
    #[doc(hidden)]
    fn decode_array<const N: usize>(from: &mut CdrDecoder<'_>, key: bool) -> Result<[Self; N], CdrReadError> {
        let mut failure = None;
        let values = core::array::from_fn(|index| {
            if failure.is_none() {
                match Self::decode_inner(from, key) {
                    Ok(value) => return value,
                    Err(error) => failure = Some(error.at_index(index)),
                }
            }
            Self::missing()
        });
        failure.map_or(Ok(values), Err)
    }
}

/// Implements [`Cdr`] for numbers, whose bytes are copied as a whole in the native order.
macro_rules! numbers {
    ($($type:ty, $size:literal, $code:ident, $kind:ident, $from:expr, $into:expr;)*) => {$(
        impl Cdr for $type {
            const LENGTH_CODE: LengthCode = LengthCode::$code;
            const SIZE_MIN: usize = $size;
            const DELIMITED_IN_SEQUENCE: bool = false;
            const DELIMITED_IN_ARRAY: bool = false;

            fn describe(_: &mut TypeCollector) -> DataType {
                DataType::Primitive(PrimitiveKind::$kind)
            }

            fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
                to.number($into(*self).to_ne_bytes());
                Ok(())
            }

            fn decode(from: &mut CdrDecoder<'_>) -> Result<Self, CdrReadError> {
                Ok($from(from.number()?))
            }

            fn missing() -> Self {
                $from([0; $size])
            }

            fn encode_elements(values: &[Self], to: &mut CdrEncoder, _: bool) -> Result<(), CdrWriteError> {
                if values.is_empty() {
                    return Ok(());
                }
                if to.order() == ByteOrder::NATIVE {
                    to.align($size);
                    to.raw(Plain::slice_as_bytes(values));
                } else {
                    to.numbers(values.iter().map(|value| $into(*value).to_ne_bytes()));
                }
                Ok(())
            }

            fn encode_array(values: &[Self], to: &mut CdrEncoder, key: bool) -> Result<(), CdrWriteError> {
                Self::encode_elements(values, to, key)
            }

            fn decode_elements(
                from: &mut CdrDecoder<'_>,
                count: usize,
                _: bool,
            ) -> Result<Vec<Self>, CdrReadError> {
                let order = from.order();
                Ok(from.numbers::<$size>(count)?.iter().map(|bytes| $from(in_native_order(*bytes, order))).collect())
            }

            fn decode_array<const N: usize>(from: &mut CdrDecoder<'_>, _: bool) -> Result<[Self; N], CdrReadError> {
                let order = from.order();
                let bytes = from.numbers::<$size>(N)?;
                Ok(core::array::from_fn(|index| $from(in_native_order(bytes[index], order))))
            }
        }
    )*};
}

fn in_native_order<const N: usize>(mut bytes: [u8; N], order: ByteOrder) -> [u8; N] {
    if order != ByteOrder::NATIVE {
        bytes.reverse();
    }
    bytes
}

numbers! {
    u8, 1, One, UInt8, u8::from_ne_bytes, core::convert::identity;
    i8, 1, One, Int8, i8::from_ne_bytes, core::convert::identity;
    u16, 2, Two, UInt16, u16::from_ne_bytes, core::convert::identity;
    i16, 2, Two, Int16, i16::from_ne_bytes, core::convert::identity;
    u32, 4, Four, UInt32, u32::from_ne_bytes, core::convert::identity;
    i32, 4, Four, Int32, i32::from_ne_bytes, core::convert::identity;
    u64, 8, Eight, UInt64, u64::from_ne_bytes, core::convert::identity;
    i64, 8, Eight, Int64, i64::from_ne_bytes, core::convert::identity;
    f32, 4, Four, Float32, f32::from_ne_bytes, core::convert::identity;
    f64, 8, Eight, Float64, f64::from_ne_bytes, core::convert::identity;
    Char8, 1, One, Char8, |bytes| Char8(u8::from_ne_bytes(bytes)), |char: Char8| char.0;
    Char16, 2, Two, Char16, |bytes| Char16(u16::from_ne_bytes(bytes)), |char: Char16| char.0;
    Octet, 1, One, Octet, |bytes| Octet(u8::from_ne_bytes(bytes)), |octet: Octet| octet.0;
}

impl Cdr for bool {
    const LENGTH_CODE: LengthCode = LengthCode::One;
    const DELIMITED_IN_SEQUENCE: bool = false;
    const DELIMITED_IN_ARRAY: bool = false;

    fn describe(_: &mut TypeCollector) -> DataType {
        DataType::Primitive(PrimitiveKind::Boolean)
    }

    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        to.raw(&[u8::from(*self)]);
        Ok(())
    }

    fn decode(from: &mut CdrDecoder<'_>) -> Result<bool, CdrReadError> {
        from.boolean()
    }

    fn missing() -> bool {
        false
    }
}
