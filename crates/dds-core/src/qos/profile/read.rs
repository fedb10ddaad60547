//! Reads the tree of a source into profiles: the validator of both formats.
use super::error::{Place, ProfileProblem, nearest, shorten};
use super::set::{EntityKind, PolicyFields};
use super::text::{Format, SourceText};
use super::tree::{Item, Raw};
use super::value::{FieldKind, Value, read_base64, wrong};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The length of the longest source that is read, in bytes.
pub(super) const SOURCE_BYTES_MAX: usize = 1 << 20;

/// A value of a source, with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// Settings by policy and field.
pub(super) type Settings = BTreeMap<(&'static str, &'static str), Arc<Setting>>;

/// The name of a profile from which another inherits.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// The name with its library.
    pub(super) name: String,
    pub(super) place: Place,
}

/// The policies of one kind of entity in a profile.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kind: EntityKind,
    /// The pattern of topics; `None` for all topics that no pattern matches.
    pub(super) filter: Option<String>,
    pub(super) base: Option<Base>,
    pub(super) settings: Settings,
    pub(super) place: Place,
}

/// A profile as a source declares it.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    /// The name with its library.
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) base: Option<Base>,
    pub(super) is_default: bool,
    pub(super) entries: Vec<Entry>,
}

/// The longest name of a library or a profile, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest filter of topics, in bytes. Its comparison with a topic costs the product of both lengths.
const FILTER_BYTES_MAX: usize = 256;

/// Returns whether a library or a profile may have this name.
pub(super) fn is_name(name: &str) -> bool {
    let is_part = !name.contains("::") && !name.starts_with(':') && !name.ends_with(':');
    is_part && (1..=NAME_BYTES_MAX).contains(&name.len()) && name.trim() == name
}

/// Reads the root of a tree.
pub(super) fn read(source: &mut SourceText<'_>, root: &Item) -> Vec<Declared> {
    let kinds = EntityKind::ALL.map(|kind| (kind, kind.policies()));
    let mut reading = Reading { source, kinds: &kinds, profiles: Vec::new() };
    match reading.source.format {
        Format::Xml => reading.xml_root(root),
        Format::Toml => reading.toml_root(root),
    }
    reading.profiles
}

struct Reading<'a, 'b> {
    source: &'a mut SourceText<'b>,
    kinds: &'a [(EntityKind, Vec<PolicyFields>); 7],
    profiles: Vec<Declared>,
}

/// The attributes of a profile, and of its entries. In TOML they are keys.
#[derive(Default)]
struct Attributes {
    name: Option<(String, usize)>,
    base: Option<Base>,
    is_default: bool,
    filter: Option<(String, usize)>,
}

impl Reading<'_, '_> {
    fn xml_root(&mut self, root: &Item) {
        match root.name.as_str() {
            "dds" => {
                for item in self.children(root, "") {
                    match (item.name.as_str(), item.is_attribute) {
                        ("qos_library", false) => self.xml_library(item),
                        _ => self.unknown(item, "", &[], &["qos_library"]),
                    }
                }
            }
            "qos_library" => self.xml_library(root),
            _ => self.unknown(root, "", &[], &["dds", "qos_library"]),
        }
    }

    fn xml_library(&mut self, item: &Item) {
        let items = self.children(item, "");
        let found = items.iter().find(|item| item.is_attribute && item.name == "name");
        let Some(library) = found.and_then(|item| self.name(item, "qos_library")) else {
            if found.is_none() {
                let problem = ProfileProblem::Missing { what: "the attribute name" };
                self.source.wrong(self.source.place(item.at), "qos_library", problem);
            }
            return;
        };
        for item in items {
            if item.is_attribute {
                if item.name != "name" {
                    self.unknown(item, &library, &["name"], &[]);
                }
            } else if item.name == "qos_profile" {
                self.xml_profile(&library, item);
            } else if let Some(kind) = self.kind(&item.name) {
                self.single(&library, kind, item);
            } else {
                let known: Vec<&str> = [&["qos_profile"][..], &EntityKind::ALL.map(EntityKind::element)].concat();
                self.unknown(item, &library, &[], &known);
            }
        }
    }

