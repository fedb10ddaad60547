//! The values of statuses (DDS 2.2.4.1). Each total has the change since it was read.
use crate::cache::RejectedReason;
use crate::id::InstanceHandle;
use crate::policy::PolicyId;

/// A status that counts events: INCONSISTENT_TOPIC, SAMPLE_LOST, LIVELINESS_LOST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedStatus {
    /// The events.
    pub total_count: u32,
    /// The events since the status was read.
    pub total_count_change: u32,
}

/// INCONSISTENT_TOPIC: topics of this name with types that exclude its own.
pub type InconsistentTopicStatus = CountedStatus;
/// SAMPLE_LOST: samples that did not arrive.
pub type SampleLostStatus = CountedStatus;
/// LIVELINESS_LOST: how often the writer did not show that it is alive.
pub type LivelinessLostStatus = CountedStatus;

/// OFFERED_DEADLINE_MISSED and REQUESTED_DEADLINE_MISSED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineMissedStatus {
    /// The periods without a sample, over all instances.
    pub total_count: u32,
    /// The number since the status was read.
    pub total_count_change: u32,
    /// The instance that missed its deadline last.
    pub last_instance_handle: Option<InstanceHandle>,
}

/// OFFERED_DEADLINE_MISSED, of a writer.
pub type OfferedDeadlineMissedStatus = DeadlineMissedStatus;
/// REQUESTED_DEADLINE_MISSED, of a reader.
pub type RequestedDeadlineMissedStatus = DeadlineMissedStatus;

/// The number of endpoints with which a policy was incompatible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyCount {
    /// The policy.
    pub policy: PolicyId,
    /// The endpoints.
    pub count: u32,
}

/// OFFERED_INCOMPATIBLE_QOS and REQUESTED_INCOMPATIBLE_QOS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncompatibleQosStatus {
    /// The endpoints with policies that were incompatible.
    pub total_count: u32,
    /// The number since the status was read.
    pub total_count_change: u32,
    /// One of the policies of the last such endpoint.
    pub last_policy: Option<PolicyId>,
    /// The policies, each with its count.
    pub policies: Vec<PolicyCount>,
}

/// OFFERED_INCOMPATIBLE_QOS, of a writer.
pub type OfferedIncompatibleQosStatus = IncompatibleQosStatus;
/// REQUESTED_INCOMPATIBLE_QOS, of a reader.
pub type RequestedIncompatibleQosStatus = IncompatibleQosStatus;

/// SAMPLE_REJECTED: samples for which RESOURCE_LIMITS left no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRejectedStatus {
    /// The samples.
    pub total_count: u32,
    /// The number since the status was read.
    pub total_count_change: u32,
    /// The limit that rejected the last one; `None` if none was rejected.
    pub last_reason: Option<RejectedReason>,
    /// The instance of the last one.
    pub last_instance_handle: Option<InstanceHandle>,
}

/// LIVELINESS_CHANGED: matched writers that are alive, and those that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LivelinessChangedStatus {
    /// The writers that are alive.
    pub alive_count: u32,
    /// The writers that are not.
    pub not_alive_count: u32,
    /// The change of the first since the status was read.
    pub alive_count_change: i32,
    /// The change of the second since the status was read.
    pub not_alive_count_change: i32,
    /// The writer that changed last.
    pub last_publication_handle: Option<InstanceHandle>,
}

/// PUBLICATION_MATCHED and SUBSCRIPTION_MATCHED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchedStatus {
    /// The endpoints that have matched.
    pub total_count: u32,
    /// The number since the status was read.
    pub total_count_change: u32,
    /// The endpoints that match now.
    pub current_count: u32,
    /// The change of this number since the status was read.
    pub current_count_change: i32,
    /// The endpoint that matched, or ceased to match, last.
    pub last_handle: Option<InstanceHandle>,
}

/// PUBLICATION_MATCHED, of a writer.
pub type PublicationMatchedStatus = MatchedStatus;
/// SUBSCRIPTION_MATCHED, of a reader.
pub type SubscriptionMatchedStatus = MatchedStatus;

/// A value with changes that are reset when it is read.
pub(super) trait Resets: Clone {
    fn reset(&mut self);

    /// Returns the value, and resets its changes.
    fn take(&mut self) -> Self {
        let value = self.clone();
        self.reset();
        value
    }
}

macro_rules! resets {
    ($($of:ty: $($field:ident),*;)*) => {$(
        impl Resets for $of {
            fn reset(&mut self) {
                $(self.$field = 0;)*
            }
        }
    )*};
}

resets! {
    CountedStatus: total_count_change;
    DeadlineMissedStatus: total_count_change;
    IncompatibleQosStatus: total_count_change;
    SampleRejectedStatus: total_count_change;
    LivelinessChangedStatus: alive_count_change, not_alive_count_change;
    MatchedStatus: total_count_change, current_count_change;
}

impl CountedStatus {
    pub(super) fn add(&mut self, count: u32) {
        self.total_count = self.total_count.saturating_add(count);
        self.total_count_change = self.total_count_change.saturating_add(count);
    }
}

impl DeadlineMissedStatus {
    pub(super) fn add(&mut self, instance: InstanceHandle, periods: u32) {
        self.total_count = self.total_count.saturating_add(periods);
        self.total_count_change = self.total_count_change.saturating_add(periods);
        self.last_instance_handle = Some(instance);
    }
}

impl IncompatibleQosStatus {
    pub(super) fn add(&mut self, policies: &[PolicyId]) {
        self.total_count = self.total_count.saturating_add(1);
        self.total_count_change = self.total_count_change.saturating_add(1);
        self.last_policy = policies.last().copied().or(self.last_policy);
        for policy in policies {
            match self.policies.iter_mut().find(|own| own.policy == *policy) {
                Some(own) => own.count = own.count.saturating_add(1),
                None => self.policies.push(PolicyCount { policy: *policy, count: 1 }),
            }
        }
    }
}

impl SampleRejectedStatus {
    pub(super) fn add(&mut self, reason: RejectedReason, instance: InstanceHandle) {
        self.total_count = self.total_count.saturating_add(1);
        self.total_count_change = self.total_count_change.saturating_add(1);
        (self.last_reason, self.last_instance_handle) = (Some(reason), Some(instance));
    }
}

impl LivelinessChangedStatus {
    /// Counts a writer whose liveliness was `before`, and is `now`; `None` if it does not match.
    pub(super) fn add(&mut self, writer: InstanceHandle, before: Option<bool>, now: Option<bool>) {
        let change = |alive| i32::from(now == Some(alive)) - i32::from(before == Some(alive));
        let (alive, not_alive) = (change(true), change(false));
        self.alive_count = self.alive_count.saturating_add_signed(alive);
        self.not_alive_count = self.not_alive_count.saturating_add_signed(not_alive);
        self.alive_count_change += alive;
        self.not_alive_count_change += not_alive;
        self.last_publication_handle = Some(writer);
    }
}

impl MatchedStatus {
    pub(super) fn add(&mut self, endpoint: InstanceHandle, matches: bool) {
        if matches {
            self.total_count = self.total_count.saturating_add(1);
            self.total_count_change = self.total_count_change.saturating_add(1);
        }
        let change = if matches { 1 } else { -1 };
        self.current_count = self.current_count.saturating_add_signed(change);
        self.current_count_change += change;
        self.last_handle = Some(endpoint);
    }
}
