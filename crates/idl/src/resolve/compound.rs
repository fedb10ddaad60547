//! Structures.
use super::annotations::{Annotations, Target};
use super::scope::{Entry, ScopeId};
use super::{ModuleRules, Resolver};
use crate::error::Checked;
use crate::fault::IdlFault;
use crate::limits::{ERRORS_MAX, MEMBERS_MAX, TYPE_DEPTH_MAX};
use crate::model::{DataType, Extensibility, IdFrom, ItemId, ItemKind, StructItem, StructMember, Value, hash_id};
use crate::source::Place;
use crate::syntax::{Declarator, Definition, Member, Name, ScopedName};
use std::collections::BTreeMap;

/// The largest identifier of a member (DDS-XTypes 1.3, 7.3.1.2.1.1).
const MEMBER_ID_MAX: u32 = 0x0fff_fffe;

impl Resolver<'_> {
    pub(super) fn structure(
        &mut self,
        scope: ScopeId,
        definition: &Definition,
        name: &Name,
        base: Option<&ScopedName>,
        members: &[Member],
        rules: ModuleRules,
    ) -> Checked<()> {
        let read = self.annotations(scope, &definition.annotations, Target::Struct);
        let id = self.begin(scope, name, &definition.docs, "structure")?;
        let extensibility = read.extensibility.map_or(self.default_extensibility, |(value, ..)| value);
        let nested = read.nested.unwrap_or(rules.nested);
        let autoid_hash = read.autoid_hash.unwrap_or(rules.autoid_hash);
        let mut own = StructItem { base: None, extensibility, nested, autoid_hash, members: Vec::new() };
        if let Some(base) = base {
            let found = self.base(scope, name, base, extensibility);
            own.base = self.keep(found);
        }
        let mut known: Vec<(String, u32, Place)> =
            self.model.all_members(&own).iter().map(|member| (member.name.clone(), member.id, member.place)).collect();
        let mut names: BTreeMap<String, usize> =
            known.iter().enumerate().map(|(index, (name, ..))| (name.to_ascii_lowercase(), index)).collect();
        let mut ids: BTreeMap<u32, usize> = known.iter().enumerate().map(|(index, (_, id, _))| (*id, index)).collect();
        for (member, declarator) in
            members.iter().flat_map(|member| member.declarators.iter().map(move |d| (member, d)))
        {
            let result = self.member(scope, member, declarator, &own, known.last().map(|(_, id, _)| *id));
            if self.faults.len() >= ERRORS_MAX {
                break;
            }
            let Some(made) = self.keep(result) else { continue };
            if let Some(index) = names.insert(made.name.to_ascii_lowercase(), known.len()) {
                let (other, _, first) = &known[index];
                let fault = super::scope::twice(&made.name, made.place, other, *first, self.sources);
                self.fault(made.place, fault);
            } else if let Some(index) = ids.insert(made.id, known.len()) {
                let (first, second) = (known[index].0.clone(), made.name.clone());
                self.fault(made.place, IdlFault::MemberIdTwice { first, second, id: made.id });
            }
            if let (true, Some(base)) = (made.key, base) {
                let (name, base, member) = (name.text.clone(), base.text(), made.name.clone());
                self.fault(made.place, IdlFault::KeyInDerived { name, base, member });
            }
            known.push((made.name.clone(), made.id, made.place));
            own.members.push(made);
            if known.len() > MEMBERS_MAX {
                let (what, limit) = ("members", MEMBERS_MAX);
                let remedy = "move some of them to a structure of their own";
                self.fault(name.place, IdlFault::TooMany { what, limit, remedy });
                break;
            }
        }
        self.define(id, ItemKind::Struct(own));
        Ok(())
    }

    /// Finds the base of a structure, and checks it.
    fn base(&self, scope: ScopeId, name: &Name, base: &ScopedName, extensibility: Extensibility) -> Checked<ItemId> {
        let fault = |fault| Err((base.place, fault));
        let Entry::Item(found) = self.scopes.find(scope, base, &self.model)? else {
            return fault(IdlFault::BaseKind { base: base.text() });
        };
        let id = match self.model.resolved(&DataType::Named(found)) {
            DataType::Named(id) => *id,
            _ => return fault(IdlFault::BaseKind { base: base.text() }),
        };
        match &self.model.item(id).kind {
            ItemKind::Struct(other) if other.extensibility == extensibility => {
                let (mut depth, mut above) = (1, other.base);
                while let Some(ItemKind::Struct(inner)) = above.map(|id| &self.model.item(id).kind) {
                    (depth, above) = (depth + 1, inner.base);
                }
                if depth > TYPE_DEPTH_MAX {
                    let (what, remedy) = ("bases of one structure", "use members instead of bases");
                    return fault(IdlFault::TooMany { what, limit: TYPE_DEPTH_MAX, remedy });
                }
                Ok(id)
            }
            ItemKind::Struct(other) => fault(IdlFault::BaseExtensibility {
                name: name.text.clone(),
                own: extensibility.name(),
                base: base.text(),
                other: other.extensibility.name(),
            }),
            ItemKind::Undefined("structure") => {
                fault(IdlFault::BaseUndefined { base: base.text(), name: name.text.clone() })
            }
            _ => fault(IdlFault::BaseKind { base: base.text() }),
        }
    }

    fn member(
        &mut self,
        scope: ScopeId,
        member: &Member,
        declarator: &Declarator,
        own: &StructItem,
        before: Option<u32>,
    ) -> Checked<StructMember> {
        // The annotations of several declarators are reported once.
        let is_first = std::ptr::eq(declarator, &member.declarators[0]);
        let (faults, notices) = (self.faults.len(), self.notices.len());
        let read = self.annotations(scope, &member.annotations, Target::Member);
        if !is_first {
            self.faults.truncate(faults);
            self.notices.truncate(notices);
        }
        let name = &declarator.name;
        let data = self.data_type(scope, &member.data)?;
        let data = self.dimensions(scope, data, declarator)?;
        self.check_bounds(&data, member.data.place)?;
        if let (Some(place), Some(_)) = (read.key, read.optional) {
            return Err((place, IdlFault::KeyOptional { name: name.text.clone() }));
        }
        let (id, id_from) = member_id(&read, &name.text, own.autoid_hash, before);
        if id > MEMBER_ID_MAX {
            let place = read.id.as_ref().map_or(name.place, |(_, place)| *place);
            return Err((place, IdlFault::MemberIdRange { id, limit: MEMBER_ID_MAX }));
        }
        if let (Some(_), Some((_, place))) = (&read.id, &read.hash_id) {
            let (first, second) = ("id".to_owned(), "hashid".to_owned());
            return Err((*place, IdlFault::AnnotationsExclude { first, second }));
        }
        let default = self.default(scope, &read, &name.text, &data)?;
        Ok(StructMember {
            name: name.text.clone(),
            place: name.place,
            docs: member.docs.clone(),
            data,
            id,
            id_from,
            key: read.key.is_some(),
            optional: read.optional.is_some(),
            external: read.external,
            must_understand: read.must_understand,
            default,
        })
    }

    fn default(&self, scope: ScopeId, read: &Annotations<'_>, name: &str, data: &DataType) -> Checked<Option<Value>> {
        let Some(default) = read.default else { return Ok(None) };
        if read.optional.is_some() {
            return Err((default.place, IdlFault::DefaultOptional { name: name.to_owned() }));
        }
        let has_values = match self.model.resolved(data) {
            DataType::Sequence(..) | DataType::Array(..) => false,
            DataType::Named(id) => matches!(self.model.item(*id).kind, ItemKind::Enum(_) | ItemKind::Bitmask(_)),
            _ => true,
        };
        match has_values {
            true => self.value(scope, default, data).map(Some),
            false => Err((default.place, IdlFault::DefaultType { kind: self.model.name_of(data) })),
        }
    }
}

/// Returns the identifier of a member, and how it was given.
fn member_id(read: &Annotations<'_>, name: &str, autoid_hash: bool, before: Option<u32>) -> (u32, IdFrom) {
    match (&read.id, &read.hash_id) {
        (Some((id, _)), _) => (*id, IdFrom::Number),
        (None, Some((text, _))) => {
            let hashed = if text.is_empty() { name } else { text };
            (hash_id(hashed), IdFrom::Hash(text.clone()))
        }
        (None, None) if autoid_hash => (hash_id(name), IdFrom::Rule),
        (None, None) => (before.map_or(0, |before| before + 1), IdFrom::Rule),
    }
}
