//! The resolved model: types and constants, whose names are looked up and whose values are known.
use crate::source::Place;
pub use crate::syntax::Primitive;
use md5::{Digest, Md5};

/// The index of an item in its [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub(crate) u32);

/// All types and constants of a compilation.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(crate) items: Vec<Item>,
    /// The items in the order of their definitions.
    pub(crate) order: Vec<ItemId>,
}

/// A type or a constant.
#[derive(Clone, Debug)]
pub struct Item {
    /// The names of its modules, from the outermost one.
    pub modules: Vec<String>,
    /// Its name.
    pub name: String,
    /// Where its name is.
    pub place: Place,
    /// The lines of its documentation.
    pub docs: Vec<String>,
    /// Its contents.
    pub kind: ItemKind,
}

/// The contents of an item.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ItemKind {
    /// A structure.
    Struct(StructItem),
    /// A union.
    Union(UnionItem),
    /// An enumeration.
    Enum(EnumItem),
    /// A bitmask.
    Bitmask(BitmaskItem),
    /// A `typedef`.
    Alias(DataType),
    /// A constant, with its type.
    Constant(DataType, Value),
    /// A structure or union that is declared and not defined. No model that is returned has one.
    Undefined(&'static str),
}

/// The type of a member, an element or a constant. A bound of 0 means that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataType {
    /// A primitive type.
    Primitive(Primitive),
    /// `string`, with a bound in bytes.
    String(u32),
    /// `wstring`, with a bound in characters of 16 bits.
    WideString(u32),
    /// `sequence`, with a bound in elements.
    Sequence(Box<DataType>, u32),
    /// An array, with its dimensions from the outermost one.
    Array(Box<DataType>, Vec<u32>),
    /// A type with a name.
    Named(ItemId),
}

/// How a type may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Extensibility {
    /// Not at all.
    #[default]
    Final,
    /// By members at its end.
    Appendable,
    /// By members with other identifiers.
    Mutable,
}

impl Extensibility {
    /// Returns its name in annotations.
    pub const fn name(self) -> &'static str {
        match self {
            Extensibility::Final => "final",
            Extensibility::Appendable => "appendable",
            Extensibility::Mutable => "mutable",
        }
    }
}

/// A structure.
#[derive(Clone, Debug)]
pub struct StructItem {
    /// The structure that it inherits from.
    pub base: Option<ItemId>,
    /// How it may change.
    pub extensibility: Extensibility,
    /// Whether it is meant as part of other types only.
    pub nested: bool,
    /// Whether identifiers are hashes of names by default.
    pub autoid_hash: bool,
    /// Its own members.
    pub members: Vec<StructMember>,
}

/// A member of a structure.
#[derive(Clone, Debug)]
pub struct StructMember {
    /// Its name.
    pub name: String,
    /// Where its name is.
    pub place: Place,
    /// The lines of its documentation.
    pub docs: Vec<String>,
    /// Its type.
    pub data: DataType,
    /// Its identifier.
    pub id: u32,
    /// How the identifier was given.
    pub id_from: IdFrom,
    /// Whether it belongs to the key.
    pub key: bool,
    /// Whether it may be absent.
    pub optional: bool,
    /// Whether it is stored outside of its structure.
    pub external: bool,
    /// Whether a reader that does not know it must refuse the sample.
    pub must_understand: bool,
    /// Its value if the writer's type lacks it.
    pub default: Option<Value>,
}

/// How the identifier of a member was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdFrom {
    /// By its position, or by the rule of its type.
    Rule,
    /// By `@id`.
    Number,
    /// By `@hashid`; the text is empty for the member's name.
    Hash(String),
}

/// A union.
#[derive(Clone, Debug)]
pub struct UnionItem {
    /// The type of its discriminator.
    pub discriminator: DataType,
    /// Whether the discriminator is the key.
    pub discriminator_is_key: bool,
    /// How it may change.
    pub extensibility: Extensibility,
    /// Whether it is meant as part of other types only.
    pub nested: bool,
    /// Whether a value of the discriminator may select no member.
    pub has_no_member: bool,
    /// Its members.
    pub cases: Vec<UnionCase>,
}

/// A member of a union.
#[derive(Clone, Debug)]
pub struct UnionCase {
    /// Its name.
    pub name: String,
    /// Where its name is.
    pub place: Place,
    /// The lines of its documentation.
    pub docs: Vec<String>,
    /// The values of the discriminator that select it.
    pub labels: Vec<Value>,
    /// Whether all values without a label select it, too.
    pub default: bool,
    /// Its type.
    pub data: DataType,
    /// Whether it is stored outside of its union.
    pub external: bool,
}

/// An enumeration.
#[derive(Clone, Debug)]
pub struct EnumItem {
    /// The bits of its values: 1 to 32.
    pub bit_bound: u16,
    /// Its literals.
    pub literals: Vec<EnumLiteral>,
}

/// A literal of an enumeration.
#[derive(Clone, Debug)]
pub struct EnumLiteral {
    /// Its name.
    pub name: String,
    /// The lines of its documentation.
    pub docs: Vec<String>,
    /// Its value.
    pub value: i32,
    /// Whether it is the value of members that are missing.
    pub default: bool,
}

/// A bitmask.
#[derive(Clone, Debug)]
pub struct BitmaskItem {
    /// Its bits: 1 to 64.
    pub bit_bound: u16,
    /// The names and positions of its bits.
    pub bits: Vec<(String, u16)>,
}

