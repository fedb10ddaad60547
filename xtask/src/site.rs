//! Makes the site: the pages as a book, the documentation of the code beside it, and the files of the
//! repository to which pages link.
//!
//! The book is in `docs` below the site, as the pages are in the repository, so the links of a page
//! lead to the copies.
use crate::pages;
use crate::process::{Session, Skipped};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Makes the site in `site` in the build directory. mdbook is a tool that nothing else needs, so a
/// missing one is reported.
pub(crate) fn make(session: &Session<'_>) -> Result<String> {
    let mut probe = session.command("mdbook");
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return Err(Skipped("mdbook is not installed (`cargo install --locked mdbook`)".to_owned()).into());
    }
    document(session)?;
    let root = session.root();
    let metadata = session.metadata()?;
    let site = metadata.target_directory.join("site");
    if site.exists() {
        fs::remove_dir_all(&site).with_context(|| format!("can't remove {site}"))?;
    }
    session.run(session.command("mdbook").args(["build", "docs", "--dest-dir"]).arg(site.join("docs")))?;
    let linked = pages::linked_outside(root)?;
    for path in &linked {
        copy(&root.join(path), &site.as_std_path().join(path))?;
    }
    copy(metadata.target_directory.join("doc").as_std_path(), site.join("api").as_std_path())?;
    Ok(format!("{site}: the book in docs, the code in api, and {} linked files and directories", linked.len()))
}

/// Makes the documentation of the code, in which each link has to lead somewhere.
pub(crate) fn document(session: &Session<'_>) -> Result<String> {
    let mut command = session.command("cargo");
    command.args(["doc", "--locked", "--no-deps", "--workspace", "--exclude", "spindle-cli"]);
    session.run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(String::new())
}

/// Copies a file, or a directory with its files and a page that lists them.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let shown = || format!("can't copy {} to {}", from.display(), to.display());
    if !from.is_dir() {
        fs::create_dir_all(to.parent().context("a file is in a directory")?).with_context(shown)?;
        return fs::copy(from, to).map(drop).with_context(shown);
    }
    fs::create_dir_all(to).with_context(shown)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(from).with_context(shown)? {
        let name = entry.with_context(shown)?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
        names.push(name.to_string_lossy().into_owned());
    }
    if !to.join("index.html").exists() {
        names.sort();
        fs::write(to.join("index.html"), list(&names)).with_context(shown)?;
    }
    Ok(())
}

/// Returns a page that links to these files.
fn list(names: &[String]) -> String {
    let mut page = String::from("<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<ul>\n");
    for name in names {
        let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        let _ = writeln!(page, "<li><a href=\"{name}\">{name}</a></li>");
    }
    page + "</ul>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_copied_with_a_page_that_lists_its_files() {
        let dir = std::env::temp_dir().join(format!("spindle-site-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("a&b"), "one").unwrap();
        fs::write(from.join("inner/c"), "two").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/c")).unwrap(), "two");
        let page = fs::read_to_string(to.join("index.html")).unwrap();
        assert!(page.contains("<a href=\"a&amp;b\">a&amp;b</a>") && page.contains("href=\"inner\""), "{page}");
        fs::remove_dir_all(dir).unwrap();
    }
}
