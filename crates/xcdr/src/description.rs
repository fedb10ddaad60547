//! The description of a type at run time.
//!
//! [`TypeDescription`] holds the outermost type and every named type that it reaches. Types refer to
//! each other by index, so they may be recursive. Type objects, assignability and dynamic data are
//! made from it.
use crate::format::Extensibility;
use std::collections::BTreeMap;
use std::fmt;

/// A primitive type (DDS-XTypes 1.3, 7.2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PrimitiveKind {
    /// `boolean`.
    Boolean = 0x01,
    /// `octet`: eight bits without a meaning.
    Octet = 0x02,
    /// `int16`.
    Int16 = 0x03,
    /// `int32`.
    Int32 = 0x04,
    /// `int64`.
    Int64 = 0x05,
    /// `uint16`.
    UInt16 = 0x06,
    /// `uint32`.
    UInt32 = 0x07,
    /// `uint64`.
    UInt64 = 0x08,
    /// `float`.
    Float32 = 0x09,
    /// `double`.
    Float64 = 0x0a,
    /// `int8`.
    Int8 = 0x0c,
    /// `uint8`.
    UInt8 = 0x0d,
    /// `char`: a character of eight bits.
    Char8 = 0x10,
    /// `wchar`: a character of 16 bits.
    Char16 = 0x11,
}

impl PrimitiveKind {
    /// All primitive types.
    pub const ALL: [PrimitiveKind; 14] = [
        PrimitiveKind::Boolean,
        PrimitiveKind::Octet,
        PrimitiveKind::Int16,
        PrimitiveKind::Int32,
        PrimitiveKind::Int64,
        PrimitiveKind::UInt16,
        PrimitiveKind::UInt32,
        PrimitiveKind::UInt64,
        PrimitiveKind::Float32,
        PrimitiveKind::Float64,
        PrimitiveKind::Int8,
        PrimitiveKind::UInt8,
        PrimitiveKind::Char8,
        PrimitiveKind::Char16,
    ];

    /// Returns the size in bytes.
    pub const fn size(self) -> usize {
        match self {
            PrimitiveKind::Boolean
            | PrimitiveKind::Octet
            | PrimitiveKind::Int8
            | PrimitiveKind::UInt8
            | PrimitiveKind::Char8 => 1,
            PrimitiveKind::Int16 | PrimitiveKind::UInt16 | PrimitiveKind::Char16 => 2,
            PrimitiveKind::Int32 | PrimitiveKind::UInt32 | PrimitiveKind::Float32 => 4,
            PrimitiveKind::Int64 | PrimitiveKind::UInt64 | PrimitiveKind::Float64 => 8,
        }
    }

    /// Returns the name in IDL.
    pub const fn idl(self) -> &'static str {
        match self {
            PrimitiveKind::Boolean => "boolean",
            PrimitiveKind::Octet => "octet",
            PrimitiveKind::Int8 => "int8",
            PrimitiveKind::UInt8 => "uint8",
            PrimitiveKind::Int16 => "int16",
            PrimitiveKind::UInt16 => "uint16",
            PrimitiveKind::Int32 => "int32",
            PrimitiveKind::UInt32 => "uint32",
            PrimitiveKind::Int64 => "int64",
            PrimitiveKind::UInt64 => "uint64",
            PrimitiveKind::Float32 => "float",
            PrimitiveKind::Float64 => "double",
            PrimitiveKind::Char8 => "char",
            PrimitiveKind::Char16 => "wchar",
        }
    }
}

/// The index of a named type in its [`TypeDescription`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeIndex(pub u32);

/// The type of a member or an element. A bound of 0 means that there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// A primitive type.
    Primitive(PrimitiveKind),
    /// `string`, with a bound in bytes.
    String(u32),
    /// `wstring`, with a bound in characters of 16 bits.
    WideString(u32),
    /// `sequence`, with a bound in elements.
    Sequence(Box<DataType>, u32),
    /// An array, with its dimensions from the outermost one.
    Array(Box<DataType>, Vec<u32>),
    /// `map`, with the types of its keys and values, and a bound in entries.
    Map(Box<DataType>, Box<DataType>, u32),
    /// A structure, union, enumeration or bit mask.
    Named(TypeIndex),
}

impl DataType {
    /// Returns the array of these elements. An array of arrays has several dimensions.
    pub fn array(element: DataType, length: u32) -> DataType {
        match element {
            DataType::Array(element, mut dimensions) => {
                dimensions.insert(0, length);
                DataType::Array(element, dimensions)
            }
            element => DataType::Array(Box::new(element), vec![length]),
        }
    }

