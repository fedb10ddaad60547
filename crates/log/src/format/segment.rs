//! Segments: a header page, then batches of records.
use super::{Binding, begin_page, is_sealed, put, put_version, seal_page, u32_at, u64_at, u128_at, version_at};
use crate::limits::{ALIGNMENT, BATCH_HEADER_BYTES, FORMAT, RECORD_HEADER_BYTES};
use crate::mutation::mutation;
use crate::version::Version;
use crc32c::{crc32c, crc32c_append};

const MAGIC: &[u8; 8] = b"SPNDLSEG";
const HEADER_BYTES: usize = 104;
/// The first byte of a record that its checksum covers. The mask covers the length.
const COVERED_FROM: usize = 8;
const KIND_SEGMENT: u32 = 1;
const KIND_BATCH: u32 = 2;
const KIND_RECORD: u32 = 3;
/// The length field of a batch header, which no record has.
pub(crate) const RECORD_MARK: u32 = u32::MAX;

/// The first page of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    /// The segment's number.
    pub(crate) number: u64,
    /// The generation in which the segment was begun.
    pub(crate) generation: u64,
    /// The last version before the segment: proof that the segment before is complete.
    pub(crate) previous: Option<Version>,
    /// The durable frontier when the segment was begun.
    pub(crate) durable: Option<Version>,
    /// The first version of the segment.
    pub(crate) first: Version,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, binding: Binding) -> Vec<u8> {
        let mut page = begin_page(MAGIC, binding);
        let flags = u32::from(self.previous.is_some()) | u32::from(self.durable.is_some()) << 1;
        put(&mut page, 36, &flags.to_le_bytes());
        put(&mut page, 40, &self.number.to_le_bytes());
        put(&mut page, 48, &self.generation.to_le_bytes());
        put_version(&mut page, 56, self.previous.unwrap_or_default());
        put_version(&mut page, 72, self.durable.unwrap_or_default());
        put_version(&mut page, 88, self.first);
        seal_page(&mut page, HEADER_BYTES, binding.seed(KIND_SEGMENT, &[self.number]));
        page
    }

    /// The header, or the reason why the page holds none of this segment.
    pub(crate) fn parse(page: &[u8], binding: Binding, number: u64) -> Result<Self, &'static str> {
        if page.len() < HEADER_BYTES || &page[..8] != MAGIC {
            return Err("the segment header is missing");
        }
        if u32_at(page, 12) != FORMAT || u128_at(page, 16) != binding.incarnation || u64_at(page, 40) != number {
            return Err("the segment header belongs to another segment");
        }
        if !is_sealed(page, HEADER_BYTES, binding.seed(KIND_SEGMENT, &[number])) {
            return Err("the checksum of the segment header differs");
        }
        let flags = u32_at(page, 36);
        Ok(Self {
            number,
            generation: u64_at(page, 48),
            previous: (flags & 1 != 0).then(|| version_at(page, 56)),
            durable: (flags & 2 != 0).then(|| version_at(page, 72)),
            first: version_at(page, 88),
        })
    }
}

/// The header of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    /// The generation of the batch and of its records.
    pub(crate) generation: u64,
    /// The durable frontier before the batch.
    pub(crate) durable: Option<Version>,
    /// Whether it only says that the segment ends here.
    pub(crate) is_seal: bool,
    /// The number of records that were written with it. A later cut may have left fewer.
    pub(crate) records: u32,
    /// The bytes of these records.
    pub(crate) bytes: u64,
}

impl Batch {
    pub(crate) fn encode(&self, binding: Binding, number: u64, offset: u64) -> [u8; BATCH_HEADER_BYTES as usize] {
        let mut bytes = [0; BATCH_HEADER_BYTES as usize];
        let flags = u32::from(self.durable.is_some()) | u32::from(self.is_seal) << 1;
        put(&mut bytes, 4, &RECORD_MARK.to_le_bytes());
        put(&mut bytes, 8, &self.generation.to_le_bytes());
        put_version(&mut bytes, 16, self.durable.unwrap_or_default());
        put(&mut bytes, 32, &flags.to_le_bytes());
        put(&mut bytes, 36, &self.records.to_le_bytes());
        put(&mut bytes, 40, &self.bytes.to_le_bytes());
        let crc = crc32c_append(batch_seed(binding, number, offset), &bytes[4..]);
        put(&mut bytes, 0, &crc.to_le_bytes());
        bytes
    }
}

