//! Snapshots: a header page, then blocks, each with a checksum.
use super::{Binding, begin_page, is_page, put, put_version, seal_page, u32_at, u64_at, version_at};
use crate::limits::SNAPSHOT_BLOCK_BYTES;
use crate::version::Version;
use crc32c::crc32c_append;

const MAGIC: &[u8; 8] = b"SPNDLSNP";
const HEADER_BYTES: usize = 80;
const KIND_SNAPSHOT: u32 = 6;
const KIND_BLOCK: u32 = 7;

/// The first page of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotHeader {
    /// The last version that the snapshot contains.
    pub(crate) version: Version,
    /// The clock of that version.
    pub(crate) clock: u64,
    /// The bytes of the state.
    pub(crate) bytes: u64,
    /// The checksum of the blocks' checksums.
    pub(crate) digest: u32,
}

impl SnapshotHeader {
    pub(crate) fn encode(&self, binding: Binding) -> Vec<u8> {
        let mut page = begin_page(MAGIC, binding);
        put_version(&mut page, 40, self.version);
        put(&mut page, 56, &self.clock.to_le_bytes());
        put(&mut page, 64, &self.bytes.to_le_bytes());
        put(&mut page, 72, &self.digest.to_le_bytes());
        seal_page(&mut page, HEADER_BYTES, binding.seed(KIND_SNAPSHOT, &[]));
        page
    }

    pub(crate) fn parse(page: &[u8], binding: Binding) -> Option<Self> {
        if !is_page(page, MAGIC, binding, HEADER_BYTES, binding.seed(KIND_SNAPSHOT, &[])) {
            return None;
        }
        Some(Self {
            version: version_at(page, 40),
            clock: u64_at(page, 56),
            bytes: u64_at(page, 64),
            digest: u32_at(page, 72),
        })
    }
}

/// A block of a snapshot: a checksum, a length, and up to [`SNAPSHOT_BLOCK_BYTES`].
pub(crate) struct Block;

impl Block {
    /// The bytes before the content of a block.
    pub(crate) const HEADER_BYTES: usize = 8;
    /// The bytes of a full block.
    pub(crate) const BYTES: usize = SNAPSHOT_BLOCK_BYTES + Self::HEADER_BYTES;

    /// The header of a block.
    pub(crate) fn header(binding: Binding, version: Version, index: u64, content: &[u8]) -> [u8; Self::HEADER_BYTES] {
        let mut header = [0; Self::HEADER_BYTES];
        put(&mut header, 4, &(content.len() as u32).to_le_bytes());
        let seed = binding.seed(KIND_BLOCK, &[version.epoch, version.sequence, index]);
        let crc = crc32c_append(crc32c_append(seed, &header[4..]), content);
        put(&mut header, 0, &crc.to_le_bytes());
        header
    }

    /// The content and the checksum of a block, if it is intact.
    pub(crate) fn parse(binding: Binding, version: Version, index: u64, bytes: &[u8]) -> Option<(&[u8], u32)> {
        if bytes.len() < Self::HEADER_BYTES {
            return None;
        }
        let content = bytes[Self::HEADER_BYTES..].get(..u32_at(bytes, 4) as usize)?;
        let header = Self::header(binding, version, index, content);
        (header == bytes[..Self::HEADER_BYTES]).then_some((content, u32_at(bytes, 0)))
    }
}
