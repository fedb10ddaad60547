//! Reading a log from its first segment on, and deciding where it ends.
//!
//! The scan verifies every checksum and stops at the first item that is not valid. [`Scan::judge`]
//! then collects the evidence of what was durable, and says whether the log ends there (LOG-PREFIX)
//! or is damaged.
use super::report::{Progress, Report};
use super::shared::{Body, Entry, Segment};
use super::window::Window;
use super::{STATE, number_in, segment_path};
use crate::chunk::Chunk;
use crate::disk::{Disk, File, read_file, read_full};
use crate::error::{Context, Damage, Error, Result};
use crate::format::{Batch, Binding, Position, RECORD_MARK, Seed, SegmentHeader, Slot};
use crate::format::{parse_batch, parse_record, record_checksum, u32_at};
use crate::limits::{ALIGNMENT, BATCH_HEADER_BYTES, PAGE_BYTES, RECORD_HEADER_BYTES, SCAN_BYTES};
use crate::mutation::mutation;
use crate::version::Version;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// Reads the items of a log in order, and stops at the first that is not valid.
pub(crate) struct Scan<'a> {
    disk: &'a dyn Disk,
    path: &'a str,
    binding: Binding,
    pub(super) slot: Slot,
    index_bytes: u64,
    pub(crate) numbers: BTreeSet<u64>,
    generation: u64,
    pub(super) last: Option<(Version, u64)>,
    pub(super) evidence: Option<Version>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) report: Report,
    batch_end: u64,
    stopped: Option<Stop>,
}

/// Where and why a scan stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) at: Position,
    pub(crate) reason: &'static str,
    /// The generation of the last batch, with which a record at `at` would be checked.
    pub(crate) generation: u64,
    /// Whether the segment says itself that it ends there.
    is_sealed: bool,
}

/// The first valid item behind a damaged one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    pub(crate) offset: u64,
    pub(crate) version: Version,
    pub(crate) generation: u64,
}

enum Item {
    Batch(Batch),
    Record(Version, u64, u64),
}

