//! A group whose processes have all ended restarts from its logs.
mod common;
#[path = "common/logged.rs"]
mod logged;

use common::Scratch;
use logged::read_log;
use spindle::{
    Batch, BootstrapProgress, Config, Durability, Group, Handler, JoinError, LogSettings, LoggedExtent, MemberId, Node,
    Position, Publisher, ReplayedMessage, Subgroup, SubgroupId, ViewId, Who,
};
use spindle_core::control::RestartRecord;
use spindle_log::{DataDirectory, FileDisk, Store};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

/// The messages that a member was given, in order.
#[derive(Clone, Default)]
struct Given(Arc<Mutex<Vec<String>>>);

impl Given {
    fn take(&self, payload: &[u8]) {
        self.0.lock().unwrap().push(String::from_utf8(payload.to_vec()).unwrap());
    }
}

impl Handler for Given {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.take(message.payload));
    }

    fn replays(&self) -> bool {
        true
    }

    fn replay_from(&mut self, _: SubgroupId, log: &LoggedExtent) -> Option<Position> {
        assert_eq!((&*log.subgroup, log.is_complete), ("ledger", true));
        Some(Position { epoch: ViewId(0), sequence: 0 })
    }

    fn replay(&mut self, _: SubgroupId, message: &ReplayedMessage<'_>) {
        self.take(message.payload);
    }
}

struct Sink;

impl Handler for Sink {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(drop);
    }

    fn replays(&self) -> bool {
        true
    }
}

fn config(scratch: &Scratch, members: u32, id: u64) -> Config {
    let mut config = Config { runtime_dir: Some(scratch.0.join("run")), ..scratch.group(members, LONG) };
    let logged = Subgroup { window: 16, message_bytes_max: 200, ..Subgroup::new("ledger") };
    config.subgroups = vec![Subgroup { durability: Durability::Logged { copies: 1 }, ..logged }];
    let log = LogSettings { segment_bytes: 1 << 20, ..LogSettings::default() };
    let data_dir = Some(scratch.0.join(format!("data-{id}")));
    std::fs::create_dir_all(data_dir.as_ref().unwrap()).unwrap();
    Config { id: Some(MemberId(id)), data_dir, log, ..config }
}

