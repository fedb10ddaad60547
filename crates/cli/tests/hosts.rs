//! `spindle member` on several hosts. Here these are several runtime directories, with the network
//! on loopback.
mod common;

use common::{Done, Running, Scratch, read, seeds};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The members 1 to 3 of the group "wide", each on a host of its own and a seed, with pipes as
/// inputs.
struct Wide {
    scratch: Scratch,
    seeds: String,
    members: Vec<Running>,
}

impl Wide {
    fn started(words: &[&str]) -> Wide {
        let (scratch, seeds) = (Scratch::new(), seeds(3));
        let mut wide = Wide { scratch, seeds: seeds.join(","), members: vec![] };
        for (id, listen) in (1..).zip(&seeds) {
            let id = format!("{id}");
            let mut command = wide.on(&id, &["member", "--founders", "3", "--id", &id, "--listen", listen]);
            wide.members.push(Running::start(command.args(words).stdin(Stdio::piped())));
        }
        wide.members.iter_mut().for_each(|member| drop(member.event("joined")));
        wide
    }

    /// Returns a command about the group on this host. It reports events as JSON.
    fn on(&self, host: &str, words: &[&str]) -> Command {
        let mut command = self.scratch.spindle(words);
        command.args(["wide", "--json", "--runtime-dir"]).arg(self.scratch.path(&format!("host{host}")));
        command.env("SPINDLE_NETWORK_SEEDS", &self.seeds);
        command
    }

    /// Runs a command that takes no part in the group, and returns its result.
    fn order(&self, host: &str, words: &[&str]) -> Done {
        Running::start(self.on(host, words).env_remove("SPINDLE_NETWORK_SEEDS")).done()
    }
}

#[test]
fn an_evicted_member_alone_on_its_host_finds_its_group_again() {
    let mut wide = Wide::started(&["--suspect-after", "0.5", "--rejoin"]);
    let members = &mut wide.members;
    // This member started the group, and could start another one.
    members[0].stop();
    members[1].view(&[2, 3]);
    members[0].signal(Signal::CONT);
    assert_eq!(members[0].event("evicted")["given_up"], false);
    let come = members[1].says("\"left\":[]");
    assert!(come.contains("\"view\":3"), "{come}");
    members[1].send(b"late\n");
    for done in Running::all_done(wide.members) {
        assert_eq!(done.expect(0).stdout, b"late\n");
    }
}

#[test]
fn an_observer_follows_members_of_other_hosts_beside_one_and_alone() {
    let mut wide = Wide::started(&[]);
    let observe = |host: &str| {
        let mut observer = Running::start(&mut wide.on(host, &["observe", "--listen", "127.0.0.1:0"]));
        assert_eq!(observer.event("observing")["members"], json!([1, 2, 3]));
        observer
    };
    let observers = [observe("2"), observe("4")];
    wide.members.iter_mut().for_each(|member| member.send(b"seen\n"));
    Running::all_done(std::mem::take(&mut wide.members)).into_iter().for_each(|done| drop(done.expect(0)));
    for observer in observers {
        assert_eq!(observer.done().expect(0).stdout, b"seen\n".repeat(3));
    }
}

#[test]
fn an_observer_without_a_network_is_told_what_it_lacks() {
    let wide = Wide::started(&[]);
    let error = wide.order("2", &["observe", "--timeout", "1"]).expect(1).error();
    assert!(error.contains("within 1.0s") && error.contains("--listen"), "{error}");
}

#[test]
fn status_lists_members_of_other_hosts_and_waits_for_none_of_them() {
    let wide = Wide::started(&["--suspect-after", "never"]);
    wide.members[2].stop();
    let status = wide.order("1", &["status"]).expect(0).objects().remove(0);
    let each = |key: &str| status["members"].as_array().unwrap().iter().map(|m| m[key].clone()).collect::<Vec<_>>();
    assert_eq!((each("far"), each("answers")), (vec![json!(false), json!(true), json!(true)], each("leads")));
    wide.members[2].signal(Signal::CONT);
}

