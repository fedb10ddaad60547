//! Times of the calendar, in UTC.
use spindle_core::clock::date;
use std::fmt;
use std::time::Duration;

/// A time since 1970 as `2026-11-22T20:47:06.123Z`.
pub(crate) struct Utc(pub(crate) Duration);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.0.as_secs(), self.0.subsec_millis());
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// Parses a time such as `2026-11-22T20:47:06.123Z` as the time since 1970. The fraction may have
/// up to nine digits, or be missing.
pub(crate) fn parse_utc(text: &str) -> Option<Duration> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let is_fraction = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|digit| digit.is_ascii_digit());
    let nanos = is_fraction.then(|| format!("{fraction:0<9}").parse::<u32>().ok())??;
    if year < 1970 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days(year, month, day);
    // A day that the month does not have, such as 30 February, is another day.
    (date(days) == (year, month, day)).then(|| Duration::new(days * 86_400 + hour * 3600 + minute * 60 + second, nanos))
}

/// Returns three numbers of so many digits each, with `between` between them.
fn numbers(text: &str, between: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut numbers = [0; 3];
    let mut parts = text.split(between);
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next()?;
        let is_number = part.len() == length && part.bytes().all(|digit| digit.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Returns the number of days after 1 January 1970, the inverse of `date`.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day.saturating_sub(1);
    (era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year).saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // The expected values are those of `date --utc --date=@SECONDS`.
        for (seconds, told) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Utc(Duration::from_secs(seconds)).to_string(), told);
        }
        assert_eq!(Utc(Duration::from_millis(1_795_380_426_123)).to_string(), "2026-11-22T20:47:06.123Z");
    }

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for seconds in [0, 951_782_399, 951_868_799, 951_868_800, 1_735_689_599, 4_107_542_400] {
            assert_eq!(parse_utc(&Utc(Duration::from_secs(seconds)).to_string()), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(parse_utc("1970-01-01T00:00:01Z"), Some(Duration::from_secs(1)));
        assert_eq!(parse_utc("1970-01-01T00:00:00.000000001Z"), Some(Duration::from_nanos(1)));
        for bad in [
            "",
            "2026-11-22",
            "2026-11-22T20:47:06",
            "2026-11-22 20:47:06Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.0000000001Z",
            "2026-01-01T00:00:+1Z",
        ] {
            assert_eq!(parse_utc(bad), None, "{bad}");
        }
    }
}
