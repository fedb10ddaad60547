//! Policies that a writer offers and a reader requests (DDS 2.2.3, the column "RxO").
use super::consistency::ConsistencyQosPolicy;
use super::delivery::{DurabilityQosPolicy, ReliabilityQosPolicy};
use super::id::{Policy, PolicyId};
use super::order::{DestinationOrderQosPolicy, OwnershipQosPolicy, PresentationQosPolicy};
use super::timing::{DeadlineQosPolicy, LatencyBudgetQosPolicy, LivelinessQosPolicy};
use super::types::DataRepresentationQosPolicy;
use std::fmt;

macro_rules! sides {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            /// DURABILITY.
            pub durability: DurabilityQosPolicy,
            /// PRESENTATION of the publisher or the subscriber.
            pub presentation: PresentationQosPolicy,
            /// DEADLINE.
            pub deadline: DeadlineQosPolicy,
            /// LATENCY_BUDGET.
            pub latency_budget: LatencyBudgetQosPolicy,
            /// OWNERSHIP.
            pub ownership: OwnershipQosPolicy,
            /// LIVELINESS.
            pub liveliness: LivelinessQosPolicy,
            /// RELIABILITY.
            pub reliability: ReliabilityQosPolicy,
            /// DESTINATION_ORDER.
            pub destination_order: DestinationOrderQosPolicy,
            /// DATA_REPRESENTATION.
            pub representation: DataRepresentationQosPolicy,
            /// CONSISTENCY.
            pub consistency: ConsistencyQosPolicy,
        }
    )*};
}

sides! {
    /// The policies that a writer offers.
    OfferedPolicies,
    /// The policies that a reader requests.
    RequestedPolicies
}

/// A policy by which a writer offers less than a reader requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IncompatiblePolicy {
    /// The policy.
    pub policy: PolicyId,
    /// The writer's value.
    pub offered: String,
    /// The reader's value.
    pub requested: String,
    /// The rule that is broken.
    pub rule: &'static str,
}

impl fmt::Display for IncompatiblePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IncompatiblePolicy { policy, offered, requested, rule } = self;
        write!(f, "{policy}: the writer offers {offered}, the reader requests {requested}; {rule}")
    }
}

/// Returns each policy by which the writer offers less than the reader requests.
pub fn check_offered(offered: &OfferedPolicies, requested: &RequestedPolicies) -> Vec<IncompatiblePolicy> {
    let mut found = Found(Vec::new());
    let (own, other) = (offered, requested);
    found.unless(
        own.durability >= other.durability,
        (&own.durability, &other.durability),
        "the offered kind must be at least the requested one",
    );
    found.unless(
        presents(&own.presentation, &other.presentation),
        (&own.presentation, &other.presentation),
        "the offered scope must be at least the requested one, and requested access must be offered",
    );
    found.unless(
        own.deadline.period <= other.deadline.period,
        (&own.deadline, &other.deadline),
        "the offered period must be at most the requested one",
    );
    found.unless(
        own.latency_budget.duration <= other.latency_budget.duration,
        (&own.latency_budget, &other.latency_budget),
        "the offered duration must be at most the requested one",
    );
    found.unless(own.ownership == other.ownership, (&own.ownership, &other.ownership), "both kinds must be equal");
    found.unless(
        own.liveliness.kind >= other.liveliness.kind
            && own.liveliness.lease_duration <= other.liveliness.lease_duration,
        (&own.liveliness, &other.liveliness),
        "the offered kind must be at least, and the offered lease at most the requested one",
    );
    found.unless(
        own.reliability.kind >= other.reliability.kind,
        (&own.reliability, &other.reliability),
        "the offered kind must be at least the requested one",
    );
    found.unless(
        own.destination_order.kind >= other.destination_order.kind,
        (&own.destination_order, &other.destination_order),
        "the offered kind must be at least the requested one",
    );
    found.unless(
        other.representation.list().contains(&own.representation.list()[0]),
        (&own.representation, &other.representation),
        "the first representation of the writer must be among those of the reader",
    );
    found.consistency(own, other);
    found.0
}

/// Returns whether a publisher presents samples as a subscriber requests (DDS 2.2.3.6).
fn presents(offered: &PresentationQosPolicy, requested: &PresentationQosPolicy) -> bool {
    offered.access_scope >= requested.access_scope
        && offered.coherent_access >= requested.coherent_access
        && offered.ordered_access >= requested.ordered_access
}

struct Found(Vec<IncompatiblePolicy>);

impl Found {
    fn unless<T: Policy>(&mut self, holds: bool, (offered, requested): (&T, &T), rule: &'static str) {
        if !holds {
            let (offered, requested) = (offered.to_string(), requested.to_string());
            self.0.push(IncompatiblePolicy { policy: T::ID, offered, requested, rule });
        }
    }

    /// Compares the levels. If both are derived, the policies that they derive from say it already.
    fn consistency(&mut self, offered: &OfferedPolicies, requested: &RequestedPolicies) {
        let own = offered.consistency.level(offered.reliability.kind, offered.durability.kind);
        let other = requested.consistency.level(requested.reliability.kind, requested.durability.kind);
        let derived = offered.consistency.kind.is_none() && requested.consistency.kind.is_none();
        if own < other && !derived {
            self.0.push(IncompatiblePolicy {
                policy: PolicyId::Consistency,
                offered: own.to_string(),
                requested: other.to_string(),
                rule: "the offered level must be at least the requested one",
            });
        }
    }
}
