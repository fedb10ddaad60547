//! Typed messages: values with serde in frames, encoded by postcard.
//!
//! A message is the schema number of its type, four bytes, little-endian, and then the value. A type
//! that changes gets another number, so two programs that do not agree find that out: a receiver
//! that reads a message of another schema gets an error and never a wrong value. postcard's
//! encoding has no names and no types, so it would not notice that by itself.
use crate::error::SendError;
use crate::handles::{Publisher, SharedPublisher};
use postcard::experimental::serialized_size;
use serde::{Deserialize, Serialize};
use spindle_core::{MemberId, Message};
use std::any::type_name;
use std::time::Duration;

/// Bytes of the schema number.
const SCHEMA_BYTES: usize = 4;

/// A type whose values are sent as messages.
///
/// Values are encoded with [postcard's wire format](https://postcard.jamesmunns.com). Fields and
/// variants may not be added, removed or reordered under the same number.
pub trait Schema {
    /// The number of the type and its version, chosen by the application. All members that use the
    /// type use the same number.
    const SCHEMA: u32;
}

/// The reason why a value was not sent.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendTypedError {
    /// As for a message of bytes.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The value can't be encoded.
    #[error("a {type_name} can't be encoded: {cause}; nothing was sent")]
    Encode {
        /// The type.
        type_name: &'static str,
        /// The reason.
        cause: postcard::Error,
    },
}

/// The reason why a message is not a value of a type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message of member {sender} in round {round} is no {type_name}: {cause}")]
pub struct DecodeError {
    /// The sender.
    pub sender: MemberId,
    /// The round of the message.
    pub round: u64,
    /// The type.
    pub type_name: &'static str,
    /// The reason.
    pub cause: DecodeCause,
}

/// The reason why bytes are not a value of a type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeCause {
    /// The message is shorter than a schema number.
    #[error("it has {len} bytes; a typed message has at least 4")]
    Short {
        /// The length of the message.
        len: u64,
    },
    /// The message is of another schema.
    #[error("its schema is {got}, and the type's is {expected}; run the same version of the type at all members")]
    Schema {
        /// The number of the type.
        expected: u32,
        /// The number in the message.
        got: u32,
    },
    /// The bytes after the schema number are no value of the type.
    #[error("{0}; the type has changed without another schema number, or its sender is faulty")]
    Value(postcard::Error),
    /// Bytes are left after the value.
    #[error("{bytes} bytes follow the value; the type has changed without another schema number")]
    Trailing {
        /// How many.
        bytes: u64,
    },
}

/// Encodes a value as the bytes of a message, for calls that take bytes: tracked sends, objects.
///
/// # Errors
/// The value can't be encoded, for instance a sequence of unknown length.
pub fn encode<T: Schema + Serialize>(value: &T) -> Result<Vec<u8>, SendTypedError> {
    postcard::to_extend(value, T::SCHEMA.to_le_bytes().to_vec()).map_err(failed::<T>)
}

/// Decodes a message. Strings and bytes of the value may borrow from it.
///
/// # Errors
/// [`DecodeError`], for any bytes.
pub fn decode<'m, T: Schema + Deserialize<'m>>(message: &Message<'m>) -> Result<T, DecodeError> {
    decode_bytes(message.payload).map_err(|cause| DecodeError {
        sender: message.sender_id,
        round: message.round,
        type_name: type_name::<T>(),
        cause,
    })
}

/// Decodes the bytes of a message.
///
/// # Errors
/// [`DecodeCause`], for any bytes.
pub fn decode_bytes<'m, T: Schema + Deserialize<'m>>(bytes: &'m [u8]) -> Result<T, DecodeCause> {
    let (schema, value) = bytes.split_first_chunk().ok_or(DecodeCause::Short { len: bytes.len() as u64 })?;
    let got = u32::from_le_bytes(*schema);
    if got != T::SCHEMA {
        return Err(DecodeCause::Schema { expected: T::SCHEMA, got });
    }
    let (value, rest) = postcard::take_from_bytes(value).map_err(DecodeCause::Value)?;
    if !rest.is_empty() {
        return Err(DecodeCause::Trailing { bytes: rest.len() as u64 });
    }
    Ok(value)
}

/// Returns the length of the message of a value.
fn len_of<T: Schema + Serialize>(value: &T) -> Result<u64, SendTypedError> {
    let bytes = serialized_size(value).map_err(failed::<T>)?;
    Ok((SCHEMA_BYTES + bytes) as u64)
}

