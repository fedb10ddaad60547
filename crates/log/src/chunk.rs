//! Encoded records on their way to the disk.
use crate::error::{Error, Result, in_range};
use crate::format::{encode_record, parse_record};
use crate::limits::{ALIGNMENT, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES};
use crate::version::{Record, Version};
use std::ops::Range;

/// Records of one subgroup, encoded but for their checksums, which depend on where they land.
///
/// A chunk is filled by the producer, moves to the writer, is written from where it is, and returns
/// empty: a payload is copied once between the caller and the kernel.
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    records: u32,
    first: Option<(Version, u64)>,
    last: Option<(Version, u64)>,
}

impl Chunk {
    /// An empty chunk with space for `bytes` of encoded records.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// The bytes that a payload of this length takes in a log.
    pub const fn encoded_bytes(payload: u64) -> u64 {
        (RECORD_HEADER_BYTES + payload).next_multiple_of(ALIGNMENT)
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`Error::Order`] if it does not follow the last record of the chunk, [`Error::Range`] if its
    /// payload is too long.
    pub fn push(&mut self, record: Record<'_>) -> Result<()> {
        self.push_parts(record.version, record.clock, &[record.payload])
    }

    /// As [`push`](Self::push), for a payload that consists of several parts.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_parts(&mut self, version: Version, clock: u64, parts: &[&[u8]]) -> Result<()> {
        in_range("the payload in bytes", bytes_of(parts), 0, PAYLOAD_BYTES_MAX)?;
        follows(self.last, (version, clock))?;
        encode_record(&mut self.bytes, version, clock, parts);
        self.first.get_or_insert((version, clock));
        self.last = Some((version, clock));
        self.records += 1;
        Ok(())
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The memory of the chunk, in bytes.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// The number of records.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The first version.
    pub fn first(&self) -> Option<Version> {
        self.first.map(|(version, _)| version)
    }

    /// The last version.
    pub fn last(&self) -> Option<Version> {
        self.last.map(|(version, _)| version)
    }

    /// The last version and its clock.
    pub fn last_with_clock(&self) -> Option<(Version, u64)> {
        self.last
    }

    /// Removes the records and keeps the space.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.records, self.first, self.last) = (0, None, None);
    }

    pub(crate) fn bounds(&self) -> Option<((Version, u64), (Version, u64))> {
        self.first.zip(self.last)
    }

    pub(crate) fn raw(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn raw_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The ranges of the records with their fields. A range includes the padding.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= self.bytes.len() {
                return None;
            }
            let (_, _, length) = parse_record(&self.bytes[at..]);
            let start = at;
            at += Self::encoded_bytes(u64::from(length)) as usize;
            Some(start..at)
        })
    }
}

/// The bytes of a payload that consists of several parts.
pub(crate) fn bytes_of(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Checks that versions grow and that the clock does not fall.
pub(crate) fn follows(last: Option<(Version, u64)>, next: (Version, u64)) -> Result<()> {
    match last {
        Some((version, clock)) if next.0 <= version || next.1 < clock => {
            Err(Error::Order { last: Some(version), last_clock: clock, given: next.0, clock: next.1 })
        }
        _ => Ok(()),
    }
}
