//! Real files: readers beside the writer, cuts, owners, `kill -9`, and a full file system.
mod model;
use model::{SUBGROUP, identity};
use spindle_log::{
    Chunk, Config, DataDirectory, Error, FileDisk, Hold, Identity, PayloadKind, Reader, Record, Retention, Store,
};
use spindle_log::{Version, Writer, export, summary, verify, verify_directory};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A directory that is removed at the end of the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let unique = format!("spindle-log-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(unique))
    }

    fn disk(&self) -> Arc<FileDisk> {
        Arc::new(FileDisk::new(&self.0).expect("a directory for temporary files"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config() -> Config {
    Config { segment_bytes: 1 << 20, journal_bytes: 1 << 20, reserve_bytes: 1 << 20, ..Config::default() }
}

fn open(directory: &Directory) -> Store {
    let mut store = Store::open(directory.disk(), &identity(), config()).expect("the directory is ours");
    store.open_log(SUBGROUP, &mut |_| ()).expect("the log is whole");
    store
}

fn payload(sequence: u64) -> Vec<u8> {
    let mut random = model::Random(sequence);
    let length = random.below(3000);
    (0..length).map(|_| random.below(256) as u8).collect()
}

fn append(store: &mut Store, sequences: std::ops::Range<u64>) {
    let payloads: Vec<Vec<u8>> = sequences.clone().map(payload).collect();
    let records = sequences.zip(&payloads).map(|(sequence, payload)| Record {
        version: Version::new(1, sequence),
        clock: sequence * 10,
        payload,
    });
    store.log(SUBGROUP).expect("open").append(records).expect("the disk has space");
}

fn check(reader: &mut Reader, mut sequence: u64) -> u64 {
    while let Some(record) = reader.next().expect("the log is whole") {
        assert_eq!(record.version, Version::new(1, sequence));
        assert!(record.payload == payload(sequence), "record {sequence}");
        sequence += 1;
    }
    sequence
}

#[test]
fn reads_by_version_and_time_and_range() {
    let directory = Directory::new("reads");
    let mut store = open(&directory);
    (0..20).for_each(|batch| append(&mut store, batch * 100..batch * 100 + 100));
    for round in 0..2 {
        let readers = store.log(SUBGROUP).expect("open").readers();
        let mut reader = readers.reader();
        assert_eq!(check(&mut reader, 0), 2000);
        for sequence in [0, 1, 777, 1998, 1999, 3] {
            let found = reader.get(Version::new(1, sequence)).expect("whole").map(|record| record.payload.to_vec());
            assert_eq!(found, Some(payload(sequence)), "round {round}");
            for (clock, expected) in [(sequence * 10, sequence), (sequence * 10 + 9, sequence)] {
                let found = reader.at_clock(clock).expect("whole").map(|record| record.version.sequence);
                assert_eq!(found, Some(expected));
            }
            let before = reader.last_before(Version::new(1, sequence)).expect("whole");
            assert_eq!(before, sequence.checked_sub(1).map(|sequence| Version::new(1, sequence)));
            reader.seek_clock((sequence * 10).saturating_sub(5));
            assert_eq!(reader.next().expect("whole").map(|record| record.version.sequence), Some(sequence));
        }
        assert!(reader.get(Version::new(1, 2000)).expect("whole").is_none());
        assert_eq!(reader.last_before(Version::new(9, 0)).expect("whole"), Some(Version::new(1, 1999)));
        assert!(reader.get(Version::new(0, 7)).expect("whole").is_none());
        assert!(reader.at_clock(u64::MAX).expect("whole").is_some_and(|record| record.version.sequence == 1999));
        reader.seek(Version::new(1, 1990));
        assert_eq!(check(&mut reader, 1990), 2000);
        drop(store);
        store = open(&directory);
    }
}

#[test]
fn a_reader_beside_the_writer_sees_all_in_order() {
    let directory = Directory::new("beside");
    let writer = Writer::start(open(&directory), |outcome| {
        outcome.result.expect("the disk has space");
    })
    .expect("a thread");
    let mut appender = writer.appender(SUBGROUP).expect("the log is open");
    let mut reader = appender.readers().reader();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sequence = 0;
            while sequence < 5000 {
                sequence = check(&mut reader, sequence);
                std::thread::yield_now();
            }
        });
        for sequence in 0..5000 {
            let payload = payload(sequence);
            let record = Record { version: Version::new(1, sequence), clock: sequence, payload: &payload };
            while let Err(error) = appender.try_append(record) {
                assert!(error.is_transient(), "{error}");
                std::thread::yield_now();
            }
            if sequence % 7 == 0 {
                appender.flush().expect("the writer runs");
            }
        }
        while appender.durable_records() < 5000 {
            appender.flush().expect("the writer runs");
            std::thread::yield_now();
        }
        assert_eq!(appender.queued_bytes(), 0);
        assert_eq!(appender.durable(), Some(Version::new(1, 4999)));
    });
    let mut store = writer.stop().expect("no panic");
    assert_eq!(store.log(SUBGROUP).expect("open").durable(), Some(Version::new(1, 4999)));
}

