//! States that are made from a simulated disk.
use super::snapshotting::{GroupLog, Snapshotting, take};
use super::{Base, Bound, Files, History, HistoryError, Joined, Preloading, Then, before_epoch};
use crate::context::Context;
use crate::id::{CallId, SessionId};
use crate::machine::{Machine, Stopped};
use crate::message::Message;
use crate::settings::Settings;
use crate::snapshot::RestoreError;
use crate::state_machine::{CommandSpec, ExecuteError, StateMachine, decode_arguments, encode_reply};
use crate::waiting::Inside;
use serde::{Deserialize, Serialize};
use spindle::{MemberId, ViewId};
use spindle_log::disk::{Disk, Faults, SimDisk};
use spindle_log::{Chunk, Config, Error, Identity, LoggedMessage, PayloadKind, Retention, Store, Version};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A list of numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Numbers(Vec<u64>);

impl StateMachine for Numbers {
    const COMMANDS: &'static [CommandSpec] = &[CommandSpec { id: 1, name: "push", since: 1, signature: "u64" }];
    const STATE: u32 = 1;
    const VERSION: u32 = 1;

    fn execute(&mut self, _command: u32, arguments: &[u8], _context: &mut Context) -> Result<Vec<u8>, ExecuteError> {
        let (number,): (u64,) = decode_arguments(arguments)?;
        OUTSIDE.set(OUTSIDE.get() + u64::from(!Inside::is_running()));
        self.0.push(number);
        encode_reply(&self.0.len())
    }
}

thread_local! {
    /// The commands of this thread that could have called through a handle.
    static OUTSIDE: Cell<u64> = const { Cell::new(0) };
}

const SESSION: SessionId = SessionId { member: 1, nonce: 5 };
/// Records of this length fill a segment with some dozen.
const SEGMENT_BYTES: u64 = 8192;

/// A log on a simulated disk.
struct Member {
    disk: SimDisk,
    store: Store,
    number: u32,
    /// The machine after each record.
    digests: Vec<(Version, u64, u64)>,
    machine: Machine<Numbers>,
    /// The epoch since which the log is complete; 0: the first.
    since: Arc<AtomicU64>,
}

impl Member {
    fn new() -> Member {
        let disk = SimDisk::new(7, 1 << 30);
        let store = open(&disk).unwrap();
        let machine = Machine::new(Numbers::default(), Settings::default());
        let (digests, since) = Default::default();
        let mut member = Member { disk, store: store.0, number: store.1, digests, machine, since };
        member.append(&Message::Announce { version: 1, fingerprint: fingerprint() });
        member.append(&Message::Open { session: SESSION, time_us: 1 });
        member
    }

    /// Appends a message, makes it durable, and applies it.
    fn append(&mut self, message: &Message<'_>) {
        let at = self.digests.len() as u64;
        let (version, clock) = (Version::new(1 + at / 40, 2 * at), 1000 + 10 * at);
        self.append_at(version, clock, message);
    }

    fn append_at(&mut self, version: Version, clock: u64, message: &Message<'_>) {
        let bytes = message.encode();
        let mut chunk = Chunk::with_capacity(1 << 12);
        chunk.push_parts(version, clock, &[&LoggedMessage::prefix(1, clock), &bytes]).unwrap();
        let log = self.store.log(self.number).unwrap();
        log.write(&mut [chunk]).unwrap();
        log.sync().unwrap();
        self.machine.apply(MemberId(1), &bytes).unwrap();
        self.digests.push((version, clock, self.machine.digest()));
    }

    fn push(&mut self, count: u64) {
        for _ in 0..count {
            let number = self.digests.len() as u64;
            // The argument has a length that makes segments short.
            let arguments = postcard::to_stdvec(&(number,)).unwrap();
            let id = CallId { session: SESSION, number };
            self.append(&Message::Call { id, time_us: number, command: 1, since: 1, arguments: &arguments });
        }
    }

    fn history(&mut self) -> History<Numbers> {
        self.history_with(Settings::default())
    }

