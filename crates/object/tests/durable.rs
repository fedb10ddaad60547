//! Objects whose messages are logged: the state comes back when all members have ended.
mod common;

use common::{LONG, Scratch, Store, StoreCalls, block_on, wait_until};
use serde::{Deserialize, Serialize};
use spindle::{Config, Durability, Group, LogSettings, MemberId, NotDurable, Position, Subgroup};
use spindle_object::{At, DurableError, ReadAtError, Replicated, Settings, StartError, Stopped, commands};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The data directories of members, which are removed with the test.
struct Data(Scratch);

impl Drop for Data {
    fn drop(&mut self) {
        (1..=4).for_each(|id| drop(std::fs::remove_dir_all(self.dir(id))));
    }
}

impl Data {
    fn dir(&self, id: u64) -> std::path::PathBuf {
        self.0.path.with_extension(format!("data-{id}"))
    }

    fn config(&self, members: u32, id: u64) -> Config {
        std::fs::create_dir_all(self.dir(id)).unwrap();
        let log = LogSettings { segment_bytes: 8192, ..LogSettings::default() };
        let subgroup = Subgroup { durability: Durability::Logged { copies: 1 }, ..Subgroup::new("all") };
        let config = self.0.config(members);
        Config { id: Some(MemberId(id)), data_dir: Some(self.dir(id)), log, subgroups: vec![subgroup], ..config }
    }

    fn join(&self, ids: &[u64]) -> Vec<Member> {
        self.join_with(ids, |_| Settings::default())
    }

    fn join_with(&self, ids: &[u64], settings: impl Fn(u64) -> Settings) -> Vec<Member> {
        let count = ids.len() as u32;
        let joining: Vec<_> = ids
            .iter()
            .map(|id| {
                let (config, settings) = (self.config(count, *id), settings(*id));
                thread::spawn(move || Replicated::join(config, "all", Store::default(), settings).unwrap())
            })
            .collect();
        joining.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    /// The names of the files of a member's log that begin like this, in order.
    fn files(&self, id: u64, begin: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir(id).join("log/subgroup-00000000")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(begin) && !name.ends_with("tmp")).collect();
        names.sort();
        names
    }
}

type Member = (Group, Replicated<Store>);

fn start(config: Config) -> Result<Member, StartError> {
    Replicated::join(config, "all", Store::default(), Settings::default())
}

