//! Cutting: a prefix by whole segments, a suffix at any record. One write of the state decides each;
//! files are removed or recycled after it, and by the next recovery if a crash comes first.
use super::Log;
use super::shared::View;
use super::window::Window;
use crate::chunk::Chunk;
use crate::error::{Context, Damage, Error, Result};
use crate::format::{Position, RECORD_MARK, Slot, parse_record, u32_at};
use crate::limits::{BATCH_HEADER_BYTES, PAGE_BYTES, RECORD_HEADER_BYTES};
use crate::mutation::mutation;
use crate::version::Version;

/// Which records may be pruned. Every bound that is set allows pruning; none set allows nothing.
/// `before` and `snapshot` limit what the other bounds allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Segments are pruned from the oldest on while the log has more bytes than this.
    pub bytes_max: Option<u64>,
    /// Segments are pruned whose last clock is below this.
    pub clock_min: Option<u64>,
    /// Segments are pruned whose last version is at most this: that of a snapshot.
    pub snapshot: Option<Version>,
    /// Only records below this are pruned: what other members have on their disks.
    pub before: Option<Version>,
}

/// The part of a log that a rule allows to prune.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prunable {
    /// The number of segments.
    pub segments: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The last version in them.
    pub through: Option<Version>,
}

impl View {
    /// The segments that a retention rule allows to prune.
    pub(crate) fn prunable(&self, retention: &Retention) -> Prunable {
        let mut prunable = Prunable::default();
        let total: u64 = self.segments.iter().map(|segment| segment.length).sum();
        for segment in self.segments.iter().take(self.segments.len().saturating_sub(1)) {
            let body = segment.body();
            let is_contained = retention.snapshot.is_none_or(|snapshot| body.last <= snapshot)
                && retention.before.is_none_or(|before| body.last < before);
            let is_large = retention.bytes_max.is_some_and(|max| total - prunable.bytes > max);
            let is_old = retention.clock_min.is_some_and(|min| body.last_clock < min);
            let by_snapshot_alone =
                retention.snapshot.is_some() && retention.bytes_max.is_none() && retention.clock_min.is_none();
            if !is_contained || !(is_large || is_old || by_snapshot_alone) {
                break;
            }
            prunable.segments += 1;
            prunable.bytes += segment.length;
            prunable.through = Some(body.last);
        }
        prunable
    }
}

impl Log {
    /// The clock of the last record of the oldest segment: with a higher
    /// [`clock_min`](Retention::clock_min) the segment can be pruned. `None` if it is the newest one
    /// as well.
    pub fn oldest_segment_clock(&self) -> Option<u64> {
        let view = self.shared.view();
        let oldest = view.segments.front().filter(|_| view.segments.len() > 1)?;
        let clock = oldest.body().last_clock;
        Some(clock)
    }

    /// Prunes whole segments by a retention rule, never past a [`Hold`](super::Hold) nor the last
    /// segment. Returns the number of segments.
    ///
    /// With a snapshot, nothing that it does not contain is pruned, whatever else is allowed.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`].
    pub fn retain(&mut self, retention: &Retention) -> Result<usize> {
        let count = self.shared.view().prunable(retention).segments;
        self.prune_segments(count)
    }

    /// Prunes whole segments that contain only versions below `from`, with the bounds of
    /// [`retain`](Self::retain). Returns the number of segments.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`].
    pub fn prune(&mut self, from: Version) -> Result<usize> {
        let count = {
            let view = self.shared.view();
            let closed = view.segments.iter().take(view.segments.len().saturating_sub(1));
            closed.take_while(|segment| segment.body().last < from).count()
        };
        self.prune_segments(count)
    }

    fn prune_segments(&mut self, count: usize) -> Result<usize> {
        self.check_alive()?;
        let (count, floor, first) = {
            // A hold that is registered from here on is refused if it comes too late.
            let mut holds = self.shared.holds();
            let held = holds.versions.values().min().copied();
            let view = self.shared.view();
            let pruned = view.segments.iter().take(count);
            let count = pruned.take_while(|segment| held.is_none_or(|held| segment.body().last < held)).count();
            let last = count.checked_sub(1).map(|at| view.segments[at].clone());
            let (Some(last), Some(next)) = (last, view.segments.get(count)) else { return Ok(0) };
            let body = last.body();
            holds.pruned = holds.pruned.max(Some(body.last));
            (count, (body.last, body.last_clock), next.number)
        };
        let slot = Slot { first_segment: first, floor: Some(floor.0), floor_clock: floor.1, ..self.slot };
        if !mutation!(RecycledBeforeRecorded) {
            self.decide(slot)?;
        }
        let paths = {
            let mut view = self.shared.view_mut();
            view.floor = Some(floor.0);
            view.segments
                .drain(..count)
                .map(|segment| (self.segment_path(segment.number), std::sync::Arc::strong_count(&segment) == 1))
                .collect::<Vec<_>>()
        };
        let result = self.drop_files(&paths);
        self.poisoned(result)?;
        if mutation!(RecycledBeforeRecorded) {
            self.decide(slot)?;
        }
        Ok(count)
    }

    /// Recycles or removes files. A reader that still has one open keeps it, so it is not recycled.
    fn drop_files(&mut self, paths: &[(String, bool)]) -> Result<()> {
        for (path, is_unused) in paths {
            if *is_unused {
                self.keep_or_remove(path, false)?;
            } else {
                self.disk.remove(path).during("remove", &self.disk.shown(path))?;
            }
        }
        self.disk.sync_directory(&self.path).during("sync", &self.disk.shown(&self.path))
    }