    fn xml_profile(&mut self, library: &str, item: &Item) {
        let items = self.children(item, library);
        let name = items.iter().find(|item| item.is_attribute && item.name == "name");
        let path = match name.map(|item| &item.raw) {
            Some(Raw::Text(name)) if is_name(name) => format!("{library}::{name}"),
            _ => format!("{library}/qos_profile"),
        };
        let attributes = self.attributes(library, &path, items, &["name", "base_name", "is_default_qos"]);
        let Some((name, _)) = attributes.name.clone() else {
            if name.is_none() {
                let problem = ProfileProblem::Missing { what: "the attribute name" };
                self.source.wrong(self.source.place(item.at), &path, problem);
            }
            return;
        };
        self.profile(library, &name, item, items, attributes);
    }

    /// Reads a profile with the policies of one kind of entity (DDS-XML 7.3.2.4.4).
    fn single(&mut self, library: &str, kind: EntityKind, item: &Item) {
        let path = format!("{library}/{}", item.name);
        let items = self.children(item, library);
        let allowed: &[&str] =
            if kind.has_topic() { &["name", "base_name", "topic_filter"] } else { &["name", "base_name"] };
        let attributes = self.attributes(library, &path, items, allowed);
        let Some((name, _)) = attributes.name.clone() else {
            if !items.iter().any(|item| item.is_attribute && item.name == "name") {
                let problem = ProfileProblem::Missing { what: "the attribute name" };
                self.source.wrong(self.source.place(item.at), &path, problem);
            }
            return;
        };
        let name = format!("{library}::{name}");
        let entry = self.policies(&format!("{name}/{kind}"), kind, item, items, attributes);
        let place = entry.place.clone();
        self.profiles.push(Declared { name, place, base: None, is_default: false, entries: vec![entry] });
    }

    fn toml_root(&mut self, root: &Item) {
        for item in self.children(root, "") {
            if item.name != "qos_library" {
                self.unknown(item, "", &[], &["qos_library"]);
                continue;
            }
            for library in self.children(item, "qos_library") {
                if !self.is_fine_key(library) {
                    continue;
                }
                for profile in self.children(library, &library.name) {
                    if !self.is_fine_key(profile) {
                        continue;
                    }
                    let path = format!("{}::{}", library.name, profile.name);
                    let items = self.children(profile, &path);
                    let attributes = self.attributes(&library.name, &path, items, &["base_name", "is_default_qos"]);
                    self.profile(&library.name, &profile.name, profile, items, attributes);
                }
            }
        }
    }

    fn is_fine_key(&mut self, item: &Item) -> bool {
        let is_fine = is_name(&item.name);
        if !is_fine {
            let (value, allowed) = (format!("{:?}", shorten(&item.name)), NAMES.to_owned());
            let problem = ProfileProblem::Wrong { value, allowed, nearest: None };
            self.source.wrong(self.source.place(item.at), "qos_library", problem);
        }
        is_fine
    }

    fn profile(&mut self, library: &str, name: &str, item: &Item, items: &[Item], attributes: Attributes) {
        let path = format!("{library}::{name}");
        let mut entries: Vec<Entry> = Vec::new();
        let format = self.source.format;
        for item in items.iter().filter(|item| !is_attribute(item, format)) {
            let Some(kind) = self.kind(&item.name) else {
                let attributes: &[&str] =
                    if self.source.format == Format::Toml { &["base_name", "is_default_qos"] } else { &[] };
                self.unknown(item, &path, &[], &[attributes, &EntityKind::ALL.map(EntityKind::element)].concat());
                continue;
            };
            // A list of tables in TOML has one entry of each filter.
            let several: Vec<&Item> = match &item.raw {
                Raw::List(items) if kind.has_topic() => items.iter().collect(),
                _ => vec![item],
            };
            for item in several {
                let entry = self.entry(library, &path, kind, item);
                let twin = entries.iter().find(|other| other.kind == kind && other.filter == entry.filter);
                match twin {
                    Some(twin) => {
                        let name = match &entry.filter {
                            Some(filter) => format!("{kind} with topic_filter {filter}"),
                            None => kind.to_string(),
                        };
                        let problem = ProfileProblem::Duplicate { name, first: twin.place.clone() };
                        self.source.wrong(entry.place, &path, problem);
                    }
                    None => entries.push(entry),
                }
            }
        }
        let place = self.source.place(item.at);
        let Attributes { base, is_default, .. } = attributes;
        self.profiles.push(Declared { name: path, place, base, is_default, entries });
    }

