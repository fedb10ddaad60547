//! Tasks that send and receive, on a bare executor: a thread that parks until it is woken.
mod common;

use common::Scratch;
use spindle::{
    Batch, Config, Ended, Group, MemberId, Node, Outcome, Publisher, ReceiveError, Receiver, SendError, SubgroupId,
};
use spindle_core::control::{ControlMessage, Request};
use spindle_transport::rendezvous::{ControlSocket, GroupName, RuntimeDir, SendOutcome};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a future. A lost wake-up fails, as nothing else ends the sleep in time.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let patience = Instant::now() + LONG;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < patience, "no wake-up came");
        thread::park_timeout(LONG);
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

type Handles = (Node, Publisher, Receiver);

fn members(name: &str, count: u32) -> Vec<Handles> {
    let mut config = Config::new(name, count);
    config.subgroups[0].window = 4;
    config.subgroups[0].message_bytes_max = 64;
    // Sleeps at once, so that every step needs a wake-up.
    config.spin_for = Duration::ZERO;
    let handles = |mut node: Node| {
        let (publisher, receiver) = (node.publisher("all").unwrap(), node.receiver("all").unwrap());
        (node, publisher, receiver)
    };
    config.local().unwrap().into_iter().map(handles).collect()
}

fn start(node: Node) -> Group {
    node.start(|_: SubgroupId, _: &mut Batch<'_>| {}).unwrap()
}

#[test]
fn no_wake_up_is_lost_between_tasks_and_the_polling_thread() {
    const EACH: u32 = 5_000;
    let mut threads = Vec::new();
    for (node, mut publisher, receiver) in members("stress", 2) {
        threads.push(thread::spawn(move || {
            let group = start(node);
            let sender = thread::spawn(move || {
                for number in 0..EACH {
                    block_on(publisher.send_async(&number.to_le_bytes())).unwrap();
                }
            });
            let mut stream = receiver.into_stream();
            let mut got = Vec::new();
            let never = Waker::from(Arc::new(Count::default()));
            loop {
                // Futures that are dropped while they wait change nothing.
                let taken = poll_once(pin!(stream.next()), &never);
                let taken = match taken {
                    Poll::Ready(taken) => taken,
                    Poll::Pending => block_on(stream.next()),
                };
                let Some(delivery) = taken else { break };
                let delivery = delivery.unwrap();
                assert_eq!(delivery.view.members[delivery.sender.index()], delivery.sender_id);
                got.push((delivery.sender_id, delivery.round, delivery.payload));
            }
            sender.join().unwrap();
            group.finish(LONG).unwrap();
            got
        }));
    }
    let got: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(got[0].len(), 2 * EACH as usize);
    assert_eq!(got[0], got[1]);
}

#[test]
fn messages_are_lent_to_a_task_which_learns_of_the_end() {
    let (node, mut publisher, mut receiver) = members("lent", 1).remove(0);
    let group = start(node);
    let large = vec![7; 1_000];
    block_on(publisher.send_async(b"small")).unwrap();
    block_on(publisher.send_async(&large)).unwrap();
    let receipt = block_on(publisher.send_tracked_async(&large)).unwrap();
    drop(publisher);
    let mut got = Vec::new();
    let end = block_on(async {
        loop {
            match receiver.receive_async().await {
                Ok(mut deliveries) => got.extend(deliveries.iter().map(|message| message.payload.to_vec())),
                Err(end) => break end,
            }
        }
    });
    assert!(matches!(end, ReceiveError::Finished), "{end}");
    assert_eq!(got, [b"small".to_vec(), large.clone(), large]);
    assert!(matches!(block_on(receipt), Outcome::Delivered { .. }));
    group.finish(LONG).unwrap();
}

#[test]
fn objects_wait_for_room_in_tasks() {
    let (node, mut publisher, receiver) = members("objects", 1).remove(0);
    let group = start(node);
    let sender = thread::spawn(move || {
        for number in 0..100_u8 {
            block_on(publisher.send_async(&[number; 500])).unwrap();
        }
    });
    let mut stream = receiver.into_stream();
    for number in 0..100_u8 {
        assert_eq!(block_on(stream.next()).unwrap().unwrap().payload, [number; 500]);
    }
    sender.join().unwrap();
    assert!(block_on(stream.next()).is_none());
    assert!(block_on(stream.next()).is_none());
    group.finish(LONG).unwrap();
}

#[test]
fn a_dropped_future_sends_nothing_and_loses_nothing() {
    let (mut node, mut publisher, mut receiver) = members("dropped", 1).remove(0);
    let mut handler = |_: SubgroupId, _: &mut Batch<'_>| {};
    let woken = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut sent = 0;
    // The node is not polled, so the ring fills up.
    while let Poll::Ready(outcome) = poll_once(pin!(publisher.send_async(&[sent; 60])), &waker) {
        outcome.unwrap();
        sent += 1;
        assert!(sent < 100, "the ring is never full");
    }
    assert!(poll_once(pin!(receiver.receive_async()), &waker).is_pending());
    // No dropped future is woken, or got or sent a message.
    let mut next = 0;
    let patience = Instant::now() + LONG;
    while next < sent {
        node.poll(&mut handler).unwrap();
        if let Poll::Ready(deliveries) = poll_once(pin!(receiver.receive_async()), Waker::noop()) {
            for message in deliveries.unwrap().iter() {
                assert_eq!(message.payload, [next; 60]);
                next += 1;
            }
        }
        assert!(Instant::now() < patience, "{next} of {sent}");
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    for _ in 0..10 {
        node.poll(&mut handler).unwrap();
    }
    assert!(poll_once(pin!(receiver.receive_async()), Waker::noop()).is_pending());
}

#[test]
fn tasks_that_wait_learn_that_the_member_has_left() {
    let mut members = members("left", 2);
    let (_other, _, _) = members.pop().map(|(node, publisher, receiver)| (start(node), publisher, receiver)).unwrap();
    let (node, mut publisher, receiver) = members.pop().unwrap();
    let group = start(node);
    let mut stream = receiver.into_stream();
    let taker = thread::spawn(move || {
        let end = block_on(async {
            loop {
                match stream.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(end)) => break end,
                    None => panic!("the other member has not finished"),
                }
            }
        });
        assert!(block_on(stream.next()).is_none());
        end
    });
    let sender = thread::spawn(move || {
        loop {
            if let Err(end) = block_on(publisher.send_async(&[1; 64])) {
                break end;
            }
        }
    });
    let _ = group.leave(LONG);
    let (taken, sent) = (taker.join().unwrap(), sender.join().unwrap());
    assert!(matches!(taken, Ended::Left), "{taken}");
    assert!(matches!(sent, SendError::Ended(Ended::Left)), "{sent}");
}

