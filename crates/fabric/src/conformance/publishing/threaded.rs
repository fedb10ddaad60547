//! Cases in which publishers and engines run on threads of their own.
use super::{Nodes, PublishingMember, fill, fill_up};
use crate::conformance::harness::{Harness, PATIENCE};
use crate::conformance::threaded::flush;
use crate::fabric::Fabric;
use crate::publisher::{PublishError, Publisher, SharedPublisher};
use spindle_core::Rank;
use std::thread::scope;
use std::time::Instant;

const MESSAGES: u64 = 5_000;

/// Polls, and sleeps in between, until `count` messages are delivered.
fn run_until<F: Fabric>(node: &mut PublishingMember<F>, count: usize) {
    let start = Instant::now();
    while node.log.messages.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count} messages", node.log.messages.len());
        if node.poll() {
            continue;
        }
        node.fabric.begin_sleep();
        if node.poll() {
            node.fabric.end_sleep();
        } else {
            node.fabric.sleep(PATIENCE);
        }
    }
    // So that the others finish as well.
    while node.poll() {}
    flush(&mut node.fabric);
}

fn run_all<F: Fabric + Send>(nodes: Vec<PublishingMember<F>>, count: usize) -> Vec<Vec<(Rank, Vec<u8>)>> {
    let run = |mut node: PublishingMember<F>| {
        run_until(&mut node, count);
        node
    };
    // The fabrics live until all are done: the others' last posts wake the member that sleeps
    // last.
    let nodes: Vec<PublishingMember<F>> = scope(|scope| {
        let threads: Vec<_> = nodes.into_iter().map(|node| scope.spawn(move || run(node))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the member is well")).collect()
    });
    nodes.into_iter().map(|node| node.log.messages).collect()
}

fn check(logs: &[Vec<(Rank, Vec<u8>)>], streams: u64) {
    assert!(logs.iter().all(|log| *log == logs[0]), "members differ");
    let mut next = vec![0; streams as usize];
    for (_, payload) in &logs[0] {
        let word = |i: usize| u64::from_le_bytes(payload[i * 8..][..8].try_into().unwrap());
        assert_eq!(word(1), next[word(0) as usize]);
        next[word(0) as usize] += 1;
    }
    assert!(next.iter().all(|count| *count == MESSAGES));
}

fn payload(stream: u64, index: u64) -> [u8; 16] {
    let mut payload = [0; 16];
    payload[..8].copy_from_slice(&stream.to_le_bytes());
    payload[8..].copy_from_slice(&index.to_le_bytes());
    payload
}

/// Publishers outrun their rings and wait for room; engines and publishers sleep and wake each
/// other.
pub fn waiting_publishers_and_sleeping_engines_wake_each_other<H: Harness<Fabric: Send>>() {
    let mut nodes = Nodes::<H>::new(2).into_nodes();
    let publishers: Vec<Publisher> = nodes.iter_mut().map(PublishingMember::publisher).collect();
    scope(|scope| {
        for (stream, mut publisher) in (0..).zip(publishers) {
            scope.spawn(move || {
                for index in 0..MESSAGES {
                    fill(publisher.claim_timeout(16, PATIENCE).unwrap(), &payload(stream, index));
                }
            });
        }
        check(&run_all(nodes, 2 * MESSAGES as usize), 2);
    });
}

/// Several threads on one ring; each stream keeps its order.
pub fn threads_share_a_ring<H: Harness<Fabric: Send>>() {
    let mut nodes = Nodes::<H>::new(2).into_nodes();
    let publisher: SharedPublisher = nodes[0].publisher().share();
    scope(|scope| {
        for stream in 0..3 {
            let publisher = publisher.clone();
            scope.spawn(move || {
                for index in 0..MESSAGES {
                    fill(publisher.claim_timeout(16, PATIENCE).unwrap(), &payload(stream, index));
                }
            });
        }
        check(&run_all(nodes, 3 * MESSAGES as usize), 3);
    });
}

/// A thread that waits without a bound is released when the engine stops.
pub fn the_end_frees_a_waiting_thread<H: Harness<Fabric: Send>>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    fill_up(&mut publisher);
    let room = publisher.room();
    scope(|scope| {
        let waiter = scope.spawn(move || publisher.claim_timeout(4, PATIENCE).err());
        room.end();
        assert_eq!(waiter.join().unwrap(), Some(PublishError::Ended));
    });
}
