//! Writes effective values as XML and as TOML. Reading them gives the same sets again.
use super::error::{ProfileError, ProfileProblem};
use super::fields::Field;
use super::read::is_name;
use super::set::ProfileSets;
use super::value::{FieldKind, Literal, Value, to_base64};
use crate::policy::Length;
use crate::time::DdsDuration;
use std::fmt::Write;

/// The most octets that are written one by one. More are written as Base64.
const OCTETS_MAX: usize = 16;
/// The nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Writes all policies of a profile as DDS-XML, those with default values included. The name is
/// `Library::Profile`.
///
/// # Errors
/// [`ProfileProblem::Wrong`] if the name is not of this form, [`ProfileProblem::NotWritable`] if a name or
/// a partition has a character that XML can't contain.
pub fn to_xml(name: &str, sets: &ProfileSets) -> Result<String, ProfileError> {
    let (library, profile) = split(name)?;
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<dds>\n");
    let (library, profile) = (escaped(name, library)?, escaped(name, profile)?);
    let _ = write!(xml, "  <qos_library name=\"{library}\">\n    <qos_profile name=\"{profile}\">\n");
    for (kind, policies) in sets.values() {
        let _ = writeln!(xml, "      <{kind}>");
        for (policy, values) in policies {
            let path = format!("{name}/{kind}/{policy}");
            let _ = writeln!(xml, "        <{policy}>");
            for (field, value) in values {
                let name = match &value {
                    Value::Octets(octets) if octets.len() > OCTETS_MAX => "valueB64",
                    _ => field.name,
                };
                let _ = writeln!(xml, "          <{name}>{}</{name}>", xml_value(&path, &field, &value)?);
            }
            let _ = writeln!(xml, "        </{policy}>");
        }
        let _ = writeln!(xml, "      </{kind}>");
    }
    xml.push_str("    </qos_profile>\n  </qos_library>\n</dds>\n");
    Ok(xml)
}

/// Writes all policies of a profile as TOML, those with default values included. The name is
/// `Library::Profile`.
///
/// # Errors
/// [`ProfileProblem::Wrong`] if the name is not of this form.
pub fn to_toml(name: &str, sets: &ProfileSets) -> Result<String, ProfileError> {
    let (library, profile) = split(name)?;
    let (library, profile, mut toml) = (key(library), key(profile), String::new());
    for (kind, policies) in sets.values() {
        let _ = writeln!(toml, "[qos_library.{library}.{profile}.{kind}]");
        for (policy, values) in policies {
            let value = |(field, value): (Field, Value)| {
                let name = match &value {
                    Value::Octets(octets) if octets.len() > OCTETS_MAX => "valueB64",
                    _ => field.name,
                };
                format!("{name} = {}", toml_value(&field, &value))
            };
            let values: Vec<String> = values.into_iter().map(value).collect();
            let _ = writeln!(toml, "{policy} = {{ {} }}", values.join(", "));
        }
        toml.push('\n');
    }
    Ok(toml)
}

fn split(name: &str) -> Result<(&str, &str), ProfileError> {
    let parts = name.split_once("::").filter(|(library, profile)| is_name(library) && is_name(profile));
    parts.ok_or_else(|| {
        let (value, allowed) = (format!("{name:?}"), "Library::Profile".to_owned());
        ProfileError {
            place: None,
            path: String::new(),
            problem: Box::new(ProfileProblem::Wrong { value, allowed, nearest: None }),
        }
    })
}

fn xml_value(path: &str, field: &Field, value: &Value) -> Result<String, ProfileError> {
    let elements =
        |texts: Vec<String>| texts.into_iter().map(|text| format!("<element>{text}</element>")).collect::<String>();
    Ok(match value {
        Value::Word(index) => literal(field, *index).standard.to_owned(),
        Value::Words(indices) => {
            elements(indices.iter().map(|index| literal(field, *index).standard.to_owned()).collect())
        }
        Value::Names(names) => elements(names.iter().map(|name| escaped(path, name)).collect::<Result<Vec<_>, _>>()?),
        Value::Duration(DdsDuration::INFINITE) => {
            "<sec>DURATION_INFINITE_SEC</sec><nanosec>DURATION_INFINITE_NSEC</nanosec>".to_owned()
        }
        Value::Duration(duration) => {
            let nanos = duration.as_nanos();
            format!("<sec>{}</sec><nanosec>{}</nanosec>", nanos / SECOND, nanos % SECOND)
        }
        Value::Length(Length::Unlimited) => "LENGTH_UNLIMITED".to_owned(),
        Value::Length(Length::Limited(limit)) => limit.to_string(),
        Value::Count(count) => count.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Bool(on) => on.to_string(),
        Value::Octets(octets) if octets.len() > OCTETS_MAX => to_base64(octets),
        Value::Octets(octets) => octets.iter().map(u8::to_string).collect::<Vec<_>>().join(", "),
    })
}

/// Writes a value in the notation of TOML.
pub(super) fn toml_value(field: &Field, value: &Value) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match value {
        Value::Word(index) => quoted(literal(field, *index).short),
        Value::Words(indices) => list(indices.iter().map(|index| quoted(literal(field, *index).short)).collect()),
        Value::Names(names) => list(names.iter().map(|name| quoted(name)).collect()),
        Value::Duration(duration) => quoted(&duration.to_string()),
        Value::Length(Length::Unlimited) => quoted("unlimited"),
        Value::Length(Length::Limited(limit)) => limit.to_string(),
        Value::Count(count) => count.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Bool(on) => on.to_string(),
        Value::Octets(octets) if octets.len() > OCTETS_MAX => quoted(&to_base64(octets)),
        Value::Octets(octets) => list(octets.iter().map(u8::to_string).collect()),
    }
}

fn literal(field: &Field, index: usize) -> Literal {
    match field.kind {
        FieldKind::Word(literals) | FieldKind::Words(literals) => literals[index],
        _ => Literal { standard: "", short: "" },
    }
}

fn escaped(path: &str, text: &str) -> Result<String, ProfileError> {
    let mut xml = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(xml, "&#{};", u32::from(character));
            }
            '\0'..=' ' if character != ' ' => return Err(not_writable(path, character)),
            '\u{fffe}' | '\u{ffff}' => return Err(not_writable(path, character)),
            _ => xml.push(character),
        }
    }
    Ok(xml)
}

fn not_writable(path: &str, character: char) -> ProfileError {
    ProfileError { place: None, path: path.to_owned(), problem: Box::new(ProfileProblem::NotWritable { character }) }
}

fn key(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_bare { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    let mut toml = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                toml.push('\\');
                toml.push(character);
            }
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(toml, "\\u{:04x}", u32::from(character));
            }
            _ => toml.push(character),
        }
    }
    toml + "\""
}
