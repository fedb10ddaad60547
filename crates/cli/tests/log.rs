//! Events of the library on the standard error: `-v` and `$SPINDLE_LOG`.
mod common;

use common::{Running, Scratch, seeds};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;

const DECIDED: &str = "next view decided";
/// The two possible events about a death. The sign that a process is about to end may come first,
/// and the next view before the proof of its death.
const OPINIONS: [&str; 2] = ["suspected", "member is dead"];

fn is_opinion(line: &str) -> bool {
    OPINIONS.iter().any(|told| line.contains(told))
}

/// Returns the members 1 to 3 of a group. The first prints the events that `words` and the variable
/// select.
fn started(scratch: &Scratch, words: &[&str], filter: Option<&str>) -> Vec<Running> {
    let members = (1..=3).map(|id| {
        let mut command = scratch.spindle(["member", "told", "--founders", "3", "--id", &id.to_string()]);
        if id == 1 {
            command.args(words).envs(filter.map(|filter| ("SPINDLE_LOG", filter)));
        }
        Running::start(command.stdin(Stdio::piped()))
    });
    let mut members: Vec<Running> = members.collect();
    members[0].send(b"all are here\n");
    members.iter_mut().for_each(|member| drop(member.lines(1)));
    members
}

/// Kills the third member, ends the others in order, and returns the lines of the first one.
fn without_the_third(mut members: Vec<Running>, told: &str) -> Vec<String> {
    members.pop().expect("it is the third").signal(Signal::KILL);
    members[0].says(told);
    let mut done = Running::all_done(members).into_iter().map(|done| done.expect(0).errors);
    done.next().expect("it is the first")
}

#[test]
fn a_death_is_told_with_its_evidence_on_a_line_with_the_time() {
    let scratch = Scratch::new();
    let lines = without_the_third(started(&scratch, &["-v"], None), DECIDED);
    let line = lines.iter().find(|line| is_opinion(line)).unwrap();
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.len() == "2026-11-22T20:47:06.123Z".len() && time.ends_with('Z'), "{line}");
    assert!(rest.starts_with("WARN  spindle::view: ") && rest.contains(" me=1 view=1 member=3 "), "{line}");
    assert!(rest.contains("cause=\"its process") || rest.contains("evidence=\"its process has ended"), "{line}");
    let decided = lines.iter().find(|line| line.contains(DECIDED)).unwrap();
    assert!(decided.contains("members=[1, 2] left_out=[3 (") && decided.contains("joined=[]"), "{decided}");
    assert!(!lines.iter().any(|line| line.contains(" DEBUG ")), "{lines:#?}");
}

#[test]
fn with_json_events_are_objects_among_the_others() {
    let scratch = Scratch::new();
    let lines = without_the_third(started(&scratch, &["-vv", "--json"], None), DECIDED);
    let objects: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let logged = |is_it: &dyn Fn(&str) -> bool| {
        let is_it = |object: &&Value| object["event"] == "log" && object["message"].as_str().is_some_and(is_it);
        objects.iter().find(is_it).unwrap_or_else(|| panic!("{lines:#?}"))
    };
    let opinion = logged(&is_opinion);
    assert_eq!((&opinion["level"], &opinion["target"]), (&"warn".into(), &"spindle::view".into()));
    assert_eq!((&opinion["fields"]["me"], &opinion["fields"]["member"]), (&1.into(), &3.into()));
    assert!(opinion["time"].is_string(), "{opinion}");
    assert_eq!(logged(&|message| message == "view is closing")["level"], "debug");
}

#[test]
fn nothing_is_told_unless_it_is_asked_for() {
    let scratch = Scratch::new();
    let silent: [(&[&str], Option<&str>); 3] = [(&[], None), (&[], Some("")), (&["-vvv"], Some("off"))];
    for (words, filter) in silent {
        let lines = without_the_third(started(&scratch, words, filter), "member 3 is gone");
        assert!(!lines.iter().any(|line| line.contains("spindle::")), "{words:?}, {filter:?}: {lines:#?}");
    }
}

#[test]
fn the_variable_counts_more_than_the_flag_and_is_no_setting() {
    let scratch = Scratch::new();
    let lines = without_the_third(started(&scratch, &["-v"], Some("spindle::view=warn")), "member 3 is gone");
    assert!(lines.iter().any(|line| is_opinion(line)), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains(DECIDED)), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("no key has this variable")), "{lines:#?}");
}

