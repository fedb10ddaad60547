//! A member whose handler is slow, while members join and leave a group between hosts.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::{Hosts, LONG, Log, Member, finish, start, start_slow};
use spindle::Config;
use std::thread;
use std::time::Duration;

/// The slow member takes so long for each message.
const EACH: Duration = Duration::from_millis(25);
/// So many messages, of so many bytes.
const COUNT: usize = 80;
const BYTES: usize = 1000;
const SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// The sender's ring holds so many messages, which wait all the time. They are the longest batch, which is short beside
/// the silence that is suspected: a busy machine prolongs each sleep.
const WINDOW: u64 = 5;

#[test]
fn a_slow_handler_costs_no_member_its_place_while_the_view_changes() {
    views_change_beside_a_slow_handler("slow-handler", &|config| {
        config.subgroups[0].window = WINDOW;
        config.subgroups[0].message_bytes_max = BYTES as u64;
    });
}

/// The ring holds all messages, which take longer in all than the silence that is suspected. No message does.
#[test]
fn a_long_queue_in_front_of_a_slow_handler_costs_no_member_its_place() {
    views_change_beside_a_slow_handler("slow-long-queue", &|_| {});
}

/// On two hosts one member sends messages. Another, on the other host, takes its time for each of them. Meanwhile a
/// fourth member joins and a third one leaves.
fn views_change_beside_a_slow_handler(name: &str, change: &dyn Fn(&mut Config)) {
    let hosts = Hosts::new(name, 2, SUSPECT_AFTER);
    let changed = |mut config: Config| {
        change(&mut config);
        config
    };
    let starting = [
        start(changed(hosts.seed(0, 3))),
        start_slow(changed(hosts.seed(1, 3)), EACH),
        start(changed(hosts.other(0, 3))),
    ];
    let [mut sender, slow, leaver] = starting.map(|member| member.recv_timeout(LONG).unwrap().unwrap());
    let sending = thread::spawn(move || {
        (0..COUNT).for_each(|i| sender.send(&format!("{i:0BYTES$}")));
        sender
    });
    slow.log.wait("message", |log| !log.messages().is_empty());
    assert!(slow.log.messages().len() < COUNT, "it is not slow");
    let newcomer: Member = start(changed(hosts.other(1, 1))).recv_timeout(LONG).unwrap().unwrap();
    leaver.leave();
    let sender = sending.join().unwrap();
    for member in [&slow, &sender] {
        let ended = || member.group.ended();
        let is_done = |log: &Log| log.messages().len() == COUNT && log.views().ends_with(&[3]);
        member.log.wait("messages in a view of three", |log| is_done(log) || ended().is_some());
        assert!(ended().is_none(), "{}; views of {:?}", ended().unwrap(), member.log.views());
        // The newcomer comes, and becomes a voter; the leaver leaves.
        let mut views = member.log.views();
        views.dedup();
        assert_eq!(views, [4, 3]);
    }
    finish([sender, slow, newcomer]);
}
