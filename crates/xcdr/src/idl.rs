//! Types as IDL 4.2 with the annotations of DDS-XTypes 1.3 (7.3.1), for people and for other tools.
use crate::description::{
    BitmaskType, DataType, EnumType, MemberType, PrimitiveKind, StructType, TypeBody, TypeDescription, TypeIndex,
    UnionType,
};
use md5::{Digest, Md5};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// The words that IDL reserves, in any case (IDL 4.2, 7.2.4).
const KEYWORDS: &[&str] = &[
    "abstract",
    "any",
    "alias",
    "attribute",
    "bitfield",
    "bitmask",
    "bitset",
    "boolean",
    "case",
    "char",
    "component",
    "connector",
    "const",
    "consumes",
    "context",
    "custom",
    "default",
    "double",
    "emits",
    "enum",
    "eventtype",
    "exception",
    "factory",
    "false",
    "finder",
    "fixed",
    "float",
    "getraises",
    "getter",
    "home",
    "import",
    "in",
    "inout",
    "int16",
    "int32",
    "int64",
    "int8",
    "interface",
    "local",
    "long",
    "manages",
    "map",
    "mirrorport",
    "module",
    "multiple",
    "native",
    "object",
    "octet",
    "oneway",
    "out",
    "port",
    "porttype",
    "primarykey",
    "private",
    "provides",
    "public",
    "publishes",
    "raises",
    "readonly",
    "sequence",
    "setraises",
    "setter",
    "short",
    "string",
    "struct",
    "supports",
    "switch",
    "true",
    "truncatable",
    "typedef",
    "typeid",
    "typename",
    "typeprefix",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "union",
    "unsigned",
    "uses",
    "valuebase",
    "valuetype",
    "void",
    "wchar",
    "wstring",
];

impl TypeDescription {
    /// Returns the type, and before it all types that it reaches, as IDL.
    ///
    /// The extensibility of each structure and union is written out, because the default of IDL differs between
    /// vendors. Arrays inside of sequences and maps get a `typedef`, as IDL requires. A type without a name is
    /// the `typedef` `Root`.
    ///
    /// Descriptions do not say which members of unions are `@external`, which IDL requires of a member by which a type
    /// contains itself.
    pub fn to_idl(&self) -> String {
        let mut idl = Idl {
            types: self,
            text: String::new(),
            modules: Vec::new(),
            states: vec![State::New; self.types.len()],
            names: HashMap::new(),
            defined: names_of(self),
            members: BTreeSet::new(),
        };
        match &self.root {
            DataType::Named(index) => idl.define(*index),
            data => {
                idl.reach(data, "Root");
                idl.begin("Root");
                let declared = idl.declare(data, "Root");
                idl.line(&format!("typedef {declared};"));
            }
        }
        idl.enter(&[]);
        idl.text
    }
}

/// How far a type has been written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    /// The types that it reaches are being written.
    Open,
    /// As `Open`, with a forward declaration.
    Declared,
    Done,
}

struct Idl<'a> {
    types: &'a TypeDescription,
    text: String,
    /// The open modules.
    modules: Vec<String>,
    states: Vec<State>,
    /// The names of the arrays that have a `typedef`.
    names: HashMap<DataType, String>,
    /// The names that each module defines, in lower case.
    defined: BTreeMap<String, BTreeSet<String>>,
    /// The members of the type that is being written, in lower case.
    members: BTreeSet<String>,
}

