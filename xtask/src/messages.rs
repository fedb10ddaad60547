//! Checks the messages that the page on troubleshooting lists: the code has each of them.
//!
//! A message of the page has values where the code has holes (`{id}`), so both are compared piece by
//! piece, without the values. Only pieces of at least [`WORDS_MIN`] words count. A hole also stands
//! for words that are a text of the code themselves ("accept a connection").
use crate::files::{self, read, shown};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::path::Path;

/// The page with the tables of messages.
const PAGE: &str = "docs/guide/troubleshooting.md";
/// The least number of words in a piece that is compared.
const WORDS_MIN: usize = 3;
/// The most words for which a hole stands.
const HOLE_WORDS_MAX: usize = 5;
/// Names that the page uses as values.
const EXAMPLES: [&str; 3] = ["talk", "wide", "files"];
/// Texts of the system and of other libraries.
const FOREIGN: [&str; 2] = ["No space left on device", "received fatal alert"];
/// Marks that separate pieces.
const MARKS: [char; 8] = [',', ';', ':', '(', ')', '"', '\'', '`'];
/// The word for a hole in a text.
const HOLE: &str = "{}";

/// The texts of the code.
struct Texts {
    /// The pieces of all texts, as words.
    pieces: BTreeSet<Vec<String>>,
}

/// Returns the number of pieces that were found.
pub(crate) fn check(root: &Path) -> Result<usize> {
    let mut texts = Texts { pieces: FOREIGN.into_iter().flat_map(|text| words(text, |_| false)).collect() };
    for path in files::below(&root.join("crates"), &["rs"])? {
        let inner = shown(root, &path);
        if inner.contains("/src/") && !inner.contains("/tests/") && !inner.ends_with("tests.rs") {
            texts.add(&read(&path)?);
        }
    }
    let (mut count, mut mistakes) = (0, Vec::new());
    for (number, line) in read(&root.join(PAGE))?.lines().enumerate() {
        for piece in messages(line).into_iter().flat_map(pieces) {
            count += 1;
            if !texts.have(&piece) {
                mistakes.push(format!("{PAGE}:{}: no text of the code has {:?}", number + 1, piece.join(" ")));
            }
        }
    }
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(count)
}

/// Returns the messages in the first column of a table's row. Other code, such as names of types, is
/// too short to count.
fn messages(line: &str) -> Vec<&str> {
    let Some((cell, _)) = line.strip_prefix("| ").and_then(|rest| rest.split_once(" | ")) else { return Vec::new() };
    match cell.strip_prefix("`` ").and_then(|rest| rest.split_once(" ``")) {
        Some((message, rest)) => [message].into_iter().chain(rest.split('`').skip(1).step_by(2)).collect(),
        None => cell.split('`').skip(1).step_by(2).collect(),
    }
}

/// Returns the pieces of a message that are long enough to count, as words.
fn pieces(message: &str) -> Vec<Vec<String>> {
    let is_value = |word: &str| {
        let name = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        name || word.contains(['.', '/', '=']) || word.chars().any(|c| c.is_ascii_digit()) || EXAMPLES.contains(&word)
    };
    // A message that is all in capitals has no values.
    let is_loud = !message.chars().any(|c| c.is_ascii_lowercase());
    let pieces = words(message, |word| !is_loud && is_value(word));
    let pieces = pieces.into_iter().flat_map(|piece| {
        let pieces: Vec<_> = piece.split(|word| word == HOLE).map(<[String]>::to_vec).collect();
        pieces
    });
    pieces.filter(|piece| piece.len() >= WORDS_MIN).collect()
}

/// Returns the words between marks. Words that are holes are replaced by [`HOLE`].
fn words(text: &str, is_hole: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let word = |word: &str| if is_hole(word) { HOLE.to_owned() } else { word.to_owned() };
    text.split(MARKS).map(|piece| piece.split_whitespace().map(word).collect()).collect()
}

impl Texts {
    /// Adds the texts of a file, without those of its tests.
    fn add(&mut self, code: &str) {
        let code = code.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for text in literals(code) {
            self.pieces.extend(words(&without_holes(&text), |word| word.starts_with(HOLE)));
        }
    }

