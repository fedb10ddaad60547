//! Dynamic values as JSON.
use super::encode::{array_length, is_byte, select};
use super::value::DynamicValue;
use crate::description::*;
use serde_json::{Map, Number, Value};

impl DynamicValue {
    /// Returns the value as JSON.
    ///
    /// Enumerations are the names of their literals, bit masks their bits, bytes an array of numbers.
    /// A map whose keys are strings is an object, another one an array of pairs. A union is an object
    /// with `$discriminator` and its member. Numbers that JSON lacks are the texts `NaN`, `inf` and
    /// `-inf`.
    pub fn to_json(&self) -> Value {
        match self {
            DynamicValue::Boolean(value) => Value::Bool(*value),
            DynamicValue::Octet(value) | DynamicValue::UInt8(value) => (*value).into(),
            DynamicValue::Int8(value) => (*value).into(),
            DynamicValue::Int16(value) => (*value).into(),
            DynamicValue::UInt16(value) => (*value).into(),
            DynamicValue::Int32(value) => (*value).into(),
            DynamicValue::UInt32(value) => (*value).into(),
            DynamicValue::Int64(value) => (*value).into(),
            DynamicValue::UInt64(value) => (*value).into(),
            DynamicValue::Float32(value) => float((*value).into()),
            DynamicValue::Float64(value) => float(*value),
            DynamicValue::Char8(value) => char::from(*value).to_string().into(),
            DynamicValue::Char16(value) => match char::from_u32((*value).into()) {
                Some(char) => char.to_string().into(),
                None => (*value).into(),
            },
            DynamicValue::String(text) | DynamicValue::WideString(text) => text.clone().into(),
            DynamicValue::Bytes(bytes) => bytes.clone().into(),
            DynamicValue::Elements(elements) => elements.iter().map(DynamicValue::to_json).collect(),
            DynamicValue::Map(entries) => map(entries),
            DynamicValue::Struct(members) => {
                Value::Object(members.iter().map(|(name, value)| (name.clone(), value.to_json())).collect())
            }
            DynamicValue::Union(discriminator, member) => {
                let mut object = Map::new();
                object.insert(DISCRIMINATOR.to_owned(), discriminator.to_json());
                object.extend(member.iter().map(|(name, value)| (name.clone(), value.to_json())));
                Value::Object(object)
            }
            DynamicValue::Enum(_, name) => name.clone().into(),
            DynamicValue::Bitmask(bits) => (*bits).into(),
        }
    }
}

/// The key of a union's discriminator.
const DISCRIMINATOR: &str = "$discriminator";

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

fn map(entries: &[(DynamicValue, DynamicValue)]) -> Value {
    let names = entries.iter().map(|(key, value)| match key {
        DynamicValue::String(name) | DynamicValue::WideString(name) => Some((name.clone(), value.to_json())),
        _ => None,
    });
    match names.collect::<Option<Map<_, _>>>() {
        Some(object) => Value::Object(object),
        None => entries.iter().map(|(key, value)| Value::Array(vec![key.to_json(), value.to_json()])).collect(),
    }
}

/// Why JSON is no value of a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}; expected {expected}", if .member.is_empty() { String::new() } else { format!("member {}: ", .member) })]
pub struct JsonError {
    /// The path to the member; empty for the value itself.
    pub member: String,
    /// The kind of what was found.
    pub what: String,
    /// The type, as IDL writes it, or the members that there are.
    pub expected: String,
}

impl JsonError {
    fn at(mut self, step: &str) -> JsonError {
        let dot = if self.member.is_empty() || self.member.starts_with('[') { "" } else { "." };
        self.member = format!("{step}{dot}{}", self.member);
        self
    }
}

