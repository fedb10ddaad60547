//! The values of keys, and their notation: typed in TOML, text in variables and flags.
use super::quantity::{parse_bytes, parse_time, show_bytes, show_time};
use crate::{Address, RackName, Who};
use serde_json::{Value as Json, json};
use spindle_core::limits::{MEMBERS_MAX, NAME_BYTES_MAX};
use spindle_transport::rendezvous::GroupName;
use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;

/// A value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Words.
    Text(String),
    /// A count.
    Number(u64),
    /// Bytes.
    Bytes(u64),
    /// A time; `None`: never.
    Time(Option<Duration>),
    /// Yes or no.
    Switch(bool),
    /// Members.
    Who(Who),
    /// A file or a directory.
    Path(PathBuf),
    /// Addresses.
    List(Vec<String>),
}

impl fmt::Display for Value {
    /// Writes the value as a variable or a flag contains it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => number.fmt(f),
            Value::Bytes(bytes) => f.write_str(&show_bytes(*bytes)),
            Value::Time(None) => f.write_str("never"),
            Value::Time(Some(time)) => f.write_str(&show_time(*time)),
            Value::Switch(on) => on.fmt(f),
            Value::Who(Who::All) => f.write_str("all"),
            Value::Who(Who::First(count)) => write!(f, "first {count}"),
            Value::Who(Who::Shard { set, least, most }) => write!(f, "shard {set}, {least} to {most}"),
            Value::Who(Who::Ranks(ranks)) => {
                f.write_str(&ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
            Value::Path(path) => path.display().fmt(f),
            Value::List(list) => f.write_str(&list.join(",")),
        }
    }
}

impl Value {
    /// Returns the value as JSON: counts and bytes are numbers, times are text.
    pub fn to_json(&self) -> Json {
        match self {
            Value::Number(number) | Value::Bytes(number) => json!(number),
            Value::Switch(on) => json!(on),
            Value::Who(Who::Ranks(ranks)) => json!(ranks),
            Value::List(list) => json!(list),
            other => json!(other.to_string()),
        }
    }
}

/// The values that a key accepts.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueKind {
    GroupName,
    SubgroupName,
    Number {
        least: u64,
        most: u64,
    },
    Bytes {
        most: u64,
    },
    Time {
        least: Duration,
        most: Duration,
        never: bool,
    },
    Switch,
    Choice(&'static [&'static str]),
    /// Members; `shards` if a shard is possible.
    Who {
        shards: bool,
    },
    Path,
    /// `host:port`.
    Address,
    Addresses,
    /// The name of a rack.
    Rack,
    /// A word that another program interprets.
    Word,
}

/// The most addresses in one list.
const ADDRESSES_MAX: usize = MEMBERS_MAX;

impl ValueKind {
    /// Returns the allowed values, in words.
    pub(super) fn allowed(&self) -> String {
        match self {
            ValueKind::GroupName => "1 to 64 letters, digits, `.`, `_` and `-`, the first no `.`".to_string(),
            ValueKind::SubgroupName => format!("a name of 1 to {NAME_BYTES_MAX} bytes"),
            ValueKind::Number { least, most } => format!("a whole number from {least} to {most}"),
            ValueKind::Bytes { most } => {
                format!("a number of bytes such as 10000 or \"64KiB\", up to {}", show_bytes(*most))
            }
            ValueKind::Time { least, most, never } => {
                let never = if *never { ", or \"never\"" } else { "" };
                let (least, most) = (show_time(*least), show_time(*most));
                format!("a time such as \"300ms\" or \"2s\" (a bare number is seconds), from {least} to {most}{never}")
            }
            ValueKind::Switch => "true or false".to_string(),
            ValueKind::Choice(words) => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or "),
            ValueKind::Who { shards: false } => "\"all\", \"first 2\", or ranks such as [0, 1]".to_string(),
            ValueKind::Who { shards: true } => {
                "\"all\", \"first 2\", ranks such as [0, 1], or \"shard 0, 2 to 3\" (one of set 0, with 2 to 3 members)"
                    .to_string()
            }
            ValueKind::Path => "a path; in a file, one that is relative counts from the file's directory".to_string(),
            ValueKind::Address => "an address such as \"host:7411\", \"10.0.0.1:7411\" or \"[::1]:7411\"".to_string(),
            ValueKind::Addresses => "addresses such as [\"host:7411\", \"[::1]:7411\"]".to_string(),
            ValueKind::Rack => "1 to 64 letters, digits and signs, all of them ASCII and no spaces".to_string(),
            ValueKind::Word => "a word".to_string(),
        }
    }

