//! Versions, times and payloads, as they are written on the command line and printed.
use crate::calendar::{Utc, parse_utc};
use serde_json::{Map, Value};
use spindle::settings::parse_time;
use spindle_log::{LoggedMessage, PayloadKind, Record, Version};
use std::fmt::Write;
use std::time::Duration;

/// Parses a version such as `1:40`.
pub(super) fn version(text: &str) -> Result<Version, String> {
    let parsed = text.split_once(':').and_then(|(epoch, sequence)| Some((number(epoch)?, number(sequence)?)));
    let Some((epoch, sequence)) = parsed else {
        return Err("a version is an epoch and a sequence number, such as 1:40".to_string());
    };
    Ok(Version::new(epoch, sequence))
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Parses a time as a clock, which counts ns since 1970.
pub(crate) fn clock(text: &str) -> Result<u64, String> {
    let time = || parse_utc(text).and_then(|time| u64::try_from(time.as_nanos()).ok());
    number(text).or_else(time).ok_or_else(|| {
        "a time looks like 2026-11-22T20:47:06Z, with a fraction if need be, or is the clock of a record".to_string()
    })
}

/// Parses an age, as settings do.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let age = parse_time(text).filter(|age| !age.is_zero());
    age.ok_or_else(|| "an age looks like 30min, 12h or 7d".to_string())
}

/// The time of a clock.
pub(crate) fn time(clock: u64) -> String {
    Utc(Duration::from_nanos(clock)).to_string()
}

/// The text of a version, or a dash.
pub(super) fn or_dash(version: Option<Version>) -> String {
    version.map_or("-".to_string(), |version| version.to_string())
}

/// A version as a JSON string, or null.
pub(super) fn or_null(version: Option<Version>) -> Value {
    version.map_or(Value::Null, |version| version.to_string().into())
}

/// The keys that say which record it is.
pub(super) fn head(record: &Record<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("version".into(), record.version.to_string().into());
    object.insert("epoch".into(), record.version.epoch.into());
    object.insert("sequence".into(), record.version.sequence.into());
    object.insert("clock".into(), record.clock.into());
    object.insert("time".into(), time(record.clock).into());
    object.insert("bytes".into(), record.payload.len().into());
    object
}

/// A record as an object: the payload is "text" if it is UTF-8, else "hex". A message of a member's
/// log also has "sender" and "sent", the time by the sender's clock.
pub(super) fn object(record: &Record<'_>, payloads: PayloadKind) -> Value {
    let mut object = head(record);
    let (message, payload) = contents(record, payloads);
    if let Some(LoggedMessage { sender, time: sent, .. }) = message {
        object.insert("sender".into(), sender.into());
        object.insert("sent".into(), time(sent).into());
    }
    match str::from_utf8(payload) {
        Ok(text) => object.insert("text".into(), text.into()),
        Err(_) => object.insert("hex".into(), hex(payload).into()),
    };
    object.into()
}

/// The message in a record, if it is one, and the bytes to show.
fn contents<'a>(record: &Record<'a>, payloads: PayloadKind) -> (Option<LoggedMessage<'a>>, &'a [u8]) {
    let message = LoggedMessage::parse(record.payload).filter(|_| payloads == PayloadKind::Messages);
    (message, message.map_or(record.payload, |message| message.payload))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // A string takes every text.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A record as a line.
pub(super) fn line(record: &Record<'_>, payloads: PayloadKind) -> String {
    let (message, payload) = contents(record, payloads);
    let payload = match str::from_utf8(payload) {
        Ok(text) => escaped(text),
        Err(_) => payload.escape_ascii().to_string(),
    };
    let sender = message.map(|message| format!("{} ", message.sender)).unwrap_or_default();
    format!("{} {} {sender}{payload}", record.version, time(record.clock))
}

/// A text without control characters.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            c if c.is_control() => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_times_refuse_nonsense() {
        assert_eq!(version("1:40"), Ok(Version::new(1, 40)));
        assert_eq!(version("0:18446744073709551615"), Ok(Version::new(0, u64::MAX)));
        for bad in ["", "1", "1:", ":1", "1:2:3", "-1:2", "+1:2", "1:18446744073709551616", "a:b"] {
            assert!(version(bad).is_err(), "{bad}");
        }
        assert_eq!(clock("17"), Ok(17));
        assert_eq!(clock("1970-01-01T00:00:01.000000002Z"), Ok(1_000_000_002));
        for bad in ["", "yesterday", "-1", "2026-11-22", "9999-01-01T00:00:00Z"] {
            assert!(clock(bad).is_err(), "{bad}");
        }
        assert!(age("7d").is_ok() && age("0").is_err() && age("long").is_err());
    }

    #[test]
    fn a_payload_stays_on_its_line() {
        let shown =
            |payload: &[u8]| line(&Record { version: Version::new(1, 2), clock: 0, payload }, PayloadKind::Opaque);
        assert_eq!(shown("ein Stück".as_bytes()), "1:2 1970-01-01T00:00:00.000Z ein Stück");
        assert_eq!(shown(b"a\nb\\\x1b[2J"), "1:2 1970-01-01T00:00:00.000Z a\\nb\\\\\\u{1b}[2J");
        assert_eq!(shown(b"a\xff"), "1:2 1970-01-01T00:00:00.000Z a\\xff");
    }
}