    fn history_with(&mut self, settings: Settings) -> History<Numbers> {
        let first = Machine::new(Numbers::default(), settings.clone()).try_snapshot().ok();
        let (readers, since) = (self.store.log(self.number).unwrap().readers(), Arc::clone(&self.since));
        let since = Box::new(move || Some(ViewId(since.load(Ordering::Relaxed))).filter(|epoch| epoch.0 > 0));
        let snapshots = self.store.snapshots(self.number).unwrap();
        let on_disk = readers.clone();
        let newest = Box::new(move || Ok(on_disk.durable()));
        History::new(Files { readers, snapshots, newest, since }, first, settings, Preloading::none())
    }

    fn last(&self) -> (Version, u64, u64) {
        self.digests[self.digests.len() - 1]
    }

    /// Writes a snapshot of all records.
    fn snapshot(&mut self) -> Result<Version, HistoryError> {
        let end = self.last().0.next();
        take(&self.history(), end, &|| false).map(|taken| taken.unwrap().0.version)
    }

    /// Prunes up to the older of two snapshots. Returns the number of segments.
    fn try_prune(&mut self) -> Result<usize, Error> {
        let older = self.store.snapshots(self.number)?.versions()?[1];
        let rule = Retention { snapshot: Some(older), ..Retention::default() };
        self.store.log(self.number)?.retain(&rule)
    }

    fn prune(&mut self) -> usize {
        self.try_prune().unwrap()
    }

    fn reopen(self) -> Member {
        let Member { disk, store, digests, machine, since, .. } = self;
        drop(store);
        let (store, number) = open(&disk).unwrap();
        Member { disk, store, number, digests, machine, since }
    }

