//! Reads some fields of a sample, and skips the others. It trusts neither the bytes nor the description.
use super::encode::{array_length, select};
use crate::decoder::{CdrDecoder, StructDecoder};
use crate::description::*;
use crate::encoder::DEPTH_MAX;
use crate::error::{CdrReadError, ReadFault};
use crate::format::Extensibility;
use std::borrow::Cow;

/// The values of a sample without any bytes, such as structures without members.
const EMPTY_MAX: usize = 1 << 16;

/// The value of a field. Strings are lent from the sample.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue<'s> {
    /// `boolean`.
    Boolean(bool),
    /// `int8` to `int64`.
    Signed(i64),
    /// `uint8` to `uint64`, `octet`, and the bits of a bit mask.
    Unsigned(u64),
    /// `float` and `double`.
    Float(f64),
    /// `char` and `wchar`: the number of the character.
    Char(u32),
    /// `string` and `wstring`.
    String(Cow<'s, str>),
    /// The value of a literal of an enumeration.
    Enum(i32),
}

/// A step from a value to one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldStep {
    /// A member, by its index in the definition.
    Member(usize),
    /// An element, by its index in the encoding.
    Element(u64),
}

/// The fields below a value.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldNode {
    /// The index of the field that the value itself is.
    field: Option<usize>,
    children: Vec<(FieldStep, FieldNode)>,
}

impl FieldNode {
    pub(super) fn add(&mut self, steps: &[FieldStep], field: usize) {
        let Some((step, rest)) = steps.split_first() else {
            self.field = Some(field);
            return;
        };
        let place = match self.children.iter().position(|(own, _)| own == step) {
            Some(place) => place,
            None => {
                self.children.push((*step, FieldNode::default()));
                self.children.len() - 1
            }
        };
        self.children[place].1.add(rest, field);
    }

    fn child(&self, step: FieldStep) -> &FieldNode {
        const EMPTY: &FieldNode = &FieldNode { field: None, children: Vec::new() };
        self.children.iter().find(|(own, _)| *own == step).map_or(EMPTY, |(_, node)| node)
    }

    /// Returns the elements below the value, in their order.
    fn elements(&self) -> Vec<(usize, &FieldNode)> {
        let mut found: Vec<(usize, &FieldNode)> = self
            .children
            .iter()
            .filter_map(|(step, node)| match step {
                FieldStep::Element(index) => Some((usize::try_from(*index).ok()?, node)),
                FieldStep::Member(_) => None,
            })
            .collect();
        found.sort_by_key(|(index, _)| *index);
        found
    }
}

type Read = Result<(), CdrReadError>;

/// Reads the fields of one sample.
pub(super) struct Picker<'a, 's> {
    types: &'a TypeDescription,
    values: &'a mut Vec<Option<FieldValue<'s>>>,
    /// The fields that have no value yet. At 0 nothing more is read.
    left: usize,
    /// How many more values may be walked over: a description may name many that have no bytes.
    steps: usize,
}

impl<'a, 's> Picker<'a, 's> {
    pub(super) fn new(
        types: &'a TypeDescription,
        values: &'a mut Vec<Option<FieldValue<'s>>>,
        length: usize,
    ) -> Picker<'a, 's> {
        let left = values.len();
        Picker { types, values, left, steps: length.saturating_add(EMPTY_MAX) }
    }

    fn set(&mut self, node: &FieldNode, value: FieldValue<'s>) {
        if let Some(field) = node.field {
            self.values[field] = Some(value);
            self.left -= 1;
        }
    }

