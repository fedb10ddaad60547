//! Numbers as bytes and back, and what can be wrong with bytes.
use spindle_core::limits::MEMBERS_MAX;

/// Why bytes are no letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// Not from Spindle.
    #[error("bytes that are not Spindle's")]
    Magic,
    /// From another version.
    #[error("a letter of version {got}")]
    Version {
        /// The sender's version.
        got: u32,
    },
    /// No such letter.
    #[error("a letter of unknown kind {got}")]
    Kind {
        /// The kind.
        got: u32,
    },
    /// It ends too early.
    #[error("half a letter")]
    Short,
    /// It goes on after its end.
    #[error("a letter with {extra} bytes too many")]
    Long {
        /// How many.
        extra: u64,
    },
    /// A field has no meaning.
    #[error("a letter with a wrong {field}")]
    Value {
        /// Which.
        field: &'static str,
    },
}

/// Appends to a letter.
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// With its length in front.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// With their length in front.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }
}

/// Takes a letter apart, from its beginning.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.0.split_at_checked(bytes).ok_or(WireError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| WireError::Short)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, WireError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// As [`Writer::text`] wrote it; `field` is what it should be.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        str::from_utf8(self.bytes()?).map_err(|_| WireError::Value { field })
    }

    /// As [`Writer::bytes`] wrote them.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let bytes = self.u32()?;
        self.take(bytes as usize)
    }

    /// The length of a list with an element a member.
    pub(crate) fn count(&mut self) -> Result<u32, WireError> {
        let count = self.u32()?;
        if count as usize > MEMBERS_MAX {
            return Err(WireError::Value { field: "number of members" });
        }
        Ok(count)
    }
}
