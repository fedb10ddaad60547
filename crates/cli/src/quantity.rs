//! Numbers in the form in which people write them.
use spindle::settings::{parse_bytes, parse_time};
use std::time::Duration;

/// Parses bytes, as settings do: a number, or one with k, M or G for 1024, 1024^2 or 1024^3.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "a number of bytes looks like 100, 64k or 1M".to_string())
}

/// Parses a time, as settings do; a bare number is seconds. At least 10 ms, at most a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(31_536_000);
    let time = parse_time(text).filter(|time| range.contains(time));
    time.ok_or_else(|| "a time looks like 2, 0.5 or 300ms".to_string())
}

/// Formats `number` with about three digits, with k, M or G (decimal).
pub(crate) fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e8 => format!("{:.0} M", n / 1e6),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e5 => format!("{:.0} k", n / 1e3),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0} "),
    }
}

/// Returns "1 message", or "2 messages".
pub(crate) fn messages(count: u64) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_units_and_refuse_nonsense() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("10K"), Ok(10_240));
        assert_eq!(bytes("1M"), Ok(1 << 20));
        for bad in ["", "k", "-1", "1.5k", "1kb"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_have_fractions_and_bounds() {
        assert_eq!(seconds("0.3"), Ok(Duration::from_millis(300)));
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        for bad in ["", "0", "-1", "nan", "inf", "1e9", "400d", "1ms"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn short_numbers_keep_three_figures() {
        let all = [(0.0, "0 "), (999.0, "999 "), (1234.0, "1.2 k"), (2.5e6, "2.50 M"), (1.1e9, "1.10 G")];
        for (number, text) in all {
            assert_eq!(short(number), text);
        }
    }
}
