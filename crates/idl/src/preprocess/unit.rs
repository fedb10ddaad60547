//! The text of one input file with its includes, and where each byte comes from.
use crate::limits::UNIT_BYTES_MAX;
use crate::source::{FileId, Place, Sources};

/// The text that is parsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) text: String,
    segments: Vec<Segment>,
}

/// Bytes that come from one place.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The byte of the unit where it starts.
    at: usize,
    file: FileId,
    /// The byte of the file where it starts.
    source: usize,
    /// The end of the word in the file that a macro replaced.
    replaced_to: Option<usize>,
}

impl Unit {
    /// Appends bytes as they are in a file. Returns false if the unit is full.
    #[must_use]
    pub(super) fn copy(&mut self, file: FileId, source: usize, text: &str) -> bool {
        self.push(Segment { at: self.text.len(), file, source, replaced_to: None }, text)
    }

    /// Appends bytes in place of a word.
    #[must_use]
    pub(super) fn replace(&mut self, file: FileId, source: usize, end: usize, text: &str) -> bool {
        self.push(Segment { at: self.text.len(), file, source, replaced_to: Some(end) }, text)
    }

    fn push(&mut self, segment: Segment, text: &str) -> bool {
        if !text.is_empty() {
            self.segments.push(segment);
            self.text.push_str(text);
        }
        self.text.len() <= UNIT_BYTES_MAX
    }

    /// Returns the place of bytes; that of the file's first byte if the unit is empty.
    pub(crate) fn place(&self, sources: &Sources, start: usize, end: usize) -> Place {
        let index = self.segments.partition_point(|segment| segment.at <= start).saturating_sub(1);
        let Some(segment) = self.segments.get(index) else { return sources.place(FileId(0), 0, 1) };
        if let Some(to) = segment.replaced_to {
            return sources.place(segment.file, segment.source, to);
        }
        let next = self.segments.get(index + 1).map_or(self.text.len(), |next| next.at);
        let source = |at: usize| segment.source + at - segment.at;
        sources.place(segment.file, source(start), source(end.min(next).max(start + 1)))
    }
}
