//! Type identifiers as they are encoded (DDS-XTypes 1.3, annex B). The names are those of the IDL.
use crate::DdsType;
use crate::Octet;

/// A type object of the kind that has no names.
pub(crate) const EK_MINIMAL: u8 = 0xf1;
/// A type object with names.
pub(crate) const EK_COMPLETE: u8 = 0xf2;
/// An identifier that is the same in both kinds.
pub(crate) const EK_BOTH: u8 = 0xf3;

/// The identifier of a type: the hash of its type object, or a description of it.
#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, final, name = "DDS::XTypes::TypeIdentifier", discriminator = u8)]
pub(crate) enum TypeIdentifier {
    #[dds(case(0x70, 0x72))]
    StringSmall(u8, StringSTypeDefn),
    #[dds(case(0x71, 0x73))]
    StringLarge(u8, StringLTypeDefn),
    #[dds(case = 0x80)]
    SequenceSmall(PlainSequenceSElemDefn),
    #[dds(case = 0x81)]
    SequenceLarge(PlainSequenceLElemDefn),
    #[dds(case = 0x90)]
    ArraySmall(PlainArraySElemDefn),
    #[dds(case = 0x91)]
    ArrayLarge(PlainArrayLElemDefn),
    #[dds(case = 0xa0)]
    MapSmall(PlainMapSTypeDefn),
    #[dds(case = 0xa1)]
    MapLarge(PlainMapLTypeDefn),
    #[dds(case = 0xb0)]
    Component(StronglyConnectedComponentId),
    #[dds(case(0xf1, 0xf2))]
    Hash(u8, [u8; 14]),
    /// A primitive type, or none.
    #[dds(default)]
    Kind(u8),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::StringSTypeDefn")]
pub(crate) struct StringSTypeDefn {
    pub(crate) bound: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::StringLTypeDefn")]
pub(crate) struct StringLTypeDefn {
    pub(crate) bound: u32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::PlainCollectionHeader")]
pub(crate) struct PlainCollectionHeader {
    pub(crate) equiv_kind: u8,
    pub(crate) element_flags: u16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::PlainSequenceSElemDefn")]
pub(crate) struct PlainSequenceSElemDefn {
    pub(crate) header: PlainCollectionHeader,
    pub(crate) bound: u8,
    pub(crate) element_identifier: Box<TypeIdentifier>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::PlainSequenceLElemDefn")]
pub(crate) struct PlainSequenceLElemDefn {
    pub(crate) header: PlainCollectionHeader,
    pub(crate) bound: u32,
    pub(crate) element_identifier: Box<TypeIdentifier>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::PlainArraySElemDefn")]
pub(crate) struct PlainArraySElemDefn {
    pub(crate) header: PlainCollectionHeader,
    pub(crate) array_bound_seq: Vec<Octet>,
    pub(crate) element_identifier: Box<TypeIdentifier>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::PlainArrayLElemDefn")]
pub(crate) struct PlainArrayLElemDefn {
    pub(crate) header: PlainCollectionHeader,
    pub(crate) array_bound_seq: Vec<u32>,
    pub(crate) element_identifier: Box<TypeIdentifier>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::PlainMapSTypeDefn")]
pub(crate) struct PlainMapSTypeDefn {
    pub(crate) header: PlainCollectionHeader,
    pub(crate) bound: u8,
    pub(crate) element_identifier: Box<TypeIdentifier>,
    pub(crate) key_flags: u16,
    pub(crate) key_identifier: Box<TypeIdentifier>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::PlainMapLTypeDefn")]
pub(crate) struct PlainMapLTypeDefn {
    pub(crate) header: PlainCollectionHeader,
    pub(crate) bound: u32,
    pub(crate) element_identifier: Box<TypeIdentifier>,
    pub(crate) key_flags: u16,
    pub(crate) key_identifier: Box<TypeIdentifier>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::StronglyConnectedComponentId")]
pub(crate) struct StronglyConnectedComponentId {
    pub(crate) sc_component_id: TypeObjectHashId,
    pub(crate) scc_length: i32,
    pub(crate) scc_index: i32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, final, name = "DDS::XTypes::TypeObjectHashId", discriminator = u8)]
pub(crate) enum TypeObjectHashId {
    #[dds(case(0xf1, 0xf2))]
    Hash(u8, [u8; 14]),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::TypeIdentifierWithSize")]
pub(crate) struct TypeIdentifierWithSize {
    pub(crate) type_id: TypeIdentifier,
    pub(crate) typeobject_serialized_size: u32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::TypeIdentifierWithDependencies")]
pub(crate) struct TypeIdentifierWithDependencies {
    pub(crate) typeid_with_size: TypeIdentifierWithSize,
    pub(crate) dependent_typeid_count: i32,
    pub(crate) dependent_typeids: Vec<TypeIdentifierWithSize>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(mutable, nested, name = "DDS::XTypes::TypeInformation")]
pub(crate) struct TypeInformation {
    #[dds(id = 0x1001)]
    pub(crate) minimal: TypeIdentifierWithDependencies,
    #[dds(id = 0x1002)]
    pub(crate) complete: TypeIdentifierWithDependencies,
}
