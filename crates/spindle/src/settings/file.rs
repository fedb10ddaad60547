//! Reads a file: every value with its place, and all mistakes, not only the first.
use super::keys::{KEYS, Key, SUBGROUP_STANDARD, TABLES, find_in, nearest, renamed};
use super::problem::{Origin, Problem};
use super::value::{Value, describe, shorten};
use super::{FileSubgroup, Given, RANK_FILE, Settings};
use spindle_core::limits::SUBGROUPS_MAX;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The size of the longest file that is read, in bytes.
pub(super) const FILE_BYTES_MAX: usize = 1 << 20;
/// The most problems of one file that are reported.
pub(super) const PROBLEMS_MAX: usize = 100;

/// The text of a file, with the places in it.
pub(super) struct FileText<'a> {
    name: &'a str,
    text: &'a str,
    /// The offsets at which its lines begin.
    lines: Vec<usize>,
}

impl<'a> FileText<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> FileText<'a> {
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        FileText { name, text, lines }
    }

    pub(super) fn origin(&self, span: Range<usize>) -> Origin {
        let line = self.lines.partition_point(|start| *start <= span.start);
        let before = self.text.get(self.lines[line - 1]..span.start).unwrap_or("");
        let column = before.chars().count() as u32 + 1;
        Origin::File { name: self.name.to_string(), line: line as u32, column }
    }
}

/// A file that is being read.
struct FileReading<'a> {
    text: FileText<'a>,
    settings: &'a mut Settings,
    problems: Vec<Problem>,
}

pub(super) fn read(settings: &mut Settings, name: &str, text: &str) {
    let mut reading = FileReading { text: FileText::new(name, text), settings, problems: Vec::new() };
    if text.len() > FILE_BYTES_MAX {
        let message = format!("{} bytes are no configuration; it may have {FILE_BYTES_MAX}", text.len());
        reading.wrong(0..0, None, message);
        reading.settings.is_partial = true;
    } else {
        let (root, errors) = DeTable::parse_recoverable(text);
        reading.settings.is_partial |= !errors.is_empty();
        for error in errors {
            reading.wrong(error.span().unwrap_or(0..0), None, error.message().trim().replace('\n', "; "));
        }
        reading.table("", root.get_ref());
    }
    let mut problems = reading.problems;
    let place = |problem: &Problem| match problem.origin {
        Origin::File { line, column, .. } => (line, column),
        _ => (0, 0),
    };
    problems.sort_by_key(place);
    settings.problems.extend(problems);
}

