//! The names of sessions and calls.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A session: the calls of one handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct SessionId {
    /// The id of the member that opened it.
    pub member: u64,
    /// A random number.
    pub nonce: u64,
}

/// A call. It may be stored, as text too, and its outcome be asked for by another process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct CallId {
    /// Its session.
    pub session: SessionId,
    /// Its number in the session.
    pub number: u64,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}-{}", self.session.member, self.session.nonce, self.number)
    }
}

/// A text is no id of a call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is no id of a call: expected member, nonce in hexadecimal and number, as in 3-00c0ffee00c0ffee-17")]
pub struct CallIdError {
    /// The text.
    pub text: String,
}

impl FromStr for CallId {
    type Err = CallIdError;

    fn from_str(text: &str) -> Result<CallId, CallIdError> {
        let mut parts = text.split('-');
        let mut next = |radix| parts.next().and_then(|part| u64::from_str_radix(part, radix).ok());
        match (next(10), next(16), next(10), parts.next()) {
            (Some(member), Some(nonce), Some(number), None) => {
                Ok(CallId { session: SessionId { member, nonce }, number })
            }
            _ => Err(CallIdError { text: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_as_text_and_other_texts_are_refused() {
        let id = CallId { session: SessionId { member: 3, nonce: u64::MAX }, number: 17 };
        assert_eq!(id.to_string(), "3-ffffffffffffffff-17");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "3-1", "3-1-2-4", "3-x-1", "99999999999999999999-1-1"] {
            assert_eq!(text.parse::<CallId>().unwrap_err().text, text);
        }
    }
}
