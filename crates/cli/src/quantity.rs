//! Numbers as people write them.
use std::time::Duration;

/// Bytes: a number, or one with k, M or G for 1024, 1024^2 or 1024^3.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => text.strip_suffix(['g', 'G']).map_or((text, 1), |digits| (digits, 1 << 30)),
        },
    };
    let number = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+'));
    number.and_then(|n| n.checked_mul(unit)).ok_or_else(|| "a number of bytes looks like 100, 64k or 1M".to_string())
}

/// Seconds, with a fraction: at least 10 ms, at most a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.01..=31_536_000.0).contains(seconds));
    number.map(Duration::from_secs_f64).ok_or_else(|| "a number of seconds looks like 2 or 0.5".to_string())
}

/// `number` in three or so figures, with k, M or G (decimal).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_units_and_refuse_nonsense() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("10K"), Ok(10_240));
        assert_eq!(bytes("1M"), Ok(1 << 20));
        for bad in ["", "k", "-1", "+1", "1.5k", "1kb", "99999999999G"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_have_fractions_and_bounds() {
        assert_eq!(seconds("0.3"), Ok(Duration::from_millis(300)));
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        for bad in ["", "0", "-1", "nan", "inf", "1e9", "1s"] {
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