    /// Removes all records above `after`, or all if it is `None`. A crash leaves the log
    /// before or after the cut.
    ///
    /// # Errors
    /// [`Error::Pruned`] if `after` is below the oldest record that is left, [`Error::Io`],
    /// [`Error::Poisoned`], [`Error::Corrupt`] if the place of the cut cannot be read.
    pub fn cut_after(&mut self, after: Option<Version>) -> Result<()> {
        self.sync()?;
        if self.last() <= after {
            return Ok(());
        }
        if let (true, Some(oldest)) = (after < self.slot.floor, self.shared.view().oldest()) {
            return Err(Error::Pruned { oldest });
        }
        let (kept, end, last) = self.find_cut(after)?;
        let durable = last.map(|(version, _)| version);
        let clock = last.map_or(0, |(_, clock)| clock);
        let generation = self.slot.generation + 1;
        let first_segment = if kept == 0 { end.segment } else { self.slot.first_segment };
        self.decide(Slot { generation, start: end, first_segment, durable, clock, ..self.slot })?;
        let mut paths = Vec::new();
        {
            let mut view = self.shared.view_mut();
            for segment in view.segments.drain(kept..) {
                let is_unused = std::sync::Arc::strong_count(&segment) == 1;
                paths.push((self.segment_path(segment.number), is_unused));
            }
            if let (Some(segment), Some((version, clock))) = (view.segments.back(), last) {
                let mut body = segment.body_mut();
                body.end = end.offset;
                (body.last, body.last_clock) = (version, clock);
                body.index.retain(|entry| entry.offset < end.offset);
            }
            view.durable = durable;
            self.active = view.segments.back().map(|segment| (segment.file.clone(), segment.length));
            self.indexed_at =
                view.segments.back().map_or(0, |segment| segment.body().index.last().map_or(0, |entry| entry.offset));
        }
        self.shared.note_cut();
        (self.end, self.last, self.durable) = (end, last, durable);
        let result = self.drop_files(&paths);
        self.poisoned(result)
    }

    /// How many segments stay, where the log then ends, and its last record.
    #[expect(clippy::type_complexity, reason = "three values of one place")]
    fn find_cut(&self, after: Option<Version>) -> Result<(usize, Position, Option<(Version, u64)>)> {
        let view = self.shared.view();
        let kept = view.segments.partition_point(|segment| Some(segment.first) <= after);
        let Some(segment) = kept.checked_sub(1).and_then(|at| view.segments.get(at)) else {
            // Numbers are not used again, so the log begins with the next one.
            let end = Position { segment: self.end.segment + 1, offset: 0 };
            return Ok((0, end, self.slot.floor.map(|version| (version, self.slot.floor_clock))));
        };
        let body = segment.body();
        let (mut offset, mut end) = (PAGE_BYTES, None);
        let known = body.index.partition_point(|entry| Some(entry.version) <= after);
        if let Some(entry) = known.checked_sub(1).map(|at| body.index[at]) {
            offset = entry.offset;
        }
        let mut window = Window::new(segment.file.clone(), body.end, 64 << 10);
        while offset < body.end {
            let Some(header) = window.bytes(offset, RECORD_HEADER_BYTES).during("read", &segment.path)? else { break };
            if u32_at(header, 4) == RECORD_MARK {
                offset += BATCH_HEADER_BYTES;
                continue;
            }
            let (version, clock, length) = parse_record(header);
            if Some(version) > after {
                break;
            }
            offset += Chunk::encoded_bytes(u64::from(length));
            end = Some((offset, version, clock));
        }
        let Some((offset, version, clock)) = end.filter(|(offset, ..)| *offset <= body.end) else {
            return Err(Error::Corrupt(Box::new(Damage {
                path: segment.path.clone(),
                offset,
                subgroup: self.binding.subgroup,
                segment: segment.number,
                after: None,
                before: None,
                through: after,
                reason: "the place of the cut is damaged",
            })));
        };
        Ok((kept, Position { segment: segment.number, offset }, Some((version, clock))))
    }

    /// Empties the log and lets it continue behind `version`, which a snapshot contains.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`].
    pub fn reset(&mut self, version: Version, clock: u64) -> Result<()> {
        self.sync()?;
        let end = Position { segment: self.end.segment + 1, offset: 0 };
        self.decide(Slot {
            generation: self.slot.generation + 1,
            start: end,
            first_segment: end.segment,
            durable: Some(version),
            clock,
            floor: Some(version),
            floor_clock: clock,
            ..self.slot
        })?;
        self.shared.holds().pruned = Some(version);
        let paths: Vec<_> = {
            let mut view = self.shared.view_mut();
            (view.durable, view.floor) = (Some(version), Some(version));
            let segments: Vec<_> = view.segments.drain(..).collect();
            segments
                .iter()
                .map(|segment| (self.segment_path(segment.number), std::sync::Arc::strong_count(segment) == 1))
                .collect()
        };
        self.shared.note_cut();
        (self.end, self.active, self.indexed_at) = (end, None, 0);
        (self.last, self.durable) = (Some((version, clock)), Some(version));
        let result = self.drop_files(&paths);
        self.poisoned(result)
    }
}
