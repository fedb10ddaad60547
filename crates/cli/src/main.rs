//! The `spindle` command.
mod bench;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "spindle", version, about = "Atomic multicast among processes.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures throughput, latency, and the machine's limits beside them
    Bench(bench::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
    }
}
