//! Logs over a disk that has no space, and what of them is kept.
use super::*;
use crate::config::{Config, LogSettings, Subgroup};
use crate::error::Ended;
use crate::handler::{Batch, Handler};
use crate::node::{Node, Poll};
use spindle_core::{Durability, DurableRise, Position, SubgroupId, ViewId};
use spindle_log::disk::{File, Locked};
use spindle_log::{Appender, Disk, FileDisk, Record, Store, Version};
use std::fs;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const LONG: Duration = Duration::from_secs(60);

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("spindle-unit-logs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn config(&self, members: u32, log: LogSettings) -> Config {
        let ledger = Subgroup { window: 16, message_bytes_max: 200, ..Subgroup::new("ledger") };
        let subgroups = vec![Subgroup { durability: Durability::Logged { copies: 1 }, ..ledger }];
        Config { subgroups, data_dir: Some(self.0.clone()), log, ..Config::new("g", members) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Nothing;

impl Handler for Nothing {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {});
    }
}

/// A disk without free space, until there is some, and whose syncs hang while the second flag is set.
struct Faulty(FileDisk, Arc<AtomicBool>, Arc<AtomicBool>);

struct FaultyFile(Arc<dyn File>, Arc<AtomicBool>);

impl File for FaultyFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.0.write_at(slices, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        while self.1.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        self.0.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }
}

impl Faulty {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultyFile(file, Arc::clone(&self.2)))
    }
}

impl Disk for Faulty {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.0.create_directory(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.0.list(path)
    }

    fn create(&self, path: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        self.0.create(path, bytes).map(|file| self.file(file))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.0.open(path).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.0.sync_directory(path)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        if self.1.load(Ordering::Relaxed) { self.0.free_bytes() } else { Ok(0) }
    }

    fn lock(&self, path: &str) -> io::Result<Locked> {
        self.0.lock(path)
    }

    fn shown(&self, path: &str) -> String {
        self.0.shown(path)
    }
}

fn identity() -> Identity {
    Identity { group: "g".into(), member: 1, incarnation: 7, payloads: PayloadKind::Messages }
}

/// A writer and an appender on a disk without space, until `has_space`.
fn full(scratch: &Scratch, notices: &Arc<Notices>, has_space: &Arc<AtomicBool>) -> (Writer, Appender) {
    faulty(scratch, notices, has_space, &Arc::default())
}

/// As [`full`]. Syncs hang while `hangs`.
fn faulty(
    scratch: &Scratch,
    notices: &Arc<Notices>,
    has_space: &Arc<AtomicBool>,
    hangs: &Arc<AtomicBool>,
) -> (Writer, Appender) {
    let disk = Faulty(FileDisk::new(scratch.0.join("full")).unwrap(), Arc::clone(has_space), Arc::clone(hangs));
    let mut store = Store::open(Arc::new(disk), &identity(), spindle_log::Config::default()).unwrap();
    store.open_log(0, &mut |_| {}).unwrap();
    let notices = Arc::clone(notices);
    let writer = Writer::start(store, move |_| notices.ring()).unwrap();
    let appender = writer.appender(0).unwrap();
    (writer, appender)
}

/// Drives nodes until each has finished or ended. Returns the ends of those that have not finished.
fn drive(mut nodes: Vec<Node>, sleeps: bool) -> Vec<Ended> {
    let (start, mut ends) = (Instant::now(), vec![]);
    while !nodes.is_empty() {
        assert!(start.elapsed() < LONG, "{:?}", nodes.iter().map(Node::status).collect::<Vec<_>>());
        nodes.retain_mut(|node| {
            let poll = match sleeps {
                true => node.sleep(&mut Nothing, Duration::from_millis(5)),
                false => node.poll(&mut Nothing),
            };
            match poll {
                Ok(poll) => poll != Poll::Finished,
                Err(ended) => {
                    ends.push(ended);
                    false
                }
            }
        });
    }
    ends
}

fn finish_with_a_full_disk(name: &str, sleeps: bool) {
    let scratch = Scratch::new(name);
    let log = LogSettings { segment_bytes: 1 << 20, wait_max: Duration::from_millis(50), ..LogSettings::default() };
    let mut nodes = scratch.config(2, log).local().unwrap();
    let (_writer, appender) = full(&scratch, nodes[0].notices(), &Arc::default());
    *nodes[0].handles_mut()[0].log.as_mut().unwrap().appender_mut() = appender;
    let mut publisher = nodes[1].publisher("ledger").unwrap();
    (0..3).for_each(|_| publisher.send(b"x", Duration::ZERO).unwrap());
    drop(publisher);
    let ends = drive(nodes, sleeps);
    let [ended @ Ended::LogFull { subgroup, unsynced: 3, .. }] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!(subgroup, "ledger");
    assert!(ended.to_string().contains("3 messages"), "{ended}");
}

