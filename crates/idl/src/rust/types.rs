//! Types and values as text.
use super::Generator;
use crate::model::{DataType, ItemId, Primitive, Value};

impl Generator<'_> {
    /// Returns a type of the standard library, with its path if the model has a type of that name.
    pub(super) fn standard(&self, name: &'static str, path: &'static str) -> &'static str {
        if self.hidden.contains(&name) { path } else { name }
    }

    /// Returns a type as the item `from` writes it.
    pub(super) fn rust_type(&self, from: ItemId, data: &DataType) -> String {
        match data {
            DataType::Primitive(primitive) => rust_primitive(*primitive).to_owned(),
            DataType::String(_) => self.standard("String", "::std::string::String").to_owned(),
            DataType::WideString(_) => "::spindle_xcdr::WideString".to_owned(),
            DataType::Sequence(element, _) => {
                format!("{}<{}>", self.standard("Vec", "::std::vec::Vec"), self.rust_type(from, element))
            }
            DataType::Array(element, dimensions) => {
                let element = self.rust_type(from, element);
                dimensions.iter().rev().fold(element, |inner, length| format!("[{inner}; {length}]"))
            }
            DataType::Named(id) => self.paths.path(from, *id),
        }
    }

    /// Returns the type of a discriminator.
    pub(super) fn discriminator(&self, from: ItemId, data: &DataType) -> String {
        match self.model.resolved(data) {
            DataType::Primitive(Primitive::Octet) => "::spindle_xcdr::Octet".to_owned(),
            data => self.rust_type(from, data),
        }
    }

    /// Returns whether a type consists of octets.
    pub(super) fn is_octet(&self, data: &DataType) -> bool {
        match self.model.resolved(data) {
            DataType::Primitive(primitive) => *primitive == Primitive::Octet,
            DataType::Sequence(element, _) | DataType::Array(element, _) => self.is_octet(element),
            _ => false,
        }
    }

    /// Returns a value of a constant or a label.
    pub(super) fn constant(&self, from: ItemId, value: &Value, data: &DataType) -> String {
        match value {
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => match self.model.resolved(data) {
                DataType::Primitive(Primitive::Float) => format!("{:?}", *value as f32),
                _ => format!("{value:?}"),
            },
            Value::Boolean(value) => value.to_string(),
            Value::Character(value) => format!("::spindle_xcdr::Char8(b'{}')", value.escape_ascii()),
            Value::WideCharacter(value) => format!("::spindle_xcdr::Char16({value:#06x})"),
            Value::Text(text) | Value::WideText(text) => format!("{text:?}"),
            Value::Literal(id, index) => {
                let name = self.literals.get(id).and_then(|names| names.get(*index)).map_or("", String::as_str);
                format!("{}::{name}", self.paths.path(from, *id))
            }
            Value::Bits(id, bits) => format!("{}({bits:#x})", self.paths.path(from, *id)),
        }
    }

    /// Returns a value of a member.
    pub(super) fn default(&self, from: ItemId, value: &Value, data: &DataType) -> String {
        let constant = self.constant(from, value, data);
        let string = self.standard("String", "::std::string::String");
        match value {
            Value::Text(_) => format!("{string}::from({constant})"),
            Value::WideText(_) => format!("::spindle_xcdr::WideString({string}::from({constant}))"),
            _ => constant,
        }
    }
}

fn rust_primitive(primitive: Primitive) -> &'static str {
    match primitive {
        Primitive::Boolean => "bool",
        Primitive::Octet | Primitive::UInt8 => "u8",
        Primitive::Char => "::spindle_xcdr::Char8",
        Primitive::WideChar => "::spindle_xcdr::Char16",
        Primitive::Int8 => "i8",
        Primitive::Int16 => "i16",
        Primitive::Int32 => "i32",
        Primitive::Int64 => "i64",
        Primitive::UInt16 => "u16",
        Primitive::UInt32 => "u32",
        Primitive::UInt64 => "u64",
        Primitive::Float => "f32",
        Primitive::Double => "f64",
    }
}
