//! Names by the conventions of Rust.
use std::collections::{BTreeMap, BTreeSet};

/// A convention of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// `some_field`.
    Snake,
    /// `some_module`, which may not hide a primitive type.
    Module,
    /// `SomeType`.
    Camel,
    /// `SOME_CONSTANT`.
    Upper,
    /// As it is.
    Kept,
}

/// Names that are given in one scope of Rust.
#[derive(Debug, Default)]
pub(super) struct Given {
    used: BTreeSet<String>,
}

impl Given {
    /// Gives names to all definitions of a scope. Two that would be the same keep their names of IDL.
    pub(super) fn names(&mut self, all: &[(&str, Style)]) -> Vec<String> {
        let converted: Vec<String> = all.iter().map(|(name, style)| convert(name, *style)).collect();
        let mut counts = BTreeMap::new();
        converted.iter().for_each(|name| *counts.entry(name.as_str()).or_insert(0) += 1);
        let names = all.iter().zip(&converted);
        names
            .map(|((name, _), converted)| if counts[converted.as_str()] == 1 { converted } else { *name })
            .map(|name| self.free(name))
            .collect()
    }

    /// Gives a name, with underscores at its end if it is used.
    pub(super) fn free(&mut self, name: &str) -> String {
        let mut name = escaped(name);
        while !self.used.insert(name.clone()) {
            name = format!("{}_", name.strip_prefix("r#").unwrap_or(&name));
        }
        name
    }
}

fn convert(name: &str, style: Style) -> String {
    let words = words(name);
    let converted = match style {
        Style::Kept => name.to_owned(),
        Style::Snake | Style::Module => words.iter().map(|word| word.to_lowercase()).collect::<Vec<_>>().join("_"),
        Style::Upper => words.iter().map(|word| word.to_uppercase()).collect::<Vec<_>>().join("_"),
        Style::Camel => words.iter().map(|word| capitalised(word)).collect(),
    };
    match converted.is_empty() || converted.starts_with(|c: char| c.is_ascii_digit()) {
        true => name.to_owned(),
        false if style == Style::Module && PRIMITIVES.contains(&converted.as_str()) => format!("{converted}_"),
        false => converted,
    }
}

/// Splits a name into words. A word begins after an underscore, at an uppercase character after a
/// lowercase one, and at an uppercase character before a lowercase one.
fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let (mut words, mut word) = (Vec::new(), String::new());
    for (index, c) in characters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| characters[before]);
        let is_start = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                let next_is_small = characters.get(index + 1).is_some_and(char::is_ascii_lowercase);
                before.is_ascii_lowercase()
                    || (before.is_ascii_uppercase() && next_is_small)
                    || (before.is_ascii_digit() && next_is_small)
            });
        if (*c == '_' || is_start) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if *c != '_' {
            word.push(*c);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn capitalised(word: &str) -> String {
    let mut characters = word.chars();
    let Some(first) = characters.next() else { return String::new() };
    let rest = characters.as_str();
    let is_upper = !rest.chars().any(|c| c.is_ascii_lowercase());
    format!("{}{}", first.to_ascii_uppercase(), if is_upper { rest.to_ascii_lowercase() } else { rest.to_owned() })
}

/// Returns a name that is no keyword of Rust.
fn escaped(name: &str) -> String {
    match name {
        "_" => "__".to_owned(),
        "self" | "Self" | "super" | "crate" => format!("{name}_"),
        name if KEYWORDS.contains(&name) => format!("r#{name}"),
        name => name.to_owned(),
    }
}

const PRIMITIVES: &[&str] = &["bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "str"];

const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum",
    "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move",
    "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for (name, snake, camel) in [
            ("someField", "some_field", "SomeField"),
            ("HTTPServer", "http_server", "HttpServer"),
            ("RED", "red", "Red"),
            ("Foo_Bar", "foo_bar", "FooBar"),
            ("x", "x", "X"),
            ("Point3D", "point3d", "Point3D"),
            ("sensor_msgs", "sensor_msgs", "SensorMsgs"),
            ("_", "_", "_"),
            ("a__b", "a_b", "AB"),
        ] {
            assert_eq!((convert(name, Style::Snake), convert(name, Style::Camel)), (snake.into(), camel.into()));
        }
        assert_eq!(convert("maxLength", Style::Upper), "MAX_LENGTH");
    }

    #[test]
    fn names_that_would_be_the_same_are_kept() {
        let mut given = Given::default();
        let names = given.names(&[("fooBar", Style::Snake), ("foo_bar", Style::Snake), ("type", Style::Snake)]);
        assert_eq!(names, ["fooBar", "foo_bar", "r#type"]);
        assert_eq!(given.free("type"), "type_");
        assert_eq!(given.names(&[("self", Style::Snake), ("_", Style::Snake)]), ["self_", "__"]);
    }
}
