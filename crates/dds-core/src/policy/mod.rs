//! The policies of DDS 2.2.3, those of XTypes 7.6.3, and CONSISTENCY.
//!
//! The default of each type is the default of the specification. [`crate::qos`] has the sets of
//! policies of each kind of entity.
//!
//! Each policy has one place that honours it. A driver says which of its part it honours, and a check of a
//! set refuses the others ([`crate::qos::Supported`]).
//!
//! | policies | place |
//! |---|---|
//! | the column "RxO" of DDS 2.2.3, PARTITION, the two of XTypes | [`crate::matching`] |
//! | HISTORY, RESOURCE_LIMITS, DESTINATION_ORDER, OWNERSHIP and its strength, DEADLINE, LIFESPAN, TIME_BASED_FILTER, READER_DATA_LIFECYCLE, PRESENTATION, of a reader | [`crate::cache`] |
//! | WRITER_DATA_LIFECYCLE, LIVELINESS | the events of a writer's end and of its liveliness, [`ReaderEvent`](crate::cache::ReaderEvent) |
//! | RELIABILITY, DURABILITY, DURABILITY_SERVICE, CONSISTENCY, LATENCY_BUDGET, TRANSPORT_PRIORITY | the driver of the stream: which events a cache gets, and when. With a read point of DURABLE, it delivers an event once it is in all logs |
//! | USER_DATA, TOPIC_DATA, GROUP_DATA, ENTITY_FACTORY | the entities |
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
#[cfg(feature = "profiles")]
pub(crate) use partition::{example, fits};
pub use timing::{
    DeadlineQosPolicy, LatencyBudgetQosPolicy, LivelinessQosPolicy, LivelinessQosPolicyKind, TimeBasedFilterQosPolicy,
    TransportPriorityQosPolicy,
};
pub use types::{DataRepresentationQosPolicy, RepresentationId, TypeConsistencyEnforcementQosPolicy};