impl Idl<'_> {
    /// Writes a named type, after the types that it reaches.
    fn define(&mut self, index: TypeIndex) {
        let (types, place) = (self.types, index.0 as usize);
        let Some(own) = types.get(index) else { return };
        match self.states[place] {
            State::Done | State::Declared => return,
            State::Open => {
                self.states[place] = State::Declared;
                return self.declare_forward(&own.name, &own.body);
            }
            State::New => self.states[place] = State::Open,
        }
        let simple = own.name.rsplit("::").next().unwrap_or_default();
        match &own.body {
            TypeBody::Struct(body) => {
                let members = body.members.iter();
                members.for_each(|member| self.reach(&member.data, &format!("{}_{}", own.name, member.name)));
            }
            TypeBody::Union(body) => {
                self.reach(&body.discriminator, "");
                for case in &body.cases {
                    if let Some(data) = &case.data {
                        self.reach(data, &format!("{}_{}", own.name, case.name));
                    }
                }
            }
            TypeBody::Enum(_) | TypeBody::Bitmask(_) => {}
        }
        self.begin(&own.name);
        self.members = match &own.body {
            TypeBody::Struct(body) => body.members.iter().map(|member| member.name.to_lowercase()).collect(),
            TypeBody::Union(body) => body.cases.iter().map(|case| case.name.to_lowercase()).collect(),
            TypeBody::Enum(_) | TypeBody::Bitmask(_) => BTreeSet::new(),
        };
        match &own.body {
            TypeBody::Struct(body) => self.structure(simple, body),
            TypeBody::Union(body) => self.union(simple, body),
            TypeBody::Enum(body) => self.enumeration(simple, body),
            TypeBody::Bitmask(body) => self.bitmask(simple, body),
        }
        self.states[place] = State::Done;
    }

    /// Writes the types that a member or an element needs. `name` is the one of a `typedef` for it.
    fn reach(&mut self, data: &DataType, name: &str) {
        match data {
            DataType::Named(index) => self.define(*index),
            DataType::Array(element, _) => self.reach(element, name),
            DataType::Sequence(element, _) => self.reach_inner(element, &format!("{name}_element")),
            DataType::Map(key, value, _) => {
                self.reach_inner(key, &format!("{name}_key"));
                self.reach_inner(value, &format!("{name}_value"));
            }
            _ => {}
        }
    }

    /// As `reach`, for a place where IDL takes no array.
    fn reach_inner(&mut self, data: &DataType, name: &str) {
        self.reach(data, name);
        if !matches!(data, DataType::Array(..)) || self.names.contains_key(data) {
            return;
        }
        self.begin(name);
        self.members.clear();
        let simple = name.rsplit("::").next().unwrap_or_default();
        let declared = self.declare(data, simple);
        self.line(&format!("typedef {declared};"));
        self.names.insert(data.clone(), name.to_owned());
    }

    fn declare_forward(&mut self, name: &str, body: &TypeBody) {
        let kind = if matches!(body, TypeBody::Union(_)) { "union" } else { "struct" };
        self.begin(name);
        let simple = escaped(name.rsplit("::").next().unwrap_or_default());
        self.line(&format!("{kind} {simple};"));
    }

    fn structure(&mut self, name: &str, own: &StructType) {
        let nested = if own.nested { "@nested " } else { "" };
        let autoid = if own.autoid_hash { "@autoid(HASH) " } else { "" };
        self.line(&format!("@{} {nested}{autoid}struct {} {{", own.extensibility, escaped(name)));
        let mut next = 0;
        for member in &own.members {
            let annotations = member_annotations(member, own.autoid_hash, next);
            let declared = self.declare(&member.data, &member.name);
            let annotations = if declared.starts_with("::") { closed(&annotations) } else { annotations };
            self.line(&format!("    {annotations}{declared};"));
            next = member.id.wrapping_add(1);
        }
        self.line("};");
    }

    fn union(&mut self, name: &str, own: &UnionType) {
        let nested = if own.nested { "@nested " } else { "" };
        let discriminator = self.name_of(&own.discriminator);
        let key = match (own.discriminator_is_key, discriminator.starts_with("::")) {
            (true, true) => "@key(TRUE) ",
            (true, false) => "@key ",
            (false, _) => "",
        };
        self.line(&format!("@{} {nested}union {} switch ({key}{discriminator}) {{", own.extensibility, escaped(name)));
        let mut next = 0;
        for case in &own.cases {
            let Some(data) = &case.data else { continue };
            let labels = case.labels.iter().map(|label| format!("case {}: ", self.label(&own.discriminator, *label)));
            let labels: String = labels.chain(case.default.then(|| "default: ".to_owned())).collect();
            let id = if case.id == next { String::new() } else { format!("@id({}) ", case.id) };
            let declared = self.declare(data, &case.name);
            self.line(&format!("    {}{id}{declared};", labels.trim_start()));
            next = case.id.wrapping_add(1);
        }
        self.line("};");
    }

    fn enumeration(&mut self, name: &str, own: &EnumType) {
        let bits = if own.bit_bound == 32 { String::new() } else { format!("@bit_bound({}) ", own.bit_bound) };
        self.line(&format!("{bits}enum {} {{", escaped(name)));
        let mut next = Some(0);
        let last = own.literals.len().saturating_sub(1);
        for (index, literal) in own.literals.iter().enumerate() {
            let value = if next == Some(literal.value) { String::new() } else { format!("@value({}) ", literal.value) };
            // The first literal is the default anyway.
            let default = if literal.default && index > 0 { "@default_literal " } else { "" };
            let comma = if index == last { "" } else { "," };
            self.line(&format!("    {value}{default}{}{comma}", escaped(&literal.name)));
            next = literal.value.checked_add(1);
        }
        self.line("};");
    }

    fn bitmask(&mut self, name: &str, own: &BitmaskType) {
        let bits = if own.bit_bound == 32 { String::new() } else { format!("@bit_bound({}) ", own.bit_bound) };
        self.line(&format!("{bits}bitmask {} {{", escaped(name)));
        let mut next = 0;
        let last = own.flags.len().saturating_sub(1);
        for (index, (flag, position)) in own.flags.iter().enumerate() {
            let at = if *position == next { String::new() } else { format!("@position({position}) ") };
            let comma = if index == last { "" } else { "," };
            self.line(&format!("    {at}{}{comma}", escaped(flag)));
            next = position.wrapping_add(1);
        }
        self.line("};");
    }

    /// Returns a declaration without the semicolon.
    fn declare(&self, data: &DataType, name: &str) -> String {
        let name = escaped(name);
        match data {
            DataType::Array(element, dimensions) => {
                let dimensions: String = dimensions.iter().map(|length| format!("[{length}]")).collect();
                format!("{} {name}{dimensions}", self.name_of(element))
            }
            data => format!("{} {name}", self.name_of(data)),
        }
    }

    fn name_of(&self, data: &DataType) -> String {
        let bound = |bound: u32| if bound == 0 { String::new() } else { format!(", {bound}") };
        match data {
            DataType::Named(index) => {
                self.types.get(*index).map_or_else(|| format!("type {}", index.0), |own| self.refer(&own.name))
            }
            DataType::Sequence(element, own) => format!("sequence<{}{}>", self.name_of(element), bound(*own)),
            DataType::Map(key, value, own) => {
                format!("map<{}, {}{}>", self.name_of(key), self.name_of(value), bound(*own))
            }
            DataType::Array(..) => self.names.get(data).map(|name| self.refer(name)).unwrap_or_default(),
            other => self.types.name_of(other).to_string(),
        }
    }

    /// Returns a name with its modules, from the outermost scope if an inner one has another meaning for its first
    /// part: IDL looks a name up from the innermost scope, and in any case.
    fn refer(&self, name: &str) -> String {
        let first = name.split("::").next().unwrap_or_default().to_lowercase();
        let mut is_hidden = self.members.contains(&first);
        let mut module = String::new();
        for part in &self.modules {
            module.push_str(if module.is_empty() { "" } else { "::" });
            module.push_str(part);
            is_hidden |= self.defined.get(&module).is_some_and(|names| names.contains(&first));
        }
        format!("{}{}", if is_hidden { "::" } else { "" }, scoped(name))
    }

    /// Returns a label of a union.
    fn label(&self, discriminator: &DataType, value: i32) -> String {
        match discriminator {
            DataType::Primitive(PrimitiveKind::Boolean) => (if value == 0 { "FALSE" } else { "TRUE" }).to_owned(),
            DataType::Primitive(kind @ (PrimitiveKind::Char8 | PrimitiveKind::Char16)) => {
                let wide = if *kind == PrimitiveKind::Char16 { "L" } else { "" };
                match u8::try_from(value) {
                    Ok(byte) if byte.is_ascii() => format!("{wide}'{}'", byte.escape_ascii()),
                    Ok(byte) => format!("{wide}'\\x{byte:02x}'"),
                    Err(_) => format!("{wide}'\\u{value:04x}'"),
                }
            }
            DataType::Named(index) => match self.types.get(*index) {
                // Literals are names of the module of their enumeration.
                Some(own) => match (&own.body, own.name.rsplit_once("::")) {
                    (TypeBody::Enum(body), module) => body.literal(value).map_or(value.to_string(), |literal| {
                        let name = escaped(&literal.name);
                        module.map_or(name.clone(), |(module, _)| format!("{}::{name}", self.refer(module)))
                    }),
                    _ => value.to_string(),
                },
                None => value.to_string(),
            },
            _ => value.to_string(),
        }
    }

    /// Begins a definition of this name: in its module, after an empty line.
    fn begin(&mut self, name: &str) {
        let mut modules: Vec<&str> = name.split("::").collect();
        modules.pop();
        self.enter(&modules);
        if !self.text.is_empty() && !self.text.ends_with("{\n") {
            self.text.push('\n');
        }
    }

    /// Closes and opens modules.
    fn enter(&mut self, modules: &[&str]) {
        let same = self.modules.iter().zip(modules).take_while(|(own, other)| own == *other).count();
        while self.modules.len() > same {
            self.modules.pop();
            self.line("};");
        }
        for module in &modules[same..] {
            if !self.text.is_empty() && !self.text.ends_with("{\n") {
                self.text.push('\n');
            }
            self.line(&format!("module {} {{", escaped(module)));
            self.modules.push((*module).to_owned());
        }
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{:width$}{line}", "", width = 4 * self.modules.len());
    }
}