    /// Parses the text of a variable or a flag.
    pub(super) fn parse(&self, text: &OsStr) -> Option<Value> {
        if let ValueKind::Path = self {
            return (!text.is_empty()).then(|| Value::Path(text.into()));
        }
        let text = text.to_str()?.trim();
        match self {
            ValueKind::Number { .. } => text.parse().ok().and_then(|number| self.number(number)),
            ValueKind::Switch => match text {
                "true" | "1" | "yes" | "on" => Some(Value::Switch(true)),
                "false" | "0" | "no" | "off" => Some(Value::Switch(false)),
                _ => None,
            },
            ValueKind::Addresses => {
                let list = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                addresses(list.map(str::to_string).collect())
            }
            ValueKind::Who { shards } => who(text, *shards),
            _ => self.word(text),
        }
    }

    /// Reads a value of a file.
    pub(super) fn read(&self, value: &DeValue<'_>) -> Option<Value> {
        match (self, value) {
            (ValueKind::Path, DeValue::String(text)) => self.parse(OsStr::new(text.as_ref())),
            (ValueKind::Who { shards }, DeValue::String(text)) => {
                who(text, *shards).filter(|who| !matches!(who, Value::Who(Who::Ranks(_))))
            }
            (ValueKind::Number { .. } | ValueKind::Switch | ValueKind::Addresses, DeValue::String(_)) => None,
            (_, DeValue::String(text)) => self.word(text),
            (_, DeValue::Integer(digits)) => {
                let number = u64::from_str_radix(digits.as_str(), digits.radix()).ok()?;
                match self {
                    ValueKind::Time { .. } => self.time(Duration::from_secs(number)),
                    _ => self.number(number),
                }
            }
            (ValueKind::Time { .. }, DeValue::Float(digits)) => self.time(parse_time(digits.as_str())?),
            (ValueKind::Switch, DeValue::Boolean(on)) => Some(Value::Switch(*on)),
            (ValueKind::Addresses, DeValue::Array(items)) => {
                let item = |item: &DeValue<'_>| item.as_str().map(str::to_string);
                addresses(items.iter().map(|i| item(i.get_ref())).collect::<Option<_>>()?)
            }
            (ValueKind::Who { .. }, DeValue::Array(items)) => {
                let rank = |item: &DeValue<'_>| match item {
                    DeValue::Integer(digits) => u32::from_str_radix(digits.as_str(), digits.radix()).ok(),
                    _ => None,
                };
                ranks(items.iter().map(|i| rank(i.get_ref())).collect::<Option<_>>()?)
            }
            _ => None,
        }
    }

    /// Parses the kinds that have the same notation everywhere.
    fn word(&self, text: &str) -> Option<Value> {
        let is_fine = match self {
            ValueKind::GroupName => GroupName::new(text).is_ok(),
            ValueKind::SubgroupName => (1..=NAME_BYTES_MAX).contains(&text.len()),
            ValueKind::Choice(words) => words.contains(&text),
            ValueKind::Address => is_address(text),
            ValueKind::Rack => text.parse::<RackName>().is_ok(),
            ValueKind::Word => !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()),
            ValueKind::Bytes { .. } => return self.number(parse_bytes(text)?),
            ValueKind::Time { never: true, .. } if text == "never" => return Some(Value::Time(None)),
            ValueKind::Time { .. } => return self.time(parse_time(text)?),
            _ => false,
        };
        is_fine.then(|| Value::Text(text.to_string()))
    }

    fn number(&self, number: u64) -> Option<Value> {
        match self {
            ValueKind::Number { least, most } => (*least..=*most).contains(&number).then_some(Value::Number(number)),
            ValueKind::Bytes { most } => (number <= *most).then_some(Value::Bytes(number)),
            _ => None,
        }
    }

    fn time(&self, time: Duration) -> Option<Value> {
        match self {
            ValueKind::Time { least, most, .. } => (*least..=*most).contains(&time).then_some(Value::Time(Some(time))),
            _ => None,
        }
    }
}

