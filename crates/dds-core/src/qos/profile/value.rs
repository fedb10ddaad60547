//! The values of fields, and their notation in both formats.
use super::error::{ProfileProblem, nearest, shorten};
use super::text::{Format, SourceText};
use super::tree::{Item, Raw};
use crate::policy::Length;
use crate::time::DdsDuration;

/// A word of an enumeration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Literal {
    /// The literal of the platform-specific model, which XML has. TOML accepts it, too.
    pub(super) standard: &'static str,
    /// The word of TOML.
    pub(super) short: &'static str,
}

/// The values that a field accepts.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldKind {
    /// One word.
    Word(&'static [Literal]),
    /// A list of words.
    Words(&'static [Literal]),
    Duration,
    /// A count from 1, or no limit.
    Length,
    /// A count from 1.
    Count,
    Integer,
    Bool,
    Octets,
    Names,
}

/// A value that was checked against its [`FieldKind`]. Words are indices of the literals.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Word(usize),
    Words(Vec<usize>),
    Duration(DdsDuration),
    Length(Length),
    Count(u32),
    Integer(i32),
    Bool(bool),
    Octets(Vec<u8>),
    Names(Vec<String>),
}

/// The most whole seconds of a duration.
const SECONDS_MAX: u64 = u64::MAX / SECOND;
/// The nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The value of both DURATION_INFINITE_SEC and DURATION_INFINITE_NSEC (DDS 2.3.3).
const INFINITE: u64 = 0x7fff_ffff;

/// The units of durations in TOML, in nanoseconds. A number without a unit is in seconds.
const UNITS: [(&str, u64); 9] = [
    ("", SECOND),
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("min", 60 * SECOND),
    ("h", 3_600 * SECOND),
    ("d", 86_400 * SECOND),
];

impl FieldKind {
    /// Returns the allowed values, in words.
    pub(super) fn allowed(self, format: Format) -> String {
        let is_xml = format == Format::Xml;
        let words = |literals: &[Literal], between: &str| {
            literals.iter().map(|literal| literal.shown(format)).collect::<Vec<_>>().join(between)
        };
        match self {
            FieldKind::Word(literals) => words(literals, " or "),
            FieldKind::Words(literals) if is_xml => format!("<element> with {}", words(literals, " or ")),
            FieldKind::Words(literals) => format!("a list of {}", words(literals, " and ")),
            FieldKind::Duration if is_xml => {
                "<sec> and <nanosec>, for example <sec>1</sec>, or DURATION_INFINITY".to_owned()
            }
            FieldKind::Duration => {
                "a time such as \"100 ms\" or \"2 s\" (a bare number is seconds), or \"infinite\"".to_owned()
            }
            FieldKind::Length if is_xml => format!("a number from 1 to {}, or LENGTH_UNLIMITED", u32::MAX),
            FieldKind::Length => format!("a number from 1 to {}, or \"unlimited\"", u32::MAX),
            FieldKind::Count => format!("a number from 1 to {}", u32::MAX),
            FieldKind::Integer => format!("a number from {} to {}", i32::MIN, i32::MAX),
            FieldKind::Bool if is_xml => "true, false, 1 or 0".to_owned(),
            FieldKind::Bool => "true or false".to_owned(),
            FieldKind::Octets if is_xml => "octets such as 84, 0x71 (for Base64, the element is <valueB64>)".to_owned(),
            FieldKind::Octets => {
                "a list of octets such as [84, 0x71], or a text (for Base64, the key is valueB64)".to_owned()
            }
            FieldKind::Names if is_xml => "<element> with a name".to_owned(),
            FieldKind::Names => "a list of names such as [\"a\", \"b*\"]".to_owned(),
        }
    }

    /// Reads a value, or notes the error.
    pub(super) fn read(self, source: &mut SourceText<'_>, path: &str, item: &Item) -> Option<Value> {
        match (self, &item.raw) {
            (FieldKind::Duration, Raw::Table(parts)) if source.format == Format::Xml => {
                return duration_of_parts(source, path, item, parts);
            }
            (FieldKind::Names | FieldKind::Words(_), Raw::Table(items)) if source.format == Format::Xml => {
                return self.list(source, path, items);
            }
            (FieldKind::Names | FieldKind::Words(_), Raw::List(items)) => return self.list(source, path, items),
            (FieldKind::Octets, Raw::List(items)) => return octets_of_items(source, path, items),
            _ => {}
        }
        let value = self.plain(source.format, &item.raw);
        if value.is_none() {
            self.refuse(source, path, item);
        }
        value
    }

