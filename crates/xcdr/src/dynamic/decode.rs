//! Decodes dynamic values. Neither the bytes nor the description is trusted.
use super::encode::{array_length, encoded_members, is_byte, select};
use super::value::DynamicValue;
use crate::decoder::{CdrDecoder, StructDecoder};
use crate::description::*;
use crate::encoder::DEPTH_MAX;
use crate::error::{CdrReadError, ReadFault};
use crate::format::Extensibility;
use std::collections::BTreeMap;

/// The values that members missing in one sample may have in total.
const DEFAULTS_MAX: usize = 1 << 16;
/// The values of a sample without any bytes, such as structures without members.
const EMPTY_MAX: usize = 1 << 16;

/// Decodes values of the types of one description.
pub(crate) struct DynamicDecoder<'t> {
    types: &'t TypeDescription,
    /// How many more values missing members may have.
    defaults: usize,
    /// How many more values may be decoded: a description may name many that have no bytes.
    values: usize,
}

impl<'t> DynamicDecoder<'t> {
    /// Makes a decoder of a sample of `length` bytes.
    pub(crate) fn new(types: &'t TypeDescription, length: usize) -> DynamicDecoder<'t> {
        DynamicDecoder { types, defaults: DEFAULTS_MAX, values: length.saturating_add(EMPTY_MAX) }
    }

    /// Decodes a value of a type; `key` says whether only its key was encoded.
    pub(crate) fn decode(
        &mut self,
        data: &DataType,
        from: &mut CdrDecoder<'_>,
        key: bool,
    ) -> Result<DynamicValue, CdrReadError> {
        let types = self.types;
        self.values = match self.values.checked_sub(1) {
            Some(values) => values,
            None => return Err(from.error(ReadFault::Description("it has too many values without bytes"))),
        };
        Ok(match data {
            DataType::Primitive(kind) => primitive(*kind, from)?,
            DataType::String(bound) => {
                let text = from.string()?;
                check_bound(text.len(), *bound, from)?;
                DynamicValue::String(text.to_owned())
            }
            DataType::WideString(bound) => {
                let text = from.wide_string()?;
                check_bound(text.encode_utf16().count(), *bound, from)?;
                DynamicValue::WideString(text)
            }
            DataType::Sequence(element, bound) => from.nested(|from| {
                from.collection(!types.is_primitive(element), |from| {
                    let count = from.count(1)?;
                    check_bound(count, *bound, from)?;
                    self.elements(element, count, from, key)
                })
            })?,
            DataType::Array(element, dimensions) => from.nested(|from| {
                from.collection(!types.is_primitive(element), |from| {
                    let count = array_length(dimensions).unwrap_or(usize::MAX);
                    if count > from.left() {
                        let (needed, left) = (count as u64, from.left() as u64);
                        return Err(from.error(ReadFault::Truncated { needed, left }));
                    }
                    self.elements(element, count, from, key)
                })
            })?,
            DataType::Map(key_type, value_type, bound) => from.nested(|from| {
                let delimited = !(types.is_primitive(key_type) && types.is_primitive(value_type));
                from.collection(delimited, |from| {
                    let count = from.count(2)?;
                    check_bound(count, *bound, from)?;
                    let mut entries = Vec::new();
                    for index in 0..count {
                        let key = self.decode(key_type, from, false).map_err(|error| error.at_index(index))?;
                        let value = self.decode(value_type, from, false).map_err(|error| error.at_index(index))?;
                        entries.push((key, value));
                    }
                    Ok(DynamicValue::Map(entries))
                })
            })?,
            DataType::Named(index) => match types.get(*index) {
                Some(named) => self.named(named, from, key)?,
                None => return Err(from.error(ReadFault::Description("it refers to a type that it lacks"))),
            },
        })
    }

    fn elements(
        &mut self,
        element: &DataType,
        count: usize,
        from: &mut CdrDecoder<'_>,
        key: bool,
    ) -> Result<DynamicValue, CdrReadError> {
        if is_byte(element) {
            return Ok(DynamicValue::Bytes(from.raw(count)?.to_vec()));
        }
        let mut elements = Vec::new();
        for index in 0..count {
            elements.push(self.decode(element, from, key).map_err(|error| error.at_index(index))?);
        }
        Ok(DynamicValue::Elements(elements))
    }

    fn named(&mut self, named: &NamedType, from: &mut CdrDecoder<'_>, key: bool) -> Result<DynamicValue, CdrReadError> {
        match &named.body {
            TypeBody::Struct(own) => from.structure(own.extensibility, |from| match own.extensibility {
                Extensibility::Mutable => self.mutable(own, from, key),
                _ => self.structure(own, from, key),
            }),
            TypeBody::Union(own) => {
                from.structure(own.extensibility, |from| self.union(named, own, from.decoder(), key))
            }
            TypeBody::Enum(own) => {
                let value = match own.size() {
                    1 => i8::from_ne_bytes(from.number()?).into(),
                    2 => i16::from_ne_bytes(from.number()?).into(),
                    _ => i32::from_ne_bytes(from.number()?),
                };
                match own.literal(value) {
                    Some(literal) => Ok(DynamicValue::Enum(value, literal.name.clone())),
                    None => {
                        let (of, value) = (named.name.clone().into(), value.into());
                        Err(from.error(ReadFault::Literal { of, value }))
                    }
                }
            }
            TypeBody::Bitmask(own) => Ok(DynamicValue::Bitmask(match own.size() {
                1 => from.raw(1)?[0].into(),
                2 => u16::from_ne_bytes(from.number()?).into(),
                4 => u32::from_ne_bytes(from.number()?).into(),
                _ => u64::from_ne_bytes(from.number()?),
            })),
        }
    }

    /// Decodes the members of a final or appendable type.
    fn structure(
        &mut self,
        own: &StructType,
        from: &mut StructDecoder<'_, '_>,
        key: bool,
    ) -> Result<DynamicValue, CdrReadError> {
        let mut members = Vec::new();
        for member in encoded_members(own, key) {
            let at = |error: CdrReadError| error.at(member.name.clone());
            let value = if member.optional {
                from.optional(member.id, |from| self.decode(&member.data, from, key)).map_err(at)?
            } else {
                let read = from.member(|from| self.decode(&member.data, from, key)).map_err(at)?;
                self.or_missing(member, read, from).map_err(at)?
            };
            members.extend(value.map(|value| (member.name.clone(), value)));
        }
        Ok(DynamicValue::Struct(members))
    }

    /// Decodes the members of a mutable type, in any order.
    fn mutable(
        &mut self,
        own: &StructType,
        from: &mut StructDecoder<'_, '_>,
        key: bool,
    ) -> Result<DynamicValue, CdrReadError> {
        let order = encoded_members(own, key);
        let ids: BTreeMap<u32, usize> = order.iter().enumerate().map(|(index, member)| (member.id, index)).collect();
        let mut values: Vec<Option<DynamicValue>> = vec![None; order.len()];
        while let Some(start) = from.next_member()? {
            match ids.get(&start.head.id) {
                Some(index) => {
                    let member = order[*index];
                    from.place(start, &mut values[*index], |from| self.decode(&member.data, from, key))
                        .map_err(|error| error.at(member.name.clone()))?;
                }
                None => from.skip(start)?,
            }
        }
        let mut members = Vec::new();
        for (member, value) in order.into_iter().zip(values) {
            let value = match member.optional {
                true => value,
                false => self.or_missing(member, value, from).map_err(|error| error.at(member.name.clone()))?,
            };
            members.extend(value.map(|value| (member.name.clone(), value)));
        }
        Ok(DynamicValue::Struct(members))
    }

    /// Returns the value that was read, or the one of a member that the writer's type lacks.
    fn or_missing(
        &mut self,
        member: &MemberType,
        read: Option<DynamicValue>,
        from: &mut StructDecoder<'_, '_>,
    ) -> Result<Option<DynamicValue>, CdrReadError> {
        match read {
            Some(value) => Ok(Some(value)),
            None if member.key => Err(from.key_missing(member.id)),
            None => match self.missing(&member.data, 0) {
                Some(value) => Ok(Some(value)),
                None => Err(from.decoder().error(ReadFault::Description("a missing member has too many values"))),
            },
        }
    }

    fn union(
        &mut self,
        named: &NamedType,
        own: &UnionType,
        from: &mut CdrDecoder<'_>,
        key: bool,
    ) -> Result<DynamicValue, CdrReadError> {
        let discriminator = self.decode(&own.discriminator, from, false)?;
        let label = discriminator.as_label().unwrap_or_default();
        if key && own.discriminator_is_key {
            return Ok(DynamicValue::Union(Box::new(discriminator), None));
        }
        let Some(case) = select(own, label) else {
            let of = named.name.clone().into();
            return Err(from.error(ReadFault::Discriminator { of, value: label }));
        };
        let member = match &case.data {
            Some(data) => {
                let value = self.decode(data, from, false).map_err(|error| error.at(case.name.clone()))?;
                Some((case.name.clone(), Box::new(value)))
            }
            None => None,
        };
        Ok(DynamicValue::Union(Box::new(discriminator), member))
    }

    /// Returns the value of a missing member; `None` if there would be too many values.
    fn missing(&mut self, data: &DataType, depth: u16) -> Option<DynamicValue> {
        self.defaults = self.defaults.checked_sub(1)?;
        let depth = (depth < DEPTH_MAX).then_some(depth + 1)?;
        Some(match data {
            DataType::Primitive(kind) => zero(*kind),
            DataType::String(_) => DynamicValue::String(String::new()),
            DataType::WideString(_) => DynamicValue::WideString(String::new()),
            DataType::Sequence(element, _) if is_byte(element) => DynamicValue::Bytes(Vec::new()),
            DataType::Sequence(..) => DynamicValue::Elements(Vec::new()),
            DataType::Map(..) => DynamicValue::Map(Vec::new()),
            DataType::Array(element, dimensions) => {
                let count = array_length(dimensions).filter(|count| *count <= self.defaults)?;
                if is_byte(element) {
                    self.defaults -= count;
                    return Some(DynamicValue::Bytes(vec![0; count]));
                }
                DynamicValue::Elements((0..count).map(|_| self.missing(element, depth)).collect::<Option<_>>()?)
            }
            DataType::Named(index) => match &self.types.get(*index)?.body {
                TypeBody::Struct(own) => {
                    let mut members = Vec::new();
                    for member in own.members.iter().filter(|member| !member.optional) {
                        members.push((member.name.clone(), self.missing(&member.data, depth)?));
                    }
                    DynamicValue::Struct(members)
                }
                TypeBody::Union(own) => {
                    let mut discriminator = self.missing(&own.discriminator, depth)?;
                    let mut case = select(own, discriminator.as_label()?);
                    if case.is_none() {
                        // As a derived union, it has the first member, since none is no value.
                        case = own.cases.first();
                        let label = *case?.labels.first()?;
                        discriminator = self.discriminator(&own.discriminator, label)?;
                    }
                    let member = match case.and_then(|case| Some((case, case.data.as_ref()?))) {
                        Some((case, data)) => Some((case.name.clone(), Box::new(self.missing(data, depth)?))),
                        None => None,
                    };
                    DynamicValue::Union(Box::new(discriminator), member)
                }
                TypeBody::Enum(own) => {
                    let value = own.default_value();
                    DynamicValue::Enum(value, own.literal(value)?.name.clone())
                }
                TypeBody::Bitmask(_) => DynamicValue::Bitmask(0),
            },
        })
    }
}

impl DynamicDecoder<'_> {
    /// Returns the discriminator that a label names.
    fn discriminator(&self, data: &DataType, label: i32) -> Option<DynamicValue> {
        match data {
            DataType::Primitive(kind) => Some(match kind {
                PrimitiveKind::Boolean => DynamicValue::Boolean(label != 0),
                PrimitiveKind::Octet => DynamicValue::Octet(label as u8),
                PrimitiveKind::UInt8 => DynamicValue::UInt8(label as u8),
                PrimitiveKind::Char8 => DynamicValue::Char8(label as u8),
                PrimitiveKind::Int8 => DynamicValue::Int8(label as i8),
                PrimitiveKind::Int16 => DynamicValue::Int16(label as i16),
                PrimitiveKind::UInt16 => DynamicValue::UInt16(label as u16),
                PrimitiveKind::Char16 => DynamicValue::Char16(label as u16),
                PrimitiveKind::Int32 => DynamicValue::Int32(label),
                PrimitiveKind::UInt32 => DynamicValue::UInt32(label as u32),
                PrimitiveKind::Int64 => DynamicValue::Int64(label.into()),
                PrimitiveKind::UInt64 => DynamicValue::UInt64(u64::from(label as u32)),
                PrimitiveKind::Float32 | PrimitiveKind::Float64 => return None,
            }),
            DataType::Named(index) => match &self.types.get(*index)?.body {
                TypeBody::Enum(own) => Some(DynamicValue::Enum(label, own.literal(label)?.name.clone())),
                _ => None,
            },
            _ => None,
        }
    }
}

