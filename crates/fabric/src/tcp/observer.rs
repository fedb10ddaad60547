//! The stream to an observer of a view: all that the members of the view are sent, with no promise
//! that it is in time.
//!
//! No member waits for an observer, so a ring may be overwritten while its earlier bytes wait to be
//! sent. As in shared memory, the observer can detect that. A member's `freed` counts are sent
//! before everything that may have been overwritten because of them, with the values that they have
//! when the bytes are copied. The thread that copies is the one that raises them, so every
//! overwrite before the copy is covered by these counts.
//!
//! At first the whole row waits. Waiting data leaves in *sets*: the ranges of frames that waited
//! when the set began, in chunks, and then the control block as it was then. So a word never
//! overtakes what it announces, however long the frames took.
use super::backlog::{Backlog, Image};
use super::wire::FrameHead;
use crate::region::OwnRegion;
use rustix::event::epoll::EventFlags;
use spindle_transport::{Connection, Space};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// Bytes of frames that are copied at once.
const CHUNK_BYTES: u64 = 256 << 10;
/// Chunks that are sent before the members' turn.
const CHUNKS_MAX: u32 = 8;

/// An observer of the view.
#[derive(Debug)]
pub(super) struct TcpObserver {
    pub(super) stream: Connection,
    /// The data that was posted since the set began.
    waiting: Backlog,
    /// The part of the set that has not left: frames, and the control block as it was.
    leaving: VecDeque<Range<u64>>,
    control: Option<Box<[u8]>>,
    /// A chunk, and how many of its bytes have left.
    chunk: Vec<u8>,
    sent: usize,
    /// Whether it waits until the system accepts more.
    pub(super) blocked: bool,
}

impl TcpObserver {
    pub(super) fn new(stream: Connection, row: &OwnRegion) -> TcpObserver {
        let mut waiting = Backlog::default();
        waiting.add_range(row.control()..row.size());
        waiting.add_control(&(0..row.control()));
        let (leaving, control, chunk, sent, blocked) = Default::default();
        TcpObserver { stream, waiting, leaving, control, chunk, sent, blocked }
    }

    /// Records a post.
    pub(super) fn add(&mut self, words: &Range<u64>, frames: Range<u64>) {
        self.waiting.add_range(frames);
        self.waiting.add_control(words);
    }

    /// Returns the events that the system is asked for.
    pub(super) fn interest(&self) -> EventFlags {
        if self.blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.sent == self.chunk.len() && self.control.is_none() && self.waiting.is_empty() && !self.stream.holds_back()
    }

    /// Sends as much as the stream accepts, up to a bound. `freed` are the offsets of the words
    /// that must not be late. Returns whether anything left.
    ///
    /// # Errors
    /// Returns the stream's errors. A full stream is no error.
    pub(super) fn send(&mut self, row: &OwnRegion, image: &Image, freed: &[u64]) -> io::Result<bool> {
        let mut moved = false;
        for _ in 0..CHUNKS_MAX {
            if self.sent == self.chunk.len() && !self.next_chunk(row, image, freed) {
                break;
            }
            match self.stream.send(&[io::IoSlice::new(&self.chunk[self.sent..])]) {
                Ok(took) => {
                    self.sent += took;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.stream.send_held()?;
        Ok(moved)
    }

    /// Copies the next bytes to send; returns whether there are any.
    fn next_chunk(&mut self, row: &OwnRegion, image: &Image, freed: &[u64]) -> bool {
        (self.sent, self.chunk) = (0, std::mem::take(&mut self.chunk));
        self.chunk.clear();
        if self.control.is_none() {
            if self.waiting.is_empty() {
                return false;
            }
            self.leaving = self.waiting.take_ranges();
            self.control = Some(image.bytes().into());
        }
        for at in freed {
            self.put(*at, &row.load(*at).to_le_bytes());
        }
        let mut room = CHUNK_BYTES;
        while room > 0
            && let Some(range) = self.leaving.front_mut()
        {
            let piece = range.start..range.end.min(range.start + room);
            range.start = piece.end;
            if range.is_empty() {
                self.leaving.pop_front();
            }
            room -= piece.end - piece.start;
            self.chunk.extend_from_slice(&FrameHead { at: piece.start, len: piece.end - piece.start }.encode());
            // Word by word, as an observer reads: applications may write there.
            self.chunk.extend(piece.step_by(8).flat_map(|at| row.load(at).to_le_bytes()));
        }
        if self.leaving.is_empty()
            && let Some(mut control) = self.control.take()
        {
            // Words that were sent ahead must not go back.
            for at in freed.iter().map(|at| *at as usize) {
                control[at..at + 8].copy_from_slice(&row.load(at as u64).to_le_bytes());
            }
            self.put(0, &control);
        }
        true
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.chunk.extend_from_slice(&FrameHead { at, len: bytes.len() as u64 }.encode());
        self.chunk.extend_from_slice(bytes);
    }

    /// Returns whether the observer is gone, or has sent bytes, which observers don't.
    pub(super) fn has_gone(&mut self) -> bool {
        let mut byte = [0];
        let got = self.stream.receive(&mut [Space::of(&mut byte)]);
        !matches!(got, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}
