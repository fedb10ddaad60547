//! Appending: a write for each segment that is touched, then a sync of each file.
use super::shared::{Body, Entry, Segment};
use super::{Begun, Log, Written, make_file};
use crate::chunk::{Chunk, follows};
use crate::disk::{File, TEMPORARY, write_all};
use crate::error::{Context, Error, Result, in_range};
use crate::format::{Batch, Position, Seed, SegmentHeader, parse_record, place_record, u32_at};
use crate::limits::{BATCH_HEADER_BYTES, PAGE_BYTES, SEGMENTS_MAX};
use crate::mutation::mutation;
use crate::version::{Record, Version};
use std::ops::Range;
use std::sync::Arc;

/// The records of a commit that land in one segment.
struct Part {
    /// The length of the segment, if the part begins one.
    begins: Option<u64>,
    pieces: Vec<(usize, Range<usize>)>,
    records: u32,
    bytes: u64,
}

impl Log {
    /// Writes records. They are not durable before [`sync`](Self::sync) has returned.
    ///
    /// # Errors
    /// [`Error::Order`] and [`Error::Full`] before anything is written; [`Error::Io`], which poisons
    /// the log, and [`Error::Poisoned`].
    pub fn write(&mut self, chunks: &mut [Chunk]) -> Result<()> {
        self.check_alive()?;
        let mut last = self.last;
        for (first, end) in chunks.iter().filter_map(Chunk::bounds) {
            follows(last, first)?;
            last = Some(end);
        }
        let parts = self.plan(chunks);
        if let Err(error) = self.make_room(&parts) {
            return if error.is_transient() { Err(error) } else { self.poisoned(Err(error)) };
        }
        for part in parts {
            let result = self.write_part(&part, chunks);
            self.poisoned(result)?;
        }
        Ok(())
    }

    /// Makes what was written durable and shows it to readers. Returns the durable frontier.
    ///
    /// # Errors
    /// [`Error::Io`], which poisons the log, and [`Error::Poisoned`].
    pub fn sync(&mut self) -> Result<Option<Version>> {
        self.check_alive()?;
        if self.written.is_empty() {
            return Ok(self.durable);
        }
        let result = self.sync_files();
        self.poisoned(result)?;
        self.dirty.clear();
        self.names_are_dirty = false;
        self.durable = self.last();
        self.publish();
        Ok(self.durable)
    }