fn primitive(kind: PrimitiveKind, from: &mut CdrDecoder<'_>) -> Result<DynamicValue, CdrReadError> {
    Ok(match kind {
        PrimitiveKind::Boolean => DynamicValue::Boolean(from.boolean()?),
        PrimitiveKind::Octet => DynamicValue::Octet(from.raw(1)?[0]),
        PrimitiveKind::UInt8 => DynamicValue::UInt8(from.raw(1)?[0]),
        PrimitiveKind::Char8 => DynamicValue::Char8(from.raw(1)?[0]),
        PrimitiveKind::Int8 => DynamicValue::Int8(i8::from_ne_bytes(from.number()?)),
        PrimitiveKind::Int16 => DynamicValue::Int16(i16::from_ne_bytes(from.number()?)),
        PrimitiveKind::UInt16 => DynamicValue::UInt16(from.u16()?),
        PrimitiveKind::Char16 => DynamicValue::Char16(from.u16()?),
        PrimitiveKind::Int32 => DynamicValue::Int32(i32::from_ne_bytes(from.number()?)),
        PrimitiveKind::UInt32 => DynamicValue::UInt32(from.u32()?),
        PrimitiveKind::Int64 => DynamicValue::Int64(i64::from_ne_bytes(from.number()?)),
        PrimitiveKind::UInt64 => DynamicValue::UInt64(u64::from_ne_bytes(from.number()?)),
        PrimitiveKind::Float32 => DynamicValue::Float32(f32::from_ne_bytes(from.number()?)),
        PrimitiveKind::Float64 => DynamicValue::Float64(f64::from_ne_bytes(from.number()?)),
    })
}