    fn entry(&mut self, library: &str, profile: &str, kind: EntityKind, item: &Item) -> Entry {
        let path = format!("{profile}/{kind}");
        let items = self.children(item, &path);
        let allowed: &[&str] = if kind.has_topic() { &["base_name", "topic_filter"] } else { &["base_name"] };
        let attributes = self.attributes(library, &path, items, allowed);
        let path = match &attributes.filter {
            Some((filter, _)) => format!("{path}[{}]", shorten(filter)),
            None => path,
        };
        self.policies(&path, kind, item, items, attributes)
    }

    fn policies(&mut self, path: &str, kind: EntityKind, item: &Item, items: &[Item], attributes: Attributes) -> Entry {
        let place = self.source.place(item.at);
        let (mut settings, mut seen) = (Settings::new(), BTreeMap::new());
        let kinds = self.kinds;
        let (_, policies) = &kinds[kind as usize];
        let format = self.source.format;
        for item in items.iter().filter(|item| !is_attribute(item, format)) {
            if self.source.is_full() {
                break;
            }
            match policies.iter().find(|policy| policy.name == item.name) {
                Some(policy) => {
                    let path = format!("{path}/{}", policy.name);
                    if self.is_first(&mut seen, policy.name, item, &path) {
                        self.policy(&path, policy, item, &mut settings);
                    }
                }
                None => {
                    let known: Vec<&str> = policies.iter().map(|policy| policy.name).collect();
                    self.unknown(item, path, &[], &known);
                }
            }
        }
        Entry { kind, filter: attributes.filter.map(|(filter, _)| filter), base: attributes.base, settings, place }
    }

    fn policy(&mut self, path: &str, policy: &PolicyFields, item: &Item, settings: &mut Settings) {
        let mut seen = BTreeMap::new();
        for item in self.children(item, path) {
            let is_base64 = |kind| item.name == "valueB64" && matches!(kind, FieldKind::Octets);
            let found = policy.fields.iter().find(|field| field.name == item.name || is_base64(field.kind));
            let Some(field) = found.filter(|_| !item.is_attribute) else {
                let octets = policy.fields.iter().any(|field| matches!(field.kind, FieldKind::Octets));
                let more = octets.then_some("valueB64");
                let known: Vec<&str> = policy.fields.iter().map(|field| field.name).chain(more).collect();
                self.unknown(item, path, &[], &known);
                continue;
            };
            let path = format!("{path}/{}", item.name);
            if !self.is_first(&mut seen, field.name, item, &path) {
                continue;
            }
            let value = match is_base64(field.kind) {
                true => read_base64(self.source, &path, item),
                false => field.kind.read(self.source, &path, item),
            };
            if let Some(value) = value {
                let place = self.source.place(item.value_at);
                settings.insert((policy.name, field.name), Arc::new(Setting { value, place }));
            }
        }
    }

    /// Notes an error if a name occurs again.
    fn is_first(
        &mut self,
        seen: &mut BTreeMap<&'static str, usize>,
        name: &'static str,
        item: &Item,
        path: &str,
    ) -> bool {
        if let Some(first) = seen.get(name) {
            let problem = ProfileProblem::Duplicate { name: name.to_owned(), first: self.source.place(*first) };
            self.source.wrong(self.source.place(item.at), path, problem);
            return false;
        }
        seen.insert(name, item.at);
        true
    }

