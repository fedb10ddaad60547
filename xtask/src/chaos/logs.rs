//! Checks the logs that the members of a round have on disk, also those of killed members. Other
//! processes have continued some of these.
//!
//! Invariants of the durable prefix, number 10: two logs of a group have the same records where both
//! have some, none lacks a record between its first and its last, and a message that a member called
//! durable is in its own log and in those of all members that ended in agreement and were in the
//! subgroup by then. A log that was continued may lack records that no log has of a member that was
//! there from the beginning of its log to the end of the group: it had no one to get them from.
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

/// A log, by version: the clock, and a digest of the payload.
pub(super) struct ProcessLog {
    /// The processes that wrote it, one after the other.
    instances: Vec<u32>,
    incarnation: u128,
    records: BTreeMap<Version, (u64, u64)>,
    /// Whether the last of them ended in agreement with all members.
    finished: bool,
}

/// A record of a group.
struct Known {
    clock: u64,
    digest: u64,
    /// A process whose log has it.
    instance: u32,
    /// Whether a log has it that one process wrote, up to the end of the group.
    is_kept: bool,
}

impl ProcessLog {
    fn last_instance(&self) -> u32 {
        self.instances.last().copied().unwrap_or(0)
    }

    fn was_continued(&self) -> bool {
        self.instances.len() > 1
    }

    /// Whether it may lack a record.
    fn may_lack(&self, record: &Known) -> bool {
        self.was_continued() && !record.is_kept
    }
}

/// Whether a process has a directory of its own.
pub(super) fn exists(folder: &Path, instance: u32) -> bool {
    folder.join(format!("{instance}.data")).exists()
}

/// Reads the log that process `owner` began and removes its data directory; `None` if the processes ended
/// before they had one.
pub(super) fn take(
    folder: &Path,
    owner: u32,
    instances: Vec<u32>,
    finished: bool,
) -> anyhow::Result<Option<ProcessLog>> {
    let data_dir = folder.join(format!("{owner}.data"));
    if !data_dir.exists() {
        return Ok(None);
    }
    let path = data_dir.join("log");
    let read = path.exists().then(|| read(&path, instances, finished)).transpose();
    let read = read.with_context(|| format!("the log of process {owner}"))?;
    fs::remove_dir_all(&data_dir).context("can't remove a log")?;
    Ok(read.flatten())
}

fn read(path: &Path, instances: Vec<u32>, finished: bool) -> Result<Option<ProcessLog>, Error> {
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
    Ok(Some(ProcessLog { instances, incarnation: identity.incarnation, records, finished }))
}

/// Compares the logs of a round. Returns the number of different records.
pub(super) fn check(logs: &[ProcessLog], acknowledged: &[Acknowledged]) -> Result<u64, Breach> {
    let mut groups: BTreeMap<u128, Vec<&ProcessLog>> = BTreeMap::new();
    logs.iter().for_each(|log| groups.entry(log.incarnation).or_default().push(log));
    if let Some(ack) = acknowledged.iter().find(|ack| logs.iter().all(|log| !log.instances.contains(&ack.instance))) {
        let what = format!("process {} called message {} durable, and has no log", ack.instance, ack.version);
        return breach(10, NAME, what);
    }
    let mut count = 0;
    for logs in groups.values() {
        let all = union(logs)?;
        count += all.len() as u64;
        logs.iter().try_for_each(|log| whole(log, &all))?;
        for ack in acknowledged {
            if logs.iter().any(|log| log.instances.contains(&ack.instance)) {
                logs.iter().try_for_each(|log| has(log, *ack, &all))?;
            }
        }
    }
    Ok(count)
}

/// Returns the records of all logs of a group.
fn union(logs: &[&ProcessLog]) -> Result<BTreeMap<Version, Known>, Breach> {
    let mut all: BTreeMap<Version, Known> = BTreeMap::new();
    for log in logs {
        let (instance, is_kept) = (log.last_instance(), log.finished && !log.was_continued());
        for (version, (clock, digest)) in &log.records {
            let new = Known { clock: *clock, digest: *digest, instance, is_kept: false };
            let known = all.entry(*version).or_insert(new);
            known.is_kept |= is_kept;
            if (known.clock, known.digest) != (*clock, *digest) {
                let first = known.instance;
                let what =
                    format!("the log of process {instance} has another record {version} than that of process {first}");
                return breach(10, NAME, what);
            }
        }
    }
    Ok(all)
}

/// Checks that a log has all records between its first and its last.
fn whole(log: &ProcessLog, all: &BTreeMap<Version, Known>) -> Result<(), Breach> {
    let bounds = log.records.first_key_value().zip(log.records.last_key_value());
    let Some(((first, _), (last, _))) = bounds else { return Ok(()) };
    let is_missing = |version: &Version, known: &Known| !log.records.contains_key(version) && !log.may_lack(known);
    let Some((version, known)) = all.range(*first..=*last).find(|(version, known)| is_missing(version, known)) else {
        return Ok(());
    };
    let (instance, other) = (log.last_instance(), known.instance);
    let what = format!("the log of process {instance} lacks {version}, which that of process {other} has");
    breach(10, NAME, what)
}

/// Checks that a log has an acknowledged message, if it must.
fn has(log: &ProcessLog, ack: Acknowledged, all: &BTreeMap<Version, Known>) -> Result<(), Breach> {
    let began = log.records.keys().next().is_some_and(|first| *first <= ack.version);
    let is_own = log.instances.contains(&ack.instance);
    let may_lack = || !is_own && all.get(&ack.version).is_some_and(|known| log.may_lack(known));
    let must = is_own || (log.finished && began);
    if !must || log.records.contains_key(&ack.version) || may_lack() {
        return Ok(());
    }
    let what = format!(
        "process {} called message {} durable, and the log of process {} lacks it",
        ack.instance,
        ack.version,
        log.last_instance()
    );
    breach(10, NAME, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(instance: u32, sequences: &[u64], finished: bool) -> ProcessLog {
        let records = sequences.iter().map(|at| (Version::new(1, *at), (*at, *at))).collect();
        ProcessLog { instances: vec![instance], incarnation: 1, records, finished }
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
    fn a_log_that_was_continued_lacks_only_what_it_could_get_from_none() {
        let continued = |sequences: &[u64]| ProcessLog { instances: vec![2, 5], ..log(2, sequences, true) };
        // The records between were on the disk of a process that has ended only.
        let legit = [log(1, &[0, 2, 4], false), continued(&[0, 4]), log(3, &[4], true)];
        assert_eq!(check(&legit, &[acknowledged(1, 2), acknowledged(5, 4), acknowledged(2, 0)]), Ok(3));
        let gap = [log(1, &[0, 2, 4], true), continued(&[0, 4])];
        assert_eq!(what(&gap, &[]), "the log of process 5 lacks 1:2, which that of process 1 has");
        let own = "process 2 called message 1:2 durable, and the log of process 5 lacks it";
        assert_eq!(what(&legit, &[acknowledged(2, 2)]), own);
    }

    #[test]
    fn groups_are_compared_among_themselves() {
        let mut logs = [log(1, &[0, 2], true), log(2, &[0, 2], true)];
        logs[1].incarnation = 2;
        logs[1].records.insert(Version::new(1, 2), (7, 7));
        assert_eq!(check(&logs, &[acknowledged(2, 2)]), Ok(4));
    }
}
