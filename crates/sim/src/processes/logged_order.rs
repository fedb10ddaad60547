//! The order of each logged subgroup of a run, and its checks: all logs are parts of one list, which
//! is the order of delivery, and a message that counts as durable is on the disk of every member.
use super::disks::{DiskLog, DiskRecord};
use super::ledger::MessageId;
use crate::checkers::{Checked, Invariant};
use spindle_core::{Position, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const DURABLE: Invariant = Invariant(10, "durable prefix");
const EXTENT: Invariant = Invariant(4, "atomicity");

/// One list.
#[derive(Debug, Default)]
pub(super) struct LoggedOrder {
    list: BTreeMap<Position, DiskRecord>,
    /// By epoch: the sequence number with which it ended, and the processes that have ended it.
    ends: BTreeMap<ViewId, (u64, BTreeSet<usize>)>,
    /// By epoch: all messages before this sequence number have counted as durable.
    acknowledged: BTreeMap<ViewId, u64>,
    /// The record that all logs have to get before a run ends.
    mark: Option<Position>,
    /// The first epoch of the list: no member of the epoch before continued, so nothing of it is
    /// known to any member. Messages before it are no part of the list.
    begins: Option<ViewId>,
}

impl LoggedOrder {
    /// Records that a log continues with this record behind `last`. A log may have a `hole` there if
    /// its member was not in the subgroup in the view before, or if no source had the records.
    pub(super) fn appended(
        &mut self,
        process: usize,
        last: Option<Position>,
        hole: bool,
        record: DiskRecord,
    ) -> Checked {
        let at = record.position;
        if Some(at.epoch) < self.begins || self.ends.get(&at.epoch).is_some_and(|(end, _)| at.sequence >= *end) {
            // Other members have ended the epoch before this record. It has to be cut off: the next record that
            // this log appends has to follow the list.
            return Ok(());
        }
        let before = self.list.range(..at).next_back().map(|(_, record)| *record);
        let follows = before.map(|before| before.position) == last;
        if !follows && !hole {
            return DURABLE
                .broken(format!("process {process} logs {at:?} behind {last:?}, and others behind {before:?}"));
        }
        match self.list.get(&at) {
            Some(known) if *known == record => return Ok(()),
            Some(known) => {
                return DURABLE.broken(format!("process {process} logs {record:?}, and another process {known:?}"));
            }
            None => {}
        }
        let later = (Bound::Excluded(at), Bound::Included(Position { epoch: at.epoch, sequence: u64::MAX }));
        if let Some((other, _)) = self.list.range(later).next() {
            return DURABLE.broken(format!("process {process} logs {at:?}, and others logged {other:?} without it"));
        }
        if before.is_some_and(|before| before.clock >= record.clock) {
            return DURABLE.broken(format!("process {process} logs {record:?} behind {before:?}"));
        }
        self.list.insert(at, record);
        Ok(())
    }

    /// Records that an epoch has ended at this sequence number for a process.
    pub(super) fn ended(&mut self, process: usize, epoch: ViewId, end: u64) -> Checked {
        let (known, processes) = self.ends.entry(epoch).or_insert_with(|| (end, BTreeSet::new()));
        let known = *known;
        processes.insert(process);
        if known != end {
            return EXTENT.broken(format!("epoch {epoch} ends at {known} and at {end}"));
        }
        let durable = self.acknowledged.get(&epoch).copied().unwrap_or(0);
        let lost = Position { epoch, sequence: end }..Position { epoch, sequence: durable.max(end) };
        if let Some((lost, _)) = self.list.range(lost).next() {
            return DURABLE.broken(format!("epoch {epoch} ends before {lost:?}, which had counted as durable"));
        }
        self.list.retain(|at, _| at.epoch != epoch || at.sequence < end);
        Ok(())
    }

    /// Returns true if an epoch is part of the list, which may have begun anew since.
    pub(super) fn has(&self, epoch: ViewId) -> bool {
        Some(epoch) >= self.begins
    }

    /// Returns the messages of an epoch, in order.
    pub(super) fn of_epoch(&self, epoch: ViewId) -> impl Iterator<Item = MessageId> {
        let range = Position { epoch, sequence: 0 }..=Position { epoch, sequence: u64::MAX };
        self.list.range(range).map(|(_, record)| record.message)
    }

    /// Checks a log that has all records from `since` on, up to the epoch `before`.
    pub(super) fn check(&self, process: usize, log: &DiskLog, since: Option<ViewId>, before: ViewId) -> Checked {
        let since = since.max(self.begins).unwrap_or(ViewId(0));
        let from = Position { epoch: since, sequence: 0 };
        let from = log.floor.map_or(Bound::Included(from), |floor| match floor < from {
            true => Bound::Included(from),
            false => Bound::Excluded(floor),
        });
        let to = Bound::Excluded(Position { epoch: before, sequence: 0 });
        let mut list = self.list.range((from, to)).map(|(_, record)| record);
        let is_there = |at: Position| match from {
            Bound::Included(from) => at >= from,
            Bound::Excluded(from) => at > from,
            Bound::Unbounded => true,
        };
        let mut own = log.records.iter().filter(|record| is_there(record.position) && record.position.epoch < before);
        loop {
            match (list.next(), own.next()) {
                (None, None) => return Ok(()),
                (wanted, found) if wanted == found => {}
                (wanted, found) => {
                    return DURABLE.broken(format!(
                        "the log of process {process}, complete since {since}, has {found:?} in place of {wanted:?}"
                    ));
                }
            }
        }
    }

    /// Marks the last record, if it is of a later epoch than the mark, or the mark is no record.
    pub(super) fn set_mark(&mut self) {
        let last = self.list.last_key_value().map(|(at, _)| *at);
        let is_old =
            |mark: Position| !self.list.contains_key(&mark) || last.is_some_and(|last| last.epoch > mark.epoch);
        if self.mark.is_none_or(is_old) {
            self.mark = last;
        }
    }

    /// Returns the record that all logs have to get.
    pub(super) fn mark(&self) -> Option<Position> {
        self.mark
    }

    /// Checks that a process counts all messages of an epoch before `frontier` as durable, and those of
    /// the epochs before it from `older` on. `members`
    /// are the logs of the members, with `None` for one whose disk is not known.
    pub(super) fn durable(
        &mut self,
        process: usize,
        (frontier, older): (Position, Option<ViewId>),
        (copies, members): (usize, &[Option<&DiskLog>]),
    ) -> Checked {
        let begin = Position { epoch: frontier.epoch, sequence: 0 };
        if members.len() < copies {
            return DURABLE.broken(format!(
                "process {process} counts messages as durable on {} of {copies} disks",
                members.len()
            ));
        }
        for (at, _) in self.list.range(begin..frontier) {
            if members.iter().flatten().any(|log| log.floor.is_none_or(|floor| floor < *at) && !log.has_on_disk(*at)) {
                return DURABLE
                    .broken(format!("process {process} counts {at:?} as durable, and a member has it not on disk"));
            }
        }
        if let Some(since) = older {
            for (at, _) in self.list.range(Position { epoch: since, sequence: 0 }..begin) {
                let is_known = self.acknowledged.get(&at.epoch).is_some_and(|durable| at.sequence < *durable);
                let holders = members.iter().filter(|log| log.is_none_or(|log| log.has_on_disk(*at))).count();
                if !is_known && holders < copies {
                    return DURABLE
                        .broken(format!("process {process} counts {at:?} as durable on {holders} of {copies} disks"));
                }
            }
        }
        let known = self.acknowledged.entry(frontier.epoch).or_default();
        *known = frontier.sequence.max(*known);
        Ok(())
    }

    /// Records that the list begins anew with this epoch, because no member of the epoch before continues.
    pub(super) fn begins_anew(&mut self, epoch: ViewId) {
        self.begins = Some(epoch);
        self.list.retain(|at, _| at.epoch >= epoch);
    }

    /// Records that members were given up in this epoch. The list loses the records that none of the `left`
    /// logs has. Decisions of the members that were given up do not count: the epoch continues where they
    /// may have ended it.
    pub(super) fn divided(&mut self, epoch: ViewId, left: &[(usize, &DiskLog)]) -> Checked {
        let logs = || left.iter().map(|(_, log)| log);
        let has =
            |at: &Position| logs().any(|log| log.records.binary_search_by_key(at, |record| record.position).is_ok());
        let newest = logs().filter_map(|log| log.last()).max();
        let is_lost = |at: &Position| newest.is_none_or(|newest| *at > newest) && !has(at);
        self.list.retain(|at, _| !is_lost(at));
        let is_theirs = |(_, processes): &&(u64, BTreeSet<usize>)| !left.iter().any(|(id, _)| processes.contains(id));
        let Some((end, _)) = self.ends.get(&epoch).filter(is_theirs) else { return Ok(()) };
        let ended = Position { epoch, sequence: *end };
        self.ends.remove(&epoch);
        for (process, log) in left {
            for record in log.records.iter().filter(|record| record.position >= ended) {
                let known = self.list.entry(record.position).or_insert(*record);
                if known != record {
                    return DURABLE
                        .broken(format!("process {process} has logged {record:?}, and another one {known:?}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, sequence: u64) -> Position {
        Position { epoch: ViewId(epoch), sequence }
    }

    fn record(position: Position) -> DiskRecord {
        let clock = position.epoch.0 << 32 | position.sequence;
        DiskRecord { position, clock, message: (1, clock as u32) }
    }

    fn log(positions: &[Position]) -> DiskLog {
        let records: Vec<DiskRecord> = positions.iter().copied().map(record).collect();
        DiskLog { synced: records.len(), records, floor: None }
    }

    fn example() -> LoggedOrder {
        let mut order = LoggedOrder::default();
        let mut last = None;
        for position in [at(1, 0), at(1, 3), at(2, 1)] {
            order.appended(0, last, false, record(position)).unwrap();
            last = Some(position);
        }
        order
    }

    #[test]
    fn logs_that_differ_or_have_gaps_are_found() {
        let mut order = example();
        assert_eq!(order.appended(1, None, false, record(at(1, 0))), Ok(()));
        assert!(order.appended(1, Some(at(1, 0)), false, record(at(2, 1))).is_err(), "a gap");
        assert!(order.appended(2, None, false, record(at(2, 1))).is_err(), "a log that begins late");
        assert_eq!(order.appended(2, None, true, record(at(2, 1))), Ok(()), "it says that it does");
        assert!(order.appended(1, Some(at(1, 0)), false, DiskRecord { clock: 9, ..record(at(1, 3)) }).is_err());
        assert!(order.appended(1, Some(at(1, 0)), false, record(at(1, 2))).is_err(), "others have left it out");
        let early = DiskRecord { clock: 1, ..record(at(2, 2)) };
        assert!(order.appended(1, Some(at(2, 1)), false, early).is_err(), "an earlier clock");
        assert_eq!(order.check(1, &log(&[at(1, 0), at(1, 3)]), None, ViewId(2)), Ok(()));
        assert_eq!(order.check(1, &log(&[at(1, 0), at(2, 1)]), None, ViewId(2)).unwrap_err().number, 10);
        assert_eq!(order.check(1, &log(&[at(2, 1)]), Some(ViewId(2)), ViewId(3)), Ok(()));
    }

    #[test]
    fn what_counts_as_durable_is_on_enough_disks_and_stays() {
        let mut order = example();
        let (all, short) = (log(&[at(1, 0), at(1, 3), at(2, 1)]), log(&[at(1, 0)]));
        assert_eq!(order.durable(0, (at(1, 1), None), (1, &[Some(&all), Some(&short)])), Ok(()));
        assert!(order.durable(0, (at(1, 4), None), (1, &[Some(&all), Some(&short)])).is_err(), "a disk lacks one");
        assert!(order.durable(0, (at(1, 1), None), (2, &[Some(&all)])).is_err(), "too few members");
        let begun = DiskLog { floor: Some(at(1, 3)), ..log(&[at(2, 1)]) };
        let older = |order: &mut LoggedOrder, copies| {
            order.durable(0, (at(2, 2), Some(ViewId(1))), (copies, &[Some(&all), Some(&begun)]))
        };
        assert!(older(&mut order, 2).is_err(), "a copy of an older message is missing");
        assert_eq!(older(&mut order, 1), Ok(()));
        assert_eq!(order.ended(0, ViewId(2), 1).unwrap_err().number, 10, "the end is before a durable message");
        assert!(example().ended(0, ViewId(1), 4).is_ok());
    }

    #[test]
    fn a_list_begins_anew_or_without_what_was_given_up() {
        let mut order = example();
        order.divided(ViewId(1), &[(0, &log(&[at(1, 0)]))]).unwrap();
        assert_eq!(order.of_epoch(ViewId(1)).count(), 1);
        // Others, which were given up, had ended the epoch before the records of the one that is left.
        order.ended(1, ViewId(1), 1).unwrap();
        let own = log(&[at(1, 0), at(1, 3), at(1, 4)]);
        assert_eq!(order.appended(0, Some(at(1, 0)), false, own.records[1]), Ok(()));
        order.divided(ViewId(1), &[(0, &own)]).unwrap();
        assert_eq!(order.of_epoch(ViewId(1)).count(), 3);
        order.ended(0, ViewId(1), 5).unwrap();
        assert!(order.ended(2, ViewId(1), 4).is_err(), "two that were not given up differ");
        order.divided(ViewId(1), &[(0, &own)]).unwrap();
        assert!(order.ended(0, ViewId(1), 4).is_err(), "the one that is left has ended it itself");
        order.begins_anew(ViewId(4));
        assert_eq!(order.appended(3, None, true, record(at(4, 0))), Ok(()));
        assert_eq!(order.check(3, &log(&[at(1, 0), at(4, 0)]), None, ViewId(5)), Ok(()));
    }
}