    fn refuse(self, source: &mut SourceText<'_>, path: &str, item: &Item) {
        let words = match (self, &item.raw) {
            (FieldKind::Word(literals), Raw::Text(text)) => near_literal(text.trim(), literals, source.format),
            _ => None,
        };
        wrong(source, path, item, self.allowed(source.format), words);
    }

    fn list(self, source: &mut SourceText<'_>, path: &str, items: &[Item]) -> Option<Value> {
        let (mut names, mut words, mut is_fine) = (Vec::new(), Vec::new(), true);
        for item in items {
            if item.name != "element" || item.is_attribute {
                let what = if item.is_attribute { "attribute" } else { "element" };
                source.unknown(item.at, path, what, &item.name, vec!["element".to_owned()]);
                is_fine = false;
                continue;
            }
            match (self, &item.raw) {
                (FieldKind::Names, Raw::Text(name)) => names.push(name.clone()),
                (FieldKind::Words(literals), _) => {
                    match FieldKind::Word(literals).read(source, path, item) {
                        Some(Value::Word(index)) => words.push(index),
                        _ => is_fine = false,
                    };
                }
                _ => {
                    wrong(source, path, item, "a name".to_owned(), None);
                    is_fine = false;
                }
            }
        }
        let value = if matches!(self, FieldKind::Names) { Value::Names(names) } else { Value::Words(words) };
        is_fine.then_some(value)
    }

    /// Reads the values without parts.
    fn plain(self, format: Format, raw: &Raw) -> Option<Value> {
        let is_xml = format == Format::Xml;
        let word = match raw {
            Raw::Text(text) if is_xml => text.trim(),
            Raw::Text(text) => text.as_str(),
            _ => "",
        };
        let number = match raw {
            Raw::Integer(number, _) => *number,
            Raw::Text(_) if is_xml => number(word),
            _ => None,
        };
        match self {
            FieldKind::Word(literals) => literals
                .iter()
                .position(|literal| literal.standard == word || (!is_xml && literal.short == word))
                .map(Value::Word),
            FieldKind::Words(_) => (is_xml && word.is_empty()).then(|| Value::Words(Vec::new())),
            FieldKind::Names => match raw {
                Raw::Text(_) if is_xml => word.is_empty().then(|| Value::Names(Vec::new())),
                _ => None,
            },
            FieldKind::Duration if is_xml => {
                (word == "DURATION_INFINITY").then_some(Value::Duration(DdsDuration::INFINITE))
            }
            FieldKind::Duration => match raw {
                Raw::Text(text) => parse_duration(text).map(Value::Duration),
                Raw::Integer(..) => {
                    let seconds = number.and_then(|number| u64::try_from(number).ok())?;
                    let nanos = seconds.checked_mul(SECOND).filter(|nanos| *nanos < u64::MAX)?;
                    Some(Value::Duration(DdsDuration::from_nanos(nanos)))
                }
                _ => None,
            },
            FieldKind::Length if word == if is_xml { "LENGTH_UNLIMITED" } else { "unlimited" } => {
                Some(Value::Length(Length::Unlimited))
            }
            FieldKind::Length => count(number?).map(Length::Limited).map(Value::Length),
            FieldKind::Count => count(number?).map(Value::Count),
            FieldKind::Integer => {
                let number = number?;
                // A hexadecimal number of XML has the bits of the integer (DDS-XML, table 7.1).
                let is_hexadecimal = is_xml && word.starts_with("0x");
                let bits = u32::try_from(number).ok().filter(|_| is_hexadecimal);
                let integer = bits.map(|bits| bits as i32).or_else(|| i32::try_from(number).ok());
                integer.map(Value::Integer)
            }
            FieldKind::Bool => match (raw, word) {
                (Raw::Bool(on), _) => Some(Value::Bool(*on)),
                (Raw::Text(_), "true" | "1") if is_xml => Some(Value::Bool(true)),
                (Raw::Text(_), "false" | "0") if is_xml => Some(Value::Bool(false)),
                _ => None,
            },
            FieldKind::Octets => match raw {
                Raw::Text(_) if is_xml => octets(word).map(Value::Octets),
                Raw::Text(text) => Some(Value::Octets(text.as_bytes().to_vec())),
                _ => None,
            },
        }
    }
}

