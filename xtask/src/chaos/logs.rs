//! Checks the logs that the members of a round have on disk, also those of killed members.
//!
//! Invariants of the durable prefix, number 10: two logs of a group have the same records where both
//! have some, none lacks a record between its first and its last, and a message that a member called
//! durable is in its own log and in those of all members that ended in agreement and were in the
//! subgroup by then.
use super::judge::{Acknowledged, Breach, breach};
use super::record::mix;
use anyhow::Context;
use spindle_log::{DataDirectory, Disk, Error, FileDisk, Version, open_read_only};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The subgroup that is logged.
const LOGGED: &str = "facts";
const NAME: &str = "durable prefix";

/// The log of a process, by version: the clock, and a digest of the payload.
pub(super) struct ProcessLog {
    pub(super) instance: u32,
    incarnation: u128,
    records: BTreeMap<Version, (u64, u64)>,
    /// Whether the process ended in agreement with all members.
    finished: bool,
}

/// Reads the log of a process and removes its data directory; `None` if the process ended before it had one.
pub(super) fn take(folder: &Path, instance: u32, finished: bool) -> anyhow::Result<Option<ProcessLog>> {
    let data_dir = folder.join(format!("{instance}.data"));
    if !data_dir.exists() {
        return Ok(None);
    }
    let path = data_dir.join("log");
    let read = path.exists().then(|| read(&path, instance, finished)).transpose();
    let read = read.with_context(|| format!("the log of process {instance}"))?;
    fs::remove_dir_all(&data_dir).context("can't remove a log")?;
    Ok(read.flatten())
}

fn read(path: &Path, instance: u32, finished: bool) -> Result<Option<ProcessLog>, Error> {
    let io = |cause| Error::Io { operation: "open", path: path.display().to_string(), cause: Arc::new(cause) };
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::read_only(path).map_err(io)?);
    let Some(identity) = DataDirectory::identity_of(&*disk)? else { return Ok(None) };
    // A process may have been killed while it made its log.
    let Some(number) = DataDirectory::find(&*disk, LOGGED)? else { return Ok(None) };
    let (readers, _) = open_read_only(&disk, number, &mut |_| {})?;
    let mut reader = readers.reader();
    let mut records = BTreeMap::new();
    while let Some(record) = reader.next()? {
        let digest = record.payload.iter().fold(0, |sum, byte| mix(sum ^ u64::from(*byte)));
        records.insert(record.version, (record.clock, digest));
    }
    Ok(Some(ProcessLog { instance, incarnation: identity.incarnation, records, finished }))
}

/// Compares the logs of a round. Returns the number of different records.
pub(super) fn check(logs: &[ProcessLog], acknowledged: &[Acknowledged]) -> Result<u64, Breach> {
    let mut groups: BTreeMap<u128, Vec<&ProcessLog>> = BTreeMap::new();
    logs.iter().for_each(|log| groups.entry(log.incarnation).or_default().push(log));
    if let Some(ack) = acknowledged.iter().find(|ack| logs.iter().all(|log| log.instance != ack.instance)) {
        let what = format!("process {} called message {} durable, and has no log", ack.instance, ack.version);
        return breach(10, NAME, what);
    }
    let mut count = 0;
    for logs in groups.values() {
        let all = union(logs)?;
        count += all.len() as u64;
        logs.iter().try_for_each(|log| whole(log, &all))?;
        for ack in acknowledged {
            if logs.iter().any(|log| log.instance == ack.instance) {
                logs.iter().try_for_each(|log| has(log, *ack))?;
            }
        }
    }
    Ok(count)
}

