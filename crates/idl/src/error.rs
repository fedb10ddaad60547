//! Errors and warnings with their positions.
use crate::fault::{IdlFault, IdlNotice};
use crate::source::{Place, Sources};
use std::fmt;
use std::path::{Path, PathBuf};

/// An error or a warning with its position and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic<K> {
    kind: K,
    path: PathBuf,
    /// Line, column and width; `None` if the whole file is meant.
    position: Option<(u32, u32, u32)>,
    text: String,
}

/// An error in an IDL file.
pub type IdlError = Diagnostic<IdlFault>;
/// A warning about an IDL file.
pub type IdlWarning = Diagnostic<IdlNotice>;

/// A fault or a notice with its place, before the line is looked up.
pub(crate) type Found<K> = (Place, K);
/// The result of a part that ends at its first error.
pub(crate) type Checked<T> = Result<T, Found<IdlFault>>;

impl<K> Diagnostic<K> {
    pub(crate) fn new(sources: &Sources, (place, kind): Found<K>) -> Diagnostic<K> {
        Diagnostic {
            kind,
            path: sources.path(place.file).to_owned(),
            position: Some((place.line, place.column, place.width)),
            text: sources.line(place.file, place.line).to_owned(),
        }
    }

    pub(crate) fn of_file(path: &Path, kind: K) -> Diagnostic<K> {
        Diagnostic { kind, path: path.to_owned(), position: None, text: String::new() }
    }

    /// Returns what was found.
    pub fn kind(&self) -> &K {
        &self.kind
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the line, from 1; `None` if the whole file is meant.
    pub fn line(&self) -> Option<u32> {
        self.position.map(|(line, ..)| line)
    }

    /// Returns the column in characters, from 1; `None` if the whole file is meant.
    pub fn column(&self) -> Option<u32> {
        self.position.map(|(_, column, _)| column)
    }

    /// Returns the line of the file.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The longest line that is shown, in characters.
const SHOWN_MAX: usize = 160;

impl<K: fmt::Display> fmt::Display for Diagnostic<K> {
    /// Writes `FILE:LINE:COLUMN: MESSAGE`, the line, and a mark below.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, kind) = (self.path.display(), &self.kind);
        let Some((line, column, width)) = self.position else { return write!(out, "{path}: {kind}") };
        write!(out, "{path}:{line}:{column}: {kind}")?;
        let (column, width) = (column as usize, width as usize);
        if column > SHOWN_MAX {
            return Ok(());
        }
        let shown: String = self.text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let width = width.min(SHOWN_MAX + 1 - column);
        let (space, mark) = (" ".repeat(column - 1), "^".repeat(width));
        write!(out, "\n    {}\n    {space}{mark}", shown.trim_end())
    }
}

impl<K: fmt::Display + fmt::Debug> std::error::Error for Diagnostic<K> {}

/// The errors of a compilation: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdlErrors {
    pub(crate) errors: Vec<IdlError>,
    pub(crate) warnings: Vec<IdlWarning>,
}

impl IdlErrors {
    /// Returns the errors, in the order of the files.
    pub fn errors(&self) -> &[IdlError] {
        &self.errors
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> &[IdlWarning] {
        &self.warnings
    }
}

impl fmt::Display for IdlErrors {
    /// Writes the errors, each as its [`IdlError`].
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            write!(out, "{}{error}", if index > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for IdlErrors {}
