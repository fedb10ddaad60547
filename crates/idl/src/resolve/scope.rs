//! Scopes: which names are known where.
use crate::error::{Checked, Found};
use crate::fault::IdlFault;
use crate::limits::NEAREST_MAX;
use crate::model::{ItemId, ItemKind, Model};
use crate::source::{Place, Sources};
use crate::syntax::{Name, ScopedName};
use std::collections::BTreeMap;

/// A module; 0 is outside of all modules.
pub(super) type ScopeId = usize;

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Module(ScopeId),
    Item(ItemId),
    /// A literal of an enumeration or a bit of a bitmask, by its index.
    Literal(ItemId, usize),
}

#[derive(Clone, Debug)]
struct Declared {
    name: String,
    entry: Entry,
    place: Place,
    /// The input file in which the name was declared last. It is unknown in others.
    unit: usize,
}

#[derive(Clone, Debug, Default)]
struct Scope {
    parent: Option<ScopeId>,
    path: Vec<String>,
    /// By the name in lower case, since names differ otherwise.
    names: BTreeMap<String, Declared>,
}

/// All scopes.
#[derive(Clone, Debug)]
pub(super) struct Scopes {
    scopes: Vec<Scope>,
    /// The index of the input file that is resolved.
    pub(super) unit: usize,
}

impl Scopes {
    pub(super) fn new() -> Scopes {
        Scopes { scopes: vec![Scope::default()], unit: 0 }
    }

    pub(super) fn path(&self, scope: ScopeId) -> &[String] {
        &self.scopes[scope].path
    }

    /// Opens a module, again if it is known.
    pub(super) fn open(&mut self, scope: ScopeId, name: &Name, sources: &Sources) -> Checked<ScopeId> {
        let unit = self.unit;
        if let Some(known) = self.scopes[scope].names.get_mut(&name.text.to_ascii_lowercase())
            && let (Entry::Module(inner), true) = (known.entry, known.name == name.text)
        {
            known.unit = unit;
            return Ok(inner);
        }
        let inner = self.scopes.len();
        self.declare(scope, name, Entry::Module(inner), sources)?;
        let path = self.path(scope).iter().chain([&name.text]).cloned().collect();
        self.scopes.push(Scope { parent: Some(scope), path, names: BTreeMap::new() });
        Ok(inner)
    }

    /// Returns what a scope itself has under a name.
    pub(super) fn own(&self, scope: ScopeId, name: &str) -> Option<(Entry, Place)> {
        let known = self.scopes[scope].names.get(&name.to_ascii_lowercase())?;
        (known.name == name).then_some((known.entry, known.place))
    }

    /// Makes a name known that another input file declared at the same place.
    pub(super) fn touch(&mut self, scope: ScopeId, name: &str) {
        let unit = self.unit;
        if let Some(known) = self.scopes[scope].names.get_mut(&name.to_ascii_lowercase()) {
            known.unit = unit;
        }
    }

    /// Adds a name.
    ///
    /// # Errors
    /// `Twice` or `CaseOnly` if it is known.
    pub(super) fn declare(&mut self, scope: ScopeId, name: &Name, entry: Entry, sources: &Sources) -> Checked<()> {
        let key = name.text.to_ascii_lowercase();
        if let Some(known) = self.scopes[scope].names.get(&key) {
            return Err((name.place, twice(&name.text, name.place, &known.name, known.place, sources)));
        }
        let declared = Declared { name: name.text.clone(), entry, place: name.place, unit: self.unit };
        self.scopes[scope].names.insert(key, declared);
        Ok(())
    }

