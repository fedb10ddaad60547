//! Text and JSON on the standard output.
use crate::exit::CliResult;
use anyhow::Context;
use std::fmt::Display;
use std::io::{Write, stdout};

/// Prints a line, or several. Names of other participants may have control characters, which are escaped.
pub(super) fn line(line: impl Display) -> CliResult {
    let line = plain(line.to_string(), |c| c.is_control() && c != '\n');
    Ok(writeln!(stdout().lock(), "{line}").context("can't write to the standard output")?)
}

fn plain(text: String, is_escaped: impl Fn(char) -> bool) -> String {
    if !text.contains(&is_escaped) {
        return text;
    }
    let escaped = |c: char| if is_escaped(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// Prints rows with aligned columns. The first row has the heads.
pub(super) fn table(rows: Vec<Vec<String>>) -> CliResult {
    let cells = |row: Vec<String>| row.into_iter().map(|cell| plain(cell, char::is_control)).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(cells).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Returns "1 reader" or "2 readers".
pub(super) fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// Returns texts with commas between, or a dash if there is none.
pub(super) fn listed<T: Display>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|it| it.to_string()).collect();
    if all.is_empty() { "-".to_string() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let escaped = |text: &str| plain(text.to_string(), char::is_control);
        assert_eq!(escaped("a\u{1b}[2J\nü"), "a\\u{1b}[2J\\nü");
        assert_eq!(escaped("plain"), "plain");
    }
}
