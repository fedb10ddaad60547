//! The modules of the output, and the paths of items between them.
use super::names::{Given, Style};
use crate::model::{ItemId, ItemKind, Model};
use std::collections::BTreeMap;

/// A module of the output, or what is outside of all.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Its name in Rust.
    pub(super) name: String,
    pub(super) entries: Vec<Entry>,
}

/// A part of a module.
#[derive(Debug)]
pub(super) enum Entry {
    Item(ItemId),
    /// The name in IDL.
    Module(String, Module),
}

/// The names of items and modules in Rust.
#[derive(Debug, Default)]
pub(super) struct Paths {
    items: BTreeMap<ItemId, (Vec<String>, String)>,
}

/// Makes the tree of modules, and gives names to all items.
pub(super) fn modules(model: &Model) -> (Module, Paths) {
    let mut root = Module::default();
    for (id, item) in model.items() {
        let mut at = &mut root;
        for name in &item.modules {
            at = inner(at, name);
        }
        at.entries.push(Entry::Item(id));
    }
    let mut paths = Paths::default();
    give_names(model, &mut root, &mut paths, &[]);
    (root, paths)
}

fn inner<'a>(module: &'a mut Module, name: &str) -> &'a mut Module {
    let known = module.entries.iter().position(|entry| matches!(entry, Entry::Module(own, _) if own == name));
    let index = known.unwrap_or_else(|| {
        module.entries.push(Entry::Module(name.to_owned(), Module::default()));
        module.entries.len() - 1
    });
    match &mut module.entries[index] {
        Entry::Module(_, inner) => inner,
        Entry::Item(_) => unreachable!("the entry is a module"),
    }
}

fn give_names(model: &Model, module: &mut Module, paths: &mut Paths, path: &[String]) {
    let all: Vec<(String, Style)> = module
        .entries
        .iter()
        .map(|entry| match entry {
            Entry::Module(name, _) => (name.clone(), Style::Module),
            Entry::Item(id) => {
                let item = model.item(*id);
                let style = if matches!(item.kind, ItemKind::Constant(..)) { Style::Upper } else { Style::Camel };
                (item.name.clone(), style)
            }
        })
        .collect();
    let all: Vec<(&str, Style)> = all.iter().map(|(name, style)| (name.as_str(), *style)).collect();
    let names = Given::default().names(&all);
    for (entry, name) in module.entries.iter_mut().zip(names) {
        match entry {
            Entry::Item(id) => {
                paths.items.insert(*id, (path.to_vec(), name));
            }
            Entry::Module(_, inner) => {
                let path: Vec<_> = path.iter().cloned().chain([name.clone()]).collect();
                inner.name = name;
                give_names(model, inner, paths, &path);
            }
        }
    }
}

impl Paths {
    /// Returns the name of an item in Rust.
    pub(super) fn name(&self, id: ItemId) -> &str {
        self.items.get(&id).map_or("", |(_, name)| name)
    }

    /// Returns the path of an item from the module of another one.
    pub(super) fn path(&self, from: ItemId, to: ItemId) -> String {
        let empty = (Vec::new(), String::new());
        let (from, _) = self.items.get(&from).unwrap_or(&empty);
        let (modules, name) = self.items.get(&to).unwrap_or(&empty);
        let common = from.iter().zip(modules).take_while(|(left, right)| left == right).count();
        let up = "super::".repeat(from.len() - common);
        let down: String = modules[common..].iter().map(|module| format!("{module}::")).collect();
        format!("{up}{down}{name}")
    }

    /// Returns whether a type has a name that the output uses for one of the standard library.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.items.values().any(|(_, own)| own == name)
    }
}
