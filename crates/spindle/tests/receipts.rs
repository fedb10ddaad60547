//! Outcomes of messages that were sent with a receipt.
use spindle::{
    Batch, Change, Config, Handler, MemberId, Node, NotDelivered, Order, Outcome, Publisher, Receipt, Rule, SendError,
    SubgroupId, SubgroupSpec, View, ViewChange, ViewId,
};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// The deliveries of a member, with the view and the number in its order.
struct Log {
    view: Arc<View>,
    delivered: Vec<(ViewId, u64, Vec<u8>)>,
}

impl Handler for Log {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let spec = &self.view.subgroups[subgroup.index()];
        batch.for_each(|message| {
            let sequence = spec.sequence(message.sender, message.round).unwrap();
            self.delivered.push((self.view.id, sequence, message.payload.to_vec()));
        });
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.view = Arc::clone(&change.new);
    }
}

type Nodes = Vec<(Node, Log)>;
/// With the payload of each message.
type Receipts = Vec<(Receipt, Vec<u8>)>;

fn group(members: u32, order: Order) -> (Nodes, Vec<Publisher>) {
    let mut config = Config::new("receipts", members);
    config.subgroups[0] = spindle::Subgroup { order, window: 4, message_bytes_max: 200, ..config.subgroups[0].clone() };
    let log = |node: &Node| Log { view: Arc::clone(node.view()), delivered: vec![] };
    let mut nodes: Nodes =
        config.local().unwrap().into_iter().map(|node| (log(&node), node)).map(|(l, n)| (n, l)).collect();
    let publishers = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
    (nodes, publishers)
}

fn poll(nodes: &mut [(Node, Log)]) {
    for (node, log) in nodes {
        node.poll(log).unwrap();
    }
}

fn poll_until(nodes: &mut Nodes, mut done: impl FnMut(&Nodes) -> bool) {
    let patience = Instant::now() + LONG;
    while !done(nodes) {
        poll(nodes);
        assert!(Instant::now() < patience, "{:?}", nodes.iter().map(|(node, _)| node.status()).collect::<Vec<_>>());
    }
}

/// All that was sent with these receipts was delivered, once, where they say.
fn check(nodes: &Nodes, receipts: &[(Receipt, Vec<u8>)]) {
    for (node, log) in nodes {
        for (receipt, payload) in receipts {
            let Some(Outcome::Delivered { epoch, sequence }) = receipt.outcome() else {
                panic!("{:?} of {payload:?}", receipt.outcome())
            };
            let found: Vec<_> = log.delivered.iter().filter(|(.., delivered)| delivered == payload).collect();
            assert_eq!(found, [&(epoch, sequence, payload.clone())], "member {}", node.id());
        }
    }
}

/// Rings of four messages wrap all the time, also that of a member alone, where messages are delivered as soon as they are sent.
#[test]
fn receipts_name_the_place_of_each_message() {
    for order in [Order::Total, Order::Fifo] {
        for members in [1, 3] {
            let (mut nodes, mut publishers) = group(members, order);
            let mut receipts: Receipts = vec![];
            for i in 0..200_u32 {
                for (member, publisher) in publishers.iter_mut().enumerate() {
                    let mut payload = format!("{member} {i} ").into_bytes();
                    // Now and then one that no ring holds.
                    payload.resize(payload.len() + if i % 64 == 63 { 500 } else { (i * 37 % 190) as usize }, b'.');
                    let sent = loop {
                        match i % 3 {
                            0 => match publisher.send(&payload, Duration::ZERO) {
                                Ok(()) => break None,
                                Err(SendError::Full { .. } | SendError::TooMany { .. }) => poll(&mut nodes),
                                Err(error) => panic!("{error}"),
                            },
                            _ => match publisher.send_tracked(&payload, Duration::ZERO) {
                                Ok(receipt) => break Some(receipt),
                                Err(SendError::Full { .. } | SendError::TooMany { .. }) => poll(&mut nodes),
                                Err(error) => panic!("{error}"),
                            },
                        }
                    };
                    receipts.extend(sent.map(|receipt| (receipt, payload)));
                }
            }
            poll_until(&mut nodes, |_| receipts.iter().all(|(receipt, _)| receipt.outcome().is_some()));
            poll_until(&mut nodes, |nodes| nodes.iter().all(|(_, log)| log.delivered.len() == 200 * members as usize));
            check(&nodes, &receipts);
        }
    }
}

