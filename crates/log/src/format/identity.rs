//! The identity file of a data directory.
use super::{put, u32_at, u64_at, u128_at};
use crate::limits::{FORMAT, GROUP_NAME_BYTES_MAX, PAGE_BYTES};
use crc32c::crc32c;

const MAGIC: &[u8; 8] = b"SPNDLDIR";
const PAYLOADS_OFFSET: usize = 40;
const NAME_OFFSET: usize = 48;
const CRC_OFFSET: usize = NAME_OFFSET + GROUP_NAME_BYTES_MAX + 1;

/// The owner of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The name of the group.
    pub group: String,
    /// The id of the member.
    pub member: u64,
    /// The incarnation of the group.
    pub incarnation: u128,
    /// The payloads of the records.
    pub payloads: PayloadKind,
}

/// The payloads of the records in a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PayloadKind {
    /// Bytes that the program that wrote them knows.
    #[default]
    Opaque,
    /// [Messages](crate::LoggedMessage) of a member.
    Messages,
}

impl Identity {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES as usize];
        put(&mut page, 0, MAGIC);
        put(&mut page, 8, &FORMAT.to_le_bytes());
        put(&mut page, 12, &(self.group.len() as u32).to_le_bytes());
        put(&mut page, 16, &self.member.to_le_bytes());
        put(&mut page, 24, &self.incarnation.to_le_bytes());
        put(&mut page, PAYLOADS_OFFSET, &(self.payloads as u32).to_le_bytes());
        put(&mut page, NAME_OFFSET, self.group.as_bytes());
        let crc = crc32c(&page[..CRC_OFFSET]);
        put(&mut page, CRC_OFFSET, &crc.to_le_bytes());
        page
    }

    /// The identity, or the format that the bytes have instead, or the check that failed.
    pub(crate) fn parse(page: &[u8]) -> Result<Self, Mismatch> {
        if page.len() < CRC_OFFSET + 4 || &page[..8] != MAGIC {
            return Err(Mismatch::Damaged("it is no identity file"));
        }
        if u32_at(page, 8) != FORMAT {
            return Err(Mismatch::Format(u32_at(page, 8)));
        }
        if crc32c(&page[..CRC_OFFSET]) != u32_at(page, CRC_OFFSET) {
            return Err(Mismatch::Damaged("the checksum differs"));
        }
        let payloads = match u32_at(page, PAYLOADS_OFFSET) {
            0 => PayloadKind::Opaque,
            1 => PayloadKind::Messages,
            _ => return Err(Mismatch::Damaged("this version does not know the kind of its payloads")),
        };
        let length = (u32_at(page, 12) as usize).min(GROUP_NAME_BYTES_MAX);
        match std::str::from_utf8(&page[NAME_OFFSET..NAME_OFFSET + length]) {
            Ok(group) => {
                Ok(Self { group: group.to_owned(), member: u64_at(page, 16), incarnation: u128_at(page, 24), payloads })
            }
            Err(_) => Err(Mismatch::Damaged("the name of the group is no text")),
        }
    }
}

/// Why an identity file was not read.
pub(crate) enum Mismatch {
    /// It has another format.
    Format(u32),
    /// A check failed.
    Damaged(&'static str),
}
