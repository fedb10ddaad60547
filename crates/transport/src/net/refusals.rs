//! Refusals that are reported to an operator: one line for each source and period, with the number
//! of refusals that were left out.
//!
//! No I/O and no clock.
use super::half_open::ConnectionOrigin;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The period after a reported refusal in which further ones of its source are only counted. They
/// are reported together at its end.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Sources that are counted separately. The refusals of all others count as those of one source.
const SOURCES_MAX: usize = 64;

/// Refusals by source, each within the period of its source.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<Option<ConnectionOrigin>, RefusalCount>);

#[derive(Debug)]
struct RefusalCount {
    until: Instant,
    /// Refusals since the last line, and the reason of the newest.
    count: u64,
    reason: String,
}

/// A line for the operator.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct RefusalLine {
    /// `None`: one of many sources.
    pub(super) source: Option<ConnectionOrigin>,
    /// How many refusals it covers. The reason is that of the newest.
    pub(super) count: u64,
    pub(super) reason: String,
}

impl Refusals {
    /// Records that a connection or a control message of `source` was refused. Returns the line to
    /// be reported at once, if there is one.
    pub(super) fn note(&mut self, source: ConnectionOrigin, reason: String, now: Instant) -> Option<RefusalLine> {
        let is_apart = self.0.contains_key(&Some(source)) || self.0.len() < SOURCES_MAX;
        let source = is_apart.then_some(source);
        if let Some(counted) = self.0.get_mut(&source) {
            counted.count += 1;
            counted.reason = reason;
            return None;
        }
        self.0.insert(source, RefusalCount { until: now + TOLD_EVERY, count: 0, reason: String::new() });
        Some(RefusalLine { source, count: 1, reason })
    }

    /// Returns the lines of the periods that are over.
    pub(super) fn due(&mut self, now: Instant) -> Vec<RefusalLine> {
        let mut lines = vec![];
        self.0.retain(|source, counted| {
            if now < counted.until {
                return true;
            }
            let count = std::mem::take(&mut counted.count);
            if count > 0 {
                lines.push(RefusalLine { source: *source, count, reason: std::mem::take(&mut counted.reason) });
            }
            counted.until = now + TOLD_EVERY;
            count > 0
        });
        lines
    }

    /// Returns when the next period ends in which refusals were counted.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.0.values().filter(|counted| counted.count > 0).map(|counted| counted.until).min()
    }
}

impl RefusalLine {
    /// Returns the source in words.
    pub(super) fn from(&self) -> String {
        self.source.map_or("other addresses".into(), |source| source.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> ConnectionOrigin {
        ConnectionOrigin::V4([10, 0, 0, number])
    }

    #[test]
    fn the_first_refusal_is_told_at_once_and_the_others_of_the_period_together() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let note = |refusals: &mut Refusals, number, ms| {
            let line = refusals.note(source(number), format!("{ms}"), start + Duration::from_millis(ms));
            line.map(|line| (line.from(), line.count, line.reason))
        };
        assert_eq!(note(&mut refusals, 1, 0), Some(("10.0.0.1".into(), 1, "0".into())));
        assert_eq!(refusals.wake_at(), None, "there is nothing to tell");
        assert_eq!((note(&mut refusals, 1, 5), note(&mut refusals, 1, 6)), (None, None));
        assert_eq!(note(&mut refusals, 2, 7), Some(("10.0.0.2".into(), 1, "7".into())));
        assert_eq!(refusals.wake_at(), Some(start + TOLD_EVERY));
        assert_eq!(refusals.due(start + TOLD_EVERY / 2), []);
        let told = RefusalLine { source: Some(source(1)), count: 2, reason: "6".into() };
        assert_eq!(refusals.due(start + TOLD_EVERY), [told]);
        // The next period has begun with that line, and ends without one.
        assert_eq!(note(&mut refusals, 1, 10_001), None);
        assert_eq!(refusals.due(start + 2 * TOLD_EVERY).len(), 1);
        assert_eq!(refusals.due(start + 3 * TOLD_EVERY), []);
        assert!(refusals.0.is_empty());
    }

    #[test]
    fn a_half_open_of_sources_is_told_as_one() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let told = (0..=255).filter_map(|number| refusals.note(source(number), String::new(), now));
        let told: Vec<String> = told.map(|line| line.from()).collect();
        assert_eq!((told.len(), &*told[SOURCES_MAX]), (SOURCES_MAX + 1, "other addresses"));
        assert_eq!(refusals.due(now + TOLD_EVERY).first().map(|line| line.count), Some(255 - SOURCES_MAX as u64));
    }
}
