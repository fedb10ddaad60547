//! Groups with logs whose hosts do not all come back. A host is a runtime directory here, and the network is
//! loopback. Members are processes, so that they can be killed.
mod common;
#[path = "common/logged.rs"]
mod logged;

use common::Scratch;
use logged::read_log;
use spindle::{
    Address, Batch, Config, Durability, Handler, LogSettings, LoggedExtent, MemberId, Network, Position,
    ReplayedMessage, Subgroup, SubgroupId, ViewChange, ViewId,
};
use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// How long a restart quorum waits for the others.
const RESTART_WAIT: Duration = Duration::from_millis(500);
/// Long enough to see that a restart does not begin.
const WAITS: Duration = Duration::from_secs(3);

/// Reports views.
struct Reporter;

impl Handler for Reporter {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(drop);
    }

    fn view_changed(&mut self, change: &ViewChange) {
        report_view(change.new.id, &change.new.members);
    }

    fn replays(&self) -> bool {
        true
    }

    fn replay_from(&mut self, _: SubgroupId, _: &LoggedExtent) -> Option<Position> {
        None
    }

    fn replay(&mut self, _: SubgroupId, _: &ReplayedMessage<'_>) {}
}

fn report_view(id: ViewId, members: &[MemberId]) {
    let members: BTreeSet<String> = members.iter().map(ToString::to_string).collect();
    let members: Vec<String> = members.into_iter().collect();
    println!("report view {} of {}", id.0, members.join(" "));
}

fn config(dir: &Path, id: u64, members: u32) -> Config {
    let at = |id: u64| -> Address { format!("unix:{}/seed{id}", dir.display()).parse().unwrap() };
    let logged = Subgroup { window: 16, message_bytes_max: 200, ..Subgroup::new("ledger") };
    let log = LogSettings { segment_bytes: 1 << 20, restart_wait: Some(RESTART_WAIT), ..LogSettings::default() };
    let data_dir = dir.join(format!("data-{id}"));
    std::fs::create_dir_all(&data_dir).unwrap();
    Config {
        id: Some(MemberId(id)),
        runtime_dir: Some(dir.join(format!("host{id}"))),
        network: Some(Network::new(at(id), (1..=u64::from(members)).map(at).collect())),
        suspect_after: Some(Duration::from_secs(2)),
        gather_timeout: LONG,
        data_dir: Some(data_dir),
        log,
        subgroups: vec![Subgroup { durability: Durability::Logged { copies: 2 }, ..logged }],
        ..Config::new("restart-hosts", members)
    }
}

