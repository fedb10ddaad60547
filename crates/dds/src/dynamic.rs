//! Endpoints without a Rust type, for tools: the type is known at run time (DDS-XTypes 1.3, 7.5.2, dynamic data).
//!
//! [`DomainParticipant::find_dynamic_topic`] takes the type of a topic from the directory of the domain, where the
//! writers and readers of the topic have announced it.
use crate::data_reader::Inner as ReaderInner;
use crate::data_writer::{Inner as WriterInner, unencodable};
use crate::participant::DomainParticipant;
use crate::publisher::{Publisher, Subscriber};
use crate::samples::{Sample, Samples};
use crate::sync::{Deadline, lock, now};
use crate::topic::TopicInner;
use crate::type_support::TypeSupport;
use spindle_dds_core::cache::{CacheCounters, ChangeKind, Select};
use spindle_dds_core::directory::Directory;
use spindle_dds_core::instance::SampleInfo;
use spindle_dds_core::matching::near_miss;
use spindle_dds_core::qos::{DataReaderQos, DataWriterQos, TopicQos};
use spindle_dds_core::{DdsDuration, DdsError, DdsTime, Guid, InstanceHandle};
use spindle_xcdr::{DynamicType, DynamicValue, TypeDescription, TypeHash};
use std::sync::Arc;

/// A type of a topic, as the directory knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicType {
    /// Its registered name.
    pub name: String,
    /// The hash of its complete type object; `None` if no participant has described it.
    pub hash: Option<TypeHash>,
    /// Its description; `None` if no participant has described it.
    pub description: Option<Arc<TypeDescription>>,
}

/// A topic whose type is known at run time. Clones are the same topic.
#[derive(Clone, Debug)]
pub struct DynamicTopic {
    inner: Arc<TopicInner>,
    data_type: Arc<DynamicType>,
}

/// A reader of a [`DynamicTopic`]. Clones are the same reader; it is deleted when the last one is dropped.
#[derive(Clone, Debug)]
pub struct DynamicReader {
    inner: Arc<ReaderInner>,
    data_type: Arc<DynamicType>,
}

/// A writer of a [`DynamicTopic`]. Clones are the same writer; it is deleted when the last one is dropped, after
/// its last sample has been delivered.
#[derive(Clone, Debug)]
pub struct DynamicWriter {
    inner: Arc<WriterInner>,
    data_type: Arc<DynamicType>,
}

/// A sample of a [`DynamicReader`]. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct DynamicSample {
    inner: Sample<()>,
    data_type: Arc<DynamicType>,
}

/// Returns the different types of the topics of a name: those of writers first, then of readers, then of topics.
pub(crate) fn types_of(directory: &Directory, topic: &str) -> Vec<TopicType> {
    let writers = directory.writers().map(|own| (&own.description.topic, own.type_hash));
    let readers = directory.readers().map(|own| (&own.description.topic, own.type_hash));
    let topics = directory.topics().map(|own| (&own.topic, own.type_hash));
    let mut types: Vec<TopicType> = Vec::new();
    for (own, hash) in writers.chain(readers).chain(topics).filter(|(own, _)| own.name == topic) {
        let description = hash.and_then(|hash| directory.description(hash)).cloned();
        let found = TopicType { name: own.type_name.clone(), hash, description };
        if !types.contains(&found) {
            types.push(found);
        }
    }
    types
}

/// Returns the error of a topic that no participant has, with the names that are close.
fn no_topic(directory: &Directory, domain: u32, topic: &str) -> DdsError {
    let names = directory.topics().map(|own| own.topic.name.as_str());
    let close: std::collections::BTreeSet<&str> = names.filter(|name| near_miss(name, topic).is_some()).collect();
    let close: Vec<String> = close.into_iter().map(|name| format!("'{name}'")).collect();
    let hint = if close.is_empty() { String::new() } else { format!(", but {}", close.join(", ")) };
    DdsError::PreconditionNotMet {
        what: format!("no participant of domain {domain} has a topic '{topic}'{hint}"),
        remedy: "check the name and the domain, or start a participant with the topic",
    }
}

impl DomainParticipant {
    /// Returns the types that the participants of the domain have for topics of this name. More than one means that
    /// some exclude each other, or that one extends the other. Without such a topic there is none.
    ///
    /// # Errors
    /// How the participant ended.
    pub fn topic_types(&self, topic: &str) -> Result<Vec<TopicType>, DdsError> {
        self.with_directory(|directory| types_of(directory, topic))
    }

