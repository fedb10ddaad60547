//! Subgroups that deliver only what is durable: a message is on all disks when an application gets it.
mod common;

use common::Scratch;
use spindle::{
    Batch, Config, Durability, Handler, LogAccess, LogSettings, Node, Poll, Publisher, ReceiveError, SendError,
    Subgroup, SubgroupId,
};
use spindle_log::Version;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);
const SENDERS: u64 = 3;

/// Checks at each delivery that the logs of all members have the message on disk.
struct Checked {
    logs: Arc<Mutex<Vec<LogAccess>>>,
    given: Vec<Vec<u8>>,
}

fn is_on_all_disks(logs: &[LogAccess], epoch: u64, sequence: u64) -> bool {
    logs.iter().all(|log| log.readers().durable() >= Some(Version::new(epoch, sequence)))
}

impl Handler for Checked {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        let logs = self.logs.lock().unwrap();
        batch.for_each(|message| {
            let sequence = message.round * SENDERS + u64::from(message.sender.0);
            assert!(is_on_all_disks(&logs, 1, sequence), "round {} of {}", message.round, message.sender);
            self.given.push(message.payload.to_vec());
        });
    }
}

fn config(scratch: &Scratch) -> Config {
    let mut config = Config { runtime_dir: Some(scratch.0.join("run")), ..scratch.group(SENDERS as u32, LONG) };
    let ledger = Subgroup { window: 16, message_bytes_max: 200, ..Subgroup::new("ledger") };
    config.subgroups = vec![Subgroup { durability: Durability::LoggedBeforeDelivery { copies: 2 }, ..ledger }];
    let log = LogSettings { segment_bytes: 1 << 20, ..LogSettings::default() };
    Config { data_dir: Some(scratch.0.clone()), log, ..config }
}

fn send(publisher: &mut Publisher, payload: &[u8], mut poll: impl FnMut()) {
    loop {
        match publisher.send(payload, Duration::ZERO) {
            Ok(()) => return,
            Err(SendError::Full { .. }) => poll(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_a_handler_gets_is_on_the_disks_of_all_members() {
    let scratch = Scratch::new("deliver-durable");
    let logs: Arc<Mutex<Vec<LogAccess>>> = Arc::default();
    let mut nodes: Vec<(Node, Checked)> = config(&scratch)
        .local()
        .unwrap()
        .into_iter()
        .map(|node| (node, Checked { logs: Arc::clone(&logs), given: vec![] }))
        .collect();
    *logs.lock().unwrap() = nodes.iter().map(|(node, _)| node.log("ledger").unwrap()).collect();
    let mut publishers: Vec<Publisher> = nodes.iter_mut().map(|(node, _)| node.publisher("ledger").unwrap()).collect();
    for i in 0..200_u32 {
        let text = format!("{i} {}", "x".repeat((i * 37 % 150) as usize));
        let poll = || nodes.iter_mut().for_each(|(node, handler)| _ = node.poll(handler).unwrap());
        send(&mut publishers[i as usize % 3], text.as_bytes(), poll);
    }
    publishers.clear();
    let (start, mut finished) = (Instant::now(), [false; SENDERS as usize]);
    while finished.contains(&false) {
        for ((node, handler), finished) in nodes.iter_mut().zip(&mut finished) {
            *finished = *finished || node.poll(handler).unwrap() == Poll::Finished;
        }
        assert!(start.elapsed() < LONG);
    }
    assert!(nodes.iter().all(|(_, handler)| handler.given.len() == 200 && handler.given == nodes[0].1.given));
}

/// A thread of its own takes the messages, one that delivers nothing before the disks have it.
#[test]
fn what_a_receiver_gets_is_on_the_disks_of_all_members() {
    let scratch = Scratch::new("deliver-durable-receiver");
    let mut nodes: Vec<Node> = config(&scratch).local().unwrap();
    let logs: Vec<LogAccess> = nodes.iter().map(|node| node.log("ledger").unwrap()).collect();
    let mut receiver = nodes[0].receiver("ledger").unwrap();
    let mut publishers: Vec<Publisher> = nodes.iter_mut().map(|node| node.publisher("ledger").unwrap()).collect();
    let taking = std::thread::spawn(move || {
        let mut count = 0;
        loop {
            match receiver.receive(LONG) {
                Ok(deliveries) => deliveries.for_each(|message| {
                    let sequence = message.round * SENDERS + u64::from(message.sender.0);
                    assert!(is_on_all_disks(&logs, 1, sequence));
                    count += 1;
                }),
                Err(ReceiveError::Finished) => return count,
                Err(error) => panic!("{error}"),
            }
        }
    });
    struct Nothing;
    impl Handler for Nothing {
        fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
            batch.for_each(|_| {});
        }
    }
    for i in 0..100_u8 {
        let poll = || nodes.iter_mut().for_each(|node| _ = node.poll(&mut Nothing).unwrap());
        send(&mut publishers[usize::from(i) % 3], &[i; 30], poll);
    }
    publishers.clear();
    let (start, mut finished) = (Instant::now(), [false; SENDERS as usize]);
    while finished.contains(&false) {
        for (node, finished) in nodes.iter_mut().zip(&mut finished) {
            *finished = *finished || node.poll(&mut Nothing).unwrap() == Poll::Finished;
        }
        assert!(start.elapsed() < LONG);
    }
    assert_eq!(taking.join().unwrap(), 100);
}
