//! The sets themselves.
use super::check::{self, QosSet, compare};
use super::supported::{Side, Supported};
use crate::error::DdsError;
use crate::policy::*;
use serde::{Deserialize, Serialize};

/// Declares a set: each policy stands once, with its default if that is not the one of the policy. The
/// policies of `topic` are those that an endpoint may copy from its topic.
macro_rules! qos_set {
    (
        $(#[$doc:meta])*
        $name:ident ($entity:literal, $sides:expr)
        $(topic { $($shared:ident: $shared_policy:ident $(= $shared_default:expr)?,)* })?
        own { $($field:ident: $policy:ident,)* }
        $self:ident => $check:block
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($(
                #[doc = concat!("The [`", stringify!($shared_policy), "`].")]
                pub $shared: $shared_policy,
            )*)?
            $(
                #[doc = concat!("The [`", stringify!($policy), "`].")]
                pub $field: $policy,
            )*
        }

        impl Default for $name {
            fn default() -> $name {
                $name {
                    $($($shared: default!($($shared_default)?),)*)?
                    $($field: Default::default(),)*
                }
            }
        }

        impl QosSet for $name {
            const ENTITY: &'static str = $entity;

            fn check_consistent(&$self) -> Result<(), DdsError> $check

            fn check_supported(&self, supported: &Supported) -> Result<(), DdsError> {
                let (default, sides) = ($name::default(), $sides);
                $($(supported.check($entity, &sides, &self.$shared, &default.$shared)?;)*)?
                $(supported.check($entity, &sides, &self.$field, &default.$field)?;)*
                Ok(())
            }

            fn differences(&self, other: &$name) -> Vec<(PolicyId, String, String)> {
                let mut found = Vec::new();
                $($(compare(&self.$shared, &other.$shared, &mut found);)*)?
                $(compare(&self.$field, &other.$field, &mut found);)*
                found
            }
        }

        $(impl $name {
            /// Takes over the policies that the topic has, too: `copy_from_topic_qos` (DDS 2.2.2.4.1.13 and
            /// 2.2.2.5.2.12).
            pub fn copy_from_topic_qos(&mut self, topic: &TopicQos) {
                $(self.$shared = topic.$shared.clone();)*
            }
        })?
    };
}

macro_rules! default {
    () => {
        Default::default()
    };
    ($value:expr) => {
        $value
    };
}

qos_set! {
    /// The policies of the factory (DDS 2.2.2.2.2).
    DomainParticipantFactoryQos ("factory", [Side::Participant])
    own {
        entity_factory: EntityFactoryQosPolicy,
    }
    self => { Ok(()) }
}

qos_set! {
    /// The policies of a participant (DDS 2.2.2.2.1).
    DomainParticipantQos ("participant", [Side::Participant])
    own {
        user_data: UserDataQosPolicy,
        entity_factory: EntityFactoryQosPolicy,
    }
    self => { Ok(()) }
}

qos_set! {
    /// The policies of a publisher (DDS 2.2.2.4.1).
    PublisherQos ("publisher", [Side::Writer])
    own {
        presentation: PresentationQosPolicy,
        partition: PartitionQosPolicy,
        group_data: GroupDataQosPolicy,
        entity_factory: EntityFactoryQosPolicy,
    }
    self => { Ok(()) }
}

qos_set! {
    /// The policies of a subscriber (DDS 2.2.2.5.2).
    SubscriberQos ("subscriber", [Side::Reader])
    own {
        presentation: PresentationQosPolicy,
        partition: PartitionQosPolicy,
        group_data: GroupDataQosPolicy,
        entity_factory: EntityFactoryQosPolicy,
    }
    self => { Ok(()) }
}

qos_set! {
    /// The policies of a topic (DDS 2.2.2.3.2). They apply when an endpoint copies them.
    TopicQos ("topic", [Side::Writer, Side::Reader])
    own {
        topic_data: TopicDataQosPolicy,
        durability: DurabilityQosPolicy,
        durability_service: DurabilityServiceQosPolicy,
        deadline: DeadlineQosPolicy,
        latency_budget: LatencyBudgetQosPolicy,
        liveliness: LivelinessQosPolicy,
        reliability: ReliabilityQosPolicy,
        destination_order: DestinationOrderQosPolicy,
        history: HistoryQosPolicy,
        resource_limits: ResourceLimitsQosPolicy,
        transport_priority: TransportPriorityQosPolicy,
        lifespan: LifespanQosPolicy,
        ownership: OwnershipQosPolicy,
        representation: DataRepresentationQosPolicy,
        consistency: ConsistencyQosPolicy,
    }
    self => {
        check::history(self.history.kind, &self.resource_limits)?;
        check::service(&self.durability_service)?;
        check::times(&self.deadline, &self.liveliness)?;
        check::representation(&self.representation)?;
        check::consistency(&self.consistency, &self.reliability, &self.durability)
    }
}

