//! `spindle dds`: tools for the topics of a DDS domain.
//!
//! A tool is a participant of the domain ([`domain`]). [`endpoints`] finds entities in the directory, `show` and
//! `why` print it, `echo`, `publish` and `rate` read and write samples of any type, which they find there, too.
mod doctor;
mod domain;
mod echo;
mod endpoints;
mod output;
mod publish;
mod rate;
mod show;
mod why;

use crate::exit::CliResult;

/// The subcommands of `spindle dds`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DdsCommand {
    /// Lists the topics of a domain with their types, writers, readers and order domains
    Ls(show::LsArgs),
    /// Lists the participants of a domain with their processes and endpoints
    Ps(show::PsArgs),
    /// Prints the type of a topic as IDL
    Typeof(show::TypeofArgs),
    /// Says why the writers and readers of a topic match, or all reasons why they don't
    ///
    /// It also names topics whose names are so close that one is probably mistyped. The status is 1 if a pair
    /// does not match.
    Why(why::Args),
    /// Prints the samples of a topic as they come, until Ctrl-C
    ///
    /// Samples have the places of the order on which all readers agree. The reader of the command requests no more
    /// than each writer offers, so it matches all writers whose OWNERSHIP is the same. A change of the state
    /// of an instance is printed like a sample, with its key.
    Echo(echo::Args),
    /// Publishes samples to a topic, from JSON
    ///
    /// The type is that of the topic in the domain. The writer offers what all readers request. The command waits
    /// for the readers that are there, and at its end until they have all samples. Its instances are
    /// unregistered and not disposed then.
    Pub(publish::Args),
    /// Measures the rate of the samples of a topic, each second until Ctrl-C
    Hz(rate::Args),
    /// Measures the bytes of the samples of a topic, each second until Ctrl-C
    Bw(rate::Args),
    /// Checks whether DDS works here: the runtime directory, a join, a sample, and the pairs of the domain
    ///
    /// The status is 1 if a check fails.
    Doctor(doctor::Args),
}

pub(crate) fn run(command: DdsCommand) -> CliResult {
    let (outcome, json) = match &command {
        DdsCommand::Ls(args) => (show::ls(args), args.json),
        DdsCommand::Ps(args) => (show::ps(args), args.json),
        DdsCommand::Typeof(args) => (show::type_of(args), args.json),
        DdsCommand::Why(args) => (why::run(args), args.json),
        DdsCommand::Echo(args) => (echo::run(args), args.json),
        DdsCommand::Pub(args) => (publish::run(args), false),
        DdsCommand::Hz(args) => (rate::run(args, rate::Measure::Rate), args.json),
        DdsCommand::Bw(args) => (rate::run(args, rate::Measure::Bytes), args.json),
        DdsCommand::Doctor(args) => (doctor::run(args), args.json),
    };
    outcome.map_err(|failure| failure.told_as_json(json))
}
