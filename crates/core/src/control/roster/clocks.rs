//! The clocks of the processes that ask for admission, compared with that of this process.
use super::Roster;
use crate::clock::{ClockAhead, ClockSkew, DISAGREES_FOR, ShownTime};
use crate::control::{ControlMessage, Refusal};
use crate::ids::{MemberId, Time};
use crate::limits::JOINS_MAX;
use crate::mutation::mutation;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use tracing::warn;

/// The target of events about clocks.
const TARGET: &str = "spindle::clock";

/// The clock of this process, and what it knows of those of others.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// The clock of this process, in ns since 1970; 0 if its driver has set none.
    now: u64,
    /// The largest difference from the clock of a process that asks, in ns. `None`: any.
    max_ns: Option<u64>,
    /// Processes whose last request was refused for their clock: how their clock and that of this process
    /// differ, and the time.
    refused: BTreeMap<MemberId, (ClockSkew, Time)>,
    /// How many requests were refused.
    refusals: u64,
    /// Processes whose last request had a clock that agrees with that of this one.
    agreed: BTreeSet<MemberId>,
}

impl Clocks {
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Stores this process's clock in a message about the creation of a group.
    pub(super) fn date(&self, message: &mut ControlMessage) {
        if let ControlMessage::Bootstrap { clock, .. } = message {
            *clock = self.now;
        }
    }
}

impl<W> Roster<W> {
    /// Sets the clock of this process, in ns since 1970. A driver does so before it passes on messages,
    /// and before it asks.
    pub fn set_clock(&mut self, now: u64) {
        self.clocks.now = now;
    }

