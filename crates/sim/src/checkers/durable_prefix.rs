//! Invariant 10, durable prefix: the logs of a subgroup's members are parts of one list, and a
//! message that counts as durable is on the disk of every member.
use super::{Checked, Invariant};
use spindle_core::{MemberId, Position, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const INVARIANT: Invariant = Invariant(10, "durable prefix");

/// A record of a log, apart from its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedRecord {
    /// Its clock, in ns.
    pub clock: u64,
    /// The time at which it was sent.
    pub time: u64,
    /// Its sender.
    pub sender: MemberId,
    /// The digest of its payload.
    pub digest: u64,
}

/// The log of one member. It has a disk, and memory before it.
#[derive(Clone, Copy, Debug)]
struct MemberLog {
    first: Position,
    last: Position,
    on_disk: Option<Position>,
}

/// The one list of a subgroup, and the parts of it that logs have.
#[derive(Clone, Debug, Default)]
pub struct DurablePrefix {
    list: BTreeMap<Position, LoggedRecord>,
    logs: BTreeMap<MemberId, MemberLog>,
    /// By epoch: the number of messages, at members for which it has ended.
    ends: BTreeMap<ViewId, usize>,
    /// The epochs that began without any member of the epoch before.
    anew: BTreeSet<ViewId>,
    /// By epoch: the sequence number with which it ended before the end of some log.
    cuts: BTreeMap<ViewId, u64>,
}

impl DurablePrefix {
    /// The log of `member` begins anew: it was not in the subgroup in the view before.
    pub fn began(&mut self, member: MemberId) {
        self.logs.remove(&member);
    }

    /// The list begins anew with `epoch`: its members know nothing of the messages before. Their
    /// clocks need not be later.
    pub fn began_anew(&mut self, epoch: ViewId) {
        self.anew.insert(epoch);
    }

    /// The last position that `member` has appended.
    pub fn last(&self, member: MemberId) -> Option<Position> {
        self.logs.get(&member).map(|held| held.last)
    }

    /// The number of records of `member` that are not on disk.
    pub fn waiting(&self, member: MemberId) -> usize {
        let Some(held) = self.logs.get(&member) else { return 0 };
        let from = held.on_disk.map_or(Bound::Included(held.first), Bound::Excluded);
        self.list.range((from, Bound::Included(held.last))).count()
    }

    /// Everything up to `position` is on the disk of `member`.
    pub fn synced(&mut self, member: MemberId, position: Position) {
        if let Some(held) = self.logs.get_mut(&member) {
            held.on_disk = held.on_disk.max(Some(position));
        }
    }

    /// The last record on the disk of `member`.
    pub fn on_disk(&self, member: MemberId) -> Option<Position> {
        self.logs.get(&member).and_then(|held| held.on_disk)
    }

    /// An epoch ends before this position. Records from there on are in no log of the group, and a member
    /// that does not know the end may still append some.
    pub fn ends_before(&mut self, end: Position) {
        if self.cuts.insert(end.epoch, end.sequence).is_none() {
            self.list.retain(|position, _| position.epoch != end.epoch || *position < end);
        }
    }

    /// The records of `member` from this position on are cut off: they are not part of its epoch.
    pub fn cut(&mut self, member: MemberId, from: Position) {
        self.ends_before(from);
        let last = self.list.range(..from).next_back().map(|(position, _)| *position);
        let Some(held) = self.logs.get_mut(&member) else { return };
        match last.filter(|last| *last >= held.first) {
            None => drop(self.logs.remove(&member)),
            Some(last) => (held.last, held.on_disk) = (last, held.on_disk.min(Some(last))),
        }
    }