impl Literal {
    fn shown(&self, format: Format) -> String {
        match format {
            Format::Xml => self.standard.to_owned(),
            Format::Toml => format!("{:?}", self.short),
        }
    }
}

/// Reads Base64, the value of `valueB64`, or notes the error.
pub(super) fn read_base64(source: &mut SourceText<'_>, path: &str, item: &Item) -> Option<Value> {
    let octets = match &item.raw {
        Raw::Text(text) => from_base64(text),
        _ => None,
    };
    if octets.is_none() {
        wrong(source, path, item, "Base64 such as VGhl".to_owned(), None);
    }
    octets.map(Value::Octets)
}

/// Notes that a value is not allowed.
pub(super) fn wrong(source: &mut SourceText<'_>, path: &str, item: &Item, allowed: String, nearest: Option<String>) {
    let value = describe(&item.raw, source.format);
    source.wrong(source.place(item.value_at), path, ProfileProblem::Wrong { value, allowed, nearest });
}

fn describe(raw: &Raw, format: Format) -> String {
    match raw {
        Raw::Text(text) if format == Format::Xml && text.trim().is_empty() => "empty".to_owned(),
        Raw::Text(text) => format!("{:?}", shorten(text.trim())),
        Raw::Integer(_, text) | Raw::Other(text) => text.clone(),
        Raw::Bool(on) => on.to_string(),
        Raw::List(_) => "a list".to_owned(),
        Raw::Table(_) if format == Format::Xml => "elements".to_owned(),
        Raw::Table(_) => "a table".to_owned(),
    }
}

/// Returns the literal that is most like a wrong word. In XML, the short word may have been meant, too.
fn near_literal(wrong: &str, literals: &[Literal], format: Format) -> Option<String> {
    let near = nearest(wrong, literals.iter().map(|literal| literal.short));
    let near = near.or_else(|| nearest(wrong, literals.iter().map(|literal| literal.standard)))?;
    let literal = literals.iter().find(|literal| literal.short == near || literal.standard == near);
    literal.map(|literal| literal.shown(format))
}

fn octets_of_items(source: &mut SourceText<'_>, path: &str, items: &[Item]) -> Option<Value> {
    let octet = |item: &Item| match item.raw {
        Raw::Integer(number, _) => number.and_then(|number| u8::try_from(number).ok()),
        _ => None,
    };
    let octets = items.iter().map(|item| octet(item).ok_or(item)).collect::<Result<_, _>>();
    octets.map(Value::Octets).map_err(|item| wrong(source, path, item, "an octet from 0 to 255".to_owned(), None)).ok()
}

fn duration_of_parts(source: &mut SourceText<'_>, path: &str, item: &Item, parts: &[Item]) -> Option<Value> {
    let (mut given, mut is_fine) = ([None, None], true);
    for part in parts {
        let path = format!("{path}/{}", part.name);
        let (index, infinite, most) = match (part.name.as_str(), part.is_attribute) {
            ("sec", false) => (0, "DURATION_INFINITE_SEC", SECONDS_MAX),
            ("nanosec", false) => (1, "DURATION_INFINITE_NSEC", SECOND - 1),
            (name, is_attribute) => {
                let what = if is_attribute { "attribute" } else { "element" };
                let known = if is_attribute { Vec::new() } else { vec!["sec".to_owned(), "nanosec".to_owned()] };
                source.unknown(part.at, path.trim_end_matches(name).trim_end_matches('/'), what, name, known);
                is_fine = false;
                continue;
            }
        };
        if let Some((_, first)) = given[index] {
            let problem = ProfileProblem::Duplicate { name: part.name.clone(), first: source.place(first) };
            source.wrong(source.place(part.at), &path, problem);
            is_fine = false;
            continue;
        }
        let text = if let Raw::Text(text) = &part.raw { text.trim() } else { "" };
        let value = match number(text).and_then(|number| u64::try_from(number).ok()) {
            _ if text == infinite || text == "DURATION_INFINITY" => Some(None),
            _ if text == "DURATION_ZERO_SEC" && index == 0 => Some(Some(0)),
            _ if text == "DURATION_ZERO_NSEC" && index == 1 => Some(Some(0)),
            Some(number) if number <= most || (index == 1 && number == INFINITE) => Some(Some(number)),
            _ => None,
        };
        match value {
            Some(value) => given[index] = Some((value, part.at)),
            None => {
                let near = nearest(text, [infinite, "DURATION_INFINITY"]);
                wrong(source, &path, part, format!("a number from 0 to {most}, or {infinite}"), near);
                is_fine = false;
            }
        }
    }
    if !is_fine {
        return None;
    }
    let duration = match (given[0].map(|(value, _)| value), given[1].map(|(value, _)| value)) {
        (None, None) => {
            source.wrong(source.place(item.at), path, ProfileProblem::Missing { what: "<sec> or <nanosec>" });
            return None;
        }
        (Some(None), None | Some(None | Some(INFINITE))) | (Some(Some(INFINITE)), Some(None | Some(INFINITE))) => {
            Some(DdsDuration::INFINITE)
        }
        (seconds, nanos) => finite(seconds.unwrap_or(Some(0)), nanos.unwrap_or(Some(0))),
    };
    if duration.is_none() {
        let part = |part: &Item| match &part.raw {
            Raw::Text(text) => format!("<{}> {}", part.name, shorten(text.trim())),
            _ => part.name.clone(),
        };
        let value = parts.iter().map(part).collect::<Vec<_>>().join(" and ");
        let allowed = "<sec> and <nanosec> that are both finite or both infinite, up to 18446744073 s".to_owned();
        source.wrong(source.place(item.at), path, ProfileProblem::Wrong { value, allowed, nearest: None });
    }
    duration.map(Value::Duration)
}

