//! DEADLINE, LATENCY_BUDGET, TIME_BASED_FILTER, LIVELINESS and TRANSPORT_PRIORITY.
use super::id::{Policy, PolicyId};
use crate::time::DdsDuration;
use serde::{Deserialize, Serialize};
use std::fmt;

/// DEADLINE: the longest time between two samples of an instance (DDS 2.2.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeadlineQosPolicy {
    /// The period.
    pub period: DdsDuration,
}

impl Default for DeadlineQosPolicy {
    fn default() -> DeadlineQosPolicy {
        DeadlineQosPolicy { period: DdsDuration::INFINITE }
    }
}

impl Policy for DeadlineQosPolicy {
    const ID: PolicyId = PolicyId::Deadline;
}

impl fmt::Display for DeadlineQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.period.fmt(f)
    }
}

/// LATENCY_BUDGET: the delay that the application accepts (DDS 2.2.3.8). A hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LatencyBudgetQosPolicy {
    /// The delay.
    pub duration: DdsDuration,
}

impl Default for LatencyBudgetQosPolicy {
    fn default() -> LatencyBudgetQosPolicy {
        LatencyBudgetQosPolicy { duration: DdsDuration::ZERO }
    }
}

impl Policy for LatencyBudgetQosPolicy {
    const ID: PolicyId = PolicyId::LatencyBudget;
}

impl fmt::Display for LatencyBudgetQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.duration.fmt(f)
    }
}

/// TIME_BASED_FILTER: the shortest time between two samples of an instance (DDS 2.2.3.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimeBasedFilterQosPolicy {
    /// The separation.
    pub minimum_separation: DdsDuration,
}

impl Default for TimeBasedFilterQosPolicy {
    fn default() -> TimeBasedFilterQosPolicy {
        TimeBasedFilterQosPolicy { minimum_separation: DdsDuration::ZERO }
    }
}

impl Policy for TimeBasedFilterQosPolicy {
    const ID: PolicyId = PolicyId::TimeBasedFilter;
}

impl fmt::Display for TimeBasedFilterQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.minimum_separation.fmt(f)
    }
}

/// The sign by which a writer shows that it is alive (DDS 2.2.3.11). The order is that of offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LivelinessQosPolicyKind {
    /// Its process is a member of the view.
    #[default]
    Automatic,
    /// The application asserts any entity of the participant.
    ManualByParticipant,
    /// The application asserts the writer.
    ManualByTopic,
}

impl fmt::Display for LivelinessQosPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LivelinessQosPolicyKind::Automatic => "AUTOMATIC",
            LivelinessQosPolicyKind::ManualByParticipant => "MANUAL_BY_PARTICIPANT",
            LivelinessQosPolicyKind::ManualByTopic => "MANUAL_BY_TOPIC",
        })
    }
}

/// LIVELINESS (DDS 2.2.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LivelinessQosPolicy {
    /// The sign by which a writer shows that it is alive.
    pub kind: LivelinessQosPolicyKind,
    /// The time after which a writer without a sign of life is not alive.
    pub lease_duration: DdsDuration,
}

impl Default for LivelinessQosPolicy {
    fn default() -> LivelinessQosPolicy {
        LivelinessQosPolicy { kind: LivelinessQosPolicyKind::Automatic, lease_duration: DdsDuration::INFINITE }
    }
}

impl Policy for LivelinessQosPolicy {
    const ID: PolicyId = PolicyId::Liveliness;
}

impl fmt::Display for LivelinessQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, lease_duration {}", self.kind, self.lease_duration)
    }
}

/// TRANSPORT_PRIORITY (DDS 2.2.3.15). A hint, which never reorders samples of one order domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransportPriorityQosPolicy {
    /// The priority. The largest is the most urgent.
    pub value: i32,
}

impl Policy for TransportPriorityQosPolicy {
    const ID: PolicyId = PolicyId::TransportPriority;
}

impl fmt::Display for TransportPriorityQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
