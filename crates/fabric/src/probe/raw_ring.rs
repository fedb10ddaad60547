//! The raw ring: the number of blocks per second that go from one process to another if only the
//! bytes matter.
//!
//! The child writes every byte of each block, the parent reads every byte in place, and two
//! counters report the progress of both. There is no frame, no order, no stability. To be the
//! fastest honest ring it does the same as any careful ring. Each side keeps a copy of the other's
//! counter and looks again only when it has run out, and counts once per batch.
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::cores::Cores;
use super::error::ProbeError;
use super::pair::{ChildExit, ProbePair, STOP, SharedMapping};
use super::pattern::{check, expected, fill, seed};

/// The throughput of a raw ring.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RawRingRate {
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Bytes in the ring, as asked for: it held as many whole blocks as fit.
    pub ring_bytes: u64,
    /// Blocks that were read during the measurement.
    pub blocks: u64,
    /// The time taken.
    pub elapsed: Duration,
    /// Blocks read per second.
    pub blocks_per_second: f64,
    /// Bytes read per second: each byte was written once and read once, and counts once.
    pub bytes_per_second: f64,
    /// The cores of the writer (child) and the reader (parent).
    pub cores: Cores,
}

/// Moves blocks of `block_bytes` through a ring of `ring_bytes` for about `duration`, after two
/// laps to warm up.
///
/// # Errors
/// [`ProbeError::Argument`] unless `1 <= block_bytes`, `2 * block_bytes <= ring_bytes <= 1 GiB`
/// (blocks rounded up to 8 bytes); otherwise the error that kept the two processes from finishing.
pub fn raw_ring(block_bytes: u64, ring_bytes: u64, duration: Duration) -> Result<RawRingRate, ProbeError> {
    let ring = RingShape::new(block_bytes, ring_bytes)?;
    let (pair, ring) = start(ring, duration)?;
    measure(pair, ring, duration)
}

const RING_BYTES_MAX: u64 = 1 << 30;
/// Bytes written, or read, before the counter moves; a ring of few blocks moves it at least four
/// times a lap. Measured with a 1 MiB ring, 4 KiB is about a tenth slower between distant cores and
/// up to a quarter between near ones. More than 32 KiB makes no difference beyond the noise.
const BATCH_BYTES: u64 = 32 << 10;
/// Time that the probe may take beyond the time asked for.
const GRACE: Duration = Duration::from_secs(20);

/// The shape that both sides agree on.
#[derive(Clone, Copy)]
struct RingShape {
    block_bytes: u64,
    ring_bytes: u64,
    /// Bytes from one block to the next.
    stride: u64,
    slots: u64,
    /// Blocks per move of a counter, at most.
    batch: u64,
}

impl RingShape {
    fn new(block_bytes: u64, ring_bytes: u64) -> Result<RingShape, ProbeError> {
        if ring_bytes > RING_BYTES_MAX {
            return Err(ProbeError::Argument { what: "ring_bytes", got: ring_bytes, need: "at most 1 GiB" });
        }
        if block_bytes == 0 || block_bytes > ring_bytes {
            return Err(ProbeError::Argument { what: "block_bytes", got: block_bytes, need: "1 to half the ring" });
        }
        let stride = block_bytes.next_multiple_of(8);
        let slots = ring_bytes / stride;
        if slots < 2 {
            return Err(ProbeError::Argument { what: "ring_bytes", got: ring_bytes, need: "two blocks at least" });
        }
        let batch = (BATCH_BYTES / stride).clamp(1, slots.div_ceil(4));
        Ok(RingShape { block_bytes, ring_bytes, stride, slots, batch })
    }
}

/// One side's position: the number of blocks done, and the offset of the next one.
struct RingPosition {
    data: NonNull<u8>,
    ring: RingShape,
    count: u64,
    offset: u64,
}

