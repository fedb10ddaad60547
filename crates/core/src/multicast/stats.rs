//! Counters of a running engine: plain integers, read between polls.
use core::ops::AddAssign;

/// Counters of one subgroup at this member. An engine counts since its view began; a driver adds up
/// the counters of several engines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SubgroupStats {
    /// Messages that this member announced. A message that a later view sends again counts again.
    pub sent: u64,
    /// Times that this member announced at least one message.
    pub send_batches: u64,
    /// Nulls that this member announced (rounds, not posts).
    pub nulls: u64,
    /// Times that this member announced at least one null.
    pub null_batches: u64,
    /// Times that this member's `received` rose.
    pub receive_batches: u64,
    /// Messages that were delivered here.
    pub delivered: u64,
    /// Payload bytes that were delivered here.
    pub delivered_bytes: u64,
    /// Times that at least one message was delivered.
    pub delivery_batches: u64,
}

/// Counters of an engine since its view began, or the sum of several engines' counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Polls.
    pub polls: u64,
    /// Polls that had work to do.
    pub productive_polls: u64,
    /// Posts of ring data, each counted once for any number of peers.
    pub data_posts: u64,
    /// Posts of control words, each counted once for any number of peers.
    pub control_posts: u64,
}

impl AddAssign for SubgroupStats {
    fn add_assign(&mut self, other: SubgroupStats) {
        self.sent += other.sent;
        self.send_batches += other.send_batches;
        self.nulls += other.nulls;
        self.null_batches += other.null_batches;
        self.receive_batches += other.receive_batches;
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        self.delivery_batches += other.delivery_batches;
    }
}

impl AddAssign for EngineStats {
    fn add_assign(&mut self, other: EngineStats) {
        self.polls += other.polls;
        self.productive_polls += other.productive_polls;
        self.data_posts += other.data_posts;
        self.control_posts += other.control_posts;
    }
}

/// The messages that wait in a subgroup that [delivers only durable ones](crate::Durability::LoggedBeforeDelivery).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undurable {
    /// Sequence numbers that every member has received, and that can't be delivered yet.
    pub sequence_numbers: u64,
    /// Whether the subgroup has fewer members than a message needs. If not, it waits for disks.
    pub lacks_members: bool,
}

/// The progress of a member in one subgroup, as this member knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frontier {
    /// Rounds announced (0 for a member that does not send).
    pub rounds: u64,
    /// Sequence numbers received without a gap.
    pub received: u64,
    /// Sequence numbers delivered.
    pub delivered: u64,
}