/// Returns the records of all logs of a group, each with the process whose log had it first.
fn union(logs: &[&ProcessLog]) -> Result<BTreeMap<Version, (u64, u64, u32)>, Breach> {
    let mut all: BTreeMap<Version, (u64, u64, u32)> = BTreeMap::new();
    for log in logs {
        for (version, (clock, digest)) in &log.records {
            let (known_clock, known_digest, first) = *all.entry(*version).or_insert((*clock, *digest, log.instance));
            if (known_clock, known_digest) != (*clock, *digest) {
                let what = format!(
                    "the log of process {} has another record {version} than that of process {first}",
                    log.instance
                );
                return breach(10, NAME, what);
            }
        }
    }
    Ok(all)
}

/// Checks that a log has all records between its first and its last.
fn whole(log: &ProcessLog, all: &BTreeMap<Version, (u64, u64, u32)>) -> Result<(), Breach> {
    let bounds = log.records.first_key_value().zip(log.records.last_key_value());
    let Some(((first, _), (last, _))) = bounds else { return Ok(()) };
    let lacks = all.range(*first..=*last).find(|(version, _)| !log.records.contains_key(version));
    let Some((version, (.., other))) = lacks else { return Ok(()) };
    let what = format!("the log of process {} lacks {version}, which that of process {other} has", log.instance);
    breach(10, NAME, what)
}

/// Checks that a log has an acknowledged message, if it must.
fn has(log: &ProcessLog, ack: Acknowledged) -> Result<(), Breach> {
    let began = log.records.keys().next().is_some_and(|first| *first <= ack.version);
    let must = log.instance == ack.instance || (log.finished && began);
    if !must || log.records.contains_key(&ack.version) {
        return Ok(());
    }
    let what = format!(
        "process {} called message {} durable, and the log of process {} lacks it",
        ack.instance, ack.version, log.instance
    );
    breach(10, NAME, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(instance: u32, sequences: &[u64], finished: bool) -> ProcessLog {
        let records = sequences.iter().map(|at| (Version::new(1, *at), (*at, *at))).collect();
        ProcessLog { instance, incarnation: 1, records, finished }
    }

    fn acknowledged(instance: u32, sequence: u64) -> Acknowledged {
        Acknowledged { instance, version: Version::new(1, sequence) }
    }

    fn what(logs: &[ProcessLog], acknowledged: &[Acknowledged]) -> String {
        check(logs, acknowledged).unwrap_err().what
    }

    #[test]
    fn prefixes_of_one_list_pass() {
        let logs = [log(1, &[0, 2, 4], true), log(2, &[0, 2], false), log(3, &[2, 4], true), log(4, &[], false)];
        assert_eq!(check(&logs, &[acknowledged(1, 4), acknowledged(2, 0)]), Ok(3));
    }

    #[test]
    fn a_gap_another_record_and_a_lost_message_are_noticed() {
        let gap = [log(1, &[0, 2, 4], true), log(2, &[0, 4], false)];
        assert_eq!(what(&gap, &[]), "the log of process 2 lacks 1:2, which that of process 1 has");
        let mut other = [log(1, &[0, 2], true), log(2, &[0, 2], true)];
        other[1].records.insert(Version::new(1, 2), (2, 9));
        assert_eq!(what(&other, &[]), "the log of process 2 has another record 1:2 than that of process 1");
        let lost = [log(1, &[0, 2], false), log(2, &[0], true)];
        let expected = "process 1 called message 1:2 durable, and the log of process 2 lacks it";
        assert_eq!(what(&lost, &[acknowledged(1, 2)]), expected);
        let own = "process 2 called message 1:2 durable, and the log of process 2 lacks it";
        assert_eq!(what(&lost, &[acknowledged(2, 2)]), own);
        assert_eq!(what(&lost, &[acknowledged(3, 0)]), "process 3 called message 1:0 durable, and has no log");
    }

    #[test]
    fn groups_are_compared_among_themselves() {
        let mut logs = [log(1, &[0, 2], true), log(2, &[0, 2], true)];
        logs[1].incarnation = 2;
        logs[1].records.insert(Version::new(1, 2), (7, 7));
        assert_eq!(check(&logs, &[acknowledged(2, 2)]), Ok(4));
    }
}
