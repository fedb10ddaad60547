//! Communication statuses and listeners (DDS 2.2.4).
//!
//! [`ReaderStatuses`], [`WriterStatuses`], [`TopicStatuses`] and [`SubscriberStatuses`] count events, and
//! remember which statuses have changed. [`find_listener`] says whose listener is called. A status and its
//! change are read and reset by one call, as are both by a call of a listener.
mod entities;
mod kind;
mod listener;
mod values;

pub use entities::{ReaderStatuses, SubscriberStatuses, TopicStatuses, WriterStatuses};
pub use kind::{StatusKind, StatusMask};
pub use listener::{Level, ListenerMask, find_listener, find_reader_call};
pub use values::{
    CountedStatus, DeadlineMissedStatus, IncompatibleQosStatus, InconsistentTopicStatus, LivelinessChangedStatus,
    LivelinessLostStatus, MatchedStatus, OfferedDeadlineMissedStatus, OfferedIncompatibleQosStatus, PolicyCount,
    PublicationMatchedStatus, RequestedDeadlineMissedStatus, RequestedIncompatibleQosStatus, SampleLostStatus,
    SampleRejectedStatus, SubscriptionMatchedStatus,
};
