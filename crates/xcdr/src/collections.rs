//! Strings, sequences, arrays, maps and boxes, and their bounds.
use crate::cdr::Cdr;
use crate::decoder::CdrDecoder;
use crate::description::{DataType, TypeCollector};
use crate::encoder::{CdrEncoder, LengthCode};
use crate::error::{CdrReadError, CdrWriteError, ReadFault, WriteFault};
use std::collections::BTreeMap;

/// The type `wstring` of IDL, whose encoding is UTF-16.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WideString(pub String);

impl Cdr for String {
    const LENGTH_CODE: LengthCode = LengthCode::SharedBytes;
    const SIZE_MIN: usize = 4;

    fn describe(_: &mut TypeCollector) -> DataType {
        DataType::String(0)
    }

    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        to.string(self)
    }

    fn decode(from: &mut CdrDecoder<'_>) -> Result<String, CdrReadError> {
        from.string().map(str::to_owned)
    }

    fn missing() -> String {
        String::new()
    }
}

impl Cdr for WideString {
    const LENGTH_CODE: LengthCode = LengthCode::Next;
    const SIZE_MIN: usize = 4;

    fn describe(_: &mut TypeCollector) -> DataType {
        DataType::WideString(0)
    }

    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        to.wide_string(&self.0)
    }

    fn decode(from: &mut CdrDecoder<'_>) -> Result<WideString, CdrReadError> {
        from.wide_string().map(WideString)
    }

    fn missing() -> WideString {
        WideString::default()
    }
}

fn encode_sequence<T: Cdr>(values: &[T], to: &mut CdrEncoder, key: bool) -> Result<(), CdrWriteError> {
    to.nested(|to| {
        to.delimited(T::DELIMITED_IN_SEQUENCE, |to| {
            to.length(values.len())?;
            T::encode_elements(values, to, key)
        })
    })
}

fn decode_sequence<T: Cdr>(from: &mut CdrDecoder<'_>, key: bool) -> Result<Vec<T>, CdrReadError> {
    from.nested(|from| {
        from.collection(T::DELIMITED_IN_SEQUENCE, |from| {
            let count = from.count(T::SIZE_MIN)?;
            T::decode_elements(from, count, key)
        })
    })
}

impl<T: Cdr> Cdr for Vec<T> {
    const LENGTH_CODE: LengthCode = T::LENGTH_CODE.of_sequence(T::DELIMITED_IN_SEQUENCE);
    const SIZE_MIN: usize = 4;

    fn describe(types: &mut TypeCollector) -> DataType {
        DataType::Sequence(Box::new(T::describe(types)), 0)
    }

    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        encode_sequence(self, to, false)
    }

    fn decode(from: &mut CdrDecoder<'_>) -> Result<Vec<T>, CdrReadError> {
        decode_sequence(from, false)
    }

    fn missing() -> Vec<T> {
        Vec::new()
    }

    fn encode_key(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        encode_sequence(self, to, true)
    }

    fn decode_key(from: &mut CdrDecoder<'_>) -> Result<Vec<T>, CdrReadError> {
        decode_sequence(from, true)
    }
}

impl<T: Cdr, const N: usize> Cdr for [T; N] {
    const LENGTH_CODE: LengthCode = match T::DELIMITED_IN_ARRAY {
        true => LengthCode::SharedBytes,
        false => LengthCode::Next,
    };
    const SIZE_MIN: usize = if N == 0 { 1 } else { T::SIZE_MIN * N };
    const DELIMITED_IN_ARRAY: bool = T::DELIMITED_IN_ARRAY;

    fn describe(types: &mut TypeCollector) -> DataType {
        DataType::array(T::describe(types), N as u32)
    }

    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        to.delimited(T::DELIMITED_IN_ARRAY, |to| T::encode_array(self, to, false))
    }

    fn decode(from: &mut CdrDecoder<'_>) -> Result<[T; N], CdrReadError> {
        from.collection(T::DELIMITED_IN_ARRAY, |from| T::decode_array(from, false))
    }

    fn missing() -> [T; N] {
        core::array::from_fn(|_| T::missing())
    }

    fn encode_key(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        to.delimited(T::DELIMITED_IN_ARRAY, |to| T::encode_array(self, to, true))
    }

    fn decode_key(from: &mut CdrDecoder<'_>) -> Result<[T; N], CdrReadError> {
        from.collection(T::DELIMITED_IN_ARRAY, |from| T::decode_array(from, true))
    }

    fn encode_inner(&self, to: &mut CdrEncoder, key: bool) -> Result<(), CdrWriteError> {
        T::encode_array(self, to, key)
    }

    fn decode_inner(from: &mut CdrDecoder<'_>, key: bool) -> Result<[T; N], CdrReadError> {
        T::decode_array(from, key)
    }
}

impl<K: Cdr + Ord, V: Cdr> Cdr for BTreeMap<K, V> {
    const LENGTH_CODE: LengthCode = match K::DELIMITED_IN_SEQUENCE || V::DELIMITED_IN_SEQUENCE {
        true => LengthCode::SharedBytes,
        false => LengthCode::Next,
    };
    const SIZE_MIN: usize = 4;

