//! The `spindle` command: a thin layer over the library. It decides nothing about the protocol.
//!
//! Read [`Command`] first: it has one module per subcommand. Only this crate reads the environment
//! ([`settings`]), prints, and turns errors into exit statuses ([`exit`]).
#![forbid(unsafe_code)]

mod admin_client;
mod backup;
mod bench;
mod calendar;
mod cast;
mod clock;
mod config;
mod dds;
mod demo;
mod exit;
mod idl;
mod leave_evict;
mod lines;
mod log;
mod logs;
mod member;
mod membership;
mod observe;
mod pages;
mod parent;
mod private;
mod progress;
mod quantity;
mod recover;
mod screen;
mod settings;
mod signals;
mod sim;
mod status;
mod views;
mod waiting;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use std::env::args_os;
use std::ffi::OsString;
use std::process::ExitCode;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (rendezvous protocol 20)");

/// Ordered multicast among processes: every member gets every message in the same order, at memory
/// speed.
#[derive(Debug, Parser)]
#[command(name = "spindle", version = VERSION, max_term_width = 110, after_long_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a group of processes on this machine, lets them multicast, and shows their speed and
    /// that they agree
    ///
    /// The members are real processes. Each sends as fast as it can. Each keeps a digest over its
    /// deliveries (sender, round and bytes, in order). At the end all digests must be the same, and
    /// the exit status reports it.
    ///
    /// Latency is the time from commit to delivery at the other members, sampled from one message
    /// in 16, under full load. It includes the time in full rings. Batches are means. Lag counts
    /// the sequence numbers of the order that are stable and not delivered.
    Demo(demo::Args),
    /// Runs one member of a group: multicasts its input and prints the messages of all members, in
    /// the same order at all
    ///
    /// Each line of the input is one message. Every member prints the lines of all members, its own
    /// included, in the same order, none lost and none twice. It ends when the input of every
    /// member has ended and everything is printed.
    ///
    /// Members join and leave while the group runs. A member that joins later prints the lines sent
    /// from then on. When a member dies, hangs or leaves, the others continue without it. Each such
    /// change is a new view, reported on the standard error. Between two changes all present
    /// members print the same.
    ///
    /// A line is the text before a newline, in any encoding, a carriage return included. The output
    /// always ends with a newline, also where the last line of an input had none.
    Member(Box<member::Args>),
    /// Prints the deliveries of a running group, without being a member: no member waits for it
    ///
    /// It begins at the present and prints the lines of all members in their order, as a member
    /// would, through all changes of the view. It ends when every member has finished or left, or
    /// at Ctrl-C (status 0). It needs none of the members' settings.
    ///
    /// The members continue whether it reads or not. If it is too slow, for instance because its
    /// output is a full pipe, messages are overwritten before it has read them. It then continues
    /// at the present and reports on the standard error which rounds of which members it has
    /// missed. Each round is one message, or none where the member had nothing to send.
    Observe(observe::Args),
    /// Shows the state of a running group: its view, its members, how far each member is
    ///
    /// The command asks the members, and each may take a second to answer. A member that does not
    /// answer is shown as such: it is stopped, or so busy that it will be evicted soon.
    Status(status::Args),
    /// Asks a member to leave its group, without loss, and waits until the others continue without
    /// it
    ///
    /// Everything that the member has sent is delivered, and the unread rest of its input stays
    /// unread. Its command ends with status 3, or 0 if it had sent all.
    Leave(leave_evict::Args),
    /// Evicts a live member and waits for the next view
    ///
    /// Use it for members that hang. The evicted member's command ends with status 3 when it runs
    /// on, or joins again if it was started with --rejoin.
    Evict(leave_evict::Args),
    /// Continues a group that has lost its majority for good, with its remaining members
    ///
    /// Between hosts a group continues only if most of its members are present, because the others
    /// may be alive behind a partition. If the missing members are lost for good, for instance
    /// because their machines are destroyed, the remaining members can't know that and wait. This
    /// command names the lost members. It is refused if a remaining member is in contact with one
    /// of them, or if a member that is not named is missing.
    Recover(recover::Args),
    /// Replicates a file to every receiver of a group, and reports when all have it
    ///
    /// The receivers are started with `spindle receive`, before or after, here or on other hosts.
    /// The cast sends only the pieces that a receiver lacks. A cast that was cut short, at either
    /// end, is resumed by casting the file again. When a receiver dies or fails the others
    /// continue. A receiver that joins while the cast runs gets all of the file.
    ///
    /// Each receiver checks each piece, and the whole file on its disk, by digest before it gives
    /// the file its name. The exit status is 0 if all receivers have it.
    Cast(Box<cast::Args>),
    /// Keeps the files that are cast to a group in a directory
    ///
    /// It runs until Ctrl-C. While a file is received it is stored in the directory as
    /// `.NAME.part`, and its pieces are not sent again.
    Receive(Box<cast::receive::Args>),
    /// Reads, checks and prunes the logs in a data directory
    ///
    /// DIR is the data directory of one member, and LOG the name of one of its logs or, if no log
    /// has that name, its number. All but `prune` change nothing and also work while a member owns
    /// the directory: they show the records that were durable when they began.
    #[command(subcommand)]
    Log(logs::LogCommand),
    /// Makes, verifies and restores backups of the logs of a member
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    /// Shows and uses the topics of a DDS domain: what there is, why endpoints match or not, samples
    ///
    /// Each command joins the domain as a participant, and leaves it in order at its end or at Ctrl-C. A
    /// command that only looks reads the directory of the domain, which is the same at all participants.
    #[command(subcommand)]
    Dds(dds::DdsCommand),
    /// Inspects settings: effective values and their origins, errors, and an example
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Measures throughput, latency, and the machine's limits beside them
    Bench(bench::Args),
    /// Searches for histories that break the protocol, in a simulator: many seeds, or one with its
    /// history
    Sim(sim::Args),
    /// Compiles IDL files: the data types of DDS, in Rust
    ///
    /// The output has a module for each module of the files, and a type with the derive `DdsType` of
    /// spindle-xcdr for each of their types. Each error is printed with its file, line and column. A
    /// build script calls `spindle_idl::build` instead.
    Idl(idl::Args),
    /// Prints the completion script of a shell
    Completions(pages::Completions),
    /// Prints the manual
    Man(pages::Man),
    /// A member that the demo starts; not for direct use
    #[command(hide = true)]
    DemoMember(demo::child::DemoMemberArgs),
}

