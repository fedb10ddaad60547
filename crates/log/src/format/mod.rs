//! The bytes of every file. `docs/protocol/log.md` has them as tables; `tests/golden` as files.
//!
//! All numbers are little-endian. Every checksum is CRC32C and begins from a [`Binding`], so that
//! bytes of another group, subgroup, segment, generation or offset never pass for valid ones.
mod identity;
mod journal;
mod name;
mod segment;
mod snapshot;
mod state;

pub(crate) use identity::Mismatch;
pub use identity::{Identity, PayloadKind};
pub(crate) use journal::{Frame, FrameKind};
pub(crate) use name::{encode_name, parse_name};
pub(crate) use segment::{Batch, RECORD_MARK, Seed, SegmentHeader, encode_record, place_record, record_checksum};
pub(crate) use segment::{parse_batch, parse_record};
pub(crate) use snapshot::{Block, SnapshotHeader};
pub(crate) use state::{Position, Slot};

use crate::limits::{FORMAT, PAGE_BYTES};
use crate::version::Version;
use crc32c::{crc32c, crc32c_append};

/// The log that bytes belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Binding {
    /// The incarnation of the group.
    pub(crate) incarnation: u128,
    /// The subgroup.
    pub(crate) subgroup: u32,
}

impl Binding {
    /// The checksum of the binding and of further words, which others continue.
    pub(crate) fn seed(&self, kind: u32, words: &[u64]) -> u32 {
        let crc = crc32c(&self.incarnation.to_le_bytes());
        let crc = crc32c_append(crc, &self.subgroup.to_le_bytes());
        let crc = crc32c_append(crc, &kind.to_le_bytes());
        words.iter().fold(crc, |crc, word| crc32c_append(crc, &word.to_le_bytes()))
    }
}

/// A page that begins with a magic, the format and the binding. Its own fields begin at offset 36.
pub(crate) fn begin_page(magic: &[u8; 8], binding: Binding) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES as usize];
    put(&mut page, 0, magic);
    put(&mut page, 12, &FORMAT.to_le_bytes());
    put(&mut page, 16, &binding.incarnation.to_le_bytes());
    put(&mut page, 32, &binding.subgroup.to_le_bytes());
    page
}

/// Puts the checksum of the bytes from the format up to `end` into a page. It begins from `seed`.
pub(crate) fn seal_page(page: &mut [u8], end: usize, seed: u32) {
    let crc = crc32c_append(seed, &page[12..end]);
    put(page, 8, &crc.to_le_bytes());
}

/// Whether a page has the checksum that [`seal_page`] puts into it.
pub(crate) fn is_sealed(page: &[u8], end: usize, seed: u32) -> bool {
    crc32c_append(seed, &page[12..end]) == u32_at(page, 8)
}

/// Whether a page was begun and sealed with the same arguments.
pub(crate) fn is_page(page: &[u8], magic: &[u8; 8], binding: Binding, end: usize, seed: u32) -> bool {
    page.len() >= end
        && &page[..8] == magic
        && u32_at(page, 12) == FORMAT
        && u128_at(page, 16) == binding.incarnation
        && u32_at(page, 32) == binding.subgroup
        && is_sealed(page, end, seed)
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes[offset..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    bytes[offset..].first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

pub(crate) fn version_at(bytes: &[u8], offset: usize) -> Version {
    Version::new(u64_at(bytes, offset), u64_at(bytes, offset + 8))
}

pub(crate) fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

pub(crate) fn put_version(bytes: &mut [u8], offset: usize, version: Version) {
    put(bytes, offset, &version.epoch.to_le_bytes());
    put(bytes, offset + 8, &version.sequence.to_le_bytes());
}
