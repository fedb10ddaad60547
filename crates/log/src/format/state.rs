//! The state of a log: two slots in one file, written in turn.
use super::{Binding, begin_page, is_page, put, put_version, seal_page, u32_at, u64_at, version_at};
use crate::limits::PAGE_BYTES;
use crate::version::Version;

const MAGIC: &[u8; 8] = b"SPNDLSLT";
const SLOT_BYTES: usize = 128;
const KIND_SLOT: u32 = 4;

/// A place in a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Position {
    /// The segment.
    pub(crate) segment: u64,
    /// The offset in it, in bytes.
    pub(crate) offset: u64,
}

/// One slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Slot {
    /// The slot's own number. The highest valid one counts.
    pub(crate) number: u64,
    /// The generation. From `start` on, batches of no other one count.
    pub(crate) generation: u64,
    /// Where the generation began.
    pub(crate) start: Position,
    /// The number of the first segment.
    pub(crate) first_segment: u64,
    /// A version that is durable.
    pub(crate) durable: Option<Version>,
    /// The clock of the last record when the slot was written.
    pub(crate) clock: u64,
    /// The last version that was pruned.
    pub(crate) floor: Option<Version>,
    /// Its clock.
    pub(crate) floor_clock: u64,
    /// Whether the log has a name, so that a missing name file is noticed.
    pub(crate) is_named: bool,
}

impl Slot {
    /// The offset of the slot in the file.
    pub(crate) fn offset(&self) -> u64 {
        (self.number % 2) * PAGE_BYTES
    }

    pub(crate) fn encode(&self, binding: Binding) -> Vec<u8> {
        let mut page = begin_page(MAGIC, binding);
        let flags =
            u32::from(self.durable.is_some()) | u32::from(self.floor.is_some()) << 1 | u32::from(self.is_named) << 2;
        put(&mut page, 36, &flags.to_le_bytes());
        put(&mut page, 40, &self.number.to_le_bytes());
        put(&mut page, 48, &self.generation.to_le_bytes());
        put(&mut page, 56, &self.start.segment.to_le_bytes());
        put(&mut page, 64, &self.start.offset.to_le_bytes());
        put(&mut page, 72, &self.first_segment.to_le_bytes());
        put_version(&mut page, 80, self.durable.unwrap_or_default());
        put(&mut page, 96, &self.clock.to_le_bytes());
        put_version(&mut page, 104, self.floor.unwrap_or_default());
        put(&mut page, 120, &self.floor_clock.to_le_bytes());
        seal_page(&mut page, SLOT_BYTES, binding.seed(KIND_SLOT, &[]));
        page
    }

    /// The valid slot with the highest number in the bytes of the file.
    pub(crate) fn newest(file: &[u8], binding: Binding) -> Option<Self> {
        file.chunks(PAGE_BYTES as usize).filter_map(|page| Self::parse(page, binding)).max_by_key(|slot| slot.number)
    }

    fn parse(page: &[u8], binding: Binding) -> Option<Self> {
        if !is_page(page, MAGIC, binding, SLOT_BYTES, binding.seed(KIND_SLOT, &[])) {
            return None;
        }
        let flags = u32_at(page, 36);
        Some(Self {
            number: u64_at(page, 40),
            generation: u64_at(page, 48),
            start: Position { segment: u64_at(page, 56), offset: u64_at(page, 64) },
            first_segment: u64_at(page, 72),
            durable: (flags & 1 != 0).then(|| version_at(page, 80)),
            clock: u64_at(page, 96),
            floor: (flags & 2 != 0).then(|| version_at(page, 104)),
            floor_clock: u64_at(page, 120),
            is_named: flags & 4 != 0,
        })
    }
}
