//! CONSISTENCY: the levels of the DerechoDDS paper, and where a write and a read take place.
use super::delivery::{DurabilityQosPolicyKind, ReliabilityQosPolicyKind};
use super::id::{Policy, PolicyId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A level of consistency. Each includes the previous one, so the order is that of offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConsistencyKind {
    /// Samples are delivered as they arrive, those of one writer in its order.
    Unordered,
    /// All readers deliver the same samples in the same order.
    AtomicMulticast,
    /// The members keep the samples in memory, too.
    VolatileStorage,
    /// The members write the samples to a log, too.
    LoggedStorage,
}

impl ConsistencyKind {
    /// Derives the level of a pair of policies.
    pub const fn derive(reliability: ReliabilityQosPolicyKind, durability: DurabilityQosPolicyKind) -> ConsistencyKind {
        match (reliability, durability) {
            (ReliabilityQosPolicyKind::BestEffort, _) => ConsistencyKind::Unordered,
            (_, DurabilityQosPolicyKind::Volatile) => ConsistencyKind::AtomicMulticast,
            (_, DurabilityQosPolicyKind::TransientLocal | DurabilityQosPolicyKind::Transient) => {
                ConsistencyKind::VolatileStorage
            }
            (_, DurabilityQosPolicyKind::Persistent) => ConsistencyKind::LoggedStorage,
        }
    }
}

impl fmt::Display for ConsistencyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConsistencyKind::Unordered => "UNORDERED",
            ConsistencyKind::AtomicMulticast => "ATOMIC_MULTICAST",
            ConsistencyKind::VolatileStorage => "VOLATILE_STORAGE",
            ConsistencyKind::LoggedStorage => "LOGGED_STORAGE",
        })
    }
}

/// When a write counts as acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AckPoint {
    /// When it is in the sender's window.
    Sent,
    /// When it is delivered at all members.
    #[default]
    Delivered,
    /// When it is in the logs of all members.
    Persisted,
}

/// When a sample becomes visible to a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReadPoint {
    /// When it is delivered.
    #[default]
    Delivered,
    /// When it is in the logs of all members.
    Durable,
}

/// CONSISTENCY, a policy of topics, writers and readers. Offered levels satisfy weaker requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConsistencyQosPolicy {
    /// The level; `None` derives it from RELIABILITY and DURABILITY.
    pub kind: Option<ConsistencyKind>,
    /// When a write counts as acknowledged.
    pub ack: AckPoint,
    /// When a sample becomes visible.
    pub read: ReadPoint,
}

impl ConsistencyQosPolicy {
    /// Returns the level in force beside these policies.
    pub fn level(&self, reliability: ReliabilityQosPolicyKind, durability: DurabilityQosPolicyKind) -> ConsistencyKind {
        self.kind.unwrap_or(ConsistencyKind::derive(reliability, durability))
    }
}

impl Policy for ConsistencyQosPolicy {
    const ID: PolicyId = PolicyId::Consistency;
}

impl fmt::Display for ConsistencyQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{kind}")?,
            None => f.write_str("derived")?,
        }
        f.write_str(match self.ack {
            AckPoint::Sent => ", ack SENT",
            AckPoint::Delivered => ", ack DELIVERED",
            AckPoint::Persisted => ", ack PERSISTED",
        })?;
        f.write_str(match self.read {
            ReadPoint::Delivered => ", read DELIVERED",
            ReadPoint::Durable => ", read DURABLE",
        })
    }
}
