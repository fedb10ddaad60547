//! Groups whose members come and go, all of them in this process.
use spindle::{
    Batch, Change, Config, Durability, HandleError, Handler, MemberId, Node, Order, Poll, Receiver, Rule, SendError,
    SubgroupId, SubgroupSpec, ViewChange, ViewId,
};
use spindle_core::limits;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// The messages that one member has delivered, and the view changes between them.
#[derive(Default)]
struct Log(Vec<String>);

impl Handler for Log {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.0.push(String::from_utf8(message.payload.to_vec()).unwrap()));
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.0.push(format!("view {}: -{:?} +{:?}", change.new.id, change.left, change.joined));
    }
}

/// Polls all nodes until `done`.
fn poll_until(nodes: &mut [(Node, Log)], mut done: impl FnMut(&[(Node, Log)]) -> bool) {
    let patience = Instant::now() + LONG;
    while !done(nodes) {
        for (node, log) in nodes.iter_mut() {
            node.poll(log).unwrap();
        }
        assert!(
            Instant::now() < patience,
            "{:?}",
            nodes.iter().map(|(node, log)| (node.status(), &log.0)).collect::<Vec<_>>()
        );
    }
}

fn group(members: u32, order: Order) -> Vec<(Node, Log)> {
    let mut config = Config::new("views", members);
    config.subgroups[0].order = order;
    config.local().unwrap().into_iter().map(|node| (node, Log::default())).collect()
}

/// A publisher may have room left in a ring that is no longer read.
#[test]
fn nothing_is_taken_after_the_end() {
    for order in [Order::Total, Order::Fifo] {
        let mut nodes = group(2, order);
        let mut publisher = nodes[0].0.publisher("all").unwrap();
        let mut shared = nodes[1].0.publisher("all").unwrap().share();
        publisher.send(b"first", LONG).unwrap();
        shared.send(b"second", LONG).unwrap();
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(_, log)| log.0.len() == 2));
        drop(nodes);
        let ended = |error: SendError| matches!(error, SendError::Ended(_));
        assert!(publisher.send(b"late", LONG).is_err_and(ended));
        assert!(publisher.try_claim(4).is_err_and(ended));
        assert!(publisher.send_object(vec![0; 100_000], LONG).is_err_and(ended));
        assert!(shared.send(b"late", LONG).is_err_and(ended));
        assert!(shared.try_claim(4).is_err_and(ended));
    }
}

#[test]
fn the_others_go_on_when_a_member_is_gone() {
    for order in [Order::Total, Order::Fifo] {
        let mut nodes = group(3, order);
        let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
        for (i, publisher) in publishers.iter_mut().enumerate() {
            publisher.send(format!("early {i}").as_bytes(), LONG).unwrap();
        }
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(_, log)| log.0.len() == 3));
        // These messages are committed, but no member has announced them when the first member
        // goes.
        publishers[1].send(b"between 1", LONG).unwrap();
        publishers[2].send(b"between 2", LONG).unwrap();
        drop(nodes.remove(0));
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, log)| node.view().id == ViewId(2) && log.0.len() == 6));
        for publisher in &mut publishers[1..] {
            publisher.send(b"late", LONG).unwrap();
        }
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(_, log)| log.0.len() == 8));
        let logs: Vec<_> = nodes.iter().map(|(_, log)| log.0.clone()).collect();
        let change = logs[0].iter().position(|line| line.starts_with("view 2: -[MemberId(1)] +[]")).unwrap();
        assert!((3..=5).contains(&change), "{:?}", logs[0]);
        if order == Order::Total {
            assert_eq!(logs[0], logs[1]);
        }
        publishers.truncate(0);
        poll_until_finished(nodes);
    }
}

fn poll_until_finished(mut nodes: Vec<(Node, Log)>) {
    let patience = Instant::now() + LONG;
    while !nodes.is_empty() {
        nodes.retain_mut(|(node, log)| node.poll(log).unwrap() != Poll::Finished);
        assert!(Instant::now() < patience);
    }
}

#[test]
fn a_member_that_leaves_loses_nothing_and_the_last_one_may_leave_too() {
    let mut nodes = group(2, Order::Total);
    let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
    publishers[1].send(b"my end notices", LONG).unwrap();
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(_, log)| log.0.len() == 1));
    nodes[1].0.leave();
    let patience = Instant::now() + LONG;
    let left = loop {
        let (node, log) = &mut nodes[0];
        node.poll(log).unwrap();
        let (node, log) = &mut nodes[1];
        if let Err(ended) = node.poll(log) {
            break ended;
        }
        assert!(Instant::now() < patience);
    };
    assert!(matches!(left, spindle::Ended::Left), "{left}");
    nodes.pop();
    poll_until(&mut nodes, |nodes| nodes[0].0.view().members.len() == 1);
    publishers[0].send(b"alone", LONG).unwrap();
    poll_until(&mut nodes, |nodes| nodes[0].1.0.len() == 3);
    nodes[0].0.leave();
    let patience = Instant::now() + LONG;
    let (node, log) = &mut nodes[0];
    while node.poll(log).is_ok() {
        assert!(Instant::now() < patience);
    }
}

