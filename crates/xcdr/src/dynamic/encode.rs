//! Encodes dynamic values.
use super::value::DynamicValue;
use crate::description::*;
use crate::encoder::{CdrEncoder, LengthCode, MemberHead, StructEncoder};
use crate::error::{CdrWriteError, WriteFault};

type Written = Result<(), CdrWriteError>;

/// Encodes a value of a type; `key` says whether only its key.
pub(crate) fn encode(
    types: &TypeDescription,
    data: &DataType,
    value: &DynamicValue,
    to: &mut CdrEncoder,
    key: bool,
) -> Written {
    let wrong = || {
        let expected = types.name_of(data).to_string();
        CdrWriteError::new(WriteFault::Kind { expected, got: value.kind() })
    };
    match (data, value) {
        (DataType::Primitive(kind), _) => primitive(*kind, value, to).ok_or_else(wrong),
        (DataType::String(bound), DynamicValue::String(text)) => {
            check_bound(text.len(), *bound)?;
            to.string(text)
        }
        (DataType::WideString(bound), DynamicValue::WideString(text)) => {
            check_bound(text.encode_utf16().count(), *bound)?;
            to.wide_string(text)
        }
        (DataType::Sequence(element, bound), _) => {
            let count = match value {
                DynamicValue::Bytes(bytes) if is_byte(element) => bytes.len(),
                DynamicValue::Elements(elements) => elements.len(),
                _ => return Err(wrong()),
            };
            check_bound(count, *bound)?;
            to.nested(|to| {
                to.delimited(!types.is_primitive(element), |to| {
                    to.length(count)?;
                    elements(types, element, value, to, key)
                })
            })
        }
        (DataType::Array(element, dimensions), _) => {
            let count = match value {
                DynamicValue::Bytes(bytes) if is_byte(element) => bytes.len(),
                DynamicValue::Elements(elements) => elements.len(),
                _ => return Err(wrong()),
            };
            if array_length(dimensions) != Some(count) {
                return Err(wrong());
            }
            to.nested(|to| to.delimited(!types.is_primitive(element), |to| elements(types, element, value, to, key)))
        }
        (DataType::Map(key_type, value_type, bound), DynamicValue::Map(entries)) => {
            check_bound(entries.len(), *bound)?;
            let delimited = !(types.is_primitive(key_type) && types.is_primitive(value_type));
            to.nested(|to| {
                to.delimited(delimited, |to| {
                    to.length(entries.len())?;
                    for (index, (key, value)) in entries.iter().enumerate() {
                        encode(types, key_type, key, to, false).map_err(|error| error.at_index(index))?;
                        encode(types, value_type, value, to, false).map_err(|error| error.at_index(index))?;
                    }
                    Ok(())
                })
            })
        }
        (DataType::Named(index), _) => match (types.get(*index).map(|named| (&named.name, &named.body)), value) {
            (Some((name, TypeBody::Struct(own))), DynamicValue::Struct(members)) => {
                structure(types, name, own, members, to, key)
            }
            (Some((name, TypeBody::Union(own))), DynamicValue::Union(discriminator, member)) => {
                union(types, name, own, discriminator, member.as_ref(), to, key)
            }
            (Some((name, TypeBody::Enum(own))), DynamicValue::Enum(literal, _)) => {
                if own.literal(*literal).is_none() {
                    let (of, value) = (name.clone(), i64::from(*literal));
                    return Err(CdrWriteError::new(WriteFault::Literal { of, value }));
                }
                match own.size() {
                    1 => to.number((*literal as i8).to_ne_bytes()),
                    2 => to.number((*literal as i16).to_ne_bytes()),
                    _ => to.number(literal.to_ne_bytes()),
                }
                Ok(())
            }
            (Some((_, TypeBody::Bitmask(own))), DynamicValue::Bitmask(bits)) => {
                match own.size() {
                    1 => to.number((*bits as u8).to_ne_bytes()),
                    2 => to.number((*bits as u16).to_ne_bytes()),
                    4 => to.number((*bits as u32).to_ne_bytes()),
                    _ => to.number(bits.to_ne_bytes()),
                }
                Ok(())
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// Encodes a primitive value; `None` if it is of another type.
fn primitive(kind: PrimitiveKind, value: &DynamicValue, to: &mut CdrEncoder) -> Option<()> {
    match (kind, value) {
        (PrimitiveKind::Boolean, DynamicValue::Boolean(value)) => to.raw(&[u8::from(*value)]),
        (PrimitiveKind::Octet, DynamicValue::Octet(value)) => to.raw(&[*value]),
        (PrimitiveKind::UInt8, DynamicValue::UInt8(value)) => to.raw(&[*value]),
        (PrimitiveKind::Char8, DynamicValue::Char8(value)) => to.raw(&[*value]),
        (PrimitiveKind::Int8, DynamicValue::Int8(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::Int16, DynamicValue::Int16(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::UInt16, DynamicValue::UInt16(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::Char16, DynamicValue::Char16(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::Int32, DynamicValue::Int32(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::UInt32, DynamicValue::UInt32(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::Int64, DynamicValue::Int64(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::UInt64, DynamicValue::UInt64(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::Float32, DynamicValue::Float32(value)) => to.number(value.to_ne_bytes()),
        (PrimitiveKind::Float64, DynamicValue::Float64(value)) => to.number(value.to_ne_bytes()),
        _ => return None,
    }
    Some(())
}

fn elements(
    types: &TypeDescription,
    element: &DataType,
    value: &DynamicValue,
    to: &mut CdrEncoder,
    key: bool,
) -> Written {
    match value {
        DynamicValue::Bytes(bytes) => {
            to.raw(bytes);
            Ok(())
        }
        DynamicValue::Elements(values) => {
            for (index, value) in values.iter().enumerate() {
                encode(types, element, value, to, key).map_err(|error| error.at_index(index))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn structure(
    types: &TypeDescription,
    name: &str,
    own: &StructType,
    members: &[(String, DynamicValue)],
    to: &mut CdrEncoder,
    key: bool,
) -> Written {
    if let Some((unknown, _)) = members.iter().find(|(member, _)| !own.members.iter().any(|own| own.name == *member)) {
        let fault = WriteFault::NoSuchMember { of: name.to_owned() };
        return Err(CdrWriteError::new(fault).at(unknown.clone()));
    }
    let mut order = encoded_members(own, key);
    if key && to.orders_by_id() {
        order.sort_by_key(|member| member.id);
    }
    to.structure(own.extensibility, |to| {
        for member in order {
            let value = members.iter().find(|(name, _)| *name == member.name).map(|(_, value)| value);
            self::member(types, member, value, to, key).map_err(|error| error.at(member.name.clone()))?;
        }
        Ok(())
    })
}

/// Returns the members that are encoded: with `key` those of the key, or all if none is a key.
pub(crate) fn encoded_members(own: &StructType, key: bool) -> Vec<&MemberType> {
    let keyed = key && own.members.iter().any(|member| member.key);
    own.members.iter().filter(|member| member.key || !keyed).collect()
}

fn member(
    types: &TypeDescription,
    member: &MemberType,
    value: Option<&DynamicValue>,
    to: &mut StructEncoder<'_>,
    key: bool,
) -> Written {
    let head = MemberHead { id: member.id, must_understand: member.must_understand };
    let code = length_code(types, &member.data);
    let write = |value| move |to: &mut CdrEncoder| encode(types, &member.data, value, to, key);
    match (member.optional, value) {
        (true, value) => to.optional(head, code, value.map(write)),
        (false, Some(value)) => to.member(head, code, write(value)),
        (false, None) => Err(CdrWriteError::new(WriteFault::Missing)),
    }
}

fn union(
    types: &TypeDescription,
    name: &str,
    own: &UnionType,
    discriminator: &DynamicValue,
    member: Option<&(String, Box<DynamicValue>)>,
    to: &mut CdrEncoder,
    key: bool,
) -> Written {
    to.structure(own.extensibility, |to| {
        encode(types, &own.discriminator, discriminator, to.encoder(), false)?;
        if key && own.discriminator_is_key {
            return Ok(());
        }
        let label = discriminator.as_label().unwrap_or_default();
        match (select(own, label).and_then(|case| Some((case, case.data.as_ref()?))), member) {
            (Some((case, data)), Some((member, value))) if case.name == *member => {
                encode(types, data, value, to.encoder(), false).map_err(|error| error.at(member.clone()))
            }
            (None, None) => Ok(()),
            _ => {
                let fault = WriteFault::Discriminator { union: name.to_owned(), value: label };
                Err(CdrWriteError::new(fault))
            }
        }
    })
}

/// Returns the member of a union that a discriminator selects.
pub(crate) fn select(own: &UnionType, label: i64) -> Option<&CaseType> {
    let labelled = own.cases.iter().find(|case| case.labels.iter().any(|own| i64::from(*own) == label));
    labelled.or_else(|| own.cases.iter().find(|case| case.default))
}

fn length_code(types: &TypeDescription, data: &DataType) -> LengthCode {
    let sized = |size| match size {
        1 => LengthCode::One,
        2 => LengthCode::Two,
        4 => LengthCode::Four,
        _ => LengthCode::Eight,
    };
    match data {
        DataType::Primitive(kind) => sized(kind.size()),
        DataType::String(_) => LengthCode::SharedBytes,
        DataType::WideString(_) => LengthCode::Next,
        DataType::Sequence(element, _) => length_code(types, element).of_sequence(!types.is_primitive(element)),
        DataType::Array(element, _) if types.is_primitive(element) => LengthCode::Next,
        DataType::Map(key, value, _) if types.is_primitive(key) && types.is_primitive(value) => LengthCode::Next,
        DataType::Array(..) | DataType::Map(..) => LengthCode::SharedBytes,
        DataType::Named(index) => match types.get(*index).map(|named| &named.body) {
            Some(TypeBody::Enum(own)) => sized(own.size()),
            Some(TypeBody::Bitmask(own)) => sized(own.size()),
            _ => LengthCode::Next,
        },
    }
}

/// Returns whether elements of this type are kept as bytes.
pub(crate) fn is_byte(element: &DataType) -> bool {
    matches!(element, DataType::Primitive(PrimitiveKind::Octet | PrimitiveKind::UInt8))
}

/// Returns the number of elements of an array; `None` if it does not fit.
pub(crate) fn array_length(dimensions: &[u32]) -> Option<usize> {
    dimensions.iter().try_fold(1_usize, |count, length| count.checked_mul(*length as usize))
}

fn check_bound(length: usize, bound: u32) -> Written {
    if bound != 0 && length as u64 > u64::from(bound) {
        return Err(CdrWriteError::new(WriteFault::Bound { length: length as u64, bound }));
    }
    Ok(())
}