#[test]
fn a_full_disk_ends_its_member_and_the_group_finishes_without_it() {
    finish_with_a_full_disk("full", false);
}

#[test]
fn a_sleeping_member_notices_its_full_disk() {
    finish_with_a_full_disk("full-asleep", true);
}

/// The messages that a member was given.
#[derive(Default)]
struct Given(Vec<Vec<u8>>);

impl Handler for Given {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.0.push(message.payload.to_vec()));
    }
}

/// Members of a subgroup that delivers only what is durable. The disk of the first is full until
/// `has_space`.
fn before_delivery(
    scratch: &Scratch,
    (members, copies): (u32, u32),
    wait_max: Duration,
    has_space: &Arc<AtomicBool>,
) -> (Vec<(Node, Given)>, Writer) {
    let mut config =
        scratch.config(members, LogSettings { segment_bytes: 1 << 20, wait_max, ..LogSettings::default() });
    config.subgroups[0].durability = Durability::LoggedBeforeDelivery { copies };
    let mut nodes: Vec<(Node, Given)> =
        config.local().unwrap().into_iter().map(|node| (node, Given::default())).collect();
    let (writer, appender) = full(scratch, nodes[0].0.notices(), has_space);
    *nodes[0].0.handles_mut()[0].log.as_mut().unwrap().appender_mut() = appender;
    (nodes, writer)
}

fn poll_until(nodes: &mut [(Node, Given)], what: &str, done: impl Fn(&[(Node, Given)]) -> bool) {
    let start = Instant::now();
    while !done(nodes) {
        nodes.iter_mut().for_each(|(node, given)| _ = node.poll(given).unwrap());
        assert!(
            start.elapsed() < LONG,
            "{what}: {:?}",
            nodes.iter().map(|(node, _)| node.status()).collect::<Vec<_>>()
        );
    }
}

/// The versions in the log of a member, with the messages.
fn records(node: &mut Node) -> Vec<(Version, Vec<u8>)> {
    let mut reader = node.handles_mut()[0].log.as_mut().unwrap().readers().reader();
    let mut found = vec![];
    while let Some(record) = reader.next().unwrap() {
        let message = spindle_log::LoggedMessage::parse(record.payload).unwrap();
        found.push((record.version, message.payload.to_vec()));
    }
    found
}

/// The view changes while a disk takes nothing. The other logs are cut at the end of the epoch, and each
/// message is delivered once, in the next epoch.
#[test]
fn a_view_changes_while_a_disk_is_full_and_logs_are_cut() {
    let (scratch, has_space) = (Scratch::new("before-delivery"), Arc::default());
    let (mut nodes, _writer) = before_delivery(&scratch, (3, 2), LONG, &has_space);
    let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("ledger").unwrap()).collect();
    for (i, publisher) in publishers[..2].iter_mut().enumerate() {
        publisher.send(format!("message {i}").as_bytes(), Duration::ZERO).unwrap();
    }
    let logged = |nodes: &[(Node, Given)]| {
        let log = nodes[1].0.status().subgroups[0].log.unwrap();
        log.persisted >= Some(2) && log.undelivered >= 2 && !log.lacks_members
    };
    poll_until(&mut nodes, "the other disks", logged);
    assert!(nodes.iter().all(|(_, given)| given.0.is_empty()), "a disk lacks them");
    assert_eq!(records(&mut nodes[1].0).len(), 2);
    // The third member dies.
    nodes.pop();
    publishers.pop();
    poll_until(&mut nodes, "view 2", |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
    let is_cut =
        |nodes: &[(Node, Given)]| nodes[1].0.status().subgroups[0].log.is_some_and(|log| log.persisted >= Some(2));
    poll_until(&mut nodes, "the cut, and the messages again", is_cut);
    assert!(nodes.iter().all(|(_, given)| given.0.is_empty()), "a disk still lacks them");
    let versions =
        |records: &[(Version, Vec<u8>)]| records.iter().map(|(version, _)| version.epoch).collect::<Vec<_>>();
    assert_eq!(versions(&records(&mut nodes[1].0)), [2, 2]);
    has_space.store(true, Ordering::Relaxed);
    poll_until(&mut nodes, "delivery", |nodes| nodes.iter().all(|(_, given)| given.0.len() == 2));
    let logs = [0, 1].map(|member| records(&mut nodes[member].0));
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0].iter().map(|(_, message)| message.clone()).collect::<Vec<_>>(), nodes[0].1.0);
    assert_eq!(nodes[0].1.0, nodes[1].1.0);
}

