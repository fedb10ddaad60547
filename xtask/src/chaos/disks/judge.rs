//! Checks whether the logs, the deliveries and the acknowledgements of a round's members agree.
//!
//! The invariant is number 10, the durable prefix ([`check_logs`], [`check_acks`]), and for
//! deliveries 1, total order, and 3, no duplicate and no gap ([`check_deliveries`]). The functions
//! read values only, so that tests can plant faults. [`super::files`] reads the files.
use super::super::judge::{Breach, breach};
use spindle_log::Version;
use std::collections::HashMap;

const DURABLE: &str = "durable prefix";
const ORDER: &str = "total order";
const GAPS: &str = "no duplicate, no gap";

/// A message: the number of the process that sent it, and its number in the input of that process,
/// from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Sent {
    pub(super) instance: u32,
    pub(super) number: u32,
}

/// A record of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Logged {
    pub(super) version: Version,
    pub(super) sent: Sent,
}

/// The log of a seat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeatLog {
    pub(super) seat: usize,
    pub(super) records: Vec<Logged>,
    /// True if the log has to begin with the first message of the group: its directory was never
    /// wiped.
    pub(super) is_complete: bool,
    /// True if the log has to be a part of those of the others without a gap. A log of a process that
    /// was not in the last view may have records at its end that the group does not have.
    pub(super) is_current: bool,
}

/// A message at the place where a process delivered it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delivered {
    pub(super) view: u64,
    pub(super) sent: Sent,
}

/// The deliveries of a process, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Deliveries {
    pub(super) instance: u32,
    pub(super) list: Vec<Delivered>,
}

/// A message that its sender called durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    pub(super) sent: Sent,
    pub(super) version: Version,
}

/// All records of all logs, ascending.
#[derive(Debug, Default)]
pub(super) struct Union {
    records: Vec<Logged>,
    places: HashMap<Sent, usize>,
}

