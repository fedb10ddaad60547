//! The steps of CI, in the order in which they run: quick ones first. To add one, add an entry.
use crate::process::Session;
use crate::{licences, purity, readme};
use anyhow::Result;

/// One check.
pub(crate) struct Step {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it checks, in one line.
    pub(crate) about: &'static str,
    /// How long it may take before it counts as hung.
    pub(crate) minutes: u64,
    /// Does it, and answers with a remark for the summary, or nothing.
    pub(crate) run: fn(&Session<'_>) -> Result<String>,
}

/// All steps.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "the code is formatted",
        minutes: 2,
        run: |session| session.cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "clippy",
        about: "no lint fires, tests and examples included",
        minutes: 15,
        run: |session| session.cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    },
    Step { name: "docs", about: "the documentation builds, every link resolves", minutes: 15, run: docs },
    Step {
        name: "licences",
        about: "every dependency has an allowed licence, every direct one its line in docs/adr/dependencies.md",
        minutes: 5,
        run: licences::check,
    },
    Step {
        name: "purity",
        about: "the core builds for wasm without std and imports nothing",
        minutes: 5,
        run: purity::check,
    },
    Step { name: "test", about: "the README's test command passes", minutes: 15, run: readme::test },
];

/// The command is left out: its binary is called as the library is, and the two would write the same pages.
fn docs(session: &Session<'_>) -> Result<String> {
    let mut command = session.command("cargo");
    command.args(["doc", "--locked", "--no-deps", "--workspace", "--exclude", "spindle-cli"]);
    session.run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(String::new())
}
