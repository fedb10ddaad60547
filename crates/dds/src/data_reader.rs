//! Readers (DDS 2.2.2.5.3).
use crate::participant_core::ParticipantCore;
use crate::reader_core::ReaderCore;
use crate::samples::{Sample, Samples};
use crate::shared::Request;
use crate::status_methods::status_methods;
use crate::sync::{Deadline, lock};
use crate::topic::{Topic, TopicInner};
use crate::writer_core::WriterCore;
use futures_core::Stream;
use spindle_dds_core::cache::{CacheCounters, Select};
use spindle_dds_core::condition::{QueryCondition, ReadCondition, StatusCondition};
use spindle_dds_core::directory::{EntityChange, ReaderEntry};
use spindle_dds_core::filter::Query;
use spindle_dds_core::instance::StateMask;
use spindle_dds_core::matching::ReaderDescription;
use spindle_dds_core::qos::{DataReaderQos, QosSet, SubscriberQos};
use spindle_dds_core::status::*;
use spindle_dds_core::{DdsDuration, DdsError, Guid, InstanceHandle};
use spindle_xcdr::{DdsType, KeyHasher, decode_key_sample};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A reader of a topic. Clones are the same reader; it is deleted when the last one is dropped.
///
/// Samples arrive on the polling thread of the participant, in the order of the topic's order domain, which is
/// the same at all readers. `read` and `take` never wait.
pub struct DataReader<T> {
    inner: Arc<Inner>,
    hasher: KeyHasher<T>,
    of: PhantomData<fn() -> T>,
}

/// A reader without its Rust type. Dropping it deletes the reader.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Arc<ReaderCore>,
    pub(crate) topic: Arc<TopicInner>,
    pub(crate) qos: DataReaderQos,
}

impl<T> Clone for DataReader<T> {
    fn clone(&self) -> DataReader<T> {
        DataReader { inner: Arc::clone(&self.inner), hasher: self.hasher, of: PhantomData }
    }
}

impl<T> fmt::Debug for DataReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (guid, topic) = (self.inner.core.guid, &self.inner.topic.core.name);
        f.debug_struct("DataReader").field("guid", &guid).field("topic", topic).finish()
    }
}

impl Inner {
    pub(crate) fn create(
        participant: &Arc<ParticipantCore>,
        (subscriber, subscriber_qos): (Guid, &SubscriberQos),
        topic: &Arc<TopicInner>,
        qos: DataReaderQos,
    ) -> Result<Arc<Inner>, DdsError> {
        participant.check()?;
        qos.check(&crate::config::supported())?;
        topic.check_participant(participant, "create the topic at the participant of the subscriber")?;
        let (guid, support) = (participant.new_guid(), &topic.core.support);
        let core = Arc::new(ReaderCore::new(guid, &qos, subscriber_qos, support.key_of.clone())?);
        let description = ReaderDescription {
            guid,
            topic: topic.core.reference(),
            qos: qos.clone(),
            subscriber: subscriber_qos.clone(),
        };
        let entry = ReaderEntry { participant: participant.guid, subscriber, type_hash: support.hash, description };
        let changes = support.announcement().into_iter().chain([EntityChange::Reader(Box::new(entry))]).collect();
        participant.shared.enlist(Request::Change(guid, changes), |state| {
            state.readers.insert(guid, Arc::clone(&core));
        })?;
        Ok(Arc::new(Inner { core, topic: Arc::clone(topic), qos }))
    }
}

