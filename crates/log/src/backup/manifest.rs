//! The manifest of a backup, and its bytes.
use crate::format::{PayloadKind, u32_at};
use crate::limits::{GROUP_NAME_BYTES_MAX, JOURNAL_VALUE_BYTES_MAX, LOG_NAME_BYTES_MAX, SUBGROUPS_MAX};
use crate::version::Version;
use crc32c::crc32c;

const MAGIC: &[u8; 8] = b"SPNDLBAK";
/// The bytes before the content: magic, checksum, format, and the length of the content.
const HEAD_BYTES: usize = 20;
/// The format of backups that this version writes and reads.
pub(super) const BACKUP_FORMAT: u32 = 1;
/// The longest path of a file, in bytes.
const PATH_BYTES_MAX: usize = 128;
/// The longest text that names the software.
const SOFTWARE_BYTES_MAX: usize = 128;
/// The most files of a log: its records and two snapshots.
const FILES_PER_LOG: usize = 3;
/// The most bytes of a manifest.
pub(super) const MANIFEST_BYTES_MAX: u64 = 8 << 20;

const _: () = assert!(SUBGROUPS_MAX as u64 * 1024 <= MANIFEST_BYTES_MAX);

/// The contents of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupManifest {
    /// The name of the group.
    pub group: String,
    /// The incarnation of the group.
    pub incarnation: u128,
    /// The member whose logs were copied.
    pub member: u64,
    /// The payloads of the records.
    pub payloads: PayloadKind,
    /// The cut: the backup has all records with at most this clock.
    pub cut: u64,
    /// The time at which the backup was finished, in ns since 1970 by the clock of its host.
    pub taken_at: u64,
    /// Whether no further record can get a clock of at most the cut: the group said so.
    pub is_settled: bool,
    /// The version of the software that wrote the backup.
    pub software: String,
    /// The record of the last view, as the journal has it; empty if there is none.
    pub record: Vec<u8>,
    /// The logs, by ascending number.
    pub logs: Vec<BackupLog>,
    /// The files.
    pub files: Vec<BackupFile>,
}

/// A log of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackupLog {
    /// Its number in the data directory.
    pub number: u32,
    /// Its name; `None` if it has a number only.
    pub name: Option<String>,
    /// The last version that was pruned, and its clock.
    pub floor: Option<(Version, u64)>,
    /// The records.
    pub records: u64,
    /// The first version.
    pub first: Option<Version>,
    /// The last version, and its clock.
    pub last: Option<(Version, u64)>,
    /// The versions of the snapshots, in ascending order.
    pub snapshots: Vec<Version>,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupFile {
    /// Its path in the directory of the backup.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The checksum (CRC32C) of all its bytes.
    pub checksum: u32,
}

/// The reason why bytes are no manifest of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoManifest {
    Format(u32),
    Damaged(&'static str),
}

