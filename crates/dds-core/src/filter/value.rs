//! Values of fields and constants, and how they compare.
use super::error::FilterFault;
use super::lexer::{RelOp, Token, number};
use super::parser::Literal;
use spindle_xcdr::{DataType, EnumType, FieldValue, PrimitiveKind, TypeBody, TypeDescription};
use std::cmp::Ordering;

/// The kind of a field, which decides about its comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Boolean,
    Integer,
    Float32,
    Float64,
    Character,
    Text,
    Enum,
}

impl FieldKind {
    pub(super) fn of(types: &TypeDescription, data: &DataType) -> FieldKind {
        match data {
            DataType::Primitive(PrimitiveKind::Boolean) => FieldKind::Boolean,
            DataType::Primitive(PrimitiveKind::Float32) => FieldKind::Float32,
            DataType::Primitive(PrimitiveKind::Float64) => FieldKind::Float64,
            DataType::Primitive(PrimitiveKind::Char8 | PrimitiveKind::Char16) => FieldKind::Character,
            DataType::String(_) | DataType::WideString(_) => FieldKind::Text,
            DataType::Named(_) if enumeration(types, data).is_some() => FieldKind::Enum,
            _ => FieldKind::Integer,
        }
    }

    const fn is_text(self) -> bool {
        matches!(self, FieldKind::Character | FieldKind::Text)
    }

    const fn is_number(self) -> bool {
        matches!(self, FieldKind::Integer | FieldKind::Float32 | FieldKind::Float64 | FieldKind::Enum)
    }

    /// Returns whether fields of both kinds compare.
    pub(super) fn compares_with(self, other: FieldKind) -> bool {
        self == other || self.is_number() && other.is_number() || self.is_text() && other.is_text()
    }
}

pub(super) fn enumeration<'t>(types: &'t TypeDescription, data: &DataType) -> Option<&'t EnumType> {
    match data {
        DataType::Named(index) => match &types.get(*index)?.body {
            TypeBody::Enum(own) => Some(own),
            _ => None,
        },
        _ => None,
    }
}

/// A value that is compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Boolean(bool),
    Integer(i128),
    Float(f64),
    Character(char),
    Text(std::borrow::Cow<'a, str>),
}

impl<'a> From<&'a FieldValue<'_>> for Value<'a> {
    fn from(value: &'a FieldValue<'_>) -> Value<'a> {
        match value {
            FieldValue::Boolean(value) => Value::Boolean(*value),
            FieldValue::Signed(value) => Value::Integer((*value).into()),
            FieldValue::Unsigned(value) => Value::Integer((*value).into()),
            FieldValue::Float(value) => Value::Float(*value),
            FieldValue::Char(value) => Value::Character(char::from_u32(*value).unwrap_or(char::REPLACEMENT_CHARACTER)),
            FieldValue::String(text) => Value::Text(text.as_ref().into()),
            FieldValue::Enum(value) => Value::Integer((*value).into()),
        }
    }
}

impl Value<'_> {
    pub(super) fn into_owned(self) -> Value<'static> {
        match self {
            Value::Boolean(value) => Value::Boolean(value),
            Value::Integer(value) => Value::Integer(value),
            Value::Float(value) => Value::Float(value),
            Value::Character(value) => Value::Character(value),
            Value::Text(text) => Value::Text(text.into_owned().into()),
        }
    }

    /// Returns the order of two values; `None` with NaN, and for kinds that don't compare.
    pub(super) fn order(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Boolean(left), Value::Boolean(right)) => Some(left.cmp(right)),
            (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
            (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
            (Value::Integer(left), Value::Float(right)) => integer_to_float(*left, *right),
            (Value::Float(left), Value::Integer(right)) => integer_to_float(*right, *left).map(Ordering::reverse),
            (Value::Character(left), Value::Character(right)) => Some(left.cmp(right)),
            (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
            (Value::Character(left), Value::Text(right)) => Some([*left].into_iter().cmp(right.chars())),
            (Value::Text(left), Value::Character(right)) => Some(left.chars().cmp([*right])),
            _ => None,
        }
    }

    /// Returns whether a relation holds. With NaN only `<>` does.
    pub(super) fn relates(&self, operator: RelOp, other: &Value<'_>) -> bool {
        let order = self.order(other);
        match operator {
            RelOp::Equal => order == Some(Ordering::Equal),
            RelOp::NotEqual => order != Some(Ordering::Equal),
            RelOp::Less => order == Some(Ordering::Less),
            RelOp::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            RelOp::Greater => order == Some(Ordering::Greater),
            RelOp::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            RelOp::Like | RelOp::Match => false,
        }
    }
}

