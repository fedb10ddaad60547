//! The `spindle` command: a thin shell over the library. Nothing of the protocol is decided here.
//!
//! Read [`Command`] first: one module per subcommand. This crate alone reads the environment ([`place`]), prints, and
//! turns errors into exit statuses ([`exit`]).
#![forbid(unsafe_code)]

mod exit;
mod member;
mod pages;
mod place;
mod quantity;
mod signals;
mod waiting;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (rendezvous protocol 1)");

/// Ordered multicast among processes: every member gets every message in the same order, at memory speed.
#[derive(Debug, Parser)]
#[command(name = "spindle", version = VERSION, max_term_width = 110, after_long_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Is one member of a group: multicasts its input and prints what all members send, in the same order at all
    Member(member::Args),
    /// Prints the completion script of a shell
    Completions(pages::Completions),
    /// Prints the manual
    Man(pages::Man),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Member(args) => member::run(args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.status)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_parser_is_sound_and_says_the_version_of_the_rendezvous() {
        Cli::command().debug_assert();
        assert!(VERSION.ends_with(&format!("protocol {})", spindle::RENDEZVOUS_VERSION)));
    }
}