/// Three members, of which the first and the third stop receiving before the second sends.
fn cut_short(order: Order, send: impl FnOnce(&mut Publisher) -> Receipts) -> (Nodes, Vec<Publisher>, Receipts) {
    let (mut nodes, mut publishers) = group(3, order);
    let spec = SubgroupSpec { order, window: 2, message_bytes_max: 100, ..SubgroupSpec::of_everyone("all") };
    assert!(nodes[0].0.propose_change(Change::Alter(spec)).unwrap());
    for _ in 0..1000 {
        for (node, log) in nodes.iter_mut().filter(|(node, _)| node.id() != MemberId(2)) {
            node.poll(log).unwrap();
        }
    }
    let receipts = send(&mut publishers[1]);
    (nodes, publishers, receipts)
}

#[test]
fn receipts_survive_a_change_of_the_view() {
    for order in [Order::Total, Order::Fifo] {
        let (mut nodes, _publishers, receipts) = cut_short(order, |publisher| {
            let mut send = |i: u8| (publisher.send_tracked(&[i; 200], LONG).unwrap(), vec![i; 200]);
            vec![send(1), send(2), send(3)]
        });
        assert!(receipts.iter().all(|(receipt, _)| receipt.outcome().is_none()));
        poll_until(&mut nodes, |_| receipts.iter().all(|(receipt, _)| receipt.outcome().is_some()));
        for (receipt, _) in &receipts {
            assert!(matches!(receipt.outcome(), Some(Outcome::Delivered { epoch: ViewId(2), .. })), "{receipt:?}");
        }
        match order {
            Order::Total => check(&nodes, &receipts),
            // The sender itself has had it in the view before.
            Order::Fifo => {
                nodes.remove(1);
                check(&nodes, &receipts);
            }
        }
    }
}

/// The last one to have a place in the view is resolved by the trim.
#[test]
fn messages_at_the_end_of_a_view_have_their_place_in_it() {
    for order in [Order::Total, Order::Fifo] {
        let (mut nodes, mut publishers) = group(3, order);
        let receipts: Vec<_> =
            (0..3_u8).map(|i| (publishers[1].send_tracked(&[i; 9], LONG).unwrap(), vec![i; 9])).collect();
        nodes[2].0.leave();
        let mut left = false;
        let patience = Instant::now() + LONG;
        while !(left && receipts.iter().all(|(receipt, _)| receipt.outcome().is_some())) {
            for (i, (node, log)) in nodes.iter_mut().enumerate() {
                left |= node.poll(log).is_err() && i == 2;
            }
            assert!(Instant::now() < patience);
        }
        nodes.pop();
        check(&nodes, &receipts);
    }
}

/// No member sends a message in the ring of a subgroup that was dropped. Some have had it already, where it is delivered on receipt.
#[test]
fn messages_of_a_dropped_subgroup_are_not_delivered() {
    for order in [Order::Total, Order::Fifo] {
        let (mut nodes, mut publishers) = group(2, order);
        assert!(nodes[0].0.propose_change(Change::Drop("all".to_string())).unwrap());
        for _ in 0..1000 {
            poll(&mut nodes[..1]);
        }
        let announced = publishers[1].send_tracked(b"announced", LONG).unwrap();
        // It announces until it has heard what the change touches.
        for _ in 0..10 {
            poll(&mut nodes[1..]);
        }
        let later = publishers[1].send_tracked(b"later", LONG).unwrap();
        poll_until(&mut nodes, |_| announced.outcome().is_some() && later.outcome().is_some());
        let lost = Some(Outcome::NotDelivered(NotDelivered::NoSender));
        assert_eq!(announced.outcome(), if order == Order::Fifo { Some(Outcome::Unknown) } else { lost });
        assert_eq!(later.outcome(), lost);
    }
}

