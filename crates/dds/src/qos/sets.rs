//! The sets themselves.
use super::check::{self, QosSet, compare};
use crate::error::DdsError;
use crate::policy::*;

macro_rules! qos_set {
    ($(#[$doc:meta])* $name:ident ($entity:literal) { $($field:ident: $policy:ident,)* } $self:ident => $check:block) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = concat!("The [`", stringify!($policy), "`].")] pub $field: $policy,)*
        }

        impl QosSet for $name {
            const ENTITY: &'static str = $entity;

            fn check(&$self) -> Result<(), DdsError> $check

            fn differences(&self, other: &$name) -> Vec<(PolicyId, String, String)> {
                let mut found = Vec::new();
                $(compare(&self.$field, &other.$field, &mut found);)*
                found
            }
        }
    };
}

macro_rules! defaults {
    ($name:ident { $($field:ident $(= $value:expr)?),* }) => {
        impl Default for $name {
            fn default() -> $name {
                $name { $($field: default!($($value)?)),* }
            }
        }
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
    DomainParticipantFactoryQos ("factory") { entity_factory: EntityFactoryQosPolicy, } self => { Ok(()) }
}
defaults!(DomainParticipantFactoryQos { entity_factory });

qos_set! {
    /// The policies of a participant (DDS 2.2.2.2.1).
    DomainParticipantQos ("participant") {
        user_data: UserDataQosPolicy,
        entity_factory: EntityFactoryQosPolicy,
    } self => { Ok(()) }
}
defaults!(DomainParticipantQos { user_data, entity_factory });

qos_set! {
    /// The policies of a publisher (DDS 2.2.2.4.1).
    PublisherQos ("publisher") {
        presentation: PresentationQosPolicy,
        partition: PartitionQosPolicy,
        group_data: GroupDataQosPolicy,
        entity_factory: EntityFactoryQosPolicy,
    } self => { Ok(()) }
}
defaults!(PublisherQos { presentation, partition, group_data, entity_factory });

qos_set! {
    /// The policies of a subscriber (DDS 2.2.2.5.2).
    SubscriberQos ("subscriber") {
        presentation: PresentationQosPolicy,
        partition: PartitionQosPolicy,
        group_data: GroupDataQosPolicy,
        entity_factory: EntityFactoryQosPolicy,
    } self => { Ok(()) }
}
defaults!(SubscriberQos { presentation, partition, group_data, entity_factory });

qos_set! {
    /// The policies of a topic (DDS 2.2.2.3.2).
    TopicQos ("topic") {
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
    } self => {
        check::history(self.history.kind, &self.resource_limits)?;
        check::service(&self.durability_service)?;
        check::times(&self.deadline, &self.liveliness)?;
        check::representation(&self.representation)?;
        check::consistency(&self.consistency, &self.reliability, &self.durability)
    }
}
defaults!(TopicQos {
    topic_data,
    durability,
    durability_service,
    deadline,
    latency_budget,
    liveliness,
    reliability,
    destination_order,
    history,
    resource_limits,
    transport_priority,
    lifespan,
    ownership,
    representation,
    consistency
});

qos_set! {
    /// The policies of a writer (DDS 2.2.2.4.2).
    DataWriterQos ("writer") {
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
        user_data: UserDataQosPolicy,
        ownership: OwnershipQosPolicy,
        ownership_strength: OwnershipStrengthQosPolicy,
        writer_data_lifecycle: WriterDataLifecycleQosPolicy,
        representation: DataRepresentationQosPolicy,
        consistency: ConsistencyQosPolicy,
    } self => {
        check::history(self.history.kind, &self.resource_limits)?;
        check::service(&self.durability_service)?;
        check::times(&self.deadline, &self.liveliness)?;
        check::representation(&self.representation)?;
        check::kept(&self.reliability, &self.durability)?;
        check::consistency(&self.consistency, &self.reliability, &self.durability)
    }
}

// Writers are reliable by default, topics and readers are not (DDS 2.2.3.14).
defaults!(DataWriterQos {
    durability, durability_service, deadline, latency_budget, liveliness, reliability = ReliabilityQosPolicy::WRITER,
    destination_order, history, resource_limits, transport_priority, lifespan, user_data, ownership,
    ownership_strength, writer_data_lifecycle, representation, consistency
});

qos_set! {
    /// The policies of a reader (DDS 2.2.2.5.3).
    DataReaderQos ("reader") {
        durability: DurabilityQosPolicy,
        deadline: DeadlineQosPolicy,
        latency_budget: LatencyBudgetQosPolicy,
        liveliness: LivelinessQosPolicy,
        reliability: ReliabilityQosPolicy,
        destination_order: DestinationOrderQosPolicy,
        history: HistoryQosPolicy,
        resource_limits: ResourceLimitsQosPolicy,
        user_data: UserDataQosPolicy,
        ownership: OwnershipQosPolicy,
        time_based_filter: TimeBasedFilterQosPolicy,
        reader_data_lifecycle: ReaderDataLifecycleQosPolicy,
        representation: DataRepresentationQosPolicy,
        type_consistency: TypeConsistencyEnforcementQosPolicy,
        consistency: ConsistencyQosPolicy,
    } self => {
        check::history(self.history.kind, &self.resource_limits)?;
        check::times(&self.deadline, &self.liveliness)?;
        check::separation(&self.deadline, &self.time_based_filter)?;
        check::representation(&self.representation)?;
        check::consistency(&self.consistency, &self.reliability, &self.durability)
    }
}
defaults!(DataReaderQos {
    durability,
    deadline,
    latency_budget,
    liveliness,
    reliability,
    destination_order,
    history,
    resource_limits,
    user_data,
    ownership,
    time_based_filter,
    reader_data_lifecycle,
    representation,
    type_consistency,
    consistency
});

/// Takes over policies of the topic.
macro_rules! copy_from_topic {
    ($of:ident from $topic:ident: $($field:ident),*) => {
        $($of.$field = $topic.$field.clone();)*
    };
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
    /// Takes over the policies that the topic has, too: `copy_from_topic_qos` (DDS 2.2.2.4.1.13).
    pub fn copy_from_topic_qos(&mut self, topic: &TopicQos) {
        copy_from_topic!(self from topic:
            durability, durability_service, deadline, latency_budget, liveliness, reliability, destination_order,
            history, resource_limits, transport_priority, lifespan, ownership, representation, consistency);
    }

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
    /// Takes over the policies that the topic has, too: `copy_from_topic_qos` (DDS 2.2.2.5.2.12).
    pub fn copy_from_topic_qos(&mut self, topic: &TopicQos) {
        copy_from_topic!(self from topic:
            durability, deadline, latency_budget, liveliness, reliability, destination_order, history,
            resource_limits, ownership, representation, consistency);
    }

    /// Returns the policies that the reader requests.
    pub fn requested(&self, subscriber: &SubscriberQos) -> RequestedPolicies {
        side!(RequestedPolicies of self, subscriber)
    }

    /// Returns the level of consistency in force.
    pub fn consistency_level(&self) -> ConsistencyKind {
        self.consistency.level(self.reliability.kind, self.durability.kind)
    }
}
