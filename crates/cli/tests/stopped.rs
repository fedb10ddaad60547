//! All members of a group are stopped, and continue one after the other, as when a machine or a
//! cluster wakes up.
mod common;

use common::{Done, Running, Scratch, seeds};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

/// Time between two members' continuations, longer than the silence that is suspected.
const APART: Duration = Duration::from_millis(1500);
const SUSPECT_AFTER: [&str; 2] = ["--suspect-after", "1"];

/// Stops the three members, continues them one after the other, and lets each send a line. All
/// members of its group have to print that line.
fn stop_and_go_on(mut members: Vec<Running>) {
    members.iter_mut().for_each(|member| drop(member.event("joined")));
    members.iter().for_each(Running::stop);
    for member in &members {
        sleep(APART);
        member.signal(Signal::CONT);
    }
    for (i, member) in members.iter_mut().enumerate() {
        // A member that was left out may have ended. It then reads nothing.
        let _ = member.stdin.as_mut().expect("a pipe").write_all(format!("line of {}\n", i + 1).as_bytes());
    }
    let done = Running::all_done(members);
    let is_in = |done: &&Done| done.status.code() == Some(0);
    let stayed: Vec<u64> = (1..).zip(&done).filter(|(_, done)| is_in(done)).map(|(id, _)| id).collect();
    assert!(stayed.len() >= 2, "no majority stayed: {done:#?}");
    let printed = |done: &Done| String::from_utf8(done.stdout.clone()).expect("lines");
    let first = printed(done.iter().find(is_in).expect("a member that stayed"));
    for id in &stayed {
        assert!(first.contains(&format!("line of {id}\n")), "{first:?}");
    }
    for (id, done) in (1..).zip(&done) {
        let views = done.errors.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let views: Vec<Value> =
            views.filter(|object| object["event"] == "view" || object["event"] == "joined").collect();
        let smallest = views.iter().filter_map(|view| view["members"].as_array().map(Vec::len)).min();
        assert!(smallest >= Some(2), "member {id} was in a view alone: {views:?}");
        if stayed.contains(&id) {
            assert_eq!(printed(done), first, "member {id}");
            let last = views.last().expect("a view");
            let members: Vec<u64> = serde_json::from_value(last["members"].clone()).expect("ids");
            assert!(stayed.iter().all(|id| members.contains(id)), "member {id} ends in {last}, and {stayed:?} stayed");
        } else {
            assert_eq!(done.status.code(), Some(3), "member {id}: {done:?}");
            assert!(first.starts_with(&printed(done)), "member {id} printed what the others did not: {done:?}");
        }
    }
}

#[test]
fn members_of_one_host_that_go_on_one_after_the_other_keep_a_majority() {
    let scratch = Scratch::new();
    let start = |id: u32| {
        let mut command = scratch.member("woken", 3);
        Running::start(command.args(["--id", &id.to_string()]).args(SUSPECT_AFTER).stdin(Stdio::piped()))
    };
    stop_and_go_on((1..=3).map(start).collect());
}

#[test]
fn members_of_three_hosts_that_go_on_one_after_the_other_keep_a_majority() {
    let (scratch, seeds) = (Scratch::new(), seeds(3));
    let start = |(id, listen): (u32, &String)| {
        let mut command = scratch.member("awake", 3);
        command.args(["--id", &id.to_string(), "--listen", listen, "--seeds", &seeds.join(",")]).args(SUSPECT_AFTER);
        command.arg("--runtime-dir").arg(scratch.path(&format!("host{id}")));
        Running::start(command.stdin(Stdio::piped()))
    };
    stop_and_go_on((1..).zip(&seeds).map(start).collect());
}