    /// Writes and syncs some records.
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`sync`](Self::sync).
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = Record<'a>>) -> Result<Option<Version>> {
        let mut chunk = Chunk::default();
        records.into_iter().try_for_each(|record| chunk.push(record))?;
        self.write(&mut [chunk])?;
        self.sync()
    }

    fn sync_files(&self) -> Result<()> {
        for (index, file) in self.dirty.iter().enumerate() {
            if mutation!(OnlyFirstFileSynced) && index > 0 {
                continue;
            }
            let mut result = file.sync_data();
            if mutation!(FailedSyncRetried) && result.is_err() {
                result = file.sync_data();
            }
            result.during("sync", &self.disk.shown(&self.path))?;
        }
        if self.names_are_dirty && !mutation!(NamesNotSynced) {
            self.disk.sync_directory(&self.path).during("sync", &self.disk.shown(&self.path))?;
        }
        Ok(())
    }

    /// Distributes the records over segments, without writing anything.
    fn plan(&self, chunks: &[Chunk]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let total: u64 = chunks.iter().map(Chunk::bytes).sum();
        let room = self.active.as_ref().map_or(0, |(_, length)| length.saturating_sub(self.end.offset));
        if total > 0 && total + 2 * BATCH_HEADER_BYTES <= room {
            let pieces = chunks.iter().enumerate().filter(|(_, chunk)| !chunk.is_empty());
            let pieces = pieces.map(|(index, chunk)| (index, 0..chunk.raw().len())).collect();
            let records = chunks.iter().map(Chunk::records).sum();
            return vec![Part { begins: None, pieces, records, bytes: total }];
        }
        let (mut offset, mut length) = (self.end.offset, self.active.as_ref().map_or(0, |(_, length)| *length));
        for (index, chunk) in chunks.iter().enumerate() {
            for span in chunk.spans() {
                let bytes = span.len() as u64;
                let header = if parts.is_empty() { BATCH_HEADER_BYTES } else { 0 };
                // The seal of the segment takes the size of a batch header.
                let begins = (offset + header + bytes + BATCH_HEADER_BYTES > length).then(|| {
                    let needed = (PAGE_BYTES + 2 * BATCH_HEADER_BYTES + bytes).next_multiple_of(PAGE_BYTES);
                    self.config.segment_bytes.max(needed)
                });
                if let Some(begun) = begins {
                    (offset, length) = (PAGE_BYTES, begun);
                }
                if begins.is_some() || parts.is_empty() {
                    offset += BATCH_HEADER_BYTES;
                    parts.push(Part { begins, pieces: Vec::new(), records: 0, bytes: 0 });
                }
                offset += bytes;
                let Some(part) = parts.last_mut() else { continue };
                part.records += 1;
                part.bytes += bytes;
                match part.pieces.last_mut() {
                    Some((last, range)) if *last == index => range.end = span.end,
                    _ => part.pieces.push((index, span)),
                }
            }
        }
        parts
    }

    /// Makes every segment that the parts need, or none is used.
    fn make_room(&mut self, parts: &[Part]) -> Result<()> {
        let begins: Vec<u64> = parts.iter().filter_map(|part| part.begins).collect();
        in_range("the number of segments", self.segments() as u64 + begins.len() as u64, 0, SEGMENTS_MAX)?;
        let regular = begins.iter().filter(|length| **length == self.config.segment_bytes).count();
        let large: u64 = begins.iter().filter(|length| **length != self.config.segment_bytes).sum();
        let missing = regular.saturating_sub(self.spares.len());
        let needed = missing as u64 * self.config.segment_bytes + large;
        if needed == 0 {
            return Ok(());
        }
        let shown = self.disk.shown(&self.path);
        let free = self.disk.free_bytes().during("read the free space of", &shown)?;
        if free.saturating_sub(needed) < self.config.reserve_bytes || free < needed {
            return Err(Error::Full { needed, free, reserve: self.config.reserve_bytes });
        }
        for _ in 0..missing {
            self.make_spare()?;
        }
        for (index, length) in begins.into_iter().filter(|length| *length != self.config.segment_bytes).enumerate() {
            let path = format!("{}/large-{index}{TEMPORARY}", self.path);
            if let Err(error) = make_file(&*self.disk, &path, length, self.config.reserve_bytes) {
                self.large.drain(..).for_each(|path| drop(self.disk.remove(&path)));
                return Err(error);
            }
            self.large.push_back(path);
        }
        Ok(())
    }

    fn make_spare(&mut self) -> Result<()> {
        let path = self.new_spare_path();
        make_file(&*self.disk, &path, self.config.segment_bytes, self.config.reserve_bytes)?;
        self.add_spare(&path)
    }

    /// Notes that records are about to come, so that spares are wanted before the first one.
    pub(crate) fn expect_records(&mut self) {
        self.is_used = true;
    }

    /// A path for [`make_file`], if fewer spares than configured are there. A log that has never
    /// got a record, and expects none, wants no spare.
    pub(crate) fn wanted_spare(&mut self) -> Option<String> {
        let is_used = self.is_used || self.active.is_some();
        let is_wanted = is_used && self.spares.len() < self.config.spares && self.check_alive().is_ok();
        is_wanted.then(|| self.new_spare_path())
    }

    /// Makes spares until the configured number is there.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`].
    pub fn prepare(&mut self) -> Result<()> {
        self.check_alive()?;
        while self.spares.len() < self.config.spares {
            self.make_spare()?;
        }
        Ok(())
    }

    fn new_spare_path(&mut self) -> String {
        self.next_spare += 1;
        format!("{}/new-{:016x}{TEMPORARY}", self.path, self.next_spare)
    }

    /// Takes a file that was made for [`wanted_spare`](Self::wanted_spare).
    pub(crate) fn add_spare(&mut self, path: &str) -> Result<()> {
        let spare = self.spare_path();
        self.disk.rename(path, &spare).during("rename", &self.disk.shown(path))?;
        self.spares.push(spare);
        Ok(())
    }

    pub(crate) fn spare_path(&mut self) -> String {
        self.next_spare += 1;
        format!("{}/spare-{:016x}", self.path, self.next_spare)
    }

    fn write_part(&mut self, part: &Part, chunks: &mut [Chunk]) -> Result<()> {
        let (mut begun, mut header) = (None, Vec::new());
        if let Some(length) = part.begins {
            (begun, header) = self.begin(length, first_of(part, chunks))?;
        }
        let Some((file, _)) = self.active.clone() else { return Err(Error::Stopped) };
        let durable = if mutation!(FrontierBeforeSync) { last_of(part, chunks) } else { self.durable };
        let batch = Batch {
            generation: self.slot.generation,
            durable,
            is_seal: false,
            records: part.records,
            bytes: part.bytes,
        };
        let batch = batch.encode(self.binding, self.end.segment, self.end.offset);
        let offset = if begun.is_some() { 0 } else { self.end.offset };
        let mut written = self.seal(part, chunks);
        let mut slices: Vec<&[u8]> = vec![&header, &batch];
        slices.extend(part.pieces.iter().map(|(index, range)| &chunks[*index].raw()[range.clone()]));
        write_all(&*file, &slices, offset).during("write", &self.disk.shown(&self.segment_path(self.end.segment)))?;
        self.end.offset = written.end;
        self.last = Some(written.last);
        if let (Some((path, length, file)), Some(first)) = (begun, written.index.first().copied()) {
            written.begun = Some(Begun { file, path, length, first });
        }
        self.written.push(written);
        self.note_dirty(file);
        Ok(())
    }

    fn note_dirty(&mut self, file: Arc<dyn File>) {
        if !self.dirty.iter().any(|dirty| Arc::ptr_eq(dirty, &file)) {
            self.dirty.push(file);
        }
    }

    /// Marks the end of a segment, so that recovery knows that it is complete.
    fn write_seal(&mut self, file: &Arc<dyn File>, length: u64) -> Result<()> {
        if self.end.offset + BATCH_HEADER_BYTES > length {
            return Ok(());
        }
        let generation = self.slot.generation;
        let seal = Batch { generation, durable: self.durable, is_seal: true, records: 0, bytes: 0 };
        let seal = seal.encode(self.binding, self.end.segment, self.end.offset);
        let path = self.disk.shown(&self.segment_path(self.end.segment));
        write_all(&**file, &[&seal], self.end.offset).during("write", &path)?;
        self.note_dirty(file.clone());
        Ok(())
    }

    /// Gives a prepared file the name of the next segment, and returns the segment's first page.
    #[expect(clippy::type_complexity, reason = "the parts of a segment that has no record yet")]
    fn begin(&mut self, length: u64, first: Version) -> Result<(Option<(String, u64, Arc<dyn File>)>, Vec<u8>)> {
        let number = match self.active.clone() {
            Some((file, length)) => {
                self.write_seal(&file, length)?;
                self.end.segment + 1
            }
            None => self.end.segment,
        };
        let path = self.segment_path(number);
        let shown = self.disk.shown(&path);
        let from = if length == self.config.segment_bytes { self.spares.pop() } else { self.large.pop_front() };
        let Some(from) = from else { return Err(Error::Stopped) };
        self.disk.rename(&from, &path).during("rename", &shown)?;
        self.names_are_dirty = true;
        let file = self.disk.open(&path).during("open", &shown)?;
        let header = SegmentHeader {
            number,
            generation: self.slot.generation,
            previous: self.last().or(self.slot.floor),
            durable: self.durable,
            first,
        };
        self.end = Position { segment: number, offset: PAGE_BYTES };
        self.active = Some((file.clone(), length));
        self.indexed_at = 0;
        Ok((Some((shown, length, file)), header.encode(self.binding)))
    }

    /// Completes the records with their checksums, now that their offsets are known.
    fn seal(&mut self, part: &Part, chunks: &mut [Chunk]) -> Written {
        let number = self.end.segment;
        let generation = self.slot.generation;
        let seed = Seed::new(self.binding, number, generation);
        let mut offset = self.end.offset + BATCH_HEADER_BYTES;
        let mut index = Vec::new();
        let mut last = (Version::MIN, 0);
        for (chunk, range) in &part.pieces {
            let bytes = &mut chunks[*chunk].raw_mut()[range.clone()];
            let (mut at, mut begin) = (0, 0);
            while at < bytes.len() {
                place_record(&mut bytes[at..], seed, offset);
                if self.indexed_at == 0 || offset - self.indexed_at >= self.config.index_bytes {
                    let (version, clock, _) = parse_record(&bytes[at..]);
                    index.push(Entry { version, clock, offset, generation });
                    self.indexed_at = offset;
                }
                let padded = Chunk::encoded_bytes(u64::from(u32_at(bytes, at + 4)));
                begin = at;
                at += padded as usize;
                offset += padded;
            }
            let (version, clock, _) = parse_record(&bytes[begin..]);
            last = (version, clock);
        }
        Written { begun: None, number, end: offset, last, index }
    }

    /// Shows readers what has become durable.
    fn publish(&mut self) {
        let mut view = self.shared.view_mut();
        for written in self.written.drain(..) {
            if let Some(begun) = written.begun {
                let body =
                    Body { end: written.end, last: written.last.0, last_clock: written.last.1, index: written.index };
                let segment = Segment::new(written.number, begun.file, begun.path, begun.length, begun.first, body);
                view.segments.push_back(Arc::new(segment));
            } else if let Some(segment) = view.segments.back() {
                let mut body = segment.body_mut();
                body.end = written.end;
                (body.last, body.last_clock) = written.last;
                body.index.extend(written.index);
            }
        }
        view.durable = self.durable;
    }
}

fn first_of(part: &Part, chunks: &[Chunk]) -> Version {
    part.pieces.first().map_or(Version::MIN, |(index, range)| parse_record(&chunks[*index].raw()[range.start..]).0)
}

fn last_of(part: &Part, chunks: &[Chunk]) -> Option<Version> {
    part.pieces.last().and_then(|(index, _)| chunks[*index].last())
}
