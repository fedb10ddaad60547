//! Subgroups go on that a change of the view does not touch, all members in this process.
use spindle::{
    Batch, Change, Config, Durability, HandleError, Handler, MemberId, Node, Order, Outcome, Poll, Publisher, Receipt,
    Subgroup, SubgroupId, SubgroupSpec, View, ViewChange, ViewId, Who,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// The deliveries of one member: subgroup, sender, payload, and the newest view.
#[derive(Default)]
struct Log {
    view: Option<Arc<View>>,
    delivered: Vec<(String, MemberId, String, ViewId)>,
}

impl Log {
    fn of(&self, subgroup: &str) -> Vec<String> {
        self.delivered.iter().filter(|(name, ..)| name == subgroup).map(|(.., text, _)| text.clone()).collect()
    }
}

impl Handler for Log {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let view = self.view.as_ref().expect("a view has begun");
        batch.for_each(|message| {
            let name = view.subgroups[subgroup.index()].name.clone();
            let text = String::from_utf8_lossy(&message.payload[..message.payload.len().min(40)]).into_owned();
            assert_eq!(message.sender_id, view.members[message.sender.index()]);
            self.delivered.push((name, message.sender_id, text, view.id));
        });
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.view = Some(Arc::clone(&change.new));
    }
}

type Member = (Node, Log);

/// Four members: all are in "first" and "all", and the last two in "pair".
fn group(order: Order) -> Vec<Member> {
    let mut config = Config::new("epochs", 4);
    let pair = Subgroup { members: Who::Ranks(vec![2, 3]), order, ..Subgroup::new("pair") };
    config.subgroups = vec![Subgroup::new("first"), Subgroup { order, ..Subgroup::new("all") }, pair];
    let member = |node: Node| {
        let log = Log { view: Some(Arc::clone(node.view())), ..Log::default() };
        (node, log)
    };
    config.local().unwrap().into_iter().map(member).collect()
}

fn poll_until(members: &mut [Member], mut done: impl FnMut(&[Member]) -> bool) {
    let patience = Instant::now() + LONG;
    while !done(members) {
        for (node, log) in members.iter_mut() {
            node.poll(log).unwrap();
        }
        let told = || members.iter().map(|(node, log)| (node.status(), &log.delivered)).collect::<Vec<_>>();
        assert!(Instant::now() < patience, "{:?}", told());
    }
}

fn is_in(members: &[Member], view: u64) -> bool {
    members.iter().all(|(node, _)| node.view().id == ViewId(view))
}

fn send(publisher: &mut Publisher, text: &str) -> Receipt {
    publisher.send_tracked(text.as_bytes(), LONG).unwrap()
}

#[test]
fn a_logged_subgroup_is_unsupported() {
    let mut members = group(Order::Total);
    let spec = SubgroupSpec { durability: Durability::Logged { copies: 2 }, ..SubgroupSpec::of_everyone("later") };
    let unsupported = Err(HandleError::Unsupported { name: "later".into() });
    assert_eq!(members[0].0.propose_change(Change::Create(spec.clone())), unsupported);
    assert_eq!(members[0].0.propose_change(Change::Alter(spec)), unsupported);
}

/// Ranks and numbers of subgroups change, and the handler gets those of the newest view.
#[test]
fn a_subgroup_goes_on_through_changes_that_do_not_touch_it() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        let mut pair = members[2].0.publisher("pair").unwrap();
        let mut all = members[3].0.publisher("all").unwrap();
        let mut receipts = vec![send(&mut pair, "0")];
        // Another one is created, the first is dropped, and the first member goes.
        assert!(members[0].0.propose_change(Change::Create(SubgroupSpec::of_everyone("later"))).unwrap());
        poll_until(&mut members, |members| is_in(members, 2));
        receipts.push(send(&mut pair, "1"));
        assert!(members[1].0.propose_change(Change::Drop("first".into())).unwrap());
        poll_until(&mut members, |members| is_in(members, 3));
        receipts.push(send(&mut pair, "2"));
        all.send(b"all", LONG).unwrap();
        drop(members.remove(0));
        // In the middle of the change, too.
        for i in 3..20 {
            receipts.push(send(&mut pair, &i.to_string()));
            members.iter_mut().for_each(|(node, log)| _ = node.poll(log).unwrap());
        }
        poll_until(&mut members, |members| {
            let pair = members[1..].iter().all(|(_, log)| log.of("pair").len() == 20);
            is_in(members, 4) && pair && members.iter().all(|(_, log)| log.of("all").len() == 1)
        });
        let sent: Vec<String> = (0..20).map(|i| i.to_string()).collect();
        for (node, log) in &members[1..] {
            assert_eq!(log.of("pair"), sent, "{order:?}");
            let senders = log.delivered.iter().filter(|(name, ..)| name == "pair").map(|(_, sender, ..)| *sender);
            assert!(senders.into_iter().all(|sender| sender == MemberId(3)));
            let status = node.status();
            let pair = status.subgroups.iter().find(|subgroup| subgroup.name == "pair").unwrap();
            assert_eq!(pair.members.iter().map(|member| member.id).collect::<Vec<_>>(), [3, 4].map(MemberId));
            assert_eq!(pair.stats.delivered, 20);
        }
        // All of it is one epoch.
        for (i, receipt) in receipts.iter().enumerate() {
            poll_until(&mut members, |_| receipt.outcome().is_some());
            let outcome = receipt.outcome().unwrap();
            assert!(matches!(outcome, Outcome::Delivered { epoch: ViewId(1), .. }), "{i}: {outcome:?}");
        }
    }
}

