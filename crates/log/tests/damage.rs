//! Damage by chance to the files of a directory with two named logs: flipped bits, files that are cut
//! off, zeros, and blocks of another place. Nothing panics, and no record is read that was not written.
//! No durable record is lost unless an error names the damaged file.
//! A failing seed is run alone with `SEED=n cargo test -p spindle-log --test damage`.
mod model;
use model::{Owned, Random, config, identity, read_all};
use spindle_log::disk::SimDisk;
use spindle_log::mutation::{Mutation, activate};
use spindle_log::{Disk, Error, Readers, Store, Version, export, open_read_only, verify, verify_directory};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAMES: [&str; 2] = ["orders", "prices"];
const PAGE: usize = 4096;

/// A directory, and all that was acknowledged in it.
struct Directory {
    disk: SimDisk,
    /// The records of each log that were not pruned.
    records: [Vec<Owned>; 2],
    /// The last value of each kind in the journal.
    values: BTreeMap<u32, Vec<u8>>,
    /// All values that were put.
    history: BTreeSet<(u32, Vec<u8>)>,
}

impl Directory {
    /// A directory that was opened several times, pruned and cut. The frontier is recorded.
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed, 1 << 26);
        let mut random = Random(seed);
        let mut directory =
            Self { disk, records: Default::default(), values: BTreeMap::new(), history: BTreeSet::new() };
        for life in 0..3 {
            let mut store = directory.open().expect("no faults");
            for (log, name) in NAMES.iter().enumerate() {
                let (number, _) = store.open_named(name, &mut |_| ()).expect("no faults");
                for _ in 0..4 + random.below(6) {
                    let batch = directory.draw(log, &mut random);
                    store.log(number).expect("open").append(batch.iter().map(Owned::record)).expect("no faults");
                    directory.records[log].extend(batch);
                }
                directory.change(&mut store, log, number, &mut random);
            }
            for _ in 0..3 + life * random.below(6) {
                let (kind, length) = (random.below(3) as u32, 1 + random.below(200));
                let value: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
                store.journal().put(kind, &value).expect("no faults");
                directory.history.insert((kind, value.clone()));
                directory.values.insert(kind, value);
            }
            store.record_frontiers().expect("no faults");
        }
        directory
    }

    fn open(&self) -> Result<Store, Error> {
        Store::open(Arc::new(self.disk.clone()), &identity(), config())
    }

    fn draw(&self, log: usize, random: &mut Random) -> Vec<Owned> {
        let mut last = self.records[log]
            .last()
            .map_or((1, 0, 0), |last| (last.version.epoch, last.version.sequence + 1, last.clock));
        let mut batch = Vec::new();
        for _ in 0..=random.below(3) {
            last = (last.0, last.1 + random.below(3), last.2 + random.below(2));
            let length = if random.below(20) == 0 { 5000 } else { random.below(900) };
            let payload = (0..length).map(|_| random.below(256) as u8).collect();
            batch.push(Owned { version: Version::new(last.0, last.1), clock: last.2, payload });
            last.1 += 1;
        }
        batch
    }

    /// Prunes or cuts, in some of the lives.
    fn change(&mut self, store: &mut Store, log: usize, number: u32, random: &mut Random) {
        let records = &mut self.records[log];
        let chosen = records[random.below(records.len() as u64) as usize].version;
        let open = store.log(number).expect("open");
        match random.below(4) {
            0 => drop(open.prune(chosen).expect("no faults")),
            1 => open.cut_after(Some(chosen)).expect("no faults"),
            _ => {}
        }
        let floor = open.floor();
        let cut = open.last();
        records.retain(|record| Some(record.version) > floor && Some(record.version) <= cut);
    }

    /// The files that are damaged, in order.
    fn files(&self) -> Vec<String> {
        let is_one = |path: &String| ["segment-", "/state", "/name", "journal-"].iter().any(|part| path.contains(part));
        self.disk.paths().into_iter().filter(is_one).collect()
    }
}

