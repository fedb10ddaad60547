//! Checks of the dependencies: each has an allowed licence, and each direct one has a written
//! reason.
//!
//! The allowed licences are listed in this package's manifest, under `package.metadata.licences`.
use crate::process::StepSession;
use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};
use spdx::{Expression, Licensee, ParseMode};
use std::collections::BTreeSet;
use std::fs;

/// The page that contains the reasons for the direct dependencies: a table with one row each.
const REASONS: &str = "docs/adr/dependencies.md";

/// Checks every package of the lock file, for all platforms.
pub(crate) fn check(session: &StepSession<'_>) -> Result<String> {
    let metadata = MetadataCommand::new()
        .manifest_path(session.root().join("Cargo.toml"))
        .features(cargo_metadata::CargoOpt::AllFeatures)
        .other_options(["--locked".to_owned()])
        .exec()?;
    let allowed = allowed(&metadata)?;
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        if let Err(reason) = judge(package.license.as_deref(), &allowed) {
            wrong.push(format!("{} {}: {reason}", package.name, package.version));
        }
    }
    let path = session.root().join(REASONS);
    let reasons = fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
    let direct = direct(&metadata);
    for name in direct.iter().filter(|name| !is_explained(name, &reasons)) {
        wrong.push(format!("{name}: a direct dependency without a row in {REASONS}"));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(format!("{} packages, {} direct dependencies", metadata.packages.len(), direct.len()))
}

fn allowed(metadata: &Metadata) -> Result<Vec<Licensee>> {
    let own = metadata.packages.iter().find(|package| package.name.as_str() == env!("CARGO_PKG_NAME"));
    let list = own.and_then(|package| package.metadata["licences"]["allow"].as_array());
    let list = list.context("xtask/Cargo.toml lacks the list package.metadata.licences.allow")?;
    let names = list.iter().map(|name| name.as_str().context("an allowed licence is a string"));
    names.map(|name| Ok(Licensee::parse(name?)?)).collect()
}

fn judge(licence: Option<&str>, allowed: &[Licensee]) -> Result<(), String> {
    let Some(licence) = licence else { return Err("names no licence".to_owned()) };
    // The mode is lax, because some manifests still write "MIT/Apache-2.0".
    let expression = Expression::parse_mode(licence, ParseMode::LAX)
        .map_err(|error| format!("{licence:?} is no licence expression: {}", error.reason))?;
    if expression.evaluate(|wanted| allowed.iter().any(|licence| licence.satisfies(wanted))) {
        return Ok(());
    }
    Err(format!("{licence:?} is not allowed by xtask/Cargo.toml"))
}

/// Returns the names of the direct dependencies of the workspace's members, without the members
/// themselves.
fn direct(metadata: &Metadata) -> BTreeSet<&str> {
    let dependencies = metadata.workspace_packages().into_iter().flat_map(|package| &package.dependencies);
    dependencies.filter(|dependency| dependency.path.is_none()).map(|dependency| dependency.name.as_str()).collect()
}

fn is_explained(name: &str, reasons: &str) -> bool {
    let row = format!("| `{name}` |");
    reasons.lines().any(|line| line.strip_prefix(&row).is_some_and(|rest| rest.contains(char::is_alphabetic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_judged_as_expressions() {
        let allowed: Vec<Licensee> =
            ["MIT", "Apache-2.0", "Unicode-3.0"].iter().map(|name| Licensee::parse(name).unwrap()).collect();
        for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            judge(Some(good), &allowed).unwrap();
        }
        for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "Apache-2.0 WITH LLVM-exception", "my own", ""] {
            judge(Some(bad), &allowed).unwrap_err();
        }
        judge(None, &allowed).unwrap_err();
    }

    #[test]
    fn a_dependency_is_explained_by_a_row_of_its_own_that_says_something() {
        let reasons = "| `serde_json` | JSON | x |\n| `libc` | |\ntext about `rustix`\n";
        assert!(is_explained("serde_json", reasons));
        assert!(["serde", "libc", "rustix", "json"].iter().all(|name| !is_explained(name, reasons)));
    }
}