impl<T: DdsType + 'static> DataReader<T> {
    pub(crate) fn create(
        participant: &Arc<ParticipantCore>,
        subscriber: (Guid, &SubscriberQos),
        topic: &Topic<T>,
        qos: DataReaderQos,
    ) -> Result<DataReader<T>, DdsError> {
        let inner = Inner::create(participant, subscriber, &topic.inner, qos)?;
        Ok(DataReader { inner, hasher: KeyHasher::default(), of: PhantomData })
    }

    /// Reads the samples that are selected. They stay in the cache, as read.
    ///
    /// # Errors
    /// `BadParameter` for an unknown instance; how the participant ended.
    pub fn read_select(&self, select: &Select<'_>) -> Result<Samples<T>, DdsError> {
        self.select(select, false)
    }

    /// Takes the samples that are selected out of the cache.
    ///
    /// # Errors
    /// As [`DataReader::read_select`].
    pub fn take_select(&self, select: &Select<'_>) -> Result<Samples<T>, DdsError> {
        self.select(select, true)
    }

    fn select(&self, select: &Select<'_>, takes: bool) -> Result<Samples<T>, DdsError> {
        Samples::of(&self.inner.core, select, takes)
    }

    /// Reads all samples: `read` (DDS 2.2.2.5.3.8). Without any, the collection is empty.
    ///
    /// # Errors
    /// As [`DataReader::read_select`].
    pub fn read(&self) -> Result<Samples<T>, DdsError> {
        self.read_select(&Select::any())
    }

    /// Takes all samples: `take` (DDS 2.2.2.5.3.9). Without any, the collection is empty.
    ///
    /// # Errors
    /// As [`DataReader::read_select`].
    pub fn take(&self) -> Result<Samples<T>, DdsError> {
        self.take_select(&Select::any())
    }

    /// Reads the next sample that was not read: `read_next_sample` (DDS 2.2.2.5.3.12).
    ///
    /// # Errors
    /// As [`DataReader::read_select`].
    pub fn read_next_sample(&self) -> Result<Option<Sample<T>>, DdsError> {
        Ok(self.read_select(&Select::next_sample())?.into_iter().next())
    }

    /// Takes the next sample that was not read: `take_next_sample` (DDS 2.2.2.5.3.13).
    ///
    /// # Errors
    /// As [`DataReader::read_select`].
    pub fn take_next_sample(&self) -> Result<Option<Sample<T>>, DdsError> {
        Ok(self.take_select(&Select::next_sample())?.into_iter().next())
    }

    /// Takes the next sample that was not read, and waits for one. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn take_next_timeout(&self, timeout: DdsDuration) -> Result<Sample<T>, DdsError> {
        let (core, deadline) = (&self.inner.core, Deadline::after(timeout));
        loop {
            if let Some(sample) = self.take_next_sample()? {
                return Ok(sample);
            }
            core.wait_for_data((deadline, timeout))?;
        }
    }

    /// Waits until there is a sample that was not read. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn wait_for_data(&self, timeout: DdsDuration) -> Result<(), DdsError> {
        self.inner.core.wait_for_data((Deadline::after(timeout), timeout))
    }

    /// Returns the samples as they come, for tasks of any runtime: each is taken once. The stream ends with an error
    /// when the participant ends. Several streams of one reader share the samples.
    pub fn stream(&self) -> SampleStream<T> {
        SampleStream { reader: self.clone(), is_over: false, number: self.inner.core.new_stream() }
    }

    /// Returns the handle of the instance of a key that the reader knows: `lookup_instance`
    /// (DDS 2.2.2.5.3.28).
    ///
    /// # Errors
    /// `BadParameter` if the key has no encoding.
    pub fn lookup_instance(&self, key: &T) -> Result<Option<InstanceHandle>, DdsError> {
        let hash = self.hasher.hash(key).map_err(|error| DdsError::BadParameter(error.to_string()))?;
        Ok(lock(&self.inner.core.cache).lookup_instance(hash.into()))
    }

    /// Returns the key of an instance: `get_key_value` (DDS 2.2.2.5.3.27). Other members have their defaults.
    ///
    /// # Errors
    /// `BadParameter` if the reader does not know the instance.
    pub fn key_value(&self, instance: InstanceHandle) -> Result<T, DdsError> {
        let key = lock(&self.inner.core.cache).key_value(instance)?;
        if key.is_empty() {
            return Ok(T::missing());
        }
        decode_key_sample(&key).map_err(|error| DdsError::Error(format!("the key is not of this type: {error}")))
    }
}

impl<T> DataReader<T> {
    /// Returns the part of a writer that its publisher keeps; readers have none.
    pub(crate) fn writer_core(&self) -> Option<&Arc<WriterCore>> {
        None
    }

    /// Returns its identity.
    pub fn guid(&self) -> Guid {
        self.inner.core.guid
    }

