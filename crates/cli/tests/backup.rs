//! `spindle backup`, with real members: backups at one cut under load, and a group that is restored.
mod common;

use common::{Done, PATIENCE, Running, Scratch};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Two logged subgroups, of which one is idle. Segments are small, so logs have many.
const SETTINGS: &str = "\
[group]
name = \"ledger\"
founders = 3

[member]
log_segment_bytes = \"64k\"

[[subgroup]]
name = \"lines\"
durability = \"logged\"

[[subgroup]]
name = \"audit\"
durability = \"logged\"
";

fn member(scratch: &Scratch, data: &str, words: &[&str]) -> Running {
    let file = scratch.path("ledger.toml");
    if !file.exists() {
        scratch.file("ledger.toml", SETTINGS.as_bytes());
    }
    let mut command = scratch.spindle(["member", "--json", "--config"]);
    command.arg(file).arg("--data").arg(scratch.path(data)).args(words);
    Running::start(command.stdin(Stdio::piped()))
}

fn started(scratch: &Scratch, data: &[&str], words: &[&str]) -> Vec<Running> {
    let mut members: Vec<Running> = data.iter().map(|data| member(scratch, data, words)).collect();
    members.iter_mut().for_each(|member| drop(member.event("joined")));
    members
}

fn backup<S: AsRef<std::ffi::OsStr>>(scratch: &Scratch, words: impl IntoIterator<Item = S>) -> Done {
    Running::start(scratch.spindle(["backup"]).args(words).arg("--json").current_dir(scratch.path(""))).done()
}

fn object(done: Done) -> Value {
    done.expect(0).objects().remove(0)
}

fn text(path: PathBuf) -> String {
    path.to_str().unwrap().to_string()
}

/// Returns the records of a log as lines, up to a clock.
fn records(scratch: &Scratch, data: &str, log: &str, cut: u64) -> Vec<String> {
    let mut command = scratch.spindle(["log", "cat", &text(scratch.path(data)), log, "--json"]);
    let done = Running::start(&mut command).done().expect(0);
    let lines = done.objects().into_iter().filter(|record| record["clock"].as_u64() <= Some(cut));
    lines.map(|record| format!("{} {} {}", record["version"], record["clock"], record["text"])).collect()
}

/// Sends lines until it is stopped, and returns how many.
fn send_meanwhile<T>(member: &mut Running, then: impl FnOnce() -> T) -> (T, u64) {
    let mut stdin = member.stdin.take().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (result, count, stdin) = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            use std::io::Write;
            let mut count = 0_u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let lines: String = (0..20).map(|i| format!("line {} {}\n", count + i, "x".repeat(100))).collect();
                stdin.write_all(lines.as_bytes()).unwrap();
                count += 20;
                thread::sleep(Duration::from_millis(2));
            }
            (count, stdin)
        });
        let result = then();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let (count, stdin) = sender.join().unwrap();
        (result, count, stdin)
    });
    member.stdin = Some(stdin);
    (result, count)
}

fn kill(members: Vec<Running>) {
    members.iter().for_each(Running::stop);
    members.into_iter().for_each(|member| {
        member.signal(Signal::KILL);
        member.done();
    });
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = vec![];
    let mut open = vec![dir.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    all.push((entry.path().strip_prefix(dir).unwrap().to_path_buf(), fs::read(entry.path()).unwrap()))
                }
            }
        }
    }
    all.sort();
    all
}