#[test]
fn a_leaver_knows_what_was_not_sent() {
    let (mut nodes, mut publishers) = group(3, Order::Total);
    let shard = |least| {
        Change::Alter(SubgroupSpec {
            member_rule: Rule::Shard { set: 0, least, most: 5 },
            ..SubgroupSpec::of_everyone("all")
        })
    };
    assert!(nodes[0].0.propose_change(shard(3)).unwrap());
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
    drop(nodes.remove(2));
    for _ in 0..1000 {
        poll(&mut nodes[..1]);
    }
    let receipt = publishers[1].send_tracked(b"waits", LONG).unwrap();
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(3)));
    assert_eq!(receipt.wait(Duration::from_millis(1)), None);
    nodes[1].0.leave();
    let patience = Instant::now() + LONG;
    while nodes.iter_mut().filter_map(|(node, log)| node.poll(log).err()).count() == 0 {
        assert!(Instant::now() < patience);
    }
    assert!(matches!(receipt.outcome(), Some(Outcome::NotDelivered(_))), "{receipt:?}");
}

/// A member that gives the group up cannot know which of its announced messages the others keep. They have no other.
#[test]
fn the_end_reports_the_unknown_outcomes() {
    for order in [Order::Total, Order::Fifo] {
        let (mut nodes, mut publishers) = group(2, order);
        let announced = publishers[1].send_tracked(b"announced", LONG).unwrap();
        for _ in 0..10 {
            poll(&mut nodes[1..]);
        }
        let held = publishers[1].send_tracked(b"held", LONG).unwrap();
        assert_eq!((announced.outcome(), held.outcome()), (None, None));
        drop(nodes.pop());
        assert_eq!(announced.outcome(), Some(Outcome::Unknown));
        let ended = Some(Outcome::NotDelivered(NotDelivered::Ended));
        assert_eq!(held.outcome(), ended);
        // It may still know of room.
        if let Ok(late) = publishers[1].send_tracked(b"late", Duration::ZERO) {
            assert_eq!(late.outcome(), ended);
        }
    }
}

#[test]
fn all_receipts_are_resolved_when_the_group_has_finished() {
    for order in [Order::Total, Order::Fifo] {
        let (mut nodes, publishers) = group(3, order);
        let receipts: Vec<_> = publishers
            .into_iter()
            .zip(0_u8..)
            .map(|(publisher, i)| {
                // Also those of many threads.
                let mut shared = publisher.share();
                let payload = vec![i; 8];
                (shared.send_tracked(&payload, LONG).unwrap(), payload)
            })
            .collect();
        let patience = Instant::now() + LONG;
        let mut finished = [false; 3];
        while finished != [true; 3] {
            for ((node, log), finished) in nodes.iter_mut().zip(&mut finished) {
                *finished |= node.poll(log).unwrap() == spindle::Poll::Finished;
            }
            assert!(Instant::now() < patience);
        }
        check(&nodes, &receipts);
    }
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_receipt_is_a_future_and_a_handler_does_not_wait_for_it() {
    let (mut nodes, mut publishers) = group(1, Order::Total);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let receipt = {
        let mut sending = std::pin::pin!(publishers[0].send_tracked_async(b"async"));
        let Poll::Ready(Ok(receipt)) = sending.as_mut().poll(&mut context) else { panic!("there is room") };
        receipt
    };
    let mut future = std::pin::pin!(receipt.clone());
    assert!(future.as_mut().poll(&mut context).is_pending());
    let mut inside = vec![];
    let patience = Instant::now() + LONG;
    while receipt.outcome().is_none() {
        let mut handler = |_: SubgroupId, batch: &mut Batch<'_>| batch.for_each(|_| inside.push(receipt.wait(LONG)));
        nodes[0].0.poll(&mut handler).unwrap();
        assert!(Instant::now() < patience);
    }
    assert_eq!(inside, [None]);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(receipt.wait(Duration::ZERO).unwrap()));
}
