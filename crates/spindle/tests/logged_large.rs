//! Messages of logged subgroups that no ring holds: longer than a segment, and than the queue of the log.
mod common;
#[path = "common/logged.rs"]
mod logged;

use common::Scratch;
use logged::read_log;
use spindle::{
    Batch, Config, Durability, Handler, LogSettings, LoggedExtent, MemberId, Node, Poll, Position, Publisher, Receipt,
    ReplayedMessage, SendError, Subgroup, SubgroupId, ViewId,
};
use spindle_log::{Disk, FileDisk, Version, open_read_only, verify};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
/// Longer than a segment, which has 1 MiB.
const LARGE: usize = 3 << 20;
/// Longer than the queue of the log, which has 16 MiB.
const HUGE: usize = 40 << 20;

/// The length of a message, and its bytes if they are all equal.
type Seen = (usize, Option<u8>);

fn seen(payload: &[u8]) -> Seen {
    let first = payload.first().copied();
    (payload.len(), first.filter(|first| payload.iter().all(|byte| byte == first)))
}

#[derive(Default)]
struct Given(Vec<Seen>);

impl Handler for Given {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.0.push(seen(message.payload)));
    }

    fn replays(&self) -> bool {
        true
    }

    fn replay_from(&mut self, _: SubgroupId, _: &LoggedExtent) -> Option<Position> {
        Some(Position { epoch: ViewId(0), sequence: 0 })
    }

    fn replay(&mut self, _: SubgroupId, message: &ReplayedMessage<'_>) {
        self.0.push(seen(message.payload));
    }
}

fn config(scratch: &Scratch, members: u32, durability: Durability) -> Config {
    let subgroup = Subgroup { window: 8, message_bytes_max: 200, durability, ..Subgroup::new("ledger") };
    let log = LogSettings { segment_bytes: 1 << 20, ..LogSettings::default() };
    let config = Config { runtime_dir: Some(scratch.0.join("run")), ..scratch.group(members, LONG) };
    Config { subgroups: vec![subgroup], log, suspect_after: Some(Duration::from_secs(10)), ..config }
}

fn logged(scratch: &Scratch, members: u32, id: u64) -> Config {
    let data_dir = scratch.0.join(format!("member-{id}"));
    std::fs::create_dir_all(&data_dir).unwrap();
    let durability = Durability::Logged { copies: 1 };
    Config { id: Some(MemberId(id)), data_dir: Some(data_dir), ..config(scratch, members, durability) }
}

/// Reads all records of a log whose every byte is intact: version, clock, sender, message.
fn read(scratch: &Scratch, id: u64) -> Vec<(Version, u64, u64, Seen)> {
    read_log(&scratch.0.join(format!("member-{id}/log")), "ledger", |version, clock, message| {
        (version, clock, message.sender, seen(message.payload))
    })
}

fn poll_until(nodes: &mut [(Node, Given)], mut done: impl FnMut(&[(Node, Given)]) -> bool) {
    let begin = Instant::now();
    while !done(nodes) {
        assert!(begin.elapsed() < LONG, "{:?}", nodes[0].0.status());
        nodes.iter_mut().for_each(|(node, given)| _ = node.poll(given).unwrap());
    }
}

fn finish(nodes: Vec<(Node, Given)>) -> Vec<Vec<Seen>> {
    let ending: Vec<_> = nodes
        .into_iter()
        .map(|(mut node, mut given)| {
            thread::spawn(move || {
                let begin = Instant::now();
                while node.poll(&mut given).unwrap() != Poll::Finished {
                    assert!(begin.elapsed() < LONG, "{:?}", node.status());
                }
                given.0
            })
        })
        .collect();
    ending.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn large_messages_are_whole_in_every_log_and_durable() {
    for (name, durability) in [
        ("large-logged", Durability::Logged { copies: 2 }),
        ("large-durable", Durability::LoggedBeforeDelivery { copies: 2 }),
    ] {
        let scratch = Scratch::new(name);
        let config = Config { data_dir: Some(scratch.0.clone()), ..config(&scratch, 2, durability) };
        let mut nodes: Vec<(Node, Given)> =
            config.local().unwrap().into_iter().map(|node| (node, Given::default())).collect();
        let publishers: Vec<Publisher> = nodes.iter_mut().map(|(node, _)| node.publisher("ledger").unwrap()).collect();
        let sending: Vec<_> = publishers
            .into_iter()
            .zip([1_u8, 2])
            .map(|(mut publisher, tag)| {
                thread::spawn(move || {
                    let lengths = [10, LARGE, 0, 20, HUGE, LARGE, 30];
                    let send = |length| publisher.send_tracked(&vec![tag; length], LONG).unwrap();
                    lengths.map(send).into_iter().collect::<Vec<Receipt>>()
                })
            })
            .collect();
        poll_until(&mut nodes, |_| sending.iter().all(thread::JoinHandle::is_finished));
        let receipts: Vec<Receipt> = sending.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        poll_until(&mut nodes, |_| receipts.iter().all(|receipt| receipt.durable().wait(Duration::ZERO).is_ok()));
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(_, given)| given.0.len() == 14));
        // The thread that writes counts its queue down after it has reported what is on disk.
        poll_until(&mut nodes, |nodes| {
            let log = nodes[0].0.status().subgroups[0].log.unwrap();
            (log.queued_bytes, log.is_full) == (0, false)
        });
        let given = finish(nodes);
        let logs = [1, 2].map(|id| read(&scratch, id));
        assert_eq!(logs[0], logs[1]);
        let messages: Vec<Seen> = logs[0].iter().map(|(.., message)| *message).collect();
        assert_eq!((&messages, &messages), (&given[0], &given[1]));
        assert!(logs[0].is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        // A record is found by its version, and by its time.
        let dir = scratch.0.join("member-1/log");
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::read_only(&dir).unwrap());
        let (readers, _) = open_read_only(&disk, 0, &mut |_| {}).unwrap();
        let (version, clock, ..) = *logs[0].iter().find(|(.., message)| message.0 == HUGE).unwrap();
        let mut reader = readers.reader();
        for by_time in [false, true] {
            if by_time {
                reader.seek_clock(clock)
            } else {
                reader.seek(version)
            }
            let record = reader.next().unwrap().unwrap();
            assert_eq!((record.version, record.clock, record.payload.len()), (version, clock, HUGE + 16));
        }
    }
}

