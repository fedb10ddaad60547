//! The amount of data that one poll delivers to applications.
//!
//! A member shows that it is alive between two polls. If its applications take long for each
//! message, it would be silent for the time of a whole batch. Therefore a poll delivers less, in
//! all subgroups together, if the upcalls of the poll before took longer. The next poll delivers
//! the rest.
use crate::ids::SubgroupId;
use crate::mutation::mutation;

/// Bytes of frames, times the number of senders, that one poll delivers to the application of a
/// subgroup before it acknowledges them. With more bytes the members would take turns: one member
/// delivers a whole ring while the others wait for its acknowledgement.
const BYTES_MAX: u64 = 64 << 10;
/// Bytes of frames in the first poll: one small message, as nothing is known about the application.
const BYTES_FIRST: u64 = 32;
/// Divisor of the silence after which a member is suspected. Upcalls that take longer than the
/// result are too long.
const LONG_PART: u64 = 16;
/// Divisor of the same silence. After upcalls that take less than the result, the next poll may
/// deliver more.
const SHORT_PART: u64 = 64;
/// Upcalls are measured by a clock that advances every few milliseconds. Upcalls that take less
/// than this time count as short.
const CLOCK_NS: u64 = 8_000_000;

/// The amount of data that a poll delivers to applications.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Bytes of frames that one poll may deliver in all subgroups together.
    bytes: u64,
    /// With this many bytes, each subgroup can always use its full [`BYTES_MAX`].
    most: u64,
    /// Bytes of frames that this poll has delivered.
    handed: u64,
    /// The last subgroup in which a poll that used up all its bytes delivered. The next poll begins
    /// after it.
    last: Option<SubgroupId>,
    /// Whether this poll has delivered as many bytes as it may, in one subgroup or in all.
    filled: bool,
}

impl Pace {
    /// The pace for subgroups that have `senders` senders together.
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

    /// Begins a poll. If the poll before delivered as many bytes as it could, this one may deliver
    /// twice as many, unless the upcalls of that poll [took](Self::took) too long.
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

    /// The subgroup after which this poll begins to deliver, if the poll has a limit for all
    /// subgroups together.
    #[inline]
    pub(crate) fn last(&self) -> Option<SubgroupId> {
        self.last.filter(|_| !self.is_open())
    }

    /// The bytes of frames that this poll may deliver in a subgroup with `senders` senders.
    #[inline]
    pub(crate) fn quota(&self, senders: usize) -> u64 {
        let most = BYTES_MAX * senders as u64;
        if self.is_open() { most } else { most.min(self.bytes - self.handed) }
    }

    /// Notes that this poll has delivered its `quota` in a subgroup, except the bytes `left`.
    #[inline]
    pub(crate) fn note(&mut self, subgroup: SubgroupId, quota: u64, left: u64) {
        self.handed += quota - left;
        if left == 0 {
            self.filled = true;
            self.last = if self.handed < self.bytes { self.last } else { Some(subgroup) };
        }
    }

    /// Whether the last poll delivered as many bytes as it could.
    #[inline]
    pub(crate) fn has_filled(&self) -> bool {
        self.filled
    }

    /// Notes that the upcalls of the last poll took `ns` nanoseconds, if that is known. A member is
    /// suspected after a silence of `suspect_after` nanoseconds.
    #[cold]
    pub(crate) fn took(&mut self, ns: Option<u64>, suspect_after: u64) {
        if mutation!(PaceKept) {
            return;
        }
        let Some(ns) = ns else {
            self.filled = false;
            return;
        };
        // The next poll doubles this. A poll delivers at least one message in any case.
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

    /// Runs polls in which each subgroup has more messages than it may deliver. Each message has a
    /// frame of 32 bytes and takes `ns` nanoseconds. Returns the messages of each subgroup, poll by
    /// poll.
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
        // The upcalls of the first poll are not known to be long.
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