    /// Waits until a participant has a topic of this name, and creates the same here: `find_topic`
    /// (DDS 2.2.2.2.1.11). It blocks the thread.
    ///
    /// # Errors
    /// `PreconditionNotMet` if no topic comes in time, with close names, and if no participant describes its type;
    /// how the participant ended.
    pub fn find_dynamic_topic(&self, topic: &str, timeout: DdsDuration) -> Result<DynamicTopic, DdsError> {
        let found = self.core.shared.wait_until("a wait for a topic", timeout, |state| {
            let directory = state.replica.directory()?;
            let types = types_of(directory, topic);
            let known = types.iter().find_map(|own| {
                let objects = directory.type_objects(own.hash?)?;
                Some((own.name.clone(), Arc::clone(own.description.as_ref()?), (own.hash?, objects.clone())))
            });
            Some(known.ok_or_else(|| types.first().map(|own| own.name.clone()))).filter(|it| *it != Err(None))
        });
        let (type_name, description, known) = match found {
            Ok(Ok(found)) => found,
            Ok(Err(type_name)) => {
                let type_name = type_name.unwrap_or_default();
                return Err(DdsError::PreconditionNotMet {
                    what: format!("topic '{topic}' has the type '{type_name}', which no participant describes"),
                    remedy: "types that contain themselves have no type object",
                });
            }
            Err(DdsError::Timeout { .. }) => {
                let domain = self.domain_id();
                return Err(self.with_directory(|directory| no_topic(directory, domain, topic))?);
            }
            Err(error) => return Err(error),
        };
        let data_type = Arc::new(DynamicType::new((*description).clone()));
        let support = TypeSupport::dynamic(&type_name, &data_type, Some(known))?;
        Ok(DynamicTopic { inner: TopicInner::create(&self.core, topic, TopicQos::default(), support)?, data_type })
    }

    /// Creates a topic of a type that is described at run time. It waits for no agreement.
    ///
    /// # Errors
    /// As [`DomainParticipant::create_topic`].
    pub fn create_dynamic_topic(
        &self,
        name: &str,
        type_name: &str,
        description: TypeDescription,
        qos: TopicQos,
    ) -> Result<DynamicTopic, DdsError> {
        let data_type = Arc::new(DynamicType::new(description));
        let support = TypeSupport::dynamic(type_name, &data_type, None)?;
        Ok(DynamicTopic { inner: TopicInner::create(&self.core, name, qos, support)?, data_type })
    }
}

impl Publisher {
    /// Creates a writer of a topic whose type is known at run time. It waits for no agreement.
    ///
    /// # Errors
    /// As [`Publisher::create_datawriter`].
    pub fn create_dynamic_datawriter(
        &self,
        topic: &DynamicTopic,
        qos: DataWriterQos,
    ) -> Result<DynamicWriter, DdsError> {
        let inner = WriterInner::create(&self.participant, (self.guid, &self.qos), &topic.inner, qos)?;
        lock(&self.endpoints).add(&inner.core);
        Ok(DynamicWriter { inner, data_type: Arc::clone(&topic.data_type) })
    }
}

impl Subscriber {
    /// Creates a reader of a topic whose type is known at run time. It waits for no agreement.
    ///
    /// # Errors
    /// As [`Subscriber::create_datareader`].
    pub fn create_dynamic_datareader(
        &self,
        topic: &DynamicTopic,
        qos: DataReaderQos,
    ) -> Result<DynamicReader, DdsError> {
        let inner = ReaderInner::create(&self.participant, (self.guid, &self.qos), &topic.inner, qos)?;
        Ok(DynamicReader { inner, data_type: Arc::clone(&topic.data_type) })
    }
}

impl DynamicTopic {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// Returns the registered name of its type.
    pub fn type_name(&self) -> &str {
        &self.inner.core.support.name
    }

    /// Returns its type.
    pub fn data_type(&self) -> &Arc<DynamicType> {
        &self.data_type
    }

    /// Returns its identity.
    pub fn guid(&self) -> Guid {
        self.inner.core.guid
    }
}

impl DynamicWriter {
    /// Writes a sample: `write` (DDS 2.2.2.4.2.11), as [`DataWriter::write`](crate::DataWriter::write).
    ///
    /// # Errors
    /// `Timeout`, and then the sample is not sent; `BadParameter` for a value that is not of the type; how the
    /// participant ended.
    pub fn write(&self, sample: &DynamicValue) -> Result<(), DdsError> {
        self.write_w_timestamp(sample, now())
    }

    /// As [`DynamicWriter::write`], with the time of the sample (DDS 2.2.2.4.2.12).
    ///
    /// # Errors
    /// As there.
    pub fn write_w_timestamp(&self, sample: &DynamicValue, timestamp: DdsTime) -> Result<(), DdsError> {
        let bytes = self.data_type.encode_sample(sample, self.inner.format).map_err(unencodable)?;
        let key = || Ok(self.key(sample)?.into());
        self.inner.core.send(ChangeKind::Write, self.handle(sample)?, timestamp, &bytes, key).map(drop)
    }