    /// Checks a record that `member` appends. The log of a member that has just come begins with
    /// the first record of an epoch.
    ///
    /// # Errors
    /// If it differs from the record of another member, leaves out one that another has, is one
    /// that another has left out, or has a clock that does not follow.
    pub fn appended(&mut self, member: MemberId, position: Position, entry: LoggedRecord) -> Checked {
        if self.cuts.get(&position.epoch).is_some_and(|end| position.sequence >= *end) {
            // Others have ended the epoch before this record, and this log is to be cut, too.
            let held = self.logs.entry(member).or_insert(MemberLog { first: position, last: position, on_disk: None });
            held.last = position;
            return Ok(());
        }
        let before = self.list.range(..position).next_back().map(|(position, entry)| (*position, *entry));
        let expected = match self.logs.get(&member) {
            Some(held) => Some(held.last),
            None => before.map(|(position, _)| position).filter(|before| before.epoch == position.epoch),
        };
        let is_first = !self.logs.contains_key(&member);
        if is_first && expected.is_some() || !is_first && before.map(|(position, _)| position) != expected {
            return INVARIANT.broken(format!("#{member} logs {position:?} after {expected:?}, and others {before:?}"));
        }
        match self.list.get(&position) {
            Some(other) if *other == entry => {}
            Some(other) => {
                return INVARIANT.broken(format!("#{member} logs {entry:?} at {position:?}, and another {other:?}"));
            }
            None => {
                if let Some((other, held)) =
                    self.logs.iter().find(|(_, held)| held.first < position && position < held.last)
                {
                    return INVARIANT.broken(format!("#{member} logs {position:?}, which #{other} left out: {held:?}"));
                }
                let after = self.list.range(position..).next();
                let follows = |first: Position, second: Position| {
                    let between = (Bound::Excluded(first.epoch), Bound::Included(second.epoch));
                    first.epoch == second.epoch || self.anew.range(between).next().is_none()
                };
                let is_late = before.is_some_and(|(at, before)| before.clock >= entry.clock && follows(at, position));
                let is_early = after.is_some_and(|(at, after)| after.clock <= entry.clock && follows(position, *at));
                if is_late || is_early || entry.clock < entry.time {
                    return INVARIANT
                        .broken(format!("#{member} logs {entry:?} at {position:?}, between {before:?} and {after:?}"));
                }
                self.list.insert(position, entry);
            }
        }
        let held = self.logs.entry(member).or_insert(MemberLog { first: position, last: position, on_disk: None });
        held.last = position;
        Ok(())
    }

    /// Checks that a record has a later clock than its epoch, as the newest view says.
    ///
    /// # Errors
    /// If it has not.
    pub fn is_later(entry: LoggedRecord, floor: Option<u64>) -> Checked {
        match floor.filter(|floor| entry.clock <= *floor) {
            None => Ok(()),
            Some(floor) => INVARIANT.broken(format!("{entry:?} is logged in an epoch with the clock {floor}")),
        }
    }

    /// Checks that everything before `position` is on the disk of `member`, because `by` counts it
    /// as durable.
    ///
    /// # Errors
    /// If it is not.
    pub fn durable(&self, by: MemberId, position: Position, member: MemberId) -> Checked {
        let last = self.list.range(..position).next_back().map(|(position, _)| *position);
        let (Some(last), Some(held)) = (last, self.logs.get(&member)) else { return Ok(()) };
        match last < held.first || held.on_disk >= Some(last) {
            true => Ok(()),
            false => INVARIANT.broken(format!(
                "#{by} counts everything before {position:?} as durable, also {last:?}, and #{member} has {held:?}"
            )),
        }
    }

    /// Checks the number of members of a subgroup in which the frontier has risen.
    ///
    /// # Errors
    /// If they are fewer than `copies`.
    pub fn copies(by: MemberId, members: usize, copies: u32) -> Checked {
        match members < copies as usize {
            true => INVARIANT.broken(format!(
                "#{by} counts more as durable, in a subgroup of {members} members that wants {copies} copies"
            )),
            false => Ok(()),
        }
    }