    pub(super) fn read(&mut self, node: &FieldNode, data: &DataType, from: &mut CdrDecoder<'s>, key: bool) -> Read {
        if self.left == 0 {
            return Ok(());
        }
        self.steps = match self.steps.checked_sub(1) {
            Some(steps) => steps,
            None => return Err(from.error(ReadFault::Description("it has too many values without bytes"))),
        };
        let types = self.types;
        match data {
            DataType::Primitive(_) => {
                let value = scalar(types, data, from)?;
                self.set(node, value);
                Ok(())
            }
            DataType::String(_) if node.field.is_some() => {
                let text = from.string()?;
                self.set(node, FieldValue::String(Cow::Borrowed(text)));
                Ok(())
            }
            DataType::String(_) => {
                let length = from.count(1)?;
                from.raw(length).map(|_| ())
            }
            DataType::WideString(_) => {
                let text = from.wide_string()?;
                self.set(node, FieldValue::String(Cow::Owned(text)));
                Ok(())
            }
            DataType::Sequence(element, _) => from.nested(|from| {
                from.delimited(!types.is_primitive(element), |from| {
                    let count = from.count(1)?;
                    self.elements(node, element, count, from, key)
                })
            }),
            DataType::Array(element, dimensions) => from.nested(|from| {
                from.delimited(!types.is_primitive(element), |from| {
                    let count = array_length(dimensions).unwrap_or(usize::MAX);
                    if count > from.left() {
                        let (needed, left) = (count as u64, from.left() as u64);
                        return Err(from.error(ReadFault::Truncated { needed, left }));
                    }
                    self.elements(node, element, count, from, key)
                })
            }),
            DataType::Map(key_type, value_type, _) => from.nested(|from| {
                let delimited = !(types.is_primitive(key_type) && types.is_primitive(value_type));
                from.delimited(delimited, |from| {
                    for _ in 0..from.count(2)? {
                        self.read(node, key_type, from, false)?;
                        self.read(node, value_type, from, false)?;
                    }
                    Ok(())
                })
            }),
            DataType::Named(index) => match types.get(*index) {
                Some(named) => self.named(node, data, named, from, key),
                None => Err(from.error(ReadFault::Description("it refers to a type that it lacks"))),
            },
        }
    }

    fn elements(
        &mut self,
        node: &FieldNode,
        element: &DataType,
        count: usize,
        from: &mut CdrDecoder<'s>,
        key: bool,
    ) -> Read {
        let primitive = match element {
            DataType::Primitive(kind) => Some(*kind),
            _ => None,
        };
        let mut wanted = node.elements().into_iter().filter(|(index, _)| *index < count).peekable();
        let mut at = 0;
        while at < count && self.left > 0 {
            let next = wanted.peek().map_or(count, |(index, _)| *index);
            match (primitive, wanted.next_if(|(index, _)| *index == at)) {
                (_, Some((_, child))) => self.read(child, element, from, key)?,
                (Some(kind), None) => {
                    skip(kind, next - at, from)?;
                    at = next;
                    continue;
                }
                (None, None) => self.read(&FieldNode::default(), element, from, key)?,
            }
            at += 1;
        }
        Ok(())
    }

    fn named(
        &mut self,
        node: &FieldNode,
        data: &DataType,
        named: &NamedType,
        from: &mut CdrDecoder<'s>,
        key: bool,
    ) -> Read {
        match &named.body {
            TypeBody::Struct(own) => from.structure(own.extensibility, |from| match own.extensibility {
                Extensibility::Mutable => self.mutable(node, own, from, key),
                _ => self.structure(node, own, from, key),
            }),
            TypeBody::Union(own) => {
                from.structure(own.extensibility, |from| self.union(node, named, own, from.decoder(), key))
            }
            TypeBody::Enum(_) | TypeBody::Bitmask(_) => {
                let value = scalar(self.types, data, from)?;
                self.set(node, value);
                Ok(())
            }
        }
    }

    /// Reads the members of a final or appendable type.
    fn structure(&mut self, node: &FieldNode, own: &StructType, from: &mut StructDecoder<'_, 's>, key: bool) -> Read {
        for (index, member) in places(own, key) {
            if self.left == 0 {
                return Ok(());
            }
            let child = node.child(FieldStep::Member(index));
            let read = match member.optional {
                true => from.optional(member.id, |from| self.read(child, &member.data, from, key)),
                false => from.member(|from| self.read(child, &member.data, from, key)),
            };
            let read = read.map_err(|error| error.at(member.name.clone()))?;
            if read.is_none() && !member.optional {
                self.missing(child, &member.data, 0);
            }
        }
        Ok(())
    }

