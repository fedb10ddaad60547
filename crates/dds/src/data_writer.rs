//! Writers (DDS 2.2.2.4.2).
use crate::participant_core::ParticipantCore;
use crate::shared::Request;
use crate::status_methods::status_methods;
use crate::sync::now;
use crate::topic::{Topic, TopicInner};
use crate::writer_core::WriterCore;
use spindle_dds_core::cache::ChangeKind;
use spindle_dds_core::condition::StatusCondition;
use spindle_dds_core::directory::{EntityChange, WriterEntry};
use spindle_dds_core::matching::WriterDescription;
use spindle_dds_core::policy::PolicyId;
use spindle_dds_core::qos::{DataWriterQos, PublisherQos, QosSet};
use spindle_dds_core::status::*;
use spindle_dds_core::{DdsDuration, DdsError, DdsTime, Guid, InstanceHandle};
use spindle_xcdr::{
    CdrWriteError, DdsType, KeyHasher, SampleFormat, decode_key_sample, encode_key_sample, encode_sample,
};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A writer of a topic. Clones are the same writer, which many threads may use; it is deleted when the last one is
/// dropped, after its last sample has been delivered.
pub struct DataWriter<T> {
    inner: Arc<Inner>,
    hasher: KeyHasher<T>,
    format: SampleFormat,
    of: PhantomData<fn(&T)>,
}

/// A writer without its Rust type. Dropping it deletes the writer.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Arc<WriterCore>,
    pub(crate) topic: Arc<TopicInner>,
    pub(crate) qos: DataWriterQos,
    pub(crate) format: SampleFormat,
}

impl<T> Clone for DataWriter<T> {
    fn clone(&self) -> DataWriter<T> {
        DataWriter { inner: Arc::clone(&self.inner), hasher: self.hasher, format: self.format, of: PhantomData }
    }
}

impl<T> fmt::Debug for DataWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (guid, topic) = (self.inner.core.guid, &self.inner.topic.core.name);
        f.debug_struct("DataWriter").field("guid", &guid).field("topic", topic).finish()
    }
}

pub(crate) fn unencodable(error: CdrWriteError) -> DdsError {
    DdsError::BadParameter(format!("the sample has no encoding: {error}"))
}

impl Inner {
    pub(crate) fn create(
        participant: &Arc<ParticipantCore>,
        (publisher, publisher_qos): (Guid, &PublisherQos),
        topic: &Arc<TopicInner>,
        qos: DataWriterQos,
    ) -> Result<Arc<Inner>, DdsError> {
        participant.check()?;
        qos.check(&crate::config::supported())?;
        topic.check_participant(participant, "create the topic at the participant of the publisher")?;
        // The first representation of the writer's list is the one of its samples (XTypes 7.6.3.1.1).
        let representation = qos.representation.list()[0];
        let version = representation.version().ok_or_else(|| DdsError::Unsupported {
            what: format!("{} {representation} of a writer", PolicyId::DataRepresentation),
            remedy: "put XCDR or XCDR2 first",
        })?;
        let (guid, support) = (participant.new_guid(), &topic.core.support);
        let core = Arc::new(WriterCore::new(guid, &qos));
        let description = WriterDescription {
            guid,
            topic: topic.core.reference(),
            qos: qos.clone(),
            publisher: publisher_qos.clone(),
        };
        let entry = WriterEntry {
            participant: participant.guid,
            publisher,
            type_hash: support.hash,
            sample_bytes_max: support.sample_bytes_max,
            alive: true,
            description,
        };
        let changes = support.announcement().into_iter().chain([EntityChange::Writer(Box::new(entry))]).collect();
        participant.shared.enlist(Request::Change(guid, changes), |state| {
            state.writers.insert(guid, Arc::clone(&core));
        })?;
        let format = SampleFormat { version, ..SampleFormat::default() };
        Ok(Arc::new(Inner { core, topic: Arc::clone(topic), qos, format }))
    }
}