    /// Checks that the state from the disk is that after the last record, and returns the snapshot that it
    /// was made from.
    fn check(&mut self) -> Option<Version> {
        let then = self.history().state_at(Bound::ALL, &|| false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((then.last.map(|(last, _)| last), then.machine.digest()), (Some(self.last().0), self.last().2));
        then.snapshot.map(|info| info.version)
    }

    /// Damages the snapshot of a version.
    fn damage(&self, version: Version) {
        let path = format!("subgroup-00000000/snapshot-{:016x}-{:016x}", version.epoch, version.sequence);
        self.disk.flip(&path, 4096 + 40, 1);
    }
}

fn fingerprint() -> u64 {
    crate::state_machine::fingerprint::<Numbers>(&Settings::default(), 1)
}

fn open(disk: &SimDisk) -> Result<(Store, u32), Error> {
    let identity = Identity { group: "g".to_owned(), member: 1, incarnation: 3, payloads: PayloadKind::Messages };
    let config =
        Config { segment_bytes: SEGMENT_BYTES, reserve_bytes: 0, journal_bytes: 32 << 10, ..Config::default() };
    let mut store = Store::open(Arc::new(disk.clone()), &identity, config)?;
    let (number, _) = store.open_named("all", &mut |_| {})?;
    Ok((store, number))
}

fn error(made: Result<Then<Numbers>, HistoryError>) -> HistoryError {
    made.err().expect("an error")
}

#[test]
fn each_state_is_that_of_the_machine_at_its_bound() {
    let mut member = Member::new();
    member.push(60);
    member.snapshot().unwrap();
    member.push(30);
    member.snapshot().unwrap();
    member.push(10);
    let (history, outside) = (member.history(), OUTSIDE.get());
    for (i, (version, clock, digest)) in member.digests.iter().enumerate() {
        let bounds =
            [Bound::Through(*version), Bound::Before(version.next()), Bound::Clock(*clock), Bound::Clock(clock + 9)];
        for bound in bounds {
            let then = history.state_at(bound, &|| false).unwrap();
            assert_eq!((then.machine.digest(), then.last), (*digest, Some((*version, *clock))), "{bound:?}");
            let snapshot = then.snapshot.map(|info| info.version);
            let expected = [91, 61].into_iter().find(|at| *at <= i).map(|at| member.digests[at].0);
            assert_eq!(snapshot, expected);
        }
    }
    assert_eq!((outside, OUTSIDE.get()), (100, 100), "a command on another thread is refused calls as well");
    assert_eq!(history.end().unwrap().map(|(_, clock)| clock), Some(member.last().1));
    assert_eq!(error(history.state_at(Bound::ALL, &|| true)), HistoryError::Cancelled);
}

#[test]
fn a_crash_at_any_step_of_a_snapshot_and_of_pruning_loses_no_state() {
    let mut points = 0;
    for tear_bytes in [512, 4096] {
        for after in 0.. {
            let mut member = Member::new();
            member.push(90);
            member.snapshot().unwrap();
            member.push(90);
            member.snapshot().unwrap();
            member.push(90);
            member.disk.set_faults(Faults { crash_after: Some(after), tear_bytes, ..Faults::default() });
            let is_whole = member.snapshot().is_ok() && member.try_prune().is_ok();
            let disk = member.disk.clone();
            disk.crash();
            let mut member = member.reopen();
            assert!(member.check().is_some(), "operation {after}");
            // It continues.
            member.push(20);
            member.snapshot().unwrap();
            member.prune();
            member.check();
            points += 1;
            if is_whole {
                break;
            }
        }
    }
    assert!(points > 20, "{points} crash points");
}

#[test]
fn a_damaged_snapshot_falls_back_to_the_older_one_and_then_to_the_log() {
    let mut member = Member::new();
    member.push(50);
    let older = member.snapshot().unwrap();
    member.push(50);
    let newer = member.snapshot().unwrap();
    member.push(5);
    assert_eq!(member.check(), Some(newer));
    member.damage(newer);
    assert_eq!(member.check(), Some(older));
    // The next one replaces the damaged one, and the valid one stays.
    let newest = member.snapshot().unwrap();
    assert_eq!(member.store.snapshots(0).unwrap().versions().unwrap(), [newest, older]);
    member.damage(newest);
    member.damage(older);
    assert_eq!(member.check(), None, "the log from its first message");
}

#[test]
fn without_a_valid_snapshot_a_pruned_log_makes_no_state() {
    let mut member = Member::new();
    member.push(150);
    let first = member.snapshot().unwrap();
    member.push(150);
    let second = member.snapshot().unwrap();
    assert!(member.prune() > 0);
    let mut member = member.reopen();
    assert_eq!(member.check(), Some(second));
    let clock = member.digests[151].1;
    let oldest = Some((first, clock));
    let early = member.history().state_at(Bound::Through(Version::new(1, 20)), &|| false);
    assert_eq!(error(early), HistoryError::Pruned { oldest });
    let early = member.history().state_at(Bound::Clock(clock - 1), &|| false);
    assert_eq!(error(early), HistoryError::Pruned { oldest });
    member.damage(second);
    assert_eq!(member.check(), Some(first));
    member.damage(first);
    let none = member.history().newest(Bound::ALL);
    assert!(matches!(error(none), HistoryError::Pruned { .. }));
}

#[test]
fn another_program_is_refused_and_no_older_snapshot_is_tried() {
    let mut member = Member::new();
    member.push(20);
    member.snapshot().unwrap();
    let history = member.history_with(Settings { calls_kept: 3, ..Settings::default() });
    let refused = error(history.newest(Bound::ALL));
    let HistoryError::Stopped(Stopped::Restore(RestoreError::Fingerprint { group, .. })) = refused else {
        panic!("{refused}")
    };
    assert_eq!(group, fingerprint());
    // When snapshots are written is no part of the fingerprint.
    let history = member.history_with(Settings { snapshot_every_bytes: 1, prunes_log: false, ..Settings::default() });
    assert!(history.newest(Bound::ALL).is_ok());
}

#[test]
fn a_full_disk_leaves_the_snapshots_as_they_were() {
    let mut member = Member::new();
    member.push(50);
    let older = member.snapshot().unwrap();
    member.push(50);
    member.disk.set_capacity(0);
    let error = member.snapshot().unwrap_err();
    assert!(error.to_string().starts_with("no space for"), "{error}");
    assert_eq!(member.check(), Some(older));
    member.disk.set_capacity(1 << 30);
    let newer = member.snapshot().unwrap();
    assert_eq!(member.check(), Some(newer));
    // Without another message there is nothing to write.
    let end = member.last().0.next();
    assert_eq!(take(&member.history(), end, &|| false).unwrap(), None);
}

#[test]
fn a_snapshot_of_messages_that_were_removed_from_the_log_is_not_used() {
    let mut member = Member::new();
    member.push(20);
    let kept = member.snapshot().unwrap();
    let (length, machine) = (member.digests.len(), member.machine.snapshot());
    member.push(10);
    let removed = member.snapshot().unwrap();
    member.store.log(member.number).unwrap().cut_after(Some(kept)).unwrap();
    member.digests.truncate(length);
    member.machine = Machine::restore(&machine, Settings::default()).unwrap();
    assert_eq!(member.check(), Some(kept));
    // The log continues in a later epoch.
    member.append_at(
        Version::new(9, 0),
        1 << 20,
        &Message::Ask { id: CallId { session: SESSION, number: 1 }, nonce: 1 },
    );
    assert!(removed < member.last().0);
    assert_eq!(member.check(), Some(kept));
}

#[test]
fn a_member_that_joined_needs_the_state_that_it_got() {
    let mut member = Member::new();
    member.push(120);
    let old = member.snapshot().unwrap();
    // It was away during the epochs 4 to 8, and has got the state with which epoch 9 begins.
    member.since.store(9, Ordering::Relaxed);
    assert!(matches!(error(member.history().newest(Bound::ALL)), HistoryError::Pruned { oldest: None }));
    let (base, bytes) = (before_epoch(ViewId(9)), member.machine.snapshot());
    member.history().write((base, 1 << 19), &bytes, None, &|| false).unwrap();
    assert!(old < base);
    for sequence in 0..5 {
        let id = CallId { session: SESSION, number: 1 };
        member.append_at(Version::new(9, sequence), (1 << 20) + sequence, &Message::Ask { id, nonce: 1 });
    }
    assert_eq!(member.check(), Some(base));
    let early = member.history().state_at(Bound::Clock((1 << 19) - 1), &|| false);
    assert_eq!(error(early), HistoryError::Pruned { oldest: Some((base, 1 << 19)) });
}

#[test]
fn a_snapshot_that_was_read_while_the_member_joined_is_used_once() {
    let mut member = Member::new();
    member.push(20);
    let version = member.snapshot().unwrap();
    let preloading = Preloading::<Numbers>::start(member.store.snapshots(0).unwrap(), Settings::default());
    assert_eq!(preloading.take(version).unwrap().digest(), member.last().2);
    assert!(preloading.take(version).is_none());
    member.damage(version);
    let preloading = Preloading::<Numbers>::start(member.store.snapshots(0).unwrap(), Settings::default());
    assert!(preloading.take(version).is_none());
}

/// The part of a log that all members have, and what the thread has done.
#[derive(Clone, Default)]
struct Group {
    durable: Arc<Mutex<Option<Version>>>,
    looks: Arc<AtomicU64>,
    /// The orders to prune, and whether each reaches messages that are on too few disks.
    pruned: Arc<Mutex<Vec<(Version, bool)>>>,
}

impl GroupLog for Group {
    fn durable(&self) -> Option<Version> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        *self.durable.lock().unwrap()
    }

