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
    ($name:ident { $($field:ident),* }) => {
        impl Default for $name {
            fn default() -> $name {
                $name { $($field: Default::default()),* }
            }
        }
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

impl Default for DataWriterQos {
    /// Writers are reliable by default, topics and readers are not (DDS 2.2.3.14).
    fn default() -> DataWriterQos {
        DataWriterQos {
            durability: Default::default(),
            durability_service: Default::default(),
            deadline: Default::default(),
            latency_budget: Default::default(),
            liveliness: Default::default(),
            reliability: ReliabilityQosPolicy::WRITER,
            destination_order: Default::default(),
            history: Default::default(),
            resource_limits: Default::default(),
            transport_priority: Default::default(),
            lifespan: Default::default(),
            user_data: Default::default(),
            ownership: Default::default(),
            ownership_strength: Default::default(),
            writer_data_lifecycle: Default::default(),
            representation: Default::default(),
            consistency: Default::default(),
        }
    }
}

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

impl DataWriterQos {
    /// Takes over the policies that the topic has, too: `copy_from_topic_qos` (DDS 2.2.2.4.1.13).
    pub fn copy_from_topic_qos(&mut self, topic: &TopicQos) {
        *self = DataWriterQos {
            durability: topic.durability,
            durability_service: topic.durability_service,
            deadline: topic.deadline,
            latency_budget: topic.latency_budget,
            liveliness: topic.liveliness,
            reliability: topic.reliability,
            destination_order: topic.destination_order,
            history: topic.history,
            resource_limits: topic.resource_limits,
            transport_priority: topic.transport_priority,
            lifespan: topic.lifespan,
            user_data: std::mem::take(&mut self.user_data),
            ownership: topic.ownership,
            ownership_strength: self.ownership_strength,
            writer_data_lifecycle: self.writer_data_lifecycle,
            representation: topic.representation.clone(),
            consistency: topic.consistency,
        };
    }

    /// Returns the policies that the writer offers.
    pub fn offered(&self, publisher: &PublisherQos) -> OfferedPolicies {
        OfferedPolicies {
            durability: self.durability,
            presentation: publisher.presentation,
            deadline: self.deadline,
            latency_budget: self.latency_budget,
            ownership: self.ownership,
            liveliness: self.liveliness,
            reliability: self.reliability,
            destination_order: self.destination_order,
            representation: self.representation.clone(),
            consistency: self.consistency,
        }
    }

    /// Returns the level of consistency in force.
    pub fn consistency_level(&self) -> ConsistencyKind {
        self.consistency.level(self.reliability.kind, self.durability.kind)
    }
}

impl DataReaderQos {
    /// Takes over the policies that the topic has, too: `copy_from_topic_qos` (DDS 2.2.2.5.2.12).
    pub fn copy_from_topic_qos(&mut self, topic: &TopicQos) {
        *self = DataReaderQos {
            durability: topic.durability,
            deadline: topic.deadline,
            latency_budget: topic.latency_budget,
            liveliness: topic.liveliness,
            reliability: topic.reliability,
            destination_order: topic.destination_order,
            history: topic.history,
            resource_limits: topic.resource_limits,
            user_data: std::mem::take(&mut self.user_data),
            ownership: topic.ownership,
            time_based_filter: self.time_based_filter,
            reader_data_lifecycle: self.reader_data_lifecycle,
            representation: topic.representation.clone(),
            type_consistency: self.type_consistency,
            consistency: topic.consistency,
        };
    }

    /// Returns the policies that the reader requests.
    pub fn requested(&self, subscriber: &SubscriberQos) -> RequestedPolicies {
        RequestedPolicies {
            durability: self.durability,
            presentation: subscriber.presentation,
            deadline: self.deadline,
            latency_budget: self.latency_budget,
            ownership: self.ownership,
            liveliness: self.liveliness,
            reliability: self.reliability,
            destination_order: self.destination_order,
            representation: self.representation.clone(),
            consistency: self.consistency,
        }
    }

    /// Returns the level of consistency in force.
    pub fn consistency_level(&self) -> ConsistencyKind {
        self.consistency.level(self.reliability.kind, self.durability.kind)
    }
}
