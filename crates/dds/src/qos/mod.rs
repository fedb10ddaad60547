//! The sets of policies of each kind of entity (DDS 2.2.3).
//!
//! Each set has the defaults of the specification. [`QosSet::check`] refuses values that contradict
//! each other or that no part of Spindle honours, [`QosSet::check_change`] those that may not change.
mod check;
mod sets;

pub use check::QosSet;
pub use sets::{
    DataReaderQos, DataWriterQos, DomainParticipantFactoryQos, DomainParticipantQos, PublisherQos, SubscriberQos,
    TopicQos,
};
