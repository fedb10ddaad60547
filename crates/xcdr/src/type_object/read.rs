//! Describes types by their complete type objects.
use super::error::TypeObjectError;
use super::hash::TypeHash;
use super::identifier::*;
use super::object::*;
use crate::cdr::Cdr;
use crate::decoder::CdrDecoder;
use crate::description::*;
use crate::format::{ByteOrder, Extensibility, XcdrVersion};
use std::collections::BTreeMap;

/// The types of one description at most, so that a small input can't describe a huge type.
const TYPES_MAX: usize = 4096;

/// Describes the type with this hash.
pub(crate) fn describe(
    root: TypeHash,
    objects: &BTreeMap<TypeHash, Vec<u8>>,
) -> Result<TypeDescription, TypeObjectError> {
    let mut reader = Reader { objects, found: BTreeMap::new(), types: Vec::new(), depth: 0 };
    let root = reader.hash(root)?;
    Ok(TypeDescription { root, types: reader.types })
}

struct Reader<'a> {
    objects: &'a BTreeMap<TypeHash, Vec<u8>>,
    found: BTreeMap<TypeHash, DataType>,
    types: Vec<NamedType>,
    depth: u16,
}

impl Reader<'_> {
    fn hash(&mut self, hash: TypeHash) -> Result<DataType, TypeObjectError> {
        if let Some(data) = self.found.get(&hash) {
            return Ok(data.clone());
        }
        if self.depth == crate::DEPTH_MAX || self.types.len() == TYPES_MAX {
            return Err(TypeObjectError::Unsupported { what: "types that reach so many others", kind: EK_COMPLETE });
        }
        self.depth += 1;
        let data = match self.object(hash)? {
            CompleteTypeObject::Alias(own) => self.identifier(&own.body.common.related_type)?,
            CompleteTypeObject::Struct(own) => {
                let body = TypeBody::Struct(self.structure(&own)?);
                self.named(own.header.detail.type_name, body)
            }
            CompleteTypeObject::Union(own) => {
                let body = TypeBody::Union(self.union(&own)?);
                self.named(own.header.detail.type_name, body)
            }
            CompleteTypeObject::Enum(own) => {
                let literals = own.literal_seq.into_iter().map(|literal| EnumLiteral {
                    name: literal.detail.name,
                    value: literal.common.value,
                    default: literal.common.flags & 0x40 != 0,
                });
                let bit_bound = own.header.common.bit_bound;
                let body = TypeBody::Enum(EnumType { bit_bound, literals: literals.collect() });
                self.named(own.header.detail.type_name, body)
            }
            CompleteTypeObject::Bitmask(own) => {
                let flags = own.flag_seq.into_iter().map(|flag| (flag.detail.name, flag.common.position)).collect();
                let bit_bound = own.header.common.bit_bound;
                let body = TypeBody::Bitmask(BitmaskType { bit_bound, flags });
                self.named(own.header.detail.type_name, body)
            }
        };
        self.depth -= 1;
        self.found.insert(hash, data.clone());
        Ok(data)
    }

    /// Reads the complete type object with this hash.
    fn object(&self, hash: TypeHash) -> Result<CompleteTypeObject, TypeObjectError> {
        let object = self.objects.get(&hash).ok_or(TypeObjectError::Missing { hash })?;
        let got = TypeHash::of_object(object);
        if got != hash {
            return Err(TypeObjectError::Hash { expected: hash, got });
        }
        let mut from = CdrDecoder::new(object, XcdrVersion::Xcdr2, ByteOrder::Little);
        match TypeObject::decode(&mut from)? {
            TypeObject::Complete(object) => Ok(*object),
            TypeObject::Minimal(_) => Err(TypeObjectError::Minimal { hash }),
        }
    }

    fn named(&mut self, name: String, body: TypeBody) -> DataType {
        self.types.push(NamedType { name, body });
        DataType::Named(TypeIndex(self.types.len() as u32 - 1))
    }

    /// Describes a structure. Members of its base come first, as they are encoded first.
    fn structure(&mut self, own: &CompleteStructType) -> Result<StructType, TypeObjectError> {
        let mut members = match &own.header.base_type {
            TypeIdentifier::Kind(0) => Vec::new(),
            TypeIdentifier::Hash(EK_COMPLETE, base) => match self.object(TypeHash(*base))? {
                CompleteTypeObject::Struct(base) => {
                    self.depth += 1;
                    if self.depth > crate::DEPTH_MAX {
                        return Err(TypeObjectError::Unsupported { what: "bases of so many bases", kind: EK_COMPLETE });
                    }
                    let base = self.structure(&base)?.members;
                    self.depth -= 1;
                    base
                }
                _ => {
                    return Err(TypeObjectError::Unsupported {
                        what: "bases that are no structures",
                        kind: EK_COMPLETE,
                    });
                }
            },
            other => return Err(unsupported("such bases", other)),
        };
        for member in &own.member_seq {
            let flags = member.common.member_flags;
            members.push(MemberType {
                name: member.detail.name.clone(),
                id: member.common.member_id,
                data: self.identifier(&member.common.member_type_id)?,
                key: flags & 0x20 != 0,
                optional: flags & 0x08 != 0,
                must_understand: flags & 0x10 != 0,
                external: flags & 0x04 != 0,
                hash_id: member.detail.ann_builtin.as_ref().and_then(|annotations| annotations.hash_id.clone()),
            });
        }
        let flags = own.struct_flags;
        Ok(StructType {
            extensibility: extensibility(flags),
            nested: flags & 0x08 != 0,
            autoid_hash: flags & 0x10 != 0,
            members,
        })
    }

    fn union(&mut self, own: &CompleteUnionType) -> Result<UnionType, TypeObjectError> {
        let mut cases = Vec::new();
        for member in &own.member_seq {
            cases.push(CaseType {
                name: member.detail.name.clone(),
                id: member.common.member_id,
                labels: member.common.label_seq.clone(),
                default: member.common.member_flags & 0x40 != 0,
                data: Some(self.identifier(&member.common.type_id)?),
            });
        }
        Ok(UnionType {
            extensibility: extensibility(own.union_flags),
            nested: own.union_flags & 0x08 != 0,
            discriminator: self.identifier(&own.discriminator.common.type_id)?,
            discriminator_is_key: own.discriminator.common.member_flags & 0x20 != 0,
            cases,
        })
    }

    fn identifier(&mut self, identifier: &TypeIdentifier) -> Result<DataType, TypeObjectError> {
        Ok(match identifier {
            TypeIdentifier::Kind(kind) => {
                let primitive = PrimitiveKind::ALL.into_iter().find(|primitive| *primitive as u8 == *kind);
                DataType::Primitive(primitive.ok_or_else(|| unsupported("types of this kind", identifier))?)
            }
            TypeIdentifier::StringSmall(0x70, own) => DataType::String(own.bound.into()),
            TypeIdentifier::StringSmall(_, own) => DataType::WideString(own.bound.into()),
            TypeIdentifier::StringLarge(0x71, own) => DataType::String(own.bound),
            TypeIdentifier::StringLarge(_, own) => DataType::WideString(own.bound),
            TypeIdentifier::SequenceSmall(own) => {
                DataType::Sequence(Box::new(self.identifier(&own.element_identifier)?), own.bound.into())
            }
            TypeIdentifier::SequenceLarge(own) => {
                DataType::Sequence(Box::new(self.identifier(&own.element_identifier)?), own.bound)
            }
            TypeIdentifier::ArraySmall(own) => {
                let dimensions = own.array_bound_seq.iter().map(|length| length.0.into()).collect();
                DataType::Array(Box::new(self.identifier(&own.element_identifier)?), dimensions)
            }
            TypeIdentifier::ArrayLarge(own) => {
                DataType::Array(Box::new(self.identifier(&own.element_identifier)?), own.array_bound_seq.clone())
            }
            TypeIdentifier::MapSmall(own) => {
                let key = Box::new(self.identifier(&own.key_identifier)?);
                DataType::Map(key, Box::new(self.identifier(&own.element_identifier)?), own.bound.into())
            }
            TypeIdentifier::MapLarge(own) => {
                let key = Box::new(self.identifier(&own.key_identifier)?);
                DataType::Map(key, Box::new(self.identifier(&own.element_identifier)?), own.bound)
            }
            TypeIdentifier::Hash(EK_COMPLETE, hash) => self.hash(TypeHash(*hash))?,
            TypeIdentifier::Hash(_, hash) => return Err(TypeObjectError::Minimal { hash: TypeHash(*hash) }),
            TypeIdentifier::Component(_) => return Err(unsupported("recursive types", identifier)),
        })
    }
}

fn unsupported(what: &'static str, identifier: &TypeIdentifier) -> TypeObjectError {
    let kind = match identifier {
        TypeIdentifier::Kind(kind) => *kind,
        TypeIdentifier::Component(_) => 0xb0,
        _ => EK_COMPLETE,
    };
    TypeObjectError::Unsupported { what, kind }
}

/// Returns the extensibility that type flags name. Without a flag, it is appendable.
fn extensibility(flags: u16) -> Extensibility {
    match flags & 0x07 {
        0x01 => Extensibility::Final,
        0x04 => Extensibility::Mutable,
        _ => Extensibility::Appendable,
    }
}
