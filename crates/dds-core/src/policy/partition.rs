//! PARTITION: names that a writer and a reader must have in common (DDS 2.2.3.13).
//!
//! A name may be a pattern of POSIX `fnmatch`: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a character
//! that counts as itself. A pattern matches names only. Two patterns never match.
use super::id::{Policy, PolicyId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// PARTITION (DDS 2.2.3.13).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartitionQosPolicy {
    /// The names and patterns. An empty list is the one name `""`.
    pub name: Vec<String>,
}

/// The names by which two lists match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMatch {
    /// The writer's name or pattern.
    pub writer: String,
    /// The reader's name or pattern.
    pub reader: String,
}

impl PartitionQosPolicy {
    /// Makes the policy of some names.
    pub fn of<T: Into<String>>(names: impl IntoIterator<Item = T>) -> PartitionQosPolicy {
        PartitionQosPolicy { name: names.into_iter().map(Into::into).collect() }
    }

    /// Returns the names in force.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let default = self.name.is_empty().then_some("");
        default.into_iter().chain(self.name.iter().map(String::as_str))
    }

    /// Returns the first names of a writer (`self`) and a reader that match.
    pub fn find_match(&self, reader: &PartitionQosPolicy) -> Option<PartitionMatch> {
        let pairs = self.names().flat_map(|own| reader.names().map(move |other| (own, other)));
        let (own, other) = pairs.into_iter().find(|(own, other)| matches(own, other))?;
        Some(PartitionMatch { writer: own.to_owned(), reader: other.to_owned() })
    }
}

impl Policy for PartitionQosPolicy {
    const ID: PolicyId = PolicyId::Partition;
}

