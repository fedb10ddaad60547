//! Members that are started again with their logs: they get what they lack from the others, and all
//! logs are the same in the end.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::Hosts;
use common::Scratch;
use rcgen::{CertificateParams, KeyPair};
use spindle::{
    Batch, Config, Durability, Ended, Group, Handler, Identity, JoinError, LogSettings, LogStatus, MemberId, Publisher,
    Receipt, Security, Snapshot, State, SubgroupId,
};
use spindle_log::{DataDirectory, FileDisk, LoggedMessage, open_read_only};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// Takes messages, and has an empty state.
#[derive(Clone, Default)]
struct Sink;

impl Handler for Sink {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(drop);
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        None
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        std::io::copy(state, &mut std::io::sink()).map(drop)
    }
}

struct Member {
    group: Group,
    publisher: Publisher,
}

impl Member {
    fn send(&mut self, payload: &[u8]) -> Receipt {
        self.publisher.send_tracked(payload, LONG).unwrap()
    }

    fn log(&self) -> LogStatus {
        self.group.status().subgroups[0].log.unwrap()
    }

    /// Sends messages of this many bytes, and waits until they are durable.
    fn send_many(&mut self, tag: u8, count: u32, bytes: usize) {
        let send = |i: u32| [&[tag][..], &i.to_le_bytes(), &vec![tag; bytes]].concat();
        let receipts: Vec<Receipt> = (0..count).map(|i| self.send(&send(i))).collect();
        receipts.last().unwrap().durable().wait(LONG).unwrap();
    }

    fn wait_for_members(&self, count: usize) {
        wait("view", || self.group.view().members.len() == count);
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A member with this id, whose messages are logged in a directory of its own.
fn logged(mut config: Config, id: u64, dir: &Path) -> Config {
    let subgroup = &mut config.subgroups[0];
    (subgroup.durability, subgroup.window) = (Durability::Logged { copies: 2 }, 64);
    subgroup.message_bytes_max = 4096;
    std::fs::create_dir_all(data(dir, id)).unwrap();
    let log = LogSettings { segment_bytes: 1 << 20, ..LogSettings::default() };
    let suspect_after = Some(Duration::from_secs(5));
    Config { id: Some(MemberId(id)), data_dir: Some(data(dir, id)), log, suspect_after, ..config }
}

/// Members on one host, with directories for their data.
struct Host {
    meet: Scratch,
    data: Scratch,
}

impl Host {
    fn new(name: &str) -> Host {
        Host { meet: Scratch::new(name), data: Scratch::new(&format!("{name}-data")) }
    }

    fn config(&self, id: u64, members: u32) -> Config {
        logged(self.meet.group(members, LONG), id, &self.data.0)
    }
}

fn data(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("data-{id}"))
}

/// Starts a member on a thread; with the state of the group, if it `learns`.
fn start(config: Config, learns: bool) -> Receiver<Result<Member, JoinError>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let joined = match learns {
            true => config.learn(&mut Sink, &mut |_| {}, &AtomicBool::new(false)),
            false => config.join(),
        };
        let _ = tell.send(joined.map(|mut node| {
            let publisher = node.publisher("all").unwrap();
            Member { group: node.start(Sink).unwrap(), publisher }
        }));
    });
    told
}

fn join(config: Config, learns: bool) -> Member {
    start(config, learns).recv_timeout(LONG).unwrap().unwrap()
}

fn create(configs: impl IntoIterator<Item = Config>) -> Vec<Member> {
    let starting: Vec<_> = configs.into_iter().map(|config| start(config, false)).collect();
    starting.into_iter().map(|member| member.recv_timeout(LONG).unwrap().unwrap()).collect()
}

fn finish(members: Vec<Member>) {
    let ending = members.into_iter().map(|Member { group, publisher }| {
        drop(publisher);
        thread::spawn(move || group.finish(LONG).map(drop).unwrap())
    });
    let ending: Vec<_> = ending.collect();
    ending.into_iter().for_each(|member| member.join().unwrap());
}

/// A record: its version, clock, sender, and message.
type Logged = ((u64, u64), u64, u64, Vec<u8>);