#[test]
fn backups_at_one_cut_are_equal_and_a_new_group_continues_from_one() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, &["a", "b", "c"], &[]);
    let ((first, second), count) = send_meanwhile(&mut members[0], || {
        let first = object(backup(&scratch, ["create", "a", "-o", "one"]));
        let cut = first["cut"].to_string();
        (first, object(backup(&scratch, ["create", "b", "-o", "two", "--at", &cut])))
    });
    let cut = first["cut"].as_u64().unwrap();
    assert_eq!(
        (&first["settled"], first["cut"].as_u64(), first["group"].as_str()),
        (&Value::Bool(true), Some(cut), Some("ledger"))
    );
    assert_eq!(first["logs"], second["logs"]);
    assert!(first["records"].as_u64() > Some(0), "{first}");
    let of_records = |dir: &str| {
        let all = files(&scratch.path(dir));
        all.into_iter().filter(|(path, _)| path.ends_with("records")).collect::<Vec<_>>()
    };
    assert_eq!(of_records("one").len(), 2);
    assert!(of_records("one") == of_records("two"), "the records differ");
    for dir in ["one", "two"] {
        assert_eq!(object(backup(&scratch, ["verify", dir]))["event"], "verified");
    }
    // More lines follow behind the cut, also after the epoch of the idle subgroup has ended.
    members[1].lines(count as usize);
    members[1].send(b"the last line\n");
    members.iter_mut().for_each(|member| drop(member.lines(count as usize + 1)));
    kill(members);
    let expected = records(&scratch, "a", "lines", cut);
    assert_eq!(Some(expected.len() as u64), first["records"].as_u64());
    assert!(expected.len() < records(&scratch, "a", "lines", u64::MAX).len());
    assert_eq!(expected, records(&scratch, "c", "lines", cut));

    let words = ["restore", "one", "--data", "x", "--data", "y", "--data", "z", "--members", "11,12,13"];
    let restored = object(backup(&scratch, words));
    assert_ne!(restored["incarnation"], first["incarnation"]);
    for data in ["x", "y", "z"] {
        assert_eq!(records(&scratch, data, "lines", u64::MAX), expected);
        let verified = Running::start(&mut scratch.spindle(["log", "verify", &text(scratch.path(data))])).done();
        verified.expect(0);
    }
    let mut members = started(&scratch, &["x", "y", "z"], &[]);
    // The old group has the same name, and its directories are refused.
    let [ours, theirs] = [&restored["incarnation"], &first["incarnation"]].map(|value| value.as_str().unwrap());
    let error = member(&scratch, "c", &[]).done().expect(1).error();
    assert!(error.contains(ours) && error.contains(theirs), "{error}");
    members[2].send(b"a new line\n");
    members.iter_mut().for_each(|member| assert_eq!(member.lines(1), ["a new line"]));
    Running::all_done(members).into_iter().for_each(|done| drop(done.expect(0)));
    let all = records(&scratch, "y", "lines", u64::MAX);
    assert_eq!((&all[..expected.len()], all.len()), (&expected[..], expected.len() + 1));
    assert!(all.last().unwrap().ends_with("\"a new line\""));
    let clock: u64 = all.last().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(clock > cut);
    let error = backup(&scratch, ["restore", "one", "--data", "x", "--data", "new"]).expect(1).error();
    assert!(error.contains("is not empty") && !scratch.path("new").exists(), "{error}");
}

#[test]
fn a_backup_of_a_directory_without_an_owner_goes_as_far_as_its_logs() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, &["a", "b", "c"], &[]);
    members[0].send(b"one\ntwo\n");
    members.iter_mut().for_each(|member| drop(member.lines(2)));
    // A message is printed when it is delivered, perhaps before it is on disk.
    let begun = Instant::now();
    while records(&scratch, "b", "lines", u64::MAX).len() < 2 {
        assert!(begun.elapsed() < PATIENCE);
    }
    kill(members);
    let taken = object(backup(&scratch, ["create", "b", "-o", "copy"]));
    assert_eq!((&taken["settled"], &taken["records"]), (&Value::Bool(false), &2.into()));
    // One member after the other, as on several hosts.
    let restored = object(backup(&scratch, ["restore", "copy", "--data", "x", "--members", "4,7", "--id", "7"]));
    let incarnation = restored["incarnation"].as_str().unwrap().to_string();
    let words = ["restore", "copy", "--data", "y", "--members", "4,7", "--id", "4", "--incarnation", &incarnation];
    assert_eq!(object(backup(&scratch, words))["incarnation"], *incarnation);
    let mut members = started(&scratch, &["x", "y"], &[]);
    members[0].send(b"three\n");
    assert_eq!(members[1].lines(1), ["three"]);
    Running::all_done(members).into_iter().for_each(|done| drop(done.expect(0)));
    assert_eq!(records(&scratch, "x", "lines", u64::MAX).len(), 3);
}

