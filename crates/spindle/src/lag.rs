//! Members that lag: they have not delivered what was stable a while ago.
use spindle_core::multicast::stats::Frontier;
use spindle_core::{MemberId, SubgroupId, Time, ViewId};
use std::time::Duration;
use tracing::{info, warn};

/// A member lags if it has not delivered what every member had received this long ago.
const LAG_AFTER: Duration = Duration::from_secs(1);
/// The shortest time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The largest number of subgroups at one look. The next look continues with the others.
const SUBGROUPS_MAX: usize = 64;
/// The shortest time between two warnings about one member.
const WARN_EVERY: Duration = Duration::from_secs(10);
const TARGET: &str = "spindle::lag";

/// A member of a subgroup holds back the others, or no longer does: it does not deliver messages
/// that every member has received, so their space is not free.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Lag {
    /// The name of the subgroup.
    pub subgroup: String,
    /// The member.
    pub member: MemberId,
    /// Whether it is this one, whose application does not take the messages.
    pub is_me: bool,
    /// How many sequence numbers are stable and not delivered by the member.
    pub behind: u64,
    /// Since when the member lags.
    pub lasted: Duration,
    /// Whether the lag has ended.
    pub is_over: bool,
}

/// The lags of all members in this member's subgroups, as far as this member knows.
#[derive(Debug, Default)]
pub(crate) struct Lags {
    looked: Time,
    /// By the number of the subgroup's handles.
    subgroups: Vec<OfSubgroup>,
    /// The subgroup with which the next look begins.
    next: usize,
    /// The engine has worked since the last look.
    pub(crate) has_worked: bool,
    /// When to look again although nothing happens.
    due: Option<Time>,
}

#[derive(Debug, Default)]
struct OfSubgroup {
    home: Option<(ViewId, SubgroupId)>,
    marks: Vec<Mark>,
}

/// A sequence number that was stable when the mark was set, and when that was.
#[derive(Clone, Copy, Debug)]
struct Mark {
    member: MemberId,
    target: u64,
    at: Time,
    /// Whether the member has yet to deliver up to the target.
    waits: bool,
    since: Option<Time>,
    warned: Option<Time>,
}

/// A subgroup at a look.
pub(crate) struct LookedSubgroup<'a> {
    pub(crate) name: &'a str,
    pub(crate) home: (ViewId, SubgroupId),
    pub(crate) stable: u64,
}

impl Lags {
    /// Returns whether it is time for a look.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now.since(self.looked) >= LOOK_EVERY
    }

    /// Begins a look at `now`. Returns the numbers of the subgroups, of `count`, to look at.
    pub(crate) fn begin(&mut self, count: usize, now: Time) -> impl Iterator<Item = usize> + use<> {
        (self.looked, self.has_worked, self.due) = (now, false, None);
        if self.subgroups.len() < count {
            self.subgroups.resize_with(count, OfSubgroup::default);
        }
        let first = self.next;
        let looks = count.min(SUBGROUPS_MAX);
        self.next = if count == 0 { 0 } else { (first + looks) % count };
        (0..looks).map(move |i| (first + i) % count)
    }

    /// Looks at the members of a subgroup, and adds the lags that begin or end to `lags`.
    pub(crate) fn look(
        &mut self,
        number: usize,
        present: &LookedSubgroup<'_>,
        frontiers: impl Iterator<Item = (MemberId, Frontier)>,
        me: MemberId,
        lags: &mut Vec<Lag>,
    ) {
        let now = self.looked;
        let of_subgroup = &mut self.subgroups[number];
        if of_subgroup.home != Some(present.home) {
            of_subgroup.end(present.name, me, now, lags);
            of_subgroup.home = Some(present.home);
        }
        for (i, (member, Frontier { delivered, .. })) in frontiers.enumerate() {
            if of_subgroup.marks.len() == i {
                let (target, at, waits, since, warned) = (0, now, false, None, None);
                of_subgroup.marks.push(Mark { member, target, at, waits, since, warned });
            }
            let mark = &mut of_subgroup.marks[i];
            let turn = mark.step(present.stable, delivered, now);
            if mark.waits {
                let at = mark.at + LAG_AFTER;
                let at = if at > now { at } else { now + LAG_AFTER };
                self.due = Some(self.due.map_or(at, |due| due.min(at)));
            }
            if let Some((since, is_over)) = turn {
                let behind = present.stable.saturating_sub(delivered);
                let lag = Lag {
                    subgroup: present.name.to_string(),
                    member,
                    is_me: member == me,
                    behind,
                    lasted: now.since(since),
                    is_over,
                };
                if lag.tell(me, mark.warned.is_none_or(|at| now.since(at) >= WARN_EVERY)) {
                    mark.warned = Some(now);
                }
                lags.push(lag);
            }
        }
    }

    /// Ends the lags in a subgroup that this member is not in any more.
    pub(crate) fn leave(&mut self, number: usize, name: &str, me: MemberId, lags: &mut Vec<Lag>) {
        let now = self.looked;
        self.subgroups[number].end(name, me, now, lags);
    }

    /// Returns when the next look is due, if this member sleeps until then.
    pub(crate) fn patience(&self, now: Time) -> Option<Duration> {
        let after_work = self.has_worked.then(|| self.looked + LOOK_EVERY);
        after_work.into_iter().chain(self.due).map(|at| at.since(now)).min()
    }

    /// Returns for how long a member lags, if it does. `number` is that of the subgroup's handles.
    pub(crate) fn of(&self, number: usize, member: MemberId, now: Time) -> Option<Duration> {
        let marks = &self.subgroups.get(number)?.marks;
        let mark = marks.iter().find(|mark| mark.member == member)?;
        mark.since.map(|since| now.since(since))
    }
}

