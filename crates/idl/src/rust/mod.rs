//! The back end: writes Rust with `#[derive(DdsType)]`.
//!
//! The text depends on the model only. It can be included in any module: its paths are relative,
//! or begin with `::`.
mod layout;
mod names;
mod scope;
mod types;

use crate::model::{
    BitmaskItem, DataType, EnumItem, IdFrom, Item, ItemId, ItemKind, Model, StructItem, UnionItem, Value, hash_id,
};
use crate::resolve::bounds;
use names::{Given, Style};
use scope::{Entry, Module, Paths};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Writes the Rust of a model.
pub(crate) fn generate(model: &Model) -> String {
    let (root, paths) = scope::modules(model);
    let plain = layout::plain_structures(model);
    let standard = ["Box", "Option", "String", "Vec"].into_iter().filter(|name| paths.hides(name)).collect();
    let literals = model.items().filter_map(|(id, item)| match &item.kind {
        ItemKind::Enum(own) => Some((id, literal_names(own))),
        _ => None,
    });
    let literals = literals.collect();
    let mut own = Generator { model, paths, plain, literals, hidden: standard, out: String::new(), indent: 0 };
    own.module(&root);
    own.out
}

struct Generator<'a> {
    model: &'a Model,
    paths: Paths,
    plain: BTreeMap<ItemId, (u64, u64)>,
    /// The names of the literals of enumerations in Rust.
    literals: BTreeMap<ItemId, Vec<String>>,
    /// Names of the standard library that a type of the model has.
    hidden: Vec<&'static str>,
    out: String,
    indent: usize,
}

const ALLOWED: &str = "#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, \
                       non_upper_case_globals, unreachable_pub)]";