/// Damages one place of a file: bits, an end, zeros, or bytes of another place of it or of another
/// file. Returns whether only one page can have changed.
fn damage(disk: &SimDisk, path: &str, files: &[String], random: &mut Random) -> bool {
    let mut content = disk.content(path).expect("it is listed");
    // Most of a file may be zeros behind what was written.
    let used = content.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    let unit = [1, 8, 48, 512, PAGE][random.below(5) as usize];
    let length = (unit * (1 + random.below(3) as usize)).min(content.len()).max(1);
    let last_start = content.len().saturating_sub(length);
    let start = (random.below(used as u64) as usize / unit * unit).min(last_start);
    let range = start..(start + length).min(content.len());
    let is_one_page = range.start / PAGE == range.end.saturating_sub(1) / PAGE;
    match random.below(5) {
        0 => (0..=random.below(3)).for_each(|_| {
            let at = range.start + random.below(range.len().max(1) as u64) as usize;
            if let Some(byte) = content.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }),
        1 => {
            content.truncate(start);
            disk.put(path, content);
            return false;
        }
        2 => content[range].fill(0),
        3 => {
            let from = (random.below(used as u64) as usize / unit * unit).min(last_start);
            content.copy_within(from..from + range.len(), range.start);
        }
        _ => {
            let other = disk.content(&files[random.below(files.len() as u64) as usize]).expect("it is listed");
            let bytes = other.iter().skip(start).chain(std::iter::repeat(&0));
            content[range].iter_mut().zip(bytes).for_each(|(byte, other)| *byte = *other);
        }
    }
    disk.put(path, content);
    is_one_page
}

/// The file that an error names.
fn named(error: &Error) -> &str {
    match error {
        Error::Corrupt(damage) => &damage.path,
        Error::CorruptFile { path, .. } | Error::Format { path, .. } => path,
        error => panic!("an error of another kind: {error}"),
    }
}

/// Reads records until an error. They are the first of those that were written.
fn prefix(readers: &Readers, written: &[Owned]) -> usize {
    let mut reader = readers.reader();
    let mut count = 0;
    while let Ok(Some(record)) = reader.next() {
        let expected = written.get(count).map(Owned::record);
        assert!(Some(record) == expected, "record {} is not what was written", record.version);
        count += 1;
    }
    count
}

/// Checks one log. `damaged` are the files that were damaged. Returns whether damage was named.
fn check_log(directory: &Directory, store: Option<&mut Store>, log: usize, number: u32, damaged: &[String]) -> bool {
    let shared: Arc<dyn Disk> = Arc::new(directory.disk.clone());
    let written = &directory.records[log];
    let (subgroup, is_named) = (number, |error: &Error| damaged.iter().any(|path| path == named(error)));
    let findings = verify(&shared, subgroup, &mut |_| ()).expect("it is a finding").findings;
    assert!(findings.iter().all(is_named), "{findings:?}");
    if let Ok((readers, _)) = open_read_only(&shared, subgroup, &mut |_| ()) {
        assert_eq!(prefix(&readers, written), written.len(), "a log that opens for reading is whole");
    }
    let _ = export(&shared, subgroup, None, &mut |record| {
        assert!(written.iter().any(|written| written.record() == record), "record {} was invented", record.version);
        true
    });
    let Some(store) = store else { return !findings.is_empty() };
    match store.open_named(NAMES[log], &mut |_| ()) {
        Ok((found, _)) => {
            assert_eq!(found, number, "the name leads to another log");
            let open = store.log(number).expect("open");
            let mut all = read_all(&mut open.readers().reader()).expect("it has just been verified");
            assert!(all == *written, "{} of {} records are left, and no error says so", all.len(), written.len());
            // The log continues.
            let next = open.last().map_or(Version::MIN, Version::next);
            let clock = open.last_clock();
            all.push(Owned { version: next, clock, payload: b"next".to_vec() });
            open.append([all[all.len() - 1].record()]).expect("no faults");
            let (report, again) = (store.open_named(NAMES[log], &mut |_| ()), number);
            assert_eq!(report.expect("no faults").0, again);
            assert!(read_all(&mut store.log(number).expect("open").readers().reader()).expect("no faults") == all);
            false
        }
        Err(error) => {
            assert!(is_named(&error), "{error} names none of {damaged:?}");
            assert!(!findings.is_empty(), "{error} is no finding of verify");
            if let Error::Corrupt(damage) = &error {
                // Records of which the error says that they are intact were written.
                let is_written = |version: Version| written.iter().any(|record| record.version == version);
                let edges = [
                    damage.after.filter(|after| written.first().is_some_and(|first| *after >= first.version)),
                    damage.before,
                    damage.through,
                ];
                assert!(edges.into_iter().flatten().all(is_written), "{damage:?} names versions that were not written");
                assert!(damage.through.max(damage.before) > damage.after, "{damage:?} has no range");
            }
            true
        }
    }
}

