//! `spindle demo`: its members agree, and it leaves nothing behind.
mod common;

use common::{PATIENCE, Running, Scratch};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use rustix::time::Timespec;
use serde_json::Value;
use std::os::fd::OwnedFd;

fn demo(scratch: &Scratch, words: &[&str]) -> Running {
    Running::start(scratch.spindle(["demo"]).args(words))
}

/// Checks the last object of a run: all members delivered the same, and every message that was
/// sent.
fn check_final(object: &Value, members: usize, subgroups: usize) {
    assert_eq!((&object["event"], &object["agree"]), (&"final".into(), &true.into()));
    let all = object["members"].as_array().unwrap();
    assert_eq!(all.len(), members);
    let sent: u64 = all.iter().map(|member| member["sent"].as_u64().unwrap()).sum();
    assert!(sent > 0);
    for member in all {
        assert_eq!(member["delivered"], sent);
        assert_eq!(member["views"].as_array().unwrap().len(), 1);
        assert_eq!(member["views"][0]["subgroups"].as_array().unwrap().len(), subgroups);
        assert_eq!(member["views"], all[0]["views"]);
    }
}

#[test]
fn two_three_and_eight_members_agree() {
    let scratch = Scratch::new();
    let cases: [(&str, &[&str], usize); 3] = [
        ("2", &["--senders", "one", "--size", "10k"], 1),
        ("3", &["--subgroups", "3"], 3),
        ("8", &["--size", "16"], 1),
    ];
    for (members, words, subgroups) in cases {
        let words = [&["--json", "--seconds", "1", "--members", members], words].concat();
        let objects = demo(&scratch, &words).done().expect(0).objects();
        check_final(objects.last().unwrap(), members.parse().unwrap(), subgroups);
        assert!(objects[..objects.len() - 1].iter().all(|object| object["event"] == "interval"));
    }
    assert_eq!(scratch.runtime_dir().read_dir().unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn messages_of_no_bytes_are_messages() {
    let scratch = Scratch::new();
    let words = ["--json", "--seconds", "1", "--members", "2", "--size", "0", "--senders", "half"];
    check_final(demo(&scratch, &words).done().expect(0).objects().last().unwrap(), 2, 1);
}

#[test]
fn a_pipe_gets_plain_lines_and_the_verdict() {
    let scratch = Scratch::new();
    let done = demo(&scratch, &["--seconds", "1", "--members", "2"]).done().expect(0);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(!text.contains('\x1b'));
    assert!(text.contains("All 2 members delivered the same"), "{text}");
}

#[test]
fn ctrl_c_ends_it_with_the_final_table() {
    let scratch = Scratch::new();
    let mut running = demo(&scratch, &["--seconds", "600", "--members", "3"]);
    running.lines(1);
    running.signal(Signal::INT);
    let done = running.done().expect(130);
    assert!(String::from_utf8(done.stdout).unwrap().contains("All 3 members delivered the same"));
}

/// Starts a long demo and waits until its members work. Returns handles of their processes, by
/// member.
fn at_work(scratch: &Scratch) -> (Running, Vec<(Pid, OwnedFd)>) {
    let mut running = demo(scratch, &["--json", "--seconds", "600", "--members", "3"]);
    let first: Value = serde_json::from_str(&running.lines(1)[0]).unwrap();
    let pids = first["members"].as_array().unwrap().iter().map(|m| m["pid"].as_i64().unwrap() as i32);
    let open = |pid| {
        let pid = Pid::from_raw(pid).unwrap();
        (pid, pidfd_open(pid, PidfdFlags::empty()).unwrap())
    };
    (running, pids.map(open).collect())
}

#[track_caller]
fn wait_for_death(process: &OwnedFd) {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "a member outlived its demo");
}

#[test]
fn a_member_that_is_killed_is_named_and_the_others_go_on() {
    let scratch = Scratch::new();
    let (mut running, members) = at_work(&scratch);
    let victim = members[1].0;
    rustix::process::kill_process(victim, Signal::KILL).unwrap();
    let changed = |text: &String| serde_json::from_str::<Value>(text).unwrap()["event"] == "view";
    let mut count = 2;
    while !running.lines(count).iter().any(changed) {
        count += 1;
    }
    // The remaining members deliver again.
    running.lines(count + 2);
    running.signal(Signal::INT);
    let done = running.done().expect(3);
    let how = format!("member 2 (process {}) was killed (signal 9)", victim.as_raw_nonzero());
    assert_eq!(done.error(), format!("{how}; the others agree"));
    let objects = done.objects();
    let lost = objects.iter().find(|object| object["event"] == "lost").unwrap();
    assert_eq!((&lost["member"], &lost["message"]), (&2.into(), &how.into()));
    let last = objects.last().unwrap();
    assert_eq!((&last["agree"], last["members"].as_array().unwrap().len()), (&true.into(), 2));
    members.iter().for_each(|(_, process)| wait_for_death(process));
}

#[test]
fn a_member_is_killed_on_purpose_and_another_comes_instead() {
    let scratch = Scratch::new();
    let cases: [&[&str]; 3] =
        [&["--members", "3"], &["--members", "4", "--senders", "one", "--subgroups", "2"], &["-n", "2"]];
    for words in cases {
        let words = [&["--json", "--kill", "--seconds", "1"], words].concat();
        let objects = demo(&scratch, &words).done().expect(0).objects();
        let find = |name: &str| objects.iter().find(|object| object["event"] == name).unwrap();
        let victim = find("killed")["member"].as_u64().unwrap();
        let survived = find("survived")["members"].as_array().unwrap();
        for survivor in survived {
            assert!(survivor["member"] != victim && survivor["delivery_ns"].as_u64() >= survivor["view_ns"].as_u64());
        }
        let views: Vec<&Value> = objects.iter().filter(|object| object["event"] == "view").collect();
        let newcomer = survived.len() as u64 + 2;
        assert_eq!((&views[0]["left"][0], &views[1]["joined"][0]), (&victim.into(), &newcomer.into()), "{views:?}");
        let last = objects.last().unwrap();
        assert_eq!(last["agree"], true);
        let all = last["members"].as_array().unwrap();
        assert_eq!(all.len(), survived.len() + 1);
        assert_eq!(all[0]["views"].as_array().unwrap().len(), 3);
        let late = all.last().unwrap();
        assert_eq!((&late["member"], &late["views"][0]), (&newcomer.into(), &all[0]["views"][2]));
    }
    assert_eq!(scratch.runtime_dir().read_dir().unwrap().count(), 0, "nothing is left behind");
    demo(&scratch, &["--kill", "--members", "1"]).done().expect(2);
}

#[test]
fn a_demo_that_is_killed_leaves_no_process() {
    let scratch = Scratch::new();
    let (running, members) = at_work(&scratch);
    running.signal(Signal::KILL);
    members.iter().for_each(|(_, process)| wait_for_death(process));
    drop(running);
    // The next demo removes the directory of the killed one.
    demo(&scratch, &["--seconds", "1", "--members", "2"]).done().expect(0);
    assert_eq!(scratch.runtime_dir().read_dir().unwrap().count(), 0);
}