impl OfSubgroup {
    /// Ends all lags: the epoch is over.
    fn end(&mut self, name: &str, me: MemberId, now: Time, lags: &mut Vec<Lag>) {
        self.home = None;
        for mark in self.marks.drain(..) {
            let Some(since) = mark.since else { continue };
            let (member, lasted) = (mark.member, now.since(since));
            let is_me = member == me;
            let lag = Lag { subgroup: name.to_string(), member, is_me, behind: 0, lasted, is_over: true };
            lag.tell(me, false);
            lags.push(lag);
        }
    }
}

impl Mark {
    /// Returns the begin of the lag, and whether it has ended, if it begins or ends now.
    fn step(&mut self, stable: u64, delivered: u64, now: Time) -> Option<(Time, bool)> {
        let in_time = now.since(self.at) < LAG_AFTER;
        if delivered >= stable {
            self.waits = false;
            return self.since.take().map(|since| (since, true));
        }
        if !self.waits || delivered >= self.target {
            let is_over = self.waits && in_time;
            (self.waits, self.target, self.at) = (true, stable, now);
            return self.since.take_if(|_| is_over).map(|since| (since, true));
        }
        if !in_time && self.since.is_none() {
            self.since = Some(self.at);
            return Some((self.at, false));
        }
        None
    }
}

impl Lag {
    /// Emits the event. Returns whether it was a warning.
    fn tell(&self, me: MemberId, warns: bool) -> bool {
        let Lag { subgroup, behind, is_me, .. } = self;
        let (me, member, lasted_ms) = (me.0, self.member.0, self.lasted.as_millis() as u64);
        match (self.is_over, warns, is_me) {
            (true, ..) => info!(target: TARGET, me, subgroup, member, lasted_ms, behind, "member lags no longer"),
            (false, true, true) => warn!(
                target: TARGET, me, subgroup, member, lasted_ms, behind,
                "this member's application does not take its messages: when the rings are full, all senders wait for it"
            ),
            (false, true, false) => warn!(
                target: TARGET, me, subgroup, member, lasted_ms, behind,
                "member lags: when the rings are full, all senders wait for it"
            ),
            (false, false, _) => info!(target: TARGET, me, subgroup, member, lasted_ms, behind, "member lags again"),
        }
        !self.is_over && warns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a subgroup with one other member that has delivered so much.
    fn look(lags: &mut Lags, ms: u64, stable: u64, delivered: u64) -> Vec<(u64, u64, bool)> {
        let now = Time(0) + Duration::from_millis(ms);
        let mut turns = vec![];
        for number in lags.begin(1, now) {
            let present = LookedSubgroup { name: "all", home: (ViewId(1), SubgroupId(0)), stable };
            let frontier = Frontier { delivered, ..Frontier::default() };
            lags.look(number, &present, [(MemberId(2), frontier)].into_iter(), MemberId(1), &mut turns);
        }
        turns.iter().map(|lag| (lag.behind, lag.lasted.as_millis() as u64, lag.is_over)).collect()
    }

    #[test]
    fn a_member_lags_that_has_not_delivered_what_was_stable_a_second_ago() {
        let mut lags = Lags::default();
        assert_eq!(look(&mut lags, 250, 10, 0), []);
        assert_eq!(look(&mut lags, 1000, 30, 9), []);
        assert_eq!(look(&mut lags, 1250, 30, 9), [(21, 1000, false)]);
        assert_eq!(lags.of(0, MemberId(2), Time(0) + Duration::from_millis(1500)), Some(Duration::from_millis(1250)));
        // It delivers, too slowly.
        assert_eq!(look(&mut lags, 1500, 40, 12), []);
        assert_eq!(look(&mut lags, 2750, 50, 41), []);
        // It keeps up, and is behind all the same.
        assert_eq!(look(&mut lags, 3000, 60, 51), [(9, 2750, true)]);
        assert_eq!(lags.of(0, MemberId(2), Time(0) + Duration::from_millis(3000)), None);
        assert_eq!(look(&mut lags, 3250, 70, 61), []);
        assert_eq!(look(&mut lags, 5000, 70, 70), []);
        assert_eq!(lags.patience(Time(0)), None);
    }

    #[test]
    fn a_lag_ends_when_all_is_delivered_or_its_epoch_ends() {
        let mut lags = Lags::default();
        look(&mut lags, 250, 10, 0);
        assert_eq!(lags.patience(Time(0) + Duration::from_millis(250)), Some(LAG_AFTER));
        assert_eq!(look(&mut lags, 2000, 10, 0), [(10, 1750, false)]);
        assert_eq!(look(&mut lags, 9000, 10, 10), [(0, 8750, true)]);
        look(&mut lags, 9250, 20, 10);
        assert_eq!(look(&mut lags, 10_250, 20, 10), [(10, 1000, false)]);
        let mut turns = vec![];
        lags.leave(0, "all", MemberId(1), &mut turns);
        assert!(matches!(&turns[..], [Lag { is_over: true, .. }]), "{turns:?}");
    }

    #[test]
    fn many_subgroups_are_looked_at_in_turn() {
        let mut lags = Lags::default();
        let mut seen: Vec<usize> = lags.begin(100, Time(0)).collect();
        assert_eq!(seen.len(), SUBGROUPS_MAX);
        seen.extend(lags.begin(100, Time(0)).take(36));
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert_eq!(lags.begin(0, Time(0)).count(), 0);
    }
}
