//! Makes the site: the pages as a book, the documentation of the code beside it, and the files of the
//! repository to which pages link.
//!
//! The book is in `docs` below the site, as the pages are in the repository, so the links of a page
//! lead to the copies.
use crate::files::{self, read, shown};
use crate::pages;
use crate::process::{Skipped, StepSession};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Makes the site in `site` in the build directory. mdbook is a tool that nothing else needs, so a
/// missing one is reported.
pub(crate) fn make(session: &StepSession<'_>) -> Result<String> {
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
    complete(site.join("docs").as_std_path())?;
    let linked = pages::linked_outside(root)?;
    for path in &linked {
        copy(&root.join(path), &site.as_std_path().join(path))?;
    }
    copy(metadata.target_directory.join("doc").as_std_path(), site.join("api").as_std_path())?;
    let links = check_links(site.join("docs").as_std_path())?;
    let linked = linked.len();
    Ok(format!("{site}: the book in docs, the code in api, and {linked} linked files and directories; {links} links"))
}

/// Makes the documentation of the code, in which each link has to lead somewhere.
pub(crate) fn document(session: &StepSession<'_>) -> Result<String> {
    let mut command = session.command("cargo");
    command.args(["doc", "--locked", "--no-deps", "--workspace", "--exclude", "spindle-cli"]);
    // No other package asks for this feature.
    command.args(["--features", "spindle-dds-core/profiles"]);
    session.run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(String::new())
}

/// The page that a reader of the book sees first.
const FIRST: &str = "guide/first-group.html";

/// Completes the book. mdbook writes its first page a second time as `index.html`, where the links of
/// the page lead nowhere, and writes each `README.md` as `index.html` without changing all links to it.
fn complete(book: &Path) -> Result<()> {
    let first = format!("<!DOCTYPE html>\n<meta http-equiv=\"refresh\" content=\"0; url={FIRST}\">\n");
    fs::write(book.join("index.html"), first + &format!("<a href=\"{FIRST}\">Spindle</a>\n"))?;
    for index in files::below(book, &["html"])?.into_iter().filter(|path| path.ends_with("index.html")) {
        let readme = index.with_file_name("README.html");
        if index.parent() != Some(book) && !readme.exists() {
            fs::copy(&index, &readme).with_context(|| format!("can't copy {}", index.display()))?;
        }
    }
    Ok(())
}

/// Checks that the links of the book's pages lead to files of the site, and to places that the pages
/// have. Returns their number.
fn check_links(book: &Path) -> Result<usize> {
    let (mut count, mut broken) = (0, Vec::new());
    // This page repeats all others, for printing.
    for path in files::below(book, &["html"])?.into_iter().filter(|path| !path.ends_with("print.html")) {
        let page = read(&path)?;
        let content = page.split_once("<main>").and_then(|(_, rest)| rest.split_once("</main>"));
        for link in content.map_or(page.as_str(), |(content, _)| content).split(" href=\"").skip(1) {
            let link = link.split('"').next().unwrap_or_default();
            if link.contains("://") || link.starts_with('/') {
                continue;
            }
            count += 1;
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            let is_found = target.exists() && (place.is_empty() || has_place(&target, place)?);
            if !is_found {
                broken.push(format!("{}: the link to {link} leads nowhere", shown(book, &path)));
            }
        }
    }
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(count)
}

/// Whether a page of the site has this place.
fn has_place(page: &Path, place: &str) -> Result<bool> {
    let is_page = page.extension().is_some_and(|extension| extension == "html");
    Ok(!is_page || read(page)?.contains(&format!("id=\"{place}\"")))
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

    #[test]
    fn a_link_that_leads_nowhere_is_reported() {
        let book = std::env::temp_dir().join(format!("spindle-book-{}", std::process::id()));
        fs::create_dir_all(book.join("guide")).unwrap();
        fs::write(book.join("guide/index.html"), "<main><h1 id=\"a\">b</h1></main>").unwrap();
        let page =
            |links: &str| fs::write(book.join("guide/first-group.html"), format!("<main>{links}</main>")).unwrap();
        page("<a href=\"README.html#a\">c</a><a href=\"#d\">e</a><i id=\"d\">f</i>");
        complete(&book).unwrap();
        assert_eq!(check_links(&book).unwrap(), 3);
        page("<a href=\"gone.html\">c</a><a href=\"index.html#b\">d</a>");
        let broken = check_links(&book).unwrap_err().to_string();
        assert!(broken.contains("gone.html leads") && broken.contains("index.html#b leads"), "{broken}");
        fs::remove_dir_all(book).unwrap();
    }
}