    /// Checks the log of a member for which an epoch has ended, and which needs nothing more of it.
    ///
    /// # Errors
    /// If it has another number of records of that epoch than other logs, or than members have
    /// delivered messages.
    pub fn ended(&mut self, member: MemberId, epoch: ViewId) -> Checked {
        let end = self.last(member);
        let of_epoch = self.list.range(Position { epoch, sequence: 0 }..=Position { epoch, sequence: u64::MAX });
        let has = of_epoch.filter(|(position, _)| Some(**position) <= end).count();
        self.has(member, epoch, has, "records in its log")
    }

    /// Checks the log of a member that needs the group no more.
    ///
    /// # Errors
    /// If a record is not on its disk.
    pub fn left(&self, member: MemberId) -> Checked {
        match self.waiting(member) {
            0 => Ok(()),
            waiting => {
                INVARIANT.broken(format!("#{member} has finished, and {waiting} of its records are not on disk"))
            }
        }
    }

    /// Checks the number of messages of an epoch that a member has delivered, all in all.
    ///
    /// # Errors
    /// As [`ended`](Self::ended).
    pub fn delivered(&mut self, member: MemberId, epoch: ViewId, count: usize) -> Checked {
        self.has(member, epoch, count, "deliveries")
    }

    fn has(&mut self, member: MemberId, epoch: ViewId, count: usize, what: &str) -> Checked {
        let expected = *self.ends.entry(epoch).or_insert(count);
        match count == expected {
            true => Ok(()),
            false => {
                INVARIANT.broken(format!("#{member} ends view {epoch} with {count} {what}, another with {expected}"))
            }
        }
    }