#[test]
fn futures_and_streams_may_move_between_threads() {
    fn check<T: Send>(_: T) {}
    fn check_stream<T: Send + Unpin + futures_core::Stream>(_: T) {}
    let (_node, mut publisher, mut receiver) = members("moved", 1).remove(0);
    check(publisher.claim_async(1));
    check(publisher.send_async(b"never polled"));
    check(publisher.send_tracked_async(b"never polled"));
    check(receiver.receive_async());
    let mut shared = publisher.share();
    check(shared.claim_async(1));
    check(shared.send_async(b"never polled"));
    check(shared.send_tracked_async(b"never polled"));
    let mut stream = receiver.into_stream();
    check(stream.next());
    check_stream(stream);
}

#[test]
fn tasks_with_clones_send_across_a_view_change() {
    const EACH: u32 = 1_000;
    const TASKS: u32 = 3;
    let mut members = members("clones", 3);
    let (leaver, unused, _) = members.pop().unwrap();
    drop(unused);
    let leaver = start(leaver);
    let (receiving, silent, receiver) = members.pop().unwrap();
    drop(silent);
    let receiving = start(receiving);
    let (sending, publisher, own) = members.pop().unwrap();
    let sending = start(sending);
    let publisher = publisher.share();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let mut publisher = publisher.clone();
            thread::spawn(move || {
                for number in 0..EACH {
                    block_on(publisher.send_async(&[task, number].map(u32::to_le_bytes).concat())).unwrap();
                }
            })
        })
        .collect();
    drop(publisher);
    let take = |receiver: Receiver, leaves: Option<Group>| {
        let (mut stream, mut got, mut leaves) = (receiver.into_stream(), Vec::new(), leaves);
        while let Some(delivery) = block_on(stream.next()) {
            let delivery = delivery.unwrap();
            got.push((delivery.view.id, delivery.payload));
            if got.len() == (TASKS * EACH / 2) as usize
                && let Some(group) = leaves.take()
            {
                group.leave(LONG).unwrap();
            }
        }
        got
    };
    let there = thread::spawn(move || take(receiver, None));
    let here = take(own, Some(leaver));
    assert_eq!(here, there.join().unwrap());
    assert_eq!(here.len(), (TASKS * EACH) as usize);
    assert!(here.last().unwrap().0 > here[0].0, "the view has not changed while tasks sent");
    for task in 0..TASKS {
        let numbers = here.iter().filter(|(_, payload)| payload[..4] == task.to_le_bytes());
        let numbers: Vec<_> =
            numbers.map(|(_, payload)| u32::from_le_bytes(payload[4..].try_into().unwrap())).collect();
        assert!(numbers.iter().copied().eq(0..EACH), "task {task}");
    }
    tasks.into_iter().for_each(|task| task.join().unwrap());
    for group in [sending, receiving] {
        group.finish(LONG).unwrap();
    }
}