impl FileReading<'_> {
    /// Reads the table at `path`, which is empty for the file itself.
    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (leaf, value) in table {
            let whole = if path.is_empty() { leaf.get_ref().to_string() } else { format!("{path}.{}", leaf.get_ref()) };
            if whole == "subgroup" {
                self.subgroups(value);
            } else if let Some(key) = find_in(path, leaf.get_ref()) {
                self.value(key, None, value);
            } else if TABLES.iter().any(|(table, _)| *table == whole) {
                match value.get_ref() {
                    DeValue::Table(inner) => self.table(&whole, inner),
                    other => {
                        let message = format!("{whole} is {}; it is a table: write [{whole}]", describe(other));
                        self.wrong(value.span(), Some(whole), message);
                    }
                }
            } else {
                self.unknown(path, leaf);
            }
        }
    }

    fn subgroups(&mut self, value: &Spanned<DeValue<'_>>) {
        let tables: Option<Vec<(&DeTable<'_>, Range<usize>)>> = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| Some((item.get_ref().as_table()?, item.span()))).collect(),
            _ => None,
        };
        let Some(tables) = tables else {
            let message = "subgroup is a list of tables, because there may be several: write [[subgroup]]";
            return self.wrong(value.span(), Some("subgroup".to_string()), message.to_string());
        };
        if tables.len() > SUBGROUPS_MAX {
            let message = format!("{} subgroups; a group has at most {SUBGROUPS_MAX}", tables.len());
            return self.wrong(value.span(), Some("subgroup".to_string()), message);
        }
        let mut names = BTreeSet::new();
        for (table, span) in tables {
            let name = self.subgroup(table, span);
            if let Some((name, span)) = name
                && !names.insert(name.clone())
            {
                let message = format!("there is a subgroup {:?} already; give each a name of its own", shorten(&name));
                self.wrong(span, Some("subgroup".to_string()), message);
            }
        }
    }

    /// Reads one subgroup. Returns its name, and the place of the name.
    fn subgroup(&mut self, table: &DeTable<'_>, span: Range<usize>) -> Option<(String, Range<usize>)> {
        let name = match table.get("name") {
            None => Some((SUBGROUP_STANDARD.to_string(), span.clone())),
            Some(value) => match find_in("subgroup", "name").and_then(|key| key.kind.read(value.get_ref())) {
                Some(Value::Text(name)) => Some((name, value.span())),
                // The mistake is reported below.
                _ => None,
            },
        };
        let origin = self.text.origin(span);
        let listed = name.clone().map(|(name, _)| name);
        if let Some(name) = &listed {
            self.settings.subgroups.push(FileSubgroup { name: name.clone(), origin });
        }
        for (leaf, value) in table {
            match find_in("subgroup", leaf.get_ref()) {
                Some(key) => self.value(key, Some(listed.as_deref().unwrap_or("?")), value),
                None => self.unknown("subgroup", leaf),
            }
        }
        name
    }

    fn value(&mut self, key: &'static Key, subgroup: Option<&str>, value: &Spanned<DeValue<'_>>) {
        let origin = self.text.origin(value.span());
        match key.kind.read(value.get_ref()) {
            Some(read) => {
                let value = self.settled(read);
                let subgroup = subgroup.map(str::to_string);
                self.settings.given.push(Given { key, subgroup, value, origin, rank: RANK_FILE });
            }
            None => {
                let path = match subgroup {
                    Some(name) => key.path.replacen("NAME", name, 1),
                    None => key.path.to_string(),
                };
                let message = format!("{path} is {}; allowed is {}", describe(value.get_ref()), key.allowed());
                self.wrong(value.span(), Some(path), message);
            }
        }
    }

    /// Makes relative paths relative to the directory of their file.
    fn settled(&self, value: Value) -> Value {
        match value {
            Value::Path(path) => {
                let dir = Path::new(self.text.name).parent().unwrap_or(Path::new(""));
                Value::Path(dir.join(path))
            }
            other => other,
        }
    }

    fn unknown(&mut self, table: &str, leaf: &Spanned<toml::de::DeString<'_>>) {
        let name: &str = leaf.get_ref();
        let whole = format!("{table}.{name}");
        if let Some(new) = renamed(&whole) {
            let message = format!("{whole} is called {new} in this version; rename the key");
            return self.wrong(leaf.span(), Some(whole), message);
        }
        let here = match table {
            "" => "outside of all tables".to_string(),
            "subgroup" => "in [[subgroup]]".to_string(),
            table => format!("in [{table}]"),
        };
        let keys = || KEYS.iter().filter(|key| key.table() == table).map(|key| key.leaf().to_string());
        let inner = TABLES.iter().filter_map(|(path, _)| match path.rsplit_once('.') {
            Some((outer, leaf)) => (outer == table).then(|| leaf.to_string()),
            None => table.is_empty().then(|| path.to_string()),
        });
        let known: Vec<String> = keys().chain(inner).collect();
        let elsewhere = KEYS.iter().find(|key| key.leaf() == name && key.table() != table);
        let advice = match (nearest(name, known.clone()), elsewhere) {
            (_, Some(key)) if key.table().is_empty() => format!("{name} stands before the first table"),
            (_, Some(key)) if key.is_of_subgroup() => format!("{name} is a key of [[subgroup]]"),
            (_, Some(key)) => format!("{name} is a key of [{}]", key.table()),
            (Some(near), None) => format!("did you mean {near}?"),
            (None, None) => format!("there are {}", known.join(", ")),
        };
        let path = if table.is_empty() { shorten(name) } else { format!("{table}.{}", shorten(name)) };
        self.wrong(leaf.span(), Some(path), format!("unknown key {:?} {here}; {advice}", shorten(name)));
    }

    fn wrong(&mut self, span: Range<usize>, key: Option<String>, message: String) {
        if self.problems.len() < PROBLEMS_MAX {
            let origin = self.text.origin(span);
            self.problems.push(Problem { origin, key, message, is_error: true });
        }
    }
}
