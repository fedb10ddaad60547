//! Clocks that are wrong: a process with one is refused, and one that steps moves no log.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::{Hosts, start};
use common::Scratch;
use spindle::{
    Batch, ClockSkew, Config, Durability, Handler, JoinError, LogSettings, MemberId, Node, Poll, Publisher, Refusal,
    Subgroup, SubgroupId, WallClock,
};
use spindle_log::{DataDirectory, Disk, FileDisk, LoggedMessage, open_read_only};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);
const YEAR_NS: i64 = 31_536_000_000_000_000;

struct Ignores;

impl Handler for Ignores {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {});
    }
}

/// A clock, and what shifts it.
fn shifted(ns: i64) -> (WallClock, Arc<AtomicI64>) {
    let shift = Arc::new(AtomicI64::new(ns));
    (WallClock::shifted(Arc::clone(&shift)), shift)
}

fn logged(config: Config, dir: &Path) -> Config {
    std::fs::create_dir_all(dir).unwrap();
    let subgroup = Subgroup { window: 16, message_bytes_max: 200, ..Subgroup::new("ledger") };
    let subgroups = vec![Subgroup { durability: Durability::Logged { copies: 1 }, ..subgroup }];
    let log = LogSettings { segment_bytes: 1 << 20, ..LogSettings::default() };
    Config { subgroups, log, data_dir: Some(dir.to_path_buf()), ..config }
}

fn config(scratch: &Scratch, members: u32, id: u64) -> Config {
    let config = Config { runtime_dir: Some(scratch.0.join("run")), ..scratch.group(members, LONG) };
    Config { id: Some(MemberId(id)), ..logged(config, &scratch.0.join(format!("data-{id}"))) }
}

/// The clock, the time of sending and the sender of each record.
fn read(dir: &Path) -> Vec<(u64, u64, u64)> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::read_only(dir.join("log")).unwrap());
    let number = DataDirectory::find(&*disk, "ledger").unwrap().unwrap();
    let mut reader = open_read_only(&disk, number, &mut |_| {}).unwrap().0.reader();
    let mut records = vec![];
    while let Some(record) = reader.next().unwrap() {
        let message = LoggedMessage::parse(record.payload).unwrap();
        records.push((record.clock, message.time, message.sender));
    }
    records
}

/// Polls until `done`.
fn poll_until(nodes: &mut [Node], mut done: impl FnMut(&[Node]) -> bool) {
    let begin = Instant::now();
    while !done(nodes) {
        assert!(begin.elapsed() < LONG, "{:?}", nodes[0].status());
        nodes.iter_mut().for_each(|node| _ = node.poll(&mut Ignores).unwrap());
    }
}

/// Polls until the group has finished.
fn finish(nodes: Vec<Node>) {
    let ending: Vec<_> = nodes
        .into_iter()
        .map(|mut node| {
            thread::spawn(move || {
                let begin = Instant::now();
                while node.poll(&mut Ignores).unwrap() != Poll::Finished {
                    assert!(begin.elapsed() < LONG, "{:?}", node.status());
                }
            })
        })
        .collect();
    ending.into_iter().for_each(|thread| thread.join().unwrap());
}

fn clock_refusal(error: &JoinError) -> ClockSkew {
    match error {
        JoinError::Refused(Refusal::Clock(skew)) => *skew,
        other => panic!("{other}"),
    }
}

/// Two members, which `change` may configure. The group lasts as long as their publishers.
fn pair(scratch: &Scratch, change: impl Fn(Config) -> Config) -> (Vec<Node>, Vec<Publisher>) {
    let joining = [1, 2].map(|id| {
        let config = change(config(scratch, 2, id));
        thread::spawn(move || config.join().unwrap())
    });
    let mut nodes: Vec<Node> = joining.into_iter().map(|thread| thread.join().unwrap()).collect();
    nodes.sort_by_key(Node::id);
    let publishers = nodes.iter_mut().map(|node| node.publisher("ledger").unwrap()).collect();
    (nodes, publishers)
}

/// Joins while the others are polled.
fn join_beside(nodes: &mut [Node], config: Config) -> Result<Node, JoinError> {
    let joining = thread::spawn(move || config.join());
    poll_until(nodes, |_| joining.is_finished());
    joining.join().unwrap()
}

#[test]
fn a_process_whose_clock_is_a_year_off_is_refused() {
    let scratch = Scratch::new("clock-join");
    let (mut nodes, publishers) = pair(&scratch, |config| config);
    for shift in [YEAR_NS, -YEAR_NS] {
        let joining = Config { clock: shifted(shift).0, ..config(&scratch, 2, 3) };
        let error = join_beside(&mut nodes, joining).map(|node| node.id()).unwrap_err();
        let skew = clock_refusal(&error);
        assert_eq!((skew.max_ns, skew.is_running), (300_000_000_000, true));
        let by = i128::from(skew.ours) - i128::from(skew.theirs);
        assert!((by - i128::from(shift)).abs() < 30_000_000_000, "{skew:?}");
        assert!(error.to_string().contains("clock_skew_max is 300.0s"), "{error}");
    }
    let refusals: u64 = nodes.iter().map(|node| node.status().clock.unwrap().refusals).sum();
    assert!(refusals >= 2 && nodes[0].view().members.len() == 2);
    // Within the bound.
    let joining = Config { clock: shifted(60_000_000_000).0, ..config(&scratch, 2, 3) };
    let mut joined = join_beside(&mut nodes, joining).unwrap();
    let mut publisher = joined.publisher("ledger").unwrap();
    nodes.push(joined);
    poll_until(&mut nodes, |nodes| nodes.iter().all(|node| node.view().members.len() == 3));
    publisher.send(b"ahead", LONG).unwrap();
    poll_until(&mut nodes, |nodes| nodes[0].status().clock.unwrap().ahead > Duration::from_secs(30));
    assert_eq!(nodes[2].status().clock.unwrap().ahead, Duration::ZERO);
    drop((publisher, publishers));
    finish(nodes);
}