/// Compares without rounding: integers above 2^53 have no exact floating-point number.
fn integer_to_float(left: i128, right: f64) -> Option<Ordering> {
    const LIMIT: f64 = (1_u128 << 100) as f64;
    if right.is_nan() {
        return None;
    }
    if right.abs() >= LIMIT {
        return Some(if right > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = right.trunc();
    Some(left.cmp(&(whole as i128)).then(0.0_f64.partial_cmp(&(right - whole))?))
}

/// Makes the value that a literal has beside a field of this kind; `None` if they don't compare.
pub(super) fn convert(
    literal: &Literal,
    kind: FieldKind,
    literals: Option<(&str, &EnumType)>,
) -> Result<Option<Value<'static>>, FilterFault> {
    Ok(match (kind, literal) {
        (FieldKind::Boolean, Literal::Boolean(value)) => Some(Value::Boolean(*value)),
        (FieldKind::Boolean, Literal::Integer(value @ (0 | 1))) => Some(Value::Boolean(*value == 1)),
        (FieldKind::Integer | FieldKind::Float64 | FieldKind::Float32, Literal::Integer(value)) => {
            Some(Value::Integer(*value))
        }
        (FieldKind::Integer | FieldKind::Float64, Literal::Float(value)) => Some(Value::Float(*value)),
        // The field holds the nearest `float` to 0.1, so that is what 0.1 means beside it.
        (FieldKind::Float32, Literal::Float(value)) => Some(Value::Float((*value as f32).into())),
        (FieldKind::Character, Literal::Text(text)) => {
            let mut chars = text.chars();
            chars.next().filter(|_| chars.next().is_none()).map(Value::Character)
        }
        (FieldKind::Text, Literal::Text(text)) => Some(Value::Text(text.clone().into())),
        (FieldKind::Enum, Literal::Integer(value)) => Some(Value::Integer(*value)),
        (FieldKind::Enum, Literal::Text(name)) => {
            let Some((of, own)) = literals else { return Ok(None) };
            let plain = name.rsplit("::").next().unwrap_or(name);
            match own.literals.iter().find(|literal| literal.name == plain) {
                Some(literal) => Some(Value::Integer(literal.value.into())),
                None => {
                    let names: Vec<&str> = own.literals.iter().map(|literal| literal.name.as_str()).collect();
                    let (of, name) = (of.to_owned(), name.clone());
                    return Err(FilterFault::Literal { of, name, literals: names.join(", ") });
                }
            }
        }
        _ => None,
    })
}

/// Reads a parameter as the literal that a field of this kind needs. Texts may be quoted.
pub(super) fn parameter(text: &str, kind: FieldKind) -> Literal {
    let trimmed = text.trim();
    let quoted = trimmed.strip_prefix(['\'', '`']).and_then(|rest| rest.strip_suffix('\''));
    if let Some(inner) = quoted {
        return Literal::Text(inner.replace("''", "'"));
    }
    if !kind.is_text() {
        match number(trimmed) {
            Some(Token::Integer(value)) => return Literal::Integer(value),
            Some(Token::Float(value)) => return Literal::Float(value),
            _ => {}
        }
        if kind == FieldKind::Boolean && (trimmed.eq_ignore_ascii_case("true") || trimmed.eq_ignore_ascii_case("false"))
        {
            return Literal::Boolean(trimmed.eq_ignore_ascii_case("true"));
        }
    }
    Literal::Text(text.to_owned())
}