#[test]
fn a_member_of_another_host_is_evicted_from_here_and_asked_to_leave_there() {
    let mut wide = Wide::started(&[]);
    let error = wide.order("1", &["leave", "--id", "3"]).expect(1).error();
    assert!(error.contains("member 3 of group wide is on another host"), "{error}");
    let error = wide.order("1", &["leave", "--id", "9"]).expect(1).error();
    assert!(error.contains("no member 9; its members are 1, 2, 3"), "{error}");
    let error = wide.order("1", &["evict", "--id", "1"]).expect(1).error();
    assert!(error.contains("the only one of group wide on this host"), "{error}");
    let gone = wide.order("1", &["evict", "--id", "3"]).expect(0).objects().remove(0);
    assert_eq!(gone, json!({"event": "gone", "id": 3, "view": 2, "members": [1, 2]}));
    let mut evicted = wide.members.remove(2);
    evicted.event("error");
    evicted.done().expect(3);
    let gone = wide.order("2", &["leave", "--id", "2"]).expect(0).objects().remove(0);
    assert_eq!(gone, json!({"event": "gone", "id": 2, "view": null, "members": []}));
    wide.members[0].view(&[1]);
}

impl Wide {
    /// Waits until member 1 reports the `wanted` state of itself and its view.
    fn wait_until(&self, wanted: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let status = self.order("1", &["status"]).expect(0).objects().remove(0);
            if wanted(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "{status}");
            sleep(Duration::from_millis(50));
        }
    }

    fn wait_until_blocked(&self) {
        self.wait_until(|status| status["blocked"] == true);
    }
}

#[test]
fn the_rest_goes_on_by_the_word_that_the_others_are_lost() {
    let mut wide = Wide::started(&["--suspect-after", "0.5"]);
    let error = wide.order("1", &["recover", "--lost", "2", "--yes"]).expect(1).error();
    assert!(error.contains("group wide is not blocked"), "{error}");
    // Both members die before the remaining one can continue without one of them.
    let lost: Vec<_> = wide.members.drain(1..).collect();
    // Stopped first: a kill takes effect at once, and the other two could agree before the second
    // one.
    lost.iter().for_each(|member| member.signal(Signal::STOP));
    lost.iter().for_each(|member| member.signal(Signal::KILL));
    lost.into_iter().for_each(|member| drop(member.done()));
    wide.wait_until_blocked();
    let error = wide.order("1", &["recover", "--lost", "2,3"]).expect(2).error();
    assert!(error.contains("--yes"), "{error}");
    for (lost, why) in [
        ("3", "member 2 is not named, and not heard"),
        ("1,2", "member 1 of group wide lives, on this host"),
        ("2,9", "no member 9; its members are 1, 2, 3"),
    ] {
        let error = wide.order("1", &["recover", "--lost", lost, "--yes"]).expect(1).error();
        assert!(error.contains(why), "{error}");
    }
    let went_on = wide.order("1", &["recover", "--lost", "2,3", "--yes"]).expect(0).objects().remove(0);
    let second = went_on["view"].as_u64().unwrap();
    assert_eq!(went_on, json!({"event": "recovered", "lost": [2, 3], "view": second, "members": [1]}));
    assert!(second >> 48 == 1 && second as u32 == 2, "{second:x}");
    wide.members[0].view(&[1]);
    let mut command = wide.on("2", &["member", "--id", "4", "--listen", "127.0.0.1:0", "--suspect-after", "0.5"]);
    wide.members.push(Running::start(command.stdin(Stdio::piped())));
    wide.members[1].event("joined");
    wide.members[0].send(b"on\n");
    for done in Running::all_done(wide.members) {
        assert_eq!(done.expect(0).stdout, b"on\n");
    }
}

