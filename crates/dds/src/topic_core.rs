//! A topic without its Rust type.
use crate::sync::lock;
use crate::type_support::TypeSupport;
use spindle_dds_core::Guid;
use spindle_dds_core::condition::StatusCondition;
use spindle_dds_core::matching::TopicRef;
use spindle_dds_core::qos::TopicQos;
use spindle_dds_core::status::TopicStatuses;
use std::sync::{Arc, Mutex};

/// A topic.
#[derive(Debug)]
pub(crate) struct TopicCore {
    pub(crate) guid: Guid,
    pub(crate) name: String,
    pub(crate) qos: TopicQos,
    pub(crate) support: Arc<TypeSupport>,
    statuses: Mutex<TopicStatuses>,
    pub(crate) status_condition: StatusCondition,
}

impl TopicCore {
    pub(crate) fn new(guid: Guid, name: String, qos: TopicQos, support: Arc<TypeSupport>) -> TopicCore {
        let (statuses, status_condition) = Default::default();
        TopicCore { guid, name, qos, support, statuses, status_condition }
    }

    /// Returns the topic as its endpoints name it.
    pub(crate) fn reference(&self) -> TopicRef {
        TopicRef { name: self.name.clone(), type_name: self.support.name.clone(), description: None }
    }

    /// Reads or changes the statuses.
    pub(crate) fn with_statuses<R>(&self, with: impl FnOnce(&mut TopicStatuses) -> R) -> R {
        let mut statuses = lock(&self.statuses);
        let found = with(&mut statuses);
        self.status_condition.store_changes(statuses.changes());
        drop(statuses);
        self.status_condition.signal();
        found
    }
}
