//! Frames of the journal: whole pages, each frame written twice.
use super::{Binding, put, u32_at, u64_at, u128_at};
use crate::limits::{FORMAT, JOURNAL_HEADER_BYTES, JOURNAL_VALUE_BYTES_MAX, PAGE_BYTES, journal_frame_bytes};
use crc32c::crc32c_append;

const MAGIC: &[u8; 8] = b"SPNDLJNL";
const KIND_JOURNAL: u32 = 5;
const HEADER: usize = JOURNAL_HEADER_BYTES as usize;

/// The meaning of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameKind {
    /// The first frame of an era. Its value is the number of frames that hold the state so far.
    Begin,
    /// A value of a kind.
    Value(u32),
}

/// A frame of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame<'a> {
    /// Grows each time when a file of the journal is begun.
    pub(crate) era: u64,
    /// The number of the frame in its era, from 0.
    pub(crate) number: u64,
    /// The meaning.
    pub(crate) kind: FrameKind,
    /// The value.
    pub(crate) value: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame, padded to whole pages.
    pub(crate) fn encode(&self, binding: Binding) -> Vec<u8> {
        let mut bytes = vec![0; journal_frame_bytes(self.value.len()) as usize];
        let kind = match self.kind {
            FrameKind::Begin => u32::MAX,
            FrameKind::Value(kind) => kind,
        };
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 12, &FORMAT.to_le_bytes());
        put(&mut bytes, 16, &binding.incarnation.to_le_bytes());
        put(&mut bytes, 32, &self.era.to_le_bytes());
        put(&mut bytes, 40, &self.number.to_le_bytes());
        put(&mut bytes, 48, &kind.to_le_bytes());
        put(&mut bytes, 52, &(self.value.len() as u32).to_le_bytes());
        put(&mut bytes, HEADER, self.value);
        let crc = crc32c_append(binding.seed(KIND_JOURNAL, &[]), &bytes[12..HEADER + self.value.len()]);
        put(&mut bytes, 8, &crc.to_le_bytes());
        bytes
    }

    /// The frame at the begin of the bytes, if they hold one.
    pub(crate) fn parse(bytes: &'a [u8], binding: Binding) -> Option<Self> {
        debug_assert!(PAGE_BYTES as usize >= HEADER);
        if bytes.len() < HEADER || &bytes[..8] != MAGIC || u32_at(bytes, 12) != FORMAT {
            return None;
        }
        let length = u32_at(bytes, 52) as usize;
        if u128_at(bytes, 16) != binding.incarnation || length > JOURNAL_VALUE_BYTES_MAX {
            return None;
        }
        let covered = bytes.get(12..HEADER + length)?;
        if crc32c_append(binding.seed(KIND_JOURNAL, &[]), covered) != u32_at(bytes, 8) {
            return None;
        }
        let kind = match u32_at(bytes, 48) {
            u32::MAX => FrameKind::Begin,
            kind => FrameKind::Value(kind),
        };
        Some(Self { era: u64_at(bytes, 32), number: u64_at(bytes, 40), kind, value: &bytes[HEADER..HEADER + length] })
    }
}
