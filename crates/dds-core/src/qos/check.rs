//! Checks of a set of policies: consistency and changes.
use super::supported::Supported;
use crate::error::{DdsError, PolicyConflict};
use crate::policy::{
    AckPoint, ConsistencyKind, ConsistencyQosPolicy, DataRepresentationQosPolicy, DeadlineQosPolicy,
    DurabilityQosPolicy, DurabilityQosPolicyKind, DurabilityServiceQosPolicy, HistoryQosPolicyKind, Length,
    LivelinessQosPolicy, Policy, PolicyId, ReadPoint, ReliabilityQosPolicy, ReliabilityQosPolicyKind, RepresentationId,
    ResourceLimitsQosPolicy,
};
use crate::time::DdsDuration;
use std::fmt;

/// A set of policies of one kind of entity.
pub trait QosSet: Clone + Default + PartialEq {
    /// The kind of entity, as errors name it.
    const ENTITY: &'static str;

    /// Checks that the policies can be honoured together, and that the driver honours each.
    ///
    /// # Errors
    /// `InconsistentPolicy` if values contradict each other, `Unsupported` if a value has no
    /// implementation.
    fn check(&self, supported: &Supported) -> Result<(), DdsError> {
        self.check_consistent()?;
        self.check_supported(supported)
    }

    /// Checks the part of [`QosSet::check`] that does not depend on the driver.
    ///
    /// # Errors
    /// As [`QosSet::check`].
    fn check_consistent(&self) -> Result<(), DdsError>;

    /// Checks the part of [`QosSet::check`] that depends on the driver.
    ///
    /// # Errors
    /// `Unsupported` with the policy and its value.
    fn check_supported(&self, supported: &Supported) -> Result<(), DdsError>;

    /// Returns each policy whose value differs, with both values.
    fn differences(&self, other: &Self) -> Vec<(PolicyId, String, String)>;

    /// Checks that an entity with this set may get another: `set_qos` (DDS 2.2.2.1.1.1).
    ///
    /// # Errors
    /// As [`QosSet::check`], and `ImmutablePolicy` if the entity is enabled and the policy can't change.
    fn check_change(&self, to: &Self, enabled: bool, supported: &Supported) -> Result<(), DdsError> {
        to.check(supported)?;
        let changes = self.differences(to);
        match changes.into_iter().find(|(policy, ..)| enabled && !policy.is_changeable()) {
            Some((policy, current, asked)) => {
                Err(DdsError::ImmutablePolicy { policy, entity: Self::ENTITY, current, asked })
            }
            None => Ok(()),
        }
    }
}

/// Adds a policy to the differences if its values differ.
pub(super) fn compare<T: Policy>(own: &T, other: &T, into: &mut Vec<(PolicyId, String, String)>) {
    if own != other {
        into.push((T::ID, own.to_string(), other.to_string()));
    }
}

type Checked = Result<(), DdsError>;

fn refuse(
    policy: PolicyId,
    value: &dyn fmt::Display,
    other: Option<(PolicyId, &dyn fmt::Display)>,
    rule: &'static str,
) -> Checked {
    let other = other.map(|(policy, value)| (policy, value.to_string()));
    Err(PolicyConflict { policy, value: value.to_string(), other, rule }.into())
}

/// Checks HISTORY against RESOURCE_LIMITS (DDS 2.2.3.18, 2.2.3.19).
pub(super) fn history(kind: HistoryQosPolicyKind, limits: &ResourceLimitsQosPolicy) -> Checked {
    limited(PolicyId::ResourceLimits, limits)?;
    depth(PolicyId::History, kind, PolicyId::ResourceLimits, limits)
}

/// Checks DURABILITY_SERVICE by itself (DDS 2.2.3.5).
pub(super) fn service(service: &DurabilityServiceQosPolicy) -> Checked {
    limited(PolicyId::DurabilityService, &service.limits)?;
    depth(PolicyId::DurabilityService, service.history_kind, PolicyId::DurabilityService, &service.limits)
}

fn limited(policy: PolicyId, limits: &ResourceLimitsQosPolicy) -> Checked {
    let all = [limits.max_samples, limits.max_instances, limits.max_samples_per_instance];
    if all.contains(&Length::Limited(0)) {
        return refuse(policy, limits, None, "a limit of 0 admits no sample: use 1 or more, or no limit");
    }
    if limits.max_samples.bound() < limits.max_samples_per_instance.bound()
        && limits.max_samples_per_instance != Length::Unlimited
    {
        let rule = "max_samples must be at least max_samples_per_instance";
        return refuse(policy, limits, None, rule);
    }
    Ok(())
}

