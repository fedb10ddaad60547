//! The processes whose clocks disagree with that of this one, while it looks for its group.
//!
//! A member's refusal is final. A process that only waits may be wrong itself: one whose clock is wrong
//! refuses all others, and all others refuse it. So this process counts, and gives up if more processes
//! disagree with its clock than agree with it. If that is by one only, it waits longer: a process with a
//! wrong clock that disagrees with several others gives up first.
use super::ASK_EVERY;
use crate::clock::{ClockSkew, DISAGREES_FOR};
use crate::ids::{MemberId, Time};
use crate::mutation::mutation;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

/// How long a process waits for others that agree with its clock if several disagree.
const SEVERAL_COUNT_AFTER: Duration = ASK_EVERY.saturating_mul(10);
/// How long it waits if one more disagrees than agree. A process that gives up before is forgotten by then.
const ONE_COUNTS_AFTER: Duration = ASK_EVERY.saturating_mul(30);
const _: () = assert!(
    ONE_COUNTS_AFTER.as_millis() > SEVERAL_COUNT_AFTER.as_millis() + DISAGREES_FOR.as_millis() + ASK_EVERY.as_millis()
);

/// The refusals of this process for its clock.
#[derive(Debug, Default)]
pub(super) struct ClockRefusals {
    /// The last one of each process, and its time.
    by: BTreeMap<MemberId, (ClockSkew, Time)>,
    /// Since when processes disagree that wait.
    since: Option<Time>,
    /// True if a process has asked this one to wait, so agrees with its clock.
    is_awaited: bool,
}

impl ClockRefusals {
    /// Notes a refusal.
    pub(super) fn note(&mut self, skew: ClockSkew, now: Time) {
        self.by.insert(skew.member, (skew, now));
    }

    /// Notes that a process has asked this one to wait.
    pub(super) fn awaited(&mut self) {
        self.is_awaited = true;
    }

