//! The writer's thread: panics, failures beside commits, a hung disk, memory, and upkeep.
mod model;
use model::{SUBGROUP, identity};
use spindle_log::disk::{Faults, SimDisk};
use spindle_log::{Appender, Config, Error, Outcome, Record, Retention, Store, Version, Writer};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn store(disk: &SimDisk, config: Config) -> Store {
    let mut store = Store::open(Arc::new(disk.clone()), &identity(), config).expect("no faults");
    store.open_log(SUBGROUP, &mut |_| ()).expect("no faults");
    store
}

/// A writer with an appender, and the outcomes that it reports.
fn start(disk: &SimDisk, config: Config) -> (Writer, Appender, Receiver<Outcome>) {
    let (report, outcomes) = channel();
    let report = Mutex::new(report);
    let writer = Writer::start(store(disk, config), move |outcome| {
        // The test may have seen enough.
        let _ = report.lock().expect("no panic").send(outcome);
    });
    let writer = writer.expect("a thread");
    let appender = writer.appender(SUBGROUP).expect("open");
    (writer, appender, outcomes)
}

fn append(appender: &mut Appender, sequence: u64) {
    appender.try_append(Record { version: Version::new(1, sequence), clock: 0, payload: &[7; 16] }).expect("room");
    appender.flush().expect("the writer runs");
}

/// Lets the thread wait until something is sent, or the sender is dropped.
fn stall(writer: &Writer) -> Sender<()> {
    let (resume, resumed) = channel::<()>();
    assert!(writer.post(move |_| {
        let _ = resumed.recv();
    }));
    resume
}

#[test]
fn a_panic_of_the_thread_is_reported_to_each_producer() {
    let disk = SimDisk::new(1, 1 << 30);
    let (writer, mut appender, outcomes) = start(&disk, model::config());
    append(&mut appender, 0);
    assert!(outcomes.recv_timeout(LONG).expect("a commit").result.is_ok());
    assert!(writer.post(|_| panic!("as the test wants")));
    let Ok(Outcome { result: Err(error), .. }) = outcomes.recv_timeout(LONG) else { panic!("nothing is reported") };
    assert!(error.to_string().contains("panicked: as the test wants"), "{error}");
    assert!(matches!(appender.failure(), Some(Error::Poisoned { .. })));
    assert!(matches!(writer.stop(), Err(Error::Stopped)));
    // The directory is free again.
    store(&disk, model::config());
}

#[test]
fn a_failure_without_a_commit_is_reported() {
    let disk = SimDisk::new(1, 1 << 30);
    let (writer, mut appender, outcomes) = start(&disk, model::config());
    append(&mut appender, 0);
    assert!(outcomes.recv_timeout(LONG).expect("a commit").result.is_ok());
    disk.set_faults(Faults { sync_errors: 1, ..Faults::default() });
    // Either the frontier of the idle log can't be recorded, or this value.
    writer.post(|store| drop(store.journal().put(1, b"ballot")));
    let outcome = outcomes.recv_timeout(LONG).expect("a report");
    assert!(matches!(outcome, Outcome { subgroup: SUBGROUP, result: Err(Error::Poisoned { .. }), .. }), "{outcome:?}");
    assert!(appender.failure().is_some());
}

#[test]
fn a_disk_that_hangs_keeps_its_lock_and_not_the_caller() {
    let disk = SimDisk::new(1, 1 << 30);
    let config = Config { stop_wait: Duration::from_millis(20), ..model::config() };
    let (writer, mut appender, outcomes) = start(&disk, config.clone());
    let resume = stall(&writer);
    // More commands than the queue has room for.
    while writer.post(|_| ()) {}
    append(&mut appender, 0);
    assert!(matches!(writer.stop(), Err(Error::Hung { .. })));
    let again = Store::open(Arc::new(disk.clone()), &identity(), config.clone());
    assert!(matches!(again.err(), Some(Error::Locked { .. })));
    drop(resume);
    // The thread drops the report when it has ended, and the lock before.
    while outcomes.recv_timeout(LONG).is_ok() {}
    let opened = loop {
        match Store::open(Arc::new(disk.clone()), &identity(), config.clone()) {
            Err(Error::Locked { .. }) => std::thread::yield_now(),
            opened => break opened,
        }
    };
    opened.expect("the thread has ended");
}

#[test]
fn small_chunks_behind_a_stalled_disk_take_no_more_memory_than_the_queue() {
    let disk = SimDisk::new(1, 1 << 30);
    let config = Config { chunk_bytes: 64 << 10, queue_bytes: 1 << 20, ..model::config() };
    let (writer, mut appender, _outcomes) = start(&disk, config.clone());
    let resume = stall(&writer);
    for sequence in 0..1000 {
        append(&mut appender, sequence);
    }
    let reserved = appender.reserved_bytes();
    assert!(reserved <= config.queue_bytes + config.chunk_bytes as u64, "{reserved} bytes");
    drop(resume);
    while !appender.flush().expect("the writer runs") {
        std::thread::yield_now();
    }
    drop(appender);
    let mut store = writer.stop().expect("no panic");
    assert_eq!(store.log(SUBGROUP).expect("open").durable(), Some(Version::new(1, 999)));
}

#[test]
fn a_log_has_segments_once_records_are_expected() {
    let disk = SimDisk::new(1, 1 << 30);
    let (writer, appender, _outcomes) = start(&disk, model::config());
    let has_files = |disk: &SimDisk| disk.paths().iter().any(|path| path.contains("spare") || path.contains("segment"));
    writer.call(|_| ()).expect("it runs");
    drop(writer.stop().expect("no panic"));
    assert!(!has_files(&disk), "{:?}", disk.paths());
    drop(appender);
    let (writer, appender, _outcomes) = start(&disk, model::config());
    appender.expect_records();
    while !has_files(&disk) {
        std::thread::yield_now();
    }
    drop(writer);
}

#[test]
fn upkeep_runs_when_it_asks_for_it_and_after_commits() {
    let disk = SimDisk::new(1, 1 << 30);
    let (writer, mut appender, _outcomes) = start(&disk, model::config());
    let (ran, runs) = channel();
    let mut left = 3;
    let upkeep = move |_: &mut Store| {
        ran.send(()).expect("the test waits");
        left -= 1;
        (left > 0).then_some(Duration::from_millis(1))
    };
    writer.keep_up(Duration::from_millis(1), upkeep).expect("it runs");
    (0..3).for_each(|_| runs.recv_timeout(LONG).expect("an idle log"));
    append(&mut appender, 0);
    runs.recv_timeout(LONG).expect("a commit");
}

#[test]
fn nothing_is_pruned_that_others_may_lack() {
    let disk = SimDisk::new(1, 1 << 30);
    let mut store = store(&disk, Config { segment_bytes: 8192, ..model::config() });
    let log = store.log(SUBGROUP).expect("open");
    for sequence in 0..10 {
        let record = Record { version: Version::new(1, sequence), clock: 0, payload: &[0; 3000] };
        log.append([record]).expect("no faults");
    }
    let rule = |before| Retention { bytes_max: Some(1), clock_min: Some(u64::MAX), before, ..Retention::default() };
    assert_eq!(log.retain(&rule(Some(Version::MIN))).expect("no faults"), 0);
    log.retain(&rule(Some(Version::new(1, 5)))).expect("no faults");
    let floor = log.floor().expect("some are pruned");
    assert!(floor < Version::new(1, 5), "{floor}");
    log.retain(&rule(None)).expect("no faults");
    assert!(log.floor() > Some(Version::new(1, 5)));
}
