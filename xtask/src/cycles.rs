//! Checks the modules of each crate: no two files import from each other, directly or over others.
//!
//! A file that can be read after the files that it imports from, and before the others, is read
//! once. The check follows `use` declarations and paths that begin with `crate`, `super` or `self`,
//! through re-exports to the module that defines the name. A file and the files of its own folder may
//! import from each other: the folder continues the file. Test modules don't count.
//!
//! The check does not see paths inside of calls of macros, methods of types that are defined in
//! another file, names that a glob re-exports, and what the root of a crate defines.
mod graph;
mod source;

use crate::process::StepSession;
use anyhow::{Result, bail};
use graph::{Imports, cycles, describe};
use source::{Crate, Folders};

/// The cycles that stay, each as its crate, one of its modules, and the maximum number of its
/// modules, with the reason.
const ALLOWED: &[(&str, &str, usize)] = &[
    // The world of whole processes is one type. Its methods are in files by concern.
    ("spindle-sim", "processes::world", 24),
];

/// Checks all crates of the workspace.
pub(crate) fn check(session: &StepSession<'_>) -> Result<String> {
    let metadata = session.metadata()?;
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
            let tell = |cycle: &[&str], imports: &Imports| {
                let told = describe(cycle, imports);
                format!("{}: {} modules import from each other:\n{told}", package.name, cycle.len())
            };
            let beside = read.imports(Folders::Ignored);
            let found = cycles(&beside);
            wrong.extend(found.iter().filter(|cycle| !is_allowed(cycle)).map(|cycle| tell(cycle, &beside)));
            // A cycle between two files may lead through the folder of one of them.
            let all = read.imports(Folders::Counted);
            let found = cycles(&all);
            wrong.extend(found.iter().filter(|cycle| !is_one_folder(cycle)).map(|cycle| tell(cycle, &all)));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(format!("{modules} modules of {crates} crates"))
}

/// True if all modules are one of them, or in its folder.
fn is_one_folder(cycle: &[&str]) -> bool {
    let shortest = cycle.iter().min_by_key(|module| module.len()).copied().unwrap_or_default();
    cycle
        .iter()
        .all(|module| module.strip_prefix(shortest).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_folder_are_one_and_a_file_beside_is_not() {
        assert!(is_one_folder(&["log", "log::repair", "log::scan::window"]));
        assert!(!is_one_folder(&["log", "log::repair", "store"]) && !is_one_folder(&["log::a", "log::b"]));
        assert!(!is_one_folder(&["log", "logs"]));
    }
}
