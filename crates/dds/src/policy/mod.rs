//! The policies of DDS 2.2.3, those of XTypes 7.6.3, and CONSISTENCY.
//!
//! The default of each type is the default of the specification. [`crate::qos`] has the sets of
//! policies of each kind of entity.
mod consistency;
mod data;
mod delivery;
mod id;
mod lifecycle;
mod offered;
mod order;
mod partition;
mod timing;
mod types;

pub use consistency::{AckPoint, ConsistencyKind, ConsistencyQosPolicy, ReadPoint};
pub use data::{GroupDataQosPolicy, TopicDataQosPolicy, UserDataQosPolicy};
pub use delivery::{
    DurabilityQosPolicy, DurabilityQosPolicyKind, DurabilityServiceQosPolicy, HistoryQosPolicy, HistoryQosPolicyKind,
    Length, LifespanQosPolicy, ReliabilityQosPolicy, ReliabilityQosPolicyKind, ResourceLimitsQosPolicy,
};
pub use id::{Policy, PolicyId};
pub use lifecycle::{EntityFactoryQosPolicy, ReaderDataLifecycleQosPolicy, WriterDataLifecycleQosPolicy};
pub use offered::{IncompatiblePolicy, OfferedPolicies, RequestedPolicies, check_offered};
pub use order::{
    DestinationOrderQosPolicy, DestinationOrderQosPolicyKind, OwnershipQosPolicy, OwnershipQosPolicyKind,
    OwnershipStrengthQosPolicy, PresentationQosPolicy, PresentationQosPolicyAccessScopeKind,
};
pub use partition::{PartitionMatch, PartitionQosPolicy};
pub use timing::{
    DeadlineQosPolicy, LatencyBudgetQosPolicy, LivelinessQosPolicy, LivelinessQosPolicyKind, TimeBasedFilterQosPolicy,
    TransportPriorityQosPolicy,
};
pub use types::{DataRepresentationQosPolicy, RepresentationId, TypeConsistencyEnforcementQosPolicy};