/// Messages of the old epoch that were not delivered are sent again. None is lost, none is delivered twice.
#[test]
fn an_old_epoch_ends_when_it_is_touched() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        let mut publishers: Vec<Publisher> =
            members[2..].iter_mut().map(|(node, _)| node.publisher("pair").unwrap()).collect();
        assert!(members[0].0.propose_change(Change::Create(SubgroupSpec::of_everyone("later"))).unwrap());
        poll_until(&mut members, |members| is_in(members, 2));
        let first = send(&mut publishers[0], "0");
        poll_until(&mut members, |_| first.outcome().is_some());
        assert!(matches!(first.outcome(), Some(Outcome::Delivered { epoch: ViewId(1), .. })));
        // The last one goes, and hears nothing any more.
        let receipts: Vec<Receipt> = (1..5).map(|i| send(&mut publishers[0], &i.to_string())).collect();
        publishers.truncate(1);
        drop(members.pop());
        poll_until(&mut members, |members| is_in(members, 3) && members[2].1.of("pair").len() == 5);
        let more = send(&mut publishers[0], "5");
        poll_until(&mut members, |members| members[2].1.of("pair").len() == 6);
        let sent: Vec<String> = (0..6).map(|i| i.to_string()).collect();
        assert_eq!(members[2].1.of("pair"), sent, "{order:?}");
        poll_until(&mut members, |_| receipts.iter().chain([&more]).all(|receipt| receipt.outcome().is_some()));
        assert!(matches!(more.outcome(), Some(Outcome::Delivered { epoch: ViewId(3), .. })), "{:?}", more.outcome());
        for receipt in receipts {
            assert!(matches!(receipt.outcome(), Some(Outcome::Delivered { .. })), "{:?}", receipt.outcome());
        }
    }
}

#[test]
fn a_group_finishes_with_what_goes_on_in_older_epochs() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        let mut pair = members[3].0.publisher("pair").unwrap();
        members.iter_mut().for_each(|(node, _)| node.seal());
        assert!(members[0].0.propose_change(Change::Create(SubgroupSpec::of_everyone("later"))).unwrap());
        poll_until(&mut members, |members| is_in(members, 2));
        members.iter_mut().for_each(|(node, _)| node.seal());
        let receipts: Vec<Receipt> = (0..50).map(|i| send(&mut pair, &i.to_string())).collect();
        drop(pair);
        let patience = Instant::now() + LONG;
        let mut logs = vec![];
        while !members.is_empty() {
            for i in (0..members.len()).rev() {
                let (node, log) = &mut members[i];
                if node.poll(log).unwrap() == Poll::Finished {
                    let (node, log) = members.remove(i);
                    logs.push((node.id(), log));
                }
            }
            assert!(Instant::now() < patience);
        }
        for (_, log) in logs.iter().filter(|(id, _)| *id >= MemberId(3)) {
            assert_eq!(log.of("pair").len(), 50);
        }
        for receipt in receipts {
            let outcome = receipt.outcome();
            assert!(matches!(outcome, Some(Outcome::Delivered { epoch: ViewId(1), .. })), "{order:?}: {outcome:?}");
        }
    }
}

