//! Times and durations, in nanoseconds.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A duration in nanoseconds, or no bound (DDS 2.3.2, `Duration_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DdsDuration(u64);

impl DdsDuration {
    /// No time.
    pub const ZERO: DdsDuration = DdsDuration(0);
    /// No bound. It is longer than every other duration.
    pub const INFINITE: DdsDuration = DdsDuration(u64::MAX);

    /// Makes a duration of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> DdsDuration {
        DdsDuration(nanos)
    }

    /// Makes a duration of milliseconds. Durations beyond 584 years are infinite.
    pub const fn from_millis(millis: u64) -> DdsDuration {
        DdsDuration(millis.saturating_mul(1_000_000))
    }

    /// Makes a duration of seconds. Durations beyond 584 years are infinite.
    pub const fn from_secs(secs: u64) -> DdsDuration {
        DdsDuration(secs.saturating_mul(SECOND))
    }

    /// Returns whether there is no bound.
    pub const fn is_infinite(self) -> bool {
        self.0 == u64::MAX
    }

    /// Returns the nanoseconds; `u64::MAX` if there is no bound.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration of the standard library; `None` if there is no bound.
    pub const fn to_std(self) -> Option<Duration> {
        if self.is_infinite() { None } else { Some(Duration::from_nanos(self.0)) }
    }
}

impl From<Duration> for DdsDuration {
    /// Durations beyond 584 years are infinite.
    fn from(duration: Duration) -> DdsDuration {
        DdsDuration(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for DdsDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("infinite"),
            0 => f.write_str("0 s"),
            nanos if nanos % SECOND == 0 => write!(f, "{} s", nanos / SECOND),
            nanos if nanos % 1_000_000 == 0 => write!(f, "{} ms", nanos / 1_000_000),
            nanos if nanos % 1_000 == 0 => write!(f, "{} us", nanos / 1_000),
            nanos => write!(f, "{nanos} ns"),
        }
    }
}

/// A point in time: nanoseconds since an epoch, which is the one of Unix in source timestamps
/// (DDS 2.3.2, `Time_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DdsTime(i64);

impl DdsTime {
    /// The latest time, which never comes.
    pub const NEVER: DdsTime = DdsTime(i64::MAX);
    /// The earliest time.
    pub const EARLIEST: DdsTime = DdsTime(i64::MIN);

    /// Makes a time of nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> DdsTime {
        DdsTime(nanos)
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the time after a duration. It is [`DdsTime::NEVER`] if the duration has no bound.
    #[must_use]
    pub const fn after(self, duration: DdsDuration) -> DdsTime {
        if duration.is_infinite() { DdsTime::NEVER } else { DdsTime(self.0.saturating_add_unsigned(duration.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_saturate_and_print() {
        assert!(DdsDuration::from_secs(u64::MAX).is_infinite());
        assert!(DdsDuration::from(Duration::MAX).is_infinite());
        assert_eq!(DdsDuration::INFINITE.to_std(), None);
        assert_eq!(DdsDuration::from_millis(1500).to_string(), "1500 ms");
        assert_eq!(DdsDuration::from_secs(2).to_string(), "2 s");
        assert_eq!(DdsDuration::from_nanos(1_001).to_string(), "1001 ns");
        assert_eq!(DdsDuration::INFINITE.to_string(), "infinite");
    }

    #[test]
    fn a_time_after_an_infinite_duration_never_comes() {
        let now = DdsTime::from_nanos(5);
        assert_eq!(now.after(DdsDuration::INFINITE), DdsTime::NEVER);
        assert_eq!(now.after(DdsDuration::from_nanos(7)), DdsTime::from_nanos(12));
        assert_eq!(DdsTime::NEVER.after(DdsDuration::from_secs(1)), DdsTime::NEVER);
    }
}