/// Damages one file of a directory, then recovers. Returns whether the damage was named.
fn run(seed: u64, directories: &[Directory]) -> bool {
    let mut random = Random(seed ^ 0xDA_3A6E);
    let original = &directories[(seed % directories.len() as u64) as usize];
    let directory = Directory {
        disk: original.disk.fork(seed),
        records: original.records.clone(),
        values: original.values.clone(),
        history: original.history.clone(),
    };
    let numbers: Vec<u32> = vec![0, 1];
    let files = directory.files();
    // Kinds of files are damaged equally often, whatever their number.
    let kind = ["segment-", "/state", "/name", "journal-"][random.below(4) as usize];
    let of_kind: Vec<&String> = files.iter().filter(|path| path.contains(kind)).collect();
    let path = of_kind[random.below(of_kind.len() as u64) as usize].clone();
    let times = 1 + random.below(3);
    let is_one_page = (0..times).fold(true, |all, _| damage(&directory.disk, &path, &files, &mut random) && all);
    let damaged = [path.clone()];
    let is_slight = is_one_page && times == 1;
    let found = verify_directory(&directory.disk).expect("it is a finding");
    assert!(found.iter().all(|error| named(error).contains("journal-")), "{found:?}");
    let mut store = directory.open();
    let mut is_named = false;
    match &mut store {
        Ok(store) => {
            let values: BTreeMap<u32, Vec<u8>> =
                store.journal().values().map(|(kind, value)| (kind, value.to_vec())).collect();
            // Each value is on two pages of its own, so damage to one page loses nothing.
            if is_slight || !path.contains("journal-") {
                assert!(values == directory.values, "the journal lost a value through damage to one page");
            }
            let is_old = |(kind, value): (u32, Vec<u8>)| directory.history.contains(&(kind, value));
            assert!(values.into_iter().all(is_old), "the journal invented a value");
            assert!(found.is_empty(), "{found:?} did not keep the journal from opening");
        }
        Err(error) => {
            assert!(!is_slight && path.contains("journal-"), "{error}");
            assert!(named(error).contains("journal-") && !found.is_empty(), "{error}: {found:?}");
            is_named = true;
        }
    }
    let mut store = store.ok();
    for (log, number) in numbers.into_iter().enumerate() {
        is_named |= check_log(&directory, store.as_mut(), log, number, &damaged);
    }
    is_named
}

#[test]
fn damage_to_a_file_is_harmless_or_named() {
    let directories: Vec<Directory> = (0..24).map(Directory::new).collect();
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(6000),
    };
    let (count, mut named) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &directories)));
        named += u64::from(result.unwrap_or_else(|panic| {
            eprintln!("seed {seed} failed: SEED={seed} cargo test -p spindle-log --test damage");
            std::panic::resume_unwind(panic)
        }));
    }
    println!("{count} damages, of which {named} are named");
    assert!(count == 1 || named > count / 10, "{named} of {count} damages are named: they are too small");
}

#[test]
fn a_missing_journal_file_is_refused_every_time() {
    let directory = Directory::new(3);
    for path in ["journal-0", "journal-1"] {
        let disk = directory.disk.fork(1);
        disk.remove(path).expect("no faults");
        for _ in 0..2 {
            let error =
                Store::open(Arc::new(disk.clone()), &identity(), config()).map(drop).expect_err("values are lost");
            assert!(matches!(&error, Error::CorruptFile { path: found, .. } if found == path), "{error}");
            assert_eq!(verify_directory(&disk).expect("it is a finding").len(), 1);
        }
    }
}

/// A recovery that takes all damage for a torn tail is found.
#[test]
fn a_recovery_that_loses_records_is_found() {
    activate(Some(Mutation::EveryTailCut));
    let directories: Vec<Directory> = (0..8).map(Directory::new).collect();
    let fails =
        |seed: &u64| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(*seed, &directories))).is_err();
    assert!((0..1000).any(|seed| fails(&seed)));
    activate(None);
}
