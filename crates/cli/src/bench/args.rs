//! Words of the command line that several benchmarks share.
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::Duration;

/// Bytes of a ring unless the window says otherwise: what two cores' own caches hold on most machines.
pub(super) const RING_BYTES: u64 = 1 << 20;

/// Who polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Drive {
    /// The application's thread, in between sending
    Poll,
    /// A thread of the library; the application's thread waits for room
    Thread,
}

/// Where messages are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Delivery {
    /// In the handler, on the thread that polls
    Upcall,
    /// From a receiver: in poll drive on the same thread, else on one more
    Receiver,
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Senders {
    /// The first member
    One,
    /// The first half of the members
    Half,
    /// Everybody
    All,
}

impl Senders {
    /// How many of `members` that is.
    pub(super) fn of(self, members: u32) -> u32 {
        match self {
            Senders::One => 1,
            Senders::Half => members.div_ceil(2),
            Senders::All => members,
        }
    }
}

/// Cores that this process may use.
pub(super) fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// Bytes: a number, with `k` for 1024 and `M` for 1024 * 1024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no number of bytes; write 128, 1k or 2M"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text:?} is too many bytes"))
}

/// Seconds, with a fraction, above 0 and up to an hour.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("{text:?} is no number of seconds above 0 and up to 3600")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(["16", "1k", "10K", "2M"].map(bytes), [Ok(16), Ok(1024), Ok(10_240), Ok(2 << 20)]);
        for wrong in ["", "k", "-1", "1.5k", "1kk", "99999999999999999999", "99999999999999999M"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "3601", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn half_is_at_least_one() {
        assert_eq!([1, 2, 3, 16].map(|members| Senders::Half.of(members)), [1, 1, 2, 8]);
    }
}