    /// Disposes an instance: `dispose` (DDS 2.2.2.4.2.13). The value needs the members of the key only.
    ///
    /// # Errors
    /// As [`DynamicWriter::write`].
    pub fn dispose(&self, key: &DynamicValue) -> Result<(), DdsError> {
        let (instance, bytes) = (self.handle(key)?, self.key(key)?);
        self.inner.core.send(ChangeKind::Dispose, instance, now(), &bytes, || Ok(bytes.as_slice().into())).map(drop)
    }

    fn handle(&self, key: &DynamicValue) -> Result<InstanceHandle, DdsError> {
        Ok(self.data_type.key_hash(key).map_err(unencodable)?.into())
    }

    fn key(&self, of: &DynamicValue) -> Result<Vec<u8>, DdsError> {
        self.data_type.encode_key_sample(of, self.inner.format).map_err(unencodable)
    }

    /// Returns its identity.
    pub fn guid(&self) -> Guid {
        self.inner.core.guid
    }

    /// Returns its policies: `get_qos`.
    pub fn qos(&self) -> &DataWriterQos {
        &self.inner.qos
    }

    /// Returns the name of its topic.
    pub fn topic_name(&self) -> &str {
        &self.inner.topic.core.name
    }

    /// As [`DataWriter::wait_for_acknowledgments`](crate::DataWriter::wait_for_acknowledgments).
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
}

impl DynamicReader {
    /// Takes the samples that are selected out of the cache. Without any, there are none.
    ///
    /// # Errors
    /// `BadParameter` for an unknown instance; how the participant ended.
    pub fn take_select(&self, select: &Select<'_>) -> Result<Vec<DynamicSample>, DdsError> {
        let samples: Samples<()> = Samples::of(&self.inner.core, select, true)?;
        let own = |inner| DynamicSample { inner, data_type: Arc::clone(&self.data_type) };
        Ok(samples.into_iter().map(own).collect())
    }

    /// Takes all samples: `take` (DDS 2.2.2.5.3.9). Without any, there are none.
    ///
    /// # Errors
    /// How the participant ended.
    pub fn take(&self) -> Result<Vec<DynamicSample>, DdsError> {
        self.take_select(&Select::any())
    }

    /// Waits until there is a sample that was not read. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn wait_for_data(&self, timeout: DdsDuration) -> Result<(), DdsError> {
        self.inner.core.wait_for_data((Deadline::after(timeout), timeout))
    }

    /// Returns its identity.
    pub fn guid(&self) -> Guid {
        self.inner.core.guid
    }

    /// Returns its policies: `get_qos`.
    pub fn qos(&self) -> &DataReaderQos {
        &self.inner.qos
    }

    /// Returns the name of its topic.
    pub fn topic_name(&self) -> &str {
        &self.inner.topic.core.name
    }

    /// Returns its type.
    pub fn data_type(&self) -> &Arc<DynamicType> {
        &self.data_type
    }

    /// Waits until at least `count` writers match. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn wait_for_publications(&self, count: usize, timeout: DdsDuration) -> Result<(), DdsError> {
        self.inner.core.wait_matched(count, timeout)
    }

    /// Returns the writers that match: `get_matched_publications` (DDS 2.2.2.5.3.34).
    pub fn matched_publications(&self) -> Vec<InstanceHandle> {
        self.inner.core.matched().into_iter().map(InstanceHandle::from).collect()
    }

    /// Returns the counters of its cache.
    pub fn counters(&self) -> CacheCounters {
        lock(&self.inner.core.cache).counters()
    }
}

impl DynamicSample {
    /// Returns the information about it.
    pub fn info(&self) -> &SampleInfo {
        self.inner.info()
    }

    /// Returns the serialised sample with its header; `None` if it announces a change of state only.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.inner.bytes()
    }

    /// Decodes the data; `None` if the sample announces a change of state only (`valid_data` is false).
    ///
    /// # Errors
    /// `Error` if the bytes are no sample of the type.
    pub fn data(&self) -> Result<Option<DynamicValue>, DdsError> {
        let Some(bytes) = self.bytes() else { return Ok(None) };
        let value = self.data_type.decode_sample(bytes);
        value
            .map(Some)
            .map_err(|error| DdsError::Error(format!("the sample is not of the type of the reader: {error}")))
    }

    /// Decodes the key of a sample that announces a change of state: a structure of the members of the key. It is
    /// empty for a type without a key. A sample with data returns all data.
    ///
    /// # Errors
    /// As [`DynamicSample::data`].
    pub fn key(&self) -> Result<DynamicValue, DdsError> {
        match (self.data()?, self.inner.key_bytes()) {
            (Some(value), _) => Ok(value),
            (None, Some(key)) if !key.is_empty() => self
                .data_type
                .decode_key_sample(key)
                .map_err(|error| DdsError::Error(format!("the key is not of the type of the reader: {error}"))),
            _ => Ok(DynamicValue::Struct(Vec::new())),
        }
    }
}
