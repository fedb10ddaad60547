//! `spindle observe`, as processes: it prints the same as the members, they don't wait for it, and
//! it reports missed messages.
mod common;

use common::{Done, PATIENCE, Running, Scratch, read};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// Returns the members 1 to `count` of a complete group, with pipes as inputs.
fn started(scratch: &Scratch, count: u32) -> Vec<Running> {
    let member = |id: u32| {
        let mut command = scratch.member("seen", count);
        command.args(["--id", &id.to_string(), "--with-origin"]);
        Running::start(command.stdin(Stdio::piped()))
    };
    let mut members: Vec<_> = (1..=count).map(member).collect();
    members.iter_mut().for_each(|member| drop(member.event("joined")));
    members
}

fn observer(scratch: &Scratch, words: &[&str]) -> Running {
    let mut observer = Running::start(scratch.spindle(["observe", "seen", "--json", "--with-origin"]).args(words));
    observer.event("observing");
    observer
}

#[test]
fn an_observer_prints_what_the_members_print_while_they_come_and_go() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, 3);
    members[0].send(b"before\n");
    members.iter_mut().for_each(|member| drop(member.lines(1)));
    let mut observer = observer(&scratch, &["--subgroup", "all"]);
    assert_eq!(observers(&scratch), 1);

    let lines = |who: &str| (0..500).map(|i| format!("{who} {i}\n")).collect::<String>();
    members.iter_mut().for_each(|member| member.send(lines("first").as_bytes()));
    members.iter_mut().for_each(|member| drop(member.lines(1501)));
    members.remove(1).signal(Signal::KILL);
    observer.view(&[1, 3]);
    members.iter_mut().for_each(|member| member.send(lines("second").as_bytes()));
    let mut late = scratch.spindle(["member", "seen", "--json", "--with-origin", "--id", "7"]);
    let late = Running::start(late.stdin(Stdio::piped()));
    observer.view(&[1, 3, 7]);
    members.push(late);
    members.iter_mut().for_each(|member| member.send(lines("third").as_bytes()));
    let printed = Running::all_done(members).into_iter().map(|done| done.expect(0).stdout).collect::<Vec<_>>();
    let done = observer.done().expect(0);
    let behind = printed[0].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert!(done.stdout == printed[0][behind..], "the observer printed something else than member 1");
    assert_eq!(done.event("finished")["messages"], 1500 + 1000 + 1500);
    let views = events(&done, "view");
    assert_eq!((&views[0]["left"], &views[1]["joined"]), (&json!([2]), &json!([7])));
}

fn events(done: &Done, name: &str) -> Vec<Value> {
    let objects = done.errors.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    objects.filter(|object| object["event"] == name).collect()
}

/// Returns (id, round) of each line.
fn places(output: &[u8]) -> Vec<(u64, u64)> {
    let place = |line: &[u8]| {
        let space = line.iter().position(|byte| *byte == b' ').unwrap();
        let numbers: Vec<u64> =
            std::str::from_utf8(&line[..space]).unwrap().split(':').map(|number| number.parse().unwrap()).collect();
        (numbers[1], numbers[2])
    };
    output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(place).collect()
}

#[test]
fn a_stopped_observer_delays_no_member_and_reports_what_it_missed() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, 2);
    let observer = observer(&scratch, &[]);
    observer.stop();
    // Each member sends enough to fill its ring several times.
    let text = format!("{}\n", "x".repeat(1000)).repeat(5000);
    members.iter_mut().for_each(|member| member.send(text.as_bytes()));
    let printed = Running::all_done(members).into_iter().map(|done| done.expect(0).stdout).collect::<Vec<_>>();
    assert!(printed[0] == printed[1]);
    observer.signal(Signal::CONT);
    let done = observer.done().expect(0);
    let missed = events(&done, "missed");
    assert!(!missed.is_empty());
    let is_in = |(id, round): (u64, u64)| {
        let gaps = missed.iter().flat_map(|missed| missed["gaps"].as_array().unwrap());
        gaps.filter(|gap| gap["id"] == id)
            .filter(|gap| (gap["from"].as_u64().unwrap()..gap["until"].as_u64().unwrap()).contains(&round))
            .count()
    };
    let (all, seen) = (places(&printed[0]), places(&done.stdout));
    assert!(seen.is_sorted_by_key(|(id, round)| (*round, *id)));
    for place in &all {
        let times = usize::from(seen.binary_search_by_key(&(place.1, place.0), |(id, round)| (*round, *id)).is_ok());
        assert_eq!(times + is_in(*place), 1, "{place:?}");
    }
    assert!(seen.len() < all.len());
}

#[test]
fn ctrl_c_ends_an_observer_in_order_and_mistakes_are_told() {
    let scratch = Scratch::new();
    let observe = |words: &[&str]| Running::start(scratch.spindle(["observe", "seen", "--json"]).args(words));
    let error = observe(&[]).done().expect(1).error();
    assert!(error.contains("group seen has no members") && error.contains("--runtime-dir"), "{error}");

    let mut members = started(&scratch, 1);
    let error = observe(&["--subgroup", "other"]).done().expect(2).error();
    assert!(error.contains("no subgroup \"other\"") && error.contains("all"), "{error}");
    let output = scratch.path("seen");
    let stopped = observer(&scratch, &["--output", output.to_str().unwrap()]);
    members[0].send(b"one\ntwo\n");
    members[0].lines(2);
    // The lines are written as soon as no further line is ready.
    wait_for(&output, b"1:1:0 one\n1:1:1 two\n");
    stopped.signal(Signal::INT);
    let done = stopped.done().expect(0);
    assert_eq!(done.event("finished")["messages"], 2);
    members[0].send(b"three\n");
    members[0].lines(3);
    // The member also learns of the end of a killed observer.
    let killed = observer(&scratch, &[]);
    assert_eq!(observers(&scratch), 1);
    killed.signal(Signal::KILL);
    drop(killed);
    let patience = Instant::now() + PATIENCE;
    while observers(&scratch) > 0 {
        assert!(Instant::now() < patience);
    }
    let orphan = observer(&scratch, &[]);
    members[0].signal(Signal::KILL);
    let error = orphan.done().expect(1).error();
    assert!(error.contains("all members of the group have ended"), "{error}");
}

/// Returns the number of observers that the members know.
fn observers(scratch: &Scratch) -> u64 {
    let status = Running::start(&mut scratch.spindle(["status", "seen", "--json"])).done().expect(0);
    status.objects()[0]["observers"].as_u64().unwrap()
}

fn wait_for(path: &Path, content: &[u8]) {
    let patience = Instant::now() + PATIENCE;
    while read(path) != content {
        assert!(Instant::now() < patience, "{:?}", read(path));
        std::thread::yield_now();
    }
}
