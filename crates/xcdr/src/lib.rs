//! The types of DDS: encodings, keys, type objects and dynamic data. It does no I/O.
#![deny(unsafe_code)]

extern crate self as spindle_xcdr;

mod assign;
mod cdr;
mod characters;
mod collections;
mod dds_type;
mod decoder;
mod description;
mod dynamic;
mod encapsulation;
mod encoder;
mod error;
mod format;
mod idl;
mod key;
mod plain;
mod type_object;

pub use assign::{AssignRule, NotAssignable, TypeConsistency, check_assignable};
pub use cdr::Cdr;
pub use characters::{Char8, Char16, Octet};
pub use collections::{Bounded, ElementBounded, WideString};
pub use dds_type::{
    Bitmask, DdsType, Discriminator, SampleFormat, decode_key_sample, decode_sample, encode_key_sample, encode_sample,
};
pub use decoder::{CdrDecoder, MemberStart, StructDecoder};
pub use description::{
    BitmaskType, CaseType, DataType, EnumLiteral, EnumType, MemberType, NamedType, PrimitiveKind, StructType, TypeBody,
    TypeCollector, TypeDescription, TypeIndex, TypeName, UnionType,
};
pub use dynamic::{DynamicType, DynamicValue, FieldFault, FieldPathError, FieldSet, FieldValue, JsonError};
pub use encapsulation::{Encapsulation, HEADER_BYTES};
pub use encoder::{CdrEncoder, DEPTH_MAX, EncodeKind, LengthCode, MemberHead, ParameterForm, StructEncoder};
pub use error::{CdrReadError, CdrWriteError, ReadFault, WriteFault};
pub use format::{ByteOrder, Extensibility, XcdrVersion};
pub use key::{KeyHash, KeyHasher, key_bytes, key_size_max};
pub use plain::{LendError, Plain, lend_sample, plain_encapsulation};
pub use spindle_xcdr_derive::{DdsType, DdsTypeOfDds};
pub use type_object::{TypeHash, TypeObjectError, TypeObjectKind, TypeObjects};

/// The trait without the macro of its name.
#[doc(hidden)]
pub mod traits {
    pub use crate::dds_type::DdsType;
}

/// Functions that derived code calls.
#[doc(hidden)]
pub mod derived {
    pub use crate::collections::{check_read, check_written};
    pub use crate::dds_type::{no_case, no_literal, wrong_case};
}
