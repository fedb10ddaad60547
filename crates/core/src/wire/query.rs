//! The reasons why a member does not answer a query, in control messages.
use super::bytes::{Reader, WireError, Writer};

/// Why a member does not answer a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoAnswer {
    /// Its application answers no queries, or gave this one up.
    #[error("its application answers no such queries")]
    Unanswered,
    /// It has as many queries as it takes at once.
    #[error("it has as many queries as it takes at once")]
    Busy,
    /// The answer is too long.
    #[error("the answer has {bytes} bytes, which is too long")]
    TooLong {
        /// The bytes of the answer.
        bytes: u64,
    },
}

impl NoAnswer {
    pub(super) fn put(self, out: &mut Writer) {
        match self {
            NoAnswer::Unanswered => out.u32(0),
            NoAnswer::Busy => out.u32(1),
            NoAnswer::TooLong { bytes } => {
                out.u32(2);
                out.u64(bytes);
            }
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<NoAnswer, WireError> {
        Ok(match from.u32()? {
            0 => NoAnswer::Unanswered,
            1 => NoAnswer::Busy,
            2 => NoAnswer::TooLong { bytes: from.u64()? },
            _ => return Err(WireError::Value { field: "reason for no answer" }),
        })
    }
}
