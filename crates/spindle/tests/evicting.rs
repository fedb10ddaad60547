//! Members that others are told to go on without, at any moment of a change of the view.
mod common;

use common::Scratch;
use spindle::{
    Batch, Config, Ended, Handler, MemberId, Node, Outcome, Poll, Publisher, Receipt, SendError, SubgroupId,
};
use spindle_core::control::{ControlMessage, Request};
use spindle_transport::rendezvous::{ControlSocket, GroupName, RuntimeDir, SendOutcome};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

struct Nothing;

impl Handler for Nothing {
    fn deliver(&mut self, _: SubgroupId, _: &mut Batch<'_>) {}
}

/// Members that this thread polls.
fn create<const N: usize>(scratch: &Scratch, suspect_after: Option<Duration>) -> [Node; N] {
    let joining: [_; N] = std::array::from_fn(|i| {
        let config = Config { id: Some(MemberId(i as u64 + 1)), suspect_after, ..scratch.group(N as u32, LONG) };
        std::thread::spawn(move || config.join().unwrap())
    });
    joining.map(|thread| thread.join().unwrap())
}

fn poll(nodes: &mut [Node]) -> Vec<Result<Poll, Ended>> {
    nodes.iter_mut().map(|node| node.poll(&mut Nothing)).collect()
}

/// Asks the first member to evict the third.
fn evict_the_third(scratch: &Scratch) {
    let client = ControlSocket::client(&RuntimeDir::new(&scratch.0).unwrap(), &GroupName::new("g").unwrap()).unwrap();
    let evict = ControlMessage::Request { from: client.id(), reply: 1, what: Request::Evict(MemberId(3)) };
    assert_eq!(client.send(MemberId(1), &evict, &[]).unwrap(), SendOutcome::Done);
}

/// The first is asked to evict the third while the second leaves: in the old view, between the two,
/// or in the new one.
#[test]
fn a_member_may_be_evicted_at_any_moment_of_a_change() {
    let mut moments = [0; 3];
    for polls in 0..30 {
        let scratch = Scratch::new(&format!("evicting-{polls}"));
        // Nothing means silence.
        let mut nodes: [Node; 3] = create(&scratch, None);
        let _publishers: Vec<_> = nodes.iter_mut().map(|node| node.publisher("all").unwrap()).collect();
        nodes[1].leave();
        let mut left = false;
        for _ in 0..polls {
            left |= poll(&mut nodes).into_iter().any(|polled| matches!(polled, Err(Ended::Left)));
        }
        moments[if nodes[0].view().members.len() == 2 { 2 } else { usize::from(left) }] += 1;
        evict_the_third(&scratch);
        let patience = Instant::now() + LONG;
        let (mut evicted, mut gone) = (false, left);
        while !(evicted && gone && nodes[0].view().members == [MemberId(1)]) {
            for polled in poll(&mut nodes) {
                gone |= matches!(polled, Err(Ended::Left));
                evicted |= matches!(polled, Err(Ended::Evicted { .. }));
            }
            assert!(Instant::now() < patience, "after {polls} polls: {gone} {evicted} {:?}", nodes[0].view().members);
        }
    }
    assert!(moments.iter().all(|count| *count > 0), "too few moments were tried: {moments:?}");
}

/// A handler that takes its time with each message, but never as long as a member may be silent.
struct Slow(u32);

impl Handler for Slow {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {
            std::thread::sleep(Duration::from_millis(30));
            self.0 += 1;
        });
    }
}

#[test]
fn a_member_with_many_slow_upcalls_is_not_silent() {
    let scratch = Scratch::new("slow");
    let [mut slow, mut other] = create(&scratch, Some(Duration::from_millis(200)));
    let mut publisher = other.publisher("all").unwrap();
    let mut slows = Slow(0);
    let patience = Instant::now() + LONG;
    for sent in 1..=40 {
        publisher.send(b"m", LONG).unwrap();
        while slows.0 < sent {
            slow.poll(&mut slows).unwrap();
            // Often, so that it looks at the clock in between.
            (0..100).for_each(|_| _ = other.poll(&mut Nothing).unwrap());
            assert_eq!(other.view().members.len(), 2, "after {sent} messages");
            assert!(Instant::now() < patience);
        }
    }
}

/// The messages that a member has delivered, after so long for each.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Vec<u8>>>>, Duration);

impl Handler for Log {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            thread::sleep(self.1);
            self.0.lock().unwrap().push(message.payload.to_vec());
        });
    }
}

type Receipts = Vec<(Receipt, Vec<u8>)>;

/// Each outcome becomes known, and is true at a member that stays. Returns the numbers of messages
/// that are delivered, not delivered and unknown.
fn check(receipts: &Receipts, delivered: &Log) -> [usize; 3] {
    let mut counts = [0; 3];
    for (receipt, payload) in receipts {
        let outcome = receipt.wait(LONG);
        let times = delivered.0.lock().unwrap().iter().filter(|message| *message == payload).count();
        let (kind, is_true) = match outcome {
            Some(Outcome::Delivered { .. }) => (0, times == 1),
            Some(Outcome::NotDelivered(_)) => (1, times == 0),
            Some(Outcome::Unknown) => (2, times <= 1),
            other => panic!("{other:?} of a message that was delivered {times} times"),
        };
        assert!(is_true, "{receipt:?} was delivered {times} times");
        counts[kind] += 1;
    }
    counts
}