#[test]
fn readers_beside_pruning_read_nothing_that_was_recycled() {
    let directory = Directory::new("recycled");
    let mut store = open(&directory);
    append(&mut store, 0..10);
    let readers = store.log(SUBGROUP).expect("open").readers();
    let is_done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = readers.reader();
            let is_done = &is_done;
            scope.spawn(move || {
                let (mut read, mut pruned) = (0_u64, 0_u64);
                while is_done.load(Ordering::Acquire) == 0 {
                    match reader.next() {
                        Ok(Some(record)) => {
                            assert!(record.payload == payload(record.version.sequence));
                            read += 1;
                        }
                        Ok(None) => std::thread::yield_now(),
                        Err(Error::Pruned { oldest }) => {
                            pruned += 1;
                            reader.seek(oldest);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                println!("{read} records, pruned {pruned} times");
                assert!(read > 0);
            });
        }
        for batch in 1..300 {
            append(&mut store, batch * 100..batch * 100 + 100);
            let from = Version::new(1, (batch * 100_u64).saturating_sub(1000));
            store.log(SUBGROUP).expect("open").prune(from).expect("the disk works");
        }
        is_done.store(1, Ordering::Release);
    });
}

/// A disk that fails under the writer: the log keeps a prefix without a gap, and every producer learns
/// of the failure.
#[test]
fn after_a_failure_nothing_more_is_written() {
    use spindle_log::disk::{Faults, SimDisk};
    for seed in 0..200 {
        let disk = SimDisk::new(seed, 1 << 30);
        let mut store = Store::open(Arc::new(disk.clone()), &identity(), model::config()).expect("no faults");
        store.open_log(SUBGROUP, &mut |_| ()).expect("no faults");
        let writer = Writer::start(store, |_| ()).expect("a thread");
        let mut appender = writer.appender(SUBGROUP).expect("open");
        disk.set_faults(Faults { sync_errors: 40, write_errors: 40, ..Faults::default() });
        let failure = (0..).find_map(|sequence| {
            let payload = payload(sequence);
            let record = Record { version: Version::new(1, sequence), clock: 0, payload: &payload };
            let failure = loop {
                match appender.try_append(record) {
                    Err(Error::QueueFull { .. }) => std::thread::yield_now(),
                    other => break other.err(),
                }
            };
            appender.flush().expect("the writer runs");
            failure
        });
        assert!(matches!(failure, Some(Error::Io { .. } | Error::Poisoned { .. })), "seed {seed}: {failure:?}");
        let durable = appender.durable().map(|version| version.sequence);
        drop(writer.stop());
        disk.crash();
        let mut store = Store::open(Arc::new(disk.clone()), &identity(), model::config()).expect("no faults");
        store.open_log(SUBGROUP, &mut |_| ()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let end = check(&mut store.log(SUBGROUP).expect("open").readers().reader(), 0);
        assert!(end >= durable.map_or(0, |durable| durable + 1), "seed {seed}: {end} records, {durable:?} was durable");
    }
}

#[test]
fn a_full_queue_is_visible_and_order_is_checked() {
    let directory = Directory::new("queue");
    let mut store =
        Store::open(directory.disk(), &identity(), Config { queue_bytes: 1 << 18, ..config() }).expect("ours");
    store.open_log(SUBGROUP, &mut |_| ()).expect("new");
    let outcomes = Arc::new(Mutex::new(0));
    let counter = outcomes.clone();
    let writer = Writer::start(store, move |_| *counter.lock().expect("no panic") += 1).expect("a thread");
    let mut appender = writer.appender(SUBGROUP).expect("open");
    let payload = vec![1; 100_000];
    let mut full = 0;
    let mut sequence = 0;
    while sequence < 200 {
        match appender.try_append(Record { version: Version::new(1, sequence), clock: 0, payload: &payload }) {
            Ok(()) => sequence += 1,
            Err(Error::QueueFull { queued, max }) => {
                assert!(queued <= max && max == 1 << 18);
                full += 1;
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(full > 0);
    let again = appender.try_append(Record { version: Version::new(1, 199), clock: 0, payload: &[] });
    assert!(matches!(again, Err(Error::Order { .. })), "{again:?}");
    assert!(matches!(writer.appender(99), Err(Error::Unknown { subgroup: 99 })));
    writer.call(|store| store.journal().put(1, b"ballot")).expect("it runs").expect("the disk works");
    appender.flush().expect("it runs");
    writer.stop().expect("no panic");
    assert!(*outcomes.lock().expect("no panic") > 0);
}

#[test]
fn pruning_stops_at_holds_and_tells_readers() {
    let directory = Directory::new("prune");
    let mut store = open(&directory);
    (0..20).for_each(|batch| append(&mut store, batch * 200..batch * 200 + 200));
    let log = store.log(SUBGROUP).expect("open");
    let readers = log.readers();
    let hold: Hold = readers.hold(Version::new(1, 1000)).expect("few holds");
    let mut behind = readers.reader();
    assert!(behind.next().expect("whole").is_some());
    let segments = log.segments();
    assert!(log.prune(Version::new(1, 3000)).expect("the disk works") > 0);
    let oldest = readers.oldest().expect("not empty");
    assert!(oldest <= Version::new(1, 1000));
    let mut missing = readers.reader();
    missing.seek(Version::new(1, 5));
    assert!(matches!(missing.next(), Err(Error::Pruned { oldest: found }) if found == oldest));
    assert!(matches!(missing.at_clock(50), Err(Error::Pruned { .. })));
    // A reader in a pruned segment reads it to its end, and then learns it.
    let error = loop {
        match behind.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it skips records"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Pruned { .. }), "{error}");
    hold.advance(Version::new(1, 3000));
    log.prune(Version::new(1, 3000)).expect("the disk works");
    drop(hold);
    assert!(matches!(readers.hold(Version::new(1, 7)), Err(Error::Pruned { .. })));
    log.retain(&Retention { bytes_max: Some(2 << 20), snapshot: Some(Version::new(1, 3999)), ..Retention::default() })
        .expect("the disk works");
    assert!(log.segments() <= 2 && log.segments() < segments);
    let oldest = readers.oldest().expect("not empty").sequence;
    drop(store);
    let mut store = open(&directory);
    let mut reader = store.log(SUBGROUP).expect("open").readers().reader();
    assert_eq!(check(&mut reader, oldest), 4000);
}

#[test]
fn a_cut_tells_readers_and_the_log_continues() {
    let directory = Directory::new("cut");
    let mut store = open(&directory);
    (0..20).for_each(|batch| append(&mut store, batch * 200..batch * 200 + 200));
    let readers = store.log(SUBGROUP).expect("open").readers();
    let (mut beyond, mut before) = (readers.reader(), readers.reader());
    beyond.seek(Version::new(1, 3000));
    assert!(beyond.next().expect("whole").is_some());
    assert!(before.next().expect("whole").is_some());
    store.log(SUBGROUP).expect("open").cut_after(Some(Version::new(1, 1234))).expect("the disk works");
    assert!(matches!(beyond.next(), Err(Error::WasCut { .. })));
    assert_eq!(check(&mut before, 1), 1235);
    append(&mut store, 1235..2000);
    // Records behind the cut are no continuation of those that were cut.
    append(&mut store, 3001..3002);
    let cut = (beyond.next().err(), beyond.next().err());
    assert!(matches!(cut, (Some(Error::WasCut { .. }), Some(Error::WasCut { .. }))), "{cut:?}");
    store.log(SUBGROUP).expect("open").cut_after(Some(Version::new(1, 1999))).expect("the disk works");
    assert_eq!(check(&mut before, 1235), 2000);
    store.log(SUBGROUP).expect("open").reset(Version::new(1, 4999), 9).expect("the disk works");
    assert!(readers.oldest().is_none());
    append(&mut store, 5000..5100);
    drop(store);
    let mut store = open(&directory);
    assert_eq!(check(&mut store.log(SUBGROUP).expect("open").readers().reader(), 5000), 5100);
    store.log(SUBGROUP).expect("open").cut_after(None).expect_err("that was pruned");
}

#[test]
fn a_record_larger_than_a_segment_is_whole() {
    let directory = Directory::new("large");
    let mut store = open(&directory);
    let large: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 253) as u8).collect();
    append(&mut store, 0..10);
    let mut chunk = Chunk::default();
    chunk.push(Record { version: Version::new(1, 10), clock: 500, payload: &large }).expect("in order");
    chunk.push(Record { version: Version::new(1, 11), clock: 500, payload: b"behind" }).expect("in order");
    let log = store.log(SUBGROUP).expect("open");
    log.write(&mut [chunk]).expect("the disk has space");
    log.sync().expect("the disk works");
    drop(store);
    let mut store = open(&directory);
    let mut reader = store.log(SUBGROUP).expect("open").readers().reader();
    assert!(reader.get(Version::new(1, 10)).expect("whole").is_some_and(|record| record.payload == large));
    assert!(reader.next().expect("whole").is_some_and(|record| record.payload == b"behind"));
}

#[test]
fn a_directory_has_one_owner_and_one_member() {
    let directory = Directory::new("owner");
    let store = open(&directory);
    let refused =
        |identity: &Identity| Store::open(directory.disk(), identity, config()).map(drop).expect_err("refused");
    let locked = refused(&identity());
    assert!(matches!(locked, Error::Locked { pid, .. } if pid == std::process::id()), "{locked}");
    assert_eq!(DataDirectory::owner(&*directory.disk()).expect("readable"), Some(std::process::id()));
    drop(store);
    assert_eq!(DataDirectory::owner(&*directory.disk()).expect("readable"), None);
    for (field, other) in [
        ("group", Identity { group: "other".into(), ..identity() }),
        ("member", Identity { member: 9, ..identity() }),
        ("incarnation", Identity { incarnation: 1, ..identity() }),
        ("payloads", Identity { payloads: PayloadKind::Messages, ..identity() }),
    ] {
        let error = refused(&other);
        assert!(matches!(error, Error::Foreign { field: found, .. } if found == field), "{error}");
    }
    let path = directory.0.join("identity");
    let mut bytes = std::fs::read(&path).expect("it is there");
    bytes[8] = 9;
    std::fs::write(&path, bytes).expect("writable");
    assert!(matches!(refused(&identity()), Error::Format { found: 9, expected: 1, .. }));
    std::fs::remove_file(&path).expect("writable");
    assert!(matches!(refused(&identity()), Error::CorruptFile { .. }));
}

#[test]
fn verify_and_export_need_no_lock() {
    let directory = Directory::new("offline");
    let mut store = open(&directory);
    append(&mut store, 0..500);
    let disk: Arc<dyn spindle_log::Disk> = directory.disk();
    let verification = verify(&disk, SUBGROUP, &mut |_| ()).expect("readable");
    assert_eq!((verification.report.records, verification.findings.len()), (500, 0));
    let mut sequences = Vec::new();
    let count = export(&disk, SUBGROUP, Some(Version::new(1, 400)), &mut |record| {
        sequences.push(record.version.sequence);
        sequences.len() < 50
    });
    assert_eq!((count.expect("whole"), sequences[0], sequences.len()), (49, 400, 50));
    assert!(matches!(verify(&disk, 1234, &mut |_| ()), Err(Error::Unknown { .. })));
    assert_eq!(DataDirectory::subgroups(&*disk).expect("readable"), [SUBGROUP]);
}

/// The owner appends, prunes and writes the journal without a pause. A process that reads meanwhile
/// finds no damage, misses nothing, and does not keep an owner from starting.
#[test]
fn reading_beside_an_owner_finds_no_damage() {
    let directory = Directory::new("beside-owner");
    drop(open(&directory));
    let disk: Arc<dyn spindle_log::Disk> = Arc::new(FileDisk::read_only(&directory.0).expect("it exists"));
    let (written, is_done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for life in 0..3_u64 {
                let mut store = open(&directory);
                for batch in life * 400..(life + 1) * 400 {
                    append(&mut store, batch * 10..batch * 10 + 10);
                    written.store(batch * 10 + 10, Ordering::Release);
                    store.journal().put(1, &[batch as u8; 9000]).expect("the disk works");
                    if batch % 40 == 39 {
                        let from = Version::new(1, (batch * 10).saturating_sub(800));
                        store.log(SUBGROUP).expect("open").prune(from).expect("the disk works");
                    }
                }
            }
            is_done.store(1, Ordering::Release);
        });
        let (mut rounds, mut busy, mut pruned) = (0, 0, 0);
        while is_done.load(Ordering::Acquire) == 0 || rounds == 0 {
            rounds += 1;
            let owner = DataDirectory::owner(&*disk).expect("readable");
            assert!(owner.is_none_or(|pid| pid == std::process::id() || pid == 0), "{owner:?}");
            let findings = verify_directory(&*disk).expect("readable");
            assert!(findings.is_empty(), "{findings:?}");
            let before = written.load(Ordering::Acquire);
            match verify(&disk, SUBGROUP, &mut |_| ()) {
                Ok(found) => {
                    assert!(found.findings.is_empty(), "{:?}", found.findings);
                    let last = found.report.last.map_or(0, |last| last.sequence + 1);
                    assert!(last >= before, "{last} records, {before} were durable");
                }
                Err(Error::Busy { .. }) => busy += 1,
                Err(error) => panic!("{error}"),
            }
            match summary(&disk, SUBGROUP) {
                Ok(found) => assert!(found.last.map_or(0, |(last, _)| last.sequence + 1) >= before, "{found:?}"),
                Err(Error::Busy { .. }) => busy += 1,
                Err(error) => panic!("{error}"),
            }
            let mut last = None;
            let read = export(&disk, SUBGROUP, None, &mut |record| {
                let sequence = record.version.sequence;
                assert!(record.payload == payload(sequence));
                assert!(last.is_none_or(|last: u64| last + 1 == sequence), "{sequence} follows {last:?}");
                last = Some(sequence);
                true
            });
            match read {
                Ok(_) => {}
                Err(Error::Pruned { .. }) => pruned += 1,
                Err(Error::Busy { .. }) => busy += 1,
                Err(error) => panic!("{error}"),
            }
        }
        println!("{rounds} rounds; the owner was too fast {busy} times, and pruned {pruned} times");
    });
}