#[test]
fn a_group_without_a_bound_admits_any_clock() {
    let scratch = Scratch::new("clock-never");
    let (mut nodes, publishers) = pair(&scratch, |config| Config { clock_skew_max: None, ..config });
    let joining = Config { clock_skew_max: None, clock: shifted(YEAR_NS).0, ..config(&scratch, 2, 3) };
    let joined = join_beside(&mut nodes, joining).unwrap();
    nodes.push(joined);
    poll_until(&mut nodes, |nodes| nodes.iter().all(|node| node.view().members.len() == 3));
    drop(publishers);
    finish(nodes);
}

#[test]
fn founders_on_two_hosts_whose_clocks_differ_create_no_group() {
    let hosts = Hosts::new("clock-found", 2, Duration::from_secs(1));
    let scratch = Scratch::new("clock-found-data");
    let founding = [0, 1].map(|seed| {
        let config = logged(hosts.seed(seed, 2), &scratch.0.join(format!("data-{seed}")));
        start(Config { clock: shifted(seed as i64 * YEAR_NS).0, ..config })
    });
    for joined in founding {
        let error = joined.recv_timeout(LONG).unwrap().map(|_| ()).unwrap_err();
        let skew = clock_refusal(&error);
        assert!(!skew.is_running && skew.ours.abs_diff(skew.theirs) > YEAR_NS as u64 / 2, "{skew:?}");
    }
}

#[test]
fn a_member_whose_clock_steps_moves_no_log() {
    let scratch = Scratch::new("clock-step");
    let (clock, shift) = shifted(0);
    let is_first = |config: &Config| config.id == Some(MemberId(1));
    let (mut nodes, mut publishers) = pair(&scratch, |config| match is_first(&config) {
        true => Config { clock: clock.clone(), ..config },
        false => config,
    });
    let before = WallClock::default().now();
    for (step, sent) in [0, YEAR_NS, -YEAR_NS, 0].into_iter().zip(1..) {
        shift.store(step, Ordering::Relaxed);
        publishers.iter_mut().for_each(|publisher| publisher.send(b"now", LONG).unwrap());
        let is_durable = |node: &Node| {
            let subgroup = &node.status().subgroups[0];
            subgroup.stats.delivered == 2 * sent && subgroup.log.is_some_and(|log| log.persisted == log.durable)
        };
        poll_until(&mut nodes, |nodes| nodes.iter().all(is_durable));
        let clocks = [0, 1].map(|node: usize| nodes[node].status().clock.unwrap());
        assert_eq!(clocks[0].stepped_ns.map(i64::signum), (step != 0).then(|| step.signum()), "{clocks:?}");
        assert_eq!(clocks[1].stepped_ns, None);
        assert!(clocks[1].ahead < LONG, "{clocks:?}");
    }
    drop(publishers);
    finish(nodes);
    let after = WallClock::default().now();
    let logs = [1, 2].map(|id| read(&scratch.0.join(format!("data-{id}"))));
    assert_eq!((logs[0].len(), &logs[0]), (8, &logs[1]), "no message is lost");
    for (clock, time, _) in &logs[0] {
        assert!(
            (before..after).contains(time) && (before..after + 8).contains(clock),
            "{before} {time} {clock} {after}"
        );
    }
}

#[test]
fn a_restart_with_a_clock_far_behind_the_log_is_refused() {
    let scratch = Scratch::new("clock-restart");
    let mut nodes = vec![config(&scratch, 1, 1).join().unwrap()];
    let mut publisher = nodes[0].publisher("ledger").unwrap();
    publisher.send(b"once", LONG).unwrap();
    poll_until(&mut nodes, |nodes| nodes[0].status().subgroups[0].stats.delivered == 1);
    drop(publisher);
    finish(nodes);
    let error = Config { clock: shifted(-YEAR_NS).0, ..config(&scratch, 1, 1) }.join().map(|_| ()).unwrap_err();
    match &error {
        JoinError::ClockBehindLog { subgroup, log, now, max, .. } => {
            assert_eq!((subgroup.as_str(), *max), ("ledger", Duration::from_secs(300)));
            assert!(log - now > YEAR_NS as u64 / 2);
        }
        other => panic!("{other}"),
    }
    finish(vec![config(&scratch, 1, 1).join().unwrap()]);
}
