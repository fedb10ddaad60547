//! Makes type objects of a description (DDS-XTypes 1.3, 7.3.4).
use super::error::TypeObjectError;
use super::hash::{TypeHash, name_hash};
use super::identifier::*;
use super::object::*;
use crate::Octet;
use crate::cdr::Cdr;
use crate::description::*;
use crate::encoder::CdrEncoder;
use crate::format::{ByteOrder, Extensibility, XcdrVersion};

/// A type without a base.
const TK_NONE: u8 = 0;
/// A value that can't be constructed is discarded: the default of `@try_construct`.
const TRY_CONSTRUCT_DISCARD: u16 = 0x01;
const IS_EXTERNAL: u16 = 0x04;
const IS_OPTIONAL: u16 = 0x08;
const IS_MUST_UNDERSTAND: u16 = 0x10;
const IS_KEY: u16 = 0x20;
const IS_DEFAULT: u16 = 0x40;
const IS_FINAL: u16 = 0x01;
const IS_APPENDABLE: u16 = 0x02;
const IS_MUTABLE: u16 = 0x04;
const IS_NESTED: u16 = 0x08;
const IS_AUTOID_HASH: u16 = 0x10;

/// The type objects of one named type.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) minimal: (TypeHash, Vec<u8>),
    pub(crate) complete: (TypeHash, Vec<u8>),
}

