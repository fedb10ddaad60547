//! Sizes and times in readable form, parsed and written.
use std::time::Duration;

/// The units of sizes, in bytes. `KB` and `MB` are missing because some readers take them as powers
/// of ten.
const BYTES: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("k", 1 << 10),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("m", 1 << 20),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("g", 1 << 30),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
];

/// The units of times, in seconds. A number without a unit is in seconds.
const SECONDS: [(&str, f64); 9] = [
    ("", 1.0),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
];

/// Parses a size: a whole number, alone or with `B`, `k`, `K`, `KiB`, `M`, `MiB`, `G` or `GiB`,
/// which are powers of 1,024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = split(text)?;
    let (_, worth) = BYTES.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*worth)
}

/// Parses a time: a number with `ns`, `us`, `ms`, `s`, `min`, `h` or `d`; without a unit, in
/// seconds.
pub fn parse_time(text: &str) -> Option<Duration> {
    let (digits, unit) = split(text)?;
    let (_, worth) = SECONDS.iter().find(|(name, _)| *name == unit)?;
    Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * worth).ok()
}

/// Splits the text into number and unit; a number begins with a digit.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    digits.starts_with(|c: char| c.is_ascii_digit()).then_some((digits, unit.trim_start_matches(' ')))
}

/// Writes a size in the largest unit that gives a whole number.
pub(super) fn show_bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units.iter().find(|(worth, _)| bytes > 0 && bytes.is_multiple_of(*worth));
    fits.map_or_else(|| bytes.to_string(), |(worth, unit)| format!("{}{unit}", bytes / worth))
}

/// Writes a time in the largest unit that gives a whole number.
pub(super) fn show_time(time: Duration) -> String {
    let units: [(u128, &str); 6] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    match time.as_nanos() {
        0 => "0s".to_string(),
        // Below two minutes, whole seconds are easier to read, even for 60 s.
        nanos if nanos < 120_000_000_000 && nanos.is_multiple_of(1_000_000_000) => {
            format!("{}s", nanos / 1_000_000_000)
        }
        nanos => {
            let fits = units.iter().find(|(worth, _)| nanos.is_multiple_of(*worth));
            fits.map_or_else(|| format!("{nanos}ns"), |(worth, unit)| format!("{}{unit}", nanos / worth))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_units_and_refuse_nonsense() {
        let good = [("0", 0), ("10K", 10_240), ("10KiB", 10_240), ("10 KiB", 10_240), ("1M", 1 << 20), ("64B", 64)];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for bad in ["", "k", "-1", "+1", "1.5k", "1kb", "1MB", "99999999999G", "1 k B", "0x10"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_take_units_and_refuse_nonsense() {
        let good = [("0.3", 300_000_000), ("300ms", 300_000_000), ("2", 2_000_000_000), ("10 us", 10_000), ("0", 0)];
        for (text, nanos) in good {
            assert_eq!(parse_time(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(parse_time("1.5h"), Some(Duration::from_secs(5400)));
        for bad in ["", "ms", "-1", "nan", "inf", "1e9", "1m", "1.2.3s", ".", "5 parsecs", "999999999999999999999d"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_displayed_value_parses_to_the_same() {
        for bytes in [0, 1, 1000, 1024, 10_240, 65_536, (1 << 20) + 1, 3 << 30] {
            assert_eq!(parse_bytes(&show_bytes(bytes)), Some(bytes));
        }
        for nanos in [0, 1, 1500, 1_000_000, 300_000_000, 1_000_000_000, 60_000_000_000, 86_400_000_000_000] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(parse_time(&show_time(time)), Some(time));
        }
        assert_eq!([show_bytes(65_536), show_time(Duration::from_secs(60))], ["64KiB", "60s"]);
    }
}
