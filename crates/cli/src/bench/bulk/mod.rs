//! `spindle bench bulk`: how long large objects take by block multicast.
//!
//! With `--fabric sim` nothing is sent: [`model`] has its costs. With `tcp` and `shm` objects go
//! from one process to others ([`real`]), on this machine. The caller has to name the fabric, so
//! that the figures of one fabric are not mistaken for those of another.
mod cluster;
pub(super) mod member;
mod model;
mod real;
mod wire;

use crate::exit::CliError;
use crate::quantity::bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use spindle_core::rdmc::BLOCK_BYTES;
use spindle_fabric::region::available_bytes;

/// Options of `spindle bench bulk`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The transport of the blocks
    #[arg(long, value_enum)]
    fabric: BulkFabric,
    /// Members, the root included, a list [default: 5,9,17; in the model many from 2 to 513]
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=1024))]
    members: Vec<u32>,
    /// Bytes of the object, a list [default: 1M,16M,64M,256M; in the model, which takes one, 256M]
    #[arg(long, alias = "size", value_name = "BYTES", value_delimiter = ',', value_parser = bytes)]
    bytes: Vec<u64>,
    /// Bytes of a block [default: that of the library, or of the model]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    block: Option<u64>,
    /// How many blocks beyond those that it has a receiver is ready for [default: as for --block]
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(2..=64))]
    ahead: Option<u32>,
    /// How many blocks a member may have on the way [default: as for --block]
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..=64))]
    posts: Option<u32>,
    /// How blocks spread; the model tries all [default: pipeline, or with --racks hybrid]
    #[arg(long, value_enum)]
    algorithm: Option<AlgorithmArg>,
    /// For tcp: assign the members to this many racks in turns, and count the bytes sent between
    /// racks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    racks: Option<u32>,
    /// Objects of fewer bytes, and of one block, go from the root directly to all members [default:
    /// that of the library]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    direct: Option<u64>,
    /// How processes wait for blocks
    #[arg(long, value_enum, default_value = "interrupt")]
    waiting: WaitMode,
    /// How often each measurement is repeated; the figures are medians
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,
    /// In the model: omit the slow links
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The transport of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BulkFabric {
    /// A model of RDMA NICs: nothing is sent
    Sim,
    /// TCP streams over the loopback device, between processes
    Tcp,
    /// Shared memory: processes read the root's object in place
    Shm,
}

/// How blocks spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AlgorithmArg {
    /// The binomial pipeline
    Pipeline,
    /// Each member sends to the next
    Chain,
    /// Members that have the whole object send it on
    Tree,
    /// The root sends the whole object to one member after the other
    Sequential,
    /// A chain of racks, and a pipeline inside each
    Hybrid,
}

/// How processes wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WaitMode {
    /// Poll without a pause
    Polling,
    /// Poll for 50 µs, then sleep
    Hybrid,
    /// Sleep
    Interrupt,
}

impl Args {
    fn model(&self) -> model::ModelArgs {
        let all = [2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 513];
        model::ModelArgs {
            fabric: self.fabric,
            members: if self.members.is_empty() { all.into() } else { self.members.clone() },
            size: self.bytes.first().copied().unwrap_or(256 << 20),
            block: self.block.unwrap_or(BLOCK_BYTES),
            ahead: self.ahead.unwrap_or(2),
            posts: self.posts.unwrap_or(1),
            quick: self.quick,
            json: self.json,
        }
    }
}

/// Returns the reason why `args` make no sense, if there is one.
pub(super) fn refuse(args: &Args) -> Option<String> {
    if args.block.is_some_and(|block| block == 0 || block > spindle_core::limits::BULK_BLOCK_BYTES_MAX) {
        return Some("--block has to be from 1 to 1G".to_string());
    }
    if args.algorithm == Some(AlgorithmArg::Hybrid) && args.racks.is_none() {
        return Some("--algorithm hybrid needs --racks".to_string());
    }
    match args.fabric {
        BulkFabric::Sim | BulkFabric::Shm if args.racks.is_some() => Some(
            "--racks is for tcp: the model has its own, and in shared memory nothing goes from one to another"
                .to_string(),
        ),
        BulkFabric::Sim if args.bytes.len() > 1 => Some("--bytes takes one length in the model".to_string()),
        BulkFabric::Sim if args.algorithm.is_some() => Some("--algorithm is for tcp: the model tries all".to_string()),
        BulkFabric::Sim if args.direct.is_some() => {
            Some("--direct is for tcp and shm: the model tries both ways".to_string())
        }
        BulkFabric::Sim => model::refuse(&args.model()),
        BulkFabric::Tcp | BulkFabric::Shm if args.quick => Some("--quick is for the model".to_string()),
        BulkFabric::Tcp | BulkFabric::Shm if args.bytes.contains(&0) => {
            Some("--bytes has to be at least 1".to_string())
        }
        BulkFabric::Tcp | BulkFabric::Shm if args.members.iter().any(|members| *members > real::MEMBERS_MAX) => {
            Some(format!("--members has to be at most {} where they are processes", real::MEMBERS_MAX))
        }
        BulkFabric::Tcp | BulkFabric::Shm => real::refuse(args, available_bytes()),
    }
}

pub(super) fn run(args: &Args) -> Result<(), CliError> {
    match args.fabric {
        BulkFabric::Sim => model::run(&args.model()),
        BulkFabric::Tcp | BulkFabric::Shm => real::run(args),
    }
}