fn read(dir: &Path, id: u64) -> Vec<Logged> {
    let disk: Arc<dyn spindle_log::Disk> = Arc::new(FileDisk::read_only(data(dir, id).join("log")).unwrap());
    let number = DataDirectory::find(&*disk, "all").unwrap().unwrap();
    let (readers, _) = open_read_only(&disk, number, &mut |_| {}).unwrap();
    let (mut reader, mut records) = (readers.reader(), vec![]);
    while let Some(record) = reader.next().unwrap() {
        let LoggedMessage { sender, payload, .. } = LoggedMessage::parse(record.payload).unwrap();
        records.push(((record.version.epoch, record.version.sequence), record.clock, sender, payload.to_vec()));
    }
    records
}

/// Checks that all logs have the same records.
fn same(dir: &Path, ids: &[u64]) -> usize {
    let first = read(dir, ids[0]);
    assert!(first.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    for id in &ids[1..] {
        let other = read(dir, *id);
        let differs = first.iter().zip(&other).position(|(one, other)| one != other);
        assert_eq!((other.len(), differs), (first.len(), None), "the log of member {id} differs");
    }
    first.len()
}

/// A member ends, the others continue, and it is started again while messages flow.
fn rejoins_while_messages_flow(dir: &Path, config: impl Fn(u64) -> Config, learns: bool) {
    let mut members = create((1..=3).map(|id| logged(config(id), id, dir)));
    members[2].send_many(3, 300, 100);
    members[0].send_many(1, 300, 100);
    drop(members.pop());
    members[0].wait_for_members(2);
    // More than one part of a stream, in several epochs.
    members[1].send_many(2, 2000, 1000);
    // Longer than a segment, and than a part of a stream.
    members[1].send_many(4, 3, 3 << 20);
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut first = members.remove(0);
    let mut third = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = sent.load(Ordering::Relaxed);
                let large = if number % 64 == 7 { 2 << 20 } else { 0 };
                let receipt = first.send(&[&number.to_le_bytes()[..], &vec![5; large]].concat());
                // Sent while the third catches up: on all disks once it is durable.
                receipt.outcome();
                if sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
                    thread::sleep(Duration::from_millis(40));
                }
            }
        });
        let third = join(logged(config(3), 3, dir), learns);
        let after = sent.load(Ordering::Relaxed);
        wait("messages flow", || sent.load(Ordering::Relaxed) > after + 200);
        stop.store(true, Ordering::Relaxed);
        third
    });
    let payload = b"acknowledged by all three";
    first.wait_for_members(3);
    first.send(payload).durable().wait(LONG).unwrap();
    for id in 1..=3 {
        assert!(read(dir, id).iter().any(|(.., message)| message == payload), "it is not in the log of {id}");
    }
    assert_eq!(third.log().catching_up, None);
    third.send_many(3, 100, 10);
    members.extend([first, third]);
    finish(members);
    assert!(same(dir, &[1, 2, 3]) > 2900);
}

/// INV-COMPLETE: a member that lacks records does not go on without those that have them.
#[test]
fn a_member_that_lacks_records_ends_with_those_that_have_them_and_all_restart() {
    let host = Host::new("incomplete");
    let config = |id: u64| {
        let mut config = host.config(id, 2);
        config.subgroups[0].durability = Durability::Logged { copies: 1 };
        config
    };
    let mut members = create([1, 2].map(config));
    members[0].send_many(3, 10, 10);
    drop(members.pop());
    members[0].wait_for_members(1);
    members[0].send_many(1, 500, 100);
    // It is admitted, and polls no more: it lacks the end of what is durable.
    let mut second = config(2).join().unwrap();
    assert_eq!(second.view().members.len(), 2);
    drop(members);
    let start = Instant::now();
    let ended = loop {
        assert!(start.elapsed() < LONG, "it goes on");
        match second.poll(&mut Sink) {
            Ok(_) => assert_eq!(second.view().members.len(), 2, "it goes on"),
            Err(ended) => break ended,
        }
    };
    let Ended::LogIncomplete { subgroup, ended } = ended else { panic!("{ended}") };
    assert_eq!((&*subgroup, &ended[..]), ("all", &[MemberId(1)][..]));
    drop(second);
    let mut members = create([1, 2].map(config));
    members[0].send_many(2, 10, 10);
    finish(members);
    assert_eq!(same(&host.data.0, &[1, 2]), 520);
}