    /// Sets the bound of a string, sequence or map, and with `inner` that of its elements.
    #[must_use]
    pub fn bounded(self, bound: u32, inner: u32) -> DataType {
        let or = |given, own| if given == 0 { own } else { given };
        match self {
            DataType::String(own) => DataType::String(or(bound, own)),
            DataType::WideString(own) => DataType::WideString(or(bound, own)),
            DataType::Sequence(element, own) => DataType::Sequence(Box::new(element.bounded(inner, 0)), or(bound, own)),
            DataType::Array(element, dimensions) => DataType::Array(Box::new(element.bounded(inner, 0)), dimensions),
            DataType::Map(key, value, own) => {
                DataType::Map(Box::new(key.bounded(inner, 0)), Box::new(value.bounded(inner, 0)), or(bound, own))
            }
            other => other,
        }
    }

    /// Makes an `octet` of each `uint8`.
    #[must_use]
    pub fn octets(self) -> DataType {
        match self {
            DataType::Primitive(PrimitiveKind::UInt8) => DataType::Primitive(PrimitiveKind::Octet),
            DataType::Sequence(element, bound) => DataType::Sequence(Box::new(element.octets()), bound),
            DataType::Array(element, dimensions) => DataType::Array(Box::new(element.octets()), dimensions),
            other => other,
        }
    }
}

/// A type that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedType {
    /// Its name with its modules, such as `sensor::Reading`.
    pub name: String,
    /// Its contents.
    pub body: TypeBody,
}

/// The contents of a named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeBody {
    /// A structure.
    Struct(StructType),
    /// A union.
    Union(UnionType),
    /// An enumeration.
    Enum(EnumType),
    /// A bit mask.
    Bitmask(BitmaskType),
}

/// A structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructType {
    /// How it may change.
    pub extensibility: Extensibility,
    /// Whether it is meant as part of other types only.
    pub nested: bool,
    /// Whether identifiers are hashes of names by default.
    pub autoid_hash: bool,
    /// Its members, in the order of the definition.
    pub members: Vec<MemberType>,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberType {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub id: u32,
    /// Its type.
    pub data: DataType,
    /// Whether it belongs to the key.
    pub key: bool,
    /// Whether it may be absent.
    pub optional: bool,
    /// Whether a reader that does not know it must refuse the sample.
    pub must_understand: bool,
    /// Whether it is stored outside of its structure.
    pub external: bool,
    /// The text whose hash is its identifier, if `@hashid` was given.
    pub hash_id: Option<String>,
}

/// A union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnionType {
    /// How it may change.
    pub extensibility: Extensibility,
    /// Whether it is meant as part of other types only.
    pub nested: bool,
    /// The type of the discriminator.
    pub discriminator: DataType,
    /// Whether the discriminator is the key.
    pub discriminator_is_key: bool,
    /// Its members.
    pub cases: Vec<CaseType>,
}

/// A member of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseType {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub id: u32,
    /// The values of the discriminator that select it.
    pub labels: Vec<i32>,
    /// Whether all other values select it, too.
    pub default: bool,
    /// Its type; `None` if these values select no member.
    pub data: Option<DataType>,
}

/// An enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnumType {
    /// The bits of its values: 1 to 32.
    pub bit_bound: u16,
    /// Its literals, in the order of the definition.
    pub literals: Vec<EnumLiteral>,
}

impl EnumType {
    /// Returns the literal with this value.
    pub fn literal(&self, value: i32) -> Option<&EnumLiteral> {
        self.literals.iter().find(|literal| literal.value == value)
    }

    /// Returns the value of members that are missing: that of the default literal, or the first.
    pub fn default_value(&self) -> i32 {
        let default = self.literals.iter().find(|literal| literal.default).or(self.literals.first());
        default.map_or(0, |literal| literal.value)
    }

    /// Returns the size of a value in bytes.
    pub fn size(&self) -> usize {
        match self.bit_bound {
            0..=8 => 1,
            9..=16 => 2,
            _ => 4,
        }
    }
}

/// A literal of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnumLiteral {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: i32,
    /// Whether it is the value of missing members.
    pub default: bool,
}

/// A bit mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmaskType {
    /// Its bits: 1 to 64.
    pub bit_bound: u16,
    /// The names and positions of its flags, in the order of the definition.
    pub flags: Vec<(String, u16)>,
}

