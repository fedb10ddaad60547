//! The sets of policies of each kind of entity (DDS 2.2.3).
//!
//! Each set has the defaults of the specification. [`QosSet::check`] refuses values that contradict
//! each other, and those that the driver does not honour ([`Supported`]). [`QosSet::check_change`] refuses
//! changes that the specification forbids.
mod check;
#[cfg(feature = "profiles")]
pub mod profile;
mod sets;
mod supported;

pub use check::QosSet;
pub use sets::{
    DataReaderQos, DataWriterQos, DomainParticipantFactoryQos, DomainParticipantQos, PublisherQos, SubscriberQos,
    TopicQos,
};
pub use supported::Supported;
