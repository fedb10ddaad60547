//! How much one poll hands to applications.
//!
//! A member shows that it lives between two polls. Applications that take long for each message would silence it for as long as a whole batch takes, so a poll
//! hands them the less the longer their upcalls in the poll before have taken. The rest comes with the next poll.
use crate::planted::planted;

/// Bytes of frames, times the senders, that one poll hands to the application before it acknowledges them. With more, members
/// fall into taking turns: one delivers a whole ring while the others wait for that to be acknowledged.
const BYTES_MAX: u64 = 64 << 10;
/// The first poll hands over so many, as nothing is known of the application.
const BYTES_FIRST: u64 = 256;
/// Upcalls that take longer than this part of the silence that is suspected are too long.
const LONG_PART: u64 = 16;
/// After upcalls that take less than this part, the next poll may hand over more.
const SHORT_PART: u64 = 64;
/// Upcalls are measured by a clock that moves on every few milliseconds. All that take less than this are short.
const CLOCK_NS: u64 = 8_000_000;

/// How much a poll hands to the application of one subgroup.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Bytes of frames, times the senders.
    bytes: u64,
    /// Whether the last poll handed over as much as it might.
    filled: bool,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { bytes: BYTES_FIRST, filled: false }
    }

    /// A poll begins. It may hand over twice as many bytes as one before it that handed over all that it might, unless the upcalls of that one
    /// [took](Self::took) long.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if core::mem::take(&mut self.filled) && self.bytes < BYTES_MAX {
            self.bytes = (2 * self.bytes).min(BYTES_MAX);
        }
    }

    /// How many bytes of frames this poll may hand over, times the senders.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes whether an application took all that it might get in this poll.
    #[inline]
    pub(crate) fn note(&mut self, is_full: bool) {
        self.filled |= is_full;
    }

    /// Whether the last poll handed over as much as it might.
    #[inline]
    pub(crate) fn has_filled(&self) -> bool {
        self.filled
    }

    /// The upcalls of the last poll have taken so many ns, if that is known. Silence of `suspect_after` ns is suspected.
    #[cold]
    pub(crate) fn took(&mut self, ns: Option<u64>, suspect_after: u64) {
        if planted!(PaceKept) {
            return;
        }
        let Some(ns) = ns else {
            self.filled = false;
            return;
        };
        // The next poll doubles it. At least one message is handed over in any case.
        if ns > (suspect_after / LONG_PART).max(CLOCK_NS) {
            self.bytes = (self.bytes / 8).max(1);
        } else if ns > (suspect_after / SHORT_PART).max(CLOCK_NS) {
            self.bytes = (self.bytes / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The bytes that one poll after the other may hand over if the application takes so long for each of them.
    fn handed_over(ns_per_byte: u64, suspect_after: u64, polls: usize) -> alloc::vec::Vec<u64> {
        let mut pace = Pace::new();
        let mut poll = || {
            pace.begin();
            let bytes = pace.bytes();
            pace.note(true);
            pace.took(Some(bytes * ns_per_byte), suspect_after);
            bytes
        };
        (0..polls).map(|_| poll()).collect()
    }

    #[test]
    fn polls_hand_over_more_while_upcalls_are_short() {
        assert_eq!(handed_over(1, 1000 * MS, 4), [256, 512, 1024, 2048]);
        assert_eq!(handed_over(1, 1000 * MS, 20).last(), Some(&(64 << 10)));
    }

    #[test]
    fn polls_hand_over_less_after_long_upcalls() {
        let suspect_after = 1000 * MS;
        let polls = handed_over(MS, suspect_after, 40);
        assert!(polls[4..].iter().all(|bytes| bytes * MS <= suspect_after / 8), "{polls:?}");
        assert!(polls.iter().all(|bytes| *bytes > 0), "{polls:?}");
    }

    #[test]
    fn polls_that_hand_over_less_than_they_might_or_are_not_measured_change_nothing() {
        let mut pace = Pace::new();
        let after_begin = |pace: &mut Pace| {
            pace.begin();
            pace.bytes()
        };
        assert!((0..100).all(|_| after_begin(&mut pace) == BYTES_FIRST));
        pace.note(true);
        pace.took(None, MS);
        assert_eq!(after_begin(&mut pace), BYTES_FIRST);
    }
}