    /// Checks the log of a member at rest. `durable` is what counts as durable there; `None` if
    /// there are too few members.
    ///
    /// # Errors
    /// If something is not in the log, not on disk, or not known to be durable.
    pub fn at_rest(&self, member: MemberId, durable: Option<Position>) -> Checked {
        let Some((last, _)) = self.list.last_key_value() else { return Ok(()) };
        let held = self.logs.get(&member);
        let has_all = held.is_none_or(|held| held.last == *last && held.on_disk == Some(*last));
        match has_all && durable.is_none_or(|durable| durable > *last) {
            true => Ok(()),
            false => INVARIANT.broken(format!(
                "#{member} rests with {held:?}, and {durable:?} as durable; the last record is {last:?}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: MemberId = MemberId(1);

    fn at(epoch: u64, sequence: u64) -> Position {
        Position { epoch: ViewId(epoch), sequence }
    }

    fn entry(clock: u64) -> LoggedRecord {
        LoggedRecord { clock, time: clock, sender: ME, digest: clock }
    }

    fn example() -> DurablePrefix {
        let mut list = DurablePrefix::default();
        for (position, clock) in [(at(1, 0), 5), (at(1, 3), 6), (at(2, 0), 9)] {
            list.appended(ME, position, entry(clock)).unwrap();
        }
        list
    }

    #[test]
    fn logs_that_differ_or_have_gaps_are_found() {
        let mut list = example();
        let [two, late, slow] = [2, 3, 4].map(MemberId);
        assert_eq!(list.appended(two, at(1, 0), entry(5)), Ok(()));
        assert_eq!(list.appended(two, at(2, 0), entry(9)).unwrap_err().number, 10, "a gap");
        assert!(list.appended(two, at(1, 3), entry(7)).is_err(), "another clock");
        assert!(list.appended(late, at(1, 3), entry(6)).is_err(), "the middle of an epoch");
        assert_eq!(list.appended(late, at(2, 0), entry(9)), Ok(()));
        assert!(list.appended(ME, at(2, 1), entry(9)).is_err(), "a clock that stands still");
        assert!(list.appended(ME, at(1, 9), entry(12)).is_err(), "an older position");
        assert!(list.appended(slow, at(1, 1), entry(5)).is_err(), "another has left it out");
        assert!(
            list.appended(ME, at(2, 1), LoggedRecord { time: 20, ..entry(10) }).is_err(),
            "a clock before the time"
        );
    }

    #[test]
    fn a_member_that_came_later_may_be_ahead() {
        let mut list = DurablePrefix::default();
        assert_eq!(list.appended(MemberId(9), at(2, 0), entry(20)), Ok(()));
        assert_eq!(list.appended(ME, at(1, 0), entry(10)), Ok(()));
        assert!(list.appended(ME, at(1, 1), entry(20)).is_err(), "the next epoch has an earlier clock");
        assert_eq!(list.appended(ME, at(1, 1), entry(11)), Ok(()));
        assert_eq!(list.appended(ME, at(2, 0), entry(20)), Ok(()));
        list.began(ME);
        assert_eq!(list.appended(ME, at(3, 0), entry(30)), Ok(()), "it was away");
    }

    #[test]
    fn a_list_that_begins_anew_has_clocks_of_its_own() {
        let mut list = example();
        list.began_anew(ViewId(3));
        assert!(list.appended(MemberId(2), at(2, 1), entry(8)).is_err(), "the same list");
        list.began(ME);
        assert_eq!(list.appended(ME, at(3, 0), entry(4)), Ok(()));
        assert!(list.appended(ME, at(4, 0), entry(4)).is_err(), "it does not begin anew again");
    }

    #[test]
    fn a_record_that_is_not_on_every_disk_is_not_durable() {
        let mut list = example();
        list.synced(ME, at(1, 0));
        assert_eq!(list.durable(MemberId(2), at(1, 3), ME), Ok(()));
        assert_eq!(list.durable(MemberId(2), at(1, 4), ME).unwrap_err().number, 10);
        assert_eq!(list.waiting(ME), 2);
        assert!(list.left(ME).is_err() && list.left(MemberId(2)).is_ok());
        assert!(list.at_rest(ME, None).is_err());
        list.synced(ME, at(2, 0));
        assert_eq!(list.at_rest(ME, Some(at(2, 1))), Ok(()));
        assert!(list.at_rest(ME, Some(at(2, 0))).is_err());
        assert!(DurablePrefix::copies(ME, 2, 3).is_err());
    }

    #[test]
    fn a_record_that_is_cut_off_is_in_no_log() {
        let [two, three] = [2, 3].map(MemberId);
        let mut list = DurablePrefix::default();
        for member in [ME, two] {
            list.appended(member, at(1, 0), entry(5)).unwrap();
            list.appended(member, at(1, 1), entry(6)).unwrap();
        }
        list.appended(three, at(1, 0), entry(5)).unwrap();
        list.synced(ME, at(1, 1));
        list.cut(ME, at(1, 1));
        assert_eq!((list.last(ME), list.on_disk(ME)), (Some(at(1, 0)), Some(at(1, 0))));
        assert_eq!(list.appended(ME, at(2, 0), entry(6)), Ok(()), "the clock of what is gone");
        assert!(list.clone().appended(two, at(2, 0), entry(6)).is_err(), "it is not cut");
        list.cut(two, at(1, 1));
        assert_eq!(list.appended(two, at(2, 0), entry(6)), Ok(()));
        assert_eq!(list.appended(three, at(1, 1), entry(6)), Ok(()), "it does not know the end yet");
        list.cut(three, at(1, 1));
        assert_eq!(list.appended(three, at(2, 0), entry(6)), Ok(()));
    }

    #[test]
    fn a_log_has_what_was_delivered() {
        let mut list = example();
        assert_eq!(list.ended(ME, ViewId(1)), Ok(()));
        assert_eq!(list.delivered(ME, ViewId(1), 2), Ok(()));
        assert!(list.delivered(MemberId(2), ViewId(1), 3).is_err(), "a delivery that no log has");
        assert!(list.ended(MemberId(2), ViewId(1)).is_err(), "a log that lacks a record");
    }
}
