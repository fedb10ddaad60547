//! Replacing a damaged range of records by those of a peer.
use crate::chunk::{Chunk, follows};
use crate::disk::{Disk, replace_file, write_all};
use crate::error::{Context, Damage, Error, Result};
use crate::format::{Batch, Position, Seed, SegmentHeader, Slot, encode_record, parse_record, put, record_checksum};
use crate::limits::{BATCH_HEADER_BYTES, PAGE_BYTES, RECORD_HEADER_BYTES, SCAN_BYTES};
use crate::log::scan::{Resumption, Scan};
use crate::log::window::Window;
use crate::log::{STATE, segment_name, segment_path};
use crate::store::DataDirectory;
use crate::version::{Record, Version};

/// Rewrites the damaged segment with a peer's records in place of the lost range. The log must not
/// be open; open it again afterwards, which reports the next damage if there is one.
///
/// `records` are all records of the group above [`Damage::after`] and below [`Damage::before`], or
/// up to [`Damage::through`] at least if nothing follows. Intact records behind the damage stay.
/// A crash leaves the segment as it was or repaired.
///
/// # Errors
/// [`Error::Misfit`] if a record is outside the range, [`Error::Order`], [`Error::Io`], or what the
/// log is damaged by beside `damage`.
pub fn repair(directory: &DataDirectory, damage: &Damage, records: &[Record<'_>]) -> Result<()> {
    let disk = &**directory.disk();
    let path = directory.log_path(damage.subgroup);
    let binding = directory.binding(damage.subgroup);
    let mut scan = Scan::new(disk, &path, binding, u64::MAX)?;
    let found = match scan.run(&mut |_| ()) {
        Err(Error::Corrupt(found)) => found,
        Err(error) => return Err(error),
        Ok(_) => return Ok(()),
    };
    check_range(&found, records)?;
    let number = found.segment;
    let segment = segment_path(&path, number);
    let shown = disk.shown(&segment);
    let file = if scan.numbers.contains(&number) { Some(disk.open(&segment).during("open", &shown)?) } else { None };
    let length = match &file {
        Some(file) => file.bytes().during("read the length of", &shown)?,
        None => 0,
    };
    let slot = scan.slot();
    let mut window = file.map(|file| Window::new(file, length, SCAN_BYTES));

    // Up to the damage the bytes are valid where they are.
    let mut generation = scan.generation();
    let mut bytes = Vec::new();
    if found.offset > PAGE_BYTES
        && let Some(window) = &mut window
    {
        bytes = window.bytes(0, found.offset).during("read", &shown)?.map(<[u8]>::to_vec).unwrap_or_default();
    }
    if bytes.is_empty() {
        generation = generation.max(if slot.start.segment <= number { slot.generation } else { 0 });
        let first = records.first().map(|record| record.version).or(found.before).unwrap_or_default();
        let previous = scan.last().map(|(version, _)| version);
        bytes = SegmentHeader { number, generation, previous, durable: None, first }.encode(binding);
    }
    let start = bytes.len() as u64;
    // Behind the damage everything moves, so from there on only the newest generation may count.
    let forced = (slot.start.segment <= number).then_some(slot.generation);
    let mut writer = Rewriter { bytes, binding, number, generation: None };
    for record in records {
        let mut encoded = Vec::new();
        encode_record(&mut encoded, record.version, record.clock, &[record.payload]);
        writer.push(forced.unwrap_or(generation), &encoded);
    }
    if let (Some(window), Some(before)) = (&mut window, found.before) {
        let from = scan.resume(window, &found, number)?;
        if let Some(from) = from.filter(|from| from.version == before) {
            let mut copy = |generation, record: &[u8]| writer.push(forced.unwrap_or(generation), record);
            scan.copy_from(window, number, from, &mut copy).during("read", &shown)?;
        }
    }
    let seal = Batch {
        generation: writer.generation.or(forced).unwrap_or(generation),
        durable: None,
        is_seal: true,
        records: 0,
        bytes: 0,
    };
    let end = writer.bytes.len() as u64;
    writer.bytes.extend_from_slice(&seal.encode(binding, number, end));
    let length = length.max((end + 2 * BATCH_HEADER_BYTES).next_multiple_of(PAGE_BYTES));
    replace_file(disk, &path, &segment_name(number), &writer.bytes, length)?;
    if slot.start.segment == number && slot.start.offset > start {
        write_slots(disk, &path, binding, Slot { start: Position { segment: number, offset: start }, ..slot })?;
    }
    Ok(())
}

fn check_range(damage: &Damage, records: &[Record<'_>]) -> Result<()> {
    let mut last = None;
    for record in records {
        let given = record.version;
        if Some(given) <= damage.after || damage.before.is_some_and(|before| given >= before) {
            return Err(Error::Misfit { given, after: damage.after, before: damage.before });
        }
        follows(last, (given, record.clock))?;
        last = Some((given, record.clock));
    }
    let reached = last.map(|(version, _): (Version, u64)| version).or(damage.after);
    match damage.through {
        Some(through) if damage.before.is_none() && reached < Some(through) => {
            Err(Error::Misfit { given: reached.unwrap_or_default(), after: damage.after, before: Some(through) })
        }
        _ => Ok(()),
    }
}

/// Builds a segment anew.
struct Rewriter {
    bytes: Vec<u8>,
    binding: crate::format::Binding,
    number: u64,
    /// The generation of the batch that was begun last, by this.
    generation: Option<u64>,
}

impl Rewriter {
    fn push(&mut self, generation: u64, record: &[u8]) {
        if self.generation != Some(generation) {
            let batch = Batch { generation, durable: None, is_seal: false, records: 0, bytes: 0 };
            let offset = self.bytes.len() as u64;
            self.bytes.extend_from_slice(&batch.encode(self.binding, self.number, offset));
            self.generation = Some(generation);
        }
        let offset = self.bytes.len() as u64;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        let (_, _, length) = parse_record(record);
        let end = start + RECORD_HEADER_BYTES as usize + length as usize;
        let seed = Seed::new(self.binding, self.number, generation);
        let crc = record_checksum(seed, offset, &self.bytes[start..end]);
        put(&mut self.bytes, start, &crc.to_le_bytes());
        let padded = start + Chunk::encoded_bytes(u64::from(length)) as usize;
        self.bytes.resize(padded, 0);
    }
}

fn write_slots(disk: &dyn Disk, path: &str, binding: crate::format::Binding, mut slot: Slot) -> Result<()> {
    let state = format!("{path}/{STATE}");
    let shown = disk.shown(&state);
    let file = disk.open(&state).during("open", &shown)?;
    for _ in 0..2 {
        slot.number += 1;
        write_all(&*file, &[&slot.encode(binding)], slot.offset()).during("write", &shown)?;
        file.sync_data().during("sync", &shown)?;
    }
    Ok(())
}

impl Scan<'_> {
    /// The first valid record behind the damage.
    fn resume(&self, window: &mut Window, damage: &Damage, number: u64) -> Result<Option<Resumption>> {
        let at = Position { segment: number, offset: damage.offset.max(PAGE_BYTES) };
        self.resumption(window, self.stop_at(at))
    }
}