/// Makes the type objects of all named types, those that others refer to first.
pub(crate) struct Builder<'a> {
    types: &'a TypeDescription,
    built: Vec<Option<Built>>,
    started: Vec<bool>,
    /// The indices of the types in the order in which they were built.
    order: Vec<usize>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(types: &'a TypeDescription) -> Builder<'a> {
        let count = types.types.len();
        Builder { types, built: vec![None; count], started: vec![false; count], order: Vec::new() }
    }

    /// Builds the outermost type, and returns its index and the types in the order of building.
    pub(crate) fn build(mut self) -> Result<Vec<Built>, TypeObjectError> {
        let DataType::Named(root) = self.types.root else { return Err(TypeObjectError::Unnamed) };
        self.named(root)?;
        Ok(self.order.iter().filter_map(|index| self.built[*index].take()).collect())
    }

    fn named(&mut self, index: TypeIndex) -> Result<&Built, TypeObjectError> {
        let types = self.types;
        let named = types.get(index).ok_or(TypeObjectError::Lacks { index: index.0 })?;
        let at = index.0 as usize;
        if self.built[at].is_none() {
            if self.started[at] {
                return Err(TypeObjectError::Recursive { name: named.name.clone() });
            }
            self.started[at] = true;
            let minimal = encode(&TypeObject::Minimal(self.minimal(named)?))?;
            let complete = encode(&TypeObject::Complete(Box::new(self.complete(named)?)))?;
            self.built[at] = Some(Built {
                minimal: (TypeHash::of_object(&minimal), minimal),
                complete: (TypeHash::of_object(&complete), complete),
            });
            self.order.push(at);
        }
        self.built[at].as_ref().ok_or(TypeObjectError::Lacks { index: index.0 })
    }

    /// Returns the identifier of a type in type objects of one kind.
    fn identifier(&mut self, data: &DataType, kind: u8) -> Result<TypeIdentifier, TypeObjectError> {
        Ok(match data {
            DataType::Primitive(primitive) => TypeIdentifier::Kind(*primitive as u8),
            DataType::String(bound) => string(0x70, *bound),
            DataType::WideString(bound) => string(0x72, *bound),
            DataType::Sequence(element, bound) => {
                let (header, element_identifier) = self.element(element, kind)?;
                match u8::try_from(*bound) {
                    Ok(bound) => {
                        TypeIdentifier::SequenceSmall(PlainSequenceSElemDefn { header, bound, element_identifier })
                    }
                    Err(_) => TypeIdentifier::SequenceLarge(PlainSequenceLElemDefn {
                        header,
                        bound: *bound,
                        element_identifier,
                    }),
                }
            }
            DataType::Array(element, dimensions) => {
                let (header, element_identifier) = self.element(element, kind)?;
                let small: Result<Vec<_>, _> =
                    dimensions.iter().map(|length| u8::try_from(*length).map(Octet)).collect();
                match small {
                    Ok(array_bound_seq) => {
                        TypeIdentifier::ArraySmall(PlainArraySElemDefn { header, array_bound_seq, element_identifier })
                    }
                    Err(_) => TypeIdentifier::ArrayLarge(PlainArrayLElemDefn {
                        header,
                        array_bound_seq: dimensions.clone(),
                        element_identifier,
                    }),
                }
            }
            DataType::Map(key, value, bound) => {
                let (key_header, key_identifier) = self.element(key, kind)?;
                let (mut header, element_identifier) = self.element(value, kind)?;
                if header.equiv_kind == EK_BOTH {
                    header.equiv_kind = key_header.equiv_kind;
                }
                let key_flags = TRY_CONSTRUCT_DISCARD;
                match u8::try_from(*bound) {
                    Ok(bound) => TypeIdentifier::MapSmall(PlainMapSTypeDefn {
                        header,
                        bound,
                        element_identifier,
                        key_flags,
                        key_identifier,
                    }),
                    Err(_) => TypeIdentifier::MapLarge(PlainMapLTypeDefn {
                        header,
                        bound: *bound,
                        element_identifier,
                        key_flags,
                        key_identifier,
                    }),
                }
            }
            DataType::Named(index) => {
                let built = self.named(*index)?;
                let hash = if kind == EK_MINIMAL { built.minimal.0 } else { built.complete.0 };
                TypeIdentifier::Hash(kind, hash.0)
            }
        })
    }

    /// Returns the header and the identifier of the elements of a collection.
    fn element(
        &mut self,
        element: &DataType,
        kind: u8,
    ) -> Result<(PlainCollectionHeader, Box<TypeIdentifier>), TypeObjectError> {
        let equiv_kind = if is_fully_descriptive(element) { EK_BOTH } else { kind };
        let header = PlainCollectionHeader { equiv_kind, element_flags: TRY_CONSTRUCT_DISCARD };
        Ok((header, Box::new(self.identifier(element, kind)?)))
    }

    fn common_member(&mut self, member: &MemberType, kind: u8) -> Result<CommonStructMember, TypeObjectError> {
        let flags = [
            (member.external, IS_EXTERNAL),
            (member.optional, IS_OPTIONAL),
            (member.must_understand, IS_MUST_UNDERSTAND),
            (member.key, IS_KEY),
        ];
        Ok(CommonStructMember {
            member_id: member.id,
            member_flags: TRY_CONSTRUCT_DISCARD | flags_of(flags),
            member_type_id: self.identifier(&member.data, kind)?,
        })
    }

    fn common_case(&mut self, case: &CaseType, kind: u8) -> Result<Option<CommonUnionMember>, TypeObjectError> {
        let Some(data) = &case.data else { return Ok(None) };
        Ok(Some(CommonUnionMember {
            member_id: case.id,
            member_flags: TRY_CONSTRUCT_DISCARD | flags_of([(case.default, IS_DEFAULT)]),
            type_id: self.identifier(data, kind)?,
            label_seq: case.labels.clone(),
        }))
    }

    fn discriminator(&mut self, own: &UnionType, kind: u8) -> Result<CommonDiscriminatorMember, TypeObjectError> {
        let flags = TRY_CONSTRUCT_DISCARD | IS_MUST_UNDERSTAND | flags_of([(own.discriminator_is_key, IS_KEY)]);
        Ok(CommonDiscriminatorMember { member_flags: flags, type_id: self.identifier(&own.discriminator, kind)? })
    }

    fn minimal(&mut self, named: &NamedType) -> Result<MinimalTypeObject, TypeObjectError> {
        let detail = |name: &str| MinimalMemberDetail { name_hash: name_hash(name) };
        Ok(match &named.body {
            TypeBody::Struct(own) => {
                let mut member_seq = Vec::new();
                for member in &own.members {
                    let common = self.common_member(member, EK_MINIMAL)?;
                    member_seq.push(MinimalStructMember { common, detail: detail(&member.name) });
                }
                MinimalTypeObject::Struct(MinimalStructType {
                    struct_flags: struct_flags(own),
                    header: MinimalStructHeader {
                        base_type: TypeIdentifier::Kind(TK_NONE),
                        detail: MinimalTypeDetail {},
                    },
                    member_seq,
                })
            }
            TypeBody::Union(own) => {
                let mut member_seq = Vec::new();
                for case in &own.cases {
                    if let Some(common) = self.common_case(case, EK_MINIMAL)? {
                        member_seq.push(MinimalUnionMember { common, detail: detail(&case.name) });
                    }
                }
                MinimalTypeObject::Union(MinimalUnionType {
                    union_flags: union_flags(own),
                    header: MinimalUnionHeader { detail: MinimalTypeDetail {} },
                    discriminator: MinimalDiscriminatorMember { common: self.discriminator(own, EK_MINIMAL)? },
                    member_seq,
                })
            }
            TypeBody::Enum(own) => MinimalTypeObject::Enum(MinimalEnumeratedType {
                enum_flags: IS_FINAL,
                header: MinimalEnumeratedHeader { common: CommonEnumeratedHeader { bit_bound: own.bit_bound } },
                literal_seq: literals(own)
                    .map(|(common, name)| MinimalEnumeratedLiteral { common, detail: detail(name) })
                    .collect(),
            }),
            TypeBody::Bitmask(own) => MinimalTypeObject::Bitmask(MinimalBitmaskType {
                bitmask_flags: IS_FINAL,
                header: MinimalEnumeratedHeader { common: CommonEnumeratedHeader { bit_bound: own.bit_bound } },
                flag_seq: bits(own).map(|(common, name)| MinimalBitflag { common, detail: detail(name) }).collect(),
            }),
        })
    }

    fn complete(&mut self, named: &NamedType) -> Result<CompleteTypeObject, TypeObjectError> {
        let type_detail = CompleteTypeDetail { ann_builtin: None, ann_custom: None, type_name: named.name.clone() };
        let detail = |name: &str| CompleteMemberDetail { name: name.to_owned(), ann_builtin: None, ann_custom: None };
        Ok(match &named.body {
            TypeBody::Struct(own) => {
                let mut member_seq = Vec::new();
                for member in &own.members {
                    let common = self.common_member(member, EK_COMPLETE)?;
                    let ann_builtin = member.hash_id.clone().map(|text| AppliedBuiltinMemberAnnotations {
                        unit: None,
                        min: None,
                        max: None,
                        hash_id: Some(text),
                    });
                    let detail = CompleteMemberDetail { ann_builtin, ..detail(&member.name) };
                    member_seq.push(CompleteStructMember { common, detail });
                }
                CompleteTypeObject::Struct(CompleteStructType {
                    struct_flags: struct_flags(own),
                    header: CompleteStructHeader { base_type: TypeIdentifier::Kind(TK_NONE), detail: type_detail },
                    member_seq,
                })
            }
            TypeBody::Union(own) => {
                let mut member_seq = Vec::new();
                for case in &own.cases {
                    if let Some(common) = self.common_case(case, EK_COMPLETE)? {
                        member_seq.push(CompleteUnionMember { common, detail: detail(&case.name) });
                    }
                }
                CompleteTypeObject::Union(CompleteUnionType {
                    union_flags: union_flags(own),
                    header: CompleteUnionHeader { detail: type_detail },
                    discriminator: CompleteDiscriminatorMember {
                        common: self.discriminator(own, EK_COMPLETE)?,
                        ann_builtin: None,
                        ann_custom: None,
                    },
                    member_seq,
                })
            }
            TypeBody::Enum(own) => CompleteTypeObject::Enum(CompleteEnumeratedType {
                enum_flags: IS_FINAL,
                header: CompleteEnumeratedHeader {
                    common: CommonEnumeratedHeader { bit_bound: own.bit_bound },
                    detail: type_detail,
                },
                literal_seq: literals(own)
                    .map(|(common, name)| CompleteEnumeratedLiteral { common, detail: detail(name) })
                    .collect(),
            }),
            TypeBody::Bitmask(own) => CompleteTypeObject::Bitmask(CompleteBitmaskType {
                bitmask_flags: IS_FINAL,
                header: CompleteEnumeratedHeader {
                    common: CommonEnumeratedHeader { bit_bound: own.bit_bound },
                    detail: type_detail,
                },
                flag_seq: bits(own).map(|(common, name)| CompleteBitflag { common, detail: detail(name) }).collect(),
            }),
        })
    }
}

