//! Small messages in a model of a network: the real [`Engine`](spindle_core::Engine)s run in
//! virtual time, on hosts with one NIC and one processor each. The model shows how a group scales,
//! up to 64 members, on networks that the test machine does not have.
//!
//! A [`SmallBench`] sets the number of members, the senders and the costs ([`Costs`], of RDMA and of
//! TCP). [`SmallBench::flood`] lets the senders send as fast as they can, [`SmallBench::one_in_flight`] sends
//! one message after the other. A bench has no faults and no random choices; the [simulator](crate)
//! proper covers those. It checks only one invariant, the total order, so that no figure comes from
//! engines that have failed.
//!
//! The model is simple on purpose. The polling thread also builds the messages and takes the
//! deliveries, and does one thing at a time. It reads what has arrived, builds messages, polls, and
//! hands to the NIC what is to be sent. Posts that a peer's NIC can't take yet are merged
//! ([ADR 0014](../../../docs/adr/0014-posts-melt-together.md)). A NIC sends one batch at a time and
//! receives one at a time, each for as long as its bytes take. The model has no caches, switches or
//! scheduler. So the figures serve for comparison: of numbers of members, of schedules, or of a
//! change with the state before it. They are no promise.
mod bench;
mod costs;
mod memory;
mod world;

pub use bench::{SmallBench, SmallTiming};
pub use costs::Costs;

use crate::Violation;
use world::SmallWorld;

impl SmallBench {
    /// Runs the bench: every sender sends as fast as it can.
    ///
    /// # Errors
    /// If members deliver different orders, which would be a bug.
    ///
    /// # Panics
    /// If there are no members, more than 64, or no senders, or the sizes are out of their limits.
    pub fn flood(&self) -> Result<SmallTiming, Violation> {
        SmallWorld::new(self, false).run()
    }

    /// Runs the bench with one message at a time: the first member sends a message once the last
    /// one has been delivered everywhere.
    ///
    /// # Errors
    /// As [`flood`](Self::flood).
    ///
    /// # Panics
    /// As [`flood`](Self::flood).
    pub fn one_in_flight(&self) -> Result<SmallTiming, Violation> {
        SmallWorld::new(self, true).run()
    }
}