#[test]
fn a_member_that_rejoins_has_the_log_of_the_others() {
    let host = Host::new("catch-up");
    rejoins_while_messages_flow(&host.data.0, |_| host.meet.group(3, LONG), false);
}

#[test]
fn so_it_has_if_it_learns_the_state_as_well() {
    let host = Host::new("catch-up-learning");
    rejoins_while_messages_flow(&host.data.0, |_| host.meet.group(3, LONG), true);
}

#[test]
fn so_it_has_between_hosts() {
    let (hosts, scratch) =
        (Hosts::new("catch-up-hosts", 3, Duration::from_secs(5)), Scratch::new("catch-up-hosts-data"));
    rejoins_while_messages_flow(&scratch.0, |id| hosts.seed(id as usize - 1, 3), false);
}

#[test]
fn so_it_has_over_tls_with_the_state() {
    let (hosts, scratch) = (Hosts::new("catch-up-tls", 3, Duration::from_secs(5)), Scratch::new("catch-up-tls-data"));
    let identity = identity(&scratch);
    let config = |id: u64| {
        let mut config = hosts.seed(id as usize - 1, 3);
        config.network.as_mut().unwrap().security = Security::Tls(identity.clone());
        config
    };
    rejoins_while_messages_flow(&scratch.0, config, true);
}

/// A certificate that is its own authority.
fn identity(scratch: &Scratch) -> Identity {
    std::fs::create_dir_all(&scratch.0).unwrap();
    let [pem_at, key_at] = ["pem", "key"].map(|end| scratch.0.join(format!("own.{end}")));
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::new(vec!["host".into()]).unwrap().self_signed(&key).unwrap().pem();
    std::fs::write(&pem_at, pem).unwrap();
    std::fs::write(&key_at, key.serialize_pem()).unwrap();
    Identity::load(&pem_at, &pem_at, &key_at).unwrap()
}

#[test]
fn records_that_all_have_pruned_stay_missing_and_the_log_continues() {
    let host = Host::new("catch-up-pruned");
    let config = |id| {
        let config = host.config(id, 3);
        let log = LogSettings { segment_bytes: 64 << 10, bytes_max: Some(256 << 10), ..config.log };
        Config { log, ..config }
    };
    let mut members = create((1..=3).map(config));
    members[0].send_many(1, 20, 100);
    drop(members.pop());
    members[0].wait_for_members(2);
    members[0].send_many(2, 1000, 1000);
    let begins = |id| read(&host.data.0, id)[0].3[0];
    wait("pruned", || {
        // A member prunes only if there is something else to do.
        members[1].send_many(4, 1, 1);
        begins(1) == 2 && begins(2) == 2
    });
    members.push(join(config(3), false));
    members[0].wait_for_members(3);
    members[2].send_many(3, 20, 100);
    assert_eq!(members[2].log().catching_up, None);
    finish(members);
    // The log has no gap: it begins again behind the missing records.
    let [first, third] = [1, 3].map(|id| read(&host.data.0, id));
    assert!(third.len() >= 20 && first.ends_with(&third), "{} of {} records", third.len(), first.len());
}

#[test]
fn a_member_that_has_joined_later_is_no_source_for_what_was_before() {
    let host = Host::new("catch-up-later");
    let config = |id| host.config(id, 2);
    let mut members = create([1, 2].map(config));
    members[0].send_many(1, 50, 100);
    drop(members.pop());
    members[0].wait_for_members(1);
    // It is not durable on one disk.
    drop(members[0].send(b"alone"));
    members.push(join(config(4), false));
    members[0].wait_for_members(2);
    members[1].send_many(4, 50, 100);
    members.push(join(config(2), false));
    members[0].wait_for_members(3);
    members[2].send_many(2, 50, 100);
    finish(members);
    assert_eq!(same(&host.data.0, &[1, 2]), 151);
    assert_eq!(read(&host.data.0, 4).len(), 100);
}