/// Takes what `receiver` has, without a wait.
fn drain(receiver: &mut Receiver, got: &mut Vec<Vec<u8>>) {
    while let Some(mut deliveries) = receiver.try_receive().unwrap() {
        got.extend(deliveries.iter().map(|message| message.payload.to_vec()));
    }
}

#[test]
fn a_sender_waits_while_the_window_is_full_and_continues() {
    let (mut node, mut publisher, mut receiver) = members("window", 1).remove(0);
    let mut handler = |_: SubgroupId, _: &mut Batch<'_>| {};
    let woken = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&woken));
    let (mut got, mut waits) = (Vec::new(), 0);
    for number in 0..100_u8 {
        let payload = [number; 60];
        let mut sending = pin!(publisher.send_async(&payload));
        loop {
            let before = woken.0.load(Ordering::Relaxed);
            if let Poll::Ready(outcome) = poll_once(sending.as_mut(), &waker) {
                break outcome.unwrap();
            }
            waits += 1;
            // The node delivers, but the receiver takes nothing: there is no room.
            node.poll(&mut handler).unwrap();
            let patience = Instant::now() + LONG;
            // The future is polled again only once it is woken.
            while woken.0.load(Ordering::Relaxed) == before {
                drain(&mut receiver, &mut got);
                node.poll(&mut handler).unwrap();
                assert!(Instant::now() < patience, "message {number}: no wake-up came");
            }
        }
    }
    let patience = Instant::now() + LONG;
    while got.len() < 100 {
        node.poll(&mut handler).unwrap();
        drain(&mut receiver, &mut got);
        assert!(Instant::now() < patience, "{} of 100", got.len());
    }
    assert!(waits > 0, "the window was never full");
    assert!(got.iter().zip(0..).all(|(payload, number)| *payload == [number; 60]));
}

#[test]
fn a_dropped_future_returns_its_permit() {
    let (mut node, mut publisher, mut receiver) = members("permit", 1).remove(0);
    let mut handler = |_: SubgroupId, _: &mut Batch<'_>| {};
    let mut sent = 0;
    while let Poll::Ready(outcome) = poll_once(pin!(publisher.send_async(&[1; 60])), Waker::noop()) {
        outcome.unwrap();
        sent += 1;
        assert!(sent < 100, "the ring is never full");
    }
    // Each holds a permit, and waits for room for the object's name. More than permits exist.
    for _ in 0..100 {
        assert!(poll_once(pin!(publisher.send_async(&[2; 500])), Waker::noop()).is_pending());
    }
    let (mut got, patience) = (Vec::new(), Instant::now() + LONG);
    let mut poll = |got: &mut Vec<Vec<u8>>, until: usize| {
        while got.len() < until {
            node.poll(&mut handler).unwrap();
            drain(&mut receiver, got);
            assert!(Instant::now() < patience, "{} of {until}", got.len());
        }
    };
    poll(&mut got, sent);
    let outcome = poll_once(pin!(publisher.send_async(&[3; 500])), Waker::noop());
    assert!(matches!(outcome, Poll::Ready(Ok(()))), "{outcome:?}");
    poll(&mut got, sent + 1);
    assert_eq!(got.pop().unwrap(), [3; 500]);
    assert!(got.iter().all(|payload| *payload == [1; 60]));
}

