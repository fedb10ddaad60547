//! The policies that a cache honours.
use crate::error::DdsError;
use crate::policy::{
    DestinationOrderQosPolicyKind, HistoryQosPolicyKind, OwnershipQosPolicyKind, PolicyId,
    PresentationQosPolicyAccessScopeKind, ReliabilityQosPolicyKind, ResourceLimitsQosPolicy,
};
use crate::qos::{DataReaderQos, QosSet, SubscriberQos};
use crate::time::DdsDuration;

/// The policies that a cache honours, as it uses them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSettings {
    pub(crate) history: HistoryQosPolicyKind,
    pub(crate) limits: ResourceLimitsQosPolicy,
    pub(crate) by_source: bool,
    pub(crate) exclusive: bool,
    pub(crate) reliable: bool,
    pub(crate) separation: DdsDuration,
    pub(crate) deadline: DdsDuration,
    pub(crate) purge_no_writers: DdsDuration,
    pub(crate) purge_disposed: DdsDuration,
    pub(crate) scope: PresentationQosPolicyAccessScopeKind,
    /// Whether coherent sets are seen as a whole.
    pub(crate) coherent: bool,
    /// Whether samples of several instances are seen in their order.
    pub(crate) ordered: bool,
}

impl CacheSettings {
    /// Takes the policies of a reader and its subscriber.
    pub(crate) fn new(reader: &DataReaderQos, subscriber: &SubscriberQos) -> Result<CacheSettings, DdsError> {
        reader.check_consistent()?;
        subscriber.check_consistent()?;
        let presentation = &subscriber.presentation;
        // Within one instance, sets group nothing and order is free (DDS 2.2.3.6).
        let wide = presentation.access_scope > PresentationQosPolicyAccessScopeKind::Instance;
        let settings = CacheSettings {
            history: reader.history.kind,
            limits: reader.resource_limits,
            by_source: reader.destination_order.kind == DestinationOrderQosPolicyKind::BySourceTimestamp,
            exclusive: reader.ownership.kind == OwnershipQosPolicyKind::Exclusive,
            reliable: reader.reliability.kind == ReliabilityQosPolicyKind::Reliable,
            separation: reader.time_based_filter.minimum_separation,
            deadline: reader.deadline.period,
            purge_no_writers: reader.reader_data_lifecycle.autopurge_nowriter_samples_delay,
            purge_disposed: reader.reader_data_lifecycle.autopurge_disposed_samples_delay,
            scope: presentation.access_scope,
            coherent: presentation.coherent_access && wide,
            ordered: presentation.ordered_access && wide,
        };
        if settings.coherent && settings.separation > DdsDuration::ZERO {
            let what = format!(
                "{} {} with coherent_access",
                PolicyId::TimeBasedFilter,
                reader.time_based_filter.minimum_separation
            );
            return Err(DdsError::Unsupported { what, remedy: "a set would be seen in part: use one of them" });
        }
        Ok(settings)
    }

    /// Returns whether reads must be between begin_access and end_access (DDS 2.2.2.5.2.8).
    pub(crate) fn needs_access(&self) -> bool {
        self.scope == PresentationQosPolicyAccessScopeKind::Group && (self.coherent || self.ordered)
    }
}