    /// Sets how far the clock of a process that asks for admission may differ from that of this one.
    /// `None`: by any time.
    pub fn bound_clocks(&mut self, max: Option<Duration>) {
        self.clocks.max_ns = max.map(|max| u64::try_from(max.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns why logs are not raised to this clock: it is too far ahead of that of this process.
    pub(in crate::control) fn is_clock_ahead(&self, clock: u64) -> Option<ClockAhead> {
        let (now, max_ns) = (self.clocks.now, self.clocks.max_ns?);
        (now != 0 && clock > now.saturating_add(max_ns)).then_some(ClockAhead { clock, now, max_ns })
    }

    /// Returns how many requests for admission this process has refused for a clock.
    pub fn clock_refusals(&self) -> u64 {
        self.clocks.refusals
    }

    /// INV-CLOCK-BOUND: refuses a process whose clock, when it asked, differs too much from that of this
    /// one. Returns whether it did.
    pub(super) fn refuses_clock(&mut self, from: MemberId, ours: u64, now: Time) -> bool {
        let clocks = &mut self.clocks;
        let theirs = clocks.now;
        let is_beyond = |max_ns: &u64| ours.abs_diff(theirs) > *max_ns && !mutation!(SkewAdmitted);
        let Some(max_ns) = clocks.max_ns.filter(is_beyond).filter(|_| ours != 0 && theirs != 0) else {
            clocks.refused.remove(&from);
            if ours != 0 && clocks.agreed.len() < JOINS_MAX {
                clocks.agreed.insert(from);
            }
            return false;
        };
        clocks.agreed.remove(&from);
        if clocks.refused.len() >= JOINS_MAX {
            clocks.refused.retain(|_, (_, at)| now.since(*at) < DISAGREES_FOR);
        }
        let mirrored = ClockSkew { member: from, theirs: ours, ours: theirs, max_ns, is_running: false };
        let has_room = clocks.refused.len() < JOINS_MAX || clocks.refused.contains_key(&from);
        if has_room && clocks.refused.insert(from, (mirrored, now)).is_none() {
            let (ours, theirs) = (ShownTime(ours), ShownTime(theirs));
            warn!(target: TARGET, member = from.0, clock = %ours, here = %theirs, max_ns, "refused: its clock is too far off");
        }
        clocks.refusals += 1;
        let skew = ClockSkew { member: self.me.id, theirs, ours, max_ns, is_running: self.takes_part };
        self.post(from, ControlMessage::Refused { why: Refusal::Clock(skew) });
        true
    }

    /// Returns the processes whose clocks agreed with that of this one when they asked last.
    pub(in crate::control) fn agreed_clocks(&self) -> &BTreeSet<MemberId> {
        &self.clocks.agreed
    }

    /// Returns the processes that this one has refused for their clocks not long ago. Each has the clock of
    /// the other process as `theirs`.
    pub(in crate::control) fn refused_clocks(&self, now: Time) -> impl Iterator<Item = ClockSkew> {
        let refused = self.clocks.refused.values();
        refused.filter(move |(_, at)| now.since(*at) < DISAGREES_FOR).map(|(skew, _)| *skew)
    }

    /// Whether a refusal for the clock of this process holds.
    pub(super) fn is_refused_for(&self, skew: ClockSkew) -> bool {
        skew.holds(self.clocks.now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, me};
    use super::*;
    use crate::control::RosterOrder;

    const MAX: Duration = Duration::from_nanos(5);

    fn roster(id: u64, now: u64) -> Roster<()> {
        let mut roster = Roster::new(me(id), 1, None);
        roster.set_clock(now);
        roster.bound_clocks(Some(MAX));
        roster
    }

    /// The refusal of a process that asks with this clock, if it is refused.
    fn refusal(roster: &mut Roster<()>, observes: bool, ours: u64) -> Option<ClockSkew> {
        let mut message = ask(me(2), 7, observes);
        if let ControlMessage::Ask { clock, .. } = &mut message {
            *clock = ours;
        }
        roster.hear(message, None, &[], Time(0));
        core::iter::from_fn(|| roster.next_order()).find_map(|order| match order {
            RosterOrder::Near {
                to: MemberId(2),
                message: ControlMessage::Refused { why: Refusal::Clock(skew) },
                ..
            } => Some(skew),
            _ => None,
        })
    }

    #[test]
    fn a_process_whose_clock_is_beyond_the_bound_is_no_asker() {
        for (ours, is_refused) in [(100, false), (95, false), (105, false), (94, true), (106, true), (0, false)] {
            let mut roster = roster(1, 100);
            let refused = refusal(&mut roster, false, ours);
            let skew = ClockSkew { member: MemberId(1), theirs: 100, ours, max_ns: 5, is_running: false };
            assert_eq!(refused, is_refused.then_some(skew));
            let mirrored = ClockSkew { member: MemberId(2), theirs: ours, ours: 100, ..skew };
            assert!(roster.refused_clocks(Time(0)).eq(is_refused.then_some(mirrored)), "{ours}");
            assert_eq!(roster.refused_clocks(Time(0) + DISAGREES_FOR).count(), 0);
            assert_eq!(
                (roster.take_news().len(), roster.clock_refusals()),
                (usize::from(!is_refused), is_refused.into())
            );
            assert_eq!(roster.agreed_clocks().len(), usize::from(!is_refused && ours != 0), "{ours}");
            // With a clock that was set right it may ask again.
            assert_eq!(refusal(&mut roster, false, 101), None);
            assert_eq!(roster.agreed_clocks().len(), 1);
            assert_eq!((roster.take_news().len(), roster.clocks.refused.contains_key(&MemberId(2))), (1, false));
        }
        assert_eq!(refusal(&mut roster(1, 100), true, 1), None, "an observer sends nothing");
        let ahead = ClockAhead { clock: 106, now: 100, max_ns: 5 };
        assert_eq!([105, 106].map(|clock| roster(1, 100).is_clock_ahead(clock)), [None, Some(ahead)]);
        let mut unbounded = roster(1, 100);
        unbounded.bound_clocks(None);
        assert_eq!((refusal(&mut unbounded, false, 1), unbounded.is_clock_ahead(900)), (None, None));
    }

    #[test]
    fn a_refusal_that_a_delay_explains_is_ignored() {
        let skew = refusal(&mut roster(1, 1_000), false, 100).unwrap();
        for (now, is_heard) in [(100, true), (994, true), (995, false), (2_000, false)] {
            let mut asker = roster(2, now);
            asker.hear(ControlMessage::Refused { why: Refusal::Clock(skew) }, None, &[], Time(0));
            assert_eq!(asker.has_news(), is_heard, "{now}");
        }
    }
}