/// Encodes a value into a frame of [`len_of`] bytes.
fn fill<T: Schema + Serialize>(value: &T, frame: &mut [u8]) -> Result<(), SendTypedError> {
    let (schema, rest) = frame.split_at_mut(SCHEMA_BYTES);
    schema.copy_from_slice(&T::SCHEMA.to_le_bytes());
    postcard::to_slice(value, rest).map(drop).map_err(failed::<T>)
}

fn failed<T>(cause: postcard::Error) -> SendTypedError {
    SendTypedError::Encode { type_name: type_name::<T>(), cause }
}

macro_rules! send_typed {
    ($publisher:ty) => {
        impl $publisher {
            /// Sends a value, encoded in place in a frame. A value that is too long for a frame is
            /// encoded into memory and sent as [`send`](Self::send) sends it.
            ///
            /// # Errors
            /// [`SendTypedError`].
            pub fn send_typed<T: Schema + Serialize>(
                &mut self,
                value: &T,
                timeout: Duration,
            ) -> Result<(), SendTypedError> {
                let len = len_of(value)?;
                if len > self.message_bytes_max() {
                    return Ok(self.send(&encode(value)?, timeout)?);
                }
                let mut frame = self.claim(len, timeout)?;
                fill(value, &mut frame)?;
                frame.commit();
                Ok(())
            }

            /// As [`send_typed`](Self::send_typed), and waits for room as
            /// [`send_async`](Self::send_async) does.
            ///
            /// # Errors
            /// As there.
            pub async fn send_typed_async<T: Schema + Serialize>(&mut self, value: &T) -> Result<(), SendTypedError> {
                let len = len_of(value)?;
                if len > self.message_bytes_max() {
                    let bytes = encode(value)?;
                    return Ok(self.send_async(&bytes).await?);
                }
                let mut frame = self.claim_async(len).await?;
                fill(value, &mut frame)?;
                frame.commit();
                Ok(())
            }
        }
    };
}

send_typed!(Publisher);
send_typed!(SharedPublisher);

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    enum Command<'a> {
        Set {
            key: &'a str,
            #[serde(borrow)]
            value: Cow<'a, str>,
        },
        Delete(&'a str),
        Clear,
    }

    impl Schema for Command<'_> {
        const SCHEMA: u32 = 7;
    }

    /// A later version of the same type.
    #[derive(Serialize, Deserialize, Debug)]
    struct Other(u64);

    impl Schema for Other {
        const SCHEMA: u32 = 8;
    }

    #[test]
    fn a_value_survives_and_borrows_from_its_message() {
        let values = [Command::Set { key: "k", value: "v".into() }, Command::Delete(""), Command::Clear];
        for value in values {
            let bytes = encode(&value).unwrap();
            assert_eq!(bytes.len() as u64, len_of(&value).unwrap());
            let mut frame = vec![0; bytes.len()];
            fill(&value, &mut frame).unwrap();
            assert_eq!(frame, bytes);
            let decoded: Command<'_> = decode_bytes(&bytes).unwrap();
            assert_eq!(decoded, value);
            if let Command::Set { key, .. } = decoded {
                assert!(bytes.as_ptr_range().contains(&key.as_ptr()));
            }
        }
    }

    #[test]
    fn bytes_of_another_schema_or_none_are_refused_with_the_reason() {
        let bytes = encode(&Other(5)).unwrap();
        let why = decode_bytes::<Command<'_>>(&bytes).unwrap_err();
        assert_eq!(why, DecodeCause::Schema { expected: 7, got: 8 });
        assert_eq!(decode_bytes::<Other>(&bytes[..3]).unwrap_err(), DecodeCause::Short { len: 3 });
        assert!(matches!(decode_bytes::<Other>(&bytes[..4]).unwrap_err(), DecodeCause::Value(_)));
        let longer = [&bytes[..], &[1, 2]].concat();
        assert_eq!(decode_bytes::<Other>(&longer).unwrap_err(), DecodeCause::Trailing { bytes: 2 });
    }

    #[test]
    fn no_bytes_make_decoding_panic() {
        let mut state = 1_u64;
        let mut understood = 0;
        for _ in 0..20_000 {
            let mut bytes = encode(&Command::Set { key: "key", value: "value".into() }).unwrap();
            for _ in 0..state % 4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] ^= 1 << (state >> 60 & 7);
            }
            state = state.wrapping_add(1);
            understood += u32::from(decode_bytes::<Command<'_>>(&bytes).is_ok());
        }
        assert!((2_000..19_000).contains(&understood), "{understood}");
    }
}
