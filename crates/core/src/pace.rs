//! How much one poll hands to applications.
//!
//! A member shows that it lives between two polls. Applications that take long for each message would silence it for as long as a whole batch takes, so a poll
//! hands them the less, in all subgroups together, the longer their upcalls in the poll before have taken. The rest comes with the next poll.
use crate::ids::SubgroupId;
use crate::planted::planted;

/// Bytes of frames, times the senders, that one poll hands to the application of a subgroup before it acknowledges them. With more, members
/// fall into taking turns: one delivers a whole ring while the others wait for that to be acknowledged.
const BYTES_MAX: u64 = 64 << 10;
/// The first poll hands over so many, which is one small message, as nothing is known of the application.
const BYTES_FIRST: u64 = 32;
/// Upcalls that take longer than this part of the silence that is suspected are too long.
const LONG_PART: u64 = 16;
/// After upcalls that take less than this part, the next poll may hand over more.
const SHORT_PART: u64 = 64;
/// Upcalls are measured by a clock that moves on every few milliseconds. All that take less than this are short.
const CLOCK_NS: u64 = 8_000_000;

/// How much a poll hands to applications.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Bytes of frames that one poll may hand over in all subgroups together.
    bytes: u64,
    /// With so many, no subgroup keeps another from its [`BYTES_MAX`].
    most: u64,
    /// This poll has handed over so many.
    handed: u64,
    /// The subgroup in which the last of them were handed over when that was all it might. The next poll begins behind it.
    last: Option<SubgroupId>,
    /// Whether this poll has handed over as much as it might, in one subgroup or in all.
    filled: bool,
}

impl Pace {
    /// For subgroups that have so many senders together.
    pub(crate) fn new(senders: usize) -> Pace {
        let most = BYTES_MAX * senders.max(1) as u64;
        Pace { bytes: BYTES_FIRST, most, handed: 0, last: None, filled: false }
    }

    /// Begins with the budget of `before`, which may have had other subgroups.
    pub(crate) fn keep(&mut self, before: &Pace) {
        self.bytes = if before.is_open() { self.most } else { before.bytes.min(self.most) };
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.bytes >= self.most
    }

    /// A poll begins. It may hand over twice as many bytes as one before it that handed over all that it might, unless the upcalls of that one
    /// [took](Self::took) long.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.handed < self.bytes {
            self.last = None;
        }
        if core::mem::take(&mut self.filled) {
            self.bytes = (2 * self.bytes).min(self.most);
        }
        self.handed = 0;
    }

    /// The subgroup behind which this poll begins to hand over, if it may not hand over as much in all.
    #[inline]
    pub(crate) fn last(&self) -> Option<SubgroupId> {
        self.last.filter(|_| !self.is_open())
    }

    /// How many bytes of frames this poll may hand over in a subgroup with so many senders.
    #[inline]
    pub(crate) fn quota(&self, senders: usize) -> u64 {
        let most = BYTES_MAX * senders as u64;
        if self.is_open() { most } else { most.min(self.bytes - self.handed) }
    }

    /// This poll has handed over all of its `quota` in a subgroup but what is `left`.
    #[inline]
    pub(crate) fn note(&mut self, subgroup: SubgroupId, quota: u64, left: u64) {
        self.handed += quota - left;
        if left == 0 {
            self.filled = true;
            self.last = if self.handed < self.bytes { self.last } else { Some(subgroup) };
        }
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
        let part = match ns {
            _ if ns > (suspect_after / LONG_PART).max(CLOCK_NS) => 8,
            _ if ns > (suspect_after / SHORT_PART).max(CLOCK_NS) => 2,
            _ => return,
        };
        self.bytes = (self.handed / part).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;
    const SUSPECT_AFTER: u64 = 1000 * MS;

    /// Polls in which each subgroup has more than it may hand over, in messages of 32 bytes of frame that take so long each. The messages of each subgroup, poll by poll.
    fn polled(pace: &mut Pace, subgroups: usize, ns: u64, polls: usize) -> Vec<Vec<u64>> {
        let mut poll = || {
            pace.begin();
            let start = pace.last().map_or(0, |last| (last.index() + 1) % subgroups);
            let mut handed = alloc::vec![0; subgroups];
            let hand_over = |id| {
                let quota = pace.quota(1);
                if quota > 0 {
                    pace.note(SubgroupId(id as u32), quota, 0);
                }
                handed[id] = quota.div_ceil(32);
            };
            (start..subgroups).chain(0..start).for_each(hand_over);
            if pace.has_filled() {
                pace.took(Some(handed.iter().sum::<u64>() * ns), SUSPECT_AFTER);
            }
            handed
        };
        (0..polls).map(|_| poll()).collect()
    }

    #[test]
    fn polls_hand_over_more_while_upcalls_are_short() {
        assert_eq!(polled(&mut Pace::new(1), 1, 1, 4), [[1], [2], [4], [8]]);
        let most = BYTES_MAX / 32;
        assert_eq!(polled(&mut Pace::new(3), 3, 1, 20).last(), Some(&alloc::vec![most; 3]));
    }

    #[test]
    fn polls_hand_over_less_after_long_upcalls() {
        let mut pace = Pace::new(1);
        polled(&mut pace, 1, 1, 20);
        let handed = polled(&mut pace, 1, 10 * MS, 20);
        // The first is not known to be long.
        assert!(handed[1..].iter().any(|poll| poll[0] < 20), "{handed:?}");
        assert!(handed[4..].iter().all(|poll| (1..=16).contains(&poll[0])), "{handed:?}");
    }

    #[test]
    fn subgroups_take_turns_while_polls_hand_over_little() {
        let (mut pace, subgroups) = (Pace::new(100), 100);
        let handed = polled(&mut pace, subgroups, 20 * MS, 1000);
        assert!(handed.iter().all(|poll| (1..=6).contains(&poll.iter().sum::<u64>())), "{handed:?}");
        let of = |subgroup: usize| handed.iter().map(|poll| poll[subgroup]).sum::<u64>();
        let (least, most) = ((0..subgroups).map(of).min(), (0..subgroups).map(of).max());
        assert!(least > Some(0) && most <= least.map(|least| 2 * least), "{least:?} {most:?}");
    }

    #[test]
    fn polls_that_hand_over_less_than_they_might_or_are_not_measured_change_nothing() {
        let mut pace = Pace::new(1);
        let quota = |pace: &mut Pace| {
            pace.begin();
            pace.quota(1)
        };
        assert!((0..100).all(|_| quota(&mut pace) == BYTES_FIRST));
        pace.note(SubgroupId(0), BYTES_FIRST, 0);
        pace.took(None, MS);
        assert_eq!(quota(&mut pace), BYTES_FIRST);
    }

    #[test]
    fn another_view_goes_on_as_fast() {
        let (mut fast, mut slow) = (Pace::new(2), Pace::new(2));
        polled(&mut fast, 2, 1, 20);
        polled(&mut slow, 2, 20 * MS, 20);
        for before in [fast, slow] {
            let mut next = Pace::new(5);
            next.keep(&before);
            assert_eq!((next.is_open(), next.bytes < 1024), (before.is_open(), before.bytes < 1024));
        }
    }
}
