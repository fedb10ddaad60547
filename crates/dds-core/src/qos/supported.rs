//! The policies that a driver honours.
use crate::error::DdsError;
use crate::policy::*;
use std::collections::BTreeSet;

/// The policies that a driver honours: the network below this crate, and the entities above it.
///
/// [`QosSet::check`](super::QosSet::check) refuses a value that is not the default if its policy is not
/// among them. So no policy is accepted and ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supported {
    /// The policies of participants and their factory.
    pub participant: BTreeSet<PolicyId>,
    /// The policies of writers and publishers.
    pub writer: BTreeSet<PolicyId>,
    /// The policies of readers and subscribers.
    pub reader: BTreeSet<PolicyId>,
    /// The strongest kind of DURABILITY.
    pub durability: DurabilityQosPolicyKind,
    /// The widest access scope of PRESENTATION.
    pub access_scope: PresentationQosPolicyAccessScopeKind,
    /// The strongest kind of LIVELINESS.
    pub liveliness: LivelinessQosPolicyKind,
    /// The strongest level of CONSISTENCY.
    pub consistency: ConsistencyKind,
}

/// The entities whose policies a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Participant,
    Writer,
    Reader,
}

/// The policies that this crate honours by itself, given the events of a stream, and hints.
const READER: [PolicyId; 12] = [
    PolicyId::History,
    PolicyId::ResourceLimits,
    PolicyId::DestinationOrder,
    PolicyId::Ownership,
    PolicyId::Deadline,
    PolicyId::TimeBasedFilter,
    PolicyId::ReaderDataLifecycle,
    PolicyId::Reliability,
    PolicyId::Partition,
    PolicyId::DataRepresentation,
    PolicyId::TypeConsistencyEnforcement,
    PolicyId::LatencyBudget,
];

/// The same for writers: the matching looks at them, and the events of a stream have them.
const WRITER: [PolicyId; 7] = [
    PolicyId::DestinationOrder,
    PolicyId::Ownership,
    PolicyId::OwnershipStrength,
    PolicyId::Partition,
    PolicyId::DataRepresentation,
    PolicyId::LatencyBudget,
    PolicyId::TransportPriority,
];

impl Supported {
    /// Returns the policies that this crate honours with the least driver: one that delivers samples and
    /// matches in one order, with strengths. The rest has its default.
    pub fn minimum() -> Supported {
        Supported {
            participant: BTreeSet::new(),
            writer: BTreeSet::from(WRITER),
            reader: BTreeSet::from(READER),
            durability: DurabilityQosPolicyKind::Volatile,
            access_scope: PresentationQosPolicyAccessScopeKind::Instance,
            liveliness: LivelinessQosPolicyKind::Automatic,
            consistency: ConsistencyKind::AtomicMulticast,
        }
    }

    /// Returns all policies, for a driver that honours each.
    pub fn all() -> Supported {
        let all = BTreeSet::from(PolicyId::ALL);
        Supported {
            participant: all.clone(),
            writer: all.clone(),
            reader: all,
            durability: DurabilityQosPolicyKind::Persistent,
            access_scope: PresentationQosPolicyAccessScopeKind::Group,
            liveliness: LivelinessQosPolicyKind::ManualByTopic,
            consistency: ConsistencyKind::LoggedStorage,
        }
    }

    /// Refuses a value that the driver does not honour.
    pub(super) fn check<T: Graded>(&self, entity: &str, sides: &[Side], own: &T, default: &T) -> Result<(), DdsError> {
        if own == default {
            return Ok(());
        }
        let of = |side: &Side| match side {
            Side::Participant => &self.participant,
            Side::Writer => &self.writer,
            Side::Reader => &self.reader,
        };
        let refuse = |remedy| Err(DdsError::Unsupported { what: format!("{} {own} of a {entity}", T::ID), remedy });
        if !sides.iter().any(|side| of(side).contains(&T::ID)) {
            return refuse("use its default");
        }
        own.beyond(self).map_or(Ok(()), refuse)
    }
}

/// A policy, some of whose values may be stronger than the driver supports.
pub(super) trait Graded: Policy {
    /// Returns the remedy if the value is too strong.
    fn beyond(&self, _supported: &Supported) -> Option<&'static str> {
        None
    }
}

impl Graded for DurabilityQosPolicy {
    fn beyond(&self, supported: &Supported) -> Option<&'static str> {
        (self.kind > supported.durability).then_some("use a weaker kind, which is kept for fewer joiners")
    }
}

impl Graded for PresentationQosPolicy {
    fn beyond(&self, supported: &Supported) -> Option<&'static str> {
        (self.access_scope > supported.access_scope).then_some("use a narrower access scope")
    }
}

impl Graded for LivelinessQosPolicy {
    fn beyond(&self, supported: &Supported) -> Option<&'static str> {
        (self.kind > supported.liveliness).then_some("use a weaker kind")
    }
}

impl Graded for ConsistencyQosPolicy {
    fn beyond(&self, supported: &Supported) -> Option<&'static str> {
        (self.kind > Some(supported.consistency)).then_some("use a weaker level, or derive it")
    }
}

macro_rules! ungraded {
    ($($policy:ident),*) => {
        $(impl Graded for $policy {})*
    };
}

ungraded! {
    UserDataQosPolicy, TopicDataQosPolicy, GroupDataQosPolicy, DurabilityServiceQosPolicy, DeadlineQosPolicy,
    LatencyBudgetQosPolicy, OwnershipQosPolicy, OwnershipStrengthQosPolicy, TimeBasedFilterQosPolicy,
    PartitionQosPolicy, ReliabilityQosPolicy, TransportPriorityQosPolicy, LifespanQosPolicy,
    DestinationOrderQosPolicy, HistoryQosPolicy, ResourceLimitsQosPolicy, EntityFactoryQosPolicy,
    WriterDataLifecycleQosPolicy, ReaderDataLifecycleQosPolicy, DataRepresentationQosPolicy,
    TypeConsistencyEnforcementQosPolicy
}
