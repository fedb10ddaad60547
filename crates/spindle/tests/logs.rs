//! Logged subgroups: what members deliver is on their disks, in order, and a receipt says when.
mod common;
#[path = "common/logged.rs"]
mod logged;

use common::Scratch;
use logged::read_log;
use spindle::{
    Batch, Change, Config, Durability, Ended, Handler, JoinError, LogSettings, MemberId, Node, NotDurable, Publisher,
    Receipt, Rule, SendError, Subgroup, SubgroupId, SubgroupSpec,
};
use spindle_log::LoggedMessage;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

/// The payloads of the deliveries of a member.
#[derive(Default)]
struct Delivered(Vec<Vec<u8>>);

impl Handler for Delivered {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.0.push(message.payload.to_vec()));
    }
}

fn config(scratch: &Scratch, members: u32, copies: u32) -> Config {
    let mut config = Config::new("logs", members);
    let logged = Subgroup { window: 16, message_bytes_max: 200, ..Subgroup::new("ledger") };
    config.subgroups = vec![Subgroup { durability: Durability::Logged { copies }, ..logged }, Subgroup::new("plain")];
    let log = LogSettings { segment_bytes: 1 << 20, ..LogSettings::default() };
    Config { data_dir: Some(scratch.0.clone()), log, ..config }
}

struct Group {
    nodes: Vec<(Node, Delivered)>,
    publishers: Vec<Publisher>,
}

impl Group {
    fn new(config: &Config) -> Group {
        let mut nodes: Vec<_> = config.local().unwrap().into_iter().map(|node| (node, Delivered::default())).collect();
        let publishers = nodes.iter_mut().map(|(node, _)| node.publisher("ledger").unwrap()).collect();
        Group { nodes, publishers }
    }

    fn poll(&mut self) {
        for (node, delivered) in &mut self.nodes {
            node.poll(delivered).unwrap();
        }
    }