/// A member, which does what its standard input says.
fn child(dir: &Path, id: u64, members: u32) {
    let mut node = config(dir, id, members).join().unwrap();
    report_view(node.view().id, &node.view().members.clone());
    let mut publisher = node.publisher("ledger").unwrap();
    let group = node.start(Reporter).unwrap();
    for line in std::io::stdin().lines() {
        match line.unwrap().split_once(' ') {
            Some(("send", text)) => {
                publisher.send_tracked(text.as_bytes(), LONG).unwrap().durable().wait(LONG).unwrap();
                println!("report durable {text}");
            }
            Some(("end", "dropped")) => break,
            Some(("end", "finished")) => {
                drop(publisher);
                group.finish(LONG).unwrap();
                println!("report finished");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    drop((publisher, group));
    println!("report dropped");
}

/// The child processes run this test, and it does nothing otherwise.
#[test]
fn child_process() {
    let Ok(task) = std::env::var("SPINDLE_TEST_MEMBER") else { return };
    let [dir, id, members] = *task.split(' ').collect::<Vec<_>>() else { panic!("{task}") };
    child(Path::new(dir), id.parse().unwrap(), members.parse().unwrap());
}

/// A process with a member.
struct Member {
    child: Child,
    reports: Receiver<String>,
    unread: VecDeque<String>,
}

impl Member {
    fn start(scratch: &Scratch, id: u64, members: u32) -> Member {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process", "--nocapture"])
            .env("SPINDLE_TEST_MEMBER", format!("{} {id} {members}", scratch.0.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, reports) = channel();
        thread::spawn(move || {
            // The harness writes the name of the test in front of the first line.
            let reports =
                lines.map_while(Result::ok).filter_map(|line| Some(line.split_once("report ")?.1.to_string()));
            reports.for_each(|report| _ = tell.send(report));
        });
        Member { child, reports, unread: VecDeque::new() }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Waits for a report that begins like this, and returns it.
    fn wait(&mut self, begin: &str) -> String {
        self.wait_for(begin, LONG).unwrap_or_else(|| panic!("no {begin:?}, but {:?}", self.unread))
    }

    fn wait_for(&mut self, begin: &str, at_most: Duration) -> Option<String> {
        let start = Instant::now();
        loop {
            if let Some(at) = self.unread.iter().position(|report| report.starts_with(begin)) {
                return self.unread.remove(at);
            }
            match self.reports.recv_timeout(at_most.saturating_sub(start.elapsed())) {
                Ok(report) => self.unread.push_back(report),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits for a view of these members, and returns its id.
    fn wait_for_view(&mut self, members: &str) -> u64 {
        let start = Instant::now();
        loop {
            let view = self.wait("view ");
            let (id, of) = view["view ".len()..].split_once(" of ").unwrap();
            if of == members {
                return id.parse().unwrap();
            }
            assert!(start.elapsed() < LONG, "no view of {members}");
        }
    }

    fn send(&mut self, text: &str) {
        self.order(&format!("send {text}"));
        self.wait(&format!("durable {text}"));
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([&format!("-{signal}"), &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn has_ended(mut self, how: &str) {
        self.wait(how);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // If a test fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(scratch: &Scratch, ids: &[u64]) -> Vec<Member> {
    std::fs::create_dir_all(&scratch.0).unwrap();
    ids.iter().map(|id| Member::start(scratch, *id, 3)).collect()
}

/// Waits until each is in a view of these members, and returns the ids of the views.
fn wait_for_views(members: &mut [Member], of: &str) -> Vec<u64> {
    members.iter_mut().map(|member| member.wait_for_view(of)).collect()
}

/// Three members have created the group.
fn begin(scratch: &Scratch) -> Vec<Member> {
    let mut members = start(scratch, &[1, 2, 3]);
    wait_for_views(&mut members, "1 2 3");
    members
}

fn finish(members: Vec<Member>) {
    let mut members = members;
    members.iter_mut().for_each(|member| member.order("end finished"));
    members.into_iter().for_each(|member| member.has_ended("finished"));
}

/// Kills all of them. None of them sees the end of another one.
fn kill_all(members: Vec<Member>) {
    members.iter().for_each(|member| member.signal("STOP"));
    members.into_iter().for_each(Member::kill);
}

/// The messages in the log of a member, which does not run, with their versions.
fn read(scratch: &Scratch, id: u64) -> Vec<(u64, u64, String)> {
    read_log(&scratch.0.join(format!("data-{id}/log")), "ledger", |version, _, message| {
        (version.epoch, version.sequence, String::from_utf8(message.payload.to_vec()).unwrap())
    })
}

fn texts(records: &[(u64, u64, String)]) -> Vec<&str> {
    records.iter().map(|(.., text)| text.as_str()).collect()
}

#[test]
fn a_group_restarts_without_a_host_that_stays_away_and_admits_it_later() {
    let scratch = Scratch::new("restart-hosts-away");
    let mut members = begin(&scratch);
    members[0].send("first");
    members[2].send("second");
    kill_all(members);

    let mut members = start(&scratch, &[1, 2]);
    let views = wait_for_views(&mut members, "1 2");
    // No operator has given up a member, so no era begins.
    assert_eq!(views, [2, 2]);
    members[1].send("third");
    members.extend(start(&scratch, &[3]));
    wait_for_views(&mut members, "1 2 3");
    members[2].send("fourth");
    finish(members);
    let all = read(&scratch, 1);
    assert_eq!(texts(&all), ["first", "second", "third", "fourth"]);
    assert_eq!((read(&scratch, 2), read(&scratch, 3)), (all.clone(), all));
}

/// The third member may know that the other two have ended, so it may have continued alone. It has, in fact.
#[test]
fn members_that_have_said_that_they_end_do_not_restart_without_one_that_may_have_continued() {
    let scratch = Scratch::new("restart-hosts-said");
    let mut members = begin(&scratch);
    members[0].send("first");
    let mut third = members.pop().unwrap();
    // It learns of both ends at once, so that no view has the third member and one of the two.
    third.signal("STOP");
    members.iter_mut().for_each(|member| member.order("end dropped"));
    members.into_iter().for_each(|member| member.has_ended("dropped"));
    third.signal("CONT");
    third.wait_for_view("3");
    third.kill();

    let mut members = start(&scratch, &[1, 2]);
    let views = members.iter_mut().map(|member| member.wait_for("view", WAITS));
    assert_eq!(views.collect::<Vec<_>>(), [None, None]);
    members.extend(start(&scratch, &[3]));
    wait_for_views(&mut members, "1 2 3");
    members[1].send("second");
    finish(members);
    let all = read(&scratch, 3);
    assert_eq!(texts(&all), ["first", "second"]);
    assert_eq!((read(&scratch, 1), read(&scratch, 2)), (all.clone(), all));
}

/// Each of three members has said that it ends.
#[test]
fn a_group_that_has_finished_restarts_with_all_its_members() {
    let scratch = Scratch::new("restart-hosts-finished");
    let mut members = begin(&scratch);
    members[0].send("first");
    finish(members);

    let mut members = start(&scratch, &[2, 3]);
    assert_eq!(members[0].wait_for("view", WAITS), None);
    members.extend(start(&scratch, &[1]));
    assert!(wait_for_views(&mut members, "1 2 3").iter().all(|view| *view == 2));
    members[2].send("second");
    // One that is killed while the others live, and its host with it.
    members.remove(0).kill();
    wait_for_views(&mut members, "1 3");
    finish(members);
}

#[test]
fn one_host_of_three_does_not_restart_alone() {
    let scratch = Scratch::new("restart-hosts-alone");
    let mut members = begin(&scratch);
    members[0].send("first");
    kill_all(members);
    let mut members = start(&scratch, &[1]);
    assert_eq!(members[0].wait_for("view", WAITS), None);
    members.extend(start(&scratch, &[3]));
    assert!(wait_for_views(&mut members, "1 3").iter().all(|view| *view == 2));
    finish(members);
}
