//! Reads and writes numbers as bytes, and names what can be wrong with bytes. Numbers are little
//! endian.
use crate::limits::MEMBERS_MAX;
use alloc::vec::Vec;

/// Returns the FNV-1a digest of bytes. It finds accidents, and no intent.
pub fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The reason why bytes are no control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes are not from Spindle.
    #[error("bytes that are not Spindle's")]
    Magic,
    /// The message is of another version.
    #[error("a control message of version {got}")]
    Version {
        /// The sender's version.
        got: u32,
    },
    /// No such kind of message exists.
    #[error("a control message of unknown kind {got}")]
    Kind {
        /// The kind.
        got: u32,
    },
    /// The message ends too early.
    #[error("half a control message")]
    Short,
    /// The message has more bytes after its end.
    #[error("a control message with {extra} bytes too many")]
    Long {
        /// The number of extra bytes.
        extra: u64,
    },
    /// A field has no meaning.
    #[error("a control message with a wrong {field}")]
    Value {
        /// The name of the field.
        field: &'static str,
    },
}

/// Appends to a message. The field holds the bytes so far.
#[derive(Clone, Default, Debug)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Appends 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends 128 bits.
    pub fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a text, preceded by its length in bytes.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Appends bytes, preceded by their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }
}

/// Reads a message from its beginning. The field holds the bytes that are not read yet.
///
/// # Errors
/// Each method that reads fails with [`WireError::Short`] if too few bytes are left, and with
/// [`WireError::Value`] if they have no meaning.
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.0.split_at_checked(bytes).ok_or(WireError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| WireError::Short)
    }

    /// Reads 32 bits.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads 64 bits.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads 128 bits.
    pub fn u128(&mut self) -> Result<u128, WireError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// Reads a text that [`Writer::text`] wrote. `field` is the name of the field that it contains.
    pub fn text(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        core::str::from_utf8(self.bytes()?).map_err(|_| WireError::Value { field })
    }

    /// Reads bytes that [`Writer::bytes`] wrote.
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let bytes = self.u32()?;
        self.take(bytes as usize)
    }

    /// Reads the length of a list with one element per member.
    pub fn count(&mut self) -> Result<u32, WireError> {
        let count = self.u32()?;
        if count as usize > MEMBERS_MAX {
            return Err(WireError::Value { field: "number of members" });
        }
        Ok(count)
    }

    /// Fails if anything is left.
    pub fn end(&self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            extra => Err(WireError::Long { extra: extra as u64 }),
        }
    }
}