    fn prune(&self, through: Version, also_lost: bool) -> Result<u64, Error> {
        self.pruned.lock().unwrap().push((through, also_lost));
        Ok(1)
    }

    fn retry_after(&self) -> Duration {
        Duration::from_millis(1)
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        thread::yield_now();
    }
}

#[test]
fn the_thread_tries_again_while_the_disk_is_full_and_prunes_behind_two_snapshots() {
    let settings = Settings { snapshot_every_commands: 2, snapshot_every_bytes: 0, ..Settings::default() };
    let mut member = Member::new();
    member.push(20);
    let (group, history) = (Group::default(), Arc::new(member.history()));
    let set_durable = |version| *group.durable.lock().unwrap() = Some(version);
    let has_looked = |more| {
        let before = group.looks.load(Ordering::Relaxed);
        wait_until("attempts", || group.looks.load(Ordering::Relaxed) >= before + more);
    };
    let snapshots = member.store.snapshots(0).unwrap();
    let mut snapshotting = Snapshotting::start(&history, group.clone(), None, &settings).unwrap().unwrap();
    let mut due = |count: u32| {
        (0..count).for_each(|_| snapshotting.note(10, true));
        snapshotting.let_prune_lost(count > 2);
        snapshotting.look();
    };
    due(1);
    assert_eq!(group.looks.load(Ordering::Relaxed), 0, "none is due");
    // No message is on the disks of all members.
    due(1);
    has_looked(2);
    assert_eq!(snapshots.versions().unwrap(), []);
    member.disk.set_capacity(0);
    set_durable(member.last().0.next());
    has_looked(5);
    assert_eq!(snapshots.versions().unwrap(), []);
    member.disk.set_capacity(1 << 30);
    wait_until("the first snapshot", || snapshots.versions().unwrap() == [member.last().0]);
    let first = member.last().0;
    for calls in [2, 3] {
        let before = member.last().0;
        member.push(20);
        set_durable(member.last().0.next());
        due(calls);
        wait_until("the next snapshot", || snapshots.versions().unwrap() == [member.last().0, before]);
    }
    let second = snapshots.versions().unwrap()[1];
    wait_until("pruning", || group.pruned.lock().unwrap().len() == 2);
    assert_eq!(*group.pruned.lock().unwrap(), [(first, false), (second, true)]);
    drop(snapshotting);
    assert_eq!(member.check(), Some(member.last().0));
}

