//! `spindle member --durable-acks`, and the restart of a group whose members all ended.
mod common;

use common::{Running, Scratch};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::os::unix::process::CommandExt;
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

/// The lines in the log of a member.
fn logged(scratch: &Scratch, id: u32) -> Vec<String> {
    let data = scratch.path(&format!("data{id}"));
    let done = Running::start(&mut scratch.spindle(["log", "cat", data.to_str().unwrap(), "all"])).done().expect(0);
    let text = String::from_utf8(done.stdout).unwrap();
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.to_string()).collect()
}

/// With `--durability logged-before-delivery`, a line that any member has printed is in the logs of all of
/// them, though all are killed at once, and the group restarts with it.
#[test]
fn no_printed_line_is_lost_when_all_members_are_killed() {
    for round in 0..3 {
        let scratch = Scratch::new();
        let start = |id: u32, process_group: u32| {
            let mut command = scratch.member("ledger", 3);
            let data = scratch.path(&format!("data{id}"));
            fs::create_dir_all(&data).unwrap();
            command.args(["--durability", "logged-before-delivery", "--data"]).arg(data);
            Running::start(command.stdin(Stdio::piped()).process_group(process_group as i32))
        };
        let first = start(1, 0);
        let leader = first.pid();
        let mut members = [first, start(2, leader), start(3, leader)];
        members.iter_mut().for_each(|member| drop(member.event("joined")));
        for (member, running) in members.iter_mut().enumerate() {
            let lines: String = (0..400).map(|number| format!("m{member}-{number}\n")).collect();
            running.send(lines.as_bytes());
        }
        // In the middle of it.
        members[round].lines(100 * (1 + round));
        kill_process_group(Pid::from_raw(leader as i32).unwrap(), Signal::KILL).unwrap();
        let printed = members.map(|member| String::from_utf8(member.done().stdout).unwrap());
        assert!(printed[round].lines().count() > 100 * round);
        let logs = [1, 2, 3].map(|id| logged(&scratch, id));
        for text in &printed {
            // The last line may be cut off.
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            for (line, at) in whole.lines().zip(0..) {
                logs.iter().for_each(|log| assert_eq!(log.get(at).map(String::as_str), Some(line)));
            }
        }
        let back = [1, 2, 3].map(|id| start(id, 0));
        Running::all_done(back.into()).into_iter().for_each(|done| drop(done.expect(0)));
        let after = [1, 2, 3].map(|id| logged(&scratch, id));
        assert!(after[1..].iter().all(|log| *log == after[0]));
        let longest = logs.iter().map(Vec::len).max();
        assert!(Some(after[0].len()) >= longest && logs.iter().all(|log| after[0].starts_with(log)));
    }
}
