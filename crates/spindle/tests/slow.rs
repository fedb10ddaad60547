//! A member whose handler is slow, while members join and leave a group between hosts.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::{Hosts, LONG, Log, Member, finish, start, start_slow};
use spindle::{Config, JoinError};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

/// The slow member takes so long for each message.
const EACH: Duration = Duration::from_millis(25);
/// So many messages, of so many bytes.
const COUNT: usize = 55;
const BYTES: usize = 1000;
const SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// On two hosts one member sends messages. Another, on the other host, takes its time for each of them. Meanwhile a
/// fourth member joins and a third one leaves.
///
/// The ring holds all messages, which take longer in all than the silence that is suspected. No message does.
#[test]
fn a_slow_handler_costs_no_member_its_place_while_the_view_changes() {
    let hosts = Hosts::new("slow-handler", 2, SUSPECT_AFTER);
    let starting = [start(hosts.seed(0, 3)), start_slow(hosts.seed(1, 3), EACH), start(hosts.other(0, 3))];
    change_views(starting, hosts.other(1, 1), COUNT, Leaves::AtOnce);
}

/// The same on one host, with messages that take five times as long in all as the silence that is suspected. The view does not change again meanwhile: the others would go on without the slow
/// member after four times that silence.
#[test]
fn a_slow_handler_has_any_time_for_the_rest_of_a_view() {
    let hosts = Hosts::new("slow-rest", 1, SUSPECT_AFTER);
    let starting = [start(hosts.seed(0, 3)), start_slow(hosts.other(0, 3), EACH), start(hosts.other(0, 3))];
    change_views(starting, hosts.other(0, 1), 4 * COUNT, Leaves::AfterTheRest);
}

/// When the member leaves that does.
#[derive(PartialEq)]
enum Leaves {
    AtOnce,
    /// When the slow member has got all messages.
    AfterTheRest,
}

/// Three members create a group: one that sends so many messages, one that is slow, and one that leaves. The newcomer joins.
fn change_views(starting: [Receiver<Result<Member, JoinError>>; 3], newcomer: Config, count: usize, leaves: Leaves) {
    let [mut sender, slow, leaver] = starting.map(|member| member.recv_timeout(LONG).unwrap().unwrap());
    let sending = thread::spawn(move || {
        (0..count).for_each(|i| sender.send(&format!("{i:0BYTES$}")));
        sender
    });
    slow.log.wait("message", |log| !log.messages().is_empty());
    assert!(slow.log.messages().len() < count, "it is not slow");
    let newcomer: Member = start(newcomer).recv_timeout(LONG).unwrap().unwrap();
    if leaves == Leaves::AfterTheRest {
        slow.log.wait("the rest", |log| log.messages().len() == count || slow.group.ended().is_some());
    }
    leaver.leave();
    let sender = sending.join().unwrap();
    for member in [&slow, &sender] {
        let ended = || member.group.ended();
        let is_done = |log: &Log| log.messages().len() == count && log.views().ends_with(&[3]);
        member.log.wait("messages in a view of three", |log| is_done(log) || ended().is_some());
        assert!(ended().is_none(), "{}; views of {:?}", ended().unwrap(), member.log.views());
        // The newcomer comes, and becomes a voter; the leaver leaves.
        let mut views = member.log.views();
        views.dedup();
        assert_eq!(views, [4, 3]);
    }
    finish([sender, slow, newcomer]);
}