/// Encodes a part of a type object as its hash needs it: XCDR2, little endian, without a header.
pub(crate) fn encode<T: Cdr>(part: &T) -> Result<Vec<u8>, TypeObjectError> {
    let mut to = CdrEncoder::new(XcdrVersion::Xcdr2, ByteOrder::Little);
    part.encode(&mut to)?;
    Ok(to.finish())
}

fn string(small: u8, bound: u32) -> TypeIdentifier {
    match u8::try_from(bound) {
        Ok(bound) => TypeIdentifier::StringSmall(small, StringSTypeDefn { bound }),
        Err(_) => TypeIdentifier::StringLarge(small + 1, StringLTypeDefn { bound }),
    }
}

/// Returns whether the identifier of a type contains no hash.
fn is_fully_descriptive(data: &DataType) -> bool {
    match data {
        DataType::Primitive(_) | DataType::String(_) | DataType::WideString(_) => true,
        DataType::Sequence(element, _) | DataType::Array(element, _) => is_fully_descriptive(element),
        DataType::Map(key, value, _) => is_fully_descriptive(key) && is_fully_descriptive(value),
        DataType::Named(_) => false,
    }
}

fn flags_of<const N: usize>(flags: [(bool, u16); N]) -> u16 {
    flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag)
}