#[test]
fn a_stream_delivers_as_a_blocking_receiver_at_another_member() {
    const EACH: u32 = 300;
    let mut members = members("equal", 2);
    let (there, publisher, mut blocking) = members.pop().unwrap();
    let (here, own, receiver) = members.pop().unwrap();
    let groups = [start(here), start(there)];
    let senders = [own, publisher].map(|publisher| {
        let publisher = publisher.share();
        [publisher.clone(), publisher].map(|mut publisher| {
            thread::spawn(move || {
                for number in 0..EACH {
                    // Every tenth message is an object.
                    let len = if number % 10 == 0 { 100 } else { 15 };
                    block_on(publisher.send_async(&number.to_le_bytes().repeat(len))).unwrap();
                }
            })
        })
    });
    let taker = thread::spawn(move || {
        let mut got = Vec::new();
        loop {
            match blocking.receive(LONG) {
                Ok(mut deliveries) => {
                    let messages = deliveries.iter();
                    got.extend(messages.map(|message| (message.sender_id, message.round, message.payload.to_vec())));
                }
                Err(ReceiveError::Finished) => break got,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let (mut stream, mut got) = (receiver.into_stream(), Vec::new());
    while let Some(delivery) = block_on(stream.next()) {
        let delivery = delivery.unwrap();
        got.push((delivery.sender_id, delivery.round, delivery.payload));
    }
    assert_eq!(got.len(), 4 * EACH as usize);
    assert_eq!(got, taker.join().unwrap());
    senders.into_iter().flatten().for_each(|sender| sender.join().unwrap());
    for group in groups {
        group.finish(LONG).unwrap();
    }
}

/// Each future is polled only when it is woken.
#[test]
fn tasks_that_wait_learn_that_the_member_was_evicted() {
    let scratch = Scratch::new("asynchronous-evicted");
    let joining = [1, 2, 3].map(|id| {
        let mut config = Config { id: Some(MemberId(id)), suspect_after: None, ..scratch.group(3, LONG) };
        config.subgroups[0].window = 4;
        config.subgroups[0].message_bytes_max = 64;
        thread::spawn(move || config.join().unwrap())
    });
    let mut nodes = joining.map(|thread| thread.join().unwrap());
    let mut handler = |_: SubgroupId, _: &mut Batch<'_>| {};
    let mut small = nodes[2].publisher("all").unwrap().share();
    let (mut large, mut receiver) = (small.clone(), nodes[2].receiver("all").unwrap());
    let (mut sending, mut sending_objects, mut receiving) = (
        pin!(async {
            loop {
                if let Err(error) = small.send_async(&[1; 60]).await {
                    break error;
                }
            }
        }),
        pin!(async {
            loop {
                if let Err(error) = large.send_tracked_async(&[2; 500]).await {
                    break error;
                }
            }
        }),
        pin!(async {
            loop {
                match receiver.receive_async().await {
                    Ok(deliveries) => deliveries.for_each(|_| {}),
                    Err(error) => break error,
                }
            }
        }),
    );
    let counts: [Arc<Count>; 3] = Default::default();
    let wakers = counts.each_ref().map(|count| Waker::from(Arc::clone(count)));
    // No node is polled yet: the ring fills up, and nothing is delivered.
    assert!(poll_once(sending.as_mut(), &wakers[0]).is_pending());
    assert!(poll_once(sending_objects.as_mut(), &wakers[1]).is_pending());
    assert!(poll_once(receiving.as_mut(), &wakers[2]).is_pending());
    let client = ControlSocket::client(&RuntimeDir::new(&scratch.0).unwrap(), &GroupName::new("g").unwrap()).unwrap();
    let evict = ControlMessage::Request { from: client.id(), reply: 1, what: Request::Evict(MemberId(3)) };
    assert_eq!(client.send(MemberId(1), &evict, &[]).unwrap(), SendOutcome::Done);
    let (mut sent, mut objects, mut received) = (None, None, None);
    let patience = Instant::now() + LONG;
    while sent.is_none() || objects.is_none() || received.is_none() {
        for node in &mut nodes {
            let _ = node.poll(&mut handler);
        }
        let woken = |index: usize| counts[index].0.swap(0, Ordering::Relaxed) > 0;
        if sent.is_none() && woken(0) {
            sent = ready(poll_once(sending.as_mut(), &wakers[0]));
        }
        if objects.is_none() && woken(1) {
            objects = ready(poll_once(sending_objects.as_mut(), &wakers[1]));
        }
        if received.is_none() && woken(2) {
            received = ready(poll_once(receiving.as_mut(), &wakers[2]));
        }
        assert!(Instant::now() < patience, "{sent:?} {objects:?} {received:?}");
    }
    for error in [sent, objects].map(Option::unwrap) {
        assert!(matches!(error, SendError::Ended(Ended::Evicted { id: MemberId(3), .. })), "{error}");
    }
    let error = received.unwrap();
    assert!(matches!(error, ReceiveError::Ended(Ended::Evicted { id: MemberId(3), .. })), "{error}");
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