impl BackupManifest {
    /// The bytes of all files, the manifest apart.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The records of all logs.
    pub fn records(&self) -> u64 {
        self.logs.iter().map(|log| log.records).sum()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        [self.member, self.cut, self.taken_at].into_iter().for_each(|word| put_u64(&mut out, word));
        put_u32(&mut out, self.payloads as u32);
        put_u32(&mut out, u32::from(self.is_settled));
        [self.group.as_bytes(), self.software.as_bytes(), &self.record]
            .into_iter()
            .for_each(|text| put_bytes(&mut out, text));
        put_u32(&mut out, self.logs.len() as u32);
        self.logs.iter().for_each(|log| log.put(&mut out));
        put_u32(&mut out, self.files.len() as u32);
        for file in &self.files {
            put_bytes(&mut out, file.path.as_bytes());
            put_u64(&mut out, file.bytes);
            put_u32(&mut out, file.checksum);
        }
        let length = (out.len() - HEAD_BYTES) as u32;
        out[..8].copy_from_slice(MAGIC);
        out[12..16].copy_from_slice(&BACKUP_FORMAT.to_le_bytes());
        out[16..20].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c(&out[12..]);
        out[8..12].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<BackupManifest, NoManifest> {
        let damaged = NoManifest::Damaged;
        if bytes.len() < HEAD_BYTES || &bytes[..8] != MAGIC {
            return Err(damaged("it is no manifest"));
        }
        if u32_at(bytes, 12) != BACKUP_FORMAT {
            return Err(NoManifest::Format(u32_at(bytes, 12)));
        }
        if u32_at(bytes, 16) as usize != bytes.len() - HEAD_BYTES {
            return Err(damaged("its length differs"));
        }
        if crc32c(&bytes[12..]) != u32_at(bytes, 8) {
            return Err(damaged("its checksum differs"));
        }
        content(&mut Fields(&bytes[HEAD_BYTES..])).ok_or(damaged("its content makes no sense"))
    }
}

fn content(from: &mut Fields<'_>) -> Option<BackupManifest> {
    let incarnation = u128::from_le_bytes(*from.take(16)?.first_chunk()?);
    let (member, cut, taken_at) = (from.u64()?, from.u64()?, from.u64()?);
    let payloads = match from.u32()? {
        0 => PayloadKind::Opaque,
        1 => PayloadKind::Messages,
        _ => return None,
    };
    let is_settled = from.flags(1)? == 1;
    let group = from.text(GROUP_NAME_BYTES_MAX)?;
    let software = from.text(SOFTWARE_BYTES_MAX)?;
    let record = from.bytes(JOURNAL_VALUE_BYTES_MAX)?.to_vec();
    let logs = (0..from.count(SUBGROUPS_MAX)?).map(|_| BackupLog::read(from)).collect::<Option<Vec<_>>>()?;
    let files = (0..from.count(FILES_PER_LOG * SUBGROUPS_MAX)?).map(|_| {
        let path = from.text(PATH_BYTES_MAX)?;
        // The names of a backup lead nowhere else.
        let is_inside = path.split('/').all(|name| !name.is_empty() && name != "." && name != "..");
        is_inside.then_some(())?;
        Some(BackupFile { path, bytes: from.u64()?, checksum: from.u32()? })
    });
    let files = files.collect::<Option<Vec<_>>>()?;
    let manifest = BackupManifest {
        group,
        incarnation,
        member,
        payloads,
        cut,
        taken_at,
        is_settled,
        software,
        record,
        logs,
        files,
    };
    from.0.is_empty().then_some(manifest)
}

impl BackupLog {
    fn put(&self, out: &mut Vec<u8>) {
        put_u32(out, self.number);
        put_bytes(out, self.name.as_deref().unwrap_or_default().as_bytes());
        let ends = [self.floor, self.first.map(|first| (first, 0)), self.last];
        let flags = (0..).zip(ends).map(|(bit, end)| u32::from(end.is_some()) << bit).sum();
        put_u32(out, flags);
        for (version, clock) in ends.map(Option::unwrap_or_default) {
            [version.epoch, version.sequence, clock].into_iter().for_each(|word| put_u64(out, word));
        }
        put_u64(out, self.records);
        put_u32(out, self.snapshots.len() as u32);
        self.snapshots.iter().flat_map(|at| [at.epoch, at.sequence]).for_each(|word| put_u64(out, word));
    }

    fn read(from: &mut Fields<'_>) -> Option<BackupLog> {
        let number = from.u32()?;
        let name = Some(from.text(LOG_NAME_BYTES_MAX)?).filter(|name| !name.is_empty());
        let flags = from.flags(7)?;
        let mut end = |bit: u32| {
            let (version, clock) = (Version::new(from.u64()?, from.u64()?), from.u64()?);
            Some((flags >> bit & 1 == 1).then_some((version, clock)))
        };
        let (floor, first, last) = (end(0)?, end(1)?.map(|(first, _)| first), end(2)?);
        let records = from.u64()?;
        let snapshots = (0..from.count(FILES_PER_LOG - 1)?).map(|_| Some(Version::new(from.u64()?, from.u64()?)));
        let snapshots = snapshots.collect::<Option<Vec<_>>>()?;
        Some(BackupLog { number, name, floor, records, first, last, snapshots })
    }
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn flags(&mut self, known: u32) -> Option<u32> {
        self.u32().filter(|flags| flags & !known == 0)
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.u32()?).ok().filter(|count| *count <= most)
    }

    fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let count = self.count(most)?;
        self.take(count)
    }

    fn text(&mut self, most: usize) -> Option<String> {
        String::from_utf8(self.bytes(most)?.to_vec()).ok()
    }
}
