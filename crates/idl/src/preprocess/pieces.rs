//! Splits text into words and the rest.

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// The byte where it starts.
    pub(super) at: usize,
    pub(super) text: &'a str,
    /// Whether it is an identifier outside of quotes.
    pub(super) is_word: bool,
}

/// Returns the identifiers of a text and what is between them. Quoted text and numbers are no
/// identifiers.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let (length, is_word) = match first {
            '"' | '\'' => (quoted(rest, first), false),
            c if is_word_character(c) => (word(rest), !c.is_ascii_digit()),
            _ => (rest.find(|c| is_word_character(c) || c == '"' || c == '\'').unwrap_or(rest.len()), false),
        };
        let piece = Piece { at, text: &rest[..length], is_word };
        at += length;
        Some(piece)
    })
}

/// Returns whether a character belongs to identifiers.
pub(super) fn is_word_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns whether a text is one identifier.
pub(super) fn is_identifier(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(is_word_character)
}

fn word(text: &str) -> usize {
    text.find(|c| !is_word_character(c)).unwrap_or(text.len())
}

/// Returns the length of quoted text with its quotes; all of it if the closing one is missing.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}