/// A receiver that is a view behind gets the rest of the old view first, and then the new one's.
#[test]
fn a_receiver_goes_from_view_to_view_at_its_own_pace() {
    for order in [Order::Total, Order::Fifo] {
        let mut nodes = group(3, order);
        let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
        let mut slow: Receiver = nodes[2].0.receiver("all").unwrap();
        for i in 0..5 {
            publishers[1].send(format!("old {i}").as_bytes(), LONG).unwrap();
        }
        poll_until(&mut nodes, |nodes| nodes[1].1.0.len() == 5);
        drop(nodes.remove(0));
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
        for i in 0..5 {
            publishers[1].send(format!("new {i}").as_bytes(), LONG).unwrap();
        }
        poll_until(&mut nodes, |nodes| nodes[0].1.0.len() == 11);
        let mut got = vec![];
        while got.len() < 10 {
            let view = slow.view().id;
            let mut deliveries = slow.receive(LONG).unwrap();
            let before = got.len();
            got.extend(deliveries.iter().map(|message| String::from_utf8(message.payload.to_vec()).unwrap()));
            drop(deliveries);
            let _ = (before, view);
            for (node, log) in &mut nodes {
                node.poll(log).unwrap();
            }
        }
        let expected: Vec<String> =
            ["old", "new"].iter().flat_map(|age| (0..5).map(move |i| format!("{age} {i}"))).collect();
        assert_eq!(got, expected, "{order:?}");
        assert_eq!(slow.view().id, ViewId(2));
    }
}

#[test]
fn subgroups_are_created_and_dropped_while_the_group_runs() {
    let mut nodes = group(3, Order::Total);
    let spec = SubgroupSpec {
        name: "later".to_string(),
        members: vec![],
        senders: vec![],
        member_rule: Rule::Only(vec![MemberId(2), MemberId(3)]),
        sender_rule: Rule::Everyone,
        order: Order::Total,
        window: 8,
        message_bytes_max: 100,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    };
    assert!(nodes[0].0.propose_change(Change::Create(spec.clone())).unwrap(), "by one who will not be in it");
    assert!(!nodes[0].0.propose_change(Change::Create(SubgroupSpec { window: 0, ..spec })).unwrap(), "no such window");
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
    assert!(nodes[0].0.publisher("later").is_err());
    let mut publisher = nodes[1].0.publisher("later").unwrap();
    publisher.send(b"hello", LONG).unwrap();
    poll_until(&mut nodes, |nodes| nodes[1..].iter().all(|(_, log)| log.0.len() == 2));
    assert_eq!(nodes[0].1.0.len(), 1, "the view, and no message");
    assert!(nodes[2].0.propose_change(Change::Drop("later".to_string())).unwrap());
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(3)));
    // The publisher may know of room in the ring of the view that has ended. A message that it puts
    // there is counted as lost.
    let refused = (0..1000).find_map(|_| publisher.send(b"too late", LONG).err());
    assert!(matches!(refused, Some(SendError::NoSender)), "{refused:?}");
    poll_until(&mut nodes, |nodes| nodes[1].0.status().lost > 0);
    nodes.iter_mut().for_each(|(node, _)| node.seal());
    poll_until_finished(nodes);
}

/// Handles of the next view's ring that no thread holds any more don't keep a member from
/// finishing.
#[test]
fn members_finish_after_a_change_however_they_send() {
    for shared in [false, true] {
        for sends_after in [false, true] {
            let mut nodes = group(3, Order::Total);
            let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
            drop((nodes.remove(0), publishers.remove(0)));
            let mut shares: Vec<_> =
                if shared { publishers.drain(..).map(spindle::Publisher::share).collect() } else { vec![] };
            poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
            if sends_after {
                for sent in shares.iter_mut().map(|p| p.try_claim(0).map(|frame| frame.map(spindle::Frame::commit))) {
                    sent.unwrap();
                }
                for sent in publishers.iter_mut().map(|p| p.try_claim(0).map(|frame| frame.map(spindle::Frame::commit)))
                {
                    sent.unwrap();
                }
            }
            for _ in 0..3 {
                for (node, log) in &mut nodes {
                    node.poll(log).unwrap();
                }
            }
            publishers.clear();
            shares.clear();
            poll_until_finished(nodes);
        }
    }
}

