//! RELIABILITY, DURABILITY, DURABILITY_SERVICE, HISTORY, RESOURCE_LIMITS and LIFESPAN: which samples
//! are delivered, kept and dropped.
use super::id::{Policy, PolicyId};
use crate::time::DdsDuration;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether samples may be lost (DDS 2.2.3.14). The order is that of offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReliabilityQosPolicyKind {
    /// Samples may be lost.
    BestEffort,
    /// All samples are delivered.
    Reliable,
}

impl fmt::Display for ReliabilityQosPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReliabilityQosPolicyKind::BestEffort => "BEST_EFFORT",
            ReliabilityQosPolicyKind::Reliable => "RELIABLE",
        })
    }
}

/// RELIABILITY (DDS 2.2.3.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReliabilityQosPolicy {
    /// Whether samples may be lost.
    pub kind: ReliabilityQosPolicyKind,
    /// The time that `write` may block.
    pub max_blocking_time: DdsDuration,
}

impl ReliabilityQosPolicy {
    /// The default of writers.
    pub const WRITER: ReliabilityQosPolicy = ReliabilityQosPolicy {
        kind: ReliabilityQosPolicyKind::Reliable,
        max_blocking_time: DdsDuration::from_millis(100),
    };
}

impl Default for ReliabilityQosPolicy {
    /// The default of topics and readers.
    fn default() -> ReliabilityQosPolicy {
        ReliabilityQosPolicy { kind: ReliabilityQosPolicyKind::BestEffort, ..ReliabilityQosPolicy::WRITER }
    }
}

impl Policy for ReliabilityQosPolicy {
    const ID: PolicyId = PolicyId::Reliability;
}

impl fmt::Display for ReliabilityQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (max_blocking_time {})", self.kind, self.max_blocking_time)
    }
}

/// Which samples a late joiner gets (DDS 2.2.3.4). The order is that of offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DurabilityQosPolicyKind {
    /// None.
    #[default]
    Volatile,
    /// Samples that live writers keep.
    TransientLocal,
    /// Samples that are kept while any participant lives.
    Transient,
    /// Samples that outlive a restart of all participants.
    Persistent,
}

impl fmt::Display for DurabilityQosPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurabilityQosPolicyKind::Volatile => "VOLATILE",
            DurabilityQosPolicyKind::TransientLocal => "TRANSIENT_LOCAL",
            DurabilityQosPolicyKind::Transient => "TRANSIENT",
            DurabilityQosPolicyKind::Persistent => "PERSISTENT",
        })
    }
}

/// DURABILITY (DDS 2.2.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DurabilityQosPolicy {
    /// Which samples a late joiner gets.
    pub kind: DurabilityQosPolicyKind,
}

impl Policy for DurabilityQosPolicy {
    const ID: PolicyId = PolicyId::Durability;
}

impl fmt::Display for DurabilityQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// How many samples of an instance are kept (DDS 2.2.3.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HistoryQosPolicyKind {
    /// The last ones, as many as the depth says. A new sample replaces the oldest one.
    KeepLast(u32),
    /// All, up to RESOURCE_LIMITS.
    KeepAll,
}

impl fmt::Display for HistoryQosPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryQosPolicyKind::KeepLast(depth) => write!(f, "KEEP_LAST {depth}"),
            HistoryQosPolicyKind::KeepAll => f.write_str("KEEP_ALL"),
        }
    }
}

/// HISTORY (DDS 2.2.3.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HistoryQosPolicy {
    /// How many samples of an instance are kept.
    pub kind: HistoryQosPolicyKind,
}

impl Default for HistoryQosPolicy {
    fn default() -> HistoryQosPolicy {
        HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepLast(1) }
    }
}

impl Policy for HistoryQosPolicy {
    const ID: PolicyId = PolicyId::History;
}

impl fmt::Display for HistoryQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// A limit of RESOURCE_LIMITS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Length {
    /// LENGTH_UNLIMITED.
    #[default]
    Unlimited,
    /// At most this many.
    Limited(u32),
}

impl Length {
    /// Returns whether one more fits when `used` exist.
    pub const fn admits(self, used: usize) -> bool {
        match self {
            Length::Unlimited => true,
            Length::Limited(limit) => used < limit as usize,
        }
    }

    /// Returns the limit; `u64::MAX` if there is none.
    pub const fn bound(self) -> u64 {
        match self {
            Length::Unlimited => u64::MAX,
            Length::Limited(limit) => limit as u64,
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Unlimited => f.write_str("unlimited"),
            Length::Limited(limit) => limit.fmt(f),
        }
    }
}

/// RESOURCE_LIMITS (DDS 2.2.3.19).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceLimitsQosPolicy {
    /// The samples of all instances.
    pub max_samples: Length,
    /// The instances.
    pub max_instances: Length,
    /// The samples of one instance.
    pub max_samples_per_instance: Length,
}

impl Policy for ResourceLimitsQosPolicy {
    const ID: PolicyId = PolicyId::ResourceLimits;
}

impl fmt::Display for ResourceLimitsQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ResourceLimitsQosPolicy { max_samples, max_instances, max_samples_per_instance } = self;
        write!(f, "max_samples {max_samples}, max_instances {max_instances}, ")?;
        write!(f, "max_samples_per_instance {max_samples_per_instance}")
    }
}

/// DURABILITY_SERVICE: which samples are kept for late joiners (DDS 2.2.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DurabilityServiceQosPolicy {
    /// How long a disposed instance without writers is kept.
    pub service_cleanup_delay: DdsDuration,
    /// How many samples of an instance are kept.
    pub history_kind: HistoryQosPolicyKind,
    /// The limits of samples that are kept.
    pub limits: ResourceLimitsQosPolicy,
}

impl Default for DurabilityServiceQosPolicy {
    fn default() -> DurabilityServiceQosPolicy {
        DurabilityServiceQosPolicy {
            service_cleanup_delay: DdsDuration::ZERO,
            history_kind: HistoryQosPolicyKind::KeepLast(1),
            limits: ResourceLimitsQosPolicy::default(),
        }
    }
}

impl Policy for DurabilityServiceQosPolicy {
    const ID: PolicyId = PolicyId::DurabilityService;
}

impl fmt::Display for DurabilityServiceQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DurabilityServiceQosPolicy { service_cleanup_delay, history_kind, limits } = self;
        write!(f, "{history_kind}, {limits}, service_cleanup_delay {service_cleanup_delay}")
    }
}

/// LIFESPAN: how long a sample is valid after its source timestamp (DDS 2.2.3.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LifespanQosPolicy {
    /// The duration.
    pub duration: DdsDuration,
}

impl Default for LifespanQosPolicy {
    fn default() -> LifespanQosPolicy {
        LifespanQosPolicy { duration: DdsDuration::INFINITE }
    }
}

impl Policy for LifespanQosPolicy {
    const ID: PolicyId = PolicyId::Lifespan;
}

impl fmt::Display for LifespanQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.duration.fmt(f)
    }
}
