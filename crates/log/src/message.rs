//! The payloads of a member's logs: messages, with their senders.

/// A message, as the log of a member contains it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedMessage<'a> {
    /// The id of the member that sent it.
    pub sender: u64,
    /// The time at which it was sent, by the sender's clock, in ns since 1970.
    pub time: u64,
    /// The message.
    pub payload: &'a [u8],
}

impl<'a> LoggedMessage<'a> {
    /// Returns the bytes of a record's payload before the message: the sender and the time, 8 bytes
    /// each, little-endian.
    pub fn prefix(sender: u64, time: u64) -> [u8; 16] {
        let mut prefix = [0; 16];
        prefix[..8].copy_from_slice(&sender.to_le_bytes());
        prefix[8..].copy_from_slice(&time.to_le_bytes());
        prefix
    }

    /// Reads the payload of a record. `None` if it is shorter than the prefix.
    pub fn parse(payload: &'a [u8]) -> Option<LoggedMessage<'a>> {
        let (sender, rest) = payload.split_first_chunk::<8>()?;
        let (time, payload) = rest.split_first_chunk::<8>()?;
        Some(LoggedMessage { sender: u64::from_le_bytes(*sender), time: u64::from_le_bytes(*time), payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut payload = LoggedMessage::prefix(7, u64::MAX - 1).to_vec();
        payload.extend(b"text");
        let message = LoggedMessage { sender: 7, time: u64::MAX - 1, payload: b"text" };
        assert_eq!(LoggedMessage::parse(&payload), Some(message));
        assert_eq!(LoggedMessage::parse(&payload[..16]).map(|message| message.payload), Some(&b""[..]));
        assert_eq!(LoggedMessage::parse(&payload[..15]), None);
    }
}
