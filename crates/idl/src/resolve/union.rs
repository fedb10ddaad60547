//! Unions.
use super::annotations::{Annotations, Target};
use super::scope::ScopeId;
use super::{ModuleRules, Resolver};
use crate::error::Checked;
use crate::fault::{IdlFault, IdlNotice};
use crate::limits::{ERRORS_MAX, MEMBERS_MAX};
use crate::model::{DataType, Extensibility, ItemKind, Primitive, UnionCase, UnionItem, Value};
use crate::source::Place;
use crate::syntax::{Case, Definition, DefinitionKind, Name};
use std::collections::BTreeMap;

impl Resolver<'_> {
    pub(super) fn union(&mut self, scope: ScopeId, definition: &Definition, rules: ModuleRules) -> Checked<()> {
        let DefinitionKind::Union { name, switch, discriminator, cases } = &definition.kind else { return Ok(()) };
        let read = self.annotations(scope, &definition.annotations, Target::Union);
        let id = self.begin(scope, name, &definition.docs, "union")?;
        let extensibility = read.extensibility.map_or(self.default_extensibility, |(value, ..)| value);
        if extensibility == Extensibility::Mutable {
            let place = read.extensibility.map_or(name.place, |(_, _, place)| place);
            self.fault(place, IdlFault::MutableUnion { name: name.text.clone() });
        }
        let nested = read.nested.unwrap_or(rules.nested);
        let switch = self.annotations(scope, switch, Target::Discriminator);
        let place = discriminator.place;
        let discriminator = self.data_type(scope, discriminator)?;
        let Some(values) = self.values(&discriminator) else {
            return Err((place, IdlFault::Discriminator { kind: self.model.name_of(&discriminator) }));
        };
        let mut own = UnionItem {
            discriminator,
            discriminator_is_key: switch.key.is_some(),
            extensibility,
            nested,
            has_no_member: false,
            cases: Vec::new(),
        };
        let (mut labels, mut names) = (Vec::new(), BTreeMap::new());
        for case in cases {
            if self.faults.len() >= ERRORS_MAX {
                break;
            }
            let result = self.case(scope, case, &own, &mut labels);
            let Some(made) = self.keep(result) else { continue };
            let key = made.name.to_ascii_lowercase();
            if let Some((other, first)) = names.insert(key, (made.name.clone(), made.place)) {
                let fault = super::scope::twice(&made.name, made.place, &other, first, self.sources);
                self.fault(made.place, fault);
            }
            own.cases.push(made);
        }
        self.check_cases(name, &mut own, labels.len() as u64, values, cases.is_empty());
        self.define(id, ItemKind::Union(own));
        Ok(())
    }

    fn check_cases(&mut self, name: &Name, own: &mut UnionItem, labels: u64, values: u64, is_empty: bool) {
        let defaults: Vec<Place> = own.cases.iter().filter(|case| case.default).map(|case| case.place).collect();
        if let Some(second) = defaults.get(1) {
            self.fault(*second, IdlFault::DefaultTwice);
        }
        own.has_no_member = defaults.is_empty() && labels < values;
        if let (Some(place), true) = (defaults.first(), labels >= values) {
            self.fault(*place, IdlFault::DefaultUnreachable);
        }
        if is_empty {
            self.fault(name.place, IdlFault::Empty { what: "the union" });
        }
        if own.cases.len() > MEMBERS_MAX || labels > MEMBERS_MAX as u64 {
            let (what, limit) = ("members or labels", MEMBERS_MAX);
            self.fault(name.place, IdlFault::TooMany { what, limit, remedy: "use a union in a union" });
        }
    }

    /// Returns how many values a discriminator has; `None` if the type is no discriminator.
    fn values(&self, data: &DataType) -> Option<u64> {
        match self.model.resolved(data) {
            DataType::Primitive(Primitive::Boolean) => Some(2),
            DataType::Primitive(Primitive::Char | Primitive::Octet | Primitive::Int8 | Primitive::UInt8) => Some(256),
            DataType::Primitive(primitive) => primitive.range().map(|_| u64::MAX),
            DataType::Named(id) => match &self.model.item(*id).kind {
                ItemKind::Enum(own) => Some(own.literals.len() as u64),
                _ => None,
            },
            _ => None,
        }
    }

    fn case(&mut self, scope: ScopeId, case: &Case, own: &UnionItem, all: &mut Vec<Value>) -> Checked<UnionCase> {
        let read = self.annotations(scope, &case.annotations, Target::Case);
        self.refuse(&read, own)?;
        let (mut labels, mut default) = (Vec::new(), false);
        for (place, label) in &case.labels {
            let Some(label) = label else {
                if std::mem::replace(&mut default, true) {
                    return Err((*place, IdlFault::DefaultTwice));
                }
                continue;
            };
            let value = self.value(scope, label, &own.discriminator)?;
            if let Value::Integer(number) = value
                && i32::try_from(number).is_err()
                && u32::try_from(number).is_err()
            {
                return Err((label.place, IdlFault::LabelRange { label: number.to_string() }));
            }
            if all.contains(&value) {
                return Err((label.place, IdlFault::LabelTwice { label: self.shown(&value) }));
            }
            all.push(value.clone());
            labels.push(value);
        }
        let name = &case.declarator.name;
        let data = self.data_type(scope, &case.data)?;
        let data = self.dimensions(scope, data, &case.declarator)?;
        self.check_bounds(&data, case.data.place)?;
        let (name, place) = (name.text.clone(), name.place);
        Ok(UnionCase { name, place, docs: case.docs.clone(), labels, default, data, external: read.external })
    }

    /// Refuses annotations that a member of a union can't have.
    fn refuse(&mut self, read: &Annotations<'_>, own: &UnionItem) -> Checked<()> {
        if let Some(place) = read.key {
            let discriminator = self.model.name_of(&own.discriminator);
            return Err((place, IdlFault::KeyInUnion { discriminator }));
        }
        if let Some(default) = read.default {
            let (name, reason) = ("default".to_owned(), "the members of a union have the default of their type");
            self.notice(default.place, IdlNotice::AnnotationIgnored { name, reason });
        }
        let reason = "the encoding of a union has no identifiers, which are its positions here";
        if let Some((_, place)) = read.id {
            self.notice(place, IdlNotice::AnnotationIgnored { name: "id".to_owned(), reason });
        }
        if let Some((_, place)) = read.hash_id {
            self.notice(place, IdlNotice::AnnotationIgnored { name: "hashid".to_owned(), reason });
        }
        Ok(())
    }

    /// Returns a label in words.
    fn shown(&self, value: &Value) -> String {
        match value {
            Value::Integer(value) => value.to_string(),
            Value::Boolean(value) => if *value { "TRUE" } else { "FALSE" }.to_owned(),
            Value::Character(value) => format!("'{}'", value.escape_ascii()),
            Value::Literal(id, index) => match &self.model.item(*id).kind {
                ItemKind::Enum(own) => own.literals[*index].name.clone(),
                _ => String::new(),
            },
            _ => String::new(),
        }
    }
}
