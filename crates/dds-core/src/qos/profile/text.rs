//! The text of a source, the places in it, and the errors that were found.
use super::error::{ERRORS_MAX, Place, ProfileError, ProfileErrors, ProfileProblem, nearest, shorten};
use std::sync::Arc;

/// The format of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Xml,
    Toml,
}

/// A source that is being read.
pub(super) struct SourceText<'a> {
    pub(super) format: Format,
    pub(super) text: &'a str,
    name: Arc<str>,
    /// The offsets at which its lines begin.
    lines: Vec<usize>,
    /// The number of characters before each block of [`BLOCK`] bytes, so that a place on a long line costs no more
    /// than one on a short line.
    characters: Vec<usize>,
    errors: Vec<ProfileError>,
}

impl<'a> SourceText<'a> {
    pub(super) fn new(format: Format, name: &str, text: &'a str) -> SourceText<'a> {
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let blocks = text.as_bytes().chunks(BLOCK).scan(0, |before, block| {
            let characters = *before;
            *before += count(block);
            Some(characters)
        });
        let characters = blocks.collect();
        SourceText { format, text, name: name.into(), lines, characters, errors: Vec::new() }
    }

    /// Returns the number of characters before an offset.
    fn characters_before(&self, at: usize) -> usize {
        let block = at / BLOCK;
        let rest = self.text.as_bytes().get(block * BLOCK..at).unwrap_or(&[]);
        match self.characters.get(block) {
            Some(before) => before + count(rest),
            None => count(self.text.as_bytes()),
        }
    }

    /// Returns the place of an offset in bytes.
    pub(super) fn place(&self, at: usize) -> Place {
        let line = self.lines.partition_point(|start| *start <= at).max(1);
        let before = self.characters_before(at) - self.characters_before(self.lines[line - 1]);
        self.place_of(line as u32, before as u32 + 1)
    }

    pub(super) fn place_of(&self, line: u32, column: u32) -> Place {
        Place { source: Arc::clone(&self.name), line, column }
    }

    /// Notes an error. Errors beyond the hundredth are dropped.
    pub(super) fn wrong(&mut self, place: Place, path: &str, problem: ProfileProblem) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(ProfileError { place: Some(place), path: path.to_owned(), problem: problem.into() });
        }
    }

    /// Notes a name that is unknown.
    pub(super) fn unknown(&mut self, at: usize, path: &str, what: &'static str, name: &str, known: Vec<String>) {
        if self.is_full() {
            return;
        }
        let nearest = nearest(name, &known);
        let problem = ProfileProblem::Unknown { what, name: shorten(name), nearest, known };
        self.wrong(self.place(at), path, problem);
    }

    /// Returns whether no more errors are noted.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }

    /// Returns the errors by place; `None` if there are none.
    pub(super) fn into_errors(mut self) -> Option<ProfileErrors> {
        let key = |error: &ProfileError| error.place.as_ref().map(|place| (place.line, place.column));
        self.errors.sort_by_key(key);
        (!self.errors.is_empty()).then_some(ProfileErrors(self.errors))
    }
}

/// The bytes of a block of [`SourceText::characters`].
const BLOCK: usize = 256;

/// Counts the bytes that begin a character.
fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters() {
        for text in ["", "a\n\nbc\n", "äö\n漢字\r\nx", &"aä\n".repeat(200), &"aä漢".repeat(200)] {
            let source = SourceText::new(Format::Toml, "x", text);
            for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
                let before = &text[..at];
                let line = before.matches('\n').count() as u32 + 1;
                let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) as u32 + 1;
                assert_eq!(source.place(at), source.place_of(line, column), "{at}");
            }
        }
    }
}