/// It holds up the delivery at all members, so it does not stay.
#[test]
fn a_member_whose_disk_stays_full_ends_and_the_others_deliver() {
    let scratch = Scratch::new("before-delivery-full");
    let (mut nodes, _writer) = before_delivery(&scratch, (3, 2), Duration::from_millis(50), &Arc::default());
    let mut publisher = nodes[1].0.publisher("ledger").unwrap();
    publisher.send(b"one", Duration::ZERO).unwrap();
    let (start, mut ended) = (Instant::now(), None);
    while ended.is_none() {
        for (node, given) in &mut nodes {
            ended = ended.or(node.sleep(given, Duration::from_millis(5)).err());
        }
        assert!(start.elapsed() < LONG);
    }
    assert!(matches!(ended, Some(Ended::LogFull { unsynced: 1, .. })), "{ended:?}");
    nodes.remove(0);
    poll_until(&mut nodes, "delivery", |nodes| nodes.iter().all(|(_, given)| given.0 == [b"one"]));
}

/// A sync that never returns reports nothing. Nothing else wakes an idle member.
#[test]
fn a_member_whose_disk_hangs_ends_and_the_others_deliver() {
    let scratch = Scratch::new("before-delivery-hangs");
    let (has_space, hangs) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicBool>::default());
    let (mut nodes, writer) = before_delivery(&scratch, (3, 2), Duration::from_millis(50), &has_space);
    drop(writer);
    let (_writer, appender) = faulty(&scratch, nodes[0].0.notices(), &has_space, &hangs);
    *nodes[0].0.handles_mut()[0].log.as_mut().unwrap().appender_mut() = appender;
    let mut publisher = nodes[1].0.publisher("ledger").unwrap();
    publisher.send(b"one", Duration::ZERO).unwrap();
    poll_until(&mut nodes, "delivery", |nodes| nodes.iter().all(|(_, given)| given.0.len() == 1));
    let sleep = |nodes: &mut Vec<(Node, Given)>| {
        nodes.iter_mut().find_map(|(node, given)| node.sleep(given, Duration::from_millis(5)).err())
    };
    (0..10).for_each(|_| assert!(sleep(&mut nodes).is_none()));
    hangs.store(true, Ordering::Relaxed);
    publisher.send(b"two", Duration::ZERO).unwrap();
    let start = Instant::now();
    let ended = loop {
        if let Some(ended) = sleep(&mut nodes) {
            break ended;
        }
        assert!(start.elapsed() < LONG, "{:?}", nodes[0].0.status());
    };
    assert!(matches!(&ended, Ended::Log { reason, .. } if reason.contains("taken nothing")), "{ended}");
    nodes.remove(0);
    poll_until(&mut nodes, "delivery", |nodes| nodes.iter().all(|(_, given)| given.0 == [b"one", b"two"]));
    hangs.store(false, Ordering::Relaxed);
}

#[test]
fn messages_wait_for_members_and_a_group_that_finishes_without_them_says_so() {
    let (scratch, has_space) = (Scratch::new("before-delivery-few"), Arc::new(AtomicBool::new(true)));
    let (mut nodes, _writer) = before_delivery(&scratch, (2, 3), Duration::from_millis(50), &has_space);
    let mut publisher = nodes[0].0.publisher("ledger").unwrap();
    let receipt = publisher.send_tracked(b"one", Duration::ZERO).unwrap();
    let waits = |nodes: &[(Node, Given)]| nodes[0].0.status().subgroups[0].log.is_some_and(|log| log.lacks_members);
    poll_until(&mut nodes, "status", waits);
    assert!(nodes.iter().all(|(_, given)| given.0.is_empty()) && receipt.outcome().is_none());
    let sent = (0..100).take_while(|_| {
        nodes.iter_mut().for_each(|(node, given)| _ = node.poll(given).unwrap());
        publisher.send(&[0; 200], Duration::ZERO).is_ok()
    });
    assert!(sent.count() < 30, "the ring is the bound");
    assert!(nodes.iter_mut().all(|(node, _)| records(node).is_empty()));
    drop(publisher);
    let ends = drive(nodes.into_iter().map(|(node, _)| node).collect(), false);
    // The other one has sent nothing. If it is alone, it finishes.
    assert!(matches!(ends.first(), Some(Ended::TooFewCopies { members: 2, copies: 3, .. })), "{ends:?}");
    assert!(ends.iter().all(|ended| matches!(ended, Ended::TooFewCopies { .. })), "{ends:?}");
}

/// The logs of a member alone, with segments that a few messages fill.
fn logs(scratch: &Scratch, settings: LogSettings) -> (Logs, SubgroupLog) {
    let config = scratch.config(1, LogSettings { segment_bytes: 8192, ..settings });
    let view = config.view(vec![MemberId(1)]);
    let mut control_plane = ControlPlane::local(&Arc::default(), MemberId(1));
    let mut logs = Logs::open(&config.terms(&Default::default()), &view, &mut control_plane).unwrap().unwrap();
    let log = logs.take("ledger").unwrap();
    (logs, log)
}

