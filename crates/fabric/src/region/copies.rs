//! Copies of rows, and the memory of many views of which they are ranges.
//!
//! This process fills a [`CopyRegion`]. If it is a range of a [`CopyChunk`], the chunk tracks which
//! of its pages were written, so [clearing](CopyChunk::region) the range for another row costs no
//! more than those pages.
use super::error::RegionError;
use super::memory::{Memory, covers};
use super::room::{HEAP_ALIGN, check_limit, check_room};
use super::span::Span;
use rustix::mm::{Advice, ProtFlags};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// A chunk tracks writes by blocks of this many bytes, the smallest page size of all machines. No
/// two copies have bytes in the same block.
const BLOCK_BYTES: u64 = HEAP_ALIGN as u64;

/// My copy of memory that its owner does not share with me. One thread of this process fills it
/// with arriving data, and perhaps a network card does, too.
#[derive(Debug)]
pub struct CopyRegion {
    span: Span,
    /// Offset in the chunk at which it begins.
    at: u64,
    /// Keeps `span` mapped, writable.
    chunk: Arc<CopyChunk>,
}

/// Memory of this process whose ranges become copies. A range is reused once nothing uses it any
/// more.
#[derive(Debug)]
pub struct CopyChunk {
    id: u64,
    memory: Arc<Memory>,
    /// A bit for each block that may contain something other than zeros. Empty if the memory
    /// belongs to one copy only.
    written: Box<[AtomicU64]>,
}

/// The id of the next chunk.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl CopyRegion {
    /// Creates a copy of `len` bytes, all zero, on this process's heap.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], [`RegionError::TooLong`].
    pub fn on_heap(name: &str, len: u64) -> Result<CopyRegion, RegionError> {
        Ok(CopyRegion::of(Arc::new(Memory::on_heap(name, len)?)))
    }

    /// Returns all of `memory`, which nothing else uses, as a copy.
    pub(super) fn of(memory: Arc<Memory>) -> CopyRegion {
        CopyRegion { span: memory.span, at: 0, chunk: Arc::new(CopyChunk::of(memory, 0)) }
    }

    /// Returns its length in bytes.
    pub fn size(&self) -> u64 {
        self.span.len
    }

    /// Returns the memory that it is a range of, and the offset at which it begins there. Hardware
    /// that is to write into the copy gets its [`pointer`](Self::pointer), even if the hardware knows
    /// the chunk.
    pub fn chunk(&self) -> (&CopyChunk, u64) {
        (&self.chunk, self.at)
    }

    /// Loads the word at `at`, with acquire order.
    ///
    /// # Panics
    /// If `at` is unaligned or outside.
    #[inline]
    pub fn load(&self, at: u64) -> u64 {
        // SAFETY: the memory is mapped for as long as `self` is.
        unsafe { self.span.load(at) }
    }

    /// Stores the words in `bytes` from `at` on, one after the other, each with release order. An
    /// incomplete word at the end is left out.
    ///
    /// # Panics
    /// If `at` is unaligned, or the words are not all inside.
    #[inline]
    pub(crate) fn store_words(&self, at: u64, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<8>();
        self.note(at, size_of_val(words) as u64);
        for (at, word) in (at..).step_by(8).zip(words) {
            // SAFETY: the memory is mapped, writable, for as long as `self` is.
            unsafe { self.span.word(at) }.store(u64::from_le_bytes(*word), Ordering::Release);
        }
    }

    /// Returns the address at which bytes for `range` may be received: frames that are not
    /// announced yet, so that no thread reads there. They count as written.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn pointer(&self, range: &Range<u64>) -> NonNull<u8> {
        let len = range.end.saturating_sub(range.start);
        let start = self.span.pointer(range.start, len);
        self.note(range.start, len);
        start
    }

    /// Copies bytes to `at`, which are not announced yet, so that no thread reads there.
    ///
    /// # Panics
    /// If they are not all inside.
    #[inline]
    pub(crate) fn fill(&self, at: u64, bytes: &[u8]) {
        let start = self.pointer(&(at..at + bytes.len() as u64));
        // SAFETY: inside the mapping by the check, writable, and no part of `bytes`, which is
        // borrowed from elsewhere: this region lends nothing for writing, and what it lends for
        // reading is announced (INV-FRAME).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
    }

    /// Stores words as they arrive, one after the other, each with release order. An incomplete word
    /// at the end is left out.
    ///
    /// # Safety
    /// No reference to these bytes exists, and none is made meanwhile: they are control words, or
    /// frames that are not announced (INV-FRAME).
    ///
    /// # Panics
    /// If `at` is unaligned, or the words are not all inside.
    #[inline]
    pub unsafe fn write_words(&self, at: u64, bytes: &[u8]) {
        self.store_words(at, bytes);
    }

    /// Copies bytes to `at` as they arrive.
    ///
    /// # Safety
    /// As for [`write_words`](Self::write_words). No other thread accesses these bytes meanwhile, not
    /// even by [`load`](Self::load).
    ///
    /// # Panics
    /// If they are not all inside.
    #[inline]
    pub unsafe fn write(&self, at: u64, bytes: &[u8]) {
        self.fill(at, bytes);
    }

    /// Returns the `len` bytes at `at`.
    ///
    /// # Panics
    /// If the range is not inside.
    ///
    /// # Safety
    /// Nothing writes them as long as they are borrowed.
    #[inline]
    pub unsafe fn bytes(&self, at: u64, len: u64) -> &[u8] {
        // SAFETY: mapped for as long as `self` is, and stable by this function's contract.
        unsafe { self.span.bytes(at, len) }
    }

    /// Marks the `len` bytes at `at` as written, before they are.
    #[inline]
    fn note(&self, at: u64, len: u64) {
        if !self.chunk.written.is_empty() && len > 0 && at < self.span.len {
            let start = self.at + at;
            self.chunk.note(start..start + len.min(self.span.len - at));
        }
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }
}

