//! The messages of an order domain, and their format.
//!
//! All numbers are little-endian. The first byte of a message is its kind.
//!
//! | kind | message | contents |
//! |---|---|---|
//! | 1 | change | kind of the change (1 byte), flags (1): 1 = has an instance, 2 = is in a set; 0 (1); number of the writer (4); source timestamp (8, signed, ns); instance (16, with flag 1); number of the set (8, with flag 2); the sample, or the key |
//! | 2 | fence | 0 (7); version of the directory (8) |
//! | 3 | end of a set | 0 (7); source (16) and number (8) of the set; for each writer: its number (4), its changes (4) |
//! | 4 | set given up | 0 (7); source (16) and number (8) of the set |
//! | 5 | verdict on a deadline | 0 (3); number of the writer (4); instance (16); position of its last change: view (8), sequence number (8), index (4) |
use crate::cache::{ChangeKind, SetId};
use crate::id::{Guid, InstanceHandle};
use crate::time::DdsTime;

/// Bytes of the parts of a change that it always has.
const CHANGE_BYTES: usize = 16;
/// The kind of a change.
const CHANGE: u8 = 1;
/// The kind of the end of a set.
const SET_END: u8 = 3;
const HAS_INSTANCE: u8 = 1;
const IN_SET: u8 = 2;

/// A message of an order domain. Writers are named by their [numbers](crate::directory::Directory::writer_number).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamMessage<'a> {
    /// A writer changed an instance.
    Change(ChangeMessage<'a>),
    /// Changes of the directory up to this version take effect.
    Fence(u64),
    /// A coherent set has ended.
    SetEnd {
        /// The set.
        set: SetId,
        /// The writers in the set, and how many changes each has in it.
        changes: Vec<(u32, u32)>,
    },
    /// A coherent set was given up.
    SetAbandoned(SetId),
    /// The owner of an instance has missed its DEADLINE, unless it has written since.
    Verdict {
        /// The owner.
        writer: u32,
        /// The instance.
        instance: InstanceHandle,
        /// The view, the sequence number and the index of its last change.
        last: (u64, u64, u32),
    },
}

/// A change of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMessage<'a> {
    /// The writer.
    pub writer: u32,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The instance.
    pub instance: InstanceHandle,
    /// When the writer did it.
    pub source_timestamp: DdsTime,
    /// The number of the coherent set to which the change belongs.
    pub set: Option<u64>,
    /// The serialised sample; for other changes than writes, the serialised key.
    pub payload: &'a [u8],
}

/// Why the bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message ends too early.
    #[error("the message ends after {length} bytes within {what}; the sender runs another version, or is broken")]
    Truncated {
        /// The length of the message.
        length: usize,
        /// The part that is incomplete.
        what: &'static str,
    },
    /// A value has no meaning.
    #[error("{what} is {value}; the sender runs another version, or is broken")]
    Value {
        /// The part.
        what: &'static str,
        /// The value.
        value: u64,
    },
}

/// Returns the code of a kind of change.
fn code_of(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::Write => 0,
        ChangeKind::Register => 1,
        ChangeKind::Dispose => 2,
        ChangeKind::Unregister => 3,
        ChangeKind::DisposeUnregister => 4,
    }
}

/// Returns the kind of change that a code means.
fn kind_of(code: u8) -> Result<ChangeKind, MessageError> {
    Ok(match code {
        0 => ChangeKind::Write,
        1 => ChangeKind::Register,
        2 => ChangeKind::Dispose,
        3 => ChangeKind::Unregister,
        4 => ChangeKind::DisposeUnregister,
        value => return Err(MessageError::Value { what: "the kind of a change", value: value.into() }),
    })
}

