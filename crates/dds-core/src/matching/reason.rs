//! Why a writer and a reader don't match.
use crate::policy::{IncompatiblePolicy, PolicyId};
use spindle_xcdr::NotAssignable;
use std::fmt;

/// One reason why a writer and a reader don't match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// They have different topics.
    Topic {
        /// The writer's topic.
        writer: String,
        /// The reader's topic.
        reader: String,
        /// Whether the names are so close that one is probably a mistake.
        close: bool,
    },
    /// The types have different names, and one side has no type description.
    TypeName {
        /// The name of the writer's type.
        writer: String,
        /// The name of the reader's type.
        reader: String,
        /// Whether the names are so close that one is probably a mistake.
        close: bool,
    },
    /// One side has no type description, and the reader demands it.
    TypeUnknown {
        /// The side without a description: `reader` or `writer`.
        side: &'static str,
        /// The name of its type.
        name: String,
    },
    /// The reader can't read the writer's type.
    Type {
        /// The name of the writer's type.
        writer: String,
        /// The name of the reader's type.
        reader: String,
        /// The member and the rule.
        rule: Box<NotAssignable>,
    },
    /// One side has a key, and the other has none.
    Key {
        /// The side with a key.
        keyed: &'static str,
    },
    /// No partition of the writer matches one of the reader.
    Partition {
        /// The writer's names.
        writer: String,
        /// The reader's names.
        reader: String,
        /// The probable mistake.
        hint: PartitionHint,
    },
    /// The writer offers less than the reader requests.
    Policy(IncompatiblePolicy),
}

/// The probable mistake in lists of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionHint {
    /// None is known.
    None,
    /// Two names differ by a character, or by case.
    Close {
        /// The writer's name.
        writer: String,
        /// The reader's name.
        reader: String,
    },
    /// Both sides have patterns only, which never match each other.
    Patterns,
    /// One side has the default partition, and the other has none that matches it.
    Default {
        /// The side with the default partition.
        side: &'static str,
    },
}

impl Mismatch {
    /// Returns the policy that counts in OFFERED_INCOMPATIBLE_QOS and REQUESTED_INCOMPATIBLE_QOS
    /// (DDS 2.2.4.1); `None` for reasons that the specification does not report there.
    pub fn policy(&self) -> Option<PolicyId> {
        match self {
            Mismatch::Policy(found) => Some(found.policy),
            _ => None,
        }
    }

    /// Returns whether the topics have one name and types that exclude each other, which counts in
    /// INCONSISTENT_TOPIC.
    pub fn is_inconsistent_topic(&self) -> bool {
        matches!(
            self,
            Mismatch::TypeName { .. } | Mismatch::TypeUnknown { .. } | Mismatch::Type { .. } | Mismatch::Key { .. }
        )
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let probable = |close: &bool| if *close { "; one is probably mistyped" } else { "" };
        match self {
            Mismatch::Topic { writer, reader, close } => {
                write!(f, "topic: the writer has '{writer}', the reader '{reader}'{}", probable(close))
            }
            Mismatch::TypeName { writer, reader, close } => write!(
                f,
                "type: the writer has '{writer}', the reader '{reader}', and a side has no description by which \
                 they could be compared{}",
                probable(close)
            ),
            Mismatch::TypeUnknown { side, name } => write!(
                f,
                "type: the {side} has no description of its type '{name}', and the reader has \
                 force_type_validation; describe the type, or clear that flag"
            ),
            Mismatch::Type { writer, reader, rule } => {
                write!(f, "type: the writer has '{writer}', the reader '{reader}': {rule}")
            }
            Mismatch::Key { keyed } => {
                write!(f, "type: only the {keyed}'s type has a key; both types must have the same key")
            }
            Mismatch::Partition { writer, reader, hint } => {
                write!(f, "PARTITION: the writer is in {writer}, the reader in {reader}{hint}")
            }
            Mismatch::Policy(found) => found.fmt(f),
        }
    }
}

impl fmt::Display for PartitionHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionHint::None => f.write_str("; give both a common name"),
            PartitionHint::Close { writer, reader } => {
                write!(f, "; '{writer}' and '{reader}' differ by little, one is probably mistyped")
            }
            PartitionHint::Patterns => f.write_str("; patterns never match each other: name a partition at one side"),
            PartitionHint::Default { side } => {
                write!(f, "; the {side} is in the default partition: set its PARTITION, or use '*' at the other side")
            }
        }
    }
}