#[test]
fn logs_of_an_earlier_group_of_the_same_name_are_refused() {
    let host = Host::new("catch-up-foreign");
    let config = |id| host.config(id, 1);
    let mut first = join(config(1), false);
    drop(first.send(b"one"));
    finish(vec![first]);
    // Another group of the same name runs now.
    let second = join(config(2), false);
    let error = config(1).join().unwrap_err();
    let JoinError::OtherIncarnation { theirs, ours, .. } = &error else { panic!("{error}") };
    assert!(theirs != ours && error.to_string().contains(&ours.to_string()), "{error}");
    finish(vec![second]);
    assert_eq!(read(&host.data.0, 1).len(), 1);
}

/// The disks of two members have lost their newest records when the group restarts.
fn restarts_with_logs_of_different_lengths(dir: &Path, config: impl Fn(u64) -> Config) {
    let config = |id: u64| logged(config(id), id, dir);
    let mut members = create((1..=3).map(config));
    members[0].send_many(1, 100, 100);
    let copies = Copies::take(dir, &[1, 3]);
    members[1].send_many(2, 3000, 1000);
    finish(members);
    copies.put_back();
    assert!(read(dir, 3).len() < 200);
    let mut members = create((1..=3).map(config));
    // No message of the view was logged before all logs had all records.
    assert_eq!(members[2].log().catching_up, None);
    members[2].send_many(3, 100, 100);
    finish(members);
    assert_eq!(same(dir, &[1, 2, 3]), 3200);
}

#[test]
fn logs_that_are_behind_when_their_group_restarts_catch_up() {
    let host = Host::new("catch-up-restart");
    restarts_with_logs_of_different_lengths(&host.data.0, |_| host.meet.group(3, LONG));
}

/// The members that are no seeds learn each other's addresses from the seed.
#[test]
fn so_they_do_between_hosts() {
    let hosts = Hosts::new("catch-up-restart-hosts", 1, Duration::from_secs(5));
    let scratch = Scratch::new("catch-up-restart-hosts-data");
    restarts_with_logs_of_different_lengths(&scratch.0, |id| match id {
        1 => hosts.seed(0, 3),
        id => hosts.other(id as usize, 3),
    });
}

/// A group restarts without a member, whose log has records that the others lack. It comes back, and its
/// log becomes that of the group.
fn a_member_that_was_given_up_comes_back(name: &str, sends: bool, learns: bool) {
    let host = Host::new(name);
    let dir = &host.data.0;
    let config = |id| host.config(id, 3);
    let mut members = create((1..=3).map(config));
    members[0].send_many(1, 100, 100);
    let copies = Copies::take(dir, &[1, 2]);
    members[1].send_many(2, 300, 1000);
    finish(members);
    copies.put_back();
    let before = read(dir, 1).len();
    assert!((100..300).contains(&before) && read(dir, 3).len() == 400);
    let without = |id| Config { lost: vec![MemberId(3)], ..config(id) };
    let mut members = create((1..=2).map(without));
    if sends {
        members[0].send_many(3, 100, 100);
    }
    members.push(join(config(3), learns));
    members[2].send_many(4, 100, 100);
    finish(members);
    let count = same(dir, &[1, 2, 3]);
    assert_eq!(count, before + 100 + if sends { 100 } else { 0 });
}

#[test]
fn a_log_is_cut_whose_end_the_group_does_not_have() {
    a_member_that_was_given_up_comes_back("catch-up-cut", true, false);
}

#[test]
fn a_log_is_cut_if_the_group_has_logged_nothing_since() {
    a_member_that_was_given_up_comes_back("catch-up-cut-idle", false, true);
}

/// Copies of the logs of members.
struct Copies(Vec<(PathBuf, PathBuf)>);

impl Copies {
    fn take(dir: &Path, ids: &[u64]) -> Copies {
        let copy = |id: &u64| {
            let (kept, copy) = (data(dir, *id).join("log"), dir.join(format!("copy-{id}")));
            copy_dir(&kept, &copy);
            (kept, copy)
        };
        Copies(ids.iter().map(copy).collect())
    }

    /// Puts them in the place of the logs.
    fn put_back(self) {
        for (kept, copy) in self.0 {
            std::fs::remove_dir_all(&kept).unwrap();
            std::fs::rename(&copy, &kept).unwrap();
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &to),
            // A spare segment may have got another name.
            false => drop(std::fs::copy(entry.path(), to)),
        }
    }
}
