//! Enumerations and bitmasks.
use super::Resolver;
use super::annotations::Target;
use super::scope::{Entry, ScopeId};
use crate::error::Checked;
use crate::fault::IdlFault;
use crate::limits::MEMBERS_MAX;
use crate::model::{BitmaskItem, EnumItem, EnumLiteral, ItemKind, Value};
use crate::syntax::{Definition, Enumerator, Expression, Name};
use std::collections::BTreeMap;

impl Resolver<'_> {
    pub(super) fn enumeration(
        &mut self,
        scope: ScopeId,
        definition: &Definition,
        name: &Name,
        list: &[Enumerator],
    ) -> Checked<()> {
        let read = self.annotations(scope, &definition.annotations, Target::Enum);
        let bit_bound = match read.bit_bound {
            Some(bound) => self.size(scope, bound, "the bit bound of an enumeration", 32)? as u16,
            None => 32,
        };
        self.check_count(name, list)?;
        let (low, high) = literal_range(bit_bound);
        let (mut literals, mut values, mut next) = (Vec::<EnumLiteral>::new(), BTreeMap::new(), 0_i128);
        let mut has_default = false;
        for enumerator in list {
            let read = self.annotations(scope, &enumerator.annotations, Target::Literal);
            let (name, place) = (enumerator.name.text.clone(), enumerator.name.place);
            let value = match read.value {
                Some(value) => self.integer(scope, value)?,
                None => next,
            };
            if !(i128::from(low)..=i128::from(high)).contains(&value) {
                let bits = bit_bound;
                return Err((place, IdlFault::EnumValueRange { name, value, bits, low, high }));
            }
            next = value + 1;
            if let Some(first) = values.insert(value, name.clone()) {
                let (second, value) = (name.clone(), value as i64);
                self.fault(place, IdlFault::EnumValueTwice { first, second, value });
            }
            if let Some(place) = read.default_literal
                && std::mem::replace(&mut has_default, true)
            {
                self.fault(place, IdlFault::DefaultLiteralTwice);
            }
            let default = read.default_literal.is_some();
            literals.push(EnumLiteral { name, docs: enumerator.docs.clone(), value: value as i32, default });
        }
        let id = self.add(scope, name, &definition.docs, ItemKind::Enum(EnumItem { bit_bound, literals }))?;
        // Literals are names of the scope around the enumeration.
        for (index, enumerator) in list.iter().enumerate() {
            let declared = self.scopes.declare(scope, &enumerator.name, Entry::Literal(id, index), self.sources);
            self.keep(declared);
        }
        Ok(())
    }

    pub(super) fn bitmask(
        &mut self,
        scope: ScopeId,
        definition: &Definition,
        name: &Name,
        list: &[Enumerator],
    ) -> Checked<()> {
        let read = self.annotations(scope, &definition.annotations, Target::Bitmask);
        let bit_bound = match read.bit_bound {
            Some(bound) => self.size(scope, bound, "the bit bound of a bitmask", 64)? as u16,
            None => 32,
        };
        self.check_count(name, list)?;
        let (mut bits, mut positions, mut names) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut next = 0_i128;
        for enumerator in list {
            let read = self.annotations(scope, &enumerator.annotations, Target::Bit);
            let (name, place) = (enumerator.name.text.clone(), enumerator.name.place);
            let position = match read.position {
                Some(position) => self.integer(scope, position)?,
                None => next,
            };
            if !(0..i128::from(bit_bound)).contains(&position) {
                return Err((place, IdlFault::PositionRange { name, position, bits: bit_bound }));
            }
            next = position + 1;
            let position = position as u16;
            if let Some(first) = positions.insert(position, name.clone()) {
                let second = name.clone();
                self.fault(place, IdlFault::PositionTwice { first, second, position });
            }
            if let Some((other, first)) = names.insert(name.to_ascii_lowercase(), (name.clone(), place)) {
                let fault = super::scope::twice(&name, place, &other, first, self.sources);
                self.fault(place, fault);
            }
            if matches!(name.as_str(), "self" | "Self" | "super" | "crate" | "_") {
                self.fault(place, IdlFault::BitName { name: name.clone() });
            }
            bits.push((name, position));
        }
        self.add(scope, name, &definition.docs, ItemKind::Bitmask(BitmaskItem { bit_bound, bits }))?;
        Ok(())
    }

    fn check_count(&self, name: &Name, list: &[Enumerator]) -> Checked<()> {
        let (what, limit) = ("literals", MEMBERS_MAX);
        match list.len() > MEMBERS_MAX {
            true => Err((name.place, IdlFault::TooMany { what, limit, remedy: "use an integer with constants" })),
            false => Ok(()),
        }
    }

    fn integer(&self, scope: ScopeId, expression: &Expression) -> Checked<i128> {
        match self.evaluate(scope, expression, None)? {
            Value::Integer(value) => Ok(value),
            other => Err((expression.place, super::constants::mismatch("an integer", &other))),
        }
    }
}

/// Returns the smallest and the largest value of a literal. Its encoding is an integer with a sign
/// of 8, 16 or 32 bits.
fn literal_range(bits: u16) -> (i64, i64) {
    let holder_max = match bits {
        0..=8 => i64::from(i8::MAX),
        9..=16 => i64::from(i16::MAX),
        _ => i64::from(i32::MAX),
    };
    (-(1 << (bits - 1)), ((1_i64 << bits) - 1).min(holder_max))
}