impl<'a> Scan<'a> {
    pub(crate) fn new(disk: &'a dyn Disk, path: &'a str, binding: Binding, index_bytes: u64) -> Result<Self> {
        let slot = read_slot(disk, path, binding)?;
        let names = disk.list(path).during("list", &disk.shown(path))?;
        Ok(Self {
            disk,
            path,
            binding,
            slot,
            index_bytes,
            numbers: names.iter().filter_map(|name| number_in(name, "segment-")).collect(),
            generation: 0,
            last: slot.floor.map(|version| (version, slot.floor_clock)),
            evidence: slot.durable,
            segments: Vec::new(),
            report: Report::default(),
            batch_end: 0,
            stopped: None,
        })
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Reads all segments. Returns where the log ends, or the damage.
    pub(crate) fn run(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Stop> {
        let mut buffer = None;
        let mut stop = Stop {
            at: Position { segment: self.slot.first_segment, offset: 0 },
            reason: "the segment is missing",
            generation: 0,
            is_sealed: false,
        };
        let total = self.numbers.range(self.slot.first_segment..).count() as u64;
        for number in self.slot.first_segment.. {
            let next = Position { segment: number, offset: 0 };
            let is_next = stop.is_sealed || self.segments.is_empty();
            let Some((file, length)) = self.open(number)? else {
                if is_next {
                    stop = Stop { at: next, reason: "the segment is missing", is_sealed: false, ..stop };
                }
                break;
            };
            let header = match self.header(&*file, number)? {
                Ok(header) => header,
                Err(reason) => {
                    if is_next {
                        stop = Stop { at: next, reason, is_sealed: false, ..stop };
                    }
                    break;
                }
            };
            let window = match buffer.take() {
                Some(window) => window,
                None => Window::new(file.clone(), length, SCAN_BYTES),
            };
            let (end, window) = self.segment(file, length, header, window)?;
            buffer = Some(window);
            stop = end;
            self.report.bytes += end.at.offset;
            progress(Progress {
                subgroup: self.binding.subgroup,
                segments: self.report.segments,
                segments_total: total,
                bytes: self.report.bytes,
            });
            // Without records a segment counts only if a repair left it so.
            if !stop.is_sealed && self.segments.last().is_none_or(|segment| segment.number != number) {
                break;
            }
        }
        self.judge(stop)
    }

    fn open(&self, number: u64) -> Result<Option<(Arc<dyn File>, u64)>> {
        if !self.numbers.contains(&number) {
            return Ok(None);
        }
        let path = segment_path(self.path, number);
        let shown = self.disk.shown(&path);
        let file = self.disk.open(&path).during("open", &shown)?;
        let length = file.bytes().during("read the length of", &shown)?;
        Ok(Some((file, length)))
    }

    /// The header, if the segment continues what was read so far.
    fn header(&self, file: &dyn File, number: u64) -> Result<Result<SegmentHeader, &'static str>> {
        let header = match self.raw_header(file, number)? {
            Ok(header) => header,
            Err(reason) => return Ok(Err(reason)),
        };
        if !self.counts(Position { segment: number, offset: PAGE_BYTES }, header.generation, self.generation)? {
            return Ok(Err("the segment is of an earlier generation"));
        }
        let is_first = number == self.slot.first_segment;
        if !is_first && header.previous != self.last.map(|(version, _)| version) {
            return Ok(Err("records are missing before the next segment"));
        }
        Ok(Ok(header))
    }

    fn raw_header(&self, file: &dyn File, number: u64) -> Result<Result<SegmentHeader, &'static str>> {
        let shown = self.disk.shown(&segment_path(self.path, number));
        let mut page = vec![0; PAGE_BYTES as usize];
        let read = read_full(file, &mut page, 0).during("read", &shown)?;
        let found = u32_at(&page, 12);
        if read >= 16 && page.starts_with(b"SPNDLSEG") && found > crate::limits::FORMAT && found < 1 << 16 {
            return Err(Error::Format { path: shown, found, expected: crate::limits::FORMAT });
        }
        Ok(SegmentHeader::parse(&page[..read], self.binding, number))
    }

    /// Whether something of a generation counts at a position.
    fn counts(&self, at: Position, generation: u64, current: u64) -> Result<bool> {
        if mutation!(ChecksumsBindNothing) {
            return Ok(true);
        }
        if generation > self.slot.generation {
            let path = self.disk.shown(&format!("{}/{STATE}", self.path));
            return Err(Error::CorruptFile { path, reason: "the log has a later generation than the state" });
        }
        Ok(generation >= current && (at < self.slot.start || generation == self.slot.generation))
    }

    fn segment(
        &mut self,
        file: Arc<dyn File>,
        length: u64,
        header: SegmentHeader,
        mut window: Window,
    ) -> Result<(Stop, Window)> {
        let number = header.number;
        let path = self.disk.shown(&segment_path(self.path, number));
        window.change(file.clone(), length);
        self.evidence = self.evidence.max(header.durable);
        let mut generation = header.generation;
        let mut seed = None;
        let mut body = Body::default();
        let mut first = None;
        let mut indexed_at = 0;
        let mut offset = PAGE_BYTES;
        self.batch_end = 0;
        let mut is_sealed = false;
        let reason = loop {
            let at = Position { segment: number, offset };
            let seed_here = if at == self.slot.start { None } else { seed };
            match self.item(&mut window, at, seed_here).during("read", &path)? {
                Err(reason) => break reason,
                Ok(Item::Batch(batch)) => {
                    if !self.counts(at, batch.generation, generation)? {
                        break "the batch is of an earlier generation";
                    }
                    self.evidence = self.evidence.max(batch.durable);
                    if batch.is_seal {
                        is_sealed = true;
                        break "the segment is sealed";
                    }
                    generation = batch.generation;
                    seed = Some(Seed::new(self.binding, number, generation));
                    offset += BATCH_HEADER_BYTES;
                    self.batch_end = offset.saturating_add(batch.bytes);
                }
                Ok(Item::Record(version, clock, bytes)) => {
                    if self.last.is_some_and(|(last, last_clock)| version <= last || clock < last_clock) {
                        break "the version or the clock does not follow";
                    }
                    let entry = Entry { version, clock, offset, generation };
                    if indexed_at == 0 || offset - indexed_at >= self.index_bytes {
                        body.index.push(entry);
                        indexed_at = offset;
                    }
                    first.get_or_insert(entry);
                    self.last = Some((version, clock));
                    self.report.records += 1;
                    offset += bytes;
                }
            }
        };
        if let (Some(first), Some((last, last_clock))) = (first, self.last) {
            (body.end, body.last, body.last_clock) = (offset, last, last_clock);
            self.segments.push(Segment::new(number, file, path, length, first, body));
            self.report.segments += 1;
            self.generation = generation;
        }
        Ok((Stop { at: Position { segment: number, offset }, reason, generation, is_sealed }, window))
    }

