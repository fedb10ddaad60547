//! A clock that is cheap enough to be read after each poll.
use std::time::Duration;

/// A clock of the system that advances every few milliseconds, which reports whether time has
/// passed. To read it took 7.6 ns on a virtual Xeon, where an exact clock took 41.
#[derive(Debug)]
pub struct CoarseClock {
    last: (libc::time_t, libc::c_long),
}

impl CoarseClock {
    /// Creates a clock that has not moved.
    pub fn new() -> CoarseClock {
        CoarseClock { last: read() }
    }

    /// Returns how far it has moved since the last call of [`has_moved`](Self::has_moved), or since
    /// it was created.
    pub fn elapsed(&self) -> Duration {
        let since = |(seconds, nanoseconds): (libc::time_t, libc::c_long)| {
            Duration::new(seconds.unsigned_abs(), nanoseconds.unsigned_abs() as u32)
        };
        since(read()).saturating_sub(since(self.last))
    }

    /// Returns true if it has moved since the last call, or since it was created.
    #[inline]
    pub fn has_moved(&mut self) -> bool {
        let now = read();
        std::mem::replace(&mut self.last, now) != now
    }
}

impl Default for CoarseClock {
    fn default() -> CoarseClock {
        CoarseClock::new()
    }
}

/// Calls libc: rustix looks for the kernel's own code itself, which it can't find under valgrind.
#[inline]
fn read() -> (libc::time_t, libc::c_long) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is this thread's alone. The clock exists since Linux 2.6.32, so the
    // call returns no error.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    (time.tv_sec, time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::Instant;

    #[test]
    fn it_moves_with_time_and_seldom() {
        let mut clock = CoarseClock::new();
        sleep(Duration::from_millis(50));
        assert!(clock.has_moved());
        let start = Instant::now();
        let moves = (0..10_000).filter(|_| clock.has_moved()).count();
        assert!(moves as u128 <= 2 + start.elapsed().as_millis(), "{moves} in {:?}", start.elapsed());
    }
}