impl RingPosition {
    fn start(shared: &SharedMapping, ring: RingShape) -> RingPosition {
        RingPosition { data: shared.data(), ring, count: 0, offset: 0 }
    }

    #[inline(always)]
    fn block(&self) -> NonNull<u8> {
        // SAFETY: `offset + stride <= slots * stride <= ring_bytes`, the size of the data.
        unsafe { self.data.add(self.offset as usize) }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.count += 1;
        self.offset += self.ring.stride;
        if self.offset == self.ring.slots * self.ring.stride {
            self.offset = 0;
        }
    }

    /// Writes `blocks` blocks.
    ///
    /// # Safety
    /// The reader has released all of them.
    #[inline(always)]
    unsafe fn write(&mut self, blocks: u64) {
        for _ in 0..blocks {
            // SAFETY: the block is in the mapping, and by the caller's promise the reader has no
            // slice of it.
            let block =
                unsafe { std::slice::from_raw_parts_mut(self.block().as_ptr(), self.ring.block_bytes as usize) };
            fill(block, seed(self.count));
            self.step();
        }
    }

    /// Reads `blocks` blocks. Returns zero if each contains the written bytes.
    ///
    /// # Safety
    /// The writer has released all of them.
    #[inline(always)]
    unsafe fn read(&mut self, blocks: u64) -> u64 {
        let mut wrong = 0;
        for _ in 0..blocks {
            // SAFETY: the block is in the mapping, and by the caller's promise the writer does not
            // write it.
            let block = unsafe { std::slice::from_raw_parts(self.block().as_ptr(), self.ring.block_bytes as usize) };
            wrong |= check(block) ^ expected(self.ring.block_bytes, seed(self.count));
            self.step();
        }
        wrong
    }
}

fn start(ring: RingShape, duration: Duration) -> Result<(ProbePair, RingShape), ProbeError> {
    let pair =
        ProbePair::start(ring.ring_bytes, duration.saturating_add(GRACE), move |shared| write_all(shared, ring))?;
    Ok((pair, ring))
}

/// The child: writes until the parent's counter is [`STOP`].
fn write_all(shared: &SharedMapping, ring: RingShape) -> Result<(), ChildExit> {
    let (head, tail) = (&shared.control().child.count, &shared.control().parent.count);
    let mut place = RingPosition::start(shared, ring);
    let mut limit = ring.slots;
    loop {
        if place.count == limit {
            let read = shared.child_wait(|| {
                let read = tail.load(Ordering::Acquire);
                (read == STOP || read + ring.slots > limit).then_some(read)
            })?;
            if read == STOP {
                return Ok(());
            }
            limit = read + ring.slots;
        }
        let blocks = (limit - place.count).min(ring.batch);
        // SAFETY: below `limit`: the parent has counted the blocks that were in these slots a lap
        // ago as read.
        unsafe { place.write(blocks) };
        head.store(place.count, Ordering::Release);
    }
}

/// The parent: reads until `duration` has passed, then stops the child.
fn measure(mut pair: ProbePair, ring: RingShape, duration: Duration) -> Result<RawRingRate, ProbeError> {
    let mut place = RingPosition::start(pair.shared(), ring);
    let warm = read_until(&mut pair, &mut place, |count| count >= 2 * ring.slots)?;
    let (begin, from) = (Instant::now(), warm);
    let mut looks = 0u64;
    let to = read_until(&mut pair, &mut place, |_| {
        looks += 1;
        // A look at the clock costs as much as some hundred bytes.
        looks.is_multiple_of(32) && begin.elapsed() >= duration
    })?;
    let elapsed = begin.elapsed();
    pair.shared().control().parent.count.store(STOP, Ordering::Release);
    let cores = pair.cores();
    pair.finish()?;
    let blocks = to - from;
    let blocks_per_second = blocks as f64 / elapsed.as_secs_f64();
    let bytes_per_second = blocks_per_second * ring.block_bytes as f64;
    let RingShape { block_bytes, ring_bytes, .. } = ring;
    Ok(RawRingRate { block_bytes, ring_bytes, blocks, elapsed, blocks_per_second, bytes_per_second, cores })
}

