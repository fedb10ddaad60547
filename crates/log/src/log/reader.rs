//! Reading: by version, by time, and in order, while the writer appends.
use super::cut::{Prunable, Retention};
use super::shared::{Entry, Segment, Shared};
use super::window::Window;
use crate::chunk::Chunk;
use crate::error::{Context, Damage, Error, Result};
use crate::format::{Binding, Seed, parse_batch, parse_record, record_checksum, u32_at};
use crate::limits::{BATCH_HEADER_BYTES, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES};
use crate::version::{Record, Version};
use std::sync::Arc;

/// The bytes of the first read after a seek.
const FIRST_READ_BYTES: usize = 16 << 10;

/// A handle from which any thread makes [`Reader`]s.
#[derive(Clone)]
pub struct Readers {
    pub(crate) shared: Arc<Shared>,
    pub(crate) binding: Binding,
}

impl Readers {
    /// The durable frontier: the last version that readers see.
    pub fn durable(&self) -> Option<Version> {
        self.shared.view().durable
    }

    /// The oldest version.
    pub fn oldest(&self) -> Option<Version> {
        self.shared.view().oldest()
    }

    /// The last version that was pruned.
    pub fn floor(&self) -> Option<Version> {
        self.shared.view().floor
    }

    /// The part of the log that a retention rule allows to prune, holds apart.
    pub fn prunable(&self, retention: &Retention) -> Prunable {
        self.shared.view().prunable(retention)
    }

    /// A reader that begins at the first record.
    pub fn reader(&self) -> Reader {
        let first = {
            let view = self.shared.view();
            view.oldest().or(view.floor.map(Version::next)).unwrap_or_default()
        };
        Reader {
            shared: self.shared.clone(),
            binding: self.binding,
            at: None,
            cuts: self.shared.cuts(),
            last: None,
            target: Target::Version(first),
            read: None,
            taken: None,
        }
    }

    /// Keeps records from `from` on from being pruned until the hold is dropped.
    ///
    /// # Errors
    /// [`Error::Pruned`] if `from` is or is being pruned, [`Error::Range`] if there are
    /// [`HOLDS_MAX`](crate::limits::HOLDS_MAX) holds already.
    pub fn hold(&self, from: Version) -> Result<super::Hold> {
        super::Hold::new(&self.shared, from)
    }
}

/// Reads durable records in order. Each payload is copied once, from the file.
pub struct Reader {
    shared: Arc<Shared>,
    binding: Binding,
    at: Option<Cursor>,
    cuts: u64,
    last: Option<Version>,
    target: Target,
    /// The record that was read last, also if the next one is not there yet.
    read: Option<Version>,
    /// Its offset.
    taken: Option<u64>,
}

/// The place of a record on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file of the segment.
    pub path: String,
    /// The number of the segment.
    pub segment: u64,
    /// The offset of the record in it, in bytes.
    pub offset: u64,
}

/// Where the next record is looked for.
#[derive(Clone, Copy)]
enum Target {
    Version(Version),
    Clock(u64),
}

struct Cursor {
    segment: Arc<Segment>,
    window: Window,
    offset: u64,
    generation: u64,
    seed: Seed,
}

struct Found {
    offset: u64,
    header: (Version, u64, u32),
}

impl Reader {
    /// The next record is the first of at least `version`.
    pub fn seek(&mut self, version: Version) {
        (self.target, self.last, self.read, self.taken) = (Target::Version(version), None, None, None);
        self.unplace();
    }

    /// The next record is the first with a clock of at least `clock`.
    pub fn seek_clock(&mut self, clock: u64) {
        (self.target, self.last, self.read, self.taken) = (Target::Clock(clock), None, None, None);
        self.unplace();
    }

