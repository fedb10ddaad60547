//! The errors of DDS operations: the return codes of DCPS, each with its reason.
use crate::policy::PolicyId;
use crate::time::DdsDuration;
use std::fmt;

/// A return code of DCPS (DDS 2.2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum ReturnCode {
    /// The operation succeeded.
    Ok = 0,
    /// An error without a code of its own.
    Error = 1,
    /// The operation or the value is not supported.
    Unsupported = 2,
    /// An argument is invalid.
    BadParameter = 3,
    /// A condition for the operation does not hold.
    PreconditionNotMet = 4,
    /// A resource is exhausted.
    OutOfResources = 5,
    /// The entity is not enabled.
    NotEnabled = 6,
    /// A policy can't change after the entity is enabled.
    ImmutablePolicy = 7,
    /// Policies of one entity contradict each other.
    InconsistentPolicy = 8,
    /// The entity is deleted.
    AlreadyDeleted = 9,
    /// The operation timed out.
    Timeout = 10,
    /// There is no data.
    NoData = 11,
    /// The operation is invalid on this entity.
    IllegalOperation = 12,
}

/// Why an operation failed. The variants are the return codes of DDS 2.2.1.1, without `Ok`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DdsError {
    /// An error without a code of its own.
    #[error("{0}")]
    Error(String),
    /// The operation or the value is not supported.
    #[error("unsupported: {what}; {remedy}")]
    Unsupported {
        /// The operation, or the policy with its value.
        what: String,
        /// The alternative.
        remedy: &'static str,
    },
    /// An argument is invalid.
    #[error("bad parameter: {0}")]
    BadParameter(String),
    /// A condition for the operation does not hold.
    #[error("precondition not met: {what}; {remedy}")]
    PreconditionNotMet {
        /// The condition that does not hold.
        what: String,
        /// The step that makes it hold.
        remedy: &'static str,
    },
    /// A resource is exhausted.
    #[error("out of resources: {what} has {used} of {limit} in use; raise the limit, or take samples")]
    OutOfResources {
        /// The resource.
        what: &'static str,
        /// The units in use.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The entity is not enabled.
    #[error("the {0} is not enabled; call enable() first")]
    NotEnabled(&'static str),
    /// A policy can't change after the entity is enabled.
    #[error(
        "{policy} of a {entity} can't change from {current} to {asked} once it is enabled; create another {entity}"
    )]
    ImmutablePolicy {
        /// The policy.
        policy: PolicyId,
        /// The kind of entity.
        entity: &'static str,
        /// The value in force.
        current: String,
        /// The value that was asked for.
        asked: String,
    },
    /// Policies of one entity contradict each other.
    #[error(transparent)]
    InconsistentPolicy(#[from] PolicyConflict),
    /// The entity is deleted.
    #[error("the {0} is deleted; create another")]
    AlreadyDeleted(&'static str),
    /// The operation timed out.
    #[error("timeout: {what} took longer than {after}")]
    Timeout {
        /// The event that was awaited.
        what: &'static str,
        /// The duration of the wait.
        after: DdsDuration,
    },
    /// There is no data.
    #[error("no data: no sample has the requested states")]
    NoData,
    /// The operation is invalid on this entity.
    #[error("illegal operation: {what}; {remedy}")]
    IllegalOperation {
        /// The operation and the entity.
        what: String,
        /// The alternative.
        remedy: &'static str,
    },
}

impl DdsError {
    /// Returns the code.
    pub const fn code(&self) -> ReturnCode {
        match self {
            DdsError::Error(_) => ReturnCode::Error,
            DdsError::Unsupported { .. } => ReturnCode::Unsupported,
            DdsError::BadParameter(_) => ReturnCode::BadParameter,
            DdsError::PreconditionNotMet { .. } => ReturnCode::PreconditionNotMet,
            DdsError::OutOfResources { .. } => ReturnCode::OutOfResources,
            DdsError::NotEnabled(_) => ReturnCode::NotEnabled,
            DdsError::ImmutablePolicy { .. } => ReturnCode::ImmutablePolicy,
            DdsError::InconsistentPolicy(_) => ReturnCode::InconsistentPolicy,
            DdsError::AlreadyDeleted(_) => ReturnCode::AlreadyDeleted,
            DdsError::Timeout { .. } => ReturnCode::Timeout,
            DdsError::NoData => ReturnCode::NoData,
            DdsError::IllegalOperation { .. } => ReturnCode::IllegalOperation,
        }
    }
}

/// Two values of policies that contradict each other (DDS 2.2.3, INCONSISTENT_POLICY).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConflict {
    /// The policy that can't be honoured.
    pub policy: PolicyId,
    /// Its value.
    pub value: String,
    /// The policy that contradicts it, with its value; `None` if the value is impossible by itself.
    pub other: Option<(PolicyId, String)>,
    /// The rule that is broken, and the remedy.
    pub rule: &'static str,
}

impl fmt::Display for PolicyConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inconsistent policy: {} is {}", self.policy, self.value)?;
        if let Some((policy, value)) = &self.other {
            write!(f, " and {policy} is {value}")?;
        }
        write!(f, "; {}", self.rule)
    }
}

impl std::error::Error for PolicyConflict {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_codes_and_both_values() {
        let conflict = PolicyConflict {
            policy: PolicyId::Deadline,
            value: "1 ms".to_owned(),
            other: Some((PolicyId::TimeBasedFilter, "2 ms".to_owned())),
            rule: "raise the period",
        };
        let error = DdsError::from(conflict);
        assert_eq!(error.code(), ReturnCode::InconsistentPolicy);
        assert_eq!(error.code() as i32, 8);
        let expected = "inconsistent policy: DEADLINE is 1 ms and TIME_BASED_FILTER is 2 ms; raise the period";
        assert_eq!(error.to_string(), expected);
        assert_eq!(DdsError::NoData.code(), ReturnCode::NoData);
    }
}