fn extensibility_flag(extensibility: Extensibility) -> u16 {
    match extensibility {
        Extensibility::Final => IS_FINAL,
        Extensibility::Appendable => IS_APPENDABLE,
        Extensibility::Mutable => IS_MUTABLE,
    }
}

fn struct_flags(own: &StructType) -> u16 {
    extensibility_flag(own.extensibility) | flags_of([(own.nested, IS_NESTED), (own.autoid_hash, IS_AUTOID_HASH)])
}

fn union_flags(own: &UnionType) -> u16 {
    extensibility_flag(own.extensibility) | flags_of([(own.nested, IS_NESTED)])
}

/// Returns the literals in the order of their values.
fn literals(own: &EnumType) -> impl Iterator<Item = (CommonEnumeratedLiteral, &str)> {
    let default = own.default_value();
    let mut literals: Vec<_> = own.literals.iter().collect();
    literals.sort_by_key(|literal| literal.value);
    literals.into_iter().map(move |literal| {
        let flags = flags_of([(literal.value == default, IS_DEFAULT)]);
        (CommonEnumeratedLiteral { value: literal.value, flags }, literal.name.as_str())
    })
}

/// Returns the flags in the order of their positions.
fn bits(own: &BitmaskType) -> impl Iterator<Item = (CommonBitflag, &str)> {
    let mut flags: Vec<_> = own.flags.iter().collect();
    flags.sort_by_key(|(_, position)| *position);
    flags.into_iter().map(|(name, position)| (CommonBitflag { position: *position, flags: 0 }, name.as_str()))
}