/// Makes a value of a type from JSON in the form of [`DynamicValue::to_json`].
pub(crate) fn from_json(types: &TypeDescription, data: &DataType, json: &Value) -> Result<DynamicValue, JsonError> {
    let wrong = || JsonError {
        member: String::new(),
        what: format!("found {}", kind_of(json)),
        expected: types.name_of(data).to_string(),
    };
    let each = |element: &DataType, values: &[Value]| {
        let elements = values
            .iter()
            .enumerate()
            .map(|(index, value)| from_json(types, element, value).map_err(|error| error.at(&format!("[{index}]"))));
        let elements = elements.collect::<Result<Vec<_>, _>>()?;
        Ok(match is_byte(element) {
            true => DynamicValue::Bytes(elements.iter().map(|value| value.as_label().unwrap_or(0) as u8).collect()),
            false => DynamicValue::Elements(elements),
        })
    };
    match (data, json) {
        (DataType::Primitive(kind), _) => primitive(*kind, json).ok_or_else(wrong),
        (DataType::String(_), Value::String(text)) => Ok(DynamicValue::String(text.clone())),
        (DataType::WideString(_), Value::String(text)) => Ok(DynamicValue::WideString(text.clone())),
        (DataType::Sequence(element, _), Value::Array(values)) => each(element, values),
        (DataType::Array(element, dimensions), Value::Array(values)) => {
            if array_length(dimensions) != Some(values.len()) {
                return Err(wrong());
            }
            each(element, values)
        }
        (DataType::Map(key, value, _), Value::Object(object)) => {
            let entries = object.iter().map(|(name, json)| {
                let key = from_json(types, key, &Value::String(name.clone()))?;
                Ok((key, from_json(types, value, json).map_err(|error: JsonError| error.at(name))?))
            });
            entries.collect::<Result<_, _>>().map(DynamicValue::Map)
        }
        (DataType::Map(key, value, _), Value::Array(pairs)) => {
            let entries = pairs.iter().map(|pair| match pair.as_array().map(Vec::as_slice) {
                Some([left, right]) => Ok((from_json(types, key, left)?, from_json(types, value, right)?)),
                _ => Err(wrong()),
            });
            entries.collect::<Result<_, _>>().map(DynamicValue::Map)
        }
        (DataType::Named(index), _) => match (types.get(*index).map(|named| &named.body), json) {
            (Some(TypeBody::Struct(own)), Value::Object(object)) => structure(types, own, object),
            (Some(TypeBody::Union(own)), Value::Object(object)) => union(types, own, object).ok_or_else(wrong)?,
            (Some(TypeBody::Enum(own)), Value::String(name)) => {
                let literal = own.literals.iter().find(|literal| literal.name == *name).ok_or_else(wrong)?;
                Ok(DynamicValue::Enum(literal.value, name.clone()))
            }
            (Some(TypeBody::Enum(own)), Value::Number(number)) => {
                let value = number.as_i64().and_then(|value| i32::try_from(value).ok());
                let literal = value.and_then(|value| own.literal(value)).ok_or_else(wrong)?;
                Ok(DynamicValue::Enum(literal.value, literal.name.clone()))
            }
            (Some(TypeBody::Bitmask(_)), Value::Number(number)) => {
                number.as_u64().map(DynamicValue::Bitmask).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn kind_of(json: &Value) -> String {
    match json {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(values) => format!("an array of {}", values.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn primitive(kind: PrimitiveKind, json: &Value) -> Option<DynamicValue> {
    let int = || json.as_i64();
    let float = || match json {
        Value::String(text) => text.parse().ok(),
        json => json.as_f64(),
    };
    Some(match kind {
        PrimitiveKind::Boolean => DynamicValue::Boolean(json.as_bool()?),
        PrimitiveKind::Octet => DynamicValue::Octet(int()?.try_into().ok()?),
        PrimitiveKind::UInt8 => DynamicValue::UInt8(int()?.try_into().ok()?),
        PrimitiveKind::Int8 => DynamicValue::Int8(int()?.try_into().ok()?),
        PrimitiveKind::Int16 => DynamicValue::Int16(int()?.try_into().ok()?),
        PrimitiveKind::UInt16 => DynamicValue::UInt16(int()?.try_into().ok()?),
        PrimitiveKind::Int32 => DynamicValue::Int32(int()?.try_into().ok()?),
        PrimitiveKind::UInt32 => DynamicValue::UInt32(int()?.try_into().ok()?),
        PrimitiveKind::Int64 => DynamicValue::Int64(int()?),
        PrimitiveKind::UInt64 => DynamicValue::UInt64(json.as_u64()?),
        PrimitiveKind::Float32 => DynamicValue::Float32(float()? as f32),
        PrimitiveKind::Float64 => DynamicValue::Float64(float()?),
        PrimitiveKind::Char8 => {
            let mut chars = json.as_str()?.chars();
            let first = u8::try_from(u32::from(chars.next()?)).ok()?;
            chars.next().is_none().then_some(DynamicValue::Char8(first))?
        }
        PrimitiveKind::Char16 => match json {
            Value::String(text) => {
                let mut units = text.encode_utf16();
                let first = units.next()?;
                units.next().is_none().then_some(DynamicValue::Char16(first))?
            }
            json => DynamicValue::Char16(json.as_i64()?.try_into().ok()?),
        },
    })
}

fn structure(
    types: &TypeDescription,
    own: &StructType,
    object: &Map<String, Value>,
) -> Result<DynamicValue, JsonError> {
    let names = || own.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = object.keys().find(|key| !own.members.iter().any(|member| member.name == **key)) {
        return Err(JsonError { member: unknown.clone(), what: "no such member".to_owned(), expected: names() });
    }
    let mut members = Vec::new();
    for member in &own.members {
        match object.get(&member.name) {
            None | Some(Value::Null) if member.optional => {}
            Some(json) => {
                let value = from_json(types, &member.data, json).map_err(|error| error.at(&member.name))?;
                members.push((member.name.clone(), value));
            }
            None => {
                let expected = types.name_of(&member.data).to_string();
                return Err(JsonError { member: member.name.clone(), what: "it is missing".to_owned(), expected });
            }
        }
    }
    Ok(DynamicValue::Struct(members))
}

/// Makes a union; `None` if the discriminator is missing or selects no member that is there.
fn union(
    types: &TypeDescription,
    own: &UnionType,
    object: &Map<String, Value>,
) -> Option<Result<DynamicValue, JsonError>> {
    let discriminator = match from_json(types, &own.discriminator, object.get(DISCRIMINATOR)?) {
        Ok(discriminator) => discriminator,
        Err(error) => return Some(Err(error.at(DISCRIMINATOR))),
    };
    let case = select(own, discriminator.as_label()?)?;
    let member = match &case.data {
        Some(data) => match from_json(types, data, object.get(&case.name)?) {
            Ok(value) => Some((case.name.clone(), Box::new(value))),
            Err(error) => return Some(Err(error.at(&case.name))),
        },
        None => None,
    };
    Some(Ok(DynamicValue::Union(Box::new(discriminator), member)))
}
