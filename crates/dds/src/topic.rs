//! Topics (DDS 2.2.2.3).
use crate::participant_core::ParticipantCore;
use crate::shared::Request;
use crate::topic_core::TopicCore;
use crate::type_support::TypeSupport;
use spindle_dds_core::condition::StatusCondition;
use spindle_dds_core::directory::{EntityChange, TopicEntry};
use spindle_dds_core::qos::{QosSet, TopicQos};
use spindle_dds_core::status::{InconsistentTopicStatus, StatusMask, TopicStatuses};
use spindle_dds_core::{DdsError, Guid, InstanceHandle};
use spindle_xcdr::DdsType;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A topic of a participant: a name, and samples of type `T`. Clones are the same topic.
///
/// The topics of one name of all participants are one topic, if their types don't exclude each other.
pub struct Topic<T> {
    pub(crate) inner: Arc<TopicInner>,
    of: PhantomData<fn() -> T>,
}

/// A topic as its endpoints hold it.
#[derive(Debug)]
pub(crate) struct TopicInner {
    pub(crate) core: Arc<TopicCore>,
    pub(crate) participant: Arc<ParticipantCore>,
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Topic<T> {
        Topic { inner: Arc::clone(&self.inner), of: PhantomData }
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopicCore { guid, name, support, .. } = &*self.inner.core;
        f.debug_struct("Topic").field("guid", guid).field("name", name).field("type", &support.name).finish()
    }
}

impl TopicInner {
    /// Creates a topic, and tells the others of it. It waits for no agreement.
    pub(crate) fn create(
        participant: &Arc<ParticipantCore>,
        name: &str,
        qos: TopicQos,
        support: TypeSupport,
    ) -> Result<Arc<TopicInner>, DdsError> {
        participant.check()?;
        qos.check(&crate::config::supported())?;
        if name.is_empty() {
            return Err(DdsError::BadParameter("the name of a topic is empty".to_owned()));
        }
        let core = TopicCore::new(participant.new_guid(), name.to_owned(), qos.clone(), Arc::new(support));
        let core = Arc::new(core);
        let entry = TopicEntry {
            guid: core.guid,
            participant: participant.guid,
            topic: core.reference(),
            type_hash: core.support.hash,
            qos,
        };
        let changes = core.support.announcement().into_iter().chain([EntityChange::Topic(Box::new(entry))]).collect();
        participant.shared.enlist(Request::Change(core.guid, changes), |state| {
            state.topics.insert(core.guid, Arc::clone(&core));
        })?;
        Ok(Arc::new(TopicInner { core, participant: Arc::clone(participant) }))
    }

    /// Checks that an endpoint of a participant may have this topic.
    pub(crate) fn check_participant(
        &self,
        participant: &Arc<ParticipantCore>,
        remedy: &'static str,
    ) -> Result<(), DdsError> {
        if Arc::ptr_eq(participant, &self.participant) {
            return Ok(());
        }
        let what = format!("topic {:?} belongs to another participant", self.core.name);
        Err(DdsError::PreconditionNotMet { what, remedy })
    }
}

impl<T: DdsType + 'static> Topic<T> {
    pub(crate) fn create(participant: &Arc<ParticipantCore>, name: &str, qos: TopicQos) -> Result<Topic<T>, DdsError> {
        let inner = TopicInner::create(participant, name, qos, TypeSupport::of::<T>()?)?;
        Ok(Topic { inner, of: PhantomData })
    }
}

impl<T> Topic<T> {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// Returns the name of its type.
    pub fn type_name(&self) -> &str {
        &self.inner.core.support.name
    }

    /// Returns its policies: `get_qos`.
    pub fn qos(&self) -> &TopicQos {
        &self.inner.core.qos
    }

    /// Returns its identity.
    pub fn guid(&self) -> Guid {
        self.inner.core.guid
    }

    /// Returns its handle: `get_instance_handle`.
    pub fn instance_handle(&self) -> InstanceHandle {
        self.inner.core.guid.into()
    }

    /// Reads and resets INCONSISTENT_TOPIC (DDS 2.2.4.1).
    pub fn inconsistent_topic_status(&self) -> InconsistentTopicStatus {
        self.inner.core.with_statuses(TopicStatuses::inconsistent_topic)
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

impl Drop for TopicInner {
    fn drop(&mut self) {
        let guid = self.core.guid;
        self.core.status_condition.delete();
        self.participant.shared.retire(guid, |state| drop(state.topics.remove(&guid)));
    }
}