/// Messages that a member sent before its request to leave are delivered. This holds if the other
/// members have yet to see them, or if the view changes between.
#[test]
fn messages_of_a_leaver_are_delivered() {
    for order in [Order::Total, Order::Fifo] {
        for (shared, crash) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut nodes = group(3, order);
            let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
            let mut shares = if shared { vec![publishers.remove(1).share()] } else { vec![] };
            for i in 0..50 {
                let text = format!("{i}");
                match shares.first_mut() {
                    Some(share) => share.send(text.as_bytes(), LONG).unwrap(),
                    None => publishers[1].send(text.as_bytes(), LONG).unwrap(),
                }
            }
            nodes[1].0.leave();
            if crash {
                drop(nodes.remove(2));
            }
            let patience = Instant::now() + LONG;
            let mut left = false;
            while !left || nodes[0].0.view().members.len() != nodes.len() - 1 {
                let gone = left;
                for (i, (node, log)) in nodes.iter_mut().enumerate().filter(|(i, _)| !gone || *i != 1) {
                    left |= node.poll(log).is_err() && i == 1;
                }
                assert!(Instant::now() < patience);
            }
            let delivered = nodes[0].1.0.iter().filter(|line| !line.starts_with("view")).count();
            assert_eq!(delivered, 50, "{order:?}, shared {shared}, crash {crash}");
        }
    }
}

/// A request to leave that comes while the view changes for another reason takes effect in the next
/// change.
#[test]
fn a_member_may_leave_at_any_moment_of_a_change() {
    for polls in 0..40 {
        let mut nodes = group(3, Order::Total);
        // The test holds the publishers, or all members would have finished.
        let _publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
        nodes[0].0.leave();
        let mut gone = [false; 3];
        let patience = Instant::now() + LONG;
        for i in 0.. {
            if i == polls {
                nodes[2].0.leave();
            }
            for (n, (node, log)) in nodes.iter_mut().enumerate().filter(|(n, _)| !gone[*n]).collect::<Vec<_>>() {
                gone[n] = node.poll(log).is_err();
            }
            if gone[0] && gone[2] && nodes[1].0.view().members.len() == 1 {
                break;
            }
            assert!(Instant::now() < patience, "after {polls} polls: {gone:?}");
        }
    }
}

/// A member is dropped while the others already have, or still wait for, its memory of the next
/// view.
#[test]
fn a_joiner_that_gives_up_between_two_views_is_gone() {
    for (polls, behind) in (0..40).flat_map(|polls| [0, 1, 5].map(|behind| (polls, behind))) {
        let mut nodes = group(4, Order::Total);
        let _publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
        drop(nodes.remove(0));
        for i in 0..polls {
            // The last member is behind the others, so that it is dropped at every point of the
            // change.
            let count = if i + behind < polls { 3 } else { 2 };
            for (node, log) in &mut nodes[..count] {
                node.poll(log).unwrap();
            }
        }
        nodes.truncate(2);
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().members.len() == 2));
    }
}

/// A change that is proposed while one view has ended and the next has not begun applies to the
/// next view.
#[test]
fn a_proposed_change_counts_at_any_moment_of_a_change() {
    for polls in 0..40 {
        let mut nodes = group(3, Order::Total);
        let _publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
        drop(nodes.remove(2));
        for _ in 0..polls {
            for (node, log) in &mut nodes {
                node.poll(log).unwrap();
            }
        }
        assert!(
            nodes[0].0.propose_change(Change::Create(SubgroupSpec::of_everyone("later"))).unwrap(),
            "after {polls} polls"
        );
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().subgroup("later").is_some()));
    }
}

/// A view with this change would be agreed on, and then end all members.
#[test]
fn a_proposed_change_that_fits_into_no_memory_is_refused() {
    let members = 32;
    let ring = SubgroupSpec { window: limits::RING_BYTES_MAX / 10_016, ..SubgroupSpec::of_everyone("large") };
    let mut nodes = group(members, Order::Total);
    let rows = u64::from(members) * limits::RING_BYTES_MAX / 2;
    if std::fs::read_to_string("/proc/meminfo").is_ok_and(|info| available(&info).is_some_and(|bytes| bytes > rows)) {
        eprintln!("not checked: this machine has room for it");
        return;
    }
    let refused = nodes[0].0.propose_change(Change::Create(ring));
    assert!(matches!(refused, Err(HandleError::Memory { .. })), "{refused:?}");
    let fits = SubgroupSpec { window: 1, ..SubgroupSpec::of_everyone("small") };
    assert!(nodes[0].0.propose_change(Change::Create(fits)).unwrap());
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
    assert!(nodes[0].0.view().subgroup("large").is_none());
}

