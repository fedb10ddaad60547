//! Two members that end at the same time, while messages of both wait.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::{Hosts, LONG, Member, start_slow};
use spindle::{Batch, Config, Ended, Handler, Node, Order, Poll, Subgroup, SubgroupId};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Messages of each of the two.
const COUNT: usize = 3;

#[derive(Default)]
struct Log(Vec<String>);

impl Handler for Log {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.0.push(String::from_utf8(message.payload.to_vec()).unwrap()));
    }
}

/// The calls by which a member ends in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Leave,
    Finish,
}

/// A case: members that one thread polls in an order that looks random. The first two send, and end at two moments.
#[derive(Clone, Copy, Debug)]
struct Case {
    order: Order,
    members: u32,
    end: End,
    seed: u64,
}

#[test]
fn two_members_that_end_at_the_same_time_deliver_all_messages_of_both() {
    for order in [Order::Total, Order::Fifo] {
        for (members, end) in [(2, End::Leave), (2, End::Finish), (3, End::Leave)] {
            (0..300).for_each(|seed| Case { order, members, end, seed }.play());
        }
    }
}

impl Case {
    fn play(self) {
        let mut config = Config::new("ending", self.members);
        config.subgroups[0] = Subgroup { order: self.order, window: 8, ..config.subgroups[0].clone() };
        let nodes = config.local().unwrap();
        let mut members: Vec<_> = nodes.into_iter().map(|node| (node, Log::default(), false)).collect();
        let mut publishers: Vec<_> =
            members.iter_mut().map(|(node, ..)| Some(node.publisher("all").unwrap())).collect();
        for (sender, publisher) in publishers[..2].iter_mut().flatten().enumerate() {
            (0..COUNT).for_each(|i| publisher.send(format!("{i} of {sender}").as_bytes(), Duration::ZERO).unwrap());
        }
        let (mut random, patience) = (self.seed, Instant::now() + LONG);
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for number in 0..2 {
            for _ in 0..below(20) {
                self.poll(&mut members[below(self.members.into()) as usize]);
            }
            match self.end {
                End::Leave => members[number].0.leave(),
                End::Finish => drop(publishers[number].take()),
            }
        }
        let is_over = |members: &[(Node, Log, bool)]| {
            members[..2].iter().all(|(.., ended)| *ended)
                && members[2..].iter().all(|(node, ..)| node.view().members.len() == 1)
        };
        while !is_over(&members) {
            self.poll(&mut members[below(self.members.into()) as usize]);
            assert!(Instant::now() < patience, "{self:?}: not all have ended");
        }
        for (_, log, _) in &members {
            assert_eq!(log.0.len(), 2 * COUNT, "{self:?}: {:?}", log.0);
            assert!(self.order == Order::Fifo || log.0 == members[0].1.0, "{self:?}: another order");
        }
    }

    fn poll(self, (node, log, ended): &mut (Node, Log, bool)) {
        if !*ended {
            match node.poll(log) {
                Ok(Poll::Finished) | Err(Ended::Left) => *ended = true,
                Ok(_) => {}
                Err(why) => panic!("{self:?}: {why}"),
            }
        }
    }
}

/// Their handlers are slow, so that most messages still wait when both end.
#[test]
fn two_members_of_two_hosts_that_end_at_the_same_time_deliver_all_messages_of_both() {
    for (name, members, end) in
        [("two-leave", 2, End::Leave), ("two-finish", 2, End::Finish), ("two-of-three-leave", 3, End::Leave)]
    {
        let hosts = Hosts::new(name, members, LONG);
        let each = Duration::from_millis(2);
        let starting: Vec<_> = (0..members).map(|i| start_slow(hosts.seed(i, members as u32), each)).collect();
        let mut members: Vec<Member> =
            starting.into_iter().map(|member| member.recv_timeout(LONG).unwrap().unwrap()).collect();
        let (count, mut ending) = (50, members.drain(..2).collect::<Vec<_>>());
        for i in 0..count {
            ending.iter_mut().enumerate().for_each(|(sender, member)| member.send(&format!("{i} of {sender}")));
        }
        let logs: Vec<_> = ending.iter().chain(&members).map(|member| member.log.clone()).collect();
        assert!(logs.iter().all(|log| log.messages().len() < 2 * count), "no message waits");
        let at_once = Barrier::new(2);
        thread::scope(|scope| {
            for Member { group, publisher, .. } in ending {
                let at_once = &at_once;
                scope.spawn(move || {
                    at_once.wait();
                    drop(publisher);
                    match end {
                        End::Leave => group.leave(LONG).unwrap(),
                        End::Finish => group.finish(LONG).unwrap(),
                    }
                });
            }
        });
        for log in &logs {
            log.wait("messages", |log| log.messages().len() == 2 * count);
            assert_eq!(log.messages(), logs[0].messages(), "{name}: another order");
        }
        afar::finish(members);
    }
}
