//! The data that waits to be sent to one peer: ranges of my row, and no queue.
//!
//! Posts are not stored one by one. A [`Backlog`] has a set of ranges of frames and one span of
//! control words, and every post is merged into these. When the stream accepts more, all of it
//! becomes a [`FrameBatch`]: the ranges, and after them the span. The span has the values that the
//! [`Image`] contains then, which are those of each word's last post, to any peer. Posts that are
//! made while a batch leaves are in the next one.
//!
//! - *A word never overtakes what it announces.* When a word came into the image, the data that it
//!   announces had been posted to the same peers. So that data was in their backlogs then. It is in
//!   this batch, before the words, or in an earlier one.
//! - *No word overtakes another.* All words of a batch are one frame, which the receiver applies as
//!   a whole (`inbox.rs`). So a peer sees a state of the image, and later states after it.
//! - *A new stream begins with all that its peer lacks*, by the peer's own statement (`resume.rs`),
//!   and then the whole control block. It is a state of the image like any other. While there is no
//!   stream nothing is stored for it: what the peer has applied determines what it lacks then.
//! - *Waiting frames don't change*: an announced frame is overwritten only after every member has
//!   delivered it (INV-FRAME), this peer too, and it can't deliver a frame that has not left.
//!   Members do not cease to count within a view. (A peer that claims to have delivered a frame
//!   that it never got receives garbage.) A ring can't lap waiting data either, so there are at
//!   most two ranges of each ring.
//!
//! Frames may become visible before control words that were posted before them. No reader looks
//! there yet: the frames are not announced, and nothing relies on a value being invisible until it
//! is posted.
use super::wire::{FrameHead, HEAD_BYTES};
use crate::region::OwnRegion;
use spindle_transport::Stream;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;

/// Slices in one system call.
const PARTS_MAX: usize = 32;

/// The control block as it was posted.
#[derive(Debug)]
pub struct Image {
    bytes: Box<[u8]>,
}

/// The data that waits to be sent to one peer.
#[derive(Debug, Default)]
pub struct Backlog {
    batch: FrameBatch,
    /// Ranges that neither overlap nor touch.
    ranges: VecDeque<Range<u64>>,
    /// Empty if nothing of the control block waits.
    control: Range<u64>,
}

/// Frames that are leaving.
#[derive(Debug, Default)]
struct FrameBatch {
    parts: VecDeque<BatchPart>,
    /// Heads and control words.
    copied: Vec<u8>,
}

/// The part of a batch that has not left; never empty.
#[derive(Debug)]
enum BatchPart {
    /// A range of the batch's own bytes.
    Copied(Range<usize>),
    /// A range of my row.
    Row(Range<u64>),
}

impl Image {
    pub(crate) fn new(control_bytes: u64) -> Image {
        Image { bytes: vec![0; control_bytes as usize].into() }
    }

    /// Returns the control block of `row` as it is.
    pub fn of(row: &OwnRegion) -> Image {
        let mut image = Image::new(row.control());
        image.update(row, &(0..row.control()));
        image
    }

    /// Copies the words of `span`, which are posted.
    #[inline]
    pub fn update(&mut self, row: &OwnRegion, span: &Range<u64>) {
        let (words, _) = self.bytes[span.start as usize..span.end as usize].as_chunks_mut::<8>();
        for (at, word) in (span.start..).step_by(8).zip(words) {
            *word = row.load(at).to_le_bytes();
        }
    }

    /// Returns all of it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the word at `at`, as it was posted.
    pub(super) fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(*self.bytes[at as usize..].first_chunk().expect("offsets are of whole words"))
    }

    /// Returns the words of `span`, as they were posted.
    #[inline]
    pub fn span(&self, span: &Range<u64>) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }
}

impl Backlog {
    /// Creates a backlog that sends `hello` before anything else.
    pub(super) fn greeting(hello: &[u8]) -> Backlog {
        let mut backlog = Backlog::default();
        backlog.batch.copy(hello);
        backlog
    }

