//! Type objects as they are encoded (DDS-XTypes 1.3, annex B). The names are those of the IDL.
//!
//! Bit sets, annotation types, and collections that have a type object of their own are absent.
use super::identifier::TypeIdentifier;
use crate::{Char8, Char16, DdsType, WideString};

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CommonStructMember")]
pub(crate) struct CommonStructMember {
    pub(crate) member_id: u32,
    pub(crate) member_flags: u16,
    pub(crate) member_type_id: TypeIdentifier,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::MinimalMemberDetail")]
pub(crate) struct MinimalMemberDetail {
    pub(crate) name_hash: [u8; 4],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CompleteMemberDetail")]
pub(crate) struct CompleteMemberDetail {
    #[dds(bound = 256)]
    pub(crate) name: String,
    pub(crate) ann_builtin: Option<AppliedBuiltinMemberAnnotations>,
    pub(crate) ann_custom: Option<Vec<AppliedAnnotation>>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::MinimalTypeDetail")]
pub(crate) struct MinimalTypeDetail {}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CompleteTypeDetail")]
pub(crate) struct CompleteTypeDetail {
    pub(crate) ann_builtin: Option<AppliedBuiltinTypeAnnotations>,
    pub(crate) ann_custom: Option<Vec<AppliedAnnotation>>,
    #[dds(bound = 256)]
    pub(crate) type_name: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalStructMember")]
pub(crate) struct MinimalStructMember {
    pub(crate) common: CommonStructMember,
    pub(crate) detail: MinimalMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalStructHeader")]
pub(crate) struct MinimalStructHeader {
    pub(crate) base_type: TypeIdentifier,
    pub(crate) detail: MinimalTypeDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::MinimalStructType")]
pub(crate) struct MinimalStructType {
    pub(crate) struct_flags: u16,
    pub(crate) header: MinimalStructHeader,
    pub(crate) member_seq: Vec<MinimalStructMember>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteStructMember")]
pub(crate) struct CompleteStructMember {
    pub(crate) common: CommonStructMember,
    pub(crate) detail: CompleteMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteStructHeader")]
pub(crate) struct CompleteStructHeader {
    pub(crate) base_type: TypeIdentifier,
    pub(crate) detail: CompleteTypeDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CompleteStructType")]
pub(crate) struct CompleteStructType {
    pub(crate) struct_flags: u16,
    pub(crate) header: CompleteStructHeader,
    pub(crate) member_seq: Vec<CompleteStructMember>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CommonUnionMember")]
pub(crate) struct CommonUnionMember {
    pub(crate) member_id: u32,
    pub(crate) member_flags: u16,
    pub(crate) type_id: TypeIdentifier,
    pub(crate) label_seq: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CommonDiscriminatorMember")]
pub(crate) struct CommonDiscriminatorMember {
    pub(crate) member_flags: u16,
    pub(crate) type_id: TypeIdentifier,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalDiscriminatorMember")]
pub(crate) struct MinimalDiscriminatorMember {
    pub(crate) common: CommonDiscriminatorMember,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteDiscriminatorMember")]
pub(crate) struct CompleteDiscriminatorMember {
    pub(crate) common: CommonDiscriminatorMember,
    pub(crate) ann_builtin: Option<AppliedBuiltinTypeAnnotations>,
    pub(crate) ann_custom: Option<Vec<AppliedAnnotation>>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalUnionMember")]
pub(crate) struct MinimalUnionMember {
    pub(crate) common: CommonUnionMember,
    pub(crate) detail: MinimalMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalUnionHeader")]
pub(crate) struct MinimalUnionHeader {
    pub(crate) detail: MinimalTypeDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::MinimalUnionType")]
pub(crate) struct MinimalUnionType {
    pub(crate) union_flags: u16,
    pub(crate) header: MinimalUnionHeader,
    pub(crate) discriminator: MinimalDiscriminatorMember,
    pub(crate) member_seq: Vec<MinimalUnionMember>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteUnionMember")]
pub(crate) struct CompleteUnionMember {
    pub(crate) common: CommonUnionMember,
    pub(crate) detail: CompleteMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteUnionHeader")]
pub(crate) struct CompleteUnionHeader {
    pub(crate) detail: CompleteTypeDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CompleteUnionType")]
pub(crate) struct CompleteUnionType {
    pub(crate) union_flags: u16,
    pub(crate) header: CompleteUnionHeader,
    pub(crate) discriminator: CompleteDiscriminatorMember,
    pub(crate) member_seq: Vec<CompleteUnionMember>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CommonAliasBody")]
pub(crate) struct CommonAliasBody {
    pub(crate) related_flags: u16,
    pub(crate) related_type: TypeIdentifier,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalAliasHeader")]
pub(crate) struct MinimalAliasHeader {}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteAliasHeader")]
pub(crate) struct CompleteAliasHeader {
    pub(crate) detail: CompleteTypeDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalAliasBody")]
pub(crate) struct MinimalAliasBody {
    pub(crate) common: CommonAliasBody,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteAliasBody")]
pub(crate) struct CompleteAliasBody {
    pub(crate) common: CommonAliasBody,
    pub(crate) ann_builtin: Option<AppliedBuiltinMemberAnnotations>,
    pub(crate) ann_custom: Option<Vec<AppliedAnnotation>>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::MinimalAliasType")]
pub(crate) struct MinimalAliasType {
    pub(crate) alias_flags: u16,
    pub(crate) header: MinimalAliasHeader,
    pub(crate) body: MinimalAliasBody,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CompleteAliasType")]
pub(crate) struct CompleteAliasType {
    pub(crate) alias_flags: u16,
    pub(crate) header: CompleteAliasHeader,
    pub(crate) body: CompleteAliasBody,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CommonEnumeratedLiteral")]
pub(crate) struct CommonEnumeratedLiteral {
    pub(crate) value: i32,
    pub(crate) flags: u16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CommonEnumeratedHeader")]
pub(crate) struct CommonEnumeratedHeader {
    pub(crate) bit_bound: u16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalEnumeratedHeader")]
pub(crate) struct MinimalEnumeratedHeader {
    pub(crate) common: CommonEnumeratedHeader,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteEnumeratedHeader")]
pub(crate) struct CompleteEnumeratedHeader {
    pub(crate) common: CommonEnumeratedHeader,
    pub(crate) detail: CompleteTypeDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CommonBitflag")]
pub(crate) struct CommonBitflag {
    pub(crate) position: u16,
    pub(crate) flags: u16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalEnumeratedLiteral")]
pub(crate) struct MinimalEnumeratedLiteral {
    pub(crate) common: CommonEnumeratedLiteral,
    pub(crate) detail: MinimalMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::MinimalEnumeratedType")]
pub(crate) struct MinimalEnumeratedType {
    pub(crate) enum_flags: u16,
    pub(crate) header: MinimalEnumeratedHeader,
    pub(crate) literal_seq: Vec<MinimalEnumeratedLiteral>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalBitflag")]
pub(crate) struct MinimalBitflag {
    pub(crate) common: CommonBitflag,
    pub(crate) detail: MinimalMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::MinimalBitmaskType")]
pub(crate) struct MinimalBitmaskType {
    pub(crate) bitmask_flags: u16,
    pub(crate) header: MinimalEnumeratedHeader,
    pub(crate) flag_seq: Vec<MinimalBitflag>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteEnumeratedLiteral")]
pub(crate) struct CompleteEnumeratedLiteral {
    pub(crate) common: CommonEnumeratedLiteral,
    pub(crate) detail: CompleteMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::CompleteEnumeratedType")]
pub(crate) struct CompleteEnumeratedType {
    pub(crate) enum_flags: u16,
    pub(crate) header: CompleteEnumeratedHeader,
    pub(crate) literal_seq: Vec<CompleteEnumeratedLiteral>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteBitflag")]
pub(crate) struct CompleteBitflag {
    pub(crate) common: CommonBitflag,
    pub(crate) detail: CompleteMemberDetail,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::CompleteBitmaskType")]
pub(crate) struct CompleteBitmaskType {
    pub(crate) bitmask_flags: u16,
    pub(crate) header: CompleteEnumeratedHeader,
    pub(crate) flag_seq: Vec<CompleteBitflag>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::AppliedBuiltinMemberAnnotations")]
pub(crate) struct AppliedBuiltinMemberAnnotations {
    pub(crate) unit: Option<String>,
    pub(crate) min: Option<AnnotationParameterValue>,
    pub(crate) max: Option<AnnotationParameterValue>,
    pub(crate) hash_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::AppliedBuiltinTypeAnnotations")]
pub(crate) struct AppliedBuiltinTypeAnnotations {
    pub(crate) verbatim: Option<AppliedVerbatimAnnotation>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, name = "DDS::XTypes::AppliedVerbatimAnnotation")]
pub(crate) struct AppliedVerbatimAnnotation {
    #[dds(bound = 32)]
    pub(crate) placement: String,
    #[dds(bound = 32)]
    pub(crate) language: String,
    pub(crate) text: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::AppliedAnnotation")]
pub(crate) struct AppliedAnnotation {
    pub(crate) annotation_typeid: TypeIdentifier,
    pub(crate) param_seq: Option<Vec<AppliedAnnotationParameter>>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, nested, name = "DDS::XTypes::AppliedAnnotationParameter")]
pub(crate) struct AppliedAnnotationParameter {
    pub(crate) paramname_hash: [u8; 4],
    pub(crate) value: AnnotationParameterValue,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, final, name = "DDS::XTypes::MinimalTypeObject", discriminator = u8)]
pub(crate) enum MinimalTypeObject {
    #[dds(case = 0x30)]
    Alias(MinimalAliasType),
    #[dds(case = 0x51)]
    Struct(MinimalStructType),
    #[dds(case = 0x52)]
    Union(MinimalUnionType),
    #[dds(case = 0x40)]
    Enum(MinimalEnumeratedType),
    #[dds(case = 0x41)]
    Bitmask(MinimalBitmaskType),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, final, name = "DDS::XTypes::CompleteTypeObject", discriminator = u8)]
pub(crate) enum CompleteTypeObject {
    #[dds(case = 0x30)]
    Alias(CompleteAliasType),
    #[dds(case = 0x51)]
    Struct(CompleteStructType),
    #[dds(case = 0x52)]
    Union(CompleteUnionType),
    #[dds(case = 0x40)]
    Enum(CompleteEnumeratedType),
    #[dds(case = 0x41)]
    Bitmask(CompleteBitmaskType),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, appendable, name = "DDS::XTypes::TypeObject", discriminator = u8)]
pub(crate) enum TypeObject {
    #[dds(case = 0xf2)]
    Complete(Box<CompleteTypeObject>),
    #[dds(case = 0xf1)]
    Minimal(MinimalTypeObject),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, final, name = "DDS::XTypes::AnnotationParameterValue", discriminator = u8)]
pub(crate) enum AnnotationParameterValue {
    #[dds(case = 0x01)]
    Boolean(bool),
    #[dds(case(0x02, 0x0d))]
    Byte(u8, u8),
    #[dds(case = 0x0c)]
    Int8(i8),
    #[dds(case = 0x03)]
    Int16(i16),
    #[dds(case = 0x06)]
    UInt16(u16),
    #[dds(case(0x04, 0x40))]
    Int32(u8, i32),
    #[dds(case = 0x07)]
    UInt32(u32),
    #[dds(case = 0x05)]
    Int64(i64),
    #[dds(case = 0x08)]
    UInt64(u64),
    #[dds(case = 0x09)]
    Float32(f32),
    #[dds(case = 0x0a)]
    Float64(f64),
    #[dds(case = 0x10)]
    Char8(Char8),
    #[dds(case = 0x11)]
    Char16(Char16),
    #[dds(case = 0x20, bound = 128)]
    String8(String),
    #[dds(case = 0x21, bound = 128)]
    String16(WideString),
}