impl ChangeMessage<'_> {
    /// Returns the bytes of the message in front of the payload.
    pub fn header_bytes(&self) -> usize {
        let instance = if self.instance == InstanceHandle::KEYLESS { 0 } else { 16 };
        CHANGE_BYTES + instance + if self.set.is_some() { 8 } else { 0 }
    }

    /// Writes the header. The payload follows it, and may be written in place.
    ///
    /// # Panics
    /// Panics if `into` is shorter than [`ChangeMessage::header_bytes`].
    pub fn write_header(&self, into: &mut [u8]) {
        let keyed = self.instance != InstanceHandle::KEYLESS;
        let flags = if keyed { HAS_INSTANCE } else { 0 } | if self.set.is_some() { IN_SET } else { 0 };
        into[..4].copy_from_slice(&[CHANGE, code_of(self.kind), flags, 0]);
        into[4..8].copy_from_slice(&self.writer.to_le_bytes());
        into[8..16].copy_from_slice(&self.source_timestamp.as_nanos().to_le_bytes());
        let mut at = CHANGE_BYTES;
        if keyed {
            into[at..at + 16].copy_from_slice(&self.instance.0);
            at += 16;
        }
        if let Some(number) = self.set {
            into[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
    }
}

impl<'a> StreamMessage<'a> {
    /// Returns the message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let head = |kind: u8, writer: u32| {
            let mut bytes = vec![kind, 0, 0, 0];
            bytes.extend(writer.to_le_bytes());
            bytes
        };
        match self {
            StreamMessage::Change(change) => {
                let mut bytes = vec![0; change.header_bytes()];
                change.write_header(&mut bytes);
                bytes.extend(change.payload);
                bytes
            }
            StreamMessage::Fence(version) => {
                let mut bytes = head(2, 0);
                bytes.extend(version.to_le_bytes());
                bytes
            }
            StreamMessage::SetEnd { set, changes } => {
                let mut bytes = head(SET_END, 0);
                bytes.extend(set.source.0);
                bytes.extend(set.number.to_le_bytes());
                changes.iter().for_each(|(writer, count)| {
                    bytes.extend(writer.to_le_bytes());
                    bytes.extend(count.to_le_bytes());
                });
                bytes
            }
            StreamMessage::SetAbandoned(set) => {
                let mut bytes = head(4, 0);
                bytes.extend(set.source.0);
                bytes.extend(set.number.to_le_bytes());
                bytes
            }
            StreamMessage::Verdict { writer, instance, last } => {
                let mut bytes = head(5, *writer);
                bytes.extend(instance.0);
                bytes.extend(last.0.to_le_bytes());
                bytes.extend(last.1.to_le_bytes());
                bytes.extend(last.2.to_le_bytes());
                bytes
            }
        }
    }

    /// Returns the number of the writer that has sent these bytes, a change or the end of a set; `None` for
    /// other messages. A set has the number of its first writer.
    pub fn writer_of(bytes: &[u8]) -> Option<u32> {
        let at = match *bytes.first()? {
            CHANGE => 4,
            SET_END => 32,
            _ => return None,
        };
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    }

    /// Reads a message. It borrows the payload.
    ///
    /// # Errors
    /// [`MessageError`] with the part that is wrong.
    pub fn decode(bytes: &'a [u8]) -> Result<StreamMessage<'a>, MessageError> {
        let mut left = Reader { left: bytes, length: bytes.len() };
        let [kind, code, flags, reserved] = left.array("the head")?;
        let writer = u32::from_le_bytes(left.array("the writer")?);
        let used = match kind {
            1 => reserved != 0 || flags & !(HAS_INSTANCE | IN_SET) != 0,
            5 => code != 0 || flags != 0 || reserved != 0,
            _ => code != 0 || flags != 0 || reserved != 0 || writer != 0,
        };
        if used {
            let value = u32::from_le_bytes([kind, code, flags, reserved]);
            return Err(MessageError::Value { what: "the head of the message", value: value.into() });
        }
        let message = match kind {
            1 => {
                let kind = kind_of(code)?;
                let source_timestamp = DdsTime::from_nanos(i64::from_le_bytes(left.array("the source timestamp")?));
                let instance = match flags & HAS_INSTANCE {
                    0 => InstanceHandle::KEYLESS,
                    _ => InstanceHandle(left.array("the instance")?),
                };
                let set = match flags & IN_SET {
                    0 => None,
                    _ => Some(u64::from_le_bytes(left.array("the number of the set")?)),
                };
                let payload = left.left;
                let change = ChangeMessage { writer, kind, instance, source_timestamp, set, payload };
                return Ok(StreamMessage::Change(change));
            }
            2 => StreamMessage::Fence(u64::from_le_bytes(left.array("the version of the directory")?)),
            3 => {
                let set = left.set()?;
                let mut changes = Vec::new();
                while !left.left.is_empty() {
                    let writer = u32::from_le_bytes(left.array("a writer of the set")?);
                    changes.push((writer, u32::from_le_bytes(left.array("its changes")?)));
                }
                StreamMessage::SetEnd { set, changes }
            }
            4 => StreamMessage::SetAbandoned(left.set()?),
            5 => {
                let instance = InstanceHandle(left.array("the instance")?);
                let view = u64::from_le_bytes(left.array("the view")?);
                let seq = u64::from_le_bytes(left.array("the sequence number")?);
                let last = (view, seq, u32::from_le_bytes(left.array("the index")?));
                StreamMessage::Verdict { writer, instance, last }
            }
            other => return Err(MessageError::Value { what: "the kind of the message", value: other.into() }),
        };
        match left.left.len() {
            0 => Ok(message),
            more => Err(MessageError::Value { what: "the number of bytes behind the message", value: more as u64 }),
        }
    }
}

