//! Runs the test command that README.md shows, so that the page and the command always agree.
use crate::process::StepSession;
use anyhow::{Context, Result};
use std::fs;

/// The line that precedes the fenced block with the test command.
const MARK: &str = "<!-- test command -->";

/// Runs the test command of the README.
pub(crate) fn test(session: &StepSession<'_>) -> Result<String> {
    let readme = fs::read_to_string(session.root().join("README.md")).context("can't read README.md")?;
    let script = marked_block(&readme, MARK)
        .with_context(|| format!("README.md has no fenced block with a command directly after a line {MARK:?}"))?;
    session.run(session.command("sh").args(["-euc", &script]))?;
    Ok(script)
}

/// Returns the lines of the fenced block that follows the line `mark`; `None` if there is no block,
/// or an empty one.
fn marked_block(text: &str, mark: &str) -> Option<String> {
    let mut lines =
        text.lines().skip_while(|line| line.trim() != mark).skip(1).skip_while(|line| line.trim().is_empty());
    lines.next().filter(|line| line.starts_with("```"))?;
    let mut block = Vec::new();
    loop {
        match lines.next()? {
            line if line.starts_with("```") => break,
            line => block.push(line),
        }
    }
    let block = block.join("\n");
    (!block.trim().is_empty()).then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_after_the_mark_is_found_and_no_other() {
        let text = "```sh\nother\n```\n<!-- test command -->\n```sh\ncargo test\nand more\n```\n```\nlast\n```\n";
        assert_eq!(marked_block(text, MARK).as_deref(), Some("cargo test\nand more"));
    }

    #[test]
    fn a_missing_empty_or_open_block_is_no_command() {
        for text in [
            "",
            MARK,
            "```\nx\n```",
            &format!("{MARK}\ntext\n```\nx\n```"),
            &format!("{MARK}\n```\n```"),
            &format!("{MARK}\n```\nx"),
        ] {
            assert_eq!(marked_block(text, MARK), None, "{text:?}");
        }
    }
}