    /// Returns a reason why this process gives up: a member has refused it, or for some time more waiting
    /// processes disagree with its clock than there are `agreed` ones.
    ///
    /// `refused` are the processes that this one has refused not long ago.
    pub(super) fn outcome(
        &mut self,
        agreed: &BTreeSet<MemberId>,
        refused: impl Iterator<Item = ClockSkew>,
        now: Time,
    ) -> Option<ClockSkew> {
        self.by.retain(|_, (skew, at)| skew.is_running || now.since(*at) < DISAGREES_FOR);
        let heard = self.by.values().map(|(skew, _)| *skew);
        if let Some(skew) = heard.clone().find(|skew| skew.is_running) {
            return Some(skew);
        }
        // The clock of a process that agrees by now was set right, or the id has another process.
        let counts = |skew: &ClockSkew| !agreed.contains(&skew.member);
        let disagree: BTreeMap<MemberId, ClockSkew> =
            refused.chain(heard).filter(counts).map(|skew| (skew.member, skew)).collect();
        if disagree.is_empty() {
            self.since = None;
        }
        let skew = *disagree.values().next()?;
        let lasts = now.since(*self.since.get_or_insert(now));
        // The process that has asked this one to wait may be one of those that have asked it.
        let agree = if mutation!(OneClockCounts) { 0 } else { agreed.len().max(self.is_awaited.into()) };
        let is_outvoted = match disagree.len().saturating_sub(agree) {
            0 => false,
            1 => lasts >= ONE_COUNTS_AFTER,
            _ => lasts >= SEVERAL_COUNT_AFTER,
        };
        is_outvoted.then_some(skew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn skew(member: u64, is_running: bool) -> ClockSkew {
        ClockSkew { member: MemberId(member), theirs: 9, ours: 1, max_ns: 1, is_running }
    }

    /// Runs a process that these waiting processes refuse every 200 ms, and that refuses those. Returns
    /// the time after which it gives up, in seconds, if it does within ten.
    fn gives_up(by: &[u64], refused: &[u64], is_awaited: bool, agree: u64) -> Option<u64> {
        let mut refusals = ClockRefusals::default();
        let agreed: BTreeSet<MemberId> = (10..10 + agree).map(MemberId).collect();
        if is_awaited {
            refusals.awaited();
        }
        let mut ticks = (0..50).map(|tick| Time(0) + ASK_EVERY * tick);
        let ends = ticks.find(|now| {
            by.iter().for_each(|id| refusals.note(skew(*id, false), *now));
            refusals.outcome(&agreed, refused.iter().map(|id| skew(*id, false)), *now).is_some()
        });
        ends.map(|at| at.since(Time(0)).as_secs())
    }

    /// Track record 225: one process with a wrong clock ended all others that waited with it, if a group
    /// was created with one or two members.
    #[test]
    fn a_founder_gives_up_if_more_refuse_its_clock_than_agree() {
        for (by, refused, is_awaited, agree, after) in [
            (vec![], vec![], false, 0, None),
            (vec![2], vec![], false, 0, Some(6)),
            (vec![2], vec![2], false, 0, Some(6)),
            (vec![], vec![2], false, 0, Some(6)),
            (vec![2], vec![2], true, 0, None),
            (vec![2], vec![2], false, 1, None),
            (vec![2, 3], vec![], false, 0, Some(2)),
            (vec![2], vec![3], false, 0, Some(2)),
            (vec![], vec![2, 3], false, 0, Some(2)),
            (vec![2, 3], vec![2], true, 0, Some(6)),
            (vec![2, 3], vec![3], true, 1, Some(6)),
            (vec![2, 3], vec![3], true, 2, None),
            (vec![2, 3, 4], vec![2, 3, 5], true, 2, Some(2)),
            // They agree by now.
            (vec![10, 11], vec![], false, 2, None),
            (vec![10, 11, 2], vec![], false, 2, None),
        ] {
            assert_eq!(gives_up(&by, &refused, is_awaited, agree), after, "{by:?} {refused:?} {is_awaited} {agree}");
        }
    }

    #[test]
    fn a_member_refuses_at_once_and_a_waiting_process_that_has_gone_does_not_count() {
        let agreed: BTreeSet<MemberId> = [4, 5, 6].map(MemberId).into();
        let mut refusals = ClockRefusals::default();
        refusals.awaited();
        refusals.note(skew(3, false), Time(0));
        assert_eq!(refusals.outcome(&agreed, [].into_iter(), Time(0)), None);
        refusals.note(skew(2, true), Time(0));
        assert_eq!(refusals.outcome(&agreed, [].into_iter(), Time(0)), Some(skew(2, true)));

        let mut refusals = ClockRefusals::default();
        let told = |refusals: &mut ClockRefusals, now| refusals.outcome(&BTreeSet::new(), [].into_iter(), now);
        let last = Time(0) + ONE_COUNTS_AFTER - ASK_EVERY;
        for now in (0..30).map(|tick| Time(0) + ASK_EVERY * tick) {
            refusals.note(skew(3, false), now);
            assert_eq!(told(&mut refusals, now), None);
        }
        assert_eq!(told(&mut refusals, last + DISAGREES_FOR), None, "its refusal is old");
        // Another one with that id begins anew.
        refusals.note(skew(3, false), last + DISAGREES_FOR);
        let nows: Vec<Option<ClockSkew>> =
            [0, 1].map(|tick| told(&mut refusals, last + DISAGREES_FOR + ASK_EVERY * tick)).to_vec();
        assert_eq!(nows, [None, None]);
    }

    #[cfg(mutation)]
    #[test]
    #[ignore = "wants a process of its own: cargo xtask mutations"]
    fn mutations_of_clock_refusals_fail_their_test() {
        use crate::mutation::{Mutation, failure};
        failure(Mutation::OneClockCounts, a_founder_gives_up_if_more_refuse_its_clock_than_agree);
    }
}