fn zero(kind: PrimitiveKind) -> DynamicValue {
    match kind {
        PrimitiveKind::Boolean => DynamicValue::Boolean(false),
        PrimitiveKind::Octet => DynamicValue::Octet(0),
        PrimitiveKind::UInt8 => DynamicValue::UInt8(0),
        PrimitiveKind::Char8 => DynamicValue::Char8(0),
        PrimitiveKind::Int8 => DynamicValue::Int8(0),
        PrimitiveKind::Int16 => DynamicValue::Int16(0),
        PrimitiveKind::UInt16 => DynamicValue::UInt16(0),
        PrimitiveKind::Char16 => DynamicValue::Char16(0),
        PrimitiveKind::Int32 => DynamicValue::Int32(0),
        PrimitiveKind::UInt32 => DynamicValue::UInt32(0),
        PrimitiveKind::Int64 => DynamicValue::Int64(0),
        PrimitiveKind::UInt64 => DynamicValue::UInt64(0),
        PrimitiveKind::Float32 => DynamicValue::Float32(0.0),
        PrimitiveKind::Float64 => DynamicValue::Float64(0.0),
    }
}

fn check_bound(length: usize, bound: u32, from: &CdrDecoder<'_>) -> Result<(), CdrReadError> {
    if bound != 0 && length as u64 > u64::from(bound) {
        return Err(from.error(ReadFault::Bound { length: length as u64, bound }));
    }
    Ok(())
}
