//! Participants (DDS 2.2.2.2.1).
use crate::config::DomainConfig;
use crate::participant_core::ParticipantCore;
use crate::publisher::{Publisher, Subscriber};
use crate::sync::{lock, now};
use crate::topic::Topic;
use spindle_dds_core::directory::{Directory, DomainPlan, ParticipantEntry};
use spindle_dds_core::matching::{EndpointMatch, Mismatch};
use spindle_dds_core::qos::{DomainParticipantQos, PublisherQos, QosSet, SubscriberQos, TopicQos};
use spindle_dds_core::{DdsDuration, DdsError, DdsTime, Guid, InstanceHandle};
use spindle_xcdr::DdsType;
use std::sync::Arc;

/// A participant of a domain. Clones are the same participant; it ends when the last one and all its entities are
/// dropped, after its last samples have been delivered.
///
/// The participants of a domain are the members of a group. The first one creates it, and all have the same
/// directory of topics, writers and readers.
#[derive(Clone, Debug)]
pub struct DomainParticipant {
    pub(crate) core: Arc<ParticipantCore>,
}

impl DomainParticipant {
    /// Joins a domain on this host, with default policies: `create_participant` (DDS 2.2.2.2.2.1). It waits until
    /// the other participants know this one.
    ///
    /// # Errors
    /// `Error` with the reason if the domain can't be joined.
    pub fn new(domain_id: u32) -> Result<DomainParticipant, DdsError> {
        DomainParticipant::with(DomainConfig::new(domain_id), DomainParticipantQos::default())
    }

    /// Joins a domain.
    ///
    /// # Errors
    /// As [`DomainParticipant::new`], and `Unsupported` for policies.
    pub fn with(config: DomainConfig, qos: DomainParticipantQos) -> Result<DomainParticipant, DdsError> {
        qos.check(&crate::config::supported())?;
        Ok(DomainParticipant { core: Arc::new(ParticipantCore::join(config, qos)?) })
    }

    /// Creates a topic with samples of type `T` (DDS 2.2.2.2.1.5). It waits for no agreement.
    ///
    /// # Errors
    /// `InconsistentPolicy` and `Unsupported` with the policy; `BadParameter` for an empty name; how the participant
    /// ended.
    pub fn create_topic<T: DdsType + 'static>(&self, name: &str, qos: TopicQos) -> Result<Topic<T>, DdsError> {
        Topic::create(&self.core, name, qos)
    }

    /// Creates a publisher (DDS 2.2.2.2.1.1).
    ///
    /// # Errors
    /// `InconsistentPolicy` and `Unsupported` with the policy; how the participant ended.
    pub fn create_publisher(&self, qos: PublisherQos) -> Result<Publisher, DdsError> {
        Publisher::create(&self.core, qos)
    }

    /// Creates a subscriber (DDS 2.2.2.2.1.3).
    ///
    /// # Errors
    /// As [`DomainParticipant::create_publisher`].
    pub fn create_subscriber(&self, qos: SubscriberQos) -> Result<Subscriber, DdsError> {
        Subscriber::create(&self.core, qos)
    }

    /// Returns the number of its domain: `get_domain_id`.
    pub fn domain_id(&self) -> u32 {
        self.core.config.domain_id
    }

    /// Returns its identity.
    pub fn guid(&self) -> Guid {
        self.core.guid
    }

    /// Returns its handle: `get_instance_handle`.
    pub fn instance_handle(&self) -> InstanceHandle {
        self.core.guid.into()
    }

    /// Returns its policies: `get_qos`.
    pub fn qos(&self) -> DomainParticipantQos {
        lock(&self.core.qos).clone()
    }

    /// Changes its policies: `set_qos`.
    ///
    /// # Errors
    /// `Unsupported` with the policy.
    pub fn set_qos(&self, qos: DomainParticipantQos) -> Result<(), DdsError> {
        self.core.check()?;
        qos.check(&crate::config::supported())?;
        *lock(&self.core.qos) = qos;
        self.core.announce();
        Ok(())
    }

    /// Returns the time of this host: `get_current_time` (DDS 2.2.2.2.1.25).
    pub fn current_time(&self) -> DdsTime {
        now()
    }

    /// Looks at the directory of the domain, as this participant knows it. The directory does not change meanwhile, so
    /// the look is short.
    ///
    /// # Errors
    /// How the participant ended.
    pub fn with_directory<R>(&self, look: impl FnOnce(&Directory) -> R) -> Result<R, DdsError> {
        self.core.shared.lock().directory().map(look)
    }

    /// Waits until the directory is as `holds` says. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`; how the participant ended.
    pub fn wait_for(&self, mut holds: impl FnMut(&Directory) -> bool, timeout: DdsDuration) -> Result<(), DdsError> {
        let found = |state: &crate::shared::State| state.replica.directory().filter(|own| holds(own)).map(|_| ());
        self.core.shared.wait_until("a wait for a change of the directory", timeout, found)
    }

    /// Returns the participants of the domain, this one among them: `get_discovered_participants`
    /// (DDS 2.2.2.2.1.27).
    ///
    /// # Errors
    /// How the participant ended.
    pub fn participants(&self) -> Result<Vec<ParticipantEntry>, DdsError> {
        self.with_directory(|directory| directory.participants().cloned().collect())
    }

    /// Returns the plans of the order domains, with the memory that they take.
    ///
    /// # Errors
    /// How the participant ended.
    pub fn order_domains(&self) -> Result<Vec<DomainPlan>, DdsError> {
        self.with_directory(|directory| directory.plans().cloned().collect())
    }

    /// Returns why a writer and a reader match: the terms, or all reasons against it.
    ///
    /// # Errors
    /// `BadParameter` for an endpoint that is not in the directory; how the participant ended.
    pub fn why(&self, writer: Guid, reader: Guid) -> Result<Result<EndpointMatch, Vec<Mismatch>>, DdsError> {
        let found = self.with_directory(|directory| directory.why(writer, reader))?;
        found.map_err(|error| DdsError::BadParameter(error.to_string()))
    }

    /// Ends the participant: its last samples are delivered, its entities go, and it leaves the domain. Dropping
    /// does the same, and says nothing of errors.
    ///
    /// # Errors
    /// `Timeout` if that takes longer than [`DomainConfig::close_timeout`]; how the participant ended before.
    pub fn close(&self) -> Result<(), DdsError> {
        self.core.close()
    }
}
