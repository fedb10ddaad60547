//! Numbers as bytes and back, and what can be wrong with bytes.
use spindle_core::MemberId;
use spindle_core::limits::MEMBERS_MAX;

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Not from Spindle.
    #[error("bytes that are not Spindle's")]
    Magic,
    /// From another version.
    #[error("a message of version {got}")]
    Version {
        /// The sender's version.
        got: u32,
    },
    /// No such message.
    #[error("a message of unknown kind {got}")]
    Kind {
        /// The kind.
        got: u32,
    },
    /// It ends too early.
    #[error("half a message")]
    Short,
    /// It goes on after its end.
    #[error("a message with {extra} bytes too many")]
    Long {
        /// How many.
        extra: u64,
    },
    /// A field has no meaning.
    #[error("a message with a wrong {field}")]
    Value {
        /// Which.
        field: &'static str,
    },
}

/// Appends to a message.
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn optional_id(&mut self, id: Option<MemberId>) {
        self.0.push(u8::from(id.is_some()));
        self.u64(id.map_or(0, |id| id.0));
    }
}

/// Takes a message apart, from its beginning.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.0.split_at_checked(bytes).ok_or(WireError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| WireError::Short)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn optional_id(&mut self) -> Result<Option<MemberId>, WireError> {
        let [there] = self.array()?;
        let id = MemberId(self.u64()?);
        match there {
            0 if id.0 == 0 => Ok(None),
            1 => Ok(Some(id)),
            _ => Err(WireError::Value { field: "member id" }),
        }
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