    /// Returns the parts of an element or a table.
    fn children<'c>(&mut self, item: &'c Item, path: &str) -> &'c [Item] {
        match &item.raw {
            Raw::Table(items) => items,
            Raw::Text(text) if self.source.format == Format::Xml && text.trim().is_empty() => &[],
            _ => {
                let allowed = if self.source.format == Format::Xml { "elements" } else { "a table" };
                wrong(self.source, path, item, allowed.to_owned(), None);
                &[]
            }
        }
    }

    fn attributes(&mut self, library: &str, path: &str, items: &[Item], allowed: &[&str]) -> Attributes {
        let mut attributes = Attributes::default();
        let format = self.source.format;
        for item in items.iter().filter(|item| is_attribute(item, format)) {
            match item.name.as_str() {
                name if !allowed.contains(&name) => {
                    // In TOML, an attribute of another kind of table.
                    self.unknown(item, path, allowed, allowed);
                }
                "name" => attributes.name = self.name(item, path).map(|name| (name, item.at)),
                "base_name" => attributes.base = self.base(library, path, item),
                "is_default_qos" => {
                    let path = format!("{path}/is_default_qos");
                    let read = FieldKind::Bool.read(self.source, &path, item);
                    attributes.is_default = read == Some(Value::Bool(true));
                }
                _ => match &item.raw {
                    Raw::Text(text) if (1..=FILTER_BYTES_MAX).contains(&text.len()) => {
                        attributes.filter = Some((text.clone(), item.at))
                    }
                    _ => {
                        let path = format!("{path}/topic_filter");
                        wrong(
                            self.source,
                            &path,
                            item,
                            "a pattern of topics such as A*, of 1 to 256 bytes".to_owned(),
                            None,
                        );
                    }
                },
            }
        }
        attributes
    }

    fn name(&mut self, item: &Item, path: &str) -> Option<String> {
        match &item.raw {
            Raw::Text(text) if is_name(text) => Some(text.clone()),
            _ => {
                wrong(self.source, &format!("{path}/name"), item, NAMES.to_owned(), None);
                None
            }
        }
    }

    fn base(&mut self, library: &str, path: &str, item: &Item) -> Option<Base> {
        let name = match &item.raw {
            Raw::Text(text) => match text.split_once("::") {
                Some((library, profile)) if is_name(library) && is_name(profile) => Some(text.clone()),
                None if is_name(text) => Some(format!("{library}::{text}")),
                _ => None,
            },
            _ => None,
        };
        if name.is_none() {
            let allowed = "a profile: its name, or Library::Profile".to_owned();
            wrong(self.source, &format!("{path}/base_name"), item, allowed, None);
        }
        name.map(|name| Base { name, place: self.source.place(item.value_at) })
    }

    fn kind(&self, name: &str) -> Option<EntityKind> {
        // The name in the predecessor of DDS-XML (DDS for lightweight CCM).
        if name == "domainparticipant_qos" && self.source.format == Format::Xml {
            return Some(EntityKind::Participant);
        }
        EntityKind::ALL.into_iter().find(|kind| kind.element() == name)
    }

    fn unknown(&mut self, item: &Item, path: &str, attributes: &[&str], elements: &[&str]) {
        let (what, known) = match (self.source.format, item.is_attribute) {
            (Format::Toml, _) => ("key", elements),
            (Format::Xml, true) => ("attribute", attributes),
            (Format::Xml, false) => ("element", elements),
        };
        let known = known.iter().map(ToString::to_string).collect();
        self.source.unknown(item.at, path, what, &item.name, known);
    }
}

/// The rule of names, as errors show it.
const NAMES: &str = "a name of 1 to 256 bytes without \"::\" and without spaces around it";

/// Returns whether an item is an attribute, or the key of TOML that stands for one.
fn is_attribute(item: &Item, format: Format) -> bool {
    match format {
        Format::Xml => item.is_attribute,
        Format::Toml => ["base_name", "is_default_qos", "topic_filter"].contains(&item.name.as_str()),
    }
}

/// Returns the name that is most like a wrong name of a profile, with or without the library.
pub(super) fn nearest_profile<'a>(wrong: &str, known: impl Iterator<Item = &'a String> + Clone) -> Option<String> {
    let same = known.clone().find(|name| name.rsplit_once("::").is_some_and(|(_, profile)| profile == wrong));
    same.cloned().or_else(|| nearest(wrong, known))
}
