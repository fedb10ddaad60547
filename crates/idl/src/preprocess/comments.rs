//! Replaces comments by spaces, so that every other byte keeps its place.
use crate::fault::IdlFault;
use crate::source::Comment;
use std::collections::BTreeMap;

/// The bytes of a file without comments.
#[derive(Debug, Default)]
pub(super) struct Bare {
    /// As many bytes as the file.
    pub(super) text: String,
    /// Comments for documentation, by their last line.
    pub(super) comments: BTreeMap<u32, Comment>,
    /// Comments of the form `//@key`: the byte and the name.
    pub(super) annotations: Vec<(usize, String)>,
}

/// Removes comments. An error names the bytes where it is.
pub(super) fn strip(text: &str) -> Result<Bare, (usize, usize, IdlFault)> {
    let bytes = text.as_bytes();
    let mut bare = bytes.to_vec();
    let (mut own, mut at, mut line, mut line_start) = (Bare::default(), 0, 1, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => {
                (at, line, line_start) = (at + 1, line + 1, at + 1);
            }
            quote @ (b'"' | b'\'') if !is_directive_text(&bytes[line_start..at]) => at = skip_quoted(bytes, at, quote)?,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length);
                let is_alone = bytes[line_start..at].iter().all(u8::is_ascii_whitespace);
                own.line_comment(&text[at + 2..end], at, line, is_alone);
                bare[at..end].fill(b' ');
                at = end;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let Some(length) = text[at + 2..].find("*/") else {
                    return Err((at, at + 2, IdlFault::CommentOpen));
                };
                let (end, first) = (at + 2 + length + 2, line);
                for (index, byte) in bytes[at..end].iter().enumerate() {
                    match byte {
                        b'\n' => (line, line_start) = (line + 1, at + index + 1),
                        _ => bare[at + index] = b' ',
                    }
                }
                own.block_comment(&text[at + 2..end - 2], first, line);
                at = end;
            }
            _ => at += 1,
        }
    }
    own.text = String::from_utf8(bare).unwrap_or_default();
    Ok(own)
}

/// Returns whether a line up to a quote is `#error` or `#warning`, whose text may have apostrophes.
fn is_directive_text(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.strip_prefix(b"#").is_some_and(|rest| {
        let rest = rest.trim_ascii_start();
        rest.starts_with(b"error") || rest.starts_with(b"warning")
    })
}

/// Returns the byte behind a text or character.
fn skip_quoted(bytes: &[u8], start: usize, quote: u8) -> Result<usize, (usize, usize, IdlFault)> {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' => break,
            b'\\' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => at += 2,
            byte if *byte == quote => return Ok(at + 1),
            _ => at += 1,
        }
    }
    Err((start, start + 1, IdlFault::QuoteOpen))
}

impl Bare {
    fn line_comment(&mut self, text: &str, at: usize, line: u32, is_alone: bool) {
        if let Some(rest) = text.strip_prefix('@') {
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if KNOWN_IN_COMMENTS.contains(&name.to_ascii_lowercase().as_str()) {
                self.annotations.push((at, name.to_ascii_lowercase()));
            }
        }
        if let Some(text) = text.strip_prefix('/').filter(|text| is_alone && !text.starts_with('/')) {
            let text = text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned();
            self.comments.insert(line, Comment { first: line, lines: vec![text] });
        }
    }

    fn block_comment(&mut self, text: &str, first: u32, last: u32) {
        let Some(text) = text.strip_prefix('*').filter(|text| !text.starts_with('*')) else { return };
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.trim())
            .map(|line| line.strip_prefix('*').unwrap_or(line).trim().to_owned())
            .collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        let start = lines.iter().position(|line| !line.is_empty()).unwrap_or(lines.len());
        lines.drain(..start);
        if !lines.is_empty() {
            self.comments.insert(last, Comment { first, lines });
        }
    }
}

/// Annotations that older compilers read from comments.
const KNOWN_IN_COMMENTS: &[&str] = &["key", "id", "optional", "nested", "topic", "mutable_struct", "top"];
