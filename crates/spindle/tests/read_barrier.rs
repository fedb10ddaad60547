//! The read barrier of members that a test polls, one at a time.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::{Hosts, LONG};
use common::Scratch;
use spindle::{
    Batch, Change, Config, HandleError, Handler, Node, Order, Poll, ReadBarrier, Subgroup, SubgroupId, SubgroupSpec,
    ViewId,
};
use std::thread;
use std::time::{Duration, Instant};

/// Counts the messages of each subgroup.
#[derive(Default)]
struct Count([u32; 2]);

impl Handler for Count {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| self.0[subgroup.index()] += 1);
    }
}

struct Member {
    node: Node,
    count: Count,
    barrier: ReadBarrier,
}

impl Member {
    fn poll(&mut self) {
        self.node.poll(&mut self.count).unwrap();
    }

    fn delivered(&self) -> u32 {
        self.count.0[0]
    }
}

fn members(nodes: Vec<Node>) -> Vec<Member> {
    let member = |node: Node| {
        let barrier = node.read_barrier("all").unwrap();
        Member { node, count: Count::default(), barrier }
    };
    nodes.into_iter().map(member).collect()
}

fn group(config: Config) -> Vec<Member> {
    members(config.local().unwrap())
}

/// Polls these members until `done`.
fn poll_until<const N: usize>(mut polled: [&mut Member; N], what: &str, done: impl Fn(&[&mut Member; N]) -> bool) {
    let patience = Instant::now() + LONG;
    while !done(&polled) {
        polled.iter_mut().for_each(|member| member.poll());
        assert!(Instant::now() < patience, "no {what}");
    }
}

#[test]
fn a_member_that_lacks_a_delivered_message_does_not_pass() {
    let mut members = group(Config::new("lacks", 3));
    let mut publisher = members[2].node.publisher("all").unwrap();
    assert!(members.iter().all(|member| !member.barrier.is_passed()), "nothing was polled");
    let [first, second, third] = &mut members[..] else { panic!("three members") };
    poll_until([first, second, third], "rest", |members| members.iter().all(|member| member.barrier.is_passed()));
    for sent in 1..=20 {
        publisher.send(b"m", LONG).unwrap();
        (0..9).for_each(|_| [&mut *second, &mut *third].into_iter().for_each(Member::poll));
        // The message waits for this null. The first member has the message, and does not know that the
        // others have it, too.
        first.poll();
        poll_until([second, third], "delivery", |[second, _]| second.delivered() == sent);
        assert_eq!(first.delivered(), sent - 1);
        assert!(second.barrier.is_passed() && !first.barrier.is_passed(), "after message {sent}");
        first.poll();
        assert!(first.delivered() == sent && first.barrier.is_passed());
        poll_until([third], "delivery", |[third]| third.delivered() == sent);
    }
}

#[test]
fn an_evicted_member_that_does_not_know_it_does_not_pass() {
    let scratch = Scratch::new("barrier-evicted");
    let joining = [(); 3].map(|()| {
        let config = Config { suspect_after: Some(Duration::from_millis(200)), ..scratch.group(3, LONG) };
        thread::spawn(|| config.join().unwrap())
    });
    let mut members = members(joining.map(|node| node.join().unwrap()).into());
    let mut publisher = members[0].node.publisher("all").unwrap();
    let [first, second, third] = &mut members[..] else { panic!("three members") };
    poll_until([first, second, third], "rest", |members| members.iter().all(|member| member.barrier.is_passed()));
    // The third member does nothing more: the others wait for it, and evict it.
    publisher.send(b"m", LONG).unwrap();
    let was_passed = third.barrier.clone();
    poll_until([first, second], "eviction", |[first, _]| {
        // The first member delivers the message only in the view without the third.
        assert!(first.delivered() == 0 || !was_passed.is_passed());
        first.node.view().members.len() == 2 && first.delivered() == 1
    });
    assert!(first.barrier.is_passed() && !third.barrier.is_passed());
    drop(members.pop());
    assert!(!was_passed.is_passed(), "its rows are gone");
}

/// The counters of the subgroup stay in the rows of the first view.
#[test]
fn a_barrier_lasts_while_its_epoch_and_its_view_change() {
    let mut members =
        group(Config { subgroups: vec![Subgroup::new("all"), Subgroup::new("b")], ..Config::new("g", 2) });
    let mut publisher = members[0].node.publisher("all").unwrap();
    let changes = [
        Change::Create(SubgroupSpec::of_everyone("c")),
        Change::Drop("c".into()),
        Change::Alter(SubgroupSpec { window: 9, ..SubgroupSpec::of_everyone("all") }),
    ];
    let [first, second] = &mut members[..] else { panic!("two members") };
    for (number, change) in (2..).zip(changes) {
        assert!(first.node.propose_change(change).unwrap());
        let begun = |member: &&mut Member| member.node.view().id == ViewId(number);
        poll_until([first, second], "view", |members| members.iter().all(begun));
        poll_until([first, second], "rest", |members| members.iter().all(|member| member.barrier.is_passed()));
        publisher.send(b"m", LONG).unwrap();
        poll_until([first, second], "delivery", |[first, _]| u64::from(first.delivered()) + 1 == number);
        assert!(first.barrier.is_passed());
    }
    assert!(matches!(first.node.read_barrier("no"), Err(HandleError::NoSuchSubgroup { .. })));
}

/// Without a total order, with messages that a receiver takes, and between hosts it is not known.
#[test]
fn a_barrier_that_can_not_know_does_not_pass() {
    let fifo = Subgroup { order: Order::Fifo, ..Subgroup::new("all") };
    let mut taken = group(Config::new("taken", 1));
    let _receiver = taken[0].node.receiver("all").unwrap();
    let hosts = Hosts::new("barriers", 2, Duration::from_secs(5));
    let joining = [0, 1].map(|seed| (hosts.seed(seed, 2), thread::Builder::new()));
    let joining = joining.map(|(config, thread)| thread.spawn(move || config.join().unwrap()).unwrap());
    let far = members(joining.map(|node| node.join().unwrap()).into());
    let fifo = group(Config { subgroups: vec![fifo], ..Config::new("fifo", 2) });
    for mut members in [taken, far, fifo] {
        for _ in 0..1000 {
            members.iter_mut().for_each(Member::poll);
            assert!(members.iter().all(|member| !member.barrier.is_passed()));
        }
    }
}

/// The child has zeros in place of the rows, and its state is that of the moment of the fork.
#[test]
fn a_forked_child_does_not_pass() {
    let mut members = group(Config::new("forked", 1));
    let [only] = &mut members[..] else { panic!("one member") };
    poll_until([only], "rest", |[only]| only.barrier.is_passed());
    // SAFETY: the child loads some words and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(only.barrier.is_passed());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: the pointer is to a local variable of the type that the call writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(only.barrier.is_passed());
}

#[test]
fn a_member_that_has_finished_does_not_pass() {
    let mut members = group(Config::new("finished", 2));
    members.iter_mut().for_each(|member| member.node.seal());
    let patience = Instant::now() + LONG;
    let mut finished = [false; 2];
    while finished != [true; 2] {
        for (member, finished) in members.iter_mut().zip(&mut finished) {
            *finished |= member.node.poll(&mut member.count).unwrap() == Poll::Finished;
            assert!(!*finished || !member.barrier.is_passed(), "the node is still here");
        }
        assert!(Instant::now() < patience);
    }
}