    fn poll_until(&mut self, what: &str, mut done: impl FnMut(&Group) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.poll();
            let statuses = || self.nodes.iter().map(|(node, _)| node.status()).collect::<Vec<_>>();
            assert!(start.elapsed() < LONG, "{what}: {:?}", statuses());
        }
    }

    fn send(&mut self, member: usize, payload: &[u8]) -> Receipt {
        loop {
            match self.publishers[member].send_tracked(payload, Duration::ZERO) {
                Ok(receipt) => return receipt,
                Err(SendError::Full { .. }) => self.poll(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn log_dir(scratch: &Scratch, member: u64) -> PathBuf {
    scratch.0.join(format!("member-{member}/log"))
}

/// A record: its version, clock, sender, and message.
type Logged = ((u64, u64), u64, u64, Vec<u8>);

/// The durable records of a log in their order.
fn read(dir: &Path, name: &str) -> Vec<Logged> {
    read_log(dir, name, |version, clock, LoggedMessage { sender, time, payload }| {
        assert!(time <= clock);
        ((version.epoch, version.sequence), clock, sender, payload.to_vec())
    })
}

#[test]
fn what_is_durable_is_in_the_log_of_each_member_in_the_order_of_delivery() {
    let scratch = Scratch::new("logs-order");
    let mut group = Group::new(&config(&scratch, 3, 2));
    let mut receipts = vec![];
    for i in 0..300_u32 {
        let payload = format!("{i} {}", "x".repeat((i * 37 % 150) as usize));
        receipts.push(group.send(i as usize % 3, payload.as_bytes()));
    }
    group.poll_until("durable", |_| receipts.iter().all(|receipt| receipt.durable().wait(Duration::ZERO).is_ok()));
    let log = group.nodes[0].0.status().subgroups[0].log.unwrap();
    assert!(log.durable <= log.persisted && log.durable.is_some() && !log.is_full, "{log:?}");
    assert!(log.commits.count() > 0 && log.commits.sum() > Duration::ZERO, "{log:?}");
    assert!(log.disk_bytes >= 1 << 20, "a segment: {log:?}");
    assert_eq!(group.nodes[0].0.status().subgroups[1].log, None);
    let logs: Vec<Vec<Logged>> = (1..=3).map(|member| read(&log_dir(&scratch, member), "ledger")).collect();
    assert!(logs[0].is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    for ((_, delivered), log) in group.nodes.iter().zip(&logs) {
        assert_eq!(log, &logs[0]);
        let messages: Vec<&Vec<u8>> = log.iter().map(|(.., message)| message).collect();
        assert_eq!(messages, delivered.0.iter().collect::<Vec<_>>());
        assert_eq!(log.len(), 300);
    }
    let senders: Vec<u64> = logs[0].iter().map(|(_, _, sender, _)| *sender).collect();
    assert!([1, 2, 3].iter().all(|id| senders.iter().filter(|sender| *sender == id).count() == 100));
}

#[test]
fn a_group_that_has_finished_has_all_of_it_on_all_disks() {
    let scratch = Scratch::new("logs-finish");
    let mut group = Group::new(&config(&scratch, 2, 2));
    let receipts: Vec<Receipt> = (0..50_u8).map(|i| group.send(usize::from(i) % 2, &[i; 20])).collect();
    group.publishers.clear();
    let mut finished = [false; 2];
    let start = Instant::now();
    while finished.contains(&false) {
        for ((node, delivered), finished) in group.nodes.iter_mut().zip(&mut finished) {
            if !*finished {
                *finished = node.poll(delivered).unwrap() == spindle::Poll::Finished;
            }
        }
        assert!(start.elapsed() < LONG);
    }
    assert!(receipts.iter().all(|receipt| receipt.durable().wait(Duration::ZERO).is_ok()));
    let logs = [1, 2].map(|member| read(&log_dir(&scratch, member), "ledger"));
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0].len(), 50);
}

#[test]
fn a_log_continues_when_the_view_changes() {
    let scratch = Scratch::new("logs-view");
    let mut group = Group::new(&config(&scratch, 3, 2));
    // Some of them are on their way when the view ends.
    let mut receipts: Vec<Receipt> = (0..20_u8).map(|i| group.send(usize::from(i) % 3, &[i; 20])).collect();
    let spec = SubgroupSpec {
        window: 8,
        message_bytes_max: 100,
        member_rule: Rule::Everyone,
        durability: Durability::Logged { copies: 2 },
        ..SubgroupSpec::of_everyone("ledger")
    };
    assert!(group.nodes[0].0.propose_change(Change::Alter(spec.clone())).unwrap());
    group.poll_until("view 2", |group| group.nodes.iter().all(|(node, _)| node.view().id.0 == 2));
    let is_done = |receipt: &Receipt| match receipt.durable().wait(Duration::ZERO) {
        Ok(()) => true,
        Err(NotDurable::Undelivered { .. } | NotDurable::Unsynced { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    group.poll_until("durable in view 2", |_| receipts.iter().all(is_done));
    // The third member dies.
    group.nodes.pop();
    group.publishers.pop();
    let in_memory = SubgroupSpec { durability: Durability::InMemory, ..spec };
    let refused = group.nodes[0].0.propose_change(Change::Alter(in_memory)).unwrap_err();
    assert!(refused.to_string().contains("durability"), "{refused}");
    receipts.extend((20..40_u8).map(|i| group.send(usize::from(i) % 2, &[i; 20])));
    group.poll_until("view 3", |group| group.nodes.iter().all(|(node, _)| node.view().id.0 == 3));
    receipts.extend((40..60_u8).map(|i| group.send(usize::from(i) % 2, &[i; 20])));
    group.poll_until("durable", |_| receipts.iter().all(is_done));
    let logs = [1, 2].map(|member| read(&log_dir(&scratch, member), "ledger"));
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0].len(), 60);
    assert!(logs[0].is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    assert_eq!(logs[0].iter().map(|(.., message)| message[0]).max(), Some(59));
    // The third member's log is a prefix.
    let third = read(&log_dir(&scratch, 3), "ledger");
    assert_eq!(third[..], logs[0][..third.len()]);
}

#[test]
fn a_message_waits_for_enough_copies_and_says_so() {
    let scratch = Scratch::new("logs-copies");
    let mut group = Group::new(&config(&scratch, 2, 3));
    let receipt = group.send(0, b"alone");
    group.poll_until("delivery", |group| group.nodes[0].1.0.len() == 1 && receipt.outcome().is_some());
    let persisted = |group: &Group| group.nodes[0].0.status().subgroups[0].log.unwrap().persisted > Some(0);
    group.poll_until("the disk", persisted);
    let error = receipt.durable().wait(Duration::ZERO).unwrap_err();
    assert_eq!(error, NotDurable::TooFewCopies { present: 2, needed: 3 });
    assert_eq!(
        error.to_string(),
        "the message was delivered, and 2 of 3 members that a durable message needs are in the subgroup: start more"
    );
    let mut future = pin!(receipt.durable());
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(group);
    let ended = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(ended, Poll::Ready(Err(NotDurable::Unknown)));
}

#[test]
fn a_receipt_of_a_subgroup_in_memory_is_not_durable() {
    let mut node = Config::new("memory", 1).local().unwrap().pop().unwrap();
    let mut publisher = node.publisher("all").unwrap();
    let receipt = publisher.send_tracked(b"x", Duration::ZERO).unwrap();
    assert_eq!(receipt.durable().wait(SHORT), Err(NotDurable::InMemory));
}

#[test]
fn a_message_that_no_ring_holds_is_refused_where_no_object_is_allowed() {
    let scratch = Scratch::new("logs-long");
    let mut group = Group::new(&Config { object_bytes_max: 0, ..config(&scratch, 1, 1) });
    let error = group.publishers[0].send(&[0; 201], Duration::ZERO).unwrap_err();
    assert!(matches!(error, SendError::TooLong { len: 201, max: 200 }), "{error:?}");
    let receipt = group.send(0, &[7; 200]);
    group.poll_until("durable", |_| receipt.durable().wait(Duration::ZERO).is_ok());
}

#[test]
fn several_threads_send_in_a_logged_subgroup() {
    let scratch = Scratch::new("logs-threads");
    let mut group = Group::new(&config(&scratch, 1, 1));
    let publisher = group.publishers.pop().unwrap().share();
    let send = |mut publisher: spindle::SharedPublisher| {
        std::thread::spawn(move || {
            let sent = (0..100_u8).map(|i| publisher.send_tracked(&[i; 9], LONG).unwrap());
            sent.collect::<Vec<_>>()
        })
    };
    let threads = [send(publisher.clone()), send(publisher)];
    group.poll_until("sending", |_| threads.iter().all(|thread| thread.is_finished()));
    let receipts: Vec<Receipt> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    group.poll_until("durable", |_| receipts.iter().all(|receipt| receipt.durable().wait(Duration::ZERO).is_ok()));
    assert_eq!(read(&log_dir(&scratch, 1), "ledger").len(), 200);
}

#[test]
fn a_configuration_without_a_place_for_logs_is_refused_and_so_are_old_logs() {
    let scratch = Scratch::new("logs-refused");
    let config = config(&scratch, 1, 1);
    let error = Config { data_dir: None, ..config.clone() }.local().unwrap_err();
    assert_eq!(
        error.to_string(),
        "subgroup \"ledger\" is logged, and this process has no directory for its log: set member.data_dir"
    );
    drop(config.local().unwrap());
    let error = config.local().unwrap_err();
    let JoinError::OldLogs { path } = &error else { panic!("{error}") };
    assert_eq!(*path, log_dir(&scratch, 1));
    let log = LogSettings { segment_bytes: 5000, ..config.log };
    assert!(matches!(Config { log, ..config.clone() }.local().unwrap_err(), JoinError::Log(_)));
    let mut fifo = config.clone();
    fifo.subgroups[0].order = spindle::Order::Fifo;
    assert!(matches!(fifo.local().unwrap_err(), JoinError::View(_)));
    let file = scratch.0.join("file");
    std::fs::write(&file, "").unwrap();
    let error = Config { data_dir: Some(file), ..config }.local().unwrap_err();
    assert!(matches!(error, JoinError::LogDir { .. }), "{error}");
}

#[test]
fn a_log_that_is_too_long_loses_its_oldest_segments() {
    let scratch = Scratch::new("logs-retention");
    let mut config = config(&scratch, 1, 1);
    config.log = LogSettings { segment_bytes: 8192, bytes_max: Some(1), ..LogSettings::default() };
    let mut group = Group::new(&config);
    let receipts: Vec<Receipt> = (0..150_u8).map(|i| group.send(0, &[i; 200])).collect();
    let last = receipts.last().unwrap().durable();
    group.poll_until("durable", |_| last.wait(Duration::ZERO).is_ok());
    let start = Instant::now();
    // The thread of the logs prunes once a second, if something was written.
    let first = loop {
        let receipt = group.send(0, b"small");
        group.poll_until("durable", |_| receipt.durable().wait(Duration::ZERO).is_ok());
        let first = read(&log_dir(&scratch, 1), "ledger")[0].3.clone();
        if first != [0; 200] || start.elapsed() > LONG {
            break first;
        }
    };
    assert!(first[0] > 100 || first == b"small", "{first:?}");
}

#[test]
fn a_member_whose_log_fails_ends_and_the_others_continue() {
    let scratch = Scratch::new("logs-failure");
    let mut group = Group::new(&config(&scratch, 2, 1));
    let receipt = group.send(0, b"first");
    group.poll_until("durable", |_| receipt.durable().wait(Duration::ZERO).is_ok());
    // New segments of the second member can't be made any more.
    let log = log_dir(&scratch, 2);
    std::fs::rename(&log, scratch.0.join("gone")).unwrap();
    std::fs::write(&log, "no directory").unwrap();
    let start = Instant::now();
    let (mut second, mut delivered) = group.nodes.pop().unwrap();
    let error = 'ended: loop {
        for i in 0..8_u8 {
            let _ = group.publishers[0].send(&[i; 200], Duration::ZERO);
        }
        group.poll();
        for _ in 0..4 {
            if let Err(error) = second.poll(&mut delivered) {
                break 'ended error;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", second.status());
    };
    assert!(matches!(&error, Ended::Log { subgroup, .. } if subgroup == "ledger"), "{error}");
    drop(second);
    assert_eq!(group.nodes[0].0.id(), MemberId(1));
    group.poll_until("view 2", |group| group.nodes[0].0.view().members.len() == 1);
    let receipt = group.send(0, b"last");
    group.poll_until("durable", |_| receipt.durable().wait(Duration::ZERO).is_ok());
}

/// The process passes the check, and its directory is spoilt before it is admitted. No suspicion
/// ends it.
#[test]
fn a_member_that_cant_make_its_logs_leaves_in_order_and_may_come_again() {
    let scratch = Scratch::new("logs-unmade");
    let config = |member: u32| Config {
        runtime_dir: Some(scratch.0.join("run")),
        data_dir: Some(scratch.0.join(format!("data-{member}"))),
        suspect_after: None,
        gather_timeout: LONG,
        ..config(&scratch, 2, 1)
    };
    let (tell, told) = std::sync::mpsc::channel();
    let first = config(1);
    let first = std::thread::spawn(move || {
        first.join_with(&mut |_| tell.send(()).unwrap_or_default(), &std::sync::atomic::AtomicBool::new(false))
    });
    told.recv_timeout(LONG).unwrap();
    let log = scratch.0.join("data-1/log");
    std::fs::write(&log, "no directory").unwrap();
    let mut second = config(2).join().unwrap();
    let _publisher = second.publisher("ledger").unwrap();
    let error = first.join().unwrap().unwrap_err();
    assert!(matches!(error, JoinError::LogDir { .. }), "{error}");
    let mut poll_until = |done: &mut dyn FnMut(&Node) -> bool| {
        let (start, mut delivered) = (Instant::now(), Delivered::default());
        while !done(&second) {
            second.poll(&mut delivered).unwrap();
            assert!(start.elapsed() < LONG, "{:?}", second.status());
        }
    };
    poll_until(&mut |second| second.view().members.len() == 1);
    std::fs::remove_file(&log).unwrap();
    let again = config(1);
    let again = std::thread::spawn(move || again.join());
    poll_until(&mut |second| second.view().members.len() == 2 && again.is_finished());
    again.join().unwrap().unwrap();
}

#[test]
fn a_subgroup_that_comes_back_without_a_log_ends_the_waits_for_the_old_one() {
    let scratch = Scratch::new("logs-dropped");
    // With one copy too few, no message becomes durable.
    let mut group = Group::new(&config(&scratch, 2, 3));
    let receipt = group.send(0, b"logged");
    group.poll_until("delivery", |_| receipt.outcome().is_some());
    assert!(group.nodes[0].0.propose_change(Change::Drop("ledger".to_string())).unwrap());
    group.poll_until("view 2", |group| group.nodes.iter().all(|(node, _)| node.view().id.0 == 2));
    assert_eq!(receipt.durable().wait(Duration::ZERO), Err(NotDurable::Unknown));
    let spec = SubgroupSpec { window: 16, message_bytes_max: 200, ..SubgroupSpec::of_everyone("ledger") };
    assert!(group.nodes[0].0.propose_change(Change::Create(spec)).unwrap());
    group.poll_until("view 3", |group| group.nodes.iter().all(|(node, _)| node.view().id.0 == 3));
    assert_eq!(receipt.durable().wait(LONG), Err(NotDurable::Dropped));
    let start = Instant::now();
    let receipt = loop {
        // The ring of the first subgroup has to be looked through before.
        match group.publishers[0].send_tracked(b"in memory", Duration::ZERO) {
            Ok(receipt) => break receipt,
            Err(SendError::NoSender | SendError::Full { .. }) => assert!(start.elapsed() < LONG),
            Err(error) => panic!("{error}"),
        }
        group.poll();
    };
    group.poll_until("delivery", |_| receipt.outcome().is_some());
    assert_eq!(receipt.durable().wait(LONG), Err(NotDurable::InMemory));
    let logs: Vec<_> = group.nodes[0].0.status().subgroups.into_iter().map(|subgroup| subgroup.log).collect();
    assert_eq!(logs, [None, None]);
}

#[test]
fn a_member_makes_no_segments_for_a_subgroup_that_it_is_not_in() {
    let scratch = Scratch::new("logs-elsewhere");
    let mut config = config(&scratch, 3, 2);
    config.subgroups[0].members = spindle::Who::First(2);
    let nodes: Vec<Node> = config.local().unwrap();
    let files = |member| {
        let names = std::fs::read_dir(log_dir(&scratch, member).join("subgroup-00000000")).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    // A thread makes them.
    let start = Instant::now();
    while !files(1).iter().any(|name| name.starts_with("spare-")) {
        assert!(start.elapsed() < LONG, "{:?}", files(1));
        std::thread::yield_now();
    }
    drop(nodes);
    assert_eq!(files(3), ["name", "state"]);
}
