//! The settings that all members of a group share, as one text that every process can compare.
//!
//! The text has a line `key = value` for each setting, sorted by key, with the names that users
//! know from their configuration. Its digest travels in each
//! [`Ask`](super::control_message::ControlMessage::Ask), the text only in a refusal. A text that is
//! longer than [`SETTINGS_BYTES_MAX`](crate::limits::SETTINGS_BYTES_MAX) does not travel: then only
//! the digests can be compared.
use super::bytes::{Reader, WireError, Writer, digest};
use crate::limits::SETTINGS_BYTES_MAX;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The settings that all members of a group share.
///
/// A clone is cheap: the text is shared.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSettings {
    digest: u64,
    /// Empty if it is too long to travel.
    text: Arc<str>,
}

/// A setting that two processes have with different values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// The key, such as `subgroup.all.window`.
    pub key: String,
    /// The value here; `None` if this process has no such setting.
    pub here: Option<String>,
    /// The value of the group, or of another process; `None` if it has no such setting.
    pub there: Option<String>,
}

impl SharedSettings {
    /// Returns these settings, given as keys and values in any order. The last value of a key
    /// counts.
    ///
    /// # Panics
    /// If a key or a value contains a control character, a key contains a space, or is empty.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> SharedSettings {
        let pairs: BTreeMap<String, String> = pairs.into_iter().collect();
        let mut text = String::new();
        for (key, value) in &pairs {
            assert!(is_key(key) && is_value(value), "{key:?} = {value:?} is no line of settings");
            for part in [key, " = ", value, "\n"] {
                text.push_str(part);
            }
        }
        let digest = digest(text.bytes());
        let text = if text.len() > SETTINGS_BYTES_MAX { "" } else { &text };
        SharedSettings { digest, text: text.into() }
    }

    /// Returns the digest, which differs for different settings in all likelihood.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the text; empty if it is too long, or if there is no setting.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the keys and values, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| line.split_once(" = "))
    }

    /// Returns the value of this key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.pairs().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Returns the settings that differ in `other`, in order. The list is empty for different
    /// settings if one of the texts is too long.
    pub fn differences(&self, other: &SharedSettings) -> Vec<Difference> {
        if self.text.is_empty() || other.text.is_empty() {
            return Vec::new();
        }
        let (here, there): (BTreeMap<_, _>, BTreeMap<_, _>) = (self.pairs().collect(), other.pairs().collect());
        let mut keys: Vec<&str> = here.keys().chain(there.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        let differing = keys.into_iter().filter(|key| here.get(key) != there.get(key));
        let value = |of: &BTreeMap<&str, &str>, key| of.get(key).map(|value| String::from(*value));
        differing
            .map(|key| Difference { key: key.into(), here: value(&here, key), there: value(&there, key) })
            .collect()
    }

    pub(super) fn put(&self, out: &mut Writer) {
        out.u64(self.digest);
        out.text(&self.text);
    }

    /// Reads settings. A text that is not the one of the digest, is too long, or is not in the form
    /// in which it is written is an error.
    pub(super) fn read(from: &mut Reader<'_>) -> Result<SharedSettings, WireError> {
        let (claimed, text) = (from.u64()?, from.text("settings")?);
        let is_whole = text.is_empty() || (digest(text.bytes()) == claimed && is_canonical(text));
        if !is_whole || text.len() > SETTINGS_BYTES_MAX {
            return Err(WireError::Value { field: "settings" });
        }
        Ok(SharedSettings { digest: claimed, text: text.into() })
    }
}

impl fmt::Debug for SharedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} {:?}", self.digest, self.text)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
        write!(f, "{} is {} there and {} here", self.key, value(&self.there), value(&self.here))
    }
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && !key.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn is_value(value: &str) -> bool {
    !value.chars().any(char::is_control)
}

/// True if the text is a list of lines `key = value`, sorted by key, each key once.
fn is_canonical(text: &str) -> bool {
    let lines = || text.split_terminator('\n').map(|line| line.split_once(" = "));
    let keys = || lines().map(|line| line.map(|(key, _)| key));
    text.ends_with('\n')
        && lines().all(|line| line.is_some_and(|(key, value)| is_key(key) && is_value(value)))
        && keys().zip(keys().skip(1)).all(|(one, next)| one < next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec;

    fn settings(pairs: &[(&str, &str)]) -> SharedSettings {
        SharedSettings::new(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())))
    }

    fn written(settings: &SharedSettings) -> Vec<u8> {
        let mut out = Writer(vec![]);
        settings.put(&mut out);
        out.0
    }

    #[test]
    fn the_order_in_which_settings_are_given_does_not_matter() {
        let (one, other) = (settings(&[("b", "2"), ("a", "1")]), settings(&[("a", "1"), ("b", "2")]));
        assert_eq!(one, other);
        assert_eq!(one.text(), "a = 1\nb = 2\n");
        assert_ne!(one.digest(), settings(&[("a", "1"), ("b", "3")]).digest());
        assert_eq!(SharedSettings::read(&mut Reader(&written(&one))), Ok(one));
    }

    #[test]
    fn each_difference_has_both_values() {
        let (one, other) =
            (settings(&[("a", "1"), ("b", "2"), ("c", "3")]), settings(&[("a", "1"), ("b", "4"), ("d", "5")]));
        let told: Vec<String> = one.differences(&other).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["b is 4 there and 2 here", "c is not set there and 3 here", "d is 5 there and not set here"]);
        assert_eq!(one.differences(&one), []);
    }

    #[test]
    fn a_text_that_is_too_long_leaves_only_its_digest() {
        let long = |first: &str| {
            let many = (0..500).map(|number| (format!("key.{number:04}"), "value".to_string()));
            SharedSettings::new(many.chain([("first".to_string(), first.to_string())]))
        };
        let (one, other) = (long("1"), long("2"));
        assert_eq!((one.text(), one.differences(&other)), ("", vec![]));
        assert_ne!(one.digest(), other.digest());
        assert_eq!(SharedSettings::read(&mut Reader(&written(&one))), Ok(one));
    }

    #[test]
    fn bytes_of_a_peer_that_are_no_settings_are_refused() {
        let written = |text: &str| {
            let mut out = Writer(vec![]);
            out.u64(digest(text.bytes()));
            out.text(text);
            out.0
        };
        let long = "x".repeat(SETTINGS_BYTES_MAX);
        let long = format!("a = {long}\n");
        for text in ["a", "a = 1", "a = 1\n\n", "b = 1\na = 1\n", "a = 1\na = 2\n", "a = \u{1b}[2J\n", " = 1\n", &long]
        {
            let read = SharedSettings::read(&mut Reader(&written(text)));
            assert_eq!(read, Err(WireError::Value { field: "settings" }), "{text:?}");
        }
        let mut bytes = self::written(&settings(&[("a", "1")]));
        assert!(SharedSettings::read(&mut Reader(&bytes)).is_ok());
        bytes[0] ^= 1;
        assert!(SharedSettings::read(&mut Reader(&bytes)).is_err(), "another digest");
        for end in 0..bytes.len() {
            assert!(SharedSettings::read(&mut Reader(&bytes[..end])).is_err());
        }
    }
}