    /// The item at an offset, or the reason why there is none.
    fn item(&self, window: &mut Window, at: Position, seed: Option<Seed>) -> io::Result<Result<Item, &'static str>> {
        let mut bytes = window.held(at.offset, BATCH_HEADER_BYTES)?;
        if bytes.len() < RECORD_HEADER_BYTES as usize {
            return Ok(Err("the segment ends"));
        }
        let length = u64::from(u32_at(bytes, 4));
        if length == u64::from(RECORD_MARK) {
            let batch = parse_batch(bytes, self.binding, at.segment, at.offset);
            return Ok(batch.map(Item::Batch).ok_or("the checksum of the batch header differs"));
        }
        let Some(seed) = seed else { return Ok(Err("a batch header is missing")) };
        let end = RECORD_HEADER_BYTES + length;
        if (bytes.len() as u64) < end {
            if at.offset + end > window.end() {
                return Ok(Err("the record is longer than the segment"));
            }
            bytes = window.held(at.offset, end)?;
        }
        let Some(record) = bytes.get(..end as usize) else { return Ok(Err("the file ends early")) };
        if record_checksum(seed, at.offset, record) != u32_at(record, 0) {
            let is_blank = record[..RECORD_HEADER_BYTES as usize].iter().all(|byte| *byte == 0);
            return Ok(Err(if is_blank { "the record is missing" } else { "the checksum of the record differs" }));
        }
        let (version, clock, length) = parse_record(record);
        Ok(Ok(Item::Record(version, clock, Chunk::encoded_bytes(u64::from(length)))))
    }

    /// Decides whether the log ends at the stop or is damaged there.
    fn judge(&mut self, stop: Stop) -> Result<Stop> {
        self.stopped = Some(stop);
        let last = self.last.map(|(version, _)| version);
        let mut torn_bytes = if stop.at == self.slot.start { 0 } else { self.batch_end.saturating_sub(stop.at.offset) };
        let mut before = None;
        for number in self.numbers.range(stop.at.segment..).copied().collect::<Vec<_>>() {
            let Some((file, length)) = self.open(number)? else { continue };
            let from = if number == stop.at.segment { stop.at.offset.max(PAGE_BYTES) } else { PAGE_BYTES };
            if (number > stop.at.segment || stop.at.offset == 0)
                && let Ok(header) = self.raw_header(&*file, number)?
                && self.counts(Position { segment: number, offset: from }, header.generation, stop.generation)?
            {
                self.evidence = self.evidence.max(header.durable);
                self.report.torn_segments += 1;
            }
            let path = self.disk.shown(&segment_path(self.path, number));
            let mut window = Window::new(file, length, SCAN_BYTES);
            let mut offset = from;
            while let Some(batch) = self.next_batch(&mut window, number, &mut offset).during("read", &path)? {
                let at = Position { segment: number, offset: offset - BATCH_HEADER_BYTES };
                if self.counts(at, batch.generation, stop.generation)? {
                    self.evidence = self.evidence.max(batch.durable);
                    torn_bytes = torn_bytes.max(BATCH_HEADER_BYTES + batch.bytes);
                }
            }
            if before.is_none() && self.evidence > last {
                before =
                    self.resumption(&mut window, Stop { at: Position { segment: number, offset: from }, ..stop })?;
            }
        }
        if self.evidence > last && !mutation!(EveryTailCut) {
            return Err(Error::Corrupt(Box::new(Damage {
                path: self.disk.shown(&segment_path(self.path, stop.at.segment)),
                offset: stop.at.offset,
                subgroup: self.binding.subgroup,
                segment: stop.at.segment,
                after: last,
                before: before.map(|found| found.version),
                through: self.evidence,
                reason: stop.reason,
            })));
        }
        self.report.torn_bytes = torn_bytes;
        self.end_here();
        Ok(stop)
    }

    /// Takes what was read for the whole log, and returns its last version.
    pub(crate) fn end_here(&mut self) -> Option<Version> {
        self.report.last = self.last.map(|(version, _)| version);
        self.report.first = self.segments.first().map(|segment| segment.first);
        self.report.last
    }

    /// The first version of the first segment, by its header.
    pub(crate) fn first(&self) -> Result<Option<Version>> {
        let number = self.slot.first_segment;
        let Some((file, _)) = self.open(number)? else { return Ok(None) };
        Ok(self.raw_header(&*file, number)?.ok().map(|header| header.first))
    }

    /// Lets the scan begin with the last segment but one, if its header is valid. The last one may
    /// have no record yet.
    pub(crate) fn begin_near_the_end(&mut self) -> Result<()> {
        let Some(number) = self.numbers.range(self.slot.first_segment..).rev().nth(1).copied() else { return Ok(()) };
        let Some((file, _)) = self.open(number)? else { return Ok(()) };
        if let Ok(header) = self.raw_header(&*file, number)?
            && self.counts(Position { segment: number, offset: PAGE_BYTES }, header.generation, 0)?
        {
            self.slot.first_segment = number;
            // The clock of that record is not known here, and is at least 0.
            self.last = header.previous.map(|version| (version, 0));
        }
        Ok(())
    }

    /// The next valid batch header at or behind `offset`, which moves behind it.
    fn next_batch(&self, window: &mut Window, number: u64, offset: &mut u64) -> io::Result<Option<Batch>> {
        loop {
            let left = window.end().saturating_sub(*offset).min(SCAN_BYTES as u64);
            if left < BATCH_HEADER_BYTES {
                return Ok(None);
            }
            let Some(bytes) = window.bytes(*offset, left)? else { return Ok(None) };
            let last = (left - BATCH_HEADER_BYTES) as usize;
            for at in (0..=last).step_by(ALIGNMENT as usize) {
                if u32_at(bytes, at + 4) != RECORD_MARK {
                    continue;
                }
                if let Some(batch) = parse_batch(&bytes[at..], self.binding, number, *offset + at as u64) {
                    *offset += at as u64 + BATCH_HEADER_BYTES;
                    return Ok(Some(batch));
                }
            }
            *offset += (last as u64 / ALIGNMENT + 1) * ALIGNMENT;
        }
    }

    /// The first valid record behind a damaged item of a segment.
    pub(crate) fn resumption(&self, window: &mut Window, stop: Stop) -> Result<Option<Resumption>> {
        let number = stop.at.segment;
        let path = self.disk.shown(&segment_path(self.path, number));
        let last = self.last.map(|(version, _)| version);
        let seed = Seed::new(self.binding, number, stop.generation);
        let mut candidates = vec![(stop.at.offset + BATCH_HEADER_BYTES, stop.generation)];
        if let Some(header) = window.bytes(stop.at.offset, RECORD_HEADER_BYTES).during("read", &path)? {
            let bytes = Chunk::encoded_bytes(u64::from(u32_at(header, 4)));
            candidates.push((stop.at.offset.saturating_add(bytes), stop.generation));
        }
        for (offset, generation) in candidates {
            let at = Position { segment: number, offset };
            if !self.counts(at, generation, generation)? {
                continue;
            }
            let item = self.item(window, at, Some(seed)).during("read", &path)?;
            if let Ok(Item::Record(version, ..)) = item
                && Some(version) > last
            {
                return Ok(Some(Resumption { offset, version, generation }));
            }
        }
        let mut offset = stop.at.offset;
        while let Some(batch) = self.next_batch(window, number, &mut offset).during("read", &path)? {
            let at = Position { segment: number, offset: offset - BATCH_HEADER_BYTES };
            if !self.counts(at, batch.generation, stop.generation)? {
                continue;
            }
            let seed = Seed::new(self.binding, number, batch.generation);
            let item = self.item(window, Position { segment: number, offset }, Some(seed)).during("read", &path)?;
            if let Ok(Item::Record(version, ..)) = item
                && Some(version) > last
            {
                return Ok(Some(Resumption { offset, version, generation: batch.generation }));
            }
        }
        Ok(None)
    }

    /// Reads the valid items of a segment from an offset on, for a repair.
    pub(crate) fn copy_from(
        &self,
        window: &mut Window,
        number: u64,
        from: Resumption,
        copy: &mut dyn FnMut(u64, &[u8]),
    ) -> io::Result<()> {
        let (mut offset, mut generation) = (from.offset, from.generation);
        let mut last = None;
        loop {
            let at = Position { segment: number, offset };
            let seed =
                (at != self.slot.start || offset == from.offset).then(|| Seed::new(self.binding, number, generation));
            match self.item(window, at, seed)? {
                Ok(Item::Batch(batch))
                    if !batch.is_seal && self.counts(at, batch.generation, generation).unwrap_or(false) =>
                {
                    generation = batch.generation;
                    offset += BATCH_HEADER_BYTES;
                }
                Ok(Item::Record(version, _, bytes))
                    if last.is_none_or(|last| last < version)
                        && self.counts(at, generation, generation).unwrap_or(false) =>
                {
                    last = Some(version);
                    if let Some(record) = window.bytes(offset, bytes.min(window.end() - offset))? {
                        copy(generation, record);
                    }
                    offset += bytes;
                }
                _ => return Ok(()),
            }
        }
    }

    pub(crate) fn last(&self) -> Option<(Version, u64)> {
        self.last
    }

    /// The generation of the last valid batch.
    pub(crate) fn generation(&self) -> u64 {
        self.stopped.map_or(self.generation, |stop| stop.generation)
    }

    /// The stop of the last scan, at another position.
    pub(crate) fn stop_at(&self, at: Position) -> Stop {
        let generation = self.generation();
        Stop { at, reason: "", generation, is_sealed: false }
    }
}

pub(crate) fn read_slot(disk: &dyn Disk, path: &str, binding: Binding) -> Result<Slot> {
    let state = format!("{path}/{STATE}");
    let shown = disk.shown(&state);
    let mut bytes = read_file(disk, &state, 2 * PAGE_BYTES)?;
    let read = bytes.len();
    bytes.resize(2 * PAGE_BYTES as usize, 0);
    let found = u32_at(&bytes, 12);
    match Slot::newest(&bytes[..read], binding) {
        Some(slot) => Ok(slot),
        None if bytes.starts_with(b"SPNDLSLT") && found > crate::limits::FORMAT && found < 1 << 16 => {
            Err(Error::Format { path: shown, found, expected: crate::limits::FORMAT })
        }
        None => Err(Error::CorruptFile { path: shown, reason: "no slot of this log is valid" }),
    }
}
