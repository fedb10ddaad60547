//! The messages of an object in its subgroup.
//!
//! ```text
//! message = "SPO" | format (1 byte) | a Message, encoded by postcard
//! ```
//!
//! The numbers of variants and the order of fields are the format: changes need another format
//! number. `tests/formats.rs` has the bytes of each message.
use crate::id::{CallId, SessionId};
use crate::state_machine::FORMAT;
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 4] = [b'S', b'P', b'O', FORMAT];

/// A message of an object.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[non_exhaustive]
pub enum Message<'a> {
    /// Opens a session.
    Open {
        /// The session.
        session: SessionId,
        /// When it was sent, in microseconds since the Unix epoch.
        time_us: u64,
    },
    /// A call.
    Call {
        /// Its id. The machines execute one call of each id.
        id: CallId,
        /// When it was sent, in microseconds since the Unix epoch.
        time_us: u64,
        /// The number of the command.
        command: u32,
        /// The version that the command needs.
        since: u32,
        /// The encoded arguments.
        arguments: &'a [u8],
    },
    /// Asks for the outcome of a call. If the call was not executed, it never will be.
    Ask {
        /// The call.
        id: CallId,
        /// Names the question among those of its sender.
        nonce: u64,
    },
    /// Waits for its turn in the order, and changes nothing.
    Tick {
        /// Names the tick among those of its sender.
        nonce: u64,
    },
    /// A member that has joined declares what it can execute.
    Announce {
        /// The highest version of its commands.
        version: u32,
        /// The fingerprint of version 1, which counts if this is the first message of the object.
        fingerprint: u64,
    },
    /// Every member of the view has declared at least this version.
    Raise {
        /// The version.
        version: u32,
        /// The fingerprint of that version.
        fingerprint: u64,
    },
    /// The digest of the sender's state.
    Digest {
        /// The number of commands that had been executed.
        commands: u64,
        /// The digest.
        digest: u64,
    },
    /// The disk of the sender has all messages that the sender has logged, and a state with all before
    /// those. It changes nothing.
    Stored,
}

impl Message<'_> {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, MAGIC.to_vec()).expect("numbers and bytes of known length")
    }

    /// Decodes a message, whose arguments borrow from the bytes. Returns `None` if the bytes are no
    /// message of this format.
    pub fn decode(bytes: &[u8]) -> Option<Message<'_>> {
        match postcard::take_from_bytes(bytes.strip_prefix(&MAGIC)?) {
            Ok((message, [])) => Some(message),
            _ => None,
        }
    }
}