#[test]
fn logs_may_be_pruned_while_they_are_copied() {
    let scratch = Scratch::new();
    let settings = ["--set", "member.log_bytes_max=200k"];
    let mut members = started(&scratch, &["a", "b", "c"], &settings);
    let (pruned, _) = send_meanwhile(&mut members[0], || {
        let begun = Instant::now();
        let mut pruned = 0;
        for number in 0.. {
            let dir = format!("copy{number}");
            let taken = object(backup(&scratch, ["create", "c", "-o", &dir]));
            assert_eq!(object(backup(&scratch, ["verify", &dir]))["records"], taken["records"]);
            let lines = taken["logs"].as_array().unwrap().iter().find(|log| log["name"] == "lines").unwrap();
            pruned += u32::from(!lines["pruned"].is_null());
            if pruned == 4 {
                break;
            }
            assert!(begun.elapsed() < 4 * PATIENCE, "{taken}");
        }
        pruned
    });
    assert_eq!(pruned, 4);
    kill(members);
    object(backup(&scratch, ["restore", "copy3", "--data", "x"]));
    let mut alone = member(&scratch, "x", &settings);
    alone.event("joined");
    alone.send(b"next\n");
    assert_eq!(alone.lines(1), ["next"]);
    alone.done().expect(0);
}

#[test]
fn a_killed_backup_is_no_backup_and_a_stopped_one_leaves_nothing() {
    let scratch = Scratch::new();
    let members = started(&scratch, &["a", "b", "c"], &["--suspect-after", "never"]);
    // The cut does not come while a member is stopped, whose disk is waited for.
    members[1].stop();
    let create = |output: &str| {
        let mut command = scratch.spindle(["backup", "create", "a", "-o", output, "--json"]);
        Running::start(command.current_dir(scratch.path("")))
    };
    let mut stopped = create("stopped");
    stopped.event("waiting");
    let mut killed = create("killed");
    killed.event("waiting");
    stopped.signal(Signal::INT);
    killed.signal(Signal::KILL);
    let error = stopped.done().expect(130).error();
    assert!(error.contains("nothing"), "{error}");
    assert!(!scratch.path("stopped").exists());
    killed.done();
    let error = backup(&scratch, ["verify", "killed"]).expect(1).error();
    assert!(error.contains("not finished"), "{error}");
    let error = backup(&scratch, ["restore", "killed", "--data", "x"]).expect(1).error();
    assert!(error.contains("not finished") && !scratch.path("x").exists(), "{error}");
    let error = backup(&scratch, ["create", "a", "-o", "late", "--timeout", "0.5"]).expect(1).error();
    assert!(error.contains("the cut has not come") && !scratch.path("late").exists(), "{error}");
    members[1].signal(Signal::CONT);
    // A killed backup leaves nothing that is in the way of the next one.
    object(backup(&scratch, ["create", "a", "-o", "killed"]));
    let error = backup(&scratch, ["create", "a", "-o", "killed"]).expect(1).error();
    assert!(error.contains("is not empty"), "{error}");
    let error = backup(&scratch, ["create", "a", "-o", "future", "--at", "2100-01-01T00:00:00Z"]).expect(2).error();
    assert!(error.contains("future"), "{error}");
    Running::all_done(members).into_iter().for_each(|done| drop(done.expect(0)));
}

/// The directories of a test are small disks only if it may mount them.
#[test]
fn a_full_disk_ends_a_backup_and_leaves_nothing() {
    use std::process::Command;
    let scratch = Scratch::new();
    let small = scratch.path("small");
    fs::create_dir(&small).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&small)
        .stderr(Stdio::null())
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("not tested: no file system can be mounted here");
        return;
    }
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let _mounted = Mounted(small.clone());
    let mut members = started(&scratch, &["a", "b", "c"], &[]);
    let line = [&b"x".repeat(500)[..], b"\n"].concat();
    members[0].send(&line.repeat(1000));
    members.iter_mut().for_each(|member| drop(member.lines(1000)));
    let error = backup(&scratch, ["create", "a", "-o", "small/copy"]).expect(1).error();
    assert!(error.contains("has no space") && error.contains("more bytes are needed"), "{error}");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    object(backup(&scratch, ["create", "a", "-o", "copy"]));
    let error = backup(&scratch, ["restore", "copy", "--data", "small/x"]).expect(1).error();
    assert!(error.contains("space"), "{error}");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    Running::all_done(members).into_iter().for_each(|done| drop(done.expect(0)));
}
