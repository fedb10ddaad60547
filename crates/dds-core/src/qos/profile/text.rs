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
    errors: Vec<ProfileError>,
}

impl<'a> SourceText<'a> {
    pub(super) fn new(format: Format, name: &str, text: &'a str) -> SourceText<'a> {
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        SourceText { format, text, name: name.into(), lines, errors: Vec::new() }
    }

    /// Returns the place of an offset in bytes.
    pub(super) fn place(&self, at: usize) -> Place {
        let line = self.lines.partition_point(|start| *start <= at).max(1);
        let before = self.text.get(self.lines[line - 1]..at).unwrap_or("");
        self.place_of(line as u32, before.chars().count() as u32 + 1)
    }

    pub(super) fn place_of(&self, line: u32, column: u32) -> Place {
        Place { source: Arc::clone(&self.name), line, column }
    }

    /// Notes an error. Those beyond the hundredth are dropped.
    pub(super) fn wrong(&mut self, place: Place, path: &str, problem: ProfileProblem) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(ProfileError { place: Some(place), path: path.to_owned(), problem });
        }
    }

    /// Notes a name that is unknown.
    pub(super) fn unknown(&mut self, at: usize, path: &str, what: &'static str, name: &str, known: Vec<String>) {
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
