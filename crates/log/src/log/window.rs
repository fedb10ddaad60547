//! A sliding window over a file.
use crate::disk::{File, read_full};
use crate::limits::{READ_BYTES, SCAN_BYTES};
use std::io;
use std::sync::Arc;

/// A window that reads at least so much at a time announces what it will read next.
const AHEAD_FROM: usize = SCAN_BYTES;

/// The part of a file that was read last. Moving it forward reads each byte once.
pub(crate) struct Window {
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    /// The offset of the buffer in the file.
    start: u64,
    /// The valid bytes in the buffer.
    filled: usize,
    /// The bytes to read at a time.
    step: usize,
    /// The limit of what may be read.
    end: u64,
}

impl Window {
    /// A window over the first `end` bytes of a file that reads `step` bytes at a time.
    pub(crate) fn new(file: Arc<dyn File>, end: u64, step: usize) -> Self {
        Self { file, buffer: Vec::new(), start: 0, filled: 0, step, end }
    }

    /// Continues in another file with the same buffer.
    pub(crate) fn change(&mut self, file: Arc<dyn File>, end: u64) {
        (self.file, self.start, self.filled, self.end) = (file, 0, 0, end);
    }

    pub(crate) fn set_end(&mut self, end: u64) {
        self.end = end;
    }

    pub(crate) fn set_step(&mut self, step: usize) {
        self.step = step;
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether the bytes are in memory.
    pub(crate) fn holds(&self, offset: u64, count: u64) -> bool {
        offset >= self.start && offset + count <= self.start + self.filled as u64
    }

    /// The bytes at an offset, or `None` if the file or the limit ends before.
    pub(crate) fn bytes(&mut self, offset: u64, count: u64) -> io::Result<Option<&[u8]>> {
        if offset.checked_add(count).is_none_or(|end| end > self.end) {
            return Ok(None);
        }
        if !self.holds(offset, count) {
            self.fill(offset, count)?;
        }
        if !self.holds(offset, count) {
            return Ok(None);
        }
        let from = (offset - self.start) as usize;
        Ok(Some(&self.buffer[from..from + count as usize]))
    }

    /// All bytes in memory from an offset on: at least `count`, or fewer at the end.
    pub(crate) fn held(&mut self, offset: u64, count: u64) -> io::Result<&[u8]> {
        if !self.holds(offset, count) && offset < self.end {
            self.fill(offset, count.min(self.end - offset))?;
        }
        if offset < self.start || offset > self.start + self.filled as u64 {
            return Ok(&[]);
        }
        Ok(&self.buffer[(offset - self.start) as usize..self.filled])
    }

    fn fill(&mut self, offset: u64, count: u64) -> io::Result<()> {
        if self.filled > 0 && self.step < READ_BYTES && offset >= self.start {
            // It reads on, so it reads more at a time.
            self.step = (2 * self.step).min(READ_BYTES);
        }
        let wanted = count.max(self.step as u64).min(self.end - offset) as usize;
        // Bytes that are in memory already are moved, not read again.
        let held = self.start + self.filled as u64;
        let kept = if offset >= self.start && offset < held { (held - offset) as usize } else { 0 };
        if kept > 0 {
            let from = (offset - self.start) as usize;
            self.buffer.copy_within(from..from + kept, 0);
        }
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        (self.start, self.filled) = (offset, kept.min(wanted));
        let filled = self.filled;
        // A caller that reads in order gets the next bytes from the disk while it works on these.
        if self.step >= AHEAD_FROM {
            self.file.will_read(offset + wanted as u64, self.step as u64);
        }
        let read = read_full(&*self.file, &mut self.buffer[filled..wanted], offset + filled as u64)?;
        self.filled = filled + read;
        Ok(())
    }
}
