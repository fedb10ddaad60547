//! The snapshot of a machine, and its digest.
//!
//! ```text
//! snapshot = "SPOSNAP" | format (1 byte) | a body, encoded by postcard | XXH3-64 of all before (8 bytes, little-endian)
//! ```
//!
//! The body is a [`Head`] and then the object. Both are equal at all members after the same messages,
//! so the checksum is also the digest that members compare.
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::state_machine::{FORMAT, StateMachine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = [b'S', b'P', b'O', b'S', b'N', b'A', b'P', FORMAT];
const CHECKSUM_BYTES: usize = 8;

/// All that a machine has besides its object.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct Head {
    pub(crate) settings: Settings,
    /// The version of the group. Commands that need a later one are refused.
    pub(crate) enabled: u32,
    /// The fingerprint of that version, once a member has announced itself.
    pub(crate) fingerprint: Option<u64>,
    /// The number of messages so far.
    pub(crate) messages: u64,
    /// The number of commands that were executed.
    pub(crate) commands: u64,
    /// The time of the log, in microseconds since the Unix epoch.
    pub(crate) time_us: u64,
    pub(crate) sessions: Sessions,
    /// By member: the version that it has announced, and the index of that message.
    pub(crate) announced: BTreeMap<u64, (u32, u64)>,
}

/// Why a snapshot was not restored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The bytes are no snapshot of this format.
    #[error("these {len} bytes are no snapshot of an object in format {FORMAT}: run the same version at all members")]
    Format {
        /// Their number.
        len: u64,
    },
    /// The bytes have changed.
    #[error("the snapshot is damaged: its checksum is {got:016x}, and its bytes have {expected:016x}; take it again")]
    Checksum {
        /// The checksum of the bytes.
        expected: u64,
        /// The checksum in the snapshot.
        got: u64,
    },
    /// The body can't be decoded.
    #[error("the snapshot can't be decoded: {0}; the type has changed without another number of its state")]
    Body(postcard::Error),
    /// The decoded values contradict each other, or bytes are left.
    #[error("the snapshot contradicts itself: {what}; the type has changed without another number of its state")]
    Unsound {
        /// The contradiction.
        what: &'static str,
    },
    /// The group is at a later version than this program.
    #[error("the group is at version {group}, and this program at {mine}: run a newer program")]
    Version {
        /// The version of this program.
        mine: u32,
        /// The version of the group.
        group: u32,
    },
    /// The group has other commands, another state or other settings.
    #[error(
        "version {version} of this program has fingerprint {mine:016x}, and the group's has {group:016x}: commands, state number or \
         settings differ; run the same program with the same settings"
    )]
    Fingerprint {
        /// The version of the group.
        version: u32,
        /// The fingerprint of this program.
        mine: u64,
        /// The fingerprint of the group.
        group: u64,
    },
}

/// Returns the snapshot.
pub(crate) fn encode<T: StateMachine>(head: &Head, object: &T) -> Result<Vec<u8>, postcard::Error> {
    let mut bytes = postcard::to_extend(object, postcard::to_extend(head, MAGIC.to_vec())?)?;
    let digest = XxHash3_64::oneshot(&bytes);
    bytes.extend_from_slice(&digest.to_le_bytes());
    Ok(bytes)
}

/// Returns the digest that the snapshot ends with.
pub(crate) fn digest(snapshot: &[u8]) -> u64 {
    snapshot.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Decodes a snapshot.
///
/// # Errors
/// [`RestoreError`], for any bytes.
pub(crate) fn decode<T: StateMachine>(bytes: &[u8]) -> Result<(Head, T), RestoreError> {
    let no_snapshot = || RestoreError::Format { len: bytes.len() as u64 };
    let (hashed, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(no_snapshot)?;
    let body = hashed.strip_prefix(&MAGIC).ok_or_else(no_snapshot)?;
    let (expected, got) = (XxHash3_64::oneshot(hashed), u64::from_le_bytes(*checksum));
    if expected != got {
        return Err(RestoreError::Checksum { expected, got });
    }
    let (head, rest): (Head, _) = postcard::take_from_bytes(body).map_err(RestoreError::Body)?;
    if !head.sessions.is_sound() {
        return Err(RestoreError::Unsound { what: "the sessions do not fit together" });
    }
    let (object, rest) = postcard::take_from_bytes(rest).map_err(RestoreError::Body)?;
    if !rest.is_empty() {
        return Err(RestoreError::Unsound { what: "bytes follow the object" });
    }
    Ok((head, object))
}
