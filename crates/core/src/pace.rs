//! How much one poll hands to applications.
//!
//! A member shows that it lives between two polls. Applications that take long for each message would silence it for as long as a whole batch takes, so a poll
//! hands them the less the longer the poll before has taken. The rest comes with the next poll.
use crate::ids::Time;
use crate::planted::planted;

/// Bytes of frames, times the senders, that one poll hands to the application before it acknowledges them. With more, members
/// fall into taking turns: one delivers a whole ring while the others wait for that to be acknowledged.
const BYTES_MAX: u64 = 64 << 10;
/// The first poll hands over so many, as nothing is known of the application.
const BYTES_FIRST: u64 = 256;
/// A poll that takes longer than this part of the silence that is suspected was too long.
const LONG_PART: u64 = 16;
/// A poll that takes less than this part was short.
const SHORT_PART: u64 = 64;
/// The time that a poll is told may be as old as that. No poll that takes less counts as long.
const CLOCK_NS: u64 = 8_000_000;

/// How much a poll hands to the application of one subgroup.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Bytes of frames, times the senders.
    bytes: u64,
    /// When the last poll began.
    began: Time,
    /// Whether it handed anything over.
    pub(crate) delivered: bool,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { bytes: BYTES_FIRST, began: Time(0), delivered: false }
    }

    /// That of the same applications in the next view, whose first poll comes any time later.
    pub(crate) fn next(&self) -> Pace {
        Pace { delivered: false, ..self.clone() }
    }

    /// A poll begins. Silence of `suspect_after` ns is suspected, if any is. Returns how many bytes of frames it may hand over, times the senders.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time, suspect_after: Option<u64>) -> u64 {
        if core::mem::take(&mut self.delivered) && (now != self.began || self.bytes < BYTES_MAX) {
            self.adapt(now.0.saturating_sub(self.began.0), suspect_after.unwrap_or(u64::MAX));
        }
        self.began = now;
        self.bytes
    }

    /// The last poll has handed something over, and taken so many ns.
    #[cold]
    fn adapt(&mut self, took: u64, suspect_after: u64) {
        if took > (suspect_after / LONG_PART).max(CLOCK_NS) && !planted!(PaceKept) {
            // At least one message, or one of each sender, is handed over in any case.
            self.bytes = (self.bytes / 4).max(1);
        } else if took <= (suspect_after / SHORT_PART).max(CLOCK_NS / 2) {
            self.bytes = (2 * self.bytes).min(BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The bytes that one poll after the other may hand over if each takes so long for each of them.
    fn handed_over(ns_per_byte: u64, suspect_after: Option<u64>, polls: usize) -> alloc::vec::Vec<u64> {
        let (mut pace, mut now) = (Pace::new(), Time(0));
        let mut poll = || {
            let bytes = pace.begin(now, suspect_after);
            pace.delivered = true;
            now = Time(now.0 + bytes * ns_per_byte);
            bytes
        };
        (0..polls).map(|_| poll()).collect()
    }

    #[test]
    fn polls_hand_over_more_while_they_are_short() {
        assert_eq!(handed_over(1, Some(1000 * MS), 4), [256, 512, 1024, 2048]);
        assert_eq!(handed_over(1, Some(1000 * MS), 20).last(), Some(&(64 << 10)));
        assert_eq!(handed_over(u64::from(u32::MAX), None, 20).last(), Some(&(64 << 10)), "no silence is suspected");
    }

    #[test]
    fn long_polls_are_followed_by_shorter_ones() {
        let suspect_after = 1000 * MS;
        let polls = handed_over(MS, Some(suspect_after), 40);
        assert!(polls[8..].iter().all(|bytes| bytes * MS <= suspect_after / 8), "{polls:?}");
        assert!(polls.iter().all(|bytes| *bytes > 0), "{polls:?}");
    }
}