    /// Whether a text has this piece.
    fn have(&self, piece: &[String]) -> bool {
        self.pieces.iter().any(|text| (0..text.len()).any(|at| self.begins(&text[at..], piece)))
    }

    /// Whether the words of a text begin with the piece.
    fn begins(&self, text: &[String], piece: &[String]) -> bool {
        let (Some((first, text)), Some(word)) = (text.split_first(), piece.first()) else { return piece.is_empty() };
        if first != HOLE {
            // A hole in a word is its plural, or a number.
            let (begin, end) = first.split_once(HOLE).unwrap_or((first, ""));
            let is_it = first == word || first.contains(HOLE) && word.starts_with(begin) && word.ends_with(end);
            return is_it && self.begins(text, &piece[1..]);
        }
        let most = piece.len().min(HOLE_WORDS_MAX);
        (1..=most).any(|len| self.pieces.contains(&piece[..len]) && self.begins(text, &piece[len..]))
    }
}

/// Returns a text with [`HOLE`] in place of each hole.
fn without_holes(text: &str) -> String {
    let (mut without, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        without += before;
        // Two braces are one that is printed.
        rest = match (after.strip_prefix('{'), after.split_once('}')) {
            (None, Some((_, after))) => {
                without += HOLE;
                after
            }
            (after_two, _) => after_two.unwrap_or(after),
        };
    }
    without + rest
}

/// Returns the texts in quotes of a Rust file, without those in comments.
fn literals(code: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), code);
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, here) = rest.split_at(at);
        rest = if here.starts_with("//") {
            here.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(after) = here.strip_prefix("'\"'").or_else(|| here.strip_prefix("'\\\"'")) {
            after
        } else if let Some(inner) = here.strip_prefix('"') {
            let (text, after) = if before.ends_with(['r', '#']) { raw(inner) } else { quoted(inner) };
            found.push(text);
            after
        } else {
            &here[1..]
        };
    }
    found
}

/// Returns a text up to its closing quote, and the rest of the code.
fn quoted(inner: &str) -> (String, &str) {
    let (mut text, mut chars) = (String::new(), inner.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                // The text continues at the next word.
                Some('\n') => chars = chars.as_str().trim_start().chars(),
                Some('n' | 't') => text.push(' '),
                Some(escaped) => text.push(escaped),
                None => {}
            },
            c => text.push(c),
        }
    }
    (text, chars.as_str())
}

/// As [`quoted`], for a text in which a backslash is a backslash.
fn raw(inner: &str) -> (String, &str) {
    inner.split_once('"').map_or((inner.to_owned(), ""), |(text, after)| (text.to_owned(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str, message: &str) -> bool {
        let mut texts = Texts { pieces: BTreeSet::new() };
        texts.add(code);
        pieces(message).iter().all(|piece| texts.have(piece))
    }

    #[test]
    fn a_message_is_found_without_its_values() {
        let code = "format!(\"member {id} of group {group} is on \\\n   another host; ask `{place}` there\")";
        assert!(found(code, "member 2 of group talk is on another host; ask there, .."));
        assert!(!found(code, "member 2 of group talk is on some other host"));
    }

    #[test]
    fn a_hole_stands_for_words_of_the_code() {
        let code = "(\"accept a connection\", 1); \"{n} sequence number{s} of it\"; write!(f, \"did not {what} within {limit:?}\")";
        assert!(found(code, "..: did not accept a connection within 2s"));
        assert!(found(code, "missed 3 sequence numbers of it"));
        assert!(!found(code, "..: did not send a message within 2s"));
    }

    #[test]
    fn comments_and_tests_are_no_texts() {
        let code =
            "// \"one two three\"\nlet a = '\"'; \"four five six\"\n#[cfg(test)]\nmod tests { \"seven eight nine\" }";
        assert_eq!(literals(code.split("\n#").next().unwrap()), ["four five six"]);
        assert!(!found(code, "seven eight nine") && !found(code, "one two three"));
    }

    #[test]
    fn messages_are_in_the_first_column() {
        assert_eq!(messages("| `a b c`, `d` (1) | `e f g` |"), ["a b c", "d"]);
        assert_eq!(messages("| `` a `b` c `` (1) | d |"), ["a `b` c"]);
        assert_eq!(messages("text `a b c` | d"), Vec::<&str>::new());
    }
}
