//! The licences of the packages that a binary contains, with their texts.
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

/// The beginnings of the names of files that contain licences.
const NAMES: [&str; 3] = ["LICENSE", "COPYING", "NOTICE"];

/// Returns one text with the licences of all packages that `root` contains when it is built for
/// `target`, in the order of their names.
pub(super) fn collect(metadata: &Metadata, root: &str, target: &str) -> Result<String> {
    let metadata = MetadataCommand::new()
        .manifest_path(metadata.workspace_root.join("Cargo.toml"))
        .other_options(["--locked".to_owned(), format!("--filter-platform={target}")])
        .exec()?;
    let found = contained(&metadata, root)?;
    let mut packages: Vec<&Package> =
        metadata.packages.iter().filter(|package| found.contains(&package.id) && package.source.is_some()).collect();
    packages.sort_by(|a, b| (a.name.as_str(), &a.version).cmp(&(b.name.as_str(), &b.version)));
    let mut text = "The packages of others that this binary contains.\n".to_owned();
    for package in packages {
        let licence = package.license.as_deref().unwrap_or("see below");
        writeln!(text, "\n{}\n{} {}: {licence}", "-".repeat(100), package.name, package.version)?;
        let dir = package.manifest_path.parent().context("a manifest is in a directory")?;
        let mut files: Vec<_> = fs::read_dir(dir)?.collect::<Result<_, _>>()?;
        files.sort_by_key(fs::DirEntry::file_name);
        for file in files {
            let name = file.file_name().to_string_lossy().to_uppercase();
            if NAMES.iter().any(|start| name.starts_with(start)) && file.path().is_file() {
                let licence =
                    fs::read_to_string(file.path()).with_context(|| format!("can't read {:?}", file.path()))?;
                writeln!(text, "\n{}", licence.trim_end())?;
            }
        }
    }
    Ok(text)
}

/// Returns `root` and all packages that it depends on, except for those that only build or test it.
fn contained(metadata: &Metadata, root: &str) -> Result<BTreeSet<PackageId>> {
    let nodes = &metadata.resolve.as_ref().context("cargo resolved no dependencies")?.nodes;
    let root = metadata.packages.iter().find(|package| package.name.as_str() == root).context("no such package")?;
    let (mut found, mut next) = (BTreeSet::new(), vec![root.id.clone()]);
    while let Some(id) = next.pop() {
        let node = nodes.iter().find(|node| node.id == id).context("a dependency is not resolved")?;
        let runs = |kinds: &[cargo_metadata::DepKindInfo]| kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
        if found.insert(id) {
            next.extend(node.deps.iter().filter(|dep| runs(&dep.dep_kinds)).map(|dep| dep.pkg.clone()));
        }
    }
    Ok(found)
}
