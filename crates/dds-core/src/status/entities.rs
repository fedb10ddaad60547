//! The statuses of each kind of entity: how events change them, and how they are read.
use super::kind::{StatusKind, StatusMask};
use super::values::*;
use crate::cache::Effects;
use crate::id::InstanceHandle;
use crate::policy::PolicyId;

/// Declares that an entity has statuses, each with a method that reads and resets it.
macro_rules! readers {
    ($($(#[$doc:meta])* $method:ident: $field:ident, $value:ty, $kind:ident;)*) => {$(
        $(#[$doc])*
        pub fn $method(&mut self) -> $value {
            self.changed = self.changed.without(StatusKind::$kind);
            self.$field.take()
        }
    )*};
}

/// The statuses of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicStatuses {
    changed: StatusMask,
    inconsistent: InconsistentTopicStatus,
}

impl TopicStatuses {
    /// Counts a topic of the same name with a type that excludes this one's.
    pub fn count_inconsistent(&mut self) {
        self.inconsistent.add(1);
        self.changed = self.changed.with(StatusKind::InconsistentTopic);
    }

    /// Returns the statuses that have changed: `get_status_changes` (DDS 2.2.2.1.1.6).
    pub fn changes(&self) -> StatusMask {
        self.changed
    }

    readers! {
        /// Reads and resets INCONSISTENT_TOPIC.
        inconsistent_topic: inconsistent, InconsistentTopicStatus, InconsistentTopic;
    }
}

/// The statuses of a writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterStatuses {
    changed: StatusMask,
    lost: LivelinessLostStatus,
    deadline: OfferedDeadlineMissedStatus,
    incompatible: OfferedIncompatibleQosStatus,
    matched: PublicationMatchedStatus,
}

impl WriterStatuses {
    /// Counts a lease that the writer let pass.
    pub fn count_liveliness_lost(&mut self) {
        self.lost.add(1);
        self.changed = self.changed.with(StatusKind::LivelinessLost);
    }

    /// Counts periods in which the writer did not write an instance.
    pub fn count_deadline_missed(&mut self, instance: InstanceHandle, periods: u32) {
        self.deadline.add(instance, periods);
        self.changed = self.changed.with(StatusKind::OfferedDeadlineMissed);
    }

    /// Counts a reader that requests more than the writer offers. Without policies nothing is counted.
    pub fn count_incompatible(&mut self, policies: &[PolicyId]) {
        if !policies.is_empty() {
            self.incompatible.add(policies);
            self.changed = self.changed.with(StatusKind::OfferedIncompatibleQos);
        }
    }

    /// Counts a reader that matches, or no longer does.
    pub fn count_matched(&mut self, reader: InstanceHandle, matches: bool) {
        self.matched.add(reader, matches);
        self.changed = self.changed.with(StatusKind::PublicationMatched);
    }

    /// Returns the statuses that have changed: `get_status_changes` (DDS 2.2.2.1.1.6).
    pub fn changes(&self) -> StatusMask {
        self.changed
    }

    readers! {
        /// Reads and resets LIVELINESS_LOST.
        liveliness_lost: lost, LivelinessLostStatus, LivelinessLost;
        /// Reads and resets OFFERED_DEADLINE_MISSED.
        offered_deadline_missed: deadline, OfferedDeadlineMissedStatus, OfferedDeadlineMissed;
        /// Reads and resets OFFERED_INCOMPATIBLE_QOS.
        offered_incompatible_qos: incompatible, OfferedIncompatibleQosStatus, OfferedIncompatibleQos;
        /// Reads and resets PUBLICATION_MATCHED.
        publication_matched: matched, PublicationMatchedStatus, PublicationMatched;
    }
}

/// The statuses of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReaderStatuses {
    changed: StatusMask,
    lost: SampleLostStatus,
    rejected: SampleRejectedStatus,
    deadline: RequestedDeadlineMissedStatus,
    incompatible: RequestedIncompatibleQosStatus,
    liveliness: LivelinessChangedStatus,
    matched: SubscriptionMatchedStatus,
}