fn main() -> ExitCode {
    let words: Vec<OsString> = args_os().collect();
    let cli = Cli::try_parse_from(&words).unwrap_or_else(|error| visible(error, &words).exit());
    let outcome = match cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Member(args) => member::run(*args),
        Command::Observe(args) => observe::run(args),
        Command::Status(args) => status::run(args),
        Command::Leave(args) => leave_evict::leave(args),
        Command::Evict(args) => leave_evict::evict(args),
        Command::Recover(args) => recover::recover(args),
        Command::Cast(args) => cast::run(*args),
        Command::Receive(args) => cast::receive::run(*args),
        Command::Log(command) => logs::run(command),
        Command::Backup(command) => backup::run(command),
        Command::Dds(command) => dds::run(command),
        Command::Config(command) => config::run(command),
        Command::Bench(args) => bench::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Idl(args) => idl::run(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
        Command::DemoMember(args) => demo::child::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.report()),
    }
}

/// Removes hidden commands from the suggestions of an error of these arguments.
fn visible(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let mut words = words.iter().skip(1);
    let root = Cli::command();
    let mut command = &root;
    while let Some(inner) = words.next().and_then(|word| command.find_subcommand(word)) {
        command = inner;
    }
    let is_shown = |name: &String| command.find_subcommand(name).is_none_or(|found| !found.is_hide_set());
    let names = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.iter().filter(|name| is_shown(name)).cloned().collect::<Vec<_>>(),
        Some(ContextValue::String(name)) => Some(name).filter(|name| is_shown(name)).cloned().into_iter().collect(),
        _ => return error,
    };
    match names.is_empty() {
        true => drop(error.remove(ContextKind::SuggestedSubcommand)),
        false => drop(error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names))),
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_name_no_hidden_command() {
        let told = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            visible(Cli::try_parse_from(&words).unwrap_err(), &words).render().to_string()
        };
        for (words, hidden, shown) in [
            ("spindle demo-membr", "'demo-member'", "'member', 'demo'"),
            ("spindle bench membr", "'member'", "unrecognized subcommand"),
            ("spindle bench views-membe", "'views-member'", "'views'"),
            ("spindle membr", "'demo-member'", "'member'"),
        ] {
            let text = told(words);
            assert!(!text.contains(hidden) && text.contains(shown), "{text}");
        }
    }

    #[test]
    fn the_parser_is_sound_and_says_the_version_of_the_rendezvous() {
        Cli::command().debug_assert();
        assert!(VERSION.ends_with(&format!("protocol {})", spindle::RENDEZVOUS_VERSION)));
    }
}