/// The files of the log that were not finished.
fn unfinished(member: &Member) -> Vec<String> {
    let names = member.disk.list("subgroup-00000000").unwrap();
    names.into_iter().filter(|name| name.ends_with(".tmp")).collect()
}

#[test]
fn the_state_of_a_joiner_waits_on_disk_until_its_messages_are_on_the_disks_of_others() {
    let settings = Settings { snapshot_every_commands: 2, ..Settings::default() };
    let mut member = Member::new();
    member.push(20);
    let mut joined = Joined::new(member.machine.snapshot());
    // Messages that came before the first view.
    for number in 0..3 {
        let bytes = Message::Open { session: SessionId { member: 2, nonce: number }, time_us: 5 }.encode();
        member.machine.apply(MemberId(2), &bytes).unwrap();
        assert!(joined.learn(MemberId(2), &bytes));
    }
    let digest = member.machine.digest();
    member.since.store(9, Ordering::Relaxed);
    let (group, history, at) = (Group::default(), Arc::new(member.history()), before_epoch(ViewId(9)));
    let snapshots = member.store.snapshots(0).unwrap();
    let snapshotting = Snapshotting::start(&history, group.clone(), Some(Base { at: (at, 7), joined }), &settings);
    *group.durable.lock().unwrap() = Some(Version::new(8, 70));
    let before = group.looks.load(Ordering::Relaxed);
    wait_until("looks", || group.looks.load(Ordering::Relaxed) >= before + 2);
    assert_eq!(snapshots.versions().unwrap(), []);
    assert_eq!(unfinished(&member).len(), 1, "it is on disk, and does not count");
    assert!(!snapshotting.as_ref().unwrap().as_ref().unwrap().has_base());
    *group.durable.lock().unwrap() = Some(Version::new(9, 0));
    wait_until("the state", || snapshots.versions().unwrap() == [at]);
    drop(snapshotting);
    let newest = member.history().newest(Bound::ALL).unwrap();
    assert_eq!((newest.machine.digest(), newest.last), (digest, Some((at, 7))));
    assert!(unfinished(&member).is_empty());
}

#[test]
fn a_state_of_a_joiner_that_waits_is_not_there_after_a_crash() {
    let mut member = Member::new();
    member.push(20);
    let (base, history) = (before_epoch(ViewId(9)), member.history());
    let base = Base { at: (base, 7), joined: Joined::new(member.machine.snapshot()) };
    let prepared = base.prepare(&history, &|| false).unwrap();
    let disk = member.disk.clone();
    disk.crash();
    drop((prepared, history));
    let mut member = member.reopen();
    assert_eq!(member.check(), None);
    assert!(unfinished(&member).is_empty());
}