fn depth(
    policy: PolicyId,
    kind: HistoryQosPolicyKind,
    limiting: PolicyId,
    limits: &ResourceLimitsQosPolicy,
) -> Checked {
    let HistoryQosPolicyKind::KeepLast(depth) = kind else { return Ok(()) };
    if depth == 0 {
        return refuse(policy, &kind, None, "the depth must be 1 or more");
    }
    if u64::from(depth) > limits.max_samples_per_instance.bound().min(limits.max_samples.bound()) {
        let rule = "the depth must be at most max_samples_per_instance and max_samples";
        return refuse(policy, &kind, Some((limiting, limits)), rule);
    }
    Ok(())
}

/// Checks that times which mean "never" are not zero.
pub(super) fn times(deadline: &DeadlineQosPolicy, liveliness: &LivelinessQosPolicy) -> Checked {
    if deadline.period == DdsDuration::ZERO {
        return refuse(PolicyId::Deadline, deadline, None, "the period must be longer than 0");
    }
    if liveliness.lease_duration == DdsDuration::ZERO {
        return refuse(PolicyId::Liveliness, liveliness, None, "the lease must be longer than 0");
    }
    Ok(())
}

/// Checks DEADLINE against TIME_BASED_FILTER (DDS 2.2.3.7).
pub(super) fn separation(deadline: &DeadlineQosPolicy, filter: &crate::policy::TimeBasedFilterQosPolicy) -> Checked {
    if deadline.period < filter.minimum_separation {
        let rule = "the period must be at least minimum_separation";
        return refuse(PolicyId::Deadline, deadline, Some((PolicyId::TimeBasedFilter, filter)), rule);
    }
    Ok(())
}

/// Refuses representations without an implementation.
pub(super) fn representation(representation: &DataRepresentationQosPolicy) -> Checked {
    if representation.list().contains(&RepresentationId::Xml) {
        let what = format!("{} {representation}", PolicyId::DataRepresentation);
        return Err(DdsError::Unsupported { what, remedy: "use XCDR or XCDR2" });
    }
    Ok(())
}

/// Refuses a writer or a topic that keeps samples which it may lose.
pub(super) fn kept(reliability: &ReliabilityQosPolicy, durability: &DurabilityQosPolicy) -> Checked {
    let lossy = reliability.kind == ReliabilityQosPolicyKind::BestEffort;
    if lossy && durability.kind != DurabilityQosPolicyKind::Volatile {
        let what = format!("a writer with RELIABILITY {} and DURABILITY {durability}", reliability.kind);
        return Err(DdsError::Unsupported { what, remedy: "use RELIABLE: only reliable samples are kept" });
    }
    Ok(())
}

/// Checks CONSISTENCY against RELIABILITY and DURABILITY.
pub(super) fn consistency(
    consistency: &ConsistencyQosPolicy,
    reliability: &ReliabilityQosPolicy,
    durability: &DurabilityQosPolicy,
) -> Checked {
    let derived = ConsistencyKind::derive(reliability.kind, durability.kind);
    let level = consistency.level(reliability.kind, durability.kind);
    let lossy = reliability.kind == ReliabilityQosPolicyKind::BestEffort;
    if lossy && level > ConsistencyKind::Unordered {
        let rule = "samples that may be lost have no order: use RELIABLE, or UNORDERED";
        return refuse(PolicyId::Consistency, consistency, Some((PolicyId::Reliability, &reliability.kind)), rule);
    }
    let unordered = level == ConsistencyKind::Unordered && durability.kind == DurabilityQosPolicyKind::Volatile;
    if level < derived && !unordered {
        let rule = "the level must keep what DURABILITY promises: use a stronger one, or derive it";
        return refuse(PolicyId::Consistency, consistency, Some((PolicyId::Durability, durability)), rule);
    }
    let logged = consistency.ack == AckPoint::Persisted || consistency.read == ReadPoint::Durable;
    if logged && level != ConsistencyKind::LoggedStorage {
        let rule = "PERSISTED and DURABLE need a log: use LOGGED_STORAGE, or DURABILITY PERSISTENT";
        return refuse(PolicyId::Consistency, consistency, Some((PolicyId::Durability, durability)), rule);
    }
    Ok(())
}
