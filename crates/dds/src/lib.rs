//! DDS 1.4 (DCPS) on ordered multicast.
#![forbid(unsafe_code)]
mod builder;
mod config;
mod data_reader;
mod data_writer;
mod driver;
mod participant;
mod participant_core;
mod payload;
mod planner;
mod publisher;
mod reader_core;
mod samples;
mod shared;
mod sync;
mod topic;
mod topic_core;
mod type_support;
mod writer_core;

pub use builder::TopicBuilder;
pub use config::{DomainConfig, supported};
pub use data_reader::{DataReader, SampleStream};
pub use data_writer::DataWriter;
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
pub use spindle_xcdr::DdsType;
pub use topic::Topic;