qos_set! {
    /// The policies of a writer (DDS 2.2.2.4.2). Writers are reliable by default, topics and readers are
    /// not (DDS 2.2.3.14).
    DataWriterQos ("writer", [Side::Writer])
    topic {
        durability: DurabilityQosPolicy,
        durability_service: DurabilityServiceQosPolicy,
        deadline: DeadlineQosPolicy,
        latency_budget: LatencyBudgetQosPolicy,
        liveliness: LivelinessQosPolicy,
        reliability: ReliabilityQosPolicy = ReliabilityQosPolicy::WRITER,
        destination_order: DestinationOrderQosPolicy,
        history: HistoryQosPolicy,
        resource_limits: ResourceLimitsQosPolicy,
        transport_priority: TransportPriorityQosPolicy,
        lifespan: LifespanQosPolicy,
        ownership: OwnershipQosPolicy,
        representation: DataRepresentationQosPolicy,
        consistency: ConsistencyQosPolicy,
    }
    own {
        user_data: UserDataQosPolicy,
        ownership_strength: OwnershipStrengthQosPolicy,
        writer_data_lifecycle: WriterDataLifecycleQosPolicy,
    }
    self => {
        check::history(self.history.kind, &self.resource_limits)?;
        check::service(&self.durability_service)?;
        check::times(&self.deadline, &self.liveliness)?;
        check::representation(&self.representation)?;
        check::kept(&self.reliability, &self.durability)?;
        check::consistency(&self.consistency, &self.reliability, &self.durability)
    }
}

qos_set! {
    /// The policies of a reader (DDS 2.2.2.5.3).
    DataReaderQos ("reader", [Side::Reader])
    topic {
        durability: DurabilityQosPolicy,
        deadline: DeadlineQosPolicy,
        latency_budget: LatencyBudgetQosPolicy,
        liveliness: LivelinessQosPolicy,
        reliability: ReliabilityQosPolicy,
        destination_order: DestinationOrderQosPolicy,
        history: HistoryQosPolicy,
        resource_limits: ResourceLimitsQosPolicy,
        ownership: OwnershipQosPolicy,
        representation: DataRepresentationQosPolicy,
        consistency: ConsistencyQosPolicy,
    }
    own {
        user_data: UserDataQosPolicy,
        time_based_filter: TimeBasedFilterQosPolicy,
        reader_data_lifecycle: ReaderDataLifecycleQosPolicy,
        type_consistency: TypeConsistencyEnforcementQosPolicy,
    }
    self => {
        check::history(self.history.kind, &self.resource_limits)?;
        check::times(&self.deadline, &self.liveliness)?;
        check::separation(&self.deadline, &self.time_based_filter)?;
        check::representation(&self.representation)?;
        check::consistency(&self.consistency, &self.reliability, &self.durability)
    }
}

/// Collects what an endpoint and its parent offer or request.
macro_rules! side {
    ($side:ident of $endpoint:ident, $parent:ident) => {
        $side {
            durability: $endpoint.durability,
            presentation: $parent.presentation,
            deadline: $endpoint.deadline,
            latency_budget: $endpoint.latency_budget,
            ownership: $endpoint.ownership,
            liveliness: $endpoint.liveliness,
            reliability: $endpoint.reliability,
            destination_order: $endpoint.destination_order,
            representation: $endpoint.representation.clone(),
            consistency: $endpoint.consistency,
        }
    };
}

impl DataWriterQos {
    /// Returns the policies that the writer offers.
    pub fn offered(&self, publisher: &PublisherQos) -> OfferedPolicies {
        side!(OfferedPolicies of self, publisher)
    }

    /// Returns the level of consistency in force.
    pub fn consistency_level(&self) -> ConsistencyKind {
        self.consistency.level(self.reliability.kind, self.durability.kind)
    }
}

impl DataReaderQos {
    /// Returns the policies that the reader requests.
    pub fn requested(&self, subscriber: &SubscriberQos) -> RequestedPolicies {
        side!(RequestedPolicies of self, subscriber)
    }

    /// Returns the level of consistency in force.
    pub fn consistency_level(&self) -> ConsistencyKind {
        self.consistency.level(self.reliability.kind, self.durability.kind)
    }
}