/// The value of a constant, a label or a default.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An integer or an octet.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A `char`.
    Character(u8),
    /// A `wchar`.
    WideCharacter(u16),
    /// A string.
    Text(String),
    /// A wide string.
    WideText(String),
    /// A literal of an enumeration, by its index.
    Literal(ItemId, usize),
    /// Bits of a bitmask.
    Bits(ItemId, u64),
}

impl Model {
    /// Returns an item.
    pub fn item(&self, id: ItemId) -> &Item {
        &self.items[id.0 as usize]
    }

    /// Returns the items in the order of their definitions.
    pub fn items(&self) -> impl Iterator<Item = (ItemId, &Item)> {
        self.order.iter().map(|id| (*id, self.item(*id)))
    }

    /// Returns a type without its `typedef`. An array of arrays stays one.
    pub fn resolved<'a>(&'a self, data: &'a DataType) -> &'a DataType {
        let mut data = data;
        while let DataType::Named(id) = data
            && let ItemKind::Alias(inner) = &self.item(*id).kind
        {
            data = inner;
        }
        data
    }

    /// Returns the members of a structure, those of its bases first.
    pub fn all_members<'a>(&'a self, own: &'a StructItem) -> Vec<&'a StructMember> {
        let mut chain = Vec::new();
        let mut base = own.base;
        while let Some(ItemKind::Struct(inner)) = base.map(|id| &self.item(id).kind) {
            chain.push(inner);
            base = inner.base;
        }
        chain.into_iter().rev().flat_map(|inner| &inner.members).chain(&own.members).collect()
    }

    /// Returns the name of a type in IDL.
    pub fn name_of(&self, data: &DataType) -> String {
        match data {
            DataType::Primitive(primitive) => primitive.idl().to_owned(),
            DataType::String(0) => "string".to_owned(),
            DataType::String(bound) => format!("string<{bound}>"),
            DataType::WideString(0) => "wstring".to_owned(),
            DataType::WideString(bound) => format!("wstring<{bound}>"),
            DataType::Sequence(element, 0) => format!("sequence<{}>", self.name_of(element)),
            DataType::Sequence(element, bound) => format!("sequence<{}, {bound}>", self.name_of(element)),
            DataType::Array(element, dimensions) => {
                let dimensions: String = dimensions.iter().map(|length| format!("[{length}]")).collect();
                format!("{}{dimensions}", self.name_of(element))
            }
            DataType::Named(id) => self.item(*id).dds_name(),
        }
    }

    /// Returns the case of a union that the value 0 of its discriminator selects, or that of the
    /// default literal; `None` if it selects no member.
    pub(crate) fn missing_case<'a>(&self, own: &'a UnionItem) -> Option<&'a UnionCase> {
        let is_missing = |label: &Value| match label {
            Value::Integer(value) => *value == 0,
            Value::Boolean(value) => !value,
            Value::Character(value) => *value == 0,
            Value::Literal(id, index) => match &self.item(*id).kind {
                ItemKind::Enum(own) => own.literals.iter().position(|l| l.default).unwrap_or(0) == *index,
                _ => false,
            },
            _ => false,
        };
        let selected = own.cases.iter().find(|case| case.labels.iter().any(is_missing));
        selected.or(own.cases.iter().find(|case| case.default))
    }
}

impl Item {
    /// Returns the name in DDS, such as `sensor::Reading`.
    pub fn dds_name(&self) -> String {
        let modules: String = self.modules.iter().map(|module| format!("{module}::")).collect();
        format!("{modules}{}", self.name)
    }
}

impl ItemKind {
    /// Returns what it is, in words.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            ItemKind::Struct(_) => "a structure",
            ItemKind::Union(_) => "a union",
            ItemKind::Enum(_) => "an enumeration",
            ItemKind::Bitmask(_) => "a bitmask",
            ItemKind::Alias(_) | ItemKind::Undefined(_) => "a type",
            ItemKind::Constant(..) => "a constant",
        }
    }
}

impl Primitive {
    /// Returns the name in IDL.
    pub const fn idl(self) -> &'static str {
        match self {
            Primitive::Boolean => "boolean",
            Primitive::Octet => "octet",
            Primitive::Char => "char",
            Primitive::WideChar => "wchar",
            Primitive::Int8 => "int8",
            Primitive::Int16 => "int16",
            Primitive::Int32 => "int32",
            Primitive::Int64 => "int64",
            Primitive::UInt8 => "uint8",
            Primitive::UInt16 => "uint16",
            Primitive::UInt32 => "uint32",
            Primitive::UInt64 => "uint64",
            Primitive::Float => "float",
            Primitive::Double => "double",
        }
    }

    /// Returns the smallest and the largest value of an integer or octet.
    pub(crate) const fn range(self) -> Option<(i128, i128)> {
        let (bits, is_signed) = match self {
            Primitive::Int8 => (8, true),
            Primitive::Int16 => (16, true),
            Primitive::Int32 => (32, true),
            Primitive::Int64 => (64, true),
            Primitive::UInt8 | Primitive::Octet => (8, false),
            Primitive::UInt16 => (16, false),
            Primitive::UInt32 => (32, false),
            Primitive::UInt64 => (64, false),
            _ => return None,
        };
        Some(if is_signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) })
    }
}

/// Returns the identifier that is the hash of a name (DDS-XTypes 1.3, 7.3.1.2.1.1).
pub(crate) fn hash_id(name: &str) -> u32 {
    let digest: [u8; 16] = Md5::digest(name.as_bytes()).into();
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) & 0x0fff_ffff
}
