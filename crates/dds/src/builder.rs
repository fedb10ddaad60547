//! Writers and readers of a topic with few words.
use crate::data_reader::DataReader;
use crate::data_writer::DataWriter;
use crate::participant::DomainParticipant;
use crate::topic::Topic;
use spindle_dds_core::policy::{
    HistoryQosPolicyKind, OwnershipQosPolicyKind, PartitionQosPolicy, ReliabilityQosPolicy, ReliabilityQosPolicyKind,
};
use spindle_dds_core::qos::{DataReaderQos, DataWriterQos, PublisherQos, SubscriberQos, TopicQos};
use spindle_dds_core::{DdsDuration, DdsError};
use spindle_xcdr::DdsType;
use std::marker::PhantomData;

/// Creates writers and readers of a topic: [`DomainParticipant::topic`]. Each has a publisher or a subscriber of its
/// own. The policies begin with the defaults of the specification.
#[derive(Clone, Debug)]
#[must_use = "writer() and reader() create the endpoints"]
pub struct TopicBuilder<'p, T> {
    participant: &'p DomainParticipant,
    name: &'p str,
    writer: DataWriterQos,
    reader: DataReaderQos,
    partition: PartitionQosPolicy,
    of: PhantomData<fn() -> T>,
}

impl<'p, T: DdsType + 'static> TopicBuilder<'p, T> {
    fn new(participant: &'p DomainParticipant, name: &'p str) -> TopicBuilder<'p, T> {
        let (writer, reader, partition) = Default::default();
        TopicBuilder { participant, name, writer, reader, partition, of: PhantomData }
    }

    /// RELIABLE: all samples arrive, in one order at all readers. It is the default of writers.
    pub fn reliable(mut self) -> TopicBuilder<'p, T> {
        self.writer.reliability.kind = ReliabilityQosPolicyKind::Reliable;
        self.reader.reliability = ReliabilityQosPolicy::WRITER;
        self
    }

    /// BEST_EFFORT: a writer never waits, and drops what finds no room. It is the default of readers.
    pub fn best_effort(mut self) -> TopicBuilder<'p, T> {
        self.writer.reliability.kind = ReliabilityQosPolicyKind::BestEffort;
        self.reader.reliability.kind = ReliabilityQosPolicyKind::BestEffort;
        self
    }

    /// How long a RELIABLE writer waits for room. Default: 100 ms.
    pub fn max_blocking_time(mut self, timeout: DdsDuration) -> TopicBuilder<'p, T> {
        self.writer.reliability.max_blocking_time = timeout;
        self
    }

    /// KEEP_LAST: a reader keeps so many samples of each instance. Default: 1.
    pub fn keep_last(mut self, depth: u32) -> TopicBuilder<'p, T> {
        self.writer.history.kind = HistoryQosPolicyKind::KeepLast(depth);
        self.reader.history.kind = HistoryQosPolicyKind::KeepLast(depth);
        self
    }

    /// KEEP_ALL: a reader keeps all samples until they are taken.
    pub fn keep_all(mut self) -> TopicBuilder<'p, T> {
        self.writer.history.kind = HistoryQosPolicyKind::KeepAll;
        self.reader.history.kind = HistoryQosPolicyKind::KeepAll;
        self
    }

    /// OWNERSHIP EXCLUSIVE: the readers get the samples of an instance from its strongest writer only.
    pub fn exclusive(mut self, strength: i32) -> TopicBuilder<'p, T> {
        self.writer.ownership.kind = OwnershipQosPolicyKind::Exclusive;
        self.writer.ownership_strength.value = strength;
        self.reader.ownership.kind = OwnershipQosPolicyKind::Exclusive;
        self
    }

    /// PARTITION: only endpoints with a common partition match.
    pub fn partition(mut self, name: &str) -> TopicBuilder<'p, T> {
        self.partition = PartitionQosPolicy::of([name]);
        self
    }

    /// Changes the policies of the writer.
    pub fn writer_qos(mut self, change: impl FnOnce(&mut DataWriterQos)) -> TopicBuilder<'p, T> {
        change(&mut self.writer);
        self
    }

    /// Changes the policies of the reader.
    pub fn reader_qos(mut self, change: impl FnOnce(&mut DataReaderQos)) -> TopicBuilder<'p, T> {
        change(&mut self.reader);
        self
    }

    fn topic(&self) -> Result<Topic<T>, DdsError> {
        self.participant.create_topic(self.name, TopicQos::default())
    }

    /// Creates a writer.
    ///
    /// # Errors
    /// As [`DomainParticipant::create_topic`] and [`Publisher::create_datawriter`](crate::Publisher::create_datawriter).
    pub fn writer(self) -> Result<DataWriter<T>, DdsError> {
        let publisher = PublisherQos { partition: self.partition.clone(), ..PublisherQos::default() };
        self.participant.create_publisher(publisher)?.create_datawriter(&self.topic()?, self.writer)
    }

    /// Creates a reader.
    ///
    /// # Errors
    /// As [`DomainParticipant::create_topic`] and
    /// [`Subscriber::create_datareader`](crate::Subscriber::create_datareader).
    pub fn reader(self) -> Result<DataReader<T>, DdsError> {
        let subscriber = SubscriberQos { partition: self.partition.clone(), ..SubscriberQos::default() };
        self.participant.create_subscriber(subscriber)?.create_datareader(&self.topic()?, self.reader)
    }
}

impl DomainParticipant {
    /// Begins the creation of a writer or a reader of a topic.
    pub fn topic<'p, T: DdsType + 'static>(&'p self, name: &'p str) -> TopicBuilder<'p, T> {
        TopicBuilder::new(self, name)
    }
}