impl ReaderStatuses {
    /// Counts what an event did to the cache. Returns the statuses that it changed.
    pub fn apply(&mut self, effects: &Effects) -> StatusMask {
        let mut found = StatusMask::NONE;
        if effects.data_available {
            found = found.with(StatusKind::DataAvailable);
        }
        if effects.lost > 0 {
            self.lost.add(effects.lost);
            found = found.with(StatusKind::SampleLost);
        }
        for (reason, instance) in &effects.rejected {
            self.rejected.add(*reason, *instance);
            found = found.with(StatusKind::SampleRejected);
        }
        for missed in &effects.deadlines {
            self.deadline.add(missed.instance, missed.periods);
            found = found.with(StatusKind::RequestedDeadlineMissed);
        }
        for own in &effects.liveness {
            self.liveliness.add(own.writer.into(), own.before, own.now);
            found = found.with(StatusKind::LivelinessChanged);
            if own.before.is_none() || own.now.is_none() {
                self.matched.add(own.writer.into(), own.now.is_some());
                found = found.with(StatusKind::SubscriptionMatched);
            }
        }
        self.changed = StatusMask::from_bits(self.changed.bits() | found.bits());
        found
    }

    /// Counts a writer that offers less than the reader requests. Without policies nothing is counted.
    pub fn count_incompatible(&mut self, policies: &[PolicyId]) {
        if !policies.is_empty() {
            self.incompatible.add(policies);
            self.changed = self.changed.with(StatusKind::RequestedIncompatibleQos);
        }
    }

    /// Resets DATA_AVAILABLE: samples were read or taken, or its listener was called (DDS 2.2.4.2.2).
    pub fn reset_data_available(&mut self) {
        self.changed = self.changed.without(StatusKind::DataAvailable);
    }

    /// Returns the statuses that have changed: `get_status_changes` (DDS 2.2.2.1.1.6).
    pub fn changes(&self) -> StatusMask {
        self.changed
    }

    readers! {
        /// Reads and resets SAMPLE_LOST.
        sample_lost: lost, SampleLostStatus, SampleLost;
        /// Reads and resets SAMPLE_REJECTED.
        sample_rejected: rejected, SampleRejectedStatus, SampleRejected;
        /// Reads and resets REQUESTED_DEADLINE_MISSED.
        requested_deadline_missed: deadline, RequestedDeadlineMissedStatus, RequestedDeadlineMissed;
        /// Reads and resets REQUESTED_INCOMPATIBLE_QOS.
        requested_incompatible_qos: incompatible, RequestedIncompatibleQosStatus, RequestedIncompatibleQos;
        /// Reads and resets LIVELINESS_CHANGED.
        liveliness_changed: liveliness, LivelinessChangedStatus, LivelinessChanged;
        /// Reads and resets SUBSCRIPTION_MATCHED.
        subscription_matched: matched, SubscriptionMatchedStatus, SubscriptionMatched;
    }
}

/// The status of a subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriberStatuses {
    changed: StatusMask,
}

impl SubscriberStatuses {
    /// Sets DATA_ON_READERS: a reader has new samples.
    pub fn set_data_on_readers(&mut self) {
        self.changed = self.changed.with(StatusKind::DataOnReaders);
    }

    /// Resets DATA_ON_READERS: its listener or `on_data_available` of a reader was called, or samples of a
    /// reader were read (DDS 2.2.4.2.2).
    pub fn reset_data_on_readers(&mut self) {
        self.changed = self.changed.without(StatusKind::DataOnReaders);
    }

    /// Returns the statuses that have changed: `get_status_changes` (DDS 2.2.2.1.1.6).
    pub fn changes(&self) -> StatusMask {
        self.changed
    }
}
