//! Command-line values that several benchmarks share.
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::thread;

/// Default size of a ring in bytes, unless the window gives another. It fits the private caches of
/// two cores on most machines.
pub(super) const RING_BYTES: u64 = 1 << 20;

/// The transport between members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FabricArg {
    /// Shared memory: all members are on this host
    #[default]
    Shm,
    /// TCP streams: each member believes that it is on a host of its own
    Tcp,
    /// libfabric, over its provider for any network: members are as for tcp
    Ofi,
}

/// The libfabric provider that works on any network.
pub(super) const ANY_NETWORK: &str = "tcp";

impl FabricArg {
    /// Returns the provider that carries messages, if they go through libfabric.
    pub(super) fn provider(self) -> Option<String> {
        (self == FabricArg::Ofi).then(|| ANY_NETWORK.to_string())
    }
}

/// How a member's polling thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WaitArg {
    /// The thread polls all the time and never sleeps
    Polling,
    /// The thread polls for a while, and then sleeps
    Hybrid,
    /// The thread sleeps at once
    Interrupt,
}

/// The thread that polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Drive {
    /// The application's thread, between sends
    Poll,
    /// A thread of the library; the application's thread waits for room
    Thread,
}

/// The place where messages are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeliveryArg {
    /// In the handler, on the thread that polls
    Upcall,
    /// From a receiver: in poll drive on the same thread, else on one more
    Receiver,
}

/// The members that send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SendersArg {
    /// The first member
    One,
    /// The first half of the members
    Half,
    /// All members
    All,
}

impl SendersArg {
    /// Returns how many of `members` send.
    pub(super) fn of(self, members: u32) -> u32 {
        match self {
            SendersArg::One => 1,
            SendersArg::Half => members.div_ceil(2),
            SendersArg::All => members,
        }
    }
}

/// Returns the number of members of a subgroup in a group of `members`: `asked`, or all by default.
pub(super) fn span(asked: Option<u32>, members: u32) -> u32 {
    asked.map_or(members, |asked| asked.min(members))
}

/// Returns `span` consecutive ranks from `first`, in a group of `members`; rank 0 follows the last
/// one.
pub(super) fn ranks(first: u32, span: u32, members: u32) -> Vec<u32> {
    (0..span).map(|i| (first + i) % members).collect()
}

/// Returns the number of cores that this process may use.
pub(super) fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_at_least_one() {
        assert_eq!([1, 2, 3, 16].map(|members| SendersArg::Half.of(members)), [1, 1, 2, 8]);
    }
}
