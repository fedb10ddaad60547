//! ENTITY_FACTORY, WRITER_DATA_LIFECYCLE and READER_DATA_LIFECYCLE.
use super::id::{Policy, PolicyId};
use crate::time::DdsDuration;
use serde::{Deserialize, Serialize};
use std::fmt;

/// ENTITY_FACTORY: whether created entities are enabled at once (DDS 2.2.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EntityFactoryQosPolicy {
    /// Whether `create_*` enables the entity.
    pub autoenable_created_entities: bool,
}

impl Default for EntityFactoryQosPolicy {
    fn default() -> EntityFactoryQosPolicy {
        EntityFactoryQosPolicy { autoenable_created_entities: true }
    }
}

impl Policy for EntityFactoryQosPolicy {
    const ID: PolicyId = PolicyId::EntityFactory;
}

impl fmt::Display for EntityFactoryQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autoenable_created_entities {}", self.autoenable_created_entities)
    }
}

/// WRITER_DATA_LIFECYCLE: whether unregistering disposes, too (DDS 2.2.3.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WriterDataLifecycleQosPolicy {
    /// Whether an instance that is unregistered is disposed.
    pub autodispose_unregistered_instances: bool,
}

impl Default for WriterDataLifecycleQosPolicy {
    fn default() -> WriterDataLifecycleQosPolicy {
        WriterDataLifecycleQosPolicy { autodispose_unregistered_instances: true }
    }
}

impl Policy for WriterDataLifecycleQosPolicy {
    const ID: PolicyId = PolicyId::WriterDataLifecycle;
}

impl fmt::Display for WriterDataLifecycleQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autodispose_unregistered_instances {}", self.autodispose_unregistered_instances)
    }
}

/// READER_DATA_LIFECYCLE: how long a reader keeps instances that are not alive (DDS 2.2.3.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReaderDataLifecycleQosPolicy {
    /// The delay after an instance has lost its last writer.
    pub autopurge_nowriter_samples_delay: DdsDuration,
    /// The delay after an instance is disposed.
    pub autopurge_disposed_samples_delay: DdsDuration,
}

impl Default for ReaderDataLifecycleQosPolicy {
    fn default() -> ReaderDataLifecycleQosPolicy {
        ReaderDataLifecycleQosPolicy {
            autopurge_nowriter_samples_delay: DdsDuration::INFINITE,
            autopurge_disposed_samples_delay: DdsDuration::INFINITE,
        }
    }
}

impl Policy for ReaderDataLifecycleQosPolicy {
    const ID: PolicyId = PolicyId::ReaderDataLifecycle;
}

impl fmt::Display for ReaderDataLifecycleQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autopurge_nowriter_samples_delay {}, ", self.autopurge_nowriter_samples_delay)?;
        write!(f, "autopurge_disposed_samples_delay {}", self.autopurge_disposed_samples_delay)
    }
}