fn batch_seed(binding: Binding, number: u64, offset: u64) -> u32 {
    if mutation!(ChecksumsBindNothing) {
        return binding.seed(KIND_BATCH, &[]);
    }
    binding.seed(KIND_BATCH, &[number, offset])
}

/// The header of a batch at an offset of a segment, if the bytes hold one.
pub(crate) fn parse_batch(bytes: &[u8], binding: Binding, number: u64, offset: u64) -> Option<Batch> {
    if bytes.len() < BATCH_HEADER_BYTES as usize || u32_at(bytes, 4) != RECORD_MARK {
        return None;
    }
    let covered = &bytes[4..BATCH_HEADER_BYTES as usize];
    if crc32c_append(batch_seed(binding, number, offset), covered) != u32_at(bytes, 0) {
        return None;
    }
    let flags = u32_at(bytes, 32);
    Some(Batch {
        generation: u64_at(bytes, 8),
        durable: (flags & 1 != 0).then(|| version_at(bytes, 16)),
        is_seal: flags & 2 != 0,
        records: u32_at(bytes, 36),
        bytes: u64_at(bytes, 40),
    })
}

/// The checksum with which the records of a generation in a segment begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(binding: Binding, number: u64, generation: u64) -> Self {
        if mutation!(ChecksumsBindNothing) {
            return Self(binding.seed(KIND_RECORD, &[]));
        }
        Self(binding.seed(KIND_RECORD, &[number, generation]))
    }
}

impl Seed {
    /// The word that the checksum of a record of `length` bytes is combined with at an offset.
    ///
    /// It is a checksum itself, of 64 bits that hold both. So it differs for any two offsets of a
    /// segment, and for any two lengths, and for two generations or segments but for one in 2^32.
    #[inline]
    pub(crate) fn mask(self, offset: u64, length: u32) -> u32 {
        let offset = if mutation!(ChecksumsBindNothing) { 0 } else { offset };
        let word = (offset / ALIGNMENT) ^ (u64::from(length) << 32);
        crc32c_append(self.0, &word.to_le_bytes())
    }
}

/// The payload from which on the checksum of a record is computed when the record is encoded, but for its
/// mask. The checksums of shorter records are computed one after the other when they are placed, where the
/// processor overlaps them. Long records would delay the write there.
const SUMMED_EARLY: usize = 1024;

/// Appends a record. Its checksum is not complete, since it is not known yet where it will be.
#[inline]
pub(crate) fn encode_record(to: &mut Vec<u8>, version: Version, clock: u64, parts: &[&[u8]]) {
    let (start, payload) = (to.len(), parts.iter().map(|part| part.len()).sum::<usize>());
    let padded = (RECORD_HEADER_BYTES as usize + payload).next_multiple_of(ALIGNMENT as usize);
    to.reserve(padded);
    let mut header = [0; RECORD_HEADER_BYTES as usize];
    put(&mut header, 4, &(payload as u32).to_le_bytes());
    put_version(&mut header, 8, version);
    put(&mut header, 24, &clock.to_le_bytes());
    to.extend_from_slice(&header);
    parts.iter().for_each(|part| to.extend_from_slice(part));
    if payload >= SUMMED_EARLY {
        let crc = crc32c(&to[start + COVERED_FROM..]);
        put(to, start, &crc.to_le_bytes());
    }
    to.resize(start + padded, 0);
}

/// Completes the checksum of an encoded record for its place, once.
#[inline]
pub(crate) fn place_record(bytes: &mut [u8], seed: Seed, offset: u64) {
    let payload = u32_at(bytes, 4);
    let crc = match payload as usize >= SUMMED_EARLY {
        true => u32_at(bytes, 0) ^ seed.mask(offset, payload),
        false => record_checksum(seed, offset, &bytes[..RECORD_HEADER_BYTES as usize + payload as usize]),
    };
    put(bytes, 0, &crc.to_le_bytes());
}

/// The checksum of a record at an offset. `bytes` are the record without padding.
#[inline]
pub(crate) fn record_checksum(seed: Seed, offset: u64, bytes: &[u8]) -> u32 {
    crc32c(&bytes[COVERED_FROM..]) ^ seed.mask(offset, u32_at(bytes, 4))
}

/// The fields of a record header: version, clock, and length of the payload.
pub(crate) fn parse_record(bytes: &[u8]) -> (Version, u64, u32) {
    debug_assert!(bytes.len() >= RECORD_HEADER_BYTES as usize);
    (version_at(bytes, 8), u64_at(bytes, 24), u32_at(bytes, 4))
}