/// Whether that is what every way to send answers now.
fn is_evicted(error: &SendError) -> bool {
    matches!(error, SendError::Ended(Ended::Evicted { id: MemberId(3), .. }))
}

/// The third sends before its eviction and, until it is polled again, after it.
#[test]
fn an_evicted_member_sends_nothing_more_and_all_its_receipts_resolve() {
    let mut counts = [0; 3];
    for polls in 0..30 {
        let scratch = Scratch::new(&format!("evicted-{polls}"));
        let mut nodes: [Node; 3] = create(&scratch, None);
        let mut publishers: Vec<_> = nodes.iter_mut().map(|node| node.publisher("all").unwrap()).collect();
        let mut publisher = publishers.pop().unwrap();
        let mut receipts: Receipts = vec![];
        let mut send = |publisher: &mut Publisher, text: String| {
            receipts.push((publisher.send_tracked(text.as_bytes(), LONG).unwrap(), text.into_bytes()));
        };
        (0..3).for_each(|i| send(&mut publisher, format!("early {i}")));
        let logs: [Log; 3] = Default::default();
        let poll = |nodes: &mut [Node], ranks: Range<usize>| -> Vec<Result<Poll, Ended>> {
            nodes
                .iter_mut()
                .zip(&logs)
                .take(ranks.end)
                .skip(ranks.start)
                .map(|(node, log)| node.poll(&mut log.clone()))
                .collect()
        };
        (0..polls).for_each(|_| assert!(poll(&mut nodes, 0..3).iter().all(Result::is_ok)));
        (0..3).for_each(|i| send(&mut publisher, format!("between {i}")));
        (0..polls % 3).for_each(|_| assert!(poll(&mut nodes, 2..3)[0].is_ok()));
        evict_the_third(&scratch);
        let patience = Instant::now() + LONG;
        while nodes[0].view().members.len() != 2 {
            assert!(poll(&mut nodes, 0..2).iter().all(Result::is_ok));
            assert!(Instant::now() < patience, "the others do not continue");
        }
        (0..3).for_each(|i| send(&mut publisher, format!("late {i}")));
        send(&mut publisher, "x".repeat(100_000));
        while !matches!(poll(&mut nodes, 2..3)[..], [Err(Ended::Evicted { .. })]) {
            assert!(Instant::now() < patience, "it is not evicted");
        }
        assert!(publisher.send(b"too late", LONG).is_err_and(|error| is_evicted(&error)));
        assert!(publisher.send_tracked(b"too late", LONG).is_err_and(|error| is_evicted(&error)));
        assert!(publisher.send_object(vec![0; 100_000], LONG).is_err_and(|error| is_evicted(&error)));
        assert!(publisher.try_claim(8).is_err_and(|error| is_evicted(&error)));
        counts.iter_mut().zip(check(&receipts, &logs[0])).for_each(|(total, count)| *total += count);
    }
    assert!(counts.iter().all(|count| *count > 0), "too few outcomes were tried: {counts:?}");
}

/// The third sends on another thread, and mostly waits for room.
#[test]
fn a_member_that_waits_for_room_is_told_of_its_eviction() {
    let scratch = Scratch::new("evicted-waiting");
    let mut nodes: [Node; 3] = create(&scratch, None);
    let mut publishers: Vec<_> = nodes.iter_mut().map(|node| node.publisher("all").unwrap()).collect();
    let mut publisher = publishers.pop().unwrap();
    let logs = [0, 1, 0].map(|ms| Log(Arc::default(), Duration::from_millis(ms)));
    let mut groups: Vec<_> = nodes.into_iter().zip(&logs).map(|(node, log)| node.start(log.clone()).unwrap()).collect();
    let sending = thread::spawn(move || {
        let mut receipts: Receipts = vec![];
        loop {
            let payload = format!("{} {}", receipts.len(), ".".repeat(1000)).into_bytes();
            match publisher.send_tracked(&payload, LONG) {
                Ok(receipt) => receipts.push((receipt, payload)),
                Err(error) => return (receipts, error, publisher),
            }
        }
    });
    let patience = Instant::now() + LONG;
    while logs[0].0.lock().unwrap().len() < 200 {
        assert!(Instant::now() < patience);
        thread::sleep(Duration::from_millis(1));
    }
    evict_the_third(&scratch);
    let (receipts, error, mut publisher) = sending.join().unwrap();
    assert!(is_evicted(&error), "{error}");
    assert!(publisher.send(b"too late", LONG).is_err_and(|error| is_evicted(&error)));
    assert!(groups.pop().unwrap().ended().is_some_and(|ended| matches!(ended, Ended::Evicted { .. })));
    // The others finish, so all that they deliver is delivered.
    drop(publishers);
    let ending = groups.into_iter().map(|group| thread::spawn(move || group.finish(LONG).map(drop)));
    ending.collect::<Vec<_>>().into_iter().for_each(|member| member.join().unwrap().unwrap());
    let [delivered, ..] = check(&receipts, &logs[0]);
    assert!(delivered > 0, "none of {}", receipts.len());
}
