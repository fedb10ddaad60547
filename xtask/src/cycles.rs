//! Checks the modules of each crate: no two files import from each other, directly or over others.
//!
//! A file that can be read after the files that it imports from, and before the others, is read
//! once. The check follows `use` declarations and paths that begin with `crate`, `super` or `self`,
//! through re-exports to the module that defines the name. It does not see paths inside of calls of
//! macros. A file and the files of its own folder count as one where they import from each other:
//! the folder continues the file. Test modules don't count.
mod graph;
mod source;

use crate::process::Session;
use anyhow::{Result, bail};
use cargo_metadata::MetadataCommand;
use graph::{cycles, describe};
use source::Crate;

/// The cycles that stay, each as its crate, one of its modules, and the maximum number of its
/// modules, with the reason.
const ALLOWED: &[(&str, &str, usize)] = &[
    // The world of whole processes is one type. Its methods are in files by concern.
    ("spindle-sim", "processes::world", 18),
];

/// Checks all crates of the workspace.
pub(crate) fn check(session: &Session<'_>) -> Result<String> {
    let metadata = MetadataCommand::new().manifest_path(session.root().join("Cargo.toml")).no_deps().exec()?;
    let (mut wrong, mut modules, mut crates) = (Vec::new(), 0, 0);
    for package in &metadata.packages {
        // A package with a library and a program has one tree of modules in each.
        for target in package.targets.iter().filter(|target| target.is_lib() || target.is_bin()) {
            let read = Crate::read(target.src_path.as_std_path())?;
            (modules, crates) = (modules + read.modules.len(), crates + 1);
            let is_allowed = |cycle: &[&str]| {
                ALLOWED.iter().any(|(of, module, max)| {
                    package.name.as_str() == *of && cycle.contains(module) && cycle.len() <= *max
                })
            };
            let imports = read.imports();
            let found = cycles(&imports);
            wrong.extend(found.iter().filter(|cycle| !is_allowed(cycle)).map(|cycle| {
                format!(
                    "{}: {} modules import from each other:\n{}",
                    package.name,
                    cycle.len(),
                    describe(cycle, &imports)
                )
            }));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(format!("{modules} modules of {crates} crates"))
}