impl Generator<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        if !text.is_empty() {
            let _ = write!(self.out, "{:width$}{text}", "", width = 4 * self.indent);
        }
        self.out.push('\n');
    }

    /// Writes documentation. Indented or fenced lines would be tests of the crate that has the output.
    fn docs(&mut self, docs: &[String]) {
        let is_fence = |line: &&str| line.starts_with("```") || line.starts_with("~~~");
        for line in docs.iter().map(|line| line.trim_start()).filter(|line| !is_fence(line)) {
            self.line(format!("/// {line}").trim_end());
        }
    }

    fn module(&mut self, module: &Module) {
        for (index, entry) in module.entries.iter().enumerate() {
            if index > 0 || self.indent == 0 {
                self.line("");
            }
            match entry {
                Entry::Item(id) => self.item(*id),
                Entry::Module(_, inner) => {
                    if self.indent == 0 {
                        self.line(ALLOWED);
                    }
                    self.line(format!("pub mod {} {{", inner.name));
                    self.indent += 1;
                    self.module(inner);
                    self.indent -= 1;
                    self.line("}");
                }
            }
        }
    }

    fn item(&mut self, id: ItemId) {
        let item = self.model.item(id);
        self.docs(&item.docs);
        if self.indent == 0 {
            self.line(ALLOWED);
        }
        match &item.kind {
            ItemKind::Struct(own) => self.structure(id, item, own),
            ItemKind::Union(own) => self.union(id, item, own),
            ItemKind::Enum(own) => self.enumeration(id, item, own),
            ItemKind::Bitmask(own) => self.bitmask(id, item, own),
            ItemKind::Alias(data) => {
                let data = self.rust_type(id, data);
                self.line(format!("pub type {} = {data};", self.paths.name(id)));
            }
            ItemKind::Constant(data, value) => {
                let text = match self.model.resolved(data) {
                    DataType::String(_) | DataType::WideString(_) => "&str".to_owned(),
                    _ => self.rust_type(id, data),
                };
                let value = self.constant(id, value, data);
                self.line(format!("pub const {}: {text} = {value};", self.paths.name(id)));
            }
            ItemKind::Undefined(_) => {}
        }
    }

    /// Returns the words of `#[dds(…)]` that begin with the name, if it differs from that in Rust.
    fn words(&self, id: ItemId, item: &Item) -> Vec<String> {
        let name = item.dds_name();
        match unescaped(self.paths.name(id)) == name {
            true => Vec::new(),
            false => vec![format!("name = {name:?}")],
        }
    }

    fn structure(&mut self, id: ItemId, item: &Item, own: &StructItem) {
        let is_plain = self.plain.contains_key(&id);
        let mut words = self.words(id, item);
        words.push(own.extensibility.name().to_owned());
        words.extend(is_plain.then(|| "plain".to_owned()));
        words.extend(own.nested.then(|| "nested".to_owned()));
        words.extend(own.autoid_hash.then(|| "autoid = \"hash\"".to_owned()));
        let copy = if is_plain { "Copy, " } else { "" };
        self.line(format!("#[derive(Clone, {copy}Debug, PartialEq, ::spindle_xcdr::DdsType)]"));
        self.line(format!("#[dds({})]", words.join(", ")));
        if is_plain {
            self.line("#[repr(C)]");
        }
        let members = self.model.all_members(own);
        let names: Vec<_> = members.iter().map(|member| (member.name.as_str(), Style::Snake)).collect();
        let names = Given::default().names(&names);
        let head = format!("pub struct {} {{", self.paths.name(id));
        if members.is_empty() {
            self.line(format!("{head}}}"));
        } else {
            self.line(head);
        }
        self.indent += 1;
        let mut before = None;
        for (member, name) in members.iter().zip(&names) {
            self.docs(&member.docs);
            let mut words = Vec::new();
            if unescaped(name) != member.name {
                words.push(format!("name = {:?}", member.name));
            }
            words.extend(member.key.then(|| "key".to_owned()));
            let by_rule = match own.autoid_hash {
                true => hash_id(&member.name),
                false => before.map_or(0, |before: u32| before + 1),
            };
            match &member.id_from {
                IdFrom::Hash(text) if text.is_empty() => words.push("hashid".to_owned()),
                IdFrom::Hash(text) => words.push(format!("hashid = {text:?}")),
                IdFrom::Rule if member.id == by_rule => {}
                IdFrom::Rule | IdFrom::Number => words.push(format!("id = {}", member.id)),
            }
            before = Some(member.id);
            words.extend(member.must_understand.then(|| "must_understand".to_owned()));
            words.extend(self.data_words(&member.data));
            if let Some(value) = &member.default {
                let value = self.default(id, value, &member.data);
                let new = self.standard("Box", "::std::boxed::Box");
                words.push(format!(
                    "default = {}",
                    if member.external { format!("{new}::new({value})") } else { value }
                ));
            }
            self.dds_line(&words);
            let mut data = self.rust_type(id, &member.data);
            if member.external {
                data = format!("{}<{data}>", self.standard("Box", "::std::boxed::Box"));
            }
            if member.optional {
                data = format!("{}<{data}>", self.standard("Option", "::core::option::Option"));
            }
            self.line(format!("pub {name}: {data},"));
        }
        self.indent -= 1;
        if !members.is_empty() {
            self.line("}");
        }
        self.default_value(id);
    }

    fn dds_line(&mut self, words: &[String]) {
        if !words.is_empty() {
            self.line(format!("#[dds({})]", words.join(", ")));
        }
    }

    /// Returns the words for the bounds of a type, and for octets.
    fn data_words(&self, data: &DataType) -> Vec<String> {
        let (own, element) = bounds(self.model, data).unwrap_or_default();
        let mut words = Vec::new();
        words.extend((own > 0).then(|| format!("bound = {own}")));
        words.extend((element > 0).then(|| format!("element_bound = {element}")));
        words.extend(self.is_octet(data).then(|| "octet".to_owned()));
        words
    }

    /// Writes the default: the values that members have that the writer's type lacks.
    fn default_value(&mut self, id: ItemId) {
        let name = self.paths.name(id).to_owned();
        self.line("");
        self.line(format!("impl ::core::default::Default for {name} {{"));
        self.line("    fn default() -> Self {");
        self.line("        ::spindle_xcdr::Cdr::missing()");
        self.line("    }");
        self.line("}");
    }

    fn union(&mut self, id: ItemId, item: &Item, own: &UnionItem) {
        let discriminator = self.discriminator(id, &own.discriminator);
        let mut words = self.words(id, item);
        words.extend(["union".to_owned(), own.extensibility.name().to_owned()]);
        words.push(format!("discriminator = {discriminator}"));
        words.extend(own.discriminator_is_key.then(|| "discriminator_key".to_owned()));
        words.extend(own.nested.then(|| "nested".to_owned()));
        self.line("#[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]");
        self.dds_line(&words);
        self.line(format!("pub enum {} {{", self.paths.name(id)));
        self.indent += 1;
        let names: Vec<_> = own.cases.iter().map(|case| (case.name.as_str(), Style::Camel)).collect();
        let mut given = Given::default();
        let names = given.names(&names);
        for (case, name) in own.cases.iter().zip(&names) {
            self.docs(&case.docs);
            let mut words = Vec::new();
            if unescaped(name) != case.name {
                words.push(format!("name = {:?}", case.name));
            }
            let labels: Vec<_> = case.labels.iter().map(|label| self.label(id, label, &own.discriminator)).collect();
            match (labels.as_slice(), case.default) {
                ([], _) => {}
                ([label], false) => words.push(format!("case = {label}")),
                (labels, _) => words.push(format!("case({})", labels.join(", "))),
            }
            words.extend(case.default.then(|| "default".to_owned()));
            words.extend(self.data_words(&case.data));
            self.dds_line(&words);
            let mut data = self.rust_type(id, &case.data);
            if case.external {
                data = format!("{}<{data}>", self.standard("Box", "::std::boxed::Box"));
            }
            match case.default || case.labels.len() > 1 {
                true => self.line(format!("{name}({discriminator}, {data}),")),
                false => self.line(format!("{name}({data}),")),
            }
        }
        if own.has_no_member {
            let name = given.free("NoMember");
            self.line("/// All other discriminators, which select no member.");
            self.line("#[dds(default)]");
            self.line(format!("{name}({discriminator}),"));
        }
        self.indent -= 1;
        self.line("}");
        self.default_value(id);
    }

    fn enumeration(&mut self, id: ItemId, item: &Item, own: &EnumItem) {
        let mut words = self.words(id, item);
        if own.bit_bound != 32 {
            words.push(format!("bit_bound = {}", own.bit_bound));
        }
        self.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]");
        self.dds_line(&words);
        self.line(format!("pub enum {} {{", self.paths.name(id)));
        self.indent += 1;
        let names = self.literals.get(&id).cloned().unwrap_or_default();
        for (literal, name) in own.literals.iter().zip(&names) {
            self.docs(&literal.docs);
            let mut words = Vec::new();
            if unescaped(name) != literal.name {
                words.push(format!("name = {:?}", literal.name));
            }
            words.extend(literal.default.then(|| "default".to_owned()));
            self.dds_line(&words);
            self.line(format!("{name} = {},", literal.value));
        }
        self.indent -= 1;
        self.line("}");
        self.default_value(id);
    }

    fn bitmask(&mut self, id: ItemId, item: &Item, own: &BitmaskItem) {
        let holder = [8, 16, 32, 64].into_iter().find(|bits| own.bit_bound <= *bits).unwrap_or(64);
        let names: Vec<_> = own.bits.iter().map(|(name, _)| (name.as_str(), Style::Kept)).collect();
        let names = Given::default().names(&names);
        let flags = names.iter().zip(&own.bits).map(|(name, (_, position))| format!("{name} = {position}"));
        let flags = flags.collect::<Vec<_>>().join(", ");
        let mut words = self.words(id, item);
        words.extend(["bitmask".to_owned(), format!("bit_bound = {}", own.bit_bound), format!("flags({flags})")]);
        self.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]");
        self.dds_line(&words);
        self.line(format!("pub struct {}(pub u{holder});", self.paths.name(id)));
        self.default_value(id);
    }

    /// Returns a label as an expression of the discriminator's type.
    fn label(&self, from: ItemId, label: &Value, discriminator: &DataType) -> String {
        match self.is_octet(discriminator) {
            true => format!("::spindle_xcdr::Octet({})", self.constant(from, label, discriminator)),
            false => self.constant(from, label, discriminator),
        }
    }
}

fn literal_names(own: &EnumItem) -> Vec<String> {
    let names: Vec<_> = own.literals.iter().map(|literal| (literal.name.as_str(), Style::Camel)).collect();
    Given::default().names(&names)
}

fn unescaped(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}