#[test]
fn a_disk_for_reading_only_changes_nothing() {
    use spindle_log::Disk;
    let directory = Directory::new("read-only");
    assert!(FileDisk::read_only(&directory.0).is_err(), "it does not exist, and is not created");
    assert!(!directory.0.exists());
    let mut store = open(&directory);
    append(&mut store, 0..10);
    let disk = FileDisk::read_only(&directory.0).expect("it exists");
    assert_eq!(DataDirectory::owner(&disk).expect("readable"), Some(std::process::id()));
    drop(store);
    assert_eq!(DataDirectory::owner(&disk).expect("readable"), None);
    let refused = [
        disk.create_directory("x").err(),
        disk.create("x", 1).err(),
        disk.rename("identity", "x").err(),
        disk.remove("identity").err(),
        disk.open("identity").expect("readable").write_at(&[std::io::IoSlice::new(b"x")], 0).err(),
    ];
    assert!(refused.iter().all(Option::is_some), "{refused:?}");
    std::fs::remove_file(directory.0.join("lock")).expect("writable");
    assert_eq!(DataDirectory::owner(&disk).expect("readable"), None);
    assert!(!directory.0.join("lock").exists());
}

/// The child of the next test: appends, and prints what is durable.
#[test]
#[ignore = "the child of another test"]
fn child_appends() {
    let Some(directory) = std::env::var_os("SPINDLE_LOG_CHILD") else { return };
    let mut store =
        Store::open(Arc::new(FileDisk::new(directory).expect("exists")), &identity(), config()).expect("ours");
    store.open_log(SUBGROUP, &mut |_| ()).expect("whole");
    let first = store.log(SUBGROUP).expect("open").last().map_or(0, |last| last.sequence + 1);
    let mut out = std::io::stdout().lock();
    for batch in 0..10_000 {
        let start = first + batch * 10;
        append(&mut store, start..start + 10);
        writeln!(out, "durable {}", start + 9).expect("the parent reads");
        if batch % 50 == 49 {
            let from = Version::new(1, (start + 9).saturating_sub(500));
            store.log(SUBGROUP).expect("open").prune(from).expect("the disk works");
        }
    }
}