/// The rest of a message.
struct Reader<'a> {
    left: &'a [u8],
    length: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], MessageError> {
        let (own, rest) = self.left.split_first_chunk().ok_or(MessageError::Truncated { length: self.length, what })?;
        self.left = rest;
        Ok(*own)
    }

    fn set(&mut self) -> Result<SetId, MessageError> {
        let source = Guid(self.array("the source of the set")?);
        Ok(SetId { source, number: u64::from_le_bytes(self.array("the number of the set")?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_trip_and_cuts_are_noticed() {
        let change = |instance, set| {
            StreamMessage::Change(ChangeMessage {
                writer: 7,
                kind: ChangeKind::Dispose,
                instance,
                source_timestamp: DdsTime::from_nanos(-5),
                set,
                payload: b"key",
            })
        };
        let instance = InstanceHandle([9; 16]);
        let set = SetId { source: Guid([8; 16]), number: 2 };
        let messages = [
            change(InstanceHandle::KEYLESS, None),
            change(instance, Some(4)),
            StreamMessage::Fence(1 << 40),
            StreamMessage::SetEnd { set, changes: vec![(1, 3), (5, 4)] },
            StreamMessage::SetAbandoned(set),
            StreamMessage::Verdict { writer: 3, instance, last: (1, 2, 3) },
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(StreamMessage::decode(&bytes).as_ref(), Ok(&message));
            let StreamMessage::Change(own) = &message else {
                for length in 0..bytes.len() {
                    let cut = StreamMessage::decode(&bytes[..length]);
                    let whole_entries =
                        matches!(message, StreamMessage::SetEnd { .. }) && length >= 32 && length % 8 == 0;
                    assert_eq!(cut.is_ok(), whole_entries, "{message:?} {length}: {cut:?}");
                }
                continue;
            };
            assert_eq!(own.header_bytes() + 3, bytes.len());
            (0..own.header_bytes()).for_each(|length| assert!(StreamMessage::decode(&bytes[..length]).is_err()));
        }
    }

    #[test]
    fn garbage_is_named() {
        let error = |bytes: &[u8]| StreamMessage::decode(bytes).unwrap_err().to_string();
        let tail = "; the sender runs another version, or is broken";
        assert_eq!(error(b""), format!("the message ends after 0 bytes within the head{tail}"));
        assert_eq!(error(&[9, 0, 0, 0, 0, 0, 0, 0]), format!("the kind of the message is 9{tail}"));
        assert_eq!(error(&[1, 5, 0, 0, 0, 0, 0, 0]), format!("the kind of a change is 5{tail}"));
        assert_eq!(error(&[1, 0, 4, 0, 0, 0, 0, 0]), format!("the head of the message is 262145{tail}"));
        assert_eq!(error(&[2, 0, 0, 0, 7, 0, 0, 0]), format!("the head of the message is 2{tail}"));
        let mut long = StreamMessage::Fence(1).encode();
        long.push(0);
        assert_eq!(error(&long), format!("the number of bytes behind the message is 1{tail}"));
    }
}