impl fmt::Display for PartitionQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.names().enumerate() {
            write!(f, "{}'{name}'", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

fn matches(left: &str, right: &str) -> bool {
    match (is_pattern(left), is_pattern(right)) {
        (false, false) => left == right,
        (true, false) => fits(left, right),
        (false, true) => fits(right, left),
        (true, true) => false,
    }
}

/// Returns whether a name has a wildcard that no backslash precedes.
fn is_pattern(name: &str) -> bool {
    parts(name).iter().any(|part| !matches!(part, Part::Char(_)))
}

/// A part of a pattern.
enum Part {
    /// Any characters, also none.
    Any,
    /// One character.
    One,
    /// This character.
    Char(char),
    /// A character within one of these ranges, or with `true` outside of all.
    Class(bool, Vec<(char, char)>),
}

impl Part {
    fn admits(&self, char: char) -> bool {
        match self {
            Part::Any | Part::One => true,
            Part::Char(own) => *own == char,
            Part::Class(not, ranges) => ranges.iter().any(|(from, to)| (*from..=*to).contains(&char)) != *not,
        }
    }
}

fn parts(pattern: &str) -> Vec<Part> {
    let chars: Vec<char> = pattern.chars().collect();
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some(char) = chars.get(at) {
        at += 1;
        parts.push(match char {
            '*' => Part::Any,
            '?' => Part::One,
            '\\' if at < chars.len() => {
                at += 1;
                Part::Char(chars[at - 1])
            }
            '[' => match class(&chars[at..]) {
                Some((class, length)) => {
                    at += length;
                    class
                }
                None => Part::Char('['),
            },
            char => Part::Char(*char),
        });
    }
    parts
}

/// Reads the class after `[`, and returns its length with `]`; `None` if it has no end.
fn class(chars: &[char]) -> Option<(Part, usize)> {
    let not = matches!(chars.first(), Some('!' | '^'));
    let (start, mut ranges) = (usize::from(not), Vec::new());
    let mut at = start;
    loop {
        let mut from = *chars.get(at)?;
        if from == ']' && at > start {
            return Some((Part::Class(not, ranges), at + 1));
        }
        if from == '\\' {
            at += 1;
            from = *chars.get(at)?;
        }
        let is_range = chars.get(at + 1) == Some(&'-') && chars.get(at + 2).is_some_and(|to| *to != ']');
        let to = if is_range { chars[at + 2] } else { from };
        ranges.push((from, to));
        at += if is_range { 3 } else { 1 };
    }
}

/// Returns a text that a pattern matches. The characters of a class without any are left out.
#[cfg(feature = "profiles")]
pub(crate) fn example(pattern: &str) -> String {
    let char = |part: &Part| match part {
        Part::Any => None,
        Part::One => Some('x'),
        Part::Char(char) => Some(*char),
        Part::Class(false, ranges) => ranges.first().map(|(from, _)| *from),
        Part::Class(true, _) => ('!'..='~').find(|char| part.admits(*char)),
    };
    parts(pattern).iter().filter_map(char).collect()
}

/// Returns whether a pattern matches a text. The work is at most the product of both lengths.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let (parts, text): (Vec<Part>, Vec<char>) = (parts(pattern), text.chars().collect());
    let (mut part, mut at) = (0, 0);
    // The part after the last `*`, and the first character that it may match.
    let mut retry = None;
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                part += 1;
                retry = Some((part, at));
            }
            Some(own) if own.admits(text[at]) => {
                part += 1;
                at += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    (part, at) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    parts[part..].iter().all(|part| matches!(part, Part::Any))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(writer: &[&str], reader: &[&str]) -> bool {
        PartitionQosPolicy::of(writer.to_vec()).find_match(&PartitionQosPolicy::of(reader.to_vec())).is_some()
    }

    #[test]
    fn an_empty_list_is_the_empty_name() {
        assert!(meet(&[], &[]));
        assert!(meet(&[], &[""]));
        assert!(meet(&["*"], &[]));
        assert!(!meet(&["a"], &[]));
        assert!(meet(&["a", ""], &[]));
    }

    #[test]
    fn patterns_match_names_and_never_patterns() {
        for (pattern, name, fit) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abcbc", true),
            ("a*d", "abcbc", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("a[", "a[", true),
            ("\\a*", "ab", true),
            ("\\*?", "ab", false),
            ("*ä?", "xäß", true),
            ("**a**b**", "xaxbx", true),
        ] {
            assert_eq!(meet(&[pattern], &[name]), fit, "{pattern} {name}");
            assert_eq!(meet(&[name], &[pattern]), fit, "{name} {pattern}");
        }
        assert!(!meet(&["a*"], &["a*"]));
        assert!(!meet(&["*"], &["?"]));
        assert!(meet(&["a*", "b"], &["a*", "b"]));
        let found = PartitionQosPolicy::of(["x", "a*"]).find_match(&PartitionQosPolicy::of(["ab"]));
        assert_eq!(found, Some(PartitionMatch { writer: "a*".to_owned(), reader: "ab".to_owned() }));
    }

    /// Compares the matcher with a definition by recursion, over all short patterns and texts.
    #[test]
    fn the_matcher_agrees_with_its_definition() {
        fn defined(pattern: &[u8], text: &[u8]) -> bool {
            match (pattern.split_first(), text.split_first()) {
                (None, None) => true,
                (Some((b'*', rest)), _) => {
                    defined(rest, text) || text.split_first().is_some_and(|(_, text)| defined(pattern, text))
                }
                (Some((b'?', rest)), Some((_, text))) => defined(rest, text),
                (Some((own, rest)), Some((char, text))) => own == char && defined(rest, text),
                _ => false,
            }
        }
        let words = |alphabet: &[u8], length: usize| {
            let mut words = vec![Vec::new()];
            for at in 0..length {
                let longer: Vec<Vec<u8>> = words.iter().filter(|word| word.len() == at).cloned().collect();
                words.extend(longer.iter().flat_map(|word| alphabet.iter().map(|char| [&word[..], &[*char]].concat())));
            }
            words
        };
        let texts = words(b"ab", 5);
        for pattern in words(b"ab*?", 4) {
            for text in &texts {
                let (own, other) = (str::from_utf8(&pattern).unwrap(), str::from_utf8(text).unwrap());
                assert_eq!(fits(own, other), defined(&pattern, text), "{own} {other}");
            }
        }
    }
}