#[test]
fn kill_nine_loses_nothing_that_was_durable() {
    let directory = Directory::new("kill");
    drop(open(&directory));
    let mut lines_read = 0;
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["child_appends", "--exact", "--ignored", "--nocapture"])
            .env("SPINDLE_LOG_CHILD", &directory.0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test again");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut durable = None;
        let mut wanted = 20 + round * 13;
        while wanted > 0 {
            let line = lines.next().expect("it goes on").expect("text");
            // The first line follows the name of the test.
            if let Some((_, number)) = line.split_once("durable ") {
                durable = number.parse::<u64>().ok();
                wanted -= 1;
                lines_read += 1;
            }
        }
        child.kill().expect("it runs");
        child.wait().expect("it was started");
        for line in lines.map_while(Result::ok) {
            if let Some((_, number)) = line.split_once("durable ") {
                durable = number.parse().ok().or(durable);
            }
        }
        let mut store = open(&directory);
        let log = store.log(SUBGROUP).expect("open");
        let last = log.last().map(|version| version.sequence);
        assert!(last >= durable, "{last:?} is left, {durable:?} was durable");
        let readers = log.readers();
        let oldest = readers.oldest().expect("not empty").sequence;
        assert_eq!(Some(check(&mut readers.reader(), oldest)), last.map(|last| last + 1));
    }
    println!("{lines_read} commits before the kills");
}