/// Returns the annotations of a member. `next` is the identifier that it has without one.
fn member_annotations(member: &MemberType, autoid_hash: bool, next: u32) -> String {
    let mut text = String::new();
    let standard = if autoid_hash { hash_id(&member.name) } else { next };
    match &member.hash_id {
        Some(of) if of.is_empty() || *of == member.name => text.push_str("@hashid "),
        Some(of) => drop(write!(text, "@hashid({of:?}) ")),
        None if member.id == standard => {}
        None => drop(write!(text, "@id({}) ", member.id)),
    }
    for (is_set, annotation) in [
        (member.key, "@key "),
        (member.optional, "@optional "),
        // The members of a key must be understood anyway.
        (member.must_understand && !member.key, "@must_understand "),
        (member.external, "@external "),
    ] {
        text.push_str(if is_set { annotation } else { "" });
    }
    text
}

/// Returns the identifier that is the hash of a name (DDS-XTypes 1.3, 7.3.1.2.1.1).
fn hash_id(name: &str) -> u32 {
    let digest: [u8; 16] = Md5::digest(name.as_bytes()).into();
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) & 0x0fff_ffff
}

/// Returns an identifier, marked if it is a word of IDL.
fn escaped(name: &str) -> String {
    if KEYWORDS.contains(&name.to_ascii_lowercase().as_str()) { format!("_{name}") } else { name.to_owned() }
}

/// Returns a name with its modules.
fn scoped(name: &str) -> String {
    name.split("::").map(escaped).collect::<Vec<_>>().join("::")
}

/// Returns the names that each module defines, in lower case: types, literals and modules.
fn names_of(types: &TypeDescription) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for own in &types.types {
        let mut rest = own.name.as_str();
        while let Some((module, name)) = rest.rsplit_once("::") {
            names.entry(module.to_owned()).or_default().insert(name.to_lowercase());
            rest = module;
        }
        if let (TypeBody::Enum(body), Some((module, _))) = (&own.body, own.name.rsplit_once("::")) {
            let literals = body.literals.iter().map(|literal| literal.name.to_lowercase());
            names.entry(module.to_owned()).or_default().extend(literals);
        }
    }
    names
}

/// Returns annotations that end before a name that begins with `::`, which would continue the last of them.
fn closed(annotations: &str) -> String {
    match annotations.strip_suffix(' ') {
        Some("@hashid") => "@hashid(\"\") ".to_owned(),
        Some(open) if !open.ends_with(')') => format!("{open}(TRUE) "),
        _ => annotations.to_owned(),
    }
}
