//! `#pragma keylist`, the older way to name the key of a structure.
use super::Resolver;
use super::scope::{Entry, ScopeId, nearest};
use crate::error::Checked;
use crate::fault::IdlFault;
use crate::model::{DataType, ItemId, ItemKind, StructItem};
use crate::source::Place;
use crate::syntax::ScopedName;
use std::collections::{BTreeMap, BTreeSet};

/// The members that pragmas have made keys, by their structure.
#[derive(Debug, Default)]
pub(super) struct Keylists {
    keys: BTreeMap<ItemId, BTreeSet<String>>,
}

impl Resolver<'_> {
    /// Makes keys of members. A path such as `position.x` makes `position` a key, and `x` the key of
    /// its structure, which is then the same for all others that contain it.
    pub(super) fn keylist(&mut self, scope: ScopeId, name: &ScopedName, paths: &[(Place, String)]) -> Checked<()> {
        if !self.faults.is_empty() {
            // A member may be missing because of them.
            return Ok(());
        }
        let no_type = || (name.place, IdlFault::KeylistType { name: name.text() });
        let Entry::Item(id) = self.scopes.find(scope, name, &self.model)? else { return Err(no_type()) };
        let mut keys: BTreeMap<ItemId, BTreeSet<String>> = BTreeMap::from([(id, BTreeSet::new())]);
        let mut places = BTreeMap::from([(id, name.place)]);
        for (place, path) in paths {
            let mut at = id;
            let mut parts = path.split('.').peekable();
            while let Some(part) = parts.next() {
                let ItemKind::Struct(own) = &self.model.item(at).kind else { return Err(no_type()) };
                keys.entry(at).or_default().insert(part.to_owned());
                places.entry(at).or_insert(*place);
                let data = self.key_member(own, at, part, *place)?;
                if parts.peek().is_some() {
                    at = match self.model.resolved(data) {
                        DataType::Named(inner) if matches!(self.model.item(*inner).kind, ItemKind::Struct(_)) => *inner,
                        _ => return Err((*place, IdlFault::KeylistType { name: part.to_owned() })),
                    };
                }
            }
        }
        let ItemKind::Struct(_) = self.model.item(id).kind else { return Err(no_type()) };
        for (item, keys) in keys {
            self.set_keys(item, keys).map_err(|fault| (places.get(&item).copied().unwrap_or(name.place), fault))?;
        }
        Ok(())
    }

    fn key_member<'b>(&'b self, own: &'b StructItem, id: ItemId, part: &str, place: Place) -> Checked<&'b DataType> {
        let Some(member) = own.members.iter().find(|member| member.name == part) else {
            let nearest = nearest(part, own.members.iter().map(|member| member.name.as_str()));
            let name = self.model.item(id).dds_name();
            return Err((place, IdlFault::KeylistMember { name, member: part.to_owned(), nearest }));
        };
        if member.optional {
            return Err((place, IdlFault::KeyOptional { name: part.to_owned() }));
        }
        match own.base {
            Some(base) => {
                let (name, base) = (self.model.item(id).dds_name(), self.model.item(base).dds_name());
                Err((place, IdlFault::KeyInDerived { name, base, member: part.to_owned() }))
            }
            None => Ok(&member.data),
        }
    }

    fn set_keys(&mut self, id: ItemId, keys: BTreeSet<String>) -> Result<(), IdlFault> {
        let item = &mut self.model.items[id.0 as usize];
        let name = item.dds_name();
        let ItemKind::Struct(own) = &mut item.kind else { return Ok(()) };
        let before: BTreeSet<_> = own.members.iter().filter(|member| member.key).map(|m| m.name.clone()).collect();
        let is_listed = self.keylists.keys.contains_key(&id);
        if (is_listed || !before.is_empty()) && before != keys {
            return Err(IdlFault::KeylistTwice { name });
        }
        for member in own.members.iter_mut().filter(|member| keys.contains(&member.name)) {
            member.key = true;
        }
        self.keylists.keys.insert(id, keys);
        Ok(())
    }
}