    /// The record of exactly this version.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn get(&mut self, version: Version) -> Result<Option<Record<'_>>> {
        self.seek(version);
        Ok(self.next()?.filter(|record| record.version == version))
    }

    /// The last version below `version`; `None` if there is none.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn last_before(&mut self, version: Version) -> Result<Option<Version>> {
        let entry = {
            let view = self.shared.view();
            let segments = view.segments.partition_point(|segment| segment.first < version);
            let Some(segment) = segments.checked_sub(1).and_then(|last| view.segments.get(last)) else {
                return Ok(None);
            };
            let body = segment.body();
            let entries = body.index.partition_point(|entry| entry.version < version);
            entries.checked_sub(1).map_or(segment.first, |last| body.index[last].version)
        };
        self.seek(entry);
        self.check_cut()?;
        let mut last = None;
        while self.at.is_some() || self.place()? {
            match self.find()?.filter(|found| found.header.0 < version) {
                Some(found) => {
                    last = Some(found.header.0);
                    self.skip(&found);
                }
                None => break,
            }
        }
        Ok(last)
    }

    /// The last record with a clock of at most `clock`: the state as of that time contains it and
    /// nothing later. `None` if all records are later.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn at_clock(&mut self, clock: u64) -> Result<Option<Record<'_>>> {
        let Some(entry) = self.entry_before(clock)? else { return Ok(None) };
        self.seek(entry);
        self.check_cut()?;
        let mut last = None;
        loop {
            if self.at.is_none() && !self.place()? {
                break;
            }
            match self.find()? {
                None => break,
                Some(found) if found.header.1 > clock => break,
                Some(found) => {
                    self.skip(&found);
                    let generation = self.at.as_ref().map(|cursor| (cursor.generation, cursor.seed));
                    last = Some((found, generation));
                }
            }
        }
        let Some((found, generation)) = last else { return Ok(None) };
        // The search may have passed into the batch of a later generation.
        if let (Some(cursor), Some((generation, seed))) = (&mut self.at, generation) {
            (cursor.offset, cursor.generation, cursor.seed) = (found.offset, generation, seed);
        }
        self.target = Target::Version(found.header.0);
        self.take(found).map(Some)
    }

    /// An indexed version whose clock is at most `clock`, as late as the index knows one.
    fn entry_before(&self, clock: u64) -> Result<Option<Version>> {
        let view = self.shared.view();
        let after = view.segments.partition_point(|segment| segment.first_clock <= clock);
        let Some(segment) = after.checked_sub(1).and_then(|before| view.segments.get(before)) else {
            return match (view.floor, view.oldest()) {
                (Some(_), Some(oldest)) => Err(Error::Pruned { oldest }),
                _ => Ok(None),
            };
        };
        let body = segment.body();
        let after = body.index.partition_point(|entry| entry.clock <= clock);
        Ok(after.checked_sub(1).map(|before| body.index[before].version))
    }

    /// The next record, or `None` at the durable frontier. Later calls see what was appended since.
    ///
    /// # Errors
    /// [`Error::Pruned`] if the record was pruned, [`Error::WasCut`] if it was cut,
    /// [`Error::Corrupt`] if it is damaged, [`Error::Io`] if it cannot be read.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        self.check_cut()?;
        loop {
            if self.at.is_none() && !self.place()? {
                return Ok(None);
            }
            match self.find()? {
                None if !self.advance()? => return Ok(None),
                None => {}
                Some(found) => {
                    let (version, clock, _) = found.header;
                    let is_before = self.last.is_none()
                        && match self.target {
                            Target::Version(target) => version < target,
                            Target::Clock(target) => clock < target,
                        };
                    if is_before {
                        self.skip(&found);
                        continue;
                    }
                    return self.take(found).map(Some);
                }
            }
        }
    }

    /// The place of the record that was read last.
    pub fn place_of_last(&self) -> Option<Place> {
        let (cursor, offset) = (self.at.as_ref()?, self.taken?);
        Some(Place { path: cursor.segment.path.clone(), segment: cursor.segment.number, offset })
    }

    /// Keeps the window for its buffer.
    fn unplace(&mut self) {
        if self.place_again().is_none() {
            self.at = None;
        }
    }

    /// Moves an existing cursor to the target, if its segment is there.
    fn place_again(&mut self) -> Option<()> {
        let cursor = self.at.as_mut()?;
        let (segment, entry) = locate(&self.shared, self.target).ok()??;
        if segment.number != cursor.segment.number || !Arc::ptr_eq(&segment, &cursor.segment) {
            let end = segment.body().end;
            cursor.window.change(segment.file.clone(), end);
            cursor.segment = segment;
        }
        cursor.window.set_end(cursor.segment.body().end);
        cursor.window.set_step(FIRST_READ_BYTES);
        (cursor.offset, cursor.generation) = (entry.offset, entry.generation);
        cursor.seed = Seed::new(self.binding, cursor.segment.number, entry.generation);
        Some(())
    }

    /// After a cut, continues behind the record that was read last, if the log still has it. Records of later
    /// versions may have been appended since, so the end of the log does not tell.
    fn check_cut(&mut self) -> Result<()> {
        let cuts = self.shared.cuts();
        if cuts == self.cuts {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.cuts, cuts);
        self.at = None;
        let Some(version) = self.read else { return Ok(()) };
        if self.get(version)?.is_none() {
            // All later calls find the same.
            (self.cuts, self.read) = (before, Some(version));
            return Err(Error::WasCut { version });
        }
        Ok(())
    }

    /// Finds the index entry at or before the target. Returns `false` if there is no record yet.
    fn place(&mut self) -> Result<bool> {
        if let Some(last) = self.last.take() {
            self.target = Target::Version(last.next());
        }
        let Some((segment, entry)) = locate(&self.shared, self.target)? else { return Ok(false) };
        let end = segment.body().end;
        self.at = Some(Cursor {
            window: Window::new(segment.file.clone(), end, FIRST_READ_BYTES),
            offset: entry.offset,
            generation: entry.generation,
            seed: Seed::new(self.binding, segment.number, entry.generation),
            segment,
        });
        Ok(true)
    }

    /// The record at the cursor. `None` at the end of the segment.
    fn find(&mut self) -> Result<Option<Found>> {
        let Some(cursor) = &mut self.at else { return Ok(None) };
        loop {
            if cursor.offset >= cursor.window.end() {
                let end = cursor.segment.body().end;
                if cursor.offset >= end {
                    return Ok(None);
                }
                cursor.window.set_end(end);
            }
            let path = &cursor.segment.path;
            let number = cursor.segment.number;
            let header = match cursor.window.bytes(cursor.offset, 8).during("read", path)? {
                Some(bytes) if u32_at(bytes, 4) == crate::format::RECORD_MARK => {
                    let bytes = cursor.window.bytes(cursor.offset, BATCH_HEADER_BYTES).during("read", path)?;
                    let batch = bytes.and_then(|bytes| parse_batch(bytes, self.binding, number, cursor.offset));
                    let Some(batch) = batch else { return Err(self.damage("the batch header is damaged")) };
                    if batch.generation != cursor.generation {
                        cursor.generation = batch.generation;
                        cursor.seed = Seed::new(self.binding, number, batch.generation);
                    }
                    cursor.offset += BATCH_HEADER_BYTES;
                    continue;
                }
                Some(_) => cursor.window.bytes(cursor.offset, RECORD_HEADER_BYTES).during("read", path)?,
                None => None,
            };
            let Some(header) = header.map(parse_record) else {
                return Err(self.damage("the file ends early"));
            };
            if u64::from(header.2) > PAYLOAD_BYTES_MAX {
                return Err(self.damage("the length of the record is impossible"));
            }
            return Ok(Some(Found { offset: cursor.offset, header }));
        }
    }

    /// Passes a record whose length only is used. A wrong one is noticed at the record looked for.
    fn skip(&mut self, found: &Found) {
        if let Some(cursor) = &mut self.at {
            cursor.offset += Chunk::encoded_bytes(u64::from(found.header.2));
        }
    }

    fn take(&mut self, found: Found) -> Result<Record<'_>> {
        let (version, clock, length) = found.header;
        let bytes = RECORD_HEADER_BYTES + u64::from(length);
        let is_valid = match &mut self.at {
            Some(cursor) => {
                let read = cursor.window.bytes(found.offset, bytes).during("read", &cursor.segment.path)?;
                read.is_some_and(|bytes| record_checksum(cursor.seed, found.offset, bytes) == u32_at(bytes, 0))
            }
            None => false,
        };
        if !is_valid || self.last.is_some_and(|last| last >= version) {
            return Err(self.damage("the checksum of the record differs"));
        }
        (self.last, self.read, self.taken) = (Some(version), Some(version), Some(found.offset));
        let Some(cursor) = &mut self.at else { return Err(Error::Stopped) };
        cursor.offset += Chunk::encoded_bytes(u64::from(length));
        let read = cursor.window.bytes(found.offset, bytes).during("read", &cursor.segment.path)?;
        let payload = read.map_or(&[][..], |bytes| &bytes[RECORD_HEADER_BYTES as usize..]);
        Ok(Record { version, clock, payload })
    }

    /// Moves to the next segment. Returns `false` if there is none yet.
    fn advance(&mut self) -> Result<bool> {
        let Some(cursor) = &mut self.at else { return Ok(false) };
        let view = self.shared.view();
        // One commit may have added to this segment and begun the next one since its end was seen.
        if cursor.offset < cursor.segment.body().end {
            return Ok(true);
        }
        let after = view.segments.partition_point(|segment| segment.number <= cursor.segment.number);
        // A gap before the first segment is one of pruned records.
        let is_pruned = after == 0;
        let next = view.segments.get(after).filter(|_| !is_pruned);
        match next {
            Some(next) => {
                let entry = next.body().index.first().copied();
                let Some(entry) = entry else { return Ok(false) };
                cursor.window.change(next.file.clone(), next.body().end);
                cursor.offset = entry.offset;
                cursor.generation = entry.generation;
                cursor.seed = Seed::new(self.binding, next.number, entry.generation);
                cursor.segment = next.clone();
                Ok(true)
            }
            None => match view.segments.front() {
                Some(front) if front.number > cursor.segment.number => Err(Error::Pruned { oldest: front.first }),
                _ => Ok(false),
            },
        }
    }

    fn damage(&self, reason: &'static str) -> Error {
        let Some(cursor) = &self.at else { return Error::Stopped };
        if self.shared.cuts() != self.cuts {
            // The bytes were cut while they were read, and others have been written there.
            return Error::WasCut { version: self.last.unwrap_or_default() };
        }
        Error::Corrupt(Box::new(Damage {
            path: cursor.segment.path.clone(),
            offset: cursor.offset,
            subgroup: self.binding.subgroup,
            segment: cursor.segment.number,
            after: self.last,
            before: None,
            through: Some(cursor.segment.body().last),
            reason,
        }))
    }
}

/// The segment and the index entry at or before a target.
fn locate(shared: &Shared, target: Target) -> Result<Option<(Arc<Segment>, Entry)>> {
    let view = shared.view();
    let is_below = |version: Version, clock: u64| match target {
        Target::Version(target) => version <= target,
        // Several records may have the clock, and the first of them counts.
        Target::Clock(target) => clock < target,
    };
    let after = view.segments.partition_point(|segment| is_below(segment.first, segment.first_clock));
    let is_pruned = after == 0
        && match (target, view.floor) {
            (Target::Version(target), Some(floor)) => target <= floor,
            (Target::Clock(_), Some(_)) => true,
            (_, None) => false,
        };
    if let (true, Some(oldest)) = (is_pruned, view.oldest().or(view.floor.map(Version::next))) {
        // A clock equal to the first record's may belong to pruned records, too.
        return Err(Error::Pruned { oldest });
    }
    let Some(segment) = view.segments.get(after.saturating_sub(1)) else { return Ok(None) };
    let body = segment.body();
    let after = body.index.partition_point(|entry| is_below(entry.version, entry.clock));
    let entry = body.index.get(after.saturating_sub(1)).copied();
    drop(body);
    Ok(entry.map(|entry| (segment.clone(), entry)))
}
