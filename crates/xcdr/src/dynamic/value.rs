//! Values whose type is known at run time only, and how they are printed.
use std::fmt::{self, Write};

/// A value of any DDS type.
#[derive(Clone, Debug, PartialEq)]
pub enum DynamicValue {
    /// `boolean`.
    Boolean(bool),
    /// `octet`.
    Octet(u8),
    /// `int8`.
    Int8(i8),
    /// `uint8`.
    UInt8(u8),
    /// `int16`.
    Int16(i16),
    /// `uint16`.
    UInt16(u16),
    /// `int32`.
    Int32(i32),
    /// `uint32`.
    UInt32(u32),
    /// `int64`.
    Int64(i64),
    /// `uint64`.
    UInt64(u64),
    /// `float`.
    Float32(f32),
    /// `double`.
    Float64(f64),
    /// `char`.
    Char8(u8),
    /// `wchar`.
    Char16(u16),
    /// `string`.
    String(String),
    /// `wstring`.
    WideString(String),
    /// A sequence or an array of `octet` or `uint8`.
    Bytes(Vec<u8>),
    /// A sequence, or an array, whose elements are in the order of their encoding.
    Elements(Vec<DynamicValue>),
    /// A map, with its entries in the order of their encoding.
    Map(Vec<(DynamicValue, DynamicValue)>),
    /// A structure: the members that are present, in the order of the definition.
    Struct(Vec<(String, DynamicValue)>),
    /// A union: its discriminator, and the member that it selects.
    Union(Box<DynamicValue>, Option<(String, Box<DynamicValue>)>),
    /// A literal of an enumeration: its value and name.
    Enum(i32, String),
    /// A bit mask: its bits.
    Bitmask(u64),
}