#[test]
fn a_message_beyond_the_bound_is_refused() {
    let scratch = Scratch::new("large-bound");
    let config = Config { data_dir: Some(scratch.0.clone()), ..config(&scratch, 1, Durability::Logged { copies: 1 }) };
    for (object_bytes_max, max) in [(1 << 30, Subgroup::LOGGED_MESSAGE_BYTES_MAX), (1 << 20, 1 << 20), (0, 200)] {
        let mut node = Config { object_bytes_max, ..config.clone() }.local().unwrap().pop().unwrap();
        let mut publisher = node.publisher("ledger").unwrap();
        let error = publisher.send(&vec![0; max as usize + 1], Duration::ZERO).unwrap_err();
        assert!(matches!(error, SendError::TooLong { len, max: bound } if len == max + 1 && bound == max), "{error}");
        drop((node, publisher));
        std::fs::remove_dir_all(scratch.0.join("member-1")).unwrap();
    }
}

/// The member of a child process: sends large messages, each with a byte of its own, and reports how many
/// are durable. With the mode `end` it sends none, and finishes.
fn child(dir: &Path, id: u64, mode: &str) {
    let scratch = Scratch(dir.to_path_buf());
    let mut node = logged(&scratch, 2, id).join().unwrap();
    let publisher = node.publisher("ledger").unwrap();
    let mut nodes = vec![(node, Given::default())];
    if mode == "send" {
        let mut publisher = publisher;
        thread::spawn(move || {
            for number in 1..=u8::MAX {
                let receipt = publisher.send_tracked(&vec![number; LARGE], LONG).unwrap();
                if number % 4 == 0 {
                    receipt.durable().wait(LONG).unwrap();
                    println!("durable {number}");
                }
            }
        });
        poll_until(&mut nodes, |_| false);
    } else {
        drop(publisher);
        let given = finish(nodes).remove(0);
        println!("given {}", given.iter().filter(|seen| **seen == (LARGE, seen.1) && seen.1.is_some()).count());
    }
    std::mem::forget(scratch);
}

/// The child processes run this test, and it does nothing otherwise.
#[test]
fn child_process() {
    let Ok(task) = std::env::var("SPINDLE_TEST_MEMBER") else { return };
    let [dir, id, mode] = *task.split(' ').collect::<Vec<_>>() else { panic!("{task}") };
    child(Path::new(dir), id.parse().unwrap(), mode);
}

fn spawn(scratch: &Scratch, id: u64, mode: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process", "--nocapture"])
        .env("SPINDLE_TEST_MEMBER", format!("{} {id} {mode}", scratch.0.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The next number that a child reports after this word.
fn number(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> u64 {
    // The harness writes the name of the test in front of the first line.
    let found = lines.find_map(|line| line.unwrap().split_once(word).map(|(_, rest)| rest.trim().parse().unwrap()));
    found.unwrap_or_else(|| panic!("the child ends without {word}"))
}

/// The processes are killed while records are written. Each log has all durable messages whole, and no log has
/// a part of a message.
#[test]
fn processes_that_are_killed_in_the_midst_of_large_messages_lose_none_that_was_durable() {
    let scratch = Scratch::new("large-kill");
    std::fs::create_dir_all(&scratch.0).unwrap();
    let mut members = [1, 2].map(|id| spawn(&scratch, id, "send"));
    let mut lines = BufReader::new(members[0].stdout.take().unwrap()).lines();
    let durable = (0..3).map(|_| number(&mut lines, "durable ")).max().unwrap();
    for member in &mut members {
        member.kill().unwrap();
        member.wait().unwrap();
    }
    let begun = [1, 2].map(|id| read(&scratch, id));
    for log in &begun {
        assert!(log.iter().all(|(.., message)| message.0 == LARGE && message.1.is_some()), "{log:?}");
        let numbers = log.iter().filter(|(_, _, sender, _)| *sender == 1).map(|(.., message)| message.1.unwrap());
        assert!(numbers.clone().eq((1..).take(numbers.clone().count())) && numbers.count() as u64 >= durable);
    }
    // The group restarts: the shorter log gets the rest, and both replay all of it.
    let mut members = [1, 2].map(|id| spawn(&scratch, id, "end"));
    let outputs = members.each_mut().map(|member| BufReader::new(member.stdout.take().unwrap()).lines());
    let given = outputs.map(|mut lines| {
        let given = number(&mut lines, "given ");
        // The child must not write to a closed pipe.
        lines.for_each(drop);
        given
    });
    members.iter_mut().for_each(|member| assert!(member.wait().unwrap().success()));
    let ended = [1, 2].map(|id| read(&scratch, id));
    assert_eq!(ended[0], ended[1]);
    assert!(begun.iter().all(|log| ended[0].starts_with(log)));
    assert_eq!(given, [ended[0].len() as u64; 2]);
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::read_only(scratch.0.join("member-1/log")).unwrap());
    let report = verify(&disk, 0, &mut |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
}