impl<T: DdsType + 'static> DataWriter<T> {
    pub(crate) fn create(
        participant: &Arc<ParticipantCore>,
        publisher: (Guid, &PublisherQos),
        topic: &Topic<T>,
        qos: DataWriterQos,
    ) -> Result<DataWriter<T>, DdsError> {
        let inner = Inner::create(participant, publisher, &topic.inner, qos)?;
        Ok(DataWriter { format: inner.format, inner, hasher: KeyHasher::default(), of: PhantomData })
    }

    fn handle(&self, key: &T) -> Result<InstanceHandle, DdsError> {
        Ok(self.hasher.hash(key).map_err(unencodable)?.into())
    }

    fn key(&self, of: &T) -> Result<Vec<u8>, DdsError> {
        encode_key_sample(of, self.format).map_err(unencodable)
    }

    /// Writes a sample: `write` (DDS 2.2.2.4.2.11). A RELIABLE writer waits for room up to `max_blocking_time` of
    /// RELIABILITY. All readers get the sample at one place of the order, or none does: if this process fails, or if
    /// a change of the view that was proposed before this writer existed takes the process out of the order domain.
    /// [`DataWriter::wait_for_acknowledgments`] reports the second case.
    ///
    /// # Errors
    /// `Timeout`, and then the sample is not sent; `BadParameter` for a value without an encoding; how the
    /// participant ended.
    pub fn write(&self, sample: &T) -> Result<(), DdsError> {
        self.write_w_timestamp(sample, now())
    }

    /// As [`DataWriter::write`], with the time of the sample (DDS 2.2.2.4.2.12).
    ///
    /// # Errors
    /// As there.
    pub fn write_w_timestamp(&self, sample: &T, timestamp: DdsTime) -> Result<(), DdsError> {
        let instance = self.handle(sample)?;
        let bytes = encode_sample(sample, self.format).map_err(unencodable)?;
        let key = || Ok(self.key(sample)?.into());
        self.inner.core.send(ChangeKind::Write, instance, timestamp, &bytes, key).map(drop)
    }

    /// Tells the readers of an instance before its first sample, and returns its handle: `register_instance`
    /// (DDS 2.2.2.4.2.5).
    ///
    /// # Errors
    /// As [`DataWriter::write`].
    pub fn register_instance(&self, key: &T) -> Result<InstanceHandle, DdsError> {
        let instance = self.handle(key)?;
        if instance != InstanceHandle::KEYLESS && !self.inner.core.is_registered(instance) {
            self.change(ChangeKind::Register, instance, key)?;
        }
        Ok(instance)
    }

    /// Disposes an instance: `dispose` (DDS 2.2.2.4.2.13).
    ///
    /// # Errors
    /// As [`DataWriter::write`].
    pub fn dispose(&self, key: &T) -> Result<(), DdsError> {
        self.change(ChangeKind::Dispose, self.handle(key)?, key)
    }

    /// Gives up an instance: `unregister_instance` (DDS 2.2.2.4.2.7). By default it is disposed, too
    /// (WRITER_DATA_LIFECYCLE).
    ///
    /// # Errors
    /// As [`DataWriter::write`], and `PreconditionNotMet` for an instance that this writer has not registered or
    /// written.
    pub fn unregister_instance(&self, key: &T) -> Result<(), DdsError> {
        let instance = self.handle(key)?;
        if instance != InstanceHandle::KEYLESS && !self.inner.core.is_registered(instance) {
            return Err(DdsError::PreconditionNotMet {
                what: format!("instance {instance} is not registered by this writer"),
                remedy: "register or write it first",
            });
        }
        let disposes = self.inner.qos.writer_data_lifecycle.autodispose_unregistered_instances;
        self.change(if disposes { ChangeKind::DisposeUnregister } else { ChangeKind::Unregister }, instance, key)
    }

    fn change(&self, kind: ChangeKind, instance: InstanceHandle, key: &T) -> Result<(), DdsError> {
        let bytes = self.key(key)?;
        self.inner.core.send(kind, instance, now(), &bytes, || Ok(bytes.as_slice().into())).map(drop)
    }

    /// Returns the handle of an instance that this writer has registered or written: `lookup_instance`
    /// (DDS 2.2.2.4.2.10).
    ///
    /// # Errors
    /// `BadParameter` if the key has no encoding.
    pub fn lookup_instance(&self, key: &T) -> Result<Option<InstanceHandle>, DdsError> {
        let instance = self.handle(key)?;
        Ok(self.inner.core.is_registered(instance).then_some(instance))
    }

    /// Returns the key of an instance that this writer has registered or written: `get_key_value`
    /// (DDS 2.2.2.4.2.9). Other members have their defaults.
    ///
    /// # Errors
    /// `BadParameter` for other instances.
    pub fn key_value(&self, instance: InstanceHandle) -> Result<T, DdsError> {
        let key = self.inner.core.key_of(instance);
        let key = key.ok_or_else(|| DdsError::BadParameter(format!("the writer has no instance {instance}")))?;
        decode_key_sample(&key).map_err(|error| DdsError::Error(format!("the key is not of this type: {error}")))
    }
}