    /// Looks a name up, from a scope outwards.
    ///
    /// # Errors
    /// `Unknown` with the nearest name, or `Spelling`.
    pub(super) fn find(&self, scope: ScopeId, name: &ScopedName, model: &Model) -> Checked<Entry> {
        let [first, rest @ ..] = name.parts.as_slice() else { return Err(self.unknown(&[], name, name.place)) };
        let mut at = Some(if name.is_absolute { 0 } else { scope });
        let mut visible = Vec::new();
        let known = loop {
            let Some(scope) = at else { return Err(self.unknown(&visible, name, first.place)) };
            if let Some(known) = self.look(scope, &first.text) {
                break known;
            }
            visible.push(scope);
            at = self.scopes[scope].parent;
        };
        let mut entry = spelled(known, first)?;
        for part in rest {
            entry = match entry {
                Entry::Module(inner) => match self.look(inner, &part.text) {
                    Some(known) => spelled(known, part)?,
                    None => return Err(self.unknown(&[inner], name, part.place)),
                },
                Entry::Item(id) => match literals(model, id).iter().position(|literal| **literal == part.text) {
                    Some(index) => Entry::Literal(id, index),
                    None => {
                        let nearest = nearest(&part.text, literals(model, id).into_iter());
                        return Err((part.place, IdlFault::Unknown { name: name.text(), nearest }));
                    }
                },
                Entry::Literal(..) => return Err((part.place, IdlFault::Unknown { name: name.text(), nearest: None })),
            };
        }
        Ok(entry)
    }

    fn look(&self, scope: ScopeId, name: &str) -> Option<&Declared> {
        self.scopes[scope].names.get(&name.to_ascii_lowercase()).filter(|known| known.unit == self.unit)
    }

    fn unknown(&self, scopes: &[ScopeId], name: &ScopedName, place: Place) -> Found<IdlFault> {
        let part = name.parts.iter().find(|part| part.place == place).map_or("", |part| part.text.as_str());
        let known = scopes.iter().flat_map(|scope| self.scopes[*scope].names.values());
        let known = known.filter(|known| known.unit == self.unit).map(|known| known.name.as_str());
        (place, IdlFault::Unknown { name: name.text(), nearest: nearest(part, known) })
    }
}

/// Returns the names of the literals or bits of a type.
pub(super) fn literals(model: &Model, id: ItemId) -> Vec<&str> {
    match &model.item(id).kind {
        ItemKind::Enum(own) => own.literals.iter().map(|literal| literal.name.as_str()).collect(),
        ItemKind::Bitmask(own) => own.bits.iter().map(|(name, _)| name.as_str()).collect(),
        ItemKind::Alias(crate::model::DataType::Named(inner)) => match &model.item(*inner).kind {
            ItemKind::Alias(_) => Vec::new(),
            _ => literals(model, *inner),
        },
        _ => Vec::new(),
    }
}

fn spelled(known: &Declared, part: &Name) -> Checked<Entry> {
    match known.name == part.text {
        true => Ok(known.entry),
        false => Err((part.place, IdlFault::Spelling { name: part.text.clone(), known: known.name.clone() })),
    }
}

/// Returns the fault of a name that is used before.
pub(super) fn twice(name: &str, place: Place, other: &str, first_place: Place, sources: &Sources) -> IdlFault {
    let first = at(first_place, sources);
    if name != other {
        return IdlFault::CaseOnly { name: name.to_owned(), other: other.to_owned(), first };
    }
    let guard = if place == first_place { ", or write `#pragma once` into the file" } else { "" };
    IdlFault::Twice { name: name.to_owned(), first, guard }
}

/// Returns a place in words.
pub(super) fn at(place: Place, sources: &Sources) -> String {
    format!("{}:{}", sources.path(place.file).display(), place.line)
}

/// Returns the known name that is nearest, if it is near.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let distance = |other: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &other.to_lowercase());
    // Long names would make the search slow.
    if name.len() > 64 {
        return None;
    }
    let limit = name.chars().count() / 3;
    let near = known
        .take(NEAREST_MAX)
        .filter(|other| other.len().abs_diff(name.len()) <= limit)
        .map(|other| (distance(other), other));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, other)| other.to_owned())
}