impl Union {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

/// Checks the logs against each other. With `at_end` they have to be equal, as far as each begins.
pub(super) fn check_logs(logs: &[SeatLog], at_end: bool) -> Result<Union, Breach> {
    let (mut union, mut current) = (vec![], vec![]);
    for log in logs {
        if let Some([first, second]) = log.records.array_windows().find(|[a, b]| a.version >= b.version) {
            let (seat, first, second) = (log.seat, first.version, second.version);
            return breach(10, DURABLE, format!("the log of seat {seat} has {second} behind {first}"));
        }
        union = merge(union, log)?;
        if log.is_current || at_end {
            current = merge(current, log)?;
        }
    }
    let mut places = HashMap::with_capacity(union.len());
    for (place, (record, seat)) in union.iter().enumerate() {
        if let Some(other) = places.insert(record.sent, place) {
            let ((first, _), second) = (union[other], record.version);
            let what =
                format!("{} is twice in logs, at {} and at {second} (seat {seat})", name(record.sent), first.version);
            return breach(10, DURABLE, what);
        }
    }
    let records: Vec<Logged> = union.into_iter().map(|(record, _)| record).collect();
    for log in logs.iter().filter(|log| log.is_current || at_end) {
        check_range(log, &current, at_end)?;
    }
    check_numbers(&records)?;
    Ok(Union { records, places })
}

/// Merges a log into all records, each with a seat that has it.
fn merge(union: Vec<(Logged, usize)>, log: &SeatLog) -> Result<Vec<(Logged, usize)>, Breach> {
    let mut merged = Vec::with_capacity(union.len().max(log.records.len()));
    let (mut known, mut own) = (union.into_iter().peekable(), log.records.iter().copied().peekable());
    loop {
        let next = match (known.peek(), own.peek()) {
            (Some((a, seat)), Some(b)) if a.version == b.version && a.sent != b.sent => {
                let what = format!(
                    "position {} is {} at seat {seat} and {} at seat {}",
                    a.version,
                    name(a.sent),
                    name(b.sent),
                    log.seat
                );
                return breach(10, DURABLE, what);
            }
            (Some((a, _)), Some(b)) if a.version == b.version => {
                own.next();
                known.next()
            }
            (Some((a, _)), Some(b)) if a.version < b.version => known.next(),
            (_, Some(_)) => own.next().map(|record| (record, log.seat)),
            (_, None) => known.next(),
        };
        match next {
            Some(record) => merged.push(record),
            None => return Ok(merged),
        }
    }
}

/// Checks that a log has all records between its first and its last, and those that it must have
/// beyond.
fn check_range(log: &SeatLog, all: &[(Logged, usize)], at_end: bool) -> Result<(), Breach> {
    let begin = match log.records.first() {
        _ if log.is_complete => 0,
        Some(first) => all.partition_point(|(record, _)| record.version < first.version),
        None => return Ok(()),
    };
    let (mut own, seat) = (log.records.iter(), log.seat);
    for (record, _) in &all[begin..] {
        match own.next() {
            Some(mine) if mine == record => {}
            None if !at_end => return Ok(()),
            other => {
                let has = other.map_or_else(|| "ends".to_string(), |other| format!("has {}", other.version));
                let what = format!(
                    "the log of seat {seat} {has} where others have {} ({})",
                    record.version,
                    name(record.sent)
                );
                return breach(10, DURABLE, what);
            }
        }
    }
    Ok(())
}

/// Checks that the messages of each process are in the order of its input, without a gap.
fn check_numbers(records: &[Logged]) -> Result<(), Breach> {
    let mut last: HashMap<u32, u32> = HashMap::new();
    for Logged { version, sent } in records {
        let before = last.insert(sent.instance, sent.number).unwrap_or(0);
        if sent.number != before + 1 {
            let what = format!("{version} is {} behind message {before} of that process", name(*sent));
            return breach(3, GAPS, what);
        }
    }
    Ok(())
}

/// Checks the deliveries of processes whose group has ended: each delivered the records of the log
/// without a gap. Behind these it may have delivered messages that no log has, because the group
/// ended before they were on a disk. All agree in the order of the ones after the others.
pub(super) fn check_deliveries(all: &[Deliveries], union: &Union) -> Result<(), Breach> {
    // The message behind each message in a view, and the process that says so.
    let mut behind: HashMap<(u64, Sent), (Sent, u32)> = HashMap::new();
    for Deliveries { instance, list } in all {
        let places: Vec<Option<usize>> = list.iter().map(|it| union.places.get(&it.sent).copied()).collect();
        for (pair, places) in list.array_windows().zip(places.array_windows()) {
            let [first, second] = pair;
            if first.view > second.view {
                let what = format!(
                    "process {instance} delivered {} in view {} after view {}",
                    name(second.sent),
                    second.view,
                    first.view
                );
                return breach(1, ORDER, what);
            }
            match places {
                [Some(a), Some(b)] if *b == a + 1 => {}
                [_, None] => {}
                _ => {
                    let what = format!(
                        "process {instance} delivered {} right before {}, unlike the logs",
                        name(first.sent),
                        name(second.sent)
                    );
                    return breach(3, GAPS, what);
                }
            }
            if first.view != second.view {
                continue;
            }
            let (known, by) = *behind.entry((first.view, first.sent)).or_insert((second.sent, *instance));
            if known != second.sent {
                let what = format!(
                    "behind {} process {by} delivered {}, and process {instance} {}",
                    name(first.sent),
                    name(known),
                    name(second.sent)
                );
                return breach(1, ORDER, what);
            }
        }
        for (it, place) in list.iter().zip(&places) {
            let epoch = place.map(|place| union.records[place].version.epoch);
            if epoch.is_some_and(|epoch| epoch != it.view) {
                let what = format!(
                    "process {instance} delivered {} in view {}, and the logs have it in {}",
                    name(it.sent),
                    it.view,
                    epoch.unwrap_or(0)
                );
                return breach(1, ORDER, what);
            }
        }
    }
    Ok(())
}

/// Checks that all acknowledged messages are in logs, under the acknowledged versions. A log that is
/// current has all of epochs from `since` on.
pub(super) fn check_acks(acks: &[Ack], logs: &[SeatLog], union: &Union, since: Option<u64>) -> Result<(), Breach> {
    for Ack { sent, version } in acks {
        let Some(place) = union.places.get(sent) else {
            let what = format!("{} was acknowledged as durable at {version}, and is in no log", name(*sent));
            return breach(10, DURABLE, what);
        };
        let found = union.records[*place].version;
        if found != *version {
            let what = format!("{} was acknowledged as durable at {version}, and is at {found} in logs", name(*sent));
            return breach(10, DURABLE, what);
        }
        if since.is_none_or(|since| version.epoch < since) {
            continue;
        }
        let lacks = |log: &&SeatLog| {
            let must = log.is_complete || log.records.first().is_some_and(|first| first.version <= *version);
            log.is_current && must && log.records.last().is_none_or(|last| last.version < *version)
        };
        if let Some(log) = logs.iter().find(lacks) {
            let what = format!(
                "{} was acknowledged as durable at {version}, and the log of seat {} lacks it",
                name(*sent),
                log.seat
            );
            return breach(10, DURABLE, what);
        }
    }
    Ok(())
}

/// Checks that the first `counts` messages of the processes are in the logs.
pub(super) fn check_all_sent(counts: &[(u32, u32)], union: &Union) -> Result<(), Breach> {
    for (instance, count) in counts {
        let missing = |number: &u32| !union.places.contains_key(&Sent { instance: *instance, number: *number });
        if let Some(number) = (1..=*count).find(missing) {
            let sent = Sent { instance: *instance, number };
            return breach(
                7,
                "validity",
                format!("{} was sent, its process finished, and it is in no log", name(sent)),
            );
        }
    }
    Ok(())
}

fn name(sent: Sent) -> String {
    format!("message {} of process {}", sent.number, sent.instance)
}

#[cfg(test)]
mod tests;
