//! The limits of one thread: copying memory, reading the clock.
use std::hint::black_box;
use std::time::{Duration, Instant};

use super::error::ProbeError;
use crate::region::advise_huge_pages;

/// The cost of copying.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MemcpyCost {
    /// Bytes in each of the two buffers.
    pub bytes: u64,
    /// Copies made.
    pub copies: u64,
    /// Bytes copied per second; each counts once, though it is read and written.
    pub bytes_per_second: f64,
}

/// Copies one buffer of `bytes` to another, over and over, for about `duration`.
///
/// A size that fits the core's own caches measures these; a size well above the last cache measures
/// memory.
///
/// # Errors
/// [`ProbeError::Argument`] unless `bytes` is 1 to 1 GiB.
pub fn memcpy(bytes: u64, duration: Duration) -> Result<MemcpyCost, ProbeError> {
    if !(1..=BUFFER_BYTES_MAX).contains(&bytes) {
        return Err(ProbeError::Argument { what: "bytes", got: bytes, need: "1 to 1 GiB" });
    }
    // Not zero: pages that were never written share one page of zeros, which stays in the cache.
    let from = vec![0x5a_u8; bytes as usize];
    let mut to = vec![0xa5_u8; bytes as usize];
    let per_look = (LOOK_BYTES / bytes).max(1);
    let mut copies = 0;
    let begin = Instant::now();
    let elapsed = loop {
        for _ in 0..per_look {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
        copies += per_look;
        let elapsed = begin.elapsed();
        if elapsed >= duration && !elapsed.is_zero() {
            break elapsed;
        }
    };
    Ok(MemcpyCost { bytes, copies, bytes_per_second: (copies * bytes) as f64 / elapsed.as_secs_f64() })
}

/// Copies `bytes` once, into memory as the allocator gives it, and asks for huge pages: the cost of
/// a copy that is kept.
///
/// # Errors
/// [`ProbeError::Argument`] if `bytes` is 0, or more than there is room for.
pub fn memcpy_fresh(bytes: u64) -> Result<MemcpyCost, ProbeError> {
    let none = ProbeError::Argument { what: "bytes", got: bytes, need: "at least 1, and room for so many" };
    let mut to = Vec::new();
    if bytes == 0 || to.try_reserve_exact(bytes as usize).is_err() {
        return Err(none);
    }
    let from = vec![0x5a_u8; bytes.min(FRESH_FROM_BYTES) as usize];
    let begin = Instant::now();
    advise_huge_pages(to.spare_capacity_mut());
    while (to.len() as u64) < bytes {
        let piece = from.len().min(bytes as usize - to.len());
        to.extend_from_slice(black_box(&from[..piece]));
    }
    black_box(&mut to);
    let elapsed = begin.elapsed().max(Duration::from_nanos(1));
    Ok(MemcpyCost { bytes, copies: 1, bytes_per_second: bytes as f64 / elapsed.as_secs_f64() })
}

const BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Above the last cache.
const FRESH_FROM_BYTES: u64 = 64 << 20;
/// Bytes copied between two looks at the clock.
const LOOK_BYTES: u64 = 1 << 20;

/// The cost of reading the clock: nothing shorter than this can be timed one by one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClockCost {
    /// ns per [`Instant::now`]: the best of some batches, so without interruptions.
    pub read_ns: f64,
    /// The smallest step that two successive reads showed, ns.
    pub step_ns: u64,
}

/// Reads the clock some hundred thousand times.
pub fn clock() -> ClockCost {
    let read_ns = (0..CLOCK_BATCHES).map(|_| clock_batch()).fold(f64::INFINITY, f64::min);
    let step_ns = (0..CLOCK_READS).map(|_| clock_step()).min().unwrap_or(0);
    ClockCost { read_ns, step_ns }
}

const CLOCK_BATCHES: u32 = 100;
const CLOCK_READS: u32 = 1000;
/// Reads after which a clock that has not moved counts as stopped.
const CLOCK_STEP_READS_MAX: u32 = 10_000_000;

fn clock_batch() -> f64 {
    let begin = Instant::now();
    for _ in 1..CLOCK_READS {
        black_box(Instant::now());
    }
    begin.elapsed().as_nanos() as f64 / f64::from(CLOCK_READS)
}

fn clock_step() -> u64 {
    let begin = Instant::now();
    let steps = (0..CLOCK_STEP_READS_MAX).map(|_| begin.elapsed().as_nanos() as u64);
    steps.into_iter().find(|&step| step > 0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_some_rate() {
        for bytes in [1, 10_240, 8 << 20] {
            let got = memcpy(bytes, Duration::from_millis(5)).expect("measured");
            assert!(got.copies > 0 && got.bytes_per_second > 0.0, "{got:?}");
            let got = memcpy_fresh(bytes).expect("measured");
            assert!(got.copies == 1 && got.bytes_per_second > 0.0, "{got:?}");
        }
    }

    #[test]
    fn refuses_no_bytes_and_too_many() {
        for bytes in [0, (1 << 30) + 1] {
            let error = memcpy(bytes, Duration::ZERO).expect_err("no such buffer");
            assert!(matches!(error, ProbeError::Argument { what: "bytes", .. }), "{error}");
        }
        for bytes in [0, u64::MAX] {
            let error = memcpy_fresh(bytes).expect_err("no such memory");
            assert!(matches!(error, ProbeError::Argument { what: "bytes", .. }), "{error}");
        }
    }

    #[test]
    fn the_clock_moves() {
        let got = clock();
        assert!(got.read_ns > 0.0 && got.step_ns > 0, "{got:?}");
    }
}