    /// Reads the members of a mutable type, in any order.
    fn mutable(&mut self, node: &FieldNode, own: &StructType, from: &mut StructDecoder<'_, 's>, key: bool) -> Read {
        let order: Vec<(usize, &MemberType)> = places(own, key).collect();
        let mut seen = vec![false; own.members.len()];
        while let Some(start) = from.next_member()? {
            match order.iter().find(|(_, member)| member.id == start.head.id) {
                Some((index, member)) => {
                    let mut place = seen[*index].then_some(());
                    seen[*index] = true;
                    let child = node.child(FieldStep::Member(*index));
                    from.place(start, &mut place, |from| self.read(child, &member.data, from, key))
                        .map_err(|error| error.at(member.name.clone()))?;
                }
                None => from.skip(start)?,
            }
            if self.left == 0 {
                return Ok(());
            }
        }
        for (index, member) in order.iter().filter(|(index, member)| !seen[*index] && !member.optional) {
            self.missing(node.child(FieldStep::Member(*index)), &member.data, 0);
        }
        Ok(())
    }

    fn union(
        &mut self,
        node: &FieldNode,
        named: &NamedType,
        own: &UnionType,
        from: &mut CdrDecoder<'s>,
        key: bool,
    ) -> Read {
        let label = label(&scalar(self.types, &own.discriminator, from)?);
        if key && own.discriminator_is_key {
            return Ok(());
        }
        let Some(case) = select(own, label) else {
            return Err(from.error(ReadFault::Discriminator { of: named.name.clone().into(), value: label }));
        };
        let index = place(own, case);
        match &case.data {
            Some(data) => self
                .read(node.child(FieldStep::Member(index)), data, from, false)
                .map_err(|error| error.at(case.name.clone())),
            None => Ok(()),
        }
    }

    /// Sets the fields of a member that the writer's type lacks: zeros, and the default literal.
    fn missing(&mut self, node: &FieldNode, data: &DataType, depth: u16) {
        if depth == DEPTH_MAX || node.field.is_none() && node.children.is_empty() {
            return;
        }
        let types = self.types;
        match data {
            DataType::Primitive(kind) => self.set(node, zero(*kind)),
            DataType::String(_) | DataType::WideString(_) => self.set(node, FieldValue::String(Cow::Borrowed(""))),
            DataType::Array(element, _) => {
                for (_, child) in node.elements() {
                    self.missing(child, element, depth + 1);
                }
            }
            DataType::Sequence(..) | DataType::Map(..) => {}
            DataType::Named(index) => match types.get(*index).map(|named| &named.body) {
                Some(TypeBody::Enum(own)) => self.set(node, FieldValue::Enum(own.default_value())),
                Some(TypeBody::Bitmask(_)) => self.set(node, FieldValue::Unsigned(0)),
                Some(TypeBody::Struct(own)) => {
                    for (index, member) in own.members.iter().enumerate().filter(|(_, member)| !member.optional) {
                        self.missing(node.child(FieldStep::Member(index)), &member.data, depth + 1);
                    }
                }
                Some(TypeBody::Union(own)) => {
                    // As a decoded union: zero selects the member, or the first one is selected.
                    let found = select(own, zero_label(types, &own.discriminator)).or(own.cases.first());
                    let found = found.and_then(|case| Some((case, case.data.as_ref()?)));
                    if let Some((case, data)) = found {
                        self.missing(node.child(FieldStep::Member(place(own, case))), data, depth + 1);
                    }
                }
                None => {}
            },
        }
    }
}

/// Returns the encoded members with their indices in the definition, as `encoded_members` does.
fn places(own: &StructType, key: bool) -> impl Iterator<Item = (usize, &MemberType)> {
    let keyed = key && own.members.iter().any(|member| member.key);
    own.members.iter().enumerate().filter(move |(_, member)| member.key || !keyed)
}

/// Returns the index of a member in the definition of its union.
fn place(own: &UnionType, case: &CaseType) -> usize {
    own.cases.iter().position(|other| std::ptr::eq(other, case)).unwrap_or_default()
}

/// Returns the discriminator of a missing union.
fn zero_label(types: &TypeDescription, discriminator: &DataType) -> i64 {
    match discriminator {
        DataType::Named(index) => match types.get(*index).map(|named| &named.body) {
            Some(TypeBody::Enum(own)) => own.default_value().into(),
            _ => 0,
        },
        _ => 0,
    }
}