/// Joins with all of these members.
fn join(scratch: &Scratch, members: u32, ids: &[u64]) -> Vec<Node> {
    let joining: Vec<_> = ids
        .iter()
        .map(|id| {
            let config = config(scratch, members, *id);
            thread::spawn(move || config.join().unwrap())
        })
        .collect();
    joining.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Sends one message from each member, and finishes.
/// Returns what each member was given.
fn send_and_finish(nodes: Vec<Node>, text: &str) -> Vec<Vec<String>> {
    let ending: Vec<_> = nodes
        .into_iter()
        .map(|mut node| {
            let text = format!("{text} of {}", node.id());
            let mut publisher = node.publisher("ledger").unwrap();
            let given = Given::default();
            let group = node.start(given.clone()).unwrap();
            thread::spawn(move || {
                publisher.send(text.as_bytes(), LONG).unwrap();
                drop(publisher);
                group.finish(LONG).unwrap();
                given.0.lock().unwrap().clone()
            })
        })
        .collect();
    ending.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn log_dir(scratch: &Scratch, id: u64) -> PathBuf {
    scratch.0.join(format!("data-{id}/log"))
}

/// The messages in the log of a member, with their epochs.
fn read(scratch: &Scratch, id: u64) -> Vec<(u64, String)> {
    read_log(&log_dir(scratch, id), "ledger", |version, _, message| {
        (version.epoch, String::from_utf8(message.payload.to_vec()).unwrap())
    })
}

#[test]
fn a_group_that_has_finished_continues_its_logs() {
    let scratch = Scratch::new("restart-finished");
    send_and_finish(join(&scratch, 3, &[1, 2, 3]), "first");
    let first = read(&scratch, 1);
    assert_eq!(first.len(), 3);
    // In another order, with another number of founders.
    let nodes = join(&scratch, 2, &[3, 1, 2]);
    assert_eq!(nodes[0].view().members, [MemberId(1), MemberId(2), MemberId(3)]);
    assert_eq!(nodes[0].view().id.count(), 2);
    let given = send_and_finish(nodes, "second");
    let second = read(&scratch, 2);
    // Each member is given the messages of its log again, and then the new ones.
    let all: Vec<String> = second.iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(given, [all.clone(), all.clone(), all]);
    assert_eq!(second[..3], first);
    assert_eq!(second.len(), 6);
    assert!(second[3..].iter().all(|(epoch, text)| *epoch == 2 && text.starts_with("second")), "{second:?}");
    assert_eq!([read(&scratch, 1), read(&scratch, 3)], [second.clone(), second]);
}

/// A member accepts a view although it lacks the logs of subgroups in which it is not.
#[test]
fn members_of_different_logged_subgroups_restart_together() {
    let scratch = Scratch::new("restart-subgroups");
    let config = |id: u64| {
        let mut config = config(&scratch, 3, id);
        let logged = config.subgroups.remove(0);
        let of = |name: &str, rank| Subgroup { name: name.into(), members: Who::Ranks(vec![rank]), ..logged.clone() };
        config.subgroups = vec![of("one", 0), of("two", 1)];
        config
    };
    for round in 1..=3 {
        let joining = [1, 2, 3].map(|id| {
            let config = config(id);
            thread::spawn(move || config.join().unwrap())
        });
        let nodes = joining.map(|thread| thread.join().unwrap());
        assert_eq!(nodes[0].view().id.count(), round);
        let ending = nodes.into_iter().zip(["one", "two", ""]).map(|(mut node, name)| {
            let publisher = node.publisher(name).ok();
            let group = node.start(Sink).unwrap();
            thread::spawn(move || {
                if let Some(mut publisher) = publisher {
                    publisher.send(b"a message", LONG).unwrap();
                }
                group.finish(LONG).unwrap();
            })
        });
        ending.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_restart_waits_for_the_members_of_the_last_view_and_names_them() {
    let scratch = Scratch::new("restart-waits");
    send_and_finish(join(&scratch, 2, &[1, 2]), "first");
    let cancelled = Arc::new(AtomicBool::new(false));
    let (say, hear) = std::sync::mpsc::channel();
    let waiting = {
        let (config, cancelled) = (config(&scratch, 2, 1), Arc::clone(&cancelled));
        let mut tell = move |progress: &BootstrapProgress| drop(say.send(progress.clone()));
        thread::spawn(move || config.join_with(&mut tell, &cancelled))
    };
    let is_missing = |progress: &BootstrapProgress| {
        progress.restart.as_ref().is_some_and(|restart| restart.missing == [MemberId(2)])
    };
    let start = Instant::now();
    let seen = loop {
        let progress = hear.recv_timeout(LONG).unwrap();
        if is_missing(&progress) {
            break progress;
        }
        assert!(start.elapsed() < LONG);
    };
    let told = seen.to_string();
    assert!(told.ends_with("the group restarts when these members of its last view, 1, are back: 2"), "{told}");
    // A member without the logs takes no part in the restart, and creates no other group.
    let fresh = thread::spawn({
        let config = config(&scratch, 1, 3);
        move || config.join().unwrap()
    });
    let second = thread::spawn({
        let config = config(&scratch, 2, 2);
        move || config.join().unwrap()
    });
    let first = waiting.join().unwrap().unwrap();
    let second = second.join().unwrap();
    assert_eq!(first.view().members, [MemberId(1), MemberId(2)]);
    let stop = Arc::new(AtomicBool::new(false));
    let polling: Vec<_> = [first, second]
        .into_iter()
        .map(|mut node| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                // The group does not finish while this exists.
                let _publisher = node.publisher("ledger").unwrap();
                let mut handler = Given::default();
                while !stop.load(Ordering::Relaxed) || node.view().members.len() < 3 {
                    node.poll(&mut handler).unwrap();
                    node.sleep(&mut handler, Duration::from_millis(1)).unwrap();
                    assert!(start.elapsed() < LONG);
                }
            })
        })
        .collect();
    let fresh = fresh.join().unwrap();
    assert_eq!(fresh.view().members.len(), 3);
    stop.store(true, Ordering::Relaxed);
    polling.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_view_changes_while_a_member_replays_its_log() {
    const MESSAGES: usize = 40_000;
    let scratch = Scratch::new("restart-replaying");
    let sending: Vec<_> = join(&scratch, 2, &[1, 2])
        .into_iter()
        .map(|mut node| {
            let mut publisher = node.publisher("ledger").unwrap();
            let group = node.start(Given::default()).unwrap();
            thread::spawn(move || {
                (0..MESSAGES / 2).for_each(|_| publisher.send(b"first", LONG).unwrap());
                drop(publisher);
                group.finish(LONG).unwrap();
            })
        })
        .collect();
    sending.into_iter().for_each(|thread| thread.join().unwrap());
    let [mut one, mut two] = <[Node; 2]>::try_from(join(&scratch, 2, &[1, 2])).unwrap();
    let mut publisher = one.publisher("ledger").unwrap();
    let _open = two.publisher("ledger").unwrap();
    publisher.send(b"second", LONG).unwrap();
    let config = config(&scratch, 1, 3);
    let fresh = thread::spawn(move || config.join().unwrap());
    let (mut quick, mut late) = (Given::default(), Given::default());
    let given = |given: &Given| given.0.lock().unwrap().len();
    let start = Instant::now();
    // The other member has not replayed anything when the view begins to change.
    while !one.status().is_changing {
        one.poll(&mut quick).unwrap();
        assert!(start.elapsed() < LONG, "{:?}", one.status());
    }
    let mut overlaps = false;
    while given(&quick) <= MESSAGES || given(&late) <= MESSAGES || two.view().members.len() < 3 {
        one.poll(&mut quick).unwrap();
        two.poll(&mut late).unwrap();
        overlaps |= two.status().is_changing && given(&late) < MESSAGES;
        assert!(start.elapsed() < LONG, "{} {} {:?}", given(&quick), given(&late), two.status());
    }
    assert!(overlaps);
    let all = late.0.lock().unwrap();
    assert_eq!((all.len(), &*all[MESSAGES - 1], &*all[MESSAGES]), (MESSAGES + 1, "first", "second"));
    assert_eq!(fresh.join().unwrap().view().members.len(), 3);
}

#[test]
fn a_group_restarts_without_members_that_are_lost() {
    let scratch = Scratch::new("restart-lost");
    send_and_finish(join(&scratch, 3, &[1, 2, 3]), "first");
    let joining = [1, 3].map(|id| {
        let config = Config { lost: vec![MemberId(2)], ..config(&scratch, 3, id) };
        thread::spawn(move || config.join().unwrap())
    });
    let nodes = joining.map(|thread| thread.join().unwrap());
    assert_eq!(nodes[0].view().members, [MemberId(1), MemberId(3)]);
    assert!(nodes[0].view().id.era() > 0);
    send_and_finish(Vec::from(nodes), "second");
    assert_eq!(read(&scratch, 1).len(), 5);
    assert_eq!(read(&scratch, 1), read(&scratch, 3));
}

#[test]
fn logs_of_another_group_or_member_are_refused() {
    let scratch = Scratch::new("restart-foreign");
    send_and_finish(join(&scratch, 1, &[1]), "first");
    let ours = config(&scratch, 1, 1);
    let error = Config { group: "other".into(), ..ours.clone() }.join().unwrap_err();
    assert!(matches!(error, JoinError::Log(spindle_log::Error::Foreign { field: "group", .. })), "{error}");
    let error = Config { id: Some(MemberId(2)), ..ours.clone() }.join().unwrap_err();
    assert!(matches!(error, JoinError::Log(spindle_log::Error::Foreign { field: "member", .. })), "{error}");
    // By default the id is that of the logs.
    let node = Config { id: None, ..ours.clone() }.join().unwrap();
    assert_eq!(node.id(), MemberId(1));
    let error = ours.join().unwrap_err();
    assert!(matches!(error, JoinError::Log(spindle_log::Error::Locked { .. })), "{error}");
}

/// The kind of the value in a journal that contains the record of a member.
const RECORD: u32 = 1;

/// Changes the record of a member that does not run. Returns it.
fn change_record(scratch: &Scratch, id: u64, change: impl FnOnce(&mut RestartRecord)) -> RestartRecord {
    let disk = Arc::new(FileDisk::new(log_dir(scratch, id)).unwrap());
    let identity = DataDirectory::identity_of(&*disk).unwrap().unwrap();
    let files = spindle_log::Config { segment_bytes: 1 << 20, ..spindle_log::Config::default() };
    let mut store = Store::open(disk, &identity, files).unwrap();
    let words: Vec<u64> =
        store.journal().value(RECORD).unwrap().as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut record = RestartRecord::decode(&words).unwrap();
    change(&mut record);
    let bytes: Vec<u8> = record.encode().into_iter().flat_map(u64::to_le_bytes).collect();
    store.journal().put(RECORD, &bytes).unwrap();
    record
}

/// Removes the records of a member that does not run, but for the oldest ones.
fn keep_records(scratch: &Scratch, id: u64, count: usize) {
    let disk = Arc::new(FileDisk::new(log_dir(scratch, id)).unwrap());
    let identity = DataDirectory::identity_of(&*disk).unwrap().unwrap();
    let files = spindle_log::Config { segment_bytes: 1 << 20, ..spindle_log::Config::default() };
    let mut store = Store::open(disk, &identity, files).unwrap();
    let (number, _) = store.open_named("ledger", &mut |_| {}).unwrap();
    let log = store.log(number).unwrap();
    let mut reader = log.readers().reader();
    let last = (0..count).filter_map(|_| reader.next().unwrap().map(|record| record.version)).last();
    log.cut_after(last).unwrap();
}

fn run(mut node: Node) -> (Publisher, Group) {
    let publisher = node.publisher("ledger").unwrap();
    (publisher, node.start(|_: SubgroupId, batch: &mut Batch<'_>| batch.for_each(drop)).unwrap())
}

/// A process of `chaos --disks`, seed 1: its log had records that the group did not have, so no member
/// could send what came behind them.
#[test]
fn a_member_that_a_restart_leaves_out_loses_the_records_that_the_group_does_not_have() {
    let scratch = Scratch::new("restart-cut");
    send_and_finish(join(&scratch, 3, &[1, 2, 3]), "first");
    // It had entered the view, and had logged more of it than the others.
    let view = change_record(&scratch, 3, |_| {}).view;
    change_record(&scratch, 3, |record| record.enter(view.clone(), RestartRecord::unknown_hosts(&view), MemberId(3)));
    for id in [1, 2] {
        keep_records(&scratch, id, 1);
    }
    let late = config(&scratch, 3, 3);
    let late = thread::spawn(move || late.join().unwrap());
    let mut ending = vec![];
    // The two restart the group, and admit the third member once they run.
    let mut groups: Vec<_> = join(&scratch, 3, &[1, 2]).into_iter().map(run).collect();
    groups.push(run(late.join().unwrap()));
    for (mut publisher, group) in groups {
        ending.push(thread::spawn(move || {
            publisher.send(b"second", LONG).unwrap();
            drop(publisher);
            group.finish(LONG).unwrap();
        }));
    }
    ending.into_iter().for_each(|thread| thread.join().unwrap());
    let all = read(&scratch, 1);
    let firsts = all.iter().filter(|(epoch, _)| *epoch == 1).count();
    assert_eq!((firsts, &read(&scratch, 2)), (1, &all));
    assert_eq!(read(&scratch, 3), all);
}

/// `chaos --disks`, seed 4: all members had just entered the view, so none counted as complete, and the one
/// with the longest log refused to send it.
#[test]
fn the_longest_log_is_sent_though_its_member_had_not_caught_up() {
    let scratch = Scratch::new("restart-lagging");
    send_and_finish(join(&scratch, 2, &[1, 2]), "first");
    send_and_finish(join(&scratch, 2, &[1, 2]), "second");
    keep_records(&scratch, 1, 2);
    keep_records(&scratch, 2, 1);
    for id in [1, 2] {
        let view = change_record(&scratch, id, |_| {}).view;
        assert_eq!(view.id, ViewId(2));
        change_record(&scratch, id, |record| {
            record.enter(view.clone(), RestartRecord::unknown_hosts(&view), MemberId(id))
        });
    }
    let ending: Vec<_> = join(&scratch, 2, &[1, 2])
        .into_iter()
        .map(run)
        .map(|(mut publisher, group)| {
            thread::spawn(move || {
                publisher.send(b"third", LONG).unwrap();
                drop(publisher);
                group.finish(LONG).unwrap();
            })
        })
        .collect();
    ending.into_iter().for_each(|thread| thread.join().unwrap());
    let all = read(&scratch, 1);
    assert_eq!(all.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>(), [1, 1, 3, 3]);
    assert_eq!(read(&scratch, 2), all);
}

/// `chaos --disks`, seed 1: a member that was killed while it caught up was left out of each restart after
/// that.
#[test]
fn a_log_that_catches_up_before_and_after_admission_is_complete() {
    let scratch = Scratch::new("restart-complete");
    send_and_finish(join(&scratch, 2, &[1, 2]), "first");
    let view = change_record(&scratch, 2, |_| {}).view;
    let mut nodes = join(&scratch, 2, &[1, 2]);
    // Its process ends without a word, and so does the next one, in the view after its admission.
    drop(nodes.pop());
    let (mut publisher, group) = run(nodes.remove(0));
    publisher.send(b"second", LONG).unwrap();
    let start = Instant::now();
    while read(&scratch, 1).len() < 3 {
        assert!(start.elapsed() < LONG);
        thread::yield_now();
    }
    change_record(&scratch, 2, |record| {
        let view = spindle::View { id: group.view().id, ..view };
        record.enter(view.clone(), RestartRecord::unknown_hosts(&view), MemberId(2));
    });
    let (_, second) = run(join(&scratch, 1, &[2]).remove(0));
    drop(publisher);
    thread::scope(|scope| {
        let finished = scope.spawn(|| second.finish(LONG));
        group.finish(LONG).unwrap();
        finished.join().unwrap().unwrap();
    });
    assert_eq!(read(&scratch, 2), read(&scratch, 1));
    assert_eq!(change_record(&scratch, 2, |_| {}).origins, []);
}