impl BitmaskType {
    /// Returns the size of a value in bytes.
    pub fn size(&self) -> usize {
        match self.bit_bound {
            0..=8 => 1,
            9..=16 => 2,
            17..=32 => 4,
            _ => 8,
        }
    }
}

/// A type and all named types that it reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeDescription {
    /// The outermost type.
    pub root: DataType,
    /// The named types.
    pub types: Vec<NamedType>,
}

impl TypeDescription {
    /// Returns a named type; `None` if the index is of another description.
    pub fn get(&self, index: TypeIndex) -> Option<&NamedType> {
        self.types.get(index.0 as usize)
    }

    /// Returns the outermost type if it has a name.
    pub fn named_root(&self) -> Option<&NamedType> {
        match self.root {
            DataType::Named(index) => self.get(index),
            _ => None,
        }
    }

    /// Returns the extensibility of the outermost type. Types that can't be extended are final.
    pub fn extensibility(&self) -> Extensibility {
        match self.named_root().map(|named| &named.body) {
            Some(
                TypeBody::Struct(StructType { extensibility, .. }) | TypeBody::Union(UnionType { extensibility, .. }),
            ) => *extensibility,
            _ => Extensibility::Final,
        }
    }

    /// Returns whether the outermost type has a key.
    pub fn is_keyed(&self) -> bool {
        match self.named_root().map(|named| &named.body) {
            Some(TypeBody::Struct(own)) => own.members.iter().any(|member| member.key),
            Some(TypeBody::Union(own)) => own.discriminator_is_key,
            _ => false,
        }
    }

    /// Returns whether values of the type have the same size in all collections: primitive types.
    pub fn is_primitive(&self, data: &DataType) -> bool {
        matches!(data, DataType::Primitive(_))
    }

    /// Returns the type's name as IDL writes it.
    pub fn name_of<'a>(&'a self, data: &'a DataType) -> TypeName<'a> {
        TypeName { description: self, data }
    }
}

/// The name of a type, as IDL writes it.
#[derive(Clone, Copy, Debug)]
pub struct TypeName<'a> {
    description: &'a TypeDescription,
    data: &'a DataType,
}

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |data| self.description.name_of(data);
        let bound = |bound: u32| if bound == 0 { String::new() } else { format!(", {bound}") };
        match self.data {
            DataType::Primitive(kind) => f.write_str(kind.idl()),
            DataType::String(0) => f.write_str("string"),
            DataType::String(bound) => write!(f, "string<{bound}>"),
            DataType::WideString(0) => f.write_str("wstring"),
            DataType::WideString(bound) => write!(f, "wstring<{bound}>"),
            DataType::Sequence(element, own) => write!(f, "sequence<{}{}>", name(element), bound(*own)),
            DataType::Map(key, value, own) => write!(f, "map<{}, {}{}>", name(key), name(value), bound(*own)),
            DataType::Array(element, dimensions) => {
                write!(f, "{}", name(element))?;
                dimensions.iter().try_for_each(|length| write!(f, "[{length}]"))
            }
            DataType::Named(index) => match self.description.get(*index) {
                Some(named) => f.write_str(&named.name),
                None => write!(f, "type {}", index.0),
            },
        }
    }
}

/// Collects the named types that a type reaches.
#[derive(Debug, Default)]
pub struct TypeCollector {
    names: BTreeMap<String, TypeIndex>,
    /// The types; `None` while a type is being described.
    types: Vec<Option<NamedType>>,
}

impl TypeCollector {
    /// Adds a named type, once for each name, and returns a reference to it.
    ///
    /// `body` may ask for the type itself, which is how recursive types end.
    pub fn named(&mut self, name: &str, body: impl FnOnce(&mut TypeCollector) -> TypeBody) -> DataType {
        if let Some(index) = self.names.get(name) {
            return DataType::Named(*index);
        }
        let index = self.types.len();
        let reference = TypeIndex(index as u32);
        self.names.insert(name.to_owned(), reference);
        self.types.push(None);
        let body = body(self);
        self.types[index] = Some(NamedType { name: name.to_owned(), body });
        DataType::Named(reference)
    }

    /// Returns the description of a type, once its named types are collected.
    pub fn finish(self, root: DataType) -> TypeDescription {
        TypeDescription { root, types: self.types.into_iter().flatten().collect() }
    }
}
