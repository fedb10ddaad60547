//! `spindle status`, `leave` and `evict`, with real members.
mod common;

use common::{Done, PATIENCE, Running, Scratch};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn started(scratch: &Scratch, count: u32, words: &[&str]) -> Vec<Running> {
    let member = |id: u32| {
        let mut command = scratch.member("g", count);
        Running::start(command.args(["--id", &id.to_string()]).args(words).stdin(Stdio::piped()))
    };
    let mut members: Vec<_> = (1..=count).map(member).collect();
    members.iter_mut().for_each(|member| drop(member.event("joined")));
    members
}

fn order(scratch: &Scratch, words: &[&str]) -> Done {
    Running::start(scratch.spindle(words).arg("--json")).done()
}

fn status(scratch: &Scratch) -> Value {
    order(scratch, &["status", "g"]).expect(0).objects().remove(0)
}

/// Returns the value of `key` in the status, for each member.
fn each(status: &Value, key: &str) -> Vec<Value> {
    status["members"].as_array().unwrap().iter().map(|member| member[key].clone()).collect()
}

#[test]
fn a_status_shows_the_view_its_members_and_their_frontiers() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, 3, &["--suspect-after", "never"]);
    members[0].send(b"one\ntwo\n");
    members.iter_mut().for_each(|member| drop(member.lines(2)));
    let all = status(&scratch);
    assert_eq!((&all["group"], &all["view"], &all["changing"]), (&json!("g"), &json!(1), &json!(false)));
    assert_eq!(each(&all, "id"), [1, 2, 3]);
    assert_eq!(each(&all, "pid"), members.iter().map(Running::pid).collect::<Vec<_>>());
    assert_eq!(
        (each(&all, "leads"), each(&all, "answers")),
        (vec![json!(true), json!(false), json!(false)], vec![json!(true); 3])
    );
    let subgroup = &all["subgroups"][0];
    assert!(subgroup["stable"].as_u64() >= Some(2), "{subgroup}");
    assert!(subgroup["members"].as_array().unwrap().iter().all(|member| member["received"].as_u64() >= Some(2)));

    members[1].stop();
    let all = status(&scratch);
    assert_eq!(each(&all, "answers"), [true, false, true]);
    let told = Running::start(&mut scratch.spindle(["status", "g"])).done().expect(0);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.starts_with("group g: 3 members in view 1\n"), "{text}");
    assert_eq!(text.matches("does not answer").count(), 1, "{text}");
    members[1].signal(Signal::CONT);

    let mut watch = Running::start(&mut scratch.spindle(["status", "g", "--watch", "--json"]));
    watch.lines(2);
    Running::all_done(members).into_iter().for_each(|done| drop(done.expect(0)));
    let objects = watch.done().expect(0).objects();
    assert!(objects.len() >= 2 && objects[0]["view"] == 1);
}

/// How long a member may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

#[test]
fn the_wait_ends_when_all_have_answered() {
    let scratch = Scratch::new();
    let _members = started(&scratch, 2, &[]);
    let patience = Instant::now() + PATIENCE;
    // A busy machine may delay some answers.
    let is_quick = || {
        let begun = Instant::now();
        status(&scratch);
        begun.elapsed() < ANSWER_WAIT
    };
    while !is_quick() {
        assert!(Instant::now() < patience, "each takes as long as a member may take to answer");
    }
}

#[test]
fn a_group_without_members_is_reported_and_leaves_no_files() {
    let scratch = Scratch::new();
    for words in
        [&["status", "g"][..], &["status", "g", "--watch"], &["leave", "g", "--id", "1"], &["evict", "g", "--id", "1"]]
    {
        let error = order(&scratch, words).expect(1).error();
        assert!(error.contains("group g has no members"), "{error}");
    }
    assert_eq!(scratch.runtime_dir().read_dir().unwrap().count(), 0);
}

#[test]
fn a_member_leaves_when_it_is_told_to() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, 3, &[]);
    members[1].send(b"my last words\n");
    members.iter_mut().for_each(|member| drop(member.lines(1)));
    let error = order(&scratch, &["leave", "g", "--id", "9"]).expect(1).error();
    assert!(error.contains("no member 9") && error.contains("1, 2, 3"), "{error}");
    let gone = order(&scratch, &["leave", "g", "--id", "2"]).expect(0).objects().remove(0);
    assert_eq!(gone, json!({"event": "gone", "id": 2, "view": 2, "members": [1, 3]}));
    let mut left = members.remove(1);
    left.event("error");
    let error = left.done().expect(3).error();
    assert!(error.contains("has left the group") && error.contains("the 1 message delivered"), "{error}");
    for member in &mut members {
        assert_eq!(member.view(&[1, 3])["left"], json!([2]));
    }
    order(&scratch, &["leave", "g", "--id", "3"]).expect(0);
    members[0].view(&[1]);
    let gone = order(&scratch, &["leave", "g", "--id", "1"]).expect(0).objects().remove(0);
    assert_eq!((&gone["id"], &gone["view"]), (&json!(1), &Value::Null));
}

#[test]
fn a_member_is_evicted_whoever_leads_and_also_while_it_hangs() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, 4, &["--suspect-after", "never"]);
    // Member 1 is the leader.
    order(&scratch, &["evict", "g", "--id", "1"]).expect(0);
    let mut evicted = members.remove(0);
    evicted.event("error");
    evicted.done().expect(3);
    members[2].stop();
    let error = order(&scratch, &["leave", "g", "--id", "4"]).expect(1).error();
    assert!(error.contains("did not answer") && error.contains("spindle evict"), "{error}");
    let gone = order(&scratch, &["evict", "g", "--id", "4"]).expect(0).objects().remove(0);
    assert_eq!(gone["members"], json!([2, 3]));
    members[2].signal(Signal::CONT);
    members[2].event("error");
    members.pop().unwrap().done().expect(3);
    for member in &mut members {
        member.view(&[2, 3]);
    }
    Running::all_done(members).into_iter().for_each(|done| drop(done.expect(0)));
    let alone = started(&scratch, 1, &[]);
    let error = order(&scratch, &["evict", "g", "--id", "1"]).expect(1).error();
    assert!(error.contains("is the only one"), "{error}");
    drop(alone);
}

#[test]
fn a_member_whose_process_is_stuck_is_not_said_to_be_gone() {
    let scratch = Scratch::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = scratch.member("g", 2);
    let mut other = Running::start(command.args(["--id", "1"]).stdin(Stdio::piped()));
    let mut command = scratch.member("g", 2);
    // Nothing reads the output of this member.
    let mut stuck = Running::listening(command.args(["--id", "2"]).stdin(Stdio::piped()).stdout(writer), false);
    drop(command);
    other.event("joined");
    stuck.event("joined");
    other.send(&b"a line that fills the pipe\n".repeat(10_000));
    stuck.event("stalled");
    let told = order(&scratch, &["leave", "g", "--id", "2"]).expect(0).objects().remove(0);
    assert_eq!((&told["view"], &told["members"], &told["running"]), (&json!(2), &json!([1]), &json!(stuck.pid())));
    drop(reader);
    let _ = stuck.done();
    other.done().expect(0);
}
