//! DESTINATION_ORDER, PRESENTATION, OWNERSHIP and OWNERSHIP_STRENGTH: which order readers see, and
//! whose samples.
use super::id::{Policy, PolicyId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The criterion that orders the samples of an instance (DDS 2.2.3.17). The order is that of offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DestinationOrderQosPolicyKind {
    /// Reception, which is the same at all readers of an order domain.
    #[default]
    ByReceptionTimestamp,
    /// The source timestamp, and for equal ones the identity of the writer.
    BySourceTimestamp,
}

impl fmt::Display for DestinationOrderQosPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DestinationOrderQosPolicyKind::ByReceptionTimestamp => "BY_RECEPTION_TIMESTAMP",
            DestinationOrderQosPolicyKind::BySourceTimestamp => "BY_SOURCE_TIMESTAMP",
        })
    }
}

/// DESTINATION_ORDER (DDS 2.2.3.17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DestinationOrderQosPolicy {
    /// The criterion that orders the samples of an instance.
    pub kind: DestinationOrderQosPolicyKind,
}

impl Policy for DestinationOrderQosPolicy {
    const ID: PolicyId = PolicyId::DestinationOrder;
}

impl fmt::Display for DestinationOrderQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// The extent of ordered and coherent access (DDS 2.2.3.6). The order is that of offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PresentationQosPolicyAccessScopeKind {
    /// One instance.
    #[default]
    Instance,
    /// All instances of a writer.
    Topic,
    /// All writers of a publisher.
    Group,
}

impl fmt::Display for PresentationQosPolicyAccessScopeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PresentationQosPolicyAccessScopeKind::Instance => "INSTANCE",
            PresentationQosPolicyAccessScopeKind::Topic => "TOPIC",
            PresentationQosPolicyAccessScopeKind::Group => "GROUP",
        })
    }
}

/// PRESENTATION (DDS 2.2.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PresentationQosPolicy {
    /// The extent of the two others.
    pub access_scope: PresentationQosPolicyAccessScopeKind,
    /// Whether coherent sets are seen as a whole.
    pub coherent_access: bool,
    /// Whether changes are seen in their order.
    pub ordered_access: bool,
}

impl Policy for PresentationQosPolicy {
    const ID: PolicyId = PolicyId::Presentation;
}

impl fmt::Display for PresentationQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, coherent_access {}, ", self.access_scope, self.coherent_access)?;
        write!(f, "ordered_access {}", self.ordered_access)
    }
}

/// Whether one writer at a time may update an instance (DDS 2.2.3.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OwnershipQosPolicyKind {
    /// All writers.
    #[default]
    Shared,
    /// The live writer with the largest strength, of equal ones that with the smallest identity.
    Exclusive,
}

impl fmt::Display for OwnershipQosPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnershipQosPolicyKind::Shared => "SHARED",
            OwnershipQosPolicyKind::Exclusive => "EXCLUSIVE",
        })
    }
}

/// OWNERSHIP (DDS 2.2.3.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnershipQosPolicy {
    /// Whether one writer at a time may update an instance.
    pub kind: OwnershipQosPolicyKind,
}

impl Policy for OwnershipQosPolicy {
    const ID: PolicyId = PolicyId::Ownership;
}

impl fmt::Display for OwnershipQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// OWNERSHIP_STRENGTH (DDS 2.2.3.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnershipStrengthQosPolicy {
    /// The strength. The largest wins.
    pub value: i32,
}

impl Policy for OwnershipStrengthQosPolicy {
    const ID: PolicyId = PolicyId::OwnershipStrength;
}

impl fmt::Display for OwnershipStrengthQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
