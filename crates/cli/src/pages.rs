//! Completions and manual pages, made from the parser.
use crate::Cli;
use crate::exit::CliResult;
use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man as Page;
use std::io::{self, Write};
use std::path::PathBuf;

/// Arguments of `spindle completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Arguments of `spindle man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write one file per command into this directory, instead of everything to the standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &Completions) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "spindle", &mut script);
    Ok(io::stdout().write_all(&script).context("can't write the completions to the standard output")?)
}

pub(crate) fn man(args: &Man) -> CliResult {
    match &args.dir {
        Some(dir) => Ok(clap_mangen::generate_to(Cli::command(), dir)
            .with_context(|| format!("can't write the manual to {}; name a directory that exists", dir.display()))?),
        None => Ok(print().context("can't write the manual to the standard output")?),
    }
}

/// Prints the pages of the whole command tree, one after the other.
fn print() -> io::Result<()> {
    let mut command = Cli::command();
    command.build();
    let mut text = Vec::new();
    Page::new(command.clone()).render(&mut text)?;
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        Page::new(subcommand.clone()).render(&mut text)?;
    }
    io::stdout().write_all(&text)
}