impl CopyChunk {
    /// Creates a chunk of `len` bytes. The bytes take no memory before they belong to a copy.
    ///
    /// # Errors
    /// [`RegionError::TooLong`], [`RegionError::Os`].
    pub(crate) fn create(name: &str, len: u64) -> Result<CopyChunk, RegionError> {
        check_limit(name, len)?;
        let memory = match cfg!(miri) {
            true => Memory::on_heap(name, len)?,
            false => Memory::anonymous(name, len, ProtFlags::READ | ProtFlags::WRITE)?,
        };
        Ok(CopyChunk::of(Arc::new(memory), len.div_ceil(BLOCK_BYTES)))
    }

    fn of(memory: Arc<Memory>, blocks: u64) -> CopyChunk {
        let written = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        CopyChunk { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), memory, written }
    }

    /// Returns a number that no other chunk of this process has, not even one that is gone.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns its length in bytes.
    pub fn size(&self) -> u64 {
        self.memory.span.len
    }

    /// Returns the address at which its memory begins. The memory stays there as long as the chunk,
    /// or a copy in it, lives.
    ///
    /// A peer that may write to all of it could write into the copies of other peers' rows. So only
    /// memory that no peer can access may be registered as a whole.
    pub fn start(&self) -> NonNull<u8> {
        self.memory.span.base
    }

    /// Returns the `len` bytes at `at`, the start of a page, as a copy of zeros. All of it has
    /// memory then.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`].
    ///
    /// # Panics
    /// If they are not all inside.
    ///
    /// # Safety
    /// No live copy has any byte of their pages.
    pub(crate) unsafe fn region(
        self: &Arc<CopyChunk>,
        name: &str,
        at: u64,
        len: u64,
    ) -> Result<CopyRegion, RegionError> {
        let memory = &self.memory;
        let base = memory.span.pointer(at, len);
        let range = at..(at + len).next_multiple_of(BLOCK_BYTES).min(memory.span.len);
        for run in self.take_written(&range) {
            let start = memory.span.pointer(run.start, run.end - run.start);
            // SAFETY: inside the mapping, which is writable, and used by nothing else, by this
            // function's contract.
            unsafe { start.as_ptr().write_bytes(0, (run.end - run.start) as usize) };
        }
        if !memory.on_heap && !covers(&memory.prefaulted.lock().unwrap_or_else(PoisonError::into_inner), &range) {
            check_room(name, len)?;
            memory.prefault(range, Advice::LinuxPopulateWrite);
        }
        Ok(CopyRegion { span: Span { base, len }, at, chunk: Arc::clone(self) })
    }

    /// Marks `range`, which is inside and not empty, as written.
    #[inline]
    fn note(&self, range: Range<u64>) {
        let (first, last) = (range.start / BLOCK_BYTES, (range.end - 1) / BLOCK_BYTES);
        for (word, mask) in masks(first..last + 1) {
            let written = &self.written[word];
            // One thread writes a copy, and several copies may have bits in the word. Most bits are
            // set once.
            if written.load(Ordering::Relaxed) & mask != mask {
                written.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// Clears the record of writes in `range`, and returns the ranges that were written.
    fn take_written(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = vec![];
        for (word, mask) in masks(range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)) {
            let mut bits = self.written[word].fetch_and(!mask, Ordering::Relaxed) & mask;
            while bits != 0 {
                let skipped = bits.trailing_zeros();
                let blocks = (bits >> skipped).trailing_ones();
                bits &= u64::MAX.checked_shl(skipped + blocks).unwrap_or(0);
                let start = (64 * word as u64 + u64::from(skipped)) * BLOCK_BYTES;
                let end = start + u64::from(blocks) * BLOCK_BYTES;
                match runs.last_mut() {
                    Some(run) if run.end == start => run.end = end,
                    _ => runs.push(start..end),
                }
            }
        }
        if let Some(run) = runs.last_mut() {
            run.end = run.end.min(range.end);
        }
        runs
    }
}

/// Returns the words that have bits of these blocks, and the masks of these bits.
#[inline]
fn masks(blocks: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    (blocks.start / 64..blocks.end.div_ceil(64)).map(move |word| {
        let (start, end) = (blocks.start.max(64 * word) - 64 * word, blocks.end.min(64 * word + 64) - 64 * word);
        (word as usize, (u64::MAX >> (64 - (end - start))) << start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 3 * BLOCK_BYTES;

    #[test]
    fn a_copy_is_filled_by_words_and_by_bytes() {
        let copy = CopyRegion::on_heap("test", LEN).unwrap();
        let load = |at| {
            // SAFETY: `copy` lives on.
            unsafe { copy.span().load(at) }
        };
        copy.store_words(LEN - 16, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 9]);
        assert_eq!([load(LEN - 16), load(LEN - 8)], [1, 2]);
        copy.fill(3, &[7; 7]);
        assert_eq!([load(0), load(8)], [0x0707_0707_0700_0000, 0x0707]);
        copy.fill(LEN, &[]);
        copy.pointer(&(0..LEN));
        let panics = |access: &dyn Fn()| {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err());
        };
        panics(&|| copy.store_words(4, &[0; 8]));
        panics(&|| copy.store_words(LEN - 8, &[0; 16]));
        panics(&|| copy.fill(LEN - 1, &[0; 2]));
        panics(&|| _ = copy.pointer(&(8..LEN + 1)));
        panics(&|| _ = copy.pointer(&(u64::MAX - 1..u64::MAX)));
    }

    fn chunk(pages: u64) -> Arc<CopyChunk> {
        Arc::new(CopyChunk::create("test", pages * BLOCK_BYTES).unwrap())
    }

    fn copy(chunk: &Arc<CopyChunk>, pages: Range<u64>) -> CopyRegion {
        let (at, len) = (pages.start * BLOCK_BYTES, (pages.end - pages.start) * BLOCK_BYTES);
        // SAFETY: the tests drop a copy before its pages are another's.
        unsafe { chunk.region("test", at, len) }.unwrap()
    }

    fn is_zero(copy: &CopyRegion) -> bool {
        (0..copy.size()).step_by(8).all(|at| copy.load(at) == 0)
    }

    #[test]
    fn a_range_is_cleared_as_far_as_it_was_written() {
        let chunk = chunk(200);
        let runs = |pages: &[Range<u64>]| -> Vec<Range<u64>> {
            pages.iter().map(|run| run.start * BLOCK_BYTES..run.end * BLOCK_BYTES).collect()
        };
        let first = copy(&chunk, 50..190);
        // The first page, two pages around the end of one, 64 whose bits are in two words, and the
        // last.
        first.store_words(8, &[1; 8]);
        first.fill(6 * BLOCK_BYTES - 1, &[1, 1]);
        let whole = 10 * BLOCK_BYTES..74 * BLOCK_BYTES;
        // SAFETY: the place has this many bytes, and nothing reads there.
        unsafe { first.pointer(&whole).as_ptr().write_bytes(1, (whole.end - whole.start) as usize) };
        first.pointer(&(139 * BLOCK_BYTES..139 * BLOCK_BYTES));
        first.fill(140 * BLOCK_BYTES - 1, &[1]);
        let beside = copy(&chunk, 0..50);
        beside.fill(50 * BLOCK_BYTES - 1, &[7]);
        beside.fill(0, &[7]);
        let all = 50 * BLOCK_BYTES..190 * BLOCK_BYTES;
        let written = runs(&[50..51, 55..57, 60..124, 189..190]);
        assert_eq!(chunk.take_written(&all), written);
        assert_eq!(chunk.take_written(&all), []);
        written.iter().for_each(|run| chunk.note(run.clone()));
        drop(first);
        let second = copy(&chunk, 50..190);
        assert!(is_zero(&second));
        assert_eq!(beside.load(50 * BLOCK_BYTES - 8), 7 << 56, "what is beside it is another's");
        assert_eq!(chunk.take_written(&(0..50 * BLOCK_BYTES)), runs(&[0..1, 49..50]));
    }

    #[test]
    fn a_shorter_copy_ends_before_the_next_ones_first_page() {
        let chunk = chunk(4);
        // SAFETY: nothing else is there.
        let first = unsafe { chunk.region("test", 0, BLOCK_BYTES + 64) }.unwrap();
        first.fill(BLOCK_BYTES + 60, &[1; 4]);
        assert!(
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.fill(BLOCK_BYTES + 61, &[1; 4]))).is_err()
        );
        drop(first);
        assert!(is_zero(&copy(&chunk, 0..3)));
    }

    #[test]
    fn chunks_are_told_apart_and_know_where_copies_are() {
        let (one, other) = (chunk(4), CopyRegion::on_heap("test", LEN).unwrap());
        let copies = [copy(&one, 0..2), copy(&one, 2..3)];
        let id = |copy: &CopyRegion| copy.chunk().0.id();
        assert!(id(&copies[0]) == id(&copies[1]) && id(&copies[0]) != id(&other));
        assert_eq!(copies.each_ref().map(|copy| copy.chunk().1), [0, 2 * BLOCK_BYTES]);
        for copy in &copies {
            let (chunk, at) = copy.chunk();
            assert_eq!(
                (chunk.start().as_ptr() as u64 + at, chunk.size()),
                (copy.pointer(&(0..8)).as_ptr() as u64, 4 * BLOCK_BYTES)
            );
        }
    }

    /// The last reader may be on another thread than the one that clears.
    #[test]
    fn a_range_is_anothers_after_the_last_reader_has_gone() {
        let chunk = chunk(2);
        for round in 1..20_u64 {
            let first = Arc::new(copy(&chunk, 0..2));
            assert!(is_zero(&first));
            first.store_words(0, &round.to_le_bytes());
            let (user, reader) = (Arc::downgrade(&first), Arc::clone(&first));
            let thread = std::thread::spawn(move || assert_eq!(reader.load(0), round));
            drop(first);
            while !crate::places::is_gone(&user) {
                std::thread::yield_now();
            }
            drop(copy(&chunk, 0..2));
            thread.join().unwrap();
        }
    }
}