/// Reads batches until `enough` accepts the count. Returns the count.
#[inline(always)]
fn read_until(
    pair: &mut ProbePair,
    place: &mut RingPosition,
    mut enough: impl FnMut(u64) -> bool,
) -> Result<u64, ProbeError> {
    let ring = place.ring;
    let mut written = place.count;
    loop {
        if place.count == written {
            written = pair.wait("the writer", |shared| {
                let head = shared.control().child.count.load(Ordering::Acquire);
                (head > written).then_some(head)
            })?;
        }
        let blocks = (written - place.count).min(ring.batch);
        // SAFETY: below `written`: the child has counted these blocks as written, and waits a lap
        // ahead for `tail`.
        let wrong = unsafe { place.read(blocks) };
        if wrong != 0 {
            return Err(ProbeError::Torn { block: place.count - 1, batch: blocks });
        }
        pair.shared().control().parent.count.store(place.count, Ordering::Release);
        if enough(place.count) {
            return Ok(place.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::ChildEnd;
    use super::super::pair::tests::assert_gone;
    use super::*;
    use rustix::process::{Signal, kill_process};

    const BRIEF: Duration = Duration::from_millis(20);

    #[test]
    fn carries_blocks_of_every_size() {
        for (block_bytes, ring_bytes) in
            [(1, 16), (13, 1000), (16, 1 << 16), (128, 256), (1024, 1 << 20), (10_240, 1 << 20)]
        {
            let got = raw_ring(block_bytes, ring_bytes, BRIEF).expect("measured");
            assert_eq!((got.block_bytes, got.ring_bytes), (block_bytes, ring_bytes));
            assert!(got.blocks > 0 && got.elapsed >= BRIEF, "{got:?}");
            assert!(got.blocks_per_second > 0.0 && got.bytes_per_second >= got.blocks_per_second, "{got:?}");
        }
    }

    #[test]
    fn refuses_a_ring_that_holds_less_than_two_blocks() {
        for (block_bytes, ring_bytes) in
            [(0, 1024), (1025, 1024), (600, 1024), (8, 2 << 30), (u64::MAX, u64::MAX), (1, 8)]
        {
            let error = raw_ring(block_bytes, ring_bytes, BRIEF).expect_err("no such ring");
            assert!(matches!(error, ProbeError::Argument { .. }), "{block_bytes}, {ring_bytes}: {error}");
        }
    }

    #[test]
    fn a_killed_writer_is_a_typed_error() {
        let (pair, ring) = start(RingShape::new(128, 1 << 16).expect("a ring"), BRIEF).expect("started");
        let child = pair.child();
        kill_process(child, Signal::KILL).expect("killed");
        let error = measure(pair, ring, Duration::from_secs(60)).expect_err("no writer");
        assert!(matches!(error, ProbeError::ChildDied { how: ChildEnd::Signal(9), .. }), "{error}");
        assert_gone(child);
    }

    #[test]
    fn a_block_that_reads_back_wrong_is_noticed() {
        let ring = RingShape::new(64, 256).expect("a ring");
        let mut pair = ProbePair::start(256, GRACE, move |shared| {
            let mut place = RingPosition::start(shared, ring);
            // SAFETY: nothing is released to the reader yet.
            unsafe { place.write(4) };
            // SAFETY: as above.
            unsafe { shared.data().write(0) };
            shared.control().child.count.store(4, Ordering::Release);
            shared.child_wait(|| None)
        })
        .expect("started");
        let mut place = RingPosition::start(pair.shared(), ring);
        let error = read_until(&mut pair, &mut place, |count| count == 4).expect_err("torn");
        assert!(matches!(error, ProbeError::Torn { block: 0, batch: 1 }), "{error}");
    }
}