/// Describes a value of a file, for a message.
pub(super) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{:?}", shorten(text)),
        DeValue::Integer(number) => shorten(&number.to_string()),
        DeValue::Float(number) => shorten(&number.to_string()),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Datetime(_) => "a date".to_string(),
        DeValue::Array(items) if items.len() > 4 => format!("a list of {} values", items.len()),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| match item.get_ref() {
                DeValue::Array(_) => "a list".to_string(),
                item => describe(item),
            });
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        DeValue::Table(_) => "a table".to_string(),
    }
}

/// Cuts a text to the length that fits into a line of a message.
pub(super) fn shorten(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(60).collect();
    if chars.next().is_some() { head + "..." } else { head }
}

fn who(text: &str, shards: bool) -> Option<Value> {
    if text == "all" {
        return Some(Value::Who(Who::All));
    }
    if let Some(rest) = text.strip_prefix("shard ").filter(|_| shards) {
        let (set, size) = rest.split_once(',')?;
        let (least, most) = size.split_once(" to ")?;
        let [set, least, most] = [set, least, most].map(|number| number.trim().parse::<u32>().ok());
        let (set, least, most) = (set?, least?, most?);
        let is_fine = least <= most && (1..=MEMBERS_MAX as u32).contains(&most);
        return is_fine.then_some(Value::Who(Who::Shard { set, least, most }));
    }
    if let Some(count) = text.strip_prefix("first ") {
        let count = count.trim().parse().ok().filter(|count| (1..=MEMBERS_MAX as u32).contains(count));
        return count.map(Who::First).map(Value::Who);
    }
    ranks(text.split(',').map(|rank| rank.trim().parse().ok()).collect::<Option<_>>()?)
}

fn ranks(ranks: Vec<u32>) -> Option<Value> {
    let is_fine = !ranks.is_empty() && ranks.iter().all(|rank| *rank < MEMBERS_MAX as u32);
    is_fine.then_some(Value::Who(Who::Ranks(ranks)))
}

fn addresses(list: Vec<String>) -> Option<Value> {
    let is_fine = list.len() <= ADDRESSES_MAX && list.iter().all(|item| is_address(item));
    is_fine.then_some(Value::List(list))
}

fn is_address(text: &str) -> bool {
    text.parse::<Address>().is_ok()
}

/// Returns whether only this machine can reach a listener at the address. For a name it is not
/// known.
pub(super) fn is_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => address.starts_with("unix:") || address.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in
            ["localhost:0", "10.0.0.1:7411", "[::1]:7411", "a-b.c_d.svc.cluster.local.:65535", "n1:1", "unix:/run/a"]
        {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "host", "host:", ":7411", "host:65536", "host:-1", "host:+1", "::1:7411", "10.0.0:1", "a b:1"] {
            assert!(!is_address(bad), "{bad}");
        }
        assert!(is_loopback("127.0.0.9:1") && is_loopback("[::1]:1") && is_loopback("localhost:1"));
        assert!(is_loopback("unix:/run/a"));
        assert!(!is_loopback("0.0.0.0:1") && !is_loopback("[::]:1") && !is_loopback("n1:1"));
    }

    #[test]
    fn a_displayed_value_parses_to_the_same() {
        let time = ValueKind::Time { least: Duration::ZERO, most: Duration::from_secs(100), never: true };
        let number = ValueKind::Number { least: 1, most: 10 };
        let who = ValueKind::Who { shards: true };
        let values = [
            (who, Value::Who(Who::All)),
            (who, Value::Who(Who::First(3))),
            (who, Value::Who(Who::Ranks(vec![0, 2]))),
            (who, Value::Who(Who::Shard { set: 7, least: 2, most: 3 })),
            (time, Value::Time(None)),
            (time, Value::Time(Some(Duration::from_millis(30)))),
            (number, Value::Number(10)),
            (ValueKind::Switch, Value::Switch(true)),
            (ValueKind::Bytes { most: 1 << 20 }, Value::Bytes(4096)),
            (ValueKind::Addresses, Value::List(vec!["a:1".into(), "b:2".into()])),
            (ValueKind::Path, Value::Path("/a b".into())),
            (ValueKind::Choice(&["tcp"]), Value::Text("tcp".into())),
        ];
        for (kind, value) in values {
            assert_eq!(kind.parse(OsStr::new(&value.to_string())), Some(value));
        }
    }
}