#[test]
fn members_that_were_given_up_by_mistake_come_back_to_the_one_group() {
    let mut wide = Wide::started(&["--suspect-after", "0.5", "--rejoin"]);
    wide.members[1].stop();
    wide.members[2].stop();
    wide.wait_until_blocked();
    let went_on = wide.order("1", &["recover", "--lost", "2,3", "--yes"]).expect(0).objects().remove(0);
    assert_eq!(went_on["members"], json!([1]));
    // The two members are a majority of the view that they know.
    wide.members[1].signal(Signal::CONT);
    wide.members[2].signal(Signal::CONT);
    assert_eq!(wide.members[1].event("evicted")["given_up"], true);
    assert_eq!(wide.members[2].event("evicted")["given_up"], true);
    wide.wait_until(|status| status["members"].as_array().unwrap().len() == 3);
    wide.members[1].send(b"again\n");
    for done in Running::all_done(wide.members) {
        assert_eq!(done.expect(0).stdout, b"again\n");
    }
}

#[test]
fn members_that_were_given_up_by_mistake_say_so_when_they_end() {
    let mut wide = Wide::started(&["--suspect-after", "0.5"]);
    wide.members[1].stop();
    wide.members[2].stop();
    wide.wait_until_blocked();
    wide.order("1", &["recover", "--lost", "2,3", "--yes"]).expect(0);
    let given_up = wide.members.split_off(1);
    given_up.iter().for_each(|member| member.signal(Signal::CONT));
    for (id, member) in (2..).zip(given_up) {
        let error = member.done().expect(3).error();
        let why = format!("this member (id {id}) was given up by an operator's recovery after view 1");
        assert!(error.starts_with(&why) && error.contains("--rejoin"), "{error}");
    }
    wide.members[0].send(b"on\n");
    for done in Running::all_done(wide.members) {
        assert_eq!(done.expect(0).stdout, b"on\n");
    }
}

#[test]
fn members_of_three_hosts_print_the_same_lines_and_two_of_them_share_one() {
    let scratch = Scratch::new();
    let seed = seeds(1).remove(0);
    let outputs: Vec<_> = (0..4).map(|i| scratch.path(&format!("out{i}"))).collect();
    let members = (0..4).map(|i| {
        let lines: String = (0..2000).map(|line| format!("line {line} of {i}\n")).collect();
        let input = scratch.file(&format!("in{i}"), lines.as_bytes());
        let mut command = scratch.member("wide", 4);
        let listen = if i == 0 { seed.clone() } else { "127.0.0.1:0".to_string() };
        command.args(["--listen", &listen, "--seeds", &seed]);
        command.arg("--runtime-dir").arg(scratch.path(["a", "b", "c", "c"][i]));
        command.arg("--input").arg(input).arg("--output").arg(&outputs[i]);
        Running::start(&mut command)
    });
    let members: Vec<_> = members.collect();
    for member in members {
        member.done().expect(0);
    }
    let first = read(&outputs[0]);
    assert_eq!(first.iter().filter(|byte| **byte == b'\n').count(), 8000);
    for output in &outputs[1..] {
        assert!(read(output) == first, "{} differs from {}", output.display(), outputs[0].display());
    }
}

#[test]
fn a_waiting_process_tells_why_its_seed_is_unusable() {
    let scratch = Scratch::new();
    // No other process gets this port for a while.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let seed = format!("127.0.0.1:{port}");
    let mut waiting = Running::start(scratch.member("lonely", 2).args(["--listen", "127.0.0.1:0", "--seeds", &seed]));
    let told: Value = serde_json::from_str(&waiting.says("unreached")).unwrap();
    let (here, unreached) = (&told["here"], &told["unreached"][0]);
    assert_eq!((here, &unreached["seed"]), (&json!([]), &json!(seed)));
    assert!(unreached["why"].as_str().unwrap().starts_with("Connection refused"), "{told}");
    waiting.signal(Signal::INT);
    let error = waiting.done().expect(130).stop();
    assert!(error.contains(&format!("no seed has answered; {seed}: Connection refused")), "{error}");
}
