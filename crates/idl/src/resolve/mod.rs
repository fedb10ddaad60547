//! Resolves names and values: makes the [`Model`] from syntax trees.
//!
//! [`Resolver`] goes through the definitions in their order, so a name is known from its definition
//! on, or from a declaration before. It collects faults and continues with the next definition.
mod annotations;
mod compound;
mod constants;
mod enumeration;
mod keylist;
mod recursion;
mod scope;
pub(crate) mod types;
mod union;

use crate::error::{Checked, Found};
use crate::fault::{IdlFault, IdlNotice};
use crate::limits::ERRORS_MAX;
use crate::model::{DataType, Extensibility, Item, ItemId, ItemKind, Model};
use crate::source::{Place, Sources};
use crate::syntax::{Annotation, Declarator, Definition, DefinitionKind, Expression, Name, TypeSpec};
pub(crate) use types::bounds;

use annotations::Target;
use keylist::Keylists;
use scope::{Entry, ScopeId, Scopes, at};
use std::collections::{BTreeMap, BTreeSet};

/// The rules of a module for the types in it.
#[derive(Clone, Copy, Debug, Default)]
struct ModuleRules {
    nested: bool,
    autoid_hash: bool,
}

/// Resolves the input files of a compilation, one after the other.
pub(crate) struct Resolver<'a> {
    sources: &'a Sources,
    default_extensibility: Extensibility,
    model: Model,
    scopes: Scopes,
    /// The definitions, by the place of their first name: the input file and the hash of the text.
    seen: BTreeMap<Place, (usize, u64)>,
    declared_annotations: BTreeSet<String>,
    keylists: Keylists,
    pub(crate) faults: Vec<Found<IdlFault>>,
    pub(crate) notices: Vec<Found<IdlNotice>>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(sources: &'a Sources, default_extensibility: Extensibility) -> Resolver<'a> {
        Resolver {
            sources,
            default_extensibility,
            model: Model::default(),
            scopes: Scopes::new(),
            seen: BTreeMap::new(),
            declared_annotations: BTreeSet::new(),
            keylists: Keylists::default(),
            faults: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Resolves the definitions of an input file with its includes.
    pub(crate) fn unit(&mut self, definitions: &[Definition]) {
        self.declared_annotations.clear();
        self.definitions(0, definitions, ModuleRules::default());
        self.scopes.unit += 1;
    }

    /// Checks what needs all definitions, and returns the model.
    pub(crate) fn finish(mut self) -> (Model, Vec<Found<IdlFault>>, Vec<Found<IdlNotice>>) {
        if self.faults.is_empty() {
            let items = self.model.items.iter().filter(|item| matches!(item.kind, ItemKind::Undefined(_)));
            self.faults = items.map(|item| (item.place, IdlFault::Undefined { name: item.dds_name() })).collect();
        }
        if self.faults.is_empty() {
            self.faults = recursion::check(&self.model);
        }
        (self.model, self.faults, self.notices)
    }

    fn fault(&mut self, place: Place, fault: IdlFault) {
        self.faults.push((place, fault));
    }

    fn notice(&mut self, place: Place, notice: IdlNotice) {
        self.notices.push((place, notice));
    }

    /// Keeps a fault, and returns the value if there is none.
    fn keep<T>(&mut self, result: Checked<T>) -> Option<T> {
        result.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn definitions(&mut self, scope: ScopeId, definitions: &[Definition], rules: ModuleRules) {
        for definition in definitions {
            if self.faults.len() >= ERRORS_MAX {
                return;
            }
            if let Err(fault) = self.definition(scope, definition, rules) {
                self.faults.push(fault);
            }
        }
    }

    fn definition(&mut self, scope: ScopeId, definition: &Definition, rules: ModuleRules) -> Checked<()> {
        if let DefinitionKind::Module(name, inner) = &definition.kind {
            return self.module(scope, name, &definition.annotations, inner, rules);
        }
        if self.is_repeated(scope, definition)? {
            return Ok(());
        }
        let list = definition.annotations.as_slice();
        match &definition.kind {
            DefinitionKind::Module(..) => {}
            DefinitionKind::Forward(name, kind) => {
                self.annotations(scope, list, Target::Forward);
                self.forward(scope, name, kind)?;
            }
            DefinitionKind::Struct { name, base, members } => {
                self.structure(scope, definition, name, base.as_ref(), members, rules)?;
            }
            DefinitionKind::Union { .. } => self.union(scope, definition, rules)?,
            DefinitionKind::Enum(name, literals) => self.enumeration(scope, definition, name, literals)?,
            DefinitionKind::Bitmask(name, bits) => self.bitmask(scope, definition, name, bits)?,
            DefinitionKind::Typedef(data, declarators) => self.typedef(scope, definition, data, declarators)?,
            DefinitionKind::Constant(data, name, value) => self.constant(scope, definition, data, name, value)?,
            DefinitionKind::Keylist(name, paths) => self.keylist(scope, name, paths)?,
            DefinitionKind::Annotation(name) => {
                self.declared_annotations.insert(name.text.clone());
            }
        }
        Ok(())
    }

    fn module(
        &mut self,
        scope: ScopeId,
        name: &Name,
        annotations: &[Annotation],
        inner: &[Definition],
        rules: ModuleRules,
    ) -> Checked<()> {
        let read = self.annotations(scope, annotations, Target::Module);
        let rules = ModuleRules {
            nested: read.default_nested.unwrap_or(rules.nested),
            autoid_hash: read.autoid_hash.unwrap_or(rules.autoid_hash),
        };
        let opened = self.scopes.open(scope, name, self.sources)?;
        self.definitions(opened, inner, rules);
        Ok(())
    }

    /// Returns whether another input file has included the same definition. Its names are known then.
    fn is_repeated(&mut self, scope: ScopeId, definition: &Definition) -> Checked<bool> {
        let names: Vec<&Name> = match &definition.kind {
            DefinitionKind::Forward(name, _)
            | DefinitionKind::Struct { name, .. }
            | DefinitionKind::Union { name, .. }
            | DefinitionKind::Bitmask(name, _)
            | DefinitionKind::Constant(_, name, _) => vec![name],
            DefinitionKind::Enum(name, literals) => {
                std::iter::once(name).chain(literals.iter().map(|literal| &literal.name)).collect()
            }
            DefinitionKind::Typedef(_, declarators) => declarators.iter().map(|inner| &inner.name).collect(),
            DefinitionKind::Keylist(name, _) => name.parts.iter().take(1).collect(),
            DefinitionKind::Module(..) | DefinitionKind::Annotation(_) => return Ok(false),
        };
        let (Some(first), unit) = (names.first(), self.scopes.unit) else { return Ok(false) };
        match self.seen.get(&first.place) {
            Some((before, digest)) if *before != unit => {
                if *digest != definition.digest {
                    let (name, first_at) = (first.text.clone(), at(first.place, self.sources));
                    return Err((first.place, IdlFault::Diverges { name, first: first_at }));
                }
                for name in names {
                    self.scopes.touch(scope, &name.text);
                }
                Ok(true)
            }
            Some(_) => Ok(false),
            None => {
                self.seen.insert(first.place, (unit, definition.digest));
                Ok(false)
            }
        }
    }

    /// Adds an item under its name.
    fn add(&mut self, scope: ScopeId, name: &Name, docs: &[String], kind: ItemKind) -> Checked<ItemId> {
        let id = ItemId(self.model.items.len() as u32);
        self.scopes.declare(scope, name, Entry::Item(id), self.sources)?;
        let modules = self.scopes.path(scope).to_vec();
        let (name, place) = (name.text.clone(), name.place);
        let is_defined = !matches!(kind, ItemKind::Undefined(_));
        self.model.items.push(Item { modules, name, place, docs: docs.to_vec(), kind });
        if is_defined {
            self.model.order.push(id);
        }
        Ok(id)
    }

    /// Declares a structure or union, again if it is known as one.
    fn forward(&mut self, scope: ScopeId, name: &Name, kind: &'static str) -> Checked<ItemId> {
        let Some((Entry::Item(id), first)) = self.scopes.own(scope, &name.text) else {
            return self.add(scope, name, &[], ItemKind::Undefined(kind));
        };
        let declared = match &self.model.item(id).kind {
            ItemKind::Struct(_) => "structure",
            ItemKind::Union(_) => "union",
            ItemKind::Undefined(declared) => declared,
            _ => return self.add(scope, name, &[], ItemKind::Undefined(kind)),
        };
        if declared == kind {
            self.scopes.touch(scope, &name.text);
            return Ok(id);
        }
        let (name_text, first) = (name.text.clone(), at(first, self.sources));
        Err((name.place, IdlFault::DeclaredAs { name: name_text, declared, first }))
    }

    /// Makes the item of a structure or union that is defined here.
    fn begin(&mut self, scope: ScopeId, name: &Name, docs: &[String], kind: &'static str) -> Checked<ItemId> {
        if let Some((Entry::Item(id), first)) = self.scopes.own(scope, &name.text)
            && matches!(self.model.item(id).kind, ItemKind::Struct(_) | ItemKind::Union(_))
        {
            return Err((name.place, scope::twice(&name.text, name.place, &name.text, first, self.sources)));
        }
        let id = self.forward(scope, name, kind)?;
        let item = &mut self.model.items[id.0 as usize];
        (item.place, item.docs) = (name.place, docs.to_vec());
        Ok(id)
    }

    /// Completes the item of a structure or union.
    fn define(&mut self, id: ItemId, kind: ItemKind) {
        self.model.items[id.0 as usize].kind = kind;
        self.model.order.push(id);
    }

    fn typedef(
        &mut self,
        scope: ScopeId,
        definition: &Definition,
        data: &TypeSpec,
        declarators: &[Declarator],
    ) -> Checked<()> {
        self.annotations(scope, &definition.annotations, Target::Typedef);
        let data = self.data_type(scope, data)?;
        for declarator in declarators {
            let data = self.dimensions(scope, data.clone(), declarator)?;
            self.add(scope, &declarator.name, &definition.docs, ItemKind::Alias(data))?;
        }
        Ok(())
    }

    fn constant(
        &mut self,
        scope: ScopeId,
        definition: &Definition,
        data: &TypeSpec,
        name: &Name,
        value: &Expression,
    ) -> Checked<()> {
        self.annotations(scope, &definition.annotations, Target::Constant);
        let place = data.place;
        let data = self.data_type(scope, data)?;
        let is_simple = match self.model.resolved(&data) {
            DataType::Primitive(_) | DataType::String(_) | DataType::WideString(_) => true,
            DataType::Named(id) => matches!(self.model.item(*id).kind, ItemKind::Enum(_) | ItemKind::Bitmask(_)),
            DataType::Sequence(..) | DataType::Array(..) => false,
        };
        if !is_simple {
            return Err((place, IdlFault::ConstantType { kind: self.model.name_of(&data) }));
        }
        let value = self.value(scope, value, &data)?;
        self.add(scope, name, &definition.docs, ItemKind::Constant(data, value))?;
        Ok(())
    }
}