    /// Adds a range of frames.
    #[inline]
    pub fn add_range(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Repeated as long as a range touches it, because merging may make it touch another.
        while let Some(i) = self.ranges.iter().position(|other| other.start <= range.end && range.start <= other.end) {
            let other = self.ranges.remove(i).expect("it was found there");
            range = range.start.min(other.start)..range.end.max(other.end);
        }
        self.ranges.push_back(range);
    }

    /// Adds a span of control words, whose values are in the image.
    #[inline]
    pub fn add_control(&mut self, span: &Range<u64>) {
        if self.control.is_empty() {
            self.control = span.clone();
        } else if !span.is_empty() {
            self.control = self.control.start.min(span.start)..self.control.end.max(span.end);
        }
    }

    /// Returns true if nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.batch.parts.is_empty() && self.ranges.is_empty() && self.control.is_empty()
    }

    /// Returns the bytes that wait, without the heads of ranges that may still merge.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let len = |range: &Range<u64>| range.end - range.start;
        self.batch.parts.iter().map(BatchPart::len).sum::<u64>()
            + self.ranges.iter().map(len).sum::<u64>()
            + len(&self.control)
    }

    /// Takes the ranges of frames out, and drops the control words.
    pub(super) fn take_ranges(&mut self) -> VecDeque<Range<u64>> {
        self.control = 0..0;
        std::mem::take(&mut self.ranges)
    }

    /// Drops everything: it will not be sent.
    pub fn clear(&mut self) {
        *self = Backlog::default();
    }

    /// Takes the ranges and the span out, for a transport that makes batches of another kind.
    #[inline]
    pub fn take(&mut self) -> (VecDeque<Range<u64>>, Range<u64>) {
        (std::mem::take(&mut self.ranges), std::mem::take(&mut self.control))
    }

    /// Sends as much as `stream` accepts, and returns how many bytes that were.
    ///
    /// # Errors
    /// Returns the stream's errors. A full stream is no error.
    pub(super) fn send(&mut self, row: &OwnRegion, image: &Image, stream: &mut dyn Stream) -> io::Result<u64> {
        let mut sent = 0;
        while !self.is_empty() {
            if self.batch.parts.is_empty() {
                self.begin_batch(image);
            }
            match self.batch.send(row, stream) {
                Ok((took, all)) => {
                    sent += took;
                    if !all {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    fn begin_batch(&mut self, image: &Image) {
        self.batch.copied.clear();
        for range in self.ranges.drain(..) {
            self.batch.copy(&head_of(&range));
            self.batch.parts.push_back(BatchPart::Row(range));
        }
        let control = std::mem::take(&mut self.control);
        if !control.is_empty() {
            self.batch.copy(&head_of(&control));
            self.batch.copy(image.span(&control));
        }
    }
}

impl FrameBatch {
    fn copy(&mut self, bytes: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.parts.push_back(BatchPart::Copied(start..self.copied.len()));
    }

    /// Makes one call to the stream. Returns how many bytes were accepted, and whether that was all
    /// that it offered.
    fn send(&mut self, row: &OwnRegion, stream: &mut dyn Stream) -> io::Result<(u64, bool)> {
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        let (mut count, mut offered) = (0, 0);
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            *slice = IoSlice::new(match part {
                BatchPart::Copied(range) => &self.copied[range.clone()],
                BatchPart::Row(range) => row.announced(range),
            });
            count += 1;
            offered += part.len();
        }
        let took = stream.send(&slices[..count])? as u64;
        let mut left = took;
        while left > 0 {
            let part = self.parts.front_mut().expect("no more is taken than was offered");
            left = part.has_left(left);
            if part.len() == 0 {
                self.parts.pop_front();
            }
        }
        Ok((took, took == offered))
    }
}

impl BatchPart {
    fn len(&self) -> u64 {
        match self {
            BatchPart::Copied(range) => range.len() as u64,
            BatchPart::Row(range) => range.end - range.start,
        }
    }

    /// Records that `took` bytes have left. Returns how many of them belong to the following parts.
    fn has_left(&mut self, took: u64) -> u64 {
        let mine = took.min(self.len());
        match self {
            BatchPart::Copied(range) => range.start += mine as usize,
            BatchPart::Row(range) => range.start += mine,
        }
        took - mine
    }
}

fn head_of(span: &Range<u64>) -> [u8; HEAD_BYTES] {
    FrameHead { at: span.start, len: span.end - span.start }.encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(backlog: &Backlog) -> Vec<Range<u64>> {
        backlog.ranges.iter().cloned().collect()
    }

    #[test]
    fn ranges_melt_where_they_touch() {
        let mut backlog = Backlog::default();
        for range in [64..80, 80..96, 0..0, 200..216, 96..112, 208..232, 240..248] {
            backlog.add_range(range);
        }
        assert_eq!(waiting(&backlog), [64..112, 200..232, 240..248]);
        backlog.add_range(232..240);
        assert_eq!(waiting(&backlog), [64..112, 200..248]);
        backlog.add_range(72..80);
        backlog.add_range(0..256);
        assert_eq!(waiting(&backlog), std::slice::from_ref(&(0..256)));
        assert_eq!(backlog.bytes(), 256);
    }

    #[test]
    fn control_words_are_one_span() {
        let mut backlog = Backlog::default();
        assert!(backlog.is_empty());
        for span in [64..72, 8..16, 16..24, 24..24] {
            backlog.add_control(&span);
        }
        assert_eq!(backlog.control, 8..72);
        backlog.clear();
        assert!(backlog.is_empty());
    }

    /// A stream that accepts so many bytes at each call.
    #[derive(Debug)]
    struct Sip {
        bytes: usize,
        taken: Vec<u8>,
        pipe: std::os::unix::net::UnixStream,
    }

    impl Stream for Sip {
        fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
            let before = self.taken.len();
            for part in parts {
                let left = self.bytes - (self.taken.len() - before);
                self.taken.extend(part.iter().take(left));
            }
            Ok(self.taken.len() - before)
        }

        fn receive(&mut self, _: &mut [spindle_transport::Space<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn finish(&mut self) {}

        fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
            std::os::fd::AsFd::as_fd(&self.pipe)
        }
    }

    /// For any number of bytes that each call accepts, the frames are whole, and data precedes
    /// control words. A word that changes after its frame has begun to leave is in the next frame.
    #[test]
    fn frames_leave_whole_in_bites_of_any_size() {
        let row = OwnRegion::on_heap("test", 512, 64).unwrap();
        (64..512).step_by(8).for_each(|at| row.store(at, at));
        for bytes in 1..=200 {
            row.store(8, 1);
            let mut image = Image::new(64);
            image.update(&row, &(0..64));
            let mut sip = Sip { bytes, taken: vec![], pipe: std::os::unix::net::UnixStream::pair().unwrap().0 };
            let mut backlog = Backlog::default();
            backlog.add_range(64..80);
            backlog.add_control(&(8..24));
            backlog.add_range(200..208);
            let mut sent = 0;
            for i in 0..1000 {
                sent += backlog.send(&row, &image, &mut sip).unwrap();
                if i == 3 {
                    row.store(8, 2);
                    image.update(&row, &(0..64));
                    backlog.add_control(&(8..16));
                    backlog.add_range(80..104);
                }
            }
            assert!(backlog.is_empty());
            assert_eq!(sent as usize, sip.taken.len());
            let mut got = vec![];
            let mut rest = &sip.taken[..];
            while let Some((head, body)) = rest.split_first_chunk() {
                let head = FrameHead::decode(*head, 64, 512).unwrap();
                let (body, behind) = body.split_at(head.len as usize);
                for (at, word) in (head.at..).step_by(8).zip(body.as_chunks().0) {
                    got.push((at, u64::from_le_bytes(*word)));
                }
                rest = behind;
            }
            // Everything has arrived: the first control word arrives with its newest value, after
            // all that was posted before it.
            let last = |at| got.iter().rposition(|(other, _)| *other == at).unwrap();
            assert_eq!(got[last(8)], (8, 2), "bites of {bytes}: {got:?}");
            for at in [64, 72, 80, 88, 96, 200] {
                assert_eq!(got[last(at)], (at, at), "bites of {bytes}: {got:?}");
                assert!(last(at) < last(8), "bites of {bytes}: {got:?}");
            }
        }
    }
}
