//! Opening a log after whatever happened.
//!
//! The [`Scan`] says where the log ends, or that it is damaged. Then the records that no frontier
//! covers are written again and synced, a new generation begins (LOG-ONCE), and files that do not
//! belong to it are recycled or removed.
use super::report::{Progress, Report};
use super::scan::Scan;
use super::shared::{Segment, Shared, View};
use super::window::Window;
use super::{Log, NAME, STATE, create_state, number_in};
use crate::config::Config;
use crate::disk::{Disk, TEMPORARY, write_all};
use crate::error::{Context, Error, Result};
use crate::format::{Binding, Position, Slot};
use crate::limits::{BATCH_HEADER_BYTES, PAGE_BYTES, RECYCLED_MAX, SCAN_BYTES};
use crate::mutation::mutation;
use crate::version::Version;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Makes what was read durable.
///
/// The records were read from the cache of the kernel. Records behind the evidence may not be on
/// the disk, and after a failed sync the kernel takes their pages for clean, so another sync would
/// not write them. They are written again, as they are, and then synced.
fn settle(segments: &VecDeque<Arc<Segment>>, proven: Option<Version>) -> Result<()> {
    for segment in segments {
        let (mut offset, end) = {
            let body = segment.body();
            if Some(body.last) <= proven {
                segment.file.sync_data().during("sync", &segment.path)?;
                continue;
            }
            let known = body.index.partition_point(|entry| Some(entry.version) <= proven);
            let start = known.checked_sub(1).map_or(0, |at| body.index[at].offset / PAGE_BYTES * PAGE_BYTES);
            (start, (body.end + BATCH_HEADER_BYTES).min(segment.length))
        };
        let mut window = Window::new(segment.file.clone(), segment.length, SCAN_BYTES);
        while offset < end {
            let step = (end - offset).min(SCAN_BYTES as u64);
            let bytes = window.bytes(offset, step).during("read", &segment.path)?.unwrap_or_default();
            write_all(&*segment.file, &[bytes], offset).during("write", &segment.path)?;
            offset += step;
        }
        segment.file.sync_data().during("sync", &segment.path)?;
    }
    Ok(())
}

impl Log {
    /// Opens the log in a directory, and creates it if there is none.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        path: &str,
        binding: Binding,
        config: Config,
        poison: Arc<OnceLock<String>>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Self, Report)> {
        let started = Instant::now();
        config.check()?;
        let shown = disk.shown(path);
        disk.create_directory(path).during("create", &shown)?;
        disk.sync_directory("").during("sync", &disk.shown(""))?;
        let mut names = disk.list(path).during("list", &shown)?;
        let is_named = names.iter().any(|name| name == NAME);
        if !names.iter().any(|name| name == STATE) {
            if names.iter().any(|name| number_in(name, "segment-").is_some()) {
                let path = disk.shown(&format!("{path}/{STATE}"));
                return Err(Error::CorruptFile { path, reason: "segments exist and the state is missing" });
            }
            create_state(&*disk, path, binding, is_named)?;
            names = disk.list(path).during("list", &shown)?;
        }
        let state = disk.open(&format!("{path}/{STATE}")).during("open", &shown)?;
        let mut scan = Scan::new(&*disk, path, binding, config.index_bytes)?;
        if scan.slot.is_named && !is_named {
            return Err(crate::names::missing(disk.shown(&format!("{path}/{NAME}"))));
        }
        let stop = scan.run(progress)?;
        let (slot, last, proven, mut report) = (scan.slot, scan.last, scan.evidence, scan.report);
        let segments: VecDeque<Arc<Segment>> = scan.segments.into_iter().map(Arc::new).collect();
        if !mutation!(RecoveredNotSynced) {
            settle(&segments, proven)?;
            disk.sync_directory(path).during("sync", &shown)?;
        }
        let (end, active, indexed_at) = match segments.back() {
            Some(last) => {
                let body = last.body();
                let end = Position { segment: last.number, offset: body.end };
                (end, Some((last.file.clone(), last.length)), body.index.last().map_or(0, |entry| entry.offset))
            }
            None => (Position { segment: stop.at.segment.max(slot.first_segment), offset: 0 }, None, 0),
        };
        let durable = last.map(|(version, _)| version);
        let view = View { segments, durable, floor: slot.floor };
        let shared = Arc::new(Shared::default());
        *shared.view_mut() = view;
        shared.holds().pruned = slot.floor;
        let mut log = Self {
            disk,
            path: path.to_owned(),
            binding,
            config,
            slot,
            state,
            end,
            active,
            last,
            durable,
            dirty: Vec::new(),
            names_are_dirty: false,
            written: Vec::new(),
            indexed_at,
            is_used: false,
            spares: Vec::new(),
            next_spare: 0,
            large: VecDeque::new(),
            shared,
            poison,
        };
        log.begin_generation(&names)?;
        report.elapsed = started.elapsed();
        Ok((log, report))
    }

    /// Begins a generation at the end of the log, and then removes what does not belong to it.
    fn begin_generation(&mut self, names: &[String]) -> Result<()> {
        let generation = self.slot.generation + u64::from(!mutation!(SameGeneration));
        self.decide(Slot {
            generation,
            start: self.end,
            durable: self.durable,
            clock: self.last_clock(),
            ..self.slot
        })?;
        self.next_spare = names.iter().filter_map(|name| number_in(name, "spare-")).max().unwrap_or(0);
        let kept = |number| {
            number >= self.slot.first_segment
                && (number < self.end.segment || number == self.end.segment && self.active.is_some())
        };
        let (mut spares, mut stale) = (Vec::new(), Vec::new());
        for name in names {
            let path = format!("{}/{name}", self.path);
            if number_in(name, "spare-").is_some() {
                spares.push(path);
            } else if number_in(name, "segment-").is_some_and(|number| !kept(number)) {
                stale.push(path);
            } else if name.ends_with(TEMPORARY) {
                self.disk.remove(&path).during("remove", &self.disk.shown(&path))?;
            }
        }
        for path in spares {
            self.keep_or_remove(&path, true)?;
        }
        for path in stale {
            self.keep_or_remove(&path, false)?;
        }
        self.disk.sync_directory(&self.path).during("sync", &self.disk.shown(&self.path))
    }

    /// Takes a file as a spare segment if one is wanted and it has the length, else removes it.
    pub(super) fn keep_or_remove(&mut self, path: &str, is_spare: bool) -> Result<()> {
        let shown = self.disk.shown(path);
        let length = self.disk.open(path).and_then(|file| file.bytes()).during("open", &shown)?;
        let is_wanted =
            self.spares.len() <= self.config.spares.max(RECYCLED_MAX - 1) && length == self.config.segment_bytes;
        match (is_wanted, is_spare) {
            (true, true) => self.spares.push(path.to_owned()),
            (true, false) => {
                let spare = self.spare_path();
                self.disk.rename(path, &spare).during("rename", &shown)?;
                self.spares.push(spare);
            }
            (false, _) => self.disk.remove(path).during("remove", &shown)?,
        }
        Ok(())
    }
}
