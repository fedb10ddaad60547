//! DDS 1.4 (DCPS) on ordered multicast: all readers of a topic get its samples in one order, and a sample of a writer
//! that fails reaches all of them or none.
//!
//! ```text
//! DomainParticipant --create_topic()--> Topic
//!    |   \--create_publisher()--> Publisher --create_datawriter()--> DataWriter: write
//!    |    \-create_subscriber()--> Subscriber --create_datareader()--> DataReader: read, take
//!    \--topic(): writers and readers with few words
//! ```
//!
//! The names are those of the specification, in snake case. Policies that are not honoured are refused
//! ([`supported`]). The state machines are in `spindle-dds-core`, and the types in `spindle-xcdr`.
//!
//! **Absent on purpose:** an async runtime and global state: no factory knows all participants.
#![forbid(unsafe_code)]
mod builder;
mod config;
mod data_reader;
mod data_writer;
mod driver;
mod dynamic;
mod outcome;
mod participant;
mod participant_core;
mod payload;
mod planner;
mod publisher;
mod reader_core;
mod samples;
mod shared;
mod status_methods;
mod sync;
mod topic;
mod topic_core;
mod type_support;
mod writer_core;

pub use builder::TopicBuilder;
pub use config::{DomainConfig, supported};
pub use data_reader::{DataReader, SampleStream};
pub use data_writer::DataWriter;
pub use dynamic::{DynamicReader, DynamicSample, DynamicTopic, DynamicWriter, TopicType};
pub use participant::DomainParticipant;
pub use publisher::{Publisher, Subscriber};
pub use samples::{Sample, Samples};
pub use spindle_dds_core::condition::{
    Condition, GuardCondition, QueryCondition, ReadCondition, StatusCondition, WaitSet,
};
pub use spindle_dds_core::{
    DdsDuration, DdsError, DdsTime, Guid, InstanceHandle, Position, ReturnCode, cache, directory, filter, instance,
    matching, policy, qos, status,
};
pub use spindle_xcdr as xcdr;
pub use spindle_xcdr::DdsTypeOfDds as DdsType;
pub use spindle_xcdr::traits::DdsType;
pub use topic::Topic;

/// The examples of the guide, compiled and run as documentation tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../guide/dds.md")]
    struct Guide;
}