impl DynamicValue {
    /// Returns the kind, as error messages name it.
    pub fn kind(&self) -> &'static str {
        match self {
            DynamicValue::Boolean(_) => "a boolean",
            DynamicValue::Octet(_) => "an octet",
            DynamicValue::Int8(_) => "an int8",
            DynamicValue::UInt8(_) => "a uint8",
            DynamicValue::Int16(_) => "an int16",
            DynamicValue::UInt16(_) => "a uint16",
            DynamicValue::Int32(_) => "an int32",
            DynamicValue::UInt32(_) => "a uint32",
            DynamicValue::Int64(_) => "an int64",
            DynamicValue::UInt64(_) => "a uint64",
            DynamicValue::Float32(_) => "a float",
            DynamicValue::Float64(_) => "a double",
            DynamicValue::Char8(_) => "a char",
            DynamicValue::Char16(_) => "a wchar",
            DynamicValue::String(_) => "a string",
            DynamicValue::WideString(_) => "a wstring",
            DynamicValue::Bytes(_) => "bytes",
            DynamicValue::Elements(_) => "a sequence or an array",
            DynamicValue::Map(_) => "a map",
            DynamicValue::Struct(_) => "a structure",
            DynamicValue::Union(..) => "a union",
            DynamicValue::Enum(..) => "a literal",
            DynamicValue::Bitmask(_) => "a bit mask",
        }
    }

    /// Returns the integer of a discriminator.
    pub(crate) fn as_label(&self) -> Option<i64> {
        Some(match self {
            DynamicValue::Boolean(value) => i64::from(*value),
            DynamicValue::Octet(value) | DynamicValue::UInt8(value) | DynamicValue::Char8(value) => i64::from(*value),
            DynamicValue::Int8(value) => i64::from(*value),
            DynamicValue::Int16(value) => i64::from(*value),
            DynamicValue::UInt16(value) | DynamicValue::Char16(value) => i64::from(*value),
            DynamicValue::Int32(value) | DynamicValue::Enum(value, _) => i64::from(*value),
            DynamicValue::UInt32(value) => i64::from(*value),
            DynamicValue::Int64(value) => *value,
            DynamicValue::UInt64(value) => *value as i64,
            _ => return None,
        })
    }

    /// Returns a member of a structure; `None` if it is absent.
    pub fn member(&self, name: &str) -> Option<&DynamicValue> {
        match self {
            DynamicValue::Struct(members) => members.iter().find(|(own, _)| own == name).map(|(_, value)| value),
            DynamicValue::Union(_, Some((own, value))) if own == name => Some(value),
            _ => None,
        }
    }

    /// Returns the value at a path such as `points[3].x`; `None` if there is none.
    pub fn at(&self, path: &str) -> Option<&DynamicValue> {
        path.split(['.', '[']).filter(|step| !step.is_empty()).try_fold(self, |value, step| {
            match (value, step.strip_suffix(']')) {
                (DynamicValue::Elements(elements), Some(index)) => elements.get(index.parse::<usize>().ok()?),
                _ => value.member(step),
            }
        })
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            DynamicValue::Boolean(value) => write!(f, "{value}"),
            DynamicValue::Octet(value) | DynamicValue::UInt8(value) => write!(f, "{value}"),
            DynamicValue::Int8(value) => write!(f, "{value}"),
            DynamicValue::Int16(value) => write!(f, "{value}"),
            DynamicValue::UInt16(value) => write!(f, "{value}"),
            DynamicValue::Int32(value) => write!(f, "{value}"),
            DynamicValue::UInt32(value) => write!(f, "{value}"),
            DynamicValue::Int64(value) => write!(f, "{value}"),
            DynamicValue::UInt64(value) => write!(f, "{value}"),
            DynamicValue::Float32(value) => write!(f, "{value}"),
            DynamicValue::Float64(value) => write!(f, "{value}"),
            DynamicValue::Char8(value) => write!(f, "'{}'", value.escape_ascii()),
            DynamicValue::Char16(value) => match char::from_u32((*value).into()) {
                Some(char) => write!(f, "{char:?}"),
                None => write!(f, "'\\u{{{value:x}}}'"),
            },
            DynamicValue::String(text) | DynamicValue::WideString(text) => write!(f, "{text:?}"),
            DynamicValue::Bytes(bytes) => {
                f.write_str("x\"")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_char('"')
            }
            DynamicValue::Enum(_, name) => f.write_str(name),
            DynamicValue::Bitmask(bits) => write!(f, "{bits:#x}"),
            DynamicValue::Elements(elements) => {
                list(f, depth, ['[', ']'], elements.iter(), |f, element| element.print(f, depth + 1))
            }
            DynamicValue::Map(entries) => list(f, depth, ['{', '}'], entries.iter(), |f, (key, value)| {
                key.print(f, depth + 1)?;
                f.write_str(": ")?;
                value.print(f, depth + 1)
            }),
            DynamicValue::Struct(members) => list(f, depth, ['{', '}'], members.iter(), |f, (name, value)| {
                write!(f, "{name}: ")?;
                value.print(f, depth + 1)
            }),
            DynamicValue::Union(discriminator, member) => {
                discriminator.print(f, depth)?;
                let Some((name, value)) = member else { return Ok(()) };
                write!(f, " => {name}: ")?;
                value.print(f, depth)
            }
        }
    }
}

/// Prints a list on one line, or with `{:#}` each entry on a line of its own.
fn list<T>(
    f: &mut fmt::Formatter<'_>,
    depth: usize,
    [open, close]: [char; 2],
    entries: impl ExactSizeIterator<Item = T>,
    mut print: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    let broken = f.alternate() && entries.len() > 0;
    f.write_char(open)?;
    for (index, entry) in entries.enumerate() {
        match (broken, index) {
            (true, _) => write!(f, "{}\n{:width$}", if index > 0 { "," } else { "" }, "", width = 4 * (depth + 1))?,
            (false, 0) => {}
            (false, _) => f.write_str(", ")?,
        }
        print(f, entry)?;
    }
    if broken {
        write!(f, "\n{:width$}", "", width = 4 * depth)?;
    }
    f.write_char(close)
}

/// Prints the value as IDL would write it, on one line. `{:#}` prints each member on its own line.
impl fmt::Display for DynamicValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, 0)
    }
}
