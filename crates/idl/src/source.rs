//! Files and positions in them.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u32);

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file.
    pub file: FileId,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The characters that are meant, from `column` on: 1 or more.
    pub width: u32,
}

/// A comment for documentation, without its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    /// The first line of the comment.
    pub(crate) first: u32,
    pub(crate) lines: Vec<String>,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    /// The path that all names of the file have in common.
    identity: PathBuf,
    pub(crate) text: Arc<str>,
    /// The byte at which each line starts.
    starts: Vec<usize>,
    /// Comments for documentation, by their last line.
    pub(crate) comments: BTreeMap<u32, Comment>,
}

/// The files of a compilation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Adds a file, and returns it if it was added before.
    pub(crate) fn add(&mut self, path: &Path, identity: &Path, text: String) -> FileId {
        if let Some(known) = self.find(identity) {
            return known;
        }
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let text = Arc::from(text);
        self.files.push(SourceFile {
            path: path.to_owned(),
            identity: identity.to_owned(),
            text,
            starts,
            comments: BTreeMap::new(),
        });
        FileId(self.files.len() as u32 - 1)
    }

    fn find(&self, identity: &Path) -> Option<FileId> {
        self.files.iter().position(|file| file.identity == identity).map(|index| FileId(index as u32))
    }

    pub(crate) fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    pub(crate) fn set_comments(&mut self, id: FileId, comments: BTreeMap<u32, Comment>) {
        self.files[id.0 as usize].comments = comments;
    }

    /// Returns the path of a file, as it was given or found.
    pub(crate) fn path(&self, id: FileId) -> &Path {
        &self.file(id).path
    }

    /// Returns the paths of all files that were read, in the order of the first reading.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Returns the place of the bytes from `start` to `end`, which are in one line.
    pub(crate) fn place(&self, id: FileId, start: usize, end: usize) -> Place {
        let file = self.file(id);
        let start = start.min(file.text.len());
        let line = file.starts.partition_point(|begin| *begin <= start);
        let begin = file.starts[line - 1];
        let characters = |from: usize, to: usize| file.text.get(from..to).map_or(0, |text| text.chars().count());
        let stop = file.starts.get(line).map_or(file.text.len(), |next| next - 1).min(end);
        Place {
            file: id,
            line: line as u32,
            column: characters(begin, start) as u32 + 1,
            width: characters(start, stop).max(1) as u32,
        }
    }

    /// Returns a line, without its end.
    pub(crate) fn line(&self, id: FileId, line: u32) -> &str {
        let file = self.file(id);
        let start = file.starts.get(line as usize - 1).copied().unwrap_or(file.text.len());
        file.text[start..].lines().next().unwrap_or_default()
    }

    /// Returns the comments for documentation that end right above a line.
    pub(crate) fn comments_above(&self, id: FileId, line: u32) -> Vec<String> {
        let comments = &self.file(id).comments;
        let (mut found, mut above) = (Vec::new(), line.saturating_sub(1));
        while let Some(comment) = comments.get(&above) {
            found.push(comment);
            above = comment.first.saturating_sub(1);
        }
        found.into_iter().rev().flat_map(|comment| comment.lines.iter().cloned()).collect()
    }
}
