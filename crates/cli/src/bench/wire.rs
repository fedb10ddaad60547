//! What a benchmark and its members tell each other: one JSON value a line, over a member's standard input and output.
use super::args::{Delivery, Drive, Fabric, Wait, ranks};
use super::clock::Usage;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first line that a member reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    /// The process that started it; it ends with that process.
    pub(super) parent: u32,
    pub(super) group: String,
    pub(super) runtime_dir: PathBuf,
    /// Where to listen and where the group is founded, if members are on hosts of their own.
    pub(super) network: Option<Place>,
    pub(super) members: u32,
    pub(super) rank: u32,
    pub(super) plan: Plan,
    /// The core to stay on.
    pub(super) core: Option<u32>,
}

/// A member's place in a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) listen: String,
    /// What others are told instead, if a proxy stands in front of it.
    pub(super) advertise: Option<String>,
    pub(super) seeds: Vec<String>,
    /// Whether the network is trusted without TLS: it is that of the benchmark.
    pub(super) insecure: bool,
    /// The provider of libfabric that carries messages, if they don't go over streams.
    pub(super) provider: Option<String>,
}

/// What all members of a team do alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) job: Job,
    pub(super) senders: u32,
    pub(super) subgroups: u32,
    /// Subgroups in which something is sent, from the first.
    pub(super) active: u32,
    /// Members of each subgroup: the first of the group in the active ones, others by turns in the idle ones.
    pub(super) span: u32,
    /// Bytes of a message.
    pub(super) size: u64,
    pub(super) window: u64,
    /// Messages claimed between two polls, in each subgroup.
    pub(super) burst: u64,
    pub(super) drive: Drive,
    pub(super) wait: Wait,
    pub(super) fabric: Fabric,
    pub(super) delivery: Delivery,
}

impl Plan {
    /// The members of a subgroup, of a group of so many.
    pub(super) fn ranks(&self, subgroup: u32, members: u32) -> Vec<u32> {
        ranks(if subgroup < self.active { 0 } else { subgroup }, self.span, members)
    }
}

/// What a member does in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Job {
    /// Sends as much as it can.
    Stream,
    /// Takes turns at sending one message, spinning in between.
    OneInFlight,
    /// Takes turns at sending one message every so often.
    Pulse {
        /// From one message to the next.
        every_us: u64,
    },
}

/// What a member is told after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Work from now to `end_ns`, and count from `begin_ns` on.
    Run {
        /// By the machine's monotonic clock.
        begin_ns: u64,
        /// As that.
        end_ns: u64,
    },
    /// Leave in agreement with the others.
    Finish,
}

/// What a member answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It has joined.
    Ready,
    /// A slice is over.
    Ran(Box<Ran>),
    /// It has left.
    Finished(Counts),
    /// It gives up.
    Failed(String),
}

/// A slice at one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ran {
    /// Messages delivered here between begin and end.
    pub(super) delivered: u64,
    /// The time that this took.
    pub(super) elapsed_ns: u64,
    /// What happened in the whole slice, before begin too.
    pub(super) counts: Counts,
    /// What the whole slice cost.
    pub(super) usage: Usage,
    /// Waits for room that were in vain.
    pub(super) stalls: u64,
    /// Latencies of what others sent after begin: (ns, how many).
    pub(super) latencies: Vec<(u64, u64)>,
    /// The same of what this member sent: the time until it knew that everybody has it.
    pub(super) own_latencies: Vec<(u64, u64)>,
    /// CPU time of this process from the first moment of the slice to the last, and how long that was.
    pub(super) busy_ns: u64,
    /// See above.
    pub(super) took_ns: u64,
}

/// Counts of a member's engine, its subgroups together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) polls: u64,
    pub(super) sent: u64,
    pub(super) send_batches: u64,
    pub(super) nulls: u64,
    pub(super) delivered: u64,
    pub(super) delivery_batches: u64,
}

impl Counts {
    pub(super) fn of(status: &spindle::Status) -> Counts {
        let mut counts = Counts { polls: status.engine.polls, ..Counts::default() };
        for spindle::SubgroupStatus { stats, .. } in &status.subgroups {
            counts.sent += stats.sent;
            counts.send_batches += stats.send_batches;
            counts.nulls += stats.nulls;
            counts.delivered += stats.delivered;
            counts.delivery_batches += stats.delivery_batches;
        }
        counts
    }

    pub(super) fn since(self, before: Counts) -> Counts {
        self.zip(before, u64::saturating_sub)
    }

    pub(super) fn plus(self, other: Counts) -> Counts {
        self.zip(other, u64::wrapping_add)
    }

    fn zip(self, other: Counts, f: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            polls: f(self.polls, other.polls),
            sent: f(self.sent, other.sent),
            send_batches: f(self.send_batches, other.send_batches),
            nulls: f(self.nulls, other.nulls),
            delivered: f(self.delivered, other.delivered),
            delivery_batches: f(self.delivery_batches, other.delivery_batches),
        }
    }
}