impl<T> DataWriter<T> {
    /// Returns the part of a writer that its publisher keeps; readers have none.
    pub(crate) fn writer_core(&self) -> Option<&Arc<WriterCore>> {
        Some(&self.inner.core)
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
    pub fn qos(&self) -> &DataWriterQos {
        &self.inner.qos
    }

    /// Returns the name of its topic.
    pub fn topic_name(&self) -> &str {
        &self.inner.topic.core.name
    }

    /// Waits until all samples that were written before have been received by all matched readers that are
    /// RELIABLE: `wait_for_acknowledgments` (DDS 2.2.2.4.2.15). It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn wait_for_acknowledgments(&self, timeout: DdsDuration) -> Result<(), DdsError> {
        self.inner.core.wait_delivered(timeout)
    }

    /// Waits until at least `count` readers match. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn wait_for_subscriptions(&self, count: usize, timeout: DdsDuration) -> Result<(), DdsError> {
        self.inner.core.wait_matched(count, timeout)
    }

    /// Returns the readers that match: `get_matched_subscriptions` (DDS 2.2.2.4.2.23).
    pub fn matched_subscriptions(&self) -> Vec<InstanceHandle> {
        self.inner.core.matched().into_iter().map(InstanceHandle::from).collect()
    }

    /// Returns the samples that this BEST_EFFORT writer had no room for.
    pub fn dropped(&self) -> u64 {
        self.inner.core.dropped()
    }

    /// Returns the statuses that have changed: `get_status_changes`.
    pub fn status_changes(&self) -> StatusMask {
        self.inner.core.with_statuses(|statuses| statuses.changes())
    }

    /// Returns the condition of its statuses: `get_statuscondition`.
    pub fn status_condition(&self) -> &StatusCondition {
        &self.inner.core.status_condition
    }
}

status_methods! {
    DataWriter, WriterStatuses:
    liveliness_lost_status: LivelinessLostStatus, liveliness_lost, "LIVELINESS_LOST";
    offered_deadline_missed_status: OfferedDeadlineMissedStatus, offered_deadline_missed, "OFFERED_DEADLINE_MISSED";
    offered_incompatible_qos_status: OfferedIncompatibleQosStatus, offered_incompatible_qos, "OFFERED_INCOMPATIBLE_QOS";
    publication_matched_status: PublicationMatchedStatus, publication_matched, "PUBLICATION_MATCHED";
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.core.close();
        self.core.status_condition.delete();
        let shared = &self.topic.participant.shared;
        let mut state = shared.lock();
        if state.writers.remove(&self.core.guid).is_some() {
            state.closing.push(Arc::clone(&self.core));
        }
        state.entities_version += 1;
        drop(state);
        shared.wake();
    }
}