fn finish(members: Vec<Member>) {
    let ending: Vec<_> = members
        .into_iter()
        .map(|(group, store)| {
            drop(store);
            thread::spawn(move || drop(group.finish(LONG).unwrap()))
        })
        .collect();
    ending.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_state_survives_the_end_of_all_members() {
    let data = Data(Scratch::new("durable"));
    let members = data.join(&[1, 2]);
    for (round, (_, store)) in members.iter().cycle().take(20).enumerate() {
        let sum = store.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        assert_eq!(sum, round as u64 + 1);
    }
    members[1].1.call(&StoreCalls::roll(), LONG).unwrap();
    let before = members[0].1.read_latest(Store::clone, LONG).unwrap();
    finish(members);
    for round in 0..2 {
        let members = data.join(&[2, 1]);
        let sum = members[0].1.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        assert_eq!(sum, 21 + round);
        for (_, store) in &members {
            let now = store.read_latest(Store::clone, LONG).unwrap();
            assert_eq!((now.entries["sum"], now.rolled), (21 + round, before.rolled.clone()));
        }
        finish(members);
    }
}

#[test]
fn a_member_whose_log_lacks_the_first_messages_says_so() {
    let data = Data(Scratch::new("durable-pruned"));
    let config = data.config(1, 1);
    let pruned = || Config { log: LogSettings { bytes_max: Some(1), ..config.log }, ..config.clone() };
    let (group, store) = start(pruned()).unwrap();
    // Until the first segment is pruned.
    let mut count = 0;
    while count < 200 || !is_pruned_to(&data, 1) {
        store.call(&StoreCalls::add(format!("key {}", count % 10), 1), LONG).unwrap();
        count += 1;
    }
    finish(vec![(group, store)]);
    let error = start(pruned()).unwrap_err();
    let StartError::Stopped(Stopped::LogIncomplete { first: Some(_) }) = error else { panic!("{error}") };
}

/// The announcements in the log have the fingerprint, also before there is a snapshot.
#[test]
fn another_program_does_not_continue_a_log() {
    let data = Data(Scratch::new("durable-other"));
    let settings = |calls_kept| Settings { calls_kept, ..every(0) };
    let members = data.join_with(&[1], |_| settings(256));
    members[0].1.call_durable(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
    finish(members);
    assert_eq!(data.files(1, "snapshot-"), [""; 0]);
    let started = Replicated::join(data.config(1, 1), "all", Store::default(), settings(7));
    let error = started.map(|_| ()).unwrap_err();
    let StartError::Stopped(Stopped::Fingerprint { version: 1, mine, group }) = error else { panic!("{error}") };
    assert_ne!(mine, group);
    // The right one does.
    assert_alike(&data.join_with(&[1], |_| settings(256)), 1);
}

#[test]
fn a_durable_call_is_on_all_disks_and_says_why_not() {
    let data = Data(Scratch::new("durable-calls"));
    let members = data.join(&[1, 2]);
    let add = StoreCalls::add("sum".to_owned(), 1);
    assert_eq!(members[0].1.call_durable(&add, LONG).unwrap(), 1);
    let sum = block_on(members[1].1.call_durable_async(&add));
    assert_eq!(sum.unwrap(), 2);
    finish(members);

    let in_memory = Scratch::new("durable-memory");
    let (_group, store) = in_memory.join(1);
    let error = store.call_durable(&add, LONG).unwrap_err();
    let DurableError::NotDurable { id, reply, why } = error else { panic!("{error}") };
    assert_eq!((reply.unwrap(), why), (1, NotDurable::InMemory));
    assert_eq!(store.outcome::<u64>(id, LONG).unwrap(), 1);
}

#[test]
fn a_durable_call_with_too_few_members_has_its_reply() {
    let data = Data(Scratch::new("durable-copies"));
    let mut config = data.config(1, 1);
    config.subgroups[0].durability = Durability::Logged { copies: 2 };
    let (_group, store) = start(config).unwrap();
    let error = store.call_durable(&StoreCalls::add("sum".to_owned(), 1), Duration::from_millis(100)).unwrap_err();
    let DurableError::NotDurable { reply, why, .. } = error else { panic!("{error}") };
    assert_eq!((reply.unwrap(), why), (1, NotDurable::TooFewCopies { present: 1, needed: 2 }));
}

/// Where messages are logged before delivery, a reply comes after the disks, and `read_at` reads what stays.
#[test]
fn each_reply_is_durable_where_messages_are_logged_before_delivery() {
    let data = Data(Scratch::new("durable-before"));
    let before = |copies| Durability::LoggedBeforeDelivery { copies };
    let join = |ids: [u64; 2]| {
        let joining = ids.map(|id| {
            let mut config = data.config(2, id);
            config.subgroups[0].durability = before(2);
            thread::spawn(move || start(config).unwrap())
        });
        joining.map(|thread| thread.join().unwrap())
    };
    let add = StoreCalls::add("sum".to_owned(), 1);
    for round in 1..=2 {
        let members = join([1, 2]);
        for (number, (_, store)) in members.iter().enumerate() {
            let sum = 2 * round - 1 + number as u64;
            assert_eq!(store.call(&add, LONG).unwrap(), sum);
            let logged = store.logged().expect("the reply came after the disk");
            assert_eq!(store.read_at(At::Version(logged), |store| store.entries["sum"], LONG).unwrap(), sum);
        }
        finish(members.into());
    }
}

/// Adds to a key until a condition holds, and returns the sum.
fn add_until(store: &Replicated<Store>, what: &str, mut holds: impl FnMut() -> bool) -> u64 {
    let (mut sum, until) = (0, Instant::now() + LONG);
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        sum = store.call_durable(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
    }
    sum
}

/// Whether the log of the first member begins behind this segment.
fn is_pruned_to(data: &Data, segment: u64) -> bool {
    data.files(1, "segment-").first().is_some_and(|first| *first > format!("segment-{segment:016x}"))
}

/// Settings with a snapshot after so many calls.
fn every(commands: u64) -> Settings {
    Settings { snapshot_every_commands: commands, snapshot_every_bytes: 0, ..Settings::default() }
}

fn assert_alike(members: &[Member], sum: u64) {
    for (_, store) in members {
        assert_eq!(store.read_latest(|store| store.entries["sum"], LONG).unwrap(), sum);
    }
    let digests: Vec<u64> = members.iter().map(|(_, store)| store.digest()).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

#[test]
fn members_restart_from_different_snapshots_and_a_pruned_log() {
    let data = Data(Scratch::new("durable-snapshots"));
    // The third member writes none, and keeps its whole log.
    let settings = |id| every([0, 7, 30, 0][id as usize]);
    let mut members = data.join_with(&[1, 2, 3], settings);
    for round in 0..2 {
        let mut before: Vec<_> = (1..=2).map(|id| data.files(id, "snapshot-")).collect();
        let sum = add_until(&members[0].1, "snapshots of two members", || {
            let now: Vec<_> = (1..=2).map(|id| data.files(id, "snapshot-")).collect();
            let is_new = now
                .iter()
                .zip(&before)
                .all(|(now, before)| now.len() == 2 && now[0] > before.last().cloned().unwrap_or_default());
            is_new && (round == 1 || is_pruned_to(&data, 0))
        });
        before.clear();
        assert_eq!(data.files(3, "snapshot-"), [""; 0]);
        assert_alike(&members, sum);
        finish(members);
        assert!(is_pruned_to(&data, 0));
        members = data.join_with(&[[2, 3, 1], [3, 1, 2]][round], settings);
        assert_alike(&members, sum);
    }
    finish(members);
}

#[test]
fn members_that_joined_with_a_state_restart_without_those_before() {
    let data = Data(Scratch::new("durable-joiners"));
    let founders = data.join_with(&[1, 2], |_| every(5));
    let sum = add_until(&founders[0].1, "a pruned log", || is_pruned_to(&data, 0));
    // The second one is away while the first one prunes what it lacks.
    let mut founders = founders.into_iter();
    let (first, (group, store)) = (founders.next().unwrap(), founders.next().unwrap());
    drop(store);
    group.leave(LONG).unwrap();
    let last = data.files(2, "segment-").last().cloned().unwrap();
    let sum = sum.max(add_until(&first.1, "more of the log to be pruned", || {
        data.files(1, "segment-").first().is_some_and(|first| *first > last)
    }));
    let mut joined = data.join_with(&[2, 3], |_| every(5));
    assert_alike(&joined, sum);
    wait_until("the states of both", || {
        [2, 3]
            .iter()
            .all(|id| data.files(*id, "snapshot-").last().is_some_and(|name| name.ends_with("ffffffffffffffff")))
    });
    for (_, store) in &joined {
        let read = |at| store.read_at(at, |store| store.entries["sum"], LONG);
        assert_eq!(read(At::Time(SystemTime::now())).unwrap(), sum);
        let error = read(At::Time(SystemTime::UNIX_EPOCH)).unwrap_err();
        let ReadAtError::Pruned { oldest: Some(oldest), time: Some(time) } = error else { panic!("{error}") };
        assert_eq!((read(At::Version(oldest)).unwrap(), read(At::Time(time)).unwrap()), (sum, sum));
    }
    drop(first.1);
    first.0.leave(LONG).unwrap();
    for round in 0..2 {
        joined[0].1.call_durable(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        finish(joined);
        joined = data.join_with(&[3, 2], |_| every(5));
        assert_alike(&joined, sum + 1 + round);
    }
    finish(joined);
}

/// The second member leaves, so the next messages are on one disk. The members that come later have
/// their effect only, and the third one not even that on its disk.
#[test]
fn messages_on_one_disk_are_pruned_once_all_others_have_a_state_with_them() {
    let data = Data(Scratch::new("durable-lost"));
    let join = |founders, id, settings| {
        let mut config = data.config(founders, id);
        config.subgroups[0].durability = Durability::Logged { copies: 2 };
        thread::spawn(move || Replicated::join(config, "all", Store::default(), settings).unwrap())
    };
    let [first, second] = [join(2, 1, every(5)), join(2, 2, every(5))].map(|thread| thread.join().unwrap());
    drop(second.1);
    second.0.leave(LONG).unwrap();
    let add = || first.1.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
    wait_until("some segments of one member", || {
        add();
        data.files(1, "segment-").len() > 2
    });
    let (third, third_store) = join(1, 3, every(0)).join().unwrap();
    let newest = || data.files(1, "snapshot-").last().cloned().unwrap_or_default();
    // The thread prunes behind one snapshot before it writes the next.
    for _ in 0..4 {
        let before = newest();
        add_until(&first.1, "a snapshot", || newest() > before);
    }
    assert!(!is_pruned_to(&data, 0), "the only copy was pruned: {:?}", data.files(1, "segment-"));
    let _fourth = join(1, 4, every(5)).join().unwrap();
    drop(third_store);
    third.leave(LONG).unwrap();
    add_until(&first.1, "the log to be pruned", || is_pruned_to(&data, 0));
}

/// An object that takes long to encode, on the threads of the test.
#[derive(Clone, Default, Deserialize)]
struct Slow(u64);

/// The name of the thread on which it does.
const SLOW_THREAD: &str = "slow-joiner";

impl Serialize for Slow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 > 0 && thread::current().name() == Some(SLOW_THREAD) {
            thread::sleep(Duration::from_secs(4));
        }
        serializer.serialize_newtype_struct("Slow", &self.0)
    }
}

#[commands]
impl Slow {
    #[command]
    fn add(&mut self, more: u64) -> u64 {
        self.0 += more;
        self.0
    }
}

/// The thread that joins polls nothing, so it must not encode the state that it has taken over.
#[test]
fn a_joiner_is_not_evicted_while_its_first_snapshot_is_encoded() {
    let mut data = Data(Scratch::new("durable-slow"));
    data.0.suspect_after = Some(Duration::from_secs(1));
    let join = |founders, id| {
        let config = data.config(founders, id);
        let join = move || Replicated::join(config, "all", Slow::default(), every(5)).unwrap();
        thread::Builder::new().name(SLOW_THREAD.to_owned()).spawn(join).unwrap()
    };
    let founders = [join(2, 1), join(2, 2)].map(|thread| thread.join().unwrap());
    founders[0].1.call(&SlowCalls::add(1), LONG).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // A member that is silent while others wait for it becomes suspected.
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                founders[0].1.call(&SlowCalls::add(1), LONG).unwrap();
            }
        });
        let joined = join(1, 3).join();
        let is_first = |name: &String| name.ends_with("ffffffffffffffff");
        let called = joined.map(|(_group, store)| {
            let until = Instant::now() + LONG;
            while !data.files(3, "snapshot-").iter().any(is_first) && store.ended().is_none() && Instant::now() < until
            {
                thread::yield_now();
            }
            (data.files(3, "snapshot-"), store.call(&SlowCalls::add(1), LONG), founders[1].0.view().members.len())
        });
        is_over.store(true, Ordering::Release);
        let Ok((files, Ok(sum), 3)) = &called else { panic!("{called:?}") };
        assert!(files.iter().any(is_first) && *sum > 1);
    });
}