/// Its publisher can be taken from then on, and the group finishes when it is dropped.
#[test]
fn a_member_that_comes_into_a_subgroup_sends_there() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        assert!(members[0].0.publisher("pair").is_err(), "it is not a member of that");
        let enter = Change::Enter { name: "pair".into(), id: members[0].0.id() };
        assert!(members[0].0.propose_change(enter).unwrap());
        poll_until(&mut members, |members| is_in(members, 2));
        let mut pair = members[0].0.publisher("pair").unwrap();
        let receipt = send(&mut pair, "here");
        poll_until(&mut members, |_| receipt.outcome().is_some());
        assert!(matches!(receipt.outcome(), Some(Outcome::Delivered { epoch: ViewId(2), .. })));
        for (i, (_, log)) in members.iter().enumerate() {
            let expected: &[&str] = if i == 1 { &[] } else { &["here"] };
            assert_eq!(log.of("pair"), expected, "{order:?}, rank {i}");
        }
        drop(pair);
        let patience = Instant::now() + LONG;
        while !members.is_empty() {
            members.retain_mut(|(node, log)| node.poll(log).unwrap() != Poll::Finished);
            assert!(Instant::now() < patience);
        }
    }
}

/// It waits for what it has sent in an epoch that began before its newest view.
#[test]
fn a_member_leaves_after_its_messages_of_older_epochs() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        let mut pair = members[3].0.publisher("pair").unwrap();
        assert!(members[0].0.propose_change(Change::Create(SubgroupSpec::of_everyone("later"))).unwrap());
        poll_until(&mut members, |members| is_in(members, 2));
        let receipts: Vec<Receipt> = (0..50).map(|i| send(&mut pair, &i.to_string())).collect();
        members[3].0.leave();
        let patience = Instant::now() + LONG;
        let mut has_left = false;
        while !has_left || !is_in(&members[..3], 3) {
            let count = if has_left { 3 } else { 4 };
            for (i, (node, log)) in members.iter_mut().enumerate().take(count) {
                match node.poll(log) {
                    Ok(_) => {}
                    Err(ended) if i == 3 => {
                        assert!(matches!(ended, spindle::Ended::Left), "{ended}");
                        has_left = true;
                    }
                    Err(ended) => panic!("member {i}: {ended}"),
                }
            }
            assert!(Instant::now() < patience);
        }
        assert_eq!(members[2].1.of("pair").len(), 50);
        for receipt in receipts {
            let outcome = receipt.outcome();
            assert!(matches!(outcome, Some(Outcome::Delivered { epoch: ViewId(1), .. })), "{order:?}: {outcome:?}");
        }
    }
}

/// Objects belong to the newest view: all epochs end with it, and then it goes.
#[test]
fn a_large_message_in_an_older_epoch_is_delivered_in_a_new_one() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        let mut pair = members[2].0.publisher("pair").unwrap();
        assert!(members[0].0.propose_change(Change::Create(SubgroupSpec::of_everyone("later"))).unwrap());
        poll_until(&mut members, |members| is_in(members, 2));
        pair.send(b"before", LONG).unwrap();
        pair.send_object(vec![b'x'; 300_000], LONG).unwrap();
        pair.send(b"behind", LONG).unwrap();
        poll_until(&mut members, |members| members[2..].iter().all(|(_, log)| log.of("pair").len() == 3));
        // While there are objects on their way, too.
        for i in 0..3 {
            let later = SubgroupSpec::of_everyone(format!("later {i}"));
            pair.send_object(vec![b'y'; 300_000], LONG).unwrap();
            assert!(members[1].0.propose_change(Change::Create(later)).unwrap());
            pair.send(format!("{i}").as_bytes(), LONG).unwrap();
            let name = format!("later {i}");
            poll_until(&mut members, |members| members.iter().all(|(node, _)| node.view().subgroup(&name).is_some()));
        }
        poll_until(&mut members, |members| members[2..].iter().all(|(_, log)| log.of("pair").len() == 9));
        let (x, y) = ("x".repeat(40), "y".repeat(40));
        for (_, log) in &members[2..] {
            assert_eq!(log.of("pair"), ["before", &x, "behind", &y, "0", &y, "1", &y, "2"], "{order:?}");
        }
    }
}

/// It needs no group for its large messages, so they end no epoch.
#[test]
fn a_member_that_is_alone_sends_large_messages_in_an_older_epoch() {
    let mut config = Config::new("alone", 3);
    config.subgroups = vec![Subgroup { members: Who::Ranks(vec![2]), ..Subgroup::new("alone") }];
    let member = |node: Node| (Log { view: Some(Arc::clone(node.view())), ..Log::default() }, node);
    let nodes = config.local().unwrap().into_iter().map(member);
    let mut members: Vec<Member> = nodes.map(|(log, node)| (node, log)).collect();
    let mut alone = members[2].0.publisher("alone").unwrap();
    alone.send_object(vec![b'x'; 300_000], LONG).unwrap();
    for i in 0..30 {
        if i % 10 == 0 {
            let later = SubgroupSpec::of_everyone(format!("later {i}"));
            assert!(members[0].0.propose_change(Change::Create(later)).unwrap());
        }
        alone.send_object(vec![b'x'; 300_000], Duration::ZERO).unwrap();
        poll_until(&mut members, |members| members[2].1.of("alone").len() == i + 2);
    }
    poll_until(&mut members, |members| is_in(members, 4));
}