fn available(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

fn shard(order: Order, least: u32) -> SubgroupSpec {
    SubgroupSpec { order, member_rule: Rule::Shard { set: 0, least, most: 5 }, ..SubgroupSpec::of_everyone("all") }
}

/// Returns two members of a shard of three, which has fewer than it needs until its rule changes.
/// The shard has accepted messages, and `between` has run.
fn too_few(order: Order, between: impl FnOnce(&mut Vec<(Node, Log)>)) -> Vec<(Node, Log)> {
    let mut nodes = group(3, order);
    let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
    assert!(nodes[0].0.propose_change(Change::Alter(shard(order, 3))).unwrap());
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
    drop(nodes.remove(2));
    // The first member receives nothing more in this view. The other one may still deliver its own
    // messages.
    for _ in 0..1000 {
        let (node, log) = &mut nodes[0];
        node.poll(log).unwrap();
    }
    for i in 0..3 {
        publishers[1].send(format!("waits {i}").as_bytes(), LONG).unwrap();
    }
    poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(3)));
    assert!(nodes[0].1.0.len() == 2, "nothing was delivered before it: {:?}", nodes[0].1.0);
    assert!(nodes[1].1.0.len() == if order == Order::Fifo { 5 } else { 2 }, "{:?}", nodes[1].1.0);
    between(&mut nodes);
    if nodes.len() == 2 {
        assert!(nodes[0].0.propose_change(Change::Alter(shard(order, 2))).unwrap());
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(4)));
        publishers[1].send(b"late", LONG).unwrap();
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(_, log)| log.0.iter().any(|line| line == "late")));
    }
    nodes
}

#[test]
fn accepted_messages_of_a_shard_wait_until_it_is_available_again() {
    for order in [Order::Total, Order::Fifo] {
        for (_, log) in too_few(order, |_| {}) {
            let delivered: Vec<_> = log.0.iter().filter(|line| !line.starts_with("view")).collect();
            assert_eq!(delivered, ["waits 0", "waits 1", "waits 2", "late"], "{order:?}: {:?}", log.0);
        }
    }
}

/// Messages that were accepted under one limit reach all members under a smaller one. New messages
/// keep to the smaller limit.
#[test]
fn messages_outlive_a_smaller_limit() {
    for order in [Order::Total, Order::Fifo] {
        let mut nodes = group(3, order);
        let mut publishers: Vec<_> = nodes.iter_mut().map(|(node, _)| node.publisher("all").unwrap()).collect();
        let spec = SubgroupSpec { order, window: 1, message_bytes_max: 4, ..SubgroupSpec::of_everyone("all") };
        assert!(nodes[0].0.propose_change(Change::Alter(spec)).unwrap());
        // The other members stop receiving in the first view.
        for _ in 0..1000 {
            for (node, log) in nodes.iter_mut().filter(|(node, _)| node.id() != MemberId(2)) {
                node.poll(log).unwrap();
            }
        }
        let long = "d".repeat(9000);
        for line in ["a", &long, "b", &long] {
            publishers[1].send(line.as_bytes(), LONG).unwrap();
        }
        poll_until(&mut nodes, |nodes| nodes.iter().all(|(node, _)| node.view().id == ViewId(2)));
        // The old ring may still have room: its limit is the old one.
        let mut shorter = None;
        poll_until(&mut nodes, |_| {
            shorter = publishers[0].try_claim(9000).err();
            shorter.is_some()
        });
        assert!(matches!(shorter, Some(SendError::TooLong { len: 9000, max: 4 })), "{shorter:?}");
        while publishers[1]
            .try_claim(4)
            .unwrap()
            .map(|mut frame| {
                frame.copy_from_slice(b"last");
                frame.commit()
            })
            .is_none()
        {
            nodes.iter_mut().for_each(|(node, log)| _ = node.poll(log).unwrap());
        }
        let expected = ["a", &long, "b", &long, "last"];
        let delivered = |log: &Log| log.0.iter().filter(|line| !line.starts_with("view")).cloned().collect::<Vec<_>>();
        poll_until(&mut nodes, |nodes| {
            nodes.iter().all(|(_, log)| delivered(log).last().is_some_and(|line| line == "last"))
        });
        for (node, log) in &nodes {
            assert!(delivered(log) == expected, "{order:?}: member {} has {} lines", node.id(), delivered(log).len());
            assert_eq!(node.status().lost, 0);
        }
    }
}

#[test]
fn a_member_that_leaves_a_shard_with_too_few_does_not_wait_and_counts_losses() {
    let nodes = too_few(Order::Total, |nodes| {
        nodes[1].0.leave();
        let patience = Instant::now() + LONG;
        while nodes.iter_mut().map(|(node, log)| node.poll(log).is_ok()).filter(|ok| *ok).count() == 2 {
            assert!(Instant::now() < patience);
        }
        assert_eq!(nodes[1].0.status().lost, 3);
        nodes.pop();
    });
    drop(nodes);
}