#[test]
fn a_filter_by_which_nothing_could_pass_is_refused_as_wrong_settings_are() {
    let scratch = Scratch::new();
    for (filter, why) in
        [("spindle=loud", "level filter"), ("verbose", "no level"), ("spindle::views=info", "no level")]
    {
        let mut command = scratch.spindle(["member", "told"]);
        let done = Running::start(command.env("SPINDLE_LOG", filter)).done().expect(2);
        let line = done.errors.last().unwrap();
        assert!(line.starts_with(&format!("error: SPINDLE_LOG={filter}: ")), "{line}");
        assert!(line.contains(why) && line.contains("TARGET=LEVEL"), "{line}");
    }
    let mut command = scratch.spindle(["member", "told", "--json"]);
    let done = Running::start(command.env("SPINDLE_LOG", "verbose")).done().expect(2);
    assert!(done.error().starts_with("SPINDLE_LOG=verbose: "), "{:#?}", done.errors);
}

#[test]
fn a_suspicion_is_told_with_the_silence_and_so_is_its_end() {
    let scratch = Scratch::new();
    let start = |id: &str| {
        let mut command =
            scratch.spindle(["member", "told", "--founders", "2", "--suspect-after", "0.5", "-v", "--id", id]);
        Running::start(command.stdin(Stdio::piped()))
    };
    let [mut watching, mut hanging] = ["1", "2"].map(start);
    for member in [&mut watching, &mut hanging] {
        member.says("first view begins");
    }
    hanging.stop();
    watching.send(b"waits for it\n");
    let suspected = watching.says("spindle::view: suspected");
    assert!(suspected.contains("member=2") && suspected.contains("cause=silence"), "{suspected}");
    assert!(suspected.contains("silent_ms=") && suspected.contains("last_heartbeat="), "{suspected}");
    assert!(watching.says("spindle::view: blocked").contains("missed="));
    hanging.signal(Signal::CONT);
    let withdrawn = watching.says("spindle::view: suspicion withdrawn");
    assert!(withdrawn.contains("member=2") && withdrawn.contains("silent_ms="), "{withdrawn}");
    watching.says("spindle::view: unblocked");
    Running::all_done(vec![watching, hanging]).into_iter().for_each(|done| drop(done.expect(0)));
}

#[test]
fn founding_and_a_refused_stranger_and_the_phases_of_a_view_change_are_told() {
    let scratch = Scratch::new();
    let seed = seeds(1).remove(0);
    let start = |id: &str, listen: &str| {
        let words = ["member", "told", "--founders", "2", "-v", "--id", id, "--listen", listen, "--seeds", &seed];
        let mut command = scratch.spindle(words);
        command.arg("--runtime-dir").arg(scratch.path(&format!("host{id}")));
        Running::start(command.stdin(Stdio::piped()))
    };
    let mut first = start("1", &seed);
    first.says("spindle::bootstrap: ");
    let second = start("2", "127.0.0.1:0");
    first.says("group is created");
    first.says("first view begins");
    TcpStream::connect(&seed).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let refused = first.says("spindle::net: refused");
    assert!(refused.contains("reason="), "{refused}");
    second.signal(Signal::INT);
    let decided = first.says(DECIDED);
    assert!(decided.contains("left_out=[2 (") && decided.contains("agree_ms="), "{decided}");
    let ended = first.says("spindle::view: view ended");
    assert!(ended.contains("agree_ms=") && ended.contains("deliver_ms="), "{ended}");
    let begins = first.says("spindle::view: view begins");
    assert!(begins.contains("install_ms="), "{begins}");
    second.done().expect(130);
    first.done().expect(0);
}

/// The members of a benchmark join with a state. They print events at the level of this process.
#[test]
fn a_state_transfer_is_told_by_the_member_that_sends_it_and_by_the_joiner() {
    for (fabric, through) in [("shm", "a pipe"), ("tcp", "a stream")] {
        let scratch = Scratch::new();
        let words = ["bench", "views", "--members", "3", "--trials", "1", "--state", "1MiB", "-v", "--fabric", fabric];
        let mut command = scratch.spindle(words);
        let done = Running::start(command.env("TMPDIR", scratch.path(""))).done().expect(0);
        let told = |words: &str| {
            let is_it = |line: &&String| line.contains("INFO  spindle::state: ") && line.contains(words);
            done.errors.iter().find(is_it).unwrap_or_else(|| panic!("no {words:?}: {:#?}", done.errors))
        };
        let sent = told(&format!("state sent through={through:?} bytes=1048"));
        assert!(sent.contains("send_ms="), "{sent}");
        let restored = told("state is restored ");
        assert!(["member=", "view=", "restore_ms="].iter().all(|field| restored.contains(field)), "{restored}");
    }
}
