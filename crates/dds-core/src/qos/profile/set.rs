//! The sets of policies as policies with fields.
use super::fields::{Field, Fields};
use super::value::Value;
use crate::qos::{
    DataReaderQos, DataWriterQos, DomainParticipantFactoryQos, DomainParticipantQos, PublisherQos, QosSet,
    SubscriberQos, TopicQos,
};
use std::fmt;

/// A kind of entity that a profile has policies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntityKind {
    /// The factory of participants.
    Factory,
    /// A participant.
    Participant,
    /// A topic.
    Topic,
    /// A publisher.
    Publisher,
    /// A subscriber.
    Subscriber,
    /// A writer.
    DataWriter,
    /// A reader.
    DataReader,
}

impl EntityKind {
    /// All kinds.
    pub const ALL: [EntityKind; 7] = [
        EntityKind::Factory,
        EntityKind::Participant,
        EntityKind::Topic,
        EntityKind::Publisher,
        EntityKind::Subscriber,
        EntityKind::DataWriter,
        EntityKind::DataReader,
    ];

    /// Returns the name of the element and of the key.
    pub const fn element(self) -> &'static str {
        match self {
            EntityKind::Factory => "domain_participant_factory_qos",
            EntityKind::Participant => "domain_participant_qos",
            EntityKind::Topic => "topic_qos",
            EntityKind::Publisher => "publisher_qos",
            EntityKind::Subscriber => "subscriber_qos",
            EntityKind::DataWriter => "datawriter_qos",
            EntityKind::DataReader => "datareader_qos",
        }
    }

    /// Returns whether the policies may depend on the name of a topic.
    pub const fn has_topic(self) -> bool {
        matches!(self, EntityKind::Topic | EntityKind::DataWriter | EntityKind::DataReader)
    }

    /// Returns the policies with their fields.
    pub(super) fn policies(self) -> Vec<PolicyFields> {
        match self {
            EntityKind::Factory => DomainParticipantFactoryQos::policies(),
            EntityKind::Participant => DomainParticipantQos::policies(),
            EntityKind::Topic => TopicQos::policies(),
            EntityKind::Publisher => PublisherQos::policies(),
            EntityKind::Subscriber => SubscriberQos::policies(),
            EntityKind::DataWriter => DataWriterQos::policies(),
            EntityKind::DataReader => DataReaderQos::policies(),
        }
    }
}

impl fmt::Display for EntityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.element())
    }
}

/// A policy of a set, with its fields.
#[derive(Clone, Debug)]
pub(super) struct PolicyFields {
    pub(super) name: &'static str,
    pub(super) fields: Vec<Field>,
}

/// A set of policies of a profile.
pub(super) trait ProfileSet: QosSet {
    const KIND: EntityKind;

    /// Returns the policies with their fields.
    fn policies() -> Vec<PolicyFields>;

    /// Sets the fields for which `given` has a value.
    fn apply<'a>(&mut self, given: impl Fn(&'static str, &'static str) -> Option<&'a Value>);

    /// Returns the values of all policies.
    fn values(&self) -> Vec<(&'static str, Vec<(Field, Value)>)>;
}

fn fields_of<T: Fields>(_: &T) -> Vec<Field> {
    T::fields()
}

fn apply<'a, T: Fields>(policy: &mut T, given: impl Fn(&'static str) -> Option<&'a Value>) {
    for field in T::fields() {
        if let Some(value) = given(field.name) {
            policy.set(field.name, value);
        }
    }
}

macro_rules! sets {
    ($($set:ident = $kind:ident { $($policy:ident),* })*) => {$(
        impl ProfileSet for $set {
            const KIND: EntityKind = EntityKind::$kind;

            fn policies() -> Vec<PolicyFields> {
                let default = $set::default();
                vec![$(PolicyFields { name: stringify!($policy), fields: fields_of(&default.$policy) }),*]
            }

            fn apply<'a>(&mut self, given: impl Fn(&'static str, &'static str) -> Option<&'a Value>) {
                $(apply(&mut self.$policy, |field| given(stringify!($policy), field));)*
            }

            fn values(&self) -> Vec<(&'static str, Vec<(Field, Value)>)> {
                // A policy that is missing here does not compile.
                let $set { $($policy),* } = self;
                vec![$((stringify!($policy), $policy.values())),*]
            }
        }
    )*};
}

sets! {
    DomainParticipantFactoryQos = Factory { entity_factory }
    DomainParticipantQos = Participant { user_data, entity_factory }
    TopicQos = Topic {
        topic_data, durability, durability_service, deadline, latency_budget, liveliness, reliability,
        destination_order, history, resource_limits, transport_priority, lifespan, ownership, representation,
        consistency
    }
    PublisherQos = Publisher { presentation, partition, group_data, entity_factory }
    SubscriberQos = Subscriber { presentation, partition, group_data, entity_factory }
    DataWriterQos = DataWriter {
        durability, durability_service, deadline, latency_budget, liveliness, reliability, destination_order,
        history, resource_limits, transport_priority, lifespan, user_data, ownership, ownership_strength,
        writer_data_lifecycle, representation, consistency
    }
    DataReaderQos = DataReader {
        durability, deadline, latency_budget, liveliness, reliability, destination_order, history, resource_limits,
        user_data, ownership, time_based_filter, reader_data_lifecycle, representation, type_consistency,
        consistency
    }
}

/// The sets of policies of all kinds of entities: the effective values of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileSets {
    /// The policies of the factory.
    pub factory: DomainParticipantFactoryQos,
    /// The policies of a participant.
    pub participant: DomainParticipantQos,
    /// The policies of a topic.
    pub topic: TopicQos,
    /// The policies of a publisher.
    pub publisher: PublisherQos,
    /// The policies of a subscriber.
    pub subscriber: SubscriberQos,
    /// The policies of a writer.
    pub datawriter: DataWriterQos,
    /// The policies of a reader.
    pub datareader: DataReaderQos,
}

/// The values of a policy, each with its field.
pub(super) type PolicyValues = (&'static str, Vec<(Field, Value)>);

impl ProfileSets {
    /// Returns the values of all policies of all kinds.
    pub(super) fn values(&self) -> [(EntityKind, Vec<PolicyValues>); 7] {
        [
            (EntityKind::Factory, self.factory.values()),
            (EntityKind::Participant, self.participant.values()),
            (EntityKind::Topic, self.topic.values()),
            (EntityKind::Publisher, self.publisher.values()),
            (EntityKind::Subscriber, self.subscriber.values()),
            (EntityKind::DataWriter, self.datawriter.values()),
            (EntityKind::DataReader, self.datareader.values()),
        ]
    }
}