#[test]
fn earlier_states_are_read_from_the_disk() {
    let data = Data(Scratch::new("durable-history"));
    let settings = || Settings { prunes_log: false, ..every(10) };
    let members = data.join_with(&[1, 2], |_| settings());
    let mut known = vec![];
    for i in 1..=60 {
        let (_, store) = &members[i as usize % 2];
        store.call_durable(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        known.push((i, SystemTime::now(), store.logged().unwrap()));
    }
    wait_until("a snapshot of each", || [1, 2].iter().all(|id| data.files(*id, "snapshot-").len() > 1));
    for (_, store) in &members {
        for (sum, time, version) in known.iter().step_by(7) {
            for at in [At::Time(*time), At::Version(*version)] {
                assert_eq!(store.read_at(at, |store| store.entries["sum"], LONG).unwrap(), *sum, "{at:?}");
            }
        }
        // The group is idle, and a message makes this time final.
        let now = store.read_at(At::Time(SystemTime::now()), |store| store.entries["sum"], LONG).unwrap();
        assert_eq!(now, 60);
        assert_eq!(store.read_at(At::Time(SystemTime::UNIX_EPOCH), Store::len, LONG).unwrap(), 0, "before the first");
        let soon = SystemTime::now() + Duration::from_millis(50);
        assert_eq!(store.read_at(At::Time(soon), |store| store.entries["sum"], LONG).unwrap(), 60);
        assert!(SystemTime::now() > soon);
        let later = Position { epoch: spindle::ViewId(99), sequence: 0 };
        let error = store.read_at(At::Version(later), Store::len, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, ReadAtError::TimedOut { logged: Some(_), .. }), "{error}");
    }
    finish(members);
    // The same after a restart.
    let members = data.join_with(&[2, 1], |_| settings());
    let (sum, time, _) = known[30];
    assert_eq!(members[0].1.read_at(At::Time(time), |store| store.entries["sum"], LONG).unwrap(), sum);
    finish(members);
}

#[test]
fn a_read_of_a_pruned_state_says_which_is_the_oldest() {
    let data = Data(Scratch::new("durable-history-pruned"));
    let mut members = data.join_with(&[1], |_| every(5));
    let (_, store) = &members[0];
    let early = SystemTime::now();
    let sum = add_until(store, "a pruned log", || is_pruned_to(&data, 2));
    let error = store.read_at(At::Time(early), Store::len, LONG).unwrap_err();
    let ReadAtError::Pruned { oldest: Some(oldest), time: Some(time) } = error else { panic!("{error}") };
    assert!(time > early);
    // Without another call no snapshot replaces that one.
    let then = store.read_at(At::Version(oldest), |store| store.entries["sum"], LONG);
    assert!(matches!(then, Ok(then) if then < sum) || matches!(then, Err(ReadAtError::Pruned { .. })), "{then:?}");
    finish(members.split_off(0));
}
