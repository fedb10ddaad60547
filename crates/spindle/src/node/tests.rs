//! The data that a member keeps for observers, and its votes.
use super::*;
use crate::Config;
use crate::control_plane::tests::{Hosts, PATIENCE, view};
use spindle_core::Rows;
use spindle_core::wire::layout::entry;
use spindle_fabric::MemberEventCount;
use spindle_transport::{SocketOptions, SocketStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

struct Nothing;

impl Handler for Nothing {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {});
    }
}

/// Data kept readable for observers over streams is freed when the last observer has gone, although
/// no other event happens.
#[test]
fn when_the_last_observer_has_gone_what_was_kept_for_it_is_free() {
    let hosts = Hosts::new("last-observer");
    let mut control_plane = hosts.control_plane(0, 1, "a", &[]);
    let event_count = MemberEventCount::with_event().unwrap();
    let terms = Config::new("g", 1).terms(&Default::default());
    let engine = Engine::new(view(1, &[1]), Rank(0), terms.ablation).unwrap();
    let mut first = First::new(engine, &[], &mut control_plane, Arena::new(event_count), None, None).unwrap();
    assert!(first.look(&mut control_plane));
    let mut node = Node::new(control_plane, first, (None, false), terms).unwrap();
    let mut publisher = node.publisher("all").unwrap();
    let place = *node.member.engine().layout().row(Rank(0)).subgroups().next().unwrap();
    let start = Instant::now();
    let until = |node: &mut Node, what: &str, done: &dyn Fn(&Node) -> bool| {
        while !done(node) {
            assert!(start.elapsed() < PATIENCE, "{what}");
            node.sleep(&mut Nothing, Duration::from_millis(10)).unwrap();
        }
    };
    let word = move |node: &Node, word: u64| node.fabric.load(Rank(0), place.entry + word);
    let kept = move |node: &Node| word(node, entry::PUBLISHED) - word(node, entry::FREED);
    let (near, observer) = UnixStream::pair().unwrap();
    node.observers.push((ViewId(1), Box::new(SocketStream::new(near, &SocketOptions::default()).unwrap())));
    node.let_observers_in();
    publisher.send(b"kept for a while", PATIENCE).unwrap();
    let is_delivered = |node: &Node| node.status().subgroups[0].stats.delivered == 1;
    until(&mut node, "the delivery", &is_delivered);
    assert!(kept(&node) > 0);
    drop(observer);
    until(&mut node, "all of it to be free", &|node: &Node| kept(node) == 0);
}

/// A member whose disk is slow learns of a decision before its vote is on disk.
#[test]
fn a_vote_in_a_view_that_has_ended_does_not_count_in_the_next() {
    let data_dir = std::env::temp_dir().join(format!("spindle-stale-vote-{}", std::process::id()));
    let mut config = Config { data_dir: Some(data_dir.clone()), ..Config::new("g", 1) };
    config.subgroups[0].durability = crate::Durability::Logged { copies: 1 };
    std::fs::create_dir_all(data_dir.join("member-1")).unwrap();
    let mut node = config.local().unwrap().remove(0);
    let logs = node.logs.as_mut().unwrap();
    let (ballot, hosts) = (spindle_core::Ballot { round: 1, leader: Rank(0) }, vec![1]);
    logs.accept(ballot, view(2, &[1]), hosts.clone());
    assert_eq!(logs.take_accepted().unwrap(), Some(ballot), "no disk matters on one host");
    logs.accept(ballot, view(2, &[1]), hosts.clone());
    logs.record(&view(2, &[1]), hosts);
    assert_eq!(logs.take_accepted().unwrap(), None);
    drop(node);
    std::fs::remove_dir_all(data_dir).unwrap();
}