/// The first version that a log still has.
fn oldest(logs: &Logs) -> Version {
    let oldest = |store: &mut Store| store.log(0).unwrap().readers().oldest();
    logs.writer.as_ref().unwrap().call(oldest).unwrap().unwrap()
}

fn write(logs: &Logs, sequences: std::ops::Range<u64>, clock: u64) {
    let append = move |store: &mut Store| {
        let log = store.log(0).unwrap();
        for sequence in sequences {
            log.append([Record { version: Version::new(1, sequence), clock, payload: &[0; 3000] }]).unwrap();
        }
    };
    logs.writer.as_ref().unwrap().call(append).unwrap();
}

fn raise(log: &SubgroupLog, sequence: u64) {
    let frontier = Position { epoch: ViewId(1), sequence };
    log.frontier.raise(DurableRise { frontier, covers_older: true });
}

#[test]
fn what_is_too_old_is_pruned_unless_others_lack_it() {
    let scratch = Scratch::new("retention");
    let (logs, log) = logs(&scratch, LogSettings::default());
    write(&logs, 0..9, 1);
    let settings = LogSettings { age_max: Some(Duration::from_secs(3600)), ..LogSettings::default() };
    let pruning = Arc::new(Pruning { settings, logs: vec![(0, Arc::clone(&log.frontier))] });
    let prune = |now| {
        let pruning = Arc::clone(&pruning);
        logs.writer.as_ref().unwrap().call(move |store| pruning.prune(store, Duration::from_secs(now))).unwrap()
    };
    const YEAR: u64 = 365 * 86400;
    assert_eq!(prune(YEAR), Some(retention::HELD_BACK));
    assert_eq!(oldest(&logs), Version::new(1, 0));
    raise(&log, 4);
    // Nothing is old yet: the next look is when something is.
    assert_eq!(prune(3000).unwrap().as_secs(), 600);
    assert_eq!(oldest(&logs), Version::new(1, 0));
    assert_eq!(prune(YEAR), Some(retention::HELD_BACK));
    assert!(oldest(&logs) > Version::new(1, 0) && oldest(&logs) <= Version::new(1, 4));
    raise(&log, 9);
    assert_eq!(prune(YEAR), None);
    assert!(oldest(&logs) >= Version::new(1, 7));
}

#[test]
fn logs_are_pruned_though_no_node_is_polled() {
    let scratch = Scratch::new("idle");
    let settings = LogSettings { age_max: Some(Duration::from_secs(3600)), ..LogSettings::default() };
    let (logs, mut log) = logs(&scratch, settings);
    raise(&log, 9);
    for sequence in 0..9 {
        // All of them are of 1970.
        log.appender_mut().append_parts(Version::new(1, sequence), 1, &[&[0; 3000]]).unwrap();
        log.appender_mut().flush().unwrap();
    }
    let start = Instant::now();
    while log.appender_mut().durable_records() < 9 || oldest(&logs) == Version::new(1, 0) {
        assert!(start.elapsed() < LONG);
        std::thread::yield_now();
    }
}

#[test]
fn a_directory_that_takes_nothing_is_refused_before_admission() {
    let scratch = Scratch::new("probe");
    let config = scratch.config(1, LogSettings::default());
    fs::create_dir_all(&scratch.0).unwrap();
    // Here a directory is to be made.
    fs::write(scratch.0.join("log.probe"), "").unwrap();
    assert!(matches!(check(&config), Err(JoinError::LogDir { .. })));
    fs::remove_file(scratch.0.join("log.probe")).unwrap();
    let owner = FileDisk::new(scratch.0.join("log.probe")).unwrap();
    let lock = spindle_log::DataDirectory::lock(&owner).unwrap();
    assert!(matches!(check(&config), Err(JoinError::Log(spindle_log::Error::Locked { .. }))));
    drop(lock);
    check(&config).unwrap();
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    let log = LogSettings { segment_bytes: 1 << 34, ..config.log };
    let free = FileDisk::new(&scratch.0).unwrap().free_bytes().unwrap();
    if free < log.segment_bytes {
        let error = check(&Config { log, ..config.clone() }).unwrap_err();
        assert!(matches!(error, JoinError::Log(spindle_log::Error::Full { .. })), "{error}");
    }
    let mut long = config;
    long.subgroups[0].name = "é".repeat(33);
    let error = long.check().unwrap_err();
    assert!(matches!(error, JoinError::LogName { bytes: 66, .. }), "{error}");
}