/// Makes a duration of parts that are finite, and shorter than an infinite one.
fn finite(seconds: Option<u64>, nanos: Option<u64>) -> Option<DdsDuration> {
    let (seconds, nanos) = (seconds?, nanos.filter(|nanos| *nanos < SECOND)?);
    let nanos = seconds.checked_mul(SECOND)?.checked_add(nanos)?;
    (nanos < u64::MAX).then(|| DdsDuration::from_nanos(nanos))
}

/// Parses a time of TOML: a number with or without decimals, and a unit. Decimals below a nanosecond
/// are refused.
fn parse_duration(text: &str) -> Option<DdsDuration> {
    if text == "infinite" {
        return Some(DdsDuration::INFINITE);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, worth) = UNITS.iter().find(|(name, _)| *name == unit.trim_start_matches(' '))?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || decimals.is_empty() || decimals.len() > 18 || decimals.contains('.') {
        return None;
    }
    let part = u128::from(*worth) * decimals.parse::<u128>().ok()?;
    let scale = 10_u128.pow(decimals.len() as u32);
    let part = (part % scale == 0).then_some(part / scale)?;
    let nanos = u128::from(whole.parse::<u64>().ok()?).checked_mul(u128::from(*worth))?.checked_add(part)?;
    u64::try_from(nanos).ok().filter(|nanos| *nanos < u64::MAX).map(DdsDuration::from_nanos)
}

/// Parses a number of XML: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => i128::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

fn count(number: i128) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}

/// Parses octets with commas between them, decimal or hexadecimal (DDS-XML 7.2.4.2).
fn octets(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let octet = |text: &str| {
        let text = text.trim();
        let text = text.strip_prefix("0X").map_or(text.to_owned(), |digits| format!("0x{digits}"));
        number(&text).and_then(|number| u8::try_from(number).ok())
    };
    text.split(',').map(octet).collect()
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes Base64 with padding (RFC 4648, section 4). White space does not count.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let mut octets = Vec::with_capacity(digits.len() / 4 * 3);
    for (index, group) in digits.chunks(4).enumerate() {
        let is_last = (index + 1) * 4 == digits.len();
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && !is_last) {
            return None;
        }
        let mut bits = 0;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | BASE64.iter().position(|digit| digit == byte)? as u32;
        }
        bits <<= 6 * padding;
        let bytes = bits.to_be_bytes();
        // The bits that no octet takes are zero.
        if bytes[4 - padding..].iter().any(|byte| *byte != 0) {
            return None;
        }
        octets.extend(&bytes[1..4 - padding]);
    }
    Some(octets)
}

/// Encodes octets as Base64 with padding.
pub(super) fn to_base64(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len().div_ceil(3) * 4);
    for group in octets.chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bytes);
        for digit in 0..4 {
            let is_padding = digit > group.len();
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if is_padding { '=' } else { char::from(BASE64[index as usize]) });
        }
    }
    text
}