#[test]
fn a_full_file_system_is_refused_early() {
    let directory = Directory::new("full");
    std::fs::create_dir_all(&directory.0).expect("a directory for temporary files");
    let _mounted = match mount(&directory.0) {
        Some(mounted) => mounted,
        None => {
            println!("skipped: a file system in memory cannot be mounted here");
            return;
        }
    };
    let store = open(&directory);
    let writer = Writer::start(store, |_| ()).expect("a thread");
    let mut appender = writer.appender(SUBGROUP).expect("open");
    let mut sequence = 0;
    let full = loop {
        let payload = payload(sequence);
        match appender.try_append(Record { version: Version::new(1, sequence), clock: 0, payload: &payload }) {
            Ok(()) => sequence += 1,
            Err(Error::QueueFull { .. }) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { reserve, .. } if reserve == 1 << 20), "{full}");
    writer.call(|store| store.journal().put(1, b"ballot")).expect("it runs").expect("the journal has its space");
    // Pruning frees segments, and then the queue drains.
    let durable = appender.durable().expect("some records fit");
    while appender.queued_bytes() > 0 {
        let from = appender.durable().expect("some records fit");
        writer
            .call(move |store| store.log(SUBGROUP).and_then(|log| log.prune(from)))
            .expect("it runs")
            .expect("it works");
        appender.flush().expect("it runs");
        std::thread::yield_now();
    }
    assert!(appender.durable() > Some(durable));
    let mut store = writer.stop().expect("no panic");
    assert_eq!(store.log(SUBGROUP).expect("open").durable(), Some(Version::new(1, sequence - 1)));
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(path: &Path) -> Option<Mounted> {
    let status =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(path).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success()).then(|| Mounted(path.to_owned()))
}
