//! Expressions: their values, and whether a value fits a type.
use super::Resolver;
use super::scope::{Entry, ScopeId};
use crate::error::Checked;
use crate::fault::IdlFault;
use crate::model::{DataType, ItemKind, Model, Primitive, Value};
use crate::source::Place;
use crate::syntax::{Expression, ExpressionKind, Literal};

impl Resolver<'_> {
    /// Returns the value of an expression for a type.
    pub(super) fn value(&self, scope: ScopeId, expression: &Expression, data: &DataType) -> Checked<Value> {
        let data = self.model.resolved(data);
        let unsigned_max = match data {
            DataType::Primitive(primitive) => primitive.range().filter(|(low, _)| *low == 0).map(|(_, high)| high),
            _ => None,
        };
        let value = self.evaluate(scope, expression, unsigned_max)?;
        fit(&self.model, value, data, expression.place)
    }

    /// Returns an integer between limits; `what` says what it is for.
    pub(super) fn size(&self, scope: ScopeId, expression: &Expression, what: &'static str, limit: u64) -> Checked<u64> {
        match self.evaluate(scope, expression, None)? {
            Value::Integer(value) if (1..=limit.into()).contains(&value) => Ok(value as u64),
            Value::Integer(value) => Err((expression.place, IdlFault::Size { what, value: value.to_string(), limit })),
            other => Err((expression.place, mismatch("an integer", &other))),
        }
    }

    /// Returns the value of an expression. `unsigned_max` is the largest value of the type that it is
    /// for, if that is unsigned.
    pub(super) fn evaluate(
        &self,
        scope: ScopeId,
        expression: &Expression,
        unsigned_max: Option<i128>,
    ) -> Checked<Value> {
        let place = expression.place;
        match &expression.kind {
            ExpressionKind::Literal(literal) => Ok(match literal {
                Literal::Integer(value) => Value::Integer(*value),
                Literal::Float(value) => Value::Float(*value),
                Literal::Boolean(value) => Value::Boolean(*value),
                Literal::Character(value) => Value::Character(*value),
                Literal::WideCharacter(value) => Value::WideCharacter(*value),
                Literal::Text(value) => Value::Text(value.clone()),
                Literal::WideText(value) => Value::WideText(value.clone()),
            }),
            ExpressionKind::Name(name) => match self.scopes.find(scope, name, &self.model)? {
                Entry::Literal(id, index) => Ok(match &self.model.item(id).kind {
                    ItemKind::Bitmask(own) => Value::Bits(id, 1 << own.bits[index].1),
                    ItemKind::Alias(inner) => match self.model.resolved(inner) {
                        DataType::Named(inner) => match &self.model.item(*inner).kind {
                            ItemKind::Bitmask(own) => Value::Bits(*inner, 1 << own.bits[index].1),
                            _ => Value::Literal(*inner, index),
                        },
                        _ => Value::Literal(id, index),
                    },
                    _ => Value::Literal(id, index),
                }),
                Entry::Item(id) => match &self.model.item(id).kind {
                    ItemKind::Constant(_, value) => Ok(value.clone()),
                    other => Err((name.place, IdlFault::NoConstant { name: name.text(), kind: other.word() })),
                },
                Entry::Module(_) => Err((name.place, IdlFault::NoConstant { name: name.text(), kind: "a module" })),
            },
            ExpressionKind::Unary(operator, operand) => {
                let value = self.evaluate(scope, operand, unsigned_max)?;
                unary(operator, value, unsigned_max).map_err(|fault| (place, fault))
            }
            ExpressionKind::Binary(operator, left, right) => {
                let left = self.evaluate(scope, left, unsigned_max)?;
                let right = self.evaluate(scope, right, unsigned_max)?;
                binary(operator, left, right).map_err(|fault| (place, fault))
            }
        }
    }
}

fn unary(operator: &'static str, value: Value, unsigned_max: Option<i128>) -> Result<Value, IdlFault> {
    Ok(match (operator, value) {
        ("+", value @ (Value::Integer(_) | Value::Float(_))) => value,
        ("-", Value::Integer(value)) => Value::Integer(-value),
        ("-", Value::Float(value)) => Value::Float(-value),
        ("~", Value::Integer(value)) => Value::Integer(match unsigned_max {
            Some(max) if (0..=max).contains(&value) => value ^ max,
            _ => !value,
        }),
        (operator, value) => return Err(IdlFault::Operand { operator, operand: value.word() }),
    })
}

