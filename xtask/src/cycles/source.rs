//! The modules of a crate, and the names that they import.
use super::graph::Imports;
use crate::files;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, ItemUse, Lit, UseTree};

/// The maximum number of re-exports between a path and the definition of its name.
const REEXPORTS_MAX: usize = 8;

/// A crate whose modules were read.
pub(super) struct Crate {
    /// The modules by their paths; the root has an empty path.
    pub(super) modules: BTreeMap<Vec<String>, Module>,
}

/// Whether imports between a file and the files of its folder count.
#[derive(Clone, Copy)]
pub(super) enum Folders {
    Ignored,
    Counted,
}

/// A module with a file of its own.
#[derive(Default)]
pub(super) struct Module {
    /// The paths that it names.
    paths: Vec<Vec<String>>,
    /// The names that it imports or re-exports, with their paths.
    names: BTreeMap<String, Vec<String>>,
}

impl Crate {
    /// Reads the modules of the crate whose root is this file.
    pub(super) fn read(root: &Path) -> Result<Crate> {
        let mut modules = BTreeMap::new();
        let dir = root.parent().context("the root of a crate is in a directory")?;
        read(root, dir, Vec::new(), &mut modules)?;
        Ok(Crate { modules })
    }

    /// Returns the modules from which each module imports, the root of the crate apart.
    pub(super) fn imports(&self, folders: Folders) -> Imports {
        let mut imports = Imports::new();
        for (at, module) in &self.modules {
            let from = imports.entry(at.join("::")).or_default();
            for path in &module.paths {
                let Some(to) = self.absolute(at, path).and_then(|path| self.resolve(path)) else { continue };
                let is_within = to.starts_with(at) || at.starts_with(&to);
                let counts = match folders {
                    Folders::Ignored => !is_within,
                    Folders::Counted => to != *at && !to.is_empty() && !at.is_empty(),
                };
                if counts {
                    from.entry(to.join("::")).or_insert_with(|| path.join("::"));
                }
            }
        }
        imports
    }

    /// Returns a path of module `at` from the root of the crate, or `None` if it leads to another
    /// crate.
    fn absolute(&self, at: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([at, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                Some([&at[..at.len().checked_sub(ups)?], &path[ups..]].concat())
            }
            _ => {
                let child = [at, std::slice::from_ref(first)].concat();
                self.modules.contains_key(&child).then(|| [at, path].concat())
            }
        }
    }

    /// Returns the module that defines the item at a path, or that contains it.
    fn resolve(&self, mut path: Vec<String>) -> Option<Vec<String>> {
        for _ in 0..REEXPORTS_MAX {
            let length = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]))?;
            let at = path[..length].to_vec();
            let imported = path.get(length).and_then(|name| self.modules[&at].names.get(name));
            let Some(imported) = imported else { return Some(at) };
            path = [self.absolute(&at, imported)?, path[length + 1..].to_vec()].concat();
        }
        None
    }
}

/// Reads the module in `file`, whose child modules have their files in `dir`.
fn read(file: &Path, dir: &Path, at: Vec<String>, modules: &mut BTreeMap<Vec<String>, Module>) -> Result<()> {
    let parsed = syn::parse_file(&files::read(file)?).with_context(|| format!("can't parse {}", file.display()))?;
    let mut module = Module::default();
    let mut children = Vec::new();
    for item in &parsed.items {
        match item {
            Item::Mod(child) if is_test(&child.attrs) => {}
            Item::Mod(child) if child.content.is_none() => children.push(child),
            item => module.visit_item(item),
        }
    }
    modules.insert(at.clone(), module);
    for child in children {
        let name = child.ident.to_string();
        let path = [&at[..], std::slice::from_ref(&name)].concat();
        let (file, dir) = match named_file(child) {
            Some(named) => (file.with_file_name(&named), file.with_file_name(named).with_file_name("")),
            None => (file_in(dir, &name), dir.join(&name)),
        };
        read(&file, &dir, path, modules)?;
    }
    Ok(())
}

fn file_in(dir: &Path, name: &str) -> PathBuf {
    let beside = dir.join(name).with_extension("rs");
    if beside.exists() { beside } else { dir.join(name).join("mod.rs") }
}

/// Returns the path in the attribute `path`, relative to the file that declares the module.
fn named_file(module: &ItemMod) -> Option<String> {
    let attribute = module.attrs.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &attribute.meta.require_name_value().ok()?.value {
        Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
        _ => None,
    }
}

/// True for `#[cfg(test)]` and `#[cfg(all(test, ..))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        let mut words = condition.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        attribute.path().is_ident("cfg") && words.find(|word| *word != "all") == Some("test")
    })
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs[..],
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.paths.push(segments);
        }
        visit::visit_path(self, path);
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) => self.import_as(&name.ident.to_string(), None, before),
            UseTree::Rename(rename) => {
                self.import_as(&rename.ident.to_string(), Some(rename.rename.to_string()), before);
            }
            UseTree::Glob(_) => self.paths.push(before.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
        }
    }

    fn import_as(&mut self, name: &str, renamed: Option<String>, before: &[String]) {
        let path = if name == "self" { before.to_vec() } else { [before, &[name.to_owned()]].concat() };
        let known_as = renamed.or_else(|| path.last().cloned());
        if let Some(known_as) = known_as {
            self.names.insert(known_as, path.clone());
        }
        self.paths.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(text: &str) -> Module {
        let mut module = Module::default();
        syn::parse_file(text).unwrap().items.iter().for_each(|item| module.visit_item(item));
        module
    }

    fn crate_of(modules: &[(&str, &str)]) -> Crate {
        let path = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Crate { modules: modules.iter().map(|(name, text)| (path(name), module(text))).collect() }
    }

    fn edges(read: &Crate) -> Vec<String> {
        let imports = read.imports(Folders::Ignored);
        imports.iter().flat_map(|(from, to)| to.keys().map(move |to| format!("{from} -> {to}"))).collect()
    }

    #[test]
    fn imports_lead_through_re_exports_to_the_module_that_defines_the_name() {
        let read = crate_of(&[
            ("", "pub use wide::Item; mod wide; mod user;"),
            ("wide", "mod deep; pub use deep::Thing as Item; pub struct Own;"),
            ("wide::deep", "pub struct Thing;"),
            ("user", "use crate::{Item, wide::Own as O}; use std::fmt;"),
        ]);
        assert_eq!(edges(&read), ["user -> wide", "user -> wide::deep"]);
    }

    #[test]
    fn a_path_in_the_code_counts_and_one_in_a_test_does_not() {
        let read = crate_of(&[
            ("", "mod a; mod b;"),
            ("a", "fn f() { super::b::g(); } #[cfg(test)] fn t() { crate::c::g(); }"),
            ("b", "pub fn g() {} #[cfg(all(test, unix))] use crate::a::f;"),
            ("c", "fn g() {}"),
        ]);
        assert_eq!(edges(&read), ["a -> b"]);
    }

    #[test]
    fn a_file_and_its_folder_are_one() {
        let read = crate_of(&[
            ("", "mod a;"),
            ("a", "mod b; use b::B; pub struct A; use self::c::C; mod c;"),
            ("a::b", "use super::{A, c::C}; pub struct B;"),
            ("a::c", "pub struct C;"),
        ]);
        assert_eq!(edges(&read), ["a::b -> a::c"]);
        let all = read.imports(Folders::Counted);
        assert_eq!(all["a"].keys().collect::<Vec<_>>(), ["a::b", "a::c"]);
        assert_eq!(all["a::b"].keys().collect::<Vec<_>>(), ["a", "a::c"]);
    }
}
