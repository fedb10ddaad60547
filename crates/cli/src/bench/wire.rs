//! Messages between a benchmark and its members: one JSON value a line, over a member's standard
//! input and output.
use super::args::{DeliveryArg, Drive, FabricArg, WaitArg, ranks};
use super::clock::Usage;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first line that a member reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BenchSetup {
    /// The process that started the member. The member ends with that process.
    pub(super) parent: u32,
    pub(super) group: String,
    pub(super) runtime_dir: PathBuf,
    /// The address to listen at and the address of the first member, if members are on hosts of
    /// their own.
    pub(super) network: Option<MemberNetwork>,
    pub(super) members: u32,
    pub(super) rank: u32,
    pub(super) plan: BenchPlan,
    /// The data directory for the logs, if the plan is logged.
    pub(super) data_dir: Option<PathBuf>,
    /// The core to run on.
    pub(super) core: Option<u32>,
}

/// The addresses and transport of a member on a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberNetwork {
    pub(super) listen: String,
    /// The address announced to others instead, if a proxy is in front of the member.
    pub(super) advertise: Option<String>,
    pub(super) seeds: Vec<String>,
    /// True if the network is trusted without TLS, because it belongs to the benchmark.
    pub(super) insecure: bool,
    /// The libfabric provider that carries messages, if they don't go over streams.
    pub(super) provider: Option<String>,
}

/// The settings that all members of a cluster share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BenchPlan {
    pub(super) job: SliceJob,
    pub(super) senders: u32,
    pub(super) subgroups: u32,
    /// Subgroups in which members send, counted from the first.
    pub(super) active: u32,
    /// Members of each subgroup. Active subgroups have the first members of the group, idle
    /// subgroups take other members in turns.
    pub(super) span: u32,
    /// Bytes of a message.
    pub(super) size: u64,
    pub(super) window: u64,
    /// Messages claimed between two polls, in each subgroup.
    pub(super) burst: u64,
    pub(super) drive: Drive,
    pub(super) wait: WaitArg,
    pub(super) fabric: FabricArg,
    pub(super) delivery: DeliveryArg,
    /// Whether the members log the messages.
    pub(super) logged: bool,
}

impl BenchPlan {
    /// Returns the ranks of a subgroup's members, in a group of `members`.
    pub(super) fn ranks(&self, subgroup: u32, members: u32) -> Vec<u32> {
        ranks(if subgroup < self.active { 0 } else { subgroup }, self.span, members)
    }
}

/// The work of a member in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SliceJob {
    /// Sends as many messages as it can.
    Stream,
    /// Sends one message when it is its turn, and spins in between.
    OneInFlight,
    /// Sends one message when it is its turn, with a pause between messages.
    Pulse {
        /// Time from one message to the next.
        every_us: u64,
    },
}

/// An order that follows the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BenchOrder {
    /// Work until `end_ns`, and count from `begin_ns` on.
    Run {
        /// Start of the count, on the machine's monotonic clock.
        begin_ns: u64,
        /// End of the work, on the same clock.
        end_ns: u64,
    },
    /// Leave in agreement with the others.
    Finish,
}

/// An answer of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BenchReply {
    /// The member has joined.
    Ready,
    /// A slice is over.
    Ran(Box<Ran>),
    /// The member has left.
    Finished(EngineCounts),
    /// The member gives up, with the error.
    Failed(String),
}

/// The measurements of a slice at one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ran {
    /// Messages delivered here between begin and end.
    pub(super) delivered: u64,
    /// Time between begin and end.
    pub(super) elapsed_ns: u64,
    /// Counts over the whole slice, including the time before begin.
    pub(super) counts: EngineCounts,
    /// Resources used in the whole slice.
    pub(super) usage: Usage,
    /// Waits for room that failed.
    pub(super) stalls: u64,
    /// Latencies of messages that others sent after begin: (ns, how many).
    pub(super) latencies: Vec<(u64, u64)>,
    /// The same for this member's own messages: the time until it knew that every member has them.
    pub(super) own_latencies: Vec<(u64, u64)>,
    /// CPU time of this process from the first moment of the slice to the last.
    pub(super) busy_ns: u64,
    /// Length of that interval.
    pub(super) took_ns: u64,
}

/// Counts of a member's engine, summed over its subgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EngineCounts {
    pub(super) polls: u64,
    pub(super) sent: u64,
    pub(super) send_batches: u64,
    pub(super) nulls: u64,
    pub(super) delivered: u64,
    pub(super) delivery_batches: u64,
}

impl EngineCounts {
    pub(super) fn of(status: &spindle::Status) -> EngineCounts {
        let mut counts = EngineCounts { polls: status.engine.polls, ..EngineCounts::default() };
        for spindle::SubgroupStatus { stats, .. } in &status.subgroups {
            counts.sent += stats.sent;
            counts.send_batches += stats.send_batches;
            counts.nulls += stats.nulls;
            counts.delivered += stats.delivered;
            counts.delivery_batches += stats.delivery_batches;
        }
        counts
    }

    pub(super) fn since(self, before: EngineCounts) -> EngineCounts {
        self.zip(before, u64::saturating_sub)
    }

    pub(super) fn plus(self, other: EngineCounts) -> EngineCounts {
        self.zip(other, u64::wrapping_add)
    }

    fn zip(self, other: EngineCounts, f: impl Fn(u64, u64) -> u64) -> EngineCounts {
        EngineCounts {
            polls: f(self.polls, other.polls),
            sent: f(self.sent, other.sent),
            send_batches: f(self.send_batches, other.send_batches),
            nulls: f(self.nulls, other.nulls),
            delivered: f(self.delivered, other.delivered),
            delivery_batches: f(self.delivery_batches, other.delivery_batches),
        }
    }
}