fn binary(operator: &'static str, left: Value, right: Value) -> Result<Value, IdlFault> {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => integers(operator, left, right).map(Value::Integer),
        (Value::Bits(id, left), Value::Bits(other, right)) if id == other => match operator {
            "|" => Ok(Value::Bits(id, left | right)),
            "&" => Ok(Value::Bits(id, left & right)),
            "^" => Ok(Value::Bits(id, left ^ right)),
            _ => Err(IdlFault::Operand { operator, operand: "bits" }),
        },
        (left, right) => {
            let float = |value: &Value| match value {
                Value::Integer(value) => Ok(*value as f64),
                Value::Float(value) => Ok(*value),
                other => Err(IdlFault::Operand { operator, operand: other.word() }),
            };
            let (left, right) = (float(&left)?, float(&right)?);
            let value = match operator {
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                "/" if right == 0.0 => return Err(IdlFault::DivisionByZero),
                "/" => left / right,
                _ => return Err(IdlFault::Operand { operator, operand: "a number with a fraction" }),
            };
            if value.is_finite() { Ok(Value::Float(value)) } else { Err(IdlFault::Overflow { operator }) }
        }
    }
}

fn integers(operator: &'static str, left: i128, right: i128) -> Result<i128, IdlFault> {
    let shift = || u32::try_from(right).ok().filter(|bits| *bits < 64);
    let value = match operator {
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "<<" => shift().and_then(|bits| left.checked_mul(1 << bits)),
        ">>" => shift().map(|bits| left >> bits),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        _ if right == 0 => return Err(IdlFault::DivisionByZero),
        "/" => left.checked_div(right),
        _ => left.checked_rem(right),
    };
    // Operands stay so small that negation can't overflow.
    value.filter(|value| value.unsigned_abs() < 1 << 100).ok_or(IdlFault::Overflow { operator })
}

/// Checks that a value fits a type without `typedef`, and converts it.
fn fit(model: &Model, value: Value, data: &DataType, place: Place) -> Checked<Value> {
    let expected = || match data {
        DataType::Named(id) => format!("a value of `{}`", model.item(*id).dds_name()),
        DataType::Primitive(primitive) if primitive.range().is_some() => "an integer".to_owned(),
        other => format!("a value of `{}`", model.name_of(other)),
    };
    let wrong = |value: &Value| Err((place, mismatch(&expected(), value)));
    match (data, value) {
        (DataType::Primitive(primitive), Value::Integer(value)) => match (primitive, primitive.range()) {
            (_, Some((low, high))) if (low..=high).contains(&value) => Ok(Value::Integer(value)),
            (_, Some((low, high))) => {
                let (low, high) = (low.to_string(), high.to_string());
                let value = value.to_string();
                Err((place, IdlFault::Range { value, kind: primitive.idl().to_owned(), low, high }))
            }
            (Primitive::Float | Primitive::Double, None) => fit(model, Value::Float(value as f64), data, place),
            _ => wrong(&Value::Integer(value)),
        },
        (DataType::Primitive(Primitive::Double), value @ Value::Float(_)) => Ok(value),
        (DataType::Primitive(Primitive::Float), Value::Float(value)) => match (value as f32).is_finite() {
            true => Ok(Value::Float(value)),
            false => {
                let (low, high) = (format!("{:e}", f32::MIN), format!("{:e}", f32::MAX));
                Err((place, IdlFault::Range { value: format!("{value:e}"), kind: "float".to_owned(), low, high }))
            }
        },
        (DataType::Primitive(Primitive::Boolean), value @ Value::Boolean(_)) => Ok(value),
        (DataType::Primitive(Primitive::Char), value @ Value::Character(_)) => Ok(value),
        (DataType::Primitive(Primitive::WideChar), value @ Value::WideCharacter(_)) => Ok(value),
        (DataType::Primitive(Primitive::WideChar), Value::Character(value)) => Ok(Value::WideCharacter(value.into())),
        (DataType::String(bound), Value::Text(text)) => within(text.len(), *bound, Value::Text(text), place),
        (DataType::WideString(bound), Value::WideText(text) | Value::Text(text)) => {
            within(text.encode_utf16().count(), *bound, Value::WideText(text), place)
        }
        (DataType::Named(id), Value::Literal(of, index)) if *id == of => Ok(Value::Literal(of, index)),
        (DataType::Named(id), Value::Bits(of, bits)) if *id == of => Ok(Value::Bits(of, bits)),
        (_, value) => wrong(&value),
    }
}

fn within(length: usize, bound: u32, value: Value, place: Place) -> Checked<Value> {
    match bound == 0 || length as u64 <= bound.into() {
        true => Ok(value),
        false => Err((
            place,
            IdlFault::Size { what: "the length of the text", value: length.to_string(), limit: bound.into() },
        )),
    }
}

pub(super) fn mismatch(expected: &str, value: &Value) -> IdlFault {
    IdlFault::ValueType { expected: expected.to_owned(), got: value.word().to_owned() }
}

impl Value {
    /// Returns what the value is, in words.
    fn word(&self) -> &'static str {
        match self {
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number with a fraction",
            Value::Boolean(_) => "a boolean",
            Value::Character(_) => "a character",
            Value::WideCharacter(_) => "a wide character",
            Value::Text(_) => "a text",
            Value::WideText(_) => "a wide text",
            Value::Literal(..) => "a literal of an enumeration",
            Value::Bits(..) => "bits of a bitmask",
        }
    }
}