/// Reads a number, a character, a literal or a bit mask.
fn scalar<'s>(
    types: &TypeDescription,
    data: &DataType,
    from: &mut CdrDecoder<'s>,
) -> Result<FieldValue<'s>, CdrReadError> {
    let kind = match data {
        DataType::Primitive(kind) => *kind,
        DataType::Named(index) => match types.get(*index).map(|named| &named.body) {
            Some(TypeBody::Enum(own)) => {
                return Ok(FieldValue::Enum(match own.size() {
                    1 => i8::from_ne_bytes(from.number()?).into(),
                    2 => i16::from_ne_bytes(from.number()?).into(),
                    _ => i32::from_ne_bytes(from.number()?),
                }));
            }
            Some(TypeBody::Bitmask(own)) => match own.size() {
                1 => PrimitiveKind::UInt8,
                2 => PrimitiveKind::UInt16,
                4 => PrimitiveKind::UInt32,
                _ => PrimitiveKind::UInt64,
            },
            _ => return Err(from.error(ReadFault::Description("a discriminator is no number"))),
        },
        _ => return Err(from.error(ReadFault::Description("a discriminator is no number"))),
    };
    Ok(match kind {
        PrimitiveKind::Boolean => FieldValue::Boolean(from.boolean()?),
        PrimitiveKind::Octet | PrimitiveKind::UInt8 => FieldValue::Unsigned(from.raw(1)?[0].into()),
        PrimitiveKind::UInt16 => FieldValue::Unsigned(from.u16()?.into()),
        PrimitiveKind::UInt32 => FieldValue::Unsigned(from.u32()?.into()),
        PrimitiveKind::UInt64 => FieldValue::Unsigned(u64::from_ne_bytes(from.number()?)),
        PrimitiveKind::Int8 => FieldValue::Signed(i8::from_ne_bytes(from.number()?).into()),
        PrimitiveKind::Int16 => FieldValue::Signed(i16::from_ne_bytes(from.number()?).into()),
        PrimitiveKind::Int32 => FieldValue::Signed(i32::from_ne_bytes(from.number()?).into()),
        PrimitiveKind::Int64 => FieldValue::Signed(i64::from_ne_bytes(from.number()?)),
        PrimitiveKind::Float32 => FieldValue::Float(f32::from_ne_bytes(from.number()?).into()),
        PrimitiveKind::Float64 => FieldValue::Float(f64::from_ne_bytes(from.number()?)),
        PrimitiveKind::Char8 => FieldValue::Char(from.raw(1)?[0].into()),
        PrimitiveKind::Char16 => FieldValue::Char(from.u16()?.into()),
    })
}

/// Skips primitive elements.
fn skip(kind: PrimitiveKind, count: usize, from: &mut CdrDecoder<'_>) -> Read {
    if count > 0 {
        from.align(kind.size())?;
        from.raw(count.saturating_mul(kind.size()))?;
    }
    Ok(())
}

/// Returns the integer of a discriminator.
fn label(value: &FieldValue<'_>) -> i64 {
    match value {
        FieldValue::Boolean(value) => (*value).into(),
        FieldValue::Signed(value) => *value,
        FieldValue::Unsigned(value) => *value as i64,
        FieldValue::Char(value) => (*value).into(),
        FieldValue::Enum(value) => (*value).into(),
        FieldValue::Float(_) | FieldValue::String(_) => 0,
    }
}

fn zero(kind: PrimitiveKind) -> FieldValue<'static> {
    match kind {
        PrimitiveKind::Boolean => FieldValue::Boolean(false),
        PrimitiveKind::Int8 | PrimitiveKind::Int16 | PrimitiveKind::Int32 | PrimitiveKind::Int64 => {
            FieldValue::Signed(0)
        }
        PrimitiveKind::Octet
        | PrimitiveKind::UInt8
        | PrimitiveKind::UInt16
        | PrimitiveKind::UInt32
        | PrimitiveKind::UInt64 => FieldValue::Unsigned(0),
        PrimitiveKind::Float32 | PrimitiveKind::Float64 => FieldValue::Float(0.0),
        PrimitiveKind::Char8 | PrimitiveKind::Char16 => FieldValue::Char(0),
    }
}