    fn describe(types: &mut TypeCollector) -> DataType {
        let key = K::describe(types);
        DataType::Map(Box::new(key), Box::new(V::describe(types)), 0)
    }

    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        to.nested(|to| {
            to.delimited(K::DELIMITED_IN_SEQUENCE || V::DELIMITED_IN_SEQUENCE, |to| {
                to.length(self.len())?;
                for (index, (key, value)) in self.iter().enumerate() {
                    key.encode(to).map_err(|error| error.at_index(index))?;
                    value.encode(to).map_err(|error| error.at_index(index))?;
                }
                Ok(())
            })
        })
    }

    fn decode(from: &mut CdrDecoder<'_>) -> Result<BTreeMap<K, V>, CdrReadError> {
        from.nested(|from| {
            from.collection(K::DELIMITED_IN_SEQUENCE || V::DELIMITED_IN_SEQUENCE, |from| {
                let count = from.count(K::SIZE_MIN + V::SIZE_MIN)?;
                let mut map = BTreeMap::new();
                for index in 0..count {
                    let key = K::decode(from).map_err(|error| error.at_index(index))?;
                    let value = V::decode(from).map_err(|error| error.at_index(index))?;
                    if map.insert(key, value).is_some() {
                        return Err(from.error(ReadFault::MapKeyTwice).at_index(index));
                    }
                }
                Ok(map)
            })
        })
    }

    fn missing() -> BTreeMap<K, V> {
        BTreeMap::new()
    }
}

/// A member with the annotation `@external` is stored in a box, and encoded as without it.
impl<T: Cdr> Cdr for Box<T> {
    const LENGTH_CODE: LengthCode = T::LENGTH_CODE;
    const SIZE_MIN: usize = T::SIZE_MIN;
    const DELIMITED_IN_SEQUENCE: bool = T::DELIMITED_IN_SEQUENCE;
    const DELIMITED_IN_ARRAY: bool = T::DELIMITED_IN_ARRAY;

    fn describe(types: &mut TypeCollector) -> DataType {
        T::describe(types)
    }

    fn encode(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        T::encode(self, to)
    }

    fn decode(from: &mut CdrDecoder<'_>) -> Result<Box<T>, CdrReadError> {
        T::decode(from).map(Box::new)
    }

    fn missing() -> Box<T> {
        Box::new(T::missing())
    }

    fn encode_key(&self, to: &mut CdrEncoder) -> Result<(), CdrWriteError> {
        T::encode_key(self, to)
    }

    fn decode_key(from: &mut CdrDecoder<'_>) -> Result<Box<T>, CdrReadError> {
        T::decode_key(from).map(Box::new)
    }

    fn encode_inner(&self, to: &mut CdrEncoder, key: bool) -> Result<(), CdrWriteError> {
        T::encode_inner(self, to, key)
    }

    fn decode_inner(from: &mut CdrDecoder<'_>, key: bool) -> Result<Box<T>, CdrReadError> {
        T::decode_inner(from, key).map(Box::new)
    }
}

/// A type that can have a bound: strings, sequences, maps, and collections of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no bound",
    label = "only strings, `Vec` and `BTreeMap` have bounds",
    note = "remove `bound` from this member"
)]
pub trait Bounded {
    /// Returns the length and the bound that it exceeds. A bound of 0 means none.
    fn exceeded(&self, bound: u32) -> Option<(u64, u32)>;
}

/// A type whose elements can have a bound.
#[diagnostic::on_unimplemented(
    message = "the elements of `{Self}` have no bound",
    label = "only elements that are strings, `Vec` or `BTreeMap` have bounds",
    note = "remove `element_bound` from this member"
)]
pub trait ElementBounded {
    /// Returns the length of the first element that exceeds the bound, and the bound.
    fn element_exceeded(&self, bound: u32) -> Option<(u64, u32)>;
}

fn exceeded(length: usize, bound: u32) -> Option<(u64, u32)> {
    (bound != 0 && length as u64 > u64::from(bound)).then_some((length as u64, bound))
}

impl Bounded for String {
    fn exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        exceeded(self.len(), bound)
    }
}

impl Bounded for WideString {
    fn exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        exceeded(self.0.encode_utf16().count(), bound)
    }
}

impl<T> Bounded for Vec<T> {
    fn exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        exceeded(self.len(), bound)
    }
}

impl<K, V> Bounded for BTreeMap<K, V> {
    fn exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        exceeded(self.len(), bound)
    }
}

impl<T: Bounded> Bounded for Box<T> {
    fn exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        T::exceeded(self, bound)
    }
}

impl<T: Bounded> ElementBounded for Vec<T> {
    fn element_exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        self.iter().find_map(|element| element.exceeded(bound))
    }
}

impl<T: Bounded, const N: usize> ElementBounded for [T; N] {
    fn element_exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        self.iter().find_map(|element| element.exceeded(bound))
    }
}

impl<T, const N: usize, const M: usize> ElementBounded for [[T; N]; M]
where
    [T; N]: ElementBounded,
{
    fn element_exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        self.iter().find_map(|element| element.element_exceeded(bound))
    }
}

impl<T: ElementBounded> ElementBounded for Box<T> {
    fn element_exceeded(&self, bound: u32) -> Option<(u64, u32)> {
        T::element_exceeded(self, bound)
    }
}

/// Refuses to encode a member that exceeds its bound.
#[doc(hidden)]
pub fn check_written(exceeded: Option<(u64, u32)>, member: &'static str) -> Result<(), CdrWriteError> {
    match exceeded {
        Some((length, bound)) => Err(CdrWriteError::new(WriteFault::Bound { length, bound }).at(member)),
        None => Ok(()),
    }
}

/// Refuses a decoded member that exceeds its bound.
#[doc(hidden)]
pub fn check_read(exceeded: Option<(u64, u32)>, from: &CdrDecoder<'_>) -> Result<(), CdrReadError> {
    match exceeded {
        Some((length, bound)) => Err(from.error(ReadFault::Bound { length, bound })),
        None => Ok(()),
    }
}
