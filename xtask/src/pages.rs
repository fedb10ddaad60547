//! Checks the pages: each page of `docs` is in the contents of the site, and each link between pages
//! leads to a file that exists. [`messages`] compares messages with the code.
use crate::files::{self, read, shown};
use crate::messages;
use crate::process::StepSession;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The contents of the site that `mdbook build docs` makes.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Reads all pages, and reports all mistakes at once.
pub(crate) fn check(session: &StepSession<'_>) -> Result<String> {
    let root = session.root();
    let mut pages = files::below(&root.join("docs"), &["md"])?;
    let summary = root.join(SUMMARY);
    let listed: BTreeSet<PathBuf> = targets(&read(&summary)?).iter().map(|link| root.join("docs").join(link)).collect();
    let mut mistakes = Vec::new();
    for page in pages.iter().filter(|page| **page != summary && !listed.contains(*page)) {
        mistakes.push(format!("{} is not in {SUMMARY}; add a line for it", shown(root, page)));
    }
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        pages.extend(path.extension().is_some_and(|extension| extension == "md").then_some(path));
    }
    let mut links = 0;
    for page in &pages {
        for (link, target) in linked(page)? {
            links += 1;
            if !target.exists() {
                mistakes.push(format!("{}: the link to {link} leads nowhere", shown(root, page)));
            }
        }
        for (file, heading) in targets_with_headings(&read(page)?) {
            let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(&file) };
            let is_page = target.extension().is_some_and(|extension| extension == "md") && target.exists();
            if is_page && !headings(&read(&target)?).contains(&heading) {
                mistakes.push(format!("{}: {file} has no heading #{heading}", shown(root, page)));
            }
        }
    }
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let messages = messages::check(root)?;
    Ok(format!("{} pages, {links} links between files, {messages} pieces of messages", pages.len()))
}

/// Returns the files and directories outside of `docs` to which pages of `docs` link, relative to the
/// root of the repository.
pub(crate) fn linked_outside(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let docs = fs::canonicalize(root.join("docs"))?;
    let root = fs::canonicalize(root)?;
    let mut outside = BTreeSet::new();
    for page in files::below(&docs, &["md"])? {
        for (link, target) in linked(&page)? {
            let path = fs::canonicalize(target).with_context(|| format!("can't find {link}"))?;
            if !path.starts_with(&docs) {
                outside.insert(path.strip_prefix(&root)?.to_owned());
            }
        }
    }
    Ok(outside)
}

/// Returns the links of a page to files, each with the path to which it leads.
fn linked(page: &Path) -> Result<Vec<(String, PathBuf)>> {
    let dir = page.parent().context("a page is in a directory")?;
    Ok(targets(&read(page)?).into_iter().map(|link| (link.clone(), dir.join(link))).collect())
}

/// Returns the files to which the links of a page lead, without the parts after `#`. Links to sites,
/// and within the page, are left out, and so is code.
fn targets(text: &str) -> Vec<String> {
    let files = links(text).into_iter().map(|link| link.split('#').next().unwrap_or_default().to_owned());
    files.filter(|file| !file.is_empty()).collect()
}

/// Returns the files and headings to which links with a `#` lead. The file of a link within the page
/// is empty.
fn targets_with_headings(text: &str) -> Vec<(String, String)> {
    let split = |link: String| link.split_once('#').map(|(file, heading)| (file.to_owned(), heading.to_owned()));
    links(text).into_iter().filter_map(split).collect()
}

/// Returns the links of a page, without those to sites and those in code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Every second part is between backticks; a link's text may be there, its target may not.
        let line: String = line.split('`').step_by(2).collect();
        let links = line.split("](").skip(1).map(|rest| rest.split(')').next().unwrap_or_default().to_owned());
        found.extend(links.filter(|link| !link.contains("://")));
    }
    found
}

/// Returns the names that the site gives the headings of a page.
fn headings(text: &str) -> BTreeSet<String> {
    let letter = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
    };
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| line.trim_start_matches('#').trim().chars().filter_map(letter).collect()).collect()
}

/// Returns the lines of a page outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_are_found_and_no_others() {
        let text = "[a](b.md#c), [`d`](../e.rs), [f](https://g.org), [h](#i), `[j](k)`\n```\n[l](m)\n```\n![n](o.svg)";
        assert_eq!(targets(text), ["b.md", "../e.rs", "o.svg"]);
    }

    #[test]
    fn links_to_headings_lead_to_their_names() {
        let found = targets_with_headings("[a](b.md#c-d), [e](f.md), [g](#h)");
        assert_eq!(found, [("b.md", "c-d"), ("", "h")].map(|(file, heading)| (file.to_owned(), heading.to_owned())));
        let names = headings("# A `b`, c-d\n```\n# no heading\n```\n## window and x_y");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a-b-c-d", "window-and-x_y"]);
    }
}
