//! Checks the prose of comments and pages: sentences begin with the noun that acts.
//!
//! A sentence counts as a finding if it opens with one of [`OPENINGS`], or if it contains one of
//! [`ROLELESS`]. Text in backticks, code blocks, tables and headings is not read.
use crate::files;
use crate::process::StepSession;
use anyhow::{Result, bail};

/// Words with which no sentence opens.
const OPENINGS: [&str; 10] =
    ["who", "whoever", "what", "whatever", "of", "those", "such", "nobody", "somebody", "everybody"];
/// Words that name no role.
const ROLELESS: [&str; 3] = ["nobody", "somebody", "everybody"];
/// The share of findings that is allowed: two of a thousand sentences.
const FINDINGS_PER_THOUSAND: usize = 2;
/// The number of findings that are listed.
const LISTED: usize = 40;
/// The shortest sentence, in words. Shorter ones are labels.
const WORDS_MIN: usize = 3;

/// Reads all comments and pages, and fails if there are too many findings.
pub(crate) fn check(session: &StepSession<'_>) -> Result<String> {
    let (mut sentences, mut findings) = (0, Vec::new());
    for path in files::below(session.root(), &["rs", "md"])? {
        let text = files::read(&path)?;
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        for Sentence { line, text } in read(&text, is_page) {
            sentences += 1;
            if is_finding(&text) {
                findings.push(format!("{}:{line}: {text}", files::shown(session.root(), &path)));
            }
        }
    }
    let share = format!("{} of {sentences} sentences", findings.len());
    if findings.len() * 1000 > FINDINGS_PER_THOUSAND * sentences {
        findings.iter().take(LISTED).for_each(|finding| println!("{finding}"));
        bail!(
            "{share} open with {} or contain {}: begin with the noun that acts, and name the role",
            OPENINGS.join(", "),
            ROLELESS.join(", ")
        );
    }
    Ok(share)
}

struct Sentence {
    /// The line at which its paragraph begins.
    line: usize,
    text: String,
}

/// Returns the sentences of a page, or of the comments of a source file.
fn read(text: &str, is_page: bool) -> Vec<Sentence> {
    let (mut sentences, mut is_code) = (Vec::new(), false);
    let mut paragraph: Option<(usize, String)> = None;
    let mut end = |paragraph: &mut Option<(usize, String)>| {
        if let Some((line, text)) = paragraph.take() {
            sentences.extend(split(&without_code(&text)).map(|text| Sentence { line, text }));
        }
    };
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let line = match (is_page, line.strip_prefix("//")) {
            (true, _) => line,
            (false, Some(comment)) => comment.trim_start_matches(['/', '!']).trim(),
            (false, None) => "",
        };
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_label = is_page && (line.starts_with('|') || line.starts_with('#'));
        if is_code || line.is_empty() || is_label || line.starts_with("```") {
            end(&mut paragraph);
            continue;
        }
        let item = without_marker(line);
        if item.len() < line.len() {
            end(&mut paragraph);
        }
        match &mut paragraph {
            Some((_, text)) => *text = format!("{text} {item}"),
            None => paragraph = Some((number, item.to_string())),
        }
    }
    end(&mut paragraph);
    sentences
}

/// Returns the line without the marker of a list or quotation.
fn without_marker(line: &str) -> &str {
    let is_bullet = |c: char| "-*>".contains(c);
    if let Some(item) = line.strip_prefix(is_bullet).and_then(|rest| rest.strip_prefix(' ')) {
        return item;
    }
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    if number.len() < line.len() { number.strip_prefix(". ").unwrap_or(line) } else { line }
}

/// Replaces text in backticks by `x`.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "x" });
    parts.collect()
}

/// Splits a paragraph after each punctuation mark that ends a sentence or a clause, if an uppercase
/// character or code follows.
fn split(text: &str) -> impl Iterator<Item = String> {
    let (mut sentences, mut words) = (Vec::new(), Vec::new());
    let mut rest = text.split_whitespace().peekable();
    while let Some(word) = rest.next() {
        words.push(word);
        let is_end = word.ends_with(['.', '!', '?', ':', ';']);
        let begins = |next: &&str| next.starts_with(|c: char| c.is_uppercase()) || next.starts_with('x');
        if rest.peek().is_none_or(|next| is_end && begins(next)) {
            sentences.push(std::mem::take(&mut words));
        }
    }
    sentences.into_iter().filter(|words| words.len() >= WORDS_MIN).map(|words| words.join(" "))
}

fn is_finding(sentence: &str) -> bool {
    let words = sentence.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
    let mut words = words.map(str::to_lowercase);
    let is_in = |words: &[&str], word: &str| words.contains(&word);
    words.next().is_some_and(|first| is_in(&OPENINGS, &first) || is_in(&ROLELESS, &first))
        || words.any(|word| is_in(&ROLELESS, &word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str, is_page: bool) -> Vec<(usize, String)> {
        let sentences = read(text, is_page).into_iter();
        sentences.filter(|sentence| is_finding(&sentence.text)).map(|Sentence { line, text }| (line, text)).collect()
    }

    #[test]
    fn sentences_that_open_with_no_role_are_found_in_comments() {
        let source =
            "let what = 1; // not read\n/// Returns it. Who asks\n/// is answered.\n\n// `x`: Of two, one stays.\n";
        let found = [(2, "Who asks is answered.".to_string()), (5, "Of two, one stays.".to_string())];
        assert_eq!(findings(source, false), found);
    }

    #[test]
    fn words_that_name_no_role_are_found_anywhere() {
        assert_eq!(findings("A lock that nobody holds.", true).len(), 1);
        assert_eq!(findings("A lock that `nobody` holds, and everybody's friend.", true).len(), 0);
    }

    #[test]
    fn code_tables_and_headings_are_not_read() {
        let page = "# What it is for\n| Who is it | x y |\n```\nWhat is this?\n```\n1. Such a list is read.\n";
        assert_eq!(findings(page, true), [(6, "Such a list is read.".to_string())]);
    }
}
