//! The identifiers of policies.
use std::fmt;

/// A policy (DDS 2.2.3; the numbers are those of the platform-specific model, `QosPolicyId_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum PolicyId {
    /// USER_DATA.
    UserData = 1,
    /// DURABILITY.
    Durability = 2,
    /// PRESENTATION.
    Presentation = 3,
    /// DEADLINE.
    Deadline = 4,
    /// LATENCY_BUDGET.
    LatencyBudget = 5,
    /// OWNERSHIP.
    Ownership = 6,
    /// OWNERSHIP_STRENGTH.
    OwnershipStrength = 7,
    /// LIVELINESS.
    Liveliness = 8,
    /// TIME_BASED_FILTER.
    TimeBasedFilter = 9,
    /// PARTITION.
    Partition = 10,
    /// RELIABILITY.
    Reliability = 11,
    /// DESTINATION_ORDER.
    DestinationOrder = 12,
    /// HISTORY.
    History = 13,
    /// RESOURCE_LIMITS.
    ResourceLimits = 14,
    /// ENTITY_FACTORY.
    EntityFactory = 15,
    /// WRITER_DATA_LIFECYCLE.
    WriterDataLifecycle = 16,
    /// READER_DATA_LIFECYCLE.
    ReaderDataLifecycle = 17,
    /// TOPIC_DATA.
    TopicData = 18,
    /// GROUP_DATA.
    GroupData = 19,
    /// TRANSPORT_PRIORITY.
    TransportPriority = 20,
    /// LIFESPAN.
    Lifespan = 21,
    /// DURABILITY_SERVICE.
    DurabilityService = 22,
    /// DATA_REPRESENTATION (XTypes 7.6.3.1).
    DataRepresentation = 23,
    /// TYPE_CONSISTENCY_ENFORCEMENT (XTypes 7.6.3.7).
    TypeConsistencyEnforcement = 24,
    /// CONSISTENCY, a policy of Spindle. Its number is outside of the range of the specifications.
    Consistency = 0x5350_0001,
}

impl PolicyId {
    /// All policies.
    pub const ALL: [PolicyId; 25] = [
        PolicyId::UserData,
        PolicyId::Durability,
        PolicyId::Presentation,
        PolicyId::Deadline,
        PolicyId::LatencyBudget,
        PolicyId::Ownership,
        PolicyId::OwnershipStrength,
        PolicyId::Liveliness,
        PolicyId::TimeBasedFilter,
        PolicyId::Partition,
        PolicyId::Reliability,
        PolicyId::DestinationOrder,
        PolicyId::History,
        PolicyId::ResourceLimits,
        PolicyId::EntityFactory,
        PolicyId::WriterDataLifecycle,
        PolicyId::ReaderDataLifecycle,
        PolicyId::TopicData,
        PolicyId::GroupData,
        PolicyId::TransportPriority,
        PolicyId::Lifespan,
        PolicyId::DurabilityService,
        PolicyId::DataRepresentation,
        PolicyId::TypeConsistencyEnforcement,
        PolicyId::Consistency,
    ];

    /// Returns the name, as the specification writes it.
    pub const fn name(self) -> &'static str {
        match self {
            PolicyId::UserData => "USER_DATA",
            PolicyId::Durability => "DURABILITY",
            PolicyId::Presentation => "PRESENTATION",
            PolicyId::Deadline => "DEADLINE",
            PolicyId::LatencyBudget => "LATENCY_BUDGET",
            PolicyId::Ownership => "OWNERSHIP",
            PolicyId::OwnershipStrength => "OWNERSHIP_STRENGTH",
            PolicyId::Liveliness => "LIVELINESS",
            PolicyId::TimeBasedFilter => "TIME_BASED_FILTER",
            PolicyId::Partition => "PARTITION",
            PolicyId::Reliability => "RELIABILITY",
            PolicyId::DestinationOrder => "DESTINATION_ORDER",
            PolicyId::History => "HISTORY",
            PolicyId::ResourceLimits => "RESOURCE_LIMITS",
            PolicyId::EntityFactory => "ENTITY_FACTORY",
            PolicyId::WriterDataLifecycle => "WRITER_DATA_LIFECYCLE",
            PolicyId::ReaderDataLifecycle => "READER_DATA_LIFECYCLE",
            PolicyId::TopicData => "TOPIC_DATA",
            PolicyId::GroupData => "GROUP_DATA",
            PolicyId::TransportPriority => "TRANSPORT_PRIORITY",
            PolicyId::Lifespan => "LIFESPAN",
            PolicyId::DurabilityService => "DURABILITY_SERVICE",
            PolicyId::DataRepresentation => "DATA_REPRESENTATION",
            PolicyId::TypeConsistencyEnforcement => "TYPE_CONSISTENCY_ENFORCEMENT",
            PolicyId::Consistency => "CONSISTENCY",
        }
    }

    /// Returns whether the policy may change after its entity is enabled (the column "Changeable" of
    /// the table in DDS 2.2.3).
    pub const fn is_changeable(self) -> bool {
        matches!(
            self,
            PolicyId::UserData
                | PolicyId::TopicData
                | PolicyId::GroupData
                | PolicyId::Deadline
                | PolicyId::LatencyBudget
                | PolicyId::OwnershipStrength
                | PolicyId::TimeBasedFilter
                | PolicyId::Partition
                | PolicyId::TransportPriority
                | PolicyId::Lifespan
                | PolicyId::EntityFactory
                | PolicyId::WriterDataLifecycle
                | PolicyId::ReaderDataLifecycle
        )
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of a policy. It prints as the reasons of errors show it.
pub trait Policy: Clone + PartialEq + fmt::Display {
    /// The policy.
    const ID: PolicyId;
}
