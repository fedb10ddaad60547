//! Words of the command line that several benchmarks share.
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::thread;

/// Bytes of a ring unless the window says otherwise: what two cores' own caches hold on most machines.
pub(super) const RING_BYTES: u64 = 1 << 20;

/// What carries messages between members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fabric {
    /// Shared memory: all members are on this host
    #[default]
    Shm,
    /// TCP streams: each member is on a host of its own, as far as it knows
    Tcp,
    /// libfabric, over its provider for any network: the same
    Ofi,
}

/// The provider of libfabric that works on any network.
pub(super) const ANY_NETWORK: &str = "tcp";

impl Fabric {
    /// The provider that carries messages, if they go through libfabric.
    pub(super) fn provider(self) -> Option<String> {
        (self == Fabric::Ofi).then(|| ANY_NETWORK.to_string())
    }
}

/// How a member's polling thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wait {
    /// It looks again and again, and never sleeps
    Polling,
    /// It looks for a while, and then sleeps
    Hybrid,
    /// It sleeps at once
    Interrupt,
}

/// Who polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Drive {
    /// The application's thread, in between sending
    Poll,
    /// A thread of the library; the application's thread waits for room
    Thread,
}

/// Where messages are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Delivery {
    /// In the handler, on the thread that polls
    Upcall,
    /// From a receiver: in poll drive on the same thread, else on one more
    Receiver,
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Senders {
    /// The first member
    One,
    /// The first half of the members
    Half,
    /// Everybody
    All,
}

impl Senders {
    /// How many of `members` that is.
    pub(super) fn of(self, members: u32) -> u32 {
        match self {
            Senders::One => 1,
            Senders::Half => members.div_ceil(2),
            Senders::All => members,
        }
    }
}

/// Members of a subgroup in a group of so many, if so many are `asked` for; all by default.
pub(super) fn span(asked: Option<u32>, members: u32) -> u32 {
    asked.map_or(members, |asked| asked.min(members))
}

/// So many ranks from `first` on, in a group of so many members, after the last of which comes the first.
pub(super) fn ranks(first: u32, span: u32, members: u32) -> Vec<u32> {
    (0..span).map(|i| (first + i) % members).collect()
}

/// Cores that this process may use.
pub(super) fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_at_least_one() {
        assert_eq!([1, 2, 3, 16].map(|members| Senders::Half.of(members)), [1, 1, 2, 8]);
    }
}