/// A receiver on another thread sees one view for as long as the epoch lasts.
#[test]
fn a_receiver_stays_in_its_epoch() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        let mut pair = members[2].0.publisher("pair").unwrap();
        let mut alone = members[3].0.publisher("pair").unwrap();
        let mut receiver = members[3].0.receiver("pair").unwrap();
        let mut got = vec![];
        for i in 0..4 {
            let later = SubgroupSpec::of_everyone(format!("later {i}"));
            assert!(members[0].0.propose_change(Change::Create(later)).unwrap());
            for j in 0..10 {
                pair.send(format!("{i} {j}").as_bytes(), LONG).unwrap();
            }
            poll_until(&mut members, |members| {
                while let Some(mut deliveries) = receiver.try_receive().unwrap() {
                    assert_eq!(deliveries.view().id, ViewId(1));
                    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
                    got.extend(deliveries.iter().map(|message| text(message.payload)));
                }
                is_in(members, 2 + i) && got.len() == 10 * (1 + i as usize)
            });
        }
        let sent: Vec<String> = (0..4).flat_map(|i| (0..10).map(move |j| format!("{i} {j}"))).collect();
        assert_eq!(got, sent, "{order:?}");
        // The first member of the pair ends, and the other continues alone.
        drop(pair);
        drop(members.remove(2));
        poll_until(&mut members, |members| is_in(members, 6));
        alone.send(b"alone", LONG).unwrap();
        poll_until(&mut members, |_| {
            let Some(mut deliveries) = receiver.try_receive().unwrap() else { return false };
            assert_eq!(deliveries.view().id, ViewId(6));
            deliveries.iter().count() == 1
        });
    }
}

/// Counters are totals over the views of a member, also for a receiver that takes the messages of an epoch after its end,
/// and for subgroups that have been dropped.
#[test]
fn counters_survive_changes_that_touch_their_subgroup() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(order);
        let mut receiver = members[0].0.receiver("all").unwrap();
        let mut all = members[1].0.publisher("all").unwrap();
        let mut first = members[1].0.publisher("first").unwrap();
        let delivered = |member: &Member| {
            let status = member.0.status();
            status.subgroups.iter().find(|subgroup| subgroup.name == "all").unwrap().stats
        };
        (0..5).for_each(|i| all.send(i.to_string().as_bytes(), LONG).unwrap());
        first.send(b"first", LONG).unwrap();
        poll_until(&mut members, |members| {
            delivered(&members[1]).delivered == 5 && members[1].1.of("first").len() == 1
        });
        let polls = members[1].0.status().engine.polls;
        drop(members.pop());
        poll_until(&mut members, |members| is_in(members, 2));
        assert!(members[1].0.status().engine.polls > polls, "polls begin anew");
        assert_eq!((delivered(&members[0]).delivered, delivered(&members[1]).delivered), (0, 5), "{order:?}");
        (5..8).for_each(|i| all.send(i.to_string().as_bytes(), LONG).unwrap());
        poll_until(&mut members, |members| delivered(&members[1]).delivered == 8);
        let mut taken = 0;
        poll_until(&mut members, |_| {
            if let Some(mut batch) = receiver.try_receive().unwrap() {
                taken += batch.iter().count();
            }
            taken == 8
        });
        for (member, sent) in [(&members[0], 0), (&members[1], 8), (&members[2], 0)] {
            let stats = delivered(member);
            assert_eq!((stats.delivered, stats.delivered_bytes, stats.sent), (8, 8, sent), "{order:?}");
        }
        assert!(members[0].0.propose_change(Change::Drop("first".into())).unwrap());
        poll_until(&mut members, |members| is_in(members, 3));
        let former = members[1].0.status().former;
        let former: Vec<_> = former.iter().map(|of| (&*of.name, of.stats.sent, of.stats.delivered)).collect();
        assert_eq!(former, [("first", 1, 1)]);
        assert_eq!(delivered(&members[1]).delivered, 8);
    }
}