    /// Returns its handle: `get_instance_handle`.
    pub fn instance_handle(&self) -> InstanceHandle {
        self.inner.core.guid.into()
    }

    /// Returns its policies: `get_qos`.
    pub fn qos(&self) -> &DataReaderQos {
        &self.inner.qos
    }

    /// Returns the name of its topic.
    pub fn topic_name(&self) -> &str {
        &self.inner.topic.core.name
    }

    /// Returns the writers that match: `get_matched_publications` (DDS 2.2.2.5.3.34).
    pub fn matched_publications(&self) -> Vec<InstanceHandle> {
        self.inner.core.matched().into_iter().map(InstanceHandle::from).collect()
    }

    /// Waits until at least `count` writers match. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn wait_for_publications(&self, count: usize, timeout: DdsDuration) -> Result<(), DdsError> {
        self.inner.core.wait_matched(count, timeout)
    }

    /// Returns the counters of its cache.
    pub fn counters(&self) -> CacheCounters {
        lock(&self.inner.core.cache).counters()
    }

    /// Returns the statuses that have changed: `get_status_changes`.
    pub fn status_changes(&self) -> StatusMask {
        self.inner.core.with_statuses(|statuses| statuses.changes())
    }

    /// Returns the condition of its statuses: `get_statuscondition`.
    pub fn status_condition(&self) -> &StatusCondition {
        &self.inner.core.status_condition
    }

    /// Makes a condition on the states of samples: `create_readcondition` (DDS 2.2.2.5.3.5).
    pub fn create_readcondition(&self, states: StateMask) -> ReadCondition {
        self.inner.core.conditions.create_readcondition(states)
    }

    /// Makes a condition on the states and the data of samples: `create_querycondition` (DDS 2.2.2.5.3.6).
    pub fn create_querycondition(&self, states: StateMask, query: Query) -> QueryCondition {
        self.inner.core.conditions.create_querycondition(states, query)
    }

    /// Deletes a condition of this reader (DDS 2.2.2.5.3.7).
    ///
    /// # Errors
    /// `PreconditionNotMet` if this reader did not make it.
    pub fn delete_readcondition(&self, condition: &spindle_dds_core::condition::Condition) -> Result<(), DdsError> {
        self.inner.core.conditions.delete_readcondition(condition)
    }
}

/// The samples of a reader as they come: [`DataReader::stream`].
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct SampleStream<T> {
    reader: DataReader<T>,
    is_over: bool,
    /// Its number at the reader.
    number: u64,
}

impl<T> Drop for SampleStream<T> {
    fn drop(&mut self) {
        self.reader.inner.core.forget_waker(self.number);
    }
}

impl<T: DdsType + 'static> Stream for SampleStream<T> {
    type Item = Result<Sample<T>, DdsError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // The waker is there before the look, so no sample comes unnoticed between the two.
        self.reader.inner.core.wake_later(self.number, context.waker());
        match self.reader.take_next_sample() {
            Ok(Some(sample)) => Poll::Ready(Some(Ok(sample))),
            Ok(None) => Poll::Pending,
            Err(error) => {
                self.is_over = true;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

status_methods! {
    DataReader, ReaderStatuses:
    sample_lost_status: SampleLostStatus, sample_lost, "SAMPLE_LOST";
    sample_rejected_status: SampleRejectedStatus, sample_rejected, "SAMPLE_REJECTED";
    requested_deadline_missed_status: RequestedDeadlineMissedStatus, requested_deadline_missed, "REQUESTED_DEADLINE_MISSED";
    requested_incompatible_qos_status: RequestedIncompatibleQosStatus, requested_incompatible_qos, "REQUESTED_INCOMPATIBLE_QOS";
    liveliness_changed_status: LivelinessChangedStatus, liveliness_changed, "LIVELINESS_CHANGED";
    subscription_matched_status: SubscriptionMatchedStatus, subscription_matched, "SUBSCRIPTION_MATCHED";
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (guid, shared) = (self.core.guid, &self.topic.participant.shared);
        shared.retire(guid, |state| drop(state.readers.remove(&guid)));
        self.core.delete();
    }
}
