//! `spindle member --durable-acks`, and the restart of a group whose members all ended.
mod common;

use common::{Running, Scratch};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Starts a member of a group of two with a log.
fn member(scratch: &Scratch, id: u32, words: &[&str]) -> Running {
    let mut command = scratch.member("ledger", 2);
    command.args(["--durability", "logged", "--data"]).arg(scratch.path(&format!("data{id}")));
    fs::create_dir_all(scratch.path(&format!("data{id}"))).unwrap();
    Running::start(command.args(words).stdin(Stdio::piped()))
}

#[test]
fn each_message_gets_a_line_with_its_version_once_it_is_durable() {
    let scratch = Scratch::new();
    let file = scratch.path("acks");
    let mut first = member(&scratch, 1, &["--durable-acks", file.to_str().unwrap()]);
    let mut second = member(&scratch, 2, &[]);
    first.event("joined");
    second.send(b"other\n");
    second.lines(1);
    first.send(b"one\ntwo\nthree");
    Running::all_done(vec![first, second]).into_iter().for_each(|done| drop(done.expect(0)));
    let acks = fs::read_to_string(file).unwrap();
    let acks: Vec<(&str, &str)> = acks.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let done = Running::start(
        &mut scratch.spindle(["log", "cat"].into_iter().chain([scratch.path("data2").to_str().unwrap(), "all"])),
    );
    let done = done.done().expect(0);
    let log = String::from_utf8(done.stdout).unwrap();
    let version_of = |text: &str| {
        let line = log.lines().find(|line| line.ends_with(&format!(" {text}"))).unwrap();
        line.split(' ').next().unwrap()
    };
    assert_eq!(acks, [("1", version_of("one")), ("2", version_of("two")), ("3", version_of("three"))]);
}

#[test]
fn a_message_that_enough_members_can_not_keep_gets_the_reason() {
    let scratch = Scratch::new();
    let file = scratch.path("acks");
    let mut command = scratch.member("ledger", 1);
    fs::create_dir_all(scratch.path("data")).unwrap();
    command.args(["--durability", "logged", "--durable-copies", "2", "--data"]).arg(scratch.path("data"));
    let mut alone = Running::start(command.arg("--durable-acks").arg(&file).stdin(Stdio::piped()));
    alone.send(b"one\n");
    // The end of the group would be a reason, too.
    let start = Instant::now();
    while !fs::read(&file).is_ok_and(|acks| acks.ends_with(b"\n")) {
        assert!(start.elapsed() < Duration::from_secs(60), "no line");
        thread::sleep(Duration::from_millis(5));
    }
    alone.done().expect(0);
    let acks = fs::read_to_string(file).unwrap();
    assert!(acks.starts_with("1 - ") && acks.contains("1 of 2 members"), "{acks}");
}

#[test]
fn a_subgroup_without_a_log_and_a_file_that_is_used_are_refused() {
    let scratch = Scratch::new();
    let mut command = scratch.spindle(["member", "ledger", "--durable-acks"]);
    let done = Running::start(command.arg(scratch.path("acks"))).done().expect(2);
    assert!(done.errors.last().unwrap().contains("\"all\" keeps no log"), "{:?}", done.errors);
    let done = Running::start(&mut scratch.spindle(["member", "ledger", "--durable-acks", "-"])).done().expect(2);
    assert!(done.errors.last().unwrap().contains("the deliveries are written there"), "{:?}", done.errors);
    let input = scratch.file("in", b"one\n");
    let mut command = scratch.spindle(["member", "ledger", "--durable-acks"]);
    let done = Running::start(command.arg(&input).arg("--input").arg(&input)).done().expect(1);
    assert!(done.errors.last().unwrap().contains("is also input or output"), "{:?}", done.errors);
    assert_eq!(fs::read(input).unwrap(), b"one\n");
}

#[test]
fn a_restart_that_waits_names_the_missing_members() {
    let scratch = Scratch::new();
    let mut members = [member(&scratch, 1, &[]), member(&scratch, 2, &[])];
    members[0].send(b"one\n");
    members.iter_mut().for_each(|member| drop(member.lines(1)));
    let ids = members.each_mut().map(|member| member.event("joined")["id"].as_u64().unwrap());
    for member in members {
        member.signal(Signal::KILL);
        member.done();
    }
    let mut back = member(&scratch, 1, &[]);
    let waiting = back.event_with("waiting", |object| object["restart"]["missing"].is_array());
    assert_eq!((&waiting["restart"]["missing"], &waiting["restart"]["view"]), (&[ids[1]][..].into(), &1.into()));
    let other = member(&scratch, 2, &[]);
    back.event("joined");
    Running::all_done(vec![back, other]).into_iter().for_each(|done| drop(done.expect(0)));
}
